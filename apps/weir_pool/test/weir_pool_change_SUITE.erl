%% Pools that change while they are in use: another size, other workers, the end, a new beginning.
-module(weir_pool_change_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    resize_with_pickers/1,
    resize_in_a_fixed_order/1,
    resize_with_claims/1,
    resize_back_before_the_release/1,
    a_dead_claimer_of_a_slot_that_is_given_up/1,
    resize_lets_workers_finish/1,
    resize_fails/1,
    keys_move_minimally/1,
    words_beyond_the_first_segment/1,
    resize_with_overflow/1,
    concurrent_resizes/1,
    keeper_killed_in_a_resize/1,
    keeper_killed_after_a_resize/1,
    sizes_that_are_refused/1,
    the_default_intensity_follows_the_size/1,
    replace_without_a_gap/1,
    replaced_workers_finish/1,
    replace_fails/1,
    replace_fails_when_the_worker_is_gone/1,
    replace_waits_for_the_claim/1,
    replace_and_the_worker_dies/1,
    replace_and_the_spare_dies/1,
    replace_is_refused/1,
    replace_and_the_slot_is_given_up/1,
    replace_and_the_keeper_is_killed/1,
    replace_and_the_starter_is_killed/1,
    replace_a_worker_under_check/1,
    drain_an_idle_pool/1,
    drain_waits_for_claims/1,
    drain_waits_for_casts/1,
    drain_turns_others_away/1,
    drain_times_out/1,
    drain_and_the_claimer_dies/1,
    drain_and_a_worker_dies/1,
    drain_waits_for_replaced_workers/1,
    drain_in_a_resize/1,
    drain_during_checks/1,
    drain_and_the_keeper_is_killed/1,
    drain_and_its_caller_is_killed/1,
    drain_under_a_supervisor/1,
    changes_wait_for_the_next_manager/1,
    restart_own/1,
    restart_supervised/1,
    restart_not_supervised/1,
    groups/1,
    pools_of_the_environment/1,
    bad_pools_of_the_environment/1
]).

-import(weir_pool_test_lib, [
    eventually/1, kill/1, kill_manager/1, await_down/1, sup/1, manager/1, slots/1, workers/1, settled/2,
    start_parent/1, stop_parent/1, nothing_left/0, nothing_left_soon/0, messages_of_pools/0, start_blocked/2
]).
-import(weir_pool_life_lib, [
    pool/1, pool/2, slot_script/2, gated/1, await_blocked/1, go/2, slot_sups/1, starters/1, whole/2, settle/2,
    workers_alive/0, claimer/1, release/1, kill_claimer/1, worker_of/1, slot_of/1, busy/1, idle/1, run/1, result/1,
    pickers/2, stop_pickers/1, word/2, entry/2
]).

suite() -> [{timetrap, {seconds, 120}}].

all() ->
    [
        resize_with_pickers,
        resize_in_a_fixed_order,
        resize_with_claims,
        resize_back_before_the_release,
        a_dead_claimer_of_a_slot_that_is_given_up,
        resize_lets_workers_finish,
        resize_fails,
        keys_move_minimally,
        words_beyond_the_first_segment,
        resize_with_overflow,
        concurrent_resizes,
        keeper_killed_in_a_resize,
        keeper_killed_after_a_resize,
        sizes_that_are_refused,
        the_default_intensity_follows_the_size,
        replace_without_a_gap,
        replaced_workers_finish,
        replace_fails,
        replace_fails_when_the_worker_is_gone,
        replace_waits_for_the_claim,
        replace_and_the_worker_dies,
        replace_and_the_spare_dies,
        replace_is_refused,
        replace_and_the_slot_is_given_up,
        replace_and_the_keeper_is_killed,
        replace_and_the_starter_is_killed,
        replace_a_worker_under_check,
        drain_an_idle_pool,
        drain_waits_for_claims,
        drain_waits_for_casts,
        drain_turns_others_away,
        drain_times_out,
        drain_and_the_claimer_dies,
        drain_and_a_worker_dies,
        drain_waits_for_replaced_workers,
        drain_in_a_resize,
        drain_during_checks,
        drain_and_the_keeper_is_killed,
        drain_and_its_caller_is_killed,
        drain_under_a_supervisor,
        changes_wait_for_the_next_keeper,
        restart_own,
        restart_supervised,
        restart_not_supervised,
        groups,
        pools_of_the_environment,
        bad_pools_of_the_environment
    ].

init_per_suite(Config) -> weir_pool_test_lib:quiet(Config).

end_per_suite(Config) -> weir_pool_test_lib:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, _Config) -> weir_pool_test_lib:teardown().

