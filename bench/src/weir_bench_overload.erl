%% @doc Benchmark: claims at twice what the workers can do, first come first served and with CoDel.
%%
%% 200 callers each ask for one of 10 workers on a schedule of their own, whatever becomes of their earlier requests:
%% every request is a process of its own, so nobody's waiting slows the load down. Whoever gets a worker holds it for
%% some milliseconds; how many these are in truth is measured first, and the callers' schedules are made from it. Who
%% has waited for a second gives up.
%%
%% A wait is from the moment for which the request was scheduled until its work begins. What the first seconds bring is
%% left out: queues have to grow first. That no worker has two claimers is checked throughout.
-module(weir_bench_overload).

-behaviour(weir_bench_part).

-export([title/0, run/1, load/1, hold_us/2]).

-export_type([opts/0, outcome/0]).

-define(SIZE, 10).
-define(CALLERS, 200).
-define(HOLD_MS, 5).
-define(TIMEOUT_MS, 1_000).
-define(WARM_UP_MS, 2_000).
-define(MEASURE_MS, 2_000).
-define(CODEL, #{target => 20, interval => 100}).
-define(POOL, weir_bench_overload_pool).

%% How long the last may take.
-define(ANSWER_MS, 60_000).

-type opts() :: #{
    pool := weir_pool:name(),
    callers := pos_integer(),
    %% Microseconds between two requests of a caller.
    period_us := pos_integer(),
    hold_ms := non_neg_integer(),
    timeout_ms := pos_integer(),
    %% How long there is load, and how long before its outcome counts.
    warm_up_ms := non_neg_integer(),
    measure_ms := pos_integer()
}.

