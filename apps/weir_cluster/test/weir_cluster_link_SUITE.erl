%% What a node knows of another one, by its words alone.
-module(weir_cluster_link_SUITE).
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

reserve(Count, Window, Words) -> [weir_cluster_link:reserve(1, Window, Words) || _ <- lists:seq(1, Count)].

%% As many as the window, and not one more; each intake has its own.
window(_Config) ->
    Words = weir_cluster_link:new(2),
    [{ok, First} | _] = Reserved = reserve(16, 16, Words),
    ?assertEqual([{ok, First + I} || I <- lists:seq(0, 15)], Reserved),
    ?assertEqual(16, weir_cluster_link:unhandled(1, Words)),
    ?assertEqual([full, full], reserve(2, 16, Words)),
    %% Who was refused is not counted.
    ?assertEqual(16, weir_cluster_link:unhandled(1, Words)),
    ?assertMatch({ok, _}, weir_cluster_link:reserve(2, 16, Words)),
    ?assertEqual([{ok, First + 16}, full], reserve(2, 17, Words)).

%% What was taken up makes room for as many; an older number says nothing.
acknowledged(_Config) ->
    Words = weir_cluster_link:new(1),
    [{ok, First} | _] = reserve(16, 16, Words),
    ok = weir_cluster_link:handled(1, First + 4, Words),
    ok = weir_cluster_link:handled(1, First, Words),
    ?assertMatch([{ok, _}, {ok, _}, {ok, _}, {ok, _}, {ok, _}, full], reserve(6, 16, Words)),
    ok = weir_cluster_link:handled(1, weir_cluster_link:sent(1, Words), Words),
    ?assertEqual(0, weir_cluster_link:unhandled(1, Words)).

%% A node that is gone gets nothing more, and it is known when what was being sent is sent, or was not.
nothing_more_is_sent(_Config) ->
    Words = weir_cluster_link:new(2),
    ?assert(weir_cluster_link:is_sent(2, Words)),
    [{ok, _}, {ok, _}] = reserve(2, 16, Words),
    {ok, _} = weir_cluster_link:reserve(2, 16, Words),
    ok = weir_cluster_link:requested(Words),
    ok = weir_cluster_link:set_gone(Words),
    ?assertEqual(gone, weir_cluster_link:reserve(1, 16, Words)),
    ?assertNot(weir_cluster_link:is_sent(2, Words)),
    ok = weir_cluster_link:requested(Words),
    ?assertNot(weir_cluster_link:is_sent(2, Words)),
    ok = weir_cluster_link:count(busy, Words),
    ?assert(weir_cluster_link:is_sent(2, Words)).

%% Nothing is sent where all has ended, and who comes too late to hear how reads it.
ended(_Config) ->
    [
        begin
            Words = weir_cluster_link:new(1),
            ?assertMatch({ok, _}, weir_cluster_link:reserve(1, 16, Words)),
            ok = weir_cluster_link:set_ended(Reason, Words),
            ?assertEqual(gone, weir_cluster_link:reserve(1, 16, Words)),
            ?assertEqual(Told, weir_cluster_link:how_ended(Words))
        end
     || {Reason, Told} <- [{shutdown, shutdown}, {noconnection, noconnection}, {killed, killed}, {badarg, killed}]
    ].

%% It is known until then, and one millisecond later it is not. Before the first it is not either.
loads_grow_old(_Config) ->
    Words = weir_cluster_link:new(1),
    Now = erlang:monotonic_time(millisecond),
    ?assertEqual(unknown, weir_cluster_link:load(Now, 4, Words)),
    ok = weir_cluster_link:set_load(1500, 0, Now + 700, Words),
    ?assertEqual(1.5, weir_cluster_link:load(Now + 700, 4, Words)),
    ?assertEqual(unknown, weir_cluster_link:load(Now + 701, 4, Words)),
    %% One that came with a reply is known for a second.
    ok = weir_cluster_link:replied(2500, Words),
    Then = erlang:monotonic_time(millisecond),
    ?assertEqual(2.5, weir_cluster_link:load(Now + 1000, 4, Words)),
    ?assertEqual(unknown, weir_cluster_link:load(Then + 1001, 4, Words)).

%% What was sent since is added, for each worker.
loads_by_what_was_sent(_Config) ->
    Words = weir_cluster_link:new(1),
    Now = erlang:monotonic_time(millisecond),
    ok = weir_cluster_link:set_load(1000, 2, Now, Words),
    ?assertEqual(1.5, weir_cluster_link:load(Now, 4, Words)),
    _ = [ok = weir_cluster_link:requested(Words) || _ <- [1, 2]],
    ?assertEqual(2.0, weir_cluster_link:load(Now, 4, Words)).

%% By the third time-out in a row, of which one caller is told; an answer begins anew.
left_out(_Config) ->
    Words = weir_cluster_link:new(1),
    ok = weir_cluster_link:set_share(1000, Words),
    Late = fun() -> weir_cluster_link:timed_out(Words) end,
    ?assertEqual([ok, ok], [Late(), Late()]),
    ok = weir_cluster_link:answered(Words),
    ?assertEqual([ok, ok, left_out, ok], [Late(), Late(), Late(), Late()]),
    ?assertEqual(0, weir_cluster_link:share(Words)),
    ?assertNot(weir_cluster_link:is_let_in(0, Words)),
    %% Until then each is one too many.
    ok = weir_cluster_link:set_share(100, Words),
    ?assertEqual([left_out, ok], [Late(), Late()]),
    ok = weir_cluster_link:set_share(100, Words),
    ?assertEqual([true, true, false], [weir_cluster_link:is_let_in(N, Words) || N <- [0, 99, 100]]).
