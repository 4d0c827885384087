%% What weir_server shares with gen_server is tested on both, with the same cases: gen_server is the oracle.
%% What it has beyond it, draining and batches, has cases of its own.
-module(weir_server_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, until/1, wait_ms/0]).


all() ->
    [{group, gen_server}, {group, weir_server}, {group, draining}, {group, batches}].

groups() ->
    Draining = [
        options, system_message_keeps_its_place, system_message_behind_a_backlog, parent_exit_keeps_its_place,
        drain_is_bounded, drained_are_out_of_the_way, backlog_defers_hibernation, status_shows_the_drained,
        killed_while_drained
    ],
    Batches = [
        batch_in_order, batch_is_bounded, batch_replies, batch_late_replies, batch_stops, batch_stop_replies,
        batch_raises, batch_bad_return, batch_actions, batch_timeout, batch_parent_exit, batch_system_message,
        batch_code_change, batch_debug, batch_crash_report_is_small
    ],
    Both = weir_kit:cases(?MODULE) -- [same_as_gen_server | Draining ++ Batches],
    [{gen_server, Both}, {weir_server, [same_as_gen_server | Both]}, {draining, Draining}, {batches, Batches}].

init_per_group(gen_server, Config) -> [{server, gen_server} | Config];
init_per_group(_, Config) -> [{server, weir_server} | Config].

end_per_group(_, _) -> ok.

%% Shared with gen_server

init_returns(Config) ->
    S = ?config(server, Config),
    process_flag(trap_exit, true),
    ?assertEqual(ignore, S:start_link(weir_server_echo, {return, ignore}, [])),
    ?assertEqual({error, no}, S:start_link(weir_server_echo, {return, {stop, no}}, [])),
    ?assertEqual({error, {bad_return_value, what}}, S:start(weir_server_echo, {return, what}, [])),
    ?assertMatch({error, {bad_return_value, _}}, S:start(weir_server_echo, {return, {ok, x, not_an_action}}, [])),
    {ok, Pid} = S:start(weir_server_echo, {tell, self(), {continue, first}}, []),
    ?assertEqual([{continue, first}, {call, seen}], S:call(Pid, seen, wait_ms())),
    ok = S:stop(Pid).

init_raises(Config) ->
    S = ?config(server, Config),
    silently(fun() ->
        ?assertMatch({error, {boom, [_ | _]}}, S:start(weir_server_echo, {raise, error, boom}, [])),
        ?assertEqual({error, boom}, S:start(weir_server_echo, {raise, exit, boom}, [])),
        %% the name is free again when the start has failed
        ?assertEqual({error, boom}, S:start({local, init_raises}, weir_server_echo, {raise, exit, boom}, [])),
        ?assertEqual(undefined, whereis(init_raises))
    end).

names(Config) ->
    S = ?config(server, Config),
    lists:foreach(
        fun({Name, Ref}) ->
            {ok, Pid} = S:start(Name, weir_server_echo, {tell, self()}, []),
            ?assertEqual({error, {already_started, Pid}}, S:start(Name, weir_server_echo, {tell, self()}, [])),
            ?assertEqual(hello, S:call(Ref, {reply, hello}, wait_ms())),
            ok = S:cast(Ref, note),
            ?assertMatch([_, {cast, note} | _], S:call(Ref, seen, wait_ms())),
            ok = S:stop(Ref),
            ?assertExit({noproc, {S, call, [Ref, seen, 5000]}}, S:call(Ref, seen, 5000))
        end,
        [
            {{local, a_name}, a_name},
            {{global, a_name}, {global, a_name}},
            {{via, global, {another, name}}, {via, global, {another, name}}}
        ]
    ).

start_monitor_and_stop(Config) ->
    S = ?config(server, Config),
    {ok, {Pid, Ref}} = S:start_monitor(weir_server_echo, {tell, self()}, []),
    ok = S:stop(Pid, {shutdown, enough}, infinity),
    ?assertEqual({'DOWN', Ref, process, Pid, {shutdown, enough}}, next_of({'DOWN', Ref})),
    ?assertMatch({terminated, Pid, {shutdown, enough}, []}, next_of({terminated, Pid})),
    {ok, {Named, Ref2}} = S:start_monitor({local, monitored}, weir_server_echo, {tell, self()}, []),
    ok = S:stop(monitored),
    ?assertEqual({'DOWN', Ref2, process, Named, normal}, next_of({'DOWN', Ref2})),
    ?assertExit(noproc, S:stop(Pid)).

