%% Cases of the suite of behaviour: whom a socket belongs to, moving it, and the owner's death.
-module(weir_socket_cases_owner).

-include_lib("stdlib/include/assert.hrl").

-export([
    moves/1,
    moves_what_waits/1,
    stays_when_told/1,
    not_owner/1,
    to_self/1,
    to_the_dead/1,
    passed_around_while_data_comes/1,
    owner_dies/1,
    owner_dies_while_others_wait/1,
    owner_dies_with_data_queued/1,
    others_may_use_it/1
]).

-import(weir_kit, [start/1, result/1, until/1, until_waiting/1, kill/1, await_down/1, same/3]).
-import(weir_socket_test_lib, [
    listen/2, pair/2, pair/3, send/2, recv/2, recv/3, close/1, controlling_process/2, setopts/2, getopt/2, next/0,
    nothing/0, read_all/1, fill/1, until_messages/1, same_bytes/2
]).
-import(weir_socket_differences, [differs/2]).

moves(B) ->
    [
        begin
            {Socket, Peer} = pair(B, Side, [binary, {active, Active}]),
            New = start(fun() ->
                %% A move sets the option to what it was before.
                receive go -> ok end,
                setopts_if(Active =:= false, Socket),
                receive
                    {tcp, Socket, Data} -> Data
                end
            end),
            ok = controlling_process(Socket, element(1, New)),
            element(1, New) ! go,
            ok = gen_tcp:send(Peer, "to the new one"),
            ?assertEqual(<<"to the new one">>, result(New)),
            %% It is gone, and the socket with it.
            {error, closed} = gen_tcp:recv(Peer, 0),
            ok = gen_tcp:close(Peer),
            nothing()
        end
     || Side <- [connected, accepted], Active <- [true, once, 3, false]
    ],
    ok.

%% Whoever has the socket may set its options, the owner or not.
setopts_if(true, Socket) -> ok = setopts(Socket, [{active, once}]);
setopts_if(false, _Socket) -> ok.

%% Messages that the old owner has not read yet go to the new one, in order, and so do the last ones.
moves_what_waits(B) ->
    {Socket, Peer} = pair(B, [binary, {active, true}, {packet, 1}]),
    ok = gen_tcp:send(Peer, [<<1, I>> || I <- lists:seq(1, 5)]),
    until_messages(5),
    New = start(fun() -> [next() || _ <- lists:seq(1, 8)] end),
    self() ! between,
    ok = controlling_process(Socket, element(1, New)),
    ok = gen_tcp:send(Peer, <<1, 6, 1, 7>>),
    ok = gen_tcp:close(Peer),
    Got = result(New),
    same(messages, [{tcp, Socket, <<I>>} || I <- lists:seq(1, 7)] ++ [{tcp_closed, Socket}], Got),
    between = next(),
    nothing(),
    _ = close(Socket),
    %% With a count: it goes on.
    {Second, Its} = pair(B, [binary, {active, 3}, {packet, 1}]),
    ok = gen_tcp:send(Its, <<1, 1>>),
    until_messages(1),
    Newer = start(fun() -> [next() || _ <- lists:seq(1, 4)] end),
    ok = controlling_process(Second, element(1, Newer)),
    ok = gen_tcp:send(Its, <<1, 2, 1, 3>>),
    same(messages, [{tcp, Second, <<I>>} || I <- [1, 2, 3]] ++ [{tcp_passive, Second}], result(Newer)),
    ok = gen_tcp:close(Its),
    nothing().

