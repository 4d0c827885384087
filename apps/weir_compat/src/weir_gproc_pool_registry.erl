%% @doc Changes the pools of weir_gproc_pool, and keeps the table that maps slots to names.
%%
%% Protocol. weir_pool decides which slot a name gets, and holds all names. The registry asks weir_pool for a change,
%% and copies the answer to the table, where callers of weir_gproc_pool read it. The registry makes one change at a
%% time, and no other process inserts or deletes rows. A process connects only under a name that is in the table. A
%% picked worker therefore has a name in the table, unless the name has just been removed.
%%
%% Crashes. The table belongs to weir_compat_sup and outlives the registry. The next registry asks every pool for its
%% names and corrects the table. A change that was under way has then either happened or not happened, and its caller
%% gets an exit. Counters stay. A pool that was started and is not in the table is stopped. The registry monitors the
%% root process of each pool, and deletes the rows of a pool that ends.
%%
%% Picks, claims, connecting and counting do not use the registry.
%% @private
-module(weir_gproc_pool_registry).
-behaviour(gen_server).

-export([start_link/0, new_table/0, call/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("weir_gproc_pool.hrl").

-define(SUP, weir_gproc_pool_sup).
-define(CHILD(Pool), {weir_pool, ?WEIR_POOL(Pool)}).

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

%% @doc Creates the table, which belongs to the calling process. Does nothing if the calling process already has the
%% table: during an upgrade a supervisor runs its init/1 again.
-spec new_table() -> ok.
new_table() ->
    Options = [named_table, public, set, {keypos, 2}, {read_concurrency, true}, {write_concurrency, true}],
    _ = ets:info(?TABLE, owner) =:= self() orelse ets:new(?TABLE, Options),
    ok.

%% @doc Asks the registry for a change. weir_gproc_pool raises the reason of an error.
-spec call(request()) -> {ok, term()} | {error, term()}.
call(Request) -> gen_server:call(?MODULE, Request, infinity).

%% @private
-spec init([]) -> {ok, []}.
init([]) ->
    Rows = ets:tab2list(?TABLE),
    Pools = [Row || #pool{} = Row <- Rows],
    lists:foreach(fun watch/1, Pools),
    Roots = [Root || #pool{root = Root} <- Pools],
    _ = [
        supervisor:terminate_child(?SUP, Id)
     || {Id, Root, _Type, _Modules} <- supervisor:which_children(?SUP), not lists:member(Root, Roots)
    ],
    Named = [Row || Pool <- Pools, Row <- rows(Pool)],
    Kept = maps:from_keys([key(Row) || Row <- Pools ++ Named], true),
    lists:foreach(fun(Row) -> is_map_key(key(Row), Kept) orelse ets:delete(?TABLE, key(Row)) end, Rows),
    %% A row that is in the table stays, with its count.
    lists:foreach(fun(Row) -> ets:insert_new(?TABLE, Row) end, Named),
    {ok, []}.

key(Row) -> element(2, Row).

%% Returns the rows of all names that a pool has. If the pool has died, returns none: the message of its monitor is
%% under way.
rows(#pool{key = ?POOL_KEY(Pool)} = Row) ->
    case weir_pool:added_workers(?WEIR_POOL(Pool)) of
        {ok, Names} -> lists:append([rows(Row, Name, Slot) || {Name, Slot} <- Names]);
        {error, _} -> []
    end.

rows(#pool{key = ?POOL_KEY(Pool), type = Type}, Name, Slot) ->
    [
        #slot{key = ?SLOT_KEY(Pool, Slot), name = Name, type = Type},
        #name{key = ?NAME_KEY(Pool, Name), slot = Slot}
    ].

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
handle_call(Request, _From, State) when tuple_size(Request) > 1 ->
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
handle_info({{down, Pool}, _Monitor, process, Root, _Reason}, State) ->
    case ets:lookup(?TABLE, ?POOL_KEY(Pool)) of
        [#pool{root = Root}] -> ok = forget(Pool);
        %% The pool was deleted, or another pool has its name now.
        _ -> ok
    end,
    {noreply, State};
handle_info(_Stray, State) ->
    {noreply, State}.

%% ---------------------------------------------------------------- pools

new(Pool, Type, Size, AutoSize) when Size =< ?MAX_SLOT ->
    Strategy =
        case Type of
            %% weir_pool refuses to pick from a `direct' pool without a key.
            claim -> direct;
            _ -> Type
        end,
    Opts = #{worker => none, size => Size, auto_size => AutoSize, strategy => Strategy, abandoned => free},
    Name = ?WEIR_POOL(Pool),
    %% The start of weir_pool:child_spec/2 would wait at a limit of the node, and all pools with it.
    Start = {weir_pool, start_link, [Name, Opts]},
    Spec = (weir_pool:child_spec(Name, Opts))#{id => ?CHILD(Pool), restart => temporary, start => Start},
    case weir_compat_pools_sup:start_child(?SUP, Spec) of
        {ok, Root} ->
            %% Rows can remain of an earlier pool of this name that died just now.
            forget(Pool),
            Row = #pool{key = ?POOL_KEY(Pool), type = Type, auto_size = AutoSize, root = Root},
            watch(Row),
            true = ets:insert(?TABLE, Row),
            {ok, ok};
        {error, {already_started, Root}} ->
            %% Waits for the end of a root that is dying, as the supervisor does next. A root without workers ends
            %% within microseconds.
            case is_pid(Root) andalso is_process_alive(Root) of
                true ->
                    {error, exists};
                false ->
                    %% The supervisor may still have the signal of the root's death before it.
                    _ = supervisor:terminate_child(?SUP, ?CHILD(Pool)),
                    new(Pool, Type, Size, AutoSize)
            end;
        {error, Reason} ->
            {error, raised(Reason)}
    end;
new(_Pool, _Type, _Size, _AutoSize) ->
    {error, badarg}.

watch(#pool{key = ?POOL_KEY(Pool), root = Root}) ->
    _ = erlang:monitor(process, Root, [{tag, {down, Pool}}]),
    ok.

stop(Pool) ->
    Names = weir_pool:added_workers(?WEIR_POOL(Pool)),
    %% Returns an error if the pool has died.
    _ = supervisor:terminate_child(?SUP, ?CHILD(Pool)),
    case Names of
        {ok, All} ->
            lists:foreach(fun({Name, Slot}) -> forget(Pool, Name, Slot) end, All),
            true = ets:delete(?TABLE, ?POOL_KEY(Pool)),
            ok;
        {error, _} ->
            forget(Pool)
    end.

%% Deletes the rows of a pool that died with its names. Scans the table for rows of the pool, so an unknown pool is no
%% error.
forget(Pool) ->
    OfPool = {'=:=', {element, 2, {element, 2, '$_'}}, {const, Pool}},
    _ = ets:member(?TABLE, ?POOL_KEY(Pool)) andalso ets:select_delete(?TABLE, [{'_', [OfPool], [true]}]),
    ok.

forget(Pool, Name, Slot) ->
    true = ets:delete(?TABLE, ?SLOT_KEY(Pool, Slot)),
    true = ets:delete(?TABLE, ?NAME_KEY(Pool, Name)),
    ok.

%% ---------------------------------------------------------------- names

change({delete, Pool}, _Row) ->
    case weir_pool:added_workers(?WEIR_POOL(Pool)) of
        {ok, []} ->
            stop(Pool),
            {ok, ok};
        {ok, _Names} ->
            {error, not_empty};
        {error, Reason} ->
            {error, raised(Reason)}
    end;
change({add_worker, Pool, Name}, Row) ->
    added(weir_pool:add_worker(?WEIR_POOL(Pool), Name), Name, Row);
change({add_worker, Pool, Name, Slot}, Row) when Slot =< ?MAX_SLOT ->
    added(weir_pool:add_worker(?WEIR_POOL(Pool), Name, Slot), Name, Row);
change({add_worker, _Pool, _Name, _Slot}, _Row) ->
    {error, out_of_range};
change({remove_worker, Pool, Name}, Row) ->
    case weir_pool:remove_worker(?WEIR_POOL(Pool), Name) of
        ok ->
            %% The table has no name that was added by weir_pool:add_worker/2.
            lists:foreach(fun(Named) -> removed(Named, Row) end, ets:lookup(?TABLE, ?NAME_KEY(Pool, Name))),
            {ok, true};
        {error, Reason} ->
            {error, raised(Reason)}
    end;
change(_Stray, _Row) ->
    {error, badarg}.

added({ok, Slot}, Name, Row) ->
    true = ets:insert(?TABLE, rows(Row, Name, Slot)),
    {ok, Slot};
added({error, Reason}, _Name, _Row) ->
    {error, raised(Reason)}.

%% Deletes the rows of a removed name. If the name had the last slot, shrinks the pool by that slot only, as gproc_pool
%% did, even if the slots before are vacant. If weir_pool refuses, because a resize of the pool is under way, the last
%% slot stays vacant.
removed(#name{key = ?NAME_KEY(Pool, Name), slot = Slot}, #pool{auto_size = AutoSize}) ->
    forget(Pool, Name, Slot),
    case weir_pool:info(?WEIR_POOL(Pool)) of
        {ok, #{size := Slot}} when AutoSize -> weir_pool:resize(?WEIR_POOL(Pool), Slot - 1);
        _ -> ok
    end.

%% Returns the reason that gproc_pool raises for an error of weir_pool.
raised(already_started) -> exists;
raised(already_added) -> exists;
raised(slot_taken) -> exists;
raised({connected, Pid}) -> {worker_connected, Pid};
raised(unknown_worker) -> badarg;
raised(no_pool) -> badarg;
raised({pool_down, system_limit}) -> system_limit;
raised(Reason) -> Reason.
