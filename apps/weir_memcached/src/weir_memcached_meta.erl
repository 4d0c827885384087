%% @doc Requests and replies of memcached's meta protocol: a command for each kind of thing, with flags that say what is
%% wanted and what is to come back.
%%
%% Every request has an opaque number, which its reply repeats (but for misses up to 1.6.14): so a reply that belongs to
%% another request is seen even where both would look alike. Many items are asked for in quiet mode: only hits are
%% answered, and `mn' ends it. Keys of any bytes are sent as base64. Pure.
%%
%% Source of the formats: doc/protocol.txt of memcached 1.6. The size in the line of `ms' is there since 1.6.10, so
%% servers before that are spoken to in text.
%% @private
-module(weir_memcached_meta).

-export([encode/1, line/1, tokens/1, is_spoken_by/1]).

-export_type([operation/0, opaque/0, line/0, tokens/0]).

-type operation() ::
    {item | peek, weir_memcached_request:wire_key()}
    | {lease, weir_memcached_request:wire_key(), Seconds :: pos_integer(), Refresh :: non_neg_integer()}
    | {put, weir_memcached_request:wire_key(), iodata(), weir_memcached_codec:flags(),
        weir_memcached_request:ttl(), Unique :: non_neg_integer(), Size :: non_neg_integer()}
    | {release, weir_memcached_request:wire_key(), Unique :: non_neg_integer(), stale | missing}
    | {invalidate, weir_memcached_request:wire_key(), weir_memcached_request:ttl()}
    | {debug, weir_memcached_request:wire_key()}.
%% What only this protocol has. `item': all that is known of one; `peek': what a fetch needs of that. `lease': as
%% `item'; one of all who ask is told `won', if there is no item, if it is stale, or if it has less than `Refresh'
%% seconds left; who has won has so many seconds to `put' a value, which is stored if the item is still that, or to
%% `release' it for the next to win. `invalidate': the item is stale from now on.

