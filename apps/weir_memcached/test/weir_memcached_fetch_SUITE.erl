%% fetch: one computes, on the node and among nodes; what fails, is killed or takes too long; what is stale, negative or
%% soon over. Nodes are clients of the same server that have nothing in common but that; and once real nodes.
-module(weir_memcached_fetch_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_memcached_config.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, start/1, result/1, in_parallel/1, await_down/1, kill/1]).

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
    Defaults = Address#{await => weir_kit:wait_ms(), connections => 1, request_timeout => infinity},
    [{ok, _} = weir_memcached:start_link(C, maps:merge(Defaults, Options)) || C <- Clients],
    ok = weir_memcached:flush_all(hd(Clients)),
    _ = case Clients of [C] -> Case(C); _ -> Case(Clients) end,
    [ok = weir_memcached:stop(C) || C <- Clients],
    ok.

fetch(C, Fun) -> fetch(C, Fun, #{}).

%% No lease and no waiting is over because the machine is slow, unless the case says so.
fetch(C, Fun, Options) ->
    weir_memcached:fetch(C, <<"k">>, Fun, maps:merge(#{wait => weir_kit:wait_ms(), lease => 1000}, Options)).

%% Returns a function that reports that it has begun, and then waits for the message that says how it ends.
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
    after weir_kit:wait_ms() -> error(not_begun)
    end.

%% Checks that the function has not begun more often than begun/0 returned.
nobody_begins() ->
    receive
        {begun, Pid} -> weir_kit:fault({computed_twice, Pid})
    after 0 -> ok
    end.

%% Returns a function that another caller must run in this one's place.
never() -> fun() -> error(must_not_be_called) end.

%% Waits for the results of callers, all of which get the value.
all_get(Value, Callers) ->
    Answers = lists:usort([result(Caller) || Caller <- Callers]),
    weir_kit:none(wrong_values, [Other || {ok, Other} <- Answers, Other =/= Value]),
    ?assertEqual([{ok, Value}], Answers).

%% Waits until N processes of a client wait for the result of another process.
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
        Callers = [start(fun() -> fetch(C, Fun) end) || _ <- lists:seq(1, 1000)],
        Leader = begun(),
        followers(C, 999),
        Leader ! {return, {ok, value}},
        all_get(value, Callers),
        ?assertMatch(#{computed := 1, shared := 999}, counters(C)),
        nobody_begins()
    end).

%% And so among clients that have nothing in common but the server.
once_for_all_nodes(Config) ->
    with(4, Config, fun(Clients) ->
        Fun = gated(),
        Callers = [start(fun() -> fetch(C, Fun) end) || _ <- lists:seq(1, 250), C <- Clients],
        Leader = begun(),
        [followers(C, 249) || C <- Clients],
        Leader ! {return, {ok, value}},
        all_get(value, Callers),
        weir_kit:same(computed, [0, 0, 0, 1], lists:sort([maps:get(computed, counters(C)) || C <- Clients])),
        nobody_begins()
    end).

%% The item expires again and again while all ask: one computes at a time, and each value is one run's.
once_when_it_expires(Config) ->
    with(4, Config, fun(Clients) ->
        Runs = atomics:new(2, []),
        Fun = fun() ->
            weir_kit:same(runs_at_a_time, 1, atomics:add_get(Runs, 1, 1)),
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
        Seen = in_parallel([fun() -> Loop(C, []) end || _ <- lists:seq(1, 25), C <- Clients]),
        weir_kit:same(values_of_runs, lists:seq(1, atomics:get(Runs, 2)), lists:usort(lists:append(Seen)))
    end).

%% The process that computes gets the exception, those that wait get an error, and the next caller computes.
raises(Config) ->
    with(2, Config, fun([A, B]) ->
        Fun = gated(),
        [First | Others] = [start(fun() -> try fetch(A, Fun) catch _:Why -> {raised, Why} end end)
            || _ <- lists:seq(1, 10)],
        Leader = begun(),
        followers(A, 9),
        Leader ! {raise, oops},
        Answers = [result(Caller) || Caller <- [First | Others]],
        ?assertMatch([_], [raised || {raised, oops} <- Answers]),
        ?assertEqual(9, length([told || {error, {raised, error, oops}} <- Answers])),
        %% The lease was given back, so no caller waits for it.
        ?assertEqual({ok, 1}, fetch(B, fun() -> {ok, 1} end))
    end).

errors(Config) ->
    with(2, Config, fun([A, B]) ->
        Fun = gated(),
        Callers = [start(fun() -> fetch(A, Fun) end) || _ <- lists:seq(1, 10)],
        Leader = begun(),
        followers(A, 9),
        Leader ! {return, {error, database_down}},
        ?assertEqual([{error, database_down}], lists:usort([result(Caller) || Caller <- Callers])),
        ?assertEqual({ok, 1}, fetch(B, fun() -> {ok, 1} end)),
        ?assertThrow(stop, weir_memcached:fetch(A, <<"other">>, fun() -> throw(stop) end)),
        ?assertEqual({ok, 2}, weir_memcached:fetch(A, <<"other">>, fun() -> {ok, 2} end))
    end).

%% The process that computes is killed three times. Each time a waiting process takes over, and all get the value.
killed(Config) ->
    with(1, Config, fun(C) ->
        Fun = gated(),
        %% The server keeps the lease of a process that was killed. Another process of the node takes it over.
        Callers = [start(fun() -> fetch(C, Fun) end) || _ <- lists:seq(1, 20)],
        Dead = [
            begin
                Leader = begun(),
                followers(C, 20 - I),
                kill(Leader),
                Leader
            end
         || I <- [1, 2, 3]
        ],
        Leader = begun(),
        followers(C, 16),
        Leader ! {return, {ok, value}},
        Living = [Caller || {Pid, _} = Caller <- Callers, not lists:member(Pid, Dead)],
        all_get(value, Living),
        nobody_begins(),
        ?assertEqual({ok, value}, fetch(C, never()))
    end).

%% The client is stopped: who computes gets what that gives, and who waits for it is told.
stopped_meanwhile(Config) ->
    Stops = fun(C, Leader) ->
        ?assertEqual(ok, result(start(fun() -> weir_memcached:stop(C) end))),
        Leader ! {return, {ok, value}}
    end,
    {Led, Followed} = ended_meanwhile(Stops, Config),
    ?assertEqual({ok, value}, Led),
    ?assertEqual([{error, disconnected}], lists:usort(Followed)).

%% The tables are gone without a word, and are made anew.
killed_with_tables(Config) ->
    Kills = fun(C, Leader) ->
        #config{publisher = Publisher} = weir_memcached_config:fetch(C),
        kill(Publisher),
        until(fun() -> (weir_memcached_config:fetch(C))#config.publisher =/= Publisher end),
        Leader ! {return, {ok, value}},
        await_down(Leader),
        ok = weir_memcached:stop(C)
    end,
    {Led, Followed} = ended_meanwhile(Kills, Config),
    ?assertEqual({ok, value}, Led),
    %% They see the leader's end, and ask again.
    ?assertEqual([{ok, value}], lists:usort(Followed)).

ended_meanwhile(Ends, Config) ->
    C = ?FUNCTION_NAME,
    Address = weir_memcached_test:options(proplists:get_value(server, Config)),
    {ok, _} = weir_memcached:start_link(C, Address#{await => weir_kit:wait_ms()}),
    ok = weir_memcached:flush_all(C),
    Fun = gated(),
    Leading = start(fun() -> fetch(C, Fun) end),
    Leader = begun(),
    Following = [start(fun() -> fetch(C, fun() -> {ok, value} end) end) || _ <- lists:seq(1, 5)],
    followers(C, 5),
    Ends(C, Leader),
    {result(Leading), [result(Caller) || Caller <- Following]}.

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
        ?assertEqual({ok, old}, fetch(C, fun() -> {error, no} end, #{early => 2_592_000})),
        ?assertEqual({ok, new}, fetch(C, fun() -> {ok, new} end))
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
                        receive {held, Pid} -> Pid ! go after weir_kit:wait_ms() -> error(not_held) end,
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
        Leading = start(fun() -> fetch(C, Fun) end),
        Leader = begun(),
        Following = start(fun() -> fetch(C, never(), #{codec => term}) end),
        followers(C, 1),
        Leader ! {return, {ok, value}},
        ?assertEqual([{ok, value}, {ok, value}], [result(Leading), result(Following)])
    end).

%% The process with the lease is killed. Another node computes once the lease is over.
killed_among_nodes(Config) ->
    with(2, Config, fun([A, B]) ->
        Fun = gated(),
        {Winner, _} = start(fun() -> fetch(A, Fun, #{lease => 1}) end),
        Winner = begun(),
        Other = start(fun() -> fetch(B, fun() -> {ok, value} end) end),
        kill(Winner),
        ?assertEqual({ok, value}, result(Other)),
        ?assertEqual({ok, value}, fetch(A, never()))
    end).

%% Waiting processes are killed. Nothing of them stays.
last_waiter_killed(Config) ->
    with(1, Config, fun(C) ->
        Fun = gated(),
        Leading = start(fun() -> fetch(C, Fun) end),
        Leader = begun(),
        Waiting = [element(1, start(fun() -> fetch(C, Fun) end)) || _ <- lists:seq(1, 10)],
        followers(C, 10),
        lists:foreach(fun weir_kit:kill/1, Waiting),
        ok = weir_memcached_flight:tidy(flights(C)),
        followers(C, 0),
        Leader ! {return, {ok, 1}},
        ?assertEqual({ok, 1}, result(Leading))
    end).

%% Who waits for one that was killed goes on with what that one had, however late it sees that; and only then the row of
%% the dead is nobody's.
tidied_before_it_is_seen(_) ->
    {Leaders, Followers} = Flights = weir_memcached_flight:new(),
    Test = self(),
    Until = erlang:monotonic_time(millisecond) + weir_kit:wait_ms(),
    Run = fun(Fun, Heir) -> weir_memcached_flight:run(k, Flights, Fun, Heir, Until) end,
    Holds = fun() ->
        ok = weir_memcached_flight:hold(k, Flights, won),
        Test ! {begun, self()},
        receive never -> ok end
    end,
    {Leader, _} = start(fun() -> Run(Holds, fun(_) -> error(leads) end) end),
    Leader = begun(),
    {Follower, _} = Following = start(fun() -> Run(never(), fun(Held) -> Held end) end),
    until(fun() -> ets:info(Followers, size) =:= 1 andalso process_info(Follower, status) =:= {status, waiting} end),
    true = erlang:suspend_process(Follower),
    kill(Leader),
    %% When this process has ended, and all that it has spawned.
    Tidies = fun() ->
        {Tidy, _} = Tidying = start(fun() -> weir_memcached_flight:tidy(Flights) end),
        ok = result(Tidying),
        until(fun() -> [] =:= [Pid || Pid <- processes(), process_info(Pid, parent) =:= {parent, Tidy}] end)
    end,
    Tidies(),
    true = erlang:resume_process(Follower),
    ?assertEqual({led, won}, result(Following)),
    ?assertEqual({0, 0}, {ets:info(Leaders, size), ets:info(Followers, size)}),
    {Alone, _} = start(fun() -> Run(Holds, fun(_) -> error(leads) end) end),
    Alone = begun(),
    kill(Alone),
    ?assertEqual(1, ets:info(Leaders, size)),
    Tidies(),
    ?assertEqual(0, ets:info(Leaders, size)).

too_slow_for_those_who_wait(Config) ->
    with(2, Config, fun([A, B]) ->
        Fun = gated(),
        Leading = start(fun() -> fetch(A, Fun, #{wait => 50}) end),
        Leader = begun(),
        %% On the same node, and on another one.
        ?assertEqual({error, timeout}, fetch(A, never(), #{wait => 50})),
        ?assertEqual({error, timeout}, fetch(B, never(), #{wait => 50})),
        Leader ! {return, {ok, 1}},
        %% The time is for those who wait, not for who computes.
        ?assertEqual({ok, 1}, result(Leading)),
        ?assertEqual({ok, 1}, fetch(B, never()))
    end).

%% A process that takes longer than its lease does not replace the value that another process stored meanwhile.
lease_is_over(Config) ->
    with(2, Config, fun([A, B]) ->
        Fun = gated(),
        Leading = start(fun() -> fetch(A, Fun, #{lease => 1}) end),
        Leader = begun(),
        ?assertEqual({ok, newer}, fetch(B, fun() -> {ok, newer} end)),
        Leader ! {return, {ok, older}},
        ?assertEqual({ok, older}, result(Leading)),
        ?assertEqual({ok, newer}, weir_memcached:get(A, <<"k">>))
    end).

%% A function that fetches its own key does not wait for itself.
calls_itself(Config) ->
    with(1, Config, fun(C) ->
        Inner = fun() -> fetch(C, fun() -> {ok, inner} end, #{wait => 100}) end,
        ?assertMatch({ok, _}, fetch(C, fun() -> {error, timeout} = Inner(), {ok, outer} end))
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
        Refreshing = start(fun() -> fetch(A, Fun, Early) end),
        Leader = begun(),
        [?assertEqual({ok, old}, fetch(C, never(), Early)) || C <- [A, B], _ <- lists:seq(1, 50)],
        Leader ! {return, {ok, new}},
        ?assertEqual({ok, new}, result(Refreshing)),
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
        Winner = start(fun() -> fetch(A, Fun) end),
        Leader = begun(),
        [?assertEqual({ok, old}, fetch(C, never())) || C <- [A, B], _ <- lists:seq(1, 20)],
        Leader ! {return, {ok, new}},
        ?assertEqual({ok, new}, result(Winner)),
        [?assertEqual({ok, new}, fetch(C, never())) || C <- [A, B]],
        ?assertEqual(40, lists:sum([maps:get(stale, counters(C)) || C <- [A, B]]))
    end).

stale_is_waited_for(Config) ->
    with(2, Config, fun([A, B]) ->
        {ok, old} = fetch(A, fun() -> {ok, old} end),
        ok = weir_memcached:invalidate(A, <<"k">>),
        Fun = gated(),
        Winner = start(fun() -> fetch(A, Fun, #{stale => wait}) end),
        Leader = begun(),
        Others = [start(fun() -> fetch(C, never(), #{stale => wait}) end) || C <- [A, A, B, B]],
        followers(B, 1),
        Leader ! {return, {ok, new}},
        all_get(new, [Winner | Others])
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
        Leading = start(fun() -> fetch(A, Fun) end),
        Leader = begun(),
        ok = weir_memcached:delete(B, <<"k">>),
        Leader ! {return, {ok, old}},
        ?assertEqual({ok, old}, result(Leading)),
        ?assertEqual({error, not_found}, weir_memcached:get(A, <<"k">>))
    end).

invalidated_meanwhile(Config) ->
    with(2, Config, fun([A, B]) ->
        {ok, old} = fetch(A, fun() -> {ok, old} end),
        ok = weir_memcached:invalidate(B, <<"k">>),
        Fun = gated(),
        Leading = start(fun() -> fetch(A, Fun) end),
        Leader = begun(),
        ok = weir_memcached:invalidate(B, <<"k">>),
        Leader ! {return, {ok, between}},
        ?assertEqual({ok, between}, result(Leading)),
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
    Callers = [start(fun() -> fetch(C, Fun) end) || _ <- lists:seq(1, 100)],
    Leader = begun(),
    followers(C, 99),
    Leader ! {return, {ok, value}},
    all_get(value, Callers),
    nobody_begins(),
    ok = weir_memcached:stop(C).

%% It goes while the function runs: the value is told all the same.
server_lost_meanwhile(Config) ->
    Server = weir_kit_memcached:start(),
    with(1, #{}, [{server, Server} | Config], fun(C) ->
        Fun = gated(),
        Callers = [start(fun() -> fetch(C, Fun) end) || _ <- lists:seq(1, 10)],
        Leader = begun(),
        followers(C, 9),
        ok = weir_kit_memcached:kill(Server),
        Leader ! {return, {ok, value}},
        all_get(value, Callers),
        nobody_begins()
    end),
    weir_kit_memcached:stop(Server).

%% Text knows no leases: each node computes, and stores.
text_server(Config) ->
    with(2, #{protocol => text}, Config, fun([A, B]) ->
        Fun = gated(),
        Early = #{early => 10, ttl => 1000},
        Callers = [start(fun() -> fetch(C, Fun, Early) end) || _ <- lists:seq(1, 10), C <- [A, B]],
        Leaders = [begun(), begun()],
        [followers(C, 9) || C <- [A, B]],
        [Pid ! {return, {ok, value}} || Pid <- Leaders],
        all_get(value, Callers),
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

%% After thousands of fetches with kills in between, the tables are empty, and no caller has stray messages.
leaves_nothing(Config) ->
    with(1, Config, fun(C) ->
        Run = fun Run(0) -> weir_kit:none(stray_messages, weir_kit:messages());
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
        {Killed, Living} = lists:split(10, [start(fun() -> Run(200) end) || _ <- lists:seq(1, 30)]),
        lists:foreach(fun weir_kit:kill/1, Killed),
        [ok = result(Caller) || Caller <- Living],
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
    Nodes = in_parallel([fun() -> weir_kit_nodes:start([]) end || _ <- lists:seq(1, 4)]),
    Options = (weir_kit_memcached:options(Server))#{await => weir_kit:wait_ms(), request_timeout => infinity},
    Enough = weir_kit:long(3, 5),
    try
        [ok = weir_kit_nodes:call(Node, ?MODULE, start, [real, Options]) || Node <- Nodes],
        Before = uptime(Server),
        Computed = in_parallel([
            fun() -> weir_kit_nodes:call(Node, ?MODULE, many, [real, <<"real_nodes">>, 250, Enough]) end
         || Node <- Nodes
        ]),
        Seconds = uptime(Server) - Before,
        Runs = binary_to_integer(string:trim(weir_kit_memcached:raw(Server, <<"incr real_runs 0\r\n">>))),
        ct:pal("~b runs in ~b seconds, ~p by node", [Runs, Seconds, Computed]),
        ?assert(Runs >= Enough),
        Runs =< Seconds + 1 orelse weir_kit:fault({computed_too_often, Runs, Seconds}),
        weir_kit:same(computed, Runs, lists:sum(Computed))
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
        case weir_memcached:fetch(Client, Key, Fun, #{ttl => 1, lease => 100, wait => 3_600_000}) of
            {ok, Run} when Run < Enough -> receive after 20 -> Loop() end;
            {ok, _} -> ok
        end
    end,
    _ = in_parallel(lists:duplicate(N, Loop)),
    maps:get(computed, counters(Client)).
