%% @doc What takes time, done by a process of its own whose result is its exit reason.
%%
%% Nothing has to be agreed on: a task that is killed tells of it in the same way as one that is done, and one whose
%% starter is gone tells nobody.
%% @private
-module(weir_pool_task).

-export([start/2, is_idle/2]).
-export([run/1]).

-type mfa_to_call() :: {module(), Function :: atom(), Arguments :: [term()]}.

%% @doc Starts a task. The caller gets `{Tag, Monitor, process, Pid, {done, Result}}', or another reason if the task has
%% failed or was killed.
%%
%% Not a fun: one that an upgrade overtakes before it is called could not be called any more.
-spec start(Tag :: term(), mfa_to_call()) -> {pid(), Monitor :: reference()}.
start(Tag, MFA) -> spawn_opt(?MODULE, run, [MFA], [{monitor, [{tag, Tag}]}]).

%% @private
-spec run(mfa_to_call()) -> no_return().
run({Module, Function, Arguments}) -> exit({done, apply(Module, Function, Arguments)}).

%% @doc For a task: whether a process has handled what was sent to it; it is waited for at most so long. One that is
%% dead has nothing left to do.
%%
%% It is sent a system message that asks for its statistics. Every OTP behaviour answers it in its turn with the other
%% messages, so an answer means that everything sent before was handled. A process that is no OTP behaviour does not
%% answer, and counts as busy.
-spec is_idle(pid(), timeout()) -> boolean().
is_idle(Pid, Timeout) ->
    try sys:statistics(Pid, get, Timeout) of
        _ -> true
    catch
        exit:{timeout, _} -> false;
        exit:_Dead -> true
    end.
