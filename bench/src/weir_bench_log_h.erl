%% @doc Benchmark: 1,000 processes log to a file by logger, through weir_log_h and through OTP's handlers, and by lager.
%%
%% The formatter gives lines of 113 bytes, and is the same for all. All processes exist before the first begins. The
%% calls' time ends when the last call has returned, the entries' when the handler has synced what it has; they are
%% counted in the file when the handler has been removed.
%%
%% OTP's handlers lose entries as they come: half a second's burst, and what is too much for their queue. They are
%% compared as they are by default, without the limit of bursts, and with all limits out of reach, which loses nothing.
%%
%% lager (weir_bench_lager) loses nothing either: its callers wait when 20 messages do, as by default, or never, and
%% then its mailbox has no bound.
-module(weir_bench_log_h).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{processes => 1_000, each => 300}).
-define(ID, weir_bench_log_h).
%% Reached by no queue.
-define(NEVER, 1_000_000_000).
-define(TIMES, 5.0).
%% lager's own.
-define(ASYNC_THRESHOLD, 20).

-type sizes() :: #{processes := pos_integer(), each := pos_integer()}.

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "log_h: logger handlers that write to a file".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{processes := Processes, each := Each}) ->
    Contestant = fun({Name, Module, Options, Sync}) ->
        #{name => Name, run => fun() -> run_handler(Module, Options, Sync, Processes, Each) end}
    end,
    #{ours := Ours, lossless := Lossless, lossy := Lossy} = weir_bench_rounds:compare(Rounds, #{
        ours => [
            Contestant({"weir_log_h", weir_log_h, #{}, fun weir_log_h:sync/1}),
            Contestant({"weir_log_h, shards: 2", weir_log_h, #{shards => 2}, fun weir_log_h:sync/1})
        ],
        lossless => [
            Contestant({"logger_std_h, no limits", logger_std_h, lossless(), fun logger_std_h:filesync/1}),
            Contestant(
                {"logger_disk_log_h, no limits", logger_disk_log_h, (lossless())#{type => halt},
                    fun logger_disk_log_h:filesync/1}
            )
            | lager(Processes, Each)
        ],
        lossy => [
            Contestant({"logger_std_h", logger_std_h, #{}, fun logger_std_h:filesync/1}),
            Contestant(
                {"logger_std_h, bursts allowed", logger_std_h, #{burst_limit_enable => false},
                    fun logger_std_h:filesync/1}
            ),
            Contestant({"logger_disk_log_h", logger_disk_log_h, #{type => halt}, fun logger_disk_log_h:filesync/1})
        ]
    }),
    Total = Processes * Each,
    Text = io_lib:format(", ~b processes, ~b calls each", [Processes, Each]),
    View = fun(Key, Results) -> [view(Key, Result) || Result <- Results] end,
    [Weir | _] = WeirSpeeds = View(speed, Ours),
    [Std | _] = Speeds = View(speed, Lossless),
    [
        #{
            title => ["what is in the file", Text],
            unit => "entries",
            better => higher,
            ours => View(entries, Ours),
            peers => [],
            beside => View(entries, Lossless ++ Lossy),
            notes => [weir_bench_table:target("weir_log_h: nothing lost", nothing_lost(Total, View(entries, Ours)))]
        },
        #{
            title => ["until it is in the file, those that lose nothing", Text],
            unit => "entries a second",
            better => higher,
            ours => WeirSpeeds,
            peers => Speeds,
            notes => [
                weir_bench_lager:version(),
                weir_bench_table:target(
                    io_lib:format("~.1f times logger_std_h without loss", [?TIMES]),
                    weir_bench_rounds:ratio(higher, Weir, Std) >= ?TIMES
                )
            ]
        },
        #{
            title => ["calls", Text],
            unit => "calls a second",
            better => higher,
            ours => View(calls, Ours),
            peers => [],
            beside => View(calls, Lossless ++ Lossy)
        }
    ].

nothing_lost(Total, Results) ->
    lists:all(fun(#{figures := Figures}) -> lists:all(fun(Figure) -> Figure =:= Total end, Figures) end, Results).

view(Key, Result) -> weir_bench_rounds:view(fun(Outcome) -> maps:get(Key, Outcome) end, Result).

lossless() ->
    #{burst_limit_enable => false, drop_mode_qlen => ?NEVER, flush_qlen => ?NEVER}.

run_handler(Module, Options, Sync, Processes, Each) ->
    weir_bench_log_file:with(fun(File) ->
        ok = logger:add_handler(?ID, Module, #{
            config => Options#{file => File},
            filter_default => stop,
            filters => [{bench, {fun of_bench/2, none}}],
            formatter => {logger_formatter, #{template => [time, " ", level, " ", pid, " ", msg, "\n"]}}
        }),
        Start = erlang:monotonic_time(),
        _ = weir_kit_crowd:together(Processes, fun(_) -> log(Each, text(prefix()), #{domain => [?MODULE]}) end),
        Called = erlang:monotonic_time(),
        ok = await(Sync),
        Written = erlang:monotonic_time(),
        ok = logger:remove_handler(?ID),
        outcome(Processes * Each, Called - Start, Written - Start, File)
    end).

lager(Processes, Each) ->
    case weir_bench_lager:find() of
        {ok, Lager} ->
            [
                #{name => Name, run => fun() -> run_lager(Lager, Threshold, Processes, Each) end}
             || {Name, Threshold} <- [
                    {lists:concat(["lager_file_backend, async_threshold: ", ?ASYNC_THRESHOLD]), ?ASYNC_THRESHOLD},
                    {"lager_file_backend, no limits", ?NEVER}
                ]
            ];
        error ->
            []
    end.

run_lager(Lager, Threshold, Processes, Each) ->
    weir_bench_log_file:with(fun(File) ->
        ok = weir_bench_lager:start(Lager, File, Threshold),
        Start = erlang:monotonic_time(),
        _ = weir_kit_crowd:together(Processes, fun(_) ->
            weir_bench_lager:log(Lager, Each, text(weir_bench_lager:prefix()))
        end),
        Called = erlang:monotonic_time(),
        ok = weir_bench_lager:drain(Lager, File),
        Written = erlang:monotonic_time(),
        ok = weir_bench_lager:stop(Lager),
        outcome(Processes * Each, Called - Start, Written - Start, File)
    end).

outcome(Total, Calling, Writing, File) ->
    #{
        calls => per_second(Total, Calling),
        speed => per_second(Total, Writing),
        entries => weir_bench_log_file:entries(filelib:wildcard(File ++ "*"))
    }.

of_bench(#{meta := #{domain := [?MODULE]}} = Event, none) -> Event;
of_bench(_, none) -> stop.

%% One that is busy says so.
await(Sync) ->
    case Sync(?ID) of
        ok -> ok;
        {error, handler_busy} -> await(Sync)
    end.

log(0, _Text, _Meta) ->
    ok;
log(N, Text, Meta) ->
    ok = logger:error(Text, Meta),
    log(N - 1, Text, Meta).

%% The domain keeps them out of the node's default handler. What the formatter puts in front: the time in 32 bytes, the
%% level in 5, the pid, and a space behind each.
prefix() -> 40 + length(pid_to_list(self())).

%% A string: what fills a line of 113 bytes.
text(Prefix) -> lists:duplicate(112 - Prefix, $x).

per_second(Count, Time) -> Count * erlang:convert_time_unit(1, second, native) / Time.
