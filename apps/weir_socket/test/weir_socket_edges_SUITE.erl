%% weir_socket where two things meet: a socket that is closed while it is moved, a file that is sent faster than it is
%% read, the end of a connection and what is asked of the socket afterwards, calls without the application.
-module(weir_socket_edges_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [start/1, result/1, until/1, same/3]).
-import(weir_socket_test_lib, [
    pair/2, next/0, nothing/0, nothing_at_all/0, read_all/1, fill/1, until_messages/1, same_bytes/2
]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    [{started, Started} | Config].

end_per_suite(Config) -> lists:foreach(fun application:stop/1, lists:reverse(?config(started, Config))).

%% Without the pollers nobody would ever hear of a connection.
not_started(_) ->
    ok = application:stop(weir_socket),
    try
        Failure = {not_started, weir_socket},
        ?assertError(Failure, weir_socket:listen(0, [])),
        ?assertError(Failure, weir_socket:listen(0, [{fd, 0}])),
        ?assertError(Failure, weir_socket:connect({127, 0, 0, 1}, 1, [])),
        ?assertError(Failure, weir_socket:connect("localhost", 1, [], 1000)),
        ?assertError(Failure, weir_socket:connect(#{family => inet, addr => loopback, port => 1}, []))
    after
        ok = application:start(weir_socket)
    end,
    {ok, Listener} = weir_socket:listen(0, []),
    ok = weir_socket:close(Listener).

%% ---------------------------------------------------------------- moving

%% Another process closes the socket while its owner gives it away: what has come is in one mailbox. Many other messages
%% make it take long to look for those of the socket.
closed_while_moved(_) ->
    [self() ! {other, I} || I <- lists:seq(1, 50_000)],
    [
        begin
            {Socket, Peer} = pair(weir, [binary, {active, true}]),
            ok = gen_tcp:send(Peer, "x"),
            until_messages(50_001),
            New = start(fun() -> receive done -> drain(Socket) end end),
            Closer = start(fun() -> close_when_held(Socket) end),
            Result = weir_socket:controlling_process(Socket, element(1, New)),
            element(1, Closer) ! done,
            _ = result(Closer),
            element(1, New) ! done,
            Theirs = result(New),
            Ours = drain(Socket),
            same(messages, [{tcp, Socket, <<"x">>}], Theirs ++ Ours),
            Result =:= ok andalso ?assertEqual([], Ours),
            _ = weir_socket:close(Socket),
            ok = gen_tcp:close(Peer)
        end
     || _ <- lists:seq(1, 20)
    ],
    [receive {other, I} -> ok end || I <- lists:seq(1, 50_000)],
    nothing().

close_when_held({'$inet', weir_socket, Sock} = Socket) ->
    receive
        done -> ok
    after 0 ->
        case weir_socket_nif:get(Sock, active) of
            {ok, true} -> close_when_held(Socket);
            _ -> weir_socket:close(Socket)
        end
    end.

drain(Socket) ->
    receive
        {Tag, Socket, _} = Message when Tag =:= tcp -> [Message | drain(Socket)];
        {tcp_closed, Socket} = Message -> [Message | drain(Socket)]
    after 0 -> []
    end.

%% The peer has closed, and the owner does not know yet: the next one is told.
given_before_it_is_told(_) ->
    {Socket, Peer} = pair(weir, [binary, {active, false}]),
    ok = gen_tcp:close(Peer),
    {error, closed} = weir_socket:recv(Socket, 0),
    New = start(fun() ->
        receive yours -> ok end,
        ok = weir_socket:setopts(Socket, [{active, true}]),
        next()
    end),
    ok = weir_socket:controlling_process(Socket, element(1, New)),
    element(1, New) ! yours,
    ?assertEqual({tcp_closed, Socket}, result(New)),
    %% Now it is told, and stays.
    {Second, Its} = pair(weir, [binary, {active, true}]),
    ok = gen_tcp:close(Its),
    {tcp_closed, Second} = next(),
    {'$inet', weir_socket, Sock} = Second,
    ?assertEqual({error, closed}, weir_socket_nif:hold(Sock)),
    ?assertEqual({error, closed}, weir_socket_nif:give(Sock, self(), true)),
    ok = weir_socket:close(Second),
    nothing().

%% ---------------------------------------------------------------- files

%% The sender waits for the reader, and goes on without headers. The kernel's small buffer passes some 10 KB for each
%% turn of the poller and the reader, so a large file would take minutes on a busy machine.
file_larger_than_the_queue(Config) ->
    File = filename:join(?config(priv_dir, Config), "large"),
    Content = fill(1_000_000),
    ok = file:write_file(File, Content),
    {Socket, Peer} = pair(weir, [binary, {active, false}, {packet, 4}, {sndbuf, 10_000}]),
    Sender = start(fun() -> file:sendfile(File, Socket) end),
    until(fun() -> maps:get(senders, weir_socket:info(Socket)) =:= 1 end),
    Reader = start(fun() -> read_all(Peer) end),
    ?assertEqual({ok, byte_size(Content)}, result(Sender)),
    ok = weir_socket:send(Socket, "end"),
    ok = weir_socket:close(Socket),
    same_bytes(<<Content/binary, 3:32, "end">>, result(Reader)),
    ok = gen_tcp:close(Peer).

file_to_who_is_not_there(Config) ->
    File = filename:join(?config(priv_dir, Config), "small"),
    ok = file:write_file(File, "content"),
    {Socket, Peer} = pair(weir, [{active, false}]),
    ok = weir_socket:close(Socket),
    ok = gen_tcp:close(Peer),
    {error, closed} = file:sendfile(File, Socket),
    {ok, Listener} = weir_socket:listen(0, []),
    {error, enotconn} = file:sendfile(File, Listener),
    {ok, Open} = file:open(File, [read, raw]),
    {error, einval} = file:sendfile(Open, Listener, -1, 3, []),
    {error, einval} = file:sendfile(Open, Listener, 0, -1, []),
    ok = file:close(Open),
    {error, _} = weir_socket:sendfile(Listener, Open, 0, 0),
    ok = weir_socket:close(Listener).

file_times_out(Config) ->
    File = filename:join(?config(priv_dir, Config), "slow"),
    ok = file:write_file(File, fill(2_000_000)),
    {Socket, Peer} = pair(weir, [{active, false}, {sndbuf, 10_000}, {send_timeout, 20}, {linger, {true, 0}}]),
    ?assertEqual({error, timeout}, file:sendfile(File, Socket)),
    ok = weir_socket:close(Socket),
    ok = gen_tcp:close(Peer).

%% ---------------------------------------------------------------- after the end

%% Receiving has ended with the packet that is too long; what comes afterwards is not looked at.
too_large_then_the_end(_) ->
    {Socket, Peer} = pair(weir, [binary, {active, false}, {packet, 2}, {packet_size, 10}, {exit_on_close, false}]),
    ok = gen_tcp:send(Peer, <<11:16>>),
    {error, emsgsize} = weir_socket:recv(Socket, 0),
    ok = gen_tcp:send(Peer, <<1:16, "x">>),
    {error, closed} = weir_socket:recv(Socket, 0),
    ok = weir_socket:setopts(Socket, [{active, true}]),
    {tcp_closed, Socket} = next(),
    ok = weir_socket:send(Socket, "answer"),
    {ok, <<6:16, "answer">>} = gen_tcp:recv(Peer, 8),
    ok = gen_tcp:close(Peer),
    ok = weir_socket:close(Socket),
    nothing_at_all().

%% Its own options may be set and read, and the kernel's set to no effect, until it is closed.
ended_and_set(_) ->
    {Socket, Peer} = pair(weir, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, "abc"),
    ok = gen_tcp:close(Peer),
    {ok, <<"abc">>} = weir_socket:recv(Socket, 0),
    {error, closed} = weir_socket:recv(Socket, 0),
    {ok, [{recv_oct, 3}, {send_pend, 0}]} = weir_socket:getstat(Socket, [recv_oct, send_pend]),
    ok = weir_socket:setopts(Socket, [list, {packet, 4}, {buffer, 77}]),
    {ok, [{mode, list}, {buffer, 77}]} = weir_socket:getopts(Socket, [mode, nodelay, buffer, {raw, 6, 1, 4}]),
    ok = weir_socket:setopts(Socket, [{nodelay, true}]),
    ok = weir_socket:setopts(Socket, [{raw, 6, 1, <<1:32/native>>}]),
    [{error, einval} = weir_socket:setopts(Socket, [{Name, 0}]) || Name <- [priority, tos, tclass, ttl]],
    ok = weir_socket:close(Socket),
    {error, einval} = weir_socket:getstat(Socket),
    {error, einval} = weir_socket:getopts(Socket, [mode]),
    {error, einval} = weir_socket:setopts(Socket, [list]),
    %% Its owner's death closes it as well.
    Owner = start(fun() ->
        {Other, Its} = pair(weir, [{active, false}]),
        ok = gen_tcp:close(Its),
        {error, closed} = weir_socket:recv(Other, 0),
        {ok, [_ | _]} = weir_socket:getstat(Other),
        Other
    end),
    Other = result(Owner),
    until(fun() -> weir_socket:getstat(Other) =:= {error, einval} end),
    nothing_at_all().
