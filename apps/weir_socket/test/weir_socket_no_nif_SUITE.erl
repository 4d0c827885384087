%% weir_socket as it is on systems without epoll: built with WEIR_SOCKET_NO_NIF=1, its sockets are gen_tcp's.
%%
%% It is built here as a dependency of another project, without a C compiler, and with a file in its priv that an older
%% build might have left. Another node has that build in its code path in place of this node's, and runs the cases of
%% the suite of behaviour (held to what gen_tcp's inet backend does), those of weir_ranch and those of TLS.
-module(weir_socket_no_nif_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [wait_ms/0]).
-import(weir_socket_test_lib, [source_dir/0, next/0]).

-define(LOOPBACK, {127, 0, 0, 1}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    Ebin = build(filename:join(?config(priv_dir, Config), "project")),
    Peer = start_peer([Ebin | code_path()]),
    ok = peer:call(Peer, application, start, [weir_socket], wait_ms()),
    [{ebin, Ebin}, {peer, Peer} | Config].

end_per_suite(Config) ->
    ok = peer:stop(?config(peer, Config)),
    weir_socket_test_lib:remove_tmp().

%% ---------------------------------------------------------------- what was built

built_without_c(Config) ->
    Ebin = ?config(ebin, Config),
    Priv = filename:join(filename:dirname(Ebin), "priv"),
    ?assertEqual({ok, ["weir_socket_nif.so"]}, file:list_dir(Priv)),
    ?assertEqual({ok, <<"of an older build">>}, file:read_file(filename:join(Priv, "weir_socket_nif.so"))),
    ?assertEqual(filename:join(Ebin, "weir_socket.beam"), call(Config, code, which, [weir_socket])),
    ?assertEqual(gen_tcp, call(Config, weir_socket, backend, [])),
    ?assertEqual(epoll, weir_socket:backend()).

%% Each time the application starts, and not when it is used.
says_so_once(Config) ->
    ?assertMatch([{notice, _}], call(Config, ?MODULE, what_a_start_logs, [])),
    ?assertMatch([{notice, _}], call(Config, ?MODULE, what_a_start_logs, [])).

what_a_start_logs() ->
    ok = application:stop(weir_socket),
    ok = logger:set_primary_config(level, notice),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self()}),
    ok = application:start(weir_socket),
    {ok, Socket} = weir_socket:listen(0, []),
    ok = weir_socket:close(Socket),
    ok = logger:remove_handler(?MODULE),
    ok = logger:set_primary_config(level, none),
    logged().

