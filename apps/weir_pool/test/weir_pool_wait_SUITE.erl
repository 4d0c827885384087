%% Claims that wait: the order of service, refusals, and time-outs that cross the grant. Random changes of the pool
%% meanwhile are in weir_pool_claims_prop_SUITE.
-module(weir_pool_wait_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").
-include("weir_pool_test_signals.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, result/1]).
-import(weir_pool_claim_lib, [
    start/1, start/2, pool/0, states/0, signals/1, counter/1, queue/0, manager/0, workers/0, waiting/0, await_waiting/1,
    at_rest/0, no_messages/0, claimer/1, waiter/0, claimed/1, has_not_claimed/1, let_go/1, kill/1, hold_all/0,
    wait_in_order/1
]).

-define(POOL, weir_pool_claim_lib).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_claim_lib:set_up(Config).

end_per_testcase(_Case, Config) -> weir_pool_claim_lib:tear_down(Config).

%% ---------------------------------------------------------------- waiting

first_in_first_out(_Config) -> ten_are_served(#{}, fun(Waiters) -> Waiters end).

last_in_first_out(_Config) -> ten_are_served(#{queue => lifo}, fun lists:reverse/1).

%% Again, if the machine did not let all of them run in time.
ten_are_served(Opts, InOrder) ->
    start(1, Opts),
    [Holder] = hold_all(),
    Waiters = wait_in_order(10),
    IsInOrder = served_in_order([Holder | InOrder(Waiters)]),
    ?assertEqual(10, counter(waits)),
    at_rest(),
    ok = weir_pool:stop(?POOL),
    IsInOrder orelse ten_are_served(Opts, InOrder).

%% Lets the claimers go one after the other: each waiter gets the worker after the one before, and no other does.
%% Returns `false' if a waiter was not scheduled for so long that its grant went to another, which is one claim more.
served_in_order([First | Others]) ->
    {ok, #{claims := Before}} = weir_pool:info(?POOL),
    let_go(First),
    Served = served(Others),
    {ok, #{claims := After}} = weir_pool:info(?POOL),
    case After - Before > length(Others) of
        true ->
            false;
        false ->
            ?assertEqual([Pid || {Pid, _} <- Others], Served),
            true
    end.

served([]) ->
    [];
served(Waiters) ->
    receive
        {claimed, Pid, _Worker} ->
            {[Next], Others} = lists:partition(fun({P, _}) -> P =:= Pid end, Waiters),
            ?assert(lists:all(fun weir_pool_claim_lib:has_not_claimed/1, Others)),
            let_go(Next),
            [Pid | served(Others)];
        {'DOWN', _, process, _, Reason} ->
            error({not_claimed, Reason})
    end.

max_queue(_Config) ->
    start(1, #{max_queue => 3}),
    [Holder] = hold_all(),
    Two = wait_in_order(2),
    [Third] = wait_in_order(1),
    %% The reported wait is no longer than the call.
    Began = now_ms(),
    Refused = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => infinity}),
    Took = now_ms() - Began + 1,
    ?assertMatch(
        {error, {overload, #{pool := ?POOL, reason := queue_full, waiting := 3, waited_ms := Ms}}} when
            Ms >= 0 andalso Ms =< Took,
        Refused
    ),
    %% A claim that does not wait is still `busy'.
    {error, busy} = weir_pool:claim(?POOL, fun(W) -> W end),
    ?assertEqual(1, counter(overloads)),
    ok = kill(Third),
    await_waiting(2),
    [Fourth] = wait_in_order(1),
    _ = served_in_order([Holder | Two] ++ [Fourth]),
    at_rest().

now_ms() -> erlang:monotonic_time(millisecond).

%% Claimers who have read the word at the same time are counted by the queue.
max_queue_in_the_queue(_Config) ->
    start(1, #{max_queue => 3}),
    [Holder] = hold_all(),
    Three = wait_in_order(3),
    #pool{signals = Signals} = pool(),
    ok = atomics:put(Signals, ?SIGNAL_WAITING, 0),
    {error, {overload, #{pool := ?POOL, reason := queue_full, waiting := 3}}} =
        weir_pool:checkout(?POOL, #{timeout => infinity}),
    ok = atomics:put(Signals, ?SIGNAL_WAITING, 3),
    _ = served_in_order([Holder | Three]),
    no_messages().

nobody_may_wait(_Config) ->
    start(1, #{max_queue => 0}),
    {ok, done} = weir_pool:claim(?POOL, fun(_) -> done end, #{timeout => infinity}),
    [Holder] = hold_all(),
    {error, {overload, #{waiting := 0}}} = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => 1}),
    let_go(Holder).

%% The queue is suspended, so that it is seen what newcomers may do.
newcomers_pass_for_a_while(_Config) ->
    start(1),
    [Holder] = hold_all(),
    [Waiter] = wait_in_order(1),
    with_suspended_queue(fun(Signals) ->
        atomics:put(Signals, ?SIGNAL_MODE, ?SOMEBODY_WAITS),
        let_go(Holder),
        {ok, done} = weir_pool:claim(?POOL, fun(_) -> done end),
        ?assert(has_not_claimed(Waiter))
    end),
    _ = claimed(Waiter),
    let_go(Waiter),
    at_rest().

newcomers_wait_behind_the_starving(_Config) ->
    start(1),
    [Holder] = hold_all(),
    Began = now_ms(),
    [Waiter] = wait_in_order(1),
    Waits = now_ms(),
    until(fun() -> signals(?SIGNAL_MODE) =:= ?STARVING end),
    Asked = signals(?SIGNAL_OLDEST),
    ?assert(Asked >= Began andalso Asked =< Waits),
    with_suspended_queue(fun(_Signals) ->
        let_go(Holder),
        ?assertEqual([free], states()),
        {error, busy} = weir_pool:claim(?POOL, fun(_) -> done end),
        Newcomer = waiter(),
        until(fun() -> weir_kit:queue_len(queue()) >= 2 end),
        ?assert(has_not_claimed(Newcomer)),
        self() ! {newcomer, Newcomer}
    end),
    _ = claimed(Waiter),
    Late =
        receive
            {newcomer, Newcomer} -> Newcomer
        end,
    ?assert(has_not_claimed(Late)),
    let_go(Waiter),
    _ = claimed(Late),
    let_go(Late),
    at_rest().

with_suspended_queue(Fun) ->
    #pool{signals = Signals} = pool(),
    Queue = queue(),
    ok = sys:suspend(Queue),
    _ = Fun(Signals),
    ok = sys:resume(Queue).

deadline_passes(_Config) ->
    start(1),
    [Holder] = hold_all(),
    [{error, timeout} = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => T}) || T <- [1, 2, 20]],
    {error, timeout} = weir_pool:checkout(?POOL, #{timeout => 3}),
    ?assertEqual(4, counter(timeouts)),
    await_waiting(0),
    let_go(Holder),
    at_rest(),
    no_messages().

%% The waiter is suspended. Meanwhile the worker is free, or, after some ticks of the queue, held by another.
a_grant_that_is_not_taken_over_is_not_forgotten(_Config) ->
    start(1),
    Workers = workers(),
    TakenBack = fun() -> until(fun() -> states() =:= [free] end) end,
    [
        begin
            [Holder] = hold_all(),
            [{Pid, _} = Waiter] = wait_in_order(1),
            true = erlang:suspend_process(Pid),
            let_go(Holder),
            await_waiting(0),
            _ = Until(),
            ?assert(has_not_claimed(Waiter)),
            End(Waiter),
            at_rest()
        end
     || Until <- [
            fun() -> at_once end,
            TakenBack,
            fun() ->
                TakenBack(),
                ?assertEqual({ok, Workers}, weir_pool:claim(?POOL, fun(Worker) -> [Worker] end))
            end
        ],
        End <- [
            fun({Pid, _} = Waiter) ->
                true = erlang:resume_process(Pid),
                ?assertEqual(Workers, [claimed(Waiter)]),
                let_go(Waiter)
            end,
            fun weir_pool_claim_lib:kill/1,
            %% Somebody else gets it, though the first is still there.
            fun({Pid, _} = Waiter) ->
                Next = waiter(),
                ?assertEqual(Workers, [claimed(Next)]),
                true = erlang:resume_process(Pid),
                %% The waiter keeps its place.
                await_waiting(1),
                let_go(Next),
                ?assertEqual(Workers, [claimed(Waiter)]),
                let_go(Waiter)
            end
        ]
    ],
    %% No claimer has left the worker busy, so the pool does not replace it.
    ?assertEqual(Workers, workers()),
    ?assertEqual(0, counter(abandoned)).

%% All waiters wait for longer than the interval, so the queue drops some while others are served. As all have waited
%% for longer than the limit, only the last one is served after the first drop.
codel_drops(_Config) ->
    start(1, #{codel => #{target => 1, interval => 20}}),
    [Holder] = hold_all(),
    Waiters = wait_in_order(40),
    Dropped = serve_slowly(Holder, Waiters, []),
    ?assert(length(Dropped) > 0),
    [
        ?assertMatch({error, {overload, #{pool := ?POOL, reason := codel, waited_ms := Ms}}} when Ms >= 1, Result)
     || Result <- Dropped
    ],
    ?assertEqual(length(Dropped), counter(overloads)),
    ?assertEqual(40 - length(Dropped), counter(waits)),
    at_rest().

%% Serves the waiters one after the other: each keeps the worker for 3 ms, so that the next one waits for too long.
%% Returns the results of the waiters that were refused.
serve_slowly(Holder, [], Dropped) ->
    let_go(Holder),
    Dropped;
serve_slowly(Holder, Waiters, Dropped) ->
    receive
    after 3 -> ok
    end,
    let_go(Holder),
    next_served(Waiters, Dropped).

next_served([], Dropped) ->
    Dropped;
next_served([{Pid, Monitor} = Next | More], Dropped) ->
    receive
        {claimed, Pid, _} ->
            ?assert(Dropped =:= [] orelse More =:= []),
            serve_slowly(Next, More, Dropped);
        {'DOWN', Monitor, process, Pid, {returned, Result}} -> next_served(More, [Result | Dropped])
    end.

%% Otherwise the interval would go on as long as one waiter has waited for too long, and the next such waiter would be
%% refused at once.
codel_hears_that_nobody_waits_any_more(_Config) ->
    [
        codel_hears(Timeout, End)
     || {Timeout, End} <- [
            {infinity, fun(Others) -> [ok = kill(Other) || Other <- Others] end},
            {500, fun(Others) -> [{error, timeout} = result(Other) || Other <- Others] end},
            %% Suspended waiters do not cancel, but the queue knows when their time is over.
            {500, fun(Others) ->
                [true = erlang:suspend_process(Pid) || {Pid, _} <- Others],
                await_waiting(0),
                [true = erlang:resume_process(Pid) || {Pid, _} <- Others],
                [{error, timeout} = result(Other) || Other <- Others]
            end}
        ]
    ].

%% On a busy machine the time of the others may be over too early. Then the time has to be longer.
codel_hears(Timeout, End) ->
    start(1, #{codel => #{target => 1, interval => 50}}),
    [Holder] = hold_all(),
    [First] = wait_in_order(1),
    Others = [claimer(#{timeout => Timeout}) || _ <- [1, 2]],
    until(fun() -> waiting() =:= 3 orelse counter(timeouts) > 0 end),
    await_oldest(5),
    let_go(Holder),
    _ = claimed(First),
    IsInTime = counter(timeouts) =:= 0,
    IsInTime andalso others_are_forgotten(First, fun() -> End(Others) end),
    ok = weir_pool:stop(?POOL),
    IsInTime orelse codel_hears(2 * Timeout, End).

%% As First had to wait for too long, and others are behind it, the interval has begun. The others end.
others_are_forgotten(First, End) ->
    Began = now_ms(),
    _ = End(),
    await_waiting(0),
    until(fun() -> now_ms() > Began + 100 end),
    [Next, Last] = wait_in_order(2),
    await_oldest(5),
    let_go(First),
    _ = claimed(Next),
    let_go(Next),
    _ = claimed(Last),
    let_go(Last),
    ?assertEqual(0, counter(overloads)),
    at_rest().

await_oldest(Ms) ->
    until(fun() ->
        {ok, #{oldest_wait_ms := Oldest}} = weir_pool:info(?POOL),
        Oldest >= Ms
    end).

overflow_workers_come(_Config) ->
    start(1, #{overflow => #{max => 2, linger => 0}}),
    [Holder] = hold_all(),
    Waiters = [waiter(), waiter()],
    Workers = [claimed(Waiter) || Waiter <- Waiters],
    ?assertEqual(2, length(lists:usort(Workers))),
    {error, timeout} = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => 20}),
    [let_go(Claimer) || Claimer <- [Holder | Waiters]],
    await_workers(1),
    ok = weir_pool:stop(?POOL),
    %% A claim that does not wait makes the pool start a worker for the next one.
    start(1, #{overflow => #{max => 2, linger => 60000}}),
    [Again] = hold_all(),
    {error, busy} = weir_pool:claim(?POOL, fun(W) -> W end),
    await_workers(2),
    let_go(Again).

await_workers(N) ->
    until(fun() ->
        case workers() of
            Workers when length(Workers) =:= N -> true;
            Workers -> {workers, Workers}
        end
    end).

await_no_tick() ->
    until(fun() -> signals(?SIGNAL_MODE) =:= ?UNWATCHED end),
    Unwatched = now_ms(),
    until(fun() -> now_ms() > Unwatched + 1500 end).

%% A check is no use, however often one is made. Rounds are an hour apart, which is also what a check may take, but for
%% those that this process begins: a busy machine makes no check fail.
overflow_workers_go_though_they_are_checked(_Config) ->
    start(1, #{overflow => #{max => 2, linger => 100}, check => {fun(_) -> true end, 3600000}}),
    Holders = hold_all(),
    Waiters = [waiter(), waiter()],
    _ = [claimed(Waiter) || Waiter <- Waiters],
    [let_go(Claimer) || Claimer <- Holders ++ Waiters],
    until(fun() ->
        manager() ! check_round,
        length(workers()) =:= 1
    end),
    ?assertEqual(0, counter(check_failures)).

%% Workers for overflow go also if their claimers die and the pool finds them idle.
overflow_workers_go_whatever_becomes_of_claimers(_Config) ->
    [
        begin
            start(1, #{overflow => #{max => 2, linger => Linger}, abandoned => Abandoned}),
            Holders = hold_all(),
            Waiters = [waiter(), waiter()],
            Workers = [claimed(Waiter) || Waiter <- Waiters],
            %% The pool has looked for the last time before the workers are found idle.
            Busy = Abandoned =/= free,
            _ = [true = erlang:suspend_process(Worker) || Worker <- Workers, Busy],
            [let_go(Holder) || Holder <- Holders],
            [ok = kill(Waiter) || Waiter <- Waiters],
            %% Does not wait for the manager's own tick, this time.
            manager() ! tick,
            until(fun() -> counter(abandoned) =:= 2 end),
            _ = Busy andalso await_no_tick(),
            _ = [true = erlang:resume_process(Worker) || Worker <- Workers, Busy],
            await_workers(1),
            ok = weir_pool:stop(?POOL)
        end
     || Abandoned <- [free, {wait, 60000}], Linger <- [0, 50]
    ].

waits_for_the_first_worker(_Config) ->
    ok = weir_pool:start(?POOL, #{worker => none}),
    {ok, 1} = weir_pool:add_worker(?POOL, one),
    Waiter = waiter(),
    await_waiting(1),
    {ok, 1} = weir_pool:connect(?POOL, one),
    ?assertEqual(self(), claimed(Waiter)),
    let_go(Waiter),
    ok = weir_pool:disconnect(?POOL, one).

%% ---------------------------------------------------------------- races

%% A process that gets a worker enters itself in a table. It must not find an entry of a live process with a live
%% claimer.
%%
%% A child that runs the fun of a killed claimer is killed a moment later, and with `free' another process may have the
%% worker by then. The process that finds an entry may itself be such a child, or one whose time is over, which dies
%% when it yields.
-define(HELD, weir_pool_claim_held).

enter(Worker) ->
    Entry = {Worker, self(), weir_pool_claim:caller()},
    case ets:insert_new(?HELD, Entry) of
        true ->
            ok;
        false ->
            case ets:lookup(?HELD, Worker) of
                [{_, Other, Claimer}] ->
                    IsHeld = is_process_alive(Claimer) andalso is_process_alive(Other),
                    erlang:yield(),
                    IsHeld andalso is_process_alive(weir_pool_claim:caller()) andalso
                        ets:insert(?HELD, {violation, {Worker, self(), Other}}),
                    true = ets:insert(?HELD, Entry);
                [] ->
                    enter(Worker)
            end
    end.

leave(Worker) -> true = ets:delete_object(?HELD, {Worker, self(), weir_pool_claim:caller()}).

with_table(Fun) ->
    ?HELD = ets:new(?HELD, [named_table, public, {write_concurrency, true}]),
    _ = Fun(),
    weir_kit:none(claimed_twice, ets:lookup(?HELD, violation)),
    true = ets:delete(?HELD).

%% Many claimers of all kinds are killed, and followed by others.
one_holder_at_a_time(_Config) ->
    start(3, #{queue => fifo}),
    with_table(fun() -> storm(60, 20000, true) end),
    at_rest(),
    ?assertEqual(3, length(lists:usort(workers()))).

storm(Claimers, Claims, Kill) ->
    Done = counters:new(1, []),
    Storm = [spawn_monitor(fun() -> claim_for_ever(Done) end) || _ <- lists:seq(1, Claimers)],
    rage(Storm, Done, Claims, Kill).

rage(Storm, Done, Claims, Kill) ->
    case counters:get(Done, 1) > Claims of
        true ->
            _ = [exit(Pid, kill) || {Pid, _} <- Storm],
            _ = [receive {'DOWN', Monitor, _, _, Reason} -> ?assertEqual(killed, Reason) end || {_, Monitor} <- Storm],
            ok;
        false ->
            {Pid, Monitor} = Victim = lists:nth(rand:uniform(length(Storm)), Storm),
            receive
                {'DOWN', _, process, _, Reason} -> error({claimer_failed, Reason})
            after 1 -> ok
            end,
            case Kill of
                true ->
                    exit(Pid, kill),
                    receive
                        {'DOWN', Monitor, process, Pid, Why} -> ?assertEqual(killed, Why)
                    end,
                    Next = spawn_monitor(fun() -> claim_for_ever(Done) end),
                    rage([Next | lists:delete(Victim, Storm)], Done, Claims, Kill);
                false ->
                    rage(Storm, Done, Claims, Kill)
            end
    end.

claim_for_ever(Done) ->
    Timeout = lists:nth(rand:uniform(5), [0, 1, 2, 20, infinity]),
    case rand:uniform(3) of
        1 ->
            case weir_pool:checkout(?POOL, #{timeout => Timeout}) of
                {ok, Worker, Ticket} ->
                    busy_with(Worker),
                    %% The checkin is `not_held' if the worker was replaced, because an earlier holder was killed.
                    true = lists:member(weir_pool:checkin(?POOL, Ticket), [ok, {error, not_held}]);
                {error, Reason} ->
                    expected(Reason)
            end;
        2 ->
            expected(weir_pool:claim(?POOL, fun busy_with/1, #{timeout => Timeout}));
        3 ->
            expected(weir_pool:claim(?POOL, fun busy_with/1, #{timeout => Timeout, covers => work}))
    end,
    no_messages(),
    counters:add(Done, 1, 1),
    claim_for_ever(Done).

busy_with(Worker) ->
    enter(Worker),
    case rand:uniform(20) of
        1 ->
            receive
            after 1 -> ok
            end;
        N when N < 10 -> erlang:yield();
        _ -> ok
    end,
    leave(Worker).

expected({ok, true}) -> ok;
expected({error, Reason}) -> expected(Reason);
expected(busy) -> ok;
expected(no_worker) -> ok;
expected(timeout) -> ok.

%% poolboy 64 and 70, worker_pool 37 and 42, poolex 210: a time-out that crosses the grant loses the worker. Times are
%% such that about every second one crosses.
timeouts_race_with_grants(_Config) ->
    start(2),
    Claim = fun Claim(0, Counts) -> Counts;
        Claim(N, {Got, Late}) ->
            Hold = fun(_) ->
                receive
                after 1 -> ok
                end
            end,
            case weir_pool:claim(?POOL, Hold, #{timeout => 1 + N rem 3}) of
                {ok, ok} -> Claim(N - 1, {Got + 1, Late});
                {error, timeout} -> Claim(N - 1, {Got, Late + 1})
            end
    end,
    Claimers = [
        weir_kit:start(fun() ->
            Counts = Claim(500, {0, 0}),
            no_messages(),
            Counts
        end)
     || _ <- lists:seq(1, 8)
    ],
    Counts = [result(Claimer) || Claimer <- Claimers],
    Got = lists:sum([G || {G, _} <- Counts]),
    Late = lists:sum([L || {_, L} <- Counts]),
    ct:pal("~b got one, ~b did not", [Got, Late]),
    ?assert(Got > 0 andalso Late > 0),
    at_rest(),
    ?assertEqual(Late, counter(timeouts)),
    ?assertEqual(0, counter(abandoned)).

%% Releases at the very time at which the others give up, again and again.
deadlines_at_the_release(_Config) ->
    start(1),
    lists:foreach(
        fun(N) ->
            {ok, _, Ticket} = weir_pool:checkout(?POOL, #{timeout => infinity}),
            Waiters = [
                weir_kit:start(fun() ->
                    case weir_pool:claim(?POOL, fun(_) -> done end, #{timeout => 2}) of
                        {ok, done} -> ok;
                        {error, timeout} -> ok
                    end,
                    no_messages()
                end)
             || _ <- lists:seq(1, 3)
            ],
            %% The release comes a little before, at, or after the time-out of the waiters.
            receive
            after 1 + N rem 3 -> ok
            end,
            ok = weir_pool:checkin(?POOL, Ticket),
            [result(Waiter) || Waiter <- Waiters]
        end,
        lists:seq(1, 300)
    ),
    at_rest(),
    ?assertEqual(0, counter(abandoned)).

nothing_lost_when_all_are_killed(_Config) ->
    start(4, #{abandoned => free}),
    with_table(fun() ->
        [
            begin
                storm(50, 500, false),
                at_rest()
            end
         || _ <- lists:seq(1, 10)
        ]
    end).
