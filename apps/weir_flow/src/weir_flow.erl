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
%% A sender has at most Window unacknowledged messages in one receiver's mailbox, whatever that receiver is: a
%% gen_server, gen_statem, gen_event or supervisor, a weir_server, or anything else that handles system messages. It
%% needs no change and does not know. Window - 1 messages go out without waiting; the next one first asks the receiver
%% for an acknowledgement (the request is a message too, so that makes Window) and waits until everything before it was
%% taken out of the mailbox. The smallest window, 2, is a round trip for every message.
%%
%% The window belongs to the process that sends and the process that receives, by whatever name it was called; `cast'
%% and `send' share it. What it remembers is in the sender's process dictionary ({@link cast/3}), or in a handle of the
%% caller's ({@link new/2}). The application need not be running; only limits need it ({@link limit/1}).
%%
%% == What is bounded ==
%%
%% <ul>
%% <li>One sender's messages in the mailbox: Window, requests included; Window + 1 after a time-out. All senders
%%   together: the sum. Messages that were sent otherwise are not counted. Processes that are started for one message
%%   each have a window each: only a limit bounds those.</li>
%% <li>The mailbox: what a gen_statem postpones, or a server keeps for later in its state, has been taken out of
%%   it.</li>
%% <li>A receiver that is suspended (sys:suspend/1) acknowledges what it does not handle. On the same node that is
%%   noticed at the first and every 16th acknowledgement, and the sender waits until it is resumed: at most 16 windows
%%   of each sender get into the mailbox before. On another node it is not noticed, and there is no bound while it is
%%   suspended.</li>
%% </ul>
%%
%% == What an answer means ==
%%
%% <ul>
%% <li>`ok': the message was sent. As with any message, a receiver that dies may not have read it.</li>
%% <li>`{error, noproc}': nobody has the name, or the process is dead, or its node cannot be reached; the message was
%%   not sent. For a name of this node it is noticed at once. A dead pid of this node is noticed when it is first sent
%%   to, at the next acknowledgement at the latest, and from then on every time. A pid or name of another node is
%%   noticed at the next acknowledgement. The window then starts afresh.</li>
%% <li>`{error, timeout}': there was no room in the window, or under the limit, for that long; the message was not
%%   sent.</li>
%% <li>`{error, busy}', `{error, no_limit}', `{error, {not_started, weir_flow}}': see {@link limit/1}; the message was
%%   not sent.</li>
%% </ul>
%%
%% No answer to a request ever arrives after the call is over, and messages in the sender's mailbox neither are
%% touched nor slow it down. The sender waits as in a call: two processes that send to each other can wait for each
%% other, if both mailboxes are full and neither has a time limit. What a process sends to itself goes out at once and
%% is not bounded.
%%
%% A receiver that empties its mailbox in a callback (`receive _ -> flush() after 0') throws requests away. That is
%% noticed, after 50 ms on the same node, if it waits for a message then, and after 11 seconds on another, and it is
%% asked again: `asked_again' counts that.
%%
%% A plain process that does not answer system messages never acknowledges: do not use this module for it.
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
%% A map, or the same as a keyword list.

-type opts_map() :: #{
    %% The most unacknowledged messages in the mailbox, requests included. Default: 16.
    window => window(),
    %% The longest wait, in milliseconds. Default: infinity. 0: never wait; the acknowledgement is then asked for as
    %% soon as the window is full. What the runtime makes a sender wait for on its own, a busy connection to another
    %% node, does not count.
    timeout => timeout(),
    %% Whether the message is one of those that the receiver has a limit for, and what to do at the limit. Default:
    %% none.
    limit => none | wait | busy
}.

-type reason() :: noproc | timeout | busy | no_limit | {not_started, weir_flow}.

-type window_info() :: #{
    %% Messages sent since the last acknowledgement. `full': none may be sent before the next.
    unacknowledged := non_neg_integer() | full,
    %% `waiting': a time-out has left a request in the mailbox. `suspended': that is how the receiver was last seen.
    state := new | open | waiting | suspended,
    %% How often a message found the window full, and how often the time then was over.
    waits := non_neg_integer(),
    timeouts := non_neg_integer(),
    %% How often a request for an acknowledgement was lost, because a callback of the receiver took it out of the
    %% mailbox, and was sent again.
    asked_again := non_neg_integer()
}.

-type limit_info() :: #{
    limit := weir_flow_limit:max(),
    %% Messages sent and not handled yet.
    in_flight := non_neg_integer(),
    %% Messages that were refused, and that had to wait.
    busy := non_neg_integer(),
    waits := non_neg_integer(),
    %% Senders that wait now.
    queued := non_neg_integer(),
    %% Credits whose senders were killed before they had sent the message, and that were given back.
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
%% A window as a value. Each call gives the next one; who uses an old one again loses count.

-define(CAST(Message), {'$gen_cast', (Message)}).

%% @doc {@link cast/3} with a window of 16.
-spec cast(dest(), Message :: term()) -> ok | {error, reason()}.
cast(Dest, Message) -> send(Dest, ?CAST(Message), ?DEFAULT_WINDOW).

