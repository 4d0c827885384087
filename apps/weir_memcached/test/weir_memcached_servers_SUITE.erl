%% Several servers that share the keys: who has which, what becomes of the keys of one that is gone, frozen or back, and
%% servers that come and go at run time. Three real memcacheds, which each case finds empty and running.
-module(weir_memcached_servers_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_memcached_config.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, start/1, result/1, in_parallel/1, kill/1, wait_ms/0]).

%% Each of these cases waits for seconds, and neither kills nor stops a server of the others.
-define(SIDE_BY_SIDE, [full_and_slow, back_in_a_slow_change, back_while_removed, waits_for_answers]).

all() -> [{group, side_by_side} | weir_kit:cases(?MODULE) -- ?SIDE_BY_SIDE].

groups() -> [{side_by_side, [parallel], ?SIDE_BY_SIDE}].

init_per_suite(Config) ->
    Servers = [weir_kit_memcached:start() || _ <- [1, 2, 3, 4]],
    [{servers, Servers} | weir_memcached_test:set_up(weir_memcached, Config)].

end_per_suite(Config) ->
    _ = [weir_kit_memcached:stop(Server) || Server <- proplists:get_value(servers, Config)],
    weir_memcached_test:tear_down(Config).

init_per_testcase(_, Config) ->
    Servers = proplists:get_value(servers, Config),
    [<<"OK\r\n">> = weir_kit_memcached:raw(Server, <<"flush_all\r\n">>) || Server <- Servers],
    Config.

end_per_testcase(Case, Config) ->
    _ = whereis(Case) =/= undefined andalso try weir_memcached:stop(Case) catch exit:_ -> ok end,
    [ok = weir_kit_memcached:restart(Server) || Server <- proplists:get_value(servers, Config)].

%% The first N servers, as options; and a client of them, with this name.
servers(N, Config) -> lists:sublist(proplists:get_value(servers, Config), N).

address(Server) -> weir_kit_memcached:options(Server).

