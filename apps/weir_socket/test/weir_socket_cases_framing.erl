%% Cases of the suite of behaviour: the options of packets, limits, lengths, and packets of random sizes.
-module(weir_socket_cases_framing).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-export([
    headers_sent/1,
    too_large_to_send/1,
    packet_size_passive/1,
    packet_size_active/1,
    answered_when_too_large/1,
    header_option/1,
    long_lines/1,
    line_delimiter/1,
    changes_of_type/1,
    http_then_body/1,
    recv_lengths/1,
    sizes_around_the_buffer/1,
    random_packets/1
]).
-export([prop_packets/1]).

-import(weir_kit, [start/1, result/1, same/3]).
-import(weir_socket_test_lib, [
    pair/2, pair/3, send/2, recv/2, recv/3, close/1, setopts/2, getopt/2, next/0, nothing/0, fill/1, same_bytes/2
]).
-import(weir_socket_differences, [differs/2]).

headers_sent(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [{packet, Type}]),
            [
                begin
                    ok = send(Socket, Data),
                    Expected = Frame(iolist_to_binary(Data)),
                    {ok, Sent} = gen_tcp:recv(Peer, byte_size(Expected)),
                    ?assertEqual({Type, Data, Expected}, {Type, Data, Sent})
                end
             || Data <- ["", "a", <<"ab">>, ["a", [<<"b">>, $c]], binary:copy(<<"x">>, 255)],
                %% What has neither a header nor data cannot be seen.
                Frame(<<>>) =/= <<>> orelse iolist_size(Data) > 0
            ],
            ok = close(Socket),
            {error, closed} = gen_tcp:recv(Peer, 0)
        end
     || {Type, Frame} <- [
            {raw, fun(Data) -> Data end},
            {0, fun(Data) -> Data end},
            {1, fun(Data) -> <<(byte_size(Data)), Data/binary>> end},
            {2, fun(Data) -> <<(byte_size(Data)):16, Data/binary>> end},
            {4, fun(Data) -> <<(byte_size(Data)):32, Data/binary>> end},
            {line, fun(Data) -> Data end},
            {http, fun(Data) -> Data end},
            {asn1, fun(Data) -> Data end},
            {sunrm, fun(Data) -> Data end}
        ]
    ],
    ok.

%% The largest packet that its header can tell of, and one byte more: nothing of that is sent.
too_large_to_send(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [{packet, Type}]),
            Largest = fill(Limit),
            differs(B, oversized_packets) orelse ?assertEqual({error, emsgsize}, send(Socket, [Largest, 0])),
            ok = send(Socket, Largest),
            {ok, <<Limit:Type/unit:8, Largest/binary>>} = gen_tcp:recv(Peer, Type + Limit),
            ok = close(Socket),
            {error, closed} = gen_tcp:recv(Peer, 0)
        end
     || {Type, Limit} <- [{1, 255}, {2, 65535}]
    ],
    ok.

packet_size_passive(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, false}, {packet, Type}, {packet_size, 100}]),
            ?assertEqual(100, getopt(Socket, packet_size)),
            Fits = fill(100),
            ok = gen_tcp:send(Peer, [frame(Type, Fits), frame(Type, fill(101))]),
            {ok, Fits} = recv(Socket, 0),
            ?assertEqual({error, emsgsize}, recv(Socket, 0)),
            _ = close(Socket),
            ok = gen_tcp:close(Peer)
        end
     || Type <- [1, 2, 4]
    ],
    ok.

packet_size_active(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, Active}, {packet, Type}, {packet_size, 100}]),
            Fits = fill(100),
            ok = gen_tcp:send(Peer, frame(Type, Fits)),
            {tcp, Socket, Fits} = next(),
            %% Apart from the other: gen_tcp looks at what it has already only when more comes.
            ok = gen_tcp:send(Peer, frame(Type, fill(101))),
            {tcp_error, Socket, emsgsize} = next(),
            case differs(B, open_after_emsgsize) of
                true ->
                    close(Socket);
                false ->
                    {tcp_closed, Socket} = next(),
                    {error, _} = gen_tcp:recv(Peer, 0),
                    ok = close(Socket),
                    nothing()
            end,
            ok = gen_tcp:close(Peer)
        end
     || Type <- [1, 2, 4], Active <- [true, 10]
    ],
    ok.

