%% @doc Benchmark: calls to pools on several nodes, all on this machine, beside the ways that OTP offers: a random
%% member of a group of pg and gen_server:call/3, erpc:call/5 to a random node with weir_pool:call/3 there, and one
%% gen_server registered with global.
%%
%% A node calls and has no workers; others serve. Every answer is compared with its question.
-module(weir_bench_cluster).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-define(CALLERS, 32).
-define(WORKERS, 4).

-type sizes() :: #{calls := pos_integer(), ms := pos_integer(), nodes := [pos_integer()]}.

%% @doc The benchmark's name.
-spec title() -> string().
title() -> "cluster: calls to pools on several nodes".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, #{calls => 5000, ms => 2000, nodes => [1, 2, 4]}).

%% @doc The same in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{nodes := Counts} = Sizes) ->
    here(Rounds, Sizes) ++ lists:append([elsewhere(Rounds, Count, Sizes) || Count <- Counts]) ++
        lists:append([troubled(Rounds, Trouble, Sizes) || Trouble <- [slow, killed, frozen]]).

%% What stays on the node, and the choice by key among three other nodes.
here(Rounds, #{calls := Calls}) ->
    with([{serve, [?WORKERS, 0]} || _ <- [1, 2, 3, 4]], fun([One | _] = Nodes) ->
        ok = seen([One], {3, ?WORKERS * 4}),
        Pool = weir_bench_rounds:run(Rounds, [
            #{name => atom_to_list(Module), run => fun() -> call(One, here_ns, [Module, 20 * Calls]) end}
         || Module <- [weir_cluster, weir_pool]
        ]),
        Keys = weir_bench_rounds:run(Rounds, [
            #{name => name(Way), run => fun() -> call(One, choose_ns, [Way, 20 * Calls]) end}
         || Way <- [weir_cluster, pg]
        ]),
        [Ours, Without] = [weir_bench_rounds:median(Figures) || #{figures := Figures} <- Pool],
        [ByKey | _] = [weir_bench_rounds:median(Figures) || #{figures := Figures} <- Keys],
        4 = length(Nodes),
        [
            table("a call that stays on its node, which has room", "ns", lower, Pool, [
                weir_bench_table:target("100 ns more than weir_pool:call/3, by the median", Ours - Without =< 100)
            ]),
            table("the choice of one of four nodes by key", "ns", lower, Keys, [
                weir_bench_table:target("300 ns, by the median", ByKey =< 300)
            ])
        ]
    end).

elsewhere(Rounds, Count, #{calls := Calls, ms := Ms}) ->
    with([client | [{serve, [?WORKERS, 0]} || _ <- lists:seq(1, Count)]], fun([Client, Server | _]) ->
        ok = seen([Client], {Count, ?WORKERS * Count}),
        yes = call(Server, register_one, []),
        ok = until(fun() -> call(Client, is_registered, []) end),
        Ways = [weir_cluster, pg, erpc, global],
        Latency = [
            weir_bench_rounds:run(Rounds, [
                #{name => name(Way), run => fun() -> call(Client, latency, [Way, Calls]) end} || Way <- Ways
            ])
         || Count =:= 1
        ],
        Rates = weir_bench_rounds:run(Rounds, [
            #{name => name(Way), run => fun() -> rate(call(Client, load, [Way, ?CALLERS, Ms, 5000])) end} || Way <- Ways
        ]),
        [table("a call to another node, one caller", "us", lower, Each, []) || Each <- Latency] ++
            [table([weir_kit:integer(?CALLERS), " callers, ", others(Count)], "calls/s", higher, Rates, [])]
    end).

%% The workers wait a millisecond for each call; one of three nodes is ten times as slow, or was killed or frozen when
%% the load had begun.
troubled(Rounds, Trouble, #{ms := Ms}) ->
    Ways = [weir_cluster, pg, erpc],
    Results = weir_bench_rounds:run(Rounds, [
        #{name => name(Way), run => fun() -> troubled_once(Trouble, Way, Ms) end} || Way <- Ways
    ]),
    Title = ["16 callers, three nodes, of which one is ", atom_to_list(Trouble)],
    View = fun(N) -> [weir_bench_rounds:view(fun(Figures) -> element(N, Figures) end, Each) || Each <- Results] end,
    %% Of none there is no ratio.
    #{peers := Peers} = Failed = table([Title, ": failed"], "calls", lower, View(2), []),
    [
        table([Title, ": done"], "calls/s", higher, View(1), []),
        Failed#{peers := [], beside => Peers},
        table([Title, ": 99 of 100 took at most"], "ms", lower, View(3), [])
    ].

troubled_once(Trouble, Way, Ms) ->
    Slow = case Trouble of slow -> 10; _ -> 1 end,
    Servers = [{serve, [?WORKERS, WorkMs]} || WorkMs <- [1, 1, Slow]],
    with([client | Servers], fun([Client, _, _, Last]) ->
        ok = seen([Client], {3, 3 * ?WORKERS}),
        Me = self(),
        Load = spawn_link(fun() -> Me ! {self(), call(Client, load, [Way, 16, Ms, 500])} end),
        receive after Ms div 4 -> ok end,
        ok = trouble(Trouble, Last),
        receive {Load, Result} -> Result end
    end).

trouble(slow, _Node) -> ok;
trouble(killed, Node) -> weir_kit_nodes:signal("KILL", Node);
trouble(frozen, Node) -> weir_kit_nodes:signal("STOP", Node).

rate({Rate, 0, _P99}) -> Rate.

name(weir_cluster) -> "weir_cluster";
name(pg) -> "pg, a random member";
name(erpc) -> "erpc, a random node";
name(global) -> "global, one process".

others(1) -> "one other node";
others(Count) -> [weir_kit:integer(Count), " other nodes"].

table(Title, Unit, Better, [Ours | Peers], Notes) ->
    #{title => Title, unit => Unit, better => Better, ours => [Ours], peers => Peers, notes => Notes}.

%% ---------------------------------------------------------------- the nodes

with(Roles, Test) ->
    Nodes = [start(Role) || Role <- Roles],
    try
        ok = weir_kit_nodes:connect(Nodes),
        Test(Nodes)
    after
        lists:foreach(fun weir_kit_nodes:kill/1, Nodes)
    end.

start(Role) ->
    Node = weir_kit_nodes:start(["-kernel", "prevent_overlapping_partitions", "false"]),
    ok = case Role of
        client -> call(Node, client, []);
        {serve, Args} -> call(Node, serve, Args)
    end,
    Node.

call(Node, Function, Args) -> weir_kit_nodes:call(Node, weir_bench_cluster_node, Function, Args).

seen(Nodes, What) -> until(fun() -> lists:all(fun(Node) -> call(Node, nodes_seen, [What]) end, Nodes) end).

until(Condition) ->
    case Condition() of
        true ->
            ok;
        false ->
            receive after 20 -> until(Condition) end
    end.
