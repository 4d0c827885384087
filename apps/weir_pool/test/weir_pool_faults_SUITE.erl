%% Promises that an attack on pools has found broken. Each case holds one of them, through the public interface.
-module(weir_pool_faults_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, await_down/1, kill/1, result/1, wait_ms/0]).
-import(weir_pool_test_lib, [manager/1, settled/2, start_parent/1, stop_parent/1]).
-import(weir_pool_claim_lib, [claimer/1, waiter/0, claimed/1, has_not_claimed/1, let_go/1, wait_in_order/1]).
-import(weir_pool_life_lib, [pool/1, pool/2, script/2, slot_script/2, workers_alive/0]).

%% The pool of weir_pool_claim_lib.
-define(POOL, weir_pool_claim_lib).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

%% After a failure, workers may wait for a message that no process sends any more, and the application for them.
end_per_testcase(_Case, Config) ->
    HasFailed = proplists:get_value(tc_status, Config, ok) =/= ok,
    Killers = [weir_kit:start(fun kill_workers/0) || HasFailed],
    Result = weir_pool_test_lib:teardown(Config),
    _ = [result(Killer) || Killer <- Killers],
    Result.

%% Kills workers, and the workers that are started in their place, until the application has stopped.
kill_workers() ->
    until(fun() ->
        [exit(Worker, kill) || Worker <- workers_alive()],
        whereis(weir_pool_sup) =:= undefined
    end).

%% ---------------------------------------------------------------- overflow

overflow_never_exceeds_its_maximum_while_workers_stop(_Config) ->
    weir_kit:none(too_many_workers, [{Size, N} || Size <- [1, 0], N <- most_alive(Size), N > Size + 1]).

%% Claims all workers and one for overflow, and returns all, 12 times. A worker that stops dies when a claim waits for
%% its successor, or not before the end if no claim waits. Returns how many workers were alive at each start.
most_alive(Size) ->
    Test = self(),
    ok = weir_pool:start(?POOL, slow_to_stop(Size, fun(_Worker) -> Test ! {alive, length(workers_alive())} end)),
    Stopping = lists:foldl(
        fun(_Round, Stopping) ->
            Held = hold(Size),
            Waiter = waiter(),
            until(fun() -> waiting() =:= 1 orelse not has_not_claimed(Waiter) end),
            ok = started_all(),
            Stopped = [let_stop(Pid) || has_not_claimed(Waiter), Pid <- Stopping],
            _ = claimed(Waiter),
            [ok = weir_pool:checkin(?POOL, Ticket) || Ticket <- Held],
            let_go(Waiter),
            [stopping() | lists:nthtail(length(Stopped), Stopping)]
        end,
        [],
        lists:seq(1, 12)
    ),
    [let_stop(Pid) || Pid <- Stopping],
    stop_pool(Size),
    [N || {alive, N} <- weir_kit:take_messages()].

%% A pool with one worker for overflow. A worker that is asked to stop waits for let_stop/1.
slow_to_stop(Size, Started) ->
    Test = self(),
    Script = fun() ->
        {ok, Worker} = weir_pool_life_worker:start_slow_to_stop(Test),
        _ = Started(Worker),
        {ok, Worker}
    end,
    (script(Size, Script))#{overflow => #{max => 1, linger => 0}, shutdown => infinity}.

%% Claims N workers.
hold(N) ->
    weir_pool_claim_lib:nobody_waits(),
    [element(3, {ok, _, _} = weir_pool:checkout(?POOL, 0)) || _ <- lists:seq(1, N)].

