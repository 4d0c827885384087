%% The interface of gproc_pool.
-module(weir_gproc_pool_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(ID(Pool, Slot, Name), {n, l, [gproc_pool, Pool, Slot, Name]}).
-define(TYPES, [round_robin, random, hash, direct, claim]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_memcached_test:set_up(weir_compat, Config).

end_per_suite(Config) -> weir_memcached_test:tear_down(Config).

%% Each case begins with the application running and without pools.
init_per_testcase(_, Config) ->
    {ok, _} = application:ensure_all_started(weir_compat),
    [] = weir_pool:pools(),
    [] = ets:tab2list(weir_gproc_pool),
    Config.

end_per_testcase(_, _) ->
    _ = application:stop(weir_compat),
    no_pools().

%% Waits until weir_pool has forgotten the pools: the end of a pool reaches its registry later than its supervisor.
no_pools() ->
    weir_kit:until(fun() -> weir_pool:pools() =:= [] end).

raised(Fun) -> weir_compat_test:raised(Fun).

-define(assertRaised(Reason, Expr), ?assertEqual({error, Reason}, raised(fun() -> Expr end))).

%% Starts a pool with names, connects a process under each name, and returns the processes.
pool(Pool, Type, Opts, Names) ->
    ok = weir_gproc_pool:new(Pool, Type, Opts),
    [
        begin
            _ = weir_gproc_pool:add_worker(Pool, Name),
            connect(Pool, Name)
        end
     || Name <- Names
    ].

connect(Pool, Name) ->
    Pid = weir_compat_test:member(),
    true = weir_compat_test:run(Pid, fun() -> weir_gproc_pool:connect_worker(Pool, Name) end),
    Pid.

%% Waits until the pool has noticed a death.
gone(Pool, Name) ->
    weir_kit:until(fun() -> weir_gproc_pool:whereis_worker(Pool, Name) =:= undefined end).

shares(Picked) ->
    lists:foldl(fun(Pick, Acc) -> maps:update_with(Pick, fun(N) -> N + 1 end, 1, Acc) end, #{}, Picked).

assert_even(Shares) ->
    Counts = maps:values(Shares),
    ?assert(lists:max(Counts) - lists:min(Counts) =< erlang:system_info(schedulers), Shares).

%% The module exports every function of gproc_pool except the callbacks of its server and the test functions.
interface(_) ->
    Exports = lists:sort(weir_gproc_pool:module_info(exports) -- [{module_info, 0}, {module_info, 1}]),
    ?assertEqual(
        lists:sort([
            {new, 1}, {new, 3}, {delete, 1}, {force_delete, 1}, {add_worker, 2}, {add_worker, 3}, {remove_worker, 2},
            {connect_worker, 2}, {disconnect_worker, 2}, {whereis_worker, 2}, {worker_id, 2}, {active_workers, 1},
            {defined_workers, 1}, {worker_pool, 1}, {pick, 1}, {pick, 2}, {pick_worker, 1}, {pick_worker, 2},
            {claim, 2}, {claim, 3}, {log, 1}, {randomize, 1}
        ]),
        Exports
    ).

unknown_pool(_) ->
    [?assertEqual({error, badarg}, raised(Fun), Fun) || Fun <- functions_of_a_pool()],
    [
        ?assertEqual({error, badarg}, raised(Fun), Fun)
     || Fun <- [
            fun() -> weir_gproc_pool:add_worker(p, a) end,
            fun() -> weir_gproc_pool:add_worker(p, a, 1) end,
            fun() -> weir_gproc_pool:remove_worker(p, a) end,
            fun() -> weir_gproc_pool:delete(p) end
        ]
    ],
    ?assertEqual([], weir_gproc_pool:active_workers(p)),
    ?assertEqual(true, weir_gproc_pool:force_delete(p)).

%% Calls of functions that raise `badarg' without such a pool, even if the application is not running.
functions_of_a_pool() ->
    [
        fun() -> weir_gproc_pool:pick(p) end,
        fun() -> weir_gproc_pool:pick(p, 1) end,
        fun() -> weir_gproc_pool:pick_worker(p) end,
        fun() -> weir_gproc_pool:pick_worker(p, 1) end,
        fun() -> weir_gproc_pool:claim(p, fun(_, _) -> ok end) end,
        fun() -> weir_gproc_pool:connect_worker(p, a) end,
        fun() -> weir_gproc_pool:disconnect_worker(p, a) end,
        fun() -> weir_gproc_pool:whereis_worker(p, a) end,
        fun() -> weir_gproc_pool:worker_id(p, a) end,
        fun() -> weir_gproc_pool:defined_workers(p) end,
        fun() -> weir_gproc_pool:worker_pool(p) end,
        fun() -> weir_gproc_pool:randomize(p) end,
        fun() -> weir_gproc_pool:log(?ID(p, 1, a)) end
    ].

not_started(_) ->
    [_] = pool(p, round_robin, [], [a]),
    ok = application:stop(weir_compat),
    [?assertEqual({error, badarg}, raised(Fun), Fun) || Fun <- functions_of_a_pool()],
    ?assertEqual([], weir_gproc_pool:active_workers(p)),
    [
        ?assertMatch({exit, {noproc, _}}, raised(Fun))
     || Fun <- [
            fun() -> weir_gproc_pool:new(p) end,
            fun() -> weir_gproc_pool:new(p, claim, []) end,
            fun() -> weir_gproc_pool:add_worker(p, b) end,
            fun() -> weir_gproc_pool:add_worker(p, b, 2) end,
            fun() -> weir_gproc_pool:remove_worker(p, a) end,
            fun() -> weir_gproc_pool:delete(p) end,
            fun() -> weir_gproc_pool:force_delete(p) end
        ]
    ].

new(_) ->
    [
        begin
            ?assertEqual(ok, weir_gproc_pool:new(Type, Type, [])),
            ?assertRaised(exists, weir_gproc_pool:new(Type, Type, [])),
            ?assertEqual([], weir_gproc_pool:worker_pool(Type))
        end
     || Type <- ?TYPES
    ],
    ?assertRaised(exists, weir_gproc_pool:new(direct)),
    %% The name can also be taken in weir_pool.
    ok = weir_pool:start({gproc_pool, theirs}, #{worker => none}),
    ?assertRaised(exists, weir_gproc_pool:new(theirs)),
    ok = weir_pool:stop({gproc_pool, theirs}),
    ok = weir_gproc_pool:new(sized, random, [{size, 3}, {auto_size, true}]),
    ?assertEqual([1, 2, 3], weir_gproc_pool:worker_pool(sized)),
    ?assertRaised(function_clause, weir_gproc_pool:new(p, best, [])),
    [
        ?assertMatch({error, _}, raised(fun() -> weir_gproc_pool:new(p, hash, Opts) end), Opts)
     || Opts <- [[{size, many}], [{size, -1}], [{auto_size, maybe_so}], [{fill, x}], [auto_size], none, [{size, 1} | x]]
    ],
    ?assertRaised(badarg, weir_gproc_pool:pick(p)),
    ?assertEqual(ok, weir_gproc_pool:new(p)).

%% Each type allows its own kind of pick or claim, and raises `badarg' for the others.
wrong_types(_) ->
    [
        begin
            [_] = pool(Type, Type, [], [a]),
            Keyless = [fun weir_gproc_pool:pick/1, fun weir_gproc_pool:pick_worker/1],
            [
                ?assertEqual(lists:member(Type, [round_robin, random]), is_picked(fun() -> Pick(Type) end), Type)
             || Pick <- Keyless
            ],
            Keyed = [fun weir_gproc_pool:pick/2, fun weir_gproc_pool:pick_worker/2],
            [
                ?assertEqual(lists:member(Type, [hash, direct]), is_picked(fun() -> Pick(Type, 1) end), Type)
             || Pick <- Keyed
            ],
            Claim = fun() -> weir_gproc_pool:claim(Type, fun(_, _) -> ok end) end,
            ?assertEqual(Type =:= claim, is_picked(Claim))
        end
     || Type <- ?TYPES
    ].

is_picked(Fun) ->
    case raised(Fun) of
        {returned, false} -> error(nobody);
        {returned, _} -> true;
        {error, badarg} -> false
    end.

any_names(_) ->
    Terms = [atom, "string", <<"binary">>, {tuple, 1}, 1, 1.0, [], #{}, self()],
    [
        begin
            Pids = pool(Pool, direct, [], Terms),
            ?assertEqual(lists:zip(Terms, Pids), weir_gproc_pool:active_workers(Pool)),
            ?assertEqual(?ID(Pool, 1, atom), weir_gproc_pool:pick(Pool, 1))
        end
     || Pool <- Terms
    ].

%% Names that are added one after the other fill the slots in order. In `hash' and `random' pools each name takes the
%% middle of the longest row of vacant slots.
placement(_) ->
    Sparse = #{
        0 => [], 1 => [1], 2 => [1, 2], 3 => [1, 3, 2], 4 => [1, 3, 4, 2], 5 => [1, 4, 3, 5, 2],
        6 => [1, 4, 6, 3, 2, 5], 8 => [1, 5, 7, 3, 8, 2, 4, 6], 10 => [1, 6, 9, 4, 3, 8, 10, 2, 5, 7]
    },
    [
        begin
            Expected =
                case lists:member(Type, [hash, random]) of
                    true -> Slots;
                    false -> lists:seq(1, Size)
                end,
            Pool = {Type, Size, AutoSize},
            ok = weir_gproc_pool:new(Pool, Type, [{size, Size}, {auto_size, AutoSize}]),
            ?assertEqual(lists:seq(1, Size), weir_gproc_pool:worker_pool(Pool)),
            ?assertEqual(Expected, [weir_gproc_pool:add_worker(Pool, {w, N}) || N <- lists:seq(1, Size)]),
            case AutoSize of
                true ->
                    ?assertEqual(Size + 1, weir_gproc_pool:add_worker(Pool, more)),
                    ?assertEqual(Size + 2, weir_gproc_pool:add_worker(Pool, and_more));
                false ->
                    ?assertRaised(pool_full, weir_gproc_pool:add_worker(Pool, more))
            end
        end
     || Type <- ?TYPES, {Size, Slots} <- maps:to_list(Sparse), AutoSize <- [true, false]
    ].

%% In `hash' and `random' pools a row of vacant slots continues from the last slot to the first.
placement_over_the_end(_) ->
    [
        begin
            Pool = {Type, Size, Taken},
            ok = weir_gproc_pool:new(Pool, Type, [{size, Size}]),
            [Slot = weir_gproc_pool:add_worker(Pool, {w, Slot}, Slot) || Slot <- Taken],
            ?assertEqual(Expected, weir_gproc_pool:add_worker(Pool, new))
        end
     || Type <- [hash, random],
        {Size, Taken, Expected} <- [
            {3, [2, 3], 1}, {3, [1, 2], 3}, {10, [8], 3}, {10, [6], 1}, {10, [3, 8], 1}, {10, [4, 9], 2}, {5, [5], 3}
        ]
    ].

add_worker(_) ->
    ok = weir_gproc_pool:new(p, round_robin, [{size, 3}]),
    ?assertEqual([1, 2, 3], [weir_gproc_pool:add_worker(p, Name) || Name <- [a, b, c]]),
    ?assertRaised(exists, weir_gproc_pool:add_worker(p, b)),
    ?assertRaised(pool_full, weir_gproc_pool:add_worker(p, d)),
    %% The next name gets the slot that has become vacant.
    true = weir_gproc_pool:remove_worker(p, b),
    ?assertEqual([{a, 1}, 2, {c, 3}], weir_gproc_pool:worker_pool(p)),
    ?assertEqual(2, weir_gproc_pool:add_worker(p, d)),
    ?assertEqual([{a, 1, 0}, {d, 2, 0}, {c, 3, 0}], weir_gproc_pool:defined_workers(p)).

add_worker_to_slot(_) ->
    ok = weir_gproc_pool:new(p, direct, [{size, 3}]),
    ?assertEqual(3, weir_gproc_pool:add_worker(p, a, 3)),
    ?assertRaised(exists, weir_gproc_pool:add_worker(p, b, 3)),
    ?assertRaised(exists, weir_gproc_pool:add_worker(p, a, 1)),
    ?assertRaised(out_of_range, weir_gproc_pool:add_worker(p, b, 4)),
    ?assertRaised(function_clause, weir_gproc_pool:add_worker(p, b, 0)),
    ?assertRaised(function_clause, weir_gproc_pool:add_worker(p, b, first)),
    ?assertEqual([1, 2, {a, 3}], weir_gproc_pool:worker_pool(p)),
    ?assertEqual(1, weir_gproc_pool:add_worker(p, b)),
    ok = weir_gproc_pool:new(q),
    ?assertEqual(4, weir_gproc_pool:add_worker(q, a, 4)),
    ?assertEqual([1, 2, 3, {a, 4}], weir_gproc_pool:worker_pool(q)),
    ?assertRaised(out_of_range, weir_gproc_pool:add_worker(q, b, 1 bsl 40)),
    ?assertEqual([1, 2, 3, 5], [weir_gproc_pool:add_worker(q, Name) || Name <- [b, c, d, e]]).

%% A pool with `auto_size' grows when full, and shrinks by one slot when the name of its last slot is removed.
auto_size(_) ->
    ok = weir_gproc_pool:new(p),
    [weir_gproc_pool:add_worker(p, Name) || Name <- [a, b, c, d]],
    Remove = fun(Name) ->
        true = weir_gproc_pool:remove_worker(p, Name),
        weir_gproc_pool:worker_pool(p)
    end,
    ?assertEqual([{a, 1}, 2, {c, 3}, {d, 4}], Remove(b)),
    ?assertEqual([{a, 1}, 2, {c, 3}], Remove(d)),
    ?assertEqual([{a, 1}, 2], Remove(c)),
    ?assertEqual(2, weir_gproc_pool:add_worker(p, e)),
    ?assertEqual([{a, 1}], Remove(e)),
    ?assertEqual([], Remove(a)),
    ?assertEqual(0, weir_gproc_pool:randomize(p)),
    ?assertEqual(false, weir_gproc_pool:pick(p)),
    ?assertEqual(1, weir_gproc_pool:add_worker(p, f)),
    true = weir_gproc_pool:connect_worker(p, f),
    ?assertEqual(?ID(p, 1, f), weir_gproc_pool:pick(p)),
    ok = weir_gproc_pool:new(fixed, direct, [{size, 1}, {auto_size, false}]),
    1 = weir_gproc_pool:add_worker(fixed, a),
    true = weir_gproc_pool:remove_worker(fixed, a),
    ?assertEqual([1], weir_gproc_pool:worker_pool(fixed)),
    ?assertEqual(1, weir_gproc_pool:add_worker(fixed, b)).

%% A removed name is unknown, and picks from a `direct' pool that has shrunk use the new size.
remove_worker(_) ->
    ok = weir_gproc_pool:new(p, direct, []),
    [weir_gproc_pool:add_worker(p, Name) || Name <- [a, b, c]],
    [true = weir_gproc_pool:connect_worker(p, Name) || Name <- [a, b, c]],
    Names = fun() -> [lists:last(element(3, weir_gproc_pool:pick(p, N))) || N <- lists:seq(1, 6)] end,
    ?assertEqual([a, b, c, a, b, c], Names()),
    ?assertRaised(badarg, weir_gproc_pool:remove_worker(p, nobody)),
    ?assertRaised({worker_connected, self()}, weir_gproc_pool:remove_worker(p, c)),
    true = weir_gproc_pool:disconnect_worker(p, c),
    ?assertEqual(true, weir_gproc_pool:remove_worker(p, c)),
    ?assertRaised(badarg, weir_gproc_pool:remove_worker(p, c)),
    ?assertRaised(badarg, weir_gproc_pool:worker_id(p, c)),
    ?assertRaised(badarg, weir_gproc_pool:connect_worker(p, c)),
    ?assertEqual([a, b, a, b, a, b], Names()).

connect_and_disconnect(_) ->
    ok = weir_gproc_pool:new(p),
    ?assertRaised(badarg, weir_gproc_pool:connect_worker(p, a)),
    1 = weir_gproc_pool:add_worker(p, a),
    ?assertRaised(badarg, weir_gproc_pool:disconnect_worker(p, a)),
    Other = connect(p, a),
    ?assertRaised(badarg, weir_gproc_pool:connect_worker(p, a)),
    ?assertRaised(badarg, weir_gproc_pool:disconnect_worker(p, a)),
    Again = fun() -> weir_gproc_pool:connect_worker(p, a) end,
    ?assertError(badarg, weir_compat_test:run(Other, Again)),
    ?assertEqual(Other, weir_gproc_pool:pick_worker(p)),
    ?assertEqual(true, weir_compat_test:run(Other, fun() -> weir_gproc_pool:disconnect_worker(p, a) end)),
    ?assertEqual(true, weir_gproc_pool:connect_worker(p, a)),
    ?assertEqual(true, weir_gproc_pool:disconnect_worker(p, a)),
    ?assertRaised(badarg, weir_gproc_pool:disconnect_worker(p, a)),
    %% A process that ends is disconnected.
    weir_kit:kill(connect(p, a)),
    gone(p, a),
    ?assertEqual(true, weir_gproc_pool:connect_worker(p, a)).

%% One process may connect under all names of several pools, and claim all its names at the same time.
one_process_many_names(_) ->
    Names = [a, b, c, d, e, f],
    [
        begin
            ok = weir_gproc_pool:new(Type, Type, []),
            ?assertEqual([1, 2, 3, 4, 5, 6], [weir_gproc_pool:add_worker(Type, Name) || Name <- Names]),
            [?assertEqual(true, weir_gproc_pool:connect_worker(Type, Name)) || Name <- Names]
        end
     || Type <- ?TYPES
    ],
    [?assertEqual([{Name, self()} || Name <- Names], weir_gproc_pool:active_workers(Type)) || Type <- ?TYPES],
    Shares = shares([weir_gproc_pool:pick(round_robin) || _ <- lists:seq(1, 600)]),
    Ids = [?ID(round_robin, Slot, Name) || {Slot, Name} <- lists:zip(lists:seq(1, 6), Names)],
    ?assertEqual(Ids, lists:sort(maps:keys(Shares))),
    assert_even(Shares),
    Inner = fun(Self, Claimed) ->
        weir_gproc_pool:claim(claim, fun(Id, Pid) ->
            ?assertEqual(self(), Pid),
            case length(Claimed) of
                5 -> [Id | Claimed];
                _ -> element(2, Self(Self, [Id | Claimed]))
            end
        end)
    end,
    {true, Claimed} = Inner(Inner, []),
    ?assertEqual(6, length(lists:usort(Claimed))),
    true = weir_gproc_pool:disconnect_worker(direct, c),
    Slots = [Slot || N <- lists:seq(1, 6), ?ID(_, Slot, _) <- [weir_gproc_pool:pick(direct, N)]],
    ?assertEqual([1, 2, 4, 4, 5, 6], Slots),
    [
        begin
            [
                _ = raised(fun() -> weir_gproc_pool:disconnect_worker(Type, Name) end)
             || Name <- Names
            ],
            [true = weir_gproc_pool:remove_worker(Type, Name) || Name <- Names],
            ?assertEqual(ok, weir_gproc_pool:delete(Type))
        end
     || Type <- ?TYPES
    ].

%% A process may connect to many pools. After its death, none of them picks it.
many_pools(_) ->
    Pools = [{pool, N} || N <- lists:seq(1, 20)],
    [ok = weir_gproc_pool:new(Pool) || Pool <- Pools],
    [1 = weir_gproc_pool:add_worker(Pool, w) || Pool <- Pools],
    Pid = weir_compat_test:member(),
    weir_compat_test:run(Pid, fun() -> [weir_gproc_pool:connect_worker(Pool, w) || Pool <- Pools] end),
    ?assertEqual([Pid || _ <- Pools], [weir_gproc_pool:pick_worker(Pool) || Pool <- Pools]),
    ?assertEqual([?ID(Pool, 1, w) || Pool <- Pools], [weir_gproc_pool:pick(Pool) || Pool <- Pools]),
    weir_kit:kill(Pid),
    [gone(Pool, w) || Pool <- Pools],
    ?assertEqual([false || _ <- Pools], [weir_gproc_pool:pick_worker(Pool) || Pool <- Pools]).

lookups(_) ->
    ok = weir_gproc_pool:new(p, hash, [{size, 4}]),
    [1, 3, 4] = [weir_gproc_pool:add_worker(p, Name) || Name <- [a, b, c]],
    B = connect(p, b),
    ?assertEqual(?ID(p, 1, a), weir_gproc_pool:worker_id(p, a)),
    ?assertEqual(?ID(p, 3, b), weir_gproc_pool:worker_id(p, b)),
    ?assertRaised(badarg, weir_gproc_pool:worker_id(p, d)),
    ?assertEqual(undefined, weir_gproc_pool:whereis_worker(p, a)),
    ?assertEqual(B, weir_gproc_pool:whereis_worker(p, b)),
    ?assertRaised(badarg, weir_gproc_pool:whereis_worker(p, d)),
    A = connect(p, a),
    ?assertEqual([{a, A}, {b, B}], weir_gproc_pool:active_workers(p)),
    ?assertEqual([{a, 1, 0}, {b, 3, 0}, {c, 4, 0}], weir_gproc_pool:defined_workers(p)),
    ?assertEqual([{a, 1}, 2, {b, 3}, {c, 4}], weir_gproc_pool:worker_pool(p)).

delete(_) ->
    ok = weir_gproc_pool:new(p, round_robin, [{size, 3}]),
    ?assertEqual(ok, weir_gproc_pool:delete(p)),
    ?assertRaised(badarg, weir_gproc_pool:delete(p)),
    ?assertRaised(badarg, weir_gproc_pool:worker_pool(p)),
    ok = weir_gproc_pool:new(p, claim, []),
    1 = weir_gproc_pool:add_worker(p, a),
    ?assertRaised(not_empty, weir_gproc_pool:delete(p)),
    true = weir_gproc_pool:remove_worker(p, a),
    ?assertEqual(ok, weir_gproc_pool:delete(p)),
    ?assertEqual([], ets:tab2list(weir_gproc_pool)).

%% All connected processes are killed, except the caller. Processes that have disconnected live on.
force_delete(_) ->
    ok = weir_gproc_pool:new(p),
    [weir_gproc_pool:add_worker(p, Name) || Name <- [a, b, c, d, mine]],
    [A, B, C] = [connect(p, Name) || Name <- [a, b, c]],
    true = weir_gproc_pool:connect_worker(p, mine),
    true = weir_compat_test:run(C, fun() -> weir_gproc_pool:disconnect_worker(p, c) end),
    true = weir_compat_test:run(B, fun() -> weir_gproc_pool:connect_worker(p, d) end),
    Monitors = [monitor(process, Pid) || Pid <- [A, B]],
    ?assertEqual(true, weir_gproc_pool:force_delete(p)),
    [
        receive
            {'DOWN', Monitor, process, _, Reason} -> ?assertEqual(killed, Reason)
        end
     || Monitor <- Monitors
    ],
    ?assert(is_process_alive(C)),
    ?assertRaised(badarg, weir_gproc_pool:pick(p)),
    ?assertRaised(badarg, weir_gproc_pool:disconnect_worker(p, mine)),
    ?assertEqual([], ets:tab2list(weir_gproc_pool)),
    no_pools(),
    ?assertEqual(true, weir_gproc_pool:force_delete(p)),
    ?assertEqual(ok, weir_gproc_pool:new(p)).

%% Connected workers get equal shares of many picks, by name and by pid. The share of a vacant slot goes to all others.
round_robin(_) ->
    Names = [a, b, c, d, e],
    Pids = [A, _, C, _, E] = pool(p, round_robin, [], Names),
    Picked = fun(Pick) ->
        shares(lists:append(weir_kit:in_parallel([
            fun() -> [Pick(p) || _ <- lists:seq(1, 500)] end
         || _ <- lists:seq(1, 6)
        ])))
    end,
    ByPid = Picked(fun weir_gproc_pool:pick_worker/1),
    ?assertEqual(lists:sort(Pids), lists:sort(maps:keys(ByPid))),
    assert_even(ByPid),
    ById = Picked(fun weir_gproc_pool:pick/1),
    ?assertEqual([weir_gproc_pool:worker_id(p, Name) || Name <- Names], lists:sort(maps:keys(ById))),
    assert_even(ById),
    [Killed, KilledToo] = [lists:nth(2, Pids), lists:nth(4, Pids)],
    lists:foreach(fun weir_kit:kill/1, [Killed, KilledToo]),
    [gone(p, Name) || Name <- [b, d]],
    Left = Picked(fun weir_gproc_pool:pick_worker/1),
    ?assertEqual(lists:sort([A, C, E]), lists:sort(maps:keys(Left))),
    assert_even(Left).

random(_) ->
    Pids = [First | Rest] = pool(p, random, [{size, 4}], [a, b, c, d]),
    ?assertEqual(lists:sort(Pids), lists:usort([weir_gproc_pool:pick_worker(p) || _ <- lists:seq(1, 400)])),
    ?assertEqual(
        [weir_gproc_pool:worker_id(p, Name) || Name <- [a, d, b, c]],
        lists:usort([weir_gproc_pool:pick(p) || _ <- lists:seq(1, 400)])
    ),
    weir_kit:kill(First),
    gone(p, a),
    Shares = shares([weir_gproc_pool:pick_worker(p) || _ <- lists:seq(1, 3000)]),
    ?assertEqual(lists:sort(Rest), lists:sort(maps:keys(Shares))),
    ?assert(lists:all(fun(N) -> abs(N - 1000) < 250 end, maps:values(Shares)), Shares).

%% Equal keys have equal workers, by name and by pid, and every worker has keys.
hash(_) ->
    Pids = pool(p, hash, [{size, 5}], [a, b, c, d, e]),
    Keys = lists:seq(1, 300) ++ [0, -1, 1.5, atom, "string", <<"binary">>, {tuple}, #{}],
    Ids = [weir_gproc_pool:pick(p, Key) || Key <- Keys],
    ?assertEqual(Ids, [weir_gproc_pool:pick(p, Key) || Key <- Keys]),
    Workers = [weir_gproc_pool:pick_worker(p, Key) || Key <- Keys],
    ?assertEqual(lists:sort(Pids), lists:usort(Workers)),
    ?assertEqual(Workers, [weir_gproc_pool:whereis_worker(p, Name) || ?ID(p, _, Name) <- Ids]).

%% Only the keys of a vacant slot move, to several other slots, and return when the slot is filled.
hash_of_vacant_slots(_) ->
    [_, B | _] = pool(p, hash, [{size, 5}], [a, b, c, d, e]),
    Keys = lists:seq(1, 300),
    Before = [weir_gproc_pool:pick(p, Key) || Key <- Keys],
    weir_kit:kill(B),
    gone(p, b),
    Id = weir_gproc_pool:worker_id(p, b),
    Without = [weir_gproc_pool:pick(p, Key) || Key <- Keys],
    Moved = [New || {Old, New} <- lists:zip(Before, Without), Old =:= Id],
    ?assertEqual([], [New || {Old, New} <- lists:zip(Before, Without), Old =/= Id, New =/= Old]),
    ?assertNot(lists:member(Id, Moved)),
    ?assert(length(lists:usort(Moved)) > 1),
    _ = connect(p, b),
    ?assertEqual(Before, [weir_gproc_pool:pick(p, Key) || Key <- Keys]).

%% A number picks the slot with that number, modulo the size, or the next slot with a process.
direct(_) ->
    ok = weir_gproc_pool:new(p, direct, [{size, 4}]),
    [weir_gproc_pool:add_worker(p, Name) || Name <- [a, b, c, d]],
    Slots = fun() -> [Slot || N <- lists:seq(1, 9), ?ID(p, Slot, _) <- [weir_gproc_pool:pick(p, N)]] end,
    ?assertEqual([], Slots()),
    [A, B, _C, D] = Pids = [connect(p, Name) || Name <- [a, b, c, d]],
    ?assertEqual([1, 2, 3, 4, 1, 2, 3, 4, 1], Slots()),
    ?assertEqual(Pids, [weir_gproc_pool:pick_worker(p, N) || N <- [5, 6, 7, 8]]),
    [
        ?assertMatch({error, _}, raised(fun() -> weir_gproc_pool:pick(p, Bad) end), Bad)
     || Bad <- [0, -1, 1.0, first, "1"]
    ],
    weir_kit:kill(B),
    gone(p, b),
    ?assertEqual([1, 3, 3, 4, 1, 3, 3, 4, 1], Slots()),
    lists:foreach(fun weir_kit:kill/1, [D, A]),
    [gone(p, Name) || Name <- [d, a]],
    ?assertEqual([3, 3, 3, 3, 3, 3, 3, 3, 3], Slots()).

%% A pick or claim returns `false' while no process is connected, whatever the size and the names.
nobody_connected(_) ->
    [
        begin
            Pool = {Type, Opts},
            ok = weir_gproc_pool:new(Pool, Type, Opts),
            Nobody = fun() ->
                case Type of
                    claim ->
                        ?assertEqual(false, weir_gproc_pool:claim(Pool, fun(_, _) -> ok end)),
                        ?assertEqual(false, weir_gproc_pool:claim(Pool, fun(_, _) -> ok end, {busy_wait, 5}));
                    _ when Type =:= hash; Type =:= direct ->
                        ?assertEqual(false, weir_gproc_pool:pick(Pool, 3)),
                        ?assertEqual(false, weir_gproc_pool:pick_worker(Pool, 3));
                    _ ->
                        ?assertEqual(false, weir_gproc_pool:pick(Pool)),
                        ?assertEqual(false, weir_gproc_pool:pick_worker(Pool))
                end
            end,
            Nobody(),
            _ = weir_gproc_pool:add_worker(Pool, a),
            Nobody(),
            weir_kit:kill(connect(Pool, a)),
            gone(Pool, a),
            Nobody()
        end
     || Type <- ?TYPES, Opts <- [[], [{size, 3}], [{size, 0}, {auto_size, true}]]
    ].

%% Returns the number of a slot, or 0. In a `round_robin' pool it makes that number of picks, and shares stay even.
randomize(_) ->
    ok = weir_gproc_pool:new(p),
    ?assertEqual(0, weir_gproc_pool:randomize(p)),
    _ = weir_gproc_pool:add_worker(p, a),
    ?assertEqual(1, weir_gproc_pool:randomize(p)),
    [_, _, _] = [weir_gproc_pool:add_worker(p, Name) || Name <- [b, c, d]],
    _ = [connect(p, Name) || Name <- [a, b, c, d]],
    Before = picks(p),
    Slots = [weir_gproc_pool:randomize(p) || _ <- lists:seq(1, 400)],
    ?assertEqual([1, 2, 3, 4], lists:usort(Slots)),
    ?assertEqual(lists:sum(Slots), picks(p) - Before),
    assert_even(shares([weir_gproc_pool:pick(p) || _ <- lists:seq(1, 400)])),
    _ = pool(r, random, [{size, 2}], [a, b]),
    ?assertEqual([1, 2], lists:usort([weir_gproc_pool:randomize(r) || _ <- lists:seq(1, 100)])),
    ?assertEqual(0, picks(r)).

picks(Pool) ->
    {ok, #{picks := Picks}} = weir_pool:info({gproc_pool, Pool}),
    Picks.

%% A counter belongs to the name: it outlives the process, and ends with the name.
log(_) ->
    [A, _] = pool(p, round_robin, [], [a, b]),
    Id = weir_gproc_pool:worker_id(p, a),
    ?assertEqual([1, 2, 3], [weir_gproc_pool:log(Id) || _ <- [1, 2, 3]]),
    ?assertEqual([{a, 1, 3}, {b, 2, 0}], weir_gproc_pool:defined_workers(p)),
    weir_kit:kill(A),
    gone(p, a),
    ?assertEqual(4, weir_gproc_pool:log(Id)),
    ?assertEqual(5, weir_gproc_pool:log(?ID(p, another_slot, a))),
    true = weir_gproc_pool:remove_worker(p, a),
    ?assertRaised(badarg, weir_gproc_pool:log(Id)),
    1 = weir_gproc_pool:add_worker(p, a),
    ?assertEqual([{a, 1, 0}, {b, 2, 0}], weir_gproc_pool:defined_workers(p)),
    ?assertRaised(function_clause, weir_gproc_pool:log(false)).

%% Concurrent calls of log/1 lose no count.
log_at_once(_) ->
    _ = pool(p, round_robin, [], [a, b, c]),
    Results = weir_kit:in_parallel([
        fun() -> [weir_gproc_pool:log(weir_gproc_pool:pick(p)) || _ <- lists:seq(1, 300)] end
     || _ <- lists:seq(1, 10)
    ]),
    ?assertEqual(10, length(Results)),
    assert_even(maps:from_list([{Name, Count} || {Name, _, Count} <- weir_gproc_pool:defined_workers(p)])),
    weir_kit:same(lost_counts, 3000, lists:sum([Count || {_, _, Count} <- weir_gproc_pool:defined_workers(p)])).

%% ---------------------------------------------------------------- claims

claim(_) ->
    [Pid] = pool(p, claim, [{size, 1}], [a]),
    Self = self(),
    Fun = fun(Id, Worker) -> {Id, Worker, self() =:= Self} end,
    ?assertEqual({true, {?ID(p, 1, a), Pid, true}}, weir_gproc_pool:claim(p, Fun)),
    ?assertEqual({true, {?ID(p, 1, a), Pid, true}}, weir_gproc_pool:claim(p, Fun, nowait)),
    ?assertEqual({true, {?ID(p, 1, a), Pid, true}}, weir_gproc_pool:claim(p, Fun, {busy_wait, 1000})),
    ?assertEqual({true, {?ID(p, 1, a), Pid, true}}, weir_gproc_pool:claim(p, Fun, {busy_wait, -1})),
    ?assertEqual({true, false}, weir_gproc_pool:claim(p, fun(_, _) -> false end)).

%% Starts a process that claims a worker. held/1 waits for the claim, and release/1 gives the worker back.
hold(Pool) ->
    Self = self(),
    Ref = make_ref(),
    Holder = spawn(fun() ->
        Result = weir_gproc_pool:claim(
            Pool,
            fun(_, Pid) ->
                Self ! {Ref, claimed, Pid},
                receive
                    {Ref, release} -> released
                end
            end,
            {busy_wait, weir_kit:wait_ms()}
        ),
        Self ! {Ref, Result}
    end),
    {Holder, Ref}.

held({_Holder, Ref}) ->
    receive
        {Ref, claimed, Pid} -> Pid
    end.

release({Holder, Ref}) ->
    Holder ! {Ref, release},
    receive
        {Ref, {true, released}} -> ok
    end.

waiting(Pool, N) ->
    weir_kit:until(fun() ->
        {ok, #{waiting := Waiting}} = weir_pool:info({gproc_pool, Pool}),
        Waiting =:= N
    end).

%% If all workers are claimed, a claim returns `false', at once or after its time. A worker that is released or connects
%% goes to a waiting claim.
claim_waits(_) ->
    [Pid] = pool(p, claim, [], [a]),
    First = hold(p),
    ?assertEqual(Pid, held(First)),
    ?assertEqual(false, weir_gproc_pool:claim(p, fun(_, _) -> ok end)),
    ?assertEqual(false, weir_gproc_pool:claim(p, fun(_, _) -> ok end, nowait)),
    ?assertEqual(false, weir_gproc_pool:claim(p, fun(_, _) -> ok end, {busy_wait, 0})),
    ?assertEqual(false, weir_gproc_pool:claim(p, fun(_, _) -> ok end, {busy_wait, -5})),
    ?assertEqual(false, weir_gproc_pool:claim(p, fun(_, _) -> ok end, {busy_wait, 5})),
    Second = hold(p),
    waiting(p, 1),
    release(First),
    ?assertEqual(Pid, held(Second)),
    Third = hold(p),
    waiting(p, 1),
    2 = weir_gproc_pool:add_worker(p, b),
    New = connect(p, b),
    ?assertEqual(New, held(Third)),
    lists:foreach(fun release/1, [Second, Third]).

claim_in_order(_) ->
    [_] = pool(p, claim, [], [a]),
    First = hold(p),
    _ = held(First),
    Waiting = lists:foldl(
        fun(N, Acc) ->
            Claimer = hold(p),
            waiting(p, N),
            Acc ++ [Claimer]
        end,
        [],
        lists:seq(1, 5)
    ),
    lists:foldl(
        fun(Claimer, Before) ->
            release(Before),
            _ = held(Claimer),
            Claimer
        end,
        First,
        Waiting
    ),
    release(lists:last(Waiting)).

%% An exception of the function passes through, and the worker is free afterwards.
claim_raises(_) ->
    [_] = pool(p, claim, [], [a]),
    ?assertError(oops, weir_gproc_pool:claim(p, fun(_, _) -> error(oops) end)),
    ?assertThrow(oops, weir_gproc_pool:claim(p, fun(_, _) -> throw(oops) end)),
    ?assertExit(oops, weir_gproc_pool:claim(p, fun(_, _) -> exit(oops) end)),
    ?assertExit({timeout, _}, weir_gproc_pool:claim(p, fun(_, _) -> exit({timeout, {gen_server, call, []}}) end)),
    ?assertEqual({true, ok}, weir_gproc_pool:claim(p, fun(_, _) -> ok end)).

%% If a claimer is killed, the same worker can be claimed again, also by a claim that waits.
killed_claimer(_) ->
    [Pid] = pool(p, claim, [], [a]),
    {Holder, _} = First = hold(p),
    Pid = held(First),
    weir_kit:kill(Holder),
    weir_kit:until(fun() -> weir_gproc_pool:claim(p, fun(_, Worker) -> Worker end) =:= {true, Pid} end),
    {Holder2, _} = Second = hold(p),
    Pid = held(Second),
    Third = hold(p),
    waiting(p, 1),
    weir_kit:kill(Holder2),
    ?assertEqual(Pid, held(Third)),
    release(Third),
    ?assert(is_process_alive(Pid)).

%% A claim whose worker dies holds nothing. A waiting claim gets the next process that connects.
killed_worker(_) ->
    [Pid] = pool(p, claim, [], [a]),
    First = hold(p),
    Pid = held(First),
    weir_kit:kill(Pid),
    gone(p, a),
    ?assertEqual(false, weir_gproc_pool:claim(p, fun(_, _) -> ok end)),
    Second = hold(p),
    waiting(p, 1),
    New = connect(p, a),
    ?assertEqual(New, held(Second)),
    release(First),
    ?assertEqual(false, weir_gproc_pool:claim(p, fun(_, _) -> ok end)),
    release(Second),
    ?assertEqual({true, New}, weir_gproc_pool:claim(p, fun(_, Worker) -> Worker end)).

%% A claimed worker that disconnects stays with its claimer, and no other claim gets the worker. The next process under
%% the name connects when the claim ends, and a third process is refused meanwhile.
disconnected_while_claimed(_) ->
    [Pid] = pool(p, claim, [], [a]),
    First = hold(p),
    Pid = held(First),
    true = weir_compat_test:run(Pid, fun() -> weir_gproc_pool:disconnect_worker(p, a) end),
    ?assertEqual(false, weir_gproc_pool:claim(p, fun(_, _) -> ok end)),
    New = weir_compat_test:member(),
    Connect = fun() -> weir_gproc_pool:connect_worker(p, a) end,
    Connecting = weir_kit:start(fun() -> weir_compat_test:run(New, Connect) end),
    weir_kit:until(fun() -> process_info(New, current_function) =:= {current_function, {gen, do_call, 4}} end),
    ?assertRaised(badarg, weir_compat_test:run(weir_compat_test:member(), Connect)),
    ?assertEqual(false, weir_gproc_pool:claim(p, fun(_, _) -> ok end)),
    ?assert(is_process_alive(element(1, Connecting))),
    release(First),
    ?assertEqual(true, weir_kit:result(Connecting)),
    ?assertEqual({true, New}, weir_gproc_pool:claim(p, fun(_, Worker) -> Worker end)).

wrong_claims(_) ->
    [_] = pool(p, claim, [], [a]),
    [
        ?assertMatch({error, _}, raised(fun() -> weir_gproc_pool:claim(p, Fun, Wait) end))
     || {Fun, Wait} <- [
            {fun(_) -> ok end, nowait}, {fun(_, _) -> ok end, 5}, {fun(_, _) -> ok end, {busy_wait, soon}}, {ok, nowait}
        ]
    ],
    ?assertRaised(function_clause, weir_gproc_pool:claim(p, fun() -> ok end)),
    ?assertEqual({true, ok}, weir_gproc_pool:claim(p, fun(_, _) -> ok end)).

%% ---------------------------------------------------------------- crashes

%% Names, connections, claims and counters survive the registry, and the next registry makes changes.
killed_registry(_) ->
    [Pid, _] = pool(p, claim, [], [a, b]),
    [Other] = pool(q, round_robin, [], [x]),
    1 = weir_gproc_pool:log(weir_gproc_pool:worker_id(p, a)),
    First = hold(p),
    _ = held(First),
    Before = facts(),
    kill_registry(),
    ?assertEqual(Before, facts()),
    release(First),
    ?assertEqual(Other, weir_gproc_pool:pick_worker(q)),
    ?assertEqual(2, weir_gproc_pool:log(weir_gproc_pool:worker_id(p, a))),
    ?assertEqual(3, weir_gproc_pool:add_worker(p, c)),
    ?assertRaised({worker_connected, Pid}, weir_gproc_pool:remove_worker(p, a)),
    weir_kit:kill(Pid),
    gone(p, a),
    ?assertEqual(true, weir_gproc_pool:remove_worker(p, a)),
    ?assertEqual(true, weir_gproc_pool:force_delete(p)),
    ?assertEqual(false, is_process_alive(Pid)).

facts() -> [{weir_gproc_pool:defined_workers(Pool), weir_gproc_pool:active_workers(Pool)} || Pool <- [p, q]].

kill_registry() ->
    Old = whereis(weir_gproc_pool_registry),
    weir_kit:kill(Old),
    weir_kit:until(fun() -> whereis(weir_gproc_pool_registry) =/= undefined end),
    %% The registry answers after all earlier messages.
    true = weir_gproc_pool:force_delete({kill_registry, none}),
    ok.

%% If the registry is killed at any moment of a change, the next registry makes the table equal to the pool.
killed_registry_meanwhile(_) ->
    lists:foreach(fun kill_registry_meanwhile/1, lists:seq(1, 24)).

kill_registry_meanwhile(Round) ->
    ok = weir_gproc_pool:new(p),
    Changer = fun Change(N) ->
        _ = raised(fun() -> weir_gproc_pool:add_worker(p, N) end),
        _ = N rem 3 =:= 0 andalso raised(fun() -> weir_gproc_pool:remove_worker(p, N) end),
        _ = raised(fun() -> weir_gproc_pool:new({extra, N}) end),
        Change(N + 1)
    end,
    Pid = spawn_link(fun() -> Changer(1) end),
    weir_kit:until(fun() -> length(weir_gproc_pool:worker_pool(p)) > Round end),
    kill_registry(),
    unlink(Pid),
    weir_kit:kill(Pid),
    %% The registry answers after the requests of the killed process.
    true = weir_gproc_pool:force_delete({no, such_pool}),
    {ok, Names} = weir_pool:added_workers({gproc_pool, p}),
    ?assertEqual(Names, [{Name, Slot} || {Name, Slot, _} <- weir_gproc_pool:defined_workers(p)]),
    [?assertEqual(?ID(p, Slot, Name), weir_gproc_pool:worker_id(p, Name)) || {Name, Slot} <- Names],
    Known = [Pool || {{weir_pool, {gproc_pool, Pool}}, _, _, _} <- supervisor:which_children(weir_gproc_pool_sup)],
    [?assert(is_list(weir_gproc_pool:worker_pool(Pool))) || Pool <- Known],
    [true = weir_gproc_pool:force_delete(Pool) || Pool <- Known],
    ?assertEqual([], ets:tab2list(weir_gproc_pool)),
    no_pools().

%% A killed pool is gone with its names, other pools work on, and the name is free at once.
killed_pool(_) ->
    [Pid] = pool(p, round_robin, [], [a]),
    [Other] = pool(q, round_robin, [], [a]),
    weir_kit:kill(root(p)),
    weir_kit:until(fun() -> raised(fun() -> weir_gproc_pool:pick(p) end) =:= {error, badarg} end),
    ?assertRaised(badarg, weir_gproc_pool:worker_id(p, a)),
    ?assert(is_process_alive(Pid)),
    ?assertEqual(Other, weir_gproc_pool:pick_worker(q)),
    ?assertEqual(ok, weir_gproc_pool:new(p, hash, [{size, 2}])),
    ?assertEqual([1, 2], weir_gproc_pool:worker_pool(p)),
    lists:foreach(
        fun(_) ->
            weir_kit:kill(root(p)),
            ?assertEqual(ok, weir_gproc_pool:new(p))
        end,
        lists:seq(1, 20)
    ),
    ?assertEqual([], weir_gproc_pool:worker_pool(p)).

root(Pool) ->
    {_, Root, _, _} = lists:keyfind({weir_pool, {gproc_pool, Pool}}, 1, supervisor:which_children(weir_gproc_pool_sup)),
    Root.

%% The registry survives unknown messages and names, and reports of the death of pools that were deleted or have a
%% successor.
strays(_) ->
    Registry = whereis(weir_gproc_pool_registry),
    ?assertEqual({error, badarg}, gen_server:call(Registry, stray, weir_kit:wait_ms())),
    ok = weir_gproc_pool:new(p),
    ?assertEqual({error, badarg}, gen_server:call(Registry, {stray, p}, weir_kit:wait_ms())),
    ok = gen_server:cast(Registry, stray),
    Registry ! stray,
    ok = weir_gproc_pool:delete(p),
    ok = weir_gproc_pool:new(p),
    weir_kit:kill(root(p)),
    ok = weir_gproc_pool:new(p),
    1 = weir_gproc_pool:add_worker(p, a),
    {ok, 2} = weir_pool:add_worker({gproc_pool, p}, unknown),
    %% The registry answers after all earlier messages.
    ?assertEqual(true, weir_gproc_pool:remove_worker(p, unknown)),
    ?assertEqual([{a, 1, 0}], weir_gproc_pool:defined_workers(p)),
    ?assertEqual(Registry, whereis(weir_gproc_pool_registry)).

%% When the application stops, all pools end, and the processes that were connected live on.
stopped_application(_) ->
    Pids = pool(p, round_robin, [], [a, b]),
    ok = application:stop(weir_compat),
    no_pools(),
    ?assertEqual([true, true], lists:map(fun is_process_alive/1, Pids)),
    ok = application:start(weir_compat),
    ?assertRaised(badarg, weir_gproc_pool:pick(p)),
    ?assertEqual(ok, weir_gproc_pool:new(p)),
    ?assertEqual([], weir_gproc_pool:worker_pool(p)).

%% While many processes pick, others connect, disconnect and die, and names are added and removed. Afterwards the names,
%% the workers and their shares are right. A pool that grows and shrinks has fewer rounds, because the runtime scans
%% every process for each change of the size.
clients_and_changes(_) ->
    clients_and_changes([{size, 7}], weir_kit:long(15, 30)),
    true = weir_gproc_pool:force_delete(p),
    clients_and_changes([], 6).

clients_and_changes(Opts, Rounds) ->
    Fixed = [f1, f2, f3],
    Steady = pool(p, round_robin, Opts, Fixed),
    %% The first number is 1 when the clients are to stop. The second is the number of clients that have begun.
    Stop = atomics:new(2, []),
    Client = fun Pick() ->
        Id = weir_gproc_pool:pick(p),
        ?assertMatch(?ID(p, _, _), Id),
        ?assert(is_pid(weir_gproc_pool:pick_worker(p))),
        _ = raised(fun() -> weir_gproc_pool:log(Id) end),
        %% A change needs many messages between other processes.
        erlang:yield(),
        case atomics:get(Stop, 1) of
            0 -> Pick();
            1 -> ok
        end
    end,
    Changer = fun(Name) ->
        fun() ->
            [
                begin
                    _ = weir_gproc_pool:add_worker(p, Name),
                    Pid = connect(p, Name),
                    ?assert(is_pid(weir_gproc_pool:pick_worker(p))),
                    case N rem 3 of
                        0 ->
                            weir_kit:kill(Pid),
                            gone(p, Name);
                        _ ->
                            true = weir_compat_test:run(Pid, fun() -> weir_gproc_pool:disconnect_worker(p, Name) end)
                    end,
                    true = weir_gproc_pool:remove_worker(p, Name)
                end
             || N <- lists:seq(1, Rounds)
            ]
        end
    end,
    Boss = fun() ->
        weir_kit:until(fun() -> atomics:get(Stop, 2) =:= 10 end),
        _ = weir_kit:in_parallel([Changer(Name) || Name <- [a, b, c, d]]),
        atomics:put(Stop, 1, 1)
    end,
    Begin = fun() ->
        atomics:add(Stop, 2, 1),
        Client()
    end,
    _ = weir_kit:in_parallel([Boss | lists:duplicate(10, Begin)]),
    weir_kit:same(workers, lists:zip(Fixed, Steady), weir_gproc_pool:active_workers(p)),
    weir_kit:same(names, Fixed, [Name || {Name, _, _} <- weir_gproc_pool:defined_workers(p)]),
    Shares = shares([weir_gproc_pool:pick_worker(p) || _ <- lists:seq(1, 600)]),
    ?assertEqual(lists:sort(Steady), lists:sort(maps:keys(Shares))),
    assert_even(Shares).

%% While claimers and workers are killed, no worker has two claimers, and afterwards none is lost.
claims_and_deaths(_) ->
    Names = [a, b, c, d],
    ok = weir_gproc_pool:new(p, claim, []),
    [weir_gproc_pool:add_worker(p, Name) || Name <- Names],
    Stop = atomics:new(1, []),
    Using = ets:new(using, [public]),
    Worker = fun(Name) ->
        fun Live(N) ->
            Pid = connect(p, Name),
            case atomics:get(Stop, 1) of
                0 ->
                    weir_kit:kill(Pid),
                    gone(p, Name),
                    Live(N + 1);
                1 ->
                    %% The last worker stays until the claimers have ended.
                    exit(Pid, kill),
                    N
            end
        end
    end,
    Use = fun(_, Pid) ->
        ets:insert_new(Using, {Pid, self()}) orelse weir_kit:fault({claimed_twice, Pid}),
        erlang:yield(),
        true = ets:delete(Using, Pid),
        rand:uniform(10) =/= 1 orelse exit(self(), kill)
    end,
    Claimer = fun() -> weir_gproc_pool:claim(p, Use, {busy_wait, weir_kit:wait_ms()}) end,
    Boss = fun() ->
        [
            try weir_kit:result(weir_kit:start(Claimer)) of
                {true, true} -> done
            catch
                error:{crashed, killed} -> killed
            end
         || _ <- lists:seq(1, 100)
        ]
    end,
    Steady = connect(p, d),
    Bosses = fun() ->
        Results = weir_kit:in_parallel([Boss || _ <- lists:seq(1, 8)]),
        atomics:put(Stop, 1, 1),
        lists:append(Results)
    end,
    [Results | _] = weir_kit:in_parallel([Bosses | [fun() -> (Worker(Name))(0) end || Name <- [a, b, c]]]),
    ?assertEqual(800, length(Results)),
    ?assertEqual([done, killed], lists:usort(Results)),
    [gone(p, Name) || Name <- [a, b, c]],
    weir_kit:until(fun() -> weir_gproc_pool:claim(p, fun(_, Pid) -> Pid end) =:= {true, Steady} end),
    weir_kit:until(fun() ->
        {ok, #{claimed := Claimed}} = weir_pool:info({gproc_pool, p}),
        Claimed =:= 0
    end),
    true = ets:delete(Using).
