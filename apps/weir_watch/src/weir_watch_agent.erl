%% @doc The agent: the process on the watched node that decides at whom to look, and tells what it found each second.
%% ```
%%   tickers  -- tick, five times a second ------------------------> agent
%%   scanner  <- turn --  -- long mailboxes, hard work, samples ---> agent
%%   asker    <- samples  -- who is in a call to whom -------------> agent      one for each turn
%%   looker   <- a suspect  -- its state, a dozen times a second --> agent      one for each suspect
%%   reader   <- read ---  -- memory, schedulers, bytes -----------> agent      once a second
%%   tracer   <- ask ----  -- what it handles, who sends to it ----> agent      one suspect after the other
%%   sleeper  -- by how much it overslept --> a histogram <- read -- agent
%%   agent    -- snapshot, once a second, once for each next/1 ----> subscribers
%% '''
%% The agent reads no other process itself, since one that runs answers only at the end of its turn, and one in native
%% code when that comes back. So it waits for nobody: an asker that is late is killed; when the scanner is late, a
%% probe finds out for whom it waits, who becomes a suspect, and the scanner is started anew and leaves him out; a
%% looker that is silent is a finding. All of these are linked to the agent, so nothing is left when it dies, and only
%% the agent keeps anything: started again it has forgotten all, and finds what is still so.
%%
%% Suspects are those whose mailbox is long, for whom others wait in calls, who run all the time, or whom a suspect
%% waits for; at most ?SUSPECTS, the worst first, and ?INSPECTED more that somebody inspects. Whoever has been none of
%% that for ten seconds is dropped.
%%
%% It has a high priority and does a bounded amount of work at each tick. When its own mailbox or memory is larger
%% than it may be, it stops, with a report.
%% @private
-module(weir_watch_agent).
-behaviour(gen_server).

-export([start_link/0, start/0, stop/1, subscribe/1, next/1, inspect/2, snapshot/1, modules/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export([ticker/1]).

-define(TICK_MS, 200).
-define(TICKERS, 3).
-define(SECOND, 5).
-define(SAMPLES, 80).
%% Ticks for which it is remembered who waited for whom.
-define(WINDOW, 15).
%% Of these, that make somebody a suspect.
-define(HITS, 4).
-define(SUSPECTS, 20).
%% Beyond these, processes that somebody inspects.
-define(INSPECTED, 10).
-define(QUIET_S, 10).
-define(LATE_MS, 1000).
%% Reductions in a tick of one who works all the time, at least.
-define(HARD_WORK, 400_000).
%% A collection, and a mailbox, of which the runtime is to tell.
-define(LONG_GC_MS, 5).
-define(EVENT_AT, 2000).
-define(EVENT_UNTIL, 500).
-define(MAX_MAILBOX, 5000).
-define(MAX_BYTES, 100_000_000).
%% Samples of processes that ran from which it can be said who is in ets.
-define(KNOWN, 25).
-define(PARTS_S, 2).
%% What reading the node's figures takes.
-define(READ_US, 250).
%% What a question to the tracer takes.
-define(TRACE_US, 2000).

-record(state, {
    %% One on each of the first schedulers; those that are not there are started at the next tick.
    tickers = #{} :: #{Scheduler :: pos_integer() => pid()},
    began = erlang:monotonic_time(millisecond) :: integer(),
    %% When the last tick was.
    ticked = erlang:monotonic_time(millisecond) :: integer(),
    %% `none' where there was no room for a process.
    scanner = none :: pid() | none,
    %% Since when it has had a turn, and who finds out for whom it waits.
    turn = none :: none | integer(),
    probe = none :: none | {pid(), reference()},
    asker = none :: none | {pid(), reference(), integer()},
    %% Newest first.
    hits = [] :: [{non_neg_integer(), [{pid(), pid()}]}],
    %% Who ran, and whether in ets.
    in_ets = [] :: [{pid(), boolean()}],
    suspects = #{} :: weir_watch_suspect:suspects(),
    %% New suspects that are told of at the next tick.
    news = [] :: [pid()],
    %% Who reads what is told of the node, since when he is asked, and what he has told last.
    reader = none :: pid() | none,
    reading = none :: none | integer(),
    facts = #{} :: map(),
    sleeper = none :: pid() | none,
    %% Who traces suspects, started when there is one to trace; `impossible' on this runtime. About whom it has been
    %% asked and has not answered.
    tracer = none :: pid() | none | impossible,
    tracing = none :: pid() | none,
    tracer_bytes = 0 :: non_neg_integer(),
    delays :: weir_watch_delay:delays(),
    tick = 0 :: non_neg_integer(),
    %% When the last second ended, and how many milliseconds each of the last 60 took: five ticks may be late. The
    %% newest first.
    second = erlang:monotonic_time(millisecond) :: integer(),
    lasted = [] :: [pos_integer()],
    processes = 0 :: non_neg_integer(),
    %% What the scanner takes.
    scanner_bytes = 0 :: non_neg_integer(),
    burst = none :: none | asked | going,
    growth = weir_watch_growth:new() :: weir_watch_growth:growth(),
    parts = {none, weir_watch_parts:new()} :: {weir_watch_parts:parts() | none, weir_watch_parts:asked()},
    asking_parts = none :: none | {pid(), reference()},
    %% Microseconds of this second, and of the 60 before.
    us = 0 :: non_neg_integer(),
    spent = [] :: [non_neg_integer()],
    subscribers = #{} :: #{pid() => {reference(), Wants :: boolean()}},
    %% At whom a subscriber wants to look.
    pins = #{} :: #{Subscriber :: pid() => pid()},
    %% An agent that nobody is to find ends with its last subscriber.
    alone :: boolean(),
    events :: none | system_monitor | {session, term()},
    node_trouble = none :: none | integer(),
    passing = #{} :: #{binary() => Tick :: non_neg_integer()},
    snapshot = none :: none | weir_watch:snapshot()
}).

%% @doc Starts the node's agent, registered by the name of this module.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, registered, []).

%% @doc Starts an agent without a name. It ends when its last subscriber has gone, and with the caller if it has none.
-spec start() -> {ok, pid()} | {error, term()}.
start() ->
    try
        gen_server:start(?MODULE, {alone, self()}, [])
    catch
        error:system_limit -> {error, system_limit}
    end.

%% @doc Ends an agent.
-spec stop(gen_server:server_ref()) -> ok.
stop(Agent) -> gen_server:stop(Agent).

%% @doc The caller gets `{weir_watch, Agent, Snapshot}' at the end of this second, and another for each {@link next/1}.
%% Waits for nothing: whether there is such an agent, and when it ends, a monitor tells.
-spec subscribe(gen_server:server_ref()) -> ok.
subscribe(Agent) -> gen_server:cast(Agent, {subscribe, self()}).

