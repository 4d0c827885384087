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
%% was cancelled or is late. So whoever gets a grant takes it, even if a moment late, and whoever gets anything else
%% knows that no grant comes. If the queue dies instead, the monitor says so, behind any answer; and the word that it
%% may have claimed for the claimer carries its own number, not the claimer's, until the claimer has taken it over.
%% Nothing is left in the mailbox in any of these cases, and a claimer with a long mailbox does not search it.
%%
%% A claimer may be killed anywhere. Before the exchange, it has nothing. From the exchange to the release, its number
%% is in the word, and the keeper finds that it is dead. Between the release and the look at the gate, the worker is
%% free but nobody is told; the queue's next tick finds it. While it waits, the queue sees that it is dead before it
%% serves it, or takes the word back that was not taken over.
-module(weir_pool_claim).

-export([claim/3, checkout/2, checkin/2, slot/1]).

-export_type([ticket/0]).

-include("weir_pool.hrl").

-record(ticket, {
    %% As it was when the claim was made: a slot's words never move.
    pool :: #pool{},
    slot :: weir_pool:slot(),
    word :: weir_pool_word:word()
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

-type use() :: fun((pid()) -> term()) | checkout.
%% What a worker is claimed for.

%% How often one that finds nothing free lets others run and looks again before it asks the queue, and how many words it
%% reads for that at most. Of a million claims by 100 processes as above, some 1,500 queue up after one yield, 130 after
%% four, and none after eight. Where workers are used for longer, eight cost 3 us more, half as much as queueing does.
-define(YIELDS, 8).
-define(READS, 1000).

%% How long one waits for the pool's next queue process.
-define(PAUSE_MS, 1).

%% The longest time that a `receive' can be given.
-define(MAX_TIMEOUT, 4294967295).

-define(IS_TIMEOUT(Timeout),
    (Timeout =:= infinity orelse (is_integer(Timeout) andalso Timeout >= 0 andalso Timeout =< ?MAX_TIMEOUT))
).

%% @doc See {@link weir_pool:claim/3}.
-spec claim(weir_pool:name(), fun((pid()) -> Result), weir_pool:claim_opts()) ->
    {ok, Result} | {error, weir_pool:claim_error()}.
claim(Name, Fun, Opts) when is_function(Fun, 1) ->
    case covers(Opts) of
        {wait, Timeout} -> take(Name, Fun, Timeout);
        {work, Timeout} -> work(Name, Fun, Timeout);
        wrong -> error(badarg, [Name, Fun, Opts])
    end;
claim(Name, Fun, Opts) ->
    error(badarg, [Name, Fun, Opts]).

%% @doc See {@link weir_pool:checkout/2}.
-spec checkout(weir_pool:name(), weir_pool:claim_opts()) ->
    {ok, pid(), ticket()} | {error, weir_pool:claim_error()}.
checkout(Name, Opts) ->
    case covers(Opts) of
        {wait, Timeout} -> take(Name, checkout, Timeout);
        _ -> error(badarg, [Name, Opts])
    end.

covers(Opts) when Opts =:= #{} -> {wait, 0};
covers(#{timeout := Timeout} = Opts) when map_size(Opts) =:= 1, ?IS_TIMEOUT(Timeout) -> {wait, Timeout};
covers(#{timeout := Timeout, covers := Covers} = Opts) when map_size(Opts) =:= 2, ?IS_TIMEOUT(Timeout) ->
    covers(Covers, Timeout);
covers(#{covers := Covers} = Opts) when map_size(Opts) =:= 1 -> covers(Covers, 0);
covers(_Opts) -> wrong.

covers(Covers, Timeout) when Covers =:= wait; Covers =:= work -> {Covers, Timeout};
covers(_Covers, _Timeout) -> wrong.

%% @doc See {@link weir_pool:checkin/2}.
-spec checkin(weir_pool:name(), ticket()) -> ok | {error, not_held}.
checkin(Name, #ticket{pool = #pool{name = Name} = Pool, slot = Slot, word = Word}) ->
    case release(Pool, Slot, Word) of
        free -> unless_gone(Pool);
        held -> ok;
        not_held -> {error, not_held}
    end;
checkin(_Name, #ticket{}) ->
    {error, not_held}.

%% The words of a pool that was stopped or killed say what they said then.
unless_gone(#pool{name = Name, base = Base} = Pool) ->
    case weir_pool_terms:pool(Name) of
        #pool{base = Base} -> ok;
        _ -> unless_gone(Name, weir_pool_terms:id(Pool))
    end.

%% One that is closed is being drained, or its keeper restarts.
unless_gone(Name, Id) ->
    case weir_pool_registry:lookup(Name) of
        {ok, #row{id = Id}} -> ok;
        _ -> {error, not_held}
    end.

%% @doc See {@link weir_pool:slot/1}.
-spec slot(ticket()) -> weir_pool:slot().
slot(#ticket{slot = Slot}) -> Slot.

%% ---------------------------------------------------------------- a free worker

take(Name, Use, Timeout) ->
    case weir_pool_terms:pool(Name) of
        #pool{holders = Holders, gate = Gate} = Pool ->
            Claimer = weir_pool_holder:claimer(Holders),
            case atomics:get(Gate, ?GATE_MODE) of
                ?STARVING -> none_free(starving, Pool, Name, Use, Timeout);
                _ when Claimer =:= none -> {error, no_pool};
                _ -> take_first(Claimer, Pool, Name, Use, Timeout)
            end;
        undefined ->
            {error, no_pool}
    end.

take_first({_, _, Holder, Last} = Claimer, Pool, Name, Use, Timeout) ->
    First = first(Last, Pool),
    case weir_pool_word:claim_free(Pool, First, Holder) of
        {ok, Word, Pid} ->
            use(Use, Pool, First, Word, Pid);
        Not ->
            case scan_others(First, Not, Pool, Claimer) of
                {ok, Slot, Word, Pid} -> use(Use, Pool, Slot, Word, Pid);
                Why -> none_free(Why, Pool, Name, Use, Timeout)
            end
    end.

%% Where to begin: with the slot that the process had last, in whatever pool it was.
first(Last, #pool{size = Size}) when Last =< Size -> Last;
first(_Last, #pool{size = 0}) -> 1;
first(Last, #pool{size = Size}) -> Last rem Size + 1.

use(checkout, Pool, Slot, Word, Pid) ->
    {ok, Pid, #ticket{pool = Pool, slot = Slot, word = Word}};
use(Fun, Pool, Slot, Word, Pid) ->
    try Fun(Pid) of
        Result ->
            _ = release(Pool, Slot, Word),
            {ok, Result}
    catch
        exit:{timeout, _} = Reason:Stack ->
            ok = disown(Pool, Slot, Word),
            erlang:raise(exit, Reason, Stack);
        Class:Reason:Stack ->
            _ = release(Pool, Slot, Word),
            erlang:raise(Class, Reason, Stack)
    end.

release(#pool{gate = Gate} = Pool, Slot, Word) ->
    case weir_pool_word:release(Pool, Slot, Word) of
        free ->
            %% In this order: see weir_pool_queue.
            case atomics:get(Gate, ?GATE_MODE) of
                ?NOBODY_WAITS -> free;
                _ -> woken(Pool, Slot)
            end;
        held ->
            ok = weir_pool_keeper:released(Pool, Slot),
            held;
        not_held ->
            not_held
    end.

woken(Pool, Slot) ->
    ok = weir_pool_queue:wake(Pool, Slot),
    free.

%% The worker is likely to be busy still. Should this process be killed before it has told the keeper, or the keeper not
%% be there, the keeper finds the word like one of a dead holder.
disown(Pool, Slot, Word) ->
    case weir_pool_word:disown(Pool, Slot, Word) of
        {ok, Nobodys} -> weir_pool_keeper:abandon(Pool, Slot, Nobodys);
        held -> weir_pool_keeper:released(Pool, Slot);
        not_held -> ok
    end.

%% Looks at all slots, those for overflow last.
scan(#pool{gate = Gate} = Pool, {_, _, Holder, Last} = Claimer) ->
    case atomics:get(Gate, ?GATE_MODE) of
        ?STARVING ->
            starving;
        _ ->
            First = first(Last, Pool),
            case weir_pool_word:claim(Pool, First, Holder) of
                {ok, Word, Pid} -> {ok, First, Word, Pid};
                Not -> scan_others(First, Not, Pool, Claimer)
            end
    end.

%% `vacant' if there is no worker at all.
scan_others(First, Not, #pool{size = Size, limit = Limit} = Pool, Claimer) ->
    scan(First + 1, Size, [{1, min(First - 1, Size)}, {Size + 1, Limit}], Not, Pool, Claimer).

scan(Slot, Last, Ranges, Not, Pool, {_, _, Holder, _} = Claimer) when Slot =< Last ->
    case weir_pool_word:claim(Pool, Slot, Holder) of
        {ok, Word, Pid} ->
            ok = weir_pool_holder:remember(Claimer, Slot),
            {ok, Slot, Word, Pid};
        vacant ->
            scan(Slot + 1, Last, Ranges, Not, Pool, Claimer);
        not_free ->
            scan(Slot + 1, Last, Ranges, not_free, Pool, Claimer)
    end;
scan(_Slot, _Last, [{First, Last} | Ranges], Not, Pool, Claimer) ->
    scan(First, Last, Ranges, Not, Pool, Claimer);
scan(_Slot, _Last, [], Not, _Pool, _Claimer) ->
    Not.

%% ---------------------------------------------------------------- none is free

none_free(Why, Pool, _Name, _Use, 0) ->
    ok = want_more(Pool),
    case Why of
        vacant ->
            {error, no_worker};
        _ ->
            ok = weir_pool_terms:count(Pool, ?BUSY),
            {error, busy}
    end;
none_free(_Why, #pool{limit = Limit}, Name, Use, Timeout) ->
    Asked = erlang:monotonic_time(),
    Deadline =
        case Timeout of
            infinity -> infinity;
            _ -> Asked + erlang:convert_time_unit(Timeout, millisecond, native)
        end,
    Wait = #wait{name = Name, use = Use, asked = Asked, deadline = Deadline},
    look_again(min(?YIELDS, ?READS div max(1, Limit)), Wait).

%% Whoever raises the flag tells the keeper, which takes it down when it has seen to it; should this process be killed
%% in between, the queue tells the keeper too, when somebody waits.
want_more(#pool{size = Size, limit = Limit, gate = Gate} = Pool) when Limit > Size ->
    case atomics:exchange(Gate, ?GATE_GROW, 1) of
        0 -> weir_pool_keeper:pressed(Pool);
        _ -> ok
    end;
want_more(_Pool) ->
    ok.

look_again(Yields, #wait{name = Name, use = Use} = Wait) ->
    _ = Yields > 0 andalso erlang:yield(),
    case weir_pool_terms:pool(Name) of
        #pool{holders = Holders} = Pool ->
            case weir_pool_holder:claimer(Holders) of
                none ->
                    {error, no_pool};
                Claimer ->
                    case scan(Pool, Claimer) of
                        {ok, Slot, Word, Pid} -> use(Use, Pool, Slot, Word, Pid);
                        starving -> ask(Pool, Claimer, Wait);
                        _None when Yields > 1 -> look_again(Yields - 1, Wait);
                        _None -> ask(Pool, Claimer, Wait)
                    end
            end;
        undefined ->
            {error, no_pool}
    end.

ask(#pool{gate = Gate, max_queue = MaxQueue, name = Name} = Pool, Claimer, #wait{asked = Asked} = Wait) ->
    ok = want_more(Pool),
    case atomics:get(Gate, ?GATE_WAITING) of
        Waiting when Waiting >= MaxQueue ->
            ok = weir_pool_terms:count(Pool, ?OVERLOADS),
            {error, {overload, weir_pool_queue:overload(Pool, queue_full, Waiting, erlang:monotonic_time() - Asked)}};
        _ ->
            case weir_pool_registry:queue(Name) of
                undefined -> ask_later(Pool, Wait);
                Queue -> answered(await(Queue, Pool, Wait), Claimer, Pool, Wait)
            end
    end.

await(Queue, #pool{base = Base}, #wait{asked = Asked, deadline = Deadline}) ->
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

answered({granted, Pool, Slot, QueueWord, Pid}, {_, _, Holder, _}, _Pool, #wait{use = Use} = Wait) ->
    case weir_pool_word:take_over(Pool, Slot, QueueWord, Holder) of
        {ok, Word} ->
            ok = weir_pool_terms:count(Pool, ?WAITS),
            use(Use, Pool, Slot, Word, Pid);
        not_held ->
            %% The worker has died, or the queue has, and the keeper has seen it already.
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
            after ?PAUSE_MS -> look_again(0, Wait)
            end
    end.

left(infinity) ->
    infinity;
left(Deadline) ->
    case Deadline - erlang:monotonic_time() of
        %% Rounded up: never early.
        Left when Left > 0 -> min(erlang:convert_time_unit(Left, native, millisecond) + 1, ?MAX_TIMEOUT);
        _ -> 0
    end.

timed_out(Pool) ->
    ok = weir_pool_terms:count(Pool, ?TIMEOUTS),
    {error, timeout}.

%% ---------------------------------------------------------------- the time-out covers the work

%% The claim is made by a process of its own, which is linked to the caller so that it does not outlive it. It waits
%% without a deadline; the caller has the deadline, and kills it. Only if the caller itself is killed between the
%% unlinking and the killing does the fun go on to its end; then the worker is released like any other.
work(Name, Fun, Timeout) ->
    case weir_pool_terms:pool(Name) of
        undefined -> {error, no_pool};
        %% Nothing can be done in no time.
        Pool when Timeout =:= 0 -> timed_out(Pool);
        Pool -> work(Name, Fun, Timeout, Pool)
    end.

work(Name, Fun, Timeout, Pool) ->
    Child = spawn_link(fun() ->
        receive
            {?MODULE, Alias} -> Alias ! {Alias, outcome(Name, Fun)}
        end
    end),
    Ref = monitor(process, Child, [{alias, reply_demonitor}]),
    Child ! {?MODULE, Ref},
    receive
        {Ref, Outcome} ->
            ok = forget(Child),
            result(Outcome);
        {'DOWN', Ref, process, _Child, Reason} ->
            %% Killed by somebody else, or by a link that the fun has made: as if the caller were.
            ok = forget(Child),
            ok = weir_pool_keeper:pressed(Pool),
            exit(Reason)
    after Timeout ->
        ok = forget(Child),
        true = exit(Child, kill),
        receive
            {Ref, Outcome} ->
                result(Outcome);
            {'DOWN', Ref, process, _Child, _Killed} ->
                %% It is dead, so the keeper finds its claim when it looks now.
                ok = weir_pool_keeper:pressed(Pool),
                timed_out(Pool)
        end
    end.

outcome(Name, Fun) ->
    try
        take(Name, Fun, infinity)
    catch
        Class:Reason:Stack -> {raise, Class, Reason, Stack}
    end.

result({raise, Class, Reason, Stack}) -> erlang:raise(Class, Reason, Stack);
result(Result) -> Result.

%% No exit signal of the child comes after this, and no message of it is left.
forget(Child) ->
    true = unlink(Child),
    case process_info(self(), trap_exit) of
        {trap_exit, true} ->
            receive
                {'EXIT', Child, _Reason} -> ok
            after 0 -> ok
            end;
        {trap_exit, false} ->
            ok
    end.
