%% What a keeper knows of one slot: shared by weir_pool_slots and weir_pool_starts.

-include("weir_pool.hrl").

-record(slot, {
    %% None for processes that connected themselves.
    sup :: pid() | undefined,
    sup_monitor :: reference() | undefined,
    worker :: pid() | undefined,
    monitor :: reference() | undefined,
    %% Whether it ever was: filling it is then a restart.
    filled = false :: boolean(),
    %% A start that is under way, or that a timer will begin.
    starting = none :: none | {weir_pool_starts:purpose(), Start :: reference()} | {later, Timer :: reference()},
    %% Starts in a row that did not lead to a worker that lasted, and when the last worker came or the last start
    %% failed, monotonic milliseconds.
    attempts = 0 :: non_neg_integer(),
    since = 0 :: integer(),
    %% The monitor of a process that looks at the worker, while the word is held for that.
    look = none :: none | reference(),
    action = none :: weir_pool_slots:action()
}).
