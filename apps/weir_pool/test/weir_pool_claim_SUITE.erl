%% Claims: what they give, when they end, and those whose time-out covers the work.
-module(weir_pool_claim_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    claims_and_releases/1,
    refuses_when_none_is_free/1,
    options/1,
    nested/1,
    exceptions_pass_through/1,
    first_slot_is_the_last/1,
    tickets/1,
    late_checkins/1,
    checkin_by_others/1,
    work_in_time/1,
    work_fails/1,
    work_too_long/1,
    work_and_traps/1,
    work_of_a_killed_caller/1,
    work_is_killed/1,
    work_in_no_time/1
]).
-export([raise/2]).

-import(weir_pool_claim_lib, [
    start/1, states/0, waiting/0, counter/1, workers/0, eventually/1, at_rest/0, no_messages/0, claimer/1, claimed/1,
    let_go/1, result/1, hold_all/0
]).

-define(POOL, weir_pool_claim_lib).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        claims_and_releases,
        refuses_when_none_is_free,
        options,
        nested,
        exceptions_pass_through,
        first_slot_is_the_last,
        tickets,
        late_checkins,
        checkin_by_others,
        work_in_time,
        work_fails,
        work_too_long,
        work_and_traps,
        work_of_a_killed_caller,
        work_is_killed,
        work_in_no_time
    ].

init_per_suite(Config) -> weir_pool_test_lib:quiet(Config).

end_per_suite(Config) -> weir_pool_test_lib:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_claim_lib:set_up(Config).

end_per_testcase(_Case, _Config) -> weir_pool_claim_lib:tear_down().

%% ---------------------------------------------------------------- claims

