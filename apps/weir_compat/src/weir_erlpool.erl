%% @doc The interface of erlpool, the round-robin balancer of worker processes, on {@link weir_pool}.
%%
%% Functions, arguments, options and results are those of erlpool 1.4.5. A caller replaces `erlpool:' by
%% `weir_erlpool:', and needs no other change. The pools of sys.config move from `{erlpool, [{pools, [{Name, Args}]}]}'
%% to `{weir_compat, [{pools, [{Name, Args}]}]}' as they are. docs/migrating/erlpool.md describes the move.
%%
%% A pool of this module is a pool of `weir_pool' with the same name, so all functions of `weir_pool' accept the pool.
%% The pool lives under the supervisor of weir_compat. If a process of the pool crashes, the pool is started again with
%% new workers, as often as necessary.
%%
%% The application weir_compat must have been started, for instance by {@link start/0}. If it has not been, {@link
%% start_pool/2}, {@link stop_pool/1}, {@link restart_pool/1} and the functions for groups exit with `{noproc, _}'. All
%% other functions find no pool.
%%
%% Differences from erlpool:
%% <ul>
%% <li>{@link pid/1} and {@link sticky_pid/2} skip dead workers. If no worker is alive, they return `{error,
%%   no_worker}'. erlpool returned the pid of a dead worker until the next one was started, or `{error, {badmatch,
%%   []}}'.</li>
%% <li>Each scheduler has its own round-robin cursor. Workers get equal shares of many picks, to within the number of
%%   schedulers. A process that picks `size' times may get the same worker twice.</li>
%% <li>{@link sticky_pid/2} takes any term, and hashes the term. The key `N' is not worker `N rem Size + 1'. After
%%   {@link add_worker/1}, 1 key of `Size' moves. In erlpool nearly all keys moved.</li>
%% <li>{@link map/2} visits live workers, in the order of their ids.</li>
%% <li>{@link start_pool/2} refuses unknown options and wrong values. erlpool ignored unknown options. If a worker
%%   cannot be started, the reason comes without the records of supervisors.</li>
%% <li>A size of 0 is refused. erlpool accepted 0, and {@link pid/1} then failed until a worker was added.</li>
%% <li>A worker's start function may return `{ok, Pid, Info}', or `ignore', which leaves the slot vacant. In erlpool
%%   both failed the start.</li>
%% <li>Concurrent calls of {@link add_worker/1} add one worker each. In erlpool all except one failed.</li>
%% <li>{@link restart_pool/1} starts as many workers as the pool was started with. erlpool did the same, but still
%%   picked workers that had been added, which failed.</li>
%% <li>{@link restart_group/1} names the pools that could not be restarted. {@link stop_group/1} of the group
%%   `undefined' does not stop the pools without a group.</li>
%% <li>No process is registered for a pool, no atom is created, and no module is compiled. Names of pools are any
%%   terms.</li>
%% <li>{@link stop/0} stops the application weir_compat, and with it the pools of {@link weir_gproc_pool}.</li>
%% </ul> As in erlpool, a pool whose workers die more often than `supervisor_intensity' allows gives up. {@link
%% restart_pool/1} starts the pool again. Until then picks return `{error, not_found}', where erlpool returned `{error,
%% badarg}'.
-module(weir_erlpool).

-export([start/0, start/1, stop/0]).
-export([start_pool/2, stop_pool/1, restart_pool/1, stop_group/1, restart_group/1]).
-export([pid/1, sticky_pid/2, map/2, pool_size/1, add_worker/1]).

-export_type([pool_option/0, start_error/0]).

-type pool_option() ::
    {size, weir_pool:size()}
    | {group, term()}
    | {start_mfa, {module(), atom(), [term()]}}
    | {args_include_worker_id, boolean()}
    | {supervisor_period, pos_integer()}
    | {supervisor_intensity, non_neg_integer()}
    | {supervisor_restart, permanent | transient | temporary}
    | {supervisor_shutdown, brutal_kill | timeout()}.
%% <ul>
%% <li>`size': the number of workers. Mandatory.</li>
%% <li>`start_mfa': a function that starts a worker and links the worker to the caller. Mandatory.</li>
%% <li>`args_include_worker_id': puts the worker's number, from 1, in front of the arguments. Default `false'.</li>
%% <li>`group': the group for {@link stop_group/1} and {@link restart_group/1}. Default: none.</li>
%% <li>`supervisor_intensity', `supervisor_period': the pool gives up after more than `supervisor_intensity' restarts of
%%   workers within `supervisor_period' seconds. Default 100 within 1.</li>
%% <li>`supervisor_restart': which workers are started again. Default `permanent'.</li>
%% <li>`supervisor_shutdown': milliseconds that a worker has to stop. Default 2000.</li>
%% </ul>
%% If an option is given twice, the first one counts.

-type start_error() ::
    {already_started, pid()}
    | already_present
    | {missing_option, size | start_mfa}
    | {bad_option, Key :: term(), Value :: term()}
    | {bad_options, term()}
    | {start_failed, Id :: pos_integer(), Reason :: term()}
    | weir_pool:start_error().
%% <ul>
%% <li>`already_started': a pool of this name is running.</li>
%% <li>`already_present': a pool of this name has given up. {@link restart_pool/1} starts the pool, and {@link
%%   stop_pool/1} frees the name.</li>
%% <li>`bad_option': the option does not exist, or its value is wrong.</li>
%% <li>`bad_options': the arguments are not a list, or the list has an element that is not an option.</li>
%% <li>`start_failed': the worker with this id could not be started. The workers before are stopped again. See {@link
%%   weir_pool:start_error()}.</li>
%% <li>`already_started' alone: `weir_pool' has a pool of this name from elsewhere.</li>
%% </ul>

