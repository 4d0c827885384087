%% Claims that are not given back, workers for overflow, and health checks: the work of a pool on its own slots.
-module(weir_pool_abandon_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").
-include("weir_pool_test_signals.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, await_down/1, kill/1, result/1, wait_ms/0]).
-import(weir_pool_test_lib, [each/2, kill_manager/1, manager/1, slots/1, workers/1, settled/2]).
-import(weir_pool_life_lib, [
    start/2, pool/1, pool/2, script/2, settle/2, claimer/1, release/1, kill_claimer/1, worker_of/1, slot_of/1,
    busy/1, idle/1, word/2
]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

-define(ASYNC, #{start => async, backoff => {1, 4}}).

%% Claims a worker, and returns its pid.
claim() -> weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => weir_kit:wait_ms()}).

%% Has the manager look for dead claimers at once, and waits until it has ended N claims.
abandoned(N) ->
    manager(p) ! tick,
    await_abandoned(N).

await_abandoned(N) ->
    until(fun() ->
        {ok, #{abandoned := Abandoned}} = weir_pool:info(p),
        Abandoned =:= N orelse {abandoned, Abandoned}
    end).

info(Key) ->
    {ok, #{Key := Value}} = weir_pool:info(p),
    Value.

%% ---------------------------------------------------------------- the worker of an abandoned claim

%% The longest time that the option `abandoned' takes.
-define(LONG, {wait, 4294967295}).

%% With the least intensity: a pool that counted a revoked claim as a restart would end.
workers_of_abandoned_claims_are_used_as_the_option_says(_Config) ->
    Values = [replace, {wait, 0}, {wait, 20}, ?LONG, free],
    Ends = [fun killed/1, fun timed_out/1, fun failed/1],
    Kinds = [otp, async, plain, connected_otp, connected_plain],
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
    Started = fun(Function) -> Opts#{intensity => 0, worker => {weir_pool_life_worker, Function, []}} end,
    case Kind of
        otp ->
            ok = weir_pool:start(p, Started(start_link));
        async ->
            ok = weir_pool:start(p, maps:merge(maps:remove(intensity, Started(start_link)), ?ASYNC));
        plain ->
            ok = weir_pool:start(p, Started(start_plain));
        _ ->
            ok = weir_pool:start(p, Opts#{worker => none}),
            {ok, 1} = weir_pool:add_worker(p, a),
            connect(Kind)
    end,
    settle_one(),
    hd(slots(p)).

settle_one() -> until(fun() -> weir_pool_test_lib:is_free(p) andalso settled(p, 1) end).

connect(connected_otp) ->
    {ok, Pid} = weir_pool_life_worker:start_link(),
    true = unlink(Pid),
    {ok, 1} = gen_server:call(Pid, {run, fun() -> weir_pool:connect(p, a) end}, wait_ms());
connect(connected_plain) ->
    Test = self(),
    _ = spawn(fun() ->
        Test ! {connected, weir_pool:connect(p, a)},
        receive stop -> ok end
    end),
    receive {connected, {ok, 1}} -> ok end.

is_otp(Pid) -> proc_lib:translate_initial_call(Pid) =:= {weir_pool_life_worker, init, 1}.

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
    Waiter = weir_kit:start(fun claim/0),
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

%% The pool does not give the busy worker to a waiter (poolboy's issue 56, pgapp's 20), and does not lose its slot
%% (gproc's 109).
a_waiter_does_not_get_the_worker_of_a_killed_claimer(_Config) ->
    ok = weir_pool:start(p, pool(2)),
    [First, Second] = [claimer(p), claimer(p)],
    busy(worker_of(First)),
    kill_claimer(First),
    {ok, New} = claim(),
    ?assertNot(lists:member(New, [worker_of(First), worker_of(Second)])),
    ?assertEqual(pong, gen_server:call(worker_of(Second), ping, wait_ms())),
    ok = release(Second),
    settle(p, 2).

%% Waiters press the manager again and again. Afterwards the manager of a pool with one claim has a message each second,
%% its own tick, and one monitor of the claimer.
a_pool_in_use_has_one_tick_a_second(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    Claimer = claimer(p),
    [?assertEqual({error, timeout}, weir_pool:claim(p, fun(_) -> ok end, 30)) || _ <- lists:seq(1, 10)],
    until(fun() -> info(waiting) =:= 0 end),
    Manager = manager(p),
    1 = erlang:trace(Manager, true, ['receive']),
    receive after 2500 -> ok end,
    1 = erlang:trace(Manager, false, ['receive']),
    Delivered = erlang:trace_delivered(Manager),
    receive {trace_delivered, Manager, Delivered} -> ok end,
    Messages = [Message || {trace, _, 'receive', Message} <- weir_kit:take_messages()],
    weir_kit:none(too_many_messages, lists:nthtail(min(4, length(Messages)), Messages)),
    {monitors, Monitors} = process_info(Manager, monitors),
    ?assertEqual(1, length([Pid || {process, Pid} <- Monitors, Pid =:= element(1, Claimer)])),
    ok = release(Claimer).

%% ---------------------------------------------------------------- live claimers

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

%% The option `restart' is about workers that die, not about workers that the pool replaces.
a_temporary_worker_is_replaced_too(_Config) ->
    ok = weir_pool:start(p, pool(2, #{restart => temporary})),
    Claimer = claimer(p),
    Worker = worker_of(Claimer),
    kill_claimer(Claimer),
    abandoned(1),
    await_down(Worker),
    settle(p, 2),
    kill(hd(workers(p))),
    until(fun() -> length(workers(p)) =:= 1 end).

%% The call times out when the slot is marked for the replacement.
a_replacement_does_not_wait_for_a_claim_whose_call_timed_out(_Config) ->
    each([replace, {wait, 1000}, free], fun(Abandoned) ->
        start(1, #{abandoned => Abandoned, shutdown => brutal_kill}),
        [Worker] = slots(p),
        {Starter, _} = Replacer = weir_kit:start(fun() ->
            receive go -> weir_pool:replace(p, 1) end
        end),
        Timeout = fun(Pid) ->
            busy(Pid),
            Starter ! go,
            until(fun() -> word(p, 1) =:= marked end),
            gen_server:call(Pid, ping, 1)
        end,
        ?assertExit({timeout, _}, weir_pool:claim(p, Timeout)),
        ?assertEqual(ok, result(Replacer)),
        await_down(Worker),
        settle(p, 1)
    end).

%% The pool stops the worker like a released worker: after `shutdown' milliseconds, unless it is idle earlier.
the_worker_of_an_abandoned_claim_in_a_slot_given_up_stops(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(2, #{abandoned => Abandoned, shutdown => 50})),
            Claimers = [claimer(p), claimer(p)],
            [busy(worker_of(Claimer)) || Claimer <- Claimers],
            [Goes] = [Claimer || Claimer <- Claimers, slot_of(Claimer) =:= 2],
            [Stays] = Claimers -- [Goes],
            case First of
                given_up ->
                    ok = weir_pool:resize(p, 1),
                    kill_claimer(Goes),
                    manager(p) ! tick;
                abandoned ->
                    kill_claimer(Goes),
                    manager(p) ! tick,
                    abandoned(1),
                    ok = weir_pool:resize(p, 1)
            end,
            await_down(worker_of(Goes)),
            idle(worker_of(Stays)),
            ok = release(Stays),
            settle(p, 1),
            ok = weir_pool:stop(p)
        end
     || Abandoned <- [replace, free, {wait, 4294967295}], First <- [given_up, abandoned]
    ].

%% Starts that fail count, if the pool has an intensity.
failed_starts_of_replacements_count_as_restarts(_Config) ->
    Good = atomics:new(1, []),
    Script = fun() ->
        case atomics:get(Good, 1) of
            0 -> start;
            1 -> {error, down}
        end
    end,
    ok = weir_pool:start(p, (script(1, Script))#{intensity => 0}),
    Manager = manager(p),
    Claimer = claimer(p),
    atomics:put(Good, 1, 1),
    kill_claimer(Claimer),
    Manager ! tick,
    await_down(Manager),
    atomics:put(Good, 1, 0),
    until(fun() -> weir_pool:start(p, maps:merge(script(1, Script), ?ASYNC)) =:= ok end),
    settle(p, 1),
    Again = claimer(p),
    atomics:put(Good, 1, 1),
    kill_claimer(Again),
    manager(p) ! tick,
    until(fun() -> info(start_failures) > 5 end),
    atomics:put(Good, 1, 0),
    settle(p, 1).

%% Reports have what the option `abandoned' promises: pool, slot, worker, claimer and reason. With `covers => work'
%% another process does the work, but the caller is the claimer.
reports_name_the_claimer_and_the_reason(_Config) ->
    reporting(fun() ->
        ok = weir_pool:start(p, pool(1)),
        [
            begin
                settle(p, 1),
                [Worker] = slots(p),
                Claimer = Abandon(),
                reported(#{slot => 1, worker => Worker, why => Why, claimer => Claimer}, Said)
            end
         || {Why, Said, Abandon} <- [
                {dead, "its claimer died", fun a_killed_claimer/0},
                {dead, "its claimer died", fun a_killed_caller/0},
                {timeout, "timed out", fun() -> a_call_in_a_claim(#{}) end},
                {timeout, "timed out", fun() -> a_call_in_a_claim(#{covers => work, timeout => infinity}) end},
                {overdue, "did not end in time", fun work_that_is_overdue/0},
                {killed, "ran the claimer's fun was killed", fun work_that_is_killed/0},
                {failed, "gave it back as failed", fun() -> a_failed_one(fun(Fun) -> Fun() end) end},
                {failed, "gave it back as failed", fun() -> a_failed_one(fun in_a_task/1) end}
            ]
        ],
        ok = weir_pool:stop(p),
        %% A worker that did not become idle in time.
        ok = weir_pool:start(p, pool(1, #{abandoned => {wait, 1}})),
        Claimer = claimer(p),
        busy(worker_of(Claimer)),
        kill_claimer(Claimer),
        Waited = #{slot => 1, worker => worker_of(Claimer), why => dead, claimer => element(1, Claimer)},
        reported(Waited, "its claimer died"),
        ok = weir_pool:stop(p),
        %% A process that is disconnected, not replaced.
        Member = start_one(connected_plain, replace),
        Second = claimer(p),
        kill_claimer(Second),
        reported(#{slot => 1, worker => Member, why => dead, claimer => element(1, Second)}, "its claimer died"),
        ok = weir_pool:stop(p),
        kill(Member),
        %% A worker that was not claimed.
        ok = weir_pool:start(p, pool(1, #{check => {fun(_) -> bad end, 1}, intensity => 0})),
        receive
            {report, #{why := check} = Report} ->
                ?assertMatch(#{weir_pool := worker_replaced, pool := p, slot := 1, worker := _}, Report),
                ?assertNot(is_map_key(claimer, Report)),
                ?assert(is_said("health check", Report))
        end,
        ok = weir_pool:stop(p)
    end).

%% Does something while this process gets the pools' reports.
reporting(Do) ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, warning),
    ok = weir_pool_test_lib:report_to(self()),
    try
        Do()
    after
        logger:set_primary_config(level, Level)
    end.

%% There is one report, which says this and no less.
reported(#{slot := Slot, worker := Worker, claimer := Claimer} = Expected, Said) ->
    manager(p) ! tick,
    receive
        {report, Report} ->
            ?assertEqual(Expected#{weir_pool => worker_replaced, pool => p}, Report),
            [
                ?assert(is_said(Part, Report))
             || Part <- ["Pool p", "slot " ++ integer_to_list(Slot), pid_to_list(Worker), pid_to_list(Claimer), Said]
            ]
    end.

is_said(Part, Report) ->
    {Format, Args} = weir_pool_report:format(Report),
    string:find(lists:flatten(io_lib:format(Format, Args)), Part) =/= nomatch.

a_killed_claimer() ->
    {Pid, _, _} = Claimer = claimer(p),
    kill_claimer(Claimer),
    Pid.

%% A task claims a worker and has another process do the work. The caller or the other process is killed.
a_killed_caller() -> kill_work(fun(Caller, _Child) -> kill(Caller) end).

work_that_is_killed() -> kill_work(fun({Pid, _}, Child) -> kill(Child), weir_kit:await_down(Pid) end).

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

in_a_task(Fun) -> result(weir_kit:start(Fun)).

%% The function By calls another function, in this process or in a task.
a_failed_one(By) ->
    {ok, _, Ticket} = weir_pool:checkout(p, 0),
    ?assertEqual(ok, By(fun() -> weir_pool:checkin(p, Ticket, fail) end)),
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

%% ---------------------------------------------------------------- overflow

overflow(Max, Linger) -> #{overflow => #{max => Max, linger => Linger}}.

%% The workers stay for an hour, and no pick gets one of them.
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
    ?assertMatch({ok, #{live := 4, claimed := 0, restarts := 0}}, weir_pool:info(p)).

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

%% Workers do not stop while they are claimed (poolboy's issues 29 to 89), and not below the size. The pools wait side
%% by side, longer than a pool keeps workers in any case.
workers_for_overflow_stop_however_their_claims_end(_Config) ->
    Check = {fun(_) -> ok end, 50},
    Ends = [
        {released, fun weir_pool_life_lib:release/1, overflow(2, 0)},
        {released_with_checks, fun weir_pool_life_lib:release/1, (overflow(2, 400))#{check => Check}},
        {releaser_killed, fun release_without_notice/1, overflow(2, 0)},
        {waited_for, fun weir_pool_life_lib:kill_claimer/1, (overflow(2, 0))#{abandoned => {wait, 1000}}},
        {freed, fun weir_pool_life_lib:kill_claimer/1, (overflow(2, 0))#{abandoned => free}},
        {replaced, fun weir_pool_life_lib:kill_claimer/1, overflow(2, 0)}
    ],
    [ok = weir_pool:start(Name, pool(1, Opts)) || {Name, _, Opts} <- Ends],
    Claimers = [{End, claimer(Name)} || {Name, End, _} <- Ends, _ <- [1, 2, 3]],
    Regular = [{Name, slots(Name)} || {Name, _, _} <- Ends],
    [claimed_for_long(Name) || {Name, _, _} <- Ends],
    [?assertMatch({ok, #{live := 3}}, weir_pool:info(Name)) || {Name, _, _} <- Ends],
    [?assertEqual(pong, gen_server:call(worker_of(Claimer), ping, wait_ms())) || {_, Claimer} <- Claimers],
    [?assertEqual(ok, End(Claimer)) || {End, Claimer} <- Claimers],
    [
        until(fun() ->
            {ok, Info} = weir_pool:info(Name),
            case Info of
                #{live := 1, claimed := 0, reserved := 0} -> true;
                _ -> manager(Name) ! tick, Info
            end
        end)
     || {Name, _, _} <- Ends
    ],
    [?assertEqual(Before, slots(Name)) || {Name, Before} <- Regular, Name =/= replaced],
    %% The workers start again, and the pool counts no restart.
    Again = [claimer(released) || _ <- [1, 2, 3]],
    ?assertMatch({ok, #{restarts := 0}}, weir_pool:info(released)),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Again].

%% The releaser had set the flag, and was killed when it was about to notify the manager.
release_without_notice(Claimer) ->
    ok = atomics:put((weir_pool_terms:pool(releaser_killed))#pool.signals, ?SIGNAL_IDLE, 1),
    release(Claimer).

%% Waits until three claims have lasted for more than 1.1 s each. The manager adds up the times of claims at its ticks.
claimed_for_long(Name) ->
    until(fun() ->
        manager(Name) ! tick,
        {ok, #{claimed_ms := Ms}} = weir_pool:info(Name),
        Ms > 3 * 1100
    end).

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

%% ---------------------------------------------------------------- checks

%% Returns a check that sends this process {checking, Checker, Worker}, and waits for an answer. Rounds are an hour
%% apart, but for those that this process begins, so a busy machine makes no check fail.
-define(HOUR, 3600000).

asking() ->
    Test = self(),
    fun(Worker) ->
        Test ! {checking, self(), Worker},
        receive {answer, Answer} -> Answer() end
    end.

check_round() -> manager(p) ! check_round.

next_check() ->
    receive {checking, Checker, Worker} -> {Checker, Worker} end.

%% Returns the first check of the next round. Begins the round again if the manager did not know yet that the last round
%% was over.
first_check() ->
    check_round(),
    receive
        {checking, Checker, Worker} -> {Checker, Worker}
    after 100 -> first_check()
    end.

answer({Checker, Worker}, Answer) ->
    Checker ! {answer, Answer},
    await_down(Checker),
    Worker.

%% The next check, and its answer.
check_round(Answer) -> answer(first_check(), Answer).

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

%% Checks come by themselves. A check that hangs has as much time as is between two rounds.
a_check_that_hangs_is_killed_and_fails(_Config) ->
    ok = weir_pool:start(p, pool(1, #{check => {asking(), 20}, intensity => 0})),
    [[await_down(Pid) || Pid <- tuple_to_list(next_check())] || _ <- [1, 2, 3]],
    until(fun() -> info(check_failures) >= 3 end).

claimed_workers_are_not_checked(_Config) ->
    ok = weir_pool:start(p, pool(2, #{check => {asking(), ?HOUR}})),
    Claimer = claimer(p),
    [Other] = slots(p) -- [worker_of(Claimer)],
    [?assertEqual(Other, check_round(fun() -> ok end)) || _ <- [1, 2, 3]],
    %% The manager has heard of the last round.
    until(fun() -> info(reserved) =:= 0 end),
    _ = sys:get_state(manager(p), wait_ms()),
    ok = release(Claimer),
    ?assertEqual(slots(p), [answer(Next(), fun() -> ok end) || Next <- [fun first_check/0, fun next_check/0]]),
    ?assertMatch({ok, #{check_failures := 0, restarts := 0}}, weir_pool:info(p)).

checked_workers_are_not_claimed(_Config) ->
    ok = weir_pool:start(p, pool(1, #{check => {asking(), ?HOUR}})),
    check_round(),
    Check = {_, Worker} = next_check(),
    ?assertMatch({ok, #{reserved := 1, claimed := 0}}, weir_pool:info(p)),
    ?assertEqual({error, busy}, weir_pool:claim(p, fun(Pid) -> Pid end)),
    ?assertEqual({ok, Worker}, weir_pool:pick(p)),
    Waiter = weir_kit:start(fun claim/0),
    until(fun() -> info(waiting) =:= 1 end),
    answer(Check, fun() -> ok end),
    ?assertEqual({ok, Worker}, result(Waiter)).

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

%% The next pool has its own checks, and ignores a check of the old pool.
a_check_of_an_old_pool_has_no_effect(_Config) ->
    ok = weir_pool:start(p, pool(1, #{check => {asking(), ?HOUR}})),
    Check = {_, Worker} = first_check(),
    kill_manager(p),
    {ok, New} = claim(),
    ?assertNotEqual(Worker, New),
    answer(Check, fun() -> bad end),
    ?assertEqual(New, check_round(fun() -> ok end)),
    settle(p, 1),
    ?assertEqual(0, info(check_failures)).
