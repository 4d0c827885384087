%% Claims that wait: the order of service, refusals, and time-outs that cross the grant. Claims whose claimers or pools
%% die. Random changes of the pool meanwhile are in weir_pool_claims_prop_SUITE.
-module(weir_pool_wait_SUITE).

-include("weir_pool_suite.hrl").

waiters_are_served_first_in_first_out(_Config) -> ten_are_served(#{}, fun(Waiters) -> Waiters end).

waiters_are_served_last_in_first_out(_Config) -> ten_are_served(#{queue => lifo}, fun lists:reverse/1).

%% Repeats the trial if the machine did not let all waiters run in time.
ten_are_served(Opts, InOrder) ->
    start(1, Opts),
    [Holder] = hold_all(),
    Waiters = wait_in_order(10),
    IsInOrder = served_in_order([Holder | InOrder(Waiters)]),
    ?assertEqual(10, info(waits)),
    at_rest(),
    ok = weir_pool:stop(p),
    IsInOrder orelse ten_are_served(Opts, InOrder).

%% Lets the claimers go one after the other: each waiter gets the worker after the one before, and no other does.
%% Returns `false' if a waiter was not scheduled for so long that its grant went to another, which is one claim more.
served_in_order([First | Others]) ->
    {ok, #{claims := Before}} = weir_pool:info(p),
    let_go(First),
    Served = served(Others),
    {ok, #{claims := After}} = weir_pool:info(p),
    case After - Before > length(Others) of
        true ->
            false;
        false ->
            ?assertEqual([Pid || {Pid, _} <- Others], Served),
            true
    end.

served([]) ->
    [];
served(Waiters) ->
    receive
        {claimed, Pid, _Worker} ->
            {[Next], Others} = lists:partition(fun({P, _}) -> P =:= Pid end, Waiters),
            ?assert(lists:all(fun weir_pool_test_lib:has_not_claimed/1, Others)),
            let_go(Next),
            [Pid | served(Others)];
        {'DOWN', _, process, _, Reason} ->
            error({not_claimed, Reason})
    end.

a_full_queue_refuses_waiters(_Config) ->
    each([0, 3], fun(Max) ->
        start(1, #{max_queue => Max}),
        {ok, done} = weir_pool:claim(p, fun(_) -> done end, #{timeout => infinity}),
        [Holder] = hold_all(),
        Waiters = wait_in_order(Max),
        %% The reported wait is no longer than the call.
        Began = now_ms(),
        Refused = weir_pool:claim(p, fun(W) -> W end, #{timeout => infinity}),
        Took = now_ms() - Began + 1,
        ?assertMatch(
            {error, {overload, #{pool := p, reason := queue_full, waiting := Max, waited_ms := Ms}}} when
                Ms >= 0 andalso Ms =< Took,
            Refused
        ),
        %% A claim that does not wait is still `busy'.
        {error, busy} = weir_pool:claim(p, fun(W) -> W end),
        ?assertEqual(1, info(overloads)),
        Last = lists:nthtail(max(0, Max - 1), Waiters),
        [ok = kill(Waiter) || Waiter <- Last],
        Others = Waiters -- Last,
        await_waiting(length(Others)),
        _ = served_in_order([Holder | Others] ++ wait_in_order(length(Last))),
        at_rest()
    end).

now_ms() -> erlang:monotonic_time(millisecond).

%% Ten claimers ask before the queue has counted the first. Three of them wait.
max_queue_holds_if_many_ask_at_once(_Config) ->
    start(1, #{max_queue => 3}),
    [Holder] = hold_all(),
    Claimers = with_suspended_queue(fun() ->
        Ten = [waiter() || _ <- lists:seq(1, 10)],
        until(fun() -> weir_kit:queue_len(queue(p)) >= 10 end),
        Ten
    end),
    Refused = [receive {'DOWN', _, process, Pid, {returned, R}} -> {Pid, R} end || _ <- lists:seq(1, 7)],
    [?assertMatch({error, {overload, #{pool := p, reason := queue_full, waiting := 3}}}, R) || {_, R} <- Refused],
    ?assertEqual(3, info(waiting)),
    let_go(Holder),
    _ = served([Claimer || {Pid, _} = Claimer <- Claimers, not lists:keymember(Pid, 1, Refused)]),
    ?assertEqual(7, info(overloads)),
    at_rest().

newcomers_wait_behind_a_starving_waiter(_Config) ->
    start(1),
    [Holder] = hold_all(),
    Began = now_ms(),
    [Waiter] = wait_in_order(1),
    Waits = now_ms(),
    until(fun() -> signals(?SIGNAL_MODE) =:= ?STARVING end),
    Asked = signals(?SIGNAL_OLDEST),
    ?assert(Asked >= Began andalso Asked =< Waits),
    Late = with_suspended_queue(fun() ->
        let_go(Holder),
        ?assertEqual([free], states()),
        {error, busy} = weir_pool:claim(p, fun(_) -> done end),
        Newcomer = waiter(),
        until(fun() -> weir_kit:queue_len(queue(p)) >= 2 end),
        Newcomer
    end),
    _ = claimed(Waiter),
    ?assert(has_not_claimed(Late)),
    let_go(Waiter),
    _ = claimed(Late),
    let_go(Late),
    at_rest().

with_suspended_queue(Fun) ->
    Queue = queue(p),
    ok = sys:suspend(Queue, wait_ms()),
    Result = Fun(),
    ok = sys:resume(Queue, wait_ms()),
    Result.

%% The waiter is suspended. Meanwhile the worker is free, or, after some ticks of the queue, held by another.
a_grant_that_is_not_taken_over_is_not_forgotten(_Config) ->
    start(1),
    Workers = workers(p),
    TakenBack = fun() -> until(fun() -> states() =:= [free] end) end,
    [
        begin
            [Holder] = hold_all(),
            [{Pid, _} = Waiter] = wait_in_order(1),
            true = erlang:suspend_process(Pid),
            let_go(Holder),
            await_waiting(0),
            _ = Until(),
            ?assert(has_not_claimed(Waiter)),
            End(Waiter),
            at_rest()
        end
     || Until <- [
            fun() -> at_once end,
            fun() ->
                TakenBack(),
                ?assertEqual({ok, Workers}, weir_pool:claim(p, fun(Worker) -> [Worker] end))
            end
        ],
        End <- [
            fun({Pid, _} = Waiter) ->
                true = erlang:resume_process(Pid),
                ?assertEqual(Workers, [claimed(Waiter)]),
                let_go(Waiter)
            end,
            fun weir_kit:kill/1
        ]
    ],
    %% No claimer has left the worker busy, so the pool does not replace it.
    ?assertEqual(Workers, workers(p)),
    ?assertEqual(0, info(abandoned)).

%% All waiters wait for longer than the interval, so the queue drops some while others are served. As all have waited
%% for longer than the limit, only the last one is served after the first drop.
codel_drops_waiters(_Config) ->
    start(1, #{codel => #{target => 1, interval => 20}}),
    [Holder] = hold_all(),
    Waiters = wait_in_order(40),
    Dropped = serve_slowly(Holder, Waiters, []),
    ?assert(length(Dropped) > 0),
    [
        ?assertMatch({error, {overload, #{pool := p, reason := codel, waited_ms := Ms}}} when Ms >= 1, Result)
     || Result <- Dropped
    ],
    ?assertEqual(length(Dropped), info(overloads)),
    ?assertEqual(40 - length(Dropped), info(waits)),
    at_rest().

%% Serves the waiters one after the other: each keeps the worker for 3 ms, so that the next one waits for too long.
%% Returns the results of the waiters that were refused.
serve_slowly(Holder, [], Dropped) ->
    let_go(Holder),
    Dropped;
serve_slowly(Holder, Waiters, Dropped) ->
    receive after 3 -> ok end,
    let_go(Holder),
    next_served(Waiters, Dropped).

next_served([], Dropped) ->
    Dropped;
next_served([{Pid, Monitor} = Next | More], Dropped) ->
    receive
        {claimed, Pid, _} ->
            ?assert(Dropped =:= [] orelse More =:= []),
            serve_slowly(Next, More, Dropped);
        {'DOWN', Monitor, process, Pid, {returned, Result}} -> next_served(More, [Result | Dropped])
    end.

%% Otherwise the interval would go on as long as one waiter has waited for too long, and the next such waiter would be
%% refused at once.
codel_forgets_waiters_that_have_left(_Config) ->
    [
        codel_hears(Timeout, End)
     || {Timeout, End} <- [
            {infinity, fun(Others) -> [ok = kill(Other) || Other <- Others] end},
            {500, fun(Others) -> [{error, timeout} = result(Other) || Other <- Others] end},
            %% Suspended waiters do not cancel, but the queue knows when their time is over.
            {500, fun(Others) ->
                [true = erlang:suspend_process(Pid) || {Pid, _} <- Others],
                await_waiting(0),
                [true = erlang:resume_process(Pid) || {Pid, _} <- Others],
                [{error, timeout} = result(Other) || Other <- Others]
            end}
        ]
    ].

%% On a busy machine the time of the others may be over too early. Then the time has to be longer.
codel_hears(Timeout, End) ->
    start(1, #{codel => #{target => 1, interval => 50}}),
    [Holder] = hold_all(),
    [First] = wait_in_order(1),
    Others = [claiming(#{timeout => Timeout}) || _ <- [1, 2]],
    until(fun() -> info(waiting) =:= 3 orelse info(timeouts) > 0 end),
    await_oldest(5),
    let_go(Holder),
    _ = claimed(First),
    IsInTime = info(timeouts) =:= 0,
    IsInTime andalso others_are_forgotten(First, fun() -> End(Others) end),
    ok = weir_pool:stop(p),
    IsInTime orelse codel_hears(2 * Timeout, End).

%% As First had to wait for too long, and others are behind it, the interval has begun. The others end.
others_are_forgotten(First, End) ->
    Began = now_ms(),
    _ = End(),
    await_waiting(0),
    until(fun() -> now_ms() > Began + 100 end),
    [Next, Last] = wait_in_order(2),
    await_oldest(5),
    let_go(First),
    _ = claimed(Next),
    let_go(Next),
    _ = claimed(Last),
    let_go(Last),
    ?assertEqual(0, info(overloads)),
    at_rest().

await_oldest(Ms) ->
    until(fun() -> info(oldest_wait_ms) >= Ms end).

%% poolboy 64 and 70, worker_pool 37 and 42, poolex 210: a time-out that crosses the grant loses the worker. Times are
%% such that about every second one crosses.
no_worker_is_lost_where_time_outs_cross_grants(_Config) ->
    start(2),
    Hold = fun(_Worker) -> receive after 1 -> held end end,
    Claim = fun() ->
        Results = [weir_pool:claim(p, Hold, #{timeout => 1 + N rem 3}) || N <- lists:seq(1, 500)],
        no_messages(),
        Results
    end,
    Results = lists:append(weir_kit:in_parallel(lists:duplicate(8, Claim))),
    Late = length([late || {error, timeout} <- Results]),
    ct:pal("~b of 4000 claims came too late", [Late]),
    ?assertEqual([{error, timeout}, {ok, held}], lists:usort(Results)),
    at_rest(),
    ?assertEqual({Late, 0}, {info(timeouts), info(abandoned)}).

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
    ok = sys:terminate(Process, crashed, wait_ms()),
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
        _ = sys:get_state(manager(p), wait_ms()),
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
    %% Between giving the worker back as failed and notifying the manager.
    {ok, Worker, {ticket, Pool, Slot, Failed, Worker}} = weir_pool:checkout(p, weir_kit:wait_ms()),
    {ok, _} = weir_pool_word:disown(Pool, Slot, Failed),
    await_down(Worker),
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
    {status, _, _, Items} = sys:get_status(Queue, wait_ms()),
    none(waiters_in_status, [Pid || {Pid, _} <- Waiters, is_shown(Pid, Items)]),
    Refused = [weir_pool:claim(p, fun(W) -> W end, #{timeout => infinity}) || _ <- lists:seq(1, 1000)],
    ?assertEqual(1000, length([refused || {error, {overload, _}} <- Refused])),
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
