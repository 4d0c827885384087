%% @doc Benchmark: many senders wait for the limit of one slow server.
%%
%% The server works for ?WORK_US microseconds on each message. Senders of a contestant send one message after another,
%% without an end. The figure is the number of messages that the server handles in a second, once the senders have run
%% for ?WARM_UP_MS.
%%
%% Senders of `limit => wait' wait until the server has room under its limit. Senders of a window wait for their own
%% acknowledgements. Callers wait for their replies, and all their requests are in the mailbox meanwhile.
-module(weir_bench_limit).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{senders => [100, 1_000, 5_000, 20_000], milliseconds => 2_000, limit => 10}).

-define(WORK_US, 10).
-define(WARM_UP_MS, 500).
-define(WINDOW, 2).

%% Smallest share of the messages a second of gen_server:call/2 that senders of `limit => wait' reach.
-define(SHARE, 0.8).

-type sizes() :: #{
    senders := [pos_integer(), ...],
    %% Length of a measurement.
    milliseconds := pos_integer(),
    limit := pos_integer()
}.

%% @doc Returns the name of the benchmark.
-spec title() -> string().
title() -> "limit: senders that wait for a server that needs 10 us for each message".

%% @doc Runs the benchmark.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?SIZES).

%% @doc Runs the benchmark in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{senders := Senders} = Sizes) ->
    {ok, _} = application:ensure_all_started(weir_flow),
    Turns = weir_bench_slow:turns(?WORK_US),
    [table(Rounds, N, Turns, Sizes) || N <- Senders].

table(Rounds, Senders, Turns, #{milliseconds := Ms, limit := Limit}) ->
    Contestant = fun(Name, Start, Send) ->
        #{name => Name, run => fun() -> rate(Senders, Ms, Turns, Start, Send) end}
    end,
    Limited = fun(Args) ->
        {ok, Pid} = weir_server:start(weir_bench_slow, Args, []),
        ok = weir_flow:limit(Pid, Limit),
        {ok, Pid}
    end,
    Wait = fun(Pid, Message) -> weir_flow:cast(Pid, Message, #{limit => wait}) end,
    Window = fun(Pid, Message) -> weir_flow:cast(Pid, Message, ?WINDOW) end,
    Call = fun(Pid, Message) -> gen_server:call(Pid, Message, infinity) end,
    Plain = fun(Args) -> gen_server:start(weir_bench_slow, Args, []) end,
    #{ours := [Ours | _], peers := [Peer]} = Results = weir_bench_rounds:compare(Rounds, #{
        ours => [
            Contestant("weir_flow:cast/3, limit => wait", Limited, Wait),
            Contestant("weir_flow:cast/3, window 2", Plain, Window)
        ],
        peers => [Contestant("gen_server:call/2", Plain, Call)]
    }),
    Share = weir_bench_rounds:ratio(higher, Ours, Peer),
    Results#{
        title => io_lib:format("~b senders, limit ~b", [Senders, Limit]),
        unit => "messages/s",
        better => higher,
        notes => [
            weir_bench_table:target(
                io_lib:format("limit => wait: at least ~.1f times as many as with calls (~.2f)", [?SHARE, Share]),
                Share >= ?SHARE
            )
        ]
    }.

rate(Senders, Ms, Turns, Start, Send) ->
    Counters = counters:new(2, []),
    {ok, Pid} = Start({Turns, Counters}),
    Crowd = spawn(fun() ->
        _ = [spawn_link(fun() -> send(0, Pid, Send) end) || _ <- lists:seq(1, Senders)],
        receive stop -> ok end
    end),
    ok = timer:sleep(?WARM_UP_MS),
    {Began, Before} = {erlang:monotonic_time(), handled(Counters)},
    ok = timer:sleep(Ms),
    {Ended, After} = {erlang:monotonic_time(), handled(Counters)},
    ok = weir_kit:kill(Crowd),
    ok = weir_kit:kill(Pid),
    (After - Before) * erlang:convert_time_unit(1, second, native) / (Ended - Began).

handled(Counters) ->
    #{calls := Calls, casts := Casts} = weir_bench_slow:counted(Counters),
    Calls + Casts.

%% A sender ends with its server.
send(N, Pid, Send) ->
    case Send(Pid, N) of
        ok -> send(N + 1, Pid, Send);
        {error, noproc} -> ok
    end.
