%% Priorities: what the prioritise callbacks see and return, and what has no priority. The order itself is tested by
%% weir_server_bound_SUITE, against a model.
-module(weir_server_priority_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, take_messages/0, until/1, wait_ms/0]).
-import(weir_server_loop_lib, [
    start/2, start/3, start_link/3, stop/1, each/2, held/1, while_held/2, push/1, act/2, ask/3, info/1, settle/1,
    events/1, handled/1, down/2, is_hibernated/1
]).

-define(MOD, weir_server_probe_prio).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

cast(Pid, Priority, Name) -> gen_server:cast(Pid, {p, Priority, Name}).

%% Returns the messages that the server handles while the function fills its mailbox, and afterwards.
handled_of(Pid, Fill) ->
    while_held(Pid, Fill),
    _ = settle(Pid),
    handled(take_messages()).

%% ---------------------------------------------------------------- order

%% With priorities for casts alone, a cast behind an info comes first as well.
priorities_of_one_kind_order_all_kinds(_) ->
    Pid = start(weir_server_probe_prio_casts, []),
    Handled = handled_of(Pid, fun() ->
        Pid ! 1,
        ask(Pid, answer, {call, 2}),
        cast(Pid, 0, 3),
        Pid ! 4,
        cast(Pid, -1, 5),
        cast(Pid, 1, 6)
    end),
    ?assertEqual(
        [{cast, 6}, {info, 1}, {call, 2}, {answer, 2}, {cast, 3}, {info, 4}, {cast, 5}], Handled
    ),
    stop(Pid).

urgent_message_waits_for_16_callbacks_at_most(_) ->
    Pid = start(?MOD, []),
    Ref = make_ref(),
    while_held(Pid, fun() ->
        cast(Pid, 1, {hold, Ref, self()}),
        [cast(Pid, 0, N) || N <- lists:seq(1, 500)]
    end),
    held(Ref),
    ?assertEqual(0, queue_len(Pid)),
    cast(Pid, 9, urgent),
    Pid ! Ref,
    Before = events({cast, urgent}),
    ?assert(length(Before) =< 15),
    settle(Pid),
    weir_kit:same(out_of_order, [{cast, N} || N <- lists:seq(1, 500)], Before ++ take_messages()),
    stop(Pid).

