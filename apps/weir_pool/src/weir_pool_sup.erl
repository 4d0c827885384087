%% @doc Supervisors of the application: of all, which owns the tables of names and of calls; and of the pools that were
%% started by {@link weir_pool:start/2}.
%%
%% A pool that gives up is not started again. One whose manager is killed is; managers run no code of the user's, so the
%% intensity is for a bug that would otherwise spin.
-module(weir_pool_sup).
-behaviour(supervisor).

-export([start_link/0, start_pools/0, start_pool/3]).
-export([init/1]).

-include("weir_pool.hrl").

-define(POOLS, weir_pool_pools_sup).

%% @doc Starts the supervisor of the application.
-spec start_link() -> supervisor:startlink_ret().
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, all).

%% @private
-spec start_pools() -> supervisor:startlink_ret().
start_pools() -> supervisor:start_link({local, ?POOLS}, ?MODULE, pools).

%% @doc Starts a pool; it may not be open yet.
-spec start_pool(weir_pool:name(), #conf{}, weir_pool_manager:opener()) -> supervisor:startchild_ret().
start_pool(Name, Conf, Opener) -> supervisor:start_child(?POOLS, [Name, Conf, Opener]).

%% @private
-spec init(all | pools) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(all) ->
    ok = weir_pool_registry:new_table(),
    ok = weir_pool_call:new_table(),
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
