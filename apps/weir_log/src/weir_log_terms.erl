%% @doc Where a log lives: persistent terms and atomics, and nothing else that a caller reads.
%%
%% A *main term* per open log holds its constants: written at open and erased at close. A *writer term* per shard holds
%% the pid of its writer: a local pid is an immediate, so rewriting it when a writer is started again costs microseconds
%% and no scan of the node. A *waker term* holds the pid of that writer's waker (weir_log_wait). This module knows
%% their layout and starts no process.
%%
%% The *word of what waits* of a shard counts entries that were sent to the writer and that it has not dealt with yet.
%% A caller reads the writer's pid, adds to the word, and sends, in this order; the writer subtracts. A writer that is
%% started takes whatever is in the word for lost, and only then publishes its pid: who has read that pid adds
%% afterwards. So the word never falls below what waits. It may be too high, by the entries of callers that were
%% killed between adding and sending, or that sent to a writer that was dead: see weir_log_writer, which mends that.
-module(weir_log_terms).

-export([new/4, new_shard/2, open/1, close/2, log/1, is_open/2, erase_writers/2]).
-export([publish/1, publish_waker/1, retract_waker/3, writer/1, writers/1]).
-export([level_index/1, dropped/1, queued/1, counters/1]).

-include("weir_log.hrl").

%% {Name, Index, Type, Help}
-define(COUNTERS, [
    {entries, ?ENTRIES, counter, "entries written"},
    {bytes, ?BYTES, counter, "bytes written"},
    {writes, ?WRITES, counter, "writes, each for all entries that were waiting"},
    {syncs, ?SYNCS, counter, "fdatasyncs"},
    {sync_failures, ?SYNC_FAILURES, counter, "fdatasyncs that failed or were refused"},
    {failed, ?FAILED, counter, "entries that could not be written"},
    {lost, ?LOST, counter, "entries that a writer had not dealt with when it died"},
    {unsent, ?UNSENT, counter, "entries counted by callers that died before sending, or whose writer had"},
    {rejected, ?REJECTED, counter, "entries refused because max_bytes were waiting"},
    {dropped, ?DROPPED, counter, "entries dropped because max_bytes were waiting"},
    {waited, ?WAITED, counter, "entries that had to wait because max_bytes were waiting"},
    {largest_batch, ?LARGEST_BATCH, gauge, "entries of the largest write"}
]).

