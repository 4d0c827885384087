%% Claims that nobody gives back, workers for overflow, and health checks: what the pool does with its slots by itself.
-module(weir_pool_abandon_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    killed_claimer_replace/1,
    killed_claimer_wait/1,
    killed_claimer_wait_in_vain/1,
    killed_claimer_free/1,
    connected_replace/1,
    connected_wait/1,
    connected_free/1,
    a_claimer_that_ends/1,
    a_call_that_times_out/1,
    other_failures_release/1,
    temporary_workers_are_replaced_too/1,
    abandoned_while_a_replacement_waits/1,
    many_abandoned_claims/1,
    replacements_that_cannot_start/1,
    the_worker_dies_while_it_is_waited_for/1,
    keeper_killed_while_a_worker_is_waited_for/1,
    keeper_killed_and_claimers_too/1,
    overflow_starts_under_pressure/1,
    overflow_for_claims_that_do_not_wait/1,
    overflow_goes/1,
    overflow_is_not_picked/1,
    overflow_that_cannot_start/1,
    overflow_workers_die/1,
    overflow_is_abandoned/1,
    checks_replace/1,
    checks_that_fail_otherwise/1,
    a_check_that_hangs/1,
    claimed_workers_are_not_checked/1,
    checked_workers_are_not_claimed/1,
    a_worker_dies_under_check/1,
    checks_of_all_workers/1,
    checks_and_the_manager/1,
    strays/1,
    claims_and_kills_at_once/1
]).

-import(weir_pool_test_lib, [
    eventually/1, kill/1, kill_manager/1, await_down/1, sup/1, manager/1, slots/1, workers/1, settled/2
]).
-import(weir_pool_life_lib, [
    pool/1, pool/2, script/2, slot_sups/1, settle/2, claimer/1, release/1, kill_claimer/1, worker_of/1, slot_of/1,
    busy/1, idle/1, run/1, result/1, word/2, entry/2, workers_alive/0
]).

suite() -> [{timetrap, {seconds, 120}}].

all() ->
    [
        killed_claimer_replace,
        killed_claimer_wait,
        killed_claimer_wait_in_vain,
        killed_claimer_free,
        connected_replace,
        connected_wait,
        connected_free,
        a_claimer_that_ends,
        a_call_that_times_out,
        other_failures_release,
        temporary_workers_are_replaced_too,
        abandoned_while_a_replacement_waits,
        many_abandoned_claims,
        replacements_that_cannot_start,
        the_worker_dies_while_it_is_waited_for,
        keeper_killed_while_a_worker_is_waited_for,
        keeper_killed_and_claimers_too,
        overflow_starts_under_pressure,
        overflow_for_claims_that_do_not_wait,
        overflow_goes,
        overflow_is_not_picked,
        overflow_that_cannot_start,
        overflow_workers_die,
        overflow_is_abandoned,
        checks_replace,
        checks_that_fail_otherwise,
        a_check_that_hangs,
        claimed_workers_are_not_checked,
        checked_workers_are_not_claimed,
        a_worker_dies_under_check,
        checks_of_all_workers,
        checks_and_the_keeper,
        strays,
        claims_and_kills_at_once
    ].

init_per_suite(Config) -> weir_pool_test_lib:quiet(Config).

end_per_suite(Config) -> weir_pool_test_lib:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, _Config) -> weir_pool_test_lib:teardown().

-define(ASYNC, #{start => async, backoff => {1, 4}}).

%% The pid that a claim gets that may wait.
claim() -> weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => 30000}).

%% As does the pool when somebody has waited for long.
press() -> weir_pool_manager:pressed(weir_pool_terms:pool(p)).

