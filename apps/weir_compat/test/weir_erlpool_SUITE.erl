%% erlpool's interface, as its users know it.
-module(weir_erlpool_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(WORKER, {start_mfa, {weir_compat_test, start_link, []}}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_memcached_test:set_up(weir_compat, Config).

end_per_suite(Config) -> weir_memcached_test:tear_down(Config).

%% Each case begins with the application running and without pools.
init_per_testcase(_, Config) ->
    ok = application:unset_env(weir_compat, pools),
    ok = weir_erlpool:start(),
    [] = weir_pool:pools(),
    Config.

end_per_testcase(_, _) ->
    ok = application:unset_env(weir_compat, pools),
    _ = weir_erlpool:stop(),
    pools([]).

%% weir_pool forgets pools that a supervisor has stopped in its own time.
pools(Names) ->
    weir_kit:until(fun() -> weir_pool:pools() =:= Names end).

self(Pid) -> Pid.

pids(Name) -> weir_erlpool:map(Name, fun self/1).

%% Every function of erlpool's, and no other.
interface(_) ->
    Exports = lists:sort(weir_erlpool:module_info(exports) -- [{module_info, 0}, {module_info, 1}]),
    ?assertEqual(
        lists:sort([
            {start, 0}, {start, 1}, {stop, 0}, {start_pool, 2}, {stop_pool, 1}, {restart_pool, 1}, {stop_group, 1},
            {restart_group, 1}, {pid, 1}, {sticky_pid, 2}, {map, 2}, {pool_size, 1}, {add_worker, 1}
        ]),
        Exports
    ).

%% Does what a program does that uses erlpool, from start to stop.
typical_use(_) ->
    ok = weir_erlpool:start(),
    Args = [
        {size, 20},
        {group, db},
        {start_mfa, {weir_compat_test, start_link, [url]}},
        {supervisor_period, 1},
        {supervisor_intensity, 1000},
        {supervisor_restart, permanent},
        {supervisor_shutdown, 5000}
    ],
    ?assertEqual(ok, weir_erlpool:start_pool(connections, Args)),
    ?assertEqual(20, weir_erlpool:pool_size(connections)),
    Pid = weir_erlpool:pid(connections),
    ?assertEqual([url], weir_compat_test:args(Pid)),
    Sticky = weir_erlpool:sticky_pid(connections, erlang:phash2("a user")),
    ?assertEqual(Sticky, weir_erlpool:sticky_pid(connections, erlang:phash2("a user"))),
    ?assertEqual(lists:duplicate(20, [url]), weir_erlpool:map(connections, fun weir_compat_test:args/1)),
    ?assertEqual(ok, weir_erlpool:add_worker(connections)),
    ?assertEqual(21, weir_erlpool:pool_size(connections)),
    ?assertEqual(true, weir_erlpool:restart_pool(connections)),
    ?assertEqual(ok, weir_erlpool:restart_group(db)),
    ?assertEqual(ok, weir_erlpool:stop_group(db)),
    ?assertEqual({error, not_found}, weir_erlpool:pid(connections)),
    ?assertEqual({error, not_found}, weir_erlpool:stop_pool(connections)),
    ?assertEqual(ok, weir_erlpool:stop()).

unknown_pool(_) ->
    NotFound = {error, not_found},
    ?assertEqual(NotFound, weir_erlpool:pid(nobody)),
    ?assertEqual(NotFound, weir_erlpool:sticky_pid(nobody, 1)),
    ?assertEqual(NotFound, weir_erlpool:map(nobody, fun self/1)),
    ?assertEqual(NotFound, weir_erlpool:pool_size(nobody)),
    ?assertEqual(NotFound, weir_erlpool:add_worker(nobody)),
    ?assertEqual(NotFound, weir_erlpool:stop_pool(nobody)),
    ?assertEqual(false, weir_erlpool:restart_pool(nobody)),
    ?assertEqual(ok, weir_erlpool:stop_group(nobody)),
    ?assertEqual(ok, weir_erlpool:restart_group(nobody)).

not_started(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 1}, ?WORKER]),
    ok = weir_erlpool:stop(),
    ?assertEqual({error, {not_started, weir_compat}}, weir_erlpool:stop()),
    NotFound = {error, not_found},
    ?assertEqual(NotFound, weir_erlpool:pid(p)),
    ?assertEqual(NotFound, weir_erlpool:sticky_pid(p, 1)),
    ?assertEqual(NotFound, weir_erlpool:map(p, fun self/1)),
    ?assertEqual(NotFound, weir_erlpool:pool_size(p)),
    ?assertEqual(NotFound, weir_erlpool:add_worker(p)),
    [
        ?assertMatch({exit, {noproc, _}}, weir_compat_test:raised(Fun))
     || Fun <- [
            fun() -> weir_erlpool:start_pool(p, [{size, 1}, ?WORKER]) end,
            fun() -> weir_erlpool:stop_pool(p) end,
            fun() -> weir_erlpool:restart_pool(p) end,
            fun() -> weir_erlpool:stop_group(g) end,
            fun() -> weir_erlpool:restart_group(g) end
        ]
    ].

