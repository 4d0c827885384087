%% What the processes of a server share.

%% Seconds of the 30 days above which a time to live is a Unix time.
-define(MAX_DELTA, 2_592_000).

%% An access within so many seconds after another is not noted.
-define(SEEN_INTERVAL, 60).

-define(MAX_KEY, 250).

%% A row of the table of items. How it is written without a lock: weir_memcached_server_items.
-record(item, {
    key :: binary() | '_',
    %% Unique in the server; another one for each value.
    cas :: pos_integer() | '_',
    %% When it expires, in seconds of the server's clock; 0: never.
    exp :: non_neg_integer() | '_',
    %% ?STALE and so on.
    bits = 0 :: non_neg_integer() | '_',
    %% The last access in seconds of the server's clock, shifted, and below it ?FETCHED and how many of ?CHANCES are
    %% left.
    seen :: non_neg_integer() | '_',
    flags = 0 :: non_neg_integer() | '_',
    %% The bytes that are counted for it.
    cost = 0 :: non_neg_integer() | '_',
    %% A binary of its own.
    value :: binary() | '_'
}).

%% Bits: somebody has marked it as stale; somebody has been told to bring a new value; its key came in base64.
-define(STALE, 1).
-define(TOKEN_SENT, 2).
-define(BINARY_KEY, 4).

%% Below the time of `seen'.
-define(SEEN_SHIFT, 3).
-define(FETCHED, 4).
-define(CHANCES, 3).

%% The constants of a server, made by its supervisor.
-record(cache, {
    table :: ets:table(),
    %% What the processes know of each other: {keeper, Pid}, {connections, Pid}, {listener, Socket, Address};
    %% {Connection, Bytes} that it has taken for data to come; {baseline, Counts} of stats reset.
    shared :: ets:table(),
    words :: atomics:atomics_ref(),
    counts :: counters:counters_ref(),
    costs :: weir_memcached_server_memory:costs(),
    %% Who may connect, if not everybody.
    users :: none | [{User :: binary(), Password :: binary()}],
    %% When the second began in which it was started: in the runtime's monotonic time, native, and as Unix time.
    epoch :: integer(),
    started :: pos_integer(),
    %% The options: weir_memcached_server_opts.
    conf :: weir_memcached_server_opts:conf()
}).

%% The shared words; those that are written often have cache lines of their own.
-define(WORDS, 48).
%% Bytes that all items, and what connections have reserved, take.
-define(BYTES, 8).
%% The last cas given out.
-define(CAS, 16).
%% The place of the clock hand.
-define(HAND, 24).
%% Items with a lesser cas are flushed; items that were last seen at that second or before are, once it has come.
-define(FLUSHED_CAS, 32).
-define(FLUSHED_AT, 33).
%% Seconds that weir_memcached_server:advance/2 has added to the clock.
-define(ADVANCED, 34).
%% 1: there may be items that expire.
-define(EXPIRING, 35).
%% Connections that are open.
-define(CONNECTIONS, 40).
