%% @doc Servers that differ in the sockets that they are on: one process a connection, on each of OTP's sockets and on
%% weir_socket. The demo and the benchmarks compare them. They run in a node of their own
%% ({@link weir_kit_socket_node}), which has to have this module only.
%%
%% What they do with a connection is the same for all, see `work()'. How they receive is `mode()'. A process waits in
%% accept; when it has a connection it starts the next acceptor and serves. So the process that accepted is the owner
%% from the beginning, and no socket changes hands.
%%
%% The sockets are configured alike: binaries, no delay of small writes, a backlog that no run fills, buffers of a size
%% that suits what is received. Each module is called as its users call it: `gen_tcp' on both of its backends, `socket'
%% with recv and send in a loop, `weir_socket' with gen_tcp's functions.
-module(weir_kit_socket_server).

-export([start/3, stop_all/0, notes/0, backends/0]).

-export_type([backend/0, work/0, mode/0]).

-define(BACKLOG, 4_096).
%% gen_tcp on socket in OTP 25 waits for a connection with a timer, which has to run: when it is told of a connection
%% and finds none, it restarts a timer that was infinite with a time of zero, and crashes. An hour is longer than any
%% run.
-define(ACCEPT_TIMEOUT, 3_600_000).
%% What active sockets count down from; a receiver that has been told that zero is reached asks for as many more.
-define(ACTIVE_N, 100).
%% As in bench/c_src/weir_common.h.
-define(PERIOD, 65_521).
-define(BLOCK, 65_536).
-define(READ_SIZE, 262_144).
%% What one read asks for: messages of 64 bytes, and bulk. The small one is gen_tcp's default, and so is what each idle
%% connection that waits in recv holds.
-define(SMALL_BUFFER, 1_460).
-define(BULK_BUFFER, 65_536).

-type backend() :: gen_tcp | gen_tcp_socket | socket | weir_socket.
%% gen_tcp on its inet backend, and on the one that is built on socket.

-type work() :: echo | bulk_echo | source | sink.
%% Sends back what it receives: requests, or bulk (which have buffers of another size); sends the pattern in writes of
%% 64 KB until the connection is closed; or receives the pattern, checks it, and answers the end of the stream with the
%% number of bytes. What is wrong closes the connection, which the load generator takes for a failure.

-type mode() :: passive | true | once | n.
%% `gen_tcp:recv/2', or which value of the option `active'. With `true' a bulk echo has no bound for its mailbox.

%% @doc All of them; the last is Weir's.
-spec backends() -> [backend(), ...].
backends() -> [gen_tcp, gen_tcp_socket, socket, weir_socket].

%% @doc What the tables tell of how the contestants are configured.
-spec notes() -> [iodata()].
notes() ->
    [
        "each server in a node of its own, with the runtime's default flags (schedulers not bound, +sbwt medium)",
        "all: one process a connection, binary, packet raw, nodelay; buffers of the kernel as it sizes them",
        io_lib:format("gen_tcp's and weir_socket's buffer, and socket's {otp, rcvbuf}: ~b bytes, ~b for bulk", [
            ?SMALL_BUFFER, ?BULK_BUFFER
        ]),
        io_lib:format("active N: ~b", [?ACTIVE_N]),
        "socket: recv(S, 0, nowait) and send(S, Data) in a loop; it has no active mode"
    ].

%% @doc Starts a server, which lives as long as the node or until {@link stop_all/0}; it accepts connections at the port
%% of 127.0.0.1 that this returns. `socket' has no active mode.
-spec start(backend(), work(), mode()) -> inet:port_number().
start(Backend, Work, Mode) when Backend =/= socket; Mode =:= passive ->
    ok = prepare(Backend),
    Self = self(),
    {Pid, Monitor} = spawn_monitor(fun() -> listen(Self, Backend, Work, Mode) end),
    receive
        {Pid, Port} ->
            true = erlang:demonitor(Monitor, [flush]),
            Port;
        {'DOWN', Monitor, process, Pid, Reason} ->
            error(Reason)
    end.

prepare(weir_socket) ->
    {ok, _} = application:ensure_all_started(weir_socket),
    ok;
prepare(_Otp) ->
    ok.

