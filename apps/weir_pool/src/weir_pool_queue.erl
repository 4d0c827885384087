%% @doc Queue of one pool: the claims that wait for a worker, and their order.
%%
%% Most claims never reach the queue (weir_pool_claim). A claimer that finds no free slot sends the queue a request, and
%% gets exactly one answer: a grant of a worker, or an error. A process that frees a slot while a request waits wakes
%% the queue, which claims the slot and grants it to the next waiter.
%%
%% The modes are those of Go's sync.Mutex. In the mode `SOMEBODY_WAITS', newcomers may take a slot that was just freed.
%% A newcomer is running and uses the worker at once, while a waiter first has to be scheduled. If the next waiter has
%% waited for longer than the patience (?PATIENCE_MS), the mode becomes `STARVING'. Newcomers then go to the queue, and
%% only the queue takes slots, until the next waiter has waited for less than the patience.
%%
%% The queue never makes a call and never waits for another process. A monitor tells the queue when a waiter dies.
%%
%% == No wake-up is lost ==
%%
%% A releaser first frees its slot and then reads the mode. For the first waiter, the queue first sets the mode and then
%% searches for a free slot. All processes see the reads and writes of words in the same order. If the releaser reads
%% the new mode, the releaser wakes the queue. If the releaser has read the old mode, it freed the slot even before
%% that, so the search of the queue finds the slot. Requests that find waiters in the queue need no such search, because
%% the mode is already set.
%%
%% The argument is the same for WAKE: if a releaser finds WAKE raised, its slot is free before the queue sets WAKE to 0,
%% and the queue searches after that. If a releaser is killed between two of these steps, the tick replaces the wake-up:
%% while a request waits, the queue searches for free slots every ?TICK_MS, whatever WAKE is.
%%
%% == Handing over ==
%%
%% The queue claims a slot in its own name and sends the grant. The waiter takes the grant over: it puts its own number
%% into the word by a compare-and-exchange. Exactly one process is responsible for a claimed word at any time:
%%
%% <ul>
%% <li>If the queue dies, the pool ends too. The waiter gets the message of its monitor in place of an answer. The
%%   waiter then finds no pool, or asks the next pool of that name with the time of its first request.</li>
%% <li>If a waiter dies, the queue gets the message of its monitor and removes the request. If the waiter has had a
%%   grant and has not taken it over, the queue frees the slot. The worker has not seen this claim, so it stays.</li>
%% <li>If a waiter does not take a grant over within ?TICKS_TO_TAKE_OVER ticks, the queue takes the grant back: it frees
%%   the slot, and claims it again for other waiters. Such a waiter is suspended, needs long to die, or is not
%%   scheduled. On a busy machine the ticks are late too, so all waiters get more time.</li>
%% <li>If the worker dies, its slot is vacant, and no waiter can take the grant over.</li>
%% </ul>
%%
%% A waiter whose take-over fails asks again with the time of its first request. The waiter keeps its place, and
%% `max_queue' does not count against it.
%%
%% == Waiters that are not scheduled ==
%%
%% If each suspended waiter held a slot for ?TICKS_TO_TAKE_OVER ticks, then 20 of them would delay the next waiter by
%% more than a second. Therefore, when the queue has taken a grant back, it grants the slot to several waiters at once:
%% to ?WIDENING times as many as had the last grant. The first waiter that takes the grant over gets the worker, since
%% the exchange succeeds once. The others ask again and keep their places. 20 suspended waiters need two such rounds,
%% 340 need four.
%%
%% Every other grant still goes to one waiter, which has the full time. On a machine where all waiters are scheduled
%% late, a waiter never has less time than on an idle machine. A slot that was taken back goes to the first waiter that
%% is scheduled.
%%
%% == Names and shapes ==
%%
%% A request carries the pool's Base, because the claimer may know an older pool of the same name. A grant carries the
%% pool's term, because the pool may have more slots than the claimer knows.
%%
%% While the queue is suspended (sys:suspend/1), requests wait, even beyond their deadlines.
%% @private
-module(weir_pool_queue).
-behaviour(gen_server).

-export([start_link/3]).
-export([ask/5, cancel/2, closed/1, overload/4]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, code_change/3, format_status/1]).

