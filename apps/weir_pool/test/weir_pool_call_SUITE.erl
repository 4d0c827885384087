%% Calls, casts, broadcasts and maps: the workers that get them, the results, and the exceptions. Also the count of
%% calls under way, after calls, exits and kills.
-module(weir_pool_call_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, await_down/1, kill/1, result/1, wait_ms/0]).
-import(weir_pool_test_lib, [manager/1, workers/1, start_with_holes/3]).

-define(STRATEGIES, [round_robin, random, hash, direct, least_loaded, weir_pool_test_strategy]).
-define(WITHOUT_KEY, [round_robin, random, least_loaded, weir_pool_test_strategy]).
-define(COUNTED, [least_loaded, weir_pool_test_strategy]).

all() ->
    Grouped = [Case || {_, _, Cases} <- groups(), Case <- Cases],
    [{group, Strategy} || Strategy <- ?STRATEGIES] ++ (weir_kit:cases(?MODULE) -- lists:usort(Grouped)).

groups() ->
    ByKey = [calls_and_casts_by_key_go_to_the_worker_of_the_key],
    WithoutKey = [calls_are_answered_by_the_next, casts_go_to_the_next, exits_of_calls_pass_through,
        a_bad_timeout_passes_through],
    Counted = [a_call_is_counted_while_it_is_under_way, a_replaced_workers_calls_are_counted_off,
        a_resized_pools_calls_are_counted_off, the_application_stops_under_a_call],
    [
        {Strategy, [], ByKey ++ [C || lists:member(Strategy, ?WITHOUT_KEY), C <- WithoutKey] ++
            [C || lists:member(Strategy, ?COUNTED), C <- Counted]}
     || Strategy <- ?STRATEGIES
    ].

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_group(Strategy, Config) -> [{strategy, Strategy} | Config].

end_per_group(_Strategy, _Config) -> ok.

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

%% ---------------------------------------------------------------- who gets them

calls_are_answered_by_the_next(Config) ->
    start(3, Config),
    Answers = [weir_pool:call(p, {echo, N}) || N <- lists:seq(1, 60)],
    ?assertEqual(lists:seq(1, 60), [N || {ok, {_, N}} <- Answers]),
    Answering = lists:usort([Worker || {ok, {Worker, _}} <- Answers]),
    case proplists:get_value(strategy, Config) of
        weir_pool_test_strategy -> ?assertEqual([hd(workers(p))], Answering);
        _ -> ?assertEqual(lists:sort(workers(p)), Answering)
    end,
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

calls_and_casts_by_key_go_to_the_worker_of_the_key(Config) ->
    start(4, Config),
    [
        begin
            {ok, Worker} = weir_pool:pick(p, Key),
            ?assertEqual({ok, {Worker, Key}}, weir_pool:call_key(p, Key, {echo, Key})),
            ?assertEqual({ok, {Worker, Key}}, weir_pool:call_key(p, Key, {echo, Key}, infinity)),
            ?assertEqual(ok, weir_pool:cast_key(p, Key, {tell, self(), Key})),
            ?assertEqual(Worker, receive {told, Pid, Key} -> Pid end)
        end
     || Key <- keys(4, Config)
    ],
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

casts_go_to_the_next(Config) ->
    start(3, Config),
    [?assertEqual(ok, weir_pool:cast(p, {tell, self(), N})) || N <- lists:seq(1, 30)],
    Told = [receive {told, Worker, N} -> Worker end || N <- lists:seq(1, 30)],
    ?assertEqual([], lists:usort(Told) -- workers(p)),
    ok = weir_pool:stop(p).

%% Exits are those of gen_server:call/3.
exits_of_calls_pass_through(Config) ->
    start(1, Config),
    [Only] = workers(p),
    Wait = {wait, self()},
    ?assertExit({timeout, {gen_server, call, [Only, Wait, 0]}}, weir_pool:call(p, Wait, 0)),
    ?assertExit({timeout, {gen_server, call, [Only, Wait, 1]}}, weir_pool:call_key(p, key(Config), Wait, 1)),
    Die = {die, {my, reason}},
    ?assertExit({{my, reason}, {gen_server, call, [Only, Die, 5000]}}, weir_pool:call(p, Die)),
    until(fun() -> length(workers(p) -- [Only]) =:= 1 end),
    [Next] = workers(p),
    DieNormally = {die, normal},
    ?assertExit(
        {normal, {gen_server, call, [Next, DieNormally, infinity]}},
        weir_pool:call_key(p, key(Config), DieNormally, infinity)
    ),
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

