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
%% == Words of the gate ==
%%
%% <ul>
%% <li>MODE, WAITING, OLDEST (monotonic milliseconds of the oldest request, 0: none), LONGEST: written here only.</li>
%% <li>WAKE: 0, the number of a slot that was freed, or SEVERAL. Whoever changes it from 0 sends the message `wake';
%%   this process sets it to 0 before it looks. So there is at most one such message for each time that it looks,
%%   however many slots are freed; and it looks at one slot when it was only one.</li>
%% <li>GROW: set by claimers who could do with more workers, taken down by the keeper.</li>
%% </ul>
%%
%% == No wake-up is lost ==
%%
%% A releaser first frees the slot and then reads the mode; for the first who waits, this process first sets the mode
%% and then looks at all slots. Words are read and written in one order that all processes agree upon. So either the
%% releaser reads the mode that was set, and wakes; or it has read before that, and freed still earlier, and the slot is
%% found free. Later requests need no such look: the mode is set already. The same holds for WAKE: a releaser that finds
%% it set frees its slot before it is set to 0, and that is before the look. What a releaser does that is killed between
%% two of its steps, the tick makes up for: while anybody waits, everything is looked at every ?TICK_MS, WAKE or not.
%%
%% == Handing over ==
%%
%% A slot is claimed in the name of this process; the message says so, and whoever receives it puts its own name into
%% the word. So there is at any time one process that a claimed word belongs to and that knows of it:
%%
%% <ul>
%% <li>This process is killed: its claims are those of a dead holder. Those that were sent can still be taken over,
%%   until the keeper ends them; whoever comes too late for that, and whoever gets the monitor's message instead of an
%%   answer, asks the next queue, as of when it asked first.</li>
%% <li>The one who waits is killed: it is dead when it would be served, or its slot is still not taken over at the next
%%   tick, when it is made free again. The worker never saw a claim, so it need not be replaced.</li>
%% <li>The keeper is killed: this process is restarted with it, as if it was killed as well.</li>
%% <li>The worker dies: its slot is vacant, and nothing can be taken over. Whoever tries asks again, and keeps its
%%   place.</li>
%% </ul>
%%
%% A new process sets the gate's words to what they are when nobody waits; what was WAKE's is made up for by the first
%% request. Requests carry the pool's Base, for they may come from those who knew a namesake of the pool; the answers
%% carry the pool, because its slots may be more than the claimer knows of.
%%
%% Suspended (sys:suspend/1), this process keeps those who wait, also beyond their time.
-module(weir_pool_queue).
-behaviour(gen_server).

-export([start_link/1]).
-export([ask/4, cancel/2, wake/1, wake/2, closed/1, overload/4]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, format_status/1]).

-export_type([answer/0]).

-include("weir_pool.hrl").

%% How long one waits without being let down: so much, milliseconds, and so much more, microseconds, for each who waits.
%% Many short claims are served a hundred times as fast to those who are running as by this process, which needs some
%% microseconds for each; were the patience less than that takes for all who wait, there would be no way back.
-define(PATIENCE_MS, 5).
-define(PATIENCE_EACH_US, 10).

%% While anybody waits, or has not taken over what it was granted. Not below the patience, which the tick is to notice.
-define(TICK_MS, 10).

%% So many of those who wait are looked at in a tick, whether they are alive and in time: 0.1 ms at most.
-define(SWEEP, 1000).

%% Values of WAKE that are no slot.
-define(ASLEEP, 0).
-define(SEVERAL, -1).

%% CoDel, while it is dropping, drops whoever has waited for this many times the target.
-define(CODEL_LIMIT, 2).

-record(waiter, {
    pid :: pid(),
    %% Native monotonic time.
    deadline :: integer() | infinity
}).

%% A slot that was claimed for somebody who is to take it over.
-record(grant, {
    slot :: weir_pool:slot(),
    word :: weir_pool_word:word(),
    to :: pid()
}).

-record(state, {
    name :: weir_pool:name(),
    id :: pos_integer(),
    order :: weir_pool_waiters:order(),
    holder :: weir_pool_holder:id(),
    %% As it was when it was last read; undefined until the pool is opened.
    pool :: #pool{} | undefined,
    waiters :: weir_pool_waiters:waiters(#waiter{}),
    codel = off :: weir_pool_codel:codel() | off,
    %% Since the last tick, and those before it that were not taken over then.
    grants = [] :: [#grant{}],
    %% What the words of the gate say.
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

%% @doc Starts the queue of a pool.
-spec start_link(#boot{}) -> gen_server:start_ret().
start_link(Boot) -> gen_server:start_link(?MODULE, Boot, []).

%% @doc Asks for a worker, in the name of the calling process. The key's reference is an alias of its, to which exactly
%% one answer comes: `{Ref, answer()}'.
-spec ask(pid(), weir_pool_waiters:key(), Base :: non_neg_integer(), Deadline :: integer() | infinity) -> ok.
ask(Queue, Key, Base, Deadline) ->
    gen_server:cast(Queue, {ask, Key, Base, #waiter{pid = self(), deadline = Deadline}}).

%% @doc Takes a request back. It is answered all the same, if it was not already.
-spec cancel(pid(), weir_pool_waiters:key()) -> ok.
cancel(Queue, Key) -> gen_server:cast(Queue, {cancel, Key}).

%% @doc The keeper has closed the pool.
-spec closed(pid()) -> ok.
closed(Queue) -> gen_server:cast(Queue, closed).

%% @doc A slot, or several, may have become free. Cost: 28 ns when nobody waits.
-spec wake(#pool{}) -> ok.
wake(#pool{gate = Gate} = Pool) ->
    case atomics:get(Gate, ?GATE_MODE) of
        ?NOBODY_WAITS -> ok;
        _ -> wake_for_several(Pool)
    end.

%% @doc A slot was freed while somebody was waiting.
-spec wake(#pool{}, weir_pool:slot()) -> ok.
wake(#pool{gate = Gate} = Pool, Slot) ->
    case atomics:compare_exchange(Gate, ?GATE_WAKE, ?ASLEEP, Slot) of
        ok -> send_wake(Pool);
        ?SEVERAL -> ok;
        _Another -> wake_for_several(Pool)
    end.

wake_for_several(#pool{gate = Gate} = Pool) ->
    case atomics:exchange(Gate, ?GATE_WAKE, ?SEVERAL) of
        ?ASLEEP -> send_wake(Pool);
        _ -> ok
    end.

%% It may reach the queue of a namesake, which finds its own word 0.
send_wake(#pool{name = Name}) ->
    case weir_pool_registry:queue(Name) of
        undefined -> ok;
        Queue -> gen_server:cast(Queue, wake)
    end.

%% @doc What those are told who are turned away.
-spec overload(#pool{}, queue_full | codel, Waiting :: non_neg_integer(), Waited :: integer()) -> weir_pool:overload().
overload(#pool{name = Name}, Reason, Waiting, Waited) ->
    #{pool => Name, reason => Reason, waiting => Waiting, waited_ms => ms(Waited)}.

%% @private
-spec init(#boot{}) -> {ok, #state{}} | {stop, {shutdown, gone}}.
init(#boot{name = Name, id = Id, conf = #conf{queue = Order, codel = Codel}}) ->
    case weir_pool_registry:join(Name, Id, queue) of
        {ok, #row{}} ->
            case weir_pool_holder:id(weir_pool_holder:table()) of
                none ->
                    {stop, {shutdown, gone}};
                Holder ->
                    Pool = weir_pool_terms:pool(Name, Id),
                    Waiters = weir_pool_waiters:new(Order),
                    New = #state{name = Name, id = Id, order = Order, holder = Holder, pool = Pool, waiters = Waiters},
                    {ok, New#state{codel = codel(Codel), longest = reset(Pool)}}
            end;
        {error, gone} ->
            {stop, {shutdown, gone}}
    end.

codel(off) ->
    off;
codel({TargetMs, IntervalMs}) ->
    Target = native(TargetMs),
    weir_pool_codel:new(Target, native(IntervalMs), ?CODEL_LIMIT * Target).

%% A pool that is opened later comes with a gate of its own. WAKE before MODE: nobody changes it when nobody waits.
reset(undefined) ->
    0;
reset(#pool{gate = Gate}) ->
    ok = atomics:put(Gate, ?GATE_MODE, ?NOBODY_WAITS),
    ok = atomics:put(Gate, ?GATE_WAKE, ?ASLEEP),
    ok = atomics:put(Gate, ?GATE_WAITING, 0),
    ok = atomics:put(Gate, ?GATE_OLDEST, 0),
    atomics:get(Gate, ?GATE_LONGEST).

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, {error, {bad_call, term()}}, #state{}}.
handle_call(Request, _From, State) -> {reply, {error, {bad_call, Request}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({ask, Key, Base, Waiter}, State) ->
    case look(State) of
        {open, #state{pool = #pool{base = Base}} = Open} ->
            {noreply, enter(Key, Waiter, Open)};
        {open, Open} ->
            ok = answer(Key, gone),
            {noreply, Open};
        {closed, Closed} ->
            ok = answer(Key, {error, no_pool}),
            {noreply, Closed}
    end;
handle_cast(wake, State) ->
    case look(State) of
        {open, #state{pool = #pool{gate = Gate}} = Open} ->
            case atomics:exchange(Gate, ?GATE_WAKE, ?ASLEEP) of
                ?ASLEEP -> {noreply, Open};
                ?SEVERAL -> {noreply, settle(serve(Open))};
                Slot -> {noreply, settle(serve_slot(Slot, Open))}
            end;
        {closed, Closed} ->
            {noreply, Closed}
    end;
handle_cast({cancel, Key}, #state{waiters = Waiters} = State) ->
    case weir_pool_waiters:remove(Key, Waiters) of
        {ok, Fewer} ->
            ok = answer(Key, {error, timeout}),
            {noreply, settle(State#state{waiters = Fewer})};
        error ->
            {noreply, State}
    end;
handle_cast(closed, State) ->
    {_, Looked} = look(State),
    {noreply, Looked};
handle_cast(_Stray, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(tick, State) ->
    case look(take_back(State#state{is_ticking = false})) of
        {open, #state{pool = #pool{gate = Gate}} = Open} ->
            ok = atomics:put(Gate, ?GATE_WAKE, ?ASLEEP),
            Served = settle(serve(sweep(Open))),
            ok = press(Served),
            {noreply, Served};
        {closed, Closed} ->
            {noreply, settle(Closed)}
    end;
handle_info(_Stray, State) ->
    {noreply, State}.

%% @private
-spec format_status(gen_server:format_status()) -> gen_server:format_status().
format_status(Status) ->
    maps:map(
        fun
            (state, #state{name = Name, order = Order, waiting = Waiting, mode = Mode, grants = Grants}) ->
                #{pool => Name, order => Order, waiting => Waiting, mode => Mode, grants => length(Grants)};
            (_, Value) ->
                Value
        end,
        Status
    ).

%% ---------------------------------------------------------------- those who wait

%% The pool may have another shape, or be closed.
look(#state{name = Name, id = Id} = State) ->
    case weir_pool_terms:pool(Name, Id) of
        undefined -> {closed, turn_away(State)};
        Pool -> {open, State#state{pool = Pool}}
    end.

turn_away(#state{waiting = 0} = State) ->
    State;
turn_away(#state{waiters = Waiters, order = Order} = State) ->
    ok = weir_pool_waiters:fold(fun(Key, _Waiter, ok) -> answer(Key, {error, no_pool}) end, ok, Waiters),
    settle(State#state{waiters = weir_pool_waiters:new(Order)}).

enter(Key, _Waiter, #state{waiting = Waiting, pool = #pool{max_queue = Max}} = State) when Waiting >= Max ->
    ok = refuse(Key, queue_full, erlang:monotonic_time(), State),
    State;
enter(Key, Waiter, #state{waiters = Waiters, mode = Mode} = State) ->
    Entered = settle(State#state{waiters = weir_pool_waiters:insert(Key, Waiter, Waiters)}),
    case Mode of
        ?NOBODY_WAITS -> settle(serve(Entered));
        _ -> Entered
    end.

%% Every request is answered where it is taken out of the waiters, and nowhere else; but for those of the dead.
-spec answer(weir_pool_waiters:key(), answer()) -> ok.
answer({_AskedAt, Ref}, Answer) ->
    Ref ! {Ref, Answer},
    ok.

refuse({AskedAt, _} = Key, Reason, Now, #state{pool = Pool, waiters = Waiters}) ->
    ok = weir_pool_terms:count(Pool, ?OVERLOADS),
    answer(Key, {error, {overload, overload(Pool, Reason, weir_pool_waiters:size(Waiters), Now - AskedAt)}}).

%% Whether to keep it. The time of one that is told so here is over in its own view as well; its cancellation will find
%% nothing.
is_waiting(Key, #waiter{deadline = Deadline}, Now) when Deadline =< Now ->
    ok = answer(Key, {error, timeout}),
    false;
is_waiting(_Key, #waiter{pid = Pid}, _Now) ->
    is_process_alive(Pid).

sweep(#state{waiters = Waiters} = State) ->
    Now = erlang:monotonic_time(),
    State#state{
        waiters = weir_pool_waiters:retain(fun(Key, Waiter) -> is_waiting(Key, Waiter, Now) end, ?SWEEP, Waiters)
    }.

%% Tells the gate, and whoever reads it, how things are, and goes on ticking if needed.
settle(#state{pool = undefined} = State) ->
    State;
settle(#state{waiters = Waiters, pool = #pool{gate = Gate}} = State) ->
    Waiting = weir_pool_waiters:size(Waiters),
    Oldest =
        case weir_pool_waiters:oldest(Waiters) of
            none -> 0;
            {{AskedAt, _}, _} -> ms(AskedAt)
        end,
    Mode = mode(weir_pool_waiters:next(Waiters), Waiting),
    ok = put_changed(Gate, ?GATE_WAITING, Waiting, State#state.waiting),
    ok = put_changed(Gate, ?GATE_OLDEST, Oldest, State#state.oldest),
    ok = put_changed(Gate, ?GATE_MODE, Mode, State#state.mode),
    tick(State#state{mode = Mode, waiting = Waiting, oldest = Oldest}).

put_changed(_Gate, _Word, Value, Value) -> ok;
put_changed(Gate, Word, Value, _Was) -> atomics:put(Gate, Word, Value).

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
tick(#state{waiting = 0, grants = []} = State) ->
    State;
tick(State) ->
    _ = erlang:send_after(?TICK_MS, self(), tick),
    State#state{is_ticking = true}.

%% By now it may be dead claimers that the others wait for, or more workers could be started. Going by the oldest,
%% because last in, first out, the next may be a new one for ever.
press(#state{waiting = 0}) ->
    ok;
press(#state{pool = Pool, waiters = Waiters}) ->
    case is_impatient(weir_pool_waiters:oldest(Waiters), 0) of
        true -> weir_pool_keeper:pressed(Pool);
        false -> ok
    end.

%% ---------------------------------------------------------------- who gets the next worker

serve(#state{pool = #pool{limit = Limit}, next = Next} = State) ->
    serve(Limit, Next, erlang:monotonic_time(), State).

serve(0, Next, _Now, State) ->
    State#state{next = Next};
serve(Left, Slot, Now, #state{pool = #pool{limit = Limit}} = State) when Slot > Limit ->
    serve(Left, 1, Now, State);
serve(Left, Slot, Now, State) ->
    case serve_slot(Slot, Now, State) of
        {more, More} -> serve(Left - 1, Slot + 1, Now, More);
        {nobody, Done} -> Done#state{next = Slot}
    end.

serve_slot(Slot, #state{pool = #pool{limit = Limit}} = State) when Slot =< Limit ->
    {_, Served} = serve_slot(Slot, erlang:monotonic_time(), State),
    Served;
serve_slot(_Retired, State) ->
    State.

serve_slot(Slot, Now, #state{pool = Pool, waiters = Waiters} = State) ->
    case weir_pool_waiters:size(Waiters) of
        0 ->
            {nobody, State};
        _ ->
            case weir_pool_word:state(weir_pool_word:read(Pool, Slot)) of
                free -> serve_free(Slot, Now, skip(Now, State));
                _ -> {more, State}
            end
    end.

%% The slot is claimed before CoDel is asked, which is to be for slots that are really served. And it is not claimed
%% when nobody is there, or a newcomer would find it taken.
serve_free(Slot, Now, #state{pool = Pool, holder = Holder, waiters = Waiters} = State) ->
    case weir_pool_waiters:size(Waiters) > 0 andalso weir_pool_word:claim(Pool, Slot, Holder) of
        {ok, Word, Pid} ->
            case choose(Now, State) of
                {{Key, Waiter}, Chosen} ->
                    {more, grant(Key, Waiter, Slot, Word, Pid, Now, Chosen)};
                {none, Empty} ->
                    ok = free(Slot, Word, Empty),
                    {nobody, Empty}
            end;
        false ->
            {nobody, State#state{codel = codel_empty(Now, State#state.codel)}};
        _Lost ->
            {more, State}
    end.

%% Takes those out who are dead or late, up to the next one who is neither.
skip(Now, #state{waiters = Waiters} = State) ->
    case weir_pool_waiters:next(Waiters) of
        none ->
            State;
        {Key, Waiter} ->
            case is_waiting(Key, Waiter, Now) of
                true -> State;
                false -> skip(Now, without(Key, State))
            end
    end.

without(Key, #state{waiters = Waiters} = State) ->
    {ok, Fewer} = weir_pool_waiters:remove(Key, Waiters),
    State#state{waiters = Fewer}.

%% Takes the next one out who is to be served.
choose(Now, #state{waiters = Waiters} = State) ->
    case weir_pool_waiters:next(Waiters) of
        none -> {none, State#state{codel = codel_empty(Now, State#state.codel)}};
        {Key, Waiter} -> offer(Key, Waiter, weir_pool_waiters:size(Waiters) - 1, Now, without(Key, State))
    end.

offer(Key, Waiter, _Behind, _Now, #state{codel = off} = State) ->
    {{Key, Waiter}, State};
offer({AskedAt, _} = Key, Waiter, Behind, Now, #state{codel = Codel} = State) ->
    case weir_pool_codel:offer(Now - AskedAt, Behind, Now, Codel) of
        {serve, Served} ->
            {{Key, Waiter}, State#state{codel = Served}};
        {drop, Dropped} ->
            ok = refuse(Key, codel, Now, State),
            choose(Now, skip(Now, State#state{codel = Dropped}))
    end.

codel_empty(_Now, off) -> off;
codel_empty(Now, Codel) -> weir_pool_codel:empty(Now, Codel).

grant({AskedAt, _} = Key, #waiter{pid = To}, Slot, Word, Pid, Now, #state{pool = Pool, grants = Grants} = State) ->
    ok = answer(Key, {granted, Pool, Slot, Word, Pid}),
    longest(ms(Now - AskedAt), State#state{grants = [#grant{slot = Slot, word = Word, to = To} | Grants]}).

longest(Ms, #state{longest = Longest, pool = #pool{gate = Gate}} = State) when Ms > Longest ->
    ok = atomics:put(Gate, ?GATE_LONGEST, Ms),
    State#state{longest = Ms};
longest(_Ms, State) ->
    State.

%% Makes slots free that were granted to those who died before they took them over.
take_back(#state{grants = Grants} = State) -> State#state{grants = [Grant || Grant <- Grants, is_open(Grant, State)]}.

is_open(#grant{slot = Slot, word = Word, to = To}, #state{pool = Pool} = State) ->
    case weir_pool_word:is_held(Pool, Slot, Word) andalso is_process_alive(To) of
        true ->
            true;
        false ->
            %% Does nothing if it is taken over, or over.
            ok = free(Slot, Word, State),
            false
    end.

%% Wakes nobody: whoever calls this goes on to serve, or has nobody to serve.
free(Slot, Word, #state{pool = Pool}) ->
    case weir_pool_word:release(Pool, Slot, Word) of
        held -> weir_pool_keeper:released(Pool, Slot);
        _ -> ok
    end.

native(Ms) -> erlang:convert_time_unit(Ms, millisecond, native).

ms(Native) -> erlang:convert_time_unit(Native, native, millisecond).
