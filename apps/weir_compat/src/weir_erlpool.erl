%% @doc The interface of erlpool, the round-robin balancer of worker processes, on {@link weir_pool}.
%%
%% Function for function, argument for argument, result for result, as of erlpool 1.4.5. Replacing `erlpool:' by
%% `weir_erlpool:' is all that a caller needs; docs/migrating/erlpool.md goes through it. The pools of sys.config move
%% from `{erlpool, [{pools, [{Name, Args}]}]}' to `{weir_compat, [{pools, [{Name, Args}]}]}' as they are.
%%
%% A pool of this module is a pool of `weir_pool' with the same name, so `weir_pool:info(Name)' and every other function
%% of that module works on it; but it lives, as erlpool's did, under the application's supervisor. The application
%% weir_compat must have been started, for which {@link start/0} is enough. Where it is not: {@link start_pool/2},
%% {@link stop_pool/1}, {@link restart_pool/1} and the functions for groups exit with `{noproc, _}'; the others say that
%% there is no such pool.
%%
%% What differs from erlpool:
%% <ul>
%% <li>{@link pid/1} and {@link sticky_pid/2} pass over workers that are dead. erlpool handed out the pid of a dead
%%   worker until the next one was started. If none is alive they return `{error, no_worker}'; erlpool
%%   `{error, {badmatch, []}}' or a dead pid.</li>
%% <li>Round robin goes by scheduler: of many picks workers get equally many, to within the number of schedulers, but
%%   one process that picks as often as there are workers need not get each once.</li>
%% <li>{@link sticky_pid/2} takes any term, and hashes it. The key `N' is not worker `N rem Size + 1'. After
%%   {@link add_worker/1} 1 key of `Size' moves, in erlpool nearly all.</li>
%% <li>{@link map/2} goes in the order of the worker ids, over live workers.</li>
%% <li>{@link start_pool/2} refuses options that do not exist and values that are wrong, and says why a worker could
%%   not be started without supervisors' records around it. erlpool ignored unknown options.</li>
%% <li>A size of 0 is refused. erlpool took it, and {@link pid/1} then failed until a worker was added.</li>
%% <li>A worker's start function may return `{ok, Pid, Info}', and `ignore', which leaves its place empty; both failed
%%   the start in erlpool.</li>
%% <li>Concurrent calls of {@link add_worker/1} each add a worker; in erlpool all but one failed.</li>
%% <li>{@link restart_pool/1} restarts as many workers as the pool was started with. erlpool did so too, but counted on
%%   those that had been added, and its picks failed on their places.</li>
%% <li>{@link restart_group/1} says which pools could not be restarted. {@link stop_group/1} of the group `undefined'
%%   does not stop all pools that have no group.</li>
%% <li>No process is registered under a name made of the pool's, no atom made and no module compiled for a pool; names
%%   of pools are any terms.</li>
%% <li>{@link stop/0} stops the application weir_compat, and with it the pools of {@link weir_gproc_pool}.</li>
%% </ul>
%% As in erlpool: a pool whose workers die more often than `supervisor_intensity' allows gives up and is not started
%% again until {@link restart_pool/1}. erlpool's picks then failed with `{error, badarg}', here it is
%% `{error, not_found}'.
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
%% <li>`size': how many workers; mandatory.</li>
%% <li>`start_mfa': starts a worker, which is linked to the caller; mandatory.</li>
%% <li>`args_include_worker_id': puts the worker's number, from 1, in front of the arguments. Default `false'.</li>
%% <li>`group': for {@link stop_group/1} and {@link restart_group/1}. Default: none.</li>
%% <li>`supervisor_intensity', `supervisor_period': the pool gives up after more than so many restarts of workers within
%%   so many seconds. Default 100 within 1.</li>
%% <li>`supervisor_restart': which workers are started again. Default `permanent'.</li>
%% <li>`supervisor_shutdown': milliseconds that a worker is given to stop. Default 2000.</li>
%% </ul>
%% The first counts where an option is given twice.

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
%% <li>`already_present': a pool of this name has given up; {@link restart_pool/1} and {@link stop_pool/1} are for
%%   it.</li>
%% <li>`bad_option': also for an option that does not exist.</li>
%% <li>`bad_options': the arguments are no list, or this is in it and no option.</li>
%% <li>`start_failed': the worker of this id could not be started; see {@link weir_pool:start_error()}. The workers
%%   before it are stopped again.</li>
%% <li>`already_started' alone: `weir_pool' has a pool of this name from elsewhere.</li>
%% </ul>

-define(SUP, weir_erlpool_sup).
-define(CHILD(Name), {weir_pool, Name}).

