%% Random lives of servers: each step is a message or a request of `sys', and has been dealt with before the next one.
%% What the steps gave, how the server ended and what was logged must be the same with gen_server and weir_server.
-module(weir_server_lives_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, until/1, wait_ms/0]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

random_lives(_) ->
    weir_kit_property:holds(prop_lives(), [{numtests, weir_kit:long(150, 300)}, quiet]).

prop_lives() ->
    ?FORALL({Mod, Options, Drain, Steps}, {mod(), options(), drain(), list(step())}, begin
        Script = fun
            (gen_server) -> live(gen_server, Mod, Options, Steps);
            (weir_server) -> live(weir_server, Mod, Drain ++ Options, Steps)
        end,
        Expected = weir_server_same:run(gen_server, Script),
        Actual = weir_server_same:run(weir_server, Script),
        ?WHENFAIL(
            ct:pal("gen_server: ~p~nweir_server: ~p", [Expected, Actual]),
            Expected =:= Actual
        )
    end).

mod() -> oneof([weir_server_puppet, weir_server_puppet1]).

options() -> oneof([[], [{debug, [log]}], [{debug, [statistics, {log, 3}]}], [{hibernate_after, 0}]]).

drain() -> oneof([[], [{drain, 1}], [{drain, 2}], [{drain, {2, infinity}}]]).

step() ->
    frequency([
        {3, {call, result(call)}},
        {3, {cast, result(cast)}},
        {2, {info, result(info)}},
        {2, {sys, oneof([get_state, get_status, log, replace, raise, suspend, resume, change_code, what])}}
    ]).

result(Kind) ->
    frequency(
        [
            {6, {noreply, nat()}},
            {6, {noreply, nat(), action()}},
            {1, {stop, reason()}},
            {1, {raise, oneof([error, exit]), reason()}},
            {1, {bad, oneof([nonsense, {noreply, s, -1}, {reply}])}},
            {2, {throw, {noreply, nat(), action()}}}
        ] ++
            [{6, {reply, nat(), action()}} || Kind =:= call] ++
            [{1, {stop, reason(), last_word}} || Kind =:= call]
    ).

action() ->
    frequency([
        {3, oneof([infinity, hibernate, 600000])},
        {2, {continue, oneof([{noreply, nat()}, {stop, reason()}, {raise, error, oops}])}}
    ]).

reason() -> oneof([normal, shutdown, {shutdown, why}, oops]).

live(S, Mod, Options, Steps) ->
    Self = self(),
    State = #{
        terminate => fun(Reason, #{count := Count}) -> Self ! {terminating, Reason, Count} end,
        code_change => fun(_, St, Extra) -> {ok, St#{changed => Extra}} end,
        count => 0
    },
    {ok, Pid} = S:start(Mod, fun() -> {ok, State} end, Options),
    Ref = monitor(process, Pid),
    Seen = steps(Steps, S, Pid, false),
    Ended = try S:stop(Pid) catch exit:_ -> dead end,
    receive {'DOWN', Ref, process, Pid, Down} -> {Seen, Ended, Down, weir_server_same:mailbox()} end.

%% A suspended server answers `sys' alone, so the messages wait until it is resumed.
steps([{sys, What} | Steps], S, Pid, Suspended) ->
    Seen = sys_step(What, Pid),
    Now = What =:= suspend orelse (Suspended andalso What =/= resume),
    [Seen | next(Steps, S, Pid, Now)];
steps([_ | Steps], S, Pid, true) ->
    steps(Steps, S, Pid, true);
steps([{Kind, Result} | Steps], S, Pid, false) ->
    Seen =
        case Kind of
            call ->
                Do = fun(From, State) -> reply_first(S, Result, From), do(Result, State) end,
                caught(fun() -> S:call(Pid, Do, wait_ms()) end);
            cast -> S:cast(Pid, fun(State) -> do(Result, State) end);
            info -> Pid ! fun(State) -> do(Result, State) end, sent
        end,
    [Seen | next(Steps, S, Pid, false)];
steps([], _, Pid, true) ->
    [sys:resume(Pid, wait_ms())];
steps([], _, _, false) ->
    [].

