%% What several suites of the benchmarks need.
-module(weir_bench_test_lib).

-export([await/1, await/2]).

-define(DEADLINE_MS, 10_000).

%% Polls until Condition() is true.
await(Condition) -> await(Condition, ?DEADLINE_MS).

%% For so many milliseconds.
await(Condition, Timeout) -> await_until(Condition, erlang:monotonic_time(millisecond) + Timeout).

await_until(Condition, Deadline) ->
    case Condition() of
        true ->
            ok;
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({never, Condition}),
            receive
            after 1 -> await_until(Condition, Deadline)
            end
    end.
