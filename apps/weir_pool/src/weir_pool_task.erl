%% @doc A function that takes time, called by a process of its own whose exit reason is the result.
%%
%% The message of the monitor reports the end of each task, killed or done, so no other protocol is needed. If the
%% starter of a task is gone, no process receives the message.
%% @private
-module(weir_pool_task).

-export([start/2, call/1]).
-export([run/1, run_monitored/2]).

-type mfa_to_call() :: {module(), Function :: atom(), Arguments :: [term()]}.

%% @doc Starts a task. The caller receives `{Tag, Monitor, process, Pid, {done, Result}}', or another reason if the task
%% failed or was killed. If the node can have no other process, returns `{error, system_limit}'.
-spec start(Tag :: term(), mfa_to_call()) -> {ok, pid(), Monitor :: reference()} | {error, system_limit}.
start(Tag, MFA) ->
    try spawn_opt(?MODULE, run, [MFA], [{monitor, [{tag, Tag}]}]) of
        {Pid, Monitor} -> {ok, Pid, Monitor}
    catch
        error:system_limit -> {error, system_limit}
    end.

%% @doc Runs a function in a task, and waits for its result. Exits with the task's reason if the task failed or was
%% killed. If the node can have no other process, returns `{error, system_limit}'.
%%
%% The monitor is made in this function and is in every clause of the receive, so the receive does not search messages
%% that came before. The task waits for the message `run', so that it begins only when it is monitored.
-spec call(mfa_to_call()) -> term() | {error, system_limit}.
call(MFA) ->
    try spawn(?MODULE, run_monitored, [self(), MFA]) of
        Task ->
            Monitor = monitor(process, Task),
            Task ! run,
            receive
                {'DOWN', Monitor, process, _, {done, Result}} -> Result;
                {'DOWN', Monitor, process, _, Reason} -> exit(Reason)
            end
    catch
        error:system_limit -> {error, system_limit}
    end.

%% @private
-spec run_monitored(Starter :: pid(), mfa_to_call()) -> no_return().
run_monitored(Starter, MFA) ->
    Monitor = monitor(process, Starter),
    receive
        run -> run(MFA);
        {'DOWN', Monitor, process, Starter, Reason} -> exit(Reason)
    end.

%% @private
-spec run(mfa_to_call()) -> no_return().
run({Module, Function, Arguments}) -> exit({done, apply(Module, Function, Arguments)}).
