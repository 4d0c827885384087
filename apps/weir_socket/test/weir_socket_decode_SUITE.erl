%% Packets that erlang:decode_packet/3 finds. The oracle is gen_tcp, whose driver finds them in C: the same bytes, in
%% the same pieces, have to give the same packets, messages and errors, passive and active.
-module(weir_socket_decode_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [start/1, result/1, until/1, wait_ms/0]).
-import(weir_socket_test_lib, [nothing_at_all/0, next/0, same_bytes/2]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    [{started, Started} | Config].

end_per_suite(Config) -> lists:foreach(fun application:stop/1, lists:reverse(?config(started, Config))).

%% {Options, Bytes}.
samples() ->
    [
        {[{packet, Http}], Bytes}
     || Http <- [http, http_bin],
        Bytes <- [
            <<"GET /x?y=z HTTP/1.1\r\nHost: a.b\r\nX-Own: 1\r\n two\r\nContent-Length:  5\r\n\r\n"
                "GET / HTTP/1.0\r\n\r\n">>,
            <<"HTTP/1.1 404 Not there\r\nServer: x\r\n\r\nHTTP/1.0 200 OK\r\n\r\n">>,
            <<"OPTIONS * HTTP/1.1\nHost:x\n\nWHATEVER http://a.b:80/c HTTP/1.1\n\n">>,
            <<"no first line\r\nGET / HTTP/1.1\r\nno header\r\nA: b\r\n\r\nagain\r\n">>,
            <<"\r\n\r\nGET / HTTP/1.1\r\n\r\n">>,
            <<"GET / HTTP/1.1\r\nA: b\r\n">>
        ]
    ] ++
        [
            {[{packet, Httph}], <<"A: b\r\nContent-Type: c\r\n d\r\nno header\r\n\r\nE: f\r\n\r\nG">>}
         || Httph <- [httph, httph_bin]
        ] ++
        [
            {[{packet, asn1}], <<48, 3, "abc", 4, 16#82, 0, 4, "wxyz", 16#1f, 16#81, 5, 2, "hi", 2, 1>>},
            {[{packet, cdr}], <<"GIOP", 1, 0, 0, 0, 5:32, "hello", "GIOP", 1, 0, 1, 0, 3:32/little, "abc", "GIOP">>},
            {[{packet, fcgi}], <<1, 2, 3:16, 4:16, 2, 0, "abcd..", 1, 9, 0:16, 0:16, 0, 0, 1>>},
            {[{packet, tpkt}], <<3, 0, 7:16, "abc", 3, 0, 4:16, 3, 0, 9:16, "par">>},
            {[{packet, sunrm}], <<1:1, 3:31, "abc", 0:1, 0:31, 0:1, 2:31, "de", 5:32, "x">>}
        ].

%% ---------------------------------------------------------------- as gen_tcp

passive(_) -> [same(Options, fun passive/2, whole(Bytes)) || {Options, Bytes} <- samples()].

active(_) -> [same([{active, true} | Options], fun active/2, whole(Bytes)) || {Options, Bytes} <- samples()].

active_once(_) -> [same([{active, once} | Options], fun once/2, whole(Bytes)) || {Options, Bytes} <- samples()].

%% Two by two: the notice that they are used up comes in its place.
active_counted(_) -> [same([{active, 2} | Options], fun counted/2, whole(Bytes)) || {Options, Bytes} <- samples()].

any_split(_) ->
    weir_kit_property:holds(
        ?FORALL(
            {{Options, Bytes}, Mode},
            {oneof(samples()), oneof([{false, passive}, {true, active}, {once, once}, {3, counted}])},
            ?FORALL(Pieces, split(Bytes), begin
                {Active, How} = Mode,
                Read = fun(Tcp, Socket) -> ?MODULE:How(Tcp, Socket) end,
                same([{active, Active} | Options], Read, Pieces),
                true
            end)
        ),
        [{numtests, 150}, {to_file, user}]
    ).

split(Bytes) ->
    ?LET(Cuts, list(integer(0, byte_size(Bytes))), pieces(Bytes, 0, lists:usort(Cuts))).

pieces(Bytes, From, [From | Cuts]) -> pieces(Bytes, From, Cuts);
pieces(Bytes, From, [To | Cuts]) -> [binary:part(Bytes, From, To - From) | pieces(Bytes, To, Cuts)];
pieces(Bytes, From, []) -> [binary:part(Bytes, From, byte_size(Bytes) - From)].

modes_and_headers(_) ->
    Bytes = <<3, 0, 7:16, "abc", 3, 0, 4:16>>,
    [
        same([{packet, tpkt}, {mode, Mode}, {header, Header}, {active, Active}], Read, [Bytes])
     || Mode <- [list, binary], Header <- [0, 1, 4, 7], {Active, Read} <- [{false, fun passive/2}, {true, fun active/2}]
    ],
    same([{packet, http_bin}, {mode, list}], fun passive/2, [<<"GET / HTTP/1.1\r\n\r\n">>]),
    same([{packet, http}, {mode, binary}], fun passive/2, [<<"GET / HTTP/1.1\r\n\r\n">>]).

%% Exactly the limit, and one more.
limits() ->
    [
        {[{packet, tpkt}, {packet_size, 3}], <<3, 0, 7:16, "abc">>, <<3, 0, 8:16, "abcd">>},
        {[{packet, asn1}, {packet_size, 3}], <<48, 3, "abc">>, <<48, 4, "abcd">>},
        {[{packet, sunrm}, {packet_size, 3}], <<3:32, "abc">>, <<4:32, "abcd">>},
        {[{packet, http}, {packet_size, 16}], <<"GET / HTTP/1.1\r\n">>, <<"GET /a HTTP/1.1\r\n">>}
    ].

too_long(_) ->
    [
        begin
            same(Options, fun passive/2, [Fits]),
            [{error, emsgsize} | _] = same(Options, fun passive/2, [Long])
        end
     || {Options, Fits, Long} <- limits()
    ].

too_long_active(_) ->
    [
        begin
            same([{active, true} | Options], fun active/2, [Fits]),
            [{tcp_error, emsgsize}, tcp_closed] = same([{active, true} | Options], fun active/2, [Long]),
            same_apart([{active, true} | Options], Fits, [Long, Fits])
        end
     || {Options, Fits, Long} <- limits()
    ].

%% The first packet has come when the others are sent: gen_tcp looks at what it has already only when more comes, and
%% forgets it if that is the end.
same_apart(Options, First, Others) ->
    [ByGenTcp, ByWeir] = [
        begin
            {Socket, Peer} = pair(Tcp, Options),
            ok = gen_tcp:send(Peer, First),
            Message = next(Socket),
            [ok_or_closed(gen_tcp:send(Peer, Other)) || Other <- Others],
            Messages = active(Tcp, Socket),
            ok = Tcp:close(Socket),
            ok = gen_tcp:close(Peer),
            nothing_at_all(),
            [Message | Messages]
        end
     || Tcp <- [gen_tcp, weir_socket]
    ],
    ?assertEqual({Options, ByGenTcp}, {Options, ByWeir}).

%% What cannot be the beginning of a packet.
wrong(_) ->
    [
        [{error, emsgsize} | _] = same([{packet, Type}], fun passive/2, [Bytes])
     || {Type, Bytes} <- [{tpkt, <<9, 9, 9, 9, 9>>}, {cdr, <<"POIG", 1, 0, 0, 0, 5:32>>}, {fcgi, <<9, 9, 9, 9, 9, 9,
     9, 9, 9>>}]
    ].

lines_longer_than_the_buffer(_) ->
    Line = fun(N) -> iolist_to_binary(["GET /", lists:duplicate(N - 16, $a), " HTTP/1.1\r\n"]) end,
    [
        same([{packet, http}, {buffer, 100}, {active, Active}], Read, [Line(N), <<"\r\n">>])
     || N <- [99, 100, 101, 200], {Active, Read} <- [{false, fun passive/2}, {true, fun active/2}]
    ].

%% ---------------------------------------------------------------- beyond

%% Between packets the option packet may be set, to the same or to another: whether a first line or a header comes next
%% stays as it was.
types_are_changed(_) ->
    weir_kit_property:holds(
        ?FORALL(Types, list(oneof([http_bin, http_bin, httph_bin, http, httph, line])), begin
            same([{packet, http_bin}], fun(Tcp, Socket) -> change(Tcp, Socket, Types) end, [
                <<"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n\r\nGET /2 HTTP/1.1\r\nC: d\r\n\r\n"
                    "no first line\r\nE: f\r\n\r\n">>
            ]),
            true
        end),
        [{numtests, 150}, {to_file, user}]
    ).

change(Tcp, Socket, []) ->
    passive(Tcp, Socket);
change(Tcp, Socket, [Type | Types]) ->
    ok = inet:setopts(Socket, [{packet, Type}]),
    case Tcp:recv(Socket, 0, wait_ms()) of
        {ok, Packet} -> [Packet | change(Tcp, Socket, Types)];
        {error, timeout} -> error({never, received, Tcp});
        {error, _} = Error -> [Error]
    end.

%% Longer than any buffer, in pieces.
long_packets(_) ->
    Content = rand:bytes(3_000_000),
    Packet = <<4, 16#83, (byte_size(Content)):24, Content/binary>>,
    [
        begin
            {Socket, Peer} = pair([{packet, asn1}, {active, Active}, binary]),
            Sender = start(fun() -> gen_tcp:send(Peer, [Packet, Packet]) end),
            [same_bytes(Packet, element(2, {ok, _} = Receive(Socket))) || _ <- [1, 2]],
            ok = result(Sender),
            close(Socket, Peer)
        end
     || {Active, Receive} <- [
            {false, fun(Socket) -> weir_socket:recv(Socket, 0, wait_ms()) end},
            {true, fun(Socket) -> {tcp, Socket, Data} = next(), {ok, Data} end}
        ]
    ].

%% Each packet goes to one of them.
several_receivers(_) ->
    {Socket, Peer} = pair([{packet, tpkt}, {active, false}, binary]),
    Receivers = [
        start(fun() -> receive_all(Socket) end)
     || _ <- lists:seq(1, 5)
    ],
    Packets = [<<3, 0, 8:16, N:32>> || N <- lists:seq(1, 500)],
    [ok = gen_tcp:send(Peer, Packet) || Packet <- Packets],
    ok = gen_tcp:shutdown(Peer, write),
    Got = [result(Receiver) || Receiver <- Receivers],
    %% All of them, once, and in order for each.
    weir_kit:same(packets, Packets, lists:sort(lists:append(Got))),
    [weir_kit:same(out_of_order, lists:sort(One), One) || One <- Got],
    close(Socket, Peer).

receive_all(Socket) ->
    case weir_socket:recv(Socket, 0) of
        {ok, Packet} -> [Packet | receive_all(Socket)];
        {error, closed} -> []
    end.

times_out_and_goes_on(_) ->
    {Socket, Peer} = pair([{packet, http_bin}, {active, false}]),
    {error, timeout} = weir_socket:recv(Socket, 0, 0),
    ok = gen_tcp:send(Peer, <<"GET / HT">>),
    {error, timeout} = weir_socket:recv(Socket, 0, 20),
    ok = gen_tcp:send(Peer, <<"TP/1.1\r\n">>),
    {ok, {http_request, _, _, _}} = weir_socket:recv(Socket, 0, wait_ms()),
    {error, einval} = weir_socket:recv(Socket, 5, 0),
    nothing_at_all(),
    close(Socket, Peer).

%% From another process, while a decoder waits for the rest of a packet.
changes_to_raw(_) ->
    {Socket, Peer} = pair([{packet, tpkt}, {active, true}, binary]),
    ok = gen_tcp:send(Peer, <<3, 0, 100:16, "begin">>),
    until(fun() -> weir_socket:socket_info(Socket, buffered) =:= {buffered, 9} end),
    ok = weir_socket:setopts(Socket, [{packet, raw}]),
    {tcp, Socket, <<3, 0, 100:16, "begin">>} = next(),
    close(Socket, Peer).

closed_in_between(_) ->
    {Socket, Peer} = pair([{packet, tpkt}, {active, false}]),
    ok = gen_tcp:send(Peer, <<3, 0, 100:16, "begin">>),
    Receiver = start(fun() -> weir_socket:recv(Socket, 0) end),
    until(fun() -> weir_socket:socket_info(Socket, receivers) =:= {receivers, 1} end),
    ok = weir_socket:close(Socket),
    {error, closed} = result(Receiver),
    {error, closed} = weir_socket:recv(Socket, 0),
    ok = gen_tcp:close(Peer).

small_packets_are_copied(_) ->
    {Socket, Peer} = pair([{packet, tpkt}, {active, false}, binary]),
    ok = gen_tcp:send(Peer, [<<3, 0, 104:16, (binary:copy(<<"x">>, 100))/binary>> || _ <- lists:seq(1, 100)]),
    {ok, Packet} = weir_socket:recv(Socket, 0),
    104 = byte_size(Packet),
    true = binary:referenced_byte_size(Packet) =< 208,
    close(Socket, Peer).

%% The greatest length that a packet may have, and one more.
larger_than_memory(_) ->
    [
        begin
            {Socket, Peer} = pair([{packet, asn1}, {active, false}, binary]),
            ok = gen_tcp:send(Peer, <<4, 16#84, Length:32, "begin">>),
            Expected = weir_socket:recv(Socket, 0, Timeout),
            close(Socket, Peer)
        end
     || {Length, Timeout, Expected} <- [
            {16#7fffffff - 6, 100, {error, timeout}},
            {16#7fffffff - 5, wait_ms(), {error, emsgsize}},
            {16#ffffffff, wait_ms(), {error, emsgsize}}
        ]
    ].

%% ---------------------------------------------------------------- tools

whole(Bytes) -> [Bytes].

%% What gen_tcp reads of these pieces, and weir_socket reads too.
same(Options, Read, Pieces) ->
    ByGenTcp = read(gen_tcp, Options, Read, Pieces),
    ByWeir = read(weir_socket, Options, Read, Pieces),
    ?assertEqual({Options, Pieces, ByGenTcp}, {Options, Pieces, ByWeir}),
    ByWeir.

read(Tcp, Options, Read, Pieces) ->
    {Socket, Peer} = pair(Tcp, Options),
    [ok_or_closed(gen_tcp:send(Peer, Piece)) || Piece <- Pieces],
    _ = gen_tcp:shutdown(Peer, write),
    Result = Read(Tcp, Socket),
    ok = Tcp:close(Socket),
    ok = gen_tcp:close(Peer),
    receive Message -> error({unexpected, Tcp, Message}) after 0 -> Result end.

ok_or_closed(ok) -> ok;
ok_or_closed({error, _}) -> ok.

passive(Tcp, Socket) ->
    case Tcp:recv(Socket, 0, wait_ms()) of
        {ok, Packet} -> [Packet | passive(Tcp, Socket)];
        {error, timeout} -> error({never, received, Tcp});
        %% And again: it stays closed. gen_tcp says `enotconn', having closed its descriptor.
        {error, Reason} -> [{error, Reason}, again(Tcp:recv(Socket, 0, wait_ms()))]
    end.

again({error, enotconn}) -> {error, closed};
again(Result) -> Result.

active(Tcp, Socket) ->
    case next(Socket) of
        tcp_closed -> [tcp_closed];
        Message -> [Message | active(Tcp, Socket)]
    end.

once(Tcp, Socket) ->
    case next(Socket) of
        tcp_closed ->
            [tcp_closed];
        {tcp_error, _} = Failed ->
            [Failed | once(Tcp, Socket)];
        Message ->
            _ = inet:setopts(Socket, [{active, once}]),
            [Message | once(Tcp, Socket)]
    end.

counted(Tcp, Socket) ->
    case next(Socket) of
        tcp_closed ->
            [tcp_closed];
        tcp_passive ->
            _ = inet:setopts(Socket, [{active, 2}]),
            [tcp_passive | counted(Tcp, Socket)];
        Message ->
            [Message | counted(Tcp, Socket)]
    end.

next(Socket) ->
    receive
        {tcp_closed, Socket} -> tcp_closed;
        {tcp_passive, Socket} -> tcp_passive;
        {tcp_error, Socket, Reason} -> {tcp_error, Reason};
        {Tag, Socket, Data} -> {Tag, Data}
    after wait_ms() -> error({never, message, weir_kit:messages()})
    end.

pair(Options) -> pair(weir_socket, Options).

pair(Tcp, Options) ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, binary, {active, false}, {exit_on_close, false}]),
    {ok, Port} = inet:port(Listener),
    {ok, Socket} = Tcp:connect({127, 0, 0, 1}, Port, with_defaults(Options)),
    {ok, Peer} = gen_tcp:accept(Listener, wait_ms()),
    ok = inet:setopts(Peer, [{nodelay, true}]),
    ok = gen_tcp:close(Listener),
    {Socket, Peer}.

%% The same length of a line for both.
with_defaults(Options) -> [{active, false}, {buffer, 4096} | Options].

close(Socket, Peer) ->
    ok = weir_socket:close(Socket),
    ok = gen_tcp:close(Peer).