%% Starting twice is no error; stopping takes all pools along, and their names are free.
start_and_stop(_) ->
    ?assertEqual(ok, weir_erlpool:start()),
    ?assertEqual(ok, weir_erlpool:start(temporary)),
    ok = weir_erlpool:start_pool(p, [{size, 2}, ?WORKER]),
    Pids = pids(p),
    ?assertEqual(ok, weir_erlpool:stop()),
    ?assertEqual([false, false], lists:map(fun is_process_alive/1, Pids)),
    ?assertEqual(ok, weir_erlpool:start(transient)),
    ?assertEqual({error, not_found}, weir_erlpool:pid(p)),
    ?assertEqual(ok, weir_erlpool:start_pool(p, [{size, 2}, ?WORKER])).

start_pool_twice(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 1}, ?WORKER]),
    Pids = pids(p),
    ?assertMatch({error, {already_started, Pid}} when is_pid(Pid), weir_erlpool:start_pool(p, [{size, 2}, ?WORKER])),
    ?assertEqual(Pids, pids(p)).

wrong_options(_) ->
    [
        ?assertEqual({error, Reason}, weir_erlpool:start_pool(p, Args), Args)
     || {Args, Reason} <- [
            {[], {missing_option, size}},
            {[?WORKER], {missing_option, size}},
            {[{size, 1}], {missing_option, start_mfa}},
            {[{size, 0}, ?WORKER], {bad_option, size, 0}},
            {[{size, -1}, ?WORKER], {bad_option, size, -1}},
            {[{size, many}, ?WORKER], {bad_option, size, many}},
            {[{size, 1}, {start_mfa, start}], {bad_option, start_mfa, start}},
            {[{size, 1}, {smart_mfa, x}, ?WORKER], {bad_option, smart_mfa, x}},
            {[{size, 1}, ?WORKER, {args_include_worker_id, 1}], {bad_option, args_include_worker_id, 1}},
            {[{size, 1}, ?WORKER, {supervisor_period, 0}], {bad_option, supervisor_period, 0}},
            {[{size, 1}, ?WORKER, {supervisor_intensity, -1}], {bad_option, supervisor_intensity, -1}},
            {[{size, 1}, ?WORKER, {supervisor_restart, often}], {bad_option, supervisor_restart, often}},
            {[{size, 1}, ?WORKER, {supervisor_shutdown, soon}], {bad_option, supervisor_shutdown, soon}},
            {[{size, 1}, ?WORKER, verbose], {bad_option, verbose, true}},
            {[{size, 1}, {a, b, c}, ?WORKER], {bad_options, {a, b, c}}},
            {none, {bad_options, none}},
            {[{size, 1} | none], {bad_options, none}}
        ]
    ],
    pools([]).

%% As proplists have it; an atom alone is an option that is true.
first_option_counts(_) ->
    Args = [args_include_worker_id, {size, 2}, {size, 3}, ?WORKER, {args_include_worker_id, false}],
    ok = weir_erlpool:start_pool(p, Args),
    ?assertEqual([[1], [2]], weir_erlpool:map(p, fun weir_compat_test:args/1)).

