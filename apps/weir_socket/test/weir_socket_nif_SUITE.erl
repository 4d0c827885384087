%% @doc The NIF below gen_tcp's interface: sending, with its queues and watermarks; connecting and accepting; other ways
%% to a socket; and what its functions refuse. What is received is in weir_socket_nif_recv_SUITE, waiting, dying and
%% closing in weir_socket_nif_life_SUITE, and the pollers in weir_socket_nif_poll_SUITE.
-module(weir_socket_nif_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, same/3]).
-import(weir_socket_nif_test_lib, [
    listen/0, connect/1, accept/1, pair/0, close/1, recv/2, recv_async/3, send/2, send_waiting/2, fill/1, wait/2,
    answer/1, no_message/0, joined/1, frame/2
]).
-import(weir_socket_test_lib, [pollset_infos/0, unused_port/0, until_nothing_leaks/1]).

-define(NIF, weir_socket_nif).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_socket_nif_test_lib:begin_suite(Config).

end_per_suite(Config) -> weir_socket_nif_test_lib:end_suite(Config).

init_per_testcase(_Case, Config) -> weir_socket_nif_test_lib:begin_case(Config).

end_per_testcase(_Case, Config) -> weir_socket_nif_test_lib:end_case(Config).

%% ---------------------------------------------------------------- sending

watermarks(_Config) ->
    {A, B} = pair(),
    _ = fill(A),
    %% What is queued, and one more than that: the mark itself is too much.
    #{send_pend := Pending} = ?NIF:info(A),
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
            same(out_of_order, maps:get(S, Next, 1), I),
            same(mixed, binary:copy(<<S>>, byte_size(Rest)), Rest),
            Next#{S => I + 1}
        end,
        #{},
        lists:seq(1, Senders * Each)
    ),
    same(messages, [Each + 1], lists:usort(maps:values(Ends))),
    [joined(Pid) || Pid <- Pids],
    close([A, B]).

shutdown_waits_for_the_queue(_Config) ->
    {A, B} = pair(),
    Data = fill(A),
    ok = ?NIF:shutdown(A, write),
    ?assertEqual({error, closed}, send(A, <<"x">>)),
    same(bytes, {ok, Data}, recv(B, byte_size(Data))),
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
    same(bytes, {ok, Sent}, recv(B, byte_size(Sent))),
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
            same(bytes, {ok, Data}, recv(B, case Packet of raw -> byte_size(Data); _ -> 0 end)),
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
    ?assertEqual({error, enotconn}, ?NIF:shutdown(A, write)),
    ?assertEqual({error, einval}, ?NIF:accept(A, make_ref())),
    close([A]),
    %% A peer that is gone: an error, sooner or later, and then always.
    {B, C} = pair(),
    close([C]),
    until(fun() -> send(B, <<"x">>) =:= {error, closed} end),
    ?assertEqual({error, closed}, send(B, <<"x">>)),
    close([B]).

%% ---------------------------------------------------------------- connecting and accepting

refused_connect(_Config) ->
    {Bound, Port} = unused_port(),
    {ok, A} = ?NIF:open(inet, none, default),
    Ref = make_ref(),
    ?assertEqual({error, econnrefused}, wait(Ref, ?NIF:connect(A, {inet, {127, 0, 0, 1}, Port}, Ref))),
    ok = socket:close(Bound),
    close([A]).

%% After a failure, and when it is connected already.
connect_again(_Config) ->
    %% Nobody else may listen on that port meanwhile: it has its name, and does not listen yet.
    {ok, L2} = ?NIF:open(inet, none, default),
    ok = ?NIF:bind(L2, {inet, {127, 0, 0, 1}, 0}),
    {ok, Address} = ?NIF:sockname(L2),
    {ok, A} = ?NIF:open(inet, none, default),
    Ref = make_ref(),
    {error, econnrefused} = wait(Ref, ?NIF:connect(A, Address, Ref)),
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
    [same(answer, {ok, <<2:16, I:16>>}, recv(Sock, 4)) || {I, Sock} <- lists:enumerate(Socks)],
    %% They are spread over the sets.
    Counts = [Now - Then || {Now, Then} <- lists:zip(sockets_of_sets(), Before)],
    ?assert(lists:max(Counts) - lists:min(Counts) =< 10, Counts),
    [Pid ! stop || Pid <- Acceptors],
    [joined(Pid) || Pid <- Acceptors],
    close([L | Socks]).

