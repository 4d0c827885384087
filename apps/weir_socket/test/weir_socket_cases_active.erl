%% Cases of the suite of behaviour: active modes, their counting, the order of messages.
-module(weir_socket_cases_active).

-include_lib("stdlib/include/assert.hrl").

-export([
    active_true/1,
    active_once/1,
    active_once_is_one_packet/1,
    active_n/1,
    active_n_adds_up/1,
    active_n_limits/1,
    active_n_reset/1,
    active_n_packets_of_one_read/1,
    active_n_at_start/1,
    changes_of_mode/1,
    recv_in_active_mode/1,
    closed_after_data/1,
    closed_while_passive/1,
    closed_while_passive_with_data/1,
    forms_of_data/1
]).

-import(weir_kit, [start/1, result/1, same/3]).
-import(weir_socket_test_lib, [
    pair/2, pair/3, send/2, recv/2, recv/3, close/1, setopts/2, getopt/2, next/0, nothing/0
]).
-import(weir_socket_differences, [differs/2]).

active_true(B) ->
    [
        begin
            {Socket, Peer} = pair(B, Side, [binary, {packet, 1}]),
            %% It is the default.
            ?assertEqual(true, getopt(Socket, active)),
            ok = gen_tcp:send(Peer, <<1, "a", 2, "bc", 0, 1, "d">>),
            [{tcp, Socket, Data} = next() || Data <- [<<"a">>, <<"bc">>, <<>>, <<"d">>]],
            ok = send(Socket, <<"answer">>),
            {ok, <<6, "answer">>} = gen_tcp:recv(Peer, 7),
            ?assertEqual(true, getopt(Socket, active)),
            ok = gen_tcp:close(Peer),
            {tcp_closed, Socket} = next(),
            ok = close(Socket),
            nothing()
        end
     || Side <- [connected, accepted]
    ],
    ok.

active_once(B) ->
    {Socket, Peer} = pair(B, [binary, {active, once}]),
    ?assertEqual(once, getopt(Socket, active)),
    ok = gen_tcp:send(Peer, "first"),
    {tcp, Socket, <<"first">>} = next(),
    ?assertEqual(false, getopt(Socket, active)),
    ok = gen_tcp:send(Peer, "second"),
    {ok, <<"second">>} = recv(Socket, 0),
    ok = setopts(Socket, [{active, once}]),
    ok = gen_tcp:send(Peer, "third"),
    {tcp, Socket, <<"third">>} = next(),
    %% What waits is delivered as soon as it is asked for.
    ok = gen_tcp:send(Peer, "fourth"),
    nothing(),
    ok = setopts(Socket, [{active, once}]),
    {tcp, Socket, <<"fourth">>} = next(),
    nothing(),
    ok = setopts(Socket, [{active, once}]),
    ok = gen_tcp:close(Peer),
    {tcp_closed, Socket} = next(),
    ok = close(Socket),
    nothing().

%% Packets that came together are delivered one by one.
active_once_is_one_packet(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 1}]),
    ok = gen_tcp:send(Peer, [<<1, I>> || I <- lists:seq(1, 100)]),
    [
        begin
            ok = setopts(Socket, [{active, once}]),
            {tcp, Socket, <<I>>} = next(),
            ?assertEqual(false, getopt(Socket, active)),
            nothing()
        end
     || I <- lists:seq(1, 100)
    ],
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

active_n(B) ->
    {Socket, Peer} = pair(B, [binary, {active, 3}, {packet, 1}]),
    ?assertEqual(3, getopt(Socket, active)),
    ok = gen_tcp:send(Peer, <<1, "a">>),
    {tcp, Socket, <<"a">>} = next(),
    ?assertEqual(2, getopt(Socket, active)),
    ok = gen_tcp:send(Peer, <<1, "b", 1, "c", 1, "d", 1, "e">>),
    {tcp, Socket, <<"b">>} = next(),
    {tcp, Socket, <<"c">>} = next(),
    {tcp_passive, Socket} = next(),
    ?assertEqual(false, getopt(Socket, active)),
    nothing(),
    {ok, <<"d">>} = recv(Socket, 0),
    ok = setopts(Socket, [{active, 1}]),
    {tcp, Socket, <<"e">>} = next(),
    {tcp_passive, Socket} = next(),
    ok = close(Socket),
    nothing(),
    ok = gen_tcp:close(Peer).

