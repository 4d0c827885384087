%% @doc Where a pool lives: persistent terms and atomics, and nothing else that a pick reads.
%%
%% A *main term* per open pool (its size and the references below) and a *slot term* per slot (its pid). Main terms
%% are written by weir_pool_registry, slot terms by the weir_pool_keeper that owns the slots and, once that is gone, by
%% the registry. This module knows their layout and starts no process.
%%
%% Cursors are words of one atomics array, one for each scheduler, each in a cache line of its own. They are unsigned,
%% so that a cursor that wraps goes on at 0 instead of at a negative number.
-module(weir_pool_terms).

-export([new/2, pool/1, pool/2, open/2, close/1]).
-export([fill/3, vacate/2, erase_slots/2]).
-export([workers/1, draws/1, counters/1]).
-export([count/2]).

-include("weir_pool.hrl").

%% {Name, Index, Type, Help}
-define(COUNTERS, [
    {restarts, ?RESTARTS, counter, "workers that took a slot which had been filled before"},
    {start_failures, ?START_FAILURES, counter, "worker starts that failed"},
    {skips, ?SKIPS, counter, "vacant slots that pick/1 drew and passed over"}
]).

%% @doc The main term of a pool that is not open yet: its cursors and counters at their start.
-spec new(Id :: pos_integer(), weir_pool:size()) -> #pool{}.
new(Id, Size) ->
    Schedulers = erlang:system_info(schedulers),
    %% One line before the first cursor and one behind the last: the array need not begin at a line of its own.
    Cursors = atomics:new((Schedulers + 2) * ?LINE_WORDS, [{signed, false}]),
    lists:foreach(
        fun(Scheduler) -> atomics:put(Cursors, ?CURSOR(Scheduler), start_of(Scheduler, Schedulers, Size)) end,
        lists:seq(1, Schedulers)
    ),
    #pool{
        base = base(Id),
        size = Size,
        cursors = Cursors,
        counters = counters:new(length(?COUNTERS), [write_concurrency])
    }.

%% Schedulers begin at equal distances: beginning together they would go over the slots in step.
start_of(Scheduler, Schedulers, Size) -> (Scheduler - 1) * Size div Schedulers.

base(Id) -> Id * (?MAX_SIZE + 1).

%% @doc The main term of an open pool.
-spec pool(weir_pool:name()) -> #pool{} | undefined.
pool(Name) -> persistent_term:get(?MAIN_KEY(Name), undefined).

%% @doc The main term of an open pool, if it is that of this id and not of a namesake.
-spec pool(weir_pool:name(), Id :: pos_integer()) -> #pool{} | undefined.
pool(Name, Id) ->
    Base = base(Id),
    case pool(Name) of
        #pool{base = Base} = Pool -> Pool;
        _ -> undefined
    end.

%% @doc Opens a pool: from now on it is picked from.
-spec open(weir_pool:name(), #pool{}) -> ok.
open(Name, #pool{} = Pool) -> persistent_term:put(?MAIN_KEY(Name), Pool).

%% @doc Closes a pool. Every process of the node is scanned, so this is for pools that stop.
-spec close(weir_pool:name()) -> ok.
close(Name) ->
    _ = persistent_term:erase(?MAIN_KEY(Name)),
    ok.

%% @doc Puts a worker in a slot. No process is scanned.
-spec fill(#pool{}, weir_pool:slot(), pid()) -> ok.
fill(#pool{base = Base}, Slot, Pid) when node(Pid) =:= node() ->
    persistent_term:put(?SLOT_KEY(Base, Slot), Pid).

%% @doc Leaves a slot vacant. No process is scanned.
-spec vacate(#pool{}, weir_pool:slot()) -> ok.
vacate(#pool{base = Base}, Slot) ->
    persistent_term:put(?SLOT_KEY(Base, Slot), undefined).

%% @doc Removes all slot terms of a pool. Harmless when they are gone already.
-spec erase_slots(Id :: pos_integer(), weir_pool:size()) -> ok.
erase_slots(Id, Size) ->
    Base = base(Id),
    lists:foreach(fun(Slot) -> persistent_term:erase(?SLOT_KEY(Base, Slot)) end, lists:seq(1, Size)).

%% @doc The filled slots, in their order. Reads every slot term.
-spec workers(#pool{}) -> [{weir_pool:slot(), pid()}].
workers(#pool{base = Base, size = Size}) -> workers(Base, Size, []).

workers(_Base, 0, Workers) ->
    Workers;
workers(Base, Slot, Workers) ->
    case persistent_term:get(?SLOT_KEY(Base, Slot), undefined) of
        undefined -> workers(Base, Slot - 1, Workers);
        Pid -> workers(Base, Slot - 1, [{Slot, Pid} | Workers])
    end.

%% @doc How often all cursors together were drawn.
-spec draws(#pool{}) -> non_neg_integer().
draws(#pool{cursors = Cursors, size = Size}) ->
    Schedulers = erlang:system_info(schedulers),
    lists:sum([
        (atomics:get(Cursors, ?CURSOR(Scheduler)) - start_of(Scheduler, Schedulers, Size)) band ?CURSOR_MASK
     || Scheduler <- lists:seq(1, Schedulers)
    ]).

%% @doc All counters by name.
-spec counters(#pool{}) -> #{restarts | start_failures | skips => non_neg_integer()}.
counters(#pool{counters = Counters}) ->
    maps:from_list([{Name, counters:get(Counters, Index)} || {Name, Index, _Type, _Help} <- ?COUNTERS]).

%% @doc Adds one to a counter.
-spec count(#pool{}, Index :: pos_integer()) -> ok.
count(#pool{counters = Counters}, Index) -> counters:add(Counters, Index, 1).
