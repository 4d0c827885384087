%% @doc The loop of a weir_server: wait, drain, handle.
%%
%% ```
%%              +------- nothing drained -------- turn <-------------- callback returned --+
%%              v                                  ^ |                                     |
%%    wait (time-out, hibernation)                 | | a message is left of the chunk      |
%%              | message                          | +--------> handle one, or a batch ----+
%%              |                            chunk |
%%              +--> few in the mailbox: handle it | ?LOOK handled, or nothing left of the chunk
%%              +--> many --> look at the mailbox -+
%%                                |
%%                                +--> system message, parent's exit, info/1: handled at once; then back
%% '''
%% What was drained is in the inbox (weir_server_inbox), but for the *chunk* that is being worked off: messages in their
%% order.
%%
%% Most servers have fast callbacks, and for those draining only costs. So as long as callbacks are fast, or the mailbox
%% is found short, messages are taken from it one by one, as gen_server does (*direct*), and every ?LOOK_DIRECT messages
%% it is looked at how many there are. A server that takes batches, gives priorities or has a bound is never direct.
%%
%% What can stop a turn: a callback's exception or `{stop, ...}' goes to weir_server_end, which has `terminate/2' run,
%% logs and exits. A kill needs no clean-up: all state is the process's own. Timers that were started for `{timeout,
%% ...}' actions and are not needed any more may have sent their message: it has a tag that says so, and is dropped.
%%
%% Cost beyond gen_server's: direct, the length of the mailbox (20 ns) for every ?LOOK_DIRECT messages, and in a backlog
%% 0.2 us. Drained, as much for every ?LOOK, and four words on the heap for each message.
-module(weir_server_loop).

-export([enter/8]).

%% for weir_server_system, and for proc_lib:hibernate
-export([resume/6, changed/6, acknowledge/5]).
-export([wake/4]).

-include("weir_server.hrl").
-include("weir_server_loop.hrl").

%% Together with ?CALLED, six calls less for each message, which is a tenth of what a cast takes.
-compile({inline, [received/6, debug_in/3, debug_noreply/3, debug_out/5, reply/5]}).

%% How many messages are handled between two looks at the mailbox while they are taken from it one by one.
-define(LOOK_DIRECT, 64).

