%% The peers of weir_pool's benchmarks and what watches them: that they are right, and that they notice what is not.
-module(weir_bench_pools_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, wait_ms/0]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_pool),
    [{started, Started} | Config].

end_per_suite(Config) ->
    [ok = application:stop(App) || App <- lists:reverse(proplists:get_value(started, Config))].

ets_pool(_) ->
    Pids = weir_bench_pools:start_workers(20),
    [
        begin
            Pool = weir_bench_ets_pool:new(Pids, Options),
            ?assertEqual(Pids ++ Pids ++ [hd(Pids)], [weir_bench_ets_pool:pick(Pool) || _ <- lists:seq(1, 41)]),
            ok = weir_bench_ets_pool:delete(Pool)
        end
     || {_Name, Options} <- weir_bench_ets_pool:options()
    ],
    ok = weir_bench_pools:stop_workers(Pids).

poolboy(_) ->
    ?assertNotEqual("not installed", weir_bench_pools:poolboy_version()),
    [
        begin
            {Pool, Pids} = weir_bench_pools:start_poolboy(#{size => 3, strategy => Strategy}),
            ?assertEqual(3, length(lists:usort(Pids))),
            Check = weir_bench_exclusive:new(Pids),
            Hold = fun(Pid) -> weir_bench_exclusive:hold(Pid, Check) end,
            _ = weir_kit_crowd:together(10, fun(_) ->
                [ok = poolboy:transaction(Pool, Hold, infinity) || _ <- lists:seq(1, 100)]
            end),
            [?assertEqual(here, gen_server:call(Pid, here, wait_ms())) || Pid <- Pids],
            ok = weir_bench_pools:stop_poolboy(Pool),
            lists:foreach(fun weir_kit:await_down/1, Pids)
        end
     || Strategy <- [lifo, fifo]
    ].

workers(_) ->
    Pids = weir_bench_pools:start_workers(5),
    ?assertEqual(5, length(lists:usort(Pids))),
    [?assertEqual({ok, Pid}, gen_server:call(Pid, {ok, Pid}, wait_ms())) || Pid <- Pids],
    ok = weir_bench_pools:stop_workers(Pids),
    ?assertNot(lists:any(fun is_process_alive/1, Pids)).

pools_survive(_) ->
    ok = weir_bench_pools:start_weir(?FUNCTION_NAME, #{size => 2}),
    [
        begin
            [Pid | _] = weir_bench_pools:pids(?FUNCTION_NAME),
            weir_kit:kill(Pid),
            until(fun() -> Pids = weir_bench_pools:pids(?FUNCTION_NAME), length(Pids -- [Pid]) =:= 2 end)
        end
     || _ <- lists:seq(1, 50)
    ],
    ok = weir_bench_pools:stop_weir(?FUNCTION_NAME).

exclusive(_) ->
    [A, B] = Pids = weir_bench_pools:start_workers(2),
    Check = weir_bench_exclusive:new(Pids),
    ok = weir_bench_exclusive:enter(A, Check),
    ok = weir_bench_exclusive:hold(B, Check),
    ok = weir_bench_exclusive:leave(A, Check),
    ok = weir_bench_exclusive:hold(A, Check),
    ok = weir_bench_pools:stop_workers(Pids).

exclusive_notices(_) ->
    [A, _] = Pids = weir_bench_pools:start_workers(2),
    Check = weir_bench_exclusive:new(Pids),
    ok = weir_bench_exclusive:enter(A, Check),
    ?assertError({badmatch, 2}, weir_bench_exclusive:hold(A, Check)),
    %% A pool that gives one worker to all.
    Shared = weir_bench_exclusive:new(Pids),
    ?assertError(
        {wrong_result, {error, {badmatch, _}, _}},
        weir_kit_crowd:together(10, fun(_) ->
            ok = weir_bench_exclusive:enter(A, Shared),
            %% The processes are inside at the same time.
            receive after 50 -> ok end,
            ok = weir_bench_exclusive:leave(A, Shared)
        end)
    ),
    ok = weir_bench_pools:stop_workers(Pids).

strangers_are_noticed(_) ->
    Pids = weir_bench_pools:start_workers(2),
    Check = weir_bench_exclusive:new(Pids),
    ?assertError({badmatch, _}, weir_bench_exclusive:hold(self(), Check)),
    ok = weir_bench_pools:stop_workers(Pids).

idle_processes(_) ->
    Pids = weir_bench_idle:start(1_000),
    Sample = weir_bench_idle:sample(100, Pids),
    ?assertEqual(100, length(lists:usort(Sample))),
    ?assertEqual([], Sample -- Pids),
    ?assertEqual(Pids, weir_bench_idle:sample(5_000, Pids)),
    _ = weir_bench_idle:reductions(Sample),
    %% A scan on behalf of what ran before may still be under way.
    until(fun() ->
        Before = weir_bench_idle:reductions(Sample),
        persistent_term:put({?MODULE, immediate}, self()),
        persistent_term:put({?MODULE, immediate}, undefined),
        weir_bench_idle:reductions(Sample) - Before < 2
    end),
    ok = weir_bench_idle:stop(Pids),
    lists:foreach(fun weir_kit:await_down/1, Pids).

%% The benchmark would see a pool that makes all processes be scanned.
scan_is_noticed(_) ->
    Pids = weir_bench_idle:start(100),
    _ = weir_bench_idle:reductions(Pids),
    Before = weir_bench_idle:reductions(Pids),
    persistent_term:put({?MODULE, compound}, {a}),
    persistent_term:put({?MODULE, compound}, {b}),
    until(fun() -> weir_bench_idle:reductions(Pids) - Before >= 2 end),
    ok = weir_bench_idle:stop(Pids).

spread(_) ->
    [
        begin
            Name = {?FUNCTION_NAME, Strategy},
            ok = weir_bench_pools:start_weir(Name, #{size => 6, strategy => Strategy}),
            #{counts := Counts, difference := Difference, deviation := Deviation} =
                weir_bench_strategies:spread(How, Name, 6_000),
            ?assertEqual({6, 6_000}, {length(Counts), lists:sum(Counts)}),
            ?assertEqual(Difference, lists:max(Counts) - lists:min(Counts)),
            ?assert(abs(Deviation * 1_000 - lists:max([abs(Count - 1_000) || Count <- Counts])) < 0.001),
            How =:= claim orelse ?assert(Deviation < 0.2),
            ok = weir_bench_pools:stop_weir(Name)
        end
     || {How, Strategy} <- [
            {round_robin, round_robin}, {hash, hash}, {random, random}, {direct, direct},
            {least_loaded, least_loaded}, {claim, round_robin}
        ]
    ].

storm(_) ->
    %% One whose killer had hardly a turn is no storm.
    until(fun() ->
        #{kills := Kills, picks_per_second := PerSecond, ages := Ages, looked_up := LookedUp} = outcome_of_storm(1_000),
        ?assert(Kills =< 300),
        ?assert(PerSecond > 0),
        ?assert(length(Ages) =< LookedUp),
        ?assert(lists:all(fun(Age) -> Age >= 0 end, Ages)),
        Kills > 30
    end).

no_storm(_) ->
    ?assertMatch(#{kills := 0, ages := [], vacant := 0}, outcome_of_storm(0)).

outcome_of_storm(Rate) ->
    Idle = weir_bench_idle:start(10),
    Outcome = weir_bench_restarts:with_pool(fun() ->
        weir_bench_restarts:storm(#{rate => Rate, ms => 300, pickers => 2, idle => Idle})
    end),
    ok = weir_bench_idle:stop(Idle),
    Outcome.

large(_) ->
    Life = weir_bench_large:life(20),
    ?assertEqual([claim, erased, pools, restart, start, stop], lists:sort(maps:keys(Life))),
    ?assert(lists:all(fun(Ms) -> Ms > 0 end, maps:values(Life))),
    ?assert(weir_bench_large:stops(3, 3) > 0),
    ?assertEqual([], weir_pool:pools()).

%% Ten callers, each of whom asks for 200 ms of work a second.
overload(_) ->
    Outcome = load(10, 100, 1_500),
    #{answered := Answered, served := Served, refused := Refused, timed_out := TimedOut} = Outcome,
    ?assert(abs(Answered - Served - Refused - TimedOut) < 0.001),
    ?assert(Served > 0 andalso Refused + TimedOut > 0),
    #{p50 := Half, p99 := Most, longest := Longest} = Outcome,
    ?assert(Half =< Most andalso Most =< Longest).

no_overload(_) ->
    #{asked := Asked, answered := Answered, served := Served} = load(1, weir_kit:wait_ms(), 1_500),
    ?assertEqual(Answered, Served),
    ?assert(Served > 0),
    %% Ten requests a second, in 200 ms of warming up and in the 1.5 s that count.
    ?assertEqual(17, Asked).

load(Callers, TimeoutMs, MeasureMs) ->
    ok = weir_bench_pools:start_weir(overload, #{size => 1}),
    Outcome = weir_bench_overload:load(#{
        pool => overload,
        callers => Callers,
        period_us => 100_000,
        hold_ms => 20,
        timeout_ms => TimeoutMs,
        warm_up_ms => 200,
        measure_ms => MeasureMs
    }),
    ok = weir_bench_pools:stop_weir(overload),
    Outcome.

hold_us(_) ->
    Hold = weir_bench_overload:hold_us(3, 5),
    ?assert(Hold >= 5_000).
