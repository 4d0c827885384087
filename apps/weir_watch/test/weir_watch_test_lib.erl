%% What the suites of weir_watch share.
-module(weir_watch_test_lib).

-export([eventually/1]).

-define(DEADLINE_MS, 60_000).

%% Calls the function until it returns something else than false, which is returned; an error after a minute.
eventually(Condition) -> eventually(Condition, erlang:monotonic_time(millisecond) + ?DEADLINE_MS).

eventually(Condition, Deadline) ->
    case Condition() of
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({still, Condition}),
            receive after 20 -> eventually(Condition, Deadline) end;
        Value ->
            Value
    end.
