%% Cases of the suite of behaviour: the ends of connections, in order and by reset; closing while others wait.
-module(weir_socket_cases_close).

-include_lib("stdlib/include/assert.hrl").

-export([
    half_closed_by_us/1,
    half_closed_by_peer/1,
    shutdown_read/1,
    shutdown_errors/1,
    exit_on_close/1,
    exit_on_close_false/1,
    reset_passive/1,
    reset_active/1,
    reset_seen_by_send/1,
    options_after_the_end/1,
    kernel_options_after_the_end/1,
    told_of_the_end/1,
    active_after_the_end/1,
    open_after_a_reset/1,
    data_before_a_reset/1,
    data_before_a_failed_send/1,
    linger_resets/1,
    linger_waits/1,
    close_writes_what_is_queued/1,
    close_while_receiving/1,
    close_while_sending/1,
    closed_twice/1,
    used_when_closed/1,
    send_to_closed/1,
    recv_times_out/1,
    recv_is_cut_short/1,
    receivers_in_order/1,
    killed_receiver/1
]).

-import(weir_kit, [start/1, result/1, until/1, until_waiting/1, kill/1, same/3]).
-import(weir_socket_test_lib, [
    listen/2, accept/1, pair/2, send/2, recv/2, recv/3, close/1, shutdown/2, setopts/2, getopts/2, getopt/2, getstat/2,
    peername/1, sockname/1, controlling_process/2, info/1, next/0, nothing/0, read_all/1, fill/1, same_bytes/2
]).
-import(weir_socket_differences, [differs/2]).

%% ---------------------------------------------------------------- half of a connection

half_closed_by_us(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, Active}]),
            ok = send(Socket, "last"),
            ok = shutdown(Socket, write),
            ?assertEqual({ok, <<"last">>}, gen_tcp:recv(Peer, 0)),
            ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0)),
            %% The other way is open, also after a send has found out that this one is not.
            differs(B, send_after_shutdown) orelse not_sent(Socket),
            ok = gen_tcp:send(Peer, "answer"),
            case Active of
                true -> {tcp, Socket, <<"answer">>} = next();
                false -> {ok, <<"answer">>} = recv(Socket, 0)
            end,
            ok = gen_tcp:close(Peer),
            case Active of
                true -> {tcp_closed, Socket} = next();
                false -> {error, closed} = recv(Socket, 0)
            end,
            _ = close(Socket),
            nothing()
        end
     || Active <- [true, false]
    ],
    %% What was accepted before arrives.
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    Large = fill(3_000_000),
    Reader = start(fun() -> read_all(Peer) end),
    ok = gen_tcp:controlling_process(Peer, element(1, Reader)),
    ok = send(Socket, Large),
    ok = shutdown(Socket, write),
    same_bytes(Large, result(Reader)),
    _ = close(Socket),
    ok.

%% How it fails is told in several ways, and in gen_tcp by another one when it is tried again.
not_sent(Socket) ->
    {error, Reason} = send(Socket, "x"),
    ?assert(lists:member(Reason, [closed, enotconn, epipe]), Reason).

half_closed_by_peer(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, Active}, {exit_on_close, false}]),
            ok = gen_tcp:send(Peer, "question"),
            ok = gen_tcp:shutdown(Peer, write),
            case Active of
                true ->
                    {tcp, Socket, <<"question">>} = next(),
                    {tcp_closed, Socket} = next();
                false ->
                    {ok, <<"question">>} = recv(Socket, 8),
                    {error, closed} = recv(Socket, 1)
            end,
            ok = send(Socket, "answer"),
            ?assertEqual({ok, <<"answer">>}, gen_tcp:recv(Peer, 6)),
            ok = send(Socket, "more"),
            ok = shutdown(Socket, write),
            ?assertEqual({ok, <<"more">>}, gen_tcp:recv(Peer, 4)),
            ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0)),
            ok = close(Socket),
            ok = gen_tcp:close(Peer),
            nothing()
        end
     || Active <- [true, false]
    ],
    ok.