%% What changes with each message of a direct server is in one small integer, so that it costs an addition, and no
%% record is made anew before there is something to do. From the lowest bit: how many messages were handled since the
%% last look (8 bits); how many of each kind, since they were last counted in the inbox (9 bits each); when the callback
%% began that is being measured, 0 if none is (20 bits of os:perf_counter/0); and how many have been measured in a row
%% (2 bits).
-define(SINCE_LOOK(Count), ((Count) band 16#ff)).
-define(A_CALL, ((1 bsl 8) + 1)).
-define(A_CAST, ((1 bsl 17) + 1)).
-define(AN_INFO, ((1 bsl 26) + 1)).
-define(KIND(Count, Shift), (((Count) bsr (Shift)) band 16#1ff)).
-define(KINDS(Count), ((Count) band (((1 bsl 27) - 1) bsl 8))).
%% One of them is past half of what there is room for.
-define(MANY, ((1 bsl 16) bor (1 bsl 25) bor (1 bsl 34))).
-define(STAMP(Count), (((Count) bsr 35) band 16#fffff)).
-define(STAMPED(Now), (max(1, (Now) band 16#fffff) bsl 35)).
-define(MEASURED(Count), ((Count) bsr 55)).
-define(A_MEASURED, (1 bsl 55)).

%% Callbacks are slow if so many in a row take ?SLOW_CALLBACK_NS: one may have had to wait for its turn, or for
%% a message, or to collect garbage, which takes the longer the more messages wait.
-define(IN_A_ROW, 3).

%% @doc Runs the loop with nothing drained. The callback module must be loaded. Never returns.
-spec enter(pid(), term(), module(), timeout(), #conf{}, State :: term(), weir_server:action(), [sys:dbg_opt()]) ->
    no_return().
enter(Parent, Name, Mod, HibernateAfter, #conf{backoff = Backoff} = Conf, State, Action, Debug) ->
    _ = code:ensure_loaded(Mod),
    Tag = make_ref(),
    Inbox = weir_server_inbox:new({Name, Parent, Tag}, Mod, Conf),
    Server = #server{
        parent = Parent,
        name = Name,
        hibernate_after = HibernateAfter,
        tag = Tag,
        slow = erlang:convert_time_unit(?SLOW_CALLBACK_NS, nanosecond, perf_counter),
        backoff = weir_server_backoff:new(Backoff),
        ?SERVED_BY(Mod, Inbox)
    },
    %% The first look comes soon.
    act(Action, Server, [], ?LOOK_DIRECT - ?LOOK, State, Debug).

%% Another callback module, or another version of it: what was drained is put to it anew.
serve(Mod, Chunk, State, #server{inbox = Inbox} = Server) ->
    Remade = weir_server_inbox:remake(Mod, {Chunk, State}, Inbox),
    Server#server{?SERVED_BY(Mod, Remade), direct = false}.

%% ---------------------------------------------------------------- turns

turn(S, [Message | Chunk], Count, State, Debug) when ?SINCE_LOOK(Count) < ?LOOK, not S#server.batch ->
    handle(Message, S, Chunk, Count, State, Debug);
turn(S, [], Count, State, Debug) ->
    rest(S, Count, State, infinity, Debug);
turn(#server{batch = true} = S, Chunk, Count, State, Debug) ->
    handle_batch(Chunk, counted(Count, S), State, Debug);
turn(S, Chunk, Count, State, Debug) ->
    #server{inbox = Inbox} = Counted = counted(Count, S),
    case weir_server_inbox:look(?SINCE_LOOK(Count), State, Inbox) of
        {ok, Looked} ->
            {Urgent, Left} = weir_server_inbox:take_urgent(Looked),
            ok = weir_server_report:publish(weir_server_inbox:behind(Left)),
            turn(Counted#server{inbox = Left}, Urgent ++ Chunk, 0, State, Debug);
        {control, Message, Looked} ->
            {Urgent, Left} = weir_server_inbox:take_urgent(Looked),
            control(Message, Counted#server{inbox = Left}, Urgent ++ Chunk, 0, State, infinity, Debug);
        Raised -> raised(Raised, Counted, Chunk, State, Debug)
    end.

%% What a callback has asked for. Messages that were drained are there already: they end a time-out or a sleep at once.
act({continue, Continue} = Message, #server{mod = Mod} = S, Chunk, Count, State, Debug0) ->
    Result = ?CALLED(Mod:handle_continue(Continue, State)),
    Debug = debug(Debug0, S, Message),
    common_result(Result, undefined, Message, S, Chunk, Count, State, Debug);
act({Kind, 0, Message}, S, Chunk, Count, State, Debug) ->
    at_once(Kind, Message, S, Chunk, Count, State, Debug);
act({Kind, Time, Message, Options}, S, Chunk, Count, State, Debug) ->
    case weir_server_action:is_abs(Options) of
        false when Time =:= 0 -> at_once(Kind, Message, S, Chunk, Count, State, Debug);
        Abs -> timer(Kind, Time, Message, Abs, S, Chunk, Count, State, Debug)
    end;
act({Kind, Time, Message}, S, Chunk, Count, State, Debug) ->
    timer(Kind, Time, Message, false, S, Chunk, Count, State, Debug);
act(Wait, S, [], Count, State, Debug) ->
    rest(S, Count, State, Wait, Debug);
act(_Wait, S, Chunk, Count, State, Debug) ->
    turn(S, Chunk, Count, State, Debug).

at_once(Kind, Message, S, Chunk, Count, State, Debug) ->
    _ = Kind =:= hibernate andalso garbage_collect(),
    case S#server.batch of
        true ->
            handle_batch([Message | Chunk], counted(Count, S), State, Debug);
        false ->
            %% Nothing is looked at in between, however often that is asked for in a row.
            handle(Message, counted(Count, S), Chunk, min(?SINCE_LOOK(Count), ?LOOK_DIRECT), State, Debug)
    end.

timer(Kind, Time, Message, Abs, S, [], Count, State, Debug) ->
    Sleep =
        case Kind of
            timeout -> infinity;
            hibernate -> hibernate
        end,
    case Time =/= infinity andalso weir_server_inbox:is_empty(S#server.inbox) of
        true ->
            Timer = erlang:start_timer(weir_server_action:due(Time, Abs), self(), S#server.tag, [{abs, true}]),
            rest(S, Count, State, {timer, Timer, Message, Sleep}, Debug);
        false ->
            rest(S, Count, State, Sleep, Debug)
    end;
timer(_Kind, _Time, _Message, _Abs, S, Chunk, Count, State, Debug) ->
    turn(S, Chunk, Count, State, Debug).

%% ---------------------------------------------------------------- nothing left of the chunk

rest(#server{direct = true} = S, Count, State, Wait, Debug) when ?SINCE_LOOK(Count) < ?LOOK_DIRECT ->
    wait(S, Count, State, Wait, Debug);
rest(#server{direct = true} = S, Count, State, Wait, Debug) when ?STAMP(Count) =:= 0 ->
    wait(S, measure(Count), State, Wait, Debug);
rest(#server{direct = true, slow = Slow} = S, Count, State, Wait, Debug) ->
    case (os:perf_counter() - ?STAMP(Count)) band 16#fffff of
        Took when Took < Slow, Count band ?MANY =:= 0 ->
            wait(S, ?KINDS(Count), State, Wait, Debug);
        Took when Took < Slow ->
            wait(counted(Count, S), 0, State, Wait, Debug);
        _ when ?MEASURED(Count) < ?IN_A_ROW - 1 ->
            wait(S, measure(Count + ?A_MEASURED), State, Wait, Debug);
        Took ->
            #server{inbox = Inbox} = Counted = counted(Count, S),
            case weir_server_inbox:backlog(Took, Inbox) of
                {drain, Looked} -> next([], true, Counted#server{inbox = Looked}, State, Wait, Debug);
                {later, Looked} -> wait(Counted#server{inbox = Looked}, 0, State, Wait, Debug)
            end
    end;
rest(#server{inbox = Inbox} = S, Count, State, Wait, Debug) ->
    case weir_server_inbox:is_empty(Inbox) of
        false ->
            next([], false, counted(Count, S), State, Wait, Debug);
        true ->
            case weir_server_inbox:is_direct(Inbox) of
                true ->
                    ok = weir_server_report:publish(0),
                    rest(S#server{direct = true}, Count, State, Wait, Debug);
                false ->
                    poll(counted(Count, S), State, Wait, Debug)
            end
    end.

%% The next callback is measured.
measure(Count) ->
    Kinds = Count band bnot ((16#fffff bsl 35) bor 16#ff),
    Kinds + ?LOOK_DIRECT - 1 + ?STAMPED(os:perf_counter()).

%% Whether it had to be waited for a message is to be known, for the longest wait.
poll(S, State, Wait, Debug) ->
    receive
        Message -> arrived(Message, false, S, 0, State, Wait, Debug)
    after 0 -> wait(S, 0, State, Wait, Debug)
    end.

wait(S, Count, State, infinity, Debug) ->
    receive
        %% Of these two there are most.
        {'$gen_cast', _} = Message -> received(Message, true, S, Count, State, Debug);
        {'$gen_call', _, _} = Message -> received(Message, true, S, Count, State, Debug);
        Message -> arrived(Message, true, S, Count, State, infinity, Debug)
    after S#server.hibernate_after -> sleep(S, Count, State, none, Debug)
    end;
wait(S, Count, State, hibernate, Debug) ->
    hibernate(S, Count, State, none, Debug);
wait(S, Count, State, {timer, Timer, Message, infinity} = Wait, Debug) ->
    receive
        Other -> arrived(Other, true, S, Count, State, Wait, Debug)
    after S#server.hibernate_after -> sleep(S, Count, State, {Timer, Message}, Debug)
    end;
wait(S, Count, State, {timer, Timer, Message, hibernate}, Debug) ->
    hibernate(S, Count, State, {Timer, Message}, Debug);
wait(S, Count, State, Time, Debug) ->
    receive
        Message -> arrived(Message, true, S, Count, State, Time, Debug)
    after Time ->
        %% As in gen_server, the time-out is a message like any other.
        arrived(timeout, true, S, Count, State, Time, Debug)
    end.

%% A message from the mailbox, while nothing is drained.
arrived({system, From, Request}, _HadToWait, S, Count, State, Wait, Debug) ->
    weir_server_system:handle(Request, From, S, [], Count, State, Wait, Debug);
arrived({'EXIT', Parent, Reason} = Message, _HadToWait, #server{parent = Parent} = S, _Count, State, _Wait, Debug) ->
    weir_server_end:stop(Reason, undefined, Message, S, [], State, Debug);
arrived(?INFO_REQUEST(_) = Message, _HadToWait, S, Count, State, Wait, Debug) ->
    control(Message, S, [], Count, State, Wait, Debug);
arrived({timeout, Timer, Tag}, HadToWait, #server{tag = Tag} = S, Count, State, Wait, Debug) ->
    case Wait of
        {timer, Timer, Message, _} -> received(Message, HadToWait, S, Count, State, Debug);
        _ -> wait(S, Count, State, Wait, Debug)
    end;
arrived(Message, HadToWait, S, Count, State, {timer, Timer, _, _}, Debug) ->
    ok = erlang:cancel_timer(Timer, [{async, true}, {info, false}]),
    received(Message, HadToWait, S, Count, State, Debug);
arrived(Message, HadToWait, S, Count, State, _Wait, Debug) ->
    received(Message, HadToWait, S, Count, State, Debug).

received(Message, _HadToWait, #server{direct = true} = S, Count, State, Debug) ->
    handle(Message, S, [], Count, State, Debug);
received(Message, HadToWait, S, Count, State, Debug) ->
    next([Message], HadToWait, counted(Count, S), State, infinity, Debug).

next(First, HadToWait, #server{inbox = Inbox} = S, State, Wait, Debug) ->
    case weir_server_inbox:next(First, HadToWait, State, Inbox) of
        {handle, Chunk, Looked} ->
            {Urgent, Left} = weir_server_inbox:take_urgent(Looked),
            ok = weir_server_report:publish(weir_server_inbox:behind(Left)),
            turn(S#server{inbox = Left, direct = false}, Urgent ++ Chunk, 0, State, Debug);
        {empty, Looked} ->
            ok = weir_server_report:publish(0),
            wait(S#server{inbox = Looked}, 0, State, Wait, Debug);
        {control, Message, Looked} ->
            {Urgent, Left} = weir_server_inbox:take_urgent(Looked),
            control(Message, S#server{inbox = Left, direct = false}, Urgent, 0, State, Wait, Debug);
        Raised -> raised(Raised, S, [], State, Debug)
    end.

%% What overtakes drained messages.
-spec control(term(), #server{}, [term()], non_neg_integer(), term(), wait(), [sys:dbg_opt()]) -> no_return().
control({system, From, Request}, S, Chunk, Count, State, Wait, Debug) ->
    weir_server_system:handle(Request, From, S, Chunk, Count, State, Wait, Debug);
control({'EXIT', _Parent, Reason} = Message, S, Chunk, _Count, State, _Wait, Debug) ->
    weir_server_end:stop(Reason, undefined, Message, S, Chunk, State, Debug);
control(?INFO_REQUEST(From), S, Chunk, Count, State, Wait, Debug) ->
    #server{inbox = Inbox} = Counted = counted(Count, S),
    gen:reply(From, weir_server_inbox:info(length(Chunk), Inbox)),
    %% It does not count as handled, and the next look is due when it was.
    resume(Counted, Chunk, ?SINCE_LOOK(Count), State, Wait, Debug).

%% @private Goes on after a message that was none for the callbacks.
-spec resume(#server{}, Chunk :: [term()], non_neg_integer(), State :: term(), wait(), [sys:dbg_opt()]) -> no_return().
resume(S, [], Count, State, Wait, Debug) -> rest(S, Count, State, Wait, Debug);
resume(S, Chunk, Count, State, _Wait, Debug) -> turn(S, Chunk, Count, State, Debug).

-spec raised(tuple(), #server{}, [term()], term(), [sys:dbg_opt()]) -> no_return().
raised({raised, exit, Reason, none, Message, Inbox}, S0, Chunk, State, Debug) ->
    S = S0#server{inbox = Inbox},
    weir_server_end:stop(Reason, undefined, Message, S, Chunk, State, Debug);
raised({raised, Class, Reason, Stacktrace, Message, Inbox}, S0, Chunk, State, Debug) ->
    S = S0#server{inbox = Inbox},
    weir_server_end:crash(Class, Reason, Stacktrace, undefined, Message, S, Chunk, State, Debug).

counted(Count, S) when ?KINDS(Count) =:= 0 ->
    S;
counted(Count, #server{inbox = Inbox} = S) ->
    Kinds = {?KIND(Count, 8), ?KIND(Count, 17), ?KIND(Count, 26)},
    S#server{inbox = weir_server_inbox:count(Kinds, Inbox)}.

%% ---------------------------------------------------------------- hibernation

%% With a back-off it is first waited, whether a message comes all the same.
hibernate(#server{backoff = Backoff} = S, Count, State, Timed, Debug) ->
    receive
        Message -> arrived(Message, true, S, Count, State, wait_of(Timed), Debug)
    after weir_server_backoff:delay(Backoff) -> sleep(S, Count, State, Timed, Debug)
    end.

wait_of(none) -> hibernate;
wait_of({Timer, Message}) -> {timer, Timer, Message, hibernate}.

sleep(#server{pre_hibernate = true, mod = Mod} = S, Count, State, Timed, Debug) ->
    case ?CALLED(Mod:handle_pre_hibernate(State)) of
        {returned, {hibernate, NewState}} -> sleep_now(S, Count, NewState, Timed, Debug);
        Other -> common_result(Other, undefined, pre_hibernate, S, [], Count, State, Debug)
    end;
sleep(S, Count, State, Timed, Debug) ->
    sleep_now(S, Count, State, Timed, Debug).

sleep_now(#server{backoff = Backoff} = S, Count, State, Timed, Debug) ->
    Asleep = S#server{backoff = weir_server_backoff:sleeps(erlang:monotonic_time(millisecond), Backoff)},
    proc_lib:hibernate(?MODULE, wake, [counted(Count, Asleep), State, Timed, Debug]).

%% @private Where a hibernated server wakes.
-spec wake(#server{}, State :: term(), Timed, [sys:dbg_opt()]) -> no_return() when
    Timed :: none | {Timer :: reference(), Message :: term()}.
wake(#server{backoff = Backoff, post_hibernate = Post, mod = Mod} = S, State, Timed, Debug) ->
    receive
        Message ->
            Awake = S#server{backoff = weir_server_backoff:wakes(erlang:monotonic_time(millisecond), Backoff)},
            Wait = wait_of(Timed),
            case Post of
                false -> arrived(Message, true, Awake, 0, State, Wait, Debug);
                true ->
                    Result = ?CALLED(Mod:handle_post_hibernate(State)),
                    awake(Result, Message, Timed, Awake, State, Debug)
            end
    end.

%% The message that woke it comes behind what is to be done first, and ahead of others.
awake({returned, {noreply, State}}, Message, Timed, S, _, Debug) ->
    arrived(Message, true, S, 0, State, wait_of(Timed), Debug);
awake({returned, {noreply, State, {continue, _} = Action}}, Message, Timed, S, _, Debug) ->
    act(Action, S, woken_by(Message, Timed, S), 0, State, Debug);
awake({returned, {noreply, NewState, Action} = Returned}, Message, Timed, S, State, Debug) ->
    case weir_server_action:is_action(Action) of
        true -> arrived(Message, true, S, 0, NewState, wait_of(Timed), Debug);
        false -> weir_server_end:stop({bad_return_value, Returned}, undefined, Message, S, [], State, Debug)
    end;
awake(Other, Message, Timed, S, State, Debug) ->
    common_result(Other, undefined, post_hibernate, S, woken_by(Message, Timed, S), 0, State, Debug).

%% The server's own timers send what they were started for, or nothing if that is void. What is ahead of drained
%% messages is not put among them: it is met in the mailbox again.
woken_by(?ACK_REQUEST(_) = Message, _Timed, _S) ->
    [Message];
woken_by({system, _, _} = Message, _Timed, _S) ->
    again(Message);
woken_by({'EXIT', Parent, _} = Message, _Timed, #server{parent = Parent}) ->
    again(Message);
woken_by(?INFO_REQUEST(_) = Message, _Timed, _S) ->
    again(Message);
woken_by({timeout, Timer, Tag}, {Timer, Message}, #server{tag = Tag}) ->
    [Message];
woken_by({timeout, _Timer, Tag}, _Timed, #server{tag = Tag}) ->
    [];
woken_by(Message, _Timed, _S) ->
    [Message].

again(Message) ->
    self() ! Message,
    [].

%% ---------------------------------------------------------------- one message

handle({'$gen_call', From, Request} = Message, #server{handle_call = HandleCall} = S, Chunk, Count0, State, Debug0) ->
    Debug = debug_in(Debug0, S, Message),
    Count = Count0 + ?A_CALL,
    case ?CALLED(HandleCall(Request, From, State)) of
        {returned, {reply, Reply, NewState}} ->
            turn(S, Chunk, Count, NewState, reply(From, Reply, S, NewState, Debug));
        {returned, {reply, Reply, NewState, Action} = Returned} ->
            case weir_server_action:is_action(Action) of
                true -> act(Action, S, Chunk, Count, NewState, reply(From, Reply, S, NewState, Debug));
                false -> weir_server_end:stop({bad_return_value, Returned}, From, Message, S, Chunk, State, Debug)
            end;
        {returned, {stop, StopReason, Reply, NewState}} ->
            %% The answer goes out whatever terminate/2 does, but after it, as in gen_server.
            try
                weir_server_end:stop(StopReason, From, Message, S, Chunk, NewState, Debug)
            after
                reply(From, Reply, S, NewState, Debug)
            end;
        Result ->
            common_result(Result, From, Message, S, Chunk, Count, State, Debug)
    end;
handle({'$gen_cast', Request} = Message, #server{handle_cast = HandleCast} = S, Chunk, Count, State, Debug0) ->
    Debug = debug_in(Debug0, S, Message),
    case ?CALLED(HandleCast(Request, State)) of
        {returned, {noreply, NewState}} ->
            turn(S, Chunk, Count + ?A_CAST, NewState, debug_noreply(Debug, S, NewState));
        Result ->
            common_result(Result, undefined, Message, S, Chunk, Count + ?A_CAST, State, Debug)
    end;
handle(?CREDIT(Counter, Message), S, Chunk, Count, State, Debug) ->
    ok = atomics:sub(Counter, 1, 1),
    handle(Message, S, Chunk, Count, State, Debug);
%% What is ahead of others is not in a chunk, but for weir_flow's request, which is met in its place.
handle({'EXIT', Parent, Reason} = Message, #server{parent = Parent} = S, Chunk, _Count, State, Debug) ->
    weir_server_end:stop(Reason, undefined, Message, S, Chunk, State, Debug);
handle(?INFO_REQUEST(_) = Message, S, Chunk, Count, State, Debug) ->
    control(Message, S, Chunk, Count, State, infinity, Debug);
handle({system, From, Request}, S, Chunk, Count, State, Debug) ->
    %% Of no kind, but drained like others.
    weir_server_system:handle(Request, From, S, Chunk, Count + 1, State, infinity, Debug);
handle(?WITH_STATE(From, Fun), S, Chunk, Count, State, Debug) ->
    gen:reply(From, Fun(State)),
    turn(S, Chunk, Count + ?A_CALL, State, Debug);
handle(Message, #server{mod = Mod, handle_info = HandleInfo} = S, Chunk, Count, State, Debug0) ->
    Debug = debug_in(Debug0, S, Message),
    Result = default_info(?CALLED(HandleInfo(Message, State)), Mod, Message, State),
    common_result(Result, undefined, Message, S, Chunk, Count + ?AN_INFO, State, Debug).

%% A server without handle_info/2 logs what it was sent, as gen_server does. Only a missing callback is forgiven: an
%% undef from deeper inside is a crash.
default_info({raised, error, undef, [{Mod, handle_info, [Message, _], _} | _]} = Raised, Mod, Message, State) ->
    case erlang:function_exported(Mod, handle_info, 2) of
        true ->
            Raised;
        false ->
            ok = weir_server_report:no_handle_info(Mod, Message),
            {returned, {noreply, State}}
    end;
default_info(Result, _, _, _) ->
    Result.

common_result({returned, {noreply, NewState}}, _, _, S, Chunk, Count, _, Debug) ->
    turn(S, Chunk, Count, NewState, debug_noreply(Debug, S, NewState));
common_result({returned, {noreply, NewState, Action} = Returned}, From, Message, S, Chunk, Count, State, Debug) ->
    case weir_server_action:is_action(Action) of
        true -> act(Action, S, Chunk, Count, NewState, debug_noreply(Debug, S, NewState));
        false -> weir_server_end:stop({bad_return_value, Returned}, From, Message, S, Chunk, State, Debug)
    end;
common_result({returned, {become, Mod, NewState}}, _, _, S, Chunk, Count, _, Debug) when is_atom(Mod) ->
    become(Mod, S, Chunk, Count, NewState, infinity, Debug);
common_result({returned, {become, Mod, NewState, Action} = Returned}, From, Message, S, Chunk, Count, State, Debug) when
    is_atom(Mod)
->
    case weir_server_action:is_action(Action) of
        true -> become(Mod, S, Chunk, Count, NewState, Action, Debug);
        false -> weir_server_end:stop({bad_return_value, Returned}, From, Message, S, Chunk, State, Debug)
    end;
common_result({returned, {stop, Reason, NewState}}, From, Message, S, Chunk, _, _, Debug) ->
    weir_server_end:stop(Reason, From, Message, S, Chunk, NewState, Debug);
common_result({returned, Other}, From, Message, S, Chunk, _, State, Debug) ->
    weir_server_end:stop({bad_return_value, Other}, From, Message, S, Chunk, State, Debug);
common_result({raised, Class, Reason, Stacktrace}, From, Message, S, Chunk, _, State, Debug) ->
    weir_server_end:crash(Class, Reason, Stacktrace, From, Message, S, Chunk, State, Debug).

%% Another module serves from now on, what was drained included.
become(Mod, S, Chunk, Count, State, Action, Debug) ->
    _ = code:ensure_loaded(Mod),
    act(Action, served(Mod, S, Chunk, Count, State, Debug), [], 0, State, debug_noreply(Debug, S, State)).

%% @private Goes on with another version of the callback module.
-spec changed(#server{}, Chunk :: [term()], non_neg_integer(), State :: term(), wait(), [sys:dbg_opt()]) -> no_return().
changed(#server{mod = Mod} = S, Chunk, Count, State, Wait, Debug) ->
    resume(served(Mod, S, Chunk, Count, State, Debug), [], 0, State, Wait, Debug).

%% A prioritise callback may raise an exception for what was drained.
served(Mod, S0, Chunk, Count, State, Debug) ->
    S = counted(Count, S0),
    case ?CALLED(serve(Mod, Chunk, State, S)) of
        {returned, Served} ->
            Served;
        {raised, Class, Reason, Stacktrace} ->
            New = S#server{mod = Mod},
            weir_server_end:crash(Class, Reason, Stacktrace, undefined, {become, Mod}, New, Chunk, State, Debug)
    end.

%% ---------------------------------------------------------------- a batch

handle_batch(Chunk, #server{mod = Mod} = S0, State, Debug0) ->
    {Batch, Others, Kinds, Credits} = weir_server_batch:decode(Chunk),
    Debug = debug_batch(Debug0, S0, Batch),
    S = S0#server{inbox = weir_server_inbox:count(Kinds, S0#server.inbox)},
    Result =
        case Batch of
            [] -> {returned, {noreply, State}};
            _ -> ?CALLED(Mod:handle_batch(Batch, State))
        end,
    lists:foreach(fun({Counter, N}) -> ok = atomics:sub(Counter, 1, N) end, Credits),
    case Result of
        {returned, {reply, Replies, NewState}} when is_list(Replies) ->
            acknowledge(Others, infinity, S, NewState, replies(Replies, S, NewState, Debug));
        {returned, {noreply, NewState}} ->
            acknowledge(Others, infinity, S, NewState, debug_noreply(Debug, S, NewState));
        {returned, {stop, Reason, Replies, NewState}} when is_list(Replies) ->
            try
                weir_server_end:stop(Reason, undefined, weir_server_batch:report_of(Batch), S, [], NewState, Debug)
            after
                replies(Replies, S, NewState, Debug)
            end;
        {returned, Returned} ->
            batch_action(Returned, Batch, Others, S, State, Debug);
        {raised, Class, Reason, Stacktrace} ->
            Message = weir_server_batch:report_of(Batch),
            weir_server_end:crash(Class, Reason, Stacktrace, undefined, Message, S, [], State, Debug)
    end.

batch_action({reply, Replies, NewState, Action} = Returned, Batch, Others, S, State, Debug) when is_list(Replies) ->
    case weir_server_action:is_action(Action) of
        true -> acknowledge(Others, Action, S, NewState, replies(Replies, S, NewState, Debug));
        false -> bad_batch(Returned, Batch, S, State, Debug)
    end;
batch_action({noreply, NewState, Action} = Returned, Batch, Others, S, State, Debug) ->
    case weir_server_action:is_action(Action) of
        true -> acknowledge(Others, Action, S, NewState, debug_noreply(Debug, S, NewState));
        false -> bad_batch(Returned, Batch, S, State, Debug)
    end;
batch_action(Returned, Batch, Others, S, State, Debug) ->
    Message = weir_server_batch:report_of(Batch),
    common_result({returned, Returned}, undefined, Message, S, Others, 0, State, Debug).

-spec bad_batch(term(), [weir_server:message()], #server{}, term(), [sys:dbg_opt()]) -> no_return().
bad_batch(Returned, Batch, S, State, Debug) ->
    Message = weir_server_batch:report_of(Batch),
    weir_server_end:stop({bad_return_value, Returned}, undefined, Message, S, [], State, Debug).

%% @private What was among the batch and is not for the callback: weir_flow's requests, now that everything before them
%% has been handled, and those of with_state/2. A system message leaves the loop.
-spec acknowledge([term()], weir_server:action(), #server{}, State :: term(), [sys:dbg_opt()]) -> no_return().
acknowledge([], Action, S, State, Debug) ->
    act(Action, S, [], 0, State, Debug);
acknowledge([?WITH_STATE(From, Fun) | Others], Action, S, State, Debug) ->
    gen:reply(From, Fun(State)),
    acknowledge(Others, Action, counted(?A_CALL, S), State, Debug);
acknowledge([{system, From, Request} | Others], Action, S, State, Debug) ->
    Left = {acknowledge, Others, Action, S, State},
    sys:handle_system_msg(Request, From, S#server.parent, weir_server, Debug, Left, false).

%% ---------------------------------------------------------------- replies

reply(From, Reply, S, State, Debug) ->
    gen:reply(From, Reply),
    debug_out(Debug, S, Reply, From, State).

replies([{From, Reply} | Replies], S, State, Debug) ->
    replies(Replies, S, State, reply(From, Reply, S, State, Debug));
replies([], _, _, Debug) ->
    Debug.

%% ---------------------------------------------------------------- debugging through sys

%% Without it each of these costs one comparison and allocates nothing.

debug([], _, _) -> [];
debug(Debug, S, Event) -> sys:handle_debug(Debug, fun weir_server_report:print_event/3, S#server.name, Event).

debug_in([], _, _) -> [];
debug_in(Debug, S, Message) -> debug(Debug, S, {in, Message}).

debug_batch([], _, _) -> [];
debug_batch(Debug, S, Batch) ->
    lists:foldl(fun(Message, D) -> debug_in(D, S, weir_server_batch:encode(Message)) end, Debug, Batch).

debug_out([], _, _, _, _) -> [];
debug_out(Debug, S, Reply, From, State) -> debug(Debug, S, {out, Reply, From, State}).

debug_noreply([], _, _) -> [];
debug_noreply(Debug, S, State) -> debug(Debug, S, {noreply, State}).

