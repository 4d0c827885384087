%% @doc A `gen_server' that cannot be buried: it drains its mailbox, can handle it in batches or by priority, and bounds
%% it.
%%
%% A drop-in for `gen_server' of OTP 25 to 29: every function that it exports is here (but `wake_hib/6', which is its
%% own business), with the same arguments, results, exit reasons, log reports and answers to `sys'. A module
%% moves by changing one word, and `gen_server:call/2,3', `sys' and supervisors talk to a weir_server as they do to any
%% server.
%%
%% What is new:
%% <ul>
%% <li>Where callbacks take longer than a few microseconds, because they work, wait, or search the mailbox in a receive
%%     of their own, the server moves the calls and casts that have arrived from its mailbox into a private queue
%%     between them, so that such a `receive' has little to search. Where callbacks are fast it takes messages one by
%%     one, as `gen_server' does. The option `drain' bounds it: see {@link option()}.</li>
%% <li>A module that exports `handle_batch/2' gets what has arrived all at once.</li>
%% <li>`prioritise_call/4', `prioritise_cast/3', `prioritise_info/3' order what waits, or drop it; the options
%%     `max_queue' and `overload' bound it.</li>
%% <li>`handle_pre_hibernate/1', `handle_post_hibernate/1', a time before hibernation that adapts itself, and
%%     `{become, NewMod, NewState}', which makes another module the callback module.</li>
%% <li>{@link with_state/2}, {@link mcall/1}, {@link info/1}, {@link waiting/0}, {@link reply/1}.</li>
%% </ul>
%% Messages are handled in the order in which they came, also when they were drained: nothing overtakes anything,
%% neither `sys', a stop nor the parent's exit, unless there are priorities. What is not a call or a cast stays in the
%% mailbox until its turn, so a callback finds what it looks for: the reply, the `DOWN' or the data that an earlier
%% callback has asked for.
%%
%% What differs from `gen_server':
%% <ul>
%% <li>On OTP 25 to 27, one message at most that is no call and no cast may have been drained: the first behind those
%%     that were. A `receive' in a callback that comes before it does not find it. From OTP 28 on there is none.</li>
%% <li>A module with `handle_batch/2' or a prioritise callback asks for all messages, so a `receive' in a callback does
%%     not find what has been drained: do not wait there for what an earlier callback has asked for, and let the
%%     callbacks pass over what is stale after `demonitor(Ref, [flush])' or a cancelled timer. So does a server with
%%     `max_queue' while more messages than that wait, of whatever kind.</li>
%% <li>With priorities, system messages are ahead of everything; a stop, the parent's exit and weir_flow's requests are
%%     behind everything that is there. What is sent after a stop is handled, too, if it is of a higher priority and
%%     drained before the stop's turn, or in the same batch.</li>
%% <li>Options may also be a map. One that is unknown or wrong is refused with `{error, {bad_option, Key, Value}}';
%%     `gen_server' ignores the unknown. A name, module or option list of the wrong type is always `badarg'.</li>
%% <li>`handle_call/3', `handle_cast/2' and `handle_info/2' are optional: a batch server needs none of them.</li>
%% <li>A report or a status of a server that has drained messages tells their number, and more if
%%     `format_message_queue/2' is there.</li>
%% <li>The process dictionary has one entry more, `$weir_server', for {@link info/1}.</li>
%% <li>Where the debug log of a module with `format_status/2' shows states, they have been through that function.</li>
%% </ul>
%%
%% Messages that were drained but not handled when the server stops are lost, as messages in a mailbox are; callers
%% notice through their monitor, `terminate/2' through {@link waiting/0}.
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
%% Whom to answer: see {@link reply/2}.

-type reply_tag() :: gen:reply_tag().
-type request_id() :: gen_server:request_id().
-type request_id_collection() :: gen_server:request_id_collection().
%% Requests of both modules may be in one collection.

-type response() :: {reply, Reply :: term()} | {error, {Reason :: term(), server_ref()}}.
-type response_timeout() :: timeout() | {abs, MonotonicMs :: integer()}.

-type message() :: {call, from(), Request :: term()} | {cast, Request :: term()} | {info, Message :: term()}.
%% An element of a batch. A time-out that a callback asked for arrives as `{info, timeout}'.

-type abs() :: {abs, boolean()}.
-type action() ::
    timeout()
    | hibernate
    | {continue, Continue :: term()}
    | {timeout, Time :: timeout() | integer(), Message :: term()}
    | {timeout, Time :: timeout() | integer(), Message :: term(), abs() | [abs()]}
    | {hibernate, Time :: timeout() | integer(), Message :: term()}
    | {hibernate, Time :: timeout() | integer(), Message :: term(), abs() | [abs()]}.
%% What to do next: wait so many milliseconds for a message and then handle `timeout', hibernate, or run
%% `handle_continue/2' before anything else. The last four, which `gen_server' has from OTP 29, handle `Message' when
%% the time is up, awake or hibernated till then; with `{abs, true}' the time is one of `erlang:monotonic_time/1', in
%% milliseconds.

