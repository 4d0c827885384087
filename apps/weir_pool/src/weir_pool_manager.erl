%% @doc Manager of one pool: parent of the pool's processes, and the only process that fills and empties its slots.
%%
%% Protocol. At its start the manager registers the pool's name, starts the workers by their supervisors
%% (weir_pool_slot_sup), opens the pool, and sends `open' to the process that started it (weir_pool_boot). Afterwards it
%% receives
%% <ul>
%% <li>from the workers' supervisors: that a worker runs, or could not be started;</li>
%% <li>from monitors: that a worker, the holder of a claim, or a caller has died;</li>
%% <li>from claimers and the queue: the casts that weir_pool_signals lists;</li>
%% <li>from other processes: calls that change the pool (weir_pool_request).</li>
%% </ul>
%% Picks, claims and weir_pool:info/1 read what the manager writes, without a message. The manager makes no call whose
%% duration another process decides, except to the registry. Supervisors and tasks do what takes time.
%%
%% The modules weir_pool_slots, _change, _members, _overflow, _check, _abandon and _callers are parts of this process:
%% each function takes the state and returns it.
%%
%% The death of a worker and the start of its successor arrive from two processes, in either order. Therefore a slot
%% remembers the monitor of its worker, and the message of any other monitor is ignored.
%%
%% == Ticks ==
%%
%% Claims send no messages. The manager therefore polls the words of the slots: which slots are claimed, and by which
%% processes (weir_pool_abandon). The manager polls at each tick, once a second, and also when the queue notifies it
%% that a request has waited for long. An idle pool has no ticks: if a tick finds no claim, no counted call and no
%% request, the manager sets the mode of the signals to `?UNWATCHED'. If the next tick finds the mode unchanged, that
%% tick is the last. The first claim or counted call that reads this mode changes the mode and notifies the manager,
%% which ticks again. A claimer may read the mode before the manager changes it, and claim after that tick. The second
%% tick finds this claim. If such a claimer is not scheduled for a second, and is then killed in its claim, the manager
%% finds the claim when the pool is used again.
%%
%% == Limits of the node ==
%%
%% If the node can have no other process or port, starts fail with `system_limit'. The manager tries again after 100
%% milliseconds, does not count such a failure against `intensity', and reports the first one. The first start of a
%% pool, a resize and a replacement fail instead.
%%
%% == Ends ==
%%
%% The manager gives up when its workers cannot be started, or die too often. At an orderly end the manager closes the
%% pool, stops the workers, and unregisters the name, in this order. The manager runs no code of the user's. If the
%% manager is killed, its links end the queue and the supervisors of the workers, and its own supervisor starts a
%% successor. The successor waits until the supervisors of its predecessor have stopped their workers. If the
%% application weir_pool stops, a manager in another supervision tree stops as well, because no process would clean up
%% after it.
%% @private
-module(weir_pool_manager).
-behaviour(gen_server).

-export([start_link/3]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2, code_change/3]).
-export([format_status/1]).

-export_type([opener/0, phase/0]).

-include("weir_pool.hrl").
-include("weir_pool_state.hrl").