calls(Config) ->
    {S, Pid} = started(Config),
    ?assertEqual(1, S:call(Pid, {reply, 1}, wait_ms())),
    ?assertEqual(2, S:call(Pid, {reply_later, 2}, infinity)),
    ?assertEqual(3, S:call(Pid, {reply, 3, 1000}, wait_ms())),
    %% OTP's own client speaks to it too
    ?assertEqual(4, gen_server:call(Pid, {reply, 4}, wait_ms())),
    ?assertEqual({reply, 5}, gen_server:receive_response(gen_server:send_request(Pid, {reply, 5}), wait_ms())),
    ok = S:stop(Pid).

call_exits(Config) ->
    {S, Pid} = started(Config),
    ?assertExit({timeout, {S, call, [Pid, ignored, 1]}}, S:call(Pid, ignored, 1)),
    Ms = wait_ms(),
    ?assertExit({normal, {S, call, [Pid, {stop, normal}, Ms]}}, S:call(Pid, {stop, normal}, Ms)),
    ?assertExit({noproc, {S, call, [Pid, seen, 5000]}}, S:call(Pid, seen, 5000)).

casts_and_infos(Config) ->
    {S, Pid} = started(Config),
    [S:cast(Pid, N) || N <- lists:seq(1, 2500)],
    Pid ! plain,
    Seen = S:call(Pid, seen, wait_ms()),
    ?assertEqual([{cast, N} || N <- lists:seq(1, 2500)] ++ [{info, plain}, {call, seen}], Seen),
    ok = S:cast(nobody_has_this_name, lost),
    ok = S:stop(Pid).

continue_first(Config) ->
    {S, Pid} = started(Config),
    hold(S, Pid, fun() ->
        S:cast(Pid, {noreply, {continue, {noreply, {continue, inner}}}}),
        S:cast(Pid, after_it)
    end),
    [_ | Seen] = S:call(Pid, seen, wait_ms()),
    ?assertMatch(
        [{cast, _}, {continue, {noreply, _}}, {continue, inner}, {cast, after_it}, {call, seen}], Seen
    ),
    ok = S:stop(Pid).

timeouts(Config) ->
    {S, Pid} = started(Config),
    S:cast(Pid, {noreply, 0}),
    %% asked with a system message, since a message of another kind would take the time-out's place
    ok = until(fun() -> {_, Seen} = sys:get_state(Pid, wait_ms()), lists:member({info, timeout}, Seen) end),
    %% a message that is there is taken instead of the time-out
    hold(S, Pid, fun() -> S:cast(Pid, {noreply, 0}), S:cast(Pid, before_timeout) end),
    ?assertEqual(1, length([T || {info, timeout} = T <- S:call(Pid, seen, wait_ms())])),
    ok = S:stop(Pid).

hibernation(Config) ->
    {S, Pid} = started(Config),
    S:cast(Pid, {noreply, hibernate}),
    ok = until(fun() -> is_hibernated(Pid) end),
    ?assertMatch([{cast, _}, {call, seen}], S:call(Pid, seen, wait_ms())),
    S:cast(Pid, {noreply, hibernate}),
    ok = until(fun() -> is_hibernated(Pid) end),
    %% a system message does not end the hibernation for good
    {_, [_ | _]} = sys:get_state(Pid, wait_ms()),
    ok = until(fun() -> is_hibernated(Pid) end),
    ok = S:stop(Pid).

hibernate_after(Config) ->
    S = ?config(server, Config),
    {ok, Pid} = S:start(weir_server_echo, {tell, self()}, [{hibernate_after, 1}]),
    ok = until(fun() -> is_hibernated(Pid) end),
    ?assertEqual(1, S:call(Pid, {reply, 1}, wait_ms())),
    ok = until(fun() -> is_hibernated(Pid) end),
    ok = S:stop(Pid).

callback_exceptions(Config) ->
    silently(fun() ->
        lists:foreach(
            fun({Class, Send}) ->
                {S, Pid} = started(Config),
                Ref = monitor(process, Pid),
                Send(S, Pid, {raise, Class, oops}),
                {'DOWN', Ref, process, Pid, Down} = next_of({'DOWN', Ref}),
                {terminated, Pid, Terminated, _} = next_of({terminated, Pid}),
                case Class of
                    error -> ?assertMatch({{oops, [_ | _]}, {oops, [_ | _]}}, {Down, Terminated});
                    exit -> ?assertEqual({oops, oops}, {Down, Terminated})
                end
            end,
            [
                {Class, Send}
             || Class <- [error, exit],
                Send <- [
                    fun(S, Pid, M) -> catch_exit(fun() -> S:call(Pid, M, wait_ms()) end) end,
                    fun(S, Pid, M) -> S:cast(Pid, M) end,
                    fun(_, Pid, M) -> Pid ! M end,
                    fun(S, Pid, M) -> S:cast(Pid, {noreply, {continue, M}}) end
                ]
            ]
        )
    end).

