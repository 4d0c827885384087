%% @doc The top supervisor of the application:
%% ```
%%   weir_compat_sup             owns the table of weir_gproc_pool
%%    +- weir_erlpool_sup        the pools of weir_erlpool
%%    +- weir_gproc_pool_sup     the pools of weir_gproc_pool
%%    +- weir_gproc_pool_registry  the names of their workers
%% '''
%% Only weir_erlpool_sup knows the pools of weir_erlpool. A successor would start without pools, so the application ends
%% with weir_erlpool_sup.
%%
%% Children are started through weir_compat_start, so a node without free processes does not end the application.
%% @private
-module(weir_compat_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([init/1]).

%% Restarts within a second. Failed restarts alone stay below: weir_compat_start allows ten a second.
-define(INTENSITY, 100).

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
    ok = weir_gproc_pool_registry:new_table(),
    %% The registry comes last because it asks weir_gproc_pool_sup when it starts, and stops pools there.
    {ok,
        {#{strategy => one_for_one, intensity => ?INTENSITY, period => 1, auto_shutdown => any_significant}, [
            (pools(weir_erlpool_sup))#{restart => temporary, significant => true},
            pools(weir_gproc_pool_sup),
            child(weir_gproc_pool_registry, [])
        ]}}.

pools(Sup) -> (child(weir_compat_pools_sup, [Sup]))#{id => Sup, type => supervisor, shutdown => infinity}.

%% The release handler reads the modules. By default they would be weir_compat_start alone.
child(Module, Args) ->
    #{id => Module, start => {weir_compat_start, link, [Module, start_link, Args]}, modules => [Module]}.
