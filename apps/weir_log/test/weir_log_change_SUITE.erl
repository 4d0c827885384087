%% Options that change while a log is open, and that stay changed when its writer is started again.
-module(weir_log_change_SUITE).

-include_lib("kernel/include/file.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    what_callers_read/1, what_the_writer_reads/1, rotation/1, date_format/1, mode/1, survives_a_writer/1, refused/1, no_log/1,
    nothing_is_lost/1, behind_a_handler/1
]).

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [
        what_callers_read, what_the_writer_reads, rotation, date_format, mode, survives_a_writer, refused, no_log,
        nothing_is_lost, behind_a_handler
    ].

init_per_suite(Config) -> weir_log_test_lib:quiet(Config).
end_per_suite(Config) -> weir_log_test_lib:loud(Config).
init_per_testcase(Case, Config) -> weir_log_test_lib:setup(Case, Config).
end_per_testcase(_Case, Config) -> weir_log_test_lib:teardown(Config).

what_callers_read(Config) ->
    {Log, _} = weir_log_test_lib:open(log, Config, #{}),
    ok = weir_log:change(Log, #{window => 3, max_bytes => 1000, overload => reject, timeout => 77, ack => synced}),
    ?assertMatch(
        #{window := 3, max_bytes := 1000, overload := reject, timeout := 77, ack := synced}, weir_log_test_lib:info(Log)
    ),
    %% What is not mentioned stays; the default of the window is not that of another policy.
    ok = weir_log:change(Log, #{overload => wait}),
    ?assertMatch(#{window := 3, overload := wait, timeout := 77}, weir_log_test_lib:info(Log)),
    ok = weir_log:log(Log, <<"x">>),
    ?assertMatch(#{syncs := 1}, weir_log_test_lib:info(Log)).

what_the_writer_reads(Config) ->
    {Log, _} = weir_log_test_lib:open(log, Config, #{}),
    ok = weir_log:log(Log, <<"x">>),
    ?assertMatch(#{syncs := 0}, weir_log_test_lib:info(Log)),
    ok = weir_log:change(Log, #{sync_interval => 1}),
    ok = weir_log:log(Log, <<"x">>),
    ok = weir_log_test_lib:eventually(fun() -> maps:get(syncs, weir_log_test_lib:info(Log)) > 0 end).

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
    ok = weir_log_file_lib:tidied(Path),
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
    ok = weir_log_test_lib:kill(Writer),
    ok = weir_log_test_lib:eventually(fun() -> weir_log_test_lib:writers(Log) =/= [Writer] end),
    [ok = weir_log:log(Log, <<"y">>) || _ <- lists:seq(1, 5)],
    ?assertEqual(3, length(filelib:wildcard(Path ++ "*"))).

refused(Config) ->
    {Log, Path} = weir_log_test_lib:open(log, Config, #{}),
    Before = weir_log_test_lib:info(Log),
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
    ?assertEqual(Before, weir_log_test_lib:info(Log)),
    ?assertError(badarg, weir_log:change(Log, window)).

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

behind_a_handler(Config) ->
    Path = weir_log_test_lib:path("handler", Config),
    ok = logger:add_handler(?MODULE, weir_log_h, #{config => #{file => Path}}),
    try
        ok = logger:update_handler_config(?MODULE, config, #{window => 5, rotate => #{max_bytes => 100}}),
        {ok, #{log := #{window := 5}}} = weir_log_h:info(?MODULE),
        ?assertEqual(
            {error, {bad_option, window, 0}}, logger:update_handler_config(?MODULE, config, #{window => 0})
        ),
        {ok, #{config := #{window := 5}}} = logger:get_handler_config(?MODULE),
        ?assertEqual(
            {error, {cannot_change, frame}}, logger:update_handler_config(?MODULE, config, #{frame => true})
        ),
        %% And is so when the log has been started again.
        {ok, Sup} = weir_log_registry:lookup(weir_log_h:name(?MODULE)),
        ok = weir_log_test_lib:kill(Sup),
        ok = weir_log_test_lib:eventually(fun() ->
            case {weir_log_registry:lookup(weir_log_h:name(?MODULE)), weir_log_h:info(?MODULE)} of
                {{ok, Next}, {ok, #{log := #{window := 5, format := raw}}}} -> Next =/= Sup;
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
        ok = logger:remove_handler(?MODULE)
    end.
