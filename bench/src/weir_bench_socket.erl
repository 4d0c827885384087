%% @doc Benchmark: an echo server under a closed loop of requests of 64 bytes, on weir_socket, on OTP's sockets, in C.
%%
%% Each run has a server in a process of its own, and a load generator in C that checks every byte of the answers and
%% reads the server's processor time at both ends of the measurement. Processor time includes what the schedulers of a
%% node spin while they wait, which is part of what an idle or half-idle server costs. The kernel tells it in steps of
%% 10 ms.
%%
%% Modes are compared with the same ones: passive receiving with passive receiving, and the best active one with the
%% best active one. `socket' is compared with the passive ones.
-module(weir_bench_socket).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{connections => [64, 1, 512], bytes => 64, warm => 300, ms => 1_500}).
-define(ACTIVE, [true, once, n]).

-define(PASSIVE_TIMES, 1.8).
-define(PASSIVE_AIM, 2.1).
-define(ACTIVE_TIMES, 1.2).
-define(ACTIVE_AIM, 1.4).
-define(PASSIVE_CPU, 0.5).
-define(ACTIVE_CPU, 0.75).

-type sizes() :: #{
    %% How many in a comparison, one comparison after the other.
    connections := [pos_integer()],
    %% Of a request.
    bytes := pos_integer(),
    %% Milliseconds before the measurement, and of the measurement.
    warm := non_neg_integer(),
    ms := pos_integer()
}.

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "socket: echo servers on weir_socket, gen_tcp and socket".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{connections := Connections} = Sizes) ->
    [First | Rest] = lists:append([compare(Rounds, Count, Sizes) || Count <- Connections]),
    [First#{notes => maps:get(notes, First) ++ weir_bench_socket_contest:notes()} | Rest].

groups() ->
    #{
        weir_passive => [{weir_socket, passive}],
        weir_active => [{weir_socket, Mode} || Mode <- ?ACTIVE],
        gen_tcp_passive => [{Kind, passive} || Kind <- [gen_tcp, gen_tcp_socket]],
        gen_tcp_active => [{Kind, Mode} || Kind <- [gen_tcp, gen_tcp_socket], Mode <- ?ACTIVE],
        socket => [{socket, passive}],
        c => [{c, passive}]
    }.

compare(Rounds, Count, Sizes) ->
    Contestants = fun(_Group, Entrants) -> [contestant(Entrant, Count, Sizes) || Entrant <- Entrants] end,
    tables(Count, Sizes, weir_bench_rounds:compare(Rounds, maps:map(Contestants, groups()))).

contestant(Entrant, Count, #{bytes := Bytes, warm := Warm, ms := Ms}) ->
    Options = [{kind, echo}, {conns, Count}, {size, Bytes}, {warm, Warm}, {ms, Ms}],
    weir_bench_socket_contest:contestant(Entrant, echo, Options).

tables(Count, #{bytes := Bytes}, Results) ->
    Title = fun(What) -> io_lib:format("echo of ~b bytes, ~ts, ~ts", [Bytes, connections(Count), What]) end,
    Speed = weir_bench_socket_contest:views(fun speed/1, Results),
    Cpu = weir_bench_socket_contest:views(fun weir_bench_socket_contest:cpu/1, Results),
    Middle = weir_bench_socket_contest:views(fun(#{p50_ns := Ns}) -> Ns / 1_000 end, Results),
    Late = weir_bench_socket_contest:views(fun(#{p99_ns := Ns}) -> Ns / 1_000 end, Results),
    [
        (passive(Speed))#{
            title => Title("passive"),
            unit => "requests a second",
            better => higher,
            notes => passive_speed(Count, Speed) ++ [generator(Results)]
        },
        (active(Speed))#{
            title => Title("active"),
            unit => "requests a second",
            better => higher,
            notes => active_speed(Count, Speed)
        },
        (passive(Cpu))#{
            title => Title("passive"),
            unit => "us of processor time of the server for a request",
            better => lower,
            notes => cpu_target(Count, ?PASSIVE_CPU, weir_passive, gen_tcp_passive, Cpu)
        },
        (active(Cpu))#{
            title => Title("active"),
            unit => "us of processor time of the server for a request",
            better => lower,
            notes => cpu_target(Count, ?ACTIVE_CPU, weir_active, gen_tcp_active, Cpu)
        },
        (everyone(Middle))#{
            title => Title("p50 latency"),
            unit => "us from request to answer",
            better => lower,
            notes => latency(Count, Middle)
        },
        (everyone(Late))#{
            title => Title("p99 latency"),
            unit => "us from request to answer",
            better => lower
        }
    ].

connections(1) -> "1 connection";
connections(Count) -> io_lib:format("~b connections", [Count]).

speed(#{requests := Requests, us := Us}) -> Requests * 1.0e6 / Us.

passive(#{weir_passive := Ours, gen_tcp_passive := GenTcp, socket := Socket, c := C}) ->
    #{ours => Ours, peers => GenTcp ++ Socket, beside => C}.

active(#{weir_active := Ours, gen_tcp_active := GenTcp, c := C}) ->
    #{ours => Ours, peers => GenTcp, beside => C}.

everyone(#{weir_passive := Passive, weir_active := Active, c := C} = Groups) ->
    #{ours => Passive ++ Active, peers => otp(Groups), beside => C}.

otp(#{gen_tcp_passive := Passive, gen_tcp_active := Active, socket := Socket}) -> Passive ++ Active ++ Socket.

%% ---------------------------------------------------------------- targets

passive_speed(1, _Speed) ->
    [];
passive_speed(_Count, #{weir_passive := Ours, gen_tcp_passive := GenTcp, c := C}) ->
    speed_target(?PASSIVE_TIMES, ?PASSIVE_AIM, Ours, GenTcp) ++ weir_bench_socket_contest:limit(Ours, C).

active_speed(1, _Speed) ->
    [];
active_speed(_Count, #{weir_active := Ours, gen_tcp_active := GenTcp, c := C}) ->
    speed_target(?ACTIVE_TIMES, ?ACTIVE_AIM, Ours, GenTcp) ++ weir_bench_socket_contest:limit(Ours, C).

speed_target(Times, Aim, Ours, GenTcp) ->
    Text = io_lib:format("~.1f times the best gen_tcp, aim: ~.1f", [Times, Aim]),
    weir_bench_socket_contest:target(Text, higher, Times, {Ours, GenTcp}).

cpu_target(1, _Share, _Ours, _Peers, _Cpu) ->
    [];
cpu_target(_Count, Share, Ours, Peers, Cpu) ->
    #{Ours := Weir, Peers := GenTcp} = Cpu,
    Text = io_lib:format("~.2f of the best gen_tcp's, ~.2f times better", [Share, 1 / Share]),
    weir_bench_socket_contest:target(Text, lower, 1 / Share, {Weir, GenTcp}).

latency(1, #{weir_passive := Passive, weir_active := Active} = Middle) ->
    Text = "not later than the best of OTP's",
    weir_bench_socket_contest:target(Text, lower, 1.0, {Passive ++ Active, otp(Middle)});
latency(_Count, _Middle) ->
    [].

generator(#{c := C}) ->
    Own = fun(#{requests := Requests, own_cpu_us := Us}) -> Us / Requests end,
    [#{figures := Figures}] = weir_bench_socket_contest:view(Own, C),
    io_lib:format("the generator's own processor time: ~.1f us a request, with the server in C", [
        float(weir_bench_rounds:median(Figures))
    ]).
