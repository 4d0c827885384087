%% Checks info/1 with pools whose terms, words and counters are set by hand.
-module(weir_pool_info_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").
-include("weir_pool_test_signals.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, kill/1, result/1]).
-import(weir_pool_test_lib, [opts/1, workers/1, script/2, kill_manager/1, manager/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

a_fresh_pool(_Config) ->
    with_pool(#{}, [self(), self(), self()], fun(_Pool) -> ?assertEqual(fresh(), info()) end).

slots_by_what_is_the_case(_Config) ->
    Slots = [self(), self(), vacant, self(), self(), self(), vacant, self()],
    with_pool(#{}, Slots, fun(Pool) ->
        Id = weir_pool_holder:id(self()),
        {ok, _, _} = weir_pool_word:claim(Pool, 1, Id),
        {ok, Word, _} = weir_pool_word:claim(Pool, 2, Id),
        {ok, _, _} = weir_pool_word:claim(Pool, 5, Id),
        ok = weir_pool_word:reserve(Pool, 4),
        ?assertMatch(#{live := 6, vacant := 2, claimed := 3, reserved := 1}, info()),
        marked = weir_pool_word:mark(Pool, 2),
        reserved = weir_pool_word:mark(Pool, 8),
        ?assertMatch(#{live := 6, vacant := 2, claimed := 3, reserved := 2}, info()),
        reserved = weir_pool_word:release(Pool, 2, Word),
        ?assertMatch(#{live := 6, vacant := 2, claimed := 2, reserved := 3}, info()),
        ok = weir_pool_word:vacate(Pool, 1),
        ok = weir_pool_terms:vacate(Pool, 1),
        ?assertMatch(#{live := 5, vacant := 3, claimed := 1, reserved := 3}, info())
    end).

overflow_is_live_but_never_vacant(_Config) ->
    Opts = #{overflow => #{max => 3, linger => 0}, worker => {m, f, []}},
    with_pool(Opts, [self(), vacant], fun(Pool) ->
        ?assertMatch(#{size := 2, limit := 5, live := 1, vacant := 1}, info()),
        ok = weir_pool_terms:fill(Pool, 4, self()),
        ok = weir_pool_word:occupy(Pool, 4),
        {ok, _, _} = weir_pool_word:claim(Pool, 4, weir_pool_holder:id(self())),
        ?assertMatch(#{size := 2, limit := 5, live := 2, vacant := 1, claimed := 1}, info())
    end).

%% GATE_OLDEST is a moment, which may well be negative; 0 is none.
the_signals(_Config) ->
    with_pool(#{}, [self(), self(), self()], fun(#pool{signals = Signals}) ->
        Before = erlang:monotonic_time(millisecond),
        ok = atomics:put(Signals, ?SIGNAL_WAITING, 17),
        ok = atomics:put(Signals, ?SIGNAL_OLDEST, Before - 5000),
        ok = atomics:put(Signals, ?SIGNAL_LONGEST, 1234),
        #{oldest_wait_ms := Oldest} = Info = info(),
        Passed = erlang:monotonic_time(millisecond) - Before,
        ?assert(Oldest >= 5000 andalso Oldest =< 5000 + Passed, {Oldest, Passed}),
        ?assertEqual((fresh())#{waiting := 17, oldest_wait_ms := Oldest, longest_wait_ms := 1234}, Info),
        %% From a moment that this process's clock has not seen yet.
        ok = atomics:put(Signals, ?SIGNAL_OLDEST, erlang:monotonic_time(millisecond) + 100_000),
        ?assertMatch(#{oldest_wait_ms := 0}, info()),
        ok = atomics:put(Signals, ?SIGNAL_OLDEST, 0),
        ?assertMatch(#{oldest_wait_ms := 0, waiting := 17}, info())
    end).

every_counter_has_its_name(_Config) ->
    with_pool(#{}, [self(), self(), self()], fun(#pool{counters = Counters}) ->
        Indexes = [
            ?RESTARTS, ?START_FAILURES, ?SKIPS, ?BUSY, ?TIMEOUTS, ?OVERLOADS, ?WAITS, ?ABANDONED, ?CHECK_FAILURES,
            ?CLAIMS, ?CLAIMED_MS
        ],
        [counters:add(Counters, Index, 10 * Index) || Index <- Indexes],
        ?assertEqual(
            (fresh())#{
                restarts := 10, start_failures := 20, skips := 30, busy := 40, timeouts := 50, overloads := 60,
                waits := 70, abandoned := 80, check_failures := 90, claims := 100, claimed_ms := 110
            },
            info()
        )
    end).

%% More skips than draws: read between the two. Picks by key draw nothing.
picks_are_draws_without_skips(_Config) ->
    with_pool(#{}, [self(), self(), self()], fun(#pool{counters = Counters}) ->
        [{ok, _} = weir_pool:pick(f) || _ <- lists:seq(1, 10)],
        [{ok, _} = weir_pool:pick(f, Key) || Key <- lists:seq(1, 10)],
        ?assertMatch(#{picks := 10, skips := 0}, info()),
        counters:add(Counters, ?SKIPS, 4),
        ?assertMatch(#{picks := 6, skips := 4}, info()),
        counters:add(Counters, ?SKIPS, 7),
        ?assertMatch(#{picks := 0, skips := 11}, info())
    end).

%% A slot whose word is too low counts as 0, and so do strategies that do not count.
calls_are_those_that_count(_Config) ->
    [
        with_pool(#{strategy => Strategy}, [self(), self(), self()], fun(Pool) ->
            [weir_pool_test_fixture:put_load(Pool, Slot, Load) || {Slot, Load} <- [{1, 4}, {2, -3}, {3, 5}]],
            ?assertMatch(#{calls := Calls, strategy := Strategy}, info())
        end)
     || {Strategy, Calls} <- [{least_loaded, 9}, {weir_pool_test_strategy, 9}, {round_robin, 0}, {random, 0}]
    ].

workers_up_to_the_limit(_Config) ->
    [A, B, C] = Pids = [spawn_link(fun() -> receive stop -> ok end end) || _ <- "abc"],
    Opts = #{overflow => #{max => 2, linger => 0}, worker => {m, f, []}},
    with_pool(Opts, [vacant, A, vacant, B, vacant], fun(Pool) ->
        ?assertEqual({ok, [{2, A}, {4, B}]}, weir_pool:workers(f)),
        ok = weir_pool_terms:fill(Pool, 7, C),
        ?assertEqual({ok, [{2, A}, {4, B}, {7, C}]}, weir_pool:workers(f)),
        %% Picks and broadcasts leave that one out.
        ?assertEqual({ok, 2}, weir_pool:broadcast(f, message)),
        ?assertEqual({ok, [A, B]}, weir_pool:map(f, fun(Pid) -> Pid end)),
        %% Pids are not ordered by age.
        ?assertEqual(lists:sort([A, B]), lists:usort([Pid || _ <- lists:seq(1, 50), {ok, Pid} <- [weir_pool:pick(f)]]))
    end),
    [Pid ! stop || Pid <- Pids].

which_pools_in_order(_Config) ->
    Names = [b, a, "c", {d, 1}, 7],
    [ok = weir_pool:start(Name, #{worker => none, size => 3}) || Name <- Names],
    [
        begin
            {ok, Slot} = weir_pool:add_worker(Name, {me, Slot}, Slot),
            {ok, Slot} = weir_pool:connect(Name, {me, Slot})
        end
     || {Name, Slot} <- [{a, 3}, {a, 1}, {7, 2}, {{d, 1}, 2}]
    ],
    ?assertEqual([{7, 2}, {a, 1}, {a, 3}, {{d, 1}, 2}], weir_pool:which_pools(self())),
    ok = weir_pool:start(p, opts(3)),
    [?assertEqual([{p, Slot}], weir_pool:which_pools(Pid)) || {Slot, Pid} <- element(2, weir_pool:workers(p))],
    ?assertEqual([], weir_pool:which_pools(whereis(init))),
    ok = weir_pool:disconnect(a, {me, 1}),
    ?assertEqual([{7, 2}, {a, 3}, {{d, 1}, 2}], weir_pool:which_pools(self())),
    [ok = weir_pool:stop(Name) || Name <- [p | Names]],
    ?assertEqual([], weir_pool:which_pools(self())).

a_real_pool(_Config) ->
    Name = {weir, <<"pool">>},
    ok = weir_pool:start(Name, (opts(3))#{strategy => random}),
    {ok, Info} = weir_pool:info(Name),
    ?assertEqual((fresh())#{name := Name, strategy := random}, Info),
    {ok, [{1, A}, {2, B}, {3, C}]} = weir_pool:workers(Name),
    ?assertEqual([A, B, C], workers(Name)),
    {ok, _, Ticket} = weir_pool:checkout(Name, #{}),
    ?assertMatch({ok, #{claimed := 1, live := 3}}, weir_pool:info(Name)),
    ok = weir_pool:checkin(Name, Ticket),
    ?assertMatch({ok, #{claimed := 0, live := 3}}, weir_pool:info(Name)),
    ok = weir_pool:stop(Name).

%% More than the words of the slots can count.
claims_at_once_and_after_a_wait(Config) ->
    ok = weir_pool:start(f, (opts(3))#{max_queue => 1}),
    [{ok, N} = weir_pool:claim(f, fun(_) -> N end) || N <- lists:seq(1, 1000)],
    ?assertMatch(#{claims := 1000, waits := 0}, info()),
    Tickets = [element(3, weir_pool:checkout(f, 0)) || _ <- [1, 2, 3]],
    {error, busy} = weir_pool:checkout(f, 0),
    {error, timeout} = weir_pool:checkout(f, 1),
    ?assertMatch(#{claims := 1003, waits := 0, busy := 1, timeouts := 1}, info()),
    %% A claim that has timed out may be counted a moment longer.
    until(fun() -> maps:get(waiting, info()) =:= 0 end),
    Waiter = weir_kit:start(fun() -> weir_pool:claim(f, fun(_) -> done end, infinity) end),
    until(fun() -> maps:get(waiting, info()) =:= 1 end),
    {error, {overload, _}} = weir_pool:checkout(f, 1000),
    [ok = weir_pool:checkin(f, Ticket) || Ticket <- Tickets],
    ?assertEqual({ok, done}, result(Waiter)),
    #{claims := Claims} = Info = info(),
    ?assertMatch(#{waits := 1, overloads := 1}, Info),
    case Claims of
        1004 ->
            claims_that_are_not_ended_as_they_should_be(),
            ok = weir_pool:stop(f);
        _ when Claims > 1004 ->
            %% The waiter was not scheduled for long, so its first grant was counted too. Then the test begins again.
            ok = weir_pool:stop(f),
            claims_at_once_and_after_a_wait(Config)
    end.

claims_that_are_not_ended_as_they_should_be() ->
    until(fun() -> weir_pool_test_lib:is_nobody_waiting(f) end),
    {ok, _, Ticket} = weir_pool:checkout(f, 0),
    ok = weir_pool:checkin(f, Ticket, fail),
    ?assertExit(mine, weir_pool:claim(f, fun(_) -> exit(mine) end)),
    ?assertMatch(#{claims := 1006}, info()),
    kill_manager(f),
    ?assertMatch(#{claims := 0}, info()).

%% Claims stay counted, whatever becomes of the slot and its worker.
claims_of_slots_that_went(_Config) ->
    ok = weir_pool:start(f, opts(10)),
    All = fun(Size) ->
        Tickets = [element(3, weir_pool:checkout(f, 0)) || _ <- lists:seq(1, Size)],
        [ok = weir_pool:checkin(f, Ticket) || Ticket <- Tickets]
    end,
    [All(10) || _ <- lists:seq(1, 7)],
    ?assertMatch(#{claims := 70}, info()),
    [kill(Worker) || Worker <- workers(f)],
    until(fun() -> weir_pool_test_lib:settled(f, 10) end),
    ?assertMatch(#{claims := 70}, info()),
    ok = weir_pool:replace(f, 3),
    ?assertMatch(#{claims := 70}, info()),
    ok = weir_pool:resize(f, 2),
    ?assertMatch(#{claims := 70}, info()),
    [All(2) || _ <- lists:seq(1, 70)],
    ?assertMatch(#{claims := 210}, info()),
    ok = weir_pool:resize(f, 40),
    ?assertMatch(#{claims := 210}, info()),
    All(40),
    ?assertMatch(#{claims := 250}, info()),
    ok = weir_pool:stop(f).

%% Sampled: never more than there was.
claimed_time(_Config) ->
    ok = weir_pool:start(f, opts(3)),
    Begin = erlang:monotonic_time(millisecond),
    Tickets = [element(3, weir_pool:checkout(f, 0)) || _ <- [1, 2]],
    until(fun() -> maps:get(claimed_ms, info()) >= 2000 end),
    #{claimed_ms := Claimed} = info(),
    ?assert(Claimed =< 2 * (erlang:monotonic_time(millisecond) - Begin)),
    [ok = weir_pool:checkin(f, Ticket) || Ticket <- Tickets],
    %% From the next look on nothing is added.
    tick(),
    #{claimed_ms := All} = info(),
    ?assert(All =< 2 * (erlang:monotonic_time(millisecond) - Begin)),
    [begin receive after 5 -> ok end, tick() end || _ <- lists:seq(1, 10)],
    ?assertMatch(#{claimed_ms := All}, info()),
    ok = weir_pool:stop(f).

tick() ->
    manager(f) ! tick,
    _ = sys:get_state(manager(f)),
    ok.

%% In which slot, and why; in pools of any kind.
the_last_start_that_failed(_Config) ->
    Starts = counters:new(1, []),
    Script = fun() ->
        counters:add(Starts, 1, 1),
        case counters:get(Starts, 1) of
            N when N =< 2 -> start;
            3 -> {error, first};
            4 -> error(second);
            5 -> nonsense;
            7 -> {error, in_a_replacement};
            _ -> start
        end
    end,
    ok = weir_pool:start(f, script(2, Script)),
    ?assertMatch(#{start_error := none, start_failures := 0}, info()),
    kill(lists:last(workers(f))),
    until(fun() -> weir_pool_test_lib:settled(f, 2) end),
    MFA = {weir_pool_test_worker, start_with, nonsense},
    ?assertEqual({2, {bad_return, MFA}}, maps:get(start_error, info())),
    ?assertMatch(#{start_failures := 3, restarts := 1}, info()),
    ?assertEqual({error, {start_failed, 1, in_a_replacement}}, weir_pool:replace(f, 1)),
    ?assertMatch(#{start_error := {1, in_a_replacement}, start_failures := 4}, info()),
    kill_manager(f),
    ?assertMatch(#{start_error := none, start_failures := 0}, info()),
    ok = weir_pool:stop(f),
    ok = weir_pool:start(f, (script(3, fun() -> {error, for_ever} end))#{start => async, backoff => {1, 5}}),
    until(fun() -> maps:get(start_failures, info()) > 10 end),
    ?assertMatch(#{start_error := {Slot, for_ever}, live := 0} when Slot =< 3, info()),
    ok = weir_pool:stop(f).

no_pool(_Config) ->
    ?assertEqual({error, no_pool}, weir_pool:info(f)),
    ?assertEqual({error, no_pool}, weir_pool:workers(f)),
    ?assertEqual([], weir_pool:which_pools(self())),
    ok = application:stop(weir_pool),
    ?assertEqual({error, no_pool}, weir_pool:info(f)),
    ?assertEqual({error, no_pool}, weir_pool:workers(f)),
    ?assertEqual([], weir_pool:which_pools(self())).

fresh() ->
    #{
        name => f, size => 3, limit => 3, strategy => round_robin,
        live => 3, vacant => 0, claimed => 0, reserved => 0, calls => 0,
        waiting => 0, oldest_wait_ms => 0, longest_wait_ms => 0, picks => 0, skips => 0, waits => 0, busy => 0,
        timeouts => 0, overloads => 0, abandoned => 0, check_failures => 0, restarts => 0, start_failures => 0,
        start_error => none, claims => 0, claimed_ms => 0
    }.

info() ->
    {ok, Info} = weir_pool:info(f),
    Info.

with_pool(Opts, Slots, Fun) ->
    Pool = weir_pool_test_fixture:open(f, Opts, Slots),
    try
        Fun(Pool)
    after
        weir_pool_test_fixture:close(Pool)
    end.
