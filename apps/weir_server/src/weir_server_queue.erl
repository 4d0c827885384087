%% @doc A queue with priorities and a bound, for the messages that a server has drained.
%%
%% Messages of a higher priority come out first, those of the same one in the order in which they went in. When the
%% queue is full, a message that comes is let in only if another one goes:
%%
%% <ul>
%% <li>If there are messages of a lower priority than its own, one of the lowest goes: with `reject' and `drop_newest'
%%   the newest of them, with `drop_oldest' the oldest.</li>
%% <li>If its own is the lowest that there is: with `drop_oldest' the oldest of that priority goes, otherwise the
%%   message that comes is not let in.</li>
%% <li>If all others are of a higher priority, it is not let in.</li>
%% </ul>
%%
%% What must not be lost (`keep') is always let in and never goes: that is for signals of which there can only be as
%% many as the server has asked for.
%%
%% A pure module. Cost: with one priority, a cons cell or two for each message; with P priorities, up to P steps more.
-module(weir_server_queue).

-export([new/2, is_empty/1, len/1, in/4, in_last/2, out/2, to_list/1]).

-export_type([queue/1, max/0, policy/0]).

-type max() :: pos_integer() | infinity.
-type policy() :: reject | drop_oldest | drop_newest.

-record(queue, {
    max :: max(),
    policy :: policy(),
    len = 0 :: non_neg_integer(),
    %% Highest first; none is empty. The rear is in reverse.
    levels = [] :: [{Priority :: integer(), Front :: [term()], Rear :: [term()]}]
}).

-opaque queue(Item) :: #queue{levels :: [{integer(), [{keep | may_go, Item}], [{keep | may_go, Item}]}]}.

%% @doc An empty queue.
-spec new(max(), policy()) -> queue(_).
new(Max, Policy) -> #queue{max = Max, policy = Policy}.

%% @doc Whether nothing is in it.
-spec is_empty(queue(_)) -> boolean().
is_empty(#queue{len = Len}) -> Len =:= 0.

%% @doc How many are in it.
-spec len(queue(_)) -> non_neg_integer().
len(#queue{len = Len}) -> Len.

%% @doc Puts an item in. `dropped': for that, another one went, or it was not let in itself.
-spec in(Item, Priority :: integer(), keep | may_go, queue(Item)) -> {ok, queue(Item)} | {dropped, Item, queue(Item)}.
in(Item, Priority, May, #queue{max = Max, len = Len, levels = Levels} = Queue) when Len < Max; May =:= keep ->
    {ok, Queue#queue{len = Len + 1, levels = insert({May, Item}, Priority, Levels)}};
in(Item, Priority, May, #queue{policy = Policy, levels = Levels} = Queue) ->
    case make_room(Priority, Policy, Levels) of
        {Gone, Fewer} -> {dropped, Gone, Queue#queue{levels = insert({May, Item}, Priority, Fewer)}};
        none -> {dropped, Item, Queue}
    end.

%% @doc Puts an item in behind all others. It is let in also when the queue is full, and does not go.
-spec in_last(Item, queue(Item)) -> queue(Item).
in_last(Item, #queue{levels = []} = Queue) ->
    {ok, With} = in(Item, 0, keep, Queue),
    With;
in_last(Item, #queue{levels = Levels} = Queue) ->
    {Lowest, _, _} = lists:last(Levels),
    {ok, With} = in(Item, Lowest, keep, Queue),
    With.

insert(Item, Priority, [{Higher, _, _} = Level | Levels]) when Higher > Priority ->
    [Level | insert(Item, Priority, Levels)];
insert(Item, Priority, [{Priority, Front, Rear} | Levels]) ->
    [{Priority, Front, [Item | Rear]} | Levels];
insert(Item, Priority, Levels) ->
    [{Priority, [Item], []} | Levels].

%% From the lowest priority up, as long as it is one that a message of this priority may take the place of.
make_room(Priority, Policy, Levels) -> make_room(Priority, Policy, lists:reverse(Levels), []).

make_room(Priority, Policy, [{Lowest, Front, Rear} = Level | Higher], Kept) when
    Lowest < Priority; Lowest =:= Priority, Policy =:= drop_oldest
->
    case remove(Policy, Front, Rear) of
        {Gone, [], []} -> {Gone, lists:reverse(Higher, Kept)};
        {Gone, NewFront, NewRear} -> {Gone, lists:reverse(Higher, [{Lowest, NewFront, NewRear} | Kept])};
        none -> make_room(Priority, Policy, Higher, [Level | Kept])
    end;
make_room(_Priority, _Policy, _Levels, _Kept) ->
    none.

remove(drop_oldest, Front, Rear) ->
    case first_that_may_go(Front) of
        {Gone, NewFront} ->
            {Gone, NewFront, Rear};
        none ->
            case first_that_may_go(lists:reverse(Rear)) of
                {Gone, Behind} -> {Gone, Front ++ Behind, []};
                none -> none
            end
    end;
remove(_Newest, Front, Rear) ->
    case first_that_may_go(Rear) of
        {Gone, NewRear} ->
            {Gone, Front, NewRear};
        none ->
            case first_that_may_go(lists:reverse(Front)) of
                {Gone, Before} -> {Gone, [], Rear ++ Before};
                none -> none
            end
    end.

first_that_may_go(Items) ->
    case lists:splitwith(fun({May, _}) -> May =:= keep end, Items) of
        {Kept, [{may_go, Gone} | Others]} -> {Gone, Kept ++ Others};
        {_, []} -> none
    end.

%% @doc Takes out so many, or all that there are.
-spec out(N :: pos_integer(), queue(Item)) -> {[Item], queue(Item)}.
out(N, #queue{len = Len, levels = Levels} = Queue) ->
    {Items, Left} = out(N, Levels, []),
    {Items, Queue#queue{len = max(0, Len - N), levels = Left}}.

out(0, Levels, Items) -> {lists:reverse(Items), Levels};
out(_N, [], Items) -> {lists:reverse(Items), []};
out(N, [{Priority, [{_, Item}], Rear} | Levels], Items) ->
    out(N - 1, level(Priority, [], Rear, Levels), [Item | Items]);
out(N, [{Priority, [{_, Item} | Front], Rear} | Levels], Items) ->
    out(N - 1, [{Priority, Front, Rear} | Levels], [Item | Items]);
out(N, [{Priority, [], Rear} | Levels], Items) -> out(N, level(Priority, [], Rear, Levels), Items).

level(_Priority, [], [], Levels) -> Levels;
level(Priority, [], Rear, Levels) -> [{Priority, lists:reverse(Rear), []} | Levels].

%% @doc All that are in it, in the order in which they would come out.
-spec to_list(queue(Item)) -> [Item].
to_list(#queue{levels = Levels}) ->
    [Item || {_, Front, Rear} <- Levels, {_, Item} <- Front ++ lists:reverse(Rear)].
