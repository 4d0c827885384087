%% @doc Keeper of one pool's slots: the only process that writes them.
%%
%% Protocol. At its start it takes over the workers that there already are, starts those that are missing, opens the
%% pool, and tells the starter. Afterwards it hears: `connected' from a slot's supervisor that has a new worker; a
%% monitor's message when a worker or such a supervisor is gone; from claimers (weir_pool_claim), that a slot it waited
%% for is released, that a claim has left its worker busy, or that many wait. It is called by those who change the pool;
%% picks, claims and weir_pool:info/1 read what it writes. It waits for nobody but the registry: what takes time is done
%% by processes of its own, whose result comes as their exit reason.
%%
%% A worker's death and the start of its successor are told by two processes, in either order. A slot therefore
%% remembers the monitor of the worker it holds, and the message of any other monitor is void: the death of a
%% predecessor never empties a slot that is filled again. Messages carry the pool's id, because their sender may
%% have found the keeper of a namesake.
%%
%% Every second, and when weir_pool_queue tells that somebody waits for long, it looks for claims whose holder is dead
%% (weir_pool_sweep). That is the only way in which a killed claimer's worker comes back, so that claims cost no
%% monitor.
%%
%% Crashes. Killed, or crashed, it leaves all terms and words as they are: the pool is picked from as before, claims
%% hold, a worker that dies meanwhile is handed out until the next keeper is up, and that one learns from the seats
%% table who is alive (weir_pool_adopt). What it was about to do (a resize, a replacement, a drain) is forgotten, and
%% its caller gets `pool_down'; of slots that it held, the next one finds out whether their workers are idle. Stopped,
%% it first closes the pool and removes its slot terms; workers are not touched.
%%
%% When the application weir_pool is stopped under a pool that belongs to another supervision tree, the keeper stops,
%% and the pool with it: nobody else is left to clean up.
-module(weir_pool_keeper).
-behaviour(gen_server).

-export([start_link/1]).
-export([call/2]).
-export([connected/4, start_failed/3]).
-export([released/2, abandon/3, pressed/1]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2, format_status/1]).

-export_type([change_error/0]).

-include("weir_pool.hrl").

