%% @doc Benchmark: a million casts that wait are worked off, by handle_batch of weir_server and of gen_batch_server, and
%% one by one by gen_server and gen_server2.
%%
%% All count the casts. Time runs from when the server, held in a callback while they are sent, is released, until it
%% has told the right number, asked behind the last of them. Batches and gen_server's turns do the same work for each.
-module(weir_bench_batch).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-define(CASTS, 1_000_000).

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "batch: a million waiting casts worked off".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?CASTS).

%% @doc Runs it with so many casts.
-spec run(pos_integer(), Casts :: pos_integer()) -> [weir_bench_part:table()].
run(Rounds, Casts) ->
    Contestant = fun(Row) -> contestant(Row, Casts) end,
    Groups = maps:map(fun(_, Rows) -> lists:map(Contestant, Rows) end, rows()),
    #{ours := [Ours | _] = AllOurs, otp := [Otp | _] = AllOtp, drain := Drain, batches := Batches, beside := Beside} =
        weir_bench_rounds:compare(Rounds, Groups),
    Best = weir_bench_rounds:best(lower, AllOurs),
    [
        #{
            title => io_lib:format("~b casts", [Casts]),
            unit => "ns/cast",
            better => lower,
            ours => AllOurs,
            peers => AllOtp ++ Drain ++ Batches,
            beside => Beside,
            notes =>
                [
                    "off_heap: spawn_opt message_queue_data; what waits is then not copied by garbage collections",
                    "gen_batch_server's defaults: batches of 32 to 8,192; reversed ones give up the order of arrival",
                    target("handle_batch at least 2 times gen_server, both with their defaults", Ours, [Otp], 2),
                    io_lib:format("the best of ours beside the best gen_server: ~.2f", [ratio(Best, AllOtp)])
                ] ++
                    [
                        target("the best of ours at least as fast as the best gen_batch_server", Best, Batches, 1)
                     || Batches =/= []
                    ]
        }
    ].

%% {What is added to the server's name, server, callback module and its argument, options}.
rows() ->
    OffHeap = {spawn_opt, [{message_queue_data, off_heap}]},
    OneByOne = fun(Server, Note, Options) -> {Note, Server, weir_bench_echo, [], Options} end,
    Batches = fun(Server, Note, Options) -> {Note, Server, weir_bench_batcher, Server, Options} end,
    GenBatch = weir_bench_servers:peers([gen_batch_server]),
    #{
        ours => [
            Batches(weir_server, ", handle_batch", []),
            Batches(weir_server, ", handle_batch, drain to 10,000", [{drain, {1_000, 10_000}}]),
            Batches(weir_server, ", handle_batch, off_heap", [OffHeap])
        ],
        otp => [OneByOne(gen_server, "", []), OneByOne(gen_server, ", off_heap", [OffHeap])],
        drain => [
            OneByOne(Server, Note, Options)
         || Server <- weir_bench_servers:peers([gen_server2]), {Note, Options} <- [{"", []}, {", off_heap", [OffHeap]}]
        ],
        batches => [
            Batches(Server, Note, Options)
         || Server <- GenBatch,
            {Note, Options} <- [
                {"", []},
                {", to 65,536", [{max_batch_size, 65_536}]},
                {", to 512", [{max_batch_size, 512}]},
                {", off_heap", [OffHeap]},
                {", to 512, off_heap", [{max_batch_size, 512}, OffHeap]}
            ]
        ],
        beside =>
            [OneByOne(weir_server, ", one by one", [])] ++
                [Batches(Server, ", reversed", [{reversed_batch, true}]) || Server <- GenBatch]
    }.

contestant({Note, Server, Module, Argument, Options}, Casts) ->
    #{
        name => atom_to_list(Server) ++ Note,
        run => fun() -> work_off(Server, Module, Argument, Options, Casts) end
    }.

target(Text, Ours, Peers, Least) ->
    Ratio = ratio(Ours, Peers),
    weir_bench_table:target(io_lib:format("~ts (~.2f)", [Text, Ratio]), Ratio >= Least).

ratio(Ours, Peers) -> weir_bench_rounds:ratio(lower, Ours, weir_bench_rounds:best(lower, Peers)).

work_off(Server, Module, Argument, Options, Casts) ->
    Pid = weir_bench_servers:start(Server, Module, Argument, Options),
    Held = weir_bench_servers:hold(Pid),
    %% By a process of its own: sending a million messages costs reductions and heap that are not the measurer's.
    _ = weir_kit_crowd:together(1, fun(_) -> cast(Casts, Pid) end),
    Start = erlang:monotonic_time(),
    ok = weir_bench_servers:release(Held),
    %% In a reversed batch the question comes before the casts that it was sent behind, so it is asked again.
    _ = gen_server:call(Pid, count, infinity),
    Casts = gen_server:call(Pid, count, infinity),
    Time = erlang:convert_time_unit(erlang:monotonic_time() - Start, native, nanosecond),
    ok = weir_bench_servers:stop(Pid),
    Time / Casts.

cast(0, _Pid) ->
    ok;
cast(N, Pid) ->
    ok = gen_server:cast(Pid, {add, N}),
    cast(N - 1, Pid).
