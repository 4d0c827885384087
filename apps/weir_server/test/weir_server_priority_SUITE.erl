%% Priorities: in which order messages are handled, and what prioritise callbacks can do.
-module(weir_server_priority_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, take_messages/0, until/1, wait_ms/0]).
-import(weir_server_loop_lib, [
    start/2, start/3, stop/1, held/1, while_held/2, push/1, ask/3, settle/1, events/1, down/2, next/0
]).

-define(MOD, weir_server_probe_prio).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- order

highest_first(_) ->
    Pid = start(?MOD, []),
    Sent = [{N, N rem 7 - 3} || N <- lists:seq(1, 300)],
    while_held(Pid, fun() -> [cast(Pid, P, N) || {N, P} <- Sent] end),
    Pid ! {p, -100, last},
    Sorted = [N || {_, N} <- lists:keysort(1, [{-P, N} || {N, P} <- Sent])],
    ?assertEqual(Sorted, [N || {cast, N} <- events({info, last})]),
    stop(Pid).

same_priority_in_order(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() -> [cast(Pid, 1 bsl 70, N) || N <- lists:seq(1, 1000)] end),
    Pid ! last,
    ?assertEqual(lists:seq(1, 1000), [N || {cast, N} <- events({info, last})]),
    stop(Pid).

%% With priorities for casts alone, those behind an info can be put first as well.
one_kind(_) ->
    Pid = start(weir_server_probe_prio_casts, []),
    while_held(Pid, fun() ->
        Pid ! 1,
        ask(Pid, {call, 2}, {call, 2}),
        cast(Pid, 0, 3),
        Pid ! 4,
        cast(Pid, -1, 5),
        cast(Pid, 1, 6)
    end),
    ?assertMatch(#{handled := #{calls := 1, casts := 4, infos := 2}}, settle(Pid)),
    gen_server:cast(Pid, last),
    ?assertEqual(
        [{cast, 6}, {info, 1}, {call, 2}, {cast, 3}, {info, 4}, {cast, 5}],
        [Event || {Kind, _} = Event <- events({cast, last}), is_atom(Kind)]
    ),
    stop(Pid).

%% Calls, casts and infos have one order among them.
every_kind(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() ->
        cast(Pid, 1, a),
        Pid ! {p, 2, b},
        ask(Pid, c, {call, {p, 3, c}}),
        cast(Pid, 3, d),
        ask(Pid, e, {call, e}),
        Pid ! f,
        cast(Pid, -1, g)
    end),
    settle(Pid),
    Pid ! last,
    ?assertEqual(
        [{call, c}, {cast, d}, {info, b}, {cast, a}, {call, e}, {info, f}, {cast, g}],
        [E || {Kind, _} = E <- events({info, last}), lists:member(Kind, [call, cast, info])]
    ),
    stop(Pid).

%% A more urgent message that comes later waits for at most 16 callbacks.
overtakes_what_was_drained(_) ->
    Pid = start(?MOD, []),
    Ref = make_ref(),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {p, 1, {hold, Ref, self()}}),
        [cast(Pid, 0, N) || N <- lists:seq(1, 500)]
    end),
    held(Ref),
    ?assertEqual(0, queue_len(Pid)),
    cast(Pid, 9, urgent),
    Pid ! Ref,
    Before = events({cast, urgent}),
    ?assert(length(Before) =< 15),
    settle(Pid),
    Pid ! last,
    ?assertEqual([{cast, N} || N <- lists:seq(1, 500)], Before ++ events({info, last})),
    stop(Pid).

