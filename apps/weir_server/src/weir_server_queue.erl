%% @doc The drained messages of a server, by priority.
%%
%% The queue has a level for each priority in use. A level is a row of *segments*: the messages of that priority that
%% one drain has put in, in the order of their arrival. Messages of a higher priority come out first. A server without
%% priorities has one level.
%%
%% A segment has the number of its bounded messages (weir_server_message:is_bounded/1). drop/3 skips a segment without
%% bounded messages, so a long row of free messages does not slow the search.
%%
%% A pure module. Cost: two words for each message, and some twenty for each segment. With P priorities, in/5 takes up
%% to P steps more.
%% @private
-module(weir_server_queue).

-export([new/0, lowest/1, in/5, out/3, drop/3, take/2, to_list/1]).

-export_type([queue/0, priority/0]).

-type priority() :: integer() | infinity.
%% `infinity' is above all others.

-type segment() :: {Since :: integer(), Bounded :: non_neg_integer(), [Message :: term(), ...]}.
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

%% @doc Puts messages behind the others of their priority. `Bounded' is the number of bounded messages among them.
-spec in(Since :: integer(), priority(), Bounded :: non_neg_integer(), [Message :: term(), ...], queue()) -> queue().
in(Since, Priority, Bounded, Messages, [{Higher, _} = Level | Levels]) when Higher > Priority ->
    [Level | in(Since, Priority, Bounded, Messages, Levels)];
in(Since, Priority, Bounded, Messages, [{Priority, Segments} | Levels]) ->
    [{Priority, queue:in({Since, Bounded, Messages}, Segments)} | Levels];
in(Since, Priority, Bounded, Messages, Levels) ->
    [{Priority, queue:from_list([{Since, Bounded, Messages}])} | Levels].

%% @doc Takes out the first messages of a queue that is not empty.
%%
%% `N' bounds their number. The message at which their estimated size reaches `Bytes' is the last one. If `N' is
%% `segment', takes one segment as it is. Returns the time after which the first message arrived, the number of the
%% messages, and the number of bounded ones among them.
-spec out(N :: pos_integer() | segment, Bytes :: pos_integer() | infinity, queue()) ->
    {Since :: integer(), Count :: pos_integer(), Bounded :: non_neg_integer(), [Message :: term(), ...], queue()}.
out(segment, _Bytes, Levels) ->
    {{Since, Bounded, Messages}, Left} = first(Levels),
    {Since, length(Messages), Bounded, Messages, Left};
out(N, Bytes, Levels) ->
    {{Since, _, _}, _} = first(Levels),
    out(N, Bytes, Levels, Since, 0, 0, []).

out(N, Bytes, Levels, Since, Count, Bounded, Taken) when N =:= 0; Bytes =< 0; Levels =:= [] ->
    {Since, Count, Bounded, lists:append(lists:reverse(Taken)), Levels};
out(N, Bytes, Levels, Since, Count, Bounded, Taken) ->
    {{Arrived, OfThese, Messages}, Left} = first(Levels),
    case cut(N, Bytes, Messages) of
        {Length, BytesLeft, Messages, []} ->
            out(N - Length, BytesLeft, Left, Since, Count + Length, Bounded + OfThese, [Messages | Taken]);
        {Length, _, Some, More} ->
            Out = if OfThese =:= 0 -> 0; true -> bounded(Some) end,
            Rest = put_first({Arrived, OfThese - Out, More}, Levels, Left),
            {Since, Count + Length, Bounded + Out, lists:append(lists:reverse([Some | Taken])), Rest}
    end.

bounded(Messages) -> length([bounded || Message <- Messages, weir_server_message:is_bounded(Message)]).

first([{Priority, Segments} | Levels]) ->
    {{value, Segment}, Left} = queue:out(Segments),
    {Segment, level(Priority, Left, Levels)}.

level(Priority, Segments, Levels) ->
    case queue:is_empty(Segments) of
        true -> Levels;
        false -> [{Priority, Segments} | Levels]
    end.

%% Puts the rest of a segment back to the level from which it came.
put_first(Segment, [{Priority, _} | _], [{Priority, Segments} | Levels]) ->
    [{Priority, queue:in_r(Segment, Segments)} | Levels];
put_first(Segment, [{Priority, _} | _], Levels) ->
    [{Priority, queue:from_list([Segment])} | Levels].

cut(N, infinity, Messages) ->
    case length(Messages) of
        Length when Length =< N -> {Length, infinity, Messages, []};
        _ ->
            {Some, More} = lists:split(N, Messages),
            {N, infinity, Some, More}
    end;
cut(N, Bytes, Messages) ->
    cut(N, Bytes, Messages, 0, []).

cut(N, Bytes, Messages, Length, Some) when Length =:= N; Bytes =< 0; Messages =:= [] ->
    {Length, Bytes, lists:reverse(Some), Messages};
cut(N, Bytes, [Message | More], Length, Some) ->
    cut(N, Bytes - erlang:external_size(Message), More, Length + 1, [Message | Some]).

%% @doc Takes out `N' bounded messages, those of the lowest priority first: of one priority the oldest, or the newest.
%% There must be as many. Cost: with `oldest' one step for each segment and each dropped message; with `newest' also one
%% pass over a segment.
-spec drop(oldest | newest, N :: non_neg_integer(), queue()) -> {Gone :: [Message :: term()], queue()}.
drop(End, N, Levels) -> drop(End, N, lists:reverse(Levels), [], []).

