%% Batches: how large they are, what they wait for, and what else can be among what was drained for them.
-module(weir_server_batch_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, take_messages/0, until/1, wait_ms/0]).
-import(weir_server_loop_lib, [
    start/2, stop/1, held/1, while_held/2, ask/3, info/1, settle/1, events/1, down/2, next/0
]).

-define(LONG, {linger, 60_000_000}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- how large

exactly_so_many(_) ->
    [
        ?assertEqual({Sent, Sizes}, {Sent, sizes([{drain, {10, 10}}], Sent)})
     || {Sent, Sizes} <- [{9, [9]}, {10, [10]}, {11, [10, 1]}, {20, [10, 10]}, {21, [10, 10, 1]}]
    ],
    ?assertEqual([1, 1, 1], sizes([{drain, {1, 1}}], 3)).

%% The first is limited to the least, and each limit that is met doubles the next one.
grows(_) ->
    ?assertEqual([2, 4, 8, 8, 8], sizes([{drain, {2, 8}}], 30)),
    ?assertEqual([2, 4, 7, 7], sizes([{drain, {2, 7}}], 20)),
    ?assertEqual([3, 6, 12, 24, 5], sizes([{drain, {3, infinity}}], 50)),
    ?assertEqual([64, 128, 256, 512, 1024, 1024, 992], sizes([], 4000)).

%% Batches of less than a quarter halve the limit.
shrinks(_) ->
    Pid = start(weir_server_probe_batch, [{drain, {1, 64}}]),
    while_held(Pid, fun() -> casts(Pid, 1, 200) end),
    settle(Pid),
    %% 64, 32, 16, 8, and with 4 a single one is no less than a quarter.
    [{reply, _} = gen_server:receive_response(gen_server:send_request(Pid, N), infinity) || N <- lists:seq(1, 10)],
    while_held(Pid, fun() -> casts(Pid, 201, 210) end),
    settle(Pid),
    Pid ! last,
    Events = events({batch, [{info, last}]}),
    ?assertEqual([4, 6], [length(Batch) || {batch, [{cast, N} | _] = Batch} <- Events, N > 200]),
    ?assertEqual([{cast, N} || N <- lists:seq(1, 210)], [M || {batch, Batch} <- Events, {cast, _} = M <- Batch]),
    stop(Pid).

%% A batch ends with the message that makes it as large as the limit.
bytes(_) ->
    Size = erlang:external_size({'$gen_cast', 100}),
    [
        ?assertEqual({Bytes, Sizes}, {Bytes, sizes([{batch_bytes, Bytes}, {drain, {100, 100}}], 10)})
     || {Bytes, Sizes} <- [
            {1, lists:duplicate(10, 1)},
            {Size, lists:duplicate(10, 1)},
            {Size + 1, [2, 2, 2, 2, 2]},
            {2 * Size, [2, 2, 2, 2, 2]},
            {3 * Size, [3, 3, 3, 1]},
            {3 * Size + 1, [4, 4, 2]},
            {10 * Size, [10]},
            {9 * Size, [9, 1]},
            {1_000_000, [10]}
        ]
    ].

%% Whatever the sizes are, no batch could do without its last message, and all are handled in order.
bytes_of_all_sizes(_) ->
    Bytes = 1000,
    Pid = start(weir_server_probe_batch, [{batch_bytes, Bytes}, {drain, {7, 50}}]),
    Messages = [{N, binary:copy(<<"x">>, (N * N * 37) rem 1200)} || N <- lists:seq(1, 300)],
    while_held(Pid, fun() -> [gen_server:cast(Pid, Message) || Message <- Messages] end),
    settle(Pid),
    Pid ! last,
    Batches = [[M || {cast, M} <- Batch] || {batch, Batch} <- events({batch, [{info, last}]})],
    ?assertEqual(Messages, lists:append(Batches)),
    [
        ?assert(lists:sum([erlang:external_size({'$gen_cast', M}) || M <- lists:droplast(Batch)]) < Bytes)
     || Batch <- Batches
    ],
    ?assert(lists:all(fun(Batch) -> length(Batch) =< 50 end, Batches)),
    stop(Pid).

%% What is left over for bytes waits, and is counted.
bytes_and_count(_) ->
    Pid = start(weir_server_probe_batch, [{batch_bytes, 1}, {drain, {100, 100}}]),
    Ref = make_ref(),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {hold, Ref, self()}),
        casts(Pid, 1, 10)
    end),
    held(Ref),
    ?assertEqual(0, queue_len(Pid)),
    casts(Pid, 11, 15),
    ?assertMatch(#{waiting := 15, drained := 10, mailbox := 5}, info(Pid)),
    Pid ! Ref,
    Pid ! last,
    Events = events({batch, [{info, last}]}),
    ?assertEqual([[{cast, N}] || N <- lists:seq(1, 15)], [Batch || {batch, Batch} <- Events]),
    stop(Pid).

%% ---------------------------------------------------------------- lingering

%% However few there are, they are handled.
lingers_for_few(_) ->
    Pid = start(weir_server_probe_batch, [{linger, 2000}]),
    gen_server:cast(Pid, 1),
    ?assertEqual({batch, [{cast, 1}]}, next()),
    while_held(Pid, fun() -> casts(Pid, 2, 5) end),
    ?assertEqual({batch, [{cast, N} || N <- lists:seq(2, 5)]}, next()),
    stop(Pid).

lingers_below_a_millisecond(_) ->
    Pid = start(weir_server_probe_batch, [{linger, 300}]),
    [
        begin
            gen_server:cast(Pid, N),
            ?assertEqual({batch, [{cast, N}]}, next())
        end
     || N <- lists:seq(1, 20)
    ],
    stop(Pid).

enough_do_not_linger(_) ->
    Pid = start(weir_server_probe_batch, [?LONG, {drain, {10, 10}}]),
    casts(Pid, 1, 10),
    ?assertEqual(lists:seq(1, 10), [N || {cast, N} <- gathered(10)]),
    casts(Pid, 11, 19),
    ok = until(fun() -> drained(Pid) =:= 9 end),
    weir_server_loop_lib:none_of(fun(_) -> true end),
    casts(Pid, 20, 20),
    ?assertEqual({batch, [{cast, N} || N <- lists:seq(11, 20)]}, next()),
    stop(Pid).

%% Messages that come one by one while it lingers make one batch.
lingering_gathers(_) ->
    Pid = start(weir_server_probe_batch, [?LONG, {drain, {10, 10}}]),
    [
        begin
            gen_server:cast(Pid, N),
            ok = until(fun() -> drained(Pid) =:= N end)
        end
     || N <- lists:seq(1, 9)
    ],
    gen_server:cast(Pid, 10),
    ?assertEqual({batch, [{cast, N} || N <- lists:seq(1, 10)]}, next()),
    ?assertMatch(#{batches := 1, largest_batch := 10}, info(Pid)),
    stop(Pid).

%% They are answered when what was sent before them has been handled. Later messages are lingered for again.
lingering_ends_with_system_messages(_) ->
    Pid = start(weir_server_probe_batch, [?LONG, {drain, {10, 10}}]),
    casts(Pid, 1, 3),
    ok = until(fun() -> drained(Pid) =:= 3 end),
    ask(Pid, state, state),
    ?assertMatch([{batch, [{cast, 1}, {cast, 2}, {cast, 3}]}, {state, _}], [next(), next()]),
    ok = sys:suspend(Pid, wait_ms()),
    casts(Pid, 4, 6),
    ok = sys:resume(Pid, wait_ms()),
    ok = until(fun() -> drained(Pid) =:= 3 end),
    weir_server_loop_lib:none_of(fun(_) -> true end),
    casts(Pid, 7, 13),
    ?assertEqual({batch, [{cast, N} || N <- lists:seq(4, 13)]}, next()),
    stop(Pid).

lingering_ends_with_with_state(_) ->
    Pid = start(weir_server_probe_batch, [?LONG, {drain, {10, 10}}]),
    casts(Pid, 1, 3),
    ok = until(fun() -> drained(Pid) =:= 3 end),
    ask(Pid, with, {with_state, fun(_) -> seen end}),
    ?assertEqual([{batch, [{cast, 1}, {cast, 2}, {cast, 3}]}, {with, {ok, seen}}], [next(), next()]),
    stop(Pid).

%% What was there before is handled.
lingering_ends_with_the_parent(_) ->
    process_flag(trap_exit, true),
    Pid = weir_server_loop_lib:start_link(weir_server_probe_batch, #{trap_exit => true}, [?LONG, {drain, {10, 10}}]),
    casts(Pid, 1, 3),
    ok = until(fun() -> drained(Pid) =:= 3 end),
    exit(Pid, over),
    ?assertEqual([{batch, [{cast, 1}, {cast, 2}, {cast, 3}]}, {terminated, Pid, over}], [next(), next()]).

%% An acknowledgement waits for the batch that it is among.
lingering_and_acks(_) ->
    Pid = start(weir_server_probe_batch, [?LONG, {drain, {10, 10}}]),
    casts(Pid, 1, 3),
    ask(Pid, ack, ack),
    ok = until(fun() -> drained(Pid) =:= 4 end),
    weir_server_loop_lib:none_of(fun(_) -> true end),
    casts(Pid, 4, 9),
    Events = [next(), next()],
    ?assertMatch([{batch, _}, {ack, _}], Events),
    ?assertEqual({batch, [{cast, N} || N <- lists:seq(1, 9)]}, hd(Events)),
    stop(Pid).

lingering_then_stop(_) ->
    Pid = start(weir_server_probe_batch, [?LONG, {drain, {10, 10}}]),
    casts(Pid, 1, 3),
    ok = sys:terminate(Pid, {shutdown, enough}, wait_ms()),
    ?assertEqual(
        [{batch, [{cast, 1}, {cast, 2}, {cast, 3}]}, {terminated, Pid, {shutdown, enough}}], [next(), next()]
    ).

lingering_code_change(_) ->
    Pid = start(weir_server_probe_batch, [?LONG, {drain, {10, 10}}]),
    casts(Pid, 1, 5),
    ok = until(fun() -> drained(Pid) =:= 5 end),
    ok = sys:suspend(Pid, wait_ms()),
    ok = sys:change_code(Pid, weir_server_probe_batch, "1", extra, wait_ms()),
    casts(Pid, 6, 8),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual([{batch, [{cast, N} || N <- lists:seq(1, 5)]}, {code_change, extra}], [next(), next()]),
    ok = until(fun() -> drained(Pid) =:= 3 end),
    weir_server_loop_lib:none_of(fun(_) -> true end),
    casts(Pid, 9, 15),
    ?assertEqual({batch, [{cast, N} || N <- lists:seq(6, 15)]}, next()),
    stop(Pid).

%% ---------------------------------------------------------------- what is among a batch

%% Some calls are answered by the return value, some by hand in the callback, some later.
mixed_replies(_) ->
    Pid = start(weir_server_probe_batch, []),
    Self = self(),
    Answer = fun(Calls, State) ->
        {Now, Rest} = lists:partition(fun({_, N}) -> is_integer(N) andalso N rem 3 =:= 0 end, Calls),
        {ByHand, Later} = lists:partition(fun({_, N}) -> is_integer(N) andalso N rem 3 =:= 1 end, Rest),
        [gen_server:reply(From, {by_hand, N}) || {From, N} <- ByHand],
        Self ! {later, Later},
        {reply, [{From, {now, N}} || {From, N} <- Now], State}
    end,
    while_held(Pid, fun() ->
        [ask(Pid, {call, N}, {call, N}) || N <- lists:seq(1, 30)],
        gen_server:cast(Pid, {do, answer, Answer})
    end),
    settle(Pid),
    {later, Later} = receive {later, _} = L -> L end,
    [gen_server:reply(From, {later, N}) || {From, N} <- Later],
    [
        ?assertEqual({N, answer_of(N)}, receive {{call, N}, A} -> {N, A} after weir_kit:wait_ms() -> {N, none} end)
     || N <- lists:seq(1, 30)
    ],
    stop(Pid).

answer_of(N) -> {element(N rem 3 + 1, {now, by_hand, later}), N}.

%% What came before the request has been handled then; so has what was behind it in the same batch.
acks_after_the_batch(_) ->
    Pid = start(weir_server_probe_batch, [{drain, {10, 10}}]),
    while_held(Pid, fun() ->
        casts(Pid, 1, 3),
        ask(Pid, ack1, ack),
        casts(Pid, 4, 5),
        ask(Pid, ack2, ack),
        casts(Pid, 6, 12),
        ask(Pid, ack3, ack),
        Pid ! last
    end),
    ?assertMatch(
        [
            {batch, [_, _, _, _, _, {cast, 6}, {cast, 7}, {cast, 8}]},
            {ack1, {ok, no_statistics}},
            {ack2, _},
            {batch, [{cast, 9}, _, _, {cast, 12}, {info, last}]},
            {ack3, _}
        ],
        [next() || _ <- lists:seq(1, 5)]
    ),
    stop(Pid).

only_acks(_) ->
    Pid = start(weir_server_probe_batch, []),
    [ask(Pid, N, ack) || N <- lists:seq(1, 5)],
    ?assertMatch([{1, _}, {2, _}, {3, _}, {4, _}, {5, _}], [next() || _ <- lists:seq(1, 5)]),
    while_held(Pid, fun() -> [ask(Pid, N, ack) || N <- lists:seq(1, 5)] end),
    ?assertMatch([{1, _}, {2, _}, {3, _}, {4, _}, {5, _}], [next() || _ <- lists:seq(1, 5)]),
    ?assertMatch(#{handled := #{calls := 0, casts := 1, infos := 0}}, settle(Pid)),
    stop(Pid).

%% More in one batch than the loop counts between two polls.
many_acks(_) ->
    Pid = start(weir_server_probe_batch, [{drain, {1000, 1000}}]),
    while_held(Pid, fun() -> [ask(Pid, N, ack) || N <- lists:seq(1, 300)] end),
    [{N, _} = next() || N <- lists:seq(1, 300)],
    ?assertMatch(#{handled := #{calls := 0, casts := 1, infos := 0}}, settle(Pid)),
    stop(Pid).

%% What the callback asked for is not forgotten over it; a continuation comes first.
ack_then_action(_) ->
    Pid = start(weir_server_probe_batch, []),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {do, one, fun(_, State) -> {noreply, State, {continue, go}} end}),
        ask(Pid, ack, ack),
        ask(Pid, with, {with_state, fun(_) -> seen end})
    end),
    ?assertMatch(
        [{batch, [{cast, one}]}, {continue, go}, {ack, _}, {with, {ok, seen}}], [next() || _ <- lists:seq(1, 4)]
    ),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {do, one, fun(_, State) -> {noreply, State, hibernate} end}),
        ask(Pid, ack, ack)
    end),
    ?assertMatch([{batch, [{cast, one}]}, {ack, _}], [next(), next()]),
    ok = until(fun() -> weir_server_loop_lib:is_hibernated(Pid) end),
    %% A request for an acknowledgement neither cancels the sleep nor a timer.
    ask(Pid, ack, ack),
    {ack, _} = next(),
    ok = until(fun() -> weir_server_loop_lib:is_hibernated(Pid) end),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {do, one, fun(_, State) -> {noreply, State, {timeout, 1, late}} end}),
        ask(Pid, ack, ack),
        ask(Pid, with, {with_state, fun(_) -> seen end}),
        ask(Pid, state, state)
    end),
    ?assertMatch(
        [{batch, [{cast, one}]}, {ack, _}, {with, {ok, seen}}, {state, _}, {batch, [{info, late}]}],
        [next() || _ <- lists:seq(1, 5)]
    ),
    stop(Pid).

