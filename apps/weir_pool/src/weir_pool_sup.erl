%% @doc Supervisor of the application: owns the tables of names and of supervisors, and supervises the
%% registry and the supervisor of the pools of {@link weir_pool:start/2}.
%%
%% The registry runs no code of the user's, so only a bug of weir_pool could restart it without end. The intensity
%% limits that. A restart that fails because the node can have no other process waits (weir_pool_limit).
%% @private
-module(weir_pool_sup).
-behaviour(supervisor).

-export([start_link/0, start_patiently/1]).
-export([init/1]).

%% @doc Starts the supervisor.
-spec start_link() -> supervisor:startlink_ret().
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% @private
-spec start_patiently(module()) -> supervisor:startlink_ret().
start_patiently(Module) -> weir_pool_limit:patiently(fun Module:start_link/0).

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = weir_pool_registry:new_tables(),
    {ok,
        {#{strategy => one_for_one, intensity => 10, period => 10}, [
            child(weir_pool_registry, worker), child(weir_pool_pools_sup, supervisor)
        ]}}.

child(Module, Type) ->
    #{id => Module, start => {?MODULE, start_patiently, [Module]}, type => Type, modules => [Module]}.
