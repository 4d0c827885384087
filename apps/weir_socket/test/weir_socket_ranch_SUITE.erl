%% weir_ranch, driven as ranch drives a transport: several acceptors on one listening socket, which another process has
%% opened. An accepted socket goes to the supervisor of connections, and from there to the process of the protocol,
%% which is told by a message.
-module(weir_socket_ranch_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [start/1, result/1, until/1, wait_ms/0]).
-import(weir_socket_test_lib, [fill/1, read_all/1]).

-define(LOCALHOST, {127, 0, 0, 1}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    ok = load_parser(),
    [{started, Started} | Config].

end_per_suite(Config) ->
    _ = code:purge(ranch_proxy_header),
    true = code:delete(ranch_proxy_header),
    [ok = application:stop(Application) || Application <- lists:reverse(?config(started, Config))],
    ok.

%% ---------------------------------------------------------------- cases

%% The callbacks of ranch_transport, and those of ranch_tcp that ranch's documentation mentions.
all_callbacks(_Config) ->
    Callbacks = [
        {accept, 2}, {cleanup, 1}, {close, 1}, {connect, 3}, {connect, 4}, {controlling_process, 2},
        {disallowed_listen_options, 0}, {format_error, 1}, {getopts, 2}, {getstat, 1}, {getstat, 2}, {handshake, 2},
        {handshake, 3}, {handshake_cancel, 1}, {handshake_continue, 2}, {handshake_continue, 3}, {listen, 1},
        {messages, 0}, {name, 0}, {peername, 1}, {recv, 3}, {recv_proxy_header, 2}, {secure, 0}, {send, 2},
        {sendfile, 2}, {sendfile, 4}, {sendfile, 5}, {setopts, 2}, {shutdown, 2}, {sockname, 1}
    ],
    ?assertEqual(Callbacks, lists:sort(weir_ranch:module_info(exports) -- [{module_info, 0}, {module_info, 1}])).

names(_Config) ->
    ?assertEqual(tcp, weir_ranch:name()),
    ?assertEqual(false, weir_ranch:secure()),
    ?assertEqual({tcp, tcp_closed, tcp_error, tcp_passive}, weir_ranch:messages()).

passive_protocol(_Config) ->
    {Listener, Port} = start_listener(fun echo_passive/2),
    Clients = [client(Port) || _ <- lists:seq(1, 100)],
    [ok = gen_tcp:send(Client, integer_to_binary(N)) || {N, Client} <- numbered(Clients)],
    [?assertEqual({ok, integer_to_binary(N)}, gen_tcp:recv(Client, 0, wait_ms())) || {N, Client} <- numbered(Clients)],
    ok = stop_listener(Listener),
    [?assertEqual({error, closed}, gen_tcp:recv(Client, 0, wait_ms())) || Client <- Clients],
    ok.

active_protocol(_Config) ->
    {Listener, Port} = start_listener(fun echo_active/2),
    Clients = [client(Port) || _ <- lists:seq(1, 20)],
    [
        begin
            ok = gen_tcp:send(Client, integer_to_binary(N)),
            ?assertEqual({ok, integer_to_binary(N)}, gen_tcp:recv(Client, 0, wait_ms()))
        end
     || Round <- lists:seq(0, 900, 100),
        {I, Client} <- numbered(Clients),
        N <- [Round + I]
    ],
    stop_listener(Listener).

%% A client that has gone before anybody knew it; the acceptors go on.
client_gone(_Config) ->
    {Listener, Port} = start_listener(fun echo_passive/2),
    [
        begin
            Client = client(Port),
            ok = inet:setopts(Client, [{linger, {true, 0}}]),
            ok = gen_tcp:close(Client)
        end
     || _ <- lists:seq(1, 50)
    ],
    ok = echoes(client(Port)),
    stop_listener(Listener).

protocol_killed(_Config) ->
    {Listener, Port} = start_listener(fun(Transport, Socket) ->
        {ok, <<"die">>} = Transport:recv(Socket, 3, wait_ms()),
        exit(kill)
    end),
    Client = client(Port),
    ok = gen_tcp:send(Client, "die"),
    ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, wait_ms())),
    stop_listener(Listener).

