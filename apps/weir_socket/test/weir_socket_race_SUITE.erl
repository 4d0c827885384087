%% Races and failures that no test can cause from outside. The NIF of a node is built with the hooks of tests
%% (c_src/weir_hook.h). A hook stops a thread at a place, or makes a system call fail.
-module(weir_socket_race_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    Dir = ?config(priv_dir, Config),
    App = filename:join(Dir, "weir_socket"),
    Source = filename:join(weir_kit:path("apps/weir_socket"), "c_src"),
    Folders = [" BUILD=", filename:join(Dir, "build"), " PRIV=", filename:join(App, "priv")],
    Command = ["make -s -C ", Source, " HOOKS=1", Folders, " && echo built"],
    Output = os:cmd(lists:flatten(Command)),
    ?assertNotEqual(nomatch, string:find(Output, "built"), Output),
    ok = copy(filename:dirname(code:which(weir_socket)), filename:join(App, "ebin")),
    [{app, App} | Config].

end_per_suite(_Config) -> ok.

copy(From, To) ->
    ok = filelib:ensure_path(To),
    [{ok, _} = file:copy(File, filename:join(To, filename:basename(File))) || File <- filelib:wildcard(From ++ "/*")],
    ok.

init_per_testcase(Case, Config) ->
    Hooks = filename:join(?config(priv_dir, Config), atom_to_list(Case)),
    ok = filelib:ensure_path(Hooks),
    %% A thread that a hook stops, and a thread that waits for its lock, leave others for the rest of the node. The
    %% other schedulers wake every 100 ms and take over the processes of the stopped thread.
    Node = weir_kit_nodes:start("race", ["+S", "4:4", "+scl", "false", "+sfwi", "100", "-env", "WEIR_HOOKS", Hooks]),
    true = weir_kit_nodes:call(Node, code, add_patha, [filename:join(?config(app, Config), "ebin")]),
    {ok, _} = weir_kit_nodes:call(Node, application, ensure_all_started, [weir_socket]),
    %% The node could not load code while a thread is stopped.
    ok = weir_kit_nodes:call(Node, ?MODULE, load, []),
    [{node, Node}, {hooks, Hooks} | Config].

end_per_testcase(_Case, Config) ->
    _ = [file:delete(File) || File <- filelib:wildcard(?config(hooks, Config) ++ "/*")],
    weir_kit_nodes:kill(?config(node, Config)).

call(Config, Function, Args) -> weir_kit_nodes:call(?config(node, Config), ?MODULE, Function, Args).

load() ->
    {ok, Modules} = application:get_key(weir_socket, modules),
    [{module, _} = code:ensure_loaded(Module) || Module <- [?MODULE, weir_kit, gen_tcp, prim_file | Modules]],
    ok.

hook(Config, Name) -> filename:join(?config(hooks, Config), Name).

%% ---------------------------------------------------------------- the stop

%% The poller has given an accepted connection its slot, and has not set the monitor yet. The stop finds the connection
%% in the slot, and the acceptor is killed. The poller then closes the connection itself.
no_foreign_file_is_closed(Config) ->
    Port = call(Config, listen, []),
    ok = file:write_file(hook(Config, "new.pause"), <<>>),
    {ok, Client} = gen_tcp:connect("127.0.0.1", Port, [{active, false}]),
    until(fun() -> filelib:is_file(hook(Config, "new.here")) end),
    ok = call(Config, kill_acceptor_and_stop, []),
    %% A stop that closes the connection now must not have it closed again. A stop that waits for the poller is right.
    {error, First} = gen_tcp:recv(Client, 0, 1000),
    ok = call(Config, open_files, []),
    ok = file:delete(hook(Config, "new.pause")),
    First =:= closed orelse ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, weir_kit:wait_ms())),
    ok = call(Config, await_stop, []),
    weir_kit:none(closed_by_weir_socket, call(Config, broken_files, [])).

%% Functions of the node. The listening socket is in the last set, and connections come into the first one, which the
%% stop visits first: the lock of the listening socket would delay the stop.
listen() ->
    Here = self(),
    _ = spawn(fun() ->
        Options = [{bind_policy, round_robin}, {active, false}],
        Sets = weir_socket_nif:pollsets(),
        Listeners = [element(2, {ok, _} = weir_socket:listen(0, Options)) || _ <- lists:seq(1, Sets)],
        {ok, Port} = weir_socket:port(lists:last(Listeners)),
        true = register(acceptor, spawn(fun() -> weir_socket:accept(lists:last(Listeners)) end)),
        ok = weir_kit:until_waiting(whereis(acceptor)),
        Here ! {port, Port},
        receive never -> ok end
    end),
    port().

