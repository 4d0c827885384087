%% @doc The load generators and the server in C of the benchmarks of sockets and of memcached servers (bench/c_src), run
%% as programs of the operating system.
%%
%% Both end when their standard input, a pipe held by our port, is closed, or after their time: none outlives the node.
-module(weir_bench_socket_load).

-export([run/1, run/2, hold/1, hold/2, alive/1, release/1, with/4, start_server/1, stop_server/1, compiler/0]).

-export_type([program/0, option/0, outcome/0, held/0, server/0, kind/0]).

-define(OPEN_TIMEOUT, 60_000).
%% Besides the time that it is told to run: opening connections, and its own patience with a server that is silent.
-define(EXTRA_TIMEOUT, 60_000).

-type program() :: weir_load | weir_memcached_load.

-type option() :: {atom(), atom() | non_neg_integer()}.
%% An option of the program; its source says which there are.

-type outcome() :: #{Key :: atom() => non_neg_integer()}.
%% us, requests, cpu_us, own_cpu_us, and of weir_load conns, size, bytes, p50_ns, p99_ns, max_ns: see its source.

-opaque held() :: port().
%% A load generator that holds idle connections.

-type server() :: #{port := inet:port_number(), os_pid := non_neg_integer(), program := port()}.

-type kind() :: c | weir_kit_socket_server:backend().
%% A server to be measured: the one in C, or one in a node of its own.

%% @doc Runs weir_load.
-spec run([option()]) -> outcome().
run(Options) -> run(weir_load, Options).

%% @doc Runs a generator and gives what it measured. Fails if an answer was wrong, or nothing was answered.
-spec run(program(), [option()]) -> outcome().
run(Program, Options) ->
    Port = open(Program, Options),
    Line = line(Port, proplists:get_value(ms, Options, 0) + ?EXTRA_TIMEOUT),
    ok = close(Port),
    case string:lexemes(Line, " ") of
        ["ok" | Pairs] ->
            Outcome = maps:from_list([pair(Pair) || Pair <- Pairs]),
            %% weir_load counts no requests where data goes one way only.
            maps:get(bytes, Outcome, maps:get(requests, Outcome)) > 0 orelse
                error({wrong_result, nothing_transferred, Options}),
            Outcome;
        _ ->
            error({wrong_result, Line, Options})
    end.

%% @doc Holds connections of weir_load.
-spec hold([option()]) -> held().
hold(Options) -> hold(weir_load, Options).

%% @doc Opens idle connections (option `conns'), each of which has made a request when this returns. They are closed by
%% {@link release/1}, or when the caller ends.
-spec hold(program(), [option()]) -> held().
hold(Program, Options) ->
    Port = open(Program, [{kind, idle} | Options]),
    ok = expect(Port, lists:concat(["idle conns=", proplists:get_value(conns, Options)])),
    Port.

%% @doc Makes a request on each of them again, and gives their number. Fails if an answer was wrong.
-spec alive(held()) -> pos_integer().
alive(Port) ->
    true = port_command(Port, "\n"),
    case line(Port, ?OPEN_TIMEOUT) of
        "alive conns=" ++ Number -> list_to_integer(Number);
        Line -> error({wrong_result, Line})
    end.

%% @doc Closes them.
-spec release(held()) -> ok.
release(Port) -> close(Port).

%% @doc Runs the function with a server, which is stopped afterwards. That in C has one mode.
-spec with(kind(), weir_kit_socket_server:work(), weir_kit_socket_server:mode(), Fun) -> Result when
    Fun :: fun((weir_kit_socket_node:server()) -> Result).
with(c, Work, _Mode, Fun) ->
    Server = start_server(c_kind(Work)),
    try
        Fun(maps:put(peer, none, maps:with([port, os_pid], Server)))
    after
        stop_server(Server)
    end;
with(Backend, Work, Mode, Fun) ->
    weir_kit_socket_node:with(Backend, Work, Mode, Fun).

c_kind(bulk_echo) -> echo;
c_kind(Work) -> Work.

%% @doc Starts the server in C, owned by the caller.
-spec start_server(echo | source | sink) -> server().
start_server(Kind) ->
    Program = open(weir_echo, [{kind, Kind}]),
    {os_pid, OsPid} = erlang:port_info(Program, os_pid),
    case line(Program, ?OPEN_TIMEOUT) of
        "port=" ++ Number -> #{port => list_to_integer(Number), os_pid => OsPid, program => Program};
        Line -> error({wrong_result, Line})
    end.

%% @doc Ends it.
-spec stop_server(server()) -> ok.
stop_server(#{program := Program}) -> close(Program).

%% @doc What the compiler says of its version, or that there is none.
-spec compiler() -> string().
compiler() ->
    case os:find_executable("cc") of
        false -> "cc: not installed";
        Program -> hd(string:lexemes(os:cmd(Program ++ " --version"), "\n"))
    end.

open(Name, Options) ->
    Arguments = [lists:concat([Key, "=", Value]) || {Key, Value} <- Options],
    open_port({spawn_executable, program(Name)}, [{args, Arguments}, {line, 1_000}, exit_status, hide]).

%% rebar3 builds the programs beside its folder lib (bench/c_src/Makefile).
program(Name) ->
    Ebin = filename:dirname(code:which(?MODULE)),
    Path = filename:join([Ebin, "..", "..", "..", "bench_c", atom_to_list(Name)]),
    filelib:is_regular(Path) orelse error({not_built, Path}),
    Path.

line(Port, Timeout) ->
    receive
        {Port, {data, {eol, Line}}} -> Line;
        {Port, {exit_status, Status}} -> error({wrong_result, {exit_status, Status}})
    after Timeout -> error({wrong_result, silent})
    end.

expect(Port, Line) ->
    case line(Port, ?OPEN_TIMEOUT) of
        Line -> ok;
        Other -> error({wrong_result, Other})
    end.

%% What it said after that is of no interest. A program that has ended has closed its port, now or a moment ago.
close(Port) ->
    try port_close(Port) of
        true -> flush(Port)
    catch
        error:badarg -> flush(Port)
    end.

flush(Port) ->
    receive
        {Port, _} -> flush(Port)
    after 0 -> ok
    end.

pair(Text) ->
    [Key, Value] = string:split(Text, "="),
    {list_to_atom(Key), list_to_integer(Value)}.