%% Whether the server lives is known when it has answered a call: whatever it was sent before has been dealt with.
next(Steps, S, Pid, Suspended) ->
    Ask =
        case Suspended of
            true -> fun() -> sys:get_state(Pid, wait_ms()) end;
            false -> fun() -> S:call(Pid, state, wait_ms()) end
        end,
    try Ask() of
        State -> [State | steps(Steps, S, Pid, Suspended)]
    catch
        exit:_ -> [dead]
    end.

sys_step(get_state, Pid) -> sys:get_state(Pid, wait_ms());
sys_step(get_status, Pid) -> sys:get_status(Pid, wait_ms());
sys_step(log, Pid) -> sys:log(Pid, get, wait_ms());
sys_step(replace, Pid) -> sys:replace_state(Pid, fun(State) -> State#{replaced => x} end, wait_ms());
sys_step(raise, Pid) -> caught(fun() -> sys:replace_state(Pid, fun(_) -> error(oops) end, wait_ms()) end);
sys_step(suspend, Pid) -> sys:suspend(Pid, wait_ms());
sys_step(resume, Pid) -> sys:resume(Pid, wait_ms());
sys_step(change_code, Pid) -> caught(fun() -> sys:change_code(Pid, weir_server_puppet, "1", extra, wait_ms()) end);
sys_step(what, Pid) ->
    Ref = make_ref(),
    Pid ! {system, {self(), Ref}, what},
    receive {Ref, Answer} -> Answer end.

caught(Fun) ->
    try Fun() catch Class:Reason -> {Class, Reason} end.

%% A call that is not answered by what its callback returns is answered before.
reply_first(S, {noreply, _}, From) -> S:reply(From, early);
reply_first(S, {noreply, _, _}, From) -> S:reply(From, early);
reply_first(S, {throw, _}, From) -> S:reply(From, early);
reply_first(_, _, _) -> ok.

do({noreply, N}, State) -> {noreply, add(N, State)};
do({noreply, N, Action}, State) -> {noreply, add(N, State), action(Action)};
do({reply, N, Action}, State) -> {reply, N, add(N, State), action(Action)};
do({stop, Reason}, State) -> {stop, Reason, State};
do({stop, Reason, Reply}, State) -> {stop, Reason, Reply, State};
do({raise, Class, Reason}, _) -> erlang:Class(Reason);
do({bad, Returned}, _) -> Returned;
do({throw, Result}, State) -> throw(do(Result, State)).

action({continue, Result}) -> {continue, fun(State) -> do(Result, State) end};
action(Action) -> Action.

add(N, #{count := Count} = State) -> State#{count := Count + N}.

%% With a drain of one, nothing is taken from the mailbox that a callback may want to receive or to flush.
flushes(_) ->
    Script = fun(Options) ->
        fun(S) ->
            Self = self(),
            {ok, Pid} = S:start(weir_server_puppet, fun() -> {ok, #{}} end, Options),
            {Other, _} = spawn_monitor(fun() -> receive stop -> ok end end),
            Monitor = S:call(Pid, fun(_, State) -> {reply, monitor(process, Other), State} end, wait_ms()),
            S:cast(Pid, fun(State) -> Self ! held, receive {go, Self} -> {noreply, State} end end),
            receive held -> ok end,
            Flush = fun(_, State) ->
                Flushed = demonitor(Monitor, [flush, info]),
                Received = receive {stale, X} -> X after 0 -> none end,
                {reply, {Flushed, Received}, State}
            end,
            Request = S:send_request(Pid, Flush),
            Pid ! {stale, 1},
            Pid ! not_stale,
            Other ! stop,
            until(fun() -> queue_len(Pid) =:= 4 end),
            Pid ! {go, Self},
            {S:receive_response(Request, infinity), S:call(Pid, state, wait_ms()), S:stop(Pid)}
        end
    end,
    Expected = weir_server_same:run(gen_server, Script([])),
    ?assertMatch({{returned, {{reply, {false, 1}}, #{infos := [not_stale]}, ok}}, []}, Expected),
    ?assertEqual(Expected, weir_server_same:run(weir_server, Script([{drain, 1}]))).
