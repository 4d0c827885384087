%% The logger handler when its processes are killed and its file fails: each event is written, or counted and reported.
-module(weir_log_h_fault_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, until/1]).
-import(weir_log_h_test_lib, [
    add/3, formatter/1, only_of_test/0, test/0, read/1, lines/1, contains/2, numbers/2, is_written/2, state/1, lost/1,
    writer/1, kill_log/1, in_parallel/2
]).

-define(ID, weir_log_h_fault).
-define(MANAGER, weir_log_h_weir_log_h_fault).

all() -> weir_kit:cases(?MODULE).

init_per_testcase(Case, Config) -> weir_log_h_test_lib:setup(?ID, Case, Config).

end_per_testcase(_Case, Config) -> weir_log_h_test_lib:teardown([weir_log_h_tap], Config).

writer_killed(Config) ->
    ok = add(Config, #{ack => written}, #{}),
    Writer = writer(?ID),
    exit(Writer, kill),
    ok = until(fun() -> is_written(Config, "after the writer") end),
    %% What the log's supervisor says of it is sent to the dead one; the next one tells that something is lost.
    ok = until(fun() -> contains(read(Config), "lost with the writer") end),
    ?assert(lists:member(?ID, logger:get_handler_ids())),
    ?assertNotEqual(Writer, writer(?ID)).

log_killed(Config) ->
    ok = add(Config, #{}, #{}),
    Manager = whereis(?MANAGER),
    kill_log(?ID),
    %% Callers are not disturbed, whatever becomes of their events.
    ok = until(fun() -> is_written(Config, "after the log") end),
    ?assertEqual(Manager, whereis(?MANAGER)),
    ok = until(fun() -> state(?ID) =:= ok end).

manager_killed(Config) ->
    ok = add(Config, #{}, #{}),
    Manager = whereis(?MANAGER),
    ok = kill(Manager),
    ok = until(fun() -> is_written(Config, "after the manager") end),
    ?assertNotEqual(Manager, whereis(?MANAGER)),
    ok = logger:remove_handler(?ID).

%% Many processes meet the end of the log; the other handler hears of it once, and what was lost is in the log that is
%% started in its place.
failure_is_told_once(Config) ->
    Test = self(),
    ok = logger:add_handler(weir_log_h_tap, weir_log_h_test_tap, #{config => #{to => Test}}),
    ok = add(Config, #{}, formatter([msg, "\n"])),
    %% The log cannot start again: a directory is in its place.
    File = ?config(file, Config),
    ok = file:delete(File),
    ok = file:make_dir(File),
    kill_log(?ID),
    %% Its writer may live on for a while, and would report that its file is gone.
    ok = until(fun() -> state(?ID) =:= down end),
    ok = until(fun() -> logger:warning("x", test()), maps:get(warning, lost(?ID), 0) > 0 end),
    ok = in_parallel(20, fun(_) -> [ok = logger:error("x", test()) || _ <- lists:seq(1, 10)] end),
    ?assertMatch(#{error := 200}, lost(?ID)),
    ?assertEqual(down, state(?ID)),
    ok = file:del_dir(File),
    ok = until(fun() -> state(?ID) =:= ok end),
    ?assertMatch([#{label := {weir_log, ended}, log := {weir_log_h, ?ID}}], collect([ended])),
    ?assertEqual(no_more, receive {tap, Report} -> Report after 0 -> no_more end),
    ok = until(fun() -> contains(read(Config), "error 200") end),
    ?assertMatch(#{error := 200}, lost(?ID)).

%% What is said is so: each event that is not in the file is counted by its level, the count is in the report that the
%% file is written to again, and the other handler hears of each only once however the disk changes its mind.
full_disk_is_told_once(Config) ->
    ok = logger:set_primary_config(level, notice),
    Test = self(),
    Module = weir_log_h_test_file,
    ok = Module:reset(),
    ok = logger:add_handler(weir_log_h_tap, weir_log_h_test_tap, #{config => #{to => Test}}),
    ok = add(Config, #{file_module => Module}, formatter([msg, "\n"])),
    [
        begin
            ok = Module:fail(write, enospc),
            [ok = logger:error("lost", test()) || _ <- lists:seq(1, 20)],
            ok = until(fun() -> lost(?ID) =:= #{error => Round * 20} end),
            ok = until(fun() -> state(?ID) =:= failing end),
            ok = Module:reset(),
            ok = logger:error("written", test()),
            ok = until(fun() -> state(?ID) =:= ok end)
        end
     || Round <- [1, 2, 3]
    ],
    ?assertMatch([#{label := {weir_log, failing}, reason := enospc}, #{}], collect([failing, recovered])),
    ?assertEqual(no_more, receive {tap, Report} -> Report after 0 -> no_more end),
    ?assertEqual(60, numbers("([0-9]+) entries were not written", Config)).

%% Small events fit where large ones do not. What is in the file and what is counted as lost are all, by level.
really_full_disk(Config) ->
    Dir = filename:dirname(?config(file, Config)),
    weir_log_file_lib:on_small_disk(Dir, "64k", fun() -> really_full_disk_(Dir, Config) end).

really_full_disk_(Dir, Config) ->
    Ballast = filename:join(Dir, "ballast"),
    ok = file:write_file(Ballast, binary:copy(<<"b">>, 32 * 1024)),
    ok = logger:set_primary_config(level, info),
    ok = logger:add_handler(weir_log_h_tap, weir_log_h_test_tap, #{config => #{to => self()}}),
    ok = add(Config, #{ack => written, timeout => infinity}, formatter([level, " ", msg, "\n"])),
    Logged = counters:new(2, []),
    Error = fun() -> counters:add(Logged, 1, 1), logger:error(lists:duplicate(20 * 1024, $x), test()) end,
    Info = fun() -> counters:add(Logged, 2, 1), logger:info(lists:duplicate(50, $x), test()) end,
    ok = until(fun() ->
        ok = Error(),
        ok = Info(),
        maps:get(error, lost(?ID), 0) >= 5
    end),
    ok = until(fun() ->
        ok = Error(),
        state(?ID) =:= failing
    end),
    ok = file:delete(Ballast),
    ok = until(fun() ->
        ok = Info(),
        state(?ID) =:= ok
    end),
    ?assertMatch([#{label := {weir_log, failing}, reason := enospc}, #{}], collect([failing, recovered])),
    ?assertEqual(no_more, receive {tap, Report} -> Report after 0 -> no_more end),
    Lost = lost(?ID),
    Told = fun() -> numbers("([0-9]+) entr(?:y was|ies were) not written", Config) end,
    ok = until(fun() -> Told() =:= lists:sum(maps:values(Lost)) orelse {Told(), Lost} end),
    Lines = lines(Config),
    Of = fun(Level) -> length([Line || Line <- Lines, contains(Line, [Level, " xx"])]) end,
    InFile = [Of("error"), Of("info")],
    ?assert(lists:min(InFile) > 0),
    Counted = [maps:get(Level, Lost, 0) || Level <- [error, info]],
    All = [counters:get(Logged, Index) || Index <- [1, 2]],
    ok = weir_kit:same(written_and_counted, All, lists:zipwith(fun erlang:'+'/2, InFile, Counted)),
    ?assertEqual([], maps:keys(Lost) -- [error, info]),
    ?assertEqual(Lost, lost(?ID)),
    ok = logger:remove_handler(?ID).

%% After a failed fdatasync the log takes nothing until its file is opened again, which it is for the next event.
sync_fails(Config) ->
    Module = weir_log_h_test_file,
    ok = Module:reset(),
    ok = add(Config, #{file_module => Module, sync_interval => 10}, only_of_test()),
    ok = Module:fail(sync, eio),
    logger:error("x", test()),
    ok = until(fun() -> state(?ID) =:= failing end),
    ok = Module:reset(),
    logger:error("after the failure", test()),
    ok = until(fun() -> state(?ID) =:= ok end),
    ?assert(contains(iolist_to_binary(lines(Config)), "after the failure")).

%% A full disk. Who waits is not told, as logger has no way for it, but every event is counted.
write_fails(Config) ->
    Module = weir_log_h_test_file,
    ok = Module:reset(),
    ok = add(Config, #{file_module => Module, ack => written}, only_of_test()),
    ok = Module:fail(write, enospc),
    [ok = logger:error("x", test()) || _ <- lists:seq(1, 7)],
    [ok = logger:warning("x", test()) || _ <- lists:seq(1, 3)],
    ?assertEqual(#{error => 7, warning => 3}, lost(?ID)),
    ok = until(fun() -> state(?ID) =:= failing end),
    ok = Module:reset(),
    ok = until(fun() -> is_written(Config, "after the failure") end),
    ok = until(fun() -> state(?ID) =:= ok end),
    ?assert(lists:member(?ID, logger:get_handler_ids())).

%% Nobody waits, and nothing is synced, so nobody would be told that the disk is full.
write_fails_unseen(Config) ->
    Module = weir_log_h_test_file,
    ok = Module:reset(),
    ok = add(Config, #{file_module => Module, overload => {drop, error}, sync_interval => 10}, only_of_test()),
    ok = Module:fail(write, enospc),
    logger:warning("x", test()),
    ok = until(fun() -> state(?ID) =:= failing end),
    ok = Module:reset(),
    ok = until(fun() -> state(?ID) =:= ok end),
    logger:error("after the failure", test()),
    ok = weir_log_h:sync(?ID),
    ?assert(contains(read(Config), "after the failure")).

%% Of what is dropped at the edge of the window nothing is formatted, and all is counted.
dropped_is_not_formatted(Config) ->
    Formatter = #{formatter => {?MODULE, #{to => self()}}},
    ok = add(Config, #{window => 2, overload => {drop, error}}, maps:merge(only_of_test(), Formatter)),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    [ok = logger:warning("x", test()) || _ <- lists:seq(1, 5)],
    %% Before the writer tells what was dropped, which is formatted too.
    ?assertEqual(2, formatted()),
    true = erlang:resume_process(Writer),
    {ok, #{log := #{dropped := Dropped}}} = weir_log_h:info(?ID),
    ?assertEqual(3, Dropped).

formatted() ->
    receive
        formatted -> 1 + formatted()
    after 0 -> 0
    end.

collect([]) ->
    [];
collect([What | More]) ->
    receive
        {tap, #{label := {weir_log, What}} = Report} -> [Report | collect(More)]
    after weir_kit:wait_ms() -> error({missing, What})
    end.

%% A formatter.
format(_Event, #{to := Pid}) ->
    Pid ! formatted,
    "x\n".

check_config(_FormatterConfig) -> ok.
