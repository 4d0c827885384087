%% Claims: no worker is lost or given twice, whichever process is killed, suspended or late, at any moment.
-module(weir_pool_claim_crash_SUITE).

-include("weir_pool_suite.hrl").

%% Claimers are killed at random moments while they release workers, or give them back as failed. No slot is lost.
claimers_killed_while_they_end_claims_cost_no_slot(_Config) ->
    each([replace, {wait, 60000}, free], fun(Abandoned) ->
        start(3, #{abandoned => Abandoned}),
        [
            begin
                Claimers = [spawn(fun claim_for_ever/0) || _ <- [1, 2, 3, 4]],
                [erlang:yield() || _ <- lists:seq(1, rand:uniform(30))],
                [kill(Claimer) || Claimer <- Claimers]
            end
         || _ <- lists:seq(1, weir_kit:long(150, 1000))
        ],
        at_rest(),
        same(slots, 3, length(lists:usort(workers(p))))
    end).

claim_for_ever() ->
    case weir_pool:checkout(p, 5) of
        {ok, _, Ticket} -> weir_pool:checkin(p, Ticket, lists:nth(rand:uniform(2), [ok, fail]));
        {error, _} -> ok
    end,
    claim_for_ever().

%% Ways in which a pool dies in the middle of something. Its supervisor starts it again, with new workers, or this
%% process does.
deaths() ->
    [
        {manager_killed, fun() -> kill(manager(p)) end},
        {queue_killed, fun() -> kill(queue(p)) end},
        {queue_crashed, fun() -> crash(queue(p)) end},
        {manager_crashed, fun() -> crash(manager(p)) end},
        {stopped_and_started, fun stop_and_start/0}
    ].

stop_and_start() ->
    {ok, #{size := Size}} = weir_pool:info(p),
    ok = weir_pool:stop(p),
    start(Size).

crash(Process) ->
    ok = sys:terminate(Process, crashed),
    await_down(Process).

%% Returns when the next pool is open. The old pool has left nothing then.
die(Die) ->
    Manager = manager(p),
    Processes = [Manager, queue(p) | workers(p)],
    _ = Die(),
    weir_pool_test_lib:reopened(p, Manager),
    [await_down(Process) || Process <- Processes].

%% The grant is in its mailbox when the pool dies, so its worker may be a dead one; it has nothing of the next pool.
a_grant_of_a_dead_pool_holds_nothing_of_the_next(_Config) ->
    each(deaths(), fun({_How, Die}) ->
        start(1),
        [Worker] = workers(p),
        [Holder] = hold_all(),
        [{Pid, _} = Waiter] = wait_in_order(1),
        true = erlang:suspend_process(Pid),
        let_go(Holder),
        await_waiting(0),
        die(Die),
        ?assertEqual([free], states()),
        true = erlang:resume_process(Pid),
        case claimed(Waiter) of
            Worker ->
                %% The waiter has a claim of the old pool.
                {ok, Other, Ticket} = weir_pool:checkout(p, 0),
                ?assertNotEqual(Worker, Other),
                let_go(Waiter),
                same(lost_claim, [taken], states()),
                ok = weir_pool:checkin(p, Ticket);
            Next ->
                %% The waiter has asked again.
                ?assertEqual([Next], workers(p)),
                ?assertEqual([taken], states()),
                let_go(Waiter)
        end,
        at_rest()
    end).

%% Claims of the old pool hold nothing of the next one, whatever their holders do.
claims_of_a_dead_pool_hold_nothing_of_the_next(_Config) ->
    each(deaths(), fun({How, Die}) ->
        start(3),
        Old = workers(p),
        [Holder1, Holder2] = [claiming(0), claiming(0)],
        [claimed(Holder) || Holder <- [Holder1, Holder2]],
        {ok, _, Ticket} = weir_pool:checkout(p, 0),
        Overdue = claiming(#{timeout => infinity, covers => work}),
        await_waiting(1),
        die(Die),
        ?assert(lists:member(in_work(Overdue), [{error, no_pool}, {ok, done}])),
        [Held | _] = Tickets = [element(3, weir_pool:checkout(p, 0)) || _ <- [1, 2, 3]],
        ?assertEqual({How, [taken, taken, taken]}, {How, states()}),
        none(workers_of_the_old_pool, [Worker || Worker <- workers(p), lists:member(Worker, Old)]),
        let_go(Holder1),
        kill(Holder2),
        ?assertEqual({error, worker_down}, weir_pool:checkin(p, Ticket, fail)),
        ?assertEqual({error, worker_down}, weir_pool:checkin(p, Ticket)),
        manager(p) ! tick,
        _ = sys:get_state(manager(p)),
        same(lost_claims, {How, [taken, taken, taken]}, {How, states()}),
        [?assertEqual(ok, weir_pool:checkin(p, T)) || T <- Tickets],
        ?assertEqual({error, not_held}, weir_pool:checkin(p, Held)),
        at_rest(),
        ?assertEqual(0, info(abandoned))
    end).

%% Returns the result of a claim whose time-out covers the work. The process that does the work reports the claim.
in_work({Pid, Monitor} = Claimer) ->
    receive
        {claimed, Child, _Worker} ->
            Child ! let_go,
            result(Claimer);
        {'DOWN', Monitor, process, Pid, {returned, Result}} ->
            Result
    end.

%% Releasers that are killed between two steps. The steps are made here one by one.
waiters_are_served_though_a_releaser_was_killed(_Config) ->
    start(1),
    [Worker] = workers(p),
    %% Between freeing the slot and reading the mode.
    {ok, Worker, {ticket, Pool, Slot, Word, Worker}} = weir_pool:checkout(p, #{}),
    [First] = wait_in_order(1),
    free = weir_pool_word:release(Pool, Slot, Word),
    Worker = claimed(First),
    %% Between setting WAKE and sending the message.
    [Second] = wait_in_order(1),
    ok = atomics:put(Pool#pool.signals, ?SIGNAL_WAKE, -1),
    let_go(First),
    Worker = claimed(Second),
    %% Later wake-ups are sent again.
    until(fun() -> signals(?SIGNAL_WAKE) =:= 0 end),
    let_go(Second),
    at_rest().

%% poolboy 137 and 58: the mailbox of the pool process is full of requests and cancellations, and has millions of
%% monitors. Here waiters that gave up or were killed leave nothing, not even their monitors. A claim that the full
%% queue refuses sends no message.
waiters_that_gave_up_leave_no_messages_and_no_monitors(_Config) ->
    start(1, #{max_queue => 50}),
    [Holder] = hold_all(),
    Waiters = wait_in_order(50),
    Queue = queue(p),
    {monitors, Monitors} = process_info(Queue, monitors),
    ?assertEqual(lists:sort([{process, Pid} || {Pid, _} <- Waiters]), lists:sort(Monitors)),
    ?assertEqual({links, [manager(p)]}, process_info(Queue, links)),
    %% A status or a crash report with each waiter would be too long for a log.
    {status, _, _, Items} = sys:get_status(Queue),
    none(waiters_in_status, [Pid || {Pid, _} <- Waiters, is_shown(Pid, Items)]),
    {reductions, Before} = process_info(Queue, reductions),
    Refused = [weir_pool:claim(p, fun(W) -> W end, #{timeout => infinity}) || _ <- lists:seq(1, 1000)],
    ?assertEqual(1000, length([refused || {error, {overload, _}} <- Refused])),
    {reductions, After} = process_info(Queue, reductions),
    ct:pal("~b reductions of the queue while 1000 were refused", [After - Before]),
    [kill(Waiter) || Waiter <- Waiters],
    await_waiting(0),
    GiveUp = fun() -> [weir_pool:claim(p, fun(W) -> W end, #{timeout => 1}) || _ <- lists:seq(1, 100)] end,
    _ = weir_kit:in_parallel(lists:duplicate(40, GiveUp)),
    until(fun() -> weir_kit:queue_len(Queue) =:= 0 end),
    await_waiting(0),
    same(leaked, [{monitored_by, []}, {monitors, []}], process_info(Queue, [monitored_by, monitors])),
    let_go(Holder),
    at_rest(),
    %% Waiters that were served leave nothing either.
    until(fun() -> process_info(Queue, monitors) =:= {monitors, []} end).

is_shown(Pid, Term) -> string:find(io_lib:format("~p", [Term]), pid_to_list(Pid)) =/= nomatch.
