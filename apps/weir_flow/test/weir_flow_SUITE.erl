%% Windows on processes of this node: the messages in a mailbox, the senders that wait, and the results of the calls.
-module(weir_flow_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, messages/0, queue_len/1, until/1, wait_ms/0]).
-import(weir_flow_test_lib, [async/1, result/1, is_waiting/1, is_waiting/2]).

-define(RECEIVER, weir_flow_test_receiver).
%% A time-out that does not expire in a case.
-define(LONG_MS, weir_kit:wait_ms()).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

end_per_testcase(_Case, _Config) -> weir_flow_test_lib:no_stray().

%% ---------------------------------------------------------------- the bound

bound_gen_server(_Config) ->
    bound(gen_server, fun weir_flow:cast/3),
    bound(gen_server, fun weir_flow:send/3).

bound_gen_statem(_Config) ->
    bound(gen_statem, fun weir_flow:cast/3),
    bound(gen_statem, fun weir_flow:send/3).

bound_gen_event(_Config) ->
    bound(gen_event, fun weir_flow:send/3),
    bound(gen_event, fun(Pid, Message, How) -> weir_flow:send(Pid, {notify, Message}, How) end).

bound_hibernating(_Config) -> bound(hibernating, fun weir_flow:cast/3).

%% W - 1 messages go out; the next brings in the request and waits; when the receiver goes on, all arrive in their
%% order.
bound(Kind, Send) ->
    [bound(Kind, Send, Window, How) || Window <- [2, 3, 8], How <- [Window, #{window => Window, timeout => ?LONG_MS}]].

bound(Kind, Send, Window, How) ->
    {ok, Pid} = ?RECEIVER:start(Kind),
    ok = ?RECEIVER:block(Pid),
    Test = self(),
    Sender = async(fun() ->
        Free = [Send(Pid, {note, N}, How) || N <- lists:seq(1, Window - 1)],
        Test ! {free, Free},
        [Send(Pid, {note, N}, How) || N <- lists:seq(Window, 3 * Window)]
    end),
    receive
        {free, Free} -> ?assertEqual([], [Result || Result <- Free, Result =/= ok])
    end,
    until(fun() -> is_waiting(Sender) end),
    ?assertEqual(Window, queue_len(Pid)),
    ok = ?RECEIVER:release(Pid),
    ?assertEqual([], [Result || Result <- result(Sender), Result =/= ok]),
    ?assertEqual(lists:seq(1, 3 * Window), ?RECEIVER:notes(Pid)),
    ?RECEIVER:stop(Pid).

%% A supervisor is blocked by a child that does not start.
bound_supervisor(_Config) ->
    {ok, Sup} = supervisor:start_link(weir_flow_test_sup, #{}),
    unlink(Sup),
    Test = self(),
    Start = fun() ->
        Test ! starting,
        receive
            go -> ignore
        end
    end,
    Blocker = async(fun() -> supervisor:start_child(Sup, #{id => x, start => {erlang, apply, [Start, []]}}) end),
    receive
        starting -> ok
    end,
    Sender = async(fun() -> [weir_flow:send(Sup, junk, 8) || _ <- lists:seq(1, 20)] end),
    until(fun() -> is_waiting(Sender) end),
    ?assertEqual(8, queue_len(Sup)),
    Sup ! go,
    ?assertEqual(lists:duplicate(20, ok), result(Sender)),
    _ = result(Blocker),
    kill(Sup).

bound_of_many_senders(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = ?RECEIVER:block(Pid),
    Senders = [
        async(fun() -> [weir_flow:cast(Pid, {note, {S, N}}, 5) || N <- lists:seq(1, 30)] end)
     || S <- lists:seq(1, 20)
    ],
    until(fun() -> lists:all(fun weir_flow_test_lib:is_waiting/1, Senders) end),
    ?assertEqual(20 * 5, queue_len(Pid)),
    ok = ?RECEIVER:release(Pid),
    [?assertEqual(lists:duplicate(30, ok), result(Sender)) || Sender <- Senders],
    Notes = ?RECEIVER:notes(Pid),
    [ok = weir_kit:same(notes, lists:seq(1, 30), [N || {S1, N} <- Notes, S1 =:= S]) || S <- lists:seq(1, 20)],
    ?RECEIVER:stop(Pid).

%% With 2 every message but the first is behind an acknowledgement.
smallest_window(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ?assertEqual(
        #{unacknowledged => 1, state => open, waits => 9, timeouts => 0, asked_again => 0},
        result(async(fun() ->
            [ok = weir_flow:cast(Pid, x, 2) || _ <- lists:seq(1, 10)],
            maps:get(Pid, weir_flow:windows())
        end))
    ),
    ?RECEIVER:stop(Pid).

%% Each call brings its window; cast and send, pid and names, count together.
windows_of_one_sender_mix(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server, {local, weir_flow_mix}),
    ok = ?RECEIVER:block(Pid),
    Sender = async(fun() ->
        ok = weir_flow:cast(Pid, {note, 1}, 4),
        ok = weir_flow:send(weir_flow_mix, {note, 2}, 4),
        ok = weir_flow:cast({weir_flow_mix, node()}, {note, 3}, 4),
        {error, timeout} = weir_flow:cast(Pid, {note, no}, #{window => 4, timeout => 0}),
        %% The watch's request is behind them, so nothing goes out whatever the window is.
        {error, timeout} = weir_flow:cast(Pid, {note, no}, #{window => 100, timeout => 0})
    end),
    ?assertEqual({error, timeout}, result(Sender)),
    ok = ?RECEIVER:release(Pid),
    ?assertEqual([1, 2, 3], ?RECEIVER:notes(Pid)),
    ?RECEIVER:stop(Pid).

%% ---------------------------------------------------------------- names

names(_Config) ->
    yes = global:register_name(weir_flow_global, self()),
    global:unregister_name(weir_flow_global),
    Local = {local, weir_flow_local},
    [
        begin
            {ok, Pid} = ?RECEIVER:start(gen_server, Name),
            ok = ?RECEIVER:block(Pid),
            Sender = async(fun() -> [weir_flow:cast(Dest, {note, N}, 3) || N <- [1, 2, 3, 4]] end),
            until(fun() -> is_waiting(Sender) end),
            ?assertEqual(3, queue_len(Pid)),
            ok = ?RECEIVER:release(Pid),
            ?assertEqual([ok, ok, ok, ok], result(Sender)),
            ?assertEqual([1, 2, 3, 4], ?RECEIVER:notes(Pid)),
            ?RECEIVER:stop(Pid)
        end
     || {Name, Dest} <- [
            {Local, weir_flow_local},
            {Local, {weir_flow_local, node()}},
            {{global, {weir, flow}}, {global, {weir, flow}}},
            {{via, global, {weir, flow}}, {via, global, {weir, flow}}}
        ]
    ].

name_unregistered(_Config) ->
    [
        ?assertEqual({error, noproc}, weir_flow:cast(Dest, x))
     || Nobody <- [weir_flow_nobody],
        Dest <- [Nobody, {Nobody, node()}, {global, Nobody}, {via, global, Nobody}]
    ],
    {ok, Pid} = ?RECEIVER:start(gen_server, {local, weir_flow_local}),
    ok = weir_flow:cast(weir_flow_local, x),
    unregister(weir_flow_local),
    ?assertEqual({error, noproc}, weir_flow:cast(weir_flow_local, x)),
    ok = weir_flow:cast(Pid, x),
    ?RECEIVER:stop(Pid),
    ok = weir_flow:forget(Pid).

%% Another process has another window: W - 1 again.
restart_under_a_name(_Config) ->
    {ok, First} = ?RECEIVER:start(gen_server, {local, weir_flow_local}),
    ok = ?RECEIVER:block(First),
    Test = self(),
    Sender = async(fun() ->
        [ok, ok] = [weir_flow:cast(weir_flow_local, {note, N}, 3) || N <- [1, 2]],
        Waited = weir_flow:cast(weir_flow_local, {note, 3}, 3),
        Test ! {waited, Waited},
        receive
            go_on -> ok
        end,
        [weir_flow:cast(weir_flow_local, {note, N}, #{window => 3, timeout => 0}) || N <- [4, 5, 6]]
    end),
    until(fun() -> is_waiting(Sender) end),
    ?RECEIVER:stop(First),
    receive
        {waited, Waited} -> ?assertEqual({error, noproc}, Waited)
    end,
    {ok, Second} = ?RECEIVER:start(gen_server, {local, weir_flow_local}),
    ok = ?RECEIVER:block(Second),
    {Pid, _} = Sender,
    Pid ! go_on,
    ?assertEqual([ok, ok, {error, timeout}], result(Sender)),
    ?assertEqual(3, queue_len(Second)),
    ok = ?RECEIVER:release(Second),
    ?assertEqual([4, 5], ?RECEIVER:notes(Second)),
    ?RECEIVER:stop(Second).

%% ---------------------------------------------------------------- death

killed_while_waiting(_Config) ->
    [
        begin
            {ok, Pid} = ?RECEIVER:start(gen_server),
            ok = ?RECEIVER:block(Pid),
            Sender = async(fun() ->
                ok = weir_flow:cast(Pid, 1, 2),
                First = weir_flow:cast(Pid, 2, How),
                {First, weir_flow:cast(Pid, 3, How), weir_flow:windows()}
            end),
            until(fun() -> is_waiting(Sender) end),
            ?RECEIVER:stop(Pid),
            ?assertEqual({{error, noproc}, {error, noproc}, #{}}, result(Sender))
        end
     || How <- [2, #{window => 2, timeout => ?LONG_MS}]
    ].

dead_pid(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ?RECEIVER:stop(Pid),
    ?assertEqual({error, noproc}, weir_flow:cast(Pid, x)),
    ?assertEqual({error, noproc}, weir_flow:cast(Pid, x, #{timeout => 0})),
    {error, noproc, _} = weir_flow:cast_with(weir_flow:new(Pid), x),
    ?assertEqual(#{}, weir_flow:windows()).

%% It is noticed at the next acknowledgement, and from then on at once.
dies_before_the_window_is_full(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    Results = result(async(fun() ->
        ok = weir_flow:cast(Pid, x, 4),
        ?RECEIVER:stop(Pid),
        [weir_flow:cast(Pid, x, 4) || _ <- lists:seq(1, 5)]
    end)),
    ?assertEqual([ok, ok, {error, noproc}, {error, noproc}, {error, noproc}], Results).

%% ---------------------------------------------------------------- time-outs

%% W - 1 messages, the abandoned request, and that of the watch; the late answer reaches nobody.
timeout_and_what_is_left(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = ?RECEIVER:block(Pid),
    Test = self(),
    How = #{window => 4, timeout => 50},
    Sender = async(fun() ->
        [ok, ok, ok] = [weir_flow:cast(Pid, {note, N}, How) || N <- [1, 2, 3]],
        {error, timeout} = weir_flow:cast(Pid, {note, no}, How),
        #{Pid := #{state := waiting, unacknowledged := full, timeouts := 1}} = weir_flow:windows(),
        Test ! timed_out,
        Result = weir_flow:cast(Pid, {note, 4}, #{window => 4}),
        {Result, maps:get(Pid, weir_flow:windows())}
    end),
    receive
        timed_out -> ok
    end,
    until(fun() -> is_waiting(Sender) end),
    ?assertEqual(5, queue_len(Pid)),
    ok = ?RECEIVER:release(Pid),
    ?assertEqual(
        {ok, #{unacknowledged => 1, state => open, waits => 2, timeouts => 1, asked_again => 0}}, result(Sender)
    ),
    ?assertEqual([1, 2, 3, 4], ?RECEIVER:notes(Pid)),
    ?RECEIVER:stop(Pid).

one_watch_however_often(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = ?RECEIVER:block(Pid),
    Sender = async(fun() ->
        [ok, ok, ok] = [weir_flow:cast(Pid, x, 4) || _ <- [1, 2, 3]],
        Tries = [weir_flow:cast(Pid, x, #{window => 4, timeout => 20 * (N rem 3)}) || N <- lists:seq(1, 30)],
        {Tries, queue_len(Pid), length(weir_flow_test_lib:stray())}
    end),
    ?assertEqual({lists:duplicate(30, {error, timeout}), 5, 1}, result(Sender)),
    ?RECEIVER:stop(Pid).

%% It asks behind the last message of the window, so that it is answered by the time of the next if the receiver is
%% idle. Then there are W in the mailbox, and not one more.
never_wait(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    How = #{window => 4, timeout => 0},
    Sender = async(fun() ->
        ok = ?RECEIVER:block(Pid),
        First = [weir_flow:cast(Pid, {note, N}, How) || N <- [1, 2, 3, no, no]],
        Queue = queue_len(Pid),
        ok = ?RECEIVER:release(Pid),
        ok = idle(Pid),
        {First, Queue, [weir_flow:cast(Pid, {note, N}, How) || N <- [4, 5]]}
    end),
    ?assertEqual({[ok, ok, ok, {error, timeout}, {error, timeout}], 4, [ok, ok]}, result(Sender)),
    ?assertEqual([1, 2, 3, 4, 5], ?RECEIVER:notes(Pid)),
    ?RECEIVER:stop(Pid).

never_wait_with_the_smallest_window(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    How = #{window => 2, timeout => 0},
    Sender = async(fun() ->
        [
            begin
                ok = weir_flow:cast(Pid, {note, N}, How),
                ok = idle(Pid)
            end
         || N <- [1, 2, 3, 4]
        ],
        ok = ?RECEIVER:block(Pid),
        Results = [weir_flow:cast(Pid, {note, N}, How) || N <- [5, no]],
        {Results, queue_len(Pid)}
    end),
    ?assertEqual({[ok, {error, timeout}], 2}, result(Sender)),
    ok = kill(Pid).

%% Nothing is in its mailbox, and no watch waits for it.
idle(Pid) -> until(fun() -> queue_len(Pid) =:= 0 andalso weir_flow_test_lib:stray() =:= [] end).

killed_while_watched(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = ?RECEIVER:block(Pid),
    Test = self(),
    Sender = async(fun() ->
        ok = weir_flow:cast(Pid, x, 2),
        {error, timeout} = weir_flow:cast(Pid, x, #{window => 2, timeout => 0}),
        Test ! watched,
        {weir_flow:cast(Pid, x, 2), weir_flow:cast(Pid, x, 2)}
    end),
    receive
        watched -> ok
    end,
    until(fun() -> is_waiting(Sender) end),
    ?RECEIVER:stop(Pid),
    ?assertEqual({{error, noproc}, {error, noproc}}, result(Sender)),
    %% The same if it is long dead when somebody asks.
    {ok, Next} = ?RECEIVER:start(gen_server),
    ok = ?RECEIVER:block(Next),
    Late = async(fun() ->
        ok = weir_flow:cast(Next, x, 2),
        {error, timeout} = weir_flow:cast(Next, x, #{window => 2, timeout => 0}),
        ?RECEIVER:stop(Next),
        weir_flow_test_lib:no_stray(),
        weir_flow:cast(Next, x, #{window => 2, timeout => 0})
    end),
    ?assertEqual({error, noproc}, result(Late)).

sender_killed_while_watched(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = ?RECEIVER:block(Pid),
    Test = self(),
    Sender = async(fun() ->
        ok = weir_flow:cast(Pid, {note, 1}, 2),
        {error, timeout} = weir_flow:cast(Pid, x, #{window => 2, timeout => 50}),
        Test ! watched,
        receive
            never -> ok
        end
    end),
    receive
        watched -> ok
    end,
    ?assertMatch([_], weir_flow_test_lib:stray()),
    ok = kill(Sender),
    weir_flow_test_lib:no_stray(),
    ?assertEqual(3, queue_len(Pid)),
    ok = ?RECEIVER:release(Pid),
    ?assertEqual([1], ?RECEIVER:notes(Pid)),
    ?RECEIVER:stop(Pid).

%% Nobody is stuck if somebody kills what is not theirs.
watch_killed(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = ?RECEIVER:block(Pid),
    Sender = async(fun() ->
        ok = weir_flow:cast(Pid, {note, 1}, 2),
        {error, timeout} = weir_flow:cast(Pid, x, #{window => 2, timeout => 1}),
        [Watch] = weir_flow_test_lib:stray(),
        ok = kill(Watch),
        weir_flow:cast(Pid, {note, 2}, 2)
    end),
    ?assertEqual(ok, result(Sender)),
    ok = ?RECEIVER:release(Pid),
    ?assertEqual([1, 2], ?RECEIVER:notes(Pid)),
    ?RECEIVER:stop(Pid).

%% Time limits of about a round trip: whichever is first, each message arrives exactly if it was `ok', and no answer
%% stays.
answer_crosses_the_end(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    Senders = [
        async(fun() ->
            Cast = fun(N) -> weir_flow:cast(Pid, {note, {S, N}}, #{window => 2, timeout => N rem 2}) end,
            [N || N <- lists:seq(1, 500), Cast(N) =:= ok]
        end)
     || S <- lists:seq(1, 20)
    ],
    Sent = [result(Sender) || Sender <- Senders],
    Notes = ?RECEIVER:notes(Pid),
    [ok = weir_kit:same(notes, Ns, [N || {S1, N} <- Notes, S1 =:= S]) || {S, Ns} <- lists:zip(lists:seq(1, 20), Sent)],
    ?RECEIVER:stop(Pid).

%% ---------------------------------------------------------------- the sender's mailbox

%% Messages that look like answers, and others, stay and keep their order.
long_mailbox(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    Junk = [[alias | make_ref()], {make_ref(), ok}, {'DOWN', make_ref(), process, Pid, normal}],
    Sender = weir_kit:start(fun() ->
        [self() ! {N, J} || N <- lists:seq(1, 10000), J <- Junk],
        Before = messages(),
        [ok = weir_flow:cast(Pid, {note, N}, 2) || N <- lists:seq(1, 2000)],
        ?assert(Before =:= messages()),
        ok = ?RECEIVER:block(Pid),
        {error, timeout} = weir_flow:cast(Pid, x, #{window => 2, timeout => 1}),
        {error, timeout} = weir_flow:cast(Pid, x, #{window => 2, timeout => 1}),
        ok = ?RECEIVER:release(Pid),
        ok = weir_flow:cast(Pid, x, 2),
        ?assert(Before =:= messages())
    end),
    ok = weir_kit:result(Sender),
    ?RECEIVER:stop(Pid).

%% A callback takes whatever is in the mailbox, the request of a sender that waits among it, or of one that has given
%% up.
request_thrown_away(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = ?RECEIVER:flush(Pid),
    Test = self(),
    Waiting = async(fun() ->
        Results = [weir_flow:cast(Pid, {note, N}, 2) || N <- [1, 2]],
        {Results, maps:get(Pid, weir_flow:windows())}
    end),
    GivenUp = async(fun() ->
        ok = weir_flow:cast(Pid, {note, 3}, 2),
        {error, timeout} = weir_flow:cast(Pid, {note, 4}, #{window => 2, timeout => 50}),
        Test ! given_up,
        receive
            flushed ->
                Result = weir_flow:cast(Pid, {note, 5}, 2),
                {Result, maps:get(Pid, weir_flow:windows())}
        end
    end),
    receive
        given_up -> ok
    end,
    until(fun() -> is_waiting(Waiting) andalso queue_len(Pid) =:= 5 end),
    ok = ?RECEIVER:release(Pid),
    ?assertMatch({[ok, ok], #{asked_again := Again, state := open}} when Again > 0, result(Waiting)),
    {Sender, _} = GivenUp,
    Sender ! flushed,
    ?assertMatch({ok, #{asked_again := Again, state := open}} when Again > 0, result(GivenUp)),
    ?assertEqual([2, 5], lists:sort(?RECEIVER:notes(Pid))),
    ?RECEIVER:stop(Pid).

%% Nobody waits for the watch, which is at its end when it is looked at: that it has asked again is known all the same.
request_of_a_watch_thrown_away(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = ?RECEIVER:flush(Pid),
    Test = self(),
    Sender = async(fun() ->
        Never = #{window => 2, timeout => 0},
        Sent = weir_flow:cast(Pid, {note, 1}, Never),
        Test ! sent,
        weir_flow_test_lib:no_stray(),
        Result = weir_flow:cast(Pid, {note, 2}, Never),
        {Sent, Result, maps:get(Pid, weir_flow:windows())}
    end),
    receive
        sent -> ok
    end,
    ok = ?RECEIVER:release(Pid),
    ?assertMatch({ok, ok, #{asked_again := Again, timeouts := 0}} when Again > 0, result(Sender)),
    ?assertEqual([2], ?RECEIVER:notes(Pid)),
    ?RECEIVER:stop(Pid).

%% Whoever is kept from running until its patience is over takes no request for lost that was answered meanwhile:
%% neither the sender, nor its watch.
answered_but_not_noticed(_Config) ->
    [
        begin
            {ok, Pid} = ?RECEIVER:start(gen_server),
            ok = ?RECEIVER:block(Pid),
            Began = erlang:monotonic_time(millisecond),
            {Sender, _} = Async = async(fun() ->
                ok = weir_flow:cast(Pid, {note, 1}, First),
                ok = weir_flow:cast(Pid, {note, 2}, 2),
                maps:get(Pid, weir_flow:windows())
            end),
            until(fun() -> is_waiting(Async) end),
            Waiting = [Sender || First =:= 2] ++ weir_flow_test_lib:stray(),
            [true = erlang:suspend_process(Each) || Each <- Waiting],
            %% Its patience doubles, so it lasts no longer than twice what it has waited, and the first one.
            Over = 3 * erlang:monotonic_time(millisecond) - 2 * Began + 100,
            ok = ?RECEIVER:release(Pid),
            [1] = ?RECEIVER:notes(Pid),
            until(fun() -> erlang:monotonic_time(millisecond) > Over andalso queue_len(Pid) =:= 0 end),
            [true = erlang:resume_process(Each) || Each <- Waiting],
            ?assertMatch({First, #{asked_again := 0, state := open}}, {First, result(Async)}),
            ?assertEqual([1, 2], ?RECEIVER:notes(Pid)),
            ?RECEIVER:stop(Pid)
        end
     || First <- [2, #{window => 2, timeout => 0}]
    ].

bad_options_are_named(_Config) ->
    [
        ?assertEqual({Options, Said}, {Options, said(fun() -> weir_flow:cast(self(), x, Options) end)})
     || {Options, Said} <- [
            {1, "option window is not an integer from 2 to 134217727: 1"},
            {#{window => many}, "option window is not an integer from 2 to 134217727: many"},
            {#{timeout => -1}, "option timeout is not milliseconds or infinity: -1"},
            {[{limit, never}], "option limit is not none, wait or busy: never"},
            {#{time_out => 1}, "no such option: time_out; there are window, timeout and limit"},
            {many, "neither a window nor a map or keyword list of options"},
            {[{window, 3} | x], "not a list of pairs"}
        ]
    ],
    ?assertEqual("not an integer from 1 to 4000000", said(fun() -> weir_flow:limit(0) end)),
    ?assertEqual(ok, weir_flow:cast(self(), x, [{window, 3}, {timeout, 5}])),
    ?assertEqual(ok, weir_flow:cast(self(), x, [{window, 3}, {window, wrong}])),
    receive
        {'$gen_cast', x} -> ok
    end.

%% What the shell says of the one wrong argument.
said(Call) ->
    try
        Call()
    catch
        error:badarg:Stack ->
            [{_, _, _, Info} | _] = Stack,
            #{module := Module} = proplists:get_value(error_info, Info),
            [Said] = maps:values(Module:format_error(badarg, Stack)),
            Said
    end.

%% Each wait begins at a marker, so what was there before is not searched: the compiled code says so.
receives_by_reference(_Config) ->
    {ok, {_, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(code:which(weir_flow_ack), [abstract_code]),
    {ok, weir_flow_ack, Assembly} = compile:forms(Forms, [to_asm, binary]),
    %% Where they are in it depends on the release.
    [Functions] = [Part || [{function, _, _, _, _} | _] = Part <- tuple_to_list(Assembly)],
    Marked = [
        {Name, Arity}
     || {function, Name, Arity, _, Code} <- Functions, lists:keymember(recv_marker_use, 1, Code)
    ],
    ?assertEqual([{ask, 5}, {await_monitor, 2}, {await_resume, 4}, {await_watch, 2}], lists:sort(Marked)).

%% ---------------------------------------------------------------- suspension

%% The first acknowledgement is looked at, and then every 16th.
suspended(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = sys:suspend(Pid, wait_ms()),
    New = async(fun() -> [weir_flow:cast(Pid, {note, N}, 4) || N <- lists:seq(1, 20)] end),
    until(fun() -> queue_len(Pid) =:= 3 andalso is_waiting(New, [await_resume]) end),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual(lists:duplicate(20, ok), result(New)),
    ?assertEqual(lists:seq(1, 20), ?RECEIVER:notes(Pid)),
    Test = self(),
    {Old, _} = Sender = async(fun() ->
        [ok = weir_flow:cast(Pid, {note, N}, 4) || N <- lists:seq(1, 10)],
        Test ! begun,
        receive
            go_on -> ok
        end,
        [weir_flow:cast(Pid, {note, N}, 4) || N <- lists:seq(11, 200)]
    end),
    receive
        begun -> ok
    end,
    0 = queue_after_a_call(Pid),
    ok = sys:suspend(Pid, wait_ms()),
    Old ! go_on,
    until(fun() -> is_waiting(Sender, [await_resume]) end),
    ?assert(queue_len(Pid) =< 16 * 4),
    %% Still, however often it is looked at: suspended twice, resumed once.
    Length = queue_len(Pid),
    ok = sys:suspend(Pid, wait_ms()),
    ?assertEqual(Length, queue_len(Pid)),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual(lists:duplicate(190, ok), result(Sender)),
    ?assertEqual(lists:seq(1, 20) ++ lists:seq(1, 200), ?RECEIVER:notes(Pid)),
    ?RECEIVER:stop(Pid).

queue_after_a_call(Pid) ->
    ok = gen_server:call(Pid, x, wait_ms()),
    queue_len(Pid).

suspended_hibernating(_Config) ->
    {ok, Pid} = ?RECEIVER:start(hibernating),
    until(fun() -> is_hibernating(process_info(Pid, current_function)) end),
    ok = sys:suspend(Pid, wait_ms()),
    Sender = async(fun() -> [weir_flow:cast(Pid, {note, N}, 4) || N <- lists:seq(1, 20)] end),
    until(fun() -> queue_len(Pid) =:= 3 andalso is_waiting(Sender, [await_resume]) end),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual(lists:duplicate(20, ok), result(Sender)),
    ?assertEqual(lists:seq(1, 20), ?RECEIVER:notes(Pid)),
    ?RECEIVER:stop(Pid).

%% In OTP 29 a gen_server does it otherwise.
is_hibernating({current_function, {erlang, hibernate, _}}) -> true;
is_hibernating({current_function, {gen_server, loop_hibernate, _}}) -> true;
is_hibernating(_) -> false.

%% What it acknowledged while it was suspended is still in its mailbox when it is resumed.
suspended_then_blocked(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = sys:suspend(Pid, wait_ms()),
    Pid ! {block, self()},
    Sender = async(fun() -> [weir_flow:cast(Pid, {note, N}, 4) || N <- lists:seq(1, 20)] end),
    until(fun() -> is_waiting(Sender, [await_resume]) end),
    ok = sys:resume(Pid, wait_ms()),
    receive
        {blocked, Pid} -> ok
    end,
    until(fun() -> is_waiting(Sender, [ask]) end),
    ?assertEqual(4, queue_len(Pid)),
    ok = ?RECEIVER:release(Pid),
    ?assertEqual(lists:duplicate(20, ok), result(Sender)),
    ?assertEqual(lists:seq(1, 20), ?RECEIVER:notes(Pid)),
    ?RECEIVER:stop(Pid).

suspended_and_killed(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = sys:suspend(Pid, wait_ms()),
    Sender = async(fun() -> [weir_flow:cast(Pid, x, 2) || _ <- [1, 2, 3]] end),
    until(fun() -> is_waiting(Sender, [await_resume]) end),
    ?RECEIVER:stop(Pid),
    ?assertEqual([ok, {error, noproc}, {error, noproc}], result(Sender)).

%% However often it is tried, nothing is added, and nothing is sent before it goes on.
suspended_times_out(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = sys:suspend(Pid, wait_ms()),
    Sender = async(fun() ->
        ok = weir_flow:cast(Pid, {note, 1}, 2),
        Tries = [weir_flow:cast(Pid, {note, no}, #{window => 2, timeout => N rem 4}) || N <- lists:seq(1, 20)],
        weir_flow_test_lib:no_stray(),
        %% The tries may all have been over before the watch was: that it is, the next one sees.
        {error, timeout} = weir_flow:cast(Pid, {note, no}, #{window => 2, timeout => 0}),
        Queue = queue_len(Pid),
        #{Pid := #{state := suspended}} = weir_flow:windows(),
        ok = sys:resume(Pid, wait_ms()),
        {Tries, Queue, weir_flow:cast(Pid, {note, 2}, #{window => 2, timeout => ?LONG_MS})}
    end),
    ?assertEqual({lists:duplicate(20, {error, timeout}), 1, ok}, result(Sender)),
    ?assertEqual([1, 2], ?RECEIVER:notes(Pid)),
    ?RECEIVER:stop(Pid).

%% ---------------------------------------------------------------- the rest

to_itself(_Config) ->
    Sender = weir_kit:start(fun() ->
        [ok = weir_flow:send(self(), N, 2) || N <- lists:seq(1, 10)],
        [ok = weir_flow:send(self(), N, #{limit => busy}) || N <- lists:seq(11, 20)],
        ?assertEqual(lists:seq(1, 20), messages()),
        ?assertEqual(#{}, weir_flow:windows())
    end),
    ok = weir_kit:result(Sender).

handle(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = ?RECEIVER:block(Pid),
    Test = self(),
    Sender = async(fun() ->
        Flow0 = weir_flow:new(Pid, #{window => 3, timeout => 50}),
        {ok, #{unacknowledged := full, state := new, waits := 0}} = weir_flow:info(Flow0),
        {ok, Flow1} = weir_flow:cast_with(Flow0, {note, 1}),
        {ok, Flow2} = weir_flow:send_with(Flow1, {note, 2}),
        {ok, #{unacknowledged := 2, state := open}} = weir_flow:info(Flow2),
        {error, timeout, Flow3} = weir_flow:cast_with(Flow2, {note, no}),
        {error, timeout, Flow4} = weir_flow:cast_with(Flow3, {note, no}),
        {ok, #{state := waiting, timeouts := 2, waits := 2}} = weir_flow:info(Flow4),
        Test ! {timed_out, queue_len(Pid)},
        ok = weir_flow_test_lib:no_stray(),
        {ok, Flow5} = weir_flow:cast_with(Flow4, {note, 3}),
        {ok, #{unacknowledged := 1, state := open}} = weir_flow:info(Flow5),
        get()
    end),
    receive
        {timed_out, Queue} -> ?assertEqual(4, Queue)
    end,
    ok = ?RECEIVER:release(Pid),
    ?assertEqual([], result(Sender)),
    ?assertEqual([1, 2, 3], ?RECEIVER:notes(Pid)),
    ?RECEIVER:stop(Pid).

handle_on_a_name(_Config) ->
    Flow0 = weir_flow:new(weir_flow_local, 2),
    {error, noproc, Flow1} = weir_flow:cast_with(Flow0, x),
    {ok, First} = ?RECEIVER:start(gen_server, {local, weir_flow_local}),
    {ok, Flow2} = weir_flow:cast_with(Flow1, {note, 1}),
    {ok, Flow3} = weir_flow:cast_with(Flow2, {note, 2}),
    ?assertEqual([1, 2], ?RECEIVER:notes(First)),
    ?RECEIVER:stop(First),
    {error, noproc, Flow4} = weir_flow:cast_with(Flow3, x),
    {ok, Second} = ?RECEIVER:start(gen_server, {local, weir_flow_local}),
    {ok, Flow5} = weir_flow:cast_with(Flow4, {note, 3}),
    {ok, #{unacknowledged := 1, waits := 1}} = weir_flow:info(Flow5),
    ?assertEqual([3], ?RECEIVER:notes(Second)),
    ?RECEIVER:stop(Second).

%% Up to 1,000 nothing is dropped; with one more, all that are dead; and then not before there are twice as many as
%% were left.
entries_are_swept(_Config) ->
    result(async(fun() ->
        {ok, Live} = ?RECEIVER:start(gen_server),
        ok = weir_flow:send(Live, x),
        Dead = fun() ->
            Pid = spawn(fun() ->
                receive
                    stop -> ok
                end
            end),
            ok = weir_flow:send(Pid, x),
            kill(Pid)
        end,
        [Dead() || _ <- lists:seq(1, 999)],
        ?assertEqual(1000, maps:size(weir_flow:windows())),
        Dead(),
        %% Its own sender had still seen it alive.
        ?assert(maps:size(weir_flow:windows()) =< 2),
        ?assert(is_map_key(Live, weir_flow:windows())),
        Lives = [spawn(fun() -> receive stop -> ok end end) || _ <- lists:seq(1, 1200)],
        [ok = weir_flow:send(Pid, x) || Pid <- Lives],
        [kill(Pid) || Pid <- Lives],
        ?assert(maps:size(weir_flow:windows()) >= 1200),
        More = [spawn(fun() -> receive stop -> ok end end) || _ <- lists:seq(1, 1300)],
        [ok = weir_flow:send(Pid, x) || Pid <- More],
        ?assert(maps:size(weir_flow:windows()) =< 1301),
        [ok = weir_flow:forget(Pid) || Pid <- [Live | More]],
        ?assertEqual(#{}, weir_flow:windows()),
        [kill(Pid) || Pid <- More],
        ?RECEIVER:stop(Live)
    end)).

forget(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    ok = weir_flow:forget(Pid),
    ok = weir_flow:forget(weir_flow_nobody),
    ok = weir_flow:cast(Pid, x),
    ?assertMatch(#{Pid := #{unacknowledged := 1}}, weir_flow:windows()),
    ok = weir_flow:forget(Pid),
    ?assertEqual(#{}, weir_flow:windows()),
    ?RECEIVER:stop(Pid).

misuse(_Config) ->
    [
        ?assertError(badarg, weir_flow:cast(self(), x, How))
     || How <- [
            1, 0, -1, 1.5, 16#8000000, infinity, [{window, 1}], [window], #{window => 1}, #{windows => 3},
            #{timeout => -1}, #{timeout => 4294967296}, #{limit => 3}, #{window => 3, timout => 1}, #{limit => true}
        ]
    ],
    Bad = ["name", {a, b, c}, 1, {1, node()}, {via, 1, x}, make_ref()],
    [?assertError(badarg, weir_flow:send(Dest, x)) || Dest <- Bad],
    ?assertError(badarg, weir_flow:new(self(), 1)),
    ?assertError(badarg, weir_flow:new("name")),
    ok = weir_flow:cast(self(), x, #{window => 16#7ffffff, timeout => 4294967295, limit => none}),
    receive
        {'$gen_cast', x} -> ok
    end.

%% While 500 senders cast, a process reads the length of the mailbox each millisecond. LONG=1 casts a million messages.
a_million_casts(_Config) ->
    {ok, Pid} = ?RECEIVER:start(gen_server),
    {Watcher, _} = Watching = weir_kit:start(fun() -> watch(Pid, 0) end),
    Each = weir_kit:long(500, 2000),
    _ = weir_kit:in_parallel([fun() -> casts(Pid, Each) end || _ <- lists:seq(1, 500)]),
    Watcher ! stop,
    Longest = weir_kit:result(Watching),
    Longest =< 500 * 8 orelse weir_kit:fault({mailbox, Longest}),
    ok = gen_server:call(Pid, x, wait_ms()),
    ?RECEIVER:stop(Pid).

casts(_Pid, 0) -> ok;
casts(Pid, N) ->
    ok = weir_flow:cast(Pid, x, 8),
    casts(Pid, N - 1).

watch(Pid, Longest) ->
    receive
        stop -> Longest
    after 1 -> watch(Pid, max(Longest, queue_len(Pid)))
    end.