%% With exit_on_close false the connection is open for an answer.
answered_when_too_large(B) ->
    [
        begin
            Options = [binary, {packet, Type}, {packet_size, 16}, {exit_on_close, false}, {active, Active}],
            {Socket, Peer} = pair(B, Options),
            ok = gen_tcp:send(Peer, Request),
            case Active of
                true ->
                    {tcp_error, Socket, emsgsize} = next(),
                    differs(B, open_after_emsgsize) orelse begin {tcp_closed, Socket} = next() end;
                false ->
                    ?assertEqual({error, emsgsize}, recv(Socket, 0))
            end,
            ok = setopts(Socket, [{packet, raw}]),
            ?assertEqual(ok, send(Socket, "too long")),
            ?assertEqual({ok, <<"too long">>}, gen_tcp:recv(Peer, 8)),
            _ = close(Socket),
            _ = gen_tcp:close(Peer),
            nothing()
        end
     || {Type, Request} <- [{4, <<17:32>>}, {http, <<"GET /longer-than-that HTTP/1.1\r\n">>}],
        Active <- [true, false]
    ],
    ok.

frame(Type, Data) -> <<(byte_size(Data)):Type/unit:8, Data/binary>>.

%% The first bytes of a binary are given as a list before it.
header_option(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 1}, {header, 3}]),
    ok = gen_tcp:send(Peer, <<5, "abcde", 3, "abc", 4, "abcd">>),
    ?assertEqual({ok, [$a, $b, $c | <<"de">>]}, recv(Socket, 0)),
    {ok, All} = recv(Socket, 0),
    differs(B, header_of_all) orelse ?assertEqual([$a, $b, $c | <<>>], All),
    ok = setopts(Socket, [{active, once}]),
    {tcp, Socket, [$a, $b, $c | <<"d">>]} = next(),
    ok = setopts(Socket, [{header, 0}, {packet, raw}]),
    ok = gen_tcp:send(Peer, "abc"),
    ?assertEqual({ok, <<"abc">>}, recv(Socket, 3)),
    ok = setopts(Socket, [{header, 1}]),
    ok = gen_tcp:send(Peer, "abc"),
    ?assertEqual({ok, [$a | <<"bc">>]}, recv(Socket, 3)),
    %% Lists are lists already.
    ok = setopts(Socket, [list]),
    ok = gen_tcp:send(Peer, "abc"),
    ?assertEqual({ok, "abc"}, recv(Socket, 3)),
    %% What is shorter is a list altogether.
    ok = setopts(Socket, [binary, {header, 3}, {packet, 1}]),
    ok = gen_tcp:send(Peer, <<2, "ab", 0>>),
    [?assertEqual({ok, Data}, recv(Socket, 0)) || Data <- ["ab", []], not differs(B, short_header)],
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% A line must not be longer than packet_size; one that is longer than the buffer is handed out in parts.
long_lines(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, line}, {packet_size, 10}]),
    ok = gen_tcp:send(Peer, <<"123456789\n1234567890\n">>),
    ?assertEqual({ok, <<"123456789\n">>}, recv(Socket, 0)),
    ?assertEqual({error, emsgsize}, recv(Socket, 0)),
    _ = close(Socket),
    ok = gen_tcp:close(Peer),
    {Second, Its} = pair(B, [binary, {active, false}, {packet, line}, {buffer, 64}]),
    Line = <<(binary:copy(<<"x">>, 150))/binary, "\n">>,
    ok = gen_tcp:send(Its, [Line, "short\n"]),
    Read = lines(Second, []),
    ?assertEqual(<<Line/binary, "short\n">>, iolist_to_binary(Read)),
    ?assertEqual(<<"short\n">>, lists:last(Read)),
    [?assert(byte_size(Part) =< 64) || Part <- Read, not differs(B, lines_longer_than_buffer)],
    ok = close(Second),
    ok = gen_tcp:close(Its).

lines(Socket, Read) ->
    case recv(Socket, 0) of
        {ok, <<"short\n">> = Last} -> Read ++ [Last];
        {ok, Part} -> lines(Socket, Read ++ [Part])
    end.

