%% weir_socket_opts, and weir_opt.c beneath it. Oracles: what gen_tcp takes for an option, and what `socket' reads from
%% the descriptor of a socket that weir_socket has set options of.
-module(weir_socket_opts_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    [{started, Started} | Config].

end_per_suite(Config) -> lists:foreach(fun application:stop/1, lists:reverse(?config(started, Config))).

%% ---------------------------------------------------------------- options as terms

opening(Options) ->
    {ok, Opening} = weir_socket_opts:open(listen, Options),
    Opening.

settings(Options) -> maps:get(settings, opening(Options)).

defaults(_) ->
    #{
        family := undefined, ifaddr := undefined, port := 0, fd := undefined, netns := none, backlog := 5,
        policy := default, settings := [{mode, list}], active := true
    } = opening([]),
    {ok, #{active := true}} = weir_socket_opts:open(connect, []).

where_to_bind(_) ->
    #{ifaddr := {1, 2, 3, 4}, port := 80} = opening([{ip, {1, 2, 3, 4}}, {port, 80}]),
    #{ifaddr := {local, "x"}} = opening([{ifaddr, {local, "x"}}]),
    #{ifaddr := loopback} = opening([{ip, any}, {ifaddr, loopback}]),
    Map = #{family => inet, addr => any},
    Changed = Map#{addr := loopback, port => 7},
    #{ifaddr := Changed} = opening([{ifaddr, Map}, {ip, loopback}, {port, 7}]),
    #{ifaddr := loopback} = opening([{ifaddr, Map}, {ifaddr, loopback}]),
    #{fd := 7, backlog := 100} = opening([{fd, 7}, {backlog, 100}]),
    badarg = weir_socket_opts:open(connect, [{backlog, 5}]).

families(_) ->
    #{family := inet6} = opening([inet6]),
    #{family := local} = opening([local, inet]),
    #{family := undefined} = opening([{ip, {1, 2, 3, 4}}]).

last_wins(_) ->
    [{nodelay, false}, {mode, list}] = settings([{nodelay, true}, {nodelay, false}]),
    [{mode, binary}] = settings([binary]),
    #{active := once} = opening([{active, false}, {active, once}]).

raw_is_kept(_) ->
    [{{raw, 6, 1}, <<2>>}, {{raw, 6, 1}, <<1>>}, {mode, list}] = settings([{raw, 6, 1, <<1>>}, {raw, {6, 1, <<2>>}}]).

%% Data that has come already is to be delivered as the other options say.
active_is_last(_) ->
    {ok, [{mode, binary}, {packet, 4}, {active, 2}, {active, 1}]} =
        weir_socket_opts:to_set([{active, 1}, {packet, 4}, {active, 2}, binary]).

modes(_) ->
    {ok, [{mode, list}, {mode, binary}]} = weir_socket_opts:to_set([binary, list]),
    {ok, [{mode, list}]} = weir_socket_opts:to_set([{mode, list}]),
    {ok, [{packet, line}, {packet, 0}]} = weir_socket_opts:to_set([{packet, raw}, {packet, line}]).

netns(_) ->
    #{netns := <<"/run/netns/x">>} = opening([{netns, "/run/netns/x"}]),
    #{netns := <<"/run/netns/x">>} = opening([{netns, <<"/run/netns/x">>}]),
    [badarg = weir_socket_opts:open(listen, [{netns, Wrong}]) || Wrong <- [x, "", <<>>, <<"a", 0>>, [-1]]].

policies(_) ->
    #{policy := 1} = opening([{pollset, 1}]),
    #{policy := 1} = opening([{pollset, 1}, {bind_policy, round_robin}]),
    [#{policy := P} = opening([{bind_policy, P}]) || P <- [scheduler, least_loaded, round_robin]],
    badarg = weir_socket_opts:open(listen, [{bind_policy, other}]),
    badarg = weir_socket_opts:open(listen, [{pollset, -1}]),
    badarg = weir_socket_opts:to_set([{pollset, 1}]).

%% As for gen_tcp, the environment of kernel has options that come first; active is never one of them.
kernel_environment(_) ->
    With = fun(Key, Value, Fun) ->
        ok = application:set_env(kernel, Key, Value),
        try
            Fun()
        after
            application:unset_env(kernel, Key)
        end
    end,
    With(inet_default_listen_options, [{nodelay, true}, {active, false}, binary], fun() ->
        #{active := true} = opening([]),
        [{mode, binary}, {nodelay, true}] = lists:sort(settings([])),
        [{mode, binary}, {nodelay, false}] = lists:sort(settings([{nodelay, false}]))
    end),
    With(inet_default_listen_options, {nodelay, true}, fun() -> [{nodelay, true}, {mode, list}] = settings([]) end),
    With(inet_default_listen_options, {active, false}, fun() -> #{active := true} = opening([]) end),
    With(inet_default_connect_options, [{nodelay, true}], fun() ->
        [{mode, list}] = settings([]),
        {ok, #{settings := [{nodelay, true}, {mode, list}]}} = weir_socket_opts:open(connect, [])
    end),
    With(inet_default_connect_options, [{no_such, true}], fun() -> badarg = weir_socket_opts:open(connect, []) end).

refused() ->
    [
        {tcp_module, inet_tcp}, {inet_backend, socket}, {deliver, port}, {high_msgq_watermark, 8192},
        {low_msgq_watermark, 4096}, {recvtos, true}, {recvtclass, true}, {recvttl, true}, {pktoptions, [tos]},
        {exclusiveaddruse, true}, {debug, true}, {read_ahead, false}
    ].

refused_by_name(_) ->
    [
        begin
            {bad_option, Key, Value} = weir_socket_opts:open(listen, [{nodelay, true}, Option]),
            {error, {bad_option, Key, Value}} = weir_socket:listen(0, [Option]),
            {error, {bad_option, Key, Value}} = weir_socket:connect({127, 0, 0, 1}, 1, [Option])
        end
     || {Key, Value} = Option <- refused()
    ].

refused_by_setopts(_) ->
    {ok, Socket} = weir_socket:listen(0, []),
    [{error, {bad_option, Key, Value}} = weir_socket:setopts(Socket, [Option]) || {Key, Value} = Option <- refused()],
    ok = weir_socket:close(Socket).

constants(_) ->
    {ok, []} = weir_socket_opts:to_set([{deliver, term}, {read_ahead, true}]),
    {ok, Socket} = weir_socket:listen(0, [{deliver, term}]),
    {ok, [{deliver, term}, {read_ahead, true}]} = weir_socket:getopts(Socket, [deliver, read_ahead]),
    Off = [{recvtos, false}, {recvttl, false}, {recvtclass, false}, {debug, false}, {pktoptions, []}],
    ok = weir_socket:setopts(Socket, Off),
    {ok, Off} = weir_socket:getopts(Socket, [Key || {Key, _} <- Off]),
    ok = weir_socket:close(Socket).

%% What a socket of ours does not have is left out, and the others are answered.
not_had(_) ->
    {ok, Socket} = weir_socket:listen(0, []),
    {ok, [{nodelay, false}, {recvtos, false}]} =
        weir_socket:getopts(Socket, [nodelay, high_msgq_watermark, low_msgq_watermark, netns, read_packets, recvtos]),
    ok = weir_socket:close(Socket).

wrong() ->
    [
        no_such, {no_such, 1}, {1, 2}, {nodelay, 1}, {nodelay}, {mode, text}, {active, maybe_}, {packet, 3}, {packet,
        http2},
        {packet_size, -1}, {header, -1}, {header, a}, {send_timeout, -1}, {send_timeout, 1.5}, {linger, true},
        {linger, {1, 1}},
        {linger, {true, a}}, {recbuf, big}, {tos, a}, {raw, 1, 2, 3}, {raw, a, 2, <<>>}, {raw, 1, 2}, {keepalive, yes},
        {delay_send, 0}, {exit_on_close, 0}, {show_econnreset, 1}, {send_timeout_close, a}, {buffer, a},
        {line_delimiter, a}
    ].

wrong_values(_) ->
    [
        begin
            badarg = weir_socket_opts:open(listen, [Option]),
            badarg = weir_socket_opts:to_set([Option])
        end
     || Option <- wrong()
    ].

%% On either side of each limit.
limits(_) ->
    [
        begin
            {ok, [{Key, In}]} = weir_socket_opts:to_set([{Key, In}]),
            badarg = weir_socket_opts:to_set([{Key, Out}])
        end
     || {Key, In, Out} <- [
            {active, 32767, 32768},
            {active, -32768, -32769},
            {packet_size, 0, -1},
            {packet_size, 16#7fffffff, 16#80000000},
            {header, 0, -1},
            {line_delimiter, 255, 256},
            {line_delimiter, 0, -1},
            {send_timeout, 0, -1},
            {send_timeout, infinity, unlimited},
            {recbuf, 16#7fffffff, 16#80000000},
            {priority, -16#80000000, -16#80000001},
            {bind_to_device, <<"123456789012345">>, <<"1234567890123456">>},
            {linger, {true, 0}, {true, -1}}
        ]
    ],
    %% As for gen_tcp, what is too small is the least that makes sense.
    {ok, [{low_watermark, 0}, {high_watermark, 0}, {buffer, 1}]} =
        weir_socket_opts:to_set([{buffer, 0}, {high_watermark, -1}, {low_watermark, -5}]),
    #{backlog := 0} = opening([{backlog, 0}]),
    badarg = weir_socket_opts:open(listen, [{backlog, -1}]),
    #{fd := 0} = opening([{fd, 0}]),
    badarg = weir_socket_opts:open(listen, [{fd, -1}]).

%% What gen_tcp takes we take, or refuse by name; what it exits on we exit on. The exceptions are written down.
checks_as_gen_tcp(_) ->
    Values = [
        true, false, once, infinity, -1, 0, 1, 4, 255, 256, 70000, binary, list, line, http, {true, 1}, {false, 0},
        <<"lo">>, "x",
        term, 1.0, {1, 2, 3}
    ],
    Keys = [
        active, mode, packet, packet_size, header, buffer, deliver, exit_on_close, show_econnreset, high_watermark,
        low_watermark, send_timeout, send_timeout_close, delay_send, keepalive, reuseaddr, nodelay, linger, recbuf,
        sndbuf, priority, tos, ttl, bind_to_device, recvtos, high_msgq_watermark, no_such_option
    ],
    [
        ?assertEqual({Key, Value, gen_tcp_takes(Key, Value)}, {Key, Value, we_take(Key, Value)})
     || Key <- Keys, Value <- Values, not differs(Key, Value)
    ].

%% Negative sizes and lengths of time; names of devices, which are not longer than 15 bytes.
differs(bind_to_device, Value) -> is_binary(Value);
%% Options for what we have no choice of: their values are not looked at.
differs(Key, _Value) -> lists:member(Key, [recvtos, high_msgq_watermark, deliver]).

gen_tcp_takes(Key, Value) ->
    try gen_tcp:listen(0, [{Key, Value}]) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            true;
        {error, _} ->
            true
    catch
        exit:badarg -> false
    end.

we_take(Key, Value) -> weir_socket_opts:open(listen, [{Key, Value}]) =/= badarg.

no_lists(_) ->
    [
        begin
            badarg = weir_socket_opts:open(listen, Wrong),
            badarg = weir_socket_opts:to_set(Wrong),
            badarg = weir_socket_opts:to_get(Wrong)
        end
     || Wrong <- [x, {active, true}, #{}, <<>>, [binary | x]]
    ].

to_get(_) ->
    {ok, [{nodelay, {key, nodelay}}, {deliver, {constant, term}}, {{raw, 6, 1}, {key, {raw, 6, 1, 4}}}]} =
        weir_socket_opts:to_get([nodelay, deliver, {raw, 6, 1, 4}]),
    {ok, [{{raw, 6, 1}, {key, {raw, 6, 1, <<0>>}}}]} = weir_socket_opts:to_get([{raw, {6, 1, <<0>>}}]),
    [
        badarg = weir_socket_opts:to_get([Wrong])
     || Wrong <- [no_such, 1, {raw, 6, 1}, {raw, 6, 1, -1}, {raw, a, 1, 4}, tcp_module, backlog, binary, {active, true}]
    ].

%% ---------------------------------------------------------------- sockets

exits_as_gen_tcp(_) ->
    [?assertExit(badarg, weir_socket:listen(0, [Option])) || Option <- wrong()],
    [?assertExit(badarg, weir_socket:connect({127, 0, 0, 1}, 1, [Option])) || Option <- wrong()],
    {ok, Socket} = weir_socket:listen(0, []),
    [{error, einval} = weir_socket:setopts(Socket, [Option]) || Option <- wrong()],
    [{error, einval} = weir_socket:getopts(Socket, [Option]) || Option <- [no_such, 1, {raw, 6, 1}]],
    ok = weir_socket:close(Socket),
    [
        ?assertExit(badarg, weir_socket:listen(Port, Options))
     || {Port, Options} <- [
            {-1, []}, {65536, []}, {no_such_service, []}, {"80", []}, {0, x}, {0, [{ip, "127.0.0.1"}]}, {0, [{port,
            a}]},
            {0, [{ip, {1, 2, 3}}]}, {0, [inet6, {ip, {127, 0, 0, 1}}]}, {0, [{ifaddr, #{family => inet, port => -1}}]},
            {0, [inet, {ifaddr, #{family => inet6}}]}, {5, [local]}
        ]
    ],
    [
        ?assertExit(badarg, weir_socket:connect(Host, Port, Options))
     || {Host, Port, Options} <- [
            {{1, 2, 3}, 1, []}, {{300, 0, 0, 1}, 1, []}, {"a b", 1, []}, {{127, 0, 0, 1}, 65536, []},
            {{127, 0, 0, 1}, no_such_service, []}, {{local, "x"}, 1, []}, {{127, 0, 0, 1}, 1, [{ip, "1"}]}
        ]
    ],
    ?assertExit(badarg, weir_socket:connect(#{family => inet, adr => loopback}, [])),
    ?assertError(function_clause, weir_socket:connect({127, 0, 0, 1}, 1, [], -1)),
    ?assertError(function_clause, weir_socket:connect({127, 0, 0, 1}, 1, [], soon)).

errors_of_the_kernel(_) ->
    {error, ebadf} = weir_socket:listen(0, [{fd, 999_999}]),
    {error, enoent} = weir_socket:listen(0, [{netns, "/there/is/no/such/file"}]),
    {error, enoent} = weir_socket:listen(0, [{ifaddr, {local, <<"/there/is/no/such/dir">>}}]),
    {error, eaddrnotavail} = weir_socket:listen(0, [{ip, {192, 0, 2, 1}}]),
    {error, eafnosupport} = weir_socket:connect({127, 0, 0, 1}, 1, [inet6]),
    {error, eafnosupport} = weir_socket:connect({0, 0, 0, 0, 0, 0, 0, 1}, 1, [inet]),
    {error, enoent} = weir_socket:connect({local, "/there/is/no/such/socket"}, 0, []).

set_and_read(_) ->
    {ok, Socket} = weir_socket:listen(0, [{active, false}]),
    [
        begin
            ok = weir_socket:setopts(Socket, [Option]),
            ?assertEqual({ok, [Option]}, weir_socket:getopts(Socket, [Key]))
        end
     || {Key, _} = Option <- [
            {keepalive, true}, {keepalive, false}, {reuseaddr, true}, {nodelay, true}, {nopush, true}, {nopush, false},
            {linger, {true, 7}}, {linger, {false, 7}}, {tos, 16}, {ttl, 42}, {priority, 5}, {keepcnt, 3}, {keepidle,
            11},
            {keepintvl, 12}, {user_timeout, 1234}, {broadcast, true}, {dontroute, true}, {mode, binary}, {mode, list},
            {packet, 4}, {packet, 0}, {packet, http_bin}, {packet, line}, {packet_size, 77}, {header, 3}, {buffer, 500},
            {line_delimiter, $x}, {exit_on_close, false}, {show_econnreset, true}, {send_timeout, 5}, {send_timeout,
            infinity},
            {send_timeout_close, true}, {delay_send, true}, {high_watermark, 100_000}, {low_watermark, 1000},
            {active, once},
            {active, true}, {active, false}
        ]
    ],
    ok = weir_socket:close(Socket).

%% The kernel has what we say it has.
read_by_socket(_) ->
    {ok, Socket} = weir_socket:listen(0, [{reuseaddr, true}, {keepalive, true}, {nodelay, true}, {recbuf, 20_000},
        {sndbuf, 30_000}, {tos, 16#10}, {priority, 4}, {linger, {true, 9}}, {ttl, 33}, {reuseport, true}]),
    Read = reader(Socket),
    true = Read(socket, reuseaddr),
    true = Read(socket, reuseport),
    true = Read(socket, keepalive),
    true = Read(tcp, nodelay),
    %% Linux doubles what is set.
    40_000 = Read(socket, rcvbuf),
    60_000 = Read(socket, sndbuf),
    4 = Read(socket, priority),
    #{onoff := true, linger := 9} = Read(socket, linger),
    33 = Read(ip, ttl),
    {ok, [{recbuf, 40_000}, {sndbuf, 60_000}]} = weir_socket:getopts(Socket, [recbuf, sndbuf]),
    ok = weir_socket:close(Socket).

linger(_) ->
    {ok, Sock} = weir_socket_nif:open(inet, none, default),
    ok = weir_socket_nif:set(Sock, linger, {true, 3}),
    {ok, {true, 3}} = weir_socket_nif:get(Sock, linger),
    Wrong = [true, {true}, {1, 1}, {true, -1}, {true, a}],
    [{error, einval} = weir_socket_nif:set(Sock, linger, Value) || Value <- Wrong],
    _ = weir_socket_nif:close_now(Sock),
    ok.

%% IPPROTO_TCP 6, TCP_NODELAY 1.
raw(_) ->
    {ok, Socket} = weir_socket:listen(0, [{raw, 6, 1, <<1:32/native>>}]),
    {ok, [{nodelay, true}, {raw, 6, 1, <<1:32/native>>}]} = weir_socket:getopts(Socket, [nodelay, {raw, 6, 1, 4}]),
    ok = weir_socket:setopts(Socket, [{raw, {6, 1, <<0:32>>}}]),
    {ok, [{raw, 6, 1, <<0:32>>}, {nodelay, false}]} = weir_socket:getopts(Socket, [{raw, {6, 1, <<0:64>>}}, nodelay]),
    %% As inet does, what the kernel does not know is left out of what is read, and refused when it is set.
    {ok, []} = weir_socket:getopts(Socket, [{raw, 6, 9999, 4}]),
    {error, enoprotoopt} = weir_socket:setopts(Socket, [{raw, 6, 9999, <<0:32>>}]),
    ok = weir_socket:close(Socket).

raw_limits(_) ->
    {ok, Sock} = weir_socket_nif:open(inet, none, default),
    {ok, <<_:4/binary>>} = weir_socket_nif:get(Sock, {raw, 6, 1, 65536}),
    {error, einval} = weir_socket_nif:get(Sock, {raw, 6, 1, 65537}),
    {error, einval} = weir_socket_nif:set(Sock, {raw, 6, 1}, binary:copy(<<0>>, 65537)),
    {error, einval} = weir_socket_nif:get(Sock, {raw, 6, 1, binary:copy(<<0>>, 65537)}),
    {error, einval} = weir_socket_nif:set(Sock, {raw, 6, 1}, <<>>),
    {ok, <<>>} = weir_socket_nif:get(Sock, {raw, 6, 1, 0}),
    _ = weir_socket_nif:close_now(Sock),
    ok.

%% An option that inet has no name for: TCP_DEFER_ACCEPT 9, in seconds, which the kernel rounds.
raw_on_the_kernel(_) ->
    {ok, Socket} = weir_socket:listen(0, [{raw, 6, 9, <<5:32/native>>}]),
    {ok, [{raw, 6, 9, <<Seconds:32/native>>}]} = weir_socket:getopts(Socket, [{raw, 6, 9, 4}]),
    true = Seconds >= 5,
    ok = weir_socket:close(Socket).

device(_) ->
    {ok, Sock} = weir_socket_nif:open(inet, none, default),
    {ok, <<>>} = weir_socket_nif:get(Sock, bind_to_device),
    case weir_socket_nif:set(Sock, bind_to_device, <<"lo">>) of
        ok -> {ok, <<"lo">>} = weir_socket_nif:get(Sock, bind_to_device);
        {error, eperm} -> ok
    end,
    {error, _} = weir_socket_nif:set(Sock, bind_to_device, <<"no such device">>),
    {error, einval} = weir_socket_nif:set(Sock, bind_to_device, "lo"),
    _ = weir_socket_nif:close_now(Sock),
    ok.

%% Linux changes the priority with the type of service; inet does not, and neither do we.
service_and_priority(_) ->
    {ok, Socket} = weir_socket:listen(0, [{priority, 3}]),
    ok = weir_socket:setopts(Socket, [{tos, 16#10}]),
    {ok, [{priority, 3}, {tos, 16#10}]} = weir_socket:getopts(Socket, [priority, tos]),
    ok = weir_socket:close(Socket),
    {ok, Six} = weir_socket:listen(0, [inet6, {priority, 3}, {tclass, 16#10}]),
    {ok, [{priority, 3}, {tclass, 16#10}]} = weir_socket:getopts(Six, [priority, tclass]),
    ok = weir_socket:close(Six).

%% There is no delay on local sockets, so programs may ask for none of it there.
local_nodelay(_) ->
    {ok, Socket} = weir_socket:listen(0, [local, {nodelay, true}]),
    ok = weir_socket:setopts(Socket, [{nodelay, false}]),
    {ok, []} = weir_socket:getopts(Socket, [nodelay]),
    {error, _} = weir_socket:setopts(Socket, [{keepcnt, 1}]),
    ok = weir_socket:close(Socket).

nif_refuses_types(_) ->
    {ok, Sock} = weir_socket_nif:open(inet, none, default),
    [
        ?assertEqual({Key, {error, einval}}, {Key, weir_socket_nif:set(Sock, Key, Value)})
     || {Key, Value} <- [
            {keepalive, 1}, {keepalive, maybe_}, {nodelay, <<>>}, {recbuf, a}, {recbuf, 1.0}, {recbuf, 1 bsl 40},
            {tos, true},
            {tclass, []}, {ttl, {}}, {priority, -(1 bsl 40)}, {{raw, 6, 1}, 1}, {{raw, 6, 1}, [1]}
        ]
    ],
    _ = weir_socket_nif:close_now(Sock),
    ok.

not_options_of_the_kernel(_) ->
    {ok, Sock} = weir_socket_nif:open(inet, none, default),
    [
        {error, einval} = weir_socket_nif:set(Sock, Key, true)
     || Key <- [no_such, 1, {raw}, {raw, 6}, {raw, a, 1}, {raw, 6, 1, 4}, {raw, 1 bsl 40, 1}, "nodelay", backlog]
    ],
    Wrong = [no_such, {raw, 6, 1}, {raw, 6, 1, -1}, {raw, 6, 1, x}, {}],
    [{error, einval} = weir_socket_nif:get(Sock, Key) || Key <- Wrong],
    _ = weir_socket_nif:close_now(Sock),
    ok.

%% A wrong option sets nothing; one that the kernel refuses, nothing that stands before it.
all_or_down_to_the_last(_) ->
    {ok, Socket} = weir_socket:listen(0, []),
    {error, einval} = weir_socket:setopts(Socket, [{keepalive, true}, {no_such, 1}]),
    {ok, [{keepalive, false}]} = weir_socket:getopts(Socket, [keepalive]),
    {error, enoprotoopt} = weir_socket:setopts(Socket, [{keepalive, true}, {raw, 6, 9999, <<0:32>>}, {nodelay, true}]),
    {ok, [{keepalive, false}, {nodelay, true}]} = weir_socket:getopts(Socket, [keepalive, nodelay]),
    ok = weir_socket:close(Socket).

closed(_) ->
    {ok, Socket} = weir_socket:listen(0, []),
    ok = weir_socket:close(Socket),
    {error, einval} = weir_socket:setopts(Socket, [{keepalive, true}]),
    {error, einval} = weir_socket:setopts(Socket, [{active, true}]),
    {error, einval} = weir_socket:getopts(Socket, [keepalive]),
    {error, einval} = weir_socket:getopts(Socket, [active]),
    {error, einval} = weir_socket:peername(Socket),
    {error, einval} = weir_socket:sockname(Socket),
    {error, einval} = weir_socket:port(Socket),
    {error, einval} = weir_socket:getstat(Socket),
    #{states := [closed]} = weir_socket:info(Socket),
    undefined = weir_socket:socket_info(Socket, owner),
    ok = weir_socket:close(Socket).

before_and_after_binding(_) ->
    {ok, Both} = weir_socket:listen(0, [inet6, {ipv6_v6only, false}]),
    {ok, [{ipv6_v6only, false}]} = weir_socket:getopts(Both, [ipv6_v6only]),
    {ok, Port} = weir_socket:port(Both),
    {ok, Four} = weir_socket:connect({127, 0, 0, 1}, Port, [{active, false}]),
    ok = weir_socket:close(Four),
    {error, einval} = weir_socket:setopts(Both, [{ipv6_v6only, true}]),
    ok = weir_socket:close(Both),
    ok = only_of_inet6().

%% IPv4's port of the same number is free for other programs, so it is ours first, or one of them might answer there.
%% Another may have IPv6's: then with another number.
only_of_inet6() ->
    {Bound, Port} = weir_socket_test_lib:unused_port(),
    Listening = weir_socket:listen(Port, [inet6, {ipv6_v6only, true}]),
    Refused = weir_socket:connect({127, 0, 0, 1}, Port, []),
    ok = socket:close(Bound),
    case Listening of
        {ok, Six} ->
            {error, econnrefused} = Refused,
            weir_socket:close(Six);
        {error, eaddrinuse} ->
            only_of_inet6()
    end.

%% Reads options of the descriptor by OTP's `socket'.
reader(Socket) ->
    {fd, Fd} = weir_socket:socket_info(Socket, fd),
    fun(Level, Option) ->
        {ok, Other} = socket:open(Fd, #{dup => true}),
        {ok, Value} = socket:getopt(Other, {Level, Option}),
        ok = socket:close(Other),
        Value
    end.
