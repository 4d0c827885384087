%% @doc Pools of processes, picked or claimed in the caller.
%%
%% A pool is a row of numbered slots. The pool starts and supervises a worker for each slot, or processes connect
%% themselves to the slots. A program uses a pool in one of two ways:
%%
%% <ul>
%% <li><em>Picking</em> ({@link pick/1}, {@link call/2}, ...) shares the workers. A pick chooses a worker without a
%%   message, a lock or a process of the pool, in tens of nanoseconds, for one caller as for thousands.</li>
%% <li><em>Claiming</em> ({@link claim/3}, {@link checkout/2}) gives a worker to one caller at a time. While a worker is
%%   free, a claim takes one exchange of a word. Only a caller that finds no free worker sends a message, and waits in
%%   the queue of the pool.</li>
%% </ul>
%%
%% ```
%% ok = weir_pool:start(lookups, #{size => 8, worker => {lookup_server, start_link, []}}),
%% {ok, Pid} = weir_pool:pick(lookups),
%% Answer = gen_server:call(Pid, {lookup, Key}).
%%
%% ok = weir_pool:start(db, #{size => 20, worker => {db_connection, start_link, [Url]}}),
%% {ok, Rows} = weir_pool:claim(db, fun(Connection) -> db_connection:query(Connection, Sql) end, #{timeout => 1000}).
%% '''
%%
%% Use a pool for picks or for claims, not for both: a claim excludes other claims, but picks ignore claims.
%%
%% A worker may die at any time, also between the pick or the claim and its first use. Until the pool has noticed the
%% death, picks still return the worker, and one claim at most gets it ({@link claim/3}).
%%
%% Pools of {@link start/2}, and pools in the application's environment (`{weir_pool, [{pools, [{Name, Opts}]}]}'), live
%% under weir_pool's own supervisor until {@link stop/1}. Each of these pools has a supervisor of its own, so the end of
%% a pool never ends another pool or the application.
%%
%% A pool gives up if its workers die more often than `intensity' allows, or cannot be restarted. A pool of `start/2'
%% that has given up is gone, and picks return `{error, no_pool}'. Remedy: start the pool under your own supervisor with
%% {@link child_spec/2}, which restarts it, or with `start => async', which never gives up.
%%
%% A pool survives the limits of its node. If no process can be spawned, for example because the process table is full,
%% a running pool tries to start its workers again every 100 milliseconds until it succeeds. These attempts do not count
%% against `intensity'. At the limit the first start of a pool fails, and so do {@link resize/3}, {@link replace/3} and
%% {@link drain/2}, which then change nothing. Their errors contain `system_limit'. A pool of {@link child_spec/2} waits
%% for room.
%%
%% Options are maps or keyword lists. A wrong argument raises `badarg', and the shell shows which argument is wrong and
%% why. Wrong options of a pool are an error value of {@link start/2} and {@link start_link/2}:
%% `{error, {bad_option, Key, Value}}' or another {@link option_error()}.
%%
%% Names are any terms, local to the node, compared with `=:='. Each pool has the persistent term `{weir_pool, Name}',
%% and a persistent term with a negative integer as its key for each slot. A process that claims may have the key
%% `$weir_pool_holder' in its process dictionary.
%%
%% docs/guide/pool.md shows uses. docs/internals/pool.md explains how a pool works and has the costs.
-module(weir_pool).

-export([start/2, start_link/2, child_spec/1, child_spec/2, stop/1]).
-export([pick/1, pick/2, pick_slot/1, pick_slot/2]).
-export([call/2, call/3, call_within/4, call_key/3, call_key/4, cast/2, cast_key/3, broadcast/2, map/2]).
-export([claim/2, claim/3, checkout/2, checkin/2, checkin/3, slot/1]).
-export([add_worker/2, add_worker/3, remove_worker/2, added_workers/1, connect/2, disconnect/2]).
-export([resize/2, resize/3, replace/2, replace/3, drain/2]).
-export([info/1, workers/1, pools/0, which_pools/1]).

-export_type([name/0, opts/0, size/0, slot/0, strategy/0, info/0, claim_opts/0, ticket/0]).
-export_type([option_error/0, start_error/0, change_error/0, replace_error/0]).
-export_type([claim_error/0, checkin_error/0, overload/0]).

-include("weir_pool.hrl").

%% Default time-out of a change, in milliseconds.
-define(CHANGE_MS, 60_000).

-type name() :: term().

-type size() :: 1..?MAX_SIZE.

-type slot() :: 1..?MAX_SIZE.
%% Slots are numbered from 1.

-type strategy() :: round_robin | random | hash | direct | least_loaded | module().
%% <ul>
%% <li>`round_robin': one slot after the other.</li>
%% <li>`random': any slot, with equal probability.</li>
%% <li>`hash': by key only. The slot is a hash of the key, as for {@link pick/2} with most other strategies.</li>
%% <li>`direct': by key only, and the key is a positive integer: the number of the slot, modulo the size. If that slot
%%   is vacant, the next filled slot.</li>
%% <li>`least_loaded': from a random slot on, the first slot without a call of {@link call/2} under way. If there is
%%   none among the first 32 filled slots, the slot with the fewest calls of these.</li>
%% <li>A module with the behaviour {@link weir_pool_strategy}.</li>
%% </ul>