shutdown_read(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    ok = shutdown(Socket, read),
    ?assertEqual({error, closed}, recv(Socket, 0)),
    ok = close(Socket),
    ok = gen_tcp:close(Peer),
    {Second, Its} = pair(B, [binary, {active, false}]),
    ok = shutdown(Second, read_write),
    ?assertEqual({error, closed}, gen_tcp:recv(Its, 0)),
    ?assertEqual({error, closed}, recv(Second, 0)),
    ok = close(Second),
    ok = gen_tcp:close(Its),
    nothing().

shutdown_errors(B) ->
    {Socket, Peer} = pair(B, [{active, false}]),
    ok = shutdown(Socket, write),
    ok = shutdown(Socket, write),
    ok = close(Socket),
    {error, Reason} = shutdown(Socket, write),
    ?assert(lists:member(Reason, [closed, einval])),
    ok = gen_tcp:close(Peer),
    nothing().

exit_on_close(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [{active, Active}]),
            ?assertEqual(true, getopt(Socket, exit_on_close)),
            ok = gen_tcp:close(Peer),
            {tcp_closed, Socket} = next(),
            differs(B, sends_when_closed) orelse not_sent(Socket),
            _ = close(Socket),
            nothing()
        end
     || Active <- [true, once, 3]
    ],
    ok.

%% It stays open, to be read from and written to, also when it is told to be active again.
exit_on_close_false(B) ->
    {Socket, Peer} = pair(B, [binary, {active, true}, {exit_on_close, false}]),
    ?assertEqual(false, getopt(Socket, exit_on_close)),
    ok = gen_tcp:shutdown(Peer, write),
    {tcp_closed, Socket} = next(),
    {ok, _} = getopts(Socket, [nodelay]),
    ok = send(Socket, "still here"),
    {ok, <<"still here">>} = gen_tcp:recv(Peer, 10),
    ok = close(Socket),
    {error, closed} = gen_tcp:recv(Peer, 0),
    ok = gen_tcp:close(Peer),
    nothing().

%% ---------------------------------------------------------------- resets

reset(Peer) ->
    ok = inet:setopts(Peer, [{linger, {true, 0}}]),
    ok = gen_tcp:close(Peer).

reset_passive(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, false}, {show_econnreset, Show}]),
            Receiver = start(fun() -> recv(Socket, 0, infinity) end),
            until_waiting(Receiver),
            reset(Peer),
            ?assertEqual({Show, {error, Reason}}, {Show, result(Receiver)}),
            not_sent(Socket),
            _ = close(Socket),
            nothing()
        end
     || {Show, Reason} <- [{false, closed}, {true, econnreset}]
    ],
    ok.

%% The peer has closed, so that the kernel refuses the second send only: it was a reset all the same.
reset_seen_by_send(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {show_econnreset, true}]),
    ok = gen_tcp:close(Peer),
    Sent = send_until_it_fails(Socket, "x"),
    Received = recv(Socket, 0),
    differs(B, reset_seen_by_send) orelse ?assertEqual({{error, econnreset}, {error, econnreset}}, {Sent, Received}),
    _ = close(Socket),
    nothing().

%% As long as nobody has closed this end, there are counters, and options of its own.
options_after_the_end(B) -> differs(B, options_after_the_end) orelse after_the_end(B).

after_the_end(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 1}, {packet_size, 10}]),
            ok = gen_tcp:send(Peer, <<1, "x", Last/binary>>),
            {ok, <<"x">>} = recv(Socket, 0),
            Reset andalso reset(Peer),
            Last =:= <<>> andalso gen_tcp:close(Peer),
            ?assertEqual({error, Reason}, recv(Socket, 0)),
            ?assertMatch({ok, [{recv_oct, _}]}, getstat(Socket, [recv_oct])),
            ok = setopts(Socket, [{packet, 2}, list]),
            ?assertEqual({ok, [{packet, 2}, {mode, list}]}, getopts(Socket, [packet, nodelay, mode])),
            _ = close(Socket),
            {error, _} = getstat(Socket, [recv_oct]),
            {error, _} = getopts(Socket, [packet]),
            _ = gen_tcp:close(Peer),
            nothing()
        end
     || {Last, Reset, Reason} <- [{<<>>, false, closed}, {<<>>, true, closed}, {<<11>>, false, emsgsize}]
    ],
    ok.

