%% Strategies: which worker is picked, and how often each, in full pools, in pools with vacant slots, and without slots.
-module(weir_pool_strategy_SUITE).

-include("weir_pool_suite.hrl").

-define(STRATEGIES, [round_robin, random, hash, direct, least_loaded, weir_pool_test_strategy]).

%% No live slot gets more than any other, wherever the holes are.
round_robin_with_holes_is_even(_Config) ->
    AllHoles = [
        [], [1], [4], [7], [1, 2], [6, 7], [1, 7], [2, 3, 4], [1, 3, 5, 7], [1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6, 7]
    ],
    [
        with_pool(round_robin, holes(7, Holes), fun(_Pool, Workers) ->
            Counts = on_one_scheduler(fun() -> picks(f, 100 * length(Workers)) end),
            ?assertEqual({Holes, [100 || _ <- Workers]}, {Holes, maps:values(Counts)})
        end)
     || Holes <- AllHoles
    ].

%% Each scheduler begins in another place, so that schedulers do not go over the slots in step.
schedulers_start_apart(_Config) ->
    Schedulers = lists:seq(1, erlang:system_info(schedulers_online)),
    ok = weir_pool:start(p, pool(10 * length(Schedulers))),
    Firsts = [element(2, on_scheduler(S, fun() -> weir_pool:pick_slot(p) end)) || S <- Schedulers],
    ?assertEqual(length(Schedulers), length(lists:usort([(Slot - 1) div 10 || Slot <- Firsts])), Firsts).

keys_of_a_vacant_slot_spread_and_return(_Config) ->
    Size = 10,
    ok = weir_pool:start(p, script(Size, blocked_after(Size))),
    Keys = lists:seq(1, 20000),
    Before = [{Key, Pid} || Key <- Keys, {ok, Pid} <- [weir_pool:pick(p, Key)]],
    Victim = lists:nth(4, slots(p)),
    kill(Victim),
    Blocked = await_blocked(),
    until(fun() -> lists:nth(4, slots(p)) =:= undefined end),
    During = [{Key, Pid} || Key <- Keys, {ok, Pid} <- [weir_pool:pick(p, Key)]],
    %% Other keys stay; those of the victim go to all others, about equally.
    {Victims, Others} = lists:partition(fun({{_, Was}, _Is}) -> Was =:= Victim end, lists:zip(Before, During)),
    ?assertEqual([], [Changed || {Was, Is} = Changed <- Others, Was =/= Is]),
    Moved = [Pid || {_Was, {_, Pid}} <- Victims],
    Shares = maps:values(tally(Moved)),
    ?assertEqual(9, length(Shares)),
    assert_even(Shares, moved),
    Blocked ! go,
    until(fun() -> settled(p, Size) end),
    Successor = lists:nth(4, slots(p)),
    Renamed = fun(Pid) when Pid =:= Victim -> Successor; (Pid) -> Pid end,
    After = [{Key, Pid} || Key <- Keys, {ok, Pid} <- [weir_pool:pick(p, Key)]],
    ?assertEqual([{Key, Renamed(Pid)} || {Key, Pid} <- Before], After).

%% More rehashes than are made would be needed: the search finds it.
the_last_worker_gets_all_keys(_Config) ->
    start_with_holes(p, 500, lists:seq(1, 500) -- [321]),
    [Last] = workers(p),
    ?assertEqual([{ok, Last}], lists:usort([weir_pool:pick(p, Key) || Key <- lists:seq(1, 200)])),
    ?assertEqual([{ok, Last}], lists:usort([weir_pool:pick(p) || _ <- lists:seq(1, 20)])).

%% Pairs of successive picks, and of picks with another in between, are as even as picks are.
random_picks_do_not_depend_on_each_other(_Config) ->
    [
        with_pool(random, lists:duplicate(Size, filled), fun(_Pool, _Workers) ->
            Slots = on_one_scheduler(fun() -> picked_slots(f, 100000) end),
            [assert_even(pairs(Size, Slots, lists:nthtail(Lag, Slots)), {pairs, Size, Lag}) || Lag <- [1, 2, 3, 8]]
        end)
     || Size <- [2, 3, 8, 20]
    ].

