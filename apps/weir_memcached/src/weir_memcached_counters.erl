%% @doc What a client counts of a server. The connections do, a batch at a time; callers only
%% what is rare: fetches that are no hits, hedges, copies that could not be made.
%% @private
-module(weir_memcached_counters).

-export([new/0, add/3, read/1, fields/0]).

-export_type([counters/0, name/0]).

-type counters() :: counters:counters_ref().
-type name() ::
    requests
    | busy
    | timeouts
    | expired
    | disconnected
    | connects
    | connect_failures
    | disconnects
    | garbage
    | hits
    | misses
    | unacknowledged
    | computed
    | shared
    | stale
    | hedged
    | hedges_won.

%% @doc The counters: name, index, kind, meaning.
-spec fields() -> [{name(), pos_integer(), counter, string()}].
fields() ->
    [
        {Name, index(Name), counter, Help}
     || {Name, Help} <- [
            {requests, "requests that a connection sent"},
            {busy, "requests refused because max_pending were unanswered"},
            {timeouts, "requests whose time was up before they were answered"},
            {expired, "those of them that were never sent"},
            {disconnected, "requests that were sent and failed because their connection was lost"},
            {connects, "connections made"},
            {connect_failures, "attempts to connect that failed"},
            {disconnects, "connections lost, for whatever reason"},
            {garbage, "connections closed because a reply could not be understood"},
            {hits, "keys asked for that had an item"},
            {misses, "keys asked for that had none"},
            {unacknowledged, "requests without a reply (no_reply) that failed"},
            {computed, "functions that a fetch has run"},
            {shared, "fetches that waited for another process of the node"},
            {stale, "fetches that took a stale value"},
            {hedged, "gets of which a second server or connection was asked"},
            {hedges_won, "those of them that it answered"}
        ]
    ].

index(requests) -> 1;
index(busy) -> 2;
index(timeouts) -> 3;
index(expired) -> 4;
index(disconnected) -> 5;
index(connects) -> 6;
index(connect_failures) -> 7;
index(disconnects) -> 8;
index(garbage) -> 9;
index(hits) -> 10;
index(misses) -> 11;
index(unacknowledged) -> 12;
index(computed) -> 13;
index(shared) -> 14;
index(stale) -> 15;
index(hedged) -> 16;
index(hedges_won) -> 17.

%% @doc New counters, all 0.
-spec new() -> counters().
new() ->
    counters:new(length(fields()), [write_concurrency]).

%% @doc Adds to a counter. Cost: one atomic addition to a word of this scheduler's own.
-spec add(counters(), name(), non_neg_integer()) -> ok.
add(Counters, Name, N) ->
    counters:add(Counters, index(Name), N).

%% @doc All values.
-spec read(counters()) -> #{name() => non_neg_integer()}.
read(Counters) ->
    maps:from_list([{Name, counters:get(Counters, Index)} || {Name, Index, _, _} <- fields()]).
