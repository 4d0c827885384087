%% Claims: nothing is lost and nothing given twice, whoever is killed, suspended or late, and when.
-module(weir_pool_claim_crash_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    killed_claimers/1,
    busy_workers_are_not_given_out/1,
    a_lost_message_does_not_keep_a_worker/1,
    dead_waiters_leave/1,
    a_killed_waiter_costs_no_worker/1,
    queue_killed_while_many_wait/1,
    queue_killed_with_a_grant_under_way/1,
    keeper_crashed_while_claimed/1,
    keeper_killed_at_a_death/1,
    keeper_killed_with_a_worker_to_renew/1,
    keeper_killed_while_many_wait/1,
    worker_dies_with_a_grant_under_way/1,
    lost_wake_ups/1,
    suspended_releasers/1,
    suspended_queue/1,
    stopped_while_many_wait/1,
    no_backlog_no_monitors/1,
    strays_and_status/1
]).

-import(weir_pool_claim_lib, [
    start/1, start/2, pool/0, states/0, gate/1, waiting/0, counter/1, queue/0, manager/0, workers/0, eventually/1,
    await_waiting/1, at_rest/0, no_messages/0, claimer/1, waiter/0, claimed/1, has_not_claimed/1, let_go/1, result/1, kill/1,
    hold_all/0, wait_in_order/1
]).

-define(POOL, weir_pool_claim_lib).

%% Position in the keeper's state.
-define(KEEPER_BUDGET, 5).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        killed_claimers,
        busy_workers_are_not_given_out,
        a_lost_message_does_not_keep_a_worker,
        dead_waiters_leave,
        a_killed_waiter_costs_no_worker,
        queue_killed_while_many_wait,
        queue_killed_with_a_grant_under_way,
        keeper_crashed_while_claimed,
        keeper_killed_at_a_death,
        keeper_killed_with_a_worker_to_renew,
        keeper_killed_while_many_wait,
        worker_dies_with_a_grant_under_way,
        lost_wake_ups,
        suspended_releasers,
        suspended_queue,
        stopped_while_many_wait,
        no_backlog_no_monitors,
        strays_and_status
    ].

init_per_suite(Config) -> weir_pool_test_lib:quiet(Config).

end_per_suite(Config) -> weir_pool_test_lib:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_claim_lib:set_up(Config).

end_per_testcase(_Case, _Config) -> weir_pool_claim_lib:tear_down().

%% ---------------------------------------------------------------- crashes

