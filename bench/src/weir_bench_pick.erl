%% @doc Benchmark: choosing a worker of 20 or of 10,000, by 1 process to 100.
%%
%% weir_pool's pick/1 (round robin) and pick/2 (hash of a key) against erlpool's published algorithm
%% ({@link weir_bench_ets_pool}), with its published table options and with those that serve it best. The figure is wall
%% time divided by the picks of all processes together.
%%
%% While time runs, every pick is checked to be a pid, and one of a hundred to be a live worker of the pool; afterwards,
%% the pool must have counted as many picks by round robin as were made.
-module(weir_bench_pick).

-behaviour(weir_bench_part).

-export([title/0, run/1]).

-define(SIZE, 20).
-define(LARGE, 10_000).
-define(POOL, weir_bench_pick_pool).
-define(LARGE_POOL, weir_bench_pick_large_pool).
%% Picks between two checks; divides the others.
-define(BLOCK, 100).
-define(PICKS, 2_000_000).
%% An ETS table for which processes contend takes microseconds.
-define(PEERS_PICKS, 200_000).

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "pick: choosing one of 20 workers".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    ok = weir_bench_pools:start_weir(?POOL, #{size => ?SIZE}),
    Workers = weir_bench_pools:start_workers(?SIZE),
    Peers = [{Name, weir_bench_ets_pool:new(Workers, Options)} || {Name, Options} <- weir_bench_ets_pool:options()],
    TwoPerCore = 2 * erlang:system_info(schedulers_online),
    Tables = [against_peers(N, Workers, Peers, Rounds) || N <- lists:usort([1, 2, TwoPerCore, 100])],
    lists:foreach(fun({_, Pool}) -> ok = weir_bench_ets_pool:delete(Pool) end, Peers),
    ok = weir_bench_pools:stop_workers(Workers),
    ok = weir_bench_pools:start_weir(?LARGE_POOL, #{size => ?LARGE}),
    LargeTables = [against_small(How, Rounds) || How <- [pick_1, pick_2]],
    ok = weir_bench_pools:stop_weir(?LARGE_POOL),
    ok = weir_bench_pools:stop_weir(?POOL),
    Tables ++ LargeTables.

against_peers(Processes, Workers, EtsPools, Rounds) ->
    Members = weir_bench_pools:pids(?POOL),
    #{ours := [RoundRobin | _], peers := [Published | _] = Peers} =
        Results = weir_bench_rounds:compare(Rounds, #{
            ours => [ours(name(How), How, ?POOL, Processes, Members) || How <- [pick_1, pick_2]],
            peers => [
                contestant(Name, Processes, ?PEERS_PICKS, Workers, fun(_) -> ets_block(?BLOCK, Pool, none) end)
             || {Name, Pool} <- EtsPools
            ]
        }),
    Results#{
        title => io_lib:format("~b process(es)", [Processes]),
        unit => "ns/pick",
        better => lower,
        notes => targets(Processes, RoundRobin, Published, weir_bench_rounds:best(lower, Peers))
    }.

targets(Processes, RoundRobin, Published, Best) ->
    [
        weir_bench_table:target(
            io_lib:format("pick/1 at least 4 times ~ts (aim: 6); ~.1f times", [Whom, Ratio]), Ratio >= 4
        )
     || Processes =:= 1 orelse Processes =:= 2 * erlang:system_info(schedulers_online),
        {Whom, Peer} <- [{"erlpool's algorithm as published", Published}, {"the best peer", Best}],
        Ratio <- [weir_bench_rounds:ratio(lower, RoundRobin, Peer)]
    ].

against_small(How, Rounds) ->
    [Large, Small] = [
        ours(lists:concat([length(Members), " slots"]), How, Pool, 1, Members)
     || Pool <- [?LARGE_POOL, ?POOL], Members <- [weir_bench_pools:pids(Pool)]
    ],
    (weir_bench_rounds:compare(Rounds, #{ours => [Large], peers => [Small]}))#{
        title => ["size of the pool, ", name(How), ", 1 process"], unit => "ns/pick", better => lower
    }.

name(pick_1) -> "weir_pool:pick/1";
name(pick_2) -> "weir_pool:pick/2".

%% Block(Key) makes as many picks as a block has and gives the last; keys go down from Key.
contestant(Name, Processes, Picks, Members, Block) ->
    Blocks = Picks div ?BLOCK div Processes,
    Total = Blocks * ?BLOCK * Processes,
    Set = maps:from_keys(Members, member),
    Run = fun() -> weir_kit_crowd:together(Processes, fun(_) -> blocks(Blocks, Block, Set) end) / Total end,
    #{name => Name, run => Run}.

ours(Name, How, Pool, Processes, Members) ->
    #{run := Run} = Contestant = contestant(Name, Processes, ?PICKS, Members, block(How, Pool)),
    Contestant#{run := fun() -> counted(How, Pool, Processes, Run) end}.

%% Picks by key are not counted: they write nothing.
counted(pick_1, Pool, Processes, Run) ->
    {ok, #{picks := Before}} = weir_pool:info(Pool),
    Figure = Run(),
    {ok, #{picks := After}} = weir_pool:info(Pool),
    After = Before + ?PICKS div ?BLOCK div Processes * ?BLOCK * Processes,
    Figure;
counted(pick_2, _Pool, _Processes, Run) ->
    Run().

blocks(0, _Block, _Members) ->
    ok;
blocks(N, Block, Members) ->
    Pid = Block(N * ?BLOCK),
    true = is_map_key(Pid, Members) andalso is_process_alive(Pid),
    blocks(N - 1, Block, Members).

block(pick_1, Pool) -> fun(_) -> round_robin(?BLOCK, Pool, none) end;
block(pick_2, Pool) -> fun(Key) -> hash(?BLOCK, Pool, Key, none) end.

round_robin(0, _Pool, Last) ->
    Last;
round_robin(N, Pool, _) ->
    {ok, Pid} = weir_pool:pick(Pool),
    true = is_pid(Pid),
    round_robin(N - 1, Pool, Pid).

hash(0, _Pool, _Key, Last) ->
    Last;
hash(N, Pool, Key, _) ->
    {ok, Pid} = weir_pool:pick(Pool, Key),
    true = is_pid(Pid),
    hash(N - 1, Pool, Key - 1, Pid).

ets_block(0, _Pool, Last) ->
    Last;
ets_block(N, Pool, _) ->
    Pid = weir_bench_ets_pool:pick(Pool),
    true = is_pid(Pid),
    ets_block(N - 1, Pool, Pid).
