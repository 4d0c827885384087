%% @doc Clients of weir_memcached, connected when the call returns.
-module(weir_kit_client).

-export([start/3, pids/1, up/1]).

%% @doc Starts a client, linked to the caller, with raw values and one connection unless `Options' say otherwise, which
%% are weir_memcached's without the address. Fails if its connections are not all up within a minute.
-spec start(weir_memcached:client(), weir_kit_memcached:server(), weir_memcached:options()) -> ok.
start(Client, Server, Options) ->
    Defaults = maps:merge(#{codec => raw, connections => 1}, weir_kit_memcached:options(Server)),
    #{connections := N} = All = maps:merge(Defaults, Options),
    {ok, _} = weir_memcached:start_link(Client, All),
    weir_kit:until(fun() -> up(Client) =:= N end).

%% @doc The processes of its connections.
-spec pids(weir_memcached:client()) -> [pid()].
pids(Client) -> [Pid || #{pid := Pid} <- connections(Client)].

%% @doc How many of its connections are up.
-spec up(weir_memcached:client()) -> non_neg_integer().
up(Client) -> length([up || #{phase := up} <- connections(Client)]).

connections(Client) ->
    {ok, #{connections := Connections}} = weir_memcached:info(Client),
    Connections.
