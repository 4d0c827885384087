%% The client against a real memcached. What a real one does rarely is in weir_memcached_scripted_SUITE.
-module(weir_memcached_server_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() ->
    [{group, tcp}, {group, local}, {group, inet6}, {group, binary}, {group, values}, {group, limits}, {group, life}].

%% Every operation, over each kind of address; the rest over one.
groups() ->
    Operations = [
        store, conditional_store, compare_and_swap, append_and_prepend, arithmetic, touch_and_gat, delete, many,
        server_commands, any_byte, large_values_among_small
    ],
    [
        {tcp, Operations},
        {local, Operations},
        {inet6, Operations},
        {binary, Operations ++ [expiry, flush_with_delay, flags, keys, item_limit, larger_items, get_many_thousands,
            get_many_mixed_keys, set_many_partial, many_callers, killed_callers, restart_under_load]},
        {values, [
            expiry, flush_with_delay, flags, codec_term, codec_raw, codec_module, codec_per_request, keys, bad_keys,
            bad_arguments, ttl_bounds, timeout_bounds, request_options
        ]},
        {limits, [
            item_limit, append_over_the_item_limit, larger_items, get_many_thousands, get_many_mixed_keys,
            set_many_partial, set_many_undone
        ]},
        {life, [
            many_callers, killed_callers, restart_under_load, started_before_the_server, under_a_supervisor,
            stop_answers_everybody, bad_options, keyword_lists, name_taken, unknown_client, info, several_clients
        ]}
    ].

init_per_suite(Config) -> weir_memcached_test:set_up(weir_memcached, Config).

end_per_suite(Config) -> weir_memcached_test:tear_down(Config).

init_per_group(inet6, Config) ->
    case gen_tcp:listen(0, [inet6, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}]) of
        {ok, Listener} ->
            ok = gen_tcp:close(Listener),
            with_server(#{host => {0, 0, 0, 0, 0, 0, 0, 1}}, Config);
        {error, _} ->
            {skip, "there is no ::1 on this machine"}
    end;
init_per_group(local, Config) ->
    %% not in the log directory: a socket's path may have 107 bytes
    Path = filename:join("/tmp", "weir_memcached." ++ os:getpid()),
    with_server(#{host => {local, Path}}, Config);
init_per_group(binary, Config) ->
    [{options, #{protocol => binary}} | with_server(#{}, Config)];
init_per_group(_, Config) ->
    with_server(#{}, Config).

end_per_group(_, Config) ->
    #{host := Host} = Server = ?config(server, Config),
    weir_kit_memcached:stop(Server),
    case Host of
        {local, Path} -> ok = file:delete(Path);
        _ -> ok
    end.

with_server(Options, Config) ->
    [{server, weir_kit_memcached:start(Options)} | Config].

%% A client of the group's server, all its connections up, nothing stored. It ends with the case.
client(Name, Config) ->
    client(Name, Config, #{}).

client(Name, Config, Options) ->
    Address = weir_memcached_test:options(?config(server, Config)),
    Protocol = proplists:get_value(options, Config, #{}),
    {ok, _} = weir_memcached:start_link(Name, maps:merge(maps:merge(Address, Protocol), Options)),
    ok = weir_memcached_test:up(Name),
    ok = weir_memcached:flush_all(Name),
    Name.

%% Every operation

%% A value is there after set, whatever was there before.
store(Config) ->
    C = client(?FUNCTION_NAME, Config),
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<"k">>)),
    ?assertEqual(ok, weir_memcached:set(C, <<"k">>, one)),
    ?assertEqual({ok, one}, weir_memcached:get(C, <<"k">>)),
    ?assertEqual(ok, weir_memcached:set(C, <<"k">>, {two, [2]}, #{ttl => 100, flags => 7, timeout => infinity})),
    ?assertEqual({ok, {two, [2]}}, weir_memcached:get(C, <<"k">>, #{timeout => 50_000})).

%% add stores what is not there, replace what is.
conditional_store(Config) ->
    C = client(?FUNCTION_NAME, Config),
    ?assertEqual({error, not_stored}, weir_memcached:replace(C, <<"k">>, 0)),
    ?assertEqual(ok, weir_memcached:add(C, <<"k">>, 1)),
    ?assertEqual({error, not_stored}, weir_memcached:add(C, <<"k">>, 2, #{ttl => 100})),
    ?assertEqual({ok, 1}, weir_memcached:get(C, <<"k">>)),
    ?assertEqual(ok, weir_memcached:replace(C, <<"k">>, 3, #{flags => 1})),
    ?assertEqual({ok, 3}, weir_memcached:get(C, <<"k">>)).

%% cas stores over the version that gets gave, and over no other.
compare_and_swap(Config) ->
    C = client(?FUNCTION_NAME, Config),
    ?assertEqual({error, not_found}, weir_memcached:gets(C, <<"k">>)),
    ?assertEqual({error, not_found}, weir_memcached:cas(C, <<"k">>, x, 1)),
    ok = weir_memcached:set(C, <<"k">>, one),
    {ok, one, Cas} = weir_memcached:gets(C, <<"k">>),
    ?assertEqual(ok, weir_memcached:cas(C, <<"k">>, two, Cas, #{ttl => 0})),
    ?assertEqual({error, exists}, weir_memcached:cas(C, <<"k">>, three, Cas)),
    ?assertMatch({ok, two, Cas2} when Cas2 =/= Cas, weir_memcached:gets(C, <<"k">>, #{timeout => 50_000})),
    %% the greatest unique number there is
    ?assertEqual({error, exists}, weir_memcached:cas(C, <<"k">>, three, 16#FFFFFFFFFFFFFFFF)).

%% append and prepend add bytes to an item that exists.
append_and_prepend(Config) ->
    C = client(?FUNCTION_NAME, Config, #{codec => raw}),
    ?assertEqual({error, not_stored}, weir_memcached:append(C, <<"k">>, <<"x">>)),
    ?assertEqual({error, not_stored}, weir_memcached:prepend(C, <<"k">>, <<"x">>)),
    ok = weir_memcached:set(C, <<"k">>, <<"b">>),
    ?assertEqual(ok, weir_memcached:append(C, <<"k">>, ["c", $d, <<"\r\n">>], #{timeout => 50_000})),
    ?assertEqual(ok, weir_memcached:prepend(C, <<"k">>, <<"a">>, #{timeout => 50_000})),
    ?assertEqual(ok, weir_memcached:append(C, <<"k">>, <<>>)),
    ?assertEqual({ok, <<"abcd\r\n">>}, weir_memcached:get(C, <<"k">>)).

%% incr wraps at 64 bits, decr stops at 0, and neither works on what is no number.
arithmetic(Config) ->
    C = client(?FUNCTION_NAME, Config, #{codec => raw}),
    ?assertEqual({error, not_found}, weir_memcached:incr(C, <<"n">>, 1)),
    ?assertEqual({error, not_found}, weir_memcached:decr(C, <<"n">>, 1)),
    ok = weir_memcached:set(C, <<"n">>, <<"18446744073709551614">>),
    ?assertEqual({ok, 16#FFFFFFFFFFFFFFFF}, weir_memcached:incr(C, <<"n">>, 1)),
    ?assertEqual({ok, 0}, weir_memcached:incr(C, <<"n">>, 1, #{timeout => 50_000})),
    ?assertEqual({ok, 16#FFFFFFFFFFFFFFFF}, weir_memcached:incr(C, <<"n">>, 16#FFFFFFFFFFFFFFFF)),
    ?assertEqual({ok, 16#FFFFFFFFFFFFFFFE}, weir_memcached:decr(C, <<"n">>, 1)),
    ok = weir_memcached:set(C, <<"n">>, <<"5">>),
    ?assertEqual({ok, 3}, weir_memcached:decr(C, <<"n">>, 2, #{timeout => 50_000})),
    ?assertEqual({ok, 0}, weir_memcached:decr(C, <<"n">>, 16#FFFFFFFFFFFFFFFF)),
    ok = weir_memcached:set(C, <<"n">>, <<"five">>),
    ?assertMatch({error, {client_error, <<"cannot increment", _/binary>>}}, weir_memcached:incr(C, <<"n">>, 1)),
    ?assertEqual({ok, <<"five">>}, weir_memcached:get(C, <<"n">>)).

%% touch and gat change the time to live; a negative one has passed already.
touch_and_gat(Config) ->
    C = client(?FUNCTION_NAME, Config),
    ?assertEqual({error, not_found}, weir_memcached:touch(C, <<"k">>, 100)),
    ?assertEqual({error, not_found}, weir_memcached:gat(C, <<"k">>, 100)),
    ok = weir_memcached:set(C, <<"k">>, v),
    ?assertEqual(ok, weir_memcached:touch(C, <<"k">>, 100, #{timeout => 50_000})),
    ?assertEqual({ok, v}, weir_memcached:gat(C, <<"k">>, 0, #{timeout => 50_000, codec => term})),
    ?assertEqual({ok, v}, weir_memcached:gat(C, <<"k">>, -1)),
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<"k">>)),
    ok = weir_memcached:set(C, <<"k">>, v),
    ?assertEqual(ok, weir_memcached:touch(C, <<"k">>, -1)),
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<"k">>)).

%% delete removes an item once.
delete(Config) ->
    C = client(?FUNCTION_NAME, Config),
    ?assertEqual({error, not_found}, weir_memcached:delete(C, <<"k">>)),
    ok = weir_memcached:set(C, <<"k">>, v),
    ?assertEqual(ok, weir_memcached:delete(C, <<"k">>, #{timeout => 50_000})),
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<"k">>)).

%% set_many and get_many: lists, maps, nothing at all, duplicates, keys that are not there.
many(Config) ->
    C = client(?FUNCTION_NAME, Config),
    ?assertEqual(ok, weir_memcached:set_many(C, [])),
    ?assertEqual(ok, weir_memcached:set_many(C, #{})),
    ?assertEqual({ok, #{}}, weir_memcached:get_many(C, [])),
    ?assertEqual({ok, #{}}, weir_memcached:get_many(C, [<<"a">>])),
    ?assertEqual({ok, #{}}, weir_memcached:get_many(C, [<<"a">>, <<"b">>])),
    ?assertEqual(ok, weir_memcached:set_many(C, [{<<"a">>, 1}, {<<"b">>, 2}, {<<"a">>, 3}], #{ttl => 100})),
    ?assertEqual(ok, weir_memcached:set_many(C, #{<<"c">> => 4}, #{timeout => 50_000, flags => 1})),
    ?assertEqual(
        {ok, #{<<"a">> => 3, <<"b">> => 2, <<"c">> => 4}},
        weir_memcached:get_many(C, [<<"c">>, <<"no">>, <<"a">>, <<"b">>, <<"a">>, <<"nor">>], #{timeout => 50_000})
    ),
    ?assertEqual({ok, #{<<"a">> => 3}}, weir_memcached:get_many(C, [<<"a">>])).

%% version, stats, verbosity, flush_all.
server_commands(Config) ->
    C = client(?FUNCTION_NAME, Config, #{connections => 2}),
    ?assertMatch({ok, <<"1.", _/binary>>}, weir_memcached:version(C)),
    {ok, Version} = weir_memcached:version(C, #{timeout => 50_000}),
    {ok, Stats} = weir_memcached:stats(C),
    ?assertMatch(#{<<"version">> := Version, <<"pid">> := _, <<"cmd_get">> := _}, Stats),
    ?assertMatch({ok, #{<<"maxbytes">> := _}}, weir_memcached:stats(C, <<"settings">>)),
    ?assertMatch({ok, #{<<"item_size_max">> := _}}, weir_memcached:stats(C, "settings", #{timeout => 50_000})),
    ok = weir_memcached:set(C, <<"k">>, v),
    ?assertMatch({ok, #{<<"items:1:number">> := _}}, weir_memcached:stats(C, "items")),
    ?assertEqual({ok, #{}}, weir_memcached:stats(C, "reset")),
    ?assertEqual({error, {client_error, <<"ERROR">>}}, weir_memcached:stats(C, "nonsense")),
    %% memcached has no words for it in its binary protocol.
    Said =
        case proplists:get_value(options, Config) of
            #{protocol := binary} -> {error, unsupported};
            undefined -> ok
        end,
    [?assertEqual(Said, weir_memcached:verbosity(C, Level)) || Level <- [1, 2, 16#FFFFFFFF, 0]],
    ?assertEqual(Said, weir_memcached:verbosity(C, 0, #{timeout => 50_000})),
    ?assertEqual(ok, weir_memcached:flush_all(C, #{timeout => 50_000})),
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<"k">>)).

%% Values of no byte, of one, of every byte there is, and of what looks like the protocol.
any_byte(Config) ->
    C = client(?FUNCTION_NAME, Config, #{codec => raw, connections => 1}),
    All = list_to_binary(lists:seq(0, 255)),
    Values =
        [<<>>, All, <<All/binary, All/binary>>, <<"\r\n">>, <<"\r\nEND\r\n">>, <<"END\r\n">>, <<"\r">>, <<"\n">>] ++
        [<<"VALUE k 0 1\r\nx\r\nEND\r\n">>, <<"STORED\r\n">>] ++ [<<Byte>> || Byte <- lists:seq(0, 255)],
    Items = lists:zip([integer_to_binary(N) || N <- lists:seq(1, length(Values))], Values),
    [?assertEqual(ok, weir_memcached:set(C, Key, Value)) || {Key, Value} <- Items],
    [?assertEqual({ok, Value}, weir_memcached:get(C, Key)) || {Key, Value} <- Items],
    ?assertEqual({ok, maps:from_list(Items)}, weir_memcached:get_many(C, [Key || {Key, _} <- Items])).

%% Values of hundreds of kilobytes and of a few bytes, of several callers, on one connection.
large_values_among_small(Config) ->
    C = client(?FUNCTION_NAME, Config, #{codec => raw, connections => 1}),
    Caller = fun(N) ->
        fun() ->
            [
                begin
                    Key = <<(integer_to_binary(N))/binary, "/", (integer_to_binary(Round))/binary>>,
                    Value = rand:bytes(size_of(N, Round)),
                    ok = weir_memcached:set(C, Key, Value),
                    {ok, Value} = weir_memcached:get(C, Key),
                    Round
                end
             || Round <- lists:seq(1, 6)
            ]
        end
    end,
    Results = weir_kit:in_parallel([Caller(N) || N <- lists:seq(1, 8)]),
    ?assertEqual([lists:seq(1, 6) || _ <- lists:seq(1, 8)], Results).

size_of(N, Round) when (N + Round) rem 2 =:= 0 -> 300000 + 50000 * N;
size_of(N, Round) -> N * Round.

%% Values

%% An item is there before its time to live and not for long after it.
expiry(Config) ->
    C = client(?FUNCTION_NAME, Config),
    ok = weir_memcached:set_many(C, [{<<"a">>, 1}, {<<"b">>, 2}], #{ttl => 1}),
    ok = weir_memcached:add(C, <<"c">>, 3, #{ttl => 1}),
    ok = weir_memcached:set(C, <<"d">>, 4, #{ttl => 1000}),
    ok = weir_memcached:set(C, <<"e">>, 5, #{ttl => erlang:system_time(second) + 1000}),
    ok = weir_memcached:set(C, <<"gone">>, 6, #{ttl => -1}),
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<"gone">>)),
    Keys = [<<"a">>, <<"b">>, <<"c">>, <<"d">>, <<"e">>],
    weir_kit:until(fun() ->
        weir_memcached:get_many(C, Keys) =:= {ok, #{<<"d">> => 4, <<"e">> => 5}}
    end).

%% flush_all with a delay empties the cache, but not at once.
flush_with_delay(Config) ->
    C = client(?FUNCTION_NAME, Config),
    ok = weir_memcached:set(C, <<"k">>, v),
    ?assertEqual(ok, weir_memcached:flush_all(C, #{delay => 1000})),
    ?assertEqual({ok, v}, weir_memcached:get(C, <<"k">>)),
    ?assertEqual(ok, weir_memcached:flush_all(C, #{delay => 1})),
    weir_kit:until(fun() -> weir_memcached:get(C, <<"k">>) =:= {error, not_found} end).

%% 32 bits of flags are kept with an item.
flags(Config) ->
    C = client(?FUNCTION_NAME, Config, #{codec => weir_memcached_test_codec}),
    [
        begin
            ok = weir_memcached:set(C, <<"k">>, <<"v">>, #{flags => Flags}),
            ?assertEqual({ok, {plain, Flags, <<"v">>}}, weir_memcached:get(C, <<"k">>))
        end
     || Flags <- [0, 16#10000, 16#FFFFFFFC]
    ],
    ?assertError({bad_option, flags, 16#100000000}, weir_memcached:set(C, <<"k">>, <<"v">>, #{flags => 16#100000000})),
    ?assertError({bad_option, flags, -1}, weir_memcached:set(C, <<"k">>, <<"v">>, #{flags => -1})).

%% The codec `term' takes any term but funs, and makes no atom of what somebody else stored.
codec_term(Config) ->
    C = client(?FUNCTION_NAME, Config),
    Terms = [a, <<1:3>>, self(), make_ref(), #{1 => [2.0]}, <<"x">>, "", binary:copy(<<"x">>, 5000)],
    [
        begin
            ok = weir_memcached:set(C, <<"k">>, Term),
            ?assertEqual({ok, Term}, weir_memcached:get(C, <<"k">>))
        end
     || Term <- Terms
    ],
    Name = <<"no atom of this node ", (integer_to_binary(erlang:unique_integer([positive])))/binary>>,
    Unknown = <<131, 119, (byte_size(Name)), Name/binary>>,
    ok = weir_memcached:set(C, <<"u">>, Unknown, #{codec => raw}),
    ?assertEqual({error, {undecodable, Unknown}}, weir_memcached:get(C, <<"u">>)),
    ?assertEqual({error, {undecodable, Unknown}}, weir_memcached:gets(C, <<"u">>)),
    ?assertEqual({error, {undecodable, Unknown}}, weir_memcached:gat(C, <<"u">>, 0)),
    {error, {partial, Read, Failed}} = weir_memcached:get_many(C, [<<"k">>, <<"u">>]),
    ?assertEqual({[<<"k">>], #{<<"u">> => {undecodable, Unknown}}}, {maps:keys(Read), Failed}),
    ?assertError(badarg, binary_to_existing_atom(Name)),
    [
        begin
            ok = weir_memcached:set(C, <<"u">>, Bytes, #{codec => raw}),
            ?assertEqual({error, {undecodable, Bytes}}, weir_memcached:get(C, <<"u">>))
        end
     || Bytes <- [<<131>>, <<"plain">>]
    ],
    %% What keeps a place for a value.
    ok = weir_memcached:set(C, <<"u">>, <<>>, #{codec => raw}),
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<"u">>)).

%% The codec `raw' takes iodata and gives binaries.
codec_raw(Config) ->
    C = client(?FUNCTION_NAME, Config, #{codec => raw}),
    ok = weir_memcached:set(C, <<"k">>, ["a", [<<"b">>, $c]]),
    ?assertEqual({ok, <<"abc">>}, weir_memcached:get(C, <<"k">>)),
    ?assertError(badarg, weir_memcached:set(C, <<"k">>, an_atom)),
    ?assertError(badarg, weir_memcached:set(C, <<"k">>, [300])),
    ?assertError(badarg, weir_memcached:set_many(C, [{<<"k">>, <<"x">>}, {<<"l">>, 1}])),
    ?assertEqual({ok, <<"abc">>}, weir_memcached:get(C, <<"k">>)).

%% A codec of one's own sees and sets the flags, and may fail either way.
codec_module(Config) ->
    C = client(?FUNCTION_NAME, Config, #{codec => weir_memcached_test_codec}),
    Long = binary:copy(<<"long ">>, 10000),
    ok = weir_memcached:set(C, <<"k">>, {compressed, Long}, #{flags => 4}),
    ?assertEqual({ok, {compressed, 5, Long}}, weir_memcached:get(C, <<"k">>)),
    {ok, Zipped} = weir_memcached:get(C, <<"k">>, #{codec => raw}),
    ?assert(byte_size(Zipped) < 1000),
    ok = weir_memcached:set(C, <<"k">>, {backwards, <<"drawer">>}),
    ?assertEqual({ok, <<"reward">>}, weir_memcached:get(C, <<"k">>, #{codec => raw})),
    ?assertEqual({ok, {backwards, 2, <<"drawer">>}}, weir_memcached:get(C, <<"k">>)),
    ok = weir_memcached:set(C, <<"k">>, <<"not zipped">>, #{flags => 1}),
    ?assertEqual({error, {undecodable, <<"not zipped">>}}, weir_memcached:get(C, <<"k">>)),
    ?assertError(function_clause, weir_memcached:set(C, <<"k">>, not_for_this_codec)).

%% A request may have a codec other than its client's.
codec_per_request(Config) ->
    C = client(?FUNCTION_NAME, Config),
    ok = weir_memcached:set(C, <<"n">>, <<"41">>, #{codec => raw}),
    ?assertEqual({ok, 42}, weir_memcached:incr(C, <<"n">>, 1)),
    ?assertEqual({ok, <<"42">>}, weir_memcached:get(C, <<"n">>, #{codec => raw})),
    ?assertMatch({ok, <<"42">>, _}, weir_memcached:gets(C, <<"n">>, #{codec => raw})),
    ?assertEqual({ok, <<"42">>}, weir_memcached:gat(C, <<"n">>, 0, #{codec => raw})),
    ?assertEqual({ok, #{<<"n">> => <<"42">>}}, weir_memcached:get_many(C, [<<"n">>], #{codec => raw})),
    {ok, _, Cas} = weir_memcached:gets(C, <<"n">>, #{codec => raw}),
    ok = weir_memcached:cas(C, <<"n">>, <<"43">>, Cas, #{codec => raw}),
    ok = weir_memcached:replace(C, <<"n">>, <<"44">>, #{codec => raw}),
    ok = weir_memcached:add(C, <<"m">>, <<"1">>, #{codec => raw}),
    ok = weir_memcached:set_many(C, #{<<"n">> => <<"45">>}, #{codec => raw}),
    ?assertEqual({ok, 46}, weir_memcached:incr(C, <<"n">>, 1)).

%% What a key may be, up to its 250 bytes.
keys(Config) ->
    C = client(?FUNCTION_NAME, Config),
    Visible = [<<Byte>> || Byte <- lists:seq($!, $~) ++ lists:seq(128, 255)],
    Words = [<<"noreply">>, <<"0">>, <<"END">>, <<"get">>, unicode:characters_to_binary("schlüssel")],
    Good = lists:usort([binary:copy(<<"k">>, 250), "string", ["io", <<"data">>, [$!]] | Words ++ Visible]),
    Items = [{Key, {value_of, Key}} || Key <- Good],
    [?assertEqual(ok, weir_memcached:set(C, Key, Value)) || {Key, Value} <- Items],
    [?assertEqual({ok, Value}, weir_memcached:get(C, Key)) || {Key, Value} <- Items],
    ?assertEqual({ok, maps:from_list(Items)}, weir_memcached:get_many(C, Good)),
    [?assertEqual(ok, weir_memcached:touch(C, Key, 0)) || {Key, _} <- Items],
    [?assertEqual(ok, weir_memcached:delete(C, Key)) || {Key, _} <- Items],
    ?assertEqual({ok, #{}}, weir_memcached:get_many(C, Good)).

%% What a key may not be, for every operation. That nothing is sent is shown in the scripted suite.
bad_keys(Config) ->
    C = client(?FUNCTION_NAME, Config),
    Bytes = [<<"a", Byte, "b">> || Byte <- lists:seq(0, 32) ++ [127]],
    Bad = [binary:copy(<<"k">>, 251), <<>>, "", [], [<<>>], "a b", [300], an_atom, 1, {}, <<1:3>>, ["a" | b] | Bytes],
    [
        ?assertEqual({Key, {error, {bad_key, Key}}}, {Key, Operation(C, Key)})
     || Key <- Bad, Operation <- operations()
    ],
    ?assertEqual({error, {bad_key, "a b"}}, weir_memcached:get_many(C, [<<"good">>, "a b"])),
    ?assertEqual({error, {bad_key, "a b"}}, weir_memcached:set_many(C, [{<<"good">>, 1}, {"a b", 2}])),
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<"good">>)).

operations() ->
    [
        fun weir_memcached:get/2,
        fun weir_memcached:gets/2,
        fun weir_memcached:delete/2,
        fun(C, K) -> weir_memcached:get_many(C, [K]) end,
        fun(C, K) -> weir_memcached:set_many(C, [{K, v}]) end,
        fun(C, K) -> weir_memcached:set(C, K, v) end,
        fun(C, K) -> weir_memcached:add(C, K, v) end,
        fun(C, K) -> weir_memcached:replace(C, K, v) end,
        fun(C, K) -> weir_memcached:append(C, K, <<"v">>, #{codec => raw}) end,
        fun(C, K) -> weir_memcached:prepend(C, K, <<"v">>, #{codec => raw}) end,
        fun(C, K) -> weir_memcached:cas(C, K, v, 1) end,
        fun(C, K) -> weir_memcached:incr(C, K, 1) end,
        fun(C, K) -> weir_memcached:decr(C, K, 1) end,
        fun(C, K) -> weir_memcached:touch(C, K, 1) end,
        fun(C, K) -> weir_memcached:gat(C, K, 1) end
    ].

%% Misuse is an error at the call, and disturbs nobody.
bad_arguments(Config) ->
    C = client(?FUNCTION_NAME, Config),
    Misuses = [
        fun() -> weir_memcached:incr(C, <<"k">>, -1) end,
        fun() -> weir_memcached:incr(C, <<"k">>, 16#10000000000000000) end,
        fun() -> weir_memcached:decr(C, <<"k">>, 1.0) end,
        fun() -> weir_memcached:cas(C, <<"k">>, v, -1) end,
        fun() -> weir_memcached:cas(C, <<"k">>, v, 16#10000000000000000) end,
        fun() -> weir_memcached:touch(C, <<"k">>, soon) end,
        fun() -> weir_memcached:gat(C, <<"k">>, soon) end,
        fun() -> weir_memcached:append(C, <<"k">>, an_atom) end,
        fun() -> weir_memcached:prepend(C, <<"k">>, [300]) end,
        fun() -> weir_memcached:get_many(C, not_a_list) end,
        fun() -> weir_memcached:set_many(C, [not_a_pair]) end,
        fun() -> weir_memcached:verbosity(C, -1) end,
        fun() -> weir_memcached:verbosity(C, 16#100000000) end,
        fun() -> weir_memcached:stats(C, "two words") end
    ],
    [?assertError(_, Misuse()) || Misuse <- Misuses],
    ?assertMatch(#{disconnects := 0}, weir_memcached_test:counters(C)).

%% A time to live is sent if the server can read it, at both ends of its range; else it is a bad option, for a server
%% that rejects a storage command takes its data for commands.
ttl_bounds(Config) ->
    C = client(?FUNCTION_NAME, Config),
    Max = 16#7FFFFFFF,
    Min = -16#80000000,
    [?assertEqual(ok, weir_memcached:set(C, <<"k">>, v, #{ttl => Ttl})) || Ttl <- [Min, Max]],
    [
        ?assertError({bad_option, ttl, Ttl}, weir_memcached:set(C, <<"k">>, v, #{ttl => Ttl}))
     || Ttl <- [Min - 1, Max + 1]
    ],
    [
        ?assertError({bad_option, ttl, Ttl}, weir_memcached:set_many(C, [{<<"k">>, v}], #{ttl => Ttl}))
     || Ttl <- [Min - 1, Max + 1]
    ],
    ?assertEqual(ok, weir_memcached:touch(C, <<"k">>, Max)),
    [?assertError(_, weir_memcached:touch(C, <<"k">>, Ttl)) || Ttl <- [Min - 1, Max + 1]],
    ?assertEqual({ok, v}, weir_memcached:gat(C, <<"k">>, Max)),
    [?assertError(_, weir_memcached:gat(C, <<"k">>, Ttl)) || Ttl <- [Min - 1, Max + 1]],
    ok = weir_memcached:set(C, <<"f">>, v),
    ?assertEqual(ok, weir_memcached:flush_all(C, #{delay => Max})),
    ?assertError({bad_option, delay, _}, weir_memcached:flush_all(C, #{delay => Max + 1})),
    ?assertError({bad_option, delay, -1}, weir_memcached:flush_all(C, #{delay => -1})),
    ?assertMatch(#{disconnects := 0}, weir_memcached_test:counters(C)).

%% The longest time that a process can wait, and one millisecond more; no time at all.
timeout_bounds(Config) ->
    C = client(?FUNCTION_NAME, Config),
    Max = 16#FFFFFFFF,
    ?assertEqual(ok, weir_memcached:set(C, <<"k">>, v, #{timeout => Max})),
    ?assertError({bad_option, timeout, _}, weir_memcached:set(C, <<"k">>, v, #{timeout => Max + 1})),
    ?assertEqual({error, timeout}, weir_memcached:get(C, <<"k">>, #{timeout => 0})),
    ?assertError({bad_option, timeout, -1}, weir_memcached:get(C, <<"k">>, #{timeout => -1})),
    ?assertEqual({ok, v}, weir_memcached:get(C, <<"k">>)).

%% An option that an operation does not know is an error, not silence.
request_options(Config) ->
    C = client(?FUNCTION_NAME, Config),
    K = <<"k">>,
    Calls = [
        {[timeout, codec], fun(O) -> weir_memcached:get(C, K, O) end},
        {[timeout, codec], fun(O) -> weir_memcached:gets(C, K, O) end},
        {[timeout, codec], fun(O) -> weir_memcached:gat(C, K, 0, O) end},
        {[timeout, codec], fun(O) -> weir_memcached:get_many(C, [K], O) end},
        {[ttl, flags, timeout, codec], fun(O) -> weir_memcached:set(C, K, <<>>, O) end},
        {[ttl, flags, timeout, codec], fun(O) -> weir_memcached:add(C, K, <<>>, O) end},
        {[ttl, flags, timeout, codec], fun(O) -> weir_memcached:replace(C, K, <<>>, O) end},
        {[ttl, flags, timeout, codec], fun(O) -> weir_memcached:cas(C, K, <<>>, 1, O) end},
        {[ttl, flags, timeout, codec], fun(O) -> weir_memcached:set_many(C, [{K, <<>>}], O) end},
        {[timeout, codec], fun(O) -> weir_memcached:append(C, K, <<>>, maps:merge(#{codec => raw}, O)) end},
        {[timeout, codec], fun(O) -> weir_memcached:prepend(C, K, <<>>, maps:merge(#{codec => raw}, O)) end},
        {[timeout], fun(O) -> weir_memcached:incr(C, K, 1, O) end},
        {[timeout], fun(O) -> weir_memcached:decr(C, K, 1, O) end},
        {[timeout], fun(O) -> weir_memcached:touch(C, K, 0, O) end},
        {[timeout], fun(O) -> weir_memcached:delete(C, K, O) end},
        {[timeout], fun(O) -> weir_memcached:stats(C, "items", O) end},
        {[timeout], fun(O) -> weir_memcached:version(C, O) end},
        {[timeout], fun(O) -> weir_memcached:verbosity(C, 0, O) end},
        {[delay, timeout], fun(O) -> weir_memcached:flush_all(C, O) end}
    ],
    Valid = [{timeout, 5000}, {codec, raw}, {ttl, 0}, {flags, 0}, {delay, 0}],
    [
        case lists:member(Option, Allowed) of
            true -> Call(#{Option => Value});
            false -> ?assertError({bad_option, Option, Value}, Call(#{Option => Value}))
        end
     || {Allowed, Call} <- Calls, {Option, Value} <- [{colour, red} | Valid]
    ],
    Invalid = [{timeout, soon}, {codec, "raw"}, {ttl, 1.0}, {flags, all}, {delay, later}],
    [
        ?assertError({bad_option, Option, Value}, Call(#{Option => Value}))
     || {Allowed, Call} <- Calls, {Option, Value} <- Invalid, lists:member(Option, Allowed)
    ].

%% Limits

%% The largest value that the server takes, and one byte more, which says its size and leaves nothing behind.
item_limit(Config) ->
    C = client(?FUNCTION_NAME, Config, #{codec => raw, connections => 1}),
    Limit = limit(C, 1000000, 1 bsl 20),
    Largest = rand:bytes(Limit),
    TooLarge = rand:bytes(Limit + 1),
    ?assertEqual(ok, weir_memcached:set(C, <<"limit">>, Largest)),
    ?assertEqual({ok, Largest}, weir_memcached:get(C, <<"limit">>)),
    ?assertEqual({error, {too_large, Limit + 1}}, weir_memcached:add(C, <<"other">>, TooLarge)),
    ?assertEqual({error, {too_large, Limit + 1}}, weir_memcached:replace(C, <<"limit">>, TooLarge)),
    ?assertEqual({error, {too_large, Limit + 1}}, weir_memcached:set(C, <<"limit">>, TooLarge)),
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<"limit">>)),
    ?assertEqual({error, {too_large, 5000000}}, weir_memcached:set(C, <<"limit">>, rand:bytes(5000000))),
    ?assertEqual({error, {too_large, 5000000}}, weir_memcached:cas(C, <<"limit">>, rand:bytes(5000000), 1)),
    %% and the connection is still in step
    ?assertEqual(ok, weir_memcached:set(C, <<"limit">>, <<"small">>)),
    ?assertEqual({ok, <<"small">>}, weir_memcached:get(C, <<"limit">>)),
    ?assertMatch(#{disconnects := 0}, weir_memcached_test:counters(C)).

%% Bisects between a size that is stored and one that is not.
limit(_, Stored, Refused) when Refused =:= Stored + 1 ->
    Stored;
limit(C, Stored, Refused) ->
    Size = (Stored + Refused) div 2,
    case weir_memcached:set(C, <<"limit">>, binary:copy(<<"x">>, Size)) of
        ok -> limit(C, Size, Refused);
        {error, {too_large, Size}} -> limit(C, Stored, Size)
    end.

%% An append that makes an item too large is refused, and the item stays as it was.
append_over_the_item_limit(Config) ->
    C = client(?FUNCTION_NAME, Config, #{codec => raw, connections => 1}),
    Half = rand:bytes(600000),
    ok = weir_memcached:set(C, <<"k">>, Half),
    ?assertMatch({error, _}, weir_memcached:append(C, <<"k">>, Half)),
    ?assertMatch({error, _}, weir_memcached:prepend(C, <<"k">>, Half)),
    ?assertEqual({error, {too_large, 2000000}}, weir_memcached:append(C, <<"k">>, rand:bytes(2000000))),
    ?assertEqual({error, {too_large, 2000000}}, weir_memcached:prepend(C, <<"k">>, rand:bytes(2000000))),
    ?assertEqual({ok, Half}, weir_memcached:get(C, <<"k">>)).

%% A server may be configured for larger items.
larger_items(_) ->
    Server = weir_kit_memcached:start(#{arguments => "-m 128 -I 8m"}),
    C = client(?FUNCTION_NAME, [{server, Server}], #{codec => raw}),
    Value = rand:bytes(7 bsl 20),
    ?assertEqual(ok, weir_memcached:set(C, <<"k">>, Value)),
    ?assertEqual({ok, Value}, weir_memcached:get(C, <<"k">>)),
    ok = weir_memcached:stop(C),
    ok = weir_kit_memcached:stop(Server).

%% Thousands of keys are many lines to the server and one map to the caller; half of them are not there.
get_many_thousands(Config) ->
    C = client(?FUNCTION_NAME, Config),
    %% short keys and some of the greatest length, so that lines end in all places
    Keys = [<<(integer_to_binary(N))/binary, (binary:copy(<<"k">>, N * 7 rem 245))/binary>> || N <- lists:seq(1, 5000)],
    Items = maps:from_list([{Key, {N, Key}} || {N, Key} <- lists:zip(lists:seq(1, 5000), Keys), N rem 2 =:= 0]),
    ?assertEqual(ok, weir_memcached:set_many(C, Items)),
    ?assertEqual({ok, Items}, weir_memcached:get_many(C, Keys)),
    ?assertEqual({ok, Items}, weir_memcached:get_many(C, Keys ++ lists:reverse(Keys))),
    Longest = [<<N:32, (binary:copy(<<"k">>, 246))/binary>> || N <- lists:seq(16#41414141, 16#41414141 + 50)],
    ?assertEqual({ok, #{}}, weir_memcached:get_many(C, Longest)).

%% Keys come back as they were given, also when one key was given in two forms.
get_many_mixed_keys(Config) ->
    C = client(?FUNCTION_NAME, Config),
    ok = weir_memcached:set_many(C, [{"a", 1}, {<<"b">>, 2}, {["c"], 3}]),
    ?assertEqual({ok, #{"a" => 1, <<"b">> => 2, ["c"] => 3}}, weir_memcached:get_many(C, ["a", <<"b">>, ["c"]])),
    ?assertEqual({ok, #{"a" => 1, <<"a">> => 1}}, weir_memcached:get_many(C, ["a", <<"a">>, "a"])).

%% A set_many stores what it can, and says what it could not and why.
set_many_partial(Config) ->
    C = client(?FUNCTION_NAME, Config, #{codec => raw}),
    TooLarge = rand:bytes(2000000),
    Items = [{<<"a">>, <<"1">>}, {"b", TooLarge}, {<<"c">>, <<"3">>}, {["d"], TooLarge}, {<<"e">>, <<"5">>}],
    Failed = #{"b" => {too_large, 2000000}, ["d"] => {too_large, 2000000}},
    ?assertEqual({error, {partial, Failed}}, weir_memcached:set_many(C, Items)),
    ?assertEqual(
        {ok, #{<<"a">> => <<"1">>, <<"c">> => <<"3">>, <<"e">> => <<"5">>}},
        weir_memcached:get_many(C, [Key || {Key, _} <- Items])
    ).

%% One bad key, or one value that cannot be encoded, and nothing is stored.
set_many_undone(Config) ->
    C = client(?FUNCTION_NAME, Config, #{codec => weir_memcached_test_codec}),
    ?assertEqual({error, {bad_key, <<>>}}, weir_memcached:set_many(C, [{<<"a">>, <<"1">>}, {<<>>, <<"2">>}])),
    ?assertError(function_clause, weir_memcached:set_many(C, [{<<"a">>, <<"1">>}, {<<"b">>, not_for_this_codec}])),
    ?assertEqual({error, not_found}, weir_memcached:get(C, <<"a">>)).

%% Life

%% Five hundred callers on two connections; each reply belongs to who asked for it.
many_callers(Config) ->
    C = client(?FUNCTION_NAME, Config, #{connections => 2}),
    Caller = fun(N) ->
        fun() -> lists:sum([own_value(C, N, Round) || Round <- lists:seq(1, 20)]) end
    end,
    Results = weir_kit:in_parallel([Caller(N) || N <- lists:seq(1, 500)]),
    ?assertEqual([20 || _ <- lists:seq(1, 500)], Results),
    %% three requests a round, and one to empty the cache
    ?assertMatch(#{requests := 30001, busy := 0, timeouts := 0, disconnected := 0}, weir_memcached_test:counters(C)).

own_value(C, N, Round) ->
    Key = <<"key-", (integer_to_binary(N))/binary>>,
    Value = {N, Round, binary:copy(<<N>>, N rem 300)},
    ok = weir_memcached:set(C, Key, Value),
    {ok, Read} = weir_memcached:get(C, Key),
    weir_kit:same(wrong_value, Value, Read),
    {ok, Items} = weir_memcached:get_many(C, [<<"none">>, Key]),
    weir_kit:same(wrong_items, #{Key => Value}, Items),
    1.

%% Callers that are killed while they wait disturb nobody else on their connection.
killed_callers(Config) ->
    C = client(?FUNCTION_NAME, Config, #{connections => 1}),
    ok = weir_memcached:set(C, <<"large">>, binary:copy(<<"x">>, 500000)),
    Victim = fun() -> spawn(fun Loop() -> {ok, _} = weir_memcached:get(C, <<"large">>), Loop() end) end,
    Killer = fun() ->
        [
            begin
                Pid = Victim(),
                weir_kit:until_waiting(Pid),
                weir_kit:kill(Pid)
            end
         || _ <- lists:seq(1, 200)
        ]
    end,
    Caller = fun(N) -> fun() -> lists:sum([own_value(C, N, Round) || Round <- lists:seq(1, 50)]) end end,
    [_ | Results] = weir_kit:in_parallel([Killer | [Caller(N) || N <- lists:seq(1, 5)]]),
    ?assertEqual([50, 50, 50, 50, 50], Results),
    ?assertMatch(#{disconnects := 0, garbage := 0}, weir_memcached_test:counters(C)).

%% The server is killed under load and started again: requests fail meanwhile, fast, none with a wrong value, and
%% the client comes back by itself.
restart_under_load(_) ->
    Server = weir_kit_memcached:start(),
    C = client(?FUNCTION_NAME, [{server, Server}], #{connections => 4, reconnect => {5, 50}}),
    Succeeded = counters:new(1, []),
    Failed = counters:new(1, []),
    Stop = atomics:new(1, []),
    Callers = [
        weir_kit:start(fun() -> load(C, Stop, N, 0, Succeeded, Failed, #{}) end)
     || N <- lists:seq(1, 30)
    ],
    grows(Succeeded),
    [
        begin
            #{connect_failures := Before} = weir_memcached_test:counters(C),
            ok = weir_kit_memcached:kill(Server),
            grows(Failed),
            weir_kit:until(fun() ->
                maps:get(connect_failures, weir_memcached_test:counters(C)) >= Before + 4
            end),
            ok = weir_kit_memcached:restart(Server),
            ok = weir_memcached_test:up(C),
            grows(Succeeded)
        end
     || _ <- lists:seq(1, 2)
    ],
    ok = atomics:put(Stop, 1, 1),
    Seen = lists:usort(lists:append([maps:keys(weir_kit:result(Caller)) || Caller <- Callers])),
    weir_kit:none(wrong_answers, Seen -- [ok, missing, disconnected, timeout]),
    ok = weir_memcached_test:up(C),
    #{connects := Connects, disconnects := Losses, connect_failures := Attempts, garbage := 0, disconnected := Lost} =
        weir_memcached_test:counters(C),
    %% one made while the server dies is lost again, so there may be more
    ?assert(Losses >= 8),
    ?assertEqual(4, Connects - Losses),
    ?assert(Attempts >= 8),
    ?assert(Lost =< counters:get(Failed, 1)),
    ?assertEqual([0, 0, 0, 0], [Pending || #{pending := Pending} <- weir_memcached_test:connections(C)]),
    ok = weir_memcached:stop(C),
    ok = weir_kit_memcached:stop(Server).

%% Writes and reads back its own key until told to stop; says what it has seen.
load(C, Stop, N, Round, Succeeded, Failed, Seen) ->
    case atomics:get(Stop, 1) of
        1 ->
            Seen;
        0 ->
            Key = integer_to_binary(N),
            Result =
                case weir_memcached:set(C, Key, {N, Round}) of
                    ok ->
                        case weir_memcached:get(C, Key) of
                            {ok, {N, Round}} -> ok;
                            {ok, Wrong} -> {wrong, Wrong};
                            %% the cache is empty after a restart
                            {error, not_found} -> missing;
                            {error, Reason} -> Reason
                        end;
                    {error, Reason} ->
                        Reason
                end,
            counters:add(if Result =:= ok -> Succeeded; true -> Failed end, 1, 1),
            load(C, Stop, N, Round + 1, Succeeded, Failed, Seen#{Result => true})
    end.

grows(Counter) ->
    Now = counters:get(Counter, 1),
    weir_kit:until(fun() -> counters:get(Counter, 1) > Now + 500 end).

%% A client may be started before its server; it says so, and connects when the server is there.
started_before_the_server(_) ->
    Server = weir_kit_memcached:start(),
    ok = weir_kit_memcached:kill(Server),
    C = ?FUNCTION_NAME,
    Address = weir_memcached_test:options(Server),
    weir_memcached_test:watch_log(C, {weir_memcached, connect_failed}),
    {ok, _} = weir_memcached:start_link(C, Address#{connections => 1, reconnect => {5, 20}}),
    ?assertEqual({error, disconnected}, weir_memcached:get(C, <<"k">>)),
    weir_kit:until(fun() -> maps:get(connect_failures, weir_memcached_test:counters(C)) > 5 end),
    ?assertEqual({error, disconnected}, weir_memcached:set_many(C, [{<<"k">>, v}])),
    ok = weir_kit_memcached:restart(Server),
    ok = weir_memcached_test:up(C),
    ?assertEqual(ok, weir_memcached:set(C, <<"k">>, v)),
    %% one report, however many attempts; those of clients of before may be late
    receive
        {logged, C, #{client := C} = Report} -> ?assertMatch(#{reason := econnrefused}, Report)
    after weir_kit:wait_ms() -> error(no_report)
    end,
    weir_memcached_test:unwatch_log(C),
    receive
        {logged, C, #{client := C} = More} -> ct:fail({reported_again, More})
    after 0 -> ok
    end,
    ok = weir_memcached:stop(C),
    ok = weir_kit_memcached:stop(Server).

%% A client is a child like any other: started, restarted, and taken down by its supervisor.
under_a_supervisor(Config) ->
    C = ?FUNCTION_NAME,
    Spec = weir_memcached:child_spec(C, weir_memcached_test:options(?config(server, Config))),
    ?assertMatch(#{type := supervisor}, Spec),
    {ok, Sup} = supervisor:start_link(weir_memcached_test_sup, [Spec]),
    ok = weir_memcached_test:up(C),
    ok = weir_memcached:set(C, <<"k">>, v),
    Old = whereis(C),
    Conns = [Pid || #{pid := Pid} <- weir_memcached_test:connections(C)],
    weir_kit:kill(Old),
    weir_kit:until(fun() -> is_pid(whereis(C)) andalso whereis(C) =/= Old end),
    weir_kit:until(fun() -> not lists:any(fun is_process_alive/1, Conns) end),
    ok = weir_memcached_test:up(C),
    ?assertEqual({ok, v}, weir_memcached:get(C, <<"k">>)),
    ok = supervisor:terminate_child(Sup, {weir_memcached, C}),
    ?assertExit({noproc, _}, weir_memcached:get(C, <<"k">>)),
    {ok, _} = supervisor:restart_child(Sup, {weir_memcached, C}),
    ok = weir_memcached_test:up(C),
    ?assertEqual({ok, v}, weir_memcached:get(C, <<"k">>)).

%% stop ends every request at once; afterwards the name is free and the server sees no connection of ours.
stop_answers_everybody(Config) ->
    Server = ?config(server, Config),
    C = client(?FUNCTION_NAME, Config),
    ok = weir_memcached:set(C, <<"k">>, binary:copy(<<"x">>, 500000)),
    Running = counters:new(1, []),
    Loop = fun Loop() ->
        counters:add(Running, 1, 1),
        case weir_memcached:get(C, <<"k">>) of
            {ok, _} -> Loop();
            {error, disconnected} -> disconnected
        end
    end,
    Until = fun() ->
        try
            Loop()
        catch
            exit:{noproc, _} -> noproc
        end
    end,
    Callers = [weir_kit:start(Until) || _ <- lists:seq(1, 20)],
    weir_kit:until(fun() -> counters:get(Running, 1) > 100 end),
    ?assertEqual(ok, weir_memcached:stop(C)),
    ?assertEqual([], [weir_kit:result(Caller) || Caller <- Callers] -- copies(20, [disconnected, noproc])),
    ?assertExit({noproc, {weir_memcached, client, [C]}}, weir_memcached:get(C, <<"k">>)),
    ?assertExit({noproc, _}, weir_memcached:stop(C)),
    ?assertEqual(undefined, whereis(C)),
    C = client(C, Config, #{connections => 1}),
    %% one connection of the new client; memcached counts some of its own
    {ok, #{<<"curr_connections">> := Before}} = weir_memcached:stats(C),
    ok = weir_memcached:stop(C),
    ?assertMatch(<<"VERSION ", _/binary>>, weir_kit_memcached:raw(Server, "version\r\n")),
    C = client(C, Config, #{connections => 1}),
    weir_kit:until(fun() ->
        {ok, #{<<"curr_connections">> := Now}} = weir_memcached:stats(C),
        %% Less if it had not seen yet that all were closed.
        binary_to_integer(Now) =< binary_to_integer(Before)
    end).

copies(N, Items) ->
    lists:append(lists:duplicate(N, Items)).

%% Each option is checked at the start, and the one at fault is named.
bad_options(_) ->
    C = ?FUNCTION_NAME,
    Bad = [
        {host, ""}, {host, 1}, {host, {1, 2, 3}}, {host, {local, 1}}, {host, {1, 2, 3, 256}}, {host, <<>>},
        {host, <<255>>},
        {port, -1}, {port, 65536}, {port, "11211"},
        {connections, 0}, {connections, 1.0}, {connections, all},
        {connect_timeout, 0}, {connect_timeout, infinity}, {connect_timeout, 16#100000000},
        {request_timeout, 0}, {request_timeout, -1}, {request_timeout, soon}, {request_timeout, 16#100000000},
        {stall_timeout, 0}, {stall_timeout, never}, {stall_timeout, 16#100000000},
        {reconnect, 100}, {reconnect, {0, 10}}, {reconnect, {11, 10}}, {reconnect, {1, infinity}},
        {reconnect, {1, 16#100000000}},
        {max_pending, 0}, {max_pending, infinity},
        {codec, "raw"}, {codec, 1}, {transport, "gen_tcp"}, {transport, fun() -> ok end},
        {colour, red}, {"port", 1}
    ],
    [
        ?assertEqual({error, {bad_option, Key, Value}}, weir_memcached:start_link(C, #{Key => Value}))
     || {Key, Value} <- Bad
    ],
    [
        ?assertEqual({error, {bad_option, options, Wrong}}, weir_memcached:start_link(C, Wrong))
     || Wrong <- [none, [port]]
    ],
    ?assertEqual({error, {bad_option, client, "name"}}, weir_memcached:start_link("name", #{})),
    ?assertEqual({error, {bad_option, client, undefined}}, weir_memcached:start_link(undefined, #{})),
    ?assertEqual(undefined, whereis(C)).

%% As Elixir writes options: keyword lists, of which the first of a key counts, and a binary for the host.
keyword_lists(Config) ->
    C = ?FUNCTION_NAME,
    #{port := Port} = ?config(server, Config),
    {ok, _} = weir_memcached:start_link(C, [{host, <<"127.0.0.1">>}, {port, Port}, {port, 1}, {connections, 1}]),
    weir_kit:until(fun() -> weir_memcached:set(C, <<"k">>, 1, [{ttl, 100}]) =:= ok end),
    ?assertEqual({ok, 1}, weir_memcached:get(C, <<"k">>, [{timeout, weir_kit:wait_ms()}])),
    ?assertEqual(ok, weir_memcached:delete(C, <<"k">>, [])),
    ?assertError({bad_option, ttl, 1}, weir_memcached:get(C, <<"k">>, [{ttl, 1}])),
    ?assertError({bad_option, options, [ttl]}, weir_memcached:get(C, <<"k">>, [ttl])),
    ok = weir_memcached:stop(C),
    %% A child of a supervisor of Elixir's: {:weir_memcached, options}.
    Spec = weir_memcached:child_spec(C, #{port => Port}),
    ?assertEqual(Spec, weir_memcached:child_spec([{name, C}, {port, Port}])),
    ?assertEqual(Spec, weir_memcached:child_spec(#{name => C, port => Port})),
    ?assertError({missing_option, name}, weir_memcached:child_spec([{port, Port}])),
    ?assertError(badarg, weir_memcached:child_spec(C)).

%% A name is one client's, and the client that has it is not disturbed by the attempt to start another.
name_taken(Config) ->
    Address = weir_memcached_test:options(?config(server, Config)),
    C = client(?FUNCTION_NAME, Config, #{codec => raw}),
    ?assertEqual({error, {already_started, whereis(C)}}, weir_memcached:start_link(C, Address)),
    ?assertMatch({error, {already_started, _}}, weir_memcached:start_link(kernel_sup, Address)),
    %% the one that runs keeps its options
    ?assertEqual(ok, weir_memcached:set(C, <<"k">>, "raw")),
    ?assertEqual({ok, <<"raw">>}, weir_memcached:get(C, <<"k">>)),
    ?assertMatch(#{requests := 3}, weir_memcached_test:counters(C)),
    ?assertExit({noproc, _}, weir_memcached:get(kernel_sup, <<"k">>)),
    %% Nobody else is stopped.
    [
        ?assertExit({noproc, {weir_memcached, client, [Other]}}, weir_memcached:stop(Other))
     || Other <- [kernel_safe_sup, logger, weir_pool_sup]
    ],
    ?assert(is_pid(whereis(kernel_safe_sup))).

%% Every function of a client that was never started exits with noproc.
unknown_client(_) ->
    C = nobody_has_started_this,
    [
        ?assertExit({noproc, {weir_memcached, client, [C]}}, Operation(C, <<"k">>))
     || Operation <- operations()
    ],
    [
        ?assertExit({noproc, {weir_memcached, client, [C]}}, Command())
     || Command <- [
            fun() -> weir_memcached:flush_all(C) end,
            fun() -> weir_memcached:stats(C) end,
            fun() -> weir_memcached:version(C) end,
            fun() -> weir_memcached:verbosity(C, 1) end,
            fun() -> weir_memcached:info(C) end
        ]
    ],
    ?assertExit({noproc, _}, weir_memcached:stop(C)).

%% info shows every counter and every connection.
info(Config) ->
    C = client(?FUNCTION_NAME, Config, #{connections => 3}),
    [ok = weir_memcached:set(C, integer_to_binary(N), N) || N <- lists:seq(1, 9)],
    {ok, #{connections := Connections} = Info} = weir_memcached:info(C),
    ?assertEqual(
        lists:sort([connections, servers | [Name || {Name, _, _, _} <- weir_memcached_counters:fields()]]),
        lists:sort(maps:keys(Info))
    ),
    #{servers := Servers} = Info,
    ?assertEqual(maps:without([connections, servers], Info), maps:remove(latency, hd(maps:values(Servers)))),
    ?assertMatch(#{requests := 10, connects := 3, disconnects := 0, connect_failures := 0, expired := 0}, Info),
    ?assertEqual(3, length(lists:usort([Pid || #{pid := Pid} <- Connections]))),
    %% One that does not tell in time has no number.
    ?assertMatch(
        [#{phase := up, pending := 0, pid := _}, #{phase := up}, #{phase := up}], weir_memcached_test:connections(C)
    ).

%% Clients do not know of each other: one's end is nothing to the other.
several_clients(Config) ->
    A = client(several_clients_a, Config, #{codec => raw}),
    B = client(several_clients_b, Config),
    ok = weir_memcached:set(A, <<"k">>, <<"v">>),
    ?assertEqual({error, {undecodable, <<"v">>}}, weir_memcached:get(B, <<"k">>)),
    ok = weir_memcached:stop(A),
    ?assertEqual(ok, weir_memcached:set(B, <<"k">>, v)),
    ?assertEqual({ok, v}, weir_memcached:get(B, <<"k">>)).
