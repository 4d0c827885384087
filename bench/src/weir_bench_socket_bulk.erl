%% @doc Benchmark: bulk transfer over sockets, in writes of 64 KB: received by the server, sent by it, and both.
%%
%% The bytes are a pattern whose period is not that of the writes, and every byte is compared with it on both sides.
%% What the kernel does for a byte weighs more than what a library does for a call; so the comparison is whether a
%% library is in the way. What the kernel reaches moves by a third from one second to the next, for whatever server:
%% five rounds tell a library that is in the way, 15 (`BENCH_ROUNDS=15') whether two are alike to a twentieth.
%%
%% Of what is sent back, at most 1 MB a connection is under way: see bench/c_src/weir_load.c.
-module(weir_bench_socket_bulk).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{connections => [1, 8], warm => 200, ms => 1_000}).

-type sizes() :: #{connections := [pos_integer()], warm := non_neg_integer(), ms := pos_integer()}.
%% How many in a comparison, and milliseconds before and of the measurement.

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "socket_bulk: transfer in writes of 64 KB over weir_socket, gen_tcp and socket".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{connections := Connections} = Sizes) ->
    [First | Rest] = [
        compare(Rounds, Direction, Count, Sizes)
     || Count <- Connections, Direction <- [sink, source, bulk_echo]
    ],
    [First#{notes => maps:get(notes, First) ++ weir_bench_socket_contest:notes()} | Rest].

compare(Rounds, Work, Count, Sizes) ->
    Modes = modes(Work),
    Groups = #{
        ours => [{weir_socket, Mode} || Mode <- Modes],
        peers => [{Kind, Mode} || Kind <- [gen_tcp, gen_tcp_socket], Mode <- Modes] ++ [{socket, passive}],
        beside => [{c, passive}]
    },
    Contestants = fun(_Group, Entrants) ->
        [contestant(Entrant, Work, Count, Sizes) || Entrant <- Entrants]
    end,
    #{ours := Ours, peers := Peers, beside := Beside} =
        maps:map(
            fun(_Group, Results) -> weir_bench_socket_contest:view(fun speed/1, Results) end,
            weir_bench_rounds:compare(Rounds, maps:map(Contestants, Groups))
        ),
    #{
        title => io_lib:format("~ts, ~b at once", [direction(Work), Count]),
        unit => "MB a second",
        better => higher,
        ours => Ours,
        peers => Peers,
        beside => Beside,
        notes => weir_bench_socket_contest:target("not slower than the best of OTP's", higher, 1.0, {Ours, Peers})
    }.

direction(sink) -> "the server receives";
direction(source) -> "the server sends";
direction(bulk_echo) -> "the server sends back what it receives".

%% A mailbox without bound is no mode for bulk.
modes(source) -> [passive];
modes(_Receiving) -> [passive, n].

contestant(Entrant, Work, Count, #{warm := Warm, ms := Ms}) ->
    Options = [{kind, load(Work)}, {conns, Count}, {warm, Warm}, {ms, Ms}],
    weir_bench_socket_contest:contestant(Entrant, Work, Options).

load(bulk_echo) -> both;
load(Work) -> Work.

%% Bytes a microsecond are megabytes a second.
speed(#{bytes := Bytes, us := Us}) -> Bytes / Us.
