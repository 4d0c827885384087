%% An event handler whose work takes a little.
-module(weir_watch_form_handler).
-behaviour(gen_event).

-export([init/1, handle_event/2, handle_call/2]).

init([]) -> {ok, none}.
handle_event(_, State) ->
    weir_watch_forms:spin(3000),
    {ok, State}.
handle_call(_, State) -> {ok, ok, State}.
