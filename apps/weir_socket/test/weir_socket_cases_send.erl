%% Cases of the suite of behaviour: sending, and what happens when the other end does not read.
-module(weir_socket_cases_send).

-include_lib("stdlib/include/assert.hrl").

-export([
    shapes_of_data/1,
    parts_are_not_copied/1,
    no_data/1,
    file_has_no_header/1,
    send_not_connected/1,
    slow_reader/1,
    send_blocks/1,
    send_times_out/1,
    sent_again_after_a_time_out/1,
    send_times_out_and_closes/1,
    failed_sends_are_counted/1,
    killed_sender/1,
    many_senders/1,
    delay_send/1,
    large_both_ways/1
]).

-import(weir_kit, [start/1, result/1, until/1, until_waiting/1, kill/1, same/3]).
-import(weir_socket_test_lib, [
    listen/2, pair/2, send/2, recv/2, close/1, shutdown/2, setopts/2, getopt/2, getstat/2, next/0, nothing/0,
    read_all/1, fill/1, same_bytes/2
]).
-import(weir_socket_differences, [differs/2]).

%% What sendfile sends are bytes, whatever a packet is.
file_has_no_header(B) ->
    File = weir_socket_test_lib:tmp("file"),
    Content = fill(300_000),
    ok = file:write_file(File, Content),
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, false}, {packet, Type}]),
            Reader = start(fun() -> gen_tcp:recv(Peer, 300_000 + 2 * Type + 2) end),
            ok = send(Socket, "a"),
            ?assertEqual({ok, 300_000}, file:sendfile(File, Socket)),
            ok = send(Socket, "b"),
            ?assertEqual({ok, <<1:Type/unit:8, "a", Content/binary, 1:Type/unit:8, "b">>}, result(Reader)),
            ok = close(Socket),
            _ = gen_tcp:close(Peer)
        end
     || Type <- [0, 1, 2, 4]
    ],
    part_of_a_file(B, File, Content).

part_of_a_file(B, File, Content) ->
    {Socket, Peer} = pair(B, [{active, false}]),
    {ok, Open} = file:open(File, [read, raw]),
    {ok, 7} = file:position(Open, 7),
    [
        begin
            ?assertEqual({ok, Sent}, file:sendfile(Open, Socket, Offset, Bytes, [])),
            Expected = binary:part(Content, Offset, Sent),
            Sent > 0 andalso ?assertEqual({ok, Expected}, gen_tcp:recv(Peer, Sent))
        end
     || {Offset, Bytes, Sent} <- [{5, 9, 9}, {299_999, 0, 1}, {299_990, 20, 10}, {0, 1, 1}]
    ],
    {ok, 7} = file:position(Open, cur),
    ok = file:close(Open),
    ok = close(Socket),
    ok = gen_tcp:close(Peer),
    nothing().

