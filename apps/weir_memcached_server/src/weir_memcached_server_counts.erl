%% @doc What a server counts, each once, by the process that does it.
%% @private
-module(weir_memcached_server_counts).

-export([new/0, add/2, add/3, read/1, fields/0]).

-export_type([counts/0, name/0]).

-include("weir_memcached_server.hrl").

-type counts() :: counters:counters_ref().
-type name() :: atom().
%% One of {@link fields/0}.

%% @doc The counters: name, index, kind, meaning.
-spec fields() -> [{name(), pos_integer(), counter, string()}].
fields() ->
    [
        {Name, index(Name), counter, Help}
     || {Name, Help} <- [
            {get_hits, "keys that were asked for and found"},
            {get_misses, "keys that were asked for and not found"},
            {get_expired, "of those, items that had expired"},
            {get_flushed, "of those, items that were flushed"},
            {cmd_set, "items that came to be stored"},
            {total_items, "items that were stored"},
            {cmd_flush, "flush_all"},
            {cmd_meta, "me"},
            {touch_hits, "touched items"},
            {touch_misses, "keys that were to be touched and not found"},
            {delete_hits, "deleted items"},
            {delete_misses, "keys that were to be deleted and not found"},
            {incr_hits, "increments"},
            {incr_misses, "keys that were to be incremented and not found"},
            {decr_hits, "decrements"},
            {decr_misses, "keys that were to be decremented and not found"},
            {cas_hits, "cas that stored"},
            {cas_misses, "cas of a key that was not found"},
            {cas_badval, "cas of an item that had changed"},
            {store_too_large, "items that were above the limit"},
            {store_no_memory, "items for which there was no room"},
            {evictions, "items that went to make room"},
            {evicted_unfetched, "of those, items that nobody had asked for"},
            {reclaimed, "expired or flushed items that went to make room"},
            {crawler_reclaimed, "expired or flushed items that the crawler found"},
            {crawler_runs, "rounds of the crawler"},
            {expired_unfetched, "expired or flushed items that nobody had asked for"},
            {total_connections, "connections that were taken"},
            {rejected_connections, "connections that were refused, as there were too many"},
            {idle_kicks, "connections that were closed because they were silent for too long"},
            {slow_kicks, "connections that were closed because they did not read"},
            {handshake_errors, "connections whose TLS handshake failed"},
            {auth_cmds, "authentications"},
            {auth_errors, "of those, failed ones"},
            {bytes_read, "bytes received"},
            {bytes_written, "bytes sent"}
        ]
    ].

index(get_hits) -> 1;
index(get_misses) -> 2;
index(get_expired) -> 3;
index(get_flushed) -> 4;
index(cmd_set) -> 5;
index(total_items) -> 6;
index(cmd_flush) -> 7;
index(cmd_meta) -> 8;
index(touch_hits) -> 9;
index(touch_misses) -> 10;
index(delete_hits) -> 11;
index(delete_misses) -> 12;
index(incr_hits) -> 13;
index(incr_misses) -> 14;
index(decr_hits) -> 15;
index(decr_misses) -> 16;
index(cas_hits) -> 17;
index(cas_misses) -> 18;
index(cas_badval) -> 19;
index(store_too_large) -> 20;
index(store_no_memory) -> 21;
index(evictions) -> 22;
index(evicted_unfetched) -> 23;
index(reclaimed) -> 24;
index(crawler_reclaimed) -> 25;
index(crawler_runs) -> 26;
index(expired_unfetched) -> 27;
index(total_connections) -> 28;
index(rejected_connections) -> 29;
index(idle_kicks) -> 30;
index(slow_kicks) -> 31;
index(handshake_errors) -> 32;
index(auth_cmds) -> 33;
index(auth_errors) -> 34;
index(bytes_read) -> 35;
index(bytes_written) -> 36.

%% @doc New counters, all 0.
-spec new() -> counts().
new() -> counters:new(length(fields()), [write_concurrency]).

%% @doc Counts one. Cost: one atomic addition to a word of this scheduler's own, 25 ns.
-spec add(#cache{}, name()) -> ok.
add(#cache{counts = Counts}, Name) -> counters:add(Counts, index(Name), 1).

%% @doc Adds to a counter.
-spec add(#cache{}, name(), non_neg_integer()) -> ok.
add(#cache{counts = Counts}, Name, N) -> counters:add(Counts, index(Name), N).

%% @doc All values.
-spec read(#cache{}) -> #{name() => non_neg_integer()}.
read(#cache{counts = Counts}) ->
    maps:from_list([{Name, counters:get(Counts, Index)} || {Name, Index, _, _} <- fields()]).
