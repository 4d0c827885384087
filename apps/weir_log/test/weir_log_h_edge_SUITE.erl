%% The logger handler where it could hang, lose or take something down with it: formatters that log, processes that may
%% not wait for the log, a writer that hangs, huge events, very many callers, new code, and applications that end.
-module(weir_log_h_edge_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, until/1, wait_ms/0]).
-import(weir_kit_nodes, [call/4]).
-import(weir_log_test_lib, [in_order/3]).
-import(weir_log_h_test_lib, [
    add/3, formatter/1, only_of_test/0, test/0, read/1, lines/1, contains/2, handler_sup/1, writer/1, start_peer/1,
    callers/2, all_wait/1, await_normal/1, in_parallel/2, in_process/1
]).

-define(ID, weir_log_h_edge).
-define(MANAGER, weir_log_h_weir_log_h_edge).

all() -> [{group, other_node} | weir_kit:cases(?MODULE) -- in_other_node()].

%% Each of these cases waits for a time-out, in a node that it starts.
groups() -> [{other_node, [parallel], in_other_node()}].

in_other_node() ->
    [
        node_stops_while_the_writer_hangs, node_stops_by_default_while_the_writer_hangs,
        supervisor_restarts_while_the_writer_hangs
    ].

init_per_testcase(Case, Config) -> weir_log_h_test_lib:setup(?ID, Case, Config).

end_per_testcase(_Case, Config) ->
    _ = logger:remove_primary_filter(?MODULE),
    weir_log_h_test_lib:teardown([weir_log_h_other], Config).

%% ---------------------------------------------------------------- what users' functions do

