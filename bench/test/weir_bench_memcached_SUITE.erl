%% The benchmarks of the memcached server, in small sizes: every answer is right, and every table has both contestants.
-module(weir_bench_memcached_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

server_part(_Config) ->
    Tables = weir_bench_memcached_server:run(1, #{
        loads => [{2, 1}, {2, 5}], idle => 50, silence => 0, warm => 0, ms => 50, memcaslap => 3
    }),
    Slapped = [Table || #{title := Title} = Table <- Tables, string:prefix(Title, "memcaslap") =/= nomatch],
    %% Where it is not installed its table is left out.
    Expected = case weir_bench_memcached_server:memcaslap() of false -> 0; _ -> 1 end,
    ?assertEqual({9 + Expected, Expected}, {length(Tables), length(Slapped)}),
    [
        ?assert(Rate > 0, {Name, Rate})
     || #{ours := Ours, peers := Peers} <- Slapped, #{name := Name, figures := [Rate]} <- Ours ++ Peers
    ],
    complete(Tables).

hits_part(_Config) ->
    Tables = weir_bench_memcached_hits:run(1, #{keys => 1_000, gets => 4_000, megabytes => 8}),
    ?assertEqual(2, length(Tables)),
    complete(Tables),
    %% There is room for all, and each key is missed once at most.
    [?assert(Hits > 50) || #{ours := [#{figures := [Hits]}]} <- Tables].

complete(Tables) ->
    [
        begin
            ?assertMatch({["weir_memcached_server"], ["memcached"]}, {names(Ours), names(Peers)}),
            ?assert(is_list(unicode:characters_to_list(weir_bench_table:render(Table))))
        end
     || #{ours := Ours, peers := Peers} = Table <- Tables
    ].

names(Results) -> [Name || #{name := Name} <- Results].