-export_type([answer/0, key/0]).

-include("weir_pool.hrl").

%% Patience: how long the next waiter may wait before the mode becomes `STARVING'. The patience is a number of
%% milliseconds, and additional microseconds for each waiter. The queue needs a few microseconds for each waiter, and a
%% running claimer needs a hundredth of that for a short claim. If the patience were shorter than the time that the
%% queue needs for all waiters, the mode would stay `STARVING'.
-define(PATIENCE_MS, 5).
-define(PATIENCE_EACH_US, 10).

%% Milliseconds between two ticks, while a request waits or a grant is open. A tick is not shorter than the patience,
%% because the tick notices that the patience is over.
-define(TICK_MS, 10).

%% Number of ticks after which the queue takes an open grant back.
-define(TICKS_TO_TAKE_OVER, 5).

%% Factor by which the number of waiters grows when the queue grants a slot again after it took the grant back. With 2,
%% 20 suspended waiters need four rounds of ?TICKS_TO_TAKE_OVER ticks.
-define(WIDENING, 4).

%% While CoDel is dropping, it drops each request that has waited for this many times the target.
-define(CODEL_LIMIT, 2).

-type key() :: {AskedAt :: integer(), reference()}.
%% Key of a request, which is also its place in the queue. The time is that of the claimer's first request. The
%% reference is an alias of the claimer for the answer.

-record(waiter, {
    pid :: pid(),
    %% Native monotonic time.
    deadline :: integer() | infinity,
    %% Whether an earlier grant of this claim failed. Such a request does not count against max_queue.
    was_granted :: boolean(),
    monitor :: reference() | undefined
}).

%% A grant that a waiter may not have taken over yet. If several waiters got it, each has a record with the same word.
-record(grant, {
    slot :: weir_pool:slot(),
    word :: weir_pool_word:word(),
    monitor :: reference(),
    ticks = 0 :: non_neg_integer()
}).

