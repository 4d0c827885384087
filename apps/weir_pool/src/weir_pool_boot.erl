%% @doc Starting, stopping and draining a pool, from the process that asks for it.
%%
%% The manager of a pool runs before the pool is open, so a worker that starts slowly does not delay the supervisor of
%% all pools. The starter waits until the pool is open. If the start fails, the manager ends by itself; the starter
%% waits for that, too, and the name is free afterwards.
%%
%% If the starter dies, a pool of start/2 goes on starting. A pool of start_link/2 stops, because its manager is a child
%% of the starter. If the caller of drain/2 dies, the drain goes on to its end, because a process of its own drains and
%% stops the pool. A pool that is drained but not stopped would serve no caller.
%% @private
-module(weir_pool_boot).

-export([start/2, start_link/2, start_child/2, stop/1, drain/2]).
-export([open/3, drain_and_stop/3]).

-include("weir_pool.hrl").

%% @doc Starts a pool under weir_pool's own supervisor and waits for its workers.
%%
%% A process of its own waits, because a receive for several references searches the whole mailbox, and the caller's
%% mailbox may be long.
-spec start(weir_pool:name(), weir_pool:opts()) -> ok | {error, weir_pool:start_error()}.
start(Name, Opts) ->
    case weir_pool_opts:check(Opts) of
        {ok, Conf} ->
            case weir_pool_task:call({?MODULE, open, [Name, Conf, fun weir_pool_pools_sup:start_pool/3]}) of
                {ok, _PoolSup} -> ok;
                {error, system_limit} -> {error, {pool_down, system_limit}};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc Starts a pool linked to the caller and waits for its workers.
-spec start_link(weir_pool:name(), weir_pool:opts()) -> {ok, pid()} | {error, weir_pool:start_error()}.
start_link(Name, Opts) ->
    case weir_pool_opts:check(Opts) of
        {ok, Conf} -> open(Name, Conf, fun weir_pool_manager:start_link/3);
        {error, _} = Error -> Error
    end.

%% @doc Like {@link start_link/2}, for a child specification. At a limit of the node waits until the pool can be
%% started: a supervisor would restart the pool without a pause, and give up.
-spec start_child(weir_pool:name(), weir_pool:opts()) -> {ok, pid()} | {error, weir_pool:start_error()}.
start_child(Name, Opts) -> weir_pool_limit:patiently(fun() -> start_link(Name, Opts) end).

