%% @doc What is shown of a pool. Everything is read in the caller, from where picks and claims read and write it, so the
%% parts of an answer need not be of the same moment.
-module(weir_pool_info).

-export([info/1]).

-include("weir_pool.hrl").

%% @doc How the pool is.
%%
%% Cost: reads a term and a word or two of every slot, 50 ns each.
-spec info(weir_pool:name()) -> {ok, weir_pool:info()} | {error, no_pool}.
info(Name) ->
    case weir_pool_terms:pool(Name) of
        #pool{} = Pool -> {ok, info_of(Pool)};
        undefined -> {error, no_pool}
    end.

info_of(#pool{name = Name, size = Size, limit = Limit, strategy = Strategy} = Pool) ->
    Live = weir_pool_terms:workers(Pool, Limit),
    %% Claims are counted in the words of slots that the pool has given up, too.
    Words = [weir_pool_word:read(Pool, Slot) || Slot <- lists:seq(1, weir_pool_terms:last_slot(Pool))],
    States = [weir_pool_word:state(Word) || Word <- lists:sublist(Words, Limit)],
    %% Draws before skips: every skip was drawn, so in between there may be too many skips, but never too few.
    Draws = weir_pool_terms:draws(Pool),
    #{skips := Skips, claims := Claims} = Counters = weir_pool_terms:counters(Pool),
    Counters#{
        name => Name,
        size => Size,
        limit => Limit,
        strategy => Strategy,
        live => length(Live),
        vacant => Size - length([Slot || {Slot, _Worker} <- Live, Slot =< Size]),
        claimed => length([claimed || State <- States, State =:= taken orelse State =:= marked]),
        reserved => length([reserved || reserved <- States]),
        calls => lists:sum([
            max(0, weir_pool_call:calls(Pool, Slot))
         || weir_pool_call:is_counted(Pool), Slot <- lists:seq(1, Limit)
        ]),
        claims => Claims + lists:sum([weir_pool_word:claims(Word) || Word <- Words]),
        waiting => weir_pool_terms:gate(Pool, ?GATE_WAITING),
        oldest_wait_ms => since(weir_pool_terms:gate(Pool, ?GATE_OLDEST)),
        longest_wait_ms => weir_pool_terms:gate(Pool, ?GATE_LONGEST),
        picks => max(0, Draws - Skips),
        start_error => start_error(Name)
    }.

start_error(Name) ->
    case weir_pool_registry:lookup(Name) of
        {ok, {_, _, _, _, Error}} -> Error;
        {error, no_pool} -> none
    end.

%% 0: nobody waits.
since(0) -> 0;
since(Oldest) -> max(0, erlang:monotonic_time(millisecond) - Oldest).
