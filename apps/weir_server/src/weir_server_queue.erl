%% @doc A queue with priorities and a bound, for the messages that a server has drained.
%%
%% Messages of a higher priority come out first, those of the same one in the order in which they went in. Some are
%% *bounded*: they count, and when there are as many as the bound allows, another is let in only if one of them goes:
%%
%% <ul>
%% <li>If there are bounded ones of a lower priority than its own, one of the lowest goes: with `reject' and
%%   `drop_newest' the newest of them, with `drop_oldest' the oldest.</li>
%% <li>If its own priority is the lowest that there is: with `drop_oldest' the oldest of that priority goes, otherwise
%%   the message that comes is not let in.</li>
%% <li>If all others are of a higher priority, it is not let in.</li>
%% </ul>
%%
%% What is *free* does not count, is always let in and never goes. A level keeps the two kinds apart, each with the
%% number of its arrival, so that neither is searched for the other.
%%
%% A pure module. Cost: with one priority, some ten words for each message; with P priorities, up to P steps more.
%% @private
-module(weir_server_queue).

-export([new/2, len/1, bounded/1, in/4, in_last/2, out/2, take_free/2, to_list/1]).

-export_type([queue/1, max/0, policy/0, priority/0]).

-type max() :: pos_integer() | infinity.
-type policy() :: reject | drop_oldest | drop_newest.
-type priority() :: integer() | infinity.
%% `infinity': above all others.

-record(queue, {
    max :: max(),
    policy :: policy(),
    %% How many there are, how many of these are bounded, and how many there have been.
    len = 0 :: non_neg_integer(),
    bounded = 0 :: non_neg_integer(),
    arrived = 0 :: non_neg_integer(),
    %% Highest first; none is empty.
    levels = [] :: [level(term())]
}).

-type level(Item) :: {
    priority(), Free :: queue:queue({Number :: integer(), Item}), Bounded :: queue:queue({Number :: integer(), Item})
}.

-opaque queue(Item) :: #queue{levels :: [level(Item)]}.

%% @doc An empty queue.
-spec new(max(), policy()) -> queue(_).
new(Max, Policy) -> #queue{max = Max, policy = Policy}.

