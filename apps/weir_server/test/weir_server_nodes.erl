%% Other nodes, for the tests of servers and clients on different ones.
-module(weir_server_nodes).

-export([start/1, stop/1, peer/0, stop_peer/1]).

-import(weir_kit, [until/1]).

-define(HOST, "127.0.0.1").

%% Makes this node one that others can connect to, if it is not.
start(Config) ->
    case is_alive() of
        true ->
            Config;
        false ->
            %% It goes to the background, or finds that it is there already.
            Erts = "erts-" ++ erlang:system_info(version),
            _ = os:cmd(filename:join([code:root_dir(), Erts, "bin", "epmd"]) ++ " -daemon"),
            %% It may take a moment until it listens.
            ok = until(fun() -> is_started(net_kernel:start([name("ct"), longnames])) end),
            [{started_net_kernel, true} | Config]
    end.

is_started({ok, _}) -> true;
is_started({error, _}) -> false.

stop(Config) ->
    _ = proplists:get_bool(started_net_kernel, Config) andalso net_kernel:stop(),
    ok.

peer() ->
    [Name, Host] = string:split(atom_to_list(name("peer")), "@"),
    {ok, Peer, Node} = peer:start(#{
        name => Name,
        host => Host,
        longnames => true,
        connection => standard_io,
        wait_boot => weir_kit:wait_ms(),
        args => ["-setcookie", atom_to_list(erlang:get_cookie()), "-pa" | code:get_path()]
    }),
    %% It fails while the other node takes too long to shake hands.
    ok = until(fun() -> net_kernel:connect_node(Node) end),
    {Peer, Node}.

stop_peer({Peer, _}) ->
    peer:stop(Peer).

name(Prefix) ->
    Unique = integer_to_list(erlang:unique_integer([positive])) ++ "_" ++ os:getpid(),
    list_to_atom("weir_server_" ++ Prefix ++ Unique ++ "@" ++ ?HOST).
