%% @doc Values that are kept compressed, as the option `compress' of a client asks for, and bounded when they are
%% inflated: who wrote them may have meant harm.
%%
%% The bytes are those of zlib (RFC 1950), and one bit of the flags says that they are, so clients of other languages
%% read them that have the same bit: 8 in pylibmc, 2 in dalli.
%% @private
-module(weir_memcached_zip).

-export([deflate/3, inflate/4, inflate/2]).

-export_type([compress/0]).

-type compress() :: off | {Above :: pos_integer(), Flag :: pos_integer()}.

%% @doc Compresses what is larger than so many bytes, if that makes it smaller. An error `{bad_option, flags, Flags}' if
%% the flags have the bit already: who reads the item would take it for compressed.
%%
%% Cost: some 20 ns a byte of what is compressed, in the caller.
-spec deflate(iodata(), weir_memcached_codec:flags(), compress()) -> {iodata(), weir_memcached_codec:flags()}.
deflate(Data, Flags, off) ->
    {Data, Flags};
deflate(_, Flags, {_, Flag}) when Flags band Flag =/= 0 ->
    error({bad_option, flags, Flags});
deflate(Data, Flags, {Above, Flag}) ->
    Size = iolist_size(Data),
    Deflated = case Size > Above of true -> zlib:compress(Data); false -> Data end,
    case iolist_size(Deflated) < Size of
        true -> {Deflated, Flags bor Flag};
        false -> {Data, Flags}
    end.

%% @doc The bytes as they were, and the flags without the bit, if they are at most so many. An exception for what
%% zlib did not make.
-spec inflate(binary(), weir_memcached_codec:flags(), compress(), Max :: non_neg_integer()) ->
    {ok, binary(), weir_memcached_codec:flags()} | too_large.
inflate(Bytes, Flags, {_, Flag}, Max) when Flags band Flag =/= 0 ->
    case inflate(Bytes, Max) of
        {ok, Inflated} -> {ok, Inflated, Flags bxor Flag};
        too_large -> too_large
    end;
inflate(Bytes, Flags, _, _) ->
    {ok, Bytes, Flags}.

%% @doc What zlib has compressed, if it is at most so many bytes; no more than those and a piece are ever made.
-spec inflate(binary(), Max :: non_neg_integer()) -> {ok, binary()} | too_large.
inflate(Bytes, Max) ->
    Z = zlib:open(),
    try
        ok = zlib:inflateInit(Z),
        pieces(zlib:safeInflate(Z, Bytes), Z, Max, [])
    after
        zlib:close(Z)
    end.

pieces({More, Piece}, Z, Max, Pieces) ->
    Left = Max - iolist_size(Piece),
    case More of
        _ when Left < 0 -> too_large;
        continue -> pieces(zlib:safeInflate(Z, []), Z, Left, [Pieces | Piece]);
        finished ->
            %% An exception if that was not the end of what was compressed.
            ok = zlib:inflateEnd(Z),
            {ok, iolist_to_binary([Pieces | Piece])}
    end.
