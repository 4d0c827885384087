%% The benchmark of weir_cluster in a small size: every way of calling is answered.
-module(weir_bench_cluster_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0]).
-export([part/1, policy/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [part, policy].

part(_) ->
    Tables = weir_bench_cluster:run(1, #{calls => 100, ms => 400, nodes => [1, 2], members => 3}),
    ?assertEqual(2 + 4 + 1 + 9 + 2 + 2, length(Tables)),
    [?assert(is_list(unicode:characters_to_list(weir_bench_table:render(Table)))) || Table <- Tables].

policy(_) ->
    Tables = [_, _] = weir_bench_cluster_policy:run(1, #{nodes => [4], requests => 2000}),
    [?assert(is_list(unicode:characters_to_list(weir_bench_table:render(Table)))) || Table <- Tables].
