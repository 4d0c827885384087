%% @doc The supervisor of the pools of weir_erlpool, and another one of the pools of weir_gproc_pool.
%%
%% Each is registered under the name that it is started with. The end of one pool must not end the supervisor, which
%% would end all pools. A pool of weir_gproc_pool is `temporary', so the supervisor never restarts the pool. A pool of
%% weir_erlpool is the child of a weir_erlpool_keeper, which restarts the pool without the supervisor. The supervisor
%% restarts a keeper only if another process has killed the keeper.
%% @private
-module(weir_compat_pools_sup).
-behaviour(supervisor).

-export([start_link/1, start_child/2]).
-export([init/1]).

%% More restarts in a second than a node can do: killing one keeper again and again does not end the others.
-define(INTENSITY, 1_000_000).

%% @doc Starts the supervisor.
-spec start_link(Sup :: atom()) -> {ok, pid()} | {error, term()}.
start_link(Sup) ->
    case supervisor:start_link({local, Sup}, ?MODULE, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Starts a child, and returns the error of its start function without the records of the supervisor. Exits with
%% `noproc' if the supervisor is not running.
-spec start_child(Sup :: atom(), supervisor:child_spec()) ->
    {ok, pid()} | {error, already_present | {already_started, pid() | undefined} | term()}.
start_child(Sup, Spec) ->
    case supervisor:start_child(Sup, Spec) of
        {ok, Pid} when is_pid(Pid) -> {ok, Pid};
        {error, {Reason, Child}} when element(1, Child) =:= child -> {error, Reason};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), []}}.
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => ?INTENSITY, period => 1}, []}}.