line_delimiter(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, line}, {line_delimiter, $;}]),
    ok = gen_tcp:send(Peer, <<"a\nb;c;;d">>),
    [?assertEqual({ok, Line}, recv(Socket, 0)) || Line <- [<<"a\nb;">>, <<"c;">>, <<";">>]],
    ok = gen_tcp:send(Peer, <<0, ";">>),
    ?assertEqual({ok, <<"d", 0, ";">>}, recv(Socket, 0)),
    ok = setopts(Socket, [{line_delimiter, 0}]),
    ok = gen_tcp:send(Peer, <<"a;b", 0, "c">>),
    ?assertEqual({ok, <<"a;b", 0>>}, recv(Socket, 0)),
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% What has been received but not handed out is read as the new type says.
changes_of_type(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 1}]),
    ok = gen_tcp:send(Peer, <<1, "a", 2:16, "bc", 3:32, "def", "line\n", 3, 0, 5:16, "t", "raw", 1, "z">>),
    Steps = [{1, 0, <<"a">>}, {2, 0, <<"bc">>}, {4, 0, <<"def">>}, {line, 0, <<"line\n">>}] ++
        [{tpkt, 0, <<3, 0, 5:16, "t">>}, {raw, 2, <<"ra">>}, {raw, 1, <<"w">>}, {1, 0, <<"z">>}],
    [
        begin
            ok = setopts(Socket, [{packet, Type}]),
            ?assertEqual({Type, {ok, Data}}, {Type, recv(Socket, Length)})
        end
     || {Type, Length, Data} <- Steps, not (differs(B, packets_after_raw) andalso Data =:= <<"z">>)
    ],
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% What every HTTP server does.
http_then_body(B) ->
    {Socket, Peer} = pair(B, accepted, [binary, {active, false}, {packet, http_bin}]),
    ok = gen_tcp:send(Peer, <<"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n12345GET /next HTTP/1.1\r\n\r\n">>),
    {ok, {http_request, 'POST', {abs_path, <<"/">>}, {1, 1}}} = recv(Socket, 0),
    ok = setopts(Socket, [{packet, httph_bin}]),
    {ok, {http_header, _, 'Content-Length', _, <<"5">>}} = recv(Socket, 0),
    {ok, http_eoh} = recv(Socket, 0),
    ok = setopts(Socket, [{packet, raw}]),
    {ok, <<"12345">>} = recv(Socket, 5),
    ok = setopts(Socket, [{packet, http}, {active, once}]),
    {http, Socket, {http_request, 'GET', {abs_path, "/next"}, {1, 1}}} = next(),
    ok = setopts(Socket, [{active, once}]),
    {http, Socket, http_eoh} = next(),
    ok = close(Socket),
    ok = gen_tcp:close(Peer),
    nothing().

recv_lengths(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    Data = fill(10000),
    [
        begin
            ok = gen_tcp:send(Peer, Data),
            same_bytes(Data, read_by(Socket, Length, 10000))
        end
     || Length <- [1, 3, 1000, 4096, 9999, 10000]
    ],
    %% More than one buffer or one send.
    Task = start(fun() -> recv(Socket, 300000, infinity) end),
    Large = fill(100000),
    [ok = gen_tcp:send(Peer, Large) || _ <- [1, 2, 3]],
    same(bytes, {ok, binary:copy(Large, 3)}, result(Task)),
    differs(B, length_limit) orelse ?assertEqual({error, enomem}, recv(Socket, 16#4000001)),
    %% Zero: what is there.
    ok = gen_tcp:send(Peer, "abc"),
    {ok, <<"a">>} = recv(Socket, 1),
    ?assertEqual({ok, <<"bc">>}, recv(Socket, 0)),
    %% The rest, when no more can come.
    ok = gen_tcp:send(Peer, "abc"),
    ok = gen_tcp:close(Peer),
    {ok, <<"ab">>} = recv(Socket, 2),
    ?assertEqual({error, closed}, recv(Socket, 2)),
    _ = close(Socket),
    nothing().

read_by(_Socket, _Length, 0) ->
    <<>>;
read_by(Socket, Length, Left) ->
    Size = min(Length, Left),
    {ok, <<Data:Size/binary>>} = recv(Socket, Size),
    <<Data/binary, (read_by(Socket, Length, Left - Size))/binary>>.

%% Packets that end near the end of the buffer, or are many times as long.
sizes_around_the_buffer(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 4}, {buffer, Buffer}]),
            Sizes = [Buffer + D || D <- lists:seq(-6, 6)] ++ [2 * Buffer - 4, 2 * Buffer, 10 * Buffer, 1, 0],
            Packets = [fill(Size) || Size <- Sizes],
            Sender = start(fun() -> [ok = gen_tcp:send(Peer, frame(4, Packet)) || Packet <- Packets ++ Packets] end),
            [same(packet, {ok, Packet}, recv(Socket, 0)) || Packet <- Packets],
            ok = setopts(Socket, [{active, length(Packets)}]),
            [same(packet, {tcp, Socket, Packet}, next()) || Packet <- Packets],
            {tcp_passive, Socket} = next(),
            _ = result(Sender),
            ok = close(Socket),
            ok = gen_tcp:close(Peer)
        end
     || Buffer <- [64, 1460, 20000]
    ],
    nothing().

%% ---------------------------------------------------------------- packets of random sizes, cut at random

random_packets(B) ->
    weir_kit_property:holds(prop_packets(B), [{numtests, 40}, noshrink, quiet]).

