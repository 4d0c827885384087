%% @doc Supervisor of one slot: it starts the slot's worker, starts it again, and stops it.
%%
%% A slot has a supervisor of its own so that a worker that is slow to start or to stop keeps no other one waiting, and
%% so that a new worker can come up beside the old one that it is to replace.
%%
%% Protocol. Starting one takes a process of its own, the starter, which the keeper monitors. It has the workers'
%% supervisor start the slot's, empty; that enters itself in the seats table. It then has the slot's supervisor start
%% the worker, by `start_worker/3', which runs there, writes the worker into the table, and tells the keeper. Later
%% restarts do the same. The supervisor tells and does not wait, so it cannot be held up by the keeper.
%%
%% Everything is in the table before it is told, so a message that finds no keeper is not missed. A row that says
%% `starting' belongs to a starter. The next keeper does not know those of its predecessor, and retires what they are
%% about to start; and a supervisor that is started for a keeper that is dead ends at once, because the next one may
%% have read the table already. (If the keeper is alive after the row was written, then the next one reads the table
%% afterwards.)
%%
%% With `start => sync' it restarts its worker as often as the pool's `intensity' allows, and then ends; with `async' it
%% ends when the worker has died, and the keeper starts another after a while.
-module(weir_pool_slot_sup).
-behaviour(supervisor).

-export([start/4, catch_up/2, drain/2, drain_started/2, kill/2]).
-export([start_link/4, start_worker/3]).
-export([init/1]).

-include("weir_pool.hrl").

