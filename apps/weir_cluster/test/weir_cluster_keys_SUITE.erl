%% Which node a key belongs to, by numbers alone. The oracle is the definition: the node with the lowest number.
-module(weir_cluster_keys_SUITE).
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(BUCKETS, 16384).

all() -> weir_kit:cases(?MODULE).

of_nodes(Nodes) -> lists:foldl(fun({Node, Weight}, K) -> weir_cluster_keys:join(Node, Weight, K) end,
    weir_cluster_keys:new(), Nodes).

name(I) -> list_to_atom("node" ++ integer_to_list(I) ++ "@host").

%% Node by bucket, of all that there are in this suite.
owners(Keys) ->
    Nodes = [name(I) || I <- lists:seq(1, 40)],
    Numbers = maps:from_list(lists:zip(Nodes, lists:seq(1, length(Nodes)))),
    Table = weir_cluster_keys:new_table(),
    ok = weir_cluster_keys:write(Numbers, Keys, Table),
    ?assertMatch(#{size := ?BUCKETS}, atomics:info(Table)),
    Names = list_to_tuple([nobody | Nodes]),
    [element(weir_cluster_keys:at(Bucket, Table) + 1, Names) || Bucket <- lists:seq(0, ?BUCKETS - 1)].

history_does_not_matter(_Config) ->
    Nodes = [{name(I), I rem 3 + 1} || I <- lists:seq(1, 7)],
    Expected = owners(of_nodes(Nodes)),
    ?assertEqual(Expected, owners(of_nodes(lists:reverse(Nodes)))),
    More = of_nodes([{name(8), 5} | Nodes] ++ [{name(9), 1}]),
    ?assertEqual(Expected, owners(weir_cluster_keys:leave(name(9), weir_cluster_keys:leave(name(8), More)))),
    %% Another weight and back.
    Heavy = weir_cluster_keys:join(name(3), 50, of_nodes(Nodes)),
    ?assertNotEqual(Expected, owners(Heavy)),
    ?assertEqual(Expected, owners(weir_cluster_keys:join(name(3), 1, Heavy))),
    ?assertEqual(Expected, owners(weir_cluster_keys:leave(unknown@host, of_nodes(Nodes)))),
    ?assertEqual([nobody], lists:usort(owners(weir_cluster_keys:new()))),
    ?assertEqual([nobody], lists:usort(owners(weir_cluster_keys:leave(name(1), of_nodes([{name(1), 1}]))))).

%% At most 1/N + 1 % of the buckets move, and only to or from the node that comes or goes.
only_its_keys_move(_Config) ->
    [
        begin
            Before = of_nodes([{name(I), 4} || I <- lists:seq(1, N)]),
            After = weir_cluster_keys:join(name(N + 1), 4, Before),
            Moved = [{A, B} || {A, B} <- lists:zip(owners(Before), owners(After)), A =/= B],
            ?assertEqual([name(N + 1)], lists:usort([B || {_, B} <- Moved])),
            ?assert(length(Moved) / ?BUCKETS =< 1 / (N + 1) + 0.01),
            ?assert(length(Moved) / ?BUCKETS >= 1 / (N + 1) - 0.01)
        end
     || N <- [1, 2, 3, 5, 8, 20]
    ].

by_weight(_Config) ->
    Owners = owners(of_nodes([{name(1), 10}, {name(2), 20}, {name(3), 70}])),
    [
        begin
            Share = length([x || Owner <- Owners, Owner =:= name(I)]) / ?BUCKETS,
            ?assert(abs(Share - Expected) < 0.02, {I, Share})
        end
     || {I, Expected} <- [{1, 0.1}, {2, 0.2}, {3, 0.7}]
    ].

owners_in_line(_Config) ->
    Nodes = [{name(I), I} || I <- lists:seq(1, 6)],
    Keys = of_nodes(Nodes),
    [
        begin
            Line = weir_cluster_keys:owners(Bucket, 6, Nodes),
            ?assertEqual(lists:sort([Node || {Node, _} <- Nodes]), lists:sort(Line)),
            ?assertEqual(Owner, hd(Line)),
            ?assertEqual(lists:sublist(Line, 2), weir_cluster_keys:owners(Bucket, 2, Nodes)),
            %% Without the first, the second has it.
            ?assertEqual(tl(Line), weir_cluster_keys:owners(Bucket, 6, lists:keydelete(hd(Line), 1, Nodes)))
        end
     || {Bucket, Owner} <- lists:zip(lists:seq(0, 499), lists:sublist(owners(Keys), 500))
    ].

%% Nodes without a number are nobody.
tables(_Config) ->
    Keys = of_nodes([{name(1), 1}, {name(2), 1}]),
    Table = weir_cluster_keys:new_table(),
    ok = weir_cluster_keys:write(#{name(1) => 65535}, Keys, Table),
    Numbers = [weir_cluster_keys:at(Bucket, Table) || Bucket <- lists:seq(0, ?BUCKETS - 1)],
    ?assertEqual([0, 65535], lists:usort(Numbers)),
    Buckets = [weir_cluster_keys:bucket({key, N}) || N <- lists:seq(1, 10_000)],
    ?assert(lists:all(fun(Bucket) -> Bucket >= 0 andalso Bucket < ?BUCKETS end, Buckets)),
    ?assert(length(lists:usort(Buckets)) > 7000).

draws_by_weight(_Config) ->
    Binary = weir_cluster_view:drawn([{1, 1}, {2, 8}, {300, 16}, {4, 1000}]),
    Numbers = [N || <<N:16>> <= Binary],
    Count = fun(N) -> length([x || M <- Numbers, M =:= N]) end,
    %% In sixteenths of the largest, at least one.
    ?assertEqual([1, 1, 1, 16], [Count(N) || N <- [1, 2, 300, 4]]),
    ?assertEqual(<<>>, weir_cluster_view:drawn([])).

numbers(_Config) ->
    ?assertEqual(1, weir_cluster_view:free_number([])),
    ?assertEqual(1, weir_cluster_view:free_number([2])),
    ?assertEqual(2, weir_cluster_view:free_number([3, 1])),
    ?assertEqual(4, weir_cluster_view:free_number([3, 1, 2])).
