%% Another node, for the tests of servers and clients on different nodes.
-module(weir_server_nodes).

-export([with_peer/1]).

-import(weir_kit, [until/1]).

-define(HOST, "127.0.0.1").

%% Calls the function with a new node, which this node is connected to. Stops the node afterwards.
with_peer(Fun) ->
    Started = start_net_kernel(is_alive()),
    [Name, Host] = string:split(atom_to_list(name("peer")), "@"),
    {ok, Peer, Node} = peer:start(#{
        name => Name,
        host => Host,
        longnames => true,
        connection => standard_io,
        wait_boot => weir_kit:wait_ms(),
        args => ["-setcookie", atom_to_list(erlang:get_cookie()), "-pa" | code:get_path()]
    }),
    try
        %% The connection fails while the other node takes too long to shake hands.
        ok = until(fun() -> net_kernel:connect_node(Node) end),
        Fun(Peer, Node)
    after
        peer:stop(Peer),
        Started andalso net_kernel:stop()
    end.

start_net_kernel(true) ->
    false;
start_net_kernel(false) ->
    %% Does nothing if the daemon runs. The daemon takes a moment until it listens.
    Erts = "erts-" ++ erlang:system_info(version),
    _ = os:cmd(filename:join([code:root_dir(), Erts, "bin", "epmd"]) ++ " -daemon"),
    ok = until(fun() -> element(1, net_kernel:start([name("ct"), longnames])) =:= ok end),
    true.

name(Prefix) ->
    Unique = integer_to_list(erlang:unique_integer([positive])) ++ "_" ++ os:getpid(),
    list_to_atom("weir_server_" ++ Prefix ++ Unique ++ "@" ++ ?HOST).
