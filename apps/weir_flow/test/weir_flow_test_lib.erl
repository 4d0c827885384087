%% What several suites need: processes that do one thing and tell the result, and waiting for a condition.
-module(weir_flow_test_lib).

-export([eventually/1, async/1, result/1, is_waiting/1, is_waiting/2, queue/1, kill/1]).
-export([mailbox/0, stray/0, quiet/1, loud/1]).

-define(DEADLINE_MS, 60000).
-define(POLL_MS, 2).

%% Polls until Condition() is true.
eventually(Condition) -> poll(Condition, erlang:monotonic_time(millisecond) + ?DEADLINE_MS).

poll(Condition, Until) ->
    case Condition() of
        true ->
            ok;
        Other ->
            case erlang:monotonic_time(millisecond) > Until of
                true ->
                    error({still, Other});
                false ->
                    receive
                    after ?POLL_MS -> poll(Condition, Until)
                    end
            end
    end.

%% A process that does something, and ends with its result and the messages that it has in its mailbox then.
async(Fun) ->
    spawn_monitor(fun() ->
        Result = Fun(),
        exit({result, Result, mailbox()})
    end).

%% The result of one that must have nothing in its mailbox.
result({Pid, Ref}) ->
    receive
        {'DOWN', Ref, process, Pid, {result, Result, []}} -> Result;
        {'DOWN', Ref, process, Pid, Other} -> error({died, Other})
    after ?DEADLINE_MS -> error({no_result, process_info(Pid, [current_stacktrace, messages])})
    end.

%% Whether a process has come to wait for an acknowledgement, a watch, or a suspended receiver.
is_waiting(Process) -> is_waiting(Process, [ask, await_watch, await_resume]).

%% Whether it waits in that function. An acknowledgement may come at any time; a suspended receiver stays so.
is_waiting({Pid, _Ref}, Functions) -> is_waiting(Pid, Functions);
is_waiting(Pid, Functions) ->
    case process_info(Pid, [status, current_function]) of
        [{status, waiting}, {current_function, {weir_flow_ack, Function, _}}] -> lists:member(Function, Functions);
        _ -> false
    end.

queue(Pid) ->
    {message_queue_len, Length} = process_info(Pid, message_queue_len),
    Length.

kill({Pid, _Ref}) -> kill(Pid);
kill(Pid) ->
    Ref = monitor(process, Pid),
    exit(Pid, kill),
    receive
        {'DOWN', Ref, process, Pid, _} -> ok
    after ?DEADLINE_MS -> error({still_alive, Pid})
    end.

%% What is in the mailbox of the calling process, which is then in it again. Not by process_info/2: asked for its own
%% messages while others send to it, a process of OTP 25.2 was seen to take the runtime down.
mailbox() ->
    All = take_all(),
    [self() ! Message || Message <- All],
    All.

take_all() ->
    receive
        Message -> [Message | take_all()]
    after 0 -> []
    end.

%% Watches that are still there.
stray() ->
    [Pid || Pid <- processes(), process_info(Pid, initial_call) =:= {initial_call, {weir_flow_ack, watch, 4}}].

quiet(Config) ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    [{log_level, Level} | Config].

loud(Config) -> logger:set_primary_config(level, proplists:get_value(log_level, Config)).
