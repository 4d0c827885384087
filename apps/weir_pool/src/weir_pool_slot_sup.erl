%% @doc Supervisor of one slot's worker: it starts the worker, starts it again, and stops it. All restarts of a pool are
%% made here.
%%
%% A slot has a supervisor of its own so that a worker that is slow to start or to stop keeps no other one waiting, and
%% so that a new worker can come up beside the old one that it is to replace. An OTP supervisor would make its starter
%% wait for the worker, and could not pause between restarts.
%%
%% Protocol. The manager spawns it and is its parent. It calls the worker's start function, and tells the manager
%%
%% ```
%% {started, Slot, self(), Worker, IsRestart}    there is a worker
%% {start_failed, Slot, self(), Reason}          there is none; if `keep' is true, it is tried again after a pause
%% '''
%%
%% and the manager tells it
%%
%% ```
%% {keep, Boolean}             from now on, whether a worker that dies is followed by another
%% {renew, Worker, Report}     that worker is likely to be busy or broken: kill it, start another (if `keep')
%% retire                      let the worker handle what was sent to it, for as long as `shutdown' says, and stop it
%% '''
%%
%% It ends when there is nothing left to supervise, which the manager sees by the link: with `normal', or
%% `{shutdown, WorkersReason | start_failed}' where it would go on if `keep' were set; and with `shutdown' when the
%% manager asks for that, stopping the worker first. A message about a worker that it has no more is void. When it is
%% killed the link takes the worker with it, and the manager kills one that the link does not.
%%
%% Restarts. With `start => sync' at once, except that a start that fails is tried again after a millisecond; the
%% manager counts them, and gives the pool up when there are too many. With `async' after a pause that doubles with each
%% start that does not last for longer than the longest pause, shortened by a random part so that slots that lost their
%% workers together do not come back together; the first time at once.
%%
%% It also reports the death of its worker, and why one was replaced: a logger that is stuck keeps only one slot
%% waiting.
%% @private
-module(weir_pool_slot_sup).
-behaviour(gen_server).

-export([start_link/4, keep/2, renew/3, retire/1, delay/2]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2, code_change/3]).

-export_type([keep/0]).

-include("weir_pool.hrl").

%% Doubling more often than this would only make a large number that is then cut.
-define(MAX_DOUBLINGS, 32).

-type keep() :: boolean() | if_started.
%% `if_started': `true' from the first worker on. A first start that fails is not tried again, however long it takes the
%% manager to hear of it.

-record(state, {
    name :: weir_pool:name(),
    slot :: weir_pool:slot(),
    conf :: #conf{},
    manager :: pid(),
    keep :: keep(),
    worker :: pid() | undefined,
    %% Why the worker has been killed, to be followed by another when it is dead.
    renewing = no :: no | map(),
    %% Whether there has been a worker: the next one is a restart, unless the last was replaced on purpose.
    is_restart = false :: boolean(),
    %% Starts in a row that did not lead to a worker that lasted, and when the last worker came or the last start
    %% failed, monotonic milliseconds.
    attempts = 0 :: non_neg_integer(),
    since = 0 :: integer()
}).

