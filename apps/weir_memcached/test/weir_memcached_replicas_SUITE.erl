%% Copies on several servers, and gets that ask a second one.
-module(weir_memcached_replicas_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, start/1, result/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    Servers = [weir_kit_memcached:start() || _ <- [1, 2, 3]],
    [{servers, Servers} | weir_memcached_test:set_up(weir_memcached, Config)].

end_per_suite(Config) ->
    _ = [weir_kit_memcached:stop(Server) || Server <- servers(Config)],
    weir_memcached_test:tear_down(Config).

end_per_testcase(Case, Config) ->
    _ = whereis(Case) =/= undefined andalso try weir_memcached:stop(Case) catch exit:_ -> ok end,
    [ok = weir_kit_memcached:restart(Server) || Server <- servers(Config)],
    [<<"OK\r\n">> = weir_kit_memcached:raw(Server, <<"flush_all\r\n">>) || Server <- servers(Config)].

servers(Conf) -> proplists:get_value(servers, Conf).

client(Name, Options, Config) ->
    Servers = [weir_kit_memcached:options(Server) || Server <- servers(Config)],
    Defaults = #{
        servers => Servers, connections => 1, codec => raw, reconnect => {1, 20}, replicas => 2,
        await => weir_kit:wait_ms(), request_timeout => weir_kit:wait_ms(), connect_timeout => weir_kit:wait_ms()
    },
    {ok, _} = weir_memcached:start_link(Name, maps:merge(Defaults, Options)),
    Name.

%% What each server has of a key: its value, or nothing.
values(Key, Config) -> lists:append([value(Server, Key) || Server <- servers(Config)]).