%% @doc Like gen_server:cast/2, within a window.
%%
%% Cost while there is room: under 100 ns over the plain cast (a process dictionary entry is read and written), another
%% 50 for a map of options; a round trip to the receiver for each Window - 1 messages. `badarg': not a
%% destination, not a window, or not an option; the shell says which.
-spec cast(dest(), Message :: term(), window() | opts()) -> ok | {error, reason()}.
cast(Dest, Message, How) -> send(Dest, ?CAST(Message), How).

%% @doc {@link send/3} with a window of 16.
-spec send(dest(), Message :: term()) -> ok | {error, reason()}.
send(Dest, Message) -> send(Dest, Message, ?DEFAULT_WINDOW).

%% @doc Like `Dest ! Message', within a window. For messages to `handle_info', or of a protocol such as gen_event's:
%% `weir_flow:send(Manager, {notify, Event})'.
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

%% @doc A window in a handle instead of the process dictionary. It knows nothing of a window that the same process
%% has in its dictionary. Nothing needs to be closed.
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

%% Another process has the name. The counters go on.
afresh(To, #flow{past = Past} = Flow) ->
    Flow#flow{to = To, sent = ?FULL, past = Past#past{phase = new, unseen = 0}}.

%% ---------------------------------------------------------------- limits

%% @doc {@link limit/2} for the calling process: to be called by a weir_server in its `init/1'.
-spec limit(weir_flow_limit:max()) -> ok | {error, {not_started, weir_flow}}.
limit(Max) -> limit(self(), Max).

%% @doc Limits how many messages all senders together may have in a process: sent with the option `limit' and not
%% handled yet, whether they are in its mailbox or in its private queue.
%%
%% The process is a weir_server of this node, or knows the envelope. A message under the limit arrives as
%% `{'$weir_credit', Words, Message}'. A process that has handled Count such messages calls
%% `atomics:sub(Words, 1, Count)'.
%%
%% At the limit, a sender with `limit => busy' gets `{error, busy}'. A sender with `limit => wait' sleeps until there is
%% room, and senders are served in the order in which they came, to within the limit. A sender that waits costs the
%% receiver nothing, and a waiter that is killed or suspended does not delay the others. A receiver that returns credits
%% late, such as at the end of a batch, is sampled every 1 to 32 ms.
%%
%% A sender on another node gets `{error, no_limit}', and so does a sender whose receiver has no limit (yet).
%%
%% A process that is restarted has no limit until it asks for one, and then starts at zero. To ask again changes the
%% limit. `{error, {not_started, weir_flow}}': the application weir_flow is not running; nothing is limited.
%%
%% Cost for a sender: about 250 ns more. A credit whose sender was killed before it sent is given back within seconds
%% of quiet (docs/internals/flow.md).
-spec limit(pid(), weir_flow_limit:max()) -> ok | {error, {not_started, weir_flow}}.
limit(Pid, Max) when is_pid(Pid), node(Pid) =:= node(), is_integer(Max), Max >= 1, Max =< 4000000 ->
    weir_flow_limits:limit(Pid, Max);
limit(Pid, Max) when is_pid(Pid), node(Pid) =:= node() ->
    ?BADARG([Pid, Max], #{2 => "not an integer from 1 to 4000000"});
limit(Pid, Max) ->
    ?BADARG([Pid, Max], #{1 => "not a process of this node"}).

%% ---------------------------------------------------------------- seeing

%% @doc All limits of this node, with their counters.
-spec info() -> {ok, #{pid() => limit_info()}} | {error, {not_started, weir_flow}}.
info() ->
    case weir_flow_limit:row(self()) of
        ?NOT_STARTED = NotStarted -> {error, NotStarted};
        _ -> {ok, maps:from_list([{Pid, weir_flow_limit:info(Row)} || {Pid, _, _, _} = Row <- weir_flow_limit:rows()])}
    end.

%% @doc The limit of a process, or the window in a handle.
-spec info(pid()) -> {ok, limit_info()} | {error, no_limit | {not_started, weir_flow}};
          (flow()) -> {ok, window_info()}.
info(Pid) when is_pid(Pid) ->
    case weir_flow_limit:row(Pid) of
        {_, _, _, _} = Row -> {ok, weir_flow_limit:info(Row)};
        Reason -> {error, Reason}
    end;
info(#flow{sent = Sent, past = Past}) ->
    {ok, window_info(Sent, Past)}.

%% @doc The windows in the dictionary of the calling process, by receiver. Reads the whole dictionary.
-spec windows() -> #{pid() | {Name :: atom(), node()} => window_info()}.
windows() -> maps:from_list([{To, window_info(Sent, Past)} || {To, {Sent, Past}} <- weir_flow_book:windows()]).

window_info(Sent, #past{phase = Phase, waits = Waits, timeouts = Timeouts, asked_again = Again}) ->
    Info = #{unacknowledged => unacknowledged(Sent), state => state(Phase), waits => Waits, timeouts => Timeouts},
    Info#{asked_again => Again}.

unacknowledged(?FULL) -> full;
unacknowledged(Sent) -> Sent.

state({watch, _Watch}) -> waiting;
state(Phase) -> Phase.

%% @doc Drops the window on a receiver from the dictionary of the calling process. The next message finds a fresh one,
%% so forgetting a receiver that has not acknowledged all undoes the bound.
-spec forget(dest()) -> ok.
forget(Dest) ->
    case weir_flow_dest:resolve(Dest) of
        none -> ok;
        To -> weir_flow_book:forget(To)
    end.
