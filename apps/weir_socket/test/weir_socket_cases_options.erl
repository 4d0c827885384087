%% Cases of the suite of behaviour: options and counters.
-module(weir_socket_cases_options).

-include_lib("stdlib/include/assert.hrl").

-export([
    defaults/1,
    listener_defaults/1,
    set_and_get/1,
    set_when_opened/1,
    last_counts/1,
    first_counts/1,
    watermarks_together/1,
    kernel_sees_them/1,
    wrong_values/1,
    raw_options/1,
    unknown_to_get/1,
    buffers/1,
    statistics/1,
    statistics_of_a_listener/1,
    info/1,
    states/1
]).

-import(weir_kit, [start/1, result/1, until/1, until_waiting/1, kill/1]).
-import(weir_socket_test_lib, [
    listen/2, accept/2, pair/2, pair/3, send/2, recv/2, close/1, setopts/2, getopts/2, getopt/2, getstat/1, getstat/2,
    nothing/0
]).
-import(weir_socket_differences, [differs/2]).

%% What gen_tcp's inet backend says of a new connection is the oracle for the others.
names() ->
    [
        active, buffer, delay_send, exit_on_close, header, high_watermark, keepalive, linger, low_watermark, mode,
        nodelay, packet, packet_size, priority, recbuf, reuseaddr, send_timeout, send_timeout_close, show_econnreset,
        sndbuf, tos
    ].

defaults(B) ->
    [
        begin
            {Plain, Other} = pair(inet, Side, []),
            {Socket, Peer} = pair(B, Side, []),
            [
                ?assertEqual({Side, Name, inet:getopts(Plain, [Name])}, {Side, Name, getopts(Socket, [Name])})
             || Name <- names(), not differs(B, {default, Name})
            ],
            ok = close(Socket),
            [ok = gen_tcp:close(S) || S <- [Plain, Other, Peer]]
        end
     || Side <- [connected, accepted]
    ],
    nothing().

listener_defaults(B) ->
    {ok, Plain} = gen_tcp:listen(0, []),
    {ok, Socket} = listen(B, []),
    [
        ?assertEqual({Name, inet:getopts(Plain, [Name])}, {Name, getopts(Socket, [Name])})
     || Name <- names(), not differs(B, {default, Name})
    ],
    ok = gen_tcp:close(Plain),
    ok = close(Socket).

%% {Option, values in the order in which they are set}; what is read afterwards is the same.
values() ->
    [
        {mode, [binary, list]},
        {active, [false, once, true, false]},
        {packet, [raw, 1, 2, 4, line, http, http_bin, httph, httph_bin, asn1, cdr, fcgi, tpkt, sunrm, 0]},
        {packet_size, [1, 100_000, 0]},
        {header, [4, 1, 0]},
        {line_delimiter, [$;, 0, 255, $\n]},
        {buffer, [100, 1000, 100_000]},
        {nodelay, [true, false]},
        {keepalive, [true, false]},
        {reuseaddr, [true, false]},
        {linger, [{true, 7}, {true, 0}, {false, 0}]},
        {exit_on_close, [false, true]},
        {show_econnreset, [true, false]},
        {delay_send, [true, false]},
        {send_timeout, [100, 0, infinity]},
        {send_timeout_close, [true, false]},
        {low_watermark, [1000]},
        {high_watermark, [20_000]},
        {priority, [4, 0]},
        {tos, [16, 0]}
    ].

set_and_get(B) ->
    {Socket, Peer} = pair(B, [{active, false}]),
    [
        begin
            ?assertEqual({Name, Value, ok}, {Name, Value, setopts(Socket, [{Name, Value}])}),
            ?assertEqual({Name, Value}, {Name, normal(Name, getopt(Socket, Name), Value)})
        end
     || {Name, Values} <- values(), not differs(B, {option, Name}), Value <- Values
    ],
    %% All at once, and all asked for at once, in the order of the question.
    Last = [{Name, lists:last(Values)} || {Name, Values} <- values(), not differs(B, {option, Name})],
    ok = setopts(Socket, Last),
    {ok, Got} = getopts(Socket, [Name || {Name, _} <- Last]),
    ?assertEqual(Last, [{Name, normal(Name, Value, proplists:get_value(Name, Last))} || {Name, Value} <- Got]),
    {ok, []} = getopts(Socket, []),
    ok = setopts(Socket, []),
    ok = close(Socket),
    ok = gen_tcp:close(Peer),
    nothing().

