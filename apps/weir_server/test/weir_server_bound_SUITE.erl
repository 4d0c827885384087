%% The bound: how many messages may wait, which ones a full server drops, and that the server accounts for all of them.
-module(weir_server_bound_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, take_messages/0, until/1, wait_ms/0]).
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

<<<<<<< HEAD
=======
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

>>>>>>> 2a9a17aaa23ac95848a7c8ee7cd861e12479cd87
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
