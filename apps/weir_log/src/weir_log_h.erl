%% @doc A handler for OTP's logger that writes to a weir_log.
%%
%% ```
%% {kernel, [{logger, [
%%     {handler, default, weir_log_h, #{config => #{file => "log/erlang.log", rotate => #{interval => daily}}}}
%% ]}]}.
%% '''
%%
%% A caller formats its event itself, and hands the bytes to the log's writer by {@link weir_log:alog/3}: at once while
%% it is within its window, otherwise after a wait. So the writer's mailbox and memory are bounded, nothing is dropped,
%% and a process that logs more than the disk can take is slowed down, and no other. With an `ack' it waits for every
%% event instead ({@link weir_log:log/2}).
%%
%% What runs. logger_sup, a supervisor of the kernel that outlives all applications, has a child for each handler: a
%% supervisor of one process, the keeper (weir_log_h_keeper), which has the log. So a handler in `sys.config' works
%% before any application is started, and until the last one has stopped; the application weir_log need not run. When
%% the node or the handler is stopped, what was logged before is written and made durable first, for which there are
%% five seconds.
%%
%% Who may not be slowed down drops: with `overload => {drop, error}', events below that level are dropped while
%% `max_bytes' wait, or the process has a window of them waiting. The log counts them by level, and writes an event at
%% level warning, in the handler's format, that says how many there were, from when to when.
%%
%% What fails. {@link log/2} never raises, whatever the formatter does (weir_log_h_format) or the log answers, so logger
%% does not remove the handler, and the caller does not see it. An event that could not be handed over is counted by its
%% level. The first failure is reported by an event to the other handlers, or on standard error when there is none;
%% further ones are only counted, until the log works again, which another event reports, with what was lost, by level,
%% and since when. The keeper looks after the log all the time: it starts it again when it has ended, and opens its
%% files again when a sync has failed.
%%
%% What may not wait. The log's own processes, the keeper, the log's supervisors and writers, log too: a supervisor
%% report when a writer was restarted, a crash report of a writer. If they waited for the writer, it would be for ever;
%% and so it would be for those of two handlers that wait for each other. They are known by logger_sup among their
%% ancestors. Nor may logger_sup wait, which has to stop the handler, nor what all logs share (weir_log_node_sup). What
%% these log is formatted as all else, and sent to the keeper, which has it written by a process that may wait; a
%% hundred such events may be under way, more are counted as lost.
%%
%% What does not come here. Events of the emulator and of other nodes come by way of OTP's logger_proxy, one process,
%% which waits as all do; while it does, it drops by limits of its own (see `logger:set_proxy_config/1').
%%
%% How it differs from logger_std_h: no modes, no drops and no flushes at fixed queue lengths, no limit on bursts;
%% rotation by time as well; an event that was acknowledged as synced is on the disk. It only writes to files.
-module(weir_log_h).

-export([adding_handler/1, changing_config/3, removing_handler/1, log/2, filter_config/1]).
-export([sync/1, info/1, name/1, id/1]).

-export_type([config/0, info/0, config_error/0]).

-include("weir_log_h.hrl").

-type config() :: #{
    %% The file, or what the names of the shards' files begin with.
    file := file:filename_all(),
    %% What a process waits for when it logs: nothing while it is within its window (the default), or that the event has
    %% been taken in by the writer, or written, or made durable.
    ack => none | accepted | written | synced,
    %% Milliseconds from one sync of the files to the next; none is made while nothing has been logged. Default: 5000.
    sync_interval => pos_integer() | infinity,
    %% All other keys are those of the log, except `newline': the formatter decides where lines end.
    atom() => term()
}.
%% The key `config' of a handler's configuration.

