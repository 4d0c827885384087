%% What the handler's callbacks find in its configuration, and its keeper knows too.

-record(handle, {
    id :: logger:handler_id(),
    %% The name of its log.
    log :: {weir_log_h, logger:handler_id()},
    %% The keeper's registered name: the process may be another one tomorrow.
    keeper :: atom(),
    %% The handler's supervisor, an ancestor of all processes of the log.
    sup :: pid(),
    words :: weir_log_h_words:words(),
    ack :: none | accepted | written | synced
}).

%% Its key in the handler's configuration, among the options.
-define(HANDLE, '$handle').
