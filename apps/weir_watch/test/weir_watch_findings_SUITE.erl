%% What an agent finds out about a suspect: who it is, whom it waits for, who sends to it, and how much it handles.
-module(weir_watch_findings_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_watch_test_lib, [snapshot_of/1, subscribed/0, received/1, next/1, suspect/2, links/1]).
-import(weir_kit, [until/1, until_value/1, wait_ms/0]).

%% Cases that wait for an agent of their own and do little. The processes in trouble of one case are among the twenty
%% suspects of all these agents, so each case has few. Cases with many have a node of their own. A case that counts the
%% tracers of its agent is not among them.
-define(WAITING, [who_it_is, who_it_is_later, shapes_not_contents, waits_for_whom, in_front_of_a_cycle,
    turn_without_pids]).

all() -> [{group, side_by_side} | weir_kit:cases(?MODULE) -- ?WAITING].

groups() -> [{side_by_side, [parallel], ?WAITING}].

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

%% One who was drawn seven times is one; and 1 % of very many are seen in part.
estimates(_Config) ->
    ?assertEqual(1, weir_watch_ask:estimate(7, 1, 900, 700)),
    ?assertEqual(1, weir_watch_ask:estimate(15, 1, 900, 60)),
    ?assertEqual(20, weir_watch_ask:estimate(300, 20, 900, 60)),
    ?assertEqual(10_000, weir_watch_ask:estimate(9, 9, 900, 1_000_000)),
    ?assertEqual(4, weir_watch_ask:estimate(5, 4, 0, 0)),
    %% Many who each wait for a moment are few at a time.
    ?assertEqual(1, weir_watch_ask:estimate(4, 4, 900, 300)).

%% At the limit of processes the scanner may have no pids: how many wait is told all the same.
turn_without_pids(_Config) ->
    Agent = subscribed(),
    {ok, Slow} = weir_watch_form_server:start(fun() -> none end, fun(_, S) -> receive never -> S end end),
    Callers = [spawn(fun() -> gen_server:call(Slow, work, infinity) end) || _ <- lists:seq(1, 50)],
    Waited = fun() -> case suspect(Slow, Agent) of #{waiters := Waiters} -> Waiters > 0; none -> false end end,
    until(Waited),
    [Scanner] = [Pid || Pid <- links(Agent), {_, {weir_watch_scan, init, 1}} <- [process_info(Pid, initial_call)]],
    true = erlang:suspend_process(Scanner),
    Agent ! {scan, Scanner, #{
        long => [], worked => [], stuck => [], running => [], samples => [], processes => 0, burst => false,
        bytes => 0, us => 0
    }},
    _ = [next(Agent) || _ <- [1, 2, 3]],
    ?assert(Waited()),
    ok = weir_watch_agent:stop(Agent),
    [exit(Pid, kill) || Pid <- [Slow | Callers]].

