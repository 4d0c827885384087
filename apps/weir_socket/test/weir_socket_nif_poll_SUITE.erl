%% @doc The NIF below gen_tcp's interface: pollers that are killed, suspended and replaced, slots that are used
%% again, how the turns of a poller are shared, whose set a socket comes to, and a change of the code beneath it all.
-module(weir_socket_nif_poll_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, kill/1, same/3, wait_ms/0]).
-import(weir_socket_nif_test_lib, [
    socket/1, listen/0, connect/1, accept/1, pair/0, close/1, recv/2, recv_async/3, send/2, send_waiting/2, answer/1,
    message/0, no_message/0, joined/1, poller/1
]).
-import(weir_socket_test_lib, [pollset_infos/0, pollers/0, until_nothing_leaks/1]).

-define(NIF, weir_socket_nif).

%% Where they are in the state of a poller.
-define(EMPTY, 4).
-define(PATIENCE, 5).
-define(SLEPT, 6).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_socket_nif_test_lib:begin_suite(Config).

end_per_suite(Config) -> weir_socket_nif_test_lib:end_suite(Config).

init_per_testcase(_Case, Config) -> weir_socket_nif_test_lib:begin_case(Config).

end_per_testcase(_Case, Config) -> weir_socket_nif_test_lib:end_case(Config).

%% ---------------------------------------------------------------- pollers

pollers_killed(_Config) ->
    Pairs = [pair() || _ <- lists:seq(1, 10)],
    Echoes = [spawn_link(fun() -> echo(B) end) || {_, B} <- Pairs],
    Count = 300,
    Clients = [
        spawn_link(fun() ->
            [
                begin
                    ok = send(A, <<I:32>>),
                    same(answer, {ok, <<I:32>>}, recv(A, 4))
                end
             || I <- lists:seq(1, Count)
            ]
        end)
     || {A, _} <- Pairs
    ],
    kill_pollers(20),
    [joined(Pid) || Pid <- Clients],
    close([A || {A, _} <- Pairs]),
    [joined(Pid) || Pid <- Echoes],
    close([B || {_, B} <- Pairs]).

%% One after the other, each when it has been started again.
kill_pollers(Times) ->
    [
        begin
            N = I rem ?NIF:pollsets(),
            Pid = poller(N),
            exit(Pid, kill),
            until(fun() -> poller(N) =/= Pid end)
        end
     || I <- lists:seq(1, Times)
    ].

echo(Sock) ->
    case recv(Sock, 0) of
        {ok, Data} ->
            ok = send_waiting(Sock, Data),
            echo(Sock);
        {error, closed} ->
            ok
    end.

%% What comes while no poller runs is there when they do; what needs no poller goes on.
pollers_suspended(_Config) ->
    {A, B} = pair(),
    Ref = make_ref(),
    wait = recv_async(B, 0, Ref),
    Pollers = pollers(),
    [true = erlang:suspend_process(Pid) || Pid <- Pollers],
    ok = send(A, <<"late">>),
    no_message(),
    [true = erlang:resume_process(Pid) || Pid <- Pollers],
    ?assertEqual({ok, <<"late">>}, answer(Ref)),
    %% Stale events: harvested for sockets that are closed by then.
    [true = erlang:suspend_process(Pid) || Pid <- Pollers],
    ok = send(A, <<"x">>),
    close([A, B]),
    [true = erlang:resume_process(Pid) || Pid <- Pollers],
    ok.

%% Who makes a socket active delivers a turn of it, and the poller the rest: also when that one has gone, or the poller
%% dies before it has been at it.
made_active_by_another(_Config) ->
    {A, B} = full_of_lines(5000),
    Pollers = pollers(),
    [true = erlang:suspend_process(Pid) || Pid <- Pollers],
    joined(spawn(fun() -> ok = ?NIF:set(B, active, true) end)),
    ?assertEqual({message_queue_len, 1000}, process_info(self(), message_queue_len)),
    [true = erlang:resume_process(Pid) || Pid <- Pollers],
    S = socket(B),
    [same(lost, {tcp, S, <<"\n">>}, message()) || _ <- lists:seq(1, 5000)],
    no_message(),
    close([A, B]).