%% @private
-spec open(weir_pool:name(), #conf{}, Start) -> {ok, pid()} | {error, weir_pool:start_error()} when
    Start :: fun((weir_pool:name(), #conf{}, weir_pool_manager:opener()) -> {ok, pid()} | ignore | {error, term()}).
open(Name, Conf, Start) ->
    case {whereis(weir_pool_sup), is_taken(Name)} of
        {undefined, _} ->
            {error, {not_started, weir_pool}};
        {_, true} ->
            {error, already_started};
        {_, false} ->
            Opener = alias(),
            case Start(Name, Conf, {first_start, Opener}) of
                {ok, Root} ->
                    await_open(Root, Opener);
                {error, Reason} ->
                    true = unalias(Opener),
                    {error, {pool_down, limit_or(Reason)}}
            end
    end.

limit_or(Reason) ->
    case weir_pool_limit:is_limit(Reason) of
        true -> system_limit;
        false -> Reason
    end.

%% Returns whether a pool of this name lives. If the pool's manager is dying, waits here, in the caller, until the
%% manager is dead. This check comes before the start, so a taken name is no failed start of a supervisor's child.
is_taken(Name) ->
    case weir_pool_registry:lookup(Name) of
        {ok, {_, Manager, _, _, _}} -> is_process_alive(Manager);
        {error, no_pool} -> false
    end.

%% Waits until a pool is open. The root is the pool's own supervisor, or the manager of a linked pool. A manager that
%% gives up sends the reason before it ends, because a monitor that is set after its end gets `noproc'. If the manager
%% of start/2 is killed, its supervisor starts another manager, which answers in its place, even if the killed manager
%% was about to give up.
await_open(Root, Opener) -> await_open(Root, Opener, monitor(process, Root), none).

await_open(Root, Opener, Monitor, GivenUp) ->
    receive
        {Opener, open} ->
            true = demonitor(Monitor, [flush]),
            true = unalias(Opener),
            {ok, Root};
        {Opener, {error, _} = Error} ->
            await_open(Root, Opener, Monitor, Error);
        {'DOWN', Monitor, process, Root, Reason} ->
            true = unalias(Opener),
            not_open(Root, error_of(GivenUp, Reason))
    end.

error_of(none, Reason) -> {error, {pool_down, Reason}};
error_of(GivenUp, _Reason) -> GivenUp.

%% The root may be linked to the caller. A caller that does not trap exits may get the exit signal before the error, as
%% with supervisor:start_link/2.
not_open(Root, Error) ->
    true = unlink(Root),
    receive
        {'EXIT', Root, _} -> Error
    after 0 -> Error
    end.

%% @doc Stops a pool. Returns when its processes have ended.
-spec stop(weir_pool:name()) -> ok | {error, no_pool}.
stop(Name) ->
    case weir_pool_registry:lookup(Name) of
        {ok, Row} -> stop_row(Row);
        {error, no_pool} = Error -> Error
    end.

stop_row({Name, Manager, _Base, Parent, _StartError}) ->
    case stop(parent(Parent), Parent, Manager) of
        stopped ->
            await_sups(Name);
        not_found ->
            %% The manager was killed. Its supervisor may have restarted it.
            case weir_pool_registry:lookup(Name) of
                {ok, {_, Successor, _, _, _} = Row} when Successor =/= Manager -> stop_row(Row);
                _ -> {error, no_pool}
            end
    end.

parent(Parent) ->
    case is_pid(Parent) andalso proc_lib:translate_initial_call(Parent) of
        {supervisor, weir_pool_pool_sup, _} -> own_supervisor;
        {supervisor, _, _} -> supervisor;
        _ -> other
    end.

%% Stops the pool with its own supervisor. The supervisor of all pools could do that too, but could start no other pool
%% while it waits for the workers.
stop(own_supervisor, PoolSup, _Manager) ->
    stop_process(PoolSup);
%% A supervisor of the user's terminates its child itself, because it would restart a pool that ended otherwise.
stop(supervisor, Parent, Manager) ->
    try
        [Id || {Id, Pid, _, _} <- supervisor:which_children(Parent), Pid =:= Manager]
    of
        %% Children of a simple_one_for_one supervisor have no id.
        [undefined] -> terminated(supervisor:terminate_child(Parent, Manager));
        [Id] -> terminated(supervisor:terminate_child(Parent, Id));
        [] -> stop_process(Manager)
    catch
        %% The supervisor is ending, and the pool with it.
        exit:_ -> stop_process(Manager)
    end;
%% Any other parent sees the pool exit with reason `shutdown'.
stop(other, _Parent, Manager) ->
    stop_process(Manager).

terminated(ok) -> stopped;
terminated({error, _}) -> not_found.

stop_process(Pid) ->
    try proc_lib:stop(Pid, shutdown, infinity) of
        ok -> stopped
    catch
        exit:_HasEnded ->
            %% Waits until a process that is dying is dead.
            _ = is_process_alive(Pid),
            not_found
    end.

%% Waits for the supervisors of workers that a killed manager has left.
await_sups(Name) ->
    Monitors = [monitor(process, Sup) || Sup <- weir_pool_registry:sups(Name)],
    lists:foreach(
        fun(Monitor) ->
            receive
                {'DOWN', Monitor, process, _, _} -> ok
            end
        end,
        Monitors
    ).

%% @doc Waits until a pool's work is done, and stops the pool.
-spec drain(weir_pool:name(), timeout()) ->
    ok | {error, weir_pool:change_error() | held_by_caller | {timeout, pos_integer()}}.
drain(Name, Timeout) when ?IS_TIMEOUT(Timeout) ->
    case weir_pool_task:call({?MODULE, drain_and_stop, [Name, Timeout, self()]}) of
        {error, system_limit} -> {error, {pool_down, system_limit}};
        Result -> Result
    end;
drain(Name, Timeout) ->
    ?BADARG([Name, Timeout], #{2 => "neither milliseconds nor infinity"}).

%% @private
-spec drain_and_stop(weir_pool:name(), timeout(), Caller :: pid()) ->
    ok | {error, weir_pool:change_error() | held_by_caller | {timeout, pos_integer()}}.
drain_and_stop(Name, Timeout, Caller) ->
    Found = weir_pool_registry:lookup(Name),
    case weir_pool_request:call(Name, {drain, Timeout, Caller}) of
        {error, Refused} = Error when Refused =:= no_pool; Refused =:= held_by_caller ->
            Error;
        %% After `pool_down' the supervisor of the manager restarts it; the row still names that supervisor.
        Drained ->
            _ = [stop_row(Row) || {ok, Row} <- [Found]],
            Drained
    end.
