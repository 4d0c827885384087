%% @doc Supervisor of one slot's worker: starts, restarts and stops the worker.
%%
%% Each slot has a supervisor of its own. A worker that starts or stops slowly delays no other worker then, and a new
%% worker can start while the old worker of the slot still serves. An OTP supervisor makes its starter wait for the
%% worker, and cannot pause between restarts.
%%
%% Protocol. The manager spawns the supervisor and is its parent. The supervisor calls the worker's start function, and
%% casts to the manager
%%
%% ```
%% {started, Slot, self(), Worker, IsRestart}    the worker runs
%% {start_failed, Slot, self(), Reason}          no worker runs; with `keep' the supervisor tries again after a pause
%% '''
%%
%% The manager casts to the supervisor
%%
%% ```
%% {keep, Boolean}             whether the supervisor starts another worker when this one dies
%% {renew, Worker, Report}     Worker is likely to be busy or broken: kill it, and start another if `keep' is set
%% retire                      let the worker handle what was sent to it, for `shutdown' at most, then stop it
%% '''
%%
%% The supervisor ends when it has no worker and starts none, and when the manager retires or ends it. If the supervisor
%% still has a worker then, it stops the worker first. The manager sees the end by the link. The exit reason is
%% `{shutdown, WorkersReason | start_failed}' if the supervisor would go on with `keep', `shutdown' if the manager ends
%% it, and `normal' otherwise. The supervisor ignores a cast about an earlier worker. If the supervisor is killed, the
%% link ends the worker, and the manager kills a worker that the link does not end.
%%
%% The supervisor monitors its worker: a worker that has removed its link is supervised as well.
%%
%% Restarts. With `start => sync' a dead worker is restarted at once, and a failed start is tried again after a
%% millisecond; the manager counts both. With `async' the pause doubles with each start, up to the longest pause, and a
%% worker that lasts for longer than that resets it. A random part shortens each pause, so that slots that lost their
%% workers together do not restart together. A start that fails because the node can have no other process or port is
%% tried again after 100 milliseconds, and the manager does not count it.
%%
%% Succession. If the manager is killed, this process stops its worker and ends. The next manager of the pool starts no
%% worker before that, because a worker may have a registered name. The successor finds this process in the table of
%% supervisors.
%%
%% The supervisor logs the death and the replacement of its worker itself, so a stuck logger delays one slot only.
%% @private
-module(weir_pool_slot_sup).
-behaviour(gen_server).

-export([start_link/4, keep/2, renew/3, retire/1, delay/2]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2, code_change/3]).

-export_type([keep/0]).

-include("weir_pool.hrl").

%% More doublings change nothing: the longest pause is shorter in any case.
-define(MAX_DOUBLINGS, 32).

-type keep() :: boolean() | if_started.
%% `if_started': as `false' until a worker has started, then as `true'. If the first start fails, the supervisor
%% therefore ends, and does not wait for a decision of the manager.

-record(state, {
    name :: weir_pool:name(),
    slot :: weir_pool:slot(),
    conf :: #conf{},
    manager :: pid(),
    keep :: keep(),
    worker :: pid() | undefined,
    monitor :: reference() | undefined,
    %% The report of the replacement, if the worker was killed to be replaced.
    renewing = no :: no | map(),
    %% The question whether the worker is idle. The supervisor stops the worker after the answer.
    retiring = no :: no | reference(),
    %% Whether the next start is a restart: there was a worker, and it was not replaced on purpose.
    is_restart = false :: boolean(),
    %% Number of starts since the last worker that lasted, and monotonic milliseconds of the last start.
    attempts = 0 :: non_neg_integer(),
    since = 0 :: integer()
}).

%% @doc Starts the supervisor of a slot, from the manager. Returns at once; the supervisor starts the worker. Raises
%% `system_limit' if the node can have no other process.
-spec start_link(weir_pool:name(), weir_pool:slot(), #conf{}, keep()) -> pid().
start_link(Name, Slot, Conf, Keep) ->
    proc_lib:spawn_link(?MODULE, init, [
        #state{name = Name, slot = Slot, conf = Conf, manager = self(), keep = Keep}
    ]).

%% @doc Sets whether the supervisor starts another worker when this one dies.
-spec keep(pid(), boolean()) -> ok.
keep(SlotSup, Keep) -> gen_server:cast(SlotSup, {keep, Keep}).

%% @doc Kills the worker, logs the report, and starts another worker if `keep' is set.
-spec renew(pid(), Worker :: pid(), Report :: map()) -> ok.
renew(SlotSup, Worker, Report) -> gen_server:cast(SlotSup, {renew, Worker, Report}).

%% @doc Stops the worker once it has handled what was sent to it, or after `shutdown' milliseconds.
-spec retire(pid()) -> ok.
retire(SlotSup) -> gen_server:cast(SlotSup, retire).

%% @doc Returns the pause before the next attempt, in milliseconds. The pause is 0 without a failed attempt and `Min'
%% after the first. Each further attempt doubles the pause, up to `Max'. A random part of up to a half is subtracted.
-spec delay(Attempts :: non_neg_integer(), {MinMs :: pos_integer(), MaxMs :: pos_integer()}) ->
    DelayMs :: non_neg_integer().
delay(0, _MinMax) ->
    0;
delay(Attempts, {Min, Max}) ->
    Full = min(Max, Min bsl min(Attempts - 1, ?MAX_DOUBLINGS)),
    Full + 1 - rand:uniform(Full div 2 + 1).


%% @private
-spec init(#state{}) -> no_return().
init(#state{name = Name} = State) ->
    process_flag(trap_exit, true),
    ok = weir_pool_registry:add_sup(Name, self()),
    gen_server:enter_loop(?MODULE, [], State, {continue, start}).

%% @private
-spec handle_continue(start, #state{}) -> {noreply, #state{}} | {stop, normal | {shutdown, term()}, #state{}}.
handle_continue(start, #state{manager = Manager} = State) ->
    %% If the manager died before this process was in the table, its successor does not know of this process.
    case is_process_alive(Manager) of
        true -> start(State);
        false -> {stop, normal, State}
    end.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
%% Answers like a supervisor, for `supervisor:which_children/1' and the release handler.
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
handle_cast(retire, #state{conf = #conf{shutdown = brutal_kill}} = State) ->
    {stop, normal, State};
handle_cast(retire, #state{worker = Worker, conf = #conf{shutdown = Shutdown}} = State) ->
    Question = weir_pool_idle:ask(Worker, worker),
    _ = is_integer(Shutdown) andalso erlang:send_after(Shutdown, self(), {retire, Question}),
    {noreply, State#state{keep = false, retiring = Question}};
handle_cast(_Ignored, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, normal | {shutdown, term()}, #state{}}.
handle_info({'DOWN', Monitor, process, _Worker, Reason}, #state{monitor = Monitor, renewing = no} = State) ->
    ok = report_exit(Reason, State),
    exited(Reason, State#state{worker = undefined, monitor = undefined, is_restart = true});
handle_info({'DOWN', Monitor, process, _Worker, Reason}, #state{monitor = Monitor, renewing = Report} = State) ->
    ok = weir_pool_report:log(warning, Report),
    Without = State#state{worker = undefined, monitor = undefined, renewing = no, is_restart = false},
    case State of
        #state{keep = true} -> start(Without);
        #state{keep = false} -> {stop, {shutdown, Reason}, Without}
    end;
handle_info({{idle, worker, Question}, _Answer}, #state{retiring = Question} = State) ->
    {stop, normal, State};
handle_info({retire, Question}, #state{retiring = Question} = State) ->
    {stop, normal, State};
handle_info(start, #state{worker = undefined} = State) ->
    start(State);
handle_info(_Ignored, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{name = Name, worker = Worker, conf = #conf{shutdown = Shutdown}}) ->
    _ = Worker =/= undefined andalso stop(Worker, Shutdown),
    weir_pool_registry:remove_sup(Name, self()).

%% @private
-spec code_change(term(), #state{}, term()) -> {ok, #state{}}.
code_change(_OldVsn, State, _Extra) -> {ok, State}.

%% ---------------------------------------------------------------- starts

start(#state{slot = Slot, manager = Manager, keep = Keep, is_restart = IsRestart} = State) ->
    case call(State) of
        {ok, Worker} ->
            Monitor = erlang:monitor(process, Worker),
            ok = gen_server:cast(Manager, {started, Slot, self(), Worker, IsRestart}),
            {noreply, State#state{worker = Worker, monitor = Monitor, keep = Keep =/= false, since = now_ms()}};
        ignore ->
            {stop, normal, State};
        {error, Reason} ->
            ok = gen_server:cast(Manager, {start_failed, Slot, self(), Reason}),
            case {Keep, weir_pool_limit:is_limit(Reason)} of
                {true, true} -> start_after(?AGAIN_MS, State);
                {true, false} -> later(1, State#state{since = now_ms()});
                {_, _} -> {stop, {shutdown, start_failed}, State}
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

%% With `async', a worker that lasted for longer than the longest pause resets the pause.
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

%% Stops a worker as a supervisor stops a child.
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
