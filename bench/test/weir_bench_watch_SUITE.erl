%% The benchmark of weir_watch in a small size: each tool finds the right process, and a wrong diagnosis would be seen.
-module(weir_bench_watch_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

part(_) ->
    Tables = weir_bench_watch:run(1, #{processes => 2000, minute => 200, some => 200, settled => 200}),
    ?assertEqual(6, length(Tables)),
    [?assert(is_list(unicode:characters_to_list(weir_bench_table:render(Table)))) || Table <- Tables],
    ?assert(is_list(weir_bench_watch:version())).

%% A server that is called is busy, and not blocking. (That one which is flooded may be busy first is allowed for.)
wrong_cause(_) ->
    ok = weir_bench_watch_node:start(weir_watch),
    ?assertError({{wrong_result, busy, blocking}, _}, weir_bench_watch_node:named(weir_watch, {calls, 20}, blocking)),
    ok = weir_bench_watch_node:stop(weir_watch).
