%% @doc The NIF below gen_tcp's interface: waiting and taking back, deaths of owners, waiters, acceptors and pollers,
%% closing while others wait, slots that are used again, queues and watermarks, and what is left over in the end.
-module(weir_socket_nif_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(NIF, weir_socket_nif).
-define(DEADLINE, 20000).

all() ->
    [
        raw_lengths,
        receivers_in_order,
        packets_in_pieces,
        large_packets,
        packet_too_large,
        lines,
        lists_and_headers,
        active_modes,
        active_counts,
        active_once_leaves_the_rest,
        many_small_packets_in_active_mode,
        closed_by_peer_active,
        closed_by_peer_passive,
        closed_by_peer_half,
        reset_by_peer,
        cancel_takes_back,
        dead_receiver_loses_nothing,
        dead_acceptor_is_passed_over,
        owner_death_closes,
        owner_death_flushes,
        close_answers_all_who_wait,
        close_flushes,
        close_now_drops,
        linger,
        watermarks,
        senders_are_not_mixed,
        shutdown_waits_for_the_queue,
        delay_send,
        long_lists,
        send_errors,
        hold_and_give,
        give_to_the_dead,
        decoding,
        decoding_active,
        refused_connect,
        connect_again,
        accept_bursts,
        out_of_descriptors,
        pollers_killed,
        pollers_suspended,
        pollers_answer_system_messages,
        slots_are_used_again,
        two_descriptors,
        taken_over,
        local_and_inet6,
        monitors,
        upgrade_and_purge,
        bad_arguments,
        random_deaths
    ].

init_per_suite(Config) ->
    {ok, Apps} = application:ensure_all_started(weir_socket),
    [{apps, Apps} | Config].

end_per_suite(Config) ->
    [ok = application:stop(App) || App <- lists:reverse(?config(apps, Config))],
    ok.

init_per_testcase(_Case, Config) ->
    [{before, left()} | Config].

end_per_testcase(_Case, Config) ->
    Before = ?config(before, Config),
    %% A message of a socket is a mention of it.
    flush(),
    eventually(fun() ->
        _ = [erlang:garbage_collect(Pid) || Pid <- processes()],
        left() =:= Before orelse {left, left(), before, Before}
    end),
    ok.

%% What must be as it was: descriptors, sockets, and slots in use.
left() ->
    Infos = [?NIF:pollset_info(N) || N <- lists:seq(0, ?NIF:pollsets() - 1)],
    {ok, Fds} = file:list_dir("/proc/self/fd"),
    #{
        sockets => lists:sum([maps:get(sockets, Info) || Info <- Infos]),
        slots => lists:sum([maps:get(slots, Info) || Info <- Infos]),
        resources => maps:get(resources, hd(Infos)),
        fds => length([Fd || Fd <- Fds, is_socket(Fd)])
    }.

is_socket(Fd) ->
    case file:read_link("/proc/self/fd/" ++ Fd) of
        {ok, "socket:" ++ _} -> true;
        _ -> false
    end.

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
            ?assertEqual({Size, {ok, Data}}, {Size, recv(B, Size)}),
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
    eventually(fun() -> maps:get(readable, ?NIF:info(Sock)) =:= false end).

frame(N, Data) -> [<<(byte_size(Data)):N/unit:8>>, Data].

