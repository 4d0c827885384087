%% Cases of the suite of behaviour: packets, for every packet type, however the bytes that make them up arrive.
%%
%% What has to come out is written down beside what goes in, by hand. The bytes are sent in pieces, each when the one
%% before it has been read: all ways to cut a stream of at most eight bytes, and for a longer one all ways to cut it in
%% two, byte by byte, and some ways chosen at random.
-module(weir_socket_cases_packet).

-include_lib("stdlib/include/assert.hrl").

-export([
    packet_raw/1,
    packet_0/1,
    packet_1/1,
    packet_2/1,
    packet_4/1,
    packet_line/1,
    packet_http/1,
    packet_http_bin/1,
    packet_httph/1,
    packet_httph_bin/1,
    packet_asn1/1,
    packet_cdr/1,
    packet_fcgi/1,
    packet_tpkt/1,
    packet_sunrm/1
]).

-import(weir_kit, [start/1, same/3]).
-import(weir_socket_test_lib, [pair/2, recv/3, close/1, setopts/2, controlling_process/2, next/0, nothing/0, settle/1]).

packet_raw(B) -> stream(B, raw).

packet_0(B) -> stream(B, 0).

stream(B, Type) -> check(B, Type, <<"stream">>, stream).

packet_1(B) ->
    check(B, 1, <<1, "a", 0, 2, "bc">>, [<<"a">>, <<>>, <<"bc">>]),
    Long = binary:copy(<<"x">>, 255),
    check(B, 1, <<255, Long/binary, 1, "y">>, [Long, <<"y">>]).

packet_2(B) ->
    check(B, 2, <<2:16, "ab", 1:16, "c">>, [<<"ab">>, <<"c">>]),
    check(B, 2, <<0:16, 3:16, "abc">>, [<<>>, <<"abc">>]),
    Long = binary:copy(<<"x">>, 300),
    check(B, 2, <<300:16, Long/binary, 1:16, "y">>, [Long, <<"y">>]).

packet_4(B) ->
    check(B, 4, <<3:32, "a">>, <<"bc">>, [<<"abc">>]),
    check(B, 4, <<2:32, "ab", 0:32, 1:32, "c">>, [<<"ab">>, <<>>, <<"c">>]).

check(B, Type, First, Second, Packets) -> check(B, Type, <<First/binary, Second/binary>>, Packets).

packet_line(B) ->
    check(B, line, <<"a\nb\r\n\nc\n">>, [<<"a\n">>, <<"b\r\n">>, <<"\n">>, <<"c\n">>]),
    check(B, line, <<"a longer line\nand\r one\n">>, [<<"a longer line\n">>, <<"and\r one\n">>]).

packet_http(B) -> check(B, http, messages(), [listed(Packet) || Packet <- of_messages()]).

packet_http_bin(B) -> check(B, http_bin, messages(), of_messages()).

%% A line that is folded is one header; what is no request is handed on as it is.
messages() ->
    <<
        "GET /a?b HTTP/1.1\r\nHost: weir\r\nX-Two: one\r\n two\r\n\r\n"
        "HTTP/1.0 404 Not Found\r\nContent-Length:0\r\n\r\n"
        "OPTIONS * HTTP/1.1\n\nwhat is this\r\n"
    >>.

of_messages() ->
    [
        {http_request, 'GET', {abs_path, <<"/a?b">>}, {1, 1}},
        {http_header, 14, 'Host', <<"Host">>, <<"weir">>},
        {http_header, 0, <<"X-Two">>, <<"X-Two">>, <<"one\r\n two">>},
        http_eoh,
        {http_response, {1, 0}, 404, <<"Not Found">>},
        {http_header, 38, 'Content-Length', <<"Content-Length">>, <<"0">>},
        http_eoh,
        {http_request, 'OPTIONS', '*', {1, 1}},
        http_eoh,
        {http_error, <<"what is this\r\n">>}
    ].

packet_httph(B) -> check(B, httph, headers(), [listed(Packet) || Packet <- of_headers()]).

packet_httph_bin(B) -> check(B, httph_bin, headers(), of_headers()).

%% What is no header is seen as such when the line behind it is there, which might continue it.
headers() -> <<"Accept: */*\r\nx-y:z\r\n\r\nGET / HTTP/1.1\r\nA: b\r\n\r\n">>.

of_headers() ->
    [
        {http_header, 8, 'Accept', <<"Accept">>, <<"*/*">>},
        {http_header, 0, <<"X-Y">>, <<"x-y">>, <<"z">>},
        http_eoh,
        {http_error, <<"GET / HTTP/1.1\r\n">>},
        {http_header, 0, <<"A">>, <<"A">>, <<"b">>},
        http_eoh
    ].

%% As http and httph give it: strings for binaries.
listed(Binary) when is_binary(Binary) -> binary_to_list(Binary);
listed(Tuple) when is_tuple(Tuple) -> list_to_tuple([listed(Element) || Element <- tuple_to_list(Tuple)]);
listed(Other) -> Other.

%% BER: a short length, lengths of one and two bytes, tags of two and three bytes.
packet_asn1(B) ->
    whole(B, asn1, [
        <<16#30, 3, 2, 1, 5>>,
        <<4, 16#81, 2, "ab">>,
        <<4, 16#82, 0, 3, "abc">>,
        <<5, 0>>,
        <<16#1f, 16#21, 1, "x">>,
        <<16#3f, 16#81, 16#01, 2, "yz">>
    ]).

