%% The benchmarks of logs in small sizes, and how they count what is in a file.
-module(weir_bench_logs_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

%% 10,000 entries are more than one chunk, and no multiple of one.
entries_are_counted(_) ->
    Entry = weir_bench_log_file:entry(),
    ?assertEqual(113, byte_size(Entry)),
    weir_bench_log_file:with(fun(File) ->
        ok = file:write_file(File, binary:copy(Entry, 10_000)),
        ?assertEqual(10_000, weir_bench_log_file:entries([File])),
        ?assertEqual(20_000, weir_bench_log_file:entries([File, File])),
        ?assert(weir_bench_log_file:is_all([File], 10_000)),
        ?assertNot(weir_bench_log_file:is_all([File], 9_999)),
        ok = file:write_file(File, "a line of the log's own\n", [append]),
        ?assertEqual(10_000, weir_bench_log_file:entries([File])),
        ?assertNot(weir_bench_log_file:is_all([File], 10_000))
    end),
    weir_bench_log_file:with(fun(File) ->
        ok = file:write_file(File, ""),
        ?assertEqual(0, weir_bench_log_file:entries([File]))
    end).

files_are_deleted(_) ->
    Files = weir_bench_log_file:with(fun(File) ->
        [ok = file:write_file(File ++ End, "x") || End <- ["", ".1", ".2"]],
        [File ++ End || End <- ["", ".1", ".2"]]
    end),
    [?assertNot(filelib:is_file(File)) || File <- Files].

log_part(_) ->
    Tables = weir_bench_log:run(2, #{processes => 20, each => 50, synced_each => 3, alone => 5}),
    ?assertEqual(7, length(Tables)),
    [?assert(is_list(unicode:characters_to_list(weir_bench_table:render(Table)))) || Table <- Tables],
    ok = application:stop(weir_log).

ancestor_part(_) ->
    Tables = weir_bench_log_ancestor:run(2, #{processes => 20, sync => 50, async => 30}),
    ?assertEqual(6, length(Tables)),
    [?assert(is_list(unicode:characters_to_list(weir_bench_table:render(Table)))) || Table <- Tables],
    ok = application:stop(weir_log).

%% What is wrong with a file is found, and its greatest figures too.
ancestor_lines(_) ->
    Line = fun(Process, Number, Queue, Memory) ->
        lists:concat([
            "2009-04-01 23:59:59 process ", Process, " line ", Number, " queue ", Queue, " memory ", Memory, "\n"
        ])
    end,
    Right = [Line(2, 1, 0, 900), Line(1, 1, 7, 800), Line(1, 2, 3, 1_000), Line(2, 2, 5, 10)],
    Check = fun(Lines, Each) ->
        weir_bench_log_file:with(fun(File) ->
            ok = file:write_file(File, Lines),
            weir_bench_log_ancestor:check(File, 2, Each)
        end)
    end,
    ?assertEqual(#{queue => 7, memory => 1_000}, Check(Right, 2)),
    [First, Second, Third, Last] = Right,
    ?assertError({wrong_result, {lines, 4, expected, 2}}, Check(Right, 1)),
    ?assertError({wrong_result, {lines, 4, expected, 6}}, Check(Right, 3)),
    ?assertError({wrong_result, {lines, 3, expected, 4}}, Check([First, Second, Third], 2)),
    ?assertError({wrong_result, {out_of_order, 1, 2, _}}, Check([First, Third, Second, Last], 2)),
    ?assertError({wrong_result, {out_of_order, 2, 2, _}}, Check([Right, Last], 2)),
    ?assertError({wrong_result, {no_line, _}}, Check(["2009-04-01 " | Right], 2)),
    ?assertError({wrong_result, {no_line, _}}, Check([First, "\n", Second, Third, Last], 2)),
    ?assertError({wrong_result, {no_line, _}}, Check([First, Second, Third, string:trim(Last)], 2)),
    ?assertError({wrong_result, {no_line, _}}, Check([First, Second, Third, string:slice(Last, 0, 30)], 2)).

%% So few are lost by none but OTP's handlers with their limits.
handler_part(_) ->
    [#{ours := Ours, beside := Beside} | _] = Tables = weir_bench_log_h:run(1, #{processes => 20, each => 50}),
    ?assertEqual(3, length(Tables)),
    [?assertEqual([1_000], Figures) || #{figures := Figures} <- Ours],
    Lossless = [Each || #{name := Name} = Each <- Beside, loses_nothing(Name)],
    [?assertEqual([1_000], Figures) || #{figures := Figures} <- Lossless],
    [?assert(is_list(unicode:characters_to_list(weir_bench_table:render(Table)))) || Table <- Tables],
    ?assertNot(lists:member(weir_bench_log_h, logger:get_handler_ids())).

loses_nothing(Name) -> string:find(Name, "no limits") =/= nomatch orelse lists:prefix("lager", Name).

%% Where the package could not be fetched, the benchmark says so and goes on.
lager_is_found_or_named(_) ->
    LeftOut = string:find(weir_bench_lager:version(), "left out"),
    case weir_bench_lager:find() of
        {ok, lager} -> ?assertEqual(nomatch, LeftOut);
        error -> ?assertNotEqual(nomatch, LeftOut)
    end.

parts_are_listed(_) ->
    [?assertEqual({Name, Module}, lists:keyfind(Name, 1, weir_bench:benchmarks())) || {Name, Module} <- [
        {"log", weir_bench_log}, {"log_h", weir_bench_log_h}, {"log_ancestor", weir_bench_log_ancestor}
    ]].
