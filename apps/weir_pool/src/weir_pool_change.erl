%% @doc Changes of a pool that take time: another size, another worker in a slot, and the pool's end in good order.
%%
%% Not a process: the manager holds the value of the changes that are under way and calls these functions. Whoever asked
%% for a change is answered from here, once. Every change has a time; when it is over the change is undone as far as it
%% has not been made, and its caller gets `{error, timeout}'.
%%
%% A resize to more slots, unless the pool starts its workers asynchronously, first starts the workers of the new slots,
%% puts them in, and then publishes the new shape: nobody sees a new slot without its worker. A resize to fewer
%% publishes first: nobody picks or claims a slot any more by the time that it is taken out of use.
%%
%% What cannot end is refused: to replace a worker, or to drain a pool, whose worker the caller itself has claimed.
%% @private
-module(weir_pool_change).

-export([resize/5, replace/5, drain/3, publish/2]).
-export([started/4, failed/4, ended/4, timeout/3]).

-export_type([change/0]).

-include("weir_pool.hrl").

-record(resize, {
    from :: gen_server:from(),
    size :: weir_pool:size(),
    timer :: reference() | none,
    %% New slots that have no worker yet, and those that this change has given a supervisor.
    awaited :: [weir_pool:slot()],
    begun :: [weir_pool:slot()],
    %% Those whose worker was not to be started, or not again.
    vacant = [] :: [weir_pool:slot()]
}).

-type change() :: none | #resize{}.
%% The resize that is under way.

-type slots() :: weir_pool_slots:slots().

timer(infinity, _What) -> none;
timer(Timeout, What) -> erlang:start_timer(Timeout, self(), {change, What}).

cancel_timer(none) -> ok;
cancel_timer(Timer) ->
    _ = erlang:cancel_timer(Timer),
    ok.

%% ---------------------------------------------------------------- resize

%% @doc Gives the pool another size, which is at least `Last'.
-spec resize(Size :: term(), timeout(), Last :: 0 | weir_pool:slot(), gen_server:from(), {change(), slots()}) ->
    {change(), slots()}.
