%% @doc The commands of the meta protocol, as memcached 1.6.18 has them: mg, ms, md, ma, me. (mn is a line in
%% {@link weir_memcached_server_text}, and so is the data of ms.)
%%
%% Flags are read first, all of them; mistakes in them are told before anything is done, by the last of them, but one
%% that is unknown or comes twice at once. Then they are gone through in their order, and each puts into the answer what
%% it stands for: `T300 t' says the new time, `t T300' the old one.
%% @private
-module(weir_memcached_server_meta).

-export([command/4, set/3, stored/5]).

-export_type([tokens/0]).

-include("weir_memcached_server.hrl").

-define(MAX_FLAGS, 18).
-define(MAX_OPAQUE, 32).
-define(BAD_LINE, <<"CLIENT_ERROR bad command line format">>).
-define(BAD_TOKEN, <<"CLIENT_ERROR bad token in command line format">>).
-define(BAD_OPAQUE, <<"CLIENT_ERROR opaque token too long">>).
-define(BAD_FLAG, <<"CLIENT_ERROR invalid or duplicate flag">>).
-define(TOO_MANY, <<"CLIENT_ERROR options flags too long">>).

-type tokens() :: [binary()].
%% Flags as they came, in their order.

-record(flags, {
    key :: binary(),
    binary_key = false :: boolean(),
    value = false :: boolean(),
    quiet = false :: boolean(),
    no_update = false :: boolean(),
    %% The item may change, or be asked for what a hit changes.
    locked = false :: boolean(),
    vivify = none :: none | non_neg_integer(),
    exp = none :: none | non_neg_integer(),
    recache = 0 :: non_neg_integer(),
    client_flags = 0 :: non_neg_integer(),
    cas = none :: none | non_neg_integer(),
    mode = none :: none | char(),
    delta = 1 :: non_neg_integer(),
    initial = 0 :: non_neg_integer(),
    invalidate = false :: boolean()
}).

