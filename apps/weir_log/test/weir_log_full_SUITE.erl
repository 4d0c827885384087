%% A node that can start no process: logs go on, lose nothing that they have accepted, and report once there is room.
-module(weir_log_full_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).
-import(weir_kit_limits, [in_node/3, full/3]).

-define(FULL_MS, 1000).
%% The manager of a handler starts its log again after a second.
-define(HANDLER_MS, 2500).

all() -> weir_kit:cases(?MODULE).

init_per_testcase(Case, Config) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Case)),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    [{dir, Dir} | Config].

end_per_testcase(_Case, _Config) -> ok.

path(Case) -> unicode:characters_to_binary(filename:join(proplists:get_value(dir, Case), "log")).

open(Path, Opts) ->
    {ok, _} = application:ensure_all_started(weir_log),
    {ok, a} = weir_log:open(a, maps:merge(#{file => Path, newline => true}, Opts)),
    ok.

writer() ->
    {ok, Sup} = weir_log_registry:lookup(a),
    child({writer, 1}, Sup).

child(Id, Sup) ->
    {Id, Pid, _, _} = lists:keyfind(Id, 1, supervisor:which_children(Sup)),
    Pid.

%% Every report of weir_log reaches this process.
tap() ->
    ok = logger:set_primary_config(level, all),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self()}),
    logger:update_handler_config(default, level, none).

