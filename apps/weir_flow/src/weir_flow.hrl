%% Records shared by the modules of this application; not part of its interface.
%% docs/internals/flow.md tells how they are used.

-define(DEFAULT_WINDOW, 16).
-define(MIN_WINDOW, 2).
-define(MAX_WINDOW, 16#7ffffff).

%% Above every window: nothing is sent before the slow path has been taken.
-define(FULL, (?MAX_WINDOW + 1)).

%% The longest time that a `receive' can be given, in milliseconds.
-define(MAX_MS, 4294967295).

%% What is wrong with which argument, for the shell (weir_flow_opts:format_error/2).
-define(BADARG(Args, Causes),
    erlang:error(badarg, Args, [{error_info, #{module => weir_flow_opts, cause => Causes}}])
).

%% What needs the application says so without it.
-define(NOT_STARTED, {not_started, weir_flow}).

-define(is_window(Window), (is_integer(Window) andalso Window >= ?MIN_WINDOW andalso Window =< ?MAX_WINDOW)).

%% Validated options. weir_flow:opts() says what they mean.
-record(opts, {
    window = ?DEFAULT_WINDOW :: weir_flow:window(),
    timeout = infinity :: timeout(),
    limit = none :: none | wait | busy,
    %% With fewer than so many sent since the last acknowledgement, a message goes out without another thought.
    free = ?DEFAULT_WINDOW - 1 :: non_neg_integer()
}).

%% What a window remembers besides the number of messages sent since the last acknowledgement.
-record(past, {
    phase = new :: weir_flow_window:phase(),
    %% How many acknowledgements are taken for what they are before the next look at whether the receiver is suspended.
    unseen = 0 :: non_neg_integer(),
    waits = 0 :: non_neg_integer(),
    timeouts = 0 :: non_neg_integer(),
    asked_again = 0 :: non_neg_integer()
}).

%% A window that nothing was sent in.
-define(NEW_WINDOW, {?FULL, #past{}}).
