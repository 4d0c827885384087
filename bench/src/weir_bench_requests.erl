%% @doc Benchmark: erlpool's own. 4,000 processes at once make requests to 20 gen_servers that reply `ok'.
%%
%% weir_pool's pick/1 and `gen_server:call/2', and its call/2, against erlpool's published algorithm and
%% `gen_server:call/2', and poolboy:transaction/2. Every reply is checked. erlpool's README makes 100,000 requests; here
%% it is more, for time enough to measure.
-module(weir_bench_requests).

-behaviour(weir_bench_part).

-export([title/0, run/1]).

-define(SIZE, 20).
-define(CALLERS, 4_000).
-define(REQUESTS, 200_000).
-define(POOL, weir_bench_requests_pool).

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "requests: 4,000 processes, 20 workers, 200,000 requests to gen_servers that reply ok".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    ok = weir_bench_pools:start_weir(?POOL, #{size => ?SIZE}),
    {Poolboy, _} = weir_bench_pools:start_poolboy(#{size => ?SIZE, strategy => lifo}),
    Workers = weir_bench_pools:start_workers(?SIZE),
    EtsPools = [{Name, weir_bench_ets_pool:new(Workers, Options)} || {Name, Options} <- weir_bench_ets_pool:options()],
    #{ours := [Pick | _], peers := Peers} =
        Results = weir_bench_rounds:compare(Rounds, #{
            ours => [
                contestant("weir_pool:pick/1, gen_server:call/2", fun() ->
                    {ok, Pid} = weir_pool:pick(?POOL),
                    gen_server:call(Pid, ok)
                end),
                contestant("weir_pool:call/2", fun() ->
                    {ok, Reply} = weir_pool:call(?POOL, ok),
                    Reply
                end)
            ],
            peers =>
                [
                    contestant([Name, ", gen_server:call/2"], fun() ->
                        gen_server:call(weir_bench_ets_pool:pick(Pool), ok)
                    end)
                 || {Name, Pool} <- EtsPools
                ] ++ [contestant("poolboy:transaction/2", fun() -> transaction(Poolboy) end)]
        }),
    lists:foreach(fun({_, Pool}) -> ok = weir_bench_ets_pool:delete(Pool) end, EtsPools),
    ok = weir_bench_pools:stop_workers(Workers),
    ok = weir_bench_pools:stop_poolboy(Poolboy),
    ok = weir_bench_pools:stop_weir(?POOL),
    Best = weir_bench_rounds:ratio(higher, Pick, weir_bench_rounds:best(higher, Peers)),
    OfPoolboy = weir_bench_rounds:ratio(higher, Pick, lists:last(Peers)),
    [
        Results#{
            title => "requests",
            unit => "requests/s",
            better => higher,
            notes => [
                weir_bench_table:target("pick/1 at least 1.1 times the best of erlpool's (aim: 1.3)", Best >= 1.1),
                weir_bench_table:target(
                    io_lib:format("pick/1 at least 7 times poolboy; ~.1f times", [OfPoolboy]), OfPoolboy >= 7
                ),
                "published in erlpool's README: erlpool 500,000, cuesport 167,000, revolver 143,000, poolboy 83,000,"
                " pooler 40,000"
            ]
        }
    ].

contestant(Name, Request) ->
    Each = ?REQUESTS div ?CALLERS,
    Run = fun() ->
        Each * ?CALLERS * 1.0e9 / weir_kit_crowd:together(?CALLERS, fun(_) -> requests(Each, Request) end)
    end,
    #{name => lists:flatten(Name), run => Run}.

requests(0, _Request) ->
    ok;
requests(N, Request) ->
    ok = Request(),
    requests(N - 1, Request).

transaction(Pool) ->
    poolboy:transaction(Pool, fun(Pid) -> gen_server:call(Pid, ok) end).
