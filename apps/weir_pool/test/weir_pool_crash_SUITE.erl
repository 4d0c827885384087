%% Deaths of each process: what they leave behind, and how the pool mends itself.
-module(weir_pool_crash_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, await_down/1, kill/1, result/1, wait_ms/0]).
-import(weir_pool_test_lib, [
    kill_manager/1, manager/1, queue/1, slots/1, workers/1, settled/2, start_parent/1, opts/1, script/2,
    blocked_after/1, await_blocked/0, stop_parent/1, leftovers/0, nothing_left_soon/0
]).
-import(weir_pool_life_lib, [pool/1, slot_sup/2, settle/2, claimer/1, release/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

%% ---------------------------------------------------------------- workers

the_slot_of_a_dead_worker_is_vacant_at_once(_Config) ->
    ok = weir_pool:start(p, script(3, blocked_after(3))),
    [A, B, C] = slots(p),
    %% Neither start waits for the other.
    Sups = [
        begin
            kill(Pid),
            await_blocked()
        end
     || Pid <- [A, B]
    ],
    until(fun() -> slots(p) =:= [undefined, undefined, C] end),
    ?assertEqual([{ok, C}], lists:usort([weir_pool:pick(p) || _ <- lists:seq(1, 10)])),
    [Sup ! go || Sup <- Sups],
    until(fun() -> settled(p, 3) end).

%% The manager hears of a death after it has heard of the successor.
late_messages_about_dead_workers_have_no_effect(_Config) ->
    ok = weir_pool:start(p, opts(2)),
    [A, B] = slots(p),
    {Manager, Sup} = {manager(p), slot_sup(p, 1)},
    kill(A),
    until(fun() -> settled(p, 2) end),
    [New, B] = slots(p),
    %% Both pieces of news wait until the manager goes on.
    ok = sys:suspend(Manager, wait_ms()),
    kill(New),
    until(fun() -> not lists:member(supervised(Sup), [New, restarting]) end),
    Next = supervised(Sup),
    ?assertEqual([New, B], slots(p)),
    ok = sys:resume(Manager, wait_ms()),
    until(fun() -> slots(p) =:= [Next, B] end),
    ?assert(settled(p, 2)),
    ?assertMatch({ok, #{restarts := 2}}, weir_pool:info(p)).

%% The worker of a slot's supervisor, whatever the manager has heard.
supervised(Sup) ->
    [{_Slot, Worker, worker, _}] = supervisor:which_children(Sup),
    Worker.

%% ---------------------------------------------------------------- supervisors of workers

%% Workers that heed neither their link nor their supervisor, and announce themselves.
stubborn(Size, Shutdown) ->
    Test = self(),
    Script = fun() ->
        {ok, Worker} = weir_pool_test_worker:start_stubborn(),
        Test ! {stubborn, Worker},
        {ok, Worker}
    end,
    (script(Size, Script))#{shutdown => Shutdown}.

%% Raises a fault if a stubborn worker that was started so far is alive.
no_stubborn() ->
    weir_kit:none(leaked, [Worker || {stubborn, Worker} <- weir_kit:take_messages(), is_process_alive(Worker)]).

%% The manager kills it and starts another, whether it has time for that or the pool stops.
a_worker_that_outlives_its_supervisor_is_killed(_Config) ->
    ok = weir_pool:start(p, stubborn(2, 1)),
    [A, B] = slots(p),
    kill(slot_sup(p, 1)),
    await_down(A),
    until(fun() -> settled(p, 2) end),
    ?assertMatch([New, B] when New =/= A, slots(p)),
    ?assertMatch({ok, #{restarts := 1}}, weir_pool:info(p)),
    ok = weir_pool:stop(p),
    no_stubborn().

%% The supervisor dies while it stops its worker, or just before, so that the manager has not heard of its death.
a_pool_that_stops_kills_a_worker_that_outlives_its_supervisor(_Config) ->
    ok = weir_pool:start(p, stubborn(1, 20000)),
    Sup = slot_sup(p, 1),
    Stopper = weir_kit:start(fun() -> weir_pool:stop(p) end),
    until(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    weir_kit:until_waiting(Sup),
    kill(Sup),
    ?assertEqual(ok, result(Stopper)),
    no_stubborn(),
    ok = weir_pool:start(p, stubborn(1, 1)),
    Second = slot_sup(p, 1),
    ok = sys:suspend(manager(p), wait_ms()),
    kill(Second),
    ok = weir_pool:stop(p),
    no_stubborn().

%% ---------------------------------------------------------------- managers and queues

%% The manager has lost its queue, and waits for its worker to stop, when another process stops the pool.
a_pool_that_is_stopped_while_it_crashes_does_not_come_back(_Config) ->
    Test = self(),
    %% The test decides when the first worker stops. Later workers, if any, stop at once.
    Stopping = spawn_link(fun() ->
        receive {stopping, _} = First -> Test ! First end,
        let_go()
    end),
    Slow = {weir_pool_life_worker, start_slow_to_stop, [Stopping]},
    ok = weir_pool:start(p, #{size => 1, worker => Slow, shutdown => 60000}),
    exit(queue(p), kill),
    Worker = receive {stopping, First} -> First end,
    Stopper = weir_kit:start(fun() -> weir_pool:stop(p) end),
    weir_kit:until_waiting(Stopper),
    Worker ! go,
    ?assertEqual(ok, result(Stopper)),
    nothing_left_soon(),
    ?assertEqual([], weir_pool:pools()).

let_go() ->
    receive {stopping, Worker} -> Worker ! go end,
    let_go().

a_pool_that_crashes_too_often_ends_its_supervisor(_Config) ->
    Parent = start_parent({#{intensity => 1, period => 3600}, [weir_pool:child_spec(p, opts(2))]}),
    kill_manager(p),
    ?assert(settled(p, 2)),
    kill(manager(p)),
    await_down(Parent),
    nothing_left_soon(),
    ?assertEqual({error, no_pool}, weir_pool:pick(p)).

%% ---------------------------------------------------------------- the registry

%% A pool that dies while there is no registry, and is not started again, is cleaned up by the next one.
the_next_registry_cleans_up_after_a_pool_that_died_without_one(_Config) ->
    Owner = spawn(fun() ->
        {ok, _} = weir_pool:start_link(p, opts(2)),
        receive never -> ok end
    end),
    until(fun() -> settled(p, 2) end),
    ok = sys:suspend(weir_pool_sup, wait_ms()),
    kill(whereis(weir_pool_registry)),
    kill(manager(p)),
    await_down(Owner),
    ?assertMatch({ok, _}, weir_pool_registry:lookup(p)),
    %% The manager stays away, and its callers get `no_pool'.
    ?assertEqual({error, no_pool}, weir_pool:resize(p, 1, 100)),
    ?assertEqual({error, no_pool}, weir_pool:replace(p, 1, 100)),
    ?assertEqual({error, no_pool}, weir_pool:drain(p, 100)),
    ?assertEqual({error, no_pool}, weir_pool:add_worker(p, a)),
    ok = sys:resume(weir_pool_sup, wait_ms()),
    nothing_left_soon().

%% A manager that is lost together with the registry does not use up the restarts of its supervisor while there is none.
requests_wait_for_the_next_registry(_Config) ->
    ok = weir_pool:start(p, opts(2)),
    Parent = start_parent({#{intensity => 1, period => 3600}, [weir_pool:child_spec(q, opts(2))]}),
    Before = [manager(p), manager(q)],
    ok = sys:suspend(weir_pool_sup, wait_ms()),
    kill(whereis(weir_pool_registry)),
    [kill(Manager) || Manager <- Before],
    Starter = weir_kit:start(fun() -> weir_pool:start(r, opts(1)) end),
    weir_kit:until_waiting(Starter),
    ok = sys:resume(weir_pool_sup, wait_ms()),
    ?assertEqual(ok, result(Starter)),
    until(fun() -> lists:all(fun is_another_settled/1, lists:zip([p, q], Before)) end),
    ?assertEqual(Before, Before -- [manager(p), manager(q)]),
    stop_parent(Parent),
    ok = weir_pool:stop(p),
    ok = weir_pool:stop(r).

%% Returns whether the pool has another manager than Before, and its workers. The old workers may take a moment to die.
is_another_settled({Name, Before}) ->
    case weir_pool_terms:pool(Name) of
        #pool{manager = Manager} when Manager =/= Before -> settled(Name, 2);
        _ -> false
    end.

%% The eraser cannot erase the first pool. Therefore the second pool waits, and both wait for the next registry.
the_next_registry_erases_the_terms_of_ended_pools(_Config) ->
    ok = stopped_and_not_erased([p, q]),
    kill(whereis(weir_pool_registry)),
    nothing_left_soon(),
    until(fun() -> not_erased() =:= #{} end).

%% Erasers are of low priority: they hardly run while there are others for all schedulers. Where all has been erased
%% nevertheless, before this process had its turn, it begins again.
stopped_and_not_erased(Names) ->
    [ok = weir_pool:start(Name, opts(100)) || Name <- Names],
    Busy = [spawn_opt(fun Spin() -> Spin() end, [{scheduler, S}]) || S <- lists:seq(1, erlang:system_info(schedulers))],
    process_flag(priority, high),
    [ok = weir_pool:stop(Name) || Name <- Names],
    NotErased = not_erased(),
    process_flag(priority, normal),
    [exit(Spinner, kill) || Spinner <- Busy],
    case map_size(NotErased) of
        0 -> stopped_and_not_erased(Names);
        _ -> ok
    end.

not_erased() -> maps:from_list([{Base, true} || {{weir_pool_registry, Base}} <- ets:tab2list(weir_pool_names)]).

%% ---------------------------------------------------------------- the application

pools_can_start_after_the_kill_of_their_supervisor(_Config) ->
    ok = weir_pool:start(p, opts(2)),
    Parent = start_parent({#{}, [weir_pool:child_spec(q, opts(1))]}),
    Old = whereis(weir_pool_pools_sup),
    kill(Old),
    until(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    until(fun() -> not lists:member(whereis(weir_pool_pools_sup), [undefined, Old]) end),
    ?assertMatch({ok, _}, weir_pool:pick(q)),
    until(fun() -> weir_pool_registry:lookup(p) =:= {error, no_pool} end),
    ok = weir_pool:start(p, opts(2)),
    ok = weir_pool:stop(p),
    stop_parent(Parent),
    nothing_left_soon().

the_stopped_application_leaves_nothing(_Config) ->
    [ok = weir_pool:start(Name, opts(50)) || Name <- [p, q, r]],
    ok = application:stop(weir_pool),
    weir_kit:none(leaked, [Left || Left <- leftovers(), not is_integer(Left)]),
    nothing_left_soon(),
    ok = application:start(weir_pool),
    %% On a busy node the eraser is not scheduled before the application has been stopped.
    Spinners = [spawn(fun Spin() -> Spin() end) || _ <- lists:seq(1, 10 * erlang:system_info(schedulers))],
    [
        begin
            [ok = weir_pool:start(Name, opts(5)) || Name <- [p, q, r]],
            ok = application:stop(weir_pool),
            ok = application:start(weir_pool)
        end
     || _ <- lists:seq(1, weir_kit:long(7, 20))
    ],
    [kill(Spinner) || Spinner <- Spinners],
    nothing_left_soon().

a_supervised_pool_ends_with_the_application(_Config) ->
    Parent = start_parent({#{intensity => 0}, [weir_pool:child_spec(p, opts(2))]}),
    ok = application:stop(weir_pool),
    await_down(Parent),
    nothing_left_soon(),
    ok = application:start(weir_pool).

%% ---------------------------------------------------------------- others

%% A process that is scanned for a global collection does some work, which shows in its reductions.
restarts_scan_no_process(_Config) ->
    %% In a node of its own: what pools of other cases have left is collected in the background, for a minute and more
    %% on a busy machine.
    {ok, Peer, _} = peer:start_link(#{
        connection => standard_io, wait_boot => weir_kit:wait_ms(), args => ["-pa" | code:get_path()]
    }),
    ok = weir_kit_nodes:call(Peer, logger, set_primary_config, [level, none]),
    {ok, _} = weir_kit_nodes:call(Peer, application, ensure_all_started, [weir_pool]),
    ok = weir_kit_nodes:call(Peer, ?MODULE, restarts_of_a_node, []),
    ok = peer:stop(Peer).

restarts_of_a_node() ->
    ok = weir_pool:start(p, (opts(4))#{intensity => 1000}),
    Idle = [spawn(fun() -> receive stop -> ok end end) || _ <- lists:seq(1, 50)],
    until(fun() -> lists:all(fun(P) -> process_info(P, status) =:= {status, waiting} end, Idle) end),
    Work = fun() -> lists:sum([R || P <- Idle, {reductions, R} <- [process_info(P, reductions)]]) end,
    until(fun() -> rests(Work, 10) end),
    Before = Work(),
    [
        begin
            Old = workers(p),
            kill(hd(Old)),
            until(fun() -> settled(p, 4) andalso workers(p) =/= Old end)
        end
     || _ <- lists:seq(1, 200)
    ],
    %% To read the reductions of a process may cost it some. Each scan would cost each process one.
    Restarts = Work() - Before,
    ?assert(Restarts < 200 * length(Idle) div 4),
    %% Closing pools costs the processes work, and the measurement sees that.
    Between = Work(),
    lists:foreach(
        fun(_) ->
            ok = weir_pool:stop(p),
            ok = weir_pool:start(p, opts(1))
        end,
        lists:seq(1, 50)
    ),
    until(fun() -> Work() - Between > 50 * length(Idle) end),
    weir_pool:stop(p).

%% Returns whether the processes did no work between N readings, 10 ms apart. Each reading may cost a reduction.
rests(_Work, 0) ->
    true;
rests(Work, Times) ->
    First = Work(),
    receive after 10 -> Work() - First =< 50 andalso rests(Work, Times - 1) end.

%% As a release handler does it, one module after the other and all at the same time, while the pool is in use.
a_pool_works_after_a_change_of_code(_Config) ->
    ok = weir_pool:start(p, (pool(2))#{abandoned => free}),
    All = [
        {manager(p), weir_pool_manager},
        {queue(p), weir_pool_queue},
        {slot_sup(p, 1), weir_pool_slot_sup},
        {slot_sup(p, 2), weir_pool_slot_sup},
        {whereis(weir_pool_registry), weir_pool_registry}
    ],
    Processes = [Pid || {Pid, _} <- All],
    [works_after_a_change_of_code(Changed) || Changed <- [[Each] || Each <- All] ++ [All]],
    ?assertEqual(Processes, [manager(p), queue(p), slot_sup(p, 1), slot_sup(p, 2), whereis(weir_pool_registry)]).

works_after_a_change_of_code(Changed) ->
    [One, Other] = [claimer(p), claimer(p)],
    Waiter = weir_kit:start(fun() -> weir_pool:claim(p, fun(Pid) -> Pid end, infinity) end),
    until(fun() -> {ok, #{waiting := N}} = weir_pool:info(p), N =:= 1 end),
    [ok = sys:suspend(Pid, wait_ms()) || {Pid, _} <- Changed],
    ?assertMatch({ok, _}, weir_pool:pick(p)),
    [?assertEqual(ok, sys:change_code(Pid, Module, undefined, extra, wait_ms())) || {Pid, Module} <- Changed],
    [ok = sys:resume(Pid, wait_ms()) || {Pid, _} <- Changed],
    %% Waiters of before the change are served. Claims of before are released, or revoked.
    ?assertEqual(ok, release(One)),
    ?assertMatch({ok, _}, result(Waiter)),
    weir_pool_life_lib:kill_claimer(Other),
    %% When all processes were changed, the manager must go on with its own ticks.
    _ = length(Changed) > 1 orelse (manager(p) ! tick),
    settle(p, 2),
    %% The pool is still mended, changed, and stopped with its name given back.
    Before = slots(p),
    [kill(Pid) || Pid <- Before],
    until(fun() -> settled(p, 2) andalso Before -- slots(p) =:= Before end),
    ?assertEqual(ok, weir_pool:resize(p, 3)),
    ?assertEqual(ok, weir_pool:resize(p, 2)),
    settle(p, 2),
    ok = weir_pool:start(q, opts(1)),
    ?assertEqual({error, already_started}, weir_pool:start(q, opts(1))),
    ok = weir_pool:stop(q).

unexpected_messages_have_no_effect(_Config) ->
    ok = weir_pool:start(p, opts(1)),
    Processes = fun() -> [manager(p), queue(p), slot_sup(p, 1), whereis(weir_pool_registry)] end,
    {Before, Slots} = {Processes(), slots(p)},
    [
        begin
            Pid ! stray,
            Pid ! {'EXIT', self(), stray},
            Pid ! {'DOWN', make_ref(), process, self(), stray},
            gen_server:cast(Pid, stray),
            ?assertEqual({error, {bad_call, stray}}, gen_server:call(Pid, stray, wait_ms()))
        end
     || Pid <- Before
    ],
    ?assertEqual({Before, Slots}, {Processes(), slots(p)}),
    ?assert(settled(p, 1)).
