%% weir_server_backoff, which is pure: the wait before hibernation, told by sleeps of given lengths.
-module(weir_server_backoff_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-define(B, weir_server_backoff).

all() -> weir_kit:cases(?MODULE).

none(_) ->
    None = ?B:new(none),
    ?assertEqual([0, 0, 0], delays([1, 100], None)).

initial(_) ->
    ?assertEqual(100, ?B:delay(?B:new({backoff, 100, 10, 50}))),
    %% The minimum holds from the start.
    ?assertEqual(10, ?B:delay(?B:new({backoff, 1, 10, 50}))).

%% A sleep of Desired was worth it, one of a millisecond less was not.
doubled_by_short_sleeps(_) ->
    ?assertEqual([100, 200, 400], delays([49, 0], ?B:new({backoff, 100, 10, 50}))),
    ?assertEqual([100, 50], delays([50], ?B:new({backoff, 100, 10, 50}))).

halved_by_long_sleeps(_) ->
    ?assertEqual([100, 50, 25, 12, 10, 10], delays([50, 51, 1000, 50, 50], ?B:new({backoff, 100, 10, 50}))).

%% Two minutes at most, but for an initial wait that is longer.
limits(_) ->
    ?assertEqual([60_000, 120_000, 120_000], delays([0, 0], ?B:new({backoff, 60_000, 10, 50}))),
    ?assertEqual([60_001, 120_000, 120_000], delays([0, 0], ?B:new({backoff, 60_001, 10, 50}))),
    ?assertEqual([500_000, 500_000, 250_000, 250_000], delays([0, 50, 0], ?B:new({backoff, 500_000, 10, 50}))).

always_between(_) ->
    Property = ?FORALL(
        {Initial, Minimum, Desired, Sleeps},
        {range(1, 1000), range(1, 1000), range(1, 1000), list(range(0, 2000))},
        begin
            Delays = delays(Sleeps, ?B:new({backoff, Initial, Minimum, Desired})),
            lists:all(fun(Delay) -> Delay >= Minimum andalso Delay =< 120_000 end, Delays) andalso
                lists:all(
                    fun({Sleep, Before, After}) ->
                        (Sleep < Desired andalso After >= Before) orelse (Sleep >= Desired andalso After =< Before)
                    end,
                    lists:zip3(Sleeps, lists:droplast(Delays), tl(Delays))
                )
        end
    ),
    weir_server_loop_lib:check(Property, 1000).

%% The waits before, between and after sleeps of these lengths. The clock is monotonic, and may be negative.
delays(Sleeps, Backoff) ->
    {Delays, _, Last} = lists:foldl(
        fun(Sleep, {Delays, Now, B}) ->
            Woken = ?B:wakes(Now + Sleep, ?B:sleeps(Now, B)),
            {[?B:delay(B) | Delays], Now + Sleep + 7, Woken}
        end,
        {[], -5000, Backoff},
        Sleeps
    ),
    lists:reverse([?B:delay(Last) | Delays]).
