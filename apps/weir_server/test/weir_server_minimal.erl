%% The least that a server can have: no handle_info/2.
-module(weir_server_minimal).

-export([init/1, handle_call/3, handle_cast/2]).

init([]) -> {ok, state}.

handle_call(ping, _, State) -> {reply, ok, State}.

handle_cast(_, State) -> {noreply, State}.
