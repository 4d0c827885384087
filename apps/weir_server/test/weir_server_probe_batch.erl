%% weir_server_probe for batches: tells the names of each, waits for every hold, does the first message that says what
%% to do, with all calls as the first argument, and otherwise answers all calls with what they asked.
-module(weir_server_probe_batch).

-export([init/1, handle_batch/2, handle_continue/2, terminate/2, code_change/3]).

init(State) -> weir_server_probe:init(State).

handle_batch(Batch, State) ->
    Told = weir_server_probe:tell({batch, [name(Message) || Message <- Batch]}, State),
    Calls = [{From, Request} || {call, From, Request} <- Batch],
    Contents = [content(Message) || Message <- Batch],
    [{noreply, _} = weir_server_probe:run(Hold, undefined, Told) || {hold, _, _} = Hold <- Contents],
    case [Fun || {do, _, Fun} <- Contents] of
        [] when Calls =:= [] -> {noreply, Told};
        [] -> {reply, Calls, Told};
        [Fun | _] -> Fun(Calls, Told)
    end.

handle_continue(Continue, State) -> weir_server_probe:handle_continue(Continue, State).

terminate(Reason, State) -> weir_server_probe:terminate(Reason, State).

code_change(OldVsn, State, Extra) -> weir_server_probe:code_change(OldVsn, State, Extra).

content({call, _From, Request}) -> bare(Request);
content({_Kind, Message}) -> bare(Message).

bare({p, _Priority, Message}) -> bare(Message);
bare(Message) -> Message.

name({call, _From, Request}) -> {call, weir_server_probe:name(Request)};
name({Kind, Message}) -> {Kind, weir_server_probe:name(Message)}.