%% raw is another name of 0.
normal(packet, 0, raw) -> raw;
normal(packet, raw, 0) -> 0;
normal(_Name, Value, _Set) -> Value.

set_when_opened(B) ->
    [
        begin
            {Socket, Peer} = pair(B, Side, [{active, false}, {Name, Value}]),
            ?assertEqual({Side, Name, Value}, {Side, Name, normal(Name, getopt(Socket, Name), Value)}),
            ok = setopts(Socket, [{linger, {false, 0}}]),
            ok = close(Socket),
            ok = gen_tcp:close(Peer)
        end
     || {Name, [Value | _]} <- values(),
        not differs(B, {option, Name}),
        Side <- [connected, accepted],
        not (Side =:= accepted andalso differs(B, {not_inherited, Name}))
    ],
    nothing().

last_counts(B) ->
    {Socket, Peer} = pair(B, [{packet, 1}, {packet, 2}, list, {mode, binary}, {active, true}, {active, false}]),
    {ok, [{packet, 2}, {mode, binary}, {active, false}]} = getopts(Socket, [packet, mode, active]),
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% setopts takes its list from the end to the beginning.
first_counts(B) ->
    {Socket, Peer} = pair(B, [{active, false}]),
    [
        begin
            ok = setopts(Socket, Options),
            {ok, Got} = getopts(Socket, [Name || {Name, _} <- Expected]),
            differs(B, last_counts_in_setopts) orelse ?assertEqual({Options, Expected}, {Options, Got})
        end
     || {Options, Expected} <- [
            {[{active, once}, binary, {active, false}], [{active, once}, {mode, binary}]},
            {[list, binary], [{mode, list}]},
            {[{packet, 1}, {packet, 2}], [{packet, 1}]},
            {[{active, false}, {active, true}], [{active, false}]},
            {[{nodelay, true}, {nodelay, false}], [{nodelay, true}]},
            {[{linger, {true, 1}}, {linger, {true, 2}}], [{linger, {true, 1}}]},
            {[{linger, {false, 0}}, {send_timeout, 10}, {send_timeout, 20}], [{send_timeout, 10}]},
            {[{nodelay, false}, {raw, 6, 1, <<1:32/native>>}], [{nodelay, false}]},
            {[{raw, 6, 1, <<1:32/native>>}, {raw, 6, 1, <<0:32/native>>}], [{nodelay, true}]}
        ]
    ],
    ok = setopts(Socket, [{linger, {false, 0}}]),
    ok = close(Socket),
    ok = gen_tcp:close(Peer),
    %% Those of an opening too, if they are different options that mean the same.
    {ok, Listener} = listen(B, [{nodelay, false}, {raw, 6, 1, <<1:32/native>>}]),
    differs(B, last_counts_in_setopts) orelse ?assertEqual(false, getopt(Listener, nodelay)),
    ok = close(Listener).

%% The low mark is never above the high one: who is set last takes the other along.
watermarks_together(B) ->
    [
        begin
            {Socket, Peer} = pair(B, Side, []),
            ok = setopts(Socket, Options),
            {ok, Got} = getopts(Socket, [high_watermark, low_watermark]),
            ?assertEqual({Options, Expected}, {Options, [Value || {_, Value} <- Got]}),
            ok = close(Socket),
            ok = gen_tcp:close(Peer)
        end
     || not differs(B, {option, high_watermark}),
        Side <- [connected, accepted],
        {Options, Expected} <- [
            {[{high_watermark, 10}], [10, 10]},
            {[{low_watermark, 50_000}], [50_000, 50_000]},
            {[{high_watermark, 4096}], [4096, 4096]},
            {[{high_watermark, 4095}], [4095, 4095]},
            {[{high_watermark, 4097}], [4097, 4096]},
            {[{low_watermark, 8192}], [8192, 8192]},
            {[{low_watermark, 8193}], [8193, 8193]},
            {[{high_watermark, 10}, {low_watermark, 50_000}], [10, 10]},
            {[{low_watermark, 50_000}, {high_watermark, 10}], [50_000, 50_000]}
        ]
    ],
    nothing().

