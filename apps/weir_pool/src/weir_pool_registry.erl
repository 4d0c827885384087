%% @doc The names of pools, the supervisors of their workers, and the removal of what a pool leaves behind.
%%
%% Protocol. A pool's manager registers the pool's name, and unregisters it at its end. While it holds the name, the
%% manager alone writes the pool's main term and the row of the name. Any process may read the tables.
%%
%% The registry monitors the managers. If a manager ends without unregistering, the registry removes its main term and
%% its row. A process of low priority, the *eraser*, erases the slot terms in the background, because each erased term
%% copies the node's table of persistent terms. There is one eraser at a time. The eraser finds the slot terms of a pool
%% by their keys, among all terms. If the eraser cannot be spawned, the registry tries again after 100 milliseconds.
%%
%% The registry makes no call. If a name is taken, the process that wants the name checks whether the registered manager
%% lives. If the manager is dead, that process unregisters it without waiting for the monitor's message.
%%
%% The table of supervisors has a row for each supervisor of a worker. The supervisor inserts its row, and deletes it
%% when its worker has stopped. The manager deletes the row of a supervisor that was killed. If a manager is killed, its
%% successor reads in this table which supervisors still have to stop their workers.
%%
%% Crashes. The tables belong to weir_pool_sup and outlive the registry. The next registry monitors every
%% registered manager again. A monitor of a dead manager fires at once, so the registry misses no death. The table of
%% names also lists the slot terms that the eraser has still to erase. Until the next registry runs, pools serve picks
%% and claims, and requests wait.
%% @private
-module(weir_pool_registry).
-behaviour(gen_server).

-export([start_link/0, new_tables/0]).
-export([register/2, start_error/2, unregister/2, erase/1]).
-export([add_sup/2, remove_sup/2, sups/1]).
-compile({no_auto_import, [erase/1, register/2]}).
-export([lookup/1, names/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2, code_change/3]).

-export_type([row/0]).

-include("weir_pool.hrl").

-define(TABLE, weir_pool_names).
-define(SUPS, weir_pool_sups).

%% A request waits for the next registry for at most ?PAUSES pauses of ?PAUSE milliseconds. The supervisor restarts the
%% registry within one pause, unless the node is at its limit.
-define(PAUSES, 1000).
-define(PAUSE, 1).

-type row() ::
    {
        weir_pool:name(),
        Manager :: pid(),
        Base :: non_neg_integer(),
        Parent :: pid(),
        StartError :: none | {weir_pool:slot(), Reason :: term()}
    }.
%% `Base' is a number in the keys of the pool's slots. Earlier and later pools of the same name have other numbers.
%% `Parent' is the process that started the manager, in general its supervisor.

-define(START_ERROR, 5).

-record(state, {
    %% Monitors of managers.
    monitors :: #{weir_pool:name() => {Base :: non_neg_integer(), reference()}},
    %% The pools whose terms are being erased, and the monitor of the eraser.
    eraser = none :: none | {Bases :: [non_neg_integer()], Monitor :: reference()}
}).

%% Key of a row for a pool that has ended and whose terms the eraser has not erased yet.
-define(TO_ERASE(Base), {?MODULE, Base}).

%% @doc Starts the registry.
-spec start_link() -> {ok, pid()} | ignore | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Makes the tables of names and of supervisors, which belong to the calling process. If it has them already, keeps
%% them: a release upgrade runs a supervisor's init/1 again.
-spec new_tables() -> ok.
new_tables() ->
    ok = new_table(?TABLE, [named_table, public, set, {read_concurrency, true}]),
    new_table(?SUPS, [named_table, public, ordered_set, {write_concurrency, true}]).

new_table(Table, Options) ->
    _ = ets:info(Table, owner) =:= self() orelse ets:new(Table, Options),
    ok.

