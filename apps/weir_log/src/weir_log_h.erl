%% @doc A handler for OTP's logger that writes to a weir_log.
%%
%% ```
%% {kernel, [{logger, [
%%     {handler, default, weir_log_h, #{config => #{file => "log/erlang.log", rotate => #{interval => daily}}}}
%% ]}]}.
%% '''
%%
%% A caller formats its event itself, and hands the bytes to the log's writer by {@link weir_log:alog/3}: at once while
%% it is within its window, otherwise after a wait. So the writer's mailbox and memory are bounded, and a process that
%% logs more than the disk can take is slowed down, and no other. With an `ack' it waits for every event instead ({@link
%% weir_log:log/3}).
%%
%% No process waits for longer than `timeout', five seconds unless told, and once one has, none waits at all until the
%% disk answers: what would have to wait is dropped. The log counts that by level, and writes an event at level warning,
%% in the handler's format, that says how many there were, from when to when. With `overload => {drop, error}' events
%% below that level are dropped in place of waiting in any case.
%%
%% Who never waits. Processes that the node cannot do without: those of the kernel (the file server, the code server,
%% global, net_kernel, user, logger's own and so the log's), application masters, the application controller, init and
%% the runtime's own; and those of the application weir_log. Their events are taken in as long as fewer than `max_bytes'
%% wait, and dropped and counted above that. They are known by their group leader: the kernel's application master,
%% init, or themselves.
%%
%% What runs. logger_sup, a supervisor of the kernel that outlives all applications, has a child for each handler: a
%% supervisor of one process, the manager (weir_log_h_manager), which has the log. So a handler in `sys.config' works
%% before any application is started, and until the last one has stopped; the application weir_log need not run. When
%% the node or the handler is stopped, what was logged before is written and made durable first, for which there are
%% five seconds.
%%
%% What fails. {@link log/2} never raises, whatever the formatter does (weir_log_h_format) or the log answers, so logger
%% does not remove the handler, and the caller does not see it. An event that is not in the file is counted by its
%% level, by the log, also while the log is down. A failure is reported once, to the other handlers, or on standard
%% error when there is none, and so is its end, to all; how many events of which levels are missing, the file tells.
%%
%% What does not come here. Events of the emulator and of other nodes come by way of OTP's logger_proxy, one process,
%% which is the kernel's, so it does not wait; it drops by limits of its own as well (see `logger:set_proxy_config/1').
%%
%% How it differs from logger_std_h: no modes, no drops and no flushes at fixed queue lengths, no limit on bursts unless
%% `rate' asks for it; rotation by time as well; an event that was acknowledged as synced is on the disk.
-module(weir_log_h).

-export([adding_handler/1, changing_config/3, removing_handler/1, log/2, filter_config/1]).
-export([sync/1, info/1, name/1, id/1]).

-export_type([config/0, info/0, config_error/0]).

-include("weir_log_h.hrl").

-type config() :: #{
    %% The file, or what the names of the shards' files begin with.
    file := file:filename_all() | standard_io,
    %% What a process waits for when it logs: nothing while it is within its window (the default), or that the event has
    %% been taken in by the writer, or written, or made durable.
    ack => none | accepted | written | synced,
    %% Events of this level and above are durable when the process that logs them goes on. Default: none.
    sync_on => logger:level() | none,
    %% Of a level that is there so many events are let in within a second, and more dropped. Default: `#{}'.
    rate => #{logger:level() => pos_integer()},
    %% How long a process waits at most, milliseconds. Default: 5000.
    timeout => timeout(),
    %% What was written is synced so many milliseconds later at most. Default: 5000.
    sync_interval => pos_integer() | infinity,
    %% All other keys are those of the log, except `newline', since the formatter decides where lines end, `heal', which
    %% is on, and `tell' and `words', which are the handler's.
    atom() => term()
}
    | [{atom(), term()}].
%% The key `config' of a handler's configuration: a map, or a keyword list, as are `rate' and `rotate' in it.

-type info() :: #{
    %% `ok' if all files can be written; `failing'; `unknown' while a writer does not answer; `down' while the log does
    %% not run.
    state := ok | failing | unknown | down,
    %% Events that are not in the file, by level. Levels without any are not there. What was lost with a writer that was
    %% killed has none: it is among the log's counters.
    lost := #{logger:level() => pos_integer()},
    %% Of the log; `down' while it is not running.
    log := map() | down
}.

-type config_error() ::
    {missing_option, file} | {bad_option, Key :: term(), Value :: term()} | {cannot_change, Key :: atom()} | term().
%% Why a configuration was refused; any other term: why the log could not be started.

-define(SUPERVISOR, logger_sup).

-define(COUNT_BITS, 24).

%% Where the handle of a handler is read by those who do not log.
-define(TERM(Id), {?MODULE, Id}).

