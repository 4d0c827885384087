%% Senders that wait for the limit: their order, their cost for the receiver, and the death of each process involved.
-module(weir_flow_queue_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, queue_len/1, until/1]).
-import(weir_flow_test_lib, [async/1, result/1]).

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

%% ---------------------------------------------------------------- helpers

%% Starts a receiver with a limit that handles no message before release/1, and fills it to its limit.
full(Max) ->
    Pid = ?RECEIVER:start(Max),
    ok = ?RECEIVER:block(Pid),
    ok = result(async(fun() -> lists:foreach(fun(_) -> ok = cast(Pid, other, busy) end, lists:seq(1, Max)) end)),
    Pid.

cast(Pid, Message, Limit) -> cast(Pid, Message, Limit, infinity).

cast(Pid, Message, Limit, Timeout) ->
    weir_flow:cast(Pid, Message, #{limit => Limit, window => 1000, timeout => Timeout}).

waiter(Pid, N) -> async(fun() -> cast(Pid, {note, N}, wait) end).

%% Starts waiters one after another, so that their order is known.
waiters(Pid, Numbers) ->
    Before = info(queued, Pid),
    [
        begin
            Waiter = waiter(Pid, N),
            until(fun() -> info(queued, Pid) =:= Before + I end),
            Waiter
        end
     || {I, N} <- lists:enumerate(Numbers)
    ].

info(Key, Pid) ->
    {ok, #{Key := Value}} = weir_flow:info(Pid),
    Value.

queue(Pid) ->
    {_, _, _, Queue} = weir_flow_limit:row(Pid),
    Queue.

served(Waiters) ->
    ok = weir_kit:none(not_served, [Result || Waiter <- Waiters, Result <- [result(Waiter)], Result =/= ok]).

%% All messages were handled once, and no process waits or holds a credit.
settled(Pid, Numbers) ->
    ok = weir_kit:same(notes, lists:sort(Numbers), lists:sort(?RECEIVER:notes(Pid))),
    until(fun() -> info(in_flight, Pid) =:= 0 andalso info(queued, Pid) =:= 0 end).

%% ---------------------------------------------------------------- order and cost

waiters_cost_the_receiver_one_request(_Config) ->
    Pid = full(3),
    Waiters = waiters(Pid, lists:seq(1, 100)),
    %% The messages under the limit, the request of the queue, and the one by which the limits ask a quiet receiver.
    Length = queue_len(Pid),
    ?assert(Length =< 3 + 1 + 1, Length),
    ok = ?RECEIVER:release(Pid),
    served(Waiters),
    settled(Pid, lists:seq(1, 100)),
    kill(Pid).

%% A waiter that the scheduler delays may be overtaken, so the case asserts on the mean. If the last waiter were served
%% first, the mean would be 50.
the_longest_wait_is_served_first(_Config) ->
    Pid = full(2),
    Numbers = lists:seq(1, 100),
    Waiters = waiters(Pid, Numbers),
    ok = ?RECEIVER:release(Pid),
    served(Waiters),
    Moved = [abs(N - Place) || {Place, N} <- lists:enumerate(?RECEIVER:notes(Pid))],
    ?assert(lists:sum(Moved) div length(Moved) =< 5, Moved),
    kill(Pid).

%% Each sender sends several messages, and the limit is reached again and again.
each_senders_messages_keep_their_order(_Config) ->
    Pid = ?RECEIVER:start(2),
    Numbers = lists:seq(1, 20),
    Senders = [async(fun() -> [ok = cast(Pid, {note, {S, N}}, wait) || N <- Numbers], ok end)
        || S <- lists:seq(1, 200)],
    served(Senders),
    Notes = ?RECEIVER:notes(Pid),
    [ok = weir_kit:same({sender, S}, Numbers, [N || {Of, N} <- Notes, Of =:= S]) || S <- lists:seq(1, 200)],
    Most = ?RECEIVER:most(Pid),
    Most =< 2 orelse weir_kit:fault({above_the_limit, Most}),
    settled(Pid, [{S, N} || S <- lists:seq(1, 200), N <- Numbers]),
    kill(Pid).

%% The queue is suspended, so that waiters stay in it although there is room.
newcomers_do_not_overtake_waiters(_Config) ->
    Pid = full(3),
    [Waiter] = waiters(Pid, [1]),
    ok = sys:suspend(queue(Pid), infinity),
    ok = ?RECEIVER:release(Pid),
    until(fun() -> info(in_flight, Pid) =:= 0 end),
    ?assertEqual({error, busy}, result(async(fun() -> cast(Pid, {note, no}, busy) end))),
    ?assertEqual({error, timeout}, result(async(fun() -> cast(Pid, {note, no}, wait, 1) end))),
    ok = sys:resume(queue(Pid), infinity),
    served([Waiter]),
    settled(Pid, [1]),
    ?assertEqual(ok, result(async(fun() -> cast(Pid, {note, 2}, busy) end))),
    kill(Pid).

%% The receiver takes no message, so no answer of the receiver tells the queue.
a_higher_limit_wakes_waiters(_Config) ->
    Pid = full(1),
    Waiters = waiters(Pid, [1, 2, 3]),
    ok = weir_flow:limit(Pid, 3),
    until(fun() -> info(queued, Pid) =:= 1 end),
    until(fun() -> info(in_flight, Pid) =:= 3 end),
    ok = ?RECEIVER:release(Pid),
    served(Waiters),
    settled(Pid, [1, 2, 3]),
    kill(Pid).

a_waiter_whose_time_is_over_leaves_the_queue(_Config) ->
    Pid = full(1),
    Waiters = [async(fun() -> cast(Pid, {note, no}, wait, 5) end) || _ <- lists:seq(1, 20)],
    [?assertEqual({error, timeout}, result(Waiter)) || Waiter <- Waiters],
    until(fun() -> info(queued, Pid) =:= 0 end),
    ok = ?RECEIVER:release(Pid),
    settled(Pid, []),
    kill(Pid).

%% ---------------------------------------------------------------- deaths and suspensions

waiters_that_are_killed_or_suspended_delay_no_others(_Config) ->
    Pid = full(1),
    Waiters = waiters(Pid, lists:seq(1, 120)),
    {Killed, Rest} = lists:split(40, Waiters),
    {Suspended, Others} = lists:split(40, Rest),
    [kill(Waiter) || Waiter <- Killed],
    [true = erlang:suspend_process(Waiter) || {Waiter, _} <- Suspended],
    until(fun() -> info(queued, Pid) =:= 80 end),
    ok = ?RECEIVER:release(Pid),
    served(Others),
    [true = erlang:resume_process(Waiter) || {Waiter, _} <- Suspended],
    served(Suspended),
    settled(Pid, lists:seq(41, 120)),
    kill(Pid).

waiters_outlive_their_queue(_Config) ->
    Pid = full(2),
    Waiters = waiters(Pid, lists:seq(1, 20)),
    kill(queue(Pid)),
    %% A sender that is refused at the limit is not refused for the waiters of a dead queue.
    until(fun() -> info(queued, Pid) =:= 0 orelse is_process_alive(queue(Pid)) end),
    %% Each waiter repeats its request.
    until(fun() -> info(queued, Pid) =:= 20 end),
    ok = ?RECEIVER:release(Pid),
    served(Waiters),
    settled(Pid, lists:seq(1, 20)),
    kill(Pid).

a_dead_queue_refuses_no_sender(_Config) ->
    Pid = full(1),
    Waiters = waiters(Pid, [1]),
    true = erlang:suspend_process(element(1, hd(Waiters))),
    kill(queue(Pid)),
    until(fun() -> info(queued, Pid) =:= 0 end),
    ok = ?RECEIVER:release(Pid),
    until(fun() -> info(in_flight, Pid) =:= 0 end),
    ?assertEqual(ok, result(async(fun() -> cast(Pid, {note, 2}, busy) end))),
    true = erlang:resume_process(element(1, hd(Waiters))),
    served(Waiters),
    settled(Pid, [1, 2]),
    kill(Pid).

waiters_outlive_the_process_of_the_limits(_Config) ->
    Pid = full(2),
    Waiters = waiters(Pid, lists:seq(1, 10)),
    [kill(Victim) || Victim <- [whereis(weir_flow_limits), queue(Pid)]],
    ok = ?RECEIVER:release(Pid),
    served(Waiters),
    settled(Pid, lists:seq(1, 10)),
    kill(Pid).

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

%% The receiver answers requests and handles no message.
waiters_of_a_suspended_receiver_wait(_Config) ->
    Pid = ?RECEIVER:start(2),
    ok = sys:suspend(Pid, infinity),
    [ok, ok] = result(async(fun() -> [cast(Pid, other, busy) || _ <- [1, 2]] end)),
    Waiters = waiters(Pid, [1, 2, 3]),
    ?assertEqual({error, timeout}, result(async(fun() -> cast(Pid, other, wait, 50) end))),
    ?assertEqual(2, info(in_flight, Pid)),
    ok = sys:resume(Pid, infinity),
    served(Waiters),
    settled(Pid, [1, 2, 3]),
    kill(Pid).

%% A callback throws the messages and the request of the queue away. The limits give the credits back.
waiters_outlive_a_flush_of_the_receiver(_Config) ->
    Pid = ?RECEIVER:start(2),
    ok = ?RECEIVER:flush(Pid),
    [ok, ok] = result(async(fun() -> [cast(Pid, other, busy) || _ <- [1, 2]] end)),
    Waiters = waiters(Pid, [1, 2, 3]),
    ok = ?RECEIVER:release(Pid),
    served(Waiters),
    settled(Pid, [1, 2, 3]),
    kill(Pid).

%% ---------------------------------------------------------------- at random

-define(SENDERS, 12).

%% Each command changes one thing, and in the end all goes on. The oracle knows what was sent, and reads what arrived.
initial_state() -> #{blocked => false, suspended => []}.

command(#{blocked := Blocked, suspended := Suspended}) ->
    Sender = range(1, ?SENDERS),
    frequency(
        [
            {20, {call, ?MODULE, send, [Sender, oneof([wait, busy]), oneof([0, 1, 20, infinity]), range(1, 5)]}},
            {2, {call, ?MODULE, replace_sender, [Sender]}},
            {2, {call, ?MODULE, suspend_sender, [Sender]}},
            {1, {call, ?MODULE, kill_queue, []}},
            {1, {call, ?MODULE, set_limit, [range(1, 6)]}},
            {4, {call, ?MODULE, case Blocked of true -> release; false -> block end, []}}
        ] ++ [{4, {call, ?MODULE, resume_sender, [S]}} || S <- Suspended]
    ).

precondition(#{blocked := Blocked}, {call, _, block, _}) -> not Blocked;
precondition(#{blocked := Blocked}, {call, _, release, _}) -> Blocked;
precondition(#{suspended := All}, {call, _, suspend_sender, [S]}) -> not lists:member(S, All);
precondition(#{suspended := All}, {call, _, resume_sender, [S]}) -> lists:member(S, All);
precondition(_State, _Call) -> true.

next_state(State, _Result, {call, _, block, _}) -> State#{blocked := true};
next_state(State, _Result, {call, _, release, _}) -> State#{blocked := false};
next_state(#{suspended := All} = State, _, {call, _, suspend_sender, [S]}) -> State#{suspended := [S | All]};
next_state(#{suspended := All} = State, _, {call, _, resume_sender, [S]}) -> State#{suspended := All -- [S]};
next_state(#{suspended := All} = State, _, {call, _, replace_sender, [S]}) -> State#{suspended := All -- [S]};
next_state(State, _Result, _Call) -> State.

postcondition(_State, _Call, Result) -> Result =:= ok.

send(Sender, Limit, Timeout, Count) ->
    whereis(name(Sender)) ! {send, Limit, Timeout, Count},
    ok.

replace_sender(Sender) ->
    ok = kill(whereis(name(Sender))),
    start_sender(Sender).

suspend_sender(Sender) ->
    true = erlang:suspend_process(whereis(name(Sender))),
    ok.

resume_sender(Sender) ->
    true = erlang:resume_process(whereis(name(Sender))),
    ok.

kill_queue() ->
    case queue(whereis(?MODULE)) of
        none -> ok;
        Queue -> kill(Queue)
    end.

set_limit(Max) -> weir_flow:limit(whereis(?MODULE), Max).

block() -> ?RECEIVER:block(whereis(?MODULE)).

release() -> ?RECEIVER:release(whereis(?MODULE)).

name(Sender) -> lists:nth(Sender, [s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12]).

start_sender(Sender) ->
    Receiver = whereis(?MODULE),
    true = register(name(Sender), spawn(fun() -> sender(Receiver) end)),
    ok.

sender(Receiver) ->
    receive
        {send, Limit, Timeout, Count} ->
            [note(Receiver, Limit, Timeout, Count) || _ <- lists:seq(1, Count)],
            sender(Receiver);
        {finish, From} ->
            From ! {finished, self()}
    end.

%% A sender writes before it sends, so that a message of a killed sender is known.
note(Receiver, Limit, Timeout, _Count) ->
    Note = {self(), erlang:unique_integer([monotonic])},
    true = ets:insert(?MODULE, {Note, begun, Timeout}),
    true = ets:insert(?MODULE, {Note, cast(Receiver, {note, Note}, Limit, Timeout), Timeout}).

random_sequences(_Config) ->
    Property = ?FORALL(
        Commands,
        commands(?MODULE),
        try
            set_up(),
            {_History, State, Result} = weir_kit_property:run_commands(?MODULE, Commands),
            Wrong = finish(State),
            ?WHENFAIL(ct:pal("~p~n~p~nwrong: ~p", [Commands, Result, Wrong]), Result =:= ok andalso Wrong =:= [])
        after
            clean_up()
        end
    ),
    weir_kit_property:holds(Property, [{numtests, weir_kit:long(40, 400)}, {max_size, 60}, quiet]).

set_up() ->
    ?MODULE = ets:new(?MODULE, [named_table, public]),
    true = register(?MODULE, ?RECEIVER:start(3)),
    lists:foreach(fun(S) -> ok = start_sender(S) end, lists:seq(1, ?SENDERS)).

%% Lets everything go on, and returns what is wrong when all senders have finished.
finish(#{blocked := Blocked, suspended := Suspended}) ->
    Pid = whereis(?MODULE),
    [ok = resume_sender(S) || S <- Suspended],
    _ = Blocked andalso release(),
    Senders = [whereis(name(S)) || S <- lists:seq(1, ?SENDERS)],
    [Sender ! {finish, self()} || Sender <- Senders],
    lists:foreach(fun await_finished/1, Senders),
    %% Killed senders may have taken credits, which the limits mend.
    until(fun() ->
        ok = weir_flow_limits:sample(),
        info(in_flight, Pid) =:= 0 andalso info(queued, Pid) =:= 0
    end),
    Notes = ?RECEIVER:notes(Pid),
    Rows = ets:tab2list(?MODULE),
    Most = ?RECEIVER:most(Pid),
    [{lost, Note} || {Note, ok, _} <- Rows, not lists:member(Note, Notes)] ++
        [{refused_but_sent, Note} || {Note, {error, _}, _} <- Rows, lists:member(Note, Notes)] ++
        [{timeout_without_a_limit, Note} || {Note, {error, timeout}, infinity} <- Rows] ++
        [{wrong_result, Row} || {_, {error, Reason}, _} = Row <- Rows, Reason =/= busy, Reason =/= timeout] ++
        [{doubled, Notes} || length(Notes) =/= length(lists:usort(Notes))] ++
        [{out_of_order, S} || S <- Senders, not is_sorted([N || {Of, N} <- Notes, Of =:= S])] ++
        [{above_the_limit, Most} || Most > 6].

await_finished(Sender) ->
    receive
        {finished, Sender} -> ok
    after weir_kit:wait_ms() -> error({never, finished, Sender})
    end.

is_sorted(List) -> List =:= lists:sort(List).

clean_up() ->
    Names = [?MODULE | [name(S) || S <- lists:seq(1, ?SENDERS)]],
    [kill(Pid) || Name <- Names, Pid <- [whereis(Name)], is_pid(Pid)],
    _ = ets:whereis(?MODULE) =/= undefined andalso ets:delete(?MODULE),
    ok.
