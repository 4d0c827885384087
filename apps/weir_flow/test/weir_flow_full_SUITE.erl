%% A node that can start no process: senders and limits go on, and the application outlives the end of its processes.
-module(weir_flow_full_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).
-import(weir_kit_limits, [in_node/3, full/3]).
-import(weir_flow_test_limited, [cast/3, cast/4, info/2, queue/1, finish/3]).

-define(FULL_MS, 1000).

all() -> weir_kit:cases(?MODULE).

%% Starts a blocked receiver whose limit is reached.
receiver() ->
    {ok, _} = application:ensure_all_started(weir_flow),
    weir_flow_test_limited:full(1).

%% The first sample finds that a credit was taken, and the next samples ask, which takes a process. Then the process of
%% the limits is killed, once at the limit of the node and once while no shared server of the node answers.
limits_go_on(_Config) -> ok = in_node(?MODULE, go_on, []).

go_on() ->
    Pid = receiver(),
    Limits = whereis(weir_flow_limits),
    full(processes, ?FULL_MS, fun() -> [ok = weir_flow_limits:sample() || _ <- lists:seq(1, 4)] end),
    ?assertEqual(Limits, whereis(weir_flow_limits)),
    full(processes, ?FULL_MS, fun() -> weir_kit_limits:kill(Limits, whereis(weir_flow_sup)) end),
    until(fun() -> weir_flow:limit(Pid, 10) =:= ok end),
    weir_kit_limits:without_servers(fun() ->
        ok = weir_kit:kill(whereis(weir_flow_limits)),
        until(fun() -> weir_flow:limit(Pid, 20) =:= ok end)
    end),
    ?assertEqual({1, 20}, {info(in_flight, Pid), info(limit, Pid)}),
    finish(Pid, [], []).

%% A sender that does not wait needs a watch. Without a watch, its window stays full until a later call asks.
cast_without_waiting(_Config) -> ok = in_node(?MODULE, without_waiting, []).

without_waiting() ->
    Pid = receiver(),
    Cast = fun() -> weir_flow:cast(Pid, message, #{window => 4, timeout => 0}) end,
    Casts = full(processes, ?FULL_MS, fun() -> [Cast() || _ <- lists:seq(1, 6)] end),
    ?assertEqual([ok, ok, ok, {error, timeout}, {error, timeout}, {error, timeout}], Casts),
    ok = weir_flow_test_receiver:release(Pid),
    until(fun() -> Cast() =:= ok end).

%% The first sender that waits for the limit needs a queue. The queue is killed later.
senders_wait_for_room(_Config) -> ok = in_node(?MODULE, wait_for_room, []).

wait_for_room() ->
    Pid = receiver(),
    ?assertEqual({error, timeout}, full(processes, ?FULL_MS, fun() -> cast(Pid, {note, no}, wait, 200) end)),
    ?assertEqual({1, 0}, {info(waits, Pid), info(queued, Pid)}),
    Waiters = weir_flow_test_limited:waiters(Pid, [1, 2, 3, 4, 5]),
    full(processes, ?FULL_MS, fun() -> weir_kit_limits:kill(queue(Pid), whereis(weir_flow_queues_sup)) end),
    until(fun() -> info(queued, Pid) =:= 5 end),
    finish(Pid, Waiters, [1, 2, 3, 4, 5]).
