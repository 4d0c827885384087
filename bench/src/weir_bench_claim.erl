%% @doc Benchmark: claiming one of 20 workers and releasing it at once, by 1, 2 and 100 processes.
%%
%% weir_pool's claim/3 and checkout/2 with checkin/2 against poolboy's transaction/3 and checkout/3 with checkin/2, all
%% waiting for as long as it takes. The figure is wall time divided by the claims of all processes together.
%%
%% That a worker is held by one process at a time is checked at every claim while time runs
%% ({@link weir_bench_exclusive}); what that check takes alone, where nobody contends, is measured beside it.
-module(weir_bench_claim).

-behaviour(weir_bench_part).

-export([title/0, run/1]).

-define(SIZE, 20).
-define(PROCESSES, [1, 2, 100]).
-define(CLAIMS, 400_000).
-define(POOLBOYS_CLAIMS, 60_000).
-define(POOL, weir_bench_claim_pool).

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "claim: one of 20 workers claimed and released at once".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    ok = weir_bench_pools:start_weir(?POOL, #{size => ?SIZE}),
    Poolboys = [
        {Strategy, weir_bench_pools:start_poolboy(#{size => ?SIZE, strategy => Strategy})}
     || Strategy <- [lifo, fifo]
    ],
    Tables = [table(Processes, Poolboys, Rounds) || Processes <- ?PROCESSES],
    lists:foreach(fun({_, {Pool, _}}) -> ok = weir_bench_pools:stop_poolboy(Pool) end, Poolboys),
    ok = weir_bench_pools:stop_weir(?POOL),
    Tables.

table(Processes, Poolboys, Rounds) ->
    Weirs = weir_bench_pools:pids(?POOL),
    #{ours := [Claim | _], peers := Peers, beside := [Alone]} =
        Results = weir_bench_rounds:compare(Rounds, #{
            ours => [
                contestant("weir_pool:claim/3", Processes, ?CLAIMS, Weirs, fun claim/2),
                contestant("weir_pool:checkout/2, checkin/2", Processes, ?CLAIMS, Weirs, fun checkout/2)
            ],
            peers => [
                contestant(lists:concat([Name, ", ", Strategy]), Processes, ?POOLBOYS_CLAIMS, Pids, Loop)
             || {Strategy, {Pool, Pids}} <- Poolboys,
                {Name, Loop} <- [
                    {"poolboy:transaction/3", fun(N, Check) -> transaction(N, Pool, holding(Check)) end},
                    {"poolboy:checkout/3, checkin/2", fun(N, Check) -> poolboy_checkout(N, Pool, Check) end}
                ]
            ],
            beside => [
                contestant("the check alone", Processes, ?CLAIMS, Weirs, fun(N, Check) -> alone(N, Weirs, Check) end)
            ]
        }),
    Best = weir_bench_rounds:best(lower, Peers),
    Results#{
        title => io_lib:format("~b process(es)", [Processes]),
        unit => "ns/claim",
        better => lower,
        notes =>
            [
                ["poolboy ", weir_bench_pools:poolboy_version(), ", without overflow; lifo is its default"],
                io_lib:format("claim/3, less what the check takes in both: ~.1f times the best peer", [
                    (median(Best) - median(Alone)) / (median(Claim) - median(Alone))
                ])
            ] ++ target(Processes, weir_bench_rounds:ratio(lower, Claim, Best))
    }.

median(#{figures := Figures}) -> weir_bench_rounds:median(Figures).

target(1, Ratio) -> [weir_bench_table:target("claim/3 at least 6 times poolboy (aim: 10)", Ratio >= 6)];
target(100, Ratio) -> [weir_bench_table:target("claim/3 at least 15 times poolboy (aim: 30)", Ratio >= 15)];
target(_, _Ratio) -> [].

contestant(Name, Processes, Claims, Pids, Loop) ->
    Each = Claims div Processes,
    Run = fun() ->
        Check = weir_bench_exclusive:new(Pids),
        weir_kit_crowd:together(Processes, fun(_) -> Loop(Each, Check) end) / (Each * Processes)
    end,
    #{name => Name, run => Run}.

holding(Check) -> fun(Pid) -> weir_bench_exclusive:hold(Pid, Check) end.

claim(N, Check) -> claim_each(N, holding(Check)).

claim_each(0, _Hold) ->
    ok;
claim_each(N, Hold) ->
    {ok, ok} = weir_pool:claim(?POOL, Hold, #{timeout => infinity}),
    claim_each(N - 1, Hold).

checkout(0, _Check) ->
    ok;
checkout(N, Check) ->
    {ok, Pid, Ticket} = weir_pool:checkout(?POOL, #{timeout => infinity}),
    ok = weir_bench_exclusive:hold(Pid, Check),
    ok = weir_pool:checkin(?POOL, Ticket),
    checkout(N - 1, Check).

transaction(0, _Pool, _Hold) ->
    ok;
transaction(N, Pool, Hold) ->
    ok = poolboy:transaction(Pool, Hold, infinity),
    transaction(N - 1, Pool, Hold).

poolboy_checkout(0, _Pool, _Check) ->
    ok;
poolboy_checkout(N, Pool, Check) ->
    Pid = poolboy:checkout(Pool, true, infinity),
    ok = weir_bench_exclusive:hold(Pid, Check),
    ok = poolboy:checkin(Pool, Pid),
    poolboy_checkout(N - 1, Pool, Check).

%% As many processes, each with workers of its own to check: there is no pool that would keep them apart.
alone(N, Pids, _Check) ->
    alone(N, Pids, Pids, weir_bench_exclusive:new(Pids)).

alone(0, _Left, _Pids, _Check) ->
    ok;
alone(N, [], Pids, Check) ->
    alone(N, Pids, Pids, Check);
alone(N, [Pid | Left], Pids, Check) ->
    ok = weir_bench_exclusive:hold(Pid, Check),
    alone(N - 1, Left, Pids, Check).
