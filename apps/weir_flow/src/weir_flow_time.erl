%% @private Time limits: when one ends, and what is left of it.
-module(weir_flow_time).

-export([until/1, left/1]).

-export_type([until/0]).

-include("weir_flow.hrl").

-type until() :: infinity | now | integer().
%% Native monotonic time, or `now' for a limit that allows no wait.

%% @doc When a time limit that begins now ends.
-spec until(timeout()) -> until().
until(infinity) -> infinity;
until(0) -> now;
until(Ms) -> erlang:monotonic_time() + erlang:convert_time_unit(Ms, millisecond, native).

%% @doc What is left, in milliseconds, rounded up: never early. 0: nothing.
-spec left(until()) -> timeout().
left(infinity) ->
    infinity;
left(now) ->
    0;
left(Until) ->
    case Until - erlang:monotonic_time() of
        Left when Left > 0 -> min(erlang:convert_time_unit(Left, native, millisecond) + 1, ?MAX_MS);
        _ -> 0
    end.
