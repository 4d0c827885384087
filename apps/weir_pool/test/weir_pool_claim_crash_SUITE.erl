%% Claims: no worker is lost or given twice, whichever process is killed, suspended or late, at any moment.
-module(weir_pool_claim_crash_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").
-include("weir_pool_test_signals.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, result/1]).
-import(weir_pool_claim_lib, [
    start/1, start/2, states/0, signals/1, waiting/0, counter/1, queue/0, manager/0, workers/0, await_waiting/1,
    at_rest/0, no_messages/0, claimer/1, waiter/0, claimed/1, let_go/1, kill/1, hold_all/0,
    wait_in_order/1
]).

-define(POOL, weir_pool_claim_lib).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_claim_lib:set_up(Config).

end_per_testcase(_Case, Config) -> weir_pool_claim_lib:tear_down(Config).

%% ---------------------------------------------------------------- crashes

%% gproc 109: the worker of a killed claimer stays busy without end.
killed_claimers(_Config) ->
    start(3),
    Workers = workers(),
    Holders = hold_all(),
    Waiters = wait_in_order(3),
    [kill(Holder) || Holder <- Holders],
    Given = [claimed(Waiter) || Waiter <- Waiters],
    %% The old workers may be busy still.
    weir_kit:none(busy_workers_given, [Worker || Worker <- Given, lists:member(Worker, Workers)]),
    [let_go(Waiter) || Waiter <- Waiters],
    ?assertEqual(3, counter(abandoned)),
    at_rest(),
    %% A process that has checked out a worker ends, and no claim waits.
    {ok, _, _} = result(weir_kit:start(fun() -> weir_pool:checkout(?POOL, #{}) end)),
    at_rest(),
    ?assertEqual(4, counter(abandoned)).

%% poolboy 56, pgapp 20: the worker of a call that timed out goes back while it is still busy.
busy_workers_are_not_given_out(_Config) ->
    start(1),
    [Worker] = workers(),
    TimeOut = fun(W) ->
        ok = sys:suspend(W),
        gen_server:call(W, ping, 1)
    end,
    ?assertExit({timeout, {gen_server, call, [Worker, ping, 1]}}, weir_pool:claim(?POOL, TimeOut)),
    {ok, Next} = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => infinity}),
    weir_kit:none(busy_worker_given, [Next || Next =:= Worker]),
    ?assertEqual(pong, gen_server:call(Next, ping)),
    at_rest(),
    %% With `abandoned => free' the pool gives out a worker that may be busy.
    ok = weir_pool:stop(?POOL),
    start(1, #{abandoned => free}),
    [Same] = workers(),
    ?assertExit({timeout, _}, weir_pool:claim(?POOL, TimeOut)),
    {ok, Same} = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => infinity}),
    ?assertEqual(1, counter(abandoned)),
    ok = sys:resume(Same),
    %% With a wait the pool gives the worker out when it has handled its messages.
    ok = weir_pool:stop(?POOL),
    start(1, #{abandoned => {wait, 60000}}),
    [Slow] = workers(),
    ?assertExit(
        {timeout, _},
        weir_pool:claim(?POOL, fun(W) ->
            true = erlang:suspend_process(W),
            gen_server:call(W, ping, 1)
        end)
    ),
    {error, timeout} = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => 20}),
    true = erlang:resume_process(Slow),
    {ok, Slow} = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => infinity}),
    weir_kit:none(messages, [Message || Message <- weir_kit:messages(), not is_late_reply(Message)]).

%% The late answer to a call that timed out.
is_late_reply({Ref, pong}) when is_reference(Ref) -> true;
is_late_reply({[alias | Ref], pong}) when is_reference(Ref) -> true;
is_late_reply(_) -> false.

%% The claimer is killed, or not scheduled for long, when it is about to report a time-out or a broken worker to the
%% manager. The pool does not give out a broken worker again.
a_lost_message_does_not_keep_a_worker(_Config) ->
    [
        begin
            start(1, #{abandoned => Abandoned}),
            [Worker] = workers(),
            {ok, Worker, {ticket, Pool, Slot, Word, Worker}} = weir_pool:checkout(?POOL, #{}),
            {ok, Claim} = weir_pool_word:disown(Pool, Slot, Word),
            %% This process is alive, and is not taken for the holder.
            {ok, Other} = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => infinity}),
            ?assertNotEqual(Worker, Other),
            ?assertEqual(1, counter(abandoned)),
            ok = weir_pool_signals:notify(Pool, {abandon, Slot, Claim, #{why => failed, claimer => self()}}),
            at_rest(),
            ?assertEqual([[Other], 1], [workers(), counter(abandoned)]),
            ok = weir_pool:stop(?POOL)
        end
     || Abandoned <- [replace, {wait, 60000}, free]
    ].

dead_waiters_leave(_Config) ->
    start(1),
    [Holder] = hold_all(),
    Waiters = wait_in_order(20),
    {Dead, [Alive]} = lists:split(19, Waiters),
    [kill(Waiter) || Waiter <- Dead],
    await_waiting(1),
    let_go(Holder),
    _ = claimed(Alive),
    let_go(Alive),
    at_rest(),
    ?assertEqual(0, counter(abandoned)).

%% The waiter is suspended, so that it is killed after the grant and before it has taken over.
a_killed_waiter_costs_no_worker(_Config) ->
    start(1),
    [Worker] = workers(),
    [Holder] = hold_all(),
    [{Pid, _} = First, Second] = wait_in_order(2),
    true = erlang:suspend_process(Pid),
    let_go(Holder),
    %% The grant is taken back when it is not taken over for long, and the other has the worker then.
    until(fun() -> waiting() < 2 end),
    ok = kill(First),
    ?assertEqual(Worker, claimed(Second)),
    let_go(Second),
    at_rest(),
    ?assertEqual([0, 0], [counter(Counter) || Counter <- [abandoned, restarts]]).

%% Ways in which a pool dies in the middle of something. Its supervisor starts it again, with new workers.
deaths() ->
    [
        {manager_killed, fun() -> weir_kit:kill(manager()) end},
        {queue_killed, fun() -> weir_kit:kill(queue()) end},
        {queue_crashed, fun() -> crash(queue(), {ask, no_key, no_base, no_waiter}) end},
        {manager_crashed, fun() -> crash(manager(), {released, no_slot}) end}
    ].

crash(Process, Cast) ->
    gen_server:cast(Process, Cast),
    weir_kit:await_down(Process).

%% Returns when the next pool is open. Nothing of the old one is left then.
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
pool_dies_while_many_wait(_Config) ->
    [
        begin
            start(2),
            Old = workers(),
            [Holder, Holder2] = hold_all(),
            let_go(Holder2),
            {ok, _, Ticket} = weir_pool:checkout(?POOL, 0),
            Waiters = wait_in_order(50),
            TimedOut = [claimer(#{timeout => 5}) || _ <- lists:seq(1, 10)],
            [?assertEqual({How, {error, timeout}}, {How, result(Claimer)}) || Claimer <- TimedOut],
            ok = die(Die),
            ?assertEqual({error, not_held}, weir_pool:checkin(?POOL, Ticket)),
            {Got, Refused} = outcome(Waiters, [], 0),
            weir_kit:none(workers_of_the_old_pool, [{How, Worker} || Worker <- Got, lists:member(Worker, Old)]),
            ct:pal("~p: ~b of 50 got a worker, ~p", [How, length(Got), Refused]),
            let_go(Holder),
            at_rest(),
            ?assertEqual([0, 0], [counter(Counter) || Counter <- [abandoned, restarts]]),
            ok = weir_pool:stop(?POOL)
        end
     || {How, Die} <- deaths()
    ].

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

%% Lets each waiter go that has got a worker, until all are served.
serve_any(Waiters) ->
    {Got, 0} = outcome(Waiters, [], 0),
    ?assertEqual(length(Waiters), length(Got)).

%% The grant is in its mailbox when the pool dies, so its worker may be a dead one; it has nothing of the next pool.
pool_dies_with_a_grant_under_way(_Config) ->
    [
        begin
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
            at_rest(),
            ok = weir_pool:stop(?POOL)
        end
     || {_How, Die} <- deaths()
    ].

%% Claims of the old pool hold nothing of the next one, whatever their holders do.
pool_dies_while_claimed(_Config) ->
    [
        begin
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
            ?assertEqual({error, not_held}, weir_pool:checkin(?POOL, Ticket, fail)),
            ?assertEqual({error, not_held}, weir_pool:checkin(?POOL, Ticket)),
            manager() ! tick,
            _ = sys:get_state(manager()),
            weir_kit:same(lost_claims, {How, [taken, taken, taken]}, {How, states()}),
            [?assertEqual(ok, weir_pool:checkin(?POOL, T)) || T <- Tickets],
            ?assertEqual({error, not_held}, weir_pool:checkin(?POOL, Held)),
            at_rest(),
            ?assertEqual(0, counter(abandoned)),
            ok = weir_pool:stop(?POOL)
        end
     || {How, Die} <- deaths()
    ].

%% Returns the result of a claim whose time-out covers the work. The process that does the work reports the claim.
in_work({Pid, Monitor} = Claimer) ->
    receive
        {claimed, Child, _Worker} ->
            Child ! let_go,
            result(Claimer);
        {'DOWN', Monitor, process, Pid, {returned, Result}} ->
            Result
    end.

%% A claimer whose call fails, or that returns a dead worker, makes the slot vacant, though the manager has not heard of
%% the death yet. Here the manager is suspended.
dead_workers_are_not_given_out_again(_Config) ->
    Ends = [
        fun(Worker) ->
            ?assertExit(_, weir_pool:claim(?POOL, fun(W) ->
                weir_kit:kill(Worker),
                gen_server:call(W, ping)
            end))
        end,
        fun(Worker) ->
            {ok, Worker, Ticket} = weir_pool:checkout(?POOL, 0),
            weir_kit:kill(Worker),
            ?assertEqual(ok, weir_pool:checkin(?POOL, Ticket)),
            ?assertEqual({error, not_held}, weir_pool:checkin(?POOL, Ticket))
        end,
        %% One claim at most gets a worker that died while it was free, and that claim lets its exception pass.
        fun(Worker) ->
            weir_kit:kill(Worker),
            ?assertExit({noproc, _}, weir_pool:claim(?POOL, fun(W) -> gen_server:call(W, ping) end))
        end,
        fun(Worker) ->
            ?assertThrow(oops, weir_pool:claim(?POOL, fun(W) ->
                exit(W, kill),
                throw(oops)
            end)),
            weir_kit:await_down(Worker)
        end
    ],
    [
        begin
            start(1, #{abandoned => Abandoned}),
            [Worker] = workers(),
            Manager = manager(),
            true = erlang:suspend_process(Manager),
            End(Worker),
            ?assertEqual([vacant], states()),
            ?assertEqual({error, no_worker}, weir_pool:claim(?POOL, fun(W) -> W end)),
            Waiter = waiter(),
            await_waiting(1),
            true = erlang:resume_process(Manager),
            Next = claimed(Waiter),
            weir_kit:none(dead_worker_given, [Next || Next =:= Worker]),
            let_go(Waiter),
            at_rest(),
            ?assertEqual([0, 1], [counter(Counter) || Counter <- [abandoned, restarts]]),
            ok = weir_pool:stop(?POOL)
        end
     || Abandoned <- [free, replace, {wait, 1000}], End <- Ends
    ].

worker_dies_with_a_grant_under_way(_Config) ->
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

%% Releasers that were killed between two steps.
lost_wake_ups(_Config) ->
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
    at_rest(),
    %% A wake-up for nothing.
    gen_server:cast(queue(), wake),
    ok = weir_pool_signals:wake(Pool),
    ok = weir_pool_signals:wake(Pool, Slot),
    at_rest().

%% Wherever a claimer is stopped that holds nothing, or has released, others are served.
suspended_releasers(_Config) ->
    start(2),
    Claimer = spawn(fun Loop() ->
        {ok, _} = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => infinity}),
        Loop()
    end),
    {ok, _, Ticket} = weir_pool:checkout(?POOL, #{timeout => infinity}),
    Waiter = waiter(),
    true = erlang:suspend_process(Claimer),
    %% The claimer may hold one of the two workers, or have a grant.
    ok = weir_pool:checkin(?POOL, Ticket),
    _ = claimed(Waiter),
    let_go(Waiter),
    {ok, _, Again} = weir_pool:checkout(?POOL, #{timeout => infinity}),
    ok = weir_pool:checkin(?POOL, Again),
    true = erlang:resume_process(Claimer),
    %% The claimer is suspended again and again, beside others that are not.
    Others = [spawn_monitor(fun() -> claims(150) end) || _ <- lists:seq(1, 4)],
    stop_and_go(Claimer, length(Others)),
    exit(Claimer, kill),
    at_rest().

claims(0) ->
    ok;
claims(N) ->
    {ok, _} = weir_pool:claim(?POOL, fun(_) -> erlang:yield() end, #{timeout => infinity}),
    claims(N - 1).

stop_and_go(_Claimer, 0) ->
    ok;
stop_and_go(Claimer, N) ->
    true = erlang:suspend_process(Claimer),
    receive
        {'DOWN', _, process, _, Reason} ->
            ?assertEqual(normal, Reason),
            true = erlang:resume_process(Claimer),
            stop_and_go(Claimer, N - 1)
    after 1 ->
        true = erlang:resume_process(Claimer),
        erlang:yield(),
        stop_and_go(Claimer, N)
    end.

%% A suspended queue keeps its waiters beyond their time. When it goes on, it answers them, and no worker is lost.
suspended_queue(_Config) ->
    start(1),
    [Holder] = hold_all(),
    Queue = queue(),
    ok = sys:suspend(Queue),
    Late = [claimer(#{timeout => 1}) || _ <- lists:seq(1, 5)],
    %% A request, a cancellation, of each.
    until(fun() -> weir_kit:queue_len(Queue) >= 10 end),
    let_go(Holder),
    ok = sys:resume(Queue),
    Got = [Claimer || {Pid, _} = Claimer <- Late, receive {claimed, Pid, _} -> true after 0 -> false end],
    [let_go(Claimer) || Claimer <- Got],
    [?assertEqual({error, timeout}, result(Claimer)) || Claimer <- Late -- Got],
    at_rest().

stopped_while_many_wait(_Config) ->
    start(1),
    [Holder] = hold_all(),
    Waiters = wait_in_order(30),
    ok = weir_pool:stop(?POOL),
    [?assertEqual({error, no_pool}, result(Waiter)) || Waiter <- Waiters],
    let_go(Holder),
    %% A drain answers waiters at once, and waits for holders.
    start(1),
    [Holder2] = hold_all(),
    Waiters2 = wait_in_order(5),
    Drainer = weir_kit:start(fun() -> weir_pool:drain(?POOL, infinity) end),
    [?assertEqual({error, no_pool}, result(Waiter)) || Waiter <- Waiters2],
    let_go(Holder2),
    ?assertEqual(ok, result(Drainer)).

%% poolboy 137 and 58: the mailbox of the pool process is full of requests and cancellations, and has millions of
%% monitors. Here waiters that gave up or were killed leave nothing, not even their monitors. A claim that the full
%% queue refuses sends no message.
no_backlog_no_monitors(_Config) ->
    start(1, #{max_queue => 50}),
    [Holder] = hold_all(),
    Waiters = wait_in_order(50),
    Queue = queue(),
    {monitors, Monitors} = process_info(Queue, monitors),
    ?assertEqual(lists:sort([{process, Pid} || {Pid, _} <- Waiters]), lists:sort(Monitors)),
    ?assertEqual({links, [manager()]}, process_info(Queue, links)),
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

strays_and_status(_Config) ->
    start(1),
    Queue = queue(),
    Queue ! stray,
    gen_server:cast(Queue, stray),
    {error, {bad_call, stray}} = gen_server:call(Queue, stray),
    %% A request for another pool, or for an old pool of this name.
    Alias = alias(),
    ok = weir_pool_queue:ask(Queue, {0, Alias}, 1, infinity),
    receive
        {Alias, gone} -> ok
    end,
    ok = weir_pool_queue:cancel(Queue, {0, Alias}),
    [Holder] = hold_all(),
    Waiters = wait_in_order(100),
    {status, Queue, _, Items} = sys:get_status(Queue),
    ?assert(length(lists:flatten(io_lib:format("~p", [Items]))) < 5000),
    ?assertEqual(Queue, queue()),
    let_go(Holder),
    serve_any(Waiters),
    ?assertEqual(Queue, queue()),
    no_messages().
