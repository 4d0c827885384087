%% Remembers each cast, and how many messages were waiting when it came to it.
-module(weir_flow_server_prio).
-behaviour(weir_server).

-export([init/1, handle_call/3, handle_cast/2, prioritise_cast/3]).

init(_) -> {ok, []}.

handle_call(seen, _From, Seen) -> {reply, lists:reverse(Seen), Seen}.

handle_cast({hold, Pid, Ref}, Seen) ->
    Pid ! {held, Ref},
    receive
        Ref -> {noreply, Seen}
    end;
handle_cast(Message, Seen) ->
    {noreply, [{Message, weir_server:waiting()} | Seen]}.

%% One for all: what differs in priority is not in order.
prioritise_cast(_Message, _Waiting, _Seen) -> 1.
