%% The sections of the demo that use memcached, in small sizes.
-module(weir_demo_sections_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

end_per_testcase(_Case, _Config) ->
    _ = application:stop(weir_memcached),
    ok.

oneshot(_) ->
    #{said := Said} = Outcome = with_memcached(fun(Context) ->
        weir_demo_oneshot:run(Context, #{callers => 300, more => 500, plain_ms => 60_000})
    end),
    kept(Outcome, 2),
    ?assertMatch({match, _}, re:run(Said, "^300 callers were answered in .* 500 in .*; a plain gen_server took ")).

%% The text compares no figures if the plain gen_server has not answered all callers.
oneshot_with_a_slow_peer(_) ->
    #{said := Said} = Outcome = with_memcached(fun(Context) ->
        weir_demo_oneshot:run(Context, #{callers => 20_000, more => 300, plain_ms => 1})
    end),
    kept(Outcome, 2),
    ?assertMatch({match, _}, re:run(Said, "a plain gen_server was stopped after .* of 20,000 answered\\.$")),
    ?assertEqual(nomatch, re:run(Said, "times")).

recovery(_) ->
    Sizes = #{callers => 20, before_ms => 200, down_ms => 100, after_ms => 2000},
    Outcome = with_memcached(fun(Context) -> weir_demo_recovery:run(Context, Sizes) end),
    #{plots := [#{marks := Marks}]} = Outcome,
    kept(Outcome, 2),
    ?assertMatch([{_, "killed"}, {_, "up"}], Marks).

%% The section loads a memcached that the demo has not started, and does not kill it.
recovery_of_others(_) ->
    Sizes = #{callers => 20, before_ms => 200, down_ms => 100, after_ms => 200},
    Outcome = with_memcached(fun(#{server := Server} = Context) ->
        weir_demo_recovery:run(Context#{server := Server#{holder := none}}, Sizes)
    end),
    kept(Outcome, 2).

kept(#{said := Said, promises := Promises, plots := Plots}, Number) ->
    ?assertEqual(Number, length(Promises)),
    ?assertEqual([], [unicode:characters_to_list(What) || {What, false} <- Promises]),
    ?assertMatch([_ | _], unicode:characters_to_list(Said)),
    [?assertMatch([_ | _], unicode:characters_to_list(weir_demo_plot:render(Plot))) || Plot <- Plots].

with_memcached(Fun) ->
    {ok, _} = application:ensure_all_started(weir_memcached),
    Server = weir_kit_memcached:start(),
    try
        Fun(#{server => Server, prefix => <<"test:">>})
    after
        ok = weir_kit_memcached:stop(Server)
    end.
