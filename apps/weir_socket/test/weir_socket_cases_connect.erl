%% Cases of the suite of behaviour: listening, connecting, accepting.
-module(weir_socket_cases_connect).

-include_lib("stdlib/include/assert.hrl").

-export([
    talks/1,
    connect_refused/1,
    connect_times_out/1,
    accept_times_out/1,
    many_acceptors/1,
    accept_burst/1,
    killed_acceptor/1,
    close_while_accepting/1,
    listener_owner_dies/1,
    accepted_inherits/1,
    reuseport/1,
    descriptor_of_a_listener/1,
    descriptor_of_a_connection/1,
    adopted_connection/1,
    adopted_in_part/1,
    connected_descriptor/1,
    wrong_options/1,
    through_gen_tcp/1
]).

-import(weir_kit, [start/1, result/1, until/1, until_waiting/1, kill/1, same/3]).
-import(weir_socket_test_lib, [
    listen/2, listen/3, connect/4, connect/5, fdopen/3, accept/1, accept/2, pair/2, pair/3, peer_opts/0, send/2, recv/2,
    close/1, setopts/2, getopts/2, getopt/2, peername/1, sockname/1, port/1, next/0, nothing/0, unused_port/0, talk/2,
    full_listener/0
]).
-import(weir_socket_differences, [differs/2]).

-define(LOOPBACK, {127, 0, 0, 1}).

%% Both ends of the implementation under test.
talks(B) ->
    {ok, Listener} = listen(B, [binary, {active, false}, {ip, ?LOOPBACK}]),
    {ok, Port} = port(Listener),
    {ok, Client} = connect(B, ?LOOPBACK, Port, [binary, {active, false}]),
    {ok, Server} = accept(Listener),
    talk(Client, Server),
    [ok = close(Socket) || Socket <- [Client, Server, Listener]],
    nothing().

connect_refused(B) ->
    {Bound, Port} = unused_port(),
    ?assertEqual({error, econnrefused}, connect(B, ?LOOPBACK, Port, [])),
    ?assertEqual({error, econnrefused}, connect(B, "localhost", Port, [inet])),
    ?assertEqual({error, nxdomain}, connect(B, "nosuch.invalid", Port, [inet])),
    ok = socket:close(Bound),
    nothing().

connect_times_out(B) ->
    {Full, Port, Only} = full_listener(),
    ?assertEqual({error, timeout}, connect(B, ?LOOPBACK, Port, [], 20)),
    ?assertEqual({error, timeout}, connect(B, ?LOOPBACK, Port, [], 0)),
    ok = socket:close(Full),
    _ = gen_tcp:close(Only),
    nothing().

accept_times_out(B) ->
    {ok, Listener} = listen(B, [binary, {active, false}, {ip, ?LOOPBACK}]),
    {ok, Port} = port(Listener),
    ?assertEqual({error, timeout}, accept(Listener, 0)),
    ?assertEqual({error, timeout}, accept(Listener, 20)),
    ?assertEqual({error, timeout}, accept(Listener, 1)),
    {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, peer_opts()),
    {ok, Socket} = accept(Listener),
    ok = gen_tcp:send(Peer, "x"),
    ?assertEqual({ok, <<"x">>}, recv(Socket, 1)),
    ?assertEqual({error, timeout}, accept(Listener, 1)),
    [ok = close(S) || S <- [Socket, Listener]],
    ok = gen_tcp:close(Peer),
    nothing().

%% Each connection goes to exactly one of those who wait.
many_acceptors(B) ->
    {ok, Listener} = listen(B, [binary, {active, false}, {ip, ?LOOPBACK}, {backlog, 128}]),
    {ok, Port} = port(Listener),
    Acceptors = [start(fun() -> serve_names(Listener, 0) end) || _ <- lists:seq(1, 8)],
    [until_waiting(Acceptor) || Acceptor <- Acceptors],
    Clients = [start(fun() -> ask_name(Port, I) end) || I <- lists:seq(1, 120)],
    ?assertEqual([ok || _ <- Clients], [result(Client) || Client <- Clients]),
    %% gen_tcp says einval to one who is about to wait when the listener is closed.
    [until_waiting(Acceptor) || Acceptor <- Acceptors],
    ok = close(Listener),
    Served = [result(Acceptor) || Acceptor <- Acceptors],
    [?assertEqual({error, closed}, Last) || {_, Last} <- Served, not differs(B, einval_when_closed)],
    same(connections, 120, lists:sum([Count || {Count, _} <- Served])).

