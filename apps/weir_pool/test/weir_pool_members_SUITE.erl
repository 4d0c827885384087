%% Pools whose workers connect themselves: names, slots, and who is in them.
-module(weir_pool_members_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, kill/1, result/1, wait_ms/0]).
-import(weir_pool_test_lib, [kill_manager/1, manager/1, slots/1, nothing_left_soon/0]).
-import(weir_pool_life_lib, [claimer/1, release/1, kill_claimer/1, worker_of/1, slot_of/1, word/2]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

%% Starts a process that runs the functions that it is sent, until the test ends.
member() ->
    Test = self(),
    spawn(fun() -> member_loop(monitor(process, Test)) end).

member_loop(Monitor) ->
    receive
        {run, From, Fun} ->
            From ! {ran, self(), Fun()},
            member_loop(Monitor);
        {'DOWN', Monitor, process, _, _} ->
            ok
    end.

in(Member, Fun) ->
    Member ! {run, self(), Fun},
    receive {ran, Member, Result} -> Result end.

connect(Member, Pool, Name) -> in(Member, fun() -> weir_pool:connect(Pool, Name) end).

disconnect(Member, Pool, Name) -> in(Member, fun() -> weir_pool:disconnect(Pool, Name) end).

%% A pool with these names, in the first slots, and a process connected under each.
connected(Names) ->
    ok = weir_pool:start(p, #{worker => none, size => length(Names)}),
    [
        begin
            {ok, Slot} = weir_pool:add_worker(p, Name),
            Member = member(),
            ?assertEqual({ok, Slot}, connect(Member, p, Name)),
            Member
        end
     || Name <- Names
    ].

each_name_gets_the_first_free_slot(_Config) ->
    ok = weir_pool:start(p, #{worker => none, size => 3}),
    ?assertEqual({ok, []}, weir_pool:added_workers(p)),
    ?assertEqual({ok, 1}, weir_pool:add_worker(p, c)),
    ?assertEqual({ok, 2}, weir_pool:add_worker(p, b)),
    ?assertEqual({error, already_added}, weir_pool:add_worker(p, b)),
    ?assertEqual({error, already_added}, weir_pool:add_worker(p, b, 3)),
    ?assertEqual({ok, 3}, weir_pool:add_worker(p, a)),
    ?assertEqual({error, pool_full}, weir_pool:add_worker(p, d)),
    ?assertEqual({ok, [{c, 1}, {b, 2}, {a, 3}]}, weir_pool:added_workers(p)),
    ?assertEqual({error, no_worker}, weir_pool:pick(p)),
    %% The name gets the first free slot.
    ?assertEqual(ok, weir_pool:remove_worker(p, b)),
    ?assertEqual({ok, [{c, 1}, {a, 3}]}, weir_pool:added_workers(p)),
    ?assertEqual({ok, 2}, weir_pool:add_worker(p, d)),
    ok = weir_pool:stop(p),
    nothing_left_soon().

%% Compared with =:=.
names_are_any_term(_Config) ->
    ok = weir_pool:start(p, #{worker => none}),
    Names = [a, '_', '$1', 1, 1.0, "a", <<"a">>, {name, a}, {connected, 1}, self(), make_ref(), [], #{a => 1}],
    Slots = [Slot || Name <- Names, {ok, Slot} <- [weir_pool:add_worker(p, Name)]],
    ?assertEqual(lists:seq(1, length(Names)), Slots),
    [?assertEqual({ok, Slot}, weir_pool:connect(p, Name)) || {Name, Slot} <- lists:zip(Names, Slots)],
    ?assertEqual({ok, lists:zip(Names, Slots)}, weir_pool:added_workers(p)),
    ?assertEqual(lists:zip(Slots, [self() || _ <- Slots]), element(2, weir_pool:workers(p))),
    [?assertEqual(ok, weir_pool:disconnect(p, Name)) || Name <- Names],
    [?assertEqual(ok, weir_pool:remove_worker(p, Name)) || Name <- Names],
    ok = weir_pool:stop(p).

a_name_gets_the_slot_that_it_asks_for(_Config) ->
    ok = weir_pool:start(p, #{worker => none, size => 3}),
    ?assertEqual({ok, 3}, weir_pool:add_worker(p, a, 3)),
    ?assertEqual({error, slot_taken}, weir_pool:add_worker(p, b, 3)),
    ?assertEqual({error, out_of_range}, weir_pool:add_worker(p, b, 4)),
    [?assertError(badarg, weir_pool:add_worker(p, b, Slot)) || Slot <- [0, -1, 1.0, one, ?MAX_SIZE + 1]],
    ?assertEqual({error, out_of_range}, weir_pool:add_worker(p, b, ?MAX_SIZE)),
    ?assertEqual({ok, 1}, weir_pool:add_worker(p, b)),
    ok = weir_pool:stop(p).

a_pool_without_a_size_grows_with_its_names(_Config) ->
    ok = weir_pool:start(p, #{worker => none}),
    ?assertMatch({ok, #{size := 0, limit := 0}}, weir_pool:info(p)),
    ?assertEqual({ok, 1}, weir_pool:add_worker(p, a)),
    ?assertEqual({ok, 2}, weir_pool:add_worker(p, b)),
    ?assertEqual({ok, 100}, weir_pool:add_worker(p, c, 100)),
    ?assertMatch({ok, #{size := 100, limit := 100, vacant := 100}}, weir_pool:info(p)),
    ?assertEqual({ok, 100}, weir_pool:connect(p, c)),
    ?assertEqual({ok, 1}, weir_pool:connect(p, a)),
    ?assertEqual([{1, self()}, {100, self()}], element(2, weir_pool:workers(p))),
    ?assertEqual({ok, 3}, weir_pool:add_worker(p, d)),
    ?assertMatch({ok, #{size := 100}}, weir_pool:info(p)),
    ok = weir_pool:stop(p),
    %% As told, whatever else is given.
    ok = weir_pool:start(p, #{worker => none, size => 1, auto_size => true}),
    ?assertEqual([{ok, 1}, {ok, 2}], [weir_pool:add_worker(p, Name) || Name <- [a, b]]),
    ok = weir_pool:stop(p),
    ok = weir_pool:start(p, #{worker => none, auto_size => false}),
    ?assertEqual({error, pool_full}, weir_pool:add_worker(p, a)),
    ?assertEqual({error, out_of_range}, weir_pool:add_worker(p, a, 1)),
    ok = weir_pool:stop(p),
    nothing_left_soon().

names_spread_over_the_slots_of_random_and_hash(_Config) ->
    [
        begin
            ok = weir_pool:start(p, #{worker => none, size => 8, strategy => Strategy}),
            ?assertEqual(Slots, [element(2, weir_pool:add_worker(p, N)) || N <- lists:seq(1, 8)]),
            ok = weir_pool:stop(p)
        end
     || {Strategy, Slots} <- [
            {random, [1, 5, 7, 3, 8, 2, 4, 6]},
            {hash, [1, 5, 7, 3, 8, 2, 4, 6]},
            {round_robin, lists:seq(1, 8)},
            {direct, lists:seq(1, 8)},
            {least_loaded, lists:seq(1, 8)}
        ]
    ],
    %% If gaps are equally long, the name gets the gap behind the last slot that is taken. A gap may go over the end.
    [
        begin
            ok = weir_pool:start(p, #{worker => none, size => 8, strategy => hash}),
            [{ok, Taken} = weir_pool:add_worker(p, {taken, Taken}, Taken) || Taken <- All],
            ?assertEqual({All, {ok, Slot}}, {All, weir_pool:add_worker(p, name)}),
            ok = weir_pool:stop(p)
        end
     || {All, Slot} <- [{[1, 2, 6], 4}, {[3, 4], 8}, {[2, 6], 8}, {[1, 3, 5, 7], 8}, {lists:seq(1, 7), 8}]
    ].

one_process_is_connected_under_a_name(_Config) ->
    ok = weir_pool:start(p, #{worker => none, size => 2}),
    ?assertEqual({error, unknown_worker}, weir_pool:connect(p, a)),
    ?assertEqual({error, unknown_worker}, weir_pool:disconnect(p, a)),
    ?assertEqual({error, unknown_worker}, weir_pool:remove_worker(p, a)),
    {ok, 1} = weir_pool:add_worker(p, a),
    ?assertEqual({error, not_connected}, weir_pool:disconnect(p, a)),
    [A, B] = [member(), member()],
    ?assertEqual({ok, 1}, connect(A, p, a)),
    ?assertEqual({error, {connected, A}}, connect(A, p, a)),
    ?assertEqual({error, {connected, A}}, connect(B, p, a)),
    ?assertEqual({error, not_connected}, disconnect(B, p, a)),
    ?assertEqual({error, {connected, A}}, weir_pool:remove_worker(p, a)),
    ?assertEqual({ok, A}, weir_pool:pick(p)),
    ?assertEqual({ok, A}, weir_pool:claim(p, fun(Pid) -> Pid end)),
    ?assertMatch({ok, #{live := 1, vacant := 1}}, weir_pool:info(p)),
    ?assertEqual(ok, disconnect(A, p, a)),
    ?assertEqual({error, no_worker}, weir_pool:pick(p)),
    ?assertEqual({error, no_worker}, weir_pool:claim(p, fun(Pid) -> Pid end)),
    ?assertEqual({error, not_connected}, disconnect(A, p, a)),
    ?assertEqual({ok, 1}, connect(B, p, a)),
    ?assertEqual({ok, B}, weir_pool:pick(p)),
    ?assertMatch({ok, #{restarts := 1}}, weir_pool:info(p)),
    ok = weir_pool:stop(p),
    %% The members do not stop with the pool.
    [?assert(is_process_alive(Member)) || Member <- [A, B]].

a_dead_process_is_in_the_way_of_no_successor(_Config) ->
    [A, B] = connected([a, b]),
    ok = sys:suspend(manager(p), wait_ms()),
    kill(A),
    kill(B),
    C = member(),
    C ! {run, self(), fun() -> weir_pool:connect(p, a) end},
    Remover = weir_kit:start(fun() -> weir_pool:remove_worker(p, b) end),
    until(fun() -> weir_kit:queue_len(manager(p)) >= 4 end),
    ok = sys:resume(manager(p), wait_ms()),
    receive {ran, C, Result} -> ?assertEqual({ok, 1}, Result) end,
    ?assertEqual(ok, result(Remover)),
    %% The manager clears the slots of the dead after it has answered.
    _ = sys:get_state(manager(p), wait_ms()),
    ?assertEqual([C, undefined], slots(p)),
    ok = weir_pool:stop(p).

a_process_may_connect_under_several_names(_Config) ->
    ok = weir_pool:start(p, #{worker => none}),
    ok = weir_pool:start(q, #{worker => none}),
    [{ok, _} = weir_pool:add_worker(Pool, Name) || Pool <- [p, q], Name <- [a, b, c]],
    A = member(),
    [?assertEqual({ok, Slot}, connect(A, Pool, Name)) || Pool <- [p, q], {Name, Slot} <- [{a, 1}, {c, 3}]],
    ?assertEqual([{p, 1}, {p, 3}, {q, 1}, {q, 3}], lists:sort(weir_pool:which_pools(A))),
    ?assertEqual(ok, disconnect(A, p, a)),
    ?assertEqual([undefined, undefined, A], slots(p)),
    %% A claim of one is not one of the other.
    Claimer = claimer(q),
    ?assertEqual({ok, A}, weir_pool:claim(q, fun(Pid) -> Pid end)),
    ok = release(Claimer),
    kill(A),
    until(fun() -> slots(p) ++ slots(q) =:= lists:duplicate(6, undefined) end),
    [ok = weir_pool:stop(Pool) || Pool <- [p, q]].

%% A claimer keeps a process that disconnects, and no other claimer gets it.
a_claimer_keeps_a_process_that_disconnects(_Config) ->
    [A] = connected([a]),
    Claimer = claimer(p),
    ?assertEqual({error, busy}, weir_pool:claim(p, fun(Pid) -> Pid end)),
    ok = disconnect(A, p, a),
    ?assertMatch({error, _}, weir_pool:claim(p, fun(Pid) -> Pid end)),
    ?assertEqual({error, no_worker}, weir_pool:pick(p)),
    ?assertEqual(ok, release(Claimer)),
    until(fun() -> word(p, 1) =:= vacant end),
    ?assertEqual({error, no_worker}, weir_pool:claim(p, fun(Pid) -> Pid end)),
    %% A waiter gets the first process that connects.
    Waiter = weir_kit:start(fun() -> weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => infinity}) end),
    until(fun() -> {ok, #{waiting := N}} = weir_pool:info(p), N =:= 1 end),
    {ok, 1} = connect(A, p, a),
    ?assertEqual({ok, A}, result(Waiter)),
    %% The process has no OTP behaviour, so the pool cannot know whether it is idle.
    ?assertEqual({error, {timeout, 1}}, weir_pool:drain(p, 20)),
    ?assert(is_process_alive(A)).

%% A process that has disconnected itself while it was claimed, and its claimer.
left_while_claimed() ->
    [A, B] = connected([a, b]),
    {[Claimer], [Other]} = lists:partition(fun(Of) -> worker_of(Of) =:= A end, [claimer(p), claimer(p)]),
    ?assertEqual(ok, release(Other)),
    ok = disconnect(A, p, a),
    {A, B, Claimer}.

%% Begins to connect, and gives the process that waits for it; its result is that of connect/2.
connecting(Member, Name) ->
    Connecting = weir_kit:start(fun() -> connect(Member, p, Name) end),
    until(fun() -> is_waiting_for_manager(Member) end),
    Connecting.

is_waiting_for_manager(Member) ->
    %% The member has sent its request. The manager has read that when it answers a later one.
    [{current_function, {gen, do_call, 4}}, {status, waiting}] =:=
        process_info(Member, [current_function, status]) andalso
        is_list(weir_pool:pools()) andalso element(1, weir_pool:added_workers(p)) =:= ok.

%% Either the disconnected process connects, or another process. Only one process can wait under the name, which
%% cannot be removed meanwhile: the process would be connected in a slot without a name.
a_process_connects_under_a_claimed_name_when_the_claim_has_ended(_Config) ->
    [
        begin
            {A, B, Claimer} = left_while_claimed(),
            [C, D] = [member(), member()],
            Next = lists:nth(N, [A, C]),
            Waits = connecting(Next, a),
            ?assertEqual([undefined, B], slots(p)),
            [?assertEqual({error, {connected, Next}}, connect(Member, p, a)) || Member <- [A, B, C] -- [Next]],
            ?assertEqual({error, {connected, Next}}, weir_pool:remove_worker(p, a)),
            Second = claimer(p),
            ?assertEqual(B, worker_of(Second)),
            ?assertMatch({error, busy}, weir_pool:claim(p, fun(Pid) -> Pid end)),
            Waiter = weir_kit:start(fun() -> weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => infinity}) end),
            until(fun() -> {ok, #{waiting := Waiting}} = weir_pool:info(p), Waiting =:= 1 end),
            manager(p) ! tick,
            %% Other names can be used meanwhile.
            ?assertEqual(ok, disconnect(B, p, b)),
            ?assertEqual(ok, release(Second)),
            ?assertEqual({ok, 2}, connect(D, p, b)),
            ?assertEqual({ok, D}, result(Waiter)),
            ?assertEqual([undefined, D], slots(p)),
            ?assert(is_process_alive(element(1, Waits))),
            ?assertEqual(ok, release(Claimer)),
            ?assertEqual({ok, 1}, result(Waits)),
            ?assertEqual([Next, D], slots(p)),
            ok = weir_pool:stop(p)
        end
     || N <- [1, 2]
    ].

%% A process that waits for the end of that claim gets an error.
a_drain_waits_for_the_claim_of_a_disconnected_process(_Config) ->
    {A, B, Claimer} = left_while_claimed(),
    ok = disconnect(B, p, b),
    Again = connecting(A, a),
    Drainer = weir_kit:start(fun() -> weir_pool:drain(p, infinity) end),
    until(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    ?assert(is_process_alive(element(1, Drainer))),
    ?assert(is_process_alive(element(1, Again))),
    ?assertEqual(ok, release(Claimer)),
    ?assertEqual(ok, result(Drainer)),
    ?assertEqual({error, no_pool}, result(Again)).

%% The value of `abandoned' does not matter, as the process has left the slot.
a_process_connects_again_when_its_claimer_dies(_Config) ->
    [
        begin
            ok = weir_pool:start(p, #{worker => none, size => 1, abandoned => Abandoned}),
            {ok, 1} = weir_pool:add_worker(p, a),
            A = member(),
            {ok, 1} = connect(A, p, a),
            Claimer = claimer(p),
            ok = disconnect(A, p, a),
            Again = connecting(A, a),
            ?assertMatch({error, _}, weir_pool:claim(p, fun(Pid) -> Pid end)),
            kill_claimer(Claimer),
            manager(p) ! tick,
            ?assertEqual({ok, 1}, result(Again)),
            ?assertEqual({ok, A}, weir_pool:claim(p, fun(Pid) -> Pid end)),
            ?assertMatch({ok, #{abandoned := 1, claimed := 0, reserved := 0}}, weir_pool:info(p)),
            ?assert(is_process_alive(A)),
            ok = weir_pool:stop(p)
        end
     || Abandoned <- [replace, {wait, 1000}, free]
    ].

%% If no other process waits after the dead one, the slot stays vacant.
a_dead_process_that_waited_to_connect_is_in_no_others_way(_Config) ->
    {A, B, Claimer} = left_while_claimed(),
    Dead = [connecting_dies(a) || _ <- [1, 2]],
    C = member(),
    Next = connecting(C, a),
    ?assertEqual(ok, release(Claimer)),
    ?assertEqual({ok, 1}, result(Next)),
    ?assertEqual([C, B], slots(p)),
    {[Second], [Other]} = lists:partition(fun(Of) -> slot_of(Of) =:= 1 end, [claimer(p), claimer(p)]),
    ok = disconnect(C, p, a),
    LastDead = connecting_dies(a),
    [?assertEqual(ok, release(Of)) || Of <- [Second, Other]],
    until(fun() -> word(p, 1) =:= vacant andalso slots(p) =:= [undefined, B] end),
    ?assertEqual({ok, 1}, connect(A, p, a)),
    [kill(Pid) || Pid <- [LastDead | Dead]],
    ok = weir_pool:stop(p).

connecting_dies(Name) ->
    Member = member(),
    Connecting = connecting(Member, Name),
    kill(Member),
    Connecting.

%% The process waits for the end of its own claim, whose claimer gives the worker back when it is dead.
a_process_that_dies_while_it_waits_to_connect_again_is_not_connected(_Config) ->
    [A] = connected([a]),
    Claimer = claimer(p),
    ok = disconnect(A, p, a),
    Again = connecting(A, a),
    kill(A),
    ?assertEqual(ok, release(Claimer)),
    {ok, [{a, 1}]} = weir_pool:added_workers(p),
    %% The dead process was not connected for a moment either.
    ?assertMatch({ok, #{live := 0, restarts := 0}}, weir_pool:info(p)),
    kill(Again),
    ok = weir_pool:stop(p).

%% A second name may have the slot at once, but its process is connected when the claim has ended.
a_name_can_be_removed_while_its_slot_is_claimed(_Config) ->
    {A, B, Claimer} = left_while_claimed(),
    ?assertEqual(ok, weir_pool:remove_worker(p, a)),
    ?assertEqual({error, unknown_worker}, connect(A, p, a)),
    ?assertEqual({ok, 1}, weir_pool:add_worker(p, c)),
    C = member(),
    Next = connecting(C, c),
    ?assertEqual([undefined, B], slots(p)),
    ?assertEqual(ok, release(Claimer)),
    ?assertEqual({ok, 1}, result(Next)),
    ?assertEqual([C, B], slots(p)),
    ok = weir_pool:stop(p).

%% The new pool has its slots, but no names and no members. The old members go on.
members_outlive_a_killed_manager(_Config) ->
    [A, B] = Members = connected([a, b]),
    Claimer = claimer(p),
    ok = disconnect(worker_of(Claimer), p, lists:nth(slot_of(Claimer), [a, b])),
    C = member(),
    Waits = connecting(C, lists:nth(slot_of(Claimer), [a, b])),
    kill_manager(p),
    ?assertEqual({error, {pool_down, killed}}, result(Waits)),
    ?assertEqual({error, not_held}, release(Claimer)),
    ?assertEqual([undefined, undefined], slots(p)),
    ?assertEqual({ok, []}, weir_pool:added_workers(p)),
    ?assertEqual({error, unknown_worker}, connect(A, p, a)),
    ?assertMatch({ok, #{size := 2, claimed := 0, live := 0, vacant := 2}}, weir_pool:info(p)),
    [{ok, _} = weir_pool:add_worker(p, Name) || Name <- [a, b]],
    ?assertEqual([{ok, 1}, {ok, 2}], [connect(A, p, a), connect(B, p, b)]),
    ?assertEqual(Members, slots(p)),
    ?assertEqual(lists:sort(Members), lists:usort([Pid || _ <- lists:seq(1, 20), {ok, Pid} <- [weir_pool:pick(p)]])),
    ok = weir_pool:stop(p),
    nothing_left_soon(),
    [?assert(is_process_alive(Member)) || Member <- [C | Members]].

a_resize_keeps_the_slots_of_names(_Config) ->
    ok = weir_pool:start(p, #{worker => none, size => 5}),
    {ok, 3} = weir_pool:add_worker(p, a, 3),
    {ok, 1} = weir_pool:add_worker(p, b, 1),
    A = member(),
    {ok, 3} = connect(A, p, a),
    ?assertEqual({error, {slot_taken, 3}}, weir_pool:resize(p, 2)),
    ?assertEqual({error, {slot_taken, 3}}, weir_pool:resize(p, 0)),
    ?assertEqual(ok, weir_pool:resize(p, 3)),
    ?assertEqual({error, {bad_size, -1}}, weir_pool:resize(p, -1)),
    ?assertEqual(ok, weir_pool:resize(p, 100)),
    ?assertEqual({ok, A}, weir_pool:pick(p)),
    ok = disconnect(A, p, a),
    ?assertEqual({error, {slot_taken, 3}}, weir_pool:resize(p, 2)),
    [ok = weir_pool:remove_worker(p, Name) || Name <- [a, b]],
    ?assertEqual(ok, weir_pool:resize(p, 0)),
    ?assertMatch({ok, #{size := 0}}, weir_pool:info(p)),
    ?assertEqual({error, no_worker}, weir_pool:pick(p)),
    ?assertEqual(ok, weir_pool:resize(p, 1)),
    {ok, 1} = weir_pool:add_worker(p, a),
    {ok, 1} = connect(A, p, a),
    ?assertEqual({ok, A}, weir_pool:pick(p)),
    ok = weir_pool:stop(p).

pools_with_workers_of_their_own_and_no_pools_refuse_names(_Config) ->
    Functions = [
        fun() -> weir_pool:add_worker(p, a) end,
        fun() -> weir_pool:add_worker(p, a, 1) end,
        fun() -> weir_pool:remove_worker(p, a) end,
        fun() -> weir_pool:added_workers(p) end,
        fun() -> weir_pool:connect(p, a) end,
        fun() -> weir_pool:disconnect(p, a) end
    ],
    [?assertEqual({error, no_pool}, Fun()) || Fun <- Functions],
    ok = weir_pool:start(p, weir_pool_life_lib:pool(1)),
    [?assertEqual({error, has_workers}, Fun()) || Fun <- Functions],
    ok = weir_pool:stop(p).
