%% @doc Pools of processes, picked or claimed in the caller.
%%
%% A pool is a row of numbered slots. Each is filled by a worker that the pool starts and supervises, or by a process
%% that connected itself. There are two ways to use one:
%%
%% <ul>
%% <li><em>Picking</em> ({@link pick/1}, {@link call/2}, ...) shares the workers. It chooses one without a message, a
%%   lock or a process of the pool's, in tens of nanoseconds, for one caller as for thousands.</li>
%% <li><em>Claiming</em> ({@link claim/3}, {@link checkout/2}) gives a worker to one caller at a time. As long as one is
%%   free, it takes an exchange of one word; only those for whom none is free talk to a process, and wait in its
%%   queue.</li>
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
%% A claim keeps other claims away, and picks do not heed it: use a pool for one or the other. A pid that was picked or
%% claimed may die at any time, also before the caller uses it. For the moment between a worker's death and the pool
%% hearing of it, picks still return it, and so does one claim at most, if it sees its call fail and lets the exception
%% pass.
%%
%% Pools of `start/2' live under weir_pool's own supervisor until {@link stop/1}, and so do those of the application's
%% environment: `{weir_pool, [{pools, [{Name, Opts}]}]}'. One that gives up, because its workers die more often than
%% `intensity' allows or cannot be started again, is gone, and picks say `no_pool'. Where that must not be the end, put
%% the pool under a supervisor of yours with {@link child_spec/2}, or start it with `start => async', which never gives
%% up.
%%
%% Options are maps or keyword lists. A function that is given something wrong raises `badarg', and the shell says what
%% is wrong with which argument; {@link start/2} and its like give `{error, {bad_option, Key, Value}}' and the like.
%%
%% Names are any terms, local to the node, compared with `=:='. A pool's main term is the persistent term
%% `{weir_pool, Name}', its slots' are negative integers, and a process that claims keeps `$weir_pool_holder' in its
%% process dictionary, if anything. docs/guide/pool.md shows uses, docs/internals/pool.md how it works and what it
%% costs.
-module(weir_pool).

-export([start/2, start_link/2, child_spec/1, child_spec/2, stop/1]).
-export([pick/1, pick/2, pick_slot/1, pick_slot/2]).
-export([call/2, call/3, call_within/4, call_key/3, call_key/4, cast/2, cast_key/3, broadcast/2, map/2]).
-export([claim/2, claim/3, checkout/2, checkin/2, checkin/3, slot/1]).
-export([add_worker/2, add_worker/3, remove_worker/2, added_workers/1, connect/2, disconnect/2]).
-export([resize/2, resize/3, replace/2, replace/3, drain/2]).
-export([info/1, workers/1, pools/0, which_pools/1]).

-export_type([name/0, opts/0, size/0, slot/0, strategy/0, info/0, claim_opts/0, ticket/0]).
-export_type([option_error/0, start_error/0, change_error/0, replace_error/0, claim_error/0, overload/0]).

-include("weir_pool.hrl").

%% How long a change may take where nothing is said, milliseconds.
-define(CHANGE_MS, 60_000).

-type name() :: term().

-type size() :: 1..?MAX_SIZE.

-type slot() :: 1..?MAX_SIZE.
%% Slots are numbered from 1.