abandoned(N) ->
    eventually(fun() ->
        {ok, #{abandoned := Abandoned}} = weir_pool:info(p),
        Abandoned =:= N orelse {abandoned, Abandoned}
    end).

info(Key) ->
    {ok, #{Key := Value}} = weir_pool:info(p),
    Value.

%% ---------------------------------------------------------------- dead claimers

%% The busy worker is not given to anybody again (poolboy's issue 56, pgapp's 20), and is no loss (gproc's 109).
killed_claimer_replace(_Config) ->
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
            abandoned(1),
            ?assertMatch({ok, #{restarts := 1}}, weir_pool:info(p)),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{}, ?ASYNC, #{overflow => #{max => 1, linger => 0}}]
    ].

killed_claimer_wait(_Config) ->
    ok = weir_pool:start(p, pool(1, #{abandoned => {wait, 4294967295}})),
    [Worker] = slots(p),
    %% Busy: nobody gets it before it is done.
    Claimer = claimer(p),
    busy(Worker),
    Test = self(),
    gen_server:cast(Worker, {run, fun() -> Test ! done end}),
    kill_claimer(Claimer),
    Waiter = run(fun claim/0),
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

killed_claimer_wait_in_vain(_Config) ->
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

killed_claimer_free(_Config) ->
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
    ok = weir_pool:start(p, #{size => 1, abandoned => Abandoned}),
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
    eventually(fun() -> slots(p) =:= [undefined] end),
    ?assert(is_process_alive(Member)),
    ?assertEqual({ok, [{a, 1}]}, weir_pool:added_workers(p)),
    ?assertEqual({error, not_connected}, weir_pool:disconnect(p, a)),
    %% Not connected again by a keeper that knows less.
    Old = manager(p),
    kill(Old),
    eventually(fun() -> manager(p) =/= Old end),
    _ = sys:get_state(manager(p)),
    ?assertEqual([undefined], slots(p)),
    ok = weir_pool:stop(p),
    kill(Member).

connected_replace(_Config) ->
    Member = connected(replace, otp),
    kill_claimer(claimer(p)),
    disconnected(Member).

connected_wait(_Config) ->
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

connected_free(_Config) ->
    Member = connected(free, plain),
    kill_claimer(claimer(p)),
    ?assertEqual({ok, Member}, claim()),
    ok = weir_pool:stop(p),
    kill(Member).

%% Without giving back what it had.
a_claimer_that_ends(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    {ok, Worker, _Ticket} = result(run(fun() -> weir_pool:checkout(p, #{}) end)),
    {ok, New} = claim(),
    ?assertNotEqual(Worker, New),
    abandoned(1),
    ok = weir_pool:stop(p).

%% ---------------------------------------------------------------- live claimers

%% The exit passes through, and the worker that is left busy is nobody's.
a_call_that_times_out(_Config) ->
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

other_failures_release(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    [Worker] = slots(p),
    [
        begin
            Result =
                try
                    weir_pool:claim(p, fun(_) -> erlang:raise(Class, Reason, []) end)
                catch
                    C:R -> {C, R}
                end,
            ?assertEqual({Class, Reason}, Result),
            ?assertEqual({ok, Worker}, weir_pool:claim(p, fun(Pid) -> Pid end))
        end
     || {Class, Reason} <- [
            {error, oops}, {exit, oops}, {exit, {noproc, x}}, {throw, {timeout, x}}, {error, {timeout, x}}
        ]
    ],
    ?assertEqual(0, info(abandoned)),
    ok = weir_pool:stop(p).

%% That is no restart in the sense of the option.
temporary_workers_are_replaced_too(_Config) ->
    ok = weir_pool:start(p, pool(2, #{restart => temporary})),
    Claimer = claimer(p),
    kill_claimer(Claimer),
    abandoned(1),
    settle(p, 2),
    kill(hd(workers(p))),
    eventually(fun() -> length(workers(p)) =:= 1 end),
    ok = weir_pool:stop(p).

%% It is not waited for any longer, then; and its claim, if it is not the holder but the keeper that ends it.
abandoned_while_a_replacement_waits(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(1, #{abandoned => Abandoned, shutdown => brutal_kill})),
            Claimer = claimer(p),
            Replacer = run(fun() -> weir_pool:replace(p, 1) end),
            eventually(fun() -> word(p, 1) =:= marked end),
            kill_claimer(Claimer),
            ?assertEqual(ok, result(Replacer)),
            ?assertNotEqual([worker_of(Claimer)], slots(p)),
            settle(p, 1),
            %% A call that times out with the slot marked.
            [Worker] = slots(p),
            Second = run(fun() ->
                receive
                    go -> weir_pool:replace(p, 1)
                end
            end),
            Timeout = fun(Pid) ->
                busy(Pid),
                Second ! go,
                eventually(fun() -> word(p, 1) =:= marked end),
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

many_abandoned_claims(_Config) ->
    ok = weir_pool:start(p, pool(3, #{intensity => 0})),
    Sup = sup(p),
    [kill_claimer(claimer(p)) || _ <- lists:seq(1, 40)],
    abandoned(40),
    settle(p, 3),
    ?assertEqual(Sup, sup(p)),
    ok = weir_pool:stop(p).

%% Those count, if the pool counts at all.
replacements_that_cannot_start(_Config) ->
    Good = atomics:new(1, []),
    Script = fun() ->
        case atomics:get(Good, 1) of
            0 -> start;
            1 -> {error, down}
        end
    end,
    ok = weir_pool:start(p, (script(1, Script))#{intensity => 0}),
    Sup = sup(p),
    Claimer = claimer(p),
    atomics:put(Good, 1, 1),
    kill_claimer(Claimer),
    await_down(Sup),
    atomics:put(Good, 1, 0),
    eventually(fun() -> weir_pool:start(p, maps:merge(script(1, Script), ?ASYNC)) =:= ok end),
    settle(p, 1),
    Again = claimer(p),
    atomics:put(Good, 1, 1),
    kill_claimer(Again),
    eventually(fun() -> info(start_failures) > 5 end),
    atomics:put(Good, 1, 0),
    settle(p, 1),
    ok = weir_pool:stop(p).

the_worker_dies_while_it_is_waited_for(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(1, Opts#{abandoned => {wait, 4294967295}})),
            settle(p, 1),
            Claimer = claimer(p),
            busy(worker_of(Claimer)),
            kill_claimer(Claimer),
            abandoned(1),
            kill(worker_of(Claimer)),
            {ok, New} = claim(),
            ?assertNotEqual(worker_of(Claimer), New),
            settle(p, 1),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{}, ?ASYNC]
    ].

%% The next keeper does not know why the slot is held, and does not give it away.
keeper_killed_while_a_worker_is_waited_for(_Config) ->
    ok = weir_pool:start(p, pool(1, #{abandoned => {wait, 4294967295}})),
    Claimer = claimer(p),
    busy(worker_of(Claimer)),
    kill_claimer(Claimer),
    abandoned(1),
    [
        begin
            kill_manager(p),
            ?assertEqual({error, busy}, weir_pool:claim(p, fun(Pid) -> Pid end))
        end
     || _ <- [1, 2, 3]
    ],
    idle(worker_of(Claimer)),
    ?assertEqual({ok, worker_of(Claimer)}, claim()),
    settle(p, 1),
    ok = weir_pool:stop(p).

keeper_killed_and_claimers_too(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(4, #{abandoned => Abandoned})),
            Claimers = [claimer(p) || _ <- [1, 2, 3, 4]],
            ok = sys:suspend(sup(p)),
            Old = manager(p),
            kill(Old),
            {Killed, Released} = lists:split(2, Claimers),
            [kill_claimer(Claimer) || Claimer <- Killed],
            [?assertEqual(ok, release(Claimer)) || Claimer <- Released],
            ok = sys:resume(sup(p)),
            eventually(fun() -> manager(p) =/= Old end),
            abandoned(2),
            settle(p, 4),
            ok = weir_pool:stop(p)
        end
     || Abandoned <- [replace, {wait, 1000}, free]
    ].

%% ---------------------------------------------------------------- overflow

overflow(Max, Linger) -> #{overflow => #{max => Max, linger => Linger}}.

overflow_starts_under_pressure(_Config) ->
    ok = weir_pool:start(p, pool(2, overflow(3, 3600000))),
    ?assertMatch({ok, #{size := 2, limit := 5, live := 2, vacant := 0}}, weir_pool:info(p)),
    Claimers = [claimer(p) || _ <- lists:seq(1, 5)],
    ?assertEqual([1, 2, 3, 4, 5], lists:sort([slot_of(Claimer) || Claimer <- Claimers])),
    ?assertMatch({ok, #{size := 2, limit := 5, live := 5, vacant := 0, claimed := 5}}, weir_pool:info(p)),
    ?assertEqual({error, timeout}, weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => 30})),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    %% They stay for an hour.
    manager(p) ! sweep,
    _ = sys:get_state(manager(p)),
    ?assertMatch({ok, #{live := 5, claimed := 0, restarts := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% They are refused, and the pool takes the hint (pooler's issue 54).
overflow_for_claims_that_do_not_wait(_Config) ->
    ok = weir_pool:start(p, pool(1, overflow(2, 3600000))),
    First = claimer(p),
    Claim = fun() -> weir_pool:checkout(p, #{}) end,
    [
        begin
            ?assertEqual({error, busy}, Claim()),
            eventually(fun() -> info(live) =:= Live end),
            {ok, _, _} = Claim()
        end
     || Live <- [2, 3]
    ],
    ?assertEqual({error, busy}, Claim()),
    ok = release(First),
    ok = weir_pool:stop(p).

%% Not while they are used (poolboy's issues 29 to 89), and not below the size.
overflow_goes(_Config) ->
    ok = weir_pool:start(p, pool(1, overflow(2, 0))),
    Claimers = [claimer(p) || _ <- [1, 2, 3]],
    [begin manager(p) ! sweep, _ = sys:get_state(manager(p)) end || _ <- [1, 2, 3]],
    ?assertEqual(3, info(live)),
    [?assertEqual(pong, gen_server:call(worker_of(Claimer), ping)) || Claimer <- Claimers],
    [Stays] = slots(p),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    settle(p, 1),
    ?assertEqual([Stays], slots(p)),
    %% And come again.
    Again = [claimer(p) || _ <- [1, 2, 3]],
    ?assertEqual(0, info(restarts)),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Again],
    settle(p, 1),
    ok = weir_pool:stop(p).

overflow_is_not_picked(_Config) ->
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

%% It ends nothing, and is not tried all the time.
overflow_that_cannot_start(_Config) ->
    Starts = counters:new(1, []),
    Script = fun() ->
        counters:add(Starts, 1, 1),
        case counters:get(Starts, 1) of
            1 -> start;
            _ -> {error, down}
        end
    end,
    ok = weir_pool:start(p, maps:merge(script(1, Script), (overflow(1, 0))#{intensity => 0})),
    Sup = sup(p),
    Claimer = claimer(p),
    ?assertEqual({error, timeout}, weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => 30})),
    eventually(fun() -> info(start_failures) >= 1 end),
    [begin press(), _ = sys:get_state(manager(p)) end || _ <- lists:seq(1, 100)],
    %% The first wait is 50 ms or more, the second twice as long, and so on.
    ?assert(counters:get(Starts, 1) < 20),
    ?assertEqual(Sup, sup(p)),
    ok = release(Claimer),
    settle(p, 1),
    ok = weir_pool:stop(p).

overflow_workers_die(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(1, maps:merge(Opts, overflow(2, 3600000)))),
            Claimers = [claimer(p) || _ <- [1, 2, 3]],
            [kill(worker_of(Claimer)) || Claimer <- Claimers],
            eventually(fun() -> info(claimed) =:= 0 end),
            [?assertEqual({error, not_held}, release(Claimer)) || Claimer <- Claimers],
            More = [claimer(p) || _ <- [1, 2, 3]],
            [kill(Sup) || Sup <- slot_sups(p)],
            eventually(fun() -> info(claimed) =:= 0 end),
            [?assertEqual({error, not_held}, release(Claimer)) || Claimer <- More],
            Last = [claimer(p) || _ <- [1, 2, 3]],
            [?assertEqual(ok, release(Claimer)) || Claimer <- Last],
            ?assertEqual(3, length(workers_alive())),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{}, ?ASYNC]
    ].

overflow_is_abandoned(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(1, (overflow(2, 0))#{abandoned => Abandoned})),
            Claimers = [claimer(p) || _ <- [1, 2, 3]],
            [kill_claimer(Claimer) || Claimer <- Claimers],
            abandoned(3),
            settle(p, 1),
            ok = weir_pool:stop(p)
        end
     || Abandoned <- [replace, {wait, 1000}, free]
    ].

%% ---------------------------------------------------------------- checks

%% A check that asks this process: {checking, Checker, Worker}, and the answer is what is sent to the checker. Rounds
%% are an hour apart, but for those that this process begins: a busy machine makes no check fail.
-define(HOUR, 3600000).

asking() ->
    Test = self(),
    fun(Worker) ->
        Test ! {checking, self(), Worker},
        receive
            {answer, Answer} -> Answer()
        end
    end.

check_round() -> manager(p) ! check_round.

next_check() ->
    receive
        {checking, Checker, Worker} -> {Checker, Worker}
    end.

answer({Checker, Worker}, Answer) ->
    Checker ! {answer, Answer},
    await_down(Checker),
    Worker.

%% The next check, and its answer.
check_round(Answer) ->
    check_round(),
    answer(next_check(), Answer).

checks_replace(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(1, Opts#{check => {asking(), ?HOUR}})),
            settle(p, 1),
            [Worker] = slots(p),
            [?assertEqual(Worker, check_round(fun() -> Good end)) || Good <- [ok, true, ok]],
            ?assertEqual(Worker, check_round(fun() -> bad end)),
            eventually(fun() -> settled(p, 1) andalso slots(p) =/= [Worker] end),
            await_down(Worker),
            ?assertMatch({ok, #{check_failures := 1, restarts := 1, abandoned := 0}}, weir_pool:info(p)),
            ?assertEqual(slots(p), [check_round(fun() -> ok end)]),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{intensity => 0}, ?ASYNC]
    ].

checks_that_fail_otherwise(_Config) ->
    ok = weir_pool:start(p, pool(1, #{check => {asking(), ?HOUR}, intensity => 0})),
    [
        begin
            [Worker] = slots(p),
            ?assertEqual(Worker, check_round(Fail)),
            eventually(fun() -> settled(p, 1) andalso slots(p) =/= [Worker] end)
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

%% They come by themselves, and one that hangs is given as long as there is between two rounds.
a_check_that_hangs(_Config) ->
    ok = weir_pool:start(p, pool(1, #{check => {asking(), 20}, intensity => 0})),
    [
        begin
            {Checker, Worker} = next_check(),
            await_down(Checker),
            await_down(Worker)
        end
     || _ <- [1, 2, 3]
    ],
    eventually(fun() -> info(check_failures) >= 3 end),
    ok = weir_pool:stop(p).

claimed_workers_are_not_checked(_Config) ->
    ok = weir_pool:start(p, pool(2, #{check => {asking(), ?HOUR}})),
    Claimer = claimer(p),
    [Other] = slots(p) -- [worker_of(Claimer)],
    [?assertEqual(Other, check_round(fun() -> ok end)) || _ <- [1, 2, 3]],
    ok = release(Claimer),
    check_round(),
    ?assertEqual(slots(p), [answer(next_check(), fun() -> ok end) || _ <- [1, 2]]),
    ?assertMatch({ok, #{check_failures := 0, restarts := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

checked_workers_are_not_claimed(_Config) ->
    ok = weir_pool:start(p, pool(1, #{check => {asking(), ?HOUR}})),
    check_round(),
    Check = {_, Worker} = next_check(),
    ?assertMatch({ok, #{reserved := 1, claimed := 0}}, weir_pool:info(p)),
    ?assertEqual({error, busy}, weir_pool:claim(p, fun(Pid) -> Pid end)),
    ?assertEqual({ok, Worker}, weir_pool:pick(p)),
    Waiter = run(fun claim/0),
    eventually(fun() -> info(waiting) =:= 1 end),
    answer(Check, fun() -> ok end),
    ?assertEqual({ok, Worker}, result(Waiter)),
    ok = weir_pool:stop(p).

a_worker_dies_under_check(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(2, Opts#{check => {asking(), ?HOUR}})),
            settle(p, 2),
            check_round(),
            Check = {_, Worker} = next_check(),
            kill(Worker),
            eventually(fun() -> settled(p, 2) andalso not lists:member(Worker, slots(p)) end),
            answer(Check, fun() -> bad end),
            %% The other one's turn: the result of the first was void.
            answer(next_check(), fun() -> ok end),
            settle(p, 2),
            ?assertEqual(0, info(check_failures)),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{}, ?ASYNC]
    ].

%% One after the other, those for overflow too. A round that is under way is not begun again.
checks_of_all_workers(_Config) ->
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
            ?assertEqual(1, info(held)),
            answer(Check, fun() -> ok end)
        end
     || _ <- [1, 2, 3, 4]
    ],
    ?assertEqual([Pid || {_, Pid} <- Workers], Checked),
    ok = weir_pool:stop(p).

%% A slot that was held for a check comes back, and checks go on.
checks_and_the_keeper(_Config) ->
    ok = weir_pool:start(p, pool(1, #{check => {asking(), ?HOUR}})),
    check_round(),
    Check = {_, Worker} = next_check(),
    kill_manager(p),
    ?assertEqual({ok, Worker}, claim()),
    answer(Check, fun() -> bad end),
    ?assertEqual(Worker, check_round(fun() -> ok end)),
    settle(p, 1),
    ?assertEqual(0, info(check_failures)),
    ok = weir_pool:stop(p).

%% Messages that are late, or from nowhere.
strays(_Config) ->
    ok = weir_pool:start(p, pool(2)),
    {Before, Keeper} = {slots(p), manager(p)},
    Pool = weir_pool_terms:pool(p),
    Ref = make_ref(),
    [
        Keeper ! Stray
     || Stray <- [
            check_round,
            {checked, Ref, process, self(), {done, ok}},
            {check_overdue, self()},
            {{probed, 1}, Ref, process, self(), {done, false}},
            {{probed, 9}, Ref, process, self(), {done, true}},
            {{drained, 1}, Ref, process, self(), {done, true}},
            drain_timeout,
            {timeout, Ref, {start, 1}},
            {timeout, Ref, {start, 9}},
            {{started, 9, fill, Ref}, Ref, process, self(), {done, {error, no}}},
            {{started, 1, fill, Ref}, Ref, process, self(), killed},
            {{started, 1, resize, Ref}, Ref, process, self(), {done, {error, no}}},
            {{down, 1}, Ref, process, self(), killed},
            {{sup_down, 9}, Ref, process, self(), shutdown},
            {{retired, self()}, Ref, process, self(), {done, ok}}
        ]
    ],
    ok = weir_pool_manager:released(Pool, 1),
    ok = weir_pool_manager:released(Pool, 9),
    ok = weir_pool_manager:abandon(Pool, 1, weir_pool_word:read(Pool, 1) + 1),
    ok = weir_pool_manager:pressed(Pool),
    ok = weir_pool_manager:connected(p, weir_pool_terms:id(Pool), 1, self()),
    ok = weir_pool_manager:connected(p, weir_pool_terms:id(Pool), 9, self()),
    ok = weir_pool_manager:start_failed(p, weir_pool_terms:id(Pool), 9),
    _ = sys:get_state(Keeper),
    ?assertEqual({Before, Keeper}, {slots(p), manager(p)}),
    settle(p, 2),
    %% Those of a namesake.
    ok = weir_pool:stop(p),
    ok = weir_pool:start(p, pool(1)),
    Claimer = claimer(p),
    ok = weir_pool_manager:released(Pool, 1),
    ok = weir_pool_manager:abandon(Pool, 1, weir_pool_word:read(weir_pool_terms:pool(p), 1)),
    _ = sys:get_state(manager(p)),
    ?assertEqual(taken, word(p, 1)),
    ok = release(Claimer),
    ok = weir_pool:stop(p).

%% ---------------------------------------------------------------- all of it

%% Nobody ever has a worker that somebody else has who is alive, and in the end everything is back.
claims_and_kills_at_once(_Config) ->
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
            receive
                {twice, What} -> error({twice, What})
            after 0 -> ok
            end,
            eventually(fun() ->
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

%% Enters itself under the worker. An entry of a process that is dead is of nobody.
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
