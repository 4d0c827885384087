%% Hibernation: the callbacks around it, the wait before it, and what wakes a server.
%%
%% The waits are an hour where there must be none, or a millisecond where one must end, so that what a process is found
%% in says which it was.
-module(weir_server_hibernate_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_server.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [take_messages/0, until/1, wait_ms/0]).
-import(weir_server_loop_lib, [
    start/2, start/3, stop/1, held/1, while_held/2, push/1, ask/3, info/1, settle/1, events/1, down/2, next/0,
    is_hibernated/1
]).

-define(MOD, weir_server_probe_sleep).
-define(HOUR, 3_600_000).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- before

order(_) ->
    Pid = start(?MOD, []),
    sleep(Pid),
    Pid ! last,
    ?assertEqual([{cast, sleep}, pre_hibernate, post_hibernate], events({info, last})),
    stop(Pid).

%% With `noreply' it does not sleep now.
pre_keeps_awake(_) ->
    Pid = start(?MOD, #{pre => fun(State) -> {noreply, State#{kept => awake}} end}, []),
    gen_server:cast(Pid, go_to_sleep()),
    Pid ! last,
    ?assertMatch([{cast, sleep}], [E || E <- events({info, last}), E =/= pre_hibernate]),
    ?assertNot(is_hibernated(Pid)),
    stop(Pid),
    %% The next one may be obeyed; the state that it returned counts.
    Again = start(?MOD, #{pre => fun(State) -> once(pre, State, {noreply, State#{pre_done => true}}, {hibernate,
        State}) end}, []),
    gen_server:cast(Again, go_to_sleep()),
    [{cast, sleep}, pre_hibernate] = [next(), next()],
    ?assertMatch(true, weir_server_loop_lib:with_state(Again, fun(S) -> maps:get(pre_done, S) end)),
    sleep(Again),
    stop(Again).

pre_actions(_) ->
    [
        begin
            Pid = start(?MOD, #{pre => fun(State) -> once(pre, State, {noreply, State#{pre_done => true}, Action},
                {hibernate, State}) end}, []),
            gen_server:cast(Pid, go_to_sleep()),
            ?assertEqual({Action, [{cast, sleep}, pre_hibernate | Events]}, {Action, [next(),
                next() | [next() || _ <- Events]]}),
            stop(Pid)
        end
     || {Action, Events} <- [
            {{continue, go}, [{continue, go}]},
            {1, [{info, timeout}]},
            {{timeout, 1, late}, [{info, late}]},
            {{timeout, 0, now}, [{info, now}]},
            {hibernate, [pre_hibernate]},
            {infinity, []}
        ]
    ].

pre_stops(_) ->
    Pid = start(?MOD, #{pre => fun(State) -> {stop, {shutdown, tired}, State} end}, []),
    Ref = monitor(process, Pid),
    gen_server:cast(Pid, go_to_sleep()),
    ?assertEqual({shutdown, tired}, down(Ref, Pid)),
    ?assertEqual([{cast, sleep}, pre_hibernate], events({terminated, Pid, {shutdown, tired}})).

pre_bad(_) ->
    [
        begin
            Pid = start(?MOD, #{pre => fun(_) -> Bad end}, []),
            Ref = monitor(process, Pid),
            gen_server:cast(Pid, go_to_sleep()),
            ?assertEqual({bad_return_value, Bad}, down(Ref, Pid)),
            events({terminated, Pid, {bad_return_value, Bad}})
        end
     || Bad <- [nonsense, {hibernate}, {hibernate, a, b}, {noreply, s, bad_action}]
    ].

pre_raises(_) ->
    Pid = start(?MOD, #{pre => fun(_) -> error(oops) end}, []),
    Ref = monitor(process, Pid),
    gen_server:cast(Pid, go_to_sleep()),
    {oops, [_ | _]} = Reason = down(Ref, Pid),
    ?assertEqual([{cast, sleep}, pre_hibernate], events({terminated, Pid, Reason})).

pre_throws(_) ->
    Pid = start(?MOD, #{pre => fun(State) -> throw({hibernate, State}) end}, []),
    sleep(Pid),
    stop(Pid).

%% ---------------------------------------------------------------- afterwards

post_state(_) ->
    Pid = start(?MOD, #{pre => fun(S) -> {hibernate, S#{a => 1}} end, post => fun(#{a := 1} = S) -> {noreply,
        S#{b => 2}} end}, []),
    sleep(Pid),
    ?assertEqual({1, 2}, weir_server_loop_lib:with_state(Pid, fun(#{a := A, b := B}) -> {A, B} end)),
    stop(Pid).

%% What it wants to do first comes before the message that woke it.
post_continue(_) ->
    Pid = start(?MOD, #{post => fun(State) -> {noreply, State, {continue, go}} end}, []),
    sleep(Pid),
    Pid ! first,
    Pid ! last,
    ?assertEqual([{cast, sleep}, pre_hibernate, post_hibernate, {continue, go}, {info, first}], events({info, last})),
    stop(Pid).

%% Others are without effect, since there is a message.
post_other_actions(_) ->
    [
        begin
            Pid = start(?MOD, #{post => fun(State) -> {noreply, State, Action} end}, []),
            sleep(Pid),
            Pid ! last,
            ?assertEqual([{cast, sleep}, pre_hibernate, post_hibernate], events({info, last})),
            stop(Pid)
        end
     || Action <- [hibernate, 0, 1, infinity, {timeout, 1, never}]
    ].

post_stops(_) ->
    Pid = start(?MOD, #{post => fun(State) -> {stop, {shutdown, awake}, State} end}, []),
    Ref = monitor(process, Pid),
    sleep(Pid),
    Pid ! wake,
    ?assertEqual({shutdown, awake}, down(Ref, Pid)),
    ?assertEqual([{cast, sleep}, pre_hibernate, post_hibernate], events({terminated, Pid, {shutdown, awake}})).

post_bad(_) ->
    [
        begin
            Pid = start(?MOD, #{post => fun(_) -> Bad end}, []),
            Ref = monitor(process, Pid),
            sleep(Pid),
            Pid ! wake,
            ?assertEqual({bad_return_value, Bad}, down(Ref, Pid)),
            events({terminated, Pid, {bad_return_value, Bad}})
        end
     || Bad <- [nonsense, {hibernate, s}, {noreply, s, bad_action}]
    ].

post_raises(_) ->
    Pid = start(?MOD, #{post => fun(_) -> exit(oops) end}, []),
    Ref = monitor(process, Pid),
    sleep(Pid),
    Pid ! wake,
    ?assertEqual(oops, down(Ref, Pid)),
    ?assertEqual([{cast, sleep}, pre_hibernate, post_hibernate], events({terminated, Pid, oops})).

post_become(_) ->
    Pid = start(?MOD, #{post => fun(State) -> {become, weir_server_probe_batch, State} end}, []),
    sleep(Pid),
    gen_server:cast(Pid, wake),
    ?assertEqual([{cast, sleep}, pre_hibernate, post_hibernate], events({batch, [{cast, wake}]})),
    stop(Pid).

%% ---------------------------------------------------------------- what wakes it

%% It is answered, and then the server sleeps on.
woken_by_system_message(_) ->
    Pid = start(?MOD, []),
    sleep(Pid),
    [
        begin
            Ask(),
            ok = until(fun() -> is_hibernated(Pid) end)
        end
     || Ask <- [
            fun() -> sys:get_state(Pid, wait_ms()) end,
            fun() -> info(Pid) end,
            fun() -> sys:statistics(Pid, get, wait_ms()) end
        ]
    ],
    Pid ! last,
    [{cast, sleep}, pre_hibernate | _] = events({info, last}),
    stop(Pid).

woken_by_timer(_) ->
    Pid = asleep_on_time(#{}, 100),
    ?assertEqual([post_hibernate], events({info, late})),
    stop(Pid).

%% Whatever is done first, the time-out is a time-out then.
post_continue_and_timer(_) ->
    Pid = asleep_on_time(#{post => fun(State) -> {noreply, State, {continue, go}} end}, 100),
    ?assertEqual([post_hibernate, {continue, go}], events({info, late})),
    stop(Pid).

%% A server that goes to sleep with a time-out. On a busy machine the time may be over before: then it has longer.
asleep_on_time(State, Ms) ->
    Pid = start(?MOD, State, []),
    gen_server:cast(Pid, {do, sleep, fun(_, Now) -> {noreply, Now, {hibernate, Ms, late}} end}),
    {cast, sleep} = next(),
    case next() of
        pre_hibernate ->
            Pid;
        {info, late} ->
            stop(Pid),
            asleep_on_time(State, 2 * Ms)
    end.

%% The message that woke it has its place by its priority, as if it had come later. The time-out has none, and is over.
post_continue_and_priorities(_) ->
    Self = self(),
    Post = fun(State) -> {noreply, State, {continue, {do, go, fun(_, Now) ->
        [gen_server:cast(self(), {p, P, P}) || P <- [-1, 3, 5]],
        Self ! sent,
        {noreply, Now}
    end}}} end,
    Pid = start(weir_server_probe_sleep_prio, #{post => Post}, []),
    gen_server:cast(Pid, {do, sleep, fun(_, State) -> {noreply, State, {hibernate, ?HOUR, never}} end}),
    ok = until(fun() -> is_hibernated(Pid) end),
    gen_server:cast(Pid, {p, 4, 4}),
    ?assertEqual(
        [{cast, sleep}, pre_hibernate, post_hibernate, {continue, go}, sent, {cast, 5}, {cast, 4}, {cast, 3}],
        events({cast, -1})
    ),
    stop(Pid).

post_become_and_timer(_) ->
    Pid = asleep_on_time(#{post => fun(State) -> {become, weir_server_probe_batch, State} end}, 100),
    ?assertEqual([post_hibernate], events({batch, [{info, late}]})),
    stop(Pid).

%% And a system message is answered, whatever the server does.
post_continue_and_system_message(_) ->
    [
        begin
            Pid = start(Mod, #{post => fun(State) -> {noreply, State, {continue, go}} end}, []),
            gen_server:cast(Pid, {do, sleep, fun(_, State) -> {noreply, State, hibernate} end}),
            ok = until(fun() -> is_hibernated(Pid) end),
            take_messages(),
            ask(Pid, answer, Kind),
            ?assertMatch({Kind, Mod, [post_hibernate, {continue, go}, {answer, _}]}, {Kind, Mod, [next(), next(),
                next()]}),
            stop(Pid)
        end
     || Mod <- [weir_server_probe_sleep, weir_server_probe_sleep_batch],
        Kind <- [state, ack, {with_state, fun(_) -> seen end}]
    ].

post_become_and_system_message(_) ->
    [
        begin
            Pid = start(?MOD, #{post => fun(State) -> {become, Mod, State} end}, []),
            sleep(Pid),
            take_messages(),
            ask(Pid, answer, Kind),
            ?assertMatch({Kind, Mod, [post_hibernate, {answer, _}]}, {Kind, Mod, [next(), next()]}),
            stop(Pid)
        end
     || Mod <- [weir_server_probe, weir_server_probe_prio, weir_server_probe_batch],
        Kind <- [state, ack, {with_state, fun(_) -> seen end}]
    ].

post_continue_and_batch(_) ->
    Pid = start(weir_server_probe_sleep_batch, #{post => fun(State) -> {noreply, State, {continue, go}} end}, []),
    gen_server:cast(Pid, {do, sleep, fun(_, State) -> {noreply, State, hibernate} end}),
    ok = until(fun() -> is_hibernated(Pid) end),
    gen_server:cast(Pid, hello),
    ?assertEqual(
        [{batch, [{cast, sleep}]}, pre_hibernate, post_hibernate, {continue, go}, {batch, [{cast, hello}]}],
        [next() || _ <- lists:seq(1, 5)]
    ),
    stop(Pid).

parent_exit(_) ->
    process_flag(trap_exit, true),
    [
        begin
            Pid = weir_server_loop_lib:start_link(Mod, State#{trap_exit => true}, []),
            gen_server:cast(Pid, go_to_sleep()),
            ok = until(fun() -> is_hibernated(Pid) end),
            exit(Pid, over),
            _ = events({terminated, Pid, over}),
            take_messages()
        end
     || Mod <- [weir_server_probe_sleep, weir_server_probe_sleep_batch],
        State <- [#{}, #{post => fun(State) -> {noreply, State, {continue, go}} end}]
    ].

hibernate_after(_) ->
    Pid = start(?MOD, [{hibernate_after, 5}]),
    ok = until(fun() -> is_hibernated(Pid) end),
    Pid ! last,
    ?assertEqual([pre_hibernate, post_hibernate], events({info, last})),
    ok = until(fun() -> is_hibernated(Pid) end),
    stop(Pid).

%% Requests of info/1 come more often than any of these times ends, until the server hibernates.
info_keeps_no_server_awake(_) ->
    [
        begin
            Pid = start(Mod, #{action => Action}, Options),
            ok = until(fun() ->
                _ = info(Pid),
                is_hibernated(Pid)
            end),
            stop(Pid)
        end
     || Mod <- [weir_server_probe, weir_server_probe_sleep, weir_server_probe_prio, weir_server_probe_batch],
        {Options, Action} <- [
            {[{hibernate_after, 200}], infinity},
            {[{hibernate_after, 200}], {timeout, 3_600_000, late}},
            {[{hibernate_after, 0}], 200},
            {[], {hibernate, 3_600_000, late}}
        ]
    ].

%% While there is work there is no sleep.
backlog_defers(_) ->
    [
        begin
            Pid = start(?MOD, [{drain, {1000, 1000}}]),
            while_held(Pid, fun() ->
                push(Pid),
                gen_server:cast(Pid, {do, sleep, fun(_, State) -> {noreply, State, Action} end}),
                [gen_server:cast(Pid, N) || N <- lists:seq(1, 10)]
            end),
            settle(Pid),
            Pid ! last,
            ?assertEqual(
                [{cast, sleep} | [{cast, N} || N <- lists:seq(1, 10)]],
                [E || E <- events({info, last}), is_tuple(E)]
            ),
            weir_server_loop_lib:none_of(fun(E) -> E =:= pre_hibernate end),
            stop(Pid)
        end
     || Action <- [hibernate, {hibernate, 1, never}, {hibernate, ?HOUR, never}]
    ].

%% A sender that does not know that the server goes to sleep again and again.
nothing_is_lost(_) ->
    [
        begin
            Pid = start(Mod, #{post => Post}, Options),
            [
                begin
                    gen_server:cast(Pid, {do, N, fun(_, State) -> {noreply, State, hibernate} end}),
                    N rem 7 =:= 0 andalso weir_server_loop_lib:spin(100),
                    N rem 11 =:= 0 andalso ask(Pid, {ack, N}, ack)
                end
             || N <- lists:seq(1, 500)
            ],
            %% What it has handled is told before it answers what was among that.
            ?assertMatch(#{handled := #{casts := 500}}, settle(Pid)),
            Events = take_messages(),
            ?assertEqual(lists:seq(1, 500), lists:append([casts_in(Event) || Event <- Events])),
            ?assertEqual([N || N <- lists:seq(1, 500), N rem 11 =:= 0], [N || {{ack, N}, _} <- Events]),
            stop(Pid)
        end
     || Mod <- [weir_server_probe_sleep, weir_server_probe_sleep_batch],
        Post <- [fun(State) -> {noreply, State} end, fun(State) -> {noreply, State, {continue, go}} end],
        Options <- [[], [{max_queue, 1000}]]
    ].

casts_in({cast, N}) -> [N];
casts_in({batch, Batch}) -> [N || {cast, N} <- Batch];
casts_in(_) -> [].

%% A server that wakes to a backlog drains it as before.
drained_after_sleep(_) ->
    Pid = start(?MOD, [{drain, {1000, 1000}}]),
    sleep(Pid),
    take_messages(),
    Ref = make_ref(),
    while_held(Pid, fun() ->
        push(Pid),
        gen_server:cast(Pid, {hold, Ref, self()}),
        [gen_server:cast(Pid, N) || N <- lists:seq(1, 100)]
    end),
    held(Ref),
    ?assertMatch(#{drained := 100, mailbox := 0}, info(Pid)),
    Pid ! Ref,
    settle(Pid),
    Events = take_messages(),
    ?assertEqual(lists:seq(1, 100), [N || {cast, N} <- Events, is_integer(N)]),
    stop(Pid).

%% ---------------------------------------------------------------- back-off

%% With a long wait it is found in the loop, doing nothing, and not asleep.
backoff_waits(_) ->
    Pid = sleepy({backoff, ?HOUR, 1, 1}),
    [
        begin
            gen_server:cast(Pid, go_to_sleep()),
            ok = until(fun() -> is_waiting(Pid) end),
            _ = events({cast, sleep}),
            weir_server_loop_lib:none_of(fun(E) -> E =:= pre_hibernate end),
            #{} = sys:get_state(Pid, wait_ms()),
            #{} = info(Pid),
            ok = until(fun() -> is_waiting(Pid) end)
        end
     || _ <- [1, 2, 3]
    ],
    Pid ! last,
    ?assertEqual([], events({info, last})),
    stop(Pid).

%% With a short one it falls asleep at last.
backoff_ends(_) ->
    Pid = sleepy({backoff, 1, 1, 1}),
    gen_server:cast(Pid, go_to_sleep()),
    ok = until(fun() -> is_hibernated(Pid) end),
    ?assertEqual([{cast, sleep}, pre_hibernate], [next(), next()]),
    stop(Pid).

backoff_of_batches(_) ->
    Conf = fun(Conf) -> Conf#conf{backoff = {backoff, ?HOUR, 1, 1}} end,
    Pid = weir_server_loop_lib:enter(weir_server_probe_sleep_batch, #{}, Conf, infinity),
    gen_server:cast(Pid, go_to_sleep()),
    ok = until(fun() -> is_waiting(Pid) end),
    gen_server:cast(Pid, one),
    ?assertEqual([{batch, [{cast, sleep}]}, {batch, [{cast, one}]}], [next(), next()]),
    stop(Pid).

no_backoff(_) ->
    Pid = sleepy(none),
    gen_server:cast(Pid, go_to_sleep()),
    ok = until(fun() -> is_hibernated(Pid) end),
    stop(Pid).

%% Sleeps that were too short double the wait: 1, 2, 4, 8, ... ms. That each is waited for is seen by the server being
%% met in
%% it at last.
backoff_grows(_) ->
    Pid = sleepy({backoff, 1, 1, ?HOUR}),
    ?assert(met_waiting(Pid, 17)),
    stop(Pid).

met_waiting(_Pid, 0) ->
    false;
met_waiting(Pid, Left) ->
    gen_server:cast(Pid, go_to_sleep()),
    case sleeps_or_waits(Pid, 200) of
        waits ->
            true;
        sleeps ->
            awake = weir_server_loop_lib:with_state(Pid, fun(_) -> awake end),
            met_waiting(Pid, Left - 1)
    end.

%% It waits if it is met in that so many times in a row, a millisecond apart.
sleeps_or_waits(_Pid, 0) ->
    waits;
sleeps_or_waits(Pid, Left) ->
    case {is_hibernated(Pid), is_waiting(Pid)} of
        {true, _} ->
            sleeps;
        {_, Waits} ->
            receive
            after 1 -> ok
            end,
            sleeps_or_waits(Pid, case Waits of true -> Left - 1; false -> Left end)
    end.

%% Sleeps that were long enough halve the wait, down to the minimum.
backoff_shrinks(_) ->
    Conf = fun(Conf) -> Conf#conf{backoff = {backoff, 64, 1, 1}} end,
    Pid = weir_server_loop_lib:enter(?MOD, #{}, Conf, infinity),
    [
        begin
            gen_server:cast(Pid, go_to_sleep()),
            ok = until(fun() -> is_hibernated(Pid) end),
            weir_server_loop_lib:spin(2000),
            awake = weir_server_loop_lib:with_state(Pid, fun(_) -> awake end)
        end
     || _ <- lists:seq(1, 8)
    ],
    ?assertMatch(#{}, weir_server_loop_lib:with_state(Pid, fun(State) -> State end)),
    stop(Pid).

sleepy(Backoff) ->
    weir_server_loop_lib:enter(?MOD, #{}, fun(Conf) -> Conf#conf{backoff = Backoff} end, infinity).

%% ---------------------------------------------------------------- helpers

go_to_sleep() -> {do, sleep, fun(_, State) -> {noreply, State, hibernate} end}.

sleep(Pid) ->
    gen_server:cast(Pid, go_to_sleep()),
    until(fun() -> is_hibernated(Pid) end).

is_waiting(Pid) ->
    process_info(Pid, [status, current_function, message_queue_len]) =:=
        [{status, waiting}, {current_function, {weir_server_loop, hibernate, 4}}, {message_queue_len, 0}].

once(Key, State, First, Later) ->
    case State of
        #{pre_done := true} when Key =:= pre -> Later;
        _ -> First
    end.

%% A sleep that ends at once is still the collection that it stands for.
no_time_collects(_) ->
    Pid = start(weir_server_probe, []),
    1 = erlang:trace(Pid, true, [garbage_collection]),
    gen_server:cast(Pid, {do, one, fun(_, State) -> {noreply, State, {hibernate, 0, now}} end}),
    receive
        {info, now} -> ok
    end,
    Delivered = erlang:trace_delivered(Pid),
    receive
        {trace_delivered, Pid, Delivered} -> ok
    end,
    ?assertMatch([_ | _], [Event || {trace, _, gc_major_end, _} = Event <- take_messages()]),
    stop(Pid).