-type strategy() :: round_robin | random | hash | direct | least_loaded | module().
%% <ul>
%% <li>`round_robin': one after the other.</li>
%% <li>`random': any, with equal chance.</li>
%% <li>`hash': by key only, like {@link pick/2} in a pool of any other strategy but `direct' and a module of yours.</li>
%% <li>`direct': by key only, which is a positive integer: that slot, modulo the size, or the next that is filled.</li>
%% <li>`least_loaded': from a random slot on, the first in which no call of {@link call/2} is under way, or else the one
%%   with the fewest, among 32 slots at most.</li>
%% <li>A module that implements {@link weir_pool_strategy}.</li>
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
%% A map, or a keyword list with the same keys; so are the values of `codel' and `overflow'.
%%
%% The workers:
%% <ul>
%% <li>`worker': starts a worker, as in a supervisor's child specification: it returns `{ok, Pid}' or
%%   `{ok, Pid, Info}' with a process of this node linked to the caller, `ignore' (the slot stays vacant), or
%%   `{error, Reason}'. Called once for each slot. `none': the slots are for processes that connect themselves with
%%   {@link connect/2}. Mandatory.</li>
%% <li>`size': number of slots. Mandatory with a worker; 0 if all workers are to be started on demand (`overflow'),
%%   which can then be claimed and not picked. Without a worker, default 0.</li>
%% <li>`pass_slot': puts the slot's number in front of the arguments. Default `false'.</li>
%% <li>`restart': which workers are started again; those that are not leave their slot vacant. As in a
%%   supervisor. Default `permanent'.</li>
%% <li>`shutdown': milliseconds that a worker is given to stop, `infinity', or `brutal_kill'. Default 5000.</li>
%% <li>`intensity', `period': the pool gives up after more than `intensity' restarts of workers within `period' seconds;
%%   a restart that fails counts. Default `2 * slots + 10' within 5 seconds, for as many slots as there are, so that all
%%   workers may die together without taking the pool with them. Not with `start => async'.</li>
%% <li>`start': `sync' (default) starts the workers in the order of the slots, one at a time, and fails if one cannot be
%%   started. `async' returns at once and starts all of them at the same time; a start that fails, then or later, is
%%   tried again for ever. {@link info/1} tells how many are live, how many starts have failed, and why the last did; a
%%   logger event of level `error' tells of the first failure in a row, the second, the fourth, and so on.</li>
%% <li>`backoff': with `async', and in any pool for workers for overflow, milliseconds before a failed start is tried
%%   again: the first number, doubled each time up to the second, each shortened by a random part of up to a half.
%%   Default `{100, 30000}'.</li>
%% <li>`check': a function that is called with the pid of every idle worker, one after the other, in a process of its
%%   own that is killed when it takes longer than the interval in milliseconds; so long after the last one the first is
%%   checked again. The worker is replaced unless it returns `ok' or `true'; it cannot be claimed meanwhile. Where each
%%   check hangs, a round takes the interval for each worker. Default: none.</li>
%% <li>`auto_size': whether {@link add_worker/2} enlarges the pool when it is full. Default: `true' if no `size' is
%%   given.</li>
%% </ul>
%% Picking:
%% <ul>
%% <li>`strategy': see {@link strategy()}. Default `round_robin'.</li>
%% </ul>
%% Claiming:
%% <ul>
%% <li>`queue': who of those waiting gets a worker: the first who came (`fifo', default), or the last (`lifo': under
%%   overload some wait very long, and most very short).</li>
%% <li>`max_queue': at most so many wait; others get `{error, {overload, _}}'. Default 10000.</li>
%% <li>`codel': drops requests that would be served too late anyway. When for `interval' milliseconds everyone had to
%%   wait for more than `target', one is refused with `{error, {overload, _}}', and more and more often until waiting is
%%   below `target' again (RFC 8289); meanwhile whoever has waited for twice the target is refused too, since that law
%%   alone takes seconds against a real overload. Choose as `target' what a caller may wait when all is well, and as
%%   `interval', which must be greater, how long a burst may last. Not with `lifo'. Default `off'.</li>
%% <li>`overflow': up to `max' workers more while others wait, or find none free; they go when nobody has claimed them
%%   for `linger' milliseconds, 0: when they are released and nobody waits. Picks do not use them. Default: none.</li>
%% <li>`abandoned': what becomes of a worker whose claimer died, or left it busy ({@link claim/3}). `replace' (default):
%%   it is killed and another started. `{wait, Ms}': it is given out again when it has handled everything that was sent
%%   to it, which it is asked by a system message that OTP behaviours answer; after so many milliseconds it is
%%   replaced. `free': given out again at once, for workers to whom it does not matter. A process that connected itself
%%   is disconnected instead of replaced, and a worker for overflow stopped. One that is replaced does not count against
%%   `intensity'. A logger event of level `warning' names pool, slot, worker, claimer and why.</li>
%% </ul>
%% Times in milliseconds are at most 4294967295, some seven weeks.

