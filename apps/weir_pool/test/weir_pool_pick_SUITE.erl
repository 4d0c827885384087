%% Which worker is picked: round robin and by key, in full pools and in pools with vacant slots.
-module(weir_pool_pick_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, kill/1, result/1]).
-import(weir_pool_test_lib, [
    slots/1, workers/1, settled/2, opts/1, script/2, start_with_holes/3, nothing_left_soon/0, blocked_after/1,
    await_blocked/0, on_one_scheduler/1, on_scheduler/2, picks/2
]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

%% No live slot gets more than any other, wherever the holes are.
round_robin_with_holes_is_even(_Config) ->
    [
        begin
            start_with_holes(p, 7, Holes),
            Live = 7 - length(Holes),
            Counts = on_one_scheduler(fun() -> picks(p, Live * 100) end),
            ?assertEqual({Holes, lists:duplicate(Live, 100)}, {Holes, maps:values(Counts)}),
            ok = weir_pool:stop(p)
        end
     || Holes <- [
            [], [1], [4], [7], [1, 2], [6, 7], [1, 7], [2, 3, 4], [1, 3, 5, 7], [1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6, 7]
        ]
    ].

round_robin_from_many_processes_is_even(_Config) ->
    Size = 6,
    ok = weir_pool:start(p, opts(Size)),
    Pickers = [weir_kit:start(fun() -> picks(p, 1000) end) || _ <- lists:seq(1, 60)],
    Counts = lists:append([maps:to_list(result(Picker)) || Picker <- Pickers]),
    Values = [lists:sum(proplists:get_all_values(Worker, Counts)) || Worker <- workers(p)],
    ?assertEqual(60000, lists:sum(Values)),
    ?assert(lists:max(Values) - lists:min(Values) =< erlang:system_info(schedulers), Values),
    ?assertMatch({ok, #{picks := 60000, skips := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% Each scheduler begins in another place, so that schedulers do not go over the slots in step.
schedulers_start_apart(_Config) ->
    Schedulers = lists:seq(1, erlang:system_info(schedulers_online)),
    ok = weir_pool:start(p, opts(10 * length(Schedulers))),
    Firsts = [element(2, on_scheduler(S, fun() -> weir_pool:pick_slot(p) end)) || S <- Schedulers],
    ?assertEqual(length(Schedulers), length(lists:usort([(Slot - 1) div 10 || Slot <- Firsts])), Firsts),
    ok = weir_pool:stop(p).

a_key_keeps_its_worker(_Config) ->
    ok = weir_pool:start(p, opts(20)),
    Keys = lists:seq(1, 2000),
    Slots = list_to_tuple(slots(p)),
    [?assertEqual({ok, element(weir_pool_hash:slot(Key, 20), Slots)}, weir_pool:pick(p, Key)) || Key <- Keys],
    ?assertEqual(20, length(lists:usort([Pid || Key <- Keys, {ok, Pid} <- [weir_pool:pick(p, Key)]]))),
    ok = weir_pool:stop(p).

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
    Shares = [length([P || P <- Moved, P =:= Pid]) || Pid <- lists:usort(Moved)],
    ?assertEqual(9, length(Shares)),
    Expected = length(Moved) / 9,
    ?assert(lists:all(fun(Share) -> abs(Share - Expected) < 6 * math:sqrt(Expected) end, Shares), Shares),
    Blocked ! go,
    until(fun() -> settled(p, Size) end),
    Successor = lists:nth(4, slots(p)),
    Renamed = fun(Pid) when Pid =:= Victim -> Successor; (Pid) -> Pid end,
    After = [{Key, Pid} || Key <- Keys, {ok, Pid} <- [weir_pool:pick(p, Key)]],
    ?assertEqual([{Key, Renamed(Pid)} || {Key, Pid} <- Before], After),
    ok = weir_pool:stop(p).

%% More rehashes than are made would be needed: the search finds it.
the_last_worker_gets_all_keys(_Config) ->
    start_with_holes(p, 500, lists:seq(1, 500) -- [321]),
    [Last] = workers(p),
    ?assertEqual([{ok, Last}], lists:usort([weir_pool:pick(p, Key) || Key <- lists:seq(1, 200)])),
    ?assertEqual([{ok, Last}], lists:usort([weir_pool:pick(p) || _ <- lists:seq(1, 20)])),
    ok = weir_pool:stop(p).

info_counts_picks_and_skips(_Config) ->
    start_with_holes(p, 4, [2]),
    _ = on_one_scheduler(fun() -> picks(p, 300) end),
    {ok, #{skips := Skips} = Info} = weir_pool:info(p),
    ?assertMatch(#{size := 4, live := 3, vacant := 1, picks := 300, restarts := 0, start_failures := 0}, Info),
    ?assert(lists:member(Skips, [99, 100]), Skips),
    {ok, _} = weir_pool:pick(p, key),
    ?assertMatch({ok, #{picks := 300}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).
