%% @doc Echo servers for the part {@link weir_demo_socket}, on gen_tcp and on weir_socket, in a node of their own, so
%% that its processor time is the servers' alone.
%%
%% The two differ in the module that listens and accepts, sends and receives, and in nothing else: a process a
%% connection, passive, which sends back whatever it receives. The process that accepted a connection serves it, after
%% it has started the next acceptor.
%%
%% The node has the runtime's default flags and is not distributed: it is controlled through its standard input and
%% output. When the process that started it dies, or its whole VM, that input closes and the node halts. A connection
%% that fails ends its process and nothing else; a listener that fails leaves its port refusing connections.
-module(weir_demo_echo_server).

-export([start/1, stop/1, port/2, cpu_ms/1]).
%% Called in the servers' node.
-export([listen/1]).

-export_type([servers/0, transport/0]).

-define(BACKLOG, 1_024).
%% Milliseconds that a node may take to start, and to answer.
-define(START_TIMEOUT, 60_000).
-define(CALL_TIMEOUT, 30_000).

%% What the kernel counts processor time in, for programs, on every machine.
-define(TICKS_A_SECOND, 100).
%% In /proc/PID/stat, counted from behind the name of the program, which may have spaces.
-define(USER_TICKS, 12).
-define(KERNEL_TICKS, 13).

-type transport() :: gen_tcp | weir_socket.

-opaque servers() :: #{peer := pid(), os_pid := string(), ports := #{transport() => inet:port_number()}}.

%% @doc Starts a node, linked to the caller, with a server for each of the transports. Fails if it cannot be started.
%%
%% Cost: about a second.
-spec start([transport()]) -> servers().
start(Transports) ->
    Peer = start_peer(),
    Listen = fun(Transport) ->
        {ok, Port} = peer:call(Peer, ?MODULE, listen, [Transport], ?CALL_TIMEOUT),
        {Transport, Port}
    end,
    OsPid = peer:call(Peer, os, getpid, [], ?CALL_TIMEOUT),
    #{peer => Peer, os_pid => OsPid, ports => maps:from_list([Listen(Transport) || Transport <- Transports])}.

start_peer() ->
    Paths = lists:usort([filename:absname(filename:dirname(code:which(Module))) || Module <- [?MODULE, weir_socket]]),
    case peer:start_link(#{connection => standard_io, args => ["-pa" | Paths], wait_boot => ?START_TIMEOUT}) of
        {ok, Peer} -> Peer;
        {ok, Peer, _Node} -> Peer
    end.

%% @doc Ends the node.
-spec stop(servers()) -> ok.
stop(#{peer := Peer}) -> peer:stop(Peer).

%% @doc Where on 127.0.0.1 the server of a transport listens.
-spec port(transport(), servers()) -> inet:port_number().
port(Transport, #{ports := Ports}) -> maps:get(Transport, Ports).

%% @doc The processor time of the node since it was started, of all its threads, in user and kernel mode, in
%% milliseconds, as Linux tells it: in steps of 10. What its schedulers spin while they wait for work is part of it.
-spec cpu_ms(servers()) -> non_neg_integer().
cpu_ms(#{os_pid := OsPid}) ->
    {ok, Stat} = file:read_file(["/proc/", OsPid, "/stat"]),
    [_PidAndName, Rest] = string:split(Stat, ") ", trailing),
    Fields = string:lexemes(Rest, " "),
    Ticks = lists:sum([binary_to_integer(lists:nth(N, Fields)) || N <- [?USER_TICKS, ?KERNEL_TICKS]]),
    Ticks * 1_000 div ?TICKS_A_SECOND.

%% @private Starts a server in this node, which lives as long as the node.
-spec listen(transport()) -> {ok, inet:port_number()} | {error, term()}.
listen(weir_socket) ->
    case application:ensure_all_started(weir_socket) of
        {ok, _} -> open(weir_socket);
        {error, _} = Error -> Error
    end;
listen(gen_tcp) ->
    open(gen_tcp).

%% The listening socket belongs to a process that stays.
open(Transport) ->
    Self = self(),
    {Owner, Monitor} = spawn_monitor(fun() ->
        Result = listen_on(Transport, [
            binary, {ip, {127, 0, 0, 1}}, {active, false}, {packet, raw}, {nodelay, true}, {backlog, ?BACKLOG}
        ]),
        Self ! {self(), Result},
        receive
            never -> ok
        end
    end),
    receive
        {Owner, {ok, Listener}} ->
            true = demonitor(Monitor, [flush]),
            _ = spawn(fun() -> accept(Transport, Listener) end),
            inet:port(Listener);
        {Owner, {error, _} = Error} ->
            true = demonitor(Monitor, [flush]),
            Error;
        {'DOWN', Monitor, process, Owner, Reason} ->
            {error, Reason}
    end.

listen_on(gen_tcp, Options) -> gen_tcp:listen(0, Options);
listen_on(weir_socket, Options) -> weir_socket:listen(0, Options).

accept(Transport, Listener) ->
    {ok, Socket} = Transport:accept(Listener),
    _ = spawn(fun() -> accept(Transport, Listener) end),
    echo(Transport, Socket).

echo(Transport, Socket) ->
    case Transport:recv(Socket, 0) of
        {ok, Data} ->
            case Transport:send(Socket, Data) of
                ok -> echo(Transport, Socket);
                {error, _} -> Transport:close(Socket)
            end;
        {error, _} ->
            Transport:close(Socket)
    end.
