-module(weir_demo_table_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([figures/1, reasons/1, table/1, columns_left_out/1]).

all() ->
    [figures, reasons, table, columns_left_out].

figures(_) ->
    Text = fun(Data) -> lists:flatten(io_lib:format("~s", [Data])) end,
    ?assertEqual(
        ["0", "999", "1,000", "10,001", "1,234,567", "-1,000"],
        [Text(weir_demo_table:integer(N)) || N <- [0, 999, 1_000, 10_001, 1_234_567, -1_000]]
    ),
    ?assertEqual("1,235 ms", Text(weir_demo_table:milliseconds(1_234_567))),
    ?assertEqual("1.23 ms", Text(weir_demo_table:latency(1_234_567))),
    ?assertEqual("2,000/s", Text(weir_demo_table:rate(1_000, 500_000))),
    ?assertEqual(["9.9x", "10x", "-"], [Text(weir_demo_table:ratio(A, B)) || {A, B} <- [{99, 10}, {100, 10}, {1, 0}]]).

reasons(_) ->
    Text = fun(Counts) -> lists:flatten(io_lib:format("~s", [weir_demo_table:reasons(Counts)])) end,
    ?assertEqual("none", Text(#{})),
    ?assertEqual("1,000 timeout, 2 busy", Text(#{busy => 2, timeout => 1_000})).

table(_) ->
    Rows = [
        #{part => "One", what => "first", value => "1"},
        #{part => ["O", "ne"], what => "second", value => "22", plain => "333", ratio => "4x"},
        #{part => "Two", what => "third", value => "55555"}
    ],
    Lines = string:split(string:trim(lists:flatten(io_lib:format("~ts", [weir_demo_table:render(Rows)]))), "\n", all),
    ?assertEqual(
        [
            "           Weir  plain OTP  ratio",
            "One",
            "  first       1",
            "  second     22        333     4x",
            "",
            "Two",
            "  third   55555"
        ],
        [Line || Line <- Lines, not lists:prefix("---", Line)]
    ).

columns_left_out(_) ->
    Text = lists:flatten(io_lib:format("~ts", [weir_demo_table:render([#{part => "A", what => "b", value => "c"}])])),
    ?assertEqual(nomatch, string:find(Text, "plain OTP")),
    ?assertEqual(nomatch, string:find(Text, "ratio")).
