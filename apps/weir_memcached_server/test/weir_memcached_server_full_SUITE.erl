%% A node that can start no process: connections go on, those that come wait, and the server outlives its processes.
-module(weir_memcached_server_full_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).
-import(weir_kit_limits, [in_node/3, full/3]).
-import(weir_memcached_server_test, [start/0, connect/1, ask/2]).

-define(FULL_MS, 1500).

all() -> weir_kit:cases(?MODULE).

%% A connection that is accepted while there is no room for its process is served once there is room.
connections_wait(_Config) -> ok = in_node(?MODULE, wait, []).

wait() ->
    {ok, _} = application:ensure_all_started(weir_memcached_server),
    Server = start(),
    Old = connect(Server),
    <<>> = ask(Old, []),
    Before = children(Server),
    New = full(processes, ?FULL_MS, fun() ->
        Connected = [connect(Server) || _ <- lists:seq(1, 5)],
        <<"STORED\r\n">> = ask(Old, <<"set a 0 0 1\r\nx\r\n">>),
        Connected
    end),
    [?assertEqual(<<"VALUE a 0 1\r\nx\r\nEND\r\n">>, ask(Socket, <<"get a\r\n">>)) || Socket <- [Old | New]],
    ?assertEqual(Before, children(Server)),
    ok.

children(Server) -> lists:sort([{Id, Pid} || {Id, Pid, _, _} <- supervisor:which_children(Server)]).

%% A server starts its processes again while no shared server of the node answers.
servers_hang(_Config) -> ok = in_node(?MODULE, hang, []).

hang() ->
    {ok, _} = application:ensure_all_started(weir_memcached_server),
    Server = start(),
    <<"STORED\r\n">> = ask(connect(Server), <<"set a 0 0 1\r\nx\r\n">>),
    [{_, Acceptor} | _] = children(Server),
    weir_kit_limits:without_servers(fun() ->
        ok = weir_kit:kill(Acceptor),
        until(fun() -> lists:all(fun({_, Child}) -> is_pid(Child) end, children(Server)) end),
        ?assertEqual(<<"VALUE a 0 1\r\nx\r\nEND\r\n">>, ask(connect(Server), <<"get a\r\n">>))
    end).

%% Each process of a server is killed, and none can be started again until there is room. Items stay.
processes_are_killed(_Config) -> ok = in_node(?MODULE, kill_all, []).

kill_all() ->
    {ok, _} = application:ensure_all_started(weir_memcached_server),
    lists:foreach(fun kill/1, [Id || {Id, _} <- children(start())]).

%% In a server of its own: a supervisor gives up after three kills in ten seconds.
kill(Id) ->
    Server = start(),
    <<"STORED\r\n">> = ask(connect(Server), <<"set a 0 0 1\r\nx\r\n">>),
    {Id, Pid} = lists:keyfind(Id, 1, children(Server)),
    full(processes, ?FULL_MS, fun() -> weir_kit_limits:kill(Pid, Server) end),
    %% The server has its address again.
    until(fun() -> lists:all(fun({_, Child}) -> is_pid(Child) end, children(Server)) end),
    ?assertEqual(<<"VALUE a 0 1\r\nx\r\nEND\r\n">>, ask(connect(Server), <<"get a\r\n">>)).
