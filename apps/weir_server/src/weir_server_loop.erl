%% @doc The loop of a weir_server: wait, drain, handle.
%%
%% One turn, and where it can leave it:
%% ```
%%            +--------- queue empty -------- turn <--------- callback returned ---+
%%            v                                |                                   |
%%    wait (time-out, hibernation)             | queue not empty                   |
%%            | first message                  v                                   |
%%            +-----------------------------> drain --- mailbox empty, or --> handle one message,
%%                                             |        queue holds Drain     or the whole queue (batch)
%%                          system message,    |
%%                          parent's exit      v
%%                                      handled at once; the queue waits
%% '''
%% The queue is private to the process: `Front' in arrival order, `Rear' in reverse, `Len' messages
%% together, `Len =< Drain' always. A server with `handle_batch/2' empties it each turn. Another one takes one
%% message, and tops the queue up again whenever Len is a multiple of ?LOOK, so a system message is met after
%% at most ?LOOK callbacks once it is among the first `Drain' messages, whatever the backlog.
%%
%% What can stop a turn: a callback's exception or `{stop, ...}' goes to {@link weir_server_report},
%% which runs `terminate/2', logs and exits. A kill needs no clean-up: all state is the process's own.
%%
%% Cost beyond gen_server's: one more look at the mailbox (a `receive ... after 0') when the queue was empty and
%% for every ?LOOK messages handled, and two words on the heap for each message drained.
-module(weir_server_loop).

-export([new/5, enter/4, is_action/1]).

%% for proc_lib:hibernate and sys
-export([
    wake/3,
    system_continue/3,
    system_terminate/4,
    system_code_change/4,
    system_get_state/1,
    system_replace_state/2,
    format_status/2
]).

-export_type([server/0]).

-include_lib("kernel/include/logger.hrl").

-record(server, {
    parent :: pid(),
    name :: term(),
    mod :: module(),
    hibernate_after :: timeout(),
    %% how many messages the queue may hold
    drain :: pos_integer(),
    %% whether the module takes batches
    batch :: boolean()
}).

%% Everything that a turn works on, for the moments when the loop is left: system messages.
-record(suspended, {
    server :: server(),
    front :: [term()],
    rear :: [term()],
    len :: non_neg_integer(),
    state :: term(),
    wait :: weir_server:action()
}).

-opaque server() :: #server{}.
%% What stays the same from turn to turn.

%% How many messages are handled between two looks at the mailbox. Each look takes the lock that senders take: looking
%% after every message made casts from one busy sender cost twice as much as with gen_server.
-define(LOOK, 16).

-define(is_timeout(X), (X =:= infinity orelse (is_integer(X) andalso X >= 0))).
-define(is_action(X),
    (?is_timeout(X) orelse X =:= hibernate orelse
        (is_tuple(X) andalso tuple_size(X) =:= 2 andalso element(1, X) =:= continue))
).

%% @doc The constants of a server. The callback module must be loaded.
-spec new(pid(), term(), module(), timeout(), pos_integer()) -> server().
new(Parent, Name, Mod, HibernateAfter, Drain) ->
    #server{
        parent = Parent,
        name = Name,
        mod = Mod,
        hibernate_after = HibernateAfter,
        drain = Drain,
        batch = erlang:function_exported(Mod, handle_batch, 2)
    }.

%% @doc Whether a term is something that a callback may ask to be done next.
-spec is_action(term()) -> boolean().
is_action(Action) ->
    ?is_action(Action).

%% @doc Runs the loop with an empty queue. Never returns.
-spec enter(server(), State :: term(), weir_server:action(), [sys:dbg_opt()]) -> no_return().
enter(Server, State, Action, Debug) ->
    turn(Server, [], [], 0, State, Action, Debug).

%% The turn

