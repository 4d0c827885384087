%% What the suites of weir_watch share.
-module(weir_watch_test_lib).

-export([in_node/4, in_plain_node/4, with_agent/3, snapshot/0, says/2, starved_ms/0]).
-export([subscribed/0, received/1, next/1, snapshot_of/1, suspect/2, long_mailbox/0, links/1, monitored/1, gone/1]).

%% The limit of a case ends a function that never returns.
-define(CALL_MS, infinity).

%% Returns the snapshot of the agent of this node. Returns `false' if there is none yet, or if the agent did not answer
%% in time on a busy machine. Then the test asks again.
snapshot() -> snapshot(fun weir_watch:snapshot/0).

%% Waits for the snapshot of an agent.
snapshot_of(Agent) -> weir_kit:until_value(fun() -> snapshot(fun() -> weir_watch_agent:snapshot(Agent) end) end).

snapshot(Ask) ->
    try Ask() of
        none -> false;
        Snapshot -> Snapshot
    catch
        exit:{timeout, _} -> false
    end.

%% Returns whether the limits of a snapshot contain these words.
says(#{limits := Limits}, Words) -> lists:any(fun(Limit) -> string:find(Limit, Words) =/= nomatch end, Limits).

%% Returns the milliseconds that a test waits for an agent to which the machine gives too little time. The form of such
%% an agent does not count if the agent tells nothing.
starved_ms() -> weir_kit:long(10_000, weir_kit:wait_ms()).

%% Calls a function in a node of its own with an agent, two schedulers and these arguments. The node is dead afterwards.
%% Only its standard input and output connect the node with this one, so all its connections are its own.
in_node(Arguments, Module, Function, Values) ->
    in_plain_node(Arguments, ?MODULE, with_agent, [Module, Function, Values]).

with_agent(Module, Function, Values) ->
    ok = weir_watch_forms:agent(),
    apply(Module, Function, Values).

%% Does as in_node/4, without an agent.
in_plain_node(Arguments, Module, Function, Values) ->
    {ok, Peer, _Node} = peer:start(#{
        name => peer:random_name(), connection => standard_io, wait_boot => weir_kit:wait_ms(),
        args => ["-setcookie", "weir_watch", "-connect_all", "false", "+S", "2:2"] ++ Arguments ++
            ["-pa" | code:get_path()]
    }),
    OsPid = weir_kit_nodes:call(Peer, os, getpid, []),
    try
        ok = weir_kit_nodes:call(Peer, logger, set_handler_config, [default, level, none]),
        Cache = filename:join(filename:basedir(user_cache, "weir_watch"), "x"),
        ok = weir_kit_nodes:call(Peer, filelib, ensure_dir, [Cache]),
        peer:call(Peer, Module, Function, Values, ?CALL_MS)
    after
        _ = os:cmd("kill -KILL " ++ OsPid),
        try peer:stop(Peer) catch _:_ -> gone end
    end.

%% ---------------------------------------------------------------- an agent and its subscriber

%% Starts an agent to which the caller subscribes.
subscribed() ->
    {ok, Agent} = weir_watch_agent:start(),
    ok = weir_watch_agent:subscribe(Agent),
    Agent.

%% Waits for the snapshot that the caller asked for.
received(Agent) -> receive {weir_watch, Agent, Snapshot} -> Snapshot after weir_kit:wait_ms() -> error(no_snapshot) end.

%% Waits for that snapshot and asks for the next one.
next(Agent) ->
    Snapshot = received(Agent),
    ok = weir_watch_agent:next(Agent),
    Snapshot.

%% Returns what an agent tells of a process, or `none' if the process is no suspect.
suspect(Pid, Agent) ->
    #{suspects := Suspects} = snapshot_of(Agent),
    case [Suspect || #{pid := Suspected} = Suspect <- Suspects, Suspected =:= Pid] of
        [Suspect] -> Suspect;
        [] -> none
    end.

%% Starts a process that has 300 messages and reads none.
long_mailbox() ->
    Pid = spawn(fun() -> receive never -> ok end end),
    [Pid ! I || I <- lists:seq(1, 300)],
    Pid.

links(Pid) ->
    {links, Links} = process_info(Pid, links),
    Links.

monitored(Pid) ->
    {monitors, Monitors} = process_info(Pid, monitors),
    [Monitored || {process, Monitored} <- Monitors, is_pid(Monitored)].

%% Waits until these processes are dead.
gone(Pids) -> weir_kit:until(fun() -> not lists:any(fun is_process_alive/1, Pids) end).
