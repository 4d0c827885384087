%% The callbacks of the modules weir_server_puppet*. A message of a puppet is the function that the callback runs, and
%% its state is a map that may have functions for other callbacks.


-export([init/1, handle_call/3, handle_cast/2, handle_info/2, handle_continue/2, terminate/2, code_change/3]).
-export([answer/1, do/1]).

%% Returns the request of a call that the server answers so.
answer(Reply) -> fun(_From, State) -> {reply, Reply, State} end.

%% Returns the message whose callback returns this term.
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
