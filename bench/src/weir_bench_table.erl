%% @doc A benchmark's table as text. Pure.
-module(weir_bench_table).

-export([render/1, target/2, ratio/1, figure/1]).

%% @doc One line for each contestant: median, least, greatest, rounds, and for ours how many times better than the best
%% peer, if there is one.
-spec render(weir_bench_part:table()) -> iodata().
render(#{title := Title, unit := Unit, better := Better, ours := Ours, peers := Peers} = Table) ->
    Lines =
        [line(Result, ratio(Better, Result, Peers)) || Result <- Ours] ++
            [line(Result, "") || Result <- Peers ++ maps:get(beside, Table, [])],
    Width = lists:max([string:length(Name) || [Name | _] <- Lines]),
    [
        io_lib:format("~n  ~ts, ~ts~n", [Title, Unit]),
        format(Width, ["", "median", "least", "greatest", "rounds", "ratio"]),
        [format(Width, Line) || Line <- Lines],
        [["    ", Note, $\n] || Note <- maps:get(notes, Table, [])]
    ].

%% @doc A note that tells a target and whether it was met.
-spec target(iodata(), boolean()) -> iodata().
target(Target, true) -> ["target: ", Target, ": met"];
target(Target, false) -> ["target: ", Target, ": MISSED"].

line(#{name := Name} = Result, Ratio) ->
    #{median := Median, min := Min, max := Max, rounds := Rounds} = weir_bench_rounds:summary(Result),
    [Name, figure(Median), figure(Min), figure(Max), integer_to_list(Rounds), Ratio].

format(Width, [Name | Cells]) ->
    Text = ["    ", string:pad(Name, Width) | [string:pad(Cell, 11, leading) || Cell <- Cells]],
    [string:trim(unicode:characters_to_list(Text), trailing), $\n].

ratio(_Better, _Result, []) -> "";
ratio(Better, Result, Peers) ->
    ratio(weir_bench_rounds:ratio(Better, Result, weir_bench_rounds:best(Better, Peers))).

%% @doc A ratio as text.
-spec ratio(number()) -> iodata().
ratio(Ratio) when Ratio >= 100 -> figure(Ratio);
ratio(Ratio) when Ratio >= 10 -> io_lib:format("~.1f", [float(Ratio)]);
ratio(Ratio) -> io_lib:format("~.2f", [float(Ratio)]).

%% @doc A figure as text.
-spec figure(number()) -> iodata().
figure(Figure) when Figure >= 100 -> weir_kit_text:integer(round(Figure));
figure(Figure) -> io_lib:format("~.1f", [float(Figure)]).
