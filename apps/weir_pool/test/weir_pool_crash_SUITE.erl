%% What the death of each process leaves behind, and how the pool mends itself.
-module(weir_pool_crash_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    worker_killed/1,
    many_workers_killed_at_once/1,
    vacant_at_once_while_the_supervisor_is_busy/1,
    late_news/1,
    news_of_a_namesake/1,
    keeper_killed/1,
    keeper_killed_and_a_worker_too/1,
    keeper_crashed/1,
    workers_supervisor_killed/1,
    pool_supervisor_killed/1,
    pool_supervisor_killed_under_a_supervisor/1,
    too_many_crashes/1,
    registry_killed/1,
    registry_killed_and_a_pool_too/1,
    requests_wait_for_the_next_registry/1,
    requests_may_be_made_twice/1,
    a_dead_holder_that_nobody_has_heard_of/1,
    pools_supervisor_killed/1,
    application_stopped/1,
    application_stopped_under_a_supervised_pool/1,
    restarts_scan_nobody/1,
    strays/1
]).

-import(weir_pool_test_lib, [
    eventually/1, kill/1, await_down/1, sup/1, manager/1, workers_sup/1, slots/1, workers/1, settled/2,
    start_parent/1, opts/1, script/2, stop_parent/1, nothing_left/0, nothing_left_soon/0, messages_of_pools/0,
    result/1, picks/2
]).

%% Where the keeper's state has its slots.
-define(KEEPER_SLOTS, 3).
-define(KEEPER_BUDGET, 5).
-define(SLOTS_MAP, 5).
-define(SLOT_MONITOR, 5).

suite() -> [{timetrap, {seconds, 180}}].

all() ->
    [
        worker_killed,
        many_workers_killed_at_once,
        vacant_at_once_while_the_supervisor_is_busy,
        late_news,
        news_of_a_namesake,
        keeper_killed,
        keeper_killed_and_a_worker_too,
        keeper_crashed,
        workers_supervisor_killed,
        pool_supervisor_killed,
        pool_supervisor_killed_under_a_supervisor,
        too_many_crashes,
        registry_killed,
        registry_killed_and_a_pool_too,
        requests_wait_for_the_next_registry,
        requests_may_be_made_twice,
        a_dead_holder_that_nobody_has_heard_of,
        pools_supervisor_killed,
        application_stopped,
        application_stopped_under_a_supervised_pool,
        restarts_scan_nobody,
        strays
    ].

init_per_suite(Config) -> weir_pool_test_lib:quiet(Config).

end_per_suite(Config) -> weir_pool_test_lib:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, _Config) -> weir_pool_test_lib:teardown().

