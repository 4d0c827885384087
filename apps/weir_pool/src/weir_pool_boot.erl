%% @doc Starting and stopping a pool, from the process that asks for it.
%%
%% A pool's manager is up at once, so the supervisor of all pools is never held up by a worker slow to start; whoever
%% has asked then waits until the pool is open. After an error the manager ends by itself; the caller waits for that,
%% too, and the name is free.
%%
%% The caller dying at any point: under `start/2' the pool comes up, or ends, without it; under `start_link/2' the
%% manager is its child and stops. A drain goes on to its end, since a pool that is drained and not stopped would be
%% worse than one that is not: it is done by a process of its own.
%% @private
-module(weir_pool_boot).

-export([start/2, start_link/2, stop/1, drain/2]).
-export([drain_and_stop/3]).

-include("weir_pool.hrl").

%% @doc Starts a pool under weir_pool's own supervisor and waits for its workers.
-spec start(weir_pool:name(), weir_pool:opts()) -> ok | {error, weir_pool:start_error()}.
start(Name, Opts) ->
    case open(Name, Opts, fun weir_pool_app:start_pool/3) of
        {ok, _Manager} -> ok;
        {error, Reason} -> {error, Reason}
    end.

%% @doc Starts a pool linked to the caller and waits for its workers.
-spec start_link(weir_pool:name(), weir_pool:opts()) -> {ok, pid()} | {error, weir_pool:start_error()}.
start_link(Name, Opts) -> open(Name, Opts, fun weir_pool_manager:start_link/3).

open(Name, Opts, Start) ->
    case {weir_pool_opts:check(Opts), whereis(weir_pool_sup), is_taken(Name)} of
        {{error, Reason}, _, _} ->
            {error, Reason};
        {_, undefined, _} ->
            {error, {not_started, weir_pool}};
        {_, _, true} ->
            {error, already_started};
        {{ok, Conf}, _, false} ->
            Opener = alias([reply]),
            case Start(Name, Conf, Opener) of
                {ok, Manager} -> await_open(Manager, Opener);
                {error, Reason} ->
                    true = unalias(Opener),
                    {error, {pool_down, Reason}}
            end
    end.

%% So that a name that is taken is no error of a supervisor's child. Here and below it is the caller that asks, and
%% waits for a manager that is just dying.
is_taken(Name) ->
    case weir_pool_registry:lookup(Name) of
        {ok, {_, Manager, _, _, _}} -> is_process_alive(Manager);
        {error, no_pool} -> false
    end.

%% A manager that gives up says why before it ends: the monitor may be too late for its reason.
await_open(Manager, Opener) ->
    Monitor = monitor(process, Manager),
    receive
        {Opener, open} ->
            true = demonitor(Monitor, [flush]),
            {ok, Manager};
        {Opener, {error, _} = Error} ->
            receive
                {'DOWN', Monitor, process, Manager, _} -> not_open(Manager, Error)
            end;
        {'DOWN', Monitor, process, Manager, Reason} ->
            true = unalias(Opener),
            not_open(Manager, {error, {pool_down, Reason}})
    end.

%% The caller may be linked to it. One that does not trap exits may get the signal first, as it may with
%% supervisor:start_link/2.
not_open(Manager, Error) ->
    true = unlink(Manager),
    receive
        {'EXIT', Manager, _} -> Error
    after 0 -> Error
    end.

await_down(Pid) ->
    Monitor = monitor(process, Pid),
    receive
        {'DOWN', Monitor, process, Pid, _} -> ok
    end.

%% @doc Stops a pool, and returns when its processes are gone.
-spec stop(weir_pool:name()) -> ok | {error, no_pool}.
stop(Name) ->
    case weir_pool_registry:lookup(Name) of
        {ok, {_, Manager, _, Parent, _}} ->
            case is_process_alive(Manager) andalso stop_manager(Parent, Manager) of
                stopped -> ok;
                crashed -> stop_successor(Name, Manager, Parent, ok);
                false -> stop_successor(Name, Manager, Parent, {error, no_pool})
            end;
        {error, no_pool} ->
            stop_successor(Name, none, whereis(weir_pool_pools_sup), {error, no_pool})
    end.

