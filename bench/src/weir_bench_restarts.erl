%% @doc Benchmark: picking while a thousand workers a second die and are started again, on a node with 100,000 idle
%% processes.
%%
%% One process picks as fast as it can on each core, or on half of them: with all cores busy, the pool's processes have
%% to wait for their turn. In a storm, a killer goes over the 100 slots and kills their workers on time; with none, all
%% else is the same. Three things are told: what the storm costs the picks; what it makes the idle processes do, by
%% their reductions; and how old the dead pids are that picks still give.
%%
%% Of every hundred picks one is looked up among the killed. Its age is how long before the pick began the worker was
%% killed, and so includes the time that the kill itself takes. The others are checked to be pids. Afterwards every kill
%% must have led to one restart. The supervisors' reports of the deaths are not logged: to write a thousand a second is
%% no matter of a pool's.
-module(weir_bench_restarts).

-behaviour(weir_bench_part).

-export([title/0, run/1, with_pool/1, storm/1, start_worker/2]).

-export_type([opts/0, outcome/0]).

-define(SIZE, 100).
-define(IDLE, 100_000).
-define(SAMPLE, 1_000).
-define(RATE, 1_000).
-define(STORM_MS, 10_000).
-define(QUIET_MS, 2_000).
%% A storm takes long.
-define(STORMS, 2).
-define(POOL, weir_bench_restarts_pool).
%% {Slot, Pid} of the last that was started, {Pid, Time} of those that were killed, {{ages, Picker}, Ages}.
-define(TABLE, weir_bench_restarts_table).
-define(BLOCK, 100).
-define(SETTLE_MS, 60_000).
%% Of the tally.
-define(KILLS, 1).
-define(BLOCKS, 2).
-define(VACANT, 3).
%% When it was kept from running, the killer does not kill all at once.
-define(MAX_KILLS, 10).

-type opts() :: #{
    %% Kills a second, for so many milliseconds, among so many idle processes.
    rate := non_neg_integer(),
    ms := pos_integer(),
    pickers := pos_integer(),
    idle := [pid(), ...]
}.

-type outcome() :: #{
    picks_per_second := float(),
    kills := non_neg_integer(),
    %% What an idle process of the sample did meanwhile.
    reductions := float(),
    %% Of dead pids given, in microseconds; and how many picks were looked up.
    ages := [non_neg_integer()],
    looked_up := non_neg_integer(),
    %% Picks that found all slots vacant.
    vacant := non_neg_integer()
}.

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "restarts: picking in a storm of restarts, 100,000 idle processes".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    Idle = weir_bench_idle:start(?IDLE),
    Cores = erlang:system_info(schedulers_online),
    Tables = with_pool(fun() -> [table(N, Idle, Rounds) || N <- lists:usort([max(1, Cores div 2), Cores])] end),
    ok = weir_bench_idle:stop(Idle),
    Tables.

