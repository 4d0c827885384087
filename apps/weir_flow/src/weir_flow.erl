%% @doc Credit windows: casts and messages that wait for a receiver that does not keep up, so that its mailbox stays
%% short.
%%
%% ```
%% ok = weir_flow:cast(Server, Request).               % instead of gen_server:cast(Server, Request)
%% ok = weir_flow:send(Pid, Message, 64).              % instead of Pid ! Message, with a window of 64
%% case weir_flow:cast(Server, Request, #{timeout => 100}) of
%%     ok -> ok;
%%     {error, timeout} -> shed_load();                % not sent
%%     {error, noproc} -> not_there()                  % not sent
%% end.
%% '''
%%
%% A sender has at most Window unacknowledged messages in the mailbox of one receiver. The receiver may be a
%% gen_server, gen_statem, gen_event, supervisor or weir_server, or any process that handles system messages. The
%% receiver needs no change.
%%
%% After an acknowledgement, the sender sends Window - 1 messages without waiting. The next call first asks the
%% receiver for an acknowledgement, and waits until the receiver has taken all earlier messages out of its mailbox. The
%% request is a message too, so the mailbox then holds Window messages. With the smallest window, 2, each message costs
%% a round trip.
%%
%% A window belongs to one sender and one receiver. All names of the receiver share the window, and so do `cast' and
%% `send'. The window is kept in the sender's process dictionary ({@link cast/3}), or in a handle that the caller keeps
%% ({@link new/2}). Windows work without the application weir_flow; only limits need the application ({@link limit/1}).
%%
%% == Bounds ==
%%
%% <ul>
%% <li>The mailbox holds at most Window messages of one sender, requests included, and Window + 1 after a time-out. The
%%   bound for all senders together is the sum. Messages sent without weir_flow are not counted. If each process sends
%%   only one message, each has a window of its own, so only a limit bounds the mailbox.</li>
%% <li>Messages that a gen_statem postpones, or that a server keeps in its state, are no longer in the mailbox and are
%%   not bounded.</li>
%% <li>A suspended receiver (sys:suspend/1) acknowledges messages that it has not handled. If the receiver is on the
%%   same node, the sender checks for that at the first acknowledgement and at every 16th. The sender then waits until
%%   the receiver is resumed. Up to 16 windows of each sender may be in the mailbox by then. A sender cannot see that a
%%   receiver on another node is suspended, so nothing bounds that mailbox.</li>
%% </ul>
%%
%% == Results ==
%%
%% <ul>
%% <li>`ok': the message was sent. As with any message, the receiver may die before it reads the message.</li>
%% <li>`{error, noproc}': no process has the name, the process is dead, or its node cannot be reached. The message was
%%   not sent, and the window starts afresh. For a name on this node, each call checks the name. The death of a pid of
%%   this node is found when the sender has no window for the pid, or at the next acknowledgement. The death of a
%%   process of another node is found at the next acknowledgement.</li>
%% <li>`{error, timeout}': the window or the limit had no room within the time-out. The message was not sent.</li>
%% <li>`{error, busy}', `{error, no_limit}', `{error, {not_started, weir_flow}}': see {@link limit/1}. The message was
%%   not sent.</li>
%% </ul>
%%
%% No answer to a request arrives after the call has returned. Messages in the sender's mailbox stay untouched, and
%% do not slow the sender down. A sender waits as in a call: if two processes send to each other, both mailboxes are
%% full and neither call has a time-out, both wait without end. A message that a process sends to itself goes out at
%% once and is not bounded.
%%
%% A receiver that empties its mailbox in a callback (`receive _ -> flush() after 0') throws requests away. The sender
%% then repeats the request, and counts that in `asked_again'. On the same node, that takes 50 ms, if the receiver then
%% waits for a message. For a receiver on another node, that takes 11 seconds.
%%
%% A plain process that does not answer system messages never acknowledges. Do not use this module for such a process.
-module(weir_flow).

-export([cast/2, cast/3, send/2, send/3]).
-export([new/1, new/2, cast_with/2, send_with/2]).
-export([limit/1, limit/2]).
-export([info/0, info/1, windows/0, forget/1]).

-export_type([dest/0, window/0, opts/0, reason/0, flow/0, window_info/0, limit_info/0]).

-include("weir_flow.hrl").

-type dest() ::
    pid()
    | (LocalName :: atom())
    | {Name :: atom(), node()}
    | {global, term()}
    | {via, module(), term()}.

-type window() :: 2..16#7ffffff.

-type opts() :: opts_map() | [{window, window()} | {timeout, timeout()} | {limit, none | wait | busy}].
%% Options as a map or a keyword list.

-type opts_map() :: #{
    %% The most unacknowledged messages in the mailbox, requests included. Default: 16.
    window => window(),
    %% The longest wait, in milliseconds. Default: infinity. With 0, the sender never waits and asks for the
    %% acknowledgement as soon as the window is full. The time-out does not cover a wait of the runtime itself, such as
    %% for a busy connection to another node.
    timeout => timeout(),
    %% Whether the message counts against the receiver's limit, and whether the sender waits or is refused at the limit.
    %% Default: none.
    limit => none | wait | busy
}.

