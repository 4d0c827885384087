%% A node of a cluster that can start no process: the node refuses calls, keeps its view, and serves again once there is
%% room.
-module(weir_cluster_full_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).
-import(weir_kit_limits, [full/3]).
-import(weir_cluster_test_lib, [start/1, stop/1, call/4, name/1, know/2]).

-define(FULL_MS, 1500).
%% The scope tries after one second, and after two more.
-define(SCOPE_MS, 2500).

all() -> weir_kit:cases(?MODULE).

%% A client without workers, and a node that serves. Both have room for 1,024 processes.
with(Test) ->
    [Client, Server] = Nodes = [
        start(Opts#{args => ["+P", "1024"]})
     || Opts <- [#{pool => #{size => 0}, cluster => #{serve => false}}, #{}]
    ],
    try
        Test(Client, Server)
    after
        stop(Nodes)
    end.

joined(Client, Server) ->
    ok = weir_cluster_test_lib:connect([Client, Server]),
    know([Client], 1).

%% Runs a test while a node is full. The test asks nothing of that node: the node cannot start the process that would
%% answer.
while_full(Server, Ms, Function, Test) ->
    Full = weir_kit:start(fun() -> call(Server, ?MODULE, full_for, [Ms, Function]) end),
    Result = Test(),
    {Result, weir_kit:result(Full)}.

full_for(Ms, Function) ->
    true = register(weir_cluster_full, self()),
    full(processes, Ms, fun() ->
        %% The node that runs the test says that it is there.
        receive
            {hello, From} -> From ! full
        end,
        ?MODULE:Function()
    end).

%% Called in another node. Returns once that node is full.
meet(Node) ->
    {weir_cluster_full, Node} ! {hello, self()},
    receive
        full -> ok
    after 100 -> meet(Node)
    end.

%% Called in another node. The node stays full until this call.
part(Node) ->
    _ = {weir_cluster_full, Node} ! part,
    ok.

until_parted() ->
    receive
        part -> ok
    end.

shared() ->
    {ok, Member} = weir_cluster_view:member(p),
    {ok, Owner} = weir_cluster_view:owner(p),
    Shared = [whereis(Name) || Name <- [weir_cluster_sup, weir_cluster_scope]],
    Shared ++ [Owner, Member, weir_cluster_view:cleaner(p) | weir_cluster_view:intakes(p)].

%% Calls are refused, so that a caller may try another node, and none of them was begun.
calls_are_refused(_Config) ->
    with(fun(Client, Server) ->
        ok = joined(Client, Server),
        Before = call(Server, ?MODULE, shared, []),
        {Results, ok} = while_full(Server, ?FULL_MS, until_parted, fun() ->
            ok = call(Client, ?MODULE, meet, [name(Server)]),
            Tried = [call(Client, ?MODULE, try_to, [How]) || How <- [call, key, pick, claim]],
            ok = call(Client, ?MODULE, part, [name(Server)]),
            Tried
        end),
        Node = name(Server),
        %% The client has tried itself, too.
        [?assertEqual({Node, busy}, lists:last(Tried)) || {error, {overload, #{tried := Tried}}} <- Results],
        ?assertEqual(4, length([refused || {error, {overload, _}} <- Results])),
        ?assertEqual(Before, call(Server, ?MODULE, shared, [])),
        until(fun() -> call(Client, ?MODULE, try_to, [call]) =:= {ok, Node} end)
    end).

%% A claim needs a process of the claimer's node.
claims_are_refused_at_home(_Config) ->
    with(fun(Client, Server) ->
        ok = joined(Client, Server),
        {ok, Result} = while_full(Client, ?FULL_MS, claim, fun() -> call(Server, ?MODULE, meet, [name(Client)]) end),
        {error, {overload, #{tried := Tried}}} = Result,
        ?assertEqual({name(Server), busy}, lists:last(Tried)),
        until(fun() -> call(Client, ?MODULE, claim, []) =:= {ok, ok} end)
    end).

claim() -> try_to(claim).

try_to(How) ->
    try
        case How of
            call -> weir_cluster:call(p, node, weir_kit:wait_ms());
            key -> weir_cluster:call_key(p, key, node, weir_kit:wait_ms());
            pick -> weir_cluster:pick(p);
            claim -> weir_cluster:claim(p, fun(_) -> ok end, weir_kit:wait_ms())
        end
    catch
        Class:Reason -> {Class, Reason}
    end.

%% The member of the full node cannot start the monitor of a node that joins.
node_joins(_Config) ->
    with(fun(Client, Server) ->
        Before = call(Server, ?MODULE, shared, []),
        ok = call(Client, weir_cluster, stop, [p]),
        ok = weir_cluster_test_lib:connect([Client, Server]),
        ok = call(Client, weir_pool, start, [p, #{size => 1, worker => {weir_cluster_test_worker, start_link, []}}]),
        {ok, ok} = while_full(Server, ?FULL_MS, until_parted, fun() ->
            ok = call(Client, ?MODULE, meet, [name(Server)]),
            ok = call(Client, weir_cluster, start, [p, #{}]),
            %% The server has greeted the client.
            until(fun() -> call(Client, weir_cluster_view, size, [p]) =:= 1 end),
            call(Client, ?MODULE, part, [name(Server)])
        end),
        ok = know([Client, Server], 1),
        ?assertEqual(Before, call(Server, ?MODULE, shared, []))
    end).

%% The scope of pg ends, and cannot be started again until there is room.
scope_ends(_Config) ->
    with(fun(Client, Server) ->
        ok = joined(Client, Server),
        Before = call(Server, ?MODULE, shared, []),
        {ok, ok} = while_full(Server, ?SCOPE_MS, kill_scope, fun() -> call(Client, ?MODULE, meet, [name(Server)]) end),
        until(fun() -> is_pid(call(Server, erlang, whereis, [weir_cluster])) end),
        ?assertEqual(Before, call(Server, ?MODULE, shared, [])),
        ok = know([Client], 1)
    end).

kill_scope() -> weir_kit_limits:kill(whereis(weir_cluster), whereis(weir_cluster_scope)).

%% Each process of the published pool is killed, and cannot be started again until there is room.
processes_are_killed(_Config) ->
    with(fun(Client, Server) ->
        ok = joined(Client, Server),
        [Sup, _Scope, Owner | _] = call(Server, ?MODULE, shared, []),
        Node = name(Server),
        [
            begin
                {ok, ok} = while_full(Server, ?FULL_MS, Kill, fun() -> call(Client, ?MODULE, meet, [Node]) end),
                until(fun() -> call(Client, ?MODULE, try_to, [call]) =:= {ok, Node} end),
                ?assertMatch([Sup, _, Owner | _], call(Server, ?MODULE, shared, []))
            end
         || Kill <- [kill_member, kill_intake, kill_cleaner, kill_keeper_of_scope]
        ]
    end).

kill_member() -> kill(4).
kill_cleaner() -> kill(5).
kill_intake() -> kill(6).

kill(Nth) ->
    [_Sup, _Scope, Owner | _] = All = shared(),
    weir_kit_limits:kill(lists:nth(Nth, All), Owner).

kill_keeper_of_scope() -> weir_kit_limits:kill(whereis(weir_cluster_scope), whereis(weir_cluster_sup)).

%% The processes of the pool start again while no shared server of their node answers.
servers_hang(_Config) ->
    with(fun(Client, Server) ->
        ok = joined(Client, Server),
        ok = call(Server, ?MODULE, hang, []),
        Node = name(Server),
        until(fun() -> call(Client, ?MODULE, try_to, [call]) =:= {ok, Node} end)
    end).

hang() ->
    [Sup, Scope, Owner, Member, Cleaner, Intake | _] = shared(),
    weir_kit_limits:without_servers(fun() ->
        [
            begin
                ok = weir_kit:kill(Pid),
                until(fun() -> {ok, Pid} =/= weir_cluster_view:member(p) andalso begun(Owner) end)
            end
         || Pid <- [Member, Intake, Cleaner, whereis(weir_cluster), Scope]
        ],
        until(fun() -> is_pid(whereis(weir_cluster)) end),
        [Sup, _, Owner | _] = shared(),
        ok
    end).

begun(Owner) -> lists:all(fun({_, Pid, _, _}) -> is_pid(Pid) end, supervisor:which_children(Owner)).

%% A node that leaves while it is full serves no others, and pg learns of that once there is room.
node_leaves(_Config) ->
    with(fun(Client, Server) ->
        ok = joined(Client, Server),
        {ok, ok} = while_full(Server, ?FULL_MS, leave, fun() -> call(Client, ?MODULE, meet, [name(Server)]) end),
        Local = fun(Group) -> call(Server, pg, get_local_members, [weir_cluster, {Group, p}]) end,
        until(fun() -> Local(serve) =:= [] andalso Local(client) =/= [] end),
        ok = weir_kit:same(clients, 1, length(Local(client)))
    end).

leave() -> weir_cluster:leave(p).
