%% @private Acknowledgements: how a sender learns that everything it has sent was taken out of a mailbox.
%%
%% The request is the message that `sys:statistics(Pid, get)' sends. Every OTP behaviour answers it, in the order of
%% arrival, and calls no callback for it; the answer itself is of no interest. It is the cheapest one that there is:
%% nothing of the receiver's state is copied.
%%
%% ```
%%              ask                               answer
%%   sender ----------> receiver's mailbox -------------------> alias of the sender: acked
%%      |                       |
%%      | time is over          | dies, or its node goes: 'DOWN' ---------------> noproc
%%      v
%%   drops the alias; the request stays where it is, and its answer reaches nobody
%%      |
%%      | start_watch           answer, 'DOWN' of the receiver, or 'DOWN' of the sender
%%      v                                |
%%   watch  <----------------------------+        ends; whoever waits for it has a monitor on it
%% '''
%%
%% Every wait is for a reference that was made in the same function, so the runtime does not search what was in the
%% sender's mailbox before. The answer that ends a wait takes the alias and the monitor with it. When the time is over
%% both are dropped first and the mailbox is looked at then, so an answer that crosses the end of the time is taken,
%% and none is left.
%%
%% The watch is a process because only its owner can be sent to by an alias, and a message that arrives in a sender's
%% mailbox after the sender has gone on to something else is what must not happen. Its request is sent by the sender
%% itself, so that it is behind the sender's messages whatever the way; only the answer goes to the watch. A watch
%% whose sender dies ends. If somebody kills it, the sender takes the window for acknowledged.
%%
%% A receiver may throw the request away: a callback that empties its mailbox (`receive _ -> flush() after 0') takes
%% whatever is there. Whoever waits therefore looks now and then, at the receiver if it is on the same node: one that
%% waits for a message, with none in its mailbox, has none of ours either, and is asked again. A weir_server may have
%% taken it out of the mailbox to answer it later, and wait in a callback: so it must be its loop that waits. On another
%% node the receiver is asked again after waits of 50 ms, twice that, and so on, once one of ?LAST_PATIENCE_MS is over:
%% 11 seconds after the request, and from then on every 5. What was asked twice may be answered twice; the second answer
%% reaches nobody. A receiver that has answered looks like one that has lost the request, and whoever was kept from
%% running finds that its patience is over before it has taken the answer: so it is looked for once more, after the look
%% at the receiver.
%%
%% A process that is suspended (sys:suspend/1) answers system messages at once and handles nothing else, so its
%% acknowledgement means nothing. That it is suspended cannot be asked for without having its whole state copied, but
%% it can be seen, on the same node, from the function that it is in ({@link status/1}). One that was hibernating when
%% it was suspended goes back to hibernation at once, message or not, which the runtime refuses while there is one: it
%% is found hibernating with messages in its mailbox, over and over. A server that hibernates after each message while
%% its mailbox is full looks the same; a sender then waits as if it were suspended, until the mailbox is empty at one
%% of its looks.
-module(weir_flow_ack).

-export([ask/2, start_watch/1, await_watch/2, is_lost/2, status/1, await_resume/2]).

%% for spawn and for weir_flow_limits
-export([watch/4, request/2]).

-export_type([watch/0]).

%% The tag of an answer to an alias is an improper list; so OTP has it.
-dialyzer({no_improper_lists, [ask/2, ask/5]}).

-define(FIRST_PAUSE_MS, 1).
-define(LAST_PAUSE_MS, 32).

%% How long an answer is waited for before it is asked whether the request is lost: first, and at most.
-define(FIRST_PATIENCE_MS, 50).
-define(LAST_PATIENCE_MS, 5000).

-opaque watch() :: {pid(), Again :: counters:counters_ref()}.
%% The process, and how often it has asked again: nobody may be waiting when it ends.

%% The key in the process dictionary that tells a weir_server.
-define(PUBLISHED, '$weir_server').

%% @doc Sends a request and waits for its answer, for so many milliseconds.
%%
%% `acked': what this process had sent was taken out of the mailbox. `noproc': the receiver is not there (any more),
%% or its node is not. `timeout': the request is still in the mailbox, and nothing comes of it. `Again': how often the
%% request was lost, and sent again. Cost: a round trip.
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
                        %% Or it was answered: then the answer had come before the look.
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

%% @doc Whether a request that has been waited for so long is not in the mailbox any more, though there was no answer.
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

%% Whether one that waits there has taken nothing out of its mailbox that it has not come to.
has_drained_none({weir_server_loop, _Function, _Arity}, _To) -> true;
has_drained_none({erlang, hibernate, _Arity}, _To) -> true;
has_drained_none(_Where, To) -> not is_weir_server(To).

%% Whether a process has in its dictionary what weir_server:info/1 reads. Before OTP 27 all of that is copied.
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

%% @doc The request, with whom to answer.
-spec request(weir_flow_dest:to(), {pid(), Tag :: term()}) -> ok.
request(To, From) ->
    _ = To ! {system, From, {debug, {statistics, get}}},
    ok.

%% @doc Sends a request that another process waits for, which ends when it is answered or has no one to answer to or
%% to be answered by. If the node has no room for a process, returns `no_room' and sends nothing. Cost: spawning it, a
%% few microseconds; another round trip to it for a name on another node.
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

%% A pid that is dead stays dead, whenever it is monitored. But the process that has a name now may be gone, and the
%% request with it, and another be there when the watch gets round to its monitor: so the request waits for that.
await_monitor(Pid, _Watch) when is_pid(Pid) ->
    ok;
await_monitor({_Name, _Node}, Watch) ->
    Ref = monitor(process, Watch, [{alias, reply_demonitor}]),
    _ = Watch ! {are_you_watching, Ref},
    receive
        {Ref, yes} -> ok;
        {'DOWN', Ref, process, _Watch, _Reason} -> ok
    end.

%% @private
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
                    %% What the sender has sent was there before: it was taken out, or has had seconds to arrive.
                    ok = counters:add(Again, 1, 1),
                    ok = request(To, {self(), Tag}),
                    watching(To, Tag, Refs, more(Patience), Again)
                end;
            false ->
                watching(To, Tag, Refs, more(Patience), Again)
        end
    end.

%% @doc Waits for the end of a watch, for so many milliseconds. `ended': it is over, but whether it was answered is not
%% known any more.
-spec await_watch(watch(), timeout()) -> {acked | noproc | ended | timeout, Again :: non_neg_integer()}.
await_watch({Watch, Again}, 0) ->
    %% The news of a process that is dead already takes longer than no time. In the sender; a watch has nothing to clean
    %% up when it dies.
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

%% @doc Whether a process of this node is suspended.
%%
%% Cost: about a microsecond; if it is running, it answers when it waits for a message or has used up its time slice.
-spec status(pid()) -> running | suspended | noproc.
status(Pid) ->
    case process_info(Pid, [current_function, message_queue_len]) of
        [{current_function, {sys, suspend_loop, _}}, _] -> suspended;
        [{current_function, {sys, suspend_loop_hib, _}}, _] -> suspended;
        [{current_function, {erlang, hibernate, _}}, {message_queue_len, Length}] when Length > 0 -> suspended;
        [_, _] -> running;
        undefined -> noproc
    end.

%% @doc Waits until a process of this node is not suspended. It is looked at every 1 to 32 ms.
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