-type outcome() :: #{
    %% In all, from the beginning of the load.
    asked := non_neg_integer(),
    %% A second.
    answered := float(),
    served := float(),
    refused := float(),
    timed_out := float(),
    %% Milliseconds, of those served.
    p50 := float(),
    p99 := float(),
    longest := float()
}.

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "overload: 200 callers, 10 workers, twice what they can do".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    Hold = hold_us(?SIZE, ?HOLD_MS),
    Opts = #{
        pool => ?POOL,
        callers => ?CALLERS,
        period_us => Hold * ?CALLERS div ?SIZE div 2,
        hold_ms => ?HOLD_MS,
        timeout_ms => ?TIMEOUT_MS,
        warm_up_ms => ?WARM_UP_MS,
        measure_ms => ?MEASURE_MS
    },
    #{ours := [Codel], peers := [Fifo]} = weir_bench_rounds:compare(Rounds, #{
        ours => [contestant("CoDel", #{codel => ?CODEL}, Opts)],
        peers => [contestant("first come, first served", #{}, Opts)]
    }),
    [P99, Half, Longest, Served] = [
        #{title => Title, unit => Unit, better => Better, ours => [view(Key, Codel)], peers => [view(Key, Fifo)]}
     || {Title, Unit, Better, Key} <- [
            {"wait, 99 % of those served", "ms", lower, p99},
            {"wait, half of those served", "ms", lower, p50},
            {"wait, the longest of those served", "ms", lower, longest},
            {"served", "claims/s", higher, served}
        ]
    ],
    [P99, Half, Longest, Served#{notes => notes(Hold, P99, Served, Codel, Fifo)}].

contestant(Name, PoolOpts, Opts) ->
    #{
        name => Name,
        run => fun() ->
            ok = weir_bench_pools:start_weir(?POOL, PoolOpts#{size => ?SIZE}),
            Outcome = load(Opts),
            ok = weir_bench_pools:stop_weir(?POOL),
            Outcome
        end
    }.

view(Key, Result) -> weir_bench_rounds:view(fun(Outcome) -> maps:get(Key, Outcome) end, Result).

median(Key, Result) ->
    #{figures := Figures} = view(Key, Result),
    weir_bench_rounds:median(Figures).

notes(Hold, P99, Served, Codel, Fifo) ->
    #{target := Target, interval := Interval} = ?CODEL,
    [
        io_lib:format("a worker is held for ~.1f ms: ~b workers can serve ~b/s; answered ~b/s, time-out ~b ms", [
            Hold / 1_000, ?SIZE, ?SIZE * 1_000_000 div Hold, round(median(answered, Fifo)), ?TIMEOUT_MS
        ]),
        refusals(Codel),
        refusals(Fifo),
        io_lib:format("CoDel: when all is well one may wait ~b ms (target); a burst may last ~b ms (interval)", [
            Target, Interval
        ]),
        weir_bench_table:target("99 % wait at most half as long with CoDel", ratio(P99) >= 2),
        weir_bench_table:target("as many are served, to within 5 %", ratio(Served) >= 0.95)
    ].

refusals(#{name := Name} = Result) ->
    io_lib:format("~ts: refused ~b/s, timed out ~b/s", [
        Name, round(median(refused, Result)), round(median(timed_out, Result))
    ]).

ratio(#{better := Better, ours := [Ours], peers := [Peer]}) -> weir_bench_rounds:ratio(Better, Ours, Peer).

%% @doc How long a process holds a worker in truth that waits for so many milliseconds, in microseconds: the mean, when
%% as many processes as there are workers do so.
-spec hold_us(Processes :: pos_integer(), HoldMs :: non_neg_integer()) -> pos_integer().
hold_us(Processes, HoldMs) ->
    Each = 20,
    Sum = counters:new(1, []),
    _ = weir_kit_crowd:together(Processes, fun(_) ->
        Start = erlang:monotonic_time(microsecond),
        lists:foreach(fun(_) -> wait(HoldMs) end, lists:seq(1, Each)),
        counters:add(Sum, 1, erlang:monotonic_time(microsecond) - Start)
    end),
    counters:get(Sum, 1) div (Each * Processes).

%% @doc Loads a pool, and tells what became of the requests that ended within the time that counts.
-spec load(opts()) -> outcome().
load(#{callers := Callers, period_us := Period, warm_up_ms := WarmUp, measure_ms := Measure} = Opts) ->
    #{pool := Pool} = Opts,
    Outcomes = ets:new(outcomes, [public, set, {write_concurrency, true}]),
    Asked = counters:new(1, [write_concurrency]),
    Check = weir_bench_exclusive:new(weir_bench_pools:pids(Pool)),
    Start = erlang:monotonic_time(microsecond),
    From = Start + WarmUp * 1_000,
    To = From + Measure * 1_000,
    Ask = fun(Due) ->
        Outcome = outcome(Due, Check, Opts),
        true = ets:insert(Outcomes, {make_ref(), erlang:monotonic_time(microsecond), Outcome})
    end,
    _ = weir_kit_crowd:together(Callers, fun(_) -> caller(Start + rand:uniform(Period), Period, To, Ask, Asked) end),
    ok = answered(Outcomes, counters:get(Asked, 1), erlang:monotonic_time(millisecond) + ?ANSWER_MS),
    All = ets:tab2list(Outcomes),
    true = ets:delete(Outcomes),
    [] = [Failure || {_, _, {failed, Failure}} <- All],
    Summary = summary([Outcome || {_, At, Outcome} <- All, At >= From, At < To], Measure / 1_000),
    Summary#{asked => length(All)}.

caller(Due, _Period, To, _Ask, _Asked) when Due >= To ->
    ok;
caller(Due, Period, To, Ask, Asked) ->
    ok = wait(max(0, (Due - erlang:monotonic_time(microsecond) + 999) div 1_000)),
    counters:add(Asked, 1, 1),
    _ = spawn(fun() -> Ask(Due) end),
    caller(Due + Period, Period, To, Ask, Asked).

outcome(Due, Check, #{pool := Pool, hold_ms := HoldMs, timeout_ms := Timeout}) ->
    Work = fun(Pid) ->
        Waited = erlang:monotonic_time(microsecond) - Due,
        ok = weir_bench_exclusive:enter(Pid, Check),
        ok = wait(HoldMs),
        ok = weir_bench_exclusive:leave(Pid, Check),
        Waited
    end,
    try weir_pool:claim(Pool, Work, #{timeout => Timeout}) of
        {ok, Waited} -> {served, Waited};
        {error, timeout} -> timed_out;
        {error, {overload, _}} -> refused;
        {error, Other} -> {failed, Other}
    catch
        Class:Reason:Stacktrace -> {failed, {Class, Reason, Stacktrace}}
    end.

wait(Ms) ->
    receive
    after Ms -> ok
    end.

answered(Outcomes, Asked, Deadline) ->
    case ets:info(Outcomes, size) of
        Asked ->
            ok;
        Answered ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({unanswered, Asked - Answered}),
            ok = wait(10),
            answered(Outcomes, Asked, Deadline)
    end.

summary(Outcomes, Seconds) ->
    Waits = [Waited || {served, Waited} <- Outcomes],
    #{
        answered => length(Outcomes) / Seconds,
        served => length(Waits) / Seconds,
        refused => length([refused || refused <- Outcomes]) / Seconds,
        timed_out => length([timed_out || timed_out <- Outcomes]) / Seconds,
        p50 => weir_bench_rounds:quantile(0.5, Waits) / 1_000,
        p99 => weir_bench_rounds:quantile(0.99, Waits) / 1_000,
        longest => lists:max(Waits) / 1_000
    }.