sockets_of_sets() -> [maps:get(sockets, Info) || Info <- pollset_infos()].

%% In a node of its own, whose limit of descriptors is lowered.
out_of_descriptors(_Config) ->
    ?assertEqual(ok, weir_socket_test_lib:with_descriptors(100, [], {?MODULE, out_of_descriptors_here})).

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

%% However the socket ends, the descriptor of somebody else stays open and is in no set.
lent_descriptor_leaves_its_set(_Config) ->
    [
        begin
            {A, Lent, Lender, Fd} = lent(),
            ok = ?NIF:set(Lent, linger, {true, 5}),
            End(A, Lent),
            until(fun() -> maps:get(state, ?NIF:info(Lent)) =:= closed end),
            until_nothing_leaks(fun() -> watchers(Fd) =:= 0 end),
            {ok, _} = socket:sockname(Lender),
            ?assertEqual({ok, #{onoff => true, linger => 5}}, socket:getopt(Lender, {socket, linger})),
            ok = socket:setopt(Lender, {socket, linger}, #{onoff => false, linger => 0}),
            ok = socket:close(Lender),
            close([A])
        end
     || End <- [
            fun(_, Lent) -> close([Lent]) end,
            fun(_, Lent) -> ok = ?NIF:close_now(Lent) end,
            fun(A, Lent) -> wait = recv_async(Lent, 0, make_ref()), close([A]) end,
            fun close_and_flush/2
        ]
    ].

%% A socket of a descriptor that somebody else has opened, which is in no other set, and the other end.
lent() ->
    {A, B} = pair(),
    {ok, Open} = ?NIF:fd(B),
    {ok, Lender} = socket:open(Open, #{dup => true}),
    close([B]),
    {ok, Fd} = socket:getopt(Lender, {otp, fd}),
    0 = watchers(Fd),
    {ok, Lent} = ?NIF:open_fd(Fd, default),
    1 = watchers(Fd),
    {A, Lent, Lender, Fd}.

%% Returns when the one who has closed it is told that what was queued is written.
close_and_flush(A, Lent) ->
    Sent = fill(Lent),
    Ref = make_ref(),
    wait = ?NIF:close(Lent, Ref),
    #{state := flushing} = ?NIF:info(Lent),
    {ok, Sent} = recv(A, byte_size(Sent)),
    ?assertEqual(ok, answer(Ref)).

%% How many descriptors of epoll have it.
watchers(Fd) ->
    {ok, Names} = file:list_dir("/proc/self/fdinfo"),
    Infos = [file:read_file(filename:join("/proc/self/fdinfo", Name)) || Name <- Names],
    length([found || {ok, Info} <- Infos, re:run(Info, io_lib:format("tfd: *~b ", [Fd])) =/= nomatch]).

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

%% ---------------------------------------------------------------- misuse

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
            {recv, [no_socket, 0, Ref]},
            {info, [no_socket]},
            {recv, [A, -1, Ref]},
            {recv, [A, 0, ref]},
            {send, [A, "abc", Ref]},
            {send, [A, [<<"a">> | <<"b">>], Ref]},
            {send, [A, <<1:7>>, Ref]},
            {shutdown, [A, both]},
            {give, [A, pid, true]},
            {serve, [100000]},
            {poll, [nap]},
            {consume, [A, 0, 0, msg, 0]}
        ]
    ],
    %% It may have been a socket elsewhere or before.
    ?assertEqual({error, closed}, ?NIF:recv(make_ref(), 0, Ref)),
    ?assertEqual(#{state => closed, owner => undefined}, ?NIF:info(make_ref())),
    ?assertEqual({error, einval}, ?NIF:set(A, no_such_option, 1)),
    ?assertEqual({error, einval}, ?NIF:get(A, no_such_option)),
    ?assertEqual({error, einval}, ?NIF:set(A, packet, 3)),
    ?assertEqual({error, einval}, ?NIF:set(A, mode, tuple)),
    ?assertEqual({error, einval}, ?NIF:set(A, buffer, 0)),
    ?assertEqual({error, einval}, ?NIF:bind(A, {127, 0, 0, 1})),
    ?assertMatch({error, enoent}, ?NIF:open(inet, <<"/no/such/file">>, default)),
    close([A, B]).
