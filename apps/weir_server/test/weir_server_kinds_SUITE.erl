%% Promises that hold for every kind of server: direct, drained, bounded, with batches, and with priorities.
-module(weir_server_kinds_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [take_messages/0, wait_ms/0]).
-import(weir_server_loop_lib, [
    start/3, stop/1, each/2, held/1, while_held/2, push/1, casts/3, act/2, ask/3, info/1, settle/1, next/0, next/1,
    events/1, handled/1, none_yet/0, down/2, spin/1
]).

-define(HOUR, 3_600_000).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

one_by_one() ->
    [
        {weir_server_probe, []},
        {weir_server_probe, [{drain, 1}]},
        {weir_server_probe, [{drain, {1, 7}}]},
        {weir_server_probe, [{drain, {1000, infinity}}]},
        {weir_server_probe, [{max_queue, 100_000}]},
        {weir_server_probe, [{spawn_opt, [{message_queue_data, off_heap}]}]},
        {weir_server_probe_prio, []}
    ].

in_batches() ->
    [
        {weir_server_probe_batch, []},
        {weir_server_probe_batch, [{drain, {1, 3}}]},
        {weir_server_probe_batch, [{batch_bytes, 1}]},
        {weir_server_probe_batch, [{linger, 2000}]},
        {weir_server_probe_prio_batch, [{drain, {1, 5}}, {max_queue, 100_000}]}
    ].

kinds() -> one_by_one() ++ in_batches().

%% ---------------------------------------------------------------- order and counts

