%% The limit over all senders: its bound, its results, and its count after deaths.
-module(weir_flow_limit_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, queue_len/1, until/1, wait_ms/0]).
-import(weir_flow_test_lib, [async/1, result/1]).
-import(weir_flow_test_limited, [full/1, finish/3, cast/3, casts/3, info/2, of_senders/1]).

-define(RECEIVER, weir_flow_test_limited).
-define(BUSY, {error, busy}).
-define(NOT_STARTED, {error, {not_started, weir_flow}}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_flow),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = application:stop(weir_flow),
    weir_flow_test_lib:no_stray().

notes(Numbers) -> [{note, N} || N <- Numbers].

%% ---------------------------------------------------------------- at the limit

busy_at_the_limit(_Config) ->
    Pid = ?RECEIVER:start(3),
    ok = weir_flow_test_receiver:block(Pid),
    ?assertEqual([ok, ok, ok, ?BUSY, ?BUSY], casts(Pid, notes([1, 2, 3, no, no]), busy)),
    ?assertEqual([?BUSY], casts(Pid, notes([no]), busy)),
    ?assertEqual({3, 3, 3}, {info(in_flight, Pid), info(busy, Pid), length(of_senders(Pid))}),
    ok = weir_flow_test_receiver:release(Pid),
    ?assertEqual([1, 2, 3], weir_flow_test_receiver:notes(Pid)),
    ?assertEqual([ok], casts(Pid, notes([4]), busy)),
    finish(Pid, [], [1, 2, 3, 4]).

%% Another sender takes the last credit after the first sender has read that there is room. The first sender takes its
%% addition off again.
the_last_credit_is_taken_by_another(_Config) ->
    Pid = ?RECEIVER:start(3),
    {_, Words, 3, _} = weir_flow_limit:row(Pid),
    ok = sys:suspend(weir_flow_limits, infinity),
    [{ok, Words} = weir_flow_limit:take(Words, 3) || _ <- [1, 2, 3]],
    Word = atomics:get(Words, 1),
    {full, Words} = weir_flow_limit:take(Words, 3),
    ?assertEqual(Word, atomics:get(Words, 1)),
    kill(Pid).

%% 2,000 senders with one message each, so windows would let all messages in.
short_lived_senders(_Config) ->
    Pid = ?RECEIVER:start(10),
    Senders = [
        async(fun() -> {N, cast(Pid, {note, N}, lists:nth(N rem 2 + 1, [wait, busy]))} end)
     || N <- lists:seq(1, 2000)
    ],
    Results = [result(Sender) || Sender <- Senders],
    Sent = [N || {N, ok} <- Results],
    ok = weir_kit:none(wrong_results, [R || {_, R} <- Results, R =/= ok, R =/= ?BUSY]),
    ok = weir_kit:none(did_not_wait, lists:seq(2, 2000, 2) -- Sent),
    Most = ?RECEIVER:most(Pid),
    Most =< 10 orelse weir_kit:fault({above_the_limit, Most}),
    ok = weir_kit:same(busy, 2000 - length(Sent), info(busy, Pid)),
    %% No sender died, so there was nothing to mend.
    ok = weir_kit:same(mended, 0, info(mended, Pid)),
    finish(Pid, [], Sent).