%% Two servers call each other. Who waits for one of them is in trouble, and not to blame.
in_front_of_a_cycle(_Config) ->
    Agent = subscribed(),
    Start = fun() ->
        {ok, Pid} = weir_watch_form_server:start(fun() -> none end, fun(Callee, S) ->
            gen_server:call(Callee, work, infinity),
            S
        end),
        Pid
    end,
    [Front, First, Second] = [Start() || _ <- [1, 2, 3]],
    [gen_server:cast(Pid, Callee) || {Pid, Callee} <- [{First, Second}, {Second, First}, {Front, First}]],
    Callers = [spawn(fun() -> gen_server:call(Front, work, infinity) end) || _ <- lists:seq(1, 50)],
    ok = weir_watch_agent:inspect(Agent, Front),
    Diagnosed = fun() ->
        #{diagnoses := Diagnoses} = next(Agent),
        lists:sort([Pid || #{pid := Pid, cause := deadlock} <- Diagnoses])
    end,
    until(fun() -> [First, Second] -- Diagnosed() =:= [] end),
    %% It is looked at for longer than these.
    ?assertMatch(#{chain := [First | _]}, suspect(Front, Agent)),
    ?assertEqual([lists:sort([First, Second]) || _ <- [1, 2, 3]], [Diagnosed() || _ <- [1, 2, 3]]),
    ok = weir_watch_agent:stop(Agent),
    [exit(Pid, kill) || Pid <- [Front, First, Second | Callers]].

%% Only in a call does a process wait for one whom it monitors, and then only if it monitors no other.
callee_of_a_call(_Config) ->
    Me = self(),
    {ok, Slow} = weir_watch_form_server:start(fun() -> none end, fun(_, S) -> receive never -> S end end),
    {ok, Server} = weir_watch_form_server:start(fun() -> monitor(process, Me) end, fun
        (quit, S) -> true = demonitor(S), S;
        (call, S) -> gen_server:call(Slow, work, infinity), S
    end),
    Callee = fun() ->
        Looker = weir_watch_look:start_link(Server, all),
        #{callee := Its} = receive {looked, Looker, Look} -> Look after wait_ms() -> error(no_look) end,
        true = unlink(Looker),
        exit(Looker, kill),
        Its
    end,
    Calls = fun(Pid) ->
        until(fun() -> process_info(Pid, current_function) =:= {current_function, {gen, do_call, 4}} end)
    end,
    ?assertEqual(unknown, Callee()),
    ok = gen_server:call(Server, quit, infinity),
    gen_server:cast(Server, call),
    Calls(Server),
    ?assertEqual(Slow, Callee()),
    exit(Server, kill),
    {ok, Other} = weir_watch_form_server:start(fun() -> monitor(process, Me) end, fun(_, S) ->
        gen_server:call(Slow, work, infinity),
        S
    end),
    gen_server:cast(Other, call),
    Calls(Other),
    ?assertEqual(error, weir_watch_ask:called(Other)),
    exit(Other, kill),
    exit(Slow, kill).

%% Of several that it monitors nobody can tell whom it calls.
callees(_Config) ->
    Me = self(),
    Name = {logger, node()},
    ?assertEqual({ok, Me}, weir_watch_ask:callee([{process, Me}])),
    ?assertEqual({ok, whereis(logger)}, weir_watch_ask:callee([{process, Name}])),
    [?assertEqual(error, weir_watch_ask:callee(Monitors)) || Monitors <- [
        [], [{process, Me}, {process, Name}], [{process, {logger, 'other@host'}}], [{port, hd(erlang:ports())}],
        [{process, Me}, {process, {logger, 'other@host'}}]
    ]].

%% Where OTP's behaviours wait for the next message, awake or hibernating.
idle_functions(_Config) ->
    Init = fun() -> none end,
    Work = fun(_, State) -> State end,
    Options = [{hibernate_after, 1}],
    Awake = [
        element(2, weir_watch_form_server:start(Init, Work)), element(2, weir_watch_form_statem:start(Init, Work)),
        element(2, gen_event:start()), element(2, weir_server:start(weir_watch_form_server, {Init, Work}, []))
    ],
    Asleep = [
        element(2, gen_server:start(weir_watch_form_server, {Init, Work}, Options)),
        element(2, gen_statem:start(weir_watch_form_statem, {Init, Work}, Options)),
        element(2, gen_event:start(Options))
    ],
    Function = fun(Pid) -> element(2, process_info(Pid, current_function)) end,
    until(fun() -> lists:all(fun weir_watch_ask:is_loop/1, [Function(Pid) || Pid <- Awake]) end),
    Heap = fun(Pid) -> element(2, process_info(Pid, total_heap_size)) end,
    %% One that hibernates has hardly a heap.
    until(fun() -> lists:all(fun(Pid) -> Heap(Pid) < 233 end, Asleep) end),
    [?assertEqual({Function(Pid), true}, {Function(Pid), weir_watch_ask:is_loop(Function(Pid))}) || Pid <- Asleep],
    [exit(Pid, kill) || Pid <- Awake ++ Asleep].

%% Of processes as they are in a node.
who_it_is(_Config) ->
    Agent = subscribed(),
    Global = whereis(global_name_server),
    ok = weir_watch_agent:inspect(Agent, Global),
    ?assertMatch(
        #{name := global_name_server, module := global, application := kernel, supervisor := kernel_sup,
            ancestors := [kernel_sup, _Kernel], behaviour := gen_server, label := undefined, waits_for := undefined,
            chain := [], until_million := infinity},
        looked_at(Global, Agent)
    ),
    Labelled = spawn(fun() -> put('$process_label', {account, 1}), receive never -> ok end end),
    ok = weir_watch_agent:inspect(Agent, Labelled),
    ?assertMatch(
        #{name := undefined, module := undefined, behaviour := process, supervisor := undefined, ancestors := [],
            handled := undefined, arriving := undefined, label := <<"{account,1}">>},
        looked_at(Labelled, Agent)
    ),
    ok = weir_watch_agent:stop(Agent),
    exit(Labelled, kill).

%% Before OTP 26.2 the module of one whose heap is large, of 32 MB here, is not asked for until that has become smaller.
who_it_is_later(_Config) ->
    Agent = subscribed(),
    Me = self(),
    Large = fun() ->
        List = lists:seq(1, 2_000_000),
        Me ! filled,
        receive smaller -> true = length(List) > 0 end,
        true = erlang:garbage_collect(),
        Me ! emptied,
        receive never -> ok end
    end,
    Pid = proc_lib:spawn(fun() -> put('$initial_call', {?MODULE, init, 1}), Large() end),
    receive filled -> ok end,
    ok = weir_watch_agent:inspect(Agent, Pid),
    _ = looked_at(Pid, Agent),
    Pid ! smaller,
    receive emptied -> ok end,
    Module = fun() -> case suspect(Pid, Agent) of #{module := Known} -> Known; _ -> undefined end end,
    until(fun() -> Module() =:= ?MODULE end),
    ok = weir_watch_agent:stop(Agent),
    exit(Pid, kill).

%% Who has sent is forgotten when that is over: here with the next look, which asks for something else.
no_old_findings(_Config) ->
    Agent = subscribed(),
    {ok, Server} = weir_watch_form_server:start(fun() -> 0 end, fun
        (_, 0) -> receive '$go' -> 1 end;
        (_, N) -> N + 1
    end),
    [ok = gen_server:cast(Server, x) || _ <- lists:seq(1, 1500)],
    Sender = spawn_link(fun() -> casts(Server) end),
    ok = weir_watch_agent:inspect(Agent, Server),
    case weir_watch_trace:is_possible() of
        true ->
            until(fun() -> case suspect(Server, Agent) of #{senders := [Sender]} -> true; _ -> false end end),
            true = unlink(Sender),
            exit(Sender, kill),
            Server ! '$go',
            until(fun() -> case suspect(Server, Agent) of
                #{senders := [], sent_by := [], handled := 0, arriving := 0} -> true;
                _ -> false
            end end);
        false ->
            true = unlink(Sender),
            exit(Sender, kill)
    end,
    exit(Server, kill),
    ok = weir_watch_agent:stop(Agent).

%% One that is inspected, where the runtime has trace sessions.
what_it_handles(_Config) ->
    {Agent, Server, Caller} = called_and_inspected(),
    case weir_watch_trace:is_possible() of
        true -> ?assertMatch(#{arriving := Arriving} when is_integer(Arriving), handles(Server, Agent));
        false -> ?assertMatch(#{handled := undefined, arriving := undefined}, looked_at(Server, Agent))
    end,
    end_both(Caller, Server),
    ok = weir_watch_agent:stop(Agent),
    ?assertEqual(0, erlang:system_info(trace_control_word)).

%% A weir_server has counted it itself.
counts_itself(_Config) ->
    Agent = subscribed(),
    {ok, Server} = weir_server:start(weir_watch_form_server, {fun() -> 0 end, fun(_, N) -> N + 1 end}, []),
    Caller = spawn_link(fun() -> calls(Server) end),
    ok = weir_watch_agent:inspect(Agent, Server),
    ?assertMatch(#{arriving := Arriving, behaviour := weir_server} when is_integer(Arriving), handles(Server, Agent)),
    ?assertEqual([], tracers(Agent)),
    end_both(Caller, Server),
    %% It tells it after some messages: one that handles few is not told to handle none meanwhile.
    {ok, Slow} = weir_server:start(weir_watch_form_server, {fun() -> 0 end, fun(_, N) -> N + 1 end}, []),
    Sometimes = spawn_link(fun() -> calls_sometimes(Slow) end),
    ok = weir_watch_agent:inspect(Agent, Slow),
    _ = handles(Slow, Agent),
    _ = received(Agent),
    Told = [
        begin
            ok = weir_watch_agent:next(Agent),
            #{suspects := Suspects} = received(Agent),
            [Handled || #{pid := Pid, handled := Handled} <- Suspects, Pid =:= Slow]
        end
     || _ <- lists:seq(1, 6)
    ],
    ?assertEqual([], [none || [0] <- Told], Told),
    end_both(Sometimes, Slow),
    ok = weir_watch_agent:stop(Agent).

%% Another one goes on.
tracer_killed(_Config) ->
    {Agent, Server, Caller} = called_and_inspected(),
    case weir_watch_trace:is_possible() of
        true ->
            _ = handles(Server, Agent),
            [Tracer] = tracers(Agent),
            exit(Tracer, kill),
            until(fun() -> case tracers(Agent) of [Another] -> Another =/= Tracer; [] -> false end end);
        false ->
            ?assertEqual([], tracers(Agent))
    end,
    end_both(Caller, Server),
    ok = weir_watch_agent:stop(Agent).

%% Who is sent messages that are too large for the tracer is not asked again.
large_messages(_Config) ->
    Agent = subscribed(),
    Suspect = spawn(fun takes_large/0),
    [Suspect ! I || I <- lists:seq(1, 1500)],
    Sender = spawn_link(fun() -> sends_large(Suspect, {large, lists:seq(1, 4_500_000)}) end),
    ok = weir_watch_agent:inspect(Agent, Suspect),
    _ = looked_at(Suspect, Agent),
    case weir_watch_trace:is_possible() of
        true ->
            until(fun() -> too_large(Suspect, Agent) end),
            ?assertEqual([], tracers(Agent)),
            ?assertMatch(#{senders := [], messages := []}, suspect(Suspect, Agent));
        false ->
            ?assertNot(too_large(Suspect, Agent))
    end,
    true = unlink(Sender),
    [exit(Pid, kill) || Pid <- [Sender, Suspect]],
    ok = weir_watch_agent:stop(Agent).

takes_large() ->
    receive {large, List} when is_list(List) -> takes_large() end.

sends_large(To, Message) ->
    _ = erlang:send(To, Message),
    receive after 50 -> sends_large(To, Message) end.

%% As the agent has noted of a suspect; of what it keeps of one nothing else can be true.
too_large(Pid, Agent) ->
    [Suspect] = [Suspect || #{Pid := Suspect} <- tuple_to_list(sys:get_state(Agent, wait_ms()))],
    lists:member(true, tuple_to_list(Suspect)).

%% In whose mailbox more is than is read: who sends, from which function, and what.
who_sends(_Config) ->
    Agent = subscribed(),
    Suspect = spawn(fun() -> receive never -> ok end end),
    [Suspect ! I || I <- lists:seq(1, 1500)],
    Sender = spawn_link(fun() -> casts(Suspect) end),
    ok = weir_watch_agent:inspect(Agent, Suspect),
    case weir_watch_trace:is_possible() of
        true ->
            #{senders := Senders, sent_by := By, messages := Kinds} = until_value(fun() ->
                case suspect(Suspect, Agent) of #{senders := [_ | _]} = Known -> Known; _ -> false end
            end),
            ?assertEqual({[Sender], [{{?MODULE, casts, 1}, 1.0}], [{<<"cast {log,_}">>, 1.0}]}, {Senders, By, Kinds});
        false ->
            ?assertMatch(#{senders := [], sent_by := [], messages := []}, looked_at(Suspect, Agent))
    end,
    true = unlink(Sender),
    [exit(Pid, kill) || Pid <- [Sender, Suspect]],
    ok = weir_watch_agent:stop(Agent).

casts(To) ->
    ok = gen_server:cast(To, {log, secret}),
    receive after 1 -> casts(To) end.

tracers(Agent) ->
    [Pid || Pid <- links(Agent), is_pid(Pid), {_, {weir_watch_trace, init, 1}} <- [process_info(Pid, initial_call)]].

called_and_inspected() ->
    Agent = subscribed(),
    {ok, Server} = weir_watch_form_server:start(fun() -> 0 end, fun(_, N) -> N + 1 end),
    Caller = spawn_link(fun() -> calls(Server) end),
    ok = weir_watch_agent:inspect(Agent, Server),
    {Agent, Server, Caller}.

calls(Server) ->
    ok = gen_server:call(Server, x, wait_ms()),
    calls(Server).

calls_sometimes(Server) ->
    ok = gen_server:call(Server, x, wait_ms()),
    receive after 50 -> calls_sometimes(Server) end.

handles(Server, Agent) ->
    until_value(fun() ->
        case suspect(Server, Agent) of
            #{handled := Handled} = Suspect when is_integer(Handled), Handled > 0 -> Suspect;
            _ -> false
        end
    end).

end_both(Caller, Server) ->
    true = unlink(Caller),
    true = exit(Caller, kill),
    ok = gen_server:stop(Server).

%% Fifty messages that each hold a secret: they are told by kind, and the secret is nowhere.
shapes_not_contents(_Config) ->
    Agent = subscribed(),
    Secret = <<"hunter2-hunter2">>,
    Pid = spawn(fun() -> receive never -> ok end end),
    Each = [
        {'$gen_call', {self(), make_ref()}, {get, Secret}}, {'$gen_cast', {put, Secret, Secret}}, Secret,
        #{Secret => Secret}, [Secret], {Secret, key}, {system, {self(), make_ref()}, {debug, Secret}},
        {notify, {add, Secret}}, {log, error, Secret, [Secret], #{}}, {tcp, port, Secret}
    ],
    [Pid ! Message || _ <- lists:seq(1, 5), Message <- Each],
    ok = weir_watch_agent:inspect(Agent, Pid),
    Told = fun() ->
        case suspect(Pid, Agent) of #{messages := [_ | _] = Messages} -> Messages; _ -> false end
    end,
    Messages = until_value(Told),
    ?assertEqual(
        lists:sort([
            <<"call {get,_}">>, <<"cast {put,_,_}">>, <<"binary">>, <<"map">>, <<"list">>, <<"tuple">>,
            <<"system message">>, <<"event {add,_}">>, <<"log error">>, <<"{tcp,_,_}">>
        ]),
        lists:sort([Kind || {Kind, Share} <- Messages, abs(Share - 0.1) < 0.001])
    ),
    [
        begin
            Snapshot = snapshot_of(Agent),
            ok = weir_kit:same(secret, nomatch, binary:match(term_to_binary(Snapshot), Secret))
        end
     || _ <- [next(Agent), next(Agent)]
    ],
    ok = weir_watch_agent:stop(Agent),
    exit(Pid, kill).

waits_for_whom(_Config) ->
    Agent = subscribed(),
    {ok, Slow} = weir_watch_form_server:start(fun() -> none end, fun(_, S) -> receive never -> S end end),
    Caller = spawn(fun() -> gen_server:call(Slow, work, infinity) end),
    ok = weir_watch_agent:inspect(Agent, Caller),
    until(fun() ->
        case suspect(Caller, Agent) of
            #{waits_for := Slow, chain := [Slow]} -> true;
            _ -> false
        end
    end),
    ok = weir_watch_agent:stop(Agent),
    [exit(Pid, kill) || Pid <- [Caller, Slow]].

looked_at(Pid, Agent) ->
    until_value(fun() -> case suspect(Pid, Agent) of #{doing := [_ | _]} = Suspect -> Suspect; _ -> false end end).
