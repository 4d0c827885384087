%% @doc The names of pools: who holds one, and what is cleaned up when the holder is gone.
%%
%% Protocol. A pool's manager registers under the pool's name, and takes the name back when it ends. As long as it holds
%% the name it is the only one that writes the pool's main term and what is in its row. Reading the table is free for
%% all.
%%
%% This process monitors the managers. When one has ended without taking its name back, its main term and its row are
%% removed. Slot terms, and what killed callers have left, are erased in the background, whoever has ended how: erasing
%% a term copies the node's table of persistent terms. One *eraser* at a time does that, of low priority, so that
%% it takes turns with whoever has a term to write. It finds the slot terms of a pool by their keys, among all terms.
%%
%% Nothing here depends on how another process is doing. Somebody who wants a name that is taken asks on its own whether
%% the holder is dead, and then has the registry forget it, without waiting for the monitor to tell.
%%
%% Crashes. The table belongs to weir_pool_sup and outlives this process. The next one monitors every holder again,
%% and a monitor of a dead process tells at once, so nothing is missed. What is still to be erased is in the table, too.
%% Meanwhile pools work and are picked from; a request waits for the next registry.
%% @private
-module(weir_pool_registry).
-behaviour(gen_server).

-export([start_link/0, new_table/0]).
-export([register/2, start_error/2, unregister/2, erase/1]).
-compile({no_auto_import, [erase/1, register/2]}).
-export([lookup/1, names/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2, code_change/3]).

-export_type([row/0]).

-include("weir_pool.hrl").

-define(TABLE, weir_pool_names).

%% How long a request waits for the next registry: pauses, and milliseconds of each. The supervisor needs far less than
%% one pause; after a second there will not be any.
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
%% `Base' tells this pool from any other of the same name, before it or after it, and its slot keys from all others'.
%% `Parent' is who started it: its supervisor, most of the time.

-define(START_ERROR, 5).

-record(state, {
    %% Monitors of managers.
    monitors :: #{weir_pool:name() => {Base :: non_neg_integer(), reference()}},
    %% Which pools' terms are being erased, and who is at it.
    eraser = none :: none | {Bases :: [non_neg_integer()], Monitor :: reference()}
}).

%% Beside the rows of pools the table has one for each pool whose terms are to be erased.
-define(TO_ERASE(Base), {?MODULE, Base}).

%% @doc Starts the registry.
-spec start_link() -> {ok, pid()} | ignore | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Makes the names table; it belongs to the caller.
%% One that has it already keeps it: an upgrade runs the init/1 of a supervisor again.
-spec new_table() -> ok.
new_table() ->
    _ = ets:info(?TABLE, owner) =:= self() orelse ets:new(?TABLE, [named_table, public, set, {read_concurrency, true}]),
    ok.

%% @doc Takes the name for the calling process, a pool's manager.
-spec register(weir_pool:name(), Parent :: pid()) -> {ok, Base :: non_neg_integer()} | {error, already_started}.
register(Name, Parent) ->
    case request({register, Name, self(), Parent}) of
        {ok, Base} ->
            {ok, Base};
        {taken, Holder, Base} ->
            %% In the manager that starts, not in the registry: one that is just dying is waited for.
            case is_process_alive(Holder) of
                true ->
                    {error, already_started};
                false ->
                    ok = request({unregister, Name, Base}),
                    register(Name, Parent)
            end
    end.

%% @doc The pool's manager: the last start that failed.
-spec start_error(weir_pool:name(), {weir_pool:slot(), Reason :: term()}) -> ok.
start_error(Name, Error) ->
    _ = ets:update_element(?TABLE, Name, {?START_ERROR, Error}),
    ok.

%% @doc Gives the name of this pool back: the main term and the row are gone when this returns.
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

%% @doc The row of a pool. Reads the table in the caller.
-spec lookup(weir_pool:name()) -> {ok, row()} | {error, no_pool}.
lookup(Name) ->
    try ets:lookup(?TABLE, Name) of
        [Row] -> {ok, Row};
        [] -> {error, no_pool}
    catch
        %% The application is not running.
        error:badarg -> {error, no_pool}
    end.

%% @doc All names that are taken, in no particular order. Reads the table in the caller.
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

%% The monitor's message names what it is about.
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
        %% It asks again because the registry died before the answer.
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
handle_info(_Stray, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{}) -> erase(to_erase()).

%% @private
-spec code_change(term(), #state{}, term()) -> {ok, #state{}}.
code_change(_OldVsn, State, _Extra) -> {ok, State}.

%% A namesake that has followed has another base, and is left alone.
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
        Bases -> State#state{eraser = {Bases, eraser(Bases)}}
    end;
erase_next(State) ->
    State.

to_erase() -> ets:select(?TABLE, [{{?TO_ERASE('$1')}, [], ['$1']}]).

%% @doc Has a process erase what pools have left, without the registry.
-spec erase(Bases :: [non_neg_integer()]) -> ok.
erase(Bases) ->
    _ = eraser(Bases),
    ok.

%% It goes on when the application is stopped. Whoever has the application's group leader is killed then, also before
%% its first turn, so it is born with another one.
eraser(Bases) ->
    Own = group_leader(),
    true = group_leader(whereis(init), self()),
    {_, Monitor} = spawn_opt(
        fun() ->
            lists:foreach(fun weir_pool_calls:forget/1, Bases),
            weir_pool_terms:erase_slots(Bases)
        end,
        [{priority, low}, {monitor, [{tag, erased}]}]
    ),
    true = group_leader(Own, self()),
    Monitor.