%% What the names of managers begin with.
-define(MANAGER, "weir_log_h_").

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
    {group_leader, Kernel} = process_info(whereis(?SUPERVISOR), group_leader),
    Handle = configured(Options, #handle{
        id = Id,
        log = name(Id),
        words = [weir_log_terms:new_words() || _ <- lists:seq(1, maps:get(shards, Options, 1))],
        started = atomics:new(1, []),
        kernel = Kernel,
        init = whereis(init),
        controller = whereis(application_controller)
    }),
    case start_manager(Id, Handle, Options) of
        ok ->
            ok = persistent_term:put(?TERM(Id), Handle),
            {ok, Config#{config => Options#{?HANDLE => Handle}}};
        {error, Reason} ->
            {error, Reason}
    end.

configured(#{ack := Ack, sync_on := SyncOn, rate := Rate}, Handle) ->
    Rates = [{Level, {Place, Most}} || {Place, {Level, Most}} <- lists:enumerate(maps:to_list(Rate))],
    Rated = atomics:new(max(1, length(Rates)), []),
    Handle#handle{ack = Ack, sync_on = SyncOn, rates = maps:from_list(Rates), rated = Rated}.

start_manager(Id, Handle, Options) ->
    Child = #{
        id => {?MODULE, Id},
        start => {weir_log_h_sup, start_link, []},
        restart => temporary,
        shutdown => infinity,
        type => supervisor
    },
    case supervisor:start_child(?SUPERVISOR, Child) of
        {ok, Sup} ->
            LogOptions = weir_log_opts:absolute(weir_log_h_config:log_options(Options, Handle)),
            case weir_log_h_sup:start_manager(Sup, manager(Id), Handle, LogOptions) of
                ok ->
                    ok;
                {error, Reason} ->
                    ok = stop(Id),
                    {error, Reason}
            end;
        {error, Reason} ->
            {error, Reason}
    end.

%% @doc Checks a change of the configuration and makes it.
%%
%% While the handler runs, all options may change but `file', `shards' and `frame'. For another file, remove the handler
%% and add it again.
-spec changing_config(set | update, Old :: logger:handler_config(), New :: logger:handler_config()) ->
    {ok, logger:handler_config()} | {error, config_error()}.
changing_config(SetOrUpdate, #{id := Id, config := #{?HANDLE := Handle} = Old}, NewConfig) ->
    Given = maps:get(config, NewConfig, #{}),
    case weir_log_h_config:change(SetOrUpdate, maps:remove(?HANDLE, Old), without_handle(Given)) of
        {ok, Same} when Same#{?HANDLE => Handle} =:= Old ->
            %% The level or the formatter: nothing that the log need be told.
            {ok, NewConfig#{config => Old}};
        {ok, Options} ->
            Changed = configured(Options, Handle),
            case weir_log_h_manager:change(manager(Id), Changed, weir_log_h_config:log_options(Options, Handle)) of
                ok ->
                    ok = persistent_term:put(?TERM(Id), Changed),
                    {ok, NewConfig#{config => Options#{?HANDLE => Changed}}};
                {error, Reason} ->
                    {error, Reason}
            end;
        {error, Reason} ->
            {error, Reason}
    end.

%% @doc Writes what was logged, and ends the log. Takes at most some five seconds if the disk does not answer.
-spec removing_handler(logger:handler_config()) -> ok.
removing_handler(#{id := Id}) ->
    ok = stop(Id),
    _ = persistent_term:erase(?TERM(Id)),
    ok.

stop(Id) ->
    %% While the node is being stopped, the supervisor may be gone, or about to stop this child by itself.
    try supervisor:terminate_child(?SUPERVISOR, {?MODULE, Id}) of
        _ -> ok
    catch
        exit:_ -> ok
    end.

%% @doc Formats an event and hands it to the log.
%%
%% Cost: the formatter's, some microseconds, and what {@link weir_log:alog/3} or {@link weir_log:log/3} takes.
-spec log(logger:log_event(), logger:handler_config()) -> ok.
log(#{meta := #{weir_log := Log}}, #{config := #{?HANDLE := #handle{log = Log}}}) ->
    %% That this handler fails cannot be told by this handler.
    ok;
log(#{level := Level} = Event, #{config := #{?HANDLE := #handle{log = Log} = Handle}} = Config) ->
    case is_within_rate(Level, Handle) andalso hand_over(Event, Config, Handle) of
        false -> not_logged(weir_log_client:drop(Log, Level), Level, Handle);
        Answer -> not_logged(Answer, Level, Handle)
    end.

%% What a log does not write it counts, unless there is none.
not_logged({error, no_log}, Level, #handle{words = [Words | _]}) -> weir_log_drops:drop(Words, Level);
not_logged(_OkOrCounted, _Level, _Handle) -> ok.

hand_over(#{level := Level} = Event, Config, #handle{log = Log} = Handle) ->
    case may_wait(Handle) andalso ack(Level, Handle) of
        false -> weir_log_client:offer(Log, weir_log_h_format:entry(Event, Config), Level);
        none -> weir_log:alog(Log, fun() -> weir_log_h_format:entry(Event, Config) end, Level);
        Ack -> weir_log_client:log(Ack, Log, weir_log_h_format:entry(Event, Config), Level)
    end.

is_within_rate(Level, #handle{rates = Rates, rated = Rated}) ->
    case Rates of
        #{Level := {Place, Most}} -> is_within(Rated, Place, Most);
        #{} -> true
    end.

%% The word has the second above, and the events in it below. The clock is read after the word: who had read it before,
%% and was held up, would begin a second anew that is over.
is_within(Rated, Place, Most) ->
    Word = atomics:add_get(Rated, Place, 1),
    case erlang:system_time(second) of
        Second when Word bsr ?COUNT_BITS =:= Second ->
            Word band ((1 bsl ?COUNT_BITS) - 1) =< Most;
        Second ->
            case atomics:compare_exchange(Rated, Place, Word, (Second bsl ?COUNT_BITS) + 1) of
                ok -> true;
                _ -> is_within(Rated, Place, Most)
            end
    end.

ack(_Level, #handle{sync_on = none, ack = Ack}) ->
    Ack;
ack(Level, #handle{sync_on = SyncOn, ack = Ack}) ->
    case logger:compare_levels(Level, SyncOn) of
        lt -> Ack;
        _ -> synced
    end.

may_wait(#handle{kernel = Kernel, init = Init, controller = Controller}) ->
    case group_leader() of
        Kernel -> false;
        Init -> false;
        Leader -> Leader =/= self() andalso Controller =/= self() andalso not is_of_weir_log(get('$ancestors'))
    end.

%% Ancestors are pids, or the names of those that have one; and what a user has put there.
is_of_weir_log([weir_log_sup | _]) -> true;
is_of_weir_log([_ | Ancestors]) -> is_of_weir_log(Ancestors);
is_of_weir_log(_) -> false.

%% @doc The configuration as users see it.
-spec filter_config(logger:handler_config()) -> logger:handler_config().
filter_config(#{config := Options} = Config) ->
    Config#{config => without_handle(Options)};
filter_config(Config) ->
    Config.

without_handle(Options) when is_map(Options) -> maps:remove(?HANDLE, Options);
without_handle(Options) -> Options.

%% @doc Returns when what the handler was given before is durable, or `timeout' is over. Cost: at least one sync of each
%% file.
-spec sync(logger:handler_id()) -> ok | {error, no_handler | {badarg, term()} | weir_log:error()}.
sync(Id) when is_atom(Id) ->
    case handle(Id) of
        {ok, #handle{log = Log}} -> weir_log:sync(Log);
        error -> {error, no_handler}
    end;
sync(Id) ->
    %% As logger's own handlers answer.
    {error, {badarg, Id}}.

%% @doc What the handler and its log have done.
-spec info(logger:handler_id()) -> {ok, info()} | {error, no_handler | {badarg, term()}}.
info(Id) when is_atom(Id) ->
    case handle(Id) of
        {ok, #handle{log = Log, words = Words}} ->
            LogInfo =
                case weir_log:info(Log) of
                    {ok, Info} -> Info;
                    {error, no_log} -> down
                end,
            {ok, #{state => state(LogInfo), lost => weir_log_drops:by_level(Words), log => LogInfo}};
        error ->
            {error, no_handler}
    end;
info(Id) ->
    {error, {badarg, Id}}.

state(down) ->
    down;
state(#{shards := Shards}) ->
    Files = [File || #{file := File} <- Shards],
    case {[failing || #{state := State} <- Files, State =/= ok], lists:member(busy, Files)} of
        {[_ | _], _} -> failing;
        {[], true} -> unknown;
        {[], false} -> ok
    end.

%% The handle is filtered out of what logger:get_handler_config/1 gives. Nobody is asked for it: the manager may wait
%% for a disk.
handle(Id) ->
    case persistent_term:get(?TERM(Id), none) of
        none -> error;
        Handle -> {ok, Handle}
    end.

%% @doc The name of a handler's log, for weir_log's functions.
-spec name(logger:handler_id()) -> {weir_log_h, logger:handler_id()}.
name(Id) -> {?MODULE, Id}.

%% One atom for each handler, whose id is an atom too.
manager(Id) -> list_to_atom(?MANAGER ++ atom_to_list(Id)).

%% @private The handler whose manager has this name, if one has.
-spec id(Name :: term()) -> {ok, logger:handler_id()} | error.
id(Name) when is_atom(Name) ->
    case atom_to_list(Name) of
        ?MANAGER ++ Id -> {ok, list_to_existing_atom(Id)};
        _ -> error
    end;
id(_) ->
    error.
