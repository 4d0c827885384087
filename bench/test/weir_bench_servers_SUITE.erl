%% The benchmarks of weir_server and weir_flow in small sizes, and the servers that they compare.
-module(weir_bench_servers_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, wait_ms/0]).

all() -> weir_kit:cases(?MODULE).

one_by_one_servers() -> [weir_server, gen_server | weir_bench_servers:peers([gen_server2])].

batch_servers() -> [weir_server | weir_bench_servers:peers([gen_batch_server])].

one_by_one(_) ->
    [
        begin
            Pid = weir_bench_servers:start(Server, weir_bench_echo, [], []),
            ?assertEqual({Server, x}, Server:call(Pid, {Server, x}, wait_ms())),
            [ok = Server:cast(Pid, N) || N <- lists:seq(1, 1_000)],
            Pid ! message,
            ?assertEqual(1_000, Server:call(Pid, count, wait_ms())),
            ok = Server:stop(Pid)
        end
     || Server <- one_by_one_servers()
    ].

batches(_) ->
    [
        begin
            Pid = weir_bench_servers:start(Server, weir_bench_batcher, Server, []),
            [ok = Server:cast(Pid, N) || N <- lists:seq(1, 1_000)],
            ?assertEqual(1_000, Server:call(Pid, count, wait_ms())),
            ?assertEqual(1_000, Server:call(Pid, count, wait_ms())),
            ok = weir_bench_servers:stop(Pid)
        end
     || Server <- batch_servers()
    ].

%% Where the package could not be fetched, the benchmarks say so and go on.
peers_are_found_or_named(_) ->
    Version = weir_bench_servers:version(),
    case weir_bench_servers:peers([gen_server2, gen_batch_server]) of
        [gen_server2, gen_batch_server] -> ?assertEqual(nomatch, string:find(Version, "left out"));
        _ -> ?assertNotEqual(nomatch, string:find(Version, "left out"))
    end,
    ?assertEqual([], weir_bench_servers:peers([])).

held(_) ->
    [
        begin
            Pid = weir_bench_servers:start(Server, weir_bench_echo, [], []),
            held(Server, Pid)
        end
     || Server <- one_by_one_servers()
    ].

held_batches(_) ->
    [
        begin
            Pid = weir_bench_servers:start(Server, weir_bench_batcher, Server, []),
            held(Server, Pid)
        end
     || Server <- batch_servers()
    ].

%% All that is sent to a held server waits in its mailbox.
held(Server, Pid) ->
    Held = weir_bench_servers:hold(Pid),
    [ok = Server:cast(Pid, N) || N <- lists:seq(1, 5_000)],
    ?assertEqual({message_queue_len, 5_000}, process_info(Pid, message_queue_len)),
    ok = weir_bench_servers:release(Held),
    ?assertEqual(5_000, Server:call(Pid, count, infinity)),
    ok = weir_bench_servers:stop(Pid).

stop_ends_a_held_server(_) ->
    Pid = weir_bench_servers:start(gen_server, weir_bench_echo, [], []),
    _ = weir_bench_servers:hold(Pid),
    ok = weir_bench_servers:stop(Pid),
    ?assertNot(is_process_alive(Pid)),
    ok = weir_bench_servers:stop(Pid).

asker(_) ->
    Pid = weir_bench_servers:start(gen_server, weir_bench_asker, [], []),
    [ok = gen_server:cast(Pid, {ask, N}) || N <- lists:seq(1, 10)],
    [ok = gen_server:cast(Pid, other) || _ <- lists:seq(1, 3)],
    #{others := 3, ns := Times} = gen_server:call(Pid, result, wait_ms()),
    ?assertEqual(10, length(Times)),
    ok = weir_bench_servers:stop(Pid).

