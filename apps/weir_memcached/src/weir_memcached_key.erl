%% @doc Keys: as users give them, and as they are on the wire.
%%
%% What a protocol cannot carry is found here, so that it never reaches the wire, where a space or a line end in a key
%% would be taken for another command.
%% @private
-module(weir_memcached_key).

-export([wire/2, is_namespace/1]).

-export_type([naming/0]).

-type naming() :: {Namespace :: binary(), HashLong :: boolean(), TakeAny :: boolean()}.
%% What stands before every key; whether keys that are too long are hashed; whether they may have any bytes.

-define(MAX_KEY, 250).
%% So many bytes are at most ?MAX_KEY as base64.
-define(MAX_ANY, 186).
-define(MAX_NAMESPACE, 100).
-define(HASHED, "sha256:").

%% @doc The bytes of a key, by which its server is found, and what stands for them on the wire.
%%
%% Cost: one look at each byte; a key that is hashed also some 2 us.
-spec wire(term(), naming()) ->
    {ok, binary(), weir_memcached_request:wire_key()} | {error, {bad_key, term()}}.
wire(Key, {<<>>, _, _} = Naming) when is_binary(Key) ->
    case byte_size(Key) =< ?MAX_KEY andalso Key =/= <<>> andalso is_printable(Key) of
        true -> {ok, Key, Key};
        false -> named(Key, Key, Key, Naming)
    end;
wire(Key, {Namespace, _, _} = Naming) when is_binary(Key) ->
    named(Key, Key, <<Namespace/binary, Key/binary>>, Naming);
wire(Key, {Namespace, _, _} = Naming) when is_list(Key) ->
    try iolist_to_binary(Key) of
        Bytes -> named(Key, Bytes, <<Namespace/binary, Bytes/binary>>, Naming)
    catch
        error:badarg -> {error, {bad_key, Key}}
    end;
wire(Key, _) ->
    {error, {bad_key, Key}}.

named(Key, <<>>, _, _) ->
    {error, {bad_key, Key}};
named(Key, Bytes, Named, {Namespace, HashLong, TakeAny}) ->
    Size = byte_size(Named),
    case is_printable(Named) of
        true when Size =< ?MAX_KEY -> {ok, Bytes, Named};
        false when TakeAny, Size =< ?MAX_ANY -> {ok, Bytes, {base64, base64:encode(Named)}};
        IsPrintable when HashLong, IsPrintable orelse TakeAny -> {ok, Bytes, hashed(Namespace, Bytes)};
        _ -> {error, {bad_key, Key}}
    end.

hashed(Namespace, Bytes) ->
    Digest = binary:encode_hex(crypto:hash(sha256, Bytes)),
    <<Namespace/binary, ?HASHED, Digest/binary>>.

is_printable(<<Byte, Rest/binary>>) when Byte > $\s, Byte =/= 127 -> is_printable(Rest);
is_printable(<<>>) -> true;
is_printable(_) -> false.

%% @doc Whether this can stand before keys: at most 100 bytes that a key may have.
-spec is_namespace(term()) -> boolean().
is_namespace(Namespace) ->
    is_binary(Namespace) andalso byte_size(Namespace) =< ?MAX_NAMESPACE andalso is_printable(Namespace).
