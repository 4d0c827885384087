%% gen_server as the oracle, for servers that drain: what callback modules rely on without saying so must hold as well
%% when everything that they get has been in the private queue before.
%%
%% A program sends to a server that is held in a callback, and lets it go. First in its mailbox are then casts that take
%% some time each, enough of them that the server of any variant has begun to drain when it comes to what the program is
%% about (the case `drains' sees to that). What the program sees is compared: what the callbacks were given, and what
%% was answered, in order, pids and references aside.
%%
%% The programs here are written by hand. weir_server_random_SUITE has random ones.
%%
%% With OTP 25 to 27 at most one info, the first behind what was drained, is out of the mailbox, and a receive in a
%% callback does not find it. The programs put another info before the one that is looked for. From 28 on none is out,
%% and they also run without.
-module(weir_server_idioms_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, until/1]).
-import(weir_server_loop_lib, [hold/1, release/2, ask/3, events/1, spin/1]).
-import(weir_server_programs, [options/0, run/4, backlog/2, do/3, times/2, casts/2]).
-import(weir_server_programs, [returns/1, request/3, comparable/3, with_states/1, action/2, times_out/2]).
-import(weir_server_programs, [answers_once/0, ways/0, ends/3, end_it/2, told/1, next_exit/1]).
-import(weir_server_programs, [until_more_than/2, release_number/0]).

%% Milliseconds of a time-out. The server has nothing to do by then. The cases wait for a thousand of them.
-define(TIME_OUT, 5).

%% Cases that wait most of the time, and that log nothing.
-define(SIDE_BY_SIDE, [
    supervisor_shuts_down, timeout_behind_drained, timeout_actions, timeout_and_requests_only,
    timeout_and_late_requests, timeout_of_nothing, hibernation, hibernation_after
]).

all() -> [{group, side_by_side} | weir_kit:cases(?MODULE) -- ?SIDE_BY_SIDE].

groups() -> [{side_by_side, [parallel], ?SIDE_BY_SIDE}].

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

%% ---------------------------------------------------------------- programs

plain() -> [{weir_server_probe, Options} || Options <- options()].

batches() -> [{weir_server_idioms, Options} || Options <- options() ++ [[{linger, 2000}], [{batch_bytes, 1}]]].

%% Everything is drained for these, too.
priorities() -> [{weir_server_probe_prio, Options} || Options <- [[], [{max_queue, 100_000}]]].

%% Runs each `{Name, fun(gen_server | weir_server, Pid)}' with gen_server and all variants.
same(Variants, Programs) -> same(Variants, [], Programs).

%% With options that gen_server has, too. It has none of the others, so what it does with a module is seen once.
same(Variants, Common, Programs) ->
    Differing = [
        {Name, Variant, {gen_server, Expected}, {weir_server, Actual}}
     || {Name, Program} <- Programs,
        Mod <- lists:usort([Mod || {Mod, _} <- Variants]),
        Expected <- [run(gen_server, Mod, Common, Program)],
        {Same, Options} = Variant <- Variants,
        Same =:= Mod,
        Actual <- [run(weir_server, Mod, Common ++ Options, Program)],
        Expected =/= Actual orelse is_error(Actual)
    ],
    ?assertEqual([], Differing).

%% Both may fail in the same way.
is_error({{returned, _}, _}) -> false;
is_error(_) -> true.

%% ---------------------------------------------------------------- the machinery of this suite

%% The programs meet a server that has drained: behind the fillers more casts wait than are in the mailbox.
drains(_) ->
    Casts = lists:seq(6, 1, -1),
    Program = fun(_, Pid) ->
        backlog(Pid, fun() ->
            [
                do(Pid, Behind, fun(_, #{tell := Tell} = State) ->
                    {message_queue_len, Length} = process_info(self(), message_queue_len),
                    Tell ! {mailbox, Length < Behind},
                    {noreply, State}
                end)
             || Behind <- Casts
            ],
            gen_server:cast(Pid, done)
        end),
        [Fewer || {mailbox, Fewer} <- events({cast, done})]
    end,
    [?assertEqual({{returned, [false || _ <- Casts]}, []}, run(gen_server, weir_server_probe, [], Program))] ++
        [
            begin
                {{returned, Fewer}, []} = run(weir_server, Mod, Options, Program),
                ?assert(lists:member(true, Fewer), {Mod, Options})
            end
         || {Mod, Options} <- plain() ++ batches() -- [{weir_server_idioms, [{batch_bytes, 1}]}]
        ].

%% waiting/0 is what gen_server has in its mailbox: what was drained, and the one info behind it, wherever that is.
%% There are fewer than are handled between two looks, so it is exact.
waiting_counts_all(_) ->
    Programs = [
        {{casts, Casts, infos, Infos}, fun(S, Pid) ->
            Held = hold(Pid),
            do(Pid, count, fun(_, #{tell := Tell} = State) ->
                Tell ! {waiting, waiting(S)},
                {noreply, State}
            end),
            casts(Pid, Casts),
            times(Infos, fun(I) -> Pid ! I end),
            Pid ! done,
            release(Pid, Held),
            [Waiting || {waiting, Waiting} <- events({info, done})]
        end}
     || Casts <- [0, 3], Infos <- [0, 1, 5]
    ],
    same(plain(), Programs).

waiting(gen_server) -> element(2, process_info(self(), message_queue_len));
waiting(weir_server) -> weir_server:waiting().

%% ---------------------------------------------------------------- the end

stop_throws_nothing_away(_) ->
    same(plain(), [{{Way, N}, ends(Way, N, late)} || Way <- ways(), N <- [1, 3, 100, 1000]]).

stop_of_an_idle_server(_) ->
    same(plain() ++ batches(), [
        {{Way, N}, fun(_, Pid) ->
            casts(Pid, N),
            Result = end_it(Way, Pid),
            {Result, told(Pid)}
        end}
     || Way <- ways(), N <- [1, 1000]
    ]).

%% What is sent behind a stop may be in the same batch as what was sent before it, so nothing is.
stop_with_batches(_) ->
    same(batches(), [{{Way, N}, ends(Way, N, none)} || Way <- ways(), N <- [1, 3, 100, 1000]]).

%% Nothing of what was drained or not is handled, and terminate/2 is not run.
kill_is_a_kill(_) ->
    same(plain() ++ batches(), [
        {{How, N}, fun(_, Pid) ->
            Held = hold(Pid),
            casts(Pid, N),
            kill(How, Pid),
            release(Pid, Held),
            {next_exit(Pid), weir_server_same:mailbox()}
        end}
     || How <- [at_once, behind_stop], N <- [1, 1000]
    ]),
    %% Drained already: it is inside the callback of a drained one.
    same(plain() ++ batches(), [
        {drained, fun(_, Pid) ->
            Ref = make_ref(),
            Self = self(),
            backlog(Pid, fun() ->
                gen_server:cast(Pid, {hold, Ref, Self}),
                casts(Pid, 100)
            end),
            ok = weir_server_loop_lib:held(Ref),
            exit(Pid, kill),
            {next_exit(Pid), [E || E <- weir_server_same:mailbox(), E =/= {cast, pushed}, element(1, E) =/= held]}
        end}
    ]).

kill(at_once, Pid) ->
    exit(Pid, kill);
kill(behind_stop, Pid) ->
    ask(Pid, stopped, state),
    exit(Pid, shutdown),
    exit(Pid, kill).

%% The time that a supervisor gives is the user's measure, as with gen_server: what takes longer is cut off, and all
%% else is handled.
supervisor_shuts_down(_) ->
    [
        ?assertEqual(
            {S, Mod, Options, {{returned, Expected}, []}},
            {S, Mod, Options, weir_server_same:run(S, fun(_) -> shut_down(S, Mod, Options, Time, Work) end)}
        )
     || {S, Mod, Options} <-
            [{gen_server, weir_server_probe, []}] ++ [{weir_server, M, O} || {M, O} <- plain() ++ batches()],
        {Time, Work, Expected} <- [
            {200, fun() -> receive after 50 -> ok end end, {killed, cut_off}},
            {infinity, fun() -> spin(50) end, {shutdown, lists:seq(1, 1000)}}
        ]
    ].

shut_down(S, Mod, Options, Time, Work) ->
    Start = {S, start_link, [Mod, #{tell => self(), trap_exit => true}, Options]},
    {ok, Sup} = supervisor:start_link(?MODULE, #{id => server, start => Start, shutdown => Time}),
    [{server, Pid, worker, _}] = supervisor:which_children(Sup),
    Ref = monitor(process, Pid),
    Held = hold(Pid),
    times(1000, fun(N) ->
        do(Pid, N, fun(_, State) ->
            Work(),
            {noreply, State}
        end)
    end),
    release(Pid, Held),
    ok = supervisor:terminate_child(Sup, server),
    Reason = weir_server_loop_lib:down(Ref, Pid),
    Events = weir_server_same:mailbox(),
    true = unlink(Sup),
    ok = gen_server:stop(Sup),
    Told = [N || {cast, N} <- Events, is_integer(N)],
    case lists:member({terminated, Pid, shutdown}, Events) of
        true -> {Reason, Told};
        false when length(Told) < 1000 -> {Reason, cut_off}
    end.

init(Child) -> {ok, {#{}, [Child]}}.

%% ---------------------------------------------------------------- suspended

%% Whoever suspends a server is not the only one who talks to it: what `sys' looks for in the mailbox meanwhile has
%% arrived before, and may have been drained.
system_messages_of_a_suspended_server(_) ->
    same(plain() ++ batches() ++ priorities(), [
        {{Between, Waiting}, fun(_, Pid) ->
            backlog(Pid, fun() ->
                suspended(Pid, Between, Waiting),
                Pid ! {system, {self(), resumed}, resume},
                gen_server:cast(Pid, done)
            end),
            %% A batch is handled before the suspension that is met in it.
            lists:sort(seen(Between + length(Waiting) + 3))
        end}
     || Between <- [0, 1, 40], Waiting <- [[], [state], [state, state]]
    ]).

end_of_a_suspended_server(_) ->
    same(plain() ++ batches() ++ priorities(), [
        {{Between, Waiting, Way}, fun(_, Pid) ->
            backlog(Pid, fun() ->
                suspended(Pid, Between, Waiting),
                case Way of
                    parent -> exit(Pid, shutdown);
                    terminate -> Pid ! {system, {self(), ends}, {terminate, shutdown}}
                end
            end),
            {Reason, Events} = told(Pid),
            %% With batches the casts may have been handled before the suspension is met.
            {Reason, [Event || Event <- Events, not is_number(element(2, Event))]}
        end}
     || Between <- [0, 1, 40], Waiting <- [[], [state]], Way <- [parent, terminate]
    ]).

seen(0) ->
    [];
seen(N) ->
    case weir_server_loop_lib:next() of
        {cast, pushed} -> seen(N);
        {cast, {hold, _}} -> seen(N);
        Event -> [Event | seen(N - 1)]
    end.

suspended(Pid, Between, Waiting) ->
    Pid ! {system, {self(), suspended}, suspend},
    casts(Pid, Between),
    [ask(Pid, Kind, Kind) || Kind <- Waiting].

%% ---------------------------------------------------------------- time-outs and hibernation

followers() ->
    [
        [], [ack], [state], [with_state], [ack, ack, ack, ack], [state, ack], [ack, with_state, state],
        [with_state, ack], [with_state, state]
    ].

%% The time-out is asked for by the last callback, with requests behind it that are none of the callbacks' business.
timeout_behind_drained(_) ->
    same(plain() ++ batches(), [{{?TIME_OUT, Requests}, times_out(?TIME_OUT, Requests)} || Requests <- followers()]).

timeout_actions(_) ->
    same(plain() ++ batches(), [
        {{Action, Requests}, Program(Action, Requests)}
     || Action <- [{timeout, ?TIME_OUT, timeout}, {hibernate, ?TIME_OUT, timeout}],
        Requests <- followers(),
        Program <- [
            fun weir_server_programs:times_out/2, fun times_out_with_requests_only/2,
            fun times_out_with_late_requests/2
        ]
    ]).

%% Whole: requests that come faster than the time-out keep it from running out for longer than it takes. If they came
%% slower, on a machine that is busy, that showed nothing.
timeout_starts_again(Config) ->
    Slowest = atomics:new(1, []),
    try
        timeout_starts_again_with(Slowest)
    catch
        error:Reason:Stack ->
            atomics:get(Slowest, 1) >= 400 orelse erlang:raise(error, Reason, Stack),
            timeout_starts_again(Config)
    end.

timeout_starts_again_with(Slowest) ->
    Requests = [state, ack, with_state, state, ack, with_state, state, ack, with_state],
    Variants = [
        {weir_server_probe, []}, {weir_server_probe, [{drain, {1000, 1000}}]}, {weir_server_probe, [{max_queue, 1000}]},
        {weir_server_idioms, []}
    ],
    Program = fun(S, Pid) ->
        Began = erlang:monotonic_time(millisecond),
        backlog(Pid, fun() -> do(Pid, asks, returns(500)) end),
        _ = [erlang:send_after(100 * I, self(), {ask, I}) || I <- lists:seq(1, length(Requests))],
        %% Between two of them the server waits no longer than from when the first is sent until the second is answered.
        {_, Answers} = lists:foldl(
            fun
                ({_, with_state}, {Last, Answers}) when S =:= gen_server ->
                    {Last, Answers};
                ({I, Kind}, {Last, Answers}) ->
                    receive {ask, I} -> ok end,
                    Now = erlang:monotonic_time(millisecond),
                    Answer = {Kind, answer(Kind, Pid)},
                    Slow = erlang:monotonic_time(millisecond) - Last,
                    atomics:put(Slowest, 1, max(Slow, atomics:get(Slowest, 1))),
                    {Now, Answers ++ early() ++ [Answer]}
            end,
            {Began, []},
            lists:enumerate(Requests)
        ),
        comparable(S, with_states(Requests), Answers ++ [Event || Event <- events({info, timeout}), not is_ask(Event)])
    end,
    %% They wait most of the time, so all at the same time.
    Running = [spawn_monitor(fun() -> same([Variant], [{starts_again, Program}]) end) || Variant <- Variants],
    Ends = [receive {'DOWN', Ref, process, Pid, Reason} -> Reason end || {Pid, Ref} <- Running],
    ?assertEqual([normal], lists:usort(Ends)).

answer(state, Pid) -> sys:get_state(Pid, infinity);
answer(ack, Pid) -> sys:statistics(Pid, get, infinity);
answer(with_state, Pid) -> weir_server:with_state(Pid, fun(#{n := N}) -> N end).

%% A time-out that was told before an answer. It is waited for later.
early() ->
    receive
        {info, timeout} = Event ->
            self() ! Event,
            [early]
    after 0 -> []
    end.

is_ask({ask, _}) -> true;
is_ask(_) -> false.

%% Nothing but requests is in the next chunk or batch.
timeout_and_requests_only(_) ->
    same(plain() ++ batches(), [
        {{?TIME_OUT, Requests}, times_out_with_requests_only(?TIME_OUT, Requests)} || Requests <- followers()
    ]).

times_out_with_requests_only(Action, Requests) ->
    fun(S, Pid) ->
        Ref = make_ref(),
        Self = self(),
        backlog(Pid, fun() ->
            do(Pid, asks, fun(From, State) ->
                _ = weir_server_probe:run({hold, Ref, Self}, undefined, State),
                (returns(action(S, Action)))(From, State)
            end)
        end),
        ok = weir_server_loop_lib:held(Ref),
        [request(S, Pid, Kind) || Kind <- Requests],
        release(Pid, Ref),
        comparable(S, with_states(Requests), events({info, timeout}))
    end.

%% The requests come while it waits, or shortly after: whether before the time-out or behind it is not known.
timeout_and_late_requests(_) ->
    same(plain() ++ batches(), [
        {{?TIME_OUT, Requests}, times_out_with_late_requests(?TIME_OUT, Requests)} || Requests <- followers()
    ]).

times_out_with_late_requests(Action, Requests) ->
    fun(S, Pid) ->
        backlog(Pid, fun() ->
            casts(Pid, 5),
            do(Pid, asks, returns(action(S, Action)))
        end),
        Before = events({cast, asks}),
        [request(S, Pid, Kind) || Kind <- Requests],
        Sent =
            case S of
                gen_server -> length(Requests) - with_states(Requests);
                weir_server -> length(Requests)
            end,
        {Before, lists:sort(comparable(S, with_states(Requests), next(Sent + 1)))}
    end.

next(N) -> [weir_server_loop_lib:next() || _ <- lists:seq(1, N)].

%% A time-out of 0 is one only if no message waits, drained or not; a request that no callback sees is no message.
timeout_of_nothing(_) ->
    same(plain(), [
        {Requests, fun(S, Pid) ->
            backlog(Pid, fun() ->
                do(Pid, asks, returns(0)),
                casts(Pid, 2),
                do(Pid, asks, returns(0)),
                Pid ! info,
                do(Pid, asks, returns(0)),
                [request(S, Pid, Kind) || Kind <- Requests],
                casts(Pid, 2),
                do(Pid, asks, returns(0)),
                [request(S, Pid, Kind) || Kind <- Requests]
            end),
            comparable(S, 2 * with_states(Requests), events({info, timeout}))
        end}
     || Requests <- followers()
    ]).

%% It sleeps in the end, and sleeps again after what no callback sees.
hibernation(_) ->
    same(plain() ++ batches(), [
        {Requests, fun(S, Pid) ->
            backlog(Pid, fun() ->
                do(Pid, sleeps, returns(hibernate)),
                casts(Pid, 3),
                do(Pid, sleeps, returns(hibernate)),
                [request(S, Pid, Kind) || Kind <- Requests]
            end),
            sleeps_again(S, Pid, Requests)
        end}
     || Requests <- followers()
    ]).

hibernation_after(_) ->
    same(plain() ++ batches(), [{hibernate_after, ?TIME_OUT}], [
        {Requests, fun(S, Pid) ->
            backlog(Pid, fun() ->
                casts(Pid, 3),
                [request(S, Pid, Kind) || Kind <- Requests]
            end),
            sleeps_again(S, Pid, Requests)
        end}
     || Requests <- followers()
    ]).

sleeps_again(S, Pid, Requests) ->
    until(fun() -> sleeps(Pid) end),
    [request(S, Pid, Kind) || Kind <- Requests],
    %% Answered by a process that sleeps: so it has woken and sleeps again.
    Answers = 2 * (length(Requests) - with_states(Requests)),
    until(fun() -> answers() >= Answers end),
    until(fun() -> sleeps(Pid) end),
    gen_server:cast(Pid, wakes),
    comparable(S, 2 * with_states(Requests), events({cast, wakes})).

answers() -> length([Kind || {Kind, _} <- weir_server_same:mailbox(), Kind =:= ack orelse Kind =:= state]).

%% The function has its name by the release; a weir_server that waits before it sleeps is in a function of its loop.
sleeps(Pid) ->
    {current_function, {Mod, Function, _}} = process_info(Pid, current_function),
    Mod =/= weir_server_loop andalso string:find(atom_to_list(Function), "hibernate") =/= nomatch.

%% ---------------------------------------------------------------- infos while casts flood

-define(INFOS, 50).

infos_while_casts_flood(_) ->
    Variants = [
        {Mod, [{max_queue, 20}, {overload, Overload}]}
     || Mod <- [weir_server_probe, weir_server_idioms], Overload <- [reject, drop_oldest, drop_newest]
    ],
    same(Variants, [{Kind, floods(Kind)} || Kind <- [closed, down, exit, reply, timer, send_after]]).

%% Half of them come while the server is held, half while it works. Only these are counted: casts may be dropped.
floods(Kind) ->
    fun(_, Pid) ->
        Triggers = asked_for(Kind, Pid),
        {Held, Free} = lists:split(?INFOS div 2, Triggers),
        backlog(Pid, fun() -> [flood(Trigger, Pid) || Trigger <- Held] end),
        [flood(Trigger, Pid) || Trigger <- Free],
        lists:sort([told_of(Kind) || _ <- Triggers])
    end.

flood(Trigger, Pid) ->
    casts(Pid, 10),
    Trigger(),
    casts(Pid, 10).

%% Has the server ask for what it is to be sent: funs that have it sent, one each.
asked_for(closed, Pid) ->
    [fun() -> Pid ! {tcp_closed, I} end || I <- lists:seq(1, ?INFOS)];
asked_for(down, Pid) ->
    Processes = [process() || _ <- lists:seq(1, ?INFOS)],
    asks(Pid, fun() -> [monitor(process, P) || P <- Processes] end),
    [fun() -> P ! {exit, I} end || {I, P} <- lists:zip(lists:seq(1, ?INFOS), Processes)];
asked_for(exit, Pid) ->
    Processes = [process() || _ <- lists:seq(1, ?INFOS)],
    asks(Pid, fun() -> [link(P) || P <- Processes] end),
    [fun() -> P ! {exit, I} end || {I, P} <- lists:zip(lists:seq(1, ?INFOS), Processes)];
asked_for(reply, Pid) ->
    Self = self(),
    asks(Pid, fun() -> [gen_server:send_request(Self, I) || I <- lists:seq(1, ?INFOS)] end),
    [
        receive
            {'$gen_call', From, I} -> fun() -> gen_server:reply(From, I) end
        end
     || I <- lists:seq(1, ?INFOS)
    ];
asked_for(timer, Pid) ->
    [fun() -> erlang:start_timer(1, Pid, I) end || I <- lists:seq(1, ?INFOS)];
asked_for(send_after, Pid) ->
    [fun() -> erlang:send_after(0, Pid, {after_all, I}) end || I <- lists:seq(1, ?INFOS)].

%% The server does it, before anything else is sent to it.
asks(Pid, Fun) ->
    do(Pid, asks, fun(_, State) -> {noreply, State#{asked => Fun()}} end),
    [] = events({cast, asks}).

told_of(Kind) ->
    receive
        {info, {tcp_closed, I}} when Kind =:= closed -> I;
        {info, {'DOWN', _, process, _, I}} when Kind =:= down -> I;
        {info, {'EXIT', _, I}} when Kind =:= exit -> I;
        {info, {_, I}} when Kind =:= reply, is_integer(I) -> I;
        {info, {timeout, _, I}} when Kind =:= timer -> I;
        {info, {after_all, I}} when Kind =:= send_after -> I
    after weir_kit:wait_ms() -> error({never, Kind, weir_kit:messages()})
    end.

%% Waits to be told why to exit.
process() ->
    spawn(fun() ->
        receive
            {exit, Reason} -> exit(Reason)
        end
    end).

%% ---------------------------------------------------------------- what an earlier callback asked for

%% `Ask': what an earlier callback does. `Trigger': has the message sent that was asked for, given what Ask gave.
%% `Look': what a later callback does, with the same; what it gives is compared. The message comes behind the cast that
%% looks for it, so that gen_server finds it.
looks(Ask, Trigger, Look) ->
    Befores =
        case release_number() >= 28 of
            true -> [[], [other], [other, other]];
            false -> [[other], [other, other]]
        end,
    same(plain(), [
        {{Before, Behind}, looks(Before, Behind, Ask, Trigger, Look)} || Before <- Befores, Behind <- [0, 50]
    ]).

looks(Before, Behind, Ask, Trigger, Look) ->
    fun(_, Pid) ->
        Self = self(),
        do(Pid, asks, fun(_, State) ->
            Asked = Ask(),
            Self ! {asked, Asked},
            {noreply, State#{asked => Asked}}
        end),
        Asked =
            receive
                {asked, A} -> A
            after weir_kit:wait_ms() -> error({never, asked, weir_kit:messages()})
            end,
        backlog(Pid, fun() ->
            do(Pid, looks, fun(_, #{asked := For} = State) ->
                Self ! {found, Look(For)},
                {noreply, maps:remove(asked, State)}
            end),
            [Pid ! Info || Info <- Before],
            Length = queue_len(Pid),
            Trigger(Asked),
            until_more_than(Length, Pid),
            casts(Pid, Behind)
        end),
        %% An info: all else is before it.
        Pid ! done,
        events({info, done})
    end.

awaits_down(_) ->
    looks(
        fun() -> spawn_monitor(fun() -> receive {exit, Reason} -> exit(Reason) end end) end,
        fun({P, _}) -> P ! {exit, gone} end,
        fun({P, Ref}) -> receive {'DOWN', Ref, process, P, Reason} -> Reason after weir_kit:wait_ms() -> lost end end
    ).

awaits_exit(_) ->
    looks(
        fun() -> spawn_link(fun() -> receive {exit, Reason} -> exit(Reason) end end) end,
        fun(P) -> P ! {exit, gone} end,
        fun(P) -> receive {'EXIT', P, Reason} -> Reason after weir_kit:wait_ms() -> lost end end
    ).

%% The program ends when it has read a line. Behind the status comes the port's exit, which is received, too.
awaits_port(_) ->
    looks(
        fun() -> open_port({spawn, "sh -c 'read line; exit 3'"}, [exit_status]) end,
        fun(Port) -> true = port_command(Port, "go\n") end,
        fun(Port) ->
            receive
                {Port, {exit_status, Status}} ->
                    receive {'EXIT', Port, Reason} -> {Status, Reason} after weir_kit:wait_ms() -> {Status, lost} end
            after weir_kit:wait_ms() -> lost
            end
        end
    ).

awaits_message(_) ->
    looks(
        fun() ->
            Server = self(),
            Ref = make_ref(),
            {spawn(fun() -> receive go -> Server ! {Ref, value} end end), Ref}
        end,
        fun({P, _}) -> P ! go end,
        fun({_, Ref}) -> receive {Ref, Value} -> Value after weir_kit:wait_ms() -> lost end end
    ).

awaits_response(_) ->
    [
        looks(
            fun weir_server_programs:sends_request/0,
            fun({P, _}) -> P ! go end,
            fun({_, Request}) -> Look(Request) end
        )
     || Look <- [
            fun(Request) -> gen_server:receive_response(Request, weir_kit:wait_ms()) end,
            fun(Request) -> gen_server:wait_response(Request, weir_kit:wait_ms()) end,
            fun(Request) -> weir_server:receive_response(Request, weir_kit:wait_ms()) end,
            %% No later than now.
            fun(Request) -> gen_server:receive_response(Request, 0) end
        ]
    ].

awaits_responses(_) ->
    looks(
        fun() ->
            P = answers_once(),
            {P, gen_server:send_request(P, question, label, gen_server:reqids_new())}
        end,
        fun({P, _}) -> P ! go end,
        fun({_, Requests}) ->
            {Response, label, Left} = gen_server:receive_response(Requests, weir_kit:wait_ms(), true),
            {Response, gen_server:reqids_size(Left)}
        end
    ).

%% An active socket of the server's, and the other end of it, which is the listening process's.
socket() ->
    Server = self(),
    Peer = spawn(fun() ->
        {ok, Listening} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}]),
        {ok, Port} = inet:port(Listening),
        Server ! {self(), Port},
        {ok, Accepted} = gen_tcp:accept(Listening),
        Ref = monitor(process, Server),
        receive
            {send, Data} ->
                ok = gen_tcp:send(Accepted, Data),
                receive {'DOWN', Ref, process, Server, _} -> ok end
        end
    end),
    receive
        {Peer, Port} ->
            {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, true}]),
            {Peer, Socket}
    end.

awaits_socket(_) ->
    looks(
        fun socket/0,
        fun({Peer, _}) -> Peer ! {send, <<"data">>} end,
        fun({_, Socket}) -> receive {tcp, Socket, Data} -> Data after weir_kit:wait_ms() -> lost end end
    ).

%% What has arrived already is handed on to the new owner.
gives_socket_away(_) ->
    looks(
        fun socket/0,
        fun({Peer, _}) -> Peer ! {send, <<"data">>} end,
        fun({_, Socket}) ->
            Server = self(),
            %% It lives until the server, which is still giving the socket away when it gets the data, has ended.
            Owner = spawn(fun() ->
                Ref = monitor(process, Server),
                receive {tcp, Socket, Data} -> Server ! {self(), Data} end,
                receive {'DOWN', Ref, process, Server, _} -> ok end
            end),
            Given = gen_tcp:controlling_process(Socket, Owner),
            receive {Owner, Data} -> {Given, Data} after weir_kit:wait_ms() -> {Given, lost} end
        end
    ).

flushes_monitor(_) ->
    Monitored = fun() -> spawn_monitor(fun() -> receive {exit, Reason} -> exit(Reason) end end) end,
    Exits = fun({P, _}) -> P ! {exit, gone} end,
    looks(Monitored, Exits, fun({_, Ref}) -> demonitor(Ref, [flush]) end),
    looks(Monitored, Exits, fun({_, Ref}) -> demonitor(Ref, [flush, info]) end),
    looks(Monitored, Exits, fun({_, Ref}) ->
        true = demonitor(Ref),
        receive {'DOWN', Ref, _, _, _} -> flushed after 0 -> nothing end
    end).

%% The timer is started by whoever sends, so that it is known when it runs out.
flushes_timer(_) ->
    looks(
        fun() -> {self(), ets:new(timer, [public])} end,
        fun({Server, Table}) -> ets:insert(Table, {timer, erlang:start_timer(0, Server, time_up)}) end,
        fun({_, Table}) ->
            [{timer, Timer}] = ets:lookup(Table, timer),
            Left = erlang:cancel_timer(Timer),
            receive {timeout, Timer, Message} -> {Left, flushed, Message} after 0 -> {Left, nothing} end
        end
    ).

flushes_link(_) ->
    looks(
        fun() -> spawn_link(fun() -> receive {exit, Reason} -> exit(Reason) end end) end,
        fun(P) -> P ! {exit, gone} end,
        fun(P) ->
            true = unlink(P),
            receive {'EXIT', P, _} -> flushed after 0 -> nothing end
        end
    ).

%% A request that is given up: its answer is flushed with its monitor.
flushes_request(_) ->
    looks(
        fun weir_server_programs:sends_request/0,
        fun({P, _}) -> P ! go end,
        fun({_, Request}) ->
            true = demonitor(Request, [flush]),
            receive
                {[alias | Request], Answer} -> {flushed, Answer};
                {Request, Answer} -> {flushed, Answer}
            after 0 -> nothing
            end
        end
    ).

%% What was sent to an alias before it was given up is flushed, and what is sent after that does not come.
flushes_alias(_) ->
    looks(
        fun() -> {self(), erlang:alias()} end,
        fun({_, Alias}) -> Alias ! {late, Alias} end,
        fun({_, Alias}) ->
            true = erlang:unalias(Alias),
            Alias ! {too_late, Alias},
            [receive {Late, Alias} -> flushed after 0 -> nothing end || Late <- [late, too_late]]
        end
    ),
    looks(
        fun() ->
            P = spawn(fun() -> receive {exit, Reason} -> exit(Reason) end end),
            {P, monitor(process, P, [{alias, explicit_unalias}])}
        end,
        fun({_, Ref}) -> Ref ! {late, Ref} end,
        fun({P, Ref}) ->
            true = erlang:unalias(Ref),
            true = demonitor(Ref, [flush]),
            P ! {exit, gone},
            receive {late, Ref} -> flushed after 0 -> nothing end
        end
    ).

%% The exception of OTP 25 to 27: the first info behind what was drained is in the private queue, where a receive does
%% not find it; handle_info/2 is given it in its turn. With nothing drained ahead it is found there, too.
first_info_is_out(_) ->
    case release_number() >= 28 of
        true ->
            {skip, "from OTP 28 on no info is out of the mailbox"};
        false ->
            Program = looks(
                [],
                0,
                fun() -> {self(), make_ref()} end,
                fun({Server, Ref}) -> Server ! {Ref, value} end,
                fun({_, Ref}) -> receive {Ref, Value} -> Value after 0 -> nothing end end
            ),
            Found = {{returned, [{cast, asks}, {cast, looks}, {found, value}]}, []},
            Out = {{returned, [{cast, asks}, {cast, looks}, {found, nothing}, {info, {ref, value}}]}, []},
            ?assertEqual(Found, run(gen_server, weir_server_probe, [], Program)),
            ?assertEqual(Found, run(weir_server, weir_server_probe, [{drain, 1}], Program)),
            ?assertEqual(Out, run(weir_server, weir_server_probe, [{drain, {1000, 1000}}], Program)),
            ?assertEqual(Out, run(weir_server, weir_server_probe, [], Program))
    end.