throws_are_returns(Config) ->
    {S, Pid} = started(Config),
    ?assertEqual(caught, S:call(Pid, {throw, {reply, caught}}, wait_ms())),
    S:cast(Pid, {throw, noreply}),
    Pid ! {throw, noreply},
    S:cast(Pid, {noreply, {continue, {throw, noreply}}}),
    ?assertEqual(here, S:call(Pid, {reply, here}, wait_ms())),
    ok = S:stop(Pid).

bad_returns(Config) ->
    silently(fun() ->
        lists:foreach(
            fun(Bad) ->
                {S, Pid} = started(Config),
                Ref = monitor(process, Pid),
                S:cast(Pid, {bad, Bad}),
                ?assertEqual({'DOWN', Ref, process, Pid, {bad_return_value, Bad}}, next_of({'DOWN', Ref})),
                ?assertMatch({terminated, Pid, {bad_return_value, Bad}, _}, next_of({terminated, Pid}))
            end,
            [nonsense, {noreply, s, -1}, {noreply, s, {continue}}, {reply, a, b}]
        )
    end).

stop_replies(Config) ->
    {S, Pid} = started(Config),
    Ref = monitor(process, Pid),
    ?assertEqual(last_word, S:call(Pid, {stop, {shutdown, done}, last_word}, wait_ms())),
    ?assertEqual({'DOWN', Ref, process, Pid, {shutdown, done}}, next_of({'DOWN', Ref})).

parent_exit(Config) ->
    S = ?config(server, Config),
    Self = self(),
    Parent = spawn(fun() ->
        {ok, Pid} = S:start_link(weir_server_echo, {trap, {tell, Self}}, []),
        Self ! {child, Pid},
        receive stop -> exit(enough) end
    end),
    {child, Pid} = next(),
    Ref = monitor(process, Pid),
    silently(fun() ->
        Parent ! stop,
        ?assertEqual({'DOWN', Ref, process, Pid, enough}, next_of({'DOWN', Ref}))
    end),
    ?assertMatch({terminated, Pid, enough, []}, next_of({terminated, Pid})).

other_exits_are_messages(Config) ->
    S = ?config(server, Config),
    {ok, Pid} = S:start(weir_server_echo, {trap, {tell, self()}}, []),
    exit(Pid, from_a_stranger),
    ok = until(fun() -> lists:member({info, {'EXIT', self(), from_a_stranger}}, S:call(Pid, seen, wait_ms())) end),
    ok = S:stop(Pid).

sys_messages(Config) ->
    {S, Pid} = started(Config),
    [_] = S:call(Pid, seen, wait_ms()),
    ?assertMatch({_, [{call, seen}]}, sys:get_state(Pid, wait_ms())),
    {_, []} = sys:replace_state(Pid, fun({Tell, _}) -> {Tell, []} end, wait_ms()),
    ok = sys:suspend(Pid, wait_ms()),
    S:cast(Pid, while_suspended),
    {status, Pid, _, [_, suspended | _]} = sys:get_status(Pid, wait_ms()),
    ?assertMatch({_, []}, sys:get_state(Pid, wait_ms())),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual([{cast, while_suspended}, {call, seen}], S:call(Pid, seen, wait_ms())),
    {status, Pid, {module, S1}, [_, running, Parent, [], [Header | _]]} = sys:get_status(Pid, wait_ms()),
    ?assert(lists:member(S1, [gen_server, weir_server])),
    ?assertEqual(Pid, Parent),
    ?assertMatch({header, "Status for generic server " ++ _}, Header),
    ok = sys:terminate(Pid, normal, wait_ms()),
    ?assertMatch({terminated, Pid, normal, _}, next()).

sys_debug(Config) ->
    {S, Pid} = started(Config),
    ok = sys:statistics(Pid, true, wait_ms()),
    ok = sys:log(Pid, true, wait_ms()),
    1 = S:call(Pid, {reply, 1}, wait_ms()),
    S:cast(Pid, note),
    _ = S:call(Pid, seen, wait_ms()),
    {ok, Stats} = sys:statistics(Pid, get, wait_ms()),
    ?assertMatch({3, 2}, {proplists:get_value(messages_in, Stats), proplists:get_value(messages_out, Stats)}),
    {ok, Log} = sys:log(Pid, get, wait_ms()),
    ?assertMatch(
        [
            {in, {'$gen_call', _, {reply, 1}}},
            {out, 1, _, _},
            {in, {'$gen_cast', note}},
            {noreply, _},
            {in, {'$gen_call', _, seen}},
            {out, [_, _, _], _, _}
        ],
        Log
    ),
    ok = sys:no_debug(Pid, wait_ms()),
    1 = S:call(Pid, {reply, 1}, wait_ms()),
    ok = S:stop(Pid).