-type opts() :: #{
    worker := {module(), Function :: atom(), Args :: [term()]} | none,
    size => 0 | size(),
    pass_slot => boolean(),
    restart => permanent | transient | temporary,
    shutdown => brutal_kill | timeout(),
    intensity => non_neg_integer(),
    period => pos_integer(),
    start => sync | async,
    backoff => {MinMs :: pos_integer(), MaxMs :: pos_integer()},
    strategy => strategy(),
    auto_size => boolean(),
    queue => fifo | lifo,
    max_queue => non_neg_integer(),
    codel => off | #{target := Ms :: pos_integer(), interval := Ms :: pos_integer()},
    overflow => #{max := non_neg_integer(), linger := Ms :: non_neg_integer()},
    check => {fun((pid()) -> term()), IntervalMs :: pos_integer()},
    abandoned => replace | {wait, Ms :: non_neg_integer()} | free
}
    | [{atom(), term()}].
%% A map, or a keyword list with the same keys. The values of `codel' and `overflow' may be keyword lists, too. Times in
%% milliseconds are at most 4294967295, about seven weeks.
%%
%% Workers:
%% <ul>
%% <li>`worker': the function that starts a worker, as in the child specification of a supervisor. The pool calls the
%%   function once for each slot. The function returns `{ok, Pid}' or `{ok, Pid, Info}' with a process of this node that
%%   is linked to the caller, or `ignore', which leaves the slot vacant, or `{error, Reason}'. With `none', processes
%%   connect themselves with {@link connect/2}. Mandatory.</li>
%% <li>`size': the number of slots. Mandatory with a worker, default 0 without. With a worker, 0 is allowed if
%%   `overflow' has a `max' above 0: the pool starts all workers on demand, claims get them, and picks do not.</li>
%% <li>`pass_slot': whether the start function gets the number of the slot as an additional first argument. Default
%%   `false'.</li>
%% <li>`restart': which workers are restarted, as in a supervisor. The slot of a worker that is not restarted stays
%%   vacant. Default `permanent'.</li>
%% <li>`shutdown': milliseconds in which a worker has to stop, or `infinity', or `brutal_kill'. Default 5000.</li>
%% <li>`intensity', `period': the pool gives up after more than `intensity' restarts of workers within `period' seconds.
%%   A restart that fails counts. An attempt that fails at a limit of the node does not. Default: `2 * slots + 10'
%%   within 5 seconds, with the current number of slots, so that all workers may die together twice. Not with
%%   `start => async'.</li>
%% <li>`start': with `sync', the default, the pool starts the workers one at a time, in the order of the slots, and
%%   fails if a worker cannot be started. With `async' the pool starts at once, and its workers start at the same time.
%%   A start that fails is tried again without limit. {@link info/1} returns how many workers live, how many starts have
%%   failed, and the last reason. A logger event of level `error' reports the first failure in a row, the second, the
%%   fourth, and so on.</li>
%% <li>`backoff': milliseconds before a failed start is tried again, with `start => async', and for overflow workers in
%%   each pool. The pause begins with the first number and doubles up to the second. A random part of up to a half is
%%   subtracted from each pause. Default `{100, 30000}'.</li>
%% <li>`check': a function and an interval in milliseconds. The pool calls the function with the pid of each idle
%%   worker, one worker after the other. The next round begins an interval after the last call. If the function does not
%%   return `ok' or `true', or takes longer than an interval, the pool replaces the worker. No claim gets a worker
%%   during its check. Each call runs in a process of its own. The pool's manager itself kills that process when the
%%   interval is over, so a check that hangs delays the round by one interval. Default: no checks.</li>
%% <li>`auto_size': whether {@link add_worker/2} enlarges a full pool. Default: `true' if no `size' is given.</li>
%% </ul>
%% Picks:
%% <ul>
%% <li>`strategy': see {@link strategy()}. Default `round_robin'.</li>
%% </ul>
%% Claims:
%% <ul>
%% <li>`queue': which waiting caller gets the next worker: the first (`fifo', default) or the last (`lifo'). Under
%%   overload, `lifo' makes some callers wait very long and most callers very briefly.</li>
%% <li>`max_queue': how many callers may wait. The next caller gets `{error, {overload, _}}'. Default 10000.</li>
%% <li>`codel': refuses requests that would be served too late. If all waits during `interval' milliseconds are longer
%%   than `target' milliseconds, the queue refuses one request with `{error, {overload, _}}'. Refusals then become more
%%   frequent until callers wait less than `target' again (RFC 8289). Meanwhile the queue also refuses each request that
%%   has waited twice the target, because the RFC's law alone needs seconds to end an overload. Choose as `target' an
%%   acceptable wait, and as `interval' the longest burst. The interval must be greater than the target. Not with
%%   `lifo'. Default `off'.</li>
%% <li>`overflow': the pool starts up to `max' additional workers while callers wait or find no free worker. An overflow
%%   worker stops after `linger' milliseconds without a claim. With `linger => 0' it stops when it is released and no
%%   caller waits. Workers that are stopping count, so a pool never has more than `size + max' living workers, except
%%   during {@link replace/3}. Picks do not use overflow workers. Default: none.</li>
%% <li>`abandoned': how the pool treats a worker whose claim was abandoned ({@link claim/3}). With `replace', the
%%   default, the pool kills the worker and starts another. With `{wait, Ms}' the pool sends a system message, which OTP
%%   behaviours answer after everything that was sent before. The worker is free again when it answers, and replaced
%%   if it has not answered after `Ms' milliseconds. With `free' the worker is free at once. A process that connected
%%   itself is disconnected instead of replaced, and an overflow worker is stopped. These replacements do not count
%%   against `intensity'. A logger event of level `warning' has pool, slot, worker, claimer and reason.</li>
%% </ul>

-type option_error() ::
    {bad_option, Key :: term(), Value :: term()}
    | {missing_option, worker | size}
    | {contradicting_options, {Key :: atom(), Value :: term()}, {OtherKey :: atom(), Value :: term()}}.
