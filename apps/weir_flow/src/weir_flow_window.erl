%% @private The window of one sender and one receiver.
%%
%% ```
%%                           acked, and no check is due or the check finds a running receiver
%%                        +-------------------------------------------------+---------------+
%%          alive         v           Window - 1 were sent: ask             |               |
%%    new ------------> open ---------------------------------------> (asking) <--+         |
%%     ^                                             time is over |    |          |         |
%%     |                                                          v    | found    | resumed |
%%     |                                                 {watch, ...}  |          |         |
%%     |                                                          |    v          |         |
%%     |                                                          | suspended ----+         |
%%     | noproc, in every phase                                   | the watch has ended     |
%%     +-----------------------                                   +-------------------------+
%% '''
%%
%% The sender is in (asking) only during a call. Between calls, the window is in one of the other phases. The state is
%% the phase with the number of messages sent since the last acknowledgement. In every phase but `open', that number is
%% ?FULL. One comparison therefore decides whether a message may go out at once.
%%
%% The receiver's mailbox holds at most Window - 1 messages of the sender and one request. After a time-out, the mailbox
%% holds one more request, whose answer the watch waits for. Further calls of the sender add no request: each call waits
%% for the same watch or, if the receiver was suspended at the last check, checks the receiver again. No message goes
%% out before the watch has ended or the receiver is resumed.
%%
%% If the receiver throws a request away, the request is sent again (weir_flow_ack).
%%
%% If the sender dies, its window is gone and its watch ends. Its messages and requests stay in the mailbox until the
%% receiver takes them.
-module(weir_flow_window).

-export([pass/4]).

-export_type([state/0, phase/0]).

-include("weir_flow.hrl").

