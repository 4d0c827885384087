%% @doc The NIF below gen_tcp's interface: what is received, in every framing and mode, up to the end of a connection.
-module(weir_socket_nif_recv_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, kill/1, same/3]).
-import(weir_socket_nif_test_lib, [
    socket/1, pair/0, close/1, recv/2, recv_async/3, send/2, send_waiting/2, spawn_sender/2, answer/1, data/1,
    message/0, messages/1, no_message/0, joined/1, frame/2
]).

-define(NIF, weir_socket_nif).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_socket_nif_test_lib:begin_suite(Config).

end_per_suite(Config) -> weir_socket_nif_test_lib:end_suite(Config).

init_per_testcase(_Case, Config) -> weir_socket_nif_test_lib:begin_case(Config).

end_per_testcase(_Case, Config) -> weir_socket_nif_test_lib:end_case(Config).

%% ---------------------------------------------------------------- receiving

raw_lengths(_Config) ->
    {A, B} = pair(),
    ok = send(A, <<"abcdefgh">>),
    ?assertEqual({ok, <<"abc">>}, recv(B, 3)),
    ?assertEqual({ok, <<"d">>}, recv(B, 1)),
    ?assertEqual({ok, <<"efgh">>}, recv(B, 0)),
    %% Exactly what is there, and one more.
    ok = send(A, <<"1234">>),
    ?assertEqual({ok, <<"1234">>}, recv(B, 4)),
    ok = send(A, <<"1234">>),
    Ref = make_ref(),
    wait = recv_async(B, 5, Ref),
    ok = send(A, <<"5">>),
    ?assertEqual({ok, <<"12345">>}, answer(Ref)),
    %% Sizes around those where memory is handled otherwise.
    [
        begin
            Data = rand:bytes(Size),
            Sender = spawn_sender(A, Data),
            same(bytes, {ok, Data}, recv(B, Size)),
            joined(Sender)
        end
     || Size <- [1, 63, 64, 65, 16383, 16384, 16385, 65535, 65536, 65537, 1048575, 1048576, 1048577, 5000000]
    ],
    ?assertEqual({error, enomem}, ?NIF:recv(B, 16#4000001, make_ref())),
    close([A, B]).

receivers_in_order(_Config) ->
    {A, B} = pair(),
    Refs = [make_ref() || _ <- lists:seq(1, 5)],
    [wait = recv_async(B, 2, Ref) || Ref <- Refs],
    #{receivers := 5} = ?NIF:info(B),
    ok = send(A, <<"aabbc">>),
    [Ref1, Ref2, Ref3, Ref4, Ref5] = Refs,
    ?assertEqual({ok, <<"aa">>}, answer(Ref1)),
    ?assertEqual({ok, <<"bb">>}, answer(Ref2)),
    ?assertEqual(ok, ?NIF:cancel(B, Ref4)),
    ok = send(A, <<"cdd">>),
    ?assertEqual({ok, <<"cc">>}, answer(Ref3)),
    ?assertEqual({ok, <<"dd">>}, answer(Ref5)),
    close([A, B]).

%% What is too little for it is enough for the next one, and for the owner.
receiver_in_front_gives_up(_Config) ->
    {A, B} = pair(),
    [Long, Short, Last] = [make_ref() || _ <- lists:seq(1, 3)],
    wait = recv_async(B, 1000, Long),
    wait = recv_async(B, 10, Short),
    ok = send(A, <<0:(50 * 8)>>),
    buffered(B, 50),
    ok = ?NIF:cancel(B, Long),
    ?assertEqual({ok, <<0:(10 * 8)>>}, answer(Short)),
    wait = recv_async(B, 1000, Last),
    ok = ?NIF:set(B, active, true),
    no_message(),
    ok = ?NIF:cancel(B, Last),
    ?assertEqual(<<0:(40 * 8)>>, data(B)),
    no_message(),
    close([A, B]).

%% The next who asks finds out.
receiver_in_front_is_killed(_Config) ->
    {A, B} = pair(),
    [Short, Next] = [make_ref() || _ <- lists:seq(1, 2)],
    Killed = receiver(fun() -> wait = recv_async(B, 1000, make_ref()) end),
    wait = recv_async(B, 10, Short),
    ok = send(A, <<0:(50 * 8)>>),
    buffered(B, 50),
    kill(Killed),
    ?assertEqual({ok, <<0:(20 * 8)>>}, recv_async(B, 20, Next)),
    ?assertEqual({ok, <<0:(10 * 8)>>}, answer(Short)),
    close([A, B]).

%% A process that waits.
receiver(Wait) ->
    Self = self(),
    Pid = spawn(fun() ->
        Wait(),
        Self ! {waits, self()},
        receive never -> ok end
    end),
    receive
        {waits, Pid} -> Pid
    end.

buffered(Sock, Bytes) -> until(fun() -> maps:get(buffered, ?NIF:info(Sock)) =:= Bytes end).

%% Every way in which short packets can be cut in two, and byte by byte.
packets_in_pieces(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(A, nodelay, true),
    [
        begin
            ok = ?NIF:set(B, packet, Packet),
            Packets = [<<"x">>, <<>>, <<"hello">>, <<"0123456789">>],
            Bytes = iolist_to_binary([frame(Packet, P) || P <- Packets]),
            [
                begin
                    {First, Second} = split_binary(Bytes, At),
                    Refs = [make_ref() || _ <- Packets],
                    [wait = recv_async(B, 0, Ref) || Ref <- Refs],
                    ok = send(A, First),
                    ok = wait_read(B),
                    ok = send(A, Second),
                    ?assertEqual({Packet, At, Packets}, {Packet, At, [element(2, answer(Ref)) || Ref <- Refs]})
                end
             || At <- lists:seq(0, byte_size(Bytes))
            ],
            [ok = send(A, <<Byte>>) || <<Byte>> <= Bytes],
            ?assertEqual({Packet, Packets}, {Packet, [element(2, recv(B, 0)) || _ <- Packets]}),
            ?assertEqual({error, einval}, ?NIF:recv(B, 1, make_ref()))
        end
     || Packet <- [1, 2, 4]
    ],
    close([A, B]).

%% Until everything that has been sent to it is out of the kernel, or nobody wants it.
wait_read(Sock) ->
    until(fun() -> maps:get(readable, ?NIF:info(Sock)) =:= false end).

large_packets(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(A, packet, 4),
    ok = ?NIF:set(B, packet, 4),
    Sizes = [16379, 16380, 16381, 65531, 65532, 65533, 200000, 1048571, 1048572, 1048573, 3000000],
    Packets = [rand:bytes(Size) || Size <- Sizes],
    Sender = spawn_link(fun() -> [ok = send_waiting(A, Packet) || Packet <- Packets] end),
    [same(packet, {ok, Packet}, recv(B, 0)) || Packet <- Packets],
    joined(Sender),
    %% Active too, with small ones between.
    ok = ?NIF:set(B, active, true),
    Mixed = lists:append([[P, <<"small">>] || P <- Packets]),
    Sender2 = spawn_link(fun() -> [ok = send_waiting(A, Packet) || Packet <- Mixed] end),
    [same(packet, Packet, data(B)) || Packet <- Mixed],
    joined(Sender2),
    close([A, B]).

packet_too_large(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(B, packet, 4),
    ok = ?NIF:set(B, packet_size, 10),
    ok = send(A, frame(4, <<"0123456789">>)),
    ?assertEqual({ok, <<"0123456789">>}, recv(B, 0)),
    ok = send(A, frame(4, <<"01234567890">>)),
    ?assertEqual({error, emsgsize}, recv(B, 0)),
    ?assertEqual({error, closed}, recv(B, 0)),
    close([A, B]),
    {C, D} = pair(),
    ok = ?NIF:set(D, packet, 4),
    ok = ?NIF:set(D, packet_size, 10),
    ok = ?NIF:set(D, active, true),
    ok = send(C, [frame(4, <<"good">>), frame(4, <<"01234567890">>)]),
    S = socket(D),
    ?assertEqual([{tcp, S, <<"good">>}, {tcp_error, S, emsgsize}, {tcp_closed, S}], messages(3)),
    %% What a header of the sender cannot say.
    {E, F} = pair(),
    ok = ?NIF:set(E, packet, 1),
    ?assertEqual(ok, send(E, binary:copy(<<"x">>, 255))),
    ?assertEqual({error, emsgsize}, send(E, binary:copy(<<"x">>, 256))),
    ?assertEqual({ok, <<255, (binary:copy(<<"x">>, 255))/binary>>}, recv(F, 256)),
    close([C, D, E, F]).

lines(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(B, packet, line),
    ok = send(A, <<"one\ntwo\r\n\nthr">>),
    ?assertEqual([{ok, <<"one\n">>}, {ok, <<"two\r\n">>}, {ok, <<"\n">>}], [recv(B, 0) || _ <- [1, 2, 3]]),
    Ref = make_ref(),
    wait = recv_async(B, 0, Ref),
    ok = send(A, <<"ee\n">>),
    ?assertEqual({ok, <<"three\n">>}, answer(Ref)),
    ok = ?NIF:set(B, line_delimiter, $;),
    ok = send(A, <<"a\nb;c;">>),
    ?assertEqual([{ok, <<"a\nb;">>}, {ok, <<"c;">>}], [recv(B, 0) || _ <- [1, 2]]),
    close([A, B]).

lists_and_headers(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(B, packet, 1),
    [
        begin
            ok = ?NIF:set(B, mode, Mode),
            ok = ?NIF:set(B, header, Header),
            ok = send(A, frame(1, <<1, 2, 3>>)),
            ?assertEqual({ok, Expected}, recv(B, 0))
        end
     || {Mode, Header, Expected} <- [
            {list, 0, [1, 2, 3]},
            {list, 2, [1, 2, 3]},
            {binary, 0, <<1, 2, 3>>},
            {binary, 1, [1 | <<2, 3>>]},
            {binary, 3, [1, 2, 3 | <<>>]},
            {binary, 4, [1, 2, 3]}
        ]
    ],
    close([A, B]).

%% ---------------------------------------------------------------- active mode

active_modes(_Config) ->
    {A, B} = pair(),
    S = socket(B),
    ok = send(A, <<"before">>),
    ok = ?NIF:set(B, active, true),
    ?assertEqual({tcp, S, <<"before">>}, message()),
    ?assertEqual({error, einval}, ?NIF:recv(B, 0, make_ref())),
    ok = send(A, <<"after">>),
    ?assertEqual({tcp, S, <<"after">>}, message()),
    ok = ?NIF:set(B, active, false),
    ok = send(A, <<"passive">>),
    ?assertEqual({ok, <<"passive">>}, recv(B, 0)),
    ok = ?NIF:set(B, active, once),
    ok = send(A, <<"once">>),
    ?assertEqual({tcp, S, <<"once">>}, message()),
    ?assertEqual({ok, false}, ?NIF:get(B, active)),
    no_message(),
    close([A, B]).

%% gen_tcp's rules of counting.
active_counts(_Config) ->
    {A, B} = pair(),
    S = socket(B),
    Passive = {tcp_passive, S},
    Active = fun(Value) -> {?NIF:set(B, active, Value), element(2, ?NIF:get(B, active))} end,
    ok = ?NIF:set(B, packet, 1),
    ?assertEqual({ok, 3}, Active(3)),
    ?assertEqual({ok, 5}, Active(2)),
    ?assertEqual({ok, 1}, Active(-4)),
    ok = send(A, [frame(1, <<"a">>), frame(1, <<"b">>)]),
    ?assertEqual([{tcp, S, <<"a">>}, Passive], messages(2)),
    ?assertEqual({ok, <<"b">>}, recv(B, 0)),
    ?assertEqual({ok, false}, Active(0)),
    ?assertEqual(Passive, message()),
    ?assertEqual({ok, false}, Active(-1)),
    ?assertEqual(Passive, message()),
    ?assertEqual({ok, 32767}, Active(32767)),
    ?assertEqual({{error, einval}, 32767}, Active(1)),
    ?assertEqual({{error, einval}, 32767}, Active(32768)),
    ?assertEqual({ok, false}, Active(-32768)),
    ?assertEqual(Passive, message()),
    ?assertEqual({{error, einval}, false}, Active(-32769)),
    ?assertEqual({ok, 2}, Active(2)),
    ?assertEqual({ok, once}, Active(once)),
    ?assertEqual({ok, 2}, Active(2)),
    ?assertEqual({ok, true}, Active(true)),
    ?assertEqual({ok, false}, Active(false)),
    no_message(),
    close([A, B]).

active_once_leaves_the_rest(_Config) ->
    {A, B} = pair(),
    S = socket(B),
    ok = ?NIF:set(B, packet, 2),
    ok = send(A, [frame(2, <<I>>) || I <- lists:seq(1, 100)]),
    [
        begin
            ok = ?NIF:set(B, active, once),
            ?assertEqual({tcp, S, <<I>>}, message())
        end
     || I <- lists:seq(1, 100)
    ],
    no_message(),
    close([A, B]).

%% More messages than one turn of the poller or of a caller delivers.
many_small_packets_in_active_mode(_Config) ->
    Count = 20000,
    {A, B} = pair(),
    ok = ?NIF:set(B, packet, 1),
    ok = ?NIF:set(B, active, true),
    Bytes = iolist_to_binary([frame(1, <<I:32>>) || I <- lists:seq(1, Count)]),
    Sender = spawn_sender(A, Bytes),
    [same(out_of_order, <<I:32>>, data(B)) || I <- lists:seq(1, Count)],
    joined(Sender),
    %% Those that are there when the option is set.
    ok = ?NIF:set(B, active, false),
    Sender2 = spawn_sender(A, Bytes),
    joined(Sender2),
    ok = ?NIF:set(B, active, true),
    [same(out_of_order, <<I:32>>, data(B)) || I <- lists:seq(1, Count)],
    close([B, A]),
    no_message().

%% ---------------------------------------------------------------- the end of a connection

closed_by_peer_active(_Config) ->
    {A, B} = pair(),
    S = socket(B),
    ok = ?NIF:set(B, active, true),
    ok = send(A, <<"last">>),
    close([A]),
    ?assertEqual([{tcp, S, <<"last">>}, {tcp_closed, S}], messages(2)),
    #{state := closed, fd := -1} = ?NIF:info(B),
    ?assertEqual({error, closed}, send(B, <<"x">>)),
    ?assertEqual({error, closed}, recv(B, 0)),
    ?assertEqual({error, closed}, ?NIF:set(B, active, true)),
    no_message().

closed_by_peer_passive(_Config) ->
    {A, B} = pair(),
    S = socket(B),
    ok = send(A, <<"last">>),
    close([A]),
    ?assertEqual({ok, <<"last">>}, recv(B, 0)),
    ?assertEqual({error, closed}, recv(B, 0)),
    ?assertEqual({error, closed}, recv(B, 0)),
    ?assertEqual({error, closed}, send(B, <<"x">>)),
    ok = ?NIF:set(B, active, once),
    ?assertEqual({tcp_closed, S}, message()),
    close([B]),
    %% Fewer bytes than were asked for are not delivered.
    {C, D} = pair(),
    ok = send(C, <<"abc">>),
    close([C]),
    ?assertEqual({error, closed}, recv(D, 4)),
    close([D]).

closed_by_peer_half(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(B, exit_on_close, false),
    ok = ?NIF:set(B, active, true),
    ok = ?NIF:shutdown(A, write),
    S = socket(B),
    ?assertEqual({tcp_closed, S}, message()),
    ?assertEqual(ok, send(B, <<"still">>)),
    ?assertEqual({ok, <<"still">>}, recv(A, 0)),
    %% It is active still.
    ?assertEqual({error, einval}, recv(B, 0)),
    ok = ?NIF:set(B, active, false),
    ?assertEqual({error, closed}, recv(B, 0)),
    ?assertEqual({error, closed}, send(A, <<"x">>)),
    close([A, B]).

reset_by_peer(_Config) ->
    [
        begin
            {A, B} = pair(),
            S = socket(B),
            ok = ?NIF:set(B, show_econnreset, Show),
            ok = ?NIF:set(B, active, Active),
            Ref = make_ref(),
            _ = Active orelse (wait = recv_async(B, 0, Ref)),
            ok = ?NIF:set(A, linger, {true, 0}),
            close([A]),
            case {Active, Show} of
                {true, true} -> ?assertEqual([{tcp_error, S, econnreset}, {tcp_closed, S}], messages(2));
                {true, false} -> ?assertEqual([{tcp_closed, S}], messages(1));
                {false, true} -> ?assertEqual({error, econnreset}, answer(Ref));
                {false, false} -> ?assertEqual({error, closed}, answer(Ref))
            end,
            ?assertEqual({error, closed}, recv(B, 0)),
            no_message()
        end
     || Active <- [true, false], Show <- [true, false]
    ].

%% ---------------------------------------------------------------- packets that are decoded in Erlang

decoding(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(B, packet, http_bin),
    ?assertEqual(decode, ?NIF:recv(B, 0, make_ref())),
    {ok, At, <<>>, 0} = ?NIF:peek(B),
    Ref = make_ref(),
    wait = ?NIF:wait_more(B, At, 0, Ref),
    ok = send(A, <<"GET ">>),
    ?assertEqual({more, At, <<"GET ">>, 0}, answer(Ref)),
    wait = ?NIF:wait_more(B, At, 5, Ref),
    ok = send(A, <<"/">>),
    ?assertEqual({more, At, <<"GET /">>, 0}, answer(Ref)),
    ?assertEqual(stale, ?NIF:consume(B, At + 1, 1, none, 0)),
    ?assertEqual(stale, ?NIF:consume(B, At, 6, none, 0)),
    ?assertEqual(stale, ?NIF:consume(B, At, 1, {msg, m}, 0)),
    ?assertEqual(ok, ?NIF:consume(B, At, 4, none, 7)),
    Next = At + 4,
    ?assertEqual({ok, Next, <<"/">>, 7}, ?NIF:peek(B)),
    ?assertEqual({ok, Next, <<"/">>, 7}, ?NIF:wait_more(B, At, 10, make_ref())),
    %% Another type of packets: nobody takes by the one before.
    ok = ?NIF:set(B, packet, asn1),
    ?assertEqual(stale, ?NIF:consume(B, Next, 1, none, 0)),
    ?assertEqual(stale, ?NIF:expect(B, Next, 1)),
    ?assertEqual(stale, ?NIF:reject(B, Next)),
    {ok, Last, <<"/">>, 7} = ?NIF:peek(B),
    ?assertEqual(ok, ?NIF:consume(B, Last, 1, none, 0)),
    wait = ?NIF:wait_more(B, Last + 1, 0, Ref),
    close([A]),
    ?assertEqual({error, closed}, answer(Ref)),
    close([B]).

decoding_active(_Config) ->
    {A, B} = pair(),
    S = socket(B),
    ok = ?NIF:set(B, packet, http_bin),
    ok = ?NIF:set(B, active, once),
    ok = send(A, <<"GET / HTTP/1.1\r\nHost: a\r\n">>),
    {http, S, {http_request, 'GET', {abs_path, <<"/">>}, {1, 1}}} = message(),
    no_message(),
    %% One that is there already, and then the rest in pieces.
    ok = send(A, <<"\r">>),
    ok = ?NIF:set(B, active, true),
    {http, S, {http_header, _, 'Host', _, <<"a">>}} = message(),
    ok = send(A, <<"\nGET">>),
    {http, S, http_eoh} = message(),
    close([A]),
    ?assertEqual({tcp_closed, S}, message()).

%% What comes next is the owner's.
decoding_receiver_killed(_Config) ->
    {A, B} = pair(),
    S = socket(B),
    ok = ?NIF:set(B, packet, http_bin),
    Killed = receiver(fun() ->
        {ok, At, <<>>, 0} = ?NIF:peek(B),
        wait = ?NIF:wait_more(B, At, 0, make_ref())
    end),
    kill(Killed),
    ok = ?NIF:set(B, active, once),
    ok = send(A, <<"GET / HTTP/1.1\r\n">>),
    ?assertMatch({http, S, {http_request, 'GET', _, _}}, message()),
    close([A, B]).

%% Who has waited gets the first packet, and the owner the second, which came with it.
decoding_receiver_before_the_owner(_Config) ->
    {A, B} = pair(),
    S = socket(B),
    Ref = make_ref(),
    First = <<"GET /1 HTTP/1.1\r\n">>,
    Second = <<"GET /2 HTTP/1.1\r\n">>,
    ok = ?NIF:set(B, packet, http_bin),
    {ok, At, <<>>, 0} = ?NIF:peek(B),
    wait = ?NIF:wait_more(B, At, 0, Ref),
    ok = ?NIF:set(B, active, true),
    ok = send(A, [First, Second]),
    ?assertEqual({more, At, <<First/binary, Second/binary>>, 0}, answer(Ref)),
    no_message(),
    ok = ?NIF:consume(B, At, byte_size(First), none, 0),
    ?assertMatch({http, S, {http_request, 'GET', {abs_path, <<"/2">>}, _}}, message()),
    close([A, B]).