-type info() :: #{
    %% `failing' since the first failure, until a sync has succeeded; `closed' when the handler has been removed.
    state := ok | failing | closed,
    %% Events that could not be handed over to the log, by level. Levels without any are not there.
    lost := #{logger:level() => pos_integer()},
    %% Of the log; `down' while it is not running.
    log := map() | down
}.

-type config_error() ::
    {missing_option, file} | {bad_option, Key :: term(), Value :: term()} | {cannot_change, Key :: atom()} | term().
%% Why a configuration was refused; any other term: why the log could not be started.

-define(SUPERVISOR, logger_sup).
-define(APPLICATION_SUPERVISOR, weir_log_sup).
-define(NODE_SUPERVISOR, weir_log_node_sup).
-define(OWN_SUPERVISORS, [{supervisor, weir_log_h_sup, 1}, {supervisor, ?NODE_SUPERVISOR, 1}]).

%% What the names of keepers begin with.
-define(KEEPER, "weir_log_h_").

%% @doc Starts the log of a handler that is being added.
%%
%% Fails, and with it `logger:add_handler/3', if an option is wrong or the file cannot be opened.
-spec adding_handler(logger:handler_config()) -> {ok, logger:handler_config()} | {error, config_error()}.
adding_handler(Config) ->
    case weir_log_h_config:check(maps:get(config, Config, #{})) of
        {ok, Options} ->
            case weir_log_node_sup:ensure() of
                ok -> start(Config, Options);
                {error, Reason} -> {error, Reason}
            end;
        {error, Reason} ->
            {error, Reason}
    end.

start(#{id := Id} = Config, Options) ->
    case start_keeper(Id, Options) of
        {ok, Handle} -> {ok, Config#{config => Options#{?HANDLE => Handle}}};
        {error, Reason} -> {error, Reason}
    end.

start_keeper(Id, Options) ->
    Keeper = keeper(Id),
    Words = weir_log_h_words:new(),
    Child = #{
        id => {?MODULE, Id},
        start => {weir_log_h_sup, start_link, []},
        restart => temporary,
        shutdown => infinity,
        type => supervisor
    },
    case supervisor:start_child(?SUPERVISOR, Child) of
        {ok, Sup} ->
            case weir_log_h_sup:start_keeper(Sup, Id, Keeper, Words, Options) of
                ok ->
                    {ok, weir_log_h_keeper:new_handle(Id, Keeper, Words, Options)};
                {error, Reason} ->
                    ok = stop(Id),
                    {error, Reason}
            end;
        {error, Reason} ->
            {error, Reason}
    end.

%% @doc Checks a change of the configuration and makes it.
%%
%% While the handler runs, `sync_interval' may change, and what is logger's: level, filters, formatter. For another log,
%% add a second handler, and remove the first.
-spec changing_config(set | update, Old :: logger:handler_config(), New :: logger:handler_config()) ->
    {ok, logger:handler_config()} | {error, config_error()}.
changing_config(SetOrUpdate, #{config := #{?HANDLE := Handle} = Old}, NewConfig) ->
    Given = maps:get(config, NewConfig, #{}),
    case weir_log_h_config:change(SetOrUpdate, maps:remove(?HANDLE, Old), without_handle(Given)) of
        {ok, Options} ->
            ok = weir_log_h_keeper:change(Handle#handle.keeper, Options),
            {ok, NewConfig#{config => Options#{?HANDLE => Handle}}};
        {error, Reason} ->
            {error, Reason}
    end.

%% @doc Writes what was logged, and ends the log. Takes at most some five seconds if the disk does not answer.
-spec removing_handler(logger:handler_config()) -> ok.
removing_handler(#{id := Id}) ->
    stop(Id).

stop(Id) ->
    %% While the node is being stopped, the supervisor may be gone, or about to stop this child by itself.
    try supervisor:terminate_child(?SUPERVISOR, {?MODULE, Id}) of
        _ -> ok
    catch
        exit:_ -> ok
    end.

%% @doc Formats an event and hands it to the log.
%%
%% Cost: the formatter's, some microseconds, and what {@link weir_log:alog/3} or {@link weir_log:log/2} takes.
-spec log(logger:log_event(), logger:handler_config()) -> ok.
log(#{meta := #{?MODULE := Id}}, #{id := Id}) ->
    %% That this handler fails cannot be told by this handler.
    ok;
log(#{level := Level} = Event, #{config := #{?HANDLE := Handle}} = Config) ->
    try hand_over(Event, Config, Handle) of
        ok -> ok;
        %% Counted and told by the log.
        {error, {dropped, _}} -> ok;
        {error, Reason} -> weir_log_h_keeper:failed(Reason, Level, Handle)
    catch
        _:Reason -> weir_log_h_keeper:failed(Reason, Level, Handle)
    end.

hand_over(#{level := Level} = Event, Config, #handle{log = Log, ack = Ack} = Handle) ->
    case may_wait(Handle) of
        true when Ack =:= none ->
            %% What is dropped need not be formatted.
            case weir_log:admit(Log, Level) of
                ok -> weir_log:alog(Log, weir_log_h_format:entry(Event, Config), Level);
                {error, _} = Refused -> Refused
            end;
        true ->
            weir_log:log(Log, weir_log_h_format:entry(Event, Config));
        false ->
            weir_log_h_keeper:own_event(weir_log_h_format:entry(Event, Config), Level, Handle)
    end.

%% Ancestors are pids, or the names of those that have one. Of logger_sup's own children, logger_proxy and OTP's
%% handlers wait as all do.
may_wait(#handle{logger_sup = LoggerSup}) ->
    case get('$ancestors') of
        _ when self() =:= LoggerSup ->
            false;
        [Parent | _] when Parent =:= ?SUPERVISOR; Parent =:= ?APPLICATION_SUPERVISOR ->
            not lists:member(get('$initial_call'), ?OWN_SUPERVISORS);
        [_ | _] = Ancestors ->
            not (lists:member(?SUPERVISOR, Ancestors) orelse lists:member(?NODE_SUPERVISOR, Ancestors));
        _ ->
            true
    end.

%% @doc The configuration as users see it.
-spec filter_config(logger:handler_config()) -> logger:handler_config().
filter_config(#{config := Options} = Config) ->
    Config#{config => without_handle(Options)};
filter_config(Config) ->
    Config.

without_handle(Options) when is_map(Options) -> maps:remove(?HANDLE, Options);
without_handle(Options) -> Options.

%% @doc Returns when what the handler was given before is durable. Cost: at least one sync of each file.
-spec sync(logger:handler_id()) -> ok | {error, no_handler | term()}.
sync(Id) ->
    case handle(Id) of
        {ok, #handle{log = Log}} -> weir_log_h_keeper:attempt(fun() -> weir_log:sync(Log) end);
        error -> {error, no_handler}
    end.

%% @doc What the handler and its log have done.
-spec info(logger:handler_id()) -> {ok, info()} | {error, no_handler}.
info(Id) ->
    case handle(Id) of
        {ok, #handle{log = Log, words = Words}} ->
            LogInfo =
                try weir_log:info(Log) of
                    {ok, Info} -> Info;
                    {error, _} -> down
                catch
                    _:_ -> down
                end,
            {ok, #{state => weir_log_h_words:state(Words), lost => weir_log_h_words:lost(Words), log => LogInfo}};
        error ->
            {error, no_handler}
    end.

%% The handle is filtered out of what logger:get_handler_config/1 gives; the keeper knows it as well.
handle(Id) when is_atom(Id) -> weir_log_h_keeper:handle(keeper(Id));
handle(Id) -> error(badarg, [Id]).

%% @doc The name of a handler's log, for weir_log's functions.
-spec name(logger:handler_id()) -> {weir_log_h, logger:handler_id()}.
name(Id) -> {?MODULE, Id}.

%% One atom for each handler, whose id is an atom too.
keeper(Id) -> list_to_atom(?KEEPER ++ atom_to_list(Id)).

%% @private The handler whose keeper has this name, if one has.
-spec id(Name :: term()) -> {ok, logger:handler_id()} | error.
id(Name) when is_atom(Name) ->
    case atom_to_list(Name) of
        ?KEEPER ++ Id -> {ok, list_to_existing_atom(Id)};
        _ -> error
    end;
id(_) ->
    error.