-type state() :: {Sent :: non_neg_integer(), #past{}}.

-type phase() :: new | open | suspended | {watch, weir_flow_ack:watch()}.

%% The sender checks whether the receiver is suspended at the first acknowledgement and at every 16th after a check.
-define(LOOK_EVERY, 16).

%% @doc Sends a message once the window has room and, with the option `limit', once the limit has room too.
%%
%% This function handles every case. If fewer than `#opts.free' messages were sent, a caller may instead send the
%% message and add one to the number itself, with the same result.
-spec pass(weir_flow_dest:to(), Message :: term(), state(), #opts{}) ->
    {ok | {error, weir_flow:reason()}, state()}.
pass(Self, Message, State, _Opts) when Self =:= self() ->
    %% A process cannot wait for itself.
    _ = Self ! Message,
    {ok, State};
pass(To, Message, {Sent, Past}, #opts{window = Window, timeout = Timeout, limit = Limit}) ->
    Until = weir_flow_time:until(Timeout),
    case admit(To, Sent, Past, Window, Until) of
        {ok, Admitted} when Limit =:= none -> deliver(To, Message, Admitted, Window, Timeout);
        {ok, Admitted} -> limited(Limit, To, Message, Admitted, Window, Timeout, Until);
        {Reason, Refused} -> {{error, Reason}, Refused}
    end.

deliver(To, Message, {Sent, Past}, Window, Timeout) ->
    _ = To ! Message,
    case Sent + 1 >= Window - 1 of
        %% A sender that never waits asks now, so that the answer may be there at its next message.
        true when Timeout =:= 0 -> {ok, {?FULL, watched(To, Past)}};
        _ -> {ok, {Sent + 1, Past}}
    end.

%% ---------------------------------------------------------------- the window

admit(_To, Sent, Past, Window, _Until) when Sent < Window - 1 -> {ok, {Sent, Past}};
admit(To, _Sent, #past{phase = new} = Past, _Window, _Until) -> first(To, Past);
admit(To, _Sent, #past{waits = Waits} = Past, _Window, Until) -> open(To, Past#past{waits = Waits + 1}, Until).

%% Only local processes are checked: a check on another node would cost a round trip.
first(To, Past) ->
    case weir_flow_dest:is_local(To) andalso weir_flow_dest:is_gone(To) of
        true -> gone(Past);
        false -> opened(Past)
    end.

open(To, #past{phase = open} = Past, Until) ->
    case weir_flow_time:left(Until) of
        0 -> watch(To, Past);
        Left ->
            {Outcome, Again} = weir_flow_ack:ask(To, Left),
            asked(Outcome, To, again(Again, Past), Until)
    end;
open(To, #past{phase = {watch, Watch}} = Past, Until) ->
    case weir_flow_ack:await_watch(Watch, weir_flow_time:left(Until)) of
        {acked, Again} -> acked(To, again(Again, Past), Until);
        {noproc, Again} -> gone(again(Again, Past));
        {ended, Again} -> ended(To, again(Again, Past), Until);
        {timeout, _} -> timed_out(Past)
    end;
open(To, #past{phase = suspended} = Past, Until) ->
    case weir_flow_ack:await_resume(To, Until) of
        %% The receiver has still to handle the messages that it acknowledged while it was suspended.
        resumed -> open(To, Past#past{phase = open}, Until);
        noproc -> gone(Past);
        timeout -> timed_out(Past)
    end.

again(0, Past) -> Past;
again(More, #past{asked_again = Again} = Past) -> Past#past{asked_again = Again + More}.

asked(acked, To, Past, Until) -> acked(To, Past, Until);
asked(noproc, _To, Past, _Until) -> gone(Past);
asked(timeout, To, Past, _Until) -> watch(To, Past).

%% A watch whose result is unknown may have ended because the receiver died.
ended(To, Past, Until) ->
    case weir_flow_dest:is_local(To) andalso weir_flow_dest:is_gone(To) of
        true -> gone(Past);
        false -> acked(To, Past, Until)
    end.

acked(_To, #past{unseen = Unseen} = Past, _Until) when Unseen > 0 ->
    opened(Past#past{unseen = Unseen - 1});
acked(To, Past, Until) ->
    case weir_flow_dest:is_local(To) andalso weir_flow_ack:status(To) of
        false -> opened(Past);
        running -> opened(Past#past{unseen = ?LOOK_EVERY - 1});
        suspended -> open(To, Past#past{phase = suspended}, Until);
        noproc -> gone(Past)
    end.

opened(Past) -> {ok, {0, Past#past{phase = open}}}.

gone(Past) -> {noproc, {?FULL, Past#past{phase = new, unseen = 0}}}.

watch(To, Past) -> timed_out(watched(To, Past)).

%% If the node has no room for a watch, the window is full and `open', so the next call asks.
watched(To, Past) ->
    case weir_flow_ack:start_watch(To) of
        {ok, Watch} -> Past#past{phase = {watch, Watch}};
        no_room -> Past#past{phase = open}
    end.

timed_out(#past{timeouts = Timeouts} = Past) -> {timeout, {?FULL, Past#past{timeouts = Timeouts + 1}}}.

%% ---------------------------------------------------------------- the limit

limited(Limit, To, Message, State, Window, Timeout, Until) ->
    case weir_flow_limit:take(To) of
        {ok, Words} ->
            deliver(To, weir_flow_limit:envelope(Words, Message), State, Window, Timeout);
        {full, Words} when Limit =:= busy ->
            ok = weir_flow_limit:count_busy(Words),
            {{error, busy}, State};
        {full, Words} ->
            ok = weir_flow_limit:count_wait(Words),
            wait(To, Message, State, Window, Timeout, erlang:monotonic_time(), Until);
        Reason ->
            {{error, Reason}, State}
    end.

%% Waits in the queue of the receiver. If other senders take the room first after the wake-up, waits again.
wait(To, Message, {Sent, Past} = State, Window, Timeout, Since, Until) ->
    case weir_flow_time:left(Until) =/= 0 andalso weir_flow_queue:await(To, Since, Until) of
        {ok, Wake} ->
            case weir_flow_limit:take_woken(To) of
                {ok, Words} ->
                    Delivered = deliver(To, weir_flow_limit:envelope(Words, Message), State, Window, Timeout),
                    ok = weir_flow_queue:request(To, Wake),
                    Delivered;
                {full, _Words} ->
                    ok = weir_flow_queue:request(To, Wake),
                    wait(To, Message, State, Window, Timeout, Since, Until);
                Reason ->
                    {{error, Reason}, State}
            end;
        noproc ->
            {noproc, Gone} = gone(Past),
            {{error, noproc}, Gone};
        Reason when Reason =:= no_limit; Reason =:= ?NOT_STARTED ->
            {{error, Reason}, State};
        _TimeoutOrNoTimeLeft ->
            {_, {_, TimedOut}} = timed_out(Past),
            {{error, timeout}, {Sent, TimedOut}}
    end.
