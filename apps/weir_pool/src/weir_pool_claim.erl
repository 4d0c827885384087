%% @doc Claims, as seen by the process that makes them.
%%
%% While a worker is free nobody is asked: the claimer reads words until one is free, and makes it its own by an
%% exchange (weir_pool_word). It begins with the slot it had last, which is likely to be free still: with more claimers
%% than schedulers, most others are held by processes that wait for their turn to run.
%%
%% For the same reason one that finds nothing free first lets those others run, a few times, and looks again. With 100
%% processes, 20 workers, 2 schedulers and nothing done in the claims, a claim so costs 110 ns; if it queued up at once,
%% every worker would be passed on by messages, to a process that has to wait for its turn again (a lock convoy), at the
%% cost of microseconds. Who gives up after that asks the pool's queue (weir_pool_queue), which also sees to it that
%% those who wait are not passed by newcomers for ever.
%%
%% The race at the end of a wait. A time-out may cross the grant that is under way; poolboy (issues 64 and 70),
%% worker_pool (37, 42) and poolex (210) have all lost workers, or handed them to nobody, there. Here a claimer whose
%% time is over does not leave: it tells the queue to cancel, and waits for the answer to its request, which always
%% comes. The queue answers every request exactly once, with the grant, with a refusal, or with `timeout' for one that
%% was cancelled or is late. So whoever gets a grant takes it, even if a moment late, or asks again if that is so late
%% that the queue has taken it back; and whoever gets anything else knows that no grant comes. If the queue dies
%% instead, the monitor says so, behind any answer. Nothing is left in the mailbox in any of these cases, and a claimer
%% with a long mailbox does not search it.
%%
%% A claimer may be killed anywhere. Before the exchange, it has nothing. From the exchange to the release, its number
%% is in the word, and the manager learns that it is dead. Between the release and the look at the signals, the worker
%% is free but nobody is told; the queue's next tick finds it. While it waits, the queue hears of its death.
%%
%% Dead workers. Between a worker's death and the moment when the manager has heard of it the word is free or taken as
%% before. A release after a fun that returned puts it back without a look, so the next claimer may get it, and sees its
%% call fail. Whoever has seen anything fail looks whether the worker is alive before it lets go, and makes the slot of
%% a dead one vacant: nobody gets it after that. The look waits for a worker that is just dying; only the claimer does.
%%
%% A claim whose time-out covers the work is the caller's like any other, but its fun is run by a *child*, whose exit
%% carries the outcome. At the deadline the caller kills the child, makes the claim nobody's and tells the manager; it
%% does not wait for the child's end. Should the caller die, a *guard* does that.
%%
%% ```
%% caller --spawn_monitor--> child --spawn_link--> guard
%%    |<--- 'DOWN' ------------|                     |
%%    |----------------------- 'DOWN' -------------->|
%%                             |<------- kill -------|
%% '''
%%
%% A guard that is killed takes the child with it.
%%
%% Loading a new version of this module twice kills the processes that are inside a fun, or wait: the first version is
%% then still on their stack. `code:soft_purge/1' tells whether there are any.
%% @private
-module(weir_pool_claim).

-export([claim/3, checkout/2, checkin/3, slot/1]).
-export([child/4, guard/3]).

-export_type([ticket/0]).

-include("weir_pool.hrl").

-record(ticket, {
    %% As it was when the claim was made: a slot's words never move.
    pool :: #pool{},
    slot :: weir_pool:slot(),
    word :: weir_pool_word:word(),
    worker :: pid()
}).

-opaque ticket() :: #ticket{}.

%% A claim that does not get a worker at once.
-record(wait, {
    name :: weir_pool:name(),
    use :: use(),
    %% Both native monotonic time. A request that is made again keeps its place.
    asked :: integer(),
    deadline :: integer() | infinity
}).

-type use() :: fun((pid()) -> term()) | checkout | {work, fun((pid()) -> term()), Deadline :: integer() | infinity}.
%% What a worker is claimed for.

%% How often one that finds nothing free lets others run and looks again before it asks the queue, and how many slots it
%% looks at for that at most. Of a million claims by 100 processes as above, some 1,500 queue up after one yield, 130
%% after four, and none after eight. Where workers are used for longer, eight cost 3 us more, half as much as queueing
%% does.
-define(YIELDS, 8).
-define(READS, 1000).

%% How long one waits for the pool's next queue process.
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
-spec checkin(weir_pool:name(), ticket(), ok | fail) -> ok | {error, not_held}.
checkin(Name, #ticket{pool = #pool{name = Name, manager = Manager}} = Ticket, How) when
    How =:= ok orelse How =:= fail
->
    case node(Manager) =:= node() of
        true -> give_back(Ticket, How);
        false -> erpc:call(node(Manager), weir_pool, checkin, [Name, Ticket, How])
    end;
checkin(_Name, #ticket{}, How) when How =:= ok; How =:= fail ->
    {error, not_held};
checkin(Name, Ticket, How) when is_record(Ticket, ticket) ->
    ?BADARG([Name, Ticket, How], #{3 => "neither ok nor fail"});
checkin(Name, Ticket, How) ->
    ?BADARG([Name, Ticket, How], #{2 => "not a ticket of checkout/2"}).

give_back(#ticket{pool = #pool{manager = Manager}} = Ticket, How) ->
    %% The words of a pool whose manager was killed say what they said then. The claimer asks, and it alone waits.
    try give_back_word(Ticket, How) =/= not_held andalso is_process_alive(Manager) of
        true -> ok;
        false -> {error, not_held}
    catch
        %% The ticket has been on another node, and nothing of this one has kept the atomics of a pool that is gone.
        error:badarg -> {error, not_held}
    end.

give_back_word(#ticket{pool = Pool, slot = Slot, word = Word, worker = Worker}, ok) ->
    release_if_alive(Pool, Slot, Word, Worker);
give_back_word(#ticket{pool = Pool, slot = Slot, word = Word}, fail) ->
    disown(Pool, Slot, Word, failed, claimer(Word)).

%% Any process may give back what another has claimed.
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
            use(Use, Pool, First, Word, Pid);
        _ ->
            case find(Pool, Claimer) of
                {ok, Slot, Word, Pid} -> use(Use, Pool, Slot, Word, Pid);
                none -> none_free(Pool, Name, Use, Timeout)
            end
    end.

%% Where to begin: with the slot that the process had last, in whatever pool it was.
first(Last, #pool{size = Size}) when Last =< Size -> Last;
first(_Last, #pool{size = 0}) -> 1;
first(Last, #pool{size = Size}) -> Last rem Size + 1.

find(Pool, {_, Holder, Last} = Claimer) ->
    case weir_pool_word:find(Pool, first(Last, Pool), Holder) of
        {ok, Slot, _Word, _Pid} = Found ->
            ok = weir_pool_holder:remember(Claimer, Slot),
            Found;
        none ->
            none
    end.

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

%% Whether a call of this worker, and not of another process, has timed out: then the worker is likely to be busy still.
is_timeout_of(Pid, exit, {timeout, {_Module, _Function, [Callee | _]}}) -> whereis_callee(Callee) =:= Pid;
is_timeout_of(_Pid, _Class, _Reason) -> false.

whereis_callee(Name) when is_atom(Name) -> whereis(Name);
whereis_callee({Name, Node}) when is_atom(Name), Node =:= node() -> whereis(Name);
whereis_callee({global, Name}) -> global:whereis_name(Name);
whereis_callee({via, Module, Name}) ->
    %% Somebody else's code, which must not keep the claim from its end.
    try
        Module:whereis_name(Name)
    catch
        _:_ -> undefined
    end;
whereis_callee(Other) -> Other.

release(#pool{signals = Signals} = Pool, Slot, Word) ->
    case weir_pool_word:release(Pool, Slot, Word) of
        free ->
            ok = if_for_overflow(Pool, Slot),
            %% In this order: see weir_pool_queue.
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

%% In the claimer: a worker that is just dying is waited for by who had it.
release_if_alive(Pool, Slot, Word, Worker) ->
    case is_process_alive(Worker) of
        true ->
            release(Pool, Slot, Word);
        false ->
            Dropped = weir_pool_word:release_dead(Pool, Slot, Word),
            _ = Dropped =:= marked andalso weir_pool_signals:notify(Pool, {released, Slot}),
            Dropped
    end.

%% The worker is likely to be busy still, or is broken.
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

try_again(Yields, #wait{name = Name, use = Use} = Wait) ->
    _ = Yields > 0 andalso erlang:yield(),
    Claimer = weir_pool_holder:claimer(),
    case weir_pool_terms:pool(Name) of
        #pool{signals = Signals} = Pool ->
            case atomics:get(Signals, ?SIGNAL_MODE) =/= ?STARVING andalso find(Pool, Claimer) of
                {ok, Slot, Word, Pid} -> use(Use, Pool, Slot, Word, Pid);
                none when Yields > 1 -> try_again(Yields - 1, Wait);
                _NoneOrStarving -> ask(Pool, Claimer, Wait)
            end;
        undefined ->
            {error, no_pool}
    end.

ask(#pool{max_queue = MaxQueue} = Pool, Claimer, #wait{asked = Asked} = Wait) ->
    ok = weir_pool_signals:want_more(Pool),
    case weir_pool_signals:waiting(Pool) of
        Waiting when Waiting >= MaxQueue ->
            ok = weir_pool_terms:count(Pool, ?OVERLOADS),
            {error, {overload, weir_pool_queue:overload(Pool, queue_full, Waiting, erlang:monotonic_time() - Asked)}};
        _ ->
            answered(await(Pool, Wait), Claimer, Pool, Wait)
    end.

await(#pool{base = Base, queue = Queue}, #wait{asked = Asked, deadline = Deadline}) ->
    Left = left(Deadline),
    %% The first answer that comes through the alias ends both the alias and the monitor.
    Ref = monitor(process, Queue, [{alias, reply_demonitor}]),
    ok = weir_pool_queue:ask(Queue, {Asked, Ref}, Base, Deadline),
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

answered({granted, Pool, Slot, QueueWord, Pid}, {_, Holder, _}, _Pool, #wait{use = Use} = Wait) ->
    case weir_pool_word:take_over(Pool, Slot, QueueWord, Holder) of
        {ok, Word} ->
            ok = weir_pool_terms:count(Pool, ?WAITS),
            use(Use, Pool, Slot, Word, Pid);
        not_held ->
            %% The worker has died, and the manager has seen it already; or this process has not run for long.
            ask_later(Pool, Wait)
    end;
answered(gone, _Claimer, Pool, Wait) ->
    ask_later(Pool, Wait);
answered({error, timeout}, _Claimer, Pool, _Wait) ->
    timed_out(Pool);
answered({error, Reason}, _Claimer, _Pool, _Wait) ->
    {error, Reason}.

ask_later(Pool, #wait{deadline = Deadline} = Wait) ->
    case left(Deadline) of
        0 ->
            timed_out(Pool);
        _ ->
            receive
            after ?PAUSE_MS -> try_again(0, Wait)
            end
    end.

deadline(_Now, infinity) -> infinity;
deadline(Now, Timeout) -> Now + erlang:convert_time_unit(Timeout, millisecond, native).

left(infinity) ->
    infinity;
left(Deadline) ->
    case Deadline - erlang:monotonic_time() of
        %% Rounded up: never early.
        Left when Left > 0 -> min(erlang:convert_time_unit(Left, native, millisecond) + 1, ?MAX_MS);
        _ -> 0
    end.

timed_out(Pool) ->
    ok = weir_pool_terms:count(Pool, ?TIMEOUTS),
    {error, timeout}.

%% ---------------------------------------------------------------- the time-out covers the work

no_work(undefined) -> {error, no_pool};
%% Nothing can be done in no time.
no_work(Pool) -> timed_out(Pool).

work(Fun, Left, Pool, Slot, Word, Worker) ->
    {Child, Ref} = spawn_monitor(?MODULE, child, [self(), Fun, {Pool, Slot, Word}, Worker]),
    receive
        {'DOWN', Ref, process, Child, {?MODULE, Outcome}} ->
            use(fun(_Worker) -> outcome(Outcome) end, Pool, Slot, Word, Worker);
        %% The fun was killed by somebody else, or by a link that it has made.
        {'DOWN', Ref, process, Child, Reason} ->
            _ = disown(Pool, Slot, Word, killed, self()),
            exit(Reason)
    after Left ->
        true = exit(Child, kill),
        case demonitor(Ref, [info]) of
            true ->
                ok;
            false ->
                %% It has just ended. By its reference the message is found; a flush would search the mailbox.
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
    _ = spawn_link(?MODULE, guard, [Caller, self(), Claim]),
    Outcome =
        try
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
