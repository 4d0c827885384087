%% @doc Processes that connect themselves: their names, and the slots of the names.
%%
%% Not a process: the manager calls handle/3 with its state. weir_pool_slots knows which process is connected in a slot.
%% One rule keeps claims exclusive. If a process disconnects itself while it is claimed, its slot belongs to the claim.
%% A process that connects there waits until the claim has ended.
%%
%% A new name gets the first vacant slot. With the strategies `random' and `hash' it gets the middle of the longest row
%% of vacant slots, where the last slot and the first are neighbors. If several rows are the
%% longest, the row across the end of the pool wins. If that row is not among them, the first of them wins. The rule is
%% that of gproc_pool, without its error at the end of the pool, because programs may depend on the slots.
%% @private
-module(weir_pool_members).

-export([handle/3, place/3]).

-export_type([names/0, request/0]).

-include("weir_pool.hrl").
-include("weir_pool_state.hrl").

-type names() :: #{WorkerName :: term() => weir_pool:slot()}.

-type request() ::
    {add_worker, WorkerName :: term()}
    | {add_worker, WorkerName :: term(), weir_pool:slot()}
    | {remove_worker, WorkerName :: term()}
    | added_workers
    | {connect | disconnect | dead, WorkerName :: term(), pid()}.

%% @doc Handles a request, and answers it, at once or later.
-spec handle(request(), gen_server:from(), #state{}) -> #state{}.
handle(Request, From, #state{conf = #conf{worker = none}} = State) -> request(Request, From, State);
handle(_Request, From, State) -> reply(From, {error, has_workers}, State).

request({add_worker, Name}, From, #state{conf = Conf, pool = #pool{size = Size}, names = Names} = State) ->
    #conf{strategy = Strategy, auto_size = AutoSize} = Conf,
    case is_map_key(Name, Names) orelse place(Strategy, maps:values(Names), Size) of
        true -> reply(From, {error, already_added}, State);
        {ok, Slot} -> added(Name, Slot, From, State);
        full when AutoSize, Size < ?MAX_SIZE -> added(Name, Size + 1, From, weir_pool_change:publish(Size + 1, State));
        full -> reply(From, {error, pool_full}, State)
    end;
request({add_worker, Name, Slot}, From, #state{conf = Conf, pool = #pool{size = Size}, names = Names} = State) ->
    case is_map_key(Name, Names) orelse lists:member(Slot, maps:values(Names)) of
        true when is_map_key(Name, Names) -> reply(From, {error, already_added}, State);
        true -> reply(From, {error, slot_taken}, State);
        false when Slot =< Size -> added(Name, Slot, From, State);
        false when Conf#conf.auto_size -> added(Name, Slot, From, weir_pool_change:publish(Slot, State));
        false -> reply(From, {error, out_of_range}, State)
    end;
request({remove_worker, Name}, From, #state{names = Names} = State) ->
    case lookup(Name, State) of
        {_Slot, undefined} -> reply(From, ok, State#state{names = maps:remove(Name, Names)});
        {_Slot, Pid} -> reply(From, {error, {connected, Pid}}, State);
        unknown -> reply(From, {error, unknown_worker}, State)
    end;
request(added_workers, From, #state{names = Names} = State) ->
    InOrder = [{Name, Slot} || {Slot, Name} <- lists:sort([{Slot, Name} || {Name, Slot} <- maps:to_list(Names)])],
    reply(From, {ok, InOrder}, State);
request({connect, Name, Pid}, From, State) ->
    case lookup(Name, State) of
        {Slot, undefined} -> weir_pool_slots:connect(Slot, Pid, From, State);
        {_Slot, Other} -> reply(From, {error, {connected, Other}}, State);
        unknown -> reply(From, {error, unknown_worker}, State)
    end;
request({disconnect, Name, Pid}, From, State) ->
    case lookup(Name, State) of
        {Slot, Pid} -> reply(From, ok, weir_pool_slots:disconnect(Slot, State));
        {_Slot, _Other} -> reply(From, {error, not_connected}, State);
        unknown -> reply(From, {error, unknown_worker}, State)
    end;
request({dead, Name, Pid}, From, State) ->
    case lookup(Name, State) of
        {Slot, Pid} -> reply(From, ok, weir_pool_slots:dead(Slot, Pid, State));
        _ -> reply(From, ok, State)
    end.

reply(From, Reply, State) ->
    gen_server:reply(From, Reply),
    State.

added(Name, Slot, From, #state{names = Names} = State) ->
    reply(From, {ok, Slot}, State#state{names = Names#{Name => Slot}}).

%% Returns the slot of a name, and the process that is connected there, as far as the manager knows.
lookup(Name, #state{names = Names} = State) ->
    case Names of
        #{Name := Slot} -> {Slot, weir_pool_slots:member(Slot, State)};
        #{} -> unknown
    end.

%% @doc Returns the slot for a new name, given the slots that have names.
-spec place(weir_pool:strategy(), Taken :: [weir_pool:slot()], Size :: 0 | weir_pool:size()) ->
    {ok, weir_pool:slot()} | full.
place(_Strategy, Taken, Size) when length(Taken) >= Size -> full;
place(_Strategy, [], _Size) -> {ok, 1};
place(Strategy, Taken, Size) when Strategy =:= random; Strategy =:= hash -> {ok, sparse(lists:sort(Taken), Size)};
place(_Strategy, Taken, _Size) -> {ok, packed(1, lists:sort(Taken))}.

packed(Slot, [Slot | Taken]) -> packed(Slot + 1, Taken);
packed(Slot, _) -> Slot.

sparse([First | _] = Taken, Size) ->
    Last = lists:last(Taken),
    AroundTheEnd = {Size - Last + First - 1, Last},
    {Gap, Before} = longest(Taken, AroundTheEnd),
    (Before + Gap div 2) rem Size + 1.

%% Returns the longest gap between neighbors, or the given gap if no other is longer.
longest([Slot | [Next | _] = More], {Gap, _} = Longest) ->
    case Next - Slot - 1 of
        Longer when Longer > Gap -> longest(More, {Longer, Slot});
        _ -> longest(More, Longest)
    end;
longest([_Last], Longest) ->
    Longest.