prop_packets(B) ->
    ?FORALL(
        {Type, Way, Payloads, Seed},
        {oneof([raw, 1, 2, 4, line, sunrm]), oneof([passive, once, true, 3]), list(payload()), integer(1, 1 bsl 30)},
        begin
            {Socket, Peer} = pair(B, [binary, {active, false}, {packet, Type}]),
            Packets = [fitting(Type, Payload) || Payload <- Payloads],
            Stream = iolist_to_binary([framed(Type, Packet) || Packet <- Packets]),
            Sender = start(fun() -> send_cut(Peer, Stream, rand:seed_s(exsss, Seed)) end),
            Expected = [delivered(Type, Packet) || Packet <- Packets],
            Got = collect(Type, Way, Socket, Expected),
            sent = result(Sender),
            %% And back.
            [ok = send(Socket, Packet) || Type =/= line, Type =/= sunrm, Packet <- Packets],
            Back = case Type =/= line andalso Type =/= sunrm andalso byte_size(Stream) > 0 of
                true -> gen_tcp:recv(Peer, byte_size(Stream));
                false -> {ok, Stream}
            end,
            ok = close(Socket),
            ok = gen_tcp:close(Peer),
            nothing(),
            Got =:= Expected andalso Back =:= {ok, Stream}
        end
    ).

payload() -> oneof([binary(), ?LET(Size, integer(0, 5000), fill(Size))]).

fitting(1, Payload) -> at_most(255, Payload);
fitting(line, Payload) -> at_most(900, binary:replace(Payload, <<"\n">>, <<"-">>, [global]));
fitting(_Type, Payload) -> Payload.

at_most(Size, Payload) -> binary:part(Payload, 0, min(Size, byte_size(Payload))).

framed(raw, Packet) -> Packet;
framed(line, Packet) -> [Packet, "\n"];
framed(sunrm, Packet) -> frame(4, Packet);
framed(Type, Packet) -> frame(Type, Packet).

delivered(raw, Packet) -> Packet;
delivered(Type, Packet) when Type =:= line; Type =:= sunrm -> iolist_to_binary(framed(Type, Packet));
delivered(_Type, Packet) -> Packet.

send_cut(_Peer, <<>>, _Rand) ->
    sent;
send_cut(Peer, Stream, Rand) ->
    {N, Next} = rand:uniform_s(min(3000, byte_size(Stream)), Rand),
    <<Piece:N/binary, Rest/binary>> = Stream,
    ok = gen_tcp:send(Peer, Piece),
    send_cut(Peer, Rest, Next).

%% A stream is asked for in lengths; active modes give it in parts of any size.
collect(raw, passive, Socket, Expected) ->
    [
        case byte_size(Part) of
            0 -> <<>>;
            Size -> element(2, recv(Socket, Size))
        end
     || Part <- Expected
    ];
collect(raw, Way, Socket, Expected) ->
    Stream = iolist_to_binary(Expected),
    case gather(Way, Socket, byte_size(Stream), <<>>) of
        Stream -> Expected;
        Other -> Other
    end;
collect(_Type, passive, Socket, Expected) ->
    [element(2, recv(Socket, 0)) || _ <- Expected];
collect(_Type, once, Socket, Expected) ->
    [
        begin
            ok = setopts(Socket, [{active, once}]),
            {tcp, Socket, Packet} = next(),
            Packet
        end
     || _ <- Expected
    ];
collect(_Type, true, Socket, Expected) ->
    ok = setopts(Socket, [{active, true}]),
    Got = [
        begin
            {tcp, Socket, Packet} = next(),
            Packet
        end
     || _ <- Expected
    ],
    ok = setopts(Socket, [{active, false}]),
    Got;
collect(Type, N, Socket, Expected) ->
    {Now, Later} = lists:split(min(N, length(Expected)), Expected),
    ok = setopts(Socket, [{active, length(Now)}]),
    Got = [
        begin
            {tcp, Socket, Packet} = next(),
            Packet
        end
     || _ <- Now
    ],
    {tcp_passive, Socket} = next(),
    Got ++ case Later of
        [] -> [];
        _ -> collect(Type, N, Socket, Later)
    end.

gather(_Way, Socket, Size, Got) when byte_size(Got) >= Size ->
    ok = setopts(Socket, [{active, false}]),
    flush_passive(Socket),
    Got;
gather(Way, Socket, Size, Got) ->
    ok = setopts(Socket, [{active, Way}]),
    gather_messages(Way, Socket, Size, Got).

gather_messages(_Way, Socket, Size, Got) when byte_size(Got) >= Size ->
    gather(done, Socket, Size, Got);
gather_messages(Way, Socket, Size, Got) ->
    case next() of
        {tcp, Socket, Data} when Way =:= once -> gather(Way, Socket, Size, <<Got/binary, Data/binary>>);
        {tcp, Socket, Data} -> gather_messages(Way, Socket, Size, <<Got/binary, Data/binary>>);
        {tcp_passive, Socket} -> gather(Way, Socket, Size, Got)
    end.

flush_passive(Socket) ->
    receive
        {tcp_passive, Socket} -> ok
    after 0 -> ok
    end.
