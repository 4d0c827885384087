%% A worker of a pool.
-module(weir_watch_form_worker).
-behaviour(gen_server).

-export([start_link/1, init/1, handle_call/3, handle_cast/2]).

start_link(_) -> gen_server:start_link(?MODULE, [], []).
init([]) -> {ok, none}.
handle_call(_, _, State) -> {reply, ok, State}.
handle_cast(_, State) -> {noreply, State}.
