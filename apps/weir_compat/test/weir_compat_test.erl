%% What the suites of the pools need: workers, processes that do what they are told, waiting for a condition.
-module(weir_compat_test).

-export([until/1, kill/1]).
-export([start_link/0, start_link/1, start_link/2, fail_at/2, start_with_info/0, ignore/0, args/1]).
-export([member/0, members/1, run/2, raised/1, in_parallel/1]).

%% Generous: it is reached by failures alone.
-define(DEADLINE, 60000).

%% Polls until a condition holds.
-spec until(fun(() -> boolean())) -> ok.
until(Condition) -> weir_kit:until(Condition).

%% Returns when the process is gone.
-spec kill(pid()) -> ok.
kill(Pid) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive
        {'DOWN', Monitor, process, Pid, _} -> ok
    after ?DEADLINE -> error({still_alive, Pid})
    end.

%% Workers that a pool starts

-spec start_link() -> {ok, pid()}.
start_link() -> worker([]).

-spec start_link(term()) -> {ok, pid()}.
start_link(A) -> worker([A]).

-spec start_link(term(), term()) -> {ok, pid()}.
start_link(A, B) -> worker([A, B]).

worker(Args) -> {ok, spawn_link(fun() -> serve(Args) end)}.

serve(Args) ->
    receive
        {From, Alias, args} ->
            From ! {Alias, Args},
            serve(Args);
        _ ->
            serve(Args)
    end.

%% All but one can be started.
-spec fail_at(Id :: pos_integer(), Bad :: pos_integer()) -> {ok, pid()} | {error, refused}.
fail_at(Bad, Bad) -> {error, refused};
fail_at(Id, _Bad) -> worker([Id]).

-spec start_with_info() -> {ok, pid(), info}.
start_with_info() ->
    {ok, Pid} = worker([]),
    {ok, Pid, info}.

-spec ignore() -> ignore.
ignore() -> ignore.

%% What a worker was started with.
-spec args(pid()) -> [term()].
args(Pid) ->
    Ref = make_ref(),
    Pid ! {self(), Ref, args},
    receive
        {Ref, Args} -> Args
    after ?DEADLINE -> error({no_answer, Pid})
    end.

%% Processes that run what they are given, and end with their maker

-spec member() -> pid().
member() ->
    Maker = self(),
    spawn(fun() ->
        Monitor = monitor(process, Maker),
        obey(Monitor)
    end).

-spec members(non_neg_integer()) -> [pid()].
members(N) -> [member() || _ <- lists:seq(1, N)].

obey(Monitor) ->
    receive
        {run, From, Ref, Fun} ->
            From ! {Ref, outcome(Fun)},
            obey(Monitor);
        {'DOWN', Monitor, process, _, _} ->
            ok
    end.

%% Runs a fun in a process, and gives or raises what it gave or raised there.
-spec run(pid(), fun(() -> Result)) -> Result.
run(Pid, Fun) ->
    Ref = monitor(process, Pid),
    Pid ! {run, self(), Ref, Fun},
    receive
        {Ref, Outcome} ->
            demonitor(Ref, [flush]),
            case Outcome of
                {returned, Result} -> Result;
                {Class, Reason} -> erlang:raise(Class, Reason, [])
            end;
        {'DOWN', Ref, process, Pid, Reason} ->
            error({down, Reason})
    after ?DEADLINE -> error({no_answer, Pid})
    end.

outcome(Fun) ->
    try
        {returned, Fun()}
    catch
        Class:Reason -> {Class, Reason}
    end.

%% The class and the reason of what a fun raises.
-spec raised(fun(() -> term())) -> {error | exit | throw, term()} | {returned, term()}.
raised(Fun) -> outcome(Fun).

%% The results of funs that run at the same time, each in a process of its own.
-spec in_parallel([fun(() -> Result)]) -> [Result].
in_parallel(Funs) ->
    Started = [spawn_monitor(fun() -> exit({outcome, outcome(Fun)}) end) || Fun <- Funs],
    [
        receive
            {'DOWN', Monitor, process, Pid, {outcome, {returned, Result}}} -> Result;
            {'DOWN', Monitor, process, Pid, Reason} -> error({failed, Reason})
        after ?DEADLINE -> error({no_answer, Pid})
        end
     || {Pid, Monitor} <- Started
    ].