%% It has found nothing so often that it would sleep now. This process runs the poller's own code.
made_active_as_the_poller_falls_asleep(_Config) ->
    {Client, B} = Lines = lines_of_set_0(),
    ok = ?NIF:set(B, active, false),
    Awake = sys:get_state(poller(0), wait_ms()),
    Drowsy = setelement(?EMPTY, Awake, element(?PATIENCE, Awake)),
    S = socket(B),
    by_hand(fun() ->
        ok = gen_tcp:send(Client, binary:copy(<<"\n">>, 3000)),
        until(fun() -> unread(B) > 0 end),
        _ = ?NIF:poll(0),
        ok = ?NIF:set(B, active, true),
        [{tcp, S, <<"\n">>} = message() || _ <- lists:seq(1, 1000)],
        {resume, B} = message(),
        {noreply, Next, 0} = weir_socket_poller:handle_info({resume, B}, Drowsy),
        {noreply, _, 0} = weir_socket_poller:handle_info(timeout, Next),
        [{tcp, S, <<"\n">>} = message() || _ <- lists:seq(1, 1000)]
    end),
    [{tcp, S, <<"\n">>} = message() || _ <- lists:seq(1, 1000)],
    close_lines([Lines]).

poller_killed_before_it_resumes(_Config) ->
    {A, B} = full_of_lines(5000),
    Pollers = pollers(),
    [true = erlang:suspend_process(Pid) || Pid <- Pollers],
    ok = ?NIF:set(B, active, true),
    [exit(Pid, kill) || Pid <- Pollers],
    S = socket(B),
    [same(lost, {tcp, S, <<"\n">>}, message()) || _ <- lists:seq(1, 5000)],
    close([A, B]).