%% gproc 109: a killed claimer leaves its worker busy for ever.
killed_claimers(_Config) ->
    start(3),
    Workers = workers(),
    Holders = hold_all(),
    Waiters = wait_in_order(3),
    [kill(Holder) || Holder <- Holders],
    Given = [claimed(Waiter) || Waiter <- Waiters],
    %% Others: those may be busy still.
    ?assertEqual([], [Worker || Worker <- Given, lists:member(Worker, Workers)]),
    [let_go(Waiter) || Waiter <- Waiters],
    ?assertEqual(3, counter(abandoned)),
    at_rest(),
    %% By a checkout, with nobody waiting.
    {Pid, Monitor} = spawn_monitor(fun() -> {ok, _, _} = weir_pool:checkout(?POOL, #{}) end),
    receive
        {'DOWN', Monitor, process, Pid, normal} -> ok
    end,
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
    {ok, Next} = weir_pool:claim(?POOL, fun(W) -> {W, gen_server:call(W, ping)} end, #{timeout => infinity}),
    ?assertMatch({_, pong}, Next),
    ?assertNotEqual(Worker, element(1, Next)),
    at_rest(),
    %% To whom it does not matter.
    ok = weir_pool:stop(?POOL),
    start(1, #{abandoned => free}),
    [Same] = workers(),
    ?assertExit({timeout, _}, weir_pool:claim(?POOL, fun(_) -> exit({timeout, wanted}) end)),
    {ok, Same} = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => infinity}),
    %% Given out again when it has handled what it was sent.
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
    %% What the late answers to the calls sent is not ours; nothing else came.
    eventually(fun() -> {messages, M} = process_info(self(), messages), [X || X <- M, not is_late_reply(X)] =:= [] end).

is_late_reply({Ref, pong}) when is_reference(Ref) -> true;
is_late_reply({[alias | Ref], pong}) when is_reference(Ref) -> true;
is_late_reply(_) -> false.

%% The claimer was killed, or there was no keeper, when it should have been told of a time-out.
a_lost_message_does_not_keep_a_worker(_Config) ->
    start(1),
    [Worker] = workers(),
    {ok, Worker, {ticket, Pool, Slot, Word}} = weir_pool:checkout(?POOL, #{}),
    {ok, _} = weir_pool_word:disown(Pool, Slot, Word),
    %% This process is alive, and is not taken for the holder.
    {ok, Other} = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => infinity}),
    ?assertNotEqual(Worker, Other),
    ?assertEqual(1, counter(abandoned)).

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

%% It is suspended, so that it is killed after the grant and before it has taken over.
a_killed_waiter_costs_no_worker(_Config) ->
    start(1),
    [Worker] = workers(),
    [Holder] = hold_all(),
    [#{pid := Pid} = First, Second] = wait_in_order(2),
    true = erlang:suspend_process(Pid),
    let_go(Holder),
    eventually(fun() -> waiting() =:= 1 andalso states() =:= [taken] end),
    ok = kill(First),
    ?assertEqual(Worker, claimed(Second)),
    let_go(Second),
    at_rest(),
    ?assertEqual([0, 0], [counter(Counter) || Counter <- [abandoned, restarts]]).

queue_killed_while_many_wait(_Config) ->
    start(2),
    [Holder, Holder2] = hold_all(),
    let_go(Holder2),
    {ok, _, Ticket} = weir_pool:checkout(?POOL, #{}),
    Waiters = wait_in_order(50),
    TimedOut = [claimer(#{timeout => 5}) || _ <- lists:seq(1, 10)],
    lists:foreach(
        fun(_) ->
            weir_pool_test_lib:kill(queue()),
            [?assert(has_not_claimed(Waiter)) || Waiter <- Waiters],
            await_all_wait(50)
        end,
        lists:seq(1, 3)
    ),
    [?assertEqual({error, timeout}, result(Claimer)) || Claimer <- TimedOut],
    ok = weir_pool:checkin(?POOL, Ticket),
    weir_pool_test_lib:kill(queue()),
    let_go(Holder),
    serve_any(Waiters),
    at_rest().

%% Those who had a time-out may be among them.
await_all_wait(N) -> eventually(fun() -> queue() =/= undefined andalso waiting() >= N end).

%% Whoever has got it lets go, until all have. Who asks again keeps its place, so it is the first ones, two at a time.
serve_any([]) ->
    ok;
serve_any(Waiters) ->
    receive
        {claimed, Pid, _} ->
            [Waiter] = [W || #{pid := P} = W <- Waiters, P =:= Pid],
            let_go(Waiter),
            serve_any(lists:delete(Waiter, Waiters))
    end.

queue_killed_with_a_grant_under_way(_Config) ->
    start(1),
    [Holder] = hold_all(),
    [#{pid := Pid} = Waiter] = wait_in_order(1),
    Queue = queue(),
    true = erlang:suspend_process(Pid),
    let_go(Holder),
    eventually(fun() -> waiting() =:= 0 andalso states() =:= [taken] end),
    weir_pool_test_lib:kill(Queue),
    %% The grant is in its mailbox. It is valid unless the keeper has looked at the claims of the dead before.
    true = erlang:resume_process(Pid),
    _ = claimed(Waiter),
    let_go(Waiter),
    at_rest(),
    %% The same, and it has.
    [Holder2] = hold_all(),
    [#{pid := Pid2} = Waiter2] = wait_in_order(1),
    Queue2 = queue(),
    true = erlang:suspend_process(Pid2),
    let_go(Holder2),
    eventually(fun() -> waiting() =:= 0 andalso states() =:= [taken] end),
    Abandoned = counter(abandoned),
    weir_pool_test_lib:kill(Queue2),
    eventually(fun() ->
        manager() ! sweep,
        counter(abandoned) > Abandoned
    end),
    true = erlang:resume_process(Pid2),
    _ = claimed(Waiter2),
    let_go(Waiter2),
    at_rest().

%% A keeper that crashes, rather than being killed, gets to its terminate function. Claims outlive that too.
keeper_crashed_while_claimed(_Config) ->
    start(2),
    {ok, Pid, Ticket} = weir_pool:checkout(?POOL, #{}),
    {ok, Other, _OtherTicket} = weir_pool:checkout(?POOL, #{}),
    Keeper = weir_pool_registry:manager(?POOL),
    _ = sys:replace_state(Keeper, fun(State) -> setelement(?KEEPER_BUDGET, State, no_budget) end),
    weir_pool_test_lib:kill(Other),
    weir_pool_test_lib:await_down(Keeper),
    eventually(fun() -> not lists:member(weir_pool_registry:manager(?POOL), [undefined, Keeper]) end),
    %% Only the successor of the one that was killed is to be had.
    {ok, Successor, _} = weir_pool:checkout(?POOL, #{timeout => 5000}),
    ?assertNot(lists:member(Successor, [Pid, Other])),
    ?assertEqual({error, busy}, weir_pool:claim(?POOL, fun(_) -> ok end)),
    ?assertEqual(ok, weir_pool:checkin(?POOL, Ticket)),
    ?assertEqual({ok, Pid}, weir_pool:claim(?POOL, fun(Worker) -> Worker end)).

%% The keeper has heard of a worker's death and has vacated the word, or the term too, and is killed; the slot's supervisor
%% has not heard yet, so the seats table still names the dead one. Its holder's claim is over, and must not be somebody
%% else's: the two would have the same pid.
keeper_killed_at_a_death(_Config) ->
    [
        begin
            start(1, #{abandoned => Abandoned}),
            {ok, Worker, Ticket} = weir_pool:checkout(?POOL, #{}),
            Sup = slot_sup(Worker),
            true = erlang:suspend_process(Sup),
            Keeper = manager(),
            ok = vacated(Stage, Keeper, Worker),
            {Spinner, Monitor} = spawn_monitor(fun() -> exit(claimed_until_told()) end),
            weir_pool_test_lib:kill(Keeper),
            eventually(fun() -> not lists:member(manager(), [undefined, Keeper]) end),
            %% It has taken over what there is.
            _ = sys:get_state(manager()),
            Spinner ! stop,
            receive
                {'DOWN', Monitor, process, Spinner, Claimed} -> ?assertEqual({Stage, []}, {Stage, Claimed})
            end,
            ?assertEqual({error, no_worker}, weir_pool:pick(?POOL)),
            true = erlang:resume_process(Sup),
            {ok, Successor} = weir_pool:claim(?POOL, fun(Pid) -> Pid end, #{timeout => infinity}),
            ?assertNotEqual(Worker, Successor),
            ?assertEqual({error, not_held}, weir_pool:checkin(?POOL, Ticket)),
            at_rest(),
            ok = weir_pool:stop(?POOL)
        end
     || Abandoned <- [free, replace], Stage <- [word, term], _ <- [1, 2, 3]
    ].

vacated(term, _Keeper, Worker) ->
    weir_pool_test_lib:kill(Worker),
    eventually(fun() -> weir_pool_terms:worker(pool(), 1) =:= undefined end);
vacated(word, Keeper, Worker) ->
    true = erlang:suspend_process(Keeper),
    weir_pool_test_lib:kill(Worker),
    taken = weir_pool_word:vacate(pool(), 1),
    ok.

%% The workers that claims gave, one after the other without a pause.
claimed_until_told() ->
    Given = weir_pool:claim(?POOL, fun(Pid) -> Pid end),
    receive
        stop -> []
    after 0 ->
        case Given of
            {ok, Worker} -> [Worker | claimed_until_told()];
            {error, no_worker} -> claimed_until_told()
        end
    end.

slot_sup(Worker) ->
    {dictionary, Dictionary} = process_info(Worker, dictionary),
    hd(proplists:get_value('$ancestors', Dictionary)).

%% A keeper that is getting rid of a worker whose claimer died is killed after some of its steps. The worker is on its way
%% out from the first one on, so it cannot be found alive by the next keeper and be put back into use.
keeper_killed_with_a_worker_to_renew(_Config) ->
    [
        begin
            start(1, #{abandoned => replace}),
            [Worker] = workers(),
            Claimer = claimer(#{}),
            Worker = claimed(Claimer),
            Keeper = manager(),
            true = erlang:suspend_process(Keeper),
            kill(Claimer),
            [Step() || Step <- lists:sublist(steps_of_renewal(Worker), Steps)],
            weir_pool_test_lib:kill(Keeper),
            {ok, Next} = weir_pool:claim(?POOL, fun(Pid) -> Pid end, #{timeout => infinity}),
            ?assertNotEqual(Worker, Next),
            weir_pool_test_lib:await_down(Worker),
            at_rest(),
            ok = weir_pool:stop(?POOL)
        end
     || Steps <- [2, 3, 4, 5]
    ].

steps_of_renewal(Worker) ->
    Sup = slot_sup(Worker),
    Pool = pool(),
    [
        fun() -> ok = weir_pool_word:abandon(Pool, 1, weir_pool_word:read(Pool, 1)) end,
        fun() -> weir_pool_test_lib:kill(Sup) end,
        fun() -> weir_pool_test_lib:kill(Worker) end,
        fun() -> weir_pool_word:vacate(Pool, 1) end,
        fun() -> weir_pool_terms:vacate(Pool, 1) end
    ].

keeper_killed_while_many_wait(_Config) ->
    start(2),
    Holders = hold_all(),
    Waiters = wait_in_order(20),
    weir_pool_test_lib:kill(manager()),
    eventually(fun() -> is_pid(queue()) andalso is_process_alive(queue()) andalso waiting() =:= 20 end),
    ?assertEqual([taken, taken], states()),
    [let_go(Holder) || Holder <- Holders],
    serve_any(Waiters),
    at_rest(),
    ?assertEqual(0, counter(abandoned)).

worker_dies_with_a_grant_under_way(_Config) ->
    start(1),
    [Worker] = workers(),
    [Holder] = hold_all(),
    [#{pid := Pid} = Waiter, Second] = wait_in_order(2),
    true = erlang:suspend_process(Pid),
    let_go(Holder),
    eventually(fun() -> waiting() =:= 1 andalso states() =:= [taken] end),
    weir_pool_test_lib:kill(Worker),
    %% The new one is the other's, since the first does not know yet that it has nothing.
    New = claimed(Second),
    ?assertNotEqual(Worker, New),
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
    {ok, Worker, {ticket, Pool, Slot, Word}} = weir_pool:checkout(?POOL, #{}),
    [First] = wait_in_order(1),
    free = weir_pool_word:release(Pool, Slot, Word),
    Worker = claimed(First),
    %% Between setting WAKE and sending the message.
    [Second] = wait_in_order(1),
    ok = atomics:put(Pool#pool.gate, ?GATE_WAKE, -1),
    let_go(First),
    Worker = claimed(Second),
    %% Later wake-ups are sent again.
    eventually(fun() -> gate(?GATE_WAKE) =:= 0 end),
    let_go(Second),
    at_rest(),
    %% A wake-up for nothing.
    gen_server:cast(queue(), wake),
    ok = weir_pool_queue:wake(Pool),
    ok = weir_pool_queue:wake(Pool, Slot),
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
    %% It may hold one of the two, or have been granted one.
    ok = weir_pool:checkin(?POOL, Ticket),
    _ = claimed(Waiter),
    let_go(Waiter),
    {ok, _, Again} = weir_pool:checkout(?POOL, #{timeout => infinity}),
    ok = weir_pool:checkin(?POOL, Again),
    true = erlang:resume_process(Claimer),
    %% And again and again, with others that are never stopped.
    Others = [spawn_monitor(fun() -> claims(300) end) || _ <- lists:seq(1, 4)],
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

%% It keeps those who wait, also beyond their time; when it goes on, they are told, and nothing is lost.
suspended_queue(_Config) ->
    start(1),
    [Holder] = hold_all(),
    Queue = queue(),
    ok = sys:suspend(Queue),
    Late = [claimer(#{timeout => 1}) || _ <- lists:seq(1, 5)],
    %% A request, a cancellation, of each.
    eventually(fun() -> {message_queue_len, N} = process_info(Queue, message_queue_len), N >= 10 end),
    let_go(Holder),
    ok = sys:resume(Queue),
    Got = [Claimer || #{pid := Pid} = Claimer <- Late, receive {claimed, Pid, _} -> true after 0 -> false end],
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
    %% Drained: those who wait are told at once, those who hold are waited for.
    start(1),
    [Holder2] = hold_all(),
    Waiters2 = wait_in_order(5),
    {Drainer, Monitor} = spawn_monitor(fun() -> exit({result, weir_pool:drain(?POOL, infinity)}) end),
    [?assertEqual({error, no_pool}, result(Waiter)) || Waiter <- Waiters2],
    let_go(Holder2),
    ?assertEqual(ok, result(#{pid => Drainer, monitor => Monitor})),
    %% Killed: nobody tells them.
    start(1),
    [Holder3] = hold_all(),
    Waiters3 = wait_in_order(5),
    exit(weir_pool_test_lib:sup(?POOL), kill),
    [?assertEqual({error, no_pool}, result(Waiter)) || Waiter <- Waiters3],
    let_go(Holder3).

%% poolboy 137 and 58: the mailbox of the pool process full of requests and cancellations, and millions of monitors.
%% Here nothing is left of those who gave up, nor is anybody monitored who waits; and whoever is too many sends no
%% message.
no_backlog_no_monitors(_Config) ->
    start(1, #{max_queue => 50}),
    [Holder] = hold_all(),
    Waiters = wait_in_order(50),
    Queue = queue(),
    ?assertEqual({monitors, []}, process_info(Queue, monitors)),
    ?assertMatch({links, [_Sup]}, process_info(Queue, links)),
    {reductions, Before} = process_info(Queue, reductions),
    Refused = [weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => infinity}) || _ <- lists:seq(1, 1000)],
    ?assertEqual(1000, length([refused || {error, {overload, _}} <- Refused])),
    {reductions, After} = process_info(Queue, reductions),
    ct:pal("~b reductions of the queue while 1000 were refused", [After - Before]),
    [kill(Waiter) || Waiter <- Waiters],
    await_waiting(0),
    GiveUp = fun() -> [weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => 1}) || _ <- lists:seq(1, 100)] end,
    GaveUp = [spawn_monitor(GiveUp) || _ <- lists:seq(1, 40)],
    [receive {'DOWN', Monitor, _, _, normal} -> ok end || {_, Monitor} <- GaveUp],
    eventually(fun() -> process_info(Queue, message_queue_len) =:= {message_queue_len, 0} end),
    await_waiting(0),
    ?assertEqual({monitored_by, []}, process_info(Queue, monitored_by)),
    let_go(Holder),
    at_rest().

strays_and_status(_Config) ->
    start(1),
    Queue = queue(),
    Queue ! stray,
    gen_server:cast(Queue, stray),
    {error, {bad_call, stray}} = gen_server:call(Queue, stray),
    %% Of another pool, or of a former one of this name.
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
    %% Of a pool that has lost its name.
    {ok, #row{conf = Conf}} = weir_pool_registry:lookup(?POOL),
    Boot = #boot{name = ?POOL, id = 1, conf = Conf, starter = Alias},
    %% In a process of its own: some releases leave it the exit message of the one that did not start.
    {Starter, Monitor} = spawn_monitor(fun() ->
        process_flag(trap_exit, true),
        exit({result, weir_pool_queue:start_link(Boot)})
    end),
    ?assertEqual({error, {shutdown, gone}}, result(#{pid => Starter, monitor => Monitor})),
    ?assertEqual(Queue, queue()),
    no_messages().
