%% @doc Benchmark: weir_memcached_server beside memcached: requests for each second of a core, and what an idle
%% connection takes.
%%
%% Both run as programs at the same time, on the same cores, with the same options; of the two, one is asked, and the
%% other sleeps. A request's price is the processor time that the server's process takes for it, with what the kernel
%% does for it: so it does not matter how many threads each has, or who else wants the cores. The generator
%% (bench/c_src/weir_memcached_load.c) compares every byte of every answer.
%%
%% Beside that of our own, a generator of others asks both in the same rounds where it is installed: memcaslap of
%% Debian's libmemcached-tools. Nothing but the server and the time is said to it, so it does what it usually does:
%% one thread, 16 connections, one request at a time on each, nine gets for each set, keys of 64 bytes, values of
%% 1,024.
-module(weir_bench_memcached_server).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2, memcaslap/0]).

-export_type([sizes/0]).

-define(SIZES, #{loads => [{64, 1}, {64, 50}, {1_000, 1}, {10_000, 1}], idle => 10_000, silence => 15_000, warm => 300,
    ms => 1_200, memcaslap => 3}).
-define(BYTES, 100).
%% Addresses from which connections come: 28,000 ports each.
-define(SOURCES, 4).
-define(ARGUMENTS, "-c 20000").
-define(PAGE, 4_096).
-define(SHARE, 0.5).
-define(IDLE_KB, 6).
%% Most of their time is silence.
-define(IDLE_ROUNDS, 3).
%% Of silence. It says what it has measured at the end.
-define(MEMCASLAP_TIMEOUT, 120_000).

-type sizes() :: #{
    loads := [{Connections :: pos_integer(), Depth :: pos_integer()}],
    idle := pos_integer(),
    silence := non_neg_integer(),
    warm := non_neg_integer(),
    ms := pos_integer(),
    memcaslap := non_neg_integer()
}.
%% Connections, and the requests that each sends in one write before it waits for their answers; idle connections;
%% milliseconds for which they are silent, in some of which ours give back what they do not need, and the runtime what
%% is free, a segment a second; milliseconds before and of a measurement; and seconds of a run of memcaslap, or none
%% of it for 0.

%% @doc The benchmark's name.
-spec title() -> string().
title() -> "memcached_server: weir_memcached_server and memcached, requests for a core, and idle connections".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{loads := Loads} = Sizes) ->
    Servers = [{Kind, start(Kind)} || Kind <- [embedded, installed]],
    Asked = [requests(Work, Load, Rounds, Servers, Sizes) || Load <- Loads, Work <- [get, set]],
    Slapped = slapped(Rounds, Servers, Sizes),
    [ok = weir_kit_memcached:stop(Server) || {_, Server} <- Servers],
    lists:append(Asked) ++ Slapped ++ [idle(Rounds, Sizes)].

