%% @doc Benchmark: calls to pools on several nodes, all on this machine, beside the ways that OTP offers: a random
%% member of a group of pg and gen_server:call/3, erpc:call/5 to a random node with weir_pool:call/3 there, and one
%% gen_server registered with global.
%%
%% A node calls and has no workers; others serve. Every answer is compared with its question.
-module(weir_bench_cluster).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-define(CALLERS, 32).
%% One call, on a busy machine; and loads until there is one without a failure.
-define(TIMEOUT_MS, 60_000).
-define(LOADS, 5).
-define(WORKERS, 4).

-type sizes() :: #{
    calls := pos_integer(),
    ms := pos_integer(),
    %% How many nodes serve one that calls.
    nodes := [pos_integer()],
    %% How many nodes only know each other.
    members := pos_integer()
}.

%% @doc The benchmark's name.
-spec title() -> string().
title() -> "cluster: calls to pools on several nodes".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, #{calls => 5000, ms => 2000, nodes => [1, 2, 4, 8], members => 100}).

%% @doc The same in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{nodes := Counts} = Sizes) ->
    here(Rounds, Sizes) ++ lists:append([elsewhere(Rounds, Count, Sizes) || Count <- Counts]) ++
        lists:append([troubled(Rounds, Trouble, Sizes) || Trouble <- [slow, killed, frozen]]) ++
        lists:append([converged(Rounds, Count) || Count <- Counts, Count > 1]) ++ members(Rounds, Sizes).

