%% What the handler's callbacks find in its configuration, and its manager knows too.

-record(handle, {
    id :: logger:handler_id(),
    %% The name of its log.
    log :: {weir_log_h, logger:handler_id()},
    ack = none :: none | accepted | written | synced,
    sync_on = none :: logger:level() | none,
    %% The levels that have one, with the place of their word and how many of their events are let in within a second.
    rates = #{} :: #{logger:level() => {pos_integer(), pos_integer()}},
    %% Of each level the second, and how many there were in it.
    rated :: atomics:atomics_ref() | undefined,
    %% What the shards of its log count in.
    words :: [atomics:atomics_ref(), ...],
    %% 1 when the log has been started once.
    started :: atomics:atomics_ref(),
    %% Whose processes never wait for the log: see weir_log_h.
    kernel :: pid(),
    init :: pid(),
    controller :: pid()
}).

%% Its key in the handler's configuration, among the options.
-define(HANDLE, '$handle').