%% What is set by name is what the kernel has: asked by number.
kernel_sees_them(B) ->
    {Socket, Peer} = pair(B, [{active, false}]),
    [
        begin
            ok = setopts(Socket, [{Name, Value}]),
            {ok, [{raw, Level, Number, <<Kernel:32/native, _/binary>>}]} =
                getopts(Socket, [{raw, Level, Number, byte_size(Expected)}]),
            <<Wanted:32/native, _/binary>> = Expected,
            ?assertEqual({Name, Value, Wanted}, {Name, Value, Kernel})
        end
     || {Name, Level, Number, Pairs} <- [
            {nodelay, 6, 1, [{true, <<1:32/native>>}, {false, <<0:32/native>>}]},
            {keepalive, 1, 9, [{true, <<1:32/native>>}, {false, <<0:32/native>>}]},
            {reuseaddr, 1, 2, [{true, <<1:32/native>>}, {false, <<0:32/native>>}]},
            {linger, 1, 13, [{{true, 5}, <<1:32/native, 5:32/native>>}, {{false, 0}, <<0:32/native, 0:32/native>>}]},
            {tos, 0, 1, [{16, <<16:32/native>>}, {0, <<0:32/native>>}]},
            {priority, 1, 12, [{3, <<3:32/native>>}, {0, <<0:32/native>>}]},
            %% The kernel doubles these.
            {sndbuf, 1, 7, [{20_000, <<40_000:32/native>>}]},
            {recbuf, 1, 8, [{20_000, <<40_000:32/native>>}]}
        ],
        {Value, Expected} <- Pairs
    ],
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% They are refused, and what was set before stays.
wrong_values(B) ->
    {Socket, Peer} = pair(B, [{active, false}]),
    Wrong = [
        {active, 40_000}, {active, 1.0}, {packet, 3}, {packet, text}, {packet_size, -1}, {header, x}, {nodelay, 1},
        {nodelay, yes}, {keepalive, none}, {linger, true}, {linger, {1, 1}}, {exit_on_close, 0}, {send_timeout, -5},
        {send_timeout, x}, {line_delimiter, x}, {line_delimiter, "\n"}, {high_watermark, x}, {nosuch, 1}, nosuch, {}, 7
    ],
    Before = [{Name, getopts(Socket, [Name])} || Name <- names()],
    [
        ?assertEqual({Option, refused}, {Option, refused(setopts(Socket, [Option]))})
     || Option <- Wrong, not differs(B, wrong_values_taken)
    ],
    ?assertEqual(Before, [{Name, getopts(Socket, [Name])} || Name <- names()]),
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

refused({error, einval}) -> refused;
refused({error, {invalid, _}}) -> refused;
refused({error, {bad_option, _, _}}) -> refused;
refused(Other) -> Other.

raw_options(B) ->
    {Socket, Peer} = pair(B, [{active, false}, {raw, 6, 1, <<1:32/native>>}]),
    ?assertEqual(true, getopt(Socket, nodelay)),
    %% The size of the answer, or a binary as large.
    ?assertEqual({ok, [{raw, 6, 1, <<1:32/native>>}]}, getopts(Socket, [{raw, 6, 1, 4}])),
    ?assertEqual({ok, [{raw, 6, 1, <<1:32/native>>}]}, getopts(Socket, [{raw, 6, 1, <<0:32>>}])),
    ok = setopts(Socket, [{raw, 6, 1, <<0:32/native>>}, {raw, 1, 9, <<1:32/native>>}]),
    {ok, [{nodelay, false}, {keepalive, true}]} = getopts(Socket, [nodelay, keepalive]),
    {ok, [{raw, 1, 9, <<1:32/native>>}, {mode, list}]} = getopts(Socket, [{raw, 1, 9, 4}, mode]),
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

unknown_to_get(B) ->
    {Socket, Peer} = pair(B, [{active, false}]),
    [
        ?assertEqual({Names, {error, einval}}, {Names, getopts(Socket, Names)})
     || Names <- [[nosuch], [active, nosuch], [1], [{raw, 1}]], not differs(B, unknown_to_get)
    ],
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% Kernel's buffers as asked for or larger; that of the socket grows with recbuf, if it was not set itself.
buffers(B) ->
    {Socket, Peer} = pair(B, [{active, false}, {sndbuf, 30_000}, {recbuf, 40_000}]),
    ?assert(getopt(Socket, sndbuf) >= 30_000),
    ?assert(getopt(Socket, recbuf) >= 40_000),
    differs(B, buffer_follows_recbuf) orelse ?assertEqual(40_000, getopt(Socket, buffer)),
    ok = setopts(Socket, [{buffer, 5000}]),
    ?assertEqual(5000, getopt(Socket, buffer)),
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% ---------------------------------------------------------------- counters

