%% @doc Pools of processes, picked in the caller.
%%
%% A pool is a row of numbered slots. Each is filled by a worker that the pool starts and supervises; a slot whose
%% worker died is vacant until the supervisor has started the next. {@link pick/1} and {@link pick/2} choose a worker
%% without a message, a lock or a process of the pool's, so they cost the same for one caller and for thousands, and a
%% pool is no bottleneck and has no mailbox. Replacing a worker costs no global garbage collection, however many
%% processes the node has.
%%
%% ```
%% ok = weir_pool:start(lookups, #{size => 8, worker => {lookup_server, start_link, []}}),
%% {ok, Pid} = weir_pool:pick(lookups),
%% Answer = gen_server:call(Pid, {lookup, Key}).
%% '''
%%
%% A pick shares workers: it neither reserves one nor looks whether it is busy. A pool is of no use for a resource that
%% only one caller at a time may use, nor when callers wait so long for each worker that a free one has to be found.
%%
%% A pid that was picked may die at any time, also before the caller uses it. For the moment between a worker's death
%% and the pool hearing of it, picks still return it.
%%
%% Pools of `start/2' live under weir_pool's own supervisor until {@link stop/1}. One that gives up, because its workers
%% die more often than `intensity' allows or cannot be started again, is gone, and picks say `no_pool'. Where that must
%% not be the end, put the pool under a supervisor of yours with {@link child_spec/2}.
%%
%% Names are any terms, local to the node, compared with `=:='. A pool's main term is the persistent term
%% `{weir_pool, Name}'. docs/internals/pool.md tells how it works, and what picks cost.
-module(weir_pool).

-export([start/2, start_link/2, child_spec/2, stop/1]).
-export([pick/1, pick/2]).
-export([info/1, workers/1]).

-export_type([name/0, opts/0, size/0, slot/0, info/0, option_error/0, start_error/0]).

-include("weir_pool.hrl").

-type name() :: term().

-type size() :: 1..?MAX_SIZE.

-type slot() :: 1..?MAX_SIZE.
%% Slots are numbered from 1.

-type opts() :: #{
    size := size(),
    worker := {module(), Function :: atom(), Args :: [term()]},
    restart => permanent | transient | temporary,
    shutdown => brutal_kill | timeout(),
    intensity => non_neg_integer(),
    period => pos_integer()
}.
%% <ul>
%% <li>`size': number of slots.</li>
%% <li>`worker': starts a worker, as in a supervisor's child specification: it returns `{ok, Pid}' or
%%   `{ok, Pid, Info}' with a process of this node linked to the caller, `ignore' (the slot stays vacant), or
%%   `{error, Reason}'. Called once for each slot, in order, one at a time.</li>
%% <li>`restart': which workers are started again; those that are not leave their slot vacant. As in a
%%   supervisor. Default `permanent'. The slot of a `temporary' worker is filled again if the pool itself has to restart
%%   its processes.</li>
%% <li>`shutdown': milliseconds that a worker is given to stop, `infinity', or `brutal_kill'. Default 5000.</li>
%% <li>`intensity', `period': the pool gives up after more than `intensity' restarts of workers within `period' seconds;
%%   a restart that fails counts. Default `2 * size + 10' within 5 seconds, so that all workers may die together without
%%   taking the pool with them.</li>
%% </ul>

-type option_error() ::
    {bad_option, Key :: term(), Value :: term()}
    | {missing_option, size | worker}.
%% `bad_option' also stands for an option that does not exist.

-type start_error() ::
    option_error()
    | already_started
    | {start_failed, slot(), Reason :: term()}
    | {not_started, weir_pool}
    | {pool_down, Reason :: term()}.
%% <ul>
%% <li>`already_started': a pool of this name exists, or is starting or stopping.</li>
%% <li>`start_failed': the worker of this slot could not be started. `Reason' is the worker's,
%%   `{exception, Class, Reason, Stacktrace}' if its start function failed, or `{bad_return, {M, F, Returned}}'.</li>
%% <li>`not_started': the application weir_pool is not running.</li>
%% <li>`pool_down': a process of the pool was killed during the start.</li>
%% </ul>

-type info() :: #{
    size := size(),
    live := non_neg_integer(),
    vacant := non_neg_integer(),
    picks := non_neg_integer(),
    skips := non_neg_integer(),
    restarts := non_neg_integer(),
    start_failures := non_neg_integer()
}.
%% <ul>
%% <li>`live', `vacant': filled and vacant slots; together `size'.</li>
%% <li>`picks': successful picks by {@link pick/1}, exact when none is under way. {@link pick/2} is not counted: it
%%   writes nothing.</li>
%% <li>`skips': vacant slots that {@link pick/1} drew and passed over.</li>
%% <li>`restarts': workers that took a slot which had been filled before.</li>
%% <li>`start_failures': starts of a worker that failed.</li>
%% </ul>
%% All are since the pool was started, or since its processes had to be restarted.