%% A passive socket: most of what the kernel could not be told any more is taken in silence, so that a program that sets
%% an option together with `active' hears of the end.
kernel_options_after_the_end(B) -> differs(B, options_after_the_end) orelse kernel_options(B).

kernel_options(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    ok = gen_tcp:close(Peer),
    {error, closed} = recv(Socket, 0),
    [
        ?assertEqual({Opt, ok}, {Opt, setopts(Socket, [Opt])})
     || Opt <- [
            {nodelay, true}, {keepalive, true}, {reuseaddr, true}, {linger, {false, 0}}, {recbuf, 10000},
            {sndbuf, 10000}, {dontroute, false}, {broadcast, false}, {raw, 6, 1, <<1:32/native>>}
        ]
    ],
    [
        ?assertEqual({Opt, {error, einval}}, {Opt, setopts(Socket, [Opt])})
     || Opt <- [{priority, 1}, {tos, 0}, {ttl, 33}, {nosuch, 1}, {nodelay, 7}]
    ],
    nothing(),
    ok = setopts(Socket, [{nodelay, true}, {active, once}]),
    {tcp_closed, Socket} = next(),
    is_over(Socket),
    nothing().

%% Whose owner has been told of the end is closed, whatever ended it.
told_of_the_end(B) -> differs(B, options_after_the_end) orelse told(B).

told(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, Active}, {packet, 1}, {packet_size, 3}]),
            End(Peer),
            Error andalso begin {tcp_error, Socket, emsgsize} = next() end,
            {tcp_closed, Socket} = next(),
            is_over(Socket),
            _ = gen_tcp:close(Peer)
        end
     || Active <- [true, once, 3],
        {End, Error} <- [
            {fun gen_tcp:close/1, false}, {fun reset/1, false}, {fun(Peer) -> ok = gen_tcp:send(Peer, <<4>>) end, true}
        ]
    ],
    nothing().

is_over(Socket) ->
    [
        ?assertEqual({Opt, {error, einval}}, {Opt, setopts(Socket, [Opt])})
     || Opt <- [{nodelay, true}, {mode, list}, {packet, 2}, {active, true}, {active, false}, {exit_on_close, false}]
    ],
    [?assertEqual({Opt, {error, einval}}, {Opt, getopts(Socket, [Opt])}) || Opt <- [nodelay, mode, active]],
    [
        ?assertEqual({error, einval}, Result)
     || Result <- [getstat(Socket, [recv_oct]), peername(Socket), sockname(Socket)]
    ],
    [
        ?assertEqual({error, closed}, Result)
     || Result <- [recv(Socket, 0), send(Socket, "x"), shutdown(Socket, write), controlling_process(Socket, self())]
    ],
    #{states := [closed]} = info(Socket),
    ?assertEqual(ok, close(Socket)),
    nothing().

%% With {exit_on_close, false} the socket stays as active as it was, and its owner is told once.
active_after_the_end(B) -> differs(B, active_after_the_end) orelse stays_active(B).

stays_active(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, Active}, {exit_on_close, false}, {packet, 1}, {packet_size, 9}]),
            case TooLong of
                true -> ok = gen_tcp:send(Peer, <<10>>);
                false -> ok = gen_tcp:shutdown(Peer, write)
            end,
            Active =:= false andalso begin {error, closed} = recv(Socket, 0) end,
            TooLong andalso begin {tcp_error, Socket, emsgsize} = next() end,
            Active =/= false andalso begin {tcp_closed, Socket} = next() end,
            ?assertEqual({ok, [{active, Active}]}, getopts(Socket, [active])),
            ok = setopts(Socket, [{active, true}]),
            Active =:= false andalso begin {tcp_closed, Socket} = next() end,
            [
                begin
                    ok = setopts(Socket, [{active, Other}]),
                    ?assertEqual({ok, [{active, Other}]}, getopts(Socket, [active])),
                    ?assertEqual({error, einval}, recv(Socket, 0))
                end
             || Other <- [once, 3, true]
            ],
            nothing(),
            ok = setopts(Socket, [{active, 3}]),
            ok = setopts(Socket, [{active, -3}]),
            {tcp_passive, Socket} = next(),
            ?assertEqual({ok, [{active, false}]}, getopts(Socket, [active])),
            TooLong orelse ?assertEqual({error, closed}, recv(Socket, 0)),
            ok = controlling_process(Socket, self()),
            {ok, [{nodelay, _}]} = getopts(Socket, [nodelay]),
            {ok, [{recv_oct, 0}]} = getstat(Socket, [recv_oct]),
            ok = send(Socket, "abc"),
            {ok, <<3, "abc">>} = gen_tcp:recv(Peer, 0),
            ok = close(Socket),
            _ = gen_tcp:close(Peer),
            nothing()
        end
        %% A passive one that has met a packet that is too long is another matter: answered_when_too_large.
     || Active <- [true, once, 5, false], TooLong <- [false | [true || Active =/= false]]
    ],
    ok.

%% Nor does a reset close it then.
open_after_a_reset(B) -> differs(B, active_after_the_end) orelse stays_open(B).

stays_open(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, Active}, {exit_on_close, false}, {show_econnreset, Show}]),
            reset(Peer),
            case Active of
                false ->
                    Reason = case Show of true -> econnreset; false -> closed end,
                    ?assertEqual({error, Reason}, recv(Socket, 0));
                _ ->
                    Show andalso begin {tcp_error, Socket, econnreset} = next() end,
                    {tcp_closed, Socket} = next()
            end,
            ?assertEqual({ok, [{active, Active}]}, getopts(Socket, [active])),
            ok = setopts(Socket, [{nodelay, true}]),
            {ok, [{send_cnt, 0}]} = getstat(Socket, [send_cnt]),
            {ok, _} = sockname(Socket),
            ?assertEqual({error, enotconn}, peername(Socket)),
            {error, _} = send(Socket, "x"),
            %% Of gen_tcp's that was told to the owner too.
            receive
                {tcp_error, Socket, econnreset} when B =/= weir -> ok
            after 0 -> ok
            end,
            _ = close(Socket),
            nothing()
        end
     || Active <- [true, once, 3, false], Show <- [false, true]
    ],
    ok.

%% The kernel keeps what had come before.
data_before_a_reset(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 1}, {show_econnreset, Show}]),
            ok = gen_tcp:send(Peer, <<1, "x", 1, "y", 1, "z">>),
            Begun andalso begin {ok, <<"x">>} = recv(Socket, 0) end,
            reset(Peer),
            until(fun() -> peername(Socket) =:= {error, enotconn} end),
            ok = setopts(Socket, [{active, Active}]),
            [?assertEqual(Data, received(Socket, Active)) || Data <- ["x" || not Begun] ++ ["y", "z"]],
            ended(Socket, Active, Show),
            _ = close(Socket),
            nothing()
        end
     || Show <- [false, true], Active <- [false, true, once, 10], Begun <- [false, true]
    ],
    ok.

%% Also when a send has found out first.
data_before_a_failed_send(B) -> differs(B, dropped_by_a_failed_send) orelse after_a_failed_send(B).

after_a_failed_send(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, false}]),
            ok = gen_tcp:send(Peer, "abc"),
            reset(Peer),
            {error, closed} = send_until_it_fails(Socket, "x"),
            ok = setopts(Socket, [{active, Active}]),
            ?assertEqual("abc", received(Socket, Active)),
            ended(Socket, Active, false),
            _ = close(Socket),
            nothing()
        end
     || Active <- [false, true, once, 10]
    ],
    ok.

received(Socket, false) ->
    {ok, Data} = recv(Socket, 0),
    binary_to_list(Data);
received(Socket, Active) ->
    {tcp, Socket, Data} = next(),
    Active =:= once andalso setopts(Socket, [{active, once}]),
    binary_to_list(Data).

ended(Socket, false, Show) ->
    Reason = case Show of true -> econnreset; false -> closed end,
    ?assertEqual({error, Reason}, recv(Socket, 0));
ended(Socket, _Active, Show) ->
    Show andalso begin {tcp_error, Socket, econnreset} = next() end,
    {tcp_closed, Socket} = next().

reset_active(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, Active}, {show_econnreset, Show}]),
            reset(Peer),
            Show andalso begin {tcp_error, Socket, econnreset} = next() end,
            {tcp_closed, Socket} = next(),
            _ = close(Socket),
            nothing()
        end
     || Show <- [false, true], Active <- [true, once, 5]
    ],
    ok.

%% Closing with {linger, {true, 0}} resets the connection.
linger_resets(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    ok = inet:setopts(Peer, [{show_econnreset, true}]),
    ok = setopts(Socket, [{linger, {true, 0}}]),
    ok = close(Socket),
    ?assertEqual({error, econnreset}, gen_tcp:recv(Peer, 0)),
    _ = gen_tcp:close(Peer),
    nothing().

%% With a time close waits until the kernel of the other end has all. (Not more than it takes without being read:
%% gen_tcp blocks the scheduler that may have to run the reader.)
linger_waits(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {linger, {true, 30}}]),
    Data = fill(40_000),
    ok = send(Socket, Data),
    ok = close(Socket),
    ?assertEqual(Data, read_all(Peer)),
    nothing().

%% ---------------------------------------------------------------- close while something is under way

%% What was accepted by send arrives, though the socket is closed and its owner gone.
close_writes_what_is_queued(B) ->
    Me = self(),
    Data = fill(3_000_000),
    Owner = start(fun() ->
        {Socket, Peer} = pair(B, [{active, false}, {sndbuf, 100_000}, {high_watermark, 4_000_000}]),
        ok = gen_tcp:controlling_process(Peer, Me),
        Me ! {peer, Peer},
        ok = send(Socket, Data),
        ok = close(Socket)
    end),
    {peer, Peer} = next(),
    until_waiting(Owner),
    same_bytes(Data, read_all(Peer)),
    ok = result(Owner),
    nothing().

close_while_receiving(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, "abc"),
    Receivers = [start(fun() -> recv(Socket, 10, infinity) end) || _ <- at_once(B, 3)],
    [until_waiting(Receiver) || Receiver <- Receivers],
    ok = close(Socket),
    [?assertEqual({error, closed}, result(Receiver)) || Receiver <- Receivers],
    ok = gen_tcp:close(Peer),
    nothing().

close_while_sending(B) -> differs(B, close_while_sending) orelse close_while_sending_by(B, [1, 2, 3]).

close_while_sending_by(B, Numbers) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {sndbuf, 4096}, {linger, {true, 0}}]),
    Data = binary:copy(<<"x">>, 100_000),
    Senders = [start(fun() -> send_until_it_fails(Socket, Data) end) || _ <- Numbers],
    [until_waiting(Sender) || Sender <- Senders],
    ok = close(Socket),
    [?assertEqual({error, closed}, result(Sender)) || Sender <- Senders],
    ok = gen_tcp:close(Peer),
    nothing().

send_until_it_fails(Socket, Data) ->
    case send(Socket, Data) of
        ok -> send_until_it_fails(Socket, Data);
        {error, _} = Error -> Error
    end.

closed_twice(B) ->
    {Socket, Peer} = pair(B, []),
    ok = close(Socket),
    closed_again(B, Socket),
    ok = gen_tcp:close(Peer),
    {Second, Its} = pair(B, [{active, true}]),
    ok = gen_tcp:close(Its),
    {tcp_closed, Second} = next(),
    ok = close(Second),
    closed_again(B, Second),
    nothing().

closed_again(B, Socket) -> differs(B, closed_twice) orelse ?assertEqual(ok, close(Socket)).

used_when_closed(B) ->
    {Socket, Peer} = pair(B, [{active, false}]),
    {ok, Listener} = listen(B, []),
    ok = close(Socket),
    ok = close(Listener),
    ?assertEqual({error, closed}, send(Socket, "x")),
    [
        begin
            {error, Reason} = Result,
            differs(B, einval_when_closed) orelse ?assertEqual(closed, Reason)
        end
     || Result <- [recv(Socket, 0), recv(Socket, 0, 0), accept(Listener)]
    ],
    [
        ?assertEqual({error, einval}, Result)
     || not differs(B, options_when_closed), Result <- [setopts(Socket, [{active, true}]), getopts(Socket, [active])]
    ],
    {error, _} = weir_socket_test_lib:controlling_process(Socket, self()),
    {error, _} = weir_socket_test_lib:getstat(Socket),
    ok = gen_tcp:close(Peer),
    nothing().

%% The first send may still be taken by the kernel; a later one finds out.
send_to_closed(B) ->
    {Socket, Peer} = pair(B, [{active, false}]),
    ok = gen_tcp:close(Peer),
    {error, closed} = send_until_it_fails(Socket, "x"),
    not_sent(Socket),
    {error, closed} = recv(Socket, 0),
    _ = close(Socket),
    nothing().

%% ---------------------------------------------------------------- time-outs

recv_times_out(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    [?assertEqual({error, timeout}, recv(Socket, Length, Time)) || Length <- [0, 1, 1000], Time <- [0, 1, 20]],
    ok = gen_tcp:send(Peer, "abcde"),
    ?assertEqual({ok, <<"abcde">>}, recv(Socket, 0)),
    ok = setopts(Socket, [{active, once}]),
    ok = gen_tcp:send(Peer, "f"),
    {tcp, Socket, <<"f">>} = next(),
    ok = close(Socket),
    ok = gen_tcp:close(Peer),
    nothing().

%% What has come when the time is over is kept for the next.
recv_is_cut_short(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, false}, {packet, Type}]),
            ok = gen_tcp:send(Peer, First),
            Length = case Type of raw -> 10; _ -> 0 end,
            %% Each of them reads what there is, or finds that it was read.
            [?assertEqual({error, timeout}, recv(Socket, Length, Time)) || Time <- [1, 0, 5]],
            ok = gen_tcp:send(Peer, Second),
            ?assertEqual({Type, {ok, Expected}}, {Type, recv(Socket, Length)}),
            ok = close(Socket),
            ok = gen_tcp:close(Peer)
        end
     || {Type, First, Second, Expected} <- [
            {raw, "abcde", "fghij", <<"abcdefghij">>},
            {2, <<0>>, <<3, "abc">>, <<"abc">>},
            {4, <<0, 0, 0, 3, "a">>, <<"bc">>, <<"abc">>},
            {line, "abc", "def\n", <<"abcdef\n">>},
            {http_bin, "GET / HT", "TP/1.0\r\n\r\n", {http_request, 'GET', {abs_path, <<"/">>}, {1, 0}}},
            {sunrm, <<0, 0>>, <<0, 1, "x">>, <<1:32, "x">>}
        ],
        not differs(B, {cut_short, Type})
    ],
    nothing().

%% How many can wait in recv at once.
at_once(B, Count) ->
    case differs(B, one_receiver) of
        true -> [1];
        false -> lists:seq(1, Count)
    end.

%% Who asked first is served first.
receivers_in_order(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 1}]),
    Receivers = [
        begin
            Receiver = start(fun() -> recv(Socket, 0, infinity) end),
            until_waiting(Receiver),
            Receiver
        end
     || _ <- at_once(B, 5)
    ],
    Count = length(Receivers),
    ok = gen_tcp:send(Peer, [<<1, I>> || I <- lists:seq(1, Count + 1)]),
    same(out_of_order, [{ok, <<I>>} || I <- lists:seq(1, Count)], [result(Receiver) || Receiver <- Receivers]),
    Last = Count + 1,
    ?assertEqual({ok, <<Last>>}, recv(Socket, 0)),
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% One that was killed while it waited takes nothing with it.
killed_receiver(B) -> differs(B, killed_receiver) orelse killed_receiver(B, 20).

killed_receiver(B, Times) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 4}]),
    [
        begin
            Receivers = [start(fun() -> recv(Socket, 0, infinity) end) || _ <- [1, 2]],
            [until_waiting(Receiver) || Receiver <- Receivers],
            [kill(Receiver) || Receiver <- Receivers],
            ok = gen_tcp:send(Peer, <<4:32, I:32>>),
            same(lost, {ok, <<I:32>>}, recv(Socket, 0))
        end
     || I <- lists:seq(1, Times)
    ],
    ok = close(Socket),
    ok = gen_tcp:close(Peer).
