%% The agent as its subscribers see it, and what remains after the agent, or one of its processes, has died.
-module(weir_watch_agent_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_watch_test_lib, [snapshot_of/1, in_node/4, in_plain_node/4, subscribed/0, received/1, next/1, suspect/2,
    long_mailbox/0, links/1, monitored/1, gone/1]).
-import(weir_kit, [until/1, wait_ms/0]).

%% Cases that wait for an agent of their own and do little. The processes in trouble of one case are among the twenty
%% suspects of all these agents, so each case has few. Cases with many have a node of their own.
-define(WAITING, [inspected, inspected_beside_many, one_for_each_next, stopped_leaves_nothing, scanner_killed,
    sleeper_killed, told_at_once, looker_killed, tickers_killed, late_seconds, suspects_come_and_go,
    suspects_are_left_alone, memory_grows]).

all() -> [{group, side_by_side} | weir_kit:cases(?MODULE) -- ?WAITING].

groups() -> [{side_by_side, [parallel], ?WAITING}].

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

one_for_each_next(_Config) ->
    Agent = subscribed(),
    #{at := First} = received(Agent),
    %% Two more seconds are over, and nobody has asked for them.
    until(fun() -> maps:get(at, snapshot_of(Agent)) >= First + 2000 end),
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
    until(fun() -> Queue() > Before + 50_000 end),
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
    ok = weir_kit:same(mailbox, {messages, lists:seq(1, 300)}, process_info(Busy, messages)),
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

%% Among 40,000 processes, for which the slices take 16 seconds, one without a name fills its own mailbox: all are read
%% at once, and it is found by that. If a slice was there before, another one does the same.
memory_grows(_Config) -> ok = in_node([], ?MODULE, burst, [40_000]).

burst(Idle) ->
    _ = [spawn(fun() -> receive never -> ok end end) || _ <- lists:seq(1, Idle)],
    Agent = whereis(weir_watch_agent),
    Counted = fun() ->
        case snapshot_of(Agent) of
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
