%% @doc The options of a client: checked once, kept where every caller can read them.
-module(weir_memcached_config).

-export([new/2, publish/1, fetch/1, withdraw/1]).

-include("weir_memcached_config.hrl").

-export_type([config/0]).

-type config() :: #config{}.

%% @doc Checks the options. The first that is unknown or of a wrong value is named.
-spec new(weir_memcached:client(), map()) -> {ok, config()} | {error, {bad_option, term(), term()}}.
new(Client, Options) when is_atom(Client), is_map(Options) ->
    Config = #config{client = Client, pool = {weir_memcached, Client}, counters = weir_memcached_counters:new()},
    check(maps:to_list(Options), Config);
new(Client, Options) when is_atom(Client) ->
    {error, {bad_option, options, Options}};
new(Client, _) ->
    {error, {bad_option, client, Client}}.

check([{Key, Value} | Rest], Config) ->
    case option(Key, Value, Config) of
        #config{} = Config1 -> check(Rest, Config1);
        bad -> {error, {bad_option, Key, Value}}
    end;
check([], Config) ->
    {ok, Config}.

-define(is_positive(V), (is_integer(V) andalso V > 0)).
-define(is_time(V), (?is_positive(V) andalso V =< ?MAX_TIMEOUT)).
-define(is_timeout(V), (V =:= infinity orelse ?is_time(V))).

option(host, V, C) ->
    case is_host(V) of
        true -> C#config{host = V};
        false -> bad
    end;
option(port, V, C) when is_integer(V), V >= 0, V =< 65535 -> C#config{port = V};
option(transport, V, C) when is_atom(V) -> C#config{transport = V};
option(connections, V, C) when ?is_positive(V) -> C#config{connections = V};
option(connect_timeout, V, C) when ?is_time(V) -> C#config{connect_timeout = V};
option(request_timeout, V, C) when ?is_timeout(V) -> C#config{request_timeout = V};
option(stall_timeout, V, C) when ?is_timeout(V) -> C#config{stall_timeout = V};
option(reconnect, {Min, Max} = V, C) when ?is_time(Min), ?is_time(Max), Min =< Max -> C#config{reconnect = V};
option(max_pending, V, C) when ?is_positive(V) -> C#config{max_pending = V};
option(codec, V, C) when is_atom(V) -> C#config{codec = V};
option(_, _, _) ->
    bad.

is_host({local, Path}) -> is_binary(Path) orelse io_lib:printable_unicode_list(Path);
is_host(Host) when is_tuple(Host) -> inet:is_ip_address(Host);
is_host(Host) -> Host =/= [] andalso (is_atom(Host) orelse io_lib:printable_unicode_list(Host)).

%% @doc Makes the configuration readable for everybody. Called by the client's process alone.
-spec publish(config()) -> ok.
publish(#config{client = Client} = Config) ->
    persistent_term:put({weir_memcached, Client}, Config).

%% @doc The configuration of a running client. Cost: one look-up of a persistent term, nothing copied.
-spec fetch(weir_memcached:client()) -> config() | undefined.
fetch(Client) ->
    persistent_term:get({weir_memcached, Client}, undefined).

%% @doc Takes the configuration back. Called by the client's process alone.
-spec withdraw(config()) -> ok.
withdraw(#config{client = Client}) ->
    _ = persistent_term:erase({weir_memcached, Client}),
    ok.