claims_and_releases(_Config) ->
    start(2),
    Workers = workers(),
    {ok, {Worker, [free, taken]}} = weir_pool:claim(?POOL, fun(W) -> {W, lists:sort(states())} end),
    ?assert(lists:member(Worker, Workers)),
    ?assertEqual([free, free], states()),
    {error, no_pool} = weir_pool:claim(nosuch, fun(W) -> W end),
    {error, no_pool} = weir_pool:claim(nosuch, fun(W) -> W end, #{timeout => infinity}),
    {error, no_pool} = weir_pool:checkout(nosuch, #{timeout => 10}),
    ?assertEqual([0, 0, 0], [counter(Counter) || Counter <- [waits, busy, timeouts]]),
    no_messages().

refuses_when_none_is_free(_Config) ->
    start(2),
    Holders = hold_all(),
    {error, busy} = weir_pool:claim(?POOL, fun(W) -> W end),
    {error, busy} = weir_pool:checkout(?POOL, #{timeout => 0}),
    ?assertEqual(2, counter(busy)),
    [let_go(Holder) || Holder <- Holders],
    {ok, _} = weir_pool:claim(?POOL, fun(W) -> W end),
    %% None there at all.
    ok = weir_pool:start(empty, #{}),
    {error, no_worker} = weir_pool:claim(empty, fun(W) -> W end),
    {error, timeout} = weir_pool:claim(empty, fun(W) -> W end, #{timeout => 1}),
    ok = weir_pool:stop(empty),
    ok = weir_pool:start(vacant, weir_pool_test_lib:script(2, fun() -> ignore end)),
    {error, no_worker} = weir_pool:checkout(vacant, #{}),
    ok = weir_pool:stop(vacant),
    no_messages().

options(_Config) ->
    start(1),
    Fun = fun(_) -> done end,
    [
        ?assertEqual({Opts, {ok, done}}, {Opts, weir_pool:claim(?POOL, Fun, Opts)})
     || Opts <- [
            #{},
            #{timeout => 0},
            #{timeout => 4294967295},
            #{timeout => infinity},
            #{covers => wait},
            #{covers => wait, timeout => 5},
            #{covers => work, timeout => 4294967295},
            #{covers => work, timeout => infinity}
        ]
    ],
    Wrong = [
        #{timeout => -1},
        #{timeout => 4294967296},
        #{timeout => 1.0},
        #{timeout => soon},
        #{timeout => 1, covers => all},
        #{covers => all},
        #{covers => work, timeout => soon},
        #{timout => 1},
        #{timeout => 1, unknown => 1},
        #{timeout => 1, covers => wait, unknown => 1},
        [{timeout, 1}],
        infinity
    ],
    [?assertError(badarg, weir_pool:claim(?POOL, Fun, Opts)) || Opts <- Wrong],
    Work = [#{covers => work, timeout => 5}, #{covers => work}],
    [?assertError(badarg, weir_pool:checkout(?POOL, Opts)) || Opts <- Work ++ Wrong],
    ?assertError(badarg, weir_pool:claim(?POOL, fun() -> done end, #{})),
    ?assertError(badarg, weir_pool:claim(?POOL, done, #{})),
    ?assertEqual([free], states()).

nested(_Config) ->
    start(3),
    Claim = fun(Fun) -> weir_pool:claim(?POOL, Fun) end,
    {ok, {ok, {ok, {Workers, States, Fourth}}}} = Claim(fun(A) ->
        Claim(fun(B) -> Claim(fun(C) -> {[A, B, C], states(), Claim(fun(D) -> D end)} end) end)
    end),
    ?assertEqual(3, length(lists:usort(Workers))),
    ?assertEqual([taken, taken, taken], States),
    ?assertEqual({error, busy}, Fourth),
    ?assertEqual([free, free, free], states()),
    %% One that waits, inside of another; and in another pool.
    ok = weir_pool:start(other, weir_pool_test_lib:opts(1)),
    {ok, {ok, {error, timeout}}} = weir_pool:claim(other, fun(_) ->
        Holders = [claimer(#{}), claimer(#{}), claimer(#{})],
        [claimed(Holder) || Holder <- Holders],
        [let_go(Holder) || Holder <- tl(Holders)],
        Claim(fun(_) ->
            {ok, Result} = Claim(fun(_) -> weir_pool:claim(?POOL, fun(_) -> none end, #{timeout => 2}) end),
            let_go(hd(Holders)),
            Result
        end)
    end),
    ok = weir_pool:stop(other),
    at_rest().

exceptions_pass_through(_Config) ->
    start(1),
    [Worker] = workers(),
    [
        try weir_pool:claim(?POOL, fun(_) -> ?MODULE:raise(Class, Reason) end, Opts) of
            Result -> error({unexpected, Result})
        catch
            C:R:Stack ->
                ?assertEqual({Class, Reason}, {C, R}),
                ?assertMatch([{?MODULE, raise, 2, _} | _], Stack),
                ?assertEqual([free], states())
        end
     || {Class, Reason} <- [
            {error, wrong},
            {error, {timeout, no}},
            {exit, timeout},
            {exit, {shutdown, wrong}},
            {throw, {timeout, no}}
        ],
        Opts <- [#{}, #{timeout => infinity}]
    ],
    ?assertEqual([Worker], workers()),
    no_messages().

raise(Class, Reason) -> erlang:raise(Class, Reason, [{?MODULE, raise, 2, []}]).

first_slot_is_the_last(_Config) ->
    start(4),
    Claim = fun() -> {ok, Worker} = weir_pool:claim(?POOL, fun(W) -> W end), Worker end,
    Worker = Claim(),
    ?assertEqual([Worker], lists:usort([Claim() || _ <- lists:seq(1, 100)])),
    %% Not when it is somebody else's.
    {ok, Taken, Ticket} = weir_pool:checkout(?POOL, #{}),
    Other = Claim(),
    ?assertEqual(Taken, Worker),
    ?assertNotEqual(Worker, Other),
    ok = weir_pool:checkin(?POOL, Ticket),
    ?assertEqual([Other], lists:usort([Claim() || _ <- lists:seq(1, 100)])),
    %% A smaller pool, or one that became smaller.
    ok = weir_pool:resize(?POOL, 1),
    eventually(fun() -> {ok, lists:member(Claim(), workers())} =:= {ok, true} end).

tickets(_Config) ->
    start(2),
    {ok, A, TicketA} = weir_pool:checkout(?POOL, #{}),
    {ok, B, TicketB} = weir_pool:checkout(?POOL, #{timeout => infinity}),
    ?assertEqual(lists:sort(workers()), lists:sort([A, B])),
    ?assertEqual([1, 2], lists:sort([weir_pool:slot(TicketA), weir_pool:slot(TicketB)])),
    {error, busy} = weir_pool:checkout(?POOL, #{}),
    {error, timeout} = weir_pool:checkout(?POOL, #{timeout => 1}),
    ok = weir_pool:checkin(?POOL, TicketA),
    {error, not_held} = weir_pool:checkin(?POOL, TicketA),
    {error, not_held} = weir_pool:checkin(other, TicketB),
    {ok, A, TicketA2} = weir_pool:checkout(?POOL, #{}),
    {error, not_held} = weir_pool:checkin(?POOL, TicketA),
    {error, busy} = weir_pool:checkout(?POOL, #{}),
    ok = weir_pool:checkin(?POOL, TicketA2),
    ok = weir_pool:checkin(?POOL, TicketB),
    at_rest(),
    no_messages().

%% After the worker was replaced, and after the pool was.
late_checkins(_Config) ->
    start(1),
    {ok, Worker, Ticket} = weir_pool:checkout(?POOL, #{}),
    weir_pool_test_lib:kill(Worker),
    eventually(fun() -> weir_pool_test_lib:settled(?POOL, 1) andalso states() =:= [free] end),
    {error, not_held} = weir_pool:checkin(?POOL, Ticket),
    {ok, _, Ticket2} = weir_pool:checkout(?POOL, #{}),
    {error, not_held} = weir_pool:checkin(?POOL, Ticket),
    ?assertEqual([taken], states()),
    ok = weir_pool:stop(?POOL),
    {error, not_held} = weir_pool:checkin(?POOL, Ticket2),
    start(1),
    {ok, _, Ticket3} = weir_pool:checkout(?POOL, #{}),
    {error, not_held} = weir_pool:checkin(?POOL, Ticket2),
    ?assertEqual([taken], states()),
    %% Killed: nobody had the time to write into its words.
    exit(weir_pool_test_lib:sup(?POOL), kill),
    eventually(fun() -> weir_pool_registry:lookup(?POOL) =:= {error, no_pool} end),
    {error, not_held} = weir_pool:checkin(?POOL, Ticket3),
    no_messages().

checkin_by_others(_Config) ->
    start(1),
    {ok, _, Ticket} = weir_pool:checkout(?POOL, #{}),
    {Pid, Monitor} = spawn_monitor(fun() -> exit({result, weir_pool:checkin(?POOL, Ticket)}) end),
    ?assertEqual(ok, result(#{pid => Pid, monitor => Monitor})),
    ?assertEqual([free], states()).

%% ---------------------------------------------------------------- the time-out covers the work

-define(WORK(Timeout), #{timeout => Timeout, covers => work}).

work_in_time(_Config) ->
    start(1),
    Self = self(),
    {ok, Worker} = weir_pool:claim(?POOL, fun(W) -> {true, W} = {self() =/= Self, W}, W end, ?WORK(10000)),
    ?assertEqual([Worker], workers()),
    {ok, nil} = weir_pool:claim(?POOL, fun(_) -> nil end, ?WORK(infinity)),
    {error, no_pool} = weir_pool:claim(nosuch, fun(_) -> nil end, ?WORK(10)),
    %% Of those that wait, the wait is part of it.
    [Holder] = hold_all(),
    {error, timeout} = weir_pool:claim(?POOL, fun(_) -> nil end, ?WORK(20)),
    {Pid, Monitor} = spawn_monitor(fun() ->
        exit({result, weir_pool:claim(?POOL, fun(W) -> W end, ?WORK(infinity))})
    end),
    eventually(fun() -> waiting() > 0 end),
    let_go(Holder),
    ?assertEqual({ok, Worker}, result(#{pid => Pid, monitor => Monitor})),
    ?assertEqual(1, counter(timeouts)),
    at_rest(),
    no_messages().

work_fails(_Config) ->
    start(1),
    [
        begin
            process_flag(trap_exit, Trap),
            try weir_pool:claim(?POOL, fun(_) -> ?MODULE:raise(Class, Reason) end, ?WORK(10000)) of
                Result -> error({unexpected, Result})
            catch
                C:R:Stack ->
                    ?assertEqual({Class, Reason}, {C, R}),
                    ?assertMatch([{?MODULE, raise, 2, _} | _], Stack)
            end,
            at_rest(),
            no_messages()
        end
     || Trap <- [false, true],
        {Class, Reason} <- [
            {error, wrong}, {exit, normal}, {exit, wrong}, {throw, wrong}, {exit, {timeout, wrong}}
        ]
    ],
    ?assertEqual(2, counter(abandoned)),
    process_flag(trap_exit, false).

work_too_long(_Config) ->
    start(1),
    [Worker] = workers(),
    Test = self(),
    ForEver = fun(W) ->
        Test ! {working, self(), W},
        receive
            never -> ok
        end
    end,
    {error, timeout} = weir_pool:claim(?POOL, ForEver, ?WORK(20)),
    receive
        {working, Child, Worker} -> ?assertNot(is_process_alive(Child))
    end,
    ?assertEqual(1, counter(timeouts)),
    %% It is likely to be busy, so it is replaced.
    {ok, Next} = weir_pool:claim(?POOL, fun(W) -> W end, #{timeout => infinity}),
    ?assertNotEqual(Worker, Next),
    ?assertEqual(1, counter(abandoned)),
    at_rest(),
    no_messages().

%% Callers that trap exits find none of the helper, in whatever way it ended.
work_and_traps(_Config) ->
    start(2),
    process_flag(trap_exit, true),
    Claims = [
        fun(_) -> done end,
        fun(_) ->
            receive
                never -> ok
            end
        end,
        fun(_) ->
            receive
            after 1 -> done
            end
        end,
        fun(_) ->
            process_flag(trap_exit, true),
            receive
                never -> ok
            end
        end
    ],
    [
        true = lists:member(weir_pool:claim(?POOL, Fun, ?WORK(Timeout)), [{ok, done}, {error, timeout}])
     || Fun <- Claims, Timeout <- [1, 2], _ <- lists:seq(1, 50)
    ],
    no_messages(),
    %% An exit signal of somebody else's is not swallowed.
    exit(self(), wanted),
    {ok, done} = weir_pool:claim(?POOL, fun(_) -> done end, ?WORK(10000)),
    receive
        {'EXIT', _, wanted} -> ok
    end,
    process_flag(trap_exit, false),
    at_rest(),
    no_messages().

work_of_a_killed_caller(_Config) ->
    start(1),
    Test = self(),
    {Caller, Monitor} = spawn_monitor(fun() ->
        weir_pool:claim(
            ?POOL,
            fun(_) ->
                Test ! {working, self()},
                receive
                    never -> ok
                end
            end,
            ?WORK(infinity)
        )
    end),
    Child =
        receive
            {working, Pid} -> Pid
        end,
    ChildMonitor = monitor(process, Child),
    exit(Caller, kill),
    receive
        {'DOWN', Monitor, process, Caller, killed} -> ok
    end,
    receive
        {'DOWN', ChildMonitor, process, Child, killed} -> ok
    end,
    at_rest(),
    ?assertEqual(1, counter(abandoned)).

%% As if the caller had run the fun itself.
work_is_killed(_Config) ->
    start(1),
    Suicide = fun(_) ->
        exit(self(), kill),
        receive
            never -> ok
        end
    end,
    process_flag(trap_exit, true),
    ?assertExit(killed, weir_pool:claim(?POOL, Suicide, ?WORK(10000))),
    process_flag(trap_exit, false),
    no_messages(),
    at_rest(),
    {Caller, Monitor} = spawn_monitor(fun() -> weir_pool:claim(?POOL, Suicide, ?WORK(10000)) end),
    receive
        {'DOWN', Monitor, process, Caller, killed} -> ok
    end,
    at_rest(),
    ?assertEqual(2, counter(abandoned)).

work_in_no_time(_Config) ->
    start(1),
    {error, timeout} = weir_pool:claim(?POOL, fun(_) -> error(unexpected) end, ?WORK(0)),
    {error, timeout} = weir_pool:claim(?POOL, fun(_) -> error(unexpected) end, #{covers => work}),
    ?assertEqual(2, counter(timeouts)),
    ?assertEqual([free], states()).
