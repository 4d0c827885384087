%% @doc A server of {@link weir_kit_socket_server} in a fresh node, which is a process of the operating system: so the
%% processor time and the memory of the process are the server's.
%%
%% The node is started with the runtime's default flags, and is not distributed; it ends when the process that started
%% it does.
-module(weir_kit_socket_node).

-export([start/3, stop/1, with/4, memory/1, cpu_ms/1]).

-export_type([server/0]).

%% Descriptors that a server may have. What is allowed if that is less: the runs with few connections need no more.
-define(DESCRIPTORS, "16384").
%% A node takes its time to start, on a busy machine.
-define(START_TIMEOUT, 300_000).
-define(CALL_TIMEOUT, 60_000).

%% What the kernel counts processor time in, for programs, on every machine.
-define(TICKS_A_SECOND, 100).
%% In /proc/PID/stat, counted from behind the name of the program, which may have spaces.
-define(USER_TICKS, 12).
-define(KERNEL_TICKS, 13).

-type server() :: #{
    %% Where on 127.0.0.1 it listens.
    port := inet:port_number(),
    %% Of its process.
    os_pid := non_neg_integer(),
    %% `none' for a server that is no node (the benchmarks have one in C).
    peer := pid() | none
}.

%% @doc Starts a node, linked to the caller, with a server. Fails if it cannot be started. Takes about a second.
-spec start(weir_kit_socket_server:backend(), weir_kit_socket_server:work(), weir_kit_socket_server:mode()) -> server().
start(Backend, Work, Mode) ->
    Peer = start_peer(),
    Port = peer:call(Peer, weir_kit_socket_server, start, [Backend, Work, Mode], ?CALL_TIMEOUT),
    OsPid = list_to_integer(peer:call(Peer, os, getpid, [], ?CALL_TIMEOUT)),
    #{port => Port, os_pid => OsPid, peer => Peer}.

%% @doc Ends the node.
-spec stop(server()) -> ok.
stop(#{peer := Peer}) -> peer:stop(Peer).

%% @doc Runs the function with a server, which is stopped afterwards.
-spec with(Backend, Work, Mode, fun((server()) -> Result)) -> Result when
    Backend :: weir_kit_socket_server:backend(),
    Work :: weir_kit_socket_server:work(),
    Mode :: weir_kit_socket_server:mode().
with(Backend, Work, Mode, Fun) ->
    Server = start(Backend, Work, Mode),
    try
        Fun(Server)
    after
        stop(Server)
    end.

%% @doc The processor time of the process since it was started, of all its threads, in user and kernel mode, in
%% milliseconds: as Linux tells it, in steps of 10, and elsewhere ps. What a node's schedulers spin while they wait for
%% work is part of it.
-spec cpu_ms(server()) -> non_neg_integer().
cpu_ms(#{os_pid := OsPid}) ->
    case file:read_file(lists:concat(["/proc/", OsPid, "/stat"])) of
        {ok, Stat} -> ticks_ms(Stat);
        {error, _} -> time_ms(string:trim(os:cmd(lists:concat(["ps -o time= -p ", OsPid]))))
    end.

ticks_ms(Stat) ->
    [_PidAndName, Rest] = string:split(Stat, ") ", trailing),
    Fields = string:lexemes(Rest, " "),
    Ticks = lists:sum([binary_to_integer(lists:nth(N, Fields)) || N <- [?USER_TICKS, ?KERNEL_TICKS]]),
    Ticks * 1_000 div ?TICKS_A_SECOND.

%% Of days, hours, minutes and seconds the last are there: `1-02:03:04', `3:04.56'.
time_ms(Time) ->
    Units = [1_000, 60_000, 3_600_000, 86_400_000],
    Numbers = [element(1, string:to_float(Number ++ ".0")) || Number <- lists:reverse(string:lexemes(Time, "-:"))],
    round(lists:sum([Number * Unit || {Number, Unit} <- lists:zip(Numbers, lists:sublist(Units, length(Numbers)))])).

%% @doc Bytes that are resident, and bytes that the runtime has allocated (`erlang:memory(total)'; 0 for C).
-spec memory(server()) -> {Resident :: non_neg_integer(), Allocated :: non_neg_integer()}.
memory(#{os_pid := OsPid, peer := Peer}) ->
    {ok, Status} = file:read_file(lists:concat(["/proc/", OsPid, "/status"])),
    {match, [Resident]} = re:run(Status, "VmRSS:\\s*(\\d+) kB", [{capture, all_but_first, binary}]),
    {binary_to_integer(Resident) * 1_024, allocated(Peer)}.

allocated(none) -> 0;
allocated(Peer) -> peer:call(Peer, erlang, memory, [total], ?CALL_TIMEOUT).

%% The shell gives way to erl, whose launcher gives way to the emulator.
start_peer() ->
    Script = "ulimit -n " ?DESCRIPTORS " 2>/dev/null || ulimit -n \"$(ulimit -H -n)\"; exec \"$0\" \"$@\"",
    Result = peer:start_link(#{
        connection => standard_io,
        exec => {"/bin/sh", ["-c", Script, erl()]},
        args => ["-pa" | paths()],
        wait_boot => ?START_TIMEOUT
    }),
    case Result of
        {ok, Peer} -> Peer;
        {ok, Peer, _Node} -> Peer
    end.

erl() -> filename:join([code:root_dir(), "bin", "erl"]).

paths() ->
    [filename:absname(filename:dirname(code:which(Module))) || Module <- [weir_kit_socket_server, weir_socket]].
