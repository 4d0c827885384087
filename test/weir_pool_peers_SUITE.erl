%% Promises of poolboy, pooler and worker_pool, kept by weir_pool.
%%
%% The scenarios are those of their documentation and of the names of their tests, written anew in the terms of
%% docs/migrating/poolboy.md, pooler.md and worker_pool.md. Here take/0,1 and give_back/1 are their `checkout' and
%% `checkin', `take_member' and `return_member'. The end of this file lists the differences of Weir, with the reasons.
-module(weir_pool_peers_SUITE).
-behaviour(weir_pool_strategy).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, wait_ms/0, await_down/1, kill/1]).
-import(weir_compat_test, [run/2]).

-define(POOL, ?MODULE).
-define(WORKER, {weir_pool_test_worker, start_link, []}).

all() -> weir_kit:cases(?MODULE).

init_per_testcase(_, Config) -> weir_kit:quiet(weir_pool_test_lib:setup(Config)).

end_per_testcase(_, Config) ->
    _ = application:unset_env(weir_pool, pools),
    _ = [weir_pool:stop(Name) || Name <- weir_pool:pools()],
    try
        weir_pool_test_lib:teardown(Config)
    after
        weir_kit:loud(Config)
    end.

%% ---------------------------------------------------------------- pools and their users

start(Size) -> start(Size, #{}).

start(Size, Opts) -> ok = weir_pool:start(?POOL, opts(Size, Opts)).

opts(Size, Opts) -> maps:merge(#{size => Size, worker => ?WORKER}, Opts).

%% poolboy's `max_overflow': a worker more goes when it comes back.
overflow(Max) -> #{overflow => #{max => Max, linger => 0}}.

%% Waits for a worker like theirs, but longer than five seconds, which a busy machine may take.
take() -> take(weir_kit:wait_ms()).

%% Returns {Worker, Ticket}, or the error.
take(Timeout) ->
    case weir_pool:checkout(?POOL, Timeout) of
        {ok, Worker, Ticket} -> {Worker, Ticket};
        {error, Reason} -> Reason
    end.

take_all(N) -> [{_, _} = take() || _ <- lists:seq(1, N)].

give_back({_Worker, Ticket}) -> weir_pool:checkin(?POOL, Ticket).

fail({_Worker, Ticket}) -> weir_pool:checkin(?POOL, Ticket, fail).

