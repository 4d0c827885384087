%% Claims that are not given back, workers for overflow, and health checks: the work of a pool on its own slots.
-module(weir_pool_abandon_SUITE).

-include("weir_pool_suite.hrl").

%% Has the manager look for dead claimers at once, and waits until it has ended N claims.
abandoned(N) ->
    manager(p) ! tick,
    until(fun() -> info(abandoned) =:= N orelse {abandoned, info(abandoned)} end).

%% The longest time that the option `abandoned' takes.
-define(LONG, {wait, 4294967295}).

%% With the least intensity: a pool that counted a revoked claim as a restart would end.
workers_of_abandoned_claims_are_used_as_the_option_says(_Config) ->
    Values = [replace, {wait, 0}, {wait, 20}, ?LONG, free],
    Ends = [fun killed/1, fun timed_out/1, fun failed/1],
    Kinds = [otp, async, plain, temporary, connected_otp, connected_plain],
    each([{Kind, End, Value} || Kind <- Kinds, End <- Ends, Value <- Values], fun({Kind, End, Value}) ->
        Worker = start_one(Kind, Value),
        Manager = manager(p),
        End(Worker),
        abandoned(1),
        after_the_claim(Worker, use(End, Value), Kind),
        ?assertEqual(Manager, manager(p)),
        lists:member(Kind, [connected_otp, connected_plain]) andalso kill(Worker)
    end).

%% Starts a pool of one worker, which is a gen_server, or a process that ignores all messages. The pool started it, or
%% it has connected itself.
start_one(Kind, Abandoned) ->
    Opts = #{size => 1, abandoned => Abandoned},
    Started = fun(Function) -> Opts#{intensity => 0, worker => {weir_pool_test_worker, Function, []}} end,
    case Kind of
        otp ->
            ok = weir_pool:start(p, Started(start_link));
        async ->
            ok = weir_pool:start(p, maps:merge(maps:remove(intensity, Started(start_link)), ?ASYNC));
        plain ->
            ok = weir_pool:start(p, Started(start_plain));
        %% The option `restart' is about workers that die, not about workers that the pool replaces.
        temporary ->
            ok = weir_pool:start(p, (Started(start_link))#{restart => temporary});
        _ ->
            ok = weir_pool:start(p, Opts#{worker => none}),
            {ok, 1} = weir_pool:add_worker(p, a),
            connect(Kind)
    end,
    settle_one(),
    hd(slots(p)).

settle_one() -> until(fun() -> is_free(p) andalso settled(p, 1) end).

connect(connected_otp) ->
    {ok, Pid} = weir_pool_test_worker:start_link(),
    true = unlink(Pid),
    {ok, 1} = gen_server:call(Pid, {run, fun() -> weir_pool:connect(p, a) end}, wait_ms());
connect(connected_plain) ->
    Test = self(),
    _ = spawn(fun() ->
        Test ! {connected, weir_pool:connect(p, a)},
        receive stop -> ok end
    end),
    receive {connected, {ok, 1}} -> ok end.

is_otp(Pid) -> proc_lib:translate_initial_call(Pid) =:= {weir_pool_test_worker, init, 1}.

%% Ends of a claim without a release. A gen_server is left busy.

killed(Worker) ->
    Claimer = claimer(p),
    _ = is_otp(Worker) andalso busy(Worker),
    kill_claimer(Claimer).

timed_out(Worker) -> timed_out(Worker, Worker).

timed_out(Worker, Name) ->
    Call = fun(Pid) ->
        _ = is_otp(Pid) andalso busy(Pid),
        gen_server:call(Name, ping, 1)
    end,
    ?assertExit({timeout, {gen_server, call, [Name, ping, 1]}}, weir_pool:claim(p, Call)),
    Worker.

failed(Worker) ->
    {ok, Worker, Ticket} = weir_pool:checkout(p, 0),
    _ = is_otp(Worker) andalso busy(Worker),
    ?assertEqual(ok, weir_pool:checkin(p, Ticket, fail)).

use(End, Value) ->
    case {End =:= fun failed/1, Value} of
        {false, free} -> used_again;
        {false, ?LONG} -> used_when_idle;
        _ -> not_used
    end.

after_the_claim(Worker, used_again, _Kind) ->
    ?assertEqual({ok, Worker}, claim());
after_the_claim(Worker, used_when_idle, _Kind) ->
    ?assertEqual(reserved, word(p, 1)),
    ?assertEqual({error, busy}, weir_pool:claim(p, fun(Pid) -> Pid end)),
    ?assertEqual({ok, Worker}, weir_pool:pick(p)),
    Waiter = weir_kit:start(fun weir_pool_test_lib:claim/0),
    until(fun() -> info(waiting) =:= 1 end),
    ?assertMatch({ok, #{reserved := 1, claimed := 0, waiting := 1}}, weir_pool:info(p)),
    _ = is_otp(Worker) andalso given_out_when_idle(Worker, Waiter);
after_the_claim(Worker, not_used, Kind) when Kind =:= connected_otp; Kind =:= connected_plain ->
    until(fun() -> slots(p) =:= [undefined] end),
    ?assert(is_process_alive(Worker)),
    ?assertEqual({ok, [{a, 1}]}, weir_pool:added_workers(p)),
    ?assertEqual({error, not_connected}, weir_pool:disconnect(p, a)),
    ?assertEqual({error, no_worker}, weir_pool:claim(p, fun(Pid) -> Pid end));
after_the_claim(Worker, not_used, _Kind) ->
    {ok, New} = claim(),
    ?assertNotEqual(Worker, New),
    await_down(Worker),
    ?assertEqual([New], slots(p)),
    ?assertEqual(1, info(restarts)).

given_out_when_idle(Worker, Waiter) ->
    idle(Worker),
    ?assertEqual({ok, Worker}, result(Waiter)),
    %% A worker that is idle when its claimer dies is free at once.
    kill_claimer(claimer(p)),
    ?assertEqual({ok, Worker}, claim()),
    ?assertEqual(0, info(restarts)).

%% Waiters press the manager again and again. Afterwards the manager of a pool with one claim has a message each second,
%% its own tick, and one monitor of the claimer.
a_pool_in_use_has_one_tick_a_second(_Config) ->
    start(1),
    Claimer = claimer(p),
    [?assertEqual({error, timeout}, weir_pool:claim(p, fun(_) -> ok end, 30)) || _ <- lists:seq(1, 10)],
    await_waiting(0),
    Manager = manager(p),
    Messages = received([Manager], fun() -> receive after 2500 -> ok end end),
    none(too_many_messages, lists:nthtail(min(4, length(Messages)), Messages)),
    {monitors, Monitors} = process_info(Manager, monitors),
    ?assertEqual(1, length([Pid || {process, Pid} <- Monitors, Pid =:= element(1, Claimer)])).

%% The exception passes through, also if another process did the work.
other_failures_release_the_worker(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    [Worker] = slots(p),
    Callees = [
        %% Calls that another process did not answer.
        self(),
        kernel_sup,
        {kernel_sup, node()},
        {kernel_sup, 'elsewhere@nowhere'},
        {global, nobody},
        {via, global, nobody},
        %% Callees that cannot be looked up, as the registry of the name may be gone by then.
        {via, no_such_registry, name},
        {via, 1, name}
    ],
    Call = fun(Callee) -> {timeout, {gen_server, call, [Callee, request, 1]}} end,
    Reasons = [oops, normal, {noproc, x}, timeout, {timeout, x}, {timeout, {gen_server, call, []}}],
    Failures =
        [{exit, Reason} || Reason <- Reasons ++ [Call(Callee) || Callee <- Callees]] ++
            [{Class, Reason} || Class <- [error, throw], Reason <- [oops, {timeout, x}, Call(Worker)]],
    Work = #{covers => work, timeout => infinity},
    [
        begin
            process_flag(trap_exit, IsTrapping),
            ?assertMatch({Class, Reason, [{?MODULE, raise, 2, _} | _]}, caught(Class, Reason, Opts)),
            ?assertEqual({ok, Worker}, claim()),
            ?assertEqual([], weir_kit:messages())
        end
     || {Class, Reason} <- Failures, {Opts, IsTrapping} <- [{#{}, false}, {Work, false}, {Work, true}]
    ],
    process_flag(trap_exit, false),
    ?assertEqual(0, info(abandoned)).

caught(Class, Reason, Opts) ->
    try
        weir_pool:claim(p, fun(_) -> ?MODULE:raise(Class, Reason) end, Opts)
    catch
        C:R:Stack -> {C, R, Stack}
    end.

raise(Class, Reason) -> erlang:raise(Class, Reason, [{?MODULE, raise, 2, []}]).

%% A pool without intensity ends.
failed_starts_of_replacements_count_as_restarts(_Config) ->
    Good = atomics:new(1, []),
    Script = fun() -> lists:nth(atomics:get(Good, 1) + 1, [start, {error, down}]) end,
    ok = weir_pool:start(p, (script(1, Script))#{intensity => 0}),
    Manager = manager(p),
    Claimer = claimer(p),
    atomics:put(Good, 1, 1),
    kill_and_tick(Claimer),
    await_down(Manager),
    nothing_left_soon().

%% Reports have what the option `abandoned' promises: pool, slot, worker, claimer and reason. With `covers => work'
%% another process does the work, but the caller is the claimer.
reports_name_the_claimer_and_the_reason(_Config) ->
    Abandonments = [
        {dead, "its claimer died", replace, fun a_killed_claimer/0},
        {dead, "its claimer died", replace, fun a_killed_caller/0},
        {dead, "its claimer died", {wait, 1}, fun a_killed_claimer/0},
        {timeout, "timed out", replace, fun() -> a_call_in_a_claim(#{}) end},
        {timeout, "timed out", replace, fun() -> a_call_in_a_claim(#{covers => work, timeout => infinity}) end},
        {overdue, "did not end in time", replace, fun work_that_is_overdue/0},
        {killed, "ran the claimer's fun was killed", replace, fun work_that_is_killed/0},
        {failed, "gave it back as failed", replace, fun a_failed_one/0}
    ],
    with_reports(fun() ->
        each(Abandonments, fun({Why, Said, Abandoned, Abandon}) ->
            start(1, #{abandoned => Abandoned}),
            [Worker] = slots(p),
            reported(Worker, Why, Abandon(), Said)
        end),
        %% A process that has connected itself is disconnected, not replaced.
        Member = start_one(connected_plain, replace),
        reported(Member, dead, a_killed_claimer(), "its claimer died"),
        ok = weir_pool:stop(p),
        kill(Member),
        %% A worker that was not claimed.
        ok = weir_pool:start(p, pool(1, #{check => {fun(_) -> bad end, 1}, intensity => 0})),
        receive
            {report, warning, #{why := check} = Report, Text} ->
                ?assertMatch(#{weir_pool := worker_replaced, pool := p, slot := 1, worker := _}, Report),
                ?assertNot(is_map_key(claimer, Report)),
                ?assertNotEqual(nomatch, string:find(Text, "health check"))
        end
    end).

%% Waits for a report, which says this and no less.
reported(Worker, Why, Claimer, Said) ->
    manager(p) ! tick,
    receive
        {report, warning, Report, Text} ->
            Expected = #{weir_pool => worker_replaced, pool => p, slot => 1, worker => Worker, why => Why},
            ?assertEqual(Expected#{claimer => Claimer}, Report),
            Parts = ["Pool p", "slot 1", pid_to_list(Worker), pid_to_list(Claimer), Said],
            none(not_said, [{Part, Text} || Part <- Parts, string:find(Text, Part) =:= nomatch])
    end.

a_killed_claimer() ->
    {Pid, Worker, _} = Claimer = claimer(p),
    _ = is_otp(Worker) andalso busy(Worker),
    kill_claimer(Claimer),
    Pid.

%% A task claims a worker and has another process do the work. The caller or the other process is killed.
a_killed_caller() -> kill_work(fun(Caller, _Child) -> kill(Caller) end).

work_that_is_killed() -> kill_work(fun({Pid, _}, Child) -> kill(Child), await_down(Pid) end).

kill_work(Kill) ->
    Test = self(),
    Work = fun(_) ->
        Test ! {working, self()},
        wait_for_ever()
    end,
    {Pid, _} = Caller = weir_kit:start(fun() ->
        weir_pool:claim(p, Work, #{covers => work, timeout => infinity})
    end),
    receive {working, Child} -> Kill(Caller, Child) end,
    Pid.

wait_for_ever() -> receive never -> ok end.

work_that_is_overdue() ->
    Opts = #{covers => work, timeout => 20},
    ?assertEqual({error, timeout}, weir_pool:claim(p, fun(_) -> wait_for_ever() end, Opts)),
    self().

a_call_in_a_claim(Opts) ->
    Hang = {run, fun wait_for_ever/0},
    ?assertExit({timeout, _}, weir_pool:claim(p, fun(Worker) -> gen_server:call(Worker, Hang, 1) end, Opts)),
    self().

%% Has a process other than the claimer give the worker back.
a_failed_one() ->
    {ok, _, Ticket} = weir_pool:checkout(p, 0),
    ?assertEqual(ok, result(weir_kit:start(fun() -> weir_pool:checkin(p, Ticket, fail) end))),
    self().

%% However the call named the worker.
a_claim_of_a_call_by_name_is_abandoned_too(_Config) ->
    each([?MODULE, {?MODULE, node()}, {global, ?MODULE}, {via, global, ?MODULE}], fun(Name) ->
        Worker = start_one(otp, replace),
        true = register(?MODULE, Worker),
        %% The name of an earlier worker may not be free yet.
        yes = global:re_register_name(?MODULE, Worker),
        timed_out(Worker, Name),
        abandoned(1),
        await_down(Worker)
    end).

overflow(Max, Linger) -> #{overflow => #{max => Max, linger => Linger}}.

%% The workers stay for an hour. No pick gets one of them, and a claim gets one of them last.
claims_that_wait_start_workers_for_overflow(_Config) ->
    ok = weir_pool:start(p, pool(1, overflow(3, 3600000))),
    ?assertMatch({ok, #{size := 1, limit := 4, live := 1, vacant := 0}}, weir_pool:info(p)),
    Claimers = [claimer(p) || _ <- [1, 2, 3, 4]],
    ?assertEqual([1, 2, 3, 4], lists:sort([slot_of(Claimer) || Claimer <- Claimers])),
    ?assertMatch({ok, #{size := 1, limit := 4, live := 4, vacant := 0, claimed := 4}}, weir_pool:info(p)),
    ?assertEqual({error, timeout}, weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => 30})),
    [Regular] = slots(p),
    ?assertEqual([{ok, Regular}], lists:usort([weir_pool:pick(p) || _ <- lists:seq(1, 50)])),
    ?assertEqual([{ok, Regular}], lists:usort([weir_pool:pick(p, Key) || Key <- lists:seq(1, 50)])),
    ?assertEqual({ok, 1}, weir_pool:broadcast(p, {run, fun() -> ok end})),
    {ok, Workers} = weir_pool:workers(p),
    ?assertEqual([1, 2, 3, 4], [Slot || {Slot, _} <- Workers]),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    manager(p) ! tick,
    _ = sys:get_state(manager(p), wait_ms()),
    ?assertMatch({ok, #{live := 4, claimed := 0, restarts := 0}}, weir_pool:info(p)),
    ?assertEqual(1, slot_of(claimer(p))).

%% The pool refuses the claims, and starts workers for the next ones (pooler's issue 54).
claims_that_do_not_wait_start_workers_for_the_next_claims(_Config) ->
    ok = weir_pool:start(p, pool(1, overflow(3, 3600000))),
    First = claimer(p),
    Claim = fun() -> weir_pool:checkout(p, #{}) end,
    [
        begin
            ?assertEqual({error, busy}, Claim()),
            until(fun() -> info(live) =:= Live end),
            %% A worker can be claimed a moment after it is counted.
            _ = sys:get_state(manager(p), wait_ms()),
            {ok, _, _} = Claim()
        end
     || Live <- [2, 3]
    ],
    %% The next claimer was killed between setting the flag and notifying the manager.
    ok = atomics:put((weir_pool_terms:pool(p))#pool.signals, ?SIGNAL_GROW, 1),
    ?assertEqual({error, busy}, Claim()),
    manager(p) ! tick,
    until(fun() -> info(live) =:= 4 end),
    ok = release(First).

%% Workers do not stop while they are claimed (poolboy's issues 29 to 89). The claims last longer than a pool keeps
%% workers in any case. The pool does not shrink below its size. The workers start again, and no restart is counted.
workers_for_overflow_stop_when_they_are_released(_Config) ->
    start(1, overflow(2, 0)),
    Regular = slots(p),
    Claimers = [claimer(p) || _ <- [1, 2, 3]],
    until(fun() ->
        manager(p) ! tick,
        info(claimed_ms) > 3 * 1100
    end),
    [?assertEqual(pong, gen_server:call(worker_of(Claimer), ping, wait_ms())) || Claimer <- Claimers],
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    settle(p, 1),
    ?assertEqual(Regular, slots(p)),
    Again = [claimer(p) || _ <- [1, 2, 3]],
    %% The releaser has set the flag, and is killed when it is about to notify the manager.
    ok = atomics:put((weir_pool_terms:pool(p))#pool.signals, ?SIGNAL_IDLE, 1),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Again],
    manager(p) ! tick,
    settle(p, 1),
    ?assertMatch({ok, #{restarts := 0}}, weir_pool:info(p)).

%% A start that fails does not end the pool, and is not repeated without a pause.
a_failed_start_for_overflow_ends_no_pool_and_pauses(_Config) ->
    Starts = counters:new(1, []),
    Script = fun() ->
        counters:add(Starts, 1, 1),
        case counters:get(Starts, 1) of
            1 -> start;
            _ -> {error, down}
        end
    end,
    ok = weir_pool:start(p, maps:merge(script(1, Script), (overflow(1, 0))#{intensity => 0})),
    Manager = manager(p),
    Claimer = claimer(p),
    ?assertEqual({error, timeout}, weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => 30})),
    until(fun() -> info(start_failures) >= 1 end),
    [{{error, busy}, _} = {weir_pool:checkout(p, 0), sys:get_state(Manager, wait_ms())} || _ <- lists:seq(1, 100)],
    %% The first wait is 50 ms or more, the second twice as long, and so on.
    ?assert(counters:get(Starts, 1) < 20),
    ?assertEqual(Manager, manager(p)),
    ok = release(Claimer),
    settle(p, 1).

%% A pool of size 0 starts without workers.
a_pool_of_size_0_starts_workers_on_demand(_Config) ->
    each([#{}, #{intensity => 0}, ?ASYNC], fun(Opts) ->
        ok = weir_pool:start(p, pool(0, maps:merge(Opts, overflow(2, 0)))),
        ?assertMatch({ok, #{size := 0, limit := 2, live := 0, vacant := 0}}, weir_pool:info(p)),
        ?assertEqual({error, no_worker}, weir_pool:pick(p)),
        Claimers = [First | _] = [claimer(p) || _ <- [1, 2]],
        ?assertEqual({error, no_worker}, weir_pool:pick(p)),
        ?assertEqual({error, busy}, weir_pool:claim(p, fun(Pid) -> Pid end)),
        ?assertEqual({ok, 0}, weir_pool:broadcast(p, {run, fun() -> ok end})),
        kill(worker_of(First)),
        Third = claimer(p),
        ?assertNotEqual(worker_of(First), worker_of(Third)),
        ?assertEqual([{error, worker_down}, ok, ok], [release(Claimer) || Claimer <- Claimers ++ [Third]]),
        settle(p, 0),
        ?assertEqual([], slots(p))
    end).

each_result_but_ok_and_true_replaces_the_worker(_Config) ->
    Failures = [
        fun() -> bad end,
        fun() -> false end,
        fun() -> {error, gone} end,
        fun() -> error(oops) end,
        fun() -> throw(ok) end,
        fun() -> exit(ok) end,
        fun() -> exit(normal) end,
        fun() -> exit({done, no}) end,
        fun() -> exit(self(), kill) end
    ],
    each([#{intensity => 0}, ?ASYNC], fun(Opts) ->
        start(1, Opts#{check => {asking(), ?HOUR}}),
        [
            begin
                [Worker] = slots(p),
                [?assertEqual(Worker, check_round(fun() -> Good end)) || Good <- [ok, true]],
                ?assertEqual(Worker, check_round(Failure)),
                until(fun() -> slots(p) =/= [Worker] andalso settled(p, 1) end),
                await_down(Worker)
            end
         || Failure <- Failures
        ],
        ?assertMatch({ok, #{check_failures := 9, restarts := 9, abandoned := 0}}, weir_pool:info(p)),
        ?assertEqual(slots(p), [check_round(fun() -> ok end)])
    end).

%% Checks come by themselves. A check that hangs has as much time as is between two rounds, also while timers of other
%% processes are late.
a_check_that_hangs_is_killed_and_fails(_Config) ->
    ok = timer:start(),
    ok = sys:suspend(timer_server, wait_ms()),
    try
        start(1, #{check => {asking(), 20}, intensity => 0}),
        [[await_down(Pid) || Pid <- tuple_to_list(next_check())] || _ <- [1, 2, 3]],
        until(fun() -> info(check_failures) >= 3 end)
    after
        ok = sys:resume(timer_server, wait_ms())
    end.

the_check_of_a_dead_worker_has_no_effect(_Config) ->
    each([#{}, ?ASYNC], fun(Opts) ->
        start(2, Opts#{check => {asking(), ?HOUR}}),
        check_round(),
        Check = {_, Worker} = next_check(),
        kill(Worker),
        until(fun() -> settled(p, 2) andalso not lists:member(Worker, slots(p)) end),
        answer(Check, fun() -> bad end),
        %% The check of the other worker follows: the result of the first check was stale.
        answer(next_check(), fun() -> ok end),
        settle(p, 2),
        ?assertEqual(0, info(check_failures))
    end).

%% The manager checks all workers one after the other, those for overflow too. The manager begins no other round while
%% one is under way.
all_workers_are_checked_one_after_the_other(_Config) ->
    ok = weir_pool:start(p, pool(3, (overflow(1, ?HOUR))#{check => {asking(), ?HOUR}})),
    Claimers = [claimer(p) || _ <- [1, 2, 3, 4]],
    {ok, Workers} = weir_pool:workers(p),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    check_round(),
    Checked = [
        begin
            Check = next_check(),
            check_round(),
            _ = sys:get_state(manager(p), wait_ms()),
            ?assertEqual(1, info(reserved)),
            answer(Check, fun() -> ok end)
        end
     || _ <- [1, 2, 3, 4]
    ],
    ?assertEqual([Pid || {_, Pid} <- Workers], Checked).
