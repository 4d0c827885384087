%% @doc What a keeper knows of its slots, and what it does with them.
%%
%% Not a process: the keeper holds the value and calls these functions, so it is the only process in which they write.
%%
%% A slot's word is vacant whenever its term is being changed: it is filled in the order term, word, and emptied in the
%% order word, term. A claim that sees a free word thus finds the pid that belongs to it; weir_pool_word says why that
%% suffices. And a word that is not vacant has a term that is not `undefined', also when the keeper is killed between
%% the two, so the next one finds all of them by their terms.
%%
%% What waits for a slot to be nobody's is its `action'. It is carried out when the word is held or vacant and nobody is
%% looking at the worker; whoever makes the word so, or has looked, sees to that by act/2. There is one at most: another
%% takes its place, and whoever waits for the first is told.
%%
%% Messages of starters, timers and monitors are told from those of their predecessors by a reference.
-module(weir_pool_slots).

-export([new/3, boot/1, conf/1, seats/1, workers_sup/1, pool/1, pool_size/1, set_pool/2]).
-export([connected/4, put_sup/3, settle/3, clear/2, fill/3, empty/2]).
-export([sup_down/4, worker_down/3]).
-export([take_out/3, keep/2, act/2, released/2, renew/2]).
-export([look/3, looked/3, hold/2]).
-export([worker/2, is_sup/3, has_sup/2, retiring/1, filled/1]).
-export([entry/2, put_entry/3]).

-export_type([slots/0, action/0]).

-include("weir_pool_slot.hrl").

-type action() ::
    none
    | retire
    | {swap, SlotSup :: pid(), Monitor :: reference(), From :: gen_server:from()}
    | drain
    | draining.
%% What is done with a slot when it is nobody's: stop its worker for good; put the worker of that supervisor in; find
%% out when it has handled what was sent to it, of which the keeper is told by `{{drained, Slot}, _, process, _, _}'.
%% `draining': that is being found out, and the slot stays out of use.

-record(slots, {
    boot :: #boot{},
    pool :: #pool{},
    workers_sup :: pid(),
    map = #{} :: #{weir_pool:slot() => #slot{}},
    %% Those that are to be given up when they are released.
    retiring = [] :: ordsets:ordset(weir_pool:slot())
}).

-opaque slots() :: #slots{}.