%% erlpool's.
-define(DEFAULTS, #{period => 1, intensity => 100, restart => permanent, shutdown => 2000}).

%% @doc Starts the application weir_compat, as `temporary', and the pools of its environment.
-spec start() -> ok | {error, term()}.
start() -> start(temporary).

%% @doc Starts the application weir_compat and what it needs. It is no error if it is running. A pool of the environment
%% that cannot be started makes the start fail with `{bad_pool, Name, Reason}' in the reason.
-spec start(permanent | transient | temporary) -> ok | {error, term()}.
start(Type) ->
    case application:ensure_all_started(weir_compat, Type) of
        {ok, _Started} -> ok;
        {error, Reason} -> {error, Reason}
    end.

%% @doc Stops the application weir_compat: all pools of this module, and those of {@link weir_gproc_pool}.
%% `{error, {not_started, weir_compat}}' if it is not running.
-spec stop() -> ok | {error, term()}.
stop() -> application:stop(weir_compat).

%% @doc Starts a pool, and returns when all its workers are started, one after the other.
%%
%% Cost: that of {@link weir_pool:start/2}. Pools are started and stopped one at a time.
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
        shutdown => infinity
    }.

%% @doc Stops a pool, and returns when its workers are gone.
-spec stop_pool(weir_pool:name()) -> ok | {error, not_found}.
stop_pool(Name) ->
    case supervisor:terminate_child(?SUP, ?CHILD(Name)) of
        ok ->
            case supervisor:delete_child(?SUP, ?CHILD(Name)) of
                %% Another caller has been as far as this.
                {error, not_found} -> ok;
                %% Or has restarted the pool in between, and so has undone the stop.
                {error, running} -> stop_pool(Name);
                {error, restarting} -> stop_pool(Name);
                ok -> ok
            end;
        {error, not_found} ->
            {error, not_found}
    end.

%% @doc Stops a pool and starts it again with the options of {@link start_pool/2}. `false': there is no such pool, or it
%% could not be started; it can be restarted again.
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

%% @doc Stops all pools of a group, one after the other. It is no error if there are none.
-spec stop_group(Group :: term()) -> ok.
stop_group(Group) ->
    lists:foreach(fun stop_pool/1, group(Group)).

%% @doc Restarts all pools of a group, one after the other, and names those that could not be. It is no error if there
%% are none.
-spec restart_group(Group :: term()) -> ok | {error, [{weir_pool:name(), Reason :: term()}]}.
restart_group(Group) ->
    case [{Name, Reason} || Name <- group(Group), {error, Reason} <- [restart(Name)]] of
        [] -> ok;
        Failed -> {error, Failed}
    end.

%% Those that have given up as well: the supervisor keeps what they were started with.
group(Group) ->
    [
        Name
     || {?CHILD(Name) = Id, _Pid, _Type, _Modules} <- supervisor:which_children(?SUP),
        {ok, #{start := {_, _, [_, _, [_, #{group := Of}]]}}} <- [supervisor:get_childspec(?SUP, Id)],
        Of =:= Group
    ].

%% @doc The next worker.
%%
%% Cost: that of {@link weir_pool:pick/1}: no process is visited and no message sent.
-spec pid(weir_pool:name()) -> pid() | {error, not_found | no_worker}.
pid(Name) ->
    case weir_pool:pick(Name) of
        {ok, Pid} -> Pid;
        {error, no_pool} -> {error, not_found};
        {error, no_worker} -> {error, no_worker}
    end.

%% @doc The worker of a key: always the same for equal keys, as long as it lives and no worker is added. The keys of a
%% dead worker go to others until the next one is started.
%%
%% Cost: that of {@link weir_pool:pick/2}.
-spec sticky_pid(weir_pool:name(), Key :: term()) -> pid() | {error, not_found | no_worker}.
sticky_pid(Name, Key) ->
    case weir_pool:pick(Name, Key) of
        {ok, Pid} -> Pid;
        {error, no_pool} -> {error, not_found};
        {error, no_worker} -> {error, no_worker}
    end.

%% @doc Calls a function with each live worker, in the caller, and gives the results. What the function raises, of
%% whatever class, comes as `{error, Reason}'.
-spec map(weir_pool:name(), fun((pid()) -> Result)) -> [Result] | {error, not_found | (Raised :: term())}.
map(Name, Fun) ->
    try weir_pool:map(Name, Fun) of
        {ok, Results} -> Results;
        {error, no_pool} -> {error, not_found}
    catch
        _:Reason -> {error, Reason}
    end.

%% @doc How many workers the pool has, dead or alive. Cost: no process is visited; reads every slot.
-spec pool_size(weir_pool:name()) -> weir_pool:size() | {error, not_found}.
pool_size(Name) ->
    case weir_pool:info(Name) of
        {ok, #{size := Size}} -> Size;
        {error, no_pool} -> {error, not_found}
    end.

%% @doc Starts one worker more, with the next id, and returns when it is picked. Until the pool is restarted.
%%
%% Cost: that of {@link weir_pool:resize/2}; the runtime scans every process of the node.
%% `resizing': a {@link weir_pool:resize/2} of this pool is under way. `timeout': the worker was not there within a
%% minute, and was stopped again.
-spec add_worker(weir_pool:name()) ->
    ok
    | {error,
        not_found
        | resizing
        | timeout
        | {start_failed, Id :: pos_integer(), Reason :: term()}
        | {pool_down, Reason :: term()}}.
add_worker(Name) ->
    %% Two callers that read the same size would add one worker between them. The lock is this node's, and is released
    %% when its holder dies.
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

%% Options

options([{Key, Value} | Args], Opts) ->
    case new_name(Key) of
        none -> {error, {bad_option, Key, Value}};
        %% The first one given counts.
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

%% weir_pool complains of options by its own names.
start_error({bad_option, New, Value}) ->
    {Key, New} = lists:keyfind(New, 2, names()),
    {bad_option, Key, Value};
start_error(Reason) ->
    Reason.
