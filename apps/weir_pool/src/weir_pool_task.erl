%% @doc A function that takes time, called by a process of its own whose exit reason is the result.
%%
%% The message of the monitor reports the end of each task, killed or done, so no other protocol is needed. If the
%% starter of a task is gone, no process receives the message.
%% @private
-module(weir_pool_task).

-export([start/2]).
-export([run/1]).

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

%% @private
-spec run(mfa_to_call()) -> no_return().
run({Module, Function, Arguments}) -> exit({done, apply(Module, Function, Arguments)}).
