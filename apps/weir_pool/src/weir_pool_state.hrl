%% The state of a pool's manager, for the modules of the manager. The functions of each module take the state and return
%% it. A module changes only the fields in its own section.

%% Milliseconds beyond `shutdown' that the supervisors have to stop their workers and end. A supervisor that waits for a
%% worker's start function cannot end before that function returns.
-define(GRACE_MS, 5000).

%% A replacement that is under way in a slot.
-record(replace, {
    from :: gen_server:from(),
    timer :: reference() | none,
    %% Supervisor of the new worker. `undefined' if no supervisor could be spawned.
    spare :: pid() | undefined,
    worker :: pid() | undefined
}).

-record(slot, {
    %% Supervisor of the slot's worker. None for a process that connected itself.
    sup :: pid() | undefined,
    worker :: pid() | undefined,
    monitor :: reference() | undefined,
    %% Whether the slot has had a worker since the pool last took the slot into use. If so, the next fill of the slot
    %% counts as a restart.
    was_filled = false :: boolean(),
    %% The health check or the probe that examines the worker. The word is reserved meanwhile.
    exam = none :: weir_pool_slots:exam(),
    action = none :: weir_pool_slots:action(),
    replace = none :: none | #replace{},
    %% A process whose call of connect/2 gets the answer `again' when the claim of its predecessor has ended.
    next = none :: none | {pid(), gen_server:from()}
}).

-record(state, {
    conf :: #conf{},
    %% The content of the main term. During a change, the manager updates this field before it writes the main term.
    pool :: #pool{},
    opener :: weir_pool_manager:opener(),
    phase :: weir_pool_manager:phase(),

    %% weir_pool_slots
    slots = #{} :: #{weir_pool:slot() => #slot{}},
    sups = #{} :: #{pid() => weir_pool_slots:role()},
    %% Supervisors of workers that have left their slots, and processes that connected themselves and were retired.
    stopping = 0 :: non_neg_integer(),
    members_stopping = #{} :: #{Monitor :: reference() => Question :: reference()},
    %% Slots whose worker has died, and whose term still holds its pid.
    stale = [] :: [weir_pool:slot()],
    %% Whether an overflow slot may have become idle since the overflow was shrunk.
    may_shrink = false :: boolean(),

    %% weir_pool_manager
    %% Number and monotonic milliseconds of the restarts within the last period, the oldest first.
    restarts = {0, queue:new()} :: {non_neg_integer(), queue:queue(integer())},
    %% Starts that failed since the last start that succeeded.
    failed_in_a_row = 0 :: non_neg_integer(),
    is_ticking = false :: boolean(),
    %% Monotonic milliseconds of the last poll of the words, and the number of slots that were claimed then.
    last_poll = erlang:monotonic_time(millisecond) :: integer(),
    claimed = 0 :: non_neg_integer(),

    %% The fields of weir_pool_change, weir_pool_members, weir_pool_overflow, weir_pool_check, weir_pool_abandon and
    %% weir_pool_callers, in this order.
    resize = none :: weir_pool_change:resize(),
    names = #{} :: weir_pool_members:names(),
    overflow = weir_pool_overflow:new() :: weir_pool_overflow:overflow(),
    check = weir_pool_check:new() :: weir_pool_check:check(),
    holders = #{} :: weir_pool_abandon:holders(),
    callers = weir_pool_callers:new() :: weir_pool_callers:callers()
}).
