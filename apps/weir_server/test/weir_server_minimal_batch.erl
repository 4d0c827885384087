%% A batch server with nothing but what it needs.
-module(weir_server_minimal_batch).

-behaviour(weir_server).

-export([init/1, handle_batch/2]).

init(State) -> {ok, State}.

handle_batch([{cast, stop}], State) -> {stop, stopped, State}.