%% A logger handler. What is said of applications that stop is the runtime's.
log(#{level := Level, msg := Message, meta := #{mfa := {weir_socket_app, _, _}}}, #{config := Pid}) ->
    Pid ! {logged, {Level, Message}};
log(_Event, _Config) ->
    ok.

logged() ->
    receive
        {logged, Event} -> [Event | logged()]
    after 0 -> []
    end.

%% ---------------------------------------------------------------- weir_socket's own

%% What is wrong is wrong in the same way, and what only a poll set gives a meaning is taken.
options(Config) ->
    Here = answers(),
    ?assertEqual(Here, call(Config, ?MODULE, answers, [])),
    ?assertMatch(#{{pollset, 0} := [ok, ok, {error, einval}]}, Here),
    ?assertMatch(#{{bind_policy, round_robin} := [ok, ok, {error, einval}]}, Here),
    ?assertMatch(#{{bind_policy, nosuch} := [{exit, badarg}, {exit, badarg}, {error, einval}]}, Here),
    ?assertMatch(#{{deliver, port} := [{error, {bad_option, deliver, port}} | _]}, Here).

%% Of listen, connect and setopts with each.
answers() ->
    with_started(fun() ->
        {ok, Listener} = weir_socket:listen(0, [{ip, ?LOOPBACK}, {backlog, 100}]),
        {ok, Port} = weir_socket:port(Listener),
        {ok, Socket} = weir_socket:connect(?LOOPBACK, Port, []),
        Answers = [
            {Option, [
                answer(fun() -> weir_socket:listen(0, [Option]) end),
                answer(fun() -> weir_socket:connect(?LOOPBACK, Port, [Option]) end),
                answer(fun() -> weir_socket:setopts(Socket, [Option]) end)
            ]}
         || Option <- [
                {pollset, 0}, {pollset, 1_000_000}, {pollset, any}, {bind_policy, scheduler},
                {bind_policy, least_loaded}, {bind_policy, round_robin}, {bind_policy, nosuch}, nosuch, {nosuch, 1}, 17,
                {active, maybe_later}, {packet, 3}, {packet, line}, {line_delimiter, $\n}, {line_delimiter, "x"},
                {nopush, true}, {mode, text}, {mode, binary}, {buffer, none}, {linger, true}, {port, a}, {ip, "host"},
                {ip, loopback}, inet, {backlog, none}, {backlog, 7}, {fd, none}, {netns, 1}, {inet_backend, inet},
                {inet_backend, socket}, {tcp_module, inet_tcp}, {deliver, port}, {deliver, term}, {recvtos, true},
                {recvttl, false}, {pktoptions, []}, {pktoptions, [tos]}, {read_ahead, false}, {read_ahead, true},
                {exclusiveaddruse, true}, {high_msgq_watermark, 8192}, {debug, true}, {debug, false}, {raw, 1, 9, x},
                {raw, 1, 9, <<1:32/native>>}
            ]
        ],
        [ok = weir_socket:close(S) || S <- [Socket, Listener]],
        ?assertExit(badarg, weir_socket:listen(no_such_service, [])),
        ?assertExit(badarg, weir_socket:listen(70_000, [])),
        ?assertExit(badarg, weir_socket:connect(?LOOPBACK, -1, [])),
        ?assertExit(badarg, weir_socket:connect(#{family => inet, nosuch => 1}, [])),
        maps:from_list(Answers)
    end).

answer(Fun) ->
    try Fun() of
        {ok, Socket} -> weir_socket:close(Socket);
        Answer -> Answer
    catch
        Class:Reason -> {Class, Reason}
    end.

%% A function that needs the application, in a node where it may run or not.
with_started(Fun) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    try
        Fun()
    after
        [ok = application:stop(Application) || Application <- Started]
    end.

%% A socket is gen_tcp's own, and what gen_tcp does not have is adapted.
handles(Config) -> ok = call(Config, ?MODULE, use_handles, []).

use_handles() ->
    %% Those who connect may have what gen_tcp takes only later; who listens only what accepted sockets have then.
    ?assertEqual({error, {bad_option, line_delimiter, $x}}, weir_socket:listen(0, [{line_delimiter, $x}])),
    {ok, Listener} = weir_socket:listen(0, [binary, {active, false}, {nopush, true}]),
    {ok, Port} = weir_socket:port(Listener),
    {ok, Client} = weir_socket:connect(loopback, Port, [
        binary, {active, once}, {packet, line}, {dontroute, true}, {line_delimiter, $x}
    ]),
    {ok, Server} = weir_socket:accept(Listener),
    [?assert(is_port(Socket)) || Socket <- [Listener, Client, Server]],
    ?assertEqual({ok, [{nopush, true}, {active, false}]}, weir_socket:getopts(Server, [nopush, active])),
    ok = weir_socket:setopts(Server, [{nopush, false}]),
    ok = gen_tcp:send(Server, "onextwox"),
    {tcp, Client, <<"onex">>} = next(),
    ?assertEqual({ok, [{dontroute, true}, {active, false}]}, weir_socket:getopts(Client, [dontroute, active])),
    ?assertEqual({ok, <<"twox">>}, gen_tcp:recv(Client, 0, wait_ms())),
    ?assertEqual({state, listening}, weir_socket:socket_info(Listener, state)),
    ?assertEqual({state, connected}, weir_socket:socket_info(Client, state)),
    ?assertEqual({connected, self()}, weir_socket:socket_info(Client, connected)),
    ?assertEqual({domain, inet}, weir_socket:socket_info(Client, domain)),
    {fd, Fd} = weir_socket:socket_info(Client, fd),
    ?assertEqual({ok, [{fd, Fd}, {active, false}]}, weir_socket:getopts(Client, [fd, line_delimiter, active])),
    ?assertEqual(undefined, weir_socket:socket_info(Client, pollset)),
    ?assertEqual({error, enotsup}, weir_socket:dup_socket(Client)),
    Monitor = weir_socket:monitor(Client),
    ok = weir_socket:close(Client),
    receive {'DOWN', Monitor, port, Client, _} -> ok after wait_ms() -> error(no_message) end,
    ?assertEqual(#{states => [closed]}, weir_socket:info(Client)),
    ?assertEqual(undefined, weir_socket:socket_info(Client, fd)),
    ?assertEqual({error, einval}, weir_socket:getopts(Client, [active])),
    ok = weir_socket:close(Client),
    [ok = weir_socket:close(Socket) || Socket <- [Server, Listener]],
    ok = application:stop(weir_socket),
    ?assertError({not_started, weir_socket}, weir_socket:listen(0, [])),
    application:start(weir_socket).

%% With the NIF too: the functions take any socket that gen_tcp makes.
gen_tcp_sockets_beside_the_nif(_Config) ->
    [
        begin
            Options = [{inet_backend, Backend}, binary, {active, false}],
            {ok, Listener} = gen_tcp:listen(0, Options),
            {ok, Port} = weir_socket:port(Listener),
            {ok, Client} = gen_tcp:connect(?LOOPBACK, Port, Options),
            {ok, Server} = weir_socket:accept(Listener),
            ok = weir_socket:send(Client, "in"),
            ?assertEqual({ok, <<"in">>}, weir_socket:recv(Server, 2)),
            ok = weir_socket:setopts(Server, [{active, once}]),
            ok = weir_socket:send(Client, "more"),
            {tcp, Server, <<"more">>} = next(),
            ?assertEqual({ok, [{active, false}]}, weir_socket:getopts(Server, [active])),
            ?assertEqual(weir_socket:peername(Client), weir_socket:sockname(Server)),
            ?assertEqual({connected, self()}, weir_socket:socket_info(Client, connected)),
            {ok, [{send_oct, 6}]} = weir_socket:getstat(Client, [send_oct]),
            ok = weir_socket:shutdown(Client, write),
            ?assertEqual({error, closed}, weir_socket:recv(Server, 0)),
            [ok = weir_socket:close(Socket) || Socket <- [Client, Server, Listener]],
            ?assertError(function_clause, weir_socket:close(not_a_socket)),
            ?assertError(function_clause, weir_socket:close({'$inet', other, Client}))
        end
     || Backend <- [inet, socket]
    ],
    ok.

%% Where the NIF was to be there and is not, the application does not start, and nothing else is used in its place.
nif_is_missing(Config) ->
    Dir = filename:join([?config(priv_dir, Config), "missing", "weir_socket"]),
    Ebin = filename:join(Dir, "ebin"),
    ok = filelib:ensure_path(Ebin),
    copy(filename:dirname(code:which(weir_socket)), Ebin, "*.{beam,app}"),
    Peer = start_peer([Ebin]),
    ?assertMatch(
        {error, {{weir_socket_nif, on_load_failure}, {weir_socket_app, start, _}}},
        peer:call(Peer, application, start, [weir_socket], wait_ms())
    ),
    ok = peer:stop(Peer).

%% ---------------------------------------------------------------- behaviour

connect(Config) -> behaves(Config, weir_socket_cases_connect).
address(Config) -> behaves(Config, weir_socket_cases_address).
active(Config) -> behaves(Config, weir_socket_cases_active).
packet(Config) -> behaves(Config, weir_socket_cases_packet).
framing(Config) -> behaves(Config, weir_socket_cases_framing).
socket_options(Config) -> behaves(Config, weir_socket_cases_options).
send(Config) -> behaves(Config, weir_socket_cases_send).
close(Config) -> behaves(Config, weir_socket_cases_close).
turns(Config) -> behaves(Config, weir_socket_cases_turns).
owner(Config) -> behaves(Config, weir_socket_cases_owner).
leaks(Config) -> behaves(Config, weir_socket_cases_leaks).

%% Each case of the module in a process of its own.
behaves(Config, Module) ->
    Cases = [Case || {Case, 1} <- Module:module_info(exports), Case =/= module_info],
    ?assertEqual([], failed(Config, Module, [{Case, [no_nif]} || Case <- Cases])).

ranch(Config) ->
    Known = call(Config, weir_socket_ranch_SUITE, init_per_suite, [Config]),
    Cases = weir_socket_ranch_SUITE:all(),
    ?assertEqual([], failed(Config, weir_socket_ranch_SUITE, [{Case, [Known]} || Case <- Cases])),
    _ = call(Config, weir_socket_ranch_SUITE, end_per_suite, [Known]),
    ok.

tls(Config) ->
    case call(Config, weir_socket_ssl_SUITE, init_per_suite, [Config]) of
        {skip, _} = Skip ->
            Skip;
        Started ->
            Known = [{version, 'tlsv1.3'} | Started],
            {_, Cases} = lists:keyfind('tlsv1.3', 1, weir_socket_ssl_SUITE:groups()),
            ?assertEqual([], failed(Config, weir_socket_ssl_SUITE, [{Case, [Known]} || Case <- Cases]))
    end.

failed(Config, Module, Calls) ->
    [
        {Case, Class, Reason, Stack}
     || {Case, Args} <- Calls,
        {failed, Class, Reason, Stack} <- [call(Config, ?MODULE, run, [Module, Case, Args])]
    ].

run(Module, Case, Args) ->
    try apply(Module, Case, Args) of
        _ -> ok
    catch
        Class:Reason:Stack -> {failed, Class, Reason, Stack}
    end.

%% ---------------------------------------------------------------- the build, and the other node

call(Config, Module, Function, Args) -> peer:call(?config(peer, Config), Module, Function, Args, infinity).

%% The folder of the modules that were compiled.
build(Project) ->
    App = filename:join([Project, "_checkouts", "weir_socket"]),
    [
        begin
            ok = filelib:ensure_path(filename:join(App, Dir)),
            copy(filename:join(source_dir(), Dir), filename:join(App, Dir), Pattern)
        end
     || {Dir, Pattern} <- [{"", "rebar.config*"}, {"src", "*.{erl,hrl,src}"}, {"c_src", "{Makefile,*.c,*.h}"}]
    ],
    ok = filelib:ensure_dir(filename:join([App, "priv", "x"])),
    ok = file:write_file(filename:join([App, "priv", "weir_socket_nif.so"]), "of an older build"),
    ok = filelib:ensure_dir(filename:join([Project, "src", "x"])),
    ok = file:write_file(filename:join(Project, "rebar.config"), "{deps, [weir_socket]}.\n"),
    ok = file:write_file(filename:join([Project, "src", "user_of_weir_socket.app.src"]), <<
        "{application, user_of_weir_socket, [{registered, []}, {vsn, \"1\"}, "
        "{applications, [kernel, stdlib, weir_socket]}]}.\n"
    >>),
    Environment = [
        {"WEIR_SOCKET_NO_NIF", "1"}, {"CC", "false"}, {"TERM", "dumb"}, {"REBAR_BASE_DIR", false},
        {"REBAR_PROFILE", false}, {"REBAR_CONFIG", false}
    ],
    Port = open_port({spawn_executable, os:find_executable("rebar3")}, [
        {args, ["compile"]}, {cd, Project}, {env, Environment}, exit_status, stderr_to_stdout, binary, hide
    ]),
    {0, _} = output(Port, []),
    [Ebin] = filelib:wildcard(filename:join([Project, "_build", "default", "*", "weir_socket", "ebin"])),
    Ebin.

output(Port, Output) ->
    receive
        {Port, {data, Data}} -> output(Port, [Output, Data]);
        {Port, {exit_status, 0}} -> {0, Output};
        {Port, {exit_status, Status}} -> {Status, iolist_to_binary(Output)}
    end.

copy(From, To, Pattern) ->
    [
        {ok, _} = file:copy(File, filename:join(To, filename:basename(File)))
     || File <- filelib:wildcard(filename:join(From, Pattern)), filelib:is_regular(File)
    ].

%% This node's, but for the application as it is here.
code_path() ->
    Ours = filename:dirname(code:which(weir_socket)),
    [filename:absname(Dir) || Dir <- code:get_path(), Dir =/= ".", Dir =/= Ours].

start_peer(Path) ->
    {ok, Peer, _Node} = peer:start(#{
        name => peer:random_name(),
        connection => standard_io, wait_boot => wait_ms(),
        args => ["-kernel", "logger_level", "none", "-pa" | Path]
    }),
    Peer.
