%% @doc A histogram of non-negative integers in logarithmic buckets, each octave split into 64 equal ones.
%%
%% Values under 128 are kept exactly. Any other is known by its bucket, whose width is at most 1/64 of its smallest
%% value, and a quantile answers a bucket's middle: it is off by at most 1/128 (0.8%) of the true value. Memory grows
%% with the number of distinct buckets, not with the number of values: 64 buckets an octave.
%%
%% Adding costs one map update. Histograms of several processes are merged; nothing is lost by that. Pure.
-module(weir_demo_histogram).

-export([new/0, add/2, merge/1, count/1, quantile/2, max/1]).

-export_type([histogram/0]).

%% 2^6 buckets an octave. With one bit more the exact range and the precision both double.
-define(BITS, 6).
-define(EXACT, (1 bsl (?BITS + 1))).

-opaque histogram() :: #{Bucket :: non_neg_integer() => pos_integer()}.

%% @doc The empty histogram.
-spec new() -> histogram().
new() ->
    #{}.

%% @doc Counts one value.
-spec add(Value :: non_neg_integer(), histogram()) -> histogram().
add(Value, Histogram) ->
    Bucket = bucket(Value),
    case Histogram of
        #{Bucket := N} -> Histogram#{Bucket := N + 1};
        #{} -> Histogram#{Bucket => 1}
    end.

%% @doc All values of all the histograms.
-spec merge([histogram()]) -> histogram().
merge(Histograms) ->
    lists:foldl(fun(Histogram, Sum) -> maps:fold(fun add_many/3, Sum, Histogram) end, new(), Histograms).

add_many(Bucket, N, Histogram) ->
    maps:update_with(Bucket, fun(M) -> M + N end, N, Histogram).

%% @doc How many values were counted.
-spec count(histogram()) -> non_neg_integer().
count(Histogram) ->
    maps:fold(fun(_, N, Sum) -> N + Sum end, 0, Histogram).

%% @doc The smallest value that at least the fraction `Q' of all values do not exceed (nearest rank), within the error
%% above; 0 for an empty histogram.
-spec quantile(Q :: number(), histogram()) -> non_neg_integer().
quantile(Q, Histogram) when Q >= 0, Q =< 1 ->
    Rank = max(1, ceil(Q * count(Histogram))),
    quantile_at(Rank, lists:sort(maps:to_list(Histogram))).

quantile_at(_Rank, []) -> 0;
quantile_at(_Rank, [{Bucket, _}]) -> middle(Bucket);
quantile_at(Rank, [{Bucket, N} | _]) when Rank =< N -> middle(Bucket);
quantile_at(Rank, [{_, N} | Rest]) -> quantile_at(Rank - N, Rest).

%% @doc The largest value, within the error above; 0 for an empty histogram.
-spec max(histogram()) -> non_neg_integer().
max(Histogram) ->
    quantile(1, Histogram).

%% A value of B significant bits, B > BITS + 1, loses its lowest B - BITS - 1; the bucket number holds how many, and the
%% rest, so that buckets are numbered in the order of their values, without gaps.
bucket(Value) when is_integer(Value), Value >= 0, Value < ?EXACT ->
    Value;
bucket(Value) when is_integer(Value), Value >= ?EXACT ->
    Shift = bits(Value, 0) - ?BITS - 1,
    (Shift bsl ?BITS) + (Value bsr Shift).

middle(Bucket) when Bucket < ?EXACT ->
    Bucket;
middle(Bucket) ->
    Shift = (Bucket bsr ?BITS) - 1,
    Smallest = (Bucket - (Shift bsl ?BITS)) bsl Shift,
    Smallest + (1 bsl Shift) div 2.

bits(0, Bits) -> Bits;
bits(Value, Bits) when Value >= 16#10000 -> bits(Value bsr 16, Bits + 16);
bits(Value, Bits) when Value >= 16#100 -> bits(Value bsr 8, Bits + 8);
bits(Value, Bits) -> bits(Value bsr 1, Bits + 1).
