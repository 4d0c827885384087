%% What is shown of a pool, against pools whose terms, words and counters were set by hand.
-module(weir_pool_info_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pool.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    a_fresh_pool/1,
    slots_by_what_is_the_case/1,
    overflow_is_live_but_never_vacant/1,
    the_gate/1,
    every_counter_has_its_name/1,
    picks_are_draws_without_skips/1,
    calls_are_those_that_count/1,
    workers_up_to_the_limit/1,
    which_pools_in_order/1,
    a_real_pool/1,
    claims_are_counted/1,
    the_last_start_error/1,
    no_pool/1
]).

-import(weir_pool_test_lib, [opts/1, workers/1]).

suite() -> [{timetrap, {seconds, 60}}].

all() ->
    [
        a_fresh_pool,
        slots_by_what_is_the_case,
        overflow_is_live_but_never_vacant,
        the_gate,
        every_counter_has_its_name,
        picks_are_draws_without_skips,
        calls_are_those_that_count,
        workers_up_to_the_limit,
        which_pools_in_order,
        a_real_pool,
        claims_are_counted,
        the_last_start_error,
        no_pool
    ].

init_per_suite(Config) -> weir_pool_test_lib:quiet(Config).

end_per_suite(Config) -> weir_pool_test_lib:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, _Config) -> weir_pool_test_lib:teardown().

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
the_gate(_Config) ->
    with_pool(#{}, [self(), self(), self()], fun(#pool{gate = Gate}) ->
        Before = erlang:monotonic_time(millisecond),
        ok = atomics:put(Gate, ?GATE_WAITING, 17),
        ok = atomics:put(Gate, ?GATE_OLDEST, Before - 5000),
        ok = atomics:put(Gate, ?GATE_LONGEST, 1234),
        #{oldest_wait_ms := Oldest} = Info = info(),
        Passed = erlang:monotonic_time(millisecond) - Before,
        ?assert(Oldest >= 5000 andalso Oldest =< 5000 + Passed, {Oldest, Passed}),
        ?assertEqual((fresh())#{waiting := 17, oldest_wait_ms := Oldest, longest_wait_ms := 1234}, Info),
        %% From a moment that this process's clock has not seen yet.
        ok = atomics:put(Gate, ?GATE_OLDEST, erlang:monotonic_time(millisecond) + 100_000),
        ?assertMatch(#{oldest_wait_ms := 0}, info()),
        ok = atomics:put(Gate, ?GATE_OLDEST, 0),
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

%% Of a slot whose word is too low, none; of strategies that do not count, none.
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
        ?assertEqual([A, B], lists:usort([Pid || _ <- lists:seq(1, 50), {ok, Pid} <- [weir_pool:pick(f)]]))
    end),
    [Pid ! stop || Pid <- Pids].

which_pools_in_order(_Config) ->
    Names = [b, a, "c", {d, 1}, 7],
    [ok = weir_pool:start(Name, #{size => 3, worker => none}) || Name <- Names],
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

%% In the slots' words, and in the counter.
claims_are_counted(_Config) ->
    ok = weir_pool:start(f, opts(3)),
    [{ok, ok} = weir_pool:claim(f, fun(_) -> ok end) || _ <- lists:seq(1, 1000)],
    ?assertMatch(#{claims := 1000}, info()),
    {ok, _, _} = weir_pool:checkout(f, 0),
    ?assertMatch(#{claims := 1001}, info()),
    %% It is claimed for some time, which the next ticks see.
    weir_pool_test_lib:eventually(fun() -> maps:get(claimed_ms, info()) > 0 end),
    ok = weir_pool:stop(f).

the_last_start_error(_Config) ->
    Script = fun
        (2) -> {error, refused};
        (_) -> start
    end,
    Worker = {weir_pool_life_worker, start_script, [Script]},
    ok = weir_pool:start(f, #{size => 2, worker => Worker, pass_slot => true, start => async}),
    weir_pool_test_lib:eventually(fun() -> maps:get(start_error, info()) =:= {2, refused} end),
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
        claims => 0, claimed_ms => 0, start_error => none
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
