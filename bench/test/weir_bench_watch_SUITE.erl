%% The benchmark of weir_watch in a small size: each tool finds the right process, and a wrong diagnosis is an error. On
%% a machine that gives the agent too little of the processors, the cases are skipped.
-module(weir_bench_watch_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

part(_) -> unless_starved(fun part_of_the_tables/0).

part_of_the_tables() ->
    Tables = weir_bench_watch:run(1, #{processes => 2000, minute => 200, some => 200, settled => 200}),
    ?assertEqual(6, length(Tables)),
    [?assert(is_list(unicode:characters_to_list(weir_bench_table:render(Table)))) || Table <- Tables],
    ?assert(is_list(weir_bench_watch:version())).

%% A server that many processes call is busy, and not blocking.
wrong_cause(_) -> unless_starved(fun busy_is_not_blocking/0).

busy_is_not_blocking() ->
    ok = weir_bench_watch_node:start(weir_watch),
    try weir_bench_watch_node:named(weir_watch, {calls, 20}, blocking) of
        Named -> weir_kit:fault({wrong_diagnosis, Named})
    catch
        error:{{wrong_result, busy, blocking}, _} -> ok
    after
        ok = weir_bench_watch_node:stop(weir_watch)
    end.

unless_starved(Test) ->
    try
        Test()
    catch
        error:{starved, _} -> {skip, "The machine gives the agent too little of the processors."}
    end.
