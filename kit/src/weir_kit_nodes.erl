%% @doc Nodes of this machine that are connected with each other and with nobody else: who has started them talks to
%% them through their standard input and output, and can freeze and kill them.
-module(weir_kit_nodes).

-export([start/1, start/2, call/4, connect/1, signal/2, kill/1]).

-export_type([kit_node/0]).

-define(CALL_MS, 600_000).

-type kit_node() :: #{peer := pid(), name := node(), os_pid := string()}.

%% @doc As {@link start/2}, with any name.
-spec start(Args :: [string()]) -> kit_node().
start(Args) -> start("peer", Args).

%% @doc Starts a node whose name begins so, with these arguments of `erl' and the code path of this one. It logs
%% nothing.
-spec start(Prefix :: string(), Args :: [string()]) -> kit_node().
start(Prefix, Args) ->
    {ok, Peer, Name} = peer:start(#{
        name => peer:random_name(Prefix), connection => standard_io, wait_boot => 60_000,
        args => ["-setcookie", "weir_kit"] ++ Args ++ ["-pa" | code:get_path()]
    }),
    ok = peer:call(Peer, logger, set_primary_config, [level, none]),
    #{peer => Peer, name => Name, os_pid => peer:call(Peer, os, getpid, [])}.

%% @doc Calls a function there, which may take ten minutes.
-spec call(kit_node(), module(), Function :: atom(), Args :: [term()]) -> term().
call(#{peer := Peer}, Module, Function, Args) -> peer:call(Peer, Module, Function, Args, ?CALL_MS).

%% @doc Connects each with each. One that cannot be reached is left alone.
-spec connect([kit_node()]) -> ok.
connect(Nodes) ->
    _ = [call(A, net_kernel, connect_node, [B]) || #{name := Name} = A <- Nodes, #{name := B} <- Nodes, Name < B],
    ok.

%% @doc Sends the operating system's process a signal, by its name: `STOP', `CONT', `KILL'.
-spec signal(string(), kit_node()) -> ok.
signal(Signal, #{os_pid := OsPid}) ->
    "" = os:cmd("kill -" ++ Signal ++ " " ++ OsPid),
    ok.

%% @doc Kills a node, which may be frozen, or dead already.
-spec kill(kit_node()) -> ok.
kill(#{peer := Peer, os_pid := OsPid}) ->
    _ = os:cmd("kill -KILL " ++ OsPid),
    try
        peer:stop(Peer)
    catch
        _:_ -> ok
    end.
