%% The count of calls under way: what calls, exits and kills leave of it. Pools have no processes here, so nobody sweeps
%% but the tests; weir_pool_send_SUITE has pools with a keeper.
-module(weir_pool_load_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    every_end_of_a_call_counts_it_off/1,
    callers_killed_at_random_moments/1,
    a_sweep_leaves_the_living_alone/1,
    a_kill_before_the_count_heals/1,
    a_kill_after_the_count_heals/1,
    a_sweep_killed_half_way_heals/1,
    what_moves_is_not_corrected/1,
    the_smallest_difference_is_corrected/1,
    all_slots_heal/1,
    corrections_lose_no_calls/1,
    pools_are_swept_apart/1,
    strategies_that_do_not_count/1,
    without_a_table/1,
    a_pool_that_is_gone_leaves_no_rows/1,
    a_pool_that_was_killed_leaves_no_rows/1
]).

-import(weir_pool_test_lib, [eventually/1, kill/1, result/1, await_down/1]).
-import(weir_pool_test_fixture, [put_load/3, loads/1]).

-define(TABLE, weir_pool_calls).
-define(SWEEPS, 8).

suite() -> [{timetrap, {seconds, 300}}].

all() ->
    [
        every_end_of_a_call_counts_it_off,
        callers_killed_at_random_moments,
        a_sweep_leaves_the_living_alone,
        a_kill_before_the_count_heals,
        a_kill_after_the_count_heals,
        a_sweep_killed_half_way_heals,
        what_moves_is_not_corrected,
        the_smallest_difference_is_corrected,
        all_slots_heal,
        corrections_lose_no_calls,
        pools_are_swept_apart,
        strategies_that_do_not_count,
        without_a_table,
        a_pool_that_is_gone_leaves_no_rows,
        a_pool_that_was_killed_leaves_no_rows
    ].

init_per_suite(Config) -> weir_pool_test_lib:quiet(Config).

end_per_suite(Config) -> weir_pool_test_lib:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, _Config) -> weir_pool_test_lib:teardown().

%% Answers, timeouts, dead workers, exits, and calls of the worker by itself: without any sweep.
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

%% Thousands of callers that call as fast as they can, killed while they do.
callers_killed_at_random_moments(_Config) ->
    with_pool(least_loaded, 3, fun(Pool, _Workers) ->
        Left = [
            begin
                Callers = [spawn(fun call_for_ever/0) || _ <- lists:seq(1, 50)],
                [
                    begin
                        [erlang:yield() || _ <- lists:seq(1, rand:uniform(8))],
                        exit(Caller, kill)
                    end
                 || Caller <- Callers
                ],
                [await_down(Caller) || Caller <- Callers],
                Rows = ets:info(?TABLE, size),
                Counted = lists:sum(loads(Pool)),
                sweep(Pool, 1),
                {Rows, Counted, loads(Pool)}
            end
         || _ <- lists:seq(1, 100)
        ],
        {Rows, Counted, Swept} = lists:unzip3(Left),
        ct:pal("rows and counts left by 5000 kills: ~p, ~p; words after each sweep: ~p", [
            lists:sum(Rows), lists:sum(Counted), lists:usort(Swept)
        ]),
        ?assert(lists:sum(Rows) > 100, lists:sum(Rows)),
        ?assertEqual([], ets:tab2list(?TABLE)),
        sweep(Pool, ?SWEEPS),
        ?assertEqual([0, 0, 0], loads(Pool)),
        %% And nothing is corrected once it is right.
        sweep(Pool, 3 * ?SWEEPS),
        ?assertEqual([0, 0, 0], loads(Pool))
    end).

call_for_ever() ->
    _ = outcome(fun() -> weir_pool:call(f, {echo, 1}) end),
    call_for_ever().

a_sweep_leaves_the_living_alone(_Config) ->
    with_pool(least_loaded, 2, fun(Pool, Workers) ->
        Callers = [spawn_waiting() || _ <- lists:seq(1, 10)],
        Before = loads(Pool),
        ?assertEqual(10, lists:sum(Before)),
        sweep(Pool, 3 * ?SWEEPS),
        ?assertEqual(Before, loads(Pool)),
        [kill(Caller) || Caller <- lists:sublist(Callers, 5)],
        ?assertEqual(Before, loads(Pool)),
        sweep(Pool, 1),
        ?assertEqual(5, lists:sum(loads(Pool))),
        ?assertEqual(5, ets:info(?TABLE, size)),
        [gen_server:cast(Worker, answer) || Worker <- Workers],
        [?assertEqual({ok, answered}, result(Caller)) || Caller <- lists:nthtail(5, Callers)],
        ?assertEqual([0, 0], loads(Pool))
    end).

