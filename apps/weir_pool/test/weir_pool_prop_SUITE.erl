%% Pools under random sequences of everything that can happen to them, and under all of it at once.
%%
%% The oracle knows nothing of the pool's insides. Workers enter themselves in a table when they start; which of them
%% are alive is the runtime's word. A model says which pools should exist, with which size, and which workers a step may
%% have replaced. After each step the pool must come to agree with both.
-module(weir_pool_prop_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).

-define(NAMES, [p, {q, 1}]).
-define(TABLE, ?MODULE).

%% Crashes of the registry that its supervisor forgives.
-define(FORGIVEN, 9).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% Pools: size, and who sees to them when their manager is killed: weir_pool's own supervisor, which starts them again,
%% or a process that does not.
initial_state() -> #{pools => #{}, registry => 0}.

command(#{pools := Pools}) ->
    Name = elements(?NAMES),
    Always = [
        {3, {call, ?MODULE, start, [Name, range(1, 5)]}},
        {2, {call, ?MODULE, start_linked, [Name, range(1, 5)]}},
        {1, {call, ?MODULE, stop, [Name]}},
        {1, {call, ?MODULE, pick, [Name]}},
        {1, {call, ?MODULE, pick, [Name, any()]}},
        {1, {call, ?MODULE, kill_registry, []}}
    ],
    Started =
        case maps:keys(Pools) of
            [] ->
                [];
            Names ->
                Live = elements(Names),
                [
                    {4, {call, ?MODULE, pick, [Live]}},
                    {4, {call, ?MODULE, pick, [Live, any()]}},
                    {4, {call, ?MODULE, kill_worker, [Live, range(1, 5)]}},
                    {2, {call, ?MODULE, kill_workers, [Live]}},
                    {2, {call, ?MODULE, kill_slot_sup, [Live, range(1, 5)]}},
                    {1, {call, ?MODULE, kill_slot_sups, [Live]}},
                    {2, {call, ?MODULE, kill_manager, [Live]}},
                    {1, {call, ?MODULE, kill_queue, [Live]}}
                ]
        end,
    frequency(Always ++ Started).

precondition(#{registry := Crashes}, {call, _, kill_registry, []}) ->
    Crashes < ?FORGIVEN;
precondition(#{pools := Pools}, {call, _, Kill, [Name | _]}) when
    Kill =:= kill_worker;
    Kill =:= kill_workers;
    Kill =:= kill_slot_sup;
    Kill =:= kill_slot_sups;
    Kill =:= kill_manager;
    Kill =:= kill_queue
->
    is_map_key(Name, Pools);
precondition(_State, _Call) ->
    true.

next_state(#{pools := Pools} = State, _Result, {call, _, Start, [Name, Size]}) when
    Start =:= start; Start =:= start_linked
->
    case Pools of
        #{Name := _} -> State;
        #{} -> State#{pools := Pools#{Name => {Size, Start}}}
    end;
next_state(#{pools := Pools} = State, _Result, {call, _, stop, [Name]}) ->
    State#{pools := maps:remove(Name, Pools)};
next_state(#{pools := Pools} = State, _Result, {call, _, Kill, [Name]}) when
    Kill =:= kill_manager; Kill =:= kill_queue
->
    case Pools of
        #{Name := {_Size, start}} -> State;
        #{Name := {_Size, start_linked}} -> State#{pools := maps:remove(Name, Pools)}
    end;
next_state(#{registry := Crashes} = State, _Result, {call, _, kill_registry, []}) ->
    State#{registry := Crashes + 1};
next_state(State, _Result, _Call) ->
    State.

postcondition(#{pools := Pools} = State, Call, Result) ->
    result_is_right(Pools, Call, Result) andalso agrees(maps:get(pools, next_state(State, Result, Call))).

result_is_right(Pools, {call, _, Start, [Name, _]}, Result) when Start =:= start; Start =:= start_linked ->
    case Pools of
        #{Name := _} -> Result =:= {error, already_started};
        #{} -> Result =:= ok
    end;
result_is_right(Pools, {call, _, stop, [Name]}, Result) ->
    case Pools of
        #{Name := _} -> Result =:= ok;
        #{} -> Result =:= {error, no_pool}
    end;
result_is_right(Pools, {call, _, pick, [Name | _]}, Result) ->
    case Pools of
        #{Name := _} ->
            {ok, Pid} = Result,
            lists:member(Pid, alive(Name));
        #{} ->
            Result =:= {error, no_pool}
    end;
%% {Before, Victims}: who was alive and who was to die. The others stay, however the pool mends itself.
result_is_right(_Pools, {call, _, _Kill, [Name | _]}, {Before, Victims}) ->
    gone(Name, Victims) andalso (Before -- Victims) -- alive(Name) =:= [];
result_is_right(_Pools, {call, _, kill_registry, []}, ok) ->
    true.

gone(Name, Victims) -> ok =:= until(fun() -> Victims -- alive(Name) =:= Victims end).

%% Waits until all is as the model says: each pool that exists is full and even, and nothing of another pool is left.
agrees(Pools) -> lists:all(fun(Name) -> ok =:= until(fun() -> agrees(Name, Pools) end) end, ?NAMES).

agrees(Name, Pools) ->
    case Pools of
        #{Name := {Size, _}} -> full(Name, Size);
        #{} -> alive(Name) =:= [] andalso is_free(Name)
    end.

%% A pool that ends keeps its name a little longer than it can be picked from.
is_free(Name) -> weir_pool:pick(Name) =:= {error, no_pool} andalso not lists:member(Name, weir_pool:pools()).

%% As many rounds as there are schedulers, so that each slot has its turn wherever the process runs.
full(Name, Size) ->
    Alive = lists:sort(alive(Name)),
    Rounds = erlang:system_info(schedulers) + 1,
    Picked = [Pid || _ <- lists:seq(1, Rounds * Size), {ok, Pid} <- [weir_pool:pick(Name)]],
    length(Alive) =:= Size andalso
        length(Picked) =:= Rounds * Size andalso
        lists:usort(Picked) =:= Alive andalso
        matches_info(weir_pool:info(Name), Size).

matches_info({ok, #{size := Size, live := Size, vacant := 0}}, Size) -> true;
matches_info(_, _) -> false.

alive(Name) -> [Pid || {_, Pid} <- ets:lookup(?TABLE, Name), is_process_alive(Pid)].

opts(Name, Size) ->
    #{size => Size, worker => {weir_pool_test_worker, start_logged, [?TABLE, Name]}, intensity => 100000}.

start(Name, Size) -> weir_pool:start(Name, opts(Name, Size)).

start_async(Name, Size) ->
    weir_pool:start(Name, (maps:remove(intensity, opts(Name, Size)))#{start => async, backoff => {1, 4}}).

%% Linked to a process that lives until the pool does not.
start_linked(Name, Size) ->
    Test = self(),
    {Owner, Monitor} = spawn_monitor(fun() ->
        process_flag(trap_exit, true),
        Result = weir_pool:start_link(Name, opts(Name, Size)),
        Test ! {self(), Result},
        case Result of
            {ok, Sup} ->
                receive
                    {'EXIT', Sup, _} -> ok
                end;
            {error, _} ->
                ok
        end
    end),
    receive
        {Owner, Result} ->
            demonitor(Monitor, [flush]),
            case Result of
                {ok, _Sup} -> ok;
                {error, _} -> Result
            end;
        {'DOWN', Monitor, process, Owner, Reason} ->
            {died, Reason}
    end.

stop(Name) -> weir_pool:stop(Name).

pick(Name) -> weir_pool:pick(Name).

pick(Name, Key) -> weir_pool:pick(Name, Key).

kill_worker(Name, Index) ->
    Before = alive(Name),
    Victim = lists:nth((Index - 1) rem length(Before) + 1, Before),
    weir_kit:kill(Victim),
    {Before, [Victim]}.

kill_workers(Name) ->
    Before = alive(Name),
    [exit(Pid, kill) || Pid <- Before],
    {Before, Before}.

%% The worker of this supervisor dies with it, and no other.
kill_slot_sup(Name, Index) ->
    Before = alive(Name),
    Slot = (Index - 1) rem length(Before) + 1,
    Victim = lists:nth(Slot, weir_pool_test_lib:slots(Name)),
    weir_kit:kill(weir_pool_test_lib:slot_sup(Name, Slot)),
    {Before, [Victim]}.

kill_slot_sups(Name) ->
    Before = alive(Name),
    [exit(Sup, kill) || Sup <- weir_pool_test_lib:slot_sups(Name)],
    {Before, Before}.

%% Nothing survives either.
kill_manager(Name) ->
    Before = alive(Name),
    weir_kit:kill(weir_pool_test_lib:manager(Name)),
    {Before, Before}.

kill_queue(Name) ->
    Before = alive(Name),
    weir_kit:kill(weir_pool_test_lib:queue(Name)),
    {Before, Before}.

%% Waits for the next registry: without one, starts are refused.
kill_registry() ->
    Old = whereis(weir_pool_registry),
    weir_kit:kill(Old),
    until(fun() -> not lists:member(whereis(weir_pool_registry), [undefined, Old]) end).

random_sequences(_Config) ->
    Property = ?FORALL(Commands, commands(?MODULE), run_and_find(Commands)),
    weir_kit_property:holds(Property, [{numtests, weir_kit:long(75, 150)}, {max_size, 60}, quiet]).

%% Runs commands, and returns what was wrong.
run_and_find(Commands) ->
    set_up(),
    {History, State, Result} = weir_kit_property:run_commands(?MODULE, Commands),
    Left = tear_down(),
    Wrong = [{result, Result} || Result =/= ok] ++ [{left, Left} || Left =/= []],
    _ = Wrong =:= [] orelse
        ct:pal("~p~n~p in step ~b: ~p~nnow: ~p", [
            Commands, Wrong, length(History), lists:sublist(lists:reverse(History), 1), State
        ]),
    Wrong.

set_up() ->
    ?TABLE = ets:new(?TABLE, [named_table, public, bag]),
    {ok, _} = application:ensure_all_started(weir_pool).

%% Stops all pools, and returns an error if something is left a minute later.
tear_down() ->
    [weir_pool:stop(Name) || Name <- ?NAMES],
    Left =
        try
            ok = weir_pool_test_lib:nothing_left_soon(),
            []
        catch
            error:Never -> [Never]
        end,
    ok = application:stop(weir_pool),
    true = ets:delete(?TABLE),
    Left.

%% Pickers pick without a pause, while pools start, stop, and lose processes of every kind. Each pick returns a value
%% that is documented, and in the end the pools are whole.
everything_at_once(_Config) ->
    set_up(),
    rand:seed(exsss, {1, 2, 3}),
    Pickers = [weir_kit:start(fun() -> picker(0) end) || _ <- [1, 2, 3, 4]],
    Steps = weir_kit:long(75, 150),
    _ = weir_kit:in_parallel([fun() -> chaos(Seed, Steps) end || Seed <- [1, 2, 3]]),
    [Pid ! stop || {Pid, _} <- Pickers],
    ?assert(lists:all(fun(Picker) -> weir_kit:result(Picker) > 0 end, Pickers)),
    %% A pool whose manager was killed last may come back after it was found to be gone.
    [until(fun() -> started_anew(Name, 4) end) || Name <- ?NAMES],
    true = agrees(maps:from_list([{Name, {4, start}} || Name <- ?NAMES])),
    ?assertEqual([], tear_down()).

started_anew(Name, Size) ->
    _ = weir_pool:stop(Name),
    start(Name, Size) =:= ok.

picker(N) ->
    receive
        stop -> N
    after 0 ->
        Found = lists:sum([found(weir_pool:pick(Name)) + found(weir_pool:pick(Name, N)) || Name <- ?NAMES]),
        picker(N + Found)
    end.

found({ok, Pid}) when is_pid(Pid) -> 1;
found({error, no_pool}) -> 0;
found({error, no_worker}) -> 0;
found(Other) -> weir_kit:fault({wrong_pick, Other}).

chaos(Seed, Steps) ->
    rand:seed(exsss, {Seed, Seed, Seed}),
    [step(rand:uniform(20), lists:nth(rand:uniform(2), ?NAMES)) || _ <- lists:seq(1, Steps)],
    ok.

step(N, Name) when N =< 4 -> start(Name, rand:uniform(6));
step(N, Name) when N =< 8 -> start_async(Name, rand:uniform(6));
step(9, Name) -> stop(Name);
step(N, Name) when N =< 17 -> kill_some(weir_pool_test_lib:workers(Name));
step(18, Name) -> kill_if_any(fun() -> weir_pool_test_lib:manager(Name) end);
step(19, Name) -> kill_if_any(fun() -> weir_pool_test_lib:queue(Name) end);
step(20, Name) -> kill_if_any(fun() -> weir_pool_test_lib:slot_sup(Name, 1) end).

kill_some([]) -> ok;
kill_some(Pids) -> exit(lists:nth(rand:uniform(length(Pids)), Pids), kill).

%% The pool may be gone, or go while it is asked.
kill_if_any(Which) ->
    try Which() of
        Pid -> exit(Pid, kill)
    catch
        error:_ -> ok;
        exit:_ -> ok
    end.
