%% OTP's release handler upgrades and downgrades a node whose processes wait. The new code reaches each process. The
%% release handler refuses an upgrade rather than kill a process.
%%
%% weir_upgrade_SUITE changes a node that is in use. weir_upgrade_releases makes the versions.
-module(weir_upgrade_idle_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_upgrade_releases, [make/1, start_node/1, stop_node/1, call/4, install/2, runs/2, settled/2]).
-import(weir_upgrade_releases, [version_of/2, modules/2]).

-define(LOAD, weir_upgrade_load).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> make(Config).

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) -> start_node(Config).

end_per_testcase(_Case, Config) -> stop_node(Config).

%% No user sends a message, so only the upgrade brings waiting processes into the new code: servers, connections to
%% memcached, acceptors and receivers.
idle(Config) ->
    ok = call(Config, ?LOAD, start, [?config(dir, Config), []]),
    [
        begin
            ok = install(Version, Config),
            ok = runs(Version, Config)
        end
     || Version <- [?config(now, Config), ?config(before, Config)]
    ],
    [?assertEqual(9, call(Config, gen_server, call, [Server, {square, 3}])) || Server <- [server_call, idle, asleep]],
    ?assertEqual({error, not_found}, call(Config, weir_memcached, get, [cache, <<"nothing">>])),
    %% The process that waited to receive gets the message of stop/0.
    #{} = call(Config, ?LOAD, stop, []).

%% A process still runs the code of two versions ago. The release handler refuses the upgrade, changes nothing, and does
%% not kill the process.
refused(Config) ->
    {Before, Now} = {?config(before, Config), ?config(now, Config)},
    %% The acceptors of weir_memcached_server look for new code with each connection, and otherwise in seconds.
    ok = call(Config, ?LOAD, start, [?config(dir, Config), [served_connects]]),
    Claimer = call(Config, ?LOAD, claim_for_long, []),
    ok = install(Now, Config),
    ok = settled([Module || {Module, _} <- modules(Now, Config), Module =/= weir_pool_claim], Config),
    ?assertEqual({error, {old_processes, weir_pool_claim}}, call(Config, release_handler, install_release, [Before])),
    ?assertEqual(Now, version_of(weir_pool, Config)),
    ?assertEqual(ok, call(Config, ?LOAD, end_claim, [Claimer])),
    ok = install(Before, Config),
    ok = runs(Before, Config).

%% The release handler finds each process of a behaviour, and so would change its state. The starter of the process does
%% not matter.
found(Config) ->
    ok = call(Config, ?LOAD, start, [?config(dir, Config), []]),
    %% weir_cluster's child_spec does not name this one.
    Modules = [Module || {Module, _} <- modules(?config(before, Config), Config), Module =/= weir_cluster_pool],
    Supervised = call(Config, release_handler_1, get_supervised_procs, []),
    Found = [{Pid, Module} || {_, _, Pid, Of} <- Supervised, Module <- Of],
    Processes = [
        {Pid, Module}
     || Pid <- call(Config, erlang, processes, []),
        {Module, init, 1} <- [call(Config, proc_lib, translate_initial_call, [Pid]), supervisor(Pid, Config)],
        lists:member(Module, Modules)
    ],
    [?assert(lists:keymember(Module, 2, Processes)) || Module <- [weir_log_writer, weir_pool_slot_sup, weir_pool_sup]],
    ?assertEqual([], Processes -- Found).

%% A process that only refers to functions of an old version does not keep it from being purged; so no request needs one
%% of its own after it has waited. Of all the modules that a request goes through one is replaced while it waits.
purged_while_asked(Config) ->
    ok = call(Config, ?LOAD, start, [?config(dir, Config), []]),
    Files = fun(Module) ->
        [
            filename:join(Ebin, Module)
         || Version <- [?config(before, Config), ?config(now, Config)],
            {Same, Ebin} <- modules(Version, Config),
            Same =:= Module
        ]
    end,
    Modules = [
        Module
     || {Module, Ebin} <- modules(?config(now, Config), Config),
        string:find(Ebin, "weir_memcached-") =/= nomatch,
        %% Those of processes that wait, which the release handler has go on in the new version.
        not lists:member(Module, [weir_memcached_io, weir_memcached_conn])
    ],
    ?assert(lists:member(weir_memcached_flight, Modules)),
    Outcomes = lists:append([
        call(Config, ?LOAD, purged_while_asked, [Module, Files(Module)])
     || Module <- Modules
    ]),
    ?assertEqual([], [Outcome || {_, _, {Why, _}} = Outcome <- Outcomes, Why =/= answered]).

%% The callback module of a supervisor, as if that were started with it.
supervisor(Pid, Config) ->
    case call(Config, proc_lib, initial_call, [Pid]) of
        {supervisor, Module, ['Argument__1']} -> {Module, init, 1};
        _ -> none
    end.