%% Nothing of a pool is left of which one worker could not be started.
worker_that_does_not_start(_) ->
    Args = [{size, 3}, {start_mfa, {weir_compat_test, fail_at, [3]}}, {args_include_worker_id, true}],
    ?assertEqual({error, {start_failed, 3, refused}}, weir_erlpool:start_pool(p, Args)),
    pools([]),
    ?assertEqual({error, not_found}, weir_erlpool:stop_pool(p)),
    ?assertMatch(
        {error, {start_failed, 1, {exception, error, undef, _}}},
        weir_erlpool:start_pool(p, [{size, 1}, {start_mfa, {weir_compat_test, missing, []}}])
    ),
    ?assertEqual(ok, weir_erlpool:start_pool(p, [{size, 3}, ?WORKER])).

worker_start_results(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 2}, {start_mfa, {weir_compat_test, start_with_info, []}}]),
    ?assertMatch([_, _], pids(p)),
    ok = weir_erlpool:start_pool(q, [{size, 2}, {start_mfa, {weir_compat_test, ignore, []}}]),
    ?assertEqual([], pids(q)),
    ?assertEqual(2, weir_erlpool:pool_size(q)),
    ?assertEqual({error, no_worker}, weir_erlpool:pid(q)).

stop_pool(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 3}, ?WORKER]),
    ok = weir_erlpool:start_pool(q, [{size, 1}, ?WORKER]),
    Pids = pids(p),
    ?assertEqual(ok, weir_erlpool:stop_pool(p)),
    ?assertEqual([false, false, false], lists:map(fun is_process_alive/1, Pids)),
    ?assertEqual({error, not_found}, weir_erlpool:pid(p)),
    ?assertEqual({error, not_found}, weir_erlpool:stop_pool(p)),
    pools([q]),
    ?assertEqual(ok, weir_erlpool:start_pool(p, [{size, 1}, ?WORKER])).

any_name(_) ->
    Names = ['node_pool1_127.0.0.1_6379', "name", <<"name">>, {name, 1}, 7],
    [
        begin
            ok = weir_erlpool:start_pool(Name, [{size, 1}, ?WORKER]),
            ?assertEqual(1, weir_erlpool:pool_size(Name))
        end
     || Name <- Names
    ],
    ?assertEqual(5, length(lists:usort([weir_erlpool:pid(Name) || Name <- Names]))),
    [?assertEqual(ok, weir_erlpool:stop_pool(Name)) || Name <- Names].

%% Each worker gets its share of many picks, to within the number of schedulers.
round_robin(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 7}, ?WORKER]),
    Picked = weir_kit:in_parallel([
        fun() -> [weir_erlpool:pid(p) || _ <- lists:seq(1, 700)] end
     || _ <- lists:seq(1, 10)
    ]),
    Shares = shares(lists:append(Picked)),
    ?assertEqual(lists:sort(pids(p)), lists:sort(maps:keys(Shares))),
    assert_even(Shares).

shares(Pids) ->
    lists:foldl(fun(Pid, Acc) -> maps:update_with(Pid, fun(N) -> N + 1 end, 1, Acc) end, #{}, Pids).

assert_even(Shares) ->
    Counts = maps:values(Shares),
    ?assert(lists:max(Counts) - lists:min(Counts) =< erlang:system_info(schedulers), Shares).

%% A dead worker is not handed out, and its share goes to all others.
dead_workers(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 5}, {supervisor_restart, temporary}, ?WORKER]),
    [First, _, Third | _] = Pids = pids(p),
    lists:foreach(fun weir_kit:kill/1, [First, Third]),
    Live = Pids -- [First, Third],
    weir_kit:until(fun() -> pids(p) =:= Live end),
    Shares = shares([weir_erlpool:pid(p) || _ <- lists:seq(1, 600)]),
    ?assertEqual(lists:sort(Live), lists:sort(maps:keys(Shares))),
    assert_even(Shares),
    ?assertEqual([], [Key || Key <- lists:seq(1, 1000), not lists:member(weir_erlpool:sticky_pid(p, Key), Live)]),
    ?assertEqual(5, weir_erlpool:pool_size(p)).

