%% The peers have to be right, or their figures say nothing.
-module(weir_bench_peers_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> [{server, weir_kit_memcached:start()} | Config].

end_per_suite(Config) -> weir_kit_memcached:stop(proplists:get_value(server, Config)).

old_client_on_gen_server(Config) ->
    {ok, Pid} = gen_server:start(weir_kit_old_client, address(Config), []),
    old_client(Pid).

old_client_on_draining_server(Config) ->
    {ok, Pid} = weir_bench_drain_server:start(weir_kit_old_client, address(Config)),
    old_client(Pid).

old_client(Pid) ->
    ?assertEqual({error, not_found}, weir_kit_old_client:get(Pid, <<"none">>)),
    [
        begin
            Value = rand:bytes(Size),
            ?assertEqual(ok, weir_kit_old_client:set(Pid, <<"k">>, Value)),
            ?assertEqual({ok, Value}, weir_kit_old_client:get(Pid, <<"k">>))
        end
     || Size <- [0, 1, 100, 1_460, 100_000, 1_000_000]
    ],
    ?assertEqual(ok, weir_kit_old_client:set(Pid, <<"k">>, <<"a\r\nEND\r\nb">>, 60)),
    ?assertEqual({ok, <<"a\r\nEND\r\nb">>}, weir_kit_old_client:get(Pid, <<"k">>)),
    _ = weir_kit_crowd:burst(500, fun(I) ->
        Key = integer_to_binary(I),
        ok = weir_kit_old_client:set(Pid, Key, <<"value ", Key/binary>>),
        {ok, <<"value ", Key/binary>>} = weir_kit_old_client:get(Pid, Key)
    end),
    ok = weir_kit_old_client:stop(Pid).

drain_order(_) ->
    {ok, Pid} = weir_bench_drain_server:start(weir_bench_echo, []),
    [gen_server:cast(Pid, I) || I <- lists:seq(1, 1_000)],
    Pid ! message,
    ?assertEqual(1_000, gen_server:call(Pid, count, weir_kit:wait_ms())),
    weir_kit:kill(Pid).

raw_loop(Config) ->
    Sets = exchange(<<"set raw:~4..0b 0 0 3\r\nabc\r\n">>, <<"STORED\r\n">>),
    Gets = exchange(<<"get raw:~4..0b\r\n">>, <<"VALUE raw:0001 0 3\r\nabc\r\nEND\r\n">>),
    [
        ?assert(weir_bench_raw:run(address(Config), {N, Exchange}, Arrangement) > 0)
     || Arrangement <- weir_bench_raw:arrangements(1_000), N <- [1, 999, 1_000, 1_001, 5_003], Exchange <- [Sets, Gets]
    ].

%% Replies of another size cannot go unnoticed.
raw_loop_misses(Config) ->
    Sets = exchange(<<"set raw:~4..0b 0 0 3\r\nabc\r\n">>, <<"STORED\r\n">>),
    Misses = exchange(<<"get raw:~4..0b\r\n">>, <<"END\r\n">>),
    Arrangement = #{window => 10, refill => 1, mode => active},
    ?assert(weir_bench_raw:run(address(Config), {1_000, Sets}, Arrangement) > 0),
    ?assertError({case_clause, _}, weir_bench_raw:run(address(Config), {10, Misses}, Arrangement)).

exchange(Format, Reply) ->
    [Request | _] = Requests = [iolist_to_binary(io_lib:format(Format, [I])) || I <- lists:seq(1, 1_000)],
    #{
        requests => iolist_to_binary(Requests),
        request_size => byte_size(Request),
        reply_size => byte_size(Reply),
        reply_end => binary_part(Reply, byte_size(Reply), -4)
    }.

address(Conf) ->
    #{host := Host, port := Port} = proplists:get_value(server, Conf),
    {Host, Port}.
