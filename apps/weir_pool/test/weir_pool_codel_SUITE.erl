%% weir_pool_codel against a second implementation, and what it is for: queues that do not stand.
-module(weir_pool_codel_SUITE).

-include_lib("proper/include/proper.hrl").
-include("weir_pool_suite.hrl").

-define(TARGET, 1000).
-define(INTERVAL, 20000).

%% The pseudo code of RFC 8289, section 5, line by line; its queue is a list of arrival times, the first who came first.
-record(rfc, {queue = [], first_above_time = 0, dropping = false, drop_next = 0, count = 0, lastcount = 0}).

rfc_dodequeue(_Now, #rfc{queue = []} = Q) ->
    {null, false, Q#rfc{first_above_time = 0}};
rfc_dodequeue(Now, #rfc{queue = [P | Rest], first_above_time = FirstAbove} = Q0) ->
    Q = Q0#rfc{queue = Rest},
    Sojourn = Now - P,
    if
        Sojourn < ?TARGET orelse Rest =:= [] -> {P, false, Q#rfc{first_above_time = 0}};
        FirstAbove =:= 0 -> {P, false, Q#rfc{first_above_time = Now + ?INTERVAL}};
        Now >= FirstAbove -> {P, true, Q};
        true -> {P, false, Q}
    end.

rfc_deque(Now, Q0) ->
    {P, OkToDrop, Q} = rfc_dodequeue(Now, Q0),
    if
        Q#rfc.dropping andalso not OkToDrop ->
            {P, [], Q#rfc{dropping = false}};
        Q#rfc.dropping ->
            rfc_while(Now, P, [], Q);
        OkToDrop ->
            {P2, _, Q2} = rfc_dodequeue(Now, Q),
            Delta = Q2#rfc.count - Q2#rfc.lastcount,
            Count =
                case Delta > 1 andalso Now - Q2#rfc.drop_next < 16 * ?INTERVAL of
                    true -> Delta;
                    false -> 1
                end,
            Next = rfc_control_law(Now, Count),
            {P2, [P], Q2#rfc{dropping = true, count = Count, lastcount = Count, drop_next = Next}};
        true ->
            {P, [], Q}
    end.

rfc_while(Now, P, Dropped, #rfc{dropping = true, drop_next = DropNext, count = Count} = Q) when Now >= DropNext ->
    case rfc_dodequeue(Now, Q#rfc{count = Count + 1}) of
        {P2, false, Q2} -> rfc_while(Now, P2, [P | Dropped], Q2#rfc{dropping = false});
        {P2, true, Q2} -> rfc_while(Now, P2, [P | Dropped], Q2#rfc{drop_next = rfc_control_law(DropNext, Count + 1)})
    end;
rfc_while(_Now, P, Dropped, Q) ->
    {P, lists:reverse(Dropped), Q}.

rfc_control_law(T, Count) -> T + trunc(?INTERVAL / math:sqrt(Count)).

%% Same result as rfc_deque/2: who is served, who was dropped before.
deque(Now, Queue, Codel) -> deque(Now, Queue, [], Codel).

deque(Now, [], Dropped, Codel) ->
    {null, lists:reverse(Dropped), [], weir_pool_codel:empty(Now, Codel)};
deque(Now, [P | Rest], Dropped, Codel) ->
    case weir_pool_codel:offer(Now - P, length(Rest), Now, Codel) of
        {serve, Served} -> {P, lists:reverse(Dropped), Rest, Served};
        {drop, More} -> deque(Now, Rest, [P | Dropped], More)
    end.

%% Arrivals and dequeues, each with the time since the step before. Time begins at 1: the RFC uses 0 for `never'.
run_both(Steps) ->
    run_both(Steps, 1, #rfc{}, [], weir_pool_codel:new(?TARGET, ?INTERVAL, none), 0).

run_both([], _Now, _Rfc, _Queue, _Codel, Drops) ->
    {ok, Drops};
run_both([{in, Gap} | Steps], Before, #rfc{queue = Queue} = Rfc, Queue, Codel, Drops) ->
    Now = Before + Gap,
    %% One list for both, so that they are compared at no cost.
    Longer = Queue ++ [Now],
    run_both(Steps, Now, Rfc#rfc{queue = Longer}, Longer, Codel, Drops);
run_both([{out, Gap} | Steps], Before, Rfc0, Queue0, Codel0, Drops) ->
    Now = Before + Gap,
    {RfcServed, RfcDropped, Rfc} = rfc_deque(Now, Rfc0),
    case deque(Now, Queue0, Codel0) of
        {RfcServed, RfcDropped, Queue, Codel} when Queue =:= Rfc#rfc.queue ->
            run_both(Steps, Now, Rfc, Queue, Codel, Drops + length(RfcDropped));
        {Served, Dropped, _, _} ->
            {differ, Now, {rfc, RfcServed, RfcDropped}, {codel, Served, Dropped}}
    end.

gap() -> frequency([{5, range(0, ?TARGET div 10)}, {5, range(0, ?TARGET)}, {1, range(0, 2 * ?INTERVAL)}]).

step() -> oneof([{in, gap()}, {out, gap()}]).

agrees_with_the_rfc(_Config) ->
    quickcheck(?FORALL(Steps, list(step()), begin {ok, _} = run_both(Steps), true end), 2000).

%% Long overload, then less, then again: random steps alone seldom come to drop, and never to go on where they left off.
agrees_where_it_drops(_Config) ->
    %% CI runs it on two releases.
    Tests = weir_kit:long(150, 300),
    Phase = {range(20, 300), range(1, 30), range(10, ?TARGET)},
    Dropped = counters:new(1, []),
    quickcheck(
        ?FORALL(
            Phases,
            non_empty(list(Phase)),
            begin
                Steps = lists:append([phase(Phase1) || Phase1 <- Phases]),
                {ok, Drops} = run_both(Steps),
                counters:add(Dropped, 1, Drops),
                true
            end
        ),
        Tests
    ),
    ?assert(counters:get(Dropped, 1) > 1000).

%% N dequeues, Gap apart, with Tenths arrivals for ten of them.
phase({N, Tenths, Gap}) ->
    lists:append([
        [{in, 0} || _ <- lists:seq(1, (I * Tenths) div 10 - ((I - 1) * Tenths) div 10)] ++ [{out, Gap}]
     || I <- lists:seq(1, N)
    ]).

new() -> weir_pool_codel:new(?TARGET, ?INTERVAL, none).

offer(Waited, Now, Codel) -> weir_pool_codel:offer(Waited, 10, Now, Codel).

%% Offers the same wait at all these times.
offers(Waited, Times, Codel) ->
    lists:mapfoldl(fun(Now, C) -> offer(Waited, Now, C) end, Codel, Times).

run_until(Now, Until, Codel) when Now > Until -> Codel;
run_until(Now, Until, Codel) ->
    {_, Next} = offer(?TARGET, Now, Codel),
    run_until(Now + 1, Until, Next).

never_drops_the_last(_Config) ->
    Codel = run_until(0, 5 * ?INTERVAL, new()),
    Late = weir_pool_codel:new(?TARGET, ?INTERVAL, 2 * ?TARGET),
    lists:foreach(
        fun(C) ->
            {serve, _} = weir_pool_codel:offer(100 * ?TARGET, 0, 6 * ?INTERVAL, C),
            {_, _} = weir_pool_codel:offer(100 * ?TARGET, 1, 6 * ?INTERVAL, C)
        end,
        [Codel, run_until(0, 5 * ?INTERVAL, Late)]
    ),
    {drop, _} = weir_pool_codel:offer(100 * ?TARGET, 1, 6 * ?INTERVAL, Codel).

%% Serves PerSecond waiters a second for five seconds, one after the other, while Load times as many come. Returns the
%% microseconds that the waiters served in the last four seconds have waited, and the number of dropped waiters.
simulate(PerSecond, Load, Codel) ->
    Service = 1000000 div PerSecond,
    simulate(0, Service, Service / Load, 0.0, queue:new(), Codel, [], 0).

simulate(Now, _Service, _Gap, _Next, _Queue, _Codel, Waits, Drops) when Now > 5000000 ->
    {[Wait || {At, Wait} <- Waits, At > 1000000], Drops};
simulate(Now, Service, Gap, Next, Queue, Codel, Waits, Drops) when Next =< Now ->
    simulate(Now, Service, Gap, Next + Gap, queue:in(trunc(Next), Queue), Codel, Waits, Drops);
simulate(Now, Service, Gap, Next, Queue, Codel, Waits, Drops) ->
    case queue:out(Queue) of
        {empty, _} ->
            simulate(Now + Service, Service, Gap, Next, Queue, weir_pool_codel:empty(Now, Codel), Waits, Drops);
        {{value, Came}, Rest} ->
            case weir_pool_codel:offer(Now - Came, queue:len(Rest), Now, Codel) of
                {serve, Served} ->
                    simulate(Now + Service, Service, Gap, Next, Rest, Served, [{Now, Now - Came} | Waits], Drops);
                {drop, Dropped} ->
                    simulate(Now, Service, Gap, Next, Rest, Dropped, Waits, Drops + 1)
            end
    end.

converges_at_twice_the_capacity(_Config) ->
    [
        begin
            {Waits, Drops} = simulate(PerSecond, 2, weir_pool_codel:new(10000, IntervalMs * 1000, 20000)),
            %% After a second, hardly anybody waits beyond the limit: while it is not dropping, for an interval at a
            %% time.
            Late = length([Wait || Wait <- Waits, Wait > 20000 + 1000000 div PerSecond]),
            ?assertEqual({PerSecond, IntervalMs, true}, {PerSecond, IntervalMs, Late * 20 =< length(Waits)}),
            ?assert(lists:max(Waits) =< 20000 + 1000 * IntervalMs),
            %% As many as are too many: the workers are never idle.
            ?assert(abs(Drops - 5 * PerSecond) < PerSecond)
        end
     || PerSecond <- [200, 1000, 4000, 20000], IntervalMs <- [20, 50]
    ].

drops_nobody_below_the_capacity(_Config) ->
    [?assertMatch({_, 0}, simulate(1000, Load, weir_pool_codel:new(10000, 20000, 20000))) || Load <- [0.5, 0.9, 1]].

%% The limit only counts while it is dropping.
limit_spares_who_is_early(_Config) ->
    Codel = weir_pool_codel:new(?TARGET, ?INTERVAL, 2 * ?TARGET),
    {Verdicts, Above} = offers(50 * ?TARGET, lists:seq(0, ?INTERVAL - 1, 100), Codel),
    ?assertEqual([serve], lists:usort(Verdicts)),
    %% CoDel drops at once all waiters that have waited longer, and serves the next other waiter.
    {Dropped, Dropping} = offers(2 * ?TARGET + 1, lists:duplicate(50, ?INTERVAL), Above),
    ?assertEqual([drop], lists:usort(Dropped)),
    {serve, _} = offer(2 * ?TARGET, ?INTERVAL, Dropping).

quickcheck(Property, N) -> weir_kit_property:holds(Property, [{numtests, N}, quiet]).
