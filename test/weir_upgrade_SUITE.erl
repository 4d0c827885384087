%% OTP's release handler upgrades and downgrades a node with the .appup of each application. Meanwhile users call every
%% part. No request fails, nothing is lost, and no process runs the old code afterwards.
%%
%% weir_upgrade_idle_SUITE changes a node whose processes wait. weir_upgrade_releases makes the versions.
-module(weir_upgrade_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_upgrade_releases, [make/1, start_node/1, stop_node/1, call/4, install/2, runs/2, none_of/1]).

-define(LOAD, weir_upgrade_load).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> make(Config).

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) -> start_node(Config).

end_per_testcase(_Case, Config) -> stop_node(Config).

%% There, back and there again: a process that still ran the code of two versions ago would be in the way of the third
%% change.
under_load(Config) ->
    {Before, Now} = {?config(before, Config), ?config(now, Config)},
    ok = call(Config, ?LOAD, start, [?config(dir, Config)]),
    Pids = call(Config, ?LOAD, pids, []),
    ok = goes_on(Config),
    [
        begin
            ok = install(Version, Config),
            ok = goes_on(Config),
            ok = runs(Version, Config),
            ?assertEqual({1, 9, ok}, call(Config, ?LOAD, check_held, [])),
            #{limits := _} = call(Config, weir_watch, look, [#{seconds => 1}]),
            ?assertEqual(Pids, call(Config, ?LOAD, pids, []))
        end
     || Version <- weir_kit:long([Now, Before, Now], [Now, Before, Now, Before])
    ],
    Counts = call(Config, ?LOAD, stop, []),
    ct:log("~p~n~p", [call(Config, ?LOAD, progress, []), Counts]),
    weir_kit:none(lost_or_doubled, [Part || {_, {Sent, Arrived}} = Part <- maps:to_list(Counts), Sent =/= Arrived]),
    ?assertEqual([], call(Config, ?LOAD, faults, [])).

goes_on(Conf) ->
    Before = call(Conf, ?LOAD, progress, []),
    weir_kit:until(fun() ->
        ?assertEqual([], call(Conf, ?LOAD, faults, [])),
        After = call(Conf, ?LOAD, progress, []),
        none_of([Part || {Part, N} <- maps:to_list(Before), maps:get(Part, After) < N + 20])
    end).
