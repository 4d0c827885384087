%% @doc Keeper of one pool's slots: the only process that writes them.
%%
%% Protocol. At its start it takes the workers that their supervisor already has, starts those that are missing, opens
%% the pool, and tells the starter. Afterwards it only hears: `connect' from the workers' supervisor when a slot has a
%% new worker, and a monitor's message when a worker is gone. Nobody calls it; picks and weir_pool:info/1 read what it
%% writes.
%%
%% A worker's death and the start of its successor are told by two processes, in either order. A slot therefore
%% remembers the monitor of the worker it holds, and the message of any other monitor is void: the death of a
%% predecessor never empties a slot that is filled again. `connect' comes with the supervisor's pid, because a
%% supervisor that outlives its pool may find the keeper of a namesake.
%%
%% Crashes. Killed, it leaves all terms as they are: the pool is picked from as before, a worker that dies meanwhile is
%% handed out until the next keeper is up, and that one learns from the supervisor who is alive. Stopped, or crashed in
%% a callback, it first closes the pool and removes its slot terms; workers are not touched. Between two steps
%% of its start: the next keeper goes through all of them, each of which does no harm when done before.
%%
%% When the application weir_pool is stopped under a pool that belongs to another supervision tree, the keeper stops,
%% and the pool with it: nobody else is left to clean up.
-module(weir_pool_keeper).
-behaviour(gen_server).