%% A process that picks from two pools in turn gets each pair of slots, and so do two schedulers that pick from one
%% pool. The second scheduler's cursor begins ahead of the first, so the first sequence is compared from two places.
pools_and_schedulers_do_not_pick_in_step(_Config) ->
    [
        with_pool(random, lists:duplicate(8, filled), fun(_Pool, Workers) ->
            Other = open(other, random, Workers),
            {Slots, OtherSlots} = on_one_scheduler(fun() ->
                lists:unzip([{picked_slot(f), picked_slot(other)} || _ <- lists:seq(1, 20000)])
            end),
            close(Other),
            assert_even(pairs(8, Slots, OtherSlots), pools_in_step),
            [First, Second] = [
                on_scheduler(Scheduler, fun() -> picked_slots(f, 20000) end)
             || Scheduler <- [1, min(2, erlang:system_info(schedulers_online))]
            ],
            assert_even(pairs(8, First, Second), schedulers_in_step),
            assert_even(pairs(8, lists:nthtail(4, First), Second), schedulers_in_step)
        end)
     || _ <- lists:seq(1, 10)
    ].

pairs(Size, First, Second) ->
    N = min(length(First), length(Second)),
    Counts = tally(lists:zip(lists:sublist(First, N), lists:sublist(Second, N))),
    [maps:get({A, B}, Counts, 0) || A <- lists:seq(1, Size), B <- lists:seq(1, Size)].

%% No live slot gets more than another, wherever the holes are; also with loads that are all alike. In the last pools
%% draws are often in vain, and one of two or three live slots is chosen.
vacant_slots_burden_no_other_slot(_Config) ->
    [
        with_pool(Strategy, holes(Size, Holes), fun(_Pool, Workers) ->
            Counts = on_one_scheduler(fun() -> picks(f, 20000) end),
            assert_even([maps:get(Worker, Counts, 0) || Worker <- Workers], {Strategy, Size, Holes})
        end)
     || Strategy <- [random, least_loaded],
        {Size, Holes} <- [
            {2, [1]}, {2, [2]}, {3, [2]}, {7, [1]}, {7, [4]}, {7, [7]}, {7, [1, 2]}, {7, [6, 7]}, {7, [1, 7]},
            {7, [2, 3, 4]}, {7, [1, 3, 5, 7]}, {7, [1, 2, 3, 4, 5, 6]}, {20, lists:seq(3, 12)},
            {50, lists:seq(1, 50) -- [20, 21]}, {200, lists:seq(3, 200)}, {200, lists:seq(2, 198)}
        ]
    ].

