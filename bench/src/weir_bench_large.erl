%% @doc Benchmark: pools of many slots, and many pools.
%%
%% A pool of 10,000 or 30,000 slots is started and stopped. From the moment when its start is asked for until nothing
%% of it is left to be erased, one process starts and stops pools of one slot, one claims from such a pool, and one
%% kills the worker of another and waits for the next: the longest of each is told. Then a small pool is stopped, on a
%% node without other pools and beside 3,000.
%%
%% The workers are trivial; with others, a pool takes what they take. Nothing is asserted: a target that is missed is
%% told.
-module(weir_bench_large).

-behaviour(weir_bench_part).

-export([title/0, run/1, life/1, stops/2]).
-export([start_worker/0]).

-define(POOL, weir_bench_large_pool).
-define(SMALL, weir_bench_large_small).
-define(DYING, weir_bench_large_dying).
-define(OTHERS, 3_000).
-define(STOPS, 20).
-define(TABLE, weir_pool_names).
-define(PAUSE_MS, 1).

-type life() :: #{
    %% Milliseconds.
    start := float(),
    stop := float(),
    erased := float(),
    %% The longest meanwhile, and until all is erased.
    pools := float(),
    claim := float(),
    restart := float()
}.

%% @doc The benchmark's name.
-spec title() -> string().
title() -> "large: pools of 10,000 and 30,000 slots, small pools beside them, and 3,000 pools".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    {ok, _} = application:ensure_all_started(weir_pool),
    [size_table(Size, Rounds) || Size <- [10_000, 30_000]] ++ [stop_table(Rounds)].

size_table(Size, Rounds) ->
    Lives = [life(Size) || _ <- lists:seq(1, Rounds)],
    Of = fun(Key) -> [maps:get(Key, Life) || Life <- Lives] end,
    Best = fun(Key) -> lists:min(Of(Key)) end,
    #{
        title => io_lib:format("a pool of ~b slots with trivial workers", [Size]),
        unit => "ms",
        better => lower,
        ours => [
            #{name => Name, figures => Of(Key)}
         || {Key, Name} <- [
                {start, "start"},
                {stop, "stop"},
                {erased, "from stop to the last term erased"},
                {pools, "longest start and stop of a pool of 1 meanwhile"},
                {claim, "longest claim from another pool meanwhile"},
                {restart, "longest restart in another pool meanwhile"}
            ]
        ],
        peers => [],
        notes => [
            weir_bench_table:target(Text, IsMet)
         || Size =:= 10_000,
            {Text, IsMet} <- [
                {"the start within 1 s, at best", Best(start) =< 1_000},
                {"the stop within 0.5 s, at best", Best(stop) =< 500},
                {"a small pool's start and stop within 50 ms, at best", Best(pools) =< 50}
            ]
        ]
    }.

stop_table(Rounds) ->
    Alone = [stops(0, ?STOPS) || _ <- lists:seq(1, Rounds)],
    Beside = [stops(?OTHERS, ?STOPS) || _ <- lists:seq(1, Rounds)],
    #{
        title => io_lib:format("stop of a pool of 1, median of ~b", [?STOPS]),
        unit => "ms",
        better => lower,
        ours => [
            #{name => "alone", figures => Alone},
            #{name => "beside 3,000 other pools", figures => Beside}
        ],
        peers => [],
        notes => [weir_bench_table:target("within 50 ms, at best", lists:min(Beside) =< 50)]
    }.

%% @doc The life of a pool of so many slots, in milliseconds.
-spec life(pos_integer()) -> life().
life(Size) ->
    %% The deaths of workers are not logged: that is no matter of a pool's.
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    ok = await_erased(),
    ok = weir_pool:start(?SMALL, opts(1)),
    ok = weir_pool:start(?DYING, opts(1)),
    Meanwhile = [{pools, fun pools/0}, {claim, fun claim/0}, {restart, fun restart/0}],
    Probes = [{Key, prober(Probe)} || {Key, Probe} <- Meanwhile],
    {Start, ok} = timed(fun() -> weir_pool:start(?POOL, opts(Size)) end),
    {Stop, ok} = timed(fun() -> weir_pool:stop(?POOL) end),
    {Erased, ok} = timed(fun await_slots_erased/0),
    Longest = maps:from_list([{Key, longest(Prober)} || {Key, Prober} <- Probes]),
    lists:foreach(fun(Name) -> ok = weir_pool:stop(Name) end, [?SMALL, ?DYING]),
    ok = logger:set_primary_config(level, Level),
    Longest#{start => Start, stop => Stop, erased => Erased}.

%% @doc The median of some stops of a pool of one slot beside so many others, in milliseconds.
-spec stops(Others :: non_neg_integer(), pos_integer()) -> float().
stops(Others, Stops) ->
    Names = [{?MODULE, N} || N <- lists:seq(1, Others)],
    lists:foreach(fun(Name) -> ok = weir_pool:start(Name, opts(1)) end, Names),
    Times = [
        begin
            ok = weir_pool:start(?SMALL, opts(1)),
            {Time, ok} = timed(fun() -> weir_pool:stop(?SMALL) end),
            Time
        end
     || _ <- lists:seq(1, Stops)
    ],
    lists:foreach(fun(Name) -> ok = weir_pool:stop(Name) end, Names),
    weir_bench_rounds:quantile(0.5, Times).

%% Beside the slot terms of small pools, which come and go.
await_slots_erased() -> await(fun() -> length(slot_terms()) < 1_000 end).

await_erased() -> await(fun() -> ets:whereis(?TABLE) =:= undefined orelse slot_terms() =:= [] end).

slot_terms() -> [Key || {Key, _} <- persistent_term:get(), is_integer(Key), Key < 0].

await(Condition) ->
    case Condition() of
        true ->
            ok;
        false ->
            receive
            after 50 -> await(Condition)
            end
    end.

opts(Size) -> #{size => Size, worker => {?MODULE, start_worker, []}, intensity => 1_000_000}.

%% @private
-spec start_worker() -> {ok, pid()}.
start_worker() ->
    {ok, proc_lib:spawn_link(fun() ->
        receive
            never -> ok
        end
    end)}.

%% ---------------------------------------------------------------- meanwhile

pools() ->
    Name = make_ref(),
    ok = weir_pool:start(Name, opts(1)),
    ok = weir_pool:stop(Name).

claim() -> {ok, true} = weir_pool:claim(?SMALL, fun is_pid/1, infinity).

restart() ->
    {ok, Worker} = weir_pool:claim(?DYING, fun(Pid) -> Pid end, infinity),
    true = exit(Worker, kill),
    await_next(Worker).

await_next(Worker) ->
    case weir_pool:pick(?DYING) of
        {ok, Pid} when Pid =/= Worker ->
            ok;
        _ ->
            receive
            after ?PAUSE_MS -> await_next(Worker)
            end
    end.

%% A process that does something again and again, and knows how long it took at most.
prober(Probe) -> spawn_link(fun() -> probe(Probe, 0.0) end).

probe(Probe, Longest) ->
    {Time, _} = timed(Probe),
    receive
        {longest, From} -> From ! {longest, self(), max(Time, Longest)}
    after ?PAUSE_MS -> probe(Probe, max(Time, Longest))
    end.

longest(Prober) ->
    Prober ! {longest, self()},
    receive
        {longest, Prober, Longest} -> Longest
    end.

timed(Fun) ->
    {Time, Result} = timer:tc(Fun),
    {Time / 1_000, Result}.
