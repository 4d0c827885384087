%% @doc Benchmark: choosing a worker of 20, by 1, 2 and 100 processes.
%%
%% weir_pool's pick/1 (round robin) and pick/2 (hash of a key) against erlpool's published algorithm
%% ({@link weir_bench_ets_pool}), with both table options that could help it. The figure is wall time divided by the
%% picks of all processes together.
-module(weir_bench_pick).

-behaviour(weir_bench_part).

-export([title/0, run/1, start_worker/0]).

-define(WORKERS, 20).
-define(PROCESSES, [1, 2, 100]).
-define(PICKS, 2_000_000).
-define(POOL, weir_bench_pick_pool).

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "pick: choosing one of 20 workers".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    {ok, _} = application:ensure_all_started(weir_pool),
    ok = weir_pool:start(?POOL, #{size => ?WORKERS, worker => {?MODULE, start_worker, []}}),
    Workers = [Pid || _ <- lists:seq(1, ?WORKERS), {ok, Pid} <- [start_worker()]],
    Read = weir_bench_ets_pool:new(Workers, [{read_concurrency, true}]),
    Write = weir_bench_ets_pool:new(Workers, [{read_concurrency, true}, {write_concurrency, true}]),
    Tables = [table(Processes, Read, Write, Rounds) || Processes <- ?PROCESSES],
    ok = weir_bench_ets_pool:delete(Read),
    ok = weir_bench_ets_pool:delete(Write),
    lists:foreach(
        fun(Pid) ->
            true = unlink(Pid),
            true = exit(Pid, kill)
        end,
        Workers
    ),
    ok = weir_pool:stop(?POOL),
    Tables.

table(Processes, Read, Write, Rounds) ->
    Ours = [
        contestant("weir_pool:pick/1", Processes, fun round_robin/2),
        contestant("weir_pool:pick/2", Processes, fun hash/2)
    ],
    Peers = [
        contestant("erlpool's algorithm, read_concurrency", Processes, fun(N, _) -> ets_pool(N, Read) end),
        contestant("erlpool's algorithm, read and write_concurrency", Processes, fun(N, _) -> ets_pool(N, Write) end)
    ],
    {OurResults, PeerResults} = lists:split(length(Ours), weir_bench_rounds:run(Rounds, Ours ++ Peers)),
    #{
        title => io_lib:format("~b process(es)", [Processes]),
        unit => "ns/pick",
        better => lower,
        ours => OurResults,
        peers => PeerResults
    }.

contestant(Name, Processes, Loop) ->
    Each = ?PICKS div Processes,
    Run = fun() -> weir_bench_crowd:together(Processes, fun(I) -> Loop(Each, I) end) / (Each * Processes) end,
    #{name => Name, run => Run}.

round_robin(0, _) ->
    ok;
round_robin(N, I) ->
    {ok, Pid} = weir_pool:pick(?POOL),
    true = is_pid(Pid),
    round_robin(N - 1, I).

hash(0, _) ->
    ok;
hash(N, I) ->
    {ok, Pid} = weir_pool:pick(?POOL, N),
    true = is_pid(Pid),
    hash(N - 1, I).

ets_pool(0, _Pool) ->
    ok;
ets_pool(N, Pool) ->
    true = is_pid(weir_bench_ets_pool:pick(Pool)),
    ets_pool(N - 1, Pool).

%% @doc A worker that does nothing, linked to the caller; it ends when it is told to.
-spec start_worker() -> {ok, pid()}.
start_worker() ->
    {ok,
        proc_lib:spawn_link(fun() ->
            receive
                stop -> ok
            end
        end)}.