%% `batch_bytes' ends the first batch after one message. The other drained messages keep their priorities.
urgent_before_rest_of_cut_batch(_) ->
    Pid = start(weir_server_probe_prio_batch, [{drain, {500, 500}}, {batch_bytes, 1}]),
    Ref = make_ref(),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {p, 5, {hold, Ref, self()}}),
        [gen_server:cast(Pid, {p, 0, N}) || N <- lists:seq(1, 500)]
    end),
    weir_server_loop_lib:held(Ref),
    ask(Pid, urgent, {call, {p, 10, urgent}}),
    [gen_server:cast(Pid, {p, P, {later, P}}) || P <- [0, 1]],
    Pid ! Ref,
    Pid ! last,
    Handled = lists:append([Batch || {batch, Batch} <- events({batch, [{info, last}]})]),
    ?assertEqual(
        [{call, urgent}, {cast, {later, 1}}] ++ [{cast, N} || N <- lists:seq(1, 500)] ++ [{cast, {later, 0}}],
        [Message || Message <- Handled, Message =/= {cast, {hold, Ref}}]
    ),
    stop(Pid).

%% Without all of them there would be no order.
all_is_drained_whatever_drain(_) ->
    Pid = start(?MOD, [{drain, {1, 1}}, {spawn_opt, [{message_queue_data, off_heap}]}]),
    while_held(Pid, fun() ->
        [cast(Pid, 0, N) || N <- lists:seq(1, 3000)],
        cast(Pid, 1, urgent)
    end),
    Pid ! last,
    ?assertEqual([{cast, urgent} | [{cast, N} || N <- lists:seq(1, 3000)]], events({info, last})),
    stop(Pid).

%% A prioritise callback is told how many messages wait in front of it, and the state.
waiting_is_told(_) ->
    Pid = start(?MOD, []),
    Self = self(),
    Tell = fun(Waiting, _State) -> Self ! {waiting, Waiting}, 0 end,
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {p, Tell, a}),
        Pid ! {p, Tell, b},
        ask(Pid, c, {call, {p, Tell, c}}),
        gen_server:cast(Pid, d),
        Pid ! {p, drop, e},
        gen_server:cast(Pid, {p, Tell, f})
    end),
    settle(Pid),
    Pid ! last,
    ?assertEqual([0, 1, 2, 4], [W || {waiting, W} <- events({info, last})]),
    stop(Pid).

state_is_told(_) ->
    Pid = start(?MOD, #{urgent => 5}, []),
    Of = fun(_Waiting, #{urgent := P}) -> P end,
    while_held(Pid, fun() ->
        cast(Pid, 4, a),
        gen_server:cast(Pid, {p, Of, b}),
        cast(Pid, 6, c)
    end),
    settle(Pid),
    Pid ! last,
    ?assertEqual([c, b, a], [N || {cast, N} <- events({info, last})]),
    stop(Pid).

%% ---------------------------------------------------------------- what callbacks return

drops(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() ->
        [cast(Pid, case N rem 3 of 0 -> drop; _ -> 0 end, N) || N <- lists:seq(1, 30)],
        [Pid ! {p, case N rem 2 of 0 -> drop; _ -> 0 end, {i, N}} || N <- lists:seq(1, 30)]
    end),
    ?assertMatch(
        #{
            handled := #{calls := 0, casts := 21, infos := 15},
            shed := #{casts := 10, infos := 15},
            dropped := #{calls := 0, casts := 0, infos := 0}
        },
        settle(Pid)
    ),
    Pid ! last,
    Events = events({info, last}),
    ?assertEqual([N || N <- lists:seq(1, 30), N rem 3 =/= 0], [N || {cast, N} <- Events]),
    ?assertEqual([N || N <- lists:seq(1, 30), N rem 2 =/= 0], [N || {info, {i, N}} <- Events]),
    stop(Pid).

%% A dropped time-out has ended, so the server waits for messages and hibernates.
dropped_timeout_ends(_) ->
    Pid = start(?MOD, #{drops_timeout => true}, [{hibernate_after, 50}]),
    gen_server:cast(Pid, {p, 0, {do, act, fun(_, State) -> {noreply, State, 10} end}}),
    ok = until(fun() -> weir_server_loop_lib:is_hibernated(Pid) end),
    ?assertMatch(#{shed := #{infos := 1}, handled := #{casts := 1, infos := 0}}, weir_server_loop_lib:info(Pid)),
    ?assertEqual([{cast, act}], take_messages()),
    stop(Pid).

%% Somebody waits for the answer: that is a mistake of the callback.
calls_are_not_dropped(_) ->
    Pid = start(?MOD, []),
    Ref = monitor(process, Pid),
    Request = gen_server:send_request(Pid, {p, drop, question}),
    ?assertEqual({bad_return_value, drop}, down(Ref, Pid)),
    ?assertEqual({terminated, Pid, {bad_return_value, drop}}, next()),
    ?assertMatch({error, {{bad_return_value, drop}, Pid}}, gen_server:receive_response(Request, wait_ms())).

bad_returns(_) ->
    [
        begin
            Pid = start(?MOD, []),
            Ref = monitor(process, Pid),
            Send(Pid, {p, fun(_, _) -> Bad end, x}),
            ?assertEqual({bad_return_value, Bad}, down(Ref, Pid)),
            ?assertEqual([], events({terminated, Pid, {bad_return_value, Bad}})),
            take_messages()
        end
     || Bad <- [nonsense, 1.0, infinity, {priority, 1}], Send <- sends()
    ].

raises(_) ->
    [
        begin
            Pid = start(?MOD, []),
            Ref = monitor(process, Pid),
            Send(Pid, {p, Raise, x}),
            Reason = down(Ref, Pid),
            case Raise(0, #{class => tell}) of
                error -> ?assertMatch({oops, [_ | _]}, Reason);
                exit -> ?assertEqual(oops, Reason)
            end,
            ?assertEqual([], events({terminated, Pid, Reason})),
            take_messages()
        end
     || Raise <- [
            fun(_, #{class := tell}) -> error; (_, _) -> error(oops) end,
            fun(_, #{class := tell}) -> exit; (_, _) -> exit(oops) end
        ],
        Send <- sends()
    ].

%% A thrown value is a returned one, as in all other callbacks.
throws(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() ->
        cast(Pid, 4, a),
        gen_server:cast(Pid, {p, fun(_, _) -> throw(5) end, b}),
        gen_server:cast(Pid, {p, fun(_, _) -> throw(drop) end, c}),
        cast(Pid, 6, d)
    end),
    settle(Pid),
    Pid ! last,
    ?assertEqual([d, b, a], [N || {cast, N} <- events({info, last})]),
    Ref = monitor(process, Pid),
    gen_server:cast(Pid, {p, fun(_, _) -> throw(nonsense) end, e}),
    ?assertEqual({bad_return_value, nonsense}, down(Ref, Pid)),
    ?assertEqual({terminated, Pid, {bad_return_value, nonsense}}, next()).

sends() ->
    [
        fun gen_server:cast/2,
        fun(Pid, Message) -> Pid ! Message end,
        %% Without a monitor, whose message could come when the next one is looked at.
        fun(Pid, Message) -> ask(Pid, answer, {call, Message}) end
    ].

%% None of those that were drained with it is handled.
raises_in_a_drain(_) ->
    Pid = start(?MOD, []),
    Ref = monitor(process, Pid),
    while_held(Pid, fun() ->
        cast(Pid, 0, a),
        gen_server:cast(Pid, {p, fun(_, _) -> exit(oops) end, b}),
        cast(Pid, 0, c),
        ask(Pid, state, state)
    end),
    ?assertEqual(oops, down(Ref, Pid)),
    ?assertEqual({terminated, Pid, oops}, next()),
    weir_server_loop_lib:none_of(fun(_) -> true end).

raises_while_many_are_handled(_) ->
    Pid = start(?MOD, []),
    Ref = monitor(process, Pid),
    Hold = make_ref(),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {hold, Hold, self()}),
        [cast(Pid, 0, N) || N <- lists:seq(1, 100)]
    end),
    held(Hold),
    gen_server:cast(Pid, {p, fun(_, _) -> error(oops) end, b}),
    Pid ! Hold,
    {oops, [_ | _]} = Reason = down(Ref, Pid),
    Events = events({terminated, Pid, Reason}),
    ?assertEqual([{cast, N} || N <- lists:seq(1, length(Events))], Events),
    ?assert(length(Events) =< 16).

%% ---------------------------------------------------------------- what has no priority

system_messages_first(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() ->
        cast(Pid, 1000, a),
        ask(Pid, state1, state),
        ask(Pid, state2, state),
        cast(Pid, 1000, b)
    end),
    settle(Pid),
    Pid ! last,
    ?assertMatch([{state1, _}, {state2, _}, {cast, a}, {cast, b}], events({info, last})),
    stop(Pid).

%% What is there before is handled, however low it is, and of what comes later what is higher.
parent_exit_last(_) ->
    process_flag(trap_exit, true),
    Pid = weir_server_loop_lib:start_link(?MOD, #{trap_exit => true}, []),
    while_held(Pid, fun() ->
        cast(Pid, 1000, a),
        cast(Pid, -1000, b),
        exit(Pid, over),
        cast(Pid, 2000, c),
        cast(Pid, -2000, never)
    end),
    ?assertEqual([{cast, c}, {cast, a}, {cast, b}], events({terminated, Pid, over})).

terminate_last(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() ->
        cast(Pid, 1000, a),
        cast(Pid, -1000, b),
        Pid ! {system, {self(), terminated}, {terminate, {shutdown, told}}},
        cast(Pid, 2000, c),
        cast(Pid, -2000, never)
    end),
    ?assertEqual(
        [{cast, c}, {cast, a}, {cast, b}],
        [Event || {cast, _} = Event <- events({terminated, Pid, {shutdown, told}})]
    ).

%% Exit signals of others are messages, with a priority.
other_exits(_) ->
    Pid = start(?MOD, #{trap_exit => true}, []),
    while_held(Pid, fun() ->
        cast(Pid, 1, a),
        exit(Pid, {p, 2}),
        cast(Pid, 3, b)
    end),
    settle(Pid),
    Pid ! last,
    ?assertEqual([{cast, b}, {info, {'EXIT', self(), {p, 2}}}, {cast, a}], events({info, last})),
    stop(Pid).

%% All that came before the request has been handled then, however low it is.
acks(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() ->
        cast(Pid, -5, low),
        cast(Pid, 5, high),
        ask(Pid, ack, ack),
        cast(Pid, -6, lower),
        cast(Pid, 6, higher),
        cast(Pid, -5, as_low),
        ask(Pid, ack2, ack)
    end),
    settle(Pid),
    Pid ! last,
    Events = events({info, last}),
    ?assertEqual([higher, high, low, as_low, lower], [N || {cast, N} <- Events]),
    {Before, [{ack, _} | Behind]} = lists:splitwith(fun({Tag, _}) -> Tag =/= ack end, Events),
    ?assert(lists:member({cast, low}, Before) andalso lists:member({cast, high}, Before)),
    ?assert(lists:member({cast, lower}, Behind)),
    ?assertMatch({ack2, _}, lists:last(Events)),
    stop(Pid).

with_state(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() ->
        cast(Pid, -1, low),
        ask(Pid, with, {with_state, fun(_) -> ok end}),
        cast(Pid, 1, high),
        cast(Pid, 0, same)
    end),
    settle(Pid),
    Pid ! last,
    ?assertEqual([{cast, high}, {with, {ok, ok}}, {cast, same}, {cast, low}], events({info, last})),
    stop(Pid).

%% ---------------------------------------------------------------- changes

%% What waits is put to the new version.
code_change_reorders(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() ->
        [cast(Pid, N rem 10, N) || N <- lists:seq(1, 100)],
        Pid ! {system, {self(), suspended}, suspend}
    end),
    [] = events({suspended, ok}),
    ok = sys:change_code(Pid, ?MOD, "1", {do, turn, fun(_, State) -> {ok, State#{turned => true}} end}, wait_ms()),
    {code_change, turn} = next(),
    ok = sys:resume(Pid, wait_ms()),
    %% With the order turned round, this is the lowest.
    Pid ! {p, 100, last},
    Expected = [N || {_, N} <- lists:sort([{N rem 10, N} || N <- lists:seq(1, 100)])],
    ?assertEqual(Expected, [N || {cast, N} <- events({info, last})]),
    stop(Pid).

%% What is drained is put to the new version when it goes on, and a callback of that which raises ends it like any
%% other.
code_change_that_raises(_) ->
    Pid = start(?MOD, []),
    Ref = monitor(process, Pid),
    Self = self(),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {p, fun(_, #{turned := true}) -> error(oops); (_, _) -> 0 end, a}),
        cast(Pid, 0, b),
        Pid ! {system, {Self, suspended}, suspend}
    end),
    [] = events({suspended, ok}),
    ok = sys:change_code(Pid, ?MOD, "1", {do, turn, fun(_, State) -> {ok, State#{turned => true}} end}, wait_ms()),
    {code_change, turn} = next(),
    ok = sys:resume(Pid, wait_ms()),
    {oops, _} = Reason = down(Ref, Pid),
    ?assertEqual([], events({terminated, Pid, Reason})).

become_with_priorities(_) ->
    Pid = start(weir_server_probe, [{drain, {1000, 1000}}]),
    while_held(Pid, fun() ->
        push(Pid),
        gen_server:cast(Pid, {do, change, fun(_, State) -> {become, ?MOD, State} end}),
        [cast(Pid, N rem 3, N) || N <- lists:seq(1, 30)],
        Pid ! {p, -1, last}
    end),
    Sorted = [N || {_, N} <- lists:sort([{-(N rem 3), N} || N <- lists:seq(1, 30)])],
    ?assertEqual([change | Sorted], [N || {cast, N} <- events({info, last})]),
    stop(Pid).

become_without_priorities(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {p, 9, {do, change, fun(_, State) -> {become, weir_server_probe, State} end}}),
        [cast(Pid, N rem 3, N) || N <- lists:seq(1, 100)],
        Pid ! {p, -1, last}
    end),
    %% In the order that they had; what comes later, in its own.
    Sorted = [N || {_, N} <- lists:sort([{-(N rem 3), N} || N <- lists:seq(1, 100)])],
    ?assertEqual([change | Sorted], [N || {cast, N} <- events({info, last})]),
    while_held(Pid, fun() -> [cast(Pid, N rem 3, N) || N <- lists:seq(1, 100)] end),
    Pid ! last,
    ?assertEqual(lists:seq(1, 100), [N || {cast, N} <- events({info, last})]),
    stop(Pid).

%% By a callback module that is no more, or in another version.
shed_stays_counted(_) ->
    [
        begin
            Pid = start(?MOD, []),
            while_held(Pid, fun() -> [cast(Pid, drop, N) || N <- lists:seq(1, 3)] end),
            ?assertMatch(#{shed := #{casts := 3}}, settle(Pid)),
            ok = Change(Pid),
            ?assertMatch(#{shed := #{casts := 3}}, settle(Pid)),
            stop(Pid)
        end
     || Change <- [
            fun(Pid) -> gen_server:cast(Pid, {do, change, fun(_, State) -> {become, weir_server_probe, State} end}) end,
            fun(Pid) ->
                ok = sys:suspend(Pid, wait_ms()),
                ok = sys:change_code(Pid, ?MOD, "1", extra, wait_ms()),
                sys:resume(Pid, wait_ms())
            end
        ]
    ].

%% What a batch left over because of its bytes is ahead of what has not been handed out.
become_with_left_over(_) ->
    [
        begin
            Pid = start(weir_server_probe_prio_batch, [{drain, {10, 10}}, {batch_bytes, 1}]),
            while_held(Pid, fun() ->
                gen_server:cast(Pid, {do, change, fun(_, State) -> {become, Mod, State} end}),
                [gen_server:cast(Pid, N) || N <- lists:seq(1, 24)]
            end),
            settle(Pid),
            [{batch, [{cast, change}]} | Events] = take_messages(),
            ?assertEqual(
                {Mod, [{cast, N} || N <- lists:seq(1, 24)]},
                {Mod, lists:append([case Event of {batch, Batch} -> Batch; _ -> [Event] end || Event <- Events])}
            ),
            stop(Pid)
        end
     || Mod <- [weir_server_probe, weir_server_probe_prio, weir_server_probe_batch, weir_server_probe_prio_batch]
    ].

%% The server ends as with any exception of a callback: terminate/2 is run, with the state that was given to `become'.
become_that_raises(_) ->
    [
        begin
            Pid = start(weir_server_probe, [{drain, {1000, 1000}}]),
            Ref = monitor(process, Pid),
            while_held(Pid, fun() ->
                push(Pid),
                gen_server:cast(Pid, {do, change, fun(_, State) -> {become, ?MOD, State} end}),
                gen_server:cast(Pid, {p, Raise, x})
            end),
            Reason = down(Ref, Pid),
            case Reason of
                {oops, [_ | _]} -> ok;
                oops -> ok;
                {bad_return_value, nonsense} -> ok
            end,
            ?assertEqual([{cast, change}], events({terminated, Pid, Reason}))
        end
     || Raise <- [fun(_, _) -> error(oops) end, fun(_, _) -> exit(oops) end, fun(_, _) -> nonsense end]
    ].

