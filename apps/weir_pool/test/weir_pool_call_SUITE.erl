%% Calls, casts, broadcasts and maps: the workers that get them, the results, and the exceptions. Also the count of
%% calls under way, after calls, exits and kills.
-module(weir_pool_call_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, await_down/1, kill/1, result/1]).
-import(weir_pool_test_lib, [kill_manager/1, workers/1, start_with_holes/3]).
-import(weir_pool_test_fixture, [put_load/3, loads/1]).

-define(TABLE, weir_pool_calls).

-define(STRATEGIES, [round_robin, random, hash, direct, least_loaded, weir_pool_test_strategy]).
-define(WITHOUT_KEY, [round_robin, random, least_loaded, weir_pool_test_strategy]).
-define(COUNTED, [least_loaded, weir_pool_test_strategy]).

all() ->
    Grouped = [Case || {_, _, Cases} <- groups(), Case <- Cases],
    [{group, Strategy} || Strategy <- ?STRATEGIES] ++ (weir_kit:cases(?MODULE) -- lists:usort(Grouped)).

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

%% By the pool's manager.
a_killed_callers_call_is_counted_off(Config) ->
    start(2, Config),
    Callers = [spawn_caller(key(Config)) || _ <- lists:seq(1, 6)],
    [receive {waiting, _} -> ok end || _ <- Callers],
    {Killed, Spared} = lists:split(4, Callers),
    [kill(Caller) || Caller <- Killed],
    until(fun() -> {ok, #{calls := Calls}} = weir_pool:info(p), Calls =:= 2 end),
    {ok, 2} = weir_pool:broadcast(p, answer),
    [?assertEqual({ok, answered}, result(Caller)) || Caller <- Spared],
    ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
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

%% While three of six workers are blocked, and then five, all calls go to the others, and no call waits. When all six
%% are blocked, they share the calls.
no_call_waits_beside_an_idle_worker(_Config) ->
    start(6, [{strategy, least_loaded}]),
    First = [blocked() || _ <- lists:seq(1, 3)],
    ?assertEqual(3, length(lists:usort([Worker || {_, Worker} <- First]))),
    ?assertEqual(workers(p) -- [Worker || {_, Worker} <- First], answering(600)),
    More = [blocked() || _ <- lists:seq(1, 2)],
    Busy = [Worker || {_, Worker} <- First ++ More],
    ?assertEqual(5, length(lists:usort(Busy))),
    ?assertEqual(workers(p) -- Busy, answering(600)),
    Last = [blocked() || _ <- lists:seq(1, 13)],
    ?assertEqual([3, 3, 3, 3, 3, 3], [gen_server:call(Worker, count_waiting) || Worker <- workers(p)]),
    {ok, 6} = weir_pool:broadcast(p, answer),
    [?assertEqual({ok, answered}, result(Caller)) || {Caller, _} <- First ++ More ++ Last],
    ?assertEqual(workers(p), answering(600)),
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

%% Makes N calls. Returns the workers that answered, in the order of the slots.
answering(N) ->
    Answers = [weir_pool:call(p, {echo, I}, weir_kit:wait_ms()) || I <- lists:seq(1, N)],
    ?assertEqual(lists:seq(1, N), [I || {ok, {_, I}} <- Answers]),
    Answering = [Worker || {ok, {Worker, _}} <- Answers],
    [Worker || Worker <- workers(p), lists:member(Worker, Answering)].

%% Where not all workers are compared for each call. Random alone would leave some with none, and others with more than
%% twenty.
calls_of_large_pools_are_spread(_Config) ->
    [
        begin
            start(Size, [{strategy, least_loaded}]),
            Callers = [blocked() || _ <- lists:seq(1, 10 * Size)],
            Waiting = [gen_server:call(Worker, count_waiting) || Worker <- workers(p)],
            ?assertEqual(10 * Size, lists:sum(Waiting)),
            ?assert(lists:min(Waiting) >= 8 andalso lists:max(Waiting) =< 12, {Size, Waiting}),
            {ok, Size} = weir_pool:broadcast(p, answer),
            [?assertEqual({ok, answered}, result(Caller)) || {Caller, _} <- Callers],
            ?assertMatch({ok, #{calls := 0}}, weir_pool:info(p)),
            ok = weir_pool:stop(p)
        end
     || Size <- [32, 33, 100]
    ].

%% ---------------------------------------------------------------- the count of calls, seen by a manager
%%
%% Pools have no processes here: the test looks at the calls as a manager does.

%% Answers, timeouts, dead workers, exits, and calls of the worker by itself: without any look.
every_end_of_a_call_counts_it_off(_Config) ->
    with_pool(least_loaded, 4, fun(Pool, [First | _]) ->
        [{ok, {_, N}} = weir_pool:call(f, {echo, N}) || N <- lists:seq(1, 1000)],
        [?assertExit({timeout, _}, weir_pool:call(f, {wait, self()}, 0)) || _ <- lists:seq(1, 100)],
        [raised = outcome(fun() -> weir_pool:call(f, {echo, 1}, not_a_timeout) end) || _ <- lists:seq(1, 10)],
        ok = weir_pool_terms:fill(Pool, 4, self()),
        Calls = [outcome(fun() -> weir_pool:call(f, {echo, N}) end) || N <- lists:seq(1, 200)],
        ?assert(lists:member(calling_self, Calls)),
        kill(First),
        Dead = [outcome(fun() -> weir_pool:call(f, {echo, N}) end) || N <- lists:seq(1, 200)],
        ?assert(lists:member(noproc, Dead)),
        ?assertEqual([0, 0, 0, 0], loads(Pool)),
        ?assertEqual([], ets:tab2list(?TABLE))
    end).

outcome(Call) ->
    try Call() of
        {ok, _} -> ok
    catch
        exit:{Reason, {gen_server, call, _}} when is_atom(Reason) -> Reason;
        _:_ -> raised
    end.

%% Callers call as fast as they can, and are killed while they do, by the thousand.
callers_killed_at_random_moments(_Config) ->
    Test = self(),
    with_pool(least_loaded, 3, fun(Pool, _Workers) ->
        {Left, Callers} = lists:mapfoldl(
            fun(_, Known) ->
                Victims = [spawn(fun() -> Test ! {begun, self()}, call_for_ever() end) || _ <- lists:seq(1, 50)],
                [receive {begun, Victim} -> ok end || Victim <- Victims],
                [
                    begin
                        [erlang:yield() || _ <- lists:seq(1, rand:uniform(8))],
                        exit(Victim, kill)
                    end
                 || Victim <- Victims
                ],
                [await_down(Victim) || Victim <- Victims],
                Rows = ets:info(?TABLE, size),
                Counted = lists:sum(loads(Pool)),
                Looked = look(Pool, Known),
                {{Rows, Counted, loads(Pool)}, Looked}
            end,
            weir_pool_callers:new(),
            lists:seq(1, 100)
        ),
        {Rows, Counted, Looked} = lists:unzip3(Left),
        ct:pal("rows and counts left by 5000 kills: ~p, ~p; words after each look: ~p", [
            lists:sum(Rows), lists:sum(Counted), lists:usort(Looked)
        ]),
        ?assert(lists:sum(Rows) > 100, lists:sum(Rows)),
        ?assertEqual([], ets:tab2list(?TABLE)),
        Healed = looks(2, Pool, Callers),
        weir_kit:same(wrong_counts, [0, 0, 0], loads(Pool)),
        %% A count that is right is not corrected.
        ?assertMatch({0, _}, weir_pool_callers:poll(Pool, looks(10, Pool, Healed))),
        weir_kit:same(wrong_counts, [0, 0, 0], loads(Pool))
    end).

call_for_ever() ->
    _ = outcome(fun() -> weir_pool:call(f, {echo, 1}) end),
    call_for_ever().

a_look_leaves_the_living_alone(_Config) ->
    with_pool(least_loaded, 2, fun(Pool, Workers) ->
        Callers = [spawn_waiting() || _ <- lists:seq(1, 10)],
        Before = loads(Pool),
        ?assertEqual(10, lists:sum(Before)),
        Known = looks(10, Pool, weir_pool_callers:new()),
        ?assertMatch({10, _}, weir_pool_callers:poll(Pool, Known)),
        ?assertEqual(Before, loads(Pool)),
        [gen_server:cast(Worker, answer) || Worker <- Workers],
        [?assertEqual({ok, answered}, result(Caller)) || Caller <- Callers],
        ?assertEqual([0, 0], loads(Pool)),
        ?assertMatch({0, _}, weir_pool_callers:poll(Pool, Known)),
        %% The callers are not monitored any more.
        ?assertEqual({monitors, []}, process_info(self(), monitors))
    end).

%% A poll monitors the callers that it finds.
the_dead_are_heard_of_between_looks(_Config) ->
    with_pool(least_loaded, 2, fun(Pool, Workers) ->
        Callers = [spawn_waiting() || _ <- lists:seq(1, 10)],
        Known = look(Pool, weir_pool_callers:new()),
        [kill(Caller) || Caller <- lists:sublist(Callers, 5)],
        ?assertEqual(10, lists:sum(loads(Pool))),
        Heard = hear(5, Pool, Known),
        ?assertEqual(5, lists:sum(loads(Pool))),
        ?assertEqual(5, ets:info(?TABLE, size)),
        [gen_server:cast(Worker, answer) || Worker <- Workers],
        [?assertEqual({ok, answered}, result(Caller)) || Caller <- lists:nthtail(5, Callers)],
        ?assertEqual([0, 0], loads(Pool)),
        ?assertMatch({0, _}, weir_pool_callers:poll(Pool, Heard))
    end).

%% A kill between the row and the count leaves a row without a count: the poll subtracts a call that was never added.
%% The count is right after two polls without a row.
a_kill_before_the_count_heals(_Config) ->
    with_pool(least_loaded, 2, fun(#pool{base = Base} = Pool, _Workers) ->
        enter_row_of_dead(Base, 2),
        One = look(Pool, weir_pool_callers:new()),
        ?assertEqual([0, -1], loads(Pool)),
        ?assertMatch({ok, #{calls := 0}}, weir_pool:info(f)),
        Two = look(Pool, One),
        ?assertEqual([0, -1], loads(Pool)),
        Three = look(Pool, Two),
        ?assertEqual([0, 0], loads(Pool)),
        ?assertMatch({0, _}, weir_pool_callers:poll(Pool, Three))
    end).

%% The word is too low for as long as there are calls in the slot.
kills_beside_calls_that_go_on_heal_after_them(_Config) ->
    with_pool(least_loaded, 1, fun(#pool{base = Base} = Pool, [Worker]) ->
        Callers = [spawn_waiting() || _ <- lists:seq(1, 3)],
        enter_row_of_dead(Base, 1),
        enter_row_of_dead(Base, 1),
        Known = looks(5, Pool, weir_pool_callers:new()),
        ?assertEqual([1], loads(Pool)),
        gen_server:cast(Worker, answer),
        [?assertEqual({ok, answered}, result(Caller)) || Caller <- Callers],
        ?assertEqual([-2], loads(Pool)),
        _ = looks(2, Pool, Known),
        ?assertEqual([0], loads(Pool))
    end).

words_without_calls_heal(_Config) ->
    with_pool(least_loaded, 3, fun(Pool, _Workers) ->
        put_load(Pool, 2, 7),
        {1, Known} = weir_pool_callers:poll(Pool, weir_pool_callers:new()),
        ?assertEqual([0, 7, 0], loads(Pool)),
        _ = look(Pool, Known),
        ?assertEqual([0, 0, 0], loads(Pool))
    end).

%% A busy slot is read while calls come and go, so its counts vary. A slot that had a row between two polls is not
%% corrected either.
what_moves_is_not_corrected(_Config) ->
    with_pool(least_loaded, 1, fun(#pool{base = Base} = Pool, _Workers) ->
        Round = [1, 2, 1, 3, 0, -1, 1, -2, -1, 2, 0],
        Known = lists:foldl(
            fun(Load, Callers) ->
                put_load(Pool, 1, Load),
                Looked = look(Pool, Callers),
                ?assertEqual([Load], loads(Pool)),
                Looked
            end,
            weir_pool_callers:new(),
            lists:append(lists:duplicate(20, Round))
        ),
        put_load(Pool, 1, 5),
        One = look(Pool, Known),
        true = ets:insert(?TABLE, {self(), Base, 1}),
        Two = look(Pool, One),
        true = ets:delete(?TABLE, self()),
        Three = look(Pool, Two),
        ?assertEqual([5], loads(Pool)),
        _ = look(Pool, Three),
        ?assertEqual([0], loads(Pool))
    end).

%% Slots of another segment, which exist since the pool grew, heal too.
all_slots_heal(_Config) ->
    with_pool(least_loaded, 3, fun(Pool, _Workers) ->
        #pool{segments = [{First, _, _}, _]} = Grown = weir_pool_terms:reshape(Pool, 100, 120),
        ok = weir_pool_terms:open(Grown),
        Wrong = [{1, 5}, {3, -2}, {First - 1, 3}, {First, 4}, {120, -9}],
        [put_calls(Grown, Slot, Calls) || {Slot, Calls} <- Wrong],
        ?assertMatch({ok, #{calls := 12}}, weir_pool:info(f)),
        _ = looks(2, Grown, weir_pool_callers:new()),
        ?assertEqual([0, 0, 0, 0, 0], [weir_pool_calls:calls(Grown, Slot) || {Slot, _} <- Wrong])
    end).

put_calls(Pool, Slot, Calls) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    atomics:put(Words, ?CALLS_WORD(First, Slot), Calls).

%% Callers that do not stop, kills, and polls, all at once. Then all callers stop, and the polls go on.
corrections_lose_no_calls(_Config) ->
    with_pool(least_loaded, 4, fun(#pool{base = Base} = Pool, _Workers) ->
        Stop = atomics:new(1, []),
        Callers = [weir_kit:start(fun() -> call_until(Stop) end) || _ <- lists:seq(1, 20)],
        Known = lists:foldl(
            fun(N, K) ->
                Victim = spawn(fun call_for_ever/0),
                N rem 7 =:= 0 andalso enter_row_of_dead(Base, N rem 4 + 1),
                Looked = look(Pool, K),
                kill(Victim),
                Looked
            end,
            weir_pool_callers:new(),
            lists:seq(1, 1000)
        ),
        atomics:put(Stop, 1, 1),
        [?assertEqual(ok, result(Caller)) || Caller <- Callers],
        Quiet = look(Pool, Known),
        ct:pal("left after 1000 kills and 142 of the rare kind: ~p", [loads(Pool)]),
        weir_kit:none(leaked, ets:tab2list(?TABLE)),
        _ = looks(2, Pool, Quiet),
        weir_kit:same(wrong_counts, [0, 0, 0, 0], loads(Pool))
    end).

call_until(Stop) ->
    case atomics:get(Stop, 1) of
        0 ->
            {ok, _} = weir_pool:call(f, {echo, 1}),
            call_until(Stop);
        1 ->
            ok
    end.

pools_are_looked_at_apart(_Config) ->
    with_pool(least_loaded, 2, fun(#pool{base = Base} = Pool, _Workers) ->
        Other = weir_pool_test_fixture:open(other, #{strategy => weir_pool_test_strategy}, [self(), self()]),
        enter_row_of_dead(Base, 1),
        enter_row_of_dead(Other#pool.base, 1),
        put_load(Pool, 1, 1),
        put_load(Other, 1, 1),
        _ = look(Other, weir_pool_callers:new()),
        ?assertEqual({[1, 0], [0, 0]}, {loads(Pool), loads(Other)}),
        ?assertEqual(1, ets:info(?TABLE, size)),
        _ = look(Pool, weir_pool_callers:new()),
        ?assertEqual({[0, 0], [0, 0]}, {loads(Pool), loads(Other)}),
        ?assertEqual([], ets:tab2list(?TABLE)),
        weir_pool_test_fixture:close(Other)
    end).

%% Both managers hear of the caller's death, and only the right one may count its call off, in either order.
a_caller_is_in_another_pool_by_now(_Config) ->
    [
        with_pool(least_loaded, 2, fun(Pool, _Workers) ->
            Other = weir_pool_test_fixture:open(other, #{strategy => least_loaded}, [self(), self()]),
            {Pid, _} = Caller = spawn_waiting(),
            Known = look(Pool, weir_pool_callers:new()),
            %% The caller was in the other pool before.
            Before = weir_pool_callers:new(),
            kill(Caller),
            Tell = fun
                (here) -> weir_pool_callers:caller_down(Pid, Pool, Known);
                (there) -> weir_pool_callers:caller_down(Pid, Other, Before)
            end,
            _ = Tell(First),
            ?assertEqual(case First of here -> 0; there -> 1 end, lists:sum(loads(Pool))),
            _ = Tell(Second),
            ?assertEqual({[0, 0], [0, 0]}, {loads(Pool), loads(Other)}),
            ?assertEqual([], ets:tab2list(?TABLE)),
            weir_pool_test_fixture:close(Other)
        end)
     || {First, Second} <- [{here, there}, {there, here}]
    ].

strategies_that_do_not_count(_Config) ->
    [
        with_pool(Strategy, 2, fun(Pool, _Workers) ->
            ?assertNot(weir_pool_calls:is_counted(Pool)),
            Caller = spawn_waiting(),
            ?assertEqual([0, 0], loads(Pool)),
            ?assertEqual([], ets:tab2list(?TABLE)),
            put_load(Pool, 1, 3),
            Known = looks(3, Pool, weir_pool_callers:new()),
            ?assertEqual({0, Known}, weir_pool_callers:poll(Pool, Known)),
            ?assertEqual([3, 0], loads(Pool)),
            ?assertMatch({ok, #{calls := 0}}, weir_pool:info(f)),
            kill(Caller)
        end)
     || Strategy <- [round_robin, random, hash, direct]
    ].

%% The application is stopped. Calls of a pool that a caller still knows are made all the same.
without_a_table(_Config) ->
    with_pool(least_loaded, 2, fun(Pool, Workers) ->
        Caller = spawn_waiting(),
        ok = application:stop(weir_pool),
        ?assertMatch({ok, {_, 1}}, weir_pool:call(f, {echo, 1})),
        _ = look(Pool, weir_pool_callers:new()),
        _ = weir_pool_callers:caller_down(self(), Pool, weir_pool_callers:new()),
        ok = weir_pool_calls:forget(Pool#pool.base),
        [gen_server:cast(Worker, answer) || Worker <- Workers],
        ?assertEqual({ok, answered}, result(Caller)),
        ?assertEqual([0, 0], loads(Pool))
    end).

a_pool_that_is_gone_leaves_no_rows(_Config) ->
    with_pool(least_loaded, 2, fun(#pool{base = Base}, _Workers) ->
        enter_row_of_dead(Base, 1),
        enter_row_of_dead(Base, 2),
        enter_row_of_dead(Base + 1 bsl 27, 1),
        [Other] = [Row || {_, B, _} = Row <- ets:tab2list(?TABLE), B =/= Base],
        ok = weir_pool_calls:forget(Base),
        ?assertEqual([Other], ets:tab2list(?TABLE))
    end).

%% The manager cannot poll any more, and the pool of the next manager has another base.
a_pool_that_was_killed_leaves_no_rows(_Config) ->
    start(2, [{strategy, least_loaded}]),
    #pool{base = Base} = weir_pool_terms:pool(p),
    enter_row_of_dead(Base, 1),
    kill_manager(p),
    until(fun() -> ets:tab2list(?TABLE) =:= [] end),
    ?assertMatch({ok, {_, 1}}, weir_pool:call(p, {echo, 1})),
    ok = weir_pool:stop(p).

%% ---------------------------------------------------------------- helpers

with_pool(Strategy, Size, Fun) ->
    Workers = [start_worker() || _ <- lists:seq(1, Size)],
    Pool = weir_pool_test_fixture:open(f, #{strategy => Strategy}, Workers),
    try
        Fun(Pool, Workers)
    after
        weir_pool_test_fixture:close(Pool),
        [kill(Worker) || Worker <- Workers]
    end.

start_worker() ->
    {ok, Worker} = weir_pool_call_worker:start_link(),
    unlink(Worker),
    Worker.

%% Polls the calls of a pool as its manager does, and handles the messages of callers that were dead already.
look(#pool{base = Base} = Pool, Callers) ->
    Rows = case ets:whereis(?TABLE) of undefined -> []; Table -> ets:tab2list(Table) end,
    Dead = [Caller || {Caller, B, _} <- Rows, B =:= Base, not is_process_alive(Caller)],
    {_UnderWay, Looked} = weir_pool_callers:poll(Pool, Callers),
    hear(length(Dead), Pool, Looked).

%% Handles the messages of N dead callers at least.
hear(N, Pool, Callers) ->
    receive
        {caller_down, _, process, Caller, _} -> hear(N - 1, Pool, weir_pool_callers:caller_down(Caller, Pool, Callers))
    after if N > 0 -> weir_kit:wait_ms(); true -> 0 end -> Callers
    end.

looks(0, _Pool, Callers) -> Callers;
looks(N, Pool, Callers) -> looks(N - 1, Pool, look(Pool, Callers)).

%% Starts a caller whose call is not answered.
spawn_waiting() ->
    Test = self(),
    Caller = weir_kit:start(fun() -> weir_pool:call_key(f, 1, {wait, Test}, infinity) end),
    receive
        {waiting, _} -> Caller
    end.

%% Enters the row of a caller that was killed between its row and its count.
enter_row_of_dead(Base, Slot) ->
    Dead = spawn(fun() -> ok end),
    await_down(Dead),
    true = ets:insert_new(?TABLE, {Dead, Base, Slot}).

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
