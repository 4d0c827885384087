%% A callback module whose messages are the funs to run; its state is a map that may hold funs for the other callbacks.
-module(weir_server_puppet).

-export([
    init/1, handle_call/3, handle_cast/2, handle_info/2, handle_continue/2, terminate/2, code_change/3, answer/1, do/1
]).

%% A request, a continue term or an argument of init that makes the server do this.
answer(Reply) -> fun(_From, State) -> {reply, Reply, State} end.

do(Result) -> fun(_State) -> Result end.

init(Fun) -> Fun().

handle_call(Fun, From, State) when is_function(Fun, 2) -> Fun(From, State);
handle_call(state, _From, State) -> {reply, State, State}.

handle_cast(Fun, State) -> Fun(State).

handle_info(Fun, State) when is_function(Fun, 1) -> Fun(State);
handle_info(Info, State) -> {noreply, State#{infos => [Info | maps:get(infos, State, [])]}}.

handle_continue(Fun, State) when is_function(Fun, 1) -> Fun(State);
handle_continue(Continue, State) -> {noreply, State#{continued => Continue}}.

terminate(Reason, #{terminate := Fun} = State) -> Fun(Reason, State);
terminate(_, _) -> ok.

code_change(OldVsn, #{code_change := Fun} = State, Extra) -> Fun(OldVsn, State, Extra).
