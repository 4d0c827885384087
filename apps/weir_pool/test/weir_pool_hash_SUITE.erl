%% weir_pool_hash: what the paper promises, measured.
-module(weir_pool_hash_SUITE).

-include_lib("proper/include/proper.hrl").
-include("weir_pool_suite.hrl").

%% The definition that the paper starts from: at every size, the key's own generator decides whether it jumps to the
%% newest slot. The reference takes a draw for each jump, and compares fractions instead of dividing.
agrees_with_a_reference(_Config) ->
    quickcheck(
        ?FORALL(
            {Key, Size},
            {any(), range(1, 400)},
            weir_pool_hash:slot(Key, Size) =:= reference(Key, Size)
        ),
        500
    ).

reference(Key, Size) ->
    State = rand:mwc59(erlang:phash2(Key, 1 bsl 32) + 1),
    reference(2, Size, 1, State).

reference(N, Size, Slot, _State) when N > Size ->
    Slot;
reference(N, Size, Slot, State) ->
    %% The key stays in Slot up to the size that the draw allows: it jumps to slot N if N > Slot * 2^32 / (V + 1),
    %% rounded down.
    V1 = rand:mwc59_value32(State) + 1,
    case N * V1 > (Slot bsl 32) of
        true -> reference(N + 1, Size, N, rand:mwc59(State));
        false -> reference(N + 1, Size, Slot, State)
    end.

%% Slots are the same on all releases and nodes: these were computed once. A change of them is a change for users.
known_slots_stay(_Config) ->
    ?assertEqual(
        [{1, 1}, {2, 1}, {3, 1}, {20, 17}, {1000, 578}],
        [{Size, weir_pool_hash:slot(<<"key">>, Size)} || Size <- [1, 2, 3, 20, 1000]]
    ),
    ?assertEqual(
        [52, 14, 41, 47, 7, 22, 38, 59, 11, 40, 64, 17],
        [weir_pool_hash:slot(Key, 64) || Key <- [0, 1, -1, a, "a", <<"a">>, {}, [], #{}, 1.5, {user, 42}, 1 bsl 70]]
    ).

growth_moves_keys_to_the_new_slot_alone(_Config) ->
    quickcheck(
        ?FORALL(
            {Key, Size},
            {any(), oneof([range(1, 50), range(1, 100000)])},
            lists:member(
                weir_pool_hash:slot(Key, Size + 1),
                [weir_pool_hash:slot(Key, Size), Size + 1]
            )
        ),
        2000
    ).

%% 200,000 keys of several kinds; binaries of digits are the kind that leaves patterns in phash2.
spreads_evenly(_Config) ->
    Kinds = [
        {integers, fun(I) -> I end},
        {binaries, fun integer_to_binary/1},
        {strings, fun integer_to_list/1},
        {tuples, fun(I) -> {user, I} end},
        {prefixed, fun(I) -> <<"session:", (integer_to_binary(I))/binary>> end},
        {multiples, fun(I) -> I * 65536 end},
        {floats, fun(I) -> I / 7 end}
    ],
    [
        even(fun(I) -> weir_pool_hash:slot(Key(I), Size) end, Size, {Kind, Size})
     || {Kind, Key} <- Kinds, Size <- [2, 3, 7, 8, 20, 1000]
    ].

even(Slot, Size, What) ->
    Counts = counters:new(Size, []),
    [counters:add(Counts, Slot(I), 1) || I <- lists:seq(1, 50000)],
    weir_pool_test_lib:assert_even([counters:get(Counts, I) || I <- lists:seq(1, Size)], What).

even(Slot, Size, Keys, What) ->
    Counts = counters:new(Size, []),
    [counters:add(Counts, Slot(Key), 1) || Key <- Keys],
    weir_pool_test_lib:assert_even([counters:get(Counts, I) || I <- lists:seq(1, Size)], What).

size_limits(_Config) ->
    Max = 134217727,
    ?assertEqual(1, weir_pool_hash:slot(key, 1)),
    Slots = [weir_pool_hash:slot(Key, Max) || Key <- lists:seq(1, 10000)],
    ?assert(lists:all(fun(Slot) -> Slot >= 1 andalso Slot =< Max end, Slots)),
    [?assertError(function_clause, weir_pool_hash:slot(key, Size)) || Size <- [0, Max + 1, 1.0]].

quickcheck(Property, Tests) ->
    weir_kit_property:holds(Property, [{numtests, Tests}, quiet, noshrink]).
