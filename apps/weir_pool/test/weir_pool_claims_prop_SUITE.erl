%% Claims under random sequences of everything that can happen to them.
%%
%% Claimers are processes of their own, told what to do by the commands: to claim (with a fun or by a checkout, with all kinds
%% of time-outs), to let go, to fail, to be killed; workers are killed, slots replaced, the pool is resized, and its processes
%% are killed, while claims are held and waited for.
%%
%% The oracle is a table that shares nothing with the pool. Whoever gets a worker enters itself under the worker's pid, and
%% takes the entry out before it lets go: to find somebody else's entry there, of a process that is alive, is to find that a
%% worker has two holders. The model says who may hold or wait; whether it was right is seen when all have let go: then
%% nothing is claimed, nobody waits, and every slot has a worker of its own.
-module(weir_pool_claims_prop_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1]).
-export([replaced/1, waited_for/1, freed/1]).
-export([initial_state/0, command/1, precondition/2, postcondition/3, next_state/3]).
-export([claim/4, let_go/1, fail/2, kill_claimer/1, kill_worker/1, replace/1, resize/1, kill_process/1, look/0]).

-define(POOL, {?MODULE, pool}).
-define(TABLE, ?MODULE).
-define(CLAIMERS, 12).
-define(MAX_SIZE, 6).

%% Sequences of about this many commands; as many sequences as CLAIM_SEQUENCES says, or this many, for each case. Together
%% more than 10,000 commands.
-define(COMMANDS, 120).
-define(SEQUENCES, 60).

suite() -> [{timetrap, {minutes, 60}}].

all() -> [replaced, waited_for, freed].

init_per_suite(Config) -> weir_pool_test_lib:quiet(Config).

end_per_suite(Config) -> weir_pool_test_lib:loud(Config).