a_bad_timeout_passes_through(Config) ->
    start(1, Config),
    Expected = exception(fun() -> gen_server:call(self(), x, soon) end),
    ?assertEqual(Expected, exception(fun() -> weir_pool:call(p, x, soon) end)),
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% Class, and the reason without the stack that it may contain.
exception(Fun) ->
    try Fun() of
        Result -> {returned, Result}
    catch
        exit:{{Reason, _Stack}, {gen_server, call, _}} -> {exit, Reason};
        Class:Reason -> {Class, Reason}
    end.

%% Also if the caller is killed.
a_call_is_counted_while_it_is_under_way(Config) ->
    start(3, Config),
    Callers = [spawn_caller(key(Config)) || _ <- lists:seq(1, 9)],
    [receive {waiting, _} -> ok end || _ <- Callers],
    ?assertMatch({ok, #{calls := 9, claimed := 0}}, weir_pool:info(p)),
    {Killed, Spared} = lists:split(4, Callers),
    [kill(Caller) || Caller <- Killed],
    until(fun() -> calls(p) =:= 5 end),
    {ok, 3} = weir_pool:broadcast(p, answer),
    [?assertEqual({ok, answered}, result(Caller)) || Caller <- Spared],
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

a_replaced_workers_calls_are_counted_off(Config) ->
    start(2, Config),
    Callers = [spawn_caller(key(Config)) || _ <- lists:seq(1, 6)],
    [receive {waiting, _} -> ok end || _ <- Callers],
    [kill(Worker) || Worker <- workers(p)],
    [?assertError({crashed, {killed, {gen_server, call, [_, _, infinity]}}}, result(Caller)) || Caller <- Callers],
    until(fun() -> length(workers(p)) =:= 2 end),
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% Calls that began in a pool of another shape count in the same words, also in slots that are no more.
a_resized_pools_calls_are_counted_off(Config) ->
    start(2, Config),
    Callers = [spawn_caller(key(Config)) || _ <- lists:seq(1, 6)],
    Waiting = [receive {waiting, Worker} -> Worker end || _ <- Callers],
    ok = weir_pool:resize(p, 60),
    ?assertMatch({ok, #{size := 60, calls := 6}}, weir_pool:info(p)),
    [gen_server:cast(Worker, answer) || Worker <- lists:usort(Waiting)],
    [?assertEqual({ok, answered}, result(Caller)) || Caller <- Callers],
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    Late = spawn_caller(last_key(60, Config)),
    Last = receive {waiting, L} -> L end,
    ok = weir_pool:resize(p, 1),
    gen_server:cast(Last, answer),
    %% The answer and the end of its worker may cross.
    try
        ?assertEqual({ok, answered}, result(Late))
    catch
        error:{crashed, _} -> ok
    end,
    ok = weir_pool:resize(p, 60),
    ?assertMatch({ok, #{size := 60, calls := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% The calls end by the exits of their workers, not by the lack of a table.
the_application_stops_under_a_call(Config) ->
    start(2, Config),
    Callers = [spawn_caller(key(Config)) || _ <- lists:seq(1, 6)],
    [receive {waiting, _} -> ok end || _ <- Callers],
    [ok = weir_pool:start({other, N}, weir_pool_test_lib:opts(30)) || N <- lists:seq(1, 10)],
    ok = application:stop(weir_pool),
    [?assertError({crashed, {_, {gen_server, call, [_, _, infinity]}}}, result(Caller)) || Caller <- Callers],
    ?assertEqual({error, no_pool}, weir_pool:call(p, ping)),
    weir_pool_test_lib:nothing_left_soon().

calls_without_a_pool_or_a_worker_are_errors(_Config) ->
    Fun = fun(_) -> error(called) end,
    All = fun() ->
        [weir_pool:call(p, r), weir_pool:call(p, r, 1), weir_pool:call_key(p, k, r), weir_pool:call_key(p, k, r, 1),
            weir_pool:cast(p, m), weir_pool:cast_key(p, k, m)]
    end,
    ?assertEqual([{error, no_pool}], lists:usort(All() ++ [weir_pool:broadcast(p, m), weir_pool:map(p, Fun)])),
    start_with_holes(p, 3, [1, 2, 3]),
    ?assertEqual([{error, no_worker}], lists:usort(All())),
    ?assertEqual({ok, 0}, weir_pool:broadcast(p, m)),
    ?assertEqual({ok, []}, weir_pool:map(p, Fun)),
    ok = weir_pool:stop(p).

%% Vacant slots are skipped.
broadcasts_and_maps_reach_all_workers_in_order(_Config) ->
    start_with_holes(p, 6, [1, 3, 6]),
    Test = self(),
    ?assertEqual({ok, workers(p)}, weir_pool:map(p, fun(Pid) -> Test ! {visited, Pid}, Pid end)),
    ?assertEqual(workers(p), [receive {visited, Pid} -> Pid end || _ <- [1, 2, 3]]),
    ?assertEqual({ok, 3}, weir_pool:broadcast(p, message)),
    ok = weir_pool:stop(p),
    start(5, []),
    ?assertEqual({ok, 5}, weir_pool:broadcast(p, {tell, self(), hello})),
    Told = [receive {told, Worker, hello} -> Worker end || _ <- lists:seq(1, 5)],
    ?assertEqual(lists:sort(workers(p)), lists:sort(Told)),
    ok = weir_pool:stop(p).

exceptions_of_the_fun_pass_through_a_map(_Config) ->
    start(3, []),
    ?assertError(mine, weir_pool:map(p, fun(_) -> error(mine) end)),
    ?assertThrow(mine, weir_pool:map(p, fun(_) -> throw(mine) end)),
    ?assertExit(mine, weir_pool:map(p, fun(_) -> exit(mine) end)),
    Third = lists:nth(3, workers(p)),
    ?assertError({case_clause, Third}, weir_pool:map(p, fun(Pid) -> case Pid of _ when Pid =/= Third -> ok end end)),
    ok = weir_pool:stop(p).

%% call_within/4 bounds the calls of each worker.
calls_only_while_there_is_room(_Config) ->
    start(2, [{strategy, least_loaded}]),
    Within = fun(Room) -> weir_pool:call_within(p, {echo, Room}, weir_kit:wait_ms(), Room) end,
    [?assertMatch({ok, {_, 1}}, Within(1)) || _ <- lists:seq(1, 100)],
    One = blocked(),
    [?assertMatch({ok, {_, 1}}, Within(1)) || _ <- lists:seq(1, 100)],
    Two = blocked(),
    ?assertEqual({error, busy}, Within(1)),
    ?assertMatch({ok, {_, 2}}, Within(2)),
    More = [blocked(), blocked()],
    ?assertEqual({error, busy}, Within(2)),
    ?assertMatch({ok, {_, 3}}, Within(3)),
    ?assertMatch({ok, {_, infinity}}, Within(infinity)),
    {ok, 2} = weir_pool:broadcast(p, answer),
    [?assertEqual({ok, answered}, result(Caller)) || {Caller, _} <- [One, Two | More]],
    ?assertMatch({ok, {_, 1}}, Within(1)),
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    %% The bound holds if many callers ask at the same moment.
    Test = self(),
    Ask = fun() -> weir_pool:call_within(p, {wait, Test}, infinity, 3) end,
    _ = [weir_kit:start(Ask) || _ <- lists:seq(1, 500)],
    {Busy, Waiting} = told(500, 0, 0),
    weir_kit:none(calls_without_room, [Waiting || Waiting > 6]),
    ?assertEqual(500, Busy + Waiting),
    {ok, 2} = weir_pool:broadcast(p, answer),
    _ = [receive {'DOWN', _, process, _, {returned, {ok, answered}}} -> ok end || _ <- lists:seq(1, Waiting)],
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p),
    ?assertEqual({error, no_pool}, Within(1)),
    %% Workers whose calls are not counted have room for any number.
    start(1, [{strategy, round_robin}]),
    {Caller, _} = blocked(),
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    ?assertMatch({ok, {_, 1}}, Within(1)),
    {ok, 1} = weir_pool:broadcast(p, answer),
    ?assertEqual({ok, answered}, result(Caller)),
    [?assertError(badarg, weir_pool:call_within(p, request, 5000, Wrong)) || Wrong <- [0, -1, 1.5, none]],
    ok = weir_pool:stop(p),
    ok = weir_pool:start(p, #{worker => none, strategy => least_loaded}),
    ?assertEqual({error, no_worker}, Within(1)),
    ok = weir_pool:stop(p).

told(0, Busy, Waiting) -> {Busy, Waiting};
told(Left, Busy, Waiting) ->
    receive
        {waiting, _Worker} -> told(Left - 1, Busy, Waiting + 1);
        {'DOWN', _, process, _, {returned, {error, busy}}} -> told(Left - 1, Busy + 1, Waiting)
    end.

%% Starts a caller that waits for an answer. Returns the caller and the worker.
blocked() ->
    Test = self(),
    {_, Monitor} = Caller = weir_kit:start(fun() -> weir_pool:call(p, {wait, Test}, infinity) end),
    receive
        {waiting, Worker} -> {Caller, Worker};
        {'DOWN', Monitor, process, _, Reason} -> error({not_called, Reason})
    end.

%% Where not all workers are compared for each call. Random alone would leave some with none, and others with more than
%% twenty.
calls_of_large_pools_are_spread(_Config) ->
    [
        begin
            start(Size, [{strategy, least_loaded}]),
            Callers = [blocked() || _ <- lists:seq(1, 10 * Size)],
            Waiting = [gen_server:call(Worker, count_waiting, wait_ms()) || Worker <- workers(p)],
            ?assertEqual(10 * Size, lists:sum(Waiting)),
            ?assert(lists:min(Waiting) >= 8 andalso lists:max(Waiting) =< 12, {Size, Waiting}),
            {ok, Size} = weir_pool:broadcast(p, answer),
            [?assertEqual({ok, answered}, result(Caller)) || {Caller, _} <- Callers],
            ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
            ok = weir_pool:stop(p)
        end
     || Size <- [32, 33, 100]
    ].

%% ---------------------------------------------------------------- the count of calls

%% Calls of a dead worker that the manager has not heard of, and of a worker by itself.
calls_that_fail_at_once_are_counted_off(_Config) ->
    start(1, [{strategy, least_loaded}]),
    [Worker] = workers(p),
    ok = sys:suspend(manager(p), wait_ms()),
    kill(Worker),
    [?assertExit({noproc, _}, weir_pool:call(p, {echo, N})) || N <- lists:seq(1, 100)],
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    ok = sys:resume(manager(p), wait_ms()),
    ok = weir_pool:stop(p),
    Life = weir_pool_life_lib:pool(1, #{strategy => least_loaded}),
    ok = weir_pool:start(p, Life),
    Self = fun() -> exception(fun() -> weir_pool:call(p, ping) end) end,
    ?assertMatch({ok, {exit, {calling_self, _}}}, weir_pool:call(p, {run, Self})),
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% Callers call as fast as they can, and are killed while they do, by the thousand. Then the counts are right, and
%% nothing is left in a table. The counts of another pool, whose callers live, are right all the time.
callers_killed_at_random_moments_are_counted_off(_Config) ->
    Tables = tables(),
    start(3, [{strategy, least_loaded}]),
    Pool = weir_pool_life_lib:pool(1, #{strategy => least_loaded}),
    ok = weir_pool:start(q, Pool),
    Waits = {run, fun() -> receive idle -> ok end end},
    Living = [weir_kit:start(fun() -> weir_pool:call(q, Waits, infinity) end) || _ <- [1, 2, 3]],
    until(fun() -> calls(q) =:= 3 end),
    [
        begin
            Victims = calling_for_ever(50),
            [
                begin
                    [erlang:yield() || _ <- lists:seq(1, rand:uniform(8))],
                    exit(Victim, kill)
                end
             || Victim <- Victims
            ],
            [await_down(Victim) || Victim <- Victims]
        end
     || _ <- lists:seq(1, weir_kit:long(40, 100))
    ],
    is_counted_right(),
    ?assertEqual(3, calls(q)),
    [Worker] = workers(q),
    [begin Worker ! idle, ?assertEqual({ok, ok}, result(Caller)) end || Caller <- Living],
    %% The callers of a pool that was killed leave nothing either.
    Last = calling_for_ever(50),
    weir_pool_test_lib:kill_manager(p),
    [kill(Victim) || Victim <- Last],
    until(fun() -> weir_pool_test_lib:settled(p, 3) end),
    is_counted_right(),
    ok = weir_pool:stop(q),
    ok = weir_pool:stop(p),
    until(fun() -> tables() =:= Tables orelse tables() end).

%% Waits until no call is counted, and checks that each new call is.
is_counted_right() ->
    until(fun() ->
        manager(p) ! tick,
        calls(p) =:= 0
    end),
    Blocked = [blocked() || _ <- [1, 2, 3]],
    ?assertEqual(lists:sort(workers(p)), lists:sort([Worker || {_, Worker} <- Blocked])),
    ?assertEqual(3, calls(p)),
    %% The manager corrects no count that is right.
    [begin manager(p) ! tick, _ = sys:get_state(manager(p), wait_ms()) end || _ <- lists:seq(1, 5)],
    ?assertEqual(3, calls(p)),
    {ok, 3} = weir_pool:broadcast(p, answer),
    [?assertEqual({ok, answered}, result(Caller)) || {Caller, _} <- Blocked].

%% Returns N processes when each has begun to call.
calling_for_ever(N) ->
    Test = self(),
    Victims = [spawn(fun() -> Test ! {begun, self()}, call_for_ever() end) || _ <- lists:seq(1, N)],
    [receive {begun, Victim} -> Victim end || Victim <- Victims].

call_for_ever() ->
    _ = exception(fun() -> weir_pool:call(p, {echo, 1}) end),
    call_for_ever().

calls(Name) ->
    {ok, #{calls := Calls}} = weir_pool:info(Name),
    Calls.

%% The shared tables without the rows of names.
tables() ->
    Tables = [Table || Table <- ets:all(), ets:info(Table, owner) =:= whereis(weir_pool_sup)],
    [{Table, ets:info(Table, size)} || Table <- Tables].

%% ---------------------------------------------------------------- helpers

start(Size, Config) ->
    ok = weir_pool:start(p, #{
        size => Size,
        worker => {weir_pool_call_worker, start_link, []},
        strategy => proplists:get_value(strategy, Config, round_robin),
        shutdown => brutal_kill
    }).

%% Keys for this strategy, of all slots.
keys(Size, Config) ->
    case proplists:get_value(strategy, Config) of
        weir_pool_test_strategy -> [{give, Slot} || Slot <- lists:seq(1, Size)];
        direct -> lists:seq(1, 3 * Size);
        _ -> lists:seq(1, 20) ++ [{user, 1}, <<"key">>, "key"]
    end.

key(GroupConfig) -> hd(keys(1, GroupConfig)).

%% A key, or none, that leads to the last slot as well as can be.
last_key(Size, Config) ->
    case proplists:get_value(strategy, Config) of
        weir_pool_test_strategy -> {give, Size};
        least_loaded -> hd([K || K <- lists:seq(1, 10000), {ok, Slot, _} <- [weir_pool:pick_slot(p, K)], Slot =:= Size])
    end.

%% Starts a caller that waits for an answer.
spawn_caller(Key) ->
    Test = self(),
    weir_kit:start(fun() -> weir_pool:call_key(p, Key, {wait, Test}, infinity) end).
