%% gproc_pool's interface, as its users know it.
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

%% weir_pool forgets pools that a supervisor has stopped in its own time.
no_pools() ->
    weir_kit:until(fun() -> weir_pool:pools() =:= [] end).

raised(Fun) -> weir_compat_test:raised(Fun).

-define(assertRaised(Reason, Expr), ?assertEqual({error, Reason}, raised(fun() -> Expr end))).

%% A pool with names, and a process connected under each.
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

%% The pool has heard of a death.
gone(Pool, Name) ->
    weir_kit:until(fun() -> weir_gproc_pool:whereis_worker(Pool, Name) =:= undefined end).

shares(Picked) ->
    lists:foldl(fun(Pick, Acc) -> maps:update_with(Pick, fun(N) -> N + 1 end, 1, Acc) end, #{}, Picked).

assert_even(Shares) ->
    Counts = maps:values(Shares),
    ?assert(lists:max(Counts) - lists:min(Counts) =< erlang:system_info(schedulers), Shares).

%% Every function of gproc_pool's but its server's and its tests'.
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

%% A pool from its beginning to its end, with this process as its worker.
typical_use(_) ->
    ?assertEqual(ok, weir_gproc_pool:new(p)),
    ?assertEqual([], weir_gproc_pool:worker_pool(p)),
    ?assertEqual(1, weir_gproc_pool:add_worker(p, a)),
    ?assertEqual([{a, 1}], weir_gproc_pool:worker_pool(p)),
    ?assertEqual([{a, 1, 0}], weir_gproc_pool:defined_workers(p)),
    ?assertEqual([], weir_gproc_pool:active_workers(p)),
    ?assertEqual(false, weir_gproc_pool:pick(p)),
    ?assertEqual(false, weir_gproc_pool:pick_worker(p)),
    ?assertEqual(true, weir_gproc_pool:connect_worker(p, a)),
    ?assertEqual([{a, self()}], weir_gproc_pool:active_workers(p)),
    ?assertEqual(?ID(p, 1, a), weir_gproc_pool:pick(p)),
    ?assertEqual(self(), weir_gproc_pool:pick_worker(p)),
    ?assertEqual(1, weir_gproc_pool:log(weir_gproc_pool:pick(p))),
    ?assertEqual(2, weir_gproc_pool:log(weir_gproc_pool:pick(p))),
    ?assertEqual([{a, 1, 2}], weir_gproc_pool:defined_workers(p)),
    ?assertRaised(not_empty, weir_gproc_pool:delete(p)),
    ?assertRaised({worker_connected, self()}, weir_gproc_pool:remove_worker(p, a)),
    ?assertEqual(true, weir_gproc_pool:disconnect_worker(p, a)),
    ?assertEqual([], weir_gproc_pool:active_workers(p)),
    ?assertEqual(false, weir_gproc_pool:pick(p)),
    ?assertRaised(not_empty, weir_gproc_pool:delete(p)),
    ?assertEqual(true, weir_gproc_pool:remove_worker(p, a)),
    ?assertEqual([], weir_gproc_pool:defined_workers(p)),
    ?assertEqual([], weir_gproc_pool:worker_pool(p)),
    ?assertEqual(ok, weir_gproc_pool:delete(p)),
    ?assertRaised(badarg, weir_gproc_pool:pick(p)).

%% Limiting how many do something at once, by processes that connect as they start.
typical_claims(_) ->
    ok = weir_gproc_pool:new(jobs, claim, [{size, 3}]),
    Names = [{job, N} || N <- [1, 2, 3]],
    ?assertEqual([1, 2, 3], [weir_gproc_pool:add_worker(jobs, Name) || Name <- Names]),
    Pids = [connect(jobs, Name) || Name <- Names],
    Job = fun(?ID(jobs, Slot, {job, Slot}) = Id, Pid) ->
        ?assertEqual(Pid, lists:nth(Slot, Pids)),
        weir_gproc_pool:log(Id),
        weir_compat_test:run(Pid, fun() -> {done, self()} end)
    end,
    Results = weir_kit:in_parallel([
        fun() -> weir_gproc_pool:claim(jobs, Job, {busy_wait, weir_kit:wait_ms()}) end
     || _ <- lists:seq(1, 60)
    ]),
    ?assertEqual([], [Result || Result <- Results, not is_done(Result, Pids)]),
    ?assertEqual(60, lists:sum([Count || {_, _, Count} <- weir_gproc_pool:defined_workers(jobs)])),
    ?assertEqual(true, weir_gproc_pool:force_delete(jobs)).

is_done({true, {done, Pid}}, Pids) -> lists:member(Pid, Pids);
is_done(_, _) -> false.

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

%% These functions need no process of the pool.
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
    ok = weir_gproc_pool:new(sized, random, [{size, 3}, {auto_size, true}]),
    ?assertEqual([1, 2, 3], weir_gproc_pool:worker_pool(sized)),
    ?assertRaised(function_clause, weir_gproc_pool:new(p, best, [])),
    [
        ?assertMatch({error, _}, raised(fun() -> weir_gproc_pool:new(p, hash, Opts) end), Opts)
     || Opts <- [[{size, many}], [{size, -1}], [{auto_size, maybe_so}], [{fill, x}], [auto_size], none, [{size, 1} | x]]
    ],
    ?assertRaised(badarg, weir_gproc_pool:pick(p)),
    ?assertEqual(ok, weir_gproc_pool:new(p)).

%% Each type has its own way to be picked from.
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

%% Where names go that are added one after the other: in a row, or as far from each other as can be.
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

%% The last slots and the first ones are one row.
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
    %% a slot that has become vacant is the next one to be given
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

%% A pool that grows shrinks by one slot when the name of its last is removed.
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

%% A direct pool that has shrunk counts by its new size.
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
    %% a process that ends is disconnected
    weir_kit:kill(connect(p, a)),
    gone(p, a),
    ?assertEqual(true, weir_gproc_pool:connect_worker(p, a)).

%% As a test of one process does: it has all names of the pool, and of another.
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

%% Pools do not disturb each other, and a death is heard of in all of them.
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

%% All who are connected are killed, but the caller and who has disconnected.
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

%% Each connected worker gets its share of many picks, by name as by pid. The share of a vacant slot goes to all.
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

%% Equal terms, equal workers; by name as by pid; and every worker has some.
hash(_) ->
    Pids = pool(p, hash, [{size, 5}], [a, b, c, d, e]),
    Keys = lists:seq(1, 300) ++ [0, -1, 1.5, atom, "string", <<"binary">>, {tuple}, #{}],
    Ids = [weir_gproc_pool:pick(p, Key) || Key <- Keys],
    ?assertEqual(Ids, [weir_gproc_pool:pick(p, Key) || Key <- Keys]),
    Workers = [weir_gproc_pool:pick_worker(p, Key) || Key <- Keys],
    ?assertEqual(lists:sort(Pids), lists:usort(Workers)),
    ?assertEqual(Workers, [weir_gproc_pool:whereis_worker(p, Name) || ?ID(p, _, Name) <- Ids]).

%% Only the keys of a vacant slot go elsewhere, to several others, and they come back.
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

%% The slot of the number, modulo the size, or the next one with a process.
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

%% A pool without size, names or connected workers gives `false'.
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

%% A slot's number, or 0; picks stay even.
randomize(_) ->
    ok = weir_gproc_pool:new(p),
    ?assertEqual(0, weir_gproc_pool:randomize(p)),
    _ = weir_gproc_pool:add_worker(p, a),
    ?assertEqual(1, weir_gproc_pool:randomize(p)),
    [_, _, _] = [weir_gproc_pool:add_worker(p, Name) || Name <- [b, c, d]],
    _ = [connect(p, Name) || Name <- [a, b, c, d]],
    ?assertEqual([1, 2, 3, 4], lists:usort([weir_gproc_pool:randomize(p) || _ <- lists:seq(1, 400)])),
    assert_even(shares([weir_gproc_pool:pick(p) || _ <- lists:seq(1, 400)])),
    ok = weir_gproc_pool:new(h, hash, [{size, 5}]),
    Result = weir_gproc_pool:randomize(h),
    ?assert(lists:member(Result, [1, 2, 3, 4, 5])).

%% A name's counter is not its process's.
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

%% Counts at the same time lose none.
log_at_once(_) ->
    _ = pool(p, round_robin, [], [a, b, c]),
    Results = weir_kit:in_parallel([
        fun() -> [weir_gproc_pool:log(weir_gproc_pool:pick(p)) || _ <- lists:seq(1, 300)] end
     || _ <- lists:seq(1, 10)
    ]),
    ?assertEqual(10, length(Results)),
    assert_even(maps:from_list([{Name, Count} || {Name, _, Count} <- weir_gproc_pool:defined_workers(p)])),
    weir_kit:same(lost_counts, 3000, lists:sum([Count || {_, _, Count} <- weir_gproc_pool:defined_workers(p)])).

%% Claims

claim(_) ->
    [Pid] = pool(p, claim, [{size, 1}], [a]),
    Self = self(),
    Fun = fun(Id, Worker) -> {Id, Worker, self() =:= Self} end,
    ?assertEqual({true, {?ID(p, 1, a), Pid, true}}, weir_gproc_pool:claim(p, Fun)),
    ?assertEqual({true, {?ID(p, 1, a), Pid, true}}, weir_gproc_pool:claim(p, Fun, nowait)),
    ?assertEqual({true, {?ID(p, 1, a), Pid, true}}, weir_gproc_pool:claim(p, Fun, {busy_wait, 1000})),
    ?assertEqual({true, {?ID(p, 1, a), Pid, true}}, weir_gproc_pool:claim(p, Fun, {busy_wait, -1})),
    ?assertEqual({true, false}, weir_gproc_pool:claim(p, fun(_, _) -> false end)).

%% No worker has two claimers at once.
claim_is_exclusive(_) ->
    Pids = pool(p, claim, [], [a, b, c]),
    Table = ets:new(claimed, [public]),
    Use = fun(?ID(p, Slot, _), Pid) ->
        ?assertEqual(Pid, lists:nth(Slot, Pids)),
        ets:insert_new(Table, {Slot}) orelse weir_kit:fault({claimed_twice, Slot}),
        erlang:yield(),
        true = ets:delete(Table, Slot)
    end,
    Results = weir_kit:in_parallel([
        fun() -> [weir_gproc_pool:claim(p, Use, {busy_wait, weir_kit:wait_ms()}) || _ <- lists:seq(1, 100)] end
     || _ <- lists:seq(1, 12)
    ]),
    ?assertEqual([{true, true}], lists:usort(lists:append(Results))),
    true = ets:delete(Table).

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

%% false at once, or after the time; a worker that is released or connects ends the waiting.
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

%% An exception of the function passes through, and the worker is free.
claim_raises(_) ->
    [_] = pool(p, claim, [], [a]),
    ?assertError(oops, weir_gproc_pool:claim(p, fun(_, _) -> error(oops) end)),
    ?assertThrow(oops, weir_gproc_pool:claim(p, fun(_, _) -> throw(oops) end)),
    ?assertExit(oops, weir_gproc_pool:claim(p, fun(_, _) -> exit(oops) end)),
    ?assertExit({timeout, _}, weir_gproc_pool:claim(p, fun(_, _) -> exit({timeout, {gen_server, call, []}}) end)),
    ?assertEqual({true, ok}, weir_gproc_pool:claim(p, fun(_, _) -> ok end)).

nested_claims(_) ->
    [_, _] = pool(p, claim, [], [a, b]),
    Inner = fun(_, First) ->
        weir_gproc_pool:claim(p, fun(_, Second) ->
            ?assertNotEqual(First, Second),
            weir_gproc_pool:claim(p, fun(_, _) -> third end)
        end)
    end,
    ?assertEqual({true, {true, false}}, weir_gproc_pool:claim(p, Inner)),
    ?assertEqual({true, {true, false}}, weir_gproc_pool:claim(p, Inner)).

%% The worker is free again, whether a claim waits or not, and is the same process.
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

%% The claim holds nothing any more; who waits gets the next process that connects.
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

%% The claimer keeps a worker that disconnects, and no other claimer gets it. Another process may use the name: it waits
%% for the end of the claim. No third process connects under the name meanwhile.
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

%% Crashes

%% Names, connections, claims and counters stay, and changes can be made.
killed_registry(_) ->
    [Pid, _] = pool(p, claim, [], [a, b]),
    [Other] = pool(q, round_robin, [], [x]),
    1 = weir_gproc_pool:log(weir_gproc_pool:worker_id(p, a)),
    First = hold(p),
    _ = held(First),
    Before = lists:sort(ets:tab2list(weir_gproc_pool)),
    kill_registry(),
    ?assertEqual(Before, lists:sort(ets:tab2list(weir_gproc_pool))),
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

kill_registry() ->
    Old = whereis(weir_gproc_pool_registry),
    weir_kit:kill(Old),
    weir_kit:until(fun() -> whereis(weir_gproc_pool_registry) =/= undefined end),
    %% A process that answers has read all earlier messages.
    true = weir_gproc_pool:force_delete({kill_registry, none}),
    ok.

%% Killed at any moment of a change, the registry leaves a table that says what the pool says. As often as the
%% application's supervisor puts up with, and then again.
killed_registry_meanwhile(_) ->
    [
        begin
            lists:foreach(fun kill_registry_meanwhile/1, lists:seq(1, 8)),
            ok = application:stop(weir_compat),
            ok = application:start(weir_compat)
        end
     || _ <- [1, 2, 3]
    ].

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
    %% The requests of the process are done.
    true = weir_gproc_pool:force_delete({no, such_pool}),
    {ok, Names} = weir_pool:added_workers({gproc_pool, p}),
    ?assertEqual(Names, [{Name, Slot} || {Name, Slot, _} <- weir_gproc_pool:defined_workers(p)]),
    [?assertEqual(?ID(p, Slot, Name), weir_gproc_pool:worker_id(p, Name)) || {Name, Slot} <- Names],
    Known = [Pool || {{weir_pool, {gproc_pool, Pool}}, _, _, _} <- supervisor:which_children(weir_gproc_pool_sup)],
    [?assert(is_list(weir_gproc_pool:worker_pool(Pool))) || Pool <- Known],
    [true = weir_gproc_pool:force_delete(Pool) || Pool <- Known],
    ?assertEqual([], ets:tab2list(weir_gproc_pool)),
    no_pools().

%% The pool is gone, with its names, and can be made again.
killed_pool(_) ->
    [Pid] = pool(p, round_robin, [], [a]),
    [Other] = pool(q, round_robin, [], [a]),
    [{_, Sup, _, _}] = [
        Child
     || {{weir_pool, {gproc_pool, p}}, _, _, _} = Child <- supervisor:which_children(weir_gproc_pool_sup)
    ],
    weir_kit:kill(Sup),
    weir_kit:until(fun() -> raised(fun() -> weir_gproc_pool:pick(p) end) =:= {error, badarg} end),
    ?assertRaised(badarg, weir_gproc_pool:worker_id(p, a)),
    ?assert(is_process_alive(Pid)),
    ?assertEqual(Other, weir_gproc_pool:pick_worker(q)),
    ?assertEqual(ok, weir_gproc_pool:new(p, hash, [{size, 2}])),
    ?assertEqual([1, 2], weir_gproc_pool:worker_pool(p)),
    %% Also if the supervisor hears of the end last of all: here it does not, as it is not linked any more.
    [Again] = [
        Root
     || {{weir_pool, {gproc_pool, p}}, Root, _, _} <- supervisor:which_children(weir_gproc_pool_sup)
    ],
    _ = sys:replace_state(weir_gproc_pool_sup, fun(State) -> unlink(Again), State end),
    weir_kit:kill(Again),
    weir_kit:until(fun() -> raised(fun() -> weir_gproc_pool:worker_pool(p) end) =:= {error, badarg} end),
    ?assertEqual(ok, weir_gproc_pool:new(p)),
    ?assertEqual([], weir_gproc_pool:worker_pool(p)).

%% All pools are gone, and processes that were connected go on.
stopped_application(_) ->
    Pids = pool(p, round_robin, [], [a, b]),
    ok = application:stop(weir_compat),
    no_pools(),
    ?assertEqual([true, true], lists:map(fun is_process_alive/1, Pids)),
    ok = application:start(weir_compat),
    ?assertRaised(badarg, weir_gproc_pool:pick(p)),
    ?assertEqual(ok, weir_gproc_pool:new(p)),
    ?assertEqual([], weir_gproc_pool:worker_pool(p)).

%% Many pick, while processes connect, disconnect and die and names come and go; then all is as it should be. Fewer
%% times where the pool grows and shrinks: for each the runtime scans every process.
clients_and_changes(_) ->
    clients_and_changes([{size, 7}], weir_kit:long(15, 30)),
    true = weir_gproc_pool:force_delete(p),
    clients_and_changes([], 6).

clients_and_changes(Opts, Rounds) ->
    Fixed = [f1, f2, f3],
    Steady = pool(p, round_robin, Opts, Fixed),
    %% whether to stop, and how many clients have begun
    Stop = atomics:new(2, []),
    Client = fun Pick() ->
        Id = weir_gproc_pool:pick(p),
        ?assertMatch(?ID(p, _, _), Id),
        ?assert(is_pid(weir_gproc_pool:pick_worker(p))),
        _ = raised(fun() -> weir_gproc_pool:log(Id) end),
        %% A change takes many messages of other processes.
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

%% Claimers and workers die all the time. No worker is lost, or given to two claimers.
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