%% GIOP: the length is in the sender's byte order.
packet_cdr(B) ->
    whole(B, cdr, [
        <<"GIOP", 1, 2, 0, 0, 3:32/big, "abc">>,
        <<"GIOP", 1, 2, 1, 1, 2:32/little, "de">>,
        <<"GIOP", 1, 0, 0, 5, 0:32>>
    ]).

packet_fcgi(B) ->
    whole(B, fcgi, [<<1, 1, 1:16, 3:16, 0, 0, "abc">>, <<1, 5, 1:16, 0:16, 0, 0>>, <<1, 6, 2:16, 1:16, 0, 0, "d">>]).

%% The length covers the header.
packet_tpkt(B) -> whole(B, tpkt, [<<3, 0, 7:16, "abc">>, <<3, 0, 4:16>>, <<3, 0, 5:16, "d">>]).

%% The highest bit says that it is the last fragment.
packet_sunrm(B) -> whole(B, sunrm, [<<16#80000003:32, "abc">>, <<0:32>>, <<1:32, "d">>]).

%% Types that leave the header in the packet.
whole(B, Type, Packets) -> check(B, Type, iolist_to_binary(Packets), Packets).

%% ---------------------------------------------------------------- the check

check(B, Type, Bytes, Packets) ->
    All = [{Form, Way} || Form <- [binary, list], Way <- [passive, true, once]],
    Some = [{binary, passive}, {list, true}, {binary, once}],
    [check(B, Type, Bytes, Packets, Form, Way) || {Form, Way} <- weir_kit:long(Some, All)],
    ok.

check(B, Type, Bytes, Packets, Form, Way) ->
    {Socket, Peer} = pair(B, [Form, {packet, Type}, {active, false}]),
    Me = self(),
    {Reader, _} = start(fun() ->
        receive go -> read(Way, Socket, Me) end
    end),
    ok = controlling_process(Socket, Reader),
    Reader ! go,
    Expected = expected(Packets, Bytes, Form),
    [
        begin
            send_pieces(Pieces, Socket, Peer),
            same(packets, {Type, Form, Way, Pieces, Expected}, {Type, Form, Way, Pieces, received(Expected)})
        end
     || Pieces <- cuts(Bytes)
    ],
    ok = gen_tcp:close(Peer),
    closed = next(),
    nothing().

%% A stream has no packets: what counts is their sum.
expected(stream, Bytes, binary) -> {stream, Bytes};
expected(stream, Bytes, list) -> {stream, binary_to_list(Bytes)};
expected(Packets, _Bytes, binary) -> Packets;
expected(Packets, _Bytes, list) -> [as_list(Packet) || Packet <- Packets].

as_list(Binary) when is_binary(Binary) -> binary_to_list(Binary);
as_list(Other) -> Other.

received({stream, Sum}) when is_binary(Sum) -> {stream, sum(<<>>, byte_size(Sum))};
received({stream, Sum}) -> {stream, binary_to_list(sum(<<>>, length(Sum)))};
received(Packets) -> [next() || _ <- Packets].

sum(Sum, Size) when byte_size(Sum) >= Size -> Sum;
sum(Sum, Size) -> sum(iolist_to_binary([Sum, next()]), Size).

send_pieces([Piece], _Socket, Peer) ->
    ok = gen_tcp:send(Peer, Piece);
send_pieces([Piece | Pieces], Socket, Peer) ->
    ok = gen_tcp:send(Peer, Piece),
    settle(Socket),
    send_pieces(Pieces, Socket, Peer).

%% Hands on every packet, until the other end closes.
read(passive, Socket, To) ->
    case recv(Socket, 0, infinity) of
        {ok, Packet} ->
            To ! Packet,
            read(passive, Socket, To);
        {error, closed} ->
            ok = close(Socket),
            To ! closed
    end;
read(Active, Socket, To) ->
    ok = setopts(Socket, [{active, Active}]),
    read_messages(Active, Socket, To).

read_messages(Active, Socket, To) ->
    receive
        {Tag, Socket, Packet} when Tag =:= tcp; Tag =:= http ->
            To ! Packet,
            case Active of
                once -> ok = setopts(Socket, [{active, once}]);
                true -> ok
            end,
            read_messages(Active, Socket, To);
        {tcp_closed, Socket} ->
            ok = close(Socket),
            To ! closed;
        Other ->
            To ! Other
    end.

%% ---------------------------------------------------------------- cutting

cuts(Bytes) when byte_size(Bytes) =< 8 ->
    all(Bytes);
cuts(Bytes) ->
    Size = byte_size(Bytes),
    Two = [split(Bytes, [At]) || At <- lists:seq(1, min(Size - 1, 60))],
    Single = [<<Byte>> || <<Byte>> <= binary:part(Bytes, 0, min(Size, 60))] ++
        [binary:part(Bytes, 60, Size - 60) || Size > 60],
    Random = [
        split(Bytes, lists:usort([rand:uniform(Size - 1) || _ <- lists:seq(1, rand:uniform(6))]))
     || _ <- lists:seq(1, 10)
    ],
    [[Bytes], Single] ++ Two ++ Random.

all(<<>>) -> [[]];
all(Bytes) ->
    [
        [binary:part(Bytes, 0, First) | Others]
     || First <- lists:seq(1, byte_size(Bytes)),
        Others <- all(binary:part(Bytes, First, byte_size(Bytes) - First))
    ].

%% Cuts behind each of the places, which are in order.
split(Bytes, Places) -> split(Bytes, 0, Places).

split(Bytes, From, []) -> [binary:part(Bytes, From, byte_size(Bytes) - From)];
split(Bytes, From, [To | Places]) -> [binary:part(Bytes, From, To - From) | split(Bytes, To, Places)].
