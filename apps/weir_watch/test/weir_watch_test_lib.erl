%% What the suites of weir_watch share.
-module(weir_watch_test_lib).

-export([eventually/1, in_node/4, in_plain_node/4, snapshot/0, snapshot/1, says/2]).
-export([with_agent/3]).

-define(DEADLINE_MS, 180_000).
-define(CALL_MS, 4_000_000).

%% Calls the function until it returns something else than false, which is returned; an error after three minutes.
eventually(Condition) -> eventually(Condition, erlang:monotonic_time(millisecond) + ?DEADLINE_MS).

eventually(Condition, Deadline) ->
    case Condition() of
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({still, Condition}),
            receive after 20 -> eventually(Condition, Deadline) end;
        Value ->
            Value
    end.

%% The snapshot of the agent, or of one that is asked. One that gets no turn for seconds, on a machine that is busy with
%% others, is to be asked again.
snapshot() -> told(fun weir_watch:snapshot/0).

snapshot(Agent) -> told(fun() -> weir_watch_agent:snapshot(Agent) end).

told(Ask) ->
    try Ask() of
        none -> false;
        Snapshot -> Snapshot
    catch
        exit:{timeout, _} -> false
    end.

%% Whether a snapshot says so of what the agent cannot see.
says(#{limits := Limits}, Words) -> lists:any(fun(Limit) -> string:find(Limit, Words) =/= nomatch end, Limits).

%% Calls a function in a node of its own, with two schedulers and these arguments, whose agent runs. The node is gone
%% afterwards, whatever it does. Nothing but its standard input and output connects it, so that its own connections
%% are no other's.
in_node(Arguments, Module, Function, Values) ->
    in_plain_node(Arguments, ?MODULE, with_agent, [Module, Function, Values]).

with_agent(Module, Function, Values) ->
    ok = weir_watch_forms:agent(),
    apply(Module, Function, Values).

%% The same, without an agent.
in_plain_node(Arguments, Module, Function, Values) ->
    {ok, Peer, _Node} = peer:start(#{
        name => peer:random_name(), connection => standard_io, wait_boot => 60_000,
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