-export([start_link/1]).
-export([connect/3, start_failed/1]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include("weir_pool.hrl").

-record(state, {
    boot :: #boot{},
    pool :: #pool{},
    workers :: pid(),
    %% A slot that was never filled is not in it: filling it is no restart.
    slots = #{} :: #{weir_pool:slot() => vacant | {pid(), reference()}}
}).

%% @doc Starts the keeper of a pool whose workers' supervisor is up.
-spec start_link(#boot{}) -> {ok, pid()} | {error, term()}.
start_link(Boot) ->
    case gen_server:start_link(?MODULE, Boot, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason}
    end.

%% @doc The calling supervisor has a new worker for a slot. One message, no reply; none to a keeper that is not there.
-spec connect(Keeper :: pid() | undefined, weir_pool:slot(), pid()) -> ok.
connect(undefined, _Slot, _Pid) -> ok;
connect(Keeper, Slot, Pid) -> gen_server:cast(Keeper, {connect, self(), Slot, Pid}).

%% @doc The calling supervisor could not start a worker. One message, no reply; none to a keeper that is not there.
-spec start_failed(Keeper :: pid() | undefined) -> ok.
start_failed(undefined) -> ok;
start_failed(Keeper) -> gen_server:cast(Keeper, {start_failed, self()}).

%% @private
-spec init(#boot{}) -> {ok, #state{}, {continue, start}} | {stop, {shutdown, gone}}.
init(#boot{name = Name, id = Id, conf = #conf{size = Size}} = Boot) ->
    %% For terminate/2.
    process_flag(trap_exit, true),
    %% From here on `connect' messages come to this process; the supervisor is asked for its children only afterwards.
    case weir_pool_registry:join(Name, Id, keeper) of
        {ok, #row{workers = Workers}} when is_pid(Workers) ->
            _ = erlang:monitor(process, weir_pool_sup, [{tag, application_down}]),
            Pool =
                case weir_pool_terms:pool(Name, Id) of
                    undefined -> weir_pool_terms:new(Id, Size);
                    Open -> Open
                end,
            {ok, #state{boot = Boot, pool = Pool, workers = Workers}, {continue, start}};
        _ ->
            {stop, {shutdown, gone}}
    end.

%% @private
-spec handle_continue(start, #state{}) -> {noreply, #state{}} | {stop, {shutdown, term()}, #state{}}.
handle_continue(start, #state{boot = #boot{starter = Starter}} = State) ->
    case start(State) of
        {ok, Started} ->
            Starter ! {Starter, ok},
            {noreply, Started};
        {error, Reason} = Error ->
            Starter ! {Starter, Error},
            {stop, {shutdown, Reason}, State}
    end.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, {error, {bad_call, term()}}, #state{}}.
handle_call(Request, _From, State) -> {reply, {error, {bad_call, Request}}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({connect, Workers, Slot, Pid}, #state{workers = Workers} = State) ->
    {noreply, fill(Slot, Pid, State)};
handle_cast({start_failed, Workers}, #state{workers = Workers, pool = Pool} = State) ->
    weir_pool_terms:count(Pool, ?START_FAILURES),
    {noreply, State};
handle_cast(_FromAnotherPool, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, {shutdown, application_down}, #state{}}.
handle_info({{down, Slot}, Monitor, process, Pid, _Reason}, #state{slots = Slots, pool = Pool} = State) ->
    case Slots of
        #{Slot := {Pid, Monitor}} ->
            ok = weir_pool_terms:vacate(Pool, Slot),
            {noreply, State#state{slots = Slots#{Slot := vacant}}};
        #{} ->
            {noreply, State}
    end;
handle_info({application_down, _Monitor, process, _Sup, _Reason}, State) ->
    {stop, {shutdown, application_down}, State};
handle_info(_Stray, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{boot = #boot{name = Name, id = Id, conf = #conf{size = Size}}}) ->
    close(Name, Id),
    weir_pool_terms:erase_slots(Id, Size).

%% Without a registry nobody can take the name meanwhile, and the main term is this process's to remove.
close(Name, Id) ->
    try weir_pool_registry:close(Name, Id) of
        _ -> ok
    catch
        exit:_ ->
            case weir_pool_terms:pool(Name, Id) of
                undefined -> ok;
                _Open -> weir_pool_terms:close(Name)
            end
    end.

start(#state{boot = #boot{name = Name, id = Id, conf = #conf{size = Size}}, pool = Pool, workers = Workers} = State) ->
    Children = maps:from_list([{Slot, Pid} || {Slot, Pid, _, _} <- supervisor:which_children(Workers)]),
    case start_slots(1, Size, Children, State) of
        {ok, Started} ->
            case weir_pool_registry:open(Name, Id, Pool) of
                ok -> {ok, Started};
                {error, gone} = Gone -> Gone
            end;
        {error, _} = Error ->
            Error
    end.

start_slots(Slot, Size, _Children, State) when Slot > Size ->
    {ok, State};
start_slots(Slot, Size, Children, State) ->
    case start_slot(Slot, Children, State) of
        {ok, Pid} when is_pid(Pid) ->
            start_slots(Slot + 1, Size, Children, fill(Slot, Pid, State));
        {ok, _None} ->
            ok = weir_pool_terms:vacate(State#state.pool, Slot),
            start_slots(Slot + 1, Size, Children, State);
        {error, Reason} ->
            {error, {start_failed, Slot, Reason}}
    end.

%% A child without a pid is one that the supervisor is about to start again, or whose start returned `ignore'.
start_slot(Slot, Children, #state{workers = Workers, boot = Boot}) ->
    case Children of
        #{Slot := Child} ->
            {ok, Child};
        #{} ->
            case supervisor:start_child(Workers, worker(Slot, Boot)) of
                {ok, Child} -> {ok, Child};
                {ok, Child, _Info} -> {ok, Child};
                %% "Information about the error and the child specification", in practice a pair of them.
                {error, {Reason, Child}} when element(1, Child) =:= child -> {error, Reason};
                {error, Reason} -> {error, Reason}
            end
    end.

worker(Slot, #boot{name = Name, conf = #conf{worker = {M, _, _} = Worker, restart = Restart, shutdown = Shutdown}}) ->
    #{
        id => Slot,
        start => {weir_pool_workers_sup, start_worker, [Name, Slot, Worker]},
        restart => Restart,
        shutdown => Shutdown,
        modules => [M]
    }.

%% Both the reply of the supervisor and a `connect' tell of a worker that was started above.
fill(Slot, Pid, #state{slots = Slots} = State) ->
    case Slots of
        #{Slot := {Pid, _Monitor}} ->
            State;
        #{Slot := {_Predecessor, Monitor}} ->
            true = erlang:demonitor(Monitor, [flush]),
            refill(Slot, Pid, State);
        #{Slot := vacant} ->
            refill(Slot, Pid, State);
        #{} ->
            put_worker(Slot, Pid, State)
    end.

refill(Slot, Pid, #state{pool = Pool} = State) ->
    weir_pool_terms:count(Pool, ?RESTARTS),
    put_worker(Slot, Pid, State).

put_worker(Slot, Pid, #state{slots = Slots, pool = Pool} = State) ->
    Monitor = erlang:monitor(process, Pid, [{tag, {down, Slot}}]),
    ok = weir_pool_terms:fill(Pool, Slot, Pid),
    State#state{slots = Slots#{Slot => {Pid, Monitor}}}.