%% @doc Manager: starts the supervisor of a slot. Returns at once; the supervisor starts the worker.
-spec start_link(weir_pool:name(), weir_pool:slot(), #conf{}, keep()) -> pid().
start_link(Name, Slot, Conf, Keep) ->
    proc_lib:spawn_link(?MODULE, init, [
        #state{name = Name, slot = Slot, conf = Conf, manager = self(), keep = Keep}
    ]).

%% @doc Manager: whether a worker that dies is followed by another.
-spec keep(pid(), boolean()) -> ok.
keep(SlotSup, Keep) -> gen_server:cast(SlotSup, {keep, Keep}).

%% @doc Manager: kills the worker and starts another. The report says why.
-spec renew(pid(), Worker :: pid(), Report :: map()) -> ok.
renew(SlotSup, Worker, Report) -> gen_server:cast(SlotSup, {renew, Worker, Report}).

%% @doc Manager: stops the worker when it has handled what was sent to it.
-spec retire(pid()) -> ok.
retire(SlotSup) -> gen_server:cast(SlotSup, retire).

%% @doc Milliseconds before the next attempt, after so many in a row that did not last. Of the first `Min', of later
%% ones twice the last, at most `Max', each less a random part of up to a half. None at all when nothing has failed yet.
-spec delay(Attempts :: non_neg_integer(), {MinMs :: pos_integer(), MaxMs :: pos_integer()}) ->
    DelayMs :: non_neg_integer().
delay(0, _MinMax) ->
    0;
delay(Attempts, {Min, Max}) ->
    Full = min(Max, Min bsl min(Attempts - 1, ?MAX_DOUBLINGS)),
    Full + 1 - rand:uniform(Full div 2 + 1).

%% @private
-spec init(#state{}) -> no_return().
init(State) ->
    process_flag(trap_exit, true),
    gen_server:enter_loop(?MODULE, [], State, {continue, start}).

%% @private
-spec handle_continue(start, #state{}) -> {noreply, #state{}} | {stop, normal | {shutdown, term()}, #state{}}.
handle_continue(start, State) -> start(State).

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
%% As a supervisor answers, for `supervisor:which_children/1' and the release handler.
handle_call(which_children, _From, #state{slot = Slot, worker = Worker} = State) ->
    {reply, [{Slot, child(Worker), worker, [module(State)]}], State};
handle_call(Request, _From, State) ->
    {reply, {error, {bad_call, Request}}, State}.

child(undefined) -> restarting;
child(Worker) -> Worker.

module(#state{conf = #conf{worker = {Module, _, _}}}) -> Module.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}} | {stop, normal | {shutdown, term()}, #state{}}.
handle_cast({keep, Keep}, State) ->
    {noreply, State#state{keep = Keep}};
handle_cast({renew, Worker, Report}, #state{worker = Worker} = State) ->
    true = exit(Worker, kill),
    {noreply, State#state{renewing = Report}};
handle_cast(retire, #state{worker = undefined} = State) ->
    {stop, normal, State};
handle_cast(retire, #state{worker = Worker, conf = #conf{shutdown = Shutdown}} = State) ->
    _ = weir_pool_task:start(idle, {weir_pool_task, is_idle, [Worker, patience(Shutdown)]}),
    {noreply, State#state{keep = false}};
handle_cast(_Void, State) ->
    {noreply, State}.

patience(brutal_kill) -> 0;
patience(Shutdown) -> Shutdown.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, normal | {shutdown, term()}, #state{}}.
handle_info({'EXIT', Worker, Reason}, #state{worker = Worker, renewing = no} = State) ->
    ok = report_exit(Reason, State),
    exited(Reason, State#state{worker = undefined, is_restart = true});
handle_info({'EXIT', Worker, Reason}, #state{worker = Worker, renewing = Report} = State) ->
    ok = weir_pool_report:log(warning, Report),
    case State of
        #state{keep = true} -> start(State#state{worker = undefined, renewing = no, is_restart = false});
        #state{keep = false} -> {stop, {shutdown, Reason}, State#state{worker = undefined}}
    end;
handle_info({idle, _Monitor, process, _Task, _Exit}, State) ->
    {stop, normal, State};
handle_info(start, #state{worker = undefined} = State) ->
    start(State);
handle_info(_Stray, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{worker = undefined}) -> ok;
terminate(_Reason, #state{worker = Worker, conf = #conf{shutdown = Shutdown}}) -> stop(Worker, Shutdown).

%% @private
-spec code_change(term(), #state{}, term()) -> {ok, #state{}}.
code_change(_OldVsn, State, _Extra) -> {ok, State}.

%% ---------------------------------------------------------------- starts

start(#state{slot = Slot, manager = Manager, keep = Keep, is_restart = IsRestart} = State) ->
    case call(State) of
        {ok, Worker} ->
            ok = gen_server:cast(Manager, {started, Slot, self(), Worker, IsRestart}),
            {noreply, State#state{worker = Worker, keep = Keep =/= false, since = now_ms()}};
        ignore ->
            {stop, normal, State};
        {error, Reason} ->
            ok = gen_server:cast(Manager, {start_failed, Slot, self(), Reason}),
            case Keep of
                true -> later(1, State#state{since = now_ms()});
                _ -> {stop, {shutdown, start_failed}, State}
            end
    end.

call(#state{slot = Slot, conf = #conf{worker = {M, F, A}, pass_slot = PassSlot}}) ->
    Args =
        case PassSlot of
            true -> [Slot | A];
            false -> A
        end,
    try apply(M, F, Args) of
        {ok, Pid} when is_pid(Pid), node(Pid) =:= node() -> {ok, Pid};
        {ok, Pid, _Info} when is_pid(Pid), node(Pid) =:= node() -> {ok, Pid};
        ignore -> ignore;
        {error, Reason} -> {error, Reason};
        Other -> {error, {bad_return, {M, F, Other}}}
    catch
        Class:Reason:Stacktrace -> {error, {exception, Class, Reason, Stacktrace}}
    end.

exited(Reason, #state{conf = #conf{restart = Restart}, keep = Keep} = State) ->
    case Restart =:= permanent orelse (Restart =:= transient andalso not is_orderly(Reason)) of
        true when Keep -> later(0, State);
        true -> {stop, {shutdown, Reason}, State};
        false -> {stop, normal, State}
    end.

is_orderly(normal) -> true;
is_orderly(shutdown) -> true;
is_orderly({shutdown, _}) -> true;
is_orderly(_Crash) -> false.

%% A worker that has lasted for longer than the longest pause has made up for what was before it.
later(AtLeast, #state{conf = #conf{start = async, backoff = {_, Max} = Backoff}} = State) ->
    #state{attempts = Attempts, since = Since} = State,
    Failed =
        case now_ms() - Since > Max of
            true -> AtLeast;
            false -> max(AtLeast, Attempts)
        end,
    start_after(delay(Failed, Backoff), State#state{attempts = Failed + 1});
later(AtLeast, State) ->
    start_after(AtLeast, State).

start_after(0, State) ->
    start(State);
start_after(Ms, State) ->
    _ = erlang:send_after(Ms, self(), start),
    {noreply, State}.

report_exit(Reason, #state{name = Name, slot = Slot, worker = Worker, conf = #conf{restart = Restart}}) ->
    case Restart =/= permanent andalso is_orderly(Reason) of
        true -> ok;
        false ->
            Report = #{weir_pool => worker_down, pool => Name, slot => Slot, worker => Worker, reason => Reason},
            weir_pool_report:log(error, Report)
    end.

%% ---------------------------------------------------------------- stops

%% As a supervisor stops a child. The worker may have unlinked itself, so the monitor tells of its end.
stop(Worker, Shutdown) ->
    Monitor = monitor(process, Worker),
    {Reason, Patience} =
        case Shutdown of
            brutal_kill -> {kill, infinity};
            _ -> {shutdown, Shutdown}
        end,
    true = exit(Worker, Reason),
    receive
        {'DOWN', Monitor, process, Worker, _} -> ok
    after Patience ->
        true = exit(Worker, kill),
        receive
            {'DOWN', Monitor, process, Worker, _} -> ok
        end
    end.

now_ms() -> erlang:monotonic_time(millisecond).
