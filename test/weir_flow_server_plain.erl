%% Remembers each cast, and how many messages were waiting when it came to it.
-module(weir_flow_server_plain).
-behaviour(weir_server).

-export([init/1, handle_call/3, handle_cast/2]).

init(_) -> {ok, []}.

handle_call(seen, _From, Seen) -> {reply, lists:reverse(Seen), Seen}.

handle_cast({hold, Pid, Ref}, Seen) ->
    Pid ! {held, Ref},
    receive
        Ref -> {noreply, Seen}
    end;
handle_cast(Message, Seen) ->
    {noreply, [{Message, weir_server:waiting()} | Seen]}.

