%% @doc The drained messages of a server, by priority.
%%
%% The queue has a level for each priority in use. A level is a row of *segments*: the messages of that priority that
%% one drain has put in, in the order of their arrival. Messages of a higher priority come out first. A server without
%% priorities has one level.
%%
%% A segment has the number of its messages, and of the bounded ones among them (weir_server_message:is_bounded/1).
%% drop/5 skips a segment without bounded messages, so a long row of free messages does not slow the search.
%%
%% A pure module. Cost: two words for each message, and some twenty for each segment. With P priorities, in/6 takes up
%% to P steps more.
%% @private
-module(weir_server_queue).

-export([new/0, lowest/1, in/6, out/3, drop/5, take/2, to_list/1, bounded/1]).

-export_type([queue/0, priority/0]).

-type priority() :: integer() | infinity.
%% `infinity' is above all others.

-type segment() :: {
    Since :: integer(), Count :: pos_integer(), Bounded :: non_neg_integer(), [Message :: term(), ...]
}.
%% The messages arrived after `Since'.

-opaque queue() :: [{priority(), queue:queue(segment())}].
%% The levels, highest first. No level is empty.

%% @doc Returns an empty queue.
-spec new() -> queue().
new() -> [].

%% @doc Returns the lowest priority in use, or `none' if the queue is empty.
-spec lowest(queue()) -> priority() | none.
lowest([]) -> none;
lowest(Levels) -> element(1, lists:last(Levels)).

%% @doc Puts `Count' messages behind the others of their priority. `Bounded' of them are bounded.
-spec in(Since, priority(), Count, Bounded, [Message :: term(), ...], queue()) -> queue() when
    Since :: integer(), Count :: pos_integer(), Bounded :: non_neg_integer().
in(Since, Priority, Count, Bounded, Messages, Queue) -> in({Since, Count, Bounded, Messages}, Priority, Queue).

in(Segment, Priority, [{Higher, _} = Level | Levels]) when Higher > Priority ->
    [Level | in(Segment, Priority, Levels)];
in(Segment, Priority, [{Priority, Segments} | Levels]) ->
    [{Priority, queue:in(Segment, Segments)} | Levels];
in(Segment, Priority, Levels) ->
    [{Priority, queue:from_list([Segment])} | Levels].

%% @doc Takes out the first messages of a queue that is not empty.
%%
%% `N' bounds their number. The message at which their estimated size reaches `Bytes' is the last one. If `N' is
%% `segment', takes one segment as it is. Returns the time after which the first message arrived, the number of the
%% messages, and the number of bounded ones among them.
-spec out(N :: pos_integer() | segment, Bytes :: pos_integer() | infinity, queue()) ->
    {Since :: integer(), Count :: pos_integer(), Bounded :: non_neg_integer(), [Message :: term(), ...], queue()}.
out(segment, _Bytes, Levels) ->
    {{Since, Count, Bounded, Messages}, Left} = first(Levels),
    {Since, Count, Bounded, Messages, Left};
out(N, Bytes, Levels) ->
    {{Since, _, _, _}, _} = first(Levels),
    {Count, Bounded, Taken, Left} = out(N, Bytes, Levels, 0, 0, []),
    {Since, Count, Bounded, lists:append(lists:reverse(Taken)), Left}.

out(N, Bytes, Levels, Count, Bounded, Taken) when N =:= 0; Bytes =< 0; Levels =:= [] ->
    {Count, Bounded, Taken, Levels};
out(N, infinity, Levels, Count, Bounded, Taken) ->
    case first(Levels) of
        {{_, Length, OfThese, Messages}, Left} when Length =< N ->
            out(N - Length, infinity, Left, Count + Length, Bounded + OfThese, [Messages | Taken]);
        {Segment, Left} ->
            {Some, More} = lists:split(N, element(4, Segment)),
            out_part(N, Some, More, Segment, Levels, Left, Count, Bounded, Taken)
    end;
out(N, Bytes, Levels, Count, Bounded, Taken) ->
    {{_, _, OfThese, Messages} = Segment, Left} = first(Levels),
    case cut(N, Bytes, Messages, 0, []) of
        {Length, BytesLeft, Some, []} ->
            out(N - Length, BytesLeft, Left, Count + Length, Bounded + OfThese, [Some | Taken]);
        {Length, _, Some, More} ->
            out_part(Length, Some, More, Segment, Levels, Left, Count, Bounded, Taken)
    end.

%% Puts the rest of a segment back to the level from which it came.
out_part(Length, Some, More, {Since, All, OfAll, _}, [{Priority, _} | _], Left, Count, Bounded, Taken) ->
    Out = if OfAll =:= 0 -> 0; true -> bounded(Some) end,
    Segment = {Since, All - Length, OfAll - Out, More},
    Rest =
        case Left of
            [{Priority, Segments} | Levels] -> [{Priority, queue:in_r(Segment, Segments)} | Levels];
            Levels -> [{Priority, queue:from_list([Segment])} | Levels]
        end,
    {Count + Length, Bounded + Out, [Some | Taken], Rest}.

first([{Priority, Segments} | Levels]) ->
    {{value, Segment}, Left} = queue:out(Segments),
    {Segment, level(Priority, Left, Levels)}.

level(Priority, Segments, Levels) ->
    case queue:is_empty(Segments) of
        true -> Levels;
        false -> [{Priority, Segments} | Levels]
    end.

cut(N, Bytes, Messages, Length, Some) when Length =:= N; Bytes =< 0; Messages =:= [] ->
    {Length, Bytes, lists:reverse(Some), Messages};
cut(N, Bytes, [Message | More], Length, Some) ->
    cut(N, Bytes - erlang:external_size(Message), More, Length + 1, [Message | Some]).

%% @doc Takes out `N' bounded messages, those of the lowest priority first: of one priority the oldest, or the newest.
%% There must be as many. Folds `Fun' over them. A list of them would keep a flood of refused messages on the heap.
%%
%% Cost: with `oldest' one step for each segment and each dropped message; with `newest' also one pass over a segment.
-spec drop(oldest | newest, N :: non_neg_integer(), fun((Message :: term(), Acc) -> Acc), Acc, queue()) ->
    {Acc, queue()}.
