%% @private The limit of one receiver over all its senders: the row, the words, and the meaning of each word.
%%
%% A receiver with a limit has a row `{Pid, Words, Max, Queue}' in a table. weir_flow_sup owns the table, and
%% weir_flow_limits writes the rows. Queue is the process in which senders wait (weir_flow_queue), or `none' if no
%% sender has waited yet. Senders read the row and change words:
%%
%% ```
%%   sender:    take (+1) -> envelope {'$weir_credit', Words, Message} -> receiver's mailbox
%%   receiver:  unwraps the message, handles it, and gives back its credit:  atomics:sub(Words, 1, Count)
%% '''
%%
%% Word 1 has two parts. The low 24 bits, with a sign, count the messages in flight. The bits above count the credits
%% taken since the last sample of weir_flow_limits, which mends the count only if that number is 0. A take raises both
%% parts with one addition, and the subtraction of the receiver lowers only the lower part. Each sample sets the upper
%% part to 0, so the word stays a small integer.
%%
%% The row belongs to the process and not to its name. A restarted receiver has new words, which begin at zero. No
%% process reads the words of its predecessor any more.
%%
%% If a sender is killed between the take and the send, the count stays one too high until weir_flow_limits mends the
%% count. A sender that is killed at any other point leaves nothing.
-module(weir_flow_limit).

-export([new_table/0, take/1, take_woken/1, envelope/2, count_busy/1, count_wait/1]).
-export([room/1, tried/1, set_ahead/3]).
-export([insert/2, set_queue/2, delete/1, rows/0, row/1, sample/1, take_off/2, info/1]).

-include("weir_flow.hrl").

-export_type([words/0, max/0, row/0]).

-define(TABLE, weir_flow_limits).

-define(CREDITS, 1).
-define(BUSY, 2).
-define(WAITS, 3).
-define(MENDED, 4).
-define(QUEUED, 5).
-define(TRIED, 6).
-define(WOKEN, 7).
-define(WORDS, 7).

%% {Name, Index, Type, Help}
-define(COUNTERS, [
    {in_flight, ?CREDITS, gauge, "messages sent under the limit and not handled yet"},
    {busy, ?BUSY, counter, "messages refused because the limit was reached"},
    {waits, ?WAITS, counter, "messages that had to wait for the limit"},
    {queued, ?QUEUED, gauge, "senders that wait for the limit"},
    {mended, ?MENDED, counter, "credits taken off because their senders were killed before they sent"}
]).

-define(TAKEN_SHIFT, 24).
-define(HALF, (1 bsl (?TAKEN_SHIFT - 1))).
-define(ONE_TAKEN, ((1 bsl ?TAKEN_SHIFT) + 1)).
-define(IN_FLIGHT(Word), ((((Word) + ?HALF) band ((1 bsl ?TAKEN_SHIFT) - 1)) - ?HALF)).

-type words() :: atomics:atomics_ref().

-type max() :: 1..4000000.
%% The largest limit is half of the range of the lower part, because senders add before they know whether there is room.

-type row() :: {pid(), words(), max(), Queue :: pid() | none}.

%% @doc Makes the table, for weir_flow_sup. A supervisor that has the table keeps the table: an upgrade calls the
%% supervisor's init/1 again.
-spec new_table() -> ok.
new_table() ->
    _ = ets:info(?TABLE, owner) =:= self() orelse ets:new(?TABLE, [named_table, public, {read_concurrency, true}]),
    ok.

%% @doc Takes a credit for one message to a process. If there is none, or other senders wait for one, returns `full'
%% with the words that count such messages.
%%
%% Cost: a look-up, four atomic reads and an addition. When the limit is reached, `take/1' writes nothing, so senders
%% that try do not keep the word from the receiver that gives credits back.
-spec take(weir_flow_dest:to()) -> {ok, words()} | {full, words()} | no_limit | {not_started, weir_flow}.
take(To) ->
    case row(To) of
        {_, Words, Max, _} ->
            case is_first(Words) andalso ?IN_FLIGHT(atomics:get(Words, ?CREDITS)) < Max of
                true -> take(Words, Max);
                false -> {full, Words}
            end;
        Reason ->
            Reason
    end.

%% Whether no sender waits, and each woken sender has tried.
is_first(Words) ->
    atomics:get(Words, ?QUEUED) =:= 0 andalso atomics:get(Words, ?WOKEN) =< atomics:get(Words, ?TRIED).

%% @doc Takes a credit for a sender that the queue has woken, although other senders wait. Counts the try.
-spec take_woken(weir_flow_dest:to()) -> {ok, words()} | {full, words()} | no_limit | {not_started, weir_flow}.
take_woken(To) ->
    case row(To) of
        {_, Words, Max, _} ->
            Taken = take(Words, Max),
            ok = atomics:add(Words, ?TRIED, 1),
            Taken;
        Reason ->
            Reason
    end.

%% Takes a credit after a check that found room. If other senders have taken the room since, takes no credit.
take(Words, Max) ->
    case ?IN_FLIGHT(atomics:add_get(Words, ?CREDITS, ?ONE_TAKEN)) =< Max of
        true ->
            {ok, Words};
        false ->
            ok = atomics:sub(Words, ?CREDITS, ?ONE_TAKEN),
            {full, Words}
    end.

%% @doc Returns the number of credits that are left, 0 for a process without a limit. For the queue.
-spec room(pid()) -> integer().
room(To) ->
    case row(To) of
        {_, Words, Max, _} -> Max - max(0, ?IN_FLIGHT(atomics:get(Words, ?CREDITS)));
        _NoLimitOrNotStarted -> 0
    end.

%% @doc Returns how often a woken sender has tried to take a credit. For the queue.
-spec tried(words()) -> non_neg_integer().
tried(Words) -> atomics:get(Words, ?TRIED).

%% @doc Publishes the numbers of senders that the queue has woken and that wait. For the queue, and for weir_flow_limits
%% when the queue has ended.
-spec set_ahead(words(), Woken :: non_neg_integer(), Queued :: non_neg_integer()) -> ok.
set_ahead(Words, Woken, Queued) ->
    %% In this order: a sender that leaves the queue counts as woken before it no longer counts as queued.
    ok = atomics:put(Words, ?WOKEN, Woken),
    atomics:put(Words, ?QUEUED, Queued).

%% @doc Returns the message that is sent under the limit, with its credit.
-spec envelope(words(), Message :: term()) -> {'$weir_credit', words(), Message :: term()}.
envelope(Words, Message) -> {'$weir_credit', Words, Message}.

%% @doc Counts a message that was refused.
-spec count_busy(words()) -> ok.
count_busy(Words) -> atomics:add(Words, ?BUSY, 1).

%% @doc Counts a message that has to wait.
-spec count_wait(words()) -> ok.
count_wait(Words) -> atomics:add(Words, ?WAITS, 1).

%% @doc Returns the row of a process. If there is no table, returns `{not_started, weir_flow}'.
-spec row(weir_flow_dest:to()) -> row() | no_limit | {not_started, weir_flow}.
row(To) ->
    try ets:lookup(?TABLE, To) of
        [Row] -> Row;
        [] -> no_limit
    catch
        error:badarg -> ?NOT_STARTED
    end.

