%% Cases of the suite of behaviour: what happens between two packets that somebody asks for: the type of packets
%% changes, the one who waits dies, the owner has not said yet what comes next.
-module(weir_socket_cases_turns).

-include_lib("stdlib/include/assert.hrl").

-export([
    body_behind_a_head/1,
    too_large_when_asked/1,
    type_changes_while_waiting/1,
    killed_receiver_of_a_length/1,
    killed_receiver_before_a_change/1,
    descriptors_come_with_data/1
]).

-import(weir_kit, [start/1, result/1, until_waiting/1, kill/1]).
-import(weir_socket_test_lib, [
    listen/2, accept/1, pair/2, pair/3, recv/2, recv/3, close/1, setopts/2, next/0, nothing/0, tmp/1
]).
-import(weir_socket_differences, [differs/2]).

%% Nobody looks at the bytes behind a packet before the owner has said what they are: here a body, longer than a line
%% may be and without the end of one.
body_behind_a_head(B) ->
    Head = <<"POST / HTTP/1.1\r\nContent-Length: 20000\r\n\r\n">>,
    Body = binary:copy(<<"b">>, 20_000),
    [
        begin
            Options = [binary, {active, false}, {packet, http_bin}, {packet_size, 8192}, {buffer, 65536}],
            {Socket, Peer} = pair(B, accepted, Options),
            ok = gen_tcp:send(Peer, [Head, Body]),
            [
                begin
                    ok = setopts(Socket, [{active, once}]),
                    {http, Socket, _} = next()
                end
             || _ <- [request, header, eoh]
            ],
            ok = setopts(Socket, [{packet, raw}, {active, false}]),
            ?assertEqual({ok, Body}, recv(Socket, 20_000)),
            ok = close(Socket),
            ok = gen_tcp:close(Peer),
            nothing()
        end
     || _ <- lists:seq(1, 20)
    ].

%% A packet that is too long is told when the owner asks for it, and as an error.
too_large_when_asked(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, http_bin}, {packet_size, 16}]),
    ok = gen_tcp:send(Peer, <<"GET / HTTP/1.1\r\nHost: 12345678901234567890\r\n\r\n">>),
    ok = setopts(Socket, [{active, once}]),
    {http, Socket, {http_request, 'GET', _, _}} = next(),
    nothing(),
    ok = setopts(Socket, [{active, once}]),
    {tcp_error, Socket, emsgsize} = next(),
    _ = close(Socket),
    ok = gen_tcp:close(Peer).

type_changes_while_waiting(B) -> differs(B, type_changes_while_waiting) orelse type_changes(B).

type_changes(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    Receiver = start(fun() -> recv(Socket, 0) end),
    until_waiting(Receiver),
    ok = setopts(Socket, [{packet, http_bin}]),
    ok = gen_tcp:send(Peer, <<"GET / HTTP/1.1\r\n">>),
    {ok, {http_request, 'GET', {abs_path, <<"/">>}, {1, 1}}} = result(Receiver),
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% What it wanted was more than there is.
killed_receiver_of_a_length(B) ->
    differs(B, killed_receiver) orelse
        [
            begin
                {Socket, Peer} = pair(B, [binary, {active, false}]),
                killed_in_recv(Socket, 1000),
                _ = When =:= before andalso (ok = gen_tcp:send(Peer, <<"ten bytes.">>)),
                case How of
                    recv ->
                        Receiver = start(fun() -> recv(Socket, 10) end),
                        _ = When =:= later andalso (ok = gen_tcp:send(Peer, <<"ten bytes.">>)),
                        ?assertEqual({ok, <<"ten bytes.">>}, result(Receiver));
                    active ->
                        ok = setopts(Socket, [{active, true}]),
                        _ = When =:= later andalso (ok = gen_tcp:send(Peer, <<"ten bytes.">>)),
                        {tcp, Socket, <<"ten bytes.">>} = next()
                end,
                ok = close(Socket),
                ok = gen_tcp:close(Peer)
            end
         || When <- [before, later], How <- [recv, active]
        ].

killed_receiver_before_a_change(B) ->
    differs(B, killed_receiver) orelse
        begin
            {Socket, Peer} = pair(B, [binary, {active, false}]),
            killed_in_recv(Socket, 0),
            ok = setopts(Socket, [{packet, http_bin}, {active, once}]),
            ok = gen_tcp:send(Peer, <<"GET / HTTP/1.1\r\n\r\n">>),
            {http, Socket, {http_request, 'GET', _, _}} = next(),
            {ok, http_eoh} = recv(Socket, 0),
            ok = close(Socket),
            ok = gen_tcp:close(Peer)
        end.

killed_in_recv(Socket, Length) ->
    Receiver = start(fun() -> recv(Socket, Length, infinity) end),
    until_waiting(Receiver),
    kill(Receiver).

%% On a local socket the kernel ends a read where descriptors came with the bytes, though more are there.
descriptors_come_with_data(B) ->
    [
        begin
            Path = tmp("rights"),
            {ok, Listener} = listen(B, [binary, {active, false}, {packet, line}, {ifaddr, {local, Path}}]),
            {ok, Peer} = socket:open(local, stream),
            ok = socket:connect(Peer, #{family => local, path => Path}),
            {ok, Socket} = accept(Listener),
            Rights = #{level => socket, type => rights, data => <<0:32/native>>},
            Lines = [<<"1\n">>, <<"2\n">>, <<"3\n">>],
            [ok = socket:sendmsg(Peer, #{iov => [Line], ctrl => [Rights]}) || Line <- Lines],
            case Active of
                false ->
                    [{ok, Line} = recv(Socket, 0) || Line <- Lines];
                true ->
                    ok = setopts(Socket, [{active, true}]),
                    [{tcp, Socket, Line} = next() || Line <- Lines]
            end,
            ok = close(Socket),
            ok = close(Listener),
            ok = socket:close(Peer),
            ok = file:delete(Path)
        end
     || Active <- [true, false]
    ].
