%% Clusters of nodes on this machine that are connected only with each other. A suite talks to its nodes through their
%% standard input and output.
%%
%% The start of a node takes a third of a second of a processor. So a suite that calls {@link keep_nodes/1} uses the
%% nodes of a case that passed again, and {@link with/3} cleans these nodes.
-module(weir_cluster_test_lib).
-include("../src/weir_cluster.hrl").

-include_lib("stdlib/include/assert.hrl").

-import(weir_kit, [until/1, wait_ms/0]).

-export([keep_nodes/1, end_nodes/1, with/2, with/3, with_client/2, with_client/3]).
-export([info/1, stop/1, connect/1, disconnect/2, call/4, do/2, name/1, os/2, begun/1]).
-export([start/1, publish/2, know/2, steady/3, is_of_owner/1]).
-export([tell_workers/1, keep_telling/1, tell_all/0, have_answered/0]).
-export([all_live/1, claim/1, answered_by/3]).
%% Functions that are called in a node.
-export([in_node/1, table/0, end_applications/1, end_connections/0, end_connection/1, connection/1]).

-define(CLIENT, #{pool => #{size => 0}, cluster => #{serve => false}}).

%% Starts Count nodes with a pool `p' of these options and publishes it. Returns when each node knows all others.
cluster(Count, Opts) -> know_each_other(weir_kit:in_parallel([fun() -> start(Opts) end || _ <- lists:seq(1, Count)])).

know_each_other(Cluster) ->
    ok = connect(Cluster),
    ok = know(Cluster, length(Cluster) - 1),
    Cluster.

%% The time of net ticks is long, so that nobody is disconnected because a node is frozen: that may take a minute.
start(#{args := Args} = Opts) -> publish(weir_kit_nodes:start(["+S", "2:2" | Args]), Opts);
start(Opts) -> publish(kept_or_new(), Opts).

publish(One, Opts) ->
    {ok, _} = call(One, application, ensure_all_started, [weir_cluster]),
    true = call(One, ?MODULE, table, []),
    Pool = maps:merge(#{size => 2, strategy => least_loaded, worker => {weir_cluster_test_worker, start_link, []}},
        maps:get(pool, Opts, #{})),
    _ = maps:get(size, Pool) =:= 0 orelse (ok = call(One, weir_pool, start, [p, Pool])),
    ok = call(One, weir_cluster, start, [p, maps:get(cluster, Opts, #{})]),
    One.

table() ->
    Me = self(),
    spawn(fun() ->
        weir_cluster_test_begun = ets:new(weir_cluster_test_begun, [named_table, public]),
        Me ! made,
        receive never -> ok end
    end),
    receive made -> true end.

%% Returns how often each request was begun on these nodes.
begun(Cluster) ->
    lists:foldl(fun({Id, N}, Sum) -> maps:update_with(Id, fun(M) -> M + N end, N, Sum) end, #{},
        lists:append([call(One, ets, tab2list, [weir_cluster_test_begun]) || One <- Cluster])).

%% Connects each node with each. Returns when both nodes of each pair have the connection.
%%
%% Two nodes that connect to each other at the same time, or just after they lost a connection, may have to try again.
%% A node that has not noticed the loss of a connection yet claims to be connected, and never tries. The other node has
%% noticed, and must have the connection too.
connect(Cluster) ->
    ToLater = fun(A) -> [until(fun() -> is_connected(A, B) end) || B <- Cluster, name(A) < name(B)] end,
    _ = weir_kit:in_parallel([fun() -> ToLater(A) end || A <- Cluster]),
    ok.

is_connected(A, B) ->
    call(A, net_kernel, connect_node, [name(B)]) =:= true andalso has_connection(A, B) andalso has_connection(B, A).

has_connection(A, B) -> call(A, ?MODULE, connection, [name(B)]) =/= false.

%% Ends the connection of A with B. Returns when A has lost that connection. B may notice the loss later.
disconnect(A, B) -> call(A, ?MODULE, end_connection, [name(B)]).

end_connection(Node) ->
    Before = connection(Node),
    IsEnded = erlang:disconnect_node(Node),
    ok = until(fun() -> Before =:= false orelse connection(Node) =/= Before end),
    IsEnded.

%% Returns the connection of this node with Node, or false. A later connection is another term.
connection(Node) -> lists:keyfind(Node, 1, erlang:system_info(dist_ctrl)).

%% Waits until each of these nodes sees Others nodes and lets them in. A node writes its table of keys after it has
%% learned of a node, so the table has to agree, too. A pool that a test killed is missing until it is started again.
know(Cluster, Others) -> lists:foreach(fun(One) -> until(fun() -> knows(One, Others) end) end, Cluster).

knows(One, Others) ->
    case call(One, weir_cluster, info, [p]) of
        {ok, #{nodes := Nodes}} ->
            length([in || #{share := 1.0} <- Nodes]) =:= Others andalso
                do(One, fun() -> lists:all(fun is_of_owner/1, lists:seq(1, 200)) end);
        {error, no_pool} ->
            false
    end.

%% Runs a test of where requests of these nodes go, while each of them knows Others nodes and lets them in. Suspends
%% their members meanwhile: otherwise they leave out a node that is not scheduled for two seconds.
steady(Cluster, Others, Test) ->
    Members = [
        begin
            {ok, Member} = call(One, weir_cluster_view, member, [p]),
            {One, Member}
        end
     || One <- Cluster
    ],
    All = fun(Function) -> [ok = call(One, sys, Function, [Member, infinity]) || {One, Member} <- Members] end,
    until(fun() ->
        _ = All(suspend),
        lists:all(fun(One) -> knows(One, Others) end, Cluster) orelse begin _ = All(resume), false end
    end),
    try
        Test()
    after
        All(resume)
    end.

%% Returns whether the table of this node gives a key to the first node in line for it.
is_of_owner(Key) ->
    case weir_cluster:owners(p, Key, 1) of
        {ok, Owners} -> Owners =:= in_table(Key, weir_cluster_view:conf(p));
        {error, no_pool} -> false
    end.

in_table(Key, #conf{} = Conf) ->
    case weir_cluster_view:number_of_key(weir_cluster_keys:bucket(Key), Conf) of
        here -> [node()];
        nobody -> [];
        Number -> case weir_cluster_view:target(p, Number) of #target{node = Node} -> [Node]; none -> none end
    end;
in_table(_Key, undefined) ->
    none.

stop(Cluster) ->
    _ = weir_kit:in_parallel([fun() -> weir_kit_nodes:kill(One) end || One <- Cluster]),
    ok.

name(#{name := Name}) -> Name.

os(Signal, One) -> ok = weir_kit_nodes:signal(Signal, One).

call(One, M, F, A) -> weir_kit_nodes:call(One, M, F, A).

%% Runs a test with a cluster of Count nodes. Afterwards its nodes are dead, or clean and kept.
with(Count, Test) -> with(Count, #{}, Test).

with(Count, Opts, Test) -> with_nodes(cluster(Count, Opts), maps:is_key(args, Opts), Test).

%% Runs a test with a client, which has no workers, and Count nodes that serve. The client knows all of them.
with_client(Count, Test) -> with_client(Count, #{}, Test).

with_client(Count, Opts, Test) ->
    Starts = [fun() -> start(Each) end || Each <- [?CLIENT | lists:duplicate(Count, Opts)]],
    with_nodes(weir_kit:in_parallel(Starts), false, fun([Client | _] = Cluster) ->
        ok = connect(Cluster),
        ok = know([Client], Count),
        Test(Cluster)
    end).

with_nodes(Cluster, AreSpecial, Test) ->
    Result =
        try
            Test(Cluster)
        catch
            Class:Reason:Stack ->
                ok = stop(Cluster),
                erlang:raise(Class, Reason, Stack)
        end,
    ok = keep_or_stop(Cluster, AreSpecial),
    Result.

info(One) ->
    {ok, Info} = call(One, weir_cluster, info, [p]),
    Info.

%% Calls a function of a test in a node. All nodes have all test modules.
do(One, Fun) -> call(One, ?MODULE, in_node, [Fun]).

in_node(Fun) -> Fun().

%% ---------------------------------------------------------------- nodes that are used again

%% Makes cases of this suite use nodes again: the table has the clean nodes that no case uses.
keep_nodes(Config) ->
    Me = self(),
    spawn(fun() ->
        ?MODULE = ets:new(?MODULE, [named_table, public]),
        Me ! made,
        receive never -> ok end
    end),
    receive made -> Config end.

end_nodes(_Config) -> stop([One || {_, One} <- ets:tab2list(?MODULE)]).

kept_or_new() ->
    case ets:whereis(?MODULE) =/= undefined andalso ets:first(?MODULE) of
        None when None =:= false; None =:= '$end_of_table' ->
            #{peer := Peer} = One = weir_kit_nodes:start(["+S", "2:2", "-connect_all", "false",
                "-kernel", "prevent_overlapping_partitions", "false", "net_ticktime", "3600"]),
            %% The group leader of this case ends with the case.
            true = group_leader(whereis(user), Peer),
            One#{processes => call(One, erlang, processes, [])};
        Name ->
            case ets:take(?MODULE, Name) of
                [{Name, One}] -> One;
                [] -> kept_or_new()
            end
    end.

%% Keeps the nodes that run. First the applications of all of them end, since what runs there would connect again.
keep_or_stop(Cluster, AreSpecial) ->
    AreKept = not AreSpecial andalso ets:whereis(?MODULE) =/= undefined,
    Running = [One || One <- Cluster, AreKept, is_running(One)],
    Ended = answering(fun(#{processes := First} = One) -> call(One, ?MODULE, end_applications, [First]) end, Running),
    Kept = answering(fun(One) -> call(One, ?MODULE, end_connections, []) end, Ended),
    ok = stop(Cluster -- Kept),
    true = ets:whereis(?MODULE) =:= undefined orelse ets:insert(?MODULE, [{name(One), One} || One <- Kept]),
    ok.

%% Returns the nodes in which a call succeeds. A node that a test killed may still be ending.
answering(Call, Nodes) ->
    Answers = weir_kit:in_parallel([fun() -> try Call(One) =:= ok catch exit:_ -> false end end || One <- Nodes]),
    [One || {One, true} <- lists:zip(Nodes, Answers)].

%% A node that a test killed or froze does not run. OTP 29 does not load a match of a binary that OTP 25 compiled.
is_running(#{os_pid := OsPid}) ->
    case file:read_file("/proc/" ++ OsPid ++ "/stat") of
        {ok, Stat} -> not lists:member(binary:first(lists:last(string:split(Stat, ") ", trailing))), "TZX");
        {error, _} -> false
    end.

%% Ends the applications of this node and all processes that were not there at first.
end_applications(First) ->
    _ = [application:stop(App) || App <- [weir_cluster, weir_pool]],
    _ = erlang:trace(all, false, [all]),
    lists:foreach(fun weir_kit:kill/1, processes() -- [self() | First]).

end_connections() ->
    until(fun() ->
        _ = [erlang:disconnect_node(Node) || Node <- nodes(connected)],
        nodes(connected) =:= []
    end).

%% ---------------------------------------------------------------- workers and callers

%% Ends the wait of each worker that does `until_told', once.
tell_workers(One) ->
    {ok, Workers} = call(One, weir_pool, workers, [p]),
    lists:foreach(fun({_, Pid}) -> call(One, erlang, send, [Pid, told]) end, Workers).

%% Does so for the workers of this node, every 50 ms and without an end.
tell_all() ->
    {ok, Workers} = weir_pool:workers(p),
    lists:foreach(fun({_, Pid}) -> Pid ! told end, Workers),
    receive after 50 -> tell_all() end.

%% Returns whether calls of other nodes were begun here, and all have been answered.
have_answered() ->
    ets:info(weir_cluster_test_begun, size) > 0 andalso weir_cluster_here:served(weir_cluster_view:conf(p)) =:= 0.

%% Tells the workers of all nodes every 50 ms, without an end: a worker may not have begun yet.
keep_telling(Cluster) ->
    lists:foreach(fun tell_workers/1, Cluster),
    receive after 50 -> keep_telling(Cluster) end.

%% Waits until both workers live. A worker that died stays in its slot for a moment.
all_live(One) ->
    until(fun() ->
        do(One, fun() ->
            {ok, Workers} = weir_pool:workers(p),
            length(Workers) =:= 2 andalso lists:all(fun({_, Pid}) -> is_process_alive(Pid) end, Workers)
        end)
    end).

%% Makes Count calls again and again, until all of these nodes have answered. No other node may answer. A client prefers
%% a node whose load it knows to a node that was silent for a second.
answered_by(All, Client, Count) ->
    until(fun() ->
        Answers = do(Client, fun() -> [weir_cluster:call(p, node, wait_ms()) || _ <- lists:seq(1, Count)] end),
        ?assertEqual([], lists:usort(Answers) -- All),
        lists:usort(Answers) =:= All
    end).

%% Claims a worker on this node, wherever there is one. The same claim does not ask a node again that did not say within
%% a second that a worker is free there, or that is left out. So a claim has little time and is made again.
claim(Fun) ->
    weir_kit:until_value(fun() ->
        case weir_cluster:claim(p, Fun, 3000) of
            {error, timeout} -> false;
            {error, {overload, _}} -> false;
            Result -> Result
        end
    end).