-define(ASYNC, #{start => async, backoff => {1, 4}}).

%% A pool whose starts do what is wanted now: `gate', `start', or another result.
switched(Size, Opts) ->
    Mode = ets:new(mode, [public]),
    true = ets:insert(Mode, {mode, start}),
    Gate = gated(Size),
    Script = fun(Slot) ->
        case ets:lookup_element(Mode, mode, 2) of
            gate -> Gate(Slot);
            {only, Slot, Result} -> Result;
            {only, _, _} -> start;
            Result -> Result
        end
    end,
    ok = weir_pool:start(p, maps:merge(slot_script(Size, Script), Opts)),
    settle(p, Size),
    Mode.

switch(Mode, To) -> true = ets:insert(Mode, {mode, To}).

%% ---------------------------------------------------------------- resize

%% Whoever picks meanwhile always gets a worker, and words, terms and processes are those of the new size.
resize_with_pickers(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(1, Opts)),
            settle(p, 1),
            Pickers = pickers(p, 2),
            [
                begin
                    ?assertEqual(ok, weir_pool:resize(p, Size)),
                    ?assertMatch({ok, #{size := Size, limit := Size}}, weir_pool:info(p)),
                    settle(p, Size)
                end
             || Size <- [5, 40, 3, 200, 200, 1, 17, 1]
            ],
            ?assertEqual([], stop_pickers(Pickers)),
            ok = weir_pool:stop(p),
            nothing_left()
        end
     || Opts <- [#{}, ?ASYNC, #{restart => temporary, shutdown => brutal_kill}]
    ].

%% Those that stay are those of the first slots.
resize_in_a_fixed_order(_Config) ->
    ok = weir_pool:start(p, pool(4)),
    Before = slots(p),
    ok = weir_pool:resize(p, 6),
    ?assertEqual(Before, lists:sublist(slots(p), 4)),
    ok = weir_pool:resize(p, 2),
    ?assertEqual(lists:sublist(Before, 2), slots(p)),
    settle(p, 2),
    ok = weir_pool:resize(p, 4),
    ?assertEqual(lists:sublist(Before, 2), lists:sublist(slots(p), 2)),
    ?assertMatch({ok, #{restarts := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

resize_with_claims(_Config) ->
    ok = weir_pool:start(p, pool(4)),
    Claimers = [claimer(p) || _ <- [1, 2, 3, 4]],
    ?assertEqual(ok, weir_pool:resize(p, 1)),
    ?assertMatch({ok, #{size := 1, limit := 1}}, weir_pool:info(p)),
    ?assertEqual({error, busy}, weir_pool:claim(p, fun(_) -> ok end)),
    {[Staying], Leaving} = lists:partition(fun(Claimer) -> slot_of(Claimer) =:= 1 end, Claimers),
    ?assertEqual([{ok, worker_of(Staying)}], lists:usort([weir_pool:pick(p) || _ <- lists:seq(1, 20)])),
    %% Whoever holds one keeps it.
    [?assertEqual(pong, gen_server:call(worker_of(Claimer), ping)) || Claimer <- Claimers],
    [
        begin
            ?assertEqual(ok, release(Claimer)),
            await_down(worker_of(Claimer))
        end
     || Claimer <- Leaving
    ],
    ?assertEqual(ok, release(Staying)),
    settle(p, 1),
    ?assertEqual({ok, worker_of(Staying)}, weir_pool:pick(p)),
    ok = weir_pool:stop(p).

%% The pool has the slot again, with the worker that was to go.
resize_back_before_the_release(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(3, Opts)),
            settle(p, 3),
            Before = slots(p),
            Claimers = [claimer(p) || _ <- [1, 2, 3]],
            ok = weir_pool:resize(p, 1),
            ok = weir_pool:resize(p, 2),
            ok = weir_pool:resize(p, 3),
            ?assertEqual(Before, slots(p)),
            ?assertEqual({error, busy}, weir_pool:claim(p, fun(_) -> ok end)),
            [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
            settle(p, 3),
            ?assertEqual(Before, slots(p)),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{}, ?ASYNC]
    ].

a_dead_claimer_of_a_slot_that_is_given_up(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(3, #{abandoned => Abandoned})),
            Claimers = [claimer(p) || _ <- [1, 2, 3]],
            ok = weir_pool:resize(p, 1),
            [kill_claimer(Claimer) || Claimer <- Claimers],
            settle(p, 1),
            ok = weir_pool:stop(p)
        end
     || Abandoned <- [replace, {wait, 1000}, free]
    ].

resize_lets_workers_finish(_Config) ->
    ok = weir_pool:start(p, pool(2, #{shutdown => infinity})),
    [_, Second] = slots(p),
    busy(Second),
    Test = self(),
    [gen_server:cast(Second, {run, fun() -> Test ! {did, N} end}) || N <- [1, 2, 3]],
    ?assertEqual(ok, weir_pool:resize(p, 1)),
    ?assertEqual({error, {bad_size, 0}}, weir_pool:resize(p, 0)),
    ?assert(is_process_alive(Second)),
    idle(Second),
    [receive {did, N} -> ok end || N <- [1, 2, 3]],
    await_down(Second),
    settle(p, 1),
    ok = weir_pool:stop(p).

resize_fails(_Config) ->
    Mode = switched(2, #{}),
    {Before, Main} = {slots(p), weir_pool_terms:pool(p)},
    [
        begin
            switch(Mode, {only, 4, Result}),
            ?assertEqual({error, {start_failed, 4, Reason}}, weir_pool:resize(p, 5)),
            ?assertEqual({Before, Main}, {slots(p), weir_pool_terms:pool(p)}),
            settle(p, 2)
        end
     || {Result, Reason} <- [
            {{error, no}, no},
            {wrong, {bad_return, {weir_pool_life_worker, start_script, wrong}}}
        ]
    ],
    switch(Mode, start),
    ?assertEqual(ok, weir_pool:resize(p, 5)),
    settle(p, 5),
    %% One that is ignored leaves its slot vacant, as at the start.
    switch(Mode, {only, 6, ignore}),
    ?assertEqual(ok, weir_pool:resize(p, 7)),
    ?assertMatch([undefined, Seventh] when is_pid(Seventh), lists:nthtail(5, slots(p))),
    ok = weir_pool:stop(p).

%% From N to N+1 slots, keys move to the new slot alone, and about 1/(N+1) of them; and back.
keys_move_minimally(_Config) ->
    ok = weir_pool:start(p, pool(9)),
    Keys = lists:seq(1, 2000),
    Where = fun() -> [{Key, element(2, weir_pool:pick_slot(p, Key))} || Key <- Keys] end,
    Before = Where(),
    ok = weir_pool:resize(p, 10),
    After = Where(),
    Moved = After -- Before,
    ?assertEqual([10], lists:usort([Slot || {_, Slot} <- Moved])),
    ?assert(length(Moved) > 100 andalso length(Moved) < 300),
    ok = weir_pool:resize(p, 9),
    ?assertEqual(Before, Where()),
    ok = weir_pool:stop(p).

%% The first array has 16 slots or more. Claims made before it is not the only one are released after.
words_beyond_the_first_segment(_Config) ->
    ok = weir_pool:start(p, pool(10)),
    Claimers = [claimer(p) || _ <- lists:seq(1, 10)],
    [ok = weir_pool:resize(p, Size) || Size <- [16, 17, 60, 300]],
    ?assert(length((weir_pool_terms:pool(p))#pool.segments) > 2),
    More = [claimer(p) || _ <- lists:seq(11, 300)],
    ?assertEqual(lists:seq(1, 300), lists:sort([slot_of(Claimer) || Claimer <- Claimers ++ More])),
    ?assertMatch({ok, #{claimed := 300}}, weir_pool:info(p)),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers ++ More],
    settle(p, 300),
    ok = weir_pool:stop(p).

%% Slots for overflow become others, and others become such, with the workers that they have.
resize_with_overflow(_Config) ->
    ok = weir_pool:start(p, pool(2, #{overflow => #{max => 2, linger => 0}})),
    Claimers = [claimer(p) || _ <- [1, 2, 3, 4]],
    {ok, Before} = weir_pool:workers(p),
    ?assertEqual([1, 2, 3, 4], [Slot || {Slot, _} <- Before]),
    ?assertMatch({ok, #{size := 2, limit := 4, live := 4}}, weir_pool:info(p)),
    ok = weir_pool:resize(p, 3),
    {ok, After} = weir_pool:workers(p),
    ?assertEqual(Before, After),
    ?assertMatch({ok, #{size := 3, limit := 5, live := 4}}, weir_pool:info(p)),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    %% The fourth is not needed any more.
    settle(p, 3),
    ?assertEqual(lists:sublist(Before, 3), element(2, weir_pool:workers(p))),
    %% Nor are these.
    ok = weir_pool:resize(p, 1),
    settle(p, 1),
    ?assertEqual(lists:sublist(Before, 1), element(2, weir_pool:workers(p))),
    ok = weir_pool:stop(p).

concurrent_resizes(_Config) ->
    Mode = switched(2, #{}),
    switch(Mode, gate),
    Resizer = run(fun() -> weir_pool:resize(p, 4) end),
    Blocked = await_blocked(2),
    ?assertEqual({error, resizing}, weir_pool:resize(p, 3)),
    ?assertEqual({error, resizing}, weir_pool:resize(p, 1)),
    %% Others go on.
    switch(Mode, start),
    ?assertEqual(ok, weir_pool:replace(p, 1)),
    ?assertEqual({error, no_slot}, weir_pool:replace(p, 3)),
    kill(hd(workers(p))),
    settle_size(2),
    go(Blocked, start),
    ?assertEqual(ok, result(Resizer)),
    settle(p, 4),
    ?assertEqual(ok, weir_pool:resize(p, 3)),
    settle(p, 3),
    ok = weir_pool:stop(p).

settle_size(Size) -> eventually(fun() -> settled(p, Size) end).

keeper_killed_in_a_resize(_Config) ->
    Mode = switched(2, #{}),
    Before = slots(p),
    switch(Mode, gate),
    Resizer = run(fun() -> weir_pool:resize(p, 5) end),
    [First | Others] = await_blocked(3),
    go([First], start),
    eventually(fun() -> length(workers_alive()) =:= 3 end),
    kill(manager(p)),
    ?assertEqual({error, {pool_down, killed}}, result(Resizer)),
    go(Others, start),
    settle(p, 2),
    ?assertEqual(Before, slots(p)),
    switch(Mode, start),
    ?assertEqual(ok, weir_pool:resize(p, 5)),
    settle(p, 5),
    ok = weir_pool:stop(p).

%% What is still claimed beyond the new size is the next keeper's to give up.
keeper_killed_after_a_resize(_Config) ->
    ok = weir_pool:start(p, pool(40)),
    Claimers = [claimer(p) || _ <- lists:seq(1, 40)],
    ok = weir_pool:resize(p, 2),
    kill_manager(p),
    [?assert(is_process_alive(worker_of(Claimer))) || Claimer <- Claimers],
    {Released, Killed} = lists:split(20, Claimers),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Released],
    [kill_claimer(Claimer) || Claimer <- Killed],
    settle(p, 2),
    ok = weir_pool:resize(p, 40),
    settle(p, 40),
    ok = weir_pool:stop(p).

sizes_that_are_refused(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    [
        ?assertEqual({error, {bad_size, Size}}, weir_pool:resize(p, Size))
     || Size <- [0, -1, 1.0, two, infinity, ?MAX_SIZE + 1]
    ],
    ok = weir_pool:start(q, pool(1, #{overflow => #{max => 10, linger => 0}})),
    ?assertEqual({error, {bad_size, ?MAX_SIZE - 9}}, weir_pool:resize(q, ?MAX_SIZE - 9)),
    ?assertEqual({error, no_pool}, weir_pool:resize(no_such, 1)),
    ?assertEqual(ok, weir_pool:resize(p, 1)),
    [ok = weir_pool:stop(Name) || Name <- [p, q]].

%% All workers may die together, however many there are by then.
the_default_intensity_follows_the_size(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    ok = weir_pool:resize(p, 60),
    Sup = sup(p),
    [
        begin
            Old = workers(p),
            [exit(Pid, kill) || Pid <- Old],
            eventually(fun() -> settled(p, 60) andalso workers(p) -- Old =:= workers(p) end)
        end
     || _ <- [1, 2]
    ],
    ?assertEqual(Sup, sup(p)),
    ok = weir_pool:stop(p).

%% ---------------------------------------------------------------- replace

replace_without_a_gap(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(1, Opts)),
            settle(p, 1),
            Pickers = pickers(p, 2),
            [
                begin
                    [Old] = slots(p),
                    ?assertEqual(ok, weir_pool:replace(p, 1)),
                    ?assertNotEqual([Old], slots(p))
                end
             || _ <- lists:seq(1, 100)
            ],
            ?assertEqual([], stop_pickers(Pickers)),
            settle(p, 1),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{}, ?ASYNC]
    ].

replaced_workers_finish(_Config) ->
    ok = weir_pool:start(p, pool(1, #{shutdown => infinity})),
    [Old] = slots(p),
    busy(Old),
    Test = self(),
    [ok = weir_pool:cast(p, {run, fun() -> Test ! {did, N, self()} end}) || N <- [1, 2]],
    ?assertEqual(ok, weir_pool:replace(p, 1)),
    [New] = slots(p),
    ok = weir_pool:cast(p, {run, fun() -> Test ! {did, 3, self()} end}),
    receive {did, 3, New} -> ok end,
    ?assert(is_process_alive(Old)),
    idle(Old),
    [receive {did, N, Old} -> ok end || N <- [1, 2]],
    await_down(Old),
    settle(p, 1),
    ok = weir_pool:stop(p).

replace_fails(_Config) ->
    [
        begin
            Mode = switched(2, Opts),
            Before = slots(p),
            [
                begin
                    switch(Mode, Result),
                    ?assertEqual({error, {start_failed, 2, Reason}}, weir_pool:replace(p, 2)),
                    ?assertEqual(Before, slots(p)),
                    settle(p, 2)
                end
             || {Result, Reason} <- [{{error, no}, no}, {ignore, ignore}]
            ],
            switch(Mode, start),
            ?assertEqual(ok, weir_pool:replace(p, 2)),
            settle(p, 2),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{}, ?ASYNC]
    ].

%% Nobody else would start another one.
replace_fails_when_the_worker_is_gone(_Config) ->
    Mode = switched(2, ?ASYNC),
    switch(Mode, gate),
    Replacer = run(fun() -> weir_pool:replace(p, 1) end),
    Blocked = await_blocked(1),
    kill(hd(slots(p))),
    eventually(fun() -> length(workers(p)) =:= 1 end),
    switch(Mode, start),
    go(Blocked, {error, no}),
    ?assertEqual({error, {start_failed, 1, no}}, result(Replacer)),
    settle(p, 2),
    ok = weir_pool:stop(p).

replace_waits_for_the_claim(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(1, Opts)),
            settle(p, 1),
            Claimer = claimer(p),
            Replacer = run(fun() -> weir_pool:replace(p, 1) end),
            eventually(fun() -> word(p, 1) =:= marked end),
            ?assertEqual({ok, worker_of(Claimer)}, weir_pool:pick(p)),
            ?assertEqual({error, busy}, weir_pool:claim(p, fun(_) -> ok end)),
            %% Somebody waits, too, and gets the new one.
            Waiter = run(fun() -> weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => 10000}) end),
            eventually(fun() -> {ok, #{waiting := N}} = weir_pool:info(p), N =:= 1 end),
            ?assertEqual(ok, release(Claimer)),
            ?assertEqual(ok, result(Replacer)),
            {ok, New} = result(Waiter),
            ?assertEqual([New], slots(p)),
            ?assertNotEqual(worker_of(Claimer), New),
            settle(p, 1),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{}, ?ASYNC]
    ].

%% That is what was waited for.
replace_and_the_worker_dies(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(2, Opts)),
            settle(p, 2),
            Claimer = claimer(p),
            Slot = slot_of(Claimer),
            Replacer = run(fun() -> weir_pool:replace(p, Slot) end),
            eventually(fun() -> word(p, Slot) =:= marked end),
            kill(worker_of(Claimer)),
            ?assertEqual(ok, result(Replacer)),
            ?assertEqual({error, not_held}, release(Claimer)),
            settle(p, 2),
            ok = weir_pool:stop(p)
        end
     || Opts <- [#{}, ?ASYNC],
        _ <- lists:seq(1, 20)
    ].

%% The claimed worker stays, and so does its claim.
replace_and_the_spare_dies(_Config) ->
    ok = weir_pool:start(p, pool(1, ?ASYNC)),
    settle(p, 1),
    Claimer = claimer(p),
    Replacer = run(fun() -> weir_pool:replace(p, 1) end),
    eventually(fun() -> word(p, 1) =:= marked end),
    [Spare] = workers_alive() -- [worker_of(Claimer)],
    kill(Spare),
    ?assertMatch({error, {start_failed, 1, shutdown}}, result(Replacer)),
    ?assertEqual(taken, word(p, 1)),
    ?assertEqual(ok, release(Claimer)),
    ?assertEqual([worker_of(Claimer)], slots(p)),
    settle(p, 1),
    ok = weir_pool:stop(p),
    %% Where its supervisor starts it again, it is the next one that gets the slot.
    ok = weir_pool:start(p, pool(1)),
    Again = claimer(p),
    Second = run(fun() -> weir_pool:replace(p, 1) end),
    eventually(fun() -> word(p, 1) =:= marked end),
    [First] = workers_alive() -- [worker_of(Again)],
    kill(First),
    eventually(fun() -> length(workers_alive()) =:= 2 end),
    ?assertEqual(ok, release(Again)),
    ?assertEqual(ok, result(Second)),
    ?assertNot(lists:member(hd(slots(p)), [worker_of(Again), First])),
    settle(p, 1),
    ok = weir_pool:stop(p).

replace_is_refused(_Config) ->
    ok = weir_pool:start(p, pool(2)),
    [?assertEqual({error, no_slot}, weir_pool:replace(p, Slot)) || Slot <- [0, 3, -1, 1.0, one]],
    ?assertEqual({error, no_pool}, weir_pool:replace(no_such, 1)),
    ok = weir_pool:start(members, #{size => 1}),
    ?assertEqual({error, no_workers}, weir_pool:replace(members, 1)),
    Claimers = [claimer(p), claimer(p)],
    Replacer = run(fun() -> weir_pool:replace(p, 2) end),
    eventually(fun() -> word(p, 2) =:= marked end),
    ?assertEqual({error, replacing}, weir_pool:replace(p, 2)),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    ?assertEqual(ok, result(Replacer)),
    ok = weir_pool:stop(members),
    ok = weir_pool:stop(p).

%% While it starts, and while it waits.
replace_and_the_slot_is_given_up(_Config) ->
    Mode = switched(2, #{}),
    switch(Mode, gate),
    First = run(fun() -> weir_pool:replace(p, 2) end),
    Blocked = await_blocked(1),
    ok = weir_pool:resize(p, 1),
    go(Blocked, start),
    ?assertEqual({error, no_slot}, result(First)),
    settle(p, 1),
    switch(Mode, start),
    ok = weir_pool:resize(p, 2),
    Claimers = [claimer(p), claimer(p)],
    Second = run(fun() -> weir_pool:replace(p, 2) end),
    eventually(fun() -> word(p, 2) =:= marked end),
    ok = weir_pool:resize(p, 1),
    ?assertEqual({error, no_slot}, result(Second)),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
    settle(p, 1),
    ok = weir_pool:stop(p).

replace_and_the_keeper_is_killed(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    Claimer = claimer(p),
    Replacer = run(fun() -> weir_pool:replace(p, 1) end),
    eventually(fun() -> word(p, 1) =:= marked end),
    kill_manager(p),
    ?assertEqual({error, {pool_down, killed}}, result(Replacer)),
    ?assertEqual(taken, word(p, 1)),
    ?assertEqual(ok, release(Claimer)),
    settle(p, 1),
    ?assertEqual([worker_of(Claimer)], slots(p)),
    %% While it starts.
    ok = weir_pool:stop(p),
    Mode = switched(1, #{}),
    switch(Mode, gate),
    Second = run(fun() -> weir_pool:replace(p, 1) end),
    Blocked = await_blocked(1),
    Before = slots(p),
    kill_manager(p),
    ?assertEqual({error, {pool_down, killed}}, result(Second)),
    go(Blocked, start),
    settle(p, 1),
    ?assertEqual(Before, slots(p)),
    ok = weir_pool:stop(p).

replace_and_the_starter_is_killed(_Config) ->
    Mode = switched(1, #{}),
    switch(Mode, gate),
    Replacer = run(fun() -> weir_pool:replace(p, 1) end),
    Blocked = await_blocked(1),
    [kill(Pid) || Pid <- starters(p)],
    ?assertEqual({error, {start_failed, 1, killed}}, result(Replacer)),
    go(Blocked, start),
    settle(p, 1),
    ok = weir_pool:stop(p).

%% The check is waited for.
replace_a_worker_under_check(_Config) ->
    Test = self(),
    Check = fun(Pid) ->
        Test ! {checking, self(), Pid},
        receive
            {result, Result} -> Result
        end
    end,
    [
        begin
            ok = weir_pool:start(p, pool(1, #{check => {Check, 3600000}})),
            manager(p) ! check_round,
            [Old] = slots(p),
            Checker = receive {checking, C, Old} -> C end,
            Replacer = run(fun() -> weir_pool:replace(p, 1) end),
            eventually(fun() -> is_waiting(entry(p, 1)) end),
            ?assertEqual([Old], slots(p)),
            Checker ! {result, Result},
            ?assertEqual(ok, result(Replacer)),
            ?assertNotEqual([Old], slots(p)),
            await_down(Old),
            ok = weir_pool:stop(p)
        end
     || Result <- [ok, bad]
    ].

is_waiting({none, _Look, {swap, _, _, _}}) -> true;
is_waiting(Entry) -> Entry.

%% ---------------------------------------------------------------- drain

drain_an_idle_pool(_Config) ->
    [
        begin
            ok = weir_pool:start(p, Opts),
            ?assertEqual(ok, weir_pool:drain(p, Timeout)),
            nothing_left()
        end
     || Opts <- [pool(3), pool(3, ?ASYNC), #{size => 3}, #{}], Timeout <- [10000, infinity]
    ],
    ?assertEqual({error, no_pool}, weir_pool:drain(p, 0)),
    [?assertError(badarg, weir_pool:drain(p, Timeout)) || Timeout <- [-1, 1.0, soon, 4294967296]],
    ?assertEqual([], messages_of_pools()).

drain_waits_for_claims(_Config) ->
    ok = weir_pool:start(p, pool(3)),
    Claimers = [claimer(p), claimer(p)],
    Drainer = run(fun() -> weir_pool:drain(p, infinity) end),
    eventually(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    [?assertEqual(pong, gen_server:call(worker_of(Claimer), ping)) || Claimer <- Claimers],
    [First, Second] = Claimers,
    ok = release(First),
    ?assert(is_process_alive(worker_of(Second))),
    ?assert(is_process_alive(Drainer)),
    ok = release(Second),
    ?assertEqual(ok, result(Drainer)),
    nothing_left().

drain_waits_for_casts(_Config) ->
    ok = weir_pool:start(p, pool(2)),
    Pids = slots(p),
    [busy(Pid) || Pid <- Pids],
    Test = self(),
    [gen_server:cast(Pid, {run, fun() -> Test ! {did, Pid, N} end}) || Pid <- Pids, N <- [1, 2]],
    Drainer = run(fun() -> weir_pool:drain(p, infinity) end),
    eventually(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    [idle(Pid) || Pid <- Pids],
    ?assertEqual(ok, result(Drainer)),
    [receive {did, Pid, N} -> ok after 0 -> error({lost, Pid, N}) end || Pid <- Pids, N <- [1, 2]],
    nothing_left().

drain_turns_others_away(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    Claimer = claimer(p),
    Waiters = [run(fun() -> weir_pool:claim(p, fun(_) -> ok end, #{timeout => infinity}) end) || _ <- [1, 2, 3]],
    eventually(fun() -> {ok, #{waiting := N}} = weir_pool:info(p), N =:= 3 end),
    Drainer = run(fun() -> weir_pool:drain(p, infinity) end),
    [?assertEqual({error, no_pool}, result(Waiter)) || Waiter <- Waiters],
    ?assertEqual({error, no_pool}, weir_pool:pick(p)),
    ?assertEqual({error, no_pool}, weir_pool:claim(p, fun(_) -> ok end)),
    ?assertEqual({error, no_pool}, weir_pool:info(p)),
    ?assertEqual({error, no_pool}, weir_pool:resize(p, 2)),
    ?assertEqual({error, no_pool}, weir_pool:replace(p, 1)),
    ?assertEqual({error, no_pool}, weir_pool:drain(p, 0)),
    ?assertEqual({error, already_started}, weir_pool:start(p, pool(1))),
    ok = release(Claimer),
    ?assertEqual(ok, result(Drainer)),
    nothing_left().

drain_times_out(_Config) ->
    ok = weir_pool:start(p, pool(4)),
    [First, Second | _] = slots(p),
    busy(First),
    busy(Second),
    ?assertEqual({error, {timeout, 2}}, weir_pool:drain(p, 1000)),
    nothing_left(),
    %% No OTP behaviour, so who knows.
    ok = weir_pool:start(p, #{size => 2, worker => {weir_pool_life_worker, start_plain, []}}),
    ?assertEqual({error, {timeout, 2}}, weir_pool:drain(p, 1)),
    nothing_left(),
    %% A claim.
    ok = weir_pool:start(p, pool(3)),
    Claimer = claimer(p),
    ?assertEqual({error, {timeout, 1}}, weir_pool:drain(p, 1000)),
    ?assertEqual({error, not_held}, release(Claimer)),
    ?assertEqual([], messages_of_pools()).

drain_and_the_claimer_dies(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(2, #{abandoned => Abandoned})),
            Claimer = claimer(p),
            Drainer = run(fun() -> weir_pool:drain(p, infinity) end),
            eventually(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
            kill_claimer(Claimer),
            ?assertEqual(ok, result(Drainer)),
            nothing_left()
        end
     || Abandoned <- [replace, {wait, 1000}, free]
    ].

drain_and_a_worker_dies(_Config) ->
    [
        begin
            ok = weir_pool:start(p, pool(3, Opts)),
            settle(p, 3),
            Claimer = claimer(p),
            [Busy | _] = slots(p) -- [worker_of(Claimer)],
            busy(Busy),
            Drainer = run(fun() -> weir_pool:drain(p, infinity) end),
            eventually(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
            kill(worker_of(Claimer)),
            kill(Busy),
            ?assertEqual(ok, result(Drainer)),
            nothing_left()
        end
     || Opts <- [#{}, ?ASYNC]
    ].

drain_waits_for_replaced_workers(_Config) ->
    ok = weir_pool:start(p, pool(1, #{shutdown => infinity})),
    [Old] = slots(p),
    busy(Old),
    Test = self(),
    gen_server:cast(Old, {run, fun() -> Test ! did end}),
    ok = weir_pool:replace(p, 1),
    Drainer = run(fun() -> weir_pool:drain(p, infinity) end),
    eventually(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    ?assert(is_process_alive(Drainer)),
    idle(Old),
    ?assertEqual(ok, result(Drainer)),
    receive did -> ok after 0 -> error(lost) end,
    nothing_left().

drain_in_a_resize(_Config) ->
    Mode = switched(1, #{}),
    switch(Mode, gate),
    Resizer = run(fun() -> weir_pool:resize(p, 2) end),
    Resized = await_blocked(1),
    Replacer = run(fun() -> weir_pool:replace(p, 1) end),
    Replaced = await_blocked(1),
    Claimer = claimer(p),
    Drainer = run(fun() -> weir_pool:drain(p, infinity) end),
    ?assertEqual({error, no_pool}, result(Resizer)),
    go(Resized ++ Replaced, start),
    ?assertEqual({error, no_pool}, result(Replacer)),
    ok = release(Claimer),
    ?assertEqual(ok, result(Drainer)),
    nothing_left(),
    %% One that waits.
    ok = weir_pool:start(p, pool(1)),
    Again = claimer(p),
    Waiting = run(fun() -> weir_pool:replace(p, 1) end),
    eventually(fun() -> word(p, 1) =:= marked end),
    Second = run(fun() -> weir_pool:drain(p, infinity) end),
    ?assertEqual({error, no_pool}, result(Waiting)),
    ok = release(Again),
    ?assertEqual(ok, result(Second)),
    nothing_left().

drain_during_checks(_Config) ->
    Test = self(),
    Check = fun(_Pid) ->
        Test ! {checking, self()},
        receive
            {result, Result} -> Result
        end
    end,
    [
        begin
            ok = weir_pool:start(p, pool(2, #{check => {Check, 3600000}})),
            manager(p) ! check_round,
            Checker = receive {checking, C} -> C end,
            Drainer = run(fun() -> weir_pool:drain(p, infinity) end),
            eventually(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
            Checker ! {result, Result},
            ?assertEqual(ok, result(Drainer)),
            nothing_left()
        end
     || Result <- [true, false]
    ].

drain_and_the_keeper_is_killed(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    Claimer = claimer(p),
    Drainer = run(fun() -> weir_pool:drain(p, infinity) end),
    eventually(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    kill(manager(p)),
    ?assertEqual({error, {pool_down, killed}}, result(Drainer)),
    nothing_left(),
    kill_claimer(Claimer).

%% Nobody would stop a pool that is closed and empty.
drain_and_its_caller_is_killed(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    Claimer = claimer(p),
    Drainer = run(fun() -> weir_pool:drain(p, infinity) end),
    eventually(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    kill(Drainer),
    ok = release(Claimer),
    nothing_left_soon().

drain_under_a_supervisor(_Config) ->
    Parent = start_parent({#{}, [weir_pool:child_spec(p, pool(2))]}),
    ?assertEqual(ok, weir_pool:drain(p, infinity)),
    ?assertEqual({error, no_pool}, weir_pool:pick(p)),
    ?assertMatch([{{weir_pool, p}, undefined, _, _}], supervisor:which_children(Parent)),
    nothing_left(),
    {ok, _} = supervisor:restart_child(Parent, {weir_pool, p}),
    settle(p, 2),
    stop_parent(Parent),
    nothing_left_soon().

%% One that has just been killed is not taken for a pool that is gone.
changes_wait_for_the_next_keeper(_Config) ->
    ok = weir_pool:start(p, pool(2)),
    Sup = sup(p),
    ok = sys:suspend(Sup),
    kill(manager(p)),
    Resizer = run(fun() -> weir_pool:resize(p, 3) end),
    Waits = {current_function, {weir_pool_keeper, call_next, 4}},
    eventually(fun() -> process_info(Resizer, current_function) =:= Waits end),
    ok = sys:resume(Sup),
    ?assertEqual(ok, result(Resizer)),
    settle(p, 3),
    ok = weir_pool:stop(p).

%% ---------------------------------------------------------------- restart, groups

restart_own(_Config) ->
    Starts = counters:new(1, []),
    Script = fun(_Slot) ->
        counters:add(Starts, 1, 1),
        case counters:get(Starts, 1) of
            N when N > 8 -> {error, enough};
            _ -> start
        end
    end,
    ok = weir_pool:start(p, slot_script(2, Script)),
    ok = weir_pool:resize(p, 3),
    Before = slots(p),
    ?assertEqual(ok, weir_pool:restart(p)),
    settle(p, 2),
    ?assertEqual(Before, Before -- slots(p)),
    ?assertMatch({ok, #{restarts := 0}}, weir_pool:info(p)),
    %% The second of these does not come up.
    ok = weir_pool:resize(p, 3),
    ?assertEqual(ok, weir_pool:restart(p)),
    ?assertEqual({error, {start_failed, 1, enough}}, weir_pool:restart(p)),
    nothing_left(),
    ?assertEqual({error, no_pool}, weir_pool:restart(p)).

restart_supervised(_Config) ->
    Parent = start_parent({#{intensity => 0}, [weir_pool:child_spec(p, pool(2)), weir_pool:child_spec(q, pool(1))]}),
    {Before, Other} = {slots(p), slots(q)},
    ?assertEqual(ok, weir_pool:restart(p)),
    ?assert(settled(p, 2)),
    ?assertEqual(Before, Before -- slots(p)),
    ?assertEqual(Other, slots(q)),
    ?assertEqual(
        lists:sort([sup(p), sup(q)]), lists:sort([Pid || {_, Pid, _, _} <- supervisor:which_children(Parent)])
    ),
    stop_parent(Parent),
    nothing_left_soon().

restart_not_supervised(_Config) ->
    {ok, Linked} = weir_pool:start_link(p, pool(1)),
    ?assertEqual({error, not_supervised}, weir_pool:restart(p)),
    ?assertEqual(Linked, sup(p)),
    ok = weir_pool:stop(p),
    Child = #{id => x, start => {weir_pool, start_link, []}, type => supervisor},
    Simple = start_parent({#{strategy => simple_one_for_one}, [Child]}),
    {ok, One} = supervisor:start_child(Simple, [p, pool(1)]),
    ?assertEqual({error, not_supervised}, weir_pool:restart(p)),
    ?assertEqual(One, sup(p)),
    stop_parent(Simple),
    nothing_left_soon(),
    %% It would be forgotten when it stops.
    Parent = start_parent({#{}, [(weir_pool:child_spec(p, pool(1)))#{restart => temporary}]}),
    Sup = sup(p),
    ?assertEqual({error, not_supervised}, weir_pool:restart(p)),
    ?assertEqual(Sup, sup(p)),
    ?assertEqual(ok, weir_pool:stop(p)),
    stop_parent(Parent),
    nothing_left_soon(),
    %% One that is starting.
    {Starter, Blocked} = start_blocked(p, 1),
    ?assertEqual({error, no_pool}, weir_pool:resize(p, 2)),
    Blocked ! go,
    ?assertEqual(ok, result(Starter)),
    ok = weir_pool:stop(p).

groups(_Config) ->
    ?assertEqual(ok, weir_pool:stop_group(g)),
    ?assertEqual(ok, weir_pool:restart_group(g)),
    Good = atomics:new(1, []),
    Script = fun(_Slot) ->
        case atomics:get(Good, 1) of
            0 -> start;
            1 -> {error, bad}
        end
    end,
    ok = weir_pool:start(a, pool(1, #{group => g})),
    ok = weir_pool:start(b, (slot_script(1, Script))#{group => g}),
    ok = weir_pool:start(c, pool(1, #{group => h})),
    ok = weir_pool:start(d, pool(1, #{group => none})),
    ok = weir_pool:start(e, pool(1)),
    {ok, Linked} = weir_pool:start_link(f, pool(1, #{group => g})),
    Before = [slots(Name) || Name <- [a, b, c, d, e, f]],
    ?assertEqual({error, [{f, not_supervised}]}, weir_pool:restart_group(g)),
    ?assertEqual(lists:nthtail(2, Before), [slots(Name) || Name <- [c, d, e, f]]),
    ?assertEqual([], [Pids || Pids <- Before, lists:member(Pids, [slots(a), slots(b)])]),
    ?assertEqual(ok, weir_pool:restart_group(h)),
    ?assertEqual(ok, weir_pool:restart_group(none)),
    atomics:put(Good, 1, 1),
    {error, Failed} = weir_pool:restart_group(g),
    ?assertEqual([{b, {start_failed, 1, bad}}, {f, not_supervised}], lists:sort(Failed)),
    ?assertEqual([a, c, d, e, f], lists:sort(weir_pool:pools())),
    ?assertEqual(ok, weir_pool:stop_group(g)),
    ?assertEqual([c, d, e], lists:sort(weir_pool:pools())),
    ?assertNot(is_process_alive(Linked)),
    %% Compared with =:=.
    ok = weir_pool:start(one, pool(1, #{group => 1})),
    ok = weir_pool:stop_group(1.0),
    ?assert(lists:member(one, weir_pool:pools())),
    [ok = weir_pool:stop(Name) || Name <- weir_pool:pools()],
    nothing_left().

%% ---------------------------------------------------------------- the application's environment

with_environment(Pools, Fun) ->
    ok = application:stop(weir_pool),
    ok = application:unload(weir_pool),
    ok = application:load(weir_pool),
    ok = application:set_env(weir_pool, pools, Pools),
    try
        Fun(application:start(weir_pool))
    after
        _ = application:stop(weir_pool),
        ok = application:unset_env(weir_pool, pools),
        ok = application:start(weir_pool)
    end.

pools_of_the_environment(_Config) ->
    Pools = [{p, pool(2)}, {{q, 1}, pool(1, ?ASYNC)}, {r, #{}}],
    with_environment(Pools, fun(Started) ->
        ?assertEqual(ok, Started),
        ?assertEqual([p, r, {q, 1}], lists:sort(weir_pool:pools())),
        ?assert(settled(p, 2)),
        ?assertEqual(ok, weir_pool:restart(p)),
        ok = application:stop(weir_pool),
        nothing_left()
    end),
    with_environment([], fun(Started) -> ?assertEqual(ok, Started) end).

%% Nothing is left of those before.
bad_pools_of_the_environment(_Config) ->
    Bad = [
        {[{p, pool(1)}, {p, pool(1)}], {pool_not_started, p, already_started}},
        {[{p, pool(1)}, {q, #{size => -1}}], {pool_not_started, q, {bad_option, size, -1}}},
        {[{p, pool(1)}, {q, #{size => 1, worker => {no_such_module, f, []}}}], {pool_not_started, q, '_'}},
        {[{p, pool(1)}, {q, [{size, 1}]}], {bad_environment, pools, '_'}},
        {[{p, pool(1)} | q], {bad_environment, pools, '_'}},
        {[p], {bad_environment, pools, '_'}},
        {p, {bad_environment, pools, '_'}}
    ],
    [
        with_environment(Pools, fun(Started) ->
            ?assertMatch({error, _}, Started),
            {error, {Reason, {weir_pool_app, start, _}}} = Started,
            ?assertEqual(lists:droplast(tuple_to_list(Expected)), lists:droplast(tuple_to_list(Reason))),
            Last = element(tuple_size(Expected), Expected),
            Last =:= '_' orelse ?assertEqual(Last, element(tuple_size(Reason), Reason)),
            nothing_left()
        end)
     || {Pools, Expected} <- Bad
    ].
