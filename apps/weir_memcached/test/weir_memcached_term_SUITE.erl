%% Terms from bytes that somebody else may have written. The oracle of what a term takes is the runtime's own measure.
-module(weir_memcached_term_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

-define(PLENTY, 1 bsl 30).

%% What binary_to_term gives, from whatever term_to_binary makes.
any_term(_) ->
    Holds = ?FORALL({Term, Options}, {some_term(), options()},
        Term =:= weir_memcached_term:decode(term_to_binary(Term, Options), ?PLENTY)),
    weir_kit_property:holds(Holds, [quiet, {numtests, 100}, {max_size, 12}]).

%% It is refused with a byte less than it takes, and taken with some times as much.
limits(_) ->
    Holds = ?FORALL({Term, Options}, {some_term(), options()}, begin
        Bytes = term_to_binary(Term, Options),
        Takes = erts_debug:flat_size(Term) * 8,
        Term =:= weir_memcached_term:decode(Bytes, max(4 * Takes, byte_size(term_to_binary(Term))) + 100) andalso
            (Takes =:= 0 orelse refused(Bytes, Takes - 1))
    end),
    weir_kit_property:holds(Holds, [quiet, {numtests, 100}, {max_size, 12}]).

refused(Bytes, Max) ->
    try weir_memcached_term:decode(Bytes, Max) of
        _ -> false
    catch
        error:{too_large, Max} -> true
    end.

options() -> oneof([[], [compressed], [{compressed, 9}], [{minor_version, 1}]]).

some_term() -> ?SIZED(Size, some_term(Size)).

some_term(0) ->
    oneof([integer(), float(), binary(), bitstring(), atom_of_mine(), [], {}, #{}, large_integer(), identifier(),
        ?LET(N, range(50, 200), binary:copy(<<"b">>, N)), "a string"]);
some_term(Size) ->
    Part = some_term(Size div 3),
    oneof([some_term(0), list(Part), ?LET(L, list(Part), list_to_tuple(L)), [Part | Part],
        ?LET(L, list({Part, Part}), maps:from_list(L)),
        ?LET(N, range(20, 80), maps:from_list([{I, I} || I <- lists:seq(1, N)]))]).

atom_of_mine() -> oneof([ok, 'with spaces', 'größe', true]).

large_integer() -> ?LET({N, Bits}, {integer(), range(64, 3000)}, N bsl Bits).

identifier() -> oneof([self(), make_ref(), hd(erlang:ports()), other_pid(), other_reference()]).

%% Of a node that is not this one.
other_pid() -> binary_to_term(<<131, 88, 119, 3, "a@b", 1:32, 2:32, 3:32>>).
other_reference() -> binary_to_term(<<131, 90, 3:16, 119, 3, "a@b", 1:32, 2:32, 3:32, 4:32>>).

%% What asked for gigabytes.
bombs(_) ->
    Max = 16 bsl 20,
    Nils = term_to_binary(lists:duplicate(2_500_000, []), [{compressed, 9}]),
    ?assert(byte_size(Nils) < 20_000),
    Bombs = [
        Nils,
        term_to_binary(lists:duplicate(1_250_000, [])),
        term_to_binary(lists:duplicate(1_250_000, {}), [compressed]),
        term_to_binary(lists:duplicate(1_250_000, 1)),
        term_to_binary(binary:copy(<<0>>, Max), [compressed]),
        %% Sizes alone.
        <<131, 108, 16#FFFFFFFF:32, 106>>,
        <<131, 105, 16#FFFFFFFF:32, 106>>,
        <<131, 116, 16#FFFFFFFF:32, 106>>,
        <<131, 80, 16#FFFFFFFF:32, 120>>
    ],
    lists:foreach(fun(Bomb) ->
        %% Whoever tries has little memory: the bytes, and what they inflate to.
        ?assertEqual(refused, with_heap_of(1 bsl 20, fun() ->
            true = refused(Bomb, Max),
            refused
        end))
    end, Bombs).

%% Runs with so many words at most.
with_heap_of(Words, Fun) ->
    Limit = #{size => Words, kill => true, error_logger => false},
    {Pid, Monitor} = spawn_opt(fun() -> exit({result, Fun()}) end, [monitor, {max_heap_size, Limit}]),
    receive
        {'DOWN', Monitor, process, Pid, {result, Result}} -> Result;
        {'DOWN', Monitor, process, Pid, Other} -> Other
    end.

%% A size that is not that of what was compressed.
lies(_) ->
    <<131, 80, Size:32, Compressed/binary>> = term_to_binary(lists:duplicate(100_000, []), [{compressed, 9}]),
    [
        ?assertError(_, weir_memcached_term:decode(<<131, 80, Lie:32, Compressed/binary>>, ?PLENTY))
     || Lie <- [0, 1, Size - 1, Size + 1, 2 * Size]
    ],
    ?assertError(_, weir_memcached_term:decode(<<131, 80, Size:32, (binary:part(Compressed, 0, 50))/binary>>, ?PLENTY)).

funs(_) ->
    N = erlang:unique_integer(),
    Funs = [fun() -> N end, fun lists:map/2, fun(X) -> X + N end],
    lists:foreach(fun(Fun) ->
        [
            ?assertError(badarg, weir_memcached_term:decode(term_to_binary(Term, Options), ?PLENTY))
         || Term <- [Fun, [Fun], {ok, Fun}, #{a => Fun}, #{Fun => a}, [1, "two", {3.0, <<"4">>, [Fun]}]],
            Options <- [[], [compressed]]
        ]
    end, Funs).

unknown_atoms(_) ->
    Name = iolist_to_binary(["weir_unknown_", integer_to_list(erlang:unique_integer([positive]))]),
    ?assertError(badarg, weir_memcached_term:decode(<<131, 119, (byte_size(Name)), Name/binary>>, ?PLENTY)),
    ?assertError(badarg, binary_to_existing_atom(Name)).

%% Bytes that are no term are an error, and what is a term is the same for binary_to_term.
any_bytes(_) ->
    Holds = ?FORALL(Bytes, oneof([binary(), changed()]), begin
        Expected = value(fun() -> binary_to_term(Bytes, [safe]) end),
        case value(fun() -> weir_memcached_term:decode(Bytes, ?PLENTY) end) of
            {ok, Term} -> Expected =:= {ok, Term};
            error -> true
        end
    end),
    weir_kit_property:holds(Holds, [quiet, {numtests, 100}, {max_size, 12}]).

%% A term's bytes, of which one is another.
changed() ->
    ?LET({Term, Options, At, Byte}, {some_term(), options(), non_neg_integer(), range(0, 255)}, begin
        Bytes = term_to_binary(Term, Options),
        Place = At rem byte_size(Bytes),
        <<Before:Place/binary, _, After/binary>> = Bytes,
        %% Not what asks binary_to_term for gigabytes.
        case Place < 8 of
            true -> Bytes;
            false -> <<Before/binary, Byte, After/binary>>
        end
    end).

value(Fun) ->
    try {ok, Fun()} catch error:_ -> error end.

%% A term that was read keeps nothing of the bytes around it.
not_larger_than_asked(_) ->
    Value = binary:copy(<<"v">>, 100),
    Block = <<(term_to_binary({value, Value}))/binary, 0:8_000_000>>,
    Part = binary:part(Block, 0, byte_size(term_to_binary({value, Value}))),
    {ok, {value, Read}} = weir_memcached_codec:decode(term, Part, 0, ?PLENTY),
    ?assert(binary:referenced_byte_size(Read) < 1000),
    {ok, Raw} = weir_memcached_codec:decode(raw, Part, 0, ?PLENTY),
    ?assert(binary:referenced_byte_size(Raw) < 1000).