%% <ul>
%% <li>`bad_option': the value is wrong, or the option does not exist.</li>
%% <li>`missing_option': without `worker' the pool has no start function; use `worker => none' if processes connect
%%   themselves. A pool with workers needs `size'.</li>
%% <li>`contradicting_options': the first option cannot be used together with the second.</li>
%% </ul>

-type start_error() ::
    option_error()
    | already_started
    | {start_failed, slot(), Reason :: term()}
    | {not_started, weir_pool}
    | {pool_down, Reason :: term()}.
%% <ul>
%% <li>`already_started': a pool of this name exists, or is starting or stopping.</li>
%% <li>`start_failed': the worker of this slot could not be started. `Reason' is the worker's. If the start function
%%   raised an exception, it is `{exception, Class, Reason, Stacktrace}', and if it returned a wrong value,
%%   `{bad_return, {M, F, Returned}}'.</li>
%% <li>`not_started': the application weir_pool is not running.</li>
%% <li>`pool_down': the node could not spawn a process of the pool (`{pool_down, system_limit}'), or a process of the
%%   pool was killed during the start. If the manager of a pool of `start/2' is killed, its successor goes on with the
%%   start, and there is no error.</li>
%% </ul>

-type replace_error() ::
    change_error() | no_slot | no_workers | replacing | timeout | held_by_caller | {start_failed, slot(), term()}.
%% See {@link replace/3}.

-type change_error() :: no_pool | {pool_down, Reason :: term()}.
%% <ul>
%% <li>`no_pool': there is no such pool, or it is starting or stopping.</li>
%% <li>`pool_down': the pool's manager was killed during the change, and all workers with it. The error
%%   `{pool_down, system_limit}' of {@link drain/2} means that the node could not spawn the process that drains. The
%%   pool stays open then.</li>
%% </ul>

-type claim_opts() ::
    timeout() | #{timeout => timeout(), covers => wait | work} | [{timeout, timeout()} | {covers, wait | work}].
%% The time-out alone, or a map or a keyword list:
%% <ul>
%% <li>`timeout': milliseconds that the claim may wait for a worker. Default 0.</li>
%% <li>`covers': with `wait', the default, the time-out covers the wait alone. With `work' the time-out covers the
%%   function as well, and must be given. The function then runs in a process of its own, which is killed at the
%%   deadline or when the caller dies. At that moment the claim is abandoned. After the caller's death that process may
%%   run for a moment longer. With `abandoned => free' it may then use the worker at the same time as the next claimer.
%%   Not for {@link checkout/2}.</li>
%% </ul>

-type claim_error() :: no_pool | no_worker | busy | timeout | {overload, overload()}.
%% Errors of {@link claim/3} and {@link checkout/2}:
%% <ul>
%% <li>`no_pool': the pool is not started, or is being started or stopped.</li>
%% <li>`busy': all workers are claimed, and the time-out is 0.</li>
%% <li>`no_worker': no slot has a worker, and the time-out is 0.</li>
%% <li>`timeout': no worker became free in time. With `covers => work' also: the fun was not done in time.</li>
%% <li>`overload': `max_queue' claims wait already, or CoDel has dropped the request.</li>
%% </ul>

-type checkin_error() :: not_held | worker_down.
%% Errors of {@link checkin/3}. In both cases the ticket holds nothing any more, and no other claim is touched.
%% <ul>
%% <li>`worker_down': the worker is dead. A ticket that was given back before its worker died gets this error too.</li>
%% <li>`not_held': the worker lives. The ticket was given back already, or the pool has ended the claim as abandoned, or
%%   the pool is gone, or the ticket belongs to another pool.</li>
%% </ul>

-type overload() :: #{
    pool := name(), reason := queue_full | codel, waiting := non_neg_integer(), waited_ms := non_neg_integer()
}.
%% The pool, the cause, the number of callers that wait, and the milliseconds that this request waited.

-opaque ticket() :: weir_pool_claim:ticket().
%% Handle of one claim of {@link checkout/2}.

-type info() :: #{
    name := name(),
    size := 0 | size(),
    limit := 0 | size(),
    strategy := strategy(),
    live := non_neg_integer(),
    vacant := non_neg_integer(),
    claimed := non_neg_integer(),
    reserved := non_neg_integer(),
    stopping := non_neg_integer(),
    calls := non_neg_integer(),
    waiting := non_neg_integer(),
    oldest_wait_ms := non_neg_integer(),
    longest_wait_ms := non_neg_integer(),
    picks := non_neg_integer(),
    skips := non_neg_integer(),
    claims := non_neg_integer(),
    claimed_ms := non_neg_integer(),
    waits := non_neg_integer(),
    busy := non_neg_integer(),
    timeouts := non_neg_integer(),
    overloads := non_neg_integer(),
    abandoned := non_neg_integer(),
    check_failures := non_neg_integer(),
    restarts := non_neg_integer(),
    start_failures := non_neg_integer(),
    start_error := none | {slot(), Reason :: term()}
}.
%% At this moment:
%% <ul>
%% <li>`name', `strategy': from the start of the pool.</li>
%% <li>`size', `limit': the number of slots without and with the overflow slots.</li>
%% <li>`live': filled slots, with the overflow slots.</li>
%% <li>`vacant': vacant slots, without the overflow slots.</li>
%% <li>`claimed': slots that are claimed.</li>
%% <li>`reserved': slots that the pool keeps out of use, because the worker is checked, replaced or probed.</li>
%% <li>`stopping': workers that have left their slots and still live.</li>
%% <li>`calls': calls of {@link call/2} and similar functions that are under way. Counted only with `least_loaded' and
%%   with a module as strategy.</li>
%% <li>`waiting': callers that wait for a worker.</li>
%% <li>`oldest_wait_ms': milliseconds since the first of these callers began to wait.</li>
%% </ul>
%% Since the start of the pool, or since its restart after its manager was killed:
%% <ul>
%% <li>`picks': successful picks with `round_robin', `random' or `least_loaded'. Exact while no pick is under way. Picks
%%   by key are not counted: they write nothing, and a counter would take 12 ns.</li>
%% <li>`skips': vacant slots that picks drew and skipped.</li>
%% <li>`claims': claims that got a worker, at once or after a wait. A claim that the queue granted too late counts, too.
%%   If a process is killed at one certain instruction of a claim, the number becomes up to 64 too low.</li>
%% <li>`claimed_ms': milliseconds that workers were claimed, all workers together, sampled once a second. Over an hour,
%%   its growth divided by `limit * 3600000' is the utilization.</li>
%% <li>`waits': claims that waited and got a worker.</li>
%% <li>`longest_wait_ms': the longest wait of these claims, in milliseconds.</li>
%% <li>`busy': claims that were refused at once because no worker was free.</li>
%% <li>`timeouts': claims whose time-out passed.</li>
%% <li>`overloads': claims that were refused with `overload'.</li>
%% <li>`abandoned', `check_failures': see the options `abandoned' and `check'.</li>
%% <li>`restarts': workers that took a slot which had been filled before.</li>
%% <li>`start_failures': starts of a worker that failed.</li>
%% <li>`start_error': the slot and the reason of the last start that failed.</li>
%% </ul>