large_packets(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(A, packet, 4),
    ok = ?NIF:set(B, packet, 4),
    Sizes = [16379, 16380, 16381, 65531, 65532, 65533, 200000, 1048571, 1048572, 1048573, 3000000],
    Packets = [rand:bytes(Size) || Size <- Sizes],
    Sender = spawn_link(fun() -> [ok = send_waiting(A, Packet) || Packet <- Packets] end),
    [?assert({ok, Packet} =:= recv(B, 0)) || Packet <- Packets],
    joined(Sender),
    %% Active too, with small ones between.
    ok = ?NIF:set(B, active, true),
    Mixed = lists:append([[P, <<"small">>] || P <- Packets]),
    Sender2 = spawn_link(fun() -> [ok = send_waiting(A, Packet) || Packet <- Mixed] end),
    [?assert(Packet =:= data(B)) || Packet <- Mixed],
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
    [?assertEqual(<<I:32>>, data(B)) || I <- lists:seq(1, Count)],
    joined(Sender),
    %% Those that are there when the option is set.
    ok = ?NIF:set(B, active, false),
    Sender2 = spawn_sender(A, Bytes),
    joined(Sender2),
    ok = ?NIF:set(B, active, true),
    [?assertEqual(<<I:32>>, data(B)) || I <- lists:seq(1, Count)],
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
    ok = ?NIF:shutdown(A, write, make_ref()),
    S = socket(B),
    ?assertEqual({tcp_closed, S}, message()),
    ?assertEqual(ok, send(B, <<"still">>)),
    ?assertEqual({ok, <<"still">>}, recv(A, 0)),
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

%% ---------------------------------------------------------------- waiting

cancel_takes_back(_Config) ->
    {A, B} = pair(),
    Ref = make_ref(),
    wait = recv_async(B, 0, Ref),
    ?assertEqual(ok, ?NIF:cancel(B, Ref)),
    ?assertEqual(gone, ?NIF:cancel(B, Ref)),
    ok = send(A, <<"kept">>),
    ?assertEqual({ok, <<"kept">>}, recv(B, 0)),
    wait = recv_async(B, 0, Ref),
    ok = send(A, <<"sent">>),
    Answer = answer(Ref),
    ?assertEqual({ok, <<"sent">>}, Answer),
    ?assertEqual(gone, ?NIF:cancel(B, Ref)),
    {L, _} = listen(),
    wait = ?NIF:accept(L, Ref),
    ?assertEqual(ok, ?NIF:cancel(L, Ref)),
    no_message(),
    close([A, B, L]).

dead_receiver_loses_nothing(_Config) ->
    {A, B} = pair(),
    [
        begin
            Receivers = [spawn_receiver(B, Length) || _ <- lists:seq(1, 3)],
            Ref = make_ref(),
            wait = recv_async(B, Length, Ref),
            [kill(Pid) || Pid <- Receivers],
            Data = rand:bytes(max(1, Length)),
            Sender = spawn_sender(A, Data),
            ?assertEqual({ok, Data}, answer(Ref)),
            joined(Sender)
        end
     || Length <- [0, 1, 100, 20000, 2000000]
    ],
    close([A, B]).

spawn_receiver(Sock, Length) ->
    Self = self(),
    Pid = spawn(fun() ->
        wait = recv_async(Sock, Length, make_ref()),
        Self ! {waits, self()},
        receive
            never -> ok
        end
    end),
    receive
        {waits, Pid} -> Pid
    end.

dead_acceptor_is_passed_over(_Config) ->
    {L, Port} = listen(),
    Self = self(),
    Dead = [
        spawn(fun() ->
            wait = ?NIF:accept(L, make_ref()),
            Self ! {waits, self()},
            receive
                never -> ok
            end
        end)
     || _ <- lists:seq(1, 3)
    ],
    [
        receive
            {waits, Pid} -> ok
        end
     || Pid <- Dead
    ],
    Ref = make_ref(),
    wait = ?NIF:accept(L, Ref),
    [kill(Pid) || Pid <- Dead],
    A = connect(Port),
    {ok, B} = answer(Ref),
    ok = send(A, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(B, 0)),
    close([A, B, L]).

owner_death_closes(_Config) ->
    Self = self(),
    {L, Port} = listen(),
    Owner = spawn(fun() ->
        Socks = [connect(Port) || _ <- lists:seq(1, 10)],
        {L2, _} = listen(),
        Self ! {socks, [L2 | Socks]},
        receive
            never -> ok
        end
    end),
    Peers = [accept(L) || _ <- lists:seq(1, 10)],
    Socks =
        receive
            {socks, Socks0} -> Socks0
        end,
    Refs = [make_ref() || _ <- Peers],
    [wait = recv_async(Peer, 0, Ref) || {Peer, Ref} <- lists:zip(Peers, Refs)],
    kill(Owner),
    [?assertEqual({error, closed}, answer(Ref)) || Ref <- Refs],
    eventually(fun() -> lists:all(fun(Sock) -> maps:get(state, ?NIF:info(Sock)) =:= closed end, Socks) end),
    close([L | Peers]).

%% What was queued by the time the owner died still arrives.
owner_death_flushes(_Config) ->
    {L, Port} = listen(),
    Data = rand:bytes(8000000),
    Self = self(),
    Owner = spawn(fun() ->
        A = connect(Port),
        ok = send(A, Data),
        {ok, #{send_pend := Pending}} = ?NIF:stat(A),
        Self ! {pending, Pending, A},
        receive
            never -> ok
        end
    end),
    B = accept(L),
    A =
        receive
            {pending, Pending, A0} when Pending > 0 -> A0
        end,
    kill(Owner),
    eventually(fun() -> maps:get(state, ?NIF:info(A)) =:= flushing end),
    ?assert({ok, Data} =:= recv(B, byte_size(Data))),
    ?assertEqual({error, closed}, recv(B, 0)),
    eventually(fun() -> maps:get(state, ?NIF:info(A)) =:= closed end),
    close([L, B]).

close_answers_all_who_wait(_Config) ->
    {A, B} = pair(),
    {L, Port} = listen(),
    Refs = [Recv1, Recv2, Accept, Send] = [make_ref() || _ <- lists:seq(1, 4)],
    wait = recv_async(B, 0, Recv1),
    wait = recv_async(B, 10, Recv2),
    wait = ?NIF:accept(L, Accept),
    fill(B),
    wait = ?NIF:send(B, <<"x">>, Send),
    ok = ?NIF:close_now(B),
    close([L]),
    ?assertEqual([{error, closed} || _ <- Refs], [answer(Ref) || Ref <- Refs]),
    ?assertEqual({error, closed}, ?NIF:close(B, make_ref())),
    ?assertEqual({error, closed}, ?NIF:close_now(B)),
    [
        ?assertEqual({error, closed}, Result)
     || Result <- [
            recv(B, 0),
            send(B, <<"x">>),
            ?NIF:accept(L, make_ref()),
            ?NIF:set(B, active, true),
            ?NIF:set(B, nodelay, true),
            ?NIF:get(B, nodelay),
            ?NIF:get(B, active),
            ?NIF:peername(B),
            ?NIF:sockname(B),
            ?NIF:fd(B),
            ?NIF:hold(B),
            ?NIF:give(B, self(), false),
            ?NIF:shutdown(B, write, make_ref()),
            ?NIF:peek(B, make_ref()),
            ?NIF:wait_more(B, 0, 0, make_ref()),
            ?NIF:consume(B, 0, 0, none, 0),
            ?NIF:dup(B),
            ?NIF:listen(B, 5),
            ?NIF:bind(B, {inet, {127, 0, 0, 1}, 0}),
            ?NIF:connect(B, {inet, {127, 0, 0, 1}, Port}, make_ref())
        ]
    ],
    close([A]).

close_flushes(_Config) ->
    {A, B} = pair(),
    Data = fill(A),
    Ref = make_ref(),
    wait = ?NIF:close(A, Ref),
    ?assertEqual({error, closed}, ?NIF:close(A, make_ref())),
    ?assertEqual({error, closed}, send(A, <<"x">>)),
    ?assert({ok, Data} =:= recv(B, byte_size(Data))),
    ?assertEqual(ok, answer(Ref)),
    ?assertEqual({error, closed}, recv(B, 0)),
    close([B]).

close_now_drops(_Config) ->
    {A, B} = pair(),
    _ = fill(A),
    Ref = make_ref(),
    wait = ?NIF:close(A, Ref),
    ?assertEqual(ok, ?NIF:close_now(A)),
    ?assertEqual(ok, answer(Ref)),
    close([B]).

linger(_Config) ->
    %% For 0 seconds: what is queued is dropped, and the peer sees a reset.
    {A, B} = pair(),
    ok = ?NIF:set(B, show_econnreset, true),
    _ = fill(A),
    ok = ?NIF:set(A, linger, {true, 0}),
    ?assertEqual(ok, ?NIF:close(A, make_ref())),
    ?assertEqual({error, econnreset}, drain(B)),
    %% For some: the call waits, on a dirty scheduler.
    {C, D} = pair(),
    ok = ?NIF:set(C, linger, {true, 5}),
    ok = send(C, <<"x">>),
    ?assertEqual(ok, ?NIF:close(C, make_ref())),
    ?assertEqual({ok, <<"x">>}, recv(D, 0)),
    ?assertEqual({error, closed}, recv(D, 0)),
    close([B, D]).

%% Receives until there is an error.
drain(Sock) ->
    case recv(Sock, 0) of
        {ok, _} -> drain(Sock);
        Error -> Error
    end.

%% ---------------------------------------------------------------- sending

watermarks(_Config) ->
    {A, B} = pair(),
    _ = fill(A),
    %% What is queued, and one more than that: the mark itself is too much.
    {ok, #{send_pend := Pending}} = ?NIF:stat(A),
    ok = ?NIF:set(A, high_watermark, Pending + 1),
    ok = ?NIF:set(A, low_watermark, 100),
    ?assertEqual(ok, ?NIF:send(A, <<"x">>, make_ref())),
    Refs = [make_ref() || _ <- lists:seq(1, 3)],
    [?assertEqual(wait, ?NIF:send(A, <<"y">>, Ref)) || Ref <- Refs],
    #{senders := 3} = ?NIF:info(A),
    ?assertEqual(ok, ?NIF:cancel(A, hd(Refs))),
    no_message(),
    Reader = spawn_link(fun() -> until_closed(B) end),
    [?assertEqual(retry, answer(Ref)) || Ref <- tl(Refs)],
    close([A]),
    joined(Reader),
    close([B]).

until_closed(Sock) ->
    case recv(Sock, 0) of
        {ok, _} -> until_closed(Sock);
        {error, closed} -> ok
    end.

%% Messages of processes that send at the same time on a slow connection arrive whole, and each one's in its order.
senders_are_not_mixed(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(A, packet, 4),
    ok = ?NIF:set(B, packet, 4),
    Senders = 8,
    Each = 200,
    Pids = [
        spawn_link(fun() ->
            [ok = send_waiting(A, [<<S, I:32>>, binary:copy(<<S>>, rand:uniform(20000))]) || I <- lists:seq(1, Each)]
        end)
     || S <- lists:seq(1, Senders)
    ],
    Ends = lists:foldl(
        fun(_, Next) ->
            {ok, <<S, I:32, Rest/binary>>} = recv(B, 0),
            ?assertEqual(maps:get(S, Next, 1), I),
            ?assertEqual(binary:copy(<<S>>, byte_size(Rest)), Rest),
            Next#{S => I + 1}
        end,
        #{},
        lists:seq(1, Senders * Each)
    ),
    ?assertEqual([Each + 1], lists:usort(maps:values(Ends))),
    [joined(Pid) || Pid <- Pids],
    close([A, B]).

shutdown_waits_for_the_queue(_Config) ->
    {A, B} = pair(),
    Data = fill(A),
    Ref = make_ref(),
    wait = ?NIF:shutdown(A, write, Ref),
    ?assertEqual({error, closed}, send(A, <<"x">>)),
    ?assert({ok, Data} =:= recv(B, byte_size(Data))),
    ?assertEqual(ok, answer(Ref)),
    ok = ?NIF:set(B, exit_on_close, false),
    ?assertEqual({error, closed}, recv(B, 0)),
    ok = send(B, <<"back">>),
    ?assertEqual({ok, <<"back">>}, recv(A, 0)),
    close([A, B]).

delay_send(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(A, delay_send, true),
    ok = ?NIF:set(A, high_watermark, 1000000),
    Sent = iolist_to_binary([
        begin
            Piece = rand:bytes(I),
            ok = ?NIF:send(A, Piece, make_ref()),
            Piece
        end
     || I <- lists:seq(1, 300)
    ]),
    ?assertEqual({ok, Sent}, recv(B, byte_size(Sent))),
    close([A, B]).

%% Around the number of pieces that are sent as they are.
long_lists(_Config) ->
    {A, B} = pair(),
    [
        begin
            Pieces = [rand:bytes(1 + I rem 100) || I <- lists:seq(1, Count)],
            Data = iolist_to_binary(Pieces),
            ok = ?NIF:set(A, packet, Packet),
            ok = ?NIF:set(B, packet, Packet),
            Sender = spawn_link(fun() -> ok = send(A, Pieces) end),
            ?assertEqual({ok, Data}, recv(B, case Packet of raw -> byte_size(Data); _ -> 0 end)),
            joined(Sender)
        end
     || Count <- [1, 2, 255, 256, 257, 5000], Packet <- [raw, 4]
    ],
    ok = ?NIF:set(A, packet, raw),
    ?assertEqual(ok, send(A, <<>>)),
    ?assertEqual(ok, send(A, [])),
    ?assertEqual(ok, send(A, [<<>>, <<"x">>, <<>>])),
    ok = ?NIF:set(B, packet, raw),
    ?assertEqual({ok, <<"x">>}, recv(B, 0)),
    close([A, B]).

send_errors(_Config) ->
    {ok, A} = ?NIF:open(inet, none, default),
    ?assertEqual({error, enotconn}, ?NIF:send(A, <<"x">>, make_ref())),
    ?assertEqual({error, enotconn}, ?NIF:recv(A, 0, make_ref())),
    ?assertEqual({error, enotconn}, ?NIF:shutdown(A, write, make_ref())),
    ?assertEqual({error, einval}, ?NIF:accept(A, make_ref())),
    close([A]),
    %% A peer that is gone: an error, sooner or later, and then always.
    {B, C} = pair(),
    close([C]),
    eventually(fun() -> send(B, <<"x">>) =:= {error, closed} end),
    ?assertEqual({error, closed}, send(B, <<"x">>)),
    close([B]).

%% ---------------------------------------------------------------- ownership

hold_and_give(_Config) ->
    {A, B} = pair(),
    S = socket(B),
    ok = ?NIF:set(B, active, true),
    Self = self(),
    New = spawn(fun() ->
        [Self ! {got, message()} || _ <- [1, 2, 3]],
        receive
            never -> ok
        end
    end),
    ok = send(A, <<"one">>),
    {tcp, S, <<"one">>} = message(),
    {ok, true} = ?NIF:hold(B),
    ok = send(A, <<"two">>),
    no_message(),
    ?assertEqual(ok, ?NIF:give(B, New, true)),
    ?assertEqual({got, {tcp, S, <<"two">>}}, message()),
    ?assertEqual({error, not_owner}, ?NIF:hold(B)),
    ?assertEqual({error, not_owner}, ?NIF:give(B, self(), true)),
    ok = send(A, <<"three">>),
    ?assertEqual({got, {tcp, S, <<"three">>}}, message()),
    close([A]),
    ?assertEqual({got, {tcp_closed, S}}, message()),
    kill(New),
    %% The old owner's death says nothing.
    {C, D} = pair(),
    Old = spawn(fun() ->
        receive
            {yours, Sock} ->
                {ok, false} = ?NIF:hold(Sock),
                ok = ?NIF:give(Sock, Self, false),
                Self ! given
        end
    end),
    {ok, false} = ?NIF:hold(D),
    ok = ?NIF:give(D, Old, false),
    Monitor = erlang:monitor(process, Old),
    Old ! {yours, D},
    [given, {'DOWN', Monitor, process, Old, normal}] = lists:sort(messages(2)),
    ok = send(C, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(D, 0)),
    close([C, D]).

give_to_the_dead(_Config) ->
    {A, B} = pair(),
    {Dead, Monitor} = spawn_monitor(fun() -> ok end),
    {'DOWN', Monitor, process, Dead, normal} = message(),
    {ok, false} = ?NIF:hold(B),
    ?assertEqual({error, badarg}, ?NIF:give(B, Dead, false)),
    ok = send(A, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(B, 0)),
    close([A, B]).

%% ---------------------------------------------------------------- packets that are decoded in Erlang

decoding(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(B, packet, http_bin),
    ?assertEqual(decode, ?NIF:recv(B, 0, make_ref())),
    ?assertEqual({ok, 0, <<>>, 0}, ?NIF:peek(B, make_ref())),
    Ref = make_ref(),
    wait = ?NIF:wait_more(B, 0, 0, Ref),
    ok = send(A, <<"GET ">>),
    ?assertEqual({more, 0, <<"GET ">>, 0}, answer(Ref)),
    wait = ?NIF:wait_more(B, 0, 5, Ref),
    ok = send(A, <<"/">>),
    ?assertEqual({more, 0, <<"GET /">>, 0}, answer(Ref)),
    ?assertEqual(stale, ?NIF:consume(B, 1, 1, none, 0)),
    ?assertEqual(stale, ?NIF:consume(B, 0, 6, none, 0)),
    ?assertEqual(stale, ?NIF:consume(B, 0, 1, {msg, m}, 0)),
    ?assertEqual(ok, ?NIF:consume(B, 0, 4, none, 7)),
    ?assertEqual({ok, 4, <<"/">>, 7}, ?NIF:peek(B, make_ref())),
    ?assertEqual({ok, 4, <<"/">>, 7}, ?NIF:wait_more(B, 0, 10, make_ref())),
    ?assertEqual(ok, ?NIF:consume(B, 4, 1, none, 0)),
    wait = ?NIF:wait_more(B, 5, 0, Ref),
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

%% ---------------------------------------------------------------- connecting and accepting

refused_connect(_Config) ->
    {L, Port} = listen(),
    close([L]),
    {ok, A} = ?NIF:open(inet, none, default),
    Ref = make_ref(),
    ?assertEqual({error, econnrefused}, wait(Ref, ?NIF:connect(A, {inet, {127, 0, 0, 1}, Port}, Ref))),
    close([A]).

%% After a failure, and when it is connected already.
connect_again(_Config) ->
    {L, Port} = listen(),
    close([L]),
    Address = {inet, {127, 0, 0, 1}, Port},
    {ok, A} = ?NIF:open(inet, none, default),
    Ref = make_ref(),
    {error, econnrefused} = wait(Ref, ?NIF:connect(A, Address, Ref)),
    {ok, L2} = ?NIF:open(inet, none, default),
    ok = ?NIF:set(L2, reuseaddr, true),
    ok = ?NIF:bind(L2, Address),
    ok = ?NIF:listen(L2, 5),
    ok = wait(Ref, ?NIF:connect(A, Address, Ref)),
    ?assertEqual({error, eisconn}, ?NIF:connect(A, Address, Ref)),
    ?assertEqual({error, einval}, ?NIF:listen(A, 5)),
    B = accept(L2),
    ok = send(A, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(B, 0)),
    close([A, B, L2]).

accept_bursts(_Config) ->
    Before = sockets_of_sets(),
    {L, Port} = listen(),
    ok = ?NIF:set(L, packet, 2),
    Self = self(),
    Acceptors = [
        spawn_link(fun() ->
            Socks = [accept(L) || _ <- lists:seq(1, 10)],
            Self ! {accepted, self()},
            [
                begin
                    {ok, 2} = ?NIF:get(Sock, packet),
                    {ok, Data} = recv(Sock, 0),
                    ok = send(Sock, Data)
                end
             || Sock <- Socks
            ],
            receive
                stop -> close(Socks)
            end
        end)
     || _ <- lists:seq(1, 30)
    ],
    Socks = [connect(Port) || _ <- lists:seq(1, 300)],
    [
        receive
            {accepted, Pid} -> ok
        end
     || Pid <- Acceptors
    ],
    [ok = send(Sock, frame(2, <<I:16>>)) || {I, Sock} <- lists:enumerate(Socks)],
    [?assertEqual({ok, <<2:16, I:16>>}, recv(Sock, 4)) || {I, Sock} <- lists:enumerate(Socks)],
    %% They are spread over the sets.
    Counts = [Now - Then || {Now, Then} <- lists:zip(sockets_of_sets(), Before)],
    ?assert(lists:max(Counts) - lists:min(Counts) =< 10, Counts),
    [Pid ! stop || Pid <- Acceptors],
    [joined(Pid) || Pid <- Acceptors],
    close([L | Socks]).

sockets_of_sets() -> [maps:get(sockets, ?NIF:pollset_info(N)) || N <- lists:seq(0, ?NIF:pollsets() - 1)].

%% In a node of its own, whose limit of descriptors is lowered.
out_of_descriptors(_Config) ->
    {ok, Peer, Node} = peer:start_link(#{
        name => peer:random_name(),
        connection => standard_io,
        exec => {os:find_executable("sh"), ["-c", "ulimit -n 100; exec erl \"$@\"", "sh"]},
        args => ["-pa" | [filename:absname(Dir) || Dir <- code:get_path(), Dir =/= "."]]
    }),
    _ = Node,
    ?assertEqual(ok, peer:call(Peer, ?MODULE, out_of_descriptors_here, [], 60000)),
    peer:stop(Peer).

out_of_descriptors_here() ->
    {ok, _} = application:ensure_all_started(weir_socket),
    {L, Port} = listen(),
    Refs = [Ref1, Ref2] = [make_ref(), make_ref()],
    Socks = until_full(Port),
    close([hd(Socks)]),
    Accept = [?NIF:accept(L, Ref) || Ref <- Refs],
    %% One descriptor is left, for the first that was connected; then there is none.
    [{ok, A}, {error, emfile}] = [wait(Ref, R) || {Ref, R} <- lists:zip(Refs, Accept)],
    {error, emfile} = wait(Ref1, ?NIF:accept(L, Ref1)),
    #{acceptors := 0} = ?NIF:info(L),
    close([A]),
    {ok, B} = wait(Ref2, ?NIF:accept(L, Ref2)),
    close([B, L | tl(Socks)]),
    ok.

until_full(Port) ->
    case ?NIF:open(inet, none, default) of
        {ok, Sock} ->
            Ref = make_ref(),
            ok = wait(Ref, ?NIF:connect(Sock, {inet, {127, 0, 0, 1}, Port}, Ref)),
            [Sock | until_full(Port)];
        {error, emfile} ->
            []
    end.

%% ---------------------------------------------------------------- pollers

poller(N) -> maps:get(poller, ?NIF:pollset_info(N)).

pollers() -> [poller(N) || N <- lists:seq(0, ?NIF:pollsets() - 1)].

pollers_killed(_Config) ->
    Pairs = [pair() || _ <- lists:seq(1, 10)],
    Echoes = [spawn_link(fun() -> echo(B) end) || {_, B} <- Pairs],
    Count = 300,
    Clients = [
        spawn_link(fun() ->
            [
                begin
                    ok = send(A, <<I:32>>),
                    {ok, <<I:32>>} = recv(A, 4)
                end
             || I <- lists:seq(1, Count)
            ]
        end)
     || {A, _} <- Pairs
    ],
    kill_pollers(20),
    [joined(Pid) || Pid <- Clients],
    close([A || {A, _} <- Pairs]),
    [joined(Pid) || Pid <- Echoes],
    close([B || {_, B} <- Pairs]).

%% One after the other, each when it has been started again.
kill_pollers(Times) ->
    [
        begin
            N = I rem ?NIF:pollsets(),
            Pid = poller(N),
            exit(Pid, kill),
            eventually(fun() -> poller(N) =/= Pid end)
        end
     || I <- lists:seq(1, Times)
    ].

echo(Sock) ->
    case recv(Sock, 0) of
        {ok, Data} ->
            ok = send_waiting(Sock, Data),
            echo(Sock);
        {error, closed} ->
            ok
    end.

%% What comes while no poller runs is there when they do; what needs no poller goes on.
pollers_suspended(_Config) ->
    {A, B} = pair(),
    Ref = make_ref(),
    wait = recv_async(B, 0, Ref),
    Pollers = pollers(),
    [true = erlang:suspend_process(Pid) || Pid <- Pollers],
    ok = send(A, <<"late">>),
    no_message(),
    [true = erlang:resume_process(Pid) || Pid <- Pollers],
    ?assertEqual({ok, <<"late">>}, answer(Ref)),
    %% Stale events: harvested for sockets that are closed by then.
    [true = erlang:suspend_process(Pid) || Pid <- Pollers],
    ok = send(A, <<"x">>),
    close([A, B]),
    [true = erlang:resume_process(Pid) || Pid <- Pollers],
    ok.

pollers_answer_system_messages(_Config) ->
    [
        begin
            State = sys:get_state(Pid),
            State = sys:replace_state(Pid, fun(S) -> S end),
            ok = sys:suspend(Pid),
            ok = sys:resume(Pid)
        end
     || Pid <- pollers()
    ],
    {A, B} = pair(),
    ok = send(A, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(B, 0)),
    %% Another process that polls is turned away; so is one that has been replaced.
    ?assertEqual(gone, ?NIF:poll(0, look)),
    close([A, B]).

slots_are_used_again(_Config) ->
    {L, Port} = listen(),
    Made = [maps:get(slots_made, ?NIF:pollset_info(N)) || N <- lists:seq(0, ?NIF:pollsets() - 1)],
    [
        begin
            A = connect(Port),
            B = accept(L),
            Ref = make_ref(),
            wait = recv_async(B, 0, Ref),
            _ = I rem 3 =:= 0 andalso (ok = send(A, <<"x">>)),
            close([A]),
            _ = answer(Ref),
            close([B])
        end
     || I <- lists:seq(1, 3000)
    ],
    ?assertEqual(Made, [maps:get(slots_made, ?NIF:pollset_info(N)) || N <- lists:seq(0, ?NIF:pollsets() - 1)]),
    close([L]).

%% ---------------------------------------------------------------- other ways to a socket

two_descriptors(_Config) ->
    {A, B} = pair(),
    {ok, C} = ?NIF:dup(B),
    close([B]),
    %% The connection goes on.
    ok = send(A, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(C, 0)),
    Ref = make_ref(),
    wait = recv_async(A, 0, Ref),
    close([C]),
    ?assertEqual({error, closed}, answer(Ref)),
    close([A]).

taken_over(_Config) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    A = connect(Port),
    {ok, Accepted} = gen_tcp:accept(Listen),
    {ok, Fd} = inet:getfd(Accepted),
    {ok, B} = ?NIF:open_fd(Fd, 0),
    #{pollset := 0, state := connected, fd := Fd} = ?NIF:info(B),
    {ok, C} = ?NIF:dup(B),
    ok = send(A, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(C, 0)),
    close([C, A]),
    {ok, ListenFd} = inet:getfd(Listen),
    {ok, D} = ?NIF:open_fd(ListenFd, default),
    #{state := listening} = ?NIF:info(D),
    %% The descriptors have two owners, of which the second to close finds nothing.
    close([B, D]),
    [catch_all(fun() -> gen_tcp:close(S) end) || S <- [Accepted, Listen]],
    ?assertEqual({error, ebadf}, ?NIF:open_fd(123456, default)).

catch_all(Fun) ->
    try
        Fun()
    catch
        _:_ -> ok
    end.

local_and_inet6(Config) ->
    Path = filename:join("/tmp", "weir_nif_" ++ os:getpid()),
    _ = file:delete(Path),
    _ = Config,
    ends_meet(local, {local, list_to_binary(Path)}),
    ok = file:delete(Path),
    case ?NIF:open(inet6, none, round_robin) of
        {ok, Sock} ->
            Loopback = {inet6, {0, 0, 0, 0, 0, 0, 0, 1}, 0, 0, 0},
            Has = ?NIF:bind(Sock, Loopback),
            close([Sock]),
            Has =:= ok andalso ends_meet(inet6, Loopback);
        {error, eafnosupport} ->
            ok
    end.

ends_meet(Domain, Address) ->
    {ok, L} = ?NIF:open(Domain, none, scheduler),
    ok = ?NIF:bind(L, Address),
    ok = ?NIF:listen(L, 5),
    {ok, Bound} = ?NIF:sockname(L),
    {ok, A} = ?NIF:open(Domain, none, least_loaded),
    Ref = make_ref(),
    ok = wait(Ref, ?NIF:connect(A, Bound, Ref)),
    {ok, Bound} = ?NIF:peername(A),
    B = accept(L),
    ok = send(A, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(B, 0)),
    close([A, B, L]).

monitors(_Config) ->
    {A, B} = pair(),
    {ok, Mon1} = ?NIF:monitor(B),
    {ok, Mon2} = ?NIF:monitor(B),
    ?assertEqual(true, ?NIF:cancel_monitor(Mon2)),
    ?assertEqual(false, ?NIF:cancel_monitor(Mon2)),
    ok = ?NIF:close_now(B),
    ?assertEqual({'DOWN', Mon1, socket, socket(B), closed}, message()),
    no_message(),
    ?assertEqual({error, closed}, ?NIF:monitor(B)),
    close([A]).

%% ---------------------------------------------------------------- code

%% A new version of the NIF's module takes over what the old one has made; the purge of the old one kills nobody.
upgrade_and_purge(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(B, active, true),
    S = socket(B),
    Pollers = pollers(),
    [
        begin
            _ = code:purge(Module),
            {module, Module} = code:load_file(Module),
            _ = code:purge(Module),
            ok = send(A, <<"x">>),
            ?assertEqual({tcp, S, <<"x">>}, message())
        end
     || _ <- [1, 2, 3], Module <- [?NIF, weir_socket_poller]
    ],
    ?assertEqual(Pollers, pollers()),
    close([A, B]).

bad_arguments(_Config) ->
    {A, B} = pair(),
    Ref = make_ref(),
    [
        ?assertError(badarg, erlang:apply(?NIF, Function, Arguments))
     || {Function, Arguments} <- [
            {open, [ipx, none, default]},
            {open, [inet, <<>>, default]},
            {open, [inet, none, 100000]},
            {open, [inet, none, "x"]},
            {recv, [make_ref(), 0, Ref]},
            {recv, [A, -1, Ref]},
            {recv, [A, 0, ref]},
            {send, [A, "abc", Ref]},
            {send, [A, [<<"a">> | <<"b">>], Ref]},
            {send, [A, <<1:7>>, Ref]},
            {shutdown, [A, both, Ref]},
            {give, [A, pid, true]},
            {serve, [100000]},
            {poll, [0, nap]},
            {consume, [A, 0, 0, msg, 0]}
        ]
    ],
    ?assertEqual({error, einval}, ?NIF:set(A, no_such_option, 1)),
    ?assertEqual({error, einval}, ?NIF:get(A, no_such_option)),
    ?assertEqual({error, einval}, ?NIF:set(A, packet, 3)),
    ?assertEqual({error, einval}, ?NIF:set(A, mode, tuple)),
    ?assertEqual({error, einval}, ?NIF:set(A, buffer, 0)),
    ?assertEqual({error, einval}, ?NIF:bind(A, {127, 0, 0, 1})),
    ?assertMatch({error, enoent}, ?NIF:open(inet, <<"/no/such/file">>, default)),
    close([A, B]).

%% Owners, waiters and pollers die, and sockets are closed, at any time; in the end nothing is left (end_per_testcase).
random_deaths(_Config) ->
    {L, Port} = listen(),
    Acceptors = [spawn_link(fun() -> serve_random(L) end) || _ <- lists:seq(1, 4)],
    Rounds = 300,
    lists:foreach(
        fun(I) ->
            Self = self(),
            {Client, Monitor} = spawn_monitor(fun() ->
                A = connect(Port),
                Self ! {sock, A},
                case rand:uniform(3) of
                    1 -> [ok = send_waiting(A, rand:bytes(rand:uniform(5000))) || _ <- lists:seq(1, 5)];
                    2 -> ok = ?NIF:set(A, active, true);
                    3 -> ok
                end,
                _ = recv_async(A, 0, make_ref()),
                receive
                    stop -> ok
                after rand:uniform(3) -> ok
                end
            end),
            Sock =
                receive
                    {sock, A0} -> A0
                end,
            case rand:uniform(4) of
                1 -> exit(Client, kill);
                2 -> _ = ?NIF:close_now(Sock);
                3 -> _ = ?NIF:close(Sock, make_ref());
                4 -> Client ! stop
            end,
            I rem 50 =:= 0 andalso exit(poller(I rem ?NIF:pollsets()), kill),
            receive
                {'DOWN', Monitor, process, Client, _} -> ok
            end
        end,
        lists:seq(1, Rounds)
    ),
    [unlink(Pid) || Pid <- Acceptors],
    [kill(Pid) || Pid <- Acceptors],
    close([L]),
    flush().

serve_random(L) ->
    Sock = accept(L),
    Pid = spawn(fun() ->
        receive
            go -> ok
        end,
        _ = ?NIF:set(Sock, active, true),
        receive
            {tcp, _, Data} -> _ = send(Sock, Data);
            {tcp_closed, _} -> ok
        after rand:uniform(5) -> ok
        end
    end),
    {ok, false} = ?NIF:hold(Sock),
    _ = ?NIF:give(Sock, Pid, false),
    Pid ! go,
    serve_random(L).

flush() ->
    receive
        _ -> flush()
    after 0 -> ok
    end.

%% ---------------------------------------------------------------- tools

socket(Sock) -> {'$inet', weir_socket, Sock}.

listen() ->
    {ok, L} = ?NIF:open(inet, none, default),
    ok = ?NIF:bind(L, {inet, {127, 0, 0, 1}, 0}),
    ok = ?NIF:listen(L, 1024),
    {ok, {inet, _, Port}} = ?NIF:sockname(L),
    {L, Port}.

connect(Port) ->
    {ok, A} = ?NIF:open(inet, none, default),
    Ref = make_ref(),
    ok = wait(Ref, ?NIF:connect(A, {inet, {127, 0, 0, 1}, Port}, Ref)),
    A.

accept(L) ->
    Ref = make_ref(),
    {ok, B} = wait(Ref, ?NIF:accept(L, Ref)),
    B.

%% Two ends of a connection.
pair() ->
    {L, Port} = listen(),
    A = connect(Port),
    B = accept(L),
    ok = ?NIF:close(L, make_ref()),
    {A, B}.

close(Socks) ->
    lists:foreach(
        fun(Sock) ->
            Ref = make_ref(),
            case wait(Ref, ?NIF:close(Sock, Ref)) of
                ok -> ok;
                {error, closed} -> ok
            end
        end,
        Socks
    ).

recv(Sock, Length) ->
    Ref = make_ref(),
    wait(Ref, ?NIF:recv(Sock, Length, Ref)).

recv_async(Sock, Length, Ref) -> ?NIF:recv(Sock, Length, Ref).

send(Sock, Data) ->
    Ref = make_ref(),
    case ?NIF:send(Sock, iovec(Data), Ref) of
        wait -> {waits, Ref};
        Result -> Result
    end.

iovec(Data) when is_binary(Data) -> Data;
iovec(Data) -> erlang:iolist_to_iovec(Data).

send_waiting(Sock, Data) ->
    case send(Sock, Data) of
        {waits, Ref} ->
            case answer(Ref) of
                retry -> send_waiting(Sock, Data);
                Error -> Error
            end;
        Result ->
            Result
    end.

spawn_sender(Sock, Data) -> spawn_link(fun() -> ok = send_waiting(Sock, Data) end).

%% Sends until the queue is above the high watermark. What was sent.
fill(Sock) -> fill(Sock, []).

fill(Sock, Sent) ->
    Data = rand:bytes(100000),
    Ref = make_ref(),
    case ?NIF:send(Sock, Data, Ref) of
        ok ->
            fill(Sock, [Sent, Data]);
        wait ->
            ok = ?NIF:cancel(Sock, Ref),
            iolist_to_binary(Sent)
    end.

wait(Ref, wait) -> answer(Ref);
wait(_Ref, Result) -> Result.

answer(Ref) ->
    receive
        {Ref, Result} -> Result
    after ?DEADLINE -> error(no_answer)
    end.

data(Sock) ->
    receive
        {tcp, {'$inet', weir_socket, Sock}, Data} -> Data
    after ?DEADLINE -> error(no_data)
    end.

message() ->
    receive
        Message -> Message
    after ?DEADLINE -> error(no_message)
    end.

messages(N) -> [message() || _ <- lists:seq(1, N)].

%% Nothing is on its way: the pollers have gone round since.
no_message() ->
    [_ = sys:get_state(Pid) || Pid <- pollers(), erlang:process_info(Pid, status) =/= {status, suspended}],
    receive
        Message -> error({unexpected, Message})
    after 0 -> ok
    end.

joined(Pid) ->
    Monitor = erlang:monitor(process, Pid),
    receive
        {'DOWN', Monitor, process, Pid, Reason} when Reason =:= normal; Reason =:= noproc -> ok;
        {'DOWN', Monitor, process, Pid, Reason} -> error({died, Reason})
    after ?DEADLINE -> error(still_alive)
    end.

kill(Pid) ->
    Monitor = erlang:monitor(process, Pid),
    exit(Pid, kill),
    receive
        {'DOWN', Monitor, process, Pid, _} -> ok
    end.

eventually(Fun) -> eventually(Fun, erlang:monotonic_time(millisecond) + ?DEADLINE).

eventually(Fun, Deadline) ->
    case Fun() of
        true ->
            ok;
        Other ->
            case erlang:monotonic_time(millisecond) > Deadline of
                true ->
                    error({never, Other});
                false ->
                    receive
                    after 5 -> eventually(Fun, Deadline)
                    end
            end
    end.