code_change(Config) ->
    {S, Pid} = started(Config),
    ok = sys:suspend(Pid, wait_ms()),
    S:cast(Pid, meanwhile),
    ok = sys:change_code(Pid, weir_server_echo, "1", extra, wait_ms()),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual([{code_change, "1", extra}, {cast, meanwhile}, {call, seen}], S:call(Pid, seen, wait_ms())),
    ok = S:stop(Pid).

enter_loop(Config) ->
    S = ?config(server, Config),
    Self = self(),
    Enter = fun(Enter) ->
        {ok, Pid} = proc_lib:start(erlang, apply, [
            fun() ->
                register(entered, self()),
                proc_lib:init_ack({ok, self()}),
                Enter({Self, []})
            end,
            []
        ]),
        ?assertEqual({call, seen}, lists:last(S:call(Pid, seen, wait_ms()))),
        Seen = S:call(entered, seen, wait_ms()),
        ok = S:stop(entered),
        Seen
    end,
    ?assertMatch([_, _], Enter(fun(State) -> S:enter_loop(weir_server_echo, [], State) end)),
    ?assertMatch([_, _], Enter(fun(State) -> S:enter_loop(weir_server_echo, [], State, {local, entered}) end)),
    ?assertMatch([_, _], Enter(fun(State) -> S:enter_loop(weir_server_echo, [], State, hibernate) end)),
    ?assertMatch(
        [{continue, go}, _, _],
        Enter(fun(State) -> S:enter_loop(weir_server_echo, [], State, {continue, go}) end)
    ),
    ?assertMatch([_, _], Enter(fun(State) -> S:enter_loop(weir_server_echo, [], State, self(), infinity) end)).