name(#{port := Port}) -> iolist_to_binary(["127.0.0.1:", integer_to_list(Port)]).

client(Name, N, Config) -> client(Name, N, #{}, Config).

client(Name, N, Options, Config) ->
    Defaults = #{
        servers => [address(Server) || Server <- servers(N, Config)],
        connections => 1,
        codec => raw,
        reconnect => {1, 20},
        request_timeout => weir_kit:wait_ms(),
        connect_timeout => weir_kit:wait_ms(),
        transport => weir_memcached_test:transport()
    },
    {ok, _} = weir_memcached:start_link(Name, maps:merge(Defaults, Options)),
    %% Those of the gutter too, for which await does not wait.
    ok = weir_memcached_test:up(Name),
    Name.

keys(N) -> [integer_to_binary(I) || I <- lists:seq(1, N)].

%% The keys that are this server's.
keys_of(Server, C) ->
    Name = name(Server),
    [Key || Key <- keys(200), weir_memcached:server_of(C, Key) =:= {ok, Name}].

%% What a server has of a key, asked without any client.
has(Server, Key) ->
    case weir_kit_memcached:raw(Server, ["get ", Key, "\r\n"]) of
        <<"END\r\n">> -> false;
        <<"VALUE ", _/binary>> -> true
    end.

signal(Signal, Server) ->
    Pid = weir_kit_memcached:os_pid(Server),
    ok = weir_kit:signal(Signal, Pid),
    Pid.

gone(Server, C) ->
    ok = weir_kit_memcached:kill(Server),
    is_gone(name(Server), C).

is_gone(Name, C) ->
    #config{connections = Connections} = Config = weir_memcached_config:fetch(C),
    #server{load = Load} = weir_memcached_route:named(Name, Config),
    until(fun() -> weir_memcached_load:is_dead(Connections, Load) end).

%% ---------------------------------------------------------------- options

options(Config) ->
    C = ?FUNCTION_NAME,
    [#{port := P1}, #{port := P2}] = servers(2, Config),
    Given = [
        #{host => "localhost", port => P1}, [{host, <<"127.0.0.1">>}, {port, P2}, {weight, 3}], #{host => {1, 2, 3, 4}},
        #{host => {0, 0, 0, 0, 0, 0, 0, 1}, port => 7}, #{host => {local, "/tmp/none"}}, [{host, localhost}]
    ],
    {ok, _} = weir_memcached:start_link(C, [{servers, Given}]),
    Port = fun(P) -> integer_to_binary(P) end,
    ?assertEqual(
        [<<"localhost:", (Port(P1))/binary>>, <<"127.0.0.1:", (Port(P2))/binary>>, <<"1.2.3.4:11211">>, <<"[::1]:7">>,
            <<"/tmp/none">>, <<"localhost:11211">>],
        weir_memcached:servers(C)
    ),
    ok = weir_memcached:stop(C),
    {ok, _} = weir_memcached:start_link(C, #{host => "127.0.0.1", port => P1}),
    ?assertEqual([<<"127.0.0.1:", (Port(P1))/binary>>], weir_memcached:servers(C)).

bad_servers(_) ->
    C = ?FUNCTION_NAME,
    Good = #{host => "localhost"},
    [
        ?assertEqual({error, {bad_option, servers, Bad}}, weir_memcached:start_link(C, #{servers => Bad}))
     || Bad <- [
            x, [], [x], [Good, Good], [Good, [{host, <<"localhost">>}, {weight, 2}]], [#{port => 1}],
            [Good#{weight => 0}], [Good#{weight => 1.5}], [Good#{port => 65536}], [Good#{x => 1}], [#{host => ""}]
        ]
    ],
    [
        ?assertEqual({error, {bad_option, Key, Bad}}, weir_memcached:start_link(C, #{Key => Bad}))
     || {Key, Bad} <- [
            {distribution, modulo}, {failover, last}, {gutter, [x]}, {gutter_ttl, 0}, {gutter_ttl, 2_592_001},
            {return_over, -1},
            {return_over, infinity}, {await, -1}, {await, infinity}
        ]
    ],
    ?assertMatch({ok, _}, weir_memcached_config:new(C, #{gutter_ttl => 2_592_000})).

contradictions(_) ->
    C = ?FUNCTION_NAME,
    A = #{host => "a"},
    B = #{host => "b"},
    [
        ?assertEqual({error, {contradicting_options, One, Other}}, weir_memcached:start_link(C, Options))
     || {Options, One, Other} <- [
            {#{servers => [A], host => "b"}, servers, {host, "b"}},
            {#{servers => [A], port => 1}, servers, {port, 1}},
            {#{servers => [A], failover => gutter}, {failover, gutter}, {gutter, []}},
            {#{servers => [A], gutter => [B]}, {gutter, [B]}, {failover, refuse}},
            {#{servers => [A, B], failover => gutter, gutter => [A]}, servers, {gutter, [A]}},
            {#{host => "a", failover => gutter, gutter => [A]}, servers, {gutter, [A]}},
            {#{failover => gutter, gutter => [#{host => "localhost"}]}, servers, {gutter, [#{host => "localhost"}]}},
            {#{servers => [A, B#{weight => 2}], distribution => jump}, {distribution, jump}, {weight, 2}}
        ]
    ].

%% ---------------------------------------------------------------- who has which key

each_key_has_its_server(Config) ->
    Servers = servers(3, Config),
    lists:foreach(
        fun(Distribution) ->
            C = client(?FUNCTION_NAME, 3, #{distribution => Distribution}, Config),
            [ok = weir_memcached:set(C, Key, Key) || Key <- keys(100)],
            [?assertEqual({ok, Key}, weir_memcached:get(C, Key)) || Key <- keys(100)],
            [
                ?assertEqual({ok, name(Server)} =:= weir_memcached:server_of(C, Key), has(Server, Key))
             || Server <- Servers, Key <- keys(100)
            ],
            [?assert(length(keys_of(Server, C)) > 20) || Server <- Servers],
            %% A memcached whose clock is behind keeps the items of its last second.
            ok = until(fun() ->
                ok = weir_memcached:flush_all(C),
                lists:all(fun(Key) -> weir_memcached:get(C, Key) =:= {error, not_found} end, keys(100))
            end),
            ok = weir_memcached:stop(C)
        end,
        [ketama, {ketama, unweighted}, rendezvous, jump]
    ).

%% A key's server does not depend on the namespace, or on what stands for the key on the wire.
as_others_do(Config) ->
    Plain = client(?FUNCTION_NAME, 3, Config),
    Owners = [weir_memcached:server_of(Plain, Key) || Key <- keys(100)],
    ok = weir_memcached:stop(Plain),
    Other = client(?FUNCTION_NAME, 3, #{namespace => <<"app:">>, binary_keys => true}, Config),
    ?assertEqual(Owners, [weir_memcached:server_of(Other, Key) || Key <- keys(100)]),
    ?assertEqual({error, {bad_key, an_atom}}, weir_memcached:server_of(Other, an_atom)).

many(Config) ->
    C = client(?FUNCTION_NAME, 3, Config),
    ?assertEqual(ok, weir_memcached:set_many(C, [{Key, Key} || Key <- keys(1000)])),
    ?assertEqual({ok, maps:from_list([{Key, Key} || Key <- keys(1000)])}, weir_memcached:get_many(C, keys(1200))),
    ?assertEqual({ok, #{}}, weir_memcached:get_many(C, [<<"x">>, <<"y">>, <<"z">>])),
    {ok, #{servers := Each, requests := Requests}} = weir_memcached:info(C),
    ?assertEqual(Requests, lists:sum([N || #{requests := N} <- maps:values(Each)])),
    [?assertMatch(#{requests := N} when N >= 2 andalso N =< 3, One) || One <- maps:values(Each)].

many_of_one_form(Config) ->
    C = client(?FUNCTION_NAME, 3, #{binary_keys => true}, Config),
    Keys = [<<0, (integer_to_binary(N))/binary>> || N <- lists:seq(1, 50)] ++ keys(50),
    ok = weir_memcached:set_many(C, maps:from_list([{Key, Key} || Key <- Keys])),
    Lists = [binary_to_list(Key) || Key <- Keys],
    Expected = maps:from_list([{Key, iolist_to_binary(Key)} || Key <- Keys ++ Lists]),
    ?assertEqual({ok, Expected}, weir_memcached:get_many(C, Keys ++ Lists)).

%% The values of the others, and the reason for each key of that one.
many_with_one_down(Config) ->
    C = client(?FUNCTION_NAME, 3, Config),
    [_, Down, _] = servers(3, Config),
    Items = maps:from_list([{Key, Key} || Key <- keys(200)]),
    ok = weir_memcached:set_many(C, Items),
    Lost = keys_of(Down, C),
    gone(Down, C),
    Failed = maps:from_list([{Key, disconnected} || Key <- Lost]),
    ?assertEqual({error, {partial, maps:without(Lost, Items), Failed}}, weir_memcached:get_many(C, keys(200))),
    ?assertEqual({error, {partial, Failed}}, weir_memcached:set_many(C, Items)),
    ?assertEqual({error, disconnected}, weir_memcached:get_many(C, Lost)),
    ?assertEqual({error, disconnected}, weir_memcached:set_many(C, [{hd(Lost), <<>>}])).

%% What one connection has no room for another one of the same server takes, also when several are asked at once.
many_refused(Config) ->
    C = client(?FUNCTION_NAME, 3, #{connections => 3, max_pending => 1, request_timeout => infinity}, Config),
    Items = maps:from_list([{Key, Key} || Key <- keys(100)]),
    ok = weir_memcached:set_many(C, Items),
    Results = in_parallel([
        fun() -> [weir_memcached:get_many(C, keys(100)) || _ <- lists:seq(1, 30)] end || _ <- lists:seq(1, 8)
    ]),
    [
        case Result of
            {ok, Values} -> weir_kit:same(wrong_values, Items, Values);
            {error, busy} -> ok;
            {error, {partial, Values, Failed}} ->
                ?assertEqual([busy], lists:usort(maps:values(Failed))),
                weir_kit:same(wrong_values, maps:without(maps:keys(Failed), Items), Values)
        end
     || Result <- lists:append(Results)
    ].

%% The one whose turn is first does not answer before the other has been asked, too.
many_ask_all_at_once(_) ->
    C = ?FUNCTION_NAME,
    Test = self(),
    Gated = fun(Socket) ->
        Answers = [{<<"get ">>, <<"\r\n">>}, {<<"set ">>, <<" 0 0 1\r\nv\r\n">>}],
        lists:foreach(
            fun({Verb, Rest}) ->
                {ok, Request} = gen_tcp:recv(Socket, byte_size(Verb) + 2 + byte_size(Rest)),
                <<Verb:4/binary, Key:2/binary, Rest/binary>> = Request,
                Test ! {asked, self(), Verb},
                receive
                    answer -> ok
                end,
                ok = gen_tcp:send(Socket, case Verb of
                    <<"get ">> -> ["VALUE ", Key, " 0 2\r\n", Key, "\r\nEND\r\n"];
                    <<"set ">> -> "STORED\r\n"
                end)
            end,
            Answers
        ),
        gen_tcp:recv(Socket, 0)
    end,
    Servers = [weir_memcached_test_script:start([{serve, 1, Gated}]) || _ <- [1, 2]],
    {ok, _} = weir_memcached:start_link(C, #{
        servers => [#{host => {127, 0, 0, 1}, port => Port} || #{port := Port} <- Servers],
        connections => 1, codec => raw, protocol => text, request_timeout => infinity, stall_timeout => infinity,
        await => weir_kit:wait_ms(), transport => weir_memcached_test:transport()
    }),
    Names = weir_memcached:servers(C),
    Short = [integer_to_binary(N) || N <- lists:seq(10, 99)],
    Keys = [hd([Key || Key <- Short, weir_memcached:server_of(C, Key) =:= {ok, Name}]) || Name <- Names],
    Asked = fun(Verb) ->
        Handlers = [receive {asked, Pid, Verb} -> Pid end || _ <- Names],
        ?assertEqual(2, length(lists:usort(Handlers))),
        [Handler ! answer || Handler <- Handlers]
    end,
    Get = start(fun() -> weir_memcached:get_many(C, Keys) end),
    Asked(<<"get ">>),
    ?assertEqual({ok, maps:from_list([{Key, Key} || Key <- Keys])}, result(Get)),
    Set = start(fun() -> weir_memcached:set_many(C, [{Key, <<"v">>} || Key <- Keys]) end),
    Asked(<<"set ">>),
    ?assertEqual(ok, result(Set)),
    ok = weir_memcached:stop(C),
    [ok = weir_memcached_test_script:stop(Server) || Server <- Servers].

%% ---------------------------------------------------------------- one that is gone

refuse(Config) ->
    C = client(?FUNCTION_NAME, 3, Config),
    [Down | Others] = servers(3, Config),
    gone(Down, C),
    [?assertEqual({error, disconnected}, weir_memcached:set(C, Key, Key)) || Key <- keys_of(Down, C)],
    [?assertEqual(ok, weir_memcached:set(C, Key, Key)) || Other <- Others, Key <- keys_of(Other, C)],
    ok = weir_kit_memcached:restart(Down),
    ok = weir_memcached:await(C, weir_kit:wait_ms()),
    [?assertEqual(ok, weir_memcached:set(C, Key, Key)) || Key <- keys(200)].

%% All its keys are asked of others, each of one, and each of the same.
next(Config) ->
    C = client(?FUNCTION_NAME, 3, #{failover => next}, Config),
    [Down | Others] = servers(3, Config),
    Keys = keys_of(Down, C),
    gone(Down, C),
    [?assertEqual(ok, weir_memcached:set(C, Key, Key)) || Key <- Keys],
    [?assertEqual({ok, Key}, weir_memcached:get(C, Key)) || Key <- Keys],
    [?assertEqual([true], [true || Other <- Others, has(Other, Key)]) || Key <- Keys],
    [?assert(lists:any(fun(Key) -> has(Other, Key) end, Keys)) || Other <- Others],
    Items = maps:from_list([{Key, Key} || Key <- Keys]),
    ?assertEqual({ok, Items}, weir_memcached:get_many(C, Keys)),
    ?assertEqual(ok, weir_memcached:set_many(C, Items)),
    ?assertEqual(ok, weir_memcached:delete(C, hd(Keys))),
    ?assertEqual(ok, weir_memcached:set(C, hd(Keys), <<"again">>, #{no_reply => true})).

next_of_next(Config) ->
    C = client(?FUNCTION_NAME, 3, #{failover => next}, Config),
    [One, Two, Three] = servers(3, Config),
    [gone(Down, C) || Down <- [One, Two]],
    [?assertEqual(ok, weir_memcached:set(C, Key, Key)) || Key <- keys(50)],
    [?assert(has(Three, Key)) || Key <- keys(50)],
    gone(Three, C),
    [?assertEqual({error, disconnected}, weir_memcached:get(C, Key)) || Key <- keys(10)],
    ?assertEqual({error, disconnected}, weir_memcached:get_many(C, [hd(keys_of(One, C))])).

%% Items are there for so many seconds at most, whatever time they were given, and the server has none of them.
gutter(Config) ->
    [Down, Other, _, Gutter] = servers(4, Config),
    C = client(?FUNCTION_NAME, 2, #{failover => gutter, gutter => [address(Gutter)], gutter_ttl => 500}, Config),
    Keys = [One, Two, Three, Four, Five, Six | _] = keys_of(Down, C),
    gone(Down, C),
    ok = weir_memcached:set(C, One, <<"1">>),
    ok = weir_memcached:add(C, Two, <<"1">>, #{ttl => 100_000}),
    ok = weir_memcached:set(C, Three, <<"1">>, #{ttl => 100}),
    ok = weir_memcached:set(C, Four, <<"1">>, #{ttl => -1}),
    ok = weir_memcached:set_many(C, [{Five, <<"1">>}], #{ttl => 2_000_000_000}),
    {ok, six} = weir_memcached:fetch(C, Six, fun() -> {ok, six} end, #{codec => term}),
    [
        begin
            ?assert(has(Gutter, Key)),
            ?assertNot(has(Other, Key)),
            {ok, #{ttl := Ttl}} = weir_memcached:item(C, Key, #{codec => raw}),
            ?assert(Ttl =< Most andalso Ttl > Most - 60)
        end
     || {Key, Most} <- [{One, 500}, {Two, 500}, {Three, 100}, {Five, 500}, {Six, 500}]
    ],
    ?assertEqual({error, not_found}, weir_memcached:get(C, Four)),
    ok = weir_memcached:touch(C, One, 0),
    {ok, <<"1">>} = weir_memcached:gat(C, Two, 3000),
    [
        ?assertMatch({ok, #{ttl := Ttl}} when Ttl > 400 andalso Ttl =< 500, weir_memcached:item(C, Key))
     || Key <- [One, Two]
    ],
    %% Keys of others are where they were, for as long as they like.
    [Key | _] = keys_of(Other, C),
    ok = weir_memcached:set(C, Key, Key, #{ttl => 10_000}),
    ?assertMatch({ok, #{ttl := Ttl}} when Ttl > 9000, weir_memcached:item(C, Key)),
    ?assertEqual([name(Down), name(Other)], weir_memcached:servers(C)),
    ?assert(length(Keys) > 10),
    %% What is stale does not live longer either.
    ok = weir_memcached:invalidate(C, One, #{ttl => 100_000}),
    ?assertMatch({ok, #{ttl := Ttl, stale := true}} when Ttl > 400 andalso Ttl =< 500, weir_memcached:item(C, One)),
    %% One that stands in is none of those that share the keys.
    ?assertEqual(
        {error, {contradicting_options, servers, {gutter, [name(Gutter)]}}},
        weir_memcached:set_servers(C, [address(Other), address(Gutter)])
    ),
    ?assertEqual([name(Down), name(Other)], weir_memcached:servers(C)).

gutter_gone_too(Config) ->
    [Down, _, Gutter, Gutter2] = servers(4, Config),
    C = client(?FUNCTION_NAME, 2, #{failover => gutter, gutter => [address(G) || G <- [Gutter, Gutter2]]}, Config),
    Keys = keys_of(Down, C),
    gone(Down, C),
    gone(Gutter, C),
    [?assertEqual(ok, weir_memcached:set(C, Key, Key)) || Key <- Keys],
    [?assert(has(Gutter2, Key)) || Key <- Keys],
    gone(Gutter2, C),
    [?assertEqual({error, disconnected}, weir_memcached:set(C, Key, Key)) || Key <- Keys].

%% One that is stopped takes connections and says nothing. After some time-outs its keys are asked of others; it is
%% probed all the time, and has its keys again when it goes on.
frozen(Config) ->
    Options = #{
        failover => next, request_timeout => 60, stall_timeout => 300, return_over => 0, connect_timeout => 300
    },
    C = client(?FUNCTION_NAME, 3, Options, Config),
    [Frozen | _] = servers(3, Config),
    Keys = [Key | _] = keys_of(Frozen, C),
    Pid = signal("STOP", Frozen),
    try
        until(fun() -> weir_memcached:set(C, Key, <<"1">>) =:= ok end),
        [until(fun() -> weir_memcached:set(C, K, <<"2">>) =:= ok end) || K <- Keys],
        %% Also when all its connections have been given up, and made anew in vain.
        until(fun() -> maps:get(connect_failures, weir_memcached_test:counters(C)) >= 3 end),
        %% On a busy machine a good server may be taken for a silent one just when a key is set, which is at another
        %% then.
        until(fun() ->
            _ = [weir_memcached:set(C, K, <<"2">>) || K <- Keys],
            weir_memcached:get_many(C, Keys) =:= {ok, maps:from_list([{K, <<"2">>} || K <- Keys])}
        end)
    after
        weir_kit:signal("CONT", Pid)
    end,
    until(fun() -> weir_memcached:set(C, Key, <<"3">>), has(Frozen, Key) end).

%% With `refuse' they time out; nothing else is done.
silent_server(Config) ->
    C = client(?FUNCTION_NAME, 2, #{request_timeout => 60, stall_timeout => infinity}, Config),
    [Frozen, Other] = servers(2, Config),
    [Key | _] = keys_of(Frozen, C),
    [OtherKey | _] = keys_of(Other, C),
    Pid = signal("STOP", Frozen),
    try
        %% What is late before it is sent is no time-out of the server.
        until(fun() ->
            _ = weir_memcached:get(C, Key),
            [silent] =:= [
                Phase
             || #{server := S, phase := Phase} <- weir_memcached_test:connections(C), S =:= name(Frozen)
            ]
        end),
        [?assertEqual({error, timeout}, weir_memcached:get(C, Key)) || _ <- lists:seq(1, 5)],
        until(fun() -> weir_memcached:set(C, OtherKey, <<>>) =:= ok end)
    after
        weir_kit:signal("CONT", Pid)
    end,
    until(fun() -> weir_memcached:get(C, Key) =:= {error, not_found} end).

%% A server that is stopped while large values are on their way to it: not all of them may wait (how many bytes may,
%% bytes_that_wait in weir_memcached_attack_SUITE shows), and they are given back after the connections were given up.
%% How much is under way does not put that off: with more time for all of it these would be believed in for minutes.
stopped_with_large_values(Config) ->
    C = client(?FUNCTION_NAME, 1, #{
        connections => 2, max_pending_bytes => 4 bsl 20, request_timeout => 200, stall_timeout => 300,
        connect_timeout => 500
    }, Config),
    [Stopped] = servers(1, Config),
    Size = 300_000,
    Set = fun() -> weir_memcached:set(C, <<"k">>, binary:copy(<<"x">>, Size)) end,
    until(fun() -> Set() =:= ok end),
    true = erlang:garbage_collect(),
    Before = erlang:memory(binary),
    Pid = signal("STOP", Stopped),
    Load = fun Load() ->
        case maps:get(disconnects, weir_memcached_test:counters(C)) of
            N when N >= 2 -> ok;
            _ ->
                _ = Set(),
                %% Nothing of the callers, as far as that can be.
                true = erlang:garbage_collect(),
                Load()
        end
    end,
    try
        in_parallel(lists:duplicate(200, Load))
    after
        weir_kit:signal("CONT", Pid)
    end,
    ?assert(maps:get(busy, weir_memcached_test:counters(C)) > 0),
    until(fun() -> Set() =:= ok end),
    until(fun() ->
        %% This process has made some of them.
        true = erlang:garbage_collect(),
        erlang:memory(binary) < Before + (2 bsl 20)
    end).

%% It is tried again without a request, and has its keys when it has answered. At first it gets hardly any: they are
%% asked of the other one, which has their items, so nothing is computed anew.
comes_back_without_a_stampede(Config) ->
    C = client(?FUNCTION_NAME, 2, #{failover => next, return_over => 3_600_000}, Config),
    [Down, Other] = servers(2, Config),
    Keys = keys_of(Down, C),
    gone(Down, C),
    Items = maps:from_list([{Key, Key} || Key <- Keys]),
    ok = weir_memcached:set_many(C, Items),
    Requests = maps:get(requests, weir_memcached_test:counters(C)),
    ok = weir_kit_memcached:restart(Down),
    ok = weir_memcached:await(C, weir_kit:wait_ms()),
    ?assertEqual(Requests, maps:get(requests, weir_memcached_test:counters(C))),
    %% Half of them would take half an hour.
    Most = length(Keys) div 2,
    {ok, Found} = weir_memcached:get_many(C, Keys),
    ?assert(map_size(Found) > Most),
    ?assertEqual(Found, maps:with(maps:keys(Found), Items)),
    ?assert(length([Key || Key <- Keys, weir_memcached:get(C, Key) =:= {ok, Key}]) > Most),
    [ok = weir_memcached:set(C, Key, <<"new">>) || Key <- Keys],
    ?assert(length([Key || Key <- Keys, has(Down, Key)]) < Most),
    [?assert(has(Other, Key)) || Key <- maps:keys(Found)].

%% What the stand-in may have done is not done by the owner as well, which has just come back.
stand_in_lost(Config) ->
    Test = self(),
    [Down, Other] = servers(2, Config),
    Proxy = weir_memcached_test_proxy:start(Other, fun(_, Way, Bytes) ->
        _ = Way =:= to_client andalso Bytes =:= <<"1\r\n">> andalso begin
            Test ! counted,
            receive never -> ok end
        end
    end),
    Addresses = [address(Down), maps:with([host, port], Proxy)],
    C = client(?FUNCTION_NAME, 2, #{servers => Addresses, failover => next, return_over => 3_600_000}, Config),
    [Key | _] = keys_of(Down, C),
    gone(Down, C),
    ok = weir_memcached:set(C, Key, <<"0">>),
    ok = weir_kit_memcached:restart(Down),
    ok = weir_memcached:await(C, weir_kit:wait_ms()),
    <<"STORED\r\n">> = weir_kit_memcached:raw(Down, ["set ", Key, " 0 0 1\r\n5\r\n"]),
    Caller = start(fun() -> weir_memcached:incr(C, Key, 1, #{timeout => infinity}) end),
    receive counted -> ok after weir_kit:wait_ms() -> error(not_counted) end,
    ok = weir_memcached_test_proxy:stop(Proxy),
    ?assertEqual({error, disconnected}, result(Caller)),
    ?assertEqual(<<"6\r\n">>, weir_kit_memcached:raw(Down, ["incr ", Key, " 1\r\n"])).

%% Some keys first, then more and more, in the end all; none goes back and forth.
comes_back_slowly(Config) ->
    C = client(?FUNCTION_NAME, 2, #{failover => next, return_over => 1500}, Config),
    [Down, _] = servers(2, Config),
    Keys = keys_of(Down, C),
    gone(Down, C),
    ok = weir_kit_memcached:restart(Down),
    ok = weir_memcached:await(C, weir_kit:wait_ms()),
    Where = fun(Key) ->
        ok = weir_memcached:set(C, Key, <<>>),
        Is = has(Down, Key),
        _ = weir_kit_memcached:raw(Down, ["delete ", Key, "\r\n"]),
        Is
    end,
    #server{load = Load} = weir_memcached_route:named(name(Down), weir_memcached_config:fetch(C)),
    Rounds = (fun Round(Before) ->
        Now = [Key || Key <- Keys, Where(Key)],
        Ago = weir_memcached_load:returned(Load),
        %% Not more of them than its time has come for; which ones, chance decides.
        ?assert(length(Now) =< length(Keys) * (Ago / 1500 + 0.3)),
        case length(Now) =:= length(Keys) of
            true -> [Now | Before];
            false -> Round([Now | Before])
        end
    end)([]),
    %% The newest first: each has what the one before had.
    lists:foldl(fun(Before, Now) -> ?assertEqual([], Before -- Now), Before end, hd(Rounds), tl(Rounds)).

comes_back_at_once(Config) ->
    C = client(?FUNCTION_NAME, 2, #{failover => next, return_over => 0}, Config),
    [Down, _] = servers(2, Config),
    Keys = keys_of(Down, C),
    gone(Down, C),
    ok = weir_kit_memcached:restart(Down),
    ok = weir_memcached:await(C, weir_kit:wait_ms()),
    [ok = weir_memcached:set(C, Key, <<>>) || Key <- Keys],
    [?assert(has(Down, Key)) || Key <- Keys].

%% The policy itself, without a clock that runs: of a server that came back a moment ago, and one that never was gone.
shares_of_who_returns(_) ->
    Load = weir_memcached_load:new(2),
    Server = #server{
        name = <<"s">>, host = "s", port = 1, weight = 1, pool = {weir_memcached, c, <<"s">>},
        counters = weir_memcached_counters:new(), latency = weir_memcached_latency:new(), load = Load
    },
    {ok, Config} = weir_memcached_config:new(c, #{failover => next, return_over => 16#FFFFFFFF}),
    Has = fun(C) -> length([Key || Key <- keys(1000), weir_memcached_route:has_all(Key, Server, C)]) end,
    ok = weir_memcached_load:speaks(text, Load),
    ok = weir_memcached_load:up(1, 0, false, Load),
    ?assertEqual(1000, Has(Config)),
    %% One of two connections lost: not gone.
    ok = weir_memcached_load:up(2, 0, false, Load),
    ok = weir_memcached_load:down(1, Load),
    ok = weir_memcached_load:gone(2, Load),
    ok = weir_memcached_load:speaks(meta, Load),
    ?assertEqual({never, meta}, {weir_memcached_load:returned(Load), weir_memcached_load:protocol(Load)}),
    ?assertEqual(1000, Has(Config)),
    %% Both, and one is back.
    ok = weir_memcached_load:down(2, Load),
    ok = weir_memcached_load:gone(2, Load),
    ok = weir_memcached_load:speaks(text, Load),
    ?assertMatch(N when N < 2, Has(Config)),
    ?assertEqual(1000, Has(Config#config{return_over = 0})),
    ?assertEqual(1000, Has(Config#config{failover = refuse})),
    until(fun() -> weir_memcached_load:returned(Load) >= 20 end),
    Half = Has(Config#config{return_over = 2 * weir_memcached_load:returned(Load)}),
    ?assert(Half > 300).

%% ---------------------------------------------------------------- commands about servers

server_commands(Config) ->
    C = client(?FUNCTION_NAME, 2, Config),
    [One, Two] = servers(2, Config),
    ?assertError({missing_option, server}, weir_memcached:version(C)),
    ?assertError({missing_option, server}, weir_memcached:stats(C)),
    ?assertError({bad_option, server, <<"x">>}, weir_memcached:version(C, #{server => <<"x">>})),
    {ok, Version} = weir_memcached:version(C, #{server => name(Two)}),
    ?assert(is_binary(Version)),
    [
        begin
            Port = integer_to_binary(maps:get(port, Server)),
            Of = #{server => name(Server)},
            ?assertMatch({ok, #{<<"tcpport">> := Port}}, weir_memcached:stats(C, "settings", Of)),
            ?assertMatch({ok, #{<<"pid">> := _}}, weir_memcached:stats(C, <<>>, #{server => name(Server)}))
        end
     || Server <- [One, Two]
    ],
    [ok = weir_memcached:set(C, Key, Key) || Key <- keys(200)],
    ok = weir_memcached:flush_all(C, #{server => name(One)}),
    ?assertEqual([], [Key || Key <- keys_of(One, C), has(One, Key)]),
    ?assertEqual(keys_of(Two, C), [Key || Key <- keys_of(Two, C), has(Two, Key)]),
    ok = weir_memcached:verbosity(C, 0),
    gone(Two, C),
    ?assertEqual({error, disconnected}, weir_memcached:flush_all(C)).

await(Config) ->
    C = client(?FUNCTION_NAME, 2, Config),
    [_, Two] = servers(2, Config),
    gone(Two, C),
    ?assertEqual({error, {not_connected, [name(Two)]}}, weir_memcached:await(C, 0)),
    ?assertEqual({error, {not_connected, [name(Two)]}}, weir_memcached:await(C, 30)),
    Waiting = start(fun() -> weir_memcached:await(C, infinity) end),
    ok = weir_kit_memcached:restart(Two),
    ?assertEqual(ok, result(Waiting)),
    ?assertError(function_clause, weir_memcached:await(C, -1)),
    ?assertExit({noproc, _}, weir_memcached:await(no_such_client, 0)).

%% The first request finds a connection; and where there is none the start does not fail.
await_at_start(Config) ->
    C = ?FUNCTION_NAME,
    Servers = [address(Server) || Server <- servers(3, Config)],
    Options = #{servers => Servers, await => weir_kit:wait_ms(), request_timeout => infinity},
    {ok, _} = weir_memcached:start_link(C, Options),
    [?assertEqual(ok, weir_memcached:set(C, Key, 1)) || Key <- keys(50)],
    ok = weir_memcached:stop(C),
    Nobody = #{host => {127, 0, 0, 1}, port => weir_kit_memcached:free_port()},
    {ok, _} = weir_memcached:start_link(C, Nobody#{await => 20}),
    ?assertEqual({error, disconnected}, weir_memcached:get(C, <<"k">>)).

%% ---------------------------------------------------------------- servers that come and go

%% No request fails, and only as many keys move as have to.
add_and_remove(Config) ->
    C = client(?FUNCTION_NAME, 2, Config),
    Addresses = [address(Server) || Server <- servers(3, Config)],
    Stop = atomics:new(1, []),
    Load = fun Load(N) ->
        case atomics:get(Stop, 1) of
            1 -> N;
            0 ->
                Key = integer_to_binary(rand:uniform(200)),
                ok = weir_memcached:set(C, Key, Key),
                case weir_memcached:get(C, Key) of
                    {ok, Value} -> weir_kit:same(wrong_value, Key, Value);
                    %% The key has moved to another server.
                    {error, not_found} -> ok
                end,
                Load(N + 1)
        end
    end,
    Callers = [start(fun() -> Load(0) end) || _ <- lists:seq(1, 10)],
    Owners = fun() -> maps:from_list([{Key, element(2, weir_memcached:server_of(C, Key))} || Key <- keys(200)]) end,
    Before = Owners(),
    ok = weir_memcached:set_servers(C, Addresses),
    With = Owners(),
    [_, _, Third] = weir_memcached:servers(C),
    Moved = [New || {Key, New} <- maps:to_list(With), maps:get(Key, Before) =/= New],
    ?assertEqual([Third], lists:usort(Moved)),
    ok = weir_memcached:set_servers(C, lists:sublist(Addresses, 2)),
    ?assertEqual(Before, Owners()),
    ok = weir_memcached:set_servers(C, tl(Addresses)),
    ?assertEqual(tl([name(Server) || Server <- servers(3, Config)]), weir_memcached:servers(C)),
    atomics:put(Stop, 1, 1),
    ?assert(lists:sum([result(Caller) || Caller <- Callers]) > 0),
    %% What has left is closed.
    until(fun() -> length(pools(C)) =:= 2 end),
    ?assertMatch(#{disconnected := 0}, weir_memcached_test:counters(C)).

pools(C) -> [Name || {weir_memcached, Client, Name} <- weir_pool:pools(), Client =:= C].

%% One timer looks after all that are left, however often the servers have changed meanwhile.
one_look_at_old_servers(Config) ->
    C = client(?FUNCTION_NAME, 2, Config),
    Addresses = [address(Server) || Server <- servers(3, Config)],
    #config{publisher = Publisher} = weir_memcached_config:fetch(C),
    Took = (fun Change() ->
        Begin = erlang:monotonic_time(millisecond),
        _ = [ok = weir_memcached:set_servers(C, [Address]) || Address <- Addresses ++ Addresses],
        ok = sys:suspend(Publisher, infinity),
        case drained(C) of
            %% It has looked already, and has no more to look after.
            [] -> ok = sys:resume(Publisher, infinity), Change();
            _ -> erlang:monotonic_time(millisecond) - Begin
        end
    end)(),
    Looks = fun() -> {messages, Messages} = process_info(Publisher, messages), [drain || drain <- Messages] end,
    until(fun() -> Looks() =/= [] end),
    %% Those of the other changes would be as far apart as these.
    receive after Took -> ok end,
    ?assertEqual([drain], Looks()),
    ok = sys:resume(Publisher, infinity),
    until(fun() -> length(pools(C)) =:= 1 end).

weights_change(Config) ->
    C = client(?FUNCTION_NAME, 2, Config),
    [One, Two] = [address(Server) || Server <- servers(2, Config)],
    Share = fun() -> length(keys_of(hd(servers(2, Config)), C)) end,
    Even = Share(),
    Conns = lists:sort([Pid || #{pid := Pid} <- weir_memcached_test:connections(C)]),
    ok = weir_memcached:set_servers(C, [One#{weight => 9}, Two]),
    ?assert(Share() > Even),
    ?assertEqual(Conns, lists:sort([Pid || #{pid := Pid} <- weir_memcached_test:connections(C)])).

change_refused(Config) ->
    C = client(?FUNCTION_NAME, 2, #{distribution => jump}, Config),
    Before = weir_memcached:servers(C),
    [
        ?assertEqual({error, Reason}, weir_memcached:set_servers(C, Bad))
     || {Bad, Reason} <- [
            {[], {bad_option, servers, []}},
            {x, {bad_option, servers, x}},
            {[#{port => 1}], {bad_option, servers, [#{port => 1}]}},
            {[#{host => "a", weight => 2}], {contradicting_options, {distribution, jump}, {weight, 2}}}
        ]
    ],
    ?assertEqual(Before, weir_memcached:servers(C)),
    ?assertExit({noproc, _}, weir_memcached:set_servers(no_such_client, [#{host => "a"}])).

%% It is one of them after connect_timeout, and refuses its keys.
new_server_is_down(Config) ->
    C = client(?FUNCTION_NAME, 1, #{connect_timeout => 50}, Config),
    Port = weir_kit_memcached:free_port(),
    ok = weir_memcached:set_servers(C, [address(hd(servers(1, Config))), #{host => "127.0.0.1", port => Port}]),
    ?assertEqual([ok, {error, disconnected}], lists:usort([weir_memcached:set(C, Key, Key) || Key <- keys(200)])).

one_change_at_a_time(Config) ->
    C = client(?FUNCTION_NAME, 1, #{connect_timeout => weir_kit:wait_ms()}, Config),
    [One, Two] = [address(Server) || Server <- servers(2, Config)],
    Port = weir_kit_memcached:free_port(),
    First = start(fun() ->
        weir_memcached:set_servers(C, [One, #{host => "127.0.0.1", port => Port}])
    end),
    until(fun() -> length(pools(C)) =:= 2 end),
    ?assertEqual({error, changing}, weir_memcached:set_servers(C, [One, Two])),
    ?assertEqual(1, length(weir_memcached:servers(C))),
    kill(First),
    ok = weir_memcached:stop(C).

%% The servers are those that were set last.
client_process_killed(Config) ->
    C = client(?FUNCTION_NAME, 1, Config),
    ok = weir_memcached:set_servers(C, [address(Server) || Server <- servers(3, Config)]),
    Names = weir_memcached:servers(C),
    kill(child(C, client)),
    until(fun() -> weir_memcached:servers(C) =:= Names andalso length(pools(C)) =:= 3 end),
    ok = weir_memcached:await(C, weir_kit:wait_ms()),
    [until(fun() -> weir_memcached:set(C, Key, Key) =:= ok end) || Key <- keys(50)],
    kill(child(C, servers)),
    ok = weir_memcached:await(C, weir_kit:wait_ms()),
    until(fun() -> length(pools(C)) =:= 3 end),
    [until(fun() -> weir_memcached:set(C, Key, Key) =:= ok end) || Key <- keys(50)].

child(C, Id) ->
    {Id, Pid, _, _} = lists:keyfind(Id, 1, supervisor:which_children(C)),
    Pid.

%% The caller that asked for the change exits, and the client keeps the servers of before.
killed_in_a_change(Config) ->
    C = client(?FUNCTION_NAME, 1, #{connect_timeout => weir_kit:wait_ms()}, Config),
    One = address(hd(servers(1, Config))),
    Port = weir_kit_memcached:free_port(),
    {Asking, Monitor} = start(fun() ->
        weir_memcached:set_servers(C, [One, #{host => "127.0.0.1", port => Port}])
    end),
    until(fun() -> length(pools(C)) =:= 2 end),
    kill(child(C, client)),
    receive {'DOWN', Monitor, process, Asking, Reason} -> ?assertMatch({killed, _}, Reason) end,
    until(fun() -> is_pid(child(C, servers)) andalso length(pools(C)) =:= 1 end),
    until(fun() -> weir_memcached:set(C, <<"k">>, <<>>) =:= ok end),
    ok = weir_memcached:set_servers(C, [address(Server) || Server <- servers(2, Config)]),
    ?assertEqual(2, length(weir_memcached:servers(C))).

%% One that comes back while it is being left keeps its connections.
left_and_back(Config) ->
    C = client(?FUNCTION_NAME, 2, #{stall_timeout => infinity}, Config),
    [_, Left] = servers(2, Config),
    [One, Two] = [address(Server) || Server <- servers(2, Config)],
    Conns = lists:sort([Pid || #{pid := Pid} <- weir_memcached_test:connections(C)]),
    [Key | _] = keys_of(Left, C),
    Stopped = signal("STOP", Left),
    try
        %% What it does not answer keeps it from being closed before it is back, however late that is.
        Waiting = start(fun() -> weir_memcached:get(C, Key) end),
        until(fun() -> lists:sum([N || #{pending := N} <- weir_memcached_test:connections(C)]) =:= 1 end),
        ok = weir_memcached:set_servers(C, [One]),
        ?assertEqual(2, length(pools(C))),
        ok = weir_memcached:set_servers(C, [One, Two]),
        ?assertEqual(Conns, lists:sort([Pid || #{pid := Pid} <- weir_memcached_test:connections(C)])),
        ok = weir_kit:signal("CONT", Stopped),
        ?assertEqual({error, not_found}, result(Waiting))
    after
        weir_kit:signal("CONT", Stopped)
    end,
    %% The time must be longer than the client keeps an old server.
    receive after 1500 -> ok end,
    ?assertEqual(2, length(pools(C))),
    [ok = weir_memcached:set(C, Each, Each) || Each <- keys(50)].

%% One that comes back in a change that takes longer than an old server is kept.
back_in_a_slow_change(Config) ->
    C = client(?FUNCTION_NAME, 2, #{connect_timeout => 3000}, Config),
    [One, Two] = [address(Server) || Server <- servers(2, Config)],
    %% Takes connections and says nothing.
    {ok, Silent} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Silent),
    ok = weir_memcached:set_servers(C, [One]),
    ok = weir_memcached:set_servers(C, [One, Two, #{host => {127, 0, 0, 1}, port => Port}]),
    ok = gen_tcp:close(Silent),
    Keys = lists:append([keys_of(Server, C) || Server <- servers(2, Config)]),
    %% If it was closed before the change began it may have to be connected to.
    [until(fun() -> weir_memcached:set(C, Key, Key) =:= ok end) || Key <- Keys].

%% One that comes back while the processes of before are being stopped, which takes some time, has others.
back_while_removed(Config) ->
    C = client(?FUNCTION_NAME, 2, Config),
    [One, Two] = [address(Server) || Server <- servers(2, Config)],
    Name = name(lists:nth(2, servers(2, Config))),
    [Conn] = [Pid || #{pid := Pid, server := Server} <- weir_memcached_test:connections(C), Server =:= Name],
    true = erlang:suspend_process(Conn),
    ok = weir_memcached:set_servers(C, [One]),
    until(fun() -> drained(C) =:= [] end),
    case is_process_alive(Conn) of
        true ->
            ?assertEqual(ok, weir_memcached:set_servers(C, [One, Two])),
            ?assertNot(is_process_alive(Conn)),
            [?assertEqual(ok, weir_memcached:set(C, Key, Key)) || Key <- keys_of(lists:nth(2, servers(2, Config)), C)];
        false ->
            %% It is killed after some seconds: this process was too late.
            ok = weir_memcached:stop(C),
            back_while_removed(Config)
    end.

drained(C) ->
    {status, _, _, [_, _, _, _, Items]} = sys:get_status(child(C, client), wait_ms()),
    [#{drained := Drained}] = [State || {data, [{"State", State}]} <- Items],
    Drained.

%% What was asked of a server that has left is answered.
waits_for_answers(Config) ->
    Script = [accept, {expect, "get k\r\n"}, {tell, asked}, {wait, go}, {send, "VALUE k 0 1\r\nv\r\nEND\r\n"}],
    Server = weir_memcached_test_script:start(Script),
    C = ?FUNCTION_NAME,
    #{port := Port} = Server,
    Old = #{host => {127, 0, 0, 1}, port => Port},
    Options = #{servers => [Old], connections => 1, codec => raw, protocol => text, request_timeout => infinity},
    {ok, _} = weir_memcached:start_link(C, Options#{await => weir_kit:wait_ms(), stall_timeout => infinity}),
    Caller = start(fun() -> weir_memcached:get(C, <<"k">>) end),
    weir_memcached_test_script:reached(Server, asked),
    ok = weir_memcached:set_servers(C, [address(hd(servers(1, Config)))]),
    %% The time must be longer than the client keeps an old server that has answered everything.
    receive after 1500 -> ok end,
    ?assertEqual(2, length(pools(C))),
    weir_memcached_test_script:release(Server, go),
    ?assertEqual({ok, <<"v">>}, result(Caller)),
    until(fun() -> length(pools(C)) =:= 1 end),
    ok = weir_memcached_test_script:stop(Server).

%% The client can be stopped whatever it is about.
stopped_in_a_change(Config) ->
    C = ?FUNCTION_NAME,
    [
        begin
            _ = client(C, 1, #{connect_timeout => weir_kit:wait_ms()}, Config),
            One = address(hd(servers(1, Config))),
            Port = weir_kit_memcached:free_port(),
            {_, Monitor} = spawn_monitor(fun() ->
                exit({told, weir_memcached:set_servers(C, [One, #{host => "127.0.0.1", port => Port}])})
            end),
            receive after Ms -> ok end,
            ok = weir_memcached:stop(C),
            %% Who has asked exits as gen_server:call/3 does; or is told that the connections could not be started, if
            %% their supervisor ends while they are.
            Why = receive {'DOWN', Monitor, _, _, Reason} -> Reason end,
            ?assertMatch({Exit, Told} when is_atom(Exit) andalso Told =/= ok, Why),
            ?assertEqual([], pools(C))
        end
     || Ms <- [0, 1, 2, 5, 20]
    ].

%% Who has read of a server just before it left, and comes when it is closed, asks the one that has its keys now.
asks_late(Config) ->
    C = client(?FUNCTION_NAME, 1, Config),
    Before = weir_memcached_config:fetch(C),
    Ask = fun(Operation) -> weir_memcached_ask:ask(Before, <<"k">>, Operation, #{}) end,
    AskMany = fun(Operation) -> weir_memcached_ask:ask_each([{<<"k">>, k}], fun([k]) -> Operation end, Before, #{}) end,
    ok = weir_memcached:set_servers(C, [address(lists:nth(2, servers(2, Config)))]),
    until(fun() -> length(pools(C)) =:= 1 end),
    ?assertEqual(ok, Ask({set, <<"k">>, <<"v">>, 0, 0, 1})),
    ?assertMatch({ok, [{<<"k">>, 0, _, <<"v">>}]}, Ask({get, <<"k">>})),
    [{[k], Answer, _}] = AskMany({get_many, [<<"k">>]}),
    ?assertMatch({ok, [{<<"k">>, 0, _, <<"v">>}]}, weir_memcached_reply:items(Answer)),
    %% But not about a version of an item, which was the other one's.
    {ok, <<"v">>, Cas} = weir_memcached:gets(C, <<"k">>),
    ?assertEqual({error, disconnected}, Ask({cas, <<"k">>, <<"w">>, 0, 0, Cas, 1})),
    ?assertEqual({error, disconnected}, Ask({release, <<"k">>, Cas, missing})),
    ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"k">>)),
    %% If they have not changed there is nobody else.
    ok = weir_memcached:set_servers(C, [address(hd(servers(1, Config)))]),
    gone(hd(servers(1, Config)), C),
    ?assertEqual({error, disconnected}, weir_memcached:get(C, <<"k">>)),
    ?assertEqual({error, disconnected}, weir_memcached:get_many(C, [<<"k">>])).

%% The pools have names by which people and weir_watch know whose they are.
pools_of_servers(Config) ->
    C = client(?FUNCTION_NAME, 2, Config),
    ?assertEqual(lists:sort([name(Server) || Server <- servers(2, Config)]), lists:sort(pools(C))).

%% ---------------------------------------------------------------- all at once

%% Servers are killed, frozen, added and removed under load: no reply is that of another key, whatever the policy.
no_wrong_values(Config) ->
    Servers = servers(4, Config),
    Addresses = [address(Server) || Server <- Servers],
    lists:foreach(
        fun(Options) ->
            C = client(?FUNCTION_NAME, 3, maps:merge(#{
                request_timeout => 200, stall_timeout => 500, connections => 2, connect_timeout => 500,
                return_over => 300
            }, Options), Config),
            Stop = atomics:new(1, []),
            Load = fun Load(Good) ->
                case atomics:get(Stop, 1) of
                    1 -> Good;
                    0 -> Load(Good + some(C, 500, 500))
                end
            end,
            Callers = [start(fun() -> Load(0) end) || _ <- lists:seq(1, 8)],
            lists:foreach(
                fun(_) ->
                    Server = lists:nth(rand:uniform(3), Servers),
                    case rand:uniform(3) of
                        1 ->
                            ok = weir_kit_memcached:kill(Server),
                            receive after 30 -> ok end,
                            ok = weir_kit_memcached:restart(Server);
                        2 ->
                            Pid = signal("STOP", Server),
                            receive after 100 -> ok end,
                            _ = weir_kit:signal("CONT", Pid);
                        3 ->
                            Some = lists:sublist(Addresses, 1 + rand:uniform(3)),
                            ok = weir_memcached:set_servers(C, Some)
                    end
                end,
                lists:seq(1, 15)
            ),
            atomics:put(Stop, 1, 1),
            ?assert(lists:sum([result(Caller) || Caller <- Callers]) > 0),
            weir_kit:same(garbage, 0, maps:get(garbage, weir_memcached_test:counters(C))),
            ok = weir_memcached:stop(C)
        end,
        [#{failover => refuse}, #{failover => next, distribution => rendezvous}]
    ).

%% Servers that are too small for all items, and so throw some out all the time, and links on which everything takes
%% its time, now and then more than a caller waits for: what comes late is nobody else's.
full_and_slow(_) ->
    Full = [weir_kit_memcached:start(#{arguments => "-m 2"}) || _ <- [1, 2]],
    Slowly = fun(_, _, _) ->
        Ms = case rand:uniform(20) of 1 -> rand:uniform(400); _ -> rand:uniform(3) - 1 end,
        receive after Ms -> ok end
    end,
    Proxies = [weir_memcached_test_proxy:start(Server, Slowly) || Server <- Full],
    lists:foreach(
        fun(Options) ->
            C = ?FUNCTION_NAME,
            {ok, _} = weir_memcached:start_link(C, Options#{
                servers => [maps:with([host, port], Proxy) || Proxy <- Proxies],
                codec => raw, connections => 2, request_timeout => 150, connect_timeout => 5000, return_over => 300,
                transport => weir_memcached_test:transport()
            }),
            ok = weir_memcached:await(C, weir_kit:wait_ms()),
            Before = evictions(Full),
            Good = counters:new(1, []),
            IsOver = atomics:new(1, []),
            Load = fun Load() ->
                case atomics:get(IsOver, 1) of
                    1 -> ok;
                    0 -> counters:add(Good, 1, some(C, 1000, 8000)), Load()
                end
            end,
            Callers = [start(Load) || _ <- lists:seq(1, 8)],
            %% Others fill them, too.
            Filler = fun Filler() ->
                case atomics:get(IsOver, 1) of
                    1 -> ok;
                    0 -> [fill(Server, 1000, 8000) || Server <- Full], Filler()
                end
            end,
            Filling = start(Filler),
            until(fun() ->
                #{timeouts := Timeouts} = weir_memcached_test:counters(C),
                Timeouts >= 20 andalso counters:get(Good, 1) >= 200 andalso evictions(Full) > Before + 100
            end),
            atomics:put(IsOver, 1, 1),
            _ = [ok = result(Caller) || Caller <- [Filling | Callers]],
            weir_kit:same(garbage, 0, maps:get(garbage, weir_memcached_test:counters(C))),
            ok = weir_memcached:stop(C)
        end,
        [#{failover => refuse}, #{failover => next, distribution => rendezvous}, #{protocol => text}]
    ),
    [ok = weir_memcached_test_proxy:stop(Proxy) || Proxy <- Proxies],
    [ok = weir_kit_memcached:stop(Server) || Server <- Full].

%% Sets a hundred keys without any client.
fill(#{host := Host, port := Port}, Most, Size) ->
    {ok, Socket} = gen_tcp:connect(Host, Port, [binary, {active, false}]),
    _ = [
        begin
            Key = integer_to_binary(rand:uniform(Most)),
            Value = value(Key, Size),
            Length = integer_to_list(byte_size(Value)),
            ok = gen_tcp:send(Socket, ["set ", Key, " 0 0 ", Length, " noreply\r\n", Value, "\r\n"])
        end
     || _ <- lists:seq(1, 100)
    ],
    ok = gen_tcp:send(Socket, "version\r\n"),
    {ok, _} = gen_tcp:recv(Socket, 0, weir_kit:wait_ms()),
    gen_tcp:close(Socket).

evictions(Servers) -> lists:sum([weir_kit_memcached:stat(Server, <<"evictions">>) || Server <- Servers]).

%% Writes and reads some of Most keys, with values of at most Size bytes. Checks that each value belongs to its key, and
%% returns how many values it has read.
some(C, Most, Size) ->
    Keys = [integer_to_binary(rand:uniform(Most)) || _ <- lists:seq(1, 5)],
    _ = weir_memcached:set(C, hd(Keys), value(hd(Keys), Size)),
    _ = weir_memcached:set_many(C, [{Key, value(Key, Size)} || Key <- Keys]),
    One = case weir_memcached:get(C, hd(Keys)) of {ok, V} -> #{hd(Keys) => V}; _ -> #{} end,
    Many =
        case weir_memcached:get_many(C, Keys) of
            {ok, Values} -> Values;
            {error, {partial, Values, _}} -> Values;
            {error, _} -> #{}
        end,
    Got = maps:to_list(One) ++ maps:to_list(Many),
    weir_kit:none(wrong_values, [Pair || {Key, V} = Pair <- Got, not is_of(Key, V)]),
    length(Got).

value(Key, Size) -> <<Key/binary, ":", (binary:copy(<<"x">>, rand:uniform(Size)))/binary>>.

is_of(Key, Value) ->
    Size = byte_size(Key),
    case Value of
        <<Key:Size/binary, ":", _/binary>> -> true;
        _ -> false
    end.

%% ---------------------------------------------------------------- writes that come late

%% As the guide says: what was sent before a connection was lost may be carried out after what was sent over the next
%% one. With set the older value is back then; with cas, by who has read the item again, it is not.
old_write_comes_late(Config) ->
    C = ?FUNCTION_NAME,
    Test = self(),
    Hold = fun
        (N, to_server, Bytes) ->
            case binary:match(Bytes, <<"\r\nold\r\n">>) of
                nomatch ->
                    ok;
                _ ->
                    Test ! {held, N, self()},
                    receive
                        go_on -> ok
                    end
            end;
        (N, to_client, Bytes) ->
            Test ! {answered, N, Bytes}
    end,
    [Server] = servers(1, Config),
    Proxy = weir_memcached_test_proxy:start(Server, Hold),
    {ok, _} = weir_memcached:start_link(C, #{
        servers => [maps:with([host, port], Proxy)], connections => 1, codec => raw, protocol => text,
        reconnect => {1, 20}, request_timeout => infinity, await => weir_kit:wait_ms(),
        transport => weir_memcached_test:transport()
    }),
    ok = weir_memcached:set(C, <<"k">>, <<"first">>),
    Late = fun(Write) ->
        {ok, _, Cas} = weir_memcached:gets(C, <<"k">>),
        Caller = start(fun() -> Write(<<"old">>, Cas) end),
        {N, Passing} = receive {held, Number, Pid} -> {Number, Pid} after weir_kit:wait_ms() -> error(not_held) end,
        [#{pid := Conn}] = weir_memcached_test:connections(C),
        kill(Conn),
        ?assertEqual({error, disconnected}, result(Caller)),
        ok = weir_memcached:await(C, weir_kit:wait_ms()),
        until(fun() -> [up] =:= [Phase || #{phase := Phase} <- weir_memcached_test:connections(C)] end),
        {ok, _, Again} = weir_memcached:gets(C, <<"k">>),
        ok = Write(<<"new">>, Again),
        ok = answered_before(),
        Passing ! go_on,
        receive {answered, N, _} -> ok after weir_kit:wait_ms() -> error(not_carried_out) end,
        {ok, Value} = weir_memcached:get(C, <<"k">>),
        Value
    end,
    ?assertEqual(<<"old">>, Late(fun(Value, _) -> weir_memcached:set(C, <<"k">>, Value) end)),
    weir_kit:same(overwritten, <<"new">>, Late(fun(Value, Cas) -> weir_memcached:cas(C, <<"k">>, Value, Cas) end)),
    ok = weir_memcached:stop(C),
    ok = weir_memcached_test_proxy:stop(Proxy).

answered_before() ->
    receive
        {answered, _, _} -> answered_before()
    after 0 -> ok
    end.

%% One connection is killed again and again, on a link that delays some bytes, while processes write greater and greater
%% numbers. No process reads less than a number that was acknowledged before.
old_writes_come_late(Config) ->
    C = ?FUNCTION_NAME,
    Slowly = fun
        (_, to_server, _) -> receive after case rand:uniform(5) of 1 -> 50; _ -> 0 end -> ok end;
        (_, to_client, _) -> ok
    end,
    Proxy = weir_memcached_test_proxy:start(hd(servers(1, Config)), Slowly),
    {ok, _} = weir_memcached:start_link(C, #{
        servers => [maps:with([host, port], Proxy)], connections => 1, codec => raw, reconnect => {1, 5},
        request_timeout => infinity, await => weir_kit:wait_ms(), transport => weir_memcached_test:transport()
    }),
    ok = weir_memcached:set(C, <<"k">>, <<"0">>),
    Next = atomics:new(1, []),
    Acknowledged = atomics:new(1, []),
    IsOver = atomics:new(1, []),
    Write = fun(Cas) ->
        N = atomics:add_get(Next, 1, 1),
        _ = weir_memcached:cas(C, <<"k">>, integer_to_binary(N), Cas) =:= ok andalso at_least(Acknowledged, N),
        ok
    end,
    Loop = fun Loop(Lost) ->
        Least = atomics:get(Acknowledged, 1),
        case {atomics:get(IsOver, 1), weir_memcached:gets(C, <<"k">>)} of
            {1, _} -> Lost;
            {0, {ok, Value, Cas}} ->
                Read = binary_to_integer(Value),
                Read >= Least orelse weir_kit:fault({acknowledged_and_lost, Least, Read}),
                Write(Cas),
                Loop(Lost);
            {0, {error, disconnected}} ->
                receive after 1 -> Loop(Lost + 1) end
        end
    end,
    Writers = [start(fun() -> Loop(0) end) || _ <- lists:seq(1, 8)],
    [
        begin
            Before = atomics:get(Acknowledged, 1),
            until(fun() -> atomics:get(Acknowledged, 1) > Before end),
            [exit(Pid, kill) || #{pid := Pid} <- weir_memcached_test:connections(C)]
        end
     || _ <- lists:seq(1, weir_kit:long(30, 120))
    ],
    atomics:put(IsOver, 1, 1),
    ?assert(lists:sum([result(Writer) || Writer <- Writers]) > 0),
    ok = weir_memcached:stop(C),
    ok = weir_memcached_test_proxy:stop(Proxy).

at_least(Atomic, N) ->
    case atomics:get(Atomic, 1) of
        Now when Now >= N ->
            ok;
        Now ->
            _ = atomics:compare_exchange(Atomic, 1, Now, N),
            at_least(Atomic, N)
    end.

%% ---------------------------------------------------------------- what is told

%% Beside connections that have just been killed, one after the other, it tells all servers, and does not fail.
info_beside_the_dying(Config) ->
    C = client(?FUNCTION_NAME, 2, #{connections => 40}, Config),
    weir_memcached_test:up(C),
    Names = lists:sort([name(Server) || Server <- servers(2, Config)]),
    Conns = [Pid || #{pid := Pid} <- weir_memcached_test:connections(C)],
    ?assertEqual(80, length(Conns)),
    %% Each dies once: that is what their pools put up with.
    Told = fun() ->
        {ok, #{servers := Servers, connections := Told}} = weir_memcached:info(C),
        ?assertEqual(Names, lists:sort(maps:keys(Servers))),
        %% One that does not tell in time is not known whose it is.
        IsLate = lists:any(fun(#{phase := Phase}) -> Phase =:= stuck end, Told),
        Of = lists:usort([Name || #{server := Name} <- Told]),
        ?assertEqual(case IsLate of true -> Of; false -> Names end, Of),
        ?assertEqual([], Of -- Names),
        ?assert(length(Told) =< 80)
    end,
    IsOver = atomics:new(1, []),
    Telling = fun Telling() ->
        Told(),
        case atomics:get(IsOver, 1) of 0 -> Telling(); 1 -> ok end
    end,
    Others = [start(Telling) || _ <- [1, 2]],
    %% Half of them, so that each server has some that live, however late their pools are.
    [begin exit(Conn, kill), Told() end || {N, Conn} <- lists:enumerate(Conns), N rem 2 =:= 0],
    atomics:put(IsOver, 1, 1),
    [ok = result(Other) || Other <- Others],
    weir_memcached_test:up(C).

%% Where there is telemetry it gets every event.
telemetry(Config) ->
    ok = weir_kit_telemetry:load(),
    try
        [#{host := Host, port := Port} = Server] = servers(1, Config),
        C = client(?FUNCTION_NAME, 1, Config),
        Of = #{client => C, address => {Host, Port}},
        ?assertEqual({connected, #{}, Of}, event(C)),
        ok = weir_kit_memcached:kill(Server),
        ?assertEqual({disconnected, #{failed => 0}, Of#{reason => closed}}, event(C)),
        %% It may have been taken by the system in the last moment.
        {connect_failed, #{}, #{reason := Reason} = Failed} = event(C),
        ?assertEqual(Of#{reason => Reason}, Failed),
        ok = weir_kit_memcached:restart(Server),
        ?assertEqual({connected, #{}, Of}, event(C)),
        [#{pid := Conn}] = weir_memcached_test:connections(C),
        ok = sys:suspend(Conn, infinity),
        %% What its timer says every few seconds.
        Client = child(C, client),
        Client ! ask,
        Client ! ask,
        %% Of two connection processes, and so in any order.
        ?assertEqual([{connected, #{}, Of}, {stuck, #{}, Of#{pid => Conn}}], lists:sort([event(C), event(C)]))
    after
        weir_kit_telemetry:unload()
    end.

%% Of this client: what is told of those of before may be late.
event(C) ->
    case weir_kit_telemetry:event(weir_memcached) of
        {_, _, #{client := C}} = Event -> Event;
        _ -> event(C)
    end.

%% One server: its ring is not asked.
hashing_costs_nothing_with_one(Config) ->
    C = client(?FUNCTION_NAME, 1, Config),
    #config{servers = Servers} = weir_memcached_config:fetch(C),
    {servers, one, {_}} = Servers,
    ok = weir_memcached:set(C, <<"k">>, <<>>).
