%% How many messages a server without priorities and batches drains, and which ones.
%%
%% A callback sees by the length of the mailbox how many messages the server has drained: the length falls by more than
%% the message that the server handled.
-module(weir_server_drain_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, wait_ms/0]).
-import(weir_server_loop_lib, [
    start/2, stop/1, held/1, while_held/2, push/1, casts/3, ask/3, info/1, settle/1, events/1, spin/1
]).

-define(ALL, {drain, {1_000_000, infinity}}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- how many

%% On a machine of any load the slow callbacks take longer than a callback for which draining is worth it. The server is
%% direct again when all messages are handled.
slow_callbacks_are_drained_and_few_messages_are_not(_) ->
    Pid = start(weir_server_probe, []),
    Few = fun() ->
        while_held(Pid, fun() -> casts(Pid, 1, 31) end),
        maps:get(drains, settle(Pid))
    end,
    ?assertEqual(0, lists:max([Few() || _ <- lists:seq(1, 20)])),
    ?assert(lists:max(falls(Pid, 500, 20)) > 1),
    #{drains := Drains, longest_wait_us := Us} = settle(Pid),
    ?assert(Drains > 0 andalso Us > 0),
    ?assertEqual(Drains, Few()),
    stop(Pid).

most_messages_at_a_time(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            Most = lists:max(falls(Pid, 4000, SpinUs)),
            ?assert(Most >= Least andalso Most =< Limit, {Options, Most}),
            stop(Pid)
        end
     || {Options, SpinUs, Least, Limit} <- [
            {[{drain, {2, 2}}], 0, 2, 2},
            {[{drain, 11}], 0, 11, 11},
            {[{drain, 1}], 20, 1, 1},
            {[{drain, {1, 7}}], 20, 7, 7},
            {[{drain, {50, infinity}}], 0, 50, 4001},
            %% Draining moves messages onto the heap, and the user wants them off the heap.
            {[{spawn_opt, [{message_queue_data, off_heap}]}], 20, 1000, 1000},
            {[{spawn_opt, [{message_queue_data, on_heap}]}], 20, 1001, 4001}
        ]
    ].

%% Returns by how many messages the mailbox gets shorter from one callback to the next. At first Count messages are
%% there, and each callback takes SpinUs microseconds. No message comes meanwhile.
falls(Pid, Count, SpinUs) ->
    Self = self(),
    Tell = fun(_, State) ->
        Self ! {length, queue_len(self())},
        spin(SpinUs),
        {noreply, State}
    end,
    while_held(Pid, fun() ->
        [gen_server:cast(Pid, {do, told, Tell}) || _ <- lists:seq(1, Count)],
        Pid ! last
    end),
    Lengths = [Count + 1 | [Length || {length, Length} <- events({info, last})]],
    ?assertEqual(Count + 1, length(Lengths)),
    [Before - After || {Before, After} <- lists:zip(lists:droplast(Lengths), tl(Lengths))].

%% ---------------------------------------------------------------- which ones

%% The server drains the casts before the first info, and on OTP 25 to 27 that info. A receive in the callback therefore
%% searches few messages.
requests_are_drained_up_to_the_first_info(_) ->
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
    Drained = case weir_server_loop_lib:release_number() >= 28 of true -> 5; false -> 6 end,
    Mailbox = 10 - Drained,
    ?assertMatch(
        #{drained := Drained, mailbox := Mailbox, waiting := 10, handled := #{calls := 0, casts := 65, infos := 0}},
        info(Pid)
    ),
    Pid ! Ref,
    Casts = [{cast, N} || N <- lists:seq(1, 8)],
    ?assertEqual(lists:sublist(Casts, 5) ++ [{info, first}] ++ lists:nthtail(5, Casts), events({info, last})),
    stop(Pid).

%% Few messages are in the mailbox, and drained messages wait before them.
system_message_among_few_keeps_its_place(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            Slow = {do, slow, fun(_, State) -> spin(100), {noreply, State} end},
            First = make_ref(),
            while_held(Pid, fun() ->
                push(Pid),
                [gen_server:cast(Pid, Slow) || _ <- lists:seq(1, 300)],
                gen_server:cast(Pid, {hold, First, self()}),
                casts(Pid, 1, 20)
            end),
<<<<<<< HEAD
            held(First),
            ask(Pid, state, state),
            casts(Pid, 21, 30),
            Pid ! First,
=======
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
>>>>>>> 2a9a17aaa23ac95848a7c8ee7cd861e12479cd87
            Pid ! last,
            Events = [case Event of {state, _} -> state; {cast, N} -> N end || Event <- events({info, last})],
            ?assertEqual(lists:seq(1, 20) ++ [state] ++ lists:seq(21, 30), [E || E <- Events, E =/= slow]),
            stop(Pid)
        end
     || Options <- [[], [{drain, {1000, 1000}}], [{drain, {1, infinity}}]]
    ].

<<<<<<< HEAD
=======
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

>>>>>>> 2a9a17aaa23ac95848a7c8ee7cd861e12479cd87
%% ---------------------------------------------------------------- counts

%% The server does not poll the mailbox between callbacks that follow each other at once.
callbacks_without_a_poll_between_are_counted(_) ->
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
<<<<<<< HEAD
=======

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
>>>>>>> 2a9a17aaa23ac95848a7c8ee7cd861e12479cd87
