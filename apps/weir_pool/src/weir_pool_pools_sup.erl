%% @doc Supervisor of the pools of {@link weir_pool:start/2}: one child for each pool, a supervisor of its own
%% (weir_pool_pool_sup). A child that ends is not restarted, and ends no other.
%% @private
-module(weir_pool_pools_sup).
-behaviour(supervisor).

-export([start_link/0, start_pool/3]).
-export([init/1]).

-include("weir_pool.hrl").

%% @doc Starts the supervisor.
-spec start_link() -> supervisor:startlink_ret().
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% @doc Starts a pool, which may not be open yet when this returns. Returns the pool's supervisor.
-spec start_pool(weir_pool:name(), #conf{}, weir_pool_manager:opener()) -> {ok, pid()} | {error, term()}.
start_pool(Name, Conf, Opener) ->
    try supervisor:start_child(?MODULE, [Name, Conf, Opener]) of
        {ok, PoolSup} -> {ok, PoolSup};
        {error, Reason} -> {error, Reason}
    catch
        exit:{Reason, _Call} -> {error, Reason}
    end.

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok,
        {#{strategy => simple_one_for_one, intensity => 1, period => 1}, [
            #{
                id => pool,
                start => {weir_pool_pool_sup, start_link, []},
                restart => temporary,
                shutdown => infinity,
                type => supervisor,
                modules => [weir_pool_pool_sup]
            }
        ]}}.
