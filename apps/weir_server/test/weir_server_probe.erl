%% A callback module that does what its messages say, and tells a process of each message before it does it.
%%
%% What the server does and what it answers then reach that process in the order in which they happened: all of it comes
%% from one process. The other modules weir_server_probe_* add callbacks to this one, since the loop goes by what is
%% exported.
%%
%% A message is `{do, Name, Fun}', which calls `Fun(From | undefined, State)' for what to return, `{p, Priority,
%% Message}'
%% for the modules with priorities, `{hold, Ref, Pid}', which waits inside the callback for `Ref', or any other term.
-module(weir_server_probe).

-export([init/1, handle_call/3, handle_cast/2, handle_info/2, handle_continue/2, terminate/2, code_change/3]).
-export([tell/2, name/1, run/3]).

init(#{raise := Reason}) ->
    error(Reason);
init(#{trap_exit := true} = State) ->
    process_flag(trap_exit, true),
    init(maps:remove(trap_exit, State));
init(#{action := Action} = State) ->
    {ok, maps:remove(action, State), Action};
init(State) ->
    {ok, State}.

handle_call(Request, From, State) ->
    run(Request, From, tell({call, name(Request)}, State)).

handle_cast(Request, State) ->
    run(Request, undefined, tell({cast, name(Request)}, State)).

handle_info(Info, State) ->
    run(Info, undefined, tell({info, name(Info)}, State)).

handle_continue(Continue, State) ->
    run(Continue, undefined, tell({continue, name(Continue)}, State)).

terminate(Reason, State) ->
    tell({terminated, self(), Reason}, State).

code_change(_OldVsn, State, Extra) ->
    case tell({code_change, name(Extra)}, State) of
        Told when is_tuple(Extra), element(1, Extra) =:= do -> (element(3, Extra))(undefined, Told);
        Told -> {ok, Told}
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
        Ref -> ok
    end,
    run(ok, From, State);
run(_Message, undefined, State) ->
    {noreply, State};
run(Message, _From, State) ->
    {reply, Message, State}.
