%% @private The limit over all senders: what is counted, and where.
%%
%% A receiver with a limit has a row `{Pid, Words, Max}' in a table that weir_flow_sup owns and weir_flow_limits
%% writes. Senders read the row and change words:
%%
%% ```
%%   sender:    take (+1) -> envelope {'$weir_credit', Words, Message} -> receiver's mailbox
%%   receiver:  unwraps it, handles it, and takes off as many as it has handled, at once:  atomics:sub(Words, 1, Count)
%% '''
%%
%% Word 1 has two parts: how many are in flight (the low 24 bits, with a sign), and above that how many were taken
%% since the last sample of weir_flow_limits. Both are raised by the one addition that a take is; the receiver's
%% subtraction changes the lower part only. weir_flow_limits says what the upper part is for. It takes it off at each
%% sample, so the word stays a small integer.
%%
%% The row is the process's, not its name's: a receiver that was restarted has new words, which begin at zero, and
%% what its predecessor had not handled is counted in words that nobody reads any more.
%%
%% A sender that is killed between the taking and the sending leaves the count one too high; weir_flow_limits mends
%% that. Killed before or after it leaves nothing.
-module(weir_flow_limit).

-export([new_table/0, take/1, take/2, envelope/2, count_busy/1, count_wait/1]).
-export([insert/2, delete/1, rows/0, row/1, sample/1, take_off/2, info/1]).

-include("weir_flow.hrl").

-export_type([words/0, max/0]).

-define(TABLE, weir_flow_limits).

-define(CREDITS, 1).
-define(BUSY, 2).
-define(WAITS, 3).
-define(MENDED, 4).
-define(WORDS, 4).

%% {Name, Index, Type, Help}
-define(COUNTERS, [
    {in_flight, ?CREDITS, gauge, "messages sent under the limit and not handled yet"},
    {busy, ?BUSY, counter, "messages refused because the limit was reached"},
    {waits, ?WAITS, counter, "messages that had to wait for the limit"},
    {mended, ?MENDED, counter, "credits taken off because whoever had taken them sent nothing"}
]).

-define(TAKEN_SHIFT, 24).
-define(HALF, (1 bsl (?TAKEN_SHIFT - 1))).
-define(ONE_TAKEN, ((1 bsl ?TAKEN_SHIFT) + 1)).
-define(IN_FLIGHT(Word), ((((Word) + ?HALF) band ((1 bsl ?TAKEN_SHIFT) - 1)) - ?HALF)).

-type words() :: atomics:atomics_ref().

-type max() :: 1..4000000.
%% Half of what the lower part has room for: senders add before they know that there is no room.

%% @doc The table. For weir_flow_sup.
%% One that has it already keeps it: an upgrade runs the init/1 of a supervisor again.
-spec new_table() -> ok.
new_table() ->
    _ = ets:info(?TABLE, owner) =:= self() orelse ets:new(?TABLE, [named_table, public, {read_concurrency, true}]),
    ok.

%% @doc Takes a credit for one message to a process. `full': there is none; the words are for the counting of that.
%%
%% Cost: a look-up, an atomic read and an addition. When it is full nothing is written, so those who try do not keep
%% the word from whoever gives back.
-spec take(weir_flow_dest:to()) -> {ok, words()} | {full, words()} | no_limit | {not_started, weir_flow}.
take(To) ->
    case row(To) of
        {_, Words, Max} ->
            case ?IN_FLIGHT(atomics:get(Words, ?CREDITS)) < Max of
                true -> take(Words, Max);
                false -> {full, Words}
            end;
        Reason ->
            Reason
    end.

%% @private Takes a credit where there was room a moment ago. For {@link take/1}, and tests of the moment.
-spec take(words(), max()) -> {ok, words()} | {full, words()}.
take(Words, Max) ->
    case ?IN_FLIGHT(atomics:add_get(Words, ?CREDITS, ?ONE_TAKEN)) =< Max of
        true ->
            {ok, Words};
        false ->
            ok = atomics:sub(Words, ?CREDITS, ?ONE_TAKEN),
            {full, Words}
    end.

%% @doc What is sent for a message that a credit was taken for.
-spec envelope(words(), Message :: term()) -> {'$weir_credit', words(), Message :: term()}.
envelope(Words, Message) -> {'$weir_credit', Words, Message}.

%% @doc Counts a message that was refused.
-spec count_busy(words()) -> ok.
count_busy(Words) -> atomics:add(Words, ?BUSY, 1).

%% @doc Counts a message that has to wait.
-spec count_wait(words()) -> ok.
count_wait(Words) -> atomics:add(Words, ?WAITS, 1).

%% @doc The row of a process. `{not_started, weir_flow}': there is no table.
-spec row(weir_flow_dest:to()) -> {pid(), words(), max()} | no_limit | {not_started, weir_flow}.
row(To) ->
    try ets:lookup(?TABLE, To) of
        [Row] -> Row;
        [] -> no_limit
    catch
        error:badarg -> ?NOT_STARTED
    end.

%% @doc All rows.
-spec rows() -> [{pid(), words(), max()}].
rows() -> ets:tab2list(?TABLE).

%% @doc weir_flow_limits: gives a process a limit, or another one; what is counted stays.
-spec insert(pid(), max()) -> ok.
insert(Pid, Max) ->
    Words =
        case row(Pid) of
            {_, Old, _} -> Old;
            no_limit -> atomics:new(?WORDS, [{signed, true}])
        end,
    true = ets:insert(?TABLE, {Pid, Words, Max}),
    ok.

%% @doc weir_flow_limits: the process is gone.
-spec delete(pid()) -> ok.
delete(Pid) ->
    true = ets:delete(?TABLE, Pid),
    ok.

%% @doc weir_flow_limits: what is in flight, if nothing was taken since the last sample. `taken': something was.
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

%% @doc weir_flow_limits: what is in flight is nobody's, if that is still all there is. `changed': it is not.
-spec take_off(words(), InFlight :: integer()) -> ok | changed.
take_off(Words, InFlight) ->
    case atomics:compare_exchange(Words, ?CREDITS, InFlight, 0) of
        ok -> atomics:add(Words, ?MENDED, abs(InFlight));
        _ -> changed
    end.

%% @doc A limit and its counters.
-spec info({pid(), words(), max()}) -> weir_flow:limit_info().
info({_Pid, Words, Max}) ->
    Counters = [{Name, atomics:get(Words, Index)} || {Name, Index, _Type, _Help} <- ?COUNTERS],
    Info = #{in_flight := Word} = maps:from_list(Counters),
    Info#{limit => Max, in_flight := max(0, ?IN_FLIGHT(Word))}.
