%% Remembers each cast, and how large its batch was with what was waiting behind.
-module(weir_flow_server_batch).
-behaviour(weir_server).

-export([init/1, handle_batch/2]).

init(_) -> {ok, []}.

handle_batch(Batch, Seen) -> handle(Batch, length(Batch) + weir_server:waiting(), [], Seen).

handle([{call, From, seen} | Batch], Waiting, Replies, Seen) ->
    handle(Batch, Waiting, [{From, lists:reverse(Seen)} | Replies], Seen);
handle([{cast, {hold, Pid, Ref}} | Batch], Waiting, Replies, Seen) ->
    Pid ! {held, Ref},
    receive
        Ref -> handle(Batch, Waiting, Replies, Seen)
    end;
handle([{cast, Message} | Batch], Waiting, Replies, Seen) ->
    handle(Batch, Waiting, Replies, [{Message, Waiting} | Seen]);
handle([], _Waiting, Replies, Seen) ->
    {reply, Replies, Seen}.
