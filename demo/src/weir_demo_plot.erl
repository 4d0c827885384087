%% @doc Plots as inline SVG, with their legends as HTML. Pure.
%%
%% Their colours are the classes `weir', `plain' and `other' of the page that they are in ({@link weir_demo_report}). A
%% plot is 380 units wide, and so readable as it is on a narrow screen.
-module(weir_demo_plot).

-export([render/1, escape/1]).

-export_type([plot/0, side/0]).

-type side() :: weir | plain | other.

-type plot() ::
    #{
        kind := lines,
        title := iodata(),
        %% What the axes are, with their units.
        x := iodata(),
        y := iodata(),
        series := [#{name := iodata(), side := side(), points := [{number(), number()}]}, ...],
        %% Moments on the first axis.
        marks => [{number(), iodata()}]
    }
    | #{
        kind := bars,
        title := iodata(),
        %% The text is what the value is called. A bar is open where it was stopped and would have grown.
        bars := [
            #{name := iodata(), side := side(), value := number(), text := iodata(), open => boolean()},
            ...
        ]
    }.

-define(WIDTH, 380).
-define(HEIGHT, 220).
-define(LEFT, 48).
-define(RIGHT, 370).
-define(TOP, 16).
-define(BOTTOM, 194).
-define(BAR_LEFT, 2).
-define(BAR_ROOM, 374).
-define(BAR_STEP, 42).
%% More points than that say no more.
-define(POINTS, 200).