defaults(_Config) ->
    {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}]}),
    {Client, Socket} = accepted(Listener),
    Names = [active, mode, packet, nodelay, send_timeout, send_timeout_close],
    ?assertEqual(
        {ok, [
            {active, false}, {mode, binary}, {packet, 0}, {nodelay, true}, {send_timeout, 30000},
            {send_timeout_close, true}
        ]},
        raw_is_0(weir_ranch:getopts(Socket, Names))
    ),
    ok = gen_tcp:close(Client),
    ok = weir_ranch:close(Socket),
    ok = weir_ranch:close(Listener),
    {ok, Other} = weir_ranch:listen(#{
        socket_opts => [{ip, ?LOCALHOST}, {nodelay, false}, {send_timeout, 7}], max_connections => 1
    }),
    ?assertEqual({ok, [{nodelay, false}, {send_timeout, 7}]}, weir_ranch:getopts(Other, [nodelay, send_timeout])),
    ok = weir_ranch:close(Other),
    %% Nothing at all is enough.
    {ok, Any} = weir_ranch:listen(#{}),
    {ok, {_, Port}} = weir_ranch:sockname(Any),
    ?assert(Port > 0),
    weir_ranch:close(Any).

%% gen_tcp has two names for it.
raw_is_0({ok, Options}) -> {ok, [raw_is_0(Option) || Option <- Options]};
raw_is_0({packet, raw}) -> {packet, 0};
raw_is_0(Option) -> Option.

refused_options(_Config) ->
    Refused = [
        {active, true}, list, binary, {mode, list}, {packet, 4}, {header, 2}, {packet_size, 9}, {line_delimiter, $x},
        {reuseaddr, false}, <<"garbage">>, raw, backlog, 7, {raw, 6, 1}, {}
    ],
    true = register(?MODULE, self()),
    {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST} | Refused], logger => ?MODULE}),
    true = unregister(?MODULE),
    receive
        {warning, _Format, [Named]} -> ?assertEqual(Refused, Named)
    after 0 -> error(no_warning)
    end,
    {Client, Socket} = accepted(Listener),
    ?assertEqual(
        {ok, [{active, false}, {mode, binary}, {packet, 0}, {header, 0}]},
        raw_is_0(weir_ranch:getopts(Socket, [active, mode, packet, header]))
    ),
    ?assertEqual({ok, [{reuseaddr, true}]}, weir_ranch:getopts(Listener, [reuseaddr])),
    [ok = Close() || Close <- [fun() -> gen_tcp:close(Client) end, fun() -> weir_ranch:close(Socket) end]],
    weir_ranch:close(Listener).

%% The logger of that case.
warning(Format, Args) ->
    ?MODULE ! {warning, Format, Args},
    ok.

listen_errors(_Config) ->
    {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}]}),
    {ok, {_, Port}} = weir_ranch:sockname(Listener),
    ?assertEqual({error, eaddrinuse}, weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}, {port, Port}]})),
    ?assertEqual("address already in use", weir_ranch:format_error(eaddrinuse)),
    ok = weir_ranch:close(Listener),
    {error, {bad_option, inet_backend, socket} = Reason} =
        weir_ranch:listen(#{socket_opts => [{inet_backend, socket}]}),
    ?assertMatch({match, _}, re:run(weir_ranch:format_error(Reason), "inet_backend")),
    ?assertExit(badarg, weir_ranch:listen(#{socket_opts => [{no_such_option, 1}]})).

local_socket(_Config) ->
    File = filename:join("/tmp", "weir_ranch_" ++ os:getpid()),
    Options = #{socket_opts => [{ip, {local, File}}]},
    {ok, First} = weir_ranch:listen(Options),
    ok = weir_ranch:close(First),
    %% The file that is left over is in nobody's way.
    {ok, Listener} = weir_ranch:listen(Options),
    {ok, Client} = gen_tcp:connect({local, File}, 0, [local, binary, {active, false}]),
    {ok, Socket} = weir_ranch:accept(Listener, wait_ms()),
    ok = weir_ranch:send(Socket, "hello"),
    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Client, 5, wait_ms())),
    [ok = weir_ranch:close(Each) || Each <- [Socket, Listener]],
    ok = gen_tcp:close(Client),
    ok = weir_ranch:cleanup(Options),
    ?assertEqual({error, enoent}, file:read_file_info(File)).

connecting(_Config) ->
    {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}]}),
    {ok, {_, Port}} = weir_ranch:sockname(Listener),
    {ok, Client} = weir_ranch:connect(?LOCALHOST, Port, []),
    {ok, Other} = weir_ranch:connect(?LOCALHOST, Port, [], wait_ms()),
    {ok, Socket} = weir_ranch:accept(Listener, wait_ms()),
    ?assertEqual(weir_ranch:sockname(Client), weir_ranch:peername(Socket)),
    ok = weir_ranch:send(Client, ["a", <<"b">>]),
    ?assertEqual({ok, <<"ab">>}, weir_ranch:recv(Socket, 2, wait_ms())),
    ?assertEqual({error, timeout}, weir_ranch:recv(Socket, 1, 0)),
    [ok = weir_ranch:close(Each) || Each <- [Client, Other, Socket, Listener]],
    ?assertEqual({error, closed}, weir_ranch:accept(Listener, 0)).

