%% @doc Supervisor of the pools that `weir_pool:start/2' starts. They are temporary: a pool that gives up is gone.
-module(weir_pool_pools_sup).
-behaviour(supervisor).

-export([start_link/0, start_pool/1]).
-export([init/1]).

-include("weir_pool.hrl").

%% @doc Starts the supervisor.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    case supervisor:start_link({local, ?MODULE}, ?MODULE, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Starts a pool's processes; the keeper starts the workers afterwards, so this supervisor never waits for one.
-spec start_pool(#boot{}) -> {ok, pid()} | ignore | {error, term()}.
start_pool(Boot) ->
    case supervisor:start_child(?MODULE, [Boot]) of
        {ok, Sup} when is_pid(Sup) -> {ok, Sup};
        {ok, undefined} -> ignore;
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok,
        {#{strategy => simple_one_for_one}, [
            #{
                id => pool,
                start => {weir_pool_pool_sup, start_link, []},
                restart => temporary,
                shutdown => infinity,
                type => supervisor
            }
        ]}}.
