%% weir_pool_waiters against a sorted list.
-module(weir_pool_waiters_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-export([all/0]).
-export([agrees_with_a_list/1, retain_goes_round/1, keeps_places/1, empty/1]).

all() -> [agrees_with_a_list, retain_goes_round, keeps_places, empty].

%% ---------------------------------------------------------------- the model

%% A sorted list of {Key, Value}. Times come again, so references have to keep requests of the same moment apart.
command() ->
    oneof([
        {insert, range(0, 20)},
        {insert, range(0, 20)},
        {remove, range(0, 30)},
        next,
        oldest,
        size,
        fold,
        {drop_even, range(0, 5)}
    ]).

agrees_with_a_list(_Config) ->
    Ran = counters:new(1, []),
    quickcheck(
        ?FORALL(
            {Order, Commands},
            {oneof([fifo, lifo]), list(command())},
            begin
                counters:add(Ran, 1, length(Commands)),
                run(Commands, Order, weir_pool_waiters:new(Order), [], {})
            end
        ),
        2000
    ),
    ?assert(counters:get(Ran, 1) > 10000).

run([], _Order, _Waiters, _List, _Cursor) ->
    true;
run([{insert, At} | More], Order, Waiters, List, Cursor) ->
    Key = {At, make_ref()},
    Value = erlang:unique_integer([positive]),
    run(More, Order, weir_pool_waiters:insert(Key, Value, Waiters), lists:sort([{Key, Value} | List]), Cursor);
run([{remove, N} | More], Order, Waiters, List, Cursor) when N < length(List) ->
    {Key, Value} = lists:nth(N + 1, List),
    {ok, Removed, Fewer} = weir_pool_waiters:remove(Key, Waiters),
    equal(Value, Removed),
    error = weir_pool_waiters:remove(Key, Fewer),
    run(More, Order, Fewer, lists:keydelete(Key, 1, List), Cursor);
run([{remove, At} | More], Order, Waiters, List, Cursor) ->
    error = weir_pool_waiters:remove({At, make_ref()}, Waiters),
    run(More, Order, Waiters, List, Cursor);
run([next | More], Order, Waiters, List, Cursor) ->
    equal(next_of(Order, List), weir_pool_waiters:next(Waiters)),
    run(More, Order, Waiters, List, Cursor);
run([oldest | More], Order, Waiters, List, Cursor) ->
    equal(next_of(fifo, List), weir_pool_waiters:oldest(Waiters)),
    run(More, Order, Waiters, List, Cursor);
run([size | More], Order, Waiters, List, Cursor) ->
    equal(length(List), weir_pool_waiters:size(Waiters)),
    run(More, Order, Waiters, List, Cursor);
run([fold | More], Order, Waiters, List, Cursor) ->
    equal(List, lists:reverse(weir_pool_waiters:fold(fun(K, V, Acc) -> [{K, V} | Acc] end, [], Waiters))),
    run(More, Order, Waiters, List, Cursor);
run([{drop_even, N} | More], Order, Waiters, List, Cursor) ->
    Self = self(),
    Keep = fun(Key, Value) ->
        Self ! {looked_at, Key},
        Value rem 2 =:= 1
    end,
    Kept = weir_pool_waiters:retain(Keep, N, Waiters),
    Ahead = [Entry || {Key, _} = Entry <- List, Key >= Cursor],
    Looked = lists:sublist(Ahead, N),
    equal([Key || {Key, _} <- Looked], flush()),
    NewCursor =
        case lists:nthtail(length(Looked), Ahead) of
            [] -> {};
            [{Key, _} | _] -> Key
        end,
    Left = [Entry || {_, V} = Entry <- List, V rem 2 =:= 1 orelse not lists:member(Entry, Looked)],
    run(More, Order, Kept, Left, NewCursor).

next_of(_Order, []) -> none;
next_of(fifo, List) -> hd(List);
next_of(lifo, List) -> lists:last(List).

equal(Expected, Actual) -> ?assertEqual(Expected, Actual).

flush() ->
    receive
        {looked_at, Key} -> [Key | flush()]
    after 0 -> []
    end.

%% ---------------------------------------------------------------- cases

%% Everybody is looked at within as many calls as it takes, whatever comes and goes meanwhile.
retain_goes_round(_Config) ->
    Insert = fun(At, W) -> weir_pool_waiters:insert({At, make_ref()}, At, W) end,
    Waiters = lists:foldl(Insert, weir_pool_waiters:new(fifo), lists:seq(1, 100)),
    Looked = fun Look(0, W, Seen) -> {W, Seen};
        Look(Calls, W, Seen) ->
            Self = self(),
            Kept = weir_pool_waiters:retain(fun(Key, At) -> Self ! {looked_at, Key}, At rem 3 =/= 0 end, 7, W),
            Look(Calls - 1, Kept, [At || {At, _} <- flush()] ++ Seen)
    end,
    {Kept, Seen} = Looked(15, Waiters, []),
    ?assertEqual(lists:seq(1, 100), lists:usort(Seen)),
    ?assertEqual(100 - 33, weir_pool_waiters:size(Kept)).

%% A request that is made again is where it was.
keeps_places(_Config) ->
    [A, B, C] = [{At, make_ref()} || At <- [1, 2, 3]],
    Late = lists:foldl(
        fun(Key, W) -> weir_pool_waiters:insert(Key, Key, W) end, weir_pool_waiters:new(fifo), [C, B, A]
    ),
    ?assertEqual({A, A}, weir_pool_waiters:next(Late)),
    {ok, A, WithoutA} = weir_pool_waiters:remove(A, Late),
    ?assertEqual({B, B}, weir_pool_waiters:next(WithoutA)),
    ?assertEqual({A, A}, weir_pool_waiters:next(weir_pool_waiters:insert(A, A, WithoutA))).

empty(_Config) ->
    [
        begin
            Waiters = weir_pool_waiters:new(Order),
            ?assertEqual(none, weir_pool_waiters:next(Waiters)),
            ?assertEqual(none, weir_pool_waiters:oldest(Waiters)),
            ?assertEqual(0, weir_pool_waiters:size(Waiters)),
            ?assertEqual(Waiters, weir_pool_waiters:retain(fun(_, _) -> false end, 10, Waiters))
        end
     || Order <- [fifo, lifo]
    ].

quickcheck(Property, N) -> ?assert(proper:quickcheck(Property, [{numtests, N}, quiet])).