no_handshake(_Config) ->
    ?assertEqual({ok, socket}, weir_ranch:handshake(socket, 1)),
    ?assertEqual({ok, socket}, weir_ranch:handshake(socket, [], 1)),
    ?assertError(not_supported, weir_ranch:handshake_continue(socket, 1)),
    ?assertError(not_supported, weir_ranch:handshake_continue(socket, [], 1)),
    ?assertError(not_supported, weir_ranch:handshake_cancel(socket)).

%% Both versions, cut at every place; what follows is still there.
proxy_headers(_Config) ->
    {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}]}),
    Headers = [<<"PROXY UNKNOWN\r\n">>, v1(56), v1(107), v2(<<>>), v2(<<"addresses">>)],
    [
        begin
            {Client, Socket} = accepted(Listener),
            {First, Rest} = split_binary(Header, Cut),
            Task = start(fun() -> weir_ranch:recv_proxy_header(Socket, wait_ms()) end),
            ok = gen_tcp:send(Client, First),
            ok = taken(Socket, Task),
            ok = gen_tcp:send(Client, [Rest, "after"]),
            ?assertEqual({ok, #{header => Header}}, result(Task)),
            ?assertEqual({ok, <<"after">>}, weir_ranch:recv(Socket, 5, wait_ms())),
            ?assertEqual({ok, [{packet, 0}]}, raw_is_0(weir_ranch:getopts(Socket, [packet]))),
            ok = gen_tcp:close(Client),
            ok = weir_ranch:close(Socket)
        end
     || Header <- Headers,
        Cut <- lists:usort([0, 1, 2, 14, 15, 16, 17, byte_size(Header) - 1, byte_size(Header)]),
        Cut =< byte_size(Header)
    ],
    weir_ranch:close(Listener).

%% 107 bytes pass in the case before.
proxy_header_too_long(_Config) ->
    {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}]}),
    {Client, Socket} = accepted(Listener),
    ok = gen_tcp:send(Client, v1(108)),
    ?assertMatch({error, protocol_error, _}, weir_ranch:recv_proxy_header(Socket, wait_ms())),
    ok = gen_tcp:close(Client),
    ok = weir_ranch:close(Socket),
    weir_ranch:close(Listener).

proxy_header_not_there(_Config) ->
    {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}]}),
    [
        begin
            {Client, Socket} = accepted(Listener),
            ok = gen_tcp:send(Client, Part),
            ?assertEqual({error, timeout}, weir_ranch:recv_proxy_header(Socket, 20)),
            ok = gen_tcp:close(Client),
            ok = weir_ranch:close(Socket)
        end
     || Part <- [<<>>, <<"P">>, <<"PROXY TCP4 ">>, <<"\r\n\r\n">>, binary:part(v2(<<"abc">>), 0, 17)]
    ],
    {Gone, Closed} = accepted(Listener),
    ok = gen_tcp:send(Gone, "PROXY"),
    ok = gen_tcp:close(Gone),
    ?assertEqual({error, closed}, weir_ranch:recv_proxy_header(Closed, wait_ms())),
    ok = weir_ranch:close(Closed),
    weir_ranch:close(Listener).

no_proxy_header(_Config) ->
    {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}]}),
    [
        begin
            {Client, Socket} = accepted(Listener),
            ok = gen_tcp:send(Client, Bytes),
            ?assertEqual({error, protocol_error, 'no header'}, weir_ranch:recv_proxy_header(Socket, wait_ms())),
            ok = gen_tcp:close(Client),
            ok = weir_ranch:close(Socket)
        end
     || Bytes <- [<<"GET / HTTP/1.1\r\n\r\n">>, <<"POST / HTTP/1.1\r\n\r\n">>, <<$\r, 0:104, 0:16>>]
    ],
    weir_ranch:close(Listener).

