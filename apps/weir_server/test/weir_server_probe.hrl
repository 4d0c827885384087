%% The callbacks of the modules weir_server_probe_*. The server goes by the exports, so the macros BATCHES, PRIORITIES
%% and SLEEP say which callbacks a module exports.
%%
%% A probe does what its messages say, and first sends an event for each message to the process `tell' of its state.
%% The answers and the events come from one process, so `tell' receives them in the order in which they happened.
%%
%% A message is `{do, Name, Fun}', and the callback returns the result of `Fun(From | undefined, State)';
%% `{p, Priority, Message}' for the modules with priorities; `{hold, Ref, Pid}', which waits in the callback for `Ref';
%% or any other term.

-export([init/1, handle_continue/2, terminate/2, code_change/3, run/3]).
-ifdef(BATCHES).
-export([handle_batch/2]).
-else.
-export([handle_call/3, handle_cast/2, handle_info/2]).
-endif.
-ifdef(PRIORITIES).
-export([prioritise_call/4, prioritise_cast/3, prioritise_info/3]).
-endif.
-ifdef(SLEEP).
-export([handle_pre_hibernate/1, handle_post_hibernate/1]).
-endif.

init(#{trap_exit := true} = State) ->
    process_flag(trap_exit, true),
    init(maps:remove(trap_exit, State));
init(#{backoff := Backoff} = State) ->
    {ok, maps:remove(backoff, State), infinity, Backoff};
init(#{action := Action} = State) ->
    {ok, maps:remove(action, State), Action};
init(State) ->
    {ok, State}.

handle_continue(Continue, State) -> run(Continue, undefined, tell({continue, name(Continue)}, State)).

terminate(Reason, State) -> tell({terminated, self(), Reason}, State).

code_change(_OldVsn, State, Extra) ->
    case {tell({code_change, name(Extra)}, State), Extra} of
        {Told, {do, _Name, Fun}} -> Fun(undefined, Told);
        {Told, _} -> {ok, Told}
    end.

tell(Event, #{tell := Pid} = State) ->
    Pid ! Event,
    State.

name({do, Name, _Fun}) -> Name;
name({p, _Priority, Message}) -> name(Message);
name({hold, Ref, _Pid}) -> {hold, Ref};
name(Message) -> Message.

run({do, _Name, Fun}, From, State) ->
    Fun(From, State);
run({p, _Priority, Message}, From, State) ->
    run(Message, From, State);
run({hold, Ref, Pid}, From, State) ->
    Pid ! {held, Ref},
    receive
        Ref -> run(ok, From, State)
    end;
run(_Message, undefined, State) ->
    {noreply, State};
run(Message, _From, State) ->
    {reply, Message, State}.

-ifndef(BATCHES).

handle_call(Request, From, State) -> run(Request, From, tell({call, name(Request)}, State)).

handle_cast(Request, State) -> run(Request, undefined, tell({cast, name(Request)}, State)).

handle_info(Info, State) -> run(Info, undefined, tell({info, name(Info)}, State)).

-else.

%% Sends the names of the batch as one event, waits for each hold, and does the first message that says what to do, with
%% all calls as its first argument. Without such a message, answers each call with its request.
handle_batch(Batch, State) ->
    Told = tell({batch, [named(Message) || Message <- Batch]}, State),
    Calls = [{From, Request} || {call, From, Request} <- Batch],
    Contents = [content(Message) || Message <- Batch],
    [{noreply, _} = run(Hold, undefined, Told) || {hold, _, _} = Hold <- Contents],
    case [Fun || {do, _, Fun} <- Contents] of
        [] when Calls =:= [] -> {noreply, Told};
        [] -> {reply, Calls, Told};
        [Fun | _] -> Fun(Calls, Told)
    end.

named({call, _From, Request}) -> {call, name(Request)};
named({Kind, Message}) -> {Kind, name(Message)}.

content({call, _From, Request}) -> bare(Request);
content({_Kind, Message}) -> bare(Message).

bare({p, _Priority, Message}) -> bare(Message);
bare(Message) -> Message.

-endif.

-ifdef(PRIORITIES).

prioritise_call(Request, {_, _}, Waiting, State) -> priority(Request, Waiting, State).

prioritise_cast(Request, Waiting, State) -> priority(Request, Waiting, State).

prioritise_info(timeout, _Waiting, #{drops_timeout := true} = State) ->
    _ = tell(dropped_timeout, State),
    drop;
prioritise_info(Info, Waiting, State) ->
    priority(Info, Waiting, State).

%% The state may turn the order round. A test then sees when the server asks for the priorities.
priority({p, Priority, _}, Waiting, State) when is_function(Priority) -> Priority(Waiting, State);
priority({p, Priority, _}, _Waiting, #{turned := true}) when is_integer(Priority) -> -Priority;
priority({p, Priority, _}, _Waiting, _State) -> Priority;
priority({'EXIT', _, {p, Priority}}, _Waiting, _State) -> Priority;
priority(_Message, _Waiting, _State) -> 0.

-endif.

-ifdef(SLEEP).

%% The state may have functions for these callbacks.
handle_pre_hibernate(State) ->
    case tell(pre_hibernate, State) of
        #{pre := Pre} -> Pre(State);
        _ -> {hibernate, State}
    end.

handle_post_hibernate(State) ->
    case tell(post_hibernate, State) of
        #{post := Post} -> Post(State);
        _ -> {noreply, State}
    end.

-endif.