%% N is added to what is left; zero and less make it passive, with a message each time.
active_n_adds_up(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 1}]),
    Steps = [
        {1, 1},
        {2, 3},
        {-1, 2},
        {0, 2},
        {40, 42},
        {-42, passive},
        {7, 7},
        {-6, 1},
        {-2, passive},
        {0, passive},
        {-5, passive},
        {3, 3}
    ],
    [
        begin
            ok = setopts(Socket, [{active, N}]),
            case Expected of
                passive ->
                    {tcp_passive, Socket} = next(),
                    ?assertEqual({N, false}, {N, getopt(Socket, active)});
                _ ->
                    ?assertEqual({N, Expected}, {N, getopt(Socket, active)})
            end,
            nothing()
        end
     || {N, Expected} <- Steps
    ],
    ok = gen_tcp:send(Peer, <<1, "a", 1, "b", 1, "c", 1, "d">>),
    [{tcp, Socket, Data} = next() || Data <- [<<"a">>, <<"b">>, <<"c">>]],
    {tcp_passive, Socket} = next(),
    {ok, <<"d">>} = recv(Socket, 0),
    ok = close(Socket),
    nothing(),
    ok = gen_tcp:close(Peer).

active_n_limits(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    ok = setopts(Socket, [{active, 32767}]),
    ?assertEqual(32767, getopt(Socket, active)),
    ?assertEqual({error, einval}, setopts(Socket, [{active, 1}])),
    ?assertEqual(32767, getopt(Socket, active)),
    ok = setopts(Socket, [{active, -32767}]),
    {tcp_passive, Socket} = next(),
    ok = setopts(Socket, [{active, -32768}]),
    {tcp_passive, Socket} = next(),
    ?assertEqual({error, einval}, setopts(Socket, [{active, 32768}])),
    ?assertEqual({error, einval}, setopts(Socket, [{active, -32769}])),
    ?assertEqual(false, getopt(Socket, active)),
    ok = setopts(Socket, [{active, 32766}]),
    ok = setopts(Socket, [{active, 1}]),
    ?assertEqual(32767, getopt(Socket, active)),
    ok = setopts(Socket, [{active, -32768}]),
    {tcp_passive, Socket} = next(),
    nothing(),
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% The other modes forget the count.
active_n_reset(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 1}]),
    [
        begin
            ok = setopts(Socket, [{active, 10}]),
            ok = setopts(Socket, [{active, Mode}]),
            ?assertEqual(Mode, getopt(Socket, active)),
            ok = setopts(Socket, [{active, 2}]),
            ?assertEqual(2, getopt(Socket, active)),
            ok = setopts(Socket, [{active, false}]),
            differs(B, passive_when_told) orelse nothing()
        end
     || Mode <- [true, once, false]
    ],
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% More packets in one read than are wanted, at every number wanted.
active_n_packets_of_one_read(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 2}]),
    [
        begin
            ok = gen_tcp:send(Peer, [<<1:16, I>> || I <- lists:seq(1, 20)]),
            ok = setopts(Socket, [{active, N}]),
            [{tcp, Socket, <<I>>} = next() || I <- lists:seq(1, N)],
            {tcp_passive, Socket} = next(),
            nothing(),
            [?assertEqual({ok, <<I>>}, recv(Socket, 0)) || I <- lists:seq(N + 1, 20)]
        end
     || N <- lists:seq(1, 20)
    ],
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

active_n_at_start(B) ->
    [
        begin
            {Socket, Peer} = pair(B, Side, [{active, 2}, {packet, line}]),
            ok = gen_tcp:send(Peer, "one\ntwo\nthree\n"),
            {tcp, Socket, "one\n"} = next(),
            {tcp, Socket, "two\n"} = next(),
            {tcp_passive, Socket} = next(),
            {ok, "three\n"} = recv(Socket, 0),
            ok = close(Socket),
            ok = gen_tcp:close(Peer),
            nothing()
        end
     || Side <- [connected, accepted]
    ],
    ok.

%% Whatever the mode is changed to while data arrives, nothing is lost and all is in order.
changes_of_mode(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 4}]),
    Count = 3000,
    Sender = start(fun() ->
        [ok = gen_tcp:send(Peer, <<4:32, I:32>>) || I <- lists:seq(1, Count)],
        sent
    end),
    change(Socket, 1, Count),
    sent = result(Sender),
    ok = close(Socket),
    nothing(),
    ok = gen_tcp:close(Peer).

change(_Socket, I, Count) when I > Count ->
    ok;
change(Socket, I, Count) ->
    case I rem 5 of
        0 ->
            ok = setopts(Socket, [{active, once}]),
            {tcp, Socket, <<I:32>>} = next(),
            change(Socket, I + 1, Count);
        1 ->
            {ok, <<I:32>>} = recv(Socket, 0),
            change(Socket, I + 1, Count);
        2 ->
            N = min(3, Count - I + 1),
            ok = setopts(Socket, [{active, N}]),
            [{tcp, Socket, <<J:32>>} = next() || J <- lists:seq(I, I + N - 1)],
            {tcp_passive, Socket} = next(),
            change(Socket, I + N, Count);
        _ ->
            ok = setopts(Socket, [{active, true}]),
            {tcp, Socket, <<I:32>>} = next(),
            ok = setopts(Socket, [{active, false}]),
            change(Socket, flushed(Socket, I + 1), Count)
    end.