%% ---------------------------------------------------------------- batches

batches(_) ->
    Pid = start(weir_server_probe_prio_batch, [{drain, {10, 10}}]),
    while_held(Pid, fun() ->
        [cast(Pid, N rem 3, N) || N <- lists:seq(1, 25)],
        ask(Pid, ack, ack)
    end),
    Sorted = [N || {_, N} <- lists:sort([{-(N rem 3), N} || N <- lists:seq(1, 25)])],
    Events = [next() || _ <- lists:seq(1, 4)],
    ?assertMatch([{batch, _}, {batch, _}, {batch, _}, {ack, _}], Events),
    ?assertEqual([10, 10, 5], [length(Batch) || {batch, Batch} <- Events]),
    ?assertEqual(Sorted, [N || {batch, Batch} <- Events, {cast, N} <- Batch]),
    stop(Pid).

%% A later message of a higher priority is in the next batch.
batches_over_looks(_) ->
    Pid = start(weir_server_probe_prio_batch, [{drain, {10, 10}}]),
    Ref = make_ref(),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {p, 1, {hold, Ref, self()}}),
        [cast(Pid, 0, N) || N <- lists:seq(1, 30)]
    end),
    held(Ref),
    cast(Pid, 2, urgent),
    Pid ! Ref,
    settle(Pid),
    [{batch, First}, {batch, Second} | _] = take_messages(),
    ?assertEqual({hold, Ref}, element(2, hd(First))),
    ?assertEqual([{cast, urgent} | [{cast, N} || N <- lists:seq(10, 18)]], Second),
    stop(Pid).