%% A row without a count: one is subtracted that was never added.
a_kill_before_the_count_heals(_Config) ->
    with_pool(least_loaded, 2, fun(#pool{base = Base} = Pool, _Workers) ->
        enter_row_of_dead(Base, 2),
        sweep(Pool, 1),
        ?assertEqual([0, -1], loads(Pool)),
        ?assertMatch({ok, #{calls := 0}}, weir_pool:info(f)),
        sweep(Pool, ?SWEEPS - 2),
        ?assertEqual([0, -1], loads(Pool)),
        sweep(Pool, 1),
        ?assertEqual([0, 0], loads(Pool))
    end).

%% The same, beside calls that go on.
a_kill_after_the_count_heals(_Config) ->
    with_pool(least_loaded, 1, fun(#pool{base = Base} = Pool, [Worker]) ->
        Callers = [spawn_waiting() || _ <- lists:seq(1, 3)],
        enter_row_of_dead(Base, 1),
        enter_row_of_dead(Base, 1),
        sweep(Pool, 1),
        ?assertEqual([1], loads(Pool)),
        sweep(Pool, ?SWEEPS - 1),
        ?assertEqual([3], loads(Pool)),
        gen_server:cast(Worker, answer),
        [?assertEqual({ok, answered}, result(Caller)) || Caller <- Callers],
        ?assertEqual([0], loads(Pool))
    end).

%% The row was deleted, and the count never subtracted.
a_sweep_killed_half_way_heals(_Config) ->
    with_pool(least_loaded, 3, fun(Pool, _Workers) ->
        put_load(Pool, 2, 7),
        sweep(Pool, ?SWEEPS - 1),
        ?assertEqual([0, 7, 0], loads(Pool)),
        sweep(Pool, 1),
        ?assertEqual([0, 0, 0], loads(Pool))
    end).

%% Differences as a busy slot shows them, which is read while calls come and go.
what_moves_is_not_corrected(_Config) ->
    with_pool(least_loaded, 1, fun(Pool, _Workers) ->
        Round = [1, 1, 2, 1, 1, 1, 3, 0, -1, -1, -1, 1, -2, -1, -1, -1, -1, -1, -1, 2, 0],
        Seen = lists:append(lists:duplicate(20, Round)),
        [
            begin
                put_load(Pool, 1, Difference),
                sweep(Pool, 1),
                ?assertEqual([Difference], loads(Pool))
            end
         || Difference <- Seen
        ]
    end).

the_smallest_difference_is_corrected(_Config) ->
    with_pool(least_loaded, 1, fun(Pool, _Workers) ->
        [
            begin
                [begin put_load(Pool, 1, Sign * D), sweep(Pool, 1) end || D <- [9, 4, 6, 3, 5, 8, 7, 5]],
                ?assertEqual([Sign * 2], loads(Pool)),
                put_load(Pool, 1, 0),
                sweep(Pool, 1)
            end
         || Sign <- [1, -1]
        ]
    end).

%% Also those that only exist since the pool grew, in another segment.
all_slots_heal(_Config) ->
    with_pool(least_loaded, 3, fun(Pool, _Workers) ->
        #pool{segments = [{First, Words}, _]} = Grown = weir_pool_terms:reshape(Pool, 100, 120),
        ok = weir_pool_terms:open(f, Grown),
        Wrong = [{1, 5}, {3, -2}, {First, 4}, {120, -9}],
        [atomics:put(segment(Slot, First, Words, Pool), load_index(Slot, First), Load) || {Slot, Load} <- Wrong],
        ?assertMatch({ok, #{calls := 9}}, weir_pool:info(f)),
        sweep(Grown, ?SWEEPS),
        ?assertEqual([0, 0, 0, 0], [weir_pool_call:calls(Grown, Slot) || {Slot, _} <- Wrong])
    end).

segment(Slot, First, Words, _Pool) when Slot >= First -> Words;
segment(_Slot, _First, _Words, #pool{segments = [{1, Words}]}) -> Words.

load_index(Slot, First) when Slot >= First -> ?CALLS_WORD(First, Slot);
load_index(Slot, _First) -> ?CALLS_WORD(1, Slot).

%% Callers that never stop, kills, and sweeps, all at once; then all callers stop, and sweeps go on.
corrections_lose_no_calls(_Config) ->
    with_pool(least_loaded, 4, fun(#pool{base = Base} = Pool, _Workers) ->
        Stop = atomics:new(1, []),
        Callers = [spawn_monitor(fun() -> call_until(Stop) end) || _ <- lists:seq(1, 20)],
        [
            begin
                Victim = spawn(fun call_for_ever/0),
                N rem 7 =:= 0 andalso enter_row_of_dead(Base, N rem 4 + 1),
                sweep(Pool, 1),
                kill(Victim)
            end
         || N <- lists:seq(1, 1000)
        ],
        atomics:put(Stop, 1, 1),
        [?assertEqual(ok, result(Caller)) || {Caller, _} <- Callers],
        sweep(Pool, 1),
        ct:pal("left after 1000 kills and 143 of the rare kind: ~p", [loads(Pool)]),
        ?assertEqual([], ets:tab2list(?TABLE)),
        sweep(Pool, 2 * ?SWEEPS),
        ?assertEqual([0, 0, 0, 0], loads(Pool))
    end).

call_until(Stop) ->
    case atomics:get(Stop, 1) of
        0 ->
            {ok, _} = weir_pool:call(f, {echo, 1}),
            call_until(Stop);
        1 ->
            exit({result, ok})
    end.

pools_are_swept_apart(_Config) ->
    with_pool(least_loaded, 2, fun(#pool{base = Base} = Pool, _Workers) ->
        Other = weir_pool_test_fixture:open(other, #{strategy => weir_pool_test_strategy}, [self(), self()]),
        enter_row_of_dead(Base, 1),
        enter_row_of_dead(Other#pool.base, 1),
        put_load(Pool, 1, 1),
        put_load(Other, 1, 1),
        sweep(Other, 1),
        ?assertEqual({[1, 0], [0, 0]}, {loads(Pool), loads(Other)}),
        ?assertEqual(1, ets:info(?TABLE, size)),
        sweep(Pool, 1),
        ?assertEqual({[0, 0], [0, 0]}, {loads(Pool), loads(Other)}),
        ?assertEqual([], ets:tab2list(?TABLE)),
        weir_pool_test_fixture:close(Other)
    end).

strategies_that_do_not_count(_Config) ->
    [
        with_pool(Strategy, 2, fun(Pool, _Workers) ->
            ?assertNot(weir_pool_call:is_counted(Pool)),
            Caller = spawn_waiting(),
            ?assertEqual([0, 0], loads(Pool)),
            ?assertEqual([], ets:tab2list(?TABLE)),
            put_load(Pool, 1, 3),
            sweep(Pool, 2 * ?SWEEPS),
            ?assertEqual([3, 0], loads(Pool)),
            ?assertMatch({ok, #{calls := 0}}, weir_pool:info(f)),
            kill(Caller)
        end)
     || Strategy <- [round_robin, random, hash, direct]
    ].

%% The application was stopped: calls of a pool that somebody still knows are made all the same.
without_a_table(_Config) ->
    with_pool(least_loaded, 2, fun(Pool, Workers) ->
        Caller = spawn_waiting(),
        ok = application:stop(weir_pool),
        ?assertMatch({ok, {_, 1}}, weir_pool:call(f, {echo, 1})),
        ?assertEqual(ok, weir_pool_call:sweep(Pool)),
        [gen_server:cast(Worker, answer) || Worker <- Workers],
        ?assertEqual({ok, answered}, result(Caller)),
        ?assertEqual([0, 0], loads(Pool))
    end).

a_pool_that_is_gone_leaves_no_rows(_Config) ->
    with_pool(least_loaded, 2, fun(#pool{base = Base} = Pool, _Workers) ->
        enter_row_of_dead(Base, 1),
        enter_row_of_dead(Base + 1 bsl 27, 1),
        [Other] = [Row || {_, B, _} = Row <- ets:tab2list(?TABLE), B =/= Base],
        ok = weir_pool_call:forget(weir_pool_terms:id(Pool), round_robin),
        ?assertEqual(2, ets:info(?TABLE, size)),
        ok = weir_pool_call:forget(weir_pool_terms:id(Pool), least_loaded),
        ?assertEqual([Other], ets:tab2list(?TABLE))
    end).

%% With the pool's supervisor nobody is left to sweep.
a_pool_that_was_killed_leaves_no_rows(_Config) ->
    ok = weir_pool:start(p, #{size => 2, worker => {weir_pool_call_worker, start_link, []}, strategy => least_loaded}),
    #pool{base = Base} = weir_pool_terms:pool(p),
    enter_row_of_dead(Base, 1),
    kill(weir_pool_test_lib:sup(p)),
    eventually(fun() -> weir_pool:pools() =:= [] end),
    eventually(fun() -> ets:tab2list(?TABLE) =:= [] end).

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

sweep(_Pool, 0) -> ok;
sweep(Pool, N) ->
    ok = weir_pool_call:sweep(Pool),
    sweep(Pool, N - 1).

%% A caller in a call that is not answered.
spawn_waiting() ->
    Test = self(),
    {Caller, _} = spawn_monitor(fun() -> exit({result, weir_pool:call_key(f, 1, {wait, Test}, infinity)}) end),
    receive
        {waiting, _} -> Caller
    end.

%% What a caller leaves that is killed between its row and its count.
enter_row_of_dead(Base, Slot) ->
    {Dead, Monitor} = spawn_monitor(fun() -> ok end),
    receive
        {'DOWN', Monitor, process, Dead, _} -> ok
    end,
    true = ets:insert_new(?TABLE, {Dead, Base, Slot}).
