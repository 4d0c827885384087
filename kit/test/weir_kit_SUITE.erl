%% What the demo, the benchmarks and the tests rely on.
-module(weir_kit_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0]).
-export([figures/1, reasons/1, until/1, crowd/1, crowd_in_steps/1]).
-export([sampler/1, sampler_ends_with_its_owner/1, mailbox/1]).
-export([memcached_is_killed_and_restarted/1, embedded_memcached/1, memcached_of_others/1, bad_address/1,
    memcached_ends_with_the_node/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        figures,
        reasons,
        until,
        crowd,
        crowd_in_steps,
        sampler,
        sampler_ends_with_its_owner,
        mailbox,
        memcached_is_killed_and_restarted, embedded_memcached,
        memcached_of_others,
        bad_address,
        memcached_ends_with_the_node
    ].

%% ---------------------------------------------------------------- text, waiting

figures(_) ->
    ?assertEqual(
        ["0", "999", "1,000", "10,001", "1,234,567", "-1,000"],
        [text(weir_kit:integer(N)) || N <- [0, 999, 1_000, 10_001, 1_234_567, -1_000]]
    ),
    ?assertEqual(["0.1 ms", "10 ms", "1,235 ms"], [text(weir_kit:milliseconds(Us)) || Us <- [90, 10_000, 1_234_567]]),
    ?assertEqual(["0.09 s", "1.0 s", "12.3 s"], [text(weir_kit:seconds(Us)) || Us <- [90_000, 1_000_000, 12_345_678]]),
    ?assertEqual("2,000/s", text(weir_kit:rate(1_000, 500_000))),
    ?assertEqual(["9.9x", "10x", "-"], [text(weir_kit:ratio(A, B)) || {A, B} <- [{99, 10}, {100, 10}, {1, 0}]]).

reasons(_) ->
    ?assertEqual("none", text(weir_kit:reasons(#{}))),
    ?assertEqual("1,000 timeout, 2 busy", text(weir_kit:reasons(#{busy => 2, timeout => 1_000}))).

text(Data) -> lists:flatten(io_lib:format("~ts", [Data])).

until(_) ->
    Asked = counters:new(1, []),
    Fifth = fun() ->
        counters:add(Asked, 1, 1),
        counters:get(Asked, 1) >= 5
    end,
    ok = weir_kit:until(Fifth),
    ?assertEqual(5, counters:get(Asked, 1)),
    ?assertError({never, _}, weir_kit:until(fun() -> false end, 0)).

%% ---------------------------------------------------------------- crowds

crowd(_) ->
    ?assert(weir_kit_crowd:burst(100, fun(I) -> true = I > 0 end) > 0),
    ?assertError(
        {wrong_result, {error, {badmatch, false}, _}}, weir_kit_crowd:burst(10, fun(I) -> true = I =/= 7 end)
    ),
    ?assertError({wrong_result, {exit, oops, _}}, weir_kit_crowd:together(10, fun(_) -> exit(oops) end)).

crowd_in_steps(_) ->
    Gate = ets:new(gate, [public]),
    Crowd = weir_kit_crowd:start(10, fun(I) ->
        I =< 3 andalso weir_kit:until(fun() -> ets:member(Gate, open) end, 60_000)
    end),
    weir_kit:until(fun() -> weir_kit_crowd:left(Crowd) =:= 3 end, 60_000),
    ?assertEqual(timeout, weir_kit_crowd:await(Crowd, 0)),
    true = ets:insert(Gate, {open}),
    {ok, Ns} = weir_kit_crowd:await(Crowd, 60_000),
    ?assert(Ns > 0),
    ?assertEqual(0, weir_kit_crowd:left(Crowd)).

%% ---------------------------------------------------------------- samplers

sampler(_) ->
    Counter = counters:new(1, []),
    Sampler = weir_kit_sampler:start(1, fun() ->
        counters:add(Counter, 1, 1),
        counters:get(Counter, 1)
    end),
    weir_kit:until(fun() -> counters:get(Counter, 1) >= 5 end),
    Samples = weir_kit_sampler:stop(Sampler),
    ?assertEqual(lists:seq(1, counters:get(Counter, 1)), Samples),
    ?assertNot(is_process_alive(Sampler)),
    ?assertError({sampler, noproc}, weir_kit_sampler:stop(Sampler)),
    %% However seldom it takes one: that of the beginning, and that of the end.
    Seldom = weir_kit_sampler:start(3_600_000, fun erlang:unique_integer/0),
    ?assertMatch([First, Last] when First =/= Last, weir_kit_sampler:stop(Seldom)),
    ?assertError({sampler, {bad, _}}, weir_kit_sampler:start(1, fun() -> error(bad) end)).

sampler_ends_with_its_owner(_) ->
    Self = self(),
    _ = spawn(fun() -> Self ! {sampler, weir_kit_sampler:start(1, fun() -> ok end)} end),
    receive
        {sampler, Sampler} -> weir_kit:until(fun() -> not is_process_alive(Sampler) end)
    end.

mailbox(_) ->
    self() ! message,
    ?assert(weir_kit_sampler:mailbox(self()) >= 1),
    {Pid, Monitor} = spawn_monitor(fun() -> ok end),
    receive
        {'DOWN', Monitor, process, Pid, normal} -> ?assertEqual(0, weir_kit_sampler:mailbox(Pid))
    end.

%% ---------------------------------------------------------------- memcached

memcached_is_killed_and_restarted(_) -> killed_and_restarted(weir_kit_memcached:start()).

%% Where none is installed.
embedded_memcached(_) ->
    Server = weir_kit_memcached:start(#{program => embedded}),
    ?assertMatch({match, _}, re:run(weir_kit_memcached:version(Server), "-weir$")),
    killed_and_restarted(Server).

killed_and_restarted(Server) ->
    ?assert(weir_kit_memcached:is_ours(Server)),
    ?assertNotEqual("unknown", weir_kit_memcached:version(Server)),
    ?assert(weir_kit_memcached:os_pid(Server) > 0),
    ?assertEqual(<<"STORED\r\n">>, weir_kit_memcached:raw(Server, <<"set k 0 0 1\r\nv\r\n">>)),
    ok = weir_kit_memcached:kill(Server),
    ?assertEqual({error, econnrefused}, weir_kit_memcached:probe(Server)),
    ok = weir_kit_memcached:kill(Server),
    ok = weir_kit_memcached:restart(Server),
    ?assertEqual(ok, weir_kit_memcached:probe(Server)),
    ?assertEqual(<<"END\r\n">>, weir_kit_memcached:raw(Server, <<"get k\r\n">>)),
    ok = weir_kit_memcached:stop(Server),
    ?assertEqual({error, econnrefused}, weir_kit_memcached:probe(Server)).

memcached_of_others(_) ->
    #{port := Port} = Ours = weir_kit_memcached:start(),
    Address = "127.0.0.1:" ++ integer_to_list(Port),
    {ok, Theirs} = weir_kit_memcached:open(Address),
    ?assertNot(weir_kit_memcached:is_ours(Theirs)),
    ?assertEqual(#{host => {127, 0, 0, 1}, port => Port}, weir_kit_memcached:options(Theirs)),
    ok = weir_kit_memcached:stop(Theirs),
    ?assertEqual(ok, weir_kit_memcached:probe(Ours)),
    ok = weir_kit_memcached:stop(Ours),
    {error, {no_answer, _, econnrefused} = Reason} = weir_kit_memcached:open(Address),
    ?assertEqual("memcached at " ++ Address ++ " does not answer: econnrefused", explained(Reason)).

explained(Reason) -> text(weir_kit_memcached:explain(Reason)).

bad_address(_) ->
    [
        ?assertEqual({error, {bad_address, Text}}, weir_kit_memcached:open(Text))
     || Text <- ["localhost", "localhost:", ":11211", "localhost:0", "localhost:65536", "localhost:http"]
    ].

%% The process that holds it goes as all processes of a node do when it is killed.
memcached_ends_with_the_node(_) ->
    #{holder := Holder} = Server = weir_kit_memcached:start(),
    exit(Holder, kill),
    weir_kit:until(fun() -> weir_kit_memcached:probe(Server) =:= {error, econnrefused} end, 60_000).
