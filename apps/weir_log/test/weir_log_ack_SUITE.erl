%% When log/2 answers, and what it says when something fails: nobody gets ok before it is true, and an error is for
%% exactly those it is about. The file is one that blocks and fails on demand.
-module(weir_log_ack_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, until/1]).

-define(CALLERS, 100).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).
end_per_suite(Config) -> weir_kit:loud(Config).
init_per_testcase(Case, Config) -> weir_log_test_lib:setup(Case, Config).
end_per_testcase(_Case, Config) -> weir_log_test_lib:teardown(Config).

open(Config, Opts) -> weir_log_test_lib:open(log, Config, maps:merge(#{file_module => weir_log_test_file}, Opts)).

log_all(Log) -> weir_log_test_lib:crowd(?CALLERS, fun(I) -> weir_log:log(Log, integer_to_binary(I)) end).

%% Waits until the entries of that many callers wait behind the one that the writer is busy with.
queued(Log, N) ->
    until(fun() ->
        #{waiting_entries := Waiting, queue := Queue} = queue(Log),
        (Waiting =:= N + 1 andalso Queue =:= N) orelse {Waiting, Queue}
    end).

%% Without a question to the writer, which would be in its queue.
queue(Log) ->
    [Writer] = weir_log_test_lib:writers(Log),
    Word = atomics:get(weir_log_test_lib:words(Log), 8),
    #{waiting_entries => Word bsr 37, queue => queue_len(Writer)}.

all(Answer) -> [{I, Answer} || I <- lists:seq(1, ?CALLERS)].

%% Nothing has been written when this answers.
accepted(Config) ->
    {Log, _} = open(Config, #{ack => accepted}),
    ok = weir_log_test_file:set(write, {block, self()}),
    ok = weir_log:log(Log, <<"a">>),
    Writer = weir_log_test_file:await(write),
    ?assertMatch(#{entries := 0}, weir_log_test_lib:info(Log)),
    ok = weir_log_test_file:go(Writer, ok),
    ok = weir_log:sync(Log),
    ?assertMatch(#{entries := 1}, weir_log_test_lib:info(Log)).

written(Config) -> waits_for(write, #{ack => written}, Config).
synced(Config) -> waits_for(sync, #{ack => synced}, Config).

waits_for(Function, Opts, Config) ->
    {Log, Path} = open(Config, Opts),
    ok = weir_log_test_file:set(Function, {block, self()}),
    Crowd = weir_log_test_lib:crowd(1, fun(_) -> weir_log:log(Log, <<"a">>) end),
    Writer = weir_log_test_file:await(Function),
    ok = weir_log_test_lib:all_asleep(Crowd),
    ok = weir_log_test_file:go(Writer, ok),
    ?assertEqual([{1, ok}], weir_log_test_lib:await(Crowd)),
    ?assertEqual([<<"a">>], weir_log_test_lib:lines(Path)).

one_write_for_all(Config) ->
    {Log, Path} = open(Config, #{}),
    Writer = weir_log_test_lib:blocked(write, Log),
    Crowd = log_all(Log),
    ok = queued(Log, ?CALLERS),
    ok = weir_log_test_file:go(Writer, ok),
    ?assertEqual(all(ok), weir_log_test_lib:await(Crowd)),
    ?assertEqual(2, weir_log_test_file:calls(write)),
    ?assertMatch(#{largest_batch := ?CALLERS, writes := 2, syncs := 0}, weir_log_test_lib:info(Log)),
    ?assertEqual(?CALLERS + 1, length(weir_log_test_lib:lines(Path))).

%% Lines, those that tell of losses without when they were.
whats(Path) -> [what(Line) || Line <- weir_log_test_lib:lines(Path)].

what(Line) ->
    case re:run(Line, "^weir_log: from \\S+Z to \\S+Z: (.*)$", [{capture, [1], binary}]) of
        {match, [What]} -> What;
        nomatch -> Line
    end.

one_sync_for_all(Config) ->
    {Log, _} = open(Config, #{ack => synced}),
    Writer = weir_log_test_lib:blocked(write, Log),
    Crowd = log_all(Log),
    Syncs = weir_log_test_lib:crowd(5, fun(_) -> weir_log:sync(Log) end),
    ok = until(fun() -> maps:get(queue, queue(Log)) =:= ?CALLERS + 5 end),
    ok = weir_log_test_file:go(Writer, ok),
    ?assertEqual(all(ok), weir_log_test_lib:await(Crowd)),
    ?assertEqual([{I, ok} || I <- lists:seq(1, 5)], weir_log_test_lib:await(Syncs)),
    ?assertEqual(1, weir_log_test_file:calls(sync)).

%% A level that is none is counted without one, and takes no writer down.
no_level(Config) ->
    {Log, _} = open(Config, #{}),
    Writers = weir_log_test_lib:writers(Log),
    ok = weir_log_test_file:set(write, {error, enospc}),
    ?assertEqual({error, enospc}, weir_log:log(Log, <<"x">>, warn)),
    ?assertMatch(#{lost_by_level := #{none := 1}}, weir_log_test_lib:shard(Log)),
    ?assertEqual(Writers, weir_log_test_lib:writers(Log)).

write_fails_its_batch(Config) ->
    {Log, Path} = open(Config, #{}),
    Writer = weir_log_test_lib:blocked(write, Log),
    First = log_all(Log),
    ok = queued(Log, ?CALLERS),
    %% All that were waiting fail; the one that was in hand does, too.
    ok = weir_log_test_file:go(Writer, {error, enospc}),
    ?assertEqual(all({error, enospc}), weir_log_test_lib:await(First)),
    [ok = weir_log_test_file:set(Function, ok) || Function <- [write, sync]],
    ?assertEqual(all(ok), weir_log_test_lib:await(log_all(Log))),
    ?assertMatch(#{failed := ?CALLERS + 1, waiting_bytes := 0}, weir_log_test_lib:shard(Log)),
    ok = weir_log:close(Log),
    {Told, Numbers} = weir_log_test_lib:told(weir_log_test_lib:lines(Path)),
    ?assertEqual([<<"101 entries were not written (none 101)">>], [what(Line) || Line <- Told]),
    ?assertEqual(lists:sort([integer_to_binary(I) || I <- lists:seq(1, ?CALLERS)]), lists:sort(Numbers)).

sync_fails_its_batch(Config) ->
    {Log, _} = open(Config, #{ack => synced}),
    ?assertEqual(ok, weir_log:log(Log, <<"before">>)),
    Writer = weir_log_test_lib:blocked(write, Log),
    Crowd = log_all(Log),
    ok = queued(Log, ?CALLERS),
    ok = weir_log_test_file:set(write, ok),
    ok = weir_log_test_file:set(sync, {error, eio}),
    ok = weir_log_test_file:let_go(Writer, ok),
    ?assertEqual(all({error, eio}), weir_log_test_lib:await(Crowd)),
    ?assertEqual({error, eio}, weir_log:sync(Log)),
    ok = weir_log_test_file:set(sync, ok),
    ?assertEqual(ok, weir_log:log(Log, <<"after">>)).

%% Who closes hears that the disk has not taken what was sent last; the log is closed all the same.
close_tells(Config) ->
    {Log, _} = open(Config, #{}),
    ok = weir_log:alog(Log, <<"a">>),
    ok = weir_log_test_file:set(sync, {error, eio}),
    ?assertEqual({error, eio}, weir_log:close(Log)),
    ?assertEqual({error, no_log}, weir_log:close(Log)).

accepted_waits_in_trouble(Config) ->
    {Log, Path} = open(Config, #{ack => accepted}),
    ok = weir_log_test_file:set(write, {error, enospc}),
    %% The first is accepted before it is known.
    ?assertEqual(ok, weir_log:log(Log, <<"a">>)),
    ?assertEqual({error, enospc}, weir_log:log(Log, <<"b">>)),
    ?assertEqual({error, enospc}, weir_log:log(Log, <<"c">>)),
    ok = weir_log_test_file:set(write, ok),
    ?assertEqual(ok, weir_log:log(Log, <<"d">>)),
    %% What the log tells of the three is the first to fail otherwise, when it comes between the next two lines.
    ok = until(fun() ->
        {Told, _} = weir_log_test_lib:told(weir_log_test_lib:lines(Path)),
        Told =/= []
    end),
    ok = weir_log_test_file:set(write, {error, enospc}),
    ?assertEqual(ok, weir_log:log(Log, <<"e">>)),
    ?assertEqual({error, enospc}, weir_log:log(Log, <<"f">>)).

failed_are_told(Config) ->
    {Log, Path} = open(Config, #{window => 1000}),
    ok = weir_log_test_file:set(write, {error, enospc}),
    [ok = weir_log:alog(Log, <<"a">>) || _ <- lists:seq(1, 10)],
    ok = until(fun() -> maps:get(failed, weir_log_test_lib:info(Log)) =:= 10 end),
    ok = weir_log_test_file:set(write, ok),
    ok = weir_log:log(Log, <<"b">>),
    ok = until(fun() -> length(weir_log_test_lib:lines(Path)) =:= 2 end),
    {Told, Entries} = weir_log_test_lib:told(weir_log_test_lib:lines(Path)),
    ?assertEqual({[<<"10 entries were not written (none 10)">>], [<<"b">>]}, {[what(Line) || Line <- Told], Entries}),
    %% Once.
    ok = weir_log:close(Log),
    ?assertEqual(2, length(weir_log_test_lib:lines(Path))).

%% Nobody writes any more, and the log tells all the same.
told_by_the_probe(Config) ->
    {Log, Path} = open(Config, #{}),
    ok = weir_log_test_file:set(write, {error, enospc}),
    ?assertEqual({error, enospc}, weir_log:log(Log, <<"a">>)),
    ok = until(fun() -> weir_log_test_file:calls(write) >= 2 end),
    ok = weir_log_test_file:set(write, ok),
    ok = until(fun() -> weir_log_test_lib:lines(Path) =/= [] end),
    ?assertEqual([<<"1 entry was not written (none 1)">>], [what(Line) || Line <- weir_log_test_lib:lines(Path)]),
    ?assertMatch(#{failed := 1}, weir_log_test_lib:info(Log)).

tell_function(Config) ->
    Self = self(),
    Tell = fun(Loss) ->
        Self ! {told, Loss},
        case Loss of
            #{failed := #{none := 1}} -> <<"one">>;
            _ -> error(oops)
        end
    end,
    {Log, Path} = open(Config, #{tell => Tell}),
    [
        begin
            ok = weir_log_test_file:set(write, {error, enospc}),
            [{error, enospc} = weir_log:log(Log, <<"a">>) || _ <- lists:seq(1, N)],
            ok = weir_log_test_file:set(write, ok),
            ok = until(fun() -> length(weir_log_test_lib:lines(Path)) =:= N end)
        end
     || N <- [1, 2]
    ],
    ?assertEqual([<<"one">>, <<"2 entries were not written (none 2)">>], whats(Path)),
    receive
        {told, Loss} -> ?assertMatch(#{dropped := #{}, failed := #{none := 1}, lost := 0, from := At, to := At}, Loss)
    after 0 -> error(not_told)
    end.

%% More than is written at a time.
large_batches(Config) ->
    {Log, Path} = open(Config, #{ack => synced}),
    Writer = weir_log_test_lib:blocked(write, Log),
    Large = binary:copy(<<"x">>, 600_000),
    Crowd = weir_log_test_lib:crowd(10, fun(_) -> weir_log:log(Log, Large) end),
    ok = queued(Log, 10),
    ok = weir_log_test_file:go(Writer, ok),
    ?assertEqual([{I, ok} || I <- lists:seq(1, 10)], weir_log_test_lib:await(Crowd)),
    %% Two fill a write.
    ?assertEqual(6, weir_log_test_file:calls(write)),
    ?assertEqual(5, weir_log_test_file:calls(sync)),
    ?assertEqual(10 * 600_001 + 6, filelib:file_size(Path)).

%% Once when it begins and once when it has been over for some time, unless the log is not to, by processes that the
%% writer does not wait for.
trouble_is_reported(Config) ->
    Before = logger:get_primary_config(),
    ok = logger:set_primary_config(level, notice),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self(), level => notice}),
    try
        {Log, _} = open(Config, #{}),
        {ok, Silent} = weir_log:open(silent, #{
            file => weir_log_test_lib:path("silent", Config), file_module => weir_log_test_file, report => false
        }),
        [
            begin
                %% The log that reports fails again right after its last success: five seconds make it another failure.
                ok = weir_log_test_file:set(write, {error, enospc}),
                [{error, enospc} = weir_log:log(L, <<"a">>) || L <- [Log, Silent], _ <- lists:seq(1, 5)],
                ok = weir_log_test_file:set(write, ok),
                [ok = weir_log:log(L, <<"a">>) || L <- [Silent, Log], _ <- lists:seq(1, 5)]
            end
         || _ <- [1, 2]
        ],
        ?assertEqual([error, notice], [reported() || _ <- [1, 2]]),
        receive
            {reported, _} = More -> error(More)
        after 0 -> ok
        end
    after
        ok = logger:remove_handler(?MODULE),
        ok = logger:set_primary_config(Before)
    end.

reported() ->
    receive
        {reported, Level} -> Level
    after weir_kit:wait_ms() -> error(not_reported)
    end.

%% A logger handler.
log(#{level := Level, msg := {report, #{label := {weir_log, _}} = Report}}, #{config := Test}) ->
    {Format, Args} = weir_log_event:format(Report),
    "weir_log log: " ++ _ = lists:flatten(io_lib:format(Format, Args)),
    Test ! {reported, Level};
log(_Event, _Config) ->
    ok.

%% Where there is telemetry it gets every event, also of a log that does not report.
telemetry(Config) ->
    ok = weir_kit_telemetry:load(),
    try
        {Log, Path} = open(Config, #{report => false}),
        ok = weir_log_test_file:set(write, {error, enospc}),
        {error, enospc} = weir_log:log(Log, <<"a">>),
        ?assertEqual({failing, #{}, #{log => Log, path => Path, reason => enospc}}, event()),
        ok = weir_log_test_file:set(write, ok),
        ok = weir_log:log(Log, <<"a">>),
        %% By processes of their own: which comes first is not said.
        ?assertEqual(
            [
                {lost, #{dropped => 0, failed => 1, lost => 0}, #{log => Log, path => Path}},
                {recovered, #{}, #{log => Log, path => Path}}
            ],
            lists:sort([event(), event()])
        )
    after
        weir_kit_telemetry:unload()
    end.

event() -> weir_kit_telemetry:event(weir_log).

