%% @doc Processes that connect themselves: their names, which slots those have, and who is connected.
%%
%% Not a process: the keeper holds the names and calls handle/3. Names are kept in the seats table too, for the next
%% keeper; so is who is connected, by weir_pool_slots.
-module(weir_pool_members).

-export([handle/3]).

-include("weir_pool.hrl").

-type names() :: #{WorkerName :: term() => weir_pool:slot()}.

-type request() ::
    {add_worker, WorkerName :: term()}
    | {add_worker, WorkerName :: term(), weir_pool:slot()}
    | {remove_worker, WorkerName :: term()}
    | added_workers
    | {connect | disconnect, WorkerName :: term(), pid()}.

%% @doc Does what is asked for. `grow': the pool has to have that size first, and may.
-spec handle(request(), names(), weir_pool_slots:slots()) ->
    {Reply :: term(), names(), weir_pool_slots:slots()} | {grow, weir_pool:size()}.
handle(Request, Names, Slots) ->
    case weir_pool_slots:conf(Slots) of
        #conf{worker = none} = Conf ->
            case request(Request, Names, Slots, Conf) of
                {grow, Size} -> {grow, Size};
                {Reply, NewNames, NewSlots} -> {Reply, NewNames, NewSlots};
                Reply -> {Reply, Names, Slots}
            end;
        #conf{} ->
            {{error, has_workers}, Names, Slots}
    end.

request({add_worker, Name}, Names, _Slots, _Conf) when is_map_key(Name, Names) ->
    {error, already_added};
request({add_worker, Name}, Names, Slots, #conf{strategy = Strategy, auto_size = AutoSize}) ->
    Size = weir_pool_slots:pool_size(Slots),
    case weir_pool_names:place(Strategy, maps:values(Names), Size) of
        {ok, Slot} -> added(Name, Slot, Names, Slots);
        full when AutoSize, Size < ?MAX_SIZE -> {grow, Size + 1};
        full -> {error, pool_full}
    end;
request({add_worker, Name, _Slot}, Names, _Slots, _Conf) when is_map_key(Name, Names) ->
    {error, already_added};
request({add_worker, Name, Slot}, Names, Slots, #conf{auto_size = AutoSize}) ->
    Size = weir_pool_slots:pool_size(Slots),
    case lists:member(Slot, maps:values(Names)) of
        true -> {error, slot_taken};
        false when Slot =< Size -> added(Name, Slot, Names, Slots);
        false when AutoSize -> {grow, Slot};
        false -> {error, out_of_range}
    end;
request({remove_worker, Name}, Names, Slots, _Conf) ->
    case lookup(Name, Names, Slots) of
        {Slot, undefined} ->
            ok = weir_pool_seats:delete(weir_pool_slots:seats(Slots), {name, Name}),
            {ok, maps:remove(Name, Names), weir_pool_slots:empty(Slot, Slots)};
        {_Slot, Pid} ->
            {error, {connected, Pid}};
        unknown ->
            {error, unknown_worker}
    end;
request(added_workers, Names, _Slots, _Conf) ->
    {ok, [{Name, Slot} || {Slot, Name} <- lists:sort([{Slot, Name} || {Name, Slot} <- maps:to_list(Names)])]};
request({connect, Name, Pid}, Names, Slots, _Conf) ->
    case lookup(Name, Names, Slots) of
        {Slot, undefined} ->
            {{ok, Slot}, Names, weir_pool_slots:fill(Slot, Pid, Slots)};
        {_Slot, Other} ->
            {error, {connected, Other}};
        unknown ->
            {error, unknown_worker}
    end;
request({disconnect, Name, Pid}, Names, Slots, _Conf) ->
    case lookup(Name, Names, Slots) of
        {Slot, Pid} -> {ok, Names, weir_pool_slots:empty(Slot, Slots)};
        {_Slot, _Other} -> {error, not_connected};
        unknown -> {error, unknown_worker}
    end.

added(Name, Slot, Names, Slots) ->
    ok = weir_pool_seats:put_name(weir_pool_slots:seats(Slots), Name, Slot),
    {{ok, Slot}, Names#{Name => Slot}, Slots}.

%% The slot of a name, and who is connected. One that is dead is not, whether its monitor has told or not.
lookup(Name, Names, Slots) ->
    case Names of
        #{Name := Slot} ->
            case weir_pool_slots:worker(Slot, Slots) of
                undefined -> {Slot, undefined};
                Pid -> {Slot, if_alive(Pid)}
            end;
        #{} ->
            unknown
    end.

if_alive(Pid) ->
    case is_process_alive(Pid) of
        true -> Pid;
        false -> undefined
    end.
