%% @doc Manager of one pool: the root of its processes, and the only one that writes its slots.
%%
%% Protocol. At its start it registers the pool's name, has the workers started (weir_pool_slot_sup), and opens the
%% pool, of which whoever has started it is told (weir_pool_boot). Afterwards it hears: from the supervisors of workers,
%% that there is a worker, or that one could not be started; a monitor's message when a worker is gone; from claimers
%% (weir_pool_claim), that a slot it waited for is released, that a claim has left its worker busy, or that there is
%% something to look at. It is called by those who change the pool; picks, claims and weir_pool:info/1 read what it
%% writes. It waits for nobody: what takes time is done by the workers' supervisors and by tasks (weir_pool_task).
%%
%% A worker's death and the start of its successor are told by two processes, in either order. A slot therefore
%% remembers the monitor of the worker it holds, and the message of any other monitor is void.
%%
%% == Ticks ==
%%
%% Claims send no messages, so the manager polls every second, and when weir_pool_queue tells that somebody waits for
%% long, who holds what (weir_pool_abandon). A pool that nobody uses is left alone: when a tick finds nothing claimed
%% and nobody waiting, the mode of the signals becomes UNWATCHED, and if it still is at the next tick, that was the
%% last. The first claim that reads this mode changes it and tells the manager. A claimer may read the mode before it
%% changes, and claim only afterwards; the second tick is for those. One that is kept from running for a whole second
%% just there, and is then killed while it holds the worker, is found when the pool is used the next time.
%%
%% == Ends ==
%%
%% It gives up when workers cannot be started or die too often. Ending in order it closes the pool, stops the workers,
%% and gives the name back, in this order. It runs no code of the user's; should it be killed, the workers and the queue
%% go with it by their links, and its supervisor starts the pool again. When the application weir_pool is stopped under
%% a pool that belongs to another supervision tree the manager stops: nobody else is left to clean up.
%% @private
-module(weir_pool_manager).
-behaviour(gen_server).

-export([start_link/3]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2, code_change/3]).
-export([format_status/1]).

-export_type([opener/0]).

-include("weir_pool.hrl").

