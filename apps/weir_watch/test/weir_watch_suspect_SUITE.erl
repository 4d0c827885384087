-module(weir_watch_suspect_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

new() -> weir_watch_suspect:new(self(), self(), 7).

look(Samples) -> look(Samples, #{}).

look(Samples, More) ->
    maps:merge(
        #{
            samples => Samples, kept => 0.0, heap => 1000, drained => 0, handled => undefined, monitors => [],
            callee => undefined, ports => [], messages => [], distribution => false, us => 1
        },
        More
    ).

in_call(Callee) -> look([{waiting, [{gen, do_call, 4}]}], #{callee => Callee}).

queue(Queue) -> weir_watch_suspect:heard({waiting, Queue, 0}, new()).

described(Suspect) -> described(Suspect, 7).

described(Suspect, Tick) -> weir_watch_suspect:describe(Suspect, #{self() => Suspect}, [1000], Tick).

%% A second for each of these lengths of its mailbox.
seconds(Queues, Suspect) ->
    lists:foldl(
        fun(Queue, Acc) ->
            weir_watch_suspect:second(1000, {0, 0, []}, 7, weir_watch_suspect:heard({waiting, Queue, 0}, Acc))
        end,
        weir_watch_suspect:looked(look([]), Suspect),
        Queues
    ).

%% In the tick in which it is noticed.
nothing_known(_Config) ->
    Self = self(),
    ?assertMatch(
        #{
            pid := Self, name := undefined, module := undefined, behaviour := process, ancestors := [],
            supervisor := undefined, queue := 0, queues := [], growth := 0, until_million := infinity,
            handled := undefined, arriving := undefined, core := Core, doing := [], messages := [], waiters := 0,
            waits_for := undefined, chain := [], answers := true
        } when Core == 0,
        described(new())
    ).

%% Over five seconds at most, and by how long they took.
growth(_Config) ->
    Growth = fun(Queues, Lasted) ->
        Suspect = seconds(Queues, new()),
        #{growth := Growth, until_million := Until} = weir_watch_suspect:describe(Suspect, #{}, Lasted, 7),
        {Growth, Until}
    end,
    Each = lists:duplicate(9, 1000),
    ?assertEqual({0, infinity}, Growth([500], Each)),
    ?assertEqual({100, 9994}, Growth([500, 600], Each)),
    ?assertEqual({50, 19988}, Growth([500, 600], [2000])),
    ?assertEqual({100, 9990}, Growth([9_000_000, 500, 600, 700, 800, 900, 1000], Each)),
    ?assertEqual({-100, infinity}, Growth([600, 500], Each)),
    ?assertEqual({1, infinity}, Growth([999_999, 1_000_000], Each)),
    ?assertEqual({1, 1}, Growth([999_998, 999_999], Each)),
    %% What was drained is a part of it.
    Drained = weir_watch_suspect:looked(look([], #{drained => 50}), queue(100)),
    ?assertMatch(#{queues := [150], drained := 50, queue := 100},
        described(weir_watch_suspect:second(1000, {0, 0, []}, 7, Drained))).

what_it_does(_Config) ->
    Run = {running, [{m, f, 1}, {gen_server, try_handle_cast, 3}]},
    Wait = {waiting, [{gen_server, loop, 5}]},
    Suspect = weir_watch_suspect:looked(look([Run, Run, Run, Wait], #{messages => [<<"a">>, <<"b">>, <<"a">>]}), new()),
    ?assertMatch(
        #{
            behaviour := gen_server, core := 0.75, states := #{running := 0.75, waiting := 0.25},
            doing := [{{m, f, 1}, 0.75}, {{gen_server, loop, 5}, 0.25}], messages := [{<<"a">>, _}, {<<"b">>, _}]
        },
        described(Suspect)
    ),
    %% Of the last four looks.
    Later = lists:foldl(fun weir_watch_suspect:looked/2, Suspect, lists:duplicate(4, look([Wait]))),
    ?assertMatch(#{core := Core, doing := [{{gen_server, loop, 5}, 1.0}]} when Core == 0, described(Later)),
    Names = [{weir_server_loop, weir_server}, {gen_statem, gen_statem}, {lists, process}],
    [
        ?assertMatch(#{behaviour := Behaviour}, described(weir_watch_suspect:looked(look([{running, [{Module, f, 1}]}]),
            new())))
     || {Module, Behaviour} <- Names
    ],
    ?assertMatch(#{name := n, module := m, supervisor := top, ancestors := [top, none]},
        described(weir_watch_suspect:known(#{name => n, module => m, ancestors => [top, none]}, new()))).

in_trouble(_Config) ->
    Long = weir_watch_suspect:long(),
    ?assert(weir_watch_suspect:is_in_trouble(queue(Long))),
    ?assertNot(weir_watch_suspect:is_in_trouble(queue(Long - 1))),
    Waiters = fun(Sustained) -> weir_watch_suspect:second(1000, {9, Sustained, []}, 7, new()) end,
    ?assert(weir_watch_suspect:is_in_trouble(Waiters(1))),
    ?assertNot(weir_watch_suspect:is_in_trouble(Waiters(0))).

%% No rule holds, and it was noticed before.
quiet(_Config) ->
    Is = fun weir_watch_suspect:is_quiet/2,
    ?assertEqual([false, true], [Is(Tick, new()) || Tick <- [7, 8]]),
    ?assertEqual([false, true], [Is(Tick, weir_watch_suspect:notice(9, new())) || Tick <- [9, 10]]),
    %% A second in which it is in trouble, and one in which it is not.
    Second = fun(Queue) -> weir_watch_suspect:second(1000, {0, 0, []}, 12, queue(Queue)) end,
    ?assertEqual([12, 7], [weir_watch_suspect:noticed(Second(Queue)) || Queue <- [200, 199]]),
    {_, Judged} = weir_watch_suspect:judged({busy, #{}}, 8, new()),
    ?assertNot(Is(100, Judged)),
    ?assert(weir_watch_suspect:to_be_spared(Judged)),
    ?assertNot(weir_watch_suspect:to_be_spared(new())).

%% What the rules say twice in a row is told, as of when they said it first, also if it is another cause.
told_twice(_Config) ->
    Judge = fun weir_watch_suspect:judged/3,
    Before = erlang:system_time(millisecond),
    {untold, First} = Judge({busy, #{}}, 8, new()),
    {{since, Since}, Second} = Judge({flooded, #{}}, 13, First),
    ?assert(Since >= Before andalso Since =< erlang:system_time(millisecond)),
    ?assertMatch(#{since := Since}, described(Second)),
    ?assertEqual(13, weir_watch_suspect:noticed(Second)),
    {{since, Since}, Third} = Judge({flooded, #{}}, 18, Second),
    {untold, None} = Judge(none, 23, Third),
    ?assertMatch({untold, _}, Judge({busy, #{}}, 28, None)).

%% From one telling of a weir_server to the next; since when the first one was is not known.
counts_itself(_Config) ->
    Tell = fun(Total, Suspect) -> weir_watch_suspect:looked(look([], #{handled => Total}), Suspect) end,
    Handled = fun(Suspect) -> map_get(handled, described(Suspect)) end,
    One = Tell(1000, new()),
    Two = Tell(1500, Tell(1000, One)),
    ?assertEqual([undefined, undefined], [Handled(One), Handled(Two)]),
    Three = Tell(2500, Two),
    ?assert(Handled(Three) > 0),
    ?assertEqual(Handled(Three), Handled(Tell(2500, Three))),
    %% It was started anew.
    ?assertEqual(0, Handled(Tell(10, Three))),
    ?assert(map_get(arriving, described(Three)) > 0),
    %% The tracer is not asked for what it tells itself.
    ?assertEqual([], [Q || {handled, _} = Q <- asked(#{module => m, behaviour => gen_server}, Three)]).

%% Half of its last samples are in a call to a process of this node.
waits_for(_Config) ->
    Callee = spawn(fun() -> ok end),
    Call = {waiting, [{gen, do_call, 4}]},
    Run = {running, [{m, f, 1}]},
    For = fun(Samples, To) ->
        weir_watch_suspect:waits_for(weir_watch_suspect:looked(look(Samples, #{callee => To}), new()))
    end,
    ?assertEqual([Callee], For([Call, Run], Callee)),
    ?assertEqual([], For([Call, Run, Run], Callee)),
    ?assertEqual([], For([Call], undefined)),
    ?assertEqual([], For([Call], unknown)),
    ?assertEqual([], For([Call], binary_to_term(<<131, 88, 119, 3, "a@b", 1:32, 0:32, 1:32>>))),
    ?assertEqual([], weir_watch_suspect:waits_for(new())).

%% Who waits in a cycle, in front of one, and for one at the end of a long way.
chains(_Config) ->
    [A, B, C, D] = Pids = [spawn(fun() -> ok end) || _ <- lists:seq(1, 4)],
    Graph = fun(Edges) ->
        maps:from_list([
            {Pid, weir_watch_suspect:looked(in_call(Callee), weir_watch_suspect:new(Pid, self(), 7))}
         || {Pid, Callee} <- Edges
        ])
    end,
    Chain = fun(Pid, Suspects) ->
        #{Pid := Once} = Suspects,
        Suspect = weir_watch_suspect:looked(in_call(hd(weir_watch_suspect:waits_for(Once))), Once),
        Described = weir_watch_suspect:describe(Suspect, Suspects, [], 7),
        #{cycle := Cycle} = weir_watch_suspect:facts(Suspect, Described),
        {map_get(chain, Described), Cycle}
    end,
    Line = Graph([{A, B}, {B, C}, {C, D}]),
    ?assertEqual([{[B, C, D], false}, {[C, D], false}, {[D], false}], [Chain(Pid, Line) || Pid <- [A, B, C]]),
    Cycle = Graph([{A, B}, {B, C}, {C, B}]),
    ?assertEqual([{[B, C, B], false}, {[C, B], true}, {[B, C], true}], [Chain(Pid, Cycle) || Pid <- [A, B, C]]),
    ?assertEqual({[A], true}, Chain(A, Graph([{A, A}]))),
    Long = [spawn(fun() -> ok end) || _ <- lists:seq(1, 20)],
    {Found, false} = Chain(A, Graph(lists:zip([A | Long], Long ++ Pids -- [B, C, D]))),
    ?assertEqual(lists:sublist(Long, 10), Found).

asked(Changes, Suspect) -> asked(57, Changes, Suspect).

asked(Tick, Changes, Suspect) ->
    weir_watch_suspect:questions(Tick, true, maps:merge(described(Suspect), Changes), Suspect).

%% Of one in trouble, or at whom somebody looks; every ten seconds.
questions(_Config) ->
    Server = #{module => m, behaviour => gen_server},
    Handled = [{handled, [{m, handle_call, 3}, {m, handle_cast, 2}, {m, handle_info, 2}]}],
    ?assertEqual(Handled, asked(Server, new())),
    Unseen = fun(Suspect) ->
        weir_watch_suspect:questions(57, false, maps:merge(described(Suspect), Server), Suspect)
    end,
    ?assertEqual([], Unseen(new())),
    {_, Judged} = weir_watch_suspect:judged({busy, #{}}, 7, new()),
    ?assertEqual(Handled, Unseen(Judged)),
    Traced = weir_watch_suspect:traced(57, new()),
    ?assertEqual(57, weir_watch_suspect:traced(Traced)),
    ?assertEqual([[], Handled], [asked(Tick, Server, Traced) || Tick <- [106, 107]]).

questions_of(_Config) ->
    %% Who sends, by all of its names.
    Self = self(),
    ?assertEqual([], asked(#{queue => 999}, new())),
    ?assertEqual([{sent, [Self]}], asked(#{queue => 1000}, new())),
    ?assertEqual([{sent, [Self, n, {n, node()}]}], asked(#{queue => 1000, name => n}, new())),
    {_, InEts} = weir_watch_suspect:judged({ets_lock, #{}}, 7, new()),
    ?assertEqual([{sent, [Self]}, tables], asked(#{queue => 1000}, InEts)),
    ?assertEqual([], asked(#{queue => 1000}, weir_watch_suspect:too_large(InEts))),
    %% A behaviour whose callbacks are not known, and a module that is not.
    ?assertEqual([], asked(#{module => m, behaviour => process}, new())),
    ?assertEqual([], asked(#{module => undefined, behaviour => gen_server}, new())).

%% What was found is told for a minute.
found_is_fresh(_Config) ->
    Sender = self(),
    Found = #{handled => 300, sent => [{Sender, {shop, push, 2}, <<"cast">>}, {Sender, undefined, <<"info">>}],
        tables => [t, t, u]},
    Suspect = weir_watch_suspect:found(7, Found, seconds([100, 200], new())),
    ?assertMatch(
        #{
            handled := 300, arriving := 400, sent_by := [{{shop, push, 2}, 1.0}], senders := [Sender],
            messages := [_, _], tables := [{t, _}, {u, _}]
        },
        described(Suspect, 307)
    ),
    ?assertMatch(#{handled := undefined, arriving := undefined, sent_by := [], senders := [], tables := []},
        described(Suspect, 308)),
    %% One that found nothing is none.
    ?assertMatch(#{handled := 300}, described(weir_watch_suspect:found(9, #{}, Suspect), 9)).

%% One that ran and does not answer for a second; of one that waited, it is its looker who is late.
silent(_Config) ->
    Answers = fun(Suspect) -> map_get(answers, described(Suspect)) end,
    Ran = weir_watch_suspect:heard({running, 0, 0}, new()),
    Waited = weir_watch_suspect:heard({waiting, 0, 0}, new()),
    Large = weir_watch_suspect:looked(look([], #{heap => 200_000_001}), Ran),
    ?assertEqual({false, true}, {weir_watch_suspect:is_late(Ran), Answers(Ran)}),
    weir_kit:until(fun() -> not Answers(Ran) end),
    ?assert(weir_watch_suspect:is_late(Ran)),
    ?assert(weir_watch_suspect:is_late(Waited)),
    ?assert(weir_watch_suspect:to_be_spared(Waited)),
    ?assertEqual({true, true}, {Answers(Waited), Answers(Large)}),
    ?assertNot(weir_watch_suspect:is_late(weir_watch_suspect:look_again(self(), Ran))).

%% Their share of a second at least.
collections(_Config) ->
    Collected = weir_watch_suspect:collected(200, weir_watch_suspect:collected(100, new())),
    #{collecting := Share} = weir_watch_suspect:facts(Collected, described(Collected)),
    ?assert(Share > 0.0 andalso Share =< 0.3, Share).

%% The least of the last three lengths of its mailbox, the shares of two looks and those of four.
facts(_Config) ->
    Facts = fun(Suspect) -> weir_watch_suspect:facts(Suspect, described(Suspect)) end,
    ?assertMatch(#{queue := 0, waiters := 0, cycle := false, inherited := false, shares := Shares} when Shares =:= #{},
        Facts(new())),
    ?assertMatch([#{queue := 0}, #{queue := 300}, #{queue := 200}],
        [Facts(seconds(Queues, new())) || Queues <- [[300], [100, 400, 300, 500], [200, 300]]]),
    Looks = [look([{running, [{ets, lookup, 2}]}], #{distribution => true}), look([{running, [{m, f, 1}]}]),
        look([{running, [{m, f, 1}]}], #{kept => 0.5}), look([{running, [{m, f, 1}]}], #{kept => 0.7, ports => [p]})],
    Looked = Facts(lists:foldl(fun weir_watch_suspect:looked/2, new(), Looks)),
    ?assertMatch(#{shares := #{run := 1.0}, lately_in_ets := {0.25, 4}, distribution := true, ports := [p]}, Looked),
    ?assert(abs(map_get(kept, Looked) - 0.6) < 0.001),
    ?assertMatch(#{waiters := 8}, Facts(weir_watch_suspect:second(1000, {9, 8, []}, 7, new()))).
