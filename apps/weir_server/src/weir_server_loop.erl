%% @doc The loop of a weir_server: wait, drain, handle.
%%
%% ```
%%              +------- nothing drained -------- turn <-------------- callback returned --+
%%              v                                  ^ |                                     |
%%    wait (time-out, hibernation)                 | | a message is left of the chunk      |
%%              | message                          | +--------> handle one, or a batch ----+
%%              |                            chunk |
%%              +--> few in the mailbox: handle it | ?POLL handled, or nothing left of the chunk
%%              +--> many --> poll of the mailbox -+
%% '''
%% Drained messages are in the inbox (weir_server_inbox). The inbox hands out a *chunk*: messages that the loop handles
%% one after the other. The loop meets the messages for itself (weir_server_message) in the chunk or in the mailbox.
%%
%% A callback returns an action: how long the server waits, and for which reason. `Wait' is that action. `Wait' holds
%% until a callback gets a message. Messages for the loop start the time of `Wait' anew, as system messages do in
%% gen_server.
%%
%% Most servers have fast callbacks, and draining does not help them. A *direct* server takes messages from the mailbox
%% one by one, as gen_server does. Every ?POLL_DIRECT messages the loop measures a callback. If the callback is slow,
%% the loop asks for the length of the mailbox. A server that takes batches, gives priorities or has a bound is never
%% direct.
%%
%% A callback's exception or `{stop, ...}' ends the loop: weir_server_report runs `terminate/2', logs and exits. A kill
%% needs no clean-up, since all state is the process's own. A timer that the server no longer needs may have sent its
%% message: the server's tag identifies that message, and the loop ignores it.
%%
%% Cost beyond gen_server's: a direct server reads two clocks and publishes its counts every ?POLL_DIRECT messages. A
%% server that drains does so every ?POLL messages, asks for the length of the mailbox, and has four words on the heap
%% for each message.
%% @private
-module(weir_server_loop).

-export([enter/8]).

%% called by sys, by this module's newest version, by proc_lib:hibernate/3 and by the release handler
-export([continue/3, resume/5, wake/3, code_loaded/0]).

-include("weir_server.hrl").
-include("weir_server_loop.hrl").
-include("weir_server_message.hrl").

%% Each message would take these calls, which show beside the cost of a cast. ?CALLED is a macro for the same reason.
-compile({inline, [debug_in/2, debug_noreply/2, debug_out/4, reply/4]}).

