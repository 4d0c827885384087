%% @doc Runs a function in many processes and takes the time, without being in their way.
%%
%% The processes are neither linked nor monitored, and report through an atomic: the measuring process's mailbox stays
%% empty. A process that fails makes the measurement fail.
-module(weir_kit_crowd).

-export([burst/2, together/2, together/3, start/2, started/1, left/1, await/2]).

-export_type([crowd/0]).

-define(TIMEOUT, 180_000).

-record(crowd, {
    parent :: pid(),
    ref :: reference(),
    %% How many have not finished.
    left :: atomics:atomics_ref(),
    %% Monotonic time, native.
    start = 0 :: integer()
}).

-opaque crowd() :: #crowd{}.

%% @doc Spawns processes number 1 to `N' in a row, which begin at once. Gives nanoseconds from before the first spawn
%% until the last has finished. The function has to fail if anything is wrong.
-spec burst(N :: pos_integer(), fun((I :: pos_integer()) -> term())) -> pos_integer().
burst(N, Work) ->
    Crowd = start(N, Work),
    finished(Crowd, ?TIMEOUT).

%% @doc Spawns them like {@link burst/2}, and returns when the last has been spawned. For {@link left/1} and
%% {@link await/2}, by the process that called this.
-spec start(N :: pos_integer(), fun((I :: pos_integer()) -> term())) -> crowd().
start(N, Work) ->
    %% The memory of so many processes is got before the time runs: whether the burst before this one has left some is
    %% no merit of either's.
    _ = together(N, fun(_) -> ok end),
    Watched = watch(N),
    Crowd = Watched#crowd{start = erlang:monotonic_time()},
    ok = spawn_each(N, Work, Crowd),
    Crowd.

%% @doc When the first was spawned: monotonic time, in microseconds.
-spec started(crowd()) -> integer().
started(#crowd{start = Start}) -> erlang:convert_time_unit(Start, native, microsecond).

%% @doc How many have not finished.
-spec left(crowd()) -> non_neg_integer().
left(#crowd{left = Left}) -> atomics:get(Left, 1).

%% @doc Waits so many milliseconds for the end, and gives nanoseconds from before the first spawn until the last has
%% finished. It may be called again after `timeout'.
-spec await(crowd(), Timeout :: timeout()) -> {ok, pos_integer()} | timeout.
await(#crowd{ref = Ref, start = Start}, Timeout) ->
    receive
        {Ref, done, End} -> {ok, max(1, erlang:convert_time_unit(End - Start, native, nanosecond))};
        {Ref, failed, Reason} -> error({wrong_result, Reason})
    after Timeout -> timeout
    end.

%% @doc Like {@link burst/2}, but all processes exist before the first begins, and time runs from then.
-spec together(N :: pos_integer(), fun((I :: pos_integer()) -> term())) -> pos_integer().
together(N, Work) -> together(N, Work, ?TIMEOUT).

%% @doc Like {@link together/2}, which fails after three minutes, with a time limit in milliseconds.
-spec together(N :: pos_integer(), fun((I :: pos_integer()) -> term()), Timeout :: timeout()) -> pos_integer().
together(N, Work, Timeout) ->
    Watched = watch(N),
    Go = make_ref(),
    Pids = spawn_all(
        N,
        fun(I) ->
            receive
                Go -> ok
            end,
            Work(I)
        end,
        Watched
    ),
    Crowd = Watched#crowd{start = erlang:monotonic_time()},
    lists:foreach(fun(Pid) -> Pid ! Go end, Pids),
    finished(Crowd, Timeout).

finished(Crowd, Timeout) ->
    case await(Crowd, Timeout) of
        {ok, Ns} -> Ns;
        timeout -> error({timeout, {left, left(Crowd)}})
    end.

watch(N) ->
    Left = atomics:new(1, []),
    ok = atomics:put(Left, 1, N),
    #crowd{parent = self(), ref = make_ref(), left = Left}.

%% No list of pids is kept: the time is that of the spawned, not of the spawner's garbage collections.
spawn_each(0, _Work, _Crowd) ->
    ok;
spawn_each(I, Work, Crowd) ->
    _ = spawn(fun() -> work(I, Work, Crowd) end),
    spawn_each(I - 1, Work, Crowd).

spawn_all(N, Work, Crowd) ->
    [spawn(fun() -> work(I, Work, Crowd) end) || I <- lists:seq(1, N)].

work(I, Work, #crowd{parent = Parent, ref = Ref, left = Left}) ->
    try Work(I) of
        _ ->
            case atomics:sub_get(Left, 1, 1) of
                0 -> Parent ! {Ref, done, erlang:monotonic_time()};
                _ -> ok
            end
    catch
        Class:Reason:Stack -> Parent ! {Ref, failed, {Class, Reason, Stack}}
    end.
