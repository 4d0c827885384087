%% The logger handler where it could hang, lose or take something down with it: formatters that log, processes that may
%% not wait for the log, a writer that hangs, huge events, very many callers, new code, and applications that end.
-module(weir_log_h_edge_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([formatter_logs/1, report_callback_logs/1, primary_filter/1, odd_dictionary/1, whole_config/1]).
-export([huge_events/1, many_callers/1, caller_killed/1]).
-export([logger_sup_does_not_wait/1, node_sup_does_not_wait/1, own_event_without_keeper/1]).
-export([removal_while_the_writer_hangs/1, new_code/1, drops_are_told_by_new_code/1]).
-export([application_stopped/1, logger_sup_stopped/1]).
%% A formatter and callbacks, and what runs on another node.
-export([format/2, log_and_format/1, change_message/2, kill_log/0]).

-define(ID, weir_log_h_edge).
-define(KEEPER, weir_log_h_weir_log_h_edge).

all() ->
    [
        formatter_logs,
        report_callback_logs,
        primary_filter,
        odd_dictionary,
        whole_config,
        huge_events,
        many_callers,
        caller_killed,
        logger_sup_does_not_wait,
        node_sup_does_not_wait,
        own_event_without_keeper,
        removal_while_the_writer_hangs,
        new_code,
        drops_are_told_by_new_code,
        application_stopped,
        logger_sup_stopped
    ].

suite() -> [{timetrap, {minutes, 5}}].

init_per_testcase(Case, Config) ->
    #{level := Level} = logger:get_primary_config(),
    File = filename:join([?config(priv_dir, Config), Case, "weir.log"]),
    ok = filelib:ensure_dir(File),
    [{file, File}, {primary_level, Level} | Config].

end_per_testcase(_Case, Config) ->
    _ = logger:remove_primary_filter(?MODULE),
    _ = [logger:remove_handler(Id) || Id <- [?ID, weir_log_h_other]],
    ok = logger:set_primary_config(level, ?config(primary_level, Config)).

%% ---------------------------------------------------------------- what users' functions do

%% Each event that the formatter is given leads to another one, which it is not given.
formatter_logs(Config) ->
    ok = add(Config, #{}, #{formatter => {?MODULE, #{}}}),
    logger:error("first", test()),
    logger:error("second", test()),
    [Inner1, <<"error">>, Inner2, <<"error">>] = lines(Config),
    [?assert(contains(Inner, "formatter")) || Inner <- [Inner1, Inner2]].

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

change_message(#{meta := #{?MODULE := true}} = Event, Text) -> Event#{msg := {string, Text}};
change_message(_, _) -> ignore.

%% What looks like a process's ancestors need not be any.
odd_dictionary(Config) ->
    ok = add(Config, #{}, formatter([msg, "\n"])),
    [
        in_process(fun() ->
            put('$ancestors', Odd),
            ok = logger:error("odd", test())
        end)
     || Odd <- [[], none, #{}, [none], [{a, b}, "c"], [logger_sup | kernel_sup]]
    ],
    ?assertEqual(lists:duplicate(6, <<"odd">>), lines(Config)),
    %% An improper list is too odd, but takes nobody down.
    in_process(fun() ->
        put('$ancestors', [a | b]),
        ok = logger:error("odd", test())
    end),
    ?assertMatch({ok, #{lost := #{error := 1}}}, weir_log_h:info(?ID)),
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
    ok = add(Config, #{max_bytes => 1_000_000, window => 2}, formatter([msg, "\n"])),
    Size = 16 * 1024 * 1024,
    Texts = [binary:copy(<<Letter>>, Size) || Letter <- "abc"],
    in_parallel(3, fun(I) -> logger:error("~ts", [lists:nth(I, Texts)], test()) end),
    logger:error("small", test()),
    Lines = lines(Config),
    ?assertEqual(<<"small">>, lists:last(Lines)),
    ?assert(lists:sort(Texts) =:= lists:sort(lists:droplast(Lines))).

%% All of them wait at the edges of their windows, or for the cap, and none loses anything or its order.
many_callers(Config) ->
    ok = add(Config, #{max_bytes => 100_000, window => 4}, formatter([msg, "\n"])),
    Writer = writer(),
    true = erlang:suspend_process(Writer),
    {Callers, Each} = {10_000, 5},
    Pids = [
        spawn_monitor(fun() -> [logger:error("~b ~b", [I, N], test()) || N <- lists:seq(1, Each)] end)
     || I <- lists:seq(1, Callers)
    ],
    ok = until(fun() -> lists:all(fun({Pid, _}) -> process_info(Pid, status) =:= {status, waiting} end, Pids) end),
    {message_queue_len, Length} = process_info(Writer, message_queue_len),
    ?assert(Length =< 4 * Callers),
    true = erlang:resume_process(Writer),
    [receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason) end || {Pid, Monitor} <- Pids],
    Pairs = [list_to_tuple([binary_to_integer(N) || N <- binary:split(Line, <<" ">>)]) || Line <- lines(Config)],
    ?assertEqual(Callers * Each, length(Pairs)),
    %% A stable sort by caller: the order of each is kept.
    ?assertEqual([{I, N} || I <- lists:seq(1, Callers), N <- lists:seq(1, Each)], lists:keysort(1, Pairs)),
    ?assertMatch({ok, #{state := ok, lost := Lost}} when Lost =:= #{}, weir_log_h:info(?ID)).

%% One that is killed while it waits has sent its event; others are not disturbed.
caller_killed(Config) ->
    ok = add(Config, #{ack => written}, formatter([msg, "\n"])),
    Writer = writer(),
    true = erlang:suspend_process(Writer),
    {Pid, Monitor} = spawn_monitor(fun() -> logger:error("killed", test()) end),
    ok = until(fun() -> process_info(Pid, status) =:= {status, waiting} end),
    exit(Pid, kill),
    receive
        {'DOWN', Monitor, process, Pid, killed} -> ok
    end,
    true = erlang:resume_process(Writer),
    logger:error("alive", test()),
    ?assertEqual([<<"killed">>, <<"alive">>], lines(Config)).

%% ---------------------------------------------------------------- who may not wait

%% A progress report of logger_sup itself, while every event waits for a writer that does nothing.
logger_sup_does_not_wait(Config) ->
    ok = add(Config, #{window => 1}, #{}),
    ok = logger:set_primary_config(level, all),
    Writer = writer(),
    true = erlang:suspend_process(Writer),
    Test = self(),
    Other = #{config => #{file => ?config(file, Config) ++ ".other"}},
    _ = spawn(fun() -> Test ! {added, logger:add_handler(weir_log_h_other, weir_log_h, Other)} end),
    Added = receive {added, Answer} -> Answer after 30_000 -> hangs end,
    ok = logger:set_primary_config(level, ?config(primary_level, Config)),
    true = erlang:resume_process(Writer),
    ?assertEqual(ok, Added),
    ok = until(fun() -> contains(read(Config), "logger_sup") end).

%% The supervisor of what all logs share reports that it has restarted the registry.
node_sup_does_not_wait(Config) ->
    ok = add(Config, #{window => 1}, #{}),
    Writer = writer(),
    true = erlang:suspend_process(Writer),
    Registry = whereis(weir_log_registry),
    exit(Registry, kill),
    Restarted = reached(fun() -> not lists:member(whereis(weir_log_registry), [undefined, Registry]) end),
    true = erlang:resume_process(Writer),
    ?assert(Restarted),
    ok = until(fun() -> contains(read(Config), "weir_log_node_sup") end).

reached(Condition) ->
    try until(Condition) of
        ok -> true
    catch
        error:timeout -> false
    end.

own_event_without_keeper(Config) ->
    ok = add(Config, #{}, formatter([msg, "\n"])),
    Sup = handler_sup(),
    true = unregister(?KEEPER),
    in_process(fun() ->
        put('$ancestors', [Sup, logger_sup]),
        ok = logger:error("nobody takes it", test())
    end),
    true = register(?KEEPER, keeper_of(Sup)),
    ?assertMatch({ok, #{lost := #{error := 1}}}, weir_log_h:info(?ID)).

%% ---------------------------------------------------------------- ends and new beginnings

%% Five seconds are given to the last writes. After that the log goes on without the handler, and ends by itself.
removal_while_the_writer_hangs(Config) ->
    ok = add(Config, #{}, formatter([msg, "\n"])),
    Writer = writer(),
    true = erlang:suspend_process(Writer),
    logger:error("before", test()),
    {Waiting, Monitor} = spawn_monitor(fun() -> [logger:error("x", test()) || _ <- lists:seq(1, 17)] end),
    ok = until(fun() -> process_info(Waiting, status) =:= {status, waiting} end),
    ok = logger:remove_handler(?ID),
    ?assertEqual(undefined, whereis(?KEEPER)),
    ok = logger:error("nobody listens", test()),
    true = erlang:resume_process(Writer),
    receive
        {'DOWN', Monitor, process, Waiting, Reason} -> ?assertEqual(normal, Reason)
    end,
    ok = until(fun() -> add(Config, #{}, formatter([msg, "\n"])) =:= ok end),
    logger:error("after", test()),
    Lines = lines(Config),
    ?assertMatch([<<"before">>, <<"x">> | _], Lines),
    ?assertEqual(<<"after">>, lists:last(Lines)).

%% Twice: who still needs the oldest code is killed.
new_code(Config) ->
    ok = add(Config, #{}, formatter([msg, "\n"])),
    Processes = processes_of_handler(),
    ok = load_twice(),
    logger:error("x", test()),
    ?assertEqual([<<"x">>], lines(Config)),
    ?assertEqual(Processes, processes_of_handler()),
    ?assertMatch({ok, #{state := ok, lost := Lost}} when Lost =:= #{}, weir_log_h:info(?ID)).

drops_are_told_by_new_code(Config) ->
    Options = #{overload => {drop, error}, max_bytes => 100, window => 1_000},
    ok = add(Config, Options, formatter([level, " ", msg, "\n"])),
    ok = load_twice(),
    Writer = writer(),
    true = erlang:suspend_process(Writer),
    [logger:warning(lists:duplicate(90, $x), test()) || _ <- lists:seq(1, 4)],
    true = erlang:resume_process(Writer),
    ok = until(fun() -> contains(read(Config), "Log handler weir_log_h_edge:") end),
    ?assert(contains(read(Config), "3 events were dropped: 3 warning.")).

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
    ?assert(length(Modules) > 5),
    Modules.

%% The registry ends with the application that had it. The handler goes on, and its log can be started again.
application_stopped(Config) ->
    Peer = start_peer(),
    try
        {ok, Started} = peer:call(Peer, application, ensure_all_started, [weir_log]),
        ok = peer:call(Peer, logger, add_handler, [?ID, weir_log_h, #{config => #{file => ?config(file, Config)}}]),
        [ok = peer:call(Peer, application, stop, [Each]) || Each <- lists:reverse(Started)],
        ok = peer:call(Peer, logger, error, ["after the application"]),
        ok = peer:call(Peer, weir_log_h, sync, [?ID]),
        ?assert(contains(read(Config), "after the application")),
        true = peer:call(Peer, ?MODULE, kill_log, []),
        ok = until(fun() ->
            ok = peer:call(Peer, logger, error, ["after the log"]),
            _ = peer:call(Peer, weir_log_h, sync, [?ID]),
            contains(read(Config), "after the log")
        end)
    after
        peer:stop(Peer)
    end.

%% As when the kernel ends: what was logged is written, and who logs later is not disturbed.
logger_sup_stopped(Config) ->
    Peer = start_peer(),
    try
        ok = peer:call(Peer, logger, add_handler, [?ID, weir_log_h, #{config => #{file => ?config(file, Config)}}]),
        [ok = peer:call(Peer, logger, error, ["line ~b", [N]]) || N <- lists:seq(1, 100)],
        ok = peer:call(Peer, supervisor, terminate_child, [kernel_sup, logger_sup], 60_000),
        ?assertEqual(100, length(binary:matches(read(Config), <<"line ">>))),
        ok = peer:call(Peer, logger, error, ["line 101"])
    after
        peer:stop(Peer)
    end.

start_peer() ->
    Modules = [weir_log_h, weir_server, ?MODULE],
    Paths = lists:usort([filename:dirname(code:which(Module)) || Module <- Modules]),
    {ok, Peer, _} = peer:start(#{connection => standard_io, args => ["-pa" | Paths]}),
    Peer.

kill_log() -> exit(log_sup(), kill).

%% ---------------------------------------------------------------- help

test() -> #{?MODULE => true}.

formatter(Template) ->
    (only_of_test())#{formatter => {logger_formatter, #{template => Template}}}.

%% What else goes on in the node is not for this file.
only_of_test() ->
    #{filter_default => stop, filters => [{test, {fun of_test/2, x}}]}.

of_test(#{meta := #{?MODULE := true}} = Event, _) -> Event;
of_test(_, _) -> stop.

add(Config, Options, Handler) ->
    Filtered =
        case Handler of
            #{formatter := _} -> maps:merge(only_of_test(), Handler);
            #{} -> Handler
        end,
    logger:add_handler(?ID, weir_log_h, Filtered#{config => Options#{file => ?config(file, Config)}}).

read(Config) ->
    {ok, Text} = file:read_file(?config(file, Config)),
    Text.

lines(Config) ->
    ok = weir_log_h:sync(?ID),
    binary:split(read(Config), <<"\n">>, [global, trim]).

contains(Text, Part) -> binary:match(Text, unicode:characters_to_binary(Part)) =/= nomatch.

in_process(Fun) -> in_parallel(1, fun(_) -> Fun() end).

in_parallel(N, Fun) ->
    Monitors = [element(2, spawn_monitor(fun() -> Fun(I) end)) || I <- lists:seq(1, N)],
    [receive {'DOWN', Monitor, process, _, Reason} -> ?assertEqual(normal, Reason) end || Monitor <- Monitors],
    ok.

handler_sup() ->
    {_, Sup, _, _} = lists:keyfind({weir_log_h, ?ID}, 1, supervisor:which_children(logger_sup)),
    Sup.

keeper_of(Sup) ->
    [{keeper, Keeper, _, _}] = supervisor:which_children(Sup),
    Keeper.

%% Those that the keeper is linked to: the log's supervisor, and the hand.
linked() ->
    {links, Links} = process_info(whereis(?KEEPER), links),
    lists:sort([Pid || Pid <- Links, is_pid(Pid), Pid =/= handler_sup()]).

log_sup() ->
    [Log] = [Pid || Pid <- linked(), is_log_sup(Pid)],
    Log.

is_log_sup(Pid) ->
    {dictionary, Dictionary} = process_info(Pid, dictionary),
    proplists:get_value('$initial_call', Dictionary, none) =:= {supervisor, weir_log_log_sup, 1}.

writer() ->
    {_, Writer, _, _} = lists:keyfind({writer, 1}, 1, supervisor:which_children(log_sup())),
    Writer.

processes_of_handler() ->
    [handler_sup(), whereis(?KEEPER), writer() | linked()].

until(Condition) -> until(Condition, erlang:monotonic_time(millisecond) + 60_000).

until(Condition, Deadline) ->
    case Condition() of
        true ->
            ok;
        _ ->
            erlang:monotonic_time(millisecond) < Deadline orelse error(timeout),
            receive
            after 10 -> until(Condition, Deadline)
            end
    end.
