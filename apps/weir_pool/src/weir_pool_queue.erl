%% @doc Queue of one pool: those who wait for a worker, and who gets the next.
%%
%% Most claims never come here (weir_pool_claim). Those that found nothing free ask, and are answered once: with a
%% worker, or with an error. Whoever frees a slot while somebody waits wakes this process, which claims slots for those
%% who wait, in their order.
%%
%% Modes, after Go's sync.Mutex. Normally (`SOMEBODY_WAITS') newcomers may take a slot that was just freed: they are
%% running, so the worker is used again at once, where the one who waits would first have to get its turn. But when the
%% one who is next has waited for long (?PATIENCE_MS), the mode is `STARVING': newcomers queue up, and only this process
%% takes slots, until the next one has waited for less.
%%
%% This process waits for nobody: of those who wait it learns by monitors that they are dead.
%%
%% == No wake-up is lost ==
%%
%% A releaser first frees the slot and then reads the mode; for the first who waits, this process first sets the mode
%% and then looks for a free slot. Words are read and written in one order that all processes agree upon. So either the
%% releaser reads the mode that was set, and wakes; or it has read before that, and freed still earlier, and the slot is
%% found free. Later requests need no such look: the mode is set already. The same holds for WAKE: a releaser that finds
%% it set frees its slot before it is set to 0, and that is before the look. What a releaser does that is killed between
%% two of its steps, the tick makes up for: while anybody waits, a free slot is looked for every ?TICK_MS, WAKE or not.
%%
%% == Handing over ==
%%
%% A slot is claimed in the name of this process; the message says so, and whoever receives it puts its own name into
%% the word. So there is at any time one process that a claimed word belongs to and that knows of it:
%%
%% <ul>
%% <li>This process dies: so does the pool. Whoever gets the monitor's message instead of an answer finds that there is
%%   none, or asks its successor, as of when it asked first.</li>
%% <li>The one who waits dies: its monitor tells, and it is not served, or its slot, if not taken over, is made free
%%   again. The worker never saw a claim, so it need not be replaced.</li>
%% <li>The one who waits takes long to die, or gets no turn to run: after ?TICKS_TO_TAKE_OVER ticks the slot is made
%%   free again. A tick is a turn of this process, so where turns are long in coming, everybody is given longer.</li>
%% <li>The worker dies: its slot is vacant, and nothing can be taken over. Whoever tries that, or comes too late for
%%   what it was granted, asks again, and keeps its place.</li>
%% </ul>
%%
%% Requests carry the pool's Base, for they may come from those who knew a namesake of the pool; the answers carry the
%% pool, because its slots may be more than the claimer knows of.
%%
%% Suspended (sys:suspend/1), this process keeps those who wait, also beyond their time.
%% @private
-module(weir_pool_queue).
-behaviour(gen_server).

-export([start_link/3]).
-export([ask/4, cancel/2, closed/1, overload/4]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, code_change/3, format_status/1]).

-export_type([answer/0, key/0]).

-include("weir_pool.hrl").

%% How long one waits without being let down: so much, milliseconds, and so much more, microseconds, for each who waits.
%% Many short claims are served a hundred times as fast to those who are running as by this process, which needs some
%% microseconds for each; were the patience less than that takes for all who wait, there would be no way back.
-define(PATIENCE_MS, 5).
-define(PATIENCE_EACH_US, 10).

%% While anybody waits, or has not taken over what it was granted. Not below the patience, which the tick is to notice.
-define(TICK_MS, 10).

%% How many ticks whoever is granted a slot has to take it over.
-define(TICKS_TO_TAKE_OVER, 5).

%% CoDel, while it is dropping, drops whoever has waited for this many times the target.
-define(CODEL_LIMIT, 2).

%% The moment is the claimer's: a request that is made again keeps its place. The reference is an alias, and tells
%% requests of the same moment apart.
-type key() :: {AskedAt :: integer(), reference()}.

-record(waiter, {
    pid :: pid(),
    %% Native monotonic time.
    deadline :: integer() | infinity,
    monitor :: reference() | undefined
}).

%% A slot that was claimed for somebody who is to take it over.
-record(grant, {
    slot :: weir_pool:slot(),
    word :: weir_pool_word:word(),
    monitor :: reference(),
    ticks = 0 :: non_neg_integer()
}).

-record(state, {
    name :: weir_pool:name(),
    base :: non_neg_integer(),
    %% Who is next: the first who asked, or the last.
    order :: fifo | lifo,
    holder :: weir_pool_holder:id(),
    %% As it was when it was last read; undefined until the pool is opened.
    pool :: #pool{} | undefined,
    waiters = gb_trees:empty() :: gb_trees:tree(key(), #waiter{}),
    codel = off :: weir_pool_codel:codel() | off,
    grants = #{} :: #{key() => #grant{}},
    %% What the words of the signals say.
    mode = ?NOBODY_WAITS :: ?NOBODY_WAITS | ?SOMEBODY_WAITS | ?STARVING,
    waiting = 0 :: non_neg_integer(),
    oldest = 0 :: integer(),
    longest = 0 :: non_neg_integer(),
    %% Where the next search for a free slot begins, so that all workers get their share.
    next = 1 :: pos_integer(),
    is_ticking = false :: boolean()
}).

-type answer() ::
    {granted, #pool{}, weir_pool:slot(), weir_pool_word:word(), Worker :: pid()}
    | {error, weir_pool:claim_error()}
    | gone.
%% `gone': the pool that was asked for is another one.

