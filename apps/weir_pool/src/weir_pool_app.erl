%% @doc The application: its supervisor, which owns the tables of names and of calls; the supervisor of the pools that
%% were started by {@link weir_pool:start/2}; and the pools of its environment,
%% `{weir_pool, [{pools, [{Name, Opts}]}]}', which it starts in their order.
%%
%% A pool that gives up is not started again. One whose manager is killed is; managers run no code of the user's, so the
%% intensity is for a bug that would otherwise spin. A pool of the environment that cannot be started makes the start of
%% the application fail, with `{pool_not_started, Name, Reason}'.
%% @private
-module(weir_pool_app).
-behaviour(application).
-behaviour(supervisor).

-export([start/2, stop/1]).
-export([start_pools/0, start_pool/3]).
-export([init/1]).

-include("weir_pool.hrl").

-define(SUP, weir_pool_sup).
-define(POOLS, weir_pool_pools_sup).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    {ok, Sup} = supervisor:start_link({local, ?SUP}, ?MODULE, all),
    case start_each(application:get_env(weir_pool, pools, [])) of
        ok ->
            {ok, Sup};
        {error, _} = Error ->
            %% It stops the pools that were started.
            true = unlink(Sup),
            ok = proc_lib:stop(Sup, shutdown, infinity),
            Error
    end.

start_each([{Name, Opts} | More]) ->
    case weir_pool:start(Name, Opts) of
        ok -> start_each(More);
        {error, Reason} -> {error, {pool_not_started, Name, Reason}}
    end;
start_each([]) ->
    ok;
start_each(Other) ->
    {error, {bad_environment, pools, Other}}.

%% @private
-spec stop(term()) -> ok.
stop(_State) -> ok.

%% @private
-spec start_pools() -> supervisor:startlink_ret().
start_pools() -> supervisor:start_link({local, ?POOLS}, ?MODULE, pools).

%% @doc Starts a pool; it may not be open yet. The supervisor may be gone for a moment, when too many pools had to be
%% started again within a second.
-spec start_pool(weir_pool:name(), #conf{}, weir_pool_manager:opener()) -> supervisor:startchild_ret().
start_pool(Name, Conf, Opener) ->
    try
        supervisor:start_child(?POOLS, [Name, Conf, Opener])
    catch
        exit:{Reason, _Call} -> {error, Reason}
    end.

%% @private
-spec init(all | pools) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(all) ->
    ok = weir_pool_registry:new_table(),
    ok = weir_pool_calls:new_table(),
    {ok,
        {#{strategy => one_for_one, intensity => 10, period => 10}, [
            #{id => registry, start => {weir_pool_registry, start_link, []}},
            #{id => pools, start => {?MODULE, start_pools, []}, type => supervisor}
        ]}};
init(pools) ->
    {ok,
        {#{strategy => simple_one_for_one, intensity => 100, period => 1}, [
            #{
                id => pool,
                start => {weir_pool_manager, start_link, []},
                restart => transient,
                shutdown => infinity,
                type => supervisor,
                modules => [weir_pool_manager]
            }
        ]}}.