%% @doc Starts a pool under weir_pool's own supervisor, and returns when all its workers are started.
%%
%% A pool that cannot start leaves nothing behind: the workers it had started are stopped again. `badarg' if `Opts' is
%% not a map.
%%
%% Cost: three processes besides the workers; other pools can be started and stopped meanwhile. The worker's start
%% function is called by a process of the pool.
-spec start(name(), opts()) -> ok | {error, start_error()}.
start(Name, Opts) ->
    case weir_pool_opts:check(Opts) of
        {ok, Conf} -> weir_pool_boot:start(Name, Conf);
        {error, Reason} -> {error, Reason}
    end.

%% @doc Like {@link start/2}, but linked to the calling process: for use in a supervisor. Returns the pool's supervisor.
%%
%% Like any start function of a supervisor, it may take a caller that does not trap exits down with it when it fails.
%% The application weir_pool must be running, and stopping it stops the pool.
-spec start_link(name(), opts()) -> {ok, pid()} | {error, start_error()}.
start_link(Name, Opts) ->
    case weir_pool_opts:check(Opts) of
        {ok, Conf} -> weir_pool_boot:start_link(Name, Conf);
        {error, Reason} -> {error, Reason}
    end.

%% @doc A child specification for a supervisor, with the id `{weir_pool, Name}'.
%%
%% The child is `permanent', and must not be `transient': a pool that gives up exits with `shutdown', which a supervisor
%% takes for a success. Options are checked when the child is started.
-spec child_spec(name(), opts()) -> supervisor:child_spec().
child_spec(Name, Opts) ->
    #{
        id => {?MODULE, Name},
        start => {?MODULE, start_link, [Name, Opts]},
        restart => permanent,
        shutdown => infinity,
        type => supervisor,
        modules => [weir_pool_pool_sup]
    }.

%% @doc Stops a pool, and returns when its workers and processes are gone and nothing is left of it.
%%
%% The pool is closed first: before any worker is asked to stop, picks say `no_pool'.
%%
%% A pool under a supervisor of yours is stopped by {@link supervisor:terminate_child/2}, so it is not started again,
%% and `supervisor:restart_child/2' can do so. A parent that is not a `supervisor' sees the pool exit with reason
%% `normal'. Not to be called by that supervisor itself, nor while it waits for the caller to start.
%%
%% Cost: erases a persistent term of a compound value, for which the runtime has every process of the node scanned, and
%% one of an immediate value for each slot.
-spec stop(name()) -> ok | {error, no_pool}.
stop(Name) -> weir_pool_boot:stop(Name).

%% @doc The next worker, round robin.
%%
%% Of any number of picks, live workers get equally many, to within the number of schedulers. Vacant slots are passed
%% over without burdening their neighbours. `no_worker': all slots are vacant. `no_pool': there is no such pool, or its
%% processes are just being restarted.
%%
%% Cost: no process is visited and no message sent; two reads of persistent terms and an addition to a word that only
%% this scheduler writes; allocates the two keys and the result, 9 words. Every vacant slot that is drawn costs a
%% further read and two additions; with all vacant, `2 * size' reads.
-spec pick(name()) -> {ok, pid()} | {error, no_pool | no_worker}.
pick(Name) -> weir_pool_pick:round_robin(Name).

%% @doc The worker of a key: equal keys (`=:=') get the same worker while the pool has the same size and the slot its
%% worker.
%%
%% A pool that is started again with one slot more gives about `1 / size' of the keys to the new slot, and none to
%% another. The keys of a vacant slot are spread over the others, and come back when it is filled again. The slot of a
%% key is the same on every node. Errors are those of {@link pick/1}.
%%
%% Cost: no process is visited and no message sent; two reads of persistent terms, one `erlang:phash2/2' of the key, and
%% about `ln(size) + 1' steps of a generator; allocates the two keys and the result, 9 words. While the key's slot is
%% vacant, the key is hashed again, up to 64 times, and then up to `size' slots are read.
-spec pick(name(), Key :: term()) -> {ok, pid()} | {error, no_pool | no_worker}.
pick(Name, Key) -> weir_pool_pick:hash(Name, Key).

%% @doc How the pool is.
%%
%% Cost: no process is visited; reads every slot.
-spec info(name()) -> {ok, info()} | {error, no_pool}.
info(Name) ->
    case weir_pool_terms:pool(Name) of
        #pool{size = Size} = Pool ->
            #{skips := Skips} = Counters = weir_pool_terms:counters(Pool),
            Live = length(weir_pool_terms:workers(Pool)),
            {ok, Counters#{
                size => Size,
                live => Live,
                vacant => Size - Live,
                picks => max(0, weir_pool_terms:draws(Pool) - Skips)
            }};
        undefined ->
            {error, no_pool}
    end.

%% @doc The workers in their slots, in the order of the slots; vacant ones are left out.
%%
%% Cost: no process is visited; reads every slot.
-spec workers(name()) -> {ok, [{slot(), pid()}]} | {error, no_pool}.
workers(Name) ->
    case weir_pool_terms:pool(Name) of
        undefined -> {error, no_pool};
        Pool -> {ok, weir_pool_terms:workers(Pool)}
    end.
