%% @doc What all operations of {@link weir_memcached} do: find the client, check the options of a request, have it
%% answered by a connection of the right server.
%%
%% A request that was not sent, because a connection is down or has too many already, is tried on others of its server;
%% if all of them are down, on a stand-in, where the client has those ({@link weir_memcached_route}). One that may have
%% been sent is never repeated.
%%
%% Who has read the configuration just before the servers were changed may come so late that those are closed that have
%% left: the request was not sent, and is asked as those are who read the configuration now. Not if it names a version
%% of an item: the number is that of the server that has left, and may be that of something else elsewhere.
%% @private
-module(weir_memcached_ask).

-export([config/1, options/2, ttl/1, key/2]).
-export([ask/4, ask_each/4, ask_server/4, ask_servers/3, tell/5, send/5, deadline/1, encode/3, decode/4]).

-include("weir_memcached_config.hrl").

-type reply() :: weir_memcached_reply:reply() | {error, busy | timeout | disconnected | unsupported}.

%% @doc A client's configuration; exits with `noproc' if there is no such client.
-spec config(weir_memcached:client()) -> weir_memcached_config:config().
config(Client) ->
    case weir_memcached_config:fetch(Client) of
        undefined -> exit({noproc, {weir_memcached, client, [Client]}});
        Config -> Config
    end.

%% @doc The options of a request as a map. An error `{bad_option, Key, Value}' if one is not among those allowed or of
%% a wrong type, `{bad_option, options, Given}' if they are neither a map nor a keyword list.
-spec options(weir_memcached:request_options(), [atom()]) -> #{atom() => term()}.
options(Options, _) when map_size(Options) =:= 0 ->
    Options;
options(Given, Allowed) ->
    Options =
        case weir_memcached_config:to_map(Given) of
            {ok, Map} -> Map;
            error -> error({bad_option, options, Given})
        end,
    maps:foreach(
        fun(Key, Value) ->
            lists:member(Key, Allowed) andalso is_valid(Key, Value) orelse error({bad_option, Key, Value})
        end,
        Options
    ),
    Options.

is_valid(timeout, V) -> V =:= infinity orelse (is_integer(V) andalso V >= 0 andalso V =< ?MAX_TIMEOUT);
is_valid(ttl, V) -> ?is_ttl(V);
is_valid(flags, V) -> is_integer(V) andalso V >= 0 andalso V =< 16#FFFFFFFF;
is_valid(delay, V) -> ?is_ttl(V) andalso V >= 0;
is_valid(codec, V) -> weir_memcached_codec:is_codec(V);
is_valid(no_reply, V) -> is_boolean(V);
is_valid(hedge, V) -> V =:= off orelse V =:= p95 orelse (is_integer(V) andalso V > 0 andalso V =< ?MAX_TIMEOUT);
is_valid(server, V) -> is_binary(V).

%% @doc The time to live that the options ask for.
-spec ttl(weir_memcached:request_options()) -> integer().
ttl(Options) ->
    maps:get(ttl, Options, 0).

%% @doc The bytes of a key and what stands for them on the wire, if the key is good.
%%
%% It calls no function with them: one of its caller could be purged in an upgrade while this module runs, since a
%% process that only refers to it does not keep it.
-spec key(weir_memcached:key(), weir_memcached_config:config()) ->
    {ok, binary(), weir_memcached_request:wire_key()} | {error, {bad_key, term()}}.
