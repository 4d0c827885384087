%% Claims under random sequences of everything that can happen to them.
%%
%% Claimers are processes of their own (weir_pool_prop_claimer), told what to do by the commands: to claim, with all
%% kinds of time-outs and one claim inside another, to let go, to fail, to be killed. Workers are killed, slots
%% replaced, the pool is resized, and its processes are killed, while claims are held and waited for; in a pool of
%% processes that connect themselves, these disconnect, connect again, and die.
%%
%% The oracle is a table that shares nothing with the pool. A process that gets a worker enters itself under the pid of
%% the worker, and takes the entry out before it lets go. If it finds the entry of another live process there, the
%% worker has two holders. The model says which claimers may hold or wait. In the end all let go: then nothing is
%% claimed, nothing waits, and each slot has a worker of its own.
%%
%% CLAIM_SEQUENCES=n runs n sequences in each case. CLAIM_SLACK_MS=n says by how much a claim may outlive its time-out:
%% 500 by default, and beyond that only for as long as the machine did not run the node. A claim that is later fails the
%% case, and raises no fault. The log has the largest delay, and the number of commands.
-module(weir_pool_claims_prop_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pool_prop_claimer, [violation/1, violations/0]).

-define(POOL, {?MODULE, pool}).
%% For claims inside of others.
-define(SECOND, {?MODULE, second}).

%% Claimers by number, and members by name, while a sequence runs.
-define(TABLE, ?MODULE).

-define(CLAIMERS, 12).
-define(SIZE, 3).
-define(MAX_SIZE, 6).
-define(MEMBERS, 4).

%% Commands of a sequence, about.
-define(COMMANDS, 400).

%% Claimers in a sequence that take long to die: they take long to start, too.
-define(MAX_LARGE, 1).

-define(WORKER, weir_pool_life_worker).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    ok = weir_pool_prop_claimer:log_to_table(),
    Config.

end_per_suite(_Config) -> weir_pool_prop_claimer:log_no_more().

