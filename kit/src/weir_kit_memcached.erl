%% @doc A memcached for the demo, the benchmarks and the tests: one of our own on a free loopback port, an IPv6 one or a
%% Unix socket; or one that runs already, which is never killed.
%%
%% Our own is the program memcached; where that is not installed, weir_memcached_server in a node of its own.
%%
%% Our own never outlives this node, even if that is killed: a shell script runs it, whose standard input is a pipe held
%% by our port; when a line arrives there, or the pipe closes, the script kills it with SIGKILL. The port has a process
%% of its own, so it lives until {@link stop/1} or the end of the node, whoever started it.
%%
%% The TCP port is from below the range that the kernel gives to outgoing connections. From within that range, a client
%% that keeps trying to connect to a port where nobody listens is one day given that very port as its own, is connected
%% to itself, and keeps a restarted server from its address.
-module(weir_kit_memcached).

-export([start/0, start/1, open/1, stop/1, kill/1, restart/1, is_ours/1]).
-export([options/1, version/1, os_pid/1, stat/2, probe/1, raw/2, explain/1, program/0, arguments/0, free_port/0]).

-export_type([server/0, options/0, reason/0]).

%% Ports to choose from, below every usual net.ipv4.ip_local_port_range.
-define(FIRST_PORT, 20_000).
-define(LAST_PORT, 31_999).
%% How often another port is tried when the chosen one was taken in between.
-define(ATTEMPTS, 5).

%% There is room for all that a run stores.
-define(ARGUMENTS, ["-m", "512", "-c", "1024"]).

%% Its schedulers sleep as soon as there is nothing to do: others need the cores.
-define(NO_SPINNING, ["+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"]).

%% A node takes its time to start, on a busy machine; one that is busy with others answers late.
-define(READY_TIMEOUT, 120_000).
-define(CALL_TIMEOUT, 300_000).
-define(ANSWER_TIMEOUT, 60_000).
-define(RETRY_MS, 2).

-define(SCRIPT,
    "exec 3<&0\n"
    "\"$@\" </dev/null 3<&- &\n"
    "server=$!\n"
    "( read -r _ <&3; kill -9 \"$server\" ) >/dev/null 2>&1 &\n"
    "watcher=$!\n"
    "exec 3<&-\n"
    "wait \"$server\"\n"
    "status=$?\n"
    "kill \"$watcher\" 2>/dev/null\n"
    "exit \"$status\"\n"
).

-type server() :: #{
    %% The process that runs it; `none' for one that is not ours.
    holder := pid() | none,
    host := inet:ip_address() | inet:hostname() | {local, file:name_all()},
    port := inet:port_number(),
    probe => answer | tcp
}.

-type options() :: #{
    %% A loopback address (127.0.0.1 if none is given) or {local, Path}.
    host => inet:ip_address() | {local, file:name_all()},
    %% More of memcached's command line, with blanks in between.
    arguments => string(),
    %% When it is ready: when it answers (the default), or takes connections, for one that answers not everybody.
    probe => answer | tcp,
    %% `embedded': weir_memcached_server, also where memcached is installed.
    program => installed | embedded
}.

-type reason() ::
    %% It ended at once, with this status and these words.
    {exited, Status :: non_neg_integer(), Output :: binary()}
    %% It did not answer in time.
    | {no_answer, server(), term()}
    | {bad_address, string()}.

