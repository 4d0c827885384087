%% Windows on processes of this node: the messages in a mailbox, the senders that wait, and the results of the calls.
-module(weir_flow_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, messages/0, queue_len/1, until/1, wait_ms/0]).
-import(weir_flow_test_lib, [async/1, result/1, await/1, is_waiting/2, until_waiting/2, stray/0, no_stray/0]).
-import(weir_flow_test_receiver, [start/1, start/2, blocked/0, block/1, flush/1, release/1, notes/1]).

-define(TIMEOUT, {error, timeout}).
-define(NOPROC, {error, noproc}).

all() -> weir_kit:cases(?MODULE).

end_per_testcase(_Case, _Config) -> no_stray().

%% Casts the notes, and returns the results.
casts(Dest, Notes, How) -> [weir_flow:cast(Dest, {note, N}, How) || N <- Notes].

window(Pid) -> maps:get(Pid, weir_flow:windows()).

%% Window - 1 messages go out. The next call brings the request, and waits. When the receiver goes on, all messages
%% arrive in their order.
bound(_Config) ->
    Notify = fun(Pid, Message, How) -> weir_flow:send(Pid, {notify, Message}, How) end,
    [
        bound(Kind, Send, Window, How)
     || {Kind, Sends} <- [
            {gen_server, [fun weir_flow:cast/3, fun weir_flow:send/3]},
            {gen_statem, [fun weir_flow:cast/3, fun weir_flow:send/3]},
            {gen_event, [Notify]},
            {hibernating, [fun weir_flow:cast/3]}
        ],
        Send <- Sends, Window <- [2, 3, 8], How <- [Window, #{window => Window, timeout => wait_ms()}]
    ].

bound(Kind, Send, Window, How) ->
    {ok, Pid} = start(Kind),
    ok = block(Pid),
    Sender = async(fun() -> [Send(Pid, {note, N}, How) || N <- lists:seq(1, 3 * Window)] end),
    until_waiting(Sender, {Pid, Window}),
    ok = release(Pid),
    ?assertEqual(lists:duplicate(3 * Window, ok), result(Sender)),
    ?assertEqual(lists:seq(1, 3 * Window), notes(Pid)),
    kill(Pid).

%% A window belongs to a process, whichever name a call uses. Each call brings the size of the window.
names(_Config) ->
    {ok, Local} = start(gen_server, {local, weir_flow_local}),
    {ok, Global} = start(gen_server, {global, {weir, flow}}),
    [
        begin
            ok = block(Pid),
            ok = result(async(fun() ->
                [ok, ok] = [weir_flow:cast(Name, {note, Name}, 4) || Name <- Names],
                ok = weir_flow:send(Pid, {note, pid}, 4),
                ?assertEqual([?TIMEOUT], casts(Pid, [no], #{window => 4, timeout => 0})),
                %% The request of the watch is behind the messages, so a larger window lets no message out.
                ?assertEqual([?TIMEOUT], casts(Pid, [no], #{window => 100, timeout => 0}))
            end)),
            ok = release(Pid),
            ?assertEqual(Names ++ [pid], notes(Pid)),
            kill(Pid)
        end
     || {Pid, Names} <- [
            {Local, [weir_flow_local, {weir_flow_local, node()}]},
            {Global, [{global, {weir, flow}}, {via, global, {weir, flow}}]}
        ]
    ].

to_itself(_Config) ->
    Options = [2, #{limit => busy}, #{window => 16#7ffffff, timeout => 4294967295}, [{window, 3}, {window, wrong}], []],
    result(async(fun() ->
        [{ok, How} = {weir_flow:send(self(), N, How), How} || How <- Options, N <- [1, 2, 3]],
        ?assertEqual(#{}, weir_flow:windows()),
        [ok = await(N) || _ <- Options, N <- [1, 2, 3]]
    end)).

%% ---------------------------------------------------------------- death

%% If a receiver dies before the window is full, the acknowledgement finds out, and each later call finds out at once.
no_such_process(_Config) ->
    Dests = [weir_flow_none, {weir_flow_none, node()}, {global, weir_flow_none}, {via, global, weir_flow_none}],
    [?assertEqual(?NOPROC, weir_flow:cast(Dest, x)) || Dest <- Dests],
    {ok, Pid} = start(gen_server, {local, weir_flow_local}),
    result(async(fun() ->
        ?assertEqual([ok], casts(weir_flow_local, [1], 4)),
        unregister(weir_flow_local),
        ?assertEqual([?NOPROC], casts(weir_flow_local, [no], 4)),
        kill(Pid),
        ?assertEqual([ok, ok, ?NOPROC, ?NOPROC, ?NOPROC], casts(Pid, lists:seq(2, 6), 4))
    end)),
    [?assertEqual(?NOPROC, weir_flow:cast(Pid, x, How)) || How <- [16, #{timeout => 0}]],
    {error, noproc, _} = weir_flow:cast_with(weir_flow:new(Pid), x),
    ?assertEqual(#{}, weir_flow:windows()).

killed_while_a_sender_waits(_Config) ->
    [
        begin
            {ok, Pid} = start(gen_server),
            ok = Stop(Pid),
            Sender = async(fun() -> {casts(Pid, [1, 2, 3], How), weir_flow:windows()} end),
            until_waiting(Sender, {Pid, Length}),
            kill(Pid),
            ?assertEqual({[ok, ?NOPROC, ?NOPROC], #{}}, result(Sender))
        end
     || How <- [2, #{window => 2, timeout => wait_ms()}],
        {Stop, Length} <- [{fun weir_flow_test_receiver:block/1, 2}, {fun(Pid) -> sys:suspend(Pid, wait_ms()) end, 1}]
    ].

%% The watch has ended long before the next call.
killed_while_watched(_Config) ->
    Pid = blocked(),
    result(async(fun() ->
        ?assertEqual([ok, ?TIMEOUT], casts(Pid, [1, no], #{window => 2, timeout => 0})),
        kill(Pid),
        no_stray(),
        ?assertEqual([?NOPROC, ?NOPROC], casts(Pid, [2, 3], #{window => 2, timeout => 0}))
    end)).

%% ---------------------------------------------------------------- time-outs and lost requests

%% The mailbox holds Window - 1 messages, the request of the sender, and the request of the watch.
timeout_and_remains(_Config) ->
    Pid = blocked(),
    Sender = async(fun() ->
        ?assertEqual([ok, ok, ok, ?TIMEOUT], casts(Pid, [1, 2, 3, no], #{window => 4, timeout => 50})),
        #{state := waiting, unacknowledged := full, timeouts := 1} = window(Pid),
        {casts(Pid, [4], 4), window(Pid)}
    end),
    until_waiting(Sender, {Pid, 5}),
    ok = release(Pid),
    Window = #{unacknowledged => 1, state => open, waits => 2, timeouts => 1, asked_again => 0},
    ?assertEqual({[ok], Window}, result(Sender)),
    ?assertEqual([1, 2, 3, 4], notes(Pid)),
    kill(Pid).

%% The sender asks behind the last message of the window, so an idle receiver has answered by the next message. The
%% mailbox holds Window messages, and no further request.
never_wait(_Config) ->
    [
        begin
            {ok, Pid} = start(gen_server),
            How = #{window => Window, timeout => 0},
            Notes = lists:seq(1, Window - 1),
            result(async(fun() ->
                ok = block(Pid),
                ?assertEqual([ok || _ <- Notes] ++ [?TIMEOUT, ?TIMEOUT], casts(Pid, Notes ++ [no, no], How)),
                ?assertEqual(Window, queue_len(Pid)),
                ok = release(Pid),
                until(fun() -> queue_len(Pid) =:= 0 andalso stray() =:= [] end),
                ?assertEqual([ok], casts(Pid, [Window], How))
            end)),
            ?assertEqual(lists:seq(1, Window), notes(Pid)),
            kill(Pid)
        end
     || Window <- [2, 4]
    ].

sender_killed_while_watched(_Config) ->
    Pid = blocked(),
    Sender = async(fun() -> {casts(Pid, [1, no], #{window => 2, timeout => 50}), casts(Pid, [no], 2)} end),
    until_waiting(Sender, {Pid, 3}),
    ok = kill(Sender),
    no_stray(),
    ?assertEqual(3, queue_len(Pid)),
    ok = release(Pid),
    ?assertEqual([1], notes(Pid)),
    kill(Pid).

%% A sender whose watch is killed by another process goes on.
watch_killed(_Config) ->
    Pid = blocked(),
    result(async(fun() ->
        ?assertEqual([ok, ?TIMEOUT], casts(Pid, [1, no], #{window => 2, timeout => 1})),
        [Watch] = stray(),
        ok = kill(Watch),
        ?assertEqual([ok], casts(Pid, [2], 2))
    end)),
    ok = release(Pid),
    ?assertEqual([1, 2], notes(Pid)),
    kill(Pid).

%% Messages that look like answers stay, and keep their order.
long_mailbox(_Config) ->
    {ok, Pid} = start(gen_server),
    Junk = [[alias | make_ref()], {make_ref(), ok}, {'DOWN', make_ref(), process, Pid, normal}],
    Sender = weir_kit:start(fun() ->
        [self() ! {N, J} || N <- lists:seq(1, 10000), J <- Junk],
        Before = messages(),
        [ok = weir_flow:cast(Pid, {note, N}, 2) || N <- lists:seq(1, 2000)],
        ?assert(Before =:= messages()),
        Pid ! {block, self()},
        [?assertEqual([?TIMEOUT], casts(Pid, [no], #{window => 2, timeout => 1})) || _ <- [1, 2]],
        ok = release(Pid),
        ok = await({blocked, Pid}),
        ?assertEqual([ok], casts(Pid, [x], 2)),
        ?assert(Before =:= messages())
    end),
    ok = weir_kit:result(Sender),
    kill(Pid).

%% A callback throws away the request of a sender that waits, and both requests of a sender that has timed out. The
%% watch of the second sender ends before its next call.
request_thrown_away(_Config) ->
    {ok, Pid} = start(gen_server),
    ok = flush(Pid),
    Waits = async(fun() -> {casts(Pid, [1, 2], 2), window(Pid)} end),
    {TimedOut, _} = HasTimedOut = async(fun() ->
        ?assertEqual([ok, ?TIMEOUT], casts(Pid, [3, no], #{window => 2, timeout => 50})),
        await(flushed),
        {casts(Pid, [4], #{window => 2, timeout => 0}), window(Pid)}
    end),
    until_waiting(Waits, {Pid, 2 + 3}),
    ok = release(Pid),
    ?assertMatch({[ok, ok], #{asked_again := Again, state := open}} when Again > 0, result(Waits)),
    no_stray(),
    TimedOut ! flushed,
    ?assertMatch({[ok], #{asked_again := Again, timeouts := 1}} when Again > 0, result(HasTimedOut)),
    ?assertEqual([2, 4], notes(Pid)),
    kill(Pid).

%% A sender, or its watch, is suspended until its patience is over. The answer has arrived meanwhile, so the request
%% does not count as lost.
answered_but_not_noticed(_Config) ->
    [
        begin
            Pid = blocked(),
            Began = erlang:monotonic_time(millisecond),
            {Sender, _} = Async = async(fun() -> {casts(Pid, [1], First), casts(Pid, [2], 2), window(Pid)} end),
            until_waiting(Async, {Pid, 2}),
            Waiting = [Sender || First =:= 2] ++ stray(),
            [true = erlang:suspend_process(Each) || Each <- Waiting],
            %% The patience doubles, so it lasts no longer than twice the wait so far, and the first patience.
            Over = 3 * erlang:monotonic_time(millisecond) - 2 * Began + 100,
            ok = release(Pid),
            [1] = notes(Pid),
            until(fun() -> erlang:monotonic_time(millisecond) > Over andalso queue_len(Pid) =:= 0 end),
            [true = erlang:resume_process(Each) || Each <- Waiting],
            ?assertMatch({First, {[ok], [ok], #{asked_again := 0, state := open}}}, {First, result(Async)}),
            ?assertEqual([1, 2], notes(Pid)),
            kill(Pid)
        end
     || First <- [2, #{window => 2, timeout => 0}]
    ].

%% ---------------------------------------------------------------- suspension

%% The first acknowledgement finds out. A receiver that is resumed has still to handle the messages that it has
%% acknowledged, so the sender asks again.
suspended(_Config) ->
    {ok, Pid} = start(gen_server),
    ok = sys:suspend(Pid, wait_ms()),
    Pid ! {block, self()},
    Sender = async(fun() -> casts(Pid, lists:seq(1, 20), 4) end),
    until_waiting(Sender, {Pid, 1 + 3}),
    ok = sys:resume(Pid, wait_ms()),
    ok = await({blocked, Pid}),
    until(fun() -> queue_len(Pid) =:= 4 andalso is_waiting(Sender, [ask]) end),
    ok = release(Pid),
    ?assertEqual(lists:duplicate(20, ok), result(Sender)),
    ?assertEqual(lists:seq(1, 20), notes(Pid)),
    kill(Pid).

%% One of 16 acknowledgements finds out.
suspended_later(_Config) ->
    {ok, Pid} = start(gen_server),
    {Sender, _} = Async = async(fun() ->
        [ok | _] = casts(Pid, lists:seq(1, 10), 4),
        await(suspended),
        casts(Pid, lists:seq(11, 200), 4)
    end),
    until(fun() -> length(notes(Pid)) =:= 10 end),
    ok = sys:suspend(Pid, wait_ms()),
    Sender ! suspended,
    until(fun() -> is_waiting(Async, [await_resume]) end),
    ?assert(queue_len(Pid) =< 16 * 4),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual(lists:duplicate(190, ok), result(Async)),
    ?assertEqual(lists:seq(1, 200), notes(Pid)),
    kill(Pid).

%% A gen_server of OTP 29 hibernates in a function of its own.
suspended_hibernating(_Config) ->
    {ok, Pid} = start(hibernating),
    until(fun() ->
        {current_function, {_, Function, _}} = process_info(Pid, current_function),
        Function =:= hibernate orelse Function =:= loop_hibernate
    end),
    ok = sys:suspend(Pid, wait_ms()),
    Sender = async(fun() -> casts(Pid, lists:seq(1, 20), 4) end),
    until_waiting(Sender, {Pid, 3}),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual(lists:duplicate(20, ok), result(Sender)),
    kill(Pid).

%% Calls whose time is over add nothing to the mailbox.
suspended_times_out(_Config) ->
    {ok, Pid} = start(gen_server),
    ok = sys:suspend(Pid, wait_ms()),
    result(async(fun() ->
        ?assertEqual([ok], casts(Pid, [1], 2)),
        [?assertEqual([?TIMEOUT], casts(Pid, [no], #{window => 2, timeout => N rem 4})) || N <- lists:seq(1, 20)],
        no_stray(),
        %% All calls may have timed out before the end of the watch, which the next call finds.
        ?assertEqual([?TIMEOUT], casts(Pid, [no], #{window => 2, timeout => 0})),
        ?assertEqual(1, queue_len(Pid)),
        #{state := suspended} = window(Pid),
        ok = sys:resume(Pid, wait_ms()),
        ?assertEqual([ok], casts(Pid, [2], #{window => 2, timeout => wait_ms()}))
    end)),
    ?assertEqual([1, 2], notes(Pid)),
    kill(Pid).

%% ---------------------------------------------------------------- handles and the dictionary

handle(_Config) ->
    Pid = blocked(),
    Sender = async(fun() ->
        Flow0 = weir_flow:new(Pid, #{window => 3, timeout => 50}),
        {ok, Flow1} = weir_flow:cast_with(Flow0, {note, 1}),
        {ok, Flow2} = weir_flow:send_with(Flow1, {note, 2}),
        {error, timeout, Flow3} = weir_flow:cast_with(Flow2, {note, no}),
        no_stray(),
        {ok, Flow4} = weir_flow:cast_with(Flow3, {note, 3}),
        ?assertEqual([], get()),
        [element(2, {ok, _} = weir_flow:info(Flow)) || Flow <- [Flow0, Flow2, Flow3, Flow4]]
    end),
    until(fun() -> queue_len(Pid) =:= 4 end),
    ok = release(Pid),
    ?assertMatch(
        [
            #{unacknowledged := full, state := new, waits := 0},
            #{unacknowledged := 2, state := open},
            #{unacknowledged := full, state := waiting, timeouts := 1, waits := 1},
            #{unacknowledged := 1, state := open, waits := 2}
        ],
        result(Sender)
    ),
    ?assertEqual([1, 2, 3], notes(Pid)),
    kill(Pid).

handle_on_a_name(_Config) ->
    Flow0 = weir_flow:new(weir_flow_local, 2),
    {error, noproc, Flow1} = weir_flow:cast_with(Flow0, x),
    {ok, First} = start(gen_server, {local, weir_flow_local}),
    {ok, Flow2} = weir_flow:cast_with(Flow1, {note, 1}),
    {ok, Flow3} = weir_flow:cast_with(Flow2, {note, 2}),
    ?assertEqual([1, 2], notes(First)),
    kill(First),
    {error, noproc, Flow4} = weir_flow:cast_with(Flow3, x),
    {ok, Second} = start(gen_server, {local, weir_flow_local}),
    {ok, Flow5} = weir_flow:cast_with(Flow4, {note, 3}),
    {ok, #{unacknowledged := 1, waits := 1}} = weir_flow:info(Flow5),
    ?assertEqual([3], notes(Second)),
    kill(Second).

%% A sweep deletes dead processes above 1,000 windows, and then not before there are twice as many as it has left.
dead_receivers_are_swept(_Config) ->
    result(async(fun() ->
        Sent = fun(Count) ->
            Pids = [spawn(fun() -> receive never -> ok end end) || _ <- lists:seq(1, Count)],
            [ok = weir_flow:send(Pid, x) || Pid <- Pids],
            Pids
        end,
        Windows = fun(Count) -> ?assertEqual(Count, maps:size(weir_flow:windows())) end,
        Live = Sent(600),
        [kill(Pid) || Pid <- Sent(400)],
        Windows(1000),
        More = Sent(1),
        Windows(601),
        [kill(Pid) || Pid <- Sent(600)],
        Windows(1201),
        Last = Sent(1),
        Windows(602),
        [kill(Pid) || Pid <- Live ++ More ++ Last]
    end)).

%% A forgotten receiver has a fresh window. A receiver without a window may be forgotten.
forget(_Config) ->
    Pid = blocked(),
    result(async(fun() ->
        [ok = weir_flow:forget(Dest) || Dest <- [Pid, weir_flow_none]],
        ?assertEqual([ok, ok], casts(Pid, [1, 2], 3)),
        ok = weir_flow:forget(Pid),
        ?assertEqual(#{}, weir_flow:windows()),
        ?assertEqual([ok, ok], casts(Pid, [3, 4], 3))
    end)),
    kill(Pid).

%% The shell shows a text about the wrong argument.
misuse(_Config) ->
    [
        ?assertEqual({Options, Text}, {Options, text(fun() -> weir_flow:cast(self(), x, Options) end)})
     || {Options, Text} <- [
            {1, "option window is not an integer from 2 to 134217727: 1"},
            {#{window => 16#8000000}, "option window is not an integer from 2 to 134217727: 134217728"},
            {#{timeout => 4294967296}, "option timeout is not milliseconds or infinity: 4294967296"},
            {[{limit, never}], "option limit is not none, wait or busy: never"},
            {#{time_out => 1}, "no such option: time_out; there are window, timeout and limit"},
            {many, "neither a window nor a map or keyword list of options"},
            {[{window, 3} | x], "not a list of pairs"}
        ]
    ],
    Limits = [0, -1, 4000001, infinity, 1.0],
    [?assertEqual("not an integer from 1 to 4000000", text(fun() -> weir_flow:limit(Max) end)) || Max <- Limits],
    ?assertError(badarg, weir_flow:limit(name, 1)),
    Bad = ["name", {a, b, c}, 1, {1, node()}, {via, 1, x}, make_ref()],
    [?assertError(badarg, weir_flow:send(Dest, x)) || Dest <- Bad],
    [?assertError(badarg, weir_flow:new(Dest, Window)) || {Dest, Window} <- [{self(), 1}, {"name", 16}]].

text(Call) ->
    try
        Call()
    catch
        error:badarg:Stack ->
            [{_, _, _, Info} | _] = Stack,
            #{module := Module} = proplists:get_value(error_info, Info),
            [Text] = maps:values(Module:format_error(badarg, Stack)),
            Text
    end.
