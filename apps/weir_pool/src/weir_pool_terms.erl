%% @doc Where a pool lives: persistent terms and atomics, and nothing else that a pick or a claim reads.
%%
%% A *main term* per open pool (its shape and the references below) and a *slot term* per slot (its pid). Main terms
%% are written by weir_pool_registry, slot terms by the weir_pool_keeper that owns the slots and, once that is gone, by
%% the registry. This module knows their layout and starts no process.
%%
%% Cursors are words of one atomics array, one for each scheduler, each in a cache line of its own. They are unsigned,
%% so that a cursor that wraps goes on at 0 instead of at a negative number.
%%
%% The words of slots are in segments: a pool that grows beyond its arrays gets one more, and no word ever moves.
-module(weir_pool_terms).

-export([new/3, reshape/3, id/1, pool/1, pool/2, open/2, close/1]).
-export([fill/3, vacate/2, worker/2, erase_slots/2]).
-export([workers/1, workers/2, draws/1, counters/1]).
-export([count/2, count/3, segment/2, has_words/2, gate/2]).

-include("weir_pool.hrl").

%% {Name, Index, Type, Help}
-define(COUNTERS, [
    {restarts, ?RESTARTS, counter, "workers that took a slot which had been filled before"},
    {start_failures, ?START_FAILURES, counter, "worker starts that failed"},
    {skips, ?SKIPS, counter, "vacant slots that picks drew and passed over"},
    {busy, ?BUSY, counter, "claims refused at once because no worker was free"},
    {timeouts, ?TIMEOUTS, counter, "claims that waited until their deadline, or whose work passed it"},
    {overloads, ?OVERLOADS, counter, "claims refused because the queue was full, or dropped by CoDel"},
    {waits, ?WAITS, counter, "claims that had to wait and got a worker"},
    {abandoned, ?ABANDONED, counter, "claims that ended with their claimer, or whose work passed its time"},
    {check_failures, ?CHECK_FAILURES, counter, "idle workers that failed their health check"}
]).

%% The first array has room for some growth.
-define(ROOM(Limit), max(16, (Limit))).