-type reason() :: noproc | timeout | busy | no_limit | {not_started, weir_flow}.

-type window_info() :: #{
    %% Messages sent since the last acknowledgement. `full': the next message waits for an acknowledgement.
    unacknowledged := non_neg_integer() | full,
    %% `waiting': a time-out has left a request in the mailbox. `suspended': the receiver was suspended at the last
    %% check.
    state := new | open | waiting | suspended,
    %% Number of messages that found the window full, and number of time-outs.
    waits := non_neg_integer(),
    timeouts := non_neg_integer(),
    %% Number of requests that a callback of the receiver threw away and that were sent again.
    asked_again := non_neg_integer()
}.

-type limit_info() :: #{
    limit := weir_flow_limit:max(),
    %% Messages sent and not handled yet.
    in_flight := non_neg_integer(),
    %% Numbers of messages that were refused, and that had to wait.
    busy := non_neg_integer(),
    waits := non_neg_integer(),
    %% Senders that wait now for the limit.
    queued := non_neg_integer(),
    %% Credits that weir_flow gave back because their senders were killed before they sent the message.
    mended := non_neg_integer()
}.

-record(flow, {
    sent :: non_neg_integer(),
    free :: non_neg_integer(),
    to :: weir_flow_dest:to() | none,
    past :: #past{},
    dest :: dest(),
    opts :: #opts{}
}).

-opaque flow() :: #flow{}.
%% A window as a value. Each call returns the next value. A value that is used twice counts wrong.

-define(CAST(Message), {'$gen_cast', (Message)}).

%% @doc {@link cast/3} with a window of 16.
-spec cast(dest(), Message :: term()) -> ok | {error, reason()}.
cast(Dest, Message) -> send(Dest, ?CAST(Message), ?DEFAULT_WINDOW).

%% @doc Like gen_server:cast/2, within a window.
%%
%% Cost while the window has room: about 20 ns above the plain cast. A map of options costs another 50 ns. Each
%% Window - 1 messages cost a round trip to the receiver.
%%
%% If the destination, the window or an option is not valid, fails with `badarg'; the shell names the fault.
-spec cast(dest(), Message :: term(), window() | opts()) -> ok | {error, reason()}.
cast(Dest, Message, How) -> send(Dest, ?CAST(Message), How).

%% @doc {@link send/3} with a window of 16.
-spec send(dest(), Message :: term()) -> ok | {error, reason()}.
send(Dest, Message) -> send(Dest, Message, ?DEFAULT_WINDOW).

%% @doc Like `Dest ! Message', within a window. Use `send' for messages to `handle_info', and for protocols such as
%% that of gen_event: `weir_flow:send(Manager, {notify, Event})'.
-spec send(dest(), Message :: term(), window() | opts()) -> ok | {error, reason()}.
send(Pid, Message, Window) when is_pid(Pid), ?is_window(Window) ->
    weir_flow_book:send(Pid, Message, Window - 1, Window);
