%% @doc The data of a pool that picks and claims read: persistent terms and atomics.
%%
%% Each open pool has a *main term*, with its size, its strategy and references to the arrays below. Each slot has a
%% *slot term*, which is the worker's pid. The pool's manager writes both. If a manager dies without erasing its terms,
%% weir_pool_registry erases them. This module knows the layout of the terms and arrays, and starts no process.
%%
%% The cursors of picks are words of one atomics array. Each scheduler has a cursor of its own in a cache line of its
%% own. Cursors are unsigned, because a signed cursor would wrap to a negative number.
%%
%% The state words of slots are in segments. A pool that grows beyond its segments gets another segment, and no word
%% ever moves. A segment has a second array, the free-slot bitmap of its slots (weir_pool_bitmap).
%% @private
-module(weir_pool_terms).

-export([new/4, reshape/3, pool/1, open/1, close/1]).
-export([fill/3, vacate/2, worker/2, last_slot/1, erase_slots/1]).
-export([workers/2, draws/1, counters/1, count/2, count/3]).
-export([segment/2, bitmap/2]).

-export_type([segment/0]).

-include("weir_pool.hrl").

-type segment() :: {First :: weir_pool:slot(), Words :: atomics:atomics_ref(), Bitmap :: atomics:atomics_ref()}.

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
    {claims, ?CLAIMS, counter, "claims that got a worker, without the last 0 to 63 that each state word counts"},
    {claimed_ms, ?CLAIMED_MS, counter, "milliseconds that workers were claimed, all slots together, sampled"}
]).

%% The base in a slot's key. Bases are multiples of ?MAX_SIZE + 1, which is a power of two.
-define(BASE_OF(SlotKey), (-(SlotKey) band bnot ?MAX_SIZE)).

%% Number of slots whose bits are in one word of the bitmap. An Erlang integer of 56 bits needs no memory on the heap.
-define(BITMAP_BITS, 56).
-define(ALL_BITS, ((1 bsl ?BITMAP_BITS) - 1)).

%% Number of slots in the first segment. Small pools grow to 16 slots without a second segment.
-define(ROOM(Limit), max(16, (Limit))).

