%% The limit over all senders: the bound, senders that wait in a queue, and the count after deaths.
-module(weir_flow_limit_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, queue_len/1, until/1, wait_ms/0]).
-import(weir_flow_test_lib, [async/1, result/1]).
-import(weir_flow_test_receiver, [notes/1, release/1]).
-import(weir_flow_test_limited, [
    full/1, finish/3, cast/3, cast/4, casts/3, waiters/2, served/1, info/2, queue/1
]).

-define(RECEIVER, weir_flow_test_limited).
-define(BUSY, {error, busy}).
-define(NOT_STARTED, {error, {not_started, weir_flow}}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_flow),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = application:stop(weir_flow),
    weir_flow_test_lib:no_stray().

sample_until(IsTrue) -> until(fun() -> weir_flow_limits:sample() =:= ok andalso IsTrue() end).

%% ---------------------------------------------------------------- credits

envelopes(_Config) ->
    {Plain, _} = weir_kit:start(fun() -> receive never -> ok end end),
    ok = weir_flow:limit(Plain, 10),
    result(async(fun() ->
        ok = weir_flow:cast(Plain, a, #{limit => busy}),
        ok = weir_flow:send(Plain, b, #{limit => wait}),
        ok = weir_flow:send(Plain, c),
        {ok, Flow} = weir_flow:cast_with(weir_flow:new(Plain, #{limit => busy}), d),
        {ok, _} = weir_flow:send_with(Flow, e)
    end)),
    {_, Words, 10, none} = weir_flow_limit:row(Plain),
    Casts = [{'$weir_credit', Words, {'$gen_cast', Message}} || Message <- [a, d]],
    Sends = [{'$weir_credit', Words, Message} || Message <- [b, e]],
    {messages, Messages} = process_info(Plain, messages),
    ok = weir_kit:none(lost, [c | Casts ++ Sends] -- Messages),
    ?assertEqual(4, info(in_flight, Plain)),
    kill(Plain).

%% ---------------------------------------------------------------- senders that wait

%% A waiter that the scheduler delays may be overtaken, so the case asserts on the mean. If the last waiter were served
%% first, the mean would be 50.
waiters_are_served_in_their_order(_Config) ->
    Pid = full(2),
    Waiters = waiters(Pid, lists:seq(1, 100)),
    %% The messages under the limit, the request of the queue, and the request of the limits to a quiet receiver.
    Length = queue_len(Pid),
    ?assert(Length =< 2 + 1 + 1, Length),
    ?assertEqual(100, info(waits, Pid)),
    ok = release(Pid),
    served(Waiters),
    Moved = [abs(N - Place) || {Place, N} <- lists:enumerate(notes(Pid))],
    ?assert(lists:sum(Moved) div length(Moved) =< 5, Moved),
    finish(Pid, [], lists:seq(1, 100)).

%% The queue wakes a sender only for room that no other woken sender takes, so most senders try once. Otherwise they try
%% five times on average.
woken_senders_find_room(_Config) ->
    Pid = ?RECEIVER:start(2),
    1 = erlang:trace_pattern({weir_flow_limit, take_woken, 1}, true, [call_count]),
    Casts = fun() -> lists:foreach(fun(N) -> ok = cast(Pid, {note, N}, wait) end, lists:seq(1, 20)) end,
    served([async(Casts) || _ <- lists:seq(1, 200)]),
    {call_count, Tries} = erlang:trace_info({weir_flow_limit, take_woken, 1}, call_count),
    1 = erlang:trace_pattern({weir_flow_limit, take_woken, 1}, false, [call_count]),
    ?assert(Tries < 2 * info(waits, Pid)),
    kill(Pid).

%% The queue is suspended, so that a waiter stays in the queue although there is room.
newcomers_do_not_overtake_waiters(_Config) ->
    Pid = full(3),
    Waiters = waiters(Pid, [1]),
    ok = sys:suspend(queue(Pid), infinity),
    ok = release(Pid),
    until(fun() -> info(in_flight, Pid) =:= 0 end),
    ?assertEqual([?BUSY], casts(Pid, [{note, no}], busy)),
    ?assertEqual({error, timeout}, result(async(fun() -> cast(Pid, {note, no}, wait, 1) end))),
    ok = sys:resume(queue(Pid), infinity),
    served(Waiters),
    ?assertEqual([ok], casts(Pid, [{note, 2}], busy)),
    finish(Pid, [], [1, 2]).

%% Senders that are refused try again at once. Without the order they would take each credit before a waiter is
%% scheduled.
refused_senders_do_not_starve_waiters(_Config) ->
    Pid = full(1),
    Waiters = waiters(Pid, lists:seq(1, 30)),
    Cast = fun Cast() -> _ = cast(Pid, {note, busy}, busy), Cast() end,
    Busy = [spawn(Cast) || _ <- lists:seq(1, 8)],
    ok = release(Pid),
    served(Waiters),
    Passed = length(lists:takewhile(fun(Note) -> Note =/= 30 end, [Note || Note <- notes(Pid), Note >= 30])),
    [kill(Sender) || Sender <- Busy],
    ?assert(Passed =< 90, Passed),
    kill(Pid).

%% The receiver is blocked, so that only a tick of the queue finds the room.
a_changed_limit_holds_at_once(_Config) ->
    Pid = full(1),
    Waiters = waiters(Pid, [1, 2, 3]),
    ok = weir_flow:limit(Pid, 4),
    until(fun() -> info(queued, Pid) =:= 0 andalso info(in_flight, Pid) =:= 4 end),
    ok = weir_flow:limit(Pid, 3),
    ?assertEqual([?BUSY], casts(Pid, [no], busy)),
    ?assertEqual({4, 3}, {info(in_flight, Pid), info(limit, Pid)}),
    finish(Pid, Waiters, [1, 2, 3]).

%% A sender whose time is over lives on, and leaves neither a place in the queue nor a monitor.
a_waiter_whose_time_is_over_leaves_the_queue(_Config) ->
    Pid = full(1),
    ok = result(async(fun() ->
        [?assertEqual({error, timeout}, cast(Pid, {note, no}, wait, Ms)) || Ms <- [0, 1, 5, 0, 1, 5]],
        until(fun() -> process_info(queue(Pid), monitors) =:= {monitors, [{process, Pid}]} end),
        ?assertEqual(0, info(queued, Pid))
    end)),
    finish(Pid, [], []).

%% The sender waits for a queue, which cannot be started meanwhile.
a_time_limit_holds_without_a_queue(_Config) ->
    Pid = full(1),
    [
        begin
            ok = sys:suspend(Server, infinity),
            ?assertEqual({error, timeout}, result(async(fun() -> cast(Pid, {note, no}, wait, 50) end))),
            ok = sys:resume(Server, infinity)
        end
     || Server <- [weir_flow_queues_sup, weir_flow_limits]
    ],
    finish(Pid, [], []).

%% The queue wakes twice as many senders at each tick. With one sender at each tick, the last one would wait for 80 s.
waiters_that_are_killed_or_suspended_delay_no_others(_Config) ->
    Pid = full(1),
    Waiters = [async(fun() -> cast(Pid, {note, N}, wait) end) || N <- lists:seq(1, 3000)],
    until(fun() -> info(queued, Pid) =:= 3000 end),
    {Killed, Suspended} = lists:split(500, Waiters),
    [kill(Waiter) || Waiter <- Killed],
    [true = erlang:suspend_process(Waiter) || {Waiter, _} <- Suspended],
    until(fun() -> info(queued, Pid) =:= 2500 end),
    Others = waiters(Pid, [3001]),
    ok = release(Pid),
    served(Others),
    %% The suspended senders have been woken. When these senders go on, they find no room, and keep their places.
    until(fun() -> info(queued, Pid) =:= 0 andalso info(in_flight, Pid) =:= 0 end),
    ok = weir_flow_test_receiver:block(Pid),
    until(fun() -> casts(Pid, [other], busy) =:= [ok] end),
    Last = waiters(Pid, [3002]),
    [true = erlang:resume_process(Waiter) || {Waiter, _} <- Suspended],
    until(fun() -> info(queued, Pid) =:= 2501 end),
    ok = release(Pid),
    served(Suspended ++ Last),
    ?assert(lists:member(3002, lists:nthtail(1000, notes(Pid)))),
    finish(Pid, [], lists:seq(501, 3002)).

%% The waiters are suspended, so that no request of a waiter starts another queue. A queue that has ended refuses no
%% sender. When the waiters are resumed, they repeat their requests.
waiters_outlive_their_queue(_Config) ->
    Pid = full(2),
    Waiters = waiters(Pid, lists:seq(1, 20)),
    [true = erlang:suspend_process(Waiter) || {Waiter, _} <- Waiters],
    kill(queue(Pid)),
    until(fun() -> info(queued, Pid) =:= 0 end),
    ok = release(Pid),
    until(fun() -> info(in_flight, Pid) =:= 0 end),
    ?assertEqual([ok], casts(Pid, [{note, 21}], busy)),
    [true = erlang:resume_process(Waiter) || {Waiter, _} <- Waiters],
    finish(Pid, Waiters, lists:seq(1, 21)).

waiters_hear_of_the_end_of_the_receiver_or_the_application(_Config) ->
    [
        begin
            Pid = full(1),
            Waiters = waiters(Pid, [1, 2, 3]),
            Queue = queue(Pid),
            ok = End(Pid),
            [?assertEqual({error, Reason}, result(Waiter)) || Waiter <- Waiters],
            until(fun() -> not is_process_alive(Queue) end),
            kill(Pid)
        end
     || {End, Reason} <- [
            {fun weir_kit:kill/1, noproc},
            {fun restart/1, no_limit},
            {fun(_) -> application:stop(weir_flow) end, {not_started, weir_flow}}
        ]
    ].

%% The waiters do not look at the table meanwhile, and the receiver does not ask for its limit again.
restart(_Pid) ->
    ok = application:stop(weir_flow),
    application:start(weir_flow).

%% A callback throws two messages, the request of the queue, and the request of the limits away. The limits ask again,
%% and give the credits back.
waiters_outlive_a_flush_of_the_receiver(_Config) ->
    Pid = ?RECEIVER:start(2),
    ok = weir_flow_test_receiver:flush(Pid),
    [ok, ok] = casts(Pid, [{note, lost}, {note, lost}], busy),
    Waiters = waiters(Pid, [1, 2, 3]),
    sample_until(fun() -> queue_len(Pid) =:= 2 + 1 + 1 end),
    ok = release(Pid),
    sample_until(fun() -> info(mended, Pid) =:= 2 end),
    finish(Pid, Waiters, [1, 2, 3]).

%% ---------------------------------------------------------------- lost credits, and the application

%% Senders that try take no credit, so the traffic is quiet. The limits take samples each second, and mend the count.
all_credits_lost(_Config) ->
    Pid = ?RECEIVER:start(4),
    ok = sys:suspend(weir_flow_limits, infinity),
    %% A sender that is killed before it sends has taken a credit.
    [{ok, _} = weir_flow_limit:take(Pid) || _ <- [1, 2, 3, 4]],
    ?assertEqual([?BUSY], casts(Pid, [x], busy)),
    Waiters = [async(fun() -> cast(Pid, {note, N}, wait) end) || N <- [1, 2, 3]],
    ok = sys:resume(weir_flow_limits, infinity),
    until(fun() -> info(mended, Pid) =:= 4 end),
    finish(Pid, Waiters, [1, 2, 3]).

%% The receiver gives more credits back than were taken.
counted_too_low(_Config) ->
    Pid = ?RECEIVER:start(4),
    {_, Words, _, _} = weir_flow_limit:row(Pid),
    ok = atomics:sub(Words, 1, 3),
    ?assertEqual(0, info(in_flight, Pid)),
    until(fun() -> info(mended, Pid) =:= 3 end),
    ok = weir_flow_test_receiver:block(Pid),
    ?assertEqual([ok, ok, ok, ok, ?BUSY], casts(Pid, lists:duplicate(5, x), busy)),
    finish(Pid, [], []).

%% The receiver answers each request.
a_message_of_a_suspended_receiver_keeps_its_credit(_Config) ->
    Pid = ?RECEIVER:start(4),
    ok = sys:suspend(Pid, wait_ms()),
    [ok, ok, ok] = casts(Pid, [{note, N} || N <- [1, 2, 3]], busy),
    [
        begin
            ok = weir_flow_limits:sample(),
            until(fun() -> queue_len(Pid) =:= 3 end)
        end
     || _ <- lists:seq(1, 50)
    ],
    ?assertEqual({3, 0}, {info(in_flight, Pid), info(mended, Pid)}),
    ok = sys:resume(Pid, wait_ms()),
    finish(Pid, [], [1, 2, 3]).

%% The receiver answers the first request in the turn of a message under the limit, and that turn goes on.
a_message_keeps_its_credit_until_it_is_handled(_Config) ->
    Pid = full(1),
    Sample = fun() -> [ok = weir_flow_limits:sample() || _ <- lists:seq(1, 20)] end,
    Sample(),
    %% All samples together send one request.
    until(fun() -> queue_len(Pid) =:= 2 end),
    Sample(),
    ?assertEqual(2, queue_len(Pid)),
    Pid ! {block, self()},
    ok = release(Pid),
    ok = weir_flow_test_lib:await({blocked, Pid}),
    Sample(),
    ?assertEqual({1, 0}, {info(in_flight, Pid), info(mended, Pid)}),
    finish(Pid, [], []).

%% No limit is lost, waiters find the next process of the limits, and that process finds a receiver that died meanwhile.
process_of_limits_killed(_Config) ->
    [Stays, Dies] = [full(1), ?RECEIVER:start(2)],
    Waiters = waiters(Stays, [1, 2, 3]),
    ok = sys:suspend(weir_flow_sup, wait_ms()),
    [kill(Pid) || Pid <- [whereis(weir_flow_limits), queue(Stays), Dies]],
    ?assertEqual(?NOT_STARTED, weir_flow:limit(3)),
    ok = sys:resume(weir_flow_sup, wait_ms()),
    until(fun() -> weir_flow:info(Dies) =:= {error, no_limit} end),
    ?assertEqual([?BUSY], casts(Stays, [x], busy)),
    finish(Stays, Waiters, [1, 2, 3]),
    until(fun() -> weir_flow:info(Stays) =:= {error, no_limit} end).

%% Messages without the option `limit' need neither a limit nor the application.
no_limit_and_not_started(_Config) ->
    Pid = ?RECEIVER:start(none),
    [?assertEqual([{error, no_limit}], casts(Pid, [x], Limit)) || Limit <- [busy, wait]],
    ?assertEqual({error, no_limit}, weir_flow:info(Pid)),
    ok = application:stop(weir_flow),
    [?assertEqual([?NOT_STARTED], casts(Pid, [x], Limit)) || Limit <- [busy, wait]],
    [?assertEqual(?NOT_STARTED, Result) || Result <- [weir_flow:limit(1), weir_flow:info(), weir_flow:info(Pid)]],
    ?assertEqual([ok], casts(Pid, [{note, 1}], none)),
    ?assertEqual([1], notes(Pid)),
    kill(Pid).

the_largest_limit(_Config) ->
    ok = weir_flow:limit(4000000),
    Counts = #{in_flight => 0, busy => 0, waits => 0, queued => 0, mended => 0},
    ?assertEqual({ok, Counts#{limit => 4000000}}, weir_flow:info(self())).

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
        {5, {call, ?MODULE, set_limit, [range(1, 6)]}}
        | ?STATEM:changes(State)
    ]).

precondition(State, Call) -> ?STATEM:precondition(State, Call).

next_state(State, _Result, Call) -> ?STATEM:next_state(State, Call).

postcondition(_State, _Call, Result) -> Result =:= ok.

kill_queue() ->
    [kill(Queue) || {_, _, _, Queue} <- [weir_flow_limit:row(whereis(?MODULE))], is_pid(Queue)],
    ok.

set_limit(Max) -> weir_flow:limit(whereis(?MODULE), Max).

random_sequences(_Config) ->
    ?STATEM:holds(?MODULE, fun set_up/0, fun wrong/1, [{numtests, weir_kit:long(40, 400)}, {max_size, 60}]).

set_up() -> ?STATEM:set_up([{?MODULE, fun() -> ?RECEIVER:start(3) end}], ?SENDERS).

wrong(State) -> ?STATEM:wrong(State, fun faults/1).

%% Waits until the limits have mended the credits of killed senders.
faults(Pid) ->
    sample_until(fun() -> info(in_flight, Pid) =:= 0 andalso info(queued, Pid) =:= 0 end),
    [{above_the_limit, Most} || Most <- [?RECEIVER:most(Pid)], Most > 6].
