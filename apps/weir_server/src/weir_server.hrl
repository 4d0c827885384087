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

%% Number of callbacks between two polls of the mailbox: a message of a higher priority may wait for that many. A poll
%% takes the lock that senders take, so a poll for each message costs too much.
-define(POLL, 16).

%% The same for a server that takes messages from the mailbox one by one.
-define(POLL_DIRECT, 64).

%% From how long a callback is slow, nanoseconds. Draining a message costs some 130 ns, which is too much beside less
%% than this: see weir_server_inbox.
-define(SLOW_CALLBACK_NS, 2000).

%% What a callback has returned, or the exception that it has raised. As in all callbacks, a throw is a return. A macro,
%% since it is on the way of each message, where a call and a fun would be felt. Only one to a clause.
-define(CALLED(Callback),
    try
        {returned, Callback}
    catch
        throw:Thrown -> {returned, Thrown};
        RaisedClass:RaisedReason:RaisedStack -> {raised, RaisedClass, RaisedReason, RaisedStack}
    end
).
