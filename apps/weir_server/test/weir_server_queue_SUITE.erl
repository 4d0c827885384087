%% weir_server_queue beside a model: a list of all messages that is sorted and searched anew each time.
-module(weir_server_queue_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-define(Q, weir_server_queue).

all() -> weir_kit:cases(?MODULE).

%% A bounded message is a cast. Other terms are free.
bounded(Id) -> {'$gen_cast', Id}.

higher_priorities_come_first(_) ->
    Queue = fill([{a, 0}, {b, 5}, {c, 0}, {d, -1}, {e, infinity}]),
    ?assertEqual([e, b, a, c, d], ?Q:to_list(Queue)),
    ?assertEqual(-1, ?Q:lowest(Queue)),
    ?assertEqual({[e, b, a, c, d], []}, all_out(Queue, [])).

an_empty_queue_has_no_lowest_priority(_) ->
    ?assertEqual(none, ?Q:lowest(?Q:new())),
    ?assertEqual([], ?Q:to_list(?Q:new())).

%% The first segment has 4 messages, two of them bounded.
out_takes_segments_or_parts(_) ->
    Queue = ?Q:in(7, 0, 2, 1, [bounded(e), f], ?Q:in(5, 0, 4, 2, [a, bounded(b), c, bounded(d)], ?Q:new())),
    {5, 4, 2, [a, {_, b}, c, {_, d}], Second} = ?Q:out(segment, infinity, Queue),
    {7, 2, 1, [{_, e}, f], Empty} = ?Q:out(segment, infinity, Second),
    ?assertEqual([], ?Q:to_list(Empty)),
    {5, 3, 1, [a, {_, b}, c], Rest} = ?Q:out(3, infinity, Queue),
    {5, 2, 2, [{_, d}, {_, e}], Last} = ?Q:out(2, infinity, Rest),
    ?assertEqual([f], ?Q:to_list(Last)).

%% The message at which the size is reached is the last one.
out_ends_at_bytes(_) ->
    Size = erlang:external_size(<<1:800>>),
    Queue = ?Q:in(1, 0, 4, 0, [<<N:800>> || N <- [1, 2, 3, 4]], ?Q:new()),
    {1, 1, 0, [<<1:800>>], _} = ?Q:out(9, 1, Queue),
    {1, 1, 0, [<<1:800>>], _} = ?Q:out(9, Size, Queue),
    {1, 2, 0, [<<1:800>>, <<2:800>>], Left} = ?Q:out(9, Size + 1, Queue),
    ?assertEqual([<<3:800>>, <<4:800>>], ?Q:to_list(Left)).

drop_takes_the_lowest(_) ->
    Queue = fill([{bounded(a), 0}, {b, 0}, {bounded(c), 0}, {bounded(d), 5}, {bounded(e), -1}]),
    [?assertEqual({End, N, Gone}, {End, N, lists:sort([Id || {_, Id} <- element(1, drop(End, N, Queue))])})
     || {End, N, Gone} <- [
            {oldest, 0, []}, {oldest, 1, [e]}, {oldest, 2, [a, e]}, {oldest, 4, [a, c, d, e]},
            {newest, 1, [e]}, {newest, 2, [c, e]}, {newest, 3, [a, c, e]}
        ]].

%% The search for the oldest bounded message does not pass free ones again and again.
free_messages_are_searched_once(_) ->
    [Few, Many] = [work(Free) || Free <- [1, 10_000]],
    ?assert(Many < 3 * Few, {Few, Many}).

%% Returns the reductions of a thousand drops, after a first one, with `Free' messages ahead of the bounded ones and
%% behind them. The heap has room for all of it: a collection would count.
work(Free) ->
    {_, Ref} = spawn_opt(
        fun() ->
            Frees = lists:seq(1, Free),
            Messages = Frees ++ [bounded(N) || N <- lists:seq(1, 2000)] ++ Frees,
            {_, Queue} = drop(oldest, 1, ?Q:in(1, 0, length(Messages), 2000, Messages, ?Q:new())),
            {reductions, Before} = process_info(self(), reductions),
            _ = lists:foldl(fun(_, Q) -> element(2, drop(oldest, 1, Q)) end, Queue, lists:seq(1, 1000)),
            {reductions, After} = process_info(self(), reductions),
            exit({work, After - Before})
        end,
        [monitor, {min_heap_size, 40_000_000}]
    ),
    receive
        {'DOWN', Ref, process, _, {work, Reductions}} -> Reductions
    end.

wanted_messages_are_taken_out(_) ->
    Queue = fill([{bounded(a), 3}, {x, 3}, {y, 0}, {bounded(b), 0}, {x, -1}]),
    {Taken, Left} = ?Q:take(fun(Message) -> Message =:= x end, Queue),
    ?assertEqual({[x, x], [bounded(a), y, bounded(b)], 0}, {Taken, ?Q:to_list(Left), ?Q:lowest(Left)}).

%% ---------------------------------------------------------------- the property

same_as_a_list(_) ->
    Property = ?FORALL(
        Ops,
        resize(40, list(op())),
        begin
            {_, _, Bad} = lists:foldl(fun step/2, {?Q:new(), [], none}, lists:zip(lists:seq(1, length(Ops)), Ops)),
            ?WHENFAIL(ct:pal("~p", [Bad]), Bad =:= none)
        end
    ),
    weir_server_loop_lib:check(Property, 5000).

op() ->
    frequency([
        {8, {in, range(-2, 2), resize(6, non_empty(list(boolean())))}},
        {3, {out, oneof([segment, range(1, 6)])}},
        {2, {drop, oneof([oldest, newest]), range(0, 5)}},
        {1, {take, range(0, 3)}}
    ]).

step(_, {_, _, Bad} = Acc) when Bad =/= none ->
    Acc;
step({At, {in, Priority, Kinds}}, {Queue, Model, none}) ->
    Messages = [message(IsBounded, {At, N}) || {N, IsBounded} <- lists:zip(lists:seq(1, length(Kinds)), Kinds)],
    Bounded = length([true || true <- Kinds]),
    With = ?Q:in(At, Priority, length(Messages), Bounded, Messages, Queue),
    compare(With, Model ++ [{Priority, At, M} || M <- Messages]);
step({_, {out, _}}, {_, [], none} = Acc) ->
    Acc;
step({_, {out, N}}, {Queue, Model, none}) ->
    {Since, Count, Bounded, Messages, Left} = ?Q:out(N, infinity, Queue),
    [{Priority, At, _} | _] = Sorted = sorted(Model),
    Expected =
        case N of
            %% A drop has divided a segment.
            segment -> [Item || {P, A, _} = Item <- lists:sublist(Sorted, Count), P =:= Priority, A =:= At];
            _ -> lists:sublist(Sorted, N)
        end,
    Bare = bare(Expected),
    case {At, length(Bare), length(only_bounded(Expected)), Bare} of
        {Since, Count, Bounded, Messages} -> compare(Left, Model -- Expected);
        Other -> {Queue, Model, {out, N, {Since, Count, Bounded, Messages}, Other}}
    end;
step({_, {drop, End, Wanted}}, {Queue, Model, none}) ->
    N = min(Wanted, length(only_bounded(Model))),
    {Gone, Left} = drop(End, N, Queue),
    Expected = model_drop(End, N, Model),
    case lists:sort(bare(Expected)) =:= lists:sort(Gone) of
        true -> compare(Left, Model -- Expected);
        false -> {Queue, Model, {drop, End, N, Gone, Expected}}
    end;
step({_, {take, Rest}}, {Queue, Model, none}) ->
    IsWanted = fun
        ({free, {At, N}}) -> (At + N) rem 4 =:= Rest;
        (_) -> false
    end,
    {Taken, Left} = ?Q:take(IsWanted, Queue),
    case bare(sorted([Item || {_, _, Message} = Item <- Model, IsWanted(Message)])) of
        Taken -> compare(Left, [Item || {_, _, Message} = Item <- Model, not IsWanted(Message)]);
        Other -> {Queue, Model, {take, Taken, Other}}
    end.

message(true, Id) -> bounded(Id);
message(false, Id) -> {free, Id}.

%% A segment with too small a number of bounded messages would keep one from being dropped.
compare(Queue, Model) ->
    Bounded = only_bounded(Model),
    {Gone, _} = drop(oldest, length(Bounded), Queue),
    Seen = {?Q:to_list(Queue), lists:sort(Gone)},
    case {bare(sorted(Model)), lists:sort(bare(Bounded))} of
        Seen -> {Queue, Model, none};
        Other -> {Queue, Model, {Seen, Other}}
    end.

%% The model is a list in the order of arrival: {Priority, Since, Message}.
sorted(Model) ->
    Numbered = lists:zip(lists:seq(1, length(Model)), Model),
    [Item || {_, _, Item} <- lists:sort([{-P, N, Item} || {N, {P, _, _} = Item} <- Numbered])].

bare(Items) -> [Message || {_, _, Message} <- Items].

only_bounded(Model) -> [Item || {_, _, {'$gen_cast', _}} = Item <- Model].

model_drop(_End, 0, _Model) ->
    [];
model_drop(End, N, Model) ->
    Bounded = only_bounded(Model),
    Lowest = lists:min([P || {P, _, _} <- Bounded]),
    Level = [Item || {P, _, _} = Item <- Bounded, P =:= Lowest],
    Gone =
        case End of
            oldest -> hd(Level);
            newest -> lists:last(Level)
        end,
    [Gone | model_drop(End, N - 1, Model -- [Gone])].

%% ---------------------------------------------------------------- helpers

drop(End, N, Queue) -> ?Q:drop(End, N, fun(Message, Gone) -> [Message | Gone] end, [], Queue).

%% Each message is a segment of its own.
fill(Items) ->
    lists:foldl(
        fun({Message, Priority}, Queue) ->
            Bounded = case Message of {'$gen_cast', _} -> 1; _ -> 0 end,
            ?Q:in(1, Priority, 1, Bounded, [Message], Queue)
        end,
        ?Q:new(),
        Items
    ).

all_out(Queue, Out) ->
    case ?Q:to_list(Queue) of
        [] ->
            {Out, []};
        _ ->
            {_, _, _, Messages, Left} = ?Q:out(2, infinity, Queue),
            all_out(Left, Out ++ Messages)
    end.