%% One small integer counts the messages, so that a message costs one addition and no new record. The lowest 8 bits are
%% the number of messages handled since the last poll. Three times 16 bits follow: the numbers of messages of each kind
%% that the inbox has not counted yet.
-define(SINCE_POLL(Count), ((Count) band 16#ff)).
-define(A_CALL, ((1 bsl 8) + 1)).
-define(A_CAST, ((1 bsl 24) + 1)).
-define(AN_INFO, ((1 bsl 40) + 1)).
-define(KIND(Count, Shift), (((Count) bsr (Shift)) band 16#ffff)).
-define(KINDS(Count), ((Count) bsr 8 bsl 8)).

%% Number of callbacks in a row that must be slow before the loop drains. A single callback may be slow because the
%% process was not scheduled, or collected garbage, which takes longer with a longer mailbox.
-define(IN_A_ROW, 3).

%% @doc Runs the loop with an empty inbox. Never returns.
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
        debug = Debug,
        ?SERVED_BY(Mod, Inbox)
    },
    %% The first poll comes soon.
    act(Action, Server, [], ?POLL_DIRECT - ?POLL, State).

%% ---------------------------------------------------------------- turns

%% Goes on with the next message of the chunk.
turn(infinity, #server{batch = false} = S, [Message | Chunk], Count, State) when ?SINCE_POLL(Count) < ?POLL ->
    handle(Message, infinity, S, Chunk, Count, State);
turn(Wait, S, [], Count, State) ->
    rest(Wait, S, Count, State);
turn(Wait, #server{batch = true, parent = Parent, tag = Tag} = S, [Message | More] = Chunk, Count, State) ->
    case weir_server_message:is_for_loop(Message, Parent, Tag) of
        %% The loop does not poll between messages for itself, so their number would exceed the 8 bits.
        true -> handle(Message, Wait, counted(Count, S), More, 0, State);
        false -> handle_batch(Chunk, counted(Count, ended(Wait, S)), State)
    end;
turn(Wait, #server{parent = Parent, tag = Tag} = S, [Message | Chunk], Count, State) when ?SINCE_POLL(Count) < ?POLL ->
    case weir_server_message:is_for_loop(Message, Parent, Tag) of
        true -> handle(Message, Wait, S, Chunk, Count, State);
        false -> handle(Message, infinity, ended(Wait, S), Chunk, Count, State)
    end;
turn(Wait, S, Chunk, Count, State) ->
    #server{inbox = Inbox} = Counted = counted(Count, S),
    case weir_server_inbox:poll(?SINCE_POLL(Count), State, Inbox) of
        {ok, Polled} -> turn(Wait, published(Counted#server{inbox = Polled}), Chunk, 0, State);
        Raised -> raised(Raised, Counted, Chunk, State)
    end.

%% Cancels the timer of an action, because a message comes before its time is up.
ended({timer, Timer, _, _}, S) ->
    ok = erlang:cancel_timer(Timer, [{async, true}, {info, false}]),
    S;
ended(_Wait, S) ->
    S.

published(#server{inbox = Inbox} = S) ->
    ok = weir_server_inbox:publish(weir_server_inbox:behind(Inbox), {0, 0, 0}, Inbox),
    S.

%% Performs the action that a callback has returned.
act({continue, Continue} = Message, #server{mod = Mod} = S, Chunk, Count, State) ->
    Result = ?CALLED(Mod:handle_continue(Continue, State)),
    common_result(Result, undefined, Message, debug(S, Message), Chunk, Count, State);
act({Kind, 0, Message}, S, Chunk, Count, State) ->
    at_once(Kind, Message, S, Chunk, Count, State);
act({Kind, 0, Message, Options} = Wait, S, Chunk, Count, State) ->
    case weir_server_action:is_abs(Options) of
        false -> at_once(Kind, Message, S, Chunk, Count, State);
        true -> turn(Wait, S, Chunk, Count, State)
    end;
act(Wait, S, Chunk, Count, State) ->
    turn(Wait, S, Chunk, Count, State).

at_once(Kind, Message, S, Chunk, Count, State) ->
    _ = Kind =:= hibernate andalso garbage_collect(),
    case S#server.batch of
        true ->
            handle_batch([Message | Chunk], counted(Count, S), State);
        false ->
            %% Without a poll in between. A callback may return this action any number of times in a row.
            handle(Message, infinity, counted(Count, S), Chunk, min(?SINCE_POLL(Count), ?POLL_DIRECT), State)
    end.

%% ---------------------------------------------------------------- nothing left of the chunk

rest(Wait, #server{direct = true} = S, Count, State) when ?SINCE_POLL(Count) < ?POLL_DIRECT ->
    wait(Wait, S, Count, State);
rest(Wait, #server{direct = true, measured = none} = S, Count, State) ->
    measure(0, Wait, S, Count, State);
rest(Wait, #server{direct = true, measured = {Began, InARow}, slow = Slow} = S, Count, State) ->
    case os:perf_counter() - Began of
        Took when Took < Slow -> wait(Wait, polled(S, Count), 0, State);
        _ when InARow + 1 < ?IN_A_ROW -> measure(InARow + 1, Wait, S, Count, State);
        Took -> backlog(Took, Wait, polled(S, Count), State)
    end;
rest(Wait, #server{inbox = Inbox} = S, Count, State) ->
    %% A poll after each info that is not drained would cost as much as a cast.
    case ?SINCE_POLL(Count) < S#server.quiet andalso weir_server_inbox:is_untouched(Inbox) of
        true -> wait(Wait, S, Count, State);
        false -> rest_polled(Wait, S, Count, State)
    end.

rest_polled(Wait, #server{inbox = Inbox} = S, Count, State) ->
    Polled = #server{inbox = Left} = polled(S, Count),
    case weir_server_inbox:is_empty(Inbox) of
        false ->
            next([], false, Wait, Polled, State);
        true ->
            case weir_server_inbox:is_direct(Left) of
                true -> wait(Wait, Polled#server{direct = true}, 0, State);
                %% Infos that are not drained count too, so that the next info leads to a check of the bound.
                false -> wait(Wait, Polled, min(?SINCE_POLL(Count), ?POLL), State)
            end
    end.

%% Measures the next callback.
measure(InARow, Wait, S, Count, State) ->
    Measured = S#server{measured = {os:perf_counter(), InARow}},
    wait(Wait, Measured, ?KINDS(Count) + ?POLL_DIRECT - 1, State).

backlog(Took, Wait, #server{inbox = Inbox} = S, State) ->
    case weir_server_inbox:backlog(Took, Inbox) of
        {drain, Paced} -> next([], true, Wait, S#server{inbox = Paced}, State);
        later -> wait(Wait, S, 0, State)
    end.

%% Counts and publishes the messages that were handled since the last poll.
polled(#server{inbox = Inbox} = S, Count) ->
    Counted = weir_server_inbox:all_handled(weir_server_inbox:count(kinds(Count), Inbox)),
    published(S#server{inbox = Counted, measured = none}).

%% Publishes the counts, then waits for a message. Publishing takes a tenth of the time of a cast, so a direct server
%% without time-outs does not publish: info/1 sends a request to such a server (weir_server_client). A server that will
%% hibernate gets no such request, since a message would start its time anew. The longest wait in the counts depends on
%% whether the server had to wait.
wait(infinity, #server{direct = true, hibernate_after = infinity} = S, Count, State) ->
    receive
        Message -> handle(Message, infinity, S, [], Count, State)
    end;
wait(Wait, S, Count, State) ->
    receive
        Message -> arrived(Message, false, Wait, S, Count, State)
    after 0 ->
        ok = weir_server_inbox:publish(0, kinds(Count), S#server.inbox),
        idle(Wait, S, Count, State)
    end.

idle(infinity, S, Count, State) ->
    receive
        Message -> arrived(Message, true, infinity, S, Count, State)
    after S#server.hibernate_after -> sleep(none, S, Count, State)
    end;
idle(hibernate, S, Count, State) ->
    hibernate(none, S, Count, State);
idle({timer, Timer, TimeUp, infinity} = Wait, S, Count, State) ->
    receive
        Message -> arrived(Message, true, Wait, S, Count, State)
    after S#server.hibernate_after -> sleep({Timer, TimeUp}, S, Count, State)
    end;
idle({timer, Timer, TimeUp, hibernate}, S, Count, State) ->
    hibernate({Timer, TimeUp}, S, Count, State);
idle(Time, S, Count, State) when is_integer(Time) ->
    receive
        Message -> arrived(Message, true, Time, S, Count, State)
    after Time ->
        %% As in gen_server, the time-out is a message like others.
        arrived(timeout, true, infinity, S, Count, State)
    end;
idle(Action, #server{tag = Tag} = S, Count, State) ->
    idle(weir_server_action:start_timer(Action, Tag), S, Count, State).

%% Handles a message from the mailbox while nothing is drained.
arrived(Message, _HadToWait, infinity, #server{direct = true} = S, Count, State) ->
    handle(Message, infinity, S, [], Count, State);
arrived(Message, _HadToWait, Wait, #server{direct = true, parent = Parent, tag = Tag} = S, Count, State) ->
    case weir_server_message:is_for_loop(Message, Parent, Tag) of
        true -> handle(Message, Wait, S, [], Count, State);
        false -> handle(Message, infinity, ended(Wait, S), [], Count, State)
    end;
arrived(Message, HadToWait, Wait, #server{infos = Infos, quiet = Quiet} = S, Count, State) ->
    #server{parent = Parent, tag = Tag} = S,
    case weir_server_message:class(Message, Parent, Tag) of
        info when not Infos, ?SINCE_POLL(Count) < ?POLL orelse ?SINCE_POLL(Count) < Quiet ->
            handle(Message, infinity, ended(Wait, S), [], Count, State);
        info when not Infos -> info(Message, HadToWait, Wait, counted(Count, S), State);
        control -> handle(Message, Wait, S, [], Count, State);
        _ -> next([Message], HadToWait, Wait, counted(Count, S), State)
    end.

%% Handles an info, unless the messages behind it exceed the bound. Then all messages are drained.
info(Message, HadToWait, Wait, #server{inbox = Inbox} = S, State) ->
    case weir_server_inbox:is_overrun(Inbox) of
        true -> next([Message], HadToWait, Wait, S, State);
        false -> handle(Message, infinity, ended(Wait, S), [], 0, State)
    end.

next(First, HadToWait, Wait, #server{inbox = Inbox} = S, State) ->
    case weir_server_inbox:next(First, HadToWait, State, Inbox) of
        {handle, Chunk, Left} -> turn(Wait, published(S#server{inbox = Left, direct = false}), Chunk, 0, State);
        {empty, Left} -> wait(Wait, published(S#server{inbox = Left}), 0, State);
        Raised -> raised(Raised, S, [], State)
    end.

-spec raised(tuple(), #server{}, [term()], term()) -> no_return().
raised({raised, exit, Reason, none, Message, Inbox}, S, Chunk, State) ->
    weir_server_report:stop(Reason, undefined, Message, S#server{inbox = Inbox}, Chunk, State);
raised({raised, Class, Reason, Stacktrace, Message, Inbox}, S, Chunk, State) ->
    weir_server_report:crash({Class, Reason, Stacktrace}, undefined, Message, S#server{inbox = Inbox}, Chunk, State).

counted(Count, S) when ?KINDS(Count) =:= 0 ->
    S;
counted(Count, #server{inbox = Inbox} = S) ->
    S#server{inbox = weir_server_inbox:count(kinds(Count), Inbox)}.

kinds(Count) -> {?KIND(Count, 8), ?KIND(Count, 24), ?KIND(Count, 40)}.

%% @private Goes on after a system message. Called by `sys', through weir_server.
-spec continue(pid(), [sys:dbg_opt()], #suspended{}) -> no_return().
continue(Parent, Debug, #suspended{server = Server, wait = Wait, chunk = Chunk, count = Count, state = State} = Left) ->
    S = Server#server{parent = Parent, debug = Debug},
    case Left#suspended.changed of
        false -> turn(Wait, S, Chunk, Count, State);
        true -> turn(Wait, served(S#server.mod, S, Chunk, Count, State), [], 0, State)
    end.

%% @private Goes on in the newest version of this module, after code_loaded/0.
-spec resume(wait(), #server{}, Chunk :: [term()], non_neg_integer(), State :: term()) -> no_return().
resume(Wait, S, Chunk, Count, State) -> turn(Wait, S, Chunk, Count, State).

%% @private Called by the release handler (docs/guide/upgrades.md). Brings all servers that run the old version of this
%% module into the new version, by a request to publish their counts. The answer goes to an alias that is not active.
-spec code_loaded() -> ok.
code_loaded() ->
    Alias = alias(),
    true = unalias(Alias),
    Old = [Pid || Pid <- processes(), erlang:check_process_code(Pid, ?MODULE)],
    lists:foreach(fun(Pid) -> Pid ! ?PUBLISH_REQUEST({Alias, none}) end, Old).

%% ---------------------------------------------------------------- hibernation

%% With a back-off, waits for a message before the server hibernates.
hibernate(Timed, #server{backoff = Backoff} = S, Count, State) ->
    receive
        Message -> arrived(Message, true, wait_of(Timed), S, Count, State)
    after weir_server_backoff:delay(Backoff) -> sleep(Timed, S, Count, State)
    end.

wait_of(none) -> hibernate;
wait_of({Timer, Message}) -> {timer, Timer, Message, hibernate}.

sleep(Timed, #server{pre_hibernate = true, mod = Mod} = S, Count, State) ->
    case ?CALLED(Mod:handle_pre_hibernate(State)) of
        {returned, {hibernate, NewState}} -> sleep_now(Timed, S, Count, NewState);
        Other -> common_result(Other, undefined, pre_hibernate, S, [], Count, State)
    end;
sleep(Timed, S, Count, State) ->
    sleep_now(Timed, S, Count, State).

sleep_now(Timed, #server{backoff = Backoff} = S, Count, State) ->
    Awake = counted(Count, S),
    Asleep = Awake#server{backoff = weir_server_backoff:sleeps(erlang:monotonic_time(millisecond), Backoff)},
    %% All messages that were drained at the last poll have been handled.
    ok = weir_server_inbox:publish(0, {0, 0, 0}, Asleep#server.inbox),
    proc_lib:hibernate(?MODULE, wake, [Timed, Asleep, State]).

%% @private Called by the runtime when a hibernated server wakes.
-spec wake(Timed, #server{}, State :: term()) -> no_return() when
    Timed :: none | {Timer :: reference(), Message :: term()}.
wake(Timed, #server{backoff = Backoff, post_hibernate = Post, mod = Mod} = S, State) ->
    receive
        Message ->
            Awake = S#server{backoff = weir_server_backoff:wakes(erlang:monotonic_time(millisecond), Backoff)},
            case Post of
                false -> arrived(Message, true, wait_of(Timed), Awake, 0, State);
                true -> awake(?CALLED(Mod:handle_post_hibernate(State)), Message, wait_of(Timed), Awake, State)
            end
    end.

%% A `{continue, ...}' of handle_post_hibernate/1 runs before the message that woke the server is handled.
awake({returned, {noreply, NewState}}, Message, Wait, S, _) ->
    arrived(Message, true, Wait, S, 0, NewState);
awake({returned, {noreply, NewState, Action} = Returned}, Message, Wait, S, State) ->
    case {weir_server_action:is_action(Action), Action} of
        {true, {continue, _}} -> woken(Action, wakes(Message, Wait, S), ended(Wait, S), NewState);
        {true, _} -> arrived(Message, true, Wait, S, 0, NewState);
        {false, _} -> weir_server_report:stop({bad_return_value, Returned}, undefined, Message, S, [], State)
    end;
awake(Other, Message, Wait, S, State) ->
    common_result(Other, undefined, post_hibernate, ended(Wait, S), [wakes(Message, Wait, S)], 0, State).

%% Replaces the message of the action's timer by the action's message: the loop does not know the timer later.
wakes(?TIMER(Timer, Tag), {timer, Timer, Message, _}, #server{tag = Tag}) -> Message;
wakes(Message, _Wait, _S) -> Message.

%% Puts the message that woke the server into the inbox, which may put urgent messages ahead of that message.
woken(Action, Message, #server{inbox = Inbox} = S, State) ->
    case weir_server_inbox:keep(Message, State, Inbox) of
        {ok, Left} -> act(Action, S#server{inbox = Left, direct = false}, [], 0, State);
        Raised -> raised(Raised, S, [], State)
    end.

%% ---------------------------------------------------------------- one message

handle(?CAST(Request) = Message, _Wait, #server{handle_cast = HandleCast} = S0, Chunk, Count, State) ->
    S = debug_in(S0, Message),
    case ?CALLED(HandleCast(Request, State)) of
        {returned, {noreply, NewState}} ->
            turn(infinity, debug_noreply(S, NewState), Chunk, Count + ?A_CAST, NewState);
        Result ->
            common_result(Result, undefined, Message, S, Chunk, Count + ?A_CAST, State)
    end;
handle(?CALL(From, Request) = Message, _Wait, #server{handle_call = HandleCall} = S0, Chunk, Count0, State) ->
    S = debug_in(S0, Message),
    Count = Count0 + ?A_CALL,
    case ?CALLED(HandleCall(Request, From, State)) of
        {returned, {reply, Reply, NewState}} ->
            turn(infinity, reply(From, Reply, S, NewState), Chunk, Count, NewState);
        {returned, {reply, Reply, NewState, Action} = Returned} ->
            case weir_server_action:is_action(Action) of
                true -> act(Action, reply(From, Reply, S, NewState), Chunk, Count, NewState);
                false -> weir_server_report:stop({bad_return_value, Returned}, From, Message, S, Chunk, State)
            end;
        {returned, {stop, StopReason, Reply, NewState}} ->
            %% As in gen_server, the answer goes out after terminate/2, even if that raises an exception.
            try
                weir_server_report:stop(StopReason, From, Message, S, Chunk, NewState)
            after
                reply(From, Reply, S, NewState)
            end;
        Result ->
            common_result(Result, From, Message, S, Chunk, Count, State)
    end;
handle(?CREDIT(Counter, Message), Wait, S, Chunk, Count, State) ->
    ok = ?GIVE_BACK(Counter, 1),
    handle(Message, Wait, S, Chunk, Count, State);
handle(?EXIT(Parent, Reason) = Message, _Wait, #server{parent = Parent} = S, Chunk, _Count, State) ->
    weir_server_report:stop(Reason, undefined, Message, S, Chunk, State);
handle(?SYSTEM(From, Request), Wait, S, Chunk, Count, State) ->
    %% A system message is of no kind, but counts as a message since the last poll.
    weir_server_system:handle(Request, From, #suspended{
        wait = Wait, server = published(counted(Count, S)), chunk = Chunk, count = ?SINCE_POLL(Count) + 1, state = State
    });
handle(?PUBLISH_REQUEST(From), Wait, S, Chunk, Count, State) ->
    Published = published(counted(Count, S)),
    gen:reply(From, ok),
    %% In the newest version of this module (code_loaded/0).
    ?MODULE:resume(Wait, Published, Chunk, ?SINCE_POLL(Count) + 1, State);
handle(?WITH_STATE(From, Fun), Wait, S, Chunk, Count, State) ->
    gen:reply(From, guarded(Fun, State)),
    turn(Wait, S, Chunk, Count + ?A_CALL, State);
handle(?TIMER(Timer, Tag), Wait, #server{tag = Tag} = S, Chunk, Count, State) ->
    case Wait of
        {timer, Timer, Message, _} -> act({timeout, 0, Message}, S, Chunk, Count, State);
        %% A message came before the time was up.
        _ -> turn(Wait, S, Chunk, Count + 1, State)
    end;
handle(Message, _Wait, #server{mod = Mod, handle_info = HandleInfo} = S0, Chunk, Count, State) ->
    S = debug_in(S0, Message),
    Result = default_info(?CALLED(HandleInfo(Message, State)), Mod, Message, State),
    common_result(Result, undefined, Message, S, Chunk, Count + ?AN_INFO, State).

%% The module of the function may be missing on this node, or be of another version.
guarded(Fun, State) ->
    try
        {ok, Fun(State)}
    catch
        Class:Reason:Stacktrace -> {raised, Class, Reason, Stacktrace}
    end.

%% Logs an info to a server without handle_info/2, as gen_server does. An undef from deeper inside is a crash.
default_info({raised, error, undef, [{Mod, handle_info, [Message, _], _} | _]} = Raised, Mod, Message, State) ->
    case erlang:function_exported(Mod, handle_info, 2) orelse erlang:function_exported(Mod, handle_batch, 2) of
        true ->
            Raised;
        false ->
            ok = weir_server_report:no_handle_info(Mod, Message),
            {returned, {noreply, State}}
    end;
default_info(Result, _, _, _) ->
    Result.

common_result({returned, {noreply, NewState}}, _, _, S, Chunk, Count, _) ->
    turn(infinity, debug_noreply(S, NewState), Chunk, Count, NewState);
common_result({returned, {noreply, NewState, Action} = Returned}, From, Message, S, Chunk, Count, State) ->
    case weir_server_action:is_action(Action) of
        true -> act(Action, debug_noreply(S, NewState), Chunk, Count, NewState);
        false -> weir_server_report:stop(bad_return(Returned, S), From, Message, S, Chunk, State)
    end;
common_result({returned, {become, Mod, NewState}}, _, _, S, Chunk, Count, _) when is_atom(Mod) ->
    become(Mod, infinity, S, Chunk, Count, NewState);
common_result({returned, {become, Mod, NewState, Action} = Returned}, From, Message, S, Chunk, Count, State) when
    is_atom(Mod)
->
    case weir_server_action:is_action(Action) of
        true -> become(Mod, Action, S, Chunk, Count, NewState);
        false -> weir_server_report:stop(bad_return(Returned, S), From, Message, S, Chunk, State)
    end;
common_result({returned, {stop, Reason, NewState}}, From, Message, S, Chunk, _, _) ->
    weir_server_report:stop(Reason, From, Message, S, Chunk, NewState);
common_result({returned, Other}, From, Message, S, Chunk, _, State) ->
    weir_server_report:stop(bad_return(Other, S), From, Message, S, Chunk, State);
common_result({raised, Class, Reason, Stacktrace}, From, Message, S, Chunk, _, State) ->
    weir_server_report:crash({Class, Reason, Stacktrace}, From, Message, S, Chunk, State).

%% A wrong return of handle_batch/2 may have the batch in it, which a report must not show.
bad_return(Returned, #server{batch = true}) -> {bad_return_value, weir_server_shape:hidden(Returned)};
bad_return(Returned, _S) -> {bad_return_value, Returned}.

%% Makes another module the callback module, also for the drained messages.
become(Mod, Action, S, Chunk, Count, State) ->
    _ = code:ensure_loaded(Mod),
    act(Action, served(Mod, debug_noreply(S, State), Chunk, Count, State), [], 0, State).

%% Gives the drained messages to another callback module, or to another version of the module. Its prioritise callbacks
%% may raise an exception.
served(Mod, S0, Chunk, Count, State) ->
    #server{inbox = Inbox} = S = counted(Count, S0),
    case ?CALLED(weir_server_inbox:remake(Mod, {Chunk, State}, Inbox)) of
        {returned, Remade} ->
            ok = weir_server_inbox:publish(weir_server_inbox:kept(Remade), {0, 0, 0}, Remade),
            S#server{?SERVED_BY(Mod, Remade), direct = false};
        {raised, Class, Reason, Stacktrace} ->
            New = S#server{mod = Mod},
            weir_server_report:crash({Class, Reason, Stacktrace}, undefined, {become, Mod}, New, Chunk, State)
    end.

%% ---------------------------------------------------------------- a batch

handle_batch(Chunk, #server{mod = Mod, parent = Parent, tag = Tag, inbox = Inbox} = S0, State) ->
    {Batch, Others, Kinds, Credits} = weir_server_message:decode_chunk(Chunk, Parent, Tag),
    S = debug_batch(S0#server{inbox = weir_server_inbox:count(Kinds, Inbox)}, Batch),
    case ?CALLED(Mod:handle_batch(Batch, State)) of
        {returned, Returned} ->
            ok = give_back(Credits),
            batch_result(Returned, is_answered(Returned), Batch, S, Others, State);
        {raised, Class, Reason, Stacktrace} ->
            ok = give_back(Credits),
            Message = weir_server_shape:report_of(Batch),
            Raised = weir_server_shape:without_batch(Class, Reason, Stacktrace),
            weir_server_report:crash(Raised, undefined, Message, S, Others, State)
    end.

give_back(Credits) -> lists:foreach(fun({Counter, N}) -> ok = ?GIVE_BACK(Counter, N) end, Credits).

%% Returns whether a return of handle_batch/2 has replies, and these are valid.
is_answered({reply, Replies, _}) -> are_replies(Replies);
is_answered({reply, Replies, _, Action}) ->
    are_replies(Replies) andalso weir_server_action:is_action(Action);
is_answered({stop, _, Replies, _}) -> are_replies(Replies);
is_answered(_Returned) -> false.

are_replies([{{Pid, _Tag}, _Reply} | Replies]) when is_pid(Pid) -> are_replies(Replies);
are_replies(Other) -> Other =:= [].

batch_result({reply, Replies, NewState}, true, _, S, Others, _) ->
    turn(infinity, replies(Replies, S, NewState), Others, 0, NewState);
batch_result({reply, Replies, NewState, Action}, true, _, S, Others, _) ->
    act(Action, replies(Replies, S, NewState), Others, 0, NewState);
batch_result({stop, Reason, Replies, NewState}, true, Batch, S, Others, _) ->
    try
        weir_server_report:stop(Reason, undefined, weir_server_shape:report_of(Batch), S, Others, NewState)
    after
        replies(Replies, S, NewState)
    end;
batch_result(Returned, false, Batch, S, Others, State) ->
    Message = weir_server_shape:report_of(Batch),
    common_result({returned, Returned}, undefined, Message, S, Others, 0, State).

%% ---------------------------------------------------------------- replies

reply(From, Reply, S, State) ->
    gen:reply(From, Reply),
    debug_out(S, Reply, From, State).

replies(Replies, S, State) -> lists:foldl(fun({From, Reply}, Now) -> reply(From, Reply, Now, State) end, S, Replies).

%% ---------------------------------------------------------------- debugging through sys

%% Without debugging, each of these functions costs one comparison and allocates nothing.

debug(#server{debug = []} = S, _) ->
    S;
debug(#server{debug = Debug, name = Name} = S, Event) ->
    S#server{debug = sys:handle_debug(Debug, fun weir_server_report:print_event/3, Name, Event)}.

debug_in(#server{debug = []} = S, _) -> S;
debug_in(S, Message) -> debug(S, {in, Message}).

debug_batch(#server{debug = []} = S, _) -> S;
debug_batch(S, Batch) ->
    lists:foldl(fun(Message, Now) -> debug_in(Now, weir_server_message:encode(Message)) end, S, Batch).

debug_out(#server{debug = []} = S, _, _, _) -> S;
debug_out(S, Reply, From, State) -> debug(S, {out, Reply, From, State}).

debug_noreply(#server{debug = []} = S, _) -> S;
debug_noreply(S, State) -> debug(S, {noreply, State}).
