%% @doc Where a pool lives: persistent terms and atomics, and nothing else that a pick or a claim reads.
%%
%% A *main term* per open pool (its shape and the references below) and a *slot term* per slot (its pid), both written
%% by the pool's manager; what a manager has left is erased by weir_pool_registry. This module knows their layout and
%% starts no process.
%%
%% Cursors are words of one atomics array, one for each scheduler, each in a cache line of its own. They are unsigned,
%% so that a cursor that wraps goes on at 0 instead of at a negative number.
%%
%% The words of slots are in segments: a pool that grows beyond its arrays gets one more, and no word ever moves. A
%% segment has a second array, the *map*, with one bit for each of its slots; weir_pool_word says what for.
%% @private
-module(weir_pool_terms).

-export([new/4, reshape/3, pool/1, open/1, close/1]).
-export([fill/3, vacate/2, worker/2, last_slot/1, erase_slots/1]).
-export([workers/2, draws/1, counters/1, count/2, count/3]).
-export([segment/2, map/2]).

-export_type([segment/0]).

-include("weir_pool.hrl").

-type segment() :: {First :: weir_pool:slot(), Words :: atomics:atomics_ref(), Map :: atomics:atomics_ref()}.

%% {Name, Index, Type, Help}
-define(COUNTERS, [
    {restarts, ?RESTARTS, counter, "workers that took a slot which had been filled before"},
    {start_failures, ?START_FAILURES, counter, "worker starts that failed"},
    {skips, ?SKIPS, counter, "vacant slots that picks drew and passed over"},
    {busy, ?BUSY, counter, "claims refused at once because no worker was free"},
    {timeouts, ?TIMEOUTS, counter, "claims that waited until their deadline, or whose work passed it"},
    {overloads, ?OVERLOADS, counter, "claims refused because the queue was full, or dropped by CoDel"},
    {waits, ?WAITS, counter, "claims that had to wait and got a worker"},
    {abandoned, ?ABANDONED, counter, "claims that ended with their claimer, or left their worker busy or broken"},
    {check_failures, ?CHECK_FAILURES, counter, "idle workers that failed their health check"},
    {claims, ?CLAIMS, counter, "claims that got a worker, but for the last few of each slot (weir_pool_word)"},
    {claimed_ms, ?CLAIMED_MS, counter, "milliseconds that workers were claimed, all slots together, sampled"}
]).

%% The base in a slot's key: bases are multiples of ?MAX_SIZE + 1, a power of two.
-define(BASE_OF(SlotKey), (-(SlotKey) band bnot ?MAX_SIZE)).

%% Bits to a word of the map: a small integer has room for them.
-define(MAP_BITS, 56).
-define(ALL_BITS, ((1 bsl ?MAP_BITS) - 1)).

%% The first arrays have room for some growth.
-define(ROOM(Limit), max(16, (Limit))).