%% @doc A plot as a `figure' element.
-spec render(plot()) -> iodata().
render(#{kind := lines, title := Title, x := X, y := Y, series := Series} = Plot) ->
    Points = [Point || #{points := Some} <- Series, Point <- Some],
    XMax = lists:max([0.001 | [At || {At, _} <- Points]]),
    {Xs, _} = ticks(XMax),
    {Ys, YMax} = ticks(lists:max([0 | [Value || {_, Value} <- Points]])),
    ToX = fun(At) -> ?LEFT + At / XMax * (?RIGHT - ?LEFT) end,
    ToY = fun(Value) -> ?BOTTOM - Value / YMax * (?BOTTOM - ?TOP) end,
    figure(Title, [
        legend(Series),
        svg(?HEIGHT, [Title, ": ", Y, ", over ", X], [
            [
                [
                    line("grid", ?LEFT, ToY(Tick), ?RIGHT, ToY(Tick)),
                    text("end", ?LEFT - 6, ToY(Tick) + 4, short(Tick))
                ]
             || Tick <- Ys
            ],
            [text("middle", ToX(Tick), ?BOTTOM + 16, short(Tick)) || Tick <- Xs, Tick =< XMax],
            [
                [line("mark", ToX(At), ?TOP, ToX(At), ?BOTTOM), text("start", ToX(At) + 4, ?TOP + 8, Name)]
             || {At, Name} <- maps:get(marks, Plot, [])
            ],
            [
                path(Side, thin(Some, XMax), ToX, ToY, Name)
             || #{name := Name, side := Side, points := Some} <- Series
            ]
        ]),
        ["<p class=\"axes\">", escape(Y), ", over ", escape(X), "</p>"]
    ]);
render(#{kind := bars, title := Title, bars := Bars}) ->
    Max = max(1, lists:max([Value || #{value := Value} <- Bars])),
    Rows = [
        bar(?BAR_STEP * (I - 1), Value / Max * ?BAR_ROOM, Bar)
     || {I, #{value := Value} = Bar} <- lists:zip(lists:seq(1, length(Bars)), Bars)
    ],
    figure(Title, svg(?BAR_STEP * length(Bars), Title, Rows)).

figure(Title, Body) -> ["<figure><figcaption>", escape(Title), "</figcaption>", Body, "</figure>\n"].

svg(Height, Label, Body) ->
    io_lib:format("<svg viewBox=\"0 0 ~b ~b\" role=\"img\" aria-label=\"~ts\">~ts</svg>", [
        ?WIDTH, Height, escape(Label), Body
    ]).

legend(Series) ->
    Item = fun(#{name := Name, side := Side}) ->
        io_lib:format("<span><i class=\"~s\"></i>~ts</span> ", [Side, escape(Name)])
    end,
    ["<p class=\"legend\">", lists:map(Item, Series), "</p>"].

line(Class, X1, Y1, X2, Y2) ->
    io_lib:format("<line class=\"~s\" x1=\"~s\" y1=\"~s\" x2=\"~s\" y2=\"~s\"/>", [
        Class | [number(At) || At <- [X1, Y1, X2, Y2]]
    ]).

text(Anchor, X, Y, Text) ->
    io_lib:format("<text text-anchor=\"~s\" x=\"~s\" y=\"~s\">~ts</text>", [
        Anchor, number(X), number(Y), escape(Text)
    ]).

path(_Side, [], _ToX, _ToY, _Name) ->
    [];
path(Side, Points, ToX, ToY, Name) ->
    Steps = lists:join($L, [[number(ToX(X)), $\s, number(ToY(Y))] || {X, Y} <- Points]),
    {X, Y} = lists:last(Points),
    io_lib:format(
        "<path class=\"~s\" d=\"M~s\"><title>~ts</title></path><circle class=\"~s\" cx=\"~s\" cy=\"~s\" r=\"3\"/>",
        [Side, Steps, escape(Name), Side, number(ToX(X)), number(ToY(Y))]
    ).

bar(Top, Length, #{name := Name, side := Side, text := Text} = Bar) ->
    Open =
        case Bar of
            #{open := true} -> " open";
            #{} -> ""
        end,
    [
        text("start", ?BAR_LEFT, Top + 13, [Name, ": ", Text]),
        io_lib:format("<rect class=\"~s~s\" x=\"~b\" y=\"~b\" width=\"~s\" height=\"14\" rx=\"2\"/>", [
            Side, Open, ?BAR_LEFT, Top + 19, number(max(2, Length))
        ])
    ].

%% The largest value of each of so many equal stretches of the first axis, and the last point as it is.
thin(Points, _XMax) when length(Points) =< ?POINTS ->
    Points;
thin(Points, XMax) ->
    Add = fun({X, Y} = Point, Found) ->
        maps:update_with(floor(X / XMax * ?POINTS), fun({_, Before}) -> {X, max(Y, Before)} end, Point, Found)
    end,
    [Point || {_, Point} <- lists:sort(maps:to_list(lists:foldl(Add, #{}, lists:droplast(Points))))] ++
        [lists:last(Points)].

%% Three to six round values from 0 to the first that is not below the greatest.
ticks(Greatest) when Greatest > 0 ->
    Power = math:pow(10, floor(math:log10(Greatest))),
    Step = hd([Each * Power || Each <- [0.2, 0.5, 1, 2], Greatest / (Each * Power) =< 5]),
    Count = ceil(Greatest / Step),
    {[I * Step || I <- lists:seq(0, Count)], Count * Step};
ticks(_) ->
    {[0.0, 1.0], 1.0}.

short(Value) when Value >= 1_000_000 -> [short(Value / 1_000_000), "M"];
short(Value) when Value >= 1_000 -> [short(Value / 1_000), "k"];
short(Value) when Value == trunc(Value) -> integer_to_list(trunc(Value));
short(Value) -> float_to_list(Value, [{decimals, 3}, compact]).

number(Value) -> float_to_list(float(Value), [{decimals, 1}]).

%% @doc Text for HTML, with what means something there written otherwise.
-spec escape(iodata()) -> string().
escape(Text) -> lists:append([escaped(Letter) || Letter <- unicode:characters_to_list(Text)]).

escaped($&) -> "&amp;";
escaped($<) -> "&lt;";
escaped($>) -> "&gt;";
escaped($") -> "&quot;";
escaped(Letter) -> [Letter].
