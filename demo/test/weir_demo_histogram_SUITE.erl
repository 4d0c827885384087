%% The histogram's error bound, against a sorted list.
-module(weir_demo_histogram_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

empty(_) ->
    H = weir_demo_histogram:new(),
    ?assertEqual(0, weir_demo_histogram:count(H)),
    ?assertEqual(0, weir_demo_histogram:quantile(0.5, H)),
    ?assertEqual(0, weir_demo_histogram:max(H)).

exact_below_128(_) ->
    [?assertEqual(V, single(V)) || V <- lists:seq(0, 127)].

error_bound(_) ->
    [assert_close(V, single(V)) || V <- lists:seq(128, 20_000)],
    [assert_close(V, single(V)) || _ <- lists:seq(1, 10_000), V <- [rand:uniform(1 bsl rand:uniform(60))]].

every_power_of_two(_) ->
    [assert_close(V, single(V)) || B <- lists:seq(7, 200), D <- [-1, 0, 1], V <- [(1 bsl B) + D]].

quantiles_of_a_list(_) ->
    Values = [trunc(math:exp(rand:uniform() * 20)) || _ <- lists:seq(1, 5_000)],
    H = from_list(Values),
    Sorted = lists:sort(Values),
    ?assertEqual(5_000, weir_demo_histogram:count(H)),
    [
        assert_close(lists:nth(max(1, ceil(Q * 5_000)), Sorted), weir_demo_histogram:quantile(Q, H))
     || Q <- [0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1]
    ],
    assert_close(lists:last(Sorted), weir_demo_histogram:max(H)).

merging(_) ->
    A = [rand:uniform(1_000_000) || _ <- lists:seq(1, 500)],
    B = [rand:uniform(1_000) || _ <- lists:seq(1, 700)],
    ?assertEqual(from_list(A ++ B), weir_demo_histogram:merge([from_list(A), from_list(B), weir_demo_histogram:new()])),
    ?assertEqual(weir_demo_histogram:new(), weir_demo_histogram:merge([])).

from_list(Values) ->
    lists:foldl(fun weir_demo_histogram:add/2, weir_demo_histogram:new(), Values).

single(Value) ->
    weir_demo_histogram:max(from_list([Value])).

assert_close(Value, Found) ->
    ?assert(abs(Value - Found) * 128 =< Value, {Value, Found}).
