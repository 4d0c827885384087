%% @doc How many calls are under way in each slot, for strategies that choose by it.
%%
%% Protocol. A call takes four steps in the process that makes it:
%%
%% ```
%%   1. enter its row {Pid, Base, Slot} into the calls table      (Base tells the pool)
%%   2. add one to the load word of the slot
%%      ... the call ...
%%   3. subtract one from the load word
%%   4. delete its row
%% '''
%%
%% A process is in at most one call at a time, so its pid is the key. The call is wrapped in `try ... after': whatever
%% it raises, 3 and 4 are made. What is left is a caller that is killed. The pool's keeper calls {@link sweep/1} about
%% once a second, which deletes the rows of dead processes and subtracts one for each.
%%
%% What a kill leaves behind, by the step that was the last:
%%
%% <ul>
%% <li>None, or 4: nothing.</li>
%% <li>2, which is nearly always, because the call is there: a row and a count. The sweep takes back both.</li>
%% <li>1, or 3: a row without a count. The sweep subtracts what is not there, and the word is one too low.</li>
%% <li>A keeper that is killed in a sweep between the row and the word: the word is one too high.</li>
%% </ul>
%%
%% A row and a word cannot be written in one step, so the last two cannot be ruled out; they take a process that is
%% preempted between two calls of the runtime and killed before it goes on. Therefore words are compared with rows in
%% every sweep. Rows and words are not read at the same time, and calls in steps 1 and 4 have a row that does not count:
%% in a slot with many short calls the difference is now above 0 and now below. What has been left behind, in contrast,
%% makes it above, or below, in every sweep. So a word is corrected when it was too high, or too low, in 8 sweeps in a
%% row, and by the smallest difference seen in these. Nothing is assumed about the slot's being quiet. Should chance
%% look the same 8 times, the word is wrong by what has been corrected, and that is corrected in the same way.
%% Corrections are added and never stored, so that they lose no call that comes at the same time.
%%
%% Words do not move when a pool is resized, nor when a worker is replaced; the calls of a worker that dies end by their
%% exits.
%%
%% Rows are tied to the table of one run of the application. A call that is under way when the application is stopped
%% finds no table to leave, and one that finds none to enter is not counted.
-module(weir_pool_load).

-export([new_table/0]).
-export([is_counted/1, enter/2, leave/1, calls/2]).
-export([sweep/1, forget/2]).

-export_type([entry/0]).

-include("weir_pool.hrl").

-define(TABLE, weir_pool_calls).

-define(SWEEPS_IN_DOUBT, 8).
-define(DOUBT(Difference, Sweeps), ((Difference) * (?SWEEPS_IN_DOUBT + 1) + (Sweeps))).

-opaque entry() :: {atomics:atomics_ref(), Index :: pos_integer()} | uncounted.

%% @doc Makes the calls table; it belongs to the caller.
-spec new_table() -> ok.
new_table() ->
    ?TABLE = ets:new(?TABLE, [named_table, public, set, {write_concurrency, true}]),
    ok.

