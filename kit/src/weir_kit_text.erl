%% @doc Figures as text, for the demo, the benchmarks and the tests. All functions are pure.
-module(weir_kit_text).

-export([integer/1, milliseconds/1, seconds/1, rate/2, ratio/2, reasons/1]).

%% @doc Writes an integer with a comma between groups of three digits.
-spec integer(integer()) -> iodata().
integer(N) when N < 0 -> [$- | integer(-N)];
integer(N) when N < 1_000 -> integer_to_list(N);
integer(N) -> [integer(N div 1_000), io_lib:format(",~3..0b", [N rem 1_000])].

%% @doc Writes microseconds as milliseconds with their unit. Less than ten milliseconds have one decimal.
-spec milliseconds(Microseconds :: number()) -> iodata().
milliseconds(Us) when Us < 10_000 -> io_lib:format("~.1f ms", [Us / 1_000]);
milliseconds(Us) -> [integer(round(Us / 1_000)), " ms"].

%% @doc Writes microseconds as seconds with their unit: one decimal, and two below one second.
-spec seconds(Microseconds :: number()) -> iodata().
seconds(Us) when Us < 1_000_000 -> io_lib:format("~.2f s", [Us / 1.0e6]);
seconds(Us) -> io_lib:format("~.1f s", [Us / 1.0e6]).

%% @doc Writes a rate in events per second.
-spec rate(Events :: non_neg_integer(), Microseconds :: pos_integer()) -> iodata().
rate(Events, Us) -> [integer(round(Events * 1.0e6 / Us)), "/s"].

%% @doc Writes the ratio of the first number to the second, such as `1.5x'. If the second is zero, writes `-'.
-spec ratio(number(), number()) -> iodata().
ratio(_, B) when B == 0 -> "-";
ratio(A, B) when A / B >= 10 -> [integer(round(A / B)), "x"];
ratio(A, B) -> io_lib:format("~.1fx", [A / B]).

%% @doc Writes counts by reason in one line, the largest count first. If the map is empty, writes `none'.
-spec reasons(#{Reason :: term() => pos_integer()}) -> iodata().
reasons(Counts) when map_size(Counts) =:= 0 ->
    "none";
reasons(Counts) ->
    Sorted = lists:reverse(lists:keysort(2, maps:to_list(Counts))),
    lists:join(", ", [[integer(N), io_lib:format(" ~0tP", [Reason, 12])] || {Reason, N} <- Sorted]).