%% @doc Starts a pool under weir_pool's own supervisor. Returns when all workers are started, or with `start => async'
%% at once.
%%
%% ```
%% ok = weir_pool:start(lookups, #{size => 8, worker => {lookup_server, start_link, []}}).
%% '''
%%
%% A pool that fails to start stops the workers that it had started, and leaves nothing behind. The pool has a
%% supervisor of its own: its end never ends another pool, or the application.
%%
%% If the pool's manager is killed, all workers end, and the supervisor starts the pool again when the old workers are
%% dead.
%%
%% Errors: see {@link start_error()}. If the process table of the node is full, the first start fails with
%% `{start_failed, Slot, Reason}' or `{pool_down, system_limit}'. A pool that runs already survives that.
%%
%% Cost: three processes, and for each slot with a worker one more, the supervisor that calls the start function. Other
%% pools can start and stop meanwhile.
-spec start(name(), opts()) -> ok | {error, start_error()}.
start(Name, Opts) -> weir_pool_boot:start(Name, Opts).

%% @doc Like {@link start/2}, but links the pool to the calling process, which is usually a supervisor. Returns the
%% pool's manager.
%%
%% If the start fails and the caller does not trap exits, the caller may end with the pool, as with each start function
%% of a supervisor. The application weir_pool must be running. The pool stops when the application stops.
-spec start_link(name(), opts()) -> {ok, pid()} | {error, start_error()}.
start_link(Name, Opts) -> weir_pool_boot:start_link(Name, Opts).

%% @doc Like {@link child_spec/2}, with the pool's name among the options. A supervisor of Elixir takes
%% `{:weir_pool, name: :squares, size: 8, worker: {Square, :start_link, [[]]}}' as a child.
-spec child_spec(#{name := name(), atom() => term()} | [{atom(), term()}]) -> supervisor:child_spec().
child_spec(#{name := Name} = Opts) ->
    child_spec(Name, maps:remove(name, Opts));
child_spec(Opts) ->
    case is_list(Opts) andalso lists:keytake(name, 1, Opts) of
        {value, {name, Name}, Rest} -> child_spec(Name, Rest);
        _ -> ?BADARG([Opts], #{1 => "not a map or a keyword list with the option name"})
    end.

%% @doc Returns a child specification for a supervisor, with the id `{weir_pool, Name}'.
%%
%% The child is `permanent'. Do not make it `transient': a pool that gives up exits with `shutdown', and a supervisor
%% does not restart a transient child after that. The options are checked when the child is started. If the node
%% can have no other process or port, the start waits for one: meanwhile the supervisor handles nothing else.
-spec child_spec(name(), opts()) -> supervisor:child_spec().
child_spec(Name, Opts) ->
    #{
        id => {?MODULE, Name},
        start => {weir_pool_boot, start_child, [Name, Opts]},
        restart => permanent,
        shutdown => infinity,
        type => supervisor,
        modules => [weir_pool_manager]
    }.

%% @doc Stops a pool. Returns when its workers and processes have ended.
%%
%% The pool closes first: before it stops a worker, picks return `{error, no_pool}', and so do claims that wait.
%% {@link drain/2} lets workers finish.
%%
%% If the pool is a child of your supervisor, `stop/1' calls {@link supervisor:terminate_child/2}. The supervisor does
%% not restart the pool then, and {@link supervisor:restart_child/2} can. If the parent is not a `supervisor', the
%% pool exits with reason `shutdown'. Do not call `stop/1' in that supervisor, nor while that supervisor waits for the
%% caller to start.
%%
%% Errors: `no_pool' if there is no such pool. If the pool's manager was killed, `stop/1' may return `no_pool' while the
%% supervisor is restarting the pool; call it again when the pool is open.
%%
%% Cost: erases a persistent term with a compound value, so the runtime scans all processes of the node. A process of
%% low priority erases the terms of the slots afterwards.
-spec stop(name()) -> ok | {error, no_pool}.
stop(Name) -> weir_pool_boot:stop(Name).

