%% @doc A server of the socket benchmarks in a process of the operating system of its own: a fresh node, or the server
%% in C. So the processor time and the memory of the process are the server's.
%%
%% The node is started with the runtime's default flags, and is not distributed; it ends when the process that started
%% it does.
-module(weir_bench_socket_node).

-export([with/4, memory/1]).

-export_type([kind/0, server/0]).

%% Descriptors that a server may have. What is allowed if that is less: the runs with few connections need no more.
-define(DESCRIPTORS, "16384").
-define(START_TIMEOUT, 60_000).
-define(CALL_TIMEOUT, 60_000).

-type kind() :: c | weir_bench_socket_server:backend().

-type server() :: #{
    port := inet:port_number(),
    %% Of its process.
    os_pid := non_neg_integer(),
    peer := pid() | none
}.

%% @doc Runs the function with a server, which is stopped afterwards.
-spec with(kind(), weir_bench_socket_server:work(), weir_bench_socket_server:mode(), fun((server()) -> Result)) ->
    Result.
with(c, Work, _Mode, Fun) ->
    #{port := Port, os_pid := OsPid} = Server = weir_bench_socket_load:start_server(c_kind(Work)),
    try
        Fun(#{port => Port, os_pid => OsPid, peer => none})
    after
        weir_bench_socket_load:stop_server(Server)
    end;
with(Backend, Work, Mode, Fun) ->
    Peer = start_peer(),
    try
        Port = peer:call(Peer, weir_bench_socket_server, start, [Backend, Work, Mode], ?CALL_TIMEOUT),
        OsPid = list_to_integer(peer:call(Peer, os, getpid, [])),
        Fun(#{port => Port, os_pid => OsPid, peer => Peer})
    after
        peer:stop(Peer)
    end.

c_kind(bulk_echo) -> echo;
c_kind(Work) -> Work.

%% @doc Bytes that are resident, and bytes that the runtime has allocated (`erlang:memory(total)'; 0 for C).
-spec memory(server()) -> {Resident :: non_neg_integer(), Allocated :: non_neg_integer()}.
memory(#{os_pid := OsPid, peer := Peer}) ->
    {ok, Status} = file:read_file(lists:concat(["/proc/", OsPid, "/status"])),
    {match, [Resident]} = re:run(Status, "VmRSS:\\s*(\\d+) kB", [{capture, all_but_first, binary}]),
    {binary_to_integer(Resident) * 1_024, allocated(Peer)}.

allocated(none) -> 0;
allocated(Peer) -> peer:call(Peer, erlang, memory, [total]).

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
    [filename:absname(filename:dirname(code:which(Module))) || Module <- [weir_bench_socket_server, weir_socket]].
