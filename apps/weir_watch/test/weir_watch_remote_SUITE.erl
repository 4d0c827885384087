%% A node that has nothing of Weir is looked at, by the module and by the command, and has nothing of it afterwards,
%% however that ended.
-module(weir_watch_remote_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, wait_ms/0]).

all() -> [{group, side_by_side}, {group, module}, {group, command}, in_a_shell, of_its_own_node, keys].

%% Side by side are those that take long, and find nothing wrong with what others do to the machine meanwhile.
groups() ->
    [
        {side_by_side, [parallel], [
            foreign_module_loaded, foreign_module_in_the_path, another_release, usage, in_trouble
        ]},
        {module, [], [
            attach_and_detach,
            killed,
            killed_while_it_traces,
            two,
            many_at_once,
            one_after_the_other,
            agent_gone,
            same_modules_stay,
            unreachable,
            explained,
            messages
        ]},
        {command, [], [
            made_elsewhere, healthy, limits_are_told, could_not_look, screen, gone_and_back, command_killed,
            terminal_killed
        ]}
    ].

init_per_suite(Config0) ->
    Weir = filename:join(?config(priv_dir, Config0), "weir"),
    Ebin = filename:dirname(code:which(weir_watch_remote)),
    Made = os:cmd(weir_kit:path("scripts/weir") ++ " " ++ filename:dirname(filename:dirname(Ebin)) ++ " " ++ Weir),
    ?assert(filelib:is_regular(Weir), Made),
    Config = [{weir, Weir} | Config0],
    case is_alive() of
        true ->
            Config;
        false ->
            _ = os:cmd("epmd -daemon"),
            %% It may not listen yet.
            until(fun() -> element(1, erl_epmd:names("localhost")) =:= ok end),
            {ok, _} = net_kernel:start(list_to_atom("weir_watch_" ++ os:getpid()), #{name_domain => shortnames}),
            [{distribution, started} | Config]
    end.

end_per_suite(Config) -> proplists:is_defined(distribution, Config) andalso net_kernel:stop().

init_per_testcase(Case, Config) when
    Case =:= screen; Case =:= gone_and_back; Case =:= command_killed; Case =:= terminal_killed
->
    case os:cmd("python3 -c 'import pty; pty.openpty()' 2>&1") of
        "" -> set_up(Config);
        _ -> {skip, "this system gives out no pseudo-terminals"}
    end;
init_per_testcase(_Case, Config) ->
    set_up(Config).

set_up(Config) ->
    {Peer, Node} = start_node(peer:random_name()),
    [{peer, Peer}, {node, Node} | Config].

end_per_testcase(_Case, Config) -> stop_node(?config(peer, Config)).

start_node(Name) ->
    Cookie = atom_to_list(erlang:get_cookie()),
    {ok, Peer, Node} = peer:start(#{
        name => Name, connection => standard_io, wait_boot => wait_ms(),
        args => ["-setcookie", Cookie, "-connect_all", "false"]
    }),
    {Peer, Node}.

stop_node(Peer) -> try peer:stop(Peer) catch exit:_ -> ok end.

%% ---------------------------------------------------------------- the module

