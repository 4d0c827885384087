%% Values that are kept compressed. The oracle of the bytes is Python's zlib, as pylibmc uses it.
-module(weir_memcached_zip_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("common_test/include/ct.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-define(FLAG, 8).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    [{server, weir_kit_memcached:start()} | weir_memcached_test:set_up(weir_memcached, Config)].

end_per_suite(Config) ->
    weir_kit_memcached:stop(?config(server, Config)),
    weir_memcached_test:tear_down(Config).

%% A client with these options, and one that leaves the bytes as they are.
with(Config, Options, Test) ->
    Server = weir_memcached_test:options(?config(server, Config)),
    Clients = [{zipped, maps:merge(Server, Options)}, {plain, Server#{codec => raw}}],
    Pids = [element(2, {ok, _} = weir_memcached:start_link(Name, Each)) || {Name, Each} <- Clients],
    try
        lists:foreach(fun({Name, _}) -> weir_memcached_test:up(Name) end, Clients),
        Test()
    after
        lists:foreach(fun unlink/1, Pids),
        lists:foreach(fun({Name, _}) -> weir_memcached:stop(Name) end, Clients)
    end.

%% What is stored is read again, by every function that reads.
any_value(Config) ->
    with(Config, #{compress => {32, ?FLAG}, request_timeout => infinity}, fun() ->
        Holds = ?FORALL(Value, ?LET({B, N}, {binary(), range(1, 50)}, {binary:copy(B, N), B}), begin
            ok = weir_memcached:set(zipped, "k", Value),
            {ok, Read, Cas} = weir_memcached:gets(zipped, "k"),
            ok = weir_memcached:cas(zipped, "k", Value, Cas),
            {ok, #{"k" := Many}} = weir_memcached:get_many(zipped, ["k"]),
            [Value, Value, Value] =:= [Read, Many, element(2, weir_memcached:get(zipped, "k"))]
        end),
        weir_kit_property:holds(Holds, [quiet, {numtests, 100}])
    end).

%% What is at most so large, or does not become smaller, is kept as it is.
large_and_small(Config) ->
    with(Config, #{codec => raw, compress => {100, ?FLAG}}, fun() ->
        Kept = fun(Value) ->
            ok = weir_memcached:set(zipped, "k", Value),
            {ok, Value} = weir_memcached:get(zipped, "k"),
            {ok, Bytes} = weir_memcached:get(plain, "k"),
            Bytes =:= Value
        end,
        ?assert(Kept(binary:copy(<<"a">>, 100))),
        ?assertNot(Kept(binary:copy(<<"a">>, 101))),
        ?assert(Kept(incompressible(1000)))
    end).

%% No two runs of it are the same for zlib.
incompressible(Size) ->
    State = rand:seed_s(exsss, 42),
    {Bytes, _} = lists:mapfoldl(fun(_, S) -> rand:uniform_s(256, S) end, State, lists:seq(1, Size)),
    << <<(Byte - 1)>> || Byte <- Bytes >>.

what_others_wrote(Config) ->
    with(Config, #{codec => raw, compress => {100, ?FLAG}}, fun() ->
        ok = weir_memcached:set(plain, "k", python("zlib.compress(b'abc' * 1000)"), #{flags => ?FLAG}),
        ?assertEqual({ok, binary:copy(<<"abc">>, 1000)}, weir_memcached:get(zipped, "k"))
    end).

what_others_read(Config) ->
    with(Config, #{codec => raw, compress => {100, ?FLAG}}, fun() ->
        ok = weir_memcached:set(zipped, "k", binary:copy(<<"abc">>, 1000)),
        {ok, Bytes} = weir_memcached:get(plain, "k"),
        ?assert(byte_size(Bytes) < 100),
        Read = ["zlib.decompress(base64.b64decode('", base64:encode(Bytes), "'))"],
        ?assertEqual(binary:copy(<<"abc">>, 1000), python(Read))
    end).

%% The value of an expression of Python's, which is bytes.
python(Expression) ->
    Program = ["import zlib, base64; print(base64.b64encode(", Expression, ").decode())"],
    Port = open_port({spawn_executable, os:find_executable("python3")},
        [{args, ["-c", unicode:characters_to_list(Program)]}, {line, 1 bsl 20}, binary, exit_status]),
    Printed = receive {Port, {data, {eol, Line}}} -> Line end,
    receive {Port, {exit_status, 0}} -> ok end,
    base64:decode(Printed).

%% At most max_term bytes, and none that were asked for beyond them.
bombs(Config) ->
    with(Config, #{codec => raw, compress => {100, ?FLAG}, max_term => 1000}, fun() ->
        Read = fun(Size) ->
            ok = weir_memcached:set(plain, "k", zlib:compress(binary:copy(<<0>>, Size)), #{flags => ?FLAG}),
            weir_memcached:get(zipped, "k")
        end,
        ?assertEqual({ok, binary:copy(<<0>>, 1000)}, Read(1000)),
        ?assertMatch({error, {undecodable, _}}, Read(1001)),
        ?assertMatch({error, {undecodable, _}}, Read(100_000_000))
    end).

%% What zlib did not make, or not as a whole, is not given as a value.
damage(Config) ->
    with(Config, #{codec => raw, compress => {100, ?FLAG}}, fun() ->
        Good = zlib:compress(binary:copy(<<"abc">>, 100)),
        Bad = [<<>>, <<"no zlib">>] ++ [binary:part(Good, 0, Size) || Size <- lists:seq(1, byte_size(Good) - 1)],
        lists:foreach(fun(Bytes) ->
            ok = weir_memcached:set(plain, "k", Bytes, #{flags => ?FLAG}),
            ?assertEqual({error, {undecodable, Bytes}}, weir_memcached:get(zipped, "k"))
        end, Bad)
    end).

%% The other bits are the user's. His own use of this one is refused, and nothing is stored.
flags(Config) ->
    with(Config, #{codec => weir_memcached_test_codec, compress => {100, 4}}, fun() ->
        Large = binary:copy(<<"a">>, 1000),
        ok = weir_memcached:set(zipped, "k", Large, #{flags => 16}),
        ?assertEqual({ok, {plain, 16, Large}}, weir_memcached:get(zipped, "k")),
        ok = weir_memcached:set(zipped, "k", {backwards, Large}, #{flags => 16}),
        ?assertEqual({ok, {backwards, 18, Large}}, weir_memcached:get(zipped, "k")),
        ?assertError({bad_option, flags, 4}, weir_memcached:set(zipped, "k", <<"a">>, #{flags => 4})),
        ?assertEqual({ok, {backwards, 18, Large}}, weir_memcached:get(zipped, "k"))
    end).

%% Bytes behind compressed ones would be lost.
concat(Config) ->
    with(Config, #{codec => raw, compress => {100, ?FLAG}}, fun() ->
        ok = weir_memcached:set(zipped, "k", <<"a">>),
        ?assertError({bad_option, compress, {100, ?FLAG}}, weir_memcached:append(zipped, "k", "b")),
        ?assertError({bad_option, compress, {100, ?FLAG}}, weir_memcached:prepend(zipped, "k", "b")),
        ?assertEqual({ok, <<"a">>}, weir_memcached:get(zipped, "k"))
    end).

options(_) ->
    Wrong = [on, 100, {0, 8}, {100, 0}, {100, 3}, {100, 1 bsl 32}, {100, 8, 1}, {a, 8}],
    [
        ?assertEqual({error, {bad_option, compress, Value}}, weir_memcached:start_link(zipped, #{compress => Value}))
     || Value <- Wrong
    ].