shapes_of_data(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    Large = fill(100_000),
    Shapes = [
        "string",
        <<"binary">>,
        <<>>,
        [],
        [[], [<<>>, []], <<>>],
        ["a", <<"b">>, $c, [[["d"], <<"e">>] | <<"f">>]],
        [$a | <<"tail">>],
        binary:part(Large, 1, 70_000),
        [Large, "between", Large | Large],
        %% More parts than one call of the kernel takes (1024).
        [<<I:16>> || I <- lists:seq(1, 5000)],
        [binary:part(Large, I, 65 + I) || I <- lists:seq(1, 3000)],
        lists:duplicate(100, [$x, Large, $y])
    ],
    [
        begin
            Expected = iolist_to_binary(Shape),
            Size = byte_size(Expected),
            Sender = start(fun() -> send(Socket, Shape) end),
            Size > 0 andalso begin {ok, Expected} = gen_tcp:recv(Peer, Size) end,
            ok = result(Sender)
        end
     || Shape <- lists:droplast(Shapes)
    ],
    %% The peer reads the last one in pieces.
    Sender = start(fun() -> ok = send(Socket, lists:last(Shapes)), close(Socket) end),
    same(bytes, erlang:md5(lists:last(Shapes)), md5_all(Peer, erlang:md5_init())),
    _ = result(Sender),
    ok = gen_tcp:close(Peer),
    nothing().

%% What waits in the queue are the sender's binaries, however many there are.
parts_are_not_copied(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    %% The memory is looked at each time that something is received.
    ok = inet:setopts(Peer, [{buffer, 65536}]),
    Parts = parts(differs(B, many_large_parts)),
    Part = binary:copy(<<"x">>, 1_000_000),
    Before = weir_socket_test_lib:memory(binary),
    Sender = start(fun() -> ok = send(Socket, lists:duplicate(Parts, Part)), close(Socket) end),
    {Bytes, Most} = length_all(Peer, 0, 0),
    same(bytes, Parts * 1_000_000, Bytes),
    ?assert(Most - Before < 100_000_000),
    ok = result(Sender),
    ok = gen_tcp:close(Peer),
    nothing().

parts(false) -> 300;
parts(true) -> 3.

%% How much it was, and the most memory that binaries took meanwhile.
length_all(Peer, Bytes, Most) ->
    case gen_tcp:recv(Peer, 0) of
        {ok, Data} -> length_all(Peer, Bytes + byte_size(Data), max(Most, weir_socket_test_lib:memory(binary)));
        {error, closed} -> {Bytes, Most}
    end.

md5_all(Peer, Context) ->
    case gen_tcp:recv(Peer, 0) of
        {ok, Data} -> md5_all(Peer, erlang:md5_update(Context, Data));
        {error, closed} -> erlang:md5_final(Context)
    end.

no_data(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    [
        ?assertEqual({Data, refused}, {Data, refused(fun() -> send(Socket, Data) end)})
     || Data <- [atom, 256, -1, 1.0, [a], ["x", 256], ["x", -1], [<<1:3>>], <<1:1>>, {}, ["x" | y]] ++
            [Byte || Byte <- [0, 1, 255], not differs(B, number_is_data)]
    ],
    %% Nothing of it was sent, and the socket is as it was.
    ok = send(Socket, "x"),
    ?assertEqual({ok, <<"x">>}, gen_tcp:recv(Peer, 0)),
    ok = close(Socket),
    ok = gen_tcp:close(Peer),
    nothing().

refused(Fun) ->
    try Fun() of
        {error, einval} -> refused;
        {error, badarg} -> refused;
        {error, {invalid, _}} -> refused;
        Other -> Other
    catch
        error:_ -> refused;
        exit:_ -> refused
    end.

send_not_connected(B) ->
    {ok, Listener} = listen(B, [{active, false}]),
    [
        ?assertEqual({error, enotconn}, Result)
     || not differs(B, not_connected), Result <- [send(Listener, "x"), recv(Listener, 0), shutdown(Listener, write)]
    ],
    ok = close(Listener),
    nothing().

%% A reader that takes little at a time gets everything in order.
slow_reader(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {sndbuf, 50_000}]),
    Data = fill(2_000_000),
    Sender = start(fun() ->
        [ok = send(Socket, binary:part(Data, I * 10_000, 10_000)) || I <- lists:seq(0, 199)],
        close(Socket)
    end),
    until_waiting(Sender),
    same_bytes(Data, slowly(Peer, 2_000_000, 1)),
    ok = result(Sender),
    {error, closed} = gen_tcp:recv(Peer, 0),
    ok = gen_tcp:close(Peer),
    nothing().

slowly(_Peer, 0, _Size) ->
    <<>>;
slowly(Peer, Left, Size) ->
    Now = min(Left, Size),
    {ok, Data} = gen_tcp:recv(Peer, Now),
    <<Data/binary, (slowly(Peer, Left - Now, min(2 * Size, 100_000)))/binary>>.

%% When the kernel takes no more and the queue is at its high watermark, the sender waits, and not before.
send_blocks(B) ->
    Watermarks = [{high_watermark, 300_000}, {low_watermark, 100_000}],
    {Socket, Peer} = pair(B, [binary, {active, false}, {sndbuf, 50_000} | Watermarks]),
    Sent = counters:new(1, []),
    Sender = start(fun() -> send_counted(Socket, Sent, 0) end),
    case differs(B, watermarks) of
        true ->
            until_waiting(Sender);
        false ->
            until(fun() -> pending(Socket) >= 300_000 end),
            %% One send more than would have filled it exactly, at most.
            ?assert(pending(Socket) < 302_000)
    end,
    Blocked = counters:get(Sent, 1),
    %% It goes on when there is room, and waits again.
    {ok, First} = gen_tcp:recv(Peer, Blocked * 1000),
    until(fun() -> counters:get(Sent, 1) > Blocked end),
    check_counted(First, 0),
    kill(Sender),
    ok = gen_tcp:close(Peer),
    _ = close(Socket),
    nothing().

pending(Socket) ->
    {ok, [{send_pend, Pending}]} = getstat(Socket, [send_pend]),
    Pending.

send_counted(Socket, Sent, I) ->
    ok = send(Socket, <<I:32, 0:(996 * 8)>>),
    counters:add(Sent, 1, 1),
    send_counted(Socket, Sent, I + 1).

check_counted(<<>>, _) -> ok;
check_counted(<<I:32, 0:(996 * 8), Rest/binary>>, I) -> check_counted(Rest, I + 1);
check_counted(<<Other:32, _/binary>>, I) -> weir_kit:fault({out_of_order, #{expected => I, actual => Other}}).

%% What a send that timed out has left behind is sent nevertheless, in order: parts of it may have left already.
send_times_out(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {sndbuf, 50_000}, {send_timeout, 20}]),
    ?assertEqual(20, getopt(Socket, send_timeout)),
    Accepted = until_timeout(B, Socket, 0),
    ?assertEqual(false, getopt(Socket, send_timeout_close)),
    {ok, Received} = gen_tcp:recv(Peer, Accepted * 1000),
    check_counted(Received, 0),
    %% There is room again.
    ok = setopts(Socket, [{send_timeout, infinity}]),
    ok = send(Socket, <<"last">>),
    _ = close(Socket),
    Rest = read_all(Peer),
    ?assertEqual(<<"last">>, binary:part(Rest, byte_size(Rest), -4)),
    ok = gen_tcp:close(Peer),
    nothing().

%% Nothing of a packet that has timed out was taken, and no empty packet sends it later: it has to be sent again.
sent_again_after_a_time_out(B) -> differs(B, sends_after_the_time_out) orelse sent_again(B).

sent_again(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {sndbuf, 50_000}, {send_timeout, 20}]),
    Accepted = until_timeout(B, Socket, 0),
    ok = setopts(Socket, [{send_timeout, infinity}]),
    Reader = start(fun() -> read_all(Peer) end),
    ok = gen_tcp:controlling_process(Peer, element(1, Reader)),
    ok = send(Socket, <<>>),
    ok = send(Socket, <<Accepted:32, 0:(996 * 8)>>),
    ok = close(Socket),
    Received = result(Reader),
    same(bytes, (Accepted + 1) * 1000, byte_size(Received)),
    check_counted(Received, 0),
    nothing().

%% How many were accepted.
until_timeout(B, Socket, I) ->
    case send(Socket, <<I:32, 0:(996 * 8)>>) of
        ok ->
            until_timeout(B, Socket, I + 1);
        {error, Reason} ->
            case differs(B, send_timeout_with_rest) of
                true -> ok;
                false -> timeout = Reason
            end,
            I
    end.

send_times_out_and_closes(B) ->
    Opts = [binary, {active, false}, {sndbuf, 50_000}, {send_timeout, 20}, {send_timeout_close, true}],
    {Socket, Peer} = pair(B, Opts),
    Accepted = until_timeout(B, Socket, 0),
    {error, Reason} = send(Socket, "x"),
    ?assert(lists:member(Reason, [closed, einval, enotconn])),
    {error, Why} = recv(Socket, 0),
    ?assert(lists:member(Why, [closed, enotconn | [einval || differs(B, einval_when_closed)]]), Why),
    %% What had left is a beginning of what was sent.
    Received = read_all(Peer),
    Whole = byte_size(Received) div 1000,
    ?assert(Whole =< Accepted + 1),
    check_counted(binary:part(Received, 0, Whole * 1000), 0),
    _ = close(Socket),
    ok = gen_tcp:close(Peer),
    nothing().

%% One that is killed while it waits does not hinder the others.
killed_sender(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {sndbuf, 50_000}, {packet, 4}]),
    Senders = [start(fun() -> send_for_ever(Socket) end) || _ <- [1, 2, 3]],
    [until_waiting(Sender) || Sender <- Senders],
    [kill(Sender) || Sender <- Senders],
    differs(B, killed_in_a_packet) orelse sent_behind(Socket, Peer),
    ok = close(Socket),
    ok = gen_tcp:close(Peer),
    nothing().

sent_behind(Socket, Peer) ->
    Last = start(fun() -> send(Socket, <<"last">>) end),
    ok = inet:setopts(Peer, [{packet, 4}]),
    <<"last">> = frames_until_last(Peer),
    ok = result(Last).

send_for_ever(Socket) ->
    ok = send(Socket, binary:copy(<<"x">>, 1000)),
    send_for_ever(Socket).

frames_until_last(Peer) ->
    case gen_tcp:recv(Peer, 0) of
        {ok, <<"last">> = Last} ->
            Last;
        {ok, Frame} ->
            same(frame, binary:copy(<<"x">>, 1000), Frame),
            frames_until_last(Peer)
    end.

%% Fifty processes send on one socket, in sizes of their own: all arrives, whole, and each one's in its order.
many_senders(B) ->
    Count = 50,
    Each = 100,
    {Socket, Peer} = pair(B, [binary, {active, false}, {sndbuf, 50_000}, {packet, 4}]),
    Senders = [
        start(fun() -> [ok = send(Socket, message(Sender, I)) || I <- lists:seq(1, Each)], ok end)
     || Sender <- lists:seq(1, Count)
    ],
    ok = inet:setopts(Peer, [{packet, 4}]),
    Last = receive_messages(Peer, Count * Each, #{}),
    same(messages, maps:from_list([{Sender, Each} || Sender <- lists:seq(1, Count)]), Last),
    [ok = result(Sender) || Sender <- Senders],
    ok = close(Socket),
    {error, closed} = gen_tcp:recv(Peer, 0),
    ok = gen_tcp:close(Peer),
    nothing().

message(Sender, I) ->
    Size = (Sender * 37 + I * 101) rem 4000,
    [<<Sender:32, I:32>>, binary:copy(<<Sender, I>>, Size div 2), binary:copy(<<Sender>>, Size rem 2)].

receive_messages(_Peer, 0, Last) ->
    Last;
receive_messages(Peer, Left, Last) ->
    {ok, <<Sender:32, I:32, _/binary>> = Message} = gen_tcp:recv(Peer, 0),
    same(message, iolist_to_binary(message(Sender, I)), Message),
    same(out_of_order, maps:get(Sender, Last, 0) + 1, I),
    receive_messages(Peer, Left - 1, Last#{Sender => I}).

%% Sends are put together, and arrive without anything more being done.
delay_send(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {delay_send, true}]),
    [ok = send(Socket, <<I>>) || I <- lists:seq(1, 100)],
    ?assertEqual({ok, list_to_binary(lists:seq(1, 100))}, gen_tcp:recv(Peer, 100)),
    ok = send(Socket, "end"),
    ok = close(Socket),
    ?assertEqual(<<"end">>, read_all(Peer)),
    ok = gen_tcp:close(Peer),
    nothing().

%% 64 MB in each direction at once. Both ends are of the implementation under test.
large_both_ways(B) ->
    Size = 64 * 1024 * 1024,
    {ok, Listener} = listen(B, [binary, {active, false}, {ip, {127, 0, 0, 1}}, {buffer, 65536}]),
    {ok, Port} = weir_socket_test_lib:port(Listener),
    {ok, One} = weir_socket_test_lib:connect(B, {127, 0, 0, 1}, Port, [binary, {active, false}, {buffer, 65536}]),
    {ok, Two} = weir_socket_test_lib:accept(Listener),
    Blocks = [block(I) || I <- lists:seq(1, 7)],
    Senders = [start(fun() -> send_blocks(Socket, Blocks, [], Size) end) || Socket <- [One, Two]],
    %% One end is read as a passive socket, the other as an active one.
    Passive = start(fun() -> expect_passive(One, expected(Blocks), Size) end),
    ok = setopts(Two, [{active, 20}]),
    all = expect_active(Two, expected(Blocks), Size),
    all = result(Passive),
    [ok = result(Sender) || Sender <- Senders],
    [ok = close(Socket) || Socket <- [One, Two, Listener]],
    ok.

%% Blocks of different sizes, none a multiple of another's.
block(I) -> binary:part(fill(100_000), 0, 50_021 + I * 7001).

send_blocks(_Socket, _Blocks, _Next, 0) ->
    ok;
send_blocks(Socket, Blocks, [], Left) ->
    send_blocks(Socket, Blocks, Blocks, Left);
send_blocks(Socket, Blocks, [Block | Next], Left) ->
    Size = min(Left, byte_size(Block)),
    ok = send(Socket, binary:part(Block, 0, Size)),
    send_blocks(Socket, Blocks, Next, Left - Size).

%% What is to come: {the round, what is left of it}.
expected(Blocks) ->
    Round = iolist_to_binary(Blocks),
    {Round, Round}.

%% Takes away what has come, if it is what had to come.
take(<<>>, Expected) ->
    Expected;
take(Data, {Round, <<>>}) ->
    take(Data, {Round, Round});
take(Data, {Round, Left}) ->
    Size = min(byte_size(Data), byte_size(Left)),
    <<Now:Size/binary, Rest/binary>> = Data,
    <<Wanted:Size/binary, Then/binary>> = Left,
    case Now of
        Wanted -> take(Rest, {Round, Then});
        _ -> weir_kit:fault({other_bytes, Size})
    end.

expect_passive(_Socket, _Expected, 0) ->
    all;
expect_passive(Socket, Expected, Left) ->
    {ok, Data} = recv(Socket, 0),
    expect_passive(Socket, take(Data, Expected), Left - byte_size(Data)).

expect_active(_Socket, _Expected, 0) ->
    all;
expect_active(Socket, Expected, Left) ->
    case next() of
        {tcp, Socket, Data} ->
            expect_active(Socket, take(Data, Expected), Left - byte_size(Data));
        {tcp_passive, Socket} ->
            ok = setopts(Socket, [{active, 20}]),
            expect_active(Socket, Expected, Left)
    end.

%% A packet that the kernel was asked to take counts, also if it did not; one that is refused before does not.
failed_sends_are_counted(B) ->
    [
        begin
            {Socket, Peer} = pair(B, [binary, {active, false}, {packet, Type}]),
            ok = send(Socket, "abc"),
            ok = shutdown(Socket, How),
            differs(B, failed_sends_are_counted) orelse
                begin
                    {error, closed} = send(Socket, "defg"),
                    Counted = {ok, [{send_cnt, 2}, {send_oct, 7 + 2 * Type}, {send_max, 4 + Type}]},
                    ?assertEqual(Counted, getstat(Socket, [send_cnt, send_oct, send_max])),
                    {error, _} = send(Socket, "hi"),
                    ?assertEqual(Counted, getstat(Socket, [send_cnt, send_oct, send_max]))
                end,
            _ = close(Socket),
            ok = gen_tcp:close(Peer)
        end
     || Type <- [0, 1], How <- [write, read_write]
    ],
    nothing().