table(Pickers, Idle, Rounds) ->
    #{ours := [#{figures := Storms} = Storm], peers := [#{figures := Quiets} = Quiet]} =
        weir_bench_rounds:compare(Rounds, #{
            ours => [contestant("1,000 restarts a second", ?STORMS, ?RATE, ?STORM_MS, Pickers, Idle)],
            peers => [contestant("none", Rounds, 0, ?QUIET_MS, Pickers, Idle)]
        }),
    [Ours, Peer] = [
        weir_bench_rounds:view(fun(#{picks_per_second := PerSecond}) -> PerSecond end, Result)
     || Result <- [Storm, Quiet]
    ],
    #{
        title => io_lib:format("picks of ~b process(es) in a tight loop, ~b cores, ~b workers", [
            Pickers, erlang:system_info(schedulers_online), ?SIZE
        ]),
        unit => "picks/s",
        better => higher,
        ours => [Ours],
        peers => [Peer],
        notes =>
            [
                weir_bench_table:target(
                    "at least half as many", weir_bench_rounds:ratio(higher, Ours, Peer) >= 0.5
                ),
                io_lib:format("restarts in each storm of ~b s: ~w; picks that found all slots vacant: ~w", [
                    ?STORM_MS div 1_000, [Kills || #{kills := Kills} <- Storms], [N || #{vacant := N} <- Storms]
                ])
            ] ++ idle_notes(Storms, Quiets) ++ age_notes(Storms)
    }.

contestant(Name, Rounds, Rate, Ms, Pickers, Idle) ->
    #{
        name => Name,
        rounds => Rounds,
        run => fun() -> storm(#{rate => Rate, ms => Ms, pickers => Pickers, idle => Idle}) end
    }.

%% A scan takes a process two reductions, and to be asked for them up to one.
idle_notes(Storms, Quiets) ->
    [InStorms, InQuiet] = [lists:max([Done || #{reductions := Done} <- Each]) || Each <- [Storms, Quiets]],
    [
        io_lib:format("reductions of an idle process: ~.1f in a storm, ~.1f without, at most", [InStorms, InQuiet]),
        weir_bench_table:target("idle processes do nothing (asking takes one reduction, a scan two)", InStorms < 2)
    ].

age_notes(Storms) ->
    LookedUp = lists:sum([N || #{looked_up := N} <- Storms]),
    case lists:append([Ages || #{ages := Ages} <- Storms]) of
        [] ->
            [io_lib:format("dead pids: none among ~b picks looked up", [LookedUp])];
        Ages ->
            [
                io_lib:format("dead pids: ~b of ~b picks; time since the kill: p50 ~b us, p99 ~b us, worst ~b us", [
                    length(Ages),
                    LookedUp,
                    weir_bench_rounds:quantile(0.5, Ages),
                    weir_bench_rounds:quantile(0.99, Ages),
                    lists:max(Ages)
                ])
            ]
    end.

%% @doc Starts the pool for storms, does something, and stops it.
-spec with_pool(fun(() -> Result)) -> Result.
with_pool(Fun) ->
    ?TABLE = ets:new(?TABLE, [named_table, public, set, {read_concurrency, true}, {write_concurrency, auto}]),
    ok = weir_bench_pools:start_weir(?POOL, #{
        size => ?SIZE, worker => {?MODULE, start_worker, [?TABLE]}, pass_slot => true
    }),
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    Result = Fun(),
    ok = logger:set_primary_config(level, Level),
    ok = weir_bench_pools:stop_weir(?POOL),
    true = ets:delete(?TABLE),
    Result.

%% @doc One storm, on the pool of {@link with_pool/1}.
-spec storm(opts()) -> outcome().
storm(#{rate := Rate, ms := Ms, pickers := Pickers, idle := Idle}) ->
    Sample = weir_bench_idle:sample(?SAMPLE, Idle),
    %% To be asked for the first time may cost more.
    _ = weir_bench_idle:reductions(Sample),
    Before = weir_bench_idle:reductions(Sample),
    {ok, #{restarts := RestartsBefore}} = weir_pool:info(?POOL),
    Tally = counters:new(3, [write_concurrency]),
    Start = erlang:monotonic_time(),
    End = Start + erlang:convert_time_unit(Ms, millisecond, native),
    Time = weir_kit_crowd:together(1 + Pickers, fun
        (1) -> killer(Rate, Start, End, 0, Tally);
        (I) -> picker(I, End, Tally, [])
    end),
    Kills = counters:get(Tally, ?KILLS),
    ok = settled(RestartsBefore + Kills, erlang:monotonic_time(millisecond) + ?SETTLE_MS),
    #{
        picks_per_second => counters:get(Tally, ?BLOCKS) * ?BLOCK * 1.0e9 / Time,
        kills => Kills,
        reductions => weir_bench_idle:reductions(Sample) - Before,
        looked_up => counters:get(Tally, ?BLOCKS),
        vacant => counters:get(Tally, ?VACANT),
        ages => [Age || I <- lists:seq(2, 1 + Pickers), {_, Ages} <- ets:take(?TABLE, {ages, I}), Age <- Ages]
    }.

%% Kills as many as are due by now, and looks again a millisecond later.
killer(Rate, Start, End, Killed, Tally) ->
    case erlang:monotonic_time() of
        Now when Now >= End ->
            counters:add(Tally, ?KILLS, Killed);
        Now ->
            Due = erlang:convert_time_unit(Now - Start, native, microsecond) * Rate div 1_000_000,
            Killed1 = kill(min(Due - Killed, ?MAX_KILLS), Killed),
            receive
            after 1 -> ok
            end,
            killer(Rate, Start, End, Killed1, Tally)
    end.

kill(N, Killed) when N =< 0 ->
    Killed;
kill(N, Killed) ->
    [{_, Victim}] = ets:lookup(?TABLE, Killed rem ?SIZE + 1),
    case ets:insert_new(?TABLE, {Victim, erlang:monotonic_time()}) of
        true ->
            true = exit(Victim, kill),
            kill(N - 1, Killed + 1);
        false ->
            %% Its successor has yet to start.
            Killed
    end.

picker(I, End, Tally, Ages) ->
    ok = picks(?BLOCK - 1, Tally),
    counters:add(Tally, ?BLOCKS, 1),
    case erlang:monotonic_time() of
        Now when Now >= End ->
            true = ets:insert(?TABLE, {{ages, I}, Ages});
        Now ->
            Pid = pick(Tally),
            case ets:lookup(?TABLE, Pid) of
                [{Pid, KilledAt}] when KilledAt < Now ->
                    Age = erlang:convert_time_unit(Now - KilledAt, native, microsecond),
                    picker(I, End, Tally, [Age | Ages]);
                _ ->
                    picker(I, End, Tally, Ages)
            end
    end.

picks(0, _Tally) ->
    ok;
picks(N, Tally) ->
    _ = pick(Tally),
    picks(N - 1, Tally).

%% All slots may happen to be vacant.
pick(Tally) ->
    case weir_pool:pick(?POOL) of
        {ok, Pid} when is_pid(Pid) ->
            Pid;
        {error, no_worker} ->
            counters:add(Tally, ?VACANT, 1),
            none
    end.

%% Until every victim has a successor, and picks give nothing but those.
settled(Restarts, Deadline) ->
    case weir_pool:info(?POOL) of
        {ok, #{restarts := Restarts, live := ?SIZE}} ->
            true = lists:all(fun is_process_alive/1, weir_bench_pools:pids(?POOL)),
            ok;
        {ok, Info} ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({not_settled, Restarts, Info}),
            receive
            after 1 -> ok
            end,
            settled(Restarts, Deadline)
    end.

%% @doc A worker, whose pid is entered under its slot.
-spec start_worker(weir_pool:slot(), ets:table()) -> {ok, pid()}.
start_worker(Slot, Table) ->
    {ok, Pid} = weir_bench_echo:start_link([]),
    true = ets:insert(Table, {Slot, Pid}),
    {ok, Pid}.
