%% The rows of weir_gproc_pool's table. Only weir_gproc_pool_registry inserts and deletes rows. weir_gproc_pool:log/1
%% updates the count of a name in the calling process.
%%
%% The table holds only facts that weir_pool does not have, or that a pick needs in the calling process. weir_pool holds
%% the names, their slots and the size of each pool.

-define(TABLE, weir_gproc_pool).

-define(POOL_KEY(Pool), {pool, Pool}).
-define(SLOT_KEY(Pool, Slot), {slot, Pool, Slot}).
-define(NAME_KEY(Pool, Name), {name, Pool, Name}).

%% The pool's name in weir_pool.
-define(WEIR_POOL(Pool), {gproc_pool, Pool}).

%% The highest slot of a pool, the same as of weir_pool:slot(): the largest number of processes that a node can have.
-define(MAX_SLOT, 134217727).

-record(pool, {
    key :: {pool, weir_gproc_pool:pool()},
    type :: weir_gproc_pool:type(),
    auto_size :: boolean(),
    %% The root process of the pool. The pid distinguishes the pool from an earlier or later pool of the same name.
    root :: pid()
}).

-record(slot, {
    key :: {slot, weir_gproc_pool:pool(), weir_gproc_pool:slot()},
    name :: weir_gproc_pool:name(),
    %% A copy of the pool's type, which never changes: a pick by key then reads one row.
    type :: weir_gproc_pool:type()
}).

-record(name, {
    key :: {name, weir_gproc_pool:pool(), weir_gproc_pool:name()},
    slot :: weir_gproc_pool:slot(),
    count = 0 :: non_neg_integer()
}).
