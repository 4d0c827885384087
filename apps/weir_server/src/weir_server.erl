%% @doc A `gen_server' that an overload cannot bury. A weir_server drains its mailbox, handles messages in batches or by
%% priority, and bounds them.
%%
%% A drop-in for `gen_server' of OTP 25 to 29: exact on OTP 28 and 29, except for priority messages. On OTP 25 to 27
%% there is one difference, the first in the list below. The module exports every function of `gen_server', except the
%% internal `wake_hib/6', with the same arguments, results, exit reasons, log reports and answers to `sys'. A module
%% moves by changing one word. `gen_server:call/2,3', `sys' and supervisors talk to a weir_server as to any server.
%%
%% More than `gen_server':
%% <ul>
%% <li>If callbacks take longer than a few microseconds, the server moves calls and casts from its mailbox into a
%%     private queue between callbacks. A `receive' in a callback then has few messages to search. If callbacks are
%%     fast, the server takes messages one by one, as `gen_server' does. The option `drain' bounds the queue: {@link
%%     option()}.</li>
%% <li>A module that exports `handle_batch/2' gets all messages that have arrived at once.</li>
%% <li>`prioritise_call/4', `prioritise_cast/3' and `prioritise_info/3' order the messages that wait, or drop them. The
%%     options `max_queue' and `overload' bound them.</li>
%% <li>`handle_pre_hibernate/1', `handle_post_hibernate/1', a time before hibernation that adapts itself, and
%%     `{become, NewMod, NewState}', which makes another module the callback module.</li>
%% <li>{@link with_state/2}, {@link mcall/1}, {@link info/1}, {@link waiting/0}, {@link reply/1}.</li>
%% </ul> The server handles messages in the order of their arrival, also drained ones. Without priorities, no message
%% overtakes another, and neither `sys', a stop nor the parent's exit do. A message that is neither a call nor a cast
%% stays in the mailbox until the server handles it. Therefore a callback finds the reply, the `DOWN' or the data that
%% an earlier callback has asked for.
%%
%% Differences from `gen_server':
%% <ul>
%% <li>On OTP 25 to 27, the first message behind the drained ones may be drained although it is neither a call nor a
%%     cast. A `receive' in an earlier callback does not find that message, and a flush does not remove it.</li>
%% <li>On OTP 28 and 29, a priority message does not overtake messages that are drained already. With `{drain, 1}' it
%%     overtakes all messages, as in `gen_server'.</li>
%% <li>A server with `handle_batch/2' or a prioritise callback drains all messages, so a `receive' in a callback does
%%     not find a drained message. Do not wait there for a message that an earlier callback has asked for. After
%%     `demonitor(Ref, [flush])' or a cancelled timer, let the callbacks ignore stale messages. A server with
%%     `max_queue' drains all messages, too, while more than `max_queue' messages wait, of any kind.</li>
%% <li>With priorities, system messages go ahead of all messages. A stop, the parent's exit and weir_flow's requests go
%%     behind all messages that wait. Messages that were sent after a stop may be handled before it, if they have a
%%     higher priority, or in the same batch.</li>
%% <li>Options may be a map. A wrong or unknown option gives `{error, {bad_option, Key, Value}}', while `gen_server'
%%     ignores unknown options. A name, a module or an option list of the wrong type always gives `badarg'.</li>
%% <li>`handle_call/3', `handle_cast/2' and `handle_info/2' are optional, since a batch server needs none of them.</li>
%% <li>If messages are drained, reports and statuses have their number, and the result of `format_message_queue/2' if
%%     the module exports it.</li>
%% <li>The process dictionary has one more entry, `$weir_server', for {@link info/1}.</li>
%% <li>The debug log of a module with `format_status/2' shows states as that callback formats them.</li>
%% </ul>
%%
%% If the server stops, drained messages are lost, as messages in a mailbox are. Callers learn of the end from their
%% monitors, and {@link waiting/0} gives `terminate/2' the number of lost messages.
%%
%% A batch server:
%% ```
%% -module(totals).
%% -behaviour(weir_server).
%% -export([start_link/0, init/1, handle_batch/2]).
%%
%% start_link() -> weir_server:start_link({local, ?MODULE}, ?MODULE, [], [{drain, 500}]).
%%
%% init([]) -> {ok, 0}.
%%
%% handle_batch(Batch, Total) ->
%%     New = Total + lists:sum([N || {cast, {add, N}} <- Batch]),
%%     {reply, [{From, New} || {call, From, total} <- Batch], New}.
%% '''
-module(weir_server).

-export([start/3, start/4, start_link/3, start_link/4, start_monitor/3, start_monitor/4, stop/1, stop/3]).
-export([enter_loop/3, enter_loop/4, enter_loop/5]).
-export([call/2, call/3, cast/2, reply/1, reply/2, abcast/2, abcast/3, multi_call/2, multi_call/3, multi_call/4]).
-export([mcall/1, with_state/2, info/1, waiting/0]).
-export([
    send_request/2, send_request/4,
    wait_response/2, wait_response/3,
    receive_response/2, receive_response/3,
    check_response/2, check_response/3,
    reqids_new/0, reqids_size/1, reqids_add/3, reqids_to_list/1
]).

%% called by gen, sys and logger
-export([
    init_it/6,
    system_continue/3, system_terminate/4, system_code_change/4, system_get_state/1, system_replace_state/2,
    format_status/2,
    format_log/1, format_log/2
]).

-export_type([
    from/0, reply_tag/0, message/0, result/0, result/1, action/0, backoff/0, status/0, format_status/0, info/0,
    overload/0,
    request_id/0, request_id_collection/0, response/0, response_timeout/0,
    start_opt/0, enter_loop_opt/0, option/0, options/0,
    server_name/0, server_ref/0, start_ret/0, start_mon_ret/0
]).

-include("weir_server_message.hrl").

-type from() :: {Client :: pid(), Tag :: reply_tag()}.
%% The caller and the tag of a call, for {@link reply/2}.

-type reply_tag() :: gen:reply_tag().
-type request_id() :: gen_server:request_id().
-type request_id_collection() :: gen_server:request_id_collection().
%% A collection may have requests of both modules.

-type response() :: {reply, Reply :: term()} | {error, {Reason :: term(), server_ref()}}.
-type response_timeout() :: timeout() | {abs, MonotonicMs :: integer()}.

-type message() :: {call, from(), Request :: term()} | {cast, Request :: term()} | {info, Message :: term()}.
%% An element of a batch. The time-out of an action arrives as `{info, timeout}'.

-type abs() :: {abs, boolean()}.
-type action() ::
    timeout()
    | hibernate
    | {continue, Continue :: term()}
    | {timeout, Time :: timeout() | integer(), Message :: term()}
    | {timeout, Time :: timeout() | integer(), Message :: term(), abs() | [abs()]}
    | {hibernate, Time :: timeout() | integer(), Message :: term()}
    | {hibernate, Time :: timeout() | integer(), Message :: term(), abs() | [abs()]}.
%% The next action of the server. A number of milliseconds: waits that long for a message, then handles `timeout'.
%% `hibernate': hibernates until a message arrives. `{continue, Continue}': runs `handle_continue/2' at once. The last
%% four wait awake or hibernated, and handle `Message' when `Time' milliseconds are over. With `{abs, true}', `Time' is
%% a time of `erlang:monotonic_time(millisecond)'. `gen_server' has the last four from OTP 29 on.

-type backoff() :: {backoff, InitialMs :: pos_integer(), MinimumMs :: pos_integer(), DesiredMs :: pos_integer()}.
%% The time that an idle server waits before it hibernates. The first time is `InitialMs'. Later times become longer or
%% shorter, so that most sleeps last `DesiredMs' or longer. No time is shorter than `MinimumMs'.

-type start_opt() :: {timeout, timeout()} | {spawn_opt, [proc_lib:start_spawn_option()]} | enter_loop_opt().
-type enter_loop_opt() :: {hibernate_after, timeout()} | {debug, [sys:debug_option()]}.
%% The options of `gen_server'.

-type option() :: start_opt() | weir_server_opts:own_option() | {name, atom() | server_name()}.
-type options() :: [option()] | #{atom() => term()}.
%% A list as in `gen_server', or a map with the same keys. More than in `gen_server': {@link
%% weir_server_opts:own_option()}, and `name' for the start functions without the argument Name. As in Elixir's
%% GenServer, an atom is a local name, and `nil' is no name.

-type overload() :: {overload, #{server := Name :: term(), waiting := pos_integer(), max_queue := pos_integer()}}.
%% The reply to a call that `max_queue' refuses is `{error, overload()}'. `server' is the name or the pid of the server.

-type status() :: #{state => term(), message => term(), reason => term(), log => [sys:system_event()]}.
%% The content of `sys:get_status/1' and of crash reports.

-type format_status() :: status().

-type info() :: weir_server_client:info().

-type server_name() :: {local, atom()} | {global, Name :: term()} | {via, module(), Name :: term()}.
-type server_ref() :: pid() | atom() | {atom(), node()} | {global, term()} | {via, module(), term()}.
-type start_ret() :: {ok, pid()} | ignore | {error, Reason :: term()}.
-type start_mon_ret() :: {ok, {pid(), reference()}} | ignore | {error, Reason :: term()}.
%% `Reason' is `{already_started, Pid}', `timeout', `{bad_option, Key, Value}', the reason in `{stop, Reason}' or
%% `{error, Reason}' of `init/1', the exit reason of an exception in `init/1', or `{bad_return_value, Returned}'.

-type result() ::
    {noreply, NewState :: term()}
    | {noreply, NewState :: term(), action()}
    | {become, NewMod :: module(), NewState :: term()}
    | {become, NewMod :: module(), NewState :: term(), action()}
    | {stop, Reason :: term(), NewState :: term()}.
%% The returns of all callbacks that handle messages. With `become', `NewMod' handles the next message.

-type result(Reply) ::
    {reply, Reply, NewState :: term()}
    | {reply, Reply, NewState :: term(), action()}
    | {stop, Reason :: term(), Reply, NewState :: term()}
    | result().

-callback init(Args :: term()) ->
    {ok, State :: term()}
    | {ok, State :: term(), action()}
    | {ok, State :: term(), action(), backoff()}
    | {ok, State :: term(), action(), backoff() | undefined, NewMod :: module()}
    | {stop, Reason :: term()}
    | {error, Reason :: term()}
    | ignore.
%% As in gen_server. More than there: `backoff()' adapts the time before the server hibernates, and `NewMod' becomes the
%% callback module.

-callback handle_batch(Batch :: [message(), ...], State :: term()) -> result([{from(), Reply :: term()}]).
%% Handles the messages that have arrived, in their order, or by priority if the module has prioritise callbacks. The
%% server sends the replies in the order of the list. The module may answer other calls later, with {@link reply/2}.

-callback handle_call(Request :: term(), from(), State :: term()) -> result(Reply :: term()).
%% As in gen_server.

-callback handle_cast(Request :: term(), State :: term()) -> result().
%% As in gen_server.

-callback handle_info(Info :: timeout | term(), State :: term()) -> result().
%% As in gen_server.

-callback handle_continue(Continue :: term(), State :: term()) -> result().
%% As in gen_server.

-callback terminate(Reason :: normal | shutdown | {shutdown, term()} | term(), State :: term()) -> term().
%% As in gen_server.

-callback code_change(OldVsn :: term() | {down, term()}, State :: term(), Extra :: term()) ->
    {ok, NewState :: term()} | {error, Reason :: term()}.
%% As in gen_server.

-callback format_status(status()) -> status().
%% As in gen_server.

-callback format_status(normal | terminate, [PDict :: term() | (State :: term())]) -> Shown :: term().
%% As in gen_server.

-callback prioritise_call(Request :: term(), from(), Waiting :: non_neg_integer(), State :: term()) -> integer().
%% Returns the priority of a call when the server drains it. Higher priorities come first. Without the callback the
%% priority is 0. `Waiting' is the number of messages in the private queue.

-callback prioritise_cast(Request :: term(), Waiting :: non_neg_integer(), State :: term()) -> integer() | drop.
%% Returns the priority of a cast, as for a call. `drop' drops the cast, and counts it.

-callback prioritise_info(Info :: term(), Waiting :: non_neg_integer(), State :: term()) ->
    integer() | {bounded, integer()} | drop.
%% Returns the priority of another message, as for a cast. With `{bounded, Priority}', `max_queue' bounds the message,
%% too.

-callback handle_pre_hibernate(State :: term()) ->
    {hibernate, NewState :: term()} | {stop, Reason :: term(), NewState :: term()}.
%% Runs before the server hibernates.

-callback handle_post_hibernate(State :: term()) ->
    {noreply, NewState :: term()}
    | {noreply, NewState :: term(), action()}
    | {stop, Reason :: term(), NewState :: term()}.
%% Runs when a message has woken the server, before the server handles the message.

-callback format_message_queue(normal | terminate, Queue :: [message()]) -> Shown :: term().
%% Returns the drained messages as a status (`normal') or a crash report (`terminate') shows them. The next message is
%% the first one.

-optional_callbacks([
    handle_batch/2,
    handle_call/3,
    handle_cast/2,
    handle_info/2,
    handle_continue/2,
    terminate/2,
    code_change/3,
    format_status/1,
    format_status/2,
    prioritise_call/4,
    prioritise_cast/3,
    prioritise_info/3,
    handle_pre_hibernate/1,
    handle_post_hibernate/1,
    format_message_queue/2
]).

-define(is_timeout(X), (X =:= infinity orelse (is_integer(X) andalso X >= 0))).

%% ---------------------------------------------------------------- starting and stopping

%% @doc Starts a server without a link or a name, and waits until `init/1' has returned. Errors: {@link start_ret()}.
-spec start(module(), Args :: term(), options()) -> start_ret().
start(Mod, Args, Options) ->
    weir_server_init:start(nolink, Mod, Args, Options).

%% @doc Starts a named server without a link.
-spec start(server_name(), module(), Args :: term(), options()) -> start_ret().
start(Name, Mod, Args, Options) ->
    weir_server_init:start(nolink, Name, Mod, Args, Options).

%% @doc Starts a server linked to the caller, which waits until `init/1' has returned.
-spec start_link(module(), Args :: term(), options()) -> start_ret().
start_link(Mod, Args, Options) ->
    weir_server_init:start(link, Mod, Args, Options).

%% @doc Starts a named server linked to the caller. If a process has the name, returns `{error, {already_started,
%% Pid}}'.
-spec start_link(server_name(), module(), Args :: term(), options()) -> start_ret().
start_link(Name, Mod, Args, Options) ->
    weir_server_init:start(link, Name, Mod, Args, Options).

%% @doc Starts a server and monitors it, in one step: `{ok, {Pid, MonitorRef}}'.
-spec start_monitor(module(), Args :: term(), options()) -> start_mon_ret().
start_monitor(Mod, Args, Options) ->
    weir_server_init:start(monitor, Mod, Args, Options).

%% @doc Starts a named server and monitors it.
-spec start_monitor(server_name(), module(), Args :: term(), options()) -> start_mon_ret().
start_monitor(Name, Mod, Args, Options) ->
    weir_server_init:start(monitor, Name, Mod, Args, Options).

%% @doc Stops a server with reason `normal' and waits for its end. Exits with `noproc' if there is no such server.
-spec stop(server_ref()) -> ok.
stop(Server) ->
    gen:stop(Server).

%% @doc Stops a server with `Reason' and waits at most `Timeout' milliseconds for its end. Exits with `timeout',
%% `noproc', `{nodedown, Node}', or the server's exit reason if that is not `Reason'.
-spec stop(server_ref(), Reason :: term(), timeout()) -> ok.
stop(Server, Reason, Timeout) ->
    gen:stop(Server, Reason, Timeout).

%% @doc As {@link enter_loop/5} for a process without a name and without a time-out.
-spec enter_loop(module(), options(), State :: term()) -> no_return().
enter_loop(Mod, Options, State) ->
    enter_loop(Mod, Options, State, self(), infinity).

%% @doc As {@link enter_loop/5}, without a name or without an action.
-spec enter_loop(module(), options(), State :: term(), server_name() | pid() | action()) -> no_return().
enter_loop(Mod, Options, State, Name = {Scope, _}) when Scope =:= local; Scope =:= global ->
    enter_loop(Mod, Options, State, Name, infinity);
enter_loop(Mod, Options, State, Name = {via, _, _}) ->
    enter_loop(Mod, Options, State, Name, infinity);
enter_loop(Mod, Options, State, Pid) when is_pid(Pid) ->
    enter_loop(Mod, Options, State, Pid, infinity);
enter_loop(Mod, Options, State, Action) ->
    enter_loop(Mod, Options, State, self(), Action).

%% @doc Makes the calling process a weir_server. Never returns.
%%
%% If `proc_lib' has not started the process, or the process does not have the name, it exits with
%% `process_was_not_started_by_proc_lib', `process_not_registered', `process_not_registered_globally' or
%% `{process_not_registered_via, Mod}'. A wrong action is an exit with `{bad_action, Action}', and a wrong option an
%% error `{bad_option, Key, Value}'.
-spec enter_loop(module(), options(), State :: term(), server_name() | pid(), action()) -> no_return().
enter_loop(Mod, Options, State, ServerName, Action) when is_atom(Mod) ->
    weir_server_init:enter_loop(Mod, Options, State, ServerName, Action).

%% ---------------------------------------------------------------- talking to a server

%% @doc As {@link call/3} with a time-out of 5000 milliseconds.
-spec call(server_ref(), Request :: term()) -> Reply :: term().
call(Server, Request) ->
    try gen:call(Server, ?CALL_LABEL, Request) of
        {ok, Reply} -> Reply
    catch
        Class:Reason:Stacktrace -> call_failed(Class, Reason, Stacktrace, call, [Server, Request])
    end.

%% @doc Sends a request and waits at most `Timeout' milliseconds for the answer.
%%
%% If there is no such server, or the server dies or does not answer in time, exits as `gen_server:call/3' does, with
%% `{Reason, {weir_server, call, Args}}'. A late answer never reaches the caller's mailbox.
%% Cost: one monitor, two messages.
-spec call(server_ref(), Request :: term(), timeout()) -> Reply :: term().
call(Server, Request, Timeout) ->
    try gen:call(Server, ?CALL_LABEL, Request, Timeout) of
        {ok, Reply} -> Reply
    catch
        Class:Reason:Stacktrace -> call_failed(Class, Reason, Stacktrace, call, [Server, Request, Timeout])
    end.

-spec call_failed(throw | error | exit, term(), erlang:stacktrace(), atom(), [term()]) -> no_return().
call_failed(exit, Reason, _, Function, Args) -> exit({Reason, {?MODULE, Function, Args}});
call_failed(error, Reason, Stacktrace, Function, Args) -> exit({{Reason, Stacktrace}, {?MODULE, Function, Args}});
call_failed(throw, Thrown, Stacktrace, _, _) -> erlang:raise(throw, Thrown, Stacktrace).

%% @doc Sends a cast. Returns `ok' whether the server exists or not.
%% Cost: one message.
-spec cast(server_ref(), Request :: term()) -> ok.
cast(Server, Request) when is_pid(Server); is_atom(Server); is_tuple(Server) ->
    gen_server:cast(Server, Request).

%% @doc Answers several calls, each as {@link reply/2} does. A batch returns such a list as its replies.
-spec reply([{from(), Reply :: term()}]) -> ok.
reply([{From, Reply} | Replies]) ->
    ok = reply(From, Reply),
    reply(Replies);
reply([]) ->
    ok.

%% @doc Answers a call, from any process, at any time after the call was received.
-spec reply(from(), Reply :: term()) -> ok.
reply(From, Reply) ->
    gen:reply(From, Reply).

%% @doc Casts to the servers of this name on all connected nodes and this one.
-spec abcast(Name :: atom(), Request :: term()) -> abcast.
abcast(Name, Request) when is_atom(Name) ->
    gen_server:abcast(Name, Request).

%% @doc Casts to the servers of this name on some nodes. Ignores nodes that have no such server or are not connected.
-spec abcast([node()], Name :: atom(), Request :: term()) -> abcast.
abcast(Nodes, Name, Request) when is_list(Nodes), is_atom(Name) ->
    gen_server:abcast(Nodes, Name, Request).

%% @doc As {@link multi_call/4} on all connected nodes and this one, without a time-out.
-spec multi_call(Name :: atom(), Request :: term()) -> {[{node(), Reply :: term()}], BadNodes :: [node()]}.
multi_call(Name, Request) when is_atom(Name) ->
    gen_server:multi_call(Name, Request).

%% @doc As {@link multi_call/4} without a time-out.
-spec multi_call([node()], Name :: atom(), Request :: term()) ->
    {[{node(), Reply :: term()}], BadNodes :: [node()]}.
multi_call(Nodes, Name, Request) when is_list(Nodes), is_atom(Name) ->
    gen_server:multi_call(Nodes, Name, Request).

%% @doc Calls the servers of this name on some nodes at the same time, and waits for all of them, `Timeout' milliseconds
%% at most. Nodes without an answer in this time, or without a server, are bad nodes.
-spec multi_call([node()], Name :: atom(), Request :: term(), timeout()) ->
    {[{node(), Reply :: term()}], BadNodes :: [node()]}.
multi_call(Nodes, Name, Request, Timeout) when is_list(Nodes), is_atom(Name), ?is_timeout(Timeout) ->
    gen_server:multi_call(Nodes, Name, Request, Timeout).

%% @doc Calls many servers at the same time, each with a request of its own, and waits for all of them.
%%
%% Returns the replies, and the reasons of the servers that do not reply: `noproc', `{nodedown, Node}' or the exit
%% reason. Both lists are in the order of the arguments, and may have a server more than once. There is no time-out: the
%% caller waits until each server has answered or died. To wait for a limited time, use {@link send_request/4} and
%% {@link receive_response/3}. The reason for the calling process itself is `calling_self'. Cost: for each server a
%% monitor, two messages, and one search of the caller's mailbox.
-spec mcall([{server_ref(), Request :: term()}]) ->
    {[{server_ref(), Reply :: term()}], [{server_ref(), Reason :: term()}]}.
mcall(Requests) when is_list(Requests) ->
    weir_server_client:mcall(Requests).

%% @doc Applies a function to the server's state, in the server, and returns the result. The server handles the request
%% in the order of messages, as a call.
%%
%% The state does not change, and the runtime copies only the result. If the function raises an exception, the exception
%% is raised in the caller, and the server goes on. Waits without a time-out, and exits as {@link call/3} does. If
%% `max_queue' leaves no room for the request, returns `{error, {overload, _}}'.
-spec with_state(server_ref(), fun((State :: term()) -> Result)) -> Result | {error, {overload, map()}}.
with_state(Server, Fun) when is_function(Fun, 1) ->
    weir_server_client:with_state(Server, Fun).

%% @doc Returns the counts of a server: see {@link info()}. Answers at once, also if the server hangs in a callback:
%% only a server that waits for a message gets a request. The counts of a busy server are as of its last poll of the
%% mailbox, at most 64 messages ago. `mailbox' is the number of now.
%%
%% `noproc': there is no such server. `not_weir_server': the process is no weir_server. `nodedown': the server's node
%% did not answer within 5 seconds, or does not have Weir. Cost: two calls of process_info/2. Before OTP 27 the second
%% one copies the server's whole process dictionary.
-spec info(server_ref()) -> {ok, info()} | {error, noproc | not_weir_server | {nodedown, node()}}.
info(Server) ->
    weir_server_client:info(Server).

%% @doc Returns how many messages wait for the calling server, drained or in its mailbox. For callbacks.
%%
%% In `terminate/2' the number is exact, and is the number of lost messages. In other callbacks, the number of drained
%% messages is as of the last poll of the mailbox. That is at most 16 messages ago, so the result may be 15 too high. In
%% a process that is no weir_server, returns the length of the mailbox. Cost: 20 ns.
-spec waiting() -> non_neg_integer().
waiting() ->
    {message_queue_len, Mailbox} = process_info(self(), message_queue_len),
    Mailbox + weir_server_stats:waiting().

%% ---------------------------------------------------------------- requests that are answered later

%% @doc Sends a request. {@link receive_response/2}, {@link wait_response/2} and {@link check_response/2} return the
%% answer, and raise `badarg' for arguments of the wrong type.
-spec send_request(server_ref(), Request :: term()) -> request_id().
send_request(Server, Request) ->
    gen_server:send_request(Server, Request).

%% @doc Sends a request and adds it to a collection, under a label of the caller's.
-spec send_request(server_ref(), Request :: term(), Label :: term(), request_id_collection()) ->
    request_id_collection().
send_request(Server, Request, Label, Requests) ->
    gen_server:send_request(Server, Request, Label, Requests).

%% @doc Waits for an answer. After `timeout' the answer may still come, and the caller may wait again.
-spec wait_response(request_id(), response_timeout()) -> response() | timeout.
wait_response(Request, Timeout) ->
    gen_server:wait_response(Request, Timeout).

%% @doc Waits for an answer to any request of a collection, and takes the request out of it if `Delete' is true.
-spec wait_response(request_id_collection(), response_timeout(), Delete :: boolean()) ->
    {response(), Label :: term(), request_id_collection()} | no_request | timeout.
wait_response(Requests, Timeout, Delete) ->
    gen_server:wait_response(Requests, Timeout, Delete).

%% @doc Waits for an answer. `timeout' abandons the request, and no answer will arrive.
-spec receive_response(request_id(), response_timeout()) -> response() | timeout.
receive_response(Request, Timeout) ->
    gen_server:receive_response(Request, Timeout).

%% @doc Waits as {@link wait_response/3} does. `timeout' abandons all requests of the collection.
-spec receive_response(request_id_collection(), response_timeout(), Delete :: boolean()) ->
    {response(), Label :: term(), request_id_collection()} | no_request | timeout.
receive_response(Requests, Timeout, Delete) ->
    gen_server:receive_response(Requests, Timeout, Delete).

%% @doc Returns the answer to a request, if a message that the caller has received is that answer.
-spec check_response(Message :: term(), request_id()) -> response() | no_reply.
check_response(Message, Request) ->
    gen_server:check_response(Message, Request).

%% @doc Returns the answer to a request of a collection, if a message that the caller has received is that answer.
-spec check_response(Message :: term(), request_id_collection(), Delete :: boolean()) ->
    {response(), Label :: term(), request_id_collection()} | no_request | no_reply.
check_response(Message, Requests, Delete) ->
    gen_server:check_response(Message, Requests, Delete).

%% @doc Returns an empty collection of requests.
-spec reqids_new() -> request_id_collection().
reqids_new() -> gen_server:reqids_new().

%% @doc Returns the number of requests in a collection.
-spec reqids_size(request_id_collection()) -> non_neg_integer().
reqids_size(Requests) -> gen_server:reqids_size(Requests).

%% @doc Adds a request to a collection. Raises `badarg' if the collection has the request already.
-spec reqids_add(request_id(), Label :: term(), request_id_collection()) -> request_id_collection().
reqids_add(Request, Label, Requests) -> gen_server:reqids_add(Request, Label, Requests).

%% @doc Returns the requests of a collection, with their labels.
-spec reqids_to_list(request_id_collection()) -> [{request_id(), Label :: term()}].
reqids_to_list(Requests) -> gen_server:reqids_to_list(Requests).

%% ---------------------------------------------------------------- called by gen, sys and logger

%% @private
-spec init_it(pid(), self | pid(), server_name() | pid(), module(), term(), options()) -> no_return().
init_it(Starter, Parent, Name, Mod, Args, Options) ->
    weir_server_init:init_it(Starter, Parent, Name, Mod, Args, Options).

%% @private
-spec system_continue(pid(), [sys:dbg_opt()], term()) -> no_return().
system_continue(Parent, Debug, Misc) -> weir_server_loop:continue(Parent, Debug, Misc).
%% @private
-spec system_terminate(term(), pid(), [sys:dbg_opt()], term()) -> no_return().
system_terminate(Reason, Parent, Debug, Misc) -> weir_server_system:terminate(Reason, Parent, Debug, Misc).
%% @private
-spec system_code_change(term(), module(), term(), term()) -> {ok, term()} | term().
system_code_change(Misc, Mod, OldVsn, Extra) -> weir_server_system:code_change(Misc, Mod, OldVsn, Extra).
%% @private
-spec system_get_state(term()) -> {ok, term()}.
system_get_state(Misc) -> weir_server_system:get_state(Misc).
%% @private
-spec system_replace_state(fun((term()) -> term()), term()) -> {ok, term(), term()}.
system_replace_state(Replace, Misc) -> weir_server_system:replace_state(Replace, Misc).
%% @private
-spec format_status(term(), [term()]) -> [term()].
format_status(Opt, StatusData) -> weir_server_system:format_status(Opt, StatusData).

%% @doc Returns the text of a report as a format and its arguments, with the depth that `error_logger' is set to.
-spec format_log(Report :: map()) -> {io:format(), [term()]}.
format_log(Report) -> weir_server_report:format_log(Report).

%% @doc Returns the text of a report, as a report callback of `logger' does.
-spec format_log(Report :: map(), logger:report_cb_config()) -> unicode:chardata().
format_log(Report, Config) -> weir_server_report:format_log(Report, Config).
