%% What the end leaves: of the node, of the application, of a socket's owner. What was sent with `ok' reaches the other
%% end as from gen_tcp, and who waits for a socket is told.
-module(weir_socket_end_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [start/1, result/1, until/1, until_waiting/1, same/3]).
-import(weir_socket_test_lib, [pair/2, next/0, read_all/1]).

-define(SIZE, 8_000_000).

all() -> [{group, node} | weir_kit:cases(?MODULE) -- node_cases()].

groups() -> [{node, [parallel], node_cases()}].

%% Cases that wait for nodes of their own.
node_cases() ->
    [
        node_halts, node_stops, owner_dies_and_node_stops, node_halts_without_flushing, reader_that_takes_nothing,
        nothing_lingers
    ].

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    [{started, Started} | Config].

end_per_suite(Config) -> lists:foreach(fun application:stop/1, lists:reverse(?config(started, Config))).

end_per_testcase(_Case, _Config) ->
    {ok, _} = application:ensure_all_started(weir_socket),
    ok.

%% ---------------------------------------------------------------- of the node

%% A reader begins when the node has sent everything, and ends.
node_halts(_) -> all_received(halts).

node_stops(_) -> all_received(stops).

owner_dies_and_node_stops(_) -> all_received(owner_dies).

all_received(How) -> [same(bytes, ?SIZE, received(Module, How, [])) || Module <- [gen_tcp, weir_socket]].

%% What the kernel has not taken is lost, but on OTP 25, where a library is not told of the difference.
node_halts_without_flushing(_) ->
    ?assert(received_after(gen_tcp, halts_at_once, []) < ?SIZE),
    case list_to_integer(erlang:system_info(otp_release)) of
        25 -> same(bytes, ?SIZE, received(weir_socket, halts_at_once, []));
        _ -> ?assert(received_after(weir_socket, halts_at_once, []) < ?SIZE)
    end.

%% A node that halts does not wait for ever for who reads nothing; gen_tcp's does.
reader_that_takes_nothing(_) ->
    Senders = [sender(weir_socket, How, []) || How <- [halts, stops]],
    [ended(Node) || {_, Node} <- Senders],
    [ok = gen_tcp:close(Socket) || {Socket, _} <- Senders].

nothing_lingers(_) ->
    [?assert(received_after(weir_socket, How, [{linger, {true, 0}}]) < ?SIZE) || How <- [halts, stops]].

%% How many bytes come from a node that sends and ends.
received(Module, How, Options) ->
    {Socket, Node} = sender(Module, How, Options),
    Bytes = count(Socket, 0),
    ended(Node),
    ok = gen_tcp:close(Socket),
    Bytes.

%% The same, when nothing is read before it has ended.
received_after(Module, How, Options) ->
    {Socket, Node} = sender(Module, How, Options),
    ended(Node),
    Bytes = count(Socket, 0),
    ok = gen_tcp:close(Socket),
    Bytes.

ended(Node) -> receive {Node, {exit_status, 0}} -> ok end.

count(Socket, Bytes) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} -> count(Socket, Bytes + byte_size(Data));
        {error, _} -> Bytes
    end.

