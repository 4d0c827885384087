%% @doc The NIF below gen_tcp's interface: waiting and taking back; deaths of owners, waiters and acceptors; closing
%% while others wait; new owners; and monitors.
-module(weir_socket_nif_life_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, kill/1, same/3]).
-import(weir_socket_nif_test_lib, [
    socket/1, listen/0, connect/1, accept/1, pair/0, close/1, recv/2, recv_async/3, send/2, send_waiting/2,
    spawn_sender/2, fill/1, answer/1, message/0, messages/1, no_message/0, joined/1, poller/1
]).

-define(NIF, weir_socket_nif).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_socket_nif_test_lib:begin_suite(Config).

end_per_suite(Config) -> weir_socket_nif_test_lib:end_suite(Config).

init_per_testcase(_Case, Config) -> weir_socket_nif_test_lib:begin_case(Config).

end_per_testcase(_Case, Config) -> weir_socket_nif_test_lib:end_case(Config).

%% ---------------------------------------------------------------- waiting, dying and closing

cancel_takes_back(_Config) ->
    {A, B} = pair(),
    Ref = make_ref(),
    wait = recv_async(B, 0, Ref),
    ?assertEqual(ok, ?NIF:cancel(B, Ref)),
    ?assertEqual(gone, ?NIF:cancel(B, Ref)),
    ok = send(A, <<"kept">>),
    ?assertEqual({ok, <<"kept">>}, recv(B, 0)),
    wait = recv_async(B, 0, Ref),
    ok = send(A, <<"sent">>),
    Answer = answer(Ref),
    ?assertEqual({ok, <<"sent">>}, Answer),
    ?assertEqual(gone, ?NIF:cancel(B, Ref)),
    {L, _} = listen(),
    wait = ?NIF:accept(L, Ref),
    ?assertEqual(ok, ?NIF:cancel(L, Ref)),
    no_message(),
    close([A, B, L]).

dead_receiver_loses_nothing(_Config) ->
    {A, B} = pair(),
    [
        begin
            Receivers = [spawn_receiver(B, Length) || _ <- lists:seq(1, 3)],
            Ref = make_ref(),
            wait = recv_async(B, Length, Ref),
            [kill(Pid) || Pid <- Receivers],
            Data = rand:bytes(max(1, Length)),
            Sender = spawn_sender(A, Data),
            same(bytes, {ok, Data}, answer(Ref)),
            joined(Sender)
        end
     || Length <- [0, 1, 100, 20000, 2000000]
    ],
    close([A, B]).

spawn_receiver(Sock, Length) -> spawn_waiting(fun() -> recv_async(Sock, Length, make_ref()) end).

spawn_acceptor(Listener) -> spawn_waiting(fun() -> ?NIF:accept(Listener, make_ref()) end).

spawn_waiting(Ask) ->
    Self = self(),
    Pid = spawn(fun() ->
        wait = Ask(),
        Self ! {waits, self()},
        receive
            never -> ok
        end
    end),
    receive
        {waits, Pid} -> Pid
    end.

%% Those that were killed while they waited, though nothing ever comes: as many places are kept as alive processes twice
%% over, and some.
the_dead_are_not_kept(_Config) ->
    {A, B} = pair(),
    {L, _} = listen(),
    Alive = [spawn_receiver(B, 0) || _ <- lists:seq(1, 40)],
    [kill(spawn_receiver(B, 0)) || _ <- lists:seq(1, 1000)],
    #{receivers := Receivers} = ?NIF:info(B),
    ?assert(Receivers >= 40),
    ?assert(Receivers =< 2 * 41 + 1),
    [kill(spawn_acceptor(L)) || _ <- lists:seq(1, 1000)],
    #{acceptors := Acceptors} = ?NIF:info(L),
    ?assert(Acceptors =< 64 + 1),
    %% Who is alive is served, behind the others.
    [kill(Pid) || Pid <- Alive],
    Ref = make_ref(),
    wait = recv_async(B, 0, Ref),
    ok = send(A, <<"x">>),
    ?assertEqual({ok, <<"x">>}, answer(Ref)),
    close([A, B, L]).

%% All of them come at once, and a turn takes 50.
more_acceptors_than_a_turn_serves(_Config) ->
    {L, Port} = listen(),
    #{pollset := Set} = ?NIF:info(L),
    Poller = poller(Set),
    true = erlang:suspend_process(Poller),
    Refs = [make_ref() || _ <- lists:seq(1, 120)],
    [wait = ?NIF:accept(L, Ref) || Ref <- Refs],
    Peers = [element(2, {ok, _} = gen_tcp:connect({127, 0, 0, 1}, Port, [])) || _ <- Refs],
    true = erlang:resume_process(Poller),
    Socks = [element(2, {ok, _} = answer(Ref)) || Ref <- Refs],
    same(connections, 120, length(lists:usort(Socks))),
    [ok = gen_tcp:close(Peer) || Peer <- Peers],
    close([L | Socks]).

