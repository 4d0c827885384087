%% A client of one connection that answers its callers when the other end does.
-module(weir_watch_form_client).
-behaviour(gen_server).

-export([start/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start(Port) -> gen_server:start(?MODULE, Port, []).

init(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, true}]),
    {ok, {Socket, queue:new()}}.

handle_call(_, From, {Socket, Queue}) ->
    ok = gen_tcp:send(Socket, <<"x">>),
    {noreply, {Socket, queue:in(From, Queue)}}.

handle_cast(_, State) -> {noreply, State}.

handle_info({tcp, Socket, Bytes}, {Socket, Queue}) ->
    {Answered, Rest} = queue:split(byte_size(Bytes), Queue),
    [gen_server:reply(From, ok) || From <- queue:to_list(Answered)],
    {noreply, {Socket, Rest}}.