resize(_Size, _Timeout, _Last, From, {#resize{}, _} = Now) ->
    reply(From, {error, resizing}, Now);
resize(Size, Timeout, Last, From, {none, Slots} = Now) ->
    #conf{worker = Worker, overflow = {Overflow, _}, start = Start} = weir_pool_slots:conf(Slots),
    case is_size(Size, Worker, Overflow) of
        false -> reply(From, {error, {bad_size, Size}}, Now);
        true when Size < Last -> reply(From, {error, {slot_taken, Last}}, Now);
        true when Worker =/= none, Start =:= sync -> start_and_publish(Size, Timeout, From, Slots);
        true -> reply(From, ok, {none, start_missing([], publish(Size, Slots), Slots)})
    end.

is_size(0, Worker, Overflow) -> Worker =:= none orelse Overflow > 0;
is_size(Size, _Worker, Overflow) -> is_integer(Size) andalso Size > 0 andalso Size + Overflow =< ?MAX_SIZE.

reply(From, Reply, Now) ->
    gen_server:reply(From, Reply),
    Now.

%% @doc Gives the pool another size, and takes the slots out of use that it has no more.
-spec publish(Size :: 0 | weir_pool:size(), slots()) -> slots().
publish(Size, Slots) ->
    #pool{limit = Before} = weir_pool_slots:pool(Slots),
    #pool{limit = Limit} = Pool = reshape(Size, Slots),
    ok = weir_pool_terms:open(Pool),
    CalledOff = over(fun no_slot/2, Size + 1, min(Limit, Before), Slots),
    %% Some may have been on their way out.
    Kept = over(fun weir_pool_slots:keep/2, Before + 1, Limit, weir_pool_slots:set_pool(Pool, CalledOff)),
    Fewer = over(fun(Slot, S) -> weir_pool_slots:take_out(Slot, retire, S) end, Limit + 1, Before, Kept),
    %% Slots may have become such for overflow, or the other way round.
    _ = [weir_pool_slots:set_keep(Slot, Slot =< Size, Fewer) || Slot <- lists:seq(1, Limit)],
    ok = weir_pool_signals:notify(Pool, idle),
    ok = weir_pool_signals:wake(Pool),
    Fewer.

no_slot(Slot, Slots) -> weir_pool_slots:no_replace(no_slot, Slot, Slots).

over(Do, First, Last, Slots) -> lists:foldl(Do, Slots, lists:seq(First, max(First - 1, Last))).

reshape(Size, Slots) ->
    #conf{overflow = {Overflow, _}} = weir_pool_slots:conf(Slots),
    weir_pool_terms:reshape(weir_pool_slots:pool(Slots), Size, Size + Overflow).

%% Of those slots that the pool did not have before.
start_missing(Vacant, Slots, Before) ->
    case weir_pool_slots:conf(Slots) of
        #conf{worker = none} ->
            Slots;
        #conf{} ->
            New = weir_pool_slots:pool_size(Before) + 1,
            start_all(weir_pool_slots:missing(New, weir_pool_slots:pool_size(Slots), Slots) -- Vacant, true, Slots)
    end.

start_all(Missing, Keep, Slots) ->
    lists:foldl(fun(Slot, S) -> weir_pool_slots:start(Slot, Keep, S) end, Slots, Missing).

start_and_publish(Size, Timeout, From, Slots) ->
    #pool{size = Old, limit = Limit} = weir_pool_slots:pool(Slots),
    %% The new slots have words from now on, and nobody knows.
    Wide = (reshape(Size, Slots))#pool{size = Old, limit = Limit},
    Missing = weir_pool_slots:missing(Old + 1, Size, Slots),
    Started = start_all(Missing, false, weir_pool_slots:set_pool(Wide, Slots)),
    Awaited = [
        Slot
     || Slot <- lists:seq(Old + 1, max(Old, Size)), weir_pool_slots:worker(Slot, Started) =:= undefined
    ],
    Resize = #resize{from = From, size = Size, timer = none, awaited = Awaited, begun = Missing},
    resized(Resize#resize{timer = timer(Timeout, resize)}, Started).

resized(#resize{awaited = [], from = From, size = Size, timer = Timer, vacant = Vacant}, Slots) ->
    ok = cancel_timer(Timer),
    %% Some worker may have been lost meanwhile.
    reply(From, ok, {none, start_missing(Vacant, publish(Size, Slots), Slots)});
resized(Resize, Slots) ->
    {Resize, Slots}.

%% Nothing comes of it: what it has started is stopped.
undo(Reason, #resize{from = From, timer = Timer, begun = Begun}, Slots) ->
    ok = cancel_timer(Timer),
    Undone = lists:foldl(
        fun(Slot, S) ->
            case {weir_pool_slots:sup(Slot, S), weir_pool_slots:worker(Slot, S)} of
                {undefined, _} -> S;
                {Sup, undefined} -> weir_pool_slots:stop_start(Sup, S);
                {_Sup, _Worker} -> weir_pool_slots:take_out(Slot, retire, S)
            end
        end,
        Slots,
        Begun
    ),
    reply(From, {error, Reason}, {none, Undone}).

%% ---------------------------------------------------------------- replace

%% @doc Puts another worker in a slot.
-spec replace(Slot :: term(), timeout(), Caller :: pid(), gen_server:from(), slots()) -> slots().
replace(Slot, Timeout, Caller, From, Slots) ->
    case why_not(Slot, Caller, Slots) of
        none -> weir_pool_slots:replace(Slot, From, timer(Timeout, {replace, Slot}), Slots);
        Reason -> reply(From, {error, Reason}, Slots)
    end.

why_not(Slot, Caller, Slots) ->
    Size = weir_pool_slots:pool_size(Slots),
    case weir_pool_slots:conf(Slots) of
        #conf{worker = none} ->
            no_workers;
        _ when not is_integer(Slot); Slot < 1; Slot > Size ->
            no_slot;
        _ ->
            IsHeld = is_held_by(Caller, Slot, weir_pool_slots:pool(Slots)),
            case weir_pool_slots:is_replacing(Slot, Slots) of
                true -> replacing;
                false when IsHeld -> held_by_caller;
                false -> none
            end
    end.

is_held_by(Caller, Slot, Pool) when node(Caller) =:= node() ->
    Word = weir_pool_word:read(Pool, Slot),
    lists:member(weir_pool_word:state(Word), [taken, marked]) andalso
        weir_pool_word:holder(weir_pool_word:claim_of(Word)) =:= weir_pool_holder:id(Caller);
is_held_by(_OfAnotherNode, _Slot, _Pool) ->
    false.

%% ---------------------------------------------------------------- what becomes of starts

%% @doc A supervisor has a worker, which is in its slot already unless the supervisor is a spare.
-spec started(weir_pool_slots:role(), SlotSup :: pid(), Worker :: pid(), {change(), slots()}) -> {change(), slots()}.
started({spare, Slot}, _Spare, Worker, {Change, Slots}) ->
    {Change, weir_pool_slots:spare_started(Slot, Worker, Slots)};
started(Slot, _Sup, _Worker, {#resize{awaited = Awaited} = Resize, Slots}) ->
    resized(Resize#resize{awaited = lists:delete(Slot, Awaited)}, Slots);
started(_Slot, _Sup, _Worker, Now) ->
    Now.

%% @doc A supervisor could not start its worker.
-spec failed(weir_pool_slots:role(), SlotSup :: pid(), Reason :: term(), {change(), slots()}) -> {change(), slots()}.
failed({spare, Slot}, _Spare, Reason, {Change, Slots}) ->
    {Change, weir_pool_slots:no_replace({start_failed, Slot, Reason}, Slot, Slots)};
failed(Slot, _Sup, Reason, {#resize{awaited = Awaited} = Resize, Slots} = Now) ->
    case lists:member(Slot, Awaited) of
        true -> undo({start_failed, Slot, Reason}, Resize, Slots);
        false -> Now
    end;
failed(_Role, _Sup, _Reason, Now) ->
    Now.

%% @doc A supervisor has ended: its start function has returned `ignore', its worker has died for good, or it was
%% killed.
-spec ended(weir_pool_slots:role(), SlotSup :: pid(), Reason :: term(), {change(), slots()}) -> {change(), slots()}.
ended({spare, _} = Role, Spare, normal, Now) ->
    failed(Role, Spare, ignore, Now);
ended({spare, _} = Role, Spare, {shutdown, Reason}, Now) ->
    failed(Role, Spare, Reason, Now);
ended({spare, _} = Role, Spare, Reason, Now) ->
    failed(Role, Spare, Reason, Now);
ended(Slot, Sup, normal, {#resize{vacant = Vacant} = Resize, Slots}) when is_integer(Slot) ->
    %% A slot whose worker does not want to be started stays vacant, as in a pool that starts.
    started(Slot, Sup, Sup, {Resize#resize{vacant = [Slot | Vacant]}, Slots});
ended(Slot, Sup, _Reason, {#resize{}, _} = Now) when is_integer(Slot) ->
    started(Slot, Sup, Sup, Now);
ended(_Role, _Sup, _Reason, Now) ->
    Now.

%% ---------------------------------------------------------------- drain

%% @doc Every worker is taken out of use when it is released, and ends when it has handled what was sent to it. The pool
%% is closed.
-spec drain(timeout(), Caller :: pid(), {change(), slots()}) ->
    {draining, {change(), slots()}} | {error, held_by_caller}.
drain(Timeout, Caller, {_, Slots} = Now) ->
    Pool = weir_pool_slots:pool(Slots),
    All = lists:seq(1, weir_pool_terms:last_slot(Pool)),
    case lists:any(fun(Slot) -> is_held_by(Caller, Slot, Pool) end, All) of
        true ->
            {error, held_by_caller};
        false ->
            {Change, Left} = cancel(Now),
            _ = timer(Timeout, drain),
            {draining, {Change, drain_all(Left)}}
    end.

drain_all(Slots) ->
    case weir_pool_slots:conf(Slots) of
        #conf{worker = none} ->
            Retire = fun(Slot, S) -> weir_pool_slots:take_out(Slot, retire, S) end,
            lists:foldl(Retire, Slots, weir_pool_slots:in_use(Slots));
        #conf{} ->
            lists:foldl(fun drain_sup/2, Slots, weir_pool_slots:sups(Slots))
    end.

drain_sup({_Sup, Leaving}, Slots) when Leaving =:= retired; Leaving =:= killed ->
    Slots;
drain_sup({Sup, Role}, Slots) ->
    case is_integer(Role) andalso weir_pool_slots:worker(Role, Slots) of
        Worker when is_pid(Worker) -> weir_pool_slots:take_out(Role, retire, Slots);
        _ -> weir_pool_slots:stop_start(Sup, Slots)
    end.

%% ---------------------------------------------------------------- ends without success

%% @doc The time of a change is over. That of another one, which had the name before, is void.
-spec timeout(resize | {replace, weir_pool:slot()}, Timer :: reference(), {change(), slots()}) -> {change(), slots()}.
timeout(resize, Timer, {#resize{timer = Timer} = Resize, Slots}) ->
    undo(timeout, Resize, Slots);
timeout({replace, Slot}, Timer, {Change, Slots}) ->
    {Change, weir_pool_slots:replace_timeout(Slot, Timer, Slots)};
timeout(_What, _Timer, Now) ->
    Now.

%% Tells whoever waits for another change that the pool is drained instead.
cancel({#resize{} = Resize, Slots}) ->
    cancel(undo(no_pool, Resize, Slots));
cancel({none, Slots}) ->
    NoPool = fun(Slot, S) -> weir_pool_slots:no_replace(no_pool, Slot, S) end,
    {none, over(NoPool, 1, weir_pool_slots:pool_size(Slots), Slots)}.
