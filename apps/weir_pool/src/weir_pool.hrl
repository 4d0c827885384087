%% Records and keys shared by the modules of this application. Programs do not use them. docs/internals/pool.md says
%% which process writes which term, and when.

%% Largest number of processes of a node (+P), so no pool can fill more slots. The keys of slots and the arithmetic of
%% weir_pool_hash depend on this limit.
-define(MAX_SIZE, 134217727).

%% Longest time-out of a `receive', in milliseconds, and therefore the longest time of an option.
-define(MAX_MS, 4294967295).

%% Milliseconds before a process of the pool tries again what failed at a limit of the node.
-define(AGAIN_MS, 100).

-define(IS_TIMEOUT(Timeout),
    (Timeout =:= infinity orelse (is_integer(Timeout) andalso Timeout >= 0 andalso Timeout =< ?MAX_MS))
).

%% Raises `badarg'. Causes has a text for each wrong argument, by the argument's number, and the shell prints the text.
-define(BADARG(Args, Causes),
    erlang:error(badarg, Args, [{error_info, #{module => weir_pool_opts, cause => Causes}}])
).

%% Key of the main term of an open pool. The manager writes the term only when the pool's size changes, because the
%% runtime scans every process of the node when a tuple is replaced or erased.
-define(MAIN_KEY(Name), {weir_pool, Name}).

%% Key of a slot's term, which is a local pid, or `undefined' if the slot is vacant. Both values are immediate, so the
%% runtime scans no process when one replaces the other.
%%
%% The key is an integer, because the runtime hashes an integer in one step and walks through a tuple. A pick takes
%% 51 ns instead of 64. The key is negative, because other programs hardly use negative integers as keys. The key
%% contains the pool's base, so a process of a dead pool does not reach slots of a later pool with the same name.
-define(SLOT_KEY(Base, Slot), (-(Base) - (Slot))).

%% Place of a scheduler's cursor. A cache line has eight atomics. If two schedulers shared a cache line, every pick
%% would move the line between their processors.
-define(LINE_WORDS, 8).
-define(CURSOR(Scheduler), ((Scheduler) * ?LINE_WORDS + 1)).
-define(CURSOR_MASK, 16#ffffffffffffffff).

%% Places of a slot's two words, which have a cache line of their own: the state word (weir_pool_word), and the number
%% of calls under way (weir_pool_calls). First is the first slot of the array's segment.
-define(STATE_WORD(First, Slot), (((Slot) - (First) + 1) * ?LINE_WORDS + 1)).
-define(CALLS_WORD(First, Slot), (((Slot) - (First) + 1) * ?LINE_WORDS + 2)).

%% Place and values of a pool's mode among the signals (weir_pool_signals). Claims read the mode themselves, because a
%% call costs more than the read. If a pool is unwatched, no claim or counted call has been made for a second, and the
%% manager does not tick.
-define(SIGNAL_MODE, 1).
-define(UNWATCHED, 0).
-define(NOBODY_WAITS, 1).
-define(SOMEBODY_WAITS, 2).
-define(STARVING, 3).

%% Places of the counters that weir_pool_terms describes.
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
    %% Number in the keys of this pool's slots, from which no other pool makes keys.
    base :: non_neg_integer(),
    %% Picks choose among slots 1 to size.
    size :: 0 | weir_pool:size(),
    strategy :: weir_pool:strategy(),
    cursors :: atomics:atomics_ref(),
    counters :: counters:counters_ref(),
    name :: weir_pool:name(),
    %% Claims choose among slots 1 to limit. Slots above size are for overflow.
    limit :: 0 | weir_pool:size(),
    %% Words of the slots. The first segment in the list has the highest slots. A slot's words never move, so a process
    %% with an earlier version of this record still finds the words of its slots.
    segments :: [weir_pool_terms:segment()],
    signals :: atomics:atomics_ref(),
    manager :: pid(),
    queue :: pid(),
    max_queue :: non_neg_integer(),
    %% The calls table (weir_pool_calls), if calls are counted.
    calls = none :: ets:table() | none
}).

%% Checked options of a pool. The type weir_pool:opts() describes each option.
-record(conf, {
    size :: 0 | weir_pool:size(),
    %% `none' if processes connect themselves.
    worker :: {module(), atom(), [term()]} | none,
    pass_slot :: boolean(),
    restart :: permanent | transient | temporary,
    shutdown :: brutal_kill | timeout(),
    %% `default' depends on the number of slots.
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
