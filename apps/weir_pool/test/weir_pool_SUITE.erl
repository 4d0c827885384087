%% Starting and stopping pools, alone and under a supervisor; options.
-module(weir_pool_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, await_down/1, kill/1, result/1, wait_ms/0]).
-import(weir_pool_test_lib, [
    kill_manager/1, manager/1, slots/1, workers/1, settled/2, start_parent/1, opts/1, script/2, blocked_after/1,
    await_blocked/0, start_blocked/2, stop_parent/1, leftovers/0, nothing_left_soon/0, messages_of_pools/0
]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

%% A pool that was stopped, or could not start, is gone when its caller has the answer. Slot terms are erased in the
%% background.
gone() ->
    ?assertEqual([], [Left || Left <- leftovers(), not is_integer(Left)]),
    nothing_left_soon().

a_pool_starts_and_stops_and_leaves_nothing(_Config) ->
    [
        begin
            ?assertEqual(ok, weir_pool:start(p, opts(Size))),
            ?assert(settled(p, Size)),
            {ok, Pid} = weir_pool:pick(p),
            ?assertEqual(pong, gen_server:call(Pid, ping, wait_ms())),
            {ok, Keyed} = weir_pool:pick(p, key),
            ?assert(lists:member(Keyed, workers(p))),
            ?assertEqual(ok, weir_pool:stop(p)),
            ?assertNot(is_process_alive(Pid)),
            gone(),
            there_is_no_pool()
        end
     || Size <- [3, 2]
    ].

there_is_no_pool() ->
    Functions = [pick, info, workers, stop],
    ?assertEqual([{error, no_pool}], lists:usort([weir_pool:Function(p) || Function <- Functions])),
    ?assertEqual({error, no_pool}, weir_pool:pick(p, key)),
    ?assertEqual([], weir_pool:which_pools(self())).

functions_need_the_application(_Config) ->
    ok = application:stop(weir_pool),
    there_is_no_pool(),
    ?assertEqual({error, {not_started, weir_pool}}, weir_pool:start(p, opts(1))),
    ?assertEqual({error, {not_started, weir_pool}}, weir_pool:start_link(p, opts(1))),
    ok = application:start(weir_pool).

the_name_of_a_pool_is_any_term(_Config) ->
    Names = [p, '_', '$1', 1, 1.0, "p", <<"p">>, {weir_memcached, default}, self(), make_ref(), [], #{a => 1}, {p, 1}],
    [?assertEqual(ok, weir_pool:start(Name, opts(1))) || Name <- Names],
    Pids = [Pid || Name <- Names, {ok, Pid} <- [weir_pool:pick(Name)]],
    ?assertEqual(length(Names), length(lists:usort(Pids))),
    [?assertEqual(ok, weir_pool:stop(Name)) || Name <- Names],
    gone().

a_name_is_taken_once(_Config) ->
    ok = weir_pool:start(p, opts(1)),
    Before = {manager(p), workers(p)},
    ?assertEqual({error, already_started}, weir_pool:start(p, opts(2))),
    ?assertEqual({error, already_started}, weir_pool:start_link(p, opts(2))),
    Parent = start_parent({#{}, []}),
    ?assertMatch({error, {already_started, _Child}}, supervisor:start_child(Parent, weir_pool:child_spec(p, opts(2)))),
    ?assertEqual(Before, {manager(p), workers(p)}),
    exit(Parent, kill),
    ok = weir_pool:stop(p).

%% Processes start a pool again and again while its manager is killed and restarted. A start that is quicker than the
%% restart takes the name. The loser ends in order, and another pool goes on.
starts_may_race_with_restarts(_Config) ->
    ok = weir_pool:start(q, opts(1)),
    ok = weir_pool:start(p, opts(1)),
    Other = manager(q),
    Stop = atomics:new(1, []),
    Starters = [weir_kit:start(fun() -> start_until(Stop) end) || _ <- [1, 2, 3]],
    [kill_manager(p) || _ <- lists:seq(1, 30)],
    atomics:put(Stop, 1, 1),
    [?assertEqual(ok, result(Starter)) || Starter <- Starters],
    until(fun() -> settled(p, 1) end),
    ?assertEqual(Other, manager(q)),
    [ok = weir_pool:stop(Name) || Name <- [p, q]],
    gone().

start_until(Stop) ->
    case {atomics:get(Stop, 1), weir_pool:start(p, opts(1))} of
        {1, _} -> ok;
        {0, ok} -> start_until(Stop);
        {0, {error, already_started}} -> start_until(Stop);
        {0, {error, {pool_down, killed}}} -> start_until(Stop);
        {0, {error, {pool_down, noproc}}} -> start_until(Stop)
    end.

%% The third of five workers does not start.
a_worker_that_cannot_start_ends_the_start_of_its_pool(_Config) ->
    Count = counters:new(1, []),
    Script = fun() ->
        counters:add(Count, 1, 1),
        case counters:get(Count, 1) of
            3 -> {error, enough};
            _ -> start
        end
    end,
    ?assertEqual({error, {start_failed, 3, enough}}, weir_pool:start(p, script(5, Script))),
    gone(),
    ?assertEqual(3, counters:get(Count, 1)),
    %% The name is free at once.
    ?assertEqual(ok, weir_pool:start(p, script(5, Script))),
    ok = weir_pool:stop(p).

%% The slot's supervisor does not repeat the start, however late the manager hears of the failure.
a_start_that_fails_is_made_once(_Config) ->
    Test = self(),
    Script = fun() ->
        Test ! {blocked, self()},
        receive go -> {error, no} end
    end,
    Starter = weir_kit:start(fun() -> weir_pool:start(p, script(1, Script)) end),
    Sup = await_blocked(),
    Manager = manager(p),
    true = erlang:suspend_process(Manager),
    Sup ! go,
    await_down(Sup),
    true = erlang:resume_process(Manager),
    ?assertEqual({error, {start_failed, 1, no}}, result(Starter)),
    gone(),
    receive
        {blocked, _} = Again -> error(Again)
    after 0 -> ok
    end.

each_failure_of_a_start_function_has_its_error(_Config) ->
    Start = fun(Script) -> weir_pool:start(p, script(1, Script)) end,
    Failed = fun(Reason) -> {error, {start_failed, 1, Reason}} end,
    ?assertMatch({error, {start_failed, 1, {exception, error, oops, [_ | _]}}}, Start(fun() -> error(oops) end)),
    ?assertMatch({error, {start_failed, 1, {exception, throw, oops, _}}}, Start(fun() -> throw(oops) end)),
    ?assertMatch({error, {start_failed, 1, {exception, exit, oops, _}}}, Start(fun() -> exit(oops) end)),
    Returned = fun(Value) ->
        {error, {start_failed, 1, {bad_return, {weir_pool_test_worker, start_with, Value}}}}
    end,
    ?assertEqual(Returned(ok), Start(fun() -> ok end)),
    ?assertEqual(Returned({ok, name}), Start(fun() -> {ok, name} end)),
    %% <9999.1.0> of another node, in the external term format.
    Foreign = binary_to_term(<<131, 88, 119, 3, "a@b", 9999:32, 1:32, 1:32>>),
    ?assertEqual(Returned({ok, Foreign}), Start(fun() -> {ok, Foreign} end)),
    ?assertEqual(Failed(reason), Start(fun() -> {error, reason} end)),
    ?assertMatch(
        {error, {start_failed, 1, {exception, error, undef, _}}},
        weir_pool:start(p, #{size => 1, worker => {no_such_module, f, []}})
    ),
    gone().

a_linked_start_that_fails_leaves_no_message(_Config) ->
    process_flag(trap_exit, true),
    Fail = fun() -> {error, no} end,
    ?assertEqual({error, {start_failed, 1, no}}, weir_pool:start_link(p, script(1, Fail))),
    gone(),
    ok = weir_pool:start(p, opts(1)),
    ?assertEqual({error, already_started}, weir_pool:start_link(p, opts(1))),
    ok = weir_pool:stop(p),
    process_flag(trap_exit, false),
    {links, Links} = process_info(self(), links),
    ?assertEqual([], [Pid || Pid <- Links, is_pid(Pid), not is_process_alive(Pid)]),
    ?assertEqual([], messages_of_pools()).

a_start_that_returns_ignore_leaves_its_slot_vacant(_Config) ->
    Count = counters:new(1, []),
    Script = fun() ->
        counters:add(Count, 1, 1),
        case counters:get(Count, 1) of
            2 -> ignore;
            3 -> {start, info};
            _ -> start
        end
    end,
    ok = weir_pool:start(p, script(3, Script)),
    ?assertMatch([First, undefined, Third] when is_pid(First) andalso is_pid(Third), slots(p)),
    ?assertMatch({ok, #{size := 3, live := 2, vacant := 1}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

a_pool_that_starts_slowly_delays_no_other_pool(_Config) ->
    {Starter, Sup} = start_blocked(slow, 1),
    ?assertEqual({error, no_pool}, weir_pool:pick(slow)),
    ?assertEqual({error, already_started}, weir_pool:start(slow, opts(1))),
    ok = weir_pool:start(quick, opts(2)),
    ok = weir_pool:stop(quick),
    Sup ! go,
    ?assertEqual(ok, result(Starter)),
    ok = weir_pool:stop(slow).

%% A pool of start/2 belongs to weir_pool, not to the caller.
a_pool_outlives_the_process_that_started_it(_Config) ->
    {Starter, Sup} = start_blocked(p, 1),
    kill(Starter),
    Sup ! go,
    until(fun() -> settled(p, 1) end),
    ok = weir_pool:stop(p).

%% The supervisor of the pool starts another manager, which answers the starter.
a_pool_that_is_killed_during_its_start_starts_again(_Config) ->
    {Starter, Sup} = start_blocked(p, 1),
    kill(manager(p)),
    Sup ! go,
    await_down(Sup),
    await_blocked() ! go,
    ?assertEqual(ok, result(Starter)),
    until(fun() -> settled(p, 1) end),
    ok = weir_pool:stop(p),
    gone().

a_linked_pool_that_is_killed_during_its_start_leaves_nothing(_Config) ->
    Script = blocked_after(0),
    Starter = weir_kit:start(fun() ->
        process_flag(trap_exit, true),
        weir_pool:start_link(p, script(1, Script))
    end),
    Sup = await_blocked(),
    kill(manager(p)),
    ?assert(lists:member(result(Starter), [{error, {pool_down, killed}}, {error, {pool_down, noproc}}])),
    Sup ! go,
    nothing_left_soon().

a_pool_can_be_stopped_while_it_starts(_Config) ->
    {Starter, Sup} = start_blocked(p, 1),
    Stopper = weir_kit:start(fun() -> weir_pool:stop(p) end),
    weir_kit:until_waiting(Stopper),
    Sup ! go,
    ?assertEqual(ok, result(Stopper)),
    %% The pool may have been complete by then, or not.
    ?assert(lists:member(result(Starter), [ok | [{error, {pool_down, Reason}} || Reason <- [shutdown, noproc]]])),
    gone().

%% A pool that stops waits for a start no longer than for a worker that does not stop, and some seconds.
a_pool_can_be_stopped_while_a_start_hangs(_Config) ->
    Script = blocked_after(0),
    Starter = weir_kit:start(fun() -> weir_pool:start(p, (script(1, Script))#{shutdown => brutal_kill}) end),
    _ = await_blocked(),
    ?assertEqual(ok, weir_pool:stop(p)),
    %% The reason is `noproc' if the starter has not monitored the manager yet.
    ?assert(lists:member(result(Starter), [{error, {pool_down, Reason}} || Reason <- [shutdown, noproc]])),
    gone().

a_pool_is_closed_while_it_waits_for_slow_workers(_Config) ->
    ok = weir_pool:start(p, #{size => 1, worker => {weir_pool_test_worker, start_stubborn, []}, shutdown => infinity}),
    {ok, Worker} = weir_pool:pick(p),
    Stopper = weir_kit:start(fun() -> weir_pool:stop(p) end),
    until(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    ?assert(is_process_alive(Worker)),
    ?assertEqual({error, no_pool}, weir_pool:pick(p, key)),
    ?assertEqual({error, already_started}, weir_pool:start(p, opts(1))),
    exit(Worker, kill),
    ?assertEqual(ok, result(Stopper)),
    gone().

%% A pool whose manager was killed, and a pool that has given up.
a_supervisor_restarts_its_pool(_Config) ->
    Spec = weir_pool:child_spec(p, (opts(2))#{intensity => 0}),
    ?assertEqual(ok, supervisor:check_childspecs([Spec])),
    Parent = start_parent({#{intensity => 2}, [Spec]}),
    ?assertMatch([{{weir_pool, p}, _, supervisor, [weir_pool_manager]}], supervisor:which_children(Parent)),
    ?assert(settled(p, 2)),
    Before = workers(p),
    kill_manager(p),
    ?assert(settled(p, 2)),
    ?assertEqual(Before, Before -- workers(p)),
    Manager = manager(p),
    kill(hd(workers(p))),
    await_down(Manager),
    until(fun() -> settled(p, 2) end),
    stop_parent(Parent),
    nothing_left_soon().

%% A child of a supervisor of Elixir's: {:weir_pool, options}.
a_child_spec_may_have_the_name_in_its_options(_Config) ->
    Opts = maps:to_list(opts(2)),
    Spec = weir_pool:child_spec(p, Opts),
    ?assertEqual(Spec, weir_pool:child_spec([{name, p} | Opts])),
    ?assertEqual(weir_pool:child_spec({p, 1}, opts(2)), weir_pool:child_spec((opts(2))#{name => {p, 1}})),
    [?assertError(badarg, weir_pool:child_spec(Wrong)) || Wrong <- [Opts, opts(2), p, [p], []]],
    Parent = start_parent({#{}, [weir_pool:child_spec([{name, p} | Opts])]}),
    ?assert(settled(p, 2)),
    stop_parent(Parent),
    nothing_left_soon().

a_stopped_pool_stays_down_under_a_supervisor(_Config) ->
    Parent = start_parent({#{}, [weir_pool:child_spec(p, opts(2)), weir_pool:child_spec(q, opts(1))]}),
    ?assertEqual(ok, weir_pool:stop(p)),
    ?assertEqual({error, no_pool}, weir_pool:pick(p)),
    ?assertMatch({ok, _}, weir_pool:pick(q)),
    ?assertMatch([undefined, _], lists:sort([Pid || {_, Pid, _, _} <- supervisor:which_children(Parent)])),
    {ok, _} = supervisor:restart_child(Parent, {weir_pool, p}),
    ?assert(settled(p, 2)),
    ok = supervisor:terminate_child(Parent, {weir_pool, p}),
    ?assertEqual({error, no_pool}, weir_pool:pick(p)),
    stop_parent(Parent),
    nothing_left_soon().

a_stop_ends_one_of_many_pools_of_a_supervisor(_Config) ->
    Child = #{id => x, start => {weir_pool, start_link, []}, type => supervisor},
    Parent = start_parent({#{strategy => simple_one_for_one}, [Child]}),
    [{ok, _} = supervisor:start_child(Parent, [Name, opts(1)]) || Name <- [p, q]],
    ?assertEqual([ok, {error, no_pool}], [weir_pool:stop(p) || _ <- [1, 2]]),
    ?assertMatch({ok, _}, weir_pool:pick(q)),
    stop_parent(Parent),
    nothing_left_soon().

a_stopped_pool_sends_its_owner_an_exit_signal(_Config) ->
    process_flag(trap_exit, true),
    {ok, Manager} = weir_pool:start_link(p, opts(1)),
    ?assertEqual(Manager, manager(p)),
    ?assertEqual(ok, weir_pool:stop(p)),
    ?assertNot(is_process_alive(Manager)),
    receive {'EXIT', Manager, Reason} -> ?assertEqual(shutdown, Reason) end,
    gone().

a_pool_ends_with_its_owner(_Config) ->
    Owner = spawn(fun() ->
        {ok, _} = weir_pool:start_link(p, opts(1)),
        receive stop -> exit(shutdown) end
    end),
    until(fun() -> settled(p, 1) end),
    Owner ! stop,
    nothing_left_soon().

%% `intensity' deaths within the period are survived, one more is not. The default is twice the number of workers and
%% ten.
intensity_is_exact(_Config) ->
    [
        begin
            ok = weir_pool:start(p, (maps:merge(opts(Size), Intensity))#{period => 3600}),
            Manager = manager(p),
            [
                begin
                    kill(hd(workers(p))),
                    until(fun() -> settled(p, Size) end)
                end
             || _ <- lists:seq(1, Deaths)
            ],
            ?assertEqual(Manager, manager(p)),
            kill(hd(workers(p))),
            await_down(Manager),
            nothing_left_soon(),
            ?assertEqual({error, no_pool}, weir_pool:pick(p))
        end
     || {Size, Intensity, Deaths} <- [{2, #{intensity => 3}, 3}, {2, #{intensity => 0}, 0}, {1, #{}, 12}]
    ].

a_pool_gives_up_when_workers_cannot_restart(_Config) ->
    Broken = atomics:new(1, []),
    Script = fun() ->
        case atomics:get(Broken, 1) of
            0 -> start;
            1 -> {error, broken}
        end
    end,
    ok = weir_pool:start(p, (script(2, Script))#{intensity => 5}),
    Manager = manager(p),
    atomics:put(Broken, 1, 1),
    kill(hd(workers(p))),
    await_down(Manager),
    nothing_left_soon().

workers_restart_and_stop_as_the_options_say(_Config) ->
    ok = weir_pool:start(temporary, (opts(2))#{restart => temporary}),
    kill(hd(workers(temporary))),
    until(fun() -> length(workers(temporary)) =:= 1 end),
    ok = weir_pool:start(transient, (opts(2))#{restart => transient}),
    [First, Second] = workers(transient),
    ok = gen_server:call(First, {stop, normal}, wait_ms()),
    until(fun() -> workers(transient) =:= [Second] end),
    kill(Second),
    until(fun() -> [P || P <- workers(transient), P =/= Second] =/= [] end),
    ?assertMatch({ok, #{live := 1, vacant := 1, restarts := 1}}, weir_pool:info(transient)),
    Stubborn = {weir_pool_test_worker, start_stubborn, []},
    ok = weir_pool:start(brutal, #{size => 3, worker => Stubborn, shutdown => brutal_kill}),
    ok = weir_pool:start(hasty, #{size => 3, worker => Stubborn, shutdown => 1}),
    [ok = weir_pool:stop(Name) || Name <- [temporary, transient, brutal, hasty]],
    gone().
