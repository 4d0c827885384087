%% @doc Benchmark: 500 senders cast to a plain gen_server, without a bound and through weir_flow.
%%
%% The time is until all casts have been handled, which the server's count shows. The longest mailbox is the longer of
%% what the server sees of its own at every hundredth cast and of what a sampler sees each millisecond.
%%
%% What a cast costs its sender when the receiver is idle is measured apart, in bursts with a call between them,
%% outside of the time: through a window so large that it never waits, and through the windows of above.
-module(weir_bench_flow).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{senders => 500, each => 2_000, windows => [8, 32, 128], bursts => 5_000}).
-define(SAMPLE_MS, 1).

%% The most that the whole may take with the first window, compared with no bound.
-define(SLOWER, 1.3).

%% The most that a cast that need not wait may cost above a plain one, in nanoseconds.
-define(DEARER, 100).

%% Casts between two looks at the clock.
-define(BURST, 64).

-type sizes() :: #{
    senders := pos_integer(),
    %% Casts of each sender.
    each := pos_integer(),
    windows := [pos_integer(), ...],
    %% How many bursts, for the costs of one sender.
    bursts := pos_integer()
}.

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "flow: 500 senders cast to a plain gen_server, bounded by weir_flow and not".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, Sizes) ->
    {ok, _} = application:ensure_all_started(weir_flow),
    floods(Rounds, Sizes) ++ [cost(Rounds, Sizes)].

floods(Rounds, #{senders := Senders, each := Each, windows := [First | _] = Windows}) ->
    Contestant = fun(Name, Cast) -> #{name => Name, run => fun() -> flood(Senders, Each, Cast) end} end,
    #{ours := Ours, peers := [Plain]} = weir_bench_rounds:compare(Rounds, #{
        ours => [Contestant(name(Window), through(Window)) || Window <- Windows],
        peers => [Contestant("gen_server:cast/2", fun gen_server:cast/2)]
    }),
    [Time, Longest] = [
        #{
            title => [Title, io_lib:format(", ~b senders, ~b casts each", [Senders, Each])],
            unit => Unit,
            better => lower,
            ours => [view(Key, Result) || Result <- Ours],
            peers => [view(Key, Plain)]
        }
     || {Title, Unit, Key} <- [{"all handled", "ms", time}, {"longest mailbox", "messages", longest}]
    ],
    [
        Time#{notes => [time_target(First, Time)]},
        Longest#{notes => [longest_target(First * Senders, Longest)], series => [series(hd(Ours)), series(Plain)]}
    ].

%% Of the round that took the middle time.
series(#{name := Name, figures := Outcomes}) ->
    Sorted = lists:sort(fun(#{time := One}, #{time := Other}) -> One =< Other end, Outcomes),
    #{samples := Samples} = lists:nth((length(Sorted) + 1) div 2, Sorted),
    {Name, Samples}.

time_target(First, #{ours := [Ours | _], peers := [Plain]}) ->
    weir_bench_table:target(
        io_lib:format("window ~b: at most ~.1f times as long", [First, ?SLOWER]),
        weir_bench_rounds:ratio(lower, Ours, Plain) >= 1 / ?SLOWER
    ).

%% In no round, not in the median one, may the mailbox be longer.
longest_target(Bound, #{ours := [#{name := Name, figures := Figures} | _]}) ->
    weir_bench_table:target(
        io_lib:format("~ts: at most ~b messages, and what is being handled", [Name, Bound]),
        lists:max(Figures) =< Bound + 1
    ).

name(Window) -> lists:concat(["weir_flow:cast/3, window ", Window]).

through(Window) -> fun(Pid, Message) -> weir_flow:cast(Pid, Message, Window) end.

view(Key, Result) -> weir_bench_rounds:view(fun(Outcome) -> maps:get(Key, Outcome) end, Result).

flood(Senders, Each, Cast) ->
    Total = Senders * Each,
    {ok, Pid} = gen_server:start(weir_bench_gauge, [], []),
    Sampler = weir_kit_sampler:start(?SAMPLE_MS, fun() -> {erlang:monotonic_time(), queue_length(Pid)} end),
    Start = erlang:monotonic_time(),
    _ = weir_kit_crowd:together(Senders, fun(_) -> cast(Each, Pid, Cast) end),
    #{count := Total, longest := Longest} = gen_server:call(Pid, result, infinity),
    End = erlang:monotonic_time(),
    Samples = [{ms(At - Start), Length} || {At, Length} <- weir_kit_sampler:stop(Sampler), At >= Start],
    ok = gen_server:stop(Pid),
    #{
        time => ms(End - Start),
        longest => lists:max([Longest | [Length || {_, Length} <- Samples]]),
        samples => Samples
    }.

ms(Time) -> erlang:convert_time_unit(Time, native, microsecond) / 1_000.

cast(0, _Pid, _Cast) ->
    ok;
cast(N, Pid, Cast) ->
    ok = Cast(Pid, N),
    cast(N - 1, Pid, Cast).

queue_length(Pid) ->
    {message_queue_len, Length} = process_info(Pid, message_queue_len),
    Length.

cost(Rounds, #{windows := Windows, bursts := Bursts}) ->
    Contestant = fun(Name, Cast) -> #{name => Name, run => fun() -> bursts(Bursts, Cast) end} end,
    #{ours := [Never | _], peers := [Plain]} =
        Results = weir_bench_rounds:compare(Rounds, #{
            ours => [
                Contestant("weir_flow:cast/3, never waits", through(Bursts * ?BURST + 1))
                | [Contestant(name(Window), through(Window)) || Window <- Windows]
            ],
            peers => [Contestant("gen_server:cast/2", fun gen_server:cast/2)]
        }),
    Added = round(median(Never) - median(Plain)),
    Results#{
        title => "one sender, the receiver is idle",
        unit => "ns/cast",
        better => lower,
        notes => [
            weir_bench_table:target(
                io_lib:format("a cast that need not wait costs at most ~b ns more (~b)", [?DEARER, Added]),
                Added =< ?DEARER
            ),
            "the windows' figures contain the round trip to the receiver that each window takes"
        ]
    }.

median(#{figures := Figures}) -> weir_bench_rounds:median(Figures).

bursts(Bursts, Cast) ->
    {ok, Pid} = gen_server:start(weir_bench_gauge, [], []),
    Sum = counters:new(1, []),
    _ = weir_kit_crowd:together(1, fun(_) ->
        lists:foreach(
            fun(_) ->
                Start = erlang:monotonic_time(),
                ok = cast(?BURST, Pid, Cast),
                counters:add(Sum, 1, erlang:monotonic_time() - Start),
                ok = gen_server:call(Pid, sync)
            end,
            lists:seq(1, Bursts)
        )
    end),
    Total = Bursts * ?BURST,
    #{count := Total} = gen_server:call(Pid, result),
    ok = gen_server:stop(Pid),
    erlang:convert_time_unit(counters:get(Sum, 1), native, nanosecond) / Total.
