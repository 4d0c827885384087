%% @doc Top supervisor. Owns the tables, so that they outlive the processes that write them.
%%
%% The two children are independent: pools go on without the registry, and the registry cleans up after pools.
-module(weir_pool_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([init/1]).

%% @doc Starts the supervisor.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    case supervisor:start_link({local, ?MODULE}, ?MODULE, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = weir_pool_registry:new_table(),
    ok = weir_pool_holder:new_table(),
    ok = weir_pool_load:new_table(),
    {ok,
        {#{strategy => one_for_one, intensity => 10, period => 10}, [
            #{id => registry, start => {weir_pool_registry, start_link, []}},
            #{id => pools, start => {weir_pool_pools_sup, start_link, []}, type => supervisor}
        ]}}.