%% Who has been told that the socket is closed keeps it, and what came before.
stays_when_told(B) ->
    {Socket, Peer} = pair(B, [binary, {active, true}]),
    ok = gen_tcp:send(Peer, "last"),
    ok = gen_tcp:close(Peer),
    until_messages(2),
    New = start(fun() ->
        receive done -> process_info(self(), message_queue_len) end
    end),
    Result = controlling_process(Socket, element(1, New)),
    differs(B, moves_when_told) orelse ?assertEqual({error, closed}, Result),
    element(1, New) ! done,
    Moved = result(New),
    differs(B, moves_when_told) orelse
        begin
            ?assertEqual({message_queue_len, 0}, Moved),
            {tcp, Socket, <<"last">>} = next(),
            {tcp_closed, Socket} = next(),
            nothing()
        end,
    _ = close(Socket).

not_owner(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    Me = self(),
    %% To whom it belongs anyway it may be given.
    Other = start(fun() -> {controlling_process(Socket, self()), controlling_process(Socket, Me)} end),
    ?assertEqual({{error, not_owner}, ok}, result(Other)),
    ok = setopts(Socket, [{active, once}]),
    ok = gen_tcp:send(Peer, "x"),
    {tcp, Socket, <<"x">>} = next(),
    ok = close(Socket),
    ok = gen_tcp:close(Peer),
    {ok, Listener} = listen(B, []),
    Another = start(fun() -> controlling_process(Listener, self()) end),
    ?assertEqual({error, not_owner}, result(Another)),
    ok = close(Listener).

to_self(B) ->
    {Socket, Peer} = pair(B, [binary, {active, 5}]),
    ok = gen_tcp:send(Peer, "x"),
    until_messages(1),
    ok = controlling_process(Socket, self()),
    {tcp, Socket, <<"x">>} = next(),
    ?assertEqual(4, getopt(Socket, active)),
    ok = close(Socket),
    ok = gen_tcp:close(Peer),
    nothing().

%% It is refused, or the socket is closed as if that one had died later; never does it belong to nobody.
to_the_dead(B) ->
    {Socket, Peer} = pair(B, [binary, {active, true}]),
    Dead = start(fun() -> ok end),
    ok = result(Dead),
    case controlling_process(Socket, element(1, Dead)) of
        ok ->
            {error, closed} = gen_tcp:recv(Peer, 0);
        {error, Reason} ->
            ?assert(lists:member(Reason, [badarg, einval, noproc]), Reason),
            ok = gen_tcp:send(Peer, "x"),
            %% Its mode is as before.
            differs(B, active_after_failed_move) orelse begin {tcp, Socket, <<"x">>} = next() end,
            _ = close(Socket)
    end,
    ok = gen_tcp:close(Peer),
    nothing().

%% Ten processes hand the socket on while the other end sends: each takes some messages, and tells what it took. All is
%% there, once, in order.
passed_around_while_data_comes(B) ->
    [passed_around(B, Active) || Active <- [true, 7]],
    ok.

passed_around(B, Active) ->
    {Socket, Peer} = pair(B, [binary, {active, false}, {packet, 4}]),
    Count = 2000,
    Me = self(),
    Ring = [spawn_link(fun() -> hold(Socket, Active, Me) end) || _ <- lists:seq(1, 10)],
    [Holder ! {ring, Ring} || Holder <- Ring],
    First = hd(Ring),
    ok = controlling_process(Socket, First),
    First ! {yours, 1},
    Sender = start(fun() -> [ok = gen_tcp:send(Peer, <<4:32, I:32>>) || I <- lists:seq(1, Count)], ok end),
    ok = result(Sender),
    ok = gen_tcp:close(Peer),
    same(messages, {closed_at, Count + 1}, next()),
    [begin unlink(Holder), exit(Holder, kill) end || Holder <- Ring],
    nothing().

%% One of the ring: waits until the socket is its own, with the number of the message that has to come next.
hold(Socket, Active, Main) ->
    receive
        {ring, Ring} -> hold(Socket, Active, Main, Ring)
    end.

hold(Socket, Active, Main, Ring) ->
    receive
        {yours, Next} ->
            _ = setopts(Socket, [{active, Active}]),
            hold(Socket, Active, Main, Ring, Next, 1 + Next rem 13)
    end.

hold(Socket, Active, Main, Ring, Next, 0) ->
    [To | _] = [Pid || Pid <- tl(lists:dropwhile(fun(Pid) -> Pid =/= self() end, Ring ++ Ring))],
    %% What is in the mailbox goes along. A socket that was closed meanwhile cannot be handed on.
    case controlling_process(Socket, To) of
        ok ->
            To ! {yours, Next},
            hold(Socket, Active, Main, Ring);
        {error, _} ->
            hold(Socket, Active, Main, Ring, Next, 1)
    end;
hold(Socket, Active, Main, Ring, Next, Left) ->
    receive
        {tcp, Socket, <<Next:32>>} ->
            hold(Socket, Active, Main, Ring, Next + 1, Left - 1);
        {tcp_passive, Socket} ->
            _ = setopts(Socket, [{active, Active}]),
            hold(Socket, Active, Main, Ring, Next, Left);
        {tcp_closed, Socket} ->
            Main ! {closed_at, Next};
        {tcp, Socket, Other} ->
            Main ! {out_of_order, Next, Other}
    end.

%% ---------------------------------------------------------------- the owner's death

owner_dies(B) ->
    [
        begin
            Me = self(),
            Owner = start(fun() ->
                {Socket, Peer} = pair(B, Side, [binary, {active, Active}]),
                ok = gen_tcp:controlling_process(Peer, Me),
                Me ! {made, Socket, Peer},
                receive stop -> ok end
            end),
            {made, Socket, Peer} = next(),
            exit(element(1, Owner), Reason),
            _ = await_down(element(1, Owner)),
            ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0)),
            until(fun() -> send(Socket, "x") =:= {error, closed} end),
            ok = gen_tcp:close(Peer),
            nothing()
        end
     || Side <- [connected, accepted], Active <- [true, false], Reason <- [kill, shutdown]
    ],
    ok.

