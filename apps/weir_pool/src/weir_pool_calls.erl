%% @doc The calls table and the calls words: which processes call, and how many calls are under way in each slot.
%%
%% Counting takes four steps in the process that calls:
%%
%% ```
%%   1. insert the row {Pid, Base, Slot} into the calls table      (Base identifies the pool)
%%   2. add one to the slot's calls word
%%      ... the call ...
%%   3. subtract one from the word
%%   4. delete the row
%% '''
%%
%% A process is in at most one call at a time, so its pid is the key. weir_pool_call makes steps 3 and 4 in an `after',
%% so only a caller that is killed leaves them out. weir_pool_callers corrects table and words then.
%%
%% The words do not move when a pool is resized or a worker replaced. The table belongs to one run of the application:
%% a call that is under way when the application stops finds no table in step 4, and a call that finds none in step 1
%% is not counted.
%% @private
-module(weir_pool_calls).

-export([new_table/0, is_counted/1, calls/2, enter/3, leave/1]).
-export([rows/1, take/1, put_back/1, add/3, forget/1]).

-export_type([entry/0, row/0]).

-include("weir_pool.hrl").

-define(TABLE, weir_pool_calls).

-opaque entry() :: {#pool{}, weir_pool:slot()} | uncounted.
%% A counted call, for {@link leave/1}.

-type row() :: {Caller :: pid(), Base :: non_neg_integer(), weir_pool:slot()}.

%% @doc Makes the calls table, which belongs to the calling process. If it has the table already, keeps it: a release
%% upgrade runs a supervisor's init/1 again.
-spec new_table() -> ok.
new_table() ->
    _ = ets:info(?TABLE, owner) =:= self() orelse
        ets:new(?TABLE, [named_table, public, set, {write_concurrency, true}]),
    ok.

%% @doc Returns whether the calls of a pool are counted: with `least_loaded' and strategies of the user's own.
-spec is_counted(#pool{}) -> boolean().
is_counted(#pool{strategy = round_robin}) -> false;
is_counted(#pool{strategy = random}) -> false;
is_counted(#pool{strategy = hash}) -> false;
is_counted(#pool{strategy = direct}) -> false;
is_counted(#pool{}) -> true.

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
enter(#pool{base = Base, signals = Signals} = Pool, Slot, Room) ->
    case atomics:get(Signals, ?SIGNAL_MODE) of
        ?UNWATCHED -> weir_pool_signals:watch(Pool);
        _ -> ok
    end,
    try ets:insert(?TABLE, {self(), Base, Slot}) of
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

%% @doc Counts a call no more.
-spec leave(entry()) -> ok.
leave({Pool, Slot}) ->
    _ = add(Pool, Slot, -1),
    try ets:delete(?TABLE, self()) of
        true -> ok
    catch
        error:badarg -> ok
    end;
leave(uncounted) ->
    ok.

%% @doc Returns the rows of one pool. Cost: goes over the calls table, which has a row for each call under way in any
%% pool.
-spec rows(Base :: non_neg_integer()) -> [{Caller :: pid(), weir_pool:slot()}].
rows(Base) ->
    try
        ets:select(?TABLE, [{{'$1', Base, '$2'}, [], [{{'$1', '$2'}}]}])
    catch
        error:badarg -> []
    end.

%% @doc Removes the row of a caller. Returns it.
-spec take(Caller :: pid()) -> {ok, row()} | none.
take(Caller) ->
    try ets:take(?TABLE, Caller) of
        [Row] -> {ok, Row};
        [] -> none
    catch
        error:badarg -> none
    end.

%% @doc Inserts a row again.
-spec put_back(row()) -> ok.
put_back(Row) ->
    true = ets:insert(?TABLE, Row),
    ok.

%% @doc Deletes the rows of a pool that no longer exists. Killed callers leave rows that no process polls any more.
%%
%% Cost: goes over the calls table.
-spec forget(Base :: non_neg_integer()) -> ok.
forget(Base) ->
    try ets:match_delete(?TABLE, {'_', Base, '_'}) of
        true -> ok
    catch
        error:badarg -> ok
    end.
