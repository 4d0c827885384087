%% @doc Changes of a pool that take time: another size, another worker in a slot, and the drain.
%%
%% Not a process: the manager calls these functions with its state. Each call for a change is answered once, from here
%% or from weir_pool_slots. Each change has a time-out. After the time-out the manager undoes a resize or a replacement,
%% and its caller gets `{error, timeout}'.
%%
%% A resize to more slots starts the workers of the new slots, fills the slots, and then publishes the new shape. No
%% process sees a new slot without its worker. With `start => async' it publishes first. A resize to fewer slots
%% publishes the shape first, so no process picks or claims a slot any more when the manager takes it out of use.
%%
%% The manager refuses a change that would wait for its own caller. A caller that has claimed a worker can neither
%% replace that worker nor drain the pool.
%% @private
-module(weir_pool_change).

-export([resize/4, replace/5, drain/3, publish/2]).
-export([started/3, failed/3, ended/3, timeout/3]).

-export_type([resize/0]).

-include("weir_pool.hrl").
-include("weir_pool_state.hrl").

-record(resize, {
    from :: gen_server:from(),
    size :: weir_pool:size(),
    timer :: reference() | none,
    %% New slots that have no worker yet.
    awaited :: [weir_pool:slot()],
    %% New slots that this resize has started.
    begun :: [weir_pool:slot()],
    %% New slots that stay vacant: the start function returned `ignore', or the worker ended and is not restarted.
    vacant = [] :: [weir_pool:slot()]
}).

-type resize() :: none | #resize{}.
%% The resize that is under way.

timer(infinity, _What) -> none;
timer(Timeout, What) -> erlang:start_timer(Timeout, self(), {change, What}).

cancel_timer(none) -> ok;
cancel_timer(Timer) ->
    _ = erlang:cancel_timer(Timer),
    ok.

%% ---------------------------------------------------------------- resize

%% @doc Changes the size, to at least the highest slot that has a name.
-spec resize(Size :: term(), timeout(), gen_server:from(), #state{}) -> #state{}.
resize(_Size, _Timeout, From, #state{resize = #resize{}} = State) ->
    reply(From, {error, resizing}, State);
resize(Size, Timeout, From, #state{conf = Conf, names = Names} = State) ->
    #conf{worker = Worker, overflow = {Overflow, _}, start = Start} = Conf,
    Last = lists:max([0 | maps:values(Names)]),
    case is_size(Size, Worker, Overflow) of
        false -> reply(From, {error, {bad_size, Size}}, State);
        true when Size < Last -> reply(From, {error, {slot_taken, Last}}, State);
        true when Worker =/= none, Start =:= sync -> start_and_publish(Size, Timeout, From, State);
        true -> reply(From, ok, start_missing([], State, publish(Size, State)))
    end.

is_size(0, Worker, Overflow) -> Worker =:= none orelse Overflow > 0;
is_size(Size, _Worker, Overflow) -> is_integer(Size) andalso Size > 0 andalso Size + Overflow =< ?MAX_SIZE.

reply(From, Reply, State) ->
    gen_server:reply(From, Reply),
    State.

%% @doc Publishes another size, and takes slots beyond the new size out of use.
%%
%% Cost: proportional to the slots that have or had workers, not to the size.
-spec publish(Size :: 0 | weir_pool:size(), #state{}) -> #state{}.
publish(Size, #state{pool = #pool{limit = Before}} = State) ->
    #pool{limit = Limit} = Pool = reshape(Size, State),
    ok = weir_pool_terms:open(Pool),
    Cancelled = over(fun no_slot/2, Size + 1, min(Limit, Before), State),
    %% Puts slots back into use that an earlier resize retires at the end of their claims.
    Kept = over(fun weir_pool_slots:keep/2, Before + 1, Limit, Cancelled#state{pool = Pool}),
    Fewer = over(fun(Slot, S) -> weir_pool_slots:withdraw(Slot, retire, S) end, Limit + 1, Before, Kept),
    %% Slots may have become overflow slots, or overflow slots ordinary ones.
    _ = [weir_pool_slots:set_keep(Slot, Slot =< Size, Fewer) || Slot <- weir_pool_slots:entries(1, Limit, Fewer)],
    ok = weir_pool_signals:wake(Pool),
    Fewer#state{may_shrink = true}.

no_slot(Slot, State) -> weir_pool_slots:no_replace(no_slot, Slot, State).

over(Do, First, Last, State) -> lists:foldl(Do, State, weir_pool_slots:entries(First, Last, State)).

reshape(Size, #state{conf = #conf{overflow = {Overflow, _}}, pool = Pool}) ->
    weir_pool_terms:reshape(Pool, Size, Size + Overflow).

%% Starts the workers of the new slots.
start_missing(_Vacant, _Before, #state{conf = #conf{worker = none}} = State) ->
    State;
start_missing(Vacant, #state{pool = #pool{size = Before}}, #state{pool = #pool{size = Size}} = State) ->
    start_all(weir_pool_slots:missing(Before + 1, Size, State) -- Vacant, true, State).

start_all(Missing, Keep, State) ->
    lists:foldl(fun(Slot, S) -> weir_pool_slots:start(Slot, Keep, S) end, State, Missing).

start_and_publish(Size, Timeout, From, #state{pool = #pool{size = Old, limit = Limit}} = State) ->
    %% The new slots have words from now on, and no other process knows of them.
    Wide = (reshape(Size, State))#pool{size = Old, limit = Limit},
    Missing = weir_pool_slots:missing(Old + 1, Size, State),
    Started = start_all(Missing, false, State#state{pool = Wide}),
    Awaited = [
        Slot
     || Slot <- lists:seq(Old + 1, max(Old, Size)), weir_pool_slots:worker(Slot, Started) =:= undefined
    ],
    Timer = timer(Timeout, resize),
    resized(#resize{from = From, size = Size, timer = Timer, awaited = Awaited, begun = Missing}, Started).

resized(#resize{awaited = [], from = From, size = Size, timer = Timer, vacant = Vacant}, State) ->
    ok = cancel_timer(Timer),
    %% Starts the worker of a new slot again if the worker has died before the last worker was started.
    reply(From, ok, start_missing(Vacant, State, publish(Size, State#state{resize = none})));
resized(Resize, State) ->
    State#state{resize = Resize}.

%% Stops the workers that the resize has started.
undo(Reason, #state{resize = #resize{from = From, timer = Timer, begun = Begun}} = State) ->
    ok = cancel_timer(Timer),
    reply(From, {error, Reason}, lists:foldl(fun undo_slot/2, State#state{resize = none, may_shrink = true}, Begun)).

undo_slot(Slot, State) ->
    case {weir_pool_slots:sup(Slot, State), weir_pool_slots:worker(Slot, State)} of
        {undefined, _} -> State;
        {Sup, undefined} -> weir_pool_slots:abort_start(Sup, State);
        {_Sup, _Worker} -> weir_pool_slots:withdraw(Slot, retire, State)
    end.

%% ---------------------------------------------------------------- replace

%% @doc Puts another worker into a slot.
-spec replace(Slot :: term(), timeout(), Caller :: pid(), gen_server:from(), #state{}) -> #state{}.
replace(Slot, Timeout, Caller, From, State) ->
    case refusal(Slot, Caller, State) of
        none -> weir_pool_slots:replace(Slot, From, timer(Timeout, {replace, Slot}), State);
        Reason -> reply(From, {error, Reason}, State)
    end.

refusal(_Slot, _Caller, #state{conf = #conf{worker = none}}) ->
    no_workers;
refusal(Slot, _Caller, #state{pool = #pool{size = Size}}) when not is_integer(Slot); Slot < 1; Slot > Size ->
    no_slot;
refusal(Slot, Caller, #state{pool = Pool} = State) ->
    case weir_pool_slots:is_replacing(Slot, State) of
        true -> replacing;
        false ->
            case is_held_by(Caller, Slot, Pool) of
                true -> held_by_caller;
                false -> none
            end
    end.

is_held_by(Caller, Slot, Pool) when node(Caller) =:= node() ->
    Word = weir_pool_word:read(Pool, Slot),
    lists:member(weir_pool_word:state(Word), [taken, marked]) andalso
        weir_pool_word:holder(weir_pool_word:claim_of(Word)) =:= weir_pool_holder:id(Caller);
is_held_by(_OfAnotherNode, _Slot, _Pool) ->
    false.

%% ---------------------------------------------------------------- what starts lead to

%% @doc Goes on with the change that waits for this worker. A slot's worker is in its slot already, a spare is not.
-spec started(weir_pool_slots:role(), Worker :: pid(), #state{}) -> #state{}.
started({spare, Slot}, Worker, State) -> weir_pool_slots:spare_started(Slot, Worker, State);
started(Slot, _Worker, State) -> await_no_more(Slot, State).

await_no_more(Slot, #state{resize = #resize{awaited = Awaited} = Resize} = State) ->
    resized(Resize#resize{awaited = lists:delete(Slot, Awaited)}, State);
await_no_more(_Slot, State) ->
    State.

%% @doc Undoes the change that waits for a worker which could not be started.
-spec failed(weir_pool_slots:role() | none, Reason :: term(), #state{}) -> #state{}.
failed({spare, Slot}, Reason, State) ->
    weir_pool_slots:no_replace({start_failed, Slot, Reason}, Slot, State);
failed(Slot, Reason, #state{resize = #resize{awaited = Awaited}} = State) ->
    case lists:member(Slot, Awaited) of
        true -> undo({start_failed, Slot, Reason}, State);
        false -> State
    end;
failed(_Role, _Reason, State) ->
    State.

%% @doc Goes on with, or undoes, the change that waits for a worker whose supervisor has ended. The start function has
%% returned `ignore', the worker has ended for good, or the supervisor was killed.
-spec ended(weir_pool_slots:role() | none, Reason :: term(), #state{}) -> #state{}.
ended({spare, _} = Role, normal, State) -> failed(Role, ignore, State);
ended({spare, _} = Role, {shutdown, Reason}, State) -> failed(Role, Reason, State);
ended({spare, _} = Role, Reason, State) -> failed(Role, Reason, State);
ended(Slot, normal, #state{resize = #resize{vacant = Vacant} = Resize} = State) when is_integer(Slot) ->
    await_no_more(Slot, State#state{resize = Resize#resize{vacant = [Slot | Vacant]}});
ended(Slot, _Reason, State) when is_integer(Slot) -> await_no_more(Slot, State);
ended(_Role, _Reason, State) -> State.

%% ---------------------------------------------------------------- drain

%% @doc Takes each worker out of use when its claim ends, and stops it once it has handled what was sent to it. The
%% manager then closes the pool, before it handles another message.
-spec drain(timeout(), Caller :: pid(), #state{}) -> {draining, #state{}} | {error, held_by_caller}.
drain(Timeout, Caller, #state{pool = Pool} = State) ->
    All = lists:seq(1, weir_pool_terms:last_slot(Pool)),
    case lists:any(fun(Slot) -> is_held_by(Caller, Slot, Pool) end, All) of
        true ->
            {error, held_by_caller};
        false ->
            _ = timer(Timeout, drain),
            {draining, drain_all(cancel(State))}
    end.

drain_all(#state{conf = #conf{worker = none}} = State) ->
    over(fun drain_member/2, 1, ?MAX_SIZE, State);
drain_all(#state{sups = Sups} = State) ->
    maps:fold(fun drain_sup/3, State, Sups).

drain_member(Slot, State) ->
    case weir_pool_slots:worker(Slot, State) =/= undefined orelse weir_pool_slots:action(Slot, State) =:= leave of
        true -> weir_pool_slots:withdraw(Slot, retire, State);
        false -> State
    end.

drain_sup(_Sup, Leaving, State) when Leaving =:= retired; Leaving =:= aborted; Leaving =:= killed ->
    State;
drain_sup(Sup, Role, State) ->
    case is_integer(Role) andalso weir_pool_slots:worker(Role, State) of
        Worker when is_pid(Worker) -> weir_pool_slots:withdraw(Role, retire, State);
        _ -> weir_pool_slots:abort_start(Sup, State)
    end.

%% ---------------------------------------------------------------- ends without success

%% @doc Undoes the change whose time is over. Ignores the timer of an earlier change.
-spec timeout(resize | {replace, weir_pool:slot()}, Timer :: reference(), #state{}) -> #state{}.
timeout(resize, Timer, #state{resize = #resize{timer = Timer}} = State) -> undo(timeout, State);
timeout({replace, Slot}, Timer, State) -> weir_pool_slots:replace_timeout(Slot, Timer, State);
timeout(_What, _Timer, State) -> State.

%% Ends all changes because the pool is drained. Their callers get `no_pool'.
cancel(#state{resize = #resize{}} = State) ->
    cancel(undo(no_pool, State));
cancel(#state{pool = #pool{size = Size}} = State) ->
    over(fun(Slot, S) -> weir_pool_slots:no_replace(no_pool, Slot, S) end, 1, Size, State).
