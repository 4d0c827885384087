%% @doc A `gen_server' that drains its mailbox and can handle it in batches.
%%
%% The callbacks, their return values, the call protocol (`$gen_call', `$gen_cast'), the start functions,
%% the exit reasons and the log reports are `gen_server''s, so a module moves by changing one word, and
%% `gen_server:call/2,3', `sys' and supervisors talk to a weir_server as they do to any server.
%%
%% What differs from `gen_server':
%% <ul>
%% <li>Before each turn the server moves what has arrived from its mailbox into a private queue, which
%%     holds at most `drain' messages (start option, default 1000). A selective receive inside a callback
%%     then scans what is left in the mailbox, not what was drained, and a module that exports
%%     {@link handle_batch/2} gets everything drained at once.</li>
%% <li>System messages and the parent's exit signal are handled as soon as the drain meets them: they do
%%     not wait behind the messages drained before them. So `sys:get_state/1' does not tell that what
%%     was sent before it has been handled; a call does.</li>
%% <li>While drained messages wait, `hibernate' is not obeyed, since there is work to do, and a time-out
%%     does not expire, since there is a message.</li>
%% <li>An unknown start option is refused with `{error, {bad_option, Key, Value}}'; `gen_server' ignores it.</li>
%% <li>`handle_call/3', `handle_cast/2' and `handle_info/2' are optional, because a batch server needs none of them.</li>
%% </ul>
%%
%% Order: messages from one process are handled in the order in which it sent them. Messages that were
%% drained but not handled when the server stops are lost, as messages in a mailbox are; callers notice
%% through their monitor.
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
%%
%% The processes, the loop and its states are described in {@link weir_server_loop}.
-module(weir_server).

-export([
    start/3, start/4,
    start_link/3, start_link/4,
    start_monitor/3, start_monitor/4,
    stop/1, stop/3,
    call/2, call/3,
    cast/2,
    reply/2,
    enter_loop/3, enter_loop/4, enter_loop/5
]).

%% called by gen
-export([init_it/6]).

-export_type([
    from/0, message/0, action/0, status/0, option/0, options/0, server_name/0, server_ref/0, start_ret/0
]).

-type from() :: {Client :: pid(), Tag :: gen:reply_tag()}.
%% Whom to answer: see {@link reply/2}.

-type message() :: {call, from(), Request :: term()} | {cast, Request :: term()} | {info, Message :: term()}.
%% An element of a batch. A time-out that a callback asked for arrives as `{info, timeout}'.

-type action() :: timeout() | hibernate | {continue, Continue :: term()}.
%% What to do next: wait so many milliseconds for a message and then handle `timeout', hibernate, or run
%% `handle_continue/2' before anything else.

-type option() ::
    {timeout, timeout()}
    | {debug, [sys:debug_option()]}
    | {hibernate_after, timeout()}
    | {spawn_opt, [proc_lib:start_spawn_option()]}
    | {drain, pos_integer()}.
%% `drain': the greatest number of messages that are drained at a time, and so the size of the largest
%% batch; default 1000. The others are `gen_server''s.

-type status() :: #{state => term(), message => term(), reason => term(), log => [sys:system_event()]}.
%% What `sys:get_status/1' and crash reports show.

-type options() :: [option()] | #{atom() => term()}.
%% A list as `gen_server' takes it, or a map with the same keys.

-type server_name() :: {local, atom()} | {global, Name :: term()} | {via, module(), Name :: term()}.
-type server_ref() :: pid() | atom() | {atom(), node()} | {global, term()} | {via, module(), term()}.
-type start_ret() :: {ok, pid()} | ignore | {error, Reason :: term()}.
-type start_mon_ret() :: {ok, {pid(), reference()}} | ignore | {error, Reason :: term()}.

-callback init(Args :: term()) ->
    {ok, State :: term()}
    | {ok, State :: term(), action()}
    | {stop, Reason :: term()}
    | ignore.
-callback handle_batch(Batch :: [message(), ...], State :: term()) ->
    {noreply, NewState :: term()}
    | {noreply, NewState :: term(), action()}
    | {reply, [{from(), Reply :: term()}], NewState :: term()}
    | {reply, [{from(), Reply :: term()}], NewState :: term(), action()}
    | {stop, Reason :: term(), NewState :: term()}
    | {stop, Reason :: term(), [{from(), Reply :: term()}], NewState :: term()}.
-callback handle_call(Request :: term(), from(), State :: term()) ->
    {reply, Reply :: term(), NewState :: term()}
    | {reply, Reply :: term(), NewState :: term(), action()}
    | {noreply, NewState :: term()}
    | {noreply, NewState :: term(), action()}
    | {stop, Reason :: term(), Reply :: term(), NewState :: term()}
    | {stop, Reason :: term(), NewState :: term()}.
-callback handle_cast(Request :: term(), State :: term()) ->
    {noreply, NewState :: term()}
    | {noreply, NewState :: term(), action()}
    | {stop, Reason :: term(), NewState :: term()}.
-callback handle_info(Info :: timeout | term(), State :: term()) ->
    {noreply, NewState :: term()}
    | {noreply, NewState :: term(), action()}
    | {stop, Reason :: term(), NewState :: term()}.
-callback handle_continue(Continue :: term(), State :: term()) ->
    {noreply, NewState :: term()}
    | {noreply, NewState :: term(), action()}
    | {stop, Reason :: term(), NewState :: term()}.
-callback terminate(Reason :: normal | shutdown | {shutdown, term()} | term(), State :: term()) -> term().
-callback code_change(OldVsn :: term(), State :: term(), Extra :: term()) ->
    {ok, NewState :: term()} | {error, Reason :: term()}.
-callback format_status(status()) -> status().

-optional_callbacks([
    handle_batch/2,
    handle_call/3,
    handle_cast/2,
    handle_info/2,
    handle_continue/2,
    terminate/2,
    code_change/3,
    format_status/1
]).

-define(DEFAULT_DRAIN, 1000).

%% Starting

%% @doc Starts a server without a link or a name. Returns as `gen_server:start/3' does.
-spec start(module(), Args :: term(), options()) -> start_ret().
start(Mod, Args, Options) ->
    with_options(Options, fun(Gen, Drain) -> gen:start(?MODULE, nolink, Mod, {Args, Drain}, Gen) end).

