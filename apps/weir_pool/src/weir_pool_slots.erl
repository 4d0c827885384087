%% @doc The slots of a pool, as its manager knows and changes them.
%%
%% Not a process: the manager calls these functions with its state, so no other process writes what they write.
%%
%% The word of a slot is vacant whenever its term changes. To fill a slot, the manager writes the term and then the
%% word. To empty a slot, the manager writes the word and then the term. A claim that reads a free word therefore finds
%% the pid of the slot's worker (weir_pool_word).
%%
%% A slot has at most one *action*: what the manager does with the slot once no claim holds it. The manager performs it
%% with act/2 when the word is reserved or vacant. The action `leave' also waits for an exam of the worker that is under
%% way; `retire' and `swap' do not. A new action replaces an older one, and the caller that waits for the older one gets
%% an error.
%%
%% Each supervisor of a worker (weir_pool_slot_sup) has one *role*:
%% <ul>
%% <li>a slot's number: it supervises the worker of this slot;</li>
%% <li>`{spare, Slot}': its worker is to replace the worker of this slot;</li>
%% <li>`retired': its worker has left its slot and is about to stop;</li>
%% <li>`aborted': the supervisor stops its worker as soon as the worker's start function returns;</li>
%% <li>`killed': the manager has killed it, because that function did not return.</li>
%% </ul>
%% The role at the arrival of a supervisor's message decides how the manager handles the message. The manager ignores
%% the message of a monitor that the slot does not remember.
%%
%% If the node can have no other process, a supervisor cannot be spawned. The manager then sends itself
%% `{not_spawned, Role}'.
%% @private
-module(weir_pool_slots).

-export([start/3, role/2, ended/2, abort_start/2, abort_late/2, aborted_started/2, retire_sup/2]).
-export([alive/1, leaving/1, member_stopped/2]).
-export([fill/3, worker_down/3, clear_stale/1]).
-export([withdraw/3, keep/2, act/2, released/2, renew/3, set_keep/3]).
-export([replace/4, spare_started/3, is_spare_missing/2, no_replace/3, is_replacing/2, replace_timeout/3]).
-export([reserve/2, check/3, probe/4, examined/5, answered/3, probe_timeout/3]).
-export([entries/3, worker/2, sup/2, action/2, filled/1, missing/3]).
-export([connect/4, disconnect/2, member/2, dead/3]).

-export_type([action/0, role/0, exam/0]).

-include("weir_pool.hrl").
-include("weir_pool_state.hrl").

-type action() ::
    none
    | retire
    | swap
    | leave.
%% An action of the manager on a slot that no claim holds. `retire' stops the worker for good. `swap' puts the
%% replacement into the slot. `leave' leaves the slot without the process that has disconnected itself.

-type role() :: weir_pool:slot() | {spare, weir_pool:slot()} | retired | aborted | killed.

-type exam() ::
    none
    | {check, Monitor :: reference()}
    | {probe, Question :: reference(), Timer :: reference(), Why :: map()}.
%% Examination of the worker of a reserved slot. `check' is a health check. `probe' asks a worker whose claim was
%% abandoned whether it is idle.

%% ---------------------------------------------------------------- supervisors of workers

