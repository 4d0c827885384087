%% @private Acknowledgements: how a sender learns that the receiver has taken all its messages out of the mailbox.
%%
%% The request is the message that `sys:statistics(Pid, get)' sends. Every OTP behaviour answers this message in the
%% order of arrival, and calls no callback. The sender ignores the content of the answer. This request is the cheapest
%% system message, because the receiver copies nothing of its state.
%%
%% ```
%%              ask                               answer
%%   sender ----------> receiver's mailbox -------------------> alias of the sender: acked
%%      |                       |
%%      | time is over          | receiver or its node dies: 'DOWN' ------------> noproc
%%      v
%%   drops the alias; the request stays in the mailbox, and its answer reaches no process
%%      |
%%      | start_watch           answer, 'DOWN' of the receiver, or 'DOWN' of the sender
%%      v                                |
%%   watch  <----------------------------+        ends; a waiting sender has a monitor of the watch
%% '''
%%
%% == No answer stays in the sender's mailbox ==
%%
%% Each wait is for a reference that the same function has made, so the runtime does not search the older messages of
%% the mailbox. An answer ends the alias and the monitor. When the time is over, the sender first drops the alias and
%% the monitor, and then reads its mailbox once more. An answer that crosses the end of the time is therefore taken, and
%% no answer arrives later.
%%
%% == Watches ==
%%
%% After a time-out, a process called watch waits for the answer to a second request, so that no answer arrives in the
%% mailbox of a sender that no longer waits. The sender sends that request itself, with the watch as the process to
%% answer. The request is therefore behind all messages of the sender.
%%
%% The watch ends when the request is answered, or when the receiver or the sender dies. If another process kills the
%% watch, the sender treats its messages as acknowledged.
%%
%% == Lost requests ==
%%
%% A callback of the receiver that empties the mailbox (`receive _ -> flush() after 0') throws the request away. The
%% sender, or its watch, therefore checks from time to time whether the request is lost ({@link is_lost/2}), and then
%% sends the request again.
%%
%% A receiver on the same node has lost the request if it waits for a message and its mailbox is empty. A weir_server
%% may have moved the request into its inbox and wait in a callback, so only a wait in its loop counts.
%%
%% A sender cannot see the mailbox of a receiver on another node. The sender asks again after a wait of
%% ?LAST_PATIENCE_MS. The waits are 50 ms, 100 ms and so on up to 5 seconds, so the second request follows after 11
%% seconds, and the next ones every 5 seconds. If the receiver answers two requests, the second answer reaches no
%% process.
%%
%% A receiver that has already answered looks like a receiver that has lost the request. After the check, the sender
%% therefore reads its mailbox once more before it asks again.
%%
%% == Suspended receivers ==
%%
%% A suspended process (sys:suspend/1) answers system messages and handles no other message, so its acknowledgement
%% means nothing. To ask the process for its status would copy its whole state. On the same node, the function in which
%% the process waits shows the status ({@link status/1}).
%%
%% A process that hibernated when it was suspended tries to hibernate again after each message. The runtime refuses that
%% while the mailbox has messages. The process is therefore found in `hibernate' although its mailbox is not empty. A
%% server that hibernates after each message and always has messages looks the same. Its senders then wait as for a
%% suspended receiver, until one of their checks finds the mailbox empty.
-module(weir_flow_ack).

-export([ask/2, start_watch/1, await_watch/2, is_lost/2, status/1, await_resume/2]).

%% watch/4 for spawn, request/2 for weir_flow_limits and weir_flow_queue
-export([watch/4, request/2]).

-export_type([watch/0]).

%% In OTP, the tag of an answer to an alias is an improper list.
-dialyzer({no_improper_lists, [ask/2, ask/5]}).

%% Pause between two checks of a suspended receiver: the first, doubled each time, and the longest.
-define(FIRST_PAUSE_MS, 1).
-define(LAST_PAUSE_MS, 32).

%% Wait for an answer before each check whether the request is lost: the first, doubled each time, and the longest.
-define(FIRST_PATIENCE_MS, 50).
-define(LAST_PATIENCE_MS, 5000).

-opaque watch() :: {pid(), Again :: counters:counters_ref()}.
%% The process, and the number of its repeated requests. The counter outlives the process.

%% Key in the process dictionary of each weir_server.
-define(PUBLISHED, '$weir_server').

%% @doc Sends a request and waits for its answer, for at most Left milliseconds.
%%
%% Returns `acked' if the receiver has taken all messages of the calling process out of its mailbox, and `noproc' if the
%% receiver or its node is dead. If the time is over, returns `timeout'; the request stays in the mailbox, and its
%% answer reaches no process. `Again' is the number of requests that were lost and sent again. Cost: a round trip.
-spec ask(weir_flow_dest:to(), timeout()) -> {acked | noproc | timeout, Again :: non_neg_integer()}.
ask(To, Left) ->
    Ref = monitor(process, To, [{alias, reply_demonitor}]),
    ok = request(To, {self(), [alias | Ref]}),
    ask(To, Ref, weir_flow_time:until(Left), ?FIRST_PATIENCE_MS, 0).

ask(To, Ref, Until, Patience, Again) ->
    receive
        {[alias | Ref], _Statistics} -> {acked, Again};
        {'DOWN', Ref, process, _To, _Reason} -> {noproc, Again}
    after min(Patience, weir_flow_time:left(Until)) ->
        case weir_flow_time:left(Until) of
            0 ->
                _ = demonitor(Ref),
                receive
                    {[alias | Ref], _Statistics} -> {acked, Again};
                    {'DOWN', Ref, process, _To, _Reason} -> {noproc, Again}
                after 0 -> {timeout, Again}
                end;
            _ ->
                case is_lost(To, Patience) of
                    true ->
                        %% If the receiver has answered, the answer arrived before the check.
                        receive
                            {[alias | Ref], _Statistics} -> {acked, Again};
                            {'DOWN', Ref, process, _To, _Reason} -> {noproc, Again}
                        after 0 ->
                            ok = request(To, {self(), [alias | Ref]}),
                            ask(To, Ref, Until, more(Patience), Again + 1)
                        end;
                    false ->
                        ask(To, Ref, Until, more(Patience), Again)
                end
        end
    end.

more(Patience) -> min(2 * Patience, ?LAST_PATIENCE_MS).

%% @doc Returns whether a request without an answer is no longer in the mailbox. On another node, a request counts as
%% lost after a wait of ?LAST_PATIENCE_MS.
-spec is_lost(weir_flow_dest:to(), WaitedMs :: pos_integer()) -> boolean().
is_lost(To, Waited) ->
    case weir_flow_dest:is_local(To) of
        true ->
            case process_info(To, [status, current_function, message_queue_len]) of
                [{status, waiting}, {current_function, Where}, {message_queue_len, 0}] -> has_drained_none(Where, To);
                _BusyOrDead -> false
            end;
        false ->
            Waited =:= ?LAST_PATIENCE_MS
    end.

%% Returns whether a process that waits in this function has handled all messages that it took out of its mailbox.
has_drained_none({weir_server_loop, _Function, _Arity}, _To) -> true;
has_drained_none({erlang, hibernate, _Arity}, _To) -> true;
has_drained_none(_Where, To) -> not is_weir_server(To).

%% Returns whether a process is a weir_server, by the entry in its dictionary that weir_server:info/1 reads. Before OTP
%% 27, this copies the whole dictionary.
-if(?OTP_RELEASE >= 27).
is_weir_server(Pid) ->
    case process_info(Pid, {dictionary, ?PUBLISHED}) of
        {{dictionary, ?PUBLISHED}, Published} -> Published =/= undefined;
        undefined -> false
    end.
-else.
is_weir_server(Pid) ->
    case process_info(Pid, dictionary) of
        {dictionary, Dictionary} -> lists:keymember(?PUBLISHED, 1, Dictionary);
        undefined -> false
    end.
-endif.

%% @doc Sends the receiver a request. The receiver answers to `From'.
-spec request(weir_flow_dest:to(), {pid(), Tag :: term()}) -> ok.
request(To, From) ->
    _ = To ! {system, From, {debug, {statistics, get}}},
    ok.

%% @doc Starts a watch and sends the request whose answer the watch waits for. If the node has no room for a process,
%% returns `no_room' and sends nothing.
%%
%% Cost: a few microseconds to spawn the watch, and a round trip to the watch if the receiver is a name on another node.
-spec start_watch(weir_flow_dest:to()) -> {ok, watch()} | no_room.
start_watch(To) ->
    Tag = make_ref(),
    Again = counters:new(1, [atomics]),
    try spawn(?MODULE, watch, [self(), To, Tag, Again]) of
        Watch ->
            ok = await_monitor(To, Watch),
            ok = request(To, {Watch, Tag}),
            {ok, {Watch, Again}}
    catch
        error:system_limit -> no_room
    end.

%% Waits until the watch monitors a receiver that is called by a name. Without this wait, the receiver could die with
%% the request before the watch monitors it. The watch would then monitor a successor that never got the request. A pid
%% has no successor.
await_monitor(Pid, _Watch) when is_pid(Pid) ->
    ok;
await_monitor({_Name, _Node}, Watch) ->
    Ref = monitor(process, Watch, [{alias, reply_demonitor}]),
    _ = Watch ! {are_you_watching, Ref},
    receive
        {Ref, yes} -> ok;
        {'DOWN', Ref, process, _Watch, _Reason} -> ok
    end.

%% @private The function of a watch. Exits with `{watched, acked}' or `{watched, noproc}'.
-spec watch(pid(), weir_flow_dest:to(), reference(), counters:counters_ref()) -> no_return().
watch(Sender, To, Tag, Again) ->
    SenderRef = monitor(process, Sender),
    ToRef = monitor(process, To),
    watching(To, Tag, {SenderRef, ToRef}, ?FIRST_PATIENCE_MS, Again).

watching(To, Tag, {SenderRef, ToRef} = Refs, Patience, Again) ->
    receive
        {are_you_watching, Ref} ->
            _ = Ref ! {Ref, yes},
            watching(To, Tag, Refs, Patience, Again);
        {Tag, _Statistics} ->
            exit({watched, acked});
        {'DOWN', SenderRef, process, _Sender, _Reason} ->
            exit(normal);
        {'DOWN', ToRef, process, _To, _Reason} ->
            exit({watched, noproc})
    after Patience ->
        case is_lost(To, Patience) of
            true ->
                receive
                    {Tag, _Statistics} -> exit({watched, acked})
                after 0 ->
                    %% This request no longer comes from the sender, so it could overtake the sender's messages. A
                    %% local mailbox was empty, and messages to another node have had 11 seconds to arrive.
                    ok = counters:add(Again, 1, 1),
                    ok = request(To, {self(), Tag}),
                    watching(To, Tag, Refs, more(Patience), Again)
                end;
            false ->
                watching(To, Tag, Refs, more(Patience), Again)
        end
    end.

%% @doc Waits for the end of a watch, for at most Left milliseconds. Returns `ended' if the watch has ended and its
%% result is no longer known.
-spec await_watch(watch(), timeout()) -> {acked | noproc | ended | timeout, Again :: non_neg_integer()}.
await_watch({Watch, Again}, 0) ->
    %% A monitor would report a dead watch too late for a time-out of 0.
    case is_process_alive(Watch) of
        true -> {timeout, 0};
        false -> {ended, counters:get(Again, 1)}
    end;
await_watch({Watch, Again}, Left) ->
    Ref = monitor(process, Watch),
    receive
        {'DOWN', Ref, process, _Watch, Reason} -> {end_of_watch(Reason), counters:get(Again, 1)}
    after Left ->
        _ = demonitor(Ref),
        receive
            {'DOWN', Ref, process, _Watch, Reason} -> {end_of_watch(Reason), counters:get(Again, 1)}
        after 0 -> {timeout, 0}
        end
    end.

end_of_watch({watched, Outcome}) -> Outcome;
end_of_watch(_NoprocOrKilled) -> ended.

%% @doc Returns whether a process of this node is suspended.
%%
%% Cost: about a microsecond. A running process answers when it waits for a message or when its time slice ends.
-spec status(pid()) -> running | suspended | noproc.
status(Pid) ->
    case process_info(Pid, [current_function, message_queue_len]) of
        [{current_function, {sys, suspend_loop, _}}, _] -> suspended;
        [{current_function, {sys, suspend_loop_hib, _}}, _] -> suspended;
        [{current_function, {erlang, hibernate, _}}, {message_queue_len, Length}] when Length > 0 -> suspended;
        [_, _] -> running;
        undefined -> noproc
    end.

%% @doc Waits until a process of this node is not suspended. Checks the process every 1 to 32 ms.
-spec await_resume(pid(), weir_flow_time:until()) -> resumed | noproc | timeout.
await_resume(Pid, Until) -> await_resume(Pid, Until, ?FIRST_PAUSE_MS).

await_resume(Pid, Until, Pause) ->
    case status(Pid) of
        running ->
            resumed;
        noproc ->
            noproc;
        suspended ->
            case weir_flow_time:left(Until) of
                0 -> timeout;
                Left -> await_resume(Pid, Until, Pause, min(Pause, Left))
            end
    end.

await_resume(Pid, Until, Pause, Ms) ->
    Ref = monitor(process, Pid),
    receive
        {'DOWN', Ref, process, _Pid, _Reason} -> noproc
    after Ms ->
        true = demonitor(Ref, [flush]),
        await_resume(Pid, Until, min(2 * Pause, ?LAST_PAUSE_MS))
    end.