-type change_error() :: no_pool | {pool_down, Reason :: term()}.
%% `pool_down': the keeper was killed with the change under way.

%% How often claims of dead claimers and idle workers are looked for, milliseconds. When somebody waits, claims are
%% looked for at once, but the more slots there are the less often: a sweep takes up to 0.2 us for each.
-define(SWEEP_MS, 1000).
-define(MIN_SWEEP_MS, 10).
-define(SLOTS_SWEPT_IN_A_MS, 100).

%% How long a call waits for the next keeper: pauses, and milliseconds of each. The supervisor needs far less than one
%% pause.
-define(PAUSES, 1000).
-define(PAUSE, 1).

-record(state, {
    boot :: #boot{},
    slots :: weir_pool_slots:slots(),
    %% The slots whose workers are still to be started before the pool is opened, the first of them now; open; or being
    %% drained, when nothing is started any more.
    phase = open :: {opening, [weir_pool:slot()]} | open | draining,
    budget :: weir_pool_budget:budget(),
    %% Names of processes that connect themselves.
    names = #{} :: #{term() => weir_pool:slot()},
    sweep :: weir_pool_sweep:sweep(),
    last_sweep = 0 :: integer(),
    change = none :: none | weir_pool_change:change(),
    %% The pool's supervisor.
    sup :: pid()
}).

%% @doc Starts the keeper of a pool whose workers' supervisor is up.
-spec start_link(#boot{}) -> {ok, pid()} | {error, term()}.
start_link(Boot) ->
    case gen_server:start_link(?MODULE, Boot, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Asks the keeper of a pool for a change, and waits for it. One that has just been killed is waited for, up to a
%% second.
-spec call(weir_pool:name(), Request :: term()) -> term() | {error, change_error()}.
call(Name, Request) -> call(Name, Request, ?PAUSES).

call(Name, Request, Pauses) ->
    case weir_pool_registry:lookup(Name) of
        {ok, #row{keeper = Keeper, id = Id}} when is_pid(Keeper) ->
            try
                gen_server:call(Keeper, Request, infinity)
            catch
                exit:{noproc, _} -> call_next(Name, Request, Pauses, Id);
                exit:{Reason, _} when Reason =:= normal; Reason =:= shutdown -> {error, no_pool};
                exit:{{shutdown, _}, _} -> {error, no_pool};
                exit:{Reason, _} -> {error, {pool_down, Reason}}
            end;
        _ ->
            {error, no_pool}
    end.

%% If the pool is closed, there may be no next one.
call_next(Name, Request, Pauses, Id) ->
    case Pauses > 0 andalso weir_pool_terms:pool(Name, Id) =/= undefined of
        true ->
            receive
            after ?PAUSE -> call(Name, Request, Pauses - 1)
            end;
        false ->
            {error, no_pool}
    end.

%% @doc The calling supervisor has a new worker for a slot. One message, no reply; none to a keeper that is not there.
-spec connected(weir_pool:name(), Id :: pos_integer(), weir_pool:slot(), pid()) -> ok.
connected(Name, Id, Slot, Pid) -> tell(Name, {connected, Id, Slot, self(), Pid}).

%% @doc The calling supervisor could not start a worker. One message, no reply; none to a keeper that is not there.
-spec start_failed(weir_pool:name(), Id :: pos_integer(), weir_pool:slot()) -> ok.
start_failed(Name, Id, Slot) -> tell(Name, {start_failed, Id, Slot, self()}).

%% @doc A slot that the keeper waited for was released, and is held. A message that finds no keeper is not missed: the
%% next one looks at what is held.
-spec released(#pool{}, weir_pool:slot()) -> ok.
released(#pool{name = Name} = Pool, Slot) -> tell(Name, {released, weir_pool_terms:id(Pool), Slot}).

%% @doc A claim has been disowned, because its worker is likely to be busy. A message that finds no keeper is not
%% missed: the next one finds the claim like one of a dead holder.
-spec abandon(#pool{}, weir_pool:slot(), weir_pool_word:word()) -> ok.
abandon(#pool{name = Name} = Pool, Slot, Word) -> tell(Name, {abandon, weir_pool_terms:id(Pool), Slot, Word}).

%% @doc Somebody waits for long, or has found no worker where more could be started.
-spec pressed(#pool{}) -> ok.
pressed(#pool{name = Name} = Pool) -> tell(Name, {pressed, weir_pool_terms:id(Pool)}).

tell(Name, Message) ->
    case weir_pool_registry:keeper(Name) of
        undefined -> ok;
        Keeper -> gen_server:cast(Keeper, Message)
    end.

%% ---------------------------------------------------------------- start

%% @private
-spec init(#boot{}) -> {ok, #state{}, {continue, {start, Last}}} | {stop, {shutdown, gone}} when
    Last :: 0 | weir_pool:size().
init(#boot{name = Name, id = Id, conf = Conf, seats = Seats} = Boot) ->
    %% For terminate/2.
    process_flag(trap_exit, true),
    %% It has little to do, but picks get dead workers until it is done. Behind busy pickers it would have to wait for
    %% its turn before each writing of a term, on top of the wait that the writing itself is.
    process_flag(priority, high),
    %% From here on `connected' messages come to this process; the seats are read only afterwards.
    case weir_pool_registry:join(Name, Id, keeper) of
        {ok, #row{sup = Sup, workers = Workers, size = Size, last_slot = Last}} when is_pid(Workers) ->
            _ = erlang:monitor(process, weir_pool_sup, [{tag, application_down}]),
            Pool =
                case weir_pool_terms:pool(Name, Id) of
                    undefined -> weir_pool_terms:new(Name, Id, Conf#conf{size = Size});
                    Open -> Open
                end,
            State = #state{
                boot = Boot,
                slots = weir_pool_slots:new(Boot, Pool, Workers),
                names = maps:from_list(weir_pool_seats:names(Seats)),
                budget = weir_pool_budget:new(weir_pool_opts:intensity(Conf#conf{size = Size}), Conf#conf.period),
                sweep = weir_pool_sweep:new(Conf),
                sup = Sup
            },
            {ok, State, {continue, {start, Last}}};
        _ ->
            {stop, {shutdown, gone}}
    end.

%% @private
-spec handle_continue({start, Last :: 0 | weir_pool:size()}, #state{}) ->
    {noreply, #state{}} | {stop, {shutdown, term()}, #state{}}.
handle_continue({start, Last}, #state{boot = #boot{name = Name, id = Id, conf = Conf}, slots = Slots} = State) ->
    {Held, Adopted} = weir_pool_adopt:adopt(Last, Slots),
    Looking = lists:foldl(fun weir_pool_sweep:left_held/2, Adopted, Held),
    Start = State#state{slots = Looking},
    %% A pool that was opened by a former keeper stays open, whoever is missing.
    case Conf of
        #conf{worker = {_, _, _}, start = sync} ->
            case weir_pool_terms:pool(Name, Id) of
                undefined ->
                    Size = weir_pool_slots:pool_size(Looking),
                    start_next(weir_pool_starts:missing(1, Size, Looking), Start);
                _Open -> open(Start)
            end;
        #conf{} ->
            open(Start)
    end.

%% The workers of a pool that is to be opened are started in turn.
start_next([], State) ->
    open(State);
start_next([Slot | _] = Missing, #state{slots = Slots} = State) ->
    {noreply, State#state{phase = {opening, Missing}, slots = weir_pool_starts:start(Slot, open, Slots)}}.

open(#state{boot = #boot{name = Name, id = Id}, slots = Slots, sweep = Sweep} = State) ->
    case weir_pool_registry:open(Name, Id, weir_pool_slots:pool(Slots)) of
        ok ->
            tell_starter(ok, State),
            _ = erlang:send_after(?SWEEP_MS, self(), sweep),
            ok = weir_pool_sweep:begin_checks(Sweep),
            {noreply, State#state{phase = open, slots = weir_pool_starts:start_missing(Slots)}};
        {error, gone} ->
            give_up(gone, State)
    end.

%% Reaches nobody if the starter has been told before.
tell_starter(Result, #state{boot = #boot{starter = Starter}}) ->
    Starter ! {Starter, Result},
    ok.

give_up(Reason, State) ->
    tell_starter({error, {pool_down, Reason}}, State),
    {stop, {shutdown, Reason}, State}.

%% ---------------------------------------------------------------- messages

%% @private
-spec handle_call(Request :: term(), gen_server:from(), #state{}) ->
    {reply, term(), #state{}} | {noreply, #state{}} | {stop, {shutdown, gone}, #state{}}.
handle_call(_Request, _From, #state{phase = Phase} = State) when Phase =/= open ->
    {reply, {error, no_pool}, State};
handle_call({resize, _Size}, _From, #state{change = Change} = State) when Change =/= none ->
    {reply, {error, resizing}, State};
handle_call({resize, Size}, From, #state{names = Names, slots = Slots} = State) ->
    case weir_pool_change:resize(Size, lists:max([0 | maps:values(Names)]), From, Slots) of
        {done, Resized} -> {reply, ok, resized(State#state{slots = Resized})};
        {error, gone} -> {stop, {shutdown, gone}, State};
        {error, Reason} -> {reply, {error, Reason}, State};
        {Change, Resizing} -> {noreply, State#state{change = Change, slots = Resizing}}
    end;
handle_call({replace, _Slot}, _From, #state{boot = #boot{conf = #conf{worker = none}}} = State) ->
    {reply, {error, no_workers}, State};
handle_call({replace, Slot}, From, #state{slots = Slots} = State) ->
    case is_integer(Slot) andalso Slot >= 1 andalso Slot =< weir_pool_slots:pool_size(Slots) of
        true ->
            case weir_pool_starts:is_changing(Slot, Slots) of
                true -> {reply, {error, replacing}, State};
                false -> {noreply, State#state{slots = weir_pool_starts:start(Slot, {replace, From}, Slots)}}
            end;
        false ->
            {reply, {error, no_slot}, State}
    end;
handle_call({drain, Timeout}, From, #state{boot = #boot{name = Name, id = Id}, slots = Slots} = State) ->
    close(Name, Id),
    ok = weir_pool_change:cancel(no_pool, State#state.change),
    {Change, Drained} = weir_pool_change:drain(Timeout, From, Slots),
    {noreply, State#state{phase = draining, change = Change, slots = Drained}};
handle_call({member, Request}, _From, #state{names = Names, slots = Slots} = State) ->
    case weir_pool_members:handle(Request, Names, Slots) of
        {grow, Size} ->
            case weir_pool_change:publish(Size, Slots) of
                {ok, Grown} -> member(weir_pool_members:handle(Request, Names, Grown), State);
                {error, gone} -> {stop, {shutdown, gone}, State}
            end;
        Handled ->
            member(Handled, State)
    end;
handle_call(Request, _From, State) ->
    {reply, {error, {bad_call, Request}}, State}.

member({Reply, Names, Slots}, State) -> {reply, Reply, State#state{names = Names, slots = Slots}}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}} | {stop, {shutdown, term()}, #state{}}.
handle_cast({connected, Id, Slot, Sup, Pid}, #state{boot = #boot{id = Id}, slots = Slots} = State) ->
    case weir_pool_slots:connected(Slot, Sup, Pid, Slots) of
        {ok, New} -> {noreply, State#state{slots = New}};
        {restarted, New} -> spend(State#state{slots = New});
        void -> {noreply, State}
    end;
handle_cast({start_failed, Id, Slot, Sup}, #state{boot = #boot{id = Id}, slots = Slots} = State) ->
    ok = weir_pool_terms:count(weir_pool_slots:pool(Slots), ?START_FAILURES),
    case weir_pool_slots:is_sup(Slot, Sup, Slots) of
        true -> spend(State);
        %% A first start, or one for a replacement, whose end a starter tells.
        false -> {noreply, State}
    end;
handle_cast({released, Id, Slot}, #state{boot = #boot{id = Id}, slots = Slots} = State) ->
    {noreply, State#state{slots = weir_pool_slots:released(Slot, Slots)}};
handle_cast({abandon, Id, Slot, Word}, #state{boot = #boot{id = Id}, slots = Slots} = State) ->
    {noreply, State#state{slots = weir_pool_sweep:abandon(Slot, Word, Slots)}};
handle_cast({pressed, Id}, #state{boot = #boot{id = Id}, slots = Slots, phase = open, last_sweep = Last} = State) ->
    #pool{limit = Limit} = weir_pool_slots:pool(Slots),
    Swept = #state{slots = Left} =
        case now_ms() - Last >= max(?MIN_SWEEP_MS, Limit div ?SLOTS_SWEPT_IN_A_MS) of
            true -> sweep_claims(State);
            false -> State
        end,
    {noreply, Swept#state{slots = weir_pool_sweep:grow(Left)}};
handle_cast(_FromAnotherPool, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, {shutdown, term()}, #state{}}.
handle_info({{down, Slot}, Monitor, process, _Pid, _Reason}, #state{slots = Slots} = State) ->
    case weir_pool_slots:worker_down(Slot, Monitor, Slots) of
        {ok, New} -> {noreply, tend(Slot, State#state{slots = New})};
        {restarted, New} -> spend(State#state{slots = New});
        void -> {noreply, State}
    end;
handle_info({{sup_down, Slot}, Monitor, process, _Sup, Reason}, #state{slots = Slots, boot = Boot} = State) ->
    case weir_pool_slots:sup_down(Slot, Monitor, Reason, Slots) of
        %% It ended by itself, because its worker could not be kept alive.
        {ok, New} when Reason =:= shutdown, Boot#boot.conf#conf.start =:= sync ->
            give_up(restart_intensity, State#state{slots = New});
        {ok, New} ->
            {noreply, tend(Slot, State#state{slots = New})};
        {spare, New} ->
            {noreply, State#state{slots = New}};
        void ->
            {noreply, State}
    end;
handle_info({{started, Slot, Purpose, Start}, _Monitor, process, _Starter, {done, Result}}, State) ->
    started(Slot, Purpose, Start, Result, State);
handle_info({{started, Slot, Purpose, Start}, _Monitor, process, _Starter, Killed}, #state{slots = Slots} = State) ->
    ok = weir_pool_slot_sup:catch_up(weir_pool_slots:workers_sup(Slots), {lost, Slot, Purpose, Start, Killed}),
    {noreply, State};
handle_info({{lost, Slot, Purpose, Start, Killed}, _Monitor, process, _Pid, _Exit}, #state{boot = Boot} = State) ->
    ok = weir_pool_slot_sup:drain_started(Start, Boot),
    started(Slot, Purpose, Start, {error, Killed}, State);
handle_info({{retired, _Sup}, _Monitor, process, _Pid, {done, ok}}, State) ->
    {noreply, State};
handle_info({{retired, Sup}, _Monitor, process, _Pid, _Killed}, #state{boot = Boot} = State) ->
    ok = weir_pool_slot_sup:drain(Sup, Boot),
    {noreply, State};
handle_info({timeout, Timer, {start, Slot}}, #state{slots = Slots, phase = Phase} = State) when Phase =/= draining ->
    {noreply, State#state{slots = weir_pool_starts:due(Slot, Timer, Slots)}};
handle_info(sweep, State) ->
    _ = erlang:send_after(?SWEEP_MS, self(), sweep),
    {noreply, sweep(State)};
handle_info(check_round, #state{slots = Slots, sweep = Sweep, phase = open} = State) ->
    {noreply, swept(weir_pool_sweep:check_round(Slots, Sweep), State)};
handle_info({checked, Monitor, process, _Pid, Exit}, #state{slots = Slots, sweep = Sweep} = State) ->
    {noreply, swept(weir_pool_sweep:checked(Monitor, Exit, Slots, Sweep), State)};
handle_info({check_overdue, Checker}, #state{sweep = Sweep} = State) ->
    ok = weir_pool_sweep:overdue(Checker, Sweep),
    {noreply, State};
handle_info({{probed, Slot}, Monitor, process, _Pid, Exit}, #state{slots = Slots} = State) ->
    {noreply, State#state{slots = weir_pool_sweep:probed(Slot, Monitor, Exit, Slots)}};
handle_info({{drained, Which}, _Monitor, process, _Pid, _Exit}, #state{phase = draining, change = Change} = State) ->
    {noreply, State#state{change = weir_pool_change:drained(Which, Change)}};
handle_info(drain_timeout, #state{phase = draining, change = Change} = State) ->
    {noreply, State#state{change = weir_pool_change:drain_timeout(Change)}};
handle_info({application_down, _Monitor, process, _Sup, _Reason}, State) ->
    {stop, {shutdown, application_down}, State};
handle_info(_Stray, State) ->
    {noreply, State}.

%% @private
-spec format_status(gen_server:format_status()) -> gen_server:format_status().
format_status(Status) -> maps:map(fun shown/2, Status).

shown(state, #state{boot = #boot{name = Name}, slots = Slots, phase = Phase, names = Names, change = Change}) ->
    #pool{size = Size, limit = Limit} = weir_pool_slots:pool(Slots),
    Live = length(weir_pool_slots:filled(Slots)),
    Shown = #{pool => Name, phase => Phase, size => Size, limit => Limit, live => Live, change => Change},
    Shown#{names => map_size(Names)};
shown(_, Value) ->
    Value.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(Reason, #state{boot = #boot{name = Name, id = Id}, slots = Slots, sup = Sup}) ->
    %% There is no next keeper when the supervisor is dead. The registry may have cleaned up before this process has
    %% written the last of its terms.
    case is_stop(Reason) orelse not is_process_alive(Sup) of
        true ->
            close(Name, Id),
            #pool{limit = Limit} = Pool = weir_pool_slots:pool(Slots),
            %% So that whoever holds a claim is told that it is over.
            lists:foreach(fun({Slot, _}) -> weir_pool_word:vacate(Pool, Slot) end, weir_pool_slots:filled(Slots)),
            weir_pool_terms:erase_slots(Id, Limit);
        false ->
            %% It has crashed. With new words, others could claim workers that are claimed.
            ok
    end.

is_stop(normal) -> true;
is_stop(shutdown) -> true;
is_stop({shutdown, _}) -> true;
is_stop(_Crash) -> false.

%% Without a registry nobody can take the name meanwhile, and the main term is this process's to remove.
close(Name, Id) ->
    try weir_pool_registry:close(Name, Id) of
        _ -> ok
    catch
        exit:_ ->
            case weir_pool_terms:pool(Name, Id) of
                undefined -> ok;
                _Open -> weir_pool_terms:close(Name)
            end
    end,
    %% Those who wait. A namesake may have the name by now.
    case weir_pool_registry:lookup(Name) of
        {ok, #row{id = Id, queue = Queue}} when is_pid(Queue) -> weir_pool_queue:closed(Queue);
        _ -> ok
    end.

%% ---------------------------------------------------------------- starts and restarts

%% A start that nobody waits for any more was for a slot that the pool has no more.
started(Slot, Purpose, Start, Result, #state{slots = Slots, phase = Phase} = State) ->
    case weir_pool_starts:ended(Slot, Start, Slots) of
        {ok, Ended} when Phase =/= draining -> started(Purpose, Slot, Result, State#state{slots = Ended});
        {ok, Ended} -> {noreply, unwanted(Purpose, Result, no_pool, State#state{slots = Ended})};
        void -> {noreply, unwanted(Purpose, Result, no_slot, State)}
    end.

started(open, Slot, {ok, Sup}, #state{slots = Slots, phase = {opening, [Slot | Missing]}} = State) ->
    start_next(Missing, State#state{slots = weir_pool_slots:put_sup(Slot, Sup, Slots)});
started(open, Slot, {error, Reason}, State) ->
    tell_starter({error, {start_failed, Slot, Reason}}, State),
    {stop, {shutdown, {start_failed, Slot, Reason}}, State};
started(fill, Slot, {ok, Sup}, #state{slots = Slots} = State) ->
    {noreply, State#state{slots = weir_pool_slots:put_sup(Slot, Sup, Slots)}};
started(fill, Slot, {error, _Reason}, #state{slots = Slots} = State) ->
    Later = State#state{slots = weir_pool_starts:failed(Slot, Slots)},
    %% Nobody needs a worker for overflow.
    case Slot =< weir_pool_slots:pool_size(Slots) of
        true -> spend(Later);
        false -> {noreply, Later}
    end;
started(resize, Slot, Result, #state{slots = Slots, change = Resize} = State) ->
    case weir_pool_change:started(Slot, Result, Resize, Slots) of
        {error, gone} -> {stop, {shutdown, gone}, State};
        {none, Resized} -> {noreply, resized(State#state{change = none, slots = Resized})};
        {Change, Resizing} -> {noreply, State#state{change = Change, slots = Resizing}}
    end;
started({replace, From} = Purpose, Slot, {ok, Sup} = Started, #state{slots = Slots} = State) ->
    case weir_pool_seats:worker(weir_pool_slots:seats(Slots), Sup) of
        undefined ->
            {noreply, tend(Slot, unwanted(Purpose, Started, {start_failed, Slot, ignore}, State))};
        _Worker ->
            {noreply, State#state{slots = weir_pool_slots:take_out(Slot, {swap, Sup, From}, Slots)}}
    end;
started({replace, _} = Purpose, Slot, {error, Reason} = Error, State) ->
    {noreply, tend(Slot, unwanted(Purpose, Error, {start_failed, Slot, Reason}, State))}.

%% Nothing comes of the start.
unwanted(Purpose, Result, Why, #state{boot = Boot} = State) ->
    case Result of
        {ok, Sup} -> ok = weir_pool_slot_sup:drain(Sup, Boot);
        {error, _} -> ok
    end,
    case Purpose of
        {replace, From} -> gen_server:reply(From, {error, Why});
        _ -> ok
    end,
    State.

tend(_Slot, #state{phase = draining} = State) -> State;
tend(Slot, #state{slots = Slots} = State) -> State#state{slots = weir_pool_starts:tend(Slot, Slots)}.

spend(#state{boot = #boot{conf = #conf{start = async}}} = State) ->
    {noreply, State};
spend(#state{budget = Budget} = State) ->
    case weir_pool_budget:spend(now_ms(), Budget) of
        {ok, Left} -> {noreply, State#state{budget = Left}};
        exceeded -> give_up(restart_intensity, State)
    end.

%% The intensity may depend on the number of slots.
resized(#state{boot = #boot{conf = Conf}, slots = Slots, budget = Budget} = State) ->
    Intensity = weir_pool_opts:intensity(Conf#conf{size = weir_pool_slots:pool_size(Slots)}),
    State#state{budget = weir_pool_budget:set_intensity(Intensity, Budget)}.

%% ---------------------------------------------------------------- claims, idle workers

sweep(#state{slots = Slots, phase = Phase, change = Change} = State) ->
    ok = weir_pool_load:sweep(weir_pool_slots:pool(Slots)),
    Swept = #state{slots = Left, sweep = Sweep} = sweep_claims(State),
    case {Phase, Change} of
        {open, none} -> swept(weir_pool_sweep:idle_overflow(now_ms(), Left, Sweep), Swept);
        %% A pool that is to grow may be about to need them.
        _ -> Swept
    end.

sweep_claims(#state{slots = Slots} = State) ->
    State#state{last_sweep = now_ms(), slots = weir_pool_sweep:dead_claims(Slots)}.

swept({Slots, Sweep}, State) -> State#state{slots = Slots, sweep = Sweep}.

now_ms() -> erlang:monotonic_time(millisecond).
