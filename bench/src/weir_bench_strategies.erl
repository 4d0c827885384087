%% @doc Benchmark: gproc_pool's published measurements, repeated with weir_pool.
%%
%% Ulf Wiger published them with gproc_pool's announcement on the list erlang-questions, on 4 June 2013 (a MacBook Air).
%% Three tables: what a pick of each strategy costs over 6 workers, and how evenly 100,000 picks fall on them; what N
%% clients pay for a pick who each make 1,000 in a tight loop; and the same with a random sleep between picks.
%%
%% In the first, every pick is counted for its worker while time runs, as it was in the published test, and the counts
%% must add up; a claim is also checked to be exclusive. In the others, every pick is checked to be a pid.
-module(weir_bench_strategies).

-behaviour(weir_bench_part).

-export([title/0, run/1, spread/3]).

-export_type([spread/0]).

-define(SIZE, 6).
-define(PICKS, 100_000).
-define(CLIENTS, [1, 10, 100, 1_000]).
-define(CLIENTS_PICKS, 1_000).
-define(SLEEPY_CLIENTS, [100, 1_000]).
%% The published ones made 1,000, which takes 25 seconds.
-define(SLEEPY_PICKS, 40).
-define(MAX_SLEEP_MS, 50).

-type spread() :: #{
    ns_per_pick := float(),
    %% Picks that the workers got, in the order of the slots.
    counts := [non_neg_integer()],
    %% The largest distance of a worker from an equal share, as a part of that share; and between two workers.
    deviation := float(),
    difference := non_neg_integer()
}.

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "strategies: gproc_pool's published measurements".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    lists:foreach(
        fun(Strategy) -> ok = weir_bench_pools:start_weir(pool(Strategy), #{size => ?SIZE, strategy => Strategy}) end,
        strategies()
    ),
    Tables = [costs(Rounds), tight(Rounds), sleepy(Rounds)],
    lists:foreach(fun(Strategy) -> ok = weir_bench_pools:stop_weir(pool(Strategy)) end, strategies()),
    Tables.

strategies() -> [round_robin, hash, random, direct, least_loaded].

pool(Strategy) -> {?MODULE, Strategy}.

costs(Rounds) ->
    Runs = [{atom_to_list(Strategy), Strategy, pool(Strategy)} || Strategy <- strategies()],
    Results = weir_bench_rounds:run(Rounds, [
        #{name => Name, run => fun() -> spread(How, Pool, ?PICKS) end}
     || {Name, How, Pool} <- Runs ++ [{"claim", claim, pool(round_robin)}]
    ]),
    #{
        title => io_lib:format("cost of a pick and its count, 1 process, ~b workers, ~b picks", [?SIZE, ?PICKS]),
        unit => "ns/pick",
        better => lower,
        ours => [weir_bench_rounds:view(fun(#{ns_per_pick := Ns}) -> Ns end, Result) || Result <- Results],
        peers => [],
        notes =>
            [
                "published for gproc_pool, 2013, in us: round robin 28, hash 19, random 37, direct 18, claim 76"
                | lists:append([evenness(Result) || Result <- Results])
            ]
    }.

evenness(#{name := Name, figures := Spreads}) ->
    Difference = lists:max([Each || #{difference := Each} <- Spreads]),
    Deviations = [Each || #{deviation := Each} <- Spreads],
    Deviation = weir_bench_rounds:median(Deviations),
    #{counts := Counts} = lists:last(Spreads),
    Text = io_lib:format("~ts: largest difference ~b; from an equal share ~.2f %, at most ~.2f %: ~w", [
        Name, Difference, 100 * Deviation, 100 * lists:max(Deviations), Counts
    ]),
    [Text | [weir_bench_table:target(Target, Met) || {Target, Met} <- even(Name, Difference, Deviation)]].

even("round_robin", Difference, _Deviation) ->
    [{"even to within the number of schedulers", Difference =< erlang:system_info(schedulers_online)}];
even("direct", Difference, _Deviation) ->
    [{io_lib:format("exactly even, but for the rest of ~b by ~b", [?PICKS, ?SIZE]), Difference =< 1}];
even(Name, _Difference, Deviation) when Name =:= "hash"; Name =:= "random" ->
    Sigma = math:sqrt((?SIZE - 1) / ?PICKS),
    Text = "within 2 % in the median round; of true random numbers the standard deviation is ~.2f %",
    [{io_lib:format(Text, [100 * Sigma]), Deviation =< 0.02}];
even(_Name, _Difference, _Deviation) ->
    [].

%% @doc Makes so many picks, and counts them for each worker of the pool.
-spec spread(weir_pool:strategy() | claim, weir_pool:name(), Picks :: pos_integer()) -> spread().
spread(How, Pool, Picks) ->
    Pids = weir_bench_pools:pids(Pool),
    Size = length(Pids),
    Counters = counters:new(Size, []),
    Indices = maps:from_list(lists:zip(Pids, lists:seq(1, Size))),
    Count = fun(Pid) -> counters:add(Counters, map_get(Pid, Indices), 1) end,
    Once = once(How, Pool, Count, weir_bench_exclusive:new(Pids)),
    Time = weir_kit_crowd:together(1, fun(_) -> each(Picks, Once) end),
    Counts = [counters:get(Counters, Index) || Index <- lists:seq(1, Size)],
    Picks = lists:sum(Counts),
    Share = Picks / Size,
    #{
        ns_per_pick => Time / Picks,
        counts => Counts,
        deviation => lists:max([abs(Each - Share) || Each <- Counts]) / Share,
        difference => lists:max(Counts) - lists:min(Counts)
    }.

each(0, _Once) ->
    ok;
each(N, Once) ->
    ok = Once(N),
    each(N - 1, Once).

once(claim, Pool, Count, Check) ->
    Work = fun(Pid) ->
        ok = weir_bench_exclusive:hold(Pid, Check),
        Count(Pid)
    end,
    fun(_) ->
        {ok, ok} = weir_pool:claim(Pool, Work),
        ok
    end;
once(How, Pool, Count, _Check) when How =:= hash; How =:= direct ->
    fun(N) ->
        {ok, Pid} = weir_pool:pick(Pool, N),
        Count(Pid)
    end;
once(_How, Pool, Count, _Check) ->
    fun(_) ->
        {ok, Pid} = weir_pool:pick(Pool),
        Count(Pid)
    end.

tight(Rounds) ->
    Results = weir_bench_rounds:run(Rounds, [
        #{name => name(N), run => fun() -> as_seen(N, fun(_) -> tight_client(?CLIENTS_PICKS) end) / ?CLIENTS_PICKS end}
     || N <- ?CLIENTS
    ]),
    #{
        title => io_lib:format("a pick as a client sees it, ~b in a tight loop, round robin", [?CLIENTS_PICKS]),
        unit => "ns/pick, mean of the clients",
        better => lower,
        ours => Results,
        peers => [],
        notes => ["published for gproc_pool, 2013, in us: 37, 250, 1,630, 18,813"]
    }.

tight_client(Picks) ->
    Start = erlang:monotonic_time(),
    ok = picks(Picks),
    erlang:monotonic_time() - Start.

picks(0) ->
    ok;
picks(N) ->
    {ok, Pid} = weir_pool:pick(pool(round_robin)),
    true = is_pid(Pid),
    picks(N - 1).

sleepy(Rounds) ->
    Pick = fun(_) -> weir_pool:pick(pool(round_robin)) end,
    PickByKey = fun(Key) -> weir_pool:pick(pool(hash), Key) end,
    Nothing = fun(_) -> {ok, self()} end,
    Contestant = fun(Name, N, Fun) ->
        #{
            name => name(N) ++ ", " ++ Name,
            run => fun() -> as_seen(N, fun(I) -> sleepy_client(?SLEEPY_PICKS, I, Fun, 0) end) / ?SLEEPY_PICKS end
        }
    end,
    Results = weir_bench_rounds:compare(Rounds, #{
        ours => [Contestant("round robin", N, Pick) || N <- ?SLEEPY_CLIENTS] ++ [Contestant("hash", 1_000, PickByKey)],
        peers => [],
        beside => [Contestant("no pick: the clock alone", 1_000, Nothing)]
    }),
    Results#{
        title => io_lib:format("a pick as a client sees it, after a sleep of 0 to ~b ms", [?MAX_SLEEP_MS]),
        unit => "ns/pick, mean of all",
        better => lower,
        notes => [
            io_lib:format("~b picks a client, where the published ones made 1,000", [?SLEEPY_PICKS]),
            "published for gproc_pool, 2013, in us: round robin 50 (100 clients) and 60 (1,000), hash 20 (1,000)"
        ]
    }.

sleepy_client(0, _I, _Pick, Sum) ->
    Sum;
sleepy_client(N, I, Pick, Sum) ->
    receive
    after rand:uniform(?MAX_SLEEP_MS + 1) - 1 -> ok
    end,
    Start = erlang:monotonic_time(),
    {ok, Pid} = Pick(I),
    End = erlang:monotonic_time(),
    true = is_pid(Pid),
    sleepy_client(N - 1, I, Pick, Sum + End - Start).

name(N) -> lists:concat([N, " client(s)"]).

%% The mean of what the clients report, in nanoseconds.
as_seen(N, Client) ->
    Sum = counters:new(1, [write_concurrency]),
    _ = weir_kit_crowd:together(N, fun(I) -> counters:add(Sum, 1, Client(I)) end),
    erlang:convert_time_unit(counters:get(Sum, 1), native, nanosecond) / N.