-type option_error() ::
    {bad_option, Key :: term(), Value :: term()}
    | {missing_option, worker | size}
    | {contradicting_options, {Key :: atom(), Value :: term()}, {OtherKey :: atom(), Value :: term()}}.
%% `bad_option' also stands for an option that does not exist. `missing_option' `worker': say how a worker is started,
%% or `none' if processes are to connect themselves.

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

-type replace_error() ::
    change_error() | no_slot | no_workers | replacing | timeout | held_by_caller | {start_failed, slot(), term()}.
%% See {@link replace/3}.

-type change_error() :: no_pool | {pool_down, Reason :: term()}.
%% `no_pool': there is none, or it is starting or stopping. `pool_down': the pool's manager was killed while the
%% change was under way, and all workers with it.

-type claim_opts() ::
    timeout() | #{timeout => timeout(), covers => wait | work} | [{timeout, timeout()} | {covers, wait | work}].
%% The time-out alone, or a map or a keyword list:
%% <ul>
%% <li>`timeout': milliseconds that the claim may wait for a worker. Default 0.</li>
%% <li>`covers': `wait' (default), or `work': the fun must be done by then too; then the time-out must be given. The fun
%%   is run in a process of its own, which is killed at the deadline, or when the caller dies; at that moment the claim
%%   is abandoned. After a caller's death that process may run for a moment longer, so with `abandoned => free' it and
%%   the next claimer may meet. Not for {@link checkout/2}.</li>
%% </ul>

-type claim_error() :: no_pool | no_worker | busy | timeout | {overload, overload()}.
%% <ul>
%% <li>`busy', `no_worker': none was free, or no slot is filled at all; only with the timeout 0.</li>
%% <li>`timeout': none became free in time; with `covers => work' also: the fun was not done in time.</li>
%% <li>`overload': too many wait, or CoDel has dropped the request.</li>
%% </ul>

-type overload() :: #{
    pool := name(), reason := queue_full | codel, waiting := non_neg_integer(), waited_ms := non_neg_integer()
}.
%% The pool, how many are waiting in it, and how long this request did.

-opaque ticket() :: weir_pool_claim:ticket().
%% One claim of {@link checkout/2}.

-type info() :: #{
    name := name(),
    size := 0 | size(),
    limit := 0 | size(),
    strategy := strategy(),
    live := non_neg_integer(),
    vacant := non_neg_integer(),
    claimed := non_neg_integer(),
    reserved := non_neg_integer(),
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
%% As it is now:
%% <ul>
%% <li>`name', `strategy': as the pool was started.</li>
%% <li>`size', `limit': number of slots without and with those for overflow.</li>
%% <li>`live', `vacant': filled slots of all, vacant ones of the first `size'.</li>
%% <li>`claimed', `reserved': slots that are claimed, and those that the pool itself keeps out of use because they are
%%   being checked, replaced or waited for.</li>
%% <li>`calls': calls of {@link call/2} and its like under way; counted with `least_loaded' and modules only.</li>
%% <li>`waiting', `oldest_wait_ms': how many wait for a worker, and how long the first of them has.</li>
%% </ul>
%% Since the pool was started, or started again because its manager was killed:
%% <ul>
%% <li>`picks': successful picks that drew (`round_robin', `random', `least_loaded'), exact when none is under way.
%%   Picks by key are not counted: they write nothing, and a counter would make them 12 ns dearer.</li>
%% <li>`skips': vacant slots that picks drew and passed over; with `least_loaded' draws that were made again.</li>
%% <li>`claims': claims that got a worker, at once or after a wait. Counted in the words that claims write anyway; one
%%   that is granted and not taken counts too, and one of 64 that is killed in the wrong nanosecond
%%   takes those 64 with it.</li>
%% <li>`claimed_ms': milliseconds that workers were claimed, all together, sampled once a second: over an hour, this
%%   divided by `limit * 3600000' is the utilisation.</li>
%% <li>`waits', `busy', `timeouts', `overloads': claims that waited and got a worker, those refused at once, those whose
%%   time passed, and those refused because of overload.</li>
%% <li>`longest_wait_ms': the longest that anyone waited who got a worker.</li>
%% <li>`abandoned', `check_failures': see the options `abandoned' and `check'.</li>
%% <li>`restarts': workers that took a slot which had been filled before.</li>
%% <li>`start_failures', `start_error': starts of a worker that failed, and the slot and the reason of the last.</li>
%% </ul>