no_workers(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 2}, {supervisor_restart, temporary}, ?WORKER]),
    lists:foreach(fun weir_kit:kill/1, pids(p)),
    weir_kit:until(fun() -> pids(p) =:= [] end),
    ?assertEqual({error, no_worker}, weir_erlpool:pid(p)),
    ?assertEqual({error, no_worker}, weir_erlpool:sticky_pid(p, 1)),
    ?assertEqual(2, weir_erlpool:pool_size(p)).

%% Any term is a key; all workers get some; a killed worker's keys come back to its successor.
sticky_pid(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 4}, ?WORKER]),
    Keys = lists:seq(0, 200) ++ [-1, 1.5, atom, "string", <<"binary">>, {tuple, 1}, #{}, []],
    Before = [weir_erlpool:sticky_pid(p, Key) || Key <- Keys],
    ?assertEqual(lists:sort(pids(p)), lists:usort(Before)),
    ?assertEqual(Before, [weir_erlpool:sticky_pid(p, Key) || Key <- Keys]),
    [Old, _, _, _] = pids(p),
    weir_kit:kill(Old),
    weir_kit:until(fun() -> length(pids(p)) =:= 4 andalso not lists:member(Old, pids(p)) end),
    [New] = pids(p) -- Before,
    After = [weir_erlpool:sticky_pid(p, Key) || Key <- Keys],
    ?assertEqual(
        [
            case Pid of
                Old -> New;
                _ -> Pid
            end
         || Pid <- Before
        ],
        After
    ).

%% Keys that move all move to the worker that was added, and they are about one in five.
sticky_pid_after_add_worker(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 4}, ?WORKER]),
    Keys = lists:seq(1, 5000),
    Old = pids(p),
    Before = [weir_erlpool:sticky_pid(p, Key) || Key <- Keys],
    ok = weir_erlpool:add_worker(p),
    [Added] = pids(p) -- Old,
    Moved = [New || {Key, Was} <- lists:zip(Keys, Before), New <- [weir_erlpool:sticky_pid(p, Key)], New =/= Was],
    ?assertEqual([Added], lists:usort(Moved)),
    ?assert(abs(length(Moved) - 1000) < 200, length(Moved)).

%% In the order of the ids, in the caller; what the function raises is an error.
map(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 3}, {args_include_worker_id, true}, ?WORKER]),
    ?assertEqual([[1], [2], [3]], weir_erlpool:map(p, fun weir_compat_test:args/1)),
    ?assertEqual(lists:duplicate(3, self()), weir_erlpool:map(p, fun(_) -> self() end)),
    ?assertEqual({error, oops}, weir_erlpool:map(p, fun(_) -> error(oops) end)),
    ?assertEqual({error, oops}, weir_erlpool:map(p, fun(_) -> throw(oops) end)),
    ?assertEqual({error, oops}, weir_erlpool:map(p, fun(_) -> exit(oops) end)).

%% The id comes before the arguments, and stays with its place when the worker is restarted. Workers that are added get
%% the next ids.
worker_ids(_) ->
    Args = [{size, 3}, {start_mfa, {weir_compat_test, start_link, [arg]}}, {args_include_worker_id, true}],
    ok = weir_erlpool:start_pool(p, Args),
    Expected = [[1, arg], [2, arg], [3, arg]],
    ?assertEqual(Expected, weir_erlpool:map(p, fun weir_compat_test:args/1)),
    [_, Second, _] = pids(p),
    weir_kit:kill(Second),
    weir_kit:until(fun() -> length(pids(p) -- [Second]) =:= 3 end),
    ?assertEqual(Expected, weir_erlpool:map(p, fun weir_compat_test:args/1)),
    ok = weir_erlpool:add_worker(p),
    ?assertEqual(Expected ++ [[4, arg]], weir_erlpool:map(p, fun weir_compat_test:args/1)).