%% How many were served, and the error after them.
serve_names(Listener, Served) ->
    case accept(Listener, infinity) of
        {ok, Socket} ->
            {ok, Name} = recv(Socket, 4),
            ok = send(Socket, Name),
            {error, closed} = recv(Socket, 0),
            ok = close(Socket),
            serve_names(Listener, Served + 1);
        {error, _} = Error ->
            {Served, Error}
    end.

ask_name(Port, I) ->
    {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, peer_opts()),
    ok = gen_tcp:send(Peer, <<I:32>>),
    {ok, <<I:32>>} = gen_tcp:recv(Peer, 4),
    gen_tcp:close(Peer).

%% Connections that were made before anybody accepts are all there.
accept_burst(B) ->
    {ok, Listener} = listen(B, [binary, {active, false}, {ip, ?LOOPBACK}, {backlog, 300}]),
    {ok, Port} = port(Listener),
    Peers = [
        begin
            {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, peer_opts()),
            ok = gen_tcp:send(Peer, <<I:32>>),
            Peer
        end
     || I <- lists:seq(1, 200)
    ],
    Names = [
        begin
            {ok, Socket} = accept(Listener),
            {ok, <<I:32>>} = recv(Socket, 4),
            ok = close(Socket),
            I
        end
     || _ <- Peers
    ],
    same(connections, lists:seq(1, 200), lists:sort(Names)),
    {error, timeout} = accept(Listener, 0),
    [ok = gen_tcp:close(Peer) || Peer <- Peers],
    ok = close(Listener).

%% One that is killed while it waits takes no connection with it.
killed_acceptor(B) ->
    {ok, Listener} = listen(B, [binary, {active, false}, {ip, ?LOOPBACK}]),
    {ok, Port} = port(Listener),
    Acceptors = [start(fun() -> accept(Listener, infinity) end) || _ <- lists:seq(1, 4)],
    [until_waiting(Acceptor) || Acceptor <- Acceptors],
    [kill(Acceptor) || Acceptor <- Acceptors],
    {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, peer_opts()),
    {ok, Socket} = accept(Listener),
    ok = gen_tcp:send(Peer, "x"),
    {ok, <<"x">>} = recv(Socket, 1),
    ok = close(Socket),
    ok = close(Listener),
    ok = gen_tcp:close(Peer).

close_while_accepting(B) ->
    {ok, Listener} = listen(B, [{ip, ?LOOPBACK}]),
    Acceptors = [start(fun() -> accept(Listener, infinity) end) || _ <- lists:seq(1, 4)],
    [until_waiting(Acceptor) || Acceptor <- Acceptors],
    ok = close(Listener),
    [?assertEqual({error, closed}, result(Acceptor)) || Acceptor <- Acceptors],
    {error, Reason} = accept(Listener, 0),
    differs(B, einval_when_closed) orelse ?assertEqual(closed, Reason),
    nothing().

listener_owner_dies(B) ->
    Me = self(),
    Owner = start(fun() ->
        {ok, Listener} = listen(B, [{ip, ?LOOPBACK}]),
        Me ! {listener, Listener, port(Listener)},
        receive stop -> ok end
    end),
    {listener, Listener, {ok, Port}} = next(),
    Acceptors = [start(fun() -> accept(Listener, infinity) end) || _ <- lists:seq(1, 3)],
    [until_waiting(Acceptor) || Acceptor <- Acceptors],
    kill(Owner),
    [?assertEqual({error, closed}, result(Acceptor)) || Acceptor <- Acceptors],
    until(fun() -> gen_tcp:connect(?LOOPBACK, Port, []) =:= {error, econnrefused} end).

