%% A proxy between a client and a server, which holds back what it passes on for as long as a function wants.
-module(weir_memcached_test_proxy).

-export([start/2, stop/1]).

-type proxy() :: #{pid := pid(), host := inet:ip_address(), port := inet:port_number()}.
-type hold() :: fun((Connection :: pos_integer(), to_server | to_client, Bytes :: binary()) -> term()).

%% Passes connections on to a server. The function is called with all bytes before they go on, by a process of its own
%% for each direction of each connection, numbered from 1. One that was closed on one side is closed on the other after
%% what was under way.
-spec start(weir_kit_memcached:server(), hold()) -> proxy().
start(Server, Hold) ->
    Host = {127, 0, 0, 1},
    {ok, Listener} = gen_tcp:listen(0, [
        binary, {ip, Host}, {active, false}, {nodelay, true}, {buffer, 65536}, {backlog, 100}
    ]),
    {ok, Port} = inet:port(Listener),
    Pid = spawn_link(fun() ->
        receive
            yours -> accept(Listener, 1, Server, Hold)
        end
    end),
    ok = gen_tcp:controlling_process(Listener, Pid),
    Pid ! yours,
    #{pid => Pid, host => Host, port => Port}.

%% Stops a proxy and closes its connections.
-spec stop(proxy()) -> ok.
stop(#{pid := Pid}) ->
    unlink(Pid),
    weir_kit:kill(Pid).

accept(Listener, N, #{host := Host, port := Port} = Server, Hold) ->
    {ok, Client} = gen_tcp:accept(Listener),
    case gen_tcp:connect(Host, Port, [binary, {active, false}, {nodelay, true}, {buffer, 65536}]) of
        {ok, Other} ->
            Ways = [{Client, Other, to_server}, {Other, Client, to_client}],
            _ = [
                spawn_link(fun() -> pass(From, To, Way, fun(Bytes) -> Hold(N, Way, Bytes) end) end)
             || {From, To, Way} <- Ways
            ],
            accept(Listener, N + 1, Server, Hold);
        {error, _} ->
            ok = gen_tcp:close(Client),
            accept(Listener, N, Server, Hold)
    end.

%% The sockets are the accepting process's, so they outlive this one. A server is told of the end after the last bytes
%% for it, and closes when it has answered them.
pass(From, To, Way, Hold) ->
    case gen_tcp:recv(From, 0) of
        {ok, Bytes} ->
            _ = Hold(Bytes),
            _ = gen_tcp:send(To, Bytes),
            pass(From, To, Way, Hold);
        {error, _} when Way =:= to_server ->
            gen_tcp:shutdown(To, write);
        {error, _} when Way =:= to_client ->
            ok = gen_tcp:close(To),
            gen_tcp:close(From)
    end.
