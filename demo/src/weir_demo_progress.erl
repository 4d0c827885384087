%% @doc Progress lines of the demo: what happens now, after how many seconds since the run began.
-module(weir_demo_progress).

-export([begin_run/0, heading/1, note/2, elapsed_ms/0]).

%% @doc Sets the time from which the lines count. Call it once, before the others.
-spec begin_run() -> ok.
begin_run() ->
    persistent_term:put(?MODULE, erlang:monotonic_time(millisecond)).

%% @doc Prints the title of a part.
-spec heading(iodata()) -> ok.
heading(Title) ->
    io:format("~n~s~n", [Title]).

%% @doc Prints one indented line with the seconds since {@link begin_run/0} in front; arguments as io:format/2's.
-spec note(io:format(), [term()]) -> ok.
note(Format, Arguments) ->
    io:format("  ~5.1f s  " ++ Format ++ "~n", [elapsed_ms() / 1000 | Arguments]).

%% @doc Milliseconds since {@link begin_run/0}.
-spec elapsed_ms() -> non_neg_integer().
elapsed_ms() ->
    erlang:monotonic_time(millisecond) - persistent_term:get(?MODULE).
