%% A codec of a user's own: the lowest flag says that the value is compressed, another that it was turned round.
-module(weir_memcached_test_codec).
-behaviour(weir_memcached_codec).

-export([encode/2, decode/2]).

encode({compressed, Bytes}, Flags) -> {zlib:zip(Bytes), Flags bor 1};
encode({backwards, Bytes}, Flags) -> {lists:reverse(binary_to_list(Bytes)), Flags bor 2};
encode(Bytes, Flags) when is_binary(Bytes) -> {Bytes, Flags}.

decode(Bytes, Flags) when Flags band 1 =:= 1 -> {compressed, Flags, zlib:unzip(Bytes)};
decode(Bytes, Flags) when Flags band 2 =:= 2 ->
    {backwards, Flags, list_to_binary(lists:reverse(binary_to_list(Bytes)))};
decode(Bytes, Flags) -> {plain, Flags, Bytes}.
