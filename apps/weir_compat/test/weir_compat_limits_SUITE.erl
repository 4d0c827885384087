%% Pools of weir_erlpool and weir_gproc_pool beside pools that end, and on a node that has no free process.
-module(weir_compat_limits_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(ARGS, [{size, 2}, {start_mfa, {weir_compat_test, start_link, []}}]).
%% Long enough for a supervisor without pauses to use up any intensity.
-define(FULL_MS, 300).

all() -> weir_kit:cases(?MODULE).

%% Each case runs in a node of its own, because it fills the node or ends all its pools.
in_node(Case) ->
    Node = weir_kit_nodes:start(["+P", "2048"]),
    try
        weir_kit_nodes:call(Node, ?MODULE, run, [Case])
    after
        weir_kit_nodes:kill(Node)
    end.

run(Case) ->
    {ok, _} = application:ensure_all_started(weir_compat),
    Sup = whereis(weir_compat_sup),
    ok = ?MODULE:Case(),
    %% The application has not been restarted meanwhile.
    ?assertEqual(Sup, whereis(weir_compat_sup)),
    ok.

%% While the node has no free process, untouched pools work. A registry of weir_gproc_pool that was killed meanwhile
%% comes back once the node has free processes.
registry_at_the_limit(_) -> ok = in_node(kill_registry).

kill_registry() ->
    ok = weir_erlpool:start_pool(p, ?ARGS),
    Pids = pids(p),
    Worker = gproc(p),
    Filler = fill(),
    kill_below(whereis(weir_compat_sup), whereis(weir_gproc_pool_registry)),
    ?assertEqual(Worker, weir_gproc_pool:pick_worker(p)),
    ok = release(Filler),
    weir_kit:until(fun() -> is_pid(whereis(weir_gproc_pool_registry)) end),
    ?assertEqual(Pids, pids(p)),
    ?assertEqual([{a, Worker}], weir_gproc_pool:active_workers(p)),
    ?assertEqual(2, weir_gproc_pool:add_worker(p, b)),
    ok.

%% Pools of weir_erlpool that were killed while the node had no free process come back. Untouched pools never notice.
killed_at_the_limit(_) -> ok = in_node(kill_pools).

kill_pools() ->
    [ok = weir_erlpool:start_pool(Pool, ?ARGS) || Pool <- [untouched, killed, keeper_killed]],
    Pids = pids(untouched),
    Worker = gproc(untouched),
    _ = gproc(killed),
    Filler = fill(),
    kill_below(keeper(killed), pool(killed)),
    kill_below(whereis(weir_erlpool_sup), keeper(keeper_killed)),
    kill_below(whereis(weir_gproc_pool_sup), gproc_root(killed)),
    ?assertEqual(Pids, pids(untouched)),
    ?assertEqual(Worker, weir_gproc_pool:pick_worker(untouched)),
    ok = release(Filler),
    weir_kit:until(fun() -> [length(live(Pool)) || Pool <- [killed, keeper_killed]] =:= [2, 2] end),
    ?assertEqual(Pids, pids(untouched)),
    ?assertEqual([{a, Worker}], weir_gproc_pool:active_workers(untouched)),
    ?assertEqual(ok, weir_gproc_pool:new(killed)),
    ok.

%% A new pool is refused with `system_limit', and leaves its name free.
new_at_the_limit(_) -> ok = in_node(refused).

refused() ->
    Filler = fill(),
    ?assertEqual({error, system_limit}, weir_erlpool:start_pool(p, ?ARGS)),
    ?assertEqual({error, system_limit}, weir_compat_test:raised(fun() -> weir_gproc_pool:new(p) end)),
    ok = release(Filler),
    ?assertEqual(ok, weir_erlpool:start_pool(p, ?ARGS)),
    ?assertEqual(ok, weir_gproc_pool:new(p)),
    ok.

%% More kills of one pool than the supervisor of all pools would have put up with in a second end no other pool.
killed_often(_) -> ok = in_node(kill_often).

kill_often() ->
    [ok = weir_erlpool:start_pool(Pool, ?ARGS) || Pool <- [p, q]],
    Other = pids(q),
    Worker = gproc(r),
    lists:foreach(fun(_) -> kill_new(fun() -> keeper(p) end) end, lists:seq(1, 1500)),
    weir_kit:until(fun() -> length(live(p)) =:= 2 end),
    ?assertEqual(Other, pids(q)),
    ?assertEqual(Worker, weir_gproc_pool:pick_worker(r)),
    ok.

kill_new(Pid) -> weir_kit:kill(weir_kit:until_value(fun() -> is_pid(Pid()) andalso Pid() end)).

%% A killed pool whose workers cannot be started is tried again until they can, and holds up no other pool meanwhile.
pool_that_cannot_be_restarted(_) -> ok = in_node(refused_restart).

refused_restart() ->
    Refuse = atomics:new(1, []),
    Start = fun() ->
        case atomics:get(Refuse, 1) of
            0 -> weir_compat_test:start_link();
            _ -> {error, {refused, atomics:add_get(Refuse, 1, 1)}}
        end
    end,
    ok = weir_erlpool:start_pool(p, [{size, 1}, {start_mfa, {erlang, apply, [Start, []]}}]),
    ok = atomics:put(Refuse, 1, 1),
    weir_kit:kill(pool(p)),
    weir_kit:until(fun() -> atomics:get(Refuse, 1) > 3 end),
    ?assertEqual({error, not_found}, weir_erlpool:pid(p)),
    ?assertEqual(ok, weir_erlpool:start_pool(q, ?ARGS)),
    ok = atomics:put(Refuse, 1, 0),
    weir_kit:until(fun() -> length(live(p)) =:= 1 end),
    ?assertEqual(ok, weir_erlpool:stop_pool(p)),
    ok.

%% A pool whose worker starts slowly holds up neither the start of another pool nor its stop.
slow_start(_) -> ok = in_node(start_slowly).

start_slowly() ->
    Test = self(),
    Start = fun() ->
        Test ! {starting, self()},
        receive
            go -> weir_compat_test:start_link()
        end
    end,
    Args = [{size, 1}, {start_mfa, {erlang, apply, [Start, []]}}],
    Slow = weir_kit:start(fun() -> weir_erlpool:start_pool(slow, Args) end),
    Starter =
        receive
            {starting, Pid} -> Pid
        end,
    ?assertEqual(ok, weir_erlpool:start_pool(other, ?ARGS)),
    ?assertEqual(ok, weir_erlpool:stop_pool(other)),
    Starter ! go,
    ?assertEqual(ok, weir_kit:result(Slow)),
    ok.

%% ---------------------------------------------------------------- pools and their processes

pids(Pool) -> weir_erlpool:map(Pool, fun(Pid) -> Pid end).

live(Pool) ->
    case pids(Pool) of
        {error, not_found} -> [];
        Pids -> Pids
    end.

%% Makes a pool of weir_gproc_pool with one name and its process.
gproc(Pool) ->
    ok = weir_gproc_pool:new(Pool),
    1 = weir_gproc_pool:add_worker(Pool, a),
    Pid = weir_compat_test:member(),
    true = weir_compat_test:run(Pid, fun() -> weir_gproc_pool:connect_worker(Pool, a) end),
    Pid.

gproc_root(Pool) -> child(weir_gproc_pool_sup, {gproc_pool, Pool}).

keeper(Pool) -> child(weir_erlpool_sup, Pool).

child(Sup, Pool) ->
    {_, Pid, _, _} = lists:keyfind({weir_pool, Pool}, 1, supervisor:which_children(Sup)),
    Pid.

%% The root process of the pool below a keeper.
pool(Pool) ->
    {links, Links} = process_info(keeper(Pool), links),
    [Root] = Links -- [whereis(weir_erlpool_sup)],
    Root.

%% ---------------------------------------------------------------- a full process table

%% Starts a process that takes every free process of the node, and returns when there is none.
fill() ->
    Test = self(),
    Filler = spawn_opt(fun() -> fill(Test) end, [{priority, high}]),
    receive
        {Filler, full} -> Filler
    end.

fill(Test) ->
    try spawn_link(fun() -> receive never -> ok end end) of
        _ -> fill(Test)
    catch
        error:system_limit ->
            Test ! {self(), full},
            stay_full()
    end.

stay_full() ->
    receive
        release -> exit(kill)
    after 0 -> ok
    end,
    try spawn_link(fun() -> receive never -> ok end end) of
        _ -> stay_full()
    catch
        error:system_limit -> stay_full()
    end.

%% Kills a process on a full node. The parent is suspended until the node is full again, and so does not get the process
%% that the death has freed.
kill_below(Parent, Pid) ->
    true = erlang:suspend_process(Parent),
    weir_kit:kill(Pid),
    weir_kit:until(fun is_full/0),
    true = erlang:resume_process(Parent).

is_full() ->
    try spawn(fun() -> ok end) of
        _ -> false
    catch
        error:system_limit -> true
    end.

%% Keeps the node full for FULL_MS more, and then ends the processes.
release(Filler) ->
    Monitor = monitor(process, Filler),
    _ = erlang:send_after(?FULL_MS, Filler, release),
    receive
        {'DOWN', Monitor, process, Filler, _} -> ok
    end.
