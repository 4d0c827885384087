%% Functions that the suites of weir_flow share: tasks whose mailbox must be empty at their end, and waiting senders.
-module(weir_flow_test_lib).

-export([async/1, result/1, await/1, is_waiting/1, is_waiting/2, until_waiting/2, stray/0, no_stray/0]).

%% Starts a task. Its result has the messages that are in its mailbox at the end.
async(Fun) ->
    weir_kit:start(fun() ->
        Result = Fun(),
        {Result, weir_kit:messages()}
    end).

%% Returns the result of a task. A message in its mailbox is a fault.
result(Task) ->
    {Result, Messages} = weir_kit:result(Task),
    ok = weir_kit:none(left_in_the_mailbox, Messages),
    Result.

%% Waits for a message.
await(Message) ->
    receive
        Message -> ok
    after weir_kit:wait_ms() -> error({never, received, Message})
    end.

%% Returns whether a process waits for an acknowledgement, a watch, or a suspended receiver.
is_waiting(Process) -> is_waiting(Process, [ask, await_watch, await_resume]).

%% Returns whether a process waits in one of these functions. An acknowledgement may come at any time, but a suspended
%% receiver stays suspended.
is_waiting({Pid, _Monitor}, Functions) -> is_waiting(Pid, Functions);
is_waiting(Pid, Functions) ->
    case process_info(Pid, [status, current_function]) of
        [{status, waiting}, {current_function, {weir_flow_ack, Function, _}}] -> lists:member(Function, Functions);
        _ -> false
    end.

%% Waits until a process waits and a mailbox has this length.
until_waiting(Process, {Receiver, Length}) ->
    weir_kit:until(fun() -> is_waiting(Process) andalso weir_kit:queue_len(Receiver) =:= Length end).

%% Returns the watches that are alive.
stray() ->
    [Pid || Pid <- processes(), process_info(Pid, initial_call) =:= {initial_call, {weir_flow_ack, watch, 4}}].

%% Waits until no watch is alive.
no_stray() -> weir_kit:until(fun() -> stray() =:= [] end).