%% @doc Starts our own; it answers when this returns. Fails with a {@type reason()} if it cannot be started.
-spec start() -> server().
start() -> start(#{}).

%% @doc The same, with options.
-spec start(options()) -> server().
start(Options) ->
    case start_own(Options) of
        {ok, Server} -> Server;
        {error, Reason} -> error(Reason)
    end.

%% @doc The one at `"host:port"', or our own for `""'; it has answered when this returns.
-spec open(Address :: string()) -> {ok, server()} | {error, reason()}.
open("") -> start_own(#{});
open(Text) -> parsed(string:split(string:trim(Text), ":", trailing), Text).

parsed([Host, Digits], Text) when Host =/= "" ->
    case string:to_integer(Digits) of
        {Port, ""} when Port > 0, Port < 65_536 ->
            answering(#{holder => none, host => host(string:trim(Host, both, "[]")), port => Port});
        _ ->
            {error, {bad_address, Text}}
    end;
parsed(_, Text) ->
    {error, {bad_address, Text}}.

host(Host) ->
    case inet:parse_address(Host) of
        {ok, Address} -> Address;
        {error, einval} -> Host
    end.

answering(Server) ->
    case probe(Server) of
        ok -> {ok, Server};
        {error, Reason} -> {error, {no_answer, Server, Reason}}
    end.

start_own(Options) ->
    Program = program_for(maps:get(program, Options, installed), find_program()),
    start_own(Program, maps:merge(#{host => {127, 0, 0, 1}, arguments => ""}, Options), ?ATTEMPTS).

%% Its command line, as far as it is the same for each address.
program_for(installed, Program) when Program =/= false -> [Program | arguments()];
program_for(_, _) -> embedded() ++ ?ARGUMENTS.

%% The shell command erl becomes the runtime, so what is killed is that.
embedded() ->
    Paths = [filename:dirname(code:which(Module)) || Module <- [weir_memcached_server, weir_socket]],
    [filename:join([code:root_dir(), "bin", "erl"]), "+P", "400000", "+Q", "400000", "+Bd" | ?NO_SPINNING] ++
        ["-noinput", "-pa" | Paths] ++
        ["-eval", "weir_memcached_server_main:main(init:get_plain_arguments()).", "-extra"].

start_own(Program, #{host := Host, arguments := Arguments} = Options, Attempts) ->
    Port = port_for(Host),
    Line = Program ++ listen(Host, Port) ++ string:lexemes(Arguments, " "),
    Server = #{holder => none, host => Host, port => Port, probe => maps:get(probe, Options, answer)},
    Holder = spawn(fun() -> hold(Line, Server, none) end),
    case ask(Holder, start) of
        ok ->
            {ok, Server#{holder := Holder}};
        {error, Reason} ->
            exit(Holder, kill),
            case Reason of
                {exited, _, _} when Attempts > 1, Port > 0 -> start_own(Program, Options, Attempts - 1);
                _ -> {error, Reason}
            end
    end.

find_program() ->
    case os:find_executable("memcached") of
        false -> os:find_executable("memcached", "/usr/bin:/usr/local/bin:/usr/sbin:/opt/homebrew/bin");
        Program -> Program
    end.

port_for({local, _}) -> 0;
port_for(Host) -> free_port(Host).

listen({local, Path}, _) -> ["-a", "0777", "-s", unicode:characters_to_list(Path)];
listen(Host, Port) -> ["-U", "0", "-l", inet:ntoa(Host), "-p", integer_to_list(Port)].

%% @doc The options with which memcached runs, without its address. As root it wants to be told as whom it runs.
-spec arguments() -> [string()].
arguments() ->
    ?ARGUMENTS ++ [Argument || string:trim(os:cmd("id -u")) =:= "0", Argument <- ["-u", "nobody"]].

%% @doc What the program says of its version, or that it is not installed.
-spec program() -> string().
program() ->
    case find_program() of
        false -> "memcached: not installed";
        Program -> string:trim(os:cmd(Program ++ " -V"))
    end.

%% @doc A port of 127.0.0.1 on which nobody listens.
-spec free_port() -> inet:port_number().
free_port() -> free_port({127, 0, 0, 1}).

free_port(Host) ->
    Port = ?FIRST_PORT + rand:uniform(?LAST_PORT - ?FIRST_PORT + 1) - 1,
    case gen_tcp:listen(Port, [{ip, Host}, {reuseaddr, true}]) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            Port;
        {error, _} ->
            free_port(Host)
    end.

%% @doc Kills our own, which is gone when this returns, and ends its process. One that is not ours is left alone.
-spec stop(server()) -> ok.
stop(#{holder := none}) ->
    ok;
stop(#{holder := Holder} = Server) ->
    ok = kill(Server),
    exit(Holder, kill),
    ok.

%% @doc Kills our own with SIGKILL; it is gone when this returns. Only for a server that {@link is_ours/1}.
-spec kill(server()) -> ok.
kill(#{holder := Holder}) when is_pid(Holder) -> ask(Holder, kill).

%% @doc Starts our own again at the same address, after {@link kill/1}; it answers when this returns.
-spec restart(server()) -> ok | {error, reason()}.
restart(#{holder := Holder}) when is_pid(Holder) -> ask(Holder, start).

%% @doc Whether it is ours to kill.
-spec is_ours(server()) -> boolean().
is_ours(#{holder := Holder}) -> is_pid(Holder).

%% @doc The options of a client for it: host and port.
-spec options(server()) -> #{host := weir_memcached:host(), port := inet:port_number()}.
options(Server) -> maps:with([host, port], Server).

%% @doc The version that it names, or `"unknown"'.
-spec version(server()) -> string().
version(Server) ->
    case ask_version(Server) of
        {ok, Version} -> Version;
        {error, _} -> "unknown"
    end.

%% @doc The number of its process, as it tells it.
-spec os_pid(server()) -> pos_integer().
os_pid(Server) -> stat(Server, <<"pid">>).

%% @doc A number of its general statistics, asked without any client. Fails if there is none of this name.
-spec stat(server(), Name :: binary()) -> non_neg_integer().
stat(#{host := Host, port := Port}, Name) ->
    {ok, Socket} = gen_tcp:connect(Host, Port, [binary, {active, false}, {packet, line}], ?ANSWER_TIMEOUT),
    ok = gen_tcp:send(Socket, "stats\r\n"),
    Number = stat_line(Socket, Name),
    ok = gen_tcp:close(Socket),
    Number.

stat_line(Socket, Name) ->
    {ok, <<"STAT ", Line/binary>>} = gen_tcp:recv(Socket, 0, ?ANSWER_TIMEOUT),
    case string:lexemes(string:trim(Line), " ") of
        [Name, Number] -> binary_to_integer(Number);
        _ -> stat_line(Socket, Name)
    end.

%% @doc Whether it answers now, on a new connection.
-spec probe(server()) -> ok | {error, term()}.
probe(#{probe := tcp, host := Host, port := Port}) ->
    case gen_tcp:connect(Host, Port, [], ?ANSWER_TIMEOUT) of
        {ok, Socket} -> gen_tcp:close(Socket);
        {error, Reason} -> {error, Reason}
    end;
probe(Server) ->
    case ask_version(Server) of
        {ok, _} -> ok;
        {error, Reason} -> {error, Reason}
    end.

ask_version(Server) ->
    case line(Server, <<"version\r\n">>) of
        {ok, <<"VERSION ", Version/binary>>} -> {ok, binary_to_list(string:trim(Version))};
        {ok, Other} -> {error, {unexpected, Other}};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Says something on a new connection, without any client, and gives the first line of the answer. Fails if there
%% is none.
-spec raw(server(), iodata()) -> binary().
raw(Server, Command) ->
    {ok, Line} = line(Server, Command),
    Line.

line(#{host := Host, port := Port}, Command) ->
    case gen_tcp:connect(Host, Port, [binary, {active, false}, {packet, line}], ?ANSWER_TIMEOUT) of
        {ok, Socket} ->
            try gen_tcp:send(Socket, Command) of
                ok -> gen_tcp:recv(Socket, 0, ?ANSWER_TIMEOUT);
                {error, Reason} -> {error, Reason}
            after
                gen_tcp:close(Socket)
            end;
        {error, Reason} ->
            {error, Reason}
    end.

%% @doc Why there is none, in words for a person.
-spec explain(reason()) -> iodata().
explain({exited, Status, Output}) -> io_lib:format("memcached ended at once, status ~b: ~ts", [Status, Output]);
explain({no_answer, #{host := Host, port := Port}, Reason}) ->
    io_lib:format("memcached at ~ts:~b does not answer: ~tp", [host_text(Host), Port, Reason]);
explain({bad_address, Text}) -> io_lib:format("~ts is not host:port", [Text]).

host_text(Host) when is_list(Host) -> Host;
host_text({local, Path}) -> Path;
host_text(Host) -> inet:ntoa(Host).

%% ---------------------------------------------------------------- the process that holds the port

ask(Holder, Request) ->
    Monitor = monitor(process, Holder),
    Holder ! {Request, self(), Monitor},
    receive
        {Monitor, Reply} ->
            demonitor(Monitor, [flush]),
            Reply;
        {'DOWN', Monitor, process, _, noproc} ->
            ok
    after ?CALL_TIMEOUT -> error({no_answer, Request})
    end.

hold(Line, Server, none) ->
    receive
        {start, From, Tag} ->
            Shell = open_port({spawn_executable, "/bin/sh"}, [
                {args, ["-c", ?SCRIPT, "sh" | Line]}, binary, exit_status, stderr_to_stdout, hide
            ]),
            Result = await_ready(Shell, Server, erlang:monotonic_time(millisecond) + ?READY_TIMEOUT, <<>>),
            From ! {Tag, Result},
            case Result of
                ok -> hold(Line, Server, Shell);
                {error, _} -> hold(Line, Server, none)
            end;
        {kill, From, Tag} ->
            From ! {Tag, ok},
            hold(Line, Server, none)
    end;
hold(Line, Server, Shell) ->
    receive
        {kill, From, Tag} ->
            true = port_command(Shell, "end\n"),
            receive
                {Shell, {exit_status, _}} -> From ! {Tag, ok}
            end,
            hold(Line, Server, none);
        {start, From, Tag} ->
            From ! {Tag, ok},
            hold(Line, Server, Shell);
        {Shell, {exit_status, _}} ->
            hold(Line, Server, none);
        {Shell, {data, _}} ->
            hold(Line, Server, Shell)
    end.

await_ready(Shell, Server, Deadline, Output) ->
    receive
        {Shell, {data, Data}} ->
            await_ready(Shell, Server, Deadline, <<Output/binary, Data/binary>>);
        {Shell, {exit_status, Status}} ->
            {error, {exited, Status, string:trim(Output)}}
    after ?RETRY_MS ->
        case probe(Server) of
            ok ->
                ok;
            {error, Reason} ->
                case erlang:monotonic_time(millisecond) > Deadline of
                    true ->
                        true = port_close(Shell),
                        {error, {no_answer, Server, Reason}};
                    false ->
                        await_ready(Shell, Server, Deadline, Output)
                end
        end
    end.