%% @doc Starts a named server without a link.
-spec start(server_name(), module(), Args :: term(), options()) -> start_ret().
start(Name, Mod, Args, Options) ->
    with_options(Options, fun(Gen, Drain) -> gen:start(?MODULE, nolink, Name, Mod, {Args, Drain}, Gen) end).

%% @doc Starts a server linked to the caller, which waits until `init/1' has returned.
-spec start_link(module(), Args :: term(), options()) -> start_ret().
start_link(Mod, Args, Options) ->
    with_options(Options, fun(Gen, Drain) -> gen:start(?MODULE, link, Mod, {Args, Drain}, Gen) end).

%% @doc Starts a named server linked to the caller.
%% A taken name gives `{error, {already_started, Pid}}'.
-spec start_link(server_name(), module(), Args :: term(), options()) -> start_ret().
start_link(Name, Mod, Args, Options) ->
    with_options(Options, fun(Gen, Drain) -> gen:start(?MODULE, link, Name, Mod, {Args, Drain}, Gen) end).

%% @doc Starts a server and monitors it, in one step: `{ok, {Pid, MonitorRef}}'.
-spec start_monitor(module(), Args :: term(), options()) -> start_mon_ret().
start_monitor(Mod, Args, Options) ->
    with_options(Options, fun(Gen, Drain) -> gen:start(?MODULE, monitor, Mod, {Args, Drain}, Gen) end).

%% @doc Starts a named server and monitors it.
-spec start_monitor(server_name(), module(), Args :: term(), options()) -> start_mon_ret().
start_monitor(Name, Mod, Args, Options) ->
    with_options(Options, fun(Gen, Drain) -> gen:start(?MODULE, monitor, Name, Mod, {Args, Drain}, Gen) end).

%% @doc Stops a server with reason `normal' and waits for its end.
%% Exits with `noproc' when there is none.
-spec stop(server_ref()) -> ok.
stop(Server) ->
    gen:stop(Server).

%% @doc Stops a server with `Reason' and waits at most `Timeout' milliseconds for its end.
%% Exits with `timeout' or `noproc'.
-spec stop(server_ref(), Reason :: term(), timeout()) -> ok.
stop(Server, Reason, Timeout) ->
    gen:stop(Server, Reason, Timeout).

%% Talking to a server

%% @doc As {@link call/3} with a time-out of 5000 milliseconds.
-spec call(server_ref(), Request :: term()) -> Reply :: term().
call(Server, Request) ->
    call(Server, Request, 5000).

%% @doc Sends a request and waits at most `Timeout' milliseconds for the answer.
%%
%% Exits as `gen_server:call/3' does, with `{Reason, {weir_server, call, Args}}', when the server is not
%% there, dies, or does not answer in time. A late answer never reaches the caller's mailbox.
%% Cost: one monitor, two messages.
-spec call(server_ref(), Request :: term(), timeout()) -> Reply :: term().
call(Server, Request, Timeout) ->
    try gen:call(Server, '$gen_call', Request, Timeout) of
        {ok, Reply} -> Reply
    catch
        exit:Reason -> exit({Reason, {?MODULE, call, [Server, Request, Timeout]}})
    end.

