%% @doc Processes that connect themselves: their names, and which slots those have.
%%
%% Not a process: the manager holds the names and calls handle/4. Who is connected is for weir_pool_slots. One rule
%% keeps their claims exclusive: a slot that a process has left while it was claimed belongs to that claim, and whoever
%% connects there waits until it has ended.
%%
%% Which slot a new name gets: packed from the beginning, or with the strategies that choose slots at random, as far
%% from the others as can be: then the share of a vacant slot, which goes to others, is spread. The rule is
%% gproc_pool's: the middle of the longest row of vacant slots, the row that goes over the end counting as one, and
%% being preferred among equals.
%% @private
-module(weir_pool_members).

-export([handle/4, place/3]).

-export_type([request/0]).

-include("weir_pool.hrl").

-type names() :: #{WorkerName :: term() => weir_pool:slot()}.

-type request() ::
    {add_worker, WorkerName :: term()}
    | {add_worker, WorkerName :: term(), weir_pool:slot()}
    | {remove_worker, WorkerName :: term()}
    | added_workers
    | {connect | disconnect | dead, WorkerName :: term(), pid()}.

-type slots() :: weir_pool_slots:slots().

%% @doc Does what is asked for, and answers, at once or later.
-spec handle(request(), gen_server:from(), names(), slots()) -> {names(), slots()}.
handle(Request, From, Names, Slots) ->
    case weir_pool_slots:conf(Slots) of
        #conf{worker = none} = Conf -> request(Request, From, {Names, Slots}, Conf);
        #conf{} -> reply(From, {error, has_workers}, {Names, Slots})
    end.

request({add_worker, Name}, From, {Names, Slots} = Now, #conf{strategy = Strategy, auto_size = AutoSize}) ->
    Size = weir_pool_slots:pool_size(Slots),
    case is_map_key(Name, Names) orelse place(Strategy, maps:values(Names), Size) of
        true -> reply(From, {error, already_added}, Now);
        {ok, Slot} -> added(Name, Slot, From, Now);
        full when AutoSize, Size < ?MAX_SIZE -> added(Name, Size + 1, From, grown(Size + 1, Now));
        full -> reply(From, {error, pool_full}, Now)
    end;
request({add_worker, Name, Slot}, From, {Names, Slots} = Now, #conf{auto_size = AutoSize}) ->
    Size = weir_pool_slots:pool_size(Slots),
    case is_map_key(Name, Names) orelse lists:member(Slot, maps:values(Names)) of
        true when is_map_key(Name, Names) -> reply(From, {error, already_added}, Now);
        true -> reply(From, {error, slot_taken}, Now);
        false when Slot =< Size -> added(Name, Slot, From, Now);
        false when AutoSize -> added(Name, Slot, From, grown(Slot, Now));
        false -> reply(From, {error, out_of_range}, Now)
    end;
request({remove_worker, Name}, From, {Names, Slots} = Now, _Conf) ->
    case lookup(Name, Names, Slots) of
        {_Slot, undefined} -> reply(From, ok, {maps:remove(Name, Names), Slots});
        {_Slot, Pid} -> reply(From, {error, {connected, Pid}}, Now);
        unknown -> reply(From, {error, unknown_worker}, Now)
    end;
request(added_workers, From, {Names, _} = Now, _Conf) ->
    InOrder = [{Name, Slot} || {Slot, Name} <- lists:sort([{Slot, Name} || {Name, Slot} <- maps:to_list(Names)])],
    reply(From, {ok, InOrder}, Now);
request({connect, Name, Pid}, From, {Names, Slots} = Now, _Conf) ->
    case lookup(Name, Names, Slots) of
        {Slot, undefined} -> {Names, weir_pool_slots:connect(Slot, Pid, From, Slots)};
        {_Slot, Other} -> reply(From, {error, {connected, Other}}, Now);
        unknown -> reply(From, {error, unknown_worker}, Now)
    end;
request({disconnect, Name, Pid}, From, {Names, Slots} = Now, _Conf) ->
    case lookup(Name, Names, Slots) of
        {Slot, Pid} -> reply(From, ok, {Names, weir_pool_slots:disconnect(Slot, Slots)});
        {_Slot, _Other} -> reply(From, {error, not_connected}, Now);
        unknown -> reply(From, {error, unknown_worker}, Now)
    end;
request({dead, Name, Pid}, From, {Names, Slots} = Now, _Conf) ->
    case lookup(Name, Names, Slots) of
        {Slot, Pid} -> reply(From, ok, {Names, weir_pool_slots:dead(Slot, Pid, Slots)});
        _ -> reply(From, ok, Now)
    end.

reply(From, Reply, Now) ->
    gen_server:reply(From, Reply),
    Now.

grown(Size, {Names, Slots}) -> {Names, weir_pool_change:publish(Size, Slots)}.

added(Name, Slot, From, {Names, Slots}) -> reply(From, {ok, Slot}, {Names#{Name => Slot}, Slots}).

%% The slot of a name, and who is connected, as far as is known here.
lookup(Name, Names, Slots) ->
    case Names of
        #{Name := Slot} -> {Slot, weir_pool_slots:member(Slot, Slots)};
        #{} -> unknown
    end.

%% @doc The slot for a new name, given the slots that have one.
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

%% The gap between a slot and the next.
longest([Slot | [Next | _] = More], {Gap, _} = Longest) ->
    case Next - Slot - 1 of
        Longer when Longer > Gap -> longest(More, {Longer, Slot});
        _ -> longest(More, Longest)
    end;
longest([_Last], Longest) ->
    Longest.
