%% @doc Runs a function in many processes and takes the time, without being in their way.
%%
%% The processes are neither linked nor monitored, and report through an atomic: the measuring process's mailbox stays
%% empty. A process that fails makes the measurement fail.
-module(weir_bench_crowd).

-export([burst/2, together/2, together/3]).

-define(TIMEOUT, 180_000).

%% @doc Spawns processes number 1 to `N' in a row, which begin at once. Gives nanoseconds from before the first spawn
%% until the last has finished. The function has to fail if anything is wrong.
-spec burst(N :: pos_integer(), fun((I :: pos_integer()) -> term())) -> pos_integer().
burst(N, Work) ->
    %% The memory of so many processes is got before the time runs: whether the burst before this one has left some is
    %% no merit of either's.
    _ = together(N, fun(_) -> ok end),
    Wait = watch(N),
    Start = erlang:monotonic_time(),
    ok = spawn_each(N, Work, Wait),
    await(Wait, Start, ?TIMEOUT).

%% @doc Like {@link burst/2}, but all processes exist before the first begins, and time runs from then.
-spec together(N :: pos_integer(), fun((I :: pos_integer()) -> term())) -> pos_integer().
together(N, Work) -> together(N, Work, ?TIMEOUT).

%% @doc Like {@link together/2}, which fails after three minutes, with a time limit in milliseconds.
-spec together(N :: pos_integer(), fun((I :: pos_integer()) -> term()), Timeout :: timeout()) -> pos_integer().
together(N, Work, Timeout) ->
    Wait = watch(N),
    Go = make_ref(),
    Pids = spawn_all(
        N,
        fun(I) ->
            receive
                Go -> ok
            end,
            Work(I)
        end,
        Wait
    ),
    Start = erlang:monotonic_time(),
    lists:foreach(fun(Pid) -> Pid ! Go end, Pids),
    await(Wait, Start, Timeout).

watch(N) ->
    Left = atomics:new(1, []),
    ok = atomics:put(Left, 1, N),
    {self(), make_ref(), Left}.

%% No list of pids is kept: the time is that of the spawned, not of the spawner's garbage collections.
spawn_each(0, _Work, _Wait) ->
    ok;
spawn_each(I, Work, Wait) ->
    _ = spawn(fun() -> work(I, Work, Wait) end),
    spawn_each(I - 1, Work, Wait).

spawn_all(N, Work, Wait) ->
    [spawn(fun() -> work(I, Work, Wait) end) || I <- lists:seq(1, N)].

work(I, Work, {Parent, Ref, Left}) ->
    try Work(I) of
        _ ->
            case atomics:sub_get(Left, 1, 1) of
                0 -> Parent ! {Ref, done, erlang:monotonic_time()};
                _ -> ok
            end
    catch
        Class:Reason:Stack -> Parent ! {Ref, failed, {Class, Reason, Stack}}
    end.

await({_, Ref, Left}, Start, Timeout) ->
    receive
        {Ref, done, End} -> erlang:convert_time_unit(End - Start, native, nanosecond);
        {Ref, failed, Reason} -> error({wrong_result, Reason})
    after Timeout -> error({timeout, {left, atomics:get(Left, 1)}})
    end.
