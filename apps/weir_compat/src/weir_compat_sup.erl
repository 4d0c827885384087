%% @doc Top supervisor:
%% ```
%%   weir_compat_sup             owns the table of weir_gproc_pool
%%    +- weir_erlpool_sup        the pools of weir_erlpool
%%    +- weir_gproc_pool_sup     the pools of weir_gproc_pool
%%    +- weir_gproc_pool_registry  the names of their workers
%% '''
%% The pools of weir_erlpool are nowhere written down but in their supervisor. When that has given up, or was killed,
%% one started in its place would know of none, so the application ends.
%% @private
-module(weir_compat_sup).
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
    ok = weir_gproc_pool_registry:new_table(),
    %% The registry comes last, since it asks weir_gproc_pool_sup when it starts, and stops pools there.
    {ok,
        {#{strategy => one_for_one, intensity => 10, period => 10, auto_shutdown => any_significant}, [
            (pools(weir_erlpool_sup))#{restart => temporary, significant => true},
            pools(weir_gproc_pool_sup),
            #{id => weir_gproc_pool_registry, start => {weir_gproc_pool_registry, start_link, []}}
        ]}}.

pools(Sup) ->
    #{id => Sup, start => {weir_compat_pools_sup, start_link, [Sup]}, type => supervisor}.