many_processes_pick_evenly(_Config) ->
    each([round_robin, random, least_loaded], fun(Strategy) ->
        start(6, #{strategy => Strategy}),
        Picked = lists:append(weir_kit:in_parallel(lists:duplicate(60, fun() -> maps:to_list(picks(p, 1000)) end))),
        Counts = [lists:sum(proplists:get_all_values(Worker, Picked)) || Worker <- workers(p)],
        assert_even(Counts, Strategy),
        %% The cursor of each scheduler goes round.
        Most = lists:min(Counts) + erlang:system_info(schedulers),
        ?assert(Strategy =/= round_robin orelse lists:max(Counts) =< Most, Counts),
        ?assertMatch({ok, #{picks := 60000, skips := 0, calls := 0}}, weir_pool:info(p))
    end).

%% Wherever it is, also if it is not idle: up to 32 slots are compared.
least_loaded_takes_the_least(_Config) ->
    [
        with_pool(least_loaded, lists:duplicate(length(Loads), filled), fun(Pool, Workers) ->
            put_loads(Pool, numbered(Loads)),
            [{_, Least} | _] = lists:sort(lists:zip(Loads, Workers)),
            ?assertEqual({Loads, #{Least => 1000}}, {Loads, on_one_scheduler(fun() -> picks(f, 1000) end)}),
            ?assertMatch({ok, #{picks := 1000, skips := 0}}, weir_pool:info(f))
        end)
     || Loads <- [
            [1], [1, 0], [1, 2], [3, 1, 2], [5, 4, 3, 2, 1], [1, 2, 3, 4, 5, 6, 7, 8],
            [40, 2, 77, 13, 0, 5, 1000, 14, 3, 9],
            lists:seq(32, 1, -1), lists:seq(0, 31), [2, 2, 2, 2, 1, 2, 2], [1 bsl 60, 1 bsl 61, 1 bsl 59]
        ]
    ].

%% Workers with the least load share the picks.
least_loaded_of_equals_is_even(_Config) ->
    [
        with_pool(least_loaded, lists:duplicate(length(Loads), filled), fun(Pool, Workers) ->
            put_loads(Pool, numbered(Loads)),
            Counts = on_one_scheduler(fun() -> picks(f, 20000) end),
            assert_even([maps:get(Worker, Counts, 0) || Worker <- Workers], Loads)
        end)
     || Loads <- [[0, 0, 0], [1, 1, 1, 1, 1], lists:duplicate(32, 7), lists:duplicate(70, 1), [-1, 0, -5, 0]]
    ].

%% Reads 32 filled slots, from a random slot on. An idle worker is found from its own slot and the 31 slots before it.
%% From other slots the first slot is taken, as all workers but the idle one have the same load.
least_loaded_reads_thirty_two(_Config) ->
    with_pool(least_loaded, lists:duplicate(100, filled), fun(Pool, Workers) ->
        put_loads(Pool, [{Slot, 1} || Slot <- lists:seq(1, 100), Slot =/= 50]),
        Counts = on_one_scheduler(fun() -> picks(f, 50000) end),
        ByDistance = [maps:get(lists:nth((50 - N + 99) rem 100 + 1, Workers), Counts, 0) || N <- lists:seq(0, 99)],
        {[Idle | Before], Others} = lists:split(32, ByDistance),
        ?assertEqual([0], lists:usort(Before)),
        assert_shares([Idle | Others], [0.32 | lists:duplicate(68, 0.01)], reads)
    end),
    with_pool(least_loaded, lists:append(lists:duplicate(32, [filled, vacant, vacant])), fun(Pool, Workers) ->
        put_loads(Pool, [{Slot, 1} || Slot <- lists:seq(1, 96), Slot =/= 49]),
        Idle = lists:nth(17, Workers),
        ?assertEqual(#{Idle => 5000}, on_one_scheduler(fun() -> picks(f, 5000) end))
    end).

draws_are_picks_or_skips(_Config) ->
    [
        with_pool(Strategy, Slots, fun(_Pool, Workers) ->
            ?assertMatch({ok, #{picks := 0, skips := 0}}, weir_pool:info(f)),
            Picked = length([Pid || _ <- lists:seq(1, 5000), {ok, Pid} <- [weir_pool:pick(f)]]),
            ?assertEqual(case Workers of [] -> 0; _ -> 5000 end, Picked),
            {ok, #{picks := Picks, skips := Skips}} = weir_pool:info(f),
            ?assertEqual({Strategy, Slots, Picked}, {Strategy, Slots, Picks}),
            ?assertEqual(lists:member(vacant, Slots), Skips > 0)
        end)
     || Strategy <- [round_robin, random, least_loaded],
        Slots <- [
            [filled, filled, filled], [filled], [vacant], [filled, vacant], [vacant, vacant, filled],
            holes(100, lists:seq(1, 98)), holes(20, [1, 5, 6, 7, 20]), lists:duplicate(5, vacant)
        ]
    ].

direct_is_exact(_Config) ->
    [
        with_pool(direct, lists:duplicate(Size, filled), fun(_Pool, Workers) ->
            Turns = lists:append(lists:duplicate(3, Workers)),
            [?assertEqual({ok, Worker}, weir_pool:pick(f, Key)) || {Key, Worker} <- numbered(Turns)],
            Big = 1 bsl 100,
            Slot = (Big - 1) rem Size + 1,
            ?assertEqual({ok, Slot, lists:nth(Slot, Workers)}, weir_pool:pick_slot(f, Big)),
            ?assertMatch({ok, #{picks := 0, skips := 0}}, weir_pool:info(f))
        end)
     || Size <- [1, 2, 3, 10]
    ].

direct_takes_the_next_filled_slot(_Config) ->
    with_pool(direct, [vacant, filled, vacant, vacant, filled, vacant], fun(_Pool, _Workers) ->
        Slots = [element(2, weir_pool:pick_slot(f, Key)) || Key <- lists:seq(1, 7)],
        ?assertEqual([2, 2, 5, 5, 5, 2, 2], Slots)
    end).

a_module_decides(_Config) ->
    with_pool(weir_pool_test_strategy, lists:duplicate(5, filled), fun(_Pool, Workers) ->
        ?assertEqual({ok, hd(Workers)}, weir_pool:pick(f)),
        [?assertEqual({ok, Worker}, weir_pool:pick(f, {give, Slot})) || {Slot, Worker} <- numbered(Workers)],
        [?assertEqual({ok, Slot, Worker}, weir_pool:pick_slot(f, {give, Slot})) || {Slot, Worker} <- numbered(Workers)],
        ?assertEqual({ok, 1, hd(Workers)}, weir_pool:pick_slot(f)),
        %% Once for each pick, with the key as it was given.
        Keys = [{key, {give, Slot}} || Slot <- lists:seq(1, 5)],
        ?assertEqual([none] ++ Keys ++ Keys ++ [none], lists:reverse(get(asked)))
    end).

%% A vacant slot stands for the next filled slot. Exceptions of the module pass through.
a_module_that_returns_no_slot_is_an_error(_Config) ->
    with_pool(weir_pool_test_strategy, [vacant, vacant, filled, vacant], fun(_Pool, [Three]) ->
        [?assertEqual({ok, 3, Three}, weir_pool:pick_slot(f, {give, Slot})) || Slot <- [1, 2, 3, 4]],
        ?assertEqual({ok, Three}, weir_pool:pick(f)),
        [
            begin
                Error = {bad_return_value, {weir_pool_test_strategy, slot, Term}},
                [?assertError(Error, Attempt()) || Attempt <- by_key({give, Term})]
            end
         || Term <- [0, 5, -1, 1.0, one, undefined, {ok, 1}, self()]
        ],
        [?assertException(Class, mine, Attempt()) ||
            Class <- [error, exit, throw], Attempt <- by_key({do, fun(_) -> erlang:raise(Class, mine, []) end})],
        ?assertMatch({ok, #{calls := 0}}, weir_pool:info(f))
    end).

by_key(Key) -> by_key(f, Key).

%% All functions that pick by a key.
by_key(Name, Key) ->
    [
        fun() -> weir_pool:pick(Name, Key) end,
        fun() -> weir_pool:pick_slot(Name, Key) end,
        fun() -> weir_pool:call_key(Name, Key, request) end,
        fun() -> weir_pool:cast_key(Name, Key, message) end
    ].

a_module_sees_the_pool(_Config) ->
    with_pool(weir_pool_test_strategy, [filled, vacant, filled], fun(Pool, [One, Three]) ->
        put_loads(Pool, [{1, 5}, {2, -1}, {3, 2}]),
        Test = self(),
        Look = fun(View) ->
            Slots = lists:seq(1, weir_pool_strategy:size(View)),
            Test ! {seen, [{weir_pool_strategy:worker(View, S), weir_pool_strategy:calls(View, S)} || S <- Slots]},
            [?assertError(badarg, weir_pool_strategy:worker(View, S)) || S <- [0, 4, -1, 1.0, one]],
            [?assertError(badarg, weir_pool_strategy:calls(View, S)) || S <- [0, 4, -1, 1.0, one]],
            3
        end,
        ?assertEqual({ok, Three}, weir_pool:pick(f, {do, Look})),
        ?assertEqual([{One, 5}, {undefined, 0}, {Three, 2}], receive {seen, Seen} -> Seen end)
    end).

hash_and_direct_refuse_keys_that_they_cannot_use(_Config) ->
    BadKeys = [0, -1, -(1 bsl 80), 1.0, one, {1}, <<1>>, "1", undefined],
    Without = [fun weir_pool:pick/1, fun weir_pool:pick_slot/1],
    WithMessage = [fun weir_pool:call/2, fun weir_pool:cast/2],
    [
        with_pool(Strategy, Slots, fun(_Pool, _Workers) ->
            [?assertError(badarg, Pick(f)) || Pick <- Without],
            [?assertError(badarg, Send(f, message)) || Send <- WithMessage],
            [?assertError(badarg, Attempt()) || Strategy =:= direct, Key <- BadKeys, Attempt <- by_key(Key)]
        end)
     || Strategy <- [hash, direct], Slots <- [[], [vacant], [filled, filled]]
    ],
    ?assertEqual({error, no_pool}, weir_pool:pick(f, bad)).

keys_hash_alike_in_every_strategy(_Config) ->
    Keys = lists:seq(1, 300) ++ [{user, N} || N <- lists:seq(1, 300)],
    Slots = holes(9, [2, 7]),
    [Expected, Expected, Expected, Expected] = [
        with_pool(Strategy, Slots, fun(_Pool, _Workers) ->
            [?assertEqual({ok, element(3, weir_pool:pick_slot(f, Key))}, weir_pool:pick(f, Key)) || Key <- Keys],
            [element(2, weir_pool:pick_slot(f, Key)) || Key <- Keys]
        end)
     || Strategy <- [round_robin, random, hash, least_loaded]
    ],
    ?assertEqual([1, 3, 4, 5, 6, 8, 9], lists:usort(Expected)).

a_pool_without_workers_has_no_worker_to_pick(_Config) ->
    each([{Strategy, Size} || Strategy <- ?STRATEGIES, Size <- [0, 1, 2, 30]], fun({Strategy, Size}) ->
        ok = weir_pool:start(p, #{worker => none, size => Size, auto_size => true, strategy => Strategy}),
        ?assertEqual([{error, no_worker}], lists:usort(attempts(p, Strategy))),
        ?assertEqual({ok, 0}, weir_pool:broadcast(p, m)),
        ?assertEqual([{ok, []}, {ok, []}], [weir_pool:map(p, fun(Pid) -> Pid end), weir_pool:workers(p)]),
        ?assertMatch({ok, #{size := Size, limit := Size, live := 0, vacant := Size, picks := 0}}, weir_pool:info(p)),
        %% The first process that connects itself is found.
        {ok, Slot} = weir_pool:add_worker(p, me),
        {ok, Slot} = weir_pool:connect(p, me),
        ?assertEqual({ok, Slot, self()}, weir_pool:pick_slot(p, key(Strategy)))
    end).

%% Everything that a strategy allows, and that picks.
attempts(Name, Strategy) ->
    Key = key(Strategy),
    [Attempt() || Attempt <- by_key(Name, Key)] ++
        case lists:member(Strategy, [hash, direct]) of
            true -> [];
            false -> [weir_pool:pick(Name), weir_pool:pick_slot(Name), weir_pool:call(Name, r), weir_pool:cast(Name, m)]
        end.

key(weir_pool_test_strategy) -> {give, 1};
key(_) -> 1.

%% A number drawn from the cursor is scaled to the size of the moment.
picks_reach_all_slots_of_each_size(_Config) ->
    each([round_robin, random, least_loaded], fun(Strategy) ->
        start(3, #{strategy => Strategy}),
        [
            begin
                ok = weir_pool:resize(p, Size),
                ?assertEqual(lists:seq(1, Size), lists:usort(picked_slots(p, 200 * Size)))
            end
         || Size <- [4, 30, 2, 1, 5]
        ]
    end).

%% Calls Fun with a pool `f' and the workers in the order of their slots. The manager of the pool is this process, so
%% no process changes the pool.
with_pool(Strategy, Slots, Fun) ->
    Workers = [spawn_link(fun idle/0) || filled <- Slots],
    _ = erase(asked),
    Pool = open(f, Strategy, fill(Slots, Workers)),
    try
        Fun(Pool, Workers)
    after
        close(Pool),
        [Pid ! stop || Pid <- Workers]
    end.

fill([filled | Slots], [Worker | Workers]) -> [Worker | fill(Slots, Workers)];
fill([vacant | Slots], Workers) -> [vacant | fill(Slots, Workers)];
fill([], []) -> [].

open(Name, Strategy, Workers) ->
    {ok, Conf} = weir_pool_opts:check(#{worker => none, strategy => Strategy, size => length(Workers)}),
    Base = erlang:unique_integer([positive, monotonic]) * (?MAX_SIZE + 1),
    Pool = weir_pool_terms:new(Name, Base, Conf, self()),
    [
        begin
            ok = weir_pool_terms:fill(Pool, Slot, Worker),
            ok = weir_pool_word:occupy(Pool, Slot)
        end
     || {Slot, Worker} <- numbered(Workers), is_pid(Worker)
    ],
    ok = weir_pool_terms:open(Pool),
    Pool.

close(#pool{name = Name, base = Base}) ->
    ok = weir_pool_terms:close(Name),
    weir_pool_terms:erase_slots([Base]).

%% Writes the numbers of calls that are under way. Pools of tests have one segment.
put_loads(#pool{segments = [{1, Words, _}]}, Loads) ->
    [atomics:put(Words, ?CALLS_WORD(1, Slot), Load) || {Slot, Load} <- Loads].

idle() ->
    receive stop -> ok end.

holes(Size, Holes) ->
    [case lists:member(Slot, Holes) of true -> vacant; false -> filled end || Slot <- lists:seq(1, Size)].

numbered(List) -> lists:zip(lists:seq(1, length(List)), List).

picked_slot(Name) ->
    {ok, Slot, _} = weir_pool:pick_slot(Name),
    Slot.

picked_slots(Name, N) -> [picked_slot(Name) || _ <- lists:seq(1, N)].

picks(Name, N) -> tally([element(2, {ok, _} = weir_pool:pick(Name)) || _ <- lists:seq(1, N)]).
