%% A node that can start no process: the limits go on, and the application outlives the end of their process.
-module(weir_flow_full_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).
-import(weir_kit_limits, [in_node/3, full/3]).

-define(FULL_MS, 1000).

all() -> weir_kit:cases(?MODULE).

%% A receiver that takes nothing makes the limits ask, which takes a process.
limits_ask_later(_Config) -> ok = in_node(?MODULE, ask_later, []).

ask_later() ->
    {ok, _} = application:ensure_all_started(weir_flow),
    Limits = whereis(weir_flow_limits),
    {Pid, _} = weir_kit:start(fun() -> receive go -> ok end, receive never -> ok end end),
    ok = weir_flow:limit(Pid, 10),
    ok = weir_flow:cast(Pid, message, #{limit => wait, window => 10}),
    %% The first look finds that something was sent, and the next ones want to ask.
    full(processes, ?FULL_MS, fun() -> [ok = weir_flow_limits:sample() || _ <- lists:seq(1, 4)] end),
    ?assertEqual(Limits, whereis(weir_flow_limits)),
    {ok, #{in_flight := 1, limit := 10}} = weir_flow:info(Pid),
    ok.

%% A sender that does not wait leaves its question to a process. Without the process, its window stays full.
cast_without_waiting(_Config) -> ok = in_node(?MODULE, without_waiting, []).

without_waiting() ->
    {Pid, _} = weir_kit:start(fun() -> receive go -> loop() end end),
    Cast = fun() -> weir_flow:cast(Pid, message, #{window => 4, timeout => 0}) end,
    Casts = full(processes, ?FULL_MS, fun() -> [Cast() || _ <- lists:seq(1, 6)] end),
    %% The window is full until something asks, so no more than the window is in the mailbox.
    ?assertEqual([ok, ok, ok, {error, timeout}, {error, timeout}, {error, timeout}], Casts),
    Pid ! go,
    until(fun() -> Cast() =:= ok end).

loop() ->
    receive
        {system, From, {debug, {statistics, get}}} -> gen:reply(From, ok);
        _ -> ok
    end,
    loop().

%% The limits start again while no shared server of the node answers.
servers_hang(_Config) -> ok = in_node(?MODULE, hang, []).

hang() ->
    {ok, _} = application:ensure_all_started(weir_flow),
    {Pid, _} = weir_kit:start(fun() -> receive never -> ok end end),
    ok = weir_flow:limit(Pid, 10),
    ok = weir_flow:cast(Pid, message, #{limit => wait, window => 10}),
    weir_kit_limits:without_servers(fun() ->
        [ok = weir_flow_limits:sample() || _ <- lists:seq(1, 4)],
        ok = weir_kit:kill(whereis(weir_flow_limits)),
        until(fun() -> weir_flow:limit(Pid, 20) =:= ok end)
    end).

%% The process of the limits is killed while no other can be started in its place.
limits_are_killed(_Config) -> ok = in_node(?MODULE, killed, []).

killed() ->
    {ok, _} = application:ensure_all_started(weir_flow),
    {Pid, _} = weir_kit:start(fun() -> receive never -> ok end end),
    ok = weir_flow:limit(Pid, 10),
    full(processes, ?FULL_MS, fun() -> weir_kit_limits:kill(whereis(weir_flow_limits), whereis(weir_flow_sup)) end),
    until(fun() -> weir_flow:limit(Pid, 20) =:= ok end),
    {ok, #{limit := 20}} = weir_flow:info(Pid),
    ok.

%% The first sender that waits for the limit needs a queue, and the queue is killed later.
senders_wait_for_room(_Config) -> ok = in_node(?MODULE, wait_for_room, []).

wait_for_room() ->
    {ok, _} = application:ensure_all_started(weir_flow),
    {Pid, _} = weir_kit:start(fun() -> limited() end),
    ok = weir_flow:limit(Pid, 1),
    Cast = fun(Timeout) -> weir_flow:cast(Pid, message, #{limit => wait, window => 10, timeout => Timeout}) end,
    ok = Cast(infinity),
    ?assertEqual({error, timeout}, full(processes, ?FULL_MS, fun() -> Cast(200) end)),
    {ok, #{in_flight := 1, waits := 1, queued := 0}} = weir_flow:info(Pid),
    Tasks = [weir_kit:start(fun() -> Cast(infinity) end) || _ <- lists:seq(1, 5)],
    until(fun() -> queued(Pid) =:= 5 end),
    full(processes, ?FULL_MS, fun() ->
        {_, _, _, Queue} = weir_flow_limit:row(Pid),
        ok = weir_kit_limits:kill(Queue, whereis(weir_flow_queues_sup))
    end),
    until(fun() -> queued(Pid) =:= 5 end),
    Pid ! go,
    [ok = weir_kit:result(Task) || Task <- Tasks],
    until(fun() -> in_flight(Pid) =:= 0 end).

queued(Pid) ->
    {ok, #{queued := Queued}} = weir_flow:info(Pid),
    Queued.

in_flight(Pid) ->
    {ok, #{in_flight := InFlight}} = weir_flow:info(Pid),
    InFlight.

limited() ->
    receive
        go -> limited_loop()
    end.

limited_loop() ->
    receive
        {system, From, {debug, {statistics, get}}} -> gen:reply(From, ok);
        {'$weir_credit', Words, _} -> ok = atomics:sub(Words, 1, 1)
    end,
    limited_loop().
