%% Senders that wait for the limit: their order, their cost for the receiver, and the death of each process involved.
-module(weir_flow_queue_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, queue_len/1, until/1]).
-import(weir_flow_test_lib, [async/1, result/1]).
-import(weir_flow_test_limited, [
    full/1, finish/3, cast/3, cast/4, casts/3, waiters/2, served/1, info/2, queue/1
]).

-define(RECEIVER, weir_flow_test_limited).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_flow),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = application:stop(weir_flow),
    weir_flow_test_lib:no_stray().

%% ---------------------------------------------------------------- order and cost

waiters_cost_the_receiver_one_request(_Config) ->
    Pid = full(3),
    Waiters = waiters(Pid, lists:seq(1, 100)),
    %% The messages under the limit, the request of the queue, and the request of the limits to a quiet receiver.
    Length = queue_len(Pid),
    ?assert(Length =< 3 + 1 + 1, Length),
    ?assertEqual(100, info(waits, Pid)),
    finish(Pid, Waiters, lists:seq(1, 100)).

%% A waiter that the scheduler delays may be overtaken, so the case asserts on the mean. If the last waiter were served
%% first, the mean would be 50.
the_longest_wait_is_served_first(_Config) ->
    Pid = full(2),
    Waiters = waiters(Pid, lists:seq(1, 100)),
    ok = weir_flow_test_receiver:release(Pid),
    served(Waiters),
    Moved = [abs(N - Place) || {Place, N} <- lists:enumerate(weir_flow_test_receiver:notes(Pid))],
    ?assert(lists:sum(Moved) div length(Moved) =< 5, Moved),
    finish(Pid, [], lists:seq(1, 100)).

%% The queue is suspended, so that a waiter stays in the queue although there is room.
newcomers_do_not_overtake_waiters(_Config) ->
    Pid = full(3),
    Waiters = waiters(Pid, [1]),
    ok = sys:suspend(queue(Pid), infinity),
    ok = weir_flow_test_receiver:release(Pid),
    until(fun() -> info(in_flight, Pid) =:= 0 end),
    ?assertEqual([{error, busy}], casts(Pid, [{note, no}], busy)),
    ?assertEqual({error, timeout}, result(async(fun() -> cast(Pid, {note, no}, wait, 1) end))),
    ok = sys:resume(queue(Pid), infinity),
    served(Waiters),
    ?assertEqual([ok], casts(Pid, [{note, 2}], busy)),
    finish(Pid, [], [1, 2]).

%% The receiver is blocked, so that only a tick of the queue finds the room.
a_changed_limit_holds_at_once(_Config) ->
    Pid = full(1),
    Waiters = waiters(Pid, [1, 2, 3]),
    ok = weir_flow:limit(Pid, 4),
    until(fun() -> info(queued, Pid) =:= 0 andalso info(in_flight, Pid) =:= 4 end),
    ok = weir_flow:limit(Pid, 3),
    ?assertEqual([{error, busy}], casts(Pid, [no], busy)),
    ?assertEqual({4, 3}, {info(in_flight, Pid), info(limit, Pid)}),
    finish(Pid, Waiters, [1, 2, 3]).

%% A sender whose time is over lives on, and leaves neither a place in the queue nor a monitor.
a_waiter_whose_time_is_over_leaves_the_queue(_Config) ->
    Pid = full(1),
    ok = result(async(fun() ->
        [?assertEqual({error, timeout}, cast(Pid, {note, no}, wait, Ms)) || Ms <- [0, 1, 5, 0, 1, 5]],
        until(fun() -> info(queued, Pid) =:= 0 end),
        ?assertEqual({monitors, [{process, Pid}]}, process_info(queue(Pid), monitors))
    end)),
    finish(Pid, [], []).

%% ---------------------------------------------------------------- deaths and suspensions

waiters_that_are_killed_delay_no_others(_Config) ->
    Pid = full(1),
    Waiters = waiters(Pid, lists:seq(1, 40)),
    {Killed, Others} = lists:split(20, Waiters),
    [kill(Waiter) || Waiter <- Killed],
    until(fun() -> info(queued, Pid) =:= 20 end),
    finish(Pid, Others, lists:seq(21, 40)).

%% The queue wakes twice as many senders at each tick. With one sender at each tick, the last one would wait for 90 s.
waiters_that_are_suspended_delay_no_others(_Config) ->
    Pid = full(1),
    Suspended = [async(fun() -> cast(Pid, {note, N}, wait) end) || N <- lists:seq(1, 3000)],
    until(fun() -> info(queued, Pid) =:= 3000 end),
    [true = erlang:suspend_process(Waiter) || {Waiter, _} <- Suspended],
    Others = waiters(Pid, [3001]),
    ok = weir_flow_test_receiver:release(Pid),
    served(Others),
    [true = erlang:resume_process(Waiter) || {Waiter, _} <- Suspended],
    finish(Pid, Suspended, lists:seq(1, 3001)).

