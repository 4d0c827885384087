%% Functions that the suites of the pools share: workers, and processes that run the functions that they are sent.
-module(weir_compat_test).

-export([start_link/0, start_link/1, start_link/2, fail_at/2, start_with_info/0, ignore/0, args/1]).
-export([member/0, run/2, raised/1]).

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

%% Returns the arguments that a worker was started with.
-spec args(pid()) -> [term()].
args(Pid) ->
    Ref = make_ref(),
    Pid ! {self(), Ref, args},
    receive
        {Ref, Args} -> Args
    after weir_kit:wait_ms() -> error({no_answer, Pid})
    end.

%% Processes that run what they are given, and end with their maker

-spec member() -> pid().
member() ->
    Maker = self(),
    spawn(fun() ->
        Monitor = monitor(process, Maker),
        obey(Monitor)
    end).

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
    after weir_kit:wait_ms() -> error({no_answer, Pid})
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
