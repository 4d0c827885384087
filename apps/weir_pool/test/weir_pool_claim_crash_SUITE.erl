%% Claims: no worker is lost or given twice, whichever process is killed, suspended or late, at any moment.
-module(weir_pool_claim_crash_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").
-include("weir_pool_test_signals.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, result/1, wait_ms/0]).
-import(weir_pool_test_lib, [each/2]).
-import(weir_pool_claim_lib, [
    start/1, start/2, states/0, signals/1, waiting/0, counter/1, queue/0, manager/0, workers/0, await_waiting/1,
    at_rest/0, claimer/1, claimed/1, let_go/1, kill/1, hold_all/0,
    wait_in_order/1
]).

-define(POOL, weir_pool_claim_lib).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

%% ---------------------------------------------------------------- crashes

%% Claimers are killed at random moments while they release workers, or give them back as failed. No slot is lost.
claimers_killed_while_they_end_claims_cost_no_slot(_Config) ->
    each([replace, {wait, 60000}, free], fun(Abandoned) ->
        start(3, #{abandoned => Abandoned}),
        [
            begin
                Claimers = [spawn(fun claim_for_ever/0) || _ <- [1, 2, 3, 4]],
                [erlang:yield() || _ <- lists:seq(1, rand:uniform(30))],
                [weir_kit:kill(Claimer) || Claimer <- Claimers]
            end
         || _ <- lists:seq(1, weir_kit:long(150, 1000))
        ],
        at_rest(),
        weir_kit:same(slots, 3, length(lists:usort(workers())))
    end).

claim_for_ever() ->
    case weir_pool:checkout(?POOL, 5) of
        {ok, _, Ticket} -> weir_pool:checkin(?POOL, Ticket, lists:nth(rand:uniform(2), [ok, fail]));
        {error, _} -> ok
    end,
    claim_for_ever().

%% Ways in which a pool dies in the middle of something. Its supervisor starts it again, with new workers, or this
%% process does.
deaths() ->
    [
        {manager_killed, fun() -> weir_kit:kill(manager()) end},
        {queue_killed, fun() -> weir_kit:kill(queue()) end},
        {queue_crashed, fun() -> crash(queue()) end},
        {manager_crashed, fun() -> crash(manager()) end},
        {stopped_and_started, fun stop_and_start/0}
    ].

stop_and_start() ->
    {ok, #{size := Size}} = weir_pool:info(?POOL),
    ok = weir_pool:stop(?POOL),
    start(Size).

crash(Process) ->
    ok = sys:terminate(Process, crashed, wait_ms()),
    weir_kit:await_down(Process).

%% Returns when the next pool is open. The old pool has left nothing then.
die(Die) ->
    Manager = manager(),
    Processes = [Manager, queue() | workers()],
    _ = Die(),
    until(fun() ->
        case weir_pool_terms:pool(?POOL) of
            #pool{manager = New} when New =/= Manager -> true;
            Other -> Other
        end
    end),
    [weir_kit:await_down(Process) || Process <- Processes],
    ok.

%% The waiters get a worker of the next pool, or `no_pool', and none hangs.
waiters_get_a_worker_of_the_next_pool_or_no_pool(_Config) ->
    each(deaths(), fun({How, Die}) ->
        start(2),
        Old = workers(),
        [Holder, Holder2] = hold_all(),
        let_go(Holder2),
        {ok, _, Ticket} = weir_pool:checkout(?POOL, 0),
        Waiters = wait_in_order(50),
        TimedOut = [claimer(#{timeout => 5}) || _ <- lists:seq(1, 10)],
        [?assertEqual({How, {error, timeout}}, {How, result(Claimer)}) || Claimer <- TimedOut],
        ok = die(Die),
        ?assertEqual({error, worker_down}, weir_pool:checkin(?POOL, Ticket)),
        {Got, Refused} = outcome(Waiters, [], 0),
        weir_kit:none(workers_of_the_old_pool, [{How, Worker} || Worker <- Got, lists:member(Worker, Old)]),
        ct:pal("~p: ~b of 50 got a worker, ~p", [How, length(Got), Refused]),
        let_go(Holder),
        at_rest(),
        ?assertEqual([0, 0], [counter(Counter) || Counter <- [abandoned, restarts]])
    end).

%% Lets each waiter go that has got a worker, until all are served or refused. Returns the workers and the number of
%% waiters that were refused.
outcome([], Got, Refused) ->
    {Got, Refused};
outcome(Waiters, Got, Refused) ->
    receive
        {claimed, Pid, Worker} ->
            [Waiter] = [W || {P, _} = W <- Waiters, P =:= Pid],
            let_go(Waiter),
            outcome(lists:delete(Waiter, Waiters), [Worker | Got], Refused);
        {'DOWN', Monitor, process, Pid, {returned, Result}} ->
            ?assertEqual({error, no_pool}, Result),
            outcome(lists:delete({Pid, Monitor}, Waiters), Got, Refused + 1)
    end.

%% The grant is in its mailbox when the pool dies, so its worker may be a dead one; it has nothing of the next pool.
a_grant_of_a_dead_pool_holds_nothing_of_the_next(_Config) ->
    each(deaths(), fun({_How, Die}) ->
        start(1),
        [Worker] = workers(),
        [Holder] = hold_all(),
        [{Pid, _} = Waiter] = wait_in_order(1),
        true = erlang:suspend_process(Pid),
        let_go(Holder),
        await_waiting(0),
        ok = die(Die),
        ?assertEqual([free], states()),
        true = erlang:resume_process(Pid),
        case claimed(Waiter) of
            Worker ->
                %% The waiter has a claim of the old pool.
                {ok, Other, Ticket} = weir_pool:checkout(?POOL, 0),
                ?assertNotEqual(Worker, Other),
                let_go(Waiter),
                weir_kit:same(lost_claim, [taken], states()),
                ok = weir_pool:checkin(?POOL, Ticket);
            Next ->
                %% The waiter has asked again.
                ?assertEqual([Next], workers()),
                ?assertEqual([taken], states()),
                let_go(Waiter)
        end,
        at_rest()
    end).

%% Claims of the old pool hold nothing of the next one, whatever their holders do.
claims_of_a_dead_pool_hold_nothing_of_the_next(_Config) ->
    each(deaths(), fun({How, Die}) ->
        start(3),
        Old = workers(),
        [Holder1, Holder2] = [claimer(0), claimer(0)],
        [claimed(Holder) || Holder <- [Holder1, Holder2]],
        {ok, _, Ticket} = weir_pool:checkout(?POOL, 0),
        Overdue = claimer(#{timeout => infinity, covers => work}),
        await_waiting(1),
        ok = die(Die),
        ?assert(lists:member(in_work(Overdue), [{error, no_pool}, {ok, done}])),
        [Held | _] = Tickets = [element(3, weir_pool:checkout(?POOL, 0)) || _ <- [1, 2, 3]],
        ?assertEqual({How, [taken, taken, taken]}, {How, states()}),
        weir_kit:none(workers_of_the_old_pool, [Worker || Worker <- workers(), lists:member(Worker, Old)]),
        let_go(Holder1),
        kill(Holder2),
        ?assertEqual({error, worker_down}, weir_pool:checkin(?POOL, Ticket, fail)),
        ?assertEqual({error, worker_down}, weir_pool:checkin(?POOL, Ticket)),
        manager() ! tick,
        _ = sys:get_state(manager(), wait_ms()),
        weir_kit:same(lost_claims, {How, [taken, taken, taken]}, {How, states()}),
        [?assertEqual(ok, weir_pool:checkin(?POOL, T)) || T <- Tickets],
        ?assertEqual({error, not_held}, weir_pool:checkin(?POOL, Held)),
        at_rest(),
        ?assertEqual(0, counter(abandoned))
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

a_grant_of_a_dead_worker_is_repeated(_Config) ->
    start(1),
    [Worker] = workers(),
    [Holder] = hold_all(),
    [{Pid, _} = Waiter, {SecondPid, _} = Second] = wait_in_order(2),
    [true = erlang:suspend_process(P) || P <- [Pid, SecondPid]],
    let_go(Holder),
    %% The queue takes a grant back that is not taken over for long. The other waiter has the worker then, and does not
    %% take it over either.
    until(fun() -> waiting() < 2 end),
    weir_kit:kill(Worker),
    until(fun() -> not lists:member(workers(), [[], [Worker]]) end),
    true = erlang:resume_process(SecondPid),
    %% The new one is the other's, since the first does not know yet that it has nothing.
    New = claimed(Second),
    weir_kit:none(dead_worker_given, [New || New =:= Worker]),
    true = erlang:resume_process(Pid),
    await_waiting(1),
    let_go(Second),
    ?assertEqual(New, claimed(Waiter)),
    let_go(Waiter),
    at_rest().

%% Releasers that are killed between two steps. The steps are made here one by one.
waiters_are_served_though_a_releaser_was_killed(_Config) ->
    start(1),
    [Worker] = workers(),
    %% Between freeing the slot and reading the mode.
    {ok, Worker, {ticket, Pool, Slot, Word, Worker}} = weir_pool:checkout(?POOL, #{}),
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

%% A suspended queue keeps its waiters beyond their time. When it goes on, it answers them, and no worker is lost.
a_queue_that_was_suspended_answers_all_waiters(_Config) ->
    start(1),
    [Holder] = hold_all(),
    Queue = queue(),
    ok = sys:suspend(Queue, wait_ms()),
    Late = [claimer(#{timeout => 1}) || _ <- lists:seq(1, 5)],
    %% A request, a cancellation, of each.
    until(fun() -> weir_kit:queue_len(Queue) >= 10 end),
    let_go(Holder),
    ok = sys:resume(Queue, wait_ms()),
    Got = [Claimer || {Pid, _} = Claimer <- Late, receive {claimed, Pid, _} -> true after 0 -> false end],
    [let_go(Claimer) || Claimer <- Got],
    [?assertEqual({error, timeout}, result(Claimer)) || Claimer <- Late -- Got],
    at_rest().

%% poolboy 137 and 58: the mailbox of the pool process is full of requests and cancellations, and has millions of
%% monitors. Here waiters that gave up or were killed leave nothing, not even their monitors. A claim that the full
%% queue refuses sends no message.
waiters_that_gave_up_leave_no_messages_and_no_monitors(_Config) ->
    start(1, #{max_queue => 50}),
    [Holder] = hold_all(),
    Waiters = wait_in_order(50),
    Queue = queue(),
    {monitors, Monitors} = process_info(Queue, monitors),
    ?assertEqual(lists:sort([{process, Pid} || {Pid, _} <- Waiters]), lists:sort(Monitors)),
    ?assertEqual({links, [manager()]}, process_info(Queue, links)),
    %% A status or a crash report with each waiter would be too long for a log.
    {status, _, _, Items} = sys:get_status(Queue, wait_ms()),
    weir_kit:none(waiters_in_status, [Pid || {Pid, _} <- Waiters, is_shown(Pid, Items)]),
    {reductions, Before} = process_info(Queue, reductions),
    Refused = [weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => infinity}) || _ <- lists:seq(1, 1000)],
    ?assertEqual(1000, length([refused || {error, {overload, _}} <- Refused])),
    {reductions, After} = process_info(Queue, reductions),
    ct:pal("~b reductions of the queue while 1000 were refused", [After - Before]),
    [kill(Waiter) || Waiter <- Waiters],
    await_waiting(0),
    GiveUp = fun() -> [weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => 1}) || _ <- lists:seq(1, 100)] end,
    _ = weir_kit:in_parallel(lists:duplicate(40, GiveUp)),
    until(fun() -> weir_kit:queue_len(Queue) =:= 0 end),
    await_waiting(0),
    weir_kit:same(leaked, [{monitored_by, []}, {monitors, []}], process_info(Queue, [monitored_by, monitors])),
    let_go(Holder),
    at_rest(),
    %% Waiters that were served leave nothing either.
    until(fun() -> process_info(Queue, monitors) =:= {monitors, []} end).

is_shown(Pid, Term) -> string:find(io_lib:format("~p", [Term]), pid_to_list(Pid)) =/= nomatch.
