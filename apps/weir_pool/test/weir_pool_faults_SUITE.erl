%% Promises that an attack on pools has found broken. Each case holds one of them, through the public interface.
-module(weir_pool_faults_SUITE).

-include("weir_pool_suite.hrl").

overflow_never_exceeds_its_maximum_while_workers_stop(_Config) ->
    each([1, 0], fun(Size) ->
        ok = weir_pool:start(p, slow_to_stop(Size, fun() -> ok end)),
        Last = lists:foldl(fun(_Round, Stopping) -> claim_beyond_the_size(Size, Stopping) end, none, [1, 2, 3]),
        let_stop(Last),
        stop_pool(Size)
    end).

%% Claims all workers and one for overflow. The latter cannot start before the last one for overflow is dead. Releases
%% all claims, and returns the worker that is asked to stop.
claim_beyond_the_size(Size, Stopping) ->
    Held = hold(Size),
    Waiter = waiter(),
    _ = Stopping =:= none orelse claims_wait_for_its_end(Size, Stopping),
    _ = claimed(Waiter),
    [ok = weir_pool:checkin(p, Ticket) || Ticket <- Held],
    let_go(Waiter),
    stopping().

claims_wait_for_its_end(Size, Stopping) ->
    await_waiting(1),
    %% The manager answers when it has begun all starts that it has been asked for.
    same(supervisors, Size + 1, length(slot_sups(p))),
    same(workers, Size + 1, length(workers_alive())),
    let_stop(Stopping).

%% A pool with one worker for overflow. Start() is called before each start. A worker that is asked to stop waits for
%% let_stop/1.
slow_to_stop(Size, Start) ->
    Test = self(),
    Script = fun() ->
        Start(),
        weir_pool_test_worker:start_slow_to_stop(Test)
    end,
    (script(Size, Script))#{overflow => #{max => 1, linger => 0}, shutdown => infinity}.

%% Claims N workers.
hold(N) ->
    until(fun() -> is_nobody_waiting(p) end),
    [element(3, {ok, _, _} = weir_pool:checkout(p, 0)) || _ <- lists:seq(1, N)].

%% Workers for overflow, a worker that was replaced, and one of a slot that a resize has taken away.
info_counts_workers_that_are_stopping(_Config) ->
    ok = weir_pool:start(p, slow_to_stop(1, fun() -> ok end)),
    ?assertEqual({1, 0}, live_and_stopping()),
    Claimers = [waiter(), waiter()],
    [claimed(Claimer) || Claimer <- Claimers],
    [let_go(Claimer) || Claimer <- Claimers],
    First = stopping(),
    ?assertEqual({1, 1}, live_and_stopping()),
    {ok, [{1, Old}]} = weir_pool:workers(p),
    ok = weir_pool:replace(p, 1),
    ?assertEqual(Old, stopping()),
    ?assertEqual({1, 2}, live_and_stopping()),
    let_stop(First),
    until(fun() -> info(stopping) =:= 1 end),
    ok = weir_pool:resize(p, 2),
    ok = weir_pool:resize(p, 1),
    Resized = stopping(),
    ?assertEqual({1, 2}, live_and_stopping()),
    [let_stop(Pid) || Pid <- [Old, Resized]],
    until(fun() -> info(stopping) =:= 0 end),
    stop_pool(1).

stopping() ->
    receive
        {stopping, Worker} -> Worker
    after weir_kit:wait_ms() -> error(no_worker_stops)
    end.

let_stop(Worker) ->
    Worker ! go,
    await_down(Worker).

%% Stops a pool whose workers wait for let_stop/1.
stop_pool(Size) ->
    Stopper = weir_kit:start(fun() -> weir_pool:stop(p) end),
    [let_stop(stopping()) || _ <- lists:seq(1, Size)],
    ?assertEqual(ok, result(Stopper)).

live_and_stopping() -> {info(live), info(stopping)}.

-define(NAMES, [weir_pool_faults_1, weir_pool_faults_2, weir_pool_faults_3]).

