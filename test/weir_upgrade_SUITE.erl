%% A running node is upgraded, and downgraded, by OTP's release handler with the .appup of each application, while every
%% part is used: no request fails, nothing is lost, and nothing runs the old code afterwards.
%%
%% The version before is the last that git has a tag of with the same first two numbers, compiled here. Where there is
%% none, it is this very source under an earlier version number. So that no module is the same in both, each has an
%% attribute that tells which version it is of.
-module(weir_upgrade_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(APPS, [
    weir_flow, weir_server, weir_pool, weir_log, weir_socket, weir_memcached, weir_compat, weir_cluster, weir_watch,
    weir_memcached_server
]).
-define(LOAD, weir_upgrade_load).
%% The attribute that tells the version.
-define(TELLS, '$weir_upgrade').

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    Root = ?config(priv_dir, Config),
    Now = version(lib(weir_pool)),
    {Before, LibsBefore} = before(Now, Root),
    Dirs = maps:from_list([{Now, libs(Root, Now, fun lib/1)}, {Before, libs(Root, Before, LibsBefore)}]),
    [ok = release(Root, Version, maps:get(Version, Dirs)) || Version <- [Before, Now]],
    Paths = [{path, [filename:join(Dir, "ebin") || Libs <- maps:values(Dirs), {_, _, Dir} <- Libs]}],
    File = fun(Version) -> filename:join([Root, "releases", Version, "weir"]) end,
    ok = systools:make_relup(File(Now), [File(Before)], [File(Before)], [
        {outdir, filename:dirname(File(Now))} | Paths
    ]),
    ct:log("From ~s to ~s and back", [Before, Now]),
    [{before, Before}, {now, Now}, {dirs, Dirs}, {root, Root} | Config].

end_per_suite(_Config) -> ok.

%% A node that runs the version before.
init_per_testcase(_Case, Config) ->
    Root = ?config(root, Config),
    Dir = filename:join("/tmp", "weir_upgrade_" ++ os:getpid()),
    _ = file:del_dir_r(Dir),
    ok = filelib:ensure_path(Dir),
    Releases = filename:join(Root, "releases"),
    Before = ?config(before, Config),
    _ = file:delete(filename:join(Releases, "RELEASES")),
    Rel = fun(Version) -> filename:join([Releases, Version, "weir.rel"]) end,
    ok = release_handler:create_RELEASES(Root, Releases, Rel(Before), folders(Before, Config)),
    Memcached = memcached(filename:join(Dir, "memcached")),
    {ok, Peer, _} = peer:start(#{
        connection => standard_io,
        wait_boot => weir_kit:wait_ms(),
        args => [
            "-boot", filename:join([Releases, Before, "start"]), "-sasl", "releases_dir", "\"" ++ Releases ++ "\"",
            "-mode", "embedded", "-pa" | [filename:dirname(code:which(Module)) || Module <- [?MODULE, weir_kit]]
        ]
    }),
    Started = [{dir, Dir}, {peer, Peer}, {memcached, Memcached} | Config],
    ok = call(Started, logger, set_handler_config, [default, level, error]),
    _ = [{module, Module} = call(Started, code, load_file, [Module]) || Module <- load_modules()],
    Now = ?config(now, Config),
    {ok, Now} = call(Started, release_handler, set_unpacked, [Rel(Now), folders(Now, Config)]),
    Started.

end_per_testcase(_Case, Config) ->
    ok = peer:stop(?config(peer, Config)),
    true = port_close(?config(memcached, Config)),
    file:del_dir_r(?config(dir, Config)).

%% As the release handler wants them.
folders(Version, Config) ->
    [{App, Vsn, filename:dirname(Dir)} || {App, Vsn, Dir} <- maps:get(Version, ?config(dirs, Config))].

load_modules() -> [?LOAD, weir_upgrade_server, weir_upgrade_batch, weir_kit].

%% ---------------------------------------------------------------- cases

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

