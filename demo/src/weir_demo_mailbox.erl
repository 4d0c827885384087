%% @doc Section of the demo: many senders cast to one server, faster than it can handle.
%%
%% The server hashes some kilobytes for every message: work of some microseconds, as a server of some use has.
%%
%% A plain gen_server first, whose mailbox holds what it has not handled. Then the same gen_server, whose senders go
%% through weir_flow: they wait, nothing is lost. Then the same callback module as a weir_server with `max_queue':
%% nobody waits, and what is too much is dropped and counted. Every message has a number, so one that is lost, doubled
%% or out of order shows.
-module(weir_demo_mailbox).

-behaviour(weir_demo_part).

-export([title/0, hurts/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{
    senders => 500,
    each => 80,
    burst => 4,
    pause_ms => 20,
    work => 4_096,
    window => 8,
    max_queue => 1_000
}).
-define(DEADLINE_MS, 180_000).
%% For how long a message that is missing may still come.
-define(LATE_MS, 5_000).

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
    %% {Microseconds since the first cast, messages that wait in the mailbox or in the server, of these in its queue}.
    samples := [{integer(), non_neg_integer(), non_neg_integer()}],
    us := pos_integer(),
    readings := weir_demo_meter:readings(),
    %% By the server's own count.
    dropped := non_neg_integer()
}.

%% @doc The section's name.
-spec title() -> string().
title() -> "500 senders, faster than one server".

%% @doc What hurts.
-spec hurts() -> string().
hurts() -> "A cast never waits, so the mailbox of a busy gen_server grows for as long as memory lasts.".

%% @doc Runs the same flood three times.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(Context) -> run(Context, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(weir_demo_part:context(), sizes()) -> weir_demo_part:outcome().
run(_Context, #{senders := Senders, each := Each, window := Window, max_queue := MaxQueue} = Sizes) ->
    {ok, _} = application:ensure_all_started(weir_flow),
    Plain = plain(Sizes),
    Flow = flow(Sizes),
    Bounded = bounded(Sizes),
    #{readings := #{received := Received, wrong := Wrong}, dropped := Dropped} = Bounded,
    Sent = Senders * Each,
    %% Each sender's window, and the message that is being handled.
    Bound = Senders * Window + 1,
    #{
        said => [
            ["Of ", weir_kit_text:integer(Sent), " casts at most ", text(most(Plain))],
            " waited for a plain gen_server, ",
            [text(most(Flow)), " for the same one through weir_flow. A weir_server with max_queue "],
            [text(MaxQueue), " had ", text(in_queue(Bounded)), " in its queue, and dropped ", text(Dropped), "."]
        ],
        promises => [
            {
                io_lib:format("weir_flow, window ~b: ~ts waited, at most ~ts may", [
                    Window, text(most(Flow)), weir_kit_text:integer(Bound)
                ]),
                most(Flow) =< Bound
            },
            arrived("weir_flow", Flow, Sent),
            {
                io_lib:format("weir_server, max_queue ~ts: ~ts were in its queue", [
                    weir_kit_text:integer(MaxQueue), weir_kit_text:integer(in_queue(Bounded))
                ]),
                in_queue(Bounded) =< MaxQueue
            },
            {
                io_lib:format("weir_server: ~ts handled + ~ts dropped = ~ts, ~b out of order", [
                    weir_kit_text:integer(Received), weir_kit_text:integer(Dropped),
                    weir_kit_text:integer(Received + Dropped), Wrong
                ]),
                Received + Dropped =:= Sent andalso Wrong =:= 0
            }
        ],
        plots => [
            #{
                kind => lines,
                title => "Mailbox over time",
                x => "time in seconds",
                y => "messages that wait",
                series => [
                    #{name => Name, side => Side, points => [{At / 1.0e6, N} || {At, N, _} <- Samples]}
                 || {Name, Side, #{samples := Samples}} <- [
                        {"plain gen_server", plain, Plain}, {"weir_flow", weir, Flow}, {"weir_server", other, Bounded}
                    ]
                ]
            },
            #{
                kind => bars,
                title => "The most that waited",
                bars => [
                    #{name => Name, side => Side, value => most(Figures), text => [text(most(Figures)), More]}
                 || {Name, Side, Figures, More} <- [
                        {"plain gen_server", plain, Plain, ""},
                        {"weir_flow", weir, Flow, ""},
                        {"weir_server", other, Bounded, [", ", text(in_queue(Bounded)), " of them in its queue"]}
                    ]
                ]
            }
        ]
    }.

text(N) -> weir_kit_text:integer(N).

most(#{samples := Samples}) -> lists:max([N || {_, N, _} <- Samples]).

in_queue(#{samples := Samples}) -> lists:max([N || {_, _, N} <- Samples]).

arrived(Name, #{readings := #{received := Received, skipped := Skipped, wrong := Wrong}}, Sent) ->
    {
        io_lib:format("~ts: ~ts of ~ts arrived, ~b out of order", [
            Name, weir_kit_text:integer(Received), weir_kit_text:integer(Sent), Skipped + Wrong
        ]),
        Received =:= Sent andalso Skipped + Wrong =:= 0
    }.

-spec plain(sizes()) -> figures().
plain(Sizes) -> through("a plain gen_server", fun gen_server:cast/2, Sizes).

-spec flow(sizes()) -> figures().
flow(#{window := Window} = Sizes) ->
    through("weir_flow", fun(To, Message) -> weir_flow:cast(To, Message, Window) end, Sizes).

through(Name, Cast, #{work := Work} = Sizes) ->
    {ok, Pid} = gen_server:start(weir_demo_meter, Work, []),
    Waiting = fun() -> {weir_kit_sampler:mailbox(Pid), 0} end,
    Figures = flood(Name, Pid, Cast, Waiting, fun() -> 0 end, Sizes),
    ok = gen_server:stop(Pid),
    Figures.

-spec bounded(sizes()) -> figures().
bounded(#{max_queue := MaxQueue, work := Work} = Sizes) ->
    {ok, Pid} = weir_server:start(weir_demo_meter, Work, #{max_queue => MaxQueue}),
    Waiting = fun() ->
        {ok, #{waiting := N, drained := Drained}} = weir_server:info(Pid),
        {N, Drained}
    end,
    Dropped = fun() ->
        {ok, #{dropped := #{casts := Casts}}} = weir_server:info(Pid),
        Casts
    end,
    Figures = flood("weir_server", Pid, fun weir_server:cast/2, Waiting, Dropped, Sizes),
    ok = weir_server:stop(Pid),
    Figures.

flood(Name, Pid, Cast, Waiting, Dropped, #{senders := Senders, each := Each, burst := Burst, pause_ms := PauseMs}) ->
    Sent = counters:new(1, [write_concurrency]),
    Label = io_lib:format("~ts casts through ~ts", [weir_kit_text:integer(Senders * Each), Name]),
    Count = fun() -> counters:get(Sent, 1) end,
    weir_demo_screen:watch(Label, Senders * Each, Count, fun() ->
        Sampler = weir_kit_sampler:start(1, fun() -> {erlang:monotonic_time(microsecond), Waiting()} end),
        Start = erlang:monotonic_time(microsecond),
        Send = fun(I) ->
            ok = pause(rand:uniform(PauseMs + 1) - 1),
            send(1, Each, Burst, PauseMs, fun(Number) ->
                ok = Cast(Pid, {I, Number}),
                counters:add(Sent, 1, 1)
            end)
        end,
        _ = weir_kit_crowd:together(Senders, Send, ?DEADLINE_MS),
        {Readings, Lost} = all_read(Pid, Dropped, Senders * Each, Start, erlang:monotonic_time(millisecond)),
        Us = erlang:monotonic_time(microsecond) - Start,
        Samples = [
            {At - Start, N, InQueue}
         || {At, {N, InQueue}} <- weir_kit_sampler:stop(Sampler), At >= Start
        ],
        #{samples => Samples, us => max(1, Us), readings => Readings, dropped => Lost}
    end).

%% The runtime keeps the order of what one process sends, and not of what several do: the question may be answered
%% before the last of the senders' messages has come.
all_read(Pid, Dropped, Sent, Start, Since) ->
    #{received := Received} = Readings = readings(Pid, Start),
    Lost = Dropped(),
    case Received + Lost < Sent andalso erlang:monotonic_time(millisecond) - Since < ?LATE_MS of
        true ->
            ok = pause(1),
            all_read(Pid, Dropped, Sent, Start, Since);
        false ->
            {Readings, Lost}
    end.

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