-type opener() :: {first_start | restart, Alias :: reference()}.
%% An alias (`[reply]') of the process that starts the pool. The alias ends with its first message, so the starter is
%% answered once. If the first manager is killed while the pool starts, its successor answers.

-type phase() ::
    {inheriting, #{Monitor :: reference() => SlotSup :: pid()}}
    | {opening, [weir_pool:slot()]}
    | open
    | {draining, gen_server:from() | none}.
%% `inheriting': the manager waits until the supervisors of a killed predecessor have stopped their workers. `opening':
%% slots without a worker that the manager fills before the pool opens. The first of them is being started. `draining':
%% the manager starts no more workers. The second element is the caller of the drain, or `none' after the answer.

-define(TICK_MS, 1000).

%% Least milliseconds between a poll of the claims and the next poll that a waiting request causes. In pools of more
%% than 200 slots, the least time is a millisecond for each 20 slots, because a poll takes some 0.1 us for each slot.
-define(MIN_POLL_MS, 10).
-define(SLOTS_POLLED_IN_A_MS, 20).

%% @doc Starts a pool, and returns before it is open. Afterwards the opener receives `{Alias, open | {error, _}}'.
-spec start_link(weir_pool:name(), #conf{}, opener()) -> {ok, pid()} | ignore | {error, term()}.
start_link(Name, Conf, Opener) ->
    try
        gen_server:start_link(?MODULE, {Name, Conf, self(), Opener}, [])
    catch
        error:system_limit -> {error, system_limit}
    end.

%% ---------------------------------------------------------------- start

%% @private
-spec init({weir_pool:name(), #conf{}, Parent :: pid(), opener()}) ->
    {ok, #state{}, {continue, start}} | {ok, taken, {continue, taken}} | {stop, system_limit}.
init({Name, Conf, Parent, Opener}) ->
    process_flag(trap_exit, true),
    %% Picks get a dead worker until the manager has written the slot's term. With normal priority, the manager would
    %% wait behind busy pickers before each write. The manager has little to do.
    process_flag(priority, high),
    case weir_pool_registry:register(Name, Parent) of
        {ok, Base} ->
            _ = erlang:monitor(process, weir_pool_sup, [{tag, application_down}]),
            try {weir_pool_calls:new_table(Conf#conf.strategy), weir_pool_queue:start_link(Name, Base, Conf)} of
                {Table, {ok, Queue}} ->
                    Pool = (weir_pool_terms:new(Name, Base, Conf, Queue))#pool{calls = Table},
                    State = #state{conf = Conf, pool = Pool, opener = Opener, phase = {inheriting, #{}}},
                    {ok, State, {continue, start}}
            catch
                error:system_limit -> {stop, system_limit}
            end;
        {error, already_started} ->
            %% This process starts and then ends normally, because its supervisor may be restarting a pool whose name
            %% another process has taken meanwhile. After an error, the supervisor would try again until it gives up.
            ok = send_opener({error, already_started}, Opener),
            {ok, taken, {continue, taken}}
    end.

send_opener(Message, {_Start, Alias}) ->
    Alias ! {Alias, Message},
    ok.

%% @private
-spec handle_continue(start, #state{}) -> {noreply, #state{}}; (taken, taken) -> {stop, normal, taken}.
handle_continue(taken, taken) ->
    {stop, normal, taken};
handle_continue(start, #state{conf = #conf{shutdown = Shutdown}, pool = #pool{name = Name}} = State) ->
    Sups = weir_pool_registry:sups(Name),
    Awaited = maps:from_list([{erlang:monitor(process, Sup, [{tag, predecessor_down}]), Sup} || Sup <- Sups]),
    _ = Sups =/= [] andalso Shutdown =/= infinity andalso erlang:send_after(grace(Shutdown), self(), predecessors_late),
    {noreply, inherit(Awaited, State)}.

grace(brutal_kill) -> ?GRACE_MS;
grace(Shutdown) -> Shutdown + ?GRACE_MS.

inherit(Awaited, State) when map_size(Awaited) > 0 -> State#state{phase = {inheriting, Awaited}};
inherit(_None, #state{conf = #conf{worker = none}} = State) -> open(State);
inherit(_None, #state{conf = #conf{start = sync}, pool = #pool{size = Size}} = State) ->
    start_next(State#state{phase = {opening, lists:seq(1, Size)}});
inherit(_None, #state{pool = #pool{size = Size}} = State) ->
    open(lists:foldl(fun(Slot, S) -> weir_pool_slots:start(Slot, true, S) end, State, lists:seq(1, Size))).

%% Before a pool opens, its workers are started one after the other. A start that fails ends the pool.
start_next(#state{phase = {opening, []}} = State) -> open(State);
start_next(#state{phase = {opening, [Slot | _]}} = State) -> weir_pool_slots:start(Slot, if_started, State).

open(#state{pool = Pool, opener = Opener} = State) ->
    ok = weir_pool_terms:open(Pool),
    ok = weir_pool_check:begin_round(State),
    ok = send_opener(open, Opener),
    State#state{phase = open}.

give_up(Reason, #state{opener = Opener} = State) ->
    ok = send_opener({error, Reason}, Opener),
    {stop, {shutdown, Reason}, State}.

%% ---------------------------------------------------------------- calls

%% @private
-spec handle_call(Request :: term(), gen_server:from(), #state{}) ->
    {reply, term(), #state{}} | {noreply, #state{}}.
%% Answers like a supervisor, for `supervisor:which_children/1' and the release handler.
handle_call(which_children, _From, #state{pool = #pool{queue = Queue}, sups = Sups} = State) ->
    Children = [{Role, Sup, supervisor, [weir_pool_slot_sup]} || {Sup, Role} <- maps:to_list(Sups)],
    {reply, [{queue, Queue, worker, [weir_pool_queue]} | Children], State};
handle_call(_Request, _From, #state{phase = Phase} = State) when Phase =/= open ->
    {reply, {error, no_pool}, State};
handle_call({resize, Size, Timeout}, From, State) ->
    {noreply, settle(weir_pool_change:resize(Size, Timeout, From, State))};
handle_call({replace, Slot, Timeout, Caller}, From, State) ->
    {noreply, weir_pool_change:replace(Slot, Timeout, Caller, From, State)};
handle_call({drain, Timeout, Caller}, From, State) ->
    case weir_pool_change:drain(Timeout, Caller, State) of
        {draining, Draining} ->
            ok = close(Draining),
            {noreply, drained(Draining#state{phase = {draining, From}})};
        {error, held_by_caller} = Error ->
            {reply, Error, State}
    end;
handle_call({member, Request}, From, State) ->
    {noreply, settle(weir_pool_members:handle(Request, From, State))};
handle_call(Request, _From, State) ->
    {reply, {error, {bad_call, Request}}, State}.

%% Answers the caller of a drain when all workers have stopped.
drained(#state{phase = {draining, _}} = State) ->
    case weir_pool_slots:leaving(State) of
        0 -> drained(ok, State);
        _ -> State
    end;
drained(State) ->
    State.

drained(_Result, #state{phase = {draining, none}} = State) ->
    State;
drained(Result, #state{phase = {draining, From}} = State) ->
    gen_server:reply(From, Result),
    State#state{phase = {draining, none}}.

%% Ends the handling of a message. Answers the caller of a drain if all workers have stopped, and shrinks the overflow
%% if an overflow slot may have become idle.
settle(State) ->
    case drained(State) of
        #state{may_shrink = true} = Drained -> weir_pool_overflow:shrink(Drained);
        Drained -> Drained
    end.

%% ---------------------------------------------------------------- casts

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}} | {stop, {shutdown, term()}, #state{}}.
handle_cast({started, Slot, Sup, Worker, IsRestart}, State) ->
    case weir_pool_slots:role(Sup, State) of
        aborted -> {noreply, weir_pool_slots:aborted_started(Sup, State)};
        Role -> started(Role, Slot, Worker, IsRestart, State)
    end;
handle_cast({start_failed, Slot, Sup, Reason}, State) ->
    start_failed(weir_pool_slots:role(Sup, State), Slot, Reason, State);
handle_cast(watch, State) ->
    {noreply, tick_later(State)};
handle_cast(pressed, #state{last_poll = Last, pool = #pool{limit = Limit}, phase = open} = State) ->
    Polled =
        case now_ms() - Last >= max(?MIN_POLL_MS, Limit div ?SLOTS_POLLED_IN_A_MS) of
            true -> poll(State);
            false -> State
        end,
    {noreply, weir_pool_overflow:grow(tick_later(settle(Polled)))};
handle_cast(grow, State) ->
    {noreply, weir_pool_overflow:grow(State)};
handle_cast(idle, State) ->
    {noreply, weir_pool_overflow:shrink(State)};
handle_cast({released, Slot}, State) ->
    {noreply, settle(weir_pool_slots:released(Slot, State))};
handle_cast({abandon, Slot, Claim, Why}, State) ->
    {noreply, settle(weir_pool_abandon:abandon(Slot, Claim, Why, State))};
handle_cast(_Stray, State) ->
    {noreply, State}.

%% ---------------------------------------------------------------- other messages

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({{down, Slot}, Monitor, process, _Pid, _Reason}, State) ->
    {noreply, settle(weir_pool_slots:worker_down(Slot, Monitor, State))};
handle_info(clear_stale, State) ->
    {noreply, weir_pool_slots:clear_stale(State)};
handle_info({'EXIT', Queue, Reason}, #state{pool = #pool{queue = Queue}} = State) ->
    {stop, {queue_died, Reason}, State};
handle_info({'EXIT', Pid, Reason}, State) ->
    sup_ended(Pid, Reason, State);
handle_info({predecessor_down, Monitor, process, Sup, _Reason}, #state{phase = {inheriting, Awaited}} = State) ->
    ok = weir_pool_registry:remove_sup(State#state.pool#pool.name, Sup),
    {noreply, inherit(maps:remove(Monitor, Awaited), State)};
handle_info(predecessors_late, #state{phase = {inheriting, Awaited}} = State) ->
    _ = [exit(Sup, kill) || Sup <- maps:values(Awaited)],
    {noreply, State};
handle_info({not_spawned, Role}, State) ->
    not_spawned(Role, State);
handle_info({abort_late, Sup}, State) ->
    {noreply, weir_pool_slots:abort_late(Sup, State)};
handle_info({start_again, Slot}, State) ->
    {noreply, start_again(Slot, State)};
handle_info({{holder_down, Slot, Claim}, _Monitor, process, Holder, _Reason}, State) ->
    {noreply, settle(weir_pool_abandon:holder_down(Slot, Claim, Holder, State))};
handle_info({caller_down, _Monitor, process, Caller, _Reason}, #state{callers = Callers, pool = Pool} = State) ->
    {noreply, State#state{callers = weir_pool_callers:caller_down(Caller, Pool, Callers)}};
handle_info({{idle, {slot, Slot}, Question}, _Answer}, State) ->
    {noreply, settle(weir_pool_slots:answered(Slot, Question, State))};
handle_info({timeout, Timer, {probe, Slot}}, State) ->
    {noreply, settle(weir_pool_slots:probe_timeout(Slot, Timer, State))};
handle_info({{idle, {member, Monitor}, _Question}, _Answer}, State) ->
    {noreply, settle(weir_pool_slots:member_stopped(Monitor, State))};
handle_info({member_down, Monitor, process, _Pid, _Reason}, State) ->
    {noreply, settle(weir_pool_slots:member_stopped(Monitor, State))};
handle_info({timeout, _Timer, {change, drain}}, State) ->
    {noreply, drained({error, {timeout, weir_pool_slots:leaving(State)}}, State)};
handle_info({timeout, Timer, {change, Change}}, State) ->
    {noreply, settle(weir_pool_change:timeout(Change, Timer, State))};
handle_info({timeout, Timer, {linger, Slot}}, State) ->
    {noreply, weir_pool_overflow:lingered(Slot, Timer, State)};
handle_info(check_round, #state{phase = open} = State) ->
    {noreply, settle(weir_pool_check:round(State))};
handle_info({checked, Monitor, process, _Pid, Exit}, State) ->
    {noreply, settle(weir_pool_check:checked(Monitor, Exit, State))};
handle_info({timeout, Timer, check}, State) ->
    ok = weir_pool_check:overdue(Timer, State),
    {noreply, State};
handle_info({report_later, Level, Report}, State) ->
    ok = weir_pool_report:later(Level, Report),
    {noreply, State};
handle_info(tick, State) ->
    {noreply, tick(weir_pool_overflow:grow(weir_pool_overflow:shrink(drained(poll(State#state{is_ticking = false})))))};
handle_info({application_down, _Monitor, process, _Sup, _Reason}, State) ->
    {stop, {shutdown, application_down}, State};
handle_info(_Stray, State) ->
    {noreply, State}.

%% @private
-spec code_change(term(), #state{}, term()) -> {ok, #state{}}.
code_change(_OldVsn, State, _Extra) -> {ok, State}.

%% @private
-spec format_status(gen_server:format_status()) -> gen_server:format_status().
format_status(Status) -> maps:map(fun shown/2, Status).

shown(state, #state{pool = Pool, phase = Phase, names = Names, is_ticking = IsTicking} = State) ->
    #pool{name = Name, size = Size, limit = Limit} = Pool,
    Live = length(weir_pool_slots:filled(State)),
    Shown = #{pool => Name, phase => Phase, size => Size, limit => Limit, live => Live, names => map_size(Names)},
    Shown#{is_ticking => IsTicking};
shown(_, Value) ->
    Value.

%% ---------------------------------------------------------------- starts

started(Slot, Slot, Worker, IsRestart, State) ->
    Filled = weir_pool_slots:fill(Slot, Worker, State#state{failed_in_a_row = 0}),
    case settle(weir_pool_change:started(Slot, Worker, Filled)) of
        #state{phase = {opening, [Slot | More]}, conf = #conf{start = sync}} = Started when not IsRestart ->
            {noreply, start_next(Started#state{phase = {opening, More}})};
        #state{pool = #pool{size = Size}, resize = none} = Started when Slot > Size ->
            {noreply, weir_pool_overflow:started(Slot, Started)};
        Started when IsRestart ->
            spend(Started);
        Started ->
            {noreply, Started}
    end;
started({spare, _} = Role, _Slot, Worker, _IsRestart, State) ->
    {noreply, settle(weir_pool_change:started(Role, Worker, State))};
started(Ended, _Slot, Worker, _IsRestart, State) when Ended =:= killed; Ended =:= none ->
    %% The supervisor was killed (weir_pool_slots:abort_late/2), and the worker may have no link to it.
    true = exit(Worker, kill),
    {noreply, State};
started(retired, _Slot, _Worker, _IsRestart, State) ->
    {noreply, State}.

start_failed(Role, Slot, Reason, #state{pool = Pool, phase = Phase, opener = {Start, _}} = State) ->
    #pool{name = Name, size = Size} = Pool,
    #state{failed_in_a_row = InARow} = State,
    ok = weir_pool_terms:count(Pool, ?START_FAILURES),
    ok = weir_pool_registry:start_error(Name, {Slot, Reason}),
    Failed = State#state{failed_in_a_row = InARow + 1},
    IsLimit = weir_pool_limit:is_limit(Reason),
    case Phase of
        {opening, _} when Start =:= first_start; not IsLimit ->
            give_up({start_failed, Slot, Reason}, Failed);
        _ ->
            ok = report_rarely(Slot, Reason, IsLimit, Failed),
            case settle(weir_pool_change:failed(Role, Reason, Failed)) of
                Changed when Role =/= Slot; IsLimit, Slot =< Size -> {noreply, Changed};
                Changed when Slot =< Size -> spend(Changed);
                Changed -> {noreply, weir_pool_overflow:failed(Changed)}
            end
    end.

%% Reports the first failure in a row, the second, the fourth, the eighth and so on. At a limit of the node,
%% reports only the first failure.
report_rarely(Slot, Reason, IsLimit, #state{pool = #pool{name = Name}, failed_in_a_row = N}) ->
    case N =:= 1 orelse (N band (N - 1) =:= 0 andalso not IsLimit) of
        true ->
            Report = #{weir_pool => start_failed, pool => Name, slot => Slot, reason => Reason, in_a_row => N},
            weir_pool_report:later(error, Report);
        false ->
            ok
    end.

%% Handles the failure to spawn a worker's supervisor, at a limit of the node.
not_spawned({spare, Slot} = Role, State) ->
    case weir_pool_slots:is_spare_missing(Slot, State) of
        true -> start_failed(Role, Slot, system_limit, State);
        false -> {noreply, State}
    end;
not_spawned(Slot, State) ->
    case weir_pool_slots:sup(Slot, State) =:= undefined andalso start_failed(Slot, Slot, system_limit, State) of
        {noreply, Failed} -> {noreply, start_again_later(Slot, Failed)};
        false -> {noreply, State};
        Stop -> Stop
    end.

start_again_later(Slot, State) ->
    _ = erlang:send_after(?AGAIN_MS, self(), {start_again, Slot}),
    State.

%% Starts a slot after the pause, unless the slot was started or removed by a resize meanwhile.
start_again(Slot, #state{phase = Phase, pool = #pool{size = Size}} = State) ->
    case {weir_pool_slots:sup(Slot, State), Phase} of
        {undefined, {opening, [Slot | _]}} -> start_next(State);
        {undefined, open} when Slot =< Size -> weir_pool_slots:start(Slot, true, State);
        _ -> State
    end.

%% Handles the end of a worker's supervisor. The reason is `normal' if the worker is not restarted. The supervisor of an
%% overflow slot, or of a slot that a resize adds, may end just after the slot has become an ordinary one. The manager
%% then restarts the worker, as in each ordinary slot.
sup_ended(Sup, Reason, State) ->
    {Role, Ended} = weir_pool_slots:ended(Sup, State),
    Changed = settle(weir_pool_change:ended(Role, Reason, Ended)),
    case Changed of
        #state{phase = {opening, [Role | More]}} when Reason =:= normal ->
            %% The start function returned `ignore'.
            {noreply, start_next(Changed#state{phase = {opening, More}})};
        #state{phase = {opening, [Role | _]}, opener = {restart, _}} when Reason =:= {shutdown, start_failed} ->
            %% The start failed at a limit of the node. After any other failure, start_failed/4 has given up.
            {noreply, start_again_later(Role, Changed)};
        #state{phase = {opening, _}} when is_integer(Role) ->
            give_up({start_failed, Role, Reason}, Changed);
        #state{phase = open, pool = #pool{size = Size}} when is_integer(Role), Role =< Size, Reason =/= normal ->
            spend(weir_pool_slots:start(Role, true, Changed));
        _ ->
            %% A worker that has stopped leaves room for another.
            {noreply, weir_pool_overflow:grow(Changed)}
    end.

%% Counts a restart. If a period has had too many restarts, the pool gives up.
spend(#state{conf = #conf{start = async}} = State) ->
    {noreply, State};
spend(#state{phase = {draining, _}} = State) ->
    {noreply, State};
spend(#state{conf = #conf{period = Period} = Conf, pool = #pool{size = Size}, restarts = Restarts} = State) ->
    Now = now_ms(),
    {Count, Times} = forget_before(Now - Period * 1000, Restarts),
    case Count < weir_pool_opts:intensity(Conf, Size) of
        true -> {noreply, State#state{restarts = {Count + 1, queue:in(Now, Times)}}};
        false -> give_up(restart_intensity, State)
    end.

forget_before(Time, {Count, Times} = Restarts) ->
    case queue:peek(Times) of
        {value, Oldest} when Oldest =< Time -> forget_before(Time, {Count - 1, queue:drop(Times)});
        _ -> Restarts
    end.

%% ---------------------------------------------------------------- polls

poll(#state{pool = Pool, last_poll = Last, claimed = Before} = State) ->
    Now = now_ms(),
    ok = weir_pool_terms:count(Pool, ?CLAIMED_MS, Before * (Now - Last)),
    {Claimed, Polled} = weir_pool_abandon:poll(State),
    Polled#state{last_poll = Now, claimed = Claimed}.

tick_later(#state{is_ticking = true} = State) ->
    State;
tick_later(State) ->
    _ = erlang:send_after(?TICK_MS, self(), tick),
    State#state{is_ticking = true}.

tick(#state{pool = Pool, callers = Callers, claimed = Claimed} = State) ->
    {Calls, Polled} = weir_pool_callers:poll(Pool, Callers),
    Ticked = State#state{callers = Polled},
    case Claimed + Calls =:= 0 andalso weir_pool_signals:unwatch(Pool) of
        true -> Ticked;
        false -> tick_later(Ticked)
    end.

%% ---------------------------------------------------------------- end

%% @private
-spec terminate(term(), #state{} | taken) -> ok.
terminate(_Reason, taken) ->
    ok;
terminate(_Reason, #state{conf = Conf, pool = Pool, sups = Sups} = State) ->
    ok = close(State),
    #pool{name = Name, base = Base, queue = Queue} = Pool,
    %% The holders of claims find that their claims have ended.
    lists:foreach(fun({Slot, _}) -> weir_pool_word:vacate(Pool, Slot) end, weir_pool_slots:filled(State)),
    ok = stop_sups(maps:keys(Sups), Conf),
    lists:foreach(fun(Sup) -> weir_pool_registry:remove_sup(Name, Sup) end, maps:keys(Sups)),
    %% A worker without a link to its supervisor lives on if another process has killed the supervisor. Processes that
    %% connected themselves are not killed.
    _ = [exit(Worker, kill) || Conf#conf.worker =/= none, {_, Worker} <- weir_pool_slots:filled(State)],
    true = exit(Queue, shutdown),
    try
        weir_pool_registry:unregister(Name, Base)
    catch
        %% The application is stopping, and the registry has ended.
        exit:_ -> weir_pool_registry:erase([Base])
    end.

%% Closes the pool. Picks and claims then return `no_pool', and the queue answers all requests with `no_pool'.
close(#state{pool = #pool{name = Name, queue = Queue}}) ->
    ok = weir_pool_terms:close(Name),
    weir_pool_queue:closed(Queue).

%% Stops all supervisors at the same time, so the end of a pool takes as long as that of its slowest worker. Drops all
%% other messages, because a selective receive would search them again for each supervisor.
stop_sups(Sups, #conf{shutdown = Shutdown}) ->
    lists:foreach(fun(Sup) -> exit(Sup, shutdown) end, Sups),
    Deadline =
        case Shutdown of
            infinity -> infinity;
            _ -> now_ms() + grace(Shutdown)
        end,
    await_exits(maps:from_keys(Sups, stopping), Deadline).

await_exits(Sups, _Deadline) when map_size(Sups) =:= 0 ->
    ok;
await_exits(Sups, Deadline) ->
    receive
        {'EXIT', Pid, _Reason} -> await_exits(maps:remove(Pid, Sups), Deadline);
        _Other -> await_exits(Sups, Deadline)
    after left(Deadline) ->
        lists:foreach(fun(Sup) -> exit(Sup, kill) end, maps:keys(Sups)),
        await_exits(Sups, infinity)
    end.

left(infinity) -> infinity;
left(Deadline) -> max(0, Deadline - now_ms()).

now_ms() -> erlang:monotonic_time(millisecond).
