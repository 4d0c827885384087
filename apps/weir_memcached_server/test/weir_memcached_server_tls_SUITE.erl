%% A server with TLS, on a listening socket of weir_socket's.
-module(weir_memcached_server_tls_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).
-import(weir_memcached_server_test, [start/1, connect/1, closed/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(ssl),
    %% Handshakes that fail are told by both ends.
    ok = logger:set_module_level(ssl_logger, none),
    Key = [{digest, sha256}, {key, {namedCurve, secp256r1}}],
    #{server_config := Server, client_config := Client} = public_key:pkix_test_data(#{
        server_chain => #{root => Key, intermediates => [], peer => Key},
        client_chain => #{root => Key, intermediates => [], peer => Key}
    }),
    weir_memcached_server_test:set_up([
        {ssl, Started}, {server, [{log_level, none} | Server]}, {client, [{log_level, none} | Client]} | Config
    ]).

end_per_suite(Config) ->
    weir_memcached_server_test:tear_down(Config),
    [ok = application:stop(App) || App <- lists:reverse(?config(ssl, Config))],
    ok.

end_per_testcase(_Case, _Config) -> weir_memcached_server_test:stop_all().

connect_tls(Server, Options) ->
    ssl:connect({127, 0, 0, 1}, weir_memcached_server:port(Server),
        [binary, {active, false}, {verify, verify_none}, {log_level, none} | Options], weir_kit:wait_ms()).

ask_tls(Socket, Request) ->
    ok = ssl:send(Socket, [Request, "mn\r\n"]),
    until_end(Socket, <<>>).

until_end(Socket, Before) ->
    {ok, Data} = ssl:recv(Socket, 0, weir_kit:wait_ms()),
    All = <<Before/binary, Data/binary>>,
    case binary:longest_common_suffix([All, <<"MN\r\n">>]) of
        4 -> binary_part(All, 0, byte_size(All) - 4);
        _ -> until_end(Socket, All)
    end.

