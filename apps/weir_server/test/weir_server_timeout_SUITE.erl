%% The actions of OTP 29 on all releases, `{timeout, Time, Message[, Options]}' and the same with `hibernate', and
%% `become'.
%%
%% Short times are only waited for; where something is to happen before a time-out, the time is an hour.
-module(weir_server_timeout_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, take_messages/0, until/1, wait_ms/0]).
-import(weir_server_loop_lib, [
    start/2, start/3, stop/1, while_held/2, push/1, ask/3, info/1, settle/1, events/1, down/2, next/0, is_hibernated/1
]).

-define(HOUR, 3_600_000).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- timeout

expires(_) ->
    [
        begin
            Pid = start(weir_server_probe, []),
            act(Pid, Action),
            ?assertEqual([{cast, act}], events({info, late})),
            stop(Pid)
        end
     || Action <- [
            {timeout, 1, late},
            {timeout, 2, late, []},
            {timeout, 2, late, {abs, false}},
            {timeout, 2, late, [{abs, true}, {abs, false}]},
            {hibernate, 2, late}
        ]
    ].

%% Zero means now, also before what waits.
at_once(_) ->
    [
        begin
            Pid = start(weir_server_probe, []),
            act(Pid, Action),
            ?assertEqual([{cast, act}], events({info, now})),
            stop(Pid)
        end
     || Action <- zeros()
    ].

at_once_ahead_of_others(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            while_held(Pid, fun() ->
                push(Pid),
                act(Pid, Action),
                gen_server:cast(Pid, other)
            end),
            Pid ! last,
            ?assertEqual([{cast, act}, {info, now}, {cast, other}], events({info, last})),
            stop(Pid)
        end
     || Action <- zeros(), Options <- [[], [{drain, {1000, 1000}}]]
    ].

zeros() ->
    [
        {timeout, 0, now},
        {timeout, 0, now, []},
        {timeout, 0, now, {abs, false}},
        {hibernate, 0, now},
        {hibernate, 0, now, [{abs, false}]}
    ].

message_cancels(_) ->
    [
        begin
            Pid = start(weir_server_probe, []),
            act(Pid, Action),
            {cast, act} = next(),
            Send(Pid),
            settle(Pid),
            Pid ! last,
            ?assertMatch([{_, hello}], [E || {Kind, _} = E <- events({info, last}), is_atom(Kind)]),
            stop(Pid)
        end
     || Action <- long(), Send <- [fun(P) -> P ! hello end, fun(P) -> gen_server:cast(P, hello) end,
         fun(P) -> gen_server:call(P, hello, wait_ms()) end]
    ].

%% A message that is there already is one that arrives in time.
message_that_waits_cancels(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            while_held(Pid, fun() ->
                push(Pid),
                act(Pid, {Kind, 1, never}),
                gen_server:cast(Pid, other)
            end),
            _ = events({cast, other}),
            while_held(Pid, fun() -> weir_server_loop_lib:spin(3000) end),
            Pid ! last,
            ?assertEqual([], events({info, last})),
            stop(Pid)
        end
     || Options <- [[], [{drain, {1000, 1000}}]], Kind <- [timeout, hibernate]
    ].

absolute(_) ->
    Pid = start(weir_server_probe, []),
    Soon = erlang:monotonic_time(millisecond) + 5,
    act(Pid, {timeout, Soon, late, [{abs, true}]}),
    ?assertEqual([{cast, act}], events({info, late})),
    ?assert(erlang:monotonic_time(millisecond) >= Soon),
    act(Pid, {timeout, erlang:monotonic_time(millisecond) + ?HOUR, never, {abs, true}}),
    Pid ! last,
    ?assertEqual([{cast, act}], events({info, last})),
    stop(Pid).

absolute_in_the_past(_) ->
    Pid = start(weir_server_probe, []),
    Now = erlang:monotonic_time(millisecond),
    [
        begin
            act(Pid, {Kind, Time, late, {abs, true}}),
            ?assertEqual([{cast, act}], events({info, late}))
        end
     || Time <- [Now - 1, Now - 10, Now], Kind <- [timeout, hibernate]
    ],
    stop(Pid).

%% Such a time erlang:start_timer/4 does not take.
absolute_before_the_runtime(_) ->
    Pid = start(weir_server_probe, []),
    Start = erlang:convert_time_unit(erlang:system_info(start_time), native, millisecond),
    [
        begin
            act(Pid, {Kind, Time, late, {abs, true}}),
            ?assertEqual([{cast, act}], events({info, late}))
        end
     || Time <- [Start - 1, Start - ?HOUR], Kind <- [timeout, hibernate]
    ],
    stop(Pid).

past_but_a_message_waits(_) ->
    Pid = start(weir_server_probe, []),
    while_held(Pid, fun() ->
        act(Pid, {timeout, erlang:monotonic_time(millisecond) - 1, never, {abs, true}}),
        gen_server:cast(Pid, other)
    end),
    settle(Pid),
    Pid ! last,
    ?assertEqual([{cast, act}, {cast, other}], events({info, last})),
    stop(Pid).

infinite(_) ->
    Pid = start(weir_server_probe, []),
    act(Pid, {timeout, infinity, never}),
    act(Pid, {timeout, infinity, never, {abs, true}}),
    act(Pid, {hibernate, infinity, never}),
    ok = until(fun() -> is_hibernated(Pid) end),
    Pid ! last,
    ?assertEqual([{cast, act}, {cast, act}, {cast, act}], events({info, last})),
    stop(Pid).

%% Not even those of which each is answered before the time.
system_messages_do_not_cancel(_) ->
    [
        begin
            Pid = start(weir_server_probe, []),
            act(Pid, {Kind, 30, late}),
            _ = ask_until(Pid, {info, late}),
            stop(Pid)
        end
     || Kind <- [timeout, hibernate]
    ].

ask_until(Pid, Event) ->
    #{} = sys:get_state(Pid, wait_ms()),
    #{} = info(Pid),
    {ok, no_statistics} = sys:statistics(Pid, get, wait_ms()),
    ok = sys:suspend(Pid, wait_ms()),
    ok = sys:resume(Pid, wait_ms()),
    receive
        Event -> ok
    after 1 -> ask_until(Pid, Event)
    end.

answered_while_waiting(_) ->
    Pid = start(weir_server_probe, []),
    act(Pid, {timeout, ?HOUR, never}),
    ?assertMatch(#{waiting := 0}, weir_server_loop_lib:settle(Pid)),
    ?assertEqual(yes, weir_server_loop_lib:with_state(Pid, fun(_) -> yes end)),
    stop(Pid).

%% One that has expired while a message was there is never seen.
stale_message_is_dropped(_) ->
    [
        begin
            Pid = start(Mod, []),
            [
                while_held(Pid, fun() ->
                    act(Pid, {timeout, 1, never}),
                    [gen_server:cast(Pid, {do, slow, fun(_, S) -> weir_server_loop_lib:spin(200), {noreply,
                        S} end}) || _ <- lists:seq(1, 10)]
                end)
             || _ <- lists:seq(1, 10)
            ],
            %% Also one that comes between two messages.
            [
                begin
                    act(Pid, {timeout, 1, {maybe_, N}}),
                    weir_server_loop_lib:spin(1000),
                    gen_server:cast(Pid, {message, N})
                end
             || N <- lists:seq(1, 50)
            ],
            settle(Pid),
            Pid ! last,
            Seen = [Info || {info, Info} <- events({info, last})],
            ?assertEqual([], [Info || Info <- Seen, not is_maybe(Info)]),
            ?assertEqual(lists:usort(Seen), Seen),
            stop(Pid)
        end
     || Mod <- [weir_server_probe, weir_server_probe_prio]
    ].

is_maybe({maybe_, _}) -> true;
is_maybe(_) -> false.

%% It goes on where it was: the time has passed.
suspended_over_the_time(_) -> suspended_over(20).

suspended_over(Ms) ->
    Pid = start(weir_server_probe, []),
    act(Pid, {timeout, Ms, late}),
    {cast, act} = next(),
    ok = sys:suspend(Pid, wait_ms()),
    receive
        %% On a busy machine the time may be over before it is suspended.
        {info, late} ->
            stop(Pid),
            suspended_over(2 * Ms)
    after 0 ->
        ok = until(fun() -> queue_len(Pid) =:= 1 end),
        weir_server_loop_lib:none_of(fun(_) -> true end),
        ok = sys:resume(Pid, wait_ms()),
        ?assertEqual({info, late}, next()),
        stop(Pid)
    end.

%% Each expiry may ask for the next.
again(_) ->
    Pid = start(weir_server_probe, []),
    gen_server:cast(Pid, repeat(5)),
    ?assertEqual([{cast, {again, 5}} | [{info, {again, N}} || N <- [4, 3, 2, 1]]], events({info, {again, 0}})),
    stop(Pid).

repeat(0) -> {again, 0};
repeat(N) -> {do, {again, N}, fun(_, State) -> {noreply, State, {timeout, 1, repeat(N - 1)}} end}.

%% ---------------------------------------------------------------- hibernate

hibernates(_) ->
    Pid = start(weir_server_probe, []),
    act(Pid, {hibernate, ?HOUR, never}),
    ok = until(fun() -> is_hibernated(Pid) end),
    ?assertEqual(hello, gen_server:call(Pid, hello, wait_ms())),
    %% The call has ended both the sleep and the wait.
    ?assertNot(is_hibernated(Pid)),
    stop(Pid).

hibernates_and_wakes(_) -> hibernates_for(500).

hibernates_for(Ms) ->
    Pid = start(weir_server_probe, []),
    act(Pid, {hibernate, Ms, late}),
    {cast, act} = next(),
    IsOver = fun() -> process_info(self(), message_queue_len) =/= {message_queue_len, 0} end,
    Slept = fun() -> is_hibernated(Pid) end,
    ok = until(fun() -> Slept() orelse IsOver() end),
    %% On a busy machine the time may be over before it is seen asleep.
    case Slept() of
        true ->
            ?assertEqual({info, late}, next()),
            stop(Pid);
        false ->
            {info, late} = next(),
            stop(Pid),
            hibernates_for(2 * Ms)
    end.

wakes_by_message(_) ->
    Pid = start(weir_server_probe, []),
    act(Pid, {hibernate, ?HOUR, never}),
    ok = until(fun() -> is_hibernated(Pid) end),
    Pid ! last,
    ?assertEqual([{cast, act}], events({info, last})),
    stop(Pid).

%% It goes back to sleep, and still wakes in time.
system_message_while_asleep(_) ->
    Pid = start(weir_server_probe, []),
    act(Pid, {hibernate, ?HOUR, never}),
    [
        begin
            ok = until(fun() -> is_hibernated(Pid) end),
            Ask()
        end
     || Ask <- [
            fun() -> sys:get_state(Pid, wait_ms()) end,
            fun() -> info(Pid) end,
            fun() -> sys:statistics(Pid, get, wait_ms()) end,
            fun() -> sys:suspend(Pid, wait_ms()), sys:resume(Pid, wait_ms()) end
        ]
    ],
    ok = until(fun() -> is_hibernated(Pid) end),
    stop(Pid).

%% Nothing that can be waited for is lost by falling asleep.
hibernate_after_and_timeout(_) ->
    Pid = start(weir_server_probe, [{hibernate_after, 5}]),
    act(Pid, {timeout, 300, late}),
    ok = until(fun() -> is_hibernated(Pid) end),
    ?assertEqual([{cast, act}], events({info, late})),
    act(Pid, {timeout, ?HOUR, never}),
    ok = until(fun() -> is_hibernated(Pid) end),
    #{} = sys:get_state(Pid, wait_ms()),
    ok = until(fun() -> is_hibernated(Pid) end),
    Pid ! last,
    ?assertEqual([{cast, act}], events({info, last})),
    stop(Pid).

%% ---------------------------------------------------------------- where actions come from

from_init(_) ->
    [
        begin
            Pid = start(Mod, #{action => Action}, []),
            Event = next(),
            ?assert(Event =:= {info, start} orelse Event =:= {batch, [{info, start}]}),
            stop(Pid)
        end
     || Action <- [{timeout, 0, start}, {timeout, 1, start}, {hibernate, 0, start}, {hibernate, 1, start}],
        Mod <- [weir_server_probe, weir_server_probe_prio, weir_server_probe_batch, weir_server_probe_sleep],
        not (Mod =:= weir_server_probe_sleep andalso element(1, Action) =:= hibernate)
    ].

from_continue(_) ->
    Pid = start(weir_server_probe, []),
    gen_server:cast(
        Pid,
        {do, first, fun(_, State) ->
            {noreply, State, {continue, {do, second, fun(_, S) -> {noreply, S, {timeout, 1, third}} end}}}
        end}
    ),
    ?assertEqual([{cast, first}, {continue, second}], events({info, third})),
    ?assertEqual(
        reply,
        gen_server:call(
            Pid, {do, call, fun(_, State) -> {reply, reply, State, {timeout, 1, after_reply}} end}, wait_ms()
        )
    ),
    ?assertEqual([{call, call}], events({info, after_reply})),
    stop(Pid).

bad_actions(_) ->
    [
        begin
            Pid = start(Mod, []),
            Ref = monitor(process, Pid),
            act(Pid, Action),
            ?assertMatch({Action, {bad_return_value, {noreply, _, Action}}}, {Action, down(Ref, Pid)}),
            take_messages()
        end
     || Action <- bad(), Mod <- [weir_server_probe, weir_server_probe_batch]
    ].

bad() ->
    [
        {timeout, -1, m},
        {timeout, 1.0, m},
        {hibernate, -1, m},
        {timeout, x, m},
        {timeout, 1},
        {timeout, 1, m, x},
        {timeout, 1, m, {abs, x}},
        {timeout, 1, m, [{abs, true}, x]},
        {timeout, 1, m, [], []},
        {timeout, -1, m, {abs, false}},
        {sleep, 1, m}
    ].

is_action(_) ->
    [?assertNot(weir_server_action:is_action(Action)) || Action <- bad()],
    [
        ?assert(weir_server_action:is_action(Action))
     || Action <- zeros() ++ long() ++ [{timeout, -5, m, {abs, true}}, 0, 5, infinity, hibernate, {continue, x}]
    ].

timeout_in_batches(_) ->
    Pid = start(weir_server_probe_batch, []),
    [
        begin
            act(Pid, Action),
            ?assertEqual([{batch, [{cast, act}]}, {batch, [{info, Message}]}], [next(), next()])
        end
     || {_, _, Message} = Action <- [{timeout, 0, now}, {timeout, 1, soon}, {hibernate, 0, now}, {hibernate, 1, soon}]
    ],
    stop(Pid).

%% ---------------------------------------------------------------- become

become(_) ->
    Pid = start(weir_server_probe, []),
    gen_server:cast(Pid, {do, change, fun(_, State) -> {become, weir_server_probe_batch, State} end}),
    ?assertEqual(hello, gen_server:call(Pid, hello, wait_ms())),
    Pid ! last,
    ?assertEqual([{cast, change}, {batch, [{call, hello}]}], events({batch, [{info, last}]})),
    gen_server:cast(Pid, {do, back, fun(_, State) -> {become, weir_server_probe, State} end}),
    ?assertEqual({batch, [{cast, back}]}, next()),
    Pid ! last,
    ?assertEqual([], events({info, last})),
    stop(Pid).

become_with_action(_) ->
    Actions = [
        {{continue, go}, [{batch, [{cast, change}]}, {continue, go}]},
        {0, [{batch, [{cast, change}]}, {info, timeout}]},
        {1, [{batch, [{cast, change}]}, {info, timeout}]},
        {{timeout, 0, now}, [{batch, [{cast, change}]}, {info, now}]},
        {{timeout, 1, soon}, [{batch, [{cast, change}]}, {info, soon}]}
    ],
    [
        begin
            Pid = start(weir_server_probe_batch, []),
            gen_server:cast(Pid, {do, change, fun(_, State) -> {become, weir_server_probe, State, Action} end}),
            ?assertEqual({Action, Events}, {Action, [next(), next()]}),
            stop(Pid)
        end
     || {Action, Events} <- Actions
    ],
    Sleepy = start(weir_server_probe, []),
    gen_server:cast(Sleepy, {do, change, fun(_, State) -> {become, weir_server_probe_sleep, State, hibernate} end}),
    ok = until(fun() -> is_hibernated(Sleepy) end),
    ?assertEqual([{cast, change}, pre_hibernate], [next(), next()]),
    stop(Sleepy).

become_in_every_callback(_) ->
    Change = {do, change, fun(_, State) -> {become, weir_server_probe_batch, State} end},
    [
        begin
            Pid = start(weir_server_probe, []),
            _ = Send(Pid),
            Pid ! last,
            {_, change} = lists:last(events({batch, [{info, last}]})),
            stop(Pid)
        end
     || Send <- [
            fun(Pid) -> gen_server:cast(Pid, Change) end,
            fun(Pid) -> gen_server:send_request(Pid, Change) end,
            fun(Pid) -> Pid ! Change end,
            fun(Pid) -> gen_server:cast(Pid, {do, x, fun(_, State) -> {noreply, State, {continue, Change}} end}) end
        ]
    ].

become_bad(_) ->
    [
        begin
            Pid = start(weir_server_probe, []),
            Ref = monitor(process, Pid),
            gen_server:cast(Pid, {do, change, fun(_, _) -> Bad end}),
            ?assertEqual({bad_return_value, Bad}, down(Ref, Pid)),
            take_messages()
        end
     || Bad <- [{become, "list", s}, {become, weir_server_probe, s, bad_action}, {become, weir_server_probe}]
    ].

%% A module that is not there serves nothing, but that is seen only when it is needed.
become_not_loaded(_) ->
    Pid = start(weir_server_probe, []),
    Ref = monitor(process, Pid),
    gen_server:cast(Pid, {do, change, fun(_, State) -> {become, weir_server_no_such_module, State} end}),
    #{} = sys:get_state(Pid, wait_ms()),
    gen_server:cast(Pid, x),
    ?assertMatch({undef, [{weir_server_no_such_module, handle_cast, _, _} | _]}, down(Ref, Pid)).

%% What is left of what was drained, and what came since, is handled by the new module, in order.
become_with_drained(_) ->
    [
        begin
            Pid = start(weir_server_probe, Options),
            while_held(Pid, fun() ->
                push(Pid),
                gen_server:cast(Pid, 1),
                gen_server:cast(Pid, {do, change, fun(_, State) -> {become, Mod, State} end}),
                [gen_server:cast(Pid, N) || N <- lists:seq(2, 100)],
                ask(Pid, state, state),
                [gen_server:cast(Pid, N) || N <- lists:seq(101, 300)]
            end),
            settle(Pid),
            Names = lists:append([names(Event) || Event <- take_messages()]),
            ?assertEqual({Mod, lists:seq(1, 300)}, {Mod, [N || N <- Names, is_integer(N)]}),
            ?assertMatch(#{handled := #{casts := 366}, dropped := #{casts := 0}}, info(Pid)),
            stop(Pid)
        end
     || Mod <- [weir_server_probe, weir_server_probe_prio, weir_server_probe_batch, weir_server_probe_prio_batch],
        Options <- [[], [{drain, {1, 7}}], [{drain, {1000, 1000}}]]
    ].

names({batch, Batch}) -> [N || {cast, N} <- Batch];
names({cast, N}) -> [N];
names(_) -> [].

%% ---------------------------------------------------------------- helpers

act(Pid, Action) -> gen_server:cast(Pid, {do, act, fun(_, State) -> {noreply, State, Action} end}).

long() -> [{timeout, ?HOUR, never}, {timeout, ?HOUR, never, {abs, false}}, {hibernate, ?HOUR, never}].
