%% @doc Small things that the demo, the benchmarks and the tests need: waiting for a condition, doing things at the same
%% time, signals to programs, how much continuous integration does, the files of the repository, and figures as text.
%%
%% The text functions are pure.
-module(weir_kit).

-export([until/1, until/2, in_parallel/1, signal/2, in_ci/2, path/1]).
-export([integer/1, milliseconds/1, seconds/1, rate/2, ratio/2, reasons/1]).

-define(DEADLINE_MS, 60_000).
-define(POLL_MS, 2).

%% @doc Asks every two milliseconds until the answer is true. Fails with `{never, Condition}' after a minute.
-spec until(fun(() -> boolean())) -> ok.
until(Condition) -> until(Condition, ?DEADLINE_MS).

%% @doc The same, with a time limit in milliseconds.
-spec until(fun(() -> boolean()), Timeout :: non_neg_integer()) -> ok.
until(Condition, Timeout) -> until_deadline(Condition, erlang:monotonic_time(millisecond) + Timeout).

until_deadline(Condition, Deadline) ->
    case Condition() of
        true ->
            ok;
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({never, Condition}),
            %% Asking without a pause would take the core that the condition waits for.
            receive
            after ?POLL_MS -> until_deadline(Condition, Deadline)
            end
    end.

%% @doc Calls functions in processes of their own, all at once, and returns their results in order. Who crashes is the
%% caller's crash, `{crashed, Reason}'.
-spec in_parallel([fun(() -> Result)]) -> [Result].
in_parallel(Functions) ->
    Me = self(),
    Callers = [spawn_monitor(fun() -> Me ! {self(), Function()} end) || Function <- Functions],
    [
        receive
            {Pid, Result} ->
                true = demonitor(Monitor, [flush]),
                Result;
            {'DOWN', Monitor, process, Pid, Crash} ->
                error({crashed, Crash})
        end
     || {Pid, Monitor} <- Callers
    ].

%% @doc Sends a program a signal, by its name: `STOP', `CONT', `KILL'. A program that is told to stop stands still when
%% this returns; on a busy machine its threads go on for a while.
-spec signal(string(), OsPid :: string() | integer()) -> ok.
signal(Signal, OsPid) ->
    Pid = lists:concat([OsPid]),
    "" = os:cmd("kill -" ++ Signal ++ " " ++ Pid),
    case Signal of
        "STOP" -> until(fun() -> lists:all(fun is_stopped/1, filelib:wildcard("/proc/" ++ Pid ++ "/task/*/stat")) end);
        _ -> ok
    end.

%% What follows the name, which may have anything in it, begins with the state of the thread.
is_stopped(Stat) ->
    case file:read_file(Stat) of
        {ok, Text} -> [_, <<State, _/binary>>] = string:split(Text, ") ", trailing), State =:= $T;
        {error, _} -> true
    end.

%% @doc The first where the environment variable CI is set, as continuous integration has it, which runs all tests on
%% two releases; else the second.
-spec in_ci(Value, Value) -> Value.
in_ci(InCi, Else) ->
    case os:getenv("CI") of
        false -> Else;
        _ -> InCi
    end.

%% @doc A file of the repository that this was compiled in.
-spec path(file:filename()) -> file:filename().
path(Name) -> filename:join(root(filename:absname(code:lib_dir(weir_kit))), Name).

root("/") -> error(no_repository);
root(Directory) ->
    case filelib:is_file(filename:join(Directory, "CONTRIBUTING.md")) of
        true -> Directory;
        false -> root(filename:dirname(Directory))
    end.

%% @doc An integer with a comma between groups of three digits.
-spec integer(integer()) -> iodata().
integer(N) when N < 0 -> [$- | integer(-N)];
integer(N) when N < 1_000 -> integer_to_list(N);
integer(N) -> [integer(N div 1_000), io_lib:format(",~3..0b", [N rem 1_000])].

%% @doc Microseconds, as milliseconds with their unit: whole ones, but for less than ten, which have one decimal.
-spec milliseconds(Microseconds :: number()) -> iodata().
milliseconds(Us) when Us < 10_000 -> io_lib:format("~.1f ms", [Us / 1_000]);
milliseconds(Us) -> [integer(round(Us / 1_000)), " ms"].

%% @doc Microseconds, as seconds with their unit: one decimal, and two below one second.
-spec seconds(Microseconds :: number()) -> iodata().
seconds(Us) when Us < 1_000_000 -> io_lib:format("~.2f s", [Us / 1.0e6]);
seconds(Us) -> io_lib:format("~.1f s", [Us / 1.0e6]).

%% @doc Events a second.
-spec rate(Events :: non_neg_integer(), Microseconds :: pos_integer()) -> iodata().
rate(Events, Us) -> [integer(round(Events * 1.0e6 / Us)), "/s"].

%% @doc How many times larger the first is than the second; `"-"' when the second is zero.
-spec ratio(number(), number()) -> iodata().
ratio(_, B) when B == 0 -> "-";
ratio(A, B) when A / B >= 10 -> [integer(round(A / B)), "x"];
ratio(A, B) -> io_lib:format("~.1fx", [A / B]).

%% @doc Counts by reason, in one line, the most frequent first; `"none"' when there are none.
-spec reasons(#{Reason :: term() => pos_integer()}) -> iodata().
reasons(Counts) when map_size(Counts) =:= 0 ->
    "none";
reasons(Counts) ->
    Sorted = lists:reverse(lists:keysort(2, maps:to_list(Counts))),
    lists:join(", ", [[integer(N), io_lib:format(" ~0tP", [Reason, 12])] || {Reason, N} <- Sorted]).
