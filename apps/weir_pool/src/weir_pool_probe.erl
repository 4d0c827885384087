%% @doc Whether a process has handled what was sent to it.
%%
%% It is sent a system message that asks for its statistics. Every OTP behaviour answers it, in its turn with the other
%% messages; so an answer means that everything sent before was handled. A process that is no OTP behaviour does not
%% answer, and counts as busy.
-module(weir_pool_probe).

-export([is_idle/2, start/3]).

%% @doc Waits for the process at most so long. One that is dead, or undefined, has nothing left to do.
-spec is_idle(pid() | undefined, timeout()) -> boolean().
is_idle(undefined, _Timeout) ->
    true;
is_idle(Pid, Timeout) ->
    try sys:statistics(Pid, get, Timeout) of
        _ -> true
    catch
        exit:_ -> not is_process_alive(Pid)
    end.

%% @doc Probes in a process of its own. The caller gets `{Tag, Monitor, process, Prober, {done, IsIdle}}', or another
%% reason if the prober was killed.
-spec start(Tag :: term(), pid() | undefined, timeout()) -> Monitor :: reference().
start(Tag, Pid, Timeout) ->
    {_Prober, Monitor} = weir_pool_task:start(Tag, fun() -> is_idle(Pid, Timeout) end),
    Monitor.