%% @doc Picks the next worker by the pool's strategy.
%%
%% With round robin, each live worker gets the same number of picks, to within the number of schedulers. With
%% `round_robin', `random' and `least_loaded', all other slots share the picks of a vacant slot.
%%
%% Errors: `no_worker' if all slots are vacant. `no_pool' if there is no such pool, or the pool is starting or stopping.
%% Raises `badarg' if the strategy is `hash' or `direct', which need a key.
%%
%% Cost: no message and no other process. Two reads of persistent terms and, with round robin, one addition to a word
%% that only this scheduler writes. Allocates a key and the result, 6 words. Each vacant slot that is drawn adds a read
%% and two additions. If all slots are vacant, a pick takes `2 * size' reads.
-spec pick(name()) -> {ok, pid()} | {error, no_pool | no_worker}.
pick(Name) -> weir_pool_pick:next(Name).

%% @doc Picks the worker of a key. Equal keys (`=:=') get the same worker as long as the size is the same and the slot
%% has the same worker.
%%
%% With `direct' the key is the number of a slot. A strategy module of the user's decides what the key means. With all
%% other strategies the slot is a hash of the key, which is the same on each node.
%%
%% A pool that grows by one slot gives about `1 / size' of the keys to the new slot, and no key to another slot. While a
%% slot is vacant, its keys are spread over the other slots, until the slot is filled again.
%%
%% Errors: those of {@link pick/1}. Raises `badarg' if the strategy is `direct' and the key is not a positive integer.
%%
%% Cost: no message and no other process. Two reads of persistent terms, one `erlang:phash2/2' of the key, and about
%% `ln(size) + 1' steps of a generator. Allocates a key and the result, 6 words. While the slot of the key is vacant,
%% the pick hashes the key again up to 64 times, and then reads up to `size' slots.
-spec pick(name(), Key :: term()) -> {ok, pid()} | {error, no_pool | no_worker}.
pick(Name, Key) -> weir_pool_pick:key(Name, Key).

%% @doc Like {@link pick/1}, but also returns the slot.
-spec pick_slot(name()) -> {ok, slot(), pid()} | {error, no_pool | no_worker}.
pick_slot(Name) -> weir_pool_pick:next_slot(Name).

%% @doc Like {@link pick/2}, but also returns the slot.
-spec pick_slot(name(), Key :: term()) -> {ok, slot(), pid()} | {error, no_pool | no_worker}.
pick_slot(Name, Key) -> weir_pool_pick:key_slot(Name, Key).

%% @doc Like {@link call/3} with a time-out of 5000 milliseconds.
-spec call(name(), Request :: term()) -> {ok, Reply :: term()} | {error, no_pool | no_worker}.
call(Name, Request) -> call(Name, Request, 5000).

%% @doc Picks a worker and calls it with `gen_server:call/3'. The exits of that function pass through.
%%
%% With `least_loaded', and with a module as strategy, the pool counts the call while it is under way.
%%
%% Errors: those of {@link pick/1}. Cost: a pick and a call. A call that is counted also takes an insertion into an ETS
%% table and a deletion. With the table the pool finds calls whose caller was killed.
-spec call(name(), Request :: term(), timeout()) -> {ok, Reply :: term()} | {error, no_pool | no_worker}.
call(Name, Request, Timeout) -> weir_pool_call:call(Name, Request, Timeout).

%% @doc Like {@link call/3}, but returns `{error, busy}' if the picked worker already has `Room' calls under way. For
%% callers that can refuse a request, or send it to another node. With `least_loaded' the picked worker has the fewest
%% calls.
%%
%% Calls are counted only with `least_loaded' and with a module as strategy. In other pools there is always room. If two
%% callers come at the same moment and there is room for one call, both may get `busy'. Cost: that of {@link call/3}.
-spec call_within(name(), Request :: term(), timeout(), Room :: pos_integer() | infinity) ->
    {ok, Reply :: term()} | {error, no_pool | no_worker | busy}.
call_within(Name, Request, Timeout, Room) when Room =:= infinity; is_integer(Room), Room > 0 ->
    weir_pool_call:call_within(Name, Request, Timeout, Room);
call_within(Name, Request, Timeout, Room) ->
    ?BADARG([Name, Request, Timeout, Room], #{4 => "neither a number of calls, from 1, nor infinity"}).

%% @doc Like {@link call_key/4} with a time-out of 5000 milliseconds.
-spec call_key(name(), Key :: term(), Request :: term()) -> {ok, Reply :: term()} | {error, no_pool | no_worker}.
call_key(Name, Key, Request) -> call_key(Name, Key, Request, 5000).

%% @doc Like {@link call/3}, but picks the worker of a key ({@link pick/2}).
-spec call_key(name(), Key :: term(), Request :: term(), timeout()) ->
    {ok, Reply :: term()} | {error, no_pool | no_worker}.
call_key(Name, Key, Request, Timeout) -> weir_pool_call:call_key(Name, Key, Request, Timeout).

%% @doc Picks a worker and casts to it with `gen_server:cast/2'.
%%
%% The pool does not count casts, because it cannot see when a worker has handled the message. Errors: those of
%% {@link pick/1}.
-spec cast(name(), Message :: term()) -> ok | {error, no_pool | no_worker}.
cast(Name, Message) -> cast_picked(pick(Name), Message).

%% @doc Like {@link cast/2}, but picks the worker of a key ({@link pick/2}).
-spec cast_key(name(), Key :: term(), Message :: term()) -> ok | {error, no_pool | no_worker}.
cast_key(Name, Key, Message) -> cast_picked(pick(Name, Key), Message).

cast_picked({ok, Pid}, Message) -> gen_server:cast(Pid, Message);
cast_picked({error, _} = Error, _Message) -> Error.

