%% A node that can start no process: sockets go on, and the end of the application still writes what is queued.
-module(weir_socket_full_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).
-import(weir_kit_limits, [in_node/3, full/3]).

-define(FULL_MS, 1000).
-define(QUEUED, 8_000_000).

all() -> weir_kit:cases(?MODULE).

%% Two ends of a connection: one of weir_socket, one of gen_tcp.
connected(Options) ->
    {ok, _} = application:ensure_all_started(weir_socket),
    {ok, Listener} = weir_socket:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}} | Options]),
    {ok, Port} = weir_socket:port(Listener),
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    {ok, Socket} = weir_socket:accept(Listener),
    {Socket, Peer}.

%% A poller is killed, and no other can be started until there is room.
pollers_are_killed(_Config) -> ok = in_node(?MODULE, kill_pollers, []).

kill_pollers() ->
    {Socket, Peer} = connected([]),
    Sup = whereis(weir_socket_sup),
    Pollers = pollers(),
    full(processes, ?FULL_MS, fun() -> [weir_kit_limits:kill(Pid, Sup) || Pid <- Pollers] end),
    ok = echoed(Socket, Peer),
    ?assertEqual(Sup, whereis(weir_socket_sup)),
    ok.

%% A poller is killed while the node has no port left for its bell.
no_port_for_the_bell(_Config) -> ok = in_node(?MODULE, without_ports, []).

without_ports() ->
    {Socket, Peer} = connected([]),
    Sup = whereis(weir_socket_sup),
    full(ports, ?FULL_MS, fun() -> [ok = weir_kit:kill(Pid) || Pid <- pollers()] end),
    ok = echoed(Socket, Peer),
    ?assertEqual(Sup, whereis(weir_socket_sup)),
    ok.

%% A poller starts again while no shared server of the node answers.
servers_hang(_Config) -> ok = in_node(?MODULE, hang, []).

hang() ->
    {Socket, Peer} = connected([]),
    weir_kit_limits:without_servers(fun() ->
        [ok = weir_kit:kill(Pid) || Pid <- pollers()],
        echoed(Socket, Peer)
    end).

pollers() -> [Pid || {{poller, _}, Pid, _, _} <- supervisor:which_children(weir_socket_sup)].

echoed(Socket, Peer) ->
    ok = gen_tcp:send(Peer, <<"hello">>),
    {ok, <<"hello">>} = weir_socket:recv(Socket, 5, weir_kit:wait_ms()),
    ok.

%% The application ends while sockets have data to write, for which it starts a process each where there is room.
%% OTP 29's application controller spawns a process to stop an application, and dies at a full process table.
queued_data_is_written(_Config) ->
    case list_to_integer(erlang:system_info(otp_release)) > 25 of
        true -> {skip, "OTP's application controller dies at a full process table"};
        false -> ok = in_node(?MODULE, write_queued, [])
    end.

write_queued() ->
    {Socket, Peer} = connected([{send_timeout, 0}, {high_watermark, 2 * ?QUEUED}]),
    {Reader, _} = Task = weir_kit:start(fun() ->
        receive
            read -> read(Peer, 0)
        end
    end),
    ok = gen_tcp:controlling_process(Peer, Reader),
    _ = weir_socket:send(Socket, binary:copy(<<"x">>, ?QUEUED)),
    {ok, [{send_pend, Pending}]} = weir_socket:getstat(Socket, [send_pend]),
    ?assert(Pending > 0),
    ok = full(processes, ?FULL_MS, fun() ->
        _ = erlang:send_after(300, Reader, read),
        application:stop(weir_socket)
    end),
    ok = weir_kit:same(written, ?QUEUED, weir_kit:result(Task)).

read(Peer, Sum) ->
    case gen_tcp:recv(Peer, 0) of
        {ok, Data} -> read(Peer, Sum + byte_size(Data));
        {error, _} -> Sum
    end.