%% Nobody sends anything, so nothing else brings those who wait into the new code: servers, what writes to memcached,
%% who accepts and receives.
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
    %% Whoever waited to receive gets what is sent now.
    #{} = call(Config, ?LOAD, stop, []).

%% Who is still in the code of two versions ago is in the way, and is not killed; nothing has changed then.
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

%% Each process of a behaviour is found by the release handler, whoever has started it, and so would be changed.
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
    [?assert(lists:keymember(Module, 2, Processes)) || Module <- [weir_log_writer, weir_pool_slot_sup, weir_pool_app]],
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

%% ---------------------------------------------------------------- steps

install(Version, Config) ->
    {ok, _, _} = call(Config, release_handler, install_release, [Version]),
    ok.

goes_on(Conf) ->
    Before = call(Conf, ?LOAD, progress, []),
    weir_kit:until(fun() ->
        ?assertEqual([], call(Conf, ?LOAD, faults, [])),
        After = call(Conf, ?LOAD, progress, []),
        none_of([Part || {Part, N} <- maps:to_list(Before), maps:get(Part, After) < N + 20])
    end).

%% All modules are of that version, and no process runs another one.
runs(Version, Config) ->
    Modules = modules(Version, Config),
    [
        begin
            ?assertEqual({Module, Version}, {Module, version_of(Module, Config)}),
            ?assertEqual(Ebin, filename:dirname(call(Config, code, which, [Module])))
        end
     || {Module, Ebin} <- Modules
    ],
    settled([Module || {Module, _} <- Modules], Config).

version_of(Module, Config) ->
    [Version] = proplists:get_value(?TELLS, call(Config, Module, module_info, [attributes])),
    Version.

%% Waits until no process runs the version before of a module.
settled(Modules, Config) ->
    weir_kit:until(fun() -> none_of(call(Config, ?LOAD, not_purged, [Modules])) end).

none_of([]) -> true;
none_of(Some) -> Some.

call(Config, Module, Function, Arguments) ->
    peer:call(?config(peer, Config), Module, Function, Arguments, weir_kit:wait_ms()).

%% ---------------------------------------------------------------- releases

%% The version before, and where its applications are.
before(Now, Root) ->
    [Major, Minor | _] = string:split(Now, ".", all),
    Line = lists:flatten([Major, ".", Minor]),
    case git(["tag --list --sort=-v:refname 'v", Line, ".*'"]) of
        [] ->
            {Now ++ "-before", fun lib/1};
        [Tag | _] ->
            Dir = filename:join(Root, Tag),
            ok = filelib:ensure_path(Dir),
            [] = git(["archive ", Tag, " | tar -x -C '", Dir, "'"]),
            Built = os:cmd(["cd '", Dir, "' && env -u ERL_LIBS TERM=dumb rebar3 compile 2>&1"]),
            Libs = fun(App) -> filename:join([Dir, "_build", "default", "lib", atom_to_list(App)]) end,
            filelib:is_dir(Libs(weir_pool)) orelse ct:fail(Built),
            {
                case Tag of
                    "v" ++ Now -> Now ++ "-before";
                    "v" ++ Tagged -> Tagged
                end,
                Libs
            }
    end.

git(Arguments) ->
    Source = proplists:get_value(source, ?MODULE:module_info(compile)),
    Dir = filename:dirname(Source),
    string:lexemes(os:cmd(lists:flatten(["git -C '", Dir, "' rev-parse >/dev/null 2>&1 && cd \"$(git -C '", Dir,
        "' rev-parse --show-toplevel)\" && git ", Arguments])), "\n").

lib(App) -> code:lib_dir(App).

version(Lib) ->
    {ok, [{application, _, Keys}]} = file:consult(app(Lib)),
    proplists:get_value(vsn, Keys).

app(Lib) ->
    [File] = filelib:wildcard(filename:join([Lib, "ebin", "*.app"])),
    File.

%% The modules of Weir's applications, and where they are.
modules(Version, Config) ->
    [
        {Module, filename:join(Dir, "ebin")}
     || {App, _, Dir} <- maps:get(Version, ?config(dirs, Config)), lists:member(App, ?APPS),
        {ok, [{application, _, Keys}]} <- [file:consult(app(Dir))],
        Module <- proplists:get_value(modules, Keys)
    ].

