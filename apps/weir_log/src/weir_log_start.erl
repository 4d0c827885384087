%% @private Starts a process of weir_log that a supervisor starts again when the process ends.
%%
%% If the node has no room for a process, a supervisor would count each failed attempt as a restart. After a few
%% microseconds the supervisor would end, and the application with it. So the attempt itself waits: {@link start/1}
%% tries again every 100 ms, for 5 seconds. An attempt that fails after 5 seconds never exceeds the intensity of a
%% supervisor of this application, so the supervisor goes on until there is room.
%%
%% While the attempt waits, the supervisor handles no other message. A shutdown waits for 5 seconds at most.
-module(weir_log_start).

-include_lib("kernel/include/logger.hrl").

-export([start/1]).

-define(PAUSE_MS, 100).
-define(TRIES, 50).

%% @doc Calls a function that starts a process, and calls the function again while the node has no room for a process.
%% After the last attempt, raises `system_limit'. Once there was room again, one report says how long there was none.
-spec start(fun(() -> Result)) -> Result.
start(Start) -> start(Start, 0).

start(Start, Failed) ->
    try Start() of
        Result ->
            ok = report(Failed),
            Result
    catch
        error:system_limit when Failed < ?TRIES ->
            receive
            after ?PAUSE_MS -> start(Start, Failed + 1)
            end
    end.

%% The report is another process': a handler of the log may take long.
report(0) ->
    ok;
report(Failed) ->
    Text = "weir_log: for some ~b ms the node had no room for another process.",
    _ = try
        spawn(fun() -> ?LOG_WARNING(Text, [Failed * ?PAUSE_MS]) end)
    catch
        error:system_limit -> none
    end,
    ok.
