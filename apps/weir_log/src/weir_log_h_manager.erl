%% @doc The manager of a handler: starts its log, starts it again when it has ended, and ends it with the handler.
%%
%% ```
%%            started                 exit of the log
%%   down ----------------> running -----------------> down (again after a second)
%% '''
%% All else is the log's: it counts what is not written, tells of it in its file and reports through logger that it
%% cannot write, syncs from time to time, and opens its files anew when a sync has failed. The words that it counts in
%% belong to the handler, so they outlive it, and what is logged while it is down is counted there too.
%%
%% The manager never waits for the log but until its files are open, and for ?CLOSE_MS at the end: then the log ends by
%% itself.
%% @private
-module(weir_log_h_manager).
-behaviour(gen_server).

-export([start_link/3, change/3]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include("weir_log.hrl").
-include("weir_log_h.hrl").

%% How long it takes until a log that does not start is started again.
-define(RETRY_MS, 1_000).
%% How long the last writes may take.
-define(CLOSE_MS, 5_000).

-record(state, {
    handle :: #handle{},
    options :: map(),
    %% The log's supervisor.
    log = down :: pid() | down
}).

%% @doc Starts the manager of a handler, and its log. The error of the log's start, when it is the handler's first:
%% `{shutdown, {not_started, Reason}}'.
-spec start_link(Name :: atom(), #handle{}, map()) -> {ok, pid()} | {error, term()}.
start_link(Name, Handle, Options) ->
    Start = fun() -> gen_server:start_link({local, Name}, ?MODULE, {Handle, Options}, []) end,
    case weir_log_start:start(Start) of
        {ok, Pid} -> {ok, Pid};
        ignore -> {error, ignore};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Changes the options of the log, and of every one that is started in its place.
-spec change(Name :: atom(), #handle{}, map()) -> ok | {error, term()}.
change(Name, Handle, Options) ->
    case weir_log_opts:check(Options) of
        {ok, #conf{given = Given, window = Window}} ->
            try gen_server:call(Name, {change, Handle, Options}) of
                #{file := File} ->
                    %% With the defaults of those that are not mentioned any more. Whatever the answer, the log has
                    %% them, or the next one will, and reports what it cannot do.
                    _ = weir_log:change(Handle#handle.log, Given#{file := File, window => Window}),
                    ok
            catch
                %% It is not there, or waits for a disk.
                exit:{Reason, _} -> {error, Reason}
            end;
        {error, Reason} ->
            {error, Reason}
    end.

%% @private
-spec init({#handle{}, map()}) -> {ok, #state{}} | {stop, {shutdown, {not_started, term()}}}.
init({#handle{started = Started} = Handle, Options}) ->
    _ = process_flag(trap_exit, true),
    case start_log(#state{handle = Handle, options = Options}) of
        {ok, State} ->
            ok = atomics:put(Started, 1, 1),
            {ok, State};
        {{error, Reason}, State} ->
            %% Only who adds the handler can be told.
            case atomics:get(Started, 1) of
                0 -> {stop, {shutdown, {not_started, Reason}}};
                1 -> {ok, again(State)}
            end
    end.

start_log(#state{handle = #handle{log = Name}, options = Options} = State) ->
    %% It may raise while what all logs share goes.
    try weir_log:start_link(Name, Options) of
        {ok, Log} -> {ok, State#state{log = Log}};
        {error, Reason} -> {{error, Reason}, State#state{log = down}}
    catch
        exit:Reason -> {{error, Reason}, State#state{log = down}};
        error:system_limit -> {{error, system_limit}, State#state{log = down}}
    end.

%% Without room for the process that reports, the report comes later.
report(Reason, #state{handle = #handle{log = Name}}) ->
    case weir_log_event:ended(Name, Reason) of
        ok ->
            ok;
        no_room ->
            _ = erlang:send_after(?RETRY_MS, self(), {report, Reason}),
            ok
    end.

again(State) ->
    _ = erlang:send_after(?RETRY_MS, self(), start),
    State#state{log = down}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) ->
    {reply, map() | [tuple()] | {error, {bad_call, term()}}, #state{}}.
%% As a supervisor answers, for the release handler.
handle_call(which_children, _From, #state{log = Log} = State) ->
    {reply, [{log, Log, supervisor, [weir_log_log_sup]} || is_pid(Log)], State};
handle_call({change, Handle, Options}, _From, #state{options = #{file := File}} = State) ->
    %% The name as it was made absolute, whatever the working directory is now.
    Changed = Options#{file := File},
    {reply, Changed, State#state{handle = Handle, options = Changed}};
handle_call(Request, _From, State) -> {reply, {error, {bad_call, Request}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Stray, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({'EXIT', Log, Reason}, #state{log = Log} = State) ->
    ok = report(Reason, State),
    {noreply, again(State)};
handle_info({report, Reason}, State) ->
    ok = report(Reason, State),
    {noreply, State};
handle_info(start, #state{log = down} = State) ->
    case start_log(State) of
        {ok, Started} ->
            {noreply, Started};
        {{error, _}, Down} ->
            %% What all logs share may have ended with the application. It is started by the kernel's supervisor, who
            %% may just be waiting for this process to end.
            _ = try
                spawn(fun weir_log_node_sup:ensure/0)
            catch
                error:system_limit -> none
            end,
            {noreply, again(Down)}
    end;
handle_info(_Other, State) ->
    %% A log that could not be started has ended.
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{log = down}) ->
    ok;
terminate(_Reason, #state{log = Log}) ->
    %% As its parent may. The log writes and syncs what it has.
    true = exit(Log, shutdown),
    receive
        {'EXIT', Log, _} -> ok
    after ?CLOSE_MS -> ok
    end.