crash_report(Config) ->
    {S, Pid} = started(Config),
    [Report] = reports(
        {gen_server, terminate}, fun() -> catch_exit(fun() -> S:call(Pid, {raise, error, oops}, wait_ms()) end) end
    ),
    #{
        msg := {report, #{
            name := Pid,
            reason := {oops, [_ | _]},
            last_message := {raise, error, oops},
            client_info := {Client, _}
        }},
        meta := #{report_cb := Format}
    } = normalise(Report),
    ?assertEqual(self(), Client),
    {report, Content} = maps:get(msg, Report),
    Text = lists:flatten(Format(Content, #{depth => unlimited, chars_limit => unlimited, single_line => false})),
    ?assertMatch({match, _}, re:run(Text, "Generic server .* terminating")).

%% gen_server reports a call's message as the request alone or with its envelope, depending on the release.
normalise(#{msg := {report, #{last_message := {'$gen_call', _, Request}} = R}} = Event) ->
    Event#{msg := {report, R#{last_message := Request}}};
normalise(#{msg := {report, #{last_message := {Request, _From}} = R}} = Event) ->
    Event#{msg := {report, R#{last_message := Request}}};
normalise(Event) ->
    Event.

no_handle_info(Config) ->
    S = ?config(server, Config),
    {ok, Pid} = S:start(weir_server_minimal, [], []),
    [#{msg := {report, #{message := stray}}}] = reports({gen_server, no_handle_info}, fun() ->
        Pid ! stray,
        ok = S:call(Pid, ping, wait_ms())
    end),
    ok = S:stop(Pid).

undefined_inside_handle_info(Config) ->
    silently(fun() ->
        {_, Pid} = started(Config),
        Ref = monitor(process, Pid),
        Pid ! {raise, error, undef},
        ?assertMatch({'DOWN', Ref, process, Pid, {undef, _}}, next_of({'DOWN', Ref}))
    end).

%% Any script of messages leaves the same answers and the same history with both.
same_as_gen_server(_) ->
    Options = [{numtests, weir_kit:long(150, 300)}, quiet],
    weir_kit_property:holds(prop_weir_server:prop_same_as_gen_server(), Options).

%% Draining

options(_) ->
    ?assertEqual({error, {bad_option, drain, 0}}, weir_server:start(weir_server_echo, {tell, self()}, [{drain, 0}])),
    ?assertEqual({error, {bad_option, drian, 5}}, weir_server:start(weir_server_echo, {tell, self()}, [{drian, 5}])),
    ?assertEqual({error, {bad_option, drain, x}}, weir_server:start(weir_server_echo, {tell, self()}, #{drain => x})),
    ?assertEqual(
        {error, {bad_option, timeout, -1}}, weir_server:start(weir_server_echo, {tell, self()}, [{timeout, -1}])
    ),
    ?assertMatch({error, {bad_option, drain, _}}, weir_server:start(weir_server_echo, {tell, self()}, [drain])),
    ?assertError({bad_option, drain, 0}, weir_server:enter_loop(weir_server_echo, [{drain, 0}], state)),
    Good = #{drain => 1, hibernate_after => 1000, debug => []},
    {ok, Pid} = weir_server:start(weir_server_echo, {tell, self()}, Good),
    ok = weir_server:stop(Pid).

%% A system message is answered when the messages ahead of it have been handled, drained or not, and before the others.
system_message_keeps_its_place(_) ->
    Pid = holding([{drain, {100, 100}}], fun(Pid) ->
        [weir_server:cast(Pid, N) || N <- lists:seq(1, 5)],
        request_state(Pid),
        [weir_server:cast(Pid, N) || N <- lists:seq(6, 8)]
    end),
    {_, Seen} = requested_state(),
    ?assertEqual(lists:seq(5, 1, -1), integers_cast(Seen)),
    ?assertEqual(lists:seq(1, 8), integers_cast(weir_server:call(Pid, seen, wait_ms()))),
    ok = weir_server:stop(Pid).

%% Also one that arrives when a backlog has been drained.
system_message_behind_a_backlog(_) ->
    Second = make_ref(),
    Pid = holding([{drain, {500, 500}}], fun(Pid) ->
        weir_server:cast(Pid, {wait_for, Second, self()}),
        [weir_server:cast(Pid, N) || N <- lists:seq(1, 400)]
    end),
    receive {waiting, Second} -> ok end,
    request_state(Pid),
    [weir_server:cast(Pid, N) || N <- lists:seq(401, 410)],
    Pid ! Second,
    {_, Seen} = requested_state(),
    ?assertEqual(lists:seq(400, 1, -1), integers_cast(Seen)),
    ?assertEqual(lists:seq(1, 410), integers_cast(weir_server:call(Pid, seen, wait_ms()))),
    ok = weir_server:stop(Pid).

parent_exit_keeps_its_place(_) ->
    process_flag(trap_exit, true),
    {ok, Pid} = weir_server:start_link(weir_server_echo, {trap, {tell, self()}}, [{drain, {100, 100}}]),
    hold(weir_server, Pid, fun() ->
        push(Pid),
        [weir_server:cast(Pid, N) || N <- lists:seq(1, 5)],
        exit(Pid, shutdown),
        [weir_server:cast(Pid, N) || N <- lists:seq(6, 8)]
    end),
    {terminated, Pid, shutdown, Seen} = next_of({terminated, Pid}),
    ?assertEqual(lists:seq(1, 5), integers_cast(Seen)).

%% With room for N, the first N are drained and the next one stays in the mailbox.
drain_is_bounded(_) ->
    lists:foreach(
        fun({Sent, Left}) ->
            {ok, Pid} = weir_server:start(weir_server_echo, {tell, self()}, [{drain, {10, 10}}]),
            Second = make_ref(),
            hold(weir_server, Pid, fun() ->
                weir_server:cast(Pid, {wait_for, Second, self()}),
                [weir_server:cast(Pid, N) || N <- lists:seq(2, Sent)]
            end),
            receive {waiting, Second} -> ok end,
            ?assertEqual({message_queue_len, Left}, process_info(Pid, message_queue_len)),
            Pid ! Second,
            ?assertEqual(lists:seq(2, Sent), integers_cast(weir_server:call(Pid, seen, wait_ms()))),
            ok = weir_server:stop(Pid)
        end,
        [{10, 0}, {11, 1}]
    ).

%% A selective receive in a callback meets only what came after the drain.
drained_are_out_of_the_way(_) ->
    Tag = make_ref(),
    Pid = holding([{drain, {1000, 1000}}], fun(Pid) ->
        weir_server:cast(Pid, {selective, Tag}),
        [weir_server:cast(Pid, N) || N <- lists:seq(1, 900)]
    end),
    %% The server waits in its callback. A tag that came earlier would be drained with the casts.
    Waits = [{message_queue_len, 0}, {status, waiting}],
    ok = until(fun() -> process_info(Pid, [message_queue_len, status]) =:= Waits end),
    Pid ! Tag,
    ?assertEqual(lists:seq(1, 900), integers_cast(weir_server:call(Pid, seen, wait_ms()))),
    ok = weir_server:stop(Pid).

backlog_defers_hibernation(_) ->
    Pid = holding([{drain, {1000, 1000}}], fun(Pid) ->
        weir_server:cast(Pid, {noreply, hibernate}),
        weir_server:cast(Pid, {noreply, 0}),
        weir_server:cast(Pid, last)
    end),
    ?assertMatch(
        [_, {cast, {noreply, hibernate}}, {cast, {noreply, 0}}, {cast, last}, _],
        [Seen || Seen <- weir_server:call(Pid, seen, wait_ms()), Seen =/= {cast, pushed}]
    ),
    ok = weir_server:stop(Pid).

%% More wait than the bound allows, so those behind the system message are drained as well.
status_shows_the_drained(_) ->
    {ok, Pid} = weir_server:start(weir_server_echo, {tell, self()}, [{drain, {1000, 1000}}, {max_queue, 6}]),
    hold(weir_server, Pid, fun() ->
        Self = self(),
        weir_server:cast(Pid, first),
        spawn_link(fun() -> Self ! {status, sys:get_status(Pid, infinity)} end),
        ok = until(fun() -> queue_len(Pid) =:= 2 end),
        [weir_server:cast(Pid, N) || N <- lists:seq(1, 5)]
    end),
    {status, {status, Pid, _, [_, _, _, _, Items]}} = next_of({status}),
    Data = lists:append([D || {data, D} <- Items]),
    ?assertEqual({"Drained messages", 5}, lists:keyfind("Drained messages", 1, Data)),
    ok = weir_server:stop(Pid).

%% Callers whose requests were drained learn of a kill from their monitors.
killed_while_drained(_) ->
    {ok, Pid} = weir_server:start(weir_server_echo, {tell, self()}, []),
    Never = make_ref(),
    weir_server:cast(Pid, {wait_for, Never, self()}),
    receive {waiting, Never} -> ok end,
    Callers = [spawn_monitor(fun() -> weir_server:call(Pid, seen, infinity) end) || _ <- lists:seq(1, 20)],
    ok = until(fun() -> queue_len(Pid) =:= 20 end),
    exit(Pid, kill),
    [
        ?assertMatch({'DOWN', _, _, _, {killed, {weir_server, call, _}}}, next_of({'DOWN', Ref}))
     || {_, Ref} <- Callers
    ].

%% Batches

batch_in_order(_) ->
    Pid = batcher([]),
    held(Pid, fun() ->
        weir_server:cast(Pid, 1),
        Pid ! 2,
        spawn(fun() -> weir_server:call(Pid, {reply, 3}, wait_ms()) end),
        ok = until(fun() -> queue_len(Pid) =:= 3 end),
        weir_server:cast(Pid, 4)
    end),
    ?assertEqual([{cast, 1}, {info, 2}, {call, {reply, 3}}, {cast, 4}], batch(Pid)),
    ok = weir_server:stop(Pid).

batch_is_bounded(_) ->
    lists:foreach(
        fun({Sent, Sizes}) ->
            Pid = batcher([{drain, 10}]),
            held(Pid, fun() -> [weir_server:cast(Pid, N) || N <- lists:seq(1, Sent)] end),
            Batches = [batch(Pid) || _ <- Sizes],
            ?assertEqual(Sizes, [length(B) || B <- Batches]),
            ?assertEqual([{cast, N} || N <- lists:seq(1, Sent)], lists:append(Batches)),
            ok = weir_server:stop(Pid)
        end,
        [{10, [10]}, {11, [10, 1]}, {25, [10, 10, 5]}]
    ).

batch_replies(_) ->
    Pid = batcher([]),
    Self = self(),
    held(Pid, fun() ->
        [spawn(fun() -> Self ! {N, weir_server:call(Pid, {reply, N}, infinity)} end) || N <- lists:seq(1, 50)],
        ok = until(fun() -> queue_len(Pid) =:= 50 end)
    end),
    ?assertEqual([N || N <- lists:seq(1, 50)], [receive {N, R} -> R end || N <- lists:seq(1, 50)]),
    ok = weir_server:stop(Pid).

batch_late_replies(_) ->
    Pid = batcher([]),
    ?assertEqual(by_hand, weir_server:call(Pid, {later, by_hand}, wait_ms())),
    ok = weir_server:stop(Pid).

batch_stops(_) ->
    Pid = batcher([]),
    Ref = monitor(process, Pid),
    weir_server:cast(Pid, {order, {stop, {shutdown, told}}}),
    ?assertEqual({'DOWN', Ref, process, Pid, {shutdown, told}}, next_of({'DOWN', Ref})),
    ?assertEqual({terminated, Pid, {shutdown, told}}, next_of({terminated, Pid})).

batch_stop_replies(_) ->
    Pid = batcher([]),
    Ref = monitor(process, Pid),
    ?assertEqual(stopped, weir_server:call(Pid, {order, stop_replying}, wait_ms())),
    ?assertEqual({'DOWN', Ref, process, Pid, normal}, next_of({'DOWN', Ref})).

batch_raises(_) ->
    silently(fun() ->
        Pid = batcher([]),
        Ref = monitor(process, Pid),
        weir_server:cast(Pid, {order, {raise, oops}}),
        ?assertMatch({'DOWN', Ref, process, Pid, {oops, [_ | _]}}, next_of({'DOWN', Ref}))
    end).

batch_bad_return(_) ->
    silently(fun() ->
        [
            begin
                Pid = batcher([]),
                Ref = monitor(process, Pid),
                weir_server:cast(Pid, {order, {bad, Bad}}),
                ?assertEqual({terminated, Pid, {bad_return_value, Bad}}, next_of({terminated, Pid})),
                ?assertEqual({'DOWN', Ref, process, Pid, {bad_return_value, Bad}}, next_of({'DOWN', Ref}))
            end
         || Bad <- [
                nonsense, {reply, not_a_list, s}, {reply, [], s, bad_action}, {stop, r, not_a_list, s},
                {reply, [not_a_reply], s}, {reply, [{not_a_from, reply}], s}, {reply, [{{not_a_pid, tag}, reply}], s},
                {reply, [{{self(), tag}, reply} | improper], s}, {stop, r, [{not_a_from, reply}], s}
            ]
        ]
    end).

batch_actions(_) ->
    Pid = batcher([]),
    weir_server:cast(Pid, {order, {action, {continue, on}}}),
    ?assertEqual({continued, Pid, on}, next_of({continued, Pid})),
    weir_server:cast(Pid, {order, {action, hibernate}}),
    ok = until(fun() -> is_hibernated(Pid) end),
    ok = weir_server:stop(Pid).

batch_timeout(_) ->
    Pid = batcher([]),
    weir_server:cast(Pid, {order, {action, 0}}),
    [_] = batch(Pid),
    ?assertEqual([{info, timeout}], batch(Pid)),
    ok = weir_server:stop(Pid).

batch_parent_exit(_) ->
    process_flag(trap_exit, true),
    {ok, Pid} = weir_server:start_link(weir_server_batcher, self(), []),
    %% the server does not trap exits, so it is told as `sys' tells it
    held(Pid, fun() ->
        weir_server:cast(Pid, handled),
        Pid ! {'EXIT', self(), shutdown}
    end),
    ?assertEqual([{cast, handled}], batch(Pid)),
    ?assertEqual({terminated, Pid, shutdown}, next_of({terminated, Pid})),
    receive {batch, Pid, More} -> ct:fail(More) after 0 -> ok end.

batch_system_message(_) ->
    Pid = batcher([]),
    held(Pid, fun() ->
        weir_server:cast(Pid, 1),
        request_state(Pid),
        weir_server:cast(Pid, 2)
    end),
    ?assertEqual(self(), requested_state()),
    ?assertEqual([{cast, 1}, {cast, 2}], batch(Pid)),
    ok = weir_server:stop(Pid).

%% What was drained before a code change is in the batch after it.
batch_code_change(_) ->
    Pid = batcher([{drain, {2, 2}}, {max_queue, 10}]),
    Self = self(),
    held(Pid, fun() ->
        weir_server:cast(Pid, 0),
        spawn_link(fun() -> ok = sys:suspend(Pid, infinity), Self ! suspended end),
        ok = until(fun() -> queue_len(Pid) =:= 2 end),
        weir_server:cast(Pid, 1)
    end),
    suspended = next_of(suspended),
    ?assertEqual([{cast, 0}], batch(Pid)),
    ?assertMatch({ok, #{drained := 1, mailbox := 0}}, weir_server:info(Pid)),
    weir_server:cast(Pid, 2),
    ok = sys:change_code(Pid, weir_server_batcher, "1", extra, wait_ms()),
    {code_changed, Pid, extra} = next_of({code_changed, Pid}),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual([{cast, 1}, {cast, 2}], batch(Pid)),
    ok = weir_server:stop(Pid).

batch_debug(_) ->
    Pid = batcher([]),
    ok = sys:log(Pid, true, wait_ms()),
    held(Pid, fun() -> weir_server:cast(Pid, 1), weir_server:cast(Pid, 2) end),
    [_, _] = batch(Pid),
    3 = weir_server:call(Pid, {reply, 3}, wait_ms()),
    {ok, Log} = sys:log(Pid, get, wait_ms()),
    ?assertMatch(
        [{in, _}, {noreply, _}, {in, {'$gen_cast', 1}}, {in, {'$gen_cast', 2}}, {noreply, _}, {in, _}, {out, 3, _, _}],
        Log
    ),
    ok = weir_server:stop(Pid).

batch_crash_report_is_small(_) ->
    Pid = batcher([{drain, {500, 500}}]),
    [#{msg := {report, #{last_message := Last}}}] = reports({gen_server, terminate}, fun() ->
        held(Pid, fun() ->
            [weir_server:cast(Pid, {order, {raise, oops}}) || _ <- lists:seq(1, 500)]
        end),
        {terminated, Pid, _} = next_of({terminated, Pid})
    end),
    ?assertEqual({batch, 500, lists:duplicate(3, {cast, {order, {raise, oops}}})}, Last).

%% Helpers

started(Conf) ->
    S = ?config(server, Conf),
    {ok, Pid} = S:start(weir_server_echo, {tell, self()}, []),
    {S, Pid}.

%% Runs `Fill' while the server is inside a callback, so that what it sends is drained together.
hold(S, Pid, Fill) ->
    Ref = make_ref(),
    S:cast(Pid, {wait_for, Ref, self()}),
    receive {waiting, Ref} -> ok end,
    Fill(),
    Pid ! Ref.

holding(Options, Fill) ->
    {ok, Pid} = weir_server:start(weir_server_echo, {tell, self()}, Options),
    hold(weir_server, Pid, fun() -> push(Pid), Fill(Pid) end),
    Pid.

%% So many messages that the server looks at its mailbox before the last of them: then it drains what comes behind.
push(Pid) ->
    [weir_server:cast(Pid, pushed) || _ <- lists:seq(1, 64)],
    ok.

batcher(Options) ->
    {ok, Pid} = weir_server:start(weir_server_batcher, self(), Options),
    Pid.

held(Pid, Fill) ->
    Ref = make_ref(),
    weir_server:cast(Pid, {hold, Ref}),
    [{cast, {hold, Ref}}] = batch(Pid),
    Fill(),
    Pid ! Ref.

batch(Pid) ->
    {batch, Pid, Batch} = next_of({batch, Pid}),
    Batch.

%% Asks for the state without waiting for it, but until the request has its place in the mailbox.
request_state(Pid) ->
    Self = self(),
    {message_queue_len, Before} = process_info(Pid, message_queue_len),
    spawn_link(fun() -> Self ! {state, sys:get_state(Pid, infinity)} end),
    ok = until(fun() -> queue_len(Pid) =:= Before + 1 end).

requested_state() ->
    {state, State} = next_of({state}),
    State.

integers_cast(Seen) ->
    [N || {cast, N} <- Seen, is_integer(N)].

next() ->
    receive Msg -> Msg after weir_kit:wait_ms() -> ct:fail(no_message) end.

%% Waits for a message that begins as `Prefix' does, and returns it.
next_of(Prefix) when is_tuple(Prefix) ->
    next_of(Prefix, []);
next_of(Msg) ->
    receive Msg -> Msg after weir_kit:wait_ms() -> ct:fail({no_message, Msg}) end.

next_of(Prefix, Skipped) ->
    Size = tuple_size(Prefix),
    receive
        Msg when is_tuple(Msg), tuple_size(Msg) >= Size ->
            case lists:sublist(tuple_to_list(Msg), Size) =:= tuple_to_list(Prefix) of
                true ->
                    [self() ! M || M <- lists:reverse(Skipped)],
                    Msg;
                false ->
                    next_of(Prefix, [Msg | Skipped])
            end
    after weir_kit:wait_ms() ->
        ct:fail({no_message, Prefix, Skipped})
    end.

%% Newer releases of gen_server hibernate inside a function of their own.
is_hibernated(Pid) ->
    {current_function, {_, Function, _}} = process_info(Pid, current_function),
    lists:member(Function, [hibernate, loop_hibernate]).

catch_exit(Fun) ->
    try Fun() catch exit:Reason -> {exit, Reason} end.

silently(Fun) ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    try Fun() after ok = logger:set_primary_config(level, Level) end.

%% The log events with this label that a fun causes, in order.
reports(Label, Fun) ->
    Self = self(),
    Id = list_to_atom("reports_" ++ integer_to_list(erlang:unique_integer([positive]))),
    ok = logger:add_handler(Id, weir_server_log_tap, #{config => #{tell => Self, label => Label}}),
    try
        _ = Fun(),
        {tapped, Label, First} = next_of({tapped, Label}),
        [First | rest_of(Label)]
    after
        ok = logger:remove_handler(Id)
    end.

rest_of(Label) ->
    receive {tapped, Label, Event} -> [Event | rest_of(Label)] after 0 -> [] end.