add_worker(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 1}, ?WORKER]),
    ?assertEqual([ok, ok, ok], [weir_erlpool:add_worker(p) || _ <- [1, 2, 3]]),
    ?assertEqual(4, weir_erlpool:pool_size(p)),
    Pids = pids(p),
    ?assertEqual(4, length(Pids)),
    Shares = shares([weir_erlpool:pid(p) || _ <- lists:seq(1, 400)]),
    ?assertEqual(lists:sort(Pids), lists:sort(maps:keys(Shares))),
    %% Workers that were added are restarted like the others.
    weir_kit:kill(lists:last(Pids)),
    weir_kit:until(fun() -> length(pids(p) -- [lists:last(Pids)]) =:= 4 end).

%% The tree that docs/migrating/erlpool.md shows, as observer walks it.
processes(_) ->
    ok = weir_erlpool:start_pool(mypool, [{size, 2}, ?WORKER]),
    Children = fun(Sup) -> [{Id, Pid, Type} || {Id, Pid, Type, _} <- supervisor:which_children(Sup)] end,
    Pools = whereis(weir_erlpool_sup),
    ?assertMatch({_, Pools, supervisor}, lists:keyfind(Pools, 2, Children(weir_compat_sup))),
    [{{weir_pool, mypool}, Keeper, supervisor}] = Children(Pools),
    ?assertEqual({weir_erlpool_keeper, init, 1}, proc_lib:translate_initial_call(Keeper)),
    {links, Links} = process_info(Keeper, links),
    [Manager] = Links -- [Pools],
    ?assertEqual({weir_pool_manager, init, 1}, proc_lib:translate_initial_call(Manager)),
    Below = Children(Manager),
    Sups = [Sup || {_Id, Sup, supervisor} <- Below],
    ?assertEqual([weir_pool_queue], [element(1, proc_lib:translate_initial_call(Pid)) || {_, Pid, worker} <- Below]),
    ?assertEqual(
        lists:duplicate(2, weir_pool_slot_sup), [element(1, proc_lib:translate_initial_call(Sup)) || Sup <- Sups]
    ),
    Workers = [Pid || Sup <- Sups, {_, Pid, _} <- Children(Sup)],
    ?assertEqual(lists:sort(pids(mypool)), lists:sort(Workers)),
    Shared = [Pid || {_, Pid, _} <- Children(weir_pool_sup)],
    ?assertEqual(lists:sort([whereis(weir_pool_pools_sup), whereis(weir_pool_registry)]), lists:sort(Shared)),
    ?assertEqual([], Children(weir_pool_pools_sup)).

add_worker_that_fails(_) ->
    Args = [{size, 2}, {start_mfa, {weir_compat_test, fail_at, [3]}}, {args_include_worker_id, true}],
    ok = weir_erlpool:start_pool(p, Args),
    Pids = pids(p),
    ?assertEqual({error, {start_failed, 3, refused}}, weir_erlpool:add_worker(p)),
    ?assertEqual(2, weir_erlpool:pool_size(p)),
    ?assertEqual(Pids, pids(p)).

%% Each call adds one worker.
add_workers_at_once(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 2}, {args_include_worker_id, true}, ?WORKER]),
    Results = weir_kit:in_parallel([fun() -> weir_erlpool:add_worker(p) end || _ <- lists:seq(1, 8)]),
    ?assertEqual(lists:duplicate(8, ok), Results),
    weir_kit:same(lost_workers, 10, weir_erlpool:pool_size(p)),
    ?assertEqual([[Id] || Id <- lists:seq(1, 10)], weir_erlpool:map(p, fun weir_compat_test:args/1)).

%% All workers are new, and as many as at the start.
restart_pool(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 3}, ?WORKER]),
    ok = weir_erlpool:add_worker(p),
    Old = pids(p),
    ?assertEqual(true, weir_erlpool:restart_pool(p)),
    New = pids(p),
    ?assertEqual(3, length(New)),
    ?assertEqual(New, New -- Old),
    ?assertEqual(3, weir_erlpool:pool_size(p)),
    ?assert(lists:member(weir_erlpool:pid(p), New)).

