%% Claims that wait: the order of service, refusals, and time-outs that cross the grant. Random changes of the pool
%% meanwhile are in weir_pool_claims_prop_SUITE.
-module(weir_pool_wait_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").
-include("weir_pool_test_signals.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, result/1, wait_ms/0]).
-import(weir_pool_test_lib, [each/2]).
-import(weir_pool_claim_lib, [
    start/1, start/2, pool/0, states/0, signals/1, counter/1, queue/0, workers/0, waiting/0, await_waiting/1,
    at_rest/0, no_messages/0, claimer/1, waiter/0, claimed/1, has_not_claimed/1, let_go/1, kill/1, hold_all/0,
    wait_in_order/1
]).

-define(POOL, weir_pool_claim_lib).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

%% ---------------------------------------------------------------- waiting

waiters_are_served_first_in_first_out(_Config) -> ten_are_served(#{}, fun(Waiters) -> Waiters end).

waiters_are_served_last_in_first_out(_Config) -> ten_are_served(#{queue => lifo}, fun lists:reverse/1).

%% Repeats the trial if the machine did not let all waiters run in time.
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

a_full_queue_refuses_waiters(_Config) ->
    each([0, 3], fun(Max) ->
        start(1, #{max_queue => Max}),
        {ok, done} = weir_pool:claim(?POOL, fun(_) -> done end, #{timeout => infinity}),
        [Holder] = hold_all(),
        Waiters = wait_in_order(Max),
        %% The reported wait is no longer than the call.
        Began = now_ms(),
        Refused = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => infinity}),
        Took = now_ms() - Began + 1,
        ?assertMatch(
            {error, {overload, #{pool := ?POOL, reason := queue_full, waiting := Max, waited_ms := Ms}}} when
                Ms >= 0 andalso Ms =< Took,
            Refused
        ),
        %% A claim that does not wait is still `busy'.
        {error, busy} = weir_pool:claim(?POOL, fun(W) -> W end),
        ?assertEqual(1, counter(overloads)),
        Last = lists:nthtail(max(0, Max - 1), Waiters),
        [ok = kill(Waiter) || Waiter <- Last],
        Others = Waiters -- Last,
        await_waiting(length(Others)),
        _ = served_in_order([Holder | Others] ++ wait_in_order(length(Last))),
        at_rest()
    end).

now_ms() -> erlang:monotonic_time(millisecond).

%% Ten claimers ask before the queue has counted the first. Three of them wait.
max_queue_holds_if_many_ask_at_once(_Config) ->
    start(1, #{max_queue => 3}),
    [Holder] = hold_all(),
    Test = self(),
    with_suspended_queue(fun(_Signals) ->
        Claimers = [waiter() || _ <- lists:seq(1, 10)],
        until(fun() -> weir_kit:queue_len(queue()) >= 10 end),
        Test ! {claimers, Claimers}
    end),
    Claimers = receive {claimers, All} -> All end,
    Refused = [refused() || _ <- lists:seq(1, 7)],
    [?assertMatch({error, {overload, #{pool := ?POOL, reason := queue_full, waiting := 3}}}, R) || {_, R} <- Refused],
    ?assertEqual(3, waiting()),
    Waiting = [Claimer || {Pid, _} = Claimer <- Claimers, not lists:keymember(Pid, 1, Refused)],
    let_go(Holder),
    [begin Pid = next_claimer(), let_go(lists:keyfind(Pid, 1, Waiting)) end || _ <- Waiting],
    ?assertEqual(7, counter(overloads)),
    at_rest().

refused() ->
    receive {'DOWN', _, process, Pid, {returned, Result}} -> {Pid, Result} end.

next_claimer() ->
    receive {claimed, Pid, _} -> Pid end.

%% The queue is suspended, so that it is seen what newcomers may do.
newcomers_may_pass_a_waiter_for_a_while(_Config) ->
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

newcomers_wait_behind_a_starving_waiter(_Config) ->
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
        receive {newcomer, Newcomer} -> Newcomer end,
    ?assert(has_not_claimed(Late)),
    let_go(Waiter),
    _ = claimed(Late),
    let_go(Late),
    at_rest().

with_suspended_queue(Fun) ->
    #pool{signals = Signals} = pool(),
    Queue = queue(),
    ok = sys:suspend(Queue, wait_ms()),
    _ = Fun(Signals),
    ok = sys:resume(Queue, wait_ms()).

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
codel_drops_waiters(_Config) ->
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
    receive after 3 -> ok end,
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
codel_forgets_waiters_that_have_left(_Config) ->
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

a_waiter_gets_the_first_worker_of_a_pool(_Config) ->
    ok = weir_pool:start(?POOL, #{worker => none}),
    {ok, 1} = weir_pool:add_worker(?POOL, one),
    Waiter = waiter(),
    await_waiting(1),
    {ok, 1} = weir_pool:connect(?POOL, one),
    ?assertEqual(self(), claimed(Waiter)),
    let_go(Waiter),
    ok = weir_pool:disconnect(?POOL, one).

%% ---------------------------------------------------------------- races

%% poolboy 64 and 70, worker_pool 37 and 42, poolex 210: a time-out that crosses the grant loses the worker. Times are
%% such that about every second one crosses.
no_worker_is_lost_where_time_outs_cross_grants(_Config) ->
    start(2),
    Claim = fun Claim(0, Counts) -> Counts;
        Claim(N, {Got, Late}) ->
            Hold = fun(_) ->
                receive after 1 -> ok end
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
