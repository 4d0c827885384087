%% @doc Where a log lives: persistent terms and atomics, and nothing else that a caller reads.
%%
%% A *main term* per open log holds its constants: written at open and erased at close. A *writer term* per shard holds
%% the pid of its writer: a local pid is an immediate, so rewriting it when a writer is started again costs microseconds
%% and no scan of the node. This module knows their layout and starts no process.
%%
%% The *word of what waits* of a shard counts entries that were sent to the writer and that it has not dealt with yet.
%% A caller reads the writer's pid, adds to the word, and sends, in this order; the writer subtracts. A writer that is
%% started takes whatever is in the word for lost, and only then publishes its pid: who has read that pid adds
%% afterwards. So the word never falls below what waits. It may be too high, by the entries of callers that were
%% killed between adding and sending, or that sent to a writer that was dead: see weir_log_writer, which mends that.
%% @private
-module(weir_log_terms).

-export([new/4, new_words/0, new_shard/3, open/1, close/2, log/1, is_open/2, erase_writers/2]).
-export([publish/1, writer/1, writers/1, queued/1, counters/1]).

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
    {rejected, ?REJECTED, counter, "entries refused because max_bytes or a window of them were waiting"},
    {dropped, ?DROPPED, counter, "entries dropped because of that, or because the writer is stuck"},
    {waited, ?WAITED, counter, "entries that had to wait because max_bytes were waiting"},
    {largest_batch, ?LARGEST_BATCH, gauge, "entries of the largest write"}
]).

%% @doc The main term of a log.
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
        timeout = Conf#conf.timeout,
        shards = list_to_tuple(Shards),
        conf = Conf
    }.

share(infinity, _Shards) -> infinity;
share(Bytes, Shards) -> max(1, Bytes div Shards).

%% @doc What a shard counts in, with nothing counted.
-spec new_words() -> atomics:atomics_ref().
new_words() -> atomics:new(?WORDS, [{signed, true}]).

%% @doc A shard that counts in these words.
-spec new_shard(Id :: pos_integer(), Number :: pos_integer(), atomics:atomics_ref()) -> #shard{}.
new_shard(Id, Number, Words) -> #shard{key = ?WRITER_KEY(Id, Number), words = Words}.

%% @doc Opens a log, from now on entries are taken, or changes it. Every process of the node is scanned if it was open.
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
    lists:foreach(fun(Shard) -> persistent_term:erase(?WRITER_KEY(Id, Shard)) end, lists:seq(1, Shards)).

%% @doc Makes the calling process the writer of a shard, and counts the entries that waited for the one before it.
-spec publish(#shard{}) -> ok.
publish(#shard{key = Key, words = Words}) ->
    Lost = ?QUEUED_ENTRIES(atomics:exchange(Words, ?QUEUED, 0)),
    ok = atomics:add(Words, ?LOST, max(0, Lost)),
    persistent_term:put(Key, self()).

%% @doc The writer of a shard; it may be dead.
-spec writer(#shard{}) -> pid() | none.
writer(#shard{key = Key}) -> persistent_term:get(Key, none).

%% @doc The writers of all shards, in their order.
-spec writers(#log{}) -> [pid() | none].
writers(#log{shards = Shards}) -> [writer(Shard) || Shard <- tuple_to_list(Shards)].

%% @doc What waits: entries and bytes.
-spec queued(#shard{}) -> {Entries :: non_neg_integer(), Bytes :: non_neg_integer()}.
queued(#shard{words = Words}) ->
    Word = max(0, atomics:get(Words, ?QUEUED)),
    {?QUEUED_ENTRIES(Word), ?QUEUED_BYTES(Word)}.

%% @doc All counters by name.
-spec counters(#shard{}) -> #{atom() => non_neg_integer()}.
counters(#shard{words = Words}) ->
    maps:from_list([{Name, atomics:get(Words, Index)} || {Name, Index, _Type, _Help} <- ?COUNTERS]).
