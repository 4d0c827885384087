%% @private The end of a time-out, and the time until that end.
-module(weir_flow_time).

-export([until/1, left/1]).

-export_type([until/0]).

-include("weir_flow.hrl").

-type until() :: infinity | now | integer().
%% Native monotonic time, or `now' for a time-out of 0.

%% @doc Returns the end of a time-out that begins now, in milliseconds.
-spec until(timeout()) -> until().
until(infinity) -> infinity;
until(0) -> now;
until(Ms) -> erlang:monotonic_time() + erlang:convert_time_unit(Ms, millisecond, native).

%% @doc Returns the milliseconds until the end, rounded up, so that no wait ends early. After the end, returns 0.
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