envelopes(_Config) ->
    {Plain, _} = weir_kit:start(fun() -> receive never -> ok end end),
    ok = weir_flow:limit(Plain, 10),
    result(async(fun() ->
        ok = weir_flow:cast(Plain, a, #{limit => busy}),
        ok = weir_flow:send(Plain, b, #{limit => wait}),
        ok = weir_flow:send(Plain, c),
        {ok, Flow} = weir_flow:cast_with(weir_flow:new(Plain, #{limit => busy}), d),
        {ok, _} = weir_flow:send_with(Flow, e)
    end)),
    {_, Words, 10, none} = weir_flow_limit:row(Plain),
    Casts = [{'$weir_credit', Words, {'$gen_cast', Message}} || Message <- [a, d]],
    Sends = [{'$weir_credit', Words, Message} || Message <- [b, e]],
    ok = weir_kit:same(messages, lists:sort([c | Casts ++ Sends]), lists:sort(of_senders(Plain))),
    ?assertEqual(4, info(in_flight, Plain)),
    kill(Plain).

%% ---------------------------------------------------------------- lost credits

%% Senders that try take no credit, so the traffic is quiet. The limits take samples each second, and mend the count.
all_credits_lost(_Config) ->
    Pid = ?RECEIVER:start(4),
    ok = sys:suspend(weir_flow_limits, infinity),
    %% A sender that is killed before it sends has taken a credit.
    [{ok, _} = weir_flow_limit:take(Pid) || _ <- [1, 2, 3, 4]],
    ?assertEqual([?BUSY], casts(Pid, [x], busy)),
    Waiters = [async(fun() -> cast(Pid, {note, N}, wait) end) || N <- [1, 2, 3]],
    ok = sys:resume(weir_flow_limits, infinity),
    until(fun() -> info(mended, Pid) =:= 4 end),
    finish(Pid, Waiters, [1, 2, 3]).

%% The receiver gives more credits back than were taken.
counted_too_low(_Config) ->
    Pid = ?RECEIVER:start(4),
    {_, Words, _, _} = weir_flow_limit:row(Pid),
    ok = atomics:sub(Words, 1, 3),
    ?assertEqual(0, info(in_flight, Pid)),
    until(fun() -> info(mended, Pid) =:= 3 end),
    ok = weir_flow_test_receiver:block(Pid),
    ?assertEqual([ok, ok, ok, ok, ?BUSY], casts(Pid, lists:duplicate(5, x), busy)),
    finish(Pid, [], []).

a_message_in_the_mailbox_keeps_its_credit(_Config) ->
    Pid = full(3),
    [ok = weir_flow_limits:sample() || _ <- lists:seq(1, 20)],
    %% All samples together send one request.
    until(fun() -> queue_len(Pid) =:= 3 + 1 end),
    [ok = weir_flow_limits:sample() || _ <- lists:seq(1, 20)],
    ?assertEqual({4, 3, 0}, {queue_len(Pid), info(in_flight, Pid), info(mended, Pid)}),
    finish(Pid, [], []).

%% The receiver answers each request.
a_message_of_a_suspended_receiver_keeps_its_credit(_Config) ->
    Pid = ?RECEIVER:start(4),
    ok = sys:suspend(Pid, wait_ms()),
    [ok, ok, ok] = casts(Pid, notes([1, 2, 3]), busy),
    [
        begin
            ok = weir_flow_limits:sample(),
            until(fun() -> queue_len(Pid) =:= 3 end)
        end
     || _ <- lists:seq(1, 50)
    ],
    ?assertEqual({3, 0}, {info(in_flight, Pid), info(mended, Pid)}),
    ok = sys:resume(Pid, wait_ms()),
    finish(Pid, [], [1, 2, 3]).

%% The receiver answers the first request in the turn of a message under the limit, and that turn goes on.
a_message_of_a_long_turn_keeps_its_credit(_Config) ->
    Pid = full(1),
    %% The first sample finds that a credit was taken, the second one asks.
    [ok = weir_flow_limits:sample() || _ <- [1, 2]],
    until(fun() -> queue_len(Pid) =:= 2 end),
    Pid ! {block, self()},
    ok = weir_flow_test_receiver:release(Pid),
    ok = weir_flow_test_receiver:await_blocked(Pid),
    [ok = weir_flow_limits:sample() || _ <- lists:seq(1, 20)],
    ?assertEqual({1, 0}, {info(in_flight, Pid), info(mended, Pid)}),
    finish(Pid, [], []).

%% ---------------------------------------------------------------- the application

%% No limit is lost, and the next process of the limits finds a receiver that died meanwhile.
process_of_limits_killed(_Config) ->
    [Stays, Dies] = [full(1), ?RECEIVER:start(2)],
    ok = sys:suspend(weir_flow_sup, wait_ms()),
    kill(whereis(weir_flow_limits)),
    kill(Dies),
    ?assertEqual(?NOT_STARTED, weir_flow:limit(3)),
    ok = sys:resume(weir_flow_sup, wait_ms()),
    until(fun() -> weir_flow:info(Dies) =:= {error, no_limit} end),
    ?assertEqual([?BUSY], casts(Stays, [x], busy)),
    finish(Stays, [], []),
    until(fun() -> weir_flow:info(Stays) =:= {error, no_limit} end).

%% Messages without the option `limit' need neither a limit nor the application.
no_limit_and_not_started(_Config) ->
    Pid = ?RECEIVER:start(none),
    [?assertEqual([{error, no_limit}], casts(Pid, [x], Limit)) || Limit <- [busy, wait]],
    ?assertEqual({error, no_limit}, weir_flow:info(Pid)),
    ok = application:stop(weir_flow),
    [?assertEqual([?NOT_STARTED], casts(Pid, [x], Limit)) || Limit <- [busy, wait]],
    [?assertEqual(?NOT_STARTED, Result) || Result <- [weir_flow:limit(1), weir_flow:info(), weir_flow:info(Pid)]],
    ?assertEqual([ok], casts(Pid, notes([1]), none)),
    ?assertEqual([1], weir_flow_test_receiver:notes(Pid)),
    kill(Pid).

misuse(_Config) ->
    [?assertError(badarg, weir_flow:limit(Max)) || Max <- [0, -1, 4000001, infinity, 1.0]],
    ?assertError(badarg, weir_flow:limit(name, 1)),
    ok = weir_flow:limit(4000000),
    {ok, #{limit := 4000000, in_flight := 0, busy := 0, waits := 0, queued := 0, mended := 0}} = weir_flow:info(self()).