%% @doc No slots so far.
-spec new(#boot{}, #pool{}, WorkersSup :: pid()) -> slots().
new(Boot, Pool, WorkersSup) -> #slots{boot = Boot, pool = Pool, workers_sup = WorkersSup}.

%% @doc What the pool was started with.
-spec boot(slots()) -> #boot{}.
boot(#slots{boot = Boot}) -> Boot.

%% @doc The pool's options.
-spec conf(slots()) -> #conf{}.
conf(#slots{boot = #boot{conf = Conf}}) -> Conf.

%% @doc The table of seats.
-spec seats(slots()) -> ets:table().
seats(#slots{boot = #boot{seats = Seats}}) -> Seats.

%% @doc The supervisor of the slots' supervisors.
-spec workers_sup(slots()) -> pid().
workers_sup(#slots{workers_sup = WorkersSup}) -> WorkersSup.

%% @doc The pool's shape, as the keeper has published it or is about to.
-spec pool(slots()) -> #pool{}.
pool(#slots{pool = Pool}) -> Pool.

%% @doc How many slots are picked from.
-spec pool_size(slots()) -> 0 | weir_pool:size().
pool_size(#slots{pool = #pool{size = Size}}) -> Size.

%% @doc Goes on with another shape.
-spec set_pool(#pool{}, slots()) -> slots().
set_pool(Pool, Slots) -> Slots#slots{pool = Pool}.

%% ---------------------------------------------------------------- who is in a slot

%% @doc A slot's supervisor tells that it has a worker. `restarted': in the place of one it had before. `void': it is no
%% slot's supervisor, so either the end of its start is still to come, or it is being stopped.
-spec connected(weir_pool:slot(), SlotSup :: pid(), Worker :: pid(), slots()) -> {ok | restarted, slots()} | void.
connected(Slot, Sup, Worker, #slots{pool = Pool} = Slots) ->
    case {entry(Slot, Slots), weir_pool_seats:worker(seats(Slots), Sup)} of
        {#slot{sup = Sup, worker = Worker}, _} ->
            {ok, Slots};
        {#slot{sup = Sup}, Other} when Other =/= Worker ->
            %% It is dead, and has a successor, who may be in the slot already. But it was a restart.
            weir_pool_terms:count(Pool, ?RESTARTS),
            {restarted, Slots};
        {#slot{sup = Sup, filled = Filled, action = none}, Worker} ->
            {restarted_if(Filled), fill(Slot, Worker, Slots)};
        %% The predecessor's death is on its way, and it was what the action waited for.
        {#slot{sup = Sup, filled = Filled}, Worker} ->
            {restarted_if(Filled), act(Slot, empty(Slot, Slots))};
        _ ->
            void
    end.

restarted_if(true) -> restarted;
restarted_if(false) -> ok.

%% @doc Gives a slot its supervisor, and puts the worker in that it has by now.
-spec put_sup(weir_pool:slot(), SlotSup :: pid(), slots()) -> slots().
put_sup(Slot, Sup, Slots) ->
    fill_if_any(Slot, weir_pool_seats:worker(seats(Slots), Sup), monitored(Slot, Sup, Slots)).

fill_if_any(_Slot, undefined, Slots) -> Slots;
fill_if_any(Slot, Worker, Slots) -> fill(Slot, Worker, Slots).

%% @doc For a keeper that has just started: takes over a slot as its predecessor has left it. A worker that is in its
%% slot keeps the claim that somebody has of it. A word that is held stays so: whatever it was held for, it is now for
%% the keeper to find out about the worker.
%%
%% A worker that is dead, though its supervisor does not know yet, is not taken over: the predecessor may have ended the
%% claim of it, and whoever holds that would share the dead pid with the next one. Its successor is told of.
-spec settle(weir_pool:slot(), {sup, SlotSup :: pid()} | {connected, pid()}, slots()) -> slots().
settle(Slot, {sup, Sup}, Slots) ->
    Worker = weir_pool_seats:worker(seats(Slots), Sup),
    Monitored = monitored(Slot, Sup, Slots),
    case Worker =/= undefined andalso is_process_alive(Worker) of
        true -> settle_worker(Slot, Worker, Monitored);
        false -> Monitored
    end;
settle(Slot, {connected, Pid}, Slots) ->
    settle_worker(Slot, Pid, Slots).

settle_worker(Slot, Pid, #slots{pool = Pool} = Slots) ->
    case weir_pool_terms:worker(Pool, Slot) of
        Pid ->
            case weir_pool_word:state(weir_pool_word:read(Pool, Slot)) of
                vacant -> ok = weir_pool_word:occupy(Pool, Slot);
                _ -> ok = weir_pool_word:unmark(Pool, Slot)
            end,
            put_entry(Slot, monitor_worker(Slot, Pid, entry(Slot, Slots)), Slots);
        _ ->
            fill(Slot, Pid, Slots)
    end.

%% @doc For a keeper that has just started: empties a slot whose term is that of a worker that died with nobody to see
%% it, or that was about to come into the slot.
-spec clear(weir_pool:slot(), slots()) -> slots().
clear(Slot, #slots{pool = #pool{limit = Limit} = Pool} = Slots) ->
    case entry(Slot, Slots) of
        #slot{worker = undefined} = Entry ->
            case weir_pool_terms:worker(Pool, Slot) of
                undefined ->
                    Slots;
                _ ->
                    _ = weir_pool_terms:has_words(Pool, Slot) andalso weir_pool_word:vacate(Pool, Slot),
                    ok = weir_pool_terms:vacate(Pool, Slot),
                    case Slot =< Limit of
                        true -> put_entry(Slot, Entry#slot{filled = true}, Slots);
                        false -> Slots
                    end
            end;
        #slot{} ->
            Slots
    end.

%% @doc Puts a worker in a slot, whoever is in it; a pick finds the one or the other. Whoever had claimed the
%% predecessor has nothing any more. Those who wait for a worker are told.
-spec fill(weir_pool:slot(), pid(), slots()) -> slots().
fill(Slot, Pid, #slots{boot = #boot{seats = Seats, conf = #conf{worker = Worker}}, pool = Pool} = Slots) ->
    #slot{filled = Filled} = Entry = unmonitored_worker(entry(Slot, Slots)),
    Filled andalso weir_pool_terms:count(Pool, ?RESTARTS),
    Worker =:= none andalso weir_pool_seats:connect(Seats, Slot, Pid),
    _ = weir_pool_word:vacate(Pool, Slot),
    ok = weir_pool_terms:fill(Pool, Slot, Pid),
    ok = weir_pool_word:occupy(Pool, Slot),
    ok = weir_pool_queue:wake(Pool),
    put_entry(Slot, monitor_worker(Slot, Pid, Entry), Slots).

%% @doc Leaves a slot without a worker. Whoever has claimed it has nothing any more.
-spec empty(weir_pool:slot(), slots()) -> slots().
empty(Slot, #slots{boot = #boot{seats = Seats}, pool = Pool} = Slots) ->
    case entry(Slot, Slots) of
        #slot{worker = undefined} ->
            Slots;
        #slot{} = Entry ->
            %% The seat first: a keeper that is killed after that is sure not to have the worker put back by the next one.
            ok = weir_pool_seats:delete(Seats, {connected, Slot}),
            _ = weir_pool_word:vacate(Pool, Slot),
            ok = weir_pool_terms:vacate(Pool, Slot),
            put_entry(Slot, unmonitored_worker(Entry), Slots)
    end.

%% @doc The monitor of a slot's supervisor tells that it is down. `spare': it was to take the slot over, and the slot
%% stays as it is. `void': it was no slot's supervisor any more.
-spec sup_down(weir_pool:slot(), Monitor :: reference(), Reason :: term(), slots()) -> {ok | spare, slots()} | void.
sup_down(Slot, Monitor, Reason, #slots{boot = #boot{seats = Seats}} = Slots) ->
    case entry(Slot, Slots) of
        #slot{sup_monitor = Monitor, sup = Sup} = Entry ->
            ok = weir_pool_seats:delete(Seats, Sup),
            {ok, put_entry(Slot, Entry#slot{sup = undefined, sup_monitor = undefined}, Slots)};
        #slot{action = {swap, Sup, Monitor, From}} ->
            ok = weir_pool_seats:delete(Seats, Sup),
            gen_server:reply(From, {error, {start_failed, Slot, Reason}}),
            {spare, keep(Slot, Slots)};
        _ ->
            void
    end.

%% @doc A worker's monitor tells that it is down. `void': it was in its slot no more. `restarted': its successor was
%% there already, and is in the slot.
%%
%% Every writing of a slot's term waits until all schedulers have got on, half a millisecond when they are busy, and one
%% waits for the other. A keeper that hears late, because many workers die, therefore does not leave the slot vacant for
%% the time until it has read the message that tells of the successor: that would double what it has to write.
-spec worker_down(weir_pool:slot(), Monitor :: reference(), slots()) -> {ok | restarted, slots()} | void.
worker_down(Slot, Monitor, Slots) ->
    case entry(Slot, Slots) of
        #slot{monitor = Monitor, worker = Dead, sup = Sup, action = none} when is_pid(Sup) ->
            case weir_pool_seats:worker(seats(Slots), Sup) of
                Successor when is_pid(Successor), Successor =/= Dead -> {restarted, fill(Slot, Successor, Slots)};
                _ -> {ok, empty(Slot, Slots)}
            end;
        #slot{monitor = Monitor} ->
            {ok, act(Slot, empty(Slot, Slots))};
        _ ->
            void
    end.

%% ---------------------------------------------------------------- taking slots out of use

%% @doc Takes a slot out of use as soon as nobody claims it, and then does something with it.
-spec take_out(weir_pool:slot(), retire | {swap, SlotSup :: pid(), gen_server:from()} | drain, slots()) -> slots().
take_out(Slot, Wanted, #slots{pool = Pool} = Slots) ->
    Action =
        case Wanted of
            {swap, Sup, From} -> {swap, Sup, monitor_sup(Slot, Sup), From};
            _ -> Wanted
        end,
    Entry = called_off(Slot, entry(Slot, Slots), Wanted, Slots),
    Waiting = retiring(Slot, Wanted =:= retire, put_entry(Slot, Entry#slot{action = Action}, Slots)),
    case weir_pool_word:mark(Pool, Slot) of
        marked -> Waiting;
        _HeldOrVacant -> act_unless_looked_at(Slot, Waiting)
    end.

retiring(Slot, true, #slots{retiring = Retiring} = Slots) ->
    Slots#slots{retiring = ordsets:add_element(Slot, Retiring)};
retiring(Slot, false, #slots{retiring = Retiring} = Slots) ->
    Slots#slots{retiring = ordsets:del_element(Slot, Retiring)}.

%% The entry without the replacement that was waiting, if there was one.
called_off(Slot, #slot{action = {swap, Sup, Monitor, From}} = Entry, Instead, #slots{boot = Boot}) ->
    true = erlang:demonitor(Monitor, [flush]),
    ok = weir_pool_slot_sup:drain(Sup, Boot),
    Reason =
        case Instead of
            retire -> no_slot;
            drain -> no_pool;
            {swap, _, _} -> {start_failed, Slot, replaced}
        end,
    gen_server:reply(From, {error, Reason}),
    Entry#slot{action = none};
called_off(_Slot, Entry, _Instead, _Slots) ->
    Entry.

%% @doc What the slot was to be taken out for is not done after all. Whoever has claimed it keeps it.
-spec keep(weir_pool:slot(), slots()) -> slots().
keep(Slot, #slots{pool = Pool} = Slots) ->
    Entry = entry(Slot, Slots),
    ok = weir_pool_word:unmark(Pool, Slot),
    act_unless_looked_at(Slot, retiring(Slot, false, put_entry(Slot, Entry#slot{action = none}, Slots))).

act_unless_looked_at(Slot, Slots) ->
    case entry(Slot, Slots) of
        #slot{look = none} -> act(Slot, Slots);
        #slot{} -> Slots
    end.

%% @doc Does what was waiting for the slot to be nobody's; or, if nothing was, puts it back into use if it is held.
-spec act(weir_pool:slot(), slots()) -> slots().
act(Slot, #slots{boot = Boot, pool = Pool} = Slots) ->
    case entry(Slot, Slots) of
        #slot{action = none} ->
            case weir_pool_word:give_back(Pool, Slot) of
                ok -> ok = weir_pool_queue:wake(Pool);
                _NotHeld -> ok
            end,
            Slots;
        #slot{action = drain, worker = Worker} = Entry ->
            _ = weir_pool_probe:start({drained, Slot}, Worker, infinity),
            put_entry(Slot, Entry#slot{action = draining}, Slots);
        #slot{action = draining} ->
            Slots;
        #slot{action = retire} ->
            #slots{map = Map} = Emptied = without_sup(Slot, fun weir_pool_slot_sup:drain/2, empty(Slot, Slots)),
            retiring(Slot, false, Emptied#slots{map = maps:remove(Slot, Map)});
        #slot{action = {swap, Sup, Monitor, From}} = Entry ->
            Without = without_sup(
                Slot, fun weir_pool_slot_sup:drain/2, put_entry(Slot, Entry#slot{action = none}, Slots)
            ),
            Swapped = put_entry(Slot, (entry(Slot, Without))#slot{sup = Sup, sup_monitor = Monitor}, Without),
            Filled =
                case weir_pool_seats:worker(Boot#boot.seats, Sup) of
                    undefined -> empty(Slot, Swapped);
                    Worker -> fill(Slot, Worker, Swapped)
                end,
            gen_server:reply(From, ok),
            Filled
    end.

%% The entry's supervisor is nobody's any more, and something is done with it.
without_sup(Slot, Do, #slots{boot = Boot} = Slots) ->
    case entry(Slot, Slots) of
        #slot{sup = undefined} ->
            Slots;
        #slot{sup = Sup, sup_monitor = Monitor} = Entry ->
            true = erlang:demonitor(Monitor, [flush]),
            ok = Do(Sup, Boot),
            put_entry(Slot, Entry#slot{sup = undefined, sup_monitor = undefined}, Slots)
    end.

%% @doc Somebody has released a claim for which the keeper waited. Says nothing if the slot has been used otherwise
%% since.
-spec released(weir_pool:slot(), slots()) -> slots().
released(Slot, Slots) ->
    case is_left_held(Slot, Slots) of
        true -> act(Slot, Slots);
        false -> Slots
    end.

%% @doc Gets rid of a worker that is likely to be busy or broken, and starts another, unless the slot is for overflow; a
%% process that connected itself is only taken out of the slot. If something was waiting for the slot, that is done
%% instead.
-spec renew(weir_pool:slot(), slots()) -> slots().
renew(Slot, #slots{boot = #boot{conf = #conf{worker = Started}}} = Slots) ->
    case entry(Slot, Slots) of
        #slot{action = Action} when Action =/= none ->
            act(Slot, Slots);
        #slot{} when Started =:= none ->
            empty(Slot, Slots);
        #slot{worker = Worker, starting = Starting} ->
            %% Killed first, emptied later: the next keeper would give it out again if this one were killed in between.
            Killed = without_sup(Slot, fun weir_pool_slot_sup:kill/2, Slots),
            %% If its supervisor was gone before.
            true = exit(Worker, kill),
            Emptied = empty(Slot, Killed),
            case Starting =:= none andalso Slot =< pool_size(Slots) of
                true -> weir_pool_starts:start(Slot, fill, Emptied);
                false -> Emptied
            end
    end.

%% ---------------------------------------------------------------- looking at workers

%% @doc A process with this monitor looks at the worker of a slot that the keeper has made held, or found so. Until it
%% has ended, the slot stays out of use.
-spec look(weir_pool:slot(), Monitor :: reference(), slots()) -> slots().
look(Slot, Monitor, Slots) -> put_entry(Slot, (entry(Slot, Slots))#slot{look = Monitor}, Slots).

%% @doc The process with this monitor has looked. `void': the worker it looked at is in the slot no more.
-spec looked(weir_pool:slot(), Monitor :: reference(), slots()) -> {ok, slots()} | void.
looked(Slot, Monitor, Slots) ->
    case entry(Slot, Slots) of
        #slot{look = Monitor} = Entry -> {ok, put_entry(Slot, Entry#slot{look = none}, Slots)};
        _ -> void
    end.

%% @doc Takes a free slot out of use for a moment. `false': it was not free.
-spec hold(weir_pool:slot(), slots()) -> boolean().
hold(Slot, #slots{pool = Pool} = Slots) ->
    worker(Slot, Slots) =/= undefined andalso weir_pool_word:hold(Pool, Slot) =:= ok.

%% Whether the word is held and nobody is looking at the worker.
is_left_held(Slot, #slots{pool = Pool} = Slots) ->
    case entry(Slot, Slots) of
        #slot{worker = undefined} -> false;
        #slot{look = none} -> weir_pool_word:state(weir_pool_word:read(Pool, Slot)) =:= held;
        #slot{} -> false
    end.

%% ---------------------------------------------------------------- what is known of slots

%% @doc Who is in a slot, as far as the keeper has heard.
-spec worker(weir_pool:slot(), slots()) -> pid() | undefined.
worker(Slot, Slots) -> (entry(Slot, Slots))#slot.worker.

%% @doc Whether this is the slot's supervisor.
-spec is_sup(weir_pool:slot(), pid() | undefined, slots()) -> boolean().
is_sup(Slot, Sup, Slots) -> (entry(Slot, Slots))#slot.sup =:= Sup.

%% @doc Whether the slot has a supervisor.
-spec has_sup(weir_pool:slot(), slots()) -> boolean().
has_sup(Slot, Slots) -> not is_sup(Slot, undefined, Slots).

%% @doc The slots that are to be given up when they are released.
-spec retiring(slots()) -> [weir_pool:slot()].
retiring(#slots{retiring = Retiring}) -> Retiring.

%% @doc All slots that have a worker, with it, in their order.
-spec filled(slots()) -> [{weir_pool:slot(), pid()}].
filled(#slots{map = Map}) ->
    lists:sort([{Slot, Pid} || {Slot, #slot{worker = Pid}} <- maps:to_list(Map), Pid =/= undefined]).

%% @doc For this module and weir_pool_starts: what is known of a slot.
-spec entry(weir_pool:slot(), slots()) -> #slot{}.
entry(Slot, #slots{map = Map}) ->
    case Map of
        #{Slot := Entry} -> Entry;
        #{} -> #slot{}
    end.

%% @doc For this module and weir_pool_starts: what is known from now on.
-spec put_entry(weir_pool:slot(), #slot{}, slots()) -> slots().
put_entry(Slot, Entry, #slots{map = Map} = Slots) -> Slots#slots{map = Map#{Slot => Entry}}.

monitored(Slot, Sup, Slots) ->
    put_entry(Slot, (entry(Slot, Slots))#slot{sup = Sup, sup_monitor = monitor_sup(Slot, Sup)}, Slots).

monitor_sup(Slot, Sup) -> erlang:monitor(process, Sup, [{tag, {sup_down, Slot}}]).

monitor_worker(Slot, Pid, Entry) ->
    Monitor = erlang:monitor(process, Pid, [{tag, {down, Slot}}]),
    Entry#slot{worker = Pid, monitor = Monitor, filled = true, since = now_ms()}.

%% The entry without its worker, who nobody is looking at any more.
unmonitored_worker(#slot{worker = undefined} = Entry) ->
    Entry;
unmonitored_worker(#slot{monitor = Monitor} = Entry) ->
    true = erlang:demonitor(Monitor, [flush]),
    Entry#slot{worker = undefined, monitor = undefined, look = none}.

now_ms() -> erlang:monotonic_time(millisecond).