%% @doc Casts to all live workers, except overflow workers. Returns their number.
%%
%% Cost: reads each slot, and sends (copies) the message once for each filled slot.
-spec broadcast(name(), Message :: term()) -> {ok, non_neg_integer()} | {error, no_pool}.
broadcast(Name, Message) ->
    case map(Name, fun(Pid) -> gen_server:cast(Pid, Message) end) of
        {ok, Results} -> {ok, length(Results)};
        {error, no_pool} -> {error, no_pool}
    end.

%% @doc Calls a function with each live worker, except overflow workers, in the calling process and in the order of the
%% slots. Returns the results.
%%
%% Exceptions of the function pass through. `map/2' reads all slots before the first call, so a worker that is replaced
%% meanwhile is passed to the function all the same.
-spec map(name(), fun((pid()) -> Result)) -> {ok, [Result]} | {error, no_pool}.
map(Name, Fun) when is_function(Fun, 1) ->
    case weir_pool_terms:pool(Name) of
        #pool{size = Size} = Pool -> {ok, [Fun(Pid) || {_Slot, Pid} <- weir_pool_terms:workers(Pool, Size)]};
        undefined -> {error, no_pool}
    end;
map(Name, Fun) ->
    ?BADARG([Name, Fun], #{2 => "not a fun of one argument, the worker's pid"}).

%% @doc Like {@link claim/3} without waiting.
-spec claim(name(), fun((pid()) -> Result)) -> {ok, Result} | {error, claim_error()}.
claim(Name, Fun) -> claim(Name, Fun, #{}).

%% @doc Claims a worker, calls a function with it, and releases the worker when the function has returned. Until then no
%% other process can claim this worker. A process may make further claims inside the function.
%%
%% If the function raises an exception, the worker is released first, and the exception passes through. Only one kind of
%% exception ends the claim as abandoned: the exit of a call to this worker that timed out. That exit is `{timeout, {_,
%% _, [Worker | _]}}', as of `gen_server:call/3', with the worker's pid or name. The worker is likely to be still busy
%% then. A claim is also abandoned if its process dies: the pool notices that within a second, and within milliseconds
%% while claims wait. The option `abandoned' decides what the pool does with the worker.
%%
%% A worker that dies during its claim is replaced like any other. A worker that was killed while it was idle may be
%% given to one claim before the pool knows: that claim's first call fails with `noproc'. A program that kills a worker
%% and claims at once gets this worker in almost all of 300 tries. Remedy: let the exit of the call pass through, so
%% that no later claim gets this worker, and try the claim again. As an alternative, {@link checkout/2} passes over
%% workers that are dead.
%%
%% With `covers => work' the claim spawns two processes. If the process table is full, it raises `system_limit', and the
%% worker is free again.
%%
%% Cost: while a worker is free, the claim sends no message and allocates about 40 words. If the slot of the process's
%% last claim is taken, the claim reads a word for every 56 slots, and a word for each slot that may be free. A claim
%% that waits sends a message to the pool's queue and receives one. After an exception, the claim waits until the
%% runtime says whether the worker is alive, which may take until a dying worker is dead.
-spec claim(name(), fun((pid()) -> Result), claim_opts()) -> {ok, Result} | {error, claim_error()}.
claim(Name, Fun, Opts) -> weir_pool_claim:claim(Name, Fun, Opts).

%% @doc Claims a worker until {@link checkin/2}, or until the calling process ends, which abandons the claim.
%%
%% ```
%% {ok, Conn, Ticket} = weir_pool:checkout(db, 1000),
%% ok = db_connection:begin_transaction(Conn),
%% ...
%% ok = weir_pool:checkin(db, Ticket).
%% '''
%%
%% The worker was alive after the claim was made. If it was dead, the claim continues with the next worker, and no
%% process gets the dead one.
%%
%% Errors: see {@link claim_error()}. Cost: that of {@link claim/3}, and 10 ns to read whether the worker is alive. If
%% the worker is dying, the caller waits until it is dead. If signals to the worker are pending, for example the end of
%% a monitor, the caller waits until the worker has handled them. These waits come on top of the time-out.
-spec checkout(name(), claim_opts()) -> {ok, pid(), ticket()} | {error, claim_error()}.
checkout(Name, Opts) -> weir_pool_claim:checkout(Name, Opts).

%% @doc Like {@link checkin/3} with `ok'.
-spec checkin(name(), ticket()) -> ok | {error, checkin_error()}.
checkin(Name, Ticket) -> checkin(Name, Ticket, ok).

%% @doc Releases the worker of a ticket. Any process may do so, on any connected node.
%%
%% With `ok' the worker is free again. If it has died and the claim is still open, the result is `ok' too, and no
%% process gets this worker. With `fail' the worker counts as broken: the pool treats the worker as with `abandoned =>
%% replace', whatever the option says.
%%
%% Errors: see {@link checkin_error()}. Cost: that of releasing a claim, and like {@link checkout/2} the caller waits
%% until the runtime says whether the worker is alive.
-spec checkin(name(), ticket(), ok | fail) -> ok | {error, checkin_error()}.
checkin(Name, Ticket, How) -> weir_pool_claim:checkin(Name, Ticket, How).

%% @doc Returns the slot of a ticket.
-spec slot(ticket()) -> slot().
slot(Ticket) -> weir_pool_claim:slot(Ticket).

