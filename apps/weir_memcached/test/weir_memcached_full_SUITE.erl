%% A node that can start no process: connections that are lost come back once there is room, and the client goes on.
-module(weir_memcached_full_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).
-import(weir_kit_limits, [in_node/3, full/3]).

-define(CLIENT, full).
%% Several attempts to connect.
-define(FULL_MS, 1500).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> [{server, weir_kit_memcached:start()} | Config].

end_per_suite(Config) -> weir_kit_memcached:stop(proplists:get_value(server, Config)).

options(Case) ->
    (weir_kit_memcached:options(proplists:get_value(server, Case)))#{
        connections => 2, reconnect => {50, 200}, request_timeout => weir_kit:wait_ms()
    }.

started(Options) ->
    {ok, _} = application:ensure_all_started(weir_memcached),
    {ok, Sup} = weir_memcached:start_link(?CLIENT, Options),
    true = unlink(Sup),
    ok = weir_memcached_test:up(?CLIENT),
    Sup.

connections() -> lists:sort([Pid || #{pid := Pid} <- weir_memcached_test:connections(?CLIENT)]).

%% The processes that write for a connection end, and with them the connections.
connections_are_lost(Config) -> ok = in_node(?MODULE, lose, [options(Config)]).

lose(Options) ->
    _ = started(Options),
    Before = connections(),
    [
        begin
            Writers = writers(Before),
            full(What, ?FULL_MS, fun() ->
                _ = [exit(Io, kill) || Io <- Writers],
                %% A request is answered while there is no connection.
                until(fun() -> element(1, weir_memcached:get(?CLIENT, <<"a">>)) =:= error end)
            end),
            ok = weir_memcached_test:up(?CLIENT),
            ?assertEqual(Before, connections())
        end
     || What <- [processes, ports]
    ],
    ok = weir_memcached:set(?CLIENT, <<"a">>, <<"x">>).

writers(Conns) ->
    [_, _] = [
        Io
     || Conn <- Conns, {links, Links} <- [process_info(Conn, links)], Io <- Links, is_pid(Io),
        proc_lib:translate_initial_call(Io) =:= {weir_memcached_io, init, 3}
    ].

%% Connections come back, and the client starts again, while no shared server of the node answers.
servers_hang(Config) -> ok = in_node(?MODULE, hang, [options(Config)]).

hang(Options) ->
    Sup = started(Options),
    Writers = writers(connections()),
    {client, Client, _, _} = lists:keyfind(client, 1, supervisor:which_children(Sup)),
    weir_kit_limits:without_servers(fun() ->
        _ = [exit(Io, kill) || Io <- Writers],
        until(fun() -> weir_memcached:set(?CLIENT, <<"a">>, <<"x">>) =:= ok end),
        ok = weir_kit:kill(Client),
        until(fun() -> weir_memcached:set(?CLIENT, <<"a">>, <<"x">>) =:= ok end)
    end).

%% The process of the client is killed, and cannot be started again until there is room. Connections end with it.
client_is_killed(Config) -> ok = in_node(?MODULE, kill, [options(Config)]).

kill(Options) ->
    Sup = started(Options),
    {client, Client, _, _} = lists:keyfind(client, 1, supervisor:which_children(Sup)),
    full(processes, ?FULL_MS, fun() -> weir_kit_limits:kill(Client, Sup) end),
    until(fun() -> weir_memcached:set(?CLIENT, <<"a">>, <<"x">>) =:= ok end),
    ?assertEqual(Sup, whereis(?CLIENT)),
    ok.

%% A change of servers is refused, and can be made once there is room. Servers that are left are stopped then.
servers_change(Config) -> ok = in_node(?MODULE, change, [options(Config)]).

change(#{host := Host, port := Port} = Options) ->
    Sup = started(Options),
    {client, Client, _, _} = lists:keyfind(client, 1, supervisor:which_children(Sup)),
    Servers = [#{host => Host, port => Port}, #{host => Host, port => Port + 1}],
    Refused = full(processes, ?FULL_MS, fun() -> weir_memcached:set_servers(?CLIENT, Servers) end),
    ?assertEqual({error, system_limit}, Refused),
    {client, Client, _, _} = lists:keyfind(client, 1, supervisor:which_children(Sup)),
    until(fun() -> weir_memcached:set(?CLIENT, <<"a">>, <<"x">>) =:= ok end).