worker_killed(_Config) ->
    ok = weir_pool:start(p, opts(3)),
    [A, B, C] = slots(p),
    kill(B),
    eventually(fun() -> settled(p, 3) end),
    ?assertMatch([A, New, C] when New =/= B, slots(p)),
    ?assertMatch({ok, #{restarts := 1, live := 3}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% All may die at once, and twice, without the pool giving up: the default intensity.
many_workers_killed_at_once(_Config) ->
    ok = weir_pool:start(p, opts(100)),
    [
        begin
            Pids = workers(p),
            [exit(Pid, kill) || Pid <- Pids],
            eventually(fun() -> settled(p, 100) andalso workers(p) -- Pids =:= workers(p) end)
        end
     || _ <- [1, 2]
    ],
    eventually(fun() -> {ok, #{restarts := R}} = weir_pool:info(p), R =:= 200 end),
    ok = weir_pool:stop(p).

vacant_at_once_while_the_supervisor_is_busy(_Config) ->
    Test = self(),
    Starts = counters:new(1, []),
    Script = fun() ->
        counters:add(Starts, 1, 1),
        case counters:get(Starts, 1) > 3 of
            true ->
                Test ! {blocked, self()},
                receive
                    go -> start
                end;
            false ->
                start
        end
    end,
    ok = weir_pool:start(p, script(3, Script)),
    [A, B, C] = slots(p),
    %% Neither waits for the other.
    Sups = [
        begin
            kill(Pid),
            receive
                {blocked, Blocked} -> Blocked
            end
        end
     || Pid <- [A, B]
    ],
    eventually(fun() -> slots(p) =:= [undefined, undefined, C] end),
    ?assertEqual([{ok, C}], lists:usort([weir_pool:pick(p) || _ <- lists:seq(1, 10)])),
    [Sup ! go || Sup <- Sups],
    eventually(fun() -> settled(p, 3) end),
    ok = weir_pool:stop(p).

%% The keeper hears of a death after it has heard of the successor.
late_news(_Config) ->
    ok = weir_pool:start(p, opts(2)),
    [A, B] = slots(p),
    Keeper = manager(p),
    #{1 := Entry} = element(?SLOTS_MAP, element(?KEEPER_SLOTS, sys:get_state(Keeper))),
    Monitor = element(?SLOT_MONITOR, Entry),
    kill(A),
    eventually(fun() -> settled(p, 2) end),
    [New, B] = slots(p),
    Keeper ! {{down, 1}, Monitor, process, A, killed},
    Keeper ! {{down, 1}, make_ref(), process, New, killed},
    _ = sys:get_state(Keeper),
    ?assertEqual([New, B], slots(p)),
    %% For real: both pieces of news wait until the keeper goes on.
    ok = sys:suspend(Keeper),
    kill(New),
    eventually(fun() -> supervised_successor(p, 1, New) end),
    ?assertEqual([New, B], slots(p)),
    ok = sys:resume(Keeper),
    eventually(fun() -> settled(p, 2) end),
    ?assertMatch({ok, #{restarts := 2}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% Whether the supervisor has replaced a worker, whatever the keeper has heard.
supervised_successor(Name, Slot, Old) ->
    Pids = [
        Pid
     || {_, Sup, supervisor, _} <- supervisor:which_children(workers_sup(Name)),
        {S, Pid, _, _} <- supervisor:which_children(Sup),
        S =:= Slot,
        is_pid(Pid)
    ],
    Pids =/= [] andalso Pids =/= [Old].

%% What a supervisor left over from another pool of this name says is void.
news_of_a_namesake(_Config) ->
    ok = weir_pool:start(p, opts(1)),
    Before = slots(p),
    #row{id = Id} = weir_pool_test_lib:row(p),
    Wrong = Id + 1,
    weir_pool_manager:connected(p, Wrong, 1, self()),
    weir_pool_manager:start_failed(p, Wrong, 1),
    _ = sys:get_state(manager(p)),
    ?assertEqual(Before, slots(p)),
    ?assertMatch({ok, #{restarts := 0, start_failures := 0}}, weir_pool:info(p)),
    ?assertEqual({error, gone}, weir_pool_registry:join(p, Wrong, keeper)),
    ?assertEqual({error, gone}, weir_pool_registry:join(p, Wrong, workers)),
    ?assertEqual({error, gone}, weir_pool_registry:open(p, Wrong, (weir_pool_terms:pool(p))#pool{base = 0})),
    ?assertEqual({error, gone}, weir_pool_registry:close(p, Wrong)),
    ?assertEqual(ok, weir_pool_registry:release(p, Wrong)),
    ?assertEqual(Before, slots(p)),
    ok = weir_pool:stop(p),
    weir_pool_manager:connected(p, Id, 1, self()),
    weir_pool_manager:start_failed(p, Id, 1).

%% Workers stay, and picks go on meanwhile.
keeper_killed(_Config) ->
    ok = weir_pool:start(p, opts(3)),
    Before = slots(p),
    Sup = sup(p),
    Main = weir_pool_terms:pool(p),
    ok = sys:suspend(Sup),
    Old = manager(p),
    kill(Old),
    ?assertEqual(lists:sort(Before), lists:sort(maps:keys(picks(p, 30)))),
    ok = sys:resume(Sup),
    eventually(fun() -> manager(p) =/= Old end),
    _ = sys:get_state(manager(p)),
    ?assertEqual(Before, slots(p)),
    ?assertEqual(Main, weir_pool_terms:pool(p)),
    ?assertEqual(Sup, sup(p)),
    kill(hd(Before)),
    eventually(fun() -> settled(p, 3) end),
    ok = weir_pool:stop(p),
    ?assertEqual([], messages_of_pools()).

%% The next keeper finds out about deaths and successors that nobody could be told of.
keeper_killed_and_a_worker_too(_Config) ->
    ok = weir_pool:start(p, (opts(4))#{restart => transient}),
    [A, B, C, D] = slots(p),
    Sup = sup(p),
    ok = sys:suspend(Sup),
    kill(manager(p)),
    kill(A),
    ok = gen_server:call(B, {stop, normal}),
    eventually(fun() -> supervised_successor(p, 1, A) end),
    ?assertEqual([A, B, C, D], slots(p)),
    ok = sys:resume(Sup),
    eventually(fun() -> length(workers(p)) =:= 3 end),
    ?assertMatch([New, undefined, C, D] when New =/= A, slots(p)),
    ok = weir_pool:stop(p).

%% A crash in a callback is no worse than a kill: the pool stays open, workers stay, and claims hold.
keeper_crashed(_Config) ->
    ok = weir_pool:start(p, opts(3)),
    Before = slots(p),
    {Old, Main} = {manager(p), weir_pool_terms:pool(p)},
    {ok, Claimed, Ticket} = weir_pool:checkout(p, #{}),
    sys:replace_state(Old, fun(State) -> setelement(?KEEPER_BUDGET, State, no_budget) end),
    [Victim | _] = Before -- [Claimed],
    kill(Victim),
    await_down(Old),
    eventually(fun() -> settled(p, 3) end),
    ?assertEqual([Victim], Before -- slots(p)),
    ?assertEqual(Main, weir_pool_terms:pool(p)),
    ?assertMatch({ok, #{claimed := 1}}, weir_pool:info(p)),
    ?assertEqual(ok, weir_pool:checkin(p, Ticket)),
    ok = weir_pool:stop(p).

workers_supervisor_killed(_Config) ->
    ok = weir_pool:start(p, opts(3)),
    Before = slots(p),
    Sup = sup(p),
    kill(workers_sup(p)),
    [await_down(Pid) || Pid <- Before],
    eventually(fun() -> settled(p, 3) end),
    ?assertEqual(Before, Before -- slots(p)),
    ?assertEqual(Sup, sup(p)),
    ok = weir_pool:stop(p).

pool_supervisor_killed(_Config) ->
    ok = weir_pool:start(p, opts(3)),
    ok = weir_pool:start(q, opts(1)),
    kill(sup(p)),
    eventually(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    ?assertEqual({error, no_pool}, weir_pool:stop(p)),
    %% The name is free at once.
    ok = weir_pool:start(p, opts(2)),
    ?assert(settled(p, 2)),
    ok = weir_pool:stop(p),
    ?assertMatch({ok, _}, weir_pool:pick(q)),
    ok = weir_pool:stop(q).

%% Every incarnation takes the name over from one that has just been killed; what is left of that disturbs nobody.
pool_supervisor_killed_under_a_supervisor(_Config) ->
    Parent = start_parent({#{intensity => 1000}, [weir_pool:child_spec(p, opts(3))]}),
    [
        begin
            Old = sup(p),
            kill(Old),
            eventually(fun() -> settled(p, 3) andalso sup(p) =/= Old end)
        end
     || _ <- lists:seq(1, 50)
    ],
    ?assert(settled(p, 3)),
    stop_parent(Parent),
    nothing_left_soon().

too_many_crashes(_Config) ->
    ok = weir_pool:start(p, opts(1)),
    Sup = sup(p),
    [
        begin
            Old = manager(p),
            kill(Old),
            eventually(fun() -> settled(p, 1) andalso manager(p) =/= Old end)
        end
     || _ <- lists:seq(1, 10)
    ],
    ?assertEqual(Sup, sup(p)),
    kill(manager(p)),
    await_down(Sup),
    nothing_left_soon().

kill_registry() ->
    Old = whereis(weir_pool_registry),
    kill(Old),
    eventually(fun() -> not lists:member(whereis(weir_pool_registry), [undefined, Old]) end).

registry_killed(_Config) ->
    ok = weir_pool:start(p, opts(2)),
    Before = slots(p),
    kill_registry(),
    ?assertEqual(Before, slots(p)),
    ?assertEqual({error, already_started}, weir_pool:start(p, opts(1))),
    kill(hd(Before)),
    eventually(fun() -> settled(p, 2) end),
    ok = weir_pool:start(q, opts(1)),
    kill(sup(q)),
    eventually(fun() -> weir_pool:pick(q) =:= {error, no_pool} end),
    kill(sup(p)),
    nothing_left_soon().

%% A pool that dies while there is no registry is cleaned up by the next one.
registry_killed_and_a_pool_too(_Config) ->
    ok = weir_pool:start(p, opts(2)),
    ok = sys:suspend(weir_pool_sup),
    kill(whereis(weir_pool_registry)),
    kill(sup(p)),
    ?assertMatch({ok, #row{}}, weir_pool_registry:lookup(p)),
    ok = sys:resume(weir_pool_sup),
    nothing_left_soon().

%% A keeper that is lost together with the registry does not use up the pool's restarts while there is none.
requests_wait_for_the_next_registry(_Config) ->
    ok = weir_pool:start(p, opts(2)),
    {Sup, Before, Keeper} = {sup(p), slots(p), manager(p)},
    ok = sys:suspend(weir_pool_sup),
    kill(whereis(weir_pool_registry)),
    kill(Keeper),
    {Starter, _} = spawn_monitor(fun() -> exit({result, weir_pool:start(q, opts(1))}) end),
    eventually(fun() -> weir_pool:pick(p) =/= {error, no_pool} andalso is_process_alive(Starter) end),
    ok = sys:resume(weir_pool_sup),
    ?assertEqual(ok, result(Starter)),
    eventually(fun() -> manager(p) =/= Keeper end),
    _ = sys:get_state(manager(p)),
    ?assertEqual({Sup, Before}, {sup(p), slots(p)}),
    ok = weir_pool:stop(p),
    ok = weir_pool:stop(q).

requests_may_be_made_twice(_Config) ->
    {ok, Conf} = weir_pool_opts:check(opts(3)),
    [?assertEqual(ok, weir_pool_registry:register(p, 4711, Conf, self())) || _ <- [1, 2]],
    Self = self(),
    [?assertMatch({ok, #row{keeper = Self}}, weir_pool_registry:join(p, 4711, keeper)) || _ <- [1, 2]],
    [?assertEqual(ok, weir_pool_registry:open(p, 4711, weir_pool_terms:new(p, 4711, Conf))) || _ <- [1, 2]],
    [?assertEqual(ok, weir_pool_registry:close(p, 4711)) || _ <- [1, 2]],
    [?assertEqual(ok, weir_pool_registry:release(p, 4711)) || _ <- [1, 2]],
    ?assertEqual({error, no_pool}, weir_pool_registry:lookup(p)).

%% As when a supervisor starts its dead pool again before the registry has been told of the death.
a_dead_holder_that_nobody_has_heard_of(_Config) ->
    Dead = spawn(fun() -> ok end),
    await_down(Dead),
    {ok, Conf} = weir_pool_opts:check(opts(3)),
    Pool = weir_pool_terms:new(p, 4711, Conf),
    Row = #row{name = p, id = 4711, conf = Conf, size = 3, last_slot = 3, sup = Dead, parent = self()},
    true = ets:insert(weir_pool_names, Row),
    ok = weir_pool_terms:open(p, Pool),
    ok = weir_pool_terms:fill(Pool, 3, self()),
    ?assertEqual({ok, self()}, weir_pool:pick(p)),
    ok = weir_pool:start(p, opts(2)),
    ?assert(settled(p, 2)),
    ok = weir_pool:stop(p),
    nothing_left().

pools_supervisor_killed(_Config) ->
    ok = weir_pool:start(p, opts(2)),
    Parent = start_parent({#{}, [weir_pool:child_spec(q, opts(1))]}),
    Old = whereis(weir_pool_pools_sup),
    kill(Old),
    eventually(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    eventually(fun() -> not lists:member(whereis(weir_pool_pools_sup), [undefined, Old]) end),
    ?assertMatch({ok, _}, weir_pool:pick(q)),
    ok = weir_pool:start(p, opts(2)),
    ok = weir_pool:stop(p),
    stop_parent(Parent),
    nothing_left_soon().

application_stopped(_Config) ->
    ok = weir_pool:start(p, opts(2)),
    ok = application:stop(weir_pool),
    nothing_left(),
    ok = application:start(weir_pool),
    ok = weir_pool:start(p, opts(2)),
    ok = weir_pool:stop(p).

application_stopped_under_a_supervised_pool(_Config) ->
    Parent = start_parent({#{intensity => 0}, [weir_pool:child_spec(p, opts(2))]}),
    ok = application:stop(weir_pool),
    await_down(Parent),
    nothing_left(),
    ok = application:start(weir_pool).

%% A process that is scanned for a global collection does some work, which shows in its reductions.
restarts_scan_nobody(_Config) ->
    ok = weir_pool:start(p, (opts(4))#{intensity => 1000}),
    Idle = [spawn(fun() -> receive stop -> ok end end) || _ <- lists:seq(1, 50)],
    eventually(fun() -> lists:all(fun(P) -> process_info(P, status) =:= {status, waiting} end, Idle) end),
    Work = fun() -> lists:sum([R || P <- Idle, {reductions, R} <- [process_info(P, reductions)]]) end,
    Cost = cost_of_looking(Work),
    Before = Work(),
    [
        begin
            Old = workers(p),
            kill(hd(Old)),
            eventually(fun() -> settled(p, 4) andalso workers(p) =/= Old end)
        end
     || _ <- lists:seq(1, 200)
    ],
    ?assertEqual(Cost, Work() - Before),
    %% The same measurement sees what closing a pool costs them.
    Between = Work(),
    ok = weir_pool:stop(p),
    eventually(fun() -> Work() - Between > 50 * Cost + 50 end),
    [P ! stop || P <- Idle].

%% Looking at a process may cost it reductions of its own.
cost_of_looking(Work) ->
    First = Work(),
    Work() - First.

strays(_Config) ->
    ok = weir_pool:start(p, opts(1)),
    Before = {manager(p), whereis(weir_pool_registry)},
    [
        begin
            Pid ! stray,
            Pid ! {'EXIT', self(), stray},
            Pid ! {'DOWN', make_ref(), process, self(), stray},
            gen_server:cast(Pid, stray),
            ?assertEqual({error, {bad_call, stray}}, gen_server:call(Pid, stray))
        end
     || Pid <- tuple_to_list(Before)
    ],
    ?assertEqual(Before, {manager(p), whereis(weir_pool_registry)}),
    ?assert(settled(p, 1)),
    ok = weir_pool:stop(p).