%% A pool that cannot be restarted is not running, and can be tried again.
restart_that_fails(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 1}, refusable(p)]),
    refuse(p),
    ?assertEqual(false, weir_erlpool:restart_pool(p)),
    ?assertEqual({error, not_found}, weir_erlpool:pid(p)),
    ?assertEqual(false, weir_erlpool:restart_pool(p)),
    allow(p),
    ?assertEqual(true, weir_erlpool:restart_pool(p)),
    ?assert(is_pid(weir_erlpool:pid(p))),
    refuse(p),
    ?assertEqual(false, weir_erlpool:restart_pool(p)),
    ?assertEqual(ok, weir_erlpool:stop_pool(p)),
    ?assertEqual({error, not_found}, weir_erlpool:stop_pool(p)),
    allow(p).

%% Workers whose start can be made to fail.
refusable(Name) ->
    Start = fun() ->
        case persistent_term:get({?MODULE, Name}, false) of
            true -> {error, refused};
            false -> weir_compat_test:start_link()
        end
    end,
    {start_mfa, {erlang, apply, [Start, []]}}.

refuse(Name) -> persistent_term:put({?MODULE, Name}, true).

allow(Name) -> persistent_term:erase({?MODULE, Name}).

groups(_) ->
    [
        ok = weir_erlpool:start_pool(Name, [{size, 2}, ?WORKER | Group])
     || {Name, Group} <- [
            {a1, [{group, a}]},
            {a2, [{group, a}]},
            {b1, [{group, {b, 1}}]},
            {none, []}
        ]
    ],
    [A1, A2, B1, None] = [pids(Name) || Name <- [a1, a2, b1, none]],
    ?assertEqual(ok, weir_erlpool:restart_group(a)),
    ?assertEqual(2, length(pids(a1) -- A1)),
    ?assertEqual(2, length(pids(a2) -- A2)),
    ?assertEqual([B1, None], [pids(b1), pids(none)]),
    ?assertEqual(ok, weir_erlpool:stop_group(undefined)),
    ?assertEqual(ok, weir_erlpool:stop_group({b, 1})),
    ?assertEqual([{error, not_found}, None], [pids(b1), pids(none)]),
    ?assertEqual(ok, weir_erlpool:stop_group(a)),
    pools([none]),
    %% the pools of weir_pool itself are none of these
    ok = weir_pool:start(other, #{size => 1, worker => {weir_compat_test, start_link, []}}),
    ?assertEqual(ok, weir_erlpool:stop_group(a)),
    ?assertMatch({ok, _}, weir_pool:pick(other)),
    ok = weir_pool:stop(other).

restart_group_that_fails(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 1}, {group, g}, refusable(p)]),
    ok = weir_erlpool:start_pool(q, [{size, 1}, {group, g}, refusable(q)]),
    refuse(p),
    ?assertMatch({error, [{p, _}]}, weir_erlpool:restart_group(g)),
    ?assert(is_pid(weir_erlpool:pid(q))),
    allow(p),
    ?assertEqual(ok, weir_erlpool:restart_group(g)),
    ?assert(is_pid(weir_erlpool:pid(p))).

%% A pool whose workers die too often is gone until it is restarted; the others do not notice.
gives_up(_) ->
    ok = weir_erlpool:start_pool(q, [{size, 1}, ?WORKER]),
    [Other] = pids(q),
    Args = [{size, 1}, {group, g}, {supervisor_intensity, 1}, {supervisor_period, 3600}, ?WORKER],
    ok = weir_erlpool:start_pool(p, Args),
    [First] = pids(p),
    weir_kit:kill(First),
    weir_kit:until(fun() ->
        case pids(p) of
            [New] -> New =/= First;
            _ -> false
        end
    end),
    weir_kit:kill(weir_erlpool:pid(p)),
    weir_kit:until(fun() -> weir_erlpool:pid(p) =:= {error, not_found} end),
    weir_kit:until(fun() -> weir_erlpool:start_pool(p, Args) =:= {error, already_present} end),
    ?assertEqual(true, weir_erlpool:restart_pool(p)),
    ?assert(is_pid(weir_erlpool:pid(p))),
    ?assertEqual([Other], pids(q)),
    ?assertEqual(ok, weir_erlpool:stop_pool(p)).