-record(state, {
    name :: weir_pool:name(),
    base :: non_neg_integer(),
    %% Whether the oldest or the newest request is served next.
    order :: fifo | lifo,
    holder :: weir_pool_holder:id(),
    %% The pool's main term, which the queue reads again at each request, wake-up and tick. `undefined' until the pool
    %% is opened.
    pool :: #pool{} | undefined,
    waiters = gb_trees:empty() :: gb_trees:tree(key(), #waiter{}),
    codel = off :: weir_pool_codel:codel() | off,
    grants = #{} :: #{key() => #grant{}},
    %% The values last written to the signals (weir_pool_signals).
    mode = ?NOBODY_WAITS :: ?NOBODY_WAITS | ?SOMEBODY_WAITS | ?STARVING,
    waiting = 0 :: non_neg_integer(),
    oldest = 0 :: integer(),
    longest = 0 :: non_neg_integer(),
    %% First slot of the next search. Each grant advances it, so that all workers are used equally.
    next = 1 :: pos_integer(),
    is_ticking = false :: boolean()
}).

-type answer() ::
    {granted, #pool{}, weir_pool:slot(), weir_pool_word:word(), Worker :: pid()}
    | {error, weir_pool:claim_error()}
    | gone.
%% `gone': the request was for an earlier pool of the same name.

%% @doc Starts the queue of a pool, linked to its manager.
-spec start_link(weir_pool:name(), Base :: non_neg_integer(), #conf{}) -> {ok, pid()} | ignore | {error, term()}.
start_link(Name, Base, Conf) -> gen_server:start_link(?MODULE, {Name, Base, Conf}, []).

%% @doc Sends a request of the calling process. The reference in the key is an alias of the caller, which gets exactly
%% one answer: `{Ref, answer()}'. `WasGranted' says that an earlier grant of this claim failed.
-spec ask(pid(), key(), Base :: non_neg_integer(), Deadline :: integer() | infinity, WasGranted :: boolean()) -> ok.
ask(Queue, Key, Base, Deadline, WasGranted) ->
    gen_server:cast(Queue, {ask, Key, Base, #waiter{pid = self(), deadline = Deadline, was_granted = WasGranted}}).

%% @doc Cancels a request. The queue answers the request with `{error, timeout}', unless it has already answered.
-spec cancel(pid(), key()) -> ok.
cancel(Queue, Key) -> gen_server:cast(Queue, {cancel, Key}).

%% @doc Notifies the queue that the manager has closed the pool.
-spec closed(pid()) -> ok.
closed(Queue) -> gen_server:cast(Queue, closed).

%% @doc Returns the details of an overload. `Waited' is native time.
-spec overload(#pool{}, queue_full | codel, Waiting :: non_neg_integer(), Waited :: integer()) -> weir_pool:overload().
overload(#pool{name = Name}, Reason, Waiting, Waited) ->
    #{pool => Name, reason => Reason, waiting => Waiting, waited_ms => ms(Waited)}.

%% @private
-spec init({weir_pool:name(), Base :: non_neg_integer(), #conf{}}) -> {ok, #state{}}.
init({Name, Base, #conf{queue = Order, codel = Codel}}) ->
    Holder = weir_pool_holder:id(self()),
    {ok, #state{name = Name, base = Base, order = Order, holder = Holder, codel = codel(Codel)}}.

codel(off) ->
    off;
codel({TargetMs, IntervalMs}) ->
    Target = native(TargetMs),
    weir_pool_codel:new(Target, native(IntervalMs), ?CODEL_LIMIT * Target).

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, {error, {bad_call, term()}}, #state{}}.
handle_call(Request, _From, State) -> {reply, {error, {bad_call, Request}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({ask, Key, Base, Waiter}, State) ->
    case refresh(State) of
        {open, #state{base = Base} = Open} ->
            {noreply, enter(Key, Waiter, Open)};
        {open, Open} ->
            ok = answer(Key, gone),
            {noreply, Open};
        {closed, Closed} ->
            ok = answer(Key, {error, no_pool}),
            {noreply, Closed}
    end;
handle_cast(wake, State) ->
    case refresh(State) of
        {open, #state{pool = Pool} = Open} ->
            case weir_pool_signals:take_wake(Pool) of
                none -> {noreply, Open};
                several -> {noreply, settle(serve(Open))};
                Slot -> {noreply, settle(serve_slot(Slot, Open))}
            end;
        {closed, Closed} ->
            {noreply, Closed}
    end;
handle_cast({cancel, Key}, State) ->
    case without(Key, State) of
        {ok, Fewer} ->
            ok = answer(Key, {error, timeout}),
            {noreply, settle(if_empty(Fewer))};
        error ->
            {noreply, State}
    end;
handle_cast(closed, State) ->
    {_, Refreshed} = refresh(State),
    {noreply, Refreshed};
handle_cast(_Stray, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(tick, State) ->
    case refresh(State#state{is_ticking = false}) of
        {open, #state{pool = Pool} = Open} ->
            _ = weir_pool_signals:take_wake(Pool),
            {TakenBack, Fewer} = take_back(Open),
            Served = settle(serve(maps:fold(fun serve_several/3, Fewer, TakenBack))),
            ok = press(Served),
            {noreply, Served};
        {closed, Closed} ->
            {_, Fewer} = take_back(Closed),
            {noreply, settle(Fewer)}
    end;
handle_info({{down, Key}, _Monitor, process, _Pid, _Reason}, #state{grants = Grants} = State) ->
    case without(Key, State) of
        {ok, Fewer} ->
            {noreply, settle(if_empty(Fewer))};
        error ->
            case maps:take(Key, Grants) of
                {#grant{slot = Slot, word = Word}, Others} ->
                    %% If a waiter has taken the grant over, free/3 does nothing. If other waiters have the same grant,
                    %% their take-over fails, and they ask again.
                    ok = free(Slot, Word, State),
                    {noreply, settle(serve(State#state{grants = Others}))};
                error ->
                    {noreply, State}
            end
    end;
handle_info(_Stray, State) ->
    {noreply, State}.

%% @private
-spec code_change(term(), #state{}, term()) -> {ok, #state{}}.
code_change(_OldVsn, State, _Extra) -> {ok, State}.

%% @private
-spec format_status(gen_server:format_status()) -> gen_server:format_status().
format_status(Status) ->
    maps:map(
        fun
            (state, #state{name = Name, order = Order, waiting = Waiting, mode = Mode, grants = Grants}) ->
                #{pool => Name, order => Order, waiting => Waiting, mode => Mode, grants => map_size(Grants)};
            (_, Value) ->
                Value
        end,
        Status
    ).

%% ---------------------------------------------------------------- waiters

%% Reads the pool's term, which changes when the pool is resized or closed. If the pool is closed, refuses all requests.
refresh(#state{name = Name, base = Base} = State) ->
    case weir_pool_terms:pool(Name) of
        #pool{base = Base} = Pool -> {open, State#state{pool = Pool}};
        _ -> {closed, turn_away(State)}
    end.

turn_away(#state{waiting = 0} = State) ->
    State;
turn_away(#state{waiters = Waiters} = State) ->
    _ = [
        demonitor(Monitor, [flush]) andalso answer(Key, {error, no_pool})
     || {Key, #waiter{monitor = Monitor}} <- gb_trees:to_list(Waiters)
    ],
    settle(State#state{waiters = gb_trees:empty()}).

enter(Key, #waiter{was_granted = false}, #state{waiting = Waiting, pool = #pool{max_queue = Max}} = State) when
    Waiting >= Max
->
    ok = refuse(Key, queue_full, erlang:monotonic_time(), State),
    State;
enter(Key, #waiter{pid = Pid} = Waiter, #state{waiters = Waiters, mode = Mode} = State) ->
    Monitored = Waiter#waiter{monitor = erlang:monitor(process, Pid, [{tag, {down, Key}}])},
    Entered = settle(State#state{waiters = gb_trees:insert(Key, Monitored, Waiters)}),
    case Mode of
        ?NOBODY_WAITS -> settle(serve(Entered));
        _ -> Entered
    end.

%% Answers a request. Called once for each request, when the request leaves the waiters or is refused at its entry. A
%% waiter that died gets no answer.
-spec answer(key(), answer()) -> ok.
answer({_AskedAt, Ref}, Answer) ->
    Ref ! {Ref, Answer},
    ok.

refuse({AskedAt, _} = Key, Reason, Now, #state{pool = Pool, waiters = Waiters}) ->
    ok = weir_pool_terms:count(Pool, ?OVERLOADS),
    answer(Key, {error, {overload, overload(Pool, Reason, gb_trees:size(Waiters), Now - AskedAt)}}).

%% Removes a waiter and its monitor.
without(Key, #state{waiters = Waiters} = State) ->
    case gb_trees:take_any(Key, Waiters) of
        {#waiter{monitor = Monitor}, Fewer} ->
            true = demonitor(Monitor, [flush]),
            {ok, State#state{waiters = Fewer}};
        error ->
            error
    end.

%% Returns the waiter that is served next.
next(#state{order = lifo, waiters = Waiters}) ->
    case gb_trees:is_empty(Waiters) of
        true -> none;
        false -> gb_trees:largest(Waiters)
    end;
next(#state{waiters = Waiters}) ->
    oldest(Waiters).

oldest(Waiters) ->
    case gb_trees:is_empty(Waiters) of
        true -> none;
        false -> gb_trees:smallest(Waiters)
    end.

%% Tells CoDel if the last waiter has left without being served.
if_empty(#state{codel = off} = State) ->
    State;
if_empty(#state{waiters = Waiters, codel = Codel} = State) ->
    case gb_trees:size(Waiters) of
        0 -> State#state{codel = weir_pool_codel:empty(erlang:monotonic_time(), Codel)};
        _ -> State
    end.

%% Writes the number of waiters, the oldest wait and the mode to the signals, and starts the next tick if one is needed.
settle(#state{pool = undefined} = State) ->
    State;
settle(#state{waiters = Waiters, pool = Pool, mode = Before} = State) ->
    Waiting = gb_trees:size(Waiters),
    Oldest =
        case oldest(Waiters) of
            none -> 0;
            {{AskedAt, _}, _} -> ms(AskedAt)
        end,
    Mode = mode(next(State), Waiting),
    %% A write invalidates the word's cache line on the processors of all claimers, so equal values are not written.
    _ = Waiting =/= State#state.waiting andalso weir_pool_signals:set_waiting(Pool, Waiting),
    _ = Oldest =/= State#state.oldest andalso weir_pool_signals:set_oldest(Pool, Oldest),
    _ = Mode =/= Before andalso weir_pool_signals:set_mode(Pool, Mode),
    tick(State#state{mode = Mode, waiting = Waiting, oldest = Oldest}).

mode(none, _Waiting) ->
    ?NOBODY_WAITS;
mode(Next, Waiting) ->
    case is_impatient(Next, Waiting) of
        true -> ?STARVING;
        false -> ?SOMEBODY_WAITS
    end.

is_impatient({{AskedAt, _}, _}, Waiting) ->
    erlang:monotonic_time() - AskedAt > native(?PATIENCE_MS) + Waiting * native(?PATIENCE_EACH_US) div 1000.

tick(#state{is_ticking = true} = State) ->
    State;
tick(#state{waiting = 0, grants = Grants} = State) when map_size(Grants) =:= 0 ->
    State;
tick(State) ->
    _ = erlang:send_after(?TICK_MS, self(), tick),
    State#state{is_ticking = true}.

%% Notifies the manager if the oldest request has waited for longer than the patience. The manager then looks for claims
%% of dead holders, and starts overflow workers. With `lifo', the next waiter may always be a new one, so the wait of
%% the oldest request decides.
press(#state{waiting = 0}) ->
    ok;
press(#state{pool = Pool, waiters = Waiters}) ->
    case is_impatient(oldest(Waiters), 0) of
        true -> weir_pool_signals:notify(Pool, pressed);
        false -> ok
    end.

%% ---------------------------------------------------------------- grants

%% Grants free slots, until no slot is free or no request waits.
serve(State) ->
    Now = erlang:monotonic_time(),
    serve(Now, skip_late(Now, State)).

serve(Now, #state{waiters = Waiters, pool = Pool, next = Next, holder = Holder} = State) ->
    case gb_trees:size(Waiters) > 0 andalso weir_pool_word:find(Pool, Next, Holder) of
        {ok, Slot, Word, Pid} -> serve(Now, hand_over(1, Slot, Word, Pid, Now, State#state{next = Slot + 1}));
        _NobodyOrNone -> State
    end.

serve_slot(Slot, State) -> serve_several(Slot, 1, State).

%% Grants a slot, if it is free, to the next waiters, at most Most of them. The first waiter that takes the grant over
%% gets the worker.
serve_several(Slot, Most, #state{pool = #pool{limit = Limit} = Pool, holder = Holder} = State) when Slot =< Limit ->
    Now = erlang:monotonic_time(),
    #state{waiters = Waiters} = Skipped = skip_late(Now, State),
    case gb_trees:size(Waiters) > 0 andalso weir_pool_word:claim(Pool, Slot, Holder) of
        {ok, Word, Pid} -> hand_over(Most, Slot, Word, Pid, Now, Skipped);
        _NobodyOrLost -> Skipped
    end;
serve_several(_Retired, _Most, State) ->
    State.

%% Grants a claimed slot to the next waiters, at most Most of them. CoDel chooses the first of these waiters, and does
%% so after the claim, because CoDel may be asked only when the queue can serve a waiter. If CoDel refuses all waiters,
%% frees the slot.
hand_over(Most, Slot, Word, Pid, Now, State) ->
    case choose(Now, State) of
        {{Key, Waiter}, Chosen} ->
            grant_more(Most - 1, Slot, Word, Pid, Now, grant(Key, Waiter, Slot, Word, Pid, Now, Chosen));
        {none, Empty} ->
            ok = free(Slot, Word, Empty),
            Empty
    end.

grant_more(0, _Slot, _Word, _Pid, _Now, State) ->
    State;
grant_more(Most, Slot, Word, Pid, Now, State) ->
    #state{waiters = Waiters} = Skipped = skip_late(Now, State),
    case next(Skipped) of
        {Key, Waiter} ->
            Fewer = Skipped#state{waiters = gb_trees:delete(Key, Waiters)},
            grant_more(Most - 1, Slot, Word, Pid, Now, grant(Key, Waiter, Slot, Word, Pid, Now, Fewer));
        none ->
            Skipped
    end.

%% Removes the next waiters as long as their deadlines have passed, and answers them.
skip_late(Now, State) ->
    case next(State) of
        {Key, #waiter{deadline = Deadline}} when is_integer(Deadline), Deadline =< Now ->
            {ok, Fewer} = without(Key, State),
            ok = answer(Key, {error, timeout}),
            skip_late(Now, if_empty(Fewer));
        _ ->
            State
    end.

%% Removes the next waiter that CoDel does not refuse. Returns this waiter with its monitor, which lasts until the grant
%% is taken over.
choose(Now, #state{waiters = Waiters} = State) ->
    case next(State) of
        none ->
            {none, if_empty(State)};
        {Key, _} ->
            {Waiter, Fewer} = gb_trees:take(Key, Waiters),
            offer(Key, Waiter, gb_trees:size(Fewer), Now, State#state{waiters = Fewer})
    end.

offer(Key, Waiter, _Behind, _Now, #state{codel = off} = State) ->
    {{Key, Waiter}, State};
offer({AskedAt, _} = Key, #waiter{monitor = Monitor} = Waiter, Behind, Now, #state{codel = Codel} = State) ->
    case weir_pool_codel:offer(Now - AskedAt, Behind, Now, Codel) of
        {serve, Served} ->
            {{Key, Waiter}, State#state{codel = Served}};
        {drop, Dropped} ->
            true = demonitor(Monitor, [flush]),
            ok = refuse(Key, codel, Now, State),
            choose(Now, skip_late(Now, State#state{codel = Dropped}))
    end.

grant({AskedAt, _} = Key, #waiter{monitor = Monitor}, Slot, Word, Pid, Now, State) ->
    #state{pool = Pool, grants = Grants} = State,
    ok = answer(Key, {granted, Pool, Slot, Word, Pid}),
    Grant = #grant{slot = Slot, word = Word, monitor = Monitor},
    longest(ms(Now - AskedAt), State#state{grants = Grants#{Key => Grant}}).

longest(Ms, #state{longest = Longest, pool = Pool} = State) when Ms > Longest ->
    ok = weir_pool_signals:set_longest(Pool, Ms),
    State#state{longest = Ms};
longest(_Ms, State) ->
    State.

%% Removes the grants that waiters have taken over, and takes back the grants that have been open for too many ticks.
%% Returns the slots that were taken back, each with the number of waiters that had its grant, times ?WIDENING.
take_back(#state{pool = undefined} = State) ->
    {#{}, State};
take_back(#state{grants = Grants, pool = Pool} = State) ->
    {Late, Open} = maps:fold(fun(Key, Grant, Acc) -> poll_grant(Key, Grant, Pool, Acc) end, {[], #{}}, Grants),
    %% Several waiters may share a grant. The first release frees the slot, and further releases do nothing.
    ok = lists:foreach(fun(#grant{slot = Slot, word = Word}) -> ok = free(Slot, Word, State) end, Late),
    Widen = fun(#grant{slot = Slot}, Most) -> Most#{Slot => maps:get(Slot, Most, 0) + ?WIDENING} end,
    {lists:foldl(Widen, #{}, Late), State#state{grants = Open}}.

poll_grant(Key, #grant{slot = Slot, word = Word, monitor = Monitor, ticks = Ticks} = Grant, Pool, {Late, Open}) ->
    case weir_pool_word:is_claimed_by(Pool, Slot, Word) of
        true when Ticks < ?TICKS_TO_TAKE_OVER ->
            {Late, Open#{Key => Grant#grant{ticks = Ticks + 1}}};
        IsLate ->
            true = demonitor(Monitor, [flush]),
            {[Grant || IsLate] ++ Late, Open}
    end.

%% Frees a slot and wakes no process: the caller grants free slots afterwards, or no request waits.
free(Slot, Word, #state{pool = Pool}) ->
    case weir_pool_word:release(Pool, Slot, Word) of
        reserved -> weir_pool_signals:notify(Pool, {released, Slot});
        _ -> ok
    end.

native(Ms) -> erlang:convert_time_unit(Ms, millisecond, native).

ms(Native) -> erlang:convert_time_unit(Native, native, millisecond).