owner_dies_while_others_wait(B) ->
    Me = self(),
    Owner = start(fun() ->
        {Socket, Peer} = pair(B, [binary, {active, false}]),
        ok = gen_tcp:controlling_process(Peer, Me),
        Me ! {made, Socket, Peer},
        receive stop -> ok end
    end),
    {made, Socket, Peer} = next(),
    Receiver = start(fun() -> recv(Socket, 0, infinity) end),
    until_waiting(Receiver),
    kill(Owner),
    ?assertEqual({error, closed}, result(Receiver)),
    ok = gen_tcp:close(Peer),
    nothing().

%% What it had sent arrives, though it died right behind it.
owner_dies_with_data_queued(B) ->
    Me = self(),
    Data = fill(50_000),
    Owner = start(fun() ->
        {Socket, Peer} = pair(B, [binary, {active, false}]),
        ok = gen_tcp:controlling_process(Peer, Me),
        Me ! {made, Peer},
        ok = send(Socket, Data)
    end),
    {made, Peer} = next(),
    ok = result(Owner),
    same_bytes(Data, read_all(Peer)),
    ok = gen_tcp:close(Peer),
    nothing().

%% Anybody may send, receive, set options, and close.
others_may_use_it(B) ->
    {Socket, Peer} = pair(B, [binary, {active, false}]),
    Other = fun(Fun) -> result(start(Fun)) end,
    ok = Other(fun() -> send(Socket, "x") end),
    {ok, <<"x">>} = gen_tcp:recv(Peer, 1),
    ok = gen_tcp:send(Peer, "yz"),
    {ok, <<"y">>} = Other(fun() -> recv(Socket, 1) end),
    %% Active mode is the owner's.
    ok = Other(fun() -> setopts(Socket, [{active, once}]) end),
    {tcp, Socket, <<"z">>} = next(),
    ok = Other(fun() -> close(Socket) end),
    {error, closed} = gen_tcp:recv(Peer, 0),
    ok = gen_tcp:close(Peer),
    nothing().