credits_of_the_shed(_) ->
    [
        begin
            Pid = start(Mod, []),
            Counter = atomics:new(1, []),
            ok = atomics:put(Counter, 1, 40),
            while_held(Pid, fun() ->
                [Pid ! {'$weir_credit', Counter, {'$gen_cast', {p, drop, N}}} || N <- lists:seq(1, 10)],
                [Pid ! {'$weir_credit', Counter, {'$gen_cast', {p, N, N}}} || N <- lists:seq(1, 10)],
                [Pid ! {'$weir_credit', Counter, {p, drop, N}} || N <- lists:seq(1, 10)],
                [Pid ! {'$weir_credit', Counter, {p, N, N}} || N <- lists:seq(1, 10)]
            end),
            ?assertMatch(
                #{handled := #{casts := 11, infos := 10}, shed := #{casts := 10, infos := 10}}, settle(Pid)
            ),
            ?assertEqual(0, atomics:get(Counter, 1)),
            stop(Pid)
        end
     || Mod <- [?MOD, weir_server_probe_prio_batch]
    ].

%% ---------------------------------------------------------------- waiting

%% Messages that are shed are no messages: the server goes on to hibernate, or its time-out expires.
hibernates(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {do, sleep, fun(_, State) -> {noreply, State, hibernate} end}),
        cast(Pid, drop, x)
    end),
    ok = until(fun() -> weir_server_loop_lib:is_hibernated(Pid) end),
    Pid ! last,
    ?assertEqual([{cast, sleep}], events({info, last})),
    stop(Pid).

timeouts_are_plain(_) ->
    Pid = start(?MOD, []),
    [
        begin
            gen_server:cast(Pid, {do, ask, fun(_, State) -> {noreply, State, Action} end}),
            ?assertEqual([{cast, ask}], events({info, Info}))
        end
     || {Action, Info} <- [{1, timeout}, {0, timeout}, {{timeout, 1, late}, late}, {{timeout, 0, now}, now}]
    ],
    stop(Pid).

%% ---------------------------------------------------------------- helpers

cast(Pid, Priority, Name) -> gen_server:cast(Pid, {p, Priority, Name}).
