%% Calls, casts, broadcasts and maps: who gets them, what comes back, and what passes through.
-module(weir_pool_send_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, groups/0]).
-export([init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2]).
-export([init_per_testcase/2, end_per_testcase/2]).
-export([
    calls_are_answered_by_the_next/1,
    calls_by_key_are_answered_by_the_worker_of_the_key/1,
    casts_go_to_the_next/1,
    casts_by_key_go_to_the_worker_of_the_key/1,
    exits_of_calls_pass_through/1,
    a_bad_timeout_passes_through/1,
    a_call_is_counted_while_it_is_under_way/1,
    a_replaced_workers_calls_are_counted_off/1,
    a_resized_pools_calls_are_counted_off/1,
    a_killed_callers_call_is_counted_off/1,
    the_application_stops_under_a_call/1,
    no_pool_and_no_worker/1,
    broadcast_reaches_all/1,
    broadcast_and_map_skip_vacant_slots/1,
    map_is_in_order/1,
    map_raises_what_the_fun_raises/1
]).

-import(weir_pool_test_lib, [eventually/1, kill/1, workers/1, start_with_holes/3, result/1]).

-define(STRATEGIES, [round_robin, random, hash, direct, least_loaded, weir_pool_test_strategy]).
-define(WITHOUT_KEY, [round_robin, random, least_loaded, weir_pool_test_strategy]).
-define(COUNTED, [least_loaded, weir_pool_test_strategy]).

suite() -> [{timetrap, {seconds, 120}}].

all() -> [{group, Strategy} || Strategy <- ?STRATEGIES] ++ [no_pool_and_no_worker, broadcast_reaches_all,
    broadcast_and_map_skip_vacant_slots, map_is_in_order, map_raises_what_the_fun_raises].

groups() ->
    ByKey = [calls_by_key_are_answered_by_the_worker_of_the_key, casts_by_key_go_to_the_worker_of_the_key],
    WithoutKey = [calls_are_answered_by_the_next, casts_go_to_the_next, exits_of_calls_pass_through,
        a_bad_timeout_passes_through],
    Counted = [a_call_is_counted_while_it_is_under_way, a_replaced_workers_calls_are_counted_off,
        a_resized_pools_calls_are_counted_off, a_killed_callers_call_is_counted_off,
        the_application_stops_under_a_call],
    [
        {Strategy, [], ByKey ++ [C || lists:member(Strategy, ?WITHOUT_KEY), C <- WithoutKey] ++
            [C || lists:member(Strategy, ?COUNTED), C <- Counted]}
     || Strategy <- ?STRATEGIES
    ].

init_per_suite(Config) -> weir_pool_test_lib:quiet(Config).

end_per_suite(Config) -> weir_pool_test_lib:loud(Config).

init_per_group(Strategy, Config) -> [{strategy, Strategy} | Config].

end_per_group(_Strategy, _Config) -> ok.

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, _Config) -> weir_pool_test_lib:teardown().

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

