%% The demo's logs in a small size, and what its account of a file would notice.
-module(weir_demo_log_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([part/1, kill/1, right_lines/1, wrong_lines/1, missing_lines/1]).

all() ->
    [part, kill, right_lines, wrong_lines, missing_lines].

part(_) ->
    ok = weir_demo_progress:begin_run(),
    Level = logger:get_primary_config(),
    #{rows := Rows, problems := []} =
        weir_demo_log:run(#{server => none, prefix => <<>>}, #{
            processes => 20, each => 50, callers => 10, earliest => 500, latest => 600
        }),
    ?assertEqual(8, length(Rows)),
    ?assert(iolist_size(weir_demo_table:render(Rows)) > 0),
    ?assertEqual("1,000", figure(hd(Rows))),
    ?assertEqual(["0", "0"], [figure(Row) || Row <- Rows, is_about(Row, "of these missing") orelse is_about(Row, "torn")]),
    [Missing] = [figure(Row) || Row <- Rows, is_about(Row, "missing in the file")],
    ?assertEqual([Missing], [figure(Row) || Row <- Rows, is_about(Row, "counted by it")]),
    %% Nothing is left behind.
    ?assertEqual(Level, logger:get_primary_config()),
    ?assertNot(lists:keymember(weir_demo_log, 1, logger:get_module_level())),
    ?assertNot(lists:member(weir_demo_log, logger:get_handler_ids())),
    ?assertEqual([], filelib:wildcard("_build/demo_log/*")),
    ok = application:stop(weir_log).

figure(#{value := Value}) -> lists:flatten(io_lib:format("~ts", [Value])).

is_about(#{what := What}, Word) -> string:find(lists:flatten([What]), Word) =/= nomatch.

%% The node is killed no earlier than told; of weir_log nothing that was acknowledged is missing.
kill(Config) ->
    {ok, _} = application:ensure_all_started(weir_log),
    {_, Dir} = lists:keyfind(priv_dir, 1, Config),
    #{acknowledged := Acknowledged, missing := 0, found := Found, wrong := 0, torn := 0} =
        weir_demo_log_kill:run(weir_log, filename:join(Dir, "weir_log"), 50, 2_000),
    ?assert(Acknowledged >= 2_000),
    ?assert(Found >= Acknowledged),
    #{acknowledged := Plain, missing := Missing, found := InFile, wrong := 0} =
        weir_demo_log_kill:run(disk_log, filename:join(Dir, "disk_log"), 50, 2_000),
    ?assert(InFile >= Plain - Missing),
    ok = application:stop(weir_log).

right_lines(_) ->
    Lines = [["2026-11-21 notice: ", line(1, 1)], line(2, 1), line(1, 2), line(1, 3), line(2, 2)],
    {Account, <<"the rest">>} = account([[Line, $\n] || Line <- Lines] ++ ["the rest"]),
    ?assertMatch(
        #{found := 5, last := #{1 := 3, 2 := 2}, skipped := 0, wrong := 0, others := 0},
        Account
    ).

wrong_lines(_) ->
    Counts = fun(Lines) ->
        {#{found := Found, skipped := Skipped, wrong := Wrong, others := Others}, <<>>} =
            account([[Line, $\n] || Line <- Lines]),
        {Found, Skipped, Wrong, Others}
    end,
    [Begin, End] = string:split(line(1, 1), "digest"),
    [_, Other] = string:split(line(1, 2), "digest"),
    %% Left out; twice; out of order; two in one; cut; behind a line; the logger's own.
    ?assertEqual({2, 3, 0, 0}, Counts([line(1, 1), line(1, 5)])),
    ?assertEqual({1, 0, 1, 0}, Counts([line(1, 1), line(1, 1)])),
    ?assertEqual({1, 1, 1, 0}, Counts([line(1, 2), line(1, 1)])),
    ?assertEqual({0, 0, 1, 0}, Counts([[Begin, "digest", Other]])),
    ?assertEqual({0, 0, 0, 1}, Counts([string:slice(line(1, 1), 0, 40)])),
    ?assertEqual({0, 0, 0, 1}, Counts([[line(1, 1), End]])),
    ?assertEqual({0, 0, 0, 1}, Counts(["9 entries were dropped"])).

missing_lines(_) ->
    {Account, <<>>} = account([[Line, $\n] || Line <- [line(1, 1), line(1, 2), line(2, 1)]]),
    Missing = fun(Told) -> weir_demo_log_lines:missing(Told, Account) end,
    ?assertEqual(0, Missing(#{})),
    ?assertEqual(0, Missing(#{1 => 2, 2 => 1})),
    ?assertEqual(0, Missing(#{1 => 1})),
    ?assertEqual(1, Missing(#{1 => 3, 2 => 1})),
    ?assertEqual(5, Missing(#{1 => 2, 2 => 3, 3 => 3})),
    {Gap, <<>>} = account([[Line, $\n] || Line <- [line(1, 1), line(1, 3)]]),
    ?assertEqual(1, weir_demo_log_lines:missing(#{1 => 3}, Gap)).

line(Process, Number) -> weir_demo_log_lines:text(Process, Number).

account(Lines) -> weir_demo_log_lines:add_lines(iolist_to_binary(Lines), weir_demo_log_lines:new()).
