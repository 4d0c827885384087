%% Deaths of each process: what they leave behind, and how the pool mends itself.
-module(weir_pool_crash_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, await_down/1, kill/1, result/1]).
-import(weir_pool_test_lib, [
    kill_manager/1, manager/1, queue/1, slots/1, workers/1, settled/2, start_parent/1, opts/1, script/2,
    blocked_after/1, await_blocked/0, stop_parent/1, leftovers/0, nothing_left_soon/0, messages_of_pools/0
]).
-import(weir_pool_life_lib, [pool/1, slot_sup/2, slot_sups/1, settle/2, claimer/1, release/1]).

%% Where the manager's state has its slots, and the names of processes; where the slots have their map, and a slot its
%% monitor.
-define(MANAGER_SLOTS, 4).
-define(MANAGER_NAMES, 10).
-define(SLOTS_MAP, 5).
-define(SLOT_MONITOR, 4).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

%% ---------------------------------------------------------------- workers

worker_killed(_Config) ->
    ok = weir_pool:start(p, opts(3)),
    [A, B, C] = slots(p),
    kill(B),
    until(fun() -> settled(p, 3) end),
    ?assertMatch([A, New, C] when New =/= B, slots(p)),
    ?assertMatch({ok, #{restarts := 1, live := 3}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% All may die at once, and twice, without the pool giving up: the default intensity.
many_workers_killed_at_once(_Config) ->
    ok = weir_pool:start(p, opts(100)),
    Manager = manager(p),
    [
        begin
            Pids = workers(p),
            [exit(Pid, kill) || Pid <- Pids],
            until(fun() -> settled(p, 100) andalso workers(p) -- Pids =:= workers(p) end)
        end
     || _ <- [1, 2]
    ],
    until(fun() -> {ok, #{restarts := R}} = weir_pool:info(p), R =:= 200 end),
    ?assertEqual(Manager, manager(p)),
    ok = weir_pool:stop(p).

vacant_at_once_while_the_next_is_starting(_Config) ->
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
    until(fun() -> settled(p, 3) end),
    ok = weir_pool:stop(p).

%% The manager hears of a death after it has heard of the successor.
late_news(_Config) ->
    ok = weir_pool:start(p, opts(2)),
    [A, B] = slots(p),
    {Manager, Sup} = {manager(p), slot_sup(p, 1)},
    #{1 := Entry} = element(?SLOTS_MAP, element(?MANAGER_SLOTS, sys:get_state(Manager))),
    Monitor = element(?SLOT_MONITOR, Entry),
    ?assert(is_reference(Monitor)),
    kill(A),
    until(fun() -> settled(p, 2) end),
    [New, B] = slots(p),
    Manager ! {{down, 1}, Monitor, process, A, killed},
    Manager ! {{down, 1}, make_ref(), process, New, killed},
    _ = sys:get_state(Manager),
    ?assertEqual([New, B], slots(p)),
    %% For real: both pieces of news wait until the manager goes on.
    ok = sys:suspend(Manager),
    kill(New),
    until(fun() -> not lists:member(supervised(Sup), [New, restarting]) end),
    Next = supervised(Sup),
    ?assertEqual([New, B], slots(p)),
    ok = sys:resume(Manager),
    until(fun() -> slots(p) =:= [Next, B] end),
    ?assert(settled(p, 2)),
    ?assertMatch({ok, #{restarts := 2}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% The worker of a slot's supervisor, whatever the manager has heard.
supervised(Sup) ->
    [{_Slot, Worker, worker, _}] = supervisor:which_children(Sup),
    Worker.

%% The manager ignores news of processes that do not supervise its workers, or no longer do. The registry ignores
%% requests in the name of an older pool of this name.
news_of_strangers(_Config) ->
    ok = weir_pool:start(p, opts(1)),
    {Manager, Replaced} = {manager(p), slot_sup(p, 1)},
    ok = weir_pool:replace(p, 1),
    await_down(Replaced),
    {Before, Sup} = {slots(p), slot_sup(p, 1)},
    Other = spawn(fun() -> receive stop -> ok end end),
    [
        begin
            gen_server:cast(Manager, {started, 1, Stranger, Other, false}),
            gen_server:cast(Manager, {started, 1, Stranger, Other, true}),
            Manager ! {'EXIT', Stranger, killed}
        end
     || Stranger <- [self(), Replaced]
    ],
    _ = sys:get_state(Manager),
    ?assertEqual({Before, Sup}, {slots(p), slot_sup(p, 1)}),
    ?assertMatch({ok, #{live := 1, restarts := 1}}, weir_pool:info(p)),
    {ok, {p, Manager, Base, _, _}} = weir_pool_registry:lookup(p),
    ?assertEqual(ok, weir_pool_registry:unregister(p, Base + 1)),
    weir_pool_registry ! {{down, p, Base + 1}, make_ref(), process, Manager, killed},
    _ = sys:get_state(weir_pool_registry),
    ?assertEqual({Manager, Before}, {manager(p), slots(p)}),
    ok = weir_pool:stop(p).

%% ---------------------------------------------------------------- supervisors of workers

%% The worker dies with it, and both are started again.
slot_supervisor_killed(_Config) ->
    ok = weir_pool:start(p, opts(3)),
    [A, B, C] = slots(p),
    {Manager, Sup} = {manager(p), slot_sup(p, 2)},
    kill(Sup),
    await_down(B),
    until(fun() -> settled(p, 3) end),
    ?assertMatch([A, New, C] when New =/= B, slots(p)),
    ?assertNotEqual(Sup, slot_sup(p, 2)),
    ?assertMatch({ok, #{restarts := 1}}, weir_pool:info(p)),
    {Before, Sups} = {slots(p), slot_sups(p)},
    [kill(Each) || Each <- Sups],
    [await_down(Pid) || Pid <- Before],
    until(fun() -> settled(p, 3) end),
    ?assertEqual(Sups, Sups -- slot_sups(p)),
    ?assertMatch({ok, #{restarts := 4}}, weir_pool:info(p)),
    ?assertEqual(Manager, manager(p)),
    ok = weir_pool:stop(p).

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
a_worker_that_outlives_its_slot_supervisor(_Config) ->
    ok = weir_pool:start(p, stubborn(2, 1)),
    [A, B] = slots(p),
    kill(slot_sup(p, 1)),
    await_down(A),
    until(fun() -> settled(p, 2) end),
    ?assertMatch([New, B] when New =/= A, slots(p)),
    ?assertMatch({ok, #{restarts := 1}}, weir_pool:info(p)),
    ok = weir_pool:stop(p),
    no_stubborn(),
    [
        begin
            ok = weir_pool:start(p, stubborn(2, 1)),
            [exit(Sup, kill) || Sup <- slot_sups(p)],
            ok = weir_pool:stop(p),
            no_stubborn()
        end
     || _ <- lists:seq(1, 50)
    ].

a_worker_that_outlives_its_slot_supervisor_in_a_pool_that_stops(_Config) ->
    ok = weir_pool:start(p, stubborn(1, 20000)),
    Sup = slot_sup(p, 1),
    Stopper = weir_kit:start(fun() -> weir_pool:stop(p) end),
    until(fun() -> process_info(Sup, current_function) =:= {current_function, {weir_pool_slot_sup, stop, 2}} end),
    kill(Sup),
    ?assertEqual(ok, result(Stopper)),
    no_stubborn().

a_worker_that_outlives_its_slot_supervisor_unnoticed(_Config) ->
    ok = weir_pool:start(p, stubborn(1, 1)),
    Sup = slot_sup(p, 1),
    ok = sys:suspend(manager(p)),
    kill(Sup),
    ok = weir_pool:stop(p),
    no_stubborn().

%% ---------------------------------------------------------------- managers and queues

%% The pool comes back whole, with new workers. No caller hangs, and nothing of the old pool is left.
manager_killed(_Config) ->
    ok = weir_pool:start(p, pool(2)),
    ok = weir_pool:start(q, opts(1)),
    Q = {manager(q), slots(q)},
    comes_back(p, fun() -> kill(manager(p)) end),
    ?assertEqual({error, already_started}, weir_pool:start(p, pool(2))),
    ok = weir_pool:stop(p),
    ?assertEqual({error, no_pool}, weir_pool:pick(p)),
    ?assertEqual(Q, {manager(q), slots(q)}),
    ok = weir_pool:stop(q).

%% Kills a pool of two workers while both are claimed and two claims wait, and waits until it has come back.
comes_back(Name, Kill) ->
    {Manager, Queue, Before, Sups} = {manager(Name), queue(Name), slots(Name), slot_sups(Name)},
    {ok, _, Ticket} = weir_pool:checkout(Name, 0),
    Claimer = claimer(Name),
    Times = [weir_kit:wait_ms(), infinity],
    Waiters = [weir_kit:start(fun() -> weir_pool:claim(Name, fun(Pid) -> Pid end, Ms) end) || Ms <- Times],
    until(fun() -> {ok, #{waiting := N}} = weir_pool:info(Name), N =:= 2 end),
    Kill(),
    [await_down(Pid) || Pid <- [Manager, Queue | Before ++ Sups]],
    until(fun() -> settled(Name, 2) end),
    After = workers(Name),
    weir_kit:none(workers_of_the_old_pool, [Worker || Worker <- Before, lists:member(Worker, After)]),
    Right = [{error, no_pool} | [{ok, Worker} || Worker <- After]],
    Results = [result(Waiter) || Waiter <- Waiters],
    weir_kit:none(wrong_results, [Result || Result <- Results, not lists:member(Result, Right)]),
    %% Tickets of the old pool release nothing of the new one.
    {ok, _, New} = weir_pool:checkout(Name, weir_kit:wait_ms()),
    ?assertEqual({error, not_held}, weir_pool:checkin(Name, Ticket)),
    ?assertEqual({error, not_held}, weir_pool:checkin(Name, Ticket, fail)),
    ?assertEqual({error, not_held}, release(Claimer)),
    ?assertEqual(ok, weir_pool:checkin(Name, New)),
    settle(Name, 2),
    ?assertEqual(After, workers(Name)),
    ?assertMatch({ok, #{restarts := 0, abandoned := 0, waiting := 0}}, weir_pool:info(Name)),
    ?assertNotEqual(Manager, manager(Name)),
    weir_kit:none(messages, messages_of_pools()).

%% The next pool does not wait for the old workers, which are shut down in order.
manager_killed_with_workers_that_are_slow_to_stop(_Config) ->
    Slow = {weir_pool_life_worker, start_slow_to_stop, [self()]},
    ok = weir_pool:start(p, #{size => 2, worker => Slow, shutdown => infinity}),
    Before = workers(p),
    kill_manager(p),
    [receive {stopping, Pid} -> ok end || Pid <- Before],
    ?assert(settled(p, 2)),
    ?assertEqual(Before, Before -- workers(p)),
    [Pid ! go || Pid <- Before],
    [await_down(Pid) || Pid <- Before],
    Now = workers(p),
    Stopper = weir_kit:start(fun() -> weir_pool:stop(p) end),
    [receive {stopping, Pid} -> Pid ! go end || Pid <- Now],
    ?assertEqual(ok, result(Stopper)).

%% The callers of the changes get an error. Workers that were starting stop as soon as they have started.
manager_killed_during_changes(_Config) ->
    ok = weir_pool:start(p, script(2, blocked_after(2))),
    Changes = [fun() -> weir_pool:replace(p, 1) end, fun() -> weir_pool:resize(p, 3) end],
    Changers = [weir_kit:start(Change) || Change <- Changes],
    Blocked = [await_blocked() || _ <- Changers],
    kill(manager(p)),
    [?assertEqual({error, {pool_down, killed}}, result(Changer)) || Changer <- Changers],
    %% The next pool starts its workers one after the other.
    First = await_blocked(),
    [Sup ! go || Sup <- [First | Blocked]],
    [await_down(Sup) || Sup <- Blocked],
    await_blocked() ! go,
    until(fun() -> settled(p, 2) end),
    ?assertMatch({ok, #{size := 2, restarts := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% A crash in a callback is no worse than a kill.
manager_crashed(_Config) ->
    ok = weir_pool:start(p, pool(2)),
    comes_back(p, fun() ->
        _ = sys:replace_state(manager(p), fun(State) -> setelement(?MANAGER_NAMES, State, no_map) end),
        ?assertMatch({error, {pool_down, {_Crash, _Stack}}}, weir_pool:resize(p, 3))
    end),
    ok = weir_pool:stop(p).

queue_killed(_Config) ->
    ok = weir_pool:start(p, pool(2)),
    comes_back(p, fun() -> kill(queue(p)) end),
    ok = weir_pool:stop(p).

manager_killed_under_a_supervisor(_Config) ->
    Parent = start_parent({#{}, [weir_pool:child_spec(p, pool(2))]}),
    comes_back(p, fun() -> kill(manager(p)) end),
    ?assertMatch([{{weir_pool, p}, _, supervisor, _}], supervisor:which_children(Parent)),
    ?assertEqual([manager(p)], [Pid || {_, Pid, _, _} <- supervisor:which_children(Parent)]),
    stop_parent(Parent).

%% Each manager takes the name over from one that has just been killed. The remains of that disturb no process.
manager_killed_again_and_again_under_a_supervisor(_Config) ->
    Parent = start_parent({#{intensity => 1000}, [weir_pool:child_spec(p, pool(3))]}),
    [
        begin
            kill_manager(p),
            ?assert(settled(p, 3))
        end
     || _ <- lists:seq(1, 50)
    ],
    settle(p, 3),
    stop_parent(Parent),
    nothing_left_soon().

too_many_crashes_under_a_supervisor(_Config) ->
    Parent = start_parent({#{intensity => 1, period => 3600}, [weir_pool:child_spec(p, opts(2))]}),
    kill_manager(p),
    ?assert(settled(p, 2)),
    kill(manager(p)),
    await_down(Parent),
    nothing_left_soon(),
    ?assertEqual({error, no_pool}, weir_pool:pick(p)).

%% ---------------------------------------------------------------- the registry

kill_registry() ->
    Old = whereis(weir_pool_registry),
    kill(Old),
    until(fun() -> not lists:member(whereis(weir_pool_registry), [undefined, Old]) end).

registry_killed(_Config) ->
    ok = weir_pool:start(p, opts(2)),
    {Manager, Before} = {manager(p), slots(p)},
    kill_registry(),
    ?assertEqual(Before, slots(p)),
    ?assertEqual({error, already_started}, weir_pool:start(p, opts(1))),
    kill(hd(Before)),
    until(fun() -> settled(p, 2) end),
    ?assertEqual(Manager, manager(p)),
    ok = weir_pool:start(q, opts(1)),
    kill_manager(q),
    ?assert(settled(q, 1)),
    kill_manager(p),
    ?assert(settled(p, 2)),
    [ok = weir_pool:stop(Name) || Name <- [p, q]].

%% A pool that dies while there is no registry, and is not started again, is cleaned up by the next one.
registry_killed_and_a_pool_too(_Config) ->
    Owner = spawn(fun() ->
        {ok, _} = weir_pool:start_link(p, opts(2)),
        receive
            never -> ok
        end
    end),
    until(fun() -> settled(p, 2) end),
    ok = sys:suspend(weir_pool_sup),
    kill(whereis(weir_pool_registry)),
    kill(manager(p)),
    await_down(Owner),
    ?assertMatch({ok, _}, weir_pool_registry:lookup(p)),
    %% The manager stays away, and its callers get `no_pool'.
    ?assertEqual({error, no_pool}, weir_pool:resize(p, 1, 100)),
    ?assertEqual({error, no_pool}, weir_pool:replace(p, 1, 100)),
    ?assertEqual({error, no_pool}, weir_pool:drain(p, 100)),
    ?assertEqual({error, no_pool}, weir_pool:add_worker(p, a)),
    ok = sys:resume(weir_pool_sup),
    nothing_left_soon().

%% A manager that is lost together with the registry does not use up the restarts of its supervisor while there is none.
requests_wait_for_the_next_registry(_Config) ->
    ok = weir_pool:start(p, opts(2)),
    Parent = start_parent({#{intensity => 1, period => 3600}, [weir_pool:child_spec(q, opts(2))]}),
    Before = [manager(p), manager(q)],
    ok = sys:suspend(weir_pool_sup),
    kill(whereis(weir_pool_registry)),
    [kill(Manager) || Manager <- Before],
    Starter = weir_kit:start(fun() -> weir_pool:start(r, opts(1)) end),
    weir_kit:until_waiting(Starter),
    ok = sys:resume(weir_pool_sup),
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

requests_may_be_made_twice(_Config) ->
    {ok, Base} = weir_pool_registry:register(p, self()),
    ?assertEqual({ok, Base}, weir_pool_registry:register(p, self())),
    Test = self(),
    ?assertMatch({ok, {p, Test, Base, Test, none}}, weir_pool_registry:lookup(p)),
    Other = weir_kit:start(fun() -> weir_pool_registry:register(p, self()) end),
    ?assertEqual({error, already_started}, result(Other)),
    [?assertEqual(ok, weir_pool_registry:unregister(p, Base)) || _ <- [1, 2]],
    ?assertEqual({error, no_pool}, weir_pool_registry:lookup(p)).

%% The eraser cannot erase the first pool. So the second pool waits, and both wait for the next registry.
registry_killed_with_terms_to_erase(_Config) ->
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

%% As when a supervisor starts its dead pool again before the registry has been told of the death.
a_dead_holder_that_nobody_has_heard_of(_Config) ->
    Dead = spawn(fun() -> ok end),
    await_down(Dead),
    {ok, Conf} = weir_pool_opts:check(opts(3)),
    Base = erlang:unique_integer([positive, monotonic]) * (?MAX_SIZE + 1),
    Pool = weir_pool_terms:new(p, Base, Conf, self()),
    true = ets:insert(weir_pool_names, {p, Dead, Base, self(), none}),
    %% The monitor that it will hear nothing of.
    _ = sys:replace_state(weir_pool_registry, fun(State) ->
        setelement(2, State, (element(2, State))#{p => {Base, make_ref()}})
    end),
    ok = weir_pool_terms:open(Pool),
    ok = weir_pool_terms:fill(Pool, 3, self()),
    ?assertEqual({ok, self()}, weir_pool:pick(p)),
    ok = weir_pool:start(p, opts(2)),
    ?assert(settled(p, 2)),
    ok = weir_pool:stop(p),
    nothing_left_soon().

%% ---------------------------------------------------------------- the application

pools_supervisor_killed(_Config) ->
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

application_stopped(_Config) ->
    [ok = weir_pool:start(Name, opts(50)) || Name <- [p, q, r]],
    ok = application:stop(weir_pool),
    weir_kit:none(leaked, [Left || Left <- leftovers(), not is_integer(Left)]),
    nothing_left_soon(),
    ok = application:start(weir_pool),
    ok = weir_pool:start(p, opts(2)),
    ok = weir_pool:stop(p).

%% The eraser is not scheduled before the application has been stopped.
application_stopped_on_a_busy_node(_Config) ->
    Spinners = [spawn(fun Spin() -> Spin() end) || _ <- lists:seq(1, 10 * erlang:system_info(schedulers))],
    try
        lists:foreach(
            fun(_) ->
                [ok = weir_pool:start(Name, opts(5)) || Name <- [p, q, r]],
                ok = application:stop(weir_pool),
                ok = application:start(weir_pool)
            end,
            lists:seq(1, weir_kit:long(7, 20))
        )
    after
        [exit(Spinner, kill) || Spinner <- Spinners]
    end,
    nothing_left_soon().

application_stopped_under_a_supervised_pool(_Config) ->
    Parent = start_parent({#{intensity => 0}, [weir_pool:child_spec(p, opts(2))]}),
    ok = application:stop(weir_pool),
    await_down(Parent),
    nothing_left_soon(),
    ok = application:start(weir_pool).

%% ---------------------------------------------------------------- others

%% A process that is scanned for a global collection does some work, which shows in its reductions.
restarts_scan_nobody(_Config) ->
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
    receive
    after 10 -> Work() - First =< 50 andalso rests(Work, Times - 1)
    end.

%% As a release handler does it, one module after the other and all at the same time, while the pool is in use.
code_changes_under_a_pool_that_works(_Config) ->
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
    ?assertEqual(Processes, [manager(p), queue(p), slot_sup(p, 1), slot_sup(p, 2), whereis(weir_pool_registry)]),
    ok = weir_pool:stop(p).

works_after_a_change_of_code(Changed) ->
    [One, Other] = [claimer(p), claimer(p)],
    Waiter = weir_kit:start(fun() -> weir_pool:claim(p, fun(Pid) -> Pid end, infinity) end),
    until(fun() -> {ok, #{waiting := N}} = weir_pool:info(p), N =:= 1 end),
    [ok = sys:suspend(Pid) || {Pid, _} <- Changed],
    ?assertMatch({ok, _}, weir_pool:pick(p)),
    [?assertEqual(ok, sys:change_code(Pid, Module, undefined, extra)) || {Pid, Module} <- Changed],
    [ok = sys:resume(Pid) || {Pid, _} <- Changed],
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

strays(_Config) ->
    ok = weir_pool:start(p, opts(1)),
    Processes = fun() -> [manager(p), queue(p), slot_sup(p, 1), whereis(weir_pool_registry)] end,
    {Before, Slots} = {Processes(), slots(p)},
    [
        begin
            Pid ! stray,
            Pid ! {'EXIT', self(), stray},
            Pid ! {'DOWN', make_ref(), process, self(), stray},
            gen_server:cast(Pid, stray),
            ?assertEqual({error, {bad_call, stray}}, gen_server:call(Pid, stray))
        end
     || Pid <- Before
    ],
    ?assertEqual({Before, Slots}, {Processes(), slots(p)}),
    ?assert(settled(p, 1)),
    ok = weir_pool:stop(p).