%% @doc Asks for the next snapshot, so that who is slow gets fewer.
-spec next(gen_server:server_ref()) -> ok.
next(Agent) -> gen_server:cast(Agent, {next, self()}).

%% @doc Looks at a process closely for the calling subscriber, until that one asks for another or is gone.
-spec inspect(gen_server:server_ref(), pid()) -> ok.
inspect(Agent, Pid) -> gen_server:cast(Agent, {inspect, self(), Pid}).

%% @doc The newest snapshot; `none' in the first second.
-spec snapshot(gen_server:server_ref()) -> weir_watch:snapshot() | none.
snapshot(Agent) -> gen_server:call(Agent, snapshot).

%% @doc The modules that run on a watched node. They need kernel and stdlib.
-spec modules() -> [module()].
modules() ->
    [
        ?MODULE, weir_watch_scan, weir_watch_pids, weir_watch_growth, weir_watch_ask, weir_watch_look, weir_watch_node,
        weir_watch_messages, weir_watch_trace, weir_watch_delay, weir_watch_suspect, weir_watch_causes, weir_watch_parts
    ].

%% ---------------------------------------------------------------- gen_server

%% @private
-spec init(registered | {alone, pid()}) -> {ok, #state{}}.
init(How) ->
    _ = case How of {alone, Starter} -> monitor(process, Starter); registered -> none end,
    _ = process_flag(trap_exit, true),
    _ = process_flag(priority, high),
    %% Later the code server might have no turn to load them. An agent that is started again finds all loaded, and does
    %% not ask the code server, which may be busy.
    _ = lists:all(fun erlang:module_loaded/1, modules()) orelse code:ensure_modules_loaded(modules()),
    Tracer = case weir_watch_trace:is_possible() of true -> none; false -> impossible end,
    {ok, with_helpers(#state{
        delays = weir_watch_delay:new(), alone = How =/= registered, events = events(), tracer = Tracer
    })}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(snapshot, _From, #state{snapshot = Snapshot} = State) ->
    {reply, Snapshot, State};
handle_call(_, _From, State) ->
    {reply, {error, unknown_request}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({subscribe, Pid}, #state{subscribers = Subscribers} = State) ->
    Monitor =
        case Subscribers of
            #{Pid := {Old, _}} -> Old;
            #{} -> monitor(process, Pid)
        end,
    {noreply, State#state{subscribers = Subscribers#{Pid => {Monitor, true}}}};
handle_cast({next, Pid}, #state{subscribers = Subscribers} = State) ->
    case Subscribers of
        #{Pid := {Monitor, _}} -> {noreply, State#state{subscribers = Subscribers#{Pid := {Monitor, true}}}};
        #{} -> {noreply, State}
    end;
handle_cast({inspect, Subscriber, Pid}, #state{subscribers = Subscribers, pins = Pins} = State) when
    is_map_key(Subscriber, Subscribers), is_pid(Pid), node(Pid) =:= node()
->
    {noreply, suspect(Pid, State#state{pins = Pins#{Subscriber => Pid}})};
handle_cast(_, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info(tick, #state{ticked = Last} = State) ->
    %% The first of them counts.
    case now_ms() of
        Now when Now < Last + ?TICK_MS - ?TICK_MS div 4 -> {noreply, State};
        Now ->
            Begin = erlang:monotonic_time(),
            New = tick(State#state{ticked = Now}),
            Us = erlang:convert_time_unit(erlang:monotonic_time() - Begin, native, microsecond),
            within_bounds(New#state{us = New#state.us + Us})
    end;
handle_info({scan, Scanner, Result}, #state{scanner = Scanner} = State) ->
    {noreply, scanned(Result, State)};
handle_info({node, Reader, Facts}, #state{reader = Reader} = State) ->
    {noreply, State#state{facts = Facts, reading = none, us = State#state.us + ?READ_US}};
handle_info({asked, Asker, Answers}, #state{asker = {Asker, Monitor, _}} = State) ->
    true = demonitor(Monitor, [flush]),
    {noreply, asked(Answers, State#state{asker = none})};
handle_info({state, Looker, Told}, State) ->
    {noreply, with_suspect_of(Looker, fun(Suspect) -> weir_watch_suspect:heard(Told, Suspect) end, State)};
handle_info({reads, Probe, Pid}, #state{probe = {Probe, Monitor}} = State) ->
    true = demonitor(Monitor, [flush]),
    {noreply, probed(Pid, State#state{probe = none})};
handle_info({who, Looker, Who}, State) ->
    {noreply, with_suspect_of(Looker, fun(Suspect) -> weir_watch_suspect:known(Who, Suspect) end, State)};
handle_info({looked, Looker, #{us := Us} = Look}, State) ->
    Looked = fun(Suspect) -> weir_watch_suspect:looked(Look, Suspect) end,
    {noreply, with_suspect_of(Looker, Looked, State#state{us = State#state.us + Us})};
handle_info({traced, Tracer, Pid, Found, Bytes}, #state{tracer = Tracer} = State) ->
    Change = fun(Suspect) -> weir_watch_suspect:found(State#state.tick, Found, Suspect) end,
    {noreply, with_suspect(Pid, Change, State#state{tracing = none, tracer_bytes = Bytes})};
handle_info({monitor, Pid, long_message_queue, true}, State) when is_pid(Pid) ->
    {noreply, at_once(Pid, State)};
handle_info({monitor, Pid, long_gc, Info}, State) ->
    Ms = proplists:get_value(timeout, Info, 0),
    {noreply, with_suspect(Pid, fun(Suspect) -> weir_watch_suspect:collected(Ms, Suspect) end, State)};
handle_info({parts, Asker, Parts}, #state{asking_parts = {Asker, Monitor}} = State) ->
    true = demonitor(Monitor, [flush]),
    {noreply, State#state{parts = Parts, asking_parts = none}};
handle_info({'DOWN', Monitor, process, Pid, _}, #state{subscribers = Subscribers} = State) ->
    case State of
        #state{asker = {Pid, Monitor, _}} -> {noreply, State#state{asker = none}};
        #state{asking_parts = {Pid, Monitor}} -> {noreply, State#state{asking_parts = none}};
        #state{probe = {Pid, Monitor}} -> {noreply, State#state{probe = none}};
        #state{pins = Pins} ->
            gone(State#state{subscribers = maps:remove(Pid, Subscribers), pins = maps:remove(Pid, Pins)})
    end;
handle_info({'EXIT', Scanner, {shutdown, {too_large, Bytes}}}, #state{scanner = Scanner} = State) ->
    overloaded(0, Bytes, State#state{scanner = none});
handle_info({'EXIT', Scanner, _}, #state{scanner = Scanner} = State) ->
    {noreply, State#state{scanner = none, turn = none}};
handle_info({'EXIT', Reader, _}, #state{reader = Reader} = State) ->
    {noreply, State#state{reader = none, reading = none}};
handle_info({'EXIT', Sleeper, _}, #state{sleeper = Sleeper} = State) ->
    {noreply, State#state{sleeper = none}};
handle_info({'EXIT', Tracer, Reason}, #state{tracer = Tracer, tracing = Pid} = State) ->
    ok = weir_watch_trace:give_back(),
    Ended = State#state{tracer = none, tracing = none, tracer_bytes = 0},
    case Reason of
        %% By the runtime, perhaps: what it was sent was larger than it may be.
        killed -> {noreply, with_suspect(Pid, fun weir_watch_suspect:too_large/1, Ended)};
        _ -> {noreply, Ended}
    end;
handle_info({'EXIT', Pid, Reason}, #state{suspects = Suspects} = State) ->
    case suspect_of(Pid, State) of
        {Of, Suspect} ->
            case weir_watch_suspect:asked(Suspect) of
                %% By the runtime, perhaps: an answer was longer than it may be.
                all when Reason =:= killed ->
                    Again = fun(Looker) -> weir_watch_suspect:look_again(Looker, Suspect) end,
                    {noreply, with_looker(Of, none, Again, State)};
                _ ->
                    {noreply, State#state{suspects = maps:remove(Of, Suspects)}}
            end;
        false ->
            %% Whoever else is linked: one that was ended for good or a moment ago, or a ticker that has died, without
            %% which there may be no tick to start another.
            Tickers = maps:filter(fun(_, Ticker) -> Ticker =/= Pid end, State#state.tickers),
            {noreply, with_helpers(State#state{tickers = Tickers})}
    end;
handle_info(_, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{events = Events, scanner = Scanner, reader = Reader, sleeper = Sleeper} = State) ->
    Tracer = State#state.tracer,
    %% A link does not end a process when this one ends normally.
    Lookers = [weir_watch_suspect:looker(Suspect) || Suspect <- maps:values(State#state.suspects)],
    Under = [State#state.asker, State#state.probe, State#state.asking_parts],
    Askers = [element(1, Asking) || Asking <- Under, Asking =/= none],
    Tickers = maps:values(State#state.tickers),
    _ = [ok = weir_watch_trace:stop(Tracer) || is_pid(Tracer)],
    _ = [exit(Pid, kill) || Pid <- [Scanner, Reader, Sleeper | Tickers ++ Lookers ++ Askers], is_pid(Pid)],
    _ = end_events(Events),
    ok.

gone(#state{alone = true, subscribers = Subscribers} = State) when map_size(Subscribers) =:= 0 -> {stop, normal, State};
gone(State) -> {noreply, State}.

%% ---------------------------------------------------------------- events

%% The runtime tells of long collections, and from OTP 27 on of a long mailbox at once. Before OTP 28 a node has one
%% system monitor, which is not taken from anybody.
events() ->
    Trace = trace,
    case weir_watch_trace:is_possible() andalso erlang:function_exported(Trace, system, 3) of
        true ->
            Session = Trace:session_create(?MODULE, self(), []),
            _ = [Trace:system(Session, Event, Limit) || {Event, Limit} <- told()],
            {session, Session};
        false ->
            take_monitor()
    end.

told() ->
    Release = list_to_integer(erlang:system_info(otp_release)),
    [{long_gc, ?LONG_GC_MS} | [{long_message_queue, {?EVENT_UNTIL, ?EVENT_AT}} || Release >= 27]].

take_monitor() ->
    case erlang:system_monitor() of
        undefined ->
            case erlang:system_monitor(self(), told()) of
                undefined ->
                    system_monitor;
                %% Somebody has taken it in between.
                Others ->
                    _ = erlang:system_monitor(Others),
                    none
            end;
        _ ->
            none
    end.

no_monitor() ->
    <<"The node's system monitor is somebody else's: collections of garbage are not seen, and a process without a name "
        "that is flooded is found a little later.">>.

%% Somebody may take it at any time, or give it back.
still_told(#state{events = system_monitor} = State) ->
    case erlang:system_monitor() of
        {Monitor, _} when Monitor =:= self() -> State;
        _ -> State#state{events = take_monitor()}
    end;
still_told(#state{events = none} = State) ->
    State#state{events = take_monitor()};
still_told(State) ->
    State.

%% Somebody may have taken the system monitor meanwhile.
end_events({session, Session}) ->
    Trace = trace,
    Trace:session_destroy(Session);
end_events(system_monitor) ->
    case erlang:system_monitor() of
        {Monitor, _} when Monitor =:= self() -> erlang:system_monitor(undefined);
        _ -> others
    end;
end_events(none) ->
    none.

%% ---------------------------------------------------------------- a tick

tick(#state{tick = Tick} = State) ->
    Next = turn(kill_late(with_helpers(State#state{tick = Tick + 1}))),
    case Tick rem ?SECOND of
        0 -> second(Next#state{news = []});
        _ -> tell_news(Next)
    end.

%% Who is new, and told of by the runtime or waited for by many, is in a snapshot at the next tick, before anything is
%% known but that he is there.
tell_news(#state{news = [_ | _] = News, snapshot = #{suspects := Told} = Snapshot, suspects = Suspects} = State) ->
    New = [describe(Suspect, State) || Pid <- News, #{Pid := Suspect} <- [Suspects]],
    publish(Snapshot#{at := erlang:system_time(millisecond), suspects := New ++ Told}, State#state{news = []});
tell_news(State) ->
    State.

now_ms() -> erlang:monotonic_time(millisecond).

%% @private A scheduler that native code keeps runs none of its timers, and nobody takes over what waits for it before
%% another one looks for work. So there is a ticker on each of several schedulers, and the first tick counts.
-spec ticker(pid()) -> no_return().
ticker(Agent) ->
    receive
    after ?TICK_MS ->
        Agent ! tick,
        ?MODULE:ticker(Agent)
    end.

%% Those that are not there, or have died, are started. At the limit of processes they are started when there is room.
with_helpers(#state{tickers = Tickers} = State) ->
    case lists:seq(1, min(?TICKERS, erlang:system_info(schedulers_online))) -- maps:keys(Tickers) of
        [Scheduler | _] ->
            with_helpers(fun() -> State#state{tickers = Tickers#{Scheduler => start_ticker(Scheduler)}} end, State);
        [] ->
            with_others(State)
    end.

%% The option `scheduler' is not in the type of spawn_opt's options.
-dialyzer({no_return, [with_helpers/1, start_ticker/1]}).
start_ticker(Scheduler) ->
    spawn_opt(?MODULE, ticker, [self()], [link, {priority, high}, {scheduler, Scheduler}]).