%% @doc Whether calls of a pool are counted.
-spec is_counted(#pool{}) -> boolean().
is_counted(#pool{strategy = Strategy}) -> is_by_load(Strategy).

is_by_load(round_robin) -> false;
is_by_load(random) -> false;
is_by_load(hash) -> false;
is_by_load(direct) -> false;
is_by_load(_LeastLoadedOrModule) -> true.

%% @doc The calling process begins a call of the worker in this slot. It must not be in another.
%%
%% Cost: an insertion into an ETS table and an addition to a word that all callers of the slot write.
-spec enter(#pool{}, weir_pool:slot()) -> entry().
enter(#pool{base = Base, segments = Segments}, Slot) ->
    {First, Words} = weir_pool_terms:segment(Segments, Slot),
    Index = ?LOAD_WORD(First, Slot),
    try ets:insert(?TABLE, {self(), Base, Slot}) of
        true ->
            ok = atomics:add(Words, Index, 1),
            {Words, Index}
    catch
        error:badarg -> uncounted
    end.

%% @doc The calling process has ended its call.
-spec leave(entry()) -> ok.
leave({Words, Index}) ->
    ok = atomics:sub(Words, Index, 1),
    try ets:delete(?TABLE, self()) of
        true -> ok
    catch
        error:badarg -> ok
    end;
leave(uncounted) ->
    ok.

%% @doc The load word of a slot: the calls under way in it. After a kill it may be wrong for some seconds, and below 0.
-spec calls(#pool{}, weir_pool:slot()) -> integer().
calls(#pool{segments = Segments}, Slot) ->
    {First, Words} = weir_pool_terms:segment(Segments, Slot),
    atomics:get(Words, ?LOAD_WORD(First, Slot)).

%% @doc Takes back what dead callers have left, and corrects words that have been wrong for long. For the pool's keeper,
%% at regular intervals.
%%
%% Cost: goes over the calls table, which has a row for each call under way in any pool (5 ms for 10,000 calls of this
%% one), and reads two words of each slot. Nothing for a pool whose calls are not counted.
-spec sweep(#pool{}) -> ok.
sweep(#pool{base = Base, limit = Limit} = Pool) ->
    case is_counted(Pool) of
        true -> compare(1, Limit, live_calls(rows(Base), Pool, #{}), Pool);
        false -> ok
    end.

%% @doc Deletes the rows of a pool that is gone for good: killed callers leave some that no keeper sweeps any more.
%%
%% Cost: goes over the calls table. Nothing for a strategy by which calls are not counted.
-spec forget(Id :: pos_integer(), weir_pool:strategy()) -> ok.
forget(Id, Strategy) ->
    case is_by_load(Strategy) of
        true ->
            true = ets:match_delete(?TABLE, {'_', Id * (?MAX_SIZE + 1), '_'}),
            ok;
        false ->
            ok
    end.

rows(Base) ->
    try
        ets:select(?TABLE, [{{'$1', Base, '$2'}, [], [{{'$1', '$2'}}]}])
    catch
        error:badarg -> []
    end.

%% The number of live callers by slot.
live_calls([], _Pool, Live) ->
    Live;
live_calls([{Caller, Slot} | Rows], Pool, Live) ->
    case is_process_alive(Caller) of
        true ->
            live_calls(Rows, Pool, maps:update_with(Slot, fun(N) -> N + 1 end, 1, Live));
        false ->
            ok = take_back(Caller, Slot, Pool),
            live_calls(Rows, Pool, Live)
    end.

%% Whoever deletes the row subtracts: a keeper that is being replaced may be sweeping still. And only this row: the
%% caller may have begun another call before it was killed, whose row is for the next sweep, or for another pool's.
take_back(Caller, Slot, #pool{base = Base, segments = Segments}) ->
    case ets:select_delete(?TABLE, [{{Caller, Base, Slot}, [], [true]}]) of
        1 ->
            {First, Words} = weir_pool_terms:segment(Segments, Slot),
            atomics:sub(Words, ?LOAD_WORD(First, Slot), 1);
        0 ->
            ok
    end.

compare(Slot, Limit, _Live, _Pool) when Slot > Limit ->
    ok;
compare(Slot, Limit, Live, #pool{segments = Segments} = Pool) ->
    {First, Words} = weir_pool_terms:segment(Segments, Slot),
    Difference = atomics:get(Words, ?LOAD_WORD(First, Slot)) - maps:get(Slot, Live, 0),
    Doubt = atomics:get(Words, ?DOUBT_WORD(First, Slot)),
    case doubt(Difference, Doubt) of
        {correct, By} ->
            ok = atomics:add(Words, ?LOAD_WORD(First, Slot), By),
            ok = atomics:put(Words, ?DOUBT_WORD(First, Slot), 0);
        Doubt ->
            ok;
        NewDoubt ->
            ok = atomics:put(Words, ?DOUBT_WORD(First, Slot), NewDoubt)
    end,
    compare(Slot + 1, Limit, Live, Pool).

%% Below 0 the same as above, mirrored.
doubt(0, _Doubt) ->
    0;
doubt(Difference, Doubt) when Difference < 0 ->
    case doubt(-Difference, -Doubt) of
        {correct, By} -> {correct, -By};
        NewDoubt -> -NewDoubt
    end;
doubt(Difference, Doubt) when Doubt =< 0 ->
    ?DOUBT(Difference, 1);
doubt(Difference, Doubt) ->
    Least = min(Difference, Doubt div (?SWEEPS_IN_DOUBT + 1)),
    case Doubt rem (?SWEEPS_IN_DOUBT + 1) + 1 of
        ?SWEEPS_IN_DOUBT -> {correct, -Least};
        Sweeps -> ?DOUBT(Least, Sweeps)
    end.