%% This end of a connection from a node that has sent all of it with `ok', and is about to end.
sender(Module, How, Options) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}, {recbuf, 65536}]),
    {ok, Port} = inet:port(Listener),
    Paths = [filename:absname(Dir) || Dir <- code:get_path(), Dir =/= "."],
    Call = io_lib:format("~p:dies(~p, ~p).", [?MODULE, {Module, How, Options}, Port]),
    Arguments = ["-noinput", "-kernel", "logger_level", "error", "-pa"] ++ Paths ++ ["-eval", lists:flatten(Call)],
    Node = open_port({spawn_executable, os:find_executable("erl")}, [{args, Arguments}, exit_status, binary]),
    {ok, Control} = gen_tcp:accept(Listener),
    {ok, Socket} = gen_tcp:accept(Listener),
    ok = gen_tcp:close(Listener),
    {ok, <<"sent">>} = gen_tcp:recv(Control, 4),
    ok = gen_tcp:close(Control),
    {Socket, Node}.

%% In the node.
dies({Module, How, Options}, Port) ->
    {ok, _} = application:ensure_all_started(weir_socket),
    {ok, Control} = gen_tcp:connect({127, 0, 0, 1}, Port, []),
    Self = self(),
    Owner = start(fun() ->
        {ok, Socket} = Module:connect({127, 0, 0, 1}, Port, [binary, {active, false} | Options]),
        ok = gen_tcp:send(Socket, binary:copy(<<"x">>, ?SIZE)),
        Self ! sent,
        How =:= owner_dies orelse receive stop -> ok end
    end),
    receive sent -> ok = gen_tcp:send(Control, "sent") end,
    case How of
        owner_dies -> result(Owner), init:stop();
        stops -> init:stop();
        halts -> halt();
        halts_at_once -> halt(0, [{flush, false}])
    end.

%% ---------------------------------------------------------------- of the application

%% A listener's acceptors, a receiver, a sender, the owner of an active socket, who monitors; and then nothing is left.
everybody_is_told(_) ->
    {ok, Listener} = weir_socket:listen(0, []),
    Acceptor = start(fun() -> weir_socket:accept(Listener) end),
    {Passive, Peer} = pair(weir, [binary, {active, false}]),
    Receiver = start(fun() -> weir_socket:recv(Passive, 0) end),
    {Full, FullPeer} = pair(weir, [binary, {active, false}, {linger, {true, 0}}]),
    ok = weir_socket:send(Full, binary:copy(<<"x">>, ?SIZE)),
    Sender = start(fun() -> weir_socket:send(Full, <<"x">>) end),
    [until_waiting(Process) || Process <- [Acceptor, Receiver, Sender]],
    {Active, ActivePeer} = pair(weir, [binary, {active, true}]),
    Monitor = inet:monitor(Passive),
    ok = application:stop(weir_socket),
    [?assertEqual({error, closed}, result(Process)) || Process <- [Acceptor, Receiver, Sender]],
    {tcp_closed, Active} = next(),
    receive {'DOWN', Monitor, socket, Passive, closed} -> ok end,
    [
        begin
            ?assertEqual({error, closed}, weir_socket:recv(Socket, 0, 1000)),
            ?assertEqual({error, closed}, weir_socket:send(Socket, <<"x">>)),
            ?assertEqual({error, einval}, weir_socket:setopts(Socket, [{active, once}])),
            ?assertEqual(ok, weir_socket:close(Socket))
        end
     || Socket <- [Passive, Active, Full]
    ],
    ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0)),
    [ok = gen_tcp:close(Socket) || Socket <- [Peer, FullPeer, ActivePeer]],
    ok = application:start(weir_socket),
    until_no_sockets().

until_no_sockets() ->
    weir_socket_test_lib:until_nothing_leaks(fun() ->
        Held = maps:with([sockets, slots], weir_socket_test_lib:held()),
        Held =:= #{sockets => 0, slots => 0} orelse Held
    end).

queue_is_written(_) ->
    {Socket, Peer} = pair(weir, [binary, {active, false}]),
    ok = weir_socket:send(Socket, binary:copy(<<"x">>, ?SIZE)),
    Reader = start(fun() -> read_all(Peer) end),
    ok = gen_tcp:controlling_process(Peer, element(1, Reader)),
    ok = application:stop(weir_socket),
    same(bytes, ?SIZE, byte_size(result(Reader))),
    ok = application:start(weir_socket).

%% The application waits for all stalled readers together: five seconds, not five for each. Waiting for them in turn
%% would take longer than a task may.
queue_of_a_stalled_reader(_) ->
    Pairs = [pair(weir, [binary, {active, false}]) || _ <- lists:seq(1, 16)],
    Data = binary:copy(<<"x">>, ?SIZE),
    [ok = weir_socket:send(Socket, Data) || {Socket, _} <- Pairs],
    ok = result(start(fun() -> application:stop(weir_socket) end)),
    [ok = gen_tcp:close(Peer) || {_, Peer} <- Pairs],
    ok = application:start(weir_socket),
    until_no_sockets().

%% While it waits for a reader, and after its pollers have gone.
opened_in_between(_) ->
    {Socket, Peer} = pair(weir, [binary, {active, false}]),
    ok = weir_socket:send(Socket, binary:copy(<<"x">>, ?SIZE)),
    Stop = start(fun() -> application:stop(weir_socket) end),
    until(fun() -> maps:get(state, weir_socket_nif:info(element(3, Socket))) =:= flushing end),
    {ok, Listener} = weir_socket:listen(0, []),
    Acceptor = start(fun() -> weir_socket:accept(Listener) end),
    until_waiting(Acceptor),
    _ = read_all(Peer),
    ok = result(Stop),
    ?assertEqual({error, closed}, result(Acceptor)),
    ?assertEqual({error, eshutdown}, weir_socket_nif:open(inet, none, default)),
    ok = application:start(weir_socket).

%% The application fails, so nobody prepares for its end; who waits is told all the same.
supervisor_killed(_) ->
    {Socket, Peer} = pair(weir, [binary, {active, false}]),
    Receiver = start(fun() -> weir_socket:recv(Socket, 0) end),
    until_waiting(Receiver),
    exit(whereis(weir_socket_sup), kill),
    ?assertEqual({error, closed}, result(Receiver)),
    ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0)),
    until(fun() -> not lists:keymember(weir_socket, 1, application:which_applications()) end).

%% Stopped and started while connections come and go: nobody hangs, and nothing is left.
begun_again(_) ->
    Talkers = [start(fun() -> talk_until(stop) end) || _ <- lists:seq(1, 8)],
    [
        begin
            ok = application:stop(weir_socket),
            ok = application:start(weir_socket)
        end
     || _ <- lists:seq(1, 30)
    ],
    [Pid ! stop || {Pid, _} <- Talkers],
    [ok = result(Talker) || Talker <- Talkers],
    until_no_sockets().

talk_until(Stop) ->
    receive
        Stop -> ok
    after 0 ->
        _ = try_to_talk(),
        talk_until(Stop)
    end.

%% Fails in any way that says that a socket is closed, or the application does not run.
try_to_talk() ->
    try
        {ok, Listener} = weir_socket:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
        {ok, Port} = weir_socket:port(Listener),
        {ok, One} = weir_socket:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
        {ok, Other} = weir_socket:accept(Listener),
        ok = weir_socket:send(One, <<"x">>),
        {ok, <<"x">>} = weir_socket:recv(Other, 1),
        [ok = weir_socket:close(Socket) || Socket <- [One, Other, Listener]]
    catch
        error:{not_started, weir_socket} -> ok;
        error:{badmatch, {error, Reason}} when
            Reason =:= closed; Reason =:= einval; Reason =:= eshutdown; Reason =:= econnrefused; Reason =:= econnreset
        ->
            ok
    end.