start(Kind) -> weir_kit_memcached:start(#{program => Kind, arguments => ?ARGUMENTS}).

name(embedded) -> "weir_memcached_server";
name(installed) -> "memcached".

%% ---------------------------------------------------------------- requests

requests(Work, {Count, Depth} = Load, Rounds, Servers, Sizes) ->
    Contestants = fun(Kind) ->
        Server = proplists:get_value(Kind, Servers),
        [#{name => name(Kind), run => fun() -> measure(Work, Load, Server, Sizes) end}]
    end,
    Results = weir_bench_rounds:compare(Rounds, #{ours => Contestants(embedded), peers => Contestants(installed)}),
    View = fun(Fun) -> weir_bench_socket_contest:views(Fun, Results) end,
    What = io_lib:format("~s of ~b bytes, ~b connections, ~ts", [Work, ?BYTES, Count, pipelined(Depth)]),
    #{ours := [Ours], peers := [Peer]} = ForACore = View(fun(Outcome) ->
        1.0e6 / weir_bench_socket_contest:cpu(Outcome) end),
    Share = weir_bench_rounds:ratio(higher, Ours, Peer),
    [
        ForACore#{
            title => [What, ": requests for each second of a core"],
            unit => "requests",
            better => higher,
            notes => [
                weir_bench_table:target(
                    io_lib:format("half of memcached's (~.2f)", [Share]), Share >= ?SHARE
                )
            ]
        },
        (View(fun(#{requests := Requests, us := Us}) -> Requests * 1.0e6 / Us end))#{
            title => [What, ": requests a second, the generator on the same cores"],
            unit => "requests a second",
            better => higher
        }
    ].

pipelined(1) -> "one at a time";
pipelined(Depth) -> io_lib:format("~b at a time", [Depth]).

measure(Work, {Count, Depth}, #{port := Port} = Server, #{warm := Warm, ms := Ms}) ->
    weir_bench_socket_load:run(weir_memcached_load, [
        {kind, Work}, {port, Port}, {pid, weir_kit_memcached:os_pid(Server)}, {conns, Count}, {depth, Depth},
        {size, ?BYTES}, {warm, Warm}, {ms, Ms}, {sources, ?SOURCES}
    ]).

%% ---------------------------------------------------------------- requests of memcaslap

slapped(_Rounds, _Servers, #{memcaslap := 0}) -> [];
slapped(Rounds, Servers, #{memcaslap := Seconds}) ->
    case memcaslap() of
        false ->
            io:format("memcaslap: not installed (libmemcached-tools); its rows are left out~n"),
            [];
        Program ->
            Contestants = fun(Kind) ->
                Server = proplists:get_value(Kind, Servers),
                [#{name => name(Kind), run => fun() -> slap(Program, Server, Seconds) end}]
            end,
            Results = weir_bench_rounds:compare(
                Rounds, #{ours => Contestants(embedded), peers => Contestants(installed)}
            ),
            [
                Results#{
                    title => "memcaslap at its usual settings",
                    unit => "requests a second",
                    better => higher,
                    notes => [
                        io_lib:format("memcaslap -s HOST:PORT -t ~bs: 1 thread on the same cores, 16 connections, "
                            "10 % sets, keys of 64 bytes, values of 1,024", [Seconds])
                    ]
                }
            ]
    end.

%% @doc The program, or that it is not installed.
-spec memcaslap() -> file:filename() | false.
memcaslap() -> os:find_executable("memcaslap").

%% What it has stored it finds.
slap(Program, #{host := Host, port := Port}, Seconds) ->
    Arguments = ["-s", lists:concat([inet:ntoa(Host), ":", Port]), "-t", lists:concat([Seconds, "s"])],
    Output = finished(
        open_port({spawn_executable, Program}, [{args, Arguments}, exit_status, stderr_to_stdout, hide]), []
    ),
    0 = figure("get_misses: ([0-9]+)", Output),
    figure("TPS: ([0-9]+)", Output).

finished(Port, Output) ->
    receive
        {Port, {data, Data}} -> finished(Port, [Output, Data]);
        {Port, {exit_status, 0}} -> Output;
        {Port, {exit_status, Status}} -> error({wrong_result, {exit_status, Status, iolist_to_binary(Output)}})
    after ?MEMCASLAP_TIMEOUT -> error({wrong_result, {silent, iolist_to_binary(Output)}})
    end.

figure(Regex, Output) ->
    case re:run(Output, Regex, [{capture, all_but_first, list}]) of
        {match, [Digits]} -> list_to_integer(Digits);
        nomatch -> error({wrong_result, iolist_to_binary(Output)})
    end.

%% ---------------------------------------------------------------- idle connections

idle(Rounds, #{idle := Count, silence := Silence}) ->
    Contestants = fun(Kind) ->
        [#{name => name(Kind), run => fun() -> resident(Kind, Count, Silence) end, rounds => ?IDLE_ROUNDS}]
    end,
    Results = weir_bench_rounds:compare(Rounds, #{ours => Contestants(embedded), peers => Contestants(installed)}),
    #{ours := [#{figures := Figures}]} = Results,
    Results#{
        title => io_lib:format("resident memory, each of ~b idle connections", [Count]),
        unit => "KB",
        better => lower,
        notes => [
            weir_bench_table:target(
                io_lib:format("at most ~b KB", [?IDLE_KB]), weir_bench_rounds:median(Figures) =< ?IDLE_KB
            )
        ]
    }.

%% Of a new server, in KB: each connection has made a request, and is silent.
resident(Kind, Count, Silence) ->
    #{port := Port} = Server = start(Kind),
    OsPid = weir_kit_memcached:os_pid(Server),
    Before = pages(OsPid),
    Held = weir_bench_socket_load:hold(weir_memcached_load, [{port, Port}, {conns, Count}, {sources, ?SOURCES}]),
    receive
    after Silence -> ok
    end,
    After = pages(OsPid),
    Count = weir_bench_socket_load:alive(Held),
    ok = weir_bench_socket_load:release(Held),
    ok = weir_kit_memcached:stop(Server),
    max(After - Before, 1) * ?PAGE / Count / 1_024.

%% Of /proc/PID/statm, the second number.
pages(OsPid) ->
    {ok, Text} = file:read_file(io_lib:format("/proc/~b/statm", [OsPid])),
    binary_to_integer(lists:nth(2, binary:split(Text, <<" ">>, [global]))).
