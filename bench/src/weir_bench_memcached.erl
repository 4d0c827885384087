%% @doc A memcached for the benchmarks: started on a free loopback port, killed with the process that started it.
%%
%% It runs under a small shell script that kills it when the script's standard input, a pipe held by our port, closes.
%% So it does not outlive us, even if the whole VM is killed. The port number is below the range of outgoing
%% connections.
-module(weir_bench_memcached).

-export([start/0, stop/1, address/1, version/0, arguments/0]).

-export_type([server/0]).

-define(FIRST_PORT, 20_000).
-define(LAST_PORT, 31_999).
-define(READY_TIMEOUT, 10_000).
-define(RETRY_MS, 5).

-define(SCRIPT,
    "exec 3<&0\n"
    "\"$@\" </dev/null >/dev/null 2>&1 3<&- &\n"
    "read -r _ <&3\n"
    "kill -9 $!\n"
).

-record(server, {port :: port(), number :: inet:port_number()}).

-opaque server() :: #server{}.

%% @doc Starts it, owned by the caller; it accepts connections when this returns. Fails if memcached is not installed.
-spec start() -> server().
start() ->
    Number = free_port(),
    Command = [program(), "-l", "127.0.0.1", "-p", integer_to_list(Number) | arguments()],
    Port = open_port({spawn_executable, "/bin/sh"}, [{args, ["-c", ?SCRIPT, "sh" | Command]}, binary, hide]),
    ok = await_ready(Number, erlang:monotonic_time(millisecond) + ?READY_TIMEOUT),
    #server{port = Port, number = Number}.

%% @doc Kills it.
-spec stop(server()) -> ok.
stop(#server{port = Port}) ->
    true = port_close(Port),
    ok.

%% @doc Where it listens.
-spec address(server()) -> {inet:ip4_address(), inet:port_number()}.
address(#server{number = Number}) ->
    {{127, 0, 0, 1}, Number}.

%% @doc What the program says of its version, or that it is missing.
-spec version() -> string().
version() ->
    case os:find_executable("memcached") of
        false -> "memcached: not installed";
        Program -> string:trim(os:cmd(Program ++ " -V"))
    end.

%% @doc The options with which it runs, without its address.
-spec arguments() -> [string()].
arguments() ->
    ["-U", "0", "-m", "512"] ++ [Argument || string:trim(os:cmd("id -u")) =:= "0", Argument <- ["-u", "nobody"]].

program() ->
    case os:find_executable("memcached") of
        false -> error(memcached_not_installed);
        Program -> Program
    end.

free_port() ->
    Number = ?FIRST_PORT + rand:uniform(?LAST_PORT - ?FIRST_PORT + 1) - 1,
    case gen_tcp:listen(Number, [{ip, {127, 0, 0, 1}}, {reuseaddr, true}]) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            Number;
        {error, _} ->
            free_port()
    end.

await_ready(Number, Deadline) ->
    case gen_tcp:connect({127, 0, 0, 1}, Number, [{active, false}], 1_000) of
        {ok, Socket} ->
            gen_tcp:close(Socket);
        {error, Reason} ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({memcached_not_ready, Reason}),
            receive
            after ?RETRY_MS -> ok
            end,
            await_ready(Number, Deadline)
    end.
