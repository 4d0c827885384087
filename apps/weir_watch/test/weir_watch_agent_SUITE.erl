%% The agent as its subscribers see it, and what is left of it when it, or one of its processes, dies.
-module(weir_watch_agent_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_watch_test_lib, [in_node/4, in_plain_node/4]).
-import(weir_kit, [until/1, until_value/1, wait_ms/0]).

all() ->
    [
        {group, side_by_side}, ends_with_its_last_subscriber, killed_leaves_nothing, delays, estimates, callees,
        idle_functions, turn_without_pids, in_front_of_a_cycle, callee_of_a_call, log_hangs, agent_dies_meanwhile,
        monitor_of_another_stays, monitor_taken_meanwhile_stays,
        monitor_is_free_again, what_it_handles, counts_itself, no_old_findings, tracer_killed, large_messages,
        who_sends, registered_in_each_turn,
        too_much_memory, too_many_processes, diagnose_without_an_agent, asker_killed, busy_agent,
        wrong_options, ends_at_its_limits
    ].

%% Those that take long and do little: each waits for an agent of its own. What one has in trouble is among the twenty
%% suspects of each of these agents, so they have few; who has more of it has a node of its own.
groups() ->
    [{side_by_side, [parallel], [
        inspected, inspected_beside_many, application, never_ends_the_node, one_for_each_next, who_it_is,
        who_it_is_later,
        shapes_not_contents, waits_for_whom, stopped_leaves_nothing, scanner_killed, sleeper_killed, told_at_once,
        looker_killed, tickers_killed, late_seconds, suspects_come_and_go, suspects_are_left_alone, overloaded,
        memory_grows
    ]}].

init_per_suite(Config) ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    [{level, Level} | Config].

end_per_suite(Config) -> logger:set_primary_config(level, proplists:get_value(level, Config)).

one_for_each_next(_Config) ->
    Agent = subscribed(),
    #{at := First} = received(Agent),
    %% Two more seconds are over, and nobody has asked for them.
    until(fun() -> maps:get(at, snapshot(Agent)) >= First + 2000 end),
    ?assertEqual(none, receive {weir_watch, Agent, _} -> another after 0 -> none end),
    [ok = weir_watch_agent:next(Agent) || _ <- [1, 2, 3]],
    #{at := Second} = next(Agent),
    ?assert(Second >= First + 2000),
    %% Subscribing twice is subscribing once.
    ok = weir_watch_agent:subscribe(Agent),
    _ = next(Agent),
    ok = weir_watch_agent:stop(Agent).

ends_with_its_last_subscriber(_Config) ->
    {ok, Agent} = weir_watch_agent:start(),
    Subscribers = [spawn(fun() -> weir_watch_agent:subscribe(Agent), receive never -> ok end end) || _ <- [1, 2]],
    until(fun() -> is_list(links(Agent)) andalso [] =:= Subscribers -- monitored(Agent) end),
    Processes = links(Agent),
    Monitor = monitor(process, Agent),
    [First, Second] = Subscribers,
    exit(First, kill),
    until(fun() -> not lists:member(First, monitored(Agent)) end),
    ?assert(is_process_alive(Agent)),
    exit(Second, kill),
    ?assertEqual(normal, receive {'DOWN', Monitor, _, _, Reason} -> Reason after wait_ms() -> alive end),
    gone(Processes).

killed_leaves_nothing(_Config) ->
    Agent = subscribed(),
    _ = next(Agent),
    Processes = links(Agent),
    ?assert(length(Processes) >= 3),
    exit(Agent, kill),
    gone([Agent | Processes]).

stopped_leaves_nothing(_Config) ->
    Agent = subscribed(),
    Busy = long_mailbox(),
    until(fun() -> suspect(Busy, Agent) =/= none end),
    Processes = links(Agent),
    ok = weir_watch_agent:stop(Agent),
    gone([Agent | Processes]),
    exit(Busy, kill).

scanner_killed(_Config) ->
    Agent = subscribed(),
    _ = next(Agent),
    [Scanner] = [Pid || Pid <- links(Agent), {_, {weir_watch_scan, init, 1}} <- [process_info(Pid, initial_call)]],
    exit(Scanner, kill),
    Busy = long_mailbox(),
    until(fun() -> suspect(Busy, Agent) =/= none end),
    ok = weir_watch_agent:stop(Agent),
    exit(Busy, kill).