port() ->
    receive
        {port, Port} -> Port
    end.

kill_acceptor_and_stop() ->
    ok = weir_kit:kill(whereis(acceptor)),
    true = register(stopper, spawn(fun() -> ok = application:stop(weir_socket) end)),
    ok.

await_stop() -> until(fun() -> whereis(stopper) =:= undefined end).

open_files() ->
    Here = self(),
    Keeper = spawn(fun() ->
        Files = [element(2, {ok, _} = file:open("/dev/zero", [read, raw, binary])) || _ <- lists:seq(1, 50)],
        Here ! opened,
        receive
            {broken, To} -> To ! {broken, [Error || File <- Files, {error, _} = Error <- [file:read(File, 1)]]}
        end
    end),
    true = register(keeper, Keeper),
    receive opened -> ok end.

broken_files() ->
    keeper ! {broken, self()},
    receive {broken, Broken} -> Broken end.

%% Sockets with more packets than fit into a turn are in the list of their set when the application stops.
no_socket_outlives_the_application(Config) ->
    lists:foreach(fun(_) -> stop_under_flood(?config(node, Config)) end, lists:seq(1, 5)).

stop_under_flood(Node) ->
    {ok, _} = weir_kit_nodes:call(Node, application, ensure_all_started, [weir_socket]),
    Port = weir_kit_nodes:call(Node, ?MODULE, flooded, []),
    Senders = [weir_kit:start(fun() -> flood(Port) end) || _ <- lists:seq(1, 20)],
    ok = weir_kit_nodes:call(Node, ?MODULE, stop_flooded, []),
    _ = [ok = weir_kit:result(Sender) || Sender <- Senders],
    ok.

flood(Port) ->
    {ok, Socket} = gen_tcp:connect("127.0.0.1", Port, [{active, false}]),
    flood_until_closed(Socket, binary:copy(<<"\n">>, 100_000)).

flood_until_closed(Socket, Lines) ->
    case gen_tcp:send(Socket, Lines) of
        ok -> flood_until_closed(Socket, Lines);
        {error, _} -> gen_tcp:close(Socket)
    end.

%% The owner takes all messages, so that the sockets stay active.
flooded() ->
    Here = self(),
    true = register(flooded, spawn(fun() ->
        {ok, Listener} = weir_socket:listen(0, [{active, true}, {packet, line}, {mode, binary}, {backlog, 100}]),
        {ok, Port} = weir_socket:port(Listener),
        Here ! {port, Port},
        _ = [{ok, _} = weir_socket:accept(Listener) || _ <- lists:seq(1, 20)],
        take_all(0)
    end)),
    port().

take_all(N) ->
    receive
        {count, To} ->
            To ! {count, N},
            take_all(N);
        {tcp, _, _} ->
            take_all(N + 1);
        _ ->
            take_all(N)
    end.

%% The last references to the sockets are terms of the owner.
stop_flooded() ->
    until(fun() -> count() > 10_000 end),
    ok = application:stop(weir_socket),
    ok = weir_kit:kill(whereis(flooded)),
    until(fun() ->
        _ = [garbage_collect(Pid) || Pid <- processes()],
        maps:get(resources, weir_socket_nif:pollset_info(0)) =:= 0
    end).

count() ->
    flooded ! {count, self()},
    receive
        {count, N} -> N
    end.

%% ---------------------------------------------------------------- accepting

%% Connections that fail before they are taken use up the turn of a call. The acceptor still gets the connection that
%% waits behind them.
an_acceptor_outlives_a_row_of_errors(Config) ->
    Port = call(Config, listening, []),
    {ok, Client} = gen_tcp:connect("127.0.0.1", Port, [{active, false}]),
    ok = file:write_file(hook(Config, "accept.fail"), binary:copy(<<"x">>, 200)),
    ok = call(Config, accepts, []),
    ok = gen_tcp:close(Client).

listening() ->
    Here = self(),
    true = register(owner, spawn(fun() ->
        {ok, Listener} = weir_socket:listen(0, [{active, false}]),
        {ok, Port} = weir_socket:port(Listener),
        Here ! {port, Port},
        receive {accept, To} -> To ! {accepted, weir_socket:accept(Listener, weir_kit:wait_ms())} end
    end)),
    port().

accepts() ->
    owner ! {accept, self()},
    receive {accepted, Result} -> ?assertMatch({ok, _}, Result) end,
    ok.
