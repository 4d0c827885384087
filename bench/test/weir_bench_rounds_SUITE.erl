-module(weir_bench_rounds_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

median(_) ->
    ?assertEqual(7, weir_bench_rounds:median([7])),
    ?assertEqual(2, weir_bench_rounds:median([3, 1, 2])),
    ?assertEqual(2.5, weir_bench_rounds:median([4, 1, 3, 2])),
    ?assertEqual(
        #{median => 2, min => 1, max => 30, rounds => 3}, weir_bench_rounds:summary(result("a", [30, 1, 2]))
    ).

quantile(_) ->
    ?assertEqual(7, weir_bench_rounds:quantile(0.99, [7])),
    ?assertEqual(99, weir_bench_rounds:quantile(0.99, lists:seq(100, 1, -1))),
    ?assertEqual(100, weir_bench_rounds:quantile(0.991, lists:seq(1, 100))),
    ?assertEqual(50, weir_bench_rounds:quantile(0.5, lists:seq(1, 100))),
    ?assertEqual(1, weir_bench_rounds:quantile(0.0, lists:seq(1, 100))).

ratio(_) ->
    Fast = result("fast", [1, 2, 3]),
    Slow = result("slow", [10, 20, 30]),
    ?assertEqual(10.0, weir_bench_rounds:ratio(lower, Fast, Slow)),
    ?assertEqual(0.1, weir_bench_rounds:ratio(higher, Fast, Slow)).

best(_) ->
    A = result("a", [5]),
    B = result("b", [1, 4, 9]),
    C = result("c", [6]),
    ?assertEqual(B, weir_bench_rounds:best(lower, [A, B, C])),
    ?assertEqual(C, weir_bench_rounds:best(higher, [A, B, C])),
    ?assertEqual(A, weir_bench_rounds:best(lower, [A, A#{name => "again"}])).

interleaved(_) ->
    Results = weir_bench_rounds:run(3, [contestant(Name) || Name <- ["a", "b", "c"]]),
    ?assertEqual("abcbcacab", order()),
    ?assertEqual([result("a", [1, 6, 8]), result("b", [2, 4, 9]), result("c", [3, 5, 7])], Results).

fewer_rounds(_) ->
    Results = weir_bench_rounds:run(3, [contestant("a"), (contestant("b"))#{rounds => 1}]),
    ?assertEqual("abaa", order()),
    ?assertEqual([3, 1], [length(Figures) || #{figures := Figures} <- Results]).

groups(_) ->
    Several = fun(Name) -> #{name => Name, run => fun() -> #{one => 1, two => 2} end} end,
    #{ours := Ours, peers := [Peer]} = weir_bench_rounds:compare(2, #{
        ours => [Several("a"), Several("b")], peers => [Several("c")]
    }),
    ?assertEqual(["a", "b"], [Name || #{name := Name} <- Ours]),
    ?assertEqual(result("c", [2, 2]), weir_bench_rounds:view(fun(#{two := Two}) -> Two end, Peer)).

table(_) ->
    Text = lists:flatten(
        io_lib:format("~ts", [
            weir_bench_table:render(#{
                title => "t",
                unit => "ns",
                better => lower,
                ours => [result("o", [10])],
                peers => [result("p", [50]), result("q", [25])],
                notes => ["n"]
            })
        ])
    ),
    ?assertMatch({match, _}, re:run(Text, "o +10\\.0 +10\\.0 +10\\.0 +1 +2\\.50\n")),
    ?assertMatch({match, _}, re:run(Text, "p +50\\.0 +50\\.0 +50\\.0 +1\n")).

table_without_peers(_) ->
    Table = #{title => "t", unit => "ns", better => lower, ours => [result("o", [10])], peers => []},
    Text = lists:flatten(io_lib:format("~ts", [weir_bench_table:render(Table)])),
    ?assertMatch({match, _}, re:run(Text, "o +10\\.0 +10\\.0 +10\\.0 +1\n")),
    ?assertEqual("target: x: met", lists:flatten(weir_bench_table:target("x", true))),
    ?assertEqual("target: x: MISSED", lists:flatten(weir_bench_table:target("x", false))).

result(Name, Figures) ->
    #{name => Name, figures => Figures}.

%% Its figure is how many ran before, and this one.
contestant([Letter] = Name) ->
    #{
        name => Name,
        run => fun() ->
            Order = [Letter | case get(order) of
                undefined -> [];
                Before -> Before
            end],
            put(order, Order),
            length(Order)
        end
    }.

order() ->
    lists:reverse(get(order)).