%% Each event that the formatter is given leads to another one, which it is not given.
formatter_logs(Config) ->
    ok = add(Config, #{}, (only_of_test())#{formatter => {?MODULE, #{}}}),
    logger:error("first", test()),
    logger:error("second", test()),
    [Inner1, <<"error">>, Inner2, <<"error">>] = lines(Config),
    [?assert(contains(Inner, "formatter")) || Inner <- [Inner1, Inner2]].

format(#{meta := #{text := Text}}, _Config) ->
    Text;
format(#{level := Level}, _Config) ->
    ok = logger:warning("from the ~ts", ["formatter"], test()),
    [atom_to_list(Level), $\n].

report_callback_logs(Config) ->
    ok = add(Config, #{}, formatter([level, " ", msg, "\n"])),
    in_process(fun() ->
        put(?MODULE, once),
        logger:error(#{some => report}, (test())#{report_cb => fun ?MODULE:log_and_format/1})
    end),
    [Inner, <<"error formatted">>] = lines(Config),
    ?assert(contains(Inner, "inner => report")).

%% Only once, since handlers of Common Test's call it too, which do not keep it from going on for ever. This handler is
%% the first of them.
log_and_format(_Report) ->
    case erase(?MODULE) of
        once -> logger:warning(#{inner => report}, (test())#{report_cb => fun ?MODULE:log_and_format/1});
        undefined -> ok
    end,
    {"formatted", []}.

primary_filter(Config) ->
    ok = add(Config, #{}, formatter([msg, "\n"])),
    ok = logger:add_primary_filter(?MODULE, {fun ?MODULE:change_message/2, "changed"}),
    logger:error("original", test()),
    ?assertEqual([<<"changed">>], lines(Config)).

change_message(Event, Text) ->
    case weir_log_h_test_lib:is_of_test(Event) of
        true -> Event#{msg := {string, Text}};
        false -> ignore
    end.

%% What looks like a process's ancestors need not be any.
odd_dictionary(Config) ->
    ok = add(Config, #{}, formatter([msg, "\n"])),
    [
        in_process(fun() ->
            put('$ancestors', Odd),
            ok = logger:error("odd", test())
        end)
     || Odd <- [[], none, #{}, [none], [{a, b}, "c"], [logger_sup | kernel_sup], [a | b]]
    ],
    ?assertEqual(lists:duplicate(7, <<"odd">>), lines(Config)),
    ?assert(lists:member(?ID, logger:get_handler_ids())).

whole_config(Config) ->
    ok = add(Config, #{sync_interval => 100}, formatter([msg, "\n"])),
    {ok, Read} = logger:get_handler_config(?ID),
    ok = logger:set_handler_config(?ID, maps:without([id, module], Read)),
    ?assertEqual({ok, Read}, logger:get_handler_config(?ID)),
    %% All that is not given gets its default, except what cannot change.
    ok = logger:set_handler_config(?ID, #{level => error}),
    ?assertMatch({ok, #{level := error, filters := [], config := #{sync_interval := 5000}}},
        logger:get_handler_config(?ID)),
    ok = logger:update_handler_config(?ID, maps:without([id, module], Read)),
    logger:error("x", test()),
    ?assertEqual([<<"x">>], lines(Config)).

%% ---------------------------------------------------------------- much

%% Each is more than may wait, and is let in when it is alone.
huge_events(Config) ->
    ok = add(Config, #{max_bytes => 1_000_000, window => 2, timeout => infinity}, formatter([msg, "\n"])),
    Size = 4 * 1024 * 1024,
    Texts = [binary:copy(<<Letter>>, Size) || Letter <- "abc"],
    ok = in_parallel(3, fun(I) -> logger:error("~ts", [lists:nth(I, Texts)], test()) end),
    logger:error("small", test()),
    Lines = lines(Config),
    ?assertEqual(<<"small">>, lists:last(Lines)),
    ?assert(lists:sort(Texts) =:= lists:sort(lists:droplast(Lines))).

%% What is more than a frame can have is cut between two characters, and the handler stays.
huge_frames(Config) ->
    Formatter = {?MODULE, #{}},
    ok = add(Config, #{frame => true, timeout => infinity}, (only_of_test())#{formatter => Formatter}),
    Most = weir_log_frame:max_payload() - 8,
    Texts = [binary:copy(<<"a">>, Most), binary:copy(<<"a">>, Most + 1), binary:copy(<<"ä"/utf8>>, Most)],
    ok = in_process(fun() -> [logger:error("huge", (test())#{text => Text}) || Text <- Texts] end),
    ok = weir_log_h:sync(?ID),
    {ok, Read, _} = weir_log:fold(fun(_, Entry, Acc) -> [Entry | Acc] end, [], ?config(file, Config)),
    [Whole, Cut, Wide] = lists:reverse(Read),
    ?assert(Whole =:= hd(Texts)),
    ?assert(Cut =:= <<(binary:copy(<<"a">>, Most - 3))/binary, "...">>),
    ?assert(Wide =:= <<(binary:copy(<<"ä"/utf8>>, (Most - 3) div 2))/binary, "...">>),
    ?assertMatch({ok, #{lost := Lost}} when Lost =:= #{}, weir_log_h:info(?ID)).

%% Who has found the log just before it was closed counts its event, once.
closing(Config) ->
    ok = add(Config, #{ack => written}, formatter([msg, "\n"])),
    ok = gen_server:call(writer(?ID), close, wait_ms()),
    logger:error("late", test()),
    ?assertEqual({error, no_log}, weir_log_client:log(accepted, weir_log_h:name(?ID), <<"later">>, error)),
    ?assertMatch({ok, #{lost := #{error := 1}}}, weir_log_h:info(?ID)).

%% All of them wait at the edges of their windows, or for the cap, and none loses anything or its order.
many_callers(Config) ->
    {Number, Each} = {weir_kit:long(3_000, 10_000), 5},
    ok = add(Config, #{max_bytes => 10 * Number, window => 4, timeout => infinity}, formatter([msg, "\n"])),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    Callers = callers(Number, fun(I) -> [logger:error("~b ~b", [I, N], test()) || N <- lists:seq(1, Each)] end),
    ok = until(fun() -> all_wait(Callers) end),
    ?assert(queue_len(Writer) =< 4 * Number),
    true = erlang:resume_process(Writer),
    ok = await_normal(Callers),
    in_order(Number, Each, lines(Config)),
    ok = well().

%% One that is killed while it waits has sent its event; others are not disturbed.
caller_killed(Config) ->
    ok = add(Config, #{ack => written}, formatter([msg, "\n"])),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    [Caller] = callers(1, fun(_) -> logger:error("killed", test()) end),
    ok = weir_kit:until_waiting(Caller),
    ok = weir_kit:kill(Caller),
    true = erlang:resume_process(Writer),
    logger:error("alive", test()),
    ?assertEqual([<<"killed">>, <<"alive">>], lines(Config)).

%% ---------------------------------------------------------------- who may not wait

%% A progress report of logger_sup itself, while every event waits for a writer that does nothing.
logger_sup_does_not_wait(Config) ->
    ok = add(Config, #{window => 1}, #{}),
    ok = logger:set_primary_config(level, all),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    Other = #{config => #{file => ?config(file, Config) ++ ".other"}},
    Adding = weir_kit:start(fun() -> logger:add_handler(weir_log_h_other, weir_log_h, Other) end),
    try
        ?assertEqual(ok, weir_kit:result(Adding))
    after
        ok = logger:set_primary_config(level, ?config(primary_level, Config)),
        true = erlang:resume_process(Writer)
    end,
    ok = until(fun() -> contains(read(Config), "logger_sup") end).

%% The supervisor of what all logs share reports that it has restarted the registry.
node_sup_does_not_wait(Config) ->
    ok = add(Config, #{window => 1}, #{}),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    Registry = whereis(weir_log_registry),
    exit(Registry, kill),
    try
        ok = until(fun() -> not lists:member(whereis(weir_log_registry), [undefined, Registry]) end)
    after
        true = erlang:resume_process(Writer)
    end,
    ok = until(fun() -> contains(read(Config), "weir_log_node_sup") end).

%% Everybody's events wait for a writer that does nothing; those of processes that the node cannot do without do not.
nobody_waits_who_must_not(Config) ->
    ok = add(Config, #{ack => written, timeout => infinity}, formatter([msg, "\n"])),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    Init = whereis(init),
    As = fun(Become) -> fun(_) -> Become(), logger:error("x", test()) end end,
    Must = [
        As(fun weir_log_h_test_lib:of_the_kernel/0),
        As(fun() -> true = group_leader(Init, self()) end),
        As(fun() -> true = group_leader(self(), self()) end),
        As(fun() -> put('$ancestors', [weir_log_logs_sup, weir_log_sup, self()]) end)
    ],
    ok = await_normal(lists:append([callers(1, Fun) || Fun <- Must])),
    May = callers(1, As(fun() -> ok end)),
    ok = until(fun() -> all_wait(May) end),
    true = erlang:resume_process(Writer),
    ok = await_normal(May),
    ?assertEqual(lists:duplicate(5, <<"x">>), lines(Config)).

%% The same with those processes themselves, in a node with distribution: each is made to log by its own hand.
processes_of_the_node_do_not_wait(Config) ->
    Peer = start_peer(["-sname", peer:random_name()]),
    Call = fun(M, F, A) -> call(Peer, M, F, A) end,
    try
        Options = #{file => ?config(file, Config), ack => written, timeout => infinity},
        ok = Call(logger, add_handler, [?ID, weir_log_h, (formatter([msg, "\n"]))#{config => Options}]),
        ok = Call(error_logger, start, []),
        Writer = Call(weir_log_h_test_lib, writer, [?ID]),
        ok = Call(sys, suspend, [Writer]),
        Caller = Call(erlang, spawn, [logger, error, ["x", test()]]),
        Waits = fun() -> Call(erlang, process_info, [Caller, status]) =:= {status, waiting} end,
        ok = until(Waits),
        Made = [
            application_controller, file_server_2, global_name_server, kernel_sup, logger, logger_proxy, logger_sup,
            net_kernel, rex
        ],
        [{Name, ok} = {Name, Call(?MODULE, make_log, [Name])} || Name <- Made],
        %% Others cannot be made to: they are known by their group leaders, as the ones above.
        Whereis = fun(Name) -> Call(erlang, whereis, [Name]) end,
        Leader = fun(Name) -> Call(erlang, process_info, [Whereis(Name), group_leader]) end,
        Known = fun(Name) -> [Leader(logger_sup), Leader(init), {group_leader, Whereis(Name)}] end,
        Others = [code_server, user, standard_error, error_logger, erl_signal_server, erl_prim_loader, init],
        [{Name, true} = {Name, lists:member(Leader(Name), Known(Name))} || Name <- Others],
        ?assert(Waits()),
        ok = Call(sys, resume, [Writer]),
        ok = until(fun() -> Call(erlang, process_info, [Caller, status]) =:= undefined end),
        ok = Call(weir_log_h, sync, [?ID]),
        ?assertEqual(lists:duplicate(1 + length(Made), <<"x">>), weir_log_h_test_lib:read_lines(Config))
    after
        peer:stop(Peer)
    end.

make_log(Name) ->
    _ = sys:replace_state(
        Name,
        fun(State) ->
            ok = logger:error("x", test()),
            State
        end,
        weir_kit:wait_ms()
    ),
    ok.

%% It logs each message that it does not know, and renames what the writer rotates.
file_server_does_not_wait(Config) ->
    Dir = filename:dirname(?config(file, Config)),
    ok = add(Config, #{ack => written, timeout => infinity, rotate => #{max_bytes => 1000}}, #{}),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    [file_server_2 ! {stray, N} || N <- lists:seq(1, 50)],
    %% Between the rename and the opening of a rotation there is no such file, but its directory there is.
    ?assertMatch({ok, _}, file:read_file_info(Dir)),
    true = erlang:resume_process(Writer),
    [file_server_2 ! {stray, N} || N <- lists:seq(1, 500)],
    ?assertMatch({ok, _}, file:read_file_info(Dir)),
    ok = weir_log_h:sync(?ID),
    ok = well(),
    %% What it logs is there, whole.
    Texts = [Text || File <- filelib:wildcard(?config(file, Config) ++ "*"), {ok, Text} <- [file:read_file(File)]],
    ?assertEqual(550, length(binary:matches(iolist_to_binary(Texts), <<"{stray,">>))).

%% ---------------------------------------------------------------- ends and new beginnings

%% Five seconds are given to the last writes. After that the log goes on without the handler, and ends by itself.
removal_while_the_writer_hangs(Config) ->
    ok = add(Config, #{}, formatter([msg, "\n"])),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    logger:error("before", test()),
    Waiting = callers(1, fun(_) -> [logger:error("x", test()) || _ <- lists:seq(1, 17)] end),
    ok = until(fun() -> all_wait(Waiting) end),
    ok = logger:remove_handler(?ID),
    ?assertEqual(undefined, whereis(?MANAGER)),
    ok = logger:error("nobody listens", test()),
    true = erlang:resume_process(Writer),
    ok = await_normal(Waiting),
    ok = until(fun() -> add(Config, #{}, formatter([msg, "\n"])) =:= ok end),
    logger:error("after", test()),
    Lines = lines(Config),
    ?assertMatch([<<"before">>, <<"x">> | _], Lines),
    ?assertEqual(<<"after">>, lists:last(Lines)).

%% Supervisors, applications and their processes log while the node stops. None of them keeps the node from stopping.
node_stops_while_the_writer_hangs(Config) -> stops(Config, #{ack => written, timeout => 1_000}).

node_stops_by_default_while_the_writer_hangs(Config) -> stops(Config, #{}).

stops(Config, Options) ->
    Peer = start_peer([]),
    Call = fun(M, F, A) -> call(Peer, M, F, A) end,
    ok = Call(logger, add_handler, [?ID, weir_log_h, #{config => Options#{file => ?config(file, Config)}}]),
    {ok, _} = Call(application, ensure_all_started, [sasl]),
    OsPid = Call(os, getpid, []),
    ok = Call(sys, suspend, [Call(weir_log_h_test_lib, writer, [?ID])]),
    Stop = fun() -> [spawn(fun() -> log_for_ever() end) || _ <- lists:seq(1, 20)], init:stop() end,
    ok = Call(erlang, apply, [Stop, []]),
    ok = until(fun() -> not filelib:is_dir("/proc/" ++ OsPid) end).

log_for_ever() ->
    ok = logger:error("x", test()),
    log_for_ever().

%% A supervisor reports each crash of its child. It waits once for a log that stands still, not for each of them.
supervisor_restarts_while_the_writer_hangs(Config) ->
    Peer = start_peer([]),
    try
        Options = #{file => ?config(file, Config), ack => written, timeout => 2_000},
        ok = call(Peer, logger, add_handler, [?ID, weir_log_h, #{config => Options}]),
        ok = call(Peer, sys, suspend, [call(Peer, weir_log_h_test_lib, writer, [?ID])]),
        ok = call(Peer, ?MODULE, crash_child, [20]),
        %% Who waits in vain has sent its event; those that come after that are dropped.
        ?assertMatch({ok, #{lost := #{error := 19}}}, call(Peer, weir_log_h, info, [?ID]))
    after
        peer:stop(Peer)
    end.

%% In the other node.
crash_child(Times) ->
    {ok, Sup} = supervisor:start_link(?MODULE, []),
    lists:foreach(fun(_) -> crash(child(Sup), Sup) end, lists:seq(1, Times)),
    true = is_process_alive(child(Sup)),
    true = unlink(Sup),
    ok.

crash(Child, Sup) ->
    true = exit(Child, crash),
    until(fun() -> child(Sup) =/= Child end).

child(Sup) ->
    [{child, Pid, worker, _}] = supervisor:which_children(Sup),
    Pid.

init([]) ->
    Child = #{id => child, start => {?MODULE, start_child, []}},
    {ok, {#{intensity => 100, period => 3_600}, [Child]}}.

start_child() -> {ok, spawn_link(fun() -> receive stop -> ok end end)}.

%% Twice: who still needs the oldest code is killed.
new_code(Config) ->
    ok = add(Config, #{}, formatter([msg, "\n"])),
    Processes = processes_of_handler(),
    ok = load_twice(),
    logger:error("x", test()),
    ?assertEqual([<<"x">>], lines(Config)),
    ?assertEqual(Processes, processes_of_handler()),
    ok = well().

drops_are_told_by_new_code(Config) ->
    Options = #{overload => {drop, error}, max_bytes => 200, window => 1_000},
    ok = add(Config, Options, formatter([level, " ", msg, "\n"])),
    ok = load_twice(),
    Writer = writer(?ID),
    true = erlang:suspend_process(Writer),
    [logger:warning(lists:duplicate(90, $x), test()) || _ <- lists:seq(1, 4)],
    true = erlang:resume_process(Writer),
    ok = until(fun() -> contains(read(Config), "3 entries were dropped (warning 3)") end).

load_twice() ->
    [
        begin
            true = code:soft_purge(Module),
            {module, Module} = code:load_file(Module)
        end
     || _ <- [1, 2], Module <- modules_of_handler()
    ],
    ok.

modules_of_handler() ->
    Files = filelib:wildcard(filename:join(filename:dirname(code:which(weir_log_h)), "weir_log_h*.beam")),
    Modules = [list_to_atom(filename:basename(File, ".beam")) || File <- Files],
    ?assert(length(Modules) > 4),
    Modules.

%% The registry ends with the application that had it. The handler goes on, and its log can be started again.
application_stopped(Config) ->
    Peer = start_peer([]),
    try
        {ok, Started} = call(Peer, application, ensure_all_started, [weir_log]),
        ok = call(Peer, logger, add_handler, [?ID, weir_log_h, #{config => patient(Config)}]),
        [ok = call(Peer, application, stop, [Each]) || Each <- lists:reverse(Started)],
        ok = call(Peer, logger, error, ["after the application"]),
        ok = call(Peer, weir_log_h, sync, [?ID]),
        ?assert(contains(read(Config), "after the application")),
        true = call(Peer, weir_log_h_test_lib, kill_log, [?ID]),
        ok = until(fun() ->
            ok = call(Peer, logger, error, ["after the log"]),
            _ = call(Peer, weir_log_h, sync, [?ID]),
            contains(read(Config), "after the log")
        end)
    after
        peer:stop(Peer)
    end.

%% As when the kernel ends: what was logged is written, and who logs later is not disturbed.
logger_sup_stopped(Config) ->
    Peer = start_peer([]),
    try
        ok = call(Peer, logger, add_handler, [?ID, weir_log_h, #{config => patient(Config)}]),
        [ok = call(Peer, logger, error, ["line ~b", [N]]) || N <- lists:seq(1, 100)],
        ok = call(Peer, supervisor, terminate_child, [kernel_sup, logger_sup]),
        ?assertEqual(100, length(binary:matches(read(Config), <<"line ">>))),
        ok = call(Peer, logger, error, ["line 101"])
    after
        peer:stop(Peer)
    end.

%% ---------------------------------------------------------------- help

patient(Conf) -> #{file => ?config(file, Conf), timeout => weir_kit:wait_ms()}.

processes_of_handler() ->
    [handler_sup(?ID), whereis(?MANAGER), writer(?ID) | weir_log_h_test_lib:linked(?ID)].

%% Nothing is lost, and the file can be written: which is not known of a writer that does not answer within a second.
well() ->
    until(fun() ->
        case weir_log_h:info(?ID) of
            {ok, #{state := ok, lost := Lost}} when Lost =:= #{} -> true;
            Other -> Other
        end
    end).