%% One that had waited for more than there is: neither for who comes later, nor for who waits behind it already.
the_dead_are_in_nobodys_way(_Config) ->
    {A, B} = pair(),
    kill(spawn_receiver(B, 100)),
    ok = send(A, <<"now">>),
    until(fun() -> ?NIF:recv_now(B, 0) =:= {ok, <<"now">>} end),
    kill(spawn_receiver(B, 100)),
    ok = send(A, <<"later">>),
    ?assertEqual({ok, <<"later">>}, recv(B, 0)),
    Before = spawn_receiver(B, 100),
    Ref = make_ref(),
    wait = recv_async(B, 0, Ref),
    kill(Before),
    ok = send(A, <<"behind">>),
    ?assertEqual({ok, <<"behind">>}, answer(Ref)),
    close([A, B]).

%% However often a process has waited, in vain or not, and on however many sockets: neither the reference that it waited
%% for is kept, nor the place.
waiting_leaves_nothing(_Config) ->
    {A, B} = pair(),
    InVain = fun(_) ->
        Ref = make_ref(),
        wait = recv_async(B, 0, Ref),
        ok = ?NIF:cancel(B, Ref)
    end,
    Answered = fun(_) ->
        Ref = make_ref(),
        wait = recv_async(B, 0, Ref),
        ok = send(A, <<"x">>),
        {ok, <<"x">>} = answer(Ref)
    end,
    Once = fun(_) ->
        {L, _} = listen(),
        Ref = make_ref(),
        wait = ?NIF:accept(L, Ref),
        ok = ?NIF:cancel(L, Ref),
        close([L])
    end,
    [
        begin
            lists:foreach(Wait, lists:seq(1, 100)),
            true = erlang:garbage_collect(),
            Before = weir_socket_test_lib:memory(),
            lists:foreach(Wait, lists:seq(1, Times)),
            %% The runtime gives memory back when it comes to it.
            Grown = fun() -> true = erlang:garbage_collect(), weir_socket_test_lib:memory() - Before end,
            until(fun() -> Grown() < 3_000_000 orelse {Grown(), Times} end)
        end
     || {Wait, Times} <- [{InVain, 300_000}, {Answered, 5_000}, {Once, 5_000}]
    ],
    close([A, B]).

%% At any moment of it: before they are looked at, while their socket is made, and when it is theirs. Sockets, slots and
%% descriptors are counted when the case is over.
acceptors_die_while_served(_Config) ->
    {L, Port} = listen(),
    [
        begin
            Acceptors = [spawn(fun() -> accept(L), receive never -> ok end end) || _ <- lists:seq(1, 3)],
            {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, []),
            [erlang:yield() || _ <- lists:seq(1, Turns rem 20)],
            [kill(Acceptor) || Acceptor <- Acceptors],
            ok = gen_tcp:close(Peer)
        end
     || Turns <- lists:seq(1, 300)
    ],
    close([L]).