stop_manager(Parent, Manager) ->
    case stop_child(Parent, Manager) of
        true ->
            stopped;
        false ->
            try proc_lib:stop(Manager, shutdown, infinity) of
                ok -> stopped
            catch
                %% It was down already, or went down otherwise.
                exit:_ ->
                    ok = await_down(Manager),
                    crashed
            end
    end.

%% A manager that has crashed is started again by its supervisor, which has heard of it when the manager is no process
%% any more, and has done so when it answers.
stop_successor(Name, Manager, Parent, Otherwise) ->
    _ = is_pid(Manager) andalso is_process_alive(Manager),
    ok = await_restarts(Parent),
    case weir_pool_registry:lookup(Name) of
        {ok, {_, Successor, _, Parent, _}} when Successor =/= Manager -> stop(Name);
        _ -> Otherwise
    end.

await_restarts(Parent) ->
    try
        _ = is_supervisor(Parent) andalso supervisor:get_childspec(Parent, ?MODULE),
        ok
    catch
        %% It is going down.
        exit:_ -> ok
    end.

%% A supervisor of the user's would take a pool that just ends for one that failed, and start it again. It has to be
%% asked. Any other parent is not, and sees the pool exit with reason `shutdown'. Nor is the supervisor of all pools,
%% which would wait for the workers.
stop_child(Parent, Manager) ->
    case is_supervisor(Parent) andalso Parent =/= whereis(weir_pool_pools_sup) of
        true ->
            try
                [
                    terminate_child(Parent, Id, Manager)
                 || {Id, Pid, _, _} <- supervisor:which_children(Parent), Pid =:= Manager
                ]
            of
                Stopped -> Stopped =/= []
            catch
                %% It is going down, and the pool goes with it.
                exit:_ -> false
            end;
        false ->
            false
    end.

is_supervisor(Pid) -> is_pid(Pid) andalso element(1, proc_lib:translate_initial_call(Pid)) =:= supervisor.

%% Children of a simple_one_for_one supervisor have no id.
terminate_child(Parent, undefined, Manager) -> supervisor:terminate_child(Parent, Manager);
terminate_child(Parent, Id, _Manager) -> supervisor:terminate_child(Parent, Id).

%% @doc Waits until a pool's work is done, and stops it.
-spec drain(weir_pool:name(), timeout()) ->
    ok | {error, weir_pool:change_error() | held_by_caller | {timeout, pos_integer()}}.
drain(Name, Timeout) when ?IS_TIMEOUT(Timeout) ->
    Caller = weir_pool_claim:caller(),
    {_Task, Monitor} = weir_pool_task:start('DOWN', {?MODULE, drain_and_stop, [Name, Timeout, Caller]}),
    receive
        {'DOWN', Monitor, process, _, {done, Result}} -> Result;
        {'DOWN', Monitor, process, _, Reason} -> exit(Reason)
    end;
drain(Name, Timeout) ->
    ?BADARG([Name, Timeout], #{2 => "neither milliseconds nor infinity"}).

%% @private
-spec drain_and_stop(weir_pool:name(), timeout(), Caller :: pid()) ->
    ok | {error, weir_pool:change_error() | held_by_caller | {timeout, pos_integer()}}.
drain_and_stop(Name, Timeout, Caller) ->
    Row = weir_pool_registry:lookup(Name),
    case weir_pool_request:call(Name, {drain, Timeout, Caller}) of
        {error, Refused} = Error when Refused =:= no_pool; Refused =:= held_by_caller ->
            Error;
        {error, {pool_down, _}} = Error ->
            {ok, {_, Manager, _, Parent, _}} = Row,
            _ = stop_successor(Name, Manager, Parent, ok),
            Error;
        Drained ->
            _ = stop(Name),
            Drained
    end.