attach_and_detach(Config) ->
    Node = ?config(node, Config),
    Before = traces(Config),
    {ok, Agent, Handle} = weir_watch_remote:attach(Node),
    ?assertEqual(Node, node(Agent)),
    ok = weir_watch_agent:subscribe(Agent),
    ?assertMatch(#{node := Node, suspects := _}, snapshot(Agent)),
    ?assertNotEqual(Before, traces(Config)),
    ok = weir_watch_remote:detach(Handle),
    ?assertEqual(Before, traces(Config)).

%% Who asks for what is in a mailbox there leaves nothing, either.
messages(Config) ->
    Pid = holds_logins(Config),
    Before = traces(Config),
    {ok, #{queue := 300, messages := [First | _] = Told}} = weir_watch:messages(Pid),
    ?assertEqual({<<"{login,1}">>, 20}, {First, length(Told)}),
    ?assertEqual(Before, traces(Config)),
    stop_node(?config(peer, Config)),
    ?assertMatch({error, {no_name, _}}, weir_watch:messages(Pid)).

holds_logins(Config) ->
    evaluated("Pid = spawn(fun() -> receive never -> ok end end), [Pid ! {login, N} || N <- lists:seq(1, 300)], Pid.",
        Config).

%% The process that attached is killed.
killed(Config) ->
    Before = traces(Config),
    {Pid, _Agent} = attached(?config(node, Config)),
    exit(Pid, kill),
    until(fun() -> traces(Config) =:= Before end).

%% The same while the agent traces a suspect, where the runtime has trace sessions.
killed_while_it_traces(Config) ->
    Before = traces(Config),
    #{word := 0} = Before,
    _ = flood(Config),
    {Pid, _Agent} = attached(?config(node, Config)),
    case has_sessions(Config) of
        true -> until(fun() -> word(Config) =/= 0 end);
        false -> ok
    end,
    exit(Pid, kill),
    until(fun() -> traces(Config) =:= Before end).

%% The first one's end leaves the second one what it needs.
two(Config) ->
    Node = ?config(node, Config),
    Before = traces(Config),
    {First, Agent} = attached(Node),
    {ok, Agent, Handle} = weir_watch_remote:attach(Node),
    ok = weir_watch_agent:subscribe(Agent),
    exit(First, kill),
    _ = [{snapshot(Agent), weir_watch_agent:next(Agent)} || _ <- [1, 2, 3]],
    %% Until the first one has ended, and that is known there, he is attached.
    Guard = call(Config, erlang, whereis, [weir_watch_guard]),
    until(fun() ->
        {monitors, Monitored} = call(Config, erlang, process_info, [Guard, monitors]),
        not lists:member({process, First}, Monitored)
    end),
    ok = weir_watch_remote:detach(Handle),
    ?assertEqual(Before, traces(Config)).

%% Each is given an agent, whoever came first, also while others end.
many_at_once(Config) ->
    Node = ?config(node, Config),
    Before = traces(Config),
    Attach = fun(_) ->
        {ok, Agent, Handle} = weir_watch_remote:attach(Node),
        ?assertEqual(Node, node(Agent)),
        ok = weir_watch_remote:detach(Handle)
    end,
    _ = weir_kit:in_parallel(lists:duplicate(8, fun() -> lists:foreach(Attach, lists:seq(1, 5)) end)),
    until(fun() -> traces(Config) =:= Before end).

one_after_the_other(Config) ->
    Before = traces(Config),
    [
        begin
            {ok, _, Handle} = weir_watch_remote:attach(?config(node, Config)),
            ok = weir_watch_remote:detach(Handle)
        end
     || _ <- lists:seq(1, 10)
    ],
    ?assertEqual(Before, traces(Config)).

%% An agent that has ended is no reason to leave something there; who attaches then gets another.
agent_gone(Config) ->
    Node = ?config(node, Config),
    Before = traces(Config),
    {ok, Agent, Handle} = weir_watch_remote:attach(Node),
    ok = weir_kit:kill(Agent),
    until(fun() ->
        {ok, Another, Second} = weir_watch_remote:attach(Node),
        ok = weir_watch_remote:detach(Second),
        Another =/= Agent
    end),
    ok = weir_watch_remote:detach(Handle),
    ?assertEqual(Before, traces(Config)).

foreign_module_loaded(Config) ->
    {module, _} = call(Config, code, load_binary, [weir_watch_agent, "foreign", foreign()]),
    refused(Config),
    ?assertMatch({file, "foreign"}, call(Config, code, is_loaded, [weir_watch_agent])).

foreign_module_in_the_path(Config) ->
    Dir = filename:join(?config(priv_dir, Config), "foreign"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    ok = file:write_file(filename:join(Dir, "weir_watch_agent.beam"), foreign()),
    true = call(Config, code, add_patha, [Dir]),
    refused(Config).

foreign() ->
    Forms = [{attribute, 1, module, weir_watch_agent}, {attribute, 1, export, []}],
    {ok, weir_watch_agent, Beam} = compile:forms(Forms),
    Beam.

refused(Config) ->
    Node = ?config(node, Config),
    Before = traces(Config),
    ?assertEqual({error, {other_modules, [weir_watch_agent]}}, weir_watch_remote:attach(Node)),
    ?assertEqual(Before, traces(Config)),
    {2, Output} = weir(Config, ["top", atom_to_list(Node), "--once", "--seconds", "1"]),
    ?assertNotEqual(nomatch, string:find(Output, "another version of weir_watch_agent")).

%% What the node has itself is used, and stays.
same_modules_stay(Config) ->
    true = call(Config, code, add_patha, [filename:dirname(code:which(weir_watch_agent))]),
    {module, weir_watch_agent} = call(Config, code, load_file, [weir_watch_agent]),
    {ok, Agent, Handle} = weir_watch_remote:attach(?config(node, Config)),
    ok = weir_watch_agent:subscribe(Agent),
    #{} = snapshot(Agent),
    ok = weir_watch_remote:detach(Handle),
    ?assertMatch({file, _}, call(Config, code, is_loaded, [weir_watch_agent])),
    ?assertEqual(undefined, call(Config, erlang, whereis, [weir_watch_guard])),
    %% And its own agent serves.
    {ok, _} = call(Config, application, ensure_all_started, [weir_watch]),
    Own = call(Config, erlang, whereis, [weir_watch_agent]),
    {ok, Own, None} = weir_watch_remote:attach(?config(node, Config)),
    ok = weir_watch_remote:detach(None),
    ?assertEqual(Own, call(Config, erlang, whereis, [weir_watch_agent])).

unreachable(Config) ->
    [_, Host] = string:split(atom_to_list(?config(node, Config)), "@"),
    Named = fun(Name, At) -> list_to_atom(Name ++ "@" ++ At) end,
    {error, {no_name, Names}} = weir_watch_remote:attach(Named("nobody", Host)),
    ?assert(lists:member(hd(string:split(atom_to_list(?config(node, Config)), "@")), Names)),
    ?assertEqual({error, {no_host, "nowhere-at-all"}}, weir_watch_remote:attach(Named("nobody", "nowhere-at-all"))),
    stop_node(?config(peer, Config)),
    %% It may not have ended yet.
    until(fun() ->
        case weir_watch_remote:attach(?config(node, Config)) of
            {error, {no_name, _}} -> true;
            {error, _} -> false;
            {ok, _, Handle} -> ok = weir_watch_remote:detach(Handle), false
        end
    end),
    ok.

%% A node of each other release of OTP that there is a root directory of (scripts/otp-root makes them), with nothing of
%% Weir in it: by the module, by the function and by the command, and then it has nothing of Weir again.
another_release(Config) ->
    Here = erlang:system_info(otp_release),
    Roots = filelib:wildcard(filename:join(filename:basedir(user_cache, "weir"), "otp[0-9][0-9]")),
    Others = [{lists:nthtail(length(Root) - 2, Root), Root} || Root <- Roots],
    case {[Other || {Release, Root} = Other <- Others, Release =/= Here, has_erl(Root)], os:cmd("id -u")} of
        {[], _} -> {skip, "no root directory of another release"};
        {Some, "0\n"} -> lists:foreach(fun({Release, Root}) -> looked_at_in(Root, Release, Config) end, Some);
        _ -> {skip, "only root may enter the root directories"}
    end.

has_erl(Root) -> filelib:is_regular(Root ++ "/usr/bin/erl").

looked_at_in(Root, Release, Config) ->
    {ok, Peer, Node} = peer:start(#{
        name => peer:random_name(), connection => standard_io, wait_boot => wait_ms(),
        exec => {os:find_executable("chroot"), [Root, "/usr/bin/erl"]},
        args => ["-setcookie", atom_to_list(erlang:get_cookie()), "-connect_all", "false"]
    }),
    There = [{peer, Peer}, {node, Node} | Config],
    Otp = list_to_binary(Release),
    try
        Release = call(There, erlang, system_info, [otp_release]),
        Before = traces(There),
        {ok, Agent, Handle} = weir_watch_remote:attach(Node),
        ok = weir_watch_agent:subscribe(Agent),
        ?assertMatch(#{node := Node, otp := Otp, suspects := _}, snapshot(Agent)),
        ?assertNotEqual(Before, traces(There)),
        ok = weir_watch_remote:detach(Handle),
        ?assertEqual(Before, traces(There)),
        ?assertMatch(#{node := Node, otp := Otp}, weir_watch:look(#{node => Node, seconds => 1})),
        ?assertEqual(Before, traces(There)),
        %% By the command, while others wait for the node's processors.
        _ = flood(There),
        {Status, Json} = weir(There, ["top", atom_to_list(Node), "--json", "--seconds", "1"]),
        ?assert(Status =:= 0 orelse Status =:= 1, Json),
        ?assertNotEqual(nomatch, string:find(Json, "\"otp\":\"" ++ Release ++ "\"")),
        until(fun() -> traces(There) =:= Before end)
    after
        stop_node(Peer)
    end.

%% Each reason has words of its own.
explained(_Config) ->
    Reasons = [
        not_distributed, {no_host, "h"}, {no_epmd, "h"}, {no_name, []}, {no_name, ["a", "b"]}, refused, disconnected,
        timeout, too_old,
        {other_modules, [m]}, {no_compiler, 25}, {not_loaded, x}, {no_agent, x}, {failed, x}
    ],
    Texts = [unicode:characters_to_list(weir_watch_remote:explain(a@h, Reason)) || Reason <- Reasons],
    ?assertEqual(length(Reasons), length(lists:usort(Texts))).

%% A process that is attached, and its agent.
attached(Node) ->
    Self = self(),
    Pid = spawn(fun() ->
        {ok, Agent, _} = weir_watch_remote:attach(Node),
        ok = weir_watch_agent:subscribe(Agent),
        Self ! {self(), Agent},
        receive after infinity -> ok end
    end),
    receive {Pid, Agent} -> {Pid, Agent} after wait_ms() -> ct:fail(not_attached) end.

snapshot(Agent) ->
    receive {weir_watch, Agent, Snapshot} -> Snapshot after wait_ms() -> ct:fail(no_snapshot) end.

%% What attaching could leave on the node: modules, also old ones; processes that run them or the guard; names; tables
%% of theirs; trace sessions, and the word in which they count.
traces(Config) ->
    Modules = [weir_watch_guard | weir_watch_agent:modules()],
    #{
        loaded => [M || M <- Modules, call(Config, code, is_loaded, [M]) =/= false],
        old => [M || M <- Modules, call(Config, erlang, check_old_code, [M])],
        names => [Name || Name <- call(Config, erlang, registered, []), lists:prefix("weir", atom_to_list(Name))],
        tables => [Table || Table <- call(Config, ets, all, []), lists:member(Table, Modules)],
        sessions => case has_sessions(Config) of true -> call(Config, trace, session_info, [all]); false -> none end,
        word => word(Config),
        tables_count => length(call(Config, ets, all, [])),
        processes => [
            Pid
         || Pid <- call(Config, erlang, processes, []),
            {initial_call, {erl_eval, _, _}} <- [call(Config, erlang, process_info, [Pid, initial_call])]
        ] ++ [
            Pid
         || Pid <- call(Config, erlang, processes, []),
            {dictionary, Dictionary} <- [call(Config, erlang, process_info, [Pid, dictionary])],
            {M, _, _} <- [proplists:get_value('$initial_call', Dictionary)],
            lists:member(M, Modules)
        ]
    }.

has_sessions(Config) ->
    call(Config, code, ensure_loaded, [trace]) =:= {module, trace} andalso
        call(Config, erlang, function_exported, [trace, session_info, 1]).

word(Config) -> call(Config, erlang, system_info, [trace_control_word]).

call(Config, M, F, A) -> weir_kit_nodes:call(?config(peer, Config), M, F, A).

%% ---------------------------------------------------------------- the command

usage(Config) ->
    {0, Help} = weir(Config, ["help"]),
    ?assertNotEqual(nomatch, string:find(Help, "weir top NODE")),
    [
        ?assertMatch({2, "weir: " ++ _}, weir(Config, Args), Args)
     || Args <- [
            ["top"], ["tap"], ["top", "--once"], ["top", "a@b@c"], ["top", "a@b", "c@d"],
            ["top", "a@b", "--seconds", "no"], ["top", "a@b", "--cookie"], ["top", "a@b", "--other"]
        ]
    ].

%% On an OTP that does not load what is in it.
made_elsewhere(Config) ->
    Lib = filename:join(?config(priv_dir, Config), "elsewhere"),
    Ebin = filename:join([Lib, "weir_watch", "ebin"]),
    ok = filelib:ensure_path(Ebin),
    Beams = filelib:wildcard(filename:join(filename:dirname(code:which(weir_watch_top)), "*.beam")),
    [ok = file:write_file(filename:join(Ebin, filename:basename(Beam)), of_the_future(Beam)) || Beam <- Beams],
    ?assertEqual({error, badfile}, code:load_abs(filename:join(Ebin, "weir_watch_top"))),
    Weir = filename:join(Lib, "weir"),
    Made = os:cmd(weir_kit:path("scripts/weir") ++ " " ++ Lib ++ " " ++ Weir),
    ?assert(filelib:is_regular(Weir), Made),
    ?assertEqual(weir(Config, ["help"]), weir([{weir, Weir}], ["help"])).

%% Its code has instructions that no runtime knows.
of_the_future(Beam) ->
    {ok, _, Chunks} = beam_lib:all_chunks(Beam),
    {ok, New} = beam_lib:build_module([
        case Chunk of
            {"Code", <<Size:32, Set:32, _Opcodes:32, Rest/binary>>} ->
                {"Code", <<Size:32, Set:32, 9999:32, Rest/binary>>};
            _ -> Chunk
        end
     || Chunk <- Chunks
    ]),
    New.

healthy(Config) ->
    Before = traces(Config),
    Node = atom_to_list(?config(node, Config)),
    {0, Text} = weir(Config, ["top", Node, "--seconds", "1"]),
    ?assertNotEqual(nomatch, string:prefix(Text, Node ++ ": nothing was found in ")),
    ?assertNotEqual(nomatch, string:find(Text, "weir takes")),
    {0, Json} = weir(Config, ["top", Node, "--once", "--json", "--seconds", "1"]),
    [?assertNotEqual(nomatch, string:find(Json, Part)) || Part <- ["\"diagnoses\":[]", "\"limits\":[", "\"cost\":{"]],
    until(fun() -> traces(Config) =:= Before end).

%% Somebody else has the node's system monitor, which is why something may be wrong that is not found. From OTP 28 on
%% everybody may have one.
limits_are_told(Config) ->
    Node = ?config(node, Config),
    _ = call(Config, erlang, system_monitor, [call(Config, erlang, whereis, [init]), [busy_port]]),
    case call(Config, code, ensure_loaded, [trace]) =:= {module, trace} andalso
        call(Config, erlang, function_exported, [trace, system, 3])
    of
        true -> {skip, "nobody can be in the way"};
        false ->
            Text = "The node's system monitor is somebody else's",
            {0, Report} = weir(Config, ["top", atom_to_list(Node), "--seconds", "1"]),
            ?assertNotEqual(nomatch, string:find(Report, Text)),
            {0, Json} = weir(Config, ["top", atom_to_list(Node), "--json", "--seconds", "1"]),
            ?assertNotEqual(nomatch, string:find(Json, Text)),
            #{diagnoses := [], limits := [_ | _]} = weir_watch:look(#{node => Node, seconds => 1})
    end.

%% A process that has far more messages than it handles, and more each moment.
in_trouble(Config) ->
    Pid = flood(Config),
    Node = atom_to_list(?config(node, Config)),
    Name = "<0." ++ tl(string:find(string:slice(pid_to_list(Pid), 1), ".")),
    until(fun() ->
        case weir(Config, ["top", Node, "--json", "--seconds", "3"]) of
            {1, "{" ++ _ = Json} -> string:find(Json, "\"pid\":\"" ++ Name ++ "\"") =/= nomatch;
            {0, "{" ++ _} -> false
        end
    end),
    until(fun() ->
        case weir(Config, ["top", Node, "--once", "--seconds", "3"]) of
            {1, Text} -> string:find(Text, Name) =/= nomatch;
            {0, _} -> false
        end
    end).

flood(Config) ->
    evaluated(
        "Sink = spawn(fun() -> (fun Loop() -> lists:seq(1, 100), Loop() end)() end),"
        "spawn(fun() -> (fun Loop(0) -> ok; Loop(N) -> Sink ! {work, N},"
        "    case N rem 100 of 0 -> receive after 1 -> Loop(N - 1) end; _ -> Loop(N - 1) end end)(5000000) end), Sink.",
        Config
    ).

%% On the node, which has no module of ours.
evaluated(Text, Config) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    {ok, Exprs} = erl_parse:parse_exprs(Tokens),
    {value, Value, _} = call(Config, erl_eval, exprs, [Exprs, []]),
    Value.

could_not_look(Config) ->
    Node = atom_to_list(?config(node, Config)),
    [_, Host] = string:split(Node, "@"),
    {2, "weir: " ++ _} = weir(Config, ["top", "nobody@" ++ Host, "--once"]),
    {2, "weir: " ++ Cookie} = weir(Config, ["top", Node, "--once", "--cookie", "wrong"]),
    ?assertNotEqual(nomatch, string:find(Cookie, "--cookie")),
    %% Without a terminal it does not begin.
    {2, "weir: " ++ Terminal} = weir(Config, ["top", Node]),
    ?assertNotEqual(nomatch, string:find(Terminal, "--once")).

screen(Config) ->
    _ = holds_logins(Config),
    Before = traces(Config),
    T = terminal(Config),
    shows(T, "memory"),
    mode(T, "raw"),
    keys(T, "?"),
    shows(T, "ctrl-C     quit"),
    keys(T, "?"),
    keys(T, "s"),
    shows(T, "sort: core"),
    keys(T, "\eOB\e[Ajkp"),
    keys(T, " "),
    shows(T, "PAUSED"),
    keys(T, " "),
    shows(T, " 300 "),
    keys(T, "m"),
    keys(T, "i"),
    shows(T, "300 messages"),
    ?assertEqual(nomatch, string:find(output(T), "{login,1}")),
    keys(T, "m"),
    shows(T, "{login,1}"),
    keys(T, "i"),
    %% A line as wide as the terminal says that the new width is known.
    true = port_command(T, "size 30 100\n"),
    shows(T, lists:duplicate(100, $-)),
    keys(T, [3]),
    ?assertEqual(0, ended(T)),
    mode(T, "sane"),
    until(fun() -> traces(Config) =:= Before end).

gone_and_back(Config) ->
    Node = ?config(node, Config),
    T = terminal(Config),
    shows(T, "memory"),
    stop_node(?config(peer, Config)),
    shows(T, "Trying again."),
    [Name, _] = string:split(atom_to_list(Node), "@"),
    %% Its name is not free yet, where epmd has to hear of its end.
    until(fun() ->
        {ok, Names} = erl_epmd:names("localhost"),
        not lists:keymember(Name, 1, Names)
    end),
    {Peer, Node} = start_node(Name),
    %% The message is gone from the screen: each begins in the corner, so what counts is the last one.
    until(fun() ->
        Last = lists:last(string:split(output(T), "\e[H", all)),
        string:find(Last, "memory") =/= nomatch andalso string:find(Last, "Trying again.") =:= nomatch
    end),
    keys(T, "q"),
    ?assertEqual(0, ended(T)),
    until(fun() -> maps:get(loaded, traces([{peer, Peer}])) =:= [] end),
    stop_node(Peer).

%% kill -9 of what runs the command: the node is as before, and so is the terminal.
command_killed(Config) ->
    Before = traces(Config),
    T = terminal(Config),
    shows(T, "memory"),
    ?assertNotEqual(Before, traces(Config)),
    _ = os:cmd("kill -9 " ++ get({T, pid})),
    _ = ended(T),
    until(fun() -> traces(Config) =:= Before end),
    until(fun() -> mode(T) =:= "sane" end).

%% The terminal is closed.
terminal_killed(Config) ->
    Before = traces(Config),
    T = terminal(Config),
    shows(T, "memory"),
    {os_pid, Python} = erlang:port_info(T, os_pid),
    _ = os:cmd("kill -9 " ++ integer_to_list(Python)),
    until(fun() -> traces(Config) =:= Before end).

%% {Status, what it prints on either output}.
weir(Config, Args) ->
    Port = open_port({spawn_executable, ?config(weir, Config)}, [
        {args, Args ++ cookie(Args)}, exit_status, stderr_to_stdout, {env, [{"ERL_FLAGS", false}]}
    ]),
    weir_output(Port, []).

%% Where no other is asked for, this node's.
cookie(["top" | Args]) ->
    case lists:any(fun(Arg) -> lists:member(Arg, ["--cookie", "--other"]) end, Args) of
        true -> [];
        false -> ["--cookie", atom_to_list(erlang:get_cookie())]
    end;
cookie(_) ->
    [].

weir_output(Port, Acc) ->
    receive
        {Port, {data, Data}} -> weir_output(Port, [Acc, Data]);
        {Port, {exit_status, Status}} -> {Status, lists:flatten(Acc)}
    after wait_ms() -> ct:fail({no_end, lists:flatten(Acc)})
    end.

terminal(Config) ->
    Weir = [?config(weir, Config), "top", atom_to_list(?config(node, Config))],
    Python = filename:join(weir_kit:path("apps/weir_watch/test"), "weir_watch_terminal.py"),
    Port = open_port({spawn_executable, os:find_executable("python3")}, [
        {line, 1_000_000},
        {args, [Python | Weir] ++ cookie(tl(Weir))},
        {env, [{"TERM", "xterm"}, {"NO_COLOR", "1"}, {"LC_ALL", "C"}, {"ERL_FLAGS", false}]}
    ]),
    receive {Port, {data, {eol, "pid " ++ Pid}}} -> put({Port, pid}, Pid) end,
    Port.

keys(Port, Keys) -> true = port_command(Port, ["keys ", binary:encode_hex(iolist_to_binary(Keys)), $\n]).

%% Everything that was printed until now.
output(Port) ->
    receive
        {Port, {data, {eol, "out " ++ Hex}}} ->
            _ = put({Port, output}, [get_output(Port), binary:decode_hex(list_to_binary(Hex))]),
            output(Port)
    after 0 -> binary_to_list(iolist_to_binary(get_output(Port)))
    end.

get_output(Port) ->
    case get({Port, output}) of
        undefined -> [];
        Output -> Output
    end.

%% Since the last look.
shows(Port, Text) ->
    until(fun() -> string:find(output(Port), Text) =/= nomatch end),
    erase({Port, output}).

mode(Port) ->
    true = port_command(Port, "mode\n"),
    receive {Port, {data, {eol, "mode " ++ Mode}}} -> Mode after wait_ms() -> ct:fail(no_mode) end.

mode(Port, Mode) -> ?assertEqual(Mode, mode(Port)).

ended(Port) ->
    receive
        {Port, {data, {eol, "exit " ++ Status}}} -> list_to_integer(Status)
    after wait_ms() -> ct:fail({no_end, output(Port)})
    end.

%% ---------------------------------------------------------------- in a shell

%% Its input and output is a process, as in a shell.
in_a_shell(Config) ->
    Before = traces(Config),
    in_a_shell(fun() -> weir_watch_top:run(#{node => ?config(node, Config)}) end, atom_to_list(?config(node, Config))),
    until(fun() -> traces(Config) =:= Before end).

%% Where its agent does not run, one is there for as long as it is looked at.
of_its_own_node(_Config) ->
    _ = application:stop(weir_watch),
    undefined = whereis(weir_watch_agent),
    Agents = fun() ->
        [Pid || Pid <- processes(), proc_lib:translate_initial_call(Pid) =:= {weir_watch_agent, init, 1}]
    end,
    until(fun() -> Agents() =:= [] end),
    in_a_shell(fun weir_watch:top/0, atom_to_list(node())),
    until(fun() -> {whereis(weir_watch_guard), Agents()} =:= {undefined, []} end).

in_a_shell(Top, Node) ->
    Self = self(),
    Device = spawn_link(fun() -> device(Self, []) end),
    {Pid, Monitor} = spawn_monitor(fun() ->
        true = group_leader(Device, self()),
        Result = Top(),
        %% Nothing is left in the mailbox of the shell.
        exit({Result, process_info(self(), messages)})
    end),
    printed(Device, Node),
    printed(Device, "memory"),
    Device ! {line, "s\n"},
    printed(Device, "sort: core"),
    Device ! {line, "\n"},
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual({ok, {messages, []}}, Reason)
    after wait_ms() -> ct:fail(no_end)
    end.

%% An io device with 30 rows and 90 columns that sends its owner what is printed.
device(Owner, Waiting) ->
    receive
        %% Before it is asked for, it stays in the mailbox.
        {line, Line} when Waiting =/= [] ->
            [{From, As}] = Waiting,
            From ! {io_reply, As, Line},
            device(Owner, []);
        {io_request, From, As, {get_line, _, _}} ->
            device(Owner, [{From, As}]);
        {io_request, From, As, Request} ->
            From ! {io_reply, As, asked(Request, Owner)},
            device(Owner, Waiting)
    end.

asked({put_chars, unicode, Chars}, Owner) ->
    Owner ! {printed, self(), unicode:characters_to_list(Chars)},
    ok;
asked({put_chars, unicode, M, F, A}, Owner) -> asked({put_chars, unicode, apply(M, F, A)}, Owner);
asked({get_geometry, rows}, _) -> 30;
asked({get_geometry, columns}, _) -> 90;
asked(getopts, _) -> [{encoding, unicode}];
asked(_, _) -> {error, request}.

printed(Device, Text) ->
    receive
        {printed, Device, Chars} ->
            case string:find(Chars, Text) of
                nomatch -> printed(Device, Text);
                _ -> ok
            end
    after wait_ms() -> ct:fail({not_printed, Text})
    end.

keys(_Config) ->
    ?assertEqual([down, up, quit], weir_watch_top:keys(<<"jkq">>)),
    ?assertEqual([up, down, up, down], weir_watch_top:keys(<<"\e[A\e[B\eOA\eOB">>)),
    ?assertEqual([pause], weir_watch_top:keys(<<"\e[1;5C ">>)),
    ?assertEqual([back], weir_watch_top:keys(<<"\e">>)),
    ?assertEqual([], weir_watch_top:keys(<<255, 0, "xyz", "\e[">>)),
    ?assertEqual([inspect, inspect, messages, quit], weir_watch_top:keys(<<"\rim", 3>>)).
