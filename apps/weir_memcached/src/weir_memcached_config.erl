%% @doc The options of a client: checked once, kept where every caller can read them.
%% @private
-module(weir_memcached_config).

-export([options/0, new/2, with_servers/3, to_map/1, publish/1, fetch/1, withdraw/1]).

-include("weir_memcached_config.hrl").

-export_type([config/0, server/0, error/0]).

-type config() :: #config{}.
-type server() :: #server{}.

%% @doc Every option: its key, its default, and what says whether a value is one. weir_memcached:options() tells users
%% of it.
-spec options() -> [{atom(), Default :: term(), fun((term()) -> boolean())}].
options() ->
    [
        {host, "localhost", fun is_host/1},
        {port, 11211, fun is_port_number/1},
        {servers, [], fun is_shared/1},
        {distribution, ketama, fun is_distribution/1},
        {failover, refuse, fun(Value) -> lists:member(Value, [refuse, next, gutter]) end},
        {gutter, [], fun is_servers/1},
        {gutter_ttl, 10, fun(Value) -> is_positive(Value) andalso Value =< ?MOST_SECONDS end},
        {return_over, 10_000, fun(Value) -> Value =:= 0 orelse is_time(Value) end},
        {replicas, 1, fun is_positive/1},
        {connections, 4, fun is_positive/1},
        {connect_timeout, 5000, fun is_time/1},
        {request_timeout, 5000, fun is_timeout/1},
        {stall_timeout, 10_000, fun is_timeout/1},
        {reconnect, {100, 10_000}, fun is_backoff/1},
        {await, 0, fun(Value) -> Value =:= 0 orelse is_time(Value) end},
        %% Requests of one connection that are not answered yet.
        {max_pending, 10_000, fun is_positive/1},
        {max_pending_bytes, 64 bsl 20, fun is_positive/1},
        {max_term, 64 bsl 20, fun is_positive/1},
        {codec, term, fun weir_memcached_codec:is_codec/1},
        {compress, off, fun is_compress/1},
        {namespace, <<>>, fun weir_memcached_key:is_namespace/1},
        {hash_long_keys, false, fun is_boolean/1},
        {binary_keys, false, fun is_boolean/1},
        {protocol, auto, fun(Value) -> lists:member(Value, [auto, text, binary]) end},
        {auth, none, fun is_auth/1},
        {tls, off, fun(Value) -> Value =:= off orelse is_list(Value) end},
        {transport, gen_tcp, fun is_atom/1}
    ].

-type error() :: {bad_option, term(), term()} | {contradicting_options, term(), term()}.

%% @doc Checks the options. The first, in the order of terms, that is unknown or of a wrong value is named, or two that
%% contradict each other.
-spec new(weir_memcached:client(), weir_memcached:options()) -> {ok, config()} | {error, error()}.
new(Client, Options) when is_atom(Client), Client =/= undefined ->
    case to_map(Options) of
        {ok, Map} ->
            case [Option || Option <- lists:sort(maps:to_list(Map)), not is_valid(Option)] of
                [] -> config(Client, Map, contradiction(Map));
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

