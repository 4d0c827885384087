%% weir_socket beyond what all implementations have in common: what OTP asks of its sockets, waiting and its end,
%% owners, and what is Weir's own. The other end of a connection is gen_tcp's.
-module(weir_socket_api_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [start/1, result/1, until/1, until_waiting/1, kill/1, await_down/1, same/3, wait_ms/0]).
-import(weir_socket_test_lib, [
    nothing_at_all/0, unused_port/0, descriptors/0, next/0, until_messages/1, read_all/1, same_bytes/2,
    until_nothing_leaks/1
]).

all() -> [{group, gives_up} | weir_kit:cases(?MODULE) -- gives_up()].

groups() -> [{gives_up, [parallel], gives_up()}].

%% Cases that wait for seconds.
gives_up() -> [close_gives_up, close_gives_up_after_linger].

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    [{started, Started} | Config].

end_per_suite(Config) -> lists:foreach(fun application:stop/1, lists:reverse(?config(started, Config))).

%% The other end has closed it, of which the owner was not told, and then it was closed here: that is the end of it.
set_after_close(_) ->
    {Socket, Peer} = pair([binary, {active, false}]),
    ok = gen_tcp:close(Peer),
    {error, closed} = weir_socket:recv(Socket, 0),
    ok = weir_socket:close(Socket),
    [
        ?assertEqual({Active, {error, einval}}, {Active, weir_socket:setopts(Socket, [{active, Active}])})
     || Active <- [true, once, 1, false]
    ],
    nothing_at_all().

%% The backend that is gen_tcp's default is no option of ours, and may be named; another one cannot be had.
backend_of_gen_tcp(_) ->
    {ok, Listener} = weir_socket:listen(0, [{inet_backend, inet}]),
    {ok, Port} = weir_socket:port(Listener),
    {ok, Socket} = weir_socket:connect({127, 0, 0, 1}, Port, [{inet_backend, inet}]),
    ?assertEqual({error, {bad_option, inet_backend, socket}}, weir_socket:listen(0, [{inet_backend, socket}])),
    [ok = weir_socket:close(Each) || Each <- [Socket, Listener]].