%% @doc Sends a message to be handled as a cast. Always `ok', whether the server exists or not.
%% Cost: one message.
-spec cast(server_ref(), Request :: term()) -> ok.
cast(Server, Request) ->
    gen_server:cast(Server, Request).

%% @doc Answers a call, from any process, at any time after the call was received.
-spec reply(from(), Reply :: term()) -> ok.
reply(From, Reply) ->
    gen:reply(From, Reply).

%% Entering the loop from a process of one's own

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

%% @doc Makes the calling process a weir_server. It must have been started through `proc_lib' and must
%% hold the name that it gives. Never returns; a bad option is an error `{bad_option, Key, Value}'.
-spec enter_loop(module(), options(), State :: term(), server_name() | pid(), action()) -> no_return().
enter_loop(Mod, Options, State, ServerName, Action) ->
    case split_options(Options) of
        {ok, Gen, Drain} ->
            Name = gen:get_proc_name(ServerName),
            _ = code:ensure_loaded(Mod),
            Server = weir_server_loop:new(
                gen:get_parent(), Name, Mod, gen:hibernate_after(Gen), Drain
            ),
            weir_server_loop:enter(Server, State, Action, gen:debug_options(Name, Gen));
        {error, Reason} ->
            error(Reason)
    end.

%% @private Called by gen in the new process.
-spec init_it(pid(), self | pid(), term(), module(), {term(), pos_integer()}, list()) -> no_return().
init_it(Starter, self, Name, Mod, Args, Options) ->
    init_it(Starter, self(), Name, Mod, Args, Options);
init_it(Starter, Parent, Name0, Mod, {Args, Drain}, Options) ->
    Name = gen:name(Name0),
    Debug = gen:debug_options(Name, Options),
    HibernateAfter = gen:hibernate_after(Options),
    Enter = fun(State, Action) ->
        Server = weir_server_loop:new(Parent, Name, Mod, HibernateAfter, Drain),
        proc_lib:init_ack(Starter, {ok, self()}),
        weir_server_loop:enter(Server, State, Action, Debug)
    end,
    case init(Mod, Args) of
        {returned, {ok, State}} ->
            Enter(State, infinity);
        {returned, {ok, State, Action} = Returned} ->
            case weir_server_loop:is_action(Action) of
                true -> Enter(State, Action);
                false -> fail(Starter, Name0, {error, {bad_return_value, Returned}}, {bad_return_value, Returned})
            end;
        {returned, {stop, Reason}} ->
            fail(Starter, Name0, {error, Reason}, Reason);
        {returned, ignore} ->
            fail(Starter, Name0, ignore, normal);
        {returned, Other} ->
            fail(Starter, Name0, {error, {bad_return_value, Other}}, {bad_return_value, Other});
        {raised, Class, Reason, Stacktrace} ->
            gen:unregister_name(Name0),
            proc_lib:init_ack(Starter, {error, weir_server_report:exit_reason(Class, Reason, Stacktrace)}),
            erlang:raise(Class, Reason, Stacktrace)
    end.

%% The name must be free again before the starter is told of the failure, or its next attempt would meet
%% already_started.
-spec fail(pid(), term(), Answer :: term(), ExitReason :: term()) -> no_return().
fail(Starter, Name, Answer, ExitReason) ->
    gen:unregister_name(Name),
    proc_lib:init_ack(Starter, Answer),
    exit(ExitReason).

init(Mod, Args) ->
    try
        {returned, Mod:init(Args)}
    catch
        throw:Value -> {returned, Value};
        Class:Reason:Stacktrace -> {raised, Class, Reason, Stacktrace}
    end.

%% Options

with_options(Options, Start) ->
    case split_options(Options) of
        {ok, Gen, Drain} -> Start(Gen, Drain);
        {error, _} = Error -> Error
    end.

split_options(Options) when is_map(Options) ->
    split_options(maps:to_list(Options));
split_options(Options) when is_list(Options) ->
    split_options(Options, [], ?DEFAULT_DRAIN).

split_options([], Gen, Drain) ->
    {ok, lists:reverse(Gen), Drain};
split_options([{drain, N} | Rest], Gen, _) when is_integer(N), N > 0 ->
    split_options(Rest, Gen, N);
split_options([{Key, Value} = Option | Rest], Gen, Drain) ->
    case is_gen_option(Key, Value) of
        true -> split_options(Rest, [Option | Gen], Drain);
        false -> {error, {bad_option, Key, Value}}
    end;
split_options([Other | _], _, _) ->
    {error, {bad_option, Other, undefined}}.

is_gen_option(timeout, Value) -> is_timeout(Value);
is_gen_option(hibernate_after, Value) -> is_timeout(Value);
is_gen_option(debug, Value) -> is_list(Value);
is_gen_option(spawn_opt, Value) -> is_list(Value);
is_gen_option(_, _) -> false.

is_timeout(infinity) -> true;
is_timeout(Value) -> is_integer(Value) andalso Value >= 0.
