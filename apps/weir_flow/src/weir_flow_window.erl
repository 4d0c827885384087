%% @private One sender's window on one receiver.
%%
%% ```
%%                                    acked, and no look is due or it shows a running receiver
%%                        +-------------------------------------------------+---------------+
%%          alive         v           Window - 1 were sent: ask             |               |
%%    new ------------> open ---------------------------------------> (asking) <--+         |
%%     ^                                             time is over |    |          |         |
%%     |                                                          v    | seen     | resumed |
%%     |                                                 {watch, ...}  |          |         |
%%     |                                                          |    v          |         |
%%     |                                                          | suspended ----+         |
%%     | noproc, from anywhere                                    | the watch has ended     |
%%     +-----------------------                                   +-------------------------+
%% '''
%%
%% (asking) is only while the sender waits; the others are what is kept between its calls. The number of messages sent
%% since the last acknowledgement stands beside the phase, and is ?FULL in every phase but `open', so that one
%% comparison tells whether a message may go out at once.
%%
%% A receiver's mailbox so holds at most Window - 1 messages of the sender and one request; after a time-out one
%% request more, which the watch waits for. However often the sender tries again, it adds none: it waits for the same
%% watch, or, if the receiver was seen suspended, looks at it. Nothing is sent before that is over.
%%
%% A request that the receiver has thrown away is sent again (weir_flow_ack).
%%
%% The sender may be killed anywhere. The window is gone with it; its messages and requests are in the mailbox until
%% the receiver takes them, and its watch ends.
-module(weir_flow_window).

-export([pass/4]).

-export_type([state/0, phase/0]).

-include("weir_flow.hrl").

-type state() :: {Sent :: non_neg_integer(), #past{}}.

-type phase() :: new | open | suspended | {watch, weir_flow_ack:watch()}.

%% An acknowledgement in so many is checked by a look at the receiver, and the first.
-define(LOOK_EVERY, 16).

%% @doc Sends a message when the window, and if asked for the limit, allow it. The complete path; who finds fewer than
%% `#opts.free' sent may send at once and add one, which comes to the same.
-spec pass(weir_flow_dest:to(), Message :: term(), state(), #opts{}) ->
    {ok | {error, weir_flow:reason()}, state()}.
pass(Self, Message, State, _Opts) when Self =:= self() ->
    %% Nobody can wait for itself.
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
        %% A sender that never waits would find at its next message that nobody has asked.
        true when Timeout =:= 0 -> {ok, {?FULL, watched(To, Past)}};
        _ -> {ok, {Sent + 1, Past}}
    end.

%% ---------------------------------------------------------------- the window

admit(_To, Sent, Past, Window, _Until) when Sent < Window - 1 -> {ok, {Sent, Past}};
admit(To, _Sent, #past{phase = new} = Past, _Window, _Until) -> first(To, Past);
admit(To, _Sent, #past{waits = Waits} = Past, _Window, Until) -> open(To, Past#past{waits = Waits + 1}, Until).

%% To know whether a process of another node is alive would take a round trip.
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
        %% What it had acknowledged while it was suspended is still to be handled.
        resumed -> open(To, Past#past{phase = open}, Until);
        noproc -> gone(Past);
        timeout -> timed_out(Past)
    end.

again(0, Past) -> Past;
again(More, #past{asked_again = Again} = Past) -> Past#past{asked_again = Again + More}.

asked(acked, To, Past, Until) -> acked(To, Past, Until);
asked(noproc, _To, Past, _Until) -> gone(Past);
asked(timeout, To, Past, _Until) -> watch(To, Past).

%% The watch may have ended because the receiver did.
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

%% Without a watch, the next message finds a full window that nothing was asked for, and asks.
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

%% Waits in the queue of the limit, again if other senders were faster after the wake-up.
wait(To, Message, {Sent, Past} = State, Window, Timeout, Since, Until) ->
    case weir_flow_time:left(Until) =/= 0 andalso weir_flow_queue:await(To, Since, Until) of
        {ok, Wake} ->
            case weir_flow_limit:take_woken(To) of
                {ok, Words} ->
                    Delivered = deliver(To, weir_flow_limit:envelope(Words, Message), State, Window, Timeout),
                    ok = weir_flow_queue:request(To, Wake),
                    Delivered;
                {full, _Words} ->
                    wait(To, Message, State, Window, Timeout, Since, Until);
                Reason ->
                    {{error, Reason}, State}
            end;
        noproc ->
            {noproc, Gone} = gone(Past),
            {{error, noproc}, Gone};
        {not_started, weir_flow} = Reason ->
            {{error, Reason}, State};
        _TimeoutOrNoTimeLeft ->
            {_, {_, TimedOut}} = timed_out(Past),
            {{error, timeout}, {Sent, TimedOut}}
    end.