send(Dest, Message, Window) when ?is_window(Window) ->
    case weir_flow_dest:resolve(Dest) of
        none -> {error, noproc};
        To -> weir_flow_book:send(To, Message, Window - 1, Window)
    end;
send(Dest, Message, Options) ->
    #opts{free = Free} = Opts = weir_flow_opts:check(Options),
    case weir_flow_dest:resolve(Dest) of
        none -> {error, noproc};
        To -> weir_flow_book:send(To, Message, Free, Opts)
    end.

%% ---------------------------------------------------------------- handles

%% @doc {@link new/2} with the defaults.
-spec new(dest()) -> flow().
new(Dest) -> new(Dest, #{}).

%% @doc Returns a window in a handle instead of the process dictionary. The handle and a window that the same process
%% has in its dictionary do not count each other's messages. A handle need not be closed.
-spec new(dest(), window() | opts()) -> flow().
new(Dest, Options) ->
    #opts{free = Free} = Opts = weir_flow_opts:check(Options),
    _ = weir_flow_dest:resolve(Dest),
    {Sent, Past} = ?NEW_WINDOW,
    #flow{sent = Sent, free = Free, to = none, past = Past, dest = Dest, opts = Opts}.

%% @doc Like {@link cast/3}, with the window in a handle.
-spec cast_with(flow(), Message :: term()) -> {ok, flow()} | {error, reason(), flow()}.
cast_with(Flow, Message) -> send_with(Flow, ?CAST(Message)).

%% @doc Like {@link send/3}, with the window in a handle.
-spec send_with(flow(), Message :: term()) -> {ok, flow()} | {error, reason(), flow()}.
send_with(#flow{dest = Pid, to = Pid, sent = Sent, free = Free} = Flow, Message) when is_pid(Pid), Sent < Free ->
    _ = Pid ! Message,
    {ok, Flow#flow{sent = Sent + 1}};
send_with(#flow{dest = Dest, to = Last} = Flow, Message) ->
    case weir_flow_dest:resolve(Dest) of
        none -> {error, noproc, afresh(none, Flow)};
        Last -> pass(Flow, Message);
        To -> pass(afresh(To, Flow), Message)
    end.

pass(#flow{to = To, sent = Sent, past = Past, opts = Opts} = Flow, Message) ->
    case weir_flow_window:pass(To, Message, {Sent, Past}, Opts) of
        {ok, {Sent1, Past1}} -> {ok, Flow#flow{sent = Sent1, past = Past1}};
        {{error, Reason}, {Sent1, Past1}} -> {error, Reason, Flow#flow{sent = Sent1, past = Past1}}
    end.

%% Returns a fresh window for the process that has the name now, or for none. Keeps the counters.
afresh(To, #flow{past = Past} = Flow) ->
    Flow#flow{to = To, sent = ?FULL, past = Past#past{phase = new, unseen = 0}}.

%% ---------------------------------------------------------------- limits

%% @doc {@link limit/2} for the calling process. A weir_server calls this function in its `init/1'.
-spec limit(weir_flow_limit:max()) -> ok | {error, {not_started, weir_flow}}.
limit(Max) -> limit(self(), Max).

%% @doc Limits the number of messages that all senders together have in flight to one process. A message is in flight
%% if it was sent with the option `limit' and is not handled yet, in the mailbox or in a queue of the receiver.
%%
%% The process is on this node, and is a weir_server or handles the envelope itself: a message under the limit arrives
%% as `{'$weir_credit', Words, Message}'. When the process has handled Count such messages, it calls
%% `atomics:sub(Words, 1, Count)', before it waits for its next message. A process that keeps a message for later and
%% answers system messages meanwhile seems to have lost the credit. After some four seconds without traffic, weir_flow
%% takes the credit off. Senders may then exceed the limit by the messages that the process keeps.
%%
%% At the limit, a sender with `limit => busy' gets `{error, busy}'. A sender with `limit => wait' sleeps until there is
%% room. Senders are woken in the order in which they came; senders that are woken together may overtake each other.
%% While senders wait, newcomers take no room: `limit => wait' queues behind them, and `limit => busy' is refused. A
%% sender that waits costs the receiver nothing, and a waiter that is killed or suspended does not delay the others. A
%% queue process wakes the senders. If the receiver gives credits back late, such as at the end of a batch, the queue
%% reads the room every 1 to 32 ms.
%%
%% A sender on another node gets `{error, no_limit}', and so does a sender whose receiver has no limit yet.
%%
%% A restarted process has no limit until it calls this function, and then starts with no message in flight. A second
%% call changes the limit. If the application weir_flow is not running, returns `{error, {not_started, weir_flow}}', and
%% nothing is limited.
%%
%% Cost for a sender: about 250 ns more. If a sender is killed before it sends, weir_flow gives its credit back, once no
%% message has been sent under the limit for some four seconds (docs/internals/flow.md).
-spec limit(pid(), weir_flow_limit:max()) -> ok | {error, {not_started, weir_flow}}.
limit(Pid, Max) when is_pid(Pid), node(Pid) =:= node(), is_integer(Max), Max >= 1, Max =< 4000000 ->
    weir_flow_limits:limit(Pid, Max);
limit(Pid, Max) when is_pid(Pid), node(Pid) =:= node() ->
    ?BADARG([Pid, Max], #{2 => "not an integer from 1 to 4000000"});
limit(Pid, Max) ->
    ?BADARG([Pid, Max], #{1 => "not a process of this node"}).

%% ---------------------------------------------------------------- seeing

%% @doc Returns all limits of this node, with their counters.
-spec info() -> {ok, #{pid() => limit_info()}} | {error, {not_started, weir_flow}}.
info() ->
    case weir_flow_limit:row(self()) of
        ?NOT_STARTED = NotStarted -> {error, NotStarted};
        _ -> {ok, maps:from_list([{Pid, weir_flow_limit:info(Row)} || {Pid, _, _, _} = Row <- weir_flow_limit:rows()])}
    end.

%% @doc Returns the limit of a process with its counters, or the window in a handle.
-spec info(pid()) -> {ok, limit_info()} | {error, no_limit | {not_started, weir_flow}};
          (flow()) -> {ok, window_info()}.
info(Pid) when is_pid(Pid) ->
    case weir_flow_limit:row(Pid) of
        {_, _, _, _} = Row -> {ok, weir_flow_limit:info(Row)};
        Reason -> {error, Reason}
    end;
info(#flow{sent = Sent, past = Past}) ->
    {ok, window_info(Sent, Past)}.

%% @doc Returns the windows in the dictionary of the calling process, by receiver.
-spec windows() -> #{pid() | {Name :: atom(), node()} => window_info()}.
windows() -> maps:from_list([{To, window_info(Sent, Past)} || {To, {Sent, Past}} <- weir_flow_book:windows()]).

window_info(Sent, #past{phase = Phase, waits = Waits, timeouts = Timeouts, asked_again = Again}) ->
    Info = #{unacknowledged => unacknowledged(Sent), state => state(Phase), waits => Waits, timeouts => Timeouts},
    Info#{asked_again => Again}.

unacknowledged(?FULL) -> full;
unacknowledged(Sent) -> Sent.

state({watch, _Watch}) -> waiting;
state(Phase) -> Phase.

%% @doc Deletes the window of a receiver from the dictionary of the calling process. The next message starts a fresh
%% window. If the receiver has not acknowledged all messages, up to one Window more gets into its mailbox.
-spec forget(dest()) -> ok.
forget(Dest) ->
    case weir_flow_dest:resolve(Dest) of
        none -> ok;
        To -> weir_flow_book:forget(To)
    end.
