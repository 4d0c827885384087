%% Private records and constants of this application. docs/internals/flow.md describes their use.

-define(DEFAULT_WINDOW, 16).
-define(MIN_WINDOW, 2).
-define(MAX_WINDOW, 16#7ffffff).

%% Number of sent messages that is above every window, so that the next message takes the slow path.
-define(FULL, (?MAX_WINDOW + 1)).

%% The longest time-out of a `receive', in milliseconds.
-define(MAX_MS, 4294967295).

%% Fails with `badarg'. Causes maps the number of each wrong argument to a text for the shell
%% (weir_flow_opts:format_error/2).
-define(BADARG(Args, Causes),
    erlang:error(badarg, Args, [{error_info, #{module => weir_flow_opts, cause => Causes}}])
).

%% Error of functions that need the application, while it is not running.
-define(NOT_STARTED, {not_started, weir_flow}).

-define(is_window(Window), (is_integer(Window) andalso Window >= ?MIN_WINDOW andalso Window =< ?MAX_WINDOW)).

%% Validated options. weir_flow:opts() describes them.
-record(opts, {
    window = ?DEFAULT_WINDOW :: weir_flow:window(),
    timeout = infinity :: timeout(),
    limit = none :: none | wait | busy,
    %% If fewer messages were sent since the last acknowledgement, the next one goes out at once.
    free = ?DEFAULT_WINDOW - 1 :: non_neg_integer()
}).

%% The part of a window that changes only when a message takes the slow path.
-record(past, {
    phase = new :: weir_flow_window:phase(),
    %% Number of acknowledgements until the next check whether the receiver is suspended.
    unseen = 0 :: non_neg_integer(),
    waits = 0 :: non_neg_integer(),
    timeouts = 0 :: non_neg_integer(),
    asked_again = 0 :: non_neg_integer()
}).

%% A window before its first message.
-define(NEW_WINDOW, {?FULL, #past{}}).
