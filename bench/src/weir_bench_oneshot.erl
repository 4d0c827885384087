%% @doc Benchmark: N processes at once, each with one `set', through one connection.
%%
%% weir_memcached against the ancestors' design ({@link weir_kit_old_client}) on a draining server and on gen_server.
%% All are connected before time runs. Every reply is checked within the time; afterwards all values are read back.
-module(weir_bench_oneshot).

-behaviour(weir_bench_part).

-export([title/0, run/1]).

-define(SIZE, 25_000).
-define(LARGER, [50_000, 100_000]).
-define(CHUNK, 100).
-define(VALUE_SIZE, 100).
-define(TIMEOUT, 120_000).
-define(CLIENT, weir_bench_oneshot_client).

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "oneshot: N processes at once, one set of 100 bytes each, one connection".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    {ok, _} = application:ensure_all_started(weir_memcached),
    Server = weir_kit_memcached:start(),
    Weir = [contestant(Size, Server) || Size <- [?SIZE | ?LARGER]],
    Peers = [
        #{name => "old design, draining server", run => fun() -> old(fun weir_bench_drain_server:start/2, Server) end},
        #{name => "old design, gen_server", rounds => 1, run => fun() -> old(fun start_gen_server/2, Server) end}
    ],
    Results = weir_bench_rounds:run(Rounds, Weir ++ Peers),
    ok = weir_kit_memcached:stop(Server),
    {[Ours | Larger], PeerResults} = lists:split(length(Weir), Results),
    Drain = hd(PeerResults),
    Largest = lists:last(Larger),
    [
        #{
            title => "25,000 at once",
            unit => "ms",
            better => lower,
            ours => [Ours],
            peers => PeerResults,
            notes => [
                "peers: {active, true}, nodelay, one send a request; gen_server runs one round only, it is quadratic",
                weir_bench_table:target(
                    "at least 8 times the draining server", weir_bench_rounds:ratio(lower, Ours, Drain) >= 8
                )
            ]
        },
        #{
            title => "more at once, weir_memcached alone (25,000 from the table above)",
            unit => "ms",
            better => lower,
            ours => Larger,
            peers => [Ours],
            notes => [
                weir_bench_table:target(
                    "100,000 take at most 5 times 25,000",
                    weir_bench_rounds:ratio(lower, Largest, Ours) >= 1 / 5
                )
            ]
        }
    ].

contestant(Size, Server) ->
    #{name => lists:flatten(io_lib:format("weir_memcached, ~b", [Size])), run => fun() -> weir(Size, Server) end}.

weir(Size, Server) ->
    with_client(Server, fun() ->
        Run = run_name(),
        Time = weir_kit_crowd:burst(Size, fun(I) -> ok = weir_memcached:set(?CLIENT, key(Run, I), value(Run, I)) end),
        ok = verify(1, Size, Run),
        Time / 1.0e6
    end).

old(Start, #{host := Host, port := Port} = Server) ->
    {ok, Pid} = Start(weir_kit_old_client, {Host, Port}),
    Run = run_name(),
    Time = weir_kit_crowd:burst(?SIZE, fun(I) -> ok = weir_kit_old_client:set(Pid, key(Run, I), value(Run, I)) end),
    ok = weir_kit_old_client:stop(Pid),
    ok = with_client(Server, fun() -> verify(1, ?SIZE, Run) end),
    Time / 1.0e6.

start_gen_server(Module, Argument) ->
    gen_server:start(Module, Argument, []).

with_client(Server, Fun) ->
    ok = weir_kit_client:start(?CLIENT, Server, #{max_pending => 200_000, request_timeout => ?TIMEOUT}),
    Result = Fun(),
    ok = weir_memcached:stop(?CLIENT),
    Result.

verify(From, Size, _Run) when From > Size ->
    ok;
verify(From, Size, Run) ->
    To = min(Size, From + ?CHUNK - 1),
    Expected = maps:from_list([{key(Run, I), value(Run, I)} || I <- lists:seq(From, To)]),
    {ok, Expected} = weir_memcached:get_many(?CLIENT, maps:keys(Expected)),
    verify(To + 1, Size, Run).

%% Values of one run are never those of another.
run_name() ->
    integer_to_binary(erlang:unique_integer([positive])).

key(Run, I) ->
    <<"oneshot:", Run/binary, ":", (integer_to_binary(I))/binary>>.

value(Run, I) ->
    Key = key(Run, I),
    <<Key/binary, (binary:copy(<<".">>, ?VALUE_SIZE - byte_size(Key)))/binary>>.
