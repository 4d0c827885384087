%% Batches: how large they are, how long the server waits for more, and where the other messages of the server go.
-module(weir_server_batch_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [take_messages/0, until/1, wait_ms/0]).
-import(weir_server_loop_lib, [
    start/2, start_link/3, stop/1, held/1, while_held/2, casts/3, ask/3, info/1, settle/1, handled/1, down/2,
    next/0, next/1, none_yet/0
]).

%% Microseconds for which no test waits.
-define(LONG, {linger, 600_000_000}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- how large

%% The first batch has at most the least of `drain'. Each batch that is full doubles the limit of the next one.
sizes_by_number(_) ->
    [
        ?assertEqual({Options, Sizes}, {Options, sizes(Options, lists:sum(Sizes))})
     || {Options, Sizes} <- [
            {[], [1]},
            {[{drain, {10, 10}}], [9]},
            {[{drain, {10, 10}}], [10]},
            {[{drain, {10, 10}}], [10, 10, 1]},
            {[{drain, 1}], [1, 1, 1]},
            {[{drain, {2, 8}}], [2, 4, 8, 8, 8]},
            {[{drain, {2, 7}}], [2, 4, 7, 7]},
            {[{drain, {3, infinity}}], [3, 6, 12, 24, 5]},
            {[], [64, 128, 256, 512, 1024, 1024, 992]},
            %% The first of two options counts.
            {[{drain, 2}, {drain, 10}], [2, 2]}
        ]
    ].

%% A batch ends with the message that makes it as large as the limit.
sizes_by_bytes(_) ->
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
            {9 * Size, [9, 1]},
            {10 * Size, [10]},
            {1_000_000, [10]}
        ]
    ].

%% Returns the sizes of the batches in which a server handles this number of messages.
sizes(Options, Count) ->
    Pid = start(weir_server_probe_batch, Options),
    while_held(Pid, fun() -> casts(Pid, 101, 100 + Count) end),
    #{batches := Number, largest_batch := Largest} = settle(Pid),
    Batches = [Batch || {batch, Batch} <- stop(Pid)],
    weir_kit:same(out_of_order, [{cast, N} || N <- lists:seq(101, 100 + Count)], lists:append(Batches)),
    Sizes = [length(Batch) || Batch <- Batches],
    %% The batch that held the server counts as well.
    ?assertEqual({1 + length(Sizes), lists:max(Sizes)}, {Number, Largest}),
    Sizes.

%% Batches of less than a quarter of the limit halve the limit.
limit_shrinks(_) ->
    Pid = start(weir_server_probe_batch, [{drain, {1, 64}}]),
    while_held(Pid, fun() -> casts(Pid, 1, 200) end),
    settle(Pid),
    %% The limit falls to 32, 16, 8 and 4. A single message is a quarter of 4.
    [N = weir_server:call(Pid, N, infinity) || N <- lists:seq(1, 10)],
    take_messages(),
    while_held(Pid, fun() -> casts(Pid, 201, 210) end),
    settle(Pid),
    ?assertEqual([4, 6], [length(Batch) || {batch, Batch} <- stop(Pid)]).

%% The server has drained more messages before it takes batches.
limit_of_the_first_batch_after_become(_) ->
    Pid = start(weir_server_probe, [{drain, {100, infinity}}]),
    [Continue, First] = [make_ref(), make_ref()],
    Self = self(),
    Become = fun(_, State) -> {become, weir_server_probe_batch, State, {continue, {hold, Continue, Self}}} end,
    while_held(Pid, fun() ->
        casts(Pid, 1, 200),
        gen_server:cast(Pid, {do, change, Become}),
        gen_server:cast(Pid, {hold, First, self()}),
        casts(Pid, 201, 350)
    end),
    held(Continue),
    ?assertMatch(#{waiting := 151, mailbox := 0}, info(Pid)),
    Pid ! Continue,
    held(First),
    ?assertMatch(#{waiting := 51, mailbox := 0, largest_batch := 100}, info(Pid)),
    Pid ! First,
    settle(Pid),
    Batches = [Batch || {batch, Batch} <- stop(Pid)],
    ?assertEqual([100, 51], [length(Batch) || Batch <- Batches]).

%% ---------------------------------------------------------------- lingering

batch_that_stays_small_is_handled(_) ->
    [
        begin
            Pid = start(weir_server_probe_batch, [{linger, Us}]),
            gen_server:cast(Pid, 1),
            ?assertEqual({batch, [{cast, 1}]}, next()),
            while_held(Pid, fun() -> casts(Pid, 2, 5) end),
            ?assertEqual({batch, [{cast, N} || N <- lists:seq(2, 5)]}, next()),
            stop(Pid)
        end
     || Us <- [300, 2000]
    ].

%% The runtime suspends the process, so all five casts are there when the server drains them.
lingering_gathers_a_full_batch_and_no_more(_) ->
    Pid = lingering(9),
    none_yet(),
    true = erlang:suspend_process(Pid),
    casts(Pid, 10, 14),
    true = erlang:resume_process(Pid),
    ?assertEqual({batch, [{cast, N} || N <- lists:seq(1, 10)]}, next()),
    ok = until_drained(Pid, 4),
    ?assertMatch(#{batches := 1, largest_batch := 10}, info(Pid)),
    casts(Pid, 15, 20),
    ?assertEqual({batch, [{cast, N} || N <- lists:seq(11, 20)]}, next()),
    stop(Pid).

%% Starts a server that has drained messages one by one, and waits for ten.
lingering(Count) ->
    Pid = start_link(weir_server_probe_batch, #{trap_exit => true}, [?LONG, {drain, {10, 10}}]),
    [
        begin
            gen_server:cast(Pid, N),
            ok = until_drained(Pid, N)
        end
     || N <- lists:seq(1, Count)
    ],
    Pid.

until_drained(Pid, Count) -> until(fun() -> maps:get(drained, info(Pid)) =:= Count end).

%% The server answers when it has handled the messages before the request, and lingers again for later messages.
requests_end_the_lingering(_) ->
    [
        begin
            Pid = lingering(3),
            ask(Pid, answer, Request),
            ?assertMatch([{batch, [{cast, 1}, {cast, 2}, {cast, 3}]}, {answer, _}], next(2)),
            casts(Pid, 4, 6),
            ok = until_drained(Pid, 3),
            none_yet(),
            casts(Pid, 7, 13),
            ?assertEqual({batch, [{cast, N} || N <- lists:seq(4, 13)]}, next()),
            stop(Pid)
        end
     || Request <- [state, {with_state, fun(_) -> seen end}]
    ].

ends_end_the_lingering(_) ->
    process_flag(trap_exit, true),
    [
        begin
            Pid = lingering(3),
            End(Pid),
            ?assertEqual([{batch, [{cast, 1}, {cast, 2}, {cast, 3}]}, {terminated, Pid, over}], next(2)),
            receive {'EXIT', Pid, over} -> ok end
        end
     || End <- [
            fun(Pid) -> exit(Pid, over) end,
            fun(Pid) -> spawn(fun() -> sys:terminate(Pid, over, infinity) end) end
        ]
    ].

acknowledgement_waits_for_the_lingering(_) ->
    Pid = lingering(3),
    ask(Pid, ack, ack),
    ok = until_drained(Pid, 4),
    none_yet(),
    casts(Pid, 4, 9),
    Batch = {batch, [{cast, N} || N <- lists:seq(1, 9)]},
    ?assertMatch([Batch, {ack, _}], next(2)),
    stop(Pid).

%% ---------------------------------------------------------------- calls

%% The return value of the callback answers some calls. The callback answers others itself, or another process does.
calls_are_answered_in_every_way(_) ->
    Pid = start(weir_server_probe_batch, []),
    Self = self(),
    Answer = fun(Calls, State) ->
        [Now, ByHand, Later] = [[{From, {Way, N}} || {From, N} <- Calls, N rem 3 =:= Rest]
            || {Rest, Way} <- [{0, now}, {1, by_hand}, {2, later}]],
        ok = weir_server:reply(ByHand),
        Self ! {later, Later},
        {reply, Now, State}
    end,
    while_held(Pid, fun() ->
        [ask(Pid, {call, N}, {call, N}) || N <- lists:seq(0, 29)],
        gen_server:cast(Pid, {do, answer, Answer})
    end),
    receive
        {later, Later} -> ok = weir_server:reply(Later)
    end,
    _ = settle(Pid),
    Answers = lists:sort([{N, Given} || {{call, N}, Given} <- stop(Pid)]),
    weir_kit:same(answers, [{N, {lists:nth(N rem 3 + 1, [now, by_hand, later]), N}} || N <- lists:seq(0, 29)], Answers).

%% The server answers after terminate/2, as a gen_server does.
stop_answers_calls(_) ->
    Pid = start(weir_server_probe_batch, []),
    Stop = fun(Calls, State) -> {stop, normal, [{From, last_word} || {From, _} <- Calls], State} end,
    ask(Pid, answer, {call, {do, stop, Stop}}),
    ?assertEqual([{batch, [{call, stop}]}, {terminated, Pid, normal}, {answer, last_word}], next(3)).

wrong_return_ends_the_server(_) ->
    [
        begin
            Pid = start(weir_server_probe_batch, []),
            Ref = monitor(process, Pid),
            gen_server:cast(Pid, {do, bad, fun(_, _) -> Bad end}),
            ?assertEqual({bad_return_value, Bad}, down(Ref, Pid)),
            ?assertEqual([{batch, [{cast, bad}]}, {terminated, Pid, {bad_return_value, Bad}}], next(2))
        end
     || Bad <- [
            nonsense, {ok, #{}}, {stop, because}, {reply, not_a_list, s}, {reply, [], s, bad_action},
            {stop, r, not_a_list, s}, {reply, [not_a_reply], s}, {reply, [{not_a_from, reply}], s},
            {reply, [{{not_a_pid, tag}, reply}], s}, {reply, [{{self(), tag}, reply} | improper], s},
            {stop, r, [{not_a_from, reply}], s}, {noreply, s, {timeout, -1, m}}
        ]
    ].

%% ---------------------------------------------------------------- requests that no callback sees

%% A request before the batch comes before it, and one within it behind it. None of them cuts the batch.
requests_come_beside_the_batch(_) ->
    Pid = start(weir_server_probe_batch, [{drain, {10, 10}}]),
    while_held(Pid, fun() ->
        ask(Pid, ack1, ack),
        ask(Pid, state1, state),
        casts(Pid, 1, 3),
        ask(Pid, ack2, ack),
        casts(Pid, 4, 5),
        ask(Pid, state2, state),
        casts(Pid, 6, 12),
        ask(Pid, ack3, ack)
    end),
    First = {batch, [{cast, N} || N <- lists:seq(1, 6)]},
    Second = {batch, [{cast, N} || N <- lists:seq(7, 12)]},
    ?assertMatch(
        [{ack1, {ok, no_statistics}}, {state1, _}, First, {ack2, _}, {state2, _}, Second, {ack3, _}], next(7)
    ),
    stop(Pid).

%% There are more acknowledgements in a batch than the loop counts between two polls.
acknowledgements_alone_are_no_batch(_) ->
    Pid = start(weir_server_probe_batch, [{drain, {1000, 1000}}]),
    while_held(Pid, fun() -> [ask(Pid, N, ack) || N <- lists:seq(1, 300)] end),
    ?assertEqual(lists:seq(1, 300), [N || {N, _} <- next(300)]),
    ?assertMatch(#{handled := #{calls := 0, casts := 1, infos := 0}}, settle(Pid)),
    stop(Pid).

%% The server gives the credits of a batch back when the callback has returned.
credits_are_given_back_behind_the_batch(_) ->
    Pid = start(weir_server_probe_batch, [{drain, {100, 100}}]),
    Self = self(),
    Counter = atomics:new(1, []),
    ok = atomics:put(Counter, 1, 20),
    while_held(Pid, fun() ->
        [Pid ! {'$weir_credit', Counter, {'$gen_cast', N}} || N <- lists:seq(1, 19)],
        Look = fun(_, State) -> Self ! {counter, atomics:get(Counter, 1)}, {noreply, State} end,
        Pid ! {'$weir_credit', Counter, {do, look, Look}}
    end),
    ?assertMatch([{batch, _}, {counter, 20}], next(2)),
    _ = settle(Pid),
    ?assertEqual(0, atomics:get(Counter, 1)),
    stop(Pid).

%% ---------------------------------------------------------------- what others see

messages_of_a_batch_are_logged_one_by_one(_) ->
    Pid = start(weir_server_probe_batch, []),
    ok = sys:suspend(Pid, wait_ms()),
    ok = sys:log(Pid, true, wait_ms()),
    casts(Pid, 1, 2),
    ok = sys:resume(Pid, wait_ms()),
    {batch, [{cast, 1}, {cast, 2}]} = next(),
    3 = weir_server:call(Pid, 3, wait_ms()),
    {ok, Log} = sys:log(Pid, get, wait_ms()),
    ?assertMatch(
        [{in, {'$gen_cast', 1}}, {in, {'$gen_cast', 2}}, {noreply, _}, {in, {'$gen_call', _, 3}}, {out, 3, _, _}], Log
    ),
    stop(Pid).

%% A message that comes to an idle server has not waited since the message before. The case waits with the clock of the
%% server.
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