%% Nothing more comes after setopts has returned.
flushed(Socket, I) ->
    receive
        {tcp, Socket, <<J:32>>} ->
            same(out_of_order, I, J),
            flushed(Socket, I + 1)
    after 0 -> I
    end.

recv_in_active_mode(B) ->
    {Socket, Peer} = pair(B, [binary, {active, true}]),
    ?assertEqual({error, einval}, recv(Socket, 0)),
    ok = setopts(Socket, [{active, 5}]),
    ?assertEqual({error, einval}, recv(Socket, 0)),
    ok = setopts(Socket, [{active, once}]),
    ?assertEqual({error, einval}, recv(Socket, 0, 0)),
    ok = gen_tcp:send(Peer, "x"),
    {tcp, Socket, <<"x">>} = next(),
    ok = close(Socket),
    ok = gen_tcp:close(Peer),
    nothing().

%% Data, the end of a count, the close: in this order.
closed_after_data(B) ->
    {Socket, Peer} = pair(B, [binary, {active, 2}, {packet, 1}]),
    ok = gen_tcp:send(Peer, <<1, "a", 1, "b", 1, "c">>),
    ok = gen_tcp:close(Peer),
    {tcp, Socket, <<"a">>} = next(),
    {tcp, Socket, <<"b">>} = next(),
    {tcp_passive, Socket} = next(),
    ok = setopts(Socket, [{active, 5}]),
    {tcp, Socket, <<"c">>} = next(),
    {tcp_closed, Socket} = next(),
    nothing(),
    %% What is left of a packet is dropped.
    {Second, Its} = pair(B, [binary, {active, true}, {packet, 1}]),
    ok = gen_tcp:send(Its, <<1, "a", 5, "b">>),
    ok = gen_tcp:close(Its),
    {tcp, Second, <<"a">>} = next(),
    {tcp_closed, Second} = next(),
    ok = close(Socket),
    ok = close(Second),
    nothing().

%% A close that was not read yet is told when somebody asks, once.
closed_while_passive(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    ok = gen_tcp:close(Peer),
    ?assertEqual({error, closed}, recv(Socket, 0)),
    nothing(),
    ok = close(Socket),
    {Second, Its} = pair(B, [binary, {active, false}]),
    ok = gen_tcp:close(Its),
    ok = setopts(Second, [{active, once}]),
    {tcp_closed, Second} = next(),
    ok = close(Second),
    nothing().

closed_while_passive_with_data(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 1}]),
    ok = gen_tcp:send(Peer, <<1, "a", 1, "b">>),
    ok = gen_tcp:close(Peer),
    {ok, <<"a">>} = recv(Socket, 0),
    ok = setopts(Socket, [{active, once}]),
    {tcp, Socket, <<"b">>} = next(),
    ?assertEqual({error, closed}, recv(Socket, 0)),
    ok = close(Socket),
    nothing().

forms_of_data(B) ->
    [
        begin
            {Socket, Peer} = pair(B, Opts ++ [{active, once}, {packet, 1}]),
            ok = gen_tcp:send(Peer, <<3, "abc", 3, "def", 0>>),
            {tcp, Socket, Data} = next(),
            ?assertEqual({Opts, As("abc")}, {Opts, Data}),
            ?assertEqual({ok, As("def")}, recv(Socket, 0)),
            ?assertEqual({ok, As("")}, recv(Socket, 0)),
            ok = close(Socket),
            ok = gen_tcp:close(Peer)
        end
     || {Opts, As} <- [
            {[], fun(Data) -> Data end},
            {[list], fun(Data) -> Data end},
            {[{mode, list}], fun(Data) -> Data end},
            {[binary], fun list_to_binary/1},
            {[{mode, binary}], fun list_to_binary/1},
            {[list, binary], fun list_to_binary/1}
        ]
    ],
    %% It can be changed between two packets, also of one read.
    {Socket, Peer} = pair(B, [{active, false}, {packet, 1}]),
    ok = gen_tcp:send(Peer, <<1, "a", 1, "b", 1, "c">>),
    ?assertEqual({ok, "a"}, recv(Socket, 0)),
    ok = setopts(Socket, [binary]),
    ?assertEqual({ok, <<"b">>}, recv(Socket, 0)),
    ok = setopts(Socket, [list]),
    ?assertEqual({ok, "c"}, recv(Socket, 0)),
    ok = close(Socket),
    ok = gen_tcp:close(Peer).
