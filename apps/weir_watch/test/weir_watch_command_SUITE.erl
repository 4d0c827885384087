%% The command `weir top' without a terminal. The command reports on a node that has nothing of Weir, and leaves nothing
%% on that node, however the command ends. weir_watch_terminal_SUITE has the command in a terminal.
-module(weir_watch_command_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_watch_test_remote, [stop_node/1, traces/1, call/4, flood/1, weir/2, set_up/1]).
-import(weir_kit, [until/1]).

%% Cases that take long, and find nothing wrong with what others do to the machine meanwhile.
-define(SIDE_BY_SIDE, [usage, in_trouble, made_elsewhere, could_not_look]).

all() -> [{group, side_by_side} | weir_kit:cases(?MODULE) -- ?SIDE_BY_SIDE].

groups() -> [{side_by_side, [parallel], ?SIDE_BY_SIDE}].

init_per_suite(Config) -> weir_watch_test_remote:init(Config).

end_per_suite(Config) -> weir_watch_test_remote:finish(Config).

init_per_testcase(_Case, Config) -> set_up(Config).

end_per_testcase(_Case, Config) -> stop_node(?config(peer, Config)).

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

could_not_look(Config) ->
    Node = atom_to_list(?config(node, Config)),
    [_, Host] = string:split(Node, "@"),
    {2, "weir: " ++ _} = weir(Config, ["top", "nobody@" ++ Host, "--once"]),
    {2, "weir: " ++ Cookie} = weir(Config, ["top", Node, "--once", "--cookie", "wrong"]),
    ?assertNotEqual(nomatch, string:find(Cookie, "--cookie")),
    %% Without a terminal it does not begin.
    {2, "weir: " ++ Terminal} = weir(Config, ["top", Node]),
    ?assertNotEqual(nomatch, string:find(Terminal, "--once")).