calls_by_key_are_answered_by_the_worker_of_the_key(Config) ->
    start(4, Config),
    [
        begin
            {ok, Worker} = weir_pool:pick(p, Key),
            ?assertEqual({ok, {Worker, Key}}, weir_pool:call_key(p, Key, {echo, Key})),
            ?assertEqual({ok, {Worker, Key}}, weir_pool:call_key(p, Key, {echo, Key}, infinity))
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

casts_by_key_go_to_the_worker_of_the_key(Config) ->
    start(4, Config),
    [
        begin
            {ok, Worker} = weir_pool:pick(p, Key),
            ?assertEqual(ok, weir_pool:cast_key(p, Key, {tell, self(), Key})),
            ?assertEqual(Worker, receive {told, Pid, Key} -> Pid end)
        end
     || Key <- keys(4, Config)
    ],
    ok = weir_pool:stop(p).

%% As if gen_server:call/3 had been called by hand.
exits_of_calls_pass_through(Config) ->
    start(1, Config),
    [Only] = workers(p),
    Wait = {wait, self()},
    ?assertExit({timeout, {gen_server, call, [Only, Wait, 0]}}, weir_pool:call(p, Wait, 0)),
    ?assertExit({timeout, {gen_server, call, [Only, Wait, 1]}}, weir_pool:call_key(p, key(Config), Wait, 1)),
    Die = {die, {my, reason}},
    ?assertExit({{my, reason}, {gen_server, call, [Only, Die, 5000]}}, weir_pool:call(p, Die)),
    eventually(fun() -> workers(p) =/= [] andalso workers(p) =/= [Only] end),
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

a_call_is_counted_while_it_is_under_way(Config) ->
    start(3, Config),
    Callers = [spawn_caller(key(Config)) || _ <- lists:seq(1, 9)],
    [receive {waiting, _} -> ok end || _ <- Callers],
    ?assertMatch({ok, #{calls := 9, claimed := 0}}, weir_pool:info(p)),
    {ok, 3} = weir_pool:broadcast(p, answer),
    [?assertEqual({ok, answered}, result(Caller)) || Caller <- Callers],
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

a_replaced_workers_calls_are_counted_off(Config) ->
    start(2, Config),
    Callers = [spawn_caller(key(Config)) || _ <- lists:seq(1, 6)],
    [receive {waiting, _} -> ok end || _ <- Callers],
    [kill(Worker) || Worker <- workers(p)],
    [?assertMatch({died, {killed, {gen_server, call, [_, _, infinity]}}}, result(Caller)) || Caller <- Callers],
    eventually(fun() -> length(workers(p)) =:= 2 end),
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
    ?assertMatch(Result when Result =:= {ok, answered}; element(1, Result) =:= died, result(Late)),
    ok = weir_pool:resize(p, 60),
    ?assertMatch({ok, #{size := 60, calls := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% By the pool's keeper.
a_killed_callers_call_is_counted_off(Config) ->
    start(2, Config),
    Callers = [spawn_caller(key(Config)) || _ <- lists:seq(1, 6)],
    [receive {waiting, _} -> ok end || _ <- Callers],
    {Killed, Spared} = lists:split(4, Callers),
    [kill(Caller) || Caller <- Killed],
    eventually(fun() -> {ok, #{calls := Calls}} = weir_pool:info(p), Calls =:= 2 end),
    {ok, 2} = weir_pool:broadcast(p, answer),
    [?assertEqual({ok, answered}, result(Caller)) || Caller <- Spared],
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% The calls end by the exits of their workers, not by the lack of a table.
the_application_stops_under_a_call(Config) ->
    start(2, Config),
    Callers = [spawn_caller(key(Config)) || _ <- lists:seq(1, 6)],
    [receive {waiting, _} -> ok end || _ <- Callers],
    ok = application:stop(weir_pool),
    [?assertMatch({died, {_, {gen_server, call, [_, _, infinity]}}}, result(Caller)) || Caller <- Callers],
    ?assertEqual({error, no_pool}, weir_pool:call(p, ping)).

no_pool_and_no_worker(_Config) ->
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

broadcast_reaches_all(_Config) ->
    start(5, []),
    ?assertEqual({ok, 5}, weir_pool:broadcast(p, {tell, self(), hello})),
    Told = [receive {told, Worker, hello} -> Worker end || _ <- lists:seq(1, 5)],
    ?assertEqual(lists:sort(workers(p)), lists:sort(Told)),
    ok = weir_pool:stop(p).

broadcast_and_map_skip_vacant_slots(_Config) ->
    start_with_holes(p, 6, [1, 3, 6]),
    ?assertEqual({ok, 3}, weir_pool:broadcast(p, message)),
    ?assertEqual({ok, workers(p)}, weir_pool:map(p, fun(Pid) -> Pid end)),
    ?assertEqual({ok, [pong, pong, pong]}, weir_pool:map(p, fun(Pid) -> gen_server:call(Pid, ping) end)),
    ok = weir_pool:stop(p).

map_is_in_order(_Config) ->
    start(7, []),
    Test = self(),
    ?assertEqual(
        {ok, [{1, Worker} || Worker <- workers(p)]},
        weir_pool:map(p, fun(Pid) ->
            Test ! {visited, Pid},
            {1, Pid}
        end)
    ),
    ?assertEqual(workers(p), [receive {visited, Pid} -> Pid end || _ <- lists:seq(1, 7)]),
    ok = weir_pool:stop(p).

map_raises_what_the_fun_raises(_Config) ->
    start(3, []),
    ?assertError(mine, weir_pool:map(p, fun(_) -> error(mine) end)),
    ?assertThrow(mine, weir_pool:map(p, fun(_) -> throw(mine) end)),
    ?assertExit(mine, weir_pool:map(p, fun(_) -> exit(mine) end)),
    Third = lists:nth(3, workers(p)),
    ?assertError({case_clause, Third}, weir_pool:map(p, fun(Pid) -> case Pid of _ when Pid =/= Third -> ok end end)),
    ok = weir_pool:stop(p).

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

key(Config) -> hd(keys(1, Config)).

%% A key, or none, that leads to the last slot as well as can be.
last_key(Size, Config) ->
    case proplists:get_value(strategy, Config) of
        weir_pool_test_strategy -> {give, Size};
        least_loaded -> hd([K || K <- lists:seq(1, 10000), {ok, Slot, _} <- [weir_pool:pick_slot(p, K)], Slot =:= Size])
    end.

%% A caller that waits for an answer.
spawn_caller(Key) ->
    Test = self(),
    {Caller, _} = spawn_monitor(fun() -> exit({result, weir_pool:call_key(p, Key, {wait, Test}, infinity)}) end),
    Caller.
