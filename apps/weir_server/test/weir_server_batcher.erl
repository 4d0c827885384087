%% A batch server that tells a process about each batch and answers as its calls ask.
-module(weir_server_batcher).

-export([init/1, handle_batch/2, handle_continue/2, terminate/2, code_change/3]).

init(Tell) ->
    {ok, Tell}.

handle_batch(Batch, Tell) ->
    Tell ! {batch, self(), [shape(Message) || Message <- Batch]},
    [receive Ref -> ok end || {cast, {hold, Ref}} <- Batch],
    Replies = [{From, Reply} || {call, From, {reply, Reply}} <- Batch],
    [weir_server:reply(From, Reply) || {call, From, {later, Reply}} <- Batch],
    case [Order || {cast, {order, Order}} <- Batch] ++ [Order || {call, _, {order, Order}} <- Batch] of
        [] when Replies =:= [] -> {noreply, Tell};
        [] -> {reply, Replies, Tell};
        [{stop, Reason} | _] -> {stop, Reason, Tell};
        [stop_replying | _] -> {stop, normal, [{From, stopped} || {call, From, _} <- Batch], Tell};
        [{raise, Reason} | _] -> error(Reason);
        [{action, Action} | _] when Replies =:= [] -> {noreply, Tell, Action};
        [{action, Action} | _] -> {reply, Replies, Tell, Action};
        [{bad, Result} | _] -> Result
    end.

handle_continue(Continue, Tell) ->
    Tell ! {continued, self(), Continue},
    {noreply, Tell}.

terminate(Reason, Tell) ->
    Tell ! {terminated, self(), Reason}.

code_change(_, Tell, Extra) ->
    Tell ! {code_changed, self(), Extra},
    {ok, Tell}.

shape({call, _, Request}) -> {call, Request};
shape(Other) -> Other.
