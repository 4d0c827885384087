%% @doc Nodes of this machine that are connected with each other and with no other node. Their starter talks to
%% them through their standard input and output, and can freeze and kill them.
-module(weir_kit_nodes).

-export([start/1, start/2, start_in/2, call/4, connect/1, signal/2, kill/1]).

-export_type([kit_node/0]).

-define(CALL_MS, 600_000).
%% Two dozen that start at the same time on a busy machine take their time.
-define(BOOT_MS, 300_000).

-type kit_node() :: #{peer := pid(), name := node(), os_pid := string(), copy => file:filename()}.
%% `copy': a folder with a copy of the code, deleted with the node.

%% @doc As {@link start/2}, with any name.
-spec start(Args :: [string()]) -> kit_node().
start(Args) -> start("peer", Args).

%% @doc Starts a node whose name begins so, with these arguments of `erl' and the code path of this one. It logs
%% nothing.
-spec start(Prefix :: string(), Args :: [string()]) -> kit_node().
start(Prefix, Args) ->
    started(#{name => peer:random_name(Prefix), args => Args ++ ["-pa" | code:get_path()]}).

%% @doc Starts a node in a root directory of scripts/otp-root, with the OTP there and a copy of the code here. Only root
%% may.
-spec start_in(Root :: file:filename(), Args :: [string()]) -> kit_node().
start_in(Root, Args) ->
    Name = peer:random_name(),
    Dirs = [Dir || Dir <- code:get_path(), string:prefix(Dir, code:lib_dir()) =:= nomatch, filelib:is_dir(Dir)],
    Copies = [filename:join(["/tmp", Name, integer_to_list(N)]) || N <- lists:seq(1, length(Dirs))],
    lists:foreach(fun({Dir, Copy}) ->
        [{ok, _} = file:copy(Beam, filename:join(made(Root ++ Copy), filename:basename(Beam)))
            || Beam <- filelib:wildcard(filename:join(Dir, "*.{beam,app}"))]
    end, lists:zip(Dirs, Copies)),
    Exec = {os:find_executable("chroot"), [Root, "/usr/bin/erl"]},
    Started = started(#{name => Name, exec => Exec, args => Args ++ ["-pa" | Copies]}),
    Started#{copy => filename:join([Root ++ "/tmp", Name])}.

made(Dir) ->
    ok = filelib:ensure_dir(filename:join(Dir, "file")),
    Dir.

started(#{args := Args} = Options) ->
    {ok, Peer, Name} = peer:start(Options#{
        connection => standard_io, wait_boot => ?BOOT_MS, args => ["-setcookie", "weir_kit" | Args]
    }),
    ok = call(Peer, logger, set_primary_config, [level, none]),
    #{peer => Peer, name => Name, os_pid => call(Peer, os, getpid, [])}.

%% @doc Calls a function there, or in the node of a peer, which may take ten minutes.
-spec call(kit_node() | (Peer :: pid()), module(), Function :: atom(), Args :: [term()]) -> term().
call(#{peer := Peer}, Module, Function, Args) -> call(Peer, Module, Function, Args);
call(Peer, Module, Function, Args) -> peer:call(Peer, Module, Function, Args, ?CALL_MS).

%% @doc Connects each with each. A node that cannot be reached is left alone.
-spec connect([kit_node()]) -> ok.
connect(Nodes) ->
    _ = [call(A, net_kernel, connect_node, [B]) || #{name := Name} = A <- Nodes, #{name := B} <- Nodes, Name < B],
    ok.

%% @doc Sends a node's runtime a signal, as {@link weir_kit:signal/2} does.
-spec signal(string(), kit_node()) -> ok.
signal(Signal, #{os_pid := OsPid}) -> weir_kit:signal(Signal, OsPid).

%% @doc Kills a node, which may be frozen, or dead already.
-spec kill(kit_node()) -> ok.
kill(#{peer := Peer, os_pid := OsPid} = Started) ->
    _ = os:cmd("kill -KILL " ++ OsPid),
    _ = [file:del_dir_r(Copy) || #{copy := Copy} <- [Started]],
    try
        peer:stop(Peer)
    catch
        _:_ -> ok
    end.
