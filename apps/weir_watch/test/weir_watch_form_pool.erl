%% A pool as people write them: a gen_server that hands out workers, and keeps callers waiting when there are none.
-module(weir_watch_form_pool).
-behaviour(gen_server).

-export([start/1, with/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start(Workers) -> gen_server:start(?MODULE, Workers, []).

with(Pool, Fun) ->
    Worker = gen_server:call(Pool, out, infinity),
    try
        Fun(Worker)
    after
        gen_server:cast(Pool, {in, Worker})
    end.

init(Workers) -> {ok, {lists:seq(1, Workers), queue:new()}}.

handle_call(out, _From, {[Worker | Free], Queue}) ->
    {reply, Worker, {Free, Queue}};
handle_call(out, {Pid, _} = From, {[], Queue}) ->
    {noreply, {[], queue:in({From, monitor(process, Pid)}, Queue)}}.

handle_cast({in, Worker}, {Free, Queue}) ->
    case queue:out(Queue) of
        {{value, {From, Monitor}}, Rest} ->
            true = demonitor(Monitor, [flush]),
            gen_server:reply(From, Worker),
            {noreply, {Free, Rest}};
        {empty, _} ->
            {noreply, {[Worker | Free], Queue}}
    end.

handle_info(_, State) -> {noreply, State}.