%% @doc Keeper: starts a slot's supervisor and its worker. Returns at once, and the keeper gets
%% `{{started, Slot, Purpose, Start}, Monitor, process, Starter, {done, {ok, SlotSup} | {error, Reason}}}', or another
%% reason if the starter was killed. A worker whose start function returned `ignore' is not in the seats table. If the
%% worker cannot be started, the supervisor is stopped again.
-spec start(WorkersSup :: pid(), #boot{}, weir_pool:slot(), Purpose :: term()) -> Start :: reference().
start(WorkersSup, Boot, Slot, Purpose) ->
    Keeper = self(),
    Start = make_ref(),
    _ = weir_pool_task:start({started, Slot, Purpose, Start}, fun() ->
        start_sup(WorkersSup, Boot, [Slot, Keeper, Start])
    end),
    Start.

start_sup(WorkersSup, Boot, [Slot | _] = Args) ->
    try supervisor:start_child(WorkersSup, Args) of
        {ok, SlotSup} when is_pid(SlotSup) -> start_first_worker(SlotSup, Boot, Slot);
        {ok, undefined} -> {error, {pool_down, noproc}};
        {error, Reason} -> {error, {pool_down, Reason}}
    catch
        exit:Down -> {error, {pool_down, Down}}
    end.

start_first_worker(SlotSup, #boot{seats = Seats} = Boot, Slot) ->
    Started =
        try supervisor:start_child(SlotSup, worker(Slot, Boot)) of
            {error, Reason} -> {error, reason(Reason)};
            _ -> {ok, SlotSup}
        catch
            exit:Down -> {error, {pool_down, Down}}
        end,
    case Started of
        {ok, _} -> ok;
        {error, _} -> stop(SlotSup, Seats)
    end,
    Started.

%% "Information about the error and the child specification", in practice a pair of them.
reason({Reason, Child}) when element(1, Child) =:= child -> Reason;
reason(Reason) -> Reason.

worker(Slot, #boot{name = Name, id = Id, conf = Conf, seats = Seats}) ->
    #conf{worker = {M, F, A}, pass_slot = PassSlot, restart = Restart, shutdown = Shutdown} = Conf,
    Args =
        case PassSlot of
            true -> [Slot | A];
            false -> A
        end,
    #{
        id => Slot,
        start => {?MODULE, start_worker, [Seats, {Name, Id, Slot}, {M, F, Args}]},
        restart => Restart,
        shutdown => Shutdown,
        modules => [M]
    }.

stop(SlotSup, Seats) ->
    try
        proc_lib:stop(SlotSup, shutdown, infinity)
    catch
        %% It is down already, or went down otherwise.
        exit:_ -> ok
    end,
    weir_pool_seats:delete(Seats, SlotSup).

%% @doc Keeper: stops a slot's supervisor when its worker has handled what was sent to it, or after some milliseconds.
%% Returns at once. It is retired, and the keeper gets `{{retired, SlotSup}, Monitor, process, Pid, Reason}' at the end,
%% with another reason than `{done, ok}' if it has to be done again.
-spec drain(SlotSup :: pid(), #boot{}) -> ok.
drain(SlotSup, #boot{seats = Seats, conf = #conf{shutdown = Shutdown}}) ->
    ok = weir_pool_seats:retire(Seats, SlotSup),
    Worker = weir_pool_seats:worker(Seats, SlotSup),
    _ = weir_pool_task:start({retired, SlotSup}, fun() ->
        _ = weir_pool_probe:is_idle(Worker, patience(Shutdown)),
        stop(SlotSup, Seats)
    end),
    ok.

patience(brutal_kill) -> 0;
patience(Shutdown) -> Shutdown.

%% @doc Keeper: a starter was killed, and what it has asked for may still be done. Returns at once, and the keeper gets
%% `{Tag, Monitor, process, Pid, Reason}' when the workers' supervisor has done it.
-spec catch_up(WorkersSup :: pid(), Tag :: term()) -> ok.
catch_up(WorkersSup, Tag) ->
    _ = weir_pool_task:start(Tag, fun() -> ask(WorkersSup) end),
    ok.

ask(WorkersSup) ->
    try
        supervisor:count_children(WorkersSup)
    catch
        exit:Down -> Down
    end.

%% @doc Keeper: stops what a start has left behind.
-spec drain_started(Start :: reference(), #boot{}) -> ok.
drain_started(Start, #boot{seats = Seats} = Boot) ->
    lists:foreach(fun(SlotSup) -> drain(SlotSup, Boot) end, weir_pool_seats:started(Seats, Start)).

%% @doc Keeper: kills a slot's supervisor and its worker, which is likely to be busy. The supervisor first, or it would
%% start another one.
-spec kill(SlotSup :: pid(), #boot{}) -> ok.
kill(SlotSup, #boot{seats = Seats}) ->
    Worker = weir_pool_seats:worker(Seats, SlotSup),
    true = exit(SlotSup, kill),
    Worker =:= undefined orelse exit(Worker, kill),
    weir_pool_seats:delete(Seats, SlotSup).

%% @private
-spec start_link(#boot{}, weir_pool:slot(), Keeper :: pid(), Start :: reference()) ->
    {ok, pid()} | ignore | {error, term()}.
start_link(Boot, Slot, Keeper, Start) -> supervisor:start_link(?MODULE, {Boot, Slot, Keeper, Start}).

%% @private
-spec init({#boot{}, weir_pool:slot(), Keeper :: pid(), Start :: reference()}) ->
    {ok, {supervisor:sup_flags(), []}} | ignore.
init({#boot{seats = Seats, conf = Conf}, Slot, Keeper, Start}) ->
    ok = weir_pool_seats:put_sup(Seats, self(), Slot, Start),
    case is_process_alive(Keeper) of
        true ->
            {ok, {flags(Conf), []}};
        false ->
            ok = weir_pool_seats:delete(Seats, self()),
            ignore
    end.

flags(#conf{start = async}) -> #{intensity => 0, period => 1};
flags(#conf{start = sync, period = Period} = Conf) ->
    #{intensity => weir_pool_opts:intensity(Conf), period => Period}.

%% @private
-spec start_worker(
    ets:table(), {weir_pool:name(), Id :: pos_integer(), weir_pool:slot()}, {module(), atom(), [term()]}
) -> {ok, pid()} | {ok, pid(), term()} | ignore | {error, term()}.
start_worker(Seats, Where, {M, F, A}) ->
    try apply(M, F, A) of
        {ok, Pid} = Started when is_pid(Pid), node(Pid) =:= node() -> started(Seats, Where, Pid, Started);
        {ok, Pid, _} = Started when is_pid(Pid), node(Pid) =:= node() -> started(Seats, Where, Pid, Started);
        ignore -> ignored(Seats);
        {error, _} = Error -> failed(Where, Error);
        Other -> failed(Where, {error, {bad_return, {M, F, Other}}})
    catch
        Class:Reason:Stacktrace ->
            failed(Where, {error, {exception, Class, Reason, Stacktrace}})
    end.

started(Seats, {Name, Id, Slot}, Pid, Result) ->
    ok = weir_pool_seats:put_worker(Seats, self(), Pid),
    weir_pool_keeper:connected(Name, Id, Slot, Pid),
    Result.

ignored(Seats) ->
    ok = weir_pool_seats:put_worker(Seats, self(), ignored),
    ignore.

failed({Name, Id, Slot}, Error) ->
    weir_pool_keeper:start_failed(Name, Id, Slot),
    Error.
