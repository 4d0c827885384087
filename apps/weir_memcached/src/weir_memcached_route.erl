%% @doc Which server a key is asked of.
%%
%% Each key has an owner, by the client's ring. While the owner is gone, or is coming back, a stand-in is asked, if the
%% client's option `failover' wants one: the next on the ring (`next'), or a server kept for that (`gutter').
%%
%% ```
%%   owner        asked of
%%   up           the owner
%%   gone         the stand-in: all its keys
%%   came back    the stand-in: fewer and fewer of its keys, none after `return_over' milliseconds
%% '''
%% A server that comes back knows little. If all its keys were asked of it from one moment to the next, all of them
%% would have to be computed again at once. Which keys go back first is decided by their hash, so a key goes back once.
%%
%% Pure, but for the words of {@link weir_memcached_load} and the clock.
%% @private
-module(weir_memcached_route).

-export([new/2, all/1, named/2, owner/2, owners/3, has_all/3, stand_ins/2, by_server/2]).

-export_type([servers/0]).

-include("weir_memcached_config.hrl").

-record(servers, {
    ring :: weir_memcached_ring:ring(),
    all :: tuple()
}).

-opaque servers() :: #servers{}.
%% At least one, and who of them has which key.

-define(SHARES, 1024).

%% @doc Servers that share the keys. Errors: those of {@link weir_memcached_ring:new/2}.
-spec new(weir_memcached_ring:distribution(), [weir_memcached_config:server(), ...]) ->
    {ok, servers()} | {error, weir_memcached_ring:error()}.
new(Distribution, Servers) ->
    case weir_memcached_ring:new(Distribution, [point(Server) || Server <- Servers]) of
        {ok, Ring} -> {ok, #servers{ring = Ring, all = list_to_tuple(Servers)}};
        {error, _} = Error -> Error
    end.

%% As other clients know it.
point(#server{host = {local, Path}, weight = Weight}) -> {iolist_to_binary([Path]), none, Weight};
point(#server{host = Host, port = Port, weight = Weight}) when is_tuple(Host) -> {inet:ntoa(Host), Port, Weight};
point(#server{host = Host, port = Port, weight = Weight}) when is_atom(Host) -> {atom_to_list(Host), Port, Weight};
point(#server{host = Host, port = Port, weight = Weight}) -> {Host, Port, Weight}.

%% @doc All of them, in the order in which they were given.
-spec all(none | servers()) -> [weir_memcached_config:server()].
all(none) -> [];
all(#servers{all = All}) -> tuple_to_list(All).

%% @doc The one of this name.
-spec named(weir_memcached:server_name(), weir_memcached_config:config()) ->
    weir_memcached_config:server() | undefined.
named(Name, #config{servers = Servers, gutter = Gutter}) ->
    case lists:keyfind(Name, #server.name, all(Servers) ++ all(Gutter)) of
        #server{} = Server -> Server;
        false -> undefined
    end.

%% @doc The owner of a key. Cost: nothing with one server; else that of {@link weir_memcached_ring:owner/2}.
-spec owner(Key :: binary(), weir_memcached_config:config()) -> weir_memcached_config:server().
owner(_, #config{servers = #servers{all = {Only}}}) -> Only;
owner(Key, #config{servers = #servers{ring = Ring, all = All}}) -> element(weir_memcached_ring:owner(Key, Ring), All).

%% @doc The first so many owners of a key, or as many as there are servers.
-spec owners(Key :: binary(), pos_integer(), weir_memcached_config:config()) -> [weir_memcached_config:server()].
owners(Key, N, #config{servers = #servers{ring = Ring, all = All}}) ->
    [element(Index, All) || Index <- weir_memcached_ring:owners(Key, min(N, tuple_size(All)), Ring)].

%% @doc Whether a key is asked of its owner. One that was never gone, or is gone, has all its keys; whether it is up is
%% for those to see who ask it.
-spec has_all(Key :: binary(), weir_memcached_config:server(), weir_memcached_config:config()) -> boolean().
has_all(_, _, #config{failover = refuse}) ->
    true;
has_all(Key, #server{load = Load}, #config{return_over = ReturnOver}) ->
    case weir_memcached_load:returned(Load) of
        Ago when is_integer(Ago), Ago < ReturnOver -> erlang:phash2(Key, ?SHARES) < Ago * ?SHARES div ReturnOver;
        _ -> true
    end.

%% @doc Who stands in for the owner of a key, the best first; those that are down, or silent, are left out.
-spec stand_ins(Key :: binary(), weir_memcached_config:config()) -> [weir_memcached_config:server()].
stand_ins(_, #config{failover = refuse}) ->
    [];
stand_ins(Key, #config{failover = next, servers = #servers{all = All}} = Config) ->
    [_ | Others] = owners(Key, tuple_size(All), Config),
    up(Others, Config);
stand_ins(Key, #config{failover = gutter, gutter = #servers{all = All} = Gutter} = Config) ->
    up(owners(Key, tuple_size(All), Config#config{servers = Gutter}), Config).

up(Servers, #config{connections = Connections}) ->
    [Server || #server{load = Load} = Server <- Servers, not weir_memcached_load:is_dead(Connections, Load)].

%% @doc Keys by whom they are asked of, and whether that is a stand-in; those of each in the order in which they are
%% given.
-spec by_server([{Key :: binary(), Rest}], weir_memcached_config:config()) ->
    [{weir_memcached_config:server(), IsStandIn :: boolean(), [{Key :: binary(), Rest}]}] when Rest :: term().
by_server(Keys, #config{servers = #servers{all = {Only}}, failover = refuse}) ->
    [{Only, false, Keys}];
by_server(Keys, Config) ->
    Asked = lists:foldr(
        fun({Key, _} = Each, Acc) ->
            {#server{name = Name} = Server, IsStandIn} = asked(Key, Config),
            {_, _, Some} = maps:get(Name, Acc, {Server, IsStandIn, []}),
            Acc#{Name => {Server, IsStandIn, [Each | Some]}}
        end,
        #{},
        Keys
    ),
    maps:values(Asked).

%% With `next' a server may have keys of its own and those of others: it makes no difference there.
asked(Key, #config{connections = Connections} = Config) ->
    #server{load = Load} = Owner = owner(Key, Config),
    IsOwner = Config#config.failover =:= refuse orelse
        not weir_memcached_load:is_dead(Connections, Load) andalso has_all(Key, Owner, Config),
    case IsOwner orelse stand_ins(Key, Config) of
        [Server | _] -> {Server, true};
        _ -> {Owner, false}
    end.