-type opaque() :: binary().
%% As it stands in a request and in its reply: `<<"O17">>'.

-type line() ::
    {value, Size :: non_neg_integer(), Tokens :: binary()}
    | {stored | miss | not_stored | exists | not_found, Tokens :: binary()}
    | other.
%% What a line of a reply says, without its tokens.

-type tokens() :: #{
    flags => non_neg_integer(),
    cas => non_neg_integer(),
    ttl => integer(),
    last_access => non_neg_integer(),
    hit_before => boolean(),
    size => non_neg_integer(),
    won => true,
    leased => true,
    stale => true,
    opaque => opaque()
}.

%% Opaque numbers are below this one: five bytes with the flag at most.
-define(OPAQUES, 10_000).
-define(MAX_NUMBER, 16#FFFFFFFFFFFFFFFF).

%% @doc Whether a server of this version understands what is written here.
-spec is_spoken_by(Version :: binary()) -> boolean().
is_spoken_by(Version) ->
    case [number(Part, 0, none) || Part <- binary:split(Version, <<".">>, [global])] of
        [1, 6, Patch | _] when is_integer(Patch) -> Patch >= 10;
        [1, Minor | _] when is_integer(Minor) -> Minor > 6;
        [Major | _] when is_integer(Major) -> Major > 1;
        _ -> false
    end.

%% The decimal digits that some bytes begin with.
number(<<Digit, Rest/binary>>, N, _) when Digit >= $0, Digit =< $9 -> number(Rest, 10 * N + Digit - $0, some);
number(_, _, none) -> none;
number(_, N, some) -> N.

%% @doc A request. What text can say is said in text: a text `get' leaves an item alone that is stale, while whoever
%% asks for that with `mg' is told that it has won, after which nobody else would compute it. So here is what only this
%% protocol has, and what is about keys of any bytes.
-spec encode(weir_memcached_request:operation()) -> weir_memcached_request:request().
encode({peek, Key}) ->
    command(item, <<"mg ">>, Key, <<" v f c t">>);
encode({lease, Key, Seconds, Refresh}) ->
    Tokens = <<" v f c t N", (integer_to_binary(Seconds))/binary, " R", (integer_to_binary(Refresh))/binary>>,
    command(item, <<"mg ">>, Key, Tokens);
encode({put, Key, Data, Flags, Ttl, Unique, Size}) ->
    store(Key, Data, Flags, Ttl, Size, <<" C", (integer_to_binary(Unique))/binary>>);
encode({release, Key, Unique, missing}) ->
    command(delete, <<"md ">>, Key, <<" C", (integer_to_binary(Unique))/binary>>);
encode({release, Key, Unique, stale}) ->
    command(delete, <<"md ">>, Key, <<" I C", (integer_to_binary(Unique))/binary>>);
encode({invalidate, Key, Ttl}) ->
    command(delete, <<"md ">>, Key, <<" I T", (integer_to_binary(Ttl))/binary>>);
encode({item, Key}) ->
    command(item, <<"mg ">>, Key, <<" v f c t l h s">>);
encode({debug, Key}) ->
    {debug, <<"me ", (key(Key))/binary, "\r\n">>};
encode({Get, {base64, _} = Key}) when Get =:= get; Get =:= gets ->
    mg(Key, case Get of get -> <<>>; gets -> <<" c">> end);
encode({gat, {base64, _} = Key, Ttl}) ->
    mg(Key, <<" T", (integer_to_binary(Ttl))/binary>>);
encode({touch, {base64, _} = Key, Ttl}) ->
    command(touch, <<"mg ">>, Key, <<" T", (integer_to_binary(Ttl))/binary>>);
encode({set, {base64, _} = Key, Data, Flags, Ttl, Size}) -> store(Key, Data, Flags, Ttl, Size, <<>>);
encode({add, {base64, _} = Key, Data, Flags, Ttl, Size}) -> store(Key, Data, Flags, Ttl, Size, <<" ME">>);
encode({replace, {base64, _} = Key, Data, Flags, Ttl, Size}) -> store(Key, Data, Flags, Ttl, Size, <<" MR">>);
encode({cas, {base64, _} = Key, Data, Flags, Ttl, Unique, Size}) ->
    store(Key, Data, Flags, Ttl, Size, <<" C", (integer_to_binary(Unique))/binary>>);
encode({append, {base64, _} = Key, Data}) -> store(Key, Data, 0, 0, iolist_size(Data), <<" MA">>);
encode({prepend, {base64, _} = Key, Data}) -> store(Key, Data, 0, 0, iolist_size(Data), <<" MP">>);
encode({delete, {base64, _} = Key}) ->
    command(delete, <<"md ">>, Key, <<>>);
encode({incr, {base64, _} = Key, N}) ->
    command(number, <<"ma ">>, Key, <<" v D", (integer_to_binary(N))/binary>>);
encode({decr, {base64, _} = Key, N}) ->
    command(number, <<"ma ">>, Key, <<" v MD D", (integer_to_binary(N))/binary>>);
encode(Operation) ->
    case weir_memcached_request:encode(text, Operation) of
        unsupported -> many(Operation);
        Request -> Request
    end.

many({get_many, Keys}) ->
    Numbered = lists:zip(lists:seq(1, length(Keys)), Keys),
    Lines = [[<<"mg ">>, key(Key), <<" v f q O">>, integer_to_binary(I), <<"\r\n">>] || {I, Key} <- Numbered],
    {{quiet, Numbered}, iolist_to_binary([Lines, <<"mn\r\n">>])};
%% Not in quiet mode, in which a server does not say of which item an error is.
many({set_many, Items, Ttl}) ->
    {Kinds, Lines} = lists:unzip([store(Key, Data, Flags, Ttl, Size, <<>>) || {Key, Data, Flags, Size} <- Items]),
    {{many, Kinds}, Lines}.

mg(Key, Tokens) ->
    Opaque = opaque(),
    {{mg, Key, Opaque}, <<"mg ", (key(Key))/binary, " v f", Tokens/binary, " ", Opaque/binary, "\r\n">>}.

command(Want, Name, Key, Tokens) ->
    Opaque = opaque(),
    {{meta, Want, Opaque}, <<Name/binary, (key(Key))/binary, Tokens/binary, " ", Opaque/binary, "\r\n">>}.

store(Key, Data, Flags, Ttl, Size, Tokens) ->
    Opaque = opaque(),
    Line =
        <<"ms ", (name(Key))/binary, " ", (integer_to_binary(Size))/binary, (base64_token(Key))/binary,
            (number_token(<<" F">>, Flags))/binary, (number_token(<<" T">>, Ttl))/binary, Tokens/binary, " ",
            Opaque/binary, "\r\n">>,
    {{meta, store, Opaque}, weir_memcached_request:with_data(Line, Data, Size)}.

%% Both are 0 where they are not said.
number_token(_, 0) -> <<>>;
number_token(Token, N) -> <<Token/binary, (integer_to_binary(N))/binary>>.

name({base64, Key}) -> Key;
name(Key) -> Key.

base64_token({base64, _}) -> <<" b">>;
base64_token(_) -> <<>>.

key({base64, Key}) -> <<Key/binary, " b">>;
key(Key) -> Key.

opaque() ->
    <<"O", (integer_to_binary(erlang:unique_integer([positive]) rem ?OPAQUES))/binary>>.

%% @doc What a line says.
-spec line(binary()) -> line().
line(<<"HD", Tokens/binary>>) -> {stored, Tokens};
line(<<"EN", Tokens/binary>>) -> {miss, Tokens};
line(<<"NS", Tokens/binary>>) -> {not_stored, Tokens};
line(<<"EX", Tokens/binary>>) -> {exists, Tokens};
line(<<"NF", Tokens/binary>>) -> {not_found, Tokens};
line(<<"VA ", Rest/binary>>) -> value(Rest, none);
line(_) -> other.

value(<<Digit, Rest/binary>>, none) when Digit >= $0, Digit =< $9 -> value(Rest, Digit - $0);
value(<<Digit, Rest/binary>>, N) when is_integer(N), Digit >= $0, Digit =< $9 -> value(Rest, 10 * N + Digit - $0);
value(_, none) -> other;
value(Tokens, N) -> {value, N, Tokens}.

%% @doc The tokens of a line, or `garbage' for what are none. Those that are not known here are passed over.
-spec tokens(binary()) -> tokens() | garbage.
tokens(Tokens) ->
    tokens(Tokens, #{}).

tokens(<<>>, Known) ->
    Known;
tokens(<<" ", Rest/binary>>, Known) ->
    {Token, Rest1} =
        case binary:split(Rest, <<" ">>) of
            [One, Others] -> {One, <<" ", Others/binary>>};
            [One] -> {One, <<>>}
        end,
    case token(Token) of
        garbage -> garbage;
        unknown -> tokens(Rest1, Known);
        {Key, Value} -> tokens(Rest1, Known#{Key => Value})
    end;
tokens(_, _) ->
    garbage.

token(<<>>) -> unknown;
token(<<"W">>) -> {won, true};
token(<<"X">>) -> {stale, true};
token(<<"Z">>) -> {leased, true};
token(<<"h0">>) -> {hit_before, false};
token(<<"h1">>) -> {hit_before, true};
token(<<"t-1">>) -> {ttl, infinity};
token(<<"f", Digits/binary>>) -> number(flags, Digits);
token(<<"c", Digits/binary>>) -> number(cas, Digits);
token(<<"t", Digits/binary>>) -> number(ttl, Digits);
token(<<"l", Digits/binary>>) -> number(last_access, Digits);
token(<<"s", Digits/binary>>) -> number(size, Digits);
token(<<"O", _/binary>> = Opaque) -> {opaque, binary:copy(Opaque)};
token(_) -> unknown.

number(Key, Digits) ->
    try binary_to_integer(Digits) of
        N when N >= 0, N =< ?MAX_NUMBER -> {Key, N};
        _ -> garbage
    catch
        error:badarg -> garbage
    end.