%% @doc Returns all rows.
-spec rows() -> [row()].
rows() -> ets:tab2list(?TABLE).

%% @doc Gives a process a limit, or changes its limit and keeps its words. For weir_flow_limits.
-spec insert(pid(), max()) -> ok.
insert(Pid, Max) ->
    Row =
        case row(Pid) of
            {_, Words, _, Queue} -> {Pid, Words, Max, Queue};
            no_limit -> {Pid, atomics:new(?WORDS, [{signed, true}]), Max, none}
        end,
    true = ets:insert(?TABLE, Row),
    ok.

%% @doc Names the queue of a process with a limit. For weir_flow_limits.
-spec set_queue(pid(), Queue :: pid()) -> ok.
set_queue(Pid, Queue) ->
    true = ets:update_element(?TABLE, Pid, {4, Queue}),
    ok.

%% @doc Deletes the row of a process that has died. For weir_flow_limits.
-spec delete(pid()) -> ok.
delete(Pid) ->
    true = ets:delete(?TABLE, Pid),
    ok.

%% @doc Returns the number of messages in flight. If a credit was taken since the last sample, returns `taken'. For
%% weir_flow_limits.
-spec sample(words()) -> {in_flight, integer()} | taken.
sample(Words) ->
    Word = atomics:get(Words, ?CREDITS),
    InFlight = ?IN_FLIGHT(Word),
    case Word - InFlight of
        0 ->
            {in_flight, InFlight};
        Taken ->
            ok = atomics:sub(Words, ?CREDITS, Taken),
            taken
    end.

%% @doc Takes off the credits of senders that sent nothing. If the count has changed meanwhile, returns `changed' and
%% takes nothing off. For weir_flow_limits.
-spec take_off(words(), InFlight :: integer()) -> ok | changed.
take_off(Words, InFlight) ->
    case atomics:compare_exchange(Words, ?CREDITS, InFlight, 0) of
        ok -> atomics:add(Words, ?MENDED, abs(InFlight));
        _ -> changed
    end.

%% @doc Returns a limit and its counters.
-spec info(row()) -> weir_flow:limit_info().
info({_Pid, Words, Max, _Queue}) ->
    Counters = [{Name, atomics:get(Words, Index)} || {Name, Index, _Type, _Help} <- ?COUNTERS],
    Info = #{in_flight := Word} = maps:from_list(Counters),
    Info#{limit => Max, in_flight := max(0, ?IN_FLIGHT(Word))}.
