%% @doc Starts one pool of weir_erlpool, and restarts the pool when the pool crashes.
%%
%% A pool that cannot be restarted, for instance because the node has no free process, is tried again after a pause, for
%% as long as necessary. A supervisor would try again at once, exceed its intensity and give up.
%%
%% Protocol. The keeper is the parent of the pool, and stops the pool as a supervisor would. If the pool stops with
%% reason `shutdown', because its workers died too often or because of `weir_pool:stop/1', the keeper stops too. Its
%% specification stays with the supervisor, so `weir_erlpool:restart_pool/1' can start the pool again.
%%
%% The keeper starts the pool after init/1, so that a slow worker holds up neither the supervisor nor other pools.
%% {@link await/1} returns the result of that start.
%%
%% Crashes. A pool whose keeper is killed stops. The supervisor starts the next keeper, which starts the pool once the
%% old pool has ended.
%% @private
-module(weir_erlpool_keeper).
-behaviour(gen_server).

-include_lib("kernel/include/logger.hrl").

-export([start_link/2, await/1]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

%% Milliseconds between two attempts to start the pool.
-define(PAUSE_MS, 500).

-record(state, {
    name :: weir_pool:name(),
    opts :: map(),
    %% `failed' while the keeper waits for the next attempt.
    pool = none :: none | pid() | {failed, Reason :: term()}
}).

%% @doc Starts the keeper of a pool. The option `group' is not for the pool: weir_erlpool reads the group from the
%% keeper's specification.
-spec start_link(weir_pool:name(), Opts :: map()) -> {ok, pid()} | {error, term()}.
start_link(Name, Opts) ->
    case gen_server:start_link(?MODULE, {Name, maps:remove(group, Opts)}, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Waits until a new keeper has started its pool. If the pool cannot be started, the keeper stops.
-spec await(pid()) -> ok | {error, weir_pool:start_error() | term()}.
await(Keeper) ->
    try
        gen_server:call(Keeper, await, infinity)
    catch
        exit:{Reason, _Call} -> {error, {pool_down, Reason}}
    end.

%% @private
-spec init({weir_pool:name(), map()}) -> {ok, #state{}, {continue, start}}.
init({Name, Opts}) ->
    process_flag(trap_exit, true),
    {ok, #state{name = Name, opts = Opts}, {continue, start}}.

%% @private
-spec handle_continue(start, #state{}) -> {noreply, #state{}}.
handle_continue(start, State) -> {noreply, start(State)}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) ->
    {reply, ok | {error, term()}, #state{}} | {stop, shutdown, {error, term()}, #state{}}.
handle_call(await, _From, #state{pool = {failed, Reason}} = State) -> {stop, shutdown, {error, Reason}, State};
handle_call(await, _From, State) -> {reply, ok, State};
%% As a supervisor answers, for the release handler.
handle_call(which_children, _From, #state{pool = Pool} = State) ->
    {reply, [{pool, Pool, supervisor, [weir_pool_manager]} || is_pid(Pool)], State};
handle_call(Stray, _From, State) -> {reply, {error, {bad_call, Stray}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Stray, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, shutdown, #state{}}.
handle_info({'EXIT', Pool, Reason}, #state{name = Name, pool = Pool} = State) ->
    case Reason of
        _ when Reason =:= normal; Reason =:= shutdown; element(1, Reason) =:= shutdown ->
            {stop, shutdown, State#state{pool = none}};
        _ ->
            New = start(State),
            _ = report(Name, New),
            {noreply, New}
    end;
handle_info(start, #state{pool = {failed, _}} = State) ->
    {noreply, start(State)};
handle_info(_Stray, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{pool = Pool}) when is_pid(Pool) ->
    exit(Pool, shutdown),
    receive
        {'EXIT', Pool, _} -> ok
    end;
terminate(_Reason, #state{}) ->
    ok.

start(#state{name = Name, opts = Opts} = State) ->
    case weir_pool:start_link(Name, Opts) of
        {ok, Pool} ->
            State#state{pool = Pool};
        {error, Reason} ->
            _ = erlang:send_after(?PAUSE_MS, self(), start),
            State#state{pool = {failed, Reason}}
    end.

%% Reports the first failed restart only: later ones would repeat the report every half second.
report(Name, #state{pool = {failed, Reason}}) ->
    ?LOG_ERROR("Pool ~tp cannot be restarted, and is tried again every ~b ms: ~tp", [Name, ?PAUSE_MS, Reason]);
report(_Name, #state{}) ->
    ok.
