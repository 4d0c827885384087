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
encode(#config{codec = Default}, Options, Value) ->
    Flags = maps:get(flags, Options, 0),
    {Data, Flags1} = weir_memcached_codec:encode(maps:get(codec, Options, Default), Value, Flags),
    {Data, Flags1, iolist_size(Data)}.

%% @doc The value of bytes that were stored with these flags.
-spec decode(weir_memcached_config:config(), weir_memcached:request_options(), binary(),
    weir_memcached_codec:flags()) ->
    {ok, term()} | {error, {undecodable, binary()}}.
decode(#config{codec = Default}, Options, Bytes, Flags) ->
    weir_memcached_codec:decode(maps:get(codec, Options, Default), Bytes, Flags).

%% @doc The values of items under the keys as they were given. One key may have been given in several
%% forms, such as `<<"k">>' and `"k"'. The first failure stands for all.
-spec decode_many(
    weir_memcached_config:config(),
    weir_memcached:request_options(),
    [weir_memcached_reply:item()],
    [{binary(), weir_memcached:key()}]
) -> {ok, #{weir_memcached:key() => term()}} | {error, {undecodable, binary()}}.
decode_many(Config, Options, Items, Given) ->
    Names = lists:foldl(fun({Bin, Key}, Acc) -> Acc#{Bin => [Key | maps:get(Bin, Acc, [])]} end, #{}, Given),
    decode_many(Config, Options, Items, Names, #{}).

decode_many(Config, Options, [{Bin, Flags, _, Bytes} | Items], Names, Values) ->
    case decode(Config, Options, Bytes, Flags) of
        {ok, Value} ->
            Named = maps:from_keys(maps:get(Bin, Names), Value),
            decode_many(Config, Options, Items, Names, maps:merge(Values, Named));
        {error, _} = Error ->
            Error
    end;
decode_many(_, _, [], _, Values) ->
    {ok, Values}.

%% @doc Has a request answered by whichever connection is up. A request that was not sent may be tried on
%% another one; one that may have been sent is never repeated.
-spec ask(weir_memcached_config:config(), weir_memcached_request:request(), weir_memcached:request_options()) ->
    weir_memcached_reply:reply() | {error, busy | timeout | disconnected}.
ask(#config{pool = Pool, request_timeout = Default}, Request, Options) ->
    Deadline = deadline(maps:get(timeout, Options, Default)),
    Answer =
        case weir_pool:pick(Pool) of
            {ok, Conn} ->
                case weir_memcached_conn:request(Conn, Request, Deadline) of
                    down -> ask_first(others(Pool, Conn), Request, Deadline);
                    Reply -> Reply
                end;
            {error, _} ->
                down
        end,
    case Answer of
        Lost when Lost =:= down; Lost =:= gone -> {error, disconnected};
        _ -> Answer
    end.

%% Not by picking again: while many callers pick, turns bring some of them back to a connection that is down.
ask_first([Conn | Conns], Request, Deadline) ->
    case weir_memcached_conn:request(Conn, Request, Deadline) of
        down -> ask_first(Conns, Request, Deadline);
        Reply -> Reply
    end;
ask_first([], _, _) ->
    down.

%% Those behind it come first, so that not all take the same one.
others(Pool, Conn) ->
    case weir_pool:workers(Pool) of
        {ok, Workers} ->
            {Before, From} = lists:splitwith(fun(Other) -> Other =/= Conn end, [Pid || {_Slot, Pid} <- Workers]),
            lists:delete(Conn, From) ++ Before;
        {error, no_pool} ->
            []
    end.

deadline(infinity) -> infinity;
deadline(Timeout) -> erlang:monotonic_time(millisecond) + Timeout.
