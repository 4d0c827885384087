%% @doc Benchmark: 10,000 idle connections: the memory that each takes in the server's process, and the echo rate of
%% others beside them.
%%
%% A run has one server. Its echo rate is measured; then the idle connections are opened, and each makes one request, so
%% that what it allocates at its first use is there; the memory is read before and after; the echo rate is measured
%% again; and then each idle connection makes one more request, whose answer has to be right.
%%
%% Each connection has a process that waits in recv, or for messages, as a server would have it. What the kernel keeps
%% for a connection is in no process's memory, and the same for all.
-module(weir_bench_socket_idle).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{idle => 10_000, connections => 64, warm => 300, ms => 1_500}).
%% Addresses from which the idle ones come: 28,000 ports each, some of which wait out their last connection.
-define(SOURCES, 4).
-define(BYTES, 64).
-define(PAGE, 4_096).
-define(KEPT, 0.9).

-type sizes() :: #{
    idle := pos_integer(), connections := pos_integer(), warm := non_neg_integer(), ms := pos_integer()
}.
%% Idle connections, those that make requests, and milliseconds before and of the measurement.

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "socket_idle: idle connections on weir_socket, gen_tcp and socket".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, Sizes) ->
    Modes = [passive, n],
    Groups = #{
        ours => [{weir_socket, Mode} || Mode <- Modes],
        peers => [{Kind, Mode} || Kind <- [gen_tcp, gen_tcp_socket], Mode <- Modes] ++ [{socket, passive}],
        beside => [{c, passive}]
    },
    Contestants = fun(_Group, Entrants) -> [contestant(Entrant, Sizes) || Entrant <- Entrants] end,
    tables(Sizes, weir_bench_rounds:compare(Rounds, maps:map(Contestants, Groups))).

tables(#{idle := Idle, connections := Count}, Results) ->
    View = fun(Key) ->
        maps:map(
            fun(_Group, Group) -> weir_bench_socket_contest:view(fun(Outcome) -> maps:get(Key, Outcome) end, Group) end,
            Results
        )
    end,
    Each = io_lib:format("each of ~b idle connections", [Idle]),
    #{ours := Ours} = Kept = View(kept),
    #{ours := OurMemory, peers := PeerMemory} = Resident = View(resident),
    [
        Resident#{
            title => ["resident memory, ", Each],
            unit => "KB",
            better => lower,
            notes => beside_gen_tcp(OurMemory, PeerMemory) ++ weir_bench_socket_contest:notes()
        },
        (maps:remove(beside, View(allocated)))#{
            title => ["memory that the runtime has allocated, ", Each],
            unit => "KB",
            better => lower
        },
        (View(speed))#{
            title => io_lib:format("echo of ~b bytes, ~b connections, beside ~b idle ones", [?BYTES, Count, Idle]),
            unit => "requests a second",
            better => higher
        },
        Kept#{
            title => io_lib:format("echo rate beside ~b idle connections, in parts of the rate without them", [Idle]),
            unit => "percent",
            better => higher,
            notes => [
                weir_bench_table:target(
                    io_lib:format("~ts keeps ~.1f", [Name, ?KEPT]), weir_bench_rounds:median(Figures) >= 100 * ?KEPT
                )
             || #{name := Name, figures := Figures} <- Ours
            ]
        }
    ].

%% The contestants stand in the order of the modes, gen_tcp before the other peers.
beside_gen_tcp(Ours, Peers) ->
    [
        io_lib:format("~ts: ~.2f of what ~ts takes", [
            Name, weir_bench_rounds:median(Figures) / weir_bench_rounds:median(GenTcp), Peer
        ])
     || {#{name := Name, figures := Figures}, #{name := Peer, figures := GenTcp}} <-
            lists:zip(Ours, lists:sublist(Peers, length(Ours)))
    ].

contestant({Kind, Mode} = Entrant, Sizes) ->
    #{
        name => weir_bench_socket_contest:name(Entrant, echo),
        run => fun() -> weir_bench_socket_load:with(Kind, echo, Mode, fun(Server) -> measure(Server, Sizes) end) end
    }.

measure(#{port := Port} = Server, #{idle := Idle} = Sizes) ->
    Without = speed(Server, Sizes),
    {ResidentBefore, AllocatedBefore} = weir_kit_socket_node:memory(Server),
    Held = weir_bench_socket_load:hold([{port, Port}, {conns, Idle}, {size, ?BYTES}, {sources, ?SOURCES}]),
    {Resident, Allocated} = weir_kit_socket_node:memory(Server),
    With = speed(Server, Sizes),
    Idle = weir_bench_socket_load:alive(Held),
    ok = weir_bench_socket_load:release(Held),
    #{
        resident => each(Resident - ResidentBefore, Idle),
        allocated => each(Allocated - AllocatedBefore, Idle),
        speed => With,
        kept => 100 * With / Without
    }.

%% In KB. Less than a page in all is nothing that is known: a collection may have given back more than was taken.
each(Bytes, Count) -> max(Bytes, ?PAGE) / Count / 1_024.

speed(#{port := Port, os_pid := OsPid}, #{connections := Count, warm := Warm, ms := Ms}) ->
    #{requests := Requests, us := Us} = weir_bench_socket_load:run([
        {kind, echo}, {port, Port}, {pid, OsPid}, {conns, Count}, {size, ?BYTES}, {warm, Warm}, {ms, Ms}
    ]),
    Requests * 1.0e6 / Us.
