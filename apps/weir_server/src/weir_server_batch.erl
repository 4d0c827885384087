%% @doc The size of the next batch, and how long a batch that is not full waits for more messages.
%%
%% The size is Min at first. If the mailbox had more messages, the size is doubled, up to Max. If the mailbox had less
%% than a quarter, the size is halved. Min and Max are from the option `drain', or else ?MIN and ?MAX.
%%
%% With the option `linger', a batch that is not full waits until its first message is that old. A message for the loop
%% ends the wait, except weir_flow's request for an acknowledgement.
%%
%% A pure module. Times are of os:perf_counter/0.
%% @private
-module(weir_server_batch).

-export([new/1, size/1, bytes/1, room/3]).
-export([linger/2, lingers/1, left/3, end_linger/2, handed_out/1]).

-export_type([batch/0]).

-include("weir_server.hrl").

-define(MIN, 64).
-define(MAX, 1024).

-record(batch, {
    min :: pos_integer(),
    max :: pos_integer() | infinity,
    size :: pos_integer(),
    bytes :: pos_integer() | infinity,
    linger :: non_neg_integer(),
    %% The time until which the batch waits, or `none' if it does not.
    until = none :: none | integer()
}).

-opaque batch() :: #batch{}.

%% @doc Returns the size and the wait of the first batch.
-spec new(#conf{}) -> batch().
new(#conf{drain = Drain, batch_bytes = Bytes, linger = Microseconds}) ->
    {Min, Max} =
        case Drain of
            auto -> {?MIN, ?MAX};
            _ -> Drain
        end,
    Linger = erlang:convert_time_unit(Microseconds, microsecond, perf_counter),
    #batch{min = Min, max = Max, size = Min, bytes = Bytes, linger = Linger}.

%% @doc Returns how many messages the next batch may have.
-spec size(batch()) -> pos_integer().
size(#batch{size = Size}) -> Size.

%% @doc Returns at how many bytes the next batch ends.
-spec bytes(batch()) -> pos_integer() | infinity.
bytes(#batch{bytes = Bytes}) -> Bytes.

%% @doc Returns how many of `Length' messages in the mailbox fit into a batch that has `Waiting' messages, and adapts
%% the size of the next batch.
-spec room(Length :: non_neg_integer(), Waiting :: non_neg_integer(), batch()) -> {non_neg_integer(), batch()}.
room(Length, Waiting, #batch{min = Min, max = Max, size = Size} = Batch) ->
    Room = max(0, Size - Waiting),
    Next =
        if
            Length > Room -> min(2 * Size, Max);
            Size > Min, 4 * (Length + Waiting) < Size -> max(Size div 2, Min);
            true -> Size
        end,
    {min(Length, Room), Batch#batch{size = Next}}.

%% ---------------------------------------------------------------- lingering

%% @doc Begins to wait, unless the batch waits already.
-spec linger(Now :: integer(), none | batch()) -> none | batch().
linger(Now, #batch{linger = Linger, until = none} = Batch) when Linger > 0 -> Batch#batch{until = Now + Linger};
linger(_Now, Batch) -> Batch.

%% @doc Returns whether the batch waits.
-spec lingers(none | batch()) -> boolean().
lingers(#batch{until = Until}) when is_integer(Until) -> true;
lingers(_Batch) -> false.

%% @doc Returns for how long a batch of `Count' messages still waits. 0: the batch is full, or its time is up.
-spec left(Now :: integer(), Count :: non_neg_integer(), batch()) -> non_neg_integer().
left(_Now, Count, #batch{size = Size}) when Count >= Size -> 0;
left(Now, _Count, #batch{until = Until}) -> max(0, Until - Now).

%% @doc Ends the wait.
-spec end_linger(Now :: integer(), batch()) -> batch().
end_linger(Now, Batch) -> Batch#batch{until = Now}.

%% @doc Returns the wait of the next batch, which has not begun.
-spec handed_out(none | batch()) -> none | batch().
handed_out(none) -> none;
handed_out(Batch) -> Batch#batch{until = none}.