%% The workers have registered names. Each worker ends 150 ms after its supervisor has asked for that: by itself, or
%% because its supervisor kills it. The user's supervisor allows one restart.
a_restart_waits_for_workers_with_names(_Config) ->
    Start = fun(Opts) -> weir_pool:start(p, Opts) end,
    Flags = #{strategy => one_for_one, intensity => 1, period => 3600},
    Supervise = fun(Opts) -> start_parent({Flags, [weir_pool:child_spec(p, Opts)]}) end,
    each([{Start, infinity}, {Start, 150}, {Supervise, infinity}], fun({Begin, Shutdown}) ->
        Parent = Begin((slot_script(3, named()))#{shutdown => Shutdown}),
        {ok, Old} = weir_pool:workers(p),
        kill(manager(p)),
        [erlang:send_after(150, Worker, go) || Worker <- [stopping() || _ <- Old], Shutdown =:= infinity],
        [await_down(Worker) || {_, Worker} <- Old],
        until(fun() -> settled(p, 3) end),
        same(names, slots(p), [whereis(Name) || Name <- ?NAMES]),
        ?assertEqual(0, info(start_failures)),
        stop_pool(3),
        Parent =:= ok orelse stop_parent(Parent)
    end).

named() ->
    Test = self(),
    fun(Slot) ->
        Name = lists:nth(Slot, ?NAMES),
        case whereis(Name) of
            undefined ->
                {ok, Worker} = weir_pool_test_worker:start_slow_to_stop(Test),
                true = register(Name, Worker),
                {ok, Worker};
            Old ->
                {error, {already_started, Old}}
        end
    end.

%% The manager is suspended, so that it has never heard of the death sooner than the claimer.
a_dead_idle_worker_is_not_checked_out(_Config) ->
    start(1),
    [
        begin
            settle(p, 1),
            ok = sys:suspend(manager(p), wait_ms()),
            kill(hd(slots(p))),
            Result = weir_pool:checkout(p, 0),
            ok = sys:resume(manager(p), wait_ms()),
            none(dead_worker_checked_out, [Try || element(1, Result) =:= ok]),
            ?assert(lists:member(Result, [{error, busy}, {error, no_worker}]))
        end
     || Try <- lists:seq(1, 20)
    ].

%% The manager is suspended, so the queue grants a worker whose death the pool does not know.
a_dead_worker_that_the_queue_grants_is_not_checked_out(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    %% A fun that returns releases a dead worker as if it lived.
    Holder = claiming(#{}),
    Worker = claimed(Holder),
    Checkout = weir_kit:start(fun() -> weir_pool:checkout(p, infinity) end),
    until(fun() -> info(waiting) =:= 1 end),
    ok = sys:suspend(manager(p), wait_ms()),
    kill(Worker),
    let_go(Holder),
    %% The waiter has found the worker dead, and asks the queue again.
    until(fun() -> info(claims) =:= 2 andalso info(waiting) =:= 1 end),
    ok = sys:resume(manager(p), wait_ms()),
    {ok, Next, _} = result(Checkout),
    ?assertNotEqual(Worker, Next).

%% A replacement or a resize times out, or the pool is drained, while a start function does not return. When it returns,
%% the worker is stopped like any other, and counts as stopping until then.
a_worker_whose_start_was_cut_off_is_stopped(_Config) ->
    Changes = [fun() -> weir_pool:replace(p, 1, 1) end, fun() -> weir_pool:resize(p, 2, 1) end],
    each(Changes, fun(Change) ->
        ok = weir_pool:start(p, slow_to_stop(1, blocked_after(1))),
        {error, timeout} = Change(),
        until(fun() -> info(stopping) =:= 1 end),
        await_blocked() ! go,
        let_stop(stopping()),
        until(fun() -> info(stopping) =:= 0 end),
        stop_pool(1)
    end),
    ok = weir_pool:start(p, maps:merge(slow_to_stop(1, blocked_after(0)), ?ASYNC)),
    Starter = await_blocked(),
    Drainer = weir_kit:start(fun() -> weir_pool:drain(p, infinity) end),
    until(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    Starter ! go,
    let_stop(stopping()),
    ?assertEqual(ok, result(Drainer)),
    same(left, [], workers_alive()).

%% Workers for overflow stop when they are released, or 200 ms later. The third slot has one, or gets one by the resize.
a_resize_into_the_overflow_keeps_its_workers(_Config) ->
    each([0, 200], fun(Linger) ->
        Block = blocked_after(0),
        Script = fun(Slot) -> Slot < 4 orelse Block(), start end,
        ok = weir_pool:start(p, (slot_script(2, Script))#{overflow => #{max => 2, linger => Linger}}),
        [ok = release(Claimer) || Linger > 0, Claimer <- [claimer(p) || _ <- [1, 2, 3]]],
        Resizer = weir_kit:start(fun() -> weir_pool:resize(p, 4) end),
        Starter = await_blocked(),
        until(fun() -> info(live) =:= 3 end),
        {ok, [_, _, {3, Third}]} = weir_pool:workers(p),
        [ok = weir_pool:checkin(p, Ticket) || Ticket <- hold(3)],
        Released = erlang:monotonic_time(millisecond),
        until(fun() -> erlang:monotonic_time(millisecond) > Released + 2 * Linger end),
        _ = sys:get_state(manager(p), wait_ms()),
        Starter ! go,
        ?assertEqual(ok, result(Resizer)),
        ?assertMatch([_, _, Third, _], slots(p)),
        ?assertMatch({ok, #{live := 4, vacant := 0, restarts := 0}}, weir_pool:info(p))
    end).

an_unlinked_worker_is_replaced(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    [
        begin
            {ok, [{1, Worker}]} = weir_pool:workers(p),
            ok = gen_server:call(Worker, {run, fun unlink_all/0}, wait_ms()),
            End(Worker),
            _ = await_down(Worker),
            until(fun() -> settled(p, 1) end)
        end
     || End <- [fun abandon/1, fun fail/1, fun weir_kit:kill/1], _ <- [1, 2]
    ].

unlink_all() ->
    {links, Links} = process_info(self(), links),
    lists:foreach(fun(Pid) -> true = unlink(Pid) end, Links).

abandon(_Worker) -> kill_claimer(claimer(p)).

fail(Worker) ->
    {ok, Worker, Ticket} = weir_pool:checkout(p, weir_kit:wait_ms()),
    ok = weir_pool:checkin(p, Ticket, fail).

%% Growth once took 13.7 s of the manager and 196 MB. The manager's reductions say whether it visits each new slot.
a_pool_grows_to_a_million_slots_without_a_visit_to_each(_Config) ->
    ok = weir_pool:start(p, #{worker => none, strategy => direct}),
    Before = reductions(manager(p)),
    ?assertEqual({ok, 1_000_000}, weir_pool:add_worker(p, far, 1_000_000)),
    ?assert(reductions(manager(p)) - Before < 500_000),
    ?assertMatch({ok, [{far, 1_000_000}]}, weir_pool:added_workers(p)),
    {ok, 1_000_000} = weir_pool:connect(p, far),
    ?assertEqual({ok, self()}, weir_pool:pick(p, 1_000_000)).

%% A search of the mailbox takes a reduction or more for each message. The second start fails.
a_start_does_not_search_the_mailbox_of_its_caller(_Config) ->
    Script = fun(Slot) -> lists:nth(Slot, [start, {error, refused}]) end,
    Messages = 1_000_000,
    [
        begin
            Start = fun() -> Result = weir_pool:start(p, Opts) end,
            %% The first start loads modules, for which the code server's client searches the mailbox.
            Without = reductions_of(Start, 0),
            With = reductions_of(Start, Messages),
            none(searches, [{reductions, Without, With} || With - Without > Messages div 4])
        end
     || {Opts, Result} <- [{pool(2), ok}, {slot_script(2, Script), {error, {start_failed, 2, refused}}}]
    ].

%% The messages are outside the heap, so that no garbage collection visits them.
reductions_of(Fun, Messages) ->
    {Pid, Monitor} = spawn_opt(
        fun() ->
            lists:foreach(fun(_) -> self() ! message end, lists:seq(1, Messages)),
            %% Collecting garbage takes reductions too.
            true = erlang:garbage_collect(),
            Before = reductions(self()),
            _ = Fun(),
            After = reductions(self()),
            _ = weir_pool:stop(p),
            exit({returned, After - Before})
        end,
        [monitor, {message_queue_data, off_heap}]
    ),
    result({Pid, Monitor}).

%% The queue measures time by messages to itself while claims wait. When each suspended waiter held the worker for five
%% ticks, the queue handled 121 messages before the next waiter got the worker. With one tick for each, 41. Every waiter
%% gets the worker in the end.
suspended_waiters_do_not_delay_the_next(_Config) ->
    start(1),
    [Ticket] = hold(1),
    Suspended = wait_in_order(20),
    [true = erlang:suspend_process(Pid) || {Pid, _} <- Suspended],
    [Next] = wait_in_order(1),
    Handled = received([queue(p)], fun() ->
        ok = weir_pool:checkin(p, Ticket),
        claimed(Next)
    end),
    ct:pal("the queue has handled ~b messages", [length(Handled)]),
    let_go(Next),
    %% All requests have had a grant, and the queue has taken all grants back.
    until(fun() -> info(waiting) =:= 0 andalso info(claimed) =:= 0 end),
    [true = erlang:resume_process(Pid) || {Pid, _} <- Suspended],
    [receive {claimed, Pid, _} -> let_go(lists:keyfind(Pid, 1, Suspended)) end || _ <- Suspended],
    ?assertMatch({ok, #{claimed := 0, waiting := 0, abandoned := 0, waits := 21}}, weir_pool:info(p)),
    none(late, [{handled, length(Handled)} || length(Handled) >= 20]).

%% The queue takes a grant back from a suspended waiter, and then holds as many requests as it may.
a_waiter_whose_grant_was_taken_back_keeps_its_place_in_a_full_queue(_Config) ->
    ok = weir_pool:start(p, pool(1, #{max_queue => 1})),
    [Ticket] = hold(1),
    [{Pid, _} = First] = wait_in_order(1),
    true = erlang:suspend_process(Pid),
    ok = weir_pool:checkin(p, Ticket),
    until(fun() -> info(waiting) =:= 0 end),
    Second = waiter(),
    _ = claimed(Second),
    [Third] = wait_in_order(1),
    true = erlang:resume_process(Pid),
    until(fun() -> info(waiting) =:= 2 end),
    ?assertMatch({error, {overload, _}}, weir_pool:claim(p, fun(_) -> ok end, weir_kit:wait_ms())),
    let_go(Second),
    _ = claimed(First),
    none(overtaken, [third || not has_not_claimed(Third)]),
    let_go(First),
    _ = claimed(Third),
    let_go(Third).

%% The worker was killed, or its claimer was, and the pool has replaced the worker. The test has the ticket of the
%% claimer. The successor may be claimed.
checkin_of_a_dead_worker_says_worker_down(_Config) ->
    start(1),
    [
        begin
            {Claimer, {ok, Worker, Ticket}} = checked_out_elsewhere(),
            Kill(Worker, Claimer),
            _ = await_down(Worker),
            settle(p, 1),
            IsRefused = fun() ->
                [?assertEqual({error, worker_down}, weir_pool:checkin(p, Ticket, How)) || How <- [ok, fail]]
            end,
            IsRefused(),
            {ok, _, Next} = weir_pool:checkout(p, 0),
            IsRefused(),
            ?assertEqual(ok, weir_pool:checkin(p, Next)),
            kill(Claimer)
        end
     || Kill <- [fun(Worker, _) -> kill(Worker) end, fun(_, {Claimer, _}) -> kill(Claimer) end]
    ].

checked_out_elsewhere() ->
    Test = self(),
    {Pid, _} = Claimer = weir_kit:start(fun() ->
        Test ! {self(), weir_pool:checkout(p, 0)},
        receive never -> ok end
    end),
    receive {Pid, Claimed} -> {Claimer, Claimed} end.

%% The manager of a pool with one call polls it, while another pool has 10,000 calls under way. When the manager read
%% the calls of all pools, three polls took 1,000 reductions without these calls, and 111,000 with them.
a_manager_does_not_read_the_calls_of_other_pools(_Config) ->
    [ok = weir_pool:start(Name, pool(2, #{strategy => least_loaded})) || Name <- [p, busy]],
    Caller = blocked_call(p),
    {ok, _, Ticket} = weir_pool:checkout(p, 0),
    Alone = reductions_of_polls(3),
    Callers = [blocked_call(busy) || _ <- lists:seq(1, 10_000)],
    until(fun() -> info(busy, calls) =:= 10_000 orelse info(busy, calls) end),
    Beside = reductions_of_polls(3),
    ct:pal("three polls take ~b reductions, beside 10,000 calls ~b", [Alone, Beside]),
    ok = weir_pool:checkin(p, Ticket),
    [kill(Each) || Each <- [Caller | Callers]],
    none(reads_all_calls, [{Alone, Beside} || Beside - Alone > 50_000]).

%% A process whose call of a worker gets no answer.
blocked_call(Name) ->
    Hang = {run, fun() -> receive never -> ok end end},
    weir_kit:start(fun() -> weir_pool:call(Name, Hang, infinity) end).

%% The reductions of the manager while it polls. Each poll adds to `claimed_ms' of a pool with a claimed worker.
reductions_of_polls(N) ->
    ok = await_poll(),
    Before = reductions(manager(p)),
    [ok = await_poll() || _ <- lists:seq(1, N)],
    reductions(manager(p)) - Before.

await_poll() ->
    Before = info(claimed_ms),
    until(fun() -> info(claimed_ms) > Before end).

reductions(Pid) ->
    {reductions, Reductions} = process_info(Pid, reductions),
    Reductions.