-type backoff() :: {backoff, InitialMs :: pos_integer(), MinimumMs :: pos_integer(), DesiredMs :: pos_integer()}.
%% How long an idle server waits before it hibernates: first `InitialMs', later longer or shorter, but never shorter
%% than `MinimumMs', so that it is hibernated for `DesiredMs' or longer when it is.

-type start_opt() :: {timeout, timeout()} | {spawn_opt, [proc_lib:start_spawn_option()]} | enter_loop_opt().
-type enter_loop_opt() :: {hibernate_after, timeout()} | {debug, [sys:debug_option()]}.
%% `gen_server''s options.

-type option() :: start_opt() | weir_server_opts:own_option() | {name, atom() | server_name()}.
-type options() :: [option()] | #{atom() => term()}.
%% A list as `gen_server' takes it, or a map with the same keys. What weir_server adds: {@link
%% weir_server_opts:own_option()}, and `name', for the start functions without the argument Name, as Elixir's GenServer
%% has it: an atom is a local name, and `nil' none.

-type overload() :: {overload, #{server := Name :: term(), waiting := pos_integer(), max_queue := pos_integer()}}.
%% The reply to a call that did not fit in is `{error, overload()}'. `server': its name, or its pid if it has none.

-type status() :: #{state => term(), message => term(), reason => term(), log => [sys:system_event()]}.
%% What `sys:get_status/1' and crash reports show.

-type format_status() :: status().

-type info() :: weir_server_client:info().

-type server_name() :: {local, atom()} | {global, Name :: term()} | {via, module(), Name :: term()}.
-type server_ref() :: pid() | atom() | {atom(), node()} | {global, term()} | {via, module(), term()}.
-type start_ret() :: {ok, pid()} | ignore | {error, Reason :: term()}.
-type start_mon_ret() :: {ok, {pid(), reference()}} | ignore | {error, Reason :: term()}.
%% `{error, Reason}': `{already_started, Pid}'; `timeout'; `{bad_option, Key, Value}'; what `init/1' gave as `{stop,
%% Reason}', `{error, Reason}', or by an exception, then as the exit reason; or `{bad_return_value, Returned}'.

-type result() ::
    {noreply, NewState :: term()}
    | {noreply, NewState :: term(), action()}
    | {become, NewMod :: module(), NewState :: term()}
    | {become, NewMod :: module(), NewState :: term(), action()}
    | {stop, Reason :: term(), NewState :: term()}.
%% What all callbacks that handle something may return. With `become' the next message goes to `NewMod'.

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
%% As in gen_server, whose four results are the first and the last three. `backoff()' bounds how long the server waits
%% before it hibernates; `NewMod' becomes the callback module.

-callback handle_batch(Batch :: [message(), ...], State :: term()) -> result([{from(), Reply :: term()}]).
%% All messages that have arrived, in their order, or by priority where there are prioritise callbacks. The replies are
%% sent in the order of the list; a call that is in none of them is answered later, by {@link reply/2}, or not at all.

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
%% The priority of a call, higher ones first, asked once, when it is drained; 0 without the callback. `Waiting': how
%% many messages are in the private queue.

-callback prioritise_cast(Request :: term(), Waiting :: non_neg_integer(), State :: term()) -> integer() | drop.
%% The priority of a cast, as for a call, or `drop': it is not handled, and counted.

-callback prioritise_info(Info :: term(), Waiting :: non_neg_integer(), State :: term()) ->
    integer() | {bounded, integer()} | drop.
%% The priority of any other message, as for a cast. It counts for `max_queue' only with `{bounded, Priority}'.

-callback handle_pre_hibernate(State :: term()) ->
    {hibernate, NewState :: term()} | {stop, Reason :: term(), NewState :: term()}.
%% Called before the server hibernates.

-callback handle_post_hibernate(State :: term()) ->
    {noreply, NewState :: term()}
    | {noreply, NewState :: term(), action()}
    | {stop, Reason :: term(), NewState :: term()}.
%% Called when something has woken the server, before that is handled.

-callback format_message_queue(normal | terminate, Queue :: [message()]) -> Shown :: term().
%% What a status (`normal') or a crash report (`terminate') shows of the drained messages, the next one first.

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

%% Starting and stopping

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

%% @doc Starts a named server linked to the caller.
%% A taken name gives `{error, {already_started, Pid}}'.
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

%% @doc Stops a server with reason `normal' and waits for its end.
%% Exits with `noproc' when there is none.
-spec stop(server_ref()) -> ok.
stop(Server) ->
    gen:stop(Server).

%% @doc Stops a server with `Reason' and waits at most `Timeout' milliseconds for its end.
%% Exits with `timeout', `noproc', `{nodedown, Node}', or the reason it ended with if that is another.
-spec stop(server_ref(), Reason :: term(), timeout()) -> ok.
stop(Server, Reason, Timeout) ->
    gen:stop(Server, Reason, Timeout).

%% @doc As {@link enter_loop/5} for a process without a name and without a time-out.
-spec enter_loop(module(), options(), State :: term()) -> no_return().
enter_loop(Mod, Options, State) ->
    enter_loop(Mod, Options, State, self(), infinity).

%% @doc As {@link enter_loop/5}, with either a name or an action left out.
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
%% It must have been started through `proc_lib' and must hold the name that it gives, else it exits, with
%% `process_was_not_started_by_proc_lib', `process_not_registered', `process_not_registered_globally' or
%% `{process_not_registered_via, Mod}'. What is no action is an exit with `{bad_action, Action}', a bad option an
%% error `{bad_option, Key, Value}'.
-spec enter_loop(module(), options(), State :: term(), server_name() | pid(), action()) -> no_return().
enter_loop(Mod, Options, State, ServerName, Action) when is_atom(Mod) ->
    weir_server_init:enter_loop(Mod, Options, State, ServerName, Action).

%% Talking to a server

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
%% Exits as `gen_server:call/3' does, with `{Reason, {weir_server, call, Args}}', when the server is not
%% there, dies, or does not answer in time. A late answer never reaches the caller's mailbox.
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

%% @doc Sends a message to be handled as a cast. Always `ok', whether the server exists or not.
%% Cost: one message.
-spec cast(server_ref(), Request :: term()) -> ok.
cast(Server, Request) when is_pid(Server); is_atom(Server); is_tuple(Server) ->
    gen_server:cast(Server, Request).

%% @doc Answers several calls, each as {@link reply/2} does: what a batch returns as its replies.
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

%% @doc Casts to the servers of this name on some nodes; those that are not there or not connected do not matter.
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
%% at most. Nodes without an answer till then, or without a server, are bad nodes.
-spec multi_call([node()], Name :: atom(), Request :: term(), timeout()) ->
    {[{node(), Reply :: term()}], BadNodes :: [node()]}.
multi_call(Nodes, Name, Request, Timeout) when is_list(Nodes), is_atom(Name), ?is_timeout(Timeout) ->
    gen_server:multi_call(Nodes, Name, Request, Timeout).

%% @doc Calls many servers at the same time, each with a request of its own, and waits for all of them.
%%
%% Gives the replies, and for each of the others why there is none: `noproc', `{nodedown, Node}' or its exit reason.
%% Both are in the order of the arguments; a server may be named more than once. There is no time-out: a server that
%% lives and does not answer is waited for. To wait for a time only, use {@link send_request/4} and {@link
%% receive_response/3}. The calling process cannot be among them: `calling_self'.
%% Cost: a monitor and two messages each, and with a full mailbox a search of it for each.
-spec mcall([{server_ref(), Request :: term()}]) ->
    {[{server_ref(), Reply :: term()}], [{server_ref(), Reason :: term()}]}.
mcall(Requests) when is_list(Requests) ->
    weir_server_client:mcall(Requests).

%% @doc What a function of the server's state gives, computed in the server, in its turn like a call.
%%
%% The state stays as it is, and only the result is copied to the caller. A function that raises an
%% exception does so in the caller, and the server goes on. Waits as long as it takes, and exits as
%% {@link call/3} does. A server with `max_queue' that has no room refuses it as a call: `{error, {overload, _}}'.
-spec with_state(server_ref(), fun((State :: term()) -> Result)) -> Result | {error, {overload, map()}}.
with_state(Server, Fun) when is_function(Fun, 1) ->
    weir_server_client:with_state(Server, Fun).

%% @doc What a server has done and has to do: see {@link info()}. Answered at once, also for a server that hangs in a
%% callback, since only one that waits for a message is asked. While it is busy the counts are those of when it last
%% looked at its mailbox, at most 64 messages ago; `mailbox' is that of now.
%%
%% `noproc': there is no such server. `not_weir_server': it is something else. `nodedown': the server's node did not
%% answer within 5 seconds, or has no weir_server.
%% Cost: two times process_info/2, the second copying, before OTP 27, the whole process dictionary of the server.
-spec info(server_ref()) -> {ok, info()} | {error, noproc | not_weir_server | {nodedown, node()}}.
info(Server) ->
    weir_server_client:info(Server).

%% @doc How many messages wait for the calling server, drained or in its mailbox. For callbacks.
%%
%% In `terminate/2' this is exact, and the number of those that are lost. In the other callbacks the drained are counted
%% as they were when the server last looked into its mailbox, at most 16 messages ago, so this may be up to 15 too high.
%% In another process it is the length of the mailbox.
%% Cost: 20 ns.
-spec waiting() -> non_neg_integer().
waiting() ->
    {message_queue_len, Mailbox} = process_info(self(), message_queue_len),
    Mailbox + weir_server_stats:waiting().

%% Requests that are sent now and waited for later

%% @doc Sends a request; the answer is had from {@link receive_response/2}, {@link wait_response/2} or {@link
%% check_response/2}. All of these raise `badarg' for arguments of the wrong type.
-spec send_request(server_ref(), Request :: term()) -> request_id().
send_request(Server, Request) ->
    gen_server:send_request(Server, Request).

%% @doc Sends a request and adds it to a collection, under a label of the caller's.
-spec send_request(server_ref(), Request :: term(), Label :: term(), request_id_collection()) ->
    request_id_collection().
send_request(Server, Request, Label, Requests) ->
    gen_server:send_request(Server, Request, Label, Requests).

%% @doc Waits for an answer. After `timeout' it may still come and be waited for again.
-spec wait_response(request_id(), response_timeout()) -> response() | timeout.
wait_response(Request, Timeout) ->
    gen_server:wait_response(Request, Timeout).

%% @doc Waits for an answer to any request of a collection, and takes the request out of it if `Delete' is true.
-spec wait_response(request_id_collection(), response_timeout(), Delete :: boolean()) ->
    {response(), Label :: term(), request_id_collection()} | no_request | timeout.
wait_response(Requests, Timeout, Delete) ->
    gen_server:wait_response(Requests, Timeout, Delete).

%% @doc Waits for an answer. After `timeout' the request is given up, and no answer will arrive.
-spec receive_response(request_id(), response_timeout()) -> response() | timeout.
receive_response(Request, Timeout) ->
    gen_server:receive_response(Request, Timeout).

%% @doc As {@link wait_response/3}; after `timeout' all requests of the collection are given up.
-spec receive_response(request_id_collection(), response_timeout(), Delete :: boolean()) ->
    {response(), Label :: term(), request_id_collection()} | no_request | timeout.
receive_response(Requests, Timeout, Delete) ->
    gen_server:receive_response(Requests, Timeout, Delete).

%% @doc Whether a message that the caller has received is the answer to a request.
-spec check_response(Message :: term(), request_id()) -> response() | no_reply.
check_response(Message, Request) ->
    gen_server:check_response(Message, Request).

%% @doc Whether a message that the caller has received is the answer to a request of a collection.
-spec check_response(Message :: term(), request_id_collection(), Delete :: boolean()) ->
    {response(), Label :: term(), request_id_collection()} | no_request | no_reply.
check_response(Message, Requests, Delete) ->
    gen_server:check_response(Message, Requests, Delete).

%% @doc An empty collection of requests.
-spec reqids_new() -> request_id_collection().
reqids_new() -> gen_server:reqids_new().

%% @doc How many requests are in a collection.
-spec reqids_size(request_id_collection()) -> non_neg_integer().
reqids_size(Requests) -> gen_server:reqids_size(Requests).

%% @doc Adds a request to a collection that it is not in, else `badarg'.
-spec reqids_add(request_id(), Label :: term(), request_id_collection()) -> request_id_collection().
reqids_add(Request, Label, Requests) -> gen_server:reqids_add(Request, Label, Requests).

%% @doc The requests of a collection, with their labels.
-spec reqids_to_list(request_id_collection()) -> [{request_id(), Label :: term()}].
reqids_to_list(Requests) -> gen_server:reqids_to_list(Requests).

%% What gen, sys and logger call

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

%% @doc The text of a report, as a format and its arguments, at the depth that `error_logger' is set to.
-spec format_log(Report :: map()) -> {io:format(), [term()]}.
format_log(Report) -> weir_server_report:format_log(Report).

%% @doc The text of a report, as a report callback of `logger' gives it.
-spec format_log(Report :: map(), logger:report_cb_config()) -> unicode:chardata().
format_log(Report, Config) -> weir_server_report:format_log(Report, Config).
