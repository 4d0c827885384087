%% A weir_server for the suites of upgrades: without batches, so it takes its messages one by one.
-module(weir_upgrade_server).
-behaviour(weir_server).

-export([start_link/2, init/1, handle_call/3]).

start_link(Name, Options) -> weir_server:start_link({local, Name}, ?MODULE, [], Options).

init([]) -> {ok, none}.

handle_call({square, N}, _From, State) -> {reply, N * N, State}.