%% As the runtime has them.
names_of_errors(_) ->
    {ok, Listener} = gen_tcp:listen(0, []),
    {ok, Fd} = inet:getfd(Listener),
    {ok, Socket} = weir_socket:listen(0, [{fd, Fd}, {pollset, 0}]),
    %% A descriptor is in a set once.
    ?assertEqual({error, eexist}, weir_socket:listen(0, [{fd, Fd}, {pollset, 0}])),
    ?assertEqual({error, ebadf}, weir_socket:listen(0, [{fd, 16#7ffffff}])),
    ok = weir_socket:close(Socket),
    ok = gen_tcp:close(Listener).

%% Who does not wait is told what the kernel has, though no poller has seen it: a connection pool asks so whether the
%% other end is still there.
received_without_waiting(_) ->
    [
        begin
            {Socket, Peer} = pair([binary, {active, false}, {packet, Packet}]),
            Set = maps:get(pollset, weir_socket:info(Socket)),
            #{poller := Poller} = weir_socket_nif:pollset_info(Set),
            true = erlang:suspend_process(Poller),
            ?assertEqual({error, timeout}, weir_socket:recv(Socket, 0, 0)),
            ok = gen_tcp:send(Peer, Packets),
            ok = in_the_kernel(Socket),
            [?assertEqual({Packet, {ok, Expected}}, {Packet, weir_socket:recv(Socket, 0, 0)}) || Expected <- Packeted],
            ?assertEqual({error, timeout}, weir_socket:recv(Socket, 0, 0)),
            ok = gen_tcp:close(Peer),
            ok = in_the_kernel(Socket),
            ?assertEqual({error, closed}, weir_socket:recv(Socket, 0, 0)),
            true = erlang:resume_process(Poller),
            ok = weir_socket:close(Socket)
        end
     || {Packet, Packets, Packeted} <- [
            {raw, "ab", [<<"ab">>]},
            {2, <<0, 2, "ab">>, [<<"ab">>]},
            {line, "a\nb\n", [<<"a\n">>, <<"b\n">>]},
            {tpkt, <<3, 0, 0, 6, "ab">>, [<<3, 0, 0, 6, "ab">>]}
        ]
    ].

%% Returns when there is something to be read, or the end, as OTP's own socket on a duplicate sees it.
in_the_kernel(Socket) ->
    {ok, [{fd, Fd}]} = weir_socket:getopts(Socket, [fd]),
    {ok, Duplicate} = socket:open(Fd, #{dup => true}),
    case socket:recv(Duplicate, 0, [peek], wait_ms()) of
        {ok, _} -> ok;
        {error, closed} -> ok
    end,
    socket:close(Duplicate).

%% ---------------------------------------------------------------- OTP's own functions

gen_tcp_takes_it(_) ->
    {ok, Listener} = weir_socket:listen(0, [binary, {active, false}, {packet, 2}]),
    {ok, Port} = inet:port(Listener),
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {packet, 2}]),
    {ok, Socket} = gen_tcp:accept(Listener),
    {error, timeout} = gen_tcp:accept(Listener, 0),
    ok = gen_tcp:send(Peer, "hello"),
    {ok, <<"hello">>} = gen_tcp:recv(Socket, 0),
    ok = gen_tcp:send(Socket, ["wo", <<"rld">>]),
    {ok, <<"world">>} = gen_tcp:recv(Peer, 0),
    {error, timeout} = gen_tcp:recv(Socket, 0, 0),
    ok = gen_tcp:shutdown(Socket, write),
    {error, closed} = gen_tcp:recv(Peer, 0),
    {error, enotsup} = gen_tcp:unrecv(Socket, "x"),
    Owner = start(fun() -> receive stop -> ok end end),
    ok = gen_tcp:controlling_process(Socket, element(1, Owner)),
    kill(Owner),
    until(fun() -> gen_tcp:recv(Socket, 0, 0) =:= {error, closed} end),
    ok = gen_tcp:close(Socket),
    ok = gen_tcp:close(Listener),
    ok = gen_tcp:close(Peer).

inet_takes_it(_) ->
    {Socket, Peer} = pair([binary, {active, false}]),
    {ok, [{active, false}, {nodelay, false}]} = inet:getopts(Socket, [active, nodelay]),
    ok = inet:setopts(Socket, [{nodelay, true}, {active, once}]),
    {ok, [{active, once}, {nodelay, true}]} = inet:getopts(Socket, [active, nodelay]),
    {ok, Own} = inet:sockname(Socket),
    {ok, Own} = inet:peername(Peer),
    {ok, Others} = inet:sockname(Peer),
    {ok, Others} = inet:peername(Socket),
    {ok, [Own]} = inet:socknames(Socket),
    {ok, Port} = inet:port(Socket),
    {_, Port} = Own,
    {ok, [{recv_cnt, 0}]} = inet:getstat(Socket, [recv_cnt]),
    {ok, [_ | _]} = inet:getstat(Socket),
    #{owner := Self} = inet:info(Socket),
    Self = self(),
    {ok, [{fd, Fd}]} = inet:getopts(Socket, [fd]),
    true = is_integer(Fd),
    [$# | _] = inet:socket_to_list(Socket),
    ok = inet:close(Socket),
    {error, einval} = inet:getopts(Socket, [active]),
    ok = gen_tcp:close(Peer).

inet_listener(_) ->
    {ok, Listener} = weir_socket:listen(0, [{packet, line}]),
    {error, enotconn} = inet:peername(Listener),
    {error, enotconn} = gen_tcp:recv(Listener, 0, 0),
    {error, enotconn} = gen_tcp:send(Listener, "x"),
    {ok, line} = weir_socket:which_packet_type(Listener),
    #{states := [listen, open]} = inet:info(Listener),
    ok = inet:close(Listener),
    {error, closed} = gen_tcp:accept(Listener),
    {error, closed} = gen_tcp:accept(Listener, 0).

sendfile(Config) ->
    {Socket, Peer} = pair([binary, {active, false}]),
    File = filename:join(?config(priv_dir, Config), "file"),
    Content = rand:bytes(100_000),
    ok = file:write_file(File, Content),
    Reader = start(fun() -> gen_tcp:recv(Peer, 100_000, wait_ms()) end),
    {ok, 100_000} = file:sendfile(File, Socket),
    ok = gen_tcp:controlling_process(Peer, self()),
    {ok, Content} = result(Reader),
    ok = weir_socket:close(Socket).

monitors(_) ->
    {Socket, Peer} = pair([]),
    Ref = inet:monitor(Socket),
    nothing_at_all(),
    ok = weir_socket:close(Socket),
    closed = told(Ref, Socket),
    false = inet:cancel_monitor(Ref),
    nothing_at_all(),
    ok = gen_tcp:close(Peer),
    %% The peer closes.
    {Other, OtherPeer} = pair([{active, false}]),
    OtherRef = inet:monitor(Other),
    Waiting = start(fun() -> weir_socket:recv(Other, 0) end),
    ok = gen_tcp:close(OtherPeer),
    {error, closed} = result(Waiting),
    closed = told(OtherRef, Other).

cancelled_monitors(_) ->
    {Socket, Peer} = pair([]),
    Ref = inet:monitor(Socket),
    Kept = inet:monitor(Socket),
    true = inet:cancel_monitor(Ref),
    false = inet:cancel_monitor(Ref),
    false = weir_socket:cancel_monitor(make_ref()),
    ok = weir_socket:close(Socket),
    closed = told(Kept, Socket),
    nothing_at_all(),
    ok = gen_tcp:close(Peer).

monitors_of_the_closed(_) ->
    {ok, Socket} = weir_socket:listen(0, []),
    ok = weir_socket:close(Socket),
    Ref = inet:monitor(Socket),
    nosock = told(Ref, Socket),
    false = inet:cancel_monitor(Ref).

%% Monitors of dead processes leave nothing. The other processes get their messages.
many_monitors(_) ->
    {ok, Socket} = weir_socket:listen(0, []),
    [result(start(fun() -> weir_socket:monitor(Socket) end)) || _ <- lists:seq(1, 50)],
    Alive = [
        start(fun() ->
            Ref = weir_socket:monitor(Socket),
            receive {'DOWN', Ref, socket, Socket, closed} -> told end
        end)
     || _ <- lists:seq(1, 50)
    ],
    %% Each waits only when it has its monitor.
    [until_waiting(Task) || Task <- Alive],
    ok = weir_socket:close(Socket),
    [told = result(Task) || Task <- Alive].

stats(_) ->
    {Socket, Peer} = pair([binary, {active, false}, {packet, 1}]),
    ok = weir_socket:send(Socket, "abc"),
    ok = weir_socket:send(Socket, "abcde"),
    ok = gen_tcp:send(Peer, <<3, "xyz">>),
    {ok, <<"xyz">>} = weir_socket:recv(Socket, 0),
    {ok, Stats} = weir_socket:getstat(Socket),
    %% With headers, as gen_tcp counts.
    #{
        send_cnt := 2, send_oct := 10, send_max := 6, send_avg := 5, send_pend := 0, recv_cnt := 1, recv_oct := 4,
        recv_max := 4, recv_avg := 4, recv_dvi := 0
    } = maps:from_list(Stats),
    {ok, [{send_avg, 5}, {recv_oct, 4}]} = weir_socket:getstat(Socket, [send_avg, recv_oct]),
    {error, einval} = weir_socket:getstat(Socket, [no_such]),
    close(Socket, Peer).

infos(_) ->
    {Socket, Peer} = pair([{active, 7}]),
    #{
        states := [connected, open], owner := Self, active := 7, counters := #{recv_cnt := 0}, pollset := Set, fd := Fd,
        domain := inet
    } = weir_socket:info(Socket),
    Self = self(),
    {connected, Self} = weir_socket:socket_info(Socket, connected),
    {pollset, Set} = weir_socket:socket_info(Socket, pollset),
    {fd, Fd} = weir_socket:socket_info(Socket, fd),
    undefined = weir_socket:socket_info(Socket, no_such),
    close(Socket, Peer),
    #{states := [closed]} = weir_socket:info(Socket),
    undefined = weir_socket:socket_info(Socket, connected).

%% ---------------------------------------------------------------- waiting

%% Whatever the time-outs, each byte comes once and in order, and nothing else comes.
received_in_time_or_later(_) ->
    {Socket, Peer} = pair([binary, {active, false}]),
    Sent = iolist_to_binary([<<N:32>> || N <- lists:seq(1, 2000)]),
    Sender = start(fun() ->
        [
            begin
                ok = gen_tcp:send(Peer, <<N:32>>),
                N rem 7 =:= 0 andalso erlang:yield()
            end
         || N <- lists:seq(1, 2000)
        ],
        gen_tcp:shutdown(Peer, write)
    end),
    same_bytes(Sent, receive_all(Socket, <<>>, 0)),
    ok = result(Sender),
    nothing_at_all(),
    close(Socket, Peer).

receive_all(Socket, Received, N) ->
    case weir_socket:recv(Socket, N rem 2, N rem 3) of
        {ok, Data} -> receive_all(Socket, <<Received/binary, Data/binary>>, N + 1);
        {error, timeout} -> receive_all(Socket, Received, N + 1);
        {error, closed} -> Received
    end.

%% Connections that come when the time of an acceptor is over are not lost.
accepted_in_time_or_later(_) ->
    {ok, Listener} = weir_socket:listen(0, [{active, false}, {backlog, 128}]),
    {ok, Port} = weir_socket:port(Listener),
    Connector = start(fun() ->
        [
            begin
                {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [{active, false}]),
                Peer
            end
         || _ <- lists:seq(1, 100)
        ],
        receive stop -> ok end
    end),
    Accepted = accept_all(Listener, 100, 0),
    same(connections, 100, length(lists:usort([element(2, weir_socket:peername(Socket)) || Socket <- Accepted]))),
    nothing_at_all(),
    [ok = weir_socket:close(Socket) || Socket <- [Listener | Accepted]],
    element(1, Connector) ! stop,
    ok = result(Connector).

accept_all(_Listener, 0, _N) -> [];
accept_all(Listener, Left, N) ->
    case weir_socket:accept(Listener, N rem 2) of
        {ok, Socket} -> [Socket | accept_all(Listener, Left - 1, N + 1)];
        {error, timeout} -> accept_all(Listener, Left, N + 1)
    end.

%% An answer that was sent already when the time is over is the answer.
gone_answers_are_taken(_) ->
    {Socket, Peer} = pair([binary, {active, false}]),
    {'$inet', weir_socket, Sock} = Socket,
    Ref = make_ref(),
    wait = weir_socket_nif:recv(Sock, 0, Ref),
    ok = gen_tcp:send(Peer, "late"),
    until_messages(1),
    {ok, <<"late">>} = weir_socket_wait:cancel(Sock, Ref),
    Other = make_ref(),
    wait = weir_socket_nif:recv(Sock, 0, Other),
    {error, timeout} = weir_socket_wait:cancel(Sock, Other),
    ok = gen_tcp:send(Peer, "kept"),
    {ok, <<"kept">>} = weir_socket:recv(Socket, 0),
    nothing_at_all(),
    close(Socket, Peer).

recv_closed_by_another(_) ->
    {Socket, Peer} = pair([{active, false}]),
    Waiting = [start(fun() -> weir_socket:recv(Socket, 0) end) || _ <- lists:seq(1, 3)],
    until(fun() -> weir_socket:socket_info(Socket, receivers) =:= {receivers, 3} end),
    ok = weir_socket:close(Socket),
    [{error, closed} = result(One) || One <- Waiting],
    {error, closed} = weir_socket:recv(Socket, 0),
    ok = gen_tcp:close(Peer).

accept_closed_by_another(_) ->
    {ok, Listener} = weir_socket:listen(0, []),
    Waiting = [start(fun() -> weir_socket:accept(Listener) end) || _ <- lists:seq(1, 3)],
    until(fun() -> weir_socket:socket_info(Listener, acceptors) =:= {acceptors, 3} end),
    ok = weir_socket:close(Listener),
    [{error, closed} = result(One) || One <- Waiting].

send_closed_by_another(_) ->
    {Socket, Peer} = pair([{active, false}]),
    fill(Socket),
    Waiting = start(fun() -> weir_socket:send(Socket, "x") end),
    until(fun() -> weir_socket:socket_info(Socket, senders) =:= {senders, 1} end),
    ok = weir_socket:setopts(Socket, [{linger, {true, 0}}]),
    ok = weir_socket:close(Socket),
    {error, closed} = result(Waiting),
    {error, closed} = weir_socket:send(Socket, "x"),
    ok = gen_tcp:close(Peer).

send_times_out(_) ->
    {Socket, Peer} = pair([{active, false}, {send_timeout, 50}]),
    fill(Socket),
    {ok, [{send_pend, Queued}]} = weir_socket:getstat(Socket, [send_pend]),
    {error, timeout} = weir_socket:send(Socket, "never sent"),
    %% It took nothing, and the socket is as it was.
    {ok, [{send_pend, Queued}]} = weir_socket:getstat(Socket, [send_pend]),
    {senders, 0} = weir_socket:socket_info(Socket, senders),
    ok = weir_socket:setopts(Socket, [{send_timeout, 0}]),
    {error, timeout} = weir_socket:send(Socket, "never sent"),
    nothing_at_all(),
    abort(Socket, Peer).

send_timeout_closes(_) ->
    {Socket, Peer} = pair([{active, false}, {send_timeout, 20}, {send_timeout_close, true}]),
    fill(Socket),
    {error, timeout} = weir_socket:send(Socket, "x"),
    {error, closed} = weir_socket:send(Socket, "x"),
    #{states := [closed]} = weir_socket:info(Socket),
    nothing_at_all(),
    ok = gen_tcp:close(Peer).

send_goes_on_when_there_is_room(_) ->
    {Socket, Peer} = pair([{active, false}]),
    fill(Socket),
    Waiting = start(fun() -> weir_socket:send(Socket, "the last") end),
    until(fun() -> weir_socket:socket_info(Socket, senders) =:= {senders, 1} end),
    Last = read_until(Peer, <<"the last">>),
    ok = result(Waiting),
    <<"the last">> = Last,
    close(Socket, Peer).

shutdown_after_what_is_queued(_) ->
    {Socket, Peer} = pair([{active, false}]),
    fill(Socket),
    {ok, [{send_oct, Sent}]} = weir_socket:getstat(Socket, [send_oct]),
    ok = weir_socket:shutdown(Socket, write),
    {error, closed} = weir_socket:send(Socket, "x"),
    same(bytes, Sent, byte_size(read_all(Peer))),
    ok = gen_tcp:send(Peer, "other way"),
    {ok, "other way"} = weir_socket:recv(Socket, 9),
    close(Socket, Peer).

%% Both ends send more than the kernel takes and shut their side before either reads.
shut_on_both_sides(_) ->
    Options = [binary, {active, false}],
    {ok, Listener} = weir_socket:listen(0, [{ip, {127, 0, 0, 1}} | Options]),
    {ok, Port} = weir_socket:port(Listener),
    {ok, One} = weir_socket:connect({127, 0, 0, 1}, Port, Options),
    {ok, Other} = weir_socket:accept(Listener, wait_ms()),
    ok = weir_socket:close(Listener),
    Data = binary:copy(<<"0123456789">>, 2_000_000),
    [ok = weir_socket:send(Socket, Data) || Socket <- [One, Other]],
    [ok = weir_socket:shutdown(Socket, write) || Socket <- [One, Other]],
    Readers = [start(fun() -> weir_socket:recv(Socket, byte_size(Data)) end) || Socket <- [One, Other]],
    [same_bytes(Data, element(2, {ok, _} = result(Reader))) || Reader <- Readers],
    {error, closed} = weir_socket:recv(One, 0),
    ok = weir_socket:close(One),
    ok = weir_socket:close(Other).

close_waits(_) ->
    {Socket, Peer} = pair([{active, false}]),
    fill(Socket),
    {ok, [{send_oct, Sent}]} = weir_socket:getstat(Socket, [send_oct]),
    Waiting = start(fun() -> weir_socket:close(Socket) end),
    until(fun() -> lists:member(weir_socket:socket_info(Socket, state), [undefined, {state, flushing}]) end),
    {error, closed} = weir_socket:send(Socket, "x"),
    same(bytes, Sent, byte_size(read_all(Peer))),
    ok = result(Waiting),
    ok = gen_tcp:close(Peer).

%% The other end reads nothing: 5 seconds, as for gen_tcp.
close_gives_up(_) ->
    {Socket, Peer} = pair([{active, false}]),
    fill(Socket),
    ok = weir_socket:close(Socket),
    undefined = weir_socket:socket_info(Socket, state),
    nothing_at_all(),
    ok = gen_tcp:close(Peer).

%% The one with the option gives up long before the other, which has begun earlier.
close_gives_up_after_linger(_) ->
    {Patient, Peer1} = pair([{active, false}]),
    {Hasty, Peer2} = pair([{active, false}, {linger, {true, 1}}]),
    [fill(Socket) || Socket <- [Patient, Hasty]],
    Waiting = start(fun() -> weir_socket:close(Patient) end),
    until(fun() -> weir_socket:socket_info(Patient, state) =:= {state, flushing} end),
    ok = weir_socket:close(Hasty),
    {state, flushing} = weir_socket:socket_info(Patient, state),
    ok = result(Waiting),
    [ok = gen_tcp:close(Peer) || Peer <- [Peer1, Peer2]].

close_drops_with_linger_zero(_) ->
    {Socket, Peer} = pair([{active, false}, {linger, {true, 0}}]),
    fill(Socket),
    ok = weir_socket:close(Socket),
    undefined = weir_socket:socket_info(Socket, state),
    ok = gen_tcp:close(Peer).

%% ---------------------------------------------------------------- owners

%% What has come to the old owner goes to the new one, before anything that comes later; other messages stay.
moves_what_was_sent(_) ->
    {Socket, Peer} = pair([binary, {active, true}, {packet, 1}]),
    self() ! unrelated,
    ok = gen_tcp:send(Peer, [<<1, N>> || N <- lists:seq(1, 100)]),
    until_messages(101),
    Owner = start(fun() -> [receive {tcp, Socket, Data} -> Data end || _ <- lists:seq(1, 200)] end),
    ok = weir_socket:controlling_process(Socket, element(1, Owner)),
    {owner, NewOwner} = weir_socket:socket_info(Socket, owner),
    NewOwner = element(1, Owner),
    ok = gen_tcp:send(Peer, [<<1, N>> || N <- lists:seq(101, 200)]),
    same(messages, [<<N>> || N <- lists:seq(1, 200)], result(Owner)),
    receive unrelated -> ok after 0 -> weir_kit:fault({lost, unrelated}) end,
    nothing_at_all(),
    until(fun() -> weir_socket:socket_info(Socket, state) =:= undefined end),
    ok = gen_tcp:close(Peer).

%% The new owner is dead: the old one has all its messages, and the socket, in the mode it was in.
gives_back_what_was_sent(_) ->
    {Socket, Peer} = pair([binary, {active, 5}, {packet, 1}]),
    ok = gen_tcp:send(Peer, <<1, "a", 1, "b">>),
    until_messages(2),
    Dead = spawn(fun() -> ok end),
    _ = await_down(Dead),
    {error, badarg} = weir_socket:controlling_process(Socket, Dead),
    {ok, [{active, 3}]} = weir_socket:getopts(Socket, [active]),
    ok = gen_tcp:send(Peer, <<1, "c">>),
    same(messages, [{tcp, Socket, Data} || Data <- [<<"a">>, <<"b">>, <<"c">>]], [next() || _ <- [1, 2, 3]]),
    close(Socket, Peer).

not_the_owner(_) ->
    {Socket, Peer} = pair([{active, false}]),
    Self = self(),
    {error, not_owner} = result(start(fun() -> weir_socket:controlling_process(Socket, self()) end)),
    {error, not_owner} = result(start(fun() -> weir_socket:controlling_process(Socket, whereis(init)) end)),
    %% As for gen_tcp, it is no error to give it to its owner.
    ok = result(start(fun() -> weir_socket:controlling_process(Socket, Self) end)),
    close(Socket, Peer).

owner_already(_) ->
    {Socket, Peer} = pair([{active, true}]),
    ok = weir_socket:controlling_process(Socket, self()),
    {ok, [{active, true}]} = weir_socket:getopts(Socket, [active]),
    close(Socket, Peer),
    {error, closed} = weir_socket:controlling_process(Socket, self()),
    {error, closed} = weir_socket:controlling_process(Socket, whereis(init)).

owners_elsewhere(_) ->
    {Socket, Peer} = pair([{active, true}]),
    %% A pid of a node that is not there.
    Elsewhere = binary_to_term(<<131, 88, 100, 13:16, "other@nowhere", 1:32, 0:32, 1:32>>),
    {error, badarg} = weir_socket:controlling_process(Socket, Elsewhere),
    {ok, [{active, true}]} = weir_socket:getopts(Socket, [active]),
    close(Socket, Peer).

%% ---------------------------------------------------------------- connecting

%% A name with three addresses; only at the last somebody listens.
several_addresses(_) ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 4}}]),
    {ok, Port} = inet:port(Listener),
    Lookup = inet_db:res_option(lookup),
    ok = inet_db:set_lookup([file]),
    try
        [ok = inet_db:add_host({127, 0, 0, N}, ["weir-test-host"]) || N <- [2, 3, 4]],
        {ok, Socket} = weir_socket:connect("weir-test-host", Port, [{active, false}]),
        {ok, {{127, 0, 0, 4}, Port}} = weir_socket:peername(Socket),
        ok = weir_socket:close(Socket),
        ok = gen_tcp:close(Listener),
        {error, econnrefused} = weir_socket:connect("weir-test-host", Port, []),
        {error, nxdomain} = weir_socket:connect("weir-test-no-host", Port, [])
    after
        [inet_db:del_host({127, 0, 0, N}) || N <- [2, 3, 4]],
        ok = inet_db:set_lookup(Lookup)
    end.

