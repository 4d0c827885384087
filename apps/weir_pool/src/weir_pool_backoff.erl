%% @doc How long to wait before a start that has failed is tried again.
%%
%% Doubled with each attempt, up to a limit, and shortened by a random part, so that slots that lost their workers
%% together do not come back together.
%%
%% A pure module, but for the calling process's random numbers.
-module(weir_pool_backoff).

-export([delay/2]).

%% Doubling more often than this would only make a large number that is then cut.
-define(MAX_DOUBLINGS, 32).

%% @doc Milliseconds before the next attempt, after so many in a row that did not last. Of the first `Min', of later
%% ones twice the last, at most `Max', each less a random part of up to a half. None at all when nothing has failed yet.
-spec delay(Attempts :: non_neg_integer(), {MinMs :: pos_integer(), MaxMs :: pos_integer()}) ->
    DelayMs :: non_neg_integer().
delay(0, _MinMax) ->
    0;
delay(Attempts, {Min, Max}) ->
    Full = min(Max, Min bsl min(Attempts - 1, ?MAX_DOUBLINGS)),
    Full + 1 - rand:uniform(Full div 2 + 1).