sending_files(Config) ->
    File = filename:join(?config(priv_dir, Config), "file"),
    Bytes = fill(300_000),
    ok = file:write_file(File, Bytes),
    {ok, Raw} = file:open(File, [read, raw, binary]),
    {ok, 77} = file:position(Raw, 77),
    [
        begin
            {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}]}),
            {Client, Socket} = accepted(Listener),
            Reader = start(fun() -> read_all(Client) end),
            ?assertEqual({ok, byte_size(Expected)}, Send(Socket)),
            ok = weir_ranch:close(Socket),
            ?assert(result(Reader) =:= Expected),
            ok = gen_tcp:close(Client),
            ?assertEqual({ok, 77}, file:position(Raw, cur)),
            ok = weir_ranch:close(Listener)
        end
     || {Send, Expected} <- [
            {fun(S) -> weir_ranch:sendfile(S, File) end, Bytes},
            {fun(S) -> weir_ranch:sendfile(S, list_to_binary(File), 0, 0) end, Bytes},
            {fun(S) -> weir_ranch:sendfile(S, File, 10, 20_000) end, binary:part(Bytes, 10, 20_000)},
            {fun(S) -> weir_ranch:sendfile(S, File, 299_990, 100) end, binary:part(Bytes, 299_990, 10)},
            {fun(S) -> weir_ranch:sendfile(S, File, 5, 100, [{chunk_size, 7}]) end, binary:part(Bytes, 5, 100)},
            {fun(S) -> weir_ranch:sendfile(S, Raw, 1000, 0) end, binary:part(Bytes, 1000, 299_000)},
            {fun(S) -> weir_ranch:sendfile(S, Raw, 0, 9000, [{chunk_size, 100}]) end, binary:part(Bytes, 0, 9000)}
        ]
    ],
    file:close(Raw).

sending_no_file(Config) ->
    {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}]}),
    {Client, Socket} = accepted(Listener),
    ?assertEqual({error, enoent}, weir_ranch:sendfile(Socket, filename:join(?config(priv_dir, Config), "none"))),
    ok = weir_ranch:close(Socket),
    File = filename:join(?config(priv_dir, Config), "some"),
    ok = file:write_file(File, "some"),
    Closed =
        case weir_socket:backend() of
            epoll -> closed;
            gen_tcp -> einval
        end,
    ?assertEqual({error, Closed}, weir_ranch:sendfile(Socket, File)),
    ok = gen_tcp:close(Client),
    weir_ranch:close(Listener).

statistics(_Config) ->
    {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}]}),
    {Client, Socket} = accepted(Listener),
    ok = weir_ranch:send(Socket, "12345"),
    ok = gen_tcp:send(Client, "123"),
    {ok, <<"123">>} = weir_ranch:recv(Socket, 3, wait_ms()),
    ?assertEqual({ok, [{send_oct, 5}, {recv_oct, 3}]}, weir_ranch:getstat(Socket, [send_oct, recv_oct])),
    {ok, All} = weir_ranch:getstat(Socket),
    ?assertEqual({send_cnt, 1}, lists:keyfind(send_cnt, 1, All)),
    ok = gen_tcp:close(Client),
    ok = weir_ranch:close(Socket),
    weir_ranch:close(Listener).

half_close(_Config) ->
    {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}]}),
    {Client, Socket} = accepted(Listener),
    ok = weir_ranch:shutdown(Socket, write),
    ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, wait_ms())),
    ok = gen_tcp:close(Client),
    ok = weir_ranch:close(Socket),
    weir_ranch:close(Listener).

%% ---------------------------------------------------------------- ranch's part

-define(ACCEPTORS, 5).

%% A process that opens the socket, five that accept, and one that has the connections.
start_listener(Protocol) ->
    Caller = self(),
    {Pid, Monitor} = spawn_monitor(fun() -> listener(Caller, Protocol) end),
    receive
        {Pid, Port} -> {{Pid, Monitor}, Port};
        {'DOWN', Monitor, process, Pid, Reason} -> error(Reason)
    end.

stop_listener({Pid, Monitor}) ->
    exit(Pid, shutdown),
    receive
        {'DOWN', Monitor, process, Pid, shutdown} -> ok
    end.

