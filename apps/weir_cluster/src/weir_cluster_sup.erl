%% @private Owns the table of views, so that it survives those who write it, and supervises who keeps pg's scope, and
%% the pools that are published by weir_cluster:start/2.
-module(weir_cluster_sup).

-behaviour(supervisor).

-export([start_link/0, start_pool/1, stop_pool/1, init/1]).

%% @private
-spec start_link() -> supervisor:startlink_ret().
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% @private
-spec start_pool(supervisor:child_spec()) -> ok | {error, term()}.
start_pool(Spec) ->
    try supervisor:start_child(?MODULE, Spec) of
        {ok, _Pid} -> ok;
        {error, {already_started, Pid}} -> {error, {already_started, Pid}};
        {error, {Reason, _Child}} -> {error, Reason};
        {error, Reason} -> {error, Reason}
    catch
        exit:{noproc, _} -> {error, {not_started, weir_cluster}}
    end.

%% @private
-spec stop_pool(Id :: term()) -> ok | {error, no_pool}.
stop_pool(Id) ->
    try supervisor:terminate_child(?MODULE, Id) of
        ok ->
            _ = supervisor:delete_child(?MODULE, Id),
            ok;
        {error, not_found} ->
            {error, no_pool}
    catch
        exit:{noproc, _} -> {error, no_pool}
    end.

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = weir_cluster_view:new_table(),
    Scope = #{id => scope, start => {weir_cluster_scope, start_link, []}},
    {ok, {#{strategy => one_for_one, intensity => 10, period => 5}, [Scope]}}.