%% Packets, and bytes with their headers.
statistics(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 2}]),
    {ok, Fresh} = getstat(Socket),
    [?assertEqual({Name, 0}, {Name, proplists:get_value(Name, Fresh)}) || Name <- counters(B)],
    [ok = send(Socket, Data) || Data <- ["a", "bc", "defg"]],
    {ok, _} = gen_tcp:recv(Peer, 13),
    ok = gen_tcp:send(Peer, [<<3:16, "abc">>, <<5:16, "abcde">>]),
    {ok, <<"abc">>} = recv(Socket, 0),
    {ok, <<"abcde">>} = recv(Socket, 0),
    {ok, Stat} = getstat(Socket, counters(B)),
    Counted = fun(Name) -> {Name, proplists:get_value(Name, Stat)} end,
    ?assertEqual({send_cnt, 3}, Counted(send_cnt)),
    ?assertEqual({send_oct, 13}, Counted(send_oct)),
    [
        ?assertEqual(Expected, Counted(element(1, Expected)))
     || Expected <- [{recv_oct, 12}, {recv_cnt, 2}], not differs(B, received_counted)
    ],
    differs(B, {counter, send_pend}) orelse ?assertEqual({send_pend, 0}, Counted(send_pend)),
    {ok, [{recv_oct, _}]} = getstat(Socket, [recv_oct]),
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

counters(B) ->
    [
        Name
     || Name <- [recv_cnt, recv_oct, recv_max, send_cnt, send_oct, send_max, send_pend],
        not differs(B, {counter, Name})
    ].

statistics_of_a_listener(B) ->
    {ok, Listener} = listen(B, []),
    {ok, Stat} = getstat(Listener),
    [?assertEqual({Name, 0}, {Name, proplists:get_value(Name, Stat)}) || Name <- counters(B)],
    ok = close(Listener).

info(B) ->
    {Socket, Peer} = pair(B, [{active, false}]),
    Info = weir_socket_test_lib:info(Socket),
    ?assertEqual({owner, self()}, {owner, maps:get(owner, Info)}),
    #{counters := #{}} = Info,
    differs(B, info_states) orelse begin #{states := [_ | _]} = Info end,
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% Who waits is seen, as long as it is alive.
states(B) -> differs(B, info_states) orelse states_of_inet(B).

states_of_inet(B) ->
    {ok, Listener} = listen(B, []),
    ?assertEqual([listen, open], states_of(Listener)),
    Acceptors = [start(fun() -> accept(Listener, infinity) end) || _ <- [1, 2]],
    [until_waiting(Acceptor) || Acceptor <- Acceptors],
    ?assertEqual([accepting, listen, open], states_of(Listener)),
    [kill(Acceptor) || Acceptor <- Acceptors],
    until(fun() -> states_of(Listener) =:= [listen, open] end),
    ?assertEqual({error, timeout}, accept(Listener, 1)),
    ?assertEqual([listen, open], states_of(Listener)),
    ok = close(Listener),
    ?assertEqual([closed], states_of(Listener)),
    {Socket, Peer} = pair(B, [binary, {active, false}, {linger, {true, 0}}]),
    Receiver = start(fun() -> recv(Socket, 0) end),
    until_waiting(Receiver),
    ?assertEqual([connected, open], states_of(Socket)),
    ok = send(Socket, binary:copy(<<"x">>, 10_000_000)),
    ?assertEqual([connected, open], states_of(Socket)),
    Sender = start(fun() -> send(Socket, "x") end),
    until_waiting(Sender),
    ?assertEqual([busy, connected, open], states_of(Socket)),
    kill(Sender),
    ok = gen_tcp:close(Peer),
    {error, closed} = result(Receiver),
    _ = close(Socket),
    nothing().

states_of(Socket) ->
    #{states := States} = weir_socket_test_lib:info(Socket),
    States.