%% @doc Registers the calling process, a pool's manager, under the pool's name.
-spec register(weir_pool:name(), Parent :: pid()) -> {ok, Base :: non_neg_integer()} | {error, already_started}.
register(Name, Parent) ->
    case request({register, Name, self(), Parent}) of
        {ok, Base} ->
            {ok, Base};
        {taken, Holder, Base} ->
            %% Waits for a holder that is dying here, in the manager, and not in the registry.
            case is_process_alive(Holder) of
                true ->
                    {error, already_started};
                false ->
                    ok = request({unregister, Name, Base}),
                    register(Name, Parent)
            end
    end.

%% @doc Writes the last start that failed into the row of the pool.
-spec start_error(weir_pool:name(), {weir_pool:slot(), Reason :: term()}) -> ok.
start_error(Name, Error) ->
    _ = ets:update_element(?TABLE, Name, {?START_ERROR, Error}),
    ok.

%% @doc Unregisters a pool. The main term and the row are removed when this returns.
-spec unregister(weir_pool:name(), Base :: non_neg_integer()) -> ok.
unregister(Name, Base) -> request({unregister, Name, Base}).

request(Request) -> request(Request, ?PAUSES).

request(Request, Pauses) ->
    try
        gen_server:call(?MODULE, Request, infinity)
    catch
        exit:Reason ->
            case Pauses > 0 andalso whereis(weir_pool_sup) =/= undefined of
                true ->
                    receive
                    after ?PAUSE -> request(Request, Pauses - 1)
                    end;
                false ->
                    exit(Reason)
            end
    end.

%% @doc Adds the supervisor of a worker.
-spec add_sup(weir_pool:name(), pid()) -> ok.
add_sup(Name, Sup) ->
    _ = on_sups(fun() -> ets:insert(?SUPS, {{Name, Sup}}) end, true),
    ok.

%% @doc Removes the supervisor of a worker.
-spec remove_sup(weir_pool:name(), pid()) -> ok.
remove_sup(Name, Sup) ->
    _ = on_sups(fun() -> ets:delete(?SUPS, {Name, Sup}) end, true),
    ok.

%% @doc Returns the supervisors of a pool's workers. Cost: proportional to their number.
-spec sups(weir_pool:name()) -> [pid()].
sups(Name) -> on_sups(fun() -> sups(Name, ets:next(?SUPS, {Name, 0})) end, []).

%% A pid is greater than 0 in the order of terms. Names such as 1 and 1.0 are equal there, and are no equal names.
sups(Name, {Name, Sup} = Key) -> [Sup | sups(Name, ets:next(?SUPS, Key))];
sups(Name, {Other, _} = Key) when Other == Name -> sups(Name, ets:next(?SUPS, Key));
sups(_Name, _OtherOrEnd) -> [].

%% The application may have stopped, and the table with it.
on_sups(Fun, Otherwise) ->
    try
        Fun()
    catch
        error:badarg -> Otherwise
    end.

%% @doc Returns the row of a pool. Reads the table in the caller.
-spec lookup(weir_pool:name()) -> {ok, row()} | {error, no_pool}.
lookup(Name) ->
    try ets:lookup(?TABLE, Name) of
        [Row] -> {ok, Row};
        [] -> {error, no_pool}
    catch
        %% The application is not running.
        error:badarg -> {error, no_pool}
    end.

%% @doc Returns all names that are registered, in no particular order. Reads the table in the caller.
-spec names() -> [weir_pool:name()].
names() ->
    try
        ets:select(?TABLE, [{{'$1', '_', '_', '_', '_'}, [], ['$1']}])
    catch
        error:badarg -> []
    end.

