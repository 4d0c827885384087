%% @doc Starts clients of weir_memcached for benchmarks.
-module(weir_bench_client).

-export([start/2]).

-define(UP_TIMEOUT, 10_000).
-define(POLL_MS, 2).

%% @doc Starts a client, linked to the caller, and waits until its connections are up.
-spec start(weir_memcached:client(), weir_memcached:options()) -> ok.
start(Client, #{connections := N} = Options) ->
    {ok, _} = weir_memcached:start_link(Client, Options),
    await_up(Client, N, erlang:monotonic_time(millisecond) + ?UP_TIMEOUT).

await_up(Client, N, Deadline) ->
    {ok, #{connections := Connections}} = weir_memcached:info(Client),
    case length([up || #{phase := up} <- Connections]) of
        N ->
            ok;
        _ ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({not_connected, Client, Connections}),
            receive
            after ?POLL_MS -> ok
            end,
            await_up(Client, N, Deadline)
    end.