commands(Config) ->
    Server = start(#{tls => ?config(server, Config)}),
    {ok, Socket} = connect_tls(Server, []),
    ?assertEqual(<<"STORED\r\nVALUE k 0 5\r\nhello\r\nEND\r\n">>, ask_tls(Socket, "set k 0 0 5\r\nhello\r\nget k\r\n")),
    %% More blocks than are read ahead.
    [?assertEqual(<<>>, ask_tls(Socket, "")) || _ <- lists:seq(1, 50)],
    #{connections := 1, handshake_errors := 0} = weir_memcached_server:info(Server).

large_values(Config) ->
    Server = start(#{tls => ?config(server, Config)}),
    {ok, Socket} = connect_tls(Server, []),
    Value = rand:bytes(1_000_000),
    ?assertEqual(<<"STORED\r\n">>, ask_tls(Socket, ["set k 0 0 1000000\r\n", Value, "\r\n"])),
    One = <<"VALUE k 0 1000000\r\n", Value/binary, "\r\nEND\r\n">>,
    ?assert(<<One/binary, One/binary>> =:= ask_tls(Socket, "get k\r\nget k\r\n")).

%% Who speaks no TLS is closed, and harms nobody.
plain_clients(Config) ->
    Server = start(#{tls => ?config(server, Config)}),
    {ok, Socket} = connect_tls(Server, []),
    [
        begin
            Plain = connect(Server),
            ok = gen_tcp:send(Plain, "get k\r\n"),
            ?assertEqual(nomatch, binary:match(closed(Plain), <<"END">>)),
            ?assertEqual(<<>>, ask_tls(Socket, ""))
        end
     || _ <- lists:seq(1, 5)
    ],
    until(fun() -> maps:get(handshake_errors, weir_memcached_server:info(Server)) =:= 5 end),
    until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =:= 1 end).

%% Connections that never begin with it do not delay those that do.
silent_handshakes(Config) ->
    Server = start(#{tls => ?config(server, Config)}),
    Silent = [connect(Server) || _ <- lists:seq(1, 100)],
    {ok, Socket} = connect_tls(Server, []),
    ?assertEqual(<<>>, ask_tls(Socket, "")),
    [ok = gen_tcp:close(Each) || Each <- Silent],
    until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =:= 1 end).

client_certificates(Config) ->
    Server = start(#{tls => ?config(server, Config) ++ [{verify, verify_peer}, {fail_if_no_peer_cert, true}]}),
    {ok, Socket} = connect_tls(Server, ?config(client, Config)),
    ?assertEqual(<<>>, ask_tls(Socket, "")),
    %% With TLS 1.3 the client hears of it after its own part is done.
    Refused =
        case connect_tls(Server, []) of
            {error, _} -> true;
            {ok, Other} -> element(1, ssl:recv(Other, 0, weir_kit:wait_ms())) =:= error
        end,
    ?assert(Refused).

with_authentication(Config) ->
    Server = start(#{tls => ?config(server, Config), auth => [{<<"ada">>, <<"secret">>}]}),
    {ok, Socket} = connect_tls(Server, []),
    ok = ssl:send(Socket, "get k\r\nset k 0 0 10\r\nada secret\r\n"),
    ?assertEqual(<<"CLIENT_ERROR unauthenticated\r\nSTORED\r\n">>, recv_all(Socket, 38)).

recv_all(Socket, Size) ->
    {ok, Data} = ssl:recv(Socket, Size, weir_kit:wait_ms()),
    Data.

ended_by_either(Config) ->
    Server = start(#{tls => ?config(server, Config)}),
    {ok, One} = connect_tls(Server, []),
    ok = ssl:close(One),
    {ok, Two} = connect_tls(Server, []),
    ok = ssl:send(Two, "mn\r\nquit\r\n"),
    ?assertEqual(<<"MN\r\n">>, recv_all(Two, 4)),
    ?assertEqual({error, closed}, ssl:recv(Two, 0, weir_kit:wait_ms())),
    until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =:= 0 end),
    Impatient = start(#{tls => ?config(server, Config), idle_timeout => 2000}),
    {ok, Three} = connect_tls(Impatient, []),
    ?assertEqual({error, closed}, ssl:recv(Three, 0, weir_kit:wait_ms())),
    until(fun() -> maps:get(connections, weir_memcached_server:info(Impatient)) =:= 0 end),
    #{idle_kicks := 1} = weir_memcached_server:info(Impatient).

%% Who takes longer for it than he may be silent is not closed for that.
slow_handshake(Config) ->
    Server = start(#{tls => ?config(server, Config), idle_timeout => 5_000}),
    Plain = connect(Server),
    until(fun() -> lists:any(fun is_idle/1, conns(Server)) end),
    {ok, Socket} = ssl:connect(Plain, [{verify, verify_none}, {log_level, none}], weir_kit:wait_ms()),
    ?assertEqual(<<>>, ask_tls(Socket, "")),
    #{idle_kicks := 0} = weir_memcached_server:info(Server).

conns(Server) ->
    {conns, Conns, _, _} = lists:keyfind(conns, 1, supervisor:which_children(Server)),
    [Pid || {_, Pid, _, _} <- supervisor:which_children(Conns), is_pid(Pid)].

%% Its time is over, which it has not been told yet.
is_idle(Conn) ->
    case process_info(Conn, messages) of
        {messages, Messages} -> [] =/= [idle || {timeout, _, idle} <- Messages];
        undefined -> false
    end.

%% One that takes nothing is closed, and one that does gets everything, beside one that does not.
slow_readers(Config) ->
    Options = #{tls => ?config(server, Config), memory => 128 bsl 20, max_item => 16 bsl 20},
    [Patient, Impatient] = [start(Options#{send_timeout => Timeout}) || Timeout <- [10_000, 500]],
    Connected = fun(Server) ->
        {ok, Socket} = connect_tls(Server, []),
        <<"STORED\r\n">> = ask_tls(Socket, ["set large 0 0 8000000\r\n", binary:copy(<<"x">>, 8_000_000), "\r\n"]),
        {ok, Silent} = connect_tls(Server, [{recbuf, 4_096}, {buffer, 4_096}]),
        ok = ssl:send(Silent, "get large\r\nget large\r\nmn\r\n"),
        {Socket, Silent}
    end,
    {Socket, _} = Connected(Patient),
    Answer = byte_size(<<"VALUE large 0 8000000\r\n\r\nEND\r\n">>) + 8_000_000,
    ok = ssl:send(Socket, "get large\r\nget large\r\n"),
    ?assertEqual(2 * Answer, byte_size(recv_all(Socket, 2 * Answer))),
    ?assertEqual(<<>>, ask_tls(Socket, "")),
    {_, Silent} = Connected(Impatient),
    until(fun() -> maps:get(connections, weir_memcached_server:info(Impatient)) =:= 1 end),
    ?assertMatch({error, _}, until_error(Silent)).

until_error(Socket) ->
    case ssl:recv(Socket, 0, weir_kit:wait_ms()) of
        {ok, _} -> until_error(Socket);
        Error -> Error
    end.

%% What ssl does not take is told when the server is started, and not by each connection.
broken_options(Config) ->
    Good = ?config(server, Config),
    Broken = filename:join(?config(priv_dir, Config), "broken.pem"),
    ok = file:write_file(Broken, "no key"),
    Files = [{certfile, "/nonexistent"}, {keyfile, "/x"}],
    ?assertMatch({error, {bad_option, tls, {certfile, "/nonexistent", _}}},
        weir_memcached_server:start_link(#{tls => [{log_level, none} | Files]})),
    [
        ?assertMatch({error, {bad_option, tls, _}}, weir_memcached_server:start_link(#{tls => Options}))
     || Options <- [
            Files, [{log_level, none}, {certfile, Broken}, {keyfile, Broken}], [foo], [foo | Good],
            [{versions, [nonsense]} | Good], [{cacertfile, "/nonexistent"}, {verify, verify_peer}
                | lists:keydelete(cacerts, 1, Good)]
        ]
    ],
    ?assertEqual([], weir_memcached_server:servers()),
    %% These are right, and nothing is said in trying them.
    [_ = start(#{tls => Options}) || Options <- [Good, [{verify, verify_peer}, {fail_if_no_peer_cert, true} | Good],
        [{versions, ['tlsv1.2']} | Good]]].

without_ssl(Config) ->
    ok = application:stop(ssl),
    Result = weir_memcached_server:start_link(#{tls => ?config(server, Config)}),
    ok = application:start(ssl),
    ?assertEqual({error, {bad_option, tls, {not_started, ssl}}}, Result).
