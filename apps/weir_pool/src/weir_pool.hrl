%% Records and keys shared by the modules of this application; not part of its interface.
%% docs/internals/pool.md tells who writes what and when.

%% The most processes a node can have (+P), so no pool can fill more slots. Also what keeps slot keys of different
%% pools apart and the arithmetic of weir_pool_hash within small integers.
-define(MAX_SIZE, 134217727).

%% Main term of an open pool. Written only when the shape of the pool changes: replacing or erasing a tuple makes every
%% process of the node be scanned.
-define(MAIN_KEY(Name), {weir_pool, Name}).

%% Term of one slot: a local pid, or `undefined' when vacant. Both are immediate, so replacing one costs no scan.
%% The key holds a number instead of the pool's name for two reasons: hashing a compound name a second time would make
%% every pick dearer, and a process left over from a dead pool cannot reach the slots of its namesake.
-define(SLOT_KEY(Base, Slot), {weir_pool_slot, (Base) + (Slot)}).

%% Cursors, one for each scheduler. Atomics are packed eight to a cache line; a line shared by two schedulers would
%% travel between them at every pick.
-define(LINE_WORDS, 8).
-define(CURSOR(Scheduler), ((Scheduler) * ?LINE_WORDS + 1)).
-define(CURSOR_MASK, 16#ffffffffffffffff).

%% Counters; weir_pool_terms describes them.
-define(RESTARTS, 1).
-define(START_FAILURES, 2).
-define(SKIPS, 3).

-record(pool, {
    %% Slot keys of this pool are Base+1 .. Base+Size.
    base :: non_neg_integer(),
    size :: weir_pool:size(),
    cursors :: atomics:atomics_ref(),
    counters :: counters:counters_ref()
}).

%% Validated options.
-record(conf, {
    size :: weir_pool:size(),
    worker :: {module(), atom(), [term()]},
    restart :: permanent | transient | temporary,
    shutdown :: brutal_kill | timeout(),
    intensity :: non_neg_integer(),
    period :: pos_integer()
}).

%% One attempt to start a pool: what its processes are started with, and what they still use when they are restarted.
-record(boot, {
    name :: weir_pool:name(),
    %% Tells this pool from any other of the same name, before it or after it.
    id :: pos_integer(),
    conf :: #conf{},
    %% Alias of whoever waits for the first workers. It dies with the first message, so the message that a restarted
    %% keeper sends later reaches nobody.
    starter :: reference()
}).

%% Row of the names table. Written by weir_pool_registry alone.
-record(row, {
    name :: weir_pool:name(),
    id :: pos_integer(),
    size :: weir_pool:size(),
    sup :: pid(),
    %% Whoever called start_link: the supervisor that the pool belongs to, most of the time.
    parent :: pid(),
    workers :: pid() | undefined,
    keeper :: pid() | undefined
}).
