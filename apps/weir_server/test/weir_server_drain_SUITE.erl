%% How a server without priorities and batches gets its messages: straight from its mailbox, or drained.
%%
%% What is drained is seen by the length of the mailbox at each callback: where it falls by more than the message that
%% was handled, the others were drained.
-module(weir_server_drain_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, wait_ms/0]).
-import(weir_server_loop_lib, [
    start/2, stop/1, held/1, while_held/2, push/1, ask/3, info/1, settle/1, events/1, down/2, spin/1
]).

-define(ALL, {drain, {1_000_000, infinity}}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- how many

few_are_not_drained(_) ->
    Pid = start(weir_server_probe, []),
    [
        begin
            while_held(Pid, fun() -> casts(Pid, 1, 31) end),
            settle(Pid)
        end
     || _ <- lists:seq(1, 20)
    ],
    ?assertMatch(#{drains := 0, batches := 0, handled := #{casts := 640}}, info(Pid)),
    stop(Pid).

%% However the machine is loaded, so many callbacks take longer than what is worth draining for.
slow_callbacks_are_drained(_) ->
    Pid = start(weir_server_probe, []),
    Falls = falls(Pid, 500, 20),
    ?assert(lists:max(Falls) > 1),
    ?assertMatch(#{drains := Drains, longest_wait_us := Us} when Drains > 0 andalso Us > 0, settle(Pid)),
    %% When all is done, it is direct again.
    #{drains := Before} = info(Pid),
    while_held(Pid, fun() -> casts(Pid, 1, 31) end),
    ?assertMatch(#{drains := Before}, settle(Pid)),
    stop(Pid).

%% Draining moves messages onto the heap, which is what message_queue_data is there to avoid.
off_heap_is_bounded(_) ->
    Off = start(weir_server_probe, [{spawn_opt, [{message_queue_data, off_heap}]}]),
    ?assertEqual(1000, lists:max(falls(Off, 4000, 20))),
    stop(Off),
    On = start(weir_server_probe, [{spawn_opt, [{message_queue_data, on_heap}]}]),
    ?assert(lists:max(falls(On, 4000, 20)) > 1000),
    stop(On).

%% With both limits the same it is as many as there is room for, and never more.
most_at_a_time(_) ->
    [
        begin
            Pid = start(weir_server_probe, [{drain, {Max, Max}}]),
            ?assertEqual(Max, lists:max(falls(Pid, 600, 0))),
            stop(Pid)
        end
     || Max <- [2, 10, 11, 100]
    ],
    %% However slow the callbacks are.
    Slow = start(weir_server_probe, [{drain, {1, 7}}]),
    ?assertEqual(7, lists:max(falls(Slow, 600, 20))),
    stop(Slow).

%% Min messages are drained also where callbacks take no time.
least_at_a_time(_) ->
    Pid = start(weir_server_probe, [{drain, {50, infinity}}]),
    ?assert(lists:max(falls(Pid, 600, 0)) >= 50),
    stop(Pid).

%% ---------------------------------------------------------------- order

%% Several senders and a server that is now slow, now fast, and is looked at, suspended and asked meanwhile.
order_in_all_transitions(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            Senders = [S || {S, _} <- [spawn_monitor(fun() -> send_from(Pid, S, 2000) end) || S <- [a, b, c]]],
            meddle(Pid, Senders),
            #{handled := Handled} = settle(Pid),
            Pid ! stop,
            Events = [E || E <- events({info, stop}), is_numbered(E)],
            [
                ?assertEqual({S, lists:seq(1, 2000)}, {S, [N || {_, {Sender, N}} <- Events, Sender =:= S]})
             || S <- [a, b, c]
            ],
            ?assertEqual(6000, lists:sum(maps:values(Handled))),
            stop(Pid)
        end
     || Options <- [[], [{drain, {1, 1}}], [{drain, {16, 1000}}], [?ALL], [{spawn_opt, [{message_queue_data,
         off_heap}]}]]
    ].

is_numbered({Kind, {S, N}}) when Kind =:= cast; Kind =:= info -> is_atom(S) andalso is_integer(N);
is_numbered(_) -> false.

send_from(Pid, Sender, Count) ->
    [
        case N rem 5 of
            0 -> Pid ! {Sender, N};
            1 when N rem 1000 > 800 -> gen_server:cast(Pid, {do, {Sender, N}, fun slow/2});
            _ -> gen_server:cast(Pid, {Sender, N})
        end
     || N <- lists:seq(1, Count)
    ].

slow(_, State) ->
    spin(100),
    {noreply, State}.

meddle(Pid, Senders) ->
    #{waiting := Waiting, mailbox := Mailbox, drained := Drained} = info(Pid),
    ?assertEqual(Waiting, Mailbox + Drained),
    #{tell := Self} = sys:get_state(Pid, weir_kit:wait_ms()),
    ?assertEqual(self(), Self),
    ok = sys:suspend(Pid, weir_kit:wait_ms()),
    ok = sys:resume(Pid, weir_kit:wait_ms()),
    lists:any(fun is_process_alive/1, Senders) andalso meddle(Pid, Senders).

system_messages_keep_their_place(_) ->
    Pid = start(weir_server_probe, [?ALL]),
    while_held(Pid, fun() ->
        push(Pid),
        casts(Pid, 1, 5),
        ask(Pid, first, state),
        casts(Pid, 6, 8),
        ask(Pid, second, state),
        Pid ! last
    end),
    Events = events({info, last}),
    ?assertMatch({first, _}, lists:nth(6, Events)),
    ?assertMatch({second, _}, lists:nth(10, Events)),
    ?assertEqual(
        [{cast, N} || N <- lists:seq(1, 5)] ++ [first] ++ [{cast, N} || N <- lists:seq(6, 8)] ++ [second],
        [case Event of {cast, _} -> Event; {Tag, _} -> Tag end || Event <- Events]
    ),
    stop(Pid).

%% The system message keeps its place also where few messages are in the mailbox and drained messages wait.
system_message_among_few(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            Slow = {do, slow, fun(_, State) -> spin(100), {noreply, State} end},
            [First, Ref] = [make_ref(), make_ref()],
            while_held(Pid, fun() ->
                push(Pid),
                [gen_server:cast(Pid, Slow) || _ <- lists:seq(1, 300)],
                gen_server:cast(Pid, {hold, First, self()}),
                casts(Pid, 1, 20)
            end),
            held(First),
            gen_server:cast(Pid, {hold, Ref, self()}),
            ask(Pid, state, state),
            casts(Pid, 21, 30),
            Pid ! First,
            held(Ref),
            Pid ! Ref,
            Pid ! last,
            Events = [E || E <- events({info, last}), E =/= {cast, slow}],
            {Before, [{state, _} | Behind]} = lists:splitwith(fun({Kind, _}) -> Kind =:= cast end, Events),
            ?assertEqual([{cast, N} || N <- lists:seq(1, 20)], Before),
            ?assertEqual([{cast, N} || N <- lists:seq(21, 30)], Behind),
            stop(Pid)
        end
     || Options <- [[], [{drain, {1000, 1000}}], [{drain, {1, infinity}}]]
    ].

%% Also while a callback runs. Of what waits then, the casts before the first info are drained; and the info, where it
%% cannot be put back into the mailbox.
info_at_once(_) ->
    Pid = start(weir_server_probe, [?ALL]),
    Ref = make_ref(),
    while_held(Pid, fun() ->
        push(Pid),
        gen_server:cast(Pid, {hold, Ref, self()}),
        casts(Pid, 1, 5),
        Pid ! first,
        casts(Pid, 6, 8),
        Pid ! last
    end),
    held(Ref),
    Drained =
        case weir_server_otp:priority_alias() of
            none -> 6;
            _ -> 5
        end,
    Mailbox = 10 - Drained,
    ?assertMatch(
        #{drained := Drained, mailbox := Mailbox, waiting := 10, handled := #{calls := 0, casts := 65, infos := 0}},
        info(Pid)
    ),
    Pid ! Ref,
    ?assertEqual(
        [{cast, N} || N <- lists:seq(1, 5)] ++ [{info, first}] ++ [{cast, N} || N <- lists:seq(6, 8)],
        events({info, last})
    ),
    stop(Pid).

%% Casts are drained, infos are not, and still all are handled as they were sent.
infos_keep_their_place(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            while_held(Pid, fun() ->
                push(Pid),
                [
                    case N rem Every of
                        0 -> Pid ! N;
                        _ -> gen_server:cast(Pid, {do, N, fun slow/2})
                    end
                 || N <- lists:seq(1, 200)
                ],
                Pid ! last
            end),
            ?assertEqual(
                [{case N rem Every of 0 -> info; _ -> cast end, N} || N <- lists:seq(1, 200)], events({info, last})
            ),
            stop(Pid)
        end
     || Options <- [[], [{drain, {1, 3}}], [?ALL], [{max_queue, 1000}]], Every <- [2, 7, 50]
    ].

parent_exit_keeps_its_place(_) ->
    process_flag(trap_exit, true),
    Pid = weir_server_loop_lib:start_link(weir_server_probe, #{trap_exit => true}, [?ALL]),
    while_held(Pid, fun() ->
        push(Pid),
        casts(Pid, 1, 5),
        exit(Pid, over),
        casts(Pid, 6, 8)
    end),
    ?assertEqual([{cast, N} || N <- lists:seq(1, 5)], events({terminated, Pid, over})).

%% It comes when others have been drained: these are handled, and what comes behind it is not.
parent_exit_in_a_drain(_) ->
    process_flag(trap_exit, true),
    Pid = weir_server_loop_lib:start_link(weir_server_probe, #{trap_exit => true}, [?ALL]),
    Ref = make_ref(),
    while_held(Pid, fun() ->
        push(Pid),
        gen_server:cast(Pid, {hold, Ref, self()}),
        casts(Pid, 1, 100)
    end),
    held(Ref),
    ?assertEqual(0, queue_len(Pid)),
    exit(Pid, over),
    casts(Pid, 101, 105),
    Pid ! Ref,
    ?assertEqual([{cast, N} || N <- lists:seq(1, 100)], events({terminated, Pid, over})).

%% ---------------------------------------------------------------- acknowledgements

ack_in_place_direct(_) ->
    Pid = start(weir_server_probe, []),
    while_held(Pid, fun() ->
        casts(Pid, 1, 3),
        ask(Pid, ack, ack),
        casts(Pid, 4, 5),
        Pid ! last
    end),
    ?assertMatch([{cast, 1}, {cast, 2}, {cast, 3}, {ack, {ok, no_statistics}}, {cast, 4}, {cast, 5}], events({info,
        last})),
    stop(Pid).

%% As other system messages have theirs.
ack_in_place_drained(_) ->
    Pid = start(weir_server_probe, [?ALL]),
    while_held(Pid, fun() ->
        push(Pid),
        casts(Pid, 1, 2),
        ask(Pid, ack1, ack),
        ask(Pid, state, state),
        casts(Pid, 3, 4),
        ask(Pid, ack2, ack),
        ask(Pid, ack3, ack),
        ask(Pid, state2, state),
        casts(Pid, 5, 5),
        Pid ! last
    end),
    ?assertEqual(
        [cast, cast, ack1, state, cast, cast, ack2, ack3, state2, cast],
        [element(1, E) || E <- events({info, last})]
    ),
    stop(Pid).

%% The place is kept also where it is many looks away, and in whatever way messages came.
ack_in_place_over_looks(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            while_held(Pid, fun() ->
                [
                    begin
                        gen_server:cast(Pid, {do, N, fun slow/2}),
                        N rem 7 =:= 0 andalso ask(Pid, {ack, N}, ack),
                        N rem 50 =:= 0 andalso ask(Pid, {state, N}, state)
                    end
                 || N <- lists:seq(1, 500)
                ],
                Pid ! last
            end),
            Events = [case Event of {{state, N}, _} -> {state, N}; _ -> Event end || Event <- events({info, last})],
            Expected = lists:append([
                [{cast, N}] ++ [{{ack, N}, {ok, no_statistics}} || N rem 7 =:= 0] ++ [{state, N} || N rem 50 =:= 0]
             || N <- lists:seq(1, 500)
            ]),
            ?assertEqual(Expected, Events),
            stop(Pid)
        end
     || Options <- [[], [{drain, {1, 3}}], [{drain, {16, 1000}}], [?ALL]]
    ].

with_state_in_place(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            while_held(Pid, fun() ->
                push(Pid),
                gen_server:cast(Pid, {do, before, fun(_, State) -> {noreply, State#{here => yes}} end}),
                ask(Pid, with, {with_state, fun(State) -> maps:get(here, State, no) end}),
                gen_server:cast(Pid, {do, later, fun(_, State) -> {noreply, State#{here => too_late}} end}),
                ask(Pid, state, state),
                Pid ! last
            end),
            [{cast, before}, {with, {ok, yes}}, {cast, later}, {state, Answer}] = events({info, last}),
            %% Some releases answer `{ok, State}' themselves, others leave that to `sys'.
            ?assertMatch(#{here := too_late}, case Answer of {ok, State} -> State; State -> State end),
            ?assertMatch(#{handled := #{calls := 1}}, settle(Pid)),
            stop(Pid)
        end
     || Options <- [[], [?ALL]]
    ].

with_state_raises(_) ->
    Pid = start(weir_server_probe, []),
    ?assertError(oops, weir_server_loop_lib:with_state(Pid, fun(_) -> error(oops) end)),
    ?assertExit(oops, weir_server_loop_lib:with_state(Pid, fun(_) -> exit(oops) end)),
    ?assertThrow(oops, weir_server_loop_lib:with_state(Pid, fun(_) -> throw(oops) end)),
    ?assert(is_process_alive(Pid)),
    stop(Pid).

%% ---------------------------------------------------------------- sys

%% While a server is suspended, sys answers every system message, also the request for an acknowledgement, and nothing
%% is handled.
suspended(_) ->
    Pid = start(weir_server_probe, []),
    ok = sys:suspend(Pid, wait_ms()),
    casts(Pid, 1, 100),
    ask(Pid, ack, ack),
    {ack, {ok, no_statistics}} = weir_server_loop_lib:next(),
    casts(Pid, 101, 200),
    #{} = sys:get_state(Pid, wait_ms()),
    weir_server_loop_lib:none_of(fun(_) -> true end),
    ok = sys:resume(Pid, wait_ms()),
    Pid ! last,
    ?assertEqual([{cast, N} || N <- lists:seq(1, 200)], events({info, last})),
    stop(Pid).

suspended_while_drained(_) ->
    Pid = suspended_amid_casts(),
    ?assertMatch(#{mailbox := 50, drained := 114}, info(Pid)),
    casts(Pid, 101, 150),
    ok = sys:resume(Pid, wait_ms()),
    Pid ! last,
    ?assertEqual([{cast, N} || N <- lists:seq(1, 150)], events({info, last})),
    stop(Pid).

code_change_while_drained(_) ->
    Pid = suspended_amid_casts(),
    ok = sys:change_code(Pid, weir_server_probe_prio, "1", changed, wait_ms()),
    ok = sys:resume(Pid, wait_ms()),
    Pid ! last,
    ?assertEqual([{code_change, changed} | [{cast, N} || N <- lists:seq(1, 100)]], events({info, last})),
    ?assertMatch(#{handled := #{casts := 165}, dropped := #{casts := 0}}, settle(Pid)),
    stop(Pid).

%% A code_change that fails leaves all as it was.
failed_code_change(_) ->
    [
        begin
            Pid = suspended_amid_casts(),
            {error, _} = sys:change_code(Pid, weir_server_probe_prio, "1", {do, changed, Fail}, wait_ms()),
            ok = sys:resume(Pid, wait_ms()),
            Pid ! last,
            ?assertEqual([{code_change, changed} | [{cast, N} || N <- lists:seq(1, 100)]], events({info, last})),
            stop(Pid)
        end
     || Fail <- [
            fun(_, _) -> error(no) end,
            fun(_, _) -> exit(no) end,
            fun(_, _) -> throw(no) end,
            fun(_, _) -> {error, no} end
        ]
    ].

%% A server that is suspended with 50 casts drained and none of them handled; 50 more are in its mailbox. It is one
%% with priorities, as these have system messages handled first.
suspended_amid_casts() ->
    Pid = start(weir_server_probe_prio, [?ALL]),
    while_held(Pid, fun() ->
        push(Pid),
        casts(Pid, 1, 50),
        Pid ! {system, {self(), suspended}, suspend}
    end),
    [] = events({suspended, ok}),
    casts(Pid, 51, 100),
    Pid.

replace_state_while_drained(_) ->
    Pid = start(weir_server_probe, [?ALL]),
    Self = self(),
    while_held(Pid, fun() ->
        push(Pid),
        Mark = fun(_, State) -> Self ! maps:get(mark, State, old), {noreply, State} end,
        gen_server:cast(Pid, {do, 1, Mark}),
        Pid ! {system, {self(), replaced}, {replace_state, fun(State) -> State#{mark => new} end}},
        gen_server:cast(Pid, {do, 2, Mark}),
        Pid ! last
    end),
    ?assertMatch([{cast, 1}, old, {replaced, _}, {cast, 2}, new], events({info, last})),
    stop(Pid).

%% ---------------------------------------------------------------- the end

%% What was drained and not handled goes with the server, and callers learn it from their monitors.
stop_while_drained(_) ->
    Pid = start(weir_server_probe, [?ALL]),
    Ref = monitor(process, Pid),
    Request = while_held(Pid, fun() ->
        push(Pid),
        casts(Pid, 1, 5),
        gen_server:cast(Pid, {do, stop, fun(_, State) -> {stop, {shutdown, told}, State} end}),
        casts(Pid, 6, 10),
        gen_server:send_request(Pid, never)
    end),
    ?assertEqual([{cast, N} || N <- lists:seq(1, 5)] ++ [{cast, stop}], events({terminated, Pid, {shutdown, told}})),
    ?assertEqual({shutdown, told}, down(Ref, Pid)),
    ?assertEqual({error, {{shutdown, told}, Pid}}, gen_server:receive_response(Request, wait_ms())).

crash_while_drained(_) ->
    Pid = start(weir_server_probe, [?ALL]),
    Ref = monitor(process, Pid),
    while_held(Pid, fun() ->
        push(Pid),
        casts(Pid, 1, 5),
        gen_server:cast(Pid, {do, crash, fun(_, _) -> error(oops) end}),
        casts(Pid, 6, 10)
    end),
    {oops, [_ | _]} = Reason = down(Ref, Pid),
    ?assertEqual([{cast, N} || N <- lists:seq(1, 5)] ++ [{cast, crash}], events({terminated, Pid, Reason})).

%% ---------------------------------------------------------------- counts

kinds_are_counted(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            while_held(Pid, fun() ->
                [
                    case N rem 4 of
                        0 -> Pid ! N;
                        1 -> ask(Pid, {call, N}, {call, N});
                        _ -> gen_server:cast(Pid, N)
                    end
                 || N <- lists:seq(1, 1000)
                ]
            end),
            ?assertMatch(
                #{
                    handled := #{calls := 250, casts := 501, infos := 250},
                    dropped := #{calls := 0, casts := 0, infos := 0},
                    shed := #{casts := 0, infos := 0},
                    mailbox := 0,
                    drained := 0,
                    max_queue := infinity
                },
                settle(Pid)
            ),
            stop(Pid)
        end
     || Options <- [[], [{drain, {1, 1}}], [?ALL]]
    ].

%% Callbacks that follow each other without a look at the mailbox are counted as well.
many_at_once_are_counted(_) ->
    [
        begin
            Pid = start(weir_server_probe, []),
            gen_server:cast(Pid, {do, start, fun(_, State) -> {noreply, State, {timeout, 0, again(N - 1)}} end}),
            events({info, {again, 0}}),
            ?assertMatch(#{handled := #{calls := 0, casts := 1, infos := N}}, settle(Pid)),
            stop(Pid)
        end
     || N <- [100, 255, 256, 257, 1000]
    ].

again(0) -> {again, 0};
again(N) -> {do, {again, N}, fun(_, State) -> {noreply, State, {timeout, 0, again(N - 1)}} end}.

own_requests_do_not_count(_) ->
    Pid = start(weir_server_probe, []),
    [#{} = info(Pid) || _ <- lists:seq(1, 300)],
    [#{} = sys:get_state(Pid, wait_ms()) || _ <- lists:seq(1, 300)],
    ?assertMatch(#{handled := #{calls := 0, casts := 0, infos := 0}}, info(Pid)),
    stop(Pid).

%% Every message that weir_flow counts is taken off its counter.
credits(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            Counter = atomics:new(1, []),
            while_held(Pid, fun() ->
                [
                    begin
                        atomics:add(Counter, 1, 1),
                        Pid ! {'$weir_credit', Counter, credited(N)}
                    end
                 || N <- lists:seq(1, 300)
                ]
            end),
            Pid ! last,
            Events = events({info, last}),
            ?assertEqual(lists:seq(1, 300), [N || {_, N} <- Events]),
            ?assertEqual(0, atomics:get(Counter, 1)),
            stop(Pid)
        end
     || Options <- [[], [?ALL]]
    ].

credited(N) when N rem 2 =:= 0 -> {'$gen_cast', N};
credited(N) -> N.

credits_of_calls(_) ->
    Pid = start(weir_server_probe, []),
    Counter = atomics:new(1, []),
    ok = atomics:put(Counter, 1, 1),
    Pid ! {'$weir_credit', Counter, {'$gen_call', {self(), answer}, question}},
    Pid ! last,
    ?assertEqual([{call, question}, {answer, question}], events({info, last})),
    ?assertEqual(0, atomics:get(Counter, 1)),
    stop(Pid).

%% ---------------------------------------------------------------- helpers

casts(Pid, From, To) ->
    [gen_server:cast(Pid, N) || N <- lists:seq(From, To)],
    ok.

%% By how many messages the mailbox gets shorter from one callback to the next, while so many are there at first.
falls(Pid, Count, SpinUs) ->
    Self = self(),
    Tell = fun(_, State) ->
        Self ! {length, queue_len(self())},
        spin(SpinUs),
        {noreply, State}
    end,
    %% Nothing is sent while it works: that would be among the lengths.
    while_held(Pid, fun() ->
        [gen_server:cast(Pid, {do, told, Tell}) || _ <- lists:seq(1, Count)],
        Pid ! last
    end),
    Lengths = [Count + 1 | [Length || {length, Length} <- events({info, last})]],
    ?assertEqual(Count + 1, length(Lengths)),
    [Before - After || {Before, After} <- lists:zip(lists:droplast(Lengths), tl(Lengths))].
