%% @private The options of a window: a map, or the window alone.
%%
%% A pure module. A map costs about 50 ns, because it is checked at every call.
-module(weir_flow_opts).

-export([check/1]).

-include("weir_flow.hrl").

%% @doc Checks options and fills in the defaults. `badarg': a key or a value is not one of {@link weir_flow:opts()}.
-spec check(weir_flow:window() | weir_flow:opts()) -> #opts{}.
check(Window) when ?is_window(Window) ->
    #opts{window = Window, free = Window - 1};
check(Options) when is_map(Options) ->
    {Windows, Window} = window(Options),
    {Timeouts, Timeout} = timeout(Options),
    {Limits, Limit} = limit(Options),
    %% As many keys as were found: there is no other.
    case
        ?is_window(Window) andalso is_timeout(Timeout) andalso is_limit(Limit) andalso
            map_size(Options) =:= Windows + Timeouts + Limits
    of
        true -> #opts{window = Window, timeout = Timeout, limit = Limit, free = free(Window, Timeout, Limit)};
        false -> error(badarg, [Options])
    end;
check(Options) ->
    error(badarg, [Options]).

window(#{window := Window}) -> {1, Window};
window(#{}) -> {0, ?DEFAULT_WINDOW}.

timeout(#{timeout := Timeout}) -> {1, Timeout};
timeout(#{}) -> {0, infinity}.

limit(#{limit := Limit}) -> {1, Limit};
limit(#{}) -> {0, none}.

%% Who never waits asks for the acknowledgement behind the last message of a window, not ahead of the next: that last
%% message takes the slow path. With a limit every message does.
free(Window, 0, none) -> Window - 2;
free(Window, _Timeout, none) -> Window - 1;
free(_Window, _Timeout, _Limit) -> 0.

is_timeout(infinity) -> true;
is_timeout(Ms) -> is_integer(Ms) andalso Ms >= 0 andalso Ms =< ?MAX_MS.

is_limit(Limit) -> Limit =:= none orelse Limit =:= wait orelse Limit =:= busy.
