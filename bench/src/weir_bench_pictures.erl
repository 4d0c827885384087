%% @doc The three pictures of the README, as SVG, made from the results that are kept, each for light and dark pages.
%%
%% Each has a background of its own, so that it can be read wherever it is shown. What is drawn stands beside what draws
%% it; there is no legend. The line at the bottom says on what it was measured.
-module(weir_bench_pictures).

-export([write/1, all/1]).

-define(DIRECTORY, "docs/pictures").
-define(WIDTH, 760).
-define(MARGIN, 24).
-define(FONT, "-apple-system, BlinkMacSystemFont, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif").

-record(theme, {
    back :: string(),
    text :: string(),
    muted :: string(),
    grid :: string(),
    ours :: string(),
    peer :: string()
}).

%% @doc Writes those for which there are results, of the first release of the page that has them; gives their paths.
-spec write(weir_bench_report:results()) -> [file:filename()].
write(Results) ->
    [
        begin
            Path = filename:join(?DIRECTORY, Name),
            ok = filelib:ensure_dir(Path),
            ok = file:write_file(Path, unicode:characters_to_binary(Picture)),
            Path
        end
     || {Name, Picture} <- all(Results)
    ].

%% @doc The pictures by the names of their files. Pure.
-spec all(weir_bench_report:results()) -> [{file:filename(), iodata()}].
all(Results) ->
    [
        {lists:concat([Name, "-", Scheme, ".svg"]), Picture}
     || {Name, Draw} <- [{mailbox, fun mailbox/2}, {oneshot, fun oneshot/2}, {throughput, fun throughput/2}],
        {Scheme, Theme} <- [{light, theme(light)}, {dark, theme(dark)}],
        Picture <- lists:sublist(
            [
                Picture
             || Otp <- weir_bench_results:releases(), Picture <- Draw(maps:get(Otp, Results, []), Theme)
            ],
            1
        )
    ].

theme(light) ->
    #theme{
        back = "#ffffff", text = "#1f2328", muted = "#59636e", grid = "#d1d9e0", ours = "#0969da", peer = "#bc4c00"
    };
theme(dark) ->
    #theme{
        back = "#0d1117", text = "#f0f6fc", muted = "#9198a1", grid = "#30363d", ours = "#4493f8", peer = "#f0883e"
    }.

%% ---------------------------------------------------------------- a mailbox over time

