%% What the modules of a log share: the constants that callers read, the words that callers and writers count in, and
%% what a writer is started with.

%% What a caller reads of one shard.
-record(shard, {
    %% The persistent term that holds the writer's pid: an immediate, so that rewriting it is cheap.
    key :: term(),
    %% See the words below.
    words :: atomics:atomics_ref()
}).

%% What was given as options, checked and complete.
-record(conf, {
    given :: map(),
    file :: file:filename_all(),
    ack :: weir_log:ack(),
    format :: weir_log_open:format(),
    window :: pos_integer(),
    max_bytes :: pos_integer() | infinity,
    overload :: weir_log:overload(),
    timeout :: timeout(),
    shards :: pos_integer(),
    rotate :: map(),
    check_ms :: non_neg_integer(),
    mode :: weir_log_open:mode(),
    owner :: weir_log_open:owner(),
    sync_interval :: pos_integer() | infinity,
    tell :: default | fun((weir_log:loss()) -> iodata()),
    report :: boolean(),
    %% Whether a file whose sync has failed is opened anew for the next entry.
    heal :: boolean(),
    %% What the shards count in, if somebody keeps that for longer than the log.
    words :: none | [atomics:atomics_ref(), ...],
    %% weir_log_file, or what stands in for it in tests.
    file_module :: module()
}).

%% The main term of an open log. Written when it is opened or changed, and erased when it is closed.
-record(log, {
    name :: weir_log:log(),
    id :: pos_integer(),
    ack :: weir_log:ack(),
    format :: weir_log_open:format(),
    window :: pos_integer(),
    %% Bytes that may wait in each shard.
    max_bytes :: pos_integer() | infinity,
    overload :: weir_log:overload(),
    timeout :: timeout(),
    shards :: tuple(),
    conf :: #conf{}
}).

%% What a writer is started with.
-record(boot, {
    name :: weir_log:log(),
    id :: pos_integer(),
    number :: pos_integer(),
    path :: file:filename_all(),
    shard :: #shard{},
    conf :: #conf{}
}).

-define(MAIN_KEY(Name), {weir_log, Name}).
-define(WRITER_KEY(Id, Shard), {weir_log_writer, Id, Shard}).

%% The words of a shard. The first one is written by all callers and has its cache line for itself; the others are for
%% the times of overload, and for what the writer has done.
-define(QUEUED, 8).
-define(FIRST_DROP, 17).
-define(LAST_DROP, 18).
-define(DROPPED, 19).
-define(REJECTED, 20).
-define(WAITED, 21).
-define(NUDGED, 22).
-define(SYNC_FAILURES, 23).
%% A caller has waited in vain, and nobody need try until the writer has cleared it.
-define(STUCK, 33).
%% Of each level, from here on; what has no level comes last.
-define(DROPPED_OF, 24).
-define(LEVELS, [emergency, alert, critical, error, warning, notice, info, debug, none]).
-define(ENTRIES, 40).
-define(BYTES, 41).
-define(WRITES, 42).
-define(SYNCS, 43).
-define(FAILED, 44).
-define(LOST, 45).
-define(UNSENT, 46).
-define(LARGEST_BATCH, 47).
%% Of each level, from here on.
-define(FAILED_OF, 48).
%% What the log has told of: the sum, lost entries, and of each level the dropped and the failed ones.
-define(TOLD, 57).
-define(TOLD_LOST, 58).
-define(TOLD_DROPPED_OF, 59).
-define(TOLD_FAILED_OF, 68).
-define(WORDS, 80).

%% What waits in a shard is one word, so that one addition counts both: the entries above, the bytes below. Bytes have
%% room for 137 GB, entries for 134 million. To the bytes of each entry is added what its message takes.
-define(BYTE_BITS, 37).
-define(ENTRY_COST, 128).
-define(QUEUED_OF(Entries, Bytes), (((Entries) bsl ?BYTE_BITS) + (Entries) * ?ENTRY_COST + (Bytes))).
-define(QUEUED_BYTES(Word), ((Word) band ((1 bsl ?BYTE_BITS) - 1))).
-define(QUEUED_ENTRIES(Word), ((Word) bsr ?BYTE_BITS)).