%% Copies of the applications, of that version and in folders of their own; those of OTP where they are.
libs(Root, Version, Lib) ->
    [{App, proplists:get_value(vsn, keys(App)), code:lib_dir(App)} || App <- [kernel, stdlib, sasl, inets]] ++
        [{App, Version, copy(App, Lib(App), Root, Version)} || App <- ?APPS].

keys(App) ->
    _ = application:load(App),
    {ok, Keys} = application:get_all_key(App),
    Keys.

copy(App, Lib, Root, Version) ->
    Dir = filename:join([Root, "lib", lists:concat([App, "-", Version])]),
    Ebin = filename:join(Dir, "ebin"),
    ok = filelib:ensure_path(Ebin),
    {ok, [{application, App, Keys}]} = file:consult(app(Lib)),
    AppFile = io_lib:format("~tp.~n", [{application, App, lists:keystore(vsn, 1, Keys, {vsn, Version})}]),
    ok = file:write_file(filename:join(Ebin, lists:concat([App, ".app"])), AppFile),
    [{ok, _} = file:copy(File, filename:join(Ebin, filename:basename(File))) ||
        File <- filelib:wildcard(filename:join([Lib, "ebin", "*.appup"]))],
    Modules = proplists:get_value(modules, Keys),
    [ok = file:write_file(filename:join(Ebin, lists:concat([Module, ".beam"])), telling(Lib, Module, Version))
        || Module <- Modules],
    Priv = filename:join(Dir, "priv"),
    ok = filelib:ensure_path(Priv),
    [{ok, _} = file:copy(File, filename:join(Priv, filename:basename(File))) ||
        File <- filelib:wildcard(filename:join([Lib, "priv", "*"])), filelib:is_regular(File)],
    Dir.

%% Returns the code of a module with one attribute more.
telling(Lib, Module, Version) ->
    {ok, Module, Chunks} = beam_lib:all_chunks(filename:join([Lib, "ebin", atom_to_list(Module)])),
    {"Attr", Attributes} = lists:keyfind("Attr", 1, Chunks),
    Others = lists:keydelete(vsn, 1, binary_to_term(Attributes)),
    More = term_to_binary([{?TELLS, [Version]}, {vsn, [Version]} | Others]),
    {ok, Binary} = beam_lib:build_module(lists:keyreplace("Attr", 1, Chunks, {"Attr", More})),
    Binary.

release(Root, Version, Libs) ->
    File = filename:join([Root, "releases", Version, "weir"]),
    ok = filelib:ensure_dir(File),
    Rel = {release, {"weir", Version}, {erts, erlang:system_info(version)}, [{App, Vsn} || {App, Vsn, _} <- Libs]},
    ok = file:write_file(File ++ ".rel", io_lib:format("~tp.~n", [Rel])),
    Path = [filename:join(Dir, "ebin") || {_, _, Dir} <- Libs],
    {ok, _, _} = systools:make_script(File, [local, no_warn_sasl, silent, {path, Path}]),
    {ok, _} = file:copy(File ++ ".boot", filename:join(filename:dirname(File), "start.boot")),
    file:write_file(filename:join(filename:dirname(File), "sys.config"), "[].\n").

%% Starts a memcached at a socket of its own. It ends when its port is closed.
memcached(Path) ->
    Program = os:find_executable("memcached", os:getenv("PATH") ++ ":/usr/bin:/usr/sbin"),
    User = string:trim(os:cmd("id -un")),
    Script = "\"$@\" & pid=$!; cat >/dev/null; kill $pid",
    Port = open_port({spawn_executable, "/bin/sh"}, [
        {args, ["-c", Script, "sh", Program, "-u", User, "-s", Path]}, stderr_to_stdout
    ]),
    ok = weir_kit:until(fun() -> element(1, file:read_file_info(Path)) =:= ok end),
    Port.
