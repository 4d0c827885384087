%% Pools that change while they are in use: another size, other workers, the end, a new beginning.
-module(weir_pool_change_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, await_down/1, kill/1, result/1, wait_ms/0]).
-import(weir_pool_test_lib, [
    each/2, manager/1, slots/1, workers/1, settled/2, start_parent/1, stop_parent/1, nothing_left_soon/0,
    messages_of_pools/0, start_blocked/2
]).
-import(weir_pool_life_lib, [
    start/2, pool/1, pool/2, slot_script/2, gated/1, await_blocked/1, go/2, settle/2, workers_alive/0, claimer/1,
    release/1, kill_claimer/1, worker_of/1, slot_of/1, busy/1, idle/1, pickers/2, stop_pickers/1, word/2
]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

-define(ASYNC, #{start => async, backoff => {1, 4}}).

%% A pool whose starts do what is wanted now: `signals', `start', or another result.
switched(Size, Opts) ->
    Mode = ets:new(mode, [public]),
    true = ets:insert(Mode, {mode, start}),
    Signals = gated(Size),
    Script = fun(Slot) ->
        case ets:lookup_element(Mode, mode, 2) of
            signals -> Signals(Slot);
            {only, Slot, signals} -> Signals(Slot);
            {only, Slot, Result} -> Result;
            {only, _, _} -> start;
            Result -> Result
        end
    end,
    ok = weir_pool:start(p, maps:merge(slot_script(Size, Script), Opts)),
    settle(p, Size),
    Mode.

switch(Mode, To) -> true = ets:insert(Mode, {mode, To}).

shape() ->
    {ok, Info} = weir_pool:info(p),
    maps:with([size, limit, live, vacant], Info).

%% Processes at once, and then what the slots have left.
all_gone() ->
    ?assertEqual([], workers_alive()),
    nothing_left_soon().

%% ---------------------------------------------------------------- resize

%% Words, terms and processes are those of the new size.
picks_get_workers_during_changes(_Config) ->
    each([#{}, ?ASYNC, #{restart => temporary, shutdown => brutal_kill}], fun(Opts) ->
        start(1, Opts),
        Pickers = pickers(p, 2),
        [
            begin
                ?assertEqual(ok, weir_pool:resize(p, Size)),
                ?assertMatch({ok, #{size := Size, limit := Size}}, weir_pool:info(p)),
                settle(p, Size)
            end
         || Size <- [5, 40, 3, 60, 60, 1, 17, 1]
        ],
        [
            begin
                [Old] = slots(p),
                ?assertEqual(ok, weir_pool:replace(p, 1)),
                ?assertNotEqual([Old], slots(p))
            end
         || _ <- lists:seq(1, weir_kit:long(40, 100))
        ],
        weir_kit:none(wrong_picks, stop_pickers(Pickers)),
        settle(p, 1),
        ok = weir_pool:stop(p),
        all_gone()
    end).

%% A slot that is claimed, given up and taken back has the worker that was to go.
a_resize_keeps_the_workers_of_the_slots_that_stay(_Config) ->
    each([#{}, ?ASYNC], fun(Opts) ->
        start(4, Opts),
        Before = slots(p),
        ok = weir_pool:resize(p, 6),
        settle(p, 6),
        ?assertEqual(Before, lists:sublist(slots(p), 4)),
        Claimers = [claimer(p) || _ <- lists:seq(1, 6)],
        [ok = weir_pool:resize(p, Size) || Size <- [1, 2, 4]],
        ?assertEqual(Before, slots(p)),
        ?assertEqual({error, busy}, weir_pool:claim(p, fun(_) -> ok end)),
        [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
        settle(p, 4),
        ?assertEqual(Before, slots(p)),
        ok = weir_pool:resize(p, 2),
        settle(p, 2),
        ?assertEqual(lists:sublist(Before, 2), slots(p)),
        ?assertMatch({ok, #{restarts := 0}}, weir_pool:info(p))
    end).

%% A worker beyond the new size that dies in its claim has no successor.
a_smaller_pool_lets_claims_end(_Config) ->
    each([#{}, ?ASYNC], fun(Opts) ->
        start(4, Opts),
        Claimers = [claimer(p) || _ <- [1, 2, 3, 4]],
        ?assertEqual(ok, weir_pool:resize(p, 1)),
        ?assertMatch({ok, #{size := 1, limit := 1}}, weir_pool:info(p)),
        ?assertEqual({error, busy}, weir_pool:claim(p, fun(_) -> ok end)),
        {[Staying], [Dead | Leaving]} = lists:partition(fun(Claimer) -> slot_of(Claimer) =:= 1 end, Claimers),
        ?assertEqual([{ok, worker_of(Staying)}], lists:usort([weir_pool:pick(p) || _ <- lists:seq(1, 20)])),
        [?assertEqual(pong, gen_server:call(worker_of(Claimer), ping, wait_ms())) || Claimer <- Claimers],
        kill(worker_of(Dead)),
        _ = release(Dead),
        [
            begin
                ?assertEqual(ok, release(Claimer)),
                await_down(worker_of(Claimer))
            end
         || Claimer <- Leaving
        ],
        ?assertEqual(ok, release(Staying)),
        settle(p, 1),
        ?assertEqual({ok, worker_of(Staying)}, weir_pool:pick(p))
    end).

%% A drain returns after that. A resize and a replacement do not wait.
workers_finish_their_work_before_they_stop(_Config) ->
    Drain = fun() -> weir_pool:drain(p, infinity) end,
    Changes = [
        {fun() -> weir_pool:resize(p, 1) end, returns},
        {fun() -> weir_pool:replace(p, 2) end, returns},
        {Drain, waits},
        {fun() -> {weir_pool:replace(p, 2), Drain()} =:= {ok, ok} andalso ok end, waits}
    ],
    each(Changes, fun({Change, Waits}) ->
        start(2, #{shutdown => infinity}),
        [_, Second] = slots(p),
        busy(Second),
        Test = self(),
        [gen_server:cast(Second, {run, fun() -> Test ! {did, N} end}) || N <- [1, 2, 3]],
        {Pid, _} = Changer = weir_kit:start(Change),
        until(fun() -> not lists:member(Second, slots(p)) end),
        case Waits of
            returns -> ?assertEqual(ok, result(Changer));
            waits -> ?assert(is_process_alive(Pid))
        end,
        ?assert(is_process_alive(Second)),
        idle(Second),
        _ = Waits =:= waits andalso ?assertEqual(ok, result(Changer)),
        await_down(Second),
        weir_kit:same(did, [1, 2, 3], [N || {did, N} <- weir_kit:take_messages()])
    end).

a_change_that_fails_changes_nothing(_Config) ->
    Resize = fun() -> weir_pool:resize(p, 5) end,
    Replace = fun() -> weir_pool:replace(p, 2) end,
    Replacements = [
        {Replace, {error, no}, {start_failed, 2, no}},
        {Replace, ignore, {start_failed, 2, ignore}}
    ],
    Resizes = [
        {Resize, {only, 4, {error, no}}, {start_failed, 4, no}},
        {Resize, {only, 4, wrong}, {start_failed, 4, {bad_return, {weir_pool_life_worker, start_script, wrong}}}}
    ],
    each([{#{}, Replacements ++ Resizes}, {?ASYNC, Replacements}], fun({Opts, Failures}) ->
        Mode = switched(2, Opts),
        {Before, Shape} = {slots(p), shape()},
        [
            begin
                switch(Mode, Starts),
                ?assertEqual({error, Error}, Change()),
                ?assertEqual({Before, Shape}, {slots(p), shape()}),
                settle(p, 2)
            end
         || {Change, Starts, Error} <- Failures
        ],
        switch(Mode, start),
        ?assertEqual({ok, ok}, {Replace(), Resize()}),
        settle(p, 5)
    end).

%% Workers that have started are stopped again, and starts that hang are ended.
a_change_that_times_out_changes_nothing(_Config) ->
    Resize = fun(Ms) -> weir_pool:resize(p, 4, Ms) end,
    Replace = fun(Ms) -> weir_pool:replace(p, 1, Ms) end,
    Hangs = [{Resize, signals, 4}, {Resize, {only, 3, signals}, 4}, {Resize, {only, 4, signals}, 4}],
    each([{Replace, signals, 2} | Hangs], fun({Change, Starts, Size}) ->
        Mode = switched(2, #{}),
        {Before, Shape} = {slots(p), shape()},
        switch(Mode, Starts),
        ?assertEqual({error, timeout}, Change(50)),
        ?assertEqual({Before, Shape}, {slots(p), shape()}),
        %% The start ends too late.
        go(blocked(), start),
        settle(p, 2),
        ?assertEqual(Before, slots(p)),
        switch(Mode, start),
        ?assertEqual(ok, Change(infinity)),
        settle(p, Size)
    end).

%% Returns the starts that have blocked before their time was over: all, but on a busy machine.
blocked() ->
    receive
        {blocked, Pid, Slot} -> [{Pid, Slot} | blocked()]
    after 0 -> []
    end.

%% The worker dies in the resize, and its successor dies after the resize. Both come back.
a_worker_that_a_resize_has_started_is_started_again(_Config) ->
    each([#{}, ?ASYNC, #{restart => transient}], fun(Opts) ->
        Mode = switched(2, Opts),
        Before = slots(p),
        switch(Mode, signals),
        Resizer = weir_kit:start(fun() -> weir_pool:resize(p, 4) end),
        [Third, Fourth] = lists:keysort(2, await_blocked(2)),
        go([Third], start),
        [First] = new_workers(Before),
        switch(Mode, start),
        kill(First),
        go([Fourth], start),
        ?assertEqual(ok, result(Resizer)),
        settle(p, 4),
        [
            begin
                Worker = lists:nth(Slot, slots(p)),
                kill(Worker),
                until(fun() -> settled(p, 4) andalso not lists:member(Worker, slots(p)) end)
            end
         || Slot <- [3, 4, 3, 4]
        ]
    end).

%% Waits for workers that were not there before.
new_workers(Before) ->
    weir_kit:until_value(fun() ->
        case workers_alive() -- Before of
            [] -> false;
            New -> New
        end
    end).

%% A slot stays vacant if its start function returned `ignore', or its worker is not restarted.
vacant_slots_stay_vacant_in_a_resize(_Config) ->
    each([#{restart => temporary}, maps:put(restart, temporary, ?ASYNC)], fun(Opts) ->
        Starts = counters:new(4, []),
        Script = fun(Slot) ->
            counters:add(Starts, Slot, 1),
            case Slot rem 2 of
                0 -> ignore;
                1 -> start
            end
        end,
        ok = weir_pool:start(p, maps:merge(slot_script(3, Script), Opts)),
        until(fun() -> length(workers(p)) =:= 2 end),
        [_, undefined, Third] = slots(p),
        kill(Third),
        until(fun() -> length(workers(p)) =:= 1 end),
        ?assertEqual(ok, weir_pool:resize(p, 4)),
        until(fun() -> counters:get(Starts, 4) =:= 1 end),
        [?assertEqual(ok, weir_pool:replace(p, 1)) || _ <- [1, 2]],
        ?assertMatch([First, undefined, undefined, undefined] when is_pid(First), slots(p)),
        ?assertEqual([3, 1, 1, 1], [counters:get(Starts, Slot) || Slot <- [1, 2, 3, 4]])
    end).

%% The first array has 16 slots or more. Claims made before it is not the only one are released after.
claims_in_a_pool_that_has_grown_often_end(_Config) ->
    ok = weir_pool:start(p, pool(10)),
    Claimers = [claimer(p) || _ <- lists:seq(1, 10)],
    [ok = weir_pool:resize(p, Size) || Size <- [16, 17, 60, 300]],
    More = [claimer(p) || _ <- lists:seq(11, 300)],
    ?assertEqual(lists:seq(1, 300), lists:sort([slot_of(Claimer) || Claimer <- Claimers ++ More])),
    ?assertMatch({ok, #{claimed := 300}}, weir_pool:info(p)),
    [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers ++ More],
    settle(p, 300).

%% Slots for overflow become others, and others become such, with the workers that they have.
slots_for_overflow_become_regular_with_their_workers(_Config) ->
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
    %% Vacant slots are not filled by this change either.
    ok = weir_pool:resize(p, 1),
    settle(p, 1),
    ?assertEqual(lists:sublist(Before, 1), element(2, weir_pool:workers(p))).

%% A claim that found no free worker has begun the start, which fails when the slot is about to become a regular one, or
%% has become one.
a_resize_takes_over_a_start_for_overflow_that_fails(_Config) ->
    each([{#{}, {error, {start_failed, 2, no}}, 1}, {?ASYNC, ok, 3}], fun({Opts, Result, Size}) ->
        Mode = switched(1, Opts#{overflow => #{max => 2, linger => 0}}),
        Claimer = claimer(p),
        switch(Mode, signals),
        {error, busy} = weir_pool:claim(p, fun(_) -> ok end),
        [{_, 2}] = Second = await_blocked(1),
        Resizer = weir_kit:start(fun() -> weir_pool:resize(p, 3) end),
        [{_, 3}] = Third = await_blocked(1),
        ok = release(Claimer),
        switch(Mode, start),
        go(Second, {error, no}),
        ?assertEqual(Result, result(Resizer)),
        go(Third, {error, no}),
        settle(p, Size)
    end).

%% The surplus workers become workers for overflow. The pool stops
%% them when they are idle, whether they were claimed before or not, and however that claim ends.
shrinking_leaves_no_surplus_workers(_Config) ->
    [
        begin
            Opts = #{overflow => #{max => 2, linger => Linger}, abandoned => Abandoned},
            ok = weir_pool:start(p, pool(3, Opts)),
            Claimers = [claimer(p) || _ <- [1, 2, 3]],
            ok = weir_pool:resize(p, 1),
            ?assertMatch({ok, #{size := 1, limit := 3, live := 3, claimed := 3}}, weir_pool:info(p)),
            [End(Claimer) || Claimer <- Claimers],
            %% Does not wait for the manager's own tick, this time.
            manager(p) ! tick,
            settle(p, 1),
            %% There is room for others.
            More = [claimer(p) || _ <- [1, 2, 3]],
            ?assertMatch({ok, #{live := 3}}, weir_pool:info(p)),
            ok = weir_pool:resize(p, 2),
            [?assertEqual(ok, release(Claimer)) || Claimer <- More],
            settle(p, 2),
            ok = weir_pool:stop(p)
        end
     || Linger <- [0, 20],
        {End, Abandoned} <- [
            {fun weir_pool_life_lib:release/1, free},
            {fun weir_pool_life_lib:kill_claimer/1, free},
            {fun weir_pool_life_lib:kill_claimer/1, {wait, 1000}},
            {fun weir_pool_life_lib:kill_claimer/1, replace}
        ]
    ].

a_resize_beside_a_resize_is_refused(_Config) ->
    Mode = switched(2, #{}),
    switch(Mode, signals),
    Resizer = weir_kit:start(fun() -> weir_pool:resize(p, 4) end),
    Blocked = await_blocked(2),
    ?assertEqual({error, resizing}, weir_pool:resize(p, 3)),
    ?assertEqual({error, resizing}, weir_pool:resize(p, 1)),
    %% The other starts go on.
    switch(Mode, start),
    ?assertEqual(ok, weir_pool:replace(p, 1)),
    ?assertEqual({error, no_slot}, weir_pool:replace(p, 3)),
    kill(hd(workers(p))),
    settle_size(2),
    go(Blocked, start),
    ?assertEqual(ok, result(Resizer)),
    settle(p, 4),
    ?assertEqual(ok, weir_pool:resize(p, 3)),
    settle(p, 3).

settle_size(Size) -> until(fun() -> settled(p, Size) end).

%% The callers get an error. The next pool is whole and has the configured size, whatever it was before.
a_killed_manager_ends_every_change(_Config) ->
    Mode = switched(3, #{}),
    Before = slots(p),
    Claimers = lists:keysort(3, [claimer(p) || _ <- [1, 2, 3]]),
    ok = weir_pool:resize(p, 2),
    Waiting = weir_kit:start(fun() -> weir_pool:replace(p, 1) end),
    until(fun() -> word(p, 1) =:= marked end),
    switch(Mode, signals),
    Starting = weir_kit:start(fun() -> weir_pool:replace(p, 2) end),
    Resizer = weir_kit:start(fun() -> weir_pool:resize(p, 5) end),
    Blocked = await_blocked(3),
    switch(Mode, start),
    kill(manager(p)),
    %% A supervisor inside a start function hears of the manager's end when the function returns. The restart waits for
    %% that, though not without a limit.
    go(Blocked, start),
    [?assertEqual({error, {pool_down, killed}}, result(Caller)) || Caller <- [Waiting, Starting, Resizer]],
    [?assertEqual({error, worker_down}, release(Claimer)) || Claimer <- Claimers],
    settle(p, 3),
    ?assertEqual(Before, Before -- slots(p)),
    ?assertEqual(ok, weir_pool:resize(p, 5)),
    [?assertEqual(ok, weir_pool:replace(p, Slot)) || Slot <- [1, 2]],
    settle(p, 5).

changes_that_cannot_be_made_are_refused(_Config) ->
    ok = weir_pool:start(p, pool(2)),
    Sizes = [0, -1, 1.0, two, infinity, ?MAX_SIZE + 1],
    [?assertEqual({error, {bad_size, Size}}, weir_pool:resize(p, Size)) || Size <- Sizes],
    [?assertEqual({error, no_slot}, weir_pool:replace(p, Slot)) || Slot <- [0, 3, -1, 1.0, one]],
    ?assertEqual(ok, weir_pool:resize(p, 2)),
    ok = weir_pool:start(q, pool(1, #{overflow => #{max => 10, linger => 0}})),
    ?assertEqual({error, {bad_size, ?MAX_SIZE - 9}}, weir_pool:resize(q, ?MAX_SIZE - 9)),
    ok = weir_pool:start(members, #{size => 1, worker => none}),
    ?assertEqual({error, no_workers}, weir_pool:replace(members, 1)),
    ?assertEqual({error, no_pool}, weir_pool:resize(no_such, 1)),
    ?assertEqual({error, no_pool}, weir_pool:replace(no_such, 1)).

a_pool_that_starts_refuses_changes(_Config) ->
    {Starter, Blocked} = start_blocked(p, 1),
    ?assertEqual({error, no_pool}, weir_pool:resize(p, 2)),
    ?assertEqual({error, no_pool}, weir_pool:replace(p, 1)),
    ?assertEqual({error, no_pool}, weir_pool:drain(p, 0)),
    Blocked ! go,
    ?assertEqual(ok, result(Starter)),
    ?assert(settled(p, 1)).

%% All workers may die together, however many there are by then.
the_default_intensity_follows_the_size(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    ok = weir_pool:resize(p, 60),
    Manager = manager(p),
    [
        begin
            Old = workers(p),
            [exit(Pid, kill) || Pid <- Old],
            until(fun() -> settled(p, 60) andalso workers(p) -- Old =:= workers(p) end)
        end
     || _ <- [1, 2]
    ],
    ?assertEqual(Manager, manager(p)).

%% ---------------------------------------------------------------- replace

%% A waiter gets the new worker, or the old one if the new one has died.
a_replacement_waits_for_the_end_of_the_claim(_Config) ->
    Ends = [
        {fun weir_pool_life_lib:release/1, ok},
        {fun(Claimer) -> kill(worker_of(Claimer)) end, ok},
        {fun kill_and_tick/1, ok},
        {fun(Claimer) -> kill(hd(workers_alive() -- [worker_of(Claimer)])) end, {error, {start_failed, 1, killed}}}
    ],
    Pools = [#{}, ?ASYNC, #{abandoned => {wait, 1000}}, #{abandoned => free}],
    each([{Opts, End, Result} || Opts <- Pools, {End, Result} <- Ends], fun({Opts, End, Result}) ->
        start(1, Opts),
        Claimer = claimer(p),
        Replacer = weir_kit:start(fun() -> weir_pool:replace(p, 1) end),
        until(fun() -> word(p, 1) =:= marked end),
        ?assertEqual({ok, worker_of(Claimer)}, weir_pool:pick(p)),
        ?assertEqual({error, busy}, weir_pool:claim(p, fun(_) -> ok end)),
        ?assertEqual({error, replacing}, weir_pool:replace(p, 1)),
        Waiter = weir_kit:start(fun() -> weir_pool:claim(p, fun(Pid) -> Pid end, #{timeout => infinity}) end),
        until(fun() -> {ok, #{waiting := N}} = weir_pool:info(p), N =:= 1 end),
        _ = End(Claimer),
        ?assertEqual(Result, result(Replacer)),
        _ = Result =:= ok orelse released_though_not_replaced(Claimer),
        {ok, Worker} = result(Waiter),
        ?assertEqual([Worker], slots(p)),
        ?assertEqual(Result =/= ok, Worker =:= worker_of(Claimer)),
        settle(p, 1)
    end).

kill_and_tick(Claimer) ->
    kill_claimer(Claimer),
    manager(p) ! tick.

%% The manager answers the caller of a replacement first, and unmarks the slot then.
released_though_not_replaced(Claimer) ->
    until(fun() -> word(p, 1) =:= taken end),
    ?assertEqual(ok, release(Claimer)).

a_replacement_that_times_out_keeps_the_worker(_Config) ->
    start(1, #{}),
    Claimer = claimer(p),
    ?assertEqual({error, timeout}, weir_pool:replace(p, 1, 50)),
    released_though_not_replaced(Claimer),
    settle(p, 1),
    ?assertEqual([worker_of(Claimer)], slots(p)).

%% A worker that ignores the end of its supervisor does not remain either. The manager is suspended while the time of
%% the change ends and the worker starts. An unused pool sends its manager no other messages. If a busy machine suspends
%% the manager too late, the trial begins again with more time.
a_worker_that_starts_after_the_time_of_its_change_is_stopped(_Config) ->
    [
        late_news_of_a_worker(Change, 200)
     || Change <- [fun(Ms) -> weir_pool:resize(p, 2, Ms) end, fun(Ms) -> weir_pool:replace(p, 1, Ms) end]
    ].

late_news_of_a_worker(Change, Ms) ->
    switch(switched(1, #{}), signals),
    [First] = slots(p),
    Manager = manager(p),
    {Pid, _} = Changer = weir_kit:start(fun() -> Change(Ms) end),
    Blocked = await_blocked(1),
    ok = sys:suspend(Manager, wait_ms()),
    until(fun() -> weir_kit:queue_len(Manager) =:= 1 orelse not is_process_alive(Pid) end),
    IsSuspendedInTime = is_process_alive(Pid),
    go(Blocked, stubborn),
    IsSuspendedInTime andalso until(fun() -> weir_kit:queue_len(Manager) =:= 2 end),
    ok = sys:resume(Manager, wait_ms()),
    ?assertEqual({error, timeout}, result(Changer)),
    settle(p, 1),
    ?assertEqual([First], slots(p)),
    ok = weir_pool:stop(p),
    weir_kit:none(leaked, stubborn_workers()),
    IsSuspendedInTime orelse late_news_of_a_worker(Change, 2 * Ms).

stubborn_workers() ->
    [Pid || Pid <- processes(), {weir_pool_test_worker, _, _} <- [proc_lib:translate_initial_call(Pid)]].

%% The manager refuses the change. When the caller releases its worker, nothing happens.
the_holder_of_a_worker_cannot_wait_for_itself(_Config) ->
    ok = weir_pool:start(p, pool(3)),
    Before = slots(p),
    Tickets = [Ticket || _ <- [1, 2, 3], {ok, _, Ticket} <- [weir_pool:checkout(p, 0)]],
    ?assertEqual([1, 2, 3], lists:sort([weir_pool:slot(Ticket) || Ticket <- Tickets])),
    [?assertEqual({error, held_by_caller}, weir_pool:replace(p, Slot)) || Slot <- [1, 2, 3]],
    ?assertEqual({error, held_by_caller}, weir_pool:drain(p, infinity)),
    %% A second process waits for the slot, which changes nothing for the holder.
    ?assertEqual({error, timeout}, result(weir_kit:start(fun() -> weir_pool:replace(p, 1, 50) end))),
    Waiting = weir_kit:start(fun() -> weir_pool:replace(p, 1) end),
    until(fun() -> word(p, 1) =:= marked end),
    ?assertEqual({error, held_by_caller}, weir_pool:drain(p, infinity)),
    ?assertEqual(Before, slots(p)),
    [?assertEqual(ok, weir_pool:checkin(p, Ticket)) || Ticket <- Tickets],
    ?assertEqual(ok, result(Waiting)),
    ?assertEqual(tl(Before), tl(slots(p))),
    settle(p, 3),
    %% Changes inside a claim, also inside one of a slot that is given up.
    Both = fun(_) -> {weir_pool:replace(p, 1), weir_pool:drain(p, infinity)} end,
    ok = weir_pool:resize(p, 1),
    ?assertEqual({ok, {{error, held_by_caller}, {error, held_by_caller}}}, weir_pool:claim(p, Both)),
    GivenUp = fun(_) -> {weir_pool:resize(p, 1), weir_pool:drain(p, infinity)} end,
    ok = weir_pool:resize(p, 2),
    {[First], [Second]} = lists:partition(fun(Claimer) -> slot_of(Claimer) =:= 1 end, [claimer(p), claimer(p)]),
    ?assertEqual(ok, release(Second)),
    ?assertEqual({ok, {ok, {error, held_by_caller}}}, weir_pool:claim(p, GivenUp)),
    ?assertEqual(ok, release(First)),
    settle(p, 1),
    ?assertEqual(ok, weir_pool:drain(p, infinity)),
    all_gone().

%% Given up, or one for overflow, where a worker that was replaced would be one too many: while it starts, and while it
%% waits.
a_replacement_in_a_slot_given_up_ends(_Config) ->
    each([#{}, #{overflow => #{max => 2, linger => 0}}], fun(Opts) ->
        Mode = switched(2, Opts),
        switch(Mode, signals),
        First = weir_kit:start(fun() -> weir_pool:replace(p, 2) end),
        Blocked = await_blocked(1),
        ok = weir_pool:resize(p, 1),
        go(Blocked, start),
        ?assertEqual({error, no_slot}, result(First)),
        settle(p, 1),
        switch(Mode, start),
        ok = weir_pool:resize(p, 2),
        Claimers = [claimer(p), claimer(p)],
        Second = weir_kit:start(fun() -> weir_pool:replace(p, 2) end),
        until(fun() -> word(p, 2) =:= marked end),
        ok = weir_pool:resize(p, 1),
        ?assertEqual({error, no_slot}, result(Second)),
        [?assertEqual(ok, release(Claimer)) || Claimer <- Claimers],
        settle(p, 1)
    end).

a_replacement_whose_new_supervisor_is_killed_fails(_Config) ->
    Mode = switched(1, #{}),
    switch(Mode, signals),
    Replacer = weir_kit:start(fun() -> weir_pool:replace(p, 1) end),
    Blocked = await_blocked(1),
    [kill(Sup) || {Sup, 1} <- Blocked],
    ?assertEqual({error, {start_failed, 1, killed}}, result(Replacer)),
    go(Blocked, start),
    settle(p, 1).

%% The worker stops, whether the check finds it good or not.
a_replacement_does_not_wait_for_a_check(_Config) ->
    each([ok, bad], fun(Result) ->
        {Old, Checker} = checking(1),
        ?assertEqual(ok, weir_pool:replace(p, 1)),
        [New] = slots(p),
        ?assertNotEqual(Old, New),
        Checker ! {result, Result},
        await_down(Old),
        settle(p, 1),
        ?assertEqual([New], slots(p)),
        ?assertMatch({ok, #{check_failures := 0}}, weir_pool:info(p))
    end).

%% Starts a pool and the check of its first worker, which ends when it is sent {result, Result}. Returns the worker and
%% the process that checks it.
checking(Size) ->
    Test = self(),
    Check = fun(Pid) ->
        Test ! {checking, Pid, self()},
        receive {result, Result} -> Result end
    end,
    start(Size, #{check => {Check, 3600000}}),
    manager(p) ! check_round,
    receive {checking, Worker, Checker} -> {Worker, Checker} end.

%% ---------------------------------------------------------------- drain

a_drain_stops_an_idle_pool(_Config) ->
    [
        begin
            ok = weir_pool:start(p, Opts),
            ?assertEqual(ok, weir_pool:drain(p, Timeout)),
            all_gone()
        end
     || Opts <- [pool(3), pool(3, ?ASYNC), #{size => 3, worker => none}, #{worker => none}],
        Timeout <- [weir_kit:wait_ms(), infinity]
    ],
    ?assertEqual({error, no_pool}, weir_pool:drain(p, 0)),
    weir_kit:none(messages, messages_of_pools()).

%% A busy worker that dies does not count any more, and neither does a claimer that dies.
a_drain_waits_for_claims(_Config) ->
    Ends = [
        {fun weir_pool_life_lib:release/1, #{}},
        {fun(Claimer) -> kill(worker_of(Claimer)) end, #{}},
        {fun(Claimer) -> kill(worker_of(Claimer)) end, ?ASYNC},
        {fun kill_and_tick/1, #{}},
        {fun kill_and_tick/1, #{abandoned => {wait, 1000}}},
        {fun kill_and_tick/1, #{abandoned => free}}
    ],
    each(Ends, fun({End, Opts}) ->
        start(3, Opts),
        [First, Second] = [claimer(p), claimer(p)],
        [Busy] = slots(p) -- [worker_of(First), worker_of(Second)],
        busy(Busy),
        Drainer = drainer(),
        ?assertEqual(pong, gen_server:call(worker_of(First), ping, wait_ms())),
        ok = release(First),
        kill(Busy),
        ?assertEqual(pong, gen_server:call(worker_of(Second), ping, wait_ms())),
        ?assert(is_process_alive(element(1, Drainer))),
        _ = End(Second),
        ?assertEqual(ok, result(Drainer)),
        all_gone()
    end).

%% Starts a drain. Returns when the pool is closed.
drainer() ->
    Drainer = weir_kit:start(fun() -> weir_pool:drain(p, infinity) end),
    until(fun() -> weir_pool:pick(p) =:= {error, no_pool} end),
    Drainer.

a_pool_that_drains_refuses_all_requests(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    Claimer = claimer(p),
    Claim = fun() -> weir_pool:claim(p, fun(_) -> ok end, #{timeout => infinity}) end,
    Waiters = [weir_kit:start(Claim) || _ <- [1, 2, 3]],
    until(fun() -> {ok, #{waiting := N}} = weir_pool:info(p), N =:= 3 end),
    Drainer = weir_kit:start(fun() -> weir_pool:drain(p, infinity) end),
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
    all_gone().

a_drain_that_times_out_reports_how_many_workers_were_left(_Config) ->
    %% Busy workers do not stop in the time of the drain. The idle ones do, even on a busy machine.
    ok = weir_pool:start(p, pool(4, #{shutdown => infinity})),
    [First, Second | _] = slots(p),
    busy(First),
    busy(Second),
    Drainer = weir_kit:start(fun() -> weir_pool:drain(p, 1000) end),
    %% A claim, in another pool at the same time.
    ok = weir_pool:start(q, pool(3)),
    Claimer = claimer(q),
    ?assertEqual({error, {timeout, 1}}, weir_pool:drain(q, 1000)),
    ?assertEqual({error, worker_down}, release(Claimer)),
    ?assertEqual({error, {timeout, 2}}, result(Drainer)),
    all_gone(),
    %% No OTP behaviour, so who knows.
    ok = weir_pool:start(p, #{size => 2, worker => {weir_pool_life_worker, start_plain, []}}),
    ?assertEqual({error, {timeout, 2}}, weir_pool:drain(p, 1)),
    all_gone(),
    weir_kit:none(messages, messages_of_pools()).

a_drain_ends_other_changes(_Config) ->
    Mode = switched(2, #{}),
    Claimer = claimer(p),
    Waiting = weir_kit:start(fun() -> weir_pool:replace(p, slot_of(Claimer)) end),
    until(fun() -> word(p, slot_of(Claimer)) =:= marked end),
    switch(Mode, signals),
    Resizer = weir_kit:start(fun() -> weir_pool:resize(p, 3) end),
    Replacer = weir_kit:start(fun() -> weir_pool:replace(p, 3 - slot_of(Claimer)) end),
    Blocked = await_blocked(2),
    Drainer = weir_kit:start(fun() -> weir_pool:drain(p, infinity) end),
    [?assertEqual({error, no_pool}, result(Changer)) || Changer <- [Resizer, Waiting]],
    go(Blocked, start),
    ?assertEqual({error, no_pool}, result(Replacer)),
    ok = release(Claimer),
    ?assertEqual(ok, result(Drainer)),
    all_gone().

%% When a drain returns, the pool has left nothing, as the next pool may need the same resources. A process that owns a
%% large table takes a while to die.
a_drain_waits_for_the_starts_that_it_ends(_Config) ->
    Test = self(),
    Script = fun(_Slot) ->
        Table = ets:new(large, []),
        true = ets:insert(Table, [{N, N} || N <- lists:seq(1, 300_000)]),
        Test ! {starting, self()},
        receive never -> ok end
    end,
    ok = weir_pool:start(p, maps:merge(slot_script(1, Script), ?ASYNC)),
    Sup = receive {starting, Pid} -> Pid end,
    ?assertEqual(ok, weir_pool:drain(p, infinity)),
    ?assertNot(lists:member(Sup, processes())),
    all_gone().

a_drain_waits_for_a_check(_Config) ->
    each([true, false], fun(Result) ->
        {_, Checker} = checking(2),
        Drainer = drainer(),
        Checker ! {result, Result},
        ?assertEqual(ok, result(Drainer)),
        all_gone()
    end).

%% The supervisor starts the pool again, and the test stops it then.
a_drain_fails_when_the_manager_is_killed(_Config) ->
    [
        begin
            Parent = Start(),
            Claimer = claimer(p),
            Drainer = drainer(),
            kill(manager(p)),
            ?assertEqual({error, {pool_down, killed}}, result(Drainer)),
            nothing_left_soon(),
            kill_claimer(Claimer),
            Parent =:= ok orelse stop_parent(Parent)
        end
     || Start <- [
            fun() -> weir_pool:start(p, pool(1)) end,
            fun() -> start_parent({#{}, [weir_pool:child_spec(p, pool(1))]}) end
        ],
        _ <- lists:seq(1, 20)
    ].

%% If the drain ended with its caller, the pool would stay, closed and empty.
a_drain_goes_on_without_its_caller(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    Claimer = claimer(p),
    Drainer = drainer(),
    kill(Drainer),
    ok = release(Claimer),
    nothing_left_soon().

a_drained_pool_stays_down_under_a_supervisor(_Config) ->
    Parent = start_parent({#{}, [weir_pool:child_spec(p, pool(2))]}),
    ?assertEqual(ok, weir_pool:drain(p, infinity)),
    ?assertEqual({error, no_pool}, weir_pool:pick(p)),
    ?assertMatch([{{weir_pool, p}, undefined, _, _}], supervisor:which_children(Parent)),
    all_gone(),
    {ok, _} = supervisor:restart_child(Parent, {weir_pool, p}),
    settle(p, 2),
    stop_parent(Parent),
    all_gone().

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

the_application_starts_the_pools_of_its_environment(_Config) ->
    Pools = [{p, pool(2)}, {{q, 1}, pool(1, ?ASYNC)}, {r, #{worker => none}}],
    with_environment(Pools, fun(Started) ->
        ?assertEqual(ok, Started),
        ?assertEqual([p, r, {q, 1}], lists:sort(weir_pool:pools())),
        ?assert(settled(p, 2)),
        ok = application:stop(weir_pool),
        all_gone()
    end),
    with_environment([], fun(Started) -> ?assertEqual(ok, Started) end).

%% The pools that have started before the bad one are stopped.
a_bad_pool_in_the_environment_ends_the_application(_Config) ->
    Bad = [
        {[{p, pool(1)}, {p, pool(1)}], {pool_not_started, p, already_started}},
        {[{p, pool(1)}, {q, pool(-1)}], {pool_not_started, q, {bad_option, size, -1}}},
        {[{p, pool(1)}, {q, #{size => 1, worker => {no_such_module, f, []}}}], {pool_not_started, q, '_'}},
        {[{p, pool(1)}, {q, [{size, 1}]}], {pool_not_started, q, {missing_option, worker}}},
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
            all_gone()
        end)
     || {Pools, Expected} <- Bad
    ].
