%% weir_memcached_ring. The oracle of the continuum is libmemcached itself, asked by a program of ours
%% (weir_memcached_ring_SUITE_data/ketama.c); what the distributions promise of movement and evenness is measured.
-module(weir_memcached_ring_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("proper/include/proper.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(KEYS, 50_000).
%% Keys of the cases about movement and about evenness.
-define(MOVING, 10_000).
-define(SHARED, 20_000).
-define(DISTRIBUTIONS, [ketama, {ketama, unweighted}, rendezvous, jump]).
-define(LIBMEMCACHED, [configurations, one_to_twenty_servers, a_hundred_servers, any_servers, servers_first]).

all() -> [{group, libmemcached} | weir_kit:cases(?MODULE) -- ?LIBMEMCACHED].

groups() -> [{libmemcached, [], ?LIBMEMCACHED}].

init_per_group(libmemcached, Config) ->
    case os:cmd("echo '#include <libmemcached/memcached.h>' | cc -fsyntax-only -x c - && echo -n there") of
        "there" ->
            Source = filename:join(?config(data_dir, Config), "ketama.c"),
            Program = filename:join(?config(priv_dir, Config), "ketama"),
            Command = ["cc -std=c11 -Wall -Wextra -O1 -o ", Program, " ", Source, " -lmemcached 2>&1 && echo built"],
            Printed = os:cmd(lists:flatten(Command)),
            ?assertNotEqual(nomatch, string:find(Printed, "built"), Printed),
            Keys = on_points() ++ keys(?KEYS - length(on_points())),
            [{program, Program}, {many, keys_file(Config, "many", Keys)},
                {few, keys_file(Config, "few", lists:sublist(Keys, 1000))} | Config];
        _ ->
            {skip, "libmemcached-dev and a C compiler are not here"}
    end.

end_per_group(libmemcached, _) -> ok.

%% ---------------------------------------------------------------- libmemcached

configurations(Config) ->
    [agree(Config, many, Servers) || Servers <- [
        servers(3),
        [{"10.0.0." ++ integer_to_list(I), 11211, 1} || I <- lists:seq(1, 8)],
        [{"127.0.0.1", 11210 + I, 1} || I <- lists:seq(1, 5)],
        [{"a", 11211, 1}, {"b", 11212, 3}, {"c", 1, 7}, {"d", 65535, 600}],
        [{"10.0.1." ++ integer_to_list(I), 11211, Weight}
         || {I, Weight} <- lists:zip(lists:seq(1, 8), [600, 300, 200, 350, 1000, 800, 950, 100])],
        [{"huge", 11211, 16#FFFFFFFF}, {"large", 11211, 16#FFFFFFFE}, {"small", 11211, 1 bsl 31}],
        [{"16777217", 11211, 16777217}, {"16777219", 11211, 16777219}, {"3", 11211, 33554435}],
        [{"::1", 11211, 2}, {"::1", 11213, 1}, {"2001:db8::7", 11211, 1}, {"fe80::1%eth0", 11212, 1}],
        [{"/run/memcached/1.sock", none, 1}, {"/run/memcached/2.sock", none, 2}, {"localhost", 11211, 3}],
        %% All points of equal servers are equal.
        [{"same", 11211, 1}, {"same", 11211, 1}, {"other", 11211, 1}, {"same", 11211, 5}],
        [{"h" ++ integer_to_list(I), 11000 + I, I} || I <- lists:seq(1, 20)]
    ]].

one_to_twenty_servers(Config) ->
    [agree(Config, few, lists:sublist([{"h" ++ integer_to_list(I), 11200 + I, 1} || I <- lists:seq(1, 20)], Count))
     || Count <- lists:seq(1, 20)].

%% libmemcached stops at one more: an assertion fails in it.
a_hundred_servers(Config) ->
    [agree(Config, few, [{"h" ++ integer_to_list(I), 11211, 1 + I rem Kinds} || I <- lists:seq(1, 100)])
     || Kinds <- [1, 5]].

any_servers(Config) ->
    Holds = ?FORALL(Servers, some_servers(), begin agree(Config, few, Servers), true end),
    weir_kit_property:holds(Holds, [quiet, {numtests, weir_kit:long(50, 100)}]).

%% A behaviour that is set after the servers were added makes libmemcached forget their weights, if it is the unweighted
%% one.
servers_first(Config) ->
    Servers = [{"a", 11211, 1}, {"b", 11212, 3}, {"c", 1, 7}],
    agree(Config, few, ketama, Servers, ask(Config, few, "servers-first", "weighted", Servers)),
    agree(Config, few, {ketama, unweighted}, [{Host, Port, 1} || {Host, Port, _} <- Servers],
        ask(Config, few, "servers-first", "unweighted", Servers)).

agree(Config, Which, Servers) ->
    agree(Config, Which, ketama, Servers, ask(Config, Which, "behavior-first", "weighted", Servers)),
    agree(Config, Which, {ketama, unweighted}, Servers,
        ask(Config, Which, "behavior-first", "unweighted", Servers)).

%% Key by key. What is told of a fault is the first key.
agree(Config, Which, Distribution, Servers, Expected) ->
    Keys = keys_in(?config(Which, Config)),
    Ring = ring(Distribution, Servers),
    ?assertEqual(length(Keys), length(Expected)),
    Wrong = [
        {Key, Owner, weir_memcached_ring:owner(Key, Ring)}
     || {Key, Owner} <- lists:zip(Keys, Expected), weir_memcached_ring:owner(Key, Ring) =/= Owner,
        Distribution =:= ketama orelse is_comparable(Key)
    ],
    ?assertMatch({_, _, []}, {Distribution, Servers, lists:sublist(Wrong, 1)}, {wrong, length(Wrong)}),
    ct:pal("~p: ~b keys over ~b servers, none elsewhere", [Distribution, length(Keys), length(Servers)]).

%% What is a char above 127 is another number to libmemcached's one_at_a_time on other machines.
is_comparable(Key) ->
    lists:prefix("x86_64", erlang:system_info(system_architecture)) orelse lists:max(binary_to_list(Key)) < 128.

ask(Config, Which, Order, Behavior, Servers) ->
    Args = lists:append([
        [Host, integer_to_list(case Port of none -> 0; _ -> Port end), integer_to_list(Weight)]
     || {Host, Port, Weight} <- Servers
    ]),
    Port = open_port({spawn_executable, ?config(program, Config)},
        [{args, [Order, Behavior, ?config(Which, Config) | Args]}, binary, exit_status, use_stdio]),
    [Index || <<Index:16>> <= printed(Port, [])].

printed(Port, Printed) ->
    receive
        {Port, {data, Data}} -> printed(Port, [Printed | Data]);
        {Port, {exit_status, 0}} -> iolist_to_binary(Printed);
        {Port, {exit_status, Status}} -> error({exit_status, Status, iolist_to_binary(Printed)})
    end.

keys_file(Config, Name, Keys) ->
    File = filename:join(?config(priv_dir, Config), Name),
    ok = file:write_file(File, [[<<(byte_size(Key)):16>>, Key] || Key <- Keys]),
    File.

keys_in(File) ->
    {ok, Bytes} = file:read_file(File),
    [Key || <<Size:16, Key:Size/binary>> <= Bytes].

%% Keys with the very hash of a point.
on_points() ->
    [<<Name/binary, $-, Number>> || Name <- [<<"a">>, <<"h1">>, <<"10.0.0.1">>, <<"::1">>, <<"same">>, <<"/a.sock:0">>],
        Number <- "0123456789"].

%% As memcached takes them: up to 250 bytes, none of them a space or a control character. Random bytes, names that
%% differ in a number, and text of several scripts.
keys(Count) ->
    _ = rand:seed(exsss, 42),
    [key(I rem 4, I) || I <- lists:seq(1, Count)].

key(0, _) -> << <<(random_byte())>> || _ <- lists:seq(1, rand:uniform(250)) >>;
key(1, I) -> <<"session:", (integer_to_binary(I))/binary>>;
key(2, I) -> integer_to_binary(I);
key(3, I) ->
    Letters = [lists:nth(rand:uniform(8), "aé-ßжλ日本") || _ <- lists:seq(1, rand:uniform(12))],
    unicode:characters_to_binary([Letters | integer_to_list(I)]).

random_byte() ->
    case 32 + rand:uniform(223) of
        127 -> random_byte();
        Byte -> Byte
    end.

some_servers() ->
    ?SUCHTHAT(Servers, list(server()), Servers =/= [] andalso length(Servers) =< 20).

server() ->
    Host = oneof(["a", "b", "cache.example.com", "::1", "10.0.0.1", "10.0.0.2"]),
    frequency([
        {9, {Host, oneof([11211, 11211, range(1, 65535)]), weight()}},
        {1, {oneof(["/a.sock", "/run/b.sock"]), none, weight()}}
    ]).

weight() ->
    frequency([{4, 1}, {4, range(1, 10)}, {2, range(1, 1000)}, {1, range(1, 16#FFFFFFFF)}]).

%% ---------------------------------------------------------------- all distributions

%% These were computed once, those of ketama by libmemcached 1.1.4. A change of them is a change for users.
known_owners(_) ->
    Keys = [<<"key">>, <<"a">>, <<"user:42">>, <<"session:1">>, <<"session:2">>, <<"session:3">>, <<"é日本"/utf8>>,
        binary:copy(<<"k">>, 250)],
    Equal = servers(5),
    Owners = fun(Distribution, Servers) -> [owner(Key, ring(Distribution, Servers)) || Key <- Keys] end,
    ?assertEqual([2, 2, 5, 2, 3, 1, 5, 1], Owners(ketama, Equal)),
    ?assertEqual([2, 3, 3, 3, 4, 5, 3, 3], Owners(ketama, weighted())),
    ?assertEqual([4, 3, 5, 1, 5, 4, 2, 5], Owners({ketama, unweighted}, Equal)),
    ?assertEqual([2, 4, 1, 3, 3, 1, 3, 3], Owners({ketama, unweighted}, weighted())),
    ?assertEqual([5, 4, 3, 3, 1, 2, 3, 4], Owners(rendezvous, Equal)),
    ?assertEqual([4, 4, 3, 4, 3, 3, 3, 4], Owners(rendezvous, weighted())),
    ?assertEqual([5, 4, 3, 4, 1, 4, 5, 3], Owners(jump, Equal)).

the_first_is_the_owner(_) ->
    each_ring(fun(Ring, _Size) ->
        [?assertEqual([owner(Key, Ring)], weir_memcached_ring:owners(Key, 1, Ring)) || Key <- numbered(1000)]
    end).

owners_are_distinct_and_prefixes(_) ->
    each_ring(fun(Ring, Size) ->
        [
            begin
                All = weir_memcached_ring:owners(Key, Size, Ring),
                ?assertEqual(lists:seq(1, Size), lists:sort(All)),
                [?assertEqual(lists:sublist(All, N), weir_memcached_ring:owners(Key, N, Ring))
                 || N <- lists:seq(1, Size + 2)]
            end
         || Key <- numbered(200)
        ]
    end).

each_ring(Test) ->
    [Test(ring(Distribution, Servers), length(Servers))
     || Distribution <- ?DISTRIBUTIONS,
        Servers <- [servers(1), servers(2), servers(3), servers(20)] ++ [weighted() || Distribution =/= jump]].

%% The others keep their keys and their order, wherever the server comes in, and it has its share. What is true of
%% coming is true of going, the other way round.
a_server_that_comes(_) ->
    Weighted = weighted(),
    [
        begin
            {Before, After} = lists:split(Place, Servers),
            New = {"new", 11211, Weight},
            Moved = comes(Distribution, Servers, Before ++ [New | After], New),
            Share = Weight / lists:sum([W || {_, _, W} <- [New | Servers]]),
            near(Share, Moved / ?MOVING, parts(Distribution, ?MOVING), {Distribution, Servers, New})
        end
     || {Distribution, Servers, Place, Weight} <- [
            {rendezvous, servers(1), 1, 1},
            {rendezvous, servers(2), 0, 1},
            {rendezvous, servers(20), 10, 1},
            {rendezvous, servers(5), 2, 7},
            {rendezvous, Weighted, 1, 100},
            {jump, servers(1), 1, 1},
            {jump, servers(2), 2, 1},
            {jump, servers(20), 20, 1},
            {{ketama, unweighted}, servers(1), 1, 1},
            {{ketama, unweighted}, servers(2), 0, 1},
            {{ketama, unweighted}, servers(20), 10, 1}
        ]
    ].

%% Returns how many of the keys moved.
comes(Distribution, Servers, More, New) ->
    Old = ring(Distribution, Servers),
    Now = ring(Distribution, More),
    length([
        Key
     || Key <- numbered(?MOVING),
        Row <- [named(weir_memcached_ring:owners(Key, length(More), Now), More)],
        ok =:= ?assertEqual(named(weir_memcached_ring:owners(Key, length(More), Old), Servers), Row -- [New]),
        hd(Row) =:= New
    ]).

%% Weights are part of how many points the others have, and so are the roundings of the mean.
a_server_that_comes_to_ketama(_) ->
    [
        begin
            More = Servers ++ [{"new", 11211, Weight}],
            {Old, Now} = {ring(ketama, Servers), ring(ketama, More)},
            Moved = [Key || Key <- numbered(20_000), owner(Key, Old) =/= owner(Key, Now)],
            Share = Weight / lists:sum([W || {_, _, W} <- More]),
            ?assert(length(Moved) < 20_000 * (Share + 0.1), {length(Moved), Share})
        end
     || {Servers, Weight} <- [{servers(2), 1}, {servers(8), 1}, {servers(20), 1}, {servers(4), 3}, {weighted(), 100}]
    ].

%% Only keys of the server that has another weight now move, all of them to it if it is more.
another_weight(_) ->
    [First, {Host, Port, Weight} = Old | Others] = weighted(),
    New = {Host, Port, Weight * 3},
    Less = [First, Old | Others],
    More = [First, New | Others],
    {Before, After} = {ring(rendezvous, Less), ring(rendezvous, More)},
    Moves = [{A, B} || Key <- numbered(20_000), A <- [owner(Key, Before)], B <- [owner(Key, After)], A =/= B],
    ?assertMatch([_ | _], Moves),
    ?assertEqual([2], lists:usort([B || {_, B} <- Moves])).

order_is_nothing_to_rendezvous(_) ->
    Servers = weighted(),
    Reverse = lists:reverse(Servers),
    {One, Other} = {ring(rendezvous, Servers), ring(rendezvous, Reverse)},
    [
        ?assertEqual(
            named(weir_memcached_ring:owners(Key, 9, One), Servers),
            named(weir_memcached_ring:owners(Key, 9, Other), Reverse)
        )
     || Key <- numbered(5000)
    ].

%% Of keys of several kinds; a share of keys is as near to that of the weight as keys and buckets allow.
shares(_) ->
    Kinds = [numbered(?SHARED), keys(?SHARED), [integer_to_binary(I) || I <- lists:seq(1, ?SHARED)]],
    [
        begin
            Counts = counts([owner(Key, Ring) || Key <- Keys]),
            Total = lists:sum([W || {_, _, W} <- Servers]),
            Parts = parts(Distribution, ?SHARED),
            [near(W / Total, maps:get(Index, Counts, 0) / ?SHARED, Parts, {Distribution, Servers})
             || {Index, {_, _, W}} <- lists:zip(lists:seq(1, length(Servers)), Servers)]
        end
     || {Distribution, Servers} <- [
            {ketama, servers(8)}, {ketama, weighted()}, {{ketama, unweighted}, servers(8)}, {rendezvous, servers(2)},
            {rendezvous, servers(20)}, {rendezvous, weighted()}, {jump, servers(2)}, {jump, servers(20)}
        ],
        Ring <- [ring(Distribution, Servers)],
        Keys <- Kinds
    ].

%% What a server had is shared by all others, by their weights.
shares_of_the_next(_) ->
    [
        begin
            Seconds = [Next || Key <- numbered(100_000), [1, Next] <- [weir_memcached_ring:owners(Key, 2, Ring)]],
            Total = lists:sum([W || {_, _, W} <- Others]),
            Counts = counts(Seconds),
            Parts = parts(Distribution, 100_000) * length(Seconds) / 100_000,
            [near(W / Total, maps:get(Index, Counts, 0) / length(Seconds), Parts, {Distribution, Index})
             || {Index, {_, _, W}} <- lists:zip(lists:seq(2, length(Others) + 1), Others)]
        end
     || {Distribution, [_ | Others] = Servers} <- [
            {ketama, servers(5)}, {rendezvous, servers(5)}, {rendezvous, weighted()}, {jump, servers(5)}
        ],
        Ring <- [ring(Distribution, Servers)]
    ].

%% How many parts of equal size the keys are given out in: points, buckets and the keys themselves.
parts(ketama, _) -> 160;
parts({ketama, unweighted}, _) -> 100;
parts(rendezvous, Keys) -> 1 / (1 / Keys + 1 / 16384);
parts(jump, Keys) -> Keys.

%% Within five standard deviations. The keys are the same in every run.
near(Expected, Is, Parts, What) ->
    Bound = 5 * math:sqrt(Expected * (1 - Expected) / Parts),
    ?assert(abs(Expected - Is) < Bound, {What, Expected, Is, Bound}).

a_server_without_points_is_the_last(_) ->
    Servers = [{"a", 11211, 1}, {"b", 11211, 7}, {"c", 11211, 3}, {"d", 11211, 600}],
    Ring = ring(ketama, Servers),
    [?assertMatch([_, _, 1, 3], weir_memcached_ring:owners(Key, 4, Ring)) || Key <- numbered(100)],
    ?assertEqual([2, 4], lists:usort([owner(Key, Ring) || Key <- numbered(10_000)])).

a_server_that_is_there_twice(_) ->
    [
        begin
            Ring = ring(Distribution, [{"other", 11211, 1}, {"same", 11211, 1}, {"same", 11211, 1}]),
            ?assertEqual([1, 2], lists:usort([owner(Key, Ring) || Key <- numbered(1000)]))
        end
     || Distribution <- [ketama, {ketama, unweighted}, rendezvous]
    ].

%% The key is not even looked at.
one_server(_) ->
    [
        begin
            Ring = ring(Distribution, servers(1)),
            ?assertEqual({1, [1], [1]}, {owner(no_key, Ring), weir_memcached_ring:owners(no_key, 1, Ring),
                weir_memcached_ring:owners(no_key, 2, Ring)})
        end
     || Distribution <- ?DISTRIBUTIONS
    ].

%% Strings are UTF-8 in names; a binary is what it is.
hosts(_) ->
    Both = fun(Distribution, Host, Port) -> ring(Distribution, [{Host, Port, 1}, {"x", 1, 1}]) end,
    [
        ?assertEqual(Both(Distribution, One, Port), Both(Distribution, Other, Port))
     || Distribution <- [ketama, {ketama, unweighted}, rendezvous],
        {One, Other, Port} <- [{"a", <<"a">>, 11211}, {"/é", <<"/é"/utf8>>, none}, {"::1", <<"::1">>, 7}]
    ],
    ?assertEqual(Both(ketama, "/a", none), Both(ketama, "/a", 0)).

limits(_) ->
    Many = fun(Distribution, Count) -> weir_memcached_ring:new(Distribution, servers(Count)) end,
    [
        begin
            {ok, Ring} = Many(Distribution, 1024),
            ?assertEqual(1024, length(weir_memcached_ring:owners(<<"k">>, 1025, Ring))),
            ?assertMatch({error, {bad_option, servers, [_ | _]}}, Many(Distribution, 1025))
        end
     || Distribution <- ?DISTRIBUTIONS -- [rendezvous]
    ],
    Server = fun(Server) -> weir_memcached_ring:new(ketama, [{"a", 11211, 1}, Server]) end,
    Max = {"b", 65535, 16#FFFFFFFF},
    ?assertMatch({ok, _}, Server(Max)),
    [?assertEqual({error, {bad_option, server, Wrong}}, Server(Wrong))
     || Wrong <- [{"b", 65536, 1}, {"b", -1, 1}, {"b", 1, 16#FFFFFFFF + 1}, {"b", 1, 0}]],
    ?assertMatch({ok, _}, weir_memcached_ring:new(jump, servers(3))),
    ?assertEqual({error, {contradicting_options, {distribution, jump}, {weight, 2}}},
        weir_memcached_ring:new(jump, servers(3) ++ [{"b", 1, 2}])),
    [?assertError(function_clause, weir_memcached_ring:owners(<<"k">>, 0, ring(Distribution, servers(Count))))
     || Distribution <- ?DISTRIBUTIONS, Count <- [1, 2]].

wrong(_) ->
    [?assertEqual({error, {bad_option, distribution, Wrong}}, weir_memcached_ring:new(Wrong, servers(2)))
     || Wrong <- [modula, {ketama, weighted}, <<"ketama">>, 1]],
    [?assertEqual({error, {bad_option, servers, Wrong}}, weir_memcached_ring:new(ketama, Wrong))
     || Wrong <- [[], none, {}, [{"a", 1, 1} | {"b", 1, 1}]]],
    [?assertEqual({error, {bad_option, server, Wrong}}, weir_memcached_ring:new(Distribution, servers(2) ++ [Wrong]))
     || Distribution <- ?DISTRIBUTIONS,
        Wrong <- [a, {"a", 1}, {"", 1, 1}, {<<>>, 1, 1}, {a, 1, 1}, {{127, 0, 0, 1}, 1, 1}, {"a", undefined, 1},
            {"a", 1, 1.5}, {"a", 1.0, 1}, {[-1], 1, 1}]].

%% ---------------------------------------------------------------- what the cases share

ring(Distribution, Servers) ->
    {ok, Ring} = weir_memcached_ring:new(Distribution, Servers),
    Ring.

owner(Key, Ring) -> weir_memcached_ring:owner(Key, Ring).

servers(Count) -> [{"cache" ++ integer_to_list(I) ++ ".example.com", 11211, 1} || I <- lists:seq(1, Count)].

weighted() -> [{"a", 11211, 100}, {"b", 11212, 50}, {"c", 11211, 200}, {"d", 11211, 75}, {"/e.sock", none, 25}].

numbered(Count) -> [<<"user:", (integer_to_binary(I))/binary>> || I <- lists:seq(1, Count)].

named(Indexes, Servers) -> [lists:nth(Index, Servers) || Index <- Indexes].

counts(List) ->
    lists:foldl(fun(Each, Counts) -> maps:update_with(Each, fun(N) -> N + 1 end, 1, Counts) end, #{}, List).