%% @private
-spec init([]) -> {ok, #state{}}.
init([]) ->
    %% For terminate/2.
    process_flag(trap_exit, true),
    {ok, erase_next(#state{monitors = ets:foldl(fun watch/2, #{}, ?TABLE)})}.

%% Monitors a manager. The tag of the message names the pool.
watch({?TO_ERASE(_Base)}, Monitors) ->
    Monitors;
watch({Name, Manager, Base, _Parent, _StartError}, Monitors) ->
    Monitors#{Name => {Base, erlang:monitor(process, Manager, [{tag, {down, Name, Base}}])}}.

%% @private
-spec handle_call(Request, gen_server:from(), #state{}) -> {reply, Reply, #state{}} when
    Request ::
        {register, weir_pool:name(), Manager :: pid(), Parent :: pid()}
        | {unregister, weir_pool:name(), Base :: non_neg_integer()},
    Reply :: ok | {ok, Base} | {taken, Holder :: pid(), Base} | {error, {bad_call, term()}},
    Base :: non_neg_integer().
handle_call({register, Name, Manager, Parent}, _From, #state{monitors = Monitors} = State) ->
    case lookup(Name) of
        {error, no_pool} ->
            Base = erlang:unique_integer([positive, monotonic]) * (?MAX_SIZE + 1),
            Row = {Name, Manager, Base, Parent, none},
            true = ets:insert(?TABLE, Row),
            {reply, {ok, Base}, State#state{monitors = watch(Row, Monitors)}};
        %% The manager calls again because the registry died before the answer.
        {ok, {_, Manager, Base, _, _}} ->
            {reply, {ok, Base}, State};
        {ok, {_, Holder, Base, _, _}} ->
            {reply, {taken, Holder, Base}, State}
    end;
handle_call({unregister, Name, Base}, _From, State) ->
    {reply, ok, clean_up(Name, Base, State)};
handle_call(Request, _From, State) ->
    {reply, {error, {bad_call, Request}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Stray, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({{down, Name, Base}, _Monitor, process, _Manager, _Reason}, State) ->
    {noreply, clean_up(Name, Base, State)};
handle_info({erased, Monitor, process, _Eraser, _Reason}, #state{eraser = {Bases, Monitor}} = State) ->
    lists:foreach(fun(Base) -> ets:delete(?TABLE, ?TO_ERASE(Base)) end, Bases),
    {noreply, erase_next(State#state{eraser = none})};
handle_info(erase_next, State) ->
    {noreply, erase_next(State)};
handle_info(_Stray, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{}) -> erase(to_erase()).

%% @private
-spec code_change(term(), #state{}, term()) -> {ok, #state{}}.
code_change(_OldVsn, State, _Extra) -> {ok, State}.

%% Removes what a pool has left, unless a pool of the same name with another base has followed.
clean_up(Name, Base, #state{monitors = Monitors} = State) ->
    case lookup(Name) of
        {ok, {_, _Manager, Base, _Parent, _StartError}} ->
            ok = weir_pool_terms:close(Name),
            true = ets:insert(?TABLE, {?TO_ERASE(Base)}),
            true = ets:delete(?TABLE, Name),
            {{Base, Monitor}, Others} = maps:take(Name, Monitors),
            true = erlang:demonitor(Monitor, [flush]),
            erase_next(State#state{monitors = Others});
        _ ->
            State
    end.

%% ---------------------------------------------------------------- erasing

erase_next(#state{eraser = none} = State) ->
    case to_erase() of
        [] -> State;
        Bases ->
            try eraser(Bases) of
                Monitor -> State#state{eraser = {Bases, Monitor}}
            catch
                error:system_limit ->
                    _ = erlang:send_after(?AGAIN_MS, self(), erase_next),
                    State
            end
    end;
erase_next(State) ->
    State.

to_erase() -> ets:select(?TABLE, [{{?TO_ERASE('$1')}, [], ['$1']}]).

%% @doc Erases what pools have left, without the registry: by an eraser, or in the calling process if none can be
%% spawned.
-spec erase(Bases :: [non_neg_integer()]) -> ok.
erase(Bases) ->
    try eraser(Bases) of
        _Monitor -> ok
    catch
        error:system_limit -> weir_pool_terms:erase_slots(Bases)
    end.

%% The eraser goes on when the application is stopped. A process with the application's group leader would be killed
%% then, even before it is scheduled, so it is spawned with another group leader.
eraser(Bases) ->
    Own = group_leader(),
    true = group_leader(whereis(init), self()),
    try spawn_opt(fun() -> weir_pool_terms:erase_slots(Bases) end, [{priority, low}, {monitor, [{tag, erased}]}]) of
        {_, Monitor} -> Monitor
    after
        true = group_leader(Own, self())
    end.
