%% The echo server and the echo client of examples/, run as a user runs them, each on weir_socket and on gen_tcp.
-module(weir_socket_examples_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [wait_ms/0]).
-import(weir_socket_test_lib, [source_dir/0, unused_port/0]).

all() -> weir_kit:cases(?MODULE).

%% ---------------------------------------------------------------- cases

echo(_Config) ->
    Servers = [server(Tcp) || Tcp <- ["weir_socket", "gen_tcp"]],
    Clients = [
        {Tcp, open("echo_client", [Tcp, Port, "5", "200" | Bytes])}
     || {_, Port} <- Servers,
        Tcp <- ["weir_socket", "gen_tcp"],
        Bytes <- [[], ["20000"]]
    ],
    [
        begin
            {0, Output} = await_end(Client, <<>>),
            ?assertMatch({match, _}, re:run(Output, ["^", Tcp, ": 1000 messages of "]))
        end
     || {Tcp, Client} <- Clients
    ],
    [ok = stop(Server) || {Server, _} <- Servers],
    ok.

client_without_server(_Config) ->
    {Bound, Port} = unused_port(),
    {1, Output} = run("echo_client", ["weir_socket", integer_to_list(Port), "1", "1"]),
    ?assertMatch({match, _}, re:run(Output, "econnrefused")),
    socket:close(Bound).

usage(_Config) ->
    Programs = [
        {open(Name, Args), {Name, Args}}
     || {Name, Args} <- [
            {"echo_server", ["no_tcp"]}, {"echo_server", ["gen_tcp", "0", "more"]}, {"echo_client", []},
            {"echo_client", ["no_tcp", "1"]}
        ]
    ],
    [
        ?assertMatch({{2, <<"usage: ", _/binary>>}, _}, {await_end(Program, <<>>), What})
     || {Program, What} <- Programs
    ],
    ok.

%% ---------------------------------------------------------------- programs

server(Tcp) ->
    Server = open("echo_server", [Tcp, "0"]),
    {Server, await_port(Server, <<>>)}.

await_port(Server, Output) ->
    case re:run(Output, "listens on port ([0-9]+)\n", [{capture, [1], list}]) of
        {match, [Port]} ->
            Port;
        nomatch ->
            receive
                {Server, {data, Data}} -> await_port(Server, <<Output/binary, Data/binary>>);
                {Server, {exit_status, Status}} -> error({Status, Output})
            after wait_ms() -> error({no_port, Output})
            end
    end.

%% It runs until it is told to end.
stop(Server) ->
    {os_pid, Pid} = erlang:port_info(Server, os_pid),
    [] = os:cmd("kill " ++ integer_to_list(Pid)),
    {_, _} = await_end(Server, <<>>),
    ok.

run(Name, Args) -> await_end(open(Name, Args), <<>>).

await_end(Port, Output) ->
    receive
        {Port, {data, Data}} -> await_end(Port, <<Output/binary, Data/binary>>);
        {Port, {exit_status, Status}} -> {Status, Output}
    after wait_ms() -> error({still_runs, Output})
    end.

%% The scripts take weir_socket from the code path if it is there: the one under test.
open(Name, Args) ->
    Lib = filename:dirname(code:lib_dir(weir_socket)),
    open_port({spawn_executable, filename:join([source_dir(), "../../examples", Name])}, [
        {args, Args}, {env, [{"ERL_LIBS", Lib}]}, binary, exit_status, stderr_to_stdout
    ]).
