%% What the suites of weir_watch share.
-module(weir_watch_test_lib).

-export([in_node/4, in_plain_node/4, snapshot/0, snapshot/1, says/2]).
-export([with_agent/3]).

-define(CALL_MS, 4_000_000).

%% Returns the snapshot of the agent of this node, or of another agent. Returns `false' if there is none yet, or if the
%% agent did not answer in time on a busy machine. Then the test asks again.
snapshot() -> told(fun weir_watch:snapshot/0).

snapshot(Agent) -> told(fun() -> weir_watch_agent:snapshot(Agent) end).

told(Ask) ->
    try Ask() of
        none -> false;
        Snapshot -> Snapshot
    catch
        exit:{timeout, _} -> false
    end.

%% Returns whether the limits of a snapshot contain these words.
says(#{limits := Limits}, Words) -> lists:any(fun(Limit) -> string:find(Limit, Words) =/= nomatch end, Limits).

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