%% Workers for overflow, a worker that was replaced, and one of a slot that a resize has taken away.
info_counts_workers_that_are_stopping(_Config) ->
    ok = weir_pool:start(?POOL, slow_to_stop(1, fun(_Worker) -> ok end)),
    ?assertMatch(#{live := 1, stopping := 0}, info()),
    Claimers = [waiter(), waiter()],
    [claimed(Claimer) || Claimer <- Claimers],
    [let_go(Claimer) || Claimer <- Claimers],
    First = stopping(),
    ?assertMatch(#{live := 1, stopping := 1, claimed := 0}, info()),
    {ok, [{1, Old}]} = weir_pool:workers(?POOL),
    ok = weir_pool:replace(?POOL, 1),
    ?assertEqual(Old, stopping()),
    ?assertMatch(#{live := 1, stopping := 2}, info()),
    let_stop(First),
    until(fun() -> maps:get(stopping, info()) =:= 1 end),
    ok = weir_pool:resize(?POOL, 2),
    ok = weir_pool:resize(?POOL, 1),
    Resized = stopping(),
    ?assertMatch(#{live := 1, stopping := 2}, info()),
    [let_stop(Pid) || Pid <- [Old, Resized]],
    until(fun() -> maps:get(stopping, info()) =:= 0 end),
    stop_pool(1).

stopping() ->
    receive
        {stopping, Worker} -> Worker
    after weir_kit:wait_ms() -> error(no_worker_stops)
    end.

let_stop(Worker) ->
    Worker ! go,
    await_down(Worker).

%% Returns when all starts are made that the pool's manager has been asked for so far: the manager answers, and then
%% each supervisor without a worker. A supervisor that waits for its worker's end would not answer.
started_all() ->
    Sups = weir_pool_life_lib:slot_sups(?POOL),
    lists:foreach(fun supervisor:which_children/1, [Sup || Sup <- Sups, not has_worker(Sup)]).

has_worker(Sup) ->
    Workers = workers_alive(),
    {links, Links} = process_info(Sup, links),
    lists:any(fun(Link) -> lists:member(Link, Workers) end, Links).

%% Stops a pool whose workers wait for let_stop/1.
stop_pool(Size) ->
    Stopper = weir_kit:start(fun() -> weir_pool:stop(?POOL) end),
    [let_stop(stopping()) || _ <- lists:seq(1, Size)],
    ?assertEqual(ok, result(Stopper)).

info() ->
    {ok, Info} = weir_pool:info(?POOL),
    Info.

waiting() -> maps:get(waiting, info()).

%% ---------------------------------------------------------------- health checks

%% The check of the first worker hangs.
a_check_that_hangs_is_killed_while_the_timer_server_is_suspended(_Config) ->
    ok = timer:start(),
    Test = self(),
    Checks = counters:new(1, []),
    Check = fun(Worker) ->
        counters:add(Checks, 1, 1),
        _ = counters:get(Checks, 1) =:= 1 andalso hang(Test, Worker),
        ok
    end,
    ok = sys:suspend(timer_server, wait_ms()),
    try
        ok = weir_pool:start(?POOL, pool(1, #{check => {Check, 20}})),
        receive
            {hangs, Checker, Worker} ->
                %% A process that was dead before its monitor began has the reason `noproc'.
                ?assert(lists:member(await_down(Checker), [killed, noproc])),
                _ = await_down(Worker),
                until(fun() -> settled(?POOL, 1) end),
                ?assertMatch(#{check_failures := 1}, info())
        after weir_kit:wait_ms() -> error(no_check)
        end
    after
        ok = sys:resume(timer_server, wait_ms())
    end,
    ok = weir_pool:stop(?POOL).

hang(Test, Worker) ->
    Test ! {hangs, self(), Worker},
    receive never -> ok end.

%% ---------------------------------------------------------------- restarts of a pool

%% The workers have registered names. Each worker ends 150 ms after its supervisor has asked for that.
a_restart_waits_for_workers_with_names_under_start(_Config) ->
    ok = weir_pool:start(?POOL, named()),
    [
        begin
            ok = kill_manager_of_named(),
            ?assertMatch(#{start_failures := 0}, info())
        end
     || _ <- lists:seq(1, 3)
    ],
    stop_pool(3).

%% The supervisor allows one restart.
a_restart_waits_for_workers_with_names_under_a_supervisor(_Config) ->
    Flags = #{strategy => one_for_one, intensity => 1, period => 3600},
    Parent = start_parent({Flags, [weir_pool:child_spec(?POOL, named())]}),
    ok = kill_manager_of_named(),
    ?assert(is_process_alive(Parent)),
    [{{weir_pool, ?POOL}, Manager, supervisor, _}] = supervisor:which_children(Parent),
    ?assert(is_pid(Manager)),
    Stopper = weir_kit:start(fun() -> stop_parent(Parent) end),
    [let_stop(stopping()) || _ <- lists:seq(1, 3)],
    ?assertEqual(ok, result(Stopper)).

%% The workers never end by themselves: their supervisors kill them after `shutdown' milliseconds.
a_restart_waits_for_workers_with_names_until_their_shutdown_is_over(_Config) ->
    ok = weir_pool:start(?POOL, (named())#{shutdown => 150}),
    {ok, Old} = weir_pool:workers(?POOL),
    kill(manager(?POOL)),
    [await_down(Worker) || {_, Worker} <- Old],
    until(fun() -> settled(?POOL, 3) end),
    ok = weir_pool:stop(?POOL).

named() ->
    Test = self(),
    Start = fun(Slot) ->
        Name = lists:nth(Slot, [weir_pool_faults_1, weir_pool_faults_2, weir_pool_faults_3]),
        case whereis(Name) of
            undefined ->
                {ok, Worker} = weir_pool_life_worker:start_slow_to_stop(Test),
                true = register(Name, Worker),
                {ok, Worker};
            Old ->
                {error, {already_started, Old}}
        end
    end,
    slot_script(3, Start).

%% Kills the manager. Returns when the pool has three new workers, with the names of the old ones.
kill_manager_of_named() ->
    {ok, Old} = weir_pool:workers(?POOL),
    kill(manager(?POOL)),
    [erlang:send_after(150, stopping(), go) || _ <- Old],
    [await_down(Worker) || {_, Worker} <- Old],
    until(fun() -> settled(?POOL, 3) end),
    {ok, New} = weir_pool:workers(?POOL),
    weir_kit:same(
        names,
        [Worker || {_, Worker} <- New],
        [whereis(Name) || Name <- [weir_pool_faults_1, weir_pool_faults_2, weir_pool_faults_3]]
    ).

%% ---------------------------------------------------------------- dead workers

a_dead_idle_worker_is_not_checked_out(_Config) ->
    ok = weir_pool:start(?POOL, pool(1, #{intensity => 1_000_000})),
    GivenOut = [Try || Try <- lists:seq(1, 300), is_given_out_dead()],
    ok = weir_pool:stop(?POOL),
    weir_kit:none(dead_workers_checked_out, GivenOut).

%% Kills the idle worker of a pool of one, and claims when its monitor has told. The manager is suspended, so that it
%% has never heard of the death sooner than the claimer.
is_given_out_dead() ->
    until(fun() -> settled(?POOL, 1) end),
    until(fun() -> maps:get(claimed, info()) + maps:get(reserved, info()) =:= 0 end),
    {ok, [{1, Worker}]} = weir_pool:workers(?POOL),
    ok = sys:suspend(manager(?POOL), wait_ms()),
    kill(Worker),
    Result = weir_pool:checkout(?POOL, 0),
    ok = sys:resume(manager(?POOL), wait_ms()),
    case Result of
        {ok, Claimed, Ticket} ->
            _ = weir_pool:checkin(?POOL, Ticket),
            Claimed =:= Worker;
        {error, Reason} ->
            ?assert(lists:member(Reason, [busy, no_worker])),
            false
    end.

%% The manager is suspended, so the queue grants a worker whose death the pool does not know.
a_dead_worker_that_the_queue_grants_is_not_checked_out(_Config) ->
    ok = weir_pool:start(?POOL, pool(1)),
    %% A fun that returns releases a dead worker as if it lived.
    Holder = claimer(#{}),
    Worker = claimed(Holder),
    Checkout = weir_kit:start(fun() -> weir_pool:checkout(?POOL, infinity) end),
    until(fun() -> waiting() =:= 1 end),
    ok = sys:suspend(manager(?POOL), wait_ms()),
    kill(Worker),
    let_go(Holder),
    %% The waiter has found the worker dead, and asks the queue again.
    until(fun() -> maps:get(claims, info()) =:= 2 andalso waiting() =:= 1 end),
    ok = sys:resume(manager(?POOL), wait_ms()),
    {ok, Next, _} = result(Checkout),
    ?assertNotEqual(Worker, Next),
    ok = weir_pool:stop(?POOL).

%% ---------------------------------------------------------------- starts that are cut off

%% A replacement or a resize times out, or the pool is drained, while a start function does not return. When it returns,
%% the worker is stopped like any other, and counts as stopping until then.
a_worker_whose_start_was_cut_off_is_stopped(_Config) ->
    [ok = cut_off(CutOff) || CutOff <- [replace, resize]],
    ok = weir_pool:start(?POOL, (late_starts(0))#{start => async}),
    Starter = blocked(),
    Drainer = weir_kit:start(fun() -> weir_pool:drain(?POOL, infinity) end),
    until(fun() -> weir_pool:pick(?POOL) =:= {error, no_pool} end),
    Starter ! go,
    _ = let_stop(stopping()),
    ?assertEqual(ok, result(Drainer)).

cut_off(CutOff) ->
    ok = weir_pool:start(?POOL, late_starts(1)),
    {error, timeout} =
        case CutOff of
            replace -> weir_pool:replace(?POOL, 1, 1);
            resize -> weir_pool:resize(?POOL, 2, 1)
        end,
    until(fun() -> maps:get(stopping, info()) =:= 1 end),
    blocked() ! go,
    _ = let_stop(stopping()),
    until(fun() -> maps:get(stopping, info()) =:= 0 end),
    stop_pool(1).

%% A pool with one slot, of which all starts but the first N wait for `go'. Workers wait for let_stop/1.
late_starts(N) ->
    Test = self(),
    Starts = counters:new(1, []),
    Script = fun() ->
        ok = counters:add(Starts, 1, 1),
        _ = counters:get(Starts, 1) > N andalso block(Test),
        weir_pool_life_worker:start_slow_to_stop(Test)
    end,
    (script(1, Script))#{shutdown => infinity}.

block(Test) ->
    Test ! {blocked, self()},
    receive
        go -> ok
    end.

blocked() ->
    receive
        {blocked, Starter} -> Starter
    after weir_kit:wait_ms() -> error(no_start)
    end.

%% The new slots are among those for overflow, whose workers stop when they are released.
a_resize_into_the_overflow_keeps_its_new_workers(_Config) ->
    Test = self(),
    Script = fun(Slot) ->
        _ = Slot =:= 4 andalso block(Test),
        start
    end,
    ok = weir_pool:start(?POOL, (slot_script(2, Script))#{overflow => #{max => 2, linger => 0}}),
    Resizer = weir_kit:start(fun() -> weir_pool:resize(?POOL, 4) end),
    Starter = blocked(),
    until(fun() -> maps:get(live, info()) =:= 3 end),
    Tickets = hold(3),
    [ok = weir_pool:checkin(?POOL, Ticket) || Ticket <- Tickets],
    _ = sys:get_state(manager(?POOL), wait_ms()),
    Starter ! go,
    ?assertEqual(ok, result(Resizer)),
    ?assertMatch(#{live := 4, vacant := 0, restarts := 0}, info()),
    ok = weir_pool:stop(?POOL).

%% ---------------------------------------------------------------- workers that unlink themselves

an_unlinked_worker_is_replaced(_Config) ->
    ok = weir_pool:start(?POOL, pool(1)),
    [
        begin
            {ok, [{1, Worker}]} = weir_pool:workers(?POOL),
            ok = gen_server:call(Worker, {run, fun unlink_all/0}, wait_ms()),
            End(Worker),
            _ = await_down(Worker),
            until(fun() -> settled(?POOL, 1) end)
        end
     || End <- [fun abandon/1, fun fail/1, fun weir_kit:kill/1], _ <- [1, 2]
    ],
    ok = weir_pool:stop(?POOL).

unlink_all() ->
    {links, Links} = process_info(self(), links),
    lists:foreach(fun(Pid) -> true = unlink(Pid) end, Links).

abandon(_Worker) -> weir_pool_life_lib:kill_claimer(weir_pool_life_lib:claimer(?POOL)).

fail(Worker) ->
    {ok, Worker, Ticket} = weir_pool:checkout(?POOL, weir_kit:wait_ms()),
    ok = weir_pool:checkin(?POOL, Ticket, fail).

%% ---------------------------------------------------------------- requests that take long

%% Growth once took 13.7 s of the manager and 196 MB. The manager's reductions say whether it visits each new slot.
a_pool_grows_to_a_million_slots_without_a_visit_to_each(_Config) ->
    ok = weir_pool:start(?POOL, #{worker => none, strategy => direct}),
    {reductions, Before} = process_info(manager(?POOL), reductions),
    ?assertEqual({ok, 1_000_000}, weir_pool:add_worker(?POOL, far, 1_000_000)),
    {reductions, After} = process_info(manager(?POOL), reductions),
    ?assert(After - Before < 500_000),
    ?assertMatch({ok, [{far, 1_000_000}]}, weir_pool:added_workers(?POOL)),
    {ok, 1_000_000} = weir_pool:connect(?POOL, far),
    ?assertEqual({ok, self()}, weir_pool:pick(?POOL, 1_000_000)),
    ok = weir_pool:stop(?POOL).

%% ---------------------------------------------------------------- starts

%% A search of the mailbox takes a reduction or more for each message. The second start fails.
a_start_does_not_search_the_mailbox_of_its_caller(_Config) ->
    Script = fun(Slot) -> lists:nth(Slot, [start, {error, refused}]) end,
    Messages = 1_000_000,
    [
        begin
            Start = fun() -> Result = weir_pool:start(?POOL, Opts) end,
            %% The first start loads modules, for which the code server's client searches the mailbox.
            Without = reductions_of(Start, 0),
            With = reductions_of(Start, Messages),
            weir_kit:none(searches, [{reductions, Without, With} || With - Without > Messages div 4])
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
            {reductions, Before} = process_info(self(), reductions),
            _ = Fun(),
            {reductions, After} = process_info(self(), reductions),
            _ = weir_pool:stop(?POOL),
            exit({returned, After - Before})
        end,
        [monitor, {message_queue_data, off_heap}]
    ),
    result({Pid, Monitor}).

%% ---------------------------------------------------------------- waiters that are not scheduled

%% The queue measures time by messages to itself while claims wait. When each suspended waiter held the worker for five
%% ticks, the queue handled 121 messages before the next waiter got the worker. With one tick for each, 41. Every waiter
%% gets the worker in the end.
suspended_waiters_do_not_delay_the_next(_Config) ->
    ok = weir_pool:start(?POOL, pool(1)),
    [Ticket] = hold(1),
    Suspended = wait_in_order(20),
    [true = erlang:suspend_process(Pid) || {Pid, _} <- Suspended],
    [Next] = wait_in_order(1),
    Counter = count_messages_of_queue(),
    ok = weir_pool:checkin(?POOL, Ticket),
    _ = claimed(Next),
    Handled = messages_of_queue(Counter),
    ct:pal("the queue has handled ~b messages", [Handled]),
    let_go(Next),
    %% All requests have had a grant, and the queue has taken all grants back.
    until(fun() -> waiting() =:= 0 andalso maps:get(claimed, info()) =:= 0 end),
    [true = erlang:resume_process(Pid) || {Pid, _} <- Suspended],
    ok = serve_all(Suspended),
    Info = info(),
    ok = weir_pool:stop(?POOL),
    ?assertMatch(#{claimed := 0, waiting := 0, abandoned := 0, waits := 21}, Info),
    weir_kit:none(late, [{handled, Handled} || Handled >= 20]).

%% Lets each waiter give its worker back, in the order of their claims.
serve_all([]) ->
    ok;
serve_all(Waiters) ->
    receive
        {claimed, Pid, _Worker} ->
            {value, Waiter, Others} = lists:keytake(Pid, 1, Waiters),
            let_go(Waiter),
            serve_all(Others)
    after weir_kit:wait_ms() -> error({not_claimed, info()})
    end.

%% The queue takes a grant back from a suspended waiter, and then holds as many requests as it may.
a_waiter_whose_grant_was_taken_back_keeps_its_place_in_a_full_queue(_Config) ->
    ok = weir_pool:start(?POOL, pool(1, #{max_queue => 1})),
    [Ticket] = hold(1),
    [{Pid, _} = First] = wait_in_order(1),
    true = erlang:suspend_process(Pid),
    ok = weir_pool:checkin(?POOL, Ticket),
    until(fun() -> waiting() =:= 0 end),
    Second = waiter(),
    _ = claimed(Second),
    [Third] = wait_in_order(1),
    true = erlang:resume_process(Pid),
    until(fun() -> waiting() =:= 2 end),
    ?assertMatch({error, {overload, _}}, weir_pool:claim(?POOL, fun(_) -> ok end, weir_kit:wait_ms())),
    let_go(Second),
    _ = claimed(First),
    weir_kit:none(overtaken, [third || not has_not_claimed(Third)]),
    let_go(First),
    _ = claimed(Third),
    let_go(Third),
    ok = weir_pool:stop(?POOL).

%% Counts the messages that a pool's queue takes from its mailbox. The tracer counts them.
count_messages_of_queue() ->
    Queue = weir_pool_test_lib:queue(?POOL),
    Counter = weir_kit:start(fun() -> count(0) end),
    1 = erlang:trace(Queue, true, ['receive', {tracer, element(1, Counter)}]),
    {Counter, Queue}.

messages_of_queue({{Pid, _} = Counter, Queue}) ->
    1 = erlang:trace(Queue, false, ['receive']),
    Delivered = erlang:trace_delivered(Queue),
    receive
        {trace_delivered, Queue, Delivered} -> Pid ! stop
    end,
    result(Counter).

count(N) ->
    receive
        {trace, _Queue, 'receive', _Message} -> count(N + 1);
        stop -> N
    end.

%% ---------------------------------------------------------------- tickets

checkin_tells_a_dead_worker_from_a_claim_that_has_ended(_Config) ->
    ok = weir_pool:start(?POOL, pool(1)),
    %% The worker has died and has a successor, which another claim may hold.
    {ok, Died, OfDead} = weir_pool:checkout(?POOL, 0),
    kill(Died),
    until(fun() -> settled(?POOL, 1) end),
    ?assertEqual({error, worker_down}, weir_pool:checkin(?POOL, OfDead)),
    ?assertEqual({error, worker_down}, weir_pool:checkin(?POOL, OfDead, fail)),
    {ok, Worker, Ticket} = weir_pool:checkout(?POOL, weir_kit:wait_ms()),
    ?assertEqual({error, worker_down}, weir_pool:checkin(?POOL, OfDead)),
    %% The worker lives, and the claim has ended.
    ?assertEqual(ok, weir_pool:checkin(?POOL, Ticket)),
    ?assertEqual({error, not_held}, weir_pool:checkin(?POOL, Ticket)),
    ?assertEqual({error, not_held}, weir_pool:checkin(?POOL, Ticket, fail)),
    {ok, Worker, Again} = weir_pool:checkout(?POOL, weir_kit:wait_ms()),
    ?assertEqual({error, not_held}, weir_pool:checkin(?POOL, Ticket)),
    ?assertEqual(ok, weir_pool:checkin(?POOL, Again)),
    ok = weir_pool:stop(?POOL).

%% The claimer was killed, and the pool has replaced the worker. The test has the ticket of the claimer.
checkin_of_a_replaced_worker_says_worker_down(_Config) ->
    ok = weir_pool:start(?POOL, pool(1)),
    Test = self(),
    {Claimer, _} = weir_kit:start(fun() ->
        Test ! {ticket, weir_pool:checkout(?POOL, 0)},
        receive
            never -> ok
        end
    end),
    {ok, Worker, Ticket} =
        receive
            {ticket, Claimed} -> Claimed
        end,
    kill(Claimer),
    _ = await_down(Worker),
    until(fun() -> settled(?POOL, 1) end),
    ?assertEqual({error, worker_down}, weir_pool:checkin(?POOL, Ticket)),
    ok = weir_pool:stop(?POOL).

%% ---------------------------------------------------------------- calls of other pools

%% The manager of a pool with one call polls it, while another pool has 10,000 calls under way. When the manager read
%% the calls of all pools, three polls took 1,000 reductions without these calls, and 111,000 with them.
a_manager_does_not_read_the_calls_of_other_pools(_Config) ->
    ok = weir_pool:start(?POOL, pool(2, #{strategy => least_loaded})),
    ok = weir_pool:start(busy, pool(2, #{strategy => least_loaded})),
    Caller = blocked_call(?POOL),
    {ok, _, Ticket} = weir_pool:checkout(?POOL, 0),
    Alone = reductions_of_polls(3),
    Callers = [blocked_call(busy) || _ <- lists:seq(1, 10_000)],
    until(fun() ->
        {ok, #{calls := Calls}} = weir_pool:info(busy),
        Calls =:= 10_000 orelse Calls
    end),
    Beside = reductions_of_polls(3),
    ct:pal("three polls take ~b reductions, beside 10,000 calls ~b", [Alone, Beside]),
    ok = weir_pool:checkin(?POOL, Ticket),
    [kill(Each) || Each <- [Caller | Callers]],
    [ok = weir_pool:stop(Name) || Name <- [?POOL, busy]],
    weir_kit:none(reads_all_calls, [{Alone, Beside} || Beside - Alone > 50_000]).

%% A process whose call of a worker gets no answer.
blocked_call(Name) ->
    weir_kit:start(fun() ->
        weir_pool:call(
            Name,
            {run, fun() ->
                receive
                    never -> ok
                end
            end},
            infinity
        )
    end).

%% The reductions of the manager while it polls. Each poll adds to `claimed_ms' of a pool with a claimed worker.
reductions_of_polls(N) ->
    ok = await_poll(),
    Before = reductions(manager(?POOL)),
    [ok = await_poll() || _ <- lists:seq(1, N)],
    reductions(manager(?POOL)) - Before.

await_poll() ->
    #{claimed_ms := Before} = info(),
    until(fun() -> maps:get(claimed_ms, info()) > Before end).

reductions(Pid) ->
    {reductions, Reductions} = process_info(Pid, reductions),
    Reductions.
