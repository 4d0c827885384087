%% @doc Benchmark: the table of keys of {@link weir_cluster_keys}, as the cluster grows. Nobody else has one like it, so
%% there is none beside it: the figures of docs/internals/cluster.md are from here.
-module(weir_bench_cluster_keys).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-define(WEIGHT, 8).

%% @doc The benchmark's name.
-spec title() -> string().
title() -> "cluster keys: the table of keys, as the cluster grows".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, #{nodes => [2, 8, 100, 1000]}).

%% @doc The same in other sizes.
-spec run(pos_integer(), #{nodes := [pos_integer()]}) -> [weir_bench_part:table()].
run(Rounds, #{nodes := Counts}) ->
    Name = fun(Count) -> lists:flatten([weir_kit_text:integer(Count), " nodes"]) end,
    Results = weir_bench_rounds:run(Rounds, [
        #{name => Name(Count), run => fun() -> once(Count) end} || Count <- Counts
    ]),
    [
        #{
            title => Title, unit => Unit, better => lower, peers => [], notes => [],
            ours => [weir_bench_rounds:view(fun(Figures) -> map_get(Key, Figures) end, Each) || Each <- Results]
        }
     || {Key, Title, Unit} <- [
            {joins, "a node joins", "ms"},
            {leaves, "a node leaves", "ms"},
            {table, "the table for callers is written", "ms"},
            {owners, "three owners of a key", "us"},
            {largest, "the largest share, of the mean", "%"},
            {least, "the least share, of the mean", "%"},
            {moved, "keys that move when one joins", "%"},
            {ideal, "keys that have to move then", "%"}
        ]
    ].

%% A round has other names, so that shares are those of other clusters.
once(Count) ->
    Host = integer_to_list(erlang:unique_integer([positive])),
    [Last | Others] = Nodes = [list_to_atom(lists:concat(["node", N, "@", Host])) || N <- lists:seq(0, Count)],
    Join = fun(Node, Keys) -> weir_cluster_keys:join(Node, ?WEIGHT, Keys) end,
    Before = lists:foldl(Join, weir_cluster_keys:new(), Others),
    Numbers = maps:from_list(lists:zip(Nodes, lists:seq(1, Count + 1))),
    {Joins, After} = timer:tc(weir_cluster_keys, join, [Last, ?WEIGHT, Before]),
    {Leaves, Before} = timer:tc(weir_cluster_keys, leave, [Last, After]),
    Table = weir_cluster_keys:new_table(),
    {Writes, ok} = timer:tc(weir_cluster_keys, write, [Numbers, Before, Table]),
    Owners = owners(Table),
    ok = weir_cluster_keys:write(Numbers, After, Table),
    Moved = length([moved || {A, B} <- lists:zip(Owners, owners(Table)), A =/= B]),
    Buckets = length(Owners),
    Of = lists:foldl(fun(Number, Sums) -> maps:update_with(Number, fun(N) -> N + 1 end, 1, Sums) end, #{}, Owners),
    Shares = [maps:get(maps:get(Node, Numbers), Of, 0) * Count / Buckets || Node <- Others],
    Weights = [{Node, ?WEIGHT} || Node <- Others],
    {Three, _} = timer:tc(fun() -> [weir_cluster_keys:owners(Bucket, 3, Weights) || Bucket <- lists:seq(0, 99)] end),
    #{
        joins => Joins / 1000, leaves => Leaves / 1000, table => Writes / 1000, owners => Three / 100,
        largest => 100 * lists:max(Shares), least => 100 * lists:min(Shares),
        moved => 100 * Moved / Buckets, ideal => 100 / (Count + 1)
    }.

owners(Table) ->
    #{size := Buckets} = atomics:info(Table),
    [weir_cluster_keys:at(Bucket, Table) || Bucket <- lists:seq(0, Buckets - 1)].