listen(Starter, socket, Work, passive) ->
    {ok, Listener} = socket:open(inet, stream, tcp),
    ok = socket:setopt(Listener, {socket, reuseaddr}, true),
    ok = socket:bind(Listener, #{family => inet, addr => {127, 0, 0, 1}, port => 0}),
    ok = socket:listen(Listener, ?BACKLOG),
    {ok, #{port := Port}} = socket:sockname(Listener),
    _ = spawn(fun() -> accept_socket(Listener, Work) end),
    hold(Starter, Port);
listen(Starter, Backend, Work, Mode) ->
    {Module, Options} = configuration(Backend, Work),
    {ok, Listener} = Module:listen(0, Options),
    {ok, {_, Port}} = inet:sockname(Listener),
    _ = spawn(fun() -> accept(Module, Listener, Work, Mode) end),
    hold(Starter, Port).

%% @doc Ends the servers of this node, for those who have not started a node for them; their listening sockets are
%% closed by that. Connections that are open are served to their end. Looks at every process of the node.
-spec stop_all() -> ok.
stop_all() ->
    Monitors = [
        begin
            Monitor = erlang:monitor(process, Pid),
            Pid ! stop,
            Monitor
        end
     || Pid <- processes(), process_info(Pid, current_function) =:= {current_function, {?MODULE, hold, 2}}
    ],
    lists:foreach(fun(Monitor) -> receive {'DOWN', Monitor, process, _, _} -> ok end end, Monitors).

%% The listening socket's owner stays.
hold(Starter, Port) ->
    Starter ! {self(), Port},
    receive
        stop -> ok
    end.

configuration(gen_tcp, Work) -> {gen_tcp, options(Work)};
configuration(gen_tcp_socket, Work) -> {gen_tcp, [{inet_backend, socket} | options(Work)]};
configuration(weir_socket, Work) -> {weir_socket, options(Work)}.

options(Work) ->
    [
        binary,
        {ip, {127, 0, 0, 1}},
        {active, false},
        {packet, raw},
        {nodelay, true},
        {reuseaddr, true},
        {backlog, ?BACKLOG},
        {buffer, buffer(Work)}
        %% The count is sent after the end of the stream.
        | [{exit_on_close, false} || Work =:= sink]
    ].

buffer(echo) -> ?SMALL_BUFFER;
buffer(_Bulk) -> ?BULK_BUFFER.


%% ---------------------------------------------------------------- gen_tcp and weir_socket

accept(Module, Listener, Work, Mode) ->
    case Module:accept(Listener, ?ACCEPT_TIMEOUT) of
        {ok, Socket} ->
            _ = spawn(fun() -> accept(Module, Listener, Work, Mode) end),
            serve(Module, Socket, Work, Mode);
        {error, Reason} when Reason =:= closed; Reason =:= einval; Reason =:= {invalid, select_sent} ->
            %% gen_tcp on socket in OTP 27 says so, seldom, of a listening socket that is open: the process that accepts
            %% for it has crashed (`case_clause' of `select_sent'); OTP 29 gives that as the error. The connection waits
            %% for the next to accept.
            case inet:sockname(Listener) of
                {ok, _} -> accept(Module, Listener, Work, Mode);
                {error, _} -> ok
            end
    end.

serve(Module, Socket, source, _Mode) ->
    source(fun(Data) -> Module:send(Socket, Data) end, pattern(), 0);
serve(Module, Socket, sink, passive) ->
    sink(Module, Socket, pattern(), 0);
serve(Module, Socket, sink, Mode) ->
    ok = activate(Module, Socket, Mode),
    active_sink(Module, Socket, Mode, pattern(), 0);
serve(Module, Socket, _Echo, passive) ->
    echo(Module, Socket);
serve(Module, Socket, _Echo, Mode) ->
    ok = activate(Module, Socket, Mode),
    active_echo(Module, Socket, Mode).

activate(gen_tcp, Socket, Mode) -> inet:setopts(Socket, [{active, active(Mode)}]);
activate(Module, Socket, Mode) -> Module:setopts(Socket, [{active, active(Mode)}]).

active(n) -> ?ACTIVE_N;
active(Mode) -> Mode.

echo(Module, Socket) ->
    case Module:recv(Socket, 0) of
        {ok, Data} ->
            ok = Module:send(Socket, Data),
            echo(Module, Socket);
        {error, closed} ->
            Module:close(Socket)
    end.

active_echo(Module, Socket, Mode) ->
    receive
        {tcp, Socket, Data} when Mode =:= once ->
            ok = Module:send(Socket, Data),
            ok = activate(Module, Socket, once),
            active_echo(Module, Socket, Mode);
        {tcp, Socket, Data} ->
            ok = Module:send(Socket, Data),
            active_echo(Module, Socket, Mode);
        {tcp_passive, Socket} ->
            ok = activate(Module, Socket, Mode),
            active_echo(Module, Socket, Mode);
        {tcp_closed, Socket} ->
            Module:close(Socket)
    end.

sink(Module, Socket, Pattern, Count) ->
    case Module:recv(Socket, 0) of
        {ok, Data} ->
            sink(Module, Socket, Pattern, checked(Data, Pattern, Count));
        {error, closed} ->
            ok = Module:send(Socket, <<Count:64>>),
            Module:close(Socket)
    end.

active_sink(Module, Socket, Mode, Pattern, Count) ->
    receive
        {tcp, Socket, Data} ->
            ok = again(Module, Socket, Mode),
            active_sink(Module, Socket, Mode, Pattern, checked(Data, Pattern, Count));
        {tcp_passive, Socket} ->
            ok = activate(Module, Socket, Mode),
            active_sink(Module, Socket, Mode, Pattern, Count);
        {tcp_closed, Socket} ->
            ok = Module:send(Socket, <<Count:64>>),
            Module:close(Socket)
    end.

again(Module, Socket, once) -> activate(Module, Socket, once);
again(_Module, _Socket, _Mode) -> ok.

%% ---------------------------------------------------------------- socket

%% socket:accept in OTP 27 crashes so, seldom; the connection waits for the next to accept.
accept_socket(Listener, Work) ->
    try socket:accept(Listener) of
        {ok, Socket} ->
            _ = spawn(fun() -> accept_socket(Listener, Work) end),
            serve_socket(Socket, Work);
        {error, closed} ->
            ok
    catch
        error:{case_clause, select_sent} -> accept_socket(Listener, Work)
    end.

serve_socket(Socket, Work) ->
    ok = socket:setopt(Socket, {tcp, nodelay}, true),
    ok = socket:setopt(Socket, {otp, rcvbuf}, buffer(Work)),
    case Work of
        source -> source(fun(Data) -> socket:send(Socket, Data) end, pattern(), 0);
        sink -> sink_socket(Socket, pattern(), 0);
        _Echo -> echo_socket(Socket)
    end.

%% Waiting for the message oneself is quicker than socket:recv/2, which does the same with more around it.
recv_socket(Socket) ->
    case socket:recv(Socket, 0, nowait) of
        {select, {select_info, _Tag, Handle}} ->
            receive
                {'$socket', Socket, select, Handle} -> recv_socket(Socket)
            end;
        Result ->
            Result
    end.

echo_socket(Socket) ->
    case recv_socket(Socket) of
        {ok, Data} ->
            ok = socket:send(Socket, Data),
            echo_socket(Socket);
        {error, closed} ->
            socket:close(Socket)
    end.

sink_socket(Socket, Pattern, Count) ->
    case recv_socket(Socket) of
        {ok, Data} ->
            sink_socket(Socket, Pattern, checked(Data, Pattern, Count));
        {error, closed} ->
            ok = socket:send(Socket, <<Count:64>>),
            socket:close(Socket)
    end.

%% ---------------------------------------------------------------- the pattern

source(Send, Pattern, Count) ->
    case Send(binary_part(Pattern, Count rem ?PERIOD, ?BLOCK)) of
        ok -> source(Send, Pattern, Count + ?BLOCK);
        {error, _} -> ok;
        %% What socket:send/2 says when it was closed in the middle.
        {error, _, _} -> ok
    end.

%% A comparison of bytes in one go: what checks should cost little beside what is measured.
checked(Data, Pattern, Count) when byte_size(Data) =< ?READ_SIZE ->
    Size = byte_size(Data),
    Data = binary_part(Pattern, Count rem ?PERIOD, Size),
    Count + Size;
checked(<<Data:?READ_SIZE/binary, Rest/binary>>, Pattern, Count) ->
    checked(Rest, Pattern, checked(Data, Pattern, Count)).

%% Long enough for the longest part at any place. Kept, as each connection's process needs it.
pattern() ->
    case persistent_term:get(?MODULE, none) of
        none ->
            Pattern = make_pattern(),
            persistent_term:put(?MODULE, Pattern),
            Pattern;
        Pattern ->
            Pattern
    end.

make_pattern() ->
    Once = period(?PERIOD, 1, []),
    Times = ?READ_SIZE div ?PERIOD + 2,
    binary_part(binary:copy(Once, Times), 0, ?PERIOD + ?READ_SIZE).

period(0, _X, Bytes) ->
    list_to_binary(lists:reverse(Bytes));
period(N, X, Bytes) ->
    Next = (X * 1_103_515_245 + 12_345) band 16#7FFFFFFF,
    period(N - 1, Next, [(Next bsr 16) band 16#FF | Bytes]).