log(#{msg := {report, #{label := {weir_log, Event}}}}, #{config := Test}) -> Test ! {reported, Event};
log(_Event, _Config) -> ok.

%% A writer cannot report that its file fails. The entries that the file takes afterwards are written by that writer.
file_fails(Config) -> ok = in_node(?MODULE, fail, [path(Config)]).

fail(Path) ->
    ok = weir_log_test_file:setup(),
    ok = open(Path, #{file_module => weir_log_test_file, ack => written}),
    ok = tap(),
    Writer = writer(),
    ok = weir_log:log(a, "one"),
    full(processes, ?FULL_MS, fun() ->
        ok = weir_log_test_file:set(write, {error, enospc}),
        [{error, enospc} = weir_log:log(a, "two") || _ <- [1, 2, 3]]
    end),
    {error, enospc} = weir_log:log(a, "two"),
    receive
        {reported, failing} -> ok
    after weir_kit:wait_ms() -> error(not_reported)
    end,
    {error, enospc} = weir_log:log(a, "two"),
    %% The end of the trouble comes to be reported at the limit, too.
    full(processes, 7000, fun() ->
        ok = weir_log_test_file:set(write, ok),
        ok = weir_log:log(a, "three")
    end),
    receive
        {reported, Event} -> recovered = Event
    after weir_kit:wait_ms() -> error(not_reported)
    end,
    ok = weir_kit:same(writer, Writer, writer()),
    [<<"one">>, <<"three">> | _] = weir_log_test_lib:lines(Path),
    ok.

%% Each process that logs need is killed, and cannot be started again until there is room.
processes_are_killed(Config) -> ok = in_node(?MODULE, kill_all, [path(Config)]).

kill_all(Path) ->
    ok = open(Path, #{ack => written}),
    {ok, Sup} = weir_log_registry:lookup(a),
    Node = whereis(weir_log_node_sup),
    App = whereis(weir_log_sup),
    Kill = fun(Pid, Of) ->
        full(processes, ?FULL_MS, fun() -> weir_kit_limits:kill(Pid, Of) end),
        until(fun() -> weir_log:log(a, "x") =:= ok end),
        until(fun() -> is_pid(whereis(weir_log_registry)) andalso is_pid(whereis(weir_log_retention)) end)
    end,
    ok = Kill(child({writer, 1}, Sup), Sup),
    ok = Kill(child(opener, Sup), Sup),
    ok = Kill(whereis(weir_log_registry), Node),
    ok = Kill(whereis(weir_log_retention), Node),
    ?assertEqual({ok, Sup}, weir_log_registry:lookup(a)),
    %% The name of the log is still taken.
    {error, {already_open, a}} = weir_log:open(a, #{file => Path}),
    %% With this supervisor the names are gone, and not the log.
    ok = Kill(Node, App),
    ?assertEqual(App, whereis(weir_log_sup)),
    {ok, b} = weir_log:open(b, #{file => <<Path/binary, "b">>}),
    ok.

%% A hook that cannot be called is called once there is room.
hooks_are_called(Config) -> ok = in_node(?MODULE, call_hooks, [path(Config)]).

call_hooks(Path) ->
    Test = self(),
    ok = open(Path, #{ack => written, rotate => #{hook => fun(File) -> Test ! {hook, File} end}}),
    Cleaner = whereis(weir_log_retention),
    full(processes, ?FULL_MS, fun() ->
        [begin ok = weir_log:log(a, "x"), ok = weir_log:rotate(a) end || _ <- [1, 2, 3]]
    end),
    Called = [receive {hook, File} -> File after weir_kit:wait_ms() -> error(not_called) end || _ <- [1, 2, 3]],
    ok = weir_kit:same(files, 3, length(lists:usort(Called))),
    ?assertEqual(Cleaner, whereis(weir_log_retention)),
    ok.

%% Logs go on, and their processes start again, while no shared server of the node answers.
servers_hang(Config) -> ok = in_node(?MODULE, hang, [path(Config)]).

hang(Path) ->
    Test = self(),
    ok = open(Path, #{ack => written, rotate => #{gzip => true, hook => fun(File) -> Test ! {hook, File} end}}),
    {ok, Sup} = weir_log_registry:lookup(a),
    Node = whereis(weir_log_node_sup),
    weir_kit_limits:without_servers(fun() ->
        ok = weir_log:log(a, "x"),
        ok = weir_log:rotate(a),
        receive
            {hook, _} -> ok
        after weir_kit:wait_ms() -> error(not_called)
        end,
        [
            begin
                ok = weir_kit:kill(Pid),
                until(fun() -> weir_log:log(a, "x") =:= ok end),
                until(fun() -> is_pid(whereis(weir_log_registry)) andalso is_pid(whereis(weir_log_retention)) end)
            end
         || Pid <- [
                child({writer, 1}, Sup), child(opener, Sup),
                whereis(weir_log_registry), whereis(weir_log_retention), Node
            ]
        ],
        {ok, b} = weir_log:open(b, #{file => <<Path/binary, "b">>}),
        ok
    end).

%% The log of a handler ends, and cannot be started again until there is room.
handler_goes_on(Config) -> ok = in_node(?MODULE, handle, [path(Config)]).

handle(Path) ->
    ok = logger:set_primary_config(level, all),
    ok = logger:update_handler_config(default, level, none),
    ok = logger:add_handler(h, weir_log_h, #{config => #{file => Path}}),
    Manager = whereis(weir_log_h_h),
    Sup = weir_log_h_test_lib:handler_sup(h),
    full(processes, ?HANDLER_MS, fun() -> weir_log_h_test_lib:kill_log(h) end),
    until(fun() -> case weir_log_h:info(h) of {ok, #{state := State}} -> State =:= ok; _ -> false end end),
    ?assertEqual(Manager, whereis(weir_log_h_h)),
    full(processes, ?HANDLER_MS, fun() -> weir_kit_limits:kill(Manager, Sup) end),
    until(fun() -> case weir_log_h:info(h) of {ok, #{state := State}} -> State =:= ok; _ -> false end end),
    ?assertEqual(Sup, weir_log_h_test_lib:handler_sup(h)),
    logger:error("after"),
    ok = weir_log_h:sync(h),
    {ok, Text} = file:read_file(Path),
    true = weir_log_h_test_lib:contains(Text, "after"),
    ok.
