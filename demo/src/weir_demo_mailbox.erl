%% @doc Part of the demo: many senders cast to one server, faster than it can handle.
%%
%% The server hashes some kilobytes for every message: work of some microseconds, as a server of some use has.
%%
%% A plain gen_server first, whose mailbox holds what it has not handled. Then the same gen_server, whose senders go
%% through weir_flow: they wait, nothing is lost. Then the same callback module as a weir_server with `max_queue':
%% nobody waits, and what is too much is dropped and counted. Every message has a number, so one that is lost, doubled
%% or out of order shows.
-module(weir_demo_mailbox).

-behaviour(weir_demo_part).

-export([title/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{
    senders => 500,
    each => 160,
    burst => 4,
    pause_ms => 20,
    work => 4_096,
    window => 8,
    max_queue => 1_000
}).
-define(DEADLINE_MS, 60_000).

-type sizes() :: #{
    senders := pos_integer(),
    %% Casts of each sender.
    each := pos_integer(),
    %% So many at once, then a pause.
    burst := pos_integer(),
    pause_ms := non_neg_integer(),
    %% The work of a callback: so many bytes are hashed.
    work := non_neg_integer(),
    window := pos_integer(),
    max_queue := pos_integer()
}.

-type figures() :: #{
    %% Microseconds from the first cast until all have been handled or dropped.
    time := pos_integer(),
    %% The most messages that waited, in the mailbox or in the server.
    waiting := non_neg_integer(),
    %% The most memory of the server, in bytes.
    memory := non_neg_integer(),
    readings := weir_demo_meter:readings(),
    dropped := non_neg_integer(),
    problems := [iodata()]
}.

%% @doc The part's name.
-spec title() -> string().
title() ->
    "Bounded senders: 500 processes, 160 casts each in 0.8 s, to one server".

%% @doc Runs the same flood three times.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(_Context) -> run_sizes(?SIZES).

%% @doc Runs it in other sizes.
-spec run(weir_demo_part:context(), sizes()) -> weir_demo_part:outcome().
run(_Context, Sizes) -> run_sizes(Sizes).

run_sizes(Sizes) ->
    {ok, _} = application:ensure_all_started(weir_flow),
    Plain = plain(Sizes),
    ok = note("a plain gen_server", Plain),
    Flow = flow(Sizes),
    ok = note("through weir_flow", Flow),
    Bounded = bounded(Sizes),
    ok = note("weir_server with max_queue", Bounded),
    #{
        rows => rows(Plain, Flow, Bounded, Sizes),
        problems => lists:append([Problems || #{problems := Problems} <- [Plain, Flow, Bounded]])
    }.

note(What, #{time := Time, waiting := Waiting}) ->
    weir_demo_progress:note("~ts: ~ts, at most ~ts waited", [
        What, weir_demo_table:milliseconds(Time), weir_demo_table:integer(Waiting)
    ]).

-spec plain(sizes()) -> figures().
plain(#{work := Work} = Sizes) ->
    {ok, Pid} = gen_server:start(weir_demo_meter, Work, []),
    Figures = flood(Pid, fun gen_server:cast/2, fun() -> mailbox(Pid) end, Sizes),
    ok = gen_server:stop(Pid),
    nothing_lost("plain gen_server", Figures, Sizes).

-spec flow(sizes()) -> figures().
flow(#{window := Window, work := Work} = Sizes) ->
    {ok, Pid} = gen_server:start(weir_demo_meter, Work, []),
    Cast = fun(To, Message) -> weir_flow:cast(To, Message, Window) end,
    Figures = flood(Pid, Cast, fun() -> mailbox(Pid) end, Sizes),
    ok = gen_server:stop(Pid),
    nothing_lost("weir_flow", Figures, Sizes).

-spec bounded(sizes()) -> figures().
bounded(#{max_queue := MaxQueue, work := Work} = Sizes) ->
    {ok, Pid} = weir_server:start(weir_demo_meter, Work, #{max_queue => MaxQueue}),
    Waiting = fun() ->
        {ok, #{waiting := N}} = weir_server:info(Pid),
        N
    end,
    Figures = flood(Pid, fun weir_server:cast/2, Waiting, Sizes),
    {ok, #{handled := #{casts := Handled}, dropped := #{casts := Dropped}}} = weir_server:info(Pid),
    ok = weir_server:stop(Pid),
    all_counted(Handled, Figures#{dropped => Dropped}, Sizes).

mailbox(Pid) ->
    {message_queue_len, Length} = process_info(Pid, message_queue_len),
    Length.

flood(Pid, Cast, Waiting, #{senders := Senders, each := Each, burst := Burst, pause_ms := PauseMs}) ->
    Watcher = weir_demo_peak:start(fun() ->
        {memory, Memory} = process_info(Pid, memory),
        #{memory => Memory, waiting => Waiting()}
    end),
    Start = erlang:monotonic_time(microsecond),
    Send = fun(I) ->
        ok = pause(rand:uniform(PauseMs + 1) - 1),
        send(1, Each, Burst, PauseMs, fun(Number) -> ok = Cast(Pid, {I, Number}) end)
    end,
    Monitors = [element(2, spawn_monitor(fun() -> Send(I) end)) || I <- lists:seq(1, Senders)],
    lists:foreach(
        fun(Monitor) ->
            receive
                {'DOWN', Monitor, process, _, Reason} -> normal = Reason
            after ?DEADLINE_MS -> error(senders_do_not_end)
            end
        end,
        Monitors
    ),
    Readings = readings(Pid, Start),
    Time = erlang:monotonic_time(microsecond) - Start,
    Peak = weir_demo_peak:stop(Watcher),
    Peak#{time => max(1, Time), readings => Readings, dropped => 0, problems => []}.

%% A bounded server may still be full, and refuse the question.
readings(Pid, Start) ->
    case gen_server:call(Pid, readings, ?DEADLINE_MS) of
        {error, {overload, _}} ->
            erlang:monotonic_time(microsecond) - Start < ?DEADLINE_MS * 1_000 orelse error(still_full),
            ok = pause(1),
            readings(Pid, Start);
        Readings ->
            Readings
    end.

send(Number, Each, _Burst, _PauseMs, _Cast) when Number > Each ->
    ok;
send(Number, Each, Burst, PauseMs, Cast) ->
    Last = min(Each, Number + Burst - 1),
    ok = lists:foreach(Cast, lists:seq(Number, Last)),
    ok = pause(PauseMs),
    send(Last + 1, Each, Burst, PauseMs, Cast).

pause(Ms) ->
    receive
    after Ms -> ok
    end.

nothing_lost(Name, #{readings := Readings} = Figures, #{senders := Senders, each := Each}) ->
    case Readings of
        #{received := Received, skipped := 0, wrong := 0} when Received =:= Senders * Each -> Figures;
        _ -> Figures#{problems := [io_lib:format("~ts: ~b were sent, but: ~0tp", [Name, Senders * Each, Readings])]}
    end.

all_counted(Handled, Figures, #{senders := Senders, each := Each}) ->
    #{readings := #{received := Received, wrong := Wrong} = Readings, dropped := Dropped} = Figures,
    case {Received + Dropped, Wrong, Handled} of
        {Sent, 0, Received} when Sent =:= Senders * Each ->
            Figures;
        _ ->
            Text = "weir_server: ~b were sent, but it counts ~b handled and ~b dropped, and: ~0tp",
            Figures#{problems := [io_lib:format(Text, [Senders * Each, Handled, Dropped, Readings])]}
    end.

rows(Plain, Flow, Bounded, #{window := Window, max_queue := MaxQueue}) ->
    #{readings := #{received := Received}, dropped := Dropped} = Bounded,
    ByFlow = io_lib:format("weir_flow, window ~b", [Window]),
    ByServer = ["weir_server, max_queue ", weir_demo_table:integer(MaxQueue)],
    side_by_side(ByFlow, Flow, Plain) ++
        side_by_side(ByServer, Bounded, Plain) ++
        [
            row([ByServer, ": handled"], weir_demo_table:integer(Received)),
            row([ByServer, ": dropped, by its own count"], weir_demo_table:integer(Dropped))
        ].

side_by_side(Name, Weir, Plain) ->
    [
        (row([Name, ": ", What], Text(Figure)))#{
            plain => Text(PlainFigure), ratio => weir_demo_table:ratio(PlainFigure, Figure)
        }
     || {What, Key, Text} <- [
            {"most messages waiting", waiting, fun weir_demo_table:integer/1},
            {"most memory of the server", memory, fun kilobytes/1},
            {"done after", time, fun weir_demo_table:milliseconds/1}
        ],
        #{Key := Figure} <- [Weir],
        #{Key := PlainFigure} <- [Plain]
    ].

kilobytes(Bytes) -> [weir_demo_table:integer(round(Bytes / 1_024)), " KB"].

row(What, Value) ->
    #{part => title(), what => What, value => Value}.
