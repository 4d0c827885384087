%% What a weir_server was started with, beside gen_server's options. Defaults and checks: weir_server_opts.
-record(conf, {
    %% Messages drained at a time at least and at most; `auto': see weir_server_inbox.
    drain = auto :: auto | {Min :: pos_integer(), Max :: pos_integer() | infinity},
    %% A batch ends when it is estimated to have this many bytes.
    batch_bytes = infinity :: pos_integer() | infinity,
    %% How long a batch that is not full is waited for, microseconds.
    linger = 0 :: non_neg_integer(),
    %% Messages that may wait, and what happens to more.
    max_queue = infinity :: pos_integer() | infinity,
    overload = reject :: reject | drop_oldest | drop_newest,
    %% init/1's {backoff, InitialMs, MinimumMs, DesiredMs}.
    backoff = none :: none | {backoff, pos_integer(), pos_integer(), pos_integer()},
    %% Whether the user has chosen where messages are kept, on the heap or off it.
    queue_data = default :: default | given
}).

%% A message that weir_flow counts: `Counter' is told when it has been handled.
-define(CREDIT(Counter, Message), {'$weir_credit', Counter, Message}).

%% weir_flow's request for an acknowledgement, which is that of `sys:statistics(Pid, get)'. It is answered when
%% everything before it has been handled.
-define(ACK_REQUEST(From), {system, From, {debug, {statistics, get}}}).

%% The question of weir_server:info/1, which is answered at once, and that of with_state/2, which waits for its turn.
-define(INFO_REQUEST(From), {'$weir_info', From, info}).
-define(WITH_STATE(From, Fun), {'$weir_with_state', From, Fun}).
