%% The table of weir_gproc_pool. Rows are written by weir_gproc_pool_registry alone, but for the count of a name's row,
%% which is counted up in the process that calls weir_gproc_pool:log/1.

-define(TABLE, weir_gproc_pool).

-define(POOL_KEY(Pool), {pool, Pool}).
-define(SLOT_KEY(Pool, Slot), {slot, Pool, Slot}).
-define(NAME_KEY(Pool, Name), {name, Pool, Name}).

%% The pool's name in weir_pool.
-define(WEIR_POOL(Pool), {gproc_pool, Pool}).

-record(pool, {
    key :: {pool, weir_gproc_pool:pool()},
    type :: weir_gproc_pool:type(),
    auto_size :: boolean(),
    size :: non_neg_integer(),
    %% In the order of the slots.
    names :: [{weir_gproc_pool:name(), weir_gproc_pool:slot()}],
    %% The pool's supervisor: tells this pool from another one of the same name, before it or after it.
    sup :: pid()
}).

-record(slot, {
    key :: {slot, weir_gproc_pool:pool(), weir_gproc_pool:slot()},
    name :: weir_gproc_pool:name(),
    %% Here as well, so that a pick by key reads one row.
    type :: weir_gproc_pool:type()
}).

-record(name, {
    key :: {name, weir_gproc_pool:pool(), weir_gproc_pool:name()},
    slot :: weir_gproc_pool:slot(),
    count = 0 :: non_neg_integer()
}).
