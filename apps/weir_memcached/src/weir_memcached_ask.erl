%% @doc What all operations of {@link weir_memcached} do: find the client, check the options of a request,
%% have the request answered by a connection that is up.
%% @private
-module(weir_memcached_ask).

-export([config/1, options/2, ttl/1, encode/3, decode/4, decode_many/4, ask/3]).

-include("weir_memcached_config.hrl").

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
is_valid(codec, V) -> is_atom(V).

%% @doc The time to live that the options ask for.
-spec ttl(weir_memcached:request_options()) -> integer().
ttl(Options) ->
    maps:get(ttl, Options, 0).

%% @doc The bytes of a value, their flags, and how many they are.
-spec encode(weir_memcached_config:config(), weir_memcached:request_options(), term()) ->
    {iodata(), weir_memcached_codec:flags(), non_neg_integer()}.
encode(#config{codec = Default, compress = Compress}, Options, Value) ->
    {Encoded, Flags} =
        weir_memcached_codec:encode(maps:get(codec, Options, Default), Value, maps:get(flags, Options, 0)),
    {Data, Flags1} = weir_memcached_zip:deflate(Encoded, Flags, Compress),
    {Data, Flags1, iolist_size(Data)}.

%% @doc The value of bytes that were stored with these flags.
-spec decode(weir_memcached_config:config(), weir_memcached:request_options(), binary(),
    weir_memcached_codec:flags()) ->
    {ok, term()} | {error, {undecodable, binary()}}.
decode(#config{codec = Default, max_term = MaxTerm, compress = Compress}, Options, Stored, Flags) ->
    try weir_memcached_zip:inflate(Stored, Flags, Compress, MaxTerm) of
        {ok, Bytes, Flags1} ->
            weir_memcached_codec:decode(maps:get(codec, Options, Default), Bytes, Flags1, MaxTerm);
        too_large ->
            {error, {undecodable, binary:copy(Stored)}}
    catch
        error:_ -> {error, {undecodable, binary:copy(Stored)}}
    end.

%% @doc The values of items under the keys as they were given. One key may have been given in several
%% forms, such as `<<"k">>' and `"k"'.
-spec decode_many(
    weir_memcached_config:config(),
    weir_memcached:request_options(),
    [weir_memcached_reply:item()],
    [{binary(), weir_memcached:key()}]
) ->
    {ok, #{weir_memcached:key() => term()}}
    | {error, {partial, #{weir_memcached:key() => term()}, #{weir_memcached:key() => {undecodable, binary()}}}}.
decode_many(Config, Options, Items, Given) ->
    Names = lists:foldl(fun({Bin, Key}, Acc) -> Acc#{Bin => [Key | maps:get(Bin, Acc, [])]} end, #{}, Given),
    Decoded = [
        {Key, decode(Config, Options, Bytes, Flags)}
     || {Bin, Flags, _, Bytes} <- Items, Key <- maps:get(Bin, Names)
    ],
    Values = maps:from_list([{Key, Value} || {Key, {ok, Value}} <- Decoded]),
    case [{Key, Reason} || {Key, {error, Reason}} <- Decoded] of
        [] -> {ok, Values};
        Failed -> {error, {partial, Values, maps:from_list(Failed)}}
    end.

%% @doc Has a request answered by the lighter of two connections. A request that was not sent, because that connection
%% is down or has too many already, is tried on others; one that may have been sent is never repeated.
-spec ask(weir_memcached_config:config(), weir_memcached_request:request(), weir_memcached:request_options()) ->
    weir_memcached_reply:reply() | {error, busy | timeout | disconnected}.
ask(#config{request_timeout = Default, connections = Connections, max_pending = Max, load = Load} = Config, Request,
    Options) ->
    Deadline = deadline(maps:get(timeout, Options, Default)),
    Slot = weir_memcached_load:choose(Connections, Load),
    case ask_at(Slot, Request, Deadline, Config) of
        Reason when Reason =:= down; Reason =:= busy ->
            ask_first(weir_memcached_load:others(Slot, Max, Connections, Load), Reason, Request, Deadline, Config);
        Answer ->
            Answer
    end.

ask_first([Slot | Slots], _Reason, Request, Deadline, Config) ->
    case ask_at(Slot, Request, Deadline, Config) of
        Reason when Reason =:= down; Reason =:= busy -> ask_first(Slots, Reason, Request, Deadline, Config);
        Answer -> Answer
    end;
ask_first([], busy, _, _, _) ->
    {error, busy};
ask_first([], down, _, _, _) ->
    {error, disconnected}.

ask_at(Slot, Request, Deadline, #config{pool = Pool}) ->
    case weir_pool:pick(Pool, Slot) of
        {ok, Conn} ->
            case weir_memcached_conn:request(Conn, Request, Deadline) of
                gone -> {error, disconnected};
                Answer -> Answer
            end;
        {error, _} ->
            down
    end.

deadline(infinity) -> infinity;
deadline(Timeout) -> erlang:monotonic_time(millisecond) + Timeout.