-define(SUP, weir_erlpool_sup).
-define(CHILD(Name), {weir_pool, Name}).

%% The defaults of erlpool.
-define(DEFAULTS, #{period => 1, intensity => 100, restart => permanent, shutdown => 2000}).

%% @doc Starts the application weir_compat, as `temporary', and the pools of its environment.
-spec start() -> ok | {error, term()}.
start() -> start(temporary).

%% @doc Starts the application weir_compat and the applications that it needs. Returns `ok' if weir_compat is running.
%%
%% If a pool of the environment cannot be started, the start fails with `{bad_pool, Name, Reason}' in the reason.
-spec start(permanent | transient | temporary) -> ok | {error, term()}.
start(Type) ->
    case application:ensure_all_started(weir_compat, Type) of
        {ok, _Started} -> ok;
        {error, Reason} -> {error, Reason}
    end.

%% @doc Stops the application weir_compat, with all pools of this module and of {@link weir_gproc_pool}. If weir_compat
%% is not running, returns `{error, {not_started, weir_compat}}'.
-spec stop() -> ok | {error, term()}.
stop() -> application:stop(weir_compat).

%% @doc Starts a pool and its workers, one after the other, and returns when all have started.
%%
%% If the caller is killed meanwhile, the pool starts without the caller, and a failed start is tried again until {@link
%% stop_pool/1}. Cost: that of {@link weir_pool:start/2}.
-spec start_pool(weir_pool:name(), [pool_option() | args_include_worker_id]) -> ok | {error, start_error()}.
start_pool(Name, Args) ->
    case options(Args, #{}) of
        {ok, Opts} ->
            case weir_compat_pools_sup:start_child(?SUP, child_spec(Name, Opts)) of
                {ok, Keeper} -> started(Name, weir_erlpool_keeper:await(Keeper));
                {error, Reason} -> {error, Reason}
            end;
        {error, Reason} ->
            {error, Reason}
    end.

started(_Name, ok) ->
    ok;
started(Name, {error, Reason}) ->
    _ = supervisor:delete_child(?SUP, ?CHILD(Name)),
    {error, start_error(Reason)}.

%% `transient': the specification of a pool that has given up stays, so that restart_pool/1 can start the pool again.
child_spec(Name, Opts) ->
    #{
        id => ?CHILD(Name),
        start => {weir_compat_start, link, [weir_erlpool_keeper, start_link, [Name, Opts]]},
        restart => transient,
        %% The pool limits the time that a worker has to stop.
        shutdown => infinity,
        %% The release handler looks for the pool below the keeper.
        type => supervisor,
        modules => [weir_erlpool_keeper]
    }.

%% @doc Stops a pool, and returns when its workers have ended. Pools are stopped one at a time.
-spec stop_pool(weir_pool:name()) -> ok | {error, not_found}.
stop_pool(Name) ->
    case supervisor:terminate_child(?SUP, ?CHILD(Name)) of
        ok ->
            case supervisor:delete_child(?SUP, ?CHILD(Name)) of
                %% The pool has been stopped by another caller.
                {error, not_found} -> ok;
                %% The pool has been restarted by another caller since it was terminated.
                {error, running} -> stop_pool(Name);
                {error, restarting} -> stop_pool(Name);
                ok -> ok
            end;
        {error, not_found} ->
            {error, not_found}
    end.

%% @doc Stops a pool and starts it again with the options of {@link start_pool/2}. Returns `false' if the pool does not
%% exist or cannot be started. A pool that cannot be started can be restarted later.
-spec restart_pool(weir_pool:name()) -> boolean().
restart_pool(Name) -> restart(Name) =:= ok.

restart(Name) ->
    case supervisor:terminate_child(?SUP, ?CHILD(Name)) of
        ok ->
            case supervisor:restart_child(?SUP, ?CHILD(Name)) of
                {ok, Keeper} -> weir_erlpool_keeper:await(Keeper);
                {error, Reason} -> {error, Reason}
            end;
        {error, not_found} ->
            {error, not_found}
    end.

%% @doc Stops all pools of a group, one after the other. Returns `ok' if the group has no pools.
-spec stop_group(Group :: term()) -> ok.
stop_group(Group) ->
    lists:foreach(fun stop_pool/1, group(Group)).

%% @doc Restarts all pools of a group, one after the other. Returns the names of the pools that could not be restarted.
%% Returns `ok' if the group has no pools.
-spec restart_group(Group :: term()) -> ok | {error, [{weir_pool:name(), Reason :: term()}]}.
restart_group(Group) ->
    case [{Name, Reason} || Name <- group(Group), {error, Reason} <- [restart(Name)]] of
        [] -> ok;
        Failed -> {error, Failed}
    end.

%% Returns the pools of a group, including pools that have given up: the supervisor has their specifications.
group(Group) ->
    [
        Name
     || {?CHILD(Name) = Id, _Pid, _Type, _Modules} <- supervisor:which_children(?SUP),
        {ok, #{start := {_, _, [_, _, [_, #{group := Of}]]}}} <- [supervisor:get_childspec(?SUP, Id)],
        Of =:= Group
    ].

%% @doc Returns the next worker.
%%
%% Cost: that of {@link weir_pool:pick/1}, without a message.
-spec pid(weir_pool:name()) -> pid() | {error, not_found | no_worker}.
pid(Name) ->
    case weir_pool:pick(Name) of
        {ok, Pid} -> Pid;
        {error, no_pool} -> {error, not_found};
        {error, no_worker} -> {error, no_worker}
    end.

%% @doc Returns the worker of a key. Equal keys have the same worker while the worker lives and no worker is added. The
%% keys of a dead worker go to other workers until its successor has started.
%%
%% Cost: that of {@link weir_pool:pick/2}.
-spec sticky_pid(weir_pool:name(), Key :: term()) -> pid() | {error, not_found | no_worker}.
sticky_pid(Name, Key) ->
    case weir_pool:pick(Name, Key) of
        {ok, Pid} -> Pid;
        {error, no_pool} -> {error, not_found};
        {error, no_worker} -> {error, no_worker}
    end.

%% @doc Calls a function with each live worker, in the calling process, and returns the results. If the function raises
%% an exception of any class, returns `{error, Reason}'.
-spec map(weir_pool:name(), fun((pid()) -> Result)) -> [Result] | {error, not_found | (Raised :: term())}.
map(Name, Fun) ->
    try weir_pool:map(Name, Fun) of
        {ok, Results} -> Results;
        {error, no_pool} -> {error, not_found}
    catch
        _:Reason -> {error, Reason}
    end.

%% @doc Returns the number of workers, dead or alive. Cost: reads every slot of the pool.
-spec pool_size(weir_pool:name()) -> weir_pool:size() | {error, not_found}.
pool_size(Name) ->
    case weir_pool:info(Name) of
        {ok, #{size := Size}} -> Size;
        {error, no_pool} -> {error, not_found}
    end.

%% @doc Starts one more worker, with the next id, and returns when picks include the worker. After {@link
%% restart_pool/1} the pool has its first size again.
%%
%% `resizing': a {@link weir_pool:resize/2} of this pool is under way. `timeout': the worker did not start within a
%% minute, and was stopped again. Cost: that of {@link weir_pool:resize/2}, so the runtime scans every process of the
%% node.
-spec add_worker(weir_pool:name()) ->
    ok
    | {error,
        not_found
        | resizing
        | timeout
        | {start_failed, Id :: pos_integer(), Reason :: term()}
        | {pool_down, Reason :: term()}}.
add_worker(Name) ->
    %% Without the lock, two callers that read the same size would add one worker together. The lock belongs to this
    %% node, and is released when its holder dies.
    case global:trans({{?MODULE, Name}, self()}, fun() -> grow(Name) end, [node()]) of
        ok -> ok;
        {error, no_pool} -> {error, not_found};
        {error, Reason} -> {error, Reason}
    end.

grow(Name) ->
    case weir_pool:info(Name) of
        {ok, #{size := Size}} -> weir_pool:resize(Name, Size + 1);
        {error, no_pool} -> {error, no_pool}
    end.

%% ---------------------------------------------------------------- options

options([{Key, Value} | Args], Opts) ->
    case new_name(Key) of
        none -> {error, {bad_option, Key, Value}};
        %% The first value of an option counts.
        New -> options(Args, maps:merge(#{New => Value}, Opts))
    end;
options([Key | Args], Opts) when is_atom(Key) ->
    options([{Key, true} | Args], Opts);
options([], #{size := 0}) ->
    {error, {bad_option, size, 0}};
options([], #{size := _, worker := _} = Opts) ->
    {ok, maps:merge(?DEFAULTS, Opts)};
options([], #{size := _}) ->
    {error, {missing_option, start_mfa}};
options([], #{}) ->
    {error, {missing_option, size}};
options([Other | _], _Opts) ->
    {error, {bad_options, Other}};
options(Other, _Opts) ->
    {error, {bad_options, Other}}.

names() ->
    [
        {size, size},
        {group, group},
        {start_mfa, worker},
        {args_include_worker_id, pass_slot},
        {supervisor_period, period},
        {supervisor_intensity, intensity},
        {supervisor_restart, restart},
        {supervisor_shutdown, shutdown}
    ].

new_name(Key) -> proplists:get_value(Key, names(), none).

%% Replaces weir_pool's name of an option by erlpool's.
start_error({bad_option, New, Value}) ->
    {Key, New} = lists:keyfind(New, 2, names()),
    {bad_option, Key, Value};
start_error(Reason) ->
    Reason.