turn(S, F, R, N, State, {continue, Continue} = Msg, Debug0) ->
    Result = dispatch(S#server.mod, handle_continue, Continue, State),
    Debug = debug(Debug0, S, Msg),
    noreply_result(Result, Msg, S, F, R, N, State, Debug);
turn(S, [], [], 0, State, Wait, Debug) ->
    wait(S, State, Wait, Debug);
turn(S, F, R, N, State, _Wait, Debug) when N rem ?LOOK =/= 0 ->
    handle(S, F, R, N, State, Debug);
turn(S, F, R, N, State, Wait, Debug) ->
    drain(S, F, R, N, State, Wait, Debug).

wait(S, State, hibernate, Debug) ->
    proc_lib:hibernate(?MODULE, wake, [S, State, Debug]);
wait(S, State, infinity, Debug) ->
    receive
        Msg -> first(Msg, S, State, infinity, Debug, false)
    after S#server.hibernate_after ->
        wait(S, State, hibernate, Debug)
    end;
wait(S, State, Time, Debug) ->
    receive
        Msg -> first(Msg, S, State, Time, Debug, false)
    after Time ->
        %% As in gen_server, the time-out is a message like any other.
        handle(S, [], [timeout], 1, State, Debug)
    end.

%% @private Where a hibernated server wakes.
-spec wake(server(), State :: term(), [sys:dbg_opt()]) -> no_return().
wake(S, State, Debug) ->
    receive
        Msg -> first(Msg, S, State, hibernate, Debug, true)
    end.

first({system, From, Request}, S, State, Wait, Debug, Hibernated) ->
    system(Request, From, S, [], [], 0, State, Wait, Debug, Hibernated);
first({'EXIT', Parent, Reason} = Msg, #server{parent = Parent} = S, State, _, Debug, _) ->
    parent_exit(Reason, Msg, S, State, Debug);
first(Msg, S, State, Wait, Debug, _) ->
    drain(S, [], [Msg], 1, State, Wait, Debug).

drain(#server{drain = Drain} = S, F, R, N, State, _Wait, Debug) when N >= Drain ->
    handle(S, F, R, N, State, Debug);
drain(#server{parent = Parent} = S, F, R, N, State, Wait, Debug) ->
    receive
        {system, From, Request} ->
            system(Request, From, S, F, R, N, State, Wait, Debug, false);
        {'EXIT', Parent, Reason} = Msg ->
            parent_exit(Reason, Msg, S, State, Debug);
        Msg ->
            drain(S, F, [Msg | R], N + 1, State, Wait, Debug)
    after 0 ->
        handle(S, F, R, N, State, Debug)
    end.

handle(#server{batch = true} = S, [], R, _, State, Debug) ->
    handle_batch(R, S, State, Debug);
handle(S, [Msg | F], R, N, State, Debug) ->
    handle_one(Msg, S, F, R, N - 1, State, Debug);
handle(S, [], R, N, State, Debug) ->
    [Msg | F] = lists:reverse(R),
    handle_one(Msg, S, F, [], N - 1, State, Debug).

%% One message

handle_one({'$gen_call', From, Request} = Msg, #server{mod = Mod} = S, F, R, N, State, Debug0) ->
    Debug = debug_in(Debug0, S, Msg),
    Result =
        try
            {returned, Mod:handle_call(Request, From, State)}
        catch
            throw:Value -> {returned, Value};
            Class:Reason:Stacktrace -> {raised, Class, Reason, Stacktrace}
        end,
    case Result of
        {returned, {reply, Reply, NewState}} ->
            turn(S, F, R, N, NewState, infinity, reply(From, Reply, S, NewState, Debug));
        {returned, {reply, Reply, NewState, Action}} when ?is_action(Action) ->
            turn(S, F, R, N, NewState, Action, reply(From, Reply, S, NewState, Debug));
        {returned, {stop, Reason1, Reply, NewState}} ->
            %% The answer goes out whatever terminate/2 does, but after it, as in gen_server.
            try
                stop(Reason1, From, Msg, S, NewState, Debug)
            after
                reply(From, Reply, S, NewState, Debug)
            end;
        _ ->
            noreply_result(Result, From, Msg, S, F, R, N, State, Debug)
    end;
handle_one({'$gen_cast', Request} = Msg, #server{mod = Mod} = S, F, R, N, State, Debug0) ->
    Debug = debug_in(Debug0, S, Msg),
    noreply_result(dispatch(Mod, handle_cast, Request, State), Msg, S, F, R, N, State, Debug);
handle_one(Msg, #server{mod = Mod} = S, F, R, N, State, Debug0) ->
    Debug = debug_in(Debug0, S, Msg),
    Result = dispatch(Mod, handle_info, Msg, State),
    noreply_result(default_info(Result, Mod, Msg, State), Msg, S, F, R, N, State, Debug).

%% A server without handle_info/2 logs what it was sent, as gen_server does. Only a missing callback is
%% forgiven: an undef from deeper inside is a crash.
default_info({raised, error, undef, [{Mod, handle_info, [Msg, _], _} | _]} = Raised, Mod, Msg, State) ->
    case erlang:function_exported(Mod, handle_info, 2) of
        true ->
            Raised;
        false ->
            ?LOG_WARNING(
                #{label => {gen_server, no_handle_info}, module => Mod, message => Msg},
                #{
                    domain => [otp],
                    report_cb => fun gen_server:format_log/2,
                    error_logger => #{tag => warning_msg, report_cb => fun gen_server:format_log/1}
                }
            ),
            {returned, {noreply, State}}
    end;
default_info(Result, _, _, _) ->
    Result.

dispatch(Mod, Callback, Arg, State) ->
    try
        {returned, Mod:Callback(Arg, State)}
    catch
        throw:Value -> {returned, Value};
        Class:Reason:Stacktrace -> {raised, Class, Reason, Stacktrace}
    end.

noreply_result(Result, Msg, S, F, R, N, State, Debug) ->
    noreply_result(Result, undefined, Msg, S, F, R, N, State, Debug).

noreply_result({returned, {noreply, NewState}}, _, _, S, F, R, N, _, Debug) ->
    turn(S, F, R, N, NewState, infinity, debug_noreply(Debug, S, NewState));
noreply_result({returned, {noreply, NewState, Action}}, _, _, S, F, R, N, _, Debug) when ?is_action(Action) ->
    turn(S, F, R, N, NewState, Action, debug_noreply(Debug, S, NewState));
noreply_result({returned, {stop, Reason, NewState}}, From, Msg, S, _, _, _, _, Debug) ->
    stop(Reason, From, Msg, S, NewState, Debug);
noreply_result({returned, Other}, From, Msg, S, _, _, _, State, Debug) ->
    stop({bad_return_value, Other}, From, Msg, S, State, Debug);
noreply_result({raised, Class, Reason, Stacktrace}, From, Msg, S, _, _, _, State, Debug) ->
    crash(Class, Reason, Stacktrace, From, Msg, S, State, Debug).

%% A batch

handle_batch(Rear, #server{mod = Mod} = S, State, Debug0) ->
    Batch = decode(Rear, []),
    Debug = debug_batch(Debug0, S, Rear),
    Result =
        try
            {returned, Mod:handle_batch(Batch, State)}
        catch
            throw:Value -> {returned, Value};
            Class:Reason:Stacktrace -> {raised, Class, Reason, Stacktrace}
        end,
    case Result of
        {returned, {reply, Replies, NewState}} when is_list(Replies) ->
            turn(S, [], [], 0, NewState, infinity, replies(Replies, S, NewState, Debug));
        {returned, {reply, Replies, NewState, Action}} when is_list(Replies), ?is_action(Action) ->
            turn(S, [], [], 0, NewState, Action, replies(Replies, S, NewState, Debug));
        {returned, {stop, Reason1, Replies, NewState}} when is_list(Replies) ->
            try
                stop(Reason1, undefined, report_of(Batch), S, NewState, Debug)
            after
                replies(Replies, S, NewState, Debug)
            end;
        _ ->
            noreply_result(Result, report_of(Batch), S, [], [], 0, State, Debug)
    end.

%% The queue's rear is in reverse order, so decoding it puts it right again.
decode([{'$gen_call', From, Request} | Rear], Batch) ->
    decode(Rear, [{call, From, Request} | Batch]);
decode([{'$gen_cast', Request} | Rear], Batch) ->
    decode(Rear, [{cast, Request} | Batch]);
decode([Msg | Rear], Batch) ->
    decode(Rear, [{info, Msg} | Batch]);
decode([], Batch) ->
    Batch.

%% A crash report shows the size of the batch and its first message: a thousand payloads in a log help nobody.
report_of([First | _] = Batch) ->
    {batch, length(Batch), First}.

%% Replies

reply(From, Reply, S, State, Debug) ->
    gen:reply(From, Reply),
    debug_out(Debug, S, Reply, From, State).

replies([{From, Reply} | Replies], S, State, Debug) ->
    replies(Replies, S, State, reply(From, Reply, S, State, Debug));
replies([], _, _, Debug) ->
    Debug.

%% The end

-spec stop(term(), weir_server:from() | undefined, term(), server(), term(), [sys:dbg_opt()]) -> no_return().
stop(Reason, From, Msg, #server{name = Name, mod = Mod}, State, Debug) ->
    weir_server_report:stop(Reason, Name, From, Msg, Mod, State, Debug).

-spec crash(
    error | exit,
    term(),
    erlang:stacktrace(),
    weir_server:from() | undefined,
    term(),
    server(),
    term(),
    [sys:dbg_opt()]
) -> no_return().
crash(Class, Reason, Stacktrace, From, Msg, #server{name = Name, mod = Mod}, State, Debug) ->
    weir_server_report:crash(Class, Reason, Stacktrace, Name, From, Msg, Mod, State, Debug).

-spec parent_exit(term(), term(), server(), term(), [sys:dbg_opt()]) -> no_return().
parent_exit(Reason, Msg, S, State, Debug) ->
    stop(Reason, undefined, Msg, S, State, Debug).

%% Debugging through sys. Without it each of these costs one comparison and allocates nothing.

debug([], _, _) -> [];
debug(Debug, S, Event) -> sys:handle_debug(Debug, fun weir_server_report:print_event/3, S#server.name, Event).

debug_in([], _, _) -> [];
debug_in(Debug, S, Msg) -> debug(Debug, S, {in, Msg}).

debug_batch([], _, _) -> [];
debug_batch(Debug, S, Rear) -> lists:foldr(fun(Msg, D) -> debug_in(D, S, Msg) end, Debug, Rear).

debug_out([], _, _, _, _) -> [];
debug_out(Debug, S, Reply, From, State) -> debug(Debug, S, {out, Reply, From, State}).

debug_noreply([], _, _) -> [];
debug_noreply(Debug, S, State) -> debug(Debug, S, {noreply, State}).

%% System messages

-spec system(
    term(),
    {pid(), term()},
    server(),
    [term()],
    [term()],
    non_neg_integer(),
    term(),
    weir_server:action(),
    [sys:dbg_opt()],
    boolean()
) -> no_return().
system(Request, From, S, F, R, N, State, Wait, Debug, Hibernated) ->
    Suspended = #suspended{server = S, front = F, rear = R, len = N, state = State, wait = Wait},
    sys:handle_system_msg(Request, From, S#server.parent, ?MODULE, Debug, Suspended, Hibernated).

%% @private
-spec system_continue(pid(), [sys:dbg_opt()], #suspended{}) -> no_return().
system_continue(Parent, Debug, #suspended{server = S0, front = F, rear = R, len = N, state = State, wait = Wait}) ->
    S = S0#server{parent = Parent},
    %% back to where the message was met
    case N of
        0 -> wait(S, State, Wait, Debug);
        _ -> drain(S, F, R, N, State, Wait, Debug)
    end.

%% @private
-spec system_terminate(term(), pid(), [sys:dbg_opt()], #suspended{}) -> no_return().
system_terminate(Reason, _Parent, Debug, #suspended{server = S, state = State}) ->
    stop(Reason, undefined, [], S, State, Debug).

%% @private The drained messages survive the change; whether they are batched may change with it.
-spec system_code_change(#suspended{}, module(), term(), term()) -> {ok, #suspended{}} | term().
system_code_change(#suspended{server = #server{mod = Mod} = S} = Suspended, _Module, OldVsn, Extra) ->
    case Mod:code_change(OldVsn, Suspended#suspended.state, Extra) of
        {ok, NewState} ->
            Batch = erlang:function_exported(Mod, handle_batch, 2),
            {ok, rebatch(Suspended#suspended{server = S#server{batch = Batch}, state = NewState})};
        Other ->
            Other
    end.

%% A batch server keeps its whole queue in the rear.
rebatch(#suspended{server = #server{batch = true}, front = F, rear = R} = Suspended) ->
    Suspended#suspended{front = [], rear = R ++ lists:reverse(F)};
rebatch(Suspended) ->
    Suspended.

%% @private
-spec system_get_state(#suspended{}) -> {ok, term()}.
system_get_state(#suspended{state = State}) ->
    {ok, State}.

%% @private
-spec system_replace_state(fun((term()) -> term()), #suspended{}) -> {ok, term(), #suspended{}}.
system_replace_state(Replace, #suspended{state = State} = Suspended) ->
    NewState = Replace(State),
    {ok, NewState, Suspended#suspended{state = NewState}}.

%% @private
-spec format_status(term(), [term()]) -> [term()].
format_status(Opt, [PDict, SysState, Parent, Debug, #suspended{server = S, len = Len, state = State}]) ->
    weir_server_report:format_status(
        Opt, PDict, SysState, Parent, Debug, S#server.name, S#server.mod, State, Len
    ).