drop(_End, 0, Higher, Lower, Gone) ->
    {Gone, lists:reverse(Higher, Lower)};
drop(End, N, [{Priority, Segments} | Higher], Lower, Gone) ->
    {NowGone, Left} = drop_segments(End, N, in_direction(End, queue:to_list(Segments)), []),
    Level = level(Priority, queue:from_list(in_direction(End, Left)), Lower),
    drop(End, N - length(NowGone), Higher, Level, NowGone ++ Gone).

in_direction(oldest, List) -> List;
in_direction(newest, List) -> lists:reverse(List).

drop_segments(_End, N, Segments, Gone) when N =:= 0; Segments =:= [] ->
    {Gone, Segments};
drop_segments(End, N, [{_, 0, _} = Segment | Segments], Gone) ->
    {NowGone, Left} = drop_segments(End, N, Segments, Gone),
    {NowGone, [Segment | Left]};
drop_segments(End, N, [{Since, Bounded, Messages} | Segments], Gone) ->
    Now = min(N, Bounded),
    {Passed, Rest, MoreGone} = drop_messages(Now, in_direction(End, Messages), [], Gone),
    {AllGone, Left} = drop_segments(End, N - Now, Segments, MoreGone),
    %% The free messages that the search has passed become a segment without bounded messages.
    {AllGone, segment(End, Since, 0, lists:reverse(Passed), segment(End, Since, Bounded - Now, Rest, Left))}.

segment(_End, _Since, _Bounded, [], Segments) -> Segments;
segment(End, Since, Bounded, Messages, Segments) -> [{Since, Bounded, in_direction(End, Messages)} | Segments].

drop_messages(0, Messages, Passed, Gone) ->
    {Passed, Messages, Gone};
drop_messages(N, [Message | Messages], Passed, Gone) ->
    case weir_server_message:is_bounded(Message) of
        true -> drop_messages(N - 1, Messages, Passed, [Message | Gone]);
        false -> drop_messages(N, Messages, [Message | Passed], Gone)
    end.

%% @doc Takes out the free messages that `IsWanted' chooses, in their order. Cost: one pass over all messages.
-spec take(IsWanted :: fun((Message :: term()) -> boolean()), queue()) -> {[Message :: term()], queue()}.
take(IsWanted, Levels) ->
    Parted = [
        {Priority, [{Since, Bounded, lists:partition(IsWanted, Messages)} || {Since, Bounded, Messages} <- Segments]}
     || {Priority, Row} <- Levels, Segments <- [queue:to_list(Row)]
    ],
    Taken = lists:append([Wanted || {_, Segments} <- Parted, {_, _, {Wanted, _}} <- Segments]),
    Left = [
        {Priority, queue:from_list(Segments)}
     || {Priority, Row} <- Parted,
        Segments <- [[{Since, Bounded, Messages} || {Since, Bounded, {_, [_ | _] = Messages}} <- Row]],
        Segments =/= []
    ],
    {Taken, Left}.

%% @doc Returns all messages in the order in which they come out.
-spec to_list(queue()) -> [Message :: term()].
to_list(Levels) ->
    lists:append([Messages || {_, Segments} <- Levels, {_, _, Messages} <- queue:to_list(Segments)]).
