%% Whether counts look like what they should be.
-module(weir_pool_test_stats).

-export([assert_even/2, assert_shares/3, tally/1]).

-include_lib("stdlib/include/assert.hrl").

%% Counts should be equal but for chance.
assert_even(Counts, What) ->
    Share = 1 / length(Counts),
    assert_shares(Counts, [Share || _ <- Counts], What).

%% Pearson's chi-square with k degrees of freedom exceeds k + 2 sqrt(kt) + 2t with a probability below e^-t (Laurent and
%% Massart, 2000, lemma 1): 10^-9 here, for any k. Shares must be positive.
assert_shares(Counts, Shares, What) ->
    Total = lists:sum(Counts),
    Statistic = lists:sum([square(C - Total * S) / (Total * S) || {C, S} <- lists:zip(Counts, Shares)]),
    K = length(Counts) - 1,
    T = 20.7,
    ?assert(Statistic =< K + 2 * math:sqrt(K * T) + 2 * T, {What, Statistic, K, Counts}).

square(X) -> X * X.

%% How often each element occurs.
tally(List) ->
    lists:foldl(fun(X, Counts) -> maps:update_with(X, fun(C) -> C + 1 end, 1, Counts) end, #{}, List).
