%% @doc Starts children whose supervisor serves all pools, so that a node without free processes does not end the
%% supervisor.
%%
%% A supervisor that fails to restart a child tries again at once. While the node has no free process, the supervisor
%% exceeds its intensity within milliseconds and ends, with all pools below. {@link link/3} therefore waits after a
%% failure, in the supervisor: the node gets time to recover, and the supervisor stays below its intensity.
%%
%% A failed first start also waits, so its error is returned after that pause.
%% @private
-module(weir_compat_start).

-export([link/3]).

%% Milliseconds after a failed start. The supervisor sees at most ten failures a second.
-define(PAUSE_MS, 100).

%% @doc Calls the start function of a child. If the function fails, waits for 100 ms and returns the error.
-spec link(module(), Function :: atom(), Args :: [term()]) -> {ok, pid()} | ignore | {error, term()}.
link(Module, Function, Args) ->
    try apply(Module, Function, Args) of
        {error, Reason} -> failed(Reason);
        Started -> Started
    catch
        error:system_limit -> failed(system_limit)
    end.

failed(Reason) ->
    receive
    after ?PAUSE_MS -> {error, Reason}
    end.
