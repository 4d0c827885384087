%% @doc The seats of a pool: what its keeper knows and cannot read off the slots' terms, so that a keeper that is killed
%% is no loss.
%%
%% A table with three kinds of rows:
%%
%% <ul>
%% <li>one for each slot's supervisor, with its slot, its worker, and the start that made it. That supervisor enters
%%   itself and, later, its worker; the keeper marks it as retired, and whoever sees to its end deletes it;</li>
%% <li>one for each name that processes connect under, with its slot, and one for each slot that a process is connected
%%   in. The keeper writes them.</li>
%% </ul>
%%
%% Rows of a supervisor that died when there was no keeper are found by the next one, which sees that it is dead. The
%% table belongs to the pool's supervisor and goes with it; a process that outlives that finds no table, and writes
%% nothing.
-module(weir_pool_seats).

-export([new/0]).
-export([put_sup/4, put_worker/3, retire/2, worker/2, sups/1, retired/1, started/2]).
-export([put_name/3, names/1, connect/3, connected/1]).
-export([delete/2]).

-export_type([key/0, worker/0]).

-type key() :: SlotSup :: pid() | {name, WorkerName :: term()} | {connected, weir_pool:slot()}.

-type worker() :: starting | ignored | pid().
%% `starting': the first start of the worker has not ended. `ignored': the start function did not want one.

%% @doc Makes a table; it belongs to the caller.
-spec new() -> ets:table().
new() -> ets:new(?MODULE, [public, set]).

%% @doc A slot's supervisor, before it has a worker.
-spec put_sup(ets:table(), SlotSup :: pid(), weir_pool:slot(), Start :: reference()) -> ok.
put_sup(Seats, SlotSup, Slot, Start) -> insert(Seats, {SlotSup, Slot, starting, Start}).

%% @doc The worker that a supervisor has now. Whether it is retired stays as it is.
-spec put_worker(ets:table(), SlotSup :: pid(), worker()) -> ok.
put_worker(Seats, SlotSup, Worker) -> update(Seats, SlotSup, {3, Worker}).

%% @doc A supervisor is in no slot any more, and is about to be stopped.
-spec retire(ets:table(), SlotSup :: pid()) -> ok.
retire(Seats, SlotSup) -> update(Seats, SlotSup, {2, retired}).

%% @doc The worker that a supervisor had last, alive or not.
-spec worker(ets:table(), SlotSup :: pid()) -> pid() | undefined.
worker(Seats, SlotSup) ->
    try ets:lookup(Seats, SlotSup) of
        [{SlotSup, _Slot, Worker, _Start}] when is_pid(Worker) -> Worker;
        _ -> undefined
    catch
        error:badarg -> undefined
    end.

%% @doc All supervisors of slots, with their slots and workers.
-spec sups(ets:table()) -> [{SlotSup :: pid(), weir_pool:slot() | retired, worker()}].
sups(Seats) -> ets:select(Seats, [{{'$1', '$2', '$3', '_'}, [], [{{'$1', '$2', '$3'}}]}]).

%% @doc The supervisors that are retired. Reads the whole table.
-spec retired(ets:table()) -> [SlotSup :: pid()].
retired(Seats) -> ets:select(Seats, [{{'$1', retired, '_', '_'}, [], ['$1']}]).

%% @doc The supervisor that a start has made, if it is there. Reads the whole table.
-spec started(ets:table(), Start :: reference()) -> [SlotSup :: pid()].
started(Seats, Start) -> ets:select(Seats, [{{'$1', '_', '_', Start}, [], ['$1']}]).

%% @doc A name that a process can connect under.
-spec put_name(ets:table(), WorkerName :: term(), weir_pool:slot()) -> ok.
put_name(Seats, WorkerName, Slot) -> insert(Seats, {{name, WorkerName}, Slot}).

%% @doc All names, with their slots.
-spec names(ets:table()) -> [{WorkerName :: term(), weir_pool:slot()}].
names(Seats) -> ets:select(Seats, [{{{name, '$1'}, '$2'}, [], [{{'$1', '$2'}}]}]).

%% @doc A process that is connected in a slot.
-spec connect(ets:table(), weir_pool:slot(), pid()) -> ok.
connect(Seats, Slot, Pid) -> insert(Seats, {{connected, Slot}, Pid}).

%% @doc All connected processes, with their slots.
-spec connected(ets:table()) -> [{weir_pool:slot(), pid()}].
connected(Seats) -> ets:select(Seats, [{{{connected, '$1'}, '$2'}, [], [{{'$1', '$2'}}]}]).

%% @doc Deletes one row.
-spec delete(ets:table(), key()) -> ok.
delete(Seats, Key) ->
    try ets:delete(Seats, Key) of
        true -> ok
    catch
        error:badarg -> ok
    end.

insert(Seats, Row) ->
    try ets:insert(Seats, Row) of
        true -> ok
    catch
        error:badarg -> ok
    end.

%% Not of a row that has been deleted.
update(Seats, SlotSup, Change) ->
    try ets:update_element(Seats, SlotSup, Change) of
        _ -> ok
    catch
        error:badarg -> ok
    end.
