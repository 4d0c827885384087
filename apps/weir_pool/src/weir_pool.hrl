%% Records and keys shared by the modules of this application; not part of its interface.
%% docs/internals/pool.md tells who writes what and when.

%% The most processes a node can have (+P), so no pool can fill more slots. Also what keeps slot keys of different
%% pools apart and the arithmetic of weir_pool_hash within small integers.
-define(MAX_SIZE, 134217727).

%% The longest time that a `receive' can be given, in milliseconds, and so the longest that an option can be.
-define(MAX_MS, 4294967295).

-define(IS_TIMEOUT(Timeout),
    (Timeout =:= infinity orelse (is_integer(Timeout) andalso Timeout >= 0 andalso Timeout =< ?MAX_MS))
).

%% Raises `badarg', and tells the shell why: texts by the number of the argument.
-define(BADARG(Args, Causes),
    erlang:error(badarg, Args, [{error_info, #{module => weir_pool_opts, cause => Causes}}])
).

%% Main term of an open pool. Written only when the shape of the pool changes: replacing or erasing a tuple makes every
%% process of the node be scanned.
-define(MAIN_KEY(Name), {weir_pool, Name}).

%% Term of one slot: a local pid, or `undefined' when vacant. Both are immediate, so replacing one costs no scan.
%% The key is a bare integer because a pick then takes 51 ns instead of 64: an immediate key is hashed in one step, a
%% tuple is walked. It is negative, where nobody else's keys are likely to be. And because it contains the pool's id,
%% a process left over from a dead pool cannot reach the slots of its namesake.
-define(SLOT_KEY(Base, Slot), (-(Base) - (Slot))).

%% Cursors, one for each scheduler. Atomics are packed eight to a cache line; a line shared by two schedulers would
%% travel between them at every pick.
-define(LINE_WORDS, 8).
-define(CURSOR(Scheduler), ((Scheduler) * ?LINE_WORDS + 1)).
-define(CURSOR_MASK, 16#ffffffffffffffff).

%% Words of a slot, in a line of its own: who has claimed it (weir_pool_word), and how many calls are under way in it
%% (weir_pool_calls). `First' is the first slot of the segment that the array belongs to.
-define(STATE_WORD(First, Slot), (((Slot) - (First) + 1) * ?LINE_WORDS + 1)).
-define(CALLS_WORD(First, Slot), (((Slot) - (First) + 1) * ?LINE_WORDS + 2)).

%% The mode of a pool: its word among the signals (weir_pool_signals), which claims read in line. If a pool is
%% unwatched, no claim or counted call was made for a second, and the manager does not tick.
-define(SIGNAL_MODE, 1).
-define(UNWATCHED, 0).
-define(NOBODY_WAITS, 1).
-define(SOMEBODY_WAITS, 2).
-define(STARVING, 3).

%% Counters; weir_pool_terms describes them.
-define(RESTARTS, 1).
-define(START_FAILURES, 2).
-define(SKIPS, 3).
-define(BUSY, 4).
-define(TIMEOUTS, 5).
-define(OVERLOADS, 6).
-define(WAITS, 7).
-define(ABANDONED, 8).
-define(CHECK_FAILURES, 9).
-define(CLAIMS, 10).
-define(CLAIMED_MS, 11).

-record(pool, {
    %% Slot keys of this pool are made of Base+1 .. Base+limit.
    base :: non_neg_integer(),
    %% Slots 1..size are picked from.
    size :: 0 | weir_pool:size(),
    strategy :: weir_pool:strategy(),
    cursors :: atomics:atomics_ref(),
    counters :: counters:counters_ref(),
    name :: weir_pool:name(),
    %% Slots 1..limit may be claimed: those above `size' are there for a while, when all others are taken.
    limit :: 0 | weir_pool:size(),
    %% Words of the slots, the segment with the highest slots first. A slot's words never move, so whoever holds an
    %% older version of this record still finds those of any slot it knows.
    segments :: [weir_pool_terms:segment()],
    signals :: atomics:atomics_ref(),
    manager :: pid(),
    queue :: pid(),
    max_queue :: non_neg_integer(),
    %% The calls table (weir_pool_calls), if calls are counted.
    calls = none :: ets:table() | none
}).

%% Validated options. weir_pool:opts() says what they mean.
-record(conf, {
    size :: 0 | weir_pool:size(),
    %% none: processes connect themselves.
    worker :: {module(), atom(), [term()]} | none,
    pass_slot :: boolean(),
    restart :: permanent | transient | temporary,
    shutdown :: brutal_kill | timeout(),
    %% default: depends on the number of slots.
    intensity :: default | non_neg_integer(),
    period :: pos_integer(),
    strategy :: weir_pool:strategy(),
    start :: sync | async,
    backoff :: {MinMs :: pos_integer(), MaxMs :: pos_integer()},
    auto_size :: boolean(),
    queue :: fifo | lifo,
    max_queue :: non_neg_integer(),
    codel :: {TargetMs :: pos_integer(), IntervalMs :: pos_integer()} | off,
    overflow :: {Max :: non_neg_integer(), LingerMs :: non_neg_integer()},
    check :: {fun((pid()) -> term()), IntervalMs :: pos_integer()} | none,
    abandoned :: replace | {wait, non_neg_integer()} | free
}).
