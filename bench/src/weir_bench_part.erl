%% @doc What a benchmark is: a module with a title, and a run that gives tables.
-module(weir_bench_part).

-export_type([table/0]).

-type table() :: #{
    title := iodata(),
    %% Unit of the figures, and whether the lower or the higher is better.
    unit := iodata(),
    better := lower | higher,
    %% Weir's contestants and the others; a ratio compares one of ours with the best of the peers, if there is one.
    ours := [weir_bench_rounds:result()],
    peers := [weir_bench_rounds:result()],
    %% Measured in the same rounds to understand the others; takes part in no ratio.
    beside => [weir_bench_rounds:result()],
    %% What was sampled over time in one round: milliseconds since it began, and the sample, in the table's unit.
    series => [{Name :: string(), [{Ms :: number(), number()}, ...]}],
    %% What the figures mean, how the peers are configured, which target there is: one line each.
    notes => [iodata()]
}.
%% One comparison.

-callback title() -> string().
%% One line. Pure.

-callback run(Rounds :: pos_integer()) -> [table()].
%% Runs the benchmark in the calling process. Fails if any result is wrong.
