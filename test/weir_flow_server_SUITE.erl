%% weir_flow and weir_server together: the windows and limits of the one hold in the private queue of the other.
-module(weir_flow_server_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("common_test/include/ct.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, queue_len/1, until/1, wait_ms/0]).
-import(weir_flow_test_lib, [async/1, result/1]).

-define(SENDERS, 20).
-define(CASTS, 200).
-define(WINDOW, 8).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_flow),
    [{started, Started} | Config].

end_per_suite(Config) -> [ok = application:stop(App) || App <- lists:reverse(?config(started, Config))].

%% Servers of every kind: drained in any case, by priority, in batches.
kinds() ->
    [
        {weir_flow_server_plain, #{}},
        {weir_flow_server_plain, #{drain => 1000}},
        {weir_flow_server_plain, #{drain => {3, 5}}},
        {weir_flow_server_prio, #{}},
        {weir_flow_server_batch, #{}},
        {weir_flow_server_batch, #{drain => 5}}
    ].

%% The same for servers that do what a message says (weir_server_probe).
probes() ->
    [
        {weir_server_probe, #{}},
        {weir_server_probe, #{drain => 1000}},
        {weir_server_probe, #{max_queue => 1000}},
        {weir_server_probe_prio, #{}},
        {weir_server_idioms, #{}}
    ].

probe(Mod, Opts) ->
    {ok, Pid} = weir_server:start(Mod, #{tell => spawn_link(fun forget/0)}, Opts),
    Pid.

forget() ->
    receive
        _ -> forget()
    end.

start(Mod, Opts) ->
    {ok, Pid} = weir_server:start_link(Mod, self(), Opts),
    Pid.

%% What waits, drained or not, when the server comes to a message is told with each of them.
window_holds_when_drained(_Config) ->
    [
        begin
            Pid = start(Mod, Opts),
            Most = lists:max([Waiting || {_, Waiting} <- sent_by_all(Pid, ?WINDOW)]),
            %% waiting/0 may count up to 15 that were handled since the server looked into its mailbox.
            ?assertEqual({Mod, true}, {Mod, Most =< ?SENDERS * ?WINDOW + 15 orelse Most}),
            ok = weir_server:stop(Pid)
        end
     || {Mod, Opts} <- kinds()
    ].

window_holds_in_batches(_Config) ->
    Pid = start(weir_flow_server_batch, #{drain => 1000}),
    Seen = sent_by_all(Pid, 3),
    ok = weir_kit:same(seen, ?SENDERS * ?CASTS, length(Seen)),
    {ok, #{largest_batch := Largest}} = weir_server:info(Pid),
    ?assert(Largest =< ?SENDERS * 3),
    ok = weir_server:stop(Pid).

%% All senders cast. Raises a fault unless each message arrives once, and those of a sender in order.
sent_by_all(Pid, Window) ->
    _ = weir_kit:in_parallel([
        fun() -> [ok = weir_flow:cast(Pid, {Sender, N}, Window) || N <- lists:seq(1, ?CASTS)] end
     || Sender <- lists:seq(1, ?SENDERS)
    ]),
    Seen = weir_server:call(Pid, seen, wait_ms()),
    [
        ok = weir_kit:same(order, lists:seq(1, ?CASTS), [N || {{S, N}, _} <- Seen, S =:= Sender])
     || Sender <- lists:seq(1, ?SENDERS)
    ],
    Seen.

%% The request is answered when all before it is handled, not when it is drained.
acknowledged_after_what_was_sent(_Config) ->
    [
        begin
            Pid = start(Mod, Opts),
            Held = hold(Pid),
            [gen_server:cast(Pid, {a, N}) || N <- lists:seq(1, 50)],
            Asker = weir_kit:start(fun() ->
                {ok, no_statistics} = sys:statistics(Pid, get, infinity),
                weir_server:with_state(Pid, fun seen/1)
            end),
            until(fun() -> queue_len(Pid) =:= 51 end),
            [gen_server:cast(Pid, {b, N}) || N <- lists:seq(1, 50)],
            ok = release(Held),
            Seen = weir_kit:result(Asker),
            ok = weir_kit:same(order, lists:seq(1, 50), [N || {{a, N}, _} <- Seen]),
            ok = weir_server:stop(Pid)
        end
     || {Mod, Opts} <- kinds()
    ].

seen(Seen) when is_list(Seen) -> lists:reverse(Seen).

%% A request that was drained is not lost, though the server, which waits in a callback, has nothing in its mailbox.
nothing_lost_in_a_callback(_Config) ->
    Kinds = [
        async(fun() ->
            Pid = start(Mod, Opts),
            Held = hold(Pid),
            [gen_server:cast(Pid, {a, N}) || N <- lists:seq(1, 64)],
            Ref = make_ref(),
            ok = gen_server:cast(Pid, {hold, self(), Ref}),
            Sender = async(fun() ->
                ok = weir_flow:cast(Pid, x, 2),
                %% Long enough to look twice.
                {error, timeout} = weir_flow:cast(Pid, y, #{window => 2, timeout => 6000}),
                Again = asked_again(Pid),
                ok = weir_flow:cast(Pid, y, 2),
                {Again, asked_again(Pid)}
            end),
            until(fun() -> queue_len(Pid) =:= 64 + 1 + 2 end),
            ok = release(Held),
            receive
                {held, Ref} -> ok
            end,
            Left = queue_len(Pid),
            ok = weir_kit:until_waiting(Pid),
            ?assertEqual({Mod, Opts, false}, {Mod, Opts, weir_flow_ack:is_lost(Pid, 50)}),
            %% That of the watch, which is started when the time is over.
            until(fun() -> queue_len(Pid) > Left end),
            ?assertEqual({Mod, Opts, Left + 1}, {Mod, Opts, queue_len(Pid)}),
            ok = release({Pid, Ref}),
            ?assertEqual({Mod, Opts, {0, 0}}, {Mod, Opts, result(Sender)}),
            weir_server:stop(Pid)
        end)
     || {Mod, Opts} <- kinds()
    ],
    [?assertEqual(ok, result(Kind)) || Kind <- Kinds].

nothing_lost_while_lingering(_Config) ->
    Pid = start(weir_flow_server_batch, #{linger => 300_000}),
    Sender = async(fun() -> {[weir_flow:cast(Pid, N, 2) || N <- [1, 2]], asked_again(Pid)} end),
    ?assertEqual({[ok, ok], 0}, result(Sender)),
    ok = weir_server:stop(Pid).

%% One that a callback has taken is, whatever the server does with its mailbox otherwise: when it waits again, or
%% sleeps.
request_thrown_away(_Config) ->
    [
        begin
            Pid = probe(Mod, Opts),
            Ref = make_ref(),
            Test = self(),
            Flushes = fun(_, State) ->
                Test ! {held, Ref},
                receive
                    Ref -> ok
                end,
                ok = flush(),
                returned(Action, State)
            end,
            ok = gen_server:cast(Pid, {do, flushes, Flushes}),
            receive
                {held, Ref} -> ok
            end,
            Sender = async(fun() -> {[weir_flow:cast(Pid, N, 2) || N <- [1, 2]], asked_again(Pid)} end),
            until(fun() -> queue_len(Pid) =:= 2 end),
            ok = release({Pid, Ref}),
            ?assertMatch({[ok, ok], Again} when Again > 0, result(Sender)),
            kill(Pid)
        end
     || {Mod, Opts} <- probes(), Action <- [nothing, hibernate, 1_000_000]
    ].

%% A sender that never waits has its request behind the last message of the window, where it is the last thing that
%% comes: the time-out that the receiver has asked for runs out all the same.
own_timeout(_Config) ->
    [
        begin
            {ok, Pid} = weir_server:start(Mod, #{tell => self()}, Opts),
            weir_server_loop_lib:while_held(Pid, fun() ->
                [gen_server:cast(Pid, pushed) || _ <- lists:seq(1, Before)],
                Never = #{window => 4, timeout => 0},
                Asks = fun(_, State) -> returned(Action, State) end,
                ?assertEqual([ok, ok, ok], [weir_flow:cast(Pid, {do, N, Asks}, Never) || N <- [1, 2, 3]]),
                ?assertEqual({error, timeout}, weir_flow:cast(Pid, {do, no, Asks}, Never)),
                ?assertEqual(Before + 3 + 1, queue_len(Pid))
            end),
            Told = weir_server_loop_lib:events({info, timeout}),
            ?assertEqual({Mod, Opts, [{cast, 1}, {cast, 2}, {cast, 3}]}, {Mod, Opts, Told}),
            %% The watch, which has its answer, has ended.
            until(fun() -> weir_flow:cast(Pid, last, #{window => 4, timeout => 0}) =:= ok end),
            ?assertEqual([], weir_server_loop_lib:events({cast, last})),
            ?assertEqual(0, asked_again(Pid)),
            _ = weir_server_loop_lib:stop(Pid),
            ok = weir_flow:forget(Pid)
        end
     || {Mod, Opts} <- probes(), Before <- [0, 64], Action <- [20, {timeout, 20, timeout}, {hibernate, 20, timeout}]
    ].

returned(nothing, State) -> {noreply, State};
returned(Action, State) -> {noreply, State, Action}.

flush() ->
    receive
        _ -> flush()
    after 0 -> ok
    end.

asked_again(Pid) ->
    #{Pid := #{asked_again := Again}} = weir_flow:windows(),
    Again.

%% ---------------------------------------------------------------- limits

limit_is_given_back(_Config) ->
    [
        begin
            Pid = start(Mod, Opts),
            ok = weir_flow:limit(Pid, 10),
            Held = hold(Pid),
            Answers = [weir_flow:cast(Pid, {a, N}, #{limit => busy, window => 100}) || N <- lists:seq(1, 12)],
            ?assertEqual(lists:duplicate(10, ok) ++ [{error, busy}, {error, busy}], Answers),
            ?assertMatch({ok, #{in_flight := 10, busy := 2}}, weir_flow:info(Pid)),
            ok = release(Held),
            ?assertEqual(lists:seq(1, 10), [N || {{a, N}, _} <- weir_server:call(Pid, seen, wait_ms())]),
            until(fun() -> in_flight(Pid) =:= 0 end),
            ok = weir_flow:cast(Pid, {a, 11}, #{limit => busy}),
            ok = weir_server:stop(Pid)
        end
     || {Mod, Opts} <- kinds()
    ].

%% What the bound drops counts no more either.
limit_and_bound(_Config) ->
    [
        begin
            Pid = start(Mod, #{max_queue => 5, overload => Overload}),
            ok = weir_flow:limit(Pid, 100),
            Held = hold(Pid),
            [ok = weir_flow:cast(Pid, {a, N}, #{limit => busy, window => 100}) || N <- lists:seq(1, 20)],
            ok = release(Held),
            %% A call while it is full would be refused.
            until(fun() ->
                {ok, #{waiting := Waiting}} = weir_server:info(Pid),
                Waiting =:= 0
            end),
            Seen = [N || {{a, N}, _} <- weir_server:call(Pid, seen, wait_ms())],
            {ok, #{handled := #{casts := Handled}, dropped := #{casts := Dropped}}} = weir_server:info(Pid),
            %% The cast that holds the server was handled too.
            ok = weir_kit:same(handled_or_dropped, {length(Seen) + 1, 20}, {Handled, length(Seen) + Dropped}),
            until(fun() -> in_flight(Pid) =:= 0 end),
            ok = weir_server:stop(Pid)
        end
     || Mod <- [weir_flow_server_plain, weir_flow_server_prio, weir_flow_server_batch],
        Overload <- [reject, drop_oldest]
    ].

%% Many short-lived senders: never more than the limit in the server, and all get through.
limit_waits(_Config) ->
    [
        begin
            Pid = start(Mod, Opts),
            ok = weir_flow:limit(Pid, 4),
            Cast = fun(N) -> fun() -> ok = weir_flow:cast(Pid, {a, N}, #{limit => wait}) end end,
            _ = weir_kit:in_parallel([Cast(N) || N <- lists:seq(1, 300)]),
            Seen = weir_server:call(Pid, seen, wait_ms()),
            ok = weir_kit:same(seen, lists:seq(1, 300), lists:sort([N || {{a, N}, _} <- Seen])),
            until(fun() -> in_flight(Pid) =:= 0 end),
            ok = weir_server:stop(Pid)
        end
     || {Mod, Opts} <- kinds()
    ].

limit_ends_with_the_server(_Config) ->
    Pid = start(weir_flow_server_plain, #{}),
    ok = weir_flow:limit(Pid, 1),
    _Held = hold(Pid),
    ok = weir_flow:cast(Pid, a, #{limit => busy}),
    Waiter = weir_kit:start(fun() -> weir_flow:cast(Pid, b, #{limit => wait}) end),
    ok = weir_kit:until_waiting(Waiter),
    unlink(Pid),
    ok = kill(Pid),
    ?assertEqual({error, noproc}, weir_kit:result(Waiter)),
    until(fun() -> weir_flow:info(Pid) =:= {error, no_limit} end).

%% ---------------------------------------------------------------- help

in_flight(Pid) ->
    {ok, #{in_flight := InFlight}} = weir_flow:info(Pid),
    InFlight.

%% The server stays in a callback until it is released.
hold(Pid) ->
    Ref = make_ref(),
    ok = gen_server:cast(Pid, {hold, self(), Ref}),
    receive
        {held, Ref} -> {Pid, Ref}
    end.

release({Pid, Ref}) ->
    Pid ! Ref,
    ok.