%% What becomes of the worker of a claimer that died.
replaced(_Config) -> holds(#{abandoned => replace}).
waited_for(_Config) -> holds(#{abandoned => {wait, 50}, queue => lifo}).
freed(_Config) -> holds(#{abandoned => free, overflow => #{max => 2, linger => 20}}).

%% ---------------------------------------------------------------- the state machine

%% Claimers by number: free, or busy with a claim that may hold, wait, or have failed. Crashes of the pool's own processes.
initial_state() -> #{busy => [], crashes => 0}.

command(#{busy := Busy}) ->
    Claimer = range(1, ?CLAIMERS),
    Timeout = frequency([{2, 0}, {3, range(1, 5)}, {1, 1000}, {3, infinity}]),
    frequency(
        [
            {12, {call, ?MODULE, claim, [Claimer, oneof([fun_, checkout, covers_work]), Timeout, oneof([hold, return])]}},
            {3, {call, ?MODULE, kill_worker, [range(1, ?MAX_SIZE)]}},
            {1, {call, ?MODULE, replace, [range(1, ?MAX_SIZE)]}},
            {1, {call, ?MODULE, resize, [range(1, ?MAX_SIZE)]}},
            {1, {call, ?MODULE, kill_process, [oneof([keeper, queue])]}},
            {1, {call, ?MODULE, look, []}}
        ] ++
            [
                {Weight, {call, ?MODULE, Command, [elements(Busy) | More]}}
             || Busy =/= [],
                {Weight, Command, More} <- [
                    {8, let_go, []}, {2, fail, [oneof([error, throw, exit, timeout])]}, {4, kill_claimer, []}
                ]
            ]
    ).

precondition(#{busy := Busy}, {call, _, claim, [Claimer | _]}) ->
    not lists:member(Claimer, Busy);
precondition(#{busy := Busy}, {call, _, Command, [Claimer | _]}) when
    Command =:= let_go; Command =:= fail; Command =:= kill_claimer
->
    lists:member(Claimer, Busy);
%% One of the pool's supervisors forgives ten within ten seconds.
precondition(#{crashes := Crashes}, {call, _, kill_process, _}) ->
    Crashes < 9;
precondition(_State, _Call) ->
    true.

next_state(#{busy := Busy} = State, _Result, {call, _, claim, [Claimer, _, _, hold]}) ->
    State#{busy := [Claimer | Busy]};
next_state(#{busy := Busy} = State, _Result, {call, _, Command, [Claimer | _]}) when
    Command =:= let_go; Command =:= fail; Command =:= kill_claimer
->
    State#{busy := lists:delete(Claimer, Busy)};
next_state(#{crashes := Crashes} = State, _Result, {call, _, kill_process, _}) ->
    State#{crashes := Crashes + 1};
next_state(State, _Result, _Call) ->
    State.

postcondition(_State, {call, _, replace, _}, Result) ->
    lists:member(Result, [ok, {error, no_slot}, {error, replacing}, {error, no_pool}]) orelse is_pool_down(Result);
postcondition(_State, {call, _, resize, _}, Result) ->
    lists:member(Result, [ok, {error, resizing}, {error, no_pool}]) orelse is_pool_down(Result);
postcondition(_State, {call, _, look, []}, {Claimed, Limit}) ->
    Claimed =< Limit andalso violations() =:= [];
postcondition(_State, _Call, ok) ->
    violations() =:= [].

is_pool_down({error, {pool_down, _}}) -> true;
is_pool_down(_) -> false.

violations() -> [What || [What] <- ets:match(?TABLE, {{violation, '_'}, '$1'})].

%% ---------------------------------------------------------------- commands

%% Starts a claimer, which ends by itself when its claim is over.
claim(Number, How, Timeout, WhatThen) ->
    await_end(Number),
    Pid = spawn(fun() -> claimer(How, Timeout, WhatThen) end),
    true = ets:insert(?TABLE, {{claimer, Number}, Pid}),
    ok.

let_go(Number) -> tell(Number, let_go).

fail(Number, Class) -> tell(Number, {fail, Class}).

kill_claimer(Number) ->
    exit(claimer_pid(Number), kill),
    ok.

kill_worker(Slot) ->
    case [Pid || {S, Pid} <- workers(), S =:= Slot] of
        [Pid] -> exit(Pid, kill);
        [] -> true
    end,
    ok.

%% Both wait for claims to be released, which may be for ever: others do it.
replace(Slot) -> elsewhere(fun() -> weir_pool:replace(?POOL, Slot) end).

resize(Size) -> weir_pool:resize(?POOL, Size).

kill_process(Which) ->
    case weir_pool_registry:Which(?POOL) of
        undefined -> ok;
        Pid -> weir_pool_test_lib:kill(Pid)
    end,
    ok.

look() ->
    {ok, #{claimed := Claimed, limit := Limit}} = info(),
    {Claimed, Limit}.

elsewhere(Fun) ->
    _ = spawn(Fun),
    ok.

tell(Number, What) ->
    claimer_pid(Number) ! What,
    ok.

claimer_pid(Number) -> ets:lookup_element(?TABLE, {claimer, Number}, 2).

await_end(Number) ->
    case ets:lookup(?TABLE, {claimer, Number}) of
        [{_, Pid}] -> Pid ! let_go;
        [] -> ok
    end.

workers() ->
    case weir_pool:workers(?POOL) of
        {ok, Workers} -> Workers;
        {error, no_pool} -> []
    end.

%% The pool is closed for a moment when a process of it restarts.
info() ->
    case weir_pool:info(?POOL) of
        {ok, _} = Info ->
            Info;
        {error, no_pool} ->
            erlang:yield(),
            info()
    end.

%% ---------------------------------------------------------------- claimers

claimer(checkout, Timeout, WhatThen) ->
    case weir_pool:checkout(?POOL, #{timeout => Timeout}) of
        {ok, Worker, Ticket} ->
            enter(Worker),
            _ = while_holding(WhatThen),
            leave(Worker),
            %% Not held: the worker died, or was replaced.
            true = lists:member(weir_pool:checkin(?POOL, Ticket), [ok, {error, not_held}]),
            {error, not_held} = weir_pool:checkin(?POOL, Ticket);
        {error, Reason} ->
            expected(Reason)
    end;
%% The claim is made by a process of its own, which nobody tells to let go: it is killed at the deadline, or with its claimer.
claimer(covers_work, infinity, WhatThen) ->
    claimer(covers_work, 5, WhatThen);
claimer(covers_work, Timeout, WhatThen) ->
    Use = fun(Worker) ->
        enter(Worker),
        done = while_holding(WhatThen),
        leave(Worker),
        done
    end,
    case weir_pool:claim(?POOL, Use, #{timeout => Timeout, covers => work}) of
        {ok, done} -> ok;
        {error, Reason} -> expected(Reason)
    end;
claimer(fun_, Timeout, WhatThen) ->
    Use = fun(Worker) ->
        enter(Worker),
        try
            while_holding(WhatThen)
        after
            leave(Worker)
        end
    end,
    try weir_pool:claim(?POOL, Use, #{timeout => Timeout}) of
        {ok, done} -> ok;
        {error, Reason} -> expected(Reason)
    catch
        error:wanted -> ok;
        throw:wanted -> ok;
        exit:wanted -> ok;
        exit:{timeout, wanted} -> ok
    end.

while_holding(return) ->
    done;
while_holding(hold) ->
    receive
        let_go -> done;
        {fail, error} -> error(wanted);
        {fail, throw} -> throw(wanted);
        {fail, exit} -> exit(wanted);
        {fail, timeout} -> exit({timeout, wanted})
    end.

expected(busy) -> ok;
expected(no_worker) -> ok;
expected(timeout) -> ok;
expected(no_pool) -> ok;
expected(Other) -> violation({unexpected, Other}).

enter(Worker) ->
    case ets:insert_new(?TABLE, {Worker, self()}) of
        true ->
            ok;
        false ->
            case ets:lookup(?TABLE, Worker) of
                [{_, Other}] when Other =/= self() ->
                    case is_process_alive(Other) of
                        true -> violation({two_holders, Worker, self(), Other});
                        false -> replace_entry(Worker, Other)
                    end;
                _ ->
                    enter(Worker)
            end
    end.

%% Two might see the same dead holder.
replace_entry(Worker, Dead) ->
    case ets:select_replace(?TABLE, [{{Worker, Dead}, [], [{{Worker, self()}}]}]) of
        1 -> ok;
        0 -> enter(Worker)
    end.

leave(Worker) ->
    case ets:lookup(?TABLE, Worker) of
        [{_, Self}] when Self =:= self() -> ets:delete(?TABLE, Worker);
        Other -> violation({not_mine, Worker, self(), Other})
    end.

violation(What) -> ets:insert(?TABLE, {{violation, make_ref()}, What}).

%% ---------------------------------------------------------------- the property

holds(Opts) ->
    Sequences = list_to_integer(os:getenv("CLAIM_SEQUENCES", integer_to_list(?SEQUENCES))),
    Ran = counters:new(1, []),
    Property = ?FORALL(
        Commands,
        resize(?COMMANDS, commands(?MODULE)),
        begin
            set_up(Opts),
            {History, _State, Result} = run_commands(?MODULE, Commands),
            counters:add(Ran, 1, length(History)),
            Left = quiescence(),
            Violations = violations(),
            tear_down(),
            ?WHENFAIL(
                ct:pal("~p~n~p~nleft: ~p~nviolations: ~p", [Commands, Result, Left, Violations]),
                Result =:= ok andalso Left =:= [] andalso Violations =:= []
            )
        end
    ),
    Passed = proper:quickcheck(Property, [{numtests, Sequences}, {max_size, ?COMMANDS}, {max_shrinks, 20}, quiet]),
    ct:pal("~b commands", [counters:get(Ran, 1)]),
    ?assert(Passed).

set_up(Opts) ->
    ?TABLE = ets:new(?TABLE, [named_table, public, set]),
    {ok, _} = application:ensure_all_started(weir_pool),
    Worker = {weir_pool_test_worker, start_link, []},
    ok = weir_pool:start(?POOL, Opts#{size => 3, worker => Worker, intensity => 100000}).

tear_down() ->
    _ = weir_pool:stop(?POOL),
    ok = application:stop(weir_pool),
    true = ets:delete(?TABLE).

%% Everybody lets go. What is then left that should not be.
quiescence() ->
    Claimers = [Pid || {{claimer, _}, Pid} <- ets:tab2list(?TABLE)],
    [Pid ! let_go || Pid <- Claimers],
    Alive = fun() -> [{alive, Pid, process_info(Pid, current_stacktrace)} || Pid <- Claimers, is_process_alive(Pid)] end,
    wait_for(Alive) ++ wait_for(fun not_at_rest/0).

%% Does not wait for the keeper's next look at the claims of the dead.
not_at_rest() ->
    case weir_pool_registry:manager(?POOL) of
        undefined -> ok;
        Keeper -> Keeper ! sweep
    end,
    {ok, Info} = info(),
    #{size := Size, limit := Limit, claimed := Claimed, reserved := Held, waiting := Waiting, oldest_wait_ms := Oldest} = Info,
    Pids = [Pid || {Slot, Pid} <- workers(), Slot =< Size],
    Whole = length(lists:usort(Pids)) =:= Size andalso lists:all(fun is_process_alive/1, Pids),
    Overflow = [Slot || {Slot, _} <- workers(), Slot > Size, Slot =< Limit],
    case {Claimed, Held, Waiting, Oldest, Whole} of
        {0, 0, 0, 0, true} when Overflow =:= [] -> [];
        _ -> [{not_at_rest, Info, workers()}]
    end.

%% Until there is nothing left; or what there is when time is up.
wait_for(Left) ->
    try
        weir_pool_test_lib:eventually(fun() ->
            case Left() of
                [] -> true;
                Some -> Some
            end
        end)
    of
        ok -> []
    catch
        error:{still, Some} -> Some
    end.
