%% @doc Benchmark: an echo server at part load: requests of 64 bytes at a fixed rate, spread evenly over connections.
%%
%% Other than under a closed loop, the server has to sleep and be woken again and again. What that costs is in its
%% processor time, and so is what schedulers spin before they sleep. Latency counts from when a request was due.
-module(weir_bench_socket_paced).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{rates => [10_000, 30_000], connections => 64, bytes => 64, warm => 300, ms => 1_000}).

-type sizes() :: #{
    %% Requests a second, one comparison after the other.
    rates := [pos_integer()],
    connections := pos_integer(),
    %% Of a request.
    bytes := pos_integer(),
    %% Milliseconds before the measurement, and of the measurement.
    warm := non_neg_integer(),
    ms := pos_integer()
}.

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "socket_paced: echo servers at part load on weir_socket, gen_tcp and socket".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{rates := Rates} = Sizes) ->
    [First | Rest] = lists:append([compare(Rounds, Rate, Sizes) || Rate <- Rates]),
    [First#{notes => maps:get(notes, First) ++ weir_bench_socket_contest:notes()} | Rest].

groups() ->
    #{
        weir_passive => [{weir_socket, passive}],
        weir_active => [{weir_socket, true}],
        otp_passive => [{gen_tcp, passive}, {gen_tcp_socket, passive}, {socket, passive}],
        otp_active => [{gen_tcp, true}, {gen_tcp_socket, true}],
        c => [{c, passive}]
    }.

compare(Rounds, Rate, Sizes) ->
    Contestants = fun(_Group, Entrants) -> [contestant(Entrant, Rate, Sizes) || Entrant <- Entrants] end,
    tables(Rate, Sizes, weir_bench_rounds:compare(Rounds, maps:map(Contestants, groups()))).

contestant(Entrant, Rate, #{connections := Count, bytes := Bytes, warm := Warm, ms := Ms}) ->
    Options = [{kind, echo}, {rate, Rate}, {conns, Count}, {size, Bytes}, {warm, Warm}, {ms, Ms}],
    weir_bench_socket_contest:contestant(Entrant, echo, Options).

tables(Rate, #{connections := Count}, Results) ->
    Title = fun(What) -> io_lib:format("~b requests a second over ~b connections, ~ts", [Rate, Count, What]) end,
    Cpu = weir_bench_socket_contest:views(fun weir_bench_socket_contest:cpu/1, Results),
    Middle = weir_bench_socket_contest:views(fun(#{p50_ns := Ns}) -> Ns / 1_000 end, Results),
    Late = weir_bench_socket_contest:views(fun(#{p99_ns := Ns}) -> Ns / 1_000 end, Results),
    [
        (passive(Cpu))#{
            title => Title("passive"),
            unit => "us of processor time of the server for a request",
            better => lower,
            notes => cpu_target(weir_passive, otp_passive, Cpu)
        },
        (active(Cpu))#{
            title => Title("active"),
            unit => "us of processor time of the server for a request",
            better => lower,
            notes => cpu_target(weir_active, otp_active, Cpu)
        },
        (everyone(Middle))#{title => Title("p50 latency"), unit => "us from when it was due", better => lower},
        (everyone(Late))#{title => Title("p99 latency"), unit => "us from when it was due", better => lower}
    ].

passive(#{weir_passive := Ours, otp_passive := Otp, c := C}) -> #{ours => Ours, peers => Otp, beside => C}.

active(#{weir_active := Ours, otp_active := Otp, c := C}) -> #{ours => Ours, peers => Otp, beside => C}.

everyone(#{weir_passive := Passive, weir_active := Active, otp_passive := One, otp_active := Other, c := C}) ->
    #{ours => Passive ++ Active, peers => One ++ Other, beside => C}.

cpu_target(Ours, Peers, Cpu) ->
    #{Ours := Weir, Peers := Otp} = Cpu,
    weir_bench_socket_contest:target("not more than the least of OTP's", lower, 1.0, {Weir, Otp}).