%% What it was to go on with is all in the kernel: a read is as long as one call's messages.
poller_killed_before_it_reads_on(_Config) ->
    {A, B} = pair(),
    Packet = <<0:(9 * 8)>>,
    ok = ?NIF:set(B, packet, 1),
    ok = ?NIF:set(B, buffer, 1000 * 10),
    ok = send(A, binary:copy(<<9, Packet/binary>>, 3000)),
    until(fun() -> unread(B) >= 3000 * 10 andalso maps:get(readable, ?NIF:info(B)) end),
    Pollers = pollers(),
    [true = erlang:suspend_process(Pid) || Pid <- Pollers],
    ok = ?NIF:set(B, active, true),
    ?assertMatch(#{buffered := 0, readable := true}, ?NIF:info(B)),
    [exit(Pid, kill) || Pid <- Pollers],
    S = socket(B),
    [same(lost, {tcp, S, Packet}, message()) || _ <- lists:seq(1, 3000)],
    close([A, B]).

%% A pair of which the other end has so many lines in the kernel, and knows.
full_of_lines(Count) ->
    {A, B} = pair(),
    ok = ?NIF:set(B, packet, line),
    ok = send(A, binary:copy(<<"\n">>, Count)),
    until(fun() -> maps:get(readable, ?NIF:info(B)) end),
    {A, B}.

pollers_answer_system_messages(_Config) ->
    [
        begin
            State = sys:get_state(Pid, wait_ms()),
            State = sys:replace_state(Pid, fun(S) -> S end, wait_ms()),
            ok = sys:suspend(Pid, wait_ms()),
            ok = sys:resume(Pid, wait_ms())
        end
     || Pid <- pollers()
    ],
    {A, B} = pair(),
    ok = send(A, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(B, 0)),
    %% Another process that polls is turned away; so is one that has been replaced.
    ?assertEqual(gone, ?NIF:poll(0)),
    close([A, B]).

%% A poller that has become patient, for the sake of one connection that answered at once, looks half as often in vain
%% after each longer sleep.
idle_poller_loses_patience(_Config) ->
    {B, Peer} = weir_socket_test_lib:pair(weir, [binary, {active, false}, {pollset, 0}]),
    Poller = poller(0),
    %% The same socket as the last time is what keeps patience.
    ping(Poller, Peer, B),
    asleep(Poller),
    _ = sys:replace_state(Poller, fun(State) -> setelement(?PATIENCE, State, 48) end, wait_ms()),
    [
        begin
            ping(Poller, Peer, B),
            ?assertEqual(Patience, element(?PATIENCE, sys:get_state(Poller, wait_ms())))
        end
     || Patience <- [24, 12, 6, 3, 2, 2]
    ],
    ok = weir_socket:close(B),
    ok = gen_tcp:close(Peer).

%% Wakes a poller that sleeps, and returns when it sleeps again.
ping(Poller, Peer, B) ->
    Slept = element(?SLEPT, asleep(Poller)),
    ok = gen_tcp:send(Peer, "x"),
    ?assertEqual({ok, <<"x">>}, weir_socket:recv(B, 1, wait_ms())),
    until(fun() -> element(?SLEPT, sys:get_state(Poller, wait_ms())) =/= Slept end).

%% The state of a poller that sleeps, and has for longer than what is a short sleep.
asleep(Poller) ->
    Short = erlang:convert_time_unit(10, millisecond, native),
    until(fun() -> erlang:monotonic_time() - element(?SLEPT, sys:get_state(Poller, wait_ms())) > Short end),
    sys:get_state(Poller, wait_ms()).

slots_are_used_again(_Config) ->
    {L, Port} = listen(),
    Made = slots_made(),
    [
        begin
            A = connect(Port),
            B = accept(L),
            Ref = make_ref(),
            wait = recv_async(B, 0, Ref),
            _ = I rem 3 =:= 0 andalso (ok = send(A, <<"x">>)),
            close([A]),
            _ = answer(Ref),
            close([B])
        end
     || I <- lists:seq(1, 3000)
    ],
    same(slots, Made, slots_made()),
    close([L]).

slots_made() -> [maps:get(slots_made, Info) || Info <- pollset_infos()].

%% ---------------------------------------------------------------- turns

%% This process is the poller and polls by hand. Clients have sent more than one turn delivers, and send again before
%% each; all get equal shares, and another connection is served in the turn that finds it.
flooders_take_turns(_Config) ->
    [{_, Asks} = Asker | Flooders] = [lines_of_set_0() || _ <- lists:seq(1, 6)],
    by_hand(fun() ->
        [send_lines(Flooder, 1, 3000) || Flooder <- Flooders],
        Counts = flooded_turns(Flooders, 3001, 4, #{}),
        ?assertNot(is_map_key(Asks, Counts)),
        send_lines(Asker, 1, 1),
        #{Asks := 1} = More = turn(1000, Counts),
        Numbers = [maps:get(B, More) || {_, B} <- Flooders],
        ?assert(lists:min(Numbers) >= 900, Numbers),
        ?assert(lists:max(Numbers) =< 1100, Numbers),
        until_delivered(Flooders, 3004, More),
        ?assertEqual(nothing, ?NIF:poll(0))
    end),
    close_lines([Asker | Flooders]).

flooded_turns(_Flooders, _Next, 0, Counts) ->
    Counts;
flooded_turns(Flooders, Next, Left, Counts) ->
    More = turn(1000, Counts),
    %% An event for those that wait for their next turn already.
    [send_lines(Flooder, Next, 1) || Flooder <- Flooders],
    flooded_turns(Flooders, Next + 1, Left - 1, More).

%% More of them than a turn serves: all get on, each as fast as the others, and another one is served meanwhile.
more_flooders_than_a_turn_serves(_Config) ->
    [{_, Asks} = Asker | Flooders] = [lines_of_set_0() || _ <- lists:seq(1, 151)],
    by_hand(fun() ->
        [send_lines(Flooder, 1, 400) || Flooder <- Flooders],
        Found = turns(8, #{}),
        ?assertEqual(150, map_size(Found)),
        send_lines(Asker, 1, 1),
        #{Asks := 1} = More = turn(64 * 32, Found),
        Numbers = maps:values(maps:remove(Asks, turns(20, More))),
        ?assert(lists:min(Numbers) >= 4 * 32, Numbers),
        ?assert(lists:max(Numbers) - lists:min(Numbers) =< 3 * 32, Numbers)
    end),
    close_lines([Asker | Flooders]).

turns(N, Counts) -> lists:foldl(fun(_, Sum) -> turn(64 * 32, Sum) end, Counts, lists:seq(1, N)).

%% Packets that the poller decodes. Clients have sent many: each turn delivers some of each, and what another connection
%% has sent meanwhile. All come, in order, also when the owner of one wants nothing for a while. This process runs the
%% poller's own code.
decoders_take_turns(_Config) ->
    [{_, Asks} = Asker | Flooders] = [lines_of_set_0() || _ <- lists:seq(1, 4)],
    [{_, Paused} | _] = Flooders,
    %% It may have been about to sleep.
    State = setelement(?EMPTY, sys:get_state(poller(0), wait_ms()), 0),
    by_hand(fun() ->
        [ok = ?NIF:set(B, packet, asn1) || {_, B} <- Flooders],
        [
            begin
                ok = gen_tcp:send(Client, [<<4, 2, I:16>> || I <- lists:seq(1, 3000)]),
                until(fun() -> unread(B) > 0 end)
            end
         || {Client, B} <- Flooders
        ],
        First = poller_turn(State, 3, #{}),
        send_lines(Asker, 1, 1),
        #{Asks := 1} = Second = poller_turn(State, 4, First),
        ?assertEqual(maps:map(fun(_, N) -> 2 * N end, First), maps:remove(Asks, Second)),
        ok = ?NIF:set(Paused, active, false),
        Third = poller_turn(State, 2, Second),
        ok = ?NIF:set(Paused, active, true),
        Third
    end),
    [
        until(fun() -> #{counters := #{recv_cnt := Count}} = ?NIF:info(B), Count =:= 3000 orelse Count end)
     || {_, B} <- Flooders
    ],
    close_lines([Asker | Flooders]).

%% One turn of the poller, in which so many sockets send messages, a few hundred in all.
poller_turn(State, Socks, Counts) ->
    {noreply, _, 0} = weir_socket_poller:handle_info(timeout, State),
    {message_queue_len, Messages} = process_info(self(), message_queue_len),
    ?assert(Messages =< 300, Messages),
    More = numbered(Messages, Counts),
    ?assertEqual(Socks, length([B || {B, N} <- maps:to_list(More), N =/= maps:get(B, Counts, 0)])),
    More.

numbered(0, Counts) ->
    Counts;
numbered(Left, Counts) ->
    {tcp, {'$inet', weir_socket, B}, Packet} = message(),
    Number = maps:get(B, Counts, 0) + 1,
    Packet =:= <<"1\n">> orelse same(out_of_order, <<4, 2, Number:16>>, Packet),
    numbered(Left - 1, Counts#{B => Number}).

%% Sockets that wait for their next turn when they are closed; and when their poller becomes another.
listed_and_closed(_Config) ->
    [Closed | Others] = Flooders = [lines_of_set_0() || _ <- lists:seq(1, 3)],
    by_hand(fun() ->
        [send_lines(Flooder, 1, 3000) || Flooder <- Flooders],
        Counts = turn(1000, #{}),
        close_lines([Closed]),
        turn(1000, Counts)
    end),
    [
        until(fun() -> #{counters := #{recv_cnt := Count}} = ?NIF:info(B), Count =:= 3000 orelse Count end)
     || {_, B} <- Others
    ],
    close_lines(Others).

%% A client of gen_tcp's, and the other end: a socket of set 0 that sends lines to this process.
lines_of_set_0() ->
    {ok, L} = ?NIF:open(inet, none, 0),
    ok = ?NIF:bind(L, {inet, {127, 0, 0, 1}, 0}),
    ok = ?NIF:listen(L, 5),
    {ok, {inet, _, Port}} = ?NIF:sockname(L),
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    B = accept(L),
    #{pollset := 0} = ?NIF:info(B),
    close([L]),
    ok = ?NIF:set(B, packet, line),
    ok = ?NIF:set(B, active, true),
    {Client, B}.

%% Numbered lines, in one piece, which is in the kernel of the other end when this returns.
send_lines({Client, B}, First, Count) ->
    Before = weir_socket_test_lib:received(socket(B)),
    Lines = iolist_to_binary([[integer_to_list(I), $\n] || I <- lists:seq(First, First + Count - 1)]),
    ok = gen_tcp:send(Client, Lines),
    until(fun() -> weir_socket_test_lib:received(socket(B)) =:= Before + byte_size(Lines) end).

%% What the kernel holds for it: SO_MEMINFO.
unread(B) ->
    {ok, [{raw, 1, 55, <<Held:32/native, _/binary>>}]} = weir_socket:getopts(socket(B), [{raw, 1, 55, 36}]),
    Held.

%% Calls the function as the poller of set 0, and gives the set back.
by_hand(Fun) ->
    Poller = poller(0),
    _ = ?NIF:serve(0),
    %% It may be in its last turn.
    _ = sys:get_state(Poller, wait_ms()),
    try
        _ = Fun()
    after
        exit(Poller, kill),
        until(fun() -> poller(0) =/= self() end)
    end.

%% One turn, in which messages come, and so many at most. How many lines each socket has sent so far; they are in order.
turn(Most, Counts) ->
    #{delivered := Before} = ?NIF:pollset_info(0),
    busy = ?NIF:poll(0),
    #{delivered := After} = ?NIF:pollset_info(0),
    ?assert(After - Before =< Most, After - Before),
    count(After - Before, Counts).

count(0, Counts) ->
    Counts;
count(Left, Counts) ->
    {tcp, {'$inet', weir_socket, B}, Line} = message(),
    Number = maps:get(B, Counts, 0) + 1,
    same(out_of_order, <<(integer_to_binary(Number))/binary, $\n>>, Line),
    count(Left - 1, Counts#{B => Number}).

until_delivered(Flooders, Lines, Counts) ->
    case [B || {_, B} <- Flooders, maps:get(B, Counts) < Lines] of
        [] -> ok;
        _ -> until_delivered(Flooders, Lines, turn(1000, Counts))
    end.

close_lines(Pairs) ->
    close([B || {_, B} <- Pairs]),
    [ok = gen_tcp:close(Client) || {Client, _} <- Pairs],
    ok.

%% ---------------------------------------------------------------- whose set

%% A socket counts from when it is opened, so those that are opened together are spread.
opened_together(_Config) ->
    Before = loads(),
    Sets = ?NIF:pollsets(),
    Socks = [open() || _ <- lists:seq(1, 10 * Sets)],
    ?assert(lists:max(loads()) - lists:min(loads()) =< 1, loads()),
    Self = self(),
    Openers = [
        spawn_link(fun() -> Sock = open(), Self ! opened, receive stop -> close([Sock]) end end)
     || _ <- lists:seq(1, 10 * Sets)
    ],
    [receive opened -> ok end || _ <- Openers],
    %% Those who choose at the same instant may choose the same.
    ?assert(lists:max(loads()) - lists:min(loads()) =< 1 + erlang:system_info(schedulers), loads()),
    ?assertEqual(lists:sum(Before) + 20 * Sets, lists:sum(loads())),
    %% Those that listen do not count, also by another descriptor and if they are duplicates.
    {L, _} = listen(),
    {ok, Listen} = gen_tcp:listen(0, []),
    {ok, Fd} = inet:getfd(Listen),
    {ok, Lent} = ?NIF:open_fd(Fd, default),
    {ok, Duplicate} = ?NIF:dup(L),
    ?assertEqual(lists:sum(Before) + 20 * Sets, lists:sum(loads())),
    close([Lent, Duplicate, L]),
    ok = gen_tcp:close(Listen),
    ?assertEqual(lists:sum(Before) + 20 * Sets, lists:sum(loads())),
    %% However they end.
    [Opener ! stop || Opener <- tl(Openers)],
    [joined(Opener) || Opener <- tl(Openers)],
    unlink(hd(Openers)),
    kill(hd(Openers)),
    close(Socks),
    until_nothing_leaks(fun() -> loads() =:= Before orelse {loads(), Before} end).

open() ->
    {ok, Sock} = ?NIF:open(inet, none, default),
    Sock.

loads() -> [Load || #{load := Load} <- pollset_infos()].

%% ---------------------------------------------------------------- code

%% A new version of the NIF's module takes over what the old one has made; the purge of the old one kills nobody.
upgrade_and_purge(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(B, active, true),
    S = socket(B),
    Pollers = pollers(),
    [
        begin
            _ = code:purge(Module),
            {module, Module} = code:load_file(Module),
            _ = code:purge(Module),
            ok = send(A, <<"x">>),
            ?assertEqual({tcp, S, <<"x">>}, message())
        end
     || _ <- [1, 2, 3], Module <- [?NIF, weir_socket_poller]
    ],
    ?assertEqual(Pollers, pollers()),
    close([A, B]).

%% Who waits to accept or to receive, with a time-out or without, with packets that Erlang decodes or others, goes on
%% waiting in the new version, which leaves nobody in the old one.
%% In a process of its own: with that its sockets go.
waiting_through_an_upgrade(_Config) -> joined(spawn_link(fun waiting/0)).

waiting() ->
    Modules = [weir_socket, weir_socket_decode],
    {ok, Listener} = weir_socket:listen(0, [binary, {active, false}]),
    {ok, Port} = weir_socket:port(Listener),
    Connect = fun(Packet) ->
        {ok, Socket} = weir_socket:connect("localhost", Port, [binary, {packet, Packet}, {active, false}]),
        {ok, Peer} = weir_socket:accept(Listener),
        {Socket, Peer}
    end,
    Connected = [Connect(Packet) || Packet <- [2, line, http_bin]],
    {_, Silent} = Connect(raw),
    Self = self(),
    Waiting = [spawn_link(fun() -> Self ! {self(), {Sock, weir_socket:recv(Sock, 0, Timeout)}} end)
        || {Sock, _} <- Connected, Timeout <- [infinity, wait_ms()]],
    Late = spawn_link(fun() -> Self ! {self(), weir_socket:recv(Silent, 0, 1000)} end),
    Acceptor = spawn_link(fun() -> Self ! {self(), element(1, weir_socket:accept(Listener))} end),
    %% Or it has waited already, and its time is over.
    Waits = fun(Pid) -> lists:member(process_info(Pid, status), [{status, waiting}, undefined]) end,
    [until(fun() -> Waits(Pid) end) || Pid <- [Late, Acceptor | Waiting]],
    [
        begin
            [{module, Module} = code:load_file(Module) || Module <- Modules, code:soft_purge(Module)],
            ok = weir_socket_wait:code_loaded(),
            [until(fun() -> code:soft_purge(Module) end) || Module <- Modules]
        end
     || _ <- [1, 2]
    ],
    ?assertEqual({error, timeout}, answer_of(Late)),
    %% Two packets each, as each has two readers.
    Packets = [<<4:16, "ping", 4:16, "ping">>, <<"a line\nanother\n">>, <<"GET / HTTP/1.0\r\n\r\n">>],
    [ok = weir_socket:send(Peer, Two) || {{_, Peer}, Two} <- lists:zip(Connected, Packets)],
    [?assertMatch({_, {ok, _}}, answer_of(Pid)) || Pid <- Waiting],
    {ok, _} = weir_socket:connect("localhost", Port, []),
    ?assertEqual(ok, answer_of(Acceptor)).

%% Who waits to connect is not told to do so again.
connecting_through_an_upgrade(_Config) -> joined(spawn_link(fun connecting/0)).

connecting() ->
    {ok, Listener} = weir_socket:listen(0, [{backlog, 1}]),
    {ok, Port} = weir_socket:port(Listener),
    Self = self(),
    Connecting = [
        spawn_link(fun() -> Self ! {self(), element(1, weir_socket:connect("localhost", Port, [inet], wait_ms()))} end)
     || _ <- lists:seq(1, 5)
    ],
    %% The kernel takes no more than two before they are accepted.
    IsConnecting = fun(Sock) -> maps:get(state, ?NIF:info(Sock)) =:= connecting end,
    until(fun() -> lists:any(IsConnecting, weir_socket_overview:all()) end),
    ok = weir_socket_wait:code_loaded(),
    [{ok, _} = weir_socket:accept(Listener, wait_ms()) || _ <- Connecting],
    [?assertEqual(ok, answer_of(Pid)) || Pid <- Connecting].

answer_of(Pid) ->
    receive
        {Pid, Answer} -> Answer
    after wait_ms() -> error({no_answer, Pid, process_info(Pid)})
    end.

%% In a node of its own, of many schedulers, whose limit of descriptors is lowered.
failed_load(_Config) ->
    ?assertEqual(ok, weir_socket_test_lib:with_descriptors(200, ["+S", "32:32"], {?MODULE, failed_load_here})).

%% As long as there are descriptors for some of its sets and not for all, it is not loaded, and none is left over.
failed_load_here() ->
    ok = logger:set_primary_config(level, none),
    32 = erlang:system_info(schedulers),
    {Own, Taken} = {epolls(), take_descriptors()},
    Left = lists:foldl(
        fun(_, Files) ->
            {Free, Rest} = lists:split(8, Files),
            [ok = file:close(File) || File <- Free],
            Open = weir_socket_test_lib:descriptors(),
            [?assertMatch({error, _}, code:ensure_loaded(?NIF)) || _ <- [1, 2, 3]],
            same(epolls, Own, epolls()),
            same(descriptors, Open, weir_socket_test_lib:descriptors()),
            Rest
        end,
        Taken,
        [8, 16, 24]
    ),
    [ok = file:close(File) || File <- Left],
    {ok, _} = application:ensure_all_started(weir_socket),
    ?assertEqual(32, ?NIF:pollsets()),
    {A, B} = pair(),
    ok = send(A, <<"x">>),
    {ok, <<"x">>} = recv(B, 0),
    close([A, B]),
    %% When it is unloaded, nothing is left either.
    ok = application:stop(weir_socket),
    true = code:delete(?NIF),
    false = code:purge(?NIF),
    until(fun() ->
        _ = [erlang:garbage_collect(Pid) || Pid <- erlang:processes()],
        epolls() =:= Own
    end).

take_descriptors() ->
    case file:open("/dev/null", [read, raw]) of
        {ok, File} -> [File | take_descriptors()];
        {error, emfile} -> []
    end.

%% How many descriptors of epoll the node has.
epolls() ->
    {ok, Names} = file:list_dir("/proc/self/fd"),
    Targets = [file:read_link(filename:join("/proc/self/fd", Name)) || Name <- Names],
    length([found || {ok, "anon_inode:[eventpoll]"} <- Targets]).