-type opener() :: reference().
%% An alias of who has started the pool (`[reply]'). It dies with the first message, so a pool that its supervisor
%% starts again tells nobody.

-define(TICK_MS, 1000).

%% When somebody waits, claims are polled at once, but not again before so many milliseconds, and so many more for
%% each slot, as a poll takes a microsecond for each.
-define(MIN_POLL_MS, 10).
-define(SLOTS_POLLED_IN_A_MS, 20).

%% So much longer than the option says are the supervisors of workers waited for when the pool ends, milliseconds: one
%% that is waiting for a worker's start function cannot stop before that returns.
-define(GRACE_MS, 5000).

-record(state, {
    name :: weir_pool:name(),
    conf :: #conf{},
    slots :: weir_pool_slots:slots(),
    %% The slots whose workers are still to be started before the pool is opened, the first of them now; open; or being
    %% drained, when nothing is started any more: for whom, who may have been answered.
    phase :: {opening, [weir_pool:slot()]} | open | {draining, gen_server:from() | none},
    opener :: opener(),
    %% When workers were started again, within the last period, the oldest first, and how many that were; how often
    %% starts have failed in a row.
    restarts = {0, queue:new()} :: {non_neg_integer(), queue:queue(integer())},
    failed_in_a_row = 0 :: non_neg_integer(),
    change = none :: weir_pool_change:change(),
    %% Names of processes that connect themselves.
    names = #{} :: #{term() => weir_pool:slot()},
    overflow = weir_pool_overflow:new() :: weir_pool_overflow:overflow(),
    check :: weir_pool_check:check(),
    holders = weir_pool_abandon:new() :: weir_pool_abandon:holders(),
    callers = weir_pool_callers:new() :: weir_pool_callers:callers(),
    is_ticking = false :: boolean(),
    %% Monotonic milliseconds; how many slots were claimed then.
    last_poll = erlang:monotonic_time(millisecond) :: integer(),
    claimed = 0 :: non_neg_integer()
}).

%% @doc Starts a pool, and returns before it is open.
-spec start_link(weir_pool:name(), #conf{}, opener()) -> {ok, pid()} | ignore | {error, term()}.
start_link(Name, Conf, Opener) -> gen_server:start_link(?MODULE, {Name, Conf, self(), Opener}, []).

%% ---------------------------------------------------------------- start

%% @private
-spec init({weir_pool:name(), #conf{}, Parent :: pid(), opener()}) ->
    {ok, #state{}, {continue, start}} | {ok, taken, {continue, taken}}.
init({Name, #conf{size = Size} = Conf, Parent, Opener}) ->
    process_flag(trap_exit, true),
    %% It has little to do, but picks get dead workers until it is done. Behind busy pickers it would have to wait for
    %% its turn before each writing of a term, on top of the wait that the writing itself is.
    process_flag(priority, high),
    case weir_pool_registry:register(Name, Parent) of
        {ok, Base} ->
            _ = erlang:monitor(process, weir_pool_sup, [{tag, application_down}]),
            {ok, Queue} = weir_pool_queue:start_link(Name, Base, Conf),
            Slots = weir_pool_slots:new(Name, Conf, weir_pool_terms:new(Name, Base, Conf, Queue)),
            Phase = {opening, lists:seq(1, Size)},
            Check = weir_pool_check:new(Conf),
            State = #state{name = Name, conf = Conf, slots = Slots, phase = Phase, opener = Opener, check = Check},
            {ok, State, {continue, start}};
        {error, already_started} ->
            %% Not an error of this process's start: its supervisor may be starting it again, in place of one after
            %% which somebody else was quicker, and would try until it gives up, and with it all pools.
            Opener ! {Opener, {error, already_started}},
            {ok, taken, {continue, taken}}
    end.

%% @private
-spec handle_continue(start, #state{}) -> {noreply, #state{}}; (taken, taken) -> {stop, normal, taken}.
handle_continue(taken, taken) ->
    {stop, normal, taken};
handle_continue(start, #state{conf = #conf{worker = Worker, start = Start}, slots = Slots} = State) ->
    case Worker =/= none andalso Start of
        false ->
            {noreply, open(State)};
        async ->
            Size = weir_pool_slots:pool_size(Slots),
            {noreply, open(State#state{slots = start_all(lists:seq(1, Size), Slots)})};
        sync ->
            {noreply, start_next(State)}
    end.

start_all(Missing, Slots) -> lists:foldl(fun(Slot, S) -> weir_pool_slots:start(Slot, true, S) end, Slots, Missing).

%% The workers of a pool that is to be opened are started in turn. A start that fails ends the pool, so it is made once.
start_next(#state{phase = {opening, []}} = State) ->
    open(State);
start_next(#state{phase = {opening, [Slot | _]}, slots = Slots} = State) ->
    State#state{slots = weir_pool_slots:start(Slot, if_started, Slots)}.

open(#state{slots = Slots, check = Check, opener = Opener} = State) ->
    ok = weir_pool_terms:open(weir_pool_slots:pool(Slots)),
    ok = weir_pool_check:begin_round(Check),
    Opener ! {Opener, open},
    State#state{phase = open}.

give_up(Reason, #state{opener = Opener} = State) ->
    Opener ! {Opener, {error, Reason}},
    {stop, {shutdown, Reason}, State}.

%% ---------------------------------------------------------------- messages

%% @private
-spec handle_call(Request :: term(), gen_server:from(), #state{}) ->
    {reply, term(), #state{}} | {noreply, #state{}}.
%% As a supervisor answers, for `supervisor:which_children/1' and the release handler.
handle_call(which_children, _From, #state{conf = #conf{worker = Worker}, slots = Slots} = State) ->
    #pool{queue = Queue} = weir_pool_slots:pool(Slots),
    Sups = [
        {Role, Sup, supervisor, [weir_pool_slot_sup]}
     || Worker =/= none, {Sup, Role} <- weir_pool_slots:sups(Slots)
    ],
    {reply, [{queue, Queue, worker, [weir_pool_queue]} | Sups], State};
handle_call(_Request, _From, #state{phase = Phase} = State) when Phase =/= open ->
    {reply, {error, no_pool}, State};
handle_call({resize, Size, Timeout}, From, #state{names = Names} = State) ->
    Last = lists:max([0 | maps:values(Names)]),
    {noreply, change(fun(Now) -> weir_pool_change:resize(Size, Timeout, Last, From, Now) end, State)};
handle_call({replace, Slot, Timeout, Caller}, From, #state{slots = Slots} = State) ->
    {noreply, State#state{slots = weir_pool_change:replace(Slot, Timeout, Caller, From, Slots)}};
handle_call({drain, Timeout, Caller}, From, #state{change = Change, slots = Slots} = State) ->
    case weir_pool_change:drain(Timeout, Caller, {Change, Slots}) of
        {draining, {NewChange, NewSlots}} ->
            ok = close(State),
            {noreply, drained(State#state{phase = {draining, From}, change = NewChange, slots = NewSlots})};
        {error, held_by_caller} = Error ->
            {reply, Error, State}
    end;
handle_call({member, Request}, From, #state{names = Names, slots = Slots} = State) ->
    {NewNames, NewSlots} = weir_pool_members:handle(Request, From, Names, Slots),
    {noreply, State#state{names = NewNames, slots = NewSlots}};
handle_call(Request, _From, State) ->
    {reply, {error, {bad_call, Request}}, State}.

drained(#state{phase = {draining, From}, slots = Slots} = State) ->
    case weir_pool_slots:leaving(Slots) of
        0 -> drained(ok, From, State);
        _ -> State
    end;
drained(State) ->
    State.

drained(_Result, none, State) ->
    State;
drained(Result, From, State) ->
    gen_server:reply(From, Result),
    State#state{phase = {draining, none}}.

change(Do, #state{change = Change, slots = Slots} = State) ->
    {NewChange, NewSlots} = Do({Change, Slots}),
    State#state{change = NewChange, slots = NewSlots}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}} | {stop, {shutdown, term()}, #state{}}.
handle_cast({started, Slot, Sup, Worker, IsRestart}, #state{slots = Slots} = State) ->
    started(weir_pool_slots:role(Sup, Slots), Slot, Sup, Worker, IsRestart, State);
handle_cast({start_failed, Slot, Sup, Reason}, #state{slots = Slots} = State) ->
    start_failed(weir_pool_slots:role(Sup, Slots), Slot, Sup, Reason, State);
handle_cast(watch, State) ->
    {noreply, tick_later(State)};
handle_cast(pressed, #state{last_poll = Last, slots = Slots, phase = open} = State) ->
    #pool{limit = Limit} = weir_pool_slots:pool(Slots),
    Polled =
        case now_ms() - Last >= max(?MIN_POLL_MS, Limit div ?SLOTS_POLLED_IN_A_MS) of
            true -> poll(State);
            false -> State
        end,
    {noreply, grow_overflow(tick_later(Polled))};
handle_cast(grow, #state{phase = open} = State) ->
    {noreply, grow_overflow(State)};
handle_cast(idle, State) ->
    {noreply, shrink_overflow(State)};
handle_cast({released, Slot}, #state{slots = Slots} = State) ->
    {noreply, State#state{slots = weir_pool_slots:released(Slot, Slots)}};
handle_cast({abandon, Slot, Claim, Why}, #state{holders = Holders, slots = Slots} = State) ->
    {Left, Abandoned} = weir_pool_abandon:abandon(Slot, Claim, Why, {Holders, Slots}),
    {noreply, State#state{holders = Left, slots = Abandoned}};
handle_cast(_Stray, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({{down, Slot}, Monitor, process, _Pid, _Reason}, #state{slots = Slots} = State) ->
    {noreply, State#state{slots = weir_pool_slots:worker_down(Slot, Monitor, Slots)}};
handle_info(clear_stale, #state{slots = Slots} = State) ->
    {noreply, State#state{slots = weir_pool_slots:clear_stale(Slots)}};
handle_info({'EXIT', Pid, Reason}, #state{slots = Slots} = State) ->
    #pool{queue = Queue} = weir_pool_slots:pool(Slots),
    case Pid of
        Queue -> {stop, {queue_died, Reason}, State};
        _ -> sup_ended(Pid, Reason, State)
    end;
handle_info({{holder_down, Slot, Claim}, _Monitor, process, Holder, _Reason}, State) ->
    #state{holders = Holders, slots = Slots} = State,
    {Left, Abandoned} = weir_pool_abandon:holder_down(Slot, Claim, Holder, {Holders, Slots}),
    {noreply, State#state{holders = Left, slots = Abandoned}};
handle_info({caller_down, _Monitor, process, Caller, _Reason}, #state{callers = Callers, slots = Slots} = State) ->
    {noreply, State#state{callers = weir_pool_callers:caller_down(Caller, weir_pool_slots:pool(Slots), Callers)}};
handle_info({{probed, Slot, Why}, Monitor, process, _Pid, Exit}, #state{slots = Slots} = State) ->
    {noreply, State#state{slots = weir_pool_slots:examined(Slot, Monitor, Exit, Why, Slots)}};
handle_info({timeout, _Timer, {change, drain}}, #state{phase = {draining, From}, slots = Slots} = State) ->
    {noreply, drained({error, {timeout, weir_pool_slots:leaving(Slots)}}, From, State)};
handle_info({timeout, Timer, {change, What}}, State) ->
    {noreply, change(fun(Now) -> weir_pool_change:timeout(What, Timer, Now) end, State)};
handle_info({timeout, Timer, {linger, Slot}}, #state{overflow = Overflow, slots = Slots} = State) ->
    {Left, Fewer} = weir_pool_overflow:lingered(Slot, Timer, Overflow, Slots),
    {noreply, State#state{overflow = Left, slots = Fewer}};
handle_info(check_round, #state{check = Check, slots = Slots, phase = open} = State) ->
    {noreply, checking(weir_pool_check:round(Check, Slots), State)};
handle_info({checked, Monitor, process, Pid, Exit}, #state{check = Check, slots = Slots} = State) ->
    {noreply, checking(weir_pool_check:checked({Pid, Monitor}, Exit, Check, Slots), State)};
handle_info(tick, State) ->
    {noreply, tick(grow_overflow(shrink_overflow(poll(State#state{is_ticking = false}))))};
handle_info({application_down, _Monitor, process, _Sup, _Reason}, State) ->
    {stop, {shutdown, application_down}, State};
handle_info(_Stray, State) ->
    {noreply, State}.

checking({Check, Slots}, State) -> State#state{check = Check, slots = Slots}.

%% @private
-spec code_change(term(), #state{}, term()) -> {ok, #state{}}.
code_change(_OldVsn, State, _Extra) -> {ok, State}.

%% @private
-spec format_status(gen_server:format_status()) -> gen_server:format_status().
format_status(Status) -> maps:map(fun shown/2, Status).

shown(state, #state{name = Name, slots = Slots, phase = Phase, names = Names, is_ticking = IsTicking}) ->
    #pool{size = Size, limit = Limit} = weir_pool_slots:pool(Slots),
    Live = length(weir_pool_slots:filled(Slots)),
    Shown = #{pool => Name, phase => Phase, size => Size, limit => Limit, live => Live, names => map_size(Names)},
    Shown#{is_ticking => IsTicking};
shown(_, Value) ->
    Value.

%% ---------------------------------------------------------------- workers come and go

started(Slot, Slot, Sup, Worker, IsRestart, #state{slots = Slots} = State) ->
    Filled = State#state{slots = weir_pool_slots:fill(Slot, Worker, Slots), failed_in_a_row = 0},
    Size = weir_pool_slots:pool_size(Slots),
    Changed = change(fun(Now) -> weir_pool_change:started(Slot, Sup, Worker, Now) end, Filled),
    case Changed of
        #state{phase = {opening, [Slot | More]}} when IsRestart =:= false, Changed#state.conf#conf.start =:= sync ->
            {noreply, start_next(Changed#state{phase = {opening, More}})};
        #state{overflow = Overflow, slots = Now} when Slot > Size ->
            {noreply, Changed#state{overflow = weir_pool_overflow:started(Slot, Overflow, Now)}};
        _ when IsRestart ->
            spend(Changed);
        _ ->
            {noreply, Changed}
    end;
started({spare, _} = Role, _Slot, Sup, Worker, _IsRestart, State) ->
    {noreply, change(fun(Now) -> weir_pool_change:started(Role, Sup, Worker, Now) end, State)};
started(Ended, _Slot, _Sup, Worker, _IsRestart, State) when Ended =:= killed; Ended =:= none ->
    %% Its supervisor has been killed (weir_pool_slots:stop_start/2), and the link need not have ended it.
    true = exit(Worker, kill),
    {noreply, State};
started(retired, _Slot, _Sup, _Worker, _IsRestart, State) ->
    {noreply, State}.

start_failed(Role, Slot, Sup, Reason, #state{name = Name, slots = Slots, failed_in_a_row = InARow} = State) ->
    ok = weir_pool_terms:count(weir_pool_slots:pool(Slots), ?START_FAILURES),
    ok = weir_pool_registry:start_error(Name, {Slot, Reason}),
    Failed = State#state{failed_in_a_row = InARow + 1},
    case Failed of
        #state{phase = {opening, _}, conf = #conf{start = sync}} ->
            give_up({start_failed, Slot, Reason}, Failed);
        _ ->
            ok = report_rarely(Slot, Reason, Failed),
            Changed = change(fun(Now) -> weir_pool_change:failed(Role, Sup, Reason, Now) end, Failed),
            Size = weir_pool_slots:pool_size(Slots),
            case Role of
                Slot when Slot =< Size ->
                    spend(Changed);
                Slot ->
                    #state{conf = Conf, overflow = Overflow} = Changed,
                    {noreply, Changed#state{overflow = weir_pool_overflow:failed(now_ms(), Conf, Overflow)}};
                _ ->
                    {noreply, Changed}
            end
    end.

%% The first time, the second, the fourth, the eighth and so on.
report_rarely(Slot, Reason, #state{name = Name, failed_in_a_row = N}) when N band (N - 1) =:= 0 ->
    Report = #{weir_pool => start_failed, pool => Name, slot => Slot, reason => Reason, in_a_row => N},
    weir_pool_report:later(error, Report);
report_rarely(_Slot, _Reason, #state{}) ->
    ok.

%% A supervisor of a worker has ended. With `normal' if its worker is not to be started again. One for overflow, or for
%% a change, may have ended when its slot had just become one that is to be filled.
sup_ended(Sup, Reason, #state{slots = Slots} = State) ->
    {Role, Left} = weir_pool_slots:ended(Sup, Slots),
    Ended = change(fun(Now) -> weir_pool_change:ended(Role, Sup, Reason, Now) end, State#state{slots = Left}),
    Changed = drained(Ended),
    Size = weir_pool_slots:pool_size(Changed#state.slots),
    case Changed of
        #state{phase = {opening, [Slot | More]}} when Role =:= Slot, Reason =:= normal ->
            %% The start function returned `ignore'.
            {noreply, start_next(Changed#state{phase = {opening, More}})};
        #state{phase = {opening, _}, conf = #conf{start = sync}} when is_integer(Role) ->
            give_up({start_failed, Role, Reason}, Changed);
        #state{phase = open, slots = Now} when is_integer(Role), Role =< Size, Reason =/= normal ->
            spend(Changed#state{slots = weir_pool_slots:start(Role, true, Now)});
        _ ->
            {noreply, Changed}
    end.

%% One restart more; too many within a period, and the pool gives up.
spend(#state{conf = #conf{start = async}} = State) ->
    {noreply, State};
spend(#state{phase = {draining, _}} = State) ->
    {noreply, State};
spend(#state{conf = #conf{period = Period} = Conf, restarts = Restarts, slots = Slots} = State) ->
    Now = now_ms(),
    {Count, Times} = forget_before(Now - Period * 1000, Restarts),
    case Count < weir_pool_opts:intensity(Conf, weir_pool_slots:pool_size(Slots)) of
        true -> {noreply, State#state{restarts = {Count + 1, queue:in(Now, Times)}}};
        false -> give_up(restart_intensity, State)
    end.

forget_before(Time, {Count, Times} = Restarts) ->
    case queue:peek(Times) of
        {value, Oldest} when Oldest =< Time -> forget_before(Time, {Count - 1, queue:drop(Times)});
        _ -> Restarts
    end.

%% ---------------------------------------------------------------- polling

grow_overflow(#state{phase = open, overflow = Overflow, slots = Slots} = State) ->
    State#state{slots = weir_pool_overflow:grow(now_ms(), Overflow, Slots)};
grow_overflow(State) ->
    State.

shrink_overflow(#state{phase = open, overflow = Overflow, slots = Slots} = State) ->
    {Idle, Left} = weir_pool_overflow:idle(Overflow, Slots),
    State#state{overflow = Idle, slots = Left};
shrink_overflow(State) ->
    State.

poll(#state{holders = Holders, slots = Slots, last_poll = Last, claimed = Before} = State) ->
    Now = now_ms(),
    ok = weir_pool_terms:count(weir_pool_slots:pool(Slots), ?CLAIMED_MS, Before * (Now - Last)),
    {Claimed, NewHolders, Polled} = weir_pool_abandon:poll(Holders, Slots),
    State#state{holders = NewHolders, slots = Polled, last_poll = Now, claimed = Claimed}.

tick_later(#state{is_ticking = true} = State) ->
    State;
tick_later(State) ->
    _ = erlang:send_after(?TICK_MS, self(), tick),
    State#state{is_ticking = true}.

tick(#state{slots = Slots, callers = Callers, claimed = Claimed} = State) ->
    Pool = weir_pool_slots:pool(Slots),
    {Calls, NewCallers} = weir_pool_callers:poll(Pool, Callers),
    Ticked = State#state{callers = NewCallers},
    case Claimed + Calls =:= 0 andalso weir_pool_signals:unwatch(Pool) of
        true -> Ticked;
        false -> tick_later(Ticked)
    end.

%% ---------------------------------------------------------------- end

%% @private
-spec terminate(term(), #state{} | taken) -> ok.
terminate(_Reason, taken) ->
    ok;
terminate(_Reason, #state{name = Name, conf = Conf, slots = Slots} = State) ->
    ok = close(State),
    #pool{base = Base, queue = Queue} = Pool = weir_pool_slots:pool(Slots),
    %% So that whoever holds a claim is told that it is over.
    lists:foreach(fun({Slot, _}) -> weir_pool_word:vacate(Pool, Slot) end, weir_pool_slots:filled(Slots)),
    ok = stop_sups([Sup || {Sup, _} <- weir_pool_slots:sups(Slots)], Conf),
    %% Of workers, not of those who connected themselves: one that has outlived its supervisor, which somebody has
    %% killed.
    _ = [exit(Worker, kill) || Conf#conf.worker =/= none, {_, Worker} <- weir_pool_slots:filled(Slots)],
    true = exit(Queue, shutdown),
    try
        weir_pool_registry:unregister(Name, Base)
    catch
        %% The application is stopping, and the registry is gone.
        exit:_ -> weir_pool_registry:erase([Base])
    end.

%% Picks and claims say that there is no pool, and so does the queue to those who wait.
close(#state{name = Name, slots = Slots}) ->
    #pool{queue = Queue} = weir_pool_slots:pool(Slots),
    ok = weir_pool_terms:close(Name),
    weir_pool_queue:closed(Queue).

%% All at the same time, so that a pool takes as long to stop as its slowest worker. Whatever else comes meanwhile is
%% dropped: it would be searched for every message.
stop_sups(Sups, #conf{shutdown = Shutdown}) ->
    lists:foreach(fun(Sup) -> exit(Sup, shutdown) end, Sups),
    await_exits(maps:from_keys(Sups, stopping), deadline(Shutdown)).

deadline(infinity) -> infinity;
deadline(brutal_kill) -> now_ms() + ?GRACE_MS;
deadline(Shutdown) -> now_ms() + Shutdown + ?GRACE_MS.

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