%% @doc Starts a pool under weir_pool's own supervisor, and returns when all its workers are started.
%%
%% A pool that cannot start leaves nothing behind: the workers it had started are stopped again.
%%
%% Cost: two processes, and one more for each slot with a worker: its supervisor, which calls the start function. Other
%% pools can be started and stopped meanwhile.
-spec start(name(), opts()) -> ok | {error, start_error()}.
start(Name, Opts) -> weir_pool_boot:start(Name, Opts).

%% @doc Like {@link start/2}, but linked to the calling process: for use in a supervisor. Returns the pool's manager.
%%
%% Like any start function of a supervisor, it may take a caller that does not trap exits down with it when it fails.
%% The application weir_pool must be running, and stopping it stops the pool.
-spec start_link(name(), opts()) -> {ok, pid()} | {error, start_error()}.
start_link(Name, Opts) -> weir_pool_boot:start_link(Name, Opts).

%% @doc Like {@link child_spec/2}, with the pool's name among the options: a supervisor of Elixir takes `{:weir_pool,
%% name: :squares, size: 8, worker: {Square, :start_link, [[]]}}' for a child.
-spec child_spec(#{name := name(), atom() => term()} | [{atom(), term()}]) -> supervisor:child_spec().
child_spec(#{name := Name} = Opts) ->
    child_spec(Name, maps:remove(name, Opts));
child_spec(Opts) ->
    case is_list(Opts) andalso lists:keytake(name, 1, Opts) of
        {value, {name, Name}, Rest} -> child_spec(Name, Rest);
        _ -> ?BADARG([Opts], #{1 => "not a map or a keyword list with the option name"})
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
        modules => [weir_pool_manager]
    }.

%% @doc Stops a pool, and returns when its workers and processes are gone.
%%
%% The pool is closed first: before any worker is asked to stop, picks say `no_pool', and those who wait for a claim get
%% that too. {@link drain/2} lets those who work finish.
%%
%% A pool under a supervisor of yours is stopped by {@link supervisor:terminate_child/2}, so it is not started again,
%% and `supervisor:restart_child/2' can do so. A parent that is not a `supervisor' sees the pool exit with reason
%% `shutdown'. Not to be called by that supervisor itself, nor while it waits for the caller to start.
%%
%% Cost: erases a persistent term of a compound value, for which the runtime has every process of the node scanned.
%% What the slots leave is erased in the background, by a process of low priority.
-spec stop(name()) -> ok | {error, no_pool}.
stop(Name) -> weir_pool_boot:stop(Name).

%% @doc The next worker, by the pool's strategy. `badarg' in a pool of strategy `hash' or `direct', which need a key.
%%
%% Round robin: of any number of picks, live workers get equally many, to within the number of schedulers. Vacant slots
%% are passed over without burdening their neighbours, whatever the strategy. `no_worker': all slots are vacant.
%% `no_pool': there is no such pool, or it is just being started or stopped.
%%
%% Cost: no process is visited and no message sent; two reads of persistent terms and, for round robin, an addition to a
%% word that only this scheduler writes; allocates a key and the result, 6 words. Every vacant slot that is drawn
%% costs a further read and two additions; with all vacant, `2 * size' reads.
-spec pick(name()) -> {ok, pid()} | {error, no_pool | no_worker}.
pick(Name) -> weir_pool_pick:next(Name).

%% @doc The worker of a key: equal keys (`=:=') get the same worker while the pool has the same size and the slot its
%% worker. With `direct' the key is a slot's number; a module of yours does with the key what it likes.
%%
%% A pool that grows by one slot gives about `1 / size' of the keys to the new slot, and none to
%% another. The keys of a vacant slot are spread over the others, and come back when it is filled again. The slot of a
%% key is the same on every node. Errors are those of {@link pick/1}.
%%
%% Cost: no process is visited and no message sent; two reads of persistent terms, one `erlang:phash2/2' of the key, and
%% about `ln(size) + 1' steps of a generator; allocates a key and the result, 6 words. While the key's slot is
%% vacant, the key is hashed again, up to 64 times, and then up to `size' slots are read.
-spec pick(name(), Key :: term()) -> {ok, pid()} | {error, no_pool | no_worker}.
pick(Name, Key) -> weir_pool_pick:key(Name, Key).

%% @doc Like {@link pick/1}, and tells the slot.
-spec pick_slot(name()) -> {ok, slot(), pid()} | {error, no_pool | no_worker}.
pick_slot(Name) -> weir_pool_pick:next_slot(Name).

%% @doc Like {@link pick/2}, and tells the slot.
-spec pick_slot(name(), Key :: term()) -> {ok, slot(), pid()} | {error, no_pool | no_worker}.
pick_slot(Name, Key) -> weir_pool_pick:key_slot(Name, Key).

%% @doc Like {@link call/3} with a timeout of 5000 milliseconds.
-spec call(name(), Request :: term()) -> {ok, Reply :: term()} | {error, no_pool | no_worker}.
call(Name, Request) -> call(Name, Request, 5000).

%% @doc Picks a worker and calls it with `gen_server:call/3', whose exits pass through. With `least_loaded' or a
%% module of yours the call is counted while it is under way.
%%
%% Cost: a pick and a call; if it is counted an insertion into and a deletion from an ETS table as well, by which the
%% pool finds calls whose caller was killed.
-spec call(name(), Request :: term(), timeout()) -> {ok, Reply :: term()} | {error, no_pool | no_worker}.
call(Name, Request, Timeout) -> weir_pool_call:call(Name, Request, Timeout).

%% @doc Like {@link call/3}, but `{error, busy}' if the worker that the pool picks has `Room' calls under way already,
%% for those who can have the request done elsewhere or refuse it. With `least_loaded' that is the worker with the
%% fewest.
%%
%% Calls are counted with `least_loaded' and modules only; in other pools there is always room. Of callers that come at
%% the same moment one may be told `busy' because of another one who is. Cost: that of {@link call/3}.
-spec call_within(name(), Request :: term(), timeout(), Room :: pos_integer() | infinity) ->
    {ok, Reply :: term()} | {error, no_pool | no_worker | busy}.
call_within(Name, Request, Timeout, Room) when Room =:= infinity; is_integer(Room), Room > 0 ->
    weir_pool_call:call_within(Name, Request, Timeout, Room);
call_within(Name, Request, Timeout, Room) ->
    ?BADARG([Name, Request, Timeout, Room], #{4 => "neither a number of calls, from 1, nor infinity"}).

%% @doc Like {@link call_key/4} with a timeout of 5000 milliseconds.
-spec call_key(name(), Key :: term(), Request :: term()) -> {ok, Reply :: term()} | {error, no_pool | no_worker}.
call_key(Name, Key, Request) -> call_key(Name, Key, Request, 5000).

%% @doc Like {@link call/3}, with the worker of a key.
-spec call_key(name(), Key :: term(), Request :: term(), timeout()) ->
    {ok, Reply :: term()} | {error, no_pool | no_worker}.
call_key(Name, Key, Request, Timeout) -> weir_pool_call:call_key(Name, Key, Request, Timeout).

%% @doc Picks a worker and casts to it with `gen_server:cast/2'. A cast is under way for as long as its sending takes:
%% whether the worker has handled it cannot be seen from outside.
-spec cast(name(), Message :: term()) -> ok | {error, no_pool | no_worker}.
cast(Name, Message) -> cast_picked(pick(Name), Message).

%% @doc Like {@link cast/2}, to the worker of a key.
-spec cast_key(name(), Key :: term(), Message :: term()) -> ok | {error, no_pool | no_worker}.
cast_key(Name, Key, Message) -> cast_picked(pick(Name, Key), Message).

cast_picked({ok, Pid}, Message) -> gen_server:cast(Pid, Message);
cast_picked({error, _} = Error, _Message) -> Error.

%% @doc Casts to all live workers, and tells to how many. Those for overflow are left out.
%%
%% Cost: reads every slot, and sends (copies) the message once for each that is filled.
-spec broadcast(name(), Message :: term()) -> {ok, non_neg_integer()} | {error, no_pool}.
broadcast(Name, Message) ->
    case map(Name, fun(Pid) -> gen_server:cast(Pid, Message) end) of
        {ok, Results} -> {ok, length(Results)};
        {error, no_pool} -> {error, no_pool}
    end.

%% @doc Calls a function with each live worker, in the caller, in the order of the slots, and gives the results. Those
%% for overflow are left out. What the function raises passes through. All slots are read before the first call: a
%% worker that is replaced meanwhile is visited as it was.
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

%% @doc Calls a function with a worker that nobody else has claimed, and that nobody else can claim until it returns.
%%
%% What the function raises passes through, after the release. If that is the exit of a call of this worker that has
%% timed out (`{timeout, {_, _, [Worker | _]}}', as of `gen_server:call/3'; the worker may be named), the worker is
%% likely to be busy still, and the claim is abandoned: the option of that name says what becomes of the worker. So is
%% the claim of a process that was killed, within a second, and within milliseconds when somebody is waiting. A worker
%% that dies while it is claimed is replaced like any other; its claim then holds nothing. A process may make claims
%% inside of others.
%%
%% Cost: while a worker is free, no process is visited and no message sent, and about 40 words are allocated. When the
%% slot that the process had last is taken, others are looked at: a word for each of up to 24, and a word for every 56
%% beyond. To wait takes a message to and one from the pool's queue. After an exception it is asked whether the worker
%% is alive, which takes as long as a worker that is just dying needs for it. `covers => work' spawns two processes.
-spec claim(name(), fun((pid()) -> Result), claim_opts()) -> {ok, Result} | {error, claim_error()}.
claim(Name, Fun, Opts) -> weir_pool_claim:claim(Name, Fun, Opts).

%% @doc Claims a worker until {@link checkin/2}, or until the calling process ends, which then has abandoned it.
-spec checkout(name(), claim_opts()) -> {ok, pid(), ticket()} | {error, claim_error()}.
checkout(Name, Opts) -> weir_pool_claim:checkout(Name, Opts).

%% @doc Like {@link checkin/3} with `ok'.
-spec checkin(name(), ticket()) -> ok | {error, not_held}.
checkin(Name, Ticket) -> checkin(Name, Ticket, ok).

%% @doc Gives back what {@link checkout/2} gave; any process may do so, also one of another node. `fail': the worker is
%% broken; it is killed and another started, whatever `abandoned' says. `not_held': it was given back already, or the
%% worker was replaced, or the pool is gone; nobody else's claim is touched.
%%
%% A worker that has died is not given out again. It is asked whether it is alive, which takes as long as a worker that
%% is just dying needs for it.
-spec checkin(name(), ticket(), ok | fail) -> ok | {error, not_held}.
checkin(Name, Ticket, How) -> weir_pool_claim:checkin(Name, Ticket, How).

%% @doc The slot of a claim.
-spec slot(ticket()) -> slot().
slot(Ticket) -> weir_pool_claim:slot(Ticket).

%% @doc Gives a name of a pool without `worker' a slot, in which a process can then connect itself under that name.
%%
%% The first vacant slot, or with the strategies `random' and `hash' the middle of the longest row of vacant ones. A
%% pool that is full grows by one slot if it has `auto_size'.
-spec add_worker(name(), WorkerName :: term()) ->
    {ok, slot()} | {error, change_error() | pool_full | already_added | has_workers}.
add_worker(Name, WorkerName) -> weir_pool_request:member(Name, {add_worker, WorkerName}).

%% @doc Gives a name this slot. A pool that has `auto_size' grows as far as needed.
-spec add_worker(name(), WorkerName :: term(), slot()) ->
    {ok, slot()} | {error, change_error() | out_of_range | slot_taken | already_added | has_workers}.
add_worker(Name, WorkerName, Slot) when is_integer(Slot), Slot >= 1, Slot =< ?MAX_SIZE ->
    weir_pool_request:member(Name, {add_worker, WorkerName, Slot});
add_worker(Name, WorkerName, Slot) ->
    ?BADARG([Name, WorkerName, Slot], #{3 => "not the number of a slot"}).

%% @doc Takes the slot from a name to which nobody is connected.
-spec remove_worker(name(), WorkerName :: term()) ->
    ok | {error, change_error() | unknown_worker | {connected, pid()} | has_workers}.
remove_worker(Name, WorkerName) -> weir_pool_request:member(Name, {remove_worker, WorkerName}).

%% @doc The names that have a slot, in the order of the slots, whether anybody is connected under them or not.
-spec added_workers(name()) -> {ok, [{WorkerName :: term(), slot()}]} | {error, change_error() | has_workers}.
added_workers(Name) -> weir_pool_request:member(Name, added_workers).

%% @doc Puts the calling process into the slot of a name, where it is picked and claimed until it disconnects itself or
%% ends, or the pool does. A process may be connected under several names, in several pools.
%%
%% If a process has disconnected itself from that name while it was claimed, that claim is waited for, also by the
%% process itself; `connected' is then said to others who want to connect under it. So a worker must not disconnect and
%% connect again in the middle of what its claimer waits for.
-spec connect(name(), WorkerName :: term()) ->
    {ok, slot()} | {error, change_error() | unknown_worker | {connected, pid()} | has_workers}.
connect(Name, WorkerName) -> weir_pool_request:member(Name, {connect, WorkerName, self()}).

%% @doc Takes the calling process out of the slot of a name. Whoever has claimed it keeps it, and nobody gets it any
%% more.
-spec disconnect(name(), WorkerName :: term()) ->
    ok | {error, change_error() | unknown_worker | not_connected | has_workers}.
disconnect(Name, WorkerName) -> weir_pool_request:member(Name, {disconnect, WorkerName, self()}).

%% @doc Like {@link resize/3} with a time-out of 60,000 milliseconds.
-spec resize(name(), 0 | size()) ->
    ok | {error, change_error() | resizing | timeout | Refused | {start_failed, slot(), term()}} when
    Refused :: {slot_taken, slot()} | {bad_size, term()}.
resize(Name, Size) -> resize(Name, Size, ?CHANGE_MS).

%% @doc Changes the number of slots, and returns when picks and claims go by the new one.
%%
%% New workers are started before, and if one cannot be, or not all are there in time, nothing changes (with
%% `start => async' nobody waits for them). Those that are too many are no longer picked; each is stopped when it is
%% released and has handled what was sent to it, or after `shutdown' milliseconds. In a pool without workers of its own,
%% slots that have a name cannot be taken away. The size may be 0 there, and with `overflow'. One resize at a time.
%%
%% The time is the manager's to keep, here and in {@link replace/3}: one that is suspended (sys:suspend/1) says nothing
%% before it is resumed.
%%
%% Cost: writes the main term, for which the runtime has every process of the node scanned.
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

%% @doc Replaces the worker of a slot without a gap: a new one is started, it takes the slot, and the old one is stopped
%% when it is released and has handled what was sent to it, or after `shutdown' milliseconds. Returns when the new one
%% is in the slot. If it cannot be started, or the old one is not released in time, the old one stays. `held_by_caller':
%% it is the caller that has claimed it.
-spec replace(name(), slot(), timeout()) -> ok | {error, replace_error()}.
replace(Name, Slot, Timeout) when ?IS_TIMEOUT(Timeout) ->
    weir_pool_request:call(Name, {replace, Slot, Timeout, self()});
replace(Name, Slot, Timeout) ->
    ?BADARG([Name, Slot, Timeout], #{3 => "neither milliseconds nor infinity"}).

%% @doc Stops a pool when its work is done: picks and claims say `no_pool' at once, as do those who wait; then every
%% claim is waited for, and every worker until it has handled what was sent to it; then it is stopped. What is not done
%% after `Timeout' milliseconds is cut off: `{error, {timeout, Busy}}' tells how many workers were. Either way the pool
%% is stopped, like by {@link stop/1}. `held_by_caller': the caller itself has claimed a worker; nothing is done.
%%
%% A worker is done when it answers a system message, as every OTP behaviour does after what came before. A process
%% that does not is waited for until the timeout, or as long as `shutdown' says. To stop takes its own time after the
%% timeout: with `shutdown => infinity', as long as the slowest worker does. Should the caller be killed, the pool
%% is drained and stopped all the same.
-spec drain(name(), timeout()) ->
    ok | {error, change_error() | held_by_caller | {timeout, Busy :: pos_integer()}}.
drain(Name, Timeout) -> weir_pool_boot:drain(Name, Timeout).

%% @doc How the pool is. Everything is read in the caller, from where picks and claims read and write it, so the parts
%% of the answer need not be of the same moment.
%%
%% Cost: no process is visited; reads a term and a word or two of every slot, 50 ns each.
-spec info(name()) -> {ok, info()} | {error, no_pool}.
info(Name) ->
    case weir_pool_terms:pool(Name) of
        #pool{} = Pool -> {ok, info_of(Pool)};
        undefined -> {error, no_pool}
    end.

info_of(#pool{name = Name, size = Size, limit = Limit, strategy = Strategy} = Pool) ->
    Live = weir_pool_terms:workers(Pool, Limit),
    %% Claims are counted in the words of slots that the pool has given up, too.
    Words = [weir_pool_word:read(Pool, Slot) || Slot <- lists:seq(1, weir_pool_terms:last_slot(Pool))],
    States = [weir_pool_word:state(Word) || Word <- lists:sublist(Words, Limit)],
    %% Draws before skips: every skip was drawn, so in between there may be too many skips, but never too few.
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

%% @doc The workers in their slots, in the order of the slots; vacant ones are left out, those for overflow are not.
%%
%% Cost: no process is visited; reads every slot.
-spec workers(name()) -> {ok, [{slot(), pid()}]} | {error, no_pool}.
workers(Name) ->
    case weir_pool_terms:pool(Name) of
        #pool{limit = Limit} = Pool -> {ok, weir_pool_terms:workers(Pool, Limit)};
        undefined -> {error, no_pool}
    end.

%% @doc The names of all pools, also of those that are starting or stopping, or have just been stopped by their
%% supervisor.
-spec pools() -> [name()].
pools() -> weir_pool_registry:names().

%% @doc The pools and slots in which a process is a worker, in the order of names and slots.
%%
%% Cost: no process is visited; reads every slot of every pool.
-spec which_pools(pid()) -> [{name(), slot()}].
which_pools(Pid) when is_pid(Pid) ->
    [
        {Name, Slot}
     || Name <- lists:sort(pools()), {ok, Workers} <- [workers(Name)], {Slot, Worker} <- Workers, Worker =:= Pid
    ].