%% Of the first two that contradict each other.
contradiction(#{servers := [_ | _], host := Host}) -> {contradicting_options, servers, {host, Host}};
contradiction(#{servers := [_ | _], port := Port}) -> {contradicting_options, servers, {port, Port}};
contradiction(#{binary_keys := true, protocol := text}) ->
    {contradicting_options, {binary_keys, true}, {protocol, text}};
contradiction(#{auth := {sasl, _, _}, protocol := text}) ->
    {contradicting_options, {auth, sasl}, {protocol, text}};
contradiction(#{failover := gutter} = Map) when not is_map_key(gutter, Map) ->
    {contradicting_options, {failover, gutter}, {gutter, []}};
contradiction(#{gutter := [_ | _] = Gutter} = Map) when
    not is_map_key(failover, Map); map_get(failover, Map) =/= gutter
->
    {contradicting_options, {gutter, Gutter}, {failover, maps:get(failover, Map, refuse)}};
contradiction(#{gutter := [_ | _] = Gutter} = Map) ->
    case is_servers(given(Map) ++ Gutter) of
        true -> none;
        false -> {contradicting_options, servers, {gutter, Gutter}}
    end;
contradiction(_) -> none.

given(#{servers := Servers}) -> Servers;
given(Map) -> [maps:with([host, port], maps:merge(#{host => "localhost"}, Map))].

config(Client, Options, none) ->
    Defaults = maps:from_list([{Key, Default} || {Key, Default, _Is} <- options()]),
    #{gutter := Gutter, distribution := Distribution} = All = maps:merge(Defaults, Options),
    #{connections := Connections, namespace := Namespace, hash_long_keys := HashLong, binary_keys := Any} = All,
    Protocol = case All of #{auth := {sasl, _, _}} -> binary; #{protocol := P} -> P end,
    New = fun(Each) ->
        weir_memcached_route:new(Distribution, [server(Server, Client, Connections) || Server <- Each])
    end,
    case {New(given(Options)), Gutter =:= [] orelse New(Gutter)} of
        {{ok, Shared}, StandIns} when StandIns =:= true; element(1, StandIns) =:= ok ->
            Config = All#{
                client => Client,
                publisher => undefined,
                supervisor => undefined,
                protocol := Protocol,
                servers := Shared,
                gutter := case StandIns of true -> none; {ok, Some} -> Some end,
                naming => {Namespace, HashLong, Any},
                flights => none
            },
            {ok, list_to_tuple([config | [maps:get(Field, Config) || Field <- record_info(fields, config)]])};
        {{error, _} = Error, _} ->
            Error;
        {_, {error, _} = Error} ->
            Error
    end;
config(_, _, Contradiction) ->
    {error, Contradiction}.

%% @doc The same client with other servers. Those that it has already, by address, and those of `Left', which it has
%% just left, are kept as they are, with another weight if that is another.
-spec with_servers(config(), Left :: [server()], term()) -> {ok, config()} | {error, error()}.
with_servers(#config{client = Client, connections = Connections} = Config, Left, Given) ->
    case is_shared(Given) of
        true ->
            Known = weir_memcached_route:all(Config#config.servers) ++ Left,
            shared([known(server(Each, Client, Connections), Known) || Each <- Given], Config);
        false ->
            {error, {bad_option, servers, Given}}
    end.

shared(Servers, #config{gutter = Gutter, distribution = Distribution} = Config) ->
    StandIns = [Name || #server{name = Name} <- weir_memcached_route:all(Gutter)],
    case [Name || #server{name = Name} <- Servers, lists:member(Name, StandIns)] of
        [] ->
            case weir_memcached_route:new(Distribution, Servers) of
                {ok, Shared} -> {ok, Config#config{servers = Shared}};
                {error, _} = Error -> Error
            end;
        Both ->
            {error, {contradicting_options, servers, {gutter, Both}}}
    end.

known(#server{name = Name, weight = Weight} = New, Known) ->
    case lists:keyfind(Name, #server.name, Known) of
        #server{} = Server -> Server#server{weight = Weight};
        false -> New
    end.

server(Given, Client, Connections) ->
    {ok, Map} = to_map(Given),
    Host = host(maps:get(host, Map, "localhost")),
    Port = maps:get(port, Map, 11211),
    Name = name(Host, Port),
    #server{
        name = Name,
        host = Host,
        port = Port,
        weight = maps:get(weight, Map, 1),
        pool = {weir_memcached, Client, Name},
        counters = weir_memcached_counters:new(),
        latency = weir_memcached_latency:new(),
        load = weir_memcached_load:new(Connections)
    }.

name({local, Path}, _) -> unicode:characters_to_binary([Path]);
name(Host, Port) when tuple_size(Host) =:= 8 -> iolist_to_binary(["[", inet:ntoa(Host), "]:", integer_to_list(Port)]);
name(Host, Port) when is_tuple(Host) -> iolist_to_binary([inet:ntoa(Host), ":", integer_to_list(Port)]);
name(Host, Port) when is_atom(Host) -> name(atom_to_list(Host), Port);
name(Host, Port) -> unicode:characters_to_binary([Host, ":", integer_to_list(Port)]).

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

is_port_number(Port) -> is_integer(Port) andalso Port >= 0 andalso Port =< 65535.

is_compress({Above, Flag}) ->
    is_positive(Above) andalso is_positive(Flag) andalso Flag =< 16#80000000 andalso Flag band (Flag - 1) =:= 0;
is_compress(Value) -> Value =:= off.

is_backoff({Min, Max}) -> is_time(Min) andalso is_time(Max) andalso Min =< Max;
is_backoff(_) -> false.

is_host({local, Path}) -> is_binary(Path) orelse io_lib:printable_unicode_list(Path);
is_host(Host) when is_tuple(Host) -> inet:is_ip_address(Host);
is_host(Host) when is_binary(Host) -> is_host(host(Host));
is_host(Host) -> Host =/= [] andalso (is_atom(Host) orelse io_lib:printable_unicode_list(Host)).

is_shared(Servers) -> Servers =/= [] andalso is_servers(Servers).

%% None twice: the second would have no keys.
is_servers(Servers) when is_list(Servers) ->
    lists:all(fun is_server/1, Servers) andalso
        begin
            Names = [(server(Server, none, 1))#server.name || Server <- Servers],
            length(lists:usort(Names)) =:= length(Names)
        end;
is_servers(_) ->
    false.

is_server(Server) ->
    case to_map(Server) of
        {ok, Map} ->
            maps:without([host, port, weight], Map) =:= #{} andalso is_map_key(host, Map) andalso
                is_host(maps:get(host, Map)) andalso is_port_number(maps:get(port, Map, 1)) andalso
                is_positive(maps:get(weight, Map, 1));
        error ->
            false
    end.

is_distribution(Value) -> lists:member(Value, [ketama, {ketama, unweighted}, rendezvous, jump]).

is_auth(none) -> true;
is_auth({User, Password}) ->
    is_word(User) andalso (is_function(Password, 0) orelse is_word(Password));
%% SASL takes any bytes but 0.
is_auth({sasl, User, Password}) ->
    is_name(User) andalso (is_function(Password, 0) orelse is_name(Password));
is_auth(_) -> false.

is_name(Name) -> is_binary(Name) andalso Name =/= <<>> andalso binary:match(Name, <<0>>) =:= nomatch.

is_word(Word) ->
    is_binary(Word) andalso Word =/= <<>> andalso binary:match(Word, [<<" ">>, <<"\r">>, <<"\n">>]) =:= nomatch.

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
