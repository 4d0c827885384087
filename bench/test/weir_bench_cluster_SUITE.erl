%% The benchmark of weir_cluster in a small size: every way of calling is answered.
-module(weir_bench_cluster_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

part(_) ->
    Tables = weir_bench_cluster:run(1, #{calls => 100, ms => 400, nodes => [1, 2], members => 3}),
    ?assertEqual(3 + 4 + 1 + 12 + 3 + 2, length(Tables)),
    [?assert(is_list(unicode:characters_to_list(weir_bench_table:render(Table)))) || Table <- Tables].

policy(_) ->
    Tables = [_, _] = weir_bench_cluster_policy:run(1, #{nodes => [4], requests => 2000}),
    [?assert(is_list(unicode:characters_to_list(weir_bench_table:render(Table)))) || Table <- Tables].

keys(_) ->
    Tables = weir_bench_cluster_keys:run(1, #{nodes => [2, 3]}),
    Figure = fun(Title) ->
        [Two, _] = hd([Ours || #{title := Each, ours := Ours} <- Tables, Each =:= Title]),
        hd(maps:get(figures, Two))
    end,
    ?assert(abs(Figure("keys that move when one joins") - Figure("keys that have to move then")) =< 1),
    ?assert(Figure("the largest share, of the mean") >= 100),
    ?assert(Figure("the least share, of the mean") =< 100),
    [?assert(is_list(unicode:characters_to_list(weir_bench_table:render(Table)))) || Table <- Tables].
