%% @doc The demo's final table, and how figures are written in it. Pure: gives text, prints nothing.
-module(weir_demo_table).

-export([render/1, integer/1, milliseconds/1, latency/1, rate/2, ratio/2, reasons/1]).

-define(GAP, 2).

%% @doc The rows as an aligned table. A part's title is printed once, above its rows; columns that no row fills are
%% left out. Texts are left aligned, figures right aligned.
-spec render([weir_demo_part:row()]) -> iodata().
render(Rows) ->
    Used = fun(Key) -> Key =:= what orelse lists:any(fun(Row) -> is_map_key(Key, Row) end, Rows) end,
    Columns = [Column || {Key, _, _} = Column <- columns(), Used(Key)],
    Widths = [lists:max([length(Head) | [string:length(cell(Key, Row)) || Row <- Rows]]) || {Key, Head, _} <- Columns],
    Rule = [lists:duplicate(lists:sum(Widths) + ?GAP * length(Widths), $-), $\n],
    Head = line([{Side, Title, Width} || {{_, Title, Side}, Width} <- lists:zip(Columns, Widths)]),
    [Rule, Head, Rule, lines(Rows, undefined, Columns, Widths), Rule].

columns() ->
    [{what, "", left}, {value, "Weir", right}, {plain, "plain OTP", right}, {ratio, "ratio", right}].

lines([], _Part, _Columns, _Widths) ->
    [];
lines([#{part := Title} = Row | Rows], Part, Columns, Widths) ->
    case iolist_to_binary(Title) of
        Part ->
            [row(Row, Columns, Widths) | lines(Rows, Part, Columns, Widths)];
        Next ->
            Blank = [$\n || Part =/= undefined],
            [Blank, Title, $\n, row(Row, Columns, Widths) | lines(Rows, Next, Columns, Widths)]
    end.

row(Row, Columns, Widths) ->
    line([{Side, cell(Key, Row), Width} || {{Key, _, Side}, Width} <- lists:zip(Columns, Widths)]).

line(Cells) ->
    Text = [[lists:duplicate(?GAP, $\s), pad(Side, Cell, Width)] || {Side, Cell, Width} <- Cells],
    [string:trim(unicode:characters_to_list(Text), trailing), $\n].

pad(left, Cell, Width) -> string:pad(Cell, Width, trailing);
pad(right, Cell, Width) -> string:pad(Cell, Width, leading).

cell(Key, Row) ->
    unicode:characters_to_list(maps:get(Key, Row, "")).

%% @doc An integer with a comma between groups of three digits.
-spec integer(integer()) -> iodata().
integer(N) when N < 0 ->
    [$- | integer(-N)];
integer(N) when N < 1000 ->
    integer_to_list(N);
integer(N) ->
    [integer(N div 1000), io_lib:format(",~3..0b", [N rem 1000])].

%% @doc Microseconds, written as whole milliseconds with their unit.
-spec milliseconds(Microseconds :: non_neg_integer()) -> iodata().
milliseconds(Microseconds) ->
    [integer((Microseconds + 500) div 1000), " ms"].

%% @doc Nanoseconds, written in milliseconds with two decimals and the unit.
-spec latency(Nanoseconds :: non_neg_integer()) -> iodata().
latency(Nanoseconds) ->
    io_lib:format("~.2f ms", [Nanoseconds / 1.0e6]).

%% @doc Events a second.
-spec rate(Events :: non_neg_integer(), Microseconds :: pos_integer()) -> iodata().
rate(Events, Microseconds) ->
    [integer(round(Events * 1.0e6 / Microseconds)), "/s"].

%% @doc How many times larger the first is than the second; `"-"' when the second is zero.
-spec ratio(number(), number()) -> iodata().
ratio(_, 0) -> "-";
ratio(A, B) when A / B >= 10 -> [integer(round(A / B)), "x"];
ratio(A, B) -> io_lib:format("~.1fx", [A / B]).

%% @doc Counts by reason, in one line, the most frequent first; `"none"' when there are none.
-spec reasons(#{Reason :: term() => pos_integer()}) -> iodata().
reasons(Counts) when map_size(Counts) =:= 0 ->
    "none";
reasons(Counts) ->
    Sorted = lists:reverse(lists:keysort(2, maps:to_list(Counts))),
    lists:join(", ", [[integer(N), io_lib:format(" ~0tP", [Reason, 12])] || {Reason, N} <- Sorted]).