is_overflow({_Worker, Ticket}) ->
    {ok, #{size := Size}} = weir_pool:info(?POOL),
    weir_pool:slot(Ticket) > Size.

worker({Worker, _Ticket}) -> Worker.

%% Starts a process that runs the functions it is sent, until the case ends.
user() -> weir_compat_test:member().

%% Starts a user that takes a worker, and holds it.
holder() ->
    User = user(),
    {User, {_, _} = run(User, fun take/0)}.

%% Starts a user that waits for a worker. served/1 waits for the worker.
waiter() ->
    User = user(),
    {User, weir_kit:start(fun() -> run(User, fun() -> take(infinity) end) end)}.

served({_User, Taking}) ->
    {_, _} = Taken = weir_kit:result(Taking),
    Taken.

waiters(N) ->
    [
        begin
            Waiter = waiter(),
            await_waiting(I),
            Waiter
        end
     || I <- lists:seq(1, N)
    ].

await_waiting(N) -> becomes(N, fun() -> info(waiting) end).

becomes(Expected, What) ->
    until(fun() ->
        case What() of
            Expected -> true;
            Other -> Other
        end
    end).

info(Key) ->
    {ok, #{Key := Value}} = weir_pool:info(?POOL),
    Value.

workers() ->
    {ok, Workers} = weir_pool:workers(?POOL),
    [Pid || {_Slot, Pid} <- Workers].

%% Returns the values of poolboy's `status', made of those of `info'.
status() ->
    {ok, #{size := S, live := L, vacant := V, claimed := C, reserved := R}} = weir_pool:info(?POOL),
    #{available => L - C - R, overflow => L - (S - V), monitors => C}.

await_status(Available, Overflow, Monitors) ->
    becomes(#{available => Available, overflow => Overflow, monitors => Monitors}, fun status/0).

%% ---------------------------------------------------------------- poolboy

a_worker_that_is_checked_out_is_not_available_until_it_is_checked_in(_) ->
    start(10, overflow(5)),
    await_status(10, 0, 0),
    First = take(),
    ?assertMatch(#{available := 9, monitors := 1}, status()),
    Second = take(),
    ?assertNotEqual(worker(First), worker(Second)),
    ?assertEqual(pong, gen_server:call(worker(Second), ping, wait_ms())),
    ?assertMatch(#{available := 8, monitors := 2}, status()),
    ?assertEqual(ok, give_back(Second)),
    ?assertMatch(#{available := 9, monitors := 1}, status()),
    ?assertEqual(ok, give_back(First)),
    ?assertEqual(#{available => 10, overflow => 0, monitors => 0}, status()).

overflow_is_started_when_all_are_out_and_goes_when_it_comes_back(_) ->
    start(5, overflow(5)),
    Regular = workers(),
    All = take_all(7),
    ?assertEqual(#{available => 0, overflow => 2, monitors => 7}, status()),
    weir_kit:same(taken_twice, 7, length(lists:usort([worker(Taken) || Taken <- All]))),
    {[More, Last], [First | Others]} = lists:partition(fun is_overflow/1, All),
    %% A regular worker stays, though there are more than five workers.
    ok = give_back(First),
    ?assertEqual(#{available => 1, overflow => 2, monitors => 6}, status()),
    ok = give_back(More),
    await_down(worker(More)),
    await_status(1, 1, 5),
    ok = give_back(Last),
    await_down(worker(Last)),
    await_status(1, 0, 4),
    [ok = give_back(Taken) || Taken <- Others],
    await_status(5, 0, 0),
    ?assertEqual(Regular, workers()).

overflow_that_somebody_waits_for_is_handed_over_instead(_) ->
    start(1, overflow(1)),
    [Regular, More] = lists:sort(fun(A, B) -> is_overflow(A) =< is_overflow(B) end, take_all(2)),
    [Waiter] = waiters(1),
    ok = give_back(More),
    ?assertEqual(worker(More), worker(served(Waiter))),
    ?assertEqual(#{available => 0, overflow => 1, monitors => 2}, status()),
    ok = give_back(Regular),
    ?assert(is_process_alive(worker(Regular))).

a_pool_of_size_0_starts_everything_on_demand(_) ->
    start(0, overflow(2)),
    ?assertEqual(#{available => 0, overflow => 0, monitors => 0}, status()),
    ?assertEqual({error, no_worker}, weir_pool:pick(?POOL)),
    First = take(),
    ?assertEqual(#{available => 0, overflow => 1, monitors => 1}, status()),
    Second = take(),
    ?assertEqual(#{available => 0, overflow => 2, monitors => 2}, status()),
    ?assertEqual(busy, take(0)),
    ?assertEqual(timeout, take(1)),
    [ok = give_back(Taken) || Taken <- [First, Second]],
    await_status(0, 0, 0),
    ?assertEqual([], workers()),
    %% Nothing at all is no pool.
    Nothing = opts(0, overflow(0)),
    ?assertMatch({error, {contradicting_options, {size, 0}, {worker, _}}}, weir_pool:start(nothing, Nothing)).

with_all_out_one_waits_for_the_next_that_comes_back(_) ->
    start(5),
    [First | Others] = take_all(5),
    [Waiter] = waiters(1),
    ok = give_back(First),
    ?assertEqual(worker(First), worker(served(Waiter))),
    [ok = give_back(Taken) || Taken <- Others],
    ?assertEqual(#{available => 4, overflow => 0, monitors => 1}, status()).

with_all_overflow_out_one_waits_too(_) ->
    start(5, overflow(2)),
    All = take_all(7),
    [Waiter] = waiters(1),
    ?assertEqual(#{available => 0, overflow => 2, monitors => 7}, status()),
    [ok = give_back(Taken) || Taken <- All],
    {_, _} = served(Waiter),
    until(fun() -> info(claimed) =:= 1 andalso info(live) =< 6 end).

nonblocking_says_at_once_that_all_are_out(_) ->
    start(5),
    [First | _] = take_all(5),
    ?assertEqual([busy, busy], [take(0), take(0)]),
    ok = give_back(First),
    Again = take(0),
    ?assertEqual(worker(First), worker(Again)),
    ?assertEqual(busy, take(0)),
    ?assertEqual(3, info(busy)).

nonblocking_with_overflow(_) ->
    start(5, overflow(5)),
    All = take_all(10),
    ?assertEqual(busy, take(0)),
    [More | _] = lists:filter(fun is_overflow/1, All),
    ok = give_back(More),
    await_down(worker(More)),
    New = take(),
    ?assert(is_process_alive(worker(New))),
    ?assertNotEqual(worker(More), worker(New)),
    ?assertEqual(busy, take(0)),
    ?assertEqual(#{available => 0, overflow => 5, monitors => 10}, status()).

a_worker_that_dies_inside_is_replaced(_) ->
    start(5, overflow(2)),
    [Dead | _] = workers(),
    kill(Dead),
    until(fun() -> info(restarts) =:= 1 andalso not lists:member(Dead, workers()) end),
    await_status(5, 0, 0),
    ?assertEqual(lists:sort(workers()), lists:sort([worker(Taken) || Taken <- take_all(5)])).

a_worker_that_dies_outside_is_replaced_and_its_ticket_is_void(_) ->
    start(5),
    Taken = take(),
    kill(worker(Taken)),
    until(fun() -> info(live) =:= 5 andalso not lists:member(worker(Taken), workers()) end),
    ?assertEqual({error, worker_down}, give_back(Taken)),
    ?assertEqual(#{available => 5, overflow => 0, monitors => 0}, status()).

overflow_that_dies_outside_is_not_replaced(_) ->
    start(5, overflow(2)),
    All = take_all(7),
    {[More, Last], [Regular | _]} = lists:partition(fun is_overflow/1, All),
    kill(worker(More)),
    await_status(0, 1, 6),
    kill(worker(Last)),
    await_status(0, 0, 5),
    kill(worker(Regular)),
    await_status(1, 0, 4).

a_worker_that_dies_outside_makes_place_for_one_who_waits(_) ->
    start(5),
    [A, B, C | _] = take_all(5),
    [Waiter] = waiters(1),
    kill(worker(A)),
    ?assertNotEqual(worker(A), worker(served(Waiter))),
    kill(worker(B)),
    await_status(1, 0, 4),
    kill(worker(C)),
    await_status(2, 0, 3).

overflow_that_dies_outside_makes_place_for_one_who_waits(_) ->
    start(5, overflow(2)),
    [More, Last] = lists:filter(fun is_overflow/1, take_all(7)),
    [Waiter] = waiters(1),
    kill(worker(More)),
    ?assertNotEqual(worker(More), worker(served(Waiter))),
    ?assertEqual(#{available => 0, overflow => 2, monitors => 7}, status()),
    kill(worker(Last)),
    await_status(0, 1, 6).

the_owner_of_a_dead_worker_can_wait_for_another(_) ->
    start(1),
    First = take(),
    kill(worker(First)),
    Second = take(),
    ?assertNotEqual(worker(First), worker(Second)),
    ?assertEqual({error, worker_down}, give_back(First)),
    ?assertEqual(busy, take(0)),
    ?assertEqual(ok, give_back(Second)).

%% poolboy takes the worker back, whatever the owner left it with; that is `abandoned => free'.
the_worker_of_an_owner_that_ended_is_replaced(_) ->
    start(4),
    Holders = [holder() || _ <- [1, 2, 3]],
    [exit(Owner, Reason) || {{Owner, _}, Reason} <- lists:zip(Holders, [kill, shutdown, crash])],
    [await_down(worker(Taken)) || {_, Taken} <- Holders],
    await_status(4, 0, 0),
    Ending = weir_kit:start(fun take/0),
    await_down(worker(weir_kit:result(Ending))),
    await_status(4, 0, 0),
    ?assertEqual(4, info(abandoned)).

the_worker_of_an_owner_that_ended_comes_back_as_it_is(_) ->
    start(1, #{abandoned => free}),
    [Worker] = workers(),
    {Owner, {Worker, _}} = holder(),
    kill(Owner),
    await_status(1, 0, 0),
    {Second, {Worker, _}} = holder(),
    [Waiter] = waiters(1),
    kill(Second),
    ?assertEqual(Worker, worker(served(Waiter))).

a_transaction_gives_back_after_any_exception(_) ->
    start(2),
    Workers = workers(),
    Transaction = fun(Raise) ->
        weir_pool:claim(
            ?POOL,
            fun(Worker) ->
                ?assert(lists:member(Worker, Workers)),
                ?assertMatch(#{available := 1, monitors := 1}, status()),
                Raise()
            end,
            5000
        )
    end,
    ?assertThrow(ball, Transaction(fun() -> throw(ball) end)),
    ?assertError(mistake, Transaction(fun() -> error(mistake) end)),
    ?assertExit(way_out, Transaction(fun() -> exit(way_out) end)),
    ?assertEqual({ok, result}, Transaction(fun() -> result end)),
    ?assertEqual(#{available => 2, overflow => 0, monitors => 0}, status()),
    ?assertEqual(Workers, workers()).

a_transaction_that_gets_no_worker_in_time_changes_nothing(_) ->
    start(1),
    Workers = workers(),
    Never = fun(_) -> ct:fail(called) end,
    Taken = take(),
    ?assertEqual({error, busy}, weir_pool:claim(?POOL, Never)),
    ?assertEqual({error, timeout}, weir_pool:claim(?POOL, Never, 5)),
    ok = give_back(Taken),
    %% The queue answers a waiter before it publishes that the waiter has gone.
    await_status(1, 0, 0),
    ?assertEqual({ok, Workers}, weir_pool:claim(?POOL, fun(Worker) -> [Worker] end, 5)),
    ?assertEqual([], weir_kit:messages()).

a_checkout_that_is_cancelled_leaves_nothing(_) ->
    start(1),
    Taken = take(),
    ?assertEqual(timeout, take(20)),
    until(fun() -> info(waiting) =:= 0 andalso watched() =:= [] end),
    [Waiter] = waiters(1),
    ok = give_back(Taken),
    ok = give_back(served(Waiter)),
    until(fun() -> watched() =:= [] end),
    ?assertEqual(#{available => 1, overflow => 0, monitors => 0}, status()).

%% Returns the monitors of the pool's queue.
watched() ->
    {monitors, Monitors} = process_info(weir_pool_test_lib:queue(?POOL), monitors),
    Monitors.

a_waiter_that_is_killed_is_not_served(_) ->
    start(1),
    Taken = take(),
    [{Dead, _}, Alive] = waiters(2),
    kill(Dead),
    await_waiting(1),
    ok = give_back(Taken),
    ?assertEqual(worker(Taken), worker(served(Alive))).

%% The time of users is over about when a worker becomes free, and some users are killed.
no_worker_is_lost_where_timeouts_cross_grants(_) ->
    start(2, #{abandoned => free}),
    Workers = workers(),
    Patient = [weir_kit:start(fun() -> in_and_out(100) end) || _ <- lists:seq(1, 20)],
    Killed = [spawn(fun() -> in_and_out(infinity) end) || _ <- lists:seq(1, 20)],
    until(fun() ->
        case {info(timeouts), info(waits)} of
            {Timeouts, Waits} when Timeouts > 20, Waits > 20 -> true;
            Other -> Other
        end
    end),
    [
        begin
            erlang:yield(),
            exit(Pid, kill)
        end
     || Pid <- Killed
    ],
    [ok = weir_kit:result(User) || User <- Patient],
    await_status(2, 0, 0),
    becomes(0, fun() -> info(waiting) end),
    weir_kit:same(lost, Workers, workers()),
    ?assertEqual(lists:sort(Workers), lists:sort([worker(take(0)), worker(take(0))])),
    weir_kit:same(second_holder, busy, take(0)).

in_and_out(0) ->
    weir_kit:none(messages, weir_kit:messages());
in_and_out(Rounds) ->
    case take(rand:uniform(12)) of
        {_, _} = Taken ->
            receive
            after rand:uniform(2) - 1 -> ok = give_back(Taken)
            end;
        Refused ->
            timeout = Refused
    end,
    in_and_out(one_less(Rounds)).

one_less(infinity) -> infinity;
one_less(Rounds) -> Rounds - 1.

those_who_wait_are_served_first_in_first_out(_) ->
    start(1, #{queue => fifo}),
    Taken = take(),
    [A, B, C] = waiters(3),
    ok = give_back(Taken),
    [ok = give_back(served(Waiter)) || Waiter <- [A, B, C]],
    ?assertEqual(#{available => 1, overflow => 0, monitors => 0}, status()).

those_who_wait_are_served_last_in_first_out(_) ->
    start(1, #{queue => lifo}),
    Taken = take(),
    [A, B, C] = waiters(3),
    ok = give_back(Taken),
    [ok = give_back(served(Waiter)) || Waiter <- [C, B, A]],
    ?assertEqual(#{available => 1, overflow => 0, monitors => 0}, status()).

status_tells_available_overflow_and_monitors(_) ->
    start(2),
    ?assertEqual(#{available => 2, overflow => 0, monitors => 0}, status()),
    _ = take(),
    ?assertEqual(#{available => 1, overflow => 0, monitors => 1}, status()),
    _ = take(),
    ?assertEqual(#{available => 0, overflow => 0, monitors => 2}, status()),
    _ = waiters(2),
    ?assertEqual(2, info(waiting)),
    ok = weir_pool:stop(?POOL),
    start(1, overflow(1)),
    ?assertEqual(#{available => 1, overflow => 0, monitors => 0}, status()),
    _ = take(),
    ?assertEqual(#{available => 0, overflow => 0, monitors => 1}, status()),
    _ = take(),
    ?assertEqual(#{available => 0, overflow => 1, monitors => 2}, status()).

a_pool_is_extended_and_shrunk_under_its_users(_) ->
    start(2),
    [A, _B] = take_all(2),
    [Waiter] = waiters(1),
    ?assertEqual(ok, weir_pool:resize(?POOL, 3)),
    ?assertNotEqual(worker(A), worker(served(Waiter))),
    ?assertEqual(#{available => 0, overflow => 0, monitors => 3}, status()),
    %% Workers leave after they have come back.
    ?assertEqual(ok, weir_pool:resize(?POOL, 1)),
    ?assert(is_process_alive(worker(A))),
    ?assertEqual(busy, take(0)).

a_pool_whose_worker_cannot_start_says_why(_) ->
    Start = fun
        (3) -> {error, out_of_luck};
        (_) -> start
    end,
    Opts = weir_pool_test_lib:slot_script(5, Start),
    ?assertEqual({error, {start_failed, 3, out_of_luck}}, weir_pool:start(?POOL, Opts)),
    ?assertEqual({error, no_pool}, weir_pool:info(?POOL)),
    ?assertEqual([], weir_pool_test_lib:workers_alive()).

unknown_messages_are_dropped(_) ->
    start(1),
    [Worker] = workers(),
    [
        begin
            ?assertEqual({error, {bad_call, strange}}, gen_server:call(Process, strange, wait_ms())),
            ok = gen_server:cast(Process, strange),
            Process ! strange,
            Process ! {'DOWN', make_ref(), process, self(), strange}
        end
     || Process <- [weir_pool_test_lib:manager(?POOL), weir_pool_test_lib:queue(?POOL)]
    ],
    Taken = take(),
    ?assertEqual(Worker, worker(Taken)),
    ?assertEqual(ok, give_back(Taken)).

%% poolboy:start/1.
a_pool_without_a_name(_) ->
    [A, B] = Names = [make_ref(), make_ref()],
    [ok = weir_pool:start(Name, opts(1, #{})) || Name <- Names],
    ?assertEqual(lists:sort(Names), lists:sort(weir_pool:pools())),
    {ok, Worker, Ticket} = weir_pool:checkout(A, 0),
    ?assertEqual({error, busy}, weir_pool:checkout(A, 0)),
    ?assertMatch({ok, Other} when Other =/= Worker, weir_pool:claim(B, fun(Pid) -> Pid end)),
    ok = weir_pool:checkin(A, Ticket),
    [ok = weir_pool:stop(Name) || Name <- Names].

%% The helper module at the end of docs/migrating/poolboy.md, as it stands there.
poolboys_results_and_exits(_) ->
    Transaction = fun(Pool, Fun, Timeout) ->
        case weir_pool:claim(Pool, Fun, Timeout) of
            {ok, Result} -> Result;
            {error, no_pool} -> exit({noproc, {?MODULE, transaction, [Pool, Fun, Timeout]}});
            {error, Reason} -> exit({Reason, {?MODULE, transaction, [Pool, Fun, Timeout]}})
        end
    end,
    Ping = fun(Worker) -> gen_server:call(Worker, ping, wait_ms()) end,
    ?assertExit({noproc, {?MODULE, transaction, [?POOL, Ping, 10]}}, Transaction(?POOL, Ping, 10)),
    start(1),
    ?assertEqual(pong, Transaction(?POOL, Ping, 5000)),
    ?assertError(oops, Transaction(?POOL, fun(_) -> error(oops) end, 5000)),
    Taken = take(),
    ?assertExit({timeout, {?MODULE, transaction, [?POOL, Ping, 10]}}, Transaction(?POOL, Ping, 10)),
    ok = give_back(Taken),
    ?assertEqual(pong, Transaction(?POOL, Ping, 5000)).

%% ---------------------------------------------------------------- pooler

%% pooler's `init_count' and `max_count'; those above the first are culled after `max_age'.
start_members(InitCount, MaxCount, MaxAge) ->
    start(InitCount, #{overflow => #{max => MaxCount - InitCount, linger => MaxAge}}).

there_are_init_count_members_at_first(_) ->
    start_members(2, 3, 0),
    ?assertEqual(2, length(workers())),
    ?assertEqual(#{available => 2, overflow => 0, monitors => 0}, status()).

take_and_return(_) ->
    start_members(2, 3, 0),
    Taken = take(),
    ?assertEqual(pong, gen_server:call(worker(Taken), ping, wait_ms())),
    ?assertEqual(ok, weir_pool:checkin(?POOL, element(2, Taken), ok)),
    Again = take(),
    ?assertEqual(ok, weir_pool:checkin(?POOL, element(2, Again))),
    ?assertEqual(#{available => 2, overflow => 0, monitors => 0}, status()).

an_unknown_pool_is_an_error(_) ->
    ?assertEqual(no_pool, take()),
    ?assertEqual(no_pool, take(0)),
    ?assertEqual({error, no_pool}, weir_pool:claim(?POOL, fun(_) -> ok end)),
    ?assertEqual({error, no_pool}, weir_pool:info(?POOL)).

members_are_added_until_max_count(_) ->
    start_members(2, 3, 60000),
    All = take_all(3),
    ?assertEqual(3, length(lists:usort([worker(Taken) || Taken <- All]))),
    ?assertEqual([busy, busy], [take(0), take(0)]),
    ?assertEqual(timeout, take(5)),
    ?assertEqual(3, info(live)).

a_member_that_crashes_free_or_in_use_is_replaced(_) ->
    start_members(2, 3, 60000),
    Used = take_all(3),
    [gen_server:stop(worker(Taken), crash, infinity) || Taken <- Used],
    New = take_all(3),
    ?assertEqual([], [Pid || {Pid, _} <- New, lists:keymember(Pid, 1, Used)]),
    [ok = give_back(Taken) || Taken <- New],
    [kill(Free) || Free <- workers()],
    %% A take may get a member that has just died.
    until(fun() -> [] =:= [Pid || Pid <- workers(), lists:keymember(Pid, 1, New)] end),
    ?assertEqual([], [Pid || {Pid, _} <- take_all(3), lists:keymember(Pid, 1, New)]).

a_member_that_is_returned_with_fail_is_replaced(_) ->
    start_members(2, 3, 60000),
    Failed = take_all(3),
    [?assertEqual(ok, fail(Taken)) || Taken <- Failed],
    [await_down(worker(Taken)) || Taken <- Failed],
    ?assertEqual([], [Pid || {Pid, _} <- take_all(3), lists:keymember(Pid, 1, Failed)]),
    [?assertEqual({error, worker_down}, fail(Taken)) || Taken <- Failed],
    ?assertMatch(#{available := 0, monitors := 3}, status()).

%% The pool forgives no death, and gives out abandoned members as they are.
members_that_failed_do_not_wear_the_pool_out(_) ->
    start(2, #{intensity => 0, abandoned => free}),
    Workers = [
        begin
            Taken = take(),
            ok = fail(Taken),
            worker(Taken)
        end
     || _ <- lists:seq(1, 20)
    ],
    ?assertEqual(20, length(lists:usort(Workers))),
    await_status(2, 0, 0),
    ?assertEqual(20, info(abandoned)).

the_member_of_a_consumer_that_crashed_is_replaced(_) ->
    start_members(2, 3, 60000),
    {Consumer, Taken} = holder(),
    exit(Consumer, crash),
    await_down(worker(Taken)),
    await_status(2, 0, 0),
    ?assertEqual([], [Pid || {Pid, _} <- take_all(3), Pid =:= worker(Taken)]).

a_member_may_be_returned_more_than_once(_) ->
    start(2),
    Once = take(),
    ?assertEqual(ok, give_back(Once)),
    First = take(),
    Second = take(),
    ?assertNotEqual(worker(First), worker(Second)),
    %% A second return neither returns nor kills the member of another user.
    weir_kit:same(returned_twice, [{error, not_held}], lists:usort([give_back(Once) || _ <- lists:seq(1, 37)])),
    ?assertEqual({error, not_held}, fail(Once)),
    ?assertEqual(#{available => 0, overflow => 0, monitors => 2}, status()),
    ?assertEqual([ok, ok], [give_back(First), give_back(Second)]),
    ?assertEqual(#{available => 2, overflow => 0, monitors => 0}, status()).

pools_come_and_go(_) ->
    start_members(2, 3, 60000),
    ?assertEqual({error, already_started}, weir_pool:start(?POOL, opts(1, #{}))),
    Taken = take(),
    ?assertEqual(ok, weir_pool:stop(?POOL)),
    ?assertEqual(no_pool, take()),
    ?assertNot(is_process_alive(worker(Taken))),
    start_members(2, 3, 60000),
    ?assertEqual({error, worker_down}, give_back(Taken)),
    ?assertMatch(#{available := 2}, status()),
    ?assertEqual({error, no_pool}, weir_pool:stop(another)),
    ?assertEqual(ok, weir_pool:stop(?POOL)).

%% rm_pool, softly.
a_pool_that_is_removed_lets_those_who_work_finish(_) ->
    start(2),
    {User, Taken} = holder(),
    Removing = weir_kit:start(fun() -> weir_pool:drain(?POOL, weir_kit:wait_ms()) end),
    becomes({error, no_pool}, fun() -> weir_pool:pick(?POOL) end),
    ?assertEqual(pong, gen_server:call(worker(Taken), ping, wait_ms())),
    ?assertEqual(ok, run(User, fun() -> give_back(Taken) end)),
    ?assertEqual(ok, weir_kit:result(Removing)),
    ?assertNot(is_process_alive(worker(Taken))),
    ?assertEqual([], weir_pool:pools()).

%% pool_reconfigure: the size.
a_pool_is_reconfigured_while_it_runs(_) ->
    start(2),
    Old = workers(),
    ok = weir_pool:resize(?POOL, 4),
    All = take_all(4),
    ?assertEqual([], Old -- workers()),
    ok = weir_pool:resize(?POOL, 1),
    %% Workers that are out stay until they come back.
    [?assertEqual(pong, gen_server:call(worker(Taken), ping, wait_ms())) || Taken <- All],
    [ok = give_back(Taken) || Taken <- All],
    until(fun() -> length(weir_pool_test_lib:workers_alive()) =:= 1 end),
    ok = give_back(take()).

%% call_free_members, which here visits the others, too.
free_members_are_called(_) ->
    start(3, overflow(1)),
    All = take_all(3),
    {_, _} = Overflow = take(),
    Workers = [Pid || Pid <- workers(), Pid =/= worker(Overflow)],
    ?assertEqual({ok, Workers}, weir_pool:map(?POOL, fun(Pid) -> Pid end)),
    [ok = give_back(Taken) || Taken <- [Overflow | All]],
    ?assertEqual({ok, [pong, pong, pong]}, weir_pool:map(?POOL, fun(Pid) -> gen_server:call(Pid, ping, wait_ms()) end)),
    ?assertError(oops, weir_pool:map(?POOL, fun(_) -> error(oops) end)).

pools_of_the_environment(_) ->
    ok = application:stop(weir_pool),
    ok = application:set_env(weir_pool, pools, [{?POOL, opts(2, #{})}, {{?POOL, 2}, maps:to_list(opts(3, #{}))}]),
    ok = application:start(weir_pool),
    ?assertEqual([2, 3], [length(Workers) || Name <- [?POOL, {?POOL, 2}], {ok, Workers} <- [weir_pool:workers(Name)]]),
    ?assertEqual(ok, give_back(take())).

a_pool_in_another_supervision_tree(_) ->
    Parent = weir_pool_test_lib:start_parent({#{}, [weir_pool:child_spec(?POOL, opts(2, #{}))]}),
    Old = workers(),
    ok = give_back(take()),
    weir_pool_test_lib:kill_manager(?POOL),
    ?assertEqual([], [Pid || Pid <- workers(), lists:member(Pid, Old)]),
    [await_down(Pid) || Pid <- Old],
    weir_pool_test_lib:stop_parent(Parent),
    ?assertEqual(no_pool, take()).

%% pooler's groups: the names of the pools, in any order.
take_group_member(Names) -> take_from([Name || {_, Name} <- lists:sort([{rand:uniform(), Name} || Name <- Names])]).

take_from([Name | Names]) ->
    case weir_pool:checkout(Name, #{}) of
        {ok, Pid, Ticket} -> {Name, Pid, Ticket};
        {error, _} -> take_from(Names)
    end;
take_from([]) ->
    error_no_members.

taking_from_several_pools(_) ->
    Names = [{?POOL, 1}, {?POOL, 2}],
    [ok = weir_pool:start(Name, opts(3, #{})) || Name <- Names],
    Once = [
        begin
            {Name, Pid, Ticket} = take_group_member(Names),
            ?assertMatch([{Name, _}], weir_pool:which_pools(Pid)),
            ok = weir_pool:checkin(Name, Ticket),
            Name
        end
     || _ <- lists:seq(1, 100)
    ],
    ?assertEqual(Names, lists:usort(Once)),
    All = [take_group_member(Names) || _ <- lists:seq(1, 6)],
    weir_kit:same(taken_twice, 6, length(lists:usort([Pid || {_, Pid, _} <- All]))),
    ?assertEqual(error_no_members, take_group_member(Names)),
    ?assertEqual(error_no_members, take_group_member([])),
    ?assertEqual(error_no_members, take_group_member([nobody])),
    %% A ticket is one of its pool.
    [{_, _, OfOne} | _] = [Taken || {{_, 1}, _, _} = Taken <- All],
    ?assertEqual({error, not_held}, weir_pool:checkin({?POOL, 2}, OfOne)),
    ?assertEqual(ok, weir_pool:checkin({?POOL, 1}, OfOne)),
    ?assertMatch({{_, 1}, _, _}, take_group_member([nobody | Names])).

%% Or their supervisor, for those that are to live and to stop together.
several_pools_are_stopped_together(_) ->
    Names = [{?POOL, 1}, {?POOL, 2}],
    Group = weir_pool_test_lib:start_parent({#{}, [weir_pool:child_spec(Name, opts(2, #{})) || Name <- Names]}),
    ok = weir_pool:start(?POOL, opts(1, #{})),
    {_, Pid, _} = take_group_member(Names),
    ok = supervisor:terminate_child(Group, {weir_pool, {?POOL, 1}}),
    {ok, _} = supervisor:restart_child(Group, {weir_pool, {?POOL, 1}}),
    ?assertMatch({_, _, _}, take_group_member(Names)),
    weir_pool_test_lib:stop_parent(Group),
    ?assertNot(is_process_alive(Pid)),
    ?assertEqual(error_no_members, take_group_member(Names)),
    ?assertEqual(ok, give_back(take())).

a_pool_whose_members_cannot_start_gives_errors_and_goes_on(_) ->
    Opts = weir_pool_test_lib:script(10, fun() -> {error, no_database} end),
    ok = weir_pool:start(?POOL, Opts#{start => async, backoff => {1, 5}}),
    ?assertEqual([no_worker, no_worker], [take(0), take(0)]),
    ?assertEqual(timeout, take(5)),
    until(fun() -> info(start_failures) > 30 end),
    ?assertMatch({_Slot, no_database}, info(start_error)),
    ?assertEqual({error, no_worker}, weir_pool:pick(?POOL)).

excess_members_are_culled(_) ->
    start_members(2, 10, 20),
    [
        begin
            All = take_all(10),
            ?assertEqual(10, info(live)),
            [ok = give_back(Taken) || Taken <- All],
            await_status(2, 0, 0)
        end
     || _ <- [1, 2]
    ],
    %% There are none where the pool may not grow.
    ok = weir_pool:stop(?POOL),
    start_members(2, 2, 0),
    [ok = give_back(Taken) || Taken <- take_all(2)],
    ?assertEqual(#{available => 2, overflow => 0, monitors => 0}, status()).

excess_members_in_use_are_not_culled(_) ->
    start_members(2, 10, 20),
    {More, First} = lists:partition(fun is_overflow/1, take_all(10)),
    {Back, Kept} = lists:split(5, More),
    [ok = give_back(Taken) || Taken <- First ++ Back],
    await_status(2, 3, 3),
    ?assertEqual([true, true, true], [is_process_alive(worker(Taken)) || Taken <- Kept]),
    [ok = give_back(Taken) || Taken <- Kept],
    await_status(2, 0, 0).

%% Starts a pool of size 0, in which each start of a member waits for weir_pool_test_lib:go/2.
start_gated(Max, Opts) ->
    Gated = weir_pool_test_lib:slot_script(0, weir_pool_test_lib:gated()),
    ok = weir_pool:start(?POOL, maps:merge(Gated#{overflow => #{max => Max, linger => 60000}}, Opts)).

a_take_that_does_not_wait_starts_a_member_for_the_next(_) ->
    start_gated(10, #{}),
    ?assertEqual(no_worker, take(0)),
    Starting = weir_pool_test_lib:await_blocked(1),
    ?assertEqual(no_worker, take(0)),
    _ = weir_pool_test_lib:go(Starting, start),
    await_status(1, 1, 0),
    ?assertEqual(ok, give_back(take(0))).

a_take_waits_for_a_member_that_is_starting(_) ->
    start_gated(10, #{}),
    [Waiter] = waiters(1),
    Starting = weir_pool_test_lib:await_blocked(1),
    ?assertEqual(1, info(waiting)),
    _ = weir_pool_test_lib:go(Starting, start),
    {_, _} = served(Waiter),
    ?assertEqual(#{available => 0, overflow => 1, monitors => 1}, status()).

a_take_that_times_out_leaves_the_member_to_others(_) ->
    start_gated(10, #{}),
    ?assertEqual(timeout, take(20)),
    until(fun() -> info(waiting) =:= 0 end),
    _ = weir_pool_test_lib:go(weir_pool_test_lib:await_blocked(1), start),
    await_status(1, 1, 0),
    ?assertEqual(ok, give_back(take(0))),
    ?assertEqual([], weir_kit:messages()).

no_more_than_queue_max_wait(_) ->
    start_gated(10, #{max_queue => 10}),
    Waiting = waiters(10),
    Starting = weir_pool_test_lib:await_blocked(10),
    ?assertMatch({overload, #{pool := ?POOL, reason := queue_full, waiting := 10}}, take(5000)),
    ?assertEqual(1, info(overloads)),
    _ = weir_pool_test_lib:go(Starting, start),
    weir_kit:same(taken_twice, 10, length(lists:usort([worker(served(Waiter)) || Waiter <- Waiting]))),
    %% Waiters that are served leave the queue.
    [Next] = waiters(1),
    {User, _} = hd(Waiting),
    exit(User, kill),
    {_, _} = served_after_restart(Next).

%% The member of a consumer that was killed is followed by another, which has to be let go too.
served_after_restart(Waiter) ->
    _ = weir_pool_test_lib:go(weir_pool_test_lib:await_blocked(1), start),
    served(Waiter).

%% pooler's `max_lifetime'.
members_that_are_too_old_are_replaced_when_they_are_free(_) ->
    Old = ets:new(old, [public]),
    start(2, #{check => {fun(Pid) -> not ets:member(Old, Pid) end, 1000}}),
    [A, B] = workers(),
    Taken = take(),
    [Free] = [A, B] -- [worker(Taken)],
    true = ets:insert(Old, [{A}, {B}]),
    await_down(Free),
    await_status(1, 0, 1),
    ?assert(is_process_alive(worker(Taken))),
    ok = give_back(Taken),
    await_down(worker(Taken)),
    await_status(2, 0, 0).

utilization(_) ->
    start_members(2, 3, 60000),
    _ = take_all(2),
    ?assertMatch(
        {ok, #{limit := 3, claimed := 2, live := 2, reserved := 0, vacant := 0, waiting := 0}}, weir_pool:info(?POOL)
    ),
    _ = take(),
    _ = waiters(1),
    ?assertMatch({ok, #{limit := 3, claimed := 3, live := 3, waiting := 1}}, weir_pool:info(?POOL)).

%% ---------------------------------------------------------------- worker_pool

-define(WORKERS, 6).

who(Pid) -> gen_server:call(Pid, {run, fun erlang:self/0}, wait_ms()).

whoever() -> {run, fun erlang:self/0}.

next_worker_gives_every_worker_its_turn(_) ->
    start(?WORKERS),
    Turns = weir_pool_test_lib:on_one_scheduler(fun() ->
        [Pid || _ <- lists:seq(1, 10 * ?WORKERS), {ok, Pid} <- [weir_pool:call(?POOL, whoever())]]
    end),
    Round = lists:sublist(Turns, ?WORKERS),
    ?assertEqual(lists:sort(workers()), lists:sort(Round)),
    ?assertEqual(lists:append(lists:duplicate(10, Round)), Turns).

random_worker_gives_every_worker_a_chance(_) ->
    start(?WORKERS, #{strategy => random}),
    Pick = fun() ->
        {ok, Pid} = weir_pool:call(?POOL, whoever()),
        Pid
    end,
    ?assertEqual(lists:sort(workers()), lists:usort([Pick() || _ <- lists:seq(1, 100 * ?WORKERS)])),
    %% New processes do not all begin with the same worker.
    Fresh = weir_kit:in_parallel([Pick || _ <- lists:seq(1, 100 * ?WORKERS)]),
    ?assertEqual(lists:sort(workers()), lists:usort(Fresh)).

hash_worker_gives_a_key_the_same_worker(_) ->
    start(?WORKERS),
    Keys = [{key, N} || N <- lists:seq(1, 500)],
    Of = fun(Key) ->
        {ok, Pid} = weir_pool:call_key(?POOL, Key, whoever()),
        Pid
    end,
    Before = lists:map(Of, Keys),
    ?assertEqual(Before, lists:map(Of, Keys)),
    ?assertEqual(lists:sort(workers()), lists:usort(Before)),
    ?assertEqual(Before, [Pid || Key <- Keys, {ok, Pid} <- [weir_pool:pick(?POOL, Key)]]),
    %% Only what the new worker takes over moves.
    ok = weir_pool:resize(?POOL, ?WORKERS + 1),
    New = lists:last(workers()),
    After = lists:map(Of, Keys),
    ?assertEqual([New], lists:usort([To || {From, To} <- lists:zip(Before, After), From =/= To])).

best_worker_takes_one_with_fewest_calls(_) ->
    start(?WORKERS, #{strategy => least_loaded}),
    Busy = fun() ->
        Test = self(),
        weir_kit:start(fun() ->
            weir_pool:call(?POOL, {run, fun() -> Test ! {busy, self()}, receive idle -> ok end end}, infinity)
        end)
    end,
    Round = fun(N) ->
        [
            begin
                _ = Busy(),
                becomes((N - 1) * ?WORKERS + I, fun() -> info(calls) end)
            end
         || I <- lists:seq(1, ?WORKERS)
        ]
    end,
    [Round(N) || N <- [1, 2, 3]],
    %% Each worker works on one call, and two calls wait.
    becomes([2], fun() ->
        lists:usort([Length || Pid <- workers(), {_, Length} <- [process_info(Pid, message_queue_len)]])
    end),
    [Pid ! idle || Pid <- workers(), _ <- [1, 2, 3]],
    until(fun() -> info(calls) =:= 0 end).

available_worker_never_gives_a_busy_one(_) ->
    start(?WORKERS),
    Job = fun(Timeout) -> weir_pool:claim(?POOL, fun who/1, Timeout) end,
    Busy = [holder() || _ <- lists:seq(1, ?WORKERS)],
    weir_kit:same(taken_twice, ?WORKERS, length(lists:usort([worker(Taken) || {_, Taken} <- Busy]))),
    ?assertEqual({error, timeout}, Job(20)),
    Waiting = weir_kit:start(fun() -> Job(infinity) end),
    await_waiting(1),
    {Half, Rest} = lists:split(?WORKERS div 2, Busy),
    [ok = run(User, fun() -> give_back(Taken) end) || {User, Taken} <- Half],
    ?assertMatch({ok, _}, weir_kit:result(Waiting)),
    %% Half of the workers are free, and serve many claims.
    Others = weir_kit:in_parallel([fun() -> Job(infinity) end || _ <- lists:seq(1, 20 * ?WORKERS)]),
    AtWork = [worker(Taken) || {_, Taken} <- Rest],
    weir_kit:none(second_holder, [Pid || {ok, Pid} <- Others, lists:member(Pid, AtWork)]),
    ?assertEqual(20 * ?WORKERS, length([Pid || {ok, Pid} <- Others])).

next_available_worker_does_not_wait(_) ->
    start(2),
    {_, First} = holder(),
    {ok, Other} = weir_pool:claim(?POOL, fun who/1),
    ?assertNotEqual(worker(First), Other),
    _ = holder(),
    ?assertEqual({error, busy}, weir_pool:claim(?POOL, fun who/1)).

%% The second half of the pool.
slot(View, none) -> weir_pool_strategy:size(View);
slot(View, {key, Key}) -> weir_pool_strategy:size(View) - erlang:phash2(Key, weir_pool_strategy:size(View) div 2).

a_strategy_of_ones_own(_) ->
    start(?WORKERS, #{strategy => ?MODULE}),
    {_, SecondHalf} = lists:split(?WORKERS div 2, workers()),
    ?assertEqual({ok, lists:last(workers())}, weir_pool:call(?POOL, whoever())),
    Of = fun(Key) ->
        {ok, Pid} = weir_pool:call_key(?POOL, Key, whoever()),
        Pid
    end,
    ?assertEqual(lists:sort(SecondHalf), lists:usort(lists:map(Of, lists:seq(1, 200)))).

no_such_pool_and_no_worker(_) ->
    Ways = [
        fun() -> weir_pool:call(?POOL, ping) end,
        fun() -> weir_pool:call_key(?POOL, key, ping) end,
        fun() -> weir_pool:cast(?POOL, ping) end,
        fun() -> weir_pool:pick(?POOL) end,
        fun() -> weir_pool:claim(?POOL, fun who/1) end
    ],
    ?assertEqual([{error, no_pool}], lists:usort([Way() || Way <- Ways])),
    ?assertEqual({error, no_pool}, weir_pool:broadcast(?POOL, ping)),
    start(2, #{restart => temporary}),
    [kill(Pid) || Pid <- workers()],
    until(fun() -> info(live) =:= 0 end),
    ?assertEqual([{error, no_worker}], lists:usort([Way() || Way <- Ways])),
    ?assertEqual({ok, 0}, weir_pool:broadcast(?POOL, ping)).

broadcast_reaches_every_worker(_) ->
    start(19),
    Test = self(),
    ?assertEqual({ok, 19}, weir_pool:broadcast(?POOL, {run, fun() -> Test ! {reached, self()} end})),
    Reached = [
        receive
            {reached, Pid} -> Pid
        end
     || _ <- lists:seq(1, 19)
    ],
    weir_kit:same(reached, lists:sort(workers()), lists:sort(Reached)).

asked(Request) ->
    {ok, Ids} = weir_pool:map(?POOL, fun(Worker) -> gen_server:send_request(Worker, Request) end),
    Ids.

broadcall(Request) -> [gen_server:receive_response(Id, infinity) || Id <- asked(Request)].

stats_of_one_pool_and_of_all(_) ->
    start(2),
    ok = weir_pool:start(another, opts(3, #{strategy => random})),
    [{ok, _} = weir_pool:pick(?POOL) || _ <- lists:seq(1, 10)],
    ?assertMatch({ok, #{name := ?POOL, size := 2, live := 2, picks := 10}}, weir_pool:info(?POOL)),
    All = [weir_pool:info(Name) || Name <- weir_pool:pools()],
    Sizes = [{Name, Size, Strategy} || {ok, #{name := Name, size := Size, strategy := Strategy}} <- All],
    ?assertEqual(lists:sort([{?POOL, 2, round_robin}, {another, 3, random}]), lists:sort(Sizes)),
    [?assertMatch({_, N} when N >= 0, process_info(Pid, message_queue_len)) || Pid <- workers()],
    ?assertEqual({error, no_pool}, weir_pool:info(nosuch)).

broadcall_asks_every_worker(_) ->
    start(19),
    ?assertEqual([{reply, Pid} || Pid <- workers()], broadcall(whoever())),
    [First | _] = workers(),
    ok = weir_pool_test_lib:busy(First),
    [OfFirst | Ids] = asked(whoever()),
    ?assertEqual([reply || _ <- Ids], [element(1, gen_server:receive_response(Id, infinity)) || Id <- Ids]),
    ?assertEqual(timeout, gen_server:receive_response(OfFirst, 200)),
    _ = weir_pool_test_lib:idle(First),
    Failed = broadcall({run, fun() -> exit(shutdown) end}),
    ?assertEqual(19, length([Pid || {error, {shutdown, Pid}} <- Failed])).

send_request_is_answered_later(_) ->
    start(2),
    {ok, Worker} = weir_pool:pick(?POOL),
    ok = weir_pool_test_lib:busy(Worker),
    Id = gen_server:send_request(Worker, whoever()),
    ?assertEqual(timeout, gen_server:wait_response(Id, 0)),
    _ = weir_pool_test_lib:idle(Worker),
    ?assertEqual({reply, Worker}, gen_server:wait_response(Id, infinity)).

a_call_that_times_out_exits(_) ->
    start(1),
    [Worker] = workers(),
    ok = weir_pool_test_lib:busy(Worker),
    ?assertExit({timeout, {gen_server, call, [Worker, ping, 20]}}, weir_pool:call(?POOL, ping, 20)),
    ?assertExit({timeout, _}, weir_pool:call_key(?POOL, key, ping, 20)),
    _ = weir_pool_test_lib:idle(Worker),
    ?assertEqual({ok, pong}, weir_pool:call(?POOL, ping)),
    ?assertEqual([Worker], workers()).

%% The worker is busy still, so the pool replaces it.
a_call_that_times_out_inside_a_claim_costs_the_worker(_) ->
    start(1, #{intensity => 0}),
    [Worker] = workers(),
    Stuck = {run, fun() -> receive never -> ok end end},
    ?assertExit({timeout, _}, weir_pool:claim(?POOL, fun(W) -> gen_server:call(W, Stuck, 20) end, 1000)),
    await_down(Worker),
    {ok, New} = weir_pool:claim(?POOL, fun who/1, weir_kit:wait_ms()),
    ?assertNotEqual(Worker, New),
    ?assertEqual(1, info(abandoned)).

%% worker_pool's `overrun_warning' with `max_overrun_warnings': the task is killed, and so is the worker.
work_that_overruns_is_killed_with_its_worker(_) ->
    start(1, #{intensity => 0}),
    [Worker] = workers(),
    Test = self(),
    Task = fun(W) ->
        Test ! {task, self()},
        gen_server:call(W, {run, fun() -> receive never -> ok end end}, infinity)
    end,
    ?assertEqual({error, timeout}, weir_pool:claim(?POOL, Task, #{timeout => 2000, covers => work})),
    receive
        {task, Pid} -> await_down(Pid)
    end,
    await_down(Worker),
    {ok, New} = weir_pool:claim(?POOL, fun who/1, weir_kit:wait_ms()),
    ?assertNotEqual(Worker, New),
    ?assertMatch({ok, #{abandoned := 1, timeouts := 1}}, weir_pool:info(?POOL)),
    ?assertEqual([], weir_kit:messages()).

work_that_is_done_in_time_is_not(_) ->
    start(1),
    [Worker] = workers(),
    Opts = #{timeout => weir_kit:wait_ms(), covers => work},
    ?assertEqual({ok, Worker}, weir_pool:claim(?POOL, fun who/1, Opts)),
    ?assertError(mistake, weir_pool:claim(?POOL, fun(_) -> error(mistake) end, Opts)),
    ?assertEqual([Worker], workers()),
    ?assertEqual(#{available => 1, overflow => 0, monitors => 0}, status()).

work_may_not_take_for_ever(_) ->
    start(1),
    ?assertError(badarg, weir_pool:claim(?POOL, fun who/1, #{covers => work})),
    ?assertEqual(1, info(live)).

%% Free workers do the casts. A worker that crashes loses no cast that waits.
casts_to_an_available_worker(_) ->
    start(1),
    Test = self(),
    Cast = fun(N) ->
        Work = fun(Worker) ->
            gen_server:call(Worker, {run, fun() -> Test ! {done, N}, N =:= 2 andalso exit(crash) end}, wait_ms())
        end,
        spawn(fun() -> weir_pool:claim(?POOL, Work, #{timeout => infinity}) end)
    end,
    Taken = take(),
    [
        begin
            _ = Cast(N),
            await_waiting(N)
        end
     || N <- lists:seq(1, 5)
    ],
    ok = give_back(Taken),
    [
        receive
            {done, N} -> ok
        end
     || N <- lists:seq(1, 5)
    ],
    await_status(1, 0, 0).

permits_bound_how_many_work_at_once(_) ->
    start(3, #{abandoned => free}),
    AtWork = atomics:new(2, []),
    Task = fun(_) ->
        Now = atomics:add_get(AtWork, 1, 1),
        ok = highest(AtWork, Now),
        receive
        after 1 -> atomics:sub(AtWork, 1, 1)
        end
    end,
    Results = weir_kit:in_parallel([fun() -> weir_pool:claim(?POOL, Task, infinity) end || _ <- lists:seq(1, 60)]),
    ?assertEqual([{ok, ok}], lists:usort(Results)),
    weir_kit:none(too_many_at_work, [Highest || Highest <- [atomics:get(AtWork, 2)], Highest > 3]),
    ?assertEqual({0, 3}, {atomics:get(AtWork, 1), atomics:get(AtWork, 2)}).

highest(AtWork, Now) ->
    case atomics:get(AtWork, 2) of
        Highest when Now > Highest ->
            case atomics:compare_exchange(AtWork, 2, Highest, Now) of
                ok -> ok;
                _Changed -> highest(AtWork, Now)
            end;
        _ ->
            ok
    end.

a_worker_that_crashes_is_started_again(_) ->
    start(2),
    [First, Second] = workers(),
    ?assertExit({crash, _}, gen_server:call(First, {run, fun() -> exit(crash) end}, wait_ms())),
    until(fun() -> info(live) =:= 2 andalso not lists:member(First, workers()) end),
    ?assert(lists:member(Second, workers())),
    ?assertEqual(1, info(restarts)),
    %% A worker that ends in order is started again too.
    ok = gen_server:stop(Second),
    until(fun() -> info(restarts) =:= 2 end).

workers_that_crash_too_often_end_the_pool(_) ->
    start(1, #{intensity => 1, period => 3600}),
    [First] = workers(),
    kill(First),
    %% A restart is counted before the new worker is there.
    until(fun() ->
        case workers() of
            [New] -> New =/= First;
            _ -> false
        end
    end),
    ?assertEqual(1, info(restarts)),
    [Second] = workers(),
    kill(Second),
    until(fun() -> weir_pool:info(?POOL) =:= {error, no_pool} end),
    ?assertEqual(no_pool, take()),
    until(fun() -> weir_pool_test_lib:workers_alive() =:= [] end).

workers_may_crash_as_often_as_they_like(_) ->
    start(2, #{start => async, backoff => {1, 2}}),
    until(fun() -> info(live) =:= 2 end),
    [
        begin
            Killed = hd(workers()),
            kill(Killed),
            until(fun() ->
                Workers = workers(),
                info(restarts) =:= N andalso length(Workers) =:= 2 andalso not lists:member(Killed, Workers)
            end)
        end
     || N <- lists:seq(1, 30)
    ],
    await_status(2, 0, 0).

the_whole_pool_is_started_again_when_its_root_is_killed(_) ->
    start(?WORKERS),
    Old = workers(),
    Taken = take(),
    weir_pool_test_lib:kill_manager(?POOL),
    [await_down(Pid) || Pid <- Old],
    ?assertEqual(?WORKERS, length(workers() -- Old)),
    ?assertEqual({error, worker_down}, give_back(Taken)),
    ?assertEqual({ok, pong}, weir_pool:call(?POOL, ping)).

stop_ends_everything(_) ->
    start(?WORKERS),
    Workers = workers(),
    Root = weir_pool_test_lib:manager(?POOL),
    Waiting = [holder() || _ <- Workers] =/= [] andalso weir_kit:start(fun() -> take(infinity) end),
    await_waiting(1),
    ?assertEqual(ok, weir_pool:stop(?POOL)),
    ?assertEqual(no_pool, weir_kit:result(Waiting)),
    ?assertEqual([], [Pid || Pid <- [Root | Workers], is_process_alive(Pid)]),
    ?assertEqual({error, no_pool}, weir_pool:stop(?POOL)).

workers_are_given_time_to_stop_or_not(_) ->
    [
        begin
            start(1, #{worker => {weir_pool_test_worker, start_slow_to_stop, [self()]}, shutdown => Shutdown}),
            [Worker] = workers(),
            Monitor = monitor(process, Worker),
            Stopping = weir_kit:start(fun() -> weir_pool:stop(?POOL) end),
            _ = [
                receive
                    {stopping, Worker} -> Worker ! go
                end
             || Expected =:= shutdown
            ],
            ?assertEqual(ok, weir_kit:result(Stopping)),
            receive
                {'DOWN', Monitor, process, Worker, Reason} -> ?assertEqual(Expected, Reason)
            end
        end
     || {Shutdown, Expected} <- [{weir_kit:wait_ms(), shutdown}, {brutal_kill, killed}]
    ].

options_are_maps_or_lists(_) ->
    Opts = opts(2, #{strategy => random, overflow => #{max => 1, linger => 5}}),
    Lists = [{overflow, [{max, 1}, {linger, 5}]} | maps:to_list(maps:remove(overflow, Opts))],
    [
        begin
            ok = weir_pool:start(?POOL, Given),
            ?assertMatch({ok, #{size := 2, limit := 3, strategy := random}}, weir_pool:info(?POOL)),
            ok = weir_pool:stop(?POOL)
        end
     || Given <- [Opts, Lists]
    ],
    ?assertEqual({error, {missing_option, size}}, weir_pool:start(?POOL, #{worker => ?WORKER})),
    ?assertEqual({error, {missing_option, worker}}, weir_pool:start(?POOL, [{size, 100}])),
    ?assertEqual({error, {bad_option, workers, 5}}, weir_pool:start(?POOL, [{workers, 5}, {worker, none}])),
    ?assertEqual(ok, supervisor:check_childspecs([weir_pool:child_spec(?POOL, Given) || Given <- [Opts]])).

a_pool_of_supervisors(_) ->
    Child = #{id => worker, start => ?WORKER},
    start(2, #{worker => {supervisor, start_link, [weir_pool_test_lib, {#{}, [Child]}]}}),
    {ok, Children} = weir_pool:map(?POOL, fun supervisor:which_children/1),
    Workers = [Pid || [{worker, Pid, worker, _}] <- Children],
    ?assertEqual(2, length(lists:usort(Workers))),
    [Sup, _] = workers(),
    kill(Sup),
    until(fun() -> info(restarts) =:= 1 end),
    until(fun() -> length(weir_pool_test_lib:workers_alive()) =:= 2 end),
    ok = weir_pool:stop(?POOL),
    ?assertEqual([], weir_pool_test_lib:workers_alive()).

%% ---------------------------------------------------------------- what is different, and why
%%
%% All three
%%
%% - Errors are values (`no_pool', `busy', `timeout', ...), where poolboy and worker_pool exit: a pool that is busy, or
%%   not there, is no fault of the caller's.
%% - A claim is given back by its ticket, not by the worker's pid. A second checkin returns
%%   `not_held', or `worker_down' if the worker is dead, and does nothing. poolboy and pooler return `ok', also for a
%%   pid that they have never seen. pooler's `return_member' of `error_no_members' has no counterpart, as no ticket
%%   exists.
%% - Which of several free workers is next is not promised: a claim begins to look with the one that its process had
%%   last, so that it asks nobody. poolboy's `strategy' and pooler's "most recent first" are not there.
%% - The worker of an owner that ended without giving it back, even with reason `normal', is replaced, as it may be busy
%%   with what that owner asked of it. Taking it back as it is: `abandoned => free'.
%% - The processes of a pool have no registered names, and its name is local and any term.
%%
%% poolboy
%%
%% - While there are more than `size' workers, poolboy dismisses whichever comes back. Here it is always one of those
%%   above `size', since picks go by the slots up to it: when the others come back first, there are more for a while.
%% - A worker of the first `size' that dies is always followed by another. poolboy lets the overflow shrink instead.
%% - A checkout that does not wait gets `busy' though there is room for overflow; a worker is started for the next. In
%%   poolboy the caller waits for its start, and with it everybody else.
%% - The time-out 0 means not to wait. poolboy's transaction with it exits even if a worker is free.
%% - A pool of size 0 without overflow, which poolboy starts and which is full for ever, is refused.
%% - A start that fails, after the pool's own, is tried again; poolboy's pool ends.
%%
%% pooler
%%
%% - Groups: the names of the pools in a list, or a supervisor over them.
%% - Excess members go when they have been free for `linger', to the millisecond, and not at the next of some rounds.
%% - `member_start_timeout': a start takes as long as it takes, and holds up nobody but those who wait for that member.
%% - Metrics are not called back, but polled; options other than the size are not changed while a pool runs.
%%
%% worker_pool
%%
%% - The strategy belongs to the pool, not to the call, but keys and claims go with any; and a pool that is claimed from
%%   should not be called by strategy, which does not heed claims.
%% - `next_worker': one caller sees the workers in turn as long as it stays on its scheduler. Each scheduler has a
%%   turn of its own, so that they do not wait for each other.
%% - `best_worker' goes by the calls under way, not by mailboxes: those of all workers would have to be read each time.
%% - Overruns are not reported. Work that takes too long is killed, if it is told how long it may take.
%% - Casts are not queued by the pool. Who wants a free worker for one waits in a process of its own.
%% - There are no callbacks on the workers' lives, and no tasks in the statistics.
%% - Stopping a pool that is not there is `{error, no_pool}', not `ok'.