%% @doc Starts the supervisor of a slot that has none. The supervisor then starts a worker.
-spec start(weir_pool:slot(), weir_pool_slot_sup:keep(), #state{}) -> #state{}.
start(Slot, Keep, State) ->
    case start_sup(Slot, Slot, Keep, State) of
        {undefined, _} -> State;
        {Sup, Started} -> put_entry(Slot, (entry(Slot, Started))#slot{sup = Sup}, Started)
    end.

start_sup(Slot, Role, Keep, #state{conf = Conf, pool = #pool{name = Name}, sups = Sups} = State) ->
    try weir_pool_slot_sup:start_link(Name, Slot, Conf, Keep) of
        Sup -> {Sup, State#state{sups = Sups#{Sup => Role}}}
    catch
        error:system_limit ->
            self() ! {not_spawned, Role},
            {undefined, State}
    end.

%% @doc Returns the role of a supervisor.
-spec role(pid(), #state{}) -> role() | none.
role(Sup, #state{sups = Sups}) -> maps:get(Sup, Sups, none).

%% @doc Removes a supervisor that has ended. Kills the worker of its slot if the worker still lives.
-spec ended(pid(), #state{}) -> {role() | none, #state{}}.
ended(Sup, #state{pool = #pool{name = Name}, sups = Sups} = State) ->
    ok = weir_pool_registry:remove_sup(Name, Sup),
    Ended = State#state{sups = maps:remove(Sup, Sups)},
    case role(Sup, State) of
        Slot when is_integer(Slot) ->
            #slot{worker = Worker} = Entry = entry(Slot, State),
            _ = Worker =/= undefined andalso exit(Worker, kill),
            {Slot, put_entry(Slot, Entry#slot{sup = undefined}, Ended)};
        Role when Role =:= retired; Role =:= aborted; Role =:= killed ->
            {Role, stopping(-1, Ended)};
        Role ->
            {Role, Ended}
    end.

%% @doc Aborts a start: the supervisor stops its worker as soon as the start function returns. If the function does not
%% return within the grace, the manager kills the supervisor. The supervisor may have ended by itself.
-spec abort_start(pid(), #state{}) -> #state{}.
abort_start(Sup, State) ->
    true = exit(Sup, shutdown),
    _ = erlang:send_after(?GRACE_MS, self(), {abort_late, Sup}),
    leave_slot(Sup, aborted, State).

%% @doc Kills a supervisor whose start was aborted and whose start function has not returned.
-spec abort_late(pid(), #state{}) -> #state{}.
abort_late(Sup, State) ->
    case role(Sup, State) of
        aborted ->
            true = exit(Sup, kill),
            leave_slot(Sup, killed, State);
        _ReturnedOrEnded ->
            State
    end.

%% @doc Notes that the start function of an aborted start has returned, so the supervisor now stops its worker.
-spec aborted_started(pid(), #state{}) -> #state{}.
aborted_started(Sup, State) -> leave_slot(Sup, retired, State).

%% @doc Makes a supervisor stop its worker, once the worker has handled all messages that were sent to it.
-spec retire_sup(pid(), #state{}) -> #state{}.
retire_sup(Sup, State) ->
    ok = weir_pool_slot_sup:retire(Sup),
    leave_slot(Sup, retired, State).

leave_slot(Sup, NewRole, #state{sups = Sups} = State) ->
    Left = State#state{sups = Sups#{Sup => NewRole}},
    case role(Sup, State) of
        none -> State;
        Slot when is_integer(Slot) -> stopping(1, put_entry(Slot, (entry(Slot, Left))#slot{sup = undefined}, Left));
        {spare, _} -> stopping(1, Left);
        _HasLeftItsSlot -> Left
    end.

stopping(More, #state{pool = Pool, stopping = Stopping} = State) ->
    ok = weir_pool_signals:set_stopping(Pool, Stopping + More),
    State#state{stopping = Stopping + More}.

%% @doc Returns how many workers live or are being started. Counts the workers that have left their slots and are
%% stopping. Does not count the spares of replacements.
-spec alive(#state{}) -> non_neg_integer().
alive(#state{sups = Sups}) -> length([Role || Role <- maps:values(Sups), not is_tuple(Role)]).

%% @doc Returns how many workers still have to stop before a drain ends.
-spec leaving(#state{}) -> non_neg_integer().
leaving(#state{slots = Slots, sups = Sups, members_stopping = Members}) ->
    map_size(Sups) + map_size(Members) +
        length([retire || #slot{sup = undefined, action = retire} <- maps:values(Slots)]).

%% @doc Sets whether the supervisor of a slot starts another worker when the worker dies.
-spec set_keep(weir_pool:slot(), boolean(), #state{}) -> ok.
set_keep(Slot, Keep, State) ->
    case sup(Slot, State) of
        undefined -> ok;
        Sup -> weir_pool_slot_sup:keep(Sup, Keep)
    end.

%% ---------------------------------------------------------------- the worker in a slot

%% @doc Puts a worker into a slot, ends a claim of the predecessor, and wakes the queue. At any moment, a pick finds
%% either the predecessor or the new worker. If the slot has an action, empties the slot and performs the action
%% instead.
-spec fill(weir_pool:slot(), pid(), #state{}) -> #state{}.
fill(Slot, Pid, State) ->
    case action(Slot, State) of
        none -> put_in(Slot, Pid, State);
        %% The predecessor is dead, but the message of its monitor has not arrived yet.
        _ -> act(Slot, empty(Slot, State))
    end.

put_in(Slot, Pid, #state{pool = Pool} = State) ->
    #slot{was_filled = WasFilled} = Entry = unmonitored(entry(Slot, State)),
    _ = WasFilled andalso weir_pool_terms:count(Pool, ?RESTARTS),
    ok = weir_pool_word:vacate(Pool, Slot),
    ok = weir_pool_terms:fill(Pool, Slot, Pid),
    ok = weir_pool_word:occupy(Pool, Slot),
    ok = weir_pool_signals:wake(Pool),
    Monitor = erlang:monitor(process, Pid, [{tag, {down, Slot}}]),
    put_entry(Slot, Entry#slot{worker = Pid, monitor = Monitor, was_filled = true}, State).

%% Empties a slot, and ends a claim of its worker.
empty(Slot, #state{pool = Pool} = State) ->
    ok = weir_pool_word:vacate(Pool, Slot),
    ok = weir_pool_terms:vacate(Pool, Slot),
    put_entry(Slot, unmonitored(entry(Slot, State)), State).

%% @doc Empties the slot of a worker that died, and performs the slot's action.
%%
%% A write of a term waits until all schedulers have made a step, which takes half a millisecond when they are busy.
%% Each write waits for the one before. The manager therefore writes the term only after it has handled the messages
%% that are in its mailbox already. If the start of the successor is among them, one write serves for both workers.
-spec worker_down(weir_pool:slot(), Monitor :: reference(), #state{}) -> #state{}.
worker_down(Slot, Monitor, #state{pool = Pool, stale = Stale} = State) ->
    case entry(Slot, State) of
        #slot{monitor = Monitor, action = none} = Entry ->
            ok = weir_pool_word:vacate(Pool, Slot),
            _ = Stale =:= [] andalso (self() ! clear_stale),
            put_entry(Slot, unmonitored(Entry), State#state{stale = [Slot | Stale]});
        #slot{monitor = Monitor} ->
            act(Slot, empty(Slot, State));
        #slot{} ->
            State
    end.

%% @doc Empties the terms of dead workers that have no successor yet.
-spec clear_stale(#state{}) -> #state{}.
clear_stale(#state{stale = Stale, pool = Pool} = State) ->
    _ = [weir_pool_terms:vacate(Pool, Slot) || Slot <- Stale, worker(Slot, State) =:= undefined],
    State#state{stale = []}.

%% ---------------------------------------------------------------- processes that connect themselves

%% @doc Connects a process, and answers its call. If its predecessor is still claimed, delays the answer until that
%% claim ends. The answer is then `again', because the process may be dead by that time.
-spec connect(weir_pool:slot(), pid(), gen_server:from(), #state{}) -> #state{}.
connect(Slot, Pid, From, State) ->
    case entry(Slot, State) of
        #slot{action = leave} = Entry ->
            put_entry(Slot, Entry#slot{next = {Pid, From}}, State);
        _ ->
            Filled = fill(Slot, Pid, State),
            gen_server:reply(From, {ok, Slot}),
            Filled
    end.

%% @doc Returns the process that is connected to a slot, or that waits there for the end of its predecessor's claim.
-spec member(weir_pool:slot(), #state{}) -> pid() | undefined.
member(Slot, State) ->
    case entry(Slot, State) of
        #slot{next = {Pid, _}} -> Pid;
        #slot{worker = Worker} -> Worker
    end.

%% @doc Treats a connected process as dead. A caller has found that the process is dead, before the monitor's message
%% arrived.
-spec dead(weir_pool:slot(), pid(), #state{}) -> #state{}.
dead(Slot, Pid, State) ->
    case entry(Slot, State) of
        #slot{next = {Pid, _}} = Entry -> put_entry(Slot, Entry#slot{next = none}, State);
        #slot{worker = Pid, monitor = Monitor} -> worker_down(Slot, Monitor, State);
        #slot{} -> State
    end.

%% @doc Takes a process out of its slot. If the process is claimed, the claim stays, and no other process gets the slot
%% until the claim ends.
-spec disconnect(weir_pool:slot(), #state{}) -> #state{}.
disconnect(Slot, #state{pool = Pool} = State) ->
    ok = weir_pool_terms:vacate(Pool, Slot),
    withdraw(Slot, leave, put_entry(Slot, unmonitored(entry(Slot, State)), State)).

%% ---------------------------------------------------------------- taking slots out of use

%% @doc Takes a slot out of use, now or when its claim ends, and performs the action then.
-spec withdraw(weir_pool:slot(), retire | swap | leave, #state{}) -> #state{}.
withdraw(Slot, Action, #state{pool = Pool} = State) ->
    Cancelled =
        case Action of
            retire -> no_replace(no_slot, Slot, State);
            _ -> State
        end,
    Waiting = put_entry(Slot, (entry(Slot, Cancelled))#slot{action = Action}, Cancelled),
    case weir_pool_word:mark(Pool, Slot) of
        marked -> Waiting;
        _ReservedOrVacant -> act_unless_examined(Slot, Waiting)
    end.

%% @doc Cancels the action of a slot, and puts the slot back into use. If the slot is claimed, the claim stays.
-spec keep(weir_pool:slot(), #state{}) -> #state{}.
keep(Slot, #state{pool = Pool} = State) ->
    ok = weir_pool_word:unmark(Pool, Slot),
    act_unless_examined(Slot, put_entry(Slot, (entry(Slot, State))#slot{action = none}, State)).

act_unless_examined(Slot, State) ->
    case entry(Slot, State) of
        #slot{exam = none} -> act(Slot, State);
        %% Both actions remove the worker, whatever the check or probe finds, and let the worker finish its messages.
        %% The removal therefore does not wait for the result.
        #slot{action = Action} when Action =:= retire; Action =:= swap -> act(Slot, State);
        #slot{} -> State
    end.

%% @doc Performs the action of a slot that no claim holds. If the slot has no action and is reserved, puts the slot back
%% into use.
-spec act(weir_pool:slot(), #state{}) -> #state{}.
act(Slot, #state{pool = #pool{size = Size} = Pool} = State) ->
    case entry(Slot, State) of
        #slot{action = none} ->
            case weir_pool_word:unreserve(Pool, Slot) of
                ok ->
                    ok = weir_pool_signals:wake(Pool),
                    State#state{may_shrink = State#state.may_shrink orelse Slot > Size};
                _NotReserved ->
                    State
            end;
        #slot{action = leave, next = Next} = Entry ->
            ok = weir_pool_word:vacate(Pool, Slot),
            _ = Next =/= none andalso gen_server:reply(element(2, Next), {error, again}),
            put_entry(Slot, Entry#slot{action = none, next = none}, State);
        #slot{action = retire, worker = Worker} ->
            #state{slots = Slots} = Emptied = without_worker(Slot, Worker, empty(Slot, State)),
            Emptied#state{slots = maps:remove(Slot, Slots)};
        #slot{action = swap, replace = #replace{spare = Spare, worker = Worker} = Replace} ->
            #state{sups = Sups} = Without = without_sup(Slot, State),
            Swapped = Without#state{sups = Sups#{Spare => Slot}},
            ok = weir_pool_slot_sup:keep(Spare, true),
            Entry = (entry(Slot, Swapped))#slot{sup = Spare, action = none, replace = none},
            Filled = fill(Slot, Worker, put_entry(Slot, Entry, Swapped)),
            ok = answer(Replace, ok),
            Filled
    end.

%% A process that connected itself counts as stopping until it is idle.
without_worker(_Slot, undefined, #state{conf = #conf{worker = none}} = State) ->
    State;
without_worker(_Slot, Worker, #state{conf = #conf{worker = none}, members_stopping = Members} = State) ->
    Monitor = erlang:monitor(process, Worker, [{tag, member_down}]),
    Question = weir_pool_idle:ask(Worker, {member, Monitor}),
    State#state{members_stopping = Members#{Monitor => Question}};
without_worker(Slot, _Worker, State) ->
    without_sup(Slot, State).

%% @doc Counts a retired process that had connected itself as stopped, because the process is idle or dead.
-spec member_stopped(Monitor :: reference(), #state{}) -> #state{}.
member_stopped(Monitor, #state{members_stopping = Members} = State) ->
    true = erlang:demonitor(Monitor, [flush]),
    State#state{members_stopping = maps:remove(Monitor, Members)}.

without_sup(Slot, State) ->
    case sup(Slot, State) of
        undefined -> State;
        Sup -> retire_sup(Sup, State)
    end.

%% @doc Performs the action of a slot whose claim was released while the slot was marked. Does nothing if the slot has
%% been used again since.
-spec released(weir_pool:slot(), #state{}) -> #state{}.
released(Slot, #state{pool = Pool} = State) ->
    Word = weir_pool_word:state(weir_pool_word:read(Pool, Slot)),
    case entry(Slot, State) of
        %% The word is vacant if the releaser found the worker dead.
        #slot{exam = none} when Word =:= reserved; Word =:= vacant -> act(Slot, State);
        #slot{} -> State
    end.

%% @doc Kills a worker that is likely to be busy or broken, and starts another unless the slot is for overflow. A
%% process that connected itself only leaves the slot. If the slot has an action, performs that instead.
-spec renew(weir_pool:slot(), Why :: map(), #state{}) -> #state{}.
renew(Slot, Why, #state{pool = #pool{name = Name}} = State) ->
    case entry(Slot, State) of
        #slot{action = Action} when Action =/= none ->
            act(Slot, State);
        #slot{worker = Worker, sup = Sup} ->
            Report = Why#{weir_pool => worker_replaced, pool => Name, slot => Slot, worker => Worker},
            case Sup of
                undefined -> weir_pool_report:later(warning, Report);
                _ -> weir_pool_slot_sup:renew(Sup, Worker, Report)
            end,
            empty(Slot, State)
    end.

%% ---------------------------------------------------------------- another worker

%% @doc Starts a worker that takes the slot over as soon as no claim holds the slot. Answers the caller at that moment.
-spec replace(weir_pool:slot(), gen_server:from(), Timer :: reference() | none, #state{}) -> #state{}.
replace(Slot, From, Timer, State) ->
    {Spare, Started} = start_sup(Slot, {spare, Slot}, false, State),
    Replace = #replace{from = From, timer = Timer, spare = Spare},
    put_entry(Slot, (entry(Slot, Started))#slot{replace = Replace}, Started).

%% @doc Takes a slot out of use for the new worker that its spare supervisor has started.
-spec spare_started(weir_pool:slot(), Worker :: pid(), #state{}) -> #state{}.
spare_started(Slot, Worker, State) ->
    #slot{replace = Replace} = Entry = entry(Slot, State),
    withdraw(Slot, swap, put_entry(Slot, Entry#slot{replace = Replace#replace{worker = Worker}}, State)).

%% @doc Returns whether a replacement has no spare supervisor because none could be spawned.
-spec is_spare_missing(weir_pool:slot(), #state{}) -> boolean().
is_spare_missing(Slot, State) ->
    case entry(Slot, State) of
        #slot{replace = #replace{spare = Spare}} -> Spare =:= undefined;
        #slot{} -> false
    end.

%% @doc Cancels the replacement in a slot, if there is one. The caller of the replacement gets the reason, and the old
%% worker stays.
-spec no_replace(Reason :: term(), weir_pool:slot(), #state{}) -> #state{}.
no_replace(Reason, Slot, State) ->
    case entry(Slot, State) of
        #slot{replace = none} ->
            State;
        #slot{replace = #replace{spare = Spare, worker = Worker} = Replace} = Entry ->
            ok = answer(Replace, {error, Reason}),
            Cancelled = put_entry(Slot, Entry#slot{replace = none}, State),
            case {Spare, Worker} of
                {undefined, _} -> Cancelled;
                {_, undefined} -> abort_start(Spare, Cancelled);
                {_, _} -> keep(Slot, retire_sup(Spare, Cancelled))
            end
    end.

answer(#replace{from = From, timer = Timer}, Reply) ->
    _ = Timer =/= none andalso erlang:cancel_timer(Timer),
    gen_server:reply(From, Reply).

%% @doc Returns whether a replacement is under way in a slot.
-spec is_replacing(weir_pool:slot(), #state{}) -> boolean().
is_replacing(Slot, State) -> (entry(Slot, State))#slot.replace =/= none.

%% @doc Cancels a replacement whose time is over. Ignores the timer of an earlier replacement.
-spec replace_timeout(weir_pool:slot(), Timer :: reference(), #state{}) -> #state{}.
replace_timeout(Slot, Timer, State) ->
    case entry(Slot, State) of
        #slot{replace = #replace{timer = Timer}} -> no_replace(timeout, Slot, State);
        #slot{} -> State
    end.

%% ---------------------------------------------------------------- exams

%% @doc Reserves a slot for the manager, if the slot has a worker and is free.
-spec reserve(weir_pool:slot(), #state{}) -> boolean().
reserve(Slot, #state{pool = Pool} = State) ->
    worker(Slot, State) =/= undefined andalso weir_pool_word:reserve(Pool, Slot) =:= ok.

%% @doc Starts a task that checks the worker of a reserved slot. If the task cannot be spawned, puts the slot back into
%% use.
-spec check(weir_pool:slot(), fun((pid()) -> term()), #state{}) ->
    {{Task :: pid(), Monitor :: reference()} | none, #state{}}.
check(Slot, Fun, State) ->
    #slot{worker = Worker} = Entry = entry(Slot, State),
    case weir_pool_task:start(checked, {erlang, apply, [Fun, [Worker]]}) of
        {ok, Task, Monitor} -> {{Task, Monitor}, put_entry(Slot, Entry#slot{exam = {check, Monitor}}, State)};
        {error, system_limit} -> {none, act(Slot, State)}
    end.

%% @doc Asks the worker of a reserved slot whether it is idle. The slot stays out of use until the worker answers, or
%% the time is over.
-spec probe(weir_pool:slot(), Ms :: non_neg_integer(), Why :: map(), #state{}) -> #state{}.
probe(Slot, Ms, Why, State) ->
    #slot{worker = Worker} = Entry = entry(Slot, State),
    Question = weir_pool_idle:ask(Worker, {slot, Slot}),
    Timer = erlang:start_timer(Ms, self(), {probe, Slot}),
    put_entry(Slot, Entry#slot{exam = {probe, Question, Timer, Why}}, State).

%% @doc Puts the slot of a probed worker back into use, because the worker has answered.
-spec answered(weir_pool:slot(), Question :: reference(), #state{}) -> #state{}.
answered(Slot, Question, State) ->
    case entry(Slot, State) of
        #slot{exam = {probe, Question, Timer, _Why}} = Entry ->
            _ = erlang:cancel_timer(Timer),
            act(Slot, put_entry(Slot, Entry#slot{exam = none}, State));
        #slot{} ->
            State
    end.

%% @doc Renews a worker that has not answered in time. Ignores the timer of an earlier probe.
-spec probe_timeout(weir_pool:slot(), Timer :: reference(), #state{}) -> #state{}.
probe_timeout(Slot, Timer, State) ->
    case entry(Slot, State) of
        #slot{exam = {probe, _Question, Timer, Why}} = Entry ->
            renew(Slot, Why, put_entry(Slot, Entry#slot{exam = none}, State));
        #slot{} ->
            State
    end.

%% @doc Puts the slot of a checked worker back into use, or renews a worker that failed. Does nothing if the worker has
%% left the slot.
-spec examined(weir_pool:slot(), Monitor :: reference(), Exit :: term(), Why :: map(), #state{}) -> #state{}.
examined(Slot, Monitor, Exit, Why, #state{pool = Pool} = State) ->
    case entry(Slot, State) of
        #slot{exam = {check, Monitor}} = Entry ->
            Examined = put_entry(Slot, Entry#slot{exam = none}, State),
            case Exit of
                {done, Good} when Good =:= ok; Good =:= true ->
                    act(Slot, Examined);
                _ ->
                    ok = weir_pool_terms:count(Pool, ?CHECK_FAILURES),
                    renew(Slot, Why, Examined)
            end;
        #slot{} ->
            State
    end.

%% ---------------------------------------------------------------- reading

%% @doc Returns the slots in a range that have, had or await a worker.
-spec entries(First :: pos_integer(), Last :: non_neg_integer(), #state{}) -> [weir_pool:slot()].
entries(First, Last, #state{slots = Slots}) ->
    lists:sort([Slot || Slot <- maps:keys(Slots), Slot >= First, Slot =< Last]).

%% @doc Returns the worker of a slot, or `undefined' if the slot has none or the manager knows that the worker is dead.
-spec worker(weir_pool:slot(), #state{}) -> pid() | undefined.
worker(Slot, State) -> (entry(Slot, State))#slot.worker.

%% @doc Returns the supervisor of a slot's worker.
-spec sup(weir_pool:slot(), #state{}) -> pid() | undefined.
sup(Slot, State) -> (entry(Slot, State))#slot.sup.

%% @doc Returns the action of a slot.
-spec action(weir_pool:slot(), #state{}) -> action().
action(Slot, State) -> (entry(Slot, State))#slot.action.

%% @doc Returns all slots that have a worker, each with its worker, in the order of the slots.
-spec filled(#state{}) -> [{weir_pool:slot(), pid()}].
filled(#state{slots = Slots}) ->
    lists:sort([{Slot, Pid} || {Slot, #slot{worker = Pid}} <- maps:to_list(Slots), Pid =/= undefined]).

%% @doc Returns the slots in a range that have no supervisor.
-spec missing(First :: pos_integer(), Last :: non_neg_integer(), #state{}) -> [weir_pool:slot()].
missing(First, Last, State) -> [Slot || Slot <- lists:seq(First, max(First - 1, Last)), sup(Slot, State) =:= undefined].

entry(Slot, #state{slots = Slots}) ->
    case Slots of
        #{Slot := Entry} -> Entry;
        #{} -> #slot{}
    end.

put_entry(Slot, Entry, #state{slots = Slots} = State) -> State#state{slots = Slots#{Slot => Entry}}.

%% Removes the worker and its exam from an entry.
unmonitored(#slot{monitor = undefined} = Entry) ->
    Entry;
unmonitored(#slot{monitor = Monitor} = Entry) ->
    true = erlang:demonitor(Monitor, [flush]),
    Entry#slot{worker = undefined, monitor = undefined, exam = none}.