%% @doc The main term of a pool that is not open yet, with everything at its start.
-spec new(weir_pool:name(), Base :: non_neg_integer(), #conf{}, Queue :: pid()) -> #pool{}.
new(Name, Base, #conf{size = Size, overflow = {Overflow, _}, strategy = Strategy, max_queue = MaxQueue}, Queue) ->
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
        base = Base,
        size = Size,
        strategy = Strategy,
        cursors = Cursors,
        counters = counters:new(length(?COUNTERS), [write_concurrency]),
        name = Name,
        limit = Limit,
        segments = [new_segment(1, ?ROOM(Limit))],
        signals = weir_pool_signals:new(),
        manager = self(),
        queue = Queue,
        max_queue = MaxQueue
    }.

%% @doc The same pool with another size. Words of new slots are vacant.
-spec reshape(#pool{}, Size :: 0 | weir_pool:size(), Limit :: 0 | weir_pool:size()) -> #pool{}.
reshape(#pool{segments = Segments} = Pool, Size, Limit) ->
    Room = last_slot(Pool),
    case Limit =< Room of
        true ->
            Pool#pool{size = Size, limit = Limit};
        false ->
            %% At least as many again, so that there are few segments however often a pool grows.
            New = new_segment(Room + 1, max(Limit - Room, Room)),
            Pool#pool{size = Size, limit = Limit, segments = [New | Segments]}
    end.

%% A line before the first slot's and one behind the last, as with the cursors.
new_segment(First, Slots) ->
    Blocks = Slots div ?MAP_BITS + 1,
    Map = atomics:new((Blocks + 2) * ?LINE_WORDS, [{signed, true}]),
    lists:foreach(fun(Block) -> atomics:put(Map, Block * ?LINE_WORDS + 1, ?ALL_BITS) end, lists:seq(1, Blocks)),
    {First, atomics:new((Slots + 2) * ?LINE_WORDS, [{signed, true}]), Map}.

%% @doc The main term of an open pool.
-spec pool(weir_pool:name()) -> #pool{} | undefined.
pool(Name) -> persistent_term:get(?MAIN_KEY(Name), undefined).

%% @doc Opens a pool: from now on it is picked from. Of an open pool, changes its shape.
-spec open(#pool{}) -> ok.
open(#pool{name = Name} = Pool) -> persistent_term:put(?MAIN_KEY(Name), Pool).

%% @doc Closes a pool. Every process of the node is scanned, so this is for pools that stop.
-spec close(weir_pool:name()) -> ok.
close(Name) ->
    _ = persistent_term:erase(?MAIN_KEY(Name)),
    ok.

%% @doc Puts a worker in a slot. No process is scanned.
-spec fill(#pool{}, weir_pool:slot(), pid()) -> ok.
fill(#pool{base = Base}, Slot, Pid) when node(Pid) =:= node() -> persistent_term:put(?SLOT_KEY(Base, Slot), Pid).

%% @doc Leaves a slot vacant. No process is scanned.
-spec vacate(#pool{}, weir_pool:slot()) -> ok.
vacate(#pool{base = Base}, Slot) -> persistent_term:put(?SLOT_KEY(Base, Slot), undefined).

%% @doc Who is in a slot.
-spec worker(#pool{}, weir_pool:slot()) -> pid() | undefined.
worker(#pool{base = Base}, Slot) -> persistent_term:get(?SLOT_KEY(Base, Slot), undefined).

%% @doc The last slot that has words: none behind it can have had a term.
-spec last_slot(#pool{}) -> weir_pool:slot().
last_slot(#pool{segments = [{First, Words, _Map} | _]}) ->
    #{size := Size} = atomics:info(Words),
    First + Size div ?LINE_WORDS - 3.

%% @doc Removes all slots' terms of some pools. Cost: reads the keys of all persistent terms of the node, and copies the
%% node's table of them for each that is removed.
-spec erase_slots(Bases :: [non_neg_integer()]) -> ok.
erase_slots(Bases) ->
    Given = maps:from_keys(Bases, given),
    Keys = [Key || {Key, _Worker} <- persistent_term:get(), is_integer(Key), is_map_key(?BASE_OF(Key), Given)],
    lists:foreach(fun persistent_term:erase/1, Keys).

%% @doc The filled slots up to this one, in their order. Reads every slot term.
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

%% @doc The segment of a slot.
-spec segment(#pool{}, weir_pool:slot()) -> segment().
segment(#pool{segments = Segments}, Slot) -> segment_of(Segments, Slot).

segment_of([{First, _Words, _Map} = Segment | _], Slot) when Slot >= First -> Segment;
segment_of([_ | Older], Slot) -> segment_of(Older, Slot).

%% @doc Where in the map a slot has its bit: the array, the index of the word, the number of the bit, and how many more
%% slots behind this one have theirs in the same word.
-spec map(#pool{}, weir_pool:slot()) ->
    {atomics:atomics_ref(), Index :: pos_integer(), Bit :: non_neg_integer(), More :: non_neg_integer()}.
map(#pool{segments = Segments}, Slot) -> map_of(Segments, infinity, Slot).

map_of([{First, _Words, Map} | _], Next, Slot) when Slot >= First ->
    Offset = Slot - First,
    Bit = Offset rem ?MAP_BITS,
    More = ?MAP_BITS - 1 - Bit,
    {Map, (Offset div ?MAP_BITS + 1) * ?LINE_WORDS + 1, Bit, more(More, Next, Slot)};
map_of([{First, _, _} | Older], _Next, Slot) ->
    map_of(Older, First, Slot).

more(More, infinity, _Slot) -> More;
more(More, Next, Slot) -> min(More, Next - 1 - Slot).