connect_in_time(_) ->
    {Full, Port, Only} = weir_socket_test_lib:full_listener(),
    [{error, timeout} = weir_socket:connect({127, 0, 0, 1}, Port, [], Time) || Time <- [20, 0]],
    nothing_at_all(),
    ok = gen_tcp:close(Only),
    ok = socket:close(Full).

%% Attempts that fail send nothing, and leave no descriptor.
connect_leaves_nothing(_) ->
    {Bound, Port} = unused_port(),
    {error, econnrefused} = weir_socket:connect({127, 0, 0, 1}, Port, [{active, true}]),
    Before = descriptors(),
    [{error, econnrefused} = weir_socket:connect({127, 0, 0, 1}, Port, [{active, true}]) || _ <- lists:seq(1, 200)],
    until_nothing_leaks(fun() -> descriptors() =< Before end),
    nothing_at_all(),
    ok = socket:close(Bound).

sockaddrs(_) ->
    {ok, Listener} = weir_socket:listen(0, [inet6, {ifaddr, #{family => inet6, addr => loopback}}]),
    {ok, Port} = weir_socket:port(Listener),
    {ok, Socket} = weir_socket:connect(#{family => inet6, addr => loopback, port => Port}, [{active, false}]),
    {ok, {{0, 0, 0, 0, 0, 0, 0, 1}, Port}} = weir_socket:peername(Socket),
    {ok, Other} = weir_socket:connect(#{family => inet6, addr => {0, 0, 0, 0, 0, 0, 0, 1}, port => Port}, [], 1000),
    [ok = weir_socket:close(S) || S <- [Socket, Other, Listener]],
    %% The port: that of the map, of the option, of the argument.
    {ok, First} = weir_socket:listen(0, [{ifaddr, #{family => inet, addr => loopback}}]),
    {ok, Free} = weir_socket:port(First),
    {error, eaddrinuse} = weir_socket:listen(Free, [{ifaddr, #{family => inet, addr => loopback}}]),
    {error, eaddrinuse} = weir_socket:listen(0, [{ifaddr, #{family => inet, addr => loopback, port => Free}}]),
    {error, eaddrinuse} = weir_socket:listen(0, [{port, Free}, {ip, loopback}]),
    ok = weir_socket:close(First).

%% The name of a service is good for a port where the machine has a list of services. The port may be taken, or not be
%% for everybody.
services(_) ->
    case inet:getservbyname(http, tcp) of
        {ok, Port} ->
            serve_by_name(http, Port);
        {error, einval} ->
            ?assertExit(badarg, weir_socket:listen(http, [])),
            ?assertExit(badarg, weir_socket:connect({127, 0, 0, 9}, http, []))
    end.

serve_by_name(Name, Port) ->
    case weir_socket:listen(Name, [{ip, {127, 0, 0, 9}}]) of
        {ok, Listener} ->
            {ok, Port} = weir_socket:port(Listener),
            {ok, Socket} = weir_socket:connect({127, 0, 0, 9}, Name, []),
            ok = weir_socket:close(Socket),
            ok = weir_socket:close(Listener);
        {error, Reason} when Reason =:= eacces; Reason =:= eaddrinuse ->
            ok
    end.

from_an_address(_) ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    {ok, Socket} = weir_socket:connect({127, 0, 0, 1}, Port, [{ip, {127, 0, 0, 7}}]),
    {ok, {{127, 0, 0, 7}, Own}} = weir_socket:sockname(Socket),
    ok = weir_socket:close(Socket),
    {ok, Again} = weir_socket:connect(loopback, Port, [{port, Own}, {ip, {127, 0, 0, 8}}, {reuseaddr, true}]),
    {ok, {{127, 0, 0, 8}, Own}} = weir_socket:sockname(Again),
    ok = weir_socket:close(Again),
    {error, eaddrnotavail} = weir_socket:connect({127, 0, 0, 1}, Port, [{ip, {192, 0, 2, 1}}]),
    ok = gen_tcp:close(Listener).

%% ---------------------------------------------------------------- descriptors and sets

taken_descriptors(_) ->
    %% A listening one, by listen.
    {ok, Plain} = socket:open(inet, stream),
    ok = socket:bind(Plain, #{family => inet, addr => {127, 0, 0, 1}, port => 0}),
    ok = socket:listen(Plain),
    {ok, #{port := Port}} = socket:sockname(Plain),
    {ok, Fd} = socket:getopt(Plain, {otp, fd}),
    {ok, Listener} = weir_socket:listen(0, [{fd, duplicate(Fd)}, {active, false}, binary]),
    {ok, Port} = weir_socket:port(Listener),
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [{active, false}, binary]),
    {ok, Socket} = weir_socket:accept(Listener),
    ok = gen_tcp:send(Peer, "x"),
    {ok, <<"x">>} = weir_socket:recv(Socket, 1),
    ok = socket:close(Plain),
    close(Socket, Peer),
    ok = weir_socket:close(Listener),
    %% A bound one, by connect.
    {ok, Server} = gen_tcp:listen(0, [{active, false}]),
    {ok, ServerPort} = inet:port(Server),
    {ok, Bound} = socket:open(inet, stream),
    ok = socket:bind(Bound, #{family => inet, addr => {127, 0, 0, 5}, port => 0}),
    {ok, BoundFd} = socket:getopt(Bound, {otp, fd}),
    {ok, Client} = weir_socket:connect({127, 0, 0, 1}, ServerPort, [{fd, duplicate(BoundFd)}]),
    {ok, {{127, 0, 0, 5}, _}} = weir_socket:sockname(Client),
    ok = weir_socket:close(Client),
    ok = socket:close(Bound),
    ok = gen_tcp:close(Server).

%% A descriptor that nobody else in the node closes: OTP's socket for it is held by a process that never ends.
duplicate(Fd) ->
    Self = self(),
    Holder = spawn(fun() ->
        {ok, Socket} = socket:open(Fd, #{dup => true}),
        {ok, Duplicate} = socket:getopt(Socket, {otp, fd}),
        Self ! {self(), Duplicate},
        receive {never, Socket} -> ok end
    end),
    {Holder, Duplicate} = next(),
    Duplicate.

duplicates(_) ->
    {Socket, Peer} = pair([binary, {active, false}, {packet, 2}]),
    {ok, Other} = weir_socket:dup_socket(Socket),
    {ok, [{packet, 2}, {mode, binary}]} = weir_socket:getopts(Other, [packet, mode]),
    ok = weir_socket:close(Socket),
    ok = gen_tcp:send(Peer, <<0, 1, "x">>),
    {ok, <<"x">>} = weir_socket:recv(Other, 0),
    ok = weir_socket:send(Other, "y"),
    {ok, <<0, 1, "y">>} = gen_tcp:recv(Peer, 3),
    ok = weir_socket:close(Other),
    {error, closed} = gen_tcp:recv(Peer, 0),
    {error, einval} = weir_socket:dup_socket(Other),
    ok = gen_tcp:close(Peer).

sets(_) ->
    N = weir_socket_nif:pollsets(),
    {ok, Listener} = weir_socket:listen(0, [{pollset, N - 1}]),
    {ok, Port} = weir_socket:port(Listener),
    {pollset, Last} = weir_socket:socket_info(Listener, pollset),
    Last = N - 1,
    {ok, Socket} = weir_socket:connect({127, 0, 0, 1}, Port, [{pollset, 0}]),
    {pollset, 0} = weir_socket:socket_info(Socket, pollset),
    {ok, Accepted} = weir_socket:accept(Listener),
    {pollset, Last} = weir_socket:socket_info(Accepted, pollset),
    [ok = weir_socket:close(S) || S <- [Socket, Accepted, Listener]],
    ?assertExit(badarg, weir_socket:listen(0, [{pollset, N}])),
    ?assertExit(badarg, weir_socket:connect({127, 0, 0, 1}, Port, [{pollset, N}])),
    [
        begin
            {ok, S} = weir_socket:listen(0, [{bind_policy, Policy}]),
            {pollset, Set} = weir_socket:socket_info(S, pollset),
            true = Set < N,
            ok = weir_socket:close(S)
        end
     || Policy <- [scheduler, least_loaded, round_robin]
    ].

%% Wrong arguments are errors at once, and leave nobody waiting.
arguments(_) ->
    {Socket, Peer} = pair([{active, false}]),
    [
        ?assertError(function_clause, Call())
     || Call <- [
            fun() -> weir_socket:recv(Socket, -1) end,
            fun() -> weir_socket:recv(Socket, a) end,
            fun() -> weir_socket:recv(Socket, 0, -1) end,
            fun() -> weir_socket:recv(Socket, 0, 16#100000000) end,
            fun() -> weir_socket:recv(Socket, 0, soon) end,
            fun() -> weir_socket:accept(Socket, soon) end,
            fun() -> weir_socket:shutdown(Socket, both) end,
            fun() -> weir_socket:controlling_process(Socket, self_) end,
            fun() -> weir_socket:send(x, "x") end,
            fun() -> weir_socket:getstat(Socket, x) end
        ]
    ],
    %% With an address in the form of a map as well.
    {ok, {_, Port}} = inet:sockname(Peer),
    [
        begin
            ?assertError(function_clause, weir_socket:connect({127, 0, 0, 1}, Port, [], Timeout)),
            ?assertExit(badarg, weir_socket:connect(#{family => inet, addr => loopback, port => Port}, [], Timeout))
        end
     || Timeout <- [-1, 16#100000000, soon]
    ],
    {receivers, 0} = weir_socket:socket_info(Socket, receivers),
    {error, enomem} = weir_socket:recv(Socket, 16#4000001, 0),
    {error, timeout} = weir_socket:recv(Socket, 16#4000000, 0),
    {error, einval} = weir_socket:send(Socket, [x]),
    {error, einval} = weir_socket:send(Socket, x),
    {error, einval} = weir_socket:accept(Socket, 0),
    close(Socket, Peer).

%% ---------------------------------------------------------------- tools

%% {Socket of weir_socket, its peer of gen_tcp}.
pair(Options) ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, binary, {active, false}, {exit_on_close, false}]),
    {ok, Port} = inet:port(Listener),
    {ok, Socket} = weir_socket:connect({127, 0, 0, 1}, Port, Options),
    {ok, Peer} = gen_tcp:accept(Listener, wait_ms()),
    ok = gen_tcp:close(Listener),
    {Socket, Peer}.

close(Socket, Peer) ->
    ok = weir_socket:close(Socket),
    ok = gen_tcp:close(Peer).

%% Without waiting for what is queued.
abort(Socket, Peer) ->
    ok = weir_socket:setopts(Socket, [{linger, {true, 0}}]),
    close(Socket, Peer).

%% Sends until more is queued than the high watermark, and stays so.
fill(Socket) ->
    ok = weir_socket:send(Socket, binary:copy(<<"0">>, 65536)),
    case is_above(Socket) andalso weir_socket_test_lib:stalled(Socket) =:= ok andalso is_above(Socket) of
        true -> ok;
        false -> fill(Socket)
    end.

is_above(Socket) ->
    {ok, [{send_pend, Queued}]} = weir_socket:getstat(Socket, [send_pend]),
    Queued > 8192.

%% Waits for the message of a monitor, and returns its reason.
told(Monitor, Socket) ->
    receive
        {'DOWN', Monitor, socket, Socket, Reason} -> Reason
    after wait_ms() -> error(not_told)
    end.

read_until(Peer, End) -> read_until(Peer, End, <<>>).

read_until(Peer, End, Tail) ->
    {ok, Data} = gen_tcp:recv(Peer, 0, wait_ms()),
    All = <<Tail/binary, Data/binary>>,
    case binary:part(All, byte_size(All), -min(byte_size(End), byte_size(All))) of
        End -> End;
        Other -> read_until(Peer, End, Other)
    end.

%% A term that names a socket travels; the socket does not. What stands for none here is a closed socket.
handles_of_others(_) ->
    Paths = ["-pa" | [filename:absname(Dir) || Dir <- code:get_path(), Dir =/= "."]],
    {ok, Peer, _Node} = peer:start_link(#{
        name => peer:random_name(), connection => standard_io, wait_boot => wait_ms(), args => Paths
    }),
    {ok, _} = peer:call(Peer, application, ensure_all_started, [weir_socket], wait_ms()),
    {ok, Theirs} = peer:call(Peer, weir_socket, listen, [0, []], wait_ms()),
    answers_closed(Theirs),
    {ok, Ours} = weir_socket:listen(0, []),
    ok = peer:call(Peer, ?MODULE, answers_closed, [Ours], wait_ms()),
    %% It is open here all the same, and so is that which was sent there and back.
    {ok, _} = weir_socket:sockname(peer:call(Peer, erlang, hd, [[Ours]], wait_ms())),
    ok = weir_socket:close(Ours),
    ok = peer:stop(Peer).

%% It was written down, and nobody mentions the socket any more.
handles_of_the_past(_) ->
    Written = result(start(fun() ->
        {ok, Socket} = weir_socket:listen(0, []),
        term_to_binary(Socket)
    end)),
    until(fun() ->
        true = erlang:garbage_collect(),
        {'$inet', weir_socket, Sock} = binary_to_term(Written),
        not maps:is_key(domain, weir_socket_nif:info(Sock))
    end),
    answers_closed(binary_to_term(Written)).

answers_closed(Socket) ->
    [
        ?assertEqual({error, closed}, Result)
     || Result <- [
            weir_socket:send(Socket, "x"), weir_socket:send(Socket, <<"x">>),
            weir_socket:recv(Socket, 0), weir_socket:recv(Socket, 0, 0), weir_socket:recv(Socket, 0, 10),
            weir_socket:accept(Socket), weir_socket:accept(Socket, 0), weir_socket:shutdown(Socket, write),
            weir_socket:controlling_process(Socket, self()), weir_socket:controlling_process(Socket, whereis(init)),
            gen_tcp:recv(Socket, 0), weir_ranch:sendfile(Socket, code:which(?MODULE))
        ]
    ],
    [
        ?assertEqual({error, einval}, Result)
     || Result <- [
            weir_socket:setopts(Socket, [{active, true}]), weir_socket:setopts(Socket, [{nodelay, true}]),
            weir_socket:getopts(Socket, [active, nodelay]), weir_socket:getopts(Socket, [fd]),
            weir_socket:peername(Socket), weir_socket:sockname(Socket), weir_socket:port(Socket),
            weir_socket:socknames(Socket), weir_socket:getstat(Socket), weir_socket:getstat(Socket, [recv_oct]),
            weir_socket:dup_socket(Socket), weir_socket:which_packet_type(Socket), inet:peername(Socket)
        ]
    ],
    ?assertEqual({error, enotsup}, weir_socket:unrecv(Socket, "x")),
    ?assertEqual(#{states => [closed]}, weir_socket:info(Socket)),
    ?assertEqual(undefined, weir_socket:socket_info(Socket, connected)),
    "#Socket<" ++ _ = weir_socket:socket_to_list(Socket),
    Ref = inet:monitor(Socket),
    nosock = told(Ref, Socket),
    ?assertEqual(false, inet:cancel_monitor(Ref)),
    ?assertEqual(ok, weir_socket:close(Socket)),
    ?assertEqual(ok, gen_tcp:close(Socket)),
    ok.