%% A pool that weir_pool:stop/1 has stopped is like a pool that has given up.
stopped_by_weir_pool(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 1}, ?WORKER]),
    ?assertEqual(ok, weir_pool:stop(p)),
    weir_kit:until(fun() -> weir_erlpool:start_pool(p, [{size, 1}, ?WORKER]) =:= {error, already_present} end),
    ?assertEqual(true, weir_erlpool:restart_pool(p)),
    ?assert(is_pid(weir_erlpool:pid(p))).

%% If a pool's root process is killed, or the keeper above, the pool is started again with new workers.
killed_pool(_) ->
    Args = [{size, 2}, ?WORKER],
    ok = weir_erlpool:start_pool(p, Args),
    {error, {already_started, Keeper}} = weir_erlpool:start_pool(p, Args),
    {links, Links} = process_info(Keeper, links),
    [Root] = Links -- [whereis(weir_erlpool_sup)],
    lists:foreach(
        fun(Killed) ->
            Old = pids(p),
            weir_kit:kill(Killed),
            weir_kit:until(fun() ->
                Pids = pids(p),
                is_list(Pids) andalso length(Pids -- Old) =:= 2
            end),
            %% The new workers do not wait for the old ones.
            weir_kit:until(fun() -> not lists:any(fun is_process_alive/1, Old) end)
        end,
        [Root, Keeper]
    ),
    ?assertEqual(ok, weir_erlpool:stop_pool(p)).

restart_types(_) ->
    [
        begin
            ok = weir_erlpool:start_pool(Type, [{size, 1}, {supervisor_restart, Type}, ?WORKER]),
            [Pid] = pids(Type),
            exit(Pid, shutdown),
            weir_kit:until(fun() ->
                case {Type, pids(Type)} of
                    {permanent, [New]} -> New =/= Pid;
                    {permanent, []} -> false;
                    {_, Pids} -> Pids =:= []
                end
            end)
        end
     || Type <- [permanent, transient, temporary]
    ],
    ok = weir_erlpool:start_pool(crash, [{size, 1}, {supervisor_restart, transient}, ?WORKER]),
    [Crashing] = pids(crash),
    weir_kit:kill(Crashing),
    weir_kit:until(fun() -> pids(crash) =/= [Crashing] andalso pids(crash) =/= [] end).

%% Workers that do not stop by themselves are killed.
shutdown(_) ->
    Deaf = fun() ->
        Pid = spawn_link(fun() ->
            process_flag(trap_exit, true),
            receive
                never -> ok
            end
        end),
        {ok, Pid}
    end,
    [
        begin
            Start = {start_mfa, {erlang, apply, [Deaf, []]}},
            ok = weir_erlpool:start_pool(p, [{size, 1}, Start, {supervisor_shutdown, How}]),
            [Pid] = pids(p),
            ?assertEqual(ok, weir_erlpool:stop_pool(p)),
            ?assertNot(is_process_alive(Pid))
        end
     || How <- [brutal_kill, 1]
    ].

