%% @doc What a manager knows of its slots, and what it does with them.
%%
%% Not a process: the manager holds the value and calls these functions, so it is the only process in which they write.
%%
%% A slot's word is vacant whenever its term is being changed: it is filled in the order term, word, and emptied in the
%% order word, term. A claim that sees a free word thus finds the pid that belongs to it; weir_pool_word says why that
%% suffices.
%%
%% What waits for a slot to be nobody's is its `action'. It is carried out when the word is reserved or vacant and no
%% task examines the worker; whoever makes the word so, or has examined it, sees to that by act/2. There is one at most:
%% another takes its place, and whoever waits for the first is told.
%%
%% Every supervisor of a worker (weir_pool_slot_sup) has a role: it is that of a slot, a spare that is to take a slot
%% over; or in no slot any more, and about to end: retired, or killed in the middle of a start. Messages of one that has
%% another role than the message is for are void, and so are those of monitors that are not the slot's.
%% @private
-module(weir_pool_slots).

-export([new/3, conf/1, pool/1, pool_size/1, set_pool/2]).
-export([start/3, role/2, ended/2, stop_start/2, retire_sup/2, sups/1]).
-export([fill/3, worker_down/3, clear_stale/1]).
-export([take_out/3, keep/2, act/2, released/2, renew/3, set_keep/3]).
-export([replace/4, spare_started/3, no_replace/3, is_replacing/2, replace_timeout/3]).
-export([reserve/2, examine/4, examined/5]).
-export([worker/2, sup/2, action/2, filled/1, in_use/1, leaving/1, missing/3]).
-export([connect/4, disconnect/2, member/2, dead/3]).

-export_type([slots/0, action/0, role/0]).

-include("weir_pool.hrl").

-type action() ::
    none
    | retire
    | swap
    | leave.
%% What is done with a slot when it is nobody's: stop its worker for good; put the replacement in, and say so; leave it
%% without the process that has disconnected itself.

-type role() :: weir_pool:slot() | {spare, weir_pool:slot()} | retired | killed.

%% Another worker that is to take the slot over, and who asked for it.
-record(replace, {
    from :: gen_server:from(),
    timer :: reference() | none,
    spare :: pid(),
    %% As soon as the spare supervisor has one.
    worker :: pid() | undefined
}).

-record(slot, {
    %% None for processes that connected themselves.
    sup :: pid() | undefined,
    worker :: pid() | undefined,
    monitor :: reference() | undefined,
    %% Whether it ever was: filling it is then a restart.
    filled = false :: boolean(),
    %% The monitor of a task that examines the worker, while the word is reserved for that.
    task = none :: none | reference(),
    action = none :: action(),
    replace = none :: none | #replace{},
    %% A process that is to ask again when the claim of its predecessor has ended.
    next = none :: none | {pid(), gen_server:from()}
}).

-record(slots, {
    name :: weir_pool:name(),
    conf :: #conf{},
    pool :: #pool{},
    map = #{} :: #{weir_pool:slot() => #slot{}},
    sups = #{} :: #{pid() => role()},
    %% Those whose worker has died, and whose term still says so.
    stale = [] :: [weir_pool:slot()]
}).

-opaque slots() :: #slots{}.

