%% @doc Numbers for processes that claim: a claim word has room for a number, not for a pid.
%%
%% A process that claims for the first time draws a number, enters itself under it in the holders table, and keeps it in
%% its process dictionary. All later claims cost a look into that. A number is entered before it is used, and is never
%% given to a second process (the counter is of 32 bits; one that comes round passes over the numbers in use). So a
%% claim's holder is alive if and only if the table has a row of that number whose process is alive.
%%
%% Who writes: every process its own row; weir_pool_registry deletes those of dead processes, now and then. A row that
%% is missing means the same as one of a dead process, so deleting one is never too early. A process that is killed
%% before it has kept its number in the dictionary leaves a row that nobody uses.
%%
%% The table belongs to weir_pool_sup. What is kept in the dictionary includes the table, so that a number of a former
%% run of the application is not taken for one of this; and the pid, should somebody copy a dictionary.
-module(weir_pool_holder).

-export([new_table/0, table/0]).
-export([id/1, claimer/1, remember/2, is_alive/2]).
-export([sweep/2]).

-export_type([id/0, claimer/0]).

-type id() :: 1..4294967295.

%% `Slot' is that of the last claim, in whatever pool; before the first, the number, so that processes begin in
%% different slots. It is where the next claim begins to search: with more claimers than schedulers, most of the slots
%% near any other place are held by processes that are waiting for their turn to run.
-type claimer() :: {pid(), ets:table(), id(), Slot :: pos_integer()}.

-define(TABLE, weir_pool_holders).
-define(KEY, '$weir_pool_holder').
-define(LAST, 4294967295).

%% Rows of dead processes are looked for when the table has become twice as large as after the last time: so it costs a
%% fixed time for each row entered. This many rows are never worth it.
-define(FEW, 1000).

%% @doc Makes the holders table; it belongs to the caller.
-spec new_table() -> ok.
new_table() ->
    Table = ets:new(?TABLE, [named_table, public, set, {write_concurrency, true}, {read_concurrency, true}]),
    true = ets:insert(Table, {next, 0}),
    ok.

%% @doc The table, for {@link id/1}.
-spec table() -> ets:table().
table() -> ets:whereis(?TABLE).

%% @doc The calling process's number. `none': the application is stopping, and the table is gone.
%%
%% Cost: a look into the process dictionary; the first time an update and an insertion of ETS.
-spec id(ets:table()) -> id() | none.
id(Table) ->
    case claimer(Table) of
        {_, _, Id, _} -> Id;
        none -> none
    end.

%% @doc The calling process's number, and the slot it had last.
-spec claimer(ets:table()) -> claimer() | none.
claimer(Table) ->
    case get(?KEY) of
        {Pid, Table, _, _} = Claimer when Pid =:= self() -> Claimer;
        _ -> new(Table)
    end.

%% @doc The calling process has another slot than the last time.
-spec remember(claimer(), weir_pool:slot()) -> ok.
remember({Pid, Table, Id, _}, Slot) ->
    _ = put(?KEY, {Pid, Table, Id, Slot}),
    ok.

new(Table) ->
    try ets:update_counter(Table, next, {2, 1, ?LAST, 1}) of
        Id ->
            case ets:insert_new(Table, {Id, self()}) of
                true ->
                    ok = remember({self(), Table, Id, Id}, Id),
                    get(?KEY);
                false ->
                    new(Table)
            end
    catch
        error:badarg -> none
    end.

%% @doc Whether the process of a number is alive. 0 is nobody's.
-spec is_alive(ets:table(), 0 | id()) -> boolean().
is_alive(Table, Id) ->
    case ets:lookup(Table, Id) of
        [{Id, Pid}] -> is_process_alive(Pid);
        [] -> false
    end.

%% @doc Deletes the rows of dead processes, if there may be many. Takes the number of rows that the last call gave, 0 at
%% first, and gives it for the next.
-spec sweep(ets:table(), LastSize :: non_neg_integer()) -> Size :: non_neg_integer().
sweep(Table, LastSize) ->
    case ets:info(Table, size) of
        Size when Size > ?FEW, Size > 2 * LastSize ->
            true = ets:safe_fixtable(Table, true),
            ok = sweep_from(Table, ets:first(Table)),
            true = ets:safe_fixtable(Table, false),
            ets:info(Table, size);
        _ ->
            LastSize
    end.

sweep_from(_Table, '$end_of_table') ->
    ok;
sweep_from(Table, Key) ->
    Next = ets:next(Table, Key),
    case ets:lookup(Table, Key) of
        [{_Id, Pid}] when is_pid(Pid) ->
            case is_process_alive(Pid) of
                true -> ok;
                false -> ets:delete(Table, Key)
            end;
        _ ->
            ok
    end,
    sweep_from(Table, Next).
