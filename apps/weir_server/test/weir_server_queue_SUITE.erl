%% weir_server_queue against a list of all items that is sorted and searched anew each time.
-module(weir_server_queue_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-define(Q, weir_server_queue).
-define(POLICIES, [reject, drop_newest, drop_oldest]).

all() -> weir_kit:cases(?MODULE).

order(_) ->
    Queue = fill([{a, 0}, {b, 5}, {c, 0}, {d, -1}, {e, 5}], ?Q:new(infinity, reject)),
    ?assertEqual([b, e, a, c, d], ?Q:to_list(Queue)),
    ?assertEqual({[b, e, a, c, d], 0}, all_out(Queue)).

%% N are let in, and N + 1 are not.
bound_reject(_) ->
    Full = fill([{a, 0}, {b, 0}, {c, 0}], ?Q:new(3, reject)),
    ?assertMatch({dropped, d, _}, ?Q:in(d, 0, bounded, Full)),
    {dropped, d, Same} = ?Q:in(d, 0, bounded, Full),
    ?assertEqual({[a, b, c], 0}, all_out(Same)),
    ?assertEqual(3, ?Q:len(Same)).

bound_drop_newest(_) ->
    Full = fill([{a, 0}, {b, 0}, {c, 0}], ?Q:new(3, drop_newest)),
    {dropped, d, Same} = ?Q:in(d, 0, bounded, Full),
    ?assertEqual({[a, b, c], 0}, all_out(Same)).

bound_drop_oldest(_) ->
    Full = fill([{a, 0}, {b, 0}, {c, 0}], ?Q:new(3, drop_oldest)),
    {dropped, a, Other} = ?Q:in(d, 0, bounded, Full),
    ?assertEqual({[b, c, d], 0}, all_out(Other)).

higher_takes_the_place(_) ->
    Items = [{a, 0}, {b, 0}, {c, 5}],
    Full = fun(Policy) -> fill(Items, ?Q:new(3, Policy)) end,
    [
        begin
            {dropped, Gone, Queue} = ?Q:in(new, Priority, bounded, Full(Policy)),
            ?assertEqual({Policy, Priority, Left}, {Policy, Priority, ?Q:to_list(Queue)}),
            ?assertEqual([a, b, c, new], lists:sort([Gone | Left]))
        end
     || {Priority, Policy, Left} <- [
            {9, reject, [new, c, a]},
            {9, drop_newest, [new, c, a]},
            {9, drop_oldest, [new, c, b]},
            {3, reject, [c, new, a]},
            {3, drop_oldest, [c, new, b]},
            {-1, reject, [c, a, b]},
            {-1, drop_newest, [c, a, b]},
            {-1, drop_oldest, [c, a, b]}
        ]
    ].

%% They come on top of the bound, and do not count.
free_ones_are_let_in(_) ->
    [
        begin
            Full = fill([{a, 0}, {b, 0}], ?Q:new(2, Policy)),
            {ok, Over} = ?Q:in(free, 0, free, Full),
            ?assertEqual({[a, b, free], 0}, all_out(Over)),
            ?assertEqual({3, 2}, {?Q:len(Over), ?Q:bounded(Over)}),
            %% Two out leave the free one, and two more are let in, but not three.
            {[a, b], One} = ?Q:out(2, Over),
            {ok, Two} = ?Q:in(c, 0, bounded, One),
            {ok, Three} = ?Q:in(d, 0, bounded, Two),
            ?assertMatch({dropped, _, _}, ?Q:in(e, 0, bounded, Three))
        end
     || Policy <- ?POLICIES
    ].

%% However many of these there are, none of them goes, and they take nobody's place.
full_of_free_ones(_) ->
    [
        begin
            Free = lists:foldl(
                fun(N, Queue) -> element(2, {ok, _} = ?Q:in(N, 0, free, Queue)) end,
                ?Q:new(2, Policy),
                lists:seq(1, 100)
            ),
            {ok, One} = ?Q:in(a, 0, bounded, Free),
            {ok, Two} = ?Q:in(b, 0, bounded, One),
            {dropped, Gone, Same} = ?Q:in(c, 0, bounded, Two),
            ?assertEqual({Policy, case Policy of drop_oldest -> a; _ -> c end}, {Policy, Gone}),
            ?assertEqual(lists:seq(1, 100) ++ ([a, b, c] -- [Gone]), ?Q:to_list(Same))
        end
     || Policy <- ?POLICIES
    ].

%% What it takes to find the one that goes does not depend on how many there are that do not.
free_ones_are_not_searched(_) ->
    [
        begin
            [Few, Many] = [work(Free, Priority, Policy) || Free <- [1, 10_000]],
            ?assert(Many < 3 * Few, {Policy, Priority, Few, Many})
        end
     || Policy <- ?POLICIES, Priority <- [0, -1]
    ].

%% The reductions of a thousand messages that come to a full queue, with so many free ones of that priority in it. The
%% heap has room for all of it: a collection would count.
work(Free, Priority, Policy) ->
    {_, Ref} = spawn_opt(
        fun() ->
            Empty = ?Q:new(10, Policy),
            Full = lists:foldl(fun(N, Q) -> element(2, {ok, _} = ?Q:in(N, Priority, free, Q)) end, Empty,
                lists:seq(1, Free)),
            Over = lists:foldl(fun in_full/2, Full, lists:seq(1, 10)),
            {reductions, Before} = process_info(self(), reductions),
            _ = lists:foldl(fun in_full/2, Over, lists:seq(1, 1000)),
            {reductions, After} = process_info(self(), reductions),
            exit({work, After - Before})
        end,
        [monitor, {min_heap_size, 4_000_000}]
    ),
    receive
        {'DOWN', Ref, process, _, {work, Reductions}} -> Reductions
    end.

in_full(N, Queue) ->
    case ?Q:in({bounded, N}, 0, bounded, Queue) of
        {ok, With} -> With;
        {dropped, _, Left} -> Left
    end.

above_all_others(_) ->
    Queue = fill([{a, 1000}, {b, 0}], ?Q:new(infinity, reject)),
    {ok, With} = ?Q:in(first, infinity, free, Queue),
    ?assertEqual([first, a, b], ?Q:to_list(With)).

last_is_last(_) ->
    ?assertEqual([x], ?Q:to_list(?Q:in_last(x, ?Q:new(1, reject)))),
    %% Not ahead of what is usual and comes later.
    {ok, First} = ?Q:in(first, infinity, free, ?Q:new(9, reject)),
    {ok, More} = ?Q:in(usual, 0, bounded, ?Q:in_last(x, First)),
    {ok, All} = ?Q:in(urgent, 1, bounded, More),
    ?assertEqual([first, urgent, x, usual], ?Q:to_list(All)),
    Full = fill([{a, 3}, {b, -7}], ?Q:new(2, drop_oldest)),
    Last = ?Q:in_last(x, Full),
    ?assertEqual([a, b, x], ?Q:to_list(Last)),
    ?assertEqual(3, ?Q:len(Last)),
    %% It does not go.
    {dropped, b, Another} = ?Q:in(c, 3, bounded, Last),
    ?assertEqual([a, c, x], ?Q:to_list(Another)).

out_takes_some(_) ->
    Queue = fill([{N, N rem 3} || N <- lists:seq(1, 10)], ?Q:new(infinity, reject)),
    {Some, Left} = ?Q:out(4, Queue),
    ?assertEqual([2, 5, 8, 1], Some),
    ?assertEqual({[4, 7, 10, 3, 6, 9], 0}, all_out(Left)),
    ?assertEqual(6, ?Q:len(Left)).

free_ones_are_taken_out(_) ->
    Full = fill([{a, 3}, {b, 0}], ?Q:new(2, drop_oldest)),
    {ok, One} = ?Q:in(x, 3, free, Full),
    {ok, Two} = ?Q:in(y, 0, free, One),
    Last = ?Q:in_last(x, Two),
    {Taken, Left} = ?Q:take_free(fun(Item) -> Item =/= y end, Last),
    ?assertEqual({[x, x], [a, b, y], 3, 2}, {Taken, ?Q:to_list(Left), ?Q:len(Left), ?Q:bounded(Left)}).

%% ---------------------------------------------------------------- the property

same_as_a_list(_) ->
    Property = ?FORALL(
        {Max, Policy, Ops},
        {oneof([infinity, range(1, 12)]), oneof(?POLICIES), resize(60, list(op()))},
        begin
            Numbered = lists:zip(lists:seq(1, length(Ops)), Ops),
            {_, _, Bad} = lists:foldl(
                fun(Op, Acc) -> step(Op, Acc, Max, Policy) end, {?Q:new(Max, Policy), [], none}, Numbered
            ),
            ?WHENFAIL(ct:pal("~p", [Bad]), Bad =:= none)
        end
    ),
    weir_server_loop_lib:check(Property, 5000).

op() ->
    frequency([
        {12, {in, range(-2, 2), frequency([{4, bounded}, {1, free}])}},
        {1, in_last},
        {3, {out, range(1, 6)}}
    ]).

step(_, {_, _, Bad} = Acc, _, _) when Bad =/= none ->
    Acc;
step({Id, {in, Priority, May}}, {Queue, Model, none}, Max, Policy) ->
    {Dropped, NewModel} = model_in({Id, Priority, May}, Model, Max, Policy),
    case ?Q:in(Id, Priority, May, Queue) of
        {ok, NewQueue} when Dropped =:= none -> compare(NewQueue, NewModel);
        {dropped, Dropped, NewQueue} -> compare(NewQueue, NewModel);
        Other -> {Queue, Model, {in, Id, Priority, May, Model, Dropped, Other}}
    end;
step({Id, in_last}, {Queue, Model, none}, _, _) ->
    Lowest = lists:min([0 | [P || {_, P, _} <- Model]]),
    compare(?Q:in_last(Id, Queue), Model ++ [{Id, Lowest, free}]);
step({_, {out, N}}, {Queue, Model, none}, _, _) ->
    {Out, NewQueue} = ?Q:out(N, Queue),
    Sorted = model_sorted(Model),
    Expected = lists:sublist(Sorted, N),
    case [Id || {Id, _, _} <- Expected] of
        Out -> compare(NewQueue, Model -- Expected);
        Other -> {Queue, Model, {out, N, Out, Other}}
    end.

compare(Queue, Model) ->
    Expected = [Id || {Id, _, _} <- model_sorted(Model)],
    Seen = {?Q:to_list(Queue), ?Q:len(Queue), ?Q:bounded(Queue)},
    case {Expected, length(Expected), length(bounded(Model))} of
        Seen -> {Queue, Model, none};
        Other -> {Queue, Model, {Seen, Other}}
    end.

%% The model is a list in order of arrival.
model_sorted(Model) ->
    [Item || {_, _, Item} <- lists:sort([{-P, Id, Item} || {Id, P, _} = Item <- Model])].

model_in({_, _, free} = Item, Model, _Max, _Policy) ->
    {none, Model ++ [Item]};
model_in(Item, Model, Max, Policy) ->
    case length(bounded(Model)) < Max of
        true -> {none, Model ++ [Item]};
        false -> model_full(Item, Model, Policy)
    end.

bounded(Model) -> [Item || {_, _, bounded} = Item <- Model].

model_full({Id, Priority, bounded} = Item, Model, Policy) ->
    Weaker = [M || {_, P, bounded} = M <- Model, P < Priority orelse (P =:= Priority andalso Policy =:= drop_oldest)],
    Lowest = lists:min([P || {_, P, _} <- Weaker] ++ [infinity]),
    Candidates = [M || {_, P, _} = M <- Weaker, P =:= Lowest],
    case {Candidates, Policy} of
        {[], _} -> {Id, Model};
        {[{Gone, _, _} = Oldest | _], drop_oldest} -> {Gone, (Model -- [Oldest]) ++ [Item]};
        {_, _} -> {element(1, lists:last(Candidates)), (Model -- [lists:last(Candidates)]) ++ [Item]}
    end.

%% ---------------------------------------------------------------- helpers

fill(Items, Queue) ->
    lists:foldl(
        fun({Item, Priority}, Q) ->
            {ok, With} = ?Q:in(Item, Priority, bounded, Q),
            With
        end,
        Queue,
        Items
    ).

all_out(Queue) ->
    {Items, Left} = ?Q:out(1000, Queue),
    {Items, ?Q:len(Left)}.
