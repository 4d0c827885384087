%% @doc Benchmark: 1,000 processes log entries of 113 bytes, through weir_log and through disk_log.
%%
%% All processes exist before the first begins, and stay. The time is until all is written: the log is asked for
%% information, which it gives behind all that was sent before. The entries are counted in the file afterwards.
%%
%% disk_log as it is fastest (weir_bench_log_open), with `blog' and `balog', which take bytes as they are.
%% `blog' returns when the entry is in its cache of 64 KB, weir_log:log/2 when the write has returned.
%%
%% Syncs. weir_log with `ack => synced' beside `disk_log:blog' followed by `disk_log:sync', and one process that writes
%% and syncs entry by entry, which is the most that a server without batches can do. With two shards there are two
%% syncs at a time, each for half of the callers.
-module(weir_bench_log).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{processes => 1_000, each => 600, synced_each => 100, alone => 500}).
-define(WINDOW, 16).
-define(SAMPLE_MS, 5).

-type sizes() :: #{
    processes := pos_integer(),
    %% Entries of each process; of each when they are synced.
    each := pos_integer(),
    synced_each := pos_integer(),
    %% Entries of the one that syncs each alone.
    alone := pos_integer()
}.

-record(target, {ours :: pos_integer(), ratio :: number(), aim :: number()}).

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "log: weir_log and disk_log".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{processes := Processes, each := Each, synced_each := Synced, alone := Alone}) ->
    {ok, _} = application:ensure_all_started(weir_log),
    Text = io_lib:format(", ~b processes, ~b entries each", [Processes, Each]),
    waiting(Rounds, Processes, Each, ["waiting until it is written", Text]) ++
        not_waiting(Rounds, Processes, Each, ["not waiting", Text]) ++
        synced(Rounds, Processes, Synced, Alone).

waiting(Rounds, Processes, Each, Title) ->
    Results = weir_bench_rounds:compare(Rounds, #{
        ours => [
            weir(lists:concat(["weir_log:log/2, written, shards: ", Shards]), log, #{shards => Shards}, Processes, Each)
         || Shards <- [1, 2]
        ],
        peers => [disk_log("disk_log:blog/2", fun disk_log:blog/2, Processes, Each)]
    }),
    [Speed | More] = views(Title, Results),
    [targets([#target{ours = 1, ratio = 1.0, aim = 1.2}, #target{ours = 2, ratio = 1.4, aim = 1.8}], Speed) | More].

not_waiting(Rounds, Processes, Each, Title) ->
    Results = weir_bench_rounds:compare(Rounds, #{
        ours => [
            weir(lists:concat(["weir_log:alog/2, shards: ", Shards]), alog, #{shards => Shards}, Processes, Each)
         || Shards <- [1, 2]
        ],
        peers => [disk_log("disk_log:balog/2", fun disk_log:balog/2, Processes, Each)]
    }),
    [Speed, #{ours := Ours} = Queue | More] = views(Title, Results),
    Longest = lists:max([lists:max(Figures) || #{figures := Figures} <- Ours]),
    Bound = ?WINDOW * Processes,
    Bounded = weir_bench_table:target(io_lib:format("at most ~b in the queue", [Bound]), Longest =< Bound),
    [
        targets([#target{ours = 1, ratio = 3.0, aim = 5.0}, #target{ours = 2, ratio = 5.0, aim = 5.0}], Speed),
        Queue#{notes => [Bounded]}
        | More
    ].

synced(Rounds, Processes, Each, Alone) ->
    #{ours := Ours, peers := Peers} = weir_bench_rounds:compare(Rounds, #{
        ours => [
            weir(lists:concat(["weir_log:log/2, synced, shards: ", Shards]), log, Options, Processes, Each)
         || Shards <- [1, 2],
            Options <- [#{ack => synced, shards => Shards}]
        ],
        peers => [
            disk_log(
                "disk_log:blog/2 and disk_log:sync/1",
                fun(Log, Entry) ->
                    ok = disk_log:blog(Log, Entry),
                    disk_log:sync(Log)
                end,
                Processes,
                Each
            ),
            #{name => "one process, one fdatasync an entry", run => fun() -> alone(Alone) end}
        ]
    }),
    [Weir | _] = Weirs = [view(speed, Result) || Result <- Ours],
    [DiskLog, One] = [view(speed, Result) || Result <- Peers],
    Ratio = fun(Peer) -> weir_bench_rounds:ratio(higher, Weir, Peer) end,
    [
        #{
            title => io_lib:format("waiting until it is durable, ~b processes, ~b entries each", [Processes, Each]),
            unit => "entries a second",
            better => higher,
            ours => Weirs,
            peers => [DiskLog, One],
            notes => [
                io_lib:format("~.1f times blog and sync, ~.1f times one by one", [Ratio(DiskLog), Ratio(One)]),
                weir_bench_table:target("10 times one fdatasync an entry", Ratio(One) >= 10)
            ]
        }
    ].

targets(Targets, #{ours := Ours, peers := [Peer]} = Table) ->
    Table#{
        notes => [
            weir_bench_table:target(
                io_lib:format("~ts: ~.1f times (aim: ~.1f)", [Name, float(Ratio), float(Aim)]),
                weir_bench_rounds:ratio(higher, Result, Peer) >= Ratio
            )
         || #target{ours = Number, ratio = Ratio, aim = Aim} <- Targets,
            #{name := Name} = Result <- [lists:nth(Number, Ours)]
        ]
    }.

%% Queues and memory have no ratio: a queue may be empty.
views(Title, #{ours := Ours, peers := Peers}) ->
    View = fun(Key, Results) -> [view(Key, Result) || Result <- Results] end,
    [
        #{
            title => Title,
            unit => "entries a second",
            better => higher,
            ours => View(speed, Ours),
            peers => View(speed, Peers)
        }
        | [
            #{
                title => Title,
                unit => Unit,
                better => lower,
                ours => View(Key, Ours),
                peers => [],
                beside => View(Key, Peers)
            }
         || {Unit, Key} <- [{"messages in the longest queue", queue}, {"KB of the log's processes at most", memory}]
        ]
    ].

view(Key, Result) -> weir_bench_rounds:view(fun(Outcome) -> maps:get(Key, Outcome) end, Result).

%% ---------------------------------------------------------------- contestants

weir(Name, Function, Options, Processes, Each) ->
    Measure = fun(#{log := Log} = Opened) ->
        measure(Opened, fun(Entry) -> ok = weir_log:Function(Log, Entry) end, Processes, Each)
    end,
    Check = fun(Outcome, Files) -> checked(Outcome, Files, Processes * Each) end,
    #{name => Name, run => fun() -> weir_bench_log_open:weir(Options#{window => ?WINDOW}, Measure, Check) end}.

disk_log(Name, Write, Processes, Each) ->
    Measure = fun(#{log := Log} = Opened) ->
        measure(Opened, fun(Entry) -> ok = Write(Log, Entry) end, Processes, Each)
    end,
    Check = fun(Outcome, Files) -> checked(Outcome, Files, Processes * Each) end,
    #{name => Name, run => fun() -> weir_bench_log_open:disk_log(Measure, Check) end}.

measure(#{writers := Writers, await := Await}, Log, Processes, Each) ->
    Entry = weir_bench_log_file:entry(),
    Sampler = weir_kit_sampler:start(?SAMPLE_MS, fun() -> [size_of(Pid) || Pid <- Writers] end),
    Start = erlang:monotonic_time(),
    _ = weir_kit_crowd:together(Processes, fun(_) -> repeat(Each, Log, Entry) end),
    ok = Await(),
    Time = erlang:monotonic_time() - Start,
    Samples = weir_kit_sampler:stop(Sampler),
    {Queues, Memories} = lists:unzip(lists:append(Samples)),
    #{speed => per_second(Processes * Each, Time), queue => lists:max(Queues), memory => lists:max(Memories) / 1_024}.

repeat(0, _Log, _Entry) ->
    ok;
repeat(N, Log, Entry) ->
    ok = Log(Entry),
    repeat(N - 1, Log, Entry).

size_of(Pid) ->
    case process_info(Pid, [message_queue_len, memory]) of
        [{_, Length}, {_, Memory}] -> {Length, Memory};
        undefined -> {0, 0}
    end.

alone(Entries) ->
    weir_bench_log_file:with(fun(File) ->
        {ok, Fd} = file:open(File, [append, raw, binary]),
        Start = erlang:monotonic_time(),
        Log = fun(Entry) ->
            ok = file:write(Fd, Entry),
            file:datasync(Fd)
        end,
        ok = repeat(Entries, Log, weir_bench_log_file:entry()),
        Time = erlang:monotonic_time() - Start,
        ok = file:close(Fd),
        checked(#{speed => per_second(Entries, Time)}, [File], Entries)
    end).

checked(Outcome, Files, Expected) ->
    weir_bench_log_file:is_all(Files, Expected) orelse
        error({wrong_result, {entries, weir_bench_log_file:entries(Files), expected, Expected}}),
    Outcome.

per_second(Count, Time) -> Count * erlang:convert_time_unit(1, second, native) / Time.