all_sorts_are_handled_once_in_order_and_counted(_) ->
    each(kinds(), fun(Pid) ->
        while_held(Pid, fun() -> [send(Pid, N) || N <- lists:seq(1, 400)] end),
        #{handled := Handled, dropped := Dropped, shed := Shed, mailbox := 0, drained := 0} = settle(Pid),
        ?assertEqual(#{calls => 100, casts => 201, infos => 100}, Handled),
        ?assertEqual({#{calls => 0, casts => 0, infos => 0}, #{casts => 0, infos => 0}}, {Dropped, Shed}),
        Messages = handled(take_messages()),
        weir_kit:same(out_of_order, lists:seq(1, 400), numbers(Messages)),
        weir_kit:same(answers, lists:seq(1, 400, 4), lists:sort([N || {{call, N}, N} <- Messages]))
    end).

%% Three senders, and a server that is slow now and then, and that is asked and suspended meanwhile.
order_of_each_sender_is_kept(_) ->
    each(kinds(), fun(Pid) ->
        Senders = [weir_kit:start(fun() -> send_as(Pid, Name, 600) end) || Name <- [a, b, c]],
        meddle(Pid, [Sender || {Sender, _} <- Senders]),
        [ok = weir_kit:result(Sender) || Sender <- Senders],
        %% The requests of info/1 and `sys' do not count.
        ?assertMatch(#{handled := #{calls := 0, casts := 1440, infos := 360}}, settle(Pid)),
        Names = [Name || {_, Name} <- handled(take_messages())],
        [weir_kit:same({order_of, Sender}, lists:seq(1, 600), [N || {S, N} <- Names, S =:= Sender])
            || Sender <- [a, b, c]]
    end).

send_as(Pid, Name, Count) ->
    lists:foreach(
        fun
            (N) when N rem 5 =:= 0 -> Pid ! {Name, N};
            (N) when N rem 300 > 270 -> gen_server:cast(Pid, {do, {Name, N}, fun slow/2});
            (N) -> gen_server:cast(Pid, {Name, N})
        end,
        lists:seq(1, Count)
    ).

meddle(Pid, Senders) ->
    #{waiting := Waiting, mailbox := Mailbox, drained := Drained} = info(Pid),
    ?assertEqual(Waiting, Mailbox + Drained),
    #{} = sys:get_state(Pid, infinity),
    ok = sys:suspend(Pid, infinity),
    ok = sys:resume(Pid, infinity),
    lists:any(fun is_process_alive/1, Senders) andalso meddle(Pid, Senders).

info_is_answered_while_a_callback_runs(_) ->
    each(kinds(), fun(Pid) ->
        Ref = weir_server_loop_lib:hold(Pid),
        [send(Pid, N) || N <- lists:seq(1, 10)],
        ?assertMatch(#{waiting := 10, handled := #{calls := 0, infos := 0}}, info(Pid)),
        Pid ! Ref,
        ?assertMatch(#{waiting := 0}, settle(Pid))
    end).

%% ---------------------------------------------------------------- requests that no callback sees

%% The messages have priorities, and with `max_queue' 2 most of them are dropped.
acknowledgement_comes_behind_all_that_was_sent_before(_) ->
    Policies = [reject, drop_oldest],
    Mods = [weir_server_probe, weir_server_probe_prio, weir_server_probe_batch],
    Overrun = [{Mod, [{max_queue, 2}, {overload, Policy}]} || Mod <- Mods, Policy <- Policies],
    each(kinds() ++ Overrun, fun(Pid) ->
        while_held(Pid, fun() ->
            [begin
                gen_server:cast(Pid, {p, N rem 3, N}),
                N rem 7 =:= 0 andalso ask(Pid, {ack, N}, ack)
            end || N <- lists:seq(1, 70)]
        end),
        _ = settle(Pid),
        Messages = handled(take_messages()),
        weir_kit:same(acks, lists:seq(7, 70, 7), [N || {{ack, N}, _} <- Messages]),
        [begin
            [_ | Behind] = lists:dropwhile(fun(M) -> not is_ack(N, M) end, Messages),
            weir_kit:none(behind_its_ack, [Number || {cast, Number} <- Behind, Number < N])
        end || N <- lists:seq(7, 70, 7)]
    end).

is_ack(N, {{ack, N}, _}) -> true;
is_ack(_, _) -> false.

with_state_sees_what_was_sent_before(_) ->
    each(kinds(), fun(Pid) ->
        See = {with_state, fun(State) -> maps:get(here, State, no) end},
        while_held(Pid, fun() ->
            ask(Pid, early, See),
            gen_server:cast(Pid, {do, change, fun(_, State) -> {noreply, State#{here => yes}} end}),
            ask(Pid, late, See)
        end),
        ?assertMatch(#{handled := #{calls := 2, casts := 2}}, settle(Pid)),
        ?assertEqual([{early, {ok, no}}, {cast, change}, {late, {ok, yes}}], handled(take_messages()))
    end).

%% A server that is suspended answers the requests of `sys' alone.
suspended_server_handles_nothing(_) ->
    each(kinds(), fun(Pid) ->
        ok = sys:suspend(Pid, wait_ms()),
        [send(Pid, N) || N <- lists:seq(1, 20)],
        ask(Pid, ack, ack),
        {ack, {ok, no_statistics}} = next(),
        #{} = sys:get_state(Pid, wait_ms()),
        none_yet(),
        ok = sys:resume(Pid, wait_ms()),
        _ = settle(Pid),
        weir_kit:same(out_of_order, lists:seq(1, 20), numbers(handled(take_messages())))
    end).

%% ---------------------------------------------------------------- another module

%% A code change that fails leaves the server with the same messages, too.
code_change_keeps_what_waits(_) ->
    Changes = [
        fun(_, State) -> {ok, State} end,
        fun(_, _) -> {error, no} end,
        fun(_, _) -> throw(no) end,
        fun(_, _) -> error(no) end
    ],
    [
        each([Kind], fun(Pid) ->
            while_held(Pid, fun() ->
                push(Pid),
                [send(Pid, N) || N <- lists:seq(1, 40)],
                Pid ! {system, {self(), suspended}, suspend},
                [send(Pid, N) || N <- lists:seq(41, 80)]
            end),
            Before = events({suspended, ok}),
            _ = sys:change_code(Pid, Mod, "1", {do, changed, Change}, wait_ms()),
            ?assertEqual({code_change, changed}, next()),
            ok = sys:resume(Pid, wait_ms()),
            #{handled := #{casts := 105}, dropped := #{casts := 0}} = settle(Pid),
            weir_kit:same(out_of_order, lists:seq(1, 80), numbers(handled(Before ++ take_messages())))
        end)
     || {Mod, _} = Kind <- kinds(), Change <- Changes
    ].

become_hands_what_waits_to_the_new_module(_) ->
    [
        each(kinds(), fun(Pid) ->
            while_held(Pid, fun() ->
                push(Pid),
                gen_server:cast(Pid, {do, change, fun(_, State) -> {become, New, State} end}),
                [send(Pid, N) || N <- lists:seq(1, 100)],
                ask(Pid, ack, ack),
                [send(Pid, N) || N <- lists:seq(101, 200)]
            end),
            #{handled := #{calls := 50, casts := 166, infos := 50}, dropped := #{casts := 0}} = settle(Pid),
            [{cast, change} | Messages] = handled(take_messages()),
            weir_kit:same({out_of_order, New}, lists:seq(1, 200), numbers(Messages)),
            {Before, [_ | _]} = lists:splitwith(fun(Message) -> element(1, Message) =/= ack end, Messages),
            ?assertEqual(100, lists:nth(100, numbers(Before)))
        end)
     || New <- [weir_server_probe, weir_server_probe_prio, weir_server_probe_batch, weir_server_probe_prio_batch]
    ].

become_is_a_return_of_every_callback(_) ->
    Change = {do, change, fun(_, State) -> {become, weir_server_probe_batch, State} end},
    Sends = [
        fun gen_server:cast/2,
        fun gen_server:send_request/2,
        fun(Pid, Message) -> Pid ! Message end,
        fun(Pid, Message) -> act(Pid, {continue, Message}) end
    ],
    [
        each(one_by_one(), fun(Pid) ->
            _ = Send(Pid, Change),
            Pid ! last,
            ?assertMatch({_, change}, lists:last(events({batch, [{info, last}]})))
        end)
     || Send <- Sends
    ].

become_with_an_action(_) ->
    Actions = [
        {{continue, go}, {continue, go}},
        {0, {info, timeout}},
        {1, {info, timeout}},
        {{timeout, 0, now}, {info, now}},
        {{timeout, 1, soon}, {info, soon}},
        {hibernate, pre_hibernate}
    ],
    [
        each(kinds(), fun(Pid) ->
            gen_server:cast(Pid, {do, change, fun(_, State) -> {become, weir_server_probe_sleep, State, Action} end}),
            [First, Second] = next(2),
            ?assertEqual([{cast, change}, Event], handled([First, Second]))
        end)
     || {Action, Event} <- Actions
    ].

%% The server loads the module later. If there is no such module, the server ends when it needs a callback.
become_that_is_wrong_ends_the_server(_) ->
    [
        each(kinds(), fun(Pid) ->
            Ref = monitor(process, Pid),
            gen_server:cast(Pid, {do, change, fun(_, _) -> Returned end}),
            ok = weir_kit:until(fun() ->
                gen_server:cast(Pid, x),
                not is_process_alive(Pid)
            end),
            case down(Ref, Pid) of
                {bad_return_value, Returned} when Returned =/= {become, weir_server_no_module, s} -> ok;
                {undef, [{weir_server_no_module, handle_cast, _, _} | _]} -> ok
            end
        end)
     || Returned <- [
            {become, "list", s}, {become, weir_server_probe}, {become, weir_server_probe, s, bad_action},
            {become, weir_server_no_module, s}
        ]
    ].

%% ---------------------------------------------------------------- the end

%% The messages behind the last one are lost, and their callers learn the reason. A batch may have some of them, too.
end_loses_what_waits(_) ->
    Ends = [
        {{shutdown, done}, fun(_, State) -> {stop, {shutdown, done}, State} end},
        {raised, fun(_, _) -> error(oops) end},
        {oops, fun(_, _) -> exit(oops) end},
        {{bad_return_value, nonsense}, fun(_, _) -> nonsense end}
    ],
    [
        each(Kinds, fun(Pid) ->
            Ref = monitor(process, Pid),
            Request = while_held(Pid, fun() ->
                push(Pid),
                casts(Pid, 1, 5),
                gen_server:cast(Pid, {do, ends, End}),
                casts(Pid, 6, Last),
                gen_server:send_request(Pid, question)
            end),
            Reason = down(Ref, Pid),
            ?assertEqual(Expected, without_stack(Reason)),
            ?assertEqual({error, {Reason, Pid}}, gen_server:receive_response(Request, infinity)),
            Casts = [Name || {cast, Name} <- handled(events({terminated, Pid, Reason}))],
            ?assertEqual([1, 2, 3, 4, 5, ends], lists:sublist(Casts, Handled))
        end)
     || {Kinds, Last, Handled} <- [{one_by_one(), 100, 1000}, {in_batches(), 10, 6}], {Expected, End} <- Ends
    ].

without_stack({oops, [_ | _]}) -> raised;
without_stack(Reason) -> Reason.

%% The exit of the parent and the message of `sys' come while the drained messages wait.
end_from_outside_waits_for_what_came_before(_) ->
    Ways = [fun(Pid) -> exit(Pid, over) end, fun(Pid) -> Pid ! {system, {self(), ended}, {terminate, over}} end],
    [
        begin
            process_flag(trap_exit, true),
            Pid = weir_server_loop_lib:start_link(Mod, #{trap_exit => true}, Options),
            Ref = make_ref(),
            while_held(Pid, fun() ->
                push(Pid),
                gen_server:cast(Pid, {hold, Ref, self()}),
                casts(Pid, 1, 100)
            end),
            held(Ref),
            End(Pid),
            casts(Pid, 101, 105),
            Pid ! Ref,
            Numbers = numbers(handled(events({terminated, Pid, over}))),
            weir_kit:same({Mod, Options}, lists:seq(1, 100), lists:sublist(Numbers, 100)),
            %% The batch that the end came in may have later messages as well.
            lists:member({Mod, Options}, in_batches()) orelse ?assertEqual(100, length(Numbers)),
            stop(Pid)
        end
     || {Mod, Options} <- kinds(), End <- Ways
    ].

%% ---------------------------------------------------------------- credits of weir_flow

credits_are_given_back_when_their_messages_are_handled(_) ->
    each(kinds(), fun(Pid) ->
        Counter = atomics:new(1, []),
        ok = atomics:put(Counter, 1, 90),
        while_held(Pid, fun() ->
            [Pid ! {'$weir_credit', Counter, Message} || N <- lists:seq(1, 30), Message <- [
                {'$gen_cast', N}, N, {'$gen_call', {self(), {answer, N}}, N}
            ]]
        end),
        ?assertMatch(#{handled := #{calls := 30, casts := 31, infos := 30}}, settle(Pid)),
        ?assertEqual(0, atomics:get(Counter, 1)),
        ?assertEqual(30, length([N || {{answer, N}, N} <- take_messages()]))
    end).

credit_of_the_last_message_is_given_back(_) ->
    Ends = [fun(_, _) -> error(oops) end, fun(_, State) -> {stop, normal, State} end, fun(_, _) -> nonsense end],
    [
        each(kinds(), fun(Pid) ->
            Counter = atomics:new(1, []),
            ok = atomics:put(Counter, 1, 1),
            Pid ! {'$weir_credit', Counter, {'$gen_cast', {do, ends, End}}},
            _ = weir_kit:await_down(Pid),
            ?assertEqual(0, atomics:get(Counter, 1))
        end)
     || End <- Ends
    ].

%% ---------------------------------------------------------------- time-outs

timeout_from_a_callback_and_from_init(_) ->
    Actions = [
        {0, timeout}, {1, timeout}, {{timeout, 0, now}, now}, {{timeout, 1, soon}, soon}, {{hibernate, 0, now}, now},
        {{hibernate, 1, soon}, soon}, {{timeout, 0, now, {abs, false}}, now}
    ],
    [
        begin
            Pid = start(Mod, #{action => Action}, Options),
            Started = next(),
            act(Pid, Action),
            ?assertEqual(
                {Mod, Options, Action, [{info, Message}, {cast, act}, {info, Message}]},
                {Mod, Options, Action, handled([Started | next(2)])}
            ),
            stop(Pid)
        end
     || {Mod, Options} <- kinds(), {Action, Message} <- Actions
    ].

message_ends_a_timeout(_) ->
    Sends = [
        fun(Pid, Message) -> Pid ! Message end, fun gen_server:cast/2, fun gen_server:send_request/2
    ],
    Actions = [
        ?HOUR, {timeout, ?HOUR, never}, {timeout, ?HOUR, never, {abs, false}}, {hibernate, ?HOUR, never},
        {timeout, infinity, never}
    ],
    [
        each(kinds(), fun(Pid) ->
            act(Pid, Action),
            [{cast, act}] = handled([next()]),
            _ = Send(Pid, hello),
            _ = settle(Pid),
            ?assertMatch([{_, hello}], [E || {Kind, _} = E <- handled(take_messages()), is_atom(Kind)])
        end)
     || Action <- Actions, Send <- Sends
    ].

%% A message that waits already ends the time-out, unless the time is 0.
message_that_waits_and_a_timeout(_) ->
    Past = erlang:monotonic_time(millisecond) - 1,
    Later = [{cast, other}],
    Cases = [
        {0, Later}, {1, Later}, {{timeout, 1, never}, Later}, {{hibernate, 1, never}, Later},
        {{timeout, Past, never, {abs, true}}, Later}, {{timeout, 0, now}, [{info, now} | Later]},
        {{hibernate, 0, now}, [{info, now} | Later]}, {{timeout, 0, now, []}, [{info, now} | Later]}
    ],
    [
        each(one_by_one(), fun(Pid) ->
            while_held(Pid, fun() ->
                push(Pid),
                act(Pid, Action),
                gen_server:cast(Pid, other)
            end),
            while_held(Pid, fun() -> spin(2000) end),
            _ = settle(Pid),
            ?assertEqual({Action, [{cast, act} | Events]}, {Action, handled(take_messages())})
        end)
     || {Action, Events} <- Cases
    ].

%% The time is over while the server handles other messages.
timeout_that_a_message_ended_never_comes(_) ->
    each(one_by_one(), fun(Pid) ->
        while_held(Pid, fun() ->
            act(Pid, {timeout, 1, never}),
            [gen_server:cast(Pid, {do, slow, fun slow/2}) || _ <- lists:seq(1, 20)]
        end),
        _ = settle(Pid),
        weir_kit:none(too_late, [Info || {info, Info} <- handled(take_messages())])
    end).

%% The time is over about when the next message comes.
timeout_comes_once_at_most(_) ->
    each(kinds(), fun(Pid) ->
        [
            begin
                act(Pid, {timeout, 1, {late, N}}),
                spin(1000),
                gen_server:cast(Pid, N)
            end
         || N <- lists:seq(1, 30)
        ],
        _ = settle(Pid),
        Infos = [Info || {info, Info} <- handled(take_messages())],
        weir_kit:same(twice, lists:usort(Infos), Infos)
    end).

%% ---------------------------------------------------------------- where messages are kept

%% A server that drains every message keeps them off the heap, where the runtime is free of a fault, and unless the user
%% has chosen.
messages_are_kept_off_the_heap(_) ->
    Safe =
        case weir_server_otp:is_off_heap_safe() of
            true -> off_heap;
            false -> on_heap
        end,
    OnHeap = {spawn_opt, [{message_queue_data, on_heap}]},
    [
        each([{Mod, Options}], fun(Pid) ->
            %% The server has begun to serve when it answers.
            #{} = sys:get_state(Pid, infinity),
            ?assertEqual({message_queue_data, Where}, process_info(Pid, message_queue_data))
        end)
     || {Mod, Options, Where} <- [
            {weir_server_probe, [], on_heap},
            {weir_server_probe, [{max_queue, 10}], Safe},
            {weir_server_probe, [{max_queue, 10}, OnHeap], on_heap},
            {weir_server_probe_batch, [], Safe},
            {weir_server_probe_batch, [OnHeap], on_heap},
            {weir_server_probe_prio, [], Safe},
            {weir_server_probe_prio, [OnHeap], on_heap}
        ]
    ].

%% ---------------------------------------------------------------- helpers

%% Sends a number as a call, a cast or an info.
send(Pid, N) when N rem 4 =:= 1 -> ask(Pid, {call, N}, {call, N});
send(Pid, N) when N rem 4 =:= 2 -> Pid ! N;
send(Pid, N) -> gen_server:cast(Pid, N).

slow(_, State) ->
    spin(100),
    {noreply, State}.

numbers(Messages) -> [N || {Kind, N} <- Messages, is_integer(N), is_atom(Kind)].