%% @doc No slots so far.
-spec new(weir_pool:name(), #conf{}, #pool{}) -> slots().
new(Name, Conf, Pool) -> #slots{name = Name, conf = Conf, pool = Pool}.

%% @doc The pool's options.
-spec conf(slots()) -> #conf{}.
conf(#slots{conf = Conf}) -> Conf.

%% @doc The pool's shape, as the manager has published it or is about to.
-spec pool(slots()) -> #pool{}.
pool(#slots{pool = Pool}) -> Pool.

%% @doc How many slots are picked from.
-spec pool_size(slots()) -> 0 | weir_pool:size().
pool_size(#slots{pool = #pool{size = Size}}) -> Size.

%% @doc Goes on with another shape.
-spec set_pool(#pool{}, slots()) -> slots().
set_pool(Pool, Slots) -> Slots#slots{pool = Pool}.

%% ---------------------------------------------------------------- supervisors of workers

%% @doc Gives a slot a supervisor, which starts a worker. Not for a slot that has one.
-spec start(weir_pool:slot(), weir_pool_slot_sup:keep(), slots()) -> slots().
start(Slot, Keep, Slots) ->
    {Sup, Started} = start_sup(Slot, Slot, Keep, Slots),
    put_entry(Slot, (entry(Slot, Started))#slot{sup = Sup}, Started).

start_sup(Slot, Role, Keep, #slots{name = Name, conf = Conf, sups = Sups} = Slots) ->
    Sup = weir_pool_slot_sup:start_link(Name, Slot, Conf, Keep),
    {Sup, Slots#slots{sups = Sups#{Sup => Role}}}.

%% @doc What a supervisor is there for.
-spec role(pid(), slots()) -> role() | none.
role(Sup, #slots{sups = Sups}) -> maps:get(Sup, Sups, none).

%% @doc A supervisor has ended. A worker that outlives it does not for long.
-spec ended(pid(), slots()) -> {role() | none, slots()}.
ended(Sup, #slots{sups = Sups} = Slots) ->
    Left = Slots#slots{sups = maps:remove(Sup, Sups)},
    case role(Sup, Slots) of
        Slot when is_integer(Slot) ->
            #slot{worker = Worker} = Entry = entry(Slot, Slots),
            _ = Worker =/= undefined andalso exit(Worker, kill),
            {Slot, put_entry(Slot, Entry#slot{sup = undefined}, Left)};
        Role ->
            {Role, Left}
    end.

%% @doc A start that does not end is ended, with its supervisor, which may have ended by itself.
-spec stop_start(pid(), slots()) -> slots().
stop_start(Sup, Slots) ->
    true = exit(Sup, kill),
    case role(Sup, Slots) of
        none ->
            Slots;
        _ ->
            #slots{sups = Sups} = Ended = retire_role(Sup, Slots),
            Ended#slots{sups = Sups#{Sup => killed}}
    end.

%% @doc A supervisor is in no slot any more, and ends when its worker has handled what was sent to it.
-spec retire_sup(pid(), slots()) -> slots().
retire_sup(Sup, Slots) ->
    ok = weir_pool_slot_sup:retire(Sup),
    case role(Sup, Slots) of
        none -> Slots;
        _ -> retire_role(Sup, Slots)
    end.

retire_role(Sup, #slots{sups = Sups} = Slots) ->
    Retired = Slots#slots{sups = Sups#{Sup => retired}},
    case role(Sup, Slots) of
        Slot when is_integer(Slot) -> put_entry(Slot, (entry(Slot, Retired))#slot{sup = undefined}, Retired);
        _ -> Retired
    end.

%% @doc All supervisors, with their slots.
-spec sups(slots()) -> [{pid(), role()}].
sups(#slots{sups = Sups}) -> maps:to_list(Sups).

%% @doc Whether the worker of a slot is followed by another when it dies.
-spec set_keep(weir_pool:slot(), boolean(), slots()) -> ok.
set_keep(Slot, Keep, Slots) ->
    case entry(Slot, Slots) of
        #slot{sup = undefined} -> ok;
        #slot{sup = Sup} -> weir_pool_slot_sup:keep(Sup, Keep)
    end.

%% ---------------------------------------------------------------- who is in a slot

%% @doc Puts a worker in a slot, whoever is in it; a pick finds the one or the other. Whoever had claimed the
%% predecessor has nothing any more. Those who wait for a worker are told.
-spec fill(weir_pool:slot(), pid(), slots()) -> slots().
fill(Slot, Pid, Slots) ->
    case entry(Slot, Slots) of
        #slot{action = none} -> put_in(Slot, Pid, Slots);
        %% It was waiting for the predecessor to be nobody's, of whose death the monitor has not told yet.
        #slot{} -> act(Slot, empty(Slot, Slots))
    end.

put_in(Slot, Pid, #slots{pool = Pool} = Slots) ->
    #slot{filled = Filled} = Entry = unmonitored(entry(Slot, Slots)),
    _ = Filled andalso weir_pool_terms:count(Pool, ?RESTARTS),
    ok = weir_pool_word:vacate(Pool, Slot),
    ok = weir_pool_terms:fill(Pool, Slot, Pid),
    ok = weir_pool_word:occupy(Pool, Slot),
    ok = weir_pool_signals:wake(Pool),
    put_entry(Slot, monitored(Slot, Pid, Entry), Slots).

%% Leaves a slot without a worker. Whoever has claimed it has nothing any more.
empty(Slot, #slots{pool = Pool} = Slots) ->
    ok = weir_pool_word:vacate(Pool, Slot),
    ok = weir_pool_terms:vacate(Pool, Slot),
    put_entry(Slot, unmonitored(entry(Slot, Slots)), Slots).

%% @doc A worker's monitor tells that it is down; that of one that was in its slot no more is void. What was waiting for
%% the end of its claim is done now.
%%
%% Every writing of a slot's term waits until all schedulers have got on, half a millisecond when they are busy, and one
%% waits for the other. The term is therefore left as it is until the manager has read the messages that have come
%% meanwhile: the successor is often among them, and is then the only one that has to be written.
-spec worker_down(weir_pool:slot(), Monitor :: reference(), slots()) -> slots().
worker_down(Slot, Monitor, #slots{pool = Pool, stale = Stale} = Slots) ->
    case entry(Slot, Slots) of
        #slot{monitor = Monitor, action = none} = Entry ->
            ok = weir_pool_word:vacate(Pool, Slot),
            _ = Stale =:= [] andalso (self() ! clear_stale),
            put_entry(Slot, unmonitored(Entry), Slots#slots{stale = [Slot | Stale]});
        #slot{monitor = Monitor} ->
            act(Slot, empty(Slot, Slots));
        #slot{} ->
            Slots
    end.

%% @doc Empties the terms of the workers that have died and have no successor yet.
-spec clear_stale(slots()) -> slots().
clear_stale(#slots{stale = Stale, pool = Pool} = Slots) ->
    _ = [weir_pool_terms:vacate(Pool, Slot) || Slot <- Stale, worker(Slot, Slots) =:= undefined],
    Slots#slots{stale = []}.

%% ---------------------------------------------------------------- processes that connect themselves

%% @doc Connects a process. If the claim of its predecessor has not ended, it is told to ask again when it has: it may
%% be dead by then.
-spec connect(weir_pool:slot(), pid(), gen_server:from(), slots()) -> slots().
connect(Slot, Pid, From, Slots) ->
    case entry(Slot, Slots) of
        #slot{action = leave} = Entry ->
            put_entry(Slot, Entry#slot{next = {Pid, From}}, Slots);
        _ ->
            Filled = fill(Slot, Pid, Slots),
            gen_server:reply(From, {ok, Slot}),
            Filled
    end.

%% @doc Who is connected, or is to be when the claim of its predecessor has ended.
-spec member(weir_pool:slot(), slots()) -> pid() | undefined.
member(Slot, Slots) ->
    case entry(Slot, Slots) of
        #slot{next = {Pid, _}} -> Pid;
        #slot{worker = Worker} -> Worker
    end.

%% @doc Somebody has found this process dead before its monitor has told.
-spec dead(weir_pool:slot(), pid(), slots()) -> slots().
dead(Slot, Pid, Slots) ->
    case entry(Slot, Slots) of
        #slot{next = {Pid, _}} = Entry -> put_entry(Slot, Entry#slot{next = none}, Slots);
        #slot{worker = Pid, monitor = Monitor} -> worker_down(Slot, Monitor, Slots);
        #slot{} -> Slots
    end.

%% @doc Takes a process out of its slot. Whoever has claimed it keeps it, and the slot with it.
-spec disconnect(weir_pool:slot(), slots()) -> slots().
disconnect(Slot, #slots{pool = Pool} = Slots) ->
    ok = weir_pool_terms:vacate(Pool, Slot),
    take_out(Slot, leave, put_entry(Slot, unmonitored(entry(Slot, Slots)), Slots)).

%% ---------------------------------------------------------------- taking slots out of use

%% @doc Takes a slot out of use as soon as nobody claims it, and then does something with it.
-spec take_out(weir_pool:slot(), action(), slots()) -> slots().
take_out(Slot, Action, #slots{pool = Pool} = Slots) ->
    CalledOff =
        case Action of
            retire -> no_replace(no_slot, Slot, Slots);
            _ -> Slots
        end,
    Waiting = put_entry(Slot, (entry(Slot, CalledOff))#slot{action = Action}, CalledOff),
    case weir_pool_word:mark(Pool, Slot) of
        marked -> Waiting;
        _ReservedOrVacant -> act_unless_examined(Slot, Waiting)
    end.

%% @doc What the slot was to be taken out for is not done after all. Whoever has claimed it keeps it.
-spec keep(weir_pool:slot(), slots()) -> slots().
keep(Slot, #slots{pool = Pool} = Slots) ->
    Entry = entry(Slot, Slots),
    ok = weir_pool_word:unmark(Pool, Slot),
    act_unless_examined(Slot, put_entry(Slot, Entry#slot{action = none}, Slots)).

act_unless_examined(Slot, Slots) ->
    case entry(Slot, Slots) of
        #slot{task = none} -> act(Slot, Slots);
        %% Whatever is found out, the worker goes, and is given time to become idle.
        #slot{action = Action} when Action =:= retire; Action =:= swap -> act(Slot, Slots);
        #slot{} -> Slots
    end.

%% @doc Does what was waiting for the slot to be nobody's; or, if nothing was, puts it back into use if it is reserved.
-spec act(weir_pool:slot(), slots()) -> slots().
act(Slot, #slots{pool = Pool} = Slots) ->
    case entry(Slot, Slots) of
        #slot{action = none} ->
            case weir_pool_word:unreserve(Pool, Slot) of
                ok ->
                    ok = weir_pool_signals:wake(Pool),
                    %% One for overflow may go now.
                    _ = Slot > Pool#pool.size andalso weir_pool_signals:notify(Pool, idle),
                    ok;
                _NotReserved ->
                    ok
            end,
            Slots;
        #slot{action = leave, next = Next} = Entry ->
            ok = weir_pool_word:vacate(Pool, Slot),
            Left = put_entry(Slot, Entry#slot{action = none, next = none}, Slots),
            _ = Next =/= none andalso gen_server:reply(element(2, Next), {error, again}),
            Left;
        #slot{action = retire, worker = Worker} ->
            #slots{map = Map} = Emptied = without_worker(Slot, Worker, empty(Slot, Slots)),
            Emptied#slots{map = maps:remove(Slot, Map)};
        #slot{action = swap, replace = #replace{spare = Spare, worker = Worker} = Replace} ->
            #slots{sups = Sups} = Without = without_sup(Slot, Slots),
            Swapped = Without#slots{sups = Sups#{Spare => Slot}},
            ok = weir_pool_slot_sup:keep(Spare, true),
            Entry = (entry(Slot, Swapped))#slot{sup = Spare, action = none, replace = none},
            Filled = fill(Slot, Worker, put_entry(Slot, Entry, Swapped)),
            ok = answer(Replace, ok),
            Filled
    end.

%% A process that connected itself is waited for like a supervisor that is retired.
without_worker(_Slot, Worker, #slots{conf = #conf{worker = none}, sups = Sups} = Slots) ->
    Waiting = spawn_link(fun() -> Worker =:= undefined orelse weir_pool_task:is_idle(Worker, infinity) end),
    Slots#slots{sups = Sups#{Waiting => retired}};
without_worker(Slot, _Worker, Slots) ->
    without_sup(Slot, Slots).

without_sup(Slot, Slots) ->
    case entry(Slot, Slots) of
        #slot{sup = undefined} -> Slots;
        #slot{sup = Sup} -> retire_sup(Sup, Slots)
    end.

%% @doc Somebody has released a claim for which the manager waited. Says nothing if the slot has been used otherwise
%% since.
-spec released(weir_pool:slot(), slots()) -> slots().
released(Slot, #slots{pool = Pool} = Slots) ->
    State = weir_pool_word:state(weir_pool_word:read(Pool, Slot)),
    case entry(Slot, Slots) of
        %% It is vacant if its worker was dead.
        #slot{task = none} when State =:= reserved; State =:= vacant -> act(Slot, Slots);
        #slot{} -> Slots
    end.

%% @doc Gets rid of a worker that is likely to be busy or broken, and starts another, unless the slot is for overflow; a
%% process that connected itself is only taken out of the slot. If something was waiting for the slot, that is done
%% instead.
-spec renew(weir_pool:slot(), Report :: map(), slots()) -> slots().
renew(Slot, Why, #slots{name = Name} = Slots) ->
    case entry(Slot, Slots) of
        #slot{action = Action} when Action =/= none ->
            act(Slot, Slots);
        #slot{worker = Worker, sup = Sup} ->
            Report = Why#{weir_pool => worker_replaced, pool => Name, slot => Slot, worker => Worker},
            case Sup of
                undefined -> weir_pool_report:later(warning, Report);
                _ -> weir_pool_slot_sup:renew(Sup, Worker, Report)
            end,
            empty(Slot, Slots)
    end.

%% ---------------------------------------------------------------- another worker

%% @doc Starts a worker that takes the slot over when nobody claims it any more. Whoever asked is told then.
-spec replace(weir_pool:slot(), gen_server:from(), Timer :: reference() | none, slots()) -> slots().
replace(Slot, From, Timer, Slots) ->
    {Spare, Started} = start_sup(Slot, {spare, Slot}, false, Slots),
    Replace = #replace{from = From, timer = Timer, spare = Spare},
    put_entry(Slot, (entry(Slot, Started))#slot{replace = Replace}, Started).

%% @doc The spare supervisor of a slot has a worker.
-spec spare_started(weir_pool:slot(), Worker :: pid(), slots()) -> slots().
spare_started(Slot, Worker, Slots) ->
    #slot{replace = Replace} = Entry = entry(Slot, Slots),
    take_out(Slot, swap, put_entry(Slot, Entry#slot{replace = Replace#replace{worker = Worker}}, Slots)).

%% @doc Calls the replacement in a slot off, if there is to be one: whoever asked for it is told why, and the old
%% worker stays.
-spec no_replace(Reason :: term(), weir_pool:slot(), slots()) -> slots().
no_replace(Reason, Slot, Slots) ->
    case entry(Slot, Slots) of
        #slot{replace = none} ->
            Slots;
        #slot{replace = #replace{spare = Spare, worker = Worker} = Replace} = Entry ->
            ok = answer(Replace, {error, Reason}),
            Left = put_entry(Slot, Entry#slot{replace = none}, Slots),
            case Worker of
                undefined -> stop_start(Spare, Left);
                _ -> keep(Slot, retire_sup(Spare, Left))
            end
    end.

answer(#replace{from = From, timer = Timer}, Reply) ->
    _ = Timer =/= none andalso erlang:cancel_timer(Timer),
    gen_server:reply(From, Reply).

%% @doc Whether there is to be another worker in a slot.
-spec is_replacing(weir_pool:slot(), slots()) -> boolean().
is_replacing(Slot, Slots) -> (entry(Slot, Slots))#slot.replace =/= none.

%% @doc The time of a replacement is over. That of one before it is void.
-spec replace_timeout(weir_pool:slot(), Timer :: reference(), slots()) -> slots().
replace_timeout(Slot, Timer, Slots) ->
    case entry(Slot, Slots) of
        #slot{replace = #replace{timer = Timer}} -> no_replace(timeout, Slot, Slots);
        #slot{} -> Slots
    end.

%% ---------------------------------------------------------------- examining workers

%% @doc Takes a free slot out of use for a moment. `false': it was not free.
-spec reserve(weir_pool:slot(), slots()) -> boolean().
reserve(Slot, #slots{pool = Pool} = Slots) ->
    worker(Slot, Slots) =/= undefined andalso weir_pool_word:reserve(Pool, Slot) =:= ok.

%% @doc Has a task examine the worker of a slot that the manager has reserved: by a function whose first argument is the
%% worker, and which has those given as well. Until it has ended, the slot stays out of use.
-spec examine(weir_pool:slot(), Tag :: term(), {module(), atom(), [term()]}, slots()) -> {Task :: pid(), slots()}.
examine(Slot, Tag, {Module, Function, Arguments}, Slots) ->
    #slot{worker = Worker} = Entry = entry(Slot, Slots),
    {Task, Monitor} = weir_pool_task:start(Tag, {Module, Function, [Worker | Arguments]}),
    {Task, put_entry(Slot, Entry#slot{task = Monitor}, Slots)}.

%% @doc The task with this monitor has ended: a worker that is good is put back into use, another one replaced. Nothing
%% is done if the worker it examined is in the slot no more.
-spec examined(weir_pool:slot(), Monitor :: reference(), Exit :: term(), Why :: map(), slots()) -> slots().
examined(Slot, Monitor, Exit, Why, #slots{pool = Pool} = Slots) ->
    case entry(Slot, Slots) of
        #slot{task = Monitor} = Entry ->
            Examined = put_entry(Slot, Entry#slot{task = none}, Slots),
            case Exit of
                {done, Good} when Good =:= ok; Good =:= true ->
                    act(Slot, Examined);
                _ ->
                    _ = Why =:= #{why => check} andalso weir_pool_terms:count(Pool, ?CHECK_FAILURES),
                    renew(Slot, Why, Examined)
            end;
        #slot{} ->
            Slots
    end.

%% ---------------------------------------------------------------- what is known of slots

%% @doc Who is in a slot, as far as the manager has heard.
-spec worker(weir_pool:slot(), slots()) -> pid() | undefined.
worker(Slot, Slots) -> (entry(Slot, Slots))#slot.worker.

%% @doc The supervisor of a slot's worker.
-spec sup(weir_pool:slot(), slots()) -> pid() | undefined.
sup(Slot, Slots) -> (entry(Slot, Slots))#slot.sup.

%% @doc What is waiting for the slot.
-spec action(weir_pool:slot(), slots()) -> action().
action(Slot, Slots) -> (entry(Slot, Slots))#slot.action.

%% @doc All slots that have a worker, with it, in their order.
-spec filled(slots()) -> [{weir_pool:slot(), pid()}].
filled(#slots{map = Map}) ->
    lists:sort([{Slot, Pid} || {Slot, #slot{worker = Pid}} <- maps:to_list(Map), Pid =/= undefined]).

%% @doc The slots in which somebody is, or has been when they were claimed.
-spec in_use(slots()) -> [weir_pool:slot()].
in_use(#slots{map = Map}) ->
    [
        Slot
     || {Slot, #slot{worker = Pid, action = Action}} <- maps:to_list(Map), Pid =/= undefined orelse Action =:= leave
    ].

%% @doc How many workers have still to go, when all are to go.
-spec leaving(slots()) -> non_neg_integer().
leaving(#slots{map = Map, sups = Sups}) ->
    map_size(Sups) + length([retire || #slot{sup = undefined, action = retire} <- maps:values(Map)]).

%% @doc The slots from one to another that have no supervisor.
-spec missing(First :: pos_integer(), Last :: non_neg_integer(), slots()) -> [weir_pool:slot()].
missing(First, Last, Slots) -> [Slot || Slot <- lists:seq(First, max(First - 1, Last)), sup(Slot, Slots) =:= undefined].

entry(Slot, #slots{map = Map}) ->
    case Map of
        #{Slot := Entry} -> Entry;
        #{} -> #slot{}
    end.

put_entry(Slot, Entry, #slots{map = Map} = Slots) -> Slots#slots{map = Map#{Slot => Entry}}.

monitored(Slot, Pid, Entry) ->
    Monitor = erlang:monitor(process, Pid, [{tag, {down, Slot}}]),
    Entry#slot{worker = Pid, monitor = Monitor, filled = true}.

%% The entry without its worker, whom nobody examines any more.
unmonitored(#slot{monitor = undefined} = Entry) ->
    Entry;
unmonitored(#slot{monitor = Monitor} = Entry) ->
    true = erlang:demonitor(Monitor, [flush]),
    Entry#slot{worker = undefined, monitor = undefined, task = none}.
