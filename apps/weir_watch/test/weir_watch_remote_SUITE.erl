%% The module that looks at a node which has nothing of Weir. The module leaves nothing on that node, however it ends.
-module(weir_watch_remote_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_watch_test_remote, [stop_node/1, holds_logins/1, traces/1, has_sessions/1, call/4, flood/1, weir/2,
    word/1, set_up/1]).
-import(weir_kit, [until/1, wait_ms/0]).

%% Cases that take long, and find nothing wrong with what others do to the machine meanwhile.
-define(SIDE_BY_SIDE, [foreign_module_loaded, foreign_module_in_the_path, another_release]).

all() -> [{group, side_by_side} | weir_kit:cases(?MODULE) -- ?SIDE_BY_SIDE].

groups() -> [{side_by_side, [parallel], ?SIDE_BY_SIDE}].

init_per_suite(Config) -> weir_watch_test_remote:init(Config).

end_per_suite(Config) -> weir_watch_test_remote:finish(Config).

init_per_testcase(_Case, Config) -> set_up(Config).

end_per_testcase(_Case, Config) -> stop_node(?config(peer, Config)).

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

refused(Conf) ->
    Node = ?config(node, Conf),
    Before = traces(Conf),
    ?assertEqual({error, {other_modules, [weir_watch_agent]}}, weir_watch_remote:attach(Node)),
    ?assertEqual(Before, traces(Conf)),
    {2, Output} = weir(Conf, ["top", atom_to_list(Node), "--once", "--seconds", "1"]),
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
