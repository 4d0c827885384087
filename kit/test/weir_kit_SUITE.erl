%% The functions of the kit, on which the demo, the benchmarks and the tests rely.
-module(weir_kit_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

%% ---------------------------------------------------------------- text, waiting

figures(_) ->
    ?assertEqual(
        ["0", "999", "1,000", "10,001", "1,234,567", "-1,000"],
        [text(weir_kit_text:integer(N)) || N <- [0, 999, 1_000, 10_001, 1_234_567, -1_000]]
    ),
    ?assertEqual(["0.1 ms", "10 ms"], [text(weir_kit_text:milliseconds(Us)) || Us <- [90, 10_000]]),
    ?assertEqual("1,235 ms", text(weir_kit_text:milliseconds(1_234_567))),
    ?assertEqual(["0.09 s", "1.0 s"], [text(weir_kit_text:seconds(Us)) || Us <- [90_000, 1_000_000]]),
    ?assertEqual("12.3 s", text(weir_kit_text:seconds(12_345_678))),
    ?assertEqual("2,000/s", text(weir_kit_text:rate(1_000, 500_000))),
    ?assertEqual(["9.9x", "10x", "-"], [text(weir_kit_text:ratio(A, B)) || {A, B} <- [{99, 10}, {100, 10}, {1, 0}]]).

reasons(_) ->
    ?assertEqual("none", text(weir_kit_text:reasons(#{}))),
    ?assertEqual("1,000 timeout, 2 busy", text(weir_kit_text:reasons(#{busy => 2, timeout => 1_000}))).

text(Data) -> lists:flatten(io_lib:format("~ts", [Data])).

until_asks_again(_) ->
    Asked = counters:new(1, []),
    Fifth = fun() ->
        counters:add(Asked, 1, 1),
        counters:get(Asked, 1) >= 5
    end,
    ok = weir_kit:until(Fifth),
    ?assertEqual(5, counters:get(Asked, 1)),
    ?assertEqual(6, weir_kit:until_value(fun() -> Fifth() andalso counters:get(Asked, 1) end)).

a_result_comes_from_its_task(_) ->
    Tasks = [weir_kit:start(fun() -> N end) || N <- [1, 2]],
    ?assertEqual([1, 2], [weir_kit:result(Task) || Task <- Tasks]),
    ?assertError({crashed, {oops, _}}, weir_kit:result(weir_kit:start(fun() -> error(oops) end))),
    ?assertError({crashed, oops}, weir_kit:in_parallel([fun() -> exit(oops) end])).

a_killed_process_is_dead(_) ->
    Pid = spawn(fun() -> receive never -> ok end end),
    ok = weir_kit:until_waiting(Pid),
    ok = weir_kit:kill(Pid),
    ?assertNot(is_process_alive(Pid)),
    ?assertEqual(noproc, weir_kit:await_down(Pid)),
    ok = weir_kit:kill(Pid).

messages_stay_in_the_mailbox(_) ->
    [self() ! N || N <- [1, 2]],
    ?assertEqual([1, 2], weir_kit:messages()),
    ?assertEqual([1, 2], weir_kit:take_messages()),
    ?assertEqual(0, weir_kit:queue_len(self())).

faults(_) ->
    ok = weir_kit:none(lost, []),
    ?assertError({weir_fault, {lost, 2, [a, b]}}, weir_kit:none(lost, [a, b])),
    ok = weir_kit:same(order, [1, 2], [1, 2]),
    ?assertError({weir_fault, {order, #{expected := 1, actual := 1.0}}}, weir_kit:same(order, 1, 1.0)).

%% The name in a head of init_per_testcase makes no helper of a case whose argument has a wrong name.
a_case_with_a_wrong_argument_is_refused(Config) ->
    Dir = proplists:get_value(priv_dir, Config),
    true = code:add_path(Dir),
    Start = "init_per_testcase(mistaken, Config) -> Config;\ninit_per_testcase(_, Config) -> Config.\n",
    ?assertEqual([one], cases_of("kit_cases_a", Start ++ "one(_) -> ok.\n", Dir)),
    Mistaken = Start ++ "one(_) -> ok.\nmistaken(Conf) -> Conf.\n",
    ?assertError({not_a_case, [mistaken]}, cases_of("kit_cases_b", Mistaken, Dir)),
    true = code:del_path(Dir).

cases_of(Name, Text, Dir) ->
    File = filename:join(Dir, Name ++ ".erl"),
    ok = file:write_file(File, ["-module(", Name, ").\n-compile(export_all).\n", Text]),
    {ok, Suite} = compile:file(File, [debug_info, {outdir, Dir}]),
    weir_kit:cases(Suite).

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
        I =< 3 andalso weir_kit:until(fun() -> ets:member(Gate, open) end)
    end),
    weir_kit:until(fun() -> weir_kit_crowd:left(Crowd) =:= 3 end),
    ?assertEqual(timeout, weir_kit_crowd:await(Crowd, 0)),
    true = ets:insert(Gate, {open}),
    {ok, Ns} = weir_kit_crowd:await(Crowd, weir_kit:wait_ms()),
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
        {sampler, Sampler} -> weir_kit:await_down(Sampler)
    end.

mailbox(_) ->
    self() ! message,
    ?assert(weir_kit_sampler:mailbox(self()) >= 1),
    Pid = spawn(fun() -> ok end),
    _ = weir_kit:await_down(Pid),
    ?assertEqual(0, weir_kit_sampler:mailbox(Pid)).

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
    weir_kit:kill(Holder),
    weir_kit:until(fun() -> weir_kit_memcached:probe(Server) =:= {error, econnrefused} end).
