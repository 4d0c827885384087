%% @doc What a client counts. The connections do, a batch at a time; callers count nothing.
%% @private
-module(weir_memcached_counters).

-export([new/0, add/3, read/1, fields/0]).

-export_type([counters/0, name/0]).

-type counters() :: counters:counters_ref().
-type name() ::
    requests | busy | timeouts | expired | disconnected | connects | connect_failures | disconnects | garbage.

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
            {garbage, "connections closed because a reply could not be understood"}
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
index(garbage) -> 9.

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