%% The options of the listening socket are those of what it accepts.
accepted_inherits(B) ->
    Opts = [
        {mode, binary},
        {active, 5},
        {packet, 2},
        {packet_size, 1000},
        {header, 1},
        {buffer, 3000},
        {nodelay, true},
        {keepalive, true},
        {exit_on_close, false},
        {show_econnreset, true},
        {high_watermark, 30000},
        {low_watermark, 20000},
        {send_timeout, 1234},
        {send_timeout_close, true},
        {linger, {true, 3}}
    ],
    {Socket, Peer} = pair(B, accepted, Opts),
    Not = [Name || {Name, _} <- Opts, differs(B, {not_inherited, Name})],
    Names = [Name || {Name, _} <- Opts] -- Not,
    {ok, Got} = getopts(Socket, Names),
    ?assertEqual([{Name, Value} || {Name, Value} <- Opts, lists:member(Name, Names)], Got),
    ok = gen_tcp:close(Peer),
    ok = setopts(Socket, [{linger, {false, 0}}]),
    ok = close(Socket).

reuseport(B) ->
    Opts = [{ip, ?LOOPBACK}, {active, false}, {backlog, 100} | reuseport_opts(B)],
    {ok, One} = listen(B, Opts),
    {ok, Port} = port(One),
    {ok, Two} = listen(B, Port, Opts),
    ?assertEqual({error, eaddrinuse}, listen(B, Port, [{ip, ?LOOPBACK}])),
    Peers = [
        begin
            {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, peer_opts()),
            Peer
        end
     || _ <- lists:seq(1, 60)
    ],
    Me = self(),
    Acceptors = [start(fun() -> count(Listener, Me, 0) end) || Listener <- [One, Two]],
    [accepted = next() || _ <- Peers],
    ok = close(One),
    ok = close(Two),
    [First, Second] = [result(Acceptor) || Acceptor <- Acceptors],
    same(connections, 60, First + Second),
    %% The kernel spreads them by a hash of their ports: that none goes to one of the two has odds of 1 in 2^59.
    ?assert(First > 0 andalso Second > 0),
    [ok = gen_tcp:close(Peer) || Peer <- Peers],
    nothing().

count(Listener, Counter, Accepted) ->
    case accept(Listener, infinity) of
        {ok, _Socket} ->
            Counter ! accepted,
            count(Listener, Counter, Accepted + 1);
        {error, closed} ->
            Accepted
    end.

%% gen_tcp knows the option by name since OTP 26.
reuseport_opts(weir) -> [{reuseport, true}];
reuseport_opts(_B) -> [{raw, 1, 15, <<1:32/native>>}].

%% ---------------------------------------------------------------- descriptors that others made