listener(Caller, Protocol) ->
    {ok, Listener} = weir_ranch:listen(#{socket_opts => [{ip, ?LOCALHOST}, {port, 0}]}),
    {ok, {?LOCALHOST, Port}} = weir_ranch:sockname(Listener),
    Connections = spawn_link(fun() -> connections(Protocol) end),
    [spawn_link(fun() -> acceptor(Listener, Connections) end) || _ <- lists:seq(1, ?ACCEPTORS)],
    Caller ! {self(), Port},
    receive after infinity -> ok end.

acceptor(Listener, Connections) ->
    {ok, Socket} = weir_ranch:accept(Listener, infinity),
    case weir_ranch:controlling_process(Socket, Connections) of
        ok ->
            Connections ! {start_protocol, self(), Socket},
            receive
                {Connections, started} -> ok
            end;
        {error, _} ->
            weir_ranch:close(Socket)
    end,
    acceptor(Listener, Connections).

%% Unlike ranch's supervisor it does not restart anything, and takes its children along by the link alone.
connections(Protocol) ->
    process_flag(trap_exit, true),
    receive
        {start_protocol, From, Socket} ->
            Pid = spawn_link(fun() -> protocol(Protocol) end),
            case weir_ranch:controlling_process(Socket, Pid) of
                ok ->
                    Pid ! {handshake, weir_ranch, Socket, wait_ms()};
                {error, _} ->
                    ok = weir_ranch:close(Socket),
                    exit(Pid, kill)
            end,
            From ! {self(), started},
            connections(Protocol);
        {'EXIT', _, shutdown} ->
            exit(shutdown);
        {'EXIT', _, _} ->
            connections(Protocol)
    end.

protocol(Protocol) ->
    receive
        {handshake, Transport, Socket, Timeout} ->
            {ok, Ready} = Transport:handshake(Socket, [], Timeout),
            Protocol(Transport, Ready)
    end.

echo_passive(Transport, Socket) ->
    case Transport:recv(Socket, 0, infinity) of
        {ok, Data} ->
            ok = Transport:send(Socket, Data),
            echo_passive(Transport, Socket);
        {error, _} ->
            Transport:close(Socket)
    end.

echo_active(Transport, Socket) ->
    {Ok, Closed, Error, Passive} = Transport:messages(),
    ok = Transport:setopts(Socket, [{active, 2}]),
    echo_active(Transport, Socket, {Ok, Closed, Error, Passive}).

echo_active(Transport, Socket, {Ok, Closed, Error, Passive} = Tags) ->
    receive
        {Ok, Socket, Data} ->
            ok = Transport:send(Socket, Data),
            echo_active(Transport, Socket, Tags);
        {Passive, Socket} ->
            echo_active(Transport, Socket);
        {Closed, Socket} ->
            ok;
        {Error, Socket, Reason} ->
            exit(Reason)
    end.

%% What ranch makes of headers is its business: this one only tells what it was given.
load_parser() ->
    Forms = [
        {attribute, 1, module, ranch_proxy_header},
        {attribute, 2, export, [{parse, 1}]},
        {function, 3, parse, 1, [
            {clause, 3, [{var, 3, 'Data'}], [], [
                {call, 3, {remote, 3, {atom, 3, ?MODULE}, {atom, 3, parse}}, [{var, 3, 'Data'}]}
            ]}
        ]}
    ],
    {ok, Module, Code} = compile:forms(Forms),
    {module, Module} = code:load_binary(Module, "ranch_proxy_header.beam", Code),
    ok.

parse(<<"PROXY ", _/binary>> = Header) ->
    [_, Rest] = binary:split(Header, <<"\r\n">>),
    {ok, #{header => binary:part(Header, 0, byte_size(Header) - byte_size(Rest))}, Rest};
parse(<<"\r\n\r\n\0\r\nQUIT\n", _:16, Length:16, _:Length/binary, Rest/binary>> = Header) ->
    {ok, #{header => binary:part(Header, 0, byte_size(Header) - byte_size(Rest))}, Rest};
parse(_) ->
    {error, 'no header'}.

%% ---------------------------------------------------------------- clients

client(Port) ->
    {ok, Client} = gen_tcp:connect(?LOCALHOST, Port, [binary, {active, false}, {nodelay, true}], wait_ms()),
    Client.

accepted(Listener) ->
    {ok, {_, Port}} = weir_ranch:sockname(Listener),
    Client = client(Port),
    {ok, Socket} = weir_ranch:accept(Listener, wait_ms()),
    {Client, Socket}.

echoes(Client) ->
    ok = gen_tcp:send(Client, "echo"),
    {ok, <<"echo">>} = gen_tcp:recv(Client, 4, wait_ms()),
    ok.

%% Waits until the process waits for more, or is done; so that what is sent next comes in a piece of its own.
taken(Socket, {Pid, _}) ->
    until(fun() ->
        case process_info(Pid, status) of
            {status, waiting} -> weir_socket:socket_info(Socket, receivers) =/= {receivers, 0};
            undefined -> true;
            _ -> false
        end
    end).

numbered(List) -> lists:zip(lists:seq(1, length(List)), List).

v1(Length) ->
    Start = <<"PROXY TCP6 ">>,
    <<Start/binary, (binary:copy(<<"f">>, Length - byte_size(Start) - 2))/binary, "\r\n">>.

v2(Addresses) -> <<"\r\n\r\n\0\r\nQUIT\n", 16#2111:16, (byte_size(Addresses)):16, Addresses/binary>>.