%% `batch_bytes' ends the first batch after one message. The other drained messages keep their priorities.
urgent_message_comes_before_the_rest_of_a_cut_batch(_) ->
    Pid = start(weir_server_probe_prio_batch, [{drain, {500, 500}}, {batch_bytes, 1}]),
    Ref = make_ref(),
    while_held(Pid, fun() ->
        cast(Pid, 5, {hold, Ref, self()}),
        [cast(Pid, 0, N) || N <- lists:seq(1, 500)]
    end),
    held(Ref),
    cast(Pid, 10, urgent),
    [cast(Pid, P, {later, P}) || P <- [0, 1]],
    Pid ! Ref,
    settle(Pid),
    ?assertEqual(
        [urgent, {later, 1}] ++ lists:seq(1, 500) ++ [{later, 0}],
        [Name || {cast, Name} <- handled(take_messages())]
    ),
    stop(Pid).

%% The options for the number of drained messages do not keep an urgent message in the mailbox.
all_messages_are_drained_whatever_the_options_say(_) ->
    Pid = start(?MOD, [{drain, {1, 1}}, {spawn_opt, [{message_queue_data, off_heap}]}]),
    Handled = handled_of(Pid, fun() ->
        [cast(Pid, 0, N) || N <- lists:seq(1, 3000)],
        cast(Pid, 1, urgent)
    end),
    weir_kit:same(out_of_order, [{cast, urgent} | [{cast, N} || N <- lists:seq(1, 3000)]], Handled),
    stop(Pid).

%% ---------------------------------------------------------------- the callbacks

%% The callback may throw the priority.
callback_sees_the_state_and_how_many_wait(_) ->
    Pid = start(?MOD, #{step => 1}, []),
    Self = self(),
    See = fun(Waiting, #{step := Step}) -> Self ! {waiting, Waiting}, throw(Waiting * Step) end,
    Handled = handled_of(Pid, fun() ->
        cast(Pid, See, a),
        Pid ! {p, See, b},
        ask(Pid, answer, {call, {p, See, c}}),
        cast(Pid, 0, d),
        Pid ! {p, drop, e},
        cast(Pid, See, f)
    end),
    ?assertEqual([0, 1, 2, 4], [Waiting || {waiting, Waiting} <- Handled]),
    ?assertEqual([f, c, b, a, d], [Name || {Kind, Name} <- Handled, lists:member(Kind, [cast, call, info])]),
    stop(Pid).

%% A call cannot be dropped, since its caller waits for the answer.
wrong_priority_ends_the_server(_) ->
    Sends = [
        fun gen_server:cast/2,
        fun(Pid, Message) -> Pid ! Message end,
        fun(Pid, Message) -> ask(Pid, answer, {call, Message}) end
    ],
    Call = lists:last(Sends),
    Wrong = [{{bad_return_value, Bad}, fun(_, _) -> Bad end} || Bad <- [nonsense, 1.0, infinity, {priority, 1}]] ++ [
        {{bad_return_value, nonsense}, fun(_, _) -> throw(nonsense) end},
        {oops, fun(_, _) -> exit(oops) end},
        {raised, fun(_, _) -> error(oops) end}
    ],
    [
        begin
            Pid = start(?MOD, []),
            Ref = monitor(process, Pid),
            Send(Pid, {p, Priority, x}),
            Reason = down(Ref, Pid),
            ?assertEqual(Expected, case Reason of {oops, [_ | _]} -> raised; _ -> Reason end),
            ?assertEqual([], events({terminated, Pid, Reason}))
        end
     || {Expected, Priority, To} <- [{Reason, P, Sends} || {Reason, P} <- Wrong] ++
            [{{bad_return_value, drop}, drop, [Call]}],
        Send <- To
    ].

%% The messages that the server drained together with the wrong one are lost, and it handles at most 16 others.
wrong_priority_amid_others(_) ->
    Pid = start(?MOD, []),
    Ref = monitor(process, Pid),
    Hold = make_ref(),
    while_held(Pid, fun() ->
        gen_server:cast(Pid, {hold, Hold, self()}),
        [cast(Pid, 0, N) || N <- lists:seq(1, 100)]
    end),
    held(Hold),
    cast(Pid, 0, a),
    cast(Pid, fun(_, _) -> exit(oops) end, b),
    ask(Pid, state, state),
    Pid ! Hold,
    ?assertEqual(oops, down(Ref, Pid)),
    Events = events({terminated, Pid, oops}),
    ?assertEqual([{cast, N} || N <- lists:seq(1, length(Events))], Events),
    ?assert(length(Events) =< 16).

%% ---------------------------------------------------------------- dropped messages

dropped_messages_are_counted_as_shed(_) ->
    Changes = [
        fun(_) -> ok end,
        fun(Pid) -> gen_server:cast(Pid, {do, change, fun(_, State) -> {become, weir_server_probe, State} end}) end,
        fun(Pid) ->
            ok = sys:suspend(Pid, wait_ms()),
            ok = sys:change_code(Pid, ?MOD, "1", extra, wait_ms()),
            ok = sys:resume(Pid, wait_ms())
        end
    ],
    [
        each([{?MOD, []}], fun(Pid) ->
            while_held(Pid, fun() ->
                [cast(Pid, Priority, a) || Priority <- [0, drop, drop]],
                [Pid ! {p, Priority, b} || Priority <- [drop, 0, drop, drop]]
            end),
            ?assertMatch(#{handled := #{casts := 2, infos := 1}, shed := #{casts := 2, infos := 3}}, settle(Pid)),
            ok = Change(Pid),
            ?assertMatch(#{shed := #{casts := 2, infos := 3}, dropped := #{casts := 0, infos := 0}}, settle(Pid))
        end)
     || Change <- Changes
    ].

dropped_message_does_not_keep_the_server_awake(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() ->
        act(Pid, hibernate),
        cast(Pid, drop, x)
    end),
    ok = until(fun() -> is_hibernated(Pid) end),
    ?assertEqual([{cast, act}], take_messages()),
    stop(Pid).

%% The server drops the time-out once, and is quiet until a message comes: it hibernates in 20 times the time-out. The
%% time-out that the next callback asks for comes again.
dropped_timeout_is_over(_) ->
    Pid = start(?MOD, #{drops_timeout => true}, [{hibernate_after, 200}]),
    [
        begin
            act(Pid, 10),
            ok = until(fun() ->
                #{shed := #{infos := Shed}} = info(Pid),
                ?assert(Shed =< Round),
                Shed =:= Round andalso is_hibernated(Pid)
            end),
            ?assertEqual([{cast, act}, dropped_timeout], take_messages())
        end
     || Round <- [1, 2]
    ],
    ?assertMatch(#{shed := #{infos := 2}, handled := #{casts := 2, infos := 0}}, info(Pid)),
    stop(Pid).

%% ---------------------------------------------------------------- what has no priority

system_messages_come_first(_) ->
    Pid = start(?MOD, []),
    Handled = handled_of(Pid, fun() ->
        cast(Pid, 1000, a),
        ask(Pid, state1, state),
        ask(Pid, state2, state),
        cast(Pid, 1000, b)
    end),
    ?assertMatch([{state1, _}, {state2, _}, {cast, a}, {cast, b}], Handled),
    stop(Pid).

%% The server handles what is there before the end, however low its priority is. The server also handles later messages
%% if their priority is higher than 0 or than the lowest priority that is there.
end_comes_behind_what_is_there(_) ->
    process_flag(trap_exit, true),
    [
        begin
            Pid = start_link(?MOD, #{trap_exit => true}, []),
            while_held(Pid, fun() ->
                cast(Pid, 1000, a),
                cast(Pid, Lowest, b),
                End(Pid),
                cast(Pid, 2000, c),
                cast(Pid, 3, d),
                cast(Pid, -2000, never)
            end),
            ?assertEqual(Order, [Name || {cast, Name} <- events({terminated, Pid, over})]),
            take_messages()
        end
     || {Lowest, Order} <- [{-1000, [c, a, d, b]}, {500, [c, a, b, d]}],
        End <- [fun(Pid) -> exit(Pid, over) end, fun(Pid) -> Pid ! {system, {self(), ended}, {terminate, over}} end]
    ].

exit_signal_of_another_process_has_a_priority(_) ->
    Pid = start(?MOD, #{trap_exit => true}, []),
    Handled = handled_of(Pid, fun() ->
        cast(Pid, 1, a),
        exit(Pid, {p, 2}),
        cast(Pid, 3, b)
    end),
    ?assertEqual([{cast, b}, {info, {'EXIT', self(), {p, 2}}}, {cast, a}], Handled),
    stop(Pid).

with_state_has_the_priority_0(_) ->
    Pid = start(?MOD, []),
    Handled = handled_of(Pid, fun() ->
        cast(Pid, -1, low),
        ask(Pid, with, {with_state, fun(_) -> ok end}),
        cast(Pid, 1, high),
        cast(Pid, 0, same)
    end),
    ?assertEqual([{cast, high}, {with, {ok, ok}}, {cast, same}, {cast, low}], Handled),
    stop(Pid).

%% ---------------------------------------------------------------- another module

%% The new version gives the messages that wait their priorities.
code_change_orders_anew(_) ->
    Pid = start(?MOD, []),
    while_held(Pid, fun() ->
        [cast(Pid, N rem 10, N) || N <- lists:seq(1, 100)],
        Pid ! {system, {self(), suspended}, suspend}
    end),
    [] = events({suspended, ok}),
    ok = sys:change_code(Pid, ?MOD, "1", {do, turn, fun(_, State) -> {ok, State#{turned => true}} end}, wait_ms()),
    ok = sys:resume(Pid, wait_ms()),
    _ = settle(Pid),
    Expected = [N || {_, N} <- lists:sort([{N rem 10, N} || N <- lists:seq(1, 100)])],
    ?assertEqual(Expected, [N || {cast, N} <- take_messages()]),
    stop(Pid).

become_orders_what_waits_and_keeps_the_order_it_had(_) ->
    Sorted = [N || {_, N} <- lists:sort([{-(N rem 3), N} || N <- lists:seq(1, 100)])],
    [
        begin
            Pid = start(Old, [{drain, {1000, 1000}}]),
            Handled = handled_of(Pid, fun() ->
                push(Pid),
                cast(Pid, 9, {do, change, fun(_, State) -> {become, New, State} end}),
                [cast(Pid, N rem 3, N) || N <- lists:seq(1, 100)]
            end),
            ?assertEqual({Old, [change | Sorted]}, {Old, [Name || {cast, Name} <- Handled]}),
            %% Later messages come in the order of the new module.
            Later = handled_of(Pid, fun() -> [cast(Pid, N rem 3, N) || N <- lists:seq(1, 100)] end),
            Expected = case New of ?MOD -> Sorted; weir_server_probe -> lists:seq(1, 100) end,
            ?assertEqual({Old, Expected}, {Old, [N || {cast, N} <- Later]}),
            stop(Pid)
        end
     || {Old, New} <- [{weir_server_probe, ?MOD}, {?MOD, weir_server_probe}]
    ].

%% The server runs terminate/2 with the new state, as after any exception of a callback.
wrong_priority_of_the_new_module_ends_the_server(_) ->
    Wrong = [fun(_, _) -> error(oops) end, fun(_, _) -> exit(oops) end, fun(_, _) -> nonsense end],
    [
        begin
            Pid = start(weir_server_probe, [{drain, {1000, 1000}}]),
            Ref = monitor(process, Pid),
            while_held(Pid, fun() ->
                push(Pid),
                gen_server:cast(Pid, {do, change, fun(_, State) -> {become, ?MOD, State} end}),
                cast(Pid, Priority, x)
            end),
            Reason = down(Ref, Pid),
            ?assertEqual(Expected, case Reason of {oops, [_ | _]} -> raised; _ -> Reason end),
            ?assertEqual([{cast, change}], events({terminated, Pid, Reason}))
        end
     || {Expected, Priority} <- lists:zip([raised, oops, {bad_return_value, nonsense}], Wrong)
    ].