%% @doc Carries out a command other than ms and mn, named by its second letter. The answer is without the end of its
%% line; a value that is to be sent after its line comes by itself.
-spec command(char(), Args :: [binary()], weir_memcached_server_clock:time(), #cache{}) ->
    silent | binary() | {value, Head :: binary(), Value :: binary()}.
command($g, Args, Now, Cache) ->
    case checked(Args, <<"CLIENT_ERROR options flags are too long">>, Now, Cache) of
        {ok, Flags, Tokens} -> get(Flags, Tokens, Now, Cache);
        {bad_flag, Error} -> Error;
        Error -> Error
    end;
command($d, Args, Now, Cache) ->
    case checked(Args, ?TOO_MANY, Now, Cache) of
        {ok, Flags, Tokens} -> delete(Flags, Tokens, Now, Cache);
        {bad_flag, _} -> ?BAD_FLAG;
        Error -> Error
    end;
command($a, Args, Now, Cache) ->
    case checked(Args, ?TOO_MANY, Now, Cache) of
        {ok, Flags, Tokens} -> arithmetic(Flags, Tokens, Now, Cache);
        {bad_flag, _} -> ?BAD_FLAG;
        Error -> Error
    end;
command($e, Args, Now, Cache) ->
    debug(Args, Now, Cache);
command(_, _Args, _Now, _Cache) ->
    <<"ERROR">>.

checked([], _TooMany, _Now, _Cache) -> <<"ERROR">>;
checked([Key | _], _TooMany, _Now, _Cache) when byte_size(Key) > ?MAX_KEY -> ?BAD_LINE;
checked([_ | Tokens], TooMany, _Now, _Cache) when length(Tokens) >= ?MAX_FLAGS -> TooMany;
checked([Key | Tokens], _TooMany, Now, Cache) ->
    case flags(Key, Tokens, Now, Cache) of
        {ok, Flags} -> {ok, Flags, Tokens};
        {error, Error} -> {bad_flag, Error}
    end.

%% ---------------------------------------------------------------- flags

flags(Key, Tokens, Now, Cache) -> flags(Tokens, #flags{key = Key}, 0, none, {Now, Cache}).

flags([], Flags, _Seen, none, _Time) ->
    {ok, Flags};
flags([], _Flags, _Seen, Error, _Time) ->
    {error, Error};
flags([<<C, _/binary>> | _], _Flags, Seen, _Error, _Time) when C >= 127; Seen band (1 bsl C) =/= 0 ->
    {error, <<"CLIENT_ERROR duplicate flag">>};
flags([<<C, Argument/binary>> | Tokens], Flags, Seen, Error, Time) ->
    case flag(C, Argument, Flags, Time) of
        #flags{} = More -> flags(Tokens, More, Seen bor (1 bsl C), Error, Time);
        invalid -> {error, <<"CLIENT_ERROR invalid flag">>};
        same when Error =:= none -> flags(Tokens, Flags, Seen bor (1 bsl C), ?BAD_LINE, Time);
        same -> flags(Tokens, Flags, Seen bor (1 bsl C), Error, Time);
        Wrong -> flags(Tokens, Flags, Seen bor (1 bsl C), Wrong, Time)
    end.

%% The flags with this one; `same': it is wrong, and has no words of its own for that.
flag($b, _, #flags{key = Key} = Flags, _) ->
    case decode(Key) of
        {ok, Decoded} -> Flags#flags{key = Decoded, binary_key = true};
        error -> <<"CLIENT_ERROR error decoding key">>
    end;
flag($N, Ttl, Flags, Time) -> time(Ttl, Time, fun(Exp) -> Flags#flags{locked = true, vivify = Exp} end);
flag($T, Ttl, Flags, Time) -> time(Ttl, Time, fun(Exp) -> Flags#flags{locked = true, exp = Exp} end);
flag($R, Ttl, Flags, Time) -> time(Ttl, Time, fun(Exp) -> Flags#flags{locked = true, recache = Exp} end);
flag(C, _, Flags, _) when C =:= $l; C =:= $h -> Flags#flags{locked = true};
flag(C, _, Flags, _) when C =:= $O; C =:= $P; C =:= $L; C =:= $k; C =:= $s; C =:= $t; C =:= $c; C =:= $f -> Flags;
flag($v, _, Flags, _) -> Flags#flags{value = true};
flag($u, _, Flags, _) -> Flags#flags{no_update = true};
flag($q, _, Flags, _) -> Flags#flags{quiet = true};
flag($I, _, Flags, _) -> Flags#flags{invalidate = true};
flag($F, Number, Flags, _) ->
    case weir_memcached_server_number:unsigned32(Number) of
        {ok, Value} -> Flags#flags{client_flags = Value};
        error -> same
    end;
flag($C, Number, Flags, _) -> number(Number, ?BAD_TOKEN, fun(Cas) -> Flags#flags{cas = Cas} end);
flag($J, Number, Flags, _) ->
    number(Number, <<"CLIENT_ERROR invalid numeric initial value">>, fun(N) -> Flags#flags{initial = N} end);
flag($D, Number, Flags, _) ->
    number(Number, <<"CLIENT_ERROR invalid numeric delta value">>, fun(N) -> Flags#flags{delta = N} end);
flag($M, <<Mode>>, Flags, _) -> Flags#flags{mode = Mode};
flag($M, _, _Flags, _) -> <<"CLIENT_ERROR incorrect length for M token">>;
flag(_, _, _Flags, _) -> invalid.

time(Ttl, {Now, Cache}, Set) ->
    case weir_memcached_server_number:signed32(Ttl) of
        {ok, Seconds} -> Set(weir_memcached_server_clock:expiry(Seconds, Now, Cache));
        error -> ?BAD_TOKEN
    end.

number(Digits, Error, Set) ->
    case weir_memcached_server_number:unsigned(Digits) of
        {ok, Number} -> Set(Number);
        error -> Error
    end.

%% Base64 as memcached reads it: what is no character of it is left out, and what comes behind padding.
decode(Text) ->
    Digits = [Digit || <<C>> <= Text, Digit <- [digit(C)], Digit =/= none],
    case Digits of
        [_ | _] when length(Digits) rem 4 =:= 0 -> decode(Digits, []);
        _ -> error
    end.

decode([A, B, C, D | Rest], Done) ->
    Block = <<<<(bits(Digit)):6>> || Digit <- [A, B, C, D]>>,
    case length([pad || pad <- [A, B, C, D]]) of
        0 when Rest =:= [] -> {ok, iolist_to_binary(lists:reverse([Block | Done]))};
        0 -> decode(Rest, [Block | Done]);
        Pads when Pads =< 2 -> {ok, iolist_to_binary(lists:reverse([binary_part(Block, 0, 3 - Pads) | Done]))};
        _ -> error
    end.

bits(pad) -> 0;
bits(Digit) -> Digit.

digit(C) when C >= $A, C =< $Z -> C - $A;
digit(C) when C >= $a, C =< $z -> C - $a + 26;
digit(C) when C >= $0, C =< $9 -> C - $0 + 52;
digit($+) -> 62;
digit($/) -> 63;
digit($=) -> pad;
digit(_) -> none.

%% What every answer may repeat.
key_token(Key, true) -> <<" k", (base64:encode(Key))/binary, " b">>;
key_token(Key, false) -> <<" k", Key/binary>>.

%% The flags that come back from a command that found no item.
echo(Tokens, #flags{key = Key, binary_key = IsBinary}) -> echo(Tokens, Key, IsBinary, <<>>).

echo([<<"O", _/binary>> = Opaque | _], _Key, _IsBinary, _Done) when byte_size(Opaque) > ?MAX_OPAQUE -> error;
echo([<<"O", _/binary>> = Opaque | Tokens], Key, IsBinary, Done) ->
    echo(Tokens, Key, IsBinary, <<Done/binary, " ", Opaque/binary>>);
echo([<<"k", _/binary>> | Tokens], Key, IsBinary, Done) ->
    echo(Tokens, Key, IsBinary, <<Done/binary, (key_token(Key, IsBinary))/binary>>);
echo([_ | Tokens], Key, IsBinary, Done) ->
    echo(Tokens, Key, IsBinary, Done);
echo([], _Key, _IsBinary, Done) ->
    Done.

ttl(0, _Now) -> <<"-1">>;
%% What is over would be below 0, and memcached has no sign for it.
ttl(Exp, Now) -> integer_to_binary((Exp - Now) band 16#FFFFFFFF).

%% ---------------------------------------------------------------- mg

get(#flags{key = Key, locked = false} = Flags, Tokens, Now, Cache) ->
    case weir_memcached_server_items:find(Cache, Key, Now) of
        none ->
            missed(Flags, Tokens, Cache);
        Item ->
            case seen(Tokens, Item, false, Flags, Now) of
                {error, Item} ->
                    %% It was asked for nevertheless.
                    Flags#flags.no_update orelse weir_memcached_server_items:hit(Item, Now, Cache),
                    ?BAD_OPAQUE;
                {_, Item} = Result ->
                    found(Result, Flags, Now, Cache);
                _ ->
                    %% It is stale, and one who asks for it has to be told so, and no other.
                    get(Flags#flags{locked = true}, Tokens, Now, Cache)
            end
    end;
get(#flags{key = Key, vivify = Vivify} = Flags, Tokens, Now, Cache) ->
    Found = weir_memcached_server_items:change(Cache, Key, Now, fun
        (none) when Vivify =:= none ->
            {leave, none};
        (none) ->
            {_, New} = Result = seen(Tokens, new(Key, <<>>, Now, Cache), true, Flags, Now),
            {put, New, Result};
        (Old) ->
            case seen(Tokens, Old, false, Flags, Now) of
                {_, Old} = Result -> {leave, Result};
                {_, New} = Result -> {put, New, Result}
            end
    end),
    case Found of
        none -> missed(Flags, Tokens, Cache);
        no_memory -> <<"SERVER_ERROR out of memory storing object">>;
        Result -> found(Result, Flags, Now, Cache)
    end.

new(Key, Value, Now, Cache) ->
    (weir_memcached_server_items:new(Key, 0, 0, 0, Value, Now))#item{cas = weir_memcached_server_items:next_cas(Cache)}.

missed(#flags{quiet = Quiet} = Flags, Tokens, Cache) ->
    weir_memcached_server_counts:add(Cache, get_misses),
    case echo(Tokens, Flags) of
        error -> ?BAD_OPAQUE;
        _ when Quiet -> silent;
        Echo -> <<"EN", Echo/binary>>
    end.

found({error, _Item}, _Flags, _Now, _Cache) ->
    ?BAD_OPAQUE;
found({Head, #item{value = Value} = Item}, #flags{value = WithValue, exp = Exp} = Flags, Now, Cache) ->
    Flags#flags.no_update orelse weir_memcached_server_items:hit(Item, Now, Cache),
    weir_memcached_server_counts:add(Cache, case Exp of none -> get_hits; _ -> touch_hits end),
    case WithValue of
        true -> {value, <<"VA ", (integer_to_binary(byte_size(Value)))/binary, Head/binary, "\r\n">>, Value};
        false -> <<"HD", Head/binary>>
    end.

%% What the flags say of an item, and the item as they leave it.
seen(Tokens, Item, IsNew, Flags, Now) -> seen(Tokens, Item, IsNew, false, Flags, Now, <<>>).

seen([<<C, _/binary>> = Token | Tokens], Item, IsNew, Won, Flags, Now, Head) ->
    #item{key = Key, cas = Cas, exp = Exp, bits = Bits, flags = ClientFlags, seen = Seen, value = Value} = Item,
    Next = fun(More) -> seen(Tokens, Item, IsNew, Won, Flags, Now, <<Head/binary, More/binary>>) end,
    case C of
        $T ->
            seen(Tokens, Item#item{exp = Flags#flags.exp}, IsNew, Won, Flags, Now, Head);
        $N when IsNew ->
            seen(Tokens, Item#item{exp = Flags#flags.vivify}, IsNew, true, Flags, Now, Head);
        $R when Bits band ?TOKEN_SENT =:= 0, not IsNew, Exp =/= 0, Exp < Flags#flags.recache ->
            seen(Tokens, Item, IsNew, true, Flags, Now, Head);
        $s -> Next(<<" s", (integer_to_binary(byte_size(Value)))/binary>>);
        $t -> Next(<<" t", (ttl(Exp, Now))/binary>>);
        $c -> Next(<<" c", (integer_to_binary(Cas))/binary>>);
        $f -> Next(<<" f", (integer_to_binary(ClientFlags))/binary>>);
        $l -> Next(<<" l", (integer_to_binary(Now - (Seen bsr ?SEEN_SHIFT)))/binary>>);
        $h when Seen band ?FETCHED =:= 0 -> Next(<<" h0">>);
        $h -> Next(<<" h1">>);
        $O when byte_size(Token) > ?MAX_OPAQUE -> {error, Item};
        $O -> Next(<<" ", Token/binary>>);
        $k -> Next(key_token(Key, Bits band ?BINARY_KEY =/= 0));
        _ -> Next(<<>>)
    end;
seen([], #item{bits = Bits} = Item, _IsNew, Won, _Flags, _Now, Head) ->
    IsSent = Bits band ?TOKEN_SENT =/= 0,
    IsStale = Bits band ?STALE =/= 0,
    Wins = Won orelse (IsStale andalso not IsSent),
    Sent = case IsSent of true -> <<" Z">>; false -> <<>> end,
    Stale = case IsStale of true -> <<" X">>; false -> <<>> end,
    case Wins of
        true -> {<<Head/binary, Sent/binary, Stale/binary, " W">>, Item#item{bits = Bits bor ?TOKEN_SENT}};
        false -> {<<Head/binary, Sent/binary, Stale/binary>>, Item}
    end.

%% ---------------------------------------------------------------- ms

%% @doc What a line of ms asks for: to store the data that comes, to read over it, or nothing.
-spec set(Args :: [binary()], weir_memcached_server_clock:time(), #cache{}) ->
    {store,
        {weir_memcached_server_items:mode(), Key :: binary(), Flags :: non_neg_integer(), Exp :: non_neg_integer(),
            Bits :: non_neg_integer(), Quiet :: boolean(), tokens()},
        Size :: non_neg_integer()}
    | {swallow, binary(), Size :: non_neg_integer()}
    | {error, binary()}.
set([], _Now, _Cache) -> {error, <<"ERROR">>};
set([Key | _], _Now, _Cache) when byte_size(Key) > ?MAX_KEY -> {error, ?BAD_LINE};
set([_Key], _Now, _Cache) -> {error, ?BAD_LINE};
set([_ | Tokens], _Now, _Cache) when length(Tokens) >= ?MAX_FLAGS -> {error, ?TOO_MANY};
set([Key, Digits | Tokens], Now, Cache) ->
    case weir_memcached_server_number:signed32(Digits) of
        {ok, Size} when Size >= 0, Size =< 16#7FFFFFFD ->
            case flags(Key, Tokens, Now, Cache) of
                {ok, Flags} -> set_flags(Flags, Tokens, Size);
                {error, Error} -> {swallow, Error, Size}
            end;
        _ ->
            {error, ?BAD_LINE}
    end.

set_flags(#flags{mode = Letter, cas = Cas, invalidate = Invalidate} = Flags, Tokens, Size) ->
    IsLong = [Token || <<"O", _/binary>> = Token <- Tokens, byte_size(Token) > ?MAX_OPAQUE] =/= [],
    case mode(Letter) of
        error ->
            {swallow, <<"CLIENT_ERROR invalid mode for ms M token">>, Size};
        _ when IsLong ->
            {swallow, ?BAD_OPAQUE, Size};
        Plain ->
            #flags{key = Key, client_flags = ClientFlags, exp = Exp, binary_key = IsBinary, quiet = Quiet} = Flags,
            Bits = case IsBinary of true -> ?BINARY_KEY; false -> 0 end,
            Ends = case Exp of none -> 0; _ -> Exp end,
            {store, {with_cas(Plain, Cas, Invalidate), Key, ClientFlags, Ends, Bits, Quiet, Tokens}, Size}
    end.

mode(none) -> set;
mode($E) -> add;
mode($A) -> append;
mode($P) -> prepend;
mode($R) -> replace;
mode($S) -> set;
mode(_) -> error.

with_cas(Mode, none, _Invalidate) -> Mode;
with_cas(add, _Cas, _Invalidate) -> add;
with_cas(Mode, Cas, false) when Mode =:= set; Mode =:= replace -> {cas, Cas};
with_cas(Mode, Cas, true) when Mode =:= set; Mode =:= replace -> {cas_or_stale, Cas};
with_cas(Mode, Cas, _Invalidate) -> {Mode, Cas}.

%% @doc The answer to ms, with the end of its line.
-spec stored(weir_memcached_server_items:stored(), binary(), Bits :: non_neg_integer(), boolean(), tokens()) ->
    binary().
stored({stored, _}, _Key, _Bits, true, _Tokens) ->
    <<>>;
stored(no_memory, _Key, _Bits, _Quiet, _Tokens) ->
    <<"SERVER_ERROR out of memory storing object\r\n">>;
stored(Result, Key, Bits, _Quiet, Tokens) ->
    {Code, Cas} =
        case Result of
            {stored, Unique} -> {<<"HD">>, Unique};
            exists -> {<<"EX">>, 0};
            not_found -> {<<"NF">>, 0};
            not_stored -> {<<"NS">>, 0}
        end,
    Echo = <<<<(stored_token(Token, Key, Bits, Cas))/binary>> || Token <- Tokens>>,
    <<Code/binary, Echo/binary, "\r\n">>.

stored_token(<<"O", _/binary>> = Opaque, _Key, _Bits, _Cas) -> <<" ", Opaque/binary>>;
stored_token(<<"k", _/binary>>, Key, Bits, _Cas) -> key_token(Key, Bits band ?BINARY_KEY =/= 0);
stored_token(<<"c", _/binary>>, _Key, _Bits, Cas) -> <<" c", (integer_to_binary(Cas))/binary>>;
stored_token(_, _Key, _Bits, _Cas) -> <<>>.

%% ---------------------------------------------------------------- md

delete(#flags{key = Key, quiet = Quiet} = Flags, Tokens, Now, Cache) ->
    case echo(Tokens, Flags) of
        error ->
            ?BAD_OPAQUE;
        Echo ->
            case weir_memcached_server_items:change(Cache, Key, Now, fun(Old) -> deleted(Old, Flags, Cache) end) of
                not_found -> missed_deletion(<<"NF", Echo/binary>>, Cache);
                exists -> missed_deletion(<<"EX", Echo/binary>>, Cache);
                no_memory -> <<"SERVER_ERROR out of memory storing object">>;
                deleted ->
                    weir_memcached_server_counts:add(Cache, delete_hits),
                    done(<<"HD", Echo/binary>>, Quiet);
                marked ->
                    done(<<"HD", Echo/binary>>, Quiet)
            end
    end.

missed_deletion(Reply, Cache) ->
    weir_memcached_server_counts:add(Cache, delete_misses),
    Reply.

done(_Reply, true) -> silent;
done(Reply, false) -> Reply.

deleted(none, _Flags, _Cache) ->
    {leave, not_found};
deleted(#item{cas = Cas}, #flags{cas = Wanted}, _Cache) when Wanted =/= none, Wanted =/= Cas ->
    {leave, exists};
deleted(#item{exp = Exp, bits = Bits} = Old, #flags{invalidate = true, exp = New}, Cache) ->
    Stale = Old#item{
        cas = weir_memcached_server_items:next_cas(Cache),
        exp = case New of none -> Exp; _ -> New end,
        bits = (Bits bor ?STALE) band bnot ?TOKEN_SENT
    },
    {put, Stale, marked};
deleted(_Old, _Flags, _Cache) ->
    {remove, deleted}.

%% ---------------------------------------------------------------- ma

arithmetic(#flags{mode = Mode} = Flags, Tokens, Now, Cache) ->
    case direction(Mode) of
        error -> <<"CLIENT_ERROR invalid mode for ma M token">>;
        Direction -> arithmetic(Direction, Flags, Tokens, Now, Cache)
    end.

direction(none) -> incr;
direction($I) -> incr;
direction($+) -> incr;
direction($D) -> decr;
direction($-) -> decr;
direction(_) -> error.

arithmetic(Direction, #flags{key = Key, delta = Delta, cas = Cas, quiet = Quiet} = Flags, Tokens, Now, Cache) ->
    Unique = case Cas of none -> 0; _ -> Cas end,
    Fun = fun(Item, Number) -> counted(Item, Number, Flags, Tokens, Now, Cache) end,
    case weir_memcached_server_items:arithmetic(Cache, Key, {Direction, Delta, Unique}, Fun, Now) of
        {ok, Reply} ->
            weir_memcached_server_counts:add(Cache, case Direction of incr -> incr_hits; decr -> decr_hits end),
            case Reply of
                error -> ?BAD_OPAQUE;
                _ -> done(Reply, Quiet)
            end;
        {new, error} ->
            ?BAD_OPAQUE;
        {new, Reply} ->
            weir_memcached_server_counts:add(Cache, total_items),
            Reply;
        not_found ->
            weir_memcached_server_counts:add(Cache, case Direction of incr -> incr_misses; decr -> decr_misses end),
            without_item(<<"NF">>, Tokens, Flags);
        exists ->
            without_item(<<"EX">>, Tokens, Flags);
        not_a_number ->
            <<"CLIENT_ERROR cannot increment or decrement non-numeric value">>;
        no_memory ->
            <<"SERVER_ERROR out of memory">>
    end.

without_item(Code, Tokens, Flags) ->
    case echo(Tokens, Flags) of
        error -> ?BAD_OPAQUE;
        Echo -> <<Code/binary, Echo/binary>>
    end.

counted(none, none, #flags{vivify = none}, _Tokens, _Now, _Cache) ->
    {leave, not_found};
counted(none, none, #flags{key = Key, initial = Initial} = Flags, Tokens, Now, Cache) ->
    Item = new(Key, integer_to_binary(Initial), Now, Cache),
    {New, Reply} = counted_reply(Tokens, Item, true, Initial, Flags, Now),
    {put, New, {new, Reply}};
counted(Item, Number, Flags, Tokens, Now, Cache) ->
    Next = Item#item{cas = weir_memcached_server_items:next_cas(Cache)},
    {New, Reply} = counted_reply(Tokens, Next, false, Number, Flags, Now),
    {put, New, {ok, Reply}}.

counted_reply(Tokens, Item, IsNew, Number, #flags{value = WithValue} = Flags, Now) ->
    {New, Echo} = counted_tokens(Tokens, Item, IsNew, Flags, Now, <<>>),
    Digits = integer_to_binary(Number),
    Reply =
        case WithValue of
            _ when Echo =:= error -> error;
            true -> <<"VA ", (integer_to_binary(byte_size(Digits)))/binary, Echo/binary, "\r\n", Digits/binary>>;
            false -> <<"HD", Echo/binary>>
        end,
    {New, Reply}.

counted_tokens([<<C, _/binary>> = Token | Tokens], #item{cas = Cas, exp = Exp} = Item, IsNew, Flags, Now, Done) ->
    Next = fun(More) -> counted_tokens(Tokens, Item, IsNew, Flags, Now, <<Done/binary, More/binary>>) end,
    case C of
        $c -> Next(<<" c", (integer_to_binary(Cas))/binary>>);
        $t -> Next(<<" t", (ttl(Exp, Now))/binary>>);
        $T -> counted_tokens(Tokens, Item#item{exp = Flags#flags.exp}, IsNew, Flags, Now, Done);
        $N when IsNew -> counted_tokens(Tokens, Item#item{exp = Flags#flags.vivify}, IsNew, Flags, Now, Done);
        $O when byte_size(Token) > ?MAX_OPAQUE -> {Item, error};
        $O -> Next(<<" ", Token/binary>>);
        $k -> Next(key_token(Flags#flags.key, Flags#flags.binary_key));
        _ -> Next(<<>>)
    end;
counted_tokens([], Item, _IsNew, _Flags, _Now, Done) ->
    {Item, Done}.

%% ---------------------------------------------------------------- me

debug([Key | Tokens], Now, Cache) when byte_size(Key) =< ?MAX_KEY ->
    Decoded = case Tokens of [<<"b">> | _] -> decode(Key); _ -> {ok, Key} end,
    case Decoded of
        {ok, Plain} ->
            weir_memcached_server_counts:add(Cache, cmd_meta),
            case weir_memcached_server_items:find(Cache, Plain, Now) of
                none -> <<"EN">>;
                Item -> debug_item(Item, Now)
            end;
        error ->
            ?BAD_LINE
    end;
debug(_Args, _Now, _Cache) ->
    ?BAD_LINE.

%% All items are of one class.
debug_item(#item{key = Key, cas = Cas, exp = Exp, bits = Bits, seen = Seen} = Item, Now) ->
    Name = case Bits band ?BINARY_KEY of 0 -> Key; _ -> base64:encode(Key) end,
    iolist_to_binary(
        io_lib:format("ME ~s exp=~b la=~b cas=~b fetch=~s cls=1 size=~b", [
            Name,
            case Exp of 0 -> -1; _ -> Now - Exp end,
            Now - (Seen bsr ?SEEN_SHIFT),
            Cas,
            case Seen band ?FETCHED of 0 -> "no"; _ -> "yes" end,
            weir_memcached_server_items:item_size(Item)
        ])
    ).
