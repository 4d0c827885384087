%% A node that has nothing of Weir, the command `weir', and what either may leave on that node.
-module(weir_watch_test_remote).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(weir_kit, [until/1, wait_ms/0]).

-export([init/1, finish/1, set_up/1, start_node/1, stop_node/1, call/4, weir/2, cookie/1]).
-export([holds_logins/1, flood/1, traces/1, has_sessions/1, word/1]).

init(Config0) ->
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

finish(Config) -> proplists:is_defined(distribution, Config) andalso net_kernel:stop().

set_up(Config) ->
    {Peer, Node} = start_node(peer:random_name()),
    [{peer, Peer}, {node, Node} | Config].

start_node(Name) ->
    Cookie = atom_to_list(erlang:get_cookie()),
    {ok, Peer, Node} = peer:start(#{
        name => Name, connection => standard_io, wait_boot => wait_ms(),
        args => ["-setcookie", Cookie, "-connect_all", "false"]
    }),
    {Peer, Node}.

stop_node(Peer) -> try peer:stop(Peer) catch exit:_ -> ok end.

holds_logins(Config) ->
    evaluated("Pid = spawn(fun() -> receive never -> ok end end), [Pid ! {login, N} || N <- lists:seq(1, 300)], Pid.",
        Config).

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
