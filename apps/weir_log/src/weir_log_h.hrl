%% What the handler's callbacks find in its configuration, and its keeper knows too.

-record(handle, {
    id :: logger:handler_id(),
    %% The name of its log.
    log :: {weir_log_h, logger:handler_id()},
    %% The keeper's registered name: the process may be another one tomorrow.
    keeper :: atom(),
    %% The kernel's supervisor of all handlers, which may not wait for the log.
    logger_sup :: pid(),
    words :: weir_log_h_words:words(),
    ack :: none | accepted | written | synced
}).

%% Its key in the handler's configuration, among the options.
-define(HANDLE, '$handle').
