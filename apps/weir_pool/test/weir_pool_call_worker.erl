%% A worker that answers its callers, or lets them wait until the cast `answer'.
-module(weir_pool_call_worker).
-behaviour(gen_server).

-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link(?MODULE, [], []).

init([]) -> {ok, []}.

handle_call({echo, Term}, _From, Waiting) -> {reply, {self(), Term}, Waiting};
handle_call({wait, Test}, From, Waiting) ->
    Test ! {waiting, self()},
    {noreply, [From | Waiting]};
handle_call(count_waiting, _From, Waiting) -> {reply, length(Waiting), Waiting};
handle_call({die, Reason}, _From, Waiting) -> {stop, Reason, Waiting}.

handle_cast(answer, Waiting) ->
    [gen_server:reply(From, answered) || From <- Waiting],
    {noreply, []};
handle_cast({tell, Test, Term}, Waiting) ->
    Test ! {told, self(), Term},
    {noreply, Waiting}.
