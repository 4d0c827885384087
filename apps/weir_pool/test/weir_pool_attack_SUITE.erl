%% Attacks of strangers that the first edition of weir_pool did not stand.
%%
%% The suite uses the interface only. Bounds on time are promises of the guide, or a multiple of them where the machine
%% may be busy. A busy machine may miss such a bound once, so the trial is repeated until it succeeds. The first edition
%% missed the bounds by seconds, each time.
-module(weir_pool_attack_SUITE).

-include("weir_pool_suite.hrl").

ping(Worker) -> gen_server:call(Worker, ping, wait_ms()).

%% Starts a process that claims a worker, and holds it until it is sent `let_go'.
holder() -> holder(fun() -> ok end).

holder(Before) -> holder(Before, #{}).

holder(Before, Opts) ->
    Test = self(),
    Pid = spawn(fun() ->
        Before(),
        weir_pool:claim(p, fun(Worker) -> hold(Test, Worker) end, Opts)
    end),
    receive
        {held, Pid, Worker} -> {Pid, Worker}
    end.

a_worker_killed_in_a_claim_is_not_claimed_again(_Config) ->
    start(8),
    Crash = fun(Worker) ->
        exit(Worker, kill),
        ping(Worker)
    end,
    [
        begin
            ?assertExit({_, {gen_server, call, _}}, weir_pool:claim(p, Crash, #{timeout => infinity})),
            a_live_worker_is_claimed(),
            {ok, Worker, Ticket} = weir_pool:checkout(p, #{timeout => infinity}),
            kill(Worker),
            _ = weir_pool:checkin(p, Ticket),
            a_live_worker_is_claimed()
        end
     || _ <- lists:seq(1, 200)
    ].

a_live_worker_is_claimed() ->
    try
        {ok, pong} = weir_pool:claim(p, fun ping/1, #{timeout => infinity})
    catch
        exit:{noproc, _} -> weir_kit:fault(dead_worker_claimed)
    end.

%% Callers try again at once, on idle cores and on busy ones. The claim in which a worker dies fails, and no other claim
%% does. The queue hands workers over where more callers wait than there are workers.
every_death_fails_one_claim_at_most(_Config) ->
    start(8),
    deaths_fail_one_claim_each(4, 10000, 200, fun() -> ok end),
    beside_spinners(fun() -> deaths_fail_one_claim_each(4, 600, 20, fun() -> ok end) end),
    Work = fun() -> receive after 1 -> ok end end,
    deaths_fail_one_claim_each(32, 60, 20, Work),
    beside_spinners(fun() -> deaths_fail_one_claim_each(32, 30, 10, Work) end),
    ?assert(info(waits) > 0).

%% Each caller makes N requests, of which one in CrashesOneIn crashes its worker. No request meets a dead worker.
deaths_fail_one_claim_each(Callers, N, CrashesOneIn, Work) ->
    Request = fun() -> request(N, CrashesOneIn, Work, 0, 0) end,
    {Deaths, Failures} = lists:unzip(weir_kit:in_parallel(lists:duplicate(Callers, Request))),
    same(dead_workers_claimed, 0, lists:sum(Failures)),
    ?assertEqual(Callers * N div CrashesOneIn, lists:sum(Deaths)).

request(0, _CrashesOneIn, _Work, Deaths, Failures) ->
    {Deaths, Failures};
request(N, CrashesOneIn, Work, Deaths, Failures) ->
    Request =
        case N rem CrashesOneIn of
            0 -> {run, fun() -> exit(crash) end};
            _ -> ping
        end,
    Use = fun(Worker) ->
        ok = Work(),
        gen_server:call(Worker, Request, infinity)
    end,
    try weir_pool:claim(p, Use, #{timeout => infinity}) of
        {ok, pong} -> request(N - 1, CrashesOneIn, Work, Deaths, Failures)
    catch
        exit:{noproc, _} -> request(N - 1, CrashesOneIn, Work, Deaths, Failures + 1);
        exit:{crash, _} -> request(N - 1, CrashesOneIn, Work, Deaths + 1, Failures)
    end.

%% Calls the function while each scheduler has another process to run, too.
beside_spinners(Fun) ->
    Spinners = [spawn_opt(fun spin/0, [{scheduler, N}]) || N <- lists:seq(1, erlang:system_info(schedulers_online))],
    try
        Fun()
    after
        lists:foreach(fun weir_kit:kill/1, Spinners)
    end.

spin() -> spin().

a_process_that_takes_long_to_die_keeps_nobody_waiting(_Config) ->
    [in_the_end(2, #{}, Served) || Served <- [fun beside_a_dying_claimer/0, fun beside_a_dying_waiter/0]].

%% Starts a pool and calls a function, until the function returns `true'.
in_the_end(Size, Opts, Succeeds) ->
    until(fun() ->
        start(Size, Opts),
        Succeeded = Succeeds(),
        ok = weir_pool:stop(p),
        Succeeded
    end).

