%% Pools that start their workers asynchronously: up whatever their workers do, and as soon as they can.
-module(weir_pool_async_SUITE).

-include_lib("proper/include/proper.hrl").
-include("weir_pool_suite.hrl").

async(Opts) -> maps:merge(Opts, ?ASYNC).

gated_pool(Size) -> async(slot_script(Size, gated())).

%% Whether the backend is up.
backend() ->
    Up = atomics:new(1, []),
    Tries = counters:new(1, []),
    Script = fun() ->
        counters:add(Tries, 1, 1),
        case atomics:get(Up, 1) of
            1 -> start;
            0 -> {error, down}
        end
    end,
    {Up, Tries, Script}.

%% Starts that have to wait for each other would never all be blocked (pooler's issue 104).
all_workers_start_at_once(_Config) ->
    ok = weir_pool:start(p, gated_pool(20)),
    ?assertEqual({error, no_worker}, weir_pool:pick(p)),
    ?assertEqual({error, no_worker}, weir_pool:pick(p, key)),
    ?assertEqual({error, no_worker}, weir_pool:claim(p, fun(_) -> ok end)),
    ?assertEqual({error, already_started}, weir_pool:start(p, gated_pool(1))),
    Blocked = await_blocked(20),
    ?assertEqual(lists:seq(1, 20), lists:sort([Slot || {_, Slot} <- Blocked])),
    ?assertMatch({ok, #{live := 0, vacant := 20}}, weir_pool:info(p)),
    go(Blocked, start),
    settle(p, 20),
    ?assertMatch({ok, #{restarts := 0, start_failures := 0}}, weir_pool:info(p)).

a_start_that_hangs_delays_no_other_start(_Config) ->
    ok = weir_pool:start(p, gated_pool(3)),
    [First | Others] = lists:keysort(2, await_blocked(3)),
    go(Others, start),
    until(fun() -> length(workers(p)) =:= 2 end),
    [kill(Pid) || Pid <- workers(p)],
    go(await_blocked(2), start),
    until(fun() -> length(workers(p)) =:= 2 end),
    Replacer = weir_kit:start(fun() -> weir_pool:replace(p, 2) end),
    go(await_blocked(1), start),
    ?assertEqual(ok, result(Replacer)),
    ?assertMatch([undefined, _, _], slots(p)),
    go([First], start),
    settle(p, 3).

%% A worker that is started beside a start that hangs takes the slot. If the other worker comes after all, it is
%% stopped.
a_start_that_hangs_is_replaced(_Config) ->
    ok = weir_pool:start(p, gated_pool(2)),
    [First, Second] = lists:keysort(2, await_blocked(2)),
    go([Second], start),
    Replacer = weir_kit:start(fun() -> weir_pool:replace(p, 1) end),
    Spare = await_blocked(1),
    ?assertEqual({error, replacing}, weir_pool:replace(p, 1)),
    go(Spare, start),
    ?assertEqual(ok, result(Replacer)),
    until(fun() -> settled(p, 2) end),
    Before = slots(p),
    go([First], start),
    await_down(element(1, First)),
    settle(p, 2),
    ?assertEqual(Before, slots(p)).

%% With an hour between attempts, there is one for each slot.
a_failed_start_waits(_Config) ->
    {Up, Tries, Script} = backend(),
    ok = weir_pool:start(p, (async(script(4, Script)))#{backoff => {3600000, 3600000}}),
    all_pause([1, 2, 3, 4], 4),
    ?assertEqual(4, counters:get(Tries, 1)),
    %% A replacement tries at once, and again.
    ?assertEqual({error, {start_failed, 2, down}}, weir_pool:replace(p, 2)),
    ?assertEqual(5, counters:get(Tries, 1)),
    ?assertMatch({ok, #{live := 0, vacant := 4, start_failures := 5}}, weir_pool:info(p)),
    %% The new slots of a resize have one attempt each, too.
    ?assertEqual(ok, weir_pool:resize(p, 6)),
    all_pause([5, 6], 7),
    ?assertEqual(7, counters:get(Tries, 1)),
    atomics:put(Up, 1, 1),
    ?assertEqual(ok, weir_pool:replace(p, 2)),
    ?assertEqual(ok, weir_pool:resize(p, 4)),
    ?assertMatch([undefined, Pid, undefined, undefined] when is_pid(Pid), slots(p)),
    ?assertEqual(8, counters:get(Tries, 1)),
    %% A worker that dies for the first time is started again at once; the next time it waits.
    [First] = workers(p),
    kill(First),
    until(fun() -> [Pid || Pid <- workers(p), Pid =/= First] =/= [] end),
    ?assertEqual(9, counters:get(Tries, 1)),
    kill(hd(workers(p))),
    all_pause([2], 7),
    until(fun() -> slots(p) =:= [undefined, undefined, undefined, undefined] end),
    ?assertEqual(9, counters:get(Tries, 1)),
    %% A manager that comes after this one tries again, and remembers nothing.
    kill_manager(p),
    settle(p, 4),
    ?assertEqual(13, counters:get(Tries, 1)).

%% Waits until that many starts have failed, and the supervisors of these slots pause before the next start.
all_pause(Slots, Failures) ->
    Child = fun(Slot) -> [{_, Worker, worker, _}] = supervisor:which_children(slot_sup(p, Slot)), Worker end,
    until(fun() ->
        info(start_failures) >= Failures andalso lists:usort([Child(Slot) || Slot <- Slots]) =:= [restarting]
    end).

%% Reports the first failure in a row, the second, the fourth and so on. A start that succeeds ends the row. Each report
%% has the level and the text that the default handler would write.
starts_that_fail_are_reported_less_and_less_often(_Config) ->
    with_reports(fun() ->
        {Up, Tries, Script} = backend(),
        ok = weir_pool:start(p, async(script(1, Script))),
        until(fun() -> info(start_failures) >= 20 end),
        ?assertMatch({ok, #{start_error := {1, down}, live := 0}}, weir_pool:info(p)),
        atomics:put(Up, 1, 1),
        settle(p, 1),
        {ok, #{start_failures := Failures, start_error := {1, down}}} = weir_pool:info(p),
        ?assertEqual(counters:get(Tries, 1) - 1, Failures),
        Due = [N || N <- [1 bsl I || I <- lists:seq(0, 20)], N =< Failures],
        ?assertEqual(Due, lists:sort([in_a_row() || _ <- Due])),
        %% No other report comes in 100 ms. Each report has a process of its own, which may overtake that of another.
        receive
            {report, _, Other, _} -> error({reported, Other})
        after 100 -> ok
        end,
        atomics:put(Up, 1, 0),
        [Worker] = workers(p),
        kill(Worker),
        receive
            {report, error, #{weir_pool := worker_down} = Down, _} ->
                ?assertMatch(#{pool := p, slot := 1, worker := Worker}, Down)
        end,
        [receive {report, _, #{weir_pool := start_failed, in_a_row := N}, _} -> ok end || N <- [1, 2, 4]]
    end).

%% Returns the number in the next report, which must be of a start that failed.
in_a_row() ->
    receive
        {report, Level, #{in_a_row := N} = Report, Text} ->
            ?assertMatch({error, #{weir_pool := start_failed, pool := p, slot := 1, reason := down}}, {Level, Report}),
            Start = "Pool p: no worker could be started for slot 1, failed start number ",
            ?assertEqual(Start ++ integer_to_list(N) ++ " in a row: down", Text),
            N
    end.

pauses_double_from_the_least_to_the_most(_Config) ->
    Property = ?FORALL(
        {Attempts, Min, More},
        {range(0, 80), pos_integer(), non_neg_integer()},
        begin
            Max = Min + More,
            Delay = weir_pool_slot_sup:delay(Attempts, {Min, Max}),
            Full = full(Attempts, Min, Max),
            Delay =< Full andalso 2 * Delay >= Full - 1 andalso (Attempts =:= 0 orelse Delay > 0)
        end
    ),
    weir_kit_property:holds(Property, [{numtests, 2000}, quiet]),
    ?assertEqual(0, weir_pool_slot_sup:delay(0, {100, 30000})),
    ?assertEqual(1, weir_pool_slot_sup:delay(1, {1, 1})),
    ?assert(weir_pool_slot_sup:delay(1000000, {4294967295, 4294967295}) =< 4294967295).

%% Doubled each time.
full(0, _Min, _Max) -> 0;
full(1, Min, _Max) -> Min;
full(Attempts, Min, Max) -> min(Max, 2 * full(Attempts - 1, Min, Max)).

%% Starts that are under way for slots that the pool has no more, or has again.
the_size_can_change_while_workers_start(_Config) ->
    ok = weir_pool:start(p, gated_pool(6)),
    Blocked = lists:keysort(2, await_blocked(6)),
    ?assertEqual(ok, weir_pool:resize(p, 2)),
    ?assertEqual(ok, weir_pool:resize(p, 4)),
    Again = await_blocked(2),
    ?assertEqual([3, 4], lists:sort([Slot || {_, Slot} <- Again])),
    go(Again, start),
    go(Blocked, start),
    settle(p, 4).
