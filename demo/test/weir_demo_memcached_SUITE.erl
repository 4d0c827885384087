%% The demo's memcached and the client of the old design, on each other.
-module(weir_demo_memcached_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([kill_and_restart/1, dies_with_its_owner/1, from_environment/1, bad_environment/1]).
-export([old_client/1, old_client_crowd/1]).

all() ->
    [kill_and_restart, dies_with_its_owner, from_environment, bad_environment, old_client, old_client_crowd].

init_per_testcase(_, Config) -> weir_demo_test_lib:own_memcached(Config).

end_per_testcase(_, Config) -> weir_demo_test_lib:restore_memcached(Config).

kill_and_restart(_) ->
    {ok, Server} = weir_demo_memcached:start(),
    ?assert(weir_demo_memcached:is_ours(Server)),
    ?assertMatch([_ | _], weir_demo_memcached:version(Server)),
    ok = with_old_client(Server, fun(C) -> weir_demo_old_client:set(C, <<"k">>, <<"v">>, 0) end),
    ok = weir_demo_memcached:kill(Server),
    ?assertEqual({error, econnrefused}, weir_demo_memcached:probe(Server)),
    ok = weir_demo_memcached:kill(Server),
    ok = weir_demo_memcached:restart(Server),
    ?assertEqual(ok, weir_demo_memcached:probe(Server)),
    ?assertEqual({error, not_found}, with_old_client(Server, fun(C) -> weir_demo_old_client:get(C, <<"k">>) end)),
    ok = weir_demo_memcached:stop(Server),
    ?assertEqual({error, econnrefused}, weir_demo_memcached:probe(Server)).

dies_with_its_owner(_) ->
    Self = self(),
    {Owner, Monitor} = spawn_monitor(fun() ->
        {ok, Server} = weir_demo_memcached:start(),
        Self ! {started, Server},
        receive
            stop -> ok
        end
    end),
    Server =
        receive
            {started, Started} -> Started
        end,
    ?assertEqual(ok, weir_demo_memcached:probe(Server)),
    exit(Owner, kill),
    receive
        {'DOWN', Monitor, process, Owner, killed} -> ok
    end,
    ?assert(weir_demo_client:await(fun() -> weir_demo_memcached:probe(Server) =:= {error, econnrefused} end, 5_000)).

from_environment(_) ->
    {ok, Ours} = weir_demo_memcached:start(),
    {_, Port} = weir_demo_memcached:address(Ours),
    os:putenv("MEMCACHED", "127.0.0.1:" ++ integer_to_list(Port)),
    {ok, Theirs} = weir_demo_memcached:start(),
    ?assertNot(weir_demo_memcached:is_ours(Theirs)),
    ?assertEqual({{127, 0, 0, 1}, Port}, weir_demo_memcached:address(Theirs)),
    ok = weir_demo_memcached:stop(Theirs),
    ?assertEqual(ok, weir_demo_memcached:probe(Ours)),
    ok = weir_demo_memcached:stop(Ours),
    ?assertMatch({error, {no_answer, _, econnrefused}}, weir_demo_memcached:start()).

bad_environment(_) ->
    [
        begin
            os:putenv("MEMCACHED", Text),
            ?assertEqual({error, {bad_address, Text}}, weir_demo_memcached:start())
        end
     || Text <- ["localhost", "localhost:", ":11211", "localhost:0", "localhost:65536", "localhost:http"]
    ].

old_client(_) ->
    {ok, Server} = weir_demo_memcached:start(),
    ok = with_old_client(Server, fun(C) ->
        ?assertEqual({error, not_found}, weir_demo_old_client:get(C, <<"none">>)),
        [
            begin
                Value = rand:bytes(Size),
                ?assertEqual(ok, weir_demo_old_client:set(C, <<"k">>, Value, 0)),
                ?assertEqual({ok, Value}, weir_demo_old_client:get(C, <<"k">>))
            end
         || Size <- [0, 1, 100, 1_460, 100_000, 1_000_000]
        ],
        ?assertEqual(ok, weir_demo_old_client:set(C, <<"k">>, <<"a\r\nEND\r\nb">>, 0)),
        ?assertEqual({ok, <<"a\r\nEND\r\nb">>}, weir_demo_old_client:get(C, <<"k">>)),
        ok
    end),
    ok = weir_demo_memcached:stop(Server).

old_client_crowd(_) ->
    {ok, Server} = weir_demo_memcached:start(),
    ok = with_old_client(Server, fun(C) ->
        Callers = [
            spawn_monitor(fun() ->
                Key = integer_to_binary(I),
                ok = weir_demo_old_client:set(C, Key, <<"value ", Key/binary>>, 0),
                {ok, <<"value ", Key/binary>>} = weir_demo_old_client:get(C, Key)
            end)
         || I <- lists:seq(1, 500)
        ],
        [
            receive
                {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason)
            end
         || {Pid, Monitor} <- Callers
        ],
        ok
    end),
    ok = weir_demo_memcached:stop(Server).

with_old_client(Server, Fun) ->
    {Host, Port} = weir_demo_memcached:address(Server),
    {ok, Client} = weir_demo_old_client:start_link(Host, Port),
    Result = Fun(Client),
    ok = weir_demo_old_client:stop(Client),
    Result.
