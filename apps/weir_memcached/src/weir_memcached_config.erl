%% @doc The options of a client: checked once, kept where every caller can read them.
%% @private
-module(weir_memcached_config).

-export([options/0, new/2, to_map/1, publish/1, fetch/1, withdraw/1]).

-include("weir_memcached_config.hrl").

-export_type([config/0]).

-type config() :: #config{}.

%% @doc Every option: its key, its default, and what says whether a value is one. weir_memcached:options() tells users
%% of it, and the record #config{} has a field of its name.
-spec options() -> [{atom(), Default :: term(), fun((term()) -> boolean())}].
options() ->
    [
        {host, "localhost", fun is_host/1},
        {port, 11211, fun(Port) -> is_integer(Port) andalso Port >= 0 andalso Port =< 65535 end},
        {connections, 4, fun is_positive/1},
        {connect_timeout, 5000, fun is_time/1},
        {request_timeout, 5000, fun is_timeout/1},
        {stall_timeout, 10_000, fun is_timeout/1},
        {reconnect, {100, 10_000}, fun is_backoff/1},
        %% Requests of one connection that are not answered yet.
        {max_pending, 10_000, fun is_positive/1},
        {max_pending_bytes, 64 bsl 20, fun is_positive/1},
        {max_term, 64 bsl 20, fun is_positive/1},
        {codec, term, fun weir_memcached_codec:is_codec/1},
        {compress, off, fun is_compress/1},
        {transport, gen_tcp, fun is_atom/1}
    ].

%% @doc Checks the options. The first, in the order of terms, that is unknown or of a wrong value is named.
-spec new(weir_memcached:client(), weir_memcached:options()) -> {ok, config()} | {error, {bad_option, term(), term()}}.
new(Client, Options) when is_atom(Client) ->
    case to_map(Options) of
        {ok, Map} ->
            case [Option || Option <- lists:sort(maps:to_list(Map)), not is_valid(Option)] of
                [] -> {ok, config(Client, Map)};
                [{Key, Value} | _] -> {error, {bad_option, Key, Value}}
            end;
        error ->
            {error, {bad_option, options, Options}}
    end;
new(Client, _) ->
    {error, {bad_option, client, Client}}.

is_valid({Key, Value}) ->
    case lists:keyfind(Key, 1, options()) of
        {Key, _Default, Is} -> Is(Value);
        false -> false
    end.

%% The fields of the record have the names of the options.
config(Client, Options) ->
    Defaults = maps:from_list([{Key, Default} || {Key, Default, _Is} <- options()]),
    #{host := Host, connections := Connections} = All = maps:merge(Defaults, Options),
    Config = All#{
        host := host(Host),
        client => Client,
        publisher => undefined,
        pool => {weir_memcached, Client},
        counters => weir_memcached_counters:new(),
        load => weir_memcached_load:new(Connections)
    },
    list_to_tuple([config | [maps:get(Field, Config) || Field <- record_info(fields, config)]]).

%% Elixir's strings.
host(Host) when is_binary(Host) -> unicode:characters_to_list(Host);
host(Host) -> Host.

%% @doc Options as a map: one, or what a keyword list says, of which the first of a key counts.
-spec to_map(term()) -> {ok, map()} | error.
to_map(Map) when is_map(Map) -> {ok, Map};
to_map([]) -> {ok, #{}};
to_map([{Key, Value} | Rest]) when is_atom(Key) ->
    case to_map(Rest) of
        {ok, Map} -> {ok, Map#{Key => Value}};
        error -> error
    end;
to_map(_) -> error.

is_positive(Value) -> is_integer(Value) andalso Value > 0.

is_time(Value) -> is_positive(Value) andalso Value =< ?MAX_TIMEOUT.

is_timeout(Value) -> Value =:= infinity orelse is_time(Value).

is_compress({Above, Flag}) ->
    is_positive(Above) andalso is_positive(Flag) andalso Flag =< 16#80000000 andalso Flag band (Flag - 1) =:= 0;
is_compress(Value) -> Value =:= off.

is_backoff({Min, Max}) -> is_time(Min) andalso is_time(Max) andalso Min =< Max;
is_backoff(_) -> false.

is_host({local, Path}) -> is_binary(Path) orelse io_lib:printable_unicode_list(Path);
is_host(Host) when is_tuple(Host) -> inet:is_ip_address(Host);
is_host(Host) when is_binary(Host) -> is_host(host(Host));
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