%% What was counted stays.
sleeper_killed(_Config) ->
    Agent = subscribed(),
    Count = fun() -> #{delays := #{counts := Counts}} = next(Agent), lists:sum(Counts) end,
    until(fun() -> Count() > 10 end),
    [Sleeper] = [Pid || Pid <- links(Agent), {_, {weir_watch_delay, _, _}} <- [process_info(Pid, current_function)]],
    exit(Sleeper, kill),
    gone([Sleeper]),
    Before = Count(),
    ?assert(Before > 10),
    until(fun() -> Count() > Before + 5 end),
    ok = weir_watch_agent:stop(Agent).

%% Each bound belongs to what it bounds.
delays(_Config) ->
    Delays = weir_watch_delay:new(),
    Bounds = weir_watch_delay:bounds_us(),
    ok = weir_watch_delay:note(-3, Delays),
    [ok = weir_watch_delay:note(Us, Delays) || Bound <- Bounds, Us <- [Bound, Bound + 1]],
    Sum = 2 * lists:sum(Bounds) + length(Bounds),
    ?assertEqual({Sum, [2 || _ <- Bounds] ++ [1]}, weir_watch_delay:read(Delays)).

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

%% Of whom the runtime tells is in a snapshot of its own, before the second is over; and once in each of the next.
told_at_once(_Config) ->
    Agent = subscribed(),
    Busy = spawn(fun() -> receive never -> ok end end),
    Suspected = fun(#{suspects := Suspects}) -> [Pid || #{pid := Pid} <- Suspects, Pid =:= Busy] end,
    [] = Suspected(received(Agent)),
    Agent ! {monitor, Busy, long_message_queue, true},
    %% The next is not asked for before, so it is no older.
    ok = weir_watch_agent:next(Agent),
    ?assertEqual([Busy], Suspected(next(Agent))),
    ?assertEqual([Busy], Suspected(next(Agent))),
    ok = weir_watch_agent:stop(Agent),
    exit(Busy, kill).

%% By the runtime, if an answer is longer than it may be: there is another one, which asks for nothing that may be long.
looker_killed(_Config) ->
    Agent = subscribed(),
    Before = links(Agent),
    Busy = long_mailbox(),
    until(fun() -> suspect(Busy, Agent) =/= none end),
    Lookers = links(Agent) -- Before,
    1 = erlang:trace(Agent, true, [call, set_on_spawn]),
    1 = erlang:trace_pattern({erlang, process_info, 2}, true, []),
    [exit(Looker, kill) || Looker <- Lookers],
    gone(Lookers),
    %% Which comes after what may be long.
    receive
        {trace, _, call, {erlang, process_info, [Busy, [current_function, current_stacktrace]]}} -> ok
    after wait_ms() -> error(not_looked_at)
    end,
    Asked = asked_of(Busy),
    ?assertEqual([], [Item || Item <- [links, monitors], lists:member(Item, Asked)]),
    ?assertMatch(#{}, suspect(Busy, Agent)),
    _ = erlang:trace_pattern({erlang, process_info, 2}, false, []),
    ok = weir_watch_agent:stop(Agent),
    exit(Busy, kill).

%% What was asked of that process, as far as the trace has told.
asked_of(Pid) ->
    receive
        {trace, _, call, {erlang, process_info, [Pid, Item]}} -> [Item | asked_of(Pid)];
        {trace, _, call, _} -> asked_of(Pid)
    after 0 -> []
    end.

%% Five ticks take as long as they take: a mailbox that gets 10,000 messages a second at most does not grow by more.
late_seconds(_Config) ->
    Agent = subscribed(),
    Busy = long_mailbox(),
    Sender = spawn(fun() -> sends(Busy) end),
    Queue = fun() -> {_, Length} = process_info(Busy, message_queue_len), Length end,
    until(fun() -> case suspect(Busy, Agent) of #{queues := [_, _ | _]} -> true; _ -> false end end),
    Tickers = [Pid || Pid <- links(Agent), {_, {weir_watch_agent, ticker, 1}} <- [process_info(Pid, initial_call)]],
    [true = erlang:suspend_process(Ticker) || Ticker <- Tickers],
    Before = Queue(),
    until(fun() -> Queue() > Before + 100_000 end),
    [true = erlang:resume_process(Ticker) || Ticker <- Tickers],
    Growths = [
        Growth
     || _ <- lists:seq(1, 4), #{pid := Pid, growth := Growth} <- maps:get(suspects, next(Agent)), Pid =:= Busy
    ],
    ?assertMatch([_, _, _ | _], Growths),
    ?assert(lists:max(Growths) < 20_000, Growths),
    ok = weir_watch_agent:stop(Agent),
    [exit(Pid, kill) || Pid <- [Sender, Busy]].

sends(Pid) ->
    _ = [Pid ! I || I <- lists:seq(1, 100)],
    receive after 10 -> sends(Pid) end.

%% Without them there is no tick at which another could be started.
tickers_killed(_Config) ->
    Agent = subscribed(),
    #{at := Before} = next(Agent),
    Tickers = fun() ->
        [Pid || Pid <- links(Agent), {_, {weir_watch_agent, ticker, 1}} <- [process_info(Pid, initial_call)]]
    end,
    Killed = Tickers(),
    ?assertMatch([_ | _], Killed),
    [exit(Ticker, kill) || Ticker <- Killed],
    gone(Killed),
    until(fun() -> length(Tickers()) =:= length(Killed) end),
    ?assert(lists:all(fun(_) -> maps:get(at, next(Agent)) > Before end, [1, 2, 3])),
    ok = weir_watch_agent:stop(Agent).

suspects_come_and_go(_Config) ->
    Agent = subscribed(),
    Busy = spawn(fun() -> receive never -> ok end end),
    true = register(weir_watch_agent_suite_busy, Busy),
    [Busy ! I || I <- lists:seq(1, 300)],
    until(fun() ->
        case suspect(Busy, Agent) of
            #{name := weir_watch_agent_suite_busy, queue := 300, answers := true} -> true;
            _ -> false
        end
    end),
    exit(Busy, kill),
    until(fun() -> suspect(Busy, Agent) =:= none end),
    ok = weir_watch_agent:stop(Agent).

%% No message, no exit: what is in its mailbox is what the test has sent.
suspects_are_left_alone(_Config) ->
    Agent = subscribed(),
    Busy = long_mailbox(),
    until(fun() ->
        case suspect(Busy, Agent) of
            #{doing := [_ | _], queues := Queues} -> length(Queues) >= 3;
            _ -> false
        end
    end),
    ?assertEqual({messages, lists:seq(1, 300)}, process_info(Busy, messages)),
    ?assertEqual({links, []}, process_info(Busy, links)),
    ?assertEqual({monitored_by, []}, process_info(Busy, monitored_by)),
    ok = weir_watch_agent:stop(Agent),
    exit(Busy, kill).

%% Until the subscriber asks for another, or is gone.
inspected(_Config) ->
    Agent = subscribed(),
    [First, Second] = [spawn(fun() -> receive never -> ok end end) || _ <- [1, 2]],
    Looked = fun(Pid) -> until(fun() ->
        case suspect(Pid, Agent) of
            #{doing := [_ | _], queue := 0} -> true;
            _ -> false
        end
    end) end,
    ok = weir_watch_agent:inspect(Agent, First),
    Looked(First),
    Other = spawn(fun() ->
        ok = weir_watch_agent:subscribe(Agent),
        ok = weir_watch_agent:inspect(Agent, First),
        ok = weir_watch_agent:inspect(Agent, Second),
        receive never -> ok end
    end),
    Looked(Second),
    exit(Other, kill),
    until(fun() -> suspect(Second, Agent) =:= none end),
    ?assertMatch(#{}, suspect(First, Agent)),
    %% From one who has not subscribed it is nothing.
    Stranger = spawn(fun() -> weir_watch_agent:inspect(Agent, Second) end),
    gone([Stranger]),
    _ = [next(Agent) || _ <- [1, 2]],
    ?assertEqual(none, suspect(Second, Agent)),
    ok = weir_watch_agent:stop(Agent),
    [exit(Pid, kill) || Pid <- [First, Second]].

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
    ok = gen_server:call(Server, x),
    calls(Server).

calls_sometimes(Server) ->
    ok = gen_server:call(Server, x),
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

%% Where there are few. Among many it waits for its turn, or for the second to be over.
registered_in_each_turn(_Config) -> ok = in_plain_node([], ?MODULE, few_names, []).

few_names() ->
    Named = spawn(fun() -> receive never -> ok end end),
    [Named ! I || I <- lists:seq(1, 300)],
    true = register(named, Named),
    %% So many that a slice does not come to it in these turns.
    _ = [spawn(fun() -> receive never -> ok end end) || _ <- lists:seq(1, 50_000)],
    Scanner = weir_watch_scan:start_link(),
    Found = fun(Names) ->
        ok = weir_watch_scan:turn(Scanner, #{
            long => 200, samples => 1, burst => false, names => Names, skip => [], bytes => 100_000_000
        }),
        receive {scan, Scanner, #{long := Long}} -> length([Pid || {Pid, 300} <- Long, Pid =:= Named]) end
    end,
    ?assertEqual(1, lists:min([Found(false) || _ <- [1, 2, 3, 4]])),
    More = [spawn(fun() -> receive never -> ok end end) || _ <- lists:seq(1, 200)],
    _ = [register(list_to_atom("more" ++ integer_to_list(N)), Pid) || {N, Pid} <- lists:enumerate(More)],
    %% It learns in this turn that there are more.
    ?assertEqual(1, Found(false)),
    ?assertEqual(0, Found(false)),
    ?assertEqual(1, Found(true)),
    ok.

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
            Snapshot = snapshot(Agent),
            ?assertEqual(nomatch, binary:match(term_to_binary(Snapshot), Secret))
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

%% Twenty are in trouble: who is inspected is looked at all the same, and who is not is missed in words.
inspected_beside_many(_Config) -> ok = in_plain_node([], ?MODULE, beside_many, []).

beside_many() ->
    Agent = subscribed(),
    _ = [long_mailbox() || _ <- lists:seq(1, 21)],
    Says = fun() ->
        #{limits := Limits, suspects := Suspects} = next(Agent),
        length(Suspects) =:= 20 andalso
            lists:any(fun(Text) -> string:find(Text, "left out") =/= nomatch end, Limits)
    end,
    Quiet = spawn(fun() -> receive never -> ok end end),
    until(Says),
    ok = weir_watch_agent:inspect(Agent, Quiet),
    until(fun() -> is_map(suspect(Quiet, Agent)) end),
    %% If there was room for it among the twenty just then, it is inspected again when it has been forgotten.
    until(fun() ->
        #{suspects := Suspects} = next(Agent),
        lists:any(fun(#{pid := Pid}) -> Pid =:= Quiet end, Suspects) orelse
            (ok = weir_watch_agent:inspect(Agent, Quiet)),
        length(Suspects) =:= 21
    end),
    ok = weir_watch_agent:stop(Agent).

%% Who diagnoses is told when the agent ends; one without a subscriber ends with who has started it.
agent_dies_meanwhile(_Config) ->
    {ok, _} = application:ensure_all_started(weir_watch),
    Test = self(),
    Asker = spawn(fun() -> Test ! {self(), weir_watch:diagnose(#{seconds => 60})} end),
    Agent = whereis(weir_watch_agent),
    %% Not only by the keeper.
    until(fun() ->
        {monitored_by, Pids} = process_info(Agent, monitored_by),
        Pids -- [there(weir_watch_keeper)] =/= []
    end),
    exit(Agent, kill),
    ?assertEqual({error, killed}, receive {Asker, Answer} -> Answer after wait_ms() -> none end),
    ok = application:stop(weir_watch),
    Starter = spawn(fun() -> Test ! {self(), weir_watch_agent:start()} end),
    {ok, Alone} = receive {Starter, Started} -> Started after wait_ms() -> none end,
    gone([Alone]).

%% From OTP 28 on there is one for each session.
monitor_of_another_stays(_Config) ->
    Mine = spawn(fun() -> receive never -> ok end end),
    Before = erlang:system_monitor(Mine, [busy_port]),
    Agent = subscribed(),
    #{limits := Limits} = next(Agent),
    ?assertEqual({Mine, [busy_port]}, erlang:system_monitor()),
    Sessions = erlang:function_exported(trace, system, 3),
    ?assertEqual(Sessions, not lists:any(fun(Text) -> string:find(Text, "system monitor") =/= nomatch end, Limits)),
    ok = weir_watch_agent:stop(Agent),
    ?assertEqual({Mine, [busy_port]}, erlang:system_monitor()),
    _ = erlang:system_monitor(Before),
    exit(Mine, kill).

%% Before OTP 28, where one who takes the node's system monitor has it alone.
monitor_taken_meanwhile_stays(_Config) ->
    undefined = erlang:system_monitor(),
    Agent = subscribed(),
    _ = next(Agent),
    Mine = spawn(fun() -> receive never -> ok end end),
    _ = erlang:system_monitor(Mine, [busy_port]),
    %% It says so, where it had the same one.
    Says = fun() ->
        #{limits := Limits} = next(Agent),
        lists:any(fun(Text) -> string:find(Text, "system monitor") =/= nomatch end, Limits)
    end,
    erlang:function_exported(trace, system, 3) orelse until(Says),
    ok = weir_watch_agent:stop(Agent),
    ?assertEqual({Mine, [busy_port]}, erlang:system_monitor()),
    _ = erlang:system_monitor(undefined),
    exit(Mine, kill).

%% Who found it taken takes it when it is free; from OTP 28 on there is one for each session.
monitor_is_free_again(_Config) ->
    Mine = spawn(fun() -> receive never -> ok end end),
    undefined = erlang:system_monitor(Mine, [busy_port]),
    Agent = subscribed(),
    _ = next(Agent),
    exit(Mine, kill),
    Says = fun() ->
        #{limits := Limits} = next(Agent),
        lists:any(fun(Text) -> string:find(Text, "system monitor") =/= nomatch end, Limits)
    end,
    until(fun() -> not Says() end),
    case erlang:function_exported(trace, system, 3) of
        true -> ?assertEqual(undefined, erlang:system_monitor());
        false -> ?assertMatch({Agent, _}, erlang:system_monitor())
    end,
    ok = weir_watch_agent:stop(Agent),
    until(fun() -> erlang:system_monitor() =:= undefined end).

%% 5,000 messages may wait for it.
overloaded(_Config) ->
    Agent = subscribed(),
    _ = next(Agent),
    ?assertEqual({shutdown, overloaded}, overload(Agent)).

%% It stops on a node that can log nothing.
log_hangs(_Config) ->
    Agent = subscribed(),
    _ = next(Agent),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => #{hangs => self()}}),
    ok = logger:set_primary_config(level, warning),
    ?assertEqual({shutdown, overloaded}, overload(Agent)),
    receive {hangs, Logs} -> exit(Logs, kill) after wait_ms() -> error(no_warning) end,
    ok = logger:set_primary_config(level, none),
    ok = logger:remove_handler(?MODULE).

overload(Agent) ->
    Monitor = monitor(process, Agent),
    true = erlang:suspend_process(Agent),
    %% Four more ticks of three tickers at most: it has not looked at its limits for longer than a tick. So the first
    %% tick that waits for it counts, and what is sent now waits behind that.
    Ticks = fun() -> {messages, Waiting} = process_info(Agent, messages), length([tick || tick <- Waiting]) end,
    Waited = Ticks(),
    until(fun() -> Ticks() >= Waited + 4 end),
    [Agent ! nonsense || _ <- lists:seq(1, 5100)],
    true = erlang:resume_process(Agent),
    receive {'DOWN', Monitor, _, _, Why} -> Why after wait_ms() -> alive end.

%% 100 MB may be its own; it says so, and why it stops.
too_much_memory(_Config) ->
    Agent = subscribed(),
    _ = next(Agent),
    Monitor = monitor(process, Agent),
    Warned = warned(fun() ->
        _ = sys:replace_state(Agent, fun(State) -> put(?MODULE, lists:seq(1, 6_300_000)), State end, wait_ms()),
        ended_overloaded(Monitor)
    end),
    ?assertMatch([_, Bytes, _, 100_000_000] when Bytes > 100_000_000, Warned).

%% The scanner's is counted, too. It does not take what it would not be given, and ends the agent.
too_many_processes(_Config) ->
    Number = erlang:system_info(process_count),
    Order = #{long => 200, samples => 1, burst => false, names => false, skip => []},
    Enough = weir_watch_scan:start_link(),
    ok = weir_watch_scan:turn(Enough, Order#{bytes => 100 * Number}),
    receive {scan, Enough, #{bytes := Taken}} -> ?assert(Taken > 0) after wait_ms() -> error(no_turn) end,
    true = unlink(Enough),
    exit(Enough, kill),
    Short = weir_watch_scan:start_link(),
    true = unlink(Short),
    Ended = monitor(process, Short),
    ok = weir_watch_scan:turn(Short, Order#{bytes => 10 * Number}),
    receive
        {'DOWN', Ended, _, _, {shutdown, {too_large, Bytes}}} -> ?assert(Bytes > 10 * Number)
    after wait_ms() -> error(alive)
    end,
    Agent = subscribed(),
    _ = next(Agent),
    Monitor = monitor(process, Agent),
    [Scanner] = [Pid || Pid <- links(Agent), {_, {weir_watch_scan, init, 1}} <- [process_info(Pid, initial_call)]],
    Warned = warned(fun() ->
        exit(Scanner, {shutdown, {too_large, 123_456_789}}),
        ended_overloaded(Monitor)
    end),
    ?assertMatch([_, 123_456_789, _, 100_000_000], Warned).

ended_overloaded(Monitor) ->
    receive
        {'DOWN', Monitor, _, _, Why} -> ?assertEqual({shutdown, overloaded}, Why)
    after wait_ms() -> error(alive)
    end.

%% Among 40,000 processes, for which the slices take 16 seconds, one without a name fills its own mailbox: all are read
%% at once, and it is found by that. If a slice was there before, another one does the same.
memory_grows(_Config) -> ok = in_node([], ?MODULE, burst, [40_000]).

burst(Idle) ->
    _ = [spawn(fun() -> receive never -> ok end end) || _ <- lists:seq(1, Idle)],
    Agent = whereis(weir_watch_agent),
    Counted = fun() ->
        case snapshot(Agent) of
            #{memory := #{processes := _}, processes := Processes} -> Processes > Idle;
            _ -> false
        end
    end,
    until(Counted),
    1 = erlang:trace(Agent, true, [send, 'receive']),
    until(fun() -> floods_itself() =:= burst end),
    ok.

%% By what it is found.
floods_itself() ->
    Pid = spawn(fun() ->
        [self() ! lists:seq(N, N + 100) || N <- lists:seq(1, 20_000)],
        receive never -> ok end
    end),
    How = found(Pid, false),
    exit(Pid, kill),
    How.

found(Pid, Bursts) ->
    receive
        {trace, _, send, {turn, #{burst := true}}, _} -> found(Pid, true);
        {trace, _, 'receive', {scan, _, #{long := Long, burst := GoesOn}}} ->
            case lists:keymember(Pid, 1, Long) of
                true when Bursts -> burst;
                true -> slice;
                false -> found(Pid, Bursts andalso GoesOn)
            end;
        {trace, _, _, _} -> found(Pid, Bursts);
        {trace, _, _, _, _} -> found(Pid, Bursts)
    after wait_ms() -> error(not_found)
    end.

%% The figures of the one warning that the agent logs meanwhile.
warned(Does) ->
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => #{tell => self()}}),
    ok = logger:set_primary_config(level, warning),
    try
        Does(),
        receive {warned, Figures} -> Figures after wait_ms() -> error(no_warning) end
    after
        ok = logger:set_primary_config(level, none),
        ok = logger:remove_handler(?MODULE)
    end.

%% As a handler of logger.
log(#{level := warning, msg := {"weir_watch stops: " ++ _, Figures}}, #{config := #{tell := Test}}) ->
    Test ! {warned, Figures};
log(#{msg := {"weir_watch stops: " ++ _, _}}, #{config := #{hangs := Test}}) ->
    Test ! {hangs, self()},
    receive never -> ok end;
log(_, _) ->
    ok.

diagnose_without_an_agent(_Config) ->
    undefined = whereis(weir_watch_agent),
    ?assert(is_list(weir_watch:diagnose(#{seconds => 1}))),
    ?assert(is_list(weir_watch:diagnose([{seconds, 1}]))),
    ?assertEqual(none, receive {weir_watch, _, _} -> left after 0 -> none end),
    ?assertEqual(undefined, whereis(weir_watch_agent)).

%% An hour is asked for, and who asks is killed: nobody looks any more.
asker_killed(_Config) ->
    undefined = whereis(weir_watch_agent),
    Asker = spawn(fun() -> weir_watch:diagnose(#{seconds => 3600}) end),
    [Agent] = until_value(fun() ->
        Agents = [Pid || Pid <- processes(), proc_lib:translate_initial_call(Pid) =:= {weir_watch_agent, init, 1}],
        length(Agents) =:= 1 andalso monitored(hd(Agents)) -- [Asker] =/= [] andalso Agents
    end),
    Helpers = monitored(Agent) -- [Asker],
    Linked = links(Agent),
    exit(Asker, kill),
    gone([Agent | Helpers ++ Linked]).

%% An agent that has no turn keeps nobody who subscribes waiting, and is waited for when it looks.
busy_agent(_Config) ->
    {ok, Agent} = weir_watch_agent:start_link(),
    true = erlang:suspend_process(Agent),
    ok = weir_watch_agent:subscribe(Agent),
    Test = self(),
    Asker = spawn_link(fun() -> Test ! {self(), weir_watch:look([{seconds, 1}])} end),
    until(fun() -> {message_queue_len, Queue} = process_info(Agent, message_queue_len), Queue >= 2 end),
    true = erlang:resume_process(Agent),
    #{watched := Watched, limits := _} = receive {Asker, Snapshot} -> Snapshot after wait_ms() -> none end,
    ?assert(Watched >= 1000),
    _ = next(Agent),
    ok = weir_watch_agent:stop(Agent).

%% What is wrong with it, and the value, before anything is done.
wrong_options(_Config) ->
    Wrong = [
        {#{second => 1}, second, 1}, {#{seconds => 0}, seconds, 0}, {[{seconds, "1"}], seconds, "1"},
        {#{seconds => 1, nodes => []}, nodes, []}, {shop, node, shop}, {undefined, node, undefined},
        {a@b@c, node, a@b@c}, {'@b', node, '@b'}, {'a@', node, 'a@'}, {#{node => "shop@db1"}, node, "shop@db1"},
        {#{node => undefined, seconds => 1}, node, undefined}, {[{node, shop}], node, shop},
        {[bad], options, [bad]}, {[{seconds, 1} | bad], options, [{seconds, 1} | bad]}, {"shop", options, "shop"},
        {<<"shop@db1">>, options, <<"shop@db1">>}, {1, options, 1}
    ],
    [
        ?assertError({bad_option, Key, Value}, weir_watch:Function(Options), Options)
     || {Options, Key, Value} <- Wrong, Function <- [diagnose, look]
    ],
    ?assertEqual({error, not_distributed}, weir_watch:diagnose('shop@db1')),
    %% The first of a key counts.
    ?assert(is_list(weir_watch:diagnose([{seconds, 1}, {seconds, no}]))).

%% In the first moment of an agent there is no snapshot, and that one is waited for.
application(_Config) ->
    {ok, _} = application:ensure_all_started(weir_watch),
    ?assert(is_list(weir_watch:diagnose())),
    until(fun() -> is_map(weir_watch:snapshot()) end),
    %% Who starts it, or the keeper, may find that the other has done so.
    Spec = (weir_watch:child_spec([]))#{restart => temporary},
    ?assertEqual({ok, whereis(weir_watch_agent)}, weir_watch_keeper:start_child(weir_watch_sup, Spec)),
    Me = self(),
    Other = Spec#{id => other, start => {erlang, apply, [fun() -> {error, {already_started, Me}} end, []]}},
    ?assertEqual({error, {already_started, Me}}, weir_watch_keeper:start_child(weir_watch_sup, Other)),
    ok = application:stop(weir_watch),
    ?assertEqual(undefined, whereis(weir_watch_agent)).

%% ---------------------------------------------------------------- helpers

subscribed() ->
    {ok, Agent} = weir_watch_agent:start(),
    ok = weir_watch_agent:subscribe(Agent),
    Agent.

received(Agent) -> receive {weir_watch, Agent, Snapshot} -> Snapshot after wait_ms() -> error(no_snapshot) end.

next(Agent) ->
    Snapshot = received(Agent),
    ok = weir_watch_agent:next(Agent),
    Snapshot.

snapshot(Agent) -> until_value(fun() -> weir_watch_test_lib:snapshot(Agent) end).

suspect(Pid, Agent) ->
    #{suspects := Suspects} = snapshot(Agent),
    case [Suspect || #{pid := Suspected} = Suspect <- Suspects, Suspected =:= Pid] of
        [Suspect] -> Suspect;
        [] -> none
    end.

long_mailbox() ->
    Pid = spawn(fun() -> receive never -> ok end end),
    [Pid ! I || I <- lists:seq(1, 300)],
    Pid.

links(Pid) ->
    {links, Links} = process_info(Pid, links),
    Links.

monitored(Pid) ->
    {monitors, Monitors} = process_info(Pid, monitors),
    [Monitored || {process, Monitored} <- Monitors, is_pid(Monitored)].

gone(Pids) -> until(fun() -> not lists:any(fun is_process_alive/1, Pids) end).

%% ---------------------------------------------------------------- the application

%% As a release starts it: permanent, so that its end would be the node's. Each of its processes is killed as often as
%% a supervisor would bear with once.
never_ends_the_node(_Config) -> ok = in_plain_node([], ?MODULE, all_die, []).

all_die() ->
    ok = application:load(weir_watch),
    ok = application:set_env(weir_watch, page, #{port => 0}),
    ok = application:set_env(weir_watch, telemetry, #{}),
    ok = application:start(weir_watch, permanent),
    Ids = [weir_watch_agent, weir_watch_page, weir_watch_telemetry],
    lists:foreach(fun(_) -> [exit(there(Id), kill) || Id <- Ids] end, [1, 2, 3]),
    exit(there(weir_watch_keeper), kill),
    _ = [there(Id) || Id <- Ids],
    %% One that cannot be started is tried again.
    Keeper = there(weir_watch_keeper),
    ok = sys:suspend(Keeper, wait_ms()),
    exit(whereis(weir_watch_agent), kill),
    until(fun() -> whereis(weir_watch_agent) =:= undefined end),
    true = register(weir_watch_agent, self()),
    1 = erlang:trace(Keeper, true, ['receive']),
    ok = sys:resume(Keeper, wait_ms()),
    %% The supervisor's answer.
    receive {trace, Keeper, 'receive', {_, {error, _}}} -> ok end,
    1 = erlang:trace(Keeper, false, ['receive']),
    true = unregister(weir_watch_agent),
    until(fun() -> is_pid(whereis(weir_watch_agent)) end),
    #{watched := _} = weir_watch:look(#{seconds => 1}),
    ?assert(lists:keymember(weir_watch, 1, application:which_applications())),
    ok.

there(Id) ->
    until_value(fun() ->
        case lists:keyfind(Id, 1, supervisor:which_children(weir_watch_sup)) of
            {Id, Pid, _, _} when is_pid(Pid) -> is_process_alive(Pid) andalso Pid;
            _ -> false
        end
    end).

%% At its limits the agent stops, and is not started again.
ends_at_its_limits(_Config) ->
    {ok, _} = application:ensure_all_started(weir_watch),
    Keeper = there(weir_watch_keeper),
    %% It has seen it.
    until(fun() -> lists:member(weir_watch_agent, monitored_names(Keeper)) end),
    ?assertEqual({shutdown, overloaded}, overload(whereis(weir_watch_agent))),
    %% Twice it has looked since.
    _ = [Keeper ! look || _ <- [1, 2]],
    _ = sys:get_state(Keeper, wait_ms()),
    ?assertEqual(undefined, whereis(weir_watch_agent)),
    until(fun() -> [weir_watch_keeper] =:= [Id || {Id, _, _, _} <- supervisor:which_children(weir_watch_sup)] end),
    ok = application:stop(weir_watch).

monitored_names(Pid) ->
    [Name || Monitored <- monitored(Pid), {registered_name, Name} <- [process_info(Monitored, registered_name)]].
