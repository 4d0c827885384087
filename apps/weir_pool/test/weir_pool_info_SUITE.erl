%% weir_pool:info/1, workers/1 and which_pools/1: the counts of claims, their times, and the last start that failed.
-module(weir_pool_info_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, kill/1, result/1, wait_ms/0]).
-import(weir_pool_test_lib, [opts/1, workers/1, script/2, kill_manager/1, manager/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

which_pools_names_the_pools_and_slots_of_a_process(_Config) ->
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

info_has_all_counts_of_a_fresh_pool(_Config) ->
    Name = {weir, <<"pool">>},
    ok = weir_pool:start(Name, (opts(3))#{strategy => random}),
    {ok, Info} = weir_pool:info(Name),
    ?assertEqual(
        #{
            name => Name, size => 3, limit => 3, strategy => random,
            live => 3, vacant => 0, claimed => 0, reserved => 0, stopping => 0, calls => 0,
            waiting => 0, oldest_wait_ms => 0, longest_wait_ms => 0, picks => 0, skips => 0, waits => 0, busy => 0,
            timeouts => 0, overloads => 0, abandoned => 0, check_failures => 0, restarts => 0, start_failures => 0,
            start_error => none, claims => 0, claimed_ms => 0
        },
        Info
    ),
    {ok, [{1, A}, {2, B}, {3, C}]} = weir_pool:workers(Name),
    ?assertEqual([A, B, C], workers(Name)),
    {ok, _, Ticket} = weir_pool:checkout(Name, #{}),
    ?assertMatch({ok, #{claimed := 1, live := 3}}, weir_pool:info(Name)),
    ok = weir_pool:checkin(Name, Ticket),
    ?assertMatch({ok, #{claimed := 0, live := 3}}, weir_pool:info(Name)),
    ok = weir_pool:stop(Name).

%% The waits are no longer than the calls that wait.
waits_are_no_longer_than_their_claims(_Config) ->
    ok = weir_pool:start(f, opts(1)),
    {ok, _, Ticket} = weir_pool:checkout(f, 0),
    Begun = erlang:monotonic_time(millisecond),
    Waiters = [weir_kit:start(fun() -> weir_pool:claim(f, fun(_) -> done end, infinity) end) || _ <- [1, 2]],
    until(fun() -> maps:get(oldest_wait_ms, info()) >= 20 end),
    #{oldest_wait_ms := Oldest} = info(),
    ?assert(Oldest =< erlang:monotonic_time(millisecond) - Begun),
    until(fun() -> maps:get(waiting, info()) =:= 2 end),
    ok = weir_pool:checkin(f, Ticket),
    [?assertEqual({ok, done}, result(Waiter)) || Waiter <- Waiters],
    until(fun() -> weir_pool_test_lib:is_nobody_waiting(f) end),
    #{longest_wait_ms := Longest} = Info = info(),
    ?assertMatch(#{waiting := 0, oldest_wait_ms := 0, waits := 2}, Info),
    %% Both times are rounded down, but not from the same moment.
    ?assert(Longest + 1 >= Oldest andalso Longest =< erlang:monotonic_time(millisecond) - Begun, {Oldest, Longest}),
    ok = weir_pool:stop(f).

%% More than the words of the slots can count.
claims_waits_and_refusals_are_counted(Config) ->
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
            claims_waits_and_refusals_are_counted(Config)
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
claims_stay_counted_when_slots_change(_Config) ->
    ok = weir_pool:start(f, opts(10)),
    Changes = [
        {10, 70, fun() -> [kill(Worker) || Worker <- workers(f)] end},
        {10, 70, fun() -> ok = weir_pool:replace(f, 3) end},
        {10, 70, fun() -> ok = weir_pool:resize(f, 2) end},
        {2, 140, fun() -> ok = weir_pool:resize(f, 40) end},
        {40, 40, fun() -> ok end}
    ],
    lists:foldl(
        fun({Size, Claims, Change}, Before) ->
            until(fun() -> weir_pool_test_lib:settled(f, Size) end),
            [claim_all(Size) || _ <- lists:seq(1, Claims div Size)],
            ?assertMatch(#{claims := N} when N =:= Before + Claims, info()),
            Change(),
            ?assertMatch(#{claims := N} when N =:= Before + Claims, info()),
            Before + Claims
        end,
        0,
        Changes
    ),
    ok = weir_pool:stop(f).

claim_all(Size) ->
    Tickets = [element(3, weir_pool:checkout(f, 0)) || _ <- lists:seq(1, Size)],
    [ok = weir_pool:checkin(f, Ticket) || Ticket <- Tickets].

%% Sampled: never more than there was.
claimed_time_is_never_more_than_the_claims_took(_Config) ->
    ok = weir_pool:start(f, opts(3)),
    Begin = erlang:monotonic_time(millisecond),
    Tickets = [element(3, weir_pool:checkout(f, 0)) || _ <- [1, 2]],
    until(fun() -> maps:get(claimed_ms, info()) >= 2000 end),
    #{claimed_ms := Claimed} = info(),
    ?assert(Claimed =< 2 * (erlang:monotonic_time(millisecond) - Begin)),
    [ok = weir_pool:checkin(f, Ticket) || Ticket <- Tickets],
    %% From the next tick on nothing is added.
    Tick = fun() ->
        manager(f) ! tick,
        _ = sys:get_state(manager(f), wait_ms()),
        maps:get(claimed_ms, info())
    end,
    All = Tick(),
    ?assert(All =< 2 * (erlang:monotonic_time(millisecond) - Begin)),
    ?assertEqual([All], lists:usort([receive after 5 -> Tick() end || _ <- lists:seq(1, 10)])),
    ok = weir_pool:stop(f).

%% In which slot, and why; in pools of any kind.
info_has_the_last_start_that_failed(_Config) ->
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

info() ->
    {ok, Info} = weir_pool:info(f),
    Info.
