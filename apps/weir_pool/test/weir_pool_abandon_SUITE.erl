%% Claims that are not given back, workers for overflow, and health checks: the work of a pool on its own slots.
-module(weir_pool_abandon_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").
-include("weir_pool_test_signals.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, await_down/1, kill/1, result/1]).
-import(weir_pool_test_lib, [kill_manager/1, manager/1, slots/1, workers/1, settled/2]).
-import(weir_pool_life_lib, [
    pool/1, pool/2, script/2, settle/2, claimer/1, release/1, kill_claimer/1, worker_of/1, slot_of/1, busy/1, idle/1,
    word/2
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

%% ---------------------------------------------------------------- dead claimers

%% The pool does not give the busy worker to another claimer (poolboy's issue 56, pgapp's 20), and does not lose its
%% slot (gproc's 109).
the_worker_of_a_killed_claimer_is_replaced(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(2, Opts)),
            settle(p, 2),
            [First, Second] = [claimer(p), claimer(p)],
            busy(worker_of(First)),
            kill_claimer(First),
            {ok, New} = claim(),
            ?assertNot(lists:member(New, [worker_of(First), worker_of(Second)])),
            await_down(worker_of(First)),
            ?assertEqual(pong, gen_server:call(worker_of(Second), ping)),
            ok = release(Second),
            settle(p, 2),
            await_abandoned(1),
            ?assertMatch({ok, #{restarts := 1}}, weir_pool:info(p)),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{}, ?ASYNC]
    ].

the_worker_of_a_killed_claimer_is_given_out_when_it_is_idle(_Config) ->
    ok = weir_pool:start(p, pool(1, #{abandoned => {wait, 4294967295}})),
    [Worker] = slots(p),
    %% While the worker is busy, no claimer gets it.
    Claimer = claimer(p),
    busy(Worker),
    Test = self(),
    gen_server:cast(Worker, {run, fun() -> Test ! done end}),
    kill_claimer(Claimer),
    Waiter = weir_kit:start(fun claim/0),
    until(fun() -> info(waiting) =:= 1 end),
    abandoned(1),
    ?assertEqual(reserved, word(p, 1)),
    ?assertMatch({ok, #{reserved := 1, claimed := 0, waiting := 1}}, weir_pool:info(p)),
    ?assertEqual({error, busy}, weir_pool:claim(p, fun(Pid) -> Pid end)),
    %% A pick does not care.
    ?assertEqual({ok, Worker}, weir_pool:pick(p)),
    idle(Worker),
    ?assertEqual({ok, Worker}, result(Waiter)),
    receive done -> ok after 0 -> error(given_out_too_early) end,
    %% Idle: it is back at once.
    kill_claimer(claimer(p)),
    ?assertEqual({ok, Worker}, claim()),
    abandoned(2),
    settle(p, 1),
    ?assertMatch({ok, #{restarts := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

the_worker_of_a_killed_claimer_is_replaced_if_it_stays_busy(_Config) ->
    [
        begin
            Worker = {weir_pool_life_worker, Start, []},
            ok = weir_pool:start(p, #{size => 1, worker => Worker, abandoned => {wait, Ms}}),
            Claimer = claimer(p),
            Start =:= start_link andalso busy(worker_of(Claimer)),
            kill_claimer(Claimer),
            {ok, New} = claim(),
            ?assertNotEqual(worker_of(Claimer), New),
            await_down(worker_of(Claimer)),
            ?assertEqual([New], slots(p)),
            ok = weir_pool:stop(p)
        end
     || {Start, Ms} <- [{start_link, 0}, {start_link, 20}, {start_plain, 0}, {start_plain, 20}]
    ].

the_worker_of_a_killed_claimer_is_free_at_once(_Config) ->
    ok = weir_pool:start(p, pool(1, #{abandoned => free})),
    Claimer = claimer(p),
    busy(worker_of(Claimer)),
    kill_claimer(Claimer),
    ?assertEqual({ok, worker_of(Claimer)}, claim()),
    idle(worker_of(Claimer)),
    abandoned(1),
    settle(p, 1),
    ok = weir_pool:stop(p).

%% A pool without workers of its own, and a gen_server or another process that has connected itself under a name.
connected(Abandoned, Start) ->
    ok = weir_pool:start(p, #{worker => none, size => 1, abandoned => Abandoned}),
    {ok, 1} = weir_pool:add_worker(p, a),
    {ok, Member} =
        case Start of
            otp ->
                {ok, Pid} = weir_pool_life_worker:start_link(),
                true = unlink(Pid),
                {ok, 1} = gen_server:call(Pid, {run, fun() -> weir_pool:connect(p, a) end}),
                {ok, Pid};
            plain ->
                Test = self(),
                Pid = spawn(fun() ->
                    Test ! {connected, weir_pool:connect(p, a)},
                    receive stop -> ok end
                end),
                receive {connected, {ok, 1}} -> {ok, Pid} end
        end,
    Member.

disconnected(Member) ->
    manager(p) ! tick,
    until(fun() -> slots(p) =:= [undefined] end),
    ?assert(is_process_alive(Member)),
    ?assertEqual({ok, [{a, 1}]}, weir_pool:added_workers(p)),
    ?assertEqual({error, not_connected}, weir_pool:disconnect(p, a)),
    ok = weir_pool:stop(p),
    kill(Member).

a_connected_process_is_disconnected_when_its_claimer_dies(_Config) ->
    Member = connected(replace, otp),
    kill_claimer(claimer(p)),
    disconnected(Member).

a_connected_process_is_given_out_when_it_is_idle(_Config) ->
    Member = connected({wait, 4294967295}, otp),
    Claimer = claimer(p),
    busy(Member),
    kill_claimer(Claimer),
    abandoned(1),
    ?assertEqual({error, busy}, weir_pool:claim(p, fun(Pid) -> Pid end)),
    idle(Member),
    ?assertEqual({ok, Member}, claim()),
    ok = weir_pool:stop(p),
    kill(Member),
    [
        begin
            Vain = connected({wait, 20}, Start),
            Again = claimer(p),
            Start =:= otp andalso busy(Vain),
            kill_claimer(Again),
            disconnected(Vain)
        end
     || Start <- [otp, plain]
    ].

a_connected_process_is_free_at_once(_Config) ->
    Member = connected(free, plain),
    kill_claimer(claimer(p)),
    ?assertEqual({ok, Member}, claim()),
    ok = weir_pool:stop(p),
    kill(Member).

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
    ok = release(Claimer),
    ok = weir_pool:stop(p).

%% ---------------------------------------------------------------- live claimers

%% The exit passes through, and the pool revokes the claim of the worker that is left busy.
a_claim_whose_call_times_out_is_abandoned(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(1, #{abandoned => Abandoned})),
            [Worker] = slots(p),
            Hang = {run, fun() -> receive idle -> ok end end},
            Result =
                try
                    weir_pool:claim(p, fun(Pid) -> gen_server:call(Pid, Hang, 1) end)
                catch
                    Class:Reason -> {Class, Reason}
                end,
            ?assertEqual({exit, {timeout, {gen_server, call, [Worker, Hang, 1]}}}, Result),
            abandoned(1),
            Expect(Worker),
            ok = weir_pool:stop(p)
        end
     || {Abandoned, Expect} <- [
            {replace, fun(Worker) ->
                {ok, New} = claim(),
                ?assertNotEqual(Worker, New)
            end},
            {{wait, 4294967295}, fun(Worker) ->
                ?assertEqual({error, busy}, weir_pool:claim(p, fun(Pid) -> Pid end)),
                idle(Worker),
                ?assertEqual({ok, Worker}, claim())
            end},
            {{wait, 10}, fun(Worker) ->
                {ok, New} = claim(),
                ?assertNotEqual(Worker, New)
            end},
            {free, fun(Worker) ->
                ?assertEqual({ok, Worker}, claim()),
                idle(Worker)
            end}
        ]
    ].

other_failures_release_the_worker(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    [Worker] = slots(p),
    [
        begin
            Result =
                try
                    weir_pool:claim(p, fun(_) -> ?MODULE:raise(Class, Reason) end)
                catch
                    C:R:Stack -> {C, R, element(2, hd(Stack))}
                end,
            ?assertEqual({Class, Reason, raise}, Result),
            ?assertEqual({ok, Worker}, weir_pool:claim(p, fun(Pid) -> Pid end))
        end
     || {Class, Reason} <- [
            {error, oops},
            {exit, oops},
            {exit, {noproc, x}},
            {throw, {timeout, x}},
            {error, {timeout, x}},
            {exit, timeout},
            {exit, {timeout, x}},
            {exit, {timeout, {gen_server, call, []}}},
            %% Calls that another process did not answer.
            {exit, {timeout, {gen_server, call, [self(), request, 1]}}},
            {exit, {timeout, {gen_server, call, [kernel_sup, request, 1]}}},
            {exit, {timeout, {gen_server, call, [{kernel_sup, node()}, request, 1]}}},
            {exit, {timeout, {gen_server, call, [{kernel_sup, 'elsewhere@nowhere'}, request, 1]}}},
            {exit, {timeout, {gen_server, call, [{global, nobody}, request, 1]}}},
            {exit, {timeout, {gen_server, call, [{via, global, nobody}, request, 1]}}},
            %% Exceptions of another class than exit, with these reasons.
            {throw, {timeout, {gen_server, call, [Worker, request, 1]}}},
            {error, {timeout, {gen_server, call, [Worker, request, 1]}}}
        ]
    ],
    ?assertEqual(0, info(abandoned)),
    ok = weir_pool:stop(p).

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
    until(fun() -> length(workers(p)) =:= 1 end),
    ok = weir_pool:stop(p).

%% A replacement does not wait for a claim that was revoked.
a_replacement_does_not_wait_for_an_abandoned_claim(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(1, #{abandoned => Abandoned, shutdown => brutal_kill})),
            Claimer = claimer(p),
            Replacer = weir_kit:start(fun() -> weir_pool:replace(p, 1) end),
            until(fun() -> word(p, 1) =:= marked end),
            kill_claimer(Claimer),
            manager(p) ! tick,
            ?assertEqual(ok, result(Replacer)),
            ?assertNotEqual([worker_of(Claimer)], slots(p)),
            settle(p, 1),
            %% A call that times out with the slot marked.
            [Worker] = slots(p),
            {Starter, _} = Second = weir_kit:start(fun() ->
                receive go -> weir_pool:replace(p, 1) end
            end),
            Timeout = fun(Pid) ->
                busy(Pid),
                Starter ! go,
                until(fun() -> word(p, 1) =:= marked end),
                gen_server:call(Pid, ping, 1)
            end,
            ?assertExit({timeout, _}, weir_pool:claim(p, Timeout)),
            ?assertEqual(ok, result(Second)),
            await_down(Worker),
            settle(p, 1),
            ok = weir_pool:stop(p)
        end
     || Abandoned <- [replace, {wait, 1000}, free]
    ].

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

abandoned_claims_are_no_restarts(_Config) ->
    ok = weir_pool:start(p, pool(3, #{intensity => 0})),
    Manager = manager(p),
    [kill_claimer(claimer(p)) || _ <- lists:seq(1, 40)],
    abandoned(40),
    settle(p, 3),
    ?assertEqual(Manager, manager(p)),
    ok = weir_pool:stop(p).

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
    settle(p, 1),
    ok = weir_pool:stop(p).

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
                {failed, "gave it back as failed", fun() -> a_failed_one(fun elsewhere/1) end}
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
        Member = connected(replace, plain),
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

%% Starts a task with a claim that covers the work. Returns the task and the process that does the work.
working(Do) ->
    Test = self(),
    Caller = weir_kit:start(fun() ->
        weir_pool:claim(
            p,
            fun(_) ->
                Test ! {working, self()},
                Do()
            end,
            #{covers => work, timeout => infinity}
        )
    end),
    receive {working, Child} -> {Caller, Child} end.

wait_for_ever() -> receive never -> ok end.

a_killed_caller() ->
    {{Pid, _} = Caller, _} = working(fun wait_for_ever/0),
    kill(Caller),
    Pid.

work_that_is_killed() ->
    {{Pid, _} = Caller, Child} = working(fun wait_for_ever/0),
    exit(Child, kill),
    ?assertError({crashed, killed}, result(Caller)),
    Pid.

work_that_is_overdue() ->
    Opts = #{covers => work, timeout => 20},
    ?assertEqual({error, timeout}, weir_pool:claim(p, fun(_) -> wait_for_ever() end, Opts)),
    self().

a_call_in_a_claim(Opts) ->
    Hang = {run, fun wait_for_ever/0},
    ?assertExit({timeout, _}, weir_pool:claim(p, fun(Worker) -> gen_server:call(Worker, Hang, 1) end, Opts)),
    self().

elsewhere(Fun) -> result(weir_kit:start(Fun)).

%% The function By calls another function, in this process or elsewhere.
a_failed_one(By) ->
    {ok, _, Ticket} = weir_pool:checkout(p, 0),
    ?assertEqual(ok, By(fun() -> weir_pool:checkin(p, Ticket, fail) end)),
    self().

%% However the worker was named.
a_claim_of_a_call_by_name_is_abandoned_too(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    lists:foreach(
        fun({N, {Name, Register}}) ->
            settle(p, 1),
            [Old] = workers(p),
            Claim = fun(Worker) ->
                yes = Register(Worker),
                busy(Worker),
                gen_server:call(Name, ping, 1)
            end,
            ?assertExit({timeout, {gen_server, call, [Name, ping, 1]}}, weir_pool:claim(p, Claim)),
            abandoned(N),
            await_down(Old)
        end,
        lists:enumerate([
            {?MODULE, fun register_locally/1},
            {{?MODULE, node()}, fun register_locally/1},
            {{global, ?MODULE}, fun register_globally/1},
            {{via, global, ?MODULE}, fun register_globally/1}
        ])
    ),
    settle(p, 1),
    ok = weir_pool:stop(p).

register_locally(Worker) ->
    true = register(?MODULE, Worker),
    yes.

%% The one before may not have been forgotten yet.
register_globally(Worker) -> global:re_register_name(?MODULE, Worker).

%% The registry of its name may be gone by then. The exit passes through, and the claim ends.
a_callee_that_cannot_be_looked_up_does_not_keep_the_worker(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    [
        begin
            Reason = {timeout, {gen_server, call, [Callee, request, 1]}},
            ?assertExit(Reason, weir_pool:claim(p, fun(_) -> exit(Reason) end)),
            ?assertMatch({ok, _}, claim())
        end
     || Callee <- [{via, no_such_registry, name}, {via, 1, name}]
    ],
    ok = weir_pool:stop(p).

%% ---------------------------------------------------------------- overflow

overflow(Max, Linger) -> #{overflow => #{max => Max, linger => Linger}}.

claims_that_wait_start_workers_for_overflow(_Config) ->
    ok = weir_pool:start(p, pool(2, overflow(3, 3600000))),
    ?assertMatch({ok, #{size := 2, limit := 5, live := 2, vacant := 0}}, weir_pool:info(p)),
    Claimers = [claimer(p) || _ <- lists:seq(1, 5)],
    ?assertEqual([1, 2, 3, 4, 5], lists:sort([slot_of(Claimer) || Claimer <- Claimers])),
    ?assertMatch({ok, #{size := 2, limit := 5, live := 5, vacant := 0, claimed := 5}}, weir_pool:info(p)),
    ?assertEqual({error, timeout}, weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => 30})),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    %% The workers for overflow stay for an hour.
    manager(p) ! tick,
    _ = sys:get_state(manager(p)),
    ?assertMatch({ok, #{live := 5, claimed := 0, restarts := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% The pool refuses the claims, and starts workers for the next ones (pooler's issue 54).
claims_that_do_not_wait_start_workers_for_the_next_claims(_Config) ->
    ok = weir_pool:start(p, pool(1, overflow(2, 3600000))),
    First = claimer(p),
    Claim = fun() -> weir_pool:checkout(p, #{}) end,
    [
        begin
            ?assertEqual({error, busy}, Claim()),
            until(fun() -> info(live) =:= Live end),
            %% A worker can be claimed a moment after it is counted.
            _ = sys:get_state(manager(p)),
            {ok, _, _} = Claim()
        end
     || Live <- [2, 3]
    ],
    ?assertEqual({error, busy}, Claim()),
    ok = release(First),
    ok = weir_pool:stop(p).

%% The claimer had set the flag, and was killed when it was about to tell the manager.
workers_for_overflow_start_though_a_claimer_was_killed(_Config) ->
    ok = weir_pool:start(p, pool(1, overflow(1, 3600000))),
    Claimer = claimer(p),
    ok = atomics:put((weir_pool_terms:pool(p))#pool.signals, ?SIGNAL_GROW, 1),
    ?assertEqual({error, busy}, weir_pool:claim(p, fun(Pid) -> Pid end)),
    manager(p) ! tick,
    until(fun() -> info(live) =:= 2 end),
    ok = release(Claimer),
    ok = weir_pool:stop(p).

%% Workers do not go while they are claimed (poolboy's issues 29 to 89), and not below the size.
workers_for_overflow_stop_when_they_are_released(_Config) ->
    ok = weir_pool:start(p, pool(1, overflow(2, 0))),
    Claimers = [claimer(p) || _ <- [1, 2, 3]],
    [begin manager(p) ! tick, _ = sys:get_state(manager(p)) end || _ <- [1, 2, 3]],
    ?assertEqual(3, info(live)),
    [?assertEqual(pong, gen_server:call(worker_of(Claimer), ping)) || Claimer <- Claimers],
    [Stays] = slots(p),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    settle(p, 1),
    ?assertEqual([Stays], slots(p)),
    %% The workers come again.
    Again = [claimer(p) || _ <- [1, 2, 3]],
    ?assertEqual(0, info(restarts)),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Again],
    settle(p, 1),
    ok = weir_pool:stop(p).

workers_for_overflow_are_not_picked(_Config) ->
    ok = weir_pool:start(p, pool(1, overflow(2, 3600000))),
    Claimers = [claimer(p) || _ <- [1, 2, 3]],
    [Regular] = slots(p),
    ?assertEqual([{ok, Regular}], lists:usort([weir_pool:pick(p) || _ <- lists:seq(1, 50)])),
    ?assertEqual([{ok, Regular}], lists:usort([weir_pool:pick(p, Key) || Key <- lists:seq(1, 50)])),
    ?assertEqual({ok, 1}, weir_pool:broadcast(p, {run, fun() -> ok end})),
    {ok, Workers} = weir_pool:workers(p),
    ?assertEqual([1, 2, 3], [Slot || {Slot, _} <- Workers]),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    ok = weir_pool:stop(p).

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
    [
        begin
            ?assertEqual({error, busy}, weir_pool:checkout(p, 0)),
            _ = sys:get_state(Manager)
        end
     || _ <- lists:seq(1, 100)
    ],
    %% The first wait is 50 ms or more, the second twice as long, and so on.
    ?assert(counters:get(Starts, 1) < 20),
    ?assertEqual(Manager, manager(p)),
    ok = release(Claimer),
    settle(p, 1),
    ok = weir_pool:stop(p).

%% The pool puts the workers back, as their claimers do not release them. The pools wait side by side.
workers_for_overflow_stop_after_abandoned_claims(_Config) ->
    Pools = [
        begin
            ok = weir_pool:start(Abandoned, pool(1, (overflow(2, 0))#{abandoned => Abandoned})),
            {Abandoned, [claimer(Abandoned) || _ <- [1, 2, 3]]}
        end
     || Abandoned <- [{wait, 1000}, free, replace]
    ],
    [claimed_for_long(Name) || {Name, _} <- Pools],
    [kill_claimer(Claimer) || {_, Claimers} <- Pools, Claimer <- Claimers],
    [
        until(fun() ->
            manager(Name) ! tick,
            {ok, Info} = weir_pool:info(Name),
            case Info of
                #{abandoned := 3, live := 1, claimed := 0, reserved := 0} -> true;
                _ -> Info
            end
        end)
     || {Name, _} <- Pools
    ],
    [ok = weir_pool:stop(Name) || {Name, _} <- Pools].

%% Waits for longer than the pool keeps three workers in any case. The manager adds up the times of claims at its ticks.
claimed_for_long(Name) ->
    until(fun() ->
        manager(Name) ! tick,
        {ok, #{claimed_ms := Ms}} = weir_pool:info(Name),
        Ms > 3 * 1100
    end).

%% The releaser had set the flag, and was killed when it was about to tell the manager.
workers_for_overflow_stop_though_a_releaser_was_killed(_Config) ->
    ok = weir_pool:start(p, pool(1, overflow(2, 0))),
    Claimers = [claimer(p) || _ <- [1, 2, 3]],
    claimed_for_long(p),
    ok = atomics:put((weir_pool_terms:pool(p))#pool.signals, ?SIGNAL_IDLE, 1),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    settle(p, 1),
    ok = weir_pool:stop(p).

%% A worker that is checked is not used.
workers_for_overflow_stop_though_they_are_checked(_Config) ->
    ok = weir_pool:start(p, pool(1, (overflow(2, 400))#{check => {fun(_) -> ok end, 50}})),
    Claimers = [claimer(p) || _ <- [1, 2, 3]],
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    settle(p, 1),
    ok = weir_pool:stop(p).

%% A pool of size 0 starts without workers.
a_pool_of_size_0_starts_workers_on_demand(_Config) ->
    [
        begin
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
            ?assertEqual([], slots(p)),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{}, #{intensity => 0}, ?ASYNC]
    ].

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

a_failed_check_replaces_the_worker(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(1, Opts#{check => {asking(), ?HOUR}})),
            settle(p, 1),
            [Worker] = slots(p),
            [?assertEqual(Worker, check_round(fun() -> Good end)) || Good <- [ok, true, ok]],
            ?assertEqual(Worker, check_round(fun() -> bad end)),
            until(fun() -> slots(p) =/= [Worker] andalso settled(p, 1) end),
            await_down(Worker),
            ?assertMatch({ok, #{check_failures := 1, restarts := 1, abandoned := 0}}, weir_pool:info(p)),
            ?assertEqual(slots(p), [check_round(fun() -> ok end)]),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{intensity => 0}, ?ASYNC]
    ].

each_result_but_ok_and_true_fails_a_check(_Config) ->
    ok = weir_pool:start(p, pool(1, #{check => {asking(), ?HOUR}, intensity => 0})),
    [
        begin
            [Worker] = slots(p),
            ?assertEqual(Worker, check_round(Fail)),
            until(fun() -> slots(p) =/= [Worker] andalso settled(p, 1) end)
        end
     || Fail <- [
            fun() -> false end,
            fun() -> {error, gone} end,
            fun() -> error(oops) end,
            fun() -> throw(ok) end,
            fun() -> exit(ok) end,
            fun() -> exit(normal) end,
            fun() -> exit({done, no}) end,
            fun() -> exit(self(), kill) end
        ]
    ],
    ?assertEqual(8, info(check_failures)),
    ok = weir_pool:stop(p).

%% Checks come by themselves. A check that hangs has as much time as is between two rounds.
a_check_that_hangs_is_killed_and_fails(_Config) ->
    ok = weir_pool:start(p, pool(1, #{check => {asking(), 20}, intensity => 0})),
    [
        begin
            {Checker, Worker} = next_check(),
            await_down(Checker),
            await_down(Worker)
        end
     || _ <- [1, 2, 3]
    ],
    until(fun() -> info(check_failures) >= 3 end),
    ok = weir_pool:stop(p).

claimed_workers_are_not_checked(_Config) ->
    ok = weir_pool:start(p, pool(2, #{check => {asking(), ?HOUR}})),
    Claimer = claimer(p),
    [Other] = slots(p) -- [worker_of(Claimer)],
    [?assertEqual(Other, check_round(fun() -> ok end)) || _ <- [1, 2, 3]],
    %% The manager has heard of the last round.
    until(fun() -> info(reserved) =:= 0 end),
    _ = sys:get_state(manager(p)),
    ok = release(Claimer),
    ?assertEqual(slots(p), [answer(Next(), fun() -> ok end) || Next <- [fun first_check/0, fun next_check/0]]),
    ?assertMatch({ok, #{check_failures := 0, restarts := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

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
    ?assertEqual({ok, Worker}, result(Waiter)),
    ok = weir_pool:stop(p).

the_check_of_a_dead_worker_has_no_effect(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(2, Opts#{check => {asking(), ?HOUR}})),
            settle(p, 2),
            check_round(),
            Check = {_, Worker} = next_check(),
            kill(Worker),
            until(fun() -> settled(p, 2) andalso not lists:member(Worker, slots(p)) end),
            answer(Check, fun() -> bad end),
            %% The check of the other worker follows: the result of the first check was stale.
            answer(next_check(), fun() -> ok end),
            settle(p, 2),
            ?assertEqual(0, info(check_failures)),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{}, ?ASYNC]
    ].

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
            _ = sys:get_state(manager(p)),
            ?assertEqual(1, info(reserved)),
            answer(Check, fun() -> ok end)
        end
     || _ <- [1, 2, 3, 4]
    ],
    ?assertEqual([Pid || {_, Pid} <- Workers], Checked),
    ok = weir_pool:stop(p).

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
    ?assertEqual(0, info(check_failures)),
    ok = weir_pool:stop(p).

%% ---------------------------------------------------------------- all of it

%% No worker has two holders that are alive, and in the end all workers are back.
no_worker_has_two_holders_under_kills_changes_and_checks(_Config) ->
    [
        begin
            Held = ets:new(held, [public]),
            Check = fun(_) -> rand:uniform(20) > 1 end,
            Opts = #{
                intensity => 1000000, abandoned => Abandoned, overflow => #{max => 2, linger => 0}, check => {Check, 5}
            },
            ok = weir_pool:start(p, pool(4, Opts)),
            Test = self(),
            Claimers = [spawn(fun() -> claim_often(Held, Test) end) || _ <- lists:seq(1, 60)],
            rand:seed(exsss, {4, 5, 6}),
            [disturb(N, Claimers) || N <- lists:seq(1, 80)],
            [kill(Pid) || Pid <- Claimers],
            weir_kit:none(claimed_twice, [What || {twice, What} <- weir_kit:take_messages()]),
            until(fun() ->
                {ok, Info} = weir_pool:info(p),
                case Info of
                    #{claimed := 0, waiting := 0, live := 4, vacant := 0} -> settled(p, 4);
                    _ -> Info
                end
            end),
            ok = weir_pool:stop(p)
        end
     || Abandoned <- [replace, {wait, 100}]
    ].

claim_often(Held, Test) ->
    _ = weir_pool:claim(p, fun(Worker) -> hold(Worker, Held, Test) end, #{timeout => 50}),
    claim_often(Held, Test).

%% Enters itself under the worker. An entry of a dead process does not count.
hold(Worker, Held, Test) ->
    case ets:lookup(Held, Worker) of
        [{_, Other}] when Other =/= self() -> is_process_alive(Other) andalso (Test ! {twice, {Worker, self(), Other}});
        _ -> ok
    end,
    true = ets:insert(Held, {Worker, self()}),
    erlang:yield(),
    case ets:lookup(Held, Worker) of
        [{_, Self}] when Self =:= self() -> ok;
        Changed -> Test ! {twice, {Worker, self(), Changed}}
    end,
    ets:delete(Held, Worker).

disturb(N, Claimers) ->
    case rand:uniform(10) of
        1 when N rem 4 =:= 0 -> kill_manager(p);
        2 -> _ = weir_pool:resize(p, 4);
        3 -> _ = weir_pool:resize(p, 2 + rand:uniform(6));
        4 -> spawn(fun() -> weir_pool:replace(p, rand:uniform(4)) end);
        5 -> [exit(Pid, kill) || {_, Pid} <- lists:sublist(element(2, weir_pool:workers(p)), 1)];
        _ -> exit(lists:nth(rand:uniform(length(Claimers)), Claimers), kill)
    end,
    N =:= 80 andalso weir_pool:resize(p, 4).
