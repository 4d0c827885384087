%% @doc The keeper of a handler: has its log, syncs it, reports when it fails, and starts it again.
%%
%% It never waits for the log itself, except until its files are open, so it answers logger whatever the disk does. What
%% may take long is done by a process linked to it, the hand (weir_log_h_hand), one thing at a time: a sync, an event of
%% the log's own processes, or the end.
%%
%% ```
%%            started                 exit of the log
%%   down ----------------> running -----------------> down (again after a second)
%% '''
%%
%% Each `sync_interval' it syncs the log and looks whether all files can be written: callers that do not wait are not
%% told that they cannot. Without an interval it only looks, each five seconds. While the handler fails, the keeper
%% tries every second: the same if the log runs, with the files opened again before it if it failed the last time, or a
%% start. The first success ends the failure.
%%
%% Who is killed leaves this behind. The hand: what it was doing is counted as lost if it was an event, and another one
%% is started. The log: events are lost and counted until it runs again. The keeper: takes the log and the hand with it,
%% as both are linked; its supervisor starts another, which opens the log again, or goes on trying. What the keeper knew
%% is in the words (weir_log_h_words), except events of the log's own processes, which are lost uncounted.
-module(weir_log_h_keeper).
-behaviour(gen_server).

-export([start_link/4, new_handle/4, change/2, handle/1, failed/3, own_event/3, attempt/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include("weir_log_h.hrl").

%% How long it takes until a log that fails is looked at again, and one that is not synced from time to time.
-define(RETRY_MS, 1_000).
-define(LOOK_MS, 5_000).
%% How long the last writes may take.
-define(CLOSE_MS, 5_000).
%% How many events of the log's own processes may wait for being written.
-define(MAX_OWN, 100).
%% How often one of them is sent while the writer is dead, which is told at once, and how long it takes to the next try.
-define(TRIES, 20).
-define(TRY_MS, 100).

-record(state, {
    handle :: #handle{},
    options :: map(),
    %% The log's supervisor.
    log = down :: pid() | down,
    %% A process that may wait, and what it is doing.
    hand :: pid(),
    doing = nothing :: nothing | sync | ensure | {event, logger:level()},
    own = queue:new() :: queue:queue({logger:level(), binary()}),
    sync_due = false :: boolean(),
    %% Whether what all logs share is to be looked after, since the log does not start.
    ensure_due = false :: boolean(),
    %% Of the last sync that failed: the files are opened again before the next.
    reopen = false :: boolean(),
    timer :: reference() | none,
    %% Since when the handler fails, in system time.
    failing = no :: no | {since, MicroSeconds :: integer()},
    %% What was lost and has been reported.
    told = #{} :: #{logger:level() => pos_integer()}
}).

%% @doc Starts it, and the log. The error of the log's start, when it is the first: `{shutdown, {not_started, Reason}}'.
-spec start_link(logger:handler_id(), atom(), weir_log_h_words:words(), map()) -> {ok, pid()} | {error, term()}.
start_link(Id, Name, Words, Options) ->
    Handle = new_handle(Id, Name, Words, Options),
    case gen_server:start_link({local, Name}, ?MODULE, {Handle, Options}, []) of
        {ok, Pid} -> {ok, Pid};
        ignore -> {error, ignore};
        {error, Reason} -> {error, Reason}
    end.

%% @doc What callers and the keeper know of the handler.
-spec new_handle(logger:handler_id(), atom(), weir_log_h_words:words(), map()) -> #handle{}.
new_handle(Id, Name, Words, #{ack := Ack}) ->
    LoggerSup = whereis(logger_sup),
    true = is_pid(LoggerSup),
    #handle{id = Id, log = weir_log_h:name(Id), keeper = Name, logger_sup = LoggerSup, words = Words, ack = Ack}.

%% @doc Takes over changed options.
-spec change(Name :: atom(), map()) -> ok.
change(Name, Options) -> gen_server:cast(Name, {change, Options}).

%% @doc The handle of the handler with this keeper.
-spec handle(Name :: atom()) -> {ok, #handle{}} | error.
handle(Name) ->
    try gen_server:call(Name, handle) of
        Handle -> {ok, Handle}
    catch
        exit:_ -> error
    end.

%% @doc An event was not handed over: counts it, and tells the keeper if it is the first.
-spec failed(Reason :: term(), logger:level(), #handle{}) -> ok.
failed(Reason, Level, #handle{keeper = Name, words = Words}) ->
    ok = weir_log_h_words:lose(Level, Words),
    case weir_log_h_words:fail(Words) of
        true -> gen_server:cast(Name, {failing, Reason});
        false -> ok
    end.

%% @doc An event of a process that may not wait for the log. Without a keeper it is lost.
-spec own_event(binary(), logger:level(), #handle{}) -> ok | {error, no_keeper}.
own_event(Entry, Level, #handle{keeper = Name}) ->
    case whereis(Name) of
        Keeper when is_pid(Keeper) -> gen_server:cast(Keeper, {own_event, Level, Entry});
        _ -> {error, no_keeper}
    end.

%% @doc What a function of weir_log gives, or what it raises, as an error.
-spec attempt(fun(() -> ok | {ok, term()} | {error, term()})) -> ok | {error, term()}.
attempt(Fun) ->
    try Fun() of
        {error, Reason} -> {error, Reason};
        _ -> ok
    catch
        _:Reason -> {error, Reason}
    end.

%% @private
-spec init({#handle{}, map()}) -> {ok, #state{}} | {stop, {shutdown, {not_started, term()}}}.
init({#handle{words = Words} = Handle, Options}) ->
    _ = process_flag(trap_exit, true),
    State = schedule(#state{handle = Handle, options = Options, hand = weir_log_h_hand:start_link(), timer = none}),
    case start_log(State) of
        {ok, Started} ->
            ok = weir_log_h_words:started(Words),
            {ok, resume(Started)};
        {error, Reason} ->
            case weir_log_h_words:is_started(Words) of
                true -> {ok, failing(Reason, State)};
                false -> {stop, {shutdown, {not_started, Reason}}}
            end
    end.

%% A keeper that was killed while the handler failed has told so already.
resume(#state{handle = #handle{words = Words}} = State) ->
    case weir_log_h_words:state(Words) of
        failing -> schedule(State#state{failing = {since, erlang:system_time(microsecond)}});
        _ -> State#state{told = weir_log_h_words:lost(Words)}
    end.

start_log(#state{handle = #handle{log = Name}, options = Options} = State) ->
    LogOptions = weir_log_h_config:log_options(Options),
    %% The log tells in the handler's format what it has dropped. An external function: one with an environment would
    %% have the writer killed when this module was loaded twice. The keeper itself reports what it finds when it syncs.
    Owned = #{tell => fun weir_log_h_report:dropped/1, report => false},
    %% It may raise while what all logs share goes.
    try weir_log:start_link(Name, maps:merge(Owned, LogOptions)) of
        {ok, Log} -> {ok, State#state{log = Log}};
        {error, Reason} -> {error, Reason}
    catch
        exit:Reason -> {error, Reason}
    end.

%% @private
-spec handle_call(handle, gen_server:from(), #state{}) -> {reply, #handle{}, #state{}}.
handle_call(handle, _From, #state{handle = Handle} = State) ->
    {reply, Handle, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({failing, Reason}, State) ->
    {noreply, failing(Reason, State)};
handle_cast({own_event, Level, Entry}, #state{own = Own, handle = #handle{words = Words}} = State) ->
    case queue:len(Own) < ?MAX_OWN of
        true ->
            {noreply, next(State#state{own = queue:in({Level, Entry}, Own)})};
        false ->
            ok = weir_log_h_words:lose(Level, Words),
            {noreply, State}
    end;
handle_cast({change, Options}, State) ->
    {noreply, schedule(State#state{options = Options})}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({done, Hand, Result}, #state{hand = Hand, doing = Doing} = State) ->
    {noreply, next(done(Doing, Result, State#state{doing = nothing}))};
handle_info({timeout, Timer, look}, #state{timer = Timer} = State) ->
    {noreply, next(look(schedule(State)))};
handle_info({'EXIT', Log, Reason}, #state{log = Log} = State) ->
    {noreply, failing({log_ended, Reason}, State#state{log = down})};
handle_info({'EXIT', Hand, Reason}, #state{hand = Hand, doing = Doing} = State) ->
    Again = State#state{hand = weir_log_h_hand:start_link(), doing = nothing},
    {noreply, next(done(Doing, {error, Reason}, Again))};
handle_info(_Other, State) ->
    %% A log that could not be started has ended, or the timer of before a change.
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{handle = #handle{log = Name, words = Words}, log = Log, hand = Hand, own = Own}) ->
    ok = weir_log_h_words:close(Words),
    Timer = erlang:start_timer(?CLOSE_MS, self(), close),
    ok = weir_log_h_hand:do(Hand, fun() -> write_all(Name, queue:to_list(Own)) end),
    ok = weir_log_h_hand:stop(Hand),
    case await_exit(Hand, Timer) of
        ok -> stop_log(Log, Timer);
        timeout -> ok
    end.

write_all(Name, Own) ->
    lists:foreach(fun({_Level, Entry}) -> attempt(fun() -> write(Name, Entry, 1) end) end, Own).

%% A supervisor tells that a writer has died before it starts the next one: what is sent to the dead one is sent again.
write(Name, Entry, Tries) ->
    case weir_log:log(Name, Entry) of
        {error, writer_down} when Tries > 1 ->
            receive
            after ?TRY_MS -> write(Name, Entry, Tries - 1)
            end;
        Result -> Result
    end.

stop_log(down, _Timer) ->
    ok;
stop_log(Log, Timer) ->
    %% As its parent may. The log writes and syncs what it has. If that takes too long it goes on without the keeper.
    true = exit(Log, shutdown),
    _ = await_exit(Log, Timer),
    ok.

await_exit(Pid, Timer) ->
    receive
        {'EXIT', Pid, _} -> ok;
        {timeout, Timer, close} -> timeout
    end.

%% ---------------------------------------------------------------- what is due

schedule(#state{timer = Old, failing = Failing, options = #{sync_interval := Interval}} = State) ->
    _ = Old =/= none andalso erlang:cancel_timer(Old),
    case Failing =:= no andalso Interval of
        false -> State#state{timer = erlang:start_timer(?RETRY_MS, self(), look)};
        infinity -> State#state{timer = erlang:start_timer(?LOOK_MS, self(), look)};
        Ms -> State#state{timer = erlang:start_timer(Ms, self(), look)}
    end.

look(#state{log = down} = State) ->
    case start_log(State) of
        {ok, Started} -> Started#state{sync_due = true, reopen = false};
        %% What all logs share may have ended with the application. The kernel's supervisor, who is to have it started,
        %% may just be waiting for this process to end.
        {error, Reason} -> (failing(Reason, State))#state{ensure_due = true}
    end;
look(State) ->
    State#state{sync_due = true}.

next(#state{doing = nothing, sync_due = true, failing = Failing, reopen = Reopen} = State) ->
    #state{handle = #handle{log = Name}, options = #{sync_interval := Interval}} = State,
    Steps =
        [fun weir_log:reopen/1 || Reopen] ++
            [fun weir_log:sync/1 || Failing =/= no orelse Interval =/= infinity] ++
            [fun can_write/1],
    give(sync, fun() -> steps(Steps, Name) end, State#state{sync_due = false});
next(#state{doing = nothing, ensure_due = true} = State) ->
    give(ensure, fun weir_log_node_sup:ensure/0, State#state{ensure_due = false});
next(#state{doing = nothing, own = Own, log = Log, handle = #handle{log = Name}} = State) when Log =/= down ->
    case queue:out(Own) of
        {{value, {Level, Entry}}, Rest} ->
            give({event, Level}, fun() -> write(Name, Entry, ?TRIES) end, State#state{own = Rest});
        {empty, _} ->
            State
    end;
next(State) ->
    State.

steps([Step | Steps], Name) ->
    case Step(Name) of
        ok -> steps(Steps, Name);
        {error, _} = Error -> Error
    end;
steps([], _Name) ->
    ok.

%% A writer that is busy says nothing of its file.
can_write(Name) ->
    case weir_log:info(Name) of
        {ok, #{shards := Shards}} ->
            case [Reason || #{file := #{state := State, last_error := Reason}} <- Shards, State =/= ok] of
                [] -> ok;
                [Reason | _] -> {error, Reason}
            end;
        {error, _} = Error ->
            Error
    end.

give(What, Fun, #state{hand = Hand} = State) ->
    ok = weir_log_h_hand:do(Hand, Fun),
    State#state{doing = What}.

done(sync, ok, State) -> recovered(State#state{reopen = false});
done(sync, {error, Reason}, State) -> failing(Reason, State#state{reopen = true});
done({event, _}, ok, State) -> State;
done({event, Level}, {error, Reason}, #state{handle = Handle} = State) ->
    ok = failed(Reason, Level, Handle),
    State;
%% The next start tells.
done(ensure, _, State) -> State;
done(nothing, _, State) -> State.

%% ---------------------------------------------------------------- failing and not

failing(Reason, #state{failing = no, handle = #handle{id = Id, words = Words}} = State) ->
    _ = weir_log_h_words:fail(Words),
    ok = weir_log_h_report:failing(Id, Reason),
    schedule(State#state{failing = {since, erlang:system_time(microsecond)}});
failing(_Reason, State) ->
    State.

recovered(#state{failing = no} = State) ->
    State;
recovered(#state{failing = {since, Since}, told = Told, handle = #handle{id = Id, words = Words}} = State) ->
    _ = weir_log_h_words:recover(Words),
    %% An event that failed just before that is either among these, or told with the next failure.
    Lost = weir_log_h_words:lost(Words),
    More = maps:filter(fun(_, N) -> N > 0 end, maps:map(fun(Level, N) -> N - maps:get(Level, Told, 0) end, Lost)),
    ok = weir_log_h_report:recovered(Id, Since, erlang:system_time(microsecond), More),
    schedule(State#state{failing = no, told = Lost}).
