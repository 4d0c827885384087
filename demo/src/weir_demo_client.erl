%% @doc Clients of weir_memcached for the demo's parts: started on the demo's memcached, ready when the call returns.
-module(weir_demo_client).

-export([start/3, stop/1, pids/1, up/1, await/2]).

-define(UP_TIMEOUT, 10_000).
-define(POLL_MS, 5).

%% @doc Starts a client, linked to the caller, with raw values, and waits until all its connections are up. `Options'
%% are weir_memcached's, without the address. Fails if they are not all up within ten seconds.
-spec start(weir_memcached:client(), weir_demo_part:context(), weir_memcached:options()) -> ok.
start(Client, #{server := Server}, Options) ->
    {Host, Port} = weir_demo_memcached:address(Server),
    All = maps:merge(#{host => Host, port => Port, codec => raw, connections => 1}, Options),
    {ok, _} = weir_memcached:start_link(Client, All),
    #{connections := N} = All,
    case await(fun() -> up(Client) =:= N end, ?UP_TIMEOUT) of
        true -> ok;
        false -> error({not_connected, Client, weir_memcached:info(Client)})
    end.

%% @doc Stops a client.
-spec stop(weir_memcached:client()) -> ok.
stop(Client) ->
    weir_memcached:stop(Client).

%% @doc The processes of its connections.
-spec pids(weir_memcached:client()) -> [pid()].
pids(Client) ->
    [Pid || #{pid := Pid} <- connections(Client)].

%% @doc How many of its connections are up.
-spec up(weir_memcached:client()) -> non_neg_integer().
up(Client) ->
    length([up || #{phase := up} <- connections(Client)]).

connections(Client) ->
    {ok, #{connections := Connections}} = weir_memcached:info(Client),
    Connections.

%% @doc Asks every few milliseconds until the answer is true, or the time (milliseconds) is over.
-spec await(fun(() -> boolean()), Timeout :: non_neg_integer()) -> boolean().
await(Condition, Timeout) ->
    await_until(Condition, erlang:monotonic_time(millisecond) + Timeout).

await_until(Condition, Deadline) ->
    case Condition() of
        true ->
            true;
        false ->
            erlang:monotonic_time(millisecond) < Deadline andalso
                begin
                    receive
                    after ?POLL_MS -> ok
                    end,
                    await_until(Condition, Deadline)
                end
    end.
