%% fetch: one computes, on the node and among nodes; what fails, is killed or takes too long; what is stale, negative or
%% soon over. Nodes are clients of the same server that have nothing in common but that; and once real nodes.
-module(weir_memcached_fetch_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_memcached_config.hrl").

-compile([export_all, nowarn_export_all]).
%% For other nodes.

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> [{server, weir_kit_memcached:start()} | weir_memcached_test:set_up(weir_memcached, Config)].

end_per_suite(Config) ->
    weir_kit_memcached:stop(proplists:get_value(server, Config)),
    weir_memcached_test:tear_down(Config).

%% Runs with as many clients, on a server without items.
with(N, Config, Case) -> with(N, #{}, Config, Case).

with(N, Options, Config, Case) ->
    Address = weir_memcached_test:options(proplists:get_value(server, Config)),
    Clients = [list_to_atom("fetch_" ++ integer_to_list(I)) || I <- lists:seq(1, N)],
    Defaults = Address#{await => 60_000, connections => 1},
    [{ok, _} = weir_memcached:start_link(C, maps:merge(Defaults, Options)) || C <- Clients],
    ok = weir_memcached:flush_all(hd(Clients)),
    _ = case Clients of [C] -> Case(C); _ -> Case(Clients) end,
    [ok = weir_memcached:stop(C) || C <- Clients],
    ok.

fetch(C, Fun) -> fetch(C, Fun, #{}).

fetch(C, Fun, Options) -> weir_memcached:fetch(C, <<"k">>, Fun, maps:merge(#{wait => 60_000}, Options)).

caller(Fun) -> weir_memcached_test:caller(Fun).

answer(Caller) -> weir_memcached_test:answer(Caller).

until(Condition) -> weir_memcached_test:until(Condition).

%% A function that says when it has begun, and goes on when it is told what to return.
gated() ->
    Test = self(),
    fun() ->
        Test ! {begun, self()},
        receive
            {return, Result} -> Result;
            {raise, Reason} -> error(Reason)
        end
    end.

begun() ->
    receive
        {begun, Pid} -> Pid
    after 60_000 -> error(not_begun)
    end.

nobody_begins() ->
    receive
        {begun, Pid} -> error({begun, Pid})
    after 0 -> ok
    end.

never() -> fun() -> error(must_not_be_called) end.

%% So many processes of a client wait for another one.
followers(C, N) ->
    {_, Followers} = flights(C),
    until(fun() -> ets:info(Followers, size) =:= N end).

flights(C) -> (weir_memcached_config:fetch(C))#config.flights.

counters(C) -> weir_memcached_test:counters(C).

%% ----------------------------------------------------------------

hit_and_miss(Config) ->
    with(1, Config, fun(C) ->
        ?assertEqual({ok, {v, 1}}, fetch(C, fun() -> {ok, {v, 1}} end, #{ttl => 500, flags => 9})),
        ?assertEqual({ok, {v, 1}}, fetch(C, never())),
        ?assertEqual({ok, {v, 1}}, weir_memcached:get(C, <<"k">>)),
        ?assertMatch({ok, #{ttl := Ttl, flags := 9}} when Ttl > 400, weir_memcached:item(C, <<"k">>)),
        ?assertEqual({ok, 2}, weir_memcached:fetch(C, "other", fun() -> {ok, 2} end)),
        ?assertMatch({ok, #{ttl := infinity}}, weir_memcached:item(C, <<"other">>)),
        ?assertMatch(#{computed := 2, shared := 0, stale := 0}, counters(C)),
        ?assertEqual({error, {bad_key, <<>>}}, weir_memcached:fetch(C, <<>>, never()))
    end).

%% A thousand ask, one computes.
once_for_all_on_a_node(Config) ->
    with(1, Config, fun(C) ->
        Fun = gated(),
        Callers = [caller(fun() -> fetch(C, Fun) end) || _ <- lists:seq(1, 1000)],
        Leader = begun(),
        followers(C, 999),
        Leader ! {return, {ok, value}},
        ?assertEqual([{ok, value}], lists:usort([answer(Caller) || Caller <- Callers])),
        ?assertMatch(#{computed := 1, shared := 999}, counters(C)),
        nobody_begins()
    end).

%% And so among clients that have nothing in common but the server.
once_for_all_nodes(Config) ->
    with(4, Config, fun(Clients) ->
        Fun = gated(),
        Callers = [caller(fun() -> fetch(C, Fun, #{lease => 1000}) end) || _ <- lists:seq(1, 250), C <- Clients],
        Leader = begun(),
        [followers(C, 249) || C <- Clients],
        Leader ! {return, {ok, value}},
        ?assertEqual([{ok, value}], lists:usort([answer(Caller) || Caller <- Callers])),
        ?assertEqual([0, 0, 0, 1], lists:sort([maps:get(computed, counters(C)) || C <- Clients])),
        nobody_begins()
    end).

%% The item expires again and again while all ask: one computes at a time, and each value is one run's.
once_when_it_expires(Config) ->
    with(4, Config, fun(Clients) ->
        Runs = atomics:new(2, []),
        Fun = fun() ->
            1 = atomics:add_get(Runs, 1, 1),
            N = atomics:add_get(Runs, 2, 1),
            receive after 5 -> ok end,
            ok = atomics:sub(Runs, 1, 1),
            {ok, N}
        end,
        Loop = fun Loop(C, Seen) ->
            case fetch(C, Fun, #{ttl => 1}) of
                {ok, N} when N < 4 -> Loop(C, [N | Seen]);
                {ok, N} -> [N | Seen]
            end
        end,
        Seen = weir_kit:in_parallel([fun() -> Loop(C, []) end || _ <- lists:seq(1, 25), C <- Clients]),
        ?assertEqual(lists:seq(1, atomics:get(Runs, 2)), lists:usort(lists:append(Seen)))
    end).

%% Who calls it gets what it raises; who waits is told; the next computes.
raises(Config) ->
    with(2, Config, fun([A, B]) ->
        Fun = gated(),
        [First | Others] = [caller(fun() -> try fetch(A, Fun) catch _:Why -> {raised, Why} end end)
            || _ <- lists:seq(1, 10)],
        Leader = begun(),
        followers(A, 9),
        Leader ! {raise, oops},
        Answers = [answer(Caller) || Caller <- [First | Others]],
        ?assertMatch([_], [raised || {raised, oops} <- Answers]),
        ?assertEqual(9, length([told || {error, {raised, error, oops}} <- Answers])),
        %% The lease was given back: nobody waits for it.
        ?assertEqual({ok, 1}, fetch(B, fun() -> {ok, 1} end, #{lease => 1000}))
    end).

errors(Config) ->
    with(2, Config, fun([A, B]) ->
        Fun = gated(),
        Callers = [caller(fun() -> fetch(A, Fun) end) || _ <- lists:seq(1, 10)],
        Leader = begun(),
        followers(A, 9),
        Leader ! {return, {error, database_down}},
        ?assertEqual([{error, database_down}], lists:usort([answer(Caller) || Caller <- Callers])),
        ?assertEqual({ok, 1}, fetch(B, fun() -> {ok, 1} end)),
        ?assertThrow(stop, weir_memcached:fetch(A, <<"other">>, fun() -> throw(stop) end)),
        ?assertEqual({ok, 2}, weir_memcached:fetch(A, <<"other">>, fun() -> {ok, 2} end))
    end).

%% Whoever computes is killed, again and again: another one who waits goes on, and all get the value.
killed(Config) ->
    with(1, Config, fun(C) ->
        Fun = gated(),
        %% The server keeps the place for one that was killed; another one of the same node goes on in it.
        Lease = #{lease => 1000},
        Callers = [spawn_monitor(fun() -> exit({result, fetch(C, Fun, Lease)}) end) || _ <- lists:seq(1, 20)],
        Dead = [
            begin
                Leader = begun(),
                followers(C, 20 - I),
                exit(Leader, kill),
                Leader
            end
         || I <- [1, 2, 3]
        ],
        Leader = begun(),
        followers(C, 16),
        Leader ! {return, {ok, value}},
        Living = [Caller || {Pid, _} = Caller <- Callers, not lists:member(Pid, Dead)],
        ?assertEqual([{ok, value}], lists:usort([answer(Caller) || Caller <- Living])),
        nobody_begins(),
        ?assertEqual({ok, value}, fetch(C, never()))
    end).

%% The client is stopped: who computes gets what that gives, and who waits for it is told.
stopped_meanwhile(Config) ->
    Stops = fun(C, Leader) ->
        Stopping = caller(fun() -> weir_memcached:stop(C) end),
        ?assertEqual(ok, answer(Stopping)),
        Leader ! {return, {ok, value}}
    end,
    {Led, Followed} = ended_meanwhile(Stops, Config),
    ?assertEqual({ok, value}, Led),
    ?assertEqual([{error, disconnected}], lists:usort(Followed)).

%% The tables are gone without a word, and are made anew.
killed_with_tables(Config) ->
    Kills = fun(C, Leader) ->
        #config{publisher = Publisher} = weir_memcached_config:fetch(C),
        exit(Publisher, kill),
        until(fun() -> (weir_memcached_config:fetch(C))#config.publisher =/= Publisher end),
        Leader ! {return, {ok, value}},
        until(fun() -> not is_process_alive(Leader) end),
        ok = weir_memcached:stop(C)
    end,
    {Led, Followed} = ended_meanwhile(Kills, Config),
    ?assertEqual({ok, value}, Led),
    %% They see the leader's end, and ask again.
    ?assertEqual([{ok, value}], lists:usort(Followed)).

ended_meanwhile(Ends, Config) ->
    C = ?FUNCTION_NAME,
    Address = weir_memcached_test:options(proplists:get_value(server, Config)),
    {ok, _} = weir_memcached:start_link(C, Address#{await => 60_000}),
    ok = weir_memcached:flush_all(C),
    Fun = gated(),
    Leading = caller(fun() -> fetch(C, Fun) end),
    Leader = begun(),
    Following = [caller(fun() -> fetch(C, fun() -> {ok, value} end) end) || _ <- lists:seq(1, 5)],
    followers(C, 5),
    Ends(C, Leader),
    {answer(Leading), [answer(Caller) || Caller <- Following]}.

%% Who looks at a stale item is told that it has won, and gives that back.
item_wins_nothing(Config) ->
    with(2, Config, fun([A, B]) ->
        {ok, old} = fetch(A, fun() -> {ok, old} end),
        ok = weir_memcached:invalidate(A, <<"k">>),
        [
            ?assertMatch({ok, #{value := old, stale := true, leased := false}}, weir_memcached:item(C, <<"k">>))
         || C <- [A, B]
        ],
        ?assertEqual({ok, new}, fetch(B, fun() -> {ok, new} end))
    end).

%% The item is good still, so who cannot compute it anew gets that, and so do others until it expires.
early_and_failing(Config) ->
    with(2, Config, fun([A, B]) ->
        {ok, old} = fetch(A, fun() -> {ok, old} end, #{ttl => 100}),
        Early = #{early => 2_592_000, ttl => 100},
        Test = self(),
        ?assertEqual({ok, old}, fetch(A, fun() -> Test ! called, {error, no} end, Early)),
        receive called -> ok after 0 -> error(not_called) end,
        [?assertEqual({ok, old}, fetch(C, never(), Options)) || C <- [A, B], Options <- [#{}, Early]],
        ?assertMatch({ok, #{stale := false}}, weir_memcached:item(A, <<"k">>))
    end).

%% The item is gone when its refresh is asked for: what is won then is nobody's yet, and is given back as that.
early_and_too_late(Config) ->
    Server = proplists:get_value(server, Config),
    Once = once(fun() -> <<"DELETED\r\n">> = weir_kit_memcached:raw(Server, <<"delete k\r\n">>) end),
    with_proxy(Once, Config, fun(C) ->
        ok = weir_memcached:set(C, <<"k">>, old, #{ttl => 100}),
        Failing = #{early => 2_592_000, lease => 1000},
        ?assertEqual({ok, old}, fetch(C, fun() -> {error, no} end, Failing)),
        ?assertEqual({ok, new}, fetch(C, fun() -> {ok, new} end, #{lease => 1000, wait => 2000}))
    end).

%% Whoever computes without knowing whether another one does replaces nothing.
not_told_who_computes(Config) ->
    Server = proplists:get_value(server, Config),
    Test = self(),
    Once = once(fun() -> Test ! {held, self()}, receive go -> ok end end),
    with_proxy(Once, Config, fun(C) ->
        Fetch = fun Fetch() ->
            #{requests := Before} = counters(C),
            Fun = fun() ->
                case counters(C) of
                    %% It was looked for, and then the lease was asked for.
                    #{requests := Sent} when Sent =:= Before + 2 ->
                        <<"STORED\r\n">> = weir_kit_memcached:raw(Server, <<"set k 0 0 3\r\nnew\r\n">>),
                        receive {held, Pid} -> Pid ! go after 60_000 -> error(not_held) end,
                        {ok, <<"old">>};
                    _ ->
                        {error, late}
                end
            end,
            case fetch(C, Fun, #{codec => raw, timeout => 500}) of
                {error, late} -> Fetch();
                Result -> Result
            end
        end,
        ?assertEqual({ok, <<"old">>}, Fetch()),
        ?assertEqual({ok, <<"new">>}, weir_memcached:get(C, <<"k">>, #{codec => raw, timeout => infinity}))
    end).

%% A client of a server that is asked for a lease only after the function has run.
with_proxy(Before, Config, Case) ->
    Proxy = weir_memcached_test_proxy:start(proplists:get_value(server, Config), fun(_, Way, Bytes) ->
        Way =:= to_server andalso binary:match(Bytes, <<" N">>) =/= nomatch andalso Before()
    end),
    with(1, #{}, [{server, Proxy} | Config], Case),
    ok = weir_memcached_test_proxy:stop(Proxy).

once(Fun) ->
    Times = atomics:new(1, []),
    fun() -> atomics:add_get(Times, 1, 1) =:= 1 andalso Fun() end.

%% Whether the client's codec is named or not, it is the same.
codec_by_name(Config) ->
    with(1, Config, fun(C) ->
        Fun = gated(),
        Leading = caller(fun() -> fetch(C, Fun) end),
        Leader = begun(),
        Following = caller(fun() -> fetch(C, never(), #{codec => term}) end),
        followers(C, 1),
        Leader ! {return, {ok, value}},
        ?assertEqual([{ok, value}, {ok, value}], [answer(Leading), answer(Following)])
    end).

%% The winner of all nodes is killed: another node computes when its lease is over.
killed_among_nodes(Config) ->
    with(2, Config, fun([A, B]) ->
        Fun = gated(),
        {Winner, _} = spawn_monitor(fun() -> fetch(A, Fun, #{lease => 1}) end),
        Winner = begun(),
        Other = caller(fun() -> fetch(B, fun() -> {ok, value} end) end),
        exit(Winner, kill),
        ?assertEqual({ok, value}, answer(Other)),
        ?assertEqual({ok, value}, fetch(A, never()))
    end).

%% Those who wait may be killed, too: nothing of them stays.
last_waiter_killed(Config) ->
    with(1, Config, fun(C) ->
        Fun = gated(),
        Leading = caller(fun() -> fetch(C, Fun) end),
        Leader = begun(),
        Waiting = [element(1, caller(fun() -> fetch(C, Fun) end)) || _ <- lists:seq(1, 10)],
        followers(C, 10),
        [exit(Pid, kill) || Pid <- Waiting],
        ok = weir_memcached_flight:tidy(flights(C)),
        followers(C, 0),
        Leader ! {return, {ok, 1}},
        ?assertEqual({ok, 1}, answer(Leading))
    end).

%% Who waits for one that was killed goes on with what that one had, however late it sees that; and only then the row of
%% the dead is nobody's.
tidied_before_it_is_seen(_) ->
    {Leaders, Followers} = Flights = weir_memcached_flight:new(),
    Test = self(),
    Until = erlang:monotonic_time(millisecond) + 60_000,
    Run = fun(Fun, Heir) -> weir_memcached_flight:run(k, Flights, Fun, Heir, Until) end,
    Holds = fun() ->
        ok = weir_memcached_flight:hold(k, Flights, won),
        Test ! {begun, self()},
        receive never -> ok end
    end,
    {Leader, Dies} = spawn_monitor(fun() -> Run(Holds, fun(_) -> error(leads) end) end),
    Leader = begun(),
    {Follower, _} = Following = caller(fun() -> Run(never(), fun(Held) -> Held end) end),
    until(fun() -> ets:info(Followers, size) =:= 1 andalso process_info(Follower, status) =:= {status, waiting} end),
    true = erlang:suspend_process(Follower),
    exit(Leader, kill),
    receive {'DOWN', Dies, process, Leader, _} -> ok end,
    %% When this process has ended, and all that it has spawned.
    Tidies = fun() ->
        {Tidy, Ends} = spawn_monitor(fun() -> ok = weir_memcached_flight:tidy(Flights) end),
        receive {'DOWN', Ends, process, Tidy, normal} -> ok end,
        until(fun() -> [] =:= [Pid || Pid <- processes(), process_info(Pid, parent) =:= {parent, Tidy}] end)
    end,
    Tidies(),
    true = erlang:resume_process(Follower),
    ?assertEqual({led, won}, answer(Following)),
    ?assertEqual({0, 0}, {ets:info(Leaders, size), ets:info(Followers, size)}),
    {Alone, Monitor} = spawn_monitor(fun() -> Run(Holds, fun(_) -> error(leads) end) end),
    Alone = begun(),
    exit(Alone, kill),
    receive {'DOWN', Monitor, process, Alone, _} -> ok end,
    ?assertEqual(1, ets:info(Leaders, size)),
    Tidies(),
    ?assertEqual(0, ets:info(Leaders, size)).

too_slow_for_those_who_wait(Config) ->
    with(2, Config, fun([A, B]) ->
        Fun = gated(),
        Leading = caller(fun() -> fetch(A, Fun, #{wait => 50, lease => 1000}) end),
        Leader = begun(),
        %% On the same node, and on another one.
        ?assertEqual({error, timeout}, fetch(A, never(), #{wait => 50})),
        ?assertEqual({error, timeout}, fetch(B, never(), #{wait => 50})),
        Leader ! {return, {ok, 1}},
        %% The time is for those who wait, not for who computes.
        ?assertEqual({ok, 1}, answer(Leading)),
        ?assertEqual({ok, 1}, fetch(B, never()))
    end).

%% Who takes longer than its lease is not alone, and does not replace what the other one has stored.
lease_is_over(Config) ->
    with(2, Config, fun([A, B]) ->
        Fun = gated(),
        Leading = caller(fun() -> fetch(A, Fun, #{lease => 1}) end),
        Leader = begun(),
        ?assertEqual({ok, newer}, fetch(B, fun() -> {ok, newer} end)),
        Leader ! {return, {ok, older}},
        ?assertEqual({ok, older}, answer(Leading)),
        ?assertEqual({ok, newer}, weir_memcached:get(A, <<"k">>))
    end).

%% A function that fetches its own key does not wait for itself.
calls_itself(Config) ->
    with(1, Config, fun(C) ->
        %% Not a lease of one second, of which memcached's clock may leave next to nothing.
        Options = #{lease => 100, wait => 100},
        Inner = fun() -> fetch(C, fun() -> {ok, inner} end, Options) end,
        ?assertMatch({ok, _}, fetch(C, fun() -> {error, timeout} = Inner(), {ok, outer} end, Options))
    end).

negative(Config) ->
    with(2, Config, fun([A, B]) ->
        None = fun() -> not_found end,
        ?assertEqual({error, not_found}, fetch(A, None)),
        ?assertEqual({error, not_found}, fetch(B, None, #{negative_ttl => 1000})),
        ?assertEqual({error, not_found}, fetch(A, never())),
        ?assertEqual({error, not_found}, weir_memcached:get(A, <<"k">>)),
        ?assertMatch(#{computed := 1}, counters(B)),
        ok = weir_memcached:delete(A, <<"k">>),
        ?assertEqual({ok, 1}, fetch(A, fun() -> {ok, 1} end)),
        ?assertError(
            {contradicting_options, {negative_ttl, 1}, {codec, raw}},
            fetch(A, never(), #{negative_ttl => 1, codec => raw})
        )
    end).

own_ttl(Config) ->
    with(1, Config, fun(C) ->
        {ok, 1} = fetch(C, fun() -> {ok, 1, #{ttl => 1000}} end, #{ttl => 10}),
        ?assertMatch({ok, #{ttl := Ttl}} when Ttl > 900, weir_memcached:item(C, <<"k">>))
    end).

%% Between all of it and so many percent less.
jitter(Config) ->
    with(1, Config, fun(C) ->
        Ttls = [
            begin
                Key = integer_to_binary(N),
                {ok, N} = weir_memcached:fetch(C, Key, fun() -> {ok, N} end, #{ttl => 100_000, jitter => 50}),
                {ok, #{ttl := Ttl}} = weir_memcached:item(C, Key),
                Ttl
            end
         || N <- lists:seq(1, 200)
        ],
        ?assert(lists:max(Ttls) =< 100_000),
        ?assert(lists:min(Ttls) >= 49_900),
        %% None of 200 in the upper or the lower quarter: once in 10^24.
        ?assert(lists:max(Ttls) > 87_500 andalso lists:min(Ttls) < 62_500),
        %% Never down to 0, which is for ever.
        [
            begin
                _ = weir_memcached:delete(C, <<"k">>),
                {ok, 1} = fetch(C, fun() -> {ok, 1} end, #{ttl => 1, jitter => 100}),
                ?assertNotMatch({ok, #{ttl := infinity}}, weir_memcached:item(C, <<"k">>))
            end
         || _ <- lists:seq(1, 30)
        ]
    end).

%% So early that somebody surely computes: one of all nodes, and nobody waits for it.
early(Config) ->
    with(2, Config, fun([A, B]) ->
        {ok, old} = fetch(A, fun() -> {ok, old} end, #{ttl => 100}),
        Fun = gated(),
        Early = #{early => 2_592_000, ttl => 100},
        Refreshing = caller(fun() -> fetch(A, Fun, Early) end),
        Leader = begun(),
        [?assertEqual({ok, old}, fetch(C, never(), Early)) || C <- [A, B], _ <- lists:seq(1, 50)],
        Leader ! {return, {ok, new}},
        ?assertEqual({ok, new}, answer(Refreshing)),
        [?assertEqual({ok, new}, fetch(C, never())) || C <- [A, B]]
    end).

%% Items that never expire, or that are far from it.
never_early(Config) ->
    with(1, Config, fun(C) ->
        {ok, 1} = fetch(C, fun() -> {ok, 1} end),
        [?assertEqual({ok, 1}, fetch(C, never(), #{early => 1000})) || _ <- lists:seq(1, 50)],
        {ok, 2} = weir_memcached:fetch(C, <<"far">>, fun() -> {ok, 2} end, #{ttl => 2_000_000}),
        [
            ?assertEqual({ok, 2}, weir_memcached:fetch(C, <<"far">>, never(), #{early => 1}))
         || _ <- lists:seq(1, 50)
        ]
    end).

%% One of all nodes computes what was invalidated; others are served at once.
stale_is_served(Config) ->
    with(2, Config, fun([A, B]) ->
        {ok, old} = fetch(A, fun() -> {ok, old} end),
        ok = weir_memcached:invalidate(A, <<"k">>),
        Fun = gated(),
        Winner = caller(fun() -> fetch(A, Fun) end),
        Leader = begun(),
        [?assertEqual({ok, old}, fetch(C, never())) || C <- [A, B], _ <- lists:seq(1, 20)],
        Leader ! {return, {ok, new}},
        ?assertEqual({ok, new}, answer(Winner)),
        [?assertEqual({ok, new}, fetch(C, never())) || C <- [A, B]],
        ?assertEqual(40, lists:sum([maps:get(stale, counters(C)) || C <- [A, B]]))
    end).

stale_is_waited_for(Config) ->
    with(2, Config, fun([A, B]) ->
        {ok, old} = fetch(A, fun() -> {ok, old} end),
        ok = weir_memcached:invalidate(A, <<"k">>),
        Fun = gated(),
        Winner = caller(fun() -> fetch(A, Fun, #{stale => wait}) end),
        Leader = begun(),
        Others = [caller(fun() -> fetch(C, never(), #{stale => wait}) end) || C <- [A, A, B, B]],
        followers(B, 1),
        Leader ! {return, {ok, new}},
        ?assertEqual([{ok, new}], lists:usort([answer(Caller) || Caller <- [Winner | Others]]))
    end).

%% Another one wins.
stale_whose_winner_fails(Config) ->
    with(2, Config, fun([A, B]) ->
        {ok, old} = fetch(A, fun() -> {ok, old} end),
        ok = weir_memcached:invalidate(A, <<"k">>),
        ?assertEqual({error, no}, fetch(A, fun() -> {error, no} end)),
        ?assertError(no, fetch(B, fun() -> error(no) end)),
        ?assertEqual({ok, old}, weir_memcached:get(A, <<"k">>)),
        ?assertEqual({ok, new}, fetch(B, fun() -> {ok, new} end)),
        ?assertEqual({ok, new}, fetch(A, never()))
    end).

%% What was computed from data that have changed since is told to who asked, and not stored.
deleted_meanwhile(Config) ->
    with(2, Config, fun([A, B]) ->
        Fun = gated(),
        Leading = caller(fun() -> fetch(A, Fun) end),
        Leader = begun(),
        ok = weir_memcached:delete(B, <<"k">>),
        Leader ! {return, {ok, old}},
        ?assertEqual({ok, old}, answer(Leading)),
        ?assertEqual({error, not_found}, weir_memcached:get(A, <<"k">>))
    end).

invalidated_meanwhile(Config) ->
    with(2, Config, fun([A, B]) ->
        {ok, old} = fetch(A, fun() -> {ok, old} end),
        ok = weir_memcached:invalidate(B, <<"k">>),
        Fun = gated(),
        Leading = caller(fun() -> fetch(A, Fun) end),
        Leader = begun(),
        ok = weir_memcached:invalidate(B, <<"k">>),
        Leader ! {return, {ok, between}},
        ?assertEqual({ok, between}, answer(Leading)),
        ?assertEqual({ok, newest}, fetch(B, fun() -> {ok, newest} end))
    end).

%% The first and the second caller see the same.
as_the_codec_reads_it(Config) ->
    with(1, #{codec => weir_memcached_test_codec}, Config, fun(C) ->
        Given = {compressed, <<"x">>},
        {ok, First} = fetch(C, fun() -> {ok, Given} end),
        ?assertNotEqual(Given, First),
        ?assertEqual({ok, First}, fetch(C, never()))
    end),
    with(1, Config, fun(C) ->
        ?assertMatch({error, {undecodable, _}}, fetch(C, fun() -> {ok, fun() -> 1 end} end))
    end).

%% Without a server it is one process of the node that computes, still.
no_server(_) ->
    C = ?FUNCTION_NAME,
    {ok, _} = weir_memcached:start_link(C, #{port => weir_kit_memcached:free_port(), host => {127, 0, 0, 1}}),
    Fun = gated(),
    Callers = [caller(fun() -> fetch(C, Fun) end) || _ <- lists:seq(1, 100)],
    Leader = begun(),
    followers(C, 99),
    Leader ! {return, {ok, value}},
    ?assertEqual([{ok, value}], lists:usort([answer(Caller) || Caller <- Callers])),
    nobody_begins(),
    ok = weir_memcached:stop(C).

%% It goes while the function runs: the value is told all the same.
server_lost_meanwhile(Config) ->
    Server = weir_kit_memcached:start(),
    with(1, #{}, [{server, Server} | Config], fun(C) ->
        Fun = gated(),
        Callers = [caller(fun() -> fetch(C, Fun) end) || _ <- lists:seq(1, 10)],
        Leader = begun(),
        followers(C, 9),
        ok = weir_kit_memcached:kill(Server),
        Leader ! {return, {ok, value}},
        ?assertEqual([{ok, value}], lists:usort([answer(Caller) || Caller <- Callers])),
        nobody_begins()
    end),
    weir_kit_memcached:stop(Server).

%% Text knows no leases: each node computes, and stores.
text_server(Config) ->
    with(2, #{protocol => text}, Config, fun([A, B]) ->
        Fun = gated(),
        Early = #{early => 10, ttl => 1000},
        Callers = [caller(fun() -> fetch(C, Fun, Early) end) || _ <- lists:seq(1, 10), C <- [A, B]],
        Leaders = [begun(), begun()],
        [followers(C, 9) || C <- [A, B]],
        [Pid ! {return, {ok, value}} || Pid <- Leaders],
        ?assertEqual([{ok, value}], lists:usort([answer(Caller) || Caller <- Callers])),
        ?assertEqual({ok, value}, fetch(A, never(), #{early => 2_592_000})),
        None = fun() -> not_found end,
        ?assertEqual({error, not_found}, weir_memcached:fetch(A, <<"n">>, None, #{negative_ttl => 9})),
        ?assertEqual({error, not_found}, weir_memcached:fetch(B, <<"n">>, never())),
        nobody_begins()
    end).

bad_options(Config) ->
    with(1, Config, fun(C) ->
        [
            ?assertError({bad_option, Key, Value}, fetch(C, never(), #{Key => Value}))
         || {Key, Value} <- [
                {ttl, -1}, {ttl, x}, {jitter, 101}, {jitter, -1}, {negative_ttl, -1}, {early, 2_592_001}, {lease, 0},
                {stale, maybe_}, {wait, 0}, {wait, infinity}, {timeout, 0}, {flags, -1}, {no_reply, true}, {x, 1}
            ]
        ],
        ?assertError({bad_option, options, [1]}, weir_memcached:fetch(C, <<"k">>, never(), [1])),
        ?assertError(function_clause, weir_memcached:fetch(C, <<"k">>, fun(_) -> {ok, 1} end)),
        ?assertEqual({ok, 1}, weir_memcached:fetch(C, <<"k">>, fun() -> {ok, 1} end, [{ttl, 1}, {timeout, infinity}]))
    end).

bad_results(Config) ->
    with(2, Config, fun([A, B]) ->
        [
            ?assertError({bad_return_value, Bad}, fetch(A, fun() -> Bad end))
         || Bad <- [
                value, {ok, 1, #{tll => 5}}, {ok, 1, #{ttl => foo}}, {ok, 1, #{ttl => -1}}, {ok, 1, [{ttl, 1}]},
                {ok, 1, #{ttl => 16#80000000}}, {ok, 1, #{ttl => 1, jitter => 1}}
            ]
        ],
        ?assertEqual({ok, 1}, fetch(B, fun() -> {ok, 1} end))
    end).

%% After thousands of fetches with kills in between nothing is left in the tables, and nobody has a message too much.
leaves_nothing(Config) ->
    with(1, Config, fun(C) ->
        Run = fun Run(0) -> {messages, M} = process_info(self(), messages), [] = M, ok;
            Run(N) ->
                Key = integer_to_binary(rand:uniform(20)),
                _ = try weir_memcached:fetch(C, Key, fun() ->
                    case rand:uniform(4) of
                        1 -> error(oops);
                        2 -> {error, oops};
                        _ -> {ok, N}
                    end
                end, #{ttl => 1, wait => 1 + rand:uniform(5), lease => 1}) catch error:oops -> oops end,
                _ = rand:uniform(3) =:= 1 andalso weir_memcached:delete(C, Key),
                Run(N - 1)
        end,
        Pids = [spawn_monitor(fun() -> Run(200) end) || _ <- lists:seq(1, 30)],
        Killers = [exit(Pid, kill) || {Pid, _} <- lists:sublist(Pids, 10)],
        ?assertEqual(10, length(Killers)),
        Ends = [receive {'DOWN', Monitor, _, _, Reason} -> Reason end || {_, Monitor} <- Pids],
        ?assertEqual([], lists:usort(Ends) -- [killed, normal]),
        {Leaders, Followers} = flights(C),
        until(fun() ->
            ok = weir_memcached_flight:tidy(flights(C)),
            {0, 0} =:= {ets:info(Leaders, size), ets:info(Followers, size)}
        end)
    end).

binary_key(Config) ->
    with(2, #{binary_keys => true, hash_long_keys => true}, Config, fun([A, B]) ->
        [
            begin
                ?assertEqual({ok, 1}, weir_memcached:fetch(A, Key, fun() -> {ok, 1} end)),
                ?assertEqual({ok, 1}, weir_memcached:fetch(B, Key, never())),
                ok = weir_memcached:invalidate(B, Key),
                ?assertEqual({ok, 2}, weir_memcached:fetch(B, Key, fun() -> {ok, 2} end))
            end
         || Key <- [<<0, 1, 2>>, binary:copy(<<"k">>, 1000)]
        ]
    end).

%% 1,000 callers on four nodes, and a key that is not there, and then expires again and again: the function runs once
%% each time. How often it has run is counted in one place, at the server; how often the item can have expired, the
%% server's clock says: a run stores it for a second, and no other one has the place before that second is over.
real_nodes(Config) ->
    Server = proplists:get_value(server, Config),
    <<"STORED\r\n">> = weir_kit_memcached:raw(Server, <<"set real_runs 0 0 1\r\n0\r\n">>),
    Nodes = weir_kit:in_parallel([fun() -> weir_kit_nodes:start([]) end || _ <- lists:seq(1, 4)]),
    Options = (weir_kit_memcached:options(Server))#{await => 60_000, request_timeout => infinity},
    Enough = weir_kit:long(3, 5),
    try
        [ok = weir_kit_nodes:call(Node, ?MODULE, start, [real, Options]) || Node <- Nodes],
        Before = uptime(Server),
        Computed = weir_kit:in_parallel([
            fun() -> weir_kit_nodes:call(Node, ?MODULE, many, [real, <<"real_nodes">>, 250, Enough]) end
         || Node <- Nodes
        ]),
        Seconds = uptime(Server) - Before,
        Runs = binary_to_integer(string:trim(weir_kit_memcached:raw(Server, <<"incr real_runs 0\r\n">>))),
        ct:pal("~b runs in ~b seconds, ~p by node", [Runs, Seconds, Computed]),
        ?assert(Runs >= Enough),
        ?assert(Runs =< Seconds + 1),
        ?assertEqual(Runs, lists:sum(Computed))
    after
        [weir_kit_nodes:kill(Node) || Node <- Nodes]
    end.

%% Seconds of the server's clock, by which items expire.
uptime(Server) -> weir_kit_memcached:stat(Server, <<"uptime">>).

%% Starts a client that stays.
start(Name, Options) ->
    {ok, _} = application:ensure_all_started(weir_memcached),
    {ok, Pid} = weir_memcached:start_link(Name, Options),
    true = unlink(Pid),
    ok.

%% Has so many processes fetch until they see the value of a run that has this number, or a later one. How often the
%% function ran here.
many(Client, Key, N, Enough) ->
    Fun = fun() ->
        {ok, Run} = weir_memcached:incr(Client, <<"real_runs">>, 1),
        receive after 20 -> ok end,
        {ok, Run}
    end,
    Loop = fun Loop() ->
        case weir_memcached:fetch(Client, Key, Fun, #{ttl => 1, lease => 100, wait => 120_000}) of
            {ok, Run} when Run < Enough -> receive after 20 -> Loop() end;
            {ok, _} -> ok
        end
    end,
    _ = weir_kit:in_parallel(lists:duplicate(N, Loop)),
    maps:get(computed, counters(Client)).
