%% @doc Nodes whose table of processes or ports is full for some time, as when something else on the node leaks. Nodes
%% whose shared servers do not answer.
-module(weir_kit_limits).

-export([in_node/3, full/3, kill/2, without_servers/1, filler/3]).

-define(SERVERS, [timer_server, code_server, file_server_2, application_controller, logger]).

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

%% @doc Calls a function while the servers that all processes of a node share are suspended: timer, code, files,
%% applications, and the proxy of the log. Returns the result of the function.
%%
%% First loads the modules of the applications that run, as a release does.
-spec without_servers(fun(() -> Result)) -> Result.
without_servers(Fun) ->
    Modules = [
        Module
     || {App, _, _} <- application:which_applications(), {ok, Of} <- [application:get_key(App, modules)], Module <- Of
    ],
    _ = [code:ensure_loaded(Module) || Module <- [weir_kit | Modules]],
    %% Starts the server of the timers.
    {ok, _} = timer:apply_after(1, erlang, node, []),
    Servers = [whereis(Name) || Name <- ?SERVERS],
    _ = [true = erlang:suspend_process(Server) || Server <- Servers],
    try
        Fun()
    after
        [erlang:resume_process(Server) || Server <- Servers]
    end.

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