value(#{host := Host, port := Port}, Key) ->
    {ok, Socket} = gen_tcp:connect(Host, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, ["get ", Key, "\r\n"]),
    Read = fun Read(Data) ->
        Reply = "^(?:VALUE \\S+ \\d+ \\d+\r\n(.*)\r\n)?END\r\n$",
        case re:run(Data, Reply, [dotall, {capture, all_but_first, binary}]) of
            {match, Values} -> Values;
            nomatch ->
                {ok, More} = gen_tcp:recv(Socket, 0, weir_kit:wait_ms()),
                Read(<<Data/binary, More/binary>>)
        end
    end,
    Values = Read(<<>>),
    ok = gen_tcp:close(Socket),
    Values.

name(#{port := Port}) -> iolist_to_binary(["127.0.0.1:", integer_to_list(Port)]).

owner(C, Key, Config) ->
    {ok, Name} = weir_memcached:server_of(C, Key),
    hd([Server || Server <- servers(Config), name(Server) =:= Name]).

%% ---------------------------------------------------------------- copies

copies(Config) ->
    C = client(?FUNCTION_NAME, #{}, Config),
    Keys = [integer_to_binary(N) || N <- lists:seq(1, 30)],
    [ok = weir_memcached:set(C, Key, Key) || Key <- Keys],
    [until(fun() -> values(Key, Config) =:= [Key, Key] end) || Key <- Keys],
    [ok = weir_memcached:delete(C, Key) || Key <- Keys],
    [until(fun() -> values(Key, Config) =:= [] end) || Key <- Keys],
    ?assertMatch(#{unacknowledged := 0}, weir_memcached_test:counters(C)).

as_many_as_there_are(Config) ->
    C = client(?FUNCTION_NAME, #{replicas => 7}, Config),
    ok = weir_memcached:set(C, <<"k">>, <<"v">>),
    until(fun() -> values(<<"k">>, Config) =:= [<<"v">>, <<"v">>, <<"v">>] end).

%% What has become of what was there is the owner's alone, and the copy is gone; what was stored is in both, whatever
%% the condition was.
what_follows_what(Config) ->
    C = client(?FUNCTION_NAME, #{binary_keys => true}, Config),
    K = <<"k">>,
    Same = fun(Value) -> until(fun() -> values(K, Config) =:= [Value, Value] end) end,
    Alone = fun(Value) -> until(fun() -> values(K, Config) =:= [Value] end) end,
    Set = fun(Value) -> ok = weir_memcached:set(C, K, Value), Same(Value) end,
    ok = weir_memcached:add(C, K, <<"1">>),
    Same(<<"1">>),
    {error, not_stored} = weir_memcached:add(C, K, <<"2">>),
    Same(<<"1">>),
    {ok, 3} = weir_memcached:incr(C, K, 2),
    Alone(<<"3">>),
    Set(<<"4">>),
    {ok, 1} = weir_memcached:decr(C, K, 3),
    Alone(<<"1">>),
    Set(<<"1">>),
    ok = weir_memcached:append(C, K, <<"2">>),
    Alone(<<"12">>),
    Set(<<"1">>),
    ok = weir_memcached:prepend(C, K, <<"2">>),
    Alone(<<"21">>),
    Set(<<"1">>),
    ok = weir_memcached:replace(C, K, <<"r">>),
    Same(<<"r">>),
    Set(<<"1">>),
    {ok, <<"1">>, Cas} = weir_memcached:gets(C, K),
    ok = weir_memcached:cas(C, K, <<"c">>, Cas),
    Same(<<"c">>),
    Set(<<"1">>),
    {error, exists} = weir_memcached:cas(C, K, <<"d">>, Cas),
    Same(<<"1">>),
    %% Touched and got, both live; what is touched to its end is gone in both.
    ok = weir_memcached:touch(C, K, 1000),
    {ok, <<"1">>} = weir_memcached:gat(C, K, 1000),
    Same(<<"1">>),
    ok = weir_memcached:touch(C, K, -1),
    until(fun() -> values(K, Config) =:= [] end),
    Set(<<"1">>),
    ok = weir_memcached:invalidate(C, K, #{ttl => -1}),
    until(fun() -> values(K, Config) =:= [] end),
    Set(<<"1">>),
    %% The server has removed what was there, so it shall not come back from the copy.
    {error, {too_large, _}} = weir_memcached:set(C, K, binary:copy(<<"x">>, 2_000_000)),
    until(fun() -> values(K, Config) =:= [] end).

many(Config) ->
    C = client(?FUNCTION_NAME, #{}, Config),
    Items = maps:from_list([{integer_to_binary(N), integer_to_binary(N)} || N <- lists:seq(1, 100)]),
    ok = weir_memcached:set_many(C, Items),
    [until(fun() -> values(Key, Config) =:= [Key, Key] end) || Key <- maps:keys(Items)],
    Large = binary:copy(<<"x">>, 2_000_000),
    {error, {partial, Failed}} = weir_memcached:set_many(C, [{<<"1">>, Large}, {<<"2">>, <<"new">>}]),
    ?assertEqual([<<"1">>], maps:keys(Failed)),
    until(fun() -> values(<<"2">>, Config) =:= [<<"new">>, <<"new">>] end),
    until(fun() -> values(<<"1">>, Config) =:= [] end).

%% The write is done, and that the copy could not be made is counted.
copy_is_down(Config) ->
    C = client(?FUNCTION_NAME, #{replicas => 3}, Config),
    [Down | _] = [Server || Server <- servers(Config), Server =/= owner(C, <<"k">>, Config)],
    ok = weir_kit_memcached:kill(Down),
    until(fun() -> {error, {not_connected, [name(Down)]}} =:= weir_memcached:await(C, 0) end),
    ?assertEqual(ok, weir_memcached:set(C, <<"k">>, <<"v">>)),
    {ok, #{servers := Each}} = weir_memcached:info(C),
    ?assertMatch(#{unacknowledged := 1}, maps:get(name(Down), Each)),
    ?assertMatch({ok, #{<<"k">> := <<"v">>}}, weir_memcached:get_many(C, [<<"k">>])).

%% With `failover => next' the client asks the first copy, so the loss of one server loses no item.
owner_is_gone(Config) ->
    C = client(?FUNCTION_NAME, #{failover => next}, Config),
    Keys = [integer_to_binary(N) || N <- lists:seq(1, 50)],
    [ok = weir_memcached:set(C, Key, Key) || Key <- Keys],
    [until(fun() -> values(Key, Config) =:= [Key, Key] end) || Key <- Keys],
    Down = owner(C, <<"1">>, Config),
    ok = weir_kit_memcached:kill(Down),
    until(fun() -> {error, {not_connected, [name(Down)]}} =:= weir_memcached:await(C, 0) end),
    Answers = [{Key, weir_memcached:get(C, Key)} || Key <- Keys],
    weir_kit:none(lost, [Key || {Key, {error, not_found}} <- Answers]),
    ?assertEqual([{Key, {ok, Key}} || Key <- Keys], Answers),
    ?assertEqual({ok, maps:from_list([{Key, Key} || Key <- Keys])}, weir_memcached:get_many(C, Keys)).

fetched(Config) ->
    C = client(?FUNCTION_NAME, #{codec => term}, Config),
    {ok, v} = weir_memcached:fetch(C, <<"k">>, fun() -> {ok, v} end),
    Bytes = term_to_binary(v),
    until(fun() -> values(<<"k">>, Config) =:= [Bytes, Bytes] end).

%% Where a copy answers in the owner's place nothing follows: it would be done to what was just stored.
copy_stands_in(Config) ->
    C = client(?FUNCTION_NAME, #{failover => next}, Config),
    K = <<"k">>,
    Down = owner(C, K, Config),
    ok = weir_kit_memcached:kill(Down),
    until(fun() -> {error, {not_connected, [name(Down)]}} =:= weir_memcached:await(C, 0) end),
    ?assertEqual(ok, weir_memcached:set(C, K, <<"0">>)),
    ?assertEqual({ok, 1}, weir_memcached:incr(C, K, 1)),
    ?assertEqual({ok, <<"1">>}, weir_memcached:get(C, K)),
    Living = [Server || Server <- servers(Config), Server =/= Down],
    Sets = fun() -> lists:sum([weir_kit_memcached:stat(Server, <<"cmd_set">>) || Server <- Living]) end,
    {ok, <<"1">>, Cas} = weir_memcached:gets(C, K),
    Before = Sets(),
    ?assertEqual(ok, weir_memcached:cas(C, K, <<"2">>, Cas)),
    ?assertEqual(ok, weir_memcached:set_many(C, [{K, <<"3">>}])),
    ?assertEqual({ok, <<"3">>}, weir_memcached:get(C, K)),
    ?assertEqual(Before + 2, Sets()).

%% An owner that was restarted has nothing to delete: the copy is deleted all the same.
gone_from_the_owner(Config) ->
    C = client(?FUNCTION_NAME, #{}, Config),
    K = <<"k">>,
    [
        begin
            ok = weir_memcached:set(C, K, <<"old">>),
            until(fun() -> values(K, Config) =:= [<<"old">>, <<"old">>] end),
            <<"DELETED\r\n">> = weir_kit_memcached:raw(owner(C, K, Config), <<"delete k\r\n">>),
            ?assertEqual({error, not_found}, Gone(C, K)),
            until(fun() -> values(K, Config) =:= [] end)
        end
     || Gone <- [fun weir_memcached:delete/2, fun weir_memcached:invalidate/2]
    ].

%% Whether the owner stores it is not known: so the copy has nothing.
refused_without_a_reply(Config) ->
    C = client(?FUNCTION_NAME, #{}, Config),
    Owner = owner(C, <<"k">>, Config),
    <<"STORED\r\n">> = weir_kit_memcached:raw(Owner, <<"set k 0 0 3\r\nold\r\n">>),
    ok = weir_memcached:add(C, <<"k">>, <<"new">>, #{no_reply => true}),
    all_answered(C),
    ?assertEqual([<<"old">>], values(<<"k">>, Config)),
    <<"DELETED\r\n">> = weir_kit_memcached:raw(Owner, <<"delete k\r\n">>),
    ok = weir_memcached:replace(C, <<"k">>, <<"new">>, #{no_reply => true}),
    all_answered(C),
    ?assertEqual([], values(<<"k">>, Config)).

all_answered(C) ->
    until(fun() -> lists:all(fun(#{pending := N}) -> N =:= 0 end, weir_memcached_test:connections(C)) end).

%% So what one caller does is done on the copy in that order.
by_one_connection(Config) ->
    C = ?FUNCTION_NAME,
    Test = self(),
    Proxies = [
        weir_memcached_test_proxy:start(Server, fun(N, Way, Bytes) ->
            Way =:= to_server andalso binary:match(Bytes, <<" k">>) =/= nomatch andalso (Test ! {asked, I, N})
        end)
     || {I, Server} <- lists:zip([1, 2], lists:sublist(servers(Config), 2))
    ],
    {ok, _} = weir_memcached:start_link(C, #{
        servers => [maps:with([host, port], Proxy) || Proxy <- Proxies], replicas => 2, connections => 4, codec => raw,
        request_timeout => infinity
    }),
    ok = weir_memcached_test:up(C),
    Own = fun(Proxy) -> {ok, name(Proxy)} =:= weir_memcached:server_of(C, <<"k">>) end,
    [Owner] = [I || {I, Proxy} <- lists:zip([1, 2], Proxies), Own(Proxy)],
    [ok = weir_memcached:set(C, <<"k">>, integer_to_binary(N)) || N <- lists:seq(1, 20)],
    [ok = weir_memcached:set_many(C, [{<<"k">>, <<"v">>}, {<<"other">>, <<"v">>}]) || _ <- lists:seq(1, 5)],
    ok = weir_memcached:delete(C, <<"k">>),
    all_answered(C),
    ?assertMatch([_], lists:usort([N || {asked, I, N} <- weir_kit:take_messages(), I =/= Owner])),
    ok = weir_memcached:stop(C),
    [ok = weir_memcached_test_proxy:stop(Proxy) || Proxy <- Proxies].

options(_) ->
    ?assertEqual({error, {bad_option, replicas, 0}}, weir_memcached:start_link(?FUNCTION_NAME, #{replicas => 0})),
    {ok, _} = weir_memcached:start_link(?FUNCTION_NAME, #{port => 1}),
    [
        ?assertError({bad_option, hedge, Bad}, weir_memcached:get(?FUNCTION_NAME, <<"k">>, #{hedge => Bad}))
     || Bad <- [0, -1, p99, 1.5]
    ],
    ?assertError({bad_option, hedge, p95}, weir_memcached:set(?FUNCTION_NAME, <<"k">>, 1, #{hedge => p95})),
    ?assertEqual({error, disconnected}, weir_memcached:get(?FUNCTION_NAME, <<"k">>, #{hedge => 1})),
    ?assertEqual({error, disconnected}, weir_memcached:get(?FUNCTION_NAME, <<"k">>, #{hedge => off})).

%% ---------------------------------------------------------------- hedged gets, on servers that follow a script

%% A client of two scripts, one of which is that of a key's owner, and one that of its copy.
with(C, Owner, Copy, Case) ->
    Scripts = [A, B] = [weir_memcached_test_script:start([{serve, 1, fun first/1}, {wait, told}]) || _ <- [1, 2]],
    Handlers = ets:new(handlers, [public]),
    persistent_term:put(?MODULE, Handlers),
    Servers = [maps:with([host, port], weir_memcached_test_script:options(Script)) || Script <- Scripts],
    {ok, _} = weir_memcached:start_link(C, #{
        servers => Servers, protocol => text, connections => 1, codec => raw, replicas => 2,
        await => weir_kit:wait_ms(), request_timeout => infinity, stall_timeout => infinity
    }),
    {ok, Name} = weir_memcached:server_of(C, <<"k">>),
    Port = binary_to_integer(lists:last(binary:split(Name, <<":">>))),
    [OwnerPort, CopyPort] = [P || P <- [Port | [P || #{port := P} <- [A, B], P =/= Port]]],
    true = ets:insert(Handlers, [{OwnerPort, Owner}, {CopyPort, Copy}]),
    _ = Case(),
    ok = weir_memcached:stop(C),
    [ok = weir_memcached_test_script:stop(Script) || Script <- Scripts],
    _ = persistent_term:erase(?MODULE),
    true = ets:delete(Handlers),
    ok.

%% Waits for a request, and does then what the table says for its port.
first(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Request} ->
            {ok, Port} = inet:port(Socket),
            [{_, Do}] = ets:lookup(persistent_term:get(?MODULE), Port),
            _ = case Request of <<"get k\r\n">> -> Do(Socket); _ -> Do({Socket, Request}) end,
            first(Socket);
        {error, _} ->
            ok
    end.

says(Value) ->
    Size = integer_to_binary(byte_size(Value)),
    fun(Socket) -> gen_tcp:send(Socket, ["VALUE k 0 ", Size, "\r\n", Value, "\r\nEND\r\n"]) end.

has_none() -> fun(Socket) -> gen_tcp:send(Socket, "END\r\n") end.

silent() -> fun(_) -> ok end.

closes() -> fun gen_tcp:close/1.

%% Returns a step of a server that reports the request, and waits for the message `go'.
gated(Then) -> gated(it, Then).

gated(Who, Then) ->
    Test = self(),
    fun(Socket) ->
        Test ! {asked, Who, self()},
        receive go -> Then(Socket) end
    end.

asked() -> asked(it).

asked(Who) ->
    receive {asked, Who, Pid} -> Pid
    after weir_kit:wait_ms() -> error(not_asked)
    end.

get(C, Hedge) -> weir_memcached:get(C, <<"k">>, #{hedge => Hedge}).

hedge_wins(_) ->
    C = ?FUNCTION_NAME,
    with(C, silent(), says(<<"copy">>), fun() ->
        ?assertEqual({ok, <<"copy">>}, get(C, 1)),
        ?assertMatch(#{hedged := 1, hedges_won := 1}, weir_memcached_test:counters(C))
    end).

hedge_loses(_) ->
    C = ?FUNCTION_NAME,
    with(C, gated(says(<<"owner">>)), gated(silent()), fun() ->
        Caller = start(fun() -> get(C, 1) end),
        [Pid ! go || Pid <- [asked(), asked()]],
        ?assertEqual({ok, <<"owner">>}, result(Caller)),
        ?assertMatch(#{hedged := 1, hedges_won := 0}, weir_memcached_test:counters(C))
    end).

%% Not believed, but the owner's is.
miss_of_a_copy(_) ->
    C = ?FUNCTION_NAME,
    lists:foreach(
        fun({Then, Expected}) ->
            with(C, gated(Then), has_none(), fun() ->
                Caller = start(fun() -> get(C, 1) end),
                Owner = asked(),
                until(fun() -> maps:get(misses, weir_memcached_test:counters(C)) =:= 1 end),
                Owner ! go,
                ?assertEqual(Expected, result(Caller))
            end)
        end,
        [{says(<<"owner">>), {ok, <<"owner">>}}, {has_none(), {error, not_found}}]
    ).

error_of_a_copy(_) ->
    C = ?FUNCTION_NAME,
    with(C, gated(says(<<"owner">>)), closes(), fun() ->
        Caller = start(fun() -> get(C, 1) end),
        Owner = asked(),
        until(fun() -> maps:get(disconnects, weir_memcached_test:counters(C)) =:= 1 end),
        Owner ! go,
        ?assertEqual({ok, <<"owner">>}, result(Caller))
    end).

owner_lost(_) ->
    C = ?FUNCTION_NAME,
    with(C, gated(owner, closes()), gated(copy, says(<<"copy">>)), fun() ->
        Caller = start(fun() -> get(C, 1) end),
        Owner = asked(owner),
        Copy = asked(copy),
        Owner ! go,
        until(fun() -> maps:get(disconnects, weir_memcached_test:counters(C)) =:= 1 end),
        Copy ! go,
        ?assertEqual({ok, <<"copy">>}, result(Caller))
    end).

both_fail(_) ->
    C = ?FUNCTION_NAME,
    lists:foreach(
        fun(Copy) ->
            with(C, gated(closes()), gated(Copy), fun() ->
                Caller = start(fun() -> get(C, 1) end),
                [Pid ! go || Pid <- [asked(), asked()]],
                ?assertEqual({error, disconnected}, result(Caller))
            end)
        end,
        [closes(), has_none()]
    ),
    with(C, silent(), silent(), fun() ->
        ?assertEqual({error, timeout}, weir_memcached:get(C, <<"k">>, #{hedge => 1, timeout => 50}))
    end).

%% The second is not asked.
quick_enough(_) ->
    C = ?FUNCTION_NAME,
    with(C, says(<<"owner">>), fun(_) -> error(asked) end, fun() ->
        [?assertEqual({ok, <<"owner">>}, get(C, 60_000)) || _ <- lists:seq(1, 20)],
        ?assertMatch(#{hedged := 0}, weir_memcached_test:counters(C))
    end).

%% A server that has no memory for a value removes what was there.
no_memory(_) ->
    C = ?FUNCTION_NAME,
    Test = self(),
    Refuses = fun({Socket, <<"set k ", _/binary>>}) -> gen_tcp:send(Socket, "SERVER_ERROR out of memory\r\n") end,
    Tells = fun({_, Request}) -> Test ! {told, Request} end,
    with(C, Refuses, Tells, fun() ->
        ?assertEqual({error, {server_error, <<"out of memory">>}}, weir_memcached:set(C, <<"k">>, <<"v">>)),
        receive
            {told, Request} -> ?assertEqual(<<"delete k\r\n">>, Request)
        after weir_kit:wait_ms() -> error(not_told)
        end
    end).

%% A server that has just come back is not asked for a key that is not its own again.
returning_owner_is_not_hedged(Config) ->
    C = client(?FUNCTION_NAME, #{failover => next, return_over => 3_600_000}, Config),
    Owner = owner(C, <<"k">>, Config),
    ok = weir_kit_memcached:kill(Owner),
    until(fun() -> {error, {not_connected, [name(Owner)]}} =:= weir_memcached:await(C, 0) end),
    ok = weir_memcached:set(C, <<"k">>, <<"v">>),
    ok = weir_kit_memcached:restart(Owner),
    ok = weir_memcached:await(C, weir_kit:wait_ms()),
    ?assertEqual({ok, <<"v">>}, get(C, 60_000)).

%% One server: the other one of two connections.
another_connection(_) ->
    C = ?FUNCTION_NAME,
    Turn = atomics:new(1, []),
    Handler = fun(Socket) ->
        {ok, <<"get k\r\n">>} = gen_tcp:recv(Socket, 0),
        case atomics:add_get(Turn, 1, 1) of
            1 -> ok;
            _ -> (says(<<"v">>))(Socket)
        end,
        gen_tcp:recv(Socket, 0)
    end,
    Script = weir_memcached_test_script:start([{serve, 2, Handler}]),
    Options = weir_memcached_test_script:options(Script),
    {ok, _} = weir_memcached:start_link(C, Options#{connections => 2, codec => raw, await => weir_kit:wait_ms()}),
    weir_memcached_test:up(C),
    ?assertEqual({ok, <<"v">>}, get(C, 1)),
    ok = weir_memcached:stop(C),
    ok = weir_memcached_test_script:stop(Script).

%% One server and one connection: there is nobody to ask.
no_other_connection(_) ->
    C = ?FUNCTION_NAME,
    Script = weir_memcached_test_script:start([accept, {expect, "get k\r\n"}, {wait, late}, {send, "END\r\n"}]),
    Options = weir_memcached_test_script:options(Script),
    {ok, _} = weir_memcached:start_link(C, Options#{connections => 1, codec => raw, await => weir_kit:wait_ms()}),
    Caller = start(fun() -> get(C, 1) end),
    until(fun() -> maps:get(hedged, weir_memcached_test:counters(C)) =:= 1 end),
    weir_memcached_test_script:release(Script, late),
    ?assertEqual({error, not_found}, result(Caller)),
    ok = weir_memcached:stop(C),
    ok = weir_memcached_test_script:stop(Script).

%% Not before a hundred were answered; then the bound in which 95 of them were.
percentile(_) ->
    Latency = weir_memcached_latency:new(),
    ?assertEqual(unknown, weir_memcached_latency:percentile(95, Latency)),
    ok = weir_memcached_latency:add(150, 94, Latency),
    ok = weir_memcached_latency:add(5_000_001, 5, Latency),
    ?assertEqual(unknown, weir_memcached_latency:percentile(95, Latency)),
    ok = weir_memcached_latency:add(4000, 1, Latency),
    ?assertEqual(200, weir_memcached_latency:percentile(94, Latency)),
    ?assertEqual(5000, weir_memcached_latency:percentile(95, Latency)),
    ?assertEqual(5_000_000, weir_memcached_latency:percentile(96, Latency)),
    {Sum, Counts} = weir_memcached_latency:read(Latency),
    ?assertEqual({94 * 150 + 5 * 5_000_001 + 4000, 100, 5}, {Sum, lists:sum(Counts), lists:last(Counts)}),
    C = ?FUNCTION_NAME,
    with(C, says(<<"owner">>), silent(), fun() ->
        [?assertEqual({ok, <<"owner">>}, get(C, p95)) || _ <- lists:seq(1, 300)]
    end).

%% The second of two answers reaches no process.
late_answers(_) ->
    C = ?FUNCTION_NAME,
    with(C, gated(says(<<"owner">>)), says(<<"copy">>), fun() ->
        Test = self(),
        {Pid, _} = Asking = start(fun() ->
            Test ! {got, get(C, 1)},
            receive answered -> weir_kit:none(stray_messages, weir_kit:messages()) end
        end),
        Owner = asked(),
        receive {got, Result} -> ?assertEqual({ok, <<"copy">>}, Result) end,
        Owner ! go,
        all_answered(C),
        Pid ! answered,
        ok = result(Asking)
    end).