%% @doc The main term of a log that is not open yet.
-spec new(weir_log:log(), Id :: pos_integer(), #conf{}, [#shard{}]) -> #log{}.
new(Name, Id, #conf{} = Conf, Shards) ->
    #log{
        name = Name,
        id = Id,
        ack = Conf#conf.ack,
        format = Conf#conf.format,
        window = Conf#conf.window,
        max_bytes = share(Conf#conf.max_bytes, length(Shards)),
        overload = Conf#conf.overload,
        shards = list_to_tuple(Shards)
    }.

share(infinity, _Shards) -> infinity;
share(Bytes, Shards) -> max(1, Bytes div Shards).

%% @doc What a shard counts in, with nothing counted.
-spec new_shard(Id :: pos_integer(), Number :: pos_integer()) -> #shard{}.
new_shard(Id, Number) ->
    #shard{key = ?WRITER_KEY(Id, Number), words = atomics:new(?WORDS, [{signed, true}])}.

%% @doc Opens a log: from now on entries are taken.
-spec open(#log{}) -> ok.
open(#log{name = Name} = Log) -> persistent_term:put(?MAIN_KEY(Name), Log).

%% @doc Closes a log, if it is that of this id and not a namesake. Every process of the node is scanned.
-spec close(weir_log:log(), Id :: pos_integer()) -> ok.
close(Name, Id) ->
    _ = is_open(Name, Id) andalso persistent_term:erase(?MAIN_KEY(Name)),
    ok.

%% @doc The main term of an open log.
-spec log(weir_log:log()) -> #log{} | none.
log(Name) -> persistent_term:get(?MAIN_KEY(Name), none).

%% @doc Whether the log of this id is open.
-spec is_open(weir_log:log(), Id :: pos_integer()) -> boolean().
is_open(Name, Id) ->
    case log(Name) of
        #log{id = Id} -> true;
        _ -> false
    end.

%% @doc Removes the writer terms. Harmless when they are gone already.
-spec erase_writers(Id :: pos_integer(), Shards :: pos_integer()) -> ok.
erase_writers(Id, Shards) ->
    lists:foreach(
        fun(Shard) ->
            _ = persistent_term:erase(?WRITER_KEY(Id, Shard)),
            persistent_term:erase(?WAKER_KEY(?WRITER_KEY(Id, Shard)))
        end,
        lists:seq(1, Shards)
    ).

%% @doc Makes the calling process the writer of a shard, and says how many entries were waiting for the one before it.
-spec publish(#shard{}) -> Lost :: non_neg_integer().
publish(#shard{key = Key, words = Words}) ->
    Lost = ?QUEUED_ENTRIES(atomics:exchange(Words, ?QUEUED, 0)),
    ok = atomics:add(Words, ?LOST, max(0, Lost)),
    ok = persistent_term:put(Key, self()),
    max(0, Lost).

%% @doc Makes the calling process the waker of a shard (weir_log_wait), and gives the one before it, which may be gone.
-spec publish_waker(#shard{}) -> pid() | none.
publish_waker(#shard{key = Key}) ->
    Before = persistent_term:get(?WAKER_KEY(Key), none),
    ok = persistent_term:put(?WAKER_KEY(Key), self()),
    Before.

%% @doc The calling process is the waker of a shard no longer. While the log is open its term stays for the next one,
%% and is erased with the others. Of a log that is not, they may have been erased before the waker wrote its own.
-spec retract_waker(weir_log:log(), Id :: pos_integer(), #shard{}) -> ok.
retract_waker(Name, Id, #shard{key = Key}) ->
    _ =
        not is_open(Name, Id) andalso persistent_term:get(?WAKER_KEY(Key), none) =:= self() andalso
            persistent_term:erase(?WAKER_KEY(Key)),
    ok.

%% @doc The writer of a shard; it may be dead.
-spec writer(#shard{}) -> pid() | none.
writer(#shard{key = Key}) -> persistent_term:get(Key, none).

%% @doc The writers of all shards, in their order.
-spec writers(#log{}) -> [pid() | none].
writers(#log{shards = Shards}) -> [writer(Shard) || Shard <- tuple_to_list(Shards)].

%% @doc The word in which the drops of a level are counted.
-spec level_index(weir_log:level()) -> pos_integer().
level_index(emergency) -> ?DROPPED_OF;
level_index(alert) -> ?DROPPED_OF + 1;
level_index(critical) -> ?DROPPED_OF + 2;
level_index(error) -> ?DROPPED_OF + 3;
level_index(warning) -> ?DROPPED_OF + 4;
level_index(notice) -> ?DROPPED_OF + 5;
level_index(info) -> ?DROPPED_OF + 6;
level_index(debug) -> ?DROPPED_OF + 7;
level_index(none) -> ?DROPPED_OF + 8.

%% @doc The drops of each level of which there are any.
-spec dropped(#shard{}) -> #{weir_log:level() => pos_integer()}.
dropped(#shard{words = Words}) ->
    Counts = [{Level, atomics:get(Words, level_index(Level))} || Level <- ?LEVELS],
    maps:from_list([{Level, Count} || {Level, Count} <- Counts, Count > 0]).

%% @doc What waits: entries and bytes.
-spec queued(#shard{}) -> {Entries :: non_neg_integer(), Bytes :: non_neg_integer()}.
queued(#shard{words = Words}) ->
    Word = max(0, atomics:get(Words, ?QUEUED)),
    {?QUEUED_ENTRIES(Word), ?QUEUED_BYTES(Word)}.

%% @doc All counters by name.
-spec counters(#shard{}) -> #{atom() => non_neg_integer()}.
counters(#shard{words = Words}) ->
    maps:from_list([{Name, atomics:get(Words, Index)} || {Name, Index, _Type, _Help} <- ?COUNTERS]).