%% @doc How many are in it.
-spec len(queue(_)) -> non_neg_integer().
len(#queue{len = Len}) -> Len.

%% @doc How many of these count.
-spec bounded(queue(_)) -> non_neg_integer().
bounded(#queue{bounded = Bounded}) -> Bounded.

%% @doc Puts an item in. `dropped': for that, another one went, or it was not let in itself.
-spec in(Item, priority(), free | bounded, queue(Item)) -> {ok, queue(Item)} | {dropped, Item, queue(Item)}.
in(Item, Priority, free, Queue) ->
    {ok, insert(Item, Priority, free, Queue)};
in(Item, Priority, bounded, #queue{max = Max, bounded = Bounded} = Queue) when Bounded < Max ->
    {ok, insert(Item, Priority, bounded, Queue)};
in(Item, Priority, bounded, #queue{policy = Policy, levels = Levels} = Queue) ->
    case make_room(Priority, Policy, lists:reverse(Levels), []) of
        {Gone, Fewer} ->
            #queue{len = Len, bounded = Bounded} = Queue,
            Left = Queue#queue{len = Len - 1, bounded = Bounded - 1, levels = Fewer},
            {dropped, Gone, insert(Item, Priority, bounded, Left)};
        none ->
            {dropped, Item, Queue}
    end.

%% @doc Puts a free item in behind all others.
-spec in_last(Item, queue(Item)) -> queue(Item).
in_last(Item, #queue{levels = []} = Queue) ->
    insert(Item, 0, free, Queue);
in_last(Item, #queue{levels = Levels} = Queue) ->
    {Lowest, _, _} = lists:last(Levels),
    %% Not above all that come later.
    insert(Item, min(Lowest, 0), free, Queue).

insert(Item, Priority, Kind, #queue{len = Len, bounded = Bounded, arrived = Arrived, levels = Levels} = Queue) ->
    Counted =
        case Kind of
            free -> Bounded;
            bounded -> Bounded + 1
        end,
    With = into({Arrived, Item}, Priority, Kind, Levels),
    Queue#queue{len = Len + 1, bounded = Counted, arrived = Arrived + 1, levels = With}.

into(Item, Priority, Kind, [{Higher, _, _} = Level | Levels]) when Higher > Priority ->
    [Level | into(Item, Priority, Kind, Levels)];
into(Item, Priority, free, [{Priority, Free, Bounded} | Levels]) ->
    [{Priority, queue:in(Item, Free), Bounded} | Levels];
into(Item, Priority, bounded, [{Priority, Free, Bounded} | Levels]) ->
    [{Priority, Free, queue:in(Item, Bounded)} | Levels];
into(Item, Priority, Kind, Levels) ->
    into(Item, Priority, Kind, [{Priority, queue:new(), queue:new()} | Levels]).

%% From the lowest priority up, as long as it is one that a message of this priority may take the place of.
make_room(Priority, Policy, [{Lowest, Free, Bounded} = Level | Higher], Lower) when
    Lowest < Priority; Lowest =:= Priority, Policy =:= drop_oldest
->
    Out =
        case Policy of
            drop_oldest -> queue:out(Bounded);
            _Newest -> queue:out_r(Bounded)
        end,
    case Out of
        {{value, {_, Gone}}, Left} -> {Gone, lists:reverse(Higher, level(Lowest, Free, Left, Lower))};
        {empty, _} -> make_room(Priority, Policy, Higher, [Level | Lower])
    end;
make_room(_Priority, _Policy, _Levels, _Lower) ->
    none.

level(Priority, Free, Bounded, Lower) ->
    case queue:is_empty(Free) andalso queue:is_empty(Bounded) of
        true -> Lower;
        false -> [{Priority, Free, Bounded} | Lower]
    end.

%% @doc Takes out so many, or all that there are.
-spec out(N :: pos_integer(), queue(Item)) -> {[Item], queue(Item)}.
out(N, Queue) -> out(N, Queue, []).

out(N, #queue{levels = Levels} = Queue, Items) when N =:= 0; Levels =:= [] ->
    {lists:reverse(Items), Queue};
out(N, #queue{len = Len, bounded = Bounded, levels = [{Priority, Free, Counted} | Lower]} = Queue, Items) ->
    case first(queue:peek(Free), queue:peek(Counted)) of
        {free, Item} ->
            Left = level(Priority, queue:drop(Free), Counted, Lower),
            out(N - 1, Queue#queue{len = Len - 1, levels = Left}, [Item | Items]);
        {bounded, Item} ->
            Left = level(Priority, Free, queue:drop(Counted), Lower),
            out(N - 1, Queue#queue{len = Len - 1, bounded = Bounded - 1, levels = Left}, [Item | Items])
    end.

first({value, {Free, Item}}, {value, {Bounded, _}}) when Free < Bounded -> {free, Item};
first(_, {value, {_, Item}}) -> {bounded, Item};
first({value, {_, Item}}, empty) -> {free, Item}.

%% @doc Takes out those free items that are wanted. Cost: one pass over all that are free.
-spec take_free(fun((Item) -> boolean()), queue(Item)) -> {[Item], queue(Item)}.
take_free(IsWanted, #queue{len = Len, levels = Levels} = Queue) ->
    {Taken, Left} = take_free(IsWanted, lists:reverse(Levels), [], []),
    {Taken, Queue#queue{len = Len - length(Taken), levels = Left}}.

take_free(_IsWanted, [], Taken, Left) ->
    {Taken, Left};
take_free(IsWanted, [{Priority, Free, Bounded} | Higher], Taken, Left) ->
    {Wanted, Others} = lists:partition(fun({_, Item}) -> IsWanted(Item) end, queue:to_list(Free)),
    Items = [Item || {_, Item} <- Wanted],
    take_free(IsWanted, Higher, Items ++ Taken, level(Priority, queue:from_list(Others), Bounded, Left)).

%% @doc All that are in it, in the order in which they would come out.
-spec to_list(queue(Item)) -> [Item].
to_list(#queue{levels = Levels}) ->
    [
        Item
     || {_, Free, Bounded} <- Levels, {_, Item} <- lists:keymerge(1, queue:to_list(Free), queue:to_list(Bounded))
    ].
