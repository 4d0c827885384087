%% Nodes that are connected with each other and with nobody else: the tests talk to them through their standard input
%% and output.
-module(weir_cluster_test_lib).
-include("../src/weir_cluster.hrl").

-include_lib("stdlib/include/assert.hrl").

-export([with/2, with/3, info/1, stop/1, connect/1, disconnect/2, call/4, do/2, eventually/1, name/1, os/2, begun/1]).
-export([start/1, publish/2, know/2, steady/3, is_of_owner/1, in_node/1, table/0]).
-export([tell_workers/1, keep_telling/1, tell_all/0, have_answered/0]).
-export([all_live/1, claim/1, answered_by/3]).

-define(DEADLINE_MS, 180_000).

%% Starts so many nodes with a pool `p' of these options and publishes it; all know of all when it returns.
cluster(Count, Opts) ->
    Cluster = weir_kit:in_parallel([fun() -> start(Opts) end || _ <- lists:seq(1, Count)]),
    ok = connect(Cluster),
    ok = know(Cluster, Count - 1),
    Cluster.

%% Nobody is disconnected because he is frozen: on a busy machine that may take longer than a minute.
start(Opts) ->
    Args = maps:get(args, Opts, ["-connect_all", "false", "-kernel", "prevent_overlapping_partitions", "false",
        "net_ticktime", "3600"]),
    publish(weir_kit_nodes:start(["+S", "2:2" | Args]), Opts).

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

%% How often requests were begun on these nodes.
begun(Cluster) ->
    lists:foldl(fun({Id, N}, Sum) -> maps:update_with(Id, fun(M) -> M + N end, N, Sum) end, #{},
        lists:append([call(One, ets, tab2list, [weir_cluster_test_begun]) || One <- Cluster])).

%% Two that connect to each other at the same time, or just after a connection was lost, may have to try again.
connect(Cluster) ->
    _ = weir_kit:in_parallel([
        fun() ->
            [true = eventually(fun() -> call(A, net_kernel, connect_node, [name(B)]) end)
                || B <- Cluster, name(A) < name(B)]
        end
     || A <- Cluster
    ]),
    ok.

disconnect(A, B) -> call(A, erlang, disconnect_node, [name(B)]).

%% All see so many others, and let them in; the table of keys, which is written after that is known, is by them. A pool
%% that was killed is not there until it has been started again.
know(Cluster, Others) ->
    lists:foreach(fun(One) -> true = eventually(fun() -> knows(One, Others) end) end, Cluster).

knows(One, Others) ->
    case call(One, weir_cluster, info, [p]) of
        {ok, #{nodes := Nodes}} ->
            length([in || #{share := 1.0} <- Nodes]) =:= Others andalso
                do(One, fun() -> lists:all(fun is_of_owner/1, lists:seq(1, 200)) end);
        {error, no_pool} ->
            false
    end.

%% Runs a test that asks where requests of these nodes go, while all of them know so many others and let them in. Their
%% members get no turn meanwhile: so nobody is left out, or given less, who does not answer for two seconds, as a node
%% of a busy machine may not.
steady(Cluster, Others, Test) ->
    Members = [
        begin
            {ok, Member} = call(One, weir_cluster_view, member, [p]),
            {One, Member}
        end
     || One <- Cluster
    ],
    All = fun(Function) -> [ok = call(One, sys, Function, [Member, infinity]) || {One, Member} <- Members] end,
    true = eventually(fun() ->
        _ = All(suspend),
        lists:all(fun(One) -> knows(One, Others) end, Cluster) orelse begin _ = All(resume), false end
    end),
    try
        Test()
    after
        All(resume)
    end.

%% On this node the table has for a key the first in line for it.
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

%% Runs a test with a cluster that is gone afterwards.
with(Count, Test) -> with(Count, #{}, Test).

with(Count, Opts, Test) ->
    Cluster = cluster(Count, Opts),
    try
        Test(Cluster)
    after
        stop(Cluster)
    end.

info(One) ->
    {ok, Info} = call(One, weir_cluster, info, [p]),
    Info.

%% Runs a fun of a module that all have.
do(One, Fun) -> call(One, ?MODULE, in_node, [Fun]).

in_node(Fun) -> Fun().

%% Those who do something `until_told': once each.
tell_workers(One) ->
    {ok, Workers} = call(One, weir_pool, workers, [p]),
    lists:foreach(fun({_, Pid}) -> call(One, erlang, send, [Pid, told]) end, Workers).

%% The same for those of this node, again and again.
tell_all() ->
    {ok, Workers} = weir_pool:workers(p),
    lists:foreach(fun({_, Pid}) -> Pid ! told end, Workers),
    receive after 50 -> tell_all() end.

%% Whether calls of other nodes were begun here, and all have been answered.
have_answered() ->
    ets:info(weir_cluster_test_begun, size) > 0 andalso weir_cluster_here:served(weir_cluster_view:conf(p)) =:= 0.

%% Again and again, since one may not have begun yet.
keep_telling(Cluster) ->
    lists:foreach(fun tell_workers/1, Cluster),
    receive after 50 -> keep_telling(Cluster) end.

%% Waits until both workers live: one that has died is in its slot for a moment more.
all_live(One) ->
    true = eventually(fun() ->
        do(One, fun() ->
            {ok, Workers} = weir_pool:workers(p),
            length(Workers) =:= 2 andalso lists:all(fun({_, Pid}) -> is_process_alive(Pid) end, Workers)
        end)
    end).

%% Calls so many times, again and again, until all of these have answered, and nobody else ever has. One whose load is
%% known is preferred to one that was not heard of for a second.
answered_by(All, Client, Count) ->
    true = eventually(fun() ->
        Answers = do(Client, fun() -> [weir_cluster:call(p, node, 60_000) || _ <- lists:seq(1, Count)] end),
        ?assertEqual([], lists:usort(Answers) -- All),
        lists:usort(Answers) =:= All
    end).

%% Claims a worker on this node, wherever there is one. A node that has not said within a second that one is free there,
%% or is left out for a while, is not asked again by the same claim: so that has little time, and is made again.
claim(Fun) ->
    eventually(fun() ->
        case weir_cluster:claim(p, Fun, 3000) of
            {error, timeout} -> false;
            {error, {overload, _}} -> false;
            Result -> Result
        end
    end).

eventually(Condition) -> eventually(Condition, erlang:monotonic_time(millisecond) + ?DEADLINE_MS).

eventually(Condition, Deadline) ->
    case Condition() of
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({still, Condition}),
            receive after 20 -> eventually(Condition, Deadline) end;
        Value ->
            Value
    end.