%% It looks at the hundredth cast, and not before.
gauge(_) ->
    {ok, Pid} = gen_server:start(weir_bench_gauge, [], []),
    ok = sys:suspend(Pid, wait_ms()),
    [ok = gen_server:cast(Pid, N) || N <- lists:seq(1, 250)],
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual(#{count => 250, longest => 151}, gauge_result(Pid, 151)),
    ok = gen_server:stop(Pid).

%% When it looks, the question itself may wait as well.
gauge_result(Pid, Most) ->
    #{longest := Longest} = Result = gen_server:call(Pid, result, wait_ms()),
    ?assert(Longest =:= Most - 1 orelse Longest =:= Most),
    Result#{longest := Most}.

slow_counts(_) ->
    Counters = counters:new(2, []),
    Turns = weir_bench_slow:turns(10),
    ?assert(Turns > 0),
    Pid = weir_bench_servers:start(gen_server, weir_bench_slow, {Turns, Counters}, []),
    [ok = gen_server:cast(Pid, work) || _ <- lists:seq(1, 7)],
    ?assertEqual(ok, gen_server:call(Pid, work, wait_ms())),
    ?assertEqual(#{calls => 1, casts => 7}, weir_bench_slow:counted(Counters)),
    ok = weir_bench_servers:stop(Pid).

server_part(_) ->
    Tables = weir_bench_server:run(1, #{calls => 1_000, casts => 1_000, backlog => 1_000, callers => [1, 10]}),
    ?assertEqual(7, length(Tables)),
    ok = tables(Tables),
    [?assertMatch([#{name := "weir_server"}], Ours) || #{ours := Ours} <- Tables],
    [?assertMatch([#{name := "gen_server"} | _], Peers) || #{peers := Peers} <- Tables].

batch_part(_) ->
    ok = tables(weir_bench_batch:run(2, 20_000)).

receive_part(_) ->
    ok = tables(weir_bench_receive:run(1, #{asks => 20, backlogs => [0, 2_000]})).

flow_part(_) ->
    [Time, Longest, Cost] =
        Tables = weir_bench_flow:run(1, #{senders => 20, each => 200, windows => [8, 32], bursts => 20}),
    ok = tables([Time, Cost]),
    #{ours := [#{figures := [Bounded]}, #{figures := [Wider]}]} = Longest,
    ?assert(Bounded =< 20 * 8 + 1),
    ?assert(Wider =< 20 * 32 + 1),
    [?assert(iolist_size(weir_bench_table:render(Table)) > 0) || Table <- Tables].

%% The table of the longest mailbox tells whether the bound was kept.
flow_is_bounded(_) ->
    [_, #{notes := [Kept]}, _] = weir_bench_flow:run(1, #{senders => 5, each => 500, windows => [4], bursts => 1}),
    ?assertNotEqual(nomatch, string:find(lists:flatten([Kept]), ": met")).

limit_part(_) ->
    [Table] = weir_bench_limit:run(1, #{senders => [20], milliseconds => 50, limit => 3}),
    ok = tables([Table]).

flood_part(_) ->
    Tables = weir_bench_flood:run(1, flood_sizes()),
    ?assertEqual(4, length(Tables)),
    [?assert(iolist_size(weir_bench_table:render(Table)) > 0) || Table <- Tables],
    #{ours := Ours, beside := [#{figures := [_]}]} = hd(Tables),
    ?assertEqual(3, length(Ours)).

%% flood/2 itself fails if a call went unanswered or the server's counts did not add up.
flood_adds_up(_) ->
    [
        begin
            #{sent := #{calls := Calls, casts := Casts}, answered := Answered, handled := Handled} =
                weir_bench_flood:flood({weir_server, Policy}, flood_sizes()),
            #{ok := Ok, overload := Overload, lost := Lost} = Answered,
            #{calls := HandledCalls, casts := HandledCasts} = Handled,
            ?assertEqual({Calls, Ok, 0}, {Ok + Overload, HandledCalls, Lost}),
            %% All that was due has been sent, however slow the machine; and it was too much.
            ?assert(Casts >= 20_000),
            ?assert(HandledCasts < Casts)
        end
     || Policy <- [reject, drop_oldest, drop_newest]
    ].

%% A gen_server has no bound: callers are lost when it is killed, and the benchmark tells.
flood_without_a_bound(_) ->
    #{sent := #{calls := Calls}, answered := #{ok := Ok, overload := 0, lost := Lost}} =
        weir_bench_flood:flood(gen_server, flood_sizes()),
    ?assertEqual(Calls, Ok + Lost).

flood_sizes() ->
    #{seconds => 0.5, work_us => 200, factor => 10, max_queue => 10, callers => 20, senders => 4}.

parts_are_listed(_) ->
    Names = [Name || {Name, _} <- weir_bench:benchmarks()],
    ?assertEqual([], ["server", "batch", "receive", "flow", "flood"] -- Names),
    [?assert(iolist_size(Module:title()) > 0) || {_, Module} <- weir_bench:benchmarks()].

tables(Tables) ->
    [
        begin
            Results = Ours ++ Peers ++ maps:get(beside, Table, []),
            [?assert(lists:all(fun(Figure) -> Figure > 0 end, Figures)) || #{figures := Figures} <- Results],
            ?assert(iolist_size(weir_bench_table:render(Table)) > 0)
        end
     || #{ours := Ours, peers := Peers} = Table <- Tables
    ],
    ok.
