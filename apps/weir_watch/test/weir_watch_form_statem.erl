%% The same as a gen_statem.
-module(weir_watch_form_statem).
-behaviour(gen_statem).

-export([start/2, init/1, callback_mode/0, handle_event/4]).

start(Init, Fun) -> gen_statem:start(?MODULE, {Init, Fun}, []).

callback_mode() -> handle_event_function.

init({Init, Fun}) -> {ok, on, {Init(), Fun}}.

handle_event({call, From}, Request, on, {State, Fun}) ->
    {keep_state, {Fun(Request, State), Fun}, [{reply, From, ok}]};
handle_event(_, Request, on, {State, Fun}) ->
    {keep_state, {Fun(Request, State), Fun}}.
