-module(weir_watch_growth_SUITE).
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(BASE, 2_700_000_000).
%% The first that is more than the 256th part of that.
-define(LEAST, (?BASE div 256 + 1)).

all() -> weir_kit:cases(?MODULE).

%% In the second reading that is higher, and not before.
grows(_Config) ->
    ?assertEqual([false, false, false, true], bursts([0, 0, ?LEAST, ?LEAST])),
    ?assertEqual([false, false, false, false], bursts([0, 0, ?LEAST - 1, ?LEAST])),
    ?assertEqual([false, false, false, true], bursts([0, 0, 50_000_000, 100_000_000])).

%% In ten seconds, of which the first and the last reading count only with the one beside them: eight steps.
grows_slowly(_Config) ->
    Steep = [N * (?LEAST div 7) || N <- lists:seq(0, 12)],
    ?assert(lists:member(true, bursts(Steep))),
    Gentle = [N * (?LEAST div 9) || N <- lists:seq(0, 60)],
    ?assertNot(lists:member(true, bursts(Gentle))).

%% The process that has the pids ends before the next one has read them; a collection takes memory for a moment.
one_reading_is_no_growth(_Config) ->
    Level = lists:duplicate(5, 0),
    [
        ?assertNot(lists:member(true, bursts(Level ++ [One] ++ Level ++ [One] ++ Level)))
     || One <- [-24_000_000, 24_000_000, -?BASE, ?BASE]
    ],
    ?assertNot(lists:member(true, bursts([24_000_000 | Level]))),
    ?assertNot(lists:member(true, bursts([-24_000_000 | Level]))).

%% What it takes itself, and keeps for some time.
a_burst_is_no_reason_for_another(_Config) ->
    {[false, false, false, true], Asked} = seconds([0, 0, ?LEAST, ?LEAST], weir_watch_growth:new()),
    {_, Going} = going([20_000_000, 60_000_000, 80_000_000], Asked),
    {After, Quiet} = seconds([80_000_000, 50_000_000, 50_000_000, 80_000_000, 50_000_000], Going),
    ?assertEqual([], [true || true <- After]),
    %% It is looked at growth as before.
    ?assertMatch({[false, true], _}, seconds([100_000_000, 100_000_000], Quiet)).

%% Where all processes have little memory, 8 MB are the least.
small_growth(_Config) ->
    Burst = fun(Grown) ->
        {Bursts, _} = told([1000, 1000, 1000 + Grown, 1000 + Grown], weir_watch_growth:new(), 100, false),
        lists:last(Bursts)
    end,
    ?assertNot(Burst(8_000_000)),
    ?assert(Burst(8_000_001)).

%% Two of a million processes, and a third when it has been paid for.
too_dear(_Config) ->
    Jumps = [N * ?LEAST * 2 || N <- lists:seq(0, 60)],
    Bursts = bursts(Jumps),
    ?assertEqual(2, length([true || true <- Bursts])),
    {More, _} = told([?BASE + Jump || Jump <- Jumps], weir_watch_growth:new(), 1000, false),
    ?assert(length([true || true <- More]) > 10).

%% 0.55 s for a million; 100 ms are left of the credit, and 6 ms come back each second, also while a burst goes on.
credit_comes_back(_Config) ->
    Spent = lists:foldl(
        fun(_, Growth) ->
            {[false, false, false, true], Next} = seconds([0, 0, ?LEAST, ?LEAST], Growth),
            Next
        end,
        weir_watch_growth:new(),
        [1, 2]
    ),
    %% Before the second time the credit was full no more, and four of its seconds have given something back.
    Missing = 550_000 - (100_000 + 24_000),
    Waits = (Missing + 5999) div 6000,
    Last = fun(Seconds) ->
        {_, Growth} = going(lists:duplicate(Seconds - 4, 0), Spent),
        {Bursts, _} = seconds([0, 0, ?LEAST, ?LEAST], Growth),
        lists:last(Bursts)
    end,
    ?assertNot(Last(Waits - 1)),
    ?assert(Last(Waits)).

bursts(Grown) ->
    {Bursts, _} = seconds(Grown, weir_watch_growth:new()),
    Bursts.

%% So much more than ?BASE each second, at a million processes.
seconds(Grown, Growth) -> told([?BASE + More || More <- Grown], Growth, 1_000_000, false).

going(Grown, Growth) -> told([?BASE + More || More <- Grown], Growth, 1_000_000, true).

told(Readings, Growth, Processes, Going) ->
    lists:mapfoldl(fun(Bytes, Acc) -> weir_watch_growth:second(Bytes, Processes, Going, Acc) end, Growth, Readings).
