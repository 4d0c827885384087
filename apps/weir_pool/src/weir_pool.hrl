%% Records and keys shared by the modules of this application; not part of its interface.
%% docs/internals/pool.md tells who writes what and when.

%% The most processes a node can have (+P), so no pool can fill more slots. Also what keeps slot keys of different
%% pools apart and the arithmetic of weir_pool_hash within small integers.
-define(MAX_SIZE, 134217727).

%% The longest time that a `receive' can be given, in milliseconds, and so the longest that an option can be.
-define(MAX_MS, 4294967295).

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
%% (weir_pool_load). `First' is the first slot of the segment that the array belongs to.
-define(CLAIM_WORD(First, Slot), (((Slot) - (First) + 1) * ?LINE_WORDS + 1)).
-define(LOAD_WORD(First, Slot), (((Slot) - (First) + 1) * ?LINE_WORDS + 2)).
%% The keeper's: how often in a row the load word was wrong, and the smallest difference, with its sign.
-define(DOUBT_WORD(First, Slot), (((Slot) - (First) + 1) * ?LINE_WORDS + 3)).

%% Words of the gate: how claims and the queue of those who wait for one tell each other. weir_pool_queue says how.
-define(GATE_MODE, 1).
-define(GATE_WAKE, 2).
-define(GATE_WAITING, 3).
-define(GATE_OLDEST, 4).
-define(GATE_LONGEST, 5).
-define(GATE_GROW, 6).
-define(GATE_WORDS, 6).

%% Values of the mode.
-define(NOBODY_WAITS, 0).
-define(SOMEBODY_WAITS, 1).
-define(STARVING, 2).

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
    %% Words of the slots: arrays, each with the number of its first slot, the highest first. A slot's words never
    %% move, so whoever holds an older version of this record still finds those of any slot it knows.
    segments :: [{First :: weir_pool:slot(), atomics:atomics_ref()}],
    gate :: atomics:atomics_ref(),
    %% Table of weir_pool_holder.
    holders :: ets:table(),
    max_queue :: non_neg_integer()
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
    group :: {group, term()} | none,
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

%% One attempt to start a pool: what its processes are started with, and what they still use when they are restarted.
-record(boot, {
    name :: weir_pool:name(),
    %% Tells this pool from any other of the same name, before it or after it.
    id :: pos_integer(),
    conf :: #conf{},
    %% Alias of whoever waits for the first workers. It dies with the first message, so the message that a restarted
    %% keeper sends later reaches nobody.
    starter :: reference(),
    %% Table of weir_pool_seats, once the pool's supervisor has made it.
    seats :: ets:table() | undefined
}).

%% Row of the names table. Written by weir_pool_registry alone.
-record(row, {
    name :: weir_pool:name(),
    id :: pos_integer(),
    conf :: #conf{},
    sup :: pid(),
    %% Whoever called start_link: the supervisor that the pool belongs to, most of the time.
    parent :: pid(),
    workers :: pid() | undefined,
    keeper :: pid() | undefined,
    queue :: pid() | undefined,
    %% What the pool was last resized to.
    size :: 0 | weir_pool:size(),
    %% The highest slot that may have a term, for the clean-up.
    last_slot :: 0 | weir_pool:size()
}).