%% @doc Starts the queue of a pool, linked to its manager.
-spec start_link(weir_pool:name(), Base :: non_neg_integer(), #conf{}) -> {ok, pid()} | ignore | {error, term()}.
start_link(Name, Base, Conf) -> gen_server:start_link(?MODULE, {Name, Base, Conf}, []).

%% @doc Asks for a worker, in the name of the calling process. The key's reference is an alias of its, to which exactly
%% one answer comes: `{Ref, answer()}'.
-spec ask(pid(), key(), Base :: non_neg_integer(), Deadline :: integer() | infinity) -> ok.
ask(Queue, Key, Base, Deadline) ->
    gen_server:cast(Queue, {ask, Key, Base, #waiter{pid = self(), deadline = Deadline}}).

%% @doc Takes a request back. It is answered all the same, if it was not already.
-spec cancel(pid(), key()) -> ok.
cancel(Queue, Key) -> gen_server:cast(Queue, {cancel, Key}).

%% @doc The manager has closed the pool.
-spec closed(pid()) -> ok.
closed(Queue) -> gen_server:cast(Queue, closed).

%% @doc What those are told who are turned away.
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
            Served = settle(serve(taken_over(Open))),
            ok = press(Served),
            {noreply, Served};
        {closed, Closed} ->
            {noreply, settle(taken_over(Closed))}
    end;
handle_info({{down, Key}, _Monitor, process, _Pid, _Reason}, #state{grants = Grants} = State) ->
    case without(Key, State) of
        {ok, Fewer} ->
            {noreply, settle(if_empty(Fewer))};
        error ->
            case maps:take(Key, Grants) of
                {#grant{slot = Slot, word = Word}, Others} ->
                    %% Does nothing if it was taken over, or is over.
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

%% ---------------------------------------------------------------- those who wait

%% The pool may have another shape, or be closed.
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

enter(Key, _Waiter, #state{waiting = Waiting, pool = #pool{max_queue = Max}} = State) when Waiting >= Max ->
    ok = refuse(Key, queue_full, erlang:monotonic_time(), State),
    State;
enter(Key, #waiter{pid = Pid} = Waiter, #state{waiters = Waiters, mode = Mode} = State) ->
    Monitored = Waiter#waiter{monitor = erlang:monitor(process, Pid, [{tag, {down, Key}}])},
    Entered = settle(State#state{waiters = gb_trees:insert(Key, Monitored, Waiters)}),
    case Mode of
        ?NOBODY_WAITS -> settle(serve(Entered));
        _ -> Entered
    end.

%% Every request is answered where it is taken out of the waiters, and nowhere else; but for those of the dead.
-spec answer(key(), answer()) -> ok.
answer({_AskedAt, Ref}, Answer) ->
    Ref ! {Ref, Answer},
    ok.

refuse({AskedAt, _} = Key, Reason, Now, #state{pool = Pool, waiters = Waiters}) ->
    ok = weir_pool_terms:count(Pool, ?OVERLOADS),
    answer(Key, {error, {overload, overload(Pool, Reason, gb_trees:size(Waiters), Now - AskedAt)}}).

%% Takes one out of those who wait.
without(Key, #state{waiters = Waiters} = State) ->
    case gb_trees:take_any(Key, Waiters) of
        {#waiter{monitor = Monitor}, Fewer} ->
            true = demonitor(Monitor, [flush]),
            {ok, State#state{waiters = Fewer}};
        error ->
            error
    end.

%% Who is to be served next.
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

%% CoDel is to know when nobody waits any more, though nobody was served.
if_empty(#state{codel = off} = State) ->
    State;
if_empty(#state{waiters = Waiters, codel = Codel} = State) ->
    case gb_trees:size(Waiters) of
        0 -> State#state{codel = weir_pool_codel:empty(erlang:monotonic_time(), Codel)};
        _ -> State
    end.

%% Tells the signals, and whoever reads it, how things are, and goes on ticking if needed.
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
    %% Each write takes the word's line from the processors of all claimers, so equal values are not written.
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

%% By now it may be dead claimers that the others wait for, or more workers could be started. Going by the oldest,
%% because last in, first out, the next may be a new one for ever.
press(#state{waiting = 0}) ->
    ok;
press(#state{pool = Pool, waiters = Waiters}) ->
    case is_impatient(oldest(Waiters), 0) of
        true -> weir_pool_signals:notify(Pool, pressed);
        false -> ok
    end.

%% ---------------------------------------------------------------- who gets the next worker

%% As many as there are free slots for.
serve(State) ->
    Now = erlang:monotonic_time(),
    serve(Now, skip_late(Now, State)).

serve(Now, #state{waiters = Waiters, pool = Pool, next = Next, holder = Holder} = State) ->
    case gb_trees:size(Waiters) > 0 andalso weir_pool_word:find(Pool, Next, Holder) of
        {ok, Slot, Word, Pid} -> serve(Now, hand_over(Slot, Word, Pid, Now, State#state{next = Slot + 1}));
        _NobodyOrNone -> State
    end.

serve_slot(Slot, #state{pool = #pool{limit = Limit} = Pool, holder = Holder} = State) when Slot =< Limit ->
    Now = erlang:monotonic_time(),
    #state{waiters = Waiters} = Skipped = skip_late(Now, State),
    case gb_trees:size(Waiters) > 0 andalso weir_pool_word:claim(Pool, Slot, Holder) of
        {ok, Word, Pid} -> hand_over(Slot, Word, Pid, Now, Skipped);
        _NobodyOrLost -> Skipped
    end;
serve_slot(_Retired, State) ->
    State.

%% The slot is claimed before CoDel is asked, which is to be for slots that are really served. And it is not claimed
%% when nobody is there, or a newcomer would find it taken.
hand_over(Slot, Word, Pid, Now, State) ->
    case choose(Now, State) of
        {{Key, Waiter}, Chosen} ->
            grant(Key, Waiter, Slot, Word, Pid, Now, Chosen);
        {none, Empty} ->
            ok = free(Slot, Word, Empty),
            Empty
    end.

%% Takes those out who are late, up to the next one who is not.
skip_late(Now, State) ->
    case next(State) of
        {Key, #waiter{deadline = Deadline}} when is_integer(Deadline), Deadline =< Now ->
            {ok, Fewer} = without(Key, State),
            ok = answer(Key, {error, timeout}),
            skip_late(Now, if_empty(Fewer));
        _ ->
            State
    end.

%% Takes the next one out who is to be served.
choose(Now, #state{waiters = Waiters} = State) ->
    case next(State) of
        none ->
            {none, if_empty(State)};
        {Key, _} ->
            %% Its monitor stays: whoever is served is watched until it has taken over.
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

%% Forgets the grants that were taken over, or are over, and takes those back that have not been for long.
taken_over(#state{pool = undefined} = State) ->
    State;
taken_over(#state{grants = Grants, pool = Pool} = State) ->
    IsOpen = fun(_Key, #grant{slot = Slot, word = Word, monitor = Monitor, ticks = Ticks} = Grant) ->
        case weir_pool_word:is_claimed_by(Pool, Slot, Word) of
            true when Ticks < ?TICKS_TO_TAKE_OVER ->
                {true, Grant#grant{ticks = Ticks + 1}};
            IsLate ->
                true = demonitor(Monitor, [flush]),
                _ = IsLate andalso free(Slot, Word, State),
                false
        end
    end,
    State#state{grants = maps:filtermap(IsOpen, Grants)}.

%% Wakes nobody: whoever calls this goes on to serve, or has nobody to serve.
free(Slot, Word, #state{pool = Pool}) ->
    case weir_pool_word:release(Pool, Slot, Word) of
        reserved -> weir_pool_signals:notify(Pool, {released, Slot});
        _ -> ok
    end.

native(Ms) -> erlang:convert_time_unit(Ms, millisecond, native).

ms(Native) -> erlang:convert_time_unit(Native, native, millisecond).
