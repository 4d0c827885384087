%% @doc Requests and replies of memcached's binary protocol, which memcached itself calls deprecated: for servers that
%% want SASL, which is there only with it.
%%
%% A request and its reply begin with 24 bytes that say how many follow; the reply repeats the opaque number of the
%% request. Many items are asked for in quiet mode, which answers hits only; a noop ends it. What a status means depends
%% on what was asked; it becomes what the text protocol says of the same. Pure.
%%
%% Source of the formats: the wiki of memcached, "BinaryProtocolRevamped" and "SASLAuthProtocol".
%% @private
-module(weir_memcached_binary).

-export([encode/1, log_in/2, probe/0, head/1, reply/3]).

-export_type([want/0, head/0]).

-type want() ::
    get | set | add | replace | cas | concat | delete | number | touch | ok | version | stats | log_in
    | {quiet, [{pos_integer(), weir_memcached_request:wire_key()}]}.
%% What was asked, by which a status is understood.

-type head() :: {
    Opcode :: byte(), Extras :: byte(), Key :: 0..65535, Status :: 0..65535, Body :: non_neg_integer(),
    Opaque :: non_neg_integer(), Cas :: non_neg_integer()
}.

-define(REQUEST, 16#80).
-define(REPLY, 16#81).
-define(GET, 16#00).
-define(SET, 16#01).
-define(ADD, 16#02).
-define(REPLACE, 16#03).
-define(DELETE, 16#04).
-define(INCREMENT, 16#05).
-define(DECREMENT, 16#06).
-define(FLUSH, 16#08).
-define(GETQ, 16#09).
-define(NOOP, 16#0a).
-define(VERSION, 16#0b).
-define(APPEND, 16#0e).
-define(PREPEND, 16#0f).
-define(STAT, 16#10).
-define(TOUCH, 16#1c).
-define(GAT, 16#1d).
-define(SASL_AUTH, 16#21).

%% The expiration of an incr that creates nothing.
-define(NO_CREATION, 16#FFFFFFFF).
%% A Unix time in 1970: the protocol has no negative times.
-define(EXPIRED, 2_592_001).
-define(OPAQUES, 16#10000).

%% @doc A request; `unsupported' for what only the meta protocol has, and for verbosity, which memcached 1.6 does not
%% answer.
-spec encode(weir_memcached_request:operation()) -> weir_memcached_request:request() | unsupported.
encode({Get, Key}) when Get =:= get; Get =:= gets; Get =:= peek -> one(get, ?GET, <<>>, Key, <<>>, 0);
encode({gat, Key, Ttl}) -> one(get, ?GAT, <<(time(Ttl)):32>>, Key, <<>>, 0);
encode({set, Key, Data, Flags, Ttl, _}) -> store(set, ?SET, Key, Data, Flags, Ttl, 0);
encode({add, Key, Data, Flags, Ttl, _}) -> store(add, ?ADD, Key, Data, Flags, Ttl, 0);
encode({replace, Key, Data, Flags, Ttl, _}) -> store(replace, ?REPLACE, Key, Data, Flags, Ttl, 0);
%% The number 0 would be a plain set; no item has it.
encode({cas, Key, Data, Flags, Ttl, 0, Size}) -> encode({cas, Key, Data, Flags, Ttl, 16#FFFFFFFFFFFFFFFF, Size});
encode({cas, Key, Data, Flags, Ttl, Unique, _}) -> store(cas, ?SET, Key, Data, Flags, Ttl, Unique);
encode({append, Key, Data}) -> one(concat, ?APPEND, <<>>, Key, Data, 0);
encode({prepend, Key, Data}) -> one(concat, ?PREPEND, <<>>, Key, Data, 0);
encode({delete, Key}) -> one(delete, ?DELETE, <<>>, Key, <<>>, 0);
encode({incr, Key, N}) -> one(number, ?INCREMENT, <<N:64, 0:64, ?NO_CREATION:32>>, Key, <<>>, 0);
encode({decr, Key, N}) -> one(number, ?DECREMENT, <<N:64, 0:64, ?NO_CREATION:32>>, Key, <<>>, 0);
encode({touch, Key, Ttl}) -> one(touch, ?TOUCH, <<(time(Ttl)):32>>, Key, <<>>, 0);
encode({get_many, Keys}) ->
    Numbered = lists:zip(lists:seq(1, length(Keys)), Keys),
    Gets = [packet(?GETQ, I, <<>>, raw(Key), <<>>, 0) || {I, Key} <- Numbered],
    Opaque = opaque(),
    {{binary, {quiet, Numbered}, Opaque}, iolist_to_binary([Gets, packet(?NOOP, Opaque, <<>>, <<>>, <<>>, 0)])};
encode({set_many, Items, Ttl}) ->
    {Kinds, Packets} = lists:unzip([store(set, ?SET, Key, Data, Flags, Ttl, 0) || {Key, Data, Flags, _} <- Items]),
    {{many, Kinds}, Packets};
encode(version) -> one(version, ?VERSION, <<>>, <<>>, <<>>, 0);
encode(stats) -> one(stats, ?STAT, <<>>, <<>>, <<>>, 0);
encode({stats, Section}) -> one(stats, ?STAT, <<>>, Section, <<>>, 0);
encode({flush_all, Delay}) -> one(ok, ?FLUSH, <<Delay:32>>, <<>>, <<>>, 0);
encode(_) -> unsupported.

%% @doc The request with which a connection shows who it is, by SASL's mechanism PLAIN.
-spec log_in(User :: binary(), Password :: binary()) -> weir_memcached_request:request().
log_in(User, Password) -> one(log_in, ?SASL_AUTH, <<>>, <<"PLAIN">>, <<0, User/binary, 0, Password/binary>>, 0).

%% @doc A request that only a server answers well that takes others too: one that wants to know who asks says so.
-spec probe() -> weir_memcached_request:request().
probe() -> one(ok, ?NOOP, <<>>, <<>>, <<>>, 0).

store(Want, Opcode, Key, Data, Flags, Ttl, Unique) ->
    one(Want, Opcode, <<Flags:32, (time(Ttl)):32>>, Key, Data, Unique).

one(Want, Opcode, Extras, Key, Data, Unique) ->
    Opaque = opaque(),
    {{binary, Want, Opaque}, packet(Opcode, Opaque, Extras, raw(Key), Data, Unique)}.

packet(Opcode, Opaque, Extras, Key, Data, Unique) ->
    Size = iolist_size(Data),
    Body = byte_size(Extras) + byte_size(Key) + Size,
    Head = <<?REQUEST, Opcode, (byte_size(Key)):16, (byte_size(Extras)), 0, 0:16, Body:32, Opaque:32, Unique:64,
        Extras/binary, Key/binary>>,
    case Data of
        <<>> -> Head;
        _ -> [Head, Data]
    end.

opaque() -> erlang:unique_integer([positive]) rem ?OPAQUES.

time(Ttl) when Ttl < 0 -> ?EXPIRED;
time(Ttl) -> Ttl.

raw({base64, Key}) -> base64:decode(Key);
raw(Key) -> Key.

%% @doc The first bytes of a reply.
-spec head(binary()) -> head() | garbage.
head(<<?REPLY, Opcode, Key:16, Extras, _, Status:16, Body:32, Opaque:32, Cas:64, _/binary>>) when
    Extras + Key =< Body
->
    {Opcode, Extras, Key, Status, Body, Opaque, Cas};
head(_) ->
    garbage.

%% @doc What a reply says: to one who has asked for this.
-spec reply(want(), head(), Body :: binary()) ->
    weir_memcached_reply:reply()
    | {value, Flags :: non_neg_integer(), Cas :: non_neg_integer(), binary()}
    | {stat, Name :: binary(), Value :: binary()}
    | garbage.
reply(get, {_, 4, Key, 0, _, _, Cas}, Body) ->
    <<Flags:32, _:Key/binary, Value/binary>> = Body,
    {value, Flags, Cas, Value};
reply({quiet, _}, Head, Body) ->
    reply(get, Head, Body);
reply(number, {_, 0, 0, 0, 8, _, _}, <<N:64>>) ->
    {ok, N};
reply(version, {_, 0, 0, 0, _, _, _}, Body) ->
    {ok, binary:copy(Body)};
reply(stats, {_, 0, Key, 0, _, _, _}, Body) ->
    <<Name:Key/binary, Value/binary>> = Body,
    {stat, binary:copy(Name), binary:copy(Value)};
reply(Want, {_, _, _, 0, _, _, _}, _) when
    Want =:= set; Want =:= add; Want =:= replace; Want =:= cas; Want =:= concat; Want =:= delete; Want =:= touch;
    Want =:= ok; Want =:= log_in
->
    ok;
reply(add, {_, _, _, 2, _, _, _}, _) -> {error, not_stored};
reply(replace, {_, _, _, 1, _, _, _}, _) -> {error, not_stored};
reply(stats, {_, _, _, 1, _, _, _}, _) -> {error, {client_error, <<"ERROR">>}};
reply(_, {_, _, _, 1, _, _, _}, _) -> {error, not_found};
reply(_, {_, _, _, 2, _, _, _}, _) -> {error, exists};
reply(_, {_, _, _, 3, _, _, _}, _) -> {error, {server_error, <<"object too large for cache">>}};
reply(_, {_, _, _, 5, _, _, _}, _) -> {error, not_stored};
reply(_, {_, _, _, 6, _, _, _}, _) ->
    {error, {client_error, <<"cannot increment or decrement non-numeric value">>}};
%% Words stand behind extras and key, where there are such.
reply(_, {_, Extras, Key, Status, _, _, _}, Body) when Status > 0 ->
    Before = Extras + Key,
    <<_:Before/binary, Text/binary>> = Body,
    Kind =
        case Status >= 16#82 of
            true -> server_error;
            false -> client_error
        end,
    {error, {Kind, binary:copy(Text)}};
reply(_, _, _) ->
    garbage.