%% The waiters are suspended, so that no request of a waiter starts another queue. A queue that has ended refuses no
%% sender. When the waiters are resumed, they repeat their requests.
waiters_outlive_their_queue(_Config) ->
    Pid = full(2),
    Waiters = waiters(Pid, lists:seq(1, 20)),
    [true = erlang:suspend_process(Waiter) || {Waiter, _} <- Waiters],
    kill(queue(Pid)),
    until(fun() -> info(queued, Pid) =:= 0 end),
    ok = weir_flow_test_receiver:release(Pid),
    until(fun() -> info(in_flight, Pid) =:= 0 end),
    ?assertEqual([ok], casts(Pid, [{note, 21}], busy)),
    [true = erlang:resume_process(Waiter) || {Waiter, _} <- Waiters],
    finish(Pid, Waiters, lists:seq(1, 21)).

waiters_hear_of_the_end_of_the_receiver(_Config) ->
    Pid = full(1),
    Waiters = waiters(Pid, [1, 2, 3]),
    Queue = queue(Pid),
    kill(Pid),
    [?assertEqual({error, noproc}, result(Waiter)) || Waiter <- Waiters],
    until(fun() -> not is_process_alive(Queue) end).

waiters_hear_of_the_end_of_the_application(_Config) ->
    Pid = full(1),
    Waiters = waiters(Pid, [1, 2, 3]),
    ok = application:stop(weir_flow),
    [?assertEqual({error, {not_started, weir_flow}}, result(Waiter)) || Waiter <- Waiters],
    kill(Pid).

%% A callback throws two messages, the request of the queue, and the request of the limits away. The limits ask again,
%% and give the credits back.
waiters_outlive_a_flush_of_the_receiver(_Config) ->
    Pid = ?RECEIVER:start(2),
    ok = weir_flow_test_receiver:flush(Pid),
    [ok, ok] = casts(Pid, [{note, lost}, {note, lost}], busy),
    Waiters = waiters(Pid, [1, 2, 3]),
    until(fun() ->
        ok = weir_flow_limits:sample(),
        queue_len(Pid) =:= 2 + 1 + 1
    end),
    ok = weir_flow_test_receiver:release(Pid),
    until(fun() ->
        ok = weir_flow_limits:sample(),
        info(mended, Pid) =:= 2
    end),
    finish(Pid, Waiters, [1, 2, 3]).

%% ---------------------------------------------------------------- random sequences

-define(STATEM, weir_flow_test_machine).
-define(SENDERS, [s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12]).

initial_state() -> maps:from_list([{?MODULE, running} | [{Sender, sending} || Sender <- ?SENDERS]]).

command(State) ->
    How = ?LET({Limit, Timeout}, {oneof([wait, busy]), oneof([0, 1, 20, infinity])},
        #{limit => Limit, timeout => Timeout, window => 1000}),
    frequency([
        {100, {call, ?STATEM, cast, [elements(?SENDERS), ?MODULE, How, range(1, 5)]}},
        {5, {call, ?MODULE, kill_queue, []}},
        {3, {call, ?MODULE, kill_limits, []}},
        {5, {call, ?MODULE, set_limit, [range(1, 6)]}}
        | ?STATEM:changes(State)
    ]).

precondition(State, Call) -> ?STATEM:precondition(State, Call).

next_state(State, _Result, Call) -> ?STATEM:next_state(State, Call).

postcondition(_State, _Call, Result) -> Result =:= ok.

kill_queue() ->
    [kill(Queue) || {_, _, _, Queue} <- [weir_flow_limit:row(whereis(?MODULE))], is_pid(Queue)],
    ok.

%% A supervisor may end that starts more than ten children again in five seconds, so the kills are rare.
kill_limits() ->
    kill(whereis(weir_flow_limits)),
    until(fun() -> is_pid(whereis(weir_flow_limits)) end).

set_limit(Max) -> weir_flow:limit(whereis(?MODULE), Max).

random_sequences(_Config) -> ?STATEM:holds(?MODULE, weir_kit:long(40, 400), 60).

set_up() -> ?STATEM:set_up([{?MODULE, fun() -> ?RECEIVER:start(3) end}], ?SENDERS).

wrong(State) -> ?STATEM:wrong(State, fun faults/1).

%% Waits until the limits have mended the credits of killed senders.
faults(Pid) ->
    until(fun() ->
        ok = weir_flow_limits:sample(),
        info(in_flight, Pid) =:= 0 andalso info(queued, Pid) =:= 0
    end),
    [{above_the_limit, Most} || Most <- [?RECEIVER:most(Pid)], Most > 6].
