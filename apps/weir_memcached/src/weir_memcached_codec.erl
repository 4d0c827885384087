%% @doc How values become bytes and bytes become values again.
%%
%% Three codecs are built in. `term' (the default) takes any term but those with funs: `term_to_binary/1', and back with
%% the `safe' option, so what somebody else put into the cache cannot create atoms. Nor can it take more memory than the
%% client's option `max_term' says, compressed or not, or bring a fun: such bytes are not decoded. `raw' takes iodata
%% and gives binaries. `json', on OTP 27 and later, takes what `json:encode/1' takes, and gives what `json:decode/1'
%% gives: strings are binaries; a byte of it may become eight bytes of a term, and so many are counted for `max_term'.
%%
%% A codec of one's own is a module with the two callbacks below. They run in the caller, so a slow one
%% delays nobody else. It may use the 32 bits of flags that memcached keeps with every item, for
%% instance to say that a value is compressed:
%% ```
%% encode(Term, Flags) ->
%%     case term_to_binary(Term) of
%%         Bin when byte_size(Bin) > 4096 -> {zlib:zip(Bin), Flags bor 1};
%%         Bin -> {Bin, Flags}
%%     end.
%%
%% decode(Bin, Flags) when Flags band 1 =:= 1 -> binary_to_term(zlib:unzip(Bin), [safe]);
%% decode(Bin, _) -> binary_to_term(Bin, [safe]).
%% '''
-module(weir_memcached_codec).

-export([encode/3, decode/4, is_codec/1]).

-export_type([codec/0, flags/0]).

-type codec() :: term | raw | json | module().
-type flags() :: 0..16#FFFFFFFF.

-callback encode(Value :: term(), flags()) -> {iodata(), flags()}.
%% Gives the bytes to store. The flags are those that the user asked for, or 0. An exception passes through to the
%% caller; nothing has been sent then.

-callback decode(binary(), flags()) -> Value :: term().
%% Gives the value for bytes that were stored. An exception makes the result `{error, {undecodable, Bytes}}'.

%% @doc Encodes a value. With `raw', a value that is no iodata is an error `badarg'.
-spec encode(codec(), term(), flags()) -> {iodata(), flags()}.
encode(term, Value, Flags) ->
    {term_to_binary(Value), Flags};
encode(raw, Value, Flags) when is_binary(Value) ->
    {Value, Flags};
encode(raw, Value, Flags) when is_list(Value) ->
    {iolist_to_binary(Value), Flags};
encode(raw, Value, _) ->
    error(badarg, [Value]);
encode(json, Value, Flags) ->
    {json(encode, Value), Flags};
encode(Module, Value, Flags) ->
    Module:encode(Value, Flags).

%% @doc Decodes what was stored, to a term of at most so many bytes if the codec is `term'. The result holds on to
%% nothing of a larger binary that `Bytes' is a part of. An error `{bad_option, codec, Codec}' if there is no such
%% module.
-spec decode(codec(), binary(), flags(), MaxTerm :: pos_integer()) -> {ok, term()} | {error, {undecodable, binary()}}.
decode(Codec, Bytes, Flags, MaxTerm) ->
    %% First: a decoded term may refer to parts of its input.
    Own = own(Bytes),
    try
        {ok, decode_own(Codec, Own, Flags, MaxTerm)}
    catch
        error:undef:Stack ->
            is_codec(Codec) orelse erlang:raise(error, {bad_option, codec, Codec}, Stack),
            {error, {undecodable, Own}};
        _:_ ->
            {error, {undecodable, Own}}
    end.

decode_own(raw, Bytes, _, _) -> Bytes;
decode_own(term, Bytes, _, MaxTerm) -> weir_memcached_term:decode(Bytes, MaxTerm);
decode_own(json, Bytes, _, MaxTerm) when 8 * byte_size(Bytes) =< MaxTerm -> json(decode, Bytes);
decode_own(Module, Bytes, Flags, _) -> Module:decode(Bytes, Flags).

%% Of OTP, but not of the oldest release that this compiles on.
json(Function, Argument) -> apply(json, Function, [Argument]).

own(Bytes) ->
    case binary:referenced_byte_size(Bytes) - byte_size(Bytes) > byte_size(Bytes) div 8 of
        true -> binary:copy(Bytes);
        false -> Bytes
    end.

%% @private
%% Whether there is such a codec. Cost: that of loading the module, the first time.
-spec is_codec(term()) -> boolean().
is_codec(Codec) when Codec =:= term; Codec =:= raw -> true;
is_codec(json) -> code:ensure_loaded(json) =:= {module, json};
is_codec(Module) when is_atom(Module) ->
    code:ensure_loaded(Module) =:= {module, Module} andalso erlang:function_exported(Module, encode, 2) andalso
        erlang:function_exported(Module, decode, 2);
is_codec(_) -> false.