%% What connect and listen cannot be asked of.
states_that_refuse(_Config) ->
    {L, Port} = listen(),
    Address = {inet, {127, 0, 0, 1}, Port},
    ?assertEqual({error, einval}, ?NIF:connect(L, Address, make_ref())),
    A = connect(Port),
    ?assertEqual({error, eisconn}, ?NIF:connect(A, Address, make_ref())),
    ?assertEqual({error, einval}, ?NIF:listen(A, 5)),
    %% Another listens on the port that both had been given before.
    [One, Other] = [
        begin
            {ok, Sock} = ?NIF:open(inet, none, default),
            ok = ?NIF:set(Sock, reuseaddr, true),
            Sock
        end
     || _ <- [1, 2]
    ],
    ok = ?NIF:bind(One, {inet, {127, 0, 0, 1}, 0}),
    {ok, Taken} = ?NIF:sockname(One),
    ok = ?NIF:bind(Other, Taken),
    ok = ?NIF:listen(One, 5),
    ?assertEqual({error, eaddrinuse}, ?NIF:listen(Other, 5)),
    %% A connection that nobody answers.
    {ok, Waiting} = ?NIF:open(inet, none, default),
    {Full, FullPort, Only} = weir_socket_test_lib:full_listener(),
    Ref = make_ref(),
    wait = ?NIF:connect(Waiting, {inet, {127, 0, 0, 1}, FullPort}, Ref),
    ?assertMatch(#{state := connecting}, ?NIF:info(Waiting)),
    ?assertEqual({error, ealready}, ?NIF:connect(Waiting, Address, make_ref())),
    ?assertEqual({error, ealready}, ?NIF:dup(Waiting)),
    ok = ?NIF:cancel(Waiting, Ref),
    ok = gen_tcp:close(Only),
    ok = socket:close(Full),
    close([L, A, One, Other, Waiting]).

dead_acceptor_is_passed_over(_Config) ->
    {L, Port} = listen(),
    Dead = [spawn_acceptor(L) || _ <- lists:seq(1, 3)],
    Ref = make_ref(),
    wait = ?NIF:accept(L, Ref),
    [kill(Pid) || Pid <- Dead],
    A = connect(Port),
    {ok, B} = answer(Ref),
    ok = send(A, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(B, 0)),
    close([A, B, L]).

owner_death_closes(_Config) ->
    Self = self(),
    {L, Port} = listen(),
    Owner = spawn(fun() ->
        Socks = [connect(Port) || _ <- lists:seq(1, 10)],
        {L2, _} = listen(),
        Self ! {socks, [L2 | Socks]},
        receive
            never -> ok
        end
    end),
    Peers = [accept(L) || _ <- lists:seq(1, 10)],
    Socks =
        receive
            {socks, Socks0} -> Socks0
        end,
    Refs = [make_ref() || _ <- Peers],
    [wait = recv_async(Peer, 0, Ref) || {Peer, Ref} <- lists:zip(Peers, Refs)],
    kill(Owner),
    [?assertEqual({error, closed}, answer(Ref)) || Ref <- Refs],
    until(fun() -> lists:all(fun(Sock) -> maps:get(state, ?NIF:info(Sock)) =:= closed end, Socks) end),
    close([L | Peers]).

%% What was queued by the time the owner died still arrives.
owner_death_flushes(_Config) ->
    {L, Port} = listen(),
    Data = rand:bytes(8000000),
    Self = self(),
    Owner = spawn(fun() ->
        A = connect(Port),
        ok = send(A, Data),
        #{send_pend := Pending} = ?NIF:info(A),
        Self ! {pending, Pending, A},
        receive
            never -> ok
        end
    end),
    B = accept(L),
    A =
        receive
            {pending, Pending, A0} when Pending > 0 -> A0
        end,
    kill(Owner),
    until(fun() -> maps:get(state, ?NIF:info(A)) =:= flushing end),
    same(bytes, {ok, Data}, recv(B, byte_size(Data))),
    ?assertEqual({error, closed}, recv(B, 0)),
    until(fun() -> maps:get(state, ?NIF:info(A)) =:= closed end),
    close([L, B]).

close_answers_all_who_wait(_Config) ->
    {A, B} = pair(),
    {L, Port} = listen(),
    Refs = [Recv1, Recv2, Accept, Send] = [make_ref() || _ <- lists:seq(1, 4)],
    wait = recv_async(B, 0, Recv1),
    wait = recv_async(B, 10, Recv2),
    wait = ?NIF:accept(L, Accept),
    fill(B),
    wait = ?NIF:send(B, <<"x">>, Send),
    ok = ?NIF:close_now(B),
    close([L]),
    ?assertEqual([{error, closed} || _ <- Refs], [answer(Ref) || Ref <- Refs]),
    ?assertEqual({error, closed}, ?NIF:close(B, make_ref())),
    ?assertEqual({error, closed}, ?NIF:close_now(B)),
    [
        ?assertEqual({error, closed}, Result)
     || Result <- [
            recv(B, 0),
            send(B, <<"x">>),
            ?NIF:accept(L, make_ref()),
            ?NIF:set(B, active, true),
            ?NIF:set(B, nodelay, true),
            ?NIF:get(B, nodelay),
            ?NIF:get(B, active),
            ?NIF:peername(B),
            ?NIF:sockname(B),
            ?NIF:fd(B),
            ?NIF:hold(B),
            ?NIF:give(B, self(), false),
            ?NIF:shutdown(B, write),
            ?NIF:peek(B),
            ?NIF:wait_more(B, 0, 0, make_ref()),
            ?NIF:consume(B, 0, 0, none, 0),
            ?NIF:dup(B),
            ?NIF:listen(B, 5),
            ?NIF:bind(B, {inet, {127, 0, 0, 1}, 0}),
            ?NIF:connect(B, {inet, {127, 0, 0, 1}, Port}, make_ref())
        ]
    ],
    close([A]).

close_flushes(_Config) ->
    {A, B} = pair(),
    Data = fill(A),
    Ref = make_ref(),
    wait = ?NIF:close(A, Ref),
    ?assertEqual({error, closed}, ?NIF:close(A, make_ref())),
    ?assertEqual({error, closed}, send(A, <<"x">>)),
    same(bytes, {ok, Data}, recv(B, byte_size(Data))),
    ?assertEqual(ok, answer(Ref)),
    ?assertEqual({error, closed}, recv(B, 0)),
    close([B]).

%% What is queued is given up on when the peer takes nothing for so long: 180 s, or less if the user has said so.
time_to_flush(_Config) ->
    [
        begin
            {A, B} = pair(),
            ok = ?NIF:set(A, user_timeout, Users),
            _ = fill(A),
            {ok, C} = ?NIF:dup(A),
            wait = ?NIF:close(A, make_ref()),
            ?assertEqual({ok, Then}, ?NIF:get(C, user_timeout)),
            ok = ?NIF:close_now(A),
            close([B, C])
        end
     || {Users, Then} <- [{0, 180_000}, {3000, 3000}, {180_000, 180_000}, {180_001, 180_000}]
    ].

close_now_drops(_Config) ->
    {A, B} = pair(),
    _ = fill(A),
    Ref = make_ref(),
    wait = ?NIF:close(A, Ref),
    ?assertEqual(ok, ?NIF:close_now(A)),
    ?assertEqual(ok, answer(Ref)),
    close([B]).

linger(_Config) ->
    %% For 0 seconds: what is queued is dropped, and the peer sees a reset.
    {A, B} = pair(),
    ok = ?NIF:set(B, show_econnreset, true),
    _ = fill(A),
    ok = ?NIF:set(A, linger, {true, 0}),
    ?assertEqual(ok, ?NIF:close(A, make_ref())),
    ?assertEqual({error, econnreset}, drain(B)),
    %% For some: the call waits, on a dirty scheduler.
    {C, D} = pair(),
    ok = ?NIF:set(C, linger, {true, 5}),
    ok = send(C, <<"x">>),
    ?assertEqual(ok, ?NIF:close(C, make_ref())),
    ?assertEqual({ok, <<"x">>}, recv(D, 0)),
    ?assertEqual({error, closed}, recv(D, 0)),
    close([B, D]).

%% Receives until there is an error.
drain(Sock) ->
    case recv(Sock, 0) of
        {ok, _} -> drain(Sock);
        Error -> Error
    end.

%% ---------------------------------------------------------------- ownership

hold_and_give(_Config) ->
    {A, B} = pair(),
    S = socket(B),
    ok = ?NIF:set(B, active, true),
    Self = self(),
    New = spawn(fun() ->
        [Self ! {got, message()} || _ <- [1, 2, 3]],
        receive
            never -> ok
        end
    end),
    ok = send(A, <<"one">>),
    {tcp, S, <<"one">>} = message(),
    {ok, true} = ?NIF:hold(B),
    ok = send(A, <<"two">>),
    no_message(),
    ?assertEqual(ok, ?NIF:give(B, New, true)),
    ?assertEqual({got, {tcp, S, <<"two">>}}, message()),
    ?assertEqual({error, not_owner}, ?NIF:hold(B)),
    ?assertEqual({error, not_owner}, ?NIF:give(B, self(), true)),
    ok = send(A, <<"three">>),
    ?assertEqual({got, {tcp, S, <<"three">>}}, message()),
    close([A]),
    ?assertEqual({got, {tcp_closed, S}}, message()),
    kill(New),
    %% The old owner's death says nothing.
    {C, D} = pair(),
    Old = spawn(fun() ->
        receive
            {yours, Sock} ->
                {ok, false} = ?NIF:hold(Sock),
                ok = ?NIF:give(Sock, Self, false),
                Self ! given
        end
    end),
    {ok, false} = ?NIF:hold(D),
    ok = ?NIF:give(D, Old, false),
    Monitor = erlang:monitor(process, Old),
    Old ! {yours, D},
    [given, {'DOWN', Monitor, process, Old, normal}] = lists:sort(messages(2)),
    ok = send(C, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(D, 0)),
    close([C, D]).

give_to_the_dead(_Config) ->
    {A, B} = pair(),
    {Dead, Monitor} = spawn_monitor(fun() -> ok end),
    {'DOWN', Monitor, process, Dead, normal} = message(),
    {ok, false} = ?NIF:hold(B),
    ?assertEqual({error, badarg}, ?NIF:give(B, Dead, false)),
    ok = send(A, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(B, 0)),
    close([A, B]).

%% ---------------------------------------------------------------- monitors

%% What another one costs does not grow with those there are; taking back neither. Those of the dead go.
so_many_monitors(_Config) ->
    {_, B} = Pair = pair(),
    Monitors = [Monitor || _ <- lists:seq(1, 100_000), {ok, Monitor} <- [?NIF:monitor(B)]],
    {Dead, Ref} = spawn_monitor(fun() -> [{ok, _} = ?NIF:monitor(B) || _ <- lists:seq(1, 100_000)] end),
    {'DOWN', Ref, process, Dead, normal} = message(),
    [true = ?NIF:cancel_monitor(Monitor) || Monitor <- Monitors],
    {ok, Last} = ?NIF:monitor(B),
    close(tuple_to_list(Pair)),
    {'DOWN', Last, socket, _, closed} = message(),
    no_message().

%% OTP's inet keeps the reference of each monitor, also after its message.
a_reference_of_a_monitor_holds_no_closed_socket(_Config) ->
    Before = maps:get(resources, weir_socket_test_lib:held()),
    References = [monitored_and_closed() || _ <- lists:seq(1, 20)],
    ok = weir_kit:until(fun() -> maps:get(resources, weir_socket_test_lib:held()) =< Before end),
    ?assertEqual([false], lists:usort([?NIF:cancel_monitor(Ref) || Ref <- References])).

monitored_and_closed() ->
    weir_kit:result(weir_kit:start(fun() ->
        {ok, Socket} = ?NIF:open(inet, none, default),
        {ok, Ref} = ?NIF:monitor(Socket),
        ok = ?NIF:close_now(Socket),
        receive
            {'DOWN', Ref, socket, _, closed} -> Ref
        end
    end)).

monitors(_Config) ->
    {A, B} = pair(),
    {ok, Mon1} = ?NIF:monitor(B),
    {ok, Mon2} = ?NIF:monitor(B),
    ?assertEqual(true, ?NIF:cancel_monitor(Mon2)),
    ?assertEqual(false, ?NIF:cancel_monitor(Mon2)),
    ok = ?NIF:close_now(B),
    ?assertEqual({'DOWN', Mon1, socket, socket(B), closed}, message()),
    no_message(),
    ?assertEqual({error, closed}, ?NIF:monitor(B)),
    close([A]).

%% ---------------------------------------------------------------- all of it at once

%% Owners, waiters and pollers die, and sockets are closed, at any time; in the end nothing is left (end_per_testcase).
random_deaths(_Config) ->
    {L, Port} = listen(),
    Acceptors = [spawn_link(fun() -> serve_random(L) end) || _ <- lists:seq(1, 4)],
    Rounds = 300,
    lists:foreach(
        fun(I) ->
            Self = self(),
            {Client, Monitor} = spawn_monitor(fun() ->
                A = connect(Port),
                Self ! {sock, A},
                case rand:uniform(3) of
                    1 -> [ok = send_waiting(A, rand:bytes(rand:uniform(5000))) || _ <- lists:seq(1, 5)];
                    2 -> ok = ?NIF:set(A, active, true);
                    3 -> ok
                end,
                _ = recv_async(A, 0, make_ref()),
                receive
                    stop -> ok
                after rand:uniform(3) -> ok
                end
            end),
            Sock =
                receive
                    {sock, A0} -> A0
                end,
            case rand:uniform(4) of
                1 -> exit(Client, kill);
                2 -> _ = ?NIF:close_now(Sock);
                3 -> _ = ?NIF:close(Sock, make_ref());
                4 -> Client ! stop
            end,
            I rem 50 =:= 0 andalso exit(poller(I rem ?NIF:pollsets()), kill),
            receive
                {'DOWN', Monitor, process, Client, _} -> ok
            end
        end,
        lists:seq(1, Rounds)
    ),
    [unlink(Pid) || Pid <- Acceptors],
    [kill(Pid) || Pid <- Acceptors],
    close([L]).

serve_random(L) ->
    Sock = accept(L),
    Acceptor = self(),
    Pid = spawn(fun() ->
        Monitor = monitor(process, Acceptor),
        receive
            go -> ok;
            {'DOWN', Monitor, process, Acceptor, _} -> exit(killed)
        end,
        _ = ?NIF:set(Sock, active, true),
        receive
            {tcp, _, Data} -> _ = send(Sock, Data);
            {tcp_closed, _} -> ok
        after rand:uniform(5) -> ok
        end
    end),
    {ok, false} = ?NIF:hold(Sock),
    _ = ?NIF:give(Sock, Pid, false),
    Pid ! go,
    serve_random(L).
