%% @doc Callers that were killed in a counted call: how the manager finds them and corrects the calls words.
%%
%% Not a process: the manager holds the value and calls these functions.
%%
%% Once a second the manager polls the rows of its pool in the calls table (weir_pool_calls), and monitors the callers
%% that it finds there. The process that deletes the row of a dead caller subtracts one from the word.
%%
%% A caller may be killed between inserting the row and adding to the word, or between subtracting and deleting. The row
%% is then without a count, and the manager's correction makes the word one too low. Therefore the manager sets some
%% words back to 0: those that are the same, but not 0, at two polls, while the slot has no row at either poll. The
%% manager does that by an addition, so a call that begins at this moment is not lost. In a slot that is never without
%% calls for that long, the word stays one too low, and its worker gets one call more than others.
%% @private
-module(weir_pool_callers).

-export([new/0, poll/2, caller_down/3]).

-export_type([callers/0]).

-include("weir_pool.hrl").

-record(callers, {
    monitors = #{} :: #{Caller :: pid() => Monitor :: reference()},
    %% Words that are not 0 although their slot has no row.
    doubtful = #{} :: #{weir_pool:slot() => integer()}
}).

-opaque callers() :: #callers{}.

%% @doc Returns the callers of a pool without calls.
-spec new() -> callers().
new() -> #callers{}.

%% @doc Polls the rows of a pool: monitors callers that are new, and sets doubtful words back to 0. Returns how many
%% calls are under way, or in doubt.
%%
%% Cost: none if calls are not counted. Otherwise reads a word of each slot; if any is not 0, or callers are monitored,
%% also copies the calls table of the pool.
-spec poll(#pool{}, callers()) -> {non_neg_integer(), callers()}.
poll(#pool{limit = Limit} = Pool, #callers{monitors = Monitors} = Callers) ->
    Words = [{Slot, Word} || weir_pool_calls:is_counted(Pool), Slot <- lists:seq(1, Limit),
        Word <- [weir_pool_calls:calls(Pool, Slot)], Word =/= 0],
    case Words =:= [] andalso map_size(Monitors) =:= 0 of
        true -> {0, Callers#callers{doubtful = #{}}};
        false -> poll(maps:from_list(weir_pool_calls:rows(Pool)), Words, Pool, Callers)
    end.

poll(Rows, Words, Pool, #callers{monitors = Monitors, doubtful = Before}) ->
    _ = [demonitor(Monitor, [flush]) || Monitor <- maps:values(maps:without(maps:keys(Rows), Monitors))],
    Doubtful = maps:without(maps:values(Rows), maps:from_list(Words)),
    _ = [
        weir_pool_calls:add(Pool, Slot, -Word)
     || {Slot, Word} <- maps:to_list(Doubtful), maps:get(Slot, Before, 0) =:= Word
    ],
    {
        map_size(Rows) + map_size(Doubtful),
        #callers{monitors = maps:map(fun(Pid, _) -> monitored(Pid, Monitors) end, Rows), doubtful = Doubtful}
    }.

monitored(Caller, Monitors) ->
    case Monitors of
        #{Caller := Monitor} -> Monitor;
        #{} -> erlang:monitor(process, Caller, [{tag, caller_down}])
    end.

%% @doc Deletes the row of a dead caller and subtracts its call. The caller may have begun another call of the pool
%% before it was killed.
-spec caller_down(Caller :: pid(), #pool{}, callers()) -> callers().
caller_down(Caller, Pool, #callers{monitors = Monitors} = Callers) ->
    _ = [weir_pool_calls:add(Pool, Slot, -1) || {ok, Slot} <- [weir_pool_calls:take(Caller, Pool)]],
    Callers#callers{monitors = maps:remove(Caller, Monitors)}.
