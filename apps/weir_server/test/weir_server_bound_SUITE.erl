%% The bound: how many messages may wait, what happens to more, and that every one of them is accounted for.
-module(weir_server_bound_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, take_messages/0, until/1, wait_ms/0]).
-import(weir_server_loop_lib, [
    start/2, start/3, stop/1, hold/1, held/1, release/2, while_held/2, ask/3, info/1, settle/1, events/1, next/0,
    spin/1
]).

-define(POLICIES, [reject, drop_newest, drop_oldest]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% ---------------------------------------------------------------- the bound

so_many_and_one_more(_) ->
    [
        begin
            Pid = start(weir_server_probe, [{max_queue, Max}, {overload, Policy}]),
            while_held(Pid, fun() -> [send(Pid, Kind, N) || N <- lists:seq(1, Sent)] end),
            #{handled := Handled, dropped := DroppedKinds, max_queue := Max} = settle(Pid),
            %% Infos are never dropped.
            Dropped =
                case Kind of
                    infos -> 0;
                    _ -> More
                end,
            ?assertEqual(
                {Kind, Policy, Max, Sent, Dropped},
                {Kind, Policy, Max, Sent, maps:get(Kind, DroppedKinds)}
            ),
            ?assertEqual(Dropped, total(DroppedKinds)),
            ?assertEqual(1 + Sent - Dropped, total(Handled)),
            stop(Pid)
        end
     || Kind <- [calls, casts, infos],
        Policy <- ?POLICIES,
        {Max, Sent, More} <- [{1, 1, 0}, {1, 2, 1}, {10, 10, 0}, {10, 11, 1}, {10, 100, 90}, {40, 40, 0}, {40, 41,
            1}]
    ].

which_one_goes(_) ->
    [
        begin
            Pid = start(weir_server_probe, [{max_queue, 3}, {overload, Policy}]),
            while_held(Pid, fun() -> [send(Pid, casts, N) || N <- lists:seq(1, 5)] end),
            settle(Pid),
            Pid ! last,
            ?assertEqual({Policy, Left}, {Policy, [N || {cast, N} <- events({info, last})]}),
            stop(Pid)
        end
     || {Policy, Left} <- [{reject, [1, 2, 3]}, {drop_newest, [1, 2, 3]}, {drop_oldest, [3, 4, 5]}]
    ].

calls_are_answered(_) ->
    [
        begin
            Pid = start(weir_server_probe, [{max_queue, 3}, {overload, Policy}]),
            while_held(Pid, fun() -> [send(Pid, calls, N) || N <- lists:seq(1, 5)] end),
            settle(Pid),
            Pid ! last,
            Answers = [Answer || {{call, _}, _} = Answer <- events({info, last})],
            ?assertEqual(Refused, lists:sort([N || {{call, N}, {error, {overload, _}}} <- Answers])),
            ?assertEqual(lists:seq(1, 5) -- Refused, [N || {{call, N}, N} <- Answers]),
            ?assertEqual(5, length(Answers)),
            [
                ?assertEqual(#{server => Pid, waiting => 3, max_queue => 3}, Overload)
             || {_, {error, {overload, Overload}}} <- Answers
            ],
            stop(Pid)
        end
     || {Policy, Refused} <- [{reject, [4, 5]}, {drop_newest, [4, 5]}, {drop_oldest, [1, 2]}]
    ].

with_state_is_answered(_) ->
    Pid = start(weir_server_probe, [{max_queue, 1}]),
    while_held(Pid, fun() -> [ask(Pid, N, {with_state, fun(_) -> N end}) || N <- [1, 2]] end),
    settle(Pid),
    Pid ! last,
    ?assertMatch(
        [{1, {ok, 1}}, {2, {error, {overload, #{max_queue := 1}}}}], lists:keysort(1, events({info, last}))
    ),
    ?assertMatch(#{handled := #{calls := 1}, dropped := #{calls := 1}}, info(Pid)),
    stop(Pid).

%% As a call is.
with_state_is_refused(_) ->
    Pid = start(weir_server_probe, [{max_queue, 1}]),
    Self = self(),
    while_held(Pid, fun() ->
        _ = send(Pid, casts, 1),
        _ = spawn(fun() -> Self ! {told, weir_server:with_state(Pid, fun(_) -> done end)} end),
        until(fun() -> queue_len(Pid) =:= 2 end)
    end),
    ?assertMatch({error, {overload, #{server := Pid, max_queue := 1}}}, receive {told, Told} -> Told end),
    ?assertEqual(done, weir_server:with_state(Pid, fun(_) -> done end)),
    stop(Pid).

named_server(_) ->
    {ok, Pid} = weir_server:start({local, ?MODULE}, weir_server_probe, #{tell => self()}, [{max_queue, 1}]),
    while_held(Pid, fun() -> [send(Pid, calls, N) || N <- [1, 2]] end),
    settle(Pid),
    Pid ! last,
    ?assertMatch([#{server := ?MODULE}], [O || {_, {error, {overload, O}}} <- events({info, last})]),
    stop(Pid).

%% ---------------------------------------------------------------- what stays

%% Infos do not count, and are not dropped: what the server has asked for itself, and all others.
signals_stay(_) ->
    [
        begin
            Pid = start(weir_server_probe, #{trap_exit => true}, [{max_queue, 2}, {overload, Policy}]),
            Self = self(),
            {Watched, Watching} = spawn_monitor(fun() -> receive stop -> exit(over) end end),
            gen_server:cast(
                Pid,
                {do, watch, fun(_, State) ->
                    monitor(process, Watched),
                    Self ! watching,
                    {noreply, State}
                end}
            ),
            _ = events(watching),
            gen_server:cast(
                Pid,
                {do, timer, fun(_, State) ->
                    Self ! {timer, erlang:start_timer(0, self(), {my, timer})},
                    {noreply, State}
                end}
            ),
            [{info, {timeout, _, {my, timer}}}] = [E || {info, _} = E <- until_info()],
            while_held(Pid, fun() ->
                [send(Pid, casts, N) || N <- lists:seq(1, 4)],
                Watched ! stop,
                exit(Pid, a_reason),
                receive {'DOWN', Watching, _, _, over} -> ok end,
                Pid ! {timeout, make_ref(), by_hand},
                Pid ! {timeout, not_a_ref, x},
                [send(Pid, infos, N) || N <- lists:seq(5, 8)],
                ok = until(fun() -> queue_len(Pid) =:= 12 end)
            end),
            #{dropped := Dropped} = settle(Pid),
            Pid ! last,
            Events = events({info, last}),
            ?assertMatch([_], [E || {info, {'DOWN', _, process, _, over}} = E <- Events]),
            ?assertMatch([_], [E || {info, {'EXIT', _, a_reason}} = E <- Events]),
            ?assertMatch([_], [E || {info, {timeout, _, by_hand}} = E <- Events]),
            ?assertEqual([{timeout, not_a_ref, x}, 5, 6, 7, 8], [
                N
             || {info, N} <- Events, is_integer(N) orelse N =:= {timeout, not_a_ref, x}
            ]),
            ?assertEqual(#{calls => 0, casts => 2, infos => 0}, Dropped),
            ?assertEqual(2, length([N || {cast, N} <- Events, is_integer(N)])),
            stop(Pid)
        end
     || Policy <- ?POLICIES
    ].

%% But for those of which prioritise_info/3 says that they are: these count like casts, and among them.
bounded_infos(_) ->
    [
        begin
            Pid = start(weir_server_probe_prio, [{max_queue, 3}, {overload, Policy}]),
            while_held(Pid, fun() ->
                [
                    begin
                        Pid ! {p, {bounded, 0}, {bounded, N}},
                        Pid ! {p, 0, {free, N}}
                    end
                 || N <- lists:seq(1, 4)
                ],
                gen_server:cast(Pid, {p, 0, {cast, 5}}),
                %% More urgent than all others.
                Pid ! {p, {bounded, 1}, {bounded, 6}}
            end),
            ?assertMatch(
                #{
                    dropped := #{calls := 0, casts := DroppedCasts, infos := DroppedInfos},
                    handled := #{infos := Infos},
                    shed := #{infos := 0}
                } when DroppedCasts + DroppedInfos =:= 3 andalso DroppedInfos + Infos =:= 9,
                settle(Pid)
            ),
            Pid ! last,
            Events = events({info, last}),
            ?assertEqual({Policy, Left}, {Policy, [N || {_, {Kind, N}} <- Events, Kind =/= free]}),
            ?assertEqual([1, 2, 3, 4], [N || {info, {free, N}} <- Events]),
            stop(Pid)
        end
     || {Policy, Left} <- [{reject, [6, 1, 2]}, {drop_newest, [6, 1, 2]}, {drop_oldest, [6, 4, 5]}]
    ].

%% Infos are not drained, but do not keep the bound from what is behind them for long.
infos_in_front(_) ->
    [
        begin
            Pid = start(weir_server_probe, [{max_queue, 5}]),
            while_held(Pid, fun() ->
                [Pid ! {do, N, slow(Action)} || N <- lists:seq(1, 500)],
                [send(Pid, calls, N) || N <- lists:seq(1, 50)]
            end),
            ?assertMatch(#{handled := #{infos := 500, calls := 5}, dropped := #{calls := 45}}, settle(Pid)),
            Pid ! last,
            Events = events({info, last}),
            ?assertEqual({Action, 45}, {Action, refused_before({info, 64}, Events)}),
            ?assertEqual(lists:seq(1, 500), [N || {info, N} <- Events]),
            ?assertEqual(lists:seq(1, 5), [N || {call, N} <- Events]),
            stop(Pid)
        end
     || Action <- [nothing, 0, 1_000_000, hibernate, {continue, nothing}]
    ].

infos_in_between(_) ->
    Pid = start(weir_server_probe, [{max_queue, 5}]),
    while_held(Pid, fun() ->
        [
            begin
                [Pid ! {do, {N, I}, slow(nothing)} || I <- lists:seq(1, N rem 3)],
                send(Pid, calls, N)
            end
         || N <- lists:seq(1, 300)
        ]
    end),
    ?assertMatch(#{handled := #{infos := 300, calls := 5}, dropped := #{calls := 295}}, settle(Pid)),
    Pid ! last,
    Events = events({info, last}),
    ?assertEqual(295, refused_before({info, {40, 1}}, Events)),
    ?assertEqual([{N, I} || N <- lists:seq(1, 300), I <- lists:seq(1, N rem 3)], [N || {info, N} <- Events]),
    stop(Pid).

slow(Action) ->
    fun(_, State) ->
        spin(100),
        case Action of
            nothing -> {noreply, State};
            _ -> {noreply, State, Action}
        end
    end.

refused_before(Event, Events) ->
    Before = lists:takewhile(fun(E) -> E =/= Event end, Events),
    length([N || {{call, N}, {error, {overload, _}}} <- Before]).

until_info() ->
    case next() of
        {info, _} = Event -> [Event];
        Event -> [Event | until_info()]
    end.

acks_stay(_) ->
    [
        begin
            Pid = start(Mod, [{max_queue, 2}, {overload, Policy}]),
            while_held(Pid, fun() ->
                [
                    begin
                        send(Pid, casts, N),
                        ask(Pid, {ack, N}, ack)
                    end
                 || N <- lists:seq(1, 10)
                ]
            end),
            settle(Pid),
            Acks = [N || {{ack, N}, _} <- take_messages()],
            ?assertEqual(lists:seq(1, 10), lists:sort(Acks)),
            ?assertEqual(Acks, lists:sort(Acks)),
            stop(Pid)
        end
     || Mod <- [weir_server_probe, weir_server_probe_prio, weir_server_probe_batch], Policy <- ?POLICIES
    ].

%% ---------------------------------------------------------------- together with others

priorities_and_bound(_) ->
    [
        begin
            Pid = start(weir_server_probe_prio, [{max_queue, 3}, {overload, Policy}]),
            while_held(Pid, fun() ->
                [gen_server:cast(Pid, {p, P, {P, N}}) || {P, N} <- [{1, 1}, {1, 2}, {5, 3}, {5, 4}, {1, 5}, {0, 6}]]
            end),
            ?assertMatch(#{dropped := #{casts := 3}, handled := #{casts := 4}}, settle(Pid)),
            Pid ! last,
            ?assertEqual({Policy, Left}, {Policy, [N || {cast, {_, N}} <- events({info, last})]}),
            stop(Pid)
        end
     || {Policy, Left} <- [{reject, [3, 4, 1]}, {drop_newest, [3, 4, 1]}, {drop_oldest, [3, 4, 5]}]
    ].

batches_and_bound(_) ->
    Pid = start(weir_server_probe_batch, [{max_queue, 25}, {drain, {10, 10}}]),
    while_held(Pid, fun() -> [send(Pid, calls, N) || N <- lists:seq(1, 30)] end),
    ?assertMatch(#{dropped := #{calls := 5}, handled := #{calls := 25}, largest_batch := 10, batches := 4},
        settle(Pid)),
    Events = take_messages(),
    ?assertEqual([10, 10, 5], [length(Batch) || {batch, [{call, _} | _] = Batch} <- Events]),
    ?assertEqual(30, length([N || {{call, N}, _} <- Events])),
    stop(Pid).

batch_bytes_and_bound(_) ->
    Pid = start(weir_server_probe_batch, [{max_queue, 25}, {drain, {10, 10}}, {batch_bytes, 1}]),
    while_held(Pid, fun() -> [send(Pid, casts, N) || N <- lists:seq(1, 30)] end),
    ?assertMatch(#{dropped := #{casts := 5}, handled := #{casts := 26}, largest_batch := 1, batches := 26},
        settle(Pid)),
    Events = take_messages(),
    ?assertEqual(lists:seq(1, 25), [N || {batch, [{cast, N}]} <- Events, is_integer(N)]),
    stop(Pid).

%% The first batch takes one message of the ten that may wait. The queue then has room for one more message.
bound_counts_rest_of_cut_batch(_) ->
    [
        begin
            Pid = start(Mod, [{max_queue, 10}, {drain, {10, 10}}, {batch_bytes, 1}]),
            Ref = make_ref(),
            while_held(Pid, fun() ->
                gen_server:cast(Pid, {hold, Ref, self()}),
                [send(Pid, casts, N) || N <- lists:seq(1, 20)]
            end),
            weir_server_loop_lib:held(Ref),
            ?assertMatch(#{drained := 9, dropped := #{casts := 11}}, info(Pid)),
            [send(Pid, casts, N) || N <- lists:seq(21, 40)],
            Pid ! Ref,
            ?assertMatch(#{handled := #{casts := 12}, dropped := #{casts := 30}}, settle(Pid)),
            ?assertEqual(lists:seq(1, 9) ++ [21], [N || {batch, [{cast, N}]} <- take_messages(), is_integer(N)]),
            stop(Pid)
        end
     || Mod <- [weir_server_probe_batch, weir_server_probe_prio_batch]
    ].

credits_are_given_back(_) ->
    [
        begin
            Pid = start(Mod, [{max_queue, 5}, {overload, Policy}]),
            Counter = atomics:new(1, []),
            ok = atomics:put(Counter, 1, 90),
            while_held(Pid, fun() ->
                [Pid ! {'$weir_credit', Counter, {'$gen_cast', {p, N rem 3, N}}} || N <- lists:seq(1, 30)],
                [Pid ! {'$weir_credit', Counter, {p, N rem 3, N}} || N <- lists:seq(1, 30)],
                [Pid ! {'$weir_credit', Counter, {'$gen_call', {self(), {call, N}}, N}} || N <- lists:seq(1, 30)]
            end),
            #{handled := Handled, dropped := Dropped} = settle(Pid),
            ?assertEqual({91, 55}, {total(Handled) + total(Dropped), total(Dropped)}),
            ?assertMatch({#{infos := 30}, #{infos := 0}}, {Handled, Dropped}),
            ?assertEqual(0, atomics:get(Counter, 1)),
            ?assertEqual(30, length([N || {{call, N}, _} <- take_messages()])),
            stop(Pid)
        end
     || Mod <- [weir_server_probe, weir_server_probe_prio, weir_server_probe_batch, weir_server_probe_prio_batch],
        Policy <- ?POLICIES
    ].

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

%% What was handled makes room.
room_again(_) ->
    Pid = start(weir_server_probe, [{max_queue, 5}]),
    [
        begin
            while_held(Pid, fun() -> [send(Pid, casts, N) || N <- lists:seq(1, 6)] end),
            ?assertMatch(#{dropped := #{casts := Round}, waiting := 0}, settle(Pid))
        end
     || Round <- lists:seq(1, 20)
    ],
    stop(Pid).

%% ---------------------------------------------------------------- changes

%% The mailbox of a suspended server is not looked at; what is in it then is bounded afterwards.
suspended(_) ->
    Pid = start(weir_server_probe, [{max_queue, 5}]),
    ok = sys:suspend(Pid, wait_ms()),
    [send(Pid, casts, N) || N <- lists:seq(1, 8)],
    ?assertEqual(8, queue_len(Pid)),
    ok = sys:resume(Pid, wait_ms()),
    ?assertMatch(#{dropped := #{casts := Dropped}, handled := #{casts := Handled}} when Dropped + Handled =:= 8,
        settle(Pid)),
    stop(Pid).

%% Those that were let in stay in.
code_change(_) ->
    [
        begin
            Pid = start(Mod, [{max_queue, 6}, {overload, Policy}, {drain, {1, 1}}]),
            while_held(Pid, fun() ->
                send(Pid, casts, 0),
                Pid ! {system, {self(), suspended}, suspend},
                [send(Pid, casts, N) || N <- lists:seq(1, 5)]
            end),
            _ = events({suspended, ok}),
            ?assertMatch(#{mailbox := 0, drained := Drained} when Drained >= 5, info(Pid)),
            ok = sys:change_code(Pid, Mod, "1", extra, wait_ms()),
            ok = sys:resume(Pid, wait_ms()),
            ?assertMatch(#{dropped := #{casts := 0}, handled := #{casts := 7}}, settle(Pid)),
            stop(Pid)
        end
     || Mod <- [weir_server_probe, weir_server_probe_prio, weir_server_probe_batch], Policy <- ?POLICIES
    ].

%% What was handed out and not handled waits again.
become(_) ->
    [
        begin
            Pid = start(weir_server_probe, [{max_queue, 5}, {overload, Policy}]),
            Hold = make_ref(),
            while_held(Pid, fun() ->
                gen_server:cast(Pid, {hold, Hold, self()}),
                gen_server:cast(Pid, {do, change, fun(_, State) -> {become, weir_server_probe_prio, State} end}),
                [send(Pid, casts, N) || N <- lists:seq(1, 3)]
            end),
            held(Hold),
            [send(Pid, casts, N) || N <- lists:seq(4, 3 + More)],
            Pid ! Hold,
            #{dropped := Dropped, handled := Handled} = settle(Pid),
            ?assertEqual({Gone, 6 + More - Gone}, {total(Dropped), total(Handled)}),
            stop(Pid)
        end
     || Policy <- ?POLICIES, {More, Gone} <- [{2, 0}, {3, 1}]
    ].

%% ---------------------------------------------------------------- floods

floods(_) -> flood([{weir_server_probe, []}]).

floods_of_batches(_) ->
    flood([{weir_server_probe_batch, [{drain, {1, 20}}]}, {weir_server_probe_batch, [{batch_bytes, 60}]}]).

floods_with_priorities(_) -> flood([{weir_server_probe_prio, []}, {weir_server_probe_prio_batch, [{drain, {2, 8}}]}]).

%% Whenever it is known what a server does, each message has been handled, dropped or shed, or waits; each call has one
%% answer.
flood(Servers) ->
    Property = ?FORALL(
        {{Mod, Options}, Max, Policy, Ops},
        {oneof(Servers), range(1, 20), oneof(?POLICIES), resize(40, list(op()))},
        try
            Pid = start(Mod, [{max_queue, Max}, {overload, Policy} | Options]),
            Counter = atomics:new(1, []),
            Run = lists:foldl(fun(Op, Acc) -> op(Op, Pid, Counter, Acc) end, #{held => none, sent => [], bad => []},
                Ops),
            #{sent := Sent, bad := Bad} = op(release, Pid, Counter, Run),
            #{handled := Handled, dropped := Dropped, shed := Shed} = settle(Pid),
            Events = stop(Pid),
            Calls = [Id || {calls, Id} <- Sent],
            Answers = [Answer || {{call, _}, _} = Answer <- Events],
            Refused = [Id || {{call, Id}, {error, {overload, #{max_queue := M}}}} <- Answers, M =:= Max],
            Seen = [Name || Event <- Events, Name <- names(Event)],
            Gone = [Id || {Kind, Id} <- Sent, Kind =/= hold] -- Seen,
            Checks = [
                {at_all_moments, [], Bad},
                {accounted, length(Sent), total(Handled) + total(Dropped) + total(Shed)},
                {answers, lists:sort(Calls), lists:sort([Id || {{call, Id}, _} <- Answers])},
                {infos, 0, maps:get(infos, Dropped)},
                {refused, maps:get(calls, Dropped), length(Refused)},
                {gone, total(Dropped), length(Gone)},
                {refused_ones, lists:sort(Refused), lists:sort([Id || Id <- Gone, lists:member(Id, Calls)])},
                {once, lists:usort(Seen), lists:sort(Seen)},
                {credits, 0, atomics:get(Counter, 1)}
            ],
            Wrong = [Check || {_, Expected, Actual} = Check <- Checks, Expected =/= Actual],
            Wrong =:= [] orelse weir_server_loop_lib:raised(error, Wrong, [])
        catch
            Class:Reason:Stack -> weir_server_loop_lib:raised(Class, Reason, Stack)
        end
    ),
    weir_server_loop_lib:check(Property, 300).

op() ->
    frequency([
        {3, {send, list({oneof([calls, casts, infos, credits]), range(0, 3)})}},
        {1, {send, vector(30, {oneof([calls, casts, infos, credits]), range(0, 3)})}},
        {2, hold},
        {2, release},
        {1, look},
        {1, suspend_and_resume}
    ]).

op({send, Kinds}, Pid, Counter, #{sent := Sent} = Run) ->
    From = length(Sent),
    New = [
        begin
            Message = {p, Priority, Id},
            case Kind of
                calls -> ask(Pid, {call, Id}, {call, Message});
                casts -> gen_server:cast(Pid, Message);
                infos -> Pid ! Message;
                credits -> atomics:add(Counter, 1, 1), Pid ! {'$weir_credit', Counter, {'$gen_cast', Message}}
            end,
            {Kind, Id}
        end
     || {Id, {Kind, Priority}} <- lists:zip(lists:seq(From + 1, From + length(Kinds)), Kinds)
    ],
    Run#{sent := Sent ++ New};
op(hold, Pid, _, #{held := none} = Run) ->
    %% It must not be dropped itself.
    settle(Pid),
    Run1 = look(Pid, Run),
    #{sent := Sent} = Run1,
    Run1#{held := hold(Pid), sent := Sent ++ [{hold, hold}]};
op(release, Pid, _, #{held := Ref} = Run) when is_reference(Ref) ->
    release(Pid, Ref),
    settle(Pid),
    look(Pid, Run#{held := none});
op(look, Pid, _, #{held := none} = Run) ->
    settle(Pid),
    look(Pid, Run);
%% The hold itself is neither.
op(look, Pid, _, #{sent := [_ | Others]} = Run) ->
    maps:merge(Run, maps:with([bad], look(Pid, Run#{sent := Others})));
op(suspend_and_resume, Pid, _, #{held := none} = Run) ->
    ok = sys:suspend(Pid, wait_ms()),
    ok = sys:resume(Pid, wait_ms()),
    Run;
op(_, _, _, Run) ->
    Run.

look(Pid, #{sent := Sent, bad := Bad} = Run) ->
    #{handled := Handled, dropped := Dropped, shed := Shed, waiting := Waiting, mailbox := M, drained := D} = info(Pid),
    case total(Handled) + total(Dropped) + total(Shed) + Waiting of
        Total when Total =:= length(Sent), M + D =:= Waiting -> Run;
        _ -> Run#{bad := [{length(Sent), Handled, Dropped, Shed, Waiting, M, D} | Bad]}
    end.

names({batch, Batch}) -> lists:append([names(Message) || Message <- Batch]);
names({_, {hold, _}}) -> [];
names({Kind, Name}) when Kind =:= call; Kind =:= cast; Kind =:= info -> [Name];
names(_) -> [].

%% Many senders at once, for a server that is overrun.
senders(_) ->
    [
        begin
            Pid = start(Mod, [{max_queue, 50}, {overload, Policy}]),
            Senders = [
                spawn_monitor(fun() ->
                    Answers = [
                        gen_server:receive_response(gen_server:send_request(Pid, {p, N rem 3, {S, N}}), infinity)
                     || N <- lists:seq(1, 20)
                    ],
                    [gen_server:cast(Pid, {p, N rem 3, {S, N}}) || N <- lists:seq(21, 120)],
                    exit({answers, length([A || {reply, A} <- Answers])})
                end)
             || S <- lists:seq(1, 20)
            ],
            [receive {'DOWN', Ref, process, Sender, Reason} -> ?assertEqual({answers, 20}, Reason) end || {Sender,
                Ref} <- Senders],
            #{handled := Handled, dropped := Dropped} = settle(Pid),
            ?assertEqual(20 * 120, total(Handled) + total(Dropped)),
            ?assertEqual(400, maps:get(calls, Handled) + maps:get(calls, Dropped)),
            stop(Pid)
        end
     || Mod <- [weir_server_probe, weir_server_probe_prio, weir_server_probe_batch], Policy <- ?POLICIES
    ].

%% ---------------------------------------------------------------- helpers

send(Pid, calls, N) -> ask(Pid, {call, N}, {call, N});
send(Pid, casts, N) -> gen_server:cast(Pid, N);
send(Pid, infos, N) -> Pid ! N.

total(Kinds) -> lists:sum(maps:values(Kinds)).
