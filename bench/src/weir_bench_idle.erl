%% @doc Processes that do nothing, to see whether something makes them work.
-module(weir_bench_idle).

-export([start/1, stop/1, sample/2, reductions/1]).

%% @doc Starts so many, not linked to the caller.
-spec start(N :: pos_integer()) -> [pid(), ...].
start(N) ->
    [
        spawn(fun() ->
            receive
                stop -> ok
            end
        end)
     || _ <- lists:seq(1, N)
    ].

%% @doc Ends them.
-spec stop([pid()]) -> ok.
stop(Pids) -> lists:foreach(fun(Pid) -> Pid ! stop end, Pids).

%% @doc `N' of them, spread over all.
-spec sample(N :: pos_integer(), [pid(), ...]) -> [pid(), ...].
sample(N, Pids) ->
    Step = max(1, length(Pids) div N),
    [Pid || {I, Pid} <- lists:zip(lists:seq(1, length(Pids)), Pids), I rem Step =:= 0].

%% @doc Reductions that they have done so far, on average. To be asked costs a process up to one reduction. A scan for
%% a persistent term that was replaced costs two.
-spec reductions([pid(), ...]) -> float().
reductions(Pids) ->
    lists:sum([Done || Pid <- Pids, {reductions, Done} <- [erlang:process_info(Pid, reductions)]]) / length(Pids).
