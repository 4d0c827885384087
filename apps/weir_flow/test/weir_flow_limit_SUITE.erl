%% The limit over all senders: how many get in, who waits or is refused, and what becomes of the count when somebody
%% dies.
-module(weir_flow_limit_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, queue_len/1, until/1, wait_ms/0]).
-import(weir_flow_test_lib, [async/1, result/1]).

-define(RECEIVER, weir_flow_test_limited).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_flow),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = application:stop(weir_flow),
    weir_flow_test_lib:no_stray().

cast(Pid, Message, Limit) -> weir_flow:cast(Pid, Message, #{limit => Limit, window => 1000}).

in_flight(Pid) ->
    {ok, #{in_flight := InFlight}} = weir_flow:info(Pid),
    InFlight.

info(Key, Pid) ->
    {ok, #{Key := Value}} = weir_flow:info(Pid),
    Value.

messages(Pid) ->
    {messages, Messages} = process_info(Pid, messages),
    Messages.

%% What waits in a mailbox, but for the questions of the limits, which may come at any time.
of_senders(Pid) -> lists:filter(fun({system, {_, Tag}, _}) -> not is_reference(Tag); (_) -> true end, messages(Pid)).

%% From now on the limits do not look by themselves: where what they ask would be counted, or what is lost for a moment
%% must not be mended.
suspend_looks() -> sys:suspend(weir_flow_limits, infinity).

resume_looks() -> sys:resume(weir_flow_limits, infinity).

%% ---------------------------------------------------------------- at the limit

busy_at_the_limit(_Config) ->
    Pid = ?RECEIVER:start(3),
    ok = ?RECEIVER:block(Pid),
    ?assertEqual(
        [ok, ok, ok, {error, busy}, {error, busy}],
        result(async(fun() -> [cast(Pid, {note, N}, busy) || N <- [1, 2, 3, no, no]] end))
    ),
    ?assertEqual({error, busy}, result(async(fun() -> cast(Pid, {note, no}, busy) end))),
    ?assertEqual(3, in_flight(Pid)),
    ?assertEqual(3, info(busy, Pid)),
    ?assertEqual(3, length(of_senders(Pid))),
    ok = ?RECEIVER:release(Pid),
    ?assertEqual([1, 2, 3], ?RECEIVER:notes(Pid)),
    ?assertEqual(0, in_flight(Pid)),
    ?assertEqual(ok, result(async(fun() -> cast(Pid, {note, 4}, busy) end))),
    ?assertEqual([1, 2, 3, 4], ?RECEIVER:notes(Pid)),
    kill(Pid).

%% One message for each sender: windows would let all of them in.
wait_at_the_limit(_Config) ->
    Pid = ?RECEIVER:start(3),
    ok = ?RECEIVER:block(Pid),
    Senders = [async(fun() -> cast(Pid, {note, N}, wait) end) || N <- lists:seq(1, 10)],
    until(fun() -> info(queued, Pid) =:= 7 end),
    ?assertEqual(3, length(of_senders(Pid))),
    ?assertEqual(3, in_flight(Pid)),
    ?assertEqual(7, info(waits, Pid)),
    ok = ?RECEIVER:release(Pid),
    ?assertEqual(lists:duplicate(10, ok), [result(Sender) || Sender <- Senders]),
    ok = weir_kit:same(notes, lists:seq(1, 10), lists:sort(?RECEIVER:notes(Pid))),
    Most = ?RECEIVER:most(Pid),
    Most =< 3 orelse weir_kit:fault({above_the_limit, Most}),
    ?assertEqual(0, in_flight(Pid)),
    kill(Pid).

wait_times_out(_Config) ->
    Pid = ?RECEIVER:start(1),
    ok = ?RECEIVER:block(Pid),
    How = #{limit => wait, timeout => 5},
    ?assertEqual(
        [ok, {error, timeout}, {error, timeout}],
        result(async(fun() -> [weir_flow:cast(Pid, {note, N}, How) || N <- [1, no, no]] end))
    ),
    ?assertEqual(1, in_flight(Pid)),
    ok = ?RECEIVER:release(Pid),
    ?assertEqual([1], ?RECEIVER:notes(Pid)),
    kill(Pid).

wait_never(_Config) ->
    Pid = ?RECEIVER:start(1),
    ok = suspend_looks(),
    ok = ?RECEIVER:block(Pid),
    How = #{limit => wait, timeout => 0},
    {Results, Queue} = result(async(fun() ->
        Results = [weir_flow:cast(Pid, {note, N}, How) || N <- [1, no, no, no]],
        {Results, queue_len(Pid)}
    end)),
    ?assertEqual([ok, {error, timeout}, {error, timeout}, {error, timeout}], Results),
    ?assertEqual(1, Queue),
    kill(Pid).

%% After the sender has read that there is one: what it has added is taken off again.
the_last_credit_is_taken_by_another(_Config) ->
    Pid = ?RECEIVER:start(3),
    {_, Words, 3, _} = weir_flow_limit:row(Pid),
    ok = suspend_looks(),
    ok = lose(Pid, 2),
    {ok, Words} = weir_flow_limit:take(Words, 3),
    Word = atomics:get(Words, 1),
    {full, Words} = weir_flow_limit:take(Words, 3),
    ?assertEqual(Word, atomics:get(Words, 1)),
    ?assertEqual(3, in_flight(Pid)),
    kill(Pid).

%% Far more senders than the limit, each for one message: never more than the limit are in flight, and each message
%% that was `ok' arrives once.
short_lived_senders(_Config) ->
    Pid = ?RECEIVER:start(10),
    Senders = [
        async(fun() -> {N, cast(Pid, {note, N}, lists:nth(N rem 2 + 1, [wait, busy]))} end)
     || N <- lists:seq(1, 2000)
    ],
    Results = [result(Sender) || Sender <- Senders],
    Sent = [N || {N, ok} <- Results],
    ok = weir_kit:none(wrong_results, [R || {_, R} <- Results, R =/= ok, R =/= {error, busy}]),
    ok = weir_kit:none(did_not_wait, lists:seq(2, 2000, 2) -- Sent),
    ok = weir_kit:same(notes, Sent, lists:sort(?RECEIVER:notes(Pid))),
    Most = ?RECEIVER:most(Pid),
    Most =< 10 orelse weir_kit:fault({above_the_limit, Most}),
    ok = weir_kit:same(busy, 2000 - length(Sent), info(busy, Pid)),
    until(fun() -> in_flight(Pid) =:= 0 end),
    %% No sender died, so there was nothing to mend.
    ok = weir_kit:same(mended, 0, info(mended, Pid)),
    kill(Pid).

envelopes(_Config) ->
    Test = self(),
    Plain = spawn(fun() ->
        ok = weir_flow:limit(10),
        Test ! ready,
        receive
            stop -> ok
        end
    end),
    receive
        ready -> ok
    end,
    ok = weir_flow:cast(Plain, a, #{limit => busy}),
    ok = weir_flow:send(Plain, b, #{limit => wait}),
    ok = weir_flow:send(Plain, c),
    {ok, Flow} = weir_flow:cast_with(weir_flow:new(Plain, #{limit => busy}), d),
    {ok, _} = weir_flow:send_with(Flow, e),
    ?assertMatch(
        [
            {'$weir_credit', _, {'$gen_cast', a}},
            {'$weir_credit', _, b},
            c,
            {'$weir_credit', _, {'$gen_cast', d}},
            {'$weir_credit', _, e}
        ],
        of_senders(Plain)
    ),
    ?assertEqual(4, in_flight(Plain)),
    kill(Plain),
    weir_flow:forget(Plain).

released_by_batches(_Config) ->
    Pid = ?RECEIVER:start(100),
    ok = ?RECEIVER:block(Pid),
    ok = result(async(fun() -> lists:foreach(fun(N) -> ok = cast(Pid, {note, N}, busy) end, lists:seq(1, 100)) end)),
    ?assertEqual({error, busy}, result(async(fun() -> cast(Pid, {note, no}, busy) end))),
    ok = ?RECEIVER:release(Pid),
    ?assertEqual(lists:seq(1, 100), ?RECEIVER:notes(Pid)),
    ?assertEqual(0, in_flight(Pid)),
    ?assertEqual(lists:duplicate(100, ok), result(async(fun() -> [cast(Pid, x, busy) || _ <- lists:seq(1, 100)] end))),
    kill(Pid).

limit_changed(_Config) ->
    Pid = ?RECEIVER:start(1),
    ok = ?RECEIVER:block(Pid),
    Try = fun() -> result(async(fun() -> cast(Pid, x, busy) end)) end,
    ?assertEqual([ok, {error, busy}], [Try() || _ <- [1, 2]]),
    ok = weir_flow:limit(Pid, 2),
    ?assertEqual([ok, {error, busy}], [Try() || _ <- [1, 2]]),
    ok = weir_flow:limit(Pid, 1),
    ?assertEqual({error, busy}, Try()),
    ?assertEqual(2, in_flight(Pid)),
    ?assertEqual(1, info(limit, Pid)),
    kill(Pid).

%% ---------------------------------------------------------------- the receiver dies

receiver_killed(_Config) ->
    Pid = ?RECEIVER:start(1),
    ok = cast(Pid, x, busy),
    kill(Pid),
    until(fun() -> weir_flow:info(Pid) =:= {error, no_limit} end),
    ?assertEqual({error, noproc}, result(async(fun() -> cast(Pid, x, busy) end))),
    ?assertEqual({ok, #{}}, weir_flow:info()),
    weir_flow:forget(Pid).

%% Its successor starts at zero.
receiver_restarted(_Config) ->
    First = ?RECEIVER:start(1),
    register(weir_flow_limited, First),
    ok = ?RECEIVER:block(First),
    Try = fun() -> result(async(fun() -> cast(weir_flow_limited, x, busy) end)) end,
    ?assertEqual([ok, {error, busy}], [Try() || _ <- [1, 2]]),
    kill(First),
    Second = ?RECEIVER:start(1),
    register(weir_flow_limited, Second),
    ok = ?RECEIVER:block(Second),
    ?assertEqual(0, in_flight(Second)),
    ?assertEqual([ok, {error, busy}], [Try() || _ <- [1, 2]]),
    ?assertEqual(1, in_flight(Second)),
    kill(Second).

%% ---------------------------------------------------------------- a sender dies

%% Done by hand what it has done up to there. The looks are made by hand as well, and an answer waited for between
%% them.
lose(Pid, Count) ->
    [{ok, _} = weir_flow_limit:take(Pid) || _ <- lists:seq(1, Count)],
    ok.

look(Pid) ->
    ok = weir_flow_limits:sample(),
    %% What it has asked is answered.
    until(fun() ->
        {state, _Monitors, Asked} = sys:get_state(weir_flow_limits, wait_ms()),
        not is_map_key(Pid, Asked) orelse element(2, maps:get(Pid, Asked)) =:= answered
    end).

sender_killed_after_taking(_Config) ->
    Pid = ?RECEIVER:start(5),
    ok = suspend_looks(),
    ok = lose(Pid, 2),
    ?assertEqual(2, in_flight(Pid)),
    ok = resume_looks(),
    %% Its own clock does it, and counts it when it is done.
    until(fun() -> info(mended, Pid) =:= 2 end),
    ?assertEqual(0, in_flight(Pid)),
    ?assertEqual(
        lists:duplicate(5, ok) ++ [{error, busy}],
        begin
            ok = ?RECEIVER:block(Pid),
            result(async(fun() -> [cast(Pid, x, busy) || _ <- lists:seq(1, 6)] end))
        end
    ),
    kill(Pid).

%% Senders that are killed anywhere, over and over: when it is quiet, nothing is left.
sender_killed_in_every_step(_Config) ->
    Pid = ?RECEIVER:start(20),
    Senders = [
        spawn(fun() ->
            F = fun(F) ->
                _ = cast(Pid, x, lists:nth(N rem 2 + 1, [wait, busy])),
                F(F)
            end,
            F(F)
        end)
     || N <- lists:seq(1, 200)
    ],
    [kill(Sender) || Sender <- Senders],
    Most = ?RECEIVER:most(Pid),
    Most =< 20 orelse weir_kit:fault({above_the_limit, Most}),
    until(fun() ->
        ok = look(Pid),
        in_flight(Pid) =:= 0
    end),
    kill(Pid).

%% Whoever tries takes nothing, so nothing moves, and it is mended under their eyes.
all_credits_lost(_Config) ->
    Pid = ?RECEIVER:start(4),
    ok = suspend_looks(),
    ok = lose(Pid, 4),
    Waiters = [async(fun() -> cast(Pid, {note, N}, wait) end) || N <- [1, 2, 3]],
    ?assertEqual({error, busy}, result(async(fun() -> cast(Pid, x, busy) end))),
    ok = resume_looks(),
    until(fun() ->
        ok = look(Pid),
        info(mended, Pid) =:= 4
    end),
    ?assertEqual([ok, ok, ok], [result(Waiter) || Waiter <- Waiters]),
    ?assertEqual([1, 2, 3], lists:sort(?RECEIVER:notes(Pid))),
    ?assertEqual(4, info(mended, Pid)),
    kill(Pid).

%% If ever more is given back than was taken.
counted_too_low(_Config) ->
    Pid = ?RECEIVER:start(4),
    {_, Words, _, _} = weir_flow_limit:row(Pid),
    ok = atomics:sub(Words, 1, 3),
    ?assertEqual(0, in_flight(Pid)),
    until(fun() -> info(mended, Pid) =:= 3 end),
    ok = ?RECEIVER:block(Pid),
    ?assertEqual(
        lists:duplicate(4, ok) ++ [{error, busy}],
        result(async(fun() -> [cast(Pid, x, busy) || _ <- lists:seq(1, 5)] end))
    ),
    kill(Pid).

nothing_is_taken_off_what_is_in_the_mailbox(_Config) ->
    Pid = ?RECEIVER:start(4),
    ok = ?RECEIVER:block(Pid),
    [ok = cast(Pid, {note, N}, busy) || N <- [1, 2, 3]],
    [ok = weir_flow_limits:sample() || _ <- lists:seq(1, 20)],
    ?assertEqual(3, in_flight(Pid)),
    ?assertEqual(0, info(mended, Pid)),
    %% However often it has looked, there is one request.
    until(fun() -> queue_len(Pid) =:= 4 end),
    [ok = weir_flow_limits:sample() || _ <- lists:seq(1, 20)],
    ?assertEqual(4, queue_len(Pid)),
    ok = ?RECEIVER:release(Pid),
    ?assertEqual([1, 2, 3], ?RECEIVER:notes(Pid)),
    ?assertEqual(0, in_flight(Pid)),
    kill(Pid),
    weir_flow:forget(Pid).

nothing_is_taken_off_a_suspended(_Config) ->
    Pid = ?RECEIVER:start(4),
    ok = sys:suspend(Pid, wait_ms()),
    [ok = cast(Pid, {note, N}, busy) || N <- [1, 2, 3]],
    [look(Pid) || _ <- lists:seq(1, 20)],
    ?assertEqual(3, in_flight(Pid)),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual([1, 2, 3], ?RECEIVER:notes(Pid)),
    ?assertEqual(0, in_flight(Pid)),
    ?assertEqual(0, info(mended, Pid)),
    kill(Pid),
    weir_flow:forget(Pid).

%% It has answered the first request, in the turn that a message under the limit belongs to, and not come to its end.
nothing_is_taken_off_in_a_long_turn(_Config) ->
    Pid = ?RECEIVER:start(4),
    ok = ?RECEIVER:block(Pid),
    ok = cast(Pid, {note, 1}, busy),
    %% The first look finds that something was taken, the second one asks.
    [ok = weir_flow_limits:sample() || _ <- [1, 2]],
    until(fun() -> queue_len(Pid) =:= 2 end),
    Asked = messages(Pid) -- of_senders(Pid),
    Pid ! {block_at_end, self()},
    ok = ?RECEIVER:release(Pid),
    ok = ?RECEIVER:await_blocked(Pid),
    ?assertEqual({[], Asked}, {of_senders(Pid), Asked -- messages(Pid)}),
    [ok = weir_flow_limits:sample() || _ <- lists:seq(1, 20)],
    ?assertEqual(1, in_flight(Pid)),
    ?assertEqual(0, info(mended, Pid)),
    ok = ?RECEIVER:release(Pid),
    ?assertEqual([1], ?RECEIVER:notes(Pid)),
    ?assertEqual(0, in_flight(Pid)),
    kill(Pid),
    weir_flow:forget(Pid).

%% ---------------------------------------------------------------- weir_flow_limits

%% A callback takes whatever is in the mailbox: messages with their credits, and the request of the one that keeps the
%% limits, which asks again.
credits_and_request_thrown_away(_Config) ->
    Pid = ?RECEIVER:start(5),
    ok = ?RECEIVER:flush(Pid),
    ?assertEqual([ok, ok, ok], result(async(fun() -> [cast(Pid, {note, N}, busy) || N <- [1, 2, 3]] end))),
    until(fun() ->
        ok = weir_flow_limits:sample(),
        queue_len(Pid) =:= 3 + 1
    end),
    ?assertEqual(3, in_flight(Pid)),
    ok = ?RECEIVER:release(Pid),
    until(fun() ->
        ok = weir_flow_limits:sample(),
        info(mended, Pid) =:= 3
    end),
    ?assertEqual(0, in_flight(Pid)),
    ?assertEqual([ok, ok], result(async(fun() -> [cast(Pid, {note, N}, busy) || N <- [4, 5]] end))),
    ?assertEqual([4, 5], ?RECEIVER:notes(Pid)),
    kill(Pid).

%% No limit is lost, and whoever dies meanwhile is found.
process_of_limits_killed(_Config) ->
    [Stays, Dies] = [?RECEIVER:start(2) || _ <- [1, 2]],
    ok = ?RECEIVER:block(Stays),
    ok = cast(Stays, x, busy),
    ok = sys:suspend(weir_flow_sup, wait_ms()),
    Old = whereis(weir_flow_limits),
    kill(Old),
    kill(Dies),
    ?assertEqual({error, {not_started, weir_flow}}, weir_flow:limit(3)),
    ok = sys:resume(weir_flow_sup, wait_ms()),
    until(fun() -> weir_flow:info(Dies) =:= {error, no_limit} end),
    ?assertEqual(1, in_flight(Stays)),
    ?assertEqual([ok, {error, busy}], [cast(Stays, x, busy) || _ <- [1, 2]]),
    kill(Stays),
    until(fun() -> weir_flow:info(Stays) =:= {error, no_limit} end),
    weir_flow:forget(Stays).

not_started(_Config) ->
    Pid = ?RECEIVER:start(1),
    ok = application:stop(weir_flow),
    Sender = async(fun() -> {cast(Pid, x, busy), cast(Pid, x, wait), weir_flow:cast(Pid, {note, 1})} end),
    ?assertEqual({{error, {not_started, weir_flow}}, {error, {not_started, weir_flow}}, ok}, result(Sender)),
    ?assertEqual({error, {not_started, weir_flow}}, weir_flow:limit(1)),
    ?assertEqual({error, {not_started, weir_flow}}, weir_flow:info()),
    ?assertEqual({error, {not_started, weir_flow}}, weir_flow:info(Pid)),
    ?assertEqual([1], ?RECEIVER:notes(Pid)),
    kill(Pid).

no_limit(_Config) ->
    Pid = ?RECEIVER:start(none),
    Sender = async(fun() -> [cast(Pid, {note, Limit}, Limit) || Limit <- [busy, wait, none]] end),
    ?assertEqual([{error, no_limit}, {error, no_limit}, ok], result(Sender)),
    ?assertEqual([none], ?RECEIVER:notes(Pid)),
    kill(Pid).

misuse(_Config) ->
    [?assertError(badarg, weir_flow:limit(Max)) || Max <- [0, -1, 4000001, infinity, 1.0]],
    ?assertError(badarg, weir_flow:limit(name, 1)),
    ok = weir_flow:limit(4000000),
    {ok, #{limit := 4000000, in_flight := 0, busy := 0, waits := 0, queued := 0, mended := 0}} = weir_flow:info(self()).
