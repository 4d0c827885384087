%% A weir_server for the suites of upgrades: with batches. It counts what it is told to add, and each call.
-module(weir_upgrade_batch).
-behaviour(weir_server).

-export([start_link/1, init/1, handle_batch/2]).

start_link(Name) -> weir_server:start_link({local, Name}, ?MODULE, [], #{drain => 100}).

init([]) -> {ok, 0}.

handle_batch(Batch, Total) ->
    New = Total + lists:sum([N || {cast, {add, N}} <- Batch]),
    {reply, [{From, New} || {call, From, total} <- Batch], New}.