%% The options differ in what the pool does with the worker of a dead claimer, or of one that left it busy. Workers for
%% overflow go at once, or linger. Checks fail by chance while the commands run.
replaced(_Config) ->
    Check = fun(_) -> rand:uniform(20) > 1 orelse ets:member(?TABLE, calm) end,
    holds(started(#{abandoned => replace, overflow => #{max => 2, linger => 0}, check => {Check, 5}})).
waited_for(_Config) -> holds(started(#{abandoned => {wait, 50}, queue => lifo})).
freed(_Config) -> holds(started(#{abandoned => free, overflow => #{max => 2, linger => 20}})).

%% Processes that connect themselves.
connected(_Config) -> holds(#{worker => none, abandoned => replace}).

started(Opts) -> Opts#{size => ?SIZE, worker => {?WORKER, start_link, []}, intensity => 100000}.

%% ---------------------------------------------------------------- the state machine

initial_state() -> initial_state(started).

%% The state has the numbers of the claimers that may hold, wait, or have failed, and the number of large claimers.
initial_state(Kind) -> #{kind => Kind, busy => [], large => 0}.

command(#{kind := Kind, busy := Busy}) ->
    frequency(
        [
            {14, {call, ?MODULE, claim, [range(1, ?CLAIMERS), how(), timeout_ms(), use()]}},
            {3, {call, ?MODULE, kill_worker, [elements([?POOL, ?POOL, ?SECOND]), range(1, ?MAX_SIZE)]}},
            {2, {call, ?MODULE, replace, [range(1, ?MAX_SIZE), timeout_ms()]}},
            {2, {call, ?MODULE, change_size, [range(0, ?MAX_SIZE), timeout_ms()]}},
            {1, {call, ?MODULE, kill_process, [oneof([manager, queue, {slot_sup, range(1, ?MAX_SIZE)}])]}},
            {3, {call, ?MODULE, pause, [range(0, 4)]}},
            {1, {call, ?MODULE, look, []}}
        ] ++
            [
                {Weight, {call, ?MODULE, Command, [elements(Busy) | More]}}
             || Busy =/= [],
                {Weight, Command, More} <- [
                    {8, let_go, []}, {2, fail, [oneof([error, throw, exit, timeout])]}, {4, kill_claimer, []}
                ]
            ] ++
            [
                {Weight, {call, ?MODULE, Command, [range(1, ?MEMBERS)]}}
             || Kind =:= connected,
                {Weight, Command} <- [{8, connect}, {4, disconnect}, {2, kill_member}]
            ]
    ).

how() ->
    frequency([
        {8, fun_}, {4, {checkout, oneof([self, self, other, fail])}}, {3, covers_work}, {1, large}
    ]).

timeout_ms() -> frequency([{2, 0}, {3, range(1, 5)}, {1, 1000}, {3, infinity}]).

use() -> frequency([{12, simple_use()}, {3, {inside, oneof([?POOL, ?SECOND]), oneof([0, 2, 20]), inner_use()}}]).

simple_use() ->
    frequency([
        {6, hold},
        {4, hold_ping},
        {2, return},
        {3, ping},
        {2, {kill, oneof([error, throw, exit, call])}},
        {1, {overrun, oneof([20, 100])}},
        {1, other_overrun}
    ]).

%% A claimer that holds a worker and waits for another without a time-out could wait for a claimer that does the same.
%% So the inner claims have a time-out.
inner_use() -> frequency([{8, simple_use()}, {1, outer_overrun}]).

holds_on(hold) -> true;
holds_on(hold_ping) -> true;
holds_on({inside, _, _, Use}) -> holds_on(Use);
holds_on(_) -> false.

precondition(#{busy := Busy, large := Large}, {call, _, claim, [Claimer, How | _]}) ->
    not lists:member(Claimer, Busy) andalso (How =/= large orelse Large < ?MAX_LARGE);
precondition(#{busy := Busy}, {call, _, Command, [Claimer | _]}) when
    Command =:= let_go; Command =:= fail; Command =:= kill_claimer
->
    lists:member(Claimer, Busy);
precondition(_State, _Call) ->
    true.

next_state(#{busy := Busy, large := Large} = State, _Result, {call, _, claim, [Claimer, How, _, Use]}) ->
    State#{
        busy := [Claimer || holds_on(Use)] ++ Busy,
        large := Large + length([How || How =:= large])
    };
next_state(#{busy := Busy} = State, _Result, {call, _, Command, [Claimer | _]}) when
    Command =:= let_go; Command =:= fail; Command =:= kill_claimer
->
    State#{busy := lists:delete(Claimer, Busy)};
next_state(State, _Result, _Call) ->
    State.

postcondition(_State, {call, _, look, []}, {Claimed, Limit}) ->
    Claimed =< Limit andalso violations() =:= [];
postcondition(_State, _Call, ok) ->
    violations() =:= [].

%% ---------------------------------------------------------------- commands

%% Starts a claimer, which ends by itself when its claim is over.
claim(Number, How, Timeout, Use) ->
    ok = let_go_if_any(Number),
    Pid = weir_pool_prop_claimer:start(?POOL, How, Timeout, Use),
    true = ets:insert(?TABLE, {{claimer, Number}, Pid}),
    ok.

let_go_if_any(Number) ->
    case ets:lookup(?TABLE, {claimer, Number}) of
        [{_, Pid}] -> weir_pool_prop_claimer:tell(Pid, let_go);
        [] -> ok
    end.

let_go(Number) -> weir_pool_prop_claimer:tell(claimer(Number), let_go).

fail(Number, Class) -> weir_pool_prop_claimer:tell(claimer(Number), {fail, Class}).

kill_claimer(Number) -> weir_pool_prop_claimer:kill(claimer(Number)).

claimer(Number) -> ets:lookup_element(?TABLE, {claimer, Number}, 2).

kill_worker(Pool, Slot) ->
    case [Pid || {S, Pid} <- workers(Pool), S =:= Slot] of
        [Pid] -> weir_pool_prop_claimer:kill_worker(Pid);
        [] -> ok
    end.

%% Both may have to wait, for claims to be released or for workers: others do it.
replace(Slot, Timeout) ->
    Expected = [no_slot, replacing, timeout, no_workers],
    elsewhere(fun() -> weir_pool:replace(?POOL, Slot, Timeout) end, Timeout, Expected).

change_size(Size, Timeout) ->
    elsewhere(fun() -> weir_pool:resize(?POOL, Size, Timeout) end, Timeout, [resizing, timeout, slot_taken, bad_size]).

elsewhere(Change, Timeout, Expected) ->
    Pid = spawn(fun() ->
        Asked = erlang:monotonic_time(millisecond),
        Result = Change(),
        ok = weir_pool_prop_claimer:check_deadline(Asked, Timeout, {change, Result}),
        is_expected(Result, [no_pool, pool_down | Expected]) orelse violation({unexpected, Result})
    end),
    true = ets:insert(?TABLE, {{changer, Pid}}),
    ok.

is_expected(ok, _Errors) -> true;
is_expected({ok, _}, _Errors) -> true;
is_expected({error, {Error, _}}, Errors) -> lists:member(Error, Errors);
is_expected({error, Error}, Errors) -> lists:member(Error, Errors);
is_expected(_Other, _Errors) -> false.

kill_process(Which) ->
    _ = weir_pool_prop_claimer:note_crash(),
    %% There may be none at the moment.
    try process(Which) of
        Pid -> weir_kit:kill(Pid)
    catch
        _:_ -> ok
    end.

process(manager) -> weir_pool_test_lib:manager(?POOL);
process(queue) -> weir_pool_test_lib:queue(?POOL);
process({slot_sup, Slot}) ->
    %% A start that loses a slot's supervisor fails, and the pool is gone. So the pool must be open, and have had its
    %% manager since before.
    Manager = weir_pool_test_lib:manager(?POOL),
    {ok, _} = weir_pool:info(?POOL),
    true = is_process_alive(Manager),
    weir_pool_life_lib:slot_sup(?POOL, Slot).

%% Pauses so that time-outs of milliseconds pass within a sequence.
pause(Ms) ->
    receive
    after Ms -> ok
    end.

look() ->
    #{claimed := Claimed, limit := Limit} = info(?POOL),
    {Claimed, Limit}.

workers(Pool) ->
    case weir_pool:workers(Pool) of
        {ok, Workers} -> Workers;
        {error, no_pool} -> []
    end.

%% There is no pool for a moment when its manager was killed.
info(Pool) ->
    weir_kit:until_value(fun() ->
        case weir_pool:info(Pool) of
            {ok, Info} -> Info;
            {error, no_pool} -> false
        end
    end).

%% ---------------------------------------------------------------- members

%% A member connects and disconnects itself by a command, and waits where it has to.
connect(N) -> have(N, fun() -> weir_pool:connect(?POOL, N) end, [unknown_worker, connected]).

disconnect(N) -> have(N, fun() -> weir_pool:disconnect(?POOL, N) end, [unknown_worker, not_connected]).

kill_member(N) -> weir_pool_prop_claimer:kill_worker(member(N)).

have(N, Do, Expected) ->
    gen_server:cast(member(N), {run, fun() ->
        Result = Do(),
        is_expected(Result, [no_pool, pool_down | Expected]) orelse violation({unexpected, Result})
    end}).

%% Returns the member, or a new one if it has died.
member(N) ->
    case ets:lookup(?TABLE, {member, N}) of
        [{_, Pid}] ->
            case is_process_alive(Pid) of
                true -> Pid;
                false -> new_member(N)
            end;
        [] ->
            new_member(N)
    end.

new_member(N) ->
    {ok, Pid} = gen_server:start(?WORKER, plain, []),
    true = ets:insert(?TABLE, {{member, N}, Pid}),
    Pid.

%% Members outlive a pool whose manager is killed, and so do the functions that use them. A member that connected itself
%% to the next pool could have a second user, so the members of a pool that crashed are killed.
hang_up() ->
    case weir_pool_prop_claimer:has_crashed() of
        true -> [weir_pool_prop_claimer:kill_worker(Pid) || [Pid] <- ets:match(?TABLE, {{member, '_'}, '$1'})];
        false -> []
    end.

%% Adds all names, which a pool that was started again does not know, and has members connect that are not connected.
reconnect() ->
    _ = [weir_pool:add_worker(?POOL, N) || N <- lists:seq(1, ?MEMBERS)],
    Connected = [Pid || {_, Pid} <- workers(?POOL)],
    lists:foreach(
        fun(N) ->
            Member = member(N),
            case lists:member(Member, Connected) orelse process_info(Member, message_queue_len) of
                {message_queue_len, 0} -> connect(N);
                _ -> ok
            end
        end,
        lists:seq(1, ?MEMBERS)
    ).

%% Returns the members that may still have something to do.
busy_members() ->
    Members = [Pid || [Pid] <- ets:match(?TABLE, {{member, '_'}, '$1'})],
    Infos = [{busy, Pid, process_info(Pid, [message_queue_len, current_function])} || Pid <- Members],
    [Busy || {busy, _, Info} = Busy <- Infos, is_busy(Info)].

is_busy([{message_queue_len, 0}, {current_function, {gen_server, loop, _}}]) -> false;
is_busy(_) -> true.

%% ---------------------------------------------------------------- the property

holds(Opts) ->
    Sequences = list_to_integer(os:getenv("CLAIM_SEQUENCES", weir_kit:long("5", "14"))),
    Kind =
        case Opts of
            #{worker := none} -> connected;
            #{} -> started
        end,
    Ran = counters:new(2, []),
    Property = ?FORALL(
        Commands,
        resize(?COMMANDS, commands(?MODULE, initial_state(Kind))),
        run_and_find(Commands, Kind, Opts, Ran)
    ),
    Options = [{numtests, Sequences}, {max_size, ?COMMANDS}, {max_shrinks, 20}, quiet],
    try
        weir_kit_property:holds(Property, Options)
    after
        ct:pal("~b commands; claims were overdue by ~b ms at most", [counters:get(Ran, 1), counters:get(Ran, 2)])
    end.

%% Runs commands, and returns what was wrong.
run_and_find(Commands, Kind, Opts, Ran) ->
    ok = set_up(Kind, Opts),
    {History, _State, Result} = weir_kit_property:run_commands(?MODULE, Commands),
    counters:add(Ran, 1, length(History)),
    Wrong =
        [{result, Result} || Result =/= ok] ++ found(fun() -> quiescence(Kind) end) ++
            found(fun weir_pool_prop_claimer:violations/0) ++ weir_pool_prop_claimer:overdue(),
    counters:put(Ran, 2, max(counters:get(Ran, 2), weir_pool_prop_claimer:most_overdue())),
    All = Wrong ++ found(fun tear_down/0),
    _ = All =:= [] orelse ct:pal("~p~n~p", [Commands, All]),
    All.

%% Returns the exception of one check, so that the other checks are made as well.
found(Fun) ->
    try
        Fun()
    catch
        Class:Reason:Stack -> [{Class, Reason, Stack}]
    end.

set_up(Kind, Opts) ->
    ok = weir_pool_prop_claimer:open(),
    ?TABLE = ets:new(?TABLE, [named_table, public, set]),
    {ok, _} = application:ensure_all_started(weir_pool),
    ok = weir_pool:start(?POOL, Opts),
    ok = weir_pool:start(?SECOND, started(#{size => 2})),
    _ = Kind =:= connected andalso reconnect(),
    ok.

%% Stops the pools, and returns what is left of them.
tear_down() ->
    _ = [weir_pool:stop(Pool) || Pool <- [?POOL, ?SECOND]],
    _ = [exit(Pid, kill) || [Pid] <- ets:match(?TABLE, {{member, '_'}, '$1'})],
    Left = wait_for(fun weir_pool_test_lib:leftovers/0),
    ok = application:stop(weir_pool),
    true = ets:delete(?TABLE),
    ok = weir_pool_prop_claimer:close(),
    Left.

%% Has all claimers let go. Returns what is then left that should not be.
quiescence(Kind) ->
    true = ets:insert(?TABLE, {calm}),
    Claimers = weir_pool_prop_claimer:started(),
    _ = [weir_pool_prop_claimer:tell(Pid, let_go) || Pid <- Claimers],
    Changers = [Pid || [Pid] <- ets:match(?TABLE, {{changer, '$1'}})],
    _ = Kind =:= connected andalso hang_up(),
    Alive = fun() ->
        _ = Kind =:= connected andalso reconnect(),
        [{alive, Pid, process_info(Pid, current_stacktrace)} || Pid <- Claimers ++ Changers, is_process_alive(Pid)]
    end,
    wait_for(Alive) ++
        wait_for(fun() ->
            _ = Kind =:= connected andalso reconnect(),
            not_at_rest(?POOL, Kind) ++ not_at_rest(?SECOND, started) ++ busy_members()
        end) ++ abandoned_too_often() ++ not_claimable(?POOL) ++ not_claimable(?SECOND).

%% Does not wait for the manager's next look at the claims of the dead.
not_at_rest(Pool, Kind) ->
    _ = [Pid ! tick || {ok, {_, Pid, _, _, _}} <- [weir_pool_registry:lookup(Pool)]],
    %% The manager answers when it has read all earlier messages of claimers.
    _ = weir_pool:added_workers(Pool),
    Info = info(Pool),
    #{size := Size, claimed := Claimed, reserved := Reserved, waiting := Waiting, oldest_wait_ms := Oldest} = Info,
    Workers = workers(Pool),
    Pids = [Pid || {Slot, Pid} <- Workers, Slot =< Size],
    Filled =
        case Kind of
            connected -> ?MEMBERS;
            started -> Size
        end,
    Whole = length(lists:usort(Pids)) =:= Filled andalso lists:all(fun is_process_alive/1, Pids),
    Overflow = [Slot || {Slot, _} <- Workers, Slot > Size],
    States = lists:usort([weir_pool_life_lib:word(Pool, Slot) || {Slot, _} <- Workers]),
    IsNobodyWaiting = weir_pool_test_lib:is_nobody_waiting(Pool),
    case {Claimed, Reserved, Waiting, Oldest, Whole, Overflow, States -- [free], IsNobodyWaiting} of
        {0, 0, 0, 0, true, [], [], true} -> [];
        _ -> [{not_at_rest, Pool, Info, Workers, States}]
    end.

%% The counter begins anew with the pool, so there may be fewer.
abandoned_too_often() ->
    #{abandoned := Abandoned} = info(?POOL),
    case weir_pool_prop_claimer:most_abandoned() of
        Most when Abandoned =< Most -> [];
        Most -> [{abandoned_too_often, Abandoned, Most}]
    end.

%% Claims each worker again, has it work, and releases it. Returns an error if one of these fails.
not_claimable(Pool) ->
    Before = lists:sort([Pid || {_, Pid} <- workers(Pool)]),
    %% A check may have a worker for a moment.
    Claimed = [weir_pool:checkout(Pool, weir_kit:wait_ms()) || _ <- Before],
    Workers = lists:sort([Pid || {ok, Pid, _} <- Claimed]),
    Answers = lists:usort([gen_server:call(Pid, ping, weir_kit:wait_ms()) || Pid <- Workers]),
    Released = lists:usort([weir_pool:checkin(Pool, Ticket) || {ok, _, Ticket} <- Claimed]),
    #{claimed := Left} = info(Pool),
    case {Workers, Answers, Released, Left} of
        {Before, [pong], [ok], 0} -> [];
        {Before, [], [], 0} when Before =:= [] -> [];
        _ -> [{not_claimable, Pool, Before, Claimed, Answers, Released, Left}]
    end.

%% Waits until nothing is left. After a minute, returns an error that shows what is left.
wait_for(Left) ->
    found(fun() ->
        ok = weir_kit:until(fun() ->
            case Left() of
                [] -> true;
                Some -> Some
            end
        end),
        []
    end).
