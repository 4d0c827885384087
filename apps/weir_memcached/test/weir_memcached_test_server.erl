%% A real memcached for tests, on a loopback port, an IPv6 one or a Unix socket.
%%
%% It cannot outlive the run: a shell holds it, reads its standard input, and kills it when that closes, which
%% it does even if the VM is killed. A process of its own owns the shell, so a server started in
%% init_per_suite is still there when the cases run; `stop/1' or the end of the VM ends it.
-module(weir_memcached_test_server).

-export([start/0, start/1, stop/1, kill/1, resume/1, options/1, free_port/0, raw/2]).

-export_type([server/0]).

-type server() :: #{holder := pid(), host := weir_memcached:host(), port := inet:port_number()}.

%% How long a memcached may take to start listening, milliseconds.
-define(START_TIMEOUT, 10000).

-spec start() -> server().
start() ->
    start(#{}).

%% `host': a loopback address or {local, Path}. `arguments': more of memcached's command line.
-spec start(#{host => weir_memcached:host(), arguments => string()}) -> server().
start(Options) ->
    Host = maps:get(host, Options, {127, 0, 0, 1}),
    Port = port_for(Host),
    Command = "exec >/dev/null 2>&1; memcached " ++ user() ++ listen(Host, Port) ++ " " ++
        maps:get(arguments, Options, "") ++ " & read -r _; kill -9 $!; wait",
    Holder = spawn(fun() -> hold(Command, none) end),
    Server = #{holder => Holder, host => Host, port => Port},
    ok = resume(Server),
    Server.

-spec stop(server()) -> ok.
stop(#{holder := Holder} = Server) ->
    kill(Server),
    exit(Holder, kill),
    ok.

%% Kills the memcached; its connections are closed when this returns.
-spec kill(server()) -> ok.
kill(#{holder := Holder}) ->
    ask(Holder, kill).

%% Starts a killed one again, at the same address.
-spec resume(server()) -> ok.
resume(#{holder := Holder} = Server) ->
    ok = ask(Holder, start),
    weir_memcached_test:until(fun() -> is_listening(Server) end, ?START_TIMEOUT).

%% What a client needs to be told.
-spec options(server()) -> weir_memcached:options().
options(#{host := Host, port := Port}) ->
    #{host => Host, port => Port, transport => weir_memcached_test:transport()}.

-spec free_port() -> inet:port_number().
free_port() ->
    free_port({127, 0, 0, 1}).

free_port(Host) ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, Host}]),
    {ok, Port} = inet:port(Listener),
    ok = gen_tcp:close(Listener),
    Port.

%% Says something to a memcached without any client, and returns the first line of what it answers.
-spec raw(server(), iodata()) -> binary().
raw(#{host := Host, port := Port}, Command) ->
    {ok, Socket} = gen_tcp:connect(Host, Port, [binary, {active, false}, {packet, line}]),
    ok = gen_tcp:send(Socket, Command),
    {ok, Line} = gen_tcp:recv(Socket, 0, ?START_TIMEOUT),
    ok = gen_tcp:close(Socket),
    Line.

port_for({local, _}) -> 0;
port_for(Host) -> free_port(Host).

user() ->
    case string:trim(os:cmd("id -u")) of
        "0" -> "-u nobody ";
        _ -> ""
    end.

listen({local, Path}, _) -> "-a 0777 -s " ++ Path;
listen(Host, Port) -> "-U 0 -l " ++ inet:ntoa(Host) ++ " -p " ++ integer_to_list(Port).

is_listening(#{host := Host, port := Port}) ->
    case gen_tcp:connect(Host, Port, [], 1000) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            true;
        {error, _} ->
            false
    end.

%% The holder

ask(Holder, Request) ->
    Monitor = monitor(process, Holder),
    Holder ! {Request, self(), Monitor},
    receive
        {Monitor, Reply} ->
            demonitor(Monitor, [flush]),
            Reply;
        {'DOWN', Monitor, process, _, noproc} ->
            ok
    after ?START_TIMEOUT -> error({no_answer, Request})
    end.

hold(Command, none) ->
    receive
        {start, From, Ref} ->
            Shell = open_port({spawn_executable, "/bin/sh"}, [{args, ["-c", Command]}, exit_status]),
            From ! {Ref, ok},
            hold(Command, Shell);
        {kill, From, Ref} ->
            From ! {Ref, ok},
            hold(Command, none)
    end;
hold(Command, Shell) ->
    receive
        {kill, From, Ref} ->
            port_command(Shell, "end\n"),
            receive
                {Shell, {exit_status, _}} -> From ! {Ref, ok}
            end,
            hold(Command, none)
    end.