%% What stays on the node, and the choice by key among four nodes.
here(Rounds, #{calls := Calls}) ->
    with([{serve, [?WORKERS, 0]} || _ <- [1, 2, 3, 4]], fun([One | _] = Nodes) ->
        ok = seen([One], {3, ?WORKERS * 4}),
        [Both] = weir_bench_rounds:run(Rounds, [
            #{name => "weir_cluster", run => fun() -> call(One, here_ns, [20 * Calls]) end}
        ]),
        [Ours, Pool, More] = view([1, 2, 3], Both),
        Keys = weir_bench_rounds:run(Rounds, [
            #{name => name(Way), run => fun() -> call(One, choose_ns, [Way, 20 * Calls]) end}
         || Way <- [weir_cluster, pg]
        ]),
        [Difference, ByKey] = [weir_bench_rounds:median(Figures) || #{figures := Figures} <- [More, hd(Keys)]],
        4 = length(Nodes),
        [
            table("a call that stays on its node, which has room", "ns", lower, [Ours, Pool#{name := "weir_pool"}], []),
            table("a call that stays, and what it takes more than weir_pool:call/3", "ns", lower, [More], [
                "the median of the differences of short batches, one after the other",
                weir_bench_table:target("100 ns, by the median", Difference =< 100)
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
        Sent = [
            weir_bench_rounds:run(Rounds, [
                #{name => name(Way), run => fun() -> call(Client, sent, [Way, Calls]) end} || Way <- Ways
            ])
         || Count =:= 1
        ],
        Rates = weir_bench_rounds:run(Rounds, [
            #{name => name(Way), run => fun() -> rate(Client, [Way, ?CALLERS, Ms, ?TIMEOUT_MS], ?LOADS) end}
         || Way <- Ways
        ]),
        [table("a call to another node, one caller", "us", lower, Each, []) || Each <- Latency] ++
            [
                table(["a call to another node: ", What], What, lower, views(N, Each), [])
             || Each <- Sent, {N, What} <- [{1, "bytes"}, {2, "messages"}]
            ] ++
            [table([weir_kit_text:integer(?CALLERS), " callers, ", others(Count)], "calls/s", higher, Rates, [])]
    end).

%% The workers wait a millisecond for each call; one of three nodes is ten times as slow, or was killed or frozen when
%% the load had begun. The one process that is registered with global is on that node.
troubled(Rounds, Trouble, #{ms := Ms}) ->
    Ways = [weir_cluster, pg, erpc, global],
    Results = weir_bench_rounds:run(Rounds, [
        #{name => name(Way), run => fun() -> troubled_once(Trouble, Way, Ms) end} || Way <- Ways
    ]),
    Title = ["16 callers, three nodes, of which one is ", atom_to_list(Trouble)],
    %% Of none there is no ratio.
    #{peers := Peers} = Failed = table([Title, ": failed"], "calls", lower, views(2, Results), []),
    [
        table([Title, ": done"], "calls/s", higher, views(1, Results), []),
        Failed#{peers := [], beside => Peers},
        table([Title, ": 50 of 100 took at most"], "ms", lower, views(3, Results), []),
        table([Title, ": 99 of 100 took at most"], "ms", lower, views(4, Results), [])
    ].

view(Elements, Result) -> [weir_bench_rounds:view(fun(Figures) -> element(N, Figures) end, Result) || N <- Elements].

views(N, Results) -> lists:append([view([N], Each) || Each <- Results]).

troubled_once(Trouble, Way, Ms) ->
    Slow = case Trouble of slow -> 10; _ -> 1 end,
    Servers = [{serve, [?WORKERS, WorkMs]} || WorkMs <- [1, 1, Slow]],
    with([client | Servers], fun([Client, _, _, Last]) ->
        ok = seen([Client], {3, 3 * ?WORKERS}),
        ok = case Way of
            global ->
                yes = call(Last, register_one, []),
                until(fun() -> call(Client, is_registered, []) end);
            _ ->
                ok
        end,
        Me = self(),
        Load = spawn_link(fun() -> Me ! {self(), call(Client, load, [Way, 16, Ms, 500])} end),
        ok = until(fun() -> call(Client, answered, []) > 0 end),
        receive after Ms div 4 -> ok end,
        ok = trouble(Trouble, Last),
        receive {Load, Result} -> Result end
    end).

trouble(slow, _Node) -> ok;
trouble(killed, Node) -> weir_kit_nodes:signal("KILL", Node);
trouble(frozen, Node) -> weir_kit_nodes:signal("STOP", Node).

%% From the moment in which nodes are connected, or are again when they were split into two halves, or one of them is
%% killed, until all see it; of both ways in the same nodes.
converged(Rounds, Count) ->
    Once = fun() ->
        Nodes = started(lists:duplicate(Count, {serve, [?WORKERS, 0]})),
        try
            Connect = fun() -> weir_kit_nodes:connect(Nodes) end,
            Joined = seen_ms(Connect, Nodes, Count - 1),
            ok = split(lists:split(Count div 2, Nodes)),
            Healed = seen_ms(Connect, Nodes, Count - 1),
            {Left, [Last]} = lists:split(Count - 1, Nodes),
            {Joined, Healed, seen_ms(fun() -> weir_kit_nodes:signal("KILL", Last) end, Left, Count - 2)}
        after
            lists:foreach(fun weir_kit_nodes:kill/1, Nodes)
        end
    end,
    [#{figures := All}] = weir_bench_rounds:run(Rounds, [#{name => "both", run => Once}]),
    View = fun(N) ->
        [
            #{name => name(Way), figures => [maps:get(Way, element(N, Figures)) || Figures <- All]}
         || Way <- [weir_cluster, pg]
        ]
    end,
    Nodes = [weir_kit_text:integer(Count), " nodes"],
    [#{figures := Healed} | _] = AfterSplit = View(2),
    [
        table([Nodes, " are connected: each calls the others after"], "ms", lower, View(1), []),
        table([Nodes, ", split in two and connected again: each calls the others after"], "ms", lower, AfterSplit, [
            weir_bench_table:target("2 s, always", lists:max(Healed) =< 2000)
        ]),
        table([Nodes, ", one of which is killed: none calls it after"], "ms", lower, View(3), [])
    ].

%% Returns when each sees its half alone.
split({Half, Other}) ->
    _ = [weir_kit_nodes:call(A, erlang, disconnect_node, [B]) || A <- Half, #{name := B} <- Other],
    lists:foreach(fun(Nodes) ->
        [ok = call(Node, await, [Way, length(Nodes) - 1, ?WORKERS]) || Node <- Nodes, Way <- [weir_cluster, pg]]
    end, [Half, Other]).

seen_ms(Event, Nodes, Others) ->
    Me = self(),
    Begin = erlang:monotonic_time(microsecond),
    Wait = fun(Way, Node) ->
        ok = call(Node, await, [Way, Others, ?WORKERS]),
        Me ! {self(), (erlang:monotonic_time(microsecond) - Begin) / 1000}
    end,
    Waiting = [{Way, [spawn_link(fun() -> Wait(Way, Node) end) || Node <- Nodes]} || Way <- [weir_cluster, pg]],
    _ = Event(),
    maps:from_list([{Way, lists:max([receive {Pid, Ms} -> Ms end || Pid <- Pids])} || {Way, Pids} <- Waiting]).

%% Nodes that know each other and do nothing: what it takes of a core to know of so many others, and what is sent.
members(Rounds, #{members := Count, ms := Ms}) ->
    Args = ["-kernel", "prevent_overlapping_partitions", "false", "-connect_all", "false", "+S", "1:1", "+A", "1"],
    Nodes = [weir_kit_nodes:start(Args) || _ <- lists:seq(1, Count)],
    try
        _ = [ok = call(Node, join, []) || Node <- Nodes],
        ok = weir_kit_nodes:connect(Nodes),
        ok = until(fun() -> lists:all(fun(Node) -> length(call(Node, connected, [])) =:= Count - 1 end, Nodes) end),
        Without = idle(Rounds, Nodes, Ms),
        {Us, ok} = timer:tc(fun() ->
            _ = [ok = call(Node, publish, []) || Node <- Nodes],
            until(fun() -> lists:all(fun(Node) -> call(Node, members, []) =:= Count - 1 end, Nodes) end)
        end),
        With = idle(Rounds, Nodes, Ms),
        Title = [weir_kit_text:integer(Count), " nodes that do nothing, "],
        Note = io_lib:format("published on all, one after the other, and known to all: ~.1f s", [Us / 1.0e6]),
        [
            idle_table([Title, "each: processor time"], "us/s", 1, With, Without, [Note]),
            idle_table([Title, "each: sent"], "bytes/s", 2, With, Without, [])
        ]
    after
        lists:foreach(fun weir_kit_nodes:kill/1, Nodes)
    end.

%% What nodes do without it is no contest.
idle_table(Title, Unit, N, With, Without, Notes) ->
    [Ours, Beside] = views(N, [
        #{name => "weir_cluster", figures => With}, #{name => "pg alone", figures => Without}
    ]),
    #{title => Title, unit => Unit, better => lower, ours => [Ours], peers => [], beside => [Beside], notes => Notes}.

%% Of one node, in the mean: processor time in microseconds and bytes sent, for each second.
idle(Rounds, Nodes, Ms) ->
    [
        begin
            Before = {cpu_us(Nodes), sent_bytes(Nodes)},
            receive after Ms -> ok end,
            Seconds = length(Nodes) * Ms / 1000,
            {Us, Bytes} = Before,
            {(cpu_us(Nodes) - Us) / Seconds, (sent_bytes(Nodes) - Bytes) / Seconds}
        end
     || _ <- lists:seq(1, Rounds)
    ].

%% User and system time, in hundredths of a second.
cpu_us(Nodes) ->
    lists:sum([
        begin
            {ok, Stat} = file:read_file(["/proc/", OsPid, "/stat"]),
            [_, After] = binary:split(Stat, <<") ">>),
            Fields = binary:split(After, <<" ">>, [global]),
            10_000 * (binary_to_integer(lists:nth(12, Fields)) + binary_to_integer(lists:nth(13, Fields)))
        end
     || #{os_pid := OsPid} <- Nodes
    ]).

sent_bytes(Nodes) -> lists:sum([call(Node, sent_bytes, []) || Node <- Nodes]).

%% A load in which a call failed measures nothing: a node had no turn for so long that it was taken for lost.
rate(Client, Args, Loads) ->
    case call(Client, load, Args) of
        {Rate, 0, _P50, _P99} -> Rate;
        _ when Loads > 1 -> rate(Client, Args, Loads - 1)
    end.

name(weir_cluster) -> "weir_cluster";
name(pg) -> "pg, a random member";
name(erpc) -> "erpc, a random node";
name(global) -> "global, one process".

others(1) -> "one other node";
others(Count) -> [weir_kit_text:integer(Count), " other nodes"].

table(Title, Unit, Better, [Ours | Peers], Notes) ->
    #{title => Title, unit => Unit, better => Better, ours => [Ours], peers => Peers, notes => Notes}.

%% ---------------------------------------------------------------- the nodes

with(Roles, Test) ->
    Nodes = started(Roles),
    try
        ok = weir_kit_nodes:connect(Nodes),
        Test(Nodes)
    after
        lists:foreach(fun weir_kit_nodes:kill/1, Nodes)
    end.

%% All at the same time: most of it is the boot of a node, which waits.
started(Roles) -> weir_kit:in_parallel([fun() -> start(Role) end || Role <- Roles]).

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
