%% @doc How long a server takes to answer: a histogram in atomics.
%%
%% A connection adds the requests that one write carried and one block answered with one addition, so that a request
%% costs next to nothing. What is measured is the time from giving the request to the writer until its reply was read.
%% Written by the connections of one server, read by everybody.
%% @private
-module(weir_memcached_latency).

-export([new/0, add/3, read/1, bounds_us/0, percentile/2]).

-export_type([latency/0, histogram/0]).

-type latency() :: counters:counters_ref().
-type histogram() :: {SumUs :: non_neg_integer(), [Count :: non_neg_integer()]}.
%% How many there were up to each bound and not up to the one before; the last is of those above all bounds.

-define(BOUNDS_US, {
    100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000
}).
-define(SUM, (tuple_size(?BOUNDS_US) + 2)).

%% @doc An empty histogram.
-spec new() -> latency().
new() -> counters:new(?SUM, []).

%% @doc Counts so many requests that took so many microseconds each. Cost: two additions.
-spec add(Us :: non_neg_integer(), N :: pos_integer(), latency()) -> ok.
add(Us, N, Latency) ->
    ok = counters:add(Latency, bucket(Us, 1), N),
    counters:add(Latency, ?SUM, N * Us).

bucket(Us, I) when I =< tuple_size(?BOUNDS_US), Us > element(I, ?BOUNDS_US) -> bucket(Us, I + 1);
bucket(_, I) -> I.

%% @doc What it has now. The counts are not all of one moment.
-spec read(latency()) -> histogram().
read(Latency) ->
    {counters:get(Latency, ?SUM), [counters:get(Latency, I) || I <- lists:seq(1, ?SUM - 1)]}.

%% @doc The upper bounds of the counts but the last.
-spec bounds_us() -> [pos_integer()].
bounds_us() -> tuple_to_list(?BOUNDS_US).

%% @doc The upper bound, in microseconds, of the time in which so many of a hundred were answered; `unknown' with less
%% than a hundred. Cost: as many reads as there are bounds.
-spec percentile(1..100, latency()) -> pos_integer() | unknown.
percentile(Percent, Latency) ->
    {_, Counts} = read(Latency),
    Total = lists:sum(Counts),
    case Total >= 100 of
        true -> bound(Total * Percent div 100, Counts, bounds_us());
        false -> unknown
    end.

bound(Left, [Count | Counts], [_ | [_ | _] = Bounds]) when Left > Count -> bound(Left - Count, Counts, Bounds);
bound(_, _, [Bound | _]) -> Bound.
