%% @doc What a client counts. Nothing on a request's path counts for itself but a time-out: the
%% connections add up a batch at a time.
-module(weir_memcached_counters).

-export([new/0, add/3, read/1, fields/0]).

-export_type([counters/0, name/0]).

-type counters() :: counters:counters_ref().
-type name() :: requests | busy | timeouts | expired | disconnected | connects | connect_failures | disconnects | garbage.

%% @doc The counters: name, index, kind, meaning.
-spec fields() -> [{name(), pos_integer(), counter, string()}].
fields() ->
    [
        {requests, 1, counter, "requests that a connection accepted"},
        {busy, 2, counter, "requests refused because max_pending were unanswered"},
        {timeouts, 3, counter, "requests whose caller stopped waiting"},
        {expired, 4, counter, "accepted requests never sent, because their caller had stopped waiting"},
        {disconnected, 5, counter, "accepted requests that failed because their connection was lost"},
        {connects, 6, counter, "connections made"},
        {connect_failures, 7, counter, "attempts to connect that failed"},
        {disconnects, 8, counter, "connections lost, for whatever reason"},
        {garbage, 9, counter, "connections closed because a reply could not be understood"}
    ].

%% @doc New counters, all 0.
-spec new() -> counters().
new() ->
    counters:new(length(fields()), [write_concurrency]).

%% @doc Adds to a counter. Cost: one atomic addition to a word of this scheduler's own.
-spec add(counters(), name(), non_neg_integer()) -> ok.
add(Counters, requests, N) -> counters:add(Counters, 1, N);
add(Counters, busy, N) -> counters:add(Counters, 2, N);
add(Counters, timeouts, N) -> counters:add(Counters, 3, N);
add(Counters, expired, N) -> counters:add(Counters, 4, N);
add(Counters, disconnected, N) -> counters:add(Counters, 5, N);
add(Counters, connects, N) -> counters:add(Counters, 6, N);
add(Counters, connect_failures, N) -> counters:add(Counters, 7, N);
add(Counters, disconnects, N) -> counters:add(Counters, 8, N);
add(Counters, garbage, N) -> counters:add(Counters, 9, N).

%% @doc All values.
-spec read(counters()) -> #{name() => non_neg_integer()}.
read(Counters) ->
    maps:from_list([{Name, counters:get(Counters, Index)} || {Name, Index, _, _} <- fields()]).
