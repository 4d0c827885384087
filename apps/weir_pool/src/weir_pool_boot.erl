%% @doc Starting and stopping a pool, from the process that asks for it.
%%
%% Protocol of a start. The caller makes an alias and starts the pool's supervisor with it. That registers the name and
%% returns at once, or sends `{Alias, {refused, Sup, Reason}}' and ends; the keeper then starts the workers and sends
%% `{Alias, ok | {error, Reason}}'. Whoever waits for workers is thus the caller alone: the supervisor of all pools is
%% never held up by a worker slow to start. After an error the pool's processes end by themselves; or would be started
%% again, if the error came of one of them being killed. So the caller stops them as well, and returns when they are
%% gone and cleaned up.
%%
%% The caller dying at any point: under `start/2' the pool comes up, or ends, without it; under `start_link/2' the
%% pool's supervisor is its child and stops. What has several steps, of which the first without the last would be worse
%% than nothing (a pool that is drained and not stopped, or stopped and not started again), is done by a process of its
%% own, which goes on.
-module(weir_pool_boot).

-export([start/2, start_link/2, stop/1, restart/1, drain/2]).

-include("weir_pool.hrl").

%% @doc Starts a pool under weir_pool's own supervisor and waits for its workers.
-spec start(weir_pool:name(), #conf{}) -> ok | {error, weir_pool:start_error()}.
start(Name, Conf) ->
    case boot(Name, Conf, fun weir_pool_pools_sup:start_pool/1) of
        {ok, _Sup} -> ok;
        {error, Reason} -> {error, Reason}
    end.

%% @doc Starts a pool linked to the caller and waits for its workers.
-spec start_link(weir_pool:name(), #conf{}) -> {ok, pid()} | {error, weir_pool:start_error()}.
start_link(Name, Conf) ->
    boot(Name, Conf, fun weir_pool_pool_sup:start_link/1).

boot(Name, Conf, StartSup) ->
    case whereis(weir_pool_pools_sup) of
        undefined ->
            {error, {not_started, weir_pool}};
        _Running ->
            Id = erlang:unique_integer([positive, monotonic]),
            Starter = alias([reply]),
            Boot = #boot{name = Name, id = Id, conf = Conf, starter = Starter},
            Result = await(StartSup(Boot), Boot),
            _ = unalias(Starter),
            Result
    end.

await({ok, Sup}, #boot{name = Name, id = Id, starter = Starter}) ->
    Monitor = monitor(process, Sup),
    receive
        {Starter, ok} ->
            demonitor(Monitor, [flush]),
            {ok, Sup};
        {Starter, {error, Reason}} ->
            forget(Sup),
            stop_quietly(Sup, shutdown),
            await_down(Sup, Monitor),
            weir_pool_registry:release(Name, Id),
            {error, Reason};
        {'DOWN', Monitor, process, Sup, DownReason} ->
            forget(Sup),
            weir_pool_registry:release(Name, Id),
            receive
                {Starter, {error, Reason}} -> {error, Reason}
            after 0 -> {error, {pool_down, DownReason}}
            end
    end;
await(ignore, #boot{starter = Starter}) ->
    receive
        {Starter, {refused, Sup, Reason}} ->
            forget(Sup),
            {error, Reason}
    end;
await({error, Reason}, #boot{name = Name, id = Id}) ->
    weir_pool_registry:release(Name, Id),
    {error, {pool_down, Reason}}.

%% Unlinks before the supervisor's exit can arrive, and removes its message if it already has. A caller that does not
%% trap exits may still get the signal first, as it may with supervisor:start_link/2.
forget(Sup) ->
    unlink(Sup),
    receive
        {'EXIT', Sup, _} -> ok
    after 0 -> ok
    end.

await_down(Sup, Monitor) ->
    receive
        {'DOWN', Monitor, process, Sup, _} -> ok
    end.

%% @doc Stops a pool, and returns when its processes are gone and its terms are removed.
-spec stop(weir_pool:name()) -> ok | {error, no_pool}.
stop(Name) ->
    case weir_pool_registry:lookup(Name) of
        {ok, #row{id = Id, sup = Sup} = Row} ->
            WasAlive = is_process_alive(Sup),
            stop_sup(Row),
            weir_pool_registry:release(Name, Id),
            case WasAlive of
                true -> ok;
                %% The registry had yet to hear of it.
                false -> {error, no_pool}
            end;
        {error, no_pool} ->
            {error, no_pool}
    end.

stop_sup(#row{sup = Sup, parent = Parent}) ->
    Monitor = monitor(process, Sup),
    stop_child(Parent, Sup),
    stop_quietly(Sup, normal),
    await_down(Sup, Monitor).

stop_quietly(Sup, Reason) ->
    try
        proc_lib:stop(Sup, Reason, infinity)
    catch
        %% It is down already, or went down otherwise.
        exit:_ -> ok
    end.

%% A supervisor of the user's would take a pool that just ends for one that failed, and start it again. It has to be
%% asked. Any other parent is not, and sees the pool exit with reason `normal'.
stop_child(Parent, Sup) ->
    case is_supervisor(Parent) andalso Parent =/= whereis(weir_pool_pools_sup) of
        true ->
            try
                [terminate_child(Parent, Id, Sup) || {Id, Pid, _, _} <- supervisor:which_children(Parent), Pid =:= Sup]
            of
                _ -> ok
            catch
                %% It is going down, and the pool goes with it.
                exit:_ -> ok
            end;
        false ->
            ok
    end.

is_supervisor(Pid) ->
    case proc_lib:translate_initial_call(Pid) of
        {supervisor, _, _} -> true;
        _ -> false
    end.

%% Children of a simple_one_for_one supervisor have no id.
terminate_child(Parent, undefined, Sup) -> supervisor:terminate_child(Parent, Sup);
terminate_child(Parent, Id, _Sup) -> supervisor:terminate_child(Parent, Id).

%% @doc Stops a pool, and starts it again where it was, with the options that it was started with.
-spec restart(weir_pool:name()) -> ok | {error, no_pool | not_supervised | weir_pool:start_error()}.
restart(Name) ->
    case weir_pool_registry:lookup(Name) of
        {ok, #row{parent = Parent, sup = Sup, conf = Conf}} ->
            case {Parent =:= whereis(weir_pool_pools_sup), is_supervisor(Parent)} of
                {true, _} -> to_its_end(fun() -> restart_own(Name, Conf) end);
                {false, true} -> to_its_end(fun() -> restart_child(Parent, Sup, Name) end);
                {false, false} -> {error, not_supervised}
            end;
        {error, no_pool} ->
            {error, no_pool}
    end.

restart_own(Name, Conf) ->
    case stop(Name) of
        ok -> start(Name, Conf);
        {error, no_pool} = Gone -> Gone
    end.

restart_child(Parent, Sup, Name) ->
    try child_id(Parent, Sup) of
        {ok, Id} ->
            case stop(Name) of
                ok -> restarted(supervisor:restart_child(Parent, Id));
                {error, no_pool} = Gone -> Gone
            end;
        {error, Reason} ->
            {error, Reason}
    catch
        %% It is going down.
        exit:_ -> {error, no_pool}
    end.

%% Children of a simple_one_for_one supervisor, and temporary ones, cannot be restarted.
child_id(Parent, Sup) ->
    case [Id || {Id, Pid, _, _} <- supervisor:which_children(Parent), Pid =:= Sup] of
        [undefined] ->
            {error, not_supervised};
        [Id] ->
            case supervisor:get_childspec(Parent, Id) of
                {ok, #{restart := temporary}} -> {error, not_supervised};
                {ok, #{}} -> {ok, Id};
                {error, not_found} -> {error, no_pool}
            end;
        [] ->
            {error, no_pool}
    end.

restarted({ok, _Sup}) -> ok;
%% Somebody else was quicker.
restarted({error, running}) -> ok;
restarted({error, Reason}) -> {error, Reason}.

%% @doc Waits until a pool's work is done, and stops it.
-spec drain(weir_pool:name(), timeout()) -> ok | {error, no_pool | {timeout, pos_integer()} | {pool_down, term()}}.
drain(Name, Timeout) when Timeout =:= infinity; is_integer(Timeout), Timeout >= 0, Timeout =< ?MAX_MS ->
    to_its_end(fun() ->
        case weir_pool_keeper:call(Name, {drain, Timeout}) of
            {error, no_pool} = NoPool ->
                NoPool;
            Drained ->
                _ = stop(Name),
                Drained
        end
    end);
drain(Name, Timeout) ->
    error(badarg, [Name, Timeout]).

%% Goes on if the caller dies.
to_its_end(Fun) ->
    {_Task, Monitor} = weir_pool_task:start('DOWN', Fun),
    receive
        {'DOWN', Monitor, process, _, {done, Result}} -> Result;
        {'DOWN', Monitor, process, _, Reason} -> exit(Reason)
    end.
