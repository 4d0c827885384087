%% The demo's logs in a small size, and what its account of a file would notice.
-module(weir_demo_log_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

part(_) ->
    Level = logger:get_primary_config(),
    #{said := Said, promises := Promises, plots := [_, _]} =
        weir_demo_log:run(context(), #{processes => 20, each => 50}),
    ?assertMatch({match, _}, re:run(Said, "^Of 1,000 events at once weir_log_h had all")),
    ?assertMatch([{_, true}, {_, true}], Promises),
    %% Nothing is left behind.
    ?assertEqual(Level, logger:get_primary_config()),
    ?assertNot(lists:keymember(weir_demo_log, 1, logger:get_module_level())),
    ?assertNot(lists:member(weir_demo_log, logger:get_handler_ids())),
    ?assertEqual([], filelib:wildcard("_build/demo/logs.*")),
    ok = application:stop(weir_log).

%% The node is killed no earlier than told; of weir_log nothing that was acknowledged is missing.
kill(_) ->
    #{said := Said, promises := [{Promise, IsKept}], plots := [_]} =
        weir_demo_log_kill:run(context(), #{callers => 50, earliest => 1_000, latest => 2_000}),
    IsKept orelse weir_kit:fault({acknowledged_and_lost, Promise}),
    ?assertMatch({match, _}, re:run(Said, " 0 of [0-9,]+ are missing with weir_log")),
    ok = application:stop(weir_log).

%% The sections use no memcached.
context() -> #{server => none, prefix => <<>>}.

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