descriptor_of_a_listener(B) ->
    {ok, Made} = socket:open(inet, stream),
    ok = socket:bind(Made, #{family => inet, addr => ?LOOPBACK, port => 0}),
    ok = socket:listen(Made, 10),
    {ok, #{port := Port}} = socket:sockname(Made),
    Descriptor = weir_socket_test_lib:descriptor(Made),
    {ok, Listener} = listen(B, [binary, {active, false}, {fd, Descriptor}]),
    ?assertEqual({ok, {?LOOPBACK, Port}}, sockname(Listener)),
    {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, peer_opts()),
    {ok, Socket} = accept(Listener),
    ok = gen_tcp:send(Peer, "x"),
    {ok, <<"x">>} = recv(Socket, 1),
    ok = gen_tcp:close(Peer),
    ok = close(Socket),
    left_open(B, Listener, Descriptor).

descriptor_of_a_connection(B) ->
    {ok, Listener} = gen_tcp:listen(0, peer_opts()),
    {ok, Port} = inet:port(Listener),
    {ok, Made} = socket:open(inet, stream),
    Descriptor = weir_socket_test_lib:descriptor(Made),
    {ok, Socket} = connect(B, ?LOOPBACK, Port, [binary, {active, false}, {fd, Descriptor}]),
    {ok, Peer} = gen_tcp:accept(Listener),
    talk(Socket, Peer),
    left_open(B, Socket, Descriptor),
    ok = gen_tcp:close(Peer),
    ok = gen_tcp:close(Listener).

%% A connection that something else has made. Its socket is passive and in list mode unless told otherwise, so nothing
%% is delivered before its owner asks for it.
adopted_connection(B) -> differs(B, adopted) orelse adopted(B).

adopted(B) ->
    {Descriptor, Peer, {Address, Port}} = connected(inet),
    ok = gen_tcp:send(Peer, "early"),
    {ok, Socket} = fdopen(B, Descriptor, []),
    ?assertEqual({false, list}, {getopt(Socket, active), getopt(Socket, mode)}),
    ?assertEqual({ok, {Address, Port}}, peername(Socket)),
    nothing(),
    ok = setopts(Socket, [{active, once}]),
    {tcp, Socket, "early"} = next(),
    ok = send(Socket, "x"),
    {ok, <<"x">>} = gen_tcp:recv(Peer, 1),
    left_open(B, Socket, Descriptor),
    %% The connection goes on as long as that descriptor is open, and may be adopted again.
    {ok, Again} = fdopen(B, Descriptor, [inet, binary, {packet, 1}, {active, true}, {active, false}]),
    ok = gen_tcp:send(Peer, [1, $a, 1, $b]),
    %% Of two settings the first counts, as in setopts.
    {tcp, Again, <<"a">>} = next(),
    {tcp, Again, <<"b">>} = next(),
    ok = gen_tcp:close(Peer),
    {tcp_closed, Again} = next(),
    _ = close(Again),
    {Other, Its, _} = connected(inet6),
    ?assertEqual({error, einval}, fdopen(B, Other, [])),
    {ok, Inet6} = fdopen(B, Other, [inet6, binary]),
    talk(Inet6, Its),
    ok = close(Inet6),
    ok = gen_tcp:close(Its),
    nothing().

%% A descriptor that is not connected, and one that is none.
adopted_in_part(B) -> differs(B, adopted) orelse in_part(B).

in_part(B) ->
    {ok, Made} = socket:open(inet, stream),
    Descriptor = weir_socket_test_lib:descriptor(Made),
    {ok, Socket} = fdopen(B, Descriptor, [binary]),
    ?assertEqual({error, enotconn}, recv(Socket, 0)),
    ?assertEqual({error, enotconn}, send(Socket, "x")),
    ok = close(Socket),
    ?assertEqual({error, ebadf}, fdopen(B, 16#7ffffff, [])),
    [
        ?assertEqual({Opts, {error, einval}}, {Opts, fdopen(B, Descriptor, Opts)})
     || Opts <- [
            [nosuch], [{nosuch, 1}], [{active, maybe_later}], [{packet, 9}], [{port, 3}], [{ip, ?LOOPBACK}],
            [{fd, 3}], [{backlog, 3}], [inet6], [local]
        ]
    ],
    {ok, Third} = fdopen(B, Descriptor, []),
    left_open(B, Third, Descriptor).

%% connect connects: what is connected already is refused, and left as it is.
connected_descriptor(B) -> differs(B, adopted) orelse connected_already(B).

connected_already(B) ->
    {Descriptor, Peer, {Address, Port}} = connected(inet),
    [
        ?assertEqual({error, eisconn}, connect(B, Address, To, [binary, {active, false}, {fd, Descriptor}]))
     || To <- [Port, 1]
    ],
    {Other, Its, _} = connected(inet6),
    ?assertEqual(refused, refused(fun() -> connect(B, Address, Port, [{fd, Other}]) end)),
    ?assertEqual({error, einval}, listen(B, [{fd, Other}])),
    ?assertEqual({error, einval}, listen(B, [{fd, Descriptor}])),
    [?assertEqual({error, timeout}, gen_tcp:recv(End, 0, 0)) || End <- [Peer, Its]],
    [ok = gen_tcp:close(End) || End <- [Peer, Its]],
    nothing().

%% The descriptor of one end, the socket of the other, and its address.
connected(Family) ->
    Address = case Family of inet -> ?LOOPBACK; inet6 -> {0, 0, 0, 0, 0, 0, 0, 1} end,
    {ok, Listener} = gen_tcp:listen(0, [Family, {ip, Address} | peer_opts()]),
    {ok, Port} = inet:port(Listener),
    {ok, Made} = socket:open(Family, stream),
    ok = socket:connect(Made, #{family => Family, addr => Address, port => Port}),
    {ok, Peer} = gen_tcp:accept(Listener),
    ok = gen_tcp:close(Listener),
    {weir_socket_test_lib:descriptor(Made), Peer, {Address, Port}}.

%% gen_tcp leaves a descriptor that it was given open.
left_open(B, Socket, Descriptor) ->
    Link = "/proc/self/fd/" ++ integer_to_list(Descriptor),
    {ok, Before} = file:read_link(Link),
    ok = close(Socket),
    case differs(B, closes_given_descriptors) of
        true -> until(fun() -> file:read_link(Link) =/= {ok, Before} end);
        false -> {ok, Before} = file:read_link(Link)
    end.

wrong_options(B) ->
    Wrong = [{nosuch, 1}, nosuch, {active, maybe_later}, {packet, 3}, {mode, text}, {buffer, none}],
    [?assertEqual({Opt, refused}, {Opt, refused(fun() -> listen(B, [Opt]) end)}) || Opt <- Wrong],
    [
        ?assertEqual({Opt, refused}, {Opt, refused(fun() -> connect(B, ?LOOPBACK, 1, [Opt]) end)})
     || Opt <- Wrong
    ],
    {Socket, Peer} = pair(B, []),
    [
        ?assertEqual({Opt, refused}, {Opt, refused(fun() -> setopts(Socket, [Opt]) end)})
     || Opt <- Wrong, not differs(B, {not_checked, Opt})
    ],
    ok = close(Socket),
    ok = gen_tcp:close(Peer).

%% How it is refused differs: by an exit, or by an error that may name the option.
refused(Fun) ->
    try Fun() of
        {error, einval} -> refused;
        {error, badarg} -> refused;
        {error, {bad_option, _, _}} -> refused;
        {error, {invalid, _}} -> refused;
        Other -> Other
    catch
        exit:badarg -> refused;
        error:badarg -> refused
    end.

%% The functions of gen_tcp and inet take any of these sockets.
through_gen_tcp(B) ->
    {ok, Listener} = listen(B, [binary, {active, false}, {ip, ?LOOPBACK}]),
    {ok, Port} = inet:port(Listener),
    {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, peer_opts()),
    {ok, Socket} = gen_tcp:accept(Listener),
    ok = gen_tcp:close(Listener),
    ?assertEqual(inet:sockname(Peer), inet:peername(Socket)),
    ?assertEqual(inet:peername(Peer), inet:sockname(Socket)),
    ok = gen_tcp:send(Socket, "out"),
    {ok, <<"out">>} = gen_tcp:recv(Peer, 3),
    ok = gen_tcp:send(Peer, "in"),
    {ok, <<"in">>} = gen_tcp:recv(Socket, 2),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 2, 1)),
    {ok, [{active, false}]} = inet:getopts(Socket, [active]),
    ok = inet:setopts(Socket, [{active, true}]),
    ok = gen_tcp:send(Peer, "in"),
    {tcp, Socket, <<"in">>} = next(),
    {ok, Stat} = inet:getstat(Socket, [recv_oct, send_oct]),
    ?assertEqual([{recv_oct, 4}, {send_oct, 3}], lists:sort(Stat)),
    Other = start(fun() -> receive {tcp, Socket, Data} -> Data end end),
    ok = gen_tcp:controlling_process(Socket, element(1, Other)),
    {error, not_owner} = gen_tcp:controlling_process(Socket, self()),
    ok = gen_tcp:send(Peer, "moved"),
    ?assertEqual(<<"moved">>, result(Other)),
    ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0)),
    {Third, Its} = pair(B, [{active, false}]),
    ok = gen_tcp:shutdown(Third, write),
    {error, closed} = gen_tcp:recv(Its, 0),
    ok = inet:close(Third),
    ok = gen_tcp:close(Its),
    ok = gen_tcp:close(Peer),
    nothing().
