%% What the meta protocol adds, on a real memcached: what is known of an item, keys of any bytes, leases; namespaces and
%% long keys; requests without a reply.
-module(weir_memcached_meta_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(weir_memcached_scripted_SUITE, [with/4]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> [{server, weir_kit_memcached:start()} | weir_memcached_test:set_up(weir_memcached, Config)].

end_per_suite(Config) ->
    weir_kit_memcached:stop(proplists:get_value(server, Config)),
    weir_memcached_test:tear_down(Config).

client(Name, Config) -> client(Name, Config, #{}).

client(Name, Config, Options) ->
    Address = weir_memcached_test:options(proplists:get_value(server, Config)),
    {ok, _} = weir_memcached:start_link(Name, maps:merge(Address#{await => weir_kit:wait_ms()}, Options)),
    ok = weir_memcached:flush_all(Name),
    Name.

%% All that there is to know.
item(Config) ->
    C = client(?FUNCTION_NAME, Config),
    ?assertEqual({error, not_found}, weir_memcached:item(C, <<"k">>)),
    ok = weir_memcached:set(C, <<"k">>, {a, b}, #{ttl => 1000, flags => 5}),
    {ok, Item} = weir_memcached:item(C, <<"k">>, #{timeout => 50_000}),
    Size = byte_size(term_to_binary({a, b})),
    ?assertMatch(
        #{value := {a, b}, flags := 5, size := Size, hit_before := false, stale := false, leased := false}, Item
    ),
    #{ttl := Ttl, last_access := Access, cas := Cas} = Item,
    ?assert(Ttl > 900 andalso Ttl =< 1000 andalso Access < 60),
    ?assertEqual({ok, {a, b}, Cas}, weir_memcached:gets(C, <<"k">>)),
    ?assertMatch({ok, #{hit_before := true}}, weir_memcached:item(C, <<"k">>)),
    ok = weir_memcached:set(C, <<"forever">>, 1),
    ?assertMatch({ok, #{ttl := infinity, flags := 0}}, weir_memcached:item(C, <<"forever">>)),
    ok = weir_memcached:set(C, <<"raw">>, <<"bytes">>, #{codec => raw}),
    ?assertMatch({ok, #{value := <<"bytes">>}}, weir_memcached:item(C, <<"raw">>, [{codec, raw}])),
    ?assertMatch({error, {undecodable, <<"bytes">>}}, weir_memcached:item(C, <<"raw">>)),
    ok = weir_memcached:stop(C).

%% Whoever gets it gets the old value; who asks what is known is told that it is stale.
invalidate(Config) ->
    C = client(?FUNCTION_NAME, Config),
    ?assertEqual({error, not_found}, weir_memcached:invalidate(C, <<"k">>)),
    ok = weir_memcached:set(C, <<"k">>, old),
    {ok, old, Cas} = weir_memcached:gets(C, <<"k">>),
    ok = weir_memcached:invalidate(C, <<"k">>, #{ttl => 500}),
    ?assertMatch({ok, old}, weir_memcached:get(C, <<"k">>)),
    ?assertEqual({error, exists}, weir_memcached:cas(C, <<"k">>, newer, Cas)),
    {ok, Item} = weir_memcached:item(C, <<"k">>),
    ?assertMatch(#{value := old, stale := true, leased := false, ttl := Ttl} when Ttl > 400, Item),
    ok = weir_memcached:set(C, <<"k">>, new),
    ?assertMatch({ok, #{value := new, stale := false, leased := false}}, weir_memcached:item(C, <<"k">>)),
    ok = weir_memcached:invalidate(C, <<"k">>),
    ?assertMatch({ok, #{ttl := Ttl}} when Ttl =< 60, weir_memcached:item(C, <<"k">>)),
    ok = weir_memcached:stop(C).

debug(Config) ->
    C = client(?FUNCTION_NAME, Config, #{binary_keys => true}),
    ?assertEqual({error, not_found}, weir_memcached:debug(C, <<"k">>)),
    [ok = weir_memcached:set(C, Key, 1) || Key <- [<<"k">>, <<0, 1>>]],
    ?assertMatch({ok, #{<<"exp">> := <<"-1">>, <<"cas">> := _}}, weir_memcached:debug(C, <<"k">>)),
    %% memcached 1.6.45 does not find such a key, whoever asks.
    Found = weir_memcached:debug(C, <<0, 1>>, #{timeout => 50_000}),
    case raw("me AAE= b\r\n", Config) of
        <<"ME ", _/binary>> -> ?assertMatch({ok, #{<<"exp">> := <<"-1">>}}, Found);
        <<"EN\r\n">> -> ?assertEqual({error, not_found}, Found)
    end,
    ok = weir_memcached:stop(C).

%% What the server says, asked without the client.
raw(Line, Config) ->
    #{host := Host, port := Port} = weir_memcached_test:options(proplists:get_value(server, Config)),
    {ok, Socket} = gen_tcp:connect(Host, Port, [binary, {active, false}, {packet, line}]),
    ok = gen_tcp:send(Socket, Line),
    {ok, Answer} = gen_tcp:recv(Socket, 0),
    ok = gen_tcp:close(Socket),
    Answer.

%% Every operation on keys that text cannot carry, and on one that it can, in the same client.
binary_keys(Config) ->
    C = client(?FUNCTION_NAME, Config, #{binary_keys => true, codec => raw}),
    lists:foreach(
        fun(Key) ->
            ?assertEqual({error, not_found}, weir_memcached:get(C, Key)),
            ?assertEqual({error, not_found}, weir_memcached:gets(C, Key)),
            ?assertEqual({error, not_found}, weir_memcached:gat(C, Key, 100)),
            ?assertEqual({error, not_found}, weir_memcached:touch(C, Key, 100)),
            ?assertEqual({error, not_found}, weir_memcached:delete(C, Key)),
            ?assertEqual({error, not_found}, weir_memcached:incr(C, Key, 1)),
            ?assertEqual({error, not_found}, weir_memcached:cas(C, Key, <<"x">>, 1)),
            ?assertEqual({error, not_stored}, weir_memcached:replace(C, Key, <<"x">>)),
            ?assertEqual({error, not_stored}, weir_memcached:append(C, Key, <<"x">>)),
            ?assertEqual({error, not_stored}, weir_memcached:prepend(C, Key, <<"x">>)),
            ?assertEqual(ok, weir_memcached:add(C, Key, <<"b">>, #{flags => 3})),
            ?assertEqual({error, not_stored}, weir_memcached:add(C, Key, <<"c">>)),
            ?assertEqual(ok, weir_memcached:append(C, Key, <<"c">>)),
            ?assertEqual(ok, weir_memcached:prepend(C, Key, <<"a">>)),
            ?assertMatch({ok, #{value := <<"abc">>, flags := 3}}, weir_memcached:item(C, Key)),
            {ok, <<"abc">>, Cas} = weir_memcached:gets(C, Key),
            ?assertEqual(ok, weir_memcached:cas(C, Key, <<"7">>, Cas, #{ttl => 1000})),
            ?assertEqual({error, exists}, weir_memcached:cas(C, Key, <<"8">>, Cas)),
            ?assertEqual({ok, 10}, weir_memcached:incr(C, Key, 3)),
            ?assertEqual({ok, 0}, weir_memcached:decr(C, Key, 11)),
            ?assertEqual(ok, weir_memcached:replace(C, Key, <<"r">>)),
            ?assertMatch({error, {client_error, _}}, weir_memcached:incr(C, Key, 1)),
            ?assertEqual(ok, weir_memcached:touch(C, Key, 900)),
            ?assertMatch({ok, #{ttl := Ttl}} when Ttl > 800, weir_memcached:item(C, Key)),
            ?assertEqual({ok, <<"r">>}, weir_memcached:gat(C, Key, 0)),
            ?assertMatch({ok, #{ttl := infinity}}, weir_memcached:item(C, Key)),
            ?assertEqual(ok, weir_memcached:set(C, Key, <<>>, #{flags => 16#FFFFFFFF})),
            ?assertEqual({ok, <<>>}, weir_memcached:get(C, Key)),
            ?assertEqual(ok, weir_memcached:set(C, Key, <<"large">>)),
            ?assertEqual({error, {too_large, 2_000_000}}, weir_memcached:set(C, Key, <<0:16_000_000>>)),
            ?assertEqual({error, not_found}, weir_memcached:get(C, Key)),
            ?assertEqual(ok, weir_memcached:set(C, Key, <<"last">>)),
            ?assertEqual({ok, <<"last">>}, weir_memcached:get(C, Key)),
            ?assertEqual(ok, weir_memcached:delete(C, Key))
        end,
        [<<"text">>, <<" ">>, <<"a b">>, <<"\r\n">>, <<0>>, <<255, 0, 127>>, "li st", binary:copy(<<0>>, 186)]
    ),
    ?assertEqual({error, {bad_key, binary:copy(<<0>>, 187)}}, weir_memcached:get(C, binary:copy(<<0>>, 187))),
    ?assertEqual({error, {bad_key, <<>>}}, weir_memcached:get(C, <<>>)),
    ?assertMatch(#{disconnects := 0, garbage := 0}, weir_memcached_test:counters(C)),
    ok = weir_memcached:stop(C).

many_binary_keys(Config) ->
    C = client(?FUNCTION_NAME, Config, #{binary_keys => true}),
    Many = maps:from_list([{<<N:16>>, N} || N <- lists:seq(1, 3000)]),
    ok = weir_memcached:set_many(C, Many#{<<"text">> => text}, #{ttl => 100}),
    Keys = [<<N:16>> || N <- lists:seq(0, 3001)],
    ?assertEqual({ok, Many#{<<"text">> => text}}, weir_memcached:get_many(C, [<<"text">> | Keys])),
    ?assertEqual({ok, #{<<1:16>> => 1, [0, 1] => 1}}, weir_memcached:get_many(C, [<<1:16>>, [0, 1], <<0, 0>>])),
    ?assertEqual({ok, #{}}, weir_memcached:get_many(C, [<<0, 0>>])),
    Large = binary:copy(<<"x">>, 2_000_000),
    ?assertMatch(
        {error, {partial, #{<<2:16>> := {too_large, _}} = Failed}} when map_size(Failed) =:= 1,
        weir_memcached:set_many(C, [{<<1:16>>, one}, {<<2:16>>, Large}, {<<3:16>>, three}])
    ),
    ?assertEqual({ok, #{<<1:16>> => one, <<3:16>> => three}}, weir_memcached:get_many(C, [<<N:16>> || N <- [1, 2, 3]])),
    ?assertMatch(#{disconnects := 0, garbage := 0}, weir_memcached_test:counters(C)),
    ok = weir_memcached:stop(C).

binary_and_long(Config) ->
    C = client(?FUNCTION_NAME, Config, #{binary_keys => true, hash_long_keys => true, namespace => <<"n:">>}),
    Keys = [binary:copy(<<0>>, N) || N <- [1, 184, 185, 1000]] ++ [binary:copy(<<"k">>, N) || N <- [1, 248, 249, 1000]],
    [?assertEqual(ok, weir_memcached:set(C, Key, byte_size(Key))) || Key <- Keys],
    [?assertEqual({ok, byte_size(Key)}, weir_memcached:get(C, Key)) || Key <- Keys],
    ?assertEqual({ok, maps:from_list([{Key, byte_size(Key)} || Key <- Keys])}, weir_memcached:get_many(C, Keys)),
    ok = weir_memcached:stop(C).

%% A client that speaks text alone says what it cannot do.
text_server(Config) ->
    C = client(?FUNCTION_NAME, Config, #{protocol => text}),
    ok = weir_memcached:set(C, <<"k">>, 1),
    [
        ?assertEqual({error, unsupported}, Ask())
     || Ask <- [
            fun() -> weir_memcached:item(C, <<"k">>) end,
            fun() -> weir_memcached:invalidate(C, <<"k">>) end,
            fun() -> weir_memcached:debug(C, <<"k">>) end
        ]
    ],
    ?assertEqual({ok, 1}, weir_memcached:get(C, <<"k">>)),
    ok = weir_memcached:stop(C),
    ?assertEqual(
        {error, {contradicting_options, {binary_keys, true}, {protocol, text}}},
        weir_memcached:start_link(C, #{protocol => text, binary_keys => true})
    ).

%% The server speaks the meta protocol, and is replaced by one that does not: what callers write for the one is not sent
%% to the other.
replaced_by_an_older_one(_) ->
    C = ?FUNCTION_NAME,
    Version = fun(V) -> [accept, {expect, "version\r\n"}, {send, ["VERSION ", V, "\r\n"]}] end,
    Script = Version("1.6.10") ++ [{expect, "me k\r\n"}, {send, "EN\r\n"}, {wait, asked}, close] ++ Version("1.6.9") ++
        [{expect, "get k\r\n"}, {send, "END\r\n"}],
    with(C, #{protocol => auto}, Script, fun(Server) ->
        ?assertEqual({error, not_found}, weir_memcached:debug(C, <<"k">>)),
        [#{pid := Conn}] = weir_memcached_test:connections(C),
        weir_memcached_test_script:release(Server, asked),
        weir_kit:until(fun() -> maps:get(connects, weir_memcached_test:counters(C)) =:= 2 end),
        weir_memcached_test:up(C),
        ?assertEqual({error, unsupported}, weir_memcached:debug(C, <<"k">>)),
        %% As written by who has read before what the server speaks.
        Meta = weir_memcached_request:encode(meta, {debug, <<"k">>}),
        ?assertEqual({speaks, text}, weir_memcached_conn:request(Conn, Meta, infinity)),
        ?assertEqual({error, not_found}, weir_memcached:get(C, <<"k">>))
    end).

%% Two clients with different ones see nothing of each other.
namespace(Config) ->
    A = client(namespace_a, Config, #{namespace => <<"a:">>}),
    B = client(namespace_b, Config, #{namespace => <<"b:">>}),
    None = client(namespace_none, Config),
    [ok = weir_memcached:set(C, <<"k">>, C) || C <- [A, B, None]],
    [?assertEqual({ok, C}, weir_memcached:get(C, <<"k">>)) || C <- [A, B, None]],
    ?assertEqual({ok, #{<<"a:k">> => A, <<"b:k">> => B}}, weir_memcached:get_many(None, [<<"a:k">>, <<"b:k">>])),
    Key = binary:copy(<<"k">>, 248),
    ?assertEqual(ok, weir_memcached:set(A, Key, 1)),
    ?assertEqual({error, {bad_key, <<Key/binary, "k">>}}, weir_memcached:set(A, <<Key/binary, "k">>, 1)),
    [ok = weir_memcached:stop(C) || C <- [A, B, None]],
    [
        ?assertEqual({error, {bad_option, namespace, Bad}}, weir_memcached:start_link(A, #{namespace => Bad}))
     || Bad <- [<<"a b">>, "list", binary:copy(<<"n">>, 101), <<0>>]
    ].

long_keys(Config) ->
    C = client(?FUNCTION_NAME, Config, #{hash_long_keys => true}),
    Keys = [binary:copy(<<"k">>, N) || N <- [249, 250, 251, 252, 100_000]],
    [ok = weir_memcached:set(C, Key, byte_size(Key)) || Key <- Keys],
    [?assertEqual({ok, byte_size(Key)}, weir_memcached:get(C, Key)) || Key <- Keys],
    ?assertMatch({error, {bad_key, _}}, weir_memcached:get(C, [binary:copy(<<"k">>, 251), " "])),
    ok = weir_memcached:stop(C).

%% It is stored, sooner or later, and the order of one process is kept on one connection.
no_reply(Config) ->
    C = client(?FUNCTION_NAME, Config, #{connections => 1, codec => raw}),
    [ok = weir_memcached:set(C, <<"k">>, integer_to_binary(N), #{no_reply => true}) || N <- lists:seq(1, 1000)],
    ?assertEqual({ok, <<"1000">>}, weir_memcached:get(C, <<"k">>)),
    ok = weir_memcached:append(C, <<"k">>, <<"0">>, #{no_reply => true}),
    ok = weir_memcached:touch(C, <<"k">>, 1000, #{no_reply => true}),
    ?assertMatch({ok, #{value := <<"10000">>, ttl := Ttl}} when is_integer(Ttl), weir_memcached:item(C, <<"k">>)),
    ok = weir_memcached:delete(C, <<"k">>, [{no_reply, true}]),
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<"k">>)),
    ?assertMatch(#{unacknowledged := 0}, weir_memcached_test:counters(C)),
    ok = weir_memcached:stop(C).

%% What fails is counted once: refused by the server, too late, or lost with the connection. What is not taken is told.
no_reply_fails(_) ->
    C = ?FUNCTION_NAME,
    Script = [
        accept, {expect, "delete a\r\n"}, {send, "NOT_FOUND\r\n"},
        {expect, "delete b\r\n"}, {wait, late}, {send, "DELETED\r\n"},
        {expect, "delete c\r\n"}, close,
        accept, {expect, "delete d\r\n"}, {send, "DELETED\r\n"}
    ],
    with(C, #{}, Script, fun(Server) ->
        Delete = fun(Key, Timeout) -> weir_memcached:delete(C, Key, #{no_reply => true, timeout => Timeout}) end,
        Failed = fun(N) ->
            weir_kit:until(fun() -> maps:get(unacknowledged, weir_memcached_test:counters(C)) =:= N end)
        end,
        ?assertEqual(ok, Delete(<<"a">>, infinity)),
        Failed(1),
        %% Until one has been sent: what is late before that is counted as well.
        Late = (fun Late(N) ->
            ?assertEqual(ok, Delete(<<"b">>, 100)),
            Failed(1 + N),
            case weir_memcached_test:counters(C) of
                #{requests := 2} -> N;
                #{requests := 1} -> Late(N + 1)
            end
        end)(1),
        weir_memcached_test_script:release(Server, late),
        ?assertEqual(ok, Delete(<<"c">>, infinity)),
        Failed(2 + Late),
        weir_kit:until(fun() -> Delete(<<"d">>, infinity) =:= ok end),
        weir_memcached_test_script:drained(Server),
        self() ! {maps:get(pid, Server), drained},
        #{unacknowledged := Unacknowledged, timeouts := Timeouts, disconnected := Lost} =
            weir_memcached_test:counters(C),
        ?assertEqual({2 + Late, Late, 1}, {Unacknowledged, Timeouts, Lost})
    end).

%% As many as there may be unanswered, and not one more.
no_reply_is_bounded(_) ->
    C = ?FUNCTION_NAME,
    with(C, #{max_pending => 5}, [accept, {wait, seen}], fun(Server) ->
        Results = [weir_memcached:delete(C, <<"k">>, #{no_reply => true, timeout => infinity}) || _ <- lists:seq(1, 7)],
        ?assertEqual([ok, ok, ok, ok, ok, {error, busy}, {error, busy}], Results),
        weir_memcached_test_script:release(Server, seen)
    end).

%% With a codec that makes some bytes of every value an item without bytes is none.
empty_items(Config) ->
    C = client(?FUNCTION_NAME, Config),
    [ok = weir_memcached:set(C, Key, <<>>, #{codec => raw}) || Key <- [<<"a">>, <<"b">>]],
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<"a">>)),
    ?assertEqual({error, not_found}, weir_memcached:gets(C, <<"a">>)),
    ?assertEqual({error, not_found}, weir_memcached:item(C, <<"a">>)),
    ?assertEqual({ok, #{}}, weir_memcached:get_many(C, [<<"a">>, <<"b">>])),
    ?assertEqual({ok, <<>>}, weir_memcached:get(C, <<"a">>, #{codec => raw})),
    ok = weir_memcached:stop(C).

%% What the server keeps for who computes a value.
a_lease_is_no_value(Config) ->
    C = client(?FUNCTION_NAME, Config, #{binary_keys => true}),
    Server = proplists:get_value(server, Config),
    ?assertMatch(<<"VA 0", _/binary>>, weir_kit_memcached:raw(Server, <<"mg AA== b v N100\r\n">>)),
    ?assertMatch(<<"VA 0", _/binary>>, weir_kit_memcached:raw(Server, <<"mg k v N100\r\n">>)),
    [
        begin
            ?assertEqual({error, not_found}, weir_memcached:get(C, Key)),
            ?assertEqual({error, not_found}, weir_memcached:item(C, Key)),
            ?assertEqual({ok, #{}}, weir_memcached:get_many(C, [Key]))
        end
     || Key <- [<<0>>, <<"k">>]
    ],
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<0>>, #{codec => raw})),
    ?assertEqual({ok, #{}}, weir_memcached:get_many(C, [<<0>>], #{codec => raw})),
    ok = weir_memcached:stop(C).

%% What a connection asks before it is up, and what it makes of the answer.
versions_on_the_wire(_) ->
    C = ?FUNCTION_NAME,
    [
        begin
            Script = [accept, {expect, "version\r\n"}, {send, ["VERSION ", Version, "\r\n"]}] ++
                [{expect, "me k\r\n"} || IsMeta] ++ [{send, "EN\r\n"} || IsMeta],
            with(C, #{protocol => auto}, Script, fun(_) ->
                Expected = case IsMeta of true -> not_found; false -> unsupported end,
                ?assertEqual({error, Expected}, weir_memcached:debug(C, <<"k">>))
            end)
        end
     || {Version, IsMeta} <- [{"1.6.45", true}, {"1.6.9", false}, {"1.4.0", false}, {"mcrouter 38", false}]
    ],
    %% One that says something else is no memcached, or is in no state to serve.
    [
        begin
            Script = [accept, {expect, "version\r\n"}] ++ Steps ++ [accept, {expect, "version\r\n"}, {wait, seen}],
            Server = weir_memcached_test_script:start(Script),
            Options = (weir_memcached_test_script:options(Server))#{
                protocol => auto, connect_timeout => case Expected of timeout -> 300; _ -> weir_kit:wait_ms() end
            },
            {ok, _} = weir_memcached:start_link(C, Options#{connections => 1, reconnect => {1, 1}}),
            Reason = fun() -> [maps:get(reason, Conn, none) || Conn <- weir_memcached_test:connections(C)] end,
            weir_kit:until(fun() -> Reason() =:= [Expected] end),
            ?assertEqual({error, disconnected}, weir_memcached:get(C, <<"k">>)),
            ok = weir_memcached:stop(C),
            ok = weir_memcached_test_script:stop(Server)
        end
     || {Steps, Expected} <- [
            {[{send, "ERROR\r\n"}], {no_version, <<"ERROR">>}},
            {[{send, "SSH-2.0\r\nmore"}], {garbage, <<"SSH-2.0">>}},
            {[{send, "CLIENT_ERROR unauthenticated\r\n"}], {not_logged_in, <<"CLIENT_ERROR unauthenticated">>}},
            {[close], closed},
            {[], timeout}
        ]
    ].

%% Up to that one a server repeats nothing of a request that finds no item.
misses_of_1_6_14(_) ->
    C = ?FUNCTION_NAME,
    Server = weir_memcached_test_script:start([{serve, 1, fun(Socket) -> without_items("1.6.14", Socket) end}]),
    Options = (weir_memcached_test_script:options(Server))#{protocol => auto, connections => 1, binary_keys => true},
    {ok, _} = weir_memcached:start_link(C, Options#{await => weir_kit:wait_ms()}),
    ?assertEqual({error, not_found}, weir_memcached:item(C, <<"k">>)),
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<0>>)),
    ?assertEqual({error, not_found}, weir_memcached:gat(C, <<0>>, 1)),
    ?assertEqual({error, not_found}, weir_memcached:touch(C, <<0>>, 1)),
    ?assertEqual({error, not_found}, weir_memcached:debug(C, <<0>>)),
    ?assertMatch(#{disconnects := 0, garbage := 0, misses := 3}, weir_memcached_test:counters(C)),
    ok = weir_memcached:stop(C),
    ok = weir_memcached_test_script:stop(Server).

without_items(Version, Socket) ->
    ok = inet:setopts(Socket, [{packet, line}]),
    case gen_tcp:recv(Socket, 0) of
        {ok, <<"version\r\n">>} ->
            ok = gen_tcp:send(Socket, ["VERSION ", Version, "\r\n"]),
            without_items(Version, Socket);
        {ok, <<"m", _/binary>>} ->
            ok = gen_tcp:send(Socket, "EN\r\n"),
            without_items(Version, Socket);
        {error, closed} ->
            ok
    end.

hits_and_misses(Config) ->
    C = client(?FUNCTION_NAME, Config, #{binary_keys => true}),
    Keys = [<<"a">>, <<"b">>, <<0>>, <<1>>],
    [ok = weir_memcached:set(C, Key, 1) || Key <- [<<"a">>, <<0>>]],
    _ = [weir_memcached:get(C, Key) || Key <- Keys],
    {ok, _} = weir_memcached:get_many(C, Keys),
    {ok, _} = weir_memcached:get_many(C, [<<"a">>, <<"b">>]),
    _ = [weir_memcached:item(C, Key) || Key <- Keys],
    _ = [weir_memcached:gat(C, Key, 0) || Key <- Keys],
    ?assertMatch(#{hits := 9, misses := 9}, weir_memcached_test:counters(C)),
    ok = weir_memcached:stop(C).

%% Every request that was answered is in the histogram, once, also when nobody waits for it any more.
latency(Config) ->
    C = client(?FUNCTION_NAME, Config, #{connections => 2}),
    _ = weir_kit:in_parallel([
        fun() -> [ok = weir_memcached:set(C, <<"k">>, N) || _ <- lists:seq(1, 100)] end || N <- lists:seq(1, 20)
    ]),
    {ok, #{servers := Servers, requests := Requests}} = weir_memcached:info(C),
    [#{latency := #{sum_us := Sum, bounds_us := Bounds, counts := Counts}}] = maps:values(Servers),
    ?assertEqual({2001, 2001}, {Requests, lists:sum(Counts)}),
    ?assertEqual(length(Bounds) + 1, length(Counts)),
    ?assert(Sum > 0),
    ok = weir_memcached:stop(C).
