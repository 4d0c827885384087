%% @doc Nodes whose table of processes or ports is full for some time, as when something else on the node leaks.
-module(weir_kit_limits).

-export([in_node/3, full/3, kill/2, filler/3]).

-define(PROCESSES, "1024").
-define(PORTS, "1024").

%% @doc Calls a function in a node that has room for 1,024 processes and 1,024 ports. Returns once the function has
%% returned `ok'. The node ends with the call.
-spec in_node(module(), Function :: atom(), Args :: [term()]) -> ok.
in_node(Module, Function, Args) ->
    Node = weir_kit_nodes:start("limits", ["+P", ?PROCESSES, "+Q", ?PORTS]),
    try
        ok = weir_kit_nodes:call(Node, Module, Function, Args)
    after
        weir_kit_nodes:kill(Node)
    end.

%% @doc Fills a table of this node, calls Fun, and keeps the table full for at least Ms milliseconds. Then empties the
%% table, and returns the result of Fun.
%%
%% While the table is full, a slot that a process or port leaves is filled within microseconds. Fun can start no
%% process, and prepares the processes that it needs before the call.
-spec full(processes | ports, Ms :: pos_integer(), fun(() -> Result)) -> Result.
full(What, Ms, Fun) ->
    Until = erlang:monotonic_time(millisecond) + Ms,
    Filled = make_ref(),
    {Filler, Monitor} = spawn_opt(?MODULE, filler, [What, self(), Filled], [link, monitor, {priority, high}]),
    receive
        Filled -> ok
    end,
    try
        Result = Fun(),
        receive
        after max(0, Until - erlang:monotonic_time(millisecond)) -> Result
        end
    after
        unlink(Filler),
        exit(Filler, kill),
        receive
            {'DOWN', Monitor, process, Filler, _} -> ok
        end,
        weir_kit:until(fun() -> has_room(What) end)
    end.

%% @doc Kills a process while the table of processes is full. Its supervisor is suspended until the slot of the process
%% is taken, so that its first attempt to start another fails.
-spec kill(pid(), Supervisor :: pid()) -> ok.
kill(Pid, Supervisor) ->
    true = erlang:suspend_process(Supervisor),
    ok = weir_kit:kill(Pid),
    ok = weir_kit:until(fun() -> count(processes) =:= limit(processes) end),
    true = erlang:resume_process(Supervisor),
    ok.

%% Half of the table is free.
has_room(What) -> 2 * count(What) < limit(What).

count(processes) -> erlang:system_info(process_count);
count(ports) -> erlang:system_info(port_count).

limit(processes) -> erlang:system_info(process_limit);
limit(ports) -> erlang:system_info(port_limit).

%% @private Fills the table, reports that the table is full, and fills each slot that becomes free. The runtime logs
%% each refusal, so the filler asks how many there are, and tries only where there is room.
-spec filler(processes | ports, pid(), reference() | none) -> no_return().
filler(What, Starter, Filled) ->
    case count(What) < limit(What) of
        true ->
            _ = try take(What) catch error:system_limit -> none end,
            filler(What, Starter, Filled);
        false when is_reference(Filled) ->
            Starter ! Filled,
            filler(What, Starter, none);
        false ->
            erlang:yield(),
            filler(What, Starter, none)
    end.

%% Both end with the filler.
take(processes) -> spawn_link(fun() -> receive never -> ok end end);
take(ports) -> open_port({spawn_driver, "udp_inet"}, [binary]).
