%% @doc The names and slots of weir_gproc_pool: who has them, and what is cleaned up when a pool is gone.
%%
%% Protocol. Making and removing pools, adding and removing names are calls to this process, and so happen one at a
%% time; it is the only writer of the table's rows, but for the counters, which callers of {@link weir_gproc_pool:log/1}
%% count up themselves. A name is added to the pool first, and then to the table in one step; it is removed in the same
%% order. A process connects only under a name that it finds in the table, so one that is picked has a name there,
%% unless that is just being removed.
%%
%% Crashes. The table belongs to weir_compat_sup, and outlives this process. The next one asks every pool for its names
%% and brings the table into line, so a change that was under way is done, or has not happened; who asked for it gets an
%% exit. Counters stay. A pool that was made and not yet entered is stopped. When a pool dies its rows are removed: this
%% process monitors its root. Picks, claims, connecting and counting need none of this, and go on without.
%% @private
-module(weir_gproc_pool_registry).
-behaviour(gen_server).

-export([start_link/0, new_table/0, call/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("weir_gproc_pool.hrl").

-define(SUP, weir_gproc_pool_sup).
-define(CHILD(Pool), {weir_pool, ?WEIR_POOL(Pool)}).

%% The highest slot of weir_pool:slot(): as many as a node can have processes.
-define(MAX_SLOT, 134217727).

-type request() ::
    {new, weir_gproc_pool:pool(), weir_gproc_pool:type(), Size :: non_neg_integer(), AutoSize :: boolean()}
    | {delete | force_delete, weir_gproc_pool:pool()}
    | {add_worker, weir_gproc_pool:pool(), weir_gproc_pool:name()}
    | {add_worker, weir_gproc_pool:pool(), weir_gproc_pool:name(), weir_gproc_pool:slot()}
    | {remove_worker, weir_gproc_pool:pool(), weir_gproc_pool:name()}.

-type reply() :: {ok, ok | true | weir_gproc_pool:slot()} | {error, Raised :: term()}.

%% @doc Starts the registry.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Makes the table; it belongs to the caller.
%% One that has it already keeps it: an upgrade runs the init/1 of a supervisor again.
-spec new_table() -> ok.
new_table() ->
    Options = [named_table, public, set, {keypos, 2}, {read_concurrency, true}, {write_concurrency, true}],
    _ = ets:info(?TABLE, owner) =:= self() orelse ets:new(?TABLE, Options),
    ok.

%% @doc Has a change made. An error is what {@link weir_gproc_pool} raises.
-spec call(request()) -> {ok, term()} | {error, term()}.
call(Request) -> gen_server:call(?MODULE, Request, infinity).

%% @private
-spec init([]) -> {ok, []}.
init([]) ->
    Rows = ets:match_object(?TABLE, erlang:make_tuple(record_info(size, pool), '_', [{1, pool}])),
    lists:foreach(fun adopt/1, Rows),
    Known = [Sup || #pool{sup = Sup} <- Rows],
    _ = [
        supervisor:terminate_child(?SUP, Id)
     || {Id, Sup, _Type, _Modules} <- supervisor:which_children(?SUP), not lists:member(Sup, Known)
    ],
    {ok, []}.

adopt(Row) ->
    watch(Row),
    sync(Row).

%% Brings the table into line with the names that the pool has. Of a pool that is dead the monitor tells.
sync(#pool{key = ?POOL_KEY(Pool), names = Old, size = Size} = Row) ->
    case weir_pool:added_workers(?WEIR_POOL(Pool)) of
        {ok, Names} ->
            lists:foreach(fun(Named) -> delete_name(Row, Named) end, Old -- Names),
            Last = lists:max([0 | [Slot || {_Name, Slot} <- Names]]),
            NewRow = Row#pool{names = Names, size = max(Last, Size)},
            true = ets:insert(?TABLE, [NewRow | lists:append([name_rows(Row, Named) || Named <- Names -- Old])]),
            ok;
        {error, _} ->
            ok
    end.

%% @private
-spec handle_call(request(), gen_server:from(), []) -> {reply, reply(), []}.
handle_call({new, Pool, Type, Size, AutoSize}, _From, State) ->
    {reply, new(Pool, Type, Size, AutoSize), State};
handle_call({force_delete, Pool}, {Caller, _Tag}, State) ->
    Workers =
        case weir_pool:workers(?WEIR_POOL(Pool)) of
            {ok, Slots} -> [Pid || {_Slot, Pid} <- Slots];
            {error, no_pool} -> []
        end,
    stop(Pool),
    lists:foreach(fun(Pid) -> exit(Pid, kill) end, lists:usort(Workers) -- [Caller]),
    {reply, {ok, true}, State};
handle_call(Request, _From, State) when is_tuple(Request), tuple_size(Request) > 1 ->
    case ets:lookup(?TABLE, ?POOL_KEY(element(2, Request))) of
        [Row] -> {reply, change(Request, Row), State};
        [] -> {reply, {error, badarg}, State}
    end;
handle_call(_Stray, _From, State) ->
    {reply, {error, badarg}, State}.

%% @private
-spec handle_cast(term(), []) -> {noreply, []}.
handle_cast(_Stray, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), []) -> {noreply, []}.
handle_info({{down, Pool}, _Monitor, process, Sup, _Reason}, State) ->
    case ets:lookup(?TABLE, ?POOL_KEY(Pool)) of
        [#pool{sup = Sup}] -> delete_rows(Pool);
        %% Stopped by `delete', or followed by a namesake.
        _ -> ok
    end,
    {noreply, State};
handle_info(_Stray, State) ->
    {noreply, State}.

%% Pools

new(Pool, Type, Size, AutoSize) when Size =< ?MAX_SLOT ->
    Strategy =
        case Type of
            %% One that cannot be picked from without a key.
            claim -> direct;
            _ -> Type
        end,
    Opts = #{worker => none, size => Size, auto_size => AutoSize, strategy => Strategy, abandoned => free},
    case weir_compat_pools_sup:start_pool(?SUP, ?WEIR_POOL(Pool), Opts, temporary) of
        {ok, Sup} ->
            %% Those of a namesake that has died and whose monitor has not told yet.
            delete_rows(Pool),
            Row = #pool{
                key = ?POOL_KEY(Pool), type = Type, auto_size = AutoSize, size = Size, names = [], sup = Sup
            },
            watch(Row),
            true = ets:insert(?TABLE, Row),
            {ok, ok};
        {error, {already_started, Sup}} ->
            %% This waits for the end of one that is dying, as the supervisor does that is asked next; a pool's own
            %% process holds nothing for which that would take long.
            case is_pid(Sup) andalso is_process_alive(Sup) of
                true ->
                    {error, exists};
                false ->
                    %% Its end is told to the supervisor by a signal of its own.
                    _ = supervisor:terminate_child(?SUP, ?CHILD(Pool)),
                    new(Pool, Type, Size, AutoSize)
            end;
        {error, already_started} ->
            {error, exists};
        {error, Reason} ->
            {error, Reason}
    end;
new(_Pool, _Type, _Size, _AutoSize) ->
    {error, badarg}.

watch(#pool{key = ?POOL_KEY(Pool), sup = Sup}) ->
    _ = erlang:monitor(process, Sup, [{tag, {down, Pool}}]),
    ok.

stop(Pool) ->
    %% An error if it has died before.
    _ = supervisor:terminate_child(?SUP, ?CHILD(Pool)),
    delete_rows(Pool).

%% The pool's row is what tells of the others, so it goes last.
delete_rows(Pool) ->
    case ets:lookup(?TABLE, ?POOL_KEY(Pool)) of
        [#pool{names = Names} = Row] ->
            lists:foreach(fun(Named) -> delete_name(Row, Named) end, Names),
            true = ets:delete(?TABLE, ?POOL_KEY(Pool)),
            ok;
        [] ->
            ok
    end.

%% Names

change({delete, Pool}, #pool{names = []}) ->
    stop(Pool),
    {ok, ok};
change({delete, _Pool}, #pool{}) ->
    {error, not_empty};
change({add_worker, Pool, Name}, Row) ->
    case ets:member(?TABLE, ?NAME_KEY(Pool, Name)) of
        true -> {error, exists};
        false -> add(Row, Name, place(Row))
    end;
change({add_worker, Pool, Name, Slot}, #pool{size = Size, auto_size = AutoSize} = Row) ->
    case ets:member(?TABLE, ?NAME_KEY(Pool, Name)) orelse ets:member(?TABLE, ?SLOT_KEY(Pool, Slot)) of
        true -> {error, exists};
        false when Slot > Size, not AutoSize -> {error, out_of_range};
        false when Slot > ?MAX_SLOT -> {error, out_of_range};
        false -> add(Row, Name, Slot)
    end;
change({remove_worker, Pool, Name}, Row) ->
    case weir_pool:remove_worker(?WEIR_POOL(Pool), Name) of
        ok -> {ok, remove(Row, Name)};
        {error, {connected, Pid}} -> {error, {worker_connected, Pid}};
        {error, unknown_worker} -> {error, badarg};
        {error, Reason} -> failed(Row, Reason)
    end;
change(_Stray, _Row) ->
    {error, badarg}.

add(_Row, _Name, none) ->
    {error, pool_full};
add(#pool{key = ?POOL_KEY(Pool), names = Names, size = Size} = Row, Name, Slot) ->
    case weir_pool:add_worker(?WEIR_POOL(Pool), Name, Slot) of
        {ok, Slot} ->
            Named = {Name, Slot},
            NewRow = Row#pool{names = lists:keymerge(2, Names, [Named]), size = max(Size, Slot)},
            true = ets:insert(?TABLE, [NewRow | name_rows(Row, Named)]),
            {ok, Slot};
        {error, Reason} ->
            failed(Row, Reason)
    end.

%% The pool is gone, or was killed while it made the change, or somebody else has made changes.
failed(_Row, no_pool) ->
    {error, badarg};
failed(Row, Reason) ->
    sync(Row),
    case Reason of
        already_added -> {error, exists};
        slot_taken -> {error, exists};
        _ -> {error, Reason}
    end.

name_rows(#pool{key = ?POOL_KEY(Pool), type = Type}, {Name, Slot}) ->
    [
        #slot{key = ?SLOT_KEY(Pool, Slot), name = Name, type = Type},
        #name{key = ?NAME_KEY(Pool, Name), slot = Slot}
    ].

remove(#pool{key = ?POOL_KEY(Pool), names = Names} = Row, Name) ->
    Slot = ets:lookup_element(?TABLE, ?NAME_KEY(Pool, Name), #name.slot),
    Size = shrink(Row, Slot),
    true = ets:insert(?TABLE, Row#pool{names = lists:keydelete(Slot, 2, Names), size = Size}),
    delete_name(Row, {Name, Slot}),
    true.

%% By one slot, whatever the slots before it are, as gproc_pool did. If the pool cannot shrink just now, because
%% somebody else resizes it, it is larger than the table says until its size changes again, by a slot that is vacant.
shrink(#pool{key = ?POOL_KEY(Pool), size = Slot, auto_size = true}, Slot) ->
    _ = weir_pool:resize(?WEIR_POOL(Pool), Slot - 1),
    Slot - 1;
shrink(#pool{size = Size}, _Slot) ->
    Size.

delete_name(#pool{key = ?POOL_KEY(Pool)}, {Name, Slot}) ->
    true = ets:delete(?TABLE, ?SLOT_KEY(Pool, Slot)),
    true = ets:delete(?TABLE, ?NAME_KEY(Pool, Name)),
    ok.

%% Placement

place(#pool{size = Size, names = Names, auto_size = AutoSize}) when length(Names) =:= Size ->
    case AutoSize andalso Size < ?MAX_SLOT of
        true -> Size + 1;
        false -> none
    end;
place(#pool{names = []}) ->
    1;
place(#pool{type = Type, size = Size, names = Names}) ->
    Slots = [Slot || {_Name, Slot} <- Names],
    case Type =:= hash orelse Type =:= random of
        true -> sparse(Slots, Size);
        false -> packed(Slots, 1)
    end.

packed([Slot | Slots], Slot) -> packed(Slots, Slot + 1);
packed(_Slots, Vacant) -> Vacant.

%% The row of vacant slots over the pool's end wins over others of the same length, and the first of those.
sparse([First | _] = Slots, Size) ->
    Last = lists:last(Slots),
    Wrapping = {Size - Last + First - 1, Last},
    {Gap, Before} = lists:foldl(
        fun({Length, _} = Row, {Longest, _} = Max) ->
            case Length > Longest of
                true -> Row;
                false -> Max
            end
        end,
        Wrapping,
        [{Next - Slot - 1, Slot} || {Slot, Next} <- lists:zip(lists:droplast(Slots), tl(Slots))]
    ),
    (Before + Gap div 2) rem Size + 1.
