%% The options of a server, without gen_server's. weir_server_opts checks them, and describes them for users.
-record(conf, {
    %% Numbers of messages that a poll drains at least and at most. `auto': see weir_server_pace.
    drain = auto :: auto | {Min :: pos_integer(), Max :: pos_integer() | infinity},
    %% The estimated number of bytes at which a batch ends.
    batch_bytes = infinity :: pos_integer() | infinity,
    %% Microseconds that a batch which is not full waits for more messages.
    linger = 0 :: non_neg_integer(),
    %% Number of calls and casts that may wait, and the policy for more of them.
    max_queue = infinity :: pos_integer() | infinity,
    overload = reject :: reject | drop_oldest | drop_newest,
    %% The back-off that init/1 has returned.
    backoff = none :: none | {backoff, pos_integer(), pos_integer(), pos_integer()},
    %% Whether the user has chosen whether messages are kept on the heap or off the heap.
    queue_data = default :: default | given
}).

%% Number of callbacks between two polls of the mailbox: a message of a higher priority may wait for that many. A poll
%% takes the lock that senders take, so a poll for each message costs too much.
-define(POLL, 16).

%% The number of callbacks between two polls of a server that takes messages from the mailbox one by one.
-define(POLL_DIRECT, 64).

%% Nanoseconds from which on a callback is slow. Draining a message costs some 130 ns, which is too much beside a faster
%% callback (weir_server_pace).
-define(SLOW_CALLBACK_NS, 2000).

%% The result of a callback, or its exception. As in all callbacks, a throw is a return. Each message passes this macro,
%% where a function and a fun would show. A function clause may have this macro once.
-define(CALLED(Callback),
    try
        {returned, Callback}
    catch
        throw:Thrown -> {returned, Thrown};
        RaisedClass:RaisedReason:RaisedStack -> {raised, RaisedClass, RaisedReason, RaisedStack}
    end
).