%% @doc Gives a slot to a name, in a pool with `worker => none'. A process can then connect itself under that name.
%%
%% The slot is the first that has no name, or with the strategies `random' and `hash' the middle of the longest row of
%% slots without names. A full pool grows by one slot if it has `auto_size'.
-spec add_worker(name(), WorkerName :: term()) ->
    {ok, slot()} | {error, change_error() | pool_full | already_added | has_workers}.
add_worker(Name, WorkerName) -> weir_pool_request:member(Name, {add_worker, WorkerName}).

%% @doc Like {@link add_worker/2}, with a slot that the caller chooses. A pool with `auto_size' grows up to that slot.
%%
%% Cost: 64 bytes of memory for each slot up to the highest, also for slots without a name: 64 MB for slot 1,000,000.
-spec add_worker(name(), WorkerName :: term(), slot()) ->
    {ok, slot()} | {error, change_error() | out_of_range | slot_taken | already_added | has_workers}.
add_worker(Name, WorkerName, Slot) when is_integer(Slot), Slot >= 1, Slot =< ?MAX_SIZE ->
    weir_pool_request:member(Name, {add_worker, WorkerName, Slot});
add_worker(Name, WorkerName, Slot) ->
    ?BADARG([Name, WorkerName, Slot], #{3 => "not the number of a slot, from 1 to 134217727"}).

%% @doc Removes a name from its slot. Returns `{error, {connected, Pid}}' if a process is connected under the name.
-spec remove_worker(name(), WorkerName :: term()) ->
    ok | {error, change_error() | unknown_worker | {connected, pid()} | has_workers}.
remove_worker(Name, WorkerName) -> weir_pool_request:member(Name, {remove_worker, WorkerName}).

%% @doc Returns the names that have a slot, in the order of the slots, whether or not a process is connected under the
%% name.
-spec added_workers(name()) -> {ok, [{WorkerName :: term(), slot()}]} | {error, change_error() | has_workers}.
added_workers(Name) -> weir_pool_request:member(Name, added_workers).

%% @doc Puts the calling process into the slot of a name. Picks and claims get the process until it disconnects itself
%% or ends, or the pool ends. A process may connect under several names, and in several pools.
%%
%% If a process has disconnected itself while it was claimed, `connect/2' under the same name waits until that claim has
%% ended. Meanwhile other processes that connect under the name get `{error, {connected, Pid}}'. The process that
%% disconnected itself waits, too. If its claimer waits for that process at the same time, neither continues. A worker
%% must therefore not disconnect itself and connect again while its claimer waits for it.
-spec connect(name(), WorkerName :: term()) ->
    {ok, slot()} | {error, change_error() | unknown_worker | {connected, pid()} | has_workers}.
connect(Name, WorkerName) -> weir_pool_request:member(Name, {connect, WorkerName, self()}).

%% @doc Takes the calling process out of the slot of a name. A process that has claimed the caller keeps its claim. No
%% later claim or pick gets the caller.
-spec disconnect(name(), WorkerName :: term()) ->
    ok | {error, change_error() | unknown_worker | not_connected | has_workers}.
disconnect(Name, WorkerName) -> weir_pool_request:member(Name, {disconnect, WorkerName, self()}).

%% @doc Like {@link resize/3} with a time-out of 60,000 milliseconds.
-spec resize(name(), 0 | size()) ->
    ok | {error, change_error() | resizing | timeout | Refused | {start_failed, slot(), term()}} when
    Refused :: {slot_taken, slot()} | {bad_size, term()}.
resize(Name, Size) -> resize(Name, Size, ?CHANGE_MS).

%% @doc Changes the number of slots. Returns when picks and claims use the new size. A pool makes one resize at a time.
%%
%% If the pool grows, the new workers are started first. If a worker cannot be started, or not all workers are ready in
%% time, nothing changes. With `start => async' the resize does not wait for the workers.
%%
%% If the pool shrinks, picks no longer use the slots above the new size. Each of their workers is stopped when its
%% claim has ended and it has handled what was sent to it, or else after `shutdown' milliseconds. In a pool with
%% `worker => none', slots that have a name stay.
%%
%% The size may be 0 with `worker => none' or with `overflow'.
%%
%% The pool's manager keeps the time, here and in {@link replace/3}. While the manager is suspended
%% ({@link sys:suspend/1}), there is no time-out.
%%
%% Errors: see {@link change_error()}.
%% <ul>
%% <li>`resizing': the pool is being resized already.</li>
%% <li>`timeout': not all new workers were ready in time.</li>
%% <li>`{slot_taken, Slot}': this slot has a name, and the pool would lose it.</li>
%% <li>`{bad_size, Size}': not a size for this pool.</li>
%% <li>`{start_failed, Slot, Reason}': the worker of a new slot could not be started.</li>
%% </ul>
%%
%% Cost: writes the main term, for which the runtime scans all processes of the node.
-spec resize(name(), 0 | size(), timeout()) ->
    ok | {error, change_error() | resizing | timeout | Refused | {start_failed, slot(), term()}} when
    Refused :: {slot_taken, slot()} | {bad_size, term()}.
resize(Name, Size, Timeout) when ?IS_TIMEOUT(Timeout) ->
    weir_pool_request:call(Name, {resize, Size, Timeout});
resize(Name, Size, Timeout) ->
    ?BADARG([Name, Size, Timeout], #{3 => "neither milliseconds nor infinity"}).

%% @doc Like {@link replace/3} with a time-out of 60,000 milliseconds.
-spec replace(name(), slot()) -> ok | {error, replace_error()}.
replace(Name, Slot) -> replace(Name, Slot, ?CHANGE_MS).

%% @doc Replaces the worker of a slot without a gap: the new worker is started first, and takes the slot when the slot
%% is not claimed. Returns when the new worker is in the slot. The old worker is then stopped when it has handled what
%% was sent to it, or else after `shutdown' milliseconds.
%%
%% If the new worker cannot be started, or the slot stays claimed until the time-out, the old worker stays.
%%
%% Errors: see {@link change_error()}.
%% <ul>
%% <li>`no_slot': the pool has no such slot, or has lost it meanwhile.</li>
%% <li>`no_workers': the pool has `worker => none'.</li>
%% <li>`replacing': the slot's worker is being replaced already.</li>
%% <li>`held_by_caller': the caller itself has claimed the worker, so the wait could not end.</li>
%% <li>`timeout': the new worker was not in the slot in time.</li>
%% <li>`{start_failed, Slot, Reason}': the new worker could not be started.</li>
%% </ul>
-spec replace(name(), slot(), timeout()) -> ok | {error, replace_error()}.
replace(Name, Slot, Timeout) when ?IS_TIMEOUT(Timeout) ->
    weir_pool_request:call(Name, {replace, Slot, Timeout, self()});
replace(Name, Slot, Timeout) ->
    ?BADARG([Name, Slot, Timeout], #{3 => "neither milliseconds nor infinity"}).

%% @doc Stops a pool after its work is done. Picks and claims return `{error, no_pool}' at once, and so do claims that
%% wait.
%%
%% The drain waits for each claim to end, and for each worker to handle what was sent to it. Then it stops the worker.
%% After `Timeout' milliseconds the drain ends, and returns `{error, {timeout, Busy}}' with the number of workers that
%% were not done. In both cases the pool is stopped as by {@link stop/1}.
%%
%% A worker is done when it answers a system message. Each OTP behaviour answers after everything that was sent before.
%% If a worker does not answer, the pool stops the worker after `shutdown' milliseconds or at the time-out of the drain.
%% For a process that connected itself and does not answer, the drain waits until the time-out.
%%
%% After the time-out the pool stops its workers. Each worker has `shutdown' milliseconds to stop. With
%% `shutdown => infinity' the stop takes as long as the slowest worker needs. If the caller is killed, the pool is
%% drained and stopped all the same.
%%
%% Errors: see {@link change_error()}. `held_by_caller': the caller itself has claimed a worker, and nothing is done.
-spec drain(name(), timeout()) ->
    ok | {error, change_error() | held_by_caller | {timeout, Busy :: pos_integer()}}.
drain(Name, Timeout) -> weir_pool_boot:drain(Name, Timeout).

%% @doc Returns the state and the counters of a pool ({@link info()}). The caller reads each value from where picks and
%% claims read and write it, so two values may be of different moments.
%%
%% Cost: no message and no other process. Reads a term and one or two words of each slot, 50 ns a slot.
-spec info(name()) -> {ok, info()} | {error, no_pool}.
info(Name) ->
    case weir_pool_terms:pool(Name) of
        #pool{} = Pool -> {ok, info_of(Pool)};
        undefined -> {error, no_pool}
    end.

info_of(#pool{name = Name, size = Size, limit = Limit, strategy = Strategy} = Pool) ->
    Live = weir_pool_terms:workers(Pool, Limit),
    %% The words of slots that the pool no longer has also count claims.
    Words = [weir_pool_word:read(Pool, Slot) || Slot <- lists:seq(1, weir_pool_terms:last_slot(Pool))],
    States = [weir_pool_word:state(Word) || Word <- lists:sublist(Words, Limit)],
    %% The draws are read first. A skip in between is then counted without its draw, so that the difference may be too
    %% low, but never too high.
    Draws = weir_pool_terms:draws(Pool),
    #{skips := Skips, claims := Claims} = Counters = weir_pool_terms:counters(Pool),
    Counters#{
        name => Name,
        size => Size,
        limit => Limit,
        strategy => Strategy,
        live => length(Live),
        vacant => Size - length([Slot || {Slot, _Worker} <- Live, Slot =< Size]),
        claimed => length([claimed || State <- States, State =:= taken orelse State =:= marked]),
        reserved => length([reserved || reserved <- States]),
        stopping => weir_pool_signals:stopping(Pool),
        calls => lists:sum([
            max(0, weir_pool_calls:calls(Pool, Slot))
         || weir_pool_calls:is_counted(Pool), Slot <- lists:seq(1, Limit)
        ]),
        claims => Claims + lists:sum([weir_pool_word:claims(Word) || Word <- Words]),
        waiting => weir_pool_signals:waiting(Pool),
        oldest_wait_ms => weir_pool_signals:oldest_ms(Pool),
        longest_wait_ms => weir_pool_signals:longest_ms(Pool),
        picks => max(0, Draws - Skips),
        start_error => start_error(Name)
    }.

start_error(Name) ->
    case weir_pool_registry:lookup(Name) of
        {ok, {_, _, _, _, Error}} -> Error;
        {error, no_pool} -> none
    end.

%% @doc Returns the filled slots with their workers, in the order of the slots, with the overflow slots.
%%
%% Cost: no message and no other process. Reads each slot.
-spec workers(name()) -> {ok, [{slot(), pid()}]} | {error, no_pool}.
workers(Name) ->
    case weir_pool_terms:pool(Name) of
        #pool{limit = Limit} = Pool -> {ok, weir_pool_terms:workers(Pool, Limit)};
        undefined -> {error, no_pool}
    end.

%% @doc Returns the names of all pools, with pools that are starting or stopping, and pools that their supervisor has
%% just stopped.
-spec pools() -> [name()].
pools() -> weir_pool_registry:names().

%% @doc Returns the pools and slots in which a process is a worker, in the order of names and slots.
%%
%% Cost: no message and no other process. Reads each slot of each pool.
-spec which_pools(pid()) -> [{name(), slot()}].
which_pools(Pid) when is_pid(Pid) ->
    [
        {Name, Slot}
     || Name <- lists:sort(pools()), {ok, Workers} <- [workers(Name)], {Slot, Worker} <- Workers, Worker =:= Pid
    ].
