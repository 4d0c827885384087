%% @doc Benchmark: the table that the ancestor of weir_log was published with in 2009.
%%
%% 1,000 processes log a million lines, and each line tells how the log's process was when the line was made: the date,
%% the length of that process's queue and its memory, for which every caller asks for every line. So the largest queue
%% and the largest memory are read out of the file, as they were then; here each line also has the number of its
%% process and its own, by which every line of the file is checked: its form, and that none is missing, came twice, or
%% is out of order. With the time it takes to ask and to format, the log is not all that is measured.
%%
%% `disk_log:blog' and `weir_log:log/2' wait, until the line is in the cache of 64 KB and until it is written;
%% `disk_log:balog' and `weir_log:alog/2' do not, but at the edge of the window. All processes exist before the first
%% begins, and the time is until all has been handed to the file.
%%
%% The runtime adds up the messages of a process when it is asked for that process's memory, so a question takes time in
%% proportion to the queue: 3 us at 1,000 messages, 135 us at 100,000. For a log without a bound that is nearly all of
%% the time, and ten times as many lines take a hundred times as long. So the part that does not wait has a hundred
%% thousand lines, not a million, unless the environment has `BENCH_ANCESTOR=full', which takes an hour. There are at
%% most three rounds, and one of a full run.
-module(weir_bench_log_ancestor).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).
-export([check/3]).

-export_type([sizes/0, found/0]).

-define(SIZES, #{processes => 1_000, sync => 1_000, async => 100}).
-define(ROUNDS, 3).
-define(FULL_SIZES, #{processes => 1_000, sync => 1_000, async => 1_000}).
-define(TIMEOUT, 7_200_000).
-define(WINDOW, 16).

-define(FORM, "^\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d process (\\d+) line (\\d+) queue (\\d+) memory (\\d+)\n$").

-type sizes() :: #{
    processes := pos_integer(),
    %% Lines of each process, that waits and that does not.
    sync := pos_integer(),
    async := pos_integer()
}.

-type found() :: #{
    %% The greatest that the lines tell: messages, and bytes.
    queue := non_neg_integer(),
    memory := non_neg_integer()
}.

-record(mode, {
    key :: sync | async,
    ours :: log | alog,
    peer :: blog | balog,
    %% Seconds, messages and megabytes as published.
    published :: {pos_integer(), pos_integer(), number()},
    %% The most that may be in the queue of weir_log's writer, for each process.
    bound :: pos_integer()
}).

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "log_ancestor: the ancestor's table, lines that tell the queue and the memory of the log's process".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    case os:getenv("BENCH_ANCESTOR") of
        "full" -> run(1, ?FULL_SIZES);
        _ -> run(min(Rounds, ?ROUNDS), ?SIZES)
    end.

%% @doc Runs it in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{processes := Processes} = Sizes) ->
    {ok, _} = application:ensure_all_started(weir_log),
    lists:append([tables(Mode, Rounds, Processes, maps:get(Mode#mode.key, Sizes)) || Mode <- modes()]).

modes() ->
    [
        #mode{key = sync, ours = log, peer = blog, published = {861, 999, 0.7}, bound = 1},
        #mode{key = async, ours = alog, peer = balog, published = {2_156, 68_487, 76}, bound = ?WINDOW}
    ].

tables(#mode{ours = Function, peer = Peer} = Mode, Rounds, Processes, Each) ->
    #{ours := Ours, peers := Peers} = weir_bench_rounds:compare(Rounds, #{
        ours => [weir(Function, Processes, Each)],
        peers => [disk_log(Peer, Processes, Each)]
    }),
    View = fun(Key, Results) -> [view(Key, Result) || Result <- Results] end,
    Title = io_lib:format("~w, ~b processes, ~b lines each", [Mode#mode.key, Processes, Each]),
    {Seconds, Queued, Megabytes} = Mode#mode.published,
    [#{figures := Queues}] = View(queue, Ours),
    Bound = Mode#mode.bound * Processes,
    [
        #{
            title => Title,
            unit => "seconds",
            better => lower,
            ours => View(seconds, Ours),
            peers => View(seconds, Peers),
            notes => [io_lib:format("the ancestor, a million lines, published in 2009: ~b s", [Seconds])]
        },
        %% Queues and memory have no ratio: a queue may be empty.
        #{
            title => Title,
            unit => "messages in the longest queue that a line tells",
            better => lower,
            ours => View(queue, Ours),
            peers => [],
            beside => View(queue, Peers),
            notes => [
                io_lib:format("the ancestor, 2009: ~b", [Queued]),
                weir_bench_table:target(io_lib:format("at most ~b", [Bound]), lists:max(Queues) =< Bound)
            ]
        },
        #{
            title => Title,
            unit => "KB of the log's process at most, as the lines tell",
            better => lower,
            ours => View(kilobytes, Ours),
            peers => [],
            beside => View(kilobytes, Peers),
            notes => [io_lib:format("the ancestor, 2009: ~w MB", [Megabytes])]
        }
    ].

view(Key, Result) -> weir_bench_rounds:view(fun(Outcome) -> maps:get(Key, Outcome) end, Result).

%% ---------------------------------------------------------------- contestants

weir(Function, Processes, Each) ->
    Measure = fun(#{log := Log} = Opened) ->
        measure(Opened, fun(Line) -> weir_log:Function(Log, Line) end, Processes, Each)
    end,
    Check = fun(Seconds, [File]) -> outcome(Seconds, File, Processes, Each) end,
    #{
        name => lists:concat(["weir_log:", Function, "/2"]),
        run => fun() -> weir_bench_log_open:weir(#{window => ?WINDOW}, Measure, Check) end
    }.

disk_log(Function, Processes, Each) ->
    Measure = fun(#{log := Log} = Opened) ->
        measure(Opened, fun(Line) -> disk_log:Function(Log, Line) end, Processes, Each)
    end,
    Check = fun(Seconds, [File]) -> outcome(Seconds, File, Processes, Each) end,
    #{
        name => lists:concat(["disk_log:", Function, "/2"]),
        run => fun() -> weir_bench_log_open:disk_log(Measure, Check) end
    }.

measure(#{writers := [Logger], await := Await}, Log, Processes, Each) ->
    Start = erlang:monotonic_time(),
    _ = weir_kit_crowd:together(Processes, fun(I) -> repeat(1, Each, I, Logger, Log) end, ?TIMEOUT),
    ok = Await(),
    (erlang:monotonic_time() - Start) / erlang:convert_time_unit(1, second, native).

repeat(Number, Each, _Process, _Logger, _Log) when Number > Each ->
    ok;
repeat(Number, Each, Process, Logger, Log) ->
    ok = Log(line(Process, Number, Logger)),
    repeat(Number + 1, Each, Process, Logger, Log).

line(Process, Number, Logger) ->
    [{message_queue_len, Queue}, {memory, Memory}] = process_info(Logger, [message_queue_len, memory]),
    {{Year, Month, Day}, {Hour, Minute, Second}} = erlang:localtime(),
    io_lib:format("~4..0w-~2..0w-~2..0w ~2..0w:~2..0w:~2..0w process ~w line ~w queue ~w memory ~w~n", [
        Year, Month, Day, Hour, Minute, Second, Process, Number, Queue, Memory
    ]).

outcome(Seconds, File, Processes, Each) ->
    #{queue := Queue, memory := Memory} = check(File, Processes, Each),
    #{seconds => Seconds, queue => Queue, kilobytes => Memory / 1_024}.

%% ---------------------------------------------------------------- what is in the file

%% @doc Reads the file line by line, and gives the greatest figures that are in it.
%%
%% Fails with `{wrong_result, _}' unless there are all lines of all processes, once each, those of each process in
%% their order, and nothing else. Cost: some microseconds a line.
-spec check(file:filename(), Processes :: pos_integer(), Each :: pos_integer()) -> found().
check(File, Processes, Each) ->
    {ok, Form} = re:compile(?FORM),
    {ok, Fd} = file:open(File, [read, raw, binary, {read_ahead, 1_048_576}]),
    try
        {Last, Found} = lines(Fd, Form, #{}, #{queue => 0, memory => 0}),
        Last =:= maps:from_list([{Process, Each} || Process <- lists:seq(1, Processes)]) orelse
            error({wrong_result, {lines, lists:sum(maps:values(Last)), expected, Processes * Each}}),
        Found
    after
        ok = file:close(Fd)
    end.

lines(Fd, Form, Last, #{queue := Queue, memory := Memory} = Found) ->
    case file:read_line(Fd) of
        {ok, Line} ->
            [Process, Number, Length, Bytes] = fields(Line, Form),
            Number =:= maps:get(Process, Last, 0) + 1 orelse
                error({wrong_result, {out_of_order, Process, Number, Line}}),
            Greatest = Found#{queue := max(Queue, Length), memory := max(Memory, Bytes)},
            lines(Fd, Form, Last#{Process => Number}, Greatest);
        eof ->
            {Last, Found}
    end.

fields(Line, Form) ->
    case re:run(Line, Form, [{capture, all_but_first, binary}]) of
        {match, Fields} -> [binary_to_integer(Field) || Field <- Fields];
        nomatch -> error({wrong_result, {no_line, Line}})
    end.