mailbox(Lines, Theme) ->
    Series = fun(Prefix) ->
        [Line || #{benchmark := <<"flow">>, who := Who, series := [_ | _]} = Line <- Lines, starts(Who, Prefix)]
    end,
    case {Series("weir_flow:cast/3"), Series("gen_server:cast/2")} of
        {[Ours | _], [Plain | _]} -> [mailbox(Ours, Plain, Lines, Theme)];
        _ -> []
    end.

mailbox(#{series := Ours, who := Who}, #{series := Plain}, Lines, #theme{ours = Blue, peer = Orange} = Theme) ->
    {Left, Top, Width, Height} = {104, 84, 600, 270},
    Longest = lists:max([Ms || [Ms, _] <- Ours ++ Plain]),
    {PeakMs, Most} = peak(Plain),
    {_, OursMost} = peak(Ours),
    %% Above the peak there is room for its label.
    Highest = Most * 1.22,
    X = fun(Ms) -> Left + Width * Ms / Longest end,
    Y = fun(Value) -> Top + Height * (1 - Value / Highest) end,
    picture(
        Top + Height + 74,
        "A million casts from 500 senders to one gen_server",
        "Messages waiting in its mailbox",
        Theme,
        [
            [
                [
                    line(Left, Y(Value), Left + Width, Y(Value), Theme#theme.grid, 1),
                    text(Left - 10, Y(Value) + 5, ["text-anchor='end' fill='", Theme#theme.muted, "'"], count(Value))
                ]
             || Value <- ticks(step(Most, 4), Most * 1.05)
            ],
            [
                text(X(Ms), Y(0) + 24, ["text-anchor='middle' fill='", Theme#theme.muted, "'"], seconds(Ms))
             || Ms <- ticks(step(Longest, 6), Longest)
            ],
            curve([[0, 0] | Plain], X, Y, Orange),
            curve([[0, 0] | Ours], X, Y, Blue),
            label(min(max(X(PeakMs), Left + 100), Left + Width - 100), Y(Most) - 36, Orange, "gen_server:cast/2", Most),
            label(clear([[0, 0] | Plain], X, Y, Left, Width), Y(0) - 32, Blue, Who, OursMost)
        ],
        source("flow", "one round", Lines)
    ).

peak(Series) ->
    [Value, Ms] = lists:max([[Value, Ms] || [Ms, Value] <- Series]),
    {Ms, Value}.

%% Where a label of 200 by 60 above the axis is farthest from the other curve, or behind its end.
clear(Series, X, Y, Left, Width) ->
    Points = [{X(Ms), Y(0) - Y(Value)} || [Ms, Value] <- Series],
    {End, _} = lists:last(Points),
    Clearance = fun(At) ->
        lists:min([1.0e9 | [height(Points, Each) || Each <- lists:seq(At - 110, At + 110, 10), Each =< End]])
    end,
    {_, Best} = lists:max([{Clearance(At), At} || At <- lists:seq(Left + 110, Left + Width - 110, 10)]),
    Best.

%% Of the curve at a place, in proportion to the points on either side.
height([{At, Here} | _], X) when X =< At -> Here;
height([{From, Here}, {To, There} | _], X) when X =< To -> Here + (There - Here) * (X - From) / max(1.0e-9, To - From);
height([_ | Points], X) -> height(Points, X).

curve(Series, X, Y, Colour) ->
    Points = [[number(X(Ms)), ",", number(Y(Value)), " "] || [Ms, Value] <- Series],
    [
        "<polyline fill='none' stroke-width='2.5' stroke-linejoin='round' stroke='", Colour, "' points='", Points,
        "'/>\n"
    ].

label(X, Y, Colour, Name, Most) ->
    Attributes = ["text-anchor='middle' fill='", Colour, "'"],
    [
        text(X, Y, ["font-weight='600' " | Attributes], Name),
        text(X, Y + 20, Attributes, [count(Most), " waiting at most"])
    ].

%% ---------------------------------------------------------------- 25,000 one-shot callers

oneshot(Lines, Theme) ->
    Shown = [
        {ours, "weir_memcached", "weir_memcached, 25000"},
        {peer, "a receive in the callback, on a server that drains its mailbox", "old design, draining server"},
        {peer, "a receive in the callback, on gen_server (merle)", "old design, gen_server"}
    ],
    case [{Whose, Label, Line} || {Whose, Label, Who} <- Shown, Line <- result("oneshot", "25,000", Who, Lines)] of
        [_, _, _] = Bars -> [oneshot(Bars, Lines, Theme)];
        _ -> []
    end.

oneshot(Bars, Lines, Theme) ->
    {Left, Top, Width, Height} = {?MARGIN, 96, 600, 28},
    Longest = lists:max([Max || {_, _, #{max := Max}} <- Bars]),
    picture(
        Top + 66 * length(Bars) + 44,
        "25,000 processes at once, one set each",
        "Time until every one has its answer from memcached, through one connection",
        Theme,
        [
            begin
                Y = Top + 66 * Index,
                Length = fun(Ms) -> Width * Ms / Longest end,
                [
                    text(Left, Y, ["fill='", colour(Whose, Theme), "' font-weight='600'"], Label),
                    bar(Left, Y + 8, Length(Median), Height, colour(Whose, Theme)),
                    [
                        line(Left + Length(Min), Y + 22, Left + Length(Max), Y + 22, Theme#theme.text, 2)
                     || Max > Min
                    ],
                    text(
                        Left + Length(max(Median, Max)) + 10,
                        Y + 27,
                        ["fill='", Theme#theme.text, "' font-weight='600'"],
                        seconds(Median)
                    )
                ]
            end
         || {Index, {Whose, Label, #{median := Median, min := Min, max := Max}}} <-
                lists:zip(lists:seq(0, length(Bars) - 1), Bars)
        ],
        source("oneshot", "bars: medians, lines: least to most", Lines)
    ).

%% ---------------------------------------------------------------- throughput beside each peer

throughput(Lines, Theme) ->
    Pairs = [
        {Benchmark, {Part, What, [{Label, Rate} || {Label, Of, Where} <- Both, Rate <- fastest(Of, Where, Lines)]}}
     || {Part, What, [{_, _, {Benchmark, _, _}} | _] = Both} <- pairs()
    ],
    case [Pair || {_, {_, _, [_, _]}} = Pair <- Pairs] of
        [] -> [];
        [{Benchmark, _} | _] = Found -> [throughput([Pair || {_, Pair} <- Found], Benchmark, Lines, Theme)]
    end.

throughput(Pairs, Benchmark, Lines, Theme) ->
    {Left, Top, Width, Height, Row} = {272, 92, 250, 17, 60},
    picture(
        Top + Row * length(Pairs) + 36,
        "Work a second, beside what each part replaces",
        "Each pair to a scale of its own",
        Theme,
        [
            begin
                Y = Top + Row * Index,
                Most = lists:max([Rate || {_, Rate} <- Both]),
                [
                    text(?MARGIN, Y + 14, ["fill='", Theme#theme.text, "' font-weight='600'"], Part),
                    text(?MARGIN, Y + 34, ["fill='", Theme#theme.muted, "' font-size='14'"], What),
                    [
                        [
                            bar(Left, Y + 20 * Place, Width * Rate / Most, Height, colour(Whose, Theme)),
                            [
                                "<text font-size='14' x='",
                                number(Left + Width * Rate / Most + 8),
                                "' y='",
                                number(Y + 20 * Place + 13.5),
                                "' fill='",
                                Theme#theme.text,
                                "'><tspan font-weight='600'>",
                                rate(Rate),
                                "</tspan> <tspan fill='",
                                colour(Whose, Theme),
                                "'>",
                                escape(Label),
                                "</tspan></text>\n"
                            ]
                        ]
                     || {Place, Whose, {Label, Rate}} <- lists:zip3([0, 1], [ours, peer], Both)
                    ]
                ]
            end
         || {Index, {Part, What, Both}} <- lists:zip(lists:seq(0, length(Pairs) - 1), Pairs)
        ],
        source(Benchmark, "medians", Lines)
    ).

%% What is shown, Weir's first: {Label, what the figure is, {Benchmark, Title, Names}}. A time is turned into a rate:
%% the number is how many pieces of work took that time.
pairs() ->
    Pool = "100 process(es)",
    Calls = "calls, 100 process(es)",
    Log = "waiting until it is written",
    Events = "until it is in the file",
    Echo = "echo of 64 bytes, 64 connections, passive",
    Once = "25,000 at once",
    [
        {"weir_pool", "claims of a worker, 100 callers", [
            {"weir_pool", {ns, 1}, {"claim", Pool, ["weir_pool:claim/3"]}},
            {"poolboy", {ns, 1}, {"claim", Pool, ["poolboy:transaction/3, lifo", "poolboy:transaction/3, fifo"]}}
        ]},
        {"weir_server", "calls, 100 callers", [
            {"weir_server", {ns, 1}, {"server", Calls, ["weir_server"]}},
            {"gen_server", {ns, 1}, {"server", Calls, ["gen_server"]}}
        ]},
        {"weir_log", "entries, 1,000 callers", [
            {"weir_log", rate, {"log", Log, ["weir_log:log/2, written, shards: 1"]}},
            {"disk_log", rate, {"log", Log, ["disk_log:blog/2"]}}
        ]},
        {"weir_log_h", "events of logger, none lost", [
            {"weir_log_h", rate, {"log_h", Events, ["weir_log_h"]}},
            {"logger_std_h", rate, {"log_h", Events, ["logger_std_h, no limits"]}}
        ]},
        {"weir_socket", "echoes of 64 bytes, 64 connections", [
            {"weir_socket", rate, {"socket", Echo, ["weir_socket, passive"]}},
            {"gen_tcp", rate, {"socket", Echo, ["gen_tcp, passive", "gen_tcp on socket, passive"]}}
        ]},
        {"weir_memcached", "sets, 25,000 callers at once", [
            {"weir_memcached", {ms, 25_000}, {"oneshot", Once, ["weir_memcached, 25000"]}},
            {"merle's design", {ms, 25_000}, {"oneshot", Once, ["old design, draining server"]}}
        ]}
    ].

fastest(Of, {Benchmark, Table, Names}, Lines) ->
    case [rate(Of, Median) || Name <- Names, #{median := Median} <- result(Benchmark, Table, Name, Lines)] of
        [] -> [];
        Rates -> [lists:max(Rates)]
    end.

rate(rate, PerSecond) -> PerSecond;
rate({ns, Count}, Ns) -> Count * 1.0e9 / Ns;
rate({ms, Count}, Ms) -> Count * 1.0e3 / Ms.

rate(Rate) when Rate >= 1.0e6 -> io_lib:format("~.2f million/s", [Rate / 1.0e6]);
rate(Rate) -> [weir_kit_text:integer(round(Rate / 1_000) * 1_000), "/s"].

%% ---------------------------------------------------------------- results

starts(Text, Prefix) -> string:prefix(Text, Prefix) =/= nomatch.

%% The first table of a benchmark that has such a title.
result(Benchmark, Table, Who, Lines) ->
    lists:sublist(
        [
            Line
         || #{benchmark := Each, what := What, who := Is, median := _} = Line <- Lines,
            Each =:= list_to_binary(Benchmark),
            Is =:= list_to_binary(Who),
            starts(What, Table)
        ],
        1
    ).

%% ---------------------------------------------------------------- SVG

picture(Height, Title, Subtitle, #theme{} = Theme, Drawing, Source) ->
    [
        io_lib:format(
            "<svg xmlns='http://www.w3.org/2000/svg' width='~b' height='~b' viewBox='0 0 ~b ~b' role='img' "
            "font-family=\"~ts\" font-size='15'>~n",
            [?WIDTH, Height, ?WIDTH, Height, ?FONT]
        ),
        ["<title>", escape([Title, ". ", Subtitle]), "</title>\n"],
        io_lib:format("<rect width='~b' height='~b' fill='~ts'/>~n", [?WIDTH, Height, Theme#theme.back]),
        text(?MARGIN, 34, ["font-size='19' font-weight='600' fill='", Theme#theme.text, "'"], Title),
        text(?MARGIN, 58, ["fill='", Theme#theme.muted, "'"], Subtitle),
        Drawing,
        text(?MARGIN, Height - 16, ["font-size='12' fill='", Theme#theme.muted, "'"], Source),
        "</svg>\n"
    ].

text(X, Y, Attributes, Text) ->
    ["<text x='", number(X), "' y='", number(Y), "' ", Attributes, ">", escape(Text), "</text>\n"].

line(X1, Y1, X2, Y2, Colour, Width) ->
    [
        ["<line x1='", number(X1), "' y1='", number(Y1), "' x2='", number(X2), "' y2='", number(Y2), "'"],
        [" stroke='", Colour, "' stroke-width='", number(Width), "'/>\n"]
    ].

bar(X, Y, Width, Height, Colour) ->
    [
        "<rect x='", number(X), "' y='", number(Y), "' width='", number(max(1, Width)), "' height='", number(Height),
        "' rx='2' fill='", Colour, "'/>\n"
    ].

colour(ours, #theme{ours = Colour}) -> Colour;
colour(peer, #theme{peer = Colour}) -> Colour.

number(N) -> io_lib:format("~.1f", [float(N)]).

escape(Text) ->
    [
        case Char of
            $< -> "&lt;";
            $> -> "&gt;";
            $& -> "&amp;";
            _ -> Char
        end
     || Char <- unicode:characters_to_list(Text)
    ].

%% ---------------------------------------------------------------- scales and numbers

%% A round number of which the largest has about so many.
step(Largest, Count) ->
    Rough = Largest / Count,
    Power = math:pow(10, math:floor(math:log10(Rough))),
    hd([Power * Times || Times <- [1, 2, 2.5, 5, 10], Power * Times >= Rough]).

ticks(Step, Highest) -> [Step * N || N <- lists:seq(0, trunc(Highest / Step + 1.0e-9))].

count(Value) -> weir_kit_text:integer(round(Value)).

seconds(Ms) when Ms < 1_000 -> [float_to_list(Ms / 1_000, [{decimals, 2}, compact]), " s"];
seconds(Ms) -> io_lib:format("~.1f s", [Ms / 1_000]).

%% When and on what a benchmark was measured.
source(Benchmark, How, Lines) ->
    [#{run := Name} | _] = [Line || #{benchmark := Each} = Line <- Lines, Each =:= list_to_binary(Benchmark)],
    [#{otp := Otp, machine := Machine, cores := Cores, date := Date} | _] =
        [Run || #{run := Each, otp := _} = Run <- Lines, Each =:= Name],
    <<Day:10/binary, _/binary>> = Date,
    io_lib:format("make bench, ~ts: Erlang/OTP ~ts, ~b cores of ~ts; ~ts", [Day, Otp, Cores, Machine, How]).
