%% The logger handler: beside logger_std_h, with wrong options, while callers wait, and as the node's default.
-module(weir_log_h_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, until/1]).
-import(weir_kit_nodes, [call/4]).
-import(weir_log_test_lib, [in_order/3]).
-import(weir_log_h_test_lib, [
    add/3, formatter/1, only_of_test/0, test/0, read/1, read_lines/1, lines/1, contains/2, numbers/2, state/1, lost/1,
    writer/1, kill_log/1, callers/2, all_wait/1, await_normal/1, in_parallel/2
]).

-define(ID, weir_log_h_test).
-define(MANAGER, weir_log_h_weir_log_h_test).
-define(STD, weir_log_h_std).

all() -> weir_kit:cases(?MODULE).

init_per_testcase(Case, Config) ->
    Own = weir_log_h_test_lib:setup(?ID, Case, Config),
    [{std_file, filename:join(filename:dirname(?config(file, Own)), "std.log")} | Own].

end_per_testcase(_Case, Config) -> weir_log_h_test_lib:teardown([?STD], Config).

%% ---------------------------------------------------------------- the same bytes

same_bytes(Config) ->
    ok = logger:set_primary_config(level, all),
    ok = add_both(Config, only_of_test()),
    [logger:log(Level, "~ts of ~p", ["a line", Level], test()) || Level <- levels()],
    logger:notice("a string", test()),
    logger:notice("", test()),
    logger:notice("first\nsecond\n\nfourth ~w", [{tuple, "list"}], test()),
    logger:notice([228, 8364, 128512, $\n, "utf8: ", <<"ä€"/utf8>>], test()),
    logger:notice(#{a => 1, b => [x, "y"], c => #{d => <<1, 2>>}}, test()),
    logger:notice([{a, 1}, {b, "two"}], test()),
    logger:notice(#{with => callback}, (test())#{report_cb => fun(R) -> {"one: ~p", [R]} end}),
    logger:notice(#{with => callback}, (test())#{report_cb => fun(R, #{}) -> io_lib:format("two: ~p", [R]) end}),
    logger:notice(lists:duplicate(100_000, $x), test()),
    logger:error(#{label => {supervisor, x}, report => [{supervisor, a}]}, test()),
    same_files(Config).

%% Reports as the runtime's own processes make them: of a process that crashes, of its supervisor, of a server.
same_bytes_of_supervision(Config) ->
    Here = self(),
    %% Not those of others in the node: one that comes while there is one handler is not in both files.
    Mine = fun
        (#{meta := #{gl := Leader}} = Event, Own) when Leader =:= Own -> Event;
        (_, _) -> stop
    end,
    Filters = #{filter_default => stop, filters => [{mine, {Mine, group_leader()}}]},
    ok = add_both(Config, Filters#{formatter => {logger_formatter, #{single_line => false}}}),
    process_flag(trap_exit, true),
    {ok, Sup} = supervisor:start_link(?MODULE, []),
    Spec = #{id => child, start => {?MODULE, start_link_child, [Here]}, restart => temporary},
    {ok, Child} = supervisor:start_child(Sup, Spec),
    Child ! {crash, "multi\nline"},
    _ = weir_kit:await_down(Child),
    %% Its report has been made when it answers.
    [] = supervisor:which_children(Sup),
    ok = gen_server:stop(Sup, {shutdown, done}, infinity),
    same_files(Config),
    {ok, Text} = file:read_file(?config(file, Config)),
    Parts = [<<"crasher:">>, <<"supervisor: ">>, <<"multi\\nline">>],
    [?assertMatch({_, _}, binary:match(Text, Part)) || Part <- Parts].

same_files(Conf) ->
    ok = logger_std_h:filesync(?STD),
    ok = weir_log_h:sync(?ID),
    {ok, Std} = file:read_file(?config(std_file, Conf)),
    {ok, Weir} = file:read_file(?config(file, Conf)),
    ?assert(byte_size(Std) > 0),
    ?assertEqual(Std, Weir).

level_and_filters(Config) ->
    ok = logger:set_primary_config(level, all),
    Stop = {fun(#{msg := Msg}, Text) -> case Msg of {string, Text} -> stop; _ -> ignore end end, "secret"},
    ok = add_both(Config, (only_of_test())#{level => warning}),
    [ok = logger:add_handler_filter(Id, stop, Stop) || Id <- [?ID, ?STD]],
    [logger:log(Level, "~p", [Level], test()) || Level <- levels()],
    [logger:log(Level, "secret", test()) || Level <- levels()],
    same_files(Config),
    ?assertEqual(5, length(lines(Config))),
    ok = logger:set_handler_config(?ID, level, error),
    logger:warning("not this", test()),
    logger:error("but this", test()),
    ?assertEqual(6, length(lines(Config))).

formatter_changes(Config) ->
    ok = add(Config, #{}, formatter(["1 ", msg, "\n"])),
    logger:error("x", test()),
    ok = logger:update_formatter_config(?ID, template, ["2 ", msg, "\n"]),
    logger:error("x", test()),
    ok = logger:set_handler_config(?ID, formatter, {?MODULE, plain}),
    logger:error("x", test()),
    ?assertEqual([<<"1 x">>, <<"2 x">>, <<"3 error">>], lines(Config)).

%% As it is in the guide.
the_guides_formatter(Config) ->
    case code:ensure_loaded(json) of
        {module, json} ->
            ok = load_guides_formatter(json_lines),
            ok = add(Config, #{}, (only_of_test())#{formatter => {json_lines, #{}}}),
            ok = logger:error("a \"quoted\"~ntext, ~ts", [[228, 8364]], test()),
            [Line] = lines(Config),
            #{<<"level">> := <<"error">>, <<"text">> := Text, <<"pid">> := Pid, <<"time">> := Time} = json:decode(Line),
            ?assertEqual(<<"a \"quoted\", text, ä€"/utf8>>, Text),
            ?assertEqual(list_to_binary(pid_to_list(self())), Pid),
            ?assertMatch({match, _}, re:run(Time, "^20[0-9-]+T[0-9:.]+Z$"));
        {error, nofile} ->
            {skip, "json is in OTP 27"}
    end.

the_guides_dates(Config) ->
    ok = load_guides_formatter(dated_lines),
    ok = add(Config, #{}, (only_of_test())#{formatter => {dated_lines, #{single_line => true}}}),
    ok = logger:log(error, "text", maps:merge(test(), #{time => 1795262400 * 1000000})),
    {{Year, Month, Day}, {Hour, _, _}} = calendar:system_time_to_local_time(1795262400, second),
    ?assertEqual(
        [iolist_to_binary(io_lib:format("~2..0b.~2..0b.~b ~2..0b:00:00 error: text", [Day, Month, Year, Hour]))],
        lines(Config)
    ).

load_guides_formatter(Module) ->
    {ok, Guide} = file:read_file(weir_log_shards_SUITE:guide(filename:dirname(code:which(?MODULE)))),
    Attribute = iolist_to_binary(io_lib:format("-module(~s).", [Module])),
    [_, Rest] = binary:split(Guide, <<"```erlang\n", Attribute/binary>>),
    [Code, _] = binary:split(Rest, <<"```">>),
    {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list([Attribute, Code])),
    {ok, Module, Beam} = compile:forms(forms(Tokens, []), []),
    {module, Module} = code:load_binary(Module, "guide", Beam),
    ok.

forms([], []) ->
    [];
forms([{dot, _} = Dot | Tokens], Form) ->
    {ok, Parsed} = erl_parse:parse_form(lists:reverse([Dot | Form])),
    [Parsed | forms(Tokens, [])];
forms([Token | Tokens], Form) ->
    forms(Tokens, [Token | Form]).

%% ---------------------------------------------------------------- formatters that fail

formatter_fails(Config) ->
    ok = add(Config, #{}, (only_of_test())#{formatter => {?MODULE, crash}}),
    ok = logger:error("precious", test()),
    [First, Second] = lines(Config),
    ?assertMatch({_, _}, binary:match(First, <<"the formatter weir_log_h_SUITE failed with">>)),
    ?assertMatch({_, _}, binary:match(Second, <<"precious">>)),
    ?assert(lists:member(?ID, logger:get_handler_ids())).

formatter_gives_no_text(Config) ->
    [
        begin
            ok = add(Config, #{}, (only_of_test())#{formatter => {?MODULE, {give, Wrong}}}),
            ok = logger:error("precious", test()),
            ?assertMatch({_, _}, binary:match(lists:last(lines(Config)), <<"precious">>)),
            ok = logger:remove_handler(?ID)
        end
     || Wrong <- [atom, [a], <<255, 254>>, [16#d800], {error, "x"}]
    ].

report_callback_fails(Config) ->
    ok = add(Config, #{}, only_of_test()),
    ok = logger:error(#{precious => x}, (test())#{report_cb => fun ?MODULE:fail_to_format/1}),
    ?assertMatch({_, _}, binary:match(iolist_to_binary(lines(Config)), <<"precious">>)).

fail_to_format(_Report) -> error(no_wish).

format(#{level := Level}, plain) -> ["3 ", atom_to_list(Level), $\n];
format(_Event, crash) -> error(formatter_crash);
format(_Event, {give, Wrong}) -> Wrong.

check_config(_FormatterConfig) -> ok.

%% ---------------------------------------------------------------- options

wrong_options(Config) ->
    File = ?config(file, Config),
    Cases = [
        {#{}, {missing_option, file}},
        {no_map, {bad_option, config, no_map}},
        {#{file => File, ack => never}, {bad_option, ack, never}},
        {#{file => File, sync_on => loud}, {bad_option, sync_on, loud}},
        {#{file => File, rate => #{info => 0}}, {bad_option, rate, #{info => 0}}},
        {#{file => File, rate => #{loud => 1}}, {bad_option, rate, #{loud => 1}}},
        {#{file => File, sync_interval => 0}, {bad_option, sync_interval, 0}},
        {#{file => File, sync_interval => 4294967296}, {bad_option, sync_interval, 4294967296}},
        {#{file => File, sync_interval => no_repeat}, {bad_option, sync_interval, no_repeat}},
        {#{file => File, newline => true}, {bad_option, newline, true}},
        {#{file => File, modes => [raw]}, {bad_option, modes, [raw]}},
        {#{file => File, burst_limit_enable => false}, {bad_option, burst_limit_enable, false}}
    ],
    [
        ?assertEqual({error, {handler_not_added, Reason}}, logger:add_handler(?ID, weir_log_h, #{config => Options}))
     || {Options, Reason} <- Cases
    ],
    ?assertEqual({error, {handler_not_added, {missing_option, file}}}, logger:add_handler(?ID, weir_log_h, #{})),
    [
        begin
            ok = add(Config, #{sync_interval => Interval}, #{}),
            ok = logger:remove_handler(?ID)
        end
     || Interval <- [1, 4294967295, infinity]
    ].

%% A file where a directory should be.
wrong_options_leave_nothing(Config) ->
    Blocker = ?config(file, Config),
    ok = file:write_file(Blocker, "x"),
    Before = supervisor:which_children(logger_sup),
    ?assertMatch(
        {error, {handler_not_added, _}},
        logger:add_handler(?ID, weir_log_h, #{config => #{file => filename:join(Blocker, "weir.log")}})
    ),
    ?assertEqual(Before, supervisor:which_children(logger_sup)),
    ?assertEqual(undefined, whereis(?MANAGER)),
    ?assertEqual({error, no_handler}, weir_log_h:info(?ID)).

%% As Elixir writes options.
keyword_lists(Config) ->
    File = ?config(file, Config),
    Options = [{file, list_to_binary(File)}, {rate, [{info, 3}]}, {rotate, [{keep_files, 2}]}],
    ok = logger:add_handler(?ID, weir_log_h, #{config => Options}),
    ?assertMatch({ok, #{config := #{rate := #{info := 3}, ack := none}}}, logger:get_handler_config(?ID)),
    ok = logger:update_handler_config(?ID, config, [{ack, written}, {rate, [{info, 4}]}]),
    ?assertMatch({ok, #{config := #{rate := #{info := 4}, ack := written}}}, logger:get_handler_config(?ID)),
    ok = logger:set_handler_config(?ID, config, [{file, list_to_binary(File)}]),
    ?assertMatch({ok, #{config := #{ack := none}}}, logger:get_handler_config(?ID)),
    ok = logger:remove_handler(?ID),
    ?assertEqual(
        {error, {handler_not_added, {bad_option, rate, [info]}}},
        logger:add_handler(?ID, weir_log_h, #{config => [{rate, [info]} | Options]})
    ).

changes(Config) ->
    File = ?config(file, Config),
    ok = logger:add_handler(?ID, weir_log_h, (only_of_test())#{config => #{file => File}}),
    Default = #{file => File, ack => none, sync_on => none, rate => #{}, timeout => 5000, sync_interval => 5000},
    ?assertMatch({ok, #{config := Default}}, logger:get_handler_config(?ID)),
    ok = logger:update_handler_config(?ID, config, #{sync_interval => 100}),
    ?assertMatch({ok, #{config := #{file := File, sync_interval := 100}}}, logger:get_handler_config(?ID)),
    %% The old value of what may not change is no change.
    ok = logger:update_handler_config(?ID, #{level => info, config => #{file => File, ack => none}}),
    ?assertMatch({ok, #{level := info, config := #{sync_interval := 100}}}, logger:get_handler_config(?ID)),
    ok = logger:set_handler_config(?ID, config, #{}),
    ?assertMatch({ok, #{config := #{file := File, sync_interval := 5000}}}, logger:get_handler_config(?ID)),
    ok = logger:update_handler_config(?ID, config, #{sync_interval => infinity}),
    logger:error("still there", test()),
    ?assertEqual(1, length(lines(Config))).

refused_changes(Config) ->
    ok = add(Config, #{}, only_of_test()),
    {ok, Before} = logger:get_handler_config(?ID),
    [
        begin
            ?assertEqual({error, Reason}, logger:update_handler_config(?ID, config, Change)),
            ?assertEqual({error, Reason}, logger:set_handler_config(?ID, config, Change)),
            ?assertEqual({ok, Before}, logger:get_handler_config(?ID))
        end
     || {Change, Reason} <- [
            {#{file => "other"}, {cannot_change, file}},
            {#{shards => 2}, {cannot_change, shards}},
            {#{window => 0}, {bad_option, window, 0}},
            {#{newline => true}, {bad_option, newline, true}},
            {#{heal => false}, {bad_option, heal, false}},
            {#{unknown => 1}, {bad_option, unknown, 1}},
            {#{sync_interval => -1}, {bad_option, sync_interval, -1}},
            {x, {bad_option, config, x}}
        ]
    ],
    logger:error("still there", test()),
    ?assertEqual(1, length(lines(Config))).

handle_is_hidden(Config) ->
    ok = add(Config, #{}, #{}),
    {ok, #{config := Options}} = logger:get_handler_config(?ID),
    ?assertEqual([ack, file, rate, sync_interval, sync_on, timeout], lists:sort(maps:keys(Options))),
    %% What is read can be used for another handler.
    ok = logger:remove_handler(?ID),
    ok = logger:add_handler(?ID, weir_log_h, #{config => Options}).

%% ---------------------------------------------------------------- life

removal_writes_everything(Config) ->
    ok = add(Config, #{}, formatter([msg, "\n"])),
    ok = in_parallel(50, fun(I) -> [logger:error("~b ~b", [I, N], test()) || N <- lists:seq(1, 100)] end),
    ok = logger:remove_handler(?ID),
    %% A busy machine may need more than the five seconds of the last writes.
    ?assertEqual(5_000, length(read_lines(Config))),
    in_order(50, 100, read_lines(Config)),
    ?assertEqual(undefined, whereis(?MANAGER)),
    logger:error("not there any more", test()),
    ?assertEqual(5_000, length(read_lines(Config))).

added_again(Config) ->
    [
        begin
            ok = add(Config, #{}, only_of_test()),
            ?assertMatch({error, {already_exist, ?ID}}, add(Config, #{}, #{})),
            logger:error("x", test()),
            ok = logger:remove_handler(?ID)
        end
     || _ <- [1, 2, 3]
    ],
    ?assertEqual(3, length(read_lines(Config))).

acks(Config) ->
    [
        begin
            ok = add(Config, #{ack => Ack}, only_of_test()),
            logger:error("x", test()),
            %% What is written can be read at once.
            _ = Ack =:= accepted orelse ?assertEqual(N, length(read_lines(Config))),
            ok = logger:remove_handler(?ID),
            ?assertEqual(N, length(read_lines(Config)))
        end
     || {N, Ack} <- [{1, accepted}, {2, written}, {3, synced}]
    ].

%% Events of that level and above are synced, one by one; those below are not, until it is changed.
sync_on(Config) ->
    ok = add(Config, #{sync_on => error, sync_interval => infinity}, only_of_test()),
    Syncs = fun() ->
        {ok, #{log := #{syncs := N}}} = weir_log_h:info(?ID),
        N
    end,
    [ok = logger:log(Level, "x", test()) || Level <- [notice, warning]],
    ?assertEqual(0, Syncs()),
    [ok = logger:log(Level, "x", test()) || Level <- [error, critical, emergency]],
    ?assertEqual(3, Syncs()),
    ?assertEqual(5, length(read_lines(Config))),
    ok = logger:update_handler_config(?ID, config, #{sync_on => warning}),
    ok = logger:warning("x", test()),
    ?assertEqual(4, Syncs()),
    ok = logger:update_handler_config(?ID, config, #{sync_on => none}),
    ok = logger:error("x", test()),
    ?assertEqual(4, Syncs()).

%% Of each level so many in a second, whoever logs them, and the others are dropped and counted, and told. Seconds are
%% the clock's, so those of this test are two or three.
rate(Config) ->
    ok = add(Config, #{rate => #{warning => 5, info => 1}}, formatter([level, " ", msg, "\n"])),
    ok = logger:set_primary_config(level, info),
    Second = fun() -> erlang:system_time(second) end,
    Began = Second(),
    ok = in_parallel(4, fun(_) ->
        [logger:log(Level, "x", test()) || _ <- lists:seq(1, 50), Level <- [error, warning, info]]
    end),
    Seconds = Second() - Began + 1,
    Lines = lines(Config),
    Written = fun(Line) -> length([Line || Each <- Lines, Each =:= Line]) end,
    [Errors, Warnings, Infos] = [Written(Line) || Line <- [<<"error x">>, <<"warning x">>, <<"info x">>]],
    ?assertEqual(200, Errors),
    ?assert(Warnings >= 5 andalso Warnings =< 5 * Seconds),
    ?assert(Infos >= 1 andalso Infos =< Seconds),
    ?assertEqual(#{warning => 200 - Warnings, info => 200 - Infos}, lost(?ID)),
    ok = until(fun() -> numbers("([0-9]+) (entries were|entry was) dropped", Config) =:= 400 - Warnings - Infos end),
    ok = logger:update_handler_config(?ID, config, #{rate => #{}}),
    Before = lost(?ID),
    [ok = logger:warning("x", test()) || _ <- lists:seq(1, 20)],
    ?assertEqual(Before, lost(?ID)).

sync_and_info(Config) ->
    ok = add(Config, #{sync_interval => infinity}, only_of_test()),
    logger:error("x", test()),
    ?assertEqual(ok, weir_log_h:sync(?ID)),
    ?assertEqual(1, length(read_lines(Config))),
    ok = until(fun() -> state(?ID) =:= ok end),
    ?assertMatch({ok, #{lost := Lost, log := #{}}} when Lost =:= #{}, weir_log_h:info(?ID)).

no_handler(_) ->
    ?assertEqual({error, no_handler}, weir_log_h:sync(nobody_knows_this)),
    ?assertEqual({error, no_handler}, weir_log_h:info(nobody_knows_this)),
    ?assertEqual({error, {badarg, "no atom"}}, weir_log_h:info("no atom")),
    ?assertEqual({error, {badarg, "no atom"}}, weir_log_h:sync("no atom")),
    ?assertEqual({weir_log_h, default}, weir_log_h:name(default)).

%% ---------------------------------------------------------------- waiting

slow_disk_slows_callers(Config) ->
    ok = add(Config, #{window => 4}, formatter([msg, "\n"])),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    Callers = callers(20, fun(I) -> [logger:error("~b ~b", [I, N], test()) || N <- lists:seq(1, 50)] end),
    %% All come to the edge of their windows, and no further.
    ok = until(fun() -> all_wait(Callers) end),
    ?assert(queue_len(Writer) =< 4 * 20),
    true = erlang:resume_process(Writer),
    ok = await_normal(Callers),
    ok = weir_log_h:sync(?ID),
    in_order(20, 50, read_lines(Config)),
    ?assertMatch({ok, #{lost := Lost}} when Lost =:= #{}, weir_log_h:info(?ID)).

%% Each process waits for the time-out at most, and once it has nobody waits; the node goes on. What was dropped is told
%% by the log when the disk is back, and counted in the meantime.
stuck_disk_stops_nobody(Config) ->
    ok = add(Config, #{timeout => 50, ack => written}, formatter([msg, "\n"])),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    ok = in_parallel(20, fun(I) -> [logger:error("~b", [I], test()) || _ <- lists:seq(1, 200)] end),
    ?assertMatch({ok, #{state := unknown, log := #{shards := [#{stuck := true}]}}}, weir_log_h:info(?ID)),
    #{error := Lost} = lost(?ID),
    true = erlang:resume_process(Writer),
    ok = until(fun() -> state(?ID) =:= ok end),
    ok = logger:error("again", test()),
    ok = until(fun() -> contains(read(Config), "entries were dropped (error") end),
    ?assertEqual(#{error => Lost}, lost(?ID)),
    Written = [Line || Line <- read_lines(Config), byte_size(Line) < 3],
    weir_kit:same(written_and_counted, 20 * 200, Lost + length(Written)).

%% Nothing is taken by the writer, so every event counts: those above the edge are dropped or wait by their level.
drops_by_level(Config) ->
    %% Ten events, with what their messages take.
    Options = #{overload => {drop, error}, max_bytes => 2_280, window => 1_000},
    ok = add(Config, Options, formatter([level, " ", msg, "\n"])),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    %% 100 bytes each.
    Line = lists:duplicate(91, $x),
    [logger:warning(Line, test()) || _ <- lists:seq(1, 10)],
    [logger:warning(Line, test()) || _ <- lists:seq(1, 7)],
    [logger:notice(Line, test()) || _ <- lists:seq(1, 3)],
    Waiting = callers(1, fun(_) -> logger:error("waits", test()) end),
    ok = until(fun() -> all_wait(Waiting) end),
    true = erlang:resume_process(Writer),
    ok = await_normal(Waiting),
    ok = until(fun() -> contains(read(Config), "dropped") end),
    Lines = read_lines(Config),
    ?assertEqual(10, length([x || <<"warning xx", _/binary>> <- Lines])),
    ?assertEqual([<<"error waits">>], [Each || <<"error", _/binary>> = Each <- Lines]),
    [Told] = [Each || <<"warning weir_log:", _/binary>> = Each <- Lines],
    ?assert(contains(Told, "10 entries were dropped (warning 7, notice 3)")),
    ?assertMatch(#{notice := 3, warning := 7}, lost(?ID)),
    ok = until(fun() -> state(?ID) =:= ok end).

refuses(Config) ->
    ok = add(Config, #{overload => reject, max_bytes => 1_000, window => 1_000}, only_of_test()),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    Line = lists:duplicate(2_000, $x),
    [logger:warning(Line, test()) || _ <- lists:seq(1, 5)],
    [logger:info(Line, test()) || _ <- lists:seq(1, 2)],
    [logger:error(Line, test()) || _ <- lists:seq(1, 3)],
    true = erlang:resume_process(Writer),
    ?assertEqual(#{warning => 4, error => 3}, lost(?ID)),
    %% Told in the log when it is over.
    ok = until(fun() -> contains(read(Config), "7 entries were dropped (error 3, warning 4)") end).

%% The log's supervisor tells that it has restarted a writer while that one does not take anything yet.
own_processes_do_not_wait(Config) ->
    ok = add(Config, #{ack => written}, only_of_test()),
    Own = own_process(),
    true = erlang:suspend_process(writer(?ID)),
    [tell(Own, N) || N <- lists:seq(1, 3)],
    true = erlang:resume_process(writer(?ID)),
    ok = until(fun() -> length(read_lines(Config)) =:= 3 end),
    stop_own(Own).

own_events_are_bounded(Config) ->
    %% Two digits and a newline, and what the message takes.
    ok = add(Config, #{ack => written, max_bytes => 91 * 131}, formatter([msg, "\n"])),
    Own = own_process(),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    [tell(Own, N) || N <- lists:seq(10, 102)],
    ?assertEqual(#{error => 2}, lost(?ID)),
    true = erlang:resume_process(Writer),
    ok = until(fun() -> length(read_lines(Config)) >= 91 end),
    stop_own(Own),
    ?assertEqual([integer_to_binary(N) || N <- lists:seq(10, 100)], lists:sublist(read_lines(Config), 91)).

%% A process of the kernel's, as those of the log are.
own_process() ->
    spawn_link(fun() ->
        ok = weir_log_h_test_lib:of_the_kernel(),
        tell_loop()
    end).

tell_loop() ->
    receive
        {tell, From, N} ->
            logger:error("~b", [N], test()),
            From ! {told, N},
            tell_loop();
        stop ->
            ok
    end.

tell(Own, N) ->
    Own ! {tell, self(), N},
    receive
        {told, N} -> ok
    end.

stop_own(Own) ->
    true = unlink(Own),
    Own ! stop,
    ok.

%% ---------------------------------------------------------------- files

%% What an earlier node was killed in stays a line of its own.
torn_line_is_ended(Config) ->
    ok = file:write_file(?config(file, Config), "half"),
    ok = add(Config, #{}, formatter([msg, "\n"])),
    logger:error("whole", test()),
    ?assertEqual([<<"half">>, <<"whole">>], lines(Config)),
    %% Nothing is added to a line that is whole.
    ok = logger:remove_handler(?ID),
    ok = add(Config, #{}, formatter([msg, "\n"])),
    logger:error("next", test()),
    ?assertEqual([<<"half">>, <<"whole">>, <<"next">>], lines(Config)).

%% The node goes elsewhere, and the log is started again.
relative_file(Config) ->
    {ok, Cwd} = file:get_cwd(),
    File = ?config(file, Config),
    ok = file:set_cwd(filename:dirname(File)),
    try
        Handler = maps:merge(formatter([msg, "\n"]), #{config => #{file => filename:basename(File)}}),
        ok = logger:add_handler(?ID, weir_log_h, Handler),
        ok = file:set_cwd(Cwd),
        logger:error("before", test()),
        ok = logger:update_handler_config(?ID, config, #{sync_interval => 100}),
        true = kill_log(?ID),
        ok = until(fun() ->
            logger:error("after", test()),
            _ = weir_log_h:sync(?ID),
            contains(read(Config), "after")
        end),
        ?assertMatch({_, [<<"before">>, <<"after">> | _]}, weir_log_test_lib:told(read_lines(Config)))
    after
        ok = file:set_cwd(Cwd)
    end.

%% ---------------------------------------------------------------- a node of its own

%% All of it, and once, on the standard output of a node that ends in order.
containers_output(Config) ->
    File = filename:rootname(?config(file, Config)) ++ ".config",
    Handler =
        {handler, default, weir_log_h, #{
            config => #{file => standard_io},
            formatter => {logger_formatter, #{template => [level, " ", msg, "\n"]}}
        }},
    ok = file:write_file(File, io_lib:format("[{kernel, [{logger, [~0p]}]}].~n", [Handler])),
    Paths = lists:join(" ", weir_log_test_lib:code_paths([weir_log_h, weir_server])),
    Eval = "[logger:error([$a, $0 + N]) || N <- lists:seq(1, 9)], init:stop().",
    Output = os:cmd(["erl -noinput -config ", File, " -pa ", Paths, " -eval '", Eval, "'"]),
    ?assertEqual(lists:append(["error a" ++ [$0 + N, $\n] || N <- lists:seq(1, 9)]), Output).

sys_config(Config) ->
    {Peer, _} = start_peer(Config),
    try
        ?assertMatch({ok, #{module := weir_log_h}}, call(Peer, logger, get_handler_config, [default])),
        ?assertEqual([default], call(Peer, logger, get_handler_ids, [])),
        %% The application does not run.
        ?assertEqual(false, lists:keymember(weir_log, 1, call(Peer, application, which_applications, []))),
        ok = call(Peer, logger, error, ["from the peer"]),
        ok = call(Peer, logger, debug, ["too little"]),
        %% The default handler has logger's own filters: none of the supervisors' progress.
        ok = call(Peer, weir_log_h, sync, [default]),
        ?assertMatch([_], [Line || Line <- read_lines(Config), contains(Line, "from the peer")]),
        ?assertEqual(false, contains(read(Config), "too little")),
        %% What a process crashes with comes by way of the emulator and the process logger.
        _ = call(Peer, erlang, spawn, [erlang, error, [thrown_away]]),
        ok = until(fun() -> contains(read(Config), "thrown_away") end)
    after
        peer:stop(Peer)
    end.

node_stop_writes_everything(Config) ->
    {Peer, OsPid} = start_peer(Config),
    Ask = fun() -> [logger:error("line ~b", [N]) || N <- lists:seq(1, 2_000)], init:stop() end,
    ok = call(Peer, erlang, apply, [Ask, []]),
    ok = until(fun() -> not filelib:is_dir("/proc/" ++ OsPid) end),
    Lines = [Line || Line <- read_lines(Config), contains(Line, "line ")],
    ?assertEqual(2_000, length(Lines)).

start_peer(Conf) ->
    File = filename:rootname(?config(file, Conf)),
    ok = file:write_file(
        File ++ ".config",
        io_lib:format("[{kernel, [{logger, [{handler, default, weir_log_h, #{config => ~0p}}]}]}].~n", [
            #{file => ?config(file, Conf), timeout => weir_kit:wait_ms()}
        ])
    ),
    Peer = weir_log_h_test_lib:start_peer(["-config", File]),
    {Peer, call(Peer, os, getpid, [])}.

%% ---------------------------------------------------------------- help

levels() -> [emergency, alert, critical, error, warning, notice, info, debug].

add_both(Config, Handler) ->
    ok = add(Config, #{}, Handler),
    logger:add_handler(?STD, logger_std_h, Handler#{
        config => #{
            file => ?config(std_file, Config),
            burst_limit_enable => false,
            drop_mode_qlen => 1_000_000,
            flush_qlen => 1_000_000
        }
    }).

%% ---------------------------------------------------------------- a supervisor and its child

init([]) -> {ok, {#{}, []}}.

start_link_child(Test) ->
    proc_lib:start_link(erlang, apply, [
        fun() ->
            proc_lib:init_ack({ok, self()}),
            receive
                {crash, Reason} -> error({Reason, Test})
            end
        end,
        []
    ]).
