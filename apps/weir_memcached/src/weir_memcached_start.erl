%% @doc Starts a process of weir_memcached that a supervisor starts again when the process ends.
%%
%% If the node has no room for a process, a supervisor would count each failed attempt as a restart. After a few
%% microseconds the supervisor would end, and the application with it. The attempt itself
%% therefore waits. {@link start/1} tries again every 100 ms, for 5 seconds. Attempts of 5 seconds never exceed the
%% intensity of a supervisor of this application, so the supervisor goes on until there is room.
%%
%% While the attempt waits, the supervisor handles no other message. A shutdown waits for 5 seconds at most.
%% @private
-module(weir_memcached_start).

-include_lib("kernel/include/logger.hrl").

-export([start/1]).

-define(PAUSE_MS, 100).
-define(MOST_MS, 5000).

%% @doc Calls a function that starts a process, and calls the function again while the node has no room for a process
%% or for one of its children. After 5 seconds, returns the error of the last attempt. If an attempt succeeds after
%% others have failed, one report says for how long there was no room.
-spec start(fun(() -> Result)) -> Result | {error, system_limit}.
start(Start) -> start(Start, now_ms(), 0).

start(Start, Began, Failed) ->
    Result = try Start() catch error:system_limit -> {error, system_limit} end,
    case is_limit(Result) of
        true ->
            case now_ms() - Began >= ?MOST_MS of
                true ->
                    Result;
                false ->
                    receive
                    after ?PAUSE_MS -> start(Start, Began, Failed + 1)
                    end
            end;
        false ->
            _ = Failed > 0 andalso report(now_ms() - Began),
            Result
    end.

is_limit({error, Reason}) -> is_reason(Reason);
is_limit(_Started) -> false.

is_reason(system_limit) -> true;
is_reason({system_limit, _Stacktrace}) -> true;
is_reason({'EXIT', Reason}) -> is_reason(Reason);
is_reason({shutdown, {failed_to_start_child, _Id, Reason}}) -> is_reason(Reason);
is_reason(_Other) -> false.

%% The report is another process': a handler of the log may take long.
report(Ms) ->
    Text = "weir_memcached: the node had no room for another process, for ~b ms",
    try
        spawn(fun() -> ?LOG_WARNING(Text, [Ms]) end)
    catch
        error:system_limit -> none
    end.

now_ms() -> erlang:monotonic_time(millisecond).
