%% Releases of Weir's applications, and a node that runs them, for the suites that upgrade that node and downgrade it.
%%
%% The version before is the last that git has a tag of with the same first two numbers. The suite compiles it. Without
%% such a tag, the version before is the source of today under an earlier version number. Each module has an attribute
%% with its version, so no module is the same in both releases.
-module(weir_upgrade_releases).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([make/1, start_node/1, stop_node/1, call/4, install/2, runs/2, settled/2, version_of/2, modules/2, none_of/1]).

-define(APPS, [
    weir_flow, weir_server, weir_pool, weir_log, weir_socket, weir_memcached, weir_compat, weir_cluster, weir_watch,
    weir_memcached_server
]).
-define(LOAD, weir_upgrade_load).
%% The attribute that tells the version.
-define(TELLS, '$weir_upgrade').

%% Makes both releases in the suite's private folder, and returns the configuration with their versions and folders.
make(Config) ->
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

%% Starts a node that runs the version before, and a memcached for the load. Returns the configuration with both.
start_node(Config) ->
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

%% Ends the node and the memcached of start_node/1.
stop_node(Config) ->
    ok = peer:stop(?config(peer, Config)),
    true = port_close(?config(memcached, Config)),
    file:del_dir_r(?config(dir, Config)).

%% Returns the applications of a version and their folders in the form of the release handler.
folders(Version, Config) ->
    [{App, Vsn, filename:dirname(Dir)} || {App, Vsn, Dir} <- maps:get(Version, ?config(dirs, Config))].

load_modules() -> [?LOAD, weir_upgrade_server, weir_upgrade_batch, weir_kit].

%% ---------------------------------------------------------------- steps

%% Changes the node to a version.
install(Version, Config) ->
    {ok, _, _} = call(Config, release_handler, install_release, [Version]),
    ok.

%% Fails unless all modules of the node are of this version. Waits until no process runs code of the version before.
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

%% Returns the version of a module in the node.
version_of(Module, Config) ->
    [Version] = proplists:get_value(?TELLS, call(Config, Module, module_info, [attributes])),
    Version.

%% Waits until no process runs the version before of these modules.
settled(Modules, Config) ->
    weir_kit:until(fun() -> none_of(call(Config, ?LOAD, not_purged, [Modules])) end).

%% Returns true for no items, and the items otherwise, so that a wait that times out shows them.
none_of([]) -> true;
none_of(Some) -> Some.

%% Calls a function in the node.
call(Config, Module, Function, Arguments) ->
    peer:call(?config(peer, Config), Module, Function, Arguments, weir_kit:wait_ms()).

%% ---------------------------------------------------------------- releases

%% Returns the version before, and a function that finds the folder of an application of that version.
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

%% Returns the modules of Weir's applications in a version, each with its folder.
modules(Version, Config) ->
    [
        {Module, filename:join(Dir, "ebin")}
     || {App, _, Dir} <- maps:get(Version, ?config(dirs, Config)), lists:member(App, ?APPS),
        {ok, [{application, _, Keys}]} <- [file:consult(app(Dir))],
        Module <- proplists:get_value(modules, Keys)
    ].

%% Copies Weir's applications into folders of the version. Returns them and the applications of OTP, with their folders.
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

%% Starts a memcached at a socket of its own. The memcached ends when its port is closed.
memcached(Path) ->
    Program = os:find_executable("memcached", os:getenv("PATH") ++ ":/usr/bin:/usr/sbin"),
    User = string:trim(os:cmd("id -un")),
    Script = "\"$@\" & pid=$!; cat >/dev/null; kill $pid",
    Port = open_port({spawn_executable, "/bin/sh"}, [
        {args, ["-c", Script, "sh", Program, "-u", User, "-s", Path]}, stderr_to_stdout
    ]),
    ok = weir_kit:until(fun() -> element(1, file:read_file_info(Path)) =:= ok end),
    Port.
