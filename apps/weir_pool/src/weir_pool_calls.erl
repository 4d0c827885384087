%% @doc The calls table and the calls words of a pool: which processes call, and how many calls are under way in each
%% slot.
%%
%% Each pool whose calls are counted has a table, which its manager owns. Counting takes four steps in the process that
%% calls:
%%
%% ```
%%   1. insert the row {Pid, Slot} into the calls table
%%   2. add one to the slot's calls word
%%      ... the call ...
%%   3. subtract one from the word
%%   4. delete the row
%% '''
%%
%% A process is in at most one call at a time, so its pid is the key. weir_pool_call makes steps 3 and 4 in an `after',
%% so only a killed caller leaves these steps out. weir_pool_callers then corrects table and words.
%%
%% The words do not move when a pool is resized or a worker replaced. The table ends with the manager. A call that is
%% under way then finds no table in step 4. A call that finds no table in step 1 is not counted.
%% @private
-module(weir_pool_calls).

-export([new_table/1, is_counted/1, calls/2, enter/3, leave/1]).
-export([rows/1, take/2, add/3]).

-export_type([entry/0]).

-include("weir_pool.hrl").

-opaque entry() :: {#pool{}, weir_pool:slot()} | uncounted.
%% A counted call, for {@link leave/1}.

%% @doc Makes the calls table of a pool, which belongs to the calling process; `none' if the strategy does not choose by
%% load.
-spec new_table(weir_pool:strategy()) -> ets:table() | none.
new_table(Strategy) when
    Strategy =:= round_robin; Strategy =:= random; Strategy =:= hash; Strategy =:= direct
->
    none;
new_table(_LeastLoadedOrModule) ->
    ets:new(?MODULE, [public, set, {write_concurrency, true}]).

%% @doc Returns whether the calls of a pool are counted: with `least_loaded' and strategies of the user's own.
-spec is_counted(#pool{}) -> boolean().
is_counted(#pool{calls = Table}) -> Table =/= none.

%% @doc Returns the calls word of a slot: the calls under way in it. For some seconds after a caller was killed the word
%% may be wrong, and below 0.
-spec calls(#pool{}, weir_pool:slot()) -> integer().
calls(Pool, Slot) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    atomics:get(Words, ?CALLS_WORD(First, Slot)).

%% @doc Adds to the calls word of a slot. Returns the sum.
-spec add(#pool{}, weir_pool:slot(), integer()) -> integer().
add(Pool, Slot, N) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    atomics:add_get(Words, ?CALLS_WORD(First, Slot), N).

%% @doc Counts a call that begins. If more than `Room' calls are under way then, counts none and returns `busy'.
-spec enter(#pool{}, weir_pool:slot(), Room :: pos_integer() | infinity) -> entry() | busy.
enter(#pool{calls = Table, signals = Signals} = Pool, Slot, Room) ->
    case atomics:get(Signals, ?SIGNAL_MODE) of
        ?UNWATCHED -> weir_pool_signals:watch(Pool);
        _ -> ok
    end,
    try ets:insert(Table, {self(), Slot}) of
        true ->
            Entry = {Pool, Slot},
            %% In the order of terms, an atom such as `infinity' is greater than each number.
            case add(Pool, Slot, 1) > Room of
                true -> ok = leave(Entry), busy;
                false -> Entry
            end
    catch
        error:badarg -> uncounted
    end.

%% @doc Ends the count of a call.
-spec leave(entry()) -> ok.
leave({#pool{calls = Table} = Pool, Slot}) ->
    _ = add(Pool, Slot, -1),
    try ets:delete(Table, self()) of
        true -> ok
    catch
        error:badarg -> ok
    end;
leave(uncounted) ->
    ok.

%% @doc Returns the rows of a pool. Cost: copies the calls table, which has a row for each call under way.
-spec rows(#pool{}) -> [{Caller :: pid(), weir_pool:slot()}].
rows(#pool{calls = Table}) -> ets:tab2list(Table).

%% @doc Removes the row of a caller. Returns the slot that it called.
-spec take(Caller :: pid(), #pool{}) -> {ok, weir_pool:slot()} | none.
take(Caller, #pool{calls = Table}) ->
    case ets:take(Table, Caller) of
        [{Caller, Slot}] -> {ok, Slot};
        [] -> none
    end.
