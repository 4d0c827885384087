%% @doc Claims of one worker each, in the processes that make them.
%%
%% While a worker is free, a claimer sends no message: it reads words until it finds a free one, and makes that word its
%% own by a compare-and-exchange (weir_pool_word). The claimer begins with the slot of its last claim, which is likely
%% to be free. If there are more claimers than schedulers, most other slots belong to claimers that are not running.
%%
%% For the same reason, a claimer that finds no free slot yields a few times, so that other claimers run, and searches
%% again. With 100 processes, 20 workers, 2 schedulers and empty funs, a claim then takes 110 ns. If claimers went to
%% the queue at once, each worker would pass by messages to a process that first has to be scheduled (a lock convoy),
%% which takes microseconds. After the last search, the claimer asks the queue of the pool (weir_pool_queue). The queue
%% also prevents newcomers from overtaking its waiters for longer than its patience.
%%
%% == The end of a wait ==
%%
%% A time-out and a grant may cross each other. poolboy (issues 64 and 70), worker_pool (37, 42) and poolex (210) have
%% all lost workers at this point. Here, a claimer whose time-out has passed asks the queue to cancel its request, and
%% waits for the answer to the request. The queue answers every request exactly once: with a grant, with a refusal, or
%% with `timeout' if the request was canceled or is late. A claimer that receives a grant takes the worker over, even
%% after its time-out. If the queue has taken the grant back by then, the claimer asks again. A claimer that receives
%% any other answer knows that no grant follows. If the queue dies, the message of the monitor arrives in place of the
%% answer, or after it. In none of these cases does a message remain in the mailbox, and no receive searches a long
%% mailbox.
%%
%% == Claimers that are killed ==
%%
%% A claimer that is killed before the exchange has claimed nothing. If a claimer is killed between the exchange and the
%% release, the word holds its number, and the manager learns of the death. If a claimer is killed after the release and
%% before the read of the mode, the slot is free, but the queue has no message about the slot. The next tick of the
%% queue finds the slot. While a claimer waits, the queue monitors it.
%%
%% == Claimers that fail ==
%%
%% Between the exchange and the `try' that releases, only one call can fail: the start of the process that does the work
%% of `covers => work'. If the process table is full, the claimer releases the worker, which has done nothing, and
%% raises `system_limit'.
%%
%% == Dead workers ==
%%
%% When a worker dies, its word stays as it is until the manager has received the monitor's message. If the fun of
%% claim/3 returns, the claimer releases without reading whether the worker is alive, so the next claimer may get a dead
%% worker and see its call fail. In three places the claimer reads whether the worker is alive: when checkout/2 gets the
%% worker, when a fun has raised, and in checkin/3. If the worker is dead, the claimer makes the slot vacant, so that no
%% process gets this worker afterwards. This read waits for a worker that is dying; only the claimer waits.
%%
%% == A time-out that covers the work ==
%%
%% A claim with `covers => work' belongs to the caller, like all claims. A *child* runs the fun, and its exit reason
%% carries the result. At the deadline the caller kills the child, disowns the claim, notifies the manager, and does not
%% wait until the child has ended. If the caller dies, a *guard* does the same.
%%
%% ```
%% caller --spawn_monitor--> child --spawn_link--> guard
%%    |<--- 'DOWN' ------------|                     |
%%    |----------------------- 'DOWN' -------------->|
%%                             |<------- kill -------|
%% '''
%%
%% If the guard is killed, its link kills the child too.
%%
%% == Upgrades ==
%%
%% OTP's release handler refuses to load this module a second time while a process of the first version is in a claim.
%% @private
-module(weir_pool_claim).

-export([claim/3, checkout/2, checkin/3, slot/1]).
-export([child/4, guard/3]).

-export_type([ticket/0]).

-include("weir_pool.hrl").

-record(ticket, {
    %% The pool's main term at the time of the claim. The term stays valid, because the words of a slot never move.
    pool :: #pool{},
    slot :: weir_pool:slot(),
    word :: weir_pool_word:word(),
    worker :: pid()
}).

-opaque ticket() :: #ticket{}.

%% A claim that waits, because its first search found no free slot.
-record(wait, {
    name :: weir_pool:name(),
    use :: use(),
    %% Native monotonic time of the first request. A claim that asks the queue again keeps this time, and so keeps its
    %% place in the queue.
    asked :: integer(),
    deadline :: integer() | infinity,
    %% Whether the claim has had a grant that ended before the take-over. Such a claim has passed max_queue already.
    was_granted = false :: boolean()
}).

-type use() :: fun((pid()) -> term()) | checkout | {work, fun((pid()) -> term()), Deadline :: integer() | infinity}.
%% Purpose of a claim: a fun, a ticket, or a fun that a child runs until the deadline.

%% Largest number of yields, each followed by a search, before a claimer asks the queue. In a test of a million claims
%% by 100 processes (see above), some 1,500 reach the queue if one yield is allowed, 130 with four yields, and none with
%% eight. Where workers are used for longer, eight yields take 3 us, half the cost of the queue.
-define(YIELDS, 8).
%% Largest number of slots that these searches read together. The larger the pool, the fewer yields.
-define(READS, 1000).

%% Milliseconds between two requests to a pool that is being restarted.
-define(PAUSE_MS, 1).

%% @doc See {@link weir_pool:claim/3}.
-spec claim(weir_pool:name(), fun((pid()) -> Result), weir_pool:claim_opts()) ->
    {ok, Result} | {error, weir_pool:claim_error()}.
claim(Name, Fun, Opts) when is_function(Fun, 1) ->
    case weir_pool_opts:claim(Opts) of
        {wait, Timeout} -> take(Name, Fun, Timeout);
        {work, 0} -> no_work(weir_pool_terms:pool(Name));
        {work, Timeout} -> take(Name, {work, Fun, deadline(erlang:monotonic_time(), Timeout)}, Timeout);
        {error, Wrong} -> ?BADARG([Name, Fun, Opts], #{3 => Wrong})
    end;
claim(Name, Fun, Opts) ->
    ?BADARG([Name, Fun, Opts], #{2 => "not a fun of one argument, the worker's pid"}).

%% @doc See {@link weir_pool:checkout/2}.
-spec checkout(weir_pool:name(), weir_pool:claim_opts()) ->
    {ok, pid(), ticket()} | {error, weir_pool:claim_error()}.
checkout(Name, Opts) ->
    case weir_pool_opts:claim(Opts) of
        {wait, Timeout} -> take(Name, checkout, Timeout);
        {work, _} -> ?BADARG([Name, Opts], #{2 => "covers => work is for claim/3"});
        {error, Wrong} -> ?BADARG([Name, Opts], #{2 => Wrong})
    end.

%% @doc See {@link weir_pool:checkin/3}.
-spec checkin(weir_pool:name(), ticket(), ok | fail) -> ok | {error, weir_pool:checkin_error()}.
checkin(Name, #ticket{pool = #pool{name = Name, manager = Manager}} = Ticket, How) when
    How =:= ok orelse How =:= fail
->
    case node(Manager) =:= node() of
        true -> give_back(Ticket, How);
        false -> erpc:call(node(Manager), weir_pool, checkin, [Name, Ticket, How])
    end;
checkin(_Name, #ticket{}, How) when How =:= ok; How =:= fail ->
    %% The ticket belongs to another pool.
    {error, not_held};
checkin(Name, Ticket, How) when is_record(Ticket, ticket) ->
    ?BADARG([Name, Ticket, How], #{3 => "neither ok nor fail"});
checkin(Name, Ticket, How) ->
    ?BADARG([Name, Ticket, How], #{2 => "not a ticket of checkout/2"}).

give_back(#ticket{pool = #pool{manager = Manager}, worker = Worker} = Ticket, How) ->
    %% If the manager was killed, the claim is over. No process has updated the word since, which may show an open
    %% claim.
    try give_back_word(Ticket, How) =/= not_held andalso is_process_alive(Manager) of
        true -> ok;
        false -> {error, why_over(Worker)}
    catch
        %% The ticket was on another node, and the atomics of a pool that has ended were freed meanwhile.
        error:badarg -> {error, why_over(Worker)}
    end.

give_back_word(#ticket{pool = Pool, slot = Slot, word = Word, worker = Worker}, ok) ->
    release_if_alive(Pool, Slot, Word, Worker);
give_back_word(#ticket{pool = Pool, slot = Slot, word = Word}, fail) ->
    disown(Pool, Slot, Word, failed, claimer(Word)).

why_over(Worker) ->
    case is_process_alive(Worker) of
        true -> not_held;
        false -> worker_down
    end.

%% Returns the process that made the claim, which need not be the process that gives it back.
claimer(Word) -> weir_pool_holder:pid(weir_pool_word:holder(weir_pool_word:claim_of(Word))).

%% @doc See {@link weir_pool:slot/1}.
-spec slot(ticket()) -> weir_pool:slot().
slot(#ticket{slot = Slot}) -> Slot;
slot(Ticket) -> ?BADARG([Ticket], #{1 => "not a ticket of checkout/2"}).

%% ---------------------------------------------------------------- a free worker

take(Name, Use, Timeout) ->
    case weir_pool_terms:pool(Name) of
        #pool{signals = Signals} = Pool ->
            case atomics:get(Signals, ?SIGNAL_MODE) of
                ?STARVING ->
                    none_free(Pool, Name, Use, Timeout);
                ?UNWATCHED ->
                    ok = weir_pool_signals:watch(Pool),
                    take_first(weir_pool_holder:claimer(), Pool, Name, Use, Timeout);
                _ ->
                    take_first(weir_pool_holder:claimer(), Pool, Name, Use, Timeout)
            end;
        undefined ->
            {error, no_pool}
    end.

take_first({_, Holder, Last} = Claimer, Pool, Name, Use, Timeout) ->
    First = first(Last, Pool),
    case weir_pool_word:claim_free(Pool, First, Holder) of
        {ok, Word, Pid} ->
            case is_usable(Use, Pool, First, Word, Pid) of
                true -> use(Use, Pool, First, Word, Pid);
                false -> search(Claimer, Pool, Name, Use, Timeout)
            end;
        _ ->
            search(Claimer, Pool, Name, Use, Timeout)
    end.

search(Claimer, Pool, Name, Use, Timeout) ->
    case find(Use, Pool, Claimer) of
        {ok, Slot, Word, Pid} -> use(Use, Pool, Slot, Word, Pid);
        none -> none_free(Pool, Name, Use, Timeout)
    end.

%% Returns the first slot to try: the slot of the process's last claim in any pool, mapped to the slots of this pool.
first(Last, #pool{size = Size}) when Last =< Size -> Last;
first(_Last, #pool{size = 0}) -> 1;
first(Last, #pool{size = Size}) -> Last rem Size + 1.

find(Use, Pool, {_, Holder, Last} = Claimer) ->
    case weir_pool_word:find(Pool, first(Last, Pool), Holder) of
        {ok, Slot, Word, Pid} = Found ->
            case is_usable(Use, Pool, Slot, Word, Pid) of
                true ->
                    ok = weir_pool_holder:remember(Claimer, Slot),
                    Found;
                false ->
                    find(Use, Pool, Claimer)
            end;
        none ->
            none
    end.

%% Returns whether a worker that was just claimed can be used. If not, its slot is vacant. Only checkout/2 reads whether
%% the worker is alive: the fun of claim/3 notices a dead worker itself, when its call fails.
is_usable(checkout, Pool, Slot, Word, Worker) ->
    case is_process_alive(Worker) of
        true ->
            true;
        false ->
            _ = release_dead(Pool, Slot, Word),
            false
    end;
is_usable(_Fun, _Pool, _Slot, _Word, _Worker) ->
    true.

use(checkout, Pool, Slot, Word, Pid) ->
    {ok, Pid, #ticket{pool = Pool, slot = Slot, word = Word, worker = Pid}};
use({work, Fun, Deadline}, Pool, Slot, Word, Pid) ->
    work(Fun, left(Deadline), Pool, Slot, Word, Pid);
use(Fun, Pool, Slot, Word, Pid) ->
    try Fun(Pid) of
        Result ->
            _ = release(Pool, Slot, Word),
            {ok, Result}
    catch
        Class:Reason:Stack ->
            _ =
                case is_timeout_of(Pid, Class, Reason) of
                    true -> disown(Pool, Slot, Word, timeout, self());
                    false -> release_if_alive(Pool, Slot, Word, Pid)
                end,
            erlang:raise(Class, Reason, Stack)
    end.

%% Returns whether the exception is the time-out of a call to this worker. Then the worker is likely to be still busy.
is_timeout_of(Pid, exit, {timeout, {_Module, _Function, [Callee | _]}}) -> whereis_callee(Callee) =:= Pid;
is_timeout_of(_Pid, _Class, _Reason) -> false.

whereis_callee(Name) when is_atom(Name) -> whereis(Name);
whereis_callee({Name, Node}) when is_atom(Name), Node =:= node() -> whereis(Name);
whereis_callee({global, Name}) -> whereis_via(global, Name);
whereis_callee({via, Module, Name}) -> whereis_via(Module, Name);
whereis_callee(Other) -> Other.

%% The registry is foreign code. If it fails, the claim ends all the same.
whereis_via(Module, Name) ->
    try
        Module:whereis_name(Name)
    catch
        _:_ -> undefined
    end.

release(#pool{signals = Signals} = Pool, Slot, Word) ->
    case weir_pool_word:release(Pool, Slot, Word) of
        free ->
            ok = if_for_overflow(Pool, Slot),
            %% The read of the mode comes after the release, so that no wake-up is lost (weir_pool_queue).
            case atomics:get(Signals, ?SIGNAL_MODE) of
                Mode when Mode =< ?NOBODY_WAITS -> free;
                _ -> woken(Pool, Slot)
            end;
        NotFree ->
            _ = NotFree =:= reserved andalso weir_pool_signals:notify(Pool, {released, Slot}),
            NotFree
    end.

woken(Pool, Slot) ->
    ok = weir_pool_signals:wake(Pool, Slot),
    free.

if_for_overflow(#pool{size = Size} = Pool, Slot) when Slot > Size ->
    weir_pool_signals:overflow_released(Pool);
if_for_overflow(_Pool, _Slot) ->
    ok.

%% Ends a claim of a worker that may be dead. Waits for a worker that is dying.
release_if_alive(Pool, Slot, Word, Worker) ->
    case is_process_alive(Worker) of
        true -> release(Pool, Slot, Word);
        false -> release_dead(Pool, Slot, Word)
    end.

%% Ends a claim of a dead worker, and makes its slot vacant.
release_dead(Pool, Slot, Word) ->
    Was = weir_pool_word:release_dead(Pool, Slot, Word),
    _ = Was =:= marked andalso weir_pool_signals:notify(Pool, {released, Slot}),
    Was.

%% Ends a claim of a worker that is likely to be busy or broken, and leaves the worker to the manager.
disown(Pool, Slot, Word, Why, Claimer) ->
    case weir_pool_word:disown(Pool, Slot, Word) of
        {ok, Claim} ->
            ok = weir_pool_signals:notify(Pool, {abandon, Slot, Claim, #{why => Why, claimer => Claimer}}),
            disowned;
        not_held ->
            not_held
    end.

%% ---------------------------------------------------------------- none is free

none_free(Pool, _Name, _Use, 0) ->
    ok = weir_pool_signals:want_more(Pool),
    case weir_pool_word:is_any_filled(Pool) of
        true ->
            ok = weir_pool_terms:count(Pool, ?BUSY),
            {error, busy};
        false ->
            {error, no_worker}
    end;
none_free(#pool{limit = Limit}, Name, Use, Timeout) ->
    Asked = erlang:monotonic_time(),
    Wait = #wait{name = Name, use = Use, asked = Asked, deadline = deadline(Asked, Timeout)},
    try_again(min(?YIELDS, ?READS div max(1, Limit)), Wait).

try_again(Yields, #wait{name = Name, use = Use, was_granted = WasGranted} = Wait) ->
    _ = Yields > 0 andalso erlang:yield(),
    Claimer = weir_pool_holder:claimer(),
    case weir_pool_terms:pool(Name) of
        #pool{signals = Signals} = Pool ->
            case atomics:get(Signals, ?SIGNAL_MODE) =/= ?STARVING andalso find(Use, Pool, Claimer) of
                {ok, Slot, Word, Pid} ->
                    _ = WasGranted andalso weir_pool_terms:count(Pool, ?WAITS),
                    use(Use, Pool, Slot, Word, Pid);
                none when Yields > 1 -> try_again(Yields - 1, Wait);
                _NoneOrStarving -> ask(Pool, Claimer, Wait)
            end;
        undefined ->
            {error, no_pool}
    end.

ask(#pool{max_queue = MaxQueue} = Pool, Claimer, #wait{asked = Asked, was_granted = WasGranted} = Wait) ->
    ok = weir_pool_signals:want_more(Pool),
    case weir_pool_signals:waiting(Pool) of
        Waiting when Waiting >= MaxQueue, not WasGranted ->
            ok = weir_pool_terms:count(Pool, ?OVERLOADS),
            {error, {overload, weir_pool_queue:overload(Pool, queue_full, Waiting, erlang:monotonic_time() - Asked)}};
        _ ->
            answered(await(Pool, Wait), Claimer, Pool, Wait)
    end.

await(#pool{base = Base, queue = Queue}, #wait{asked = Asked, deadline = Deadline, was_granted = WasGranted}) ->
    Left = left(Deadline),
    %% The first answer that arrives through the alias ends both the alias and the monitor.
    Ref = monitor(process, Queue, [{alias, reply_demonitor}]),
    ok = weir_pool_queue:ask(Queue, {Asked, Ref}, Base, Deadline, WasGranted),
    receive
        {Ref, Answer} -> Answer;
        {'DOWN', Ref, process, _Queue, _Reason} -> gone
    after Left ->
        ok = weir_pool_queue:cancel(Queue, {Asked, Ref}),
        receive
            {Ref, Answer} -> Answer;
            {'DOWN', Ref, process, _Queue, _Reason} -> gone
        end
    end.

%% Acts on the answer of the queue. A grant holds the newest main term of the pool, which may have more slots than the
%% claimer's.
answered({granted, Pool, Slot, QueueWord, Pid}, {_, Holder, _}, _Pool, #wait{use = Use} = Wait) ->
    case weir_pool_word:take_over(Pool, Slot, QueueWord, Holder) of
        {ok, Word} ->
            case is_usable(Use, Pool, Slot, Word, Pid) of
                true ->
                    ok = weir_pool_terms:count(Pool, ?WAITS),
                    use(Use, Pool, Slot, Word, Pid);
                false ->
                    ask_again(Pool, Wait#wait{was_granted = true})
            end;
        not_held ->
            %% The manager has seen the worker's death, or the queue has taken the grant back (weir_pool_queue).
            ask_again(Pool, Wait#wait{was_granted = true})
    end;
answered(gone, _Claimer, Pool, #wait{deadline = Deadline} = Wait) ->
    receive
    after min(?PAUSE_MS, left(Deadline)) -> ask_again(Pool, Wait)
    end;
answered({error, timeout}, _Claimer, Pool, _Wait) ->
    timed_out(Pool);
answered({error, Reason}, _Claimer, _Pool, _Wait) ->
    {error, Reason}.

ask_again(Pool, #wait{deadline = Deadline} = Wait) ->
    case left(Deadline) of
        0 -> timed_out(Pool);
        _ -> try_again(0, Wait)
    end.

deadline(_Now, infinity) -> infinity;
deadline(Now, Timeout) -> Now + erlang:convert_time_unit(Timeout, millisecond, native).

left(infinity) ->
    infinity;
left(Deadline) ->
    case Deadline - erlang:monotonic_time() of
        %% Rounded up, so that no wait ends before the deadline.
        Left when Left > 0 -> min(erlang:convert_time_unit(Left, native, millisecond) + 1, ?MAX_MS);
        _ -> 0
    end.

timed_out(Pool) ->
    ok = weir_pool_terms:count(Pool, ?TIMEOUTS),
    {error, timeout}.

%% ---------------------------------------------------------------- the time-out covers the work

%% A time-out of 0 leaves no time for the work, so the claim fails at once.
no_work(undefined) -> {error, no_pool};
no_work(Pool) -> timed_out(Pool).

work(Fun, Left, Pool, Slot, Word, Worker) ->
    try spawn_monitor(?MODULE, child, [self(), Fun, {Pool, Slot, Word}, Worker]) of
        {Child, Ref} -> await_work(Child, Ref, Left, Pool, Slot, Word, Worker)
    catch
        error:system_limit:Stack ->
            _ = release(Pool, Slot, Word),
            erlang:raise(error, system_limit, Stack)
    end.

await_work(Child, Ref, Left, Pool, Slot, Word, Worker) ->
    receive
        {'DOWN', Ref, process, Child, {?MODULE, Outcome}} ->
            use(fun(_Worker) -> outcome(Outcome) end, Pool, Slot, Word, Worker);
        %% The child was killed by a process or a link, and the worker may be busy with its call.
        {'DOWN', Ref, process, Child, Reason} ->
            _ = disown(Pool, Slot, Word, killed, self()),
            exit(Reason)
    after Left ->
        true = exit(Child, kill),
        case demonitor(Ref, [info]) of
            true ->
                ok;
            false ->
                %% The child has just ended. This receive finds the message by its reference; the option flush would
                %% search the mailbox.
                receive
                    {'DOWN', Ref, process, Child, _Reason} -> ok
                end
        end,
        _ = disown(Pool, Slot, Word, overdue, self()),
        timed_out(Pool)
    end.

outcome({returned, Result}) -> Result;
outcome({raised, Class, Reason, Stack}) -> erlang:raise(Class, Reason, Stack).

%% @private
-spec child(Caller :: pid(), fun((pid()) -> term()), Claim, Worker :: pid()) -> no_return() when
    Claim :: {#pool{}, weir_pool:slot(), weir_pool_word:word()}.
child(Caller, Fun, Claim, Worker) ->
    Outcome =
        try
            %% If the guard cannot be started, the caller releases the worker and raises `system_limit'.
            _ = spawn_link(?MODULE, guard, [Caller, self(), Claim]),
            {returned, Fun(Worker)}
        catch
            Class:Reason:Stack -> {raised, Class, Reason, Stack}
        end,
    exit({?MODULE, Outcome}).

%% @private
-spec guard(Caller :: pid(), Child :: pid(), {#pool{}, weir_pool:slot(), weir_pool_word:word()}) -> ok.
guard(Caller, Child, {Pool, Slot, Word}) ->
    process_flag(trap_exit, true),
    Monitor = monitor(process, Caller),
    receive
        {'EXIT', Child, _Reason} ->
            ok;
        {'DOWN', Monitor, process, Caller, _Reason} ->
            true = exit(Child, kill),
            _ = disown(Pool, Slot, Word, dead, Caller),
            ok
    end.