key(Key, #config{naming = Naming}) -> weir_memcached_key:wire(Key, Naming).

%% @doc Has an operation on a key answered by the server whose key it is, and followed by those that have copies.
-spec ask(weir_memcached_config:config(), Key :: binary(), weir_memcached_request:operation(),
    weir_memcached:request_options()) -> reply() | ok.
ask(#config{request_timeout = Default} = Config, Key, Operation, Options) ->
    Deadline = deadline(maps:get(timeout, Options, Default)),
    case ask_owners(Config, Key, Operation, Deadline, Options) of
        down ->
            case not names_version(Operation) andalso newer(Config) of
                #config{} = New -> answer(ask_owners(New, Key, Operation, Deadline, Options));
                _ -> answer(down)
            end;
        Answer ->
            Answer
    end.

ask_owners(#config{replicas = 1} = Config, Key, Operation, Deadline, Options) ->
    {_, Answer} = ask_owner(Config, Key, Operation, Deadline, Options),
    Answer;
ask_owners(#config{request_timeout = Default} = Config, Key, Operation, Deadline, Options) ->
    {By, Answer} = ask_owner(Config, Key, Operation, Deadline, Options),
    Known = case Answer =:= ok andalso how(Options) of no_reply -> taken; _ -> answer(Answer) end,
    Timeout = maps:get(timeout, Options, Default),
    ok = weir_memcached_replicas:follow(Config, Key, Operation, Known, By, Timeout),
    Answer.

names_version(Operation) -> lists:member(element(1, Operation), [cas, put, release]).

%% The configuration, if the servers have changed since this one was read.
newer(#config{client = Client, servers = Servers}) ->
    case weir_memcached_config:fetch(Client) of
        #config{servers = Others} = New when Others =/= Servers -> New;
        _ -> none
    end.

%% Who has answered, and what; `down' only if nothing was sent to anybody.
ask_owner(Config, Key, Operation, Deadline, Options) ->
    How = how(Options),
    Owner = weir_memcached_route:owner(Key, Config),
    case weir_memcached_route:has_all(Key, Owner, Config) of
        true ->
            case ask_one(Owner, How, Operation, Deadline, Config) of
                down -> stand_in(Key, How, Operation, Deadline, Config);
                Answer -> {Owner, Answer}
            end;
        false ->
            case stand_in(Key, How, Operation, Deadline, Config) of
                {none, down} -> {Owner, ask_one(Owner, How, Operation, Deadline, Config)};
                Answered -> Answered
            end
    end.

how(#{no_reply := true}) -> no_reply;
how(_) -> request.

stand_in(Key, How, Operation, Deadline, Config) ->
    StandIns = weir_memcached_route:stand_ins(Key, Config),
    first_up(StandIns, How, with_stand_in(true, Operation, Config), Deadline, Config).

first_up([Server | Servers], How, Operation, Deadline, Config) ->
    case ask_one(Server, How, Operation, Deadline, Config) of
        down -> first_up(Servers, How, Operation, Deadline, Config);
        Answer -> {Server, Answer}
    end;
first_up([], _, _, _, _) ->
    {none, down}.

%% What a stand-in keeps only for a short time: the server whose key it is may come back, and nobody would delete it
%% here.
brief({Store, Key, Data, Flags, Ttl, Size}, Most) ->
    {Store, Key, Data, Flags, brief_ttl(Ttl, Most), Size};
brief({Store, Key, Data, Flags, Ttl, Unique, Size}, Most) ->
    {Store, Key, Data, Flags, brief_ttl(Ttl, Most), Unique, Size};
brief({Touch, Key, Ttl}, Most) when Touch =:= gat; Touch =:= touch; Touch =:= invalidate ->
    {Touch, Key, brief_ttl(Ttl, Most)};
brief({set_many, Items, Ttl}, Most) -> {set_many, Items, brief_ttl(Ttl, Most)};
brief(Operation, _) -> Operation.

brief_ttl(Ttl, _) when Ttl < 0 -> Ttl;
brief_ttl(0, Most) -> Most;
brief_ttl(Ttl, Most) -> min(Ttl, Most).

%% @doc Has operations answered that go to several servers, all at the same time. `Make' makes the operation of the keys
%% that are asked of one. Each answer with the keys that it is about, and the server that was asked.
-spec ask_each([{Key :: binary(), Each}], Make, weir_memcached_config:config(), weir_memcached:request_options()) ->
    [{[Each], reply(), weir_memcached_config:server()}] when
    Make :: fun(([Each]) -> weir_memcached_request:operation()), Each :: term().
ask_each(Keys, Make, #config{request_timeout = Default} = Config, Options) ->
    ask_each(Keys, Make, Config, deadline(maps:get(timeout, Options, Default)), again).

%% A server may be lost just now, or have left: then its keys go where they belong without it, once.
ask_each(Keys, Make, Config, Deadline, Again) ->
    Parts = [
        {Some, Server, with_stand_in(IsStandIn, Make([Each || {_, Each} <- Some]), Config)}
     || {Server, IsStandIn, Some} <- weir_memcached_route:by_server(Keys, Config)
    ],
    Answers =
        case Parts of
            [{Some, Server, Operation}] ->
                [{Some, ask_one(Server, request, Operation, Deadline, Config), Server}];
            _ ->
                Sent = [
                    {Some, Server, Operation, send(Server, Operation, Deadline, any, Config)}
                 || {Some, Server, Operation} <- Parts
                ],
                [
                    {Some, collect(Request, Server, Operation, Deadline, Config), Server}
                 || {Some, Server, Operation, Request} <- Sent
                ]
        end,
    lists:append([
        case Answer =:= down andalso Again =:= again andalso by_others(Config) of
            #config{} = Others -> ask_each(Some, Make, Others, Deadline, no_more);
            _ -> [{[Each || {_, Each} <- Some], answer(Answer), Server}]
        end
     || {Some, Answer, Server} <- Answers
    ]).

%% By whom keys are asked of others than one that is down.
by_others(#config{failover = Failover} = Config) ->
    case newer(Config) of
        none when Failover =:= refuse -> none;
        none -> Config;
        New -> New
    end.

with_stand_in(true, Operation, #config{failover = gutter, gutter_ttl = Most}) -> brief(Operation, Most);
with_stand_in(_, Operation, _) -> Operation.

%% @doc Sends an operation to the connection that is chosen first, or to the best one but for one.
-spec send(weir_memcached_config:server(), weir_memcached_request:operation(), integer() | infinity,
    any | {but, weir_pool:slot()}, weir_memcached_config:config()) ->
    {sent, weir_pool:slot(), gen_server:request_id()} | refused.
send(#server{load = Load} = Server, Operation, Deadline, Which, Config) ->
    case choose(Which, Load, Config) of
        down ->
            refused;
        Slot ->
            Request = weir_memcached_request:encode(weir_memcached_load:protocol(Load), Operation),
            case weir_pool:pick(Server#server.pool, Slot) of
                {ok, Conn} when Request =/= unsupported ->
                    {sent, Slot, weir_memcached_conn:send(Conn, Request, Deadline)};
                _ ->
                    refused
            end
    end.

choose(any, Load, Config) ->
    choose(Load, Config);
choose({but, Slot}, Load, #config{connections = Connections, max_pending = Most}) ->
    case weir_memcached_load:others(Slot, Most, Connections, Load) of
        [Other | _] -> Other;
        [] -> down
    end.

%% What is refused is asked as any other request, one after the other.
collect({sent, _, Id}, Server, Operation, Deadline, Config) ->
    case weir_memcached_conn:answer(Id) of
        gone -> {error, disconnected};
        Refusal when Refusal =:= down; Refusal =:= busy; element(1, Refusal) =:= speaks ->
            collect(refused, Server, Operation, Deadline, Config);
        Answer -> Answer
    end;
collect(refused, Server, Operation, Deadline, Config) ->
    ask_one(Server, request, Operation, Deadline, Config).

%% @doc Has an operation answered by one server, whatever it is about.
-spec ask_server(weir_memcached_config:server(), weir_memcached_request:operation(), weir_memcached_config:config(),
    weir_memcached:request_options()) -> reply() | ok.
ask_server(Server, Operation, #config{request_timeout = Default} = Config, Options) ->
    answer(ask_one(Server, how(Options), Operation, deadline(maps:get(timeout, Options, Default)), Config)).

%% @doc Has an operation answered by all servers that share the keys; the first error counts.
-spec ask_servers(weir_memcached_request:operation(), weir_memcached_config:config(),
    weir_memcached:request_options()) -> reply() | ok.
ask_servers(Operation, #config{servers = Servers} = Config, Options) ->
    Answers = [ask_server(Server, Operation, Config, Options) || Server <- weir_memcached_route:all(Servers)],
    case [Error || {error, _} = Error <- Answers] of
        [] -> hd(Answers);
        [Error | _] -> Error
    end.

answer(down) -> {error, disconnected};
answer(Answer) -> Answer.

%% @doc Has an operation carried out by a server, whose reply nobody waits for, on the connection of this slot; on
%% another one if that is down or silent, or has too many requests.
-spec tell(weir_memcached_config:server(), weir_pool:slot(), weir_memcached_request:operation(), timeout(),
    weir_memcached_config:config()) -> ok | {error, busy | disconnected | unsupported}.
tell(#server{load = Load} = Server, Slot, Operation, Timeout, Config) ->
    Which =
        case weir_memcached_load:is_silent(Slot, Load) of
            true -> choose(Load, Config);
            false -> Slot
        end,
    answer(ask_from(Which, Server, no_reply, Operation, deadline(Timeout), Config)).

%% One server: the lighter of two connections, then others.
ask_one(#server{load = Load} = Server, How, Operation, Deadline, Config) ->
    ask_from(choose(Load, Config), Server, How, Operation, Deadline, Config).

ask_from(down, _, _, _, _, _) ->
    down;
ask_from(Slot, #server{load = Load} = Server, How, Operation, Deadline, #config{connections = Connections} = Config) ->
    Protocol = weir_memcached_load:protocol(Load),
    case ask_at(Slot, How, Protocol, Operation, Deadline, Server) of
        Reason when Reason =:= down; Reason =:= busy ->
            Others = weir_memcached_load:others(Slot, Config#config.max_pending, Connections, Load),
            ask_first(Others, Reason, How, Protocol, Operation, Deadline, Server);
        Answer ->
            Answer
    end.

%% A server that lets requests time out is as good as gone where another one can stand in.
choose(Load, #config{connections = Connections, failover = Failover}) ->
    case weir_memcached_load:choose(Connections, Load) of
        Slot when is_integer(Slot), Failover =/= refuse ->
            case weir_memcached_load:is_silent(Slot, Load) of
                true -> down;
                false -> Slot
            end;
        Choice ->
            Choice
    end.

ask_first([Slot | Slots], _Reason, How, Protocol, Operation, Deadline, Server) ->
    case ask_at(Slot, How, Protocol, Operation, Deadline, Server) of
        Reason when Reason =:= down; Reason =:= busy ->
            ask_first(Slots, Reason, How, Protocol, Operation, Deadline, Server);
        Answer ->
            Answer
    end;
ask_first([], busy, _, _, _, _, _) ->
    {error, busy};
ask_first([], down, _, _, _, _, _) ->
    down.

ask_at(Slot, How, Protocol, Operation, Deadline, #server{pool = Pool} = Server) ->
    case weir_memcached_request:encode(Protocol, Operation) of
        unsupported ->
            {error, unsupported};
        Request ->
            case weir_pool:pick(Pool, Slot) of
                {ok, Conn} ->
                    case ask_conn(How, Conn, Request, Deadline) of
                        gone -> {error, disconnected};
                        {speaks, Other} -> ask_at(Slot, How, Other, Operation, Deadline, Server);
                        Answer -> Answer
                    end;
                {error, _} ->
                    down
            end
    end.

ask_conn(request, Conn, Request, Deadline) -> weir_memcached_conn:request(Conn, Request, Deadline);
ask_conn(no_reply, Conn, Request, Deadline) -> weir_memcached_conn:no_reply(Conn, Request, Deadline).

%% @doc When the time is over: milliseconds of `erlang:monotonic_time/1'.
-spec deadline(timeout()) -> integer() | infinity.
deadline(infinity) -> infinity;
deadline(Timeout) -> erlang:monotonic_time(millisecond) + Timeout.

%% @doc The bytes of a value, their flags, and how many they are.
-spec encode(weir_memcached_config:config(), #{codec => _, flags => _, _ => _}, term()) ->
    {iodata(), weir_memcached_codec:flags(), non_neg_integer()}.
encode(#config{codec = Default, compress = Compress}, Options, Value) ->
    {Encoded, Flags} =
        weir_memcached_codec:encode(maps:get(codec, Options, Default), Value, maps:get(flags, Options, 0)),
    {Data, Flags1} = weir_memcached_zip:deflate(Encoded, Flags, Compress),
    {Data, Flags1, iolist_size(Data)}.

%% @doc The value of bytes that were stored with these flags; `not_found' for what only keeps a place: an item without
%% bytes, where the codec makes none of those of a value.
-spec decode(weir_memcached_config:config(), #{codec => _, _ => _}, binary(), weir_memcached_codec:flags()) ->
    {ok, term()} | {error, not_found | {undecodable, binary()}}.
decode(#config{codec = Default, max_term = MaxTerm, compress = Compress}, Options, Stored, Flags) ->
    Codec = maps:get(codec, Options, Default),
    try weir_memcached_zip:inflate(Stored, Flags, Compress, MaxTerm) of
        {ok, <<>>, _} when Codec =:= term; Codec =:= json ->
            {error, not_found};
        {ok, Bytes, Flags1} ->
            weir_memcached_codec:decode(Codec, Bytes, Flags1, MaxTerm);
        too_large ->
            {error, {undecodable, binary:copy(Stored)}}
    catch
        error:_ -> {error, {undecodable, binary:copy(Stored)}}
    end.
