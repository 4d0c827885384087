%% @doc The memcached that the demo runs on: one of our own on a free loopback port, or the one that the environment
%% variable `MEMCACHED=host:port' names, which can be neither killed nor restarted.
%%
%% Our own runs under a small shell script, whose standard input is a pipe held by this process's port. When a line
%% arrives there, or the pipe closes, the script kills memcached with SIGKILL. So it never outlives us, even if the
%% whole VM is killed, and a kill that is asked for takes the same path.
%%
%% The port is taken from below the range that the kernel gives to outgoing connections. Within that range, a client
%% that keeps trying to connect to a port where nobody listens is one day given that very port as its own, is connected
%% to itself, and keeps the restarted server from its address.
-module(weir_demo_memcached).

-behaviour(gen_server).

-export([start/0, stop/1, kill/1, restart/1, is_ours/1, address/1, version/1, probe/1, explain/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([server/0, address/0, reason/0]).

-define(VARIABLE, "MEMCACHED").

%% Enough for everything that a run stores at once, several times over, so that nothing is evicted.
-define(MEGABYTES, "512").
-define(CONNECTIONS, "1024").

%% Ports to choose from, below every usual net.ipv4.ip_local_port_range.
-define(FIRST_PORT, 20_000).
-define(LAST_PORT, 31_999).

%% How often another port is tried when the chosen one was taken in between.
-define(ATTEMPTS, 5).

-define(READY_TIMEOUT, 10_000).
-define(EXIT_TIMEOUT, 5_000).
-define(PROBE_TIMEOUT, 1_000).
-define(RETRY_MS, 2).
-define(CALL_TIMEOUT, 30_000).

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

-record(own, {keeper :: pid(), address :: address()}).
-record(external, {address :: address()}).

-record(state, {
    program :: file:filename(),
    address :: address(),
    port :: port() | undefined
}).

-opaque server() :: #own{} | #external{}.

-type address() :: {inet:ip_address() | inet:hostname(), inet:port_number()}.

-type reason() ::
    %% No program of that name is installed.
    no_memcached
    %% It ended at once, with this status and these words.
    | {exited, Status :: non_neg_integer(), Output :: binary()}
    %% It runs but did not answer in time.
    | {no_answer, address(), term()}
    %% The environment variable's value is not host:port.
    | {bad_address, string()}.

%% @doc Starts our own, linked to the caller, or connects to the one in the environment; either has answered when this
%% returns.
-spec start() -> {ok, server()} | {error, reason()}.
start() ->
    case os:getenv(?VARIABLE, "") of
        "" -> start_own();
        Text -> start_external(Text)
    end.

start_external(Text) ->
    maybe_address(string:split(string:trim(Text), ":", trailing), Text).

maybe_address([Host, Digits], Text) when Host =/= "" ->
    case string:to_integer(Digits) of
        {Port, ""} when Port > 0, Port < 65536 -> connect_external({host(Host), Port});
        _ -> {error, {bad_address, Text}}
    end;
maybe_address(_, Text) ->
    {error, {bad_address, Text}}.

host(Host) ->
    Bare = string:trim(Host, both, "[]"),
    case inet:parse_address(Bare) of
        {ok, Address} -> Address;
        {error, einval} -> Bare
    end.

connect_external(Address) ->
    case ask_version(Address) of
        {ok, _} -> {ok, #external{address = Address}};
        {error, Reason} -> {error, {no_answer, Address, Reason}}
    end.

start_own() ->
    case find_program() of
        false -> {error, no_memcached};
        Program -> start_own(Program, ?ATTEMPTS)
    end.

start_own(Program, Attempts) ->
    Address = {{127, 0, 0, 1}, free_port()},
    {ok, Keeper} = gen_server:start_link(?MODULE, {Program, Address}, []),
    case gen_server:call(Keeper, run, ?CALL_TIMEOUT) of
        ok ->
            {ok, #own{keeper = Keeper, address = Address}};
        {error, Reason} ->
            ok = gen_server:stop(Keeper),
            case Reason of
                {exited, _, _} when Attempts > 1 -> start_own(Program, Attempts - 1);
                _ -> {error, Reason}
            end
    end.

find_program() ->
    case os:find_executable("memcached") of
        false -> os:find_executable("memcached", "/usr/bin:/usr/local/bin:/usr/sbin:/opt/homebrew/bin");
        Program -> Program
    end.

free_port() ->
    Port = ?FIRST_PORT + rand:uniform(?LAST_PORT - ?FIRST_PORT + 1) - 1,
    case gen_tcp:listen(Port, [{ip, {127, 0, 0, 1}}, {reuseaddr, true}]) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            Port;
        {error, _} ->
            free_port()
    end.

%% @doc Kills our own and waits until it is gone. One that is not ours is left alone.
-spec stop(server()) -> ok.
stop(#external{}) ->
    ok;
stop(#own{keeper = Keeper}) ->
    ok = gen_server:call(Keeper, kill, ?CALL_TIMEOUT),
    gen_server:stop(Keeper).

%% @doc Kills our own with SIGKILL; it is gone when this returns. Only for a server that {@link is_ours/1}.
-spec kill(server()) -> ok.
kill(#own{keeper = Keeper}) ->
    gen_server:call(Keeper, kill, ?CALL_TIMEOUT).

%% @doc Starts our own again on the same address, after {@link kill/1}; it has answered when this returns.
-spec restart(server()) -> ok | {error, reason()}.
restart(#own{keeper = Keeper}) ->
    gen_server:call(Keeper, run, ?CALL_TIMEOUT).

%% @doc Whether the server is ours to kill.
-spec is_ours(server()) -> boolean().
is_ours(#own{}) -> true;
is_ours(#external{}) -> false.

%% @doc Where it listens.
-spec address(server()) -> address().
address(#own{address = Address}) -> Address;
address(#external{address = Address}) -> Address.

%% @doc The version that it names.
-spec version(server()) -> string().
version(Server) ->
    case ask_version(address(Server)) of
        {ok, Version} -> Version;
        {error, _} -> "unknown"
    end.

%% @doc Whether it answers now, on a new connection.
-spec probe(server()) -> ok | {error, term()}.
probe(Server) ->
    case ask_version(address(Server)) of
        {ok, _} -> ok;
        {error, Reason} -> {error, Reason}
    end.

%% @doc Why it could not be started, in words for a person.
-spec explain(reason()) -> iodata().
explain(no_memcached) ->
    "memcached is not installed. Install it (on Debian: apt-get install memcached, or make, which does it as root),\n"
    "or point to a running one with " ?VARIABLE "=host:port.";
explain({exited, Status, Output}) ->
    io_lib:format("memcached ended at once with status ~b. It said: ~ts", [Status, Output]);
explain({no_answer, {Host, Port}, Reason}) ->
    io_lib:format("memcached at ~s:~b does not answer: ~tp", [host_text(Host), Port, Reason]);
explain({bad_address, Text}) ->
    io_lib:format(?VARIABLE "=~ts is not host:port.", [Text]).

host_text(Host) when is_tuple(Host) -> inet:ntoa(Host);
host_text(Host) -> Host.

%% @private
-spec init({file:filename(), address()}) -> {ok, #state{}}.
init({Program, Address}) ->
    {ok, #state{program = Program, address = Address, port = undefined}}.

%% @private
-spec handle_call(run | kill, gen_server:from(), #state{}) -> {reply, ok | {error, reason()}, #state{}}.
handle_call(run, _From, #state{port = undefined, program = Program, address = Address} = State) ->
    Port = open(Program, Address),
    Deadline = erlang:monotonic_time(millisecond) + ?READY_TIMEOUT,
    case await_ready(Port, Address, Deadline, <<>>) of
        ok -> {reply, ok, State#state{port = Port}};
        {error, _} = Error -> {reply, Error, State}
    end;
handle_call(kill, _From, #state{port = undefined} = State) ->
    {reply, ok, State};
handle_call(kill, _From, #state{port = Port} = State) ->
    true = port_command(Port, "kill\n"),
    ok = await_exit(Port),
    {reply, ok, State#state{port = undefined}}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Request, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({Port, {exit_status, Status}}, #state{port = Port} = State) ->
    {stop, {memcached_exited, Status}, State#state{port = undefined}};
handle_info(_Message, State) ->
    {noreply, State}.

open(Program, {Host, Number}) ->
    Arguments =
        ["-l", inet:ntoa(Host), "-p", integer_to_list(Number), "-U", "0", "-m", ?MEGABYTES, "-c", ?CONNECTIONS] ++
            user_arguments(),
    open_port({spawn_executable, "/bin/sh"}, [
        {args, ["-c", ?SCRIPT, "sh", Program | Arguments]}, binary, exit_status, stderr_to_stdout, hide
    ]).

%% As root it refuses to run until it is told as whom.
user_arguments() ->
    case string:trim(os:cmd("id -u")) of
        "0" -> ["-u", "nobody"];
        _ -> []
    end.

await_ready(Port, Address, Deadline, Output) ->
    receive
        {Port, {data, Data}} ->
            await_ready(Port, Address, Deadline, <<Output/binary, Data/binary>>);
        {Port, {exit_status, Status}} ->
            {error, {exited, Status, string:trim(Output)}}
    after ?RETRY_MS ->
        case ask_version(Address) of
            {ok, _} ->
                ok;
            {error, Reason} ->
                case erlang:monotonic_time(millisecond) > Deadline of
                    true ->
                        true = port_close(Port),
                        {error, {no_answer, Address, Reason}};
                    false ->
                        await_ready(Port, Address, Deadline, Output)
                end
        end
    end.

await_exit(Port) ->
    receive
        {Port, {exit_status, _}} -> ok
    after ?EXIT_TIMEOUT -> exit(memcached_does_not_exit)
    end.

ask_version({Host, Port}) ->
    Family = [inet6 || tuple_size_or_zero(Host) =:= 8],
    case gen_tcp:connect(Host, Port, [binary, {active, false}, {packet, line} | Family], ?PROBE_TIMEOUT) of
        {ok, Socket} ->
            try
                maybe_version(gen_tcp:send(Socket, <<"version\r\n">>), Socket)
            after
                gen_tcp:close(Socket)
            end;
        {error, Reason} ->
            {error, Reason}
    end.

maybe_version(ok, Socket) ->
    case gen_tcp:recv(Socket, 0, ?PROBE_TIMEOUT) of
        {ok, <<"VERSION ", Version/binary>>} -> {ok, binary_to_list(string:trim(Version))};
        {ok, Other} -> {error, {unexpected, Other}};
        {error, Reason} -> {error, Reason}
    end;
maybe_version({error, Reason}, _Socket) ->
    {error, Reason}.

tuple_size_or_zero(Host) when is_tuple(Host) -> tuple_size(Host);
tuple_size_or_zero(_) -> 0.