with_others(#state{scanner = none} = State) ->
    with_helpers(fun() -> State#state{scanner = weir_watch_scan:start_link(), turn = none, burst = none} end, State);
with_others(#state{reader = none} = State) ->
    with_helpers(fun() -> State#state{reader = weir_watch_node:start_link(), reading = none} end, State);
with_others(#state{sleeper = none, delays = Delays} = State) ->
    with_helpers(fun() -> State#state{sleeper = weir_watch_delay:start_link(Delays)} end, State);
with_others(State) ->
    State.

with_helpers(Start, State) ->
    try Start() of
        Started -> with_helpers(Started)
    catch
        error:system_limit ->
            %% Who tries again has no ticker, perhaps.
            _ = [erlang:send_after(?TICK_MS, self(), tick) || map_size(State#state.tickers) =:= 0],
            limit(<<"The node is at its limit of processes: not all is looked at.">>, State)
    end.

kill_late(#state{asker = {Asker, _, Since}} = State) ->
    true = now_ms() - Since < ?LATE_MS orelse exit(Asker, kill),
    State;
kill_late(State) ->
    State.

%% The scanner waits for somebody who runs and does not come to an end. Whom, another process is to find out.
turn(#state{scanner = none} = State) ->
    State;
turn(#state{turn = none, scanner = Scanner, burst = Burst, tick = Tick} = State) ->
    Skip = [Pid || {Pid, Suspect} <- maps:to_list(State#state.suspects), weir_watch_suspect:is_late(Suspect)],
    ok = weir_watch_scan:turn(Scanner, #{
        long => weir_watch_suspect:long(), samples => ?SAMPLES, burst => Burst =:= asked, skip => Skip,
        names => Tick rem ?SECOND =:= 2, bytes => ?MAX_BYTES
    }),
    State#state{turn = now_ms(), burst = case Burst of asked -> going; _ -> Burst end};
turn(#state{turn = Since, probe = none, scanner = Scanner} = State) ->
    Agent = self(),
    case now_ms() - Since > ?LATE_MS of
        true ->
            try spawn_opt(fun() -> Agent ! {reads, self(), weir_watch_scan:reads(Scanner)} end, [link, monitor]) of
                Probe -> State#state{probe = Probe}
            catch
                error:system_limit -> State
            end;
        false ->
            State
    end;
turn(State) ->
    State.

%% The scanner is started anew, and leaves out whom it has waited for as long as he is silent.
probed(Pid, #state{scanner = Scanner, turn = Since} = State) when is_pid(Pid), is_pid(Scanner), is_integer(Since) ->
    true = exit(Scanner, kill),
    suspect(Pid, State#state{scanner = none, turn = none});
probed(_Pid, State) ->
    State.

scanned(#{long := Long, worked := Worked, stuck := Stuck, running := Running, samples := Samples, us := Us} = Result,
    State) ->
    #{processes := Processes, burst := Burst, bytes := Bytes} = Result,
    Busy = [Pid || {Pid, Reductions} <- Worked, Reductions >= ?HARD_WORK],
    New = lists:foldl(
        fun suspect/2,
        State#state{
            turn = none, us = State#state.us + Us, scanner_bytes = Bytes,
            %% None while the scanner has no room for the process that has the pids.
            processes = case Processes of 0 -> State#state.processes; _ -> Processes end
        },
        %% One more than there is room for, so that it is told that some are left out.
        lists:sublist([Pid || {Pid, _} <- Long], ?SUSPECTS + 1) ++ lists:sublist(Stuck, 5) ++ lists:sublist(Busy, 5)
    ),
    Going = case Burst of true -> going; false -> none end,
    start_asker(Samples, Running, New#state{burst = case State#state.burst of asked -> asked; _ -> Going end}).

start_asker(Samples, Running, #state{asker = none} = State) ->
    try weir_watch_ask:start(Samples, Running) of
        {Asker, Monitor} -> State#state{asker = {Asker, Monitor, now_ms()}}
    catch
        error:system_limit -> limit(<<"The node is at its limit of processes: calls are not sampled.">>, State)
    end;
start_asker(_Samples, _Running, State) ->
    State.

%% Told for some seconds, since it may be over.
limit(Text, #state{passing = Passing, tick = Tick} = State) -> State#state{passing = Passing#{Text => Tick}}.

passing(#state{passing = Passing, tick = Tick}) ->
    [Text || {Text, At} <- maps:to_list(Passing), At > Tick - ?QUIET_S * ?SECOND].

asked(#{waiters := Waiters, running := Running, us := Us}, #state{hits = Hits, in_ets = InEts} = State) ->
    Window = [{State#state.tick, Waiters} | aged(Hits, State#state.tick)],
    %% One who was drawn again and again is enough to look closer: it may be in a deadlock.
    Counts = weir_watch_suspect:counts([Server || {_, Pairs} <- Window, {Server, _} <- Pairs, node(Server) =:= node()]),
    Servers = lists:sublist([Server || {Server, N} <- Counts, N >= ?HITS], 10),
    Ets = [{Pid, Module =:= ets} || {Pid, {Module, _, _}} <- Running],
    lists:foldl(
        fun at_once/2,
        State#state{hits = Window, us = State#state.us + Us, in_ets = lists:sublist(Ets ++ InEts, 2 * ?KNOWN)},
        Servers
    ).

aged(Hits, Now) -> [Hit || {Tick, _} = Hit <- Hits, Tick > Now - ?WINDOW].

%% Notices a process: a new suspect, or one more second for an old one. There is no room for a new one while all that
%% are there are in trouble or were so a moment ago, but for some whom somebody inspects.
suspect(Pid, #state{suspects = Suspects, tick = Tick} = State) ->
    case Suspects of
        #{Pid := Suspect} ->
            State#state{suspects = Suspects#{Pid := weir_watch_suspect:notice(Tick, Suspect)}};
        #{} when Pid =:= self(); Pid =:= State#state.scanner ->
            State;
        #{} ->
            Roomy = make_room(State),
            Room = ?SUSPECTS + case is_pinned(Pid, Roomy) of true -> ?INSPECTED; false -> 0 end,
            case map_size(Roomy#state.suspects) < Room of
                true -> new_suspect(Pid, Roomy);
                false -> limit(<<"More processes stand out than can be looked at: some are left out.">>, Roomy)
            end
    end.

%% The same of one who is told of at the next tick if he is new.
at_once(Pid, #state{suspects = Before, news = News} = State) ->
    case suspect(Pid, State) of
        #state{suspects = #{Pid := _}} = New when not is_map_key(Pid, Before) -> New#state{news = [Pid | News]};
        New -> New
    end.

new_suspect(Pid, #state{tick = Tick} = State) ->
    with_looker(Pid, all, fun(Looker) -> weir_watch_suspect:new(Pid, Looker, Tick) end, State).

with_looker(Pid, Asked, Suspect, #state{suspects = Suspects} = State) ->
    try weir_watch_look:start_link(Pid, Asked) of
        Looker -> State#state{suspects = Suspects#{Pid => Suspect(Looker)}}
    catch
        error:system_limit ->
            limit(<<"The node is at its limit of processes: suspects are not looked at.">>,
                State#state{suspects = maps:remove(Pid, Suspects)})
    end.

make_room(#state{suspects = Suspects, tick = Tick} = State) when map_size(Suspects) >= ?SUSPECTS ->
    Idle = [
        {weir_watch_suspect:noticed(Suspect), Pid}
     || {Pid, Suspect} <- maps:to_list(Suspects), weir_watch_suspect:is_quiet(Tick - ?SECOND, Suspect),
        not weir_watch_suspect:is_long(Suspect), not is_pinned(Pid, State)
    ],
    case lists:sort(Idle) of
        [{_, Pid} | _] -> drop(Pid, State);
        [] -> State
    end;
make_room(State) ->
    State.

is_pinned(Pid, #state{pins = Pins}) -> lists:member(Pid, maps:values(Pins)).

drop(Pid, #state{suspects = Suspects} = State) ->
    true = exit(weir_watch_suspect:looker(map_get(Pid, Suspects)), kill),
    State#state{suspects = maps:remove(Pid, Suspects)}.

with_suspect(Pid, Change, #state{suspects = Suspects} = State) ->
    case Suspects of
        #{Pid := Suspect} -> State#state{suspects = Suspects#{Pid := Change(Suspect)}};
        #{} -> State
    end.

with_suspect_of(Looker, Change, State) ->
    case suspect_of(Looker, State) of
        {Pid, _} -> with_suspect(Pid, Change, State);
        false -> State
    end.

suspect_of(Looker, #state{suspects = Suspects}) ->
    case [Found || {_, Suspect} = Found <- maps:to_list(Suspects), weir_watch_suspect:looker(Suspect) =:= Looker] of
        [Found] -> Found;
        [] -> false
    end.

%% Of the others that it has started, each has a heap that is bounded, or a small one.
within_bounds(#state{scanner_bytes = Scanner} = State) ->
    [{_, Mailbox}, {_, Heap}] = process_info(self(), [message_queue_len, total_heap_size]),
    case Heap * erlang:system_info(wordsize) + Scanner of
        Bytes when Mailbox > ?MAX_MAILBOX; Bytes > ?MAX_BYTES -> overloaded(Mailbox, Bytes, State);
        _ -> {noreply, State}
    end.

%% The report is another process': it stops on a node whose log hangs, too.
overloaded(Mailbox, Bytes, State) ->
    Report = [
        "weir_watch stops: ~b messages wait for it and it needs ~b bytes; ~b and ~b are its limits.",
        [Mailbox, Bytes, ?MAX_MAILBOX, ?MAX_BYTES]
    ],
    _ = try spawn(logger, warning, Report) catch error:system_limit -> apply(logger, warning, Report) end,
    {stop, {shutdown, overloaded}, State}.

%% ---------------------------------------------------------------- each second

second(#state{hits = Hits, tick = Tick, second = Last, lasted = Lasted} = Before) ->
    Now = now_ms(),
    State = still_told(Before#state{
        hits = aged(Hits, Tick), second = Now, lasted = lists:sublist([max(1, Now - Last) | Lasted], 60)
    }),
    Facts = maps:merge(weir_watch_node:at_once(), State#state.facts),
    Grown = burst(maps:get(processes, maps:get(memory, Facts), none), read_node(State)),
    Counted = fun(Pid, Suspect) ->
        weir_watch_suspect:second(hd(Grown#state.lasted), waiters(Pid, Grown), Grown#state.tick, Suspect)
    end,
    Followed = follow(quiet(Grown#state{suspects = maps:map(Counted, Grown#state.suspects)})),
    Described = maps:map(fun(_, Suspect) -> describe(Suspect, Followed) end, Followed#state.suspects),
    {Diagnoses, Judged} = judge(Facts, Described, Followed),
    %% That is the time for which it was at work, whether its schedulers had a processor or waited for one.
    Us = round(State#state.us * map_get(given, Facts)),
    Spent = lists:sublist([Us | State#state.spent], 60),
    Parts = ask_parts(trace(Described, Judged#state{us = 0, spent = Spent})),
    publish(snapshot(Facts, Described, Diagnoses, Parts), Parts).

%% One suspect at a time; whose turn was the longest ago.
trace(Described, #state{tracing = none, tracer = Tracer, tick = Tick} = State) when Tracer =/= impossible ->
    Turns = [
        {weir_watch_suspect:traced(Suspect), Pid, Questions}
     || {Pid, Suspect} <- maps:to_list(State#state.suspects),
        Questions <- [weir_watch_suspect:questions(Tick, is_pinned(Pid, State), map_get(Pid, Described), Suspect)],
        Questions =/= []
    ],
    case lists:sort(Turns) of
        [{_, Pid, Questions} | _] -> trace_one(Pid, Questions, with_tracer(State));
        [] -> State
    end;
trace(_Described, State) ->
    State.

trace_one(Pid, Questions, #state{tracer = Tracer, tick = Tick} = State) when is_pid(Tracer) ->
    ok = weir_watch_trace:ask(Tracer, Pid, Questions),
    Traced = fun(Suspect) -> weir_watch_suspect:traced(Tick, Suspect) end,
    with_suspect(Pid, Traced, State#state{tracing = Pid, us = State#state.us + ?TRACE_US * length(Questions)});
trace_one(_Pid, _Questions, State) ->
    State.

with_tracer(#state{tracer = none} = State) ->
    try
        State#state{tracer = weir_watch_trace:start_link()}
    catch
        error:system_limit -> State
    end;
with_tracer(State) ->
    State.

read_node(#state{reading = none, reader = Reader} = State) when is_pid(Reader) ->
    ok = weir_watch_node:ask(Reader),
    State#state{reading = now_ms()};
read_node(State) ->
    State.

burst(none, State) ->
    State;
burst(Memory, #state{growth = Growth, burst = Burst, processes = Processes} = State) ->
    case weir_watch_growth:second(Memory, Processes, Burst =/= none, Growth) of
        {true, Next} -> State#state{growth = Next, burst = asked};
        {false, Next} -> State#state{growth = Next}
    end.

%% Each tick's samples are so many of all processes. They count as lasting if they lie one and a half seconds apart.
waiters(Pid, #state{hits = Hits, processes = Processes}) ->
    Mine = [{Tick, Waiter} || {Tick, Pairs} <- Hits, {Server, Waiter} <- Pairs, Server =:= Pid],
    case Mine of
        [] ->
            {0, 0, []};
        [{Last, _} | _] ->
            Waiters = lists:usort([Waiter || {_, Waiter} <- Mine]),
            Drawn = length(Hits) * min(Processes, ?SAMPLES),
            Estimate = weir_watch_ask:estimate(length(Mine), length(Waiters), Drawn, Processes),
            {First, _} = lists:last(Mine),
            Sustained = if Last - First >= 7, length(Waiters) >= ?HITS -> max(1, Estimate); true -> 0 end,
            {Estimate, Sustained, lists:sublist(Waiters, 10)}
    end.

quiet(#state{suspects = Suspects, tick = Tick} = State) ->
    Quiet = [
        Pid
     || {Pid, Suspect} <- maps:to_list(Suspects), weir_watch_suspect:is_quiet(Tick - ?QUIET_S * ?SECOND, Suspect),
        not is_pinned(Pid, State)
    ],
    lists:foldl(fun drop/2, State, Quiet).

%% Whom a suspect waits for becomes a suspect.
follow(#state{suspects = Suspects} = State) ->
    Called = [
        Callee
     || Suspect <- maps:values(Suspects), weir_watch_suspect:is_in_trouble(Suspect),
        Callee <- weir_watch_suspect:waits_for(Suspect)
    ],
    lists:foldl(fun suspect/2, State, lists:usort(Called)).

describe(Suspect, #state{suspects = Suspects, lasted = Lasted, tick = Tick}) ->
    weir_watch_suspect:describe(Suspect, Suspects, Lasted, Tick).

%% ---------------------------------------------------------------- verdicts

judge(NodeFacts, Described, State) ->
    Given = map_get(given, NodeFacts),
    First = maps:map(fun(Pid, Description) -> (facts(Pid, Description, State))#{given => Given} end, Described),
    Verdicts = maps:map(fun(_, Facts) -> weir_watch_causes:find(Facts) end, First),
    %% Whoever is waited for by one in trouble, directly or through others, is judged as if he were in trouble. If the
    %% last of these that is the reason is found, those who wait for him are none.
    Blamed = [
        {Pid, Root}
     || {Pid, {Cause, _}} <- maps:to_list(Verdicts), Cause =:= blocking orelse Cause =:= unsure,
        Root <- lists:sublist(roots(maps:get(chain, maps:get(Pid, Described)), First), 1)
    ],
    Roots = maps:from_list([{Callee, Verdict} || {_, {Callee, Verdict}} <- Blamed]),
    Innocent = [Pid || {Pid, _} <- Blamed],
    Final = maps:merge(maps:without(Innocent, Verdicts), Roots),
    lists:foldl(
        fun({Pid, Description}, {Diagnoses, Acc}) ->
            verdict(Pid, maps:get(Pid, Final, none), Description, Diagnoses, Acc)
        end,
        node_verdict(NodeFacts, State),
        maps:to_list(Described)
    ).

roots(Chain, Facts) ->
    [
        {Callee, Verdict}
     || Callee <- lists:reverse(Chain), #{Callee := Its} <- [Facts], Verdict <- [weir_watch_causes:root(Its)],
        Verdict =/= none
    ].

%% What the rules say twice in a row is told.
verdict(Pid, Verdict, Description, Diagnoses, #state{suspects = Suspects} = State) ->
    {Told, Suspect} = weir_watch_suspect:judged(Verdict, State#state.tick, map_get(Pid, Suspects)),
    Diagnosis = [weir_watch_causes:diagnosis(Description, Verdict, Since) || {since, Since} <- [Told]],
    {Diagnosis ++ Diagnoses, State#state{suspects = Suspects#{Pid := Suspect}}}.

node_verdict(Facts, #state{node_trouble = Since} = State) ->
    case weir_watch_causes:node_cause(Facts) of
        none -> {[], State#state{node_trouble = none}};
        _ when Since =:= none -> {[], State#state{node_trouble = erlang:system_time(millisecond)}};
        Verdict -> {[weir_watch_causes:diagnosis(undefined, Verdict, Since)], State}
    end.

facts(Pid, Description, #state{suspects = Suspects, in_ets = InEts} = State) ->
    #{kept := Kept} = Facts = weir_watch_suspect:facts(map_get(Pid, Suspects), Description),
    Facts#{
        %% A collection keeps a process from answering too, and where these are not told of, nobody can say which it
        %% was.
        kept := case State#state.events of none -> 0.0; _ -> Kept end,
        in_ets =>
            case length(InEts) >= ?KNOWN of
                true -> length(lists:usort([Other || {Other, true} <- InEts, Other =/= Pid]));
                false -> unknown
            end
    }.

%% ---------------------------------------------------------------- telling

ask_parts(#state{asking_parts = none, parts = {_, Asked},
    tick = Tick} = State) when Tick rem (?PARTS_S * ?SECOND) < ?SECOND ->
    Agent = self(),
    Spared = spared(State),
    try spawn_opt(fun() -> Agent ! {parts, self(), weir_watch_parts:ask(Asked, Spared)} end, [link, monitor]) of
        Asking -> State#state{asking_parts = Asking}
    catch
        error:system_limit -> State
    end;
ask_parts(State) ->
    State.

spared(#state{suspects = Suspects}) ->
    [Pid || {Pid, Suspect} <- maps:to_list(Suspects), weir_watch_suspect:to_be_spared(Suspect)].

snapshot(Facts, Described, Diagnoses, #state{spent = Spent, parts = {Parts, _}} = State) ->
    [{_, Mailbox}, {_, Words}] = process_info(self(), [message_queue_len, total_heap_size]),
    (maps:without([polling, sockets, given], Facts))#{
        node => node(),
        at => erlang:system_time(millisecond),
        watched => now_ms() - State#state.began,
        suspects => worst_first(maps:values(Described), [Pid || #{pid := Pid} <- Diagnoses]),
        diagnoses => lists:sort(fun(#{since := A}, #{since := B}) -> A =< B end, Diagnoses),
        parts => if Parts =:= none -> no_parts(); true -> Parts end,
        delays => delays(State),
        cost => #{
            share => lists:sum(Spent) / (lists:sum(State#state.lasted) * 1000),
            %% The agent, the scanner, the tracer, and small processes.
            memory =>
                Words * erlang:system_info(wordsize) + State#state.scanner_bytes + State#state.tracer_bytes +
                    10_000 * (map_size(Described) + 2),
            mailbox => Mailbox
        },
        limits =>
            [stale() || Since <- [State#state.reading], Since =/= none, now_ms() - Since > 2000] ++
                [starved(Given) || #{given := Given} <- [Facts], weir_watch_causes:is_too_little(Given)] ++
                passing(State) ++
                [no_monitor() || State#state.events =:= none]
    }.

delays(#state{delays = Delays}) ->
    {SumUs, Counts} = weir_watch_delay:read(Delays),
    #{sum_us => SumUs, counts => Counts}.

stale() ->
    <<"A scheduler does not answer: the figures of memory, schedulers and input are old.">>.

starved(Given) ->
    iolist_to_binary(io_lib:format("The machine gives this node ~b % of the processor time that it wants.", [
        round(100 * Given)
    ])).

no_parts() ->
    #{pools => [], clusters => [], logs => [], servers => [], clients => [], caches => [], sockets => #{},
        left_out => #{}}.

worst_first(Described, Diagnosed) ->
    Key = fun(#{pid := Pid, queue := Queue, drained := Drained, waiters := Waiters, core := Core}) ->
        {lists:member(Pid, Diagnosed), Queue + Drained + Waiters, Core}
    end,
    [Suspect || {_, Suspect} <- lists:reverse(lists:keysort(1, [{Key(Suspect), Suspect} || Suspect <- Described]))].

publish(Snapshot, #state{subscribers = Subscribers} = State) ->
    Told = maps:map(
        fun
            (Pid, {Monitor, true}) ->
                %% One behind a busy connection gets the next.
                {Monitor, erlang:send(Pid, {weir_watch, self(), Snapshot}, [noconnect, nosuspend]) =/= ok};
            (_Pid, Waits) ->
                Waits
        end,
        Subscribers
    ),
    State#state{subscribers = Told, snapshot = Snapshot}.