%% @doc Returns the main term of a new pool, which is not open yet. All slots are vacant and all counters are 0.
-spec new(weir_pool:name(), Base :: non_neg_integer(), #conf{}, Queue :: pid()) -> #pool{}.
new(Name, Base, #conf{size = Size, overflow = {Overflow, _}, strategy = Strategy, max_queue = MaxQueue}, Queue) ->
    Schedulers = erlang:system_info(schedulers),
    %% The array may begin in the middle of a cache line. An unused line before the first cursor, and another after the
    %% last, keep the cursors apart from other data of the node.
    Cursors = atomics:new((Schedulers + 2) * ?LINE_WORDS, [{signed, false}]),
    %% The cursors start at equal distances. From the same start, all schedulers would pick the same slots at the same
    %% time. The word of cursor 0 has the sum of all starts, for draws/1.
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

%% @doc Changes the size in a main term. The words of new slots are vacant.
-spec reshape(#pool{}, Size :: 0 | weir_pool:size(), Limit :: 0 | weir_pool:size()) -> #pool{}.
reshape(#pool{segments = Segments} = Pool, Size, Limit) ->
    Room = last_slot(Pool),
    case Limit =< Room of
        true ->
            Pool#pool{size = Size, limit = Limit};
        false ->
            %% Each new segment at least doubles the room, so a pool has few segments however often it grows.
            New = new_segment(Room + 1, max(Limit - Room, Room)),
            Pool#pool{size = Size, limit = Limit, segments = [New | Segments]}
    end.

%% Makes a segment with an unused line before the first slot's line and another after the last, as the cursors have.
new_segment(First, Slots) ->
    Blocks = Slots div ?BITMAP_BITS + 1,
    Bitmap = atomics:new((Blocks + 2) * ?LINE_WORDS, [{signed, true}]),
    lists:foreach(fun(Block) -> atomics:put(Bitmap, Block * ?LINE_WORDS + 1, ?ALL_BITS) end, lists:seq(1, Blocks)),
    {First, atomics:new((Slots + 2) * ?LINE_WORDS, [{signed, true}]), Bitmap}.

%% @doc Returns the main term of an open pool.
-spec pool(weir_pool:name()) -> #pool{} | undefined.
pool(Name) -> persistent_term:get(?MAIN_KEY(Name), undefined).

%% @doc Opens a pool for picks and claims. If the pool is open already, replaces its main term.
%%
%% Cost: replacing a main term makes the runtime scan every process of the node.
-spec open(#pool{}) -> ok.
open(#pool{name = Name} = Pool) -> persistent_term:put(?MAIN_KEY(Name), Pool).

%% @doc Closes a pool that stops. Cost: the runtime scans every process of the node.
-spec close(weir_pool:name()) -> ok.
close(Name) ->
    _ = persistent_term:erase(?MAIN_KEY(Name)),
    ok.

%% @doc Writes a worker's pid into a slot's term. The runtime scans no process, because a pid is immediate.
-spec fill(#pool{}, weir_pool:slot(), pid()) -> ok.
fill(#pool{base = Base}, Slot, Pid) when node(Pid) =:= node() -> persistent_term:put(?SLOT_KEY(Base, Slot), Pid).

%% @doc Writes `undefined' into a slot's term. The runtime scans no process, because an atom is immediate.
-spec vacate(#pool{}, weir_pool:slot()) -> ok.
vacate(#pool{base = Base}, Slot) -> persistent_term:put(?SLOT_KEY(Base, Slot), undefined).

%% @doc Returns the worker in a slot's term.
-spec worker(#pool{}, weir_pool:slot()) -> pid() | undefined.
worker(#pool{base = Base}, Slot) -> persistent_term:get(?SLOT_KEY(Base, Slot), undefined).

%% @doc Returns the last slot that has words. No slot after that has ever had a term.
-spec last_slot(#pool{}) -> weir_pool:slot().
last_slot(#pool{segments = [{First, Words, _Bitmap} | _]}) ->
    #{size := Size} = atomics:info(Words),
    First + Size div ?LINE_WORDS - 3.

%% @doc Erases the slot terms of the pools with these bases.
%%
%% Cost: reads the keys of all persistent terms of the node. For each erased term, the runtime copies the node's table
%% of persistent terms.
-spec erase_slots(Bases :: [non_neg_integer()]) -> ok.
erase_slots(Bases) ->
    Given = maps:from_keys(Bases, given),
    Keys = [Key || {Key, _Worker} <- persistent_term:get(), is_integer(Key), is_map_key(?BASE_OF(Key), Given)],
    lists:foreach(fun persistent_term:erase/1, Keys).

%% @doc Returns the filled slots from 1 to Last in ascending order, with their workers. Cost: reads every slot term.
-spec workers(#pool{}, Last :: non_neg_integer()) -> [{weir_pool:slot(), pid()}].
workers(#pool{base = Base}, Last) -> workers(Base, Last, []).

workers(_Base, 0, Workers) ->
    Workers;
workers(Base, Slot, Workers) ->
    case persistent_term:get(?SLOT_KEY(Base, Slot), undefined) of
        undefined -> workers(Base, Slot - 1, Workers);
        Pid -> workers(Base, Slot - 1, [{Slot, Pid} | Workers])
    end.

%% @doc Returns how often picks have drawn from the cursors, all schedulers together.
-spec draws(#pool{}) -> non_neg_integer().
draws(#pool{cursors = Cursors}) ->
    Now = [atomics:get(Cursors, ?CURSOR(Scheduler)) || Scheduler <- lists:seq(1, erlang:system_info(schedulers))],
    (lists:sum(Now) - atomics:get(Cursors, ?CURSOR(0))) band ?CURSOR_MASK.

%% @doc Returns all counters by name.
-spec counters(#pool{}) -> #{atom() => non_neg_integer()}.
counters(#pool{counters = Counters}) ->
    maps:from_list([{Name, counters:get(Counters, Index)} || {Name, Index, _Type, _Help} <- ?COUNTERS]).

%% @doc Adds 1 to a counter.
-spec count(#pool{}, Index :: pos_integer()) -> ok.
count(Pool, Index) -> count(Pool, Index, 1).

%% @doc Adds N to a counter.
-spec count(#pool{}, Index :: pos_integer(), non_neg_integer()) -> ok.
count(#pool{counters = Counters}, Index, N) -> counters:add(Counters, Index, N).

%% @doc Returns the segment of a slot.
-spec segment(#pool{}, weir_pool:slot()) -> segment().
segment(#pool{segments = Segments}, Slot) -> segment_of(Segments, Slot).

segment_of([{First, _Words, _Bitmap} = Segment | _], Slot) when Slot >= First -> Segment;
segment_of([_ | Older], Slot) -> segment_of(Older, Slot).

%% @doc Returns the place of a slot's bit in the free-slot bitmap: the array, the index of the word, and the number of
%% the bit in the word. More is the number of higher slots whose bits follow in the same word.
-spec bitmap(#pool{}, weir_pool:slot()) ->
    {atomics:atomics_ref(), Index :: pos_integer(), Bit :: non_neg_integer(), More :: non_neg_integer()}.
bitmap(#pool{segments = Segments}, Slot) -> bitmap_of(Segments, infinity, Slot).

bitmap_of([{First, _Words, Bitmap} | _], Next, Slot) when Slot >= First ->
    Offset = Slot - First,
    Bit = Offset rem ?BITMAP_BITS,
    More = ?BITMAP_BITS - 1 - Bit,
    {Bitmap, (Offset div ?BITMAP_BITS + 1) * ?LINE_WORDS + 1, Bit, more(More, Next, Slot)};
bitmap_of([{First, _, _} | Older], _Next, Slot) ->
    bitmap_of(Older, First, Slot).

more(More, infinity, _Slot) -> More;
more(More, Next, Slot) -> min(More, Next - 1 - Slot).
