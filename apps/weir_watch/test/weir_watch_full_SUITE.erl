%% A node that can start no process, or whose shared servers do not answer: the application starts its agent again once
%% that is possible. weir_watch_safety_SUITE has the agent itself at the limit.
-module(weir_watch_full_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).
-import(weir_kit_limits, [in_node/3, full/3]).

%% The process that starts the agent looks once a second.
-define(FULL_MS, 2500).

all() -> weir_kit:cases(?MODULE).

%% The agent is killed, and so is the process that would start another.
processes_are_killed(_Config) -> ok = in_node(?MODULE, kill, []).

kill() ->
    {ok, _} = application:ensure_all_started(weir_watch),
    Sup = whereis(weir_watch_sup),
    until(fun watches/0),
    [
        begin
            full(processes, ?FULL_MS, fun() -> weir_kit_limits:kill(Pid(), Sup) end),
            until(fun watches/0)
        end
     || Pid <- [fun() -> whereis(weir_watch_agent) end, fun keeper/0]
    ],
    until(fun() -> is_pid(keeper()) end),
    ?assertEqual(Sup, whereis(weir_watch_sup)),
    ok.

keeper() ->
    {weir_watch_keeper, Pid, _, _} = lists:keyfind(weir_watch_keeper, 1, supervisor:which_children(weir_watch_sup)),
    Pid.

watches() -> is_pid(whereis(weir_watch_agent)) andalso is_map(weir_watch_agent:snapshot(weir_watch_agent)).

%% The agent starts again while no shared server of the node answers.
servers_hang(_Config) -> ok = in_node(?MODULE, hang, []).

hang() ->
    {ok, _} = application:ensure_all_started(weir_watch),
    until(fun watches/0),
    weir_kit_limits:without_servers(fun() ->
        ok = weir_kit:kill(whereis(weir_watch_agent)),
        until(fun watches/0)
    end).