%% A pool of this module is one of weir_pool, with erlpool's defaults.
of_weir_pool(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 2}, ?WORKER]),
    ?assertMatch({ok, #{size := 2, live := 2, strategy := round_robin}}, weir_pool:info(p)),
    [First, Second] = pids(p),
    ?assertEqual({ok, [{1, First}, {2, Second}]}, weir_pool:workers(p)),
    ok = weir_pool:start(theirs, #{size => 1, worker => {weir_compat_test, start_link, []}}),
    ?assertEqual({error, already_started}, weir_erlpool:start_pool(theirs, [{size, 1}, ?WORKER])),
    ?assertEqual({error, not_found}, weir_erlpool:stop_pool(theirs)),
    ?assertEqual(false, weir_erlpool:restart_pool(theirs)),
    ?assert(is_pid(weir_erlpool:pid(theirs))),
    ok = weir_pool:stop(theirs).

pools_of_the_environment(_) ->
    ok = weir_erlpool:stop(),
    ok = application:set_env(weir_compat, pools, [
        {p, [{size, 2}, ?WORKER]},
        {q, [{size, 3}, {group, g}, ?WORKER]}
    ]),
    ?assertEqual(ok, weir_erlpool:start()),
    ?assertEqual([2, 3], [weir_erlpool:pool_size(Name) || Name <- [p, q]]),
    ?assertEqual(ok, weir_erlpool:stop_group(g)),
    ?assertEqual({error, not_found}, weir_erlpool:pid(q)).

%% The application does not start, says why, and leaves nothing behind.
bad_pools_of_the_environment(_) ->
    ok = weir_erlpool:stop(),
    Good = {p, [{size, 2}, ?WORKER]},
    [
        begin
            ok = application:set_env(weir_compat, pools, Pools),
            ?assertMatch({error, {weir_compat, {Expected, {weir_compat_app, start, _}}}}, weir_erlpool:start()),
            pools([]),
            ?assertEqual(undefined, whereis(weir_compat_sup))
        end
     || {Pools, Expected} <- [
            {[Good, {q, [{size, 1}]}], {bad_pool, q, {missing_option, start_mfa}}},
            {[Good, {q, [{size, x}, ?WORKER]}], {bad_pool, q, {bad_option, size, x}}},
            {[Good, {q, [{size, 1}, {args_include_worker_id, true}, {start_mfa, {weir_compat_test, fail_at, [1]}}]}],
                {bad_pool, q, {start_failed, 1, refused}}},
            {[Good, {q, none}], {bad_pool, q, {bad_options, none}}},
            {[Good, q], {bad_pools, q}},
            {p, {bad_pools, p}}
        ]
    ],
    ok = application:set_env(weir_compat, pools, [Good]),
    ?assertEqual(ok, weir_erlpool:start()),
    ?assertEqual(2, weir_erlpool:pool_size(p)).

%% Clients pick by turn and by key, while workers are killed and added. In the end all workers have their share.
clients_and_deaths(_) ->
    ok = weir_erlpool:start_pool(p, [{size, 4}, {supervisor_intensity, 1000000}, ?WORKER]),
    %% whether to stop, and how many clients have begun
    Stop = atomics:new(2, []),
    Client = fun Pick() ->
        case {weir_erlpool:pid(p), weir_erlpool:sticky_pid(p, make_ref())} of
            {A, B} when is_pid(A), is_pid(B) -> ok;
            Other -> lists:member({error, no_worker}, tuple_to_list(Other)) orelse weir_kit:fault({wrong_pick, Other})
        end,
        %% A change takes many messages of other processes.
        erlang:yield(),
        case atomics:get(Stop, 1) of
            0 -> Pick();
            1 -> ok
        end
    end,
    Killer = fun() ->
        [
            case weir_erlpool:pid(p) of
                Pid when is_pid(Pid) -> exit(Pid, kill);
                {error, no_worker} -> ok
            end
         || _ <- lists:seq(1, 300)
        ],
        done
    end,
    Adder = fun() -> [ok = weir_erlpool:add_worker(p) || _ <- lists:seq(1, 4)] end,
    Boss = fun() ->
        weir_kit:until(fun() -> atomics:get(Stop, 2) =:= 20 end),
        _ = weir_kit:in_parallel([Killer, Killer, Adder]),
        atomics:put(Stop, 1, 1)
    end,
    Begin = fun() ->
        atomics:add(Stop, 2, 1),
        Client()
    end,
    _ = weir_kit:in_parallel([Boss | lists:duplicate(20, Begin)]),
    weir_kit:same(lost_workers, 8, weir_erlpool:pool_size(p)),
    weir_kit:until(fun() ->
        Pids = pids(p),
        length(Pids) =:= 8 andalso lists:all(fun is_process_alive/1, Pids)
    end),
    Shares = shares([weir_erlpool:pid(p) || _ <- lists:seq(1, 800)]),
    ?assertEqual(8, maps:size(Shares)),
    assert_even(Shares).
