%% The bound: how many messages may wait, which ones a full server drops, and that the server accounts for all of them.
-module(weir_server_bound_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, take_messages/0, until/1]).
-import(weir_server_loop_lib, [
    start/2, stop/1, each/2, hold/1, held/1, release/2, while_held/2, casts/3, ask/3, info/1, settle/1, total/1,
    spin/1
]).

-define(POLICIES, [reject, drop_newest, drop_oldest]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- the bound

calls_and_casts_beyond_the_bound_are_dropped(_) ->
    [
        each([{weir_server_probe, [{max_queue, Max}, {overload, Policy}]}], fun(Pid) ->
            while_held(Pid, fun() -> [send(Pid, Kind, N) || N <- lists:seq(1, Sent)] end),
            #{handled := Handled, dropped := Dropped, max_queue := Max} = settle(Pid),
            Expected = case Kind of infos -> 0; _ -> max(0, Sent - Max) end,
            ?assertEqual({Expected, Expected}, {maps:get(Kind, Dropped), total(Dropped)}),
            ?assertEqual(1 + Sent - Expected, total(Handled))
        end)
     || Kind <- [calls, casts, infos],
        Policy <- ?POLICIES,
        {Max, Sent} <- [{1, 1}, {1, 2}, {10, 10}, {10, 11}, {10, 100}, {40, 40}, {40, 41}]
    ].

send(Pid, calls, N) -> ask(Pid, {call, N}, {call, N});
send(Pid, casts, N) -> gen_server:cast(Pid, N);
send(Pid, infos, N) -> Pid ! N.

dropped_calls_are_answered(_) ->
    [
        begin
            {ok, Pid} = weir_server:start({local, ?MODULE}, weir_server_probe, #{tell => self()}, [
                {max_queue, 3}, {overload, Policy}
            ]),
            while_held(Pid, fun() -> [send(Pid, calls, N) || N <- lists:seq(1, 5)] end),
            settle(Pid),
            Answers = lists:sort([{N, Answer} || {{call, N}, Answer} <- stop(Pid)]),
            Overload = {error, {overload, #{server => ?MODULE, waiting => 3, max_queue => 3}}},
            Expected = [{N, case lists:member(N, Refused) of true -> Overload; false -> N end} || N <- [1, 2, 3, 4, 5]],
            ?assertEqual({Policy, Expected}, {Policy, Answers})
        end
     || {Policy, Refused} <- [{reject, [4, 5]}, {drop_newest, [4, 5]}, {drop_oldest, [1, 2]}]
    ].

with_state_is_refused_like_a_call(_) ->
    Pid = start(weir_server_probe, [{max_queue, 1}]),
    Asking = while_held(Pid, fun() ->
        gen_server:cast(Pid, 1),
        Task = weir_kit:start(fun() -> weir_server:with_state(Pid, fun(_) -> done end) end),
        ok = until(fun() -> queue_len(Pid) =:= 2 end),
        Task
    end),
    ?assertMatch({error, {overload, #{server := Pid, max_queue := 1}}}, weir_kit:result(Asking)),
    ?assertEqual(done, weir_server:with_state(Pid, fun(_) -> done end)),
    ?assertMatch(#{handled := #{calls := 1}, dropped := #{calls := 1}}, settle(Pid)),
    stop(Pid).

%% ---------------------------------------------------------------- infos

%% The server does not drain infos, and the bound still holds soon for the calls behind them.
bound_holds_behind_infos(_) ->
    InFront = [{infos, 500}, {calls, 50}],
    InBetween = lists:append([[{infos, N rem 3}, {calls, 1}] || N <- lists:seq(1, 300)]),
    [
        begin
            Pid = start(weir_server_probe, [{max_queue, 5}]),
            Info = {do, info, slow(Action)},
            while_held(Pid, fun() ->
                [case Kind of infos -> Pid ! Info; calls -> ask(Pid, answer, {call, call}) end
                    || {Kind, Count} <- Sent, _ <- lists:seq(1, Count)]
            end),
            #{handled := #{calls := 5}, dropped := #{calls := Dropped}} = settle(Pid),
            Events = stop(Pid),
            ?assertEqual({Action, 5 + Dropped}, {Action, lists:sum([N || {calls, N} <- Sent])}),
            ?assertEqual(lists:sum([N || {infos, N} <- Sent]), length([info || {info, info} <- Events])),
            {Before, _} = lists:splitwith(fun(Event) -> not is_refusal(Event) end, Events),
            ?assert(length([info || {info, info} <- Before]) =< 64)
        end
     || Sent <- [InFront, InBetween], Action <- [nothing, 0, 1_000_000, hibernate, {continue, nothing}]
    ].

is_refusal({answer, {error, {overload, _}}}) -> true;
is_refusal(_) -> false.

slow(nothing) ->
    fun(_, State) ->
        spin(50),
        {noreply, State}
    end;
slow(Action) ->
    fun(_, State) ->
        spin(50),
        {noreply, State, Action}
    end.

%% The work for each message of a flood does not grow with the number of infos that wait. The server drains the flood
%% before it reaches the second hold, which has a higher priority.
infos_do_not_slow_the_bound_down(_) ->
    [
        each([{weir_server_probe_prio, [{max_queue, 10}, {overload, Policy}]}], fun(Pid) ->
            Second = make_ref(),
            {reductions, Before} = while_held(Pid, fun() ->
                gen_server:cast(Pid, {p, 9, {hold, Second, self()}}),
                [Pid ! {p, Priority, N} || N <- lists:seq(1, 10_000)],
                casts(Pid, 1, 1000),
                process_info(Pid, reductions)
            end),
            held(Second),
            {reductions, After} = process_info(Pid, reductions),
            ?assert(After - Before < 200 * 11_000, {Policy, Priority, After - Before}),
            Pid ! Second,
            ?assertMatch(#{handled := #{infos := 10_000}}, settle(Pid))
        end)
     || Policy <- ?POLICIES, Priority <- [0, -1]
    ].

%% ---------------------------------------------------------------- the model

%% Everything is sent while the server is held, so a list in order of arrival says which messages are dropped, and in
%% which order the server handles the others.
order_and_bound_are_those_of_a_model(_) ->
    Property = ?FORALL(
        {Mod, Max, Policy, Options, Rounds},
        {
            oneof([weir_server_probe, weir_server_probe_batch, weir_server_probe_prio, weir_server_probe_prio_batch]),
            oneof([infinity, range(1, 12)]),
            oneof(?POLICIES),
            oneof([[], [{drain, 1}], [{drain, {1, 5}}], [{drain, {16, 100}}], [{batch_bytes, 60}]]),
            list(resize(40, list(message())))
        },
        begin
            Pid = start(Mod, [{max_queue, Max}, {overload, Policy} | Options]),
            HasPriorities = erlang:function_exported(Mod, prioritise_cast, 3),
            Wrong = [Difference || Round <- Rounds, Difference <- round_of(Pid, Round, HasPriorities, Max, Policy)],
            _ = stop(Pid),
            Wrong
        end
    ),
    weir_server_loop_lib:check(Property, 1000).

message() ->
    {
        oneof([call, cast, info, bounded_info, credit]),
        frequency([{10, range(-2, 2)}, {1, 1 bsl 70}, {2, drop}])
    }.

%% Plays a round, and returns the differences between the model and the server.
round_of(Pid, Round, HasPriorities, Max, Policy) ->
    #{handled := HandledBefore, dropped := DroppedBefore, shed := ShedBefore} = settle(Pid),
    Sent = lists:zipwith(fun(Id, {Kind, Priority}) -> item(Id, Kind, Priority, HasPriorities) end,
        lists:seq(1, length(Round)), Round),
    {Waiting, Dropped, Shed} = lists:foldl(fun(Item, Model) -> arrives(Item, Model, Max, Policy) end, {[], [], []},
        Sent),
    Counter = atomics:new(1, []),
    while_held(Pid, fun() ->
        [send_item(Pid, Id, Round, Counter) || {Id, _, _, _} <- Sent]
    end),
    #{handled := Handled, dropped := DroppedNow, shed := ShedNow} = settle(Pid),
    Events = weir_server_loop_lib:handled(take_messages()),
    Calls = [Id || {Id, call, _, _} <- Sent],
    Refused = [Id || {Id, call, _, _} <- Dropped],
    Checks = [
        {order, ids(in_order(Waiting)), [Id || {Kind, Id} <- Events, lists:member(Kind, [call, cast, info])]},
        {refused, lists:sort(Refused), lists:sort([Id || {{call, Id}, {error, {overload, #{}}}} <- Events])},
        {answered, Calls, lists:sort([Id || {{call, Id}, _} <- Events])},
        {handled, 1 + length(Waiting), total(Handled) - total(HandledBefore)},
        {dropped, length(Dropped), total(DroppedNow) - total(DroppedBefore)},
        {shed, length(Shed), total(ShedNow) - total(ShedBefore)},
        {credits, 0, atomics:get(Counter, 1)}
    ],
    [{Check, Expected, Seen, Sent} || {Check, Expected, Seen} <- Checks, Expected =/= Seen].

%% A message of the model is `{Id, Kind, Priority, MayBeDropped}'. A call cannot have the priority `drop'.
item(Id, Kind, _Priority, false) -> {Id, Kind, 0, not lists:member(Kind, [info, bounded_info])};
item(Id, call, drop, true) -> {Id, call, 0, true};
item(Id, Kind, Priority, true) -> {Id, Kind, Priority, Kind =/= info}.

send_item(Pid, Id, Round, Counter) ->
    case lists:nth(Id, Round) of
        {call, drop} -> ask(Pid, {call, Id}, {call, {p, 0, Id}});
        {call, Priority} -> ask(Pid, {call, Id}, {call, {p, Priority, Id}});
        {cast, Priority} -> gen_server:cast(Pid, {p, Priority, Id});
        {info, Priority} -> Pid ! {p, Priority, Id};
        {bounded_info, drop} -> Pid ! {p, drop, Id};
        {bounded_info, Priority} -> Pid ! {p, {bounded, Priority}, Id};
        {credit, Priority} ->
            ok = atomics:add(Counter, 1, 1),
            Pid ! {'$weir_credit', Counter, {'$gen_cast', {p, Priority, Id}}}
    end.

arrives({_, _, drop, _} = Item, {Waiting, Dropped, Shed}, _Max, _Policy) ->
    {Waiting, Dropped, [Item | Shed]};
arrives({_, _, _, MayBeDropped} = Item, {Waiting, Dropped, Shed}, Max, Policy) ->
    case MayBeDropped andalso length(droppable(Waiting)) >= Max of
        false ->
            {Waiting ++ [Item], Dropped, Shed};
        true ->
            Gone = goes(Item, droppable(Waiting), Policy),
            {(Waiting ++ [Item]) -- [Gone], [Gone | Dropped], Shed}
    end.

droppable(Items) -> [Item || {_, _, _, true} = Item <- Items].

%% The message that goes is of the lowest priority, and of these the oldest or the newest one.
goes({_, _, Priority, _} = New, Waiting, Policy) ->
    Lowest = lists:min([Priority | [P || {_, _, P, _} <- Waiting]]),
    Candidates = [Item || {_, _, P, _} = Item <- Waiting ++ [New], P =:= Lowest],
    case Policy of
        drop_oldest -> hd(Candidates);
        _ -> lists:last(Candidates)
    end.

in_order(Items) -> [Item || {_, _, Item} <- lists:sort([{-P, Id, Item} || {Id, _, P, _} = Item <- Items])].

ids(Items) -> [Id || {Id, _, _, _} <- Items].

%% ---------------------------------------------------------------- accounts

%% `batch_bytes' ends the first batch after one message, and nine wait. The queue has room for one more message.
rest_of_a_cut_batch_counts(_) ->
    Options = [{max_queue, 10}, {drain, {10, 10}}, {batch_bytes, 1}],
    each([{weir_server_probe_batch, Options}, {weir_server_probe_prio_batch, Options}], fun(Pid) ->
        Ref = make_ref(),
        while_held(Pid, fun() ->
            gen_server:cast(Pid, {hold, Ref, self()}),
            casts(Pid, 1, 20)
        end),
        held(Ref),
        ?assertMatch(#{drained := 9, dropped := #{casts := 11}}, info(Pid)),
        casts(Pid, 21, 40),
        Pid ! Ref,
        ?assertMatch(#{handled := #{casts := 12}, dropped := #{casts := 30}}, settle(Pid)),
        ?assertEqual(lists:seq(1, 9) ++ [21], [N || {batch, [{cast, N}]} <- take_messages(), is_integer(N)])
    end).

%% The server has handed out messages when the module changes. These messages wait again, and count.
messages_count_after_become(_) ->
    [
        each([{weir_server_probe, [{max_queue, 5}, {overload, Policy}]}], fun(Pid) ->
            Ref = make_ref(),
            while_held(Pid, fun() ->
                gen_server:cast(Pid, {hold, Ref, self()}),
                gen_server:cast(Pid, {do, change, fun(_, State) -> {become, weir_server_probe_prio, State} end}),
                casts(Pid, 1, 3)
            end),
            held(Ref),
            casts(Pid, 4, 3 + More),
            Pid ! Ref,
            #{dropped := Dropped, handled := Handled} = settle(Pid),
            ?assertEqual({Policy, Gone, 6 + More - Gone}, {Policy, total(Dropped), total(Handled)})
        end)
     || Policy <- ?POLICIES, {More, Gone} <- [{2, 0}, {3, 1}]
    ].

%% Each message is handled or dropped, and each call is answered.
many_senders_are_accounted_for(_) ->
    Mods = [weir_server_probe, weir_server_probe_prio, weir_server_probe_batch],
    each([{Mod, [{max_queue, 50}, {overload, Policy}]} || Mod <- Mods, Policy <- ?POLICIES], fun(Pid) ->
        Senders = [weir_kit:start(fun() -> floods(Pid, Sender) end) || Sender <- lists:seq(1, 20)],
        ?assertEqual(lists:duplicate(20, 20), [weir_kit:result(Sender) || Sender <- Senders]),
        #{handled := Handled, dropped := Dropped} = settle(Pid),
        ?assertEqual(20 * 120, total(Handled) + total(Dropped)),
        ?assertEqual(20 * 20, maps:get(calls, Handled) + maps:get(calls, Dropped)),
        Ref = hold(Pid),
        casts(Pid, 1, 100),
        ?assertMatch(#{waiting := 100}, info(Pid)),
        release(Pid, Ref),
        ?assertMatch(#{waiting := 0}, settle(Pid))
    end).

%% Returns the number of calls that were answered.
floods(Pid, Sender) ->
    Calls = [gen_server:send_request(Pid, {p, N rem 3, {Sender, N}}) || N <- lists:seq(1, 20)],
    [gen_server:cast(Pid, {p, N rem 3, {Sender, N}}) || N <- lists:seq(21, 120)],
    length([answer || Call <- Calls, {reply, _} <- [gen_server:receive_response(Call, infinity)]]).

%% A dropped info that prioritise_info/3 has bounded returns its credit, too.
credits_of_bounded_infos_are_given_back(_) ->
    [
        begin
            Pid = start(Mod, [{max_queue, 5}, {overload, Policy}]),
            Counter = atomics:new(1, []),
            ok = atomics:put(Counter, 1, 30),
            while_held(Pid, fun() ->
                [Pid ! {'$weir_credit', Counter, {p, {bounded, 0}, N}} || N <- lists:seq(1, 30)]
            end),
            ?assertMatch(#{handled := #{infos := 5}, dropped := #{infos := 25}}, settle(Pid)),
            ?assertEqual(0, atomics:get(Counter, 1)),
            stop(Pid)
        end
     || Mod <- [weir_server_probe_prio, weir_server_probe_prio_batch], Policy <- ?POLICIES
    ].
