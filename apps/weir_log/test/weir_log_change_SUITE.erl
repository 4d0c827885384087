%% Options that change while a log is open, and that stay changed when its writer is started again.
-module(weir_log_change_SUITE).

-include_lib("kernel/include/file.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, until/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).
end_per_suite(Config) -> weir_kit:loud(Config).
init_per_testcase(Case, Config) -> weir_log_test_lib:setup(Case, Config).
end_per_testcase(_Case, Config) -> weir_log_test_lib:teardown(Config).

what_callers_read(Config) ->
    {Log, _} = weir_log_test_lib:open(log, Config, #{}),
    ok = weir_log:change(Log, #{window => 3, max_bytes => 1000, overload => reject, timeout => 77_000, ack => synced}),
    ?assertMatch(
        #{window := 3, max_bytes := 1000, overload := reject, timeout := 77_000, ack := synced},
        weir_log_test_lib:info(Log)
    ),
    %% What is not mentioned stays; the default of the window is not that of another policy.
    ok = weir_log:change(Log, #{overload => wait}),
    ?assertMatch(#{window := 3, overload := wait, timeout := 77_000}, weir_log_test_lib:info(Log)),
    ok = weir_log:log(Log, <<"x">>),
    ?assertMatch(#{syncs := 1}, weir_log_test_lib:info(Log)).

what_the_writer_reads(Config) ->
    {Log, _} = weir_log_test_lib:open(log, Config, #{}),
    ok = weir_log:log(Log, <<"x">>),
    ?assertMatch(#{syncs := 0}, weir_log_test_lib:info(Log)),
    ok = weir_log:change(Log, #{sync_interval => 1}),
    ok = weir_log:log(Log, <<"x">>),
    ok = until(fun() -> maps:get(syncs, weir_log_test_lib:info(Log)) > 0 end).

rotation(Config) ->
    {Log, Path} = weir_log_test_lib:open(log, Config, #{}),
    [ok = weir_log:log(Log, <<"x">>) || _ <- lists:seq(1, 5)],
    ok = weir_log:change(Log, #{rotate => #{max_bytes => 4}}),
    [ok = weir_log:log(Log, <<"y">>) || _ <- lists:seq(1, 5)],
    ?assertEqual([<<"y">>], weir_log_test_lib:lines(Path)),
    ?assertEqual(4, length(filelib:wildcard(Path ++ "*"))).

%% Names of the user's own are numbered on, kept, compressed, listed and read back, also after the log was opened again.
date_format(Config) ->
    Opts = #{newline => false, frame => true, rotate => #{date_format => "%Y-%m-%d", keep_files => 3, gzip => true}},
    {Log, Path} = weir_log_test_lib:open(log, Config, Opts),
    Rotate = fun(Entry) ->
        ok = weir_log:log(Log, Entry),
        ok = weir_log:rotate(Log)
    end,
    lists:foreach(Rotate, [<<"1">>, <<"2">>]),
    ok = weir_log:close(Log),
    {Log, Path} = weir_log_test_lib:open(log, Config, Opts),
    lists:foreach(Rotate, [<<"3">>, <<"4">>]),
    ok = weir_log_file_lib:cleaned(Path),
    {ok, [{shard, Files}]} = weir_log:history(Log),
    %% The day may end meanwhile.
    ?assertMatch([_, _, _, _], Files),
    [
        ?assertMatch(
            {match, _}, re:run(File, "\\.20[0-9]{2}-[01][0-9]-[0-3][0-9](-000[0-9])?\\.gz$", [unicode])
        )
     || File <- lists:droplast(Files)
    ],
    ?assertEqual(
        {ok, [<<"4">>, <<"3">>, <<"2">>]},
        weir_log:merge(fun(_, Entry, Acc) -> [binary:copy(Entry) | Acc] end, [], [{shard, Files}])
    ).

mode(Config) ->
    {Log, Path} = weir_log_test_lib:open(log, Config, #{}),
    ok = weir_log:log(Log, <<"x">>),
    ok = weir_log:change(Log, #{mode => 8#600}),
    ok = weir_log:rotate(Log),
    ok = weir_log:log(Log, <<"y">>),
    {ok, #file_info{mode = Mode}} = file:read_file_info(Path),
    ?assertEqual(8#600, Mode band 8#777).

survives_a_writer(Config) ->
    {Log, Path} = weir_log_test_lib:open(log, Config, #{}),
    ok = weir_log:change(Log, #{rotate => #{max_bytes => 4}}),
    [Writer] = weir_log_test_lib:writers(Log),
    ok = kill(Writer),
    ok = until(fun() -> weir_log_test_lib:writers(Log) =/= [Writer] end),
    [ok = weir_log:log(Log, <<"y">>) || _ <- lists:seq(1, 5)],
    ?assertEqual(3, length(filelib:wildcard(Path ++ "*"))).

survives_an_opener(Config) ->
    {Log, _} = weir_log_test_lib:open(log, Config, #{}),
    ok = weir_log:change(Log, #{window => 3}),
    {ok, Sup} = weir_log_registry:lookup(Log),
    Opener = fun() -> element(2, lists:keyfind(opener, 1, supervisor:which_children(Sup))) end,
    Killed = Opener(),
    ok = kill(Killed),
    ok = until(fun() -> is_pid(Opener()) andalso Opener() =/= Killed end),
    ?assertMatch(#{window := 3}, weir_log_test_lib:info(Log)).

refused(Config) ->
    {Log, Path} = weir_log_test_lib:open(log, Config, #{}),
    [Writer] = weir_log_test_lib:writers(Log),
    {ok, File} = gen_server:call(Writer, info, infinity),
    Before = without_files(Log),
    [
        ?assertEqual({Change, {error, Reason}}, {Change, weir_log:change(Log, Change)})
     || {Change, Reason} <- [
            {#{file => "other"}, {cannot_change, file}},
            {#{newline => false}, {cannot_change, newline}},
            {#{shards => 2}, {cannot_change, shards}},
            {#{window => 0}, {bad_option, window, 0}},
            {#{window => 5, nonsense => 1}, {bad_option, nonsense, 1}}
        ]
    ],
    ok = weir_log:change(Log, #{file => Path, newline => true, shards => 1}),
    ?assertEqual(Before, without_files(Log)),
    ?assertEqual({ok, File}, gen_server:call(Writer, info, infinity)),
    ?assertError(badarg, weir_log:change(Log, window)).

%% What a writer is asked for it may not answer in time, and then has in its queue.
without_files(Log) ->
    #{shards := Shards} = Info = weir_log_test_lib:info(Log),
    Info#{shards := [maps:without([file, queue], Shard) || Shard <- Shards]}.

no_log(_Config) -> ?assertEqual({error, no_log}, weir_log:change(log, #{window => 1})).

%% Callers go on while options change, which has the file closed and opened.
nothing_is_lost(Config) ->
    {Log, Path} = weir_log_test_lib:open(log, Config, #{}),
    Each = 500,
    Crowd = weir_log_test_lib:crowd(10, fun(I) ->
        [ok = weir_log:alog(Log, io_lib:format("~b ~b", [I, N])) || N <- lists:seq(1, Each)]
    end),
    [ok = weir_log:change(Log, #{check_ms => N, window => N}) || N <- lists:seq(1, 50)],
    _ = weir_log_test_lib:await(Crowd),
    ok = weir_log:close(Log),
    weir_log_test_lib:in_order(10, Each, weir_log_test_lib:lines(Path)).

%% At the next rotation, as at every opening.
keep_days(Config) ->
    {Log, Path} = weir_log_test_lib:open(log, Config, #{}),
    Stamp = {erlang:system_time(second) - 2 * 86_400 - 60, 0},
    Old = weir_log_rotation:name(iolist_to_binary(Path), weir_log_file_lib:basic(), Stamp),
    ok = file:write_file(Old, "old"),
    Rotate = fun() ->
        ok = weir_log:log(Log, <<"x">>),
        ok = weir_log:rotate(Log),
        ok = weir_log_file_lib:cleaned(Path),
        filelib:is_file(Old)
    end,
    ok = weir_log:change(Log, #{rotate => #{keep_days => 3}}),
    ?assert(Rotate()),
    ok = weir_log:change(Log, #{rotate => #{keep_days => 2}}),
    ?assertNot(Rotate()).

%% The text about losses, and whether logger hears of a file that fails.
tell_and_report(Config) ->
    Options = #{overload => {drop, error}, window => 1, report => false, file_module => weir_log_test_file},
    {Log, Path} = weir_log_test_lib:open(log, Config, Options),
    {Other, _} = weir_log_test_lib:open(other, Config, Options),
    ok = logger:add_handler(?MODULE, weir_log_h_test_tap, #{config => #{to => self()}}),
    try
        ok = logger:set_primary_config(level, notice),
        ok = weir_log:change(Log, #{tell => fun(#{dropped := #{none := N}}) -> ["lost: ", integer_to_list(N)] end}),
        [Writer] = weir_log_test_lib:writers(Log),
        true = erlang:suspend_process(Writer),
        [_ | Refused] = [weir_log:alog(Log, <<"x">>) || _ <- lists:seq(1, 4)],
        ?assertEqual([{error, {dropped, Log}}], lists:usort(Refused)),
        true = erlang:resume_process(Writer),
        ok = until(fun() -> lists:member(<<"lost: 3">>, weir_log_test_lib:lines(Path)) end),
        Fail = fun(Which) ->
            ok = weir_log_test_file:set(write, {error, enospc}),
            {error, _} = weir_log:log(Which, <<"x">>),
            ok = weir_log_test_file:set(write, ok),
            ok = until(fun() -> weir_log:log(Which, <<"x">>) =:= ok end)
        end,
        ok = Fail(Log),
        %% That failure is over when there has been none for five seconds; the next one of another log is told at once.
        ok = weir_log:change(Other, #{report => true}),
        ok = Fail(Other),
        receive
            {tap, Report} -> ?assertMatch(#{label := {weir_log, failing}, log := Other}, Report)
        after weir_kit:wait_ms() -> ct:fail(not_reported)
        end
    after
        ok = logger:set_primary_config(level, none),
        ok = logger:remove_handler(?MODULE)
    end.

behind_a_handler(Config) ->
    Path = weir_log_test_lib:path("handler", Config),
    ok = logger:add_handler(?MODULE, weir_log_h, #{config => #{file => Path, timeout => weir_kit:wait_ms()}}),
    try
        ok = logger:update_handler_config(?MODULE, config, #{window => 5, rotate => #{max_bytes => 100}}),
        {ok, #{log := #{window := 5}}} = weir_log_h:info(?MODULE),
        ok = logger:set_primary_config(level, notice),
        %% What is written at once is in one file.
        lists:foreach(
            fun(_) ->
                ok = logger:error("a line of some length"),
                ok = weir_log_h:sync(?MODULE)
            end,
            lists:seq(1, 10)
        ),
        ?assertMatch([_, _, _ | _], filelib:wildcard(Path ++ "*")),
        %% Of the others each is what the log has, too.
        Options = #{timeout => 77_000, ack => synced, overload => {drop, error}, max_bytes => 1000},
        ok = logger:update_handler_config(?MODULE, config, Options),
        {ok, #{log := Info}} = weir_log_h:info(?MODULE),
        ?assertEqual(Options, maps:with(maps:keys(Options), Info)),
        #{syncs := Syncs} = Info,
        ok = logger:error("synced"),
        ?assertMatch({ok, #{log := #{syncs := Now}}} when Now > Syncs, weir_log_h:info(?MODULE)),
        ?assertEqual(
            {error, {bad_option, window, 0}}, logger:update_handler_config(?MODULE, config, #{window => 0})
        ),
        {ok, #{config := #{window := 5}}} = logger:get_handler_config(?MODULE),
        ?assertEqual(
            {error, {cannot_change, frame}}, logger:update_handler_config(?MODULE, config, #{frame => true})
        ),
        %% And is so when the log has been started again.
        {ok, Sup} = weir_log_registry:lookup(weir_log_h:name(?MODULE)),
        ok = kill(Sup),
        ok = until(fun() ->
            case {weir_log_registry:lookup(weir_log_h:name(?MODULE)), weir_log_h:info(?MODULE)} of
                {{ok, Next}, {ok, #{log := #{window := 5, format := lines}}}} -> Next =/= Sup;
                Other -> Other
            end
        end),
        %% What is not mentioned has its default again.
        ok = logger:set_handler_config(?MODULE, config, #{file => Path}),
        ?assertMatch({ok, #{log := #{window := 16}}}, weir_log_h:info(?MODULE)),
        %% The level is logger's: the log is not asked, whatever it does.
        [Writer] = weir_log_test_lib:writers(weir_log_h:name(?MODULE)),
        true = erlang:suspend_process(Writer),
        ok = logger:set_handler_config(?MODULE, level, error),
        true = erlang:resume_process(Writer)
    after
        ok = logger:set_primary_config(level, none),
        ok = logger:remove_handler(?MODULE)
    end.