%% Before it, if nothing of the batch was sent before; otherwise after all of it.
with_state_beside_the_batch(_) ->
    Pid = start(weir_server_probe_batch, []),
    Here = {with_state, fun(State) -> maps:get(here, State, no) end},
    while_held(Pid, fun() ->
        ask(Pid, with1, Here),
        ask(Pid, state, state),
        gen_server:cast(Pid, {do, one, fun(_, State) -> {noreply, State#{here => yes}} end}),
        ask(Pid, with2, Here),
        gen_server:cast(Pid, two),
        ask(Pid, with3, Here)
    end),
    ?assertMatch(
        [{with1, {ok, no}}, {state, _}, {batch, [{cast, one}, {cast, two}]}, {with2, {ok, yes}}, {with3, {ok, yes}}],
        [next() || _ <- lists:seq(1, 5)]
    ),
    ?assertError(oops, weir_server_loop_lib:with_state(Pid, fun(_) -> error(oops) end)),
    ?assertEqual(yes, weir_server_loop_lib:with_state(Pid, fun(#{here := Is}) -> Is end)),
    stop(Pid).

stop_with_acks(_) ->
    Pid = start(weir_server_probe_batch, []),
    Ref = monitor(process, Pid),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {do, one, fun(_, State) -> {stop, {shutdown, told}, State} end}),
        ask(Pid, ack, ack),
        casts(Pid, 1, 3)
    end),
    ?assertEqual({shutdown, told}, down(Ref, Pid)),
    ?assertMatch([{batch, [_, _, _, _]}, {terminated, _, {shutdown, told}}], [next(), next()]).

system_message_in_a_drain(_) ->
    Pid = start(weir_server_probe_batch, [{drain, {100, 100}}]),
    while_held(Pid, fun() ->
        casts(Pid, 1, 5),
        ask(Pid, state1, state),
        casts(Pid, 6, 9),
        ask(Pid, state2, state),
        casts(Pid, 10, 12)
    end),
    %% It does not cut the batch.
    ?assertEqual({batch, [{cast, N} || N <- lists:seq(1, 12)]}, next()),
    ?assertMatch([{state1, _}, {state2, _}], [next(), next()]),
    stop(Pid).

%% ---------------------------------------------------------------- credits and counts

%% They are given back when the batch has been handled, not before.
credits(_) ->
    Pid = start(weir_server_probe_batch, [{drain, {100, 100}}]),
    Self = self(),
    Counter = atomics:new(1, []),
    ok = atomics:put(Counter, 1, 20),
    while_held(Pid, fun() ->
        [Pid ! {'$weir_credit', Counter, {'$gen_cast', N}} || N <- lists:seq(1, 10)],
        [Pid ! {'$weir_credit', Counter, N} || N <- lists:seq(11, 19)],
        Look = fun(_, State) -> Self ! {counter, atomics:get(Counter, 1)}, {noreply, State} end,
        Pid ! {'$weir_credit', Counter, {'$gen_call', {Self, answer}, {do, look, Look}}},
        ask(Pid, ack, ack)
    end),
    {batch, Batch} = next(),
    ?assertEqual(lists:seq(1, 19), [N || {Kind, N} <- Batch, Kind =/= call]),
    ?assertEqual({counter, 20}, next()),
    {ack, _} = next(),
    ?assertEqual(0, atomics:get(Counter, 1)),
    stop(Pid).

credits_of_a_crash(_) ->
    [
        begin
            Pid = start(weir_server_probe_batch, []),
            Counter = atomics:new(1, []),
            ok = atomics:put(Counter, 1, 1),
            Ref = monitor(process, Pid),
            Pid ! {'$weir_credit', Counter, {'$gen_cast', {do, end_it, End}}},
            _ = down(Ref, Pid),
            ?assertEqual(0, atomics:get(Counter, 1)),
            take_messages()
        end
     || End <- [fun(_, _) -> error(oops) end, fun(_, State) -> {stop, normal, State} end, fun(_, _) -> nonsense end]
    ].

counts(_) ->
    Pid = start(weir_server_probe_batch, [{drain, {10, 10}}]),
    while_held(Pid, fun() ->
        [ask(Pid, {call, N}, {call, N}) || N <- lists:seq(1, 7)],
        casts(Pid, 1, 11),
        [Pid ! N || N <- lists:seq(1, 5)],
        ask(Pid, with, {with_state, fun(_) -> ok end})
    end),
    ?assertMatch(
        #{handled := #{calls := 8, casts := 12, infos := 5}, batches := 4, largest_batch := 10}, settle(Pid)
    ),
    stop(Pid).

%% ---------------------------------------------------------------- others

timeouts(_) ->
    Pid = start(weir_server_probe_batch, []),
    [
        begin
            gen_server:cast(Pid, {do, Action, fun(_, State) -> {noreply, State, Action} end}),
            ?assertEqual([{batch, [{cast, Action}]}, {batch, [{info, Info}]}], [next(), next()])
        end
     || {Action, Info} <- [
            {0, timeout},
            {1, timeout},
            {{timeout, 0, now}, now},
            {{timeout, 1, soon}, soon},
            {{hibernate, 1, soon}, soon},
            {{hibernate, 0, now}, now},
            {{timeout, 0, now, {abs, false}}, now}
        ]
    ],
    stop(Pid).

%% Messages and requests that were in the batch with the one that changed the module are not lost.
become_plain(_) ->
    Pid = start(weir_server_probe_batch, [{drain, {5, 5}}]),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {do, change, fun(_, State) -> {become, weir_server_probe, State} end}),
        casts(Pid, 1, 2),
        ask(Pid, ack, ack),
        ask(Pid, with, {with_state, fun(_) -> ok end}),
        casts(Pid, 3, 100)
    end),
    Pid ! last,
    [{batch, [{cast, change}, {cast, 1}, {cast, 2}]}, {ack, _}, {with, {ok, ok}} | Rest] = events({info, last}),
    ?assertEqual([{cast, N} || N <- lists:seq(3, 100)], Rest),
    ?assertMatch(#{handled := #{casts := 102, calls := 1, infos := 1}}, settle(Pid)),
    stop(Pid).

become_batch(_) ->
    Pid = start(weir_server_probe, [{drain, {1000, 1000}}]),
    while_held(Pid, fun() ->
        weir_server_loop_lib:push(Pid),
        gen_server:cast(Pid, {do, change, fun(_, State) -> {become, weir_server_probe_batch, State, {continue,
            go}} end}),
        casts(Pid, 1, 30),
        ask(Pid, ack, ack),
        casts(Pid, 31, 60)
    end),
    Pid ! last,
    [{cast, change}, {continue, go} | Events] = events_to_last(),
    ?assertEqual(
        [{cast, N} || N <- lists:seq(1, 60)] ++ [{info, last}], lists:append([Batch || {batch, Batch} <- Events])
    ),
    %% The acknowledgement is behind all that were before it.
    {Before, Behind} = lists:splitwith(fun(Event) -> element(1, Event) =/= ack end, Events),
    ?assert(lists:member({cast, 30}, lists:append([Batch || {batch, Batch} <- Before]))),
    Behind =:= [] andalso ?assertMatch({ack, _}, next()),
    stop(Pid).

%% The messages are drained before the server takes batches. The first batch is as large as `drain' allows all the same,
%% and info/1 counts the messages that wait behind the change and behind the first batch.
first_batch_after_become(_) ->
    Pid = start(weir_server_probe, [{drain, {100, infinity}}]),
    [Continue, First] = [make_ref(), make_ref()],
    Self = self(),
    Become = fun(_, State) -> {become, weir_server_probe_batch, State, {continue, {hold, Continue, Self}}} end,
    while_held(Pid, fun() ->
        casts(Pid, 1, 200),
        gen_server:cast(Pid, {do, change, Become}),
        gen_server:cast(Pid, {hold, First, self()}),
        casts(Pid, 201, 900)
    end),
    held(Continue),
    ?assertMatch(#{waiting := 701, mailbox := 0}, info(Pid)),
    Pid ! Continue,
    held(First),
    ?assertMatch(#{waiting := 601, mailbox := 0, largest_batch := 100}, info(Pid)),
    Pid ! First,
    settle(Pid),
    Pid ! last,
    Batches = [Batch || {batch, Batch} <- events({batch, [{info, last}]})],
    ?assertEqual([100, 100, 100, 100, 100, 100, 100, 1], [length(Batch) || Batch <- Batches]),
    ?assertEqual([{cast, {hold, First}} | [{cast, N} || N <- lists:seq(201, 900)]], lists:append(Batches)),
    stop(Pid).

events_to_last() ->
    case next() of
        {batch, Batch} = Event ->
            case lists:member({info, last}, Batch) of
                true -> [Event];
                false -> [Event | events_to_last()]
            end;
        {cast, pushed} ->
            events_to_last();
        Event ->
            [Event | events_to_last()]
    end.

%% Also a single message is a batch.
no_direct_mode(_) ->
    Pid = start(weir_server_probe_batch, []),
    Pid ! one,
    ?assertEqual({batch, [{info, one}]}, next()),
    ?assertMatch(#{batches := 1, largest_batch := 1}, info(Pid)),
    stop(Pid).

suspended(_) ->
    Pid = start(weir_server_probe_batch, [{drain, {100, 100}}]),
    ok = sys:suspend(Pid, wait_ms()),
    casts(Pid, 1, 10),
    ask(Pid, ack, ack),
    {ack, _} = next(),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual([{cast, N} || N <- lists:seq(1, 10)], gathered(10)),
    stop(Pid).

%% ---------------------------------------------------------------- helpers

casts(Pid, From, To) ->
    [gen_server:cast(Pid, N) || N <- lists:seq(From, To)],
    ok.

drained(Pid) -> maps:get(drained, info(Pid)).

%% The sizes of the batches that so many messages are handled in, that are all there.
sizes(Options, Count) ->
    Pid = start(weir_server_probe_batch, Options),
    while_held(Pid, fun() -> casts(Pid, 101, 100 + Count) end),
    Sizes = sizes_until(Count, 101),
    stop(Pid),
    Sizes.

sizes_until(0, _) ->
    [];
sizes_until(Left, First) ->
    {batch, Batch} = next(),
    Size = length(Batch),
    ?assertEqual([{cast, N} || N <- lists:seq(First, First + Size - 1)], Batch),
    [Size | sizes_until(Left - Size, First + Size)].

%% So many messages, in however many batches.
gathered(Count) when Count =< 0 ->
    [];
gathered(Count) ->
    {batch, Batch} = next(),
    Batch ++ gathered(Count - length(Batch)).

%% Where the runtime has no fault that makes it unsafe, and unless the user has chosen.
off_the_heap(_) ->
    Expected =
        case weir_server_otp:is_off_heap_safe() of
            true -> off_heap;
            false -> on_heap
        end,
    OnHeap = {spawn_opt, [{message_queue_data, on_heap}]},
    [
        begin
            Pid = start(Mod, Options),
            %% It is there when it has begun to serve.
            #{} = sys:get_state(Pid, infinity),
            ?assertEqual({Mod, Options, {message_queue_data, Where}}, {Mod, Options, process_info(Pid,
                message_queue_data)}),
            stop(Pid)
        end
     || {Mod, Drained, Default} <- [
            {weir_server_probe_batch, [], Expected},
            {weir_server_probe_prio, [], Expected},
            {weir_server_probe, [{max_queue, 10}], Expected},
            %% What is not drained in any case is where the runtime has it.
            {weir_server_probe, [], on_heap}
        ],
        {Options, Where} <- [{Drained, Default}, {[OnHeap | Drained], on_heap}]
    ].

%% A message that comes to an idle server has waited since it came, and not since the one before. How long it took until
%% it was handled, on a busy machine, is told by the same clock.
idle_time_is_no_wait(_) ->
    Pid = start(weir_server_probe_batch, []),
    gen_server:cast(Pid, one),
    {batch, [{cast, one}]} = next(),
    #{longest_wait_us := Before} = settle(Pid),
    Idle = 10 * Before + 2_000_000,
    Began = now_us(),
    ok = until(fun() -> now_us() - Began > Idle end),
    Sent = now_us(),
    gen_server:cast(Pid, two),
    {batch, [{cast, two}]} = next(),
    #{longest_wait_us := After} = settle(Pid),
    ?assert(After =< max(Before, now_us() - Sent)),
    stop(Pid).

now_us() -> erlang:convert_time_unit(os:perf_counter(), perf_counter, microsecond).
