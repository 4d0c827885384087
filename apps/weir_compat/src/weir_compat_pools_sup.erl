%% @doc The supervisor of the pools of weir_erlpool, and another one of those of weir_gproc_pool, registered under the
%% name that it is started with.
%%
%% As erlpool's was, it is patient with pools that are killed: 1000 restarts within a second are too many. A pool
%% that gives up by itself is no restart, see {@link start_pool/4}.
%% @private
-module(weir_compat_pools_sup).
-behaviour(supervisor).

-export([start_link/1, start_pool/4]).
-export([start_pool_link/2]).
-export([init/1]).

%% @doc Starts the supervisor.
-spec start_link(Sup :: atom()) -> {ok, pid()} | {error, term()}.
start_link(Sup) ->
    case supervisor:start_link({local, Sup}, ?MODULE, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Starts a pool as a child with the id `{weir_pool, Name}'. Of the options `group' stays in the child's
%% specification, where weir_erlpool finds it.
%%
%% Not `permanent', as {@link weir_pool:child_spec/2} advises: a pool that gives up, say because the database is away,
%% fails again at once when it is started again, and would use up the patience that all pools have in common.
%% `transient' leaves the specification of one that gave up, so that it can be restarted; `temporary' does not. Exits
%% with `noproc' if the supervisor is not running.
-spec start_pool(Sup :: atom(), weir_pool:name(), Opts :: #{atom() => term()}, transient | temporary) ->
    {ok, pid()} | {error, already_present | {already_started, pid() | undefined} | weir_pool:start_error()}.
start_pool(Sup, Name, Opts, Restart) ->
    Start = {?MODULE, start_pool_link, [Name, Opts]},
    case supervisor:start_child(Sup, (weir_pool:child_spec(Name, Opts))#{start := Start, restart := Restart}) of
        {ok, Pid} when is_pid(Pid) -> {ok, Pid};
        %% The supervisor adds the child as it sees it.
        {error, {Reason, Child}} when element(1, Child) =:= child -> {error, Reason};
        {error, Reason} -> {error, Reason}
    end.

%% @private
-spec start_pool_link(weir_pool:name(), Opts :: #{atom() => term()}) -> {ok, pid()} | {error, weir_pool:start_error()}.
start_pool_link(Name, Opts) -> weir_pool:start_link(Name, maps:remove(group, Opts)).

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), []}}.
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 1000, period => 1}, []}}.
