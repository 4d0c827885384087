%% Faults that weir_pool_claims_prop_SUITE has found, or that were found beside these. Each is a case that does not
%% depend on chance.
-module(weir_pool_claims_found_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).
-import(weir_pool_claim_lib, [start/1, start/2, workers/0, manager/0, queue/0]).

-define(POOL, weir_pool_claim_lib).

all() -> weir_kit:cases(?MODULE).

init_per_testcase(_Case, Config) -> weir_pool_claim_lib:set_up(Config).

end_per_testcase(_Case, Config) -> weir_pool_claim_lib:tear_down(Config).

%% ---------------------------------------------------------------- overflow

%% The claimer knows the pool as it was at its claim, where the slot was none for overflow.
worker_that_is_claimed_when_it_becomes_one_for_overflow_goes_when_released(_Config) ->
    ok = start(3, #{overflow => #{max => 2, linger => 0}}),
    Tickets = [Ticket || {ok, _, Ticket} <- [weir_pool:checkout(?POOL, 0) || _ <- [1, 2, 3]]],
    ?assertEqual(ok, weir_pool:resize(?POOL, 1)),
    ?assertEqual(3, length(workers())),
    _ = [?assertEqual(ok, weir_pool:checkin(?POOL, Ticket)) || Ticket <- Tickets],
    until(fun() -> length(workers()) =:= 1 orelse workers() end).

worker_for_overflow_without_linger_serves_those_who_wait_for_it(_Config) ->
    ok = start(1, #{overflow => #{max => 1, linger => 0}}),
    {ok, Worker, Ticket} = weir_pool:checkout(?POOL, 0),
    {ok, Another, AnotherTicket} = weir_pool:checkout(?POOL, weir_kit:wait_ms()),
    ?assertNotEqual(Worker, Another),
    ?assertEqual(ok, weir_pool:checkin(?POOL, AnotherTicket)),
    until(fun() -> workers() =:= [Worker] orelse workers() end),
    ?assertEqual(ok, weir_pool:checkin(?POOL, Ticket)).

%% A waiter has the worker before the manager starts the linger timer. Otherwise the time would run from the start of
%% the worker on, and a worker without linger would stay for a second.
worker_for_overflow_that_is_claimed_at_once_lingers_from_its_release_on(_Config) ->
    ok = start(2),
    {ok, _, Ticket} = weir_pool:checkout(?POOL, 0),
    Taken = weir_pool:slot(Ticket),
    {ok, Conf} = weir_pool_opts:check(#{size => 0, worker => {m, f, []}, overflow => #{max => 2, linger => 0}}),
    Slots = weir_pool_slots:new(?POOL, Conf, weir_pool_terms:pool(?POOL)),
    New = weir_pool_overflow:new(),
    ?assertEqual(New, weir_pool_overflow:started(Taken, New, Slots)),
    ?assertNotEqual(New, weir_pool_overflow:started(3 - Taken, New, Slots)),
    ?assertEqual(ok, weir_pool:checkin(?POOL, Ticket)).

%% ---------------------------------------------------------------- replacements

%% The replacement waits for the release. Its time is over, then the worker is given back, and then the manager hears of
%% both.
worker_given_back_as_failed_is_not_kept_because_its_replacement_has_timed_out(_Config) ->
    ok = start(1),
    {ok, Worker, Ticket} = weir_pool:checkout(?POOL, 0),
    replacement_has_timed_out_before(fun() -> ?assertEqual(ok, weir_pool:checkin(?POOL, Ticket, fail)) end),
    is_replaced(Worker).

worker_left_busy_is_not_kept_because_its_replacement_has_timed_out(_Config) ->
    ok = start(1),
    [Worker] = workers(),
    Timeout = {timeout, {gen_server, call, [Worker, ping]}},
    {Pid, _} = Claimer = weir_kit:start(fun() ->
        weir_pool:claim(?POOL, fun(_) ->
            receive
                fail -> exit(Timeout)
            end
        end)
    end),
    until(fun() -> weir_pool_life_lib:word(?POOL, 1) =:= taken end),
    replacement_has_timed_out_before(fun() ->
        Pid ! fail,
        ?assertError({crashed, Timeout}, weir_kit:result(Claimer))
    end),
    is_replaced(Worker).

replacement_has_timed_out_before(Do) -> replacement_has_timed_out_before(Do, 100).

%% On a busy machine the time may be over before the manager is suspended: then it has to be longer.
replacement_has_timed_out_before(Do, Timeout) ->
    Manager = manager(),
    {Pid, _} = Replacer = weir_kit:start(fun() -> weir_pool:replace(?POOL, 1, Timeout) end),
    until(fun() -> weir_pool_life_lib:word(?POOL, 1) =:= marked orelse not is_process_alive(Pid) end),
    ok = sys:suspend(Manager),
    until(fun() -> weir_pool_test_lib:has_late_change(Manager) orelse not is_process_alive(Pid) end),
    IsBefore = weir_pool_test_lib:has_late_change(Manager),
    _ = IsBefore andalso Do(),
    ok = sys:resume(Manager),
    ?assertEqual({error, timeout}, weir_kit:result(Replacer)),
    IsBefore orelse replacement_has_timed_out_before(Do, 2 * Timeout).

is_replaced(Worker) ->
    until(fun() ->
        case workers() of
            [Other] when Other =/= Worker -> not is_process_alive(Worker);
            Same -> {Same, weir_pool_life_lib:word(?POOL, 1)}
        end
    end).

%% ---------------------------------------------------------------- processes that connect themselves

%% The process waits for the end of a claim, whose claimer has seen the process dead.
process_that_has_died_while_it_waited_to_be_connected_again_is_not(_Config) ->
    ok = weir_pool:start(?POOL, #{worker => none}),
    {ok, 1} = weir_pool:add_worker(?POOL, member),
    {ok, Member} = gen_server:start(weir_pool_life_worker, plain, []),
    {ok, 1} = gen_server:call(Member, {run, fun() -> weir_pool:connect(?POOL, member) end}),
    {ok, Member, Ticket} = weir_pool:checkout(?POOL, 0),
    ok = gen_server:cast(Member, {run, fun() ->
        ok = weir_pool:disconnect(?POOL, member),
        weir_pool:connect(?POOL, member)
    end}),
    until(fun() -> is_waiting_for(manager(), Member) end),
    weir_kit:kill(Member),
    ?assertEqual(ok, weir_pool:checkin(?POOL, Ticket)),
    {ok, [{member, 1}]} = weir_pool:added_workers(?POOL),
    %% The dead process was not connected for a moment either.
    {ok, #{live := Live, restarts := Restarts}} = weir_pool:info(?POOL),
    ?assertEqual({0, 0}, {Live, Restarts}).

%% Returns whether the member has disconnected itself, and the manager has read its next request.
is_waiting_for(Manager, Member) ->
    IsDisconnected = weir_pool:workers(?POOL) =:= {ok, []},
    {monitors, Monitors} = process_info(Member, monitors),
    IsAsking = lists:member({process, Manager}, Monitors),
    {ok, _} = weir_pool:added_workers(?POOL),
    IsDisconnected andalso IsAsking andalso process_info(Member, monitors) =:= {monitors, Monitors}.

%% ---------------------------------------------------------------- ends

%% The manager has lost its queue, and waits for its worker to stop, when another process stops the pool.
pool_that_is_stopped_while_it_crashes_does_not_come_back(_Config) ->
    Test = self(),
    %% The first worker that stops is the test's; others, should there be any, need not wait.
    Told = spawn_link(fun() ->
        receive
            {stopping, _} = First -> Test ! First
        end,
        let_go()
    end),
    ok = start(1, #{worker => {weir_pool_life_worker, start_slow_to_stop, [Told]}, shutdown => 60000}),
    Manager = manager(),
    exit(queue(), kill),
    Worker =
        receive
            {stopping, Stopping} -> Stopping
        end,
    {Pid, _} = Stopper = weir_kit:start(fun() -> weir_pool:stop(?POOL) end),
    until(fun() -> {monitored_by, Pids} = process_info(Manager, monitored_by), lists:member(Pid, Pids) end),
    Worker ! go,
    ?assertEqual(ok, weir_kit:result(Stopper)),
    %% The supervisor answers after it has handled the end of the pool.
    _ = supervisor:which_children(weir_pool_pools_sup),
    ?assertEqual([], weir_pool:pools()).

let_go() ->
    receive
        {stopping, Worker} -> Worker ! go
    end,
    let_go().
