%% Hibernation: the callbacks around it, what wakes a server, and the wait before it.
%%
%% The times are an hour where nothing may end before, and milliseconds where a test waits for the end.
-module(weir_server_hibernate_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, take_messages/0, until/1, wait_ms/0]).
-import(weir_server_loop_lib, [
    start/2, start/3, stop/1, each/2, act/2, ask/3, info/1, with_state/2, settle/1, events/1, handled/1, down/2, next/0,
    next/1, none_yet/0, spin/1, is_hibernated/1
]).

-define(MOD, weir_server_probe_sleep).
-define(HOUR, 3_600_000).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

sleep(Pid) ->
    act(Pid, hibernate),
    until_hibernated(Pid).

until_hibernated(Pid) -> until(fun() -> is_hibernated(Pid) end).

%% ---------------------------------------------------------------- the callbacks

states_of_both_callbacks_count(_) ->
    Pre = fun(State) -> throw({hibernate, State#{a => 1}}) end,
    Post = fun(#{a := 1} = State) -> {noreply, State#{b => 2}} end,
    Pid = start(?MOD, #{pre => Pre, post => Post}, []),
    sleep(Pid),
    Pid ! last,
    ?assertEqual([{cast, act}, pre_hibernate, post_hibernate], events({info, last})),
    ?assertEqual({1, 2}, with_state(Pid, fun(#{a := A, b := B}) -> {A, B} end)),
    stop(Pid).

%% With `noreply' the server stays awake, and does the action. The next hibernation calls the callback again.
pre_hibernate_keeps_the_server_awake(_) ->
    [
        begin
            Pre = fun
                (#{kept := true} = State) -> {hibernate, State};
                (State) -> list_to_tuple([noreply, State#{kept => true} | Action])
            end,
            Pid = start(?MOD, #{pre => Pre}, []),
            act(Pid, hibernate),
            ?assertEqual({Action, [{cast, act}, pre_hibernate | Events]}, {Action, next(2 + length(Events))}),
            ?assert(with_state(Pid, fun(#{kept := Kept}) -> Kept end)),
            sleep(Pid),
            stop(Pid)
        end
     || {Action, Events} <- [
            {[], []},
            {[infinity], []},
            {[{continue, go}], [{continue, go}]},
            {[1], [{info, timeout}]},
            {[{timeout, 1, late}], [{info, late}]},
            {[{timeout, 0, now}], [{info, now}]},
            {[hibernate], [pre_hibernate]}
        ]
    ].

%% An action that waits has no effect, since a message has woken the server. A continuation comes before that message.
post_hibernate_and_the_message_that_woke_the_server(_) ->
    [
        begin
            Pid = start(?MOD, #{post => fun(State) -> {noreply, State, Action} end}, []),
            sleep(Pid),
            Pid ! last,
            Called = [{cast, act}, pre_hibernate, post_hibernate | Events],
            ?assertEqual({Action, Called}, {Action, events({info, last})}),
            stop(Pid)
        end
     || {Action, Events} <- [{{continue, go}, [{continue, go}]}] ++
            [{Action, []} || Action <- [hibernate, 0, 1, infinity, {timeout, 1, never}]]
    ].

callbacks_may_end_the_server(_) ->
    Returns = [
        {fun(State) -> {stop, {shutdown, tired}, State} end, {shutdown, tired}},
        {fun(_) -> exit(oops) end, oops},
        {fun(_) -> error(oops) end, raised},
        {fun(_) -> nonsense end, {bad_return_value, nonsense}},
        {fun(_) -> {noreply, s, bad_action} end, {bad_return_value, {noreply, s, bad_action}}}
    ],
    Wrong = [
        {pre, fun(_) -> {hibernate} end, {bad_return_value, {hibernate}}},
        {post, fun(_) -> {hibernate, s} end, {bad_return_value, {hibernate, s}}}
    ],
    [
        begin
            Pid = start(?MOD, #{Callback => Return}, []),
            Ref = monitor(process, Pid),
            act(Pid, hibernate),
            case Callback of
                pre -> ok;
                post -> until_hibernated(Pid), Pid ! wake
            end,
            Reason = down(Ref, Pid),
            ?assertEqual({Callback, Expected}, {Callback, case Reason of {oops, [_ | _]} -> raised; _ -> Reason end}),
            Called = [pre_hibernate] ++ [post_hibernate || Callback =:= post],
            ?assertEqual([{cast, act} | Called], events({terminated, Pid, Reason}))
        end
     || {Callback, Return, Expected} <- [{C, R, E} || C <- [pre, post], {R, E} <- Returns] ++ Wrong
    ].

%% ---------------------------------------------------------------- what wakes a server

%% The server answers, and sleeps again. Its time-out still comes.
requests_do_not_end_the_sleep(_) ->
    [
        begin
            Pid = start(Mod, #{action => Action}, Options),
            [
                begin
                    until_hibernated(Pid),
                    _ = Ask(Pid)
                end
             || Ask <- [
                    fun weir_server:info/1, fun(P) -> sys:get_state(P, wait_ms()) end,
                    fun(P) -> sys:statistics(P, get, wait_ms()) end,
                    fun(P) -> {sys:suspend(P, wait_ms()), sys:resume(P, wait_ms())} end
                ]
            ],
            until_hibernated(Pid),
            stop(Pid)
        end
     || Mod <- [weir_server_probe, ?MOD, weir_server_probe_batch],
        {Options, Action} <- [
            {[], hibernate}, {[], {hibernate, ?HOUR, never}}, {[], {hibernate, infinity, never}},
            {[{hibernate_after, 1}], infinity}, {[{hibernate_after, 1}], {timeout, ?HOUR, never}}
        ]
    ].

server_sleeps_until_its_time_is_over(_) ->
    [
        each([{Mod, []}], fun(Pid) ->
            _ = asleep_on_time(Pid, 100),
            ?assertEqual([{info, late}], [E || E <- handled([next() | rest_of(Pid)]), is_tuple(E)])
        end)
     || Mod <- [weir_server_probe, ?MOD, weir_server_probe_batch, weir_server_probe_sleep_batch]
    ].

rest_of(Pid) ->
    _ = settle(Pid),
    take_messages().

%% Has a server sleep with a time-out. If the time is over before the server is seen asleep, as happens on a busy
%% machine, sends it to sleep for a longer time.
asleep_on_time(Pid, Ms) ->
    act(Pid, {hibernate, Ms, late}),
    IsOver = fun() -> lists:member({info, late}, handled(weir_kit:messages())) end,
    ok = until(fun() -> is_hibernated(Pid) orelse IsOver() end),
    Events = take_messages(),
    case lists:member({info, late}, handled(Events)) of
        false -> ok;
        true -> asleep_on_time(Pid, 2 * Ms)
    end.

%% The message that woke the server comes behind what post_hibernate asks for, whatever the message is.
post_hibernate_comes_before_timer_and_requests(_) ->
    Continue = fun(State) -> {noreply, State, {continue, go}} end,
    Become = fun(State) -> {become, weir_server_probe_batch, State} end,
    [
        begin
            Pid = start(Mod, #{post => Post}, []),
            case Wake of
                timer -> asleep_on_time(Pid, 100);
                _ -> sleep(Pid), take_messages(), ask(Pid, answer, Wake)
            end,
            [post_hibernate | Events] = handled(next(2 + length(Before))),
            {Continued, [Woken]} = lists:split(length(Before), Events),
            ?assertEqual({Mod, Before}, {Mod, Continued}),
            ?assert(Woken =:= {info, late} orelse element(1, Woken) =:= answer),
            stop(Pid)
        end
     || {Mod, Post, Before} <- [
            {?MOD, Continue, [{continue, go}]}, {weir_server_probe_sleep_batch, Continue, [{continue, go}]},
            {?MOD, Become, []}
        ],
        Wake <- [timer, state, ack, {with_state, fun(_) -> seen end}]
    ].

%% The message that woke the server has its place by its priority, as if it had come later. Its time-out is over.
message_that_woke_the_server_keeps_its_priority(_) ->
    Self = self(),
    Sends = fun(_, State) ->
        [gen_server:cast(self(), {p, P, P}) || P <- [-1, 3, 5]],
        Self ! sent,
        {noreply, State}
    end,
    Pid = start(weir_server_probe_sleep_prio, #{post => fun(S) -> {noreply, S, {continue, {do, go, Sends}}} end}, []),
    act(Pid, {hibernate, ?HOUR, never}),
    until_hibernated(Pid),
    gen_server:cast(Pid, {p, 4, 4}),
    ?assertEqual(
        [{cast, act}, pre_hibernate, post_hibernate, {continue, go}, sent, {cast, 5}, {cast, 4}, {cast, 3}],
        events({cast, -1})
    ),
    stop(Pid).

%% The sender does not know that the server goes to sleep again and again.
no_message_is_lost_between_sleeps(_) ->
    [
        begin
            Pid = start(Mod, #{post => Post}, Options),
            [
                begin
                    gen_server:cast(Pid, {do, N, fun(_, State) -> {noreply, State, hibernate} end}),
                    N rem 7 =:= 0 andalso spin(100),
                    N rem 11 =:= 0 andalso ask(Pid, {ack, N}, ack)
                end
             || N <- lists:seq(1, 500)
            ],
            ?assertMatch(#{handled := #{casts := 500}}, settle(Pid)),
            Messages = handled(take_messages()),
            weir_kit:same(casts, lists:seq(1, 500), [N || {cast, N} <- Messages]),
            weir_kit:same(acks, lists:seq(11, 500, 11), [N || {{ack, N}, _} <- Messages]),
            stop(Pid)
        end
     || Mod <- [?MOD, weir_server_probe_sleep_batch],
        Post <- [fun(State) -> {noreply, State} end, fun(State) -> {noreply, State, {continue, go}} end],
        Options <- [[], [{max_queue, 1000}]]
    ].

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
     || Mod <- [weir_server_probe, ?MOD, weir_server_probe_prio, weir_server_probe_batch],
        {Options, Action} <- [
            {[{hibernate_after, 200}], infinity},
            {[{hibernate_after, 200}], {timeout, ?HOUR, late}},
            {[{hibernate_after, 0}], 200},
            {[], {hibernate, ?HOUR, late}}
        ]
    ].

timeout_of_a_suspended_server_comes_when_it_resumes(_) ->
    Pid = start(weir_server_probe, []),
    act(Pid, {timeout, 500, late}),
    {cast, act} = next(),
    ok = sys:suspend(Pid, wait_ms()),
    ok = until(fun() -> queue_len(Pid) =:= 1 end),
    none_yet(),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual({info, late}, next()),
    stop(Pid).

%% A sleep of no time is still the garbage collection that a sleep stands for.
sleep_of_no_time_collects_garbage(_) ->
    Pid = start(weir_server_probe, []),
    1 = erlang:trace(Pid, true, [garbage_collection]),
    act(Pid, {hibernate, 0, now}),
    receive
        {info, now} -> ok
    end,
    Delivered = erlang:trace_delivered(Pid),
    receive
        {trace_delivered, Pid, Delivered} -> ok
    end,
    ?assertMatch([_ | _], [Event || {trace, _, gc_major_end, _} = Event <- take_messages()]),
    stop(Pid).

%% ---------------------------------------------------------------- the wait before

%% The wait is an hour, or the minimum is. The server does not sleep, and does not call the callback.
backoff_keeps_the_server_awake(_) ->
    [
        begin
            Pid = start(Mod, #{backoff => Backoff}, []),
            act(Pid, hibernate),
            _ = settle(Pid),
            #{} = sys:get_state(Pid, wait_ms()),
            Pid ! last,
            ?assertEqual([{cast, act}, {info, last}], handled(rest_of(Pid))),
            ?assertNot(is_hibernated(Pid)),
            stop(Pid)
        end
     || Mod <- [?MOD, weir_server_probe_sleep_batch], Backoff <- [{backoff, ?HOUR, 1, 1}, {backoff, 1, ?HOUR, 1}]
    ].

%% Each sleep of less than an hour doubles the wait from a millisecond. In the end the server waits so long that it is
%% awake for 200 ms in a row.
short_sleeps_make_the_wait_longer(_) ->
    Pid = start(?MOD, #{backoff => {backoff, 1, 1, ?HOUR}}, []),
    sleep(Pid),
    ?assertEqual([{cast, act}, pre_hibernate], take_messages()),
    ?assert(is_met_awake(Pid, 17)),
    stop(Pid).

is_met_awake(_Pid, 0) -> false;
is_met_awake(Pid, Left) ->
    act(Pid, hibernate),
    stays_awake(Pid, 200) orelse is_met_awake(Pid, Left - 1).

stays_awake(_Pid, 0) -> true;
stays_awake(Pid, Left) ->
    receive
        pre_hibernate -> until_hibernated(Pid) =/= ok
    after 1 -> stays_awake(Pid, Left - 1)
    end.

%% The waits before, between and after sleeps of these lengths. No test can wait for two minutes, so this one calls the
%% internal module.
waits_by_the_length_of_the_sleeps(_) ->
    [
        ?assertEqual({Backoff, Sleeps, Waits}, {Backoff, Sleeps, waits(Sleeps, weir_server_backoff:new(Backoff))})
     || {Backoff, Sleeps, Waits} <- [
            {none, [1, 100], [0, 0, 0]},
            {{backoff, 1, 10, 50}, [], [10]},
            {{backoff, 100, 10, 50}, [49, 0], [100, 200, 400]},
            {{backoff, 100, 10, 50}, [50, 51, 1000, 50, 50], [100, 50, 25, 12, 10, 10]},
            {{backoff, 60_000, 10, 50}, [0, 0], [60_000, 120_000, 120_000]},
            {{backoff, 500_000, 10, 50}, [0, 50, 0], [500_000, 500_000, 250_000, 250_000]}
        ]
    ].

%% The clock is monotonic, and may be negative.
waits(Sleeps, Backoff) ->
    {Waits, _, Last} = lists:foldl(
        fun(Sleep, {Waits, Now, B}) ->
            Woken = weir_server_backoff:wakes(Now + Sleep, weir_server_backoff:sleeps(Now, B)),
            {[weir_server_backoff:delay(B) | Waits], Now + Sleep + 7, Woken}
        end,
        {[], -5000, Backoff},
        Sleeps
    ),
    lists:reverse([weir_server_backoff:delay(Last) | Waits]).
