%% What several suites of the benchmarks need.
-module(weir_bench_test_lib).

-export([await/1]).

-define(DEADLINE_MS, 10_000).

%% Polls until Condition() is true.
await(Condition) ->
    await(Condition, erlang:monotonic_time(millisecond) + ?DEADLINE_MS).

await(Condition, Deadline) ->
    case Condition() of
        true ->
            ok;
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({never, Condition}),
            receive
            after 1 -> await(Condition, Deadline)
            end
    end.