beside_a_dying_claimer() ->
    {Slow, Busy} = holder(fun own_much/0),
    {Other, Killed} = holder(),
    Dying = dying(Slow),
    %% Meanwhile a claim times out, the pool grows, a claim is served, and a worker that dies is replaced.
    Outcome = weir_pool:claim(p, fun ping/1, #{timeout => 50}),
    ok = weir_pool:resize(p, 3),
    {ok, pong} = weir_pool:claim(p, fun ping/1, #{timeout => weir_kit:wait_ms()}),
    InTime = is_dying(Dying) andalso Outcome =:= {error, timeout},
    kill(Killed),
    until(fun() -> not lists:member({ok, Killed}, [weir_pool:pick(p) || _ <- lists:seq(1, 20)]) end),
    Other ! let_go,
    %% When the claimer is dead at last, the pool replaces its worker.
    await_down(Busy),
    until(fun() -> info(claimed) =:= 0 andalso info(live) =:= 3 end),
    InTime.

%% The queue grants the worker to a waiter that is dying, and does not wait until it is dead.
beside_a_dying_waiter() ->
    {First, Worker} = holder(),
    {Second, _} = holder(),
    Slow = waiter(fun own_much/0),
    Waiter = waiter(fun() -> ok end),
    Dying = dying(Slow),
    First ! let_go,
    receive
        {held, Waiter, Got} -> ?assertEqual(Worker, Got)
    end,
    InTime = is_dying(Dying),
    lists:foreach(fun(Pid) -> Pid ! let_go end, [Second, Waiter]),
    until(fun() -> info(claimed) =:= 0 end),
    ?assertEqual(0, info(abandoned)),
    InTime.

%% The waiter is alive and suspended, while others have all schedulers. Others get the worker that it is granted.
a_waiter_that_gets_no_turn_keeps_nobody_waiting(_Config) ->
    start(1),
    process_flag(priority, high),
    {Holder, _} = holder(),
    Deaf = waiter(fun() -> process_flag(priority, low) end),
    beside_spinners(fun() ->
        true = erlang:suspend_process(Deaf),
        ?assertEqual({error, timeout}, weir_pool:claim(p, fun ping/1, #{timeout => 50})),
        Holder ! let_go,
        ?assertEqual({ok, pong}, weir_pool:claim(p, fun ping/1, #{timeout => weir_kit:wait_ms()})),
        ?assertEqual(ok, weir_pool:resize(p, 2)),
        %% A call that waited for the suspended process would wait still.
        true = erlang:resume_process(Deaf)
    end),
    %% The waiter has lost nothing but its place.
    receive
        {held, Deaf, _} -> Deaf ! let_go
    end,
    process_flag(priority, normal),
    until(fun() -> info(claimed) =:= 0 end),
    ?assertEqual(0, info(abandoned)).

%% Creates a table that its owner takes half a second to delete when it ends.
own_much() ->
    Table = ets:new(large, [public]),
    [ets:insert(Table, {N, N, N}) || N <- lists:seq(1, weir_kit:long(700000, 1500000))].

%% Kills a process without waiting for its end. Returns a monitor of the process.
dying(Pid) ->
    Monitor = monitor(process, Pid),
    true = exit(Pid, kill),
    Monitor.

is_dying(Monitor) ->
    receive
        {'DOWN', Monitor, process, _, _} -> false
    after 0 -> demonitor(Monitor)
    end.

%% Starts a process that waits for a worker, and then does as a holder does.
waiter(Before) ->
    Test = self(),
    Waiting = info(waiting),
    Pid = spawn(fun() ->
        Before(),
        weir_pool:claim(p, fun(Worker) -> hold(Test, Worker) end, #{timeout => infinity})
    end),
    until(fun() -> info(waiting) =:= Waiting + 1 end),
    Pid.

hold(Test, Worker) ->
    Test ! {held, self(), Worker},
    receive
        let_go -> ok
    end.

%% Finds dead claimers in a new pool, and in a pool that was started again.
the_first_dead_claimer_of_a_pool_is_found_at_once(_Config) ->
    [
        in_the_end(1, #{abandoned => free}, fun() ->
            _ = IsRestarted andalso kill_manager(p),
            is_dead_claimer_found_at_once()
        end)
     || IsRestarted <- [false, true], _ <- lists:seq(1, 5)
    ].

%% The first edition took 900 ms.
is_dead_claimer_found_at_once() ->
    {Holder, Worker} = holder(),
    kill(Holder),
    {Time, {ok, Worker}} = timer:tc(fun() ->
        weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => weir_kit:wait_ms()})
    end),
    Time < 500000.

%% Ten times the slots take some ten times as long, and not a hundred times.
a_large_pool_starts_in_proportion(_Config) ->
    [Small, Large] = [
        begin
            Before = processor_time(),
            ok = weir_pool:start(p, pool(Size)),
            Used = processor_time() - Before,
            ok = weir_pool:stop(p),
            Used
        end
     || Size <- weir_kit:long([500, 5000], [1000, 10000])
    ],
    ct:pal("processor time, ms, of the starts: ~b, with ten times the slots ~b", [Small, Large]),
    ?assert(Large < 40 * Small + 1000).

%% Returns the milliseconds that this node has used of the processor, whatever else runs on the machine.
processor_time() -> element(1, erlang:statistics(runtime)).

%% The first edition took 300 ms to stop a pool beside 3,000 others.
a_small_pool_stops_beside_thousands(_Config) ->
    Others = [{other, N} || N <- lists:seq(1, weir_kit:long(1000, 3000))],
    [ok = weir_pool:start(Name, pool(1)) || Name <- Others],
    until(fun() ->
        ok = weir_pool:start(p, pool(1)),
        {Time, ok} = timer:tc(fun() -> weir_pool:stop(p) end),
        Time < weir_kit:long(40000, 150000)
    end).

a_large_pool_ends_beside_others(_Config) -> until(fun ends_beside_others/0).

ends_beside_others() ->
    ok = weir_pool:start(p, pool(weir_kit:long(5000, 10000))),
    {Pid, _} = Ending = weir_kit:start(fun() -> timer:tc(fun() -> weir_pool:stop(p) end) end),
    until(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    %% Small pools start and stop also while the terms of the large pool are erased.
    Times = small_pools(500, fun() -> is_process_alive(Pid) orelse is_anything_to_erase() end),
    {Stopped, ok} = result(Ending),
    ct:pal("us: stop of all slots ~b, ~b small pools beside it ~b, at most ~b", [
        Stopped, length(Times), median(Times), lists:max(Times)
    ]),
    median(Times) < 250000 andalso lists:max(Times) < 5000000 andalso Stopped < 5000000.

is_anything_to_erase() -> [] =/= [Base || {{weir_pool_registry, Base}} <- ets:tab2list(weir_pool_names)].

%% Starts and stops small pools while the condition holds, one at least and Max at most. Returns the microseconds of
%% each.
small_pools(0, _While) ->
    [];
small_pools(Max, While) ->
    {Time, ok} = timer:tc(fun() ->
        ok = weir_pool:start({small, Max}, pool(1)),
        weir_pool:stop({small, Max})
    end),
    case While() of
        true -> [Time | small_pools(Max - 1, While)];
        false -> [Time]
    end.

%% A tick would find the surplus a second later, or more.
shrinking_leaves_no_surplus(_Config) ->
    in_the_end(6, #{overflow => #{max => 3, linger => 0}}, fun() ->
        is_soon(fun() ->
            ok = weir_pool:resize(p, 2),
            until(fun() -> info(live) =:= 2 end)
        end)
    end).

is_soon(Fun) ->
    {Time, _} = timer:tc(Fun),
    Time < 800000.

nobody_waits_beside_an_idle_worker(_Config) ->
    start(6, #{strategy => least_loaded}),
    Test = self(),
    Block = {run, fun() ->
        Test ! {blocked, self()},
        receive
            go -> ok
        end
    end},
    %% Calls that choose a worker at the same moment are not counted yet, so the calls start one after the other.
    Blocked = [
        begin
            _ = spawn(fun() -> weir_pool:call(p, Block, infinity) end),
            receive
                {blocked, Worker} -> Worker
            end
        end
     || _ <- [1, 2, 3]
    ],
    ?assertEqual(3, length(lists:usort(Blocked))),
    [?assertEqual({ok, pong}, weir_pool:call(p, ping, weir_kit:wait_ms())) || _ <- lists:seq(1, 1000)],
    [Worker ! go || Worker <- Blocked].

%% The linger time begins at the release. The first edition took two seconds for a millisecond. A pool of size 0 has
%% workers for overflow only.
a_worker_for_overflow_lingers_as_long_as_it_is_told(_Config) ->
    [
        in_the_end(Size, #{overflow => #{max => 1, linger => Ms}}, fun() ->
            _ = [holder() || _ <- lists:seq(1, Size)],
            {ok, Worker, Ticket} = weir_pool:checkout(p, #{timeout => weir_kit:wait_ms()}),
            Start = erlang:monotonic_time(millisecond),
            ok = weir_pool:checkin(p, Ticket),
            await_down(Worker),
            Took = erlang:monotonic_time(millisecond) - Start,
            ?assert(Took >= Ms, {Took, Ms}),
            Took < Ms + 700
        end)
     || {Size, Ms} <- [{0, 0}, {1, 0}, {1, 1}, {1, 100}, {1, 900}]
    ].

work_that_is_overdue_is_abandoned_at_once(_Config) ->
    start(1),
    Hang = fun(W) -> gen_server:call(W, {run, fun() -> receive go -> ok end end}, infinity) end,
    %% The first edition took 0.8 s.
    until(fun() ->
        %% Otherwise the claim would wait for the worker until its time is over, and there would be no work.
        until(fun() -> is_free(p) end),
        [Worker] = slots(p),
        ?assertEqual({error, timeout}, weir_pool:claim(p, Hang, #{timeout => 100, covers => work})),
        is_soon(fun() -> await_down(Worker) end)
    end),
    ?assertError(badarg, weir_pool:claim(p, fun ping/1, #{covers => work})).

%% A search would take 45 ms in each claim. On a busy machine most claims that time out are late, but not all.
an_overdue_claim_does_not_search_the_mailbox(_Config) ->
    start(1, #{abandoned => free}),
    process_flag(trap_exit, true),
    [self() ! {noise, N} || N <- lists:seq(1, 1000000)],
    Claims = fun(Fun, Timeout, N) ->
        Opts = #{timeout => Timeout, covers => work},
        {Times, Results} = lists:unzip([
            timer:tc(fun() -> weir_pool:claim(p, Fun, Opts) end)
         || _ <- lists:seq(1, N)
        ]),
        ct:pal("us: ~b at least a claim with time-out ~b", [lists:min(Times), Timeout]),
        ?assert(lists:min(Times) < 20000),
        lists:usort(Results)
    end,
    ?assertEqual([{ok, pong}], Claims(fun ping/1, weir_kit:wait_ms(), 200)),
    Wait = fun(Ms) ->
        receive
            never -> ok
        after Ms -> ok
        end
    end,
    ?assertEqual([{error, timeout}], Claims(fun(_) -> Wait(infinity) end, 1, 50)),
    %% The child's end and the deadline cross.
    ?assertEqual([], Claims(fun(_) -> Wait(1) end, 1, 300) -- [{ok, ok}, {error, timeout}]),
    same(messages, 1000000, weir_kit:queue_len(self())).

%% The bounds are wide, as this is no benchmark. In the first edition a claim among 1,000 took thirty times as long.
one_free_among_many_is_found_with_few_reads(_Config) -> until(fun is_one_free_found_with_few_reads/0).

is_one_free_found_with_few_reads() ->
    [{Small, NoneSmall}, {Large, NoneLarge}, {Huge, NoneHuge}] = [
        begin
            ok = weir_pool:start(p, pool(Size)),
            %% One process holds all workers but the last.
            Holding = holding(Size - 1),
            OneFree = median([claim_by_a_new_process(ok) || _ <- lists:seq(1, 300)]),
            Last = holding(1),
            NoneFree = median([claim_by_a_new_process(error) || _ <- lists:seq(1, 300)]),
            [Pid ! let_go || Pid <- [Holding, Last]],
            ok = weir_pool:stop(p),
            {OneFree, NoneFree}
        end
     || Size <- [20, 1000, 5000]
    ],
    ct:pal("ns: one free, none free: ~p in 20 slots, ~p in 1,000, ~p in 5,000", [
        {Small, NoneSmall}, {Large, NoneLarge}, {Huge, NoneHuge}
    ]),
    Large < 10 * Small + 20000 andalso NoneLarge < 10 * NoneSmall + 20000 andalso
        Huge < 20 * Small + 60000 andalso NoneHuge < 20 * NoneSmall + 60000.

median(Times) -> lists:nth((length(Times) + 1) div 2, lists:sort(Times)).

holding(N) ->
    Test = self(),
    Pid = spawn(fun() ->
        _ = [{ok, _, _} = weir_pool:checkout(p, #{}) || _ <- lists:seq(1, N)],
        Test ! {all_held, self()},
        receive
            let_go -> ok
        end
    end),
    receive
        {all_held, Pid} -> Pid
    end.

claim_by_a_new_process(Outcome) ->
    result(weir_kit:start(fun() ->
        Start = erlang:monotonic_time(nanosecond),
        Result = weir_pool:claim(p, fun(Pid) -> Pid end),
        Time = erlang:monotonic_time(nanosecond) - Start,
        Outcome = element(1, Result),
        Time
    end)).

%% Pools that were never used, pools that were claimed from, pools in which claims waited, and the shared processes.
idle_pools_do_nothing(_Config) ->
    Names = [{Use, N} || Use <- [never, claimed, waited], N <- lists:seq(1, 70)],
    [ok = weir_pool:start(Name, pool(2)) || Name <- Names],
    [use_once(Name) || Name <- Names],
    Managers = [manager(Name) || Name <- Names],
    Below = [Pid || Manager <- Managers, {_, Pid, _, _} <- supervisor:which_children(Manager)],
    ?assertEqual(3 * length(Managers), length(Below)),
    Processes = [whereis(weir_pool_registry), whereis(weir_pool_pools_sup) | Managers ++ Below],
    %% The processes of a pool that was used have ticks for some seconds more.
    ?assertEqual([], restless([{Pid, start} || Pid <- Processes], 24)),
    %% A pool that is used next to them finds a dead claimer.
    ok = weir_pool:start(p, pool(1)),
    {Holder, Worker} = holder(),
    kill(Holder),
    await_down(Worker).

%% Returns the processes that received a message in each of the intervals, with the message. Reductions would not do:
%% the runtime spends some on work of its own.
restless([], _Times) ->
    [];
restless(Received, 0) ->
    Received;
restless(Received, Times) ->
    %% No process may receive a message in this time, which is longer than the interval of any tick.
    Wait = fun() -> receive after 2500 -> ok end end,
    restless(received(lists:usort([Pid || {Pid, _Message} <- Received]), Wait), Times - 1).

use_once({never, _}) ->
    ok;
use_once({claimed, _} = Name) ->
    {ok, pong} = weir_pool:claim(Name, fun ping/1);
use_once({waited, _} = Name) ->
    Tickets = [element(3, weir_pool:checkout(Name, 0)) || _ <- [1, 2]],
    {error, timeout} = weir_pool:claim(Name, fun ping/1, 5),
    [ok = weir_pool:checkin(Name, Ticket) || Ticket <- Tickets].

an_erased_dictionary_and_a_dead_claimer_leave_nothing(_Config) ->
    start(1, #{abandoned => free}),
    Tables = shared_tables(),
    [
        begin
            {ok, pong} = weir_pool:claim(p, fun ping/1),
            erase()
        end
     || _ <- lists:seq(1, 100)
    ],
    [kill(element(1, holder(fun() -> ok end, #{timeout => infinity}))) || _ <- lists:seq(1, 50)],
    [ok = one_shot() || _ <- lists:seq(1, 2000)],
    until(fun() -> shared_tables() =:= Tables orelse shared_tables() end),
    until(fun() -> info(claimed) =:= 0 end).

%% The registry of the first edition did not answer for seconds.
pools_start_and_stop_beside_claimers_that_die(_Config) ->
    start(4),
    Spawners = [spawn(fun Again() -> one_shot(), Again() end) || _ <- lists:seq(1, 4)],
    until(fun() ->
        Times = small_pools(weir_kit:long(15, 50), fun() -> true end),
        ct:pal("us: small pools ~b, at most ~b", [median(Times), lists:max(Times)]),
        median(Times) < 1500000 andalso lists:max(Times) < 3000000
    end),
    lists:foreach(fun weir_kit:kill/1, Spawners).

%% Claims in a process that claims once in its life.
one_shot() ->
    Claim = fun() -> weir_pool:claim(p, fun(_) -> ok end, #{timeout => infinity}) end,
    {ok, ok} = result(weir_kit:start(Claim)),
    ok.
