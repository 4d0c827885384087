%% @doc Terms from bytes that somebody else may have written: bounded before anything of them is made.
%%
%% `binary_to_term/2' with `safe' creates no atoms, but it takes the memory that the bytes ask for: 39 kB of a
%% compressed list of empty lists ask for hundreds of megabytes. So the bytes are read twice. The first time nothing is
%% made: each part of the external term format says how many more follow it and how much memory it takes, so one number
%% is what is still to come and another what was taken, whatever the depth. Bytes that ask for more than they may, or
%% that hold a fun, are not read again.
%%
%% A term that was compressed is inflated in pieces, up to the size that it declares, which may not be above the limit
%% either.
%%
%% Source of the format: "External Term Format", ERTS User's Guide; what a term takes: "Memory", Efficiency Guide.
%% @private
-module(weir_memcached_term).

-export([decode/2]).

%% Bytes of a word, words of an identifier of another node, and of a reference to a binary outside of the heap.
-define(WORD, 8).
-define(IDENTIFIER, 8).
-define(REFERENCE, 8).
-define(ON_HEAP, 64).
%% Words of a pair in a large map, at most: a leaf, and its part of the nodes above it.
-define(PAIR, 7).

%% @doc The term, if it takes at most so many bytes of memory. Errors: `badarg' for what is no term, has an atom that
%% this node does not know, or has a fun; `{too_large, MaxBytes}'.
%%
%% Cost: some nanoseconds for each part of the term more than `binary_to_term/2'.
-spec decode(binary(), MaxBytes :: pos_integer()) -> term().
decode(<<131, 80, Size:32, _/binary>>, Max) when Size > Max ->
    error({too_large, Max});
decode(<<131, 80, Size:32, Compressed/binary>>, Max) ->
    checked(inflated(Compressed, Size), Max);
decode(<<131, Parts/binary>>, Max) ->
    checked(Parts, Max);
decode(_, _) ->
    error(badarg).

checked(Parts, Max) ->
    case weigh(Parts, 1, Max) of
        too_large -> error({too_large, Max});
        _Left -> binary_to_term(<<131, Parts/binary>>, [safe])
    end.

inflated(Compressed, Size) ->
    case weir_memcached_zip:inflate(Compressed, Size) of
        {ok, Parts} when byte_size(Parts) =:= Size -> Parts;
        _ -> error(badarg)
    end.

%% So many parts are to come, and so many bytes may still be taken.
weigh(_, _, Left) when Left < 0 -> too_large;
weigh(_, 0, Left) -> Left;
weigh(<<97, _, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left);
weigh(<<98, _:32, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left);
weigh(<<106, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left);
weigh(<<119, Size, _:Size/binary, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left);
weigh(<<118, Size:16, _:Size/binary, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left);
weigh(<<115, Size, _:Size/binary, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left);
weigh(<<100, Size:16, _:Size/binary, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left);
weigh(<<109, Size:32, _:Size/binary, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left - binary(Size));
weigh(<<77, Size:32, _, _:Size/binary, Parts/binary>>, N, Left) ->
    weigh(Parts, N - 1, Left - binary(Size) - ?WORD * ?REFERENCE);
weigh(<<108, Size:32, Parts/binary>>, N, Left) -> weigh(Parts, N + Size, Left - 2 * ?WORD * Size);
weigh(<<107, Size:16, _:Size/binary, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left - 2 * ?WORD * Size);
weigh(<<104, Size, Parts/binary>>, N, Left) -> weigh(Parts, N - 1 + Size, Left - ?WORD * (Size + 1));
weigh(<<105, Size:32, Parts/binary>>, N, Left) -> weigh(Parts, N - 1 + Size, Left - ?WORD * (Size + 1));
weigh(<<116, Size:32, Parts/binary>>, N, Left) -> weigh(Parts, N - 1 + 2 * Size, Left - ?WORD * (?PAIR * Size + 5));
weigh(<<70, _:64, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left - 2 * ?WORD);
weigh(<<99, _:31/binary, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left - 2 * ?WORD);
weigh(<<110, Size, _, _:Size/binary, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left - 2 * ?WORD - Size);
weigh(<<111, Size:32, _, _:Size/binary, Parts/binary>>, N, Left) -> weigh(Parts, N - 1, Left - 2 * ?WORD - Size);
%% Identifiers: the node, an atom, comes first.
weigh(<<88, Parts/binary>>, N, Left) -> identifier(Parts, 12, N, Left);
weigh(<<103, Parts/binary>>, N, Left) -> identifier(Parts, 9, N, Left);
weigh(<<89, Parts/binary>>, N, Left) -> identifier(Parts, 8, N, Left);
weigh(<<120, Parts/binary>>, N, Left) -> identifier(Parts, 12, N, Left);
weigh(<<102, Parts/binary>>, N, Left) -> identifier(Parts, 5, N, Left);
weigh(<<90, Ids:16, Parts/binary>>, N, Left) -> identifier(Parts, 4 + 4 * Ids, N, Left);
weigh(<<114, Ids:16, Parts/binary>>, N, Left) -> identifier(Parts, 1 + 4 * Ids, N, Left);
weigh(<<101, Parts/binary>>, N, Left) -> identifier(Parts, 5, N, Left);
%% Funs of all kinds, and what there is no word for here.
weigh(_, _, _) -> error(badarg).

binary(Size) when Size =< ?ON_HEAP -> 3 * ?WORD + Size;
binary(Size) -> ?WORD * ?REFERENCE + Size.

identifier(<<Tag, Parts/binary>>, Size, N, Left) when Tag =:= 119; Tag =:= 115 ->
    <<Node, _:Node/binary, _:Size/binary, Others/binary>> = Parts,
    weigh(Others, N - 1, Left - ?WORD * ?IDENTIFIER);
identifier(<<Tag, Parts/binary>>, Size, N, Left) when Tag =:= 118; Tag =:= 100 ->
    <<Node:16, _:Node/binary, _:Size/binary, Others/binary>> = Parts,
    weigh(Others, N - 1, Left - ?WORD * ?IDENTIFIER);
identifier(_, _, _, _) ->
    error(badarg).