%% @doc The main term of a pool that is not open yet, with everything at its start.
-spec new(weir_pool:name(), Id :: pos_integer(), #conf{}) -> #pool{}.
new(Name, Id, #conf{size = Size, overflow = {Overflow, _}, strategy = Strategy, max_queue = MaxQueue}) ->
    Schedulers = erlang:system_info(schedulers),
    %% One line before the first cursor and one behind the last: the array need not begin at a line of its own.
    Cursors = atomics:new((Schedulers + 2) * ?LINE_WORDS, [{signed, false}]),
    %% Schedulers begin at equal distances: beginning together they would go over the slots in step. The sum of where
    %% they begin is kept in the first line, for draws/1.
    Starts = [{Scheduler, (Scheduler - 1) * Size div Schedulers} || Scheduler <- lists:seq(1, Schedulers)],
    lists:foreach(fun({Scheduler, Start}) -> atomics:put(Cursors, ?CURSOR(Scheduler), Start) end, Starts),
    ok = atomics:put(Cursors, ?CURSOR(0), lists:sum([Start || {_, Start} <- Starts])),
    Limit = Size + Overflow,
    #pool{
        base = base(Id),
        size = Size,
        strategy = Strategy,
        cursors = Cursors,
        counters = counters:new(length(?COUNTERS), [write_concurrency]),
        name = Name,
        limit = Limit,
        segments = [{1, new_words(?ROOM(Limit))}],
        gate = atomics:new(?GATE_WORDS, [{signed, true}]),
        holders = weir_pool_holder:table(),
        max_queue = MaxQueue
    }.

%% @doc The same pool with another size. Words of new slots are vacant.
-spec reshape(#pool{}, Size :: 0 | weir_pool:size(), Limit :: 0 | weir_pool:size()) -> #pool{}.
reshape(#pool{segments = [{First, Words} | _] = Segments} = Pool, Size, Limit) ->
    Room = First + room(Words) - 1,
    case Limit =< Room of
        true ->
            Pool#pool{size = Size, limit = Limit};
        false ->
            %% At least as many again, so that there are few segments however often a pool grows.
            New = {Room + 1, new_words(max(Limit - Room, Room))},
            Pool#pool{size = Size, limit = Limit, segments = [New | Segments]}
    end.

%% A line before the first slot's and one behind the last, as with the cursors.
new_words(Slots) -> atomics:new((Slots + 2) * ?LINE_WORDS, [{signed, true}]).

room(Words) ->
    #{size := Size} = atomics:info(Words),
    Size div ?LINE_WORDS - 2.

base(Id) -> Id * (?MAX_SIZE + 1).

%% @doc The id that tells a pool from its namesakes.
-spec id(#pool{}) -> Id :: pos_integer().
id(#pool{base = Base}) -> Base div (?MAX_SIZE + 1).

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

%% @doc Opens a pool: from now on it is picked from. Of an open pool, changes its shape.
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

%% @doc Who is in a slot.
-spec worker(#pool{}, weir_pool:slot()) -> pid() | undefined.
worker(#pool{base = Base}, Slot) -> persistent_term:get(?SLOT_KEY(Base, Slot), undefined).

%% @doc Removes the slot terms up to this slot. Harmless when they are gone already.
-spec erase_slots(Id :: pos_integer(), Last :: non_neg_integer()) -> ok.
erase_slots(Id, Last) ->
    Base = base(Id),
    lists:foreach(fun(Slot) -> persistent_term:erase(?SLOT_KEY(Base, Slot)) end, lists:seq(1, Last)).

%% @doc The filled slots that are picked from, in their order. Reads every slot term.
-spec workers(#pool{}) -> [{weir_pool:slot(), pid()}].
workers(#pool{size = Size} = Pool) -> workers(Pool, Size).

%% @doc The filled slots up to this one, in their order.
-spec workers(#pool{}, Last :: non_neg_integer()) -> [{weir_pool:slot(), pid()}].
workers(#pool{base = Base}, Last) -> workers(Base, Last, []).

workers(_Base, 0, Workers) ->
    Workers;
workers(Base, Slot, Workers) ->
    case persistent_term:get(?SLOT_KEY(Base, Slot), undefined) of
        undefined -> workers(Base, Slot - 1, Workers);
        Pid -> workers(Base, Slot - 1, [{Slot, Pid} | Workers])
    end.

%% @doc How often all cursors together were drawn.
-spec draws(#pool{}) -> non_neg_integer().
draws(#pool{cursors = Cursors}) ->
    Now = [atomics:get(Cursors, ?CURSOR(Scheduler)) || Scheduler <- lists:seq(1, erlang:system_info(schedulers))],
    (lists:sum(Now) - atomics:get(Cursors, ?CURSOR(0))) band ?CURSOR_MASK.

%% @doc All counters by name.
-spec counters(#pool{}) -> #{atom() => non_neg_integer()}.
counters(#pool{counters = Counters}) ->
    maps:from_list([{Name, counters:get(Counters, Index)} || {Name, Index, _Type, _Help} <- ?COUNTERS]).

%% @doc Adds one to a counter.
-spec count(#pool{}, Index :: pos_integer()) -> ok.
count(Pool, Index) -> count(Pool, Index, 1).

%% @doc Adds to a counter.
-spec count(#pool{}, Index :: pos_integer(), non_neg_integer()) -> ok.
count(#pool{counters = Counters}, Index, N) -> counters:add(Counters, Index, N).

%% @doc The array with a slot's words, and the first slot it has words of.
-spec segment([{weir_pool:slot(), atomics:atomics_ref()}], weir_pool:slot()) ->
    {First :: weir_pool:slot(), atomics:atomics_ref()}.
segment([{First, _Words} = Segment | _], Slot) when Slot >= First -> Segment;
segment([_ | Older], Slot) -> segment(Older, Slot).

%% @doc Whether there are words of a slot.
-spec has_words(#pool{}, weir_pool:slot()) -> boolean().
has_words(#pool{segments = [{First, Words} | _]}, Slot) -> Slot < First + room(Words).

%% @doc A word of the gate.
-spec gate(#pool{}, Index :: pos_integer()) -> integer().
gate(#pool{gate = Gate}, Index) -> atomics:get(Gate, Index).