drop(End, N, Fun, Acc, Levels) -> drop(End, N, lists:reverse(Levels), [], Fun, Acc).

drop(_End, 0, Higher, Lower, _Fun, Acc) ->
    {Acc, lists:reverse(Higher, Lower)};
drop(End, N, [{Priority, Segments} | Higher], Lower, Fun, Acc) ->
    {NotYet, NewAcc, Left} = drop_segments(End, N, in_direction(End, queue:to_list(Segments)), Fun, Acc),
    drop(End, NotYet, Higher, level(Priority, queue:from_list(in_direction(End, Left)), Lower), Fun, NewAcc).

in_direction(oldest, List) -> List;
in_direction(newest, List) -> lists:reverse(List).

%% Returns how many messages are still to be dropped, and the segments that are left.
drop_segments(_End, N, Segments, _Fun, Acc) when N =:= 0; Segments =:= [] ->
    {N, Acc, Segments};
drop_segments(End, N, [{_, _, 0, _} = Segment | Segments], Fun, Acc) ->
    {NotYet, NewAcc, Left} = drop_segments(End, N, Segments, Fun, Acc),
    {NotYet, NewAcc, [Segment | Left]};
drop_segments(oldest, N, [{Since, Count, Bounded, Messages} | Segments], Fun, Acc) ->
    Now = min(N, Bounded),
    {Passed, Rest, Acc1} = drop_messages(Now, Messages, [], Fun, Acc),
    {NotYet, Acc2, Left} = drop_segments(oldest, N - Now, Segments, Fun, Acc1),
    %% The free messages that the search has passed become a segment without bounded messages.
    Free = length(Passed),
    With = segment(Since, Count - Now - Free, Bounded - Now, Rest, Left),
    {NotYet, Acc2, segment(Since, Free, 0, lists:reverse(Passed), With)};
drop_segments(newest, N, [{Since, Count, Bounded, Messages} | Segments], Fun, Acc) ->
    Now = min(N, Bounded),
    {Left, Acc1} = drop_behind(Bounded - Now, Messages, [], Fun, Acc),
    {NotYet, Acc2, Others} = drop_segments(newest, N - Now, Segments, Fun, Acc1),
    {NotYet, Acc2, segment(Since, Count - Now, Bounded - Now, Left, Others)}.

segment(_Since, 0, 0, [], Segments) -> Segments;
segment(Since, Count, Bounded, Messages, Segments) -> [{Since, Count, Bounded, Messages} | Segments].

%% Drops the first `N' bounded messages. Returns the free messages before the last of these in reverse.
drop_messages(0, Messages, Passed, _Fun, Acc) ->
    {Passed, Messages, Acc};
drop_messages(N, [Message | Messages], Passed, Fun, Acc) ->
    case weir_server_message:is_bounded(Message) of
        true -> drop_messages(N - 1, Messages, Passed, Fun, Fun(Message, Acc));
        false -> drop_messages(N, Messages, [Message | Passed], Fun, Acc)
    end.

%% Drops all bounded messages but the first `Keep' of them.
drop_behind(_Keep, [], Left, _Fun, Acc) ->
    {lists:reverse(Left), Acc};
drop_behind(Keep, [Message | Messages], Left, Fun, Acc) ->
    case weir_server_message:is_bounded(Message) of
        true when Keep =:= 0 -> drop_behind(0, Messages, Left, Fun, Fun(Message, Acc));
        true -> drop_behind(Keep - 1, Messages, [Message | Left], Fun, Acc);
        false -> drop_behind(Keep, Messages, [Message | Left], Fun, Acc)
    end.

%% @doc Takes out the free messages that `IsWanted' chooses, in their order. Cost: one pass over all messages.
-spec take(IsWanted :: fun((Message :: term()) -> boolean()), queue()) -> {[Message :: term()], queue()}.
take(IsWanted, Levels) ->
    {Taken, Left} = lists:unzip([take_of(IsWanted, Level) || Level <- Levels]),
    {lists:append(Taken), lists:append(Left)}.

take_of(IsWanted, {Priority, Segments}) ->
    Parted = [
        {Since, Bounded, lists:partition(IsWanted, Messages)}
     || {Since, _, Bounded, Messages} <- queue:to_list(Segments)
    ],
    Left = [{Since, length(Ms), Bounded, Ms} || {Since, Bounded, {_, [_ | _] = Ms}} <- Parted],
    {lists:append([Wanted || {_, _, {Wanted, _}} <- Parted]), level(Priority, queue:from_list(Left), [])}.

%% @doc Returns all messages in the order in which they come out.
-spec to_list(queue()) -> [Message :: term()].
to_list(Levels) ->
    lists:append([Messages || {_, Segments} <- Levels, {_, _, _, Messages} <- queue:to_list(Segments)]).

%% @doc Returns the number of bounded messages in a list.
-spec bounded([Message :: term()]) -> non_neg_integer().
bounded(Messages) -> bounded(Messages, 0).

bounded([Message | Messages], Count) ->
    case weir_server_message:is_bounded(Message) of
        true -> bounded(Messages, Count + 1);
        false -> bounded(Messages, Count)
    end;
bounded([], Count) ->
    Count.
