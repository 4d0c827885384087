%% Claims and their holders: each claim has a ticket of its own, and a killed holder is found whatever its pid.
-module(weir_pool_holder_SUITE).

-include("weir_pool_suite.hrl").

%% A slot has 4,096 generations. Until they come again, a late checkin ends no claim but its own. Then claims go on.
a_late_checkin_ends_no_later_claim(_Config) ->
    ok = weir_pool:start(p, pool(1)),
    {ok, Worker, First} = weir_pool:checkout(p, 0),
    ?assertEqual(ok, weir_pool:checkin(p, First)),
    [
        begin
            {ok, Worker, Ticket} = weir_pool:checkout(p, 0),
            [?assertEqual({error, not_held}, weir_pool:checkin(p, First, How)) || N =< 4000, How <- [ok, fail]],
            ?assertEqual([ok, {error, not_held}], [weir_pool:checkin(p, Ticket) || _ <- [1, 2]])
        end
     || N <- lists:seq(1, 9999)
    ],
    ?assertMatch({ok, #{claims := 10000, claimed := 0}}, weir_pool:info(p)).

%% A process that copies the dictionary of another process is a holder of its own.
a_copied_dictionary_makes_no_other_process_the_holder(_Config) ->
    ok = weir_pool:start(p, (pool(1))#{abandoned => free}),
    {ok, done} = weir_pool:claim(p, fun(_) -> done end),
    Dictionary = get(),
    Test = self(),
    Holder = spawn(fun() ->
        lists:foreach(fun({Key, Value}) -> put(Key, Value) end, Dictionary),
        {ok, _, _} = weir_pool:checkout(p, 0),
        Test ! claimed,
        receive never -> ok end
    end),
    receive claimed -> ok end,
    ?assertEqual({error, timeout}, weir_pool:replace(p, 1, 1)),
    kill(Holder),
    until(fun() -> claimed_at_a_tick(p) =:= 0 end),
    %% A process that has erased its dictionary is the holder of its claims.
    _ = erase(),
    ?assertEqual({ok, {error, held_by_caller}}, weir_pool:claim(p, fun(_) -> weir_pool:replace(p, 1) end)).

%% A node that has started very many processes has pids whose numbers or serials are at their limits.
killed_holders_are_found_among_high_pids(_Config) ->
    Peer = weir_pool_test_lib:start_peer(),
    try
        Call = fun(Module, Function, Args) -> weir_kit_nodes:call(Peer, Module, Function, Args) end,
        false = Call(erts_debug, set_internal_state, [available_internal_state, true]),
        Sizes = [
            begin
                _ = Call(erts_debug, set_internal_state, [next_pid, Next]),
                Call(?MODULE, killed_holders_are_found, [Next])
            end
         %% Pids of 28 bits, 15 of them the number, up to OTP 25; then of 60, 28 of them the number.
         || Next <- [(1 bsl Bits) - 60 || Bits <- [15, 16, 20, 24, 28, 29, 32, 44, 45]]
        ],
        %% A larger integer than a small one would make each claim allocate memory.
        ?assertMatch([_], lists:usort(Sizes))
    after
        peer:stop(Peer)
    end.

%% Runs in the other node. Returns the size of a ticket in words.
killed_holders_are_found(Name) ->
    ok = weir_pool_test_lib:setup(),
    ok = weir_pool:start(Name, (pool(40))#{abandoned => free}),
    Test = self(),
    Holders = [
        spawn(fun() ->
            {ok, _, Ticket} = weir_pool:checkout(Name, 0),
            Test ! {claimed, self(), erts_debug:flat_size(Ticket)},
            receive after infinity -> ok end
        end)
     || _ <- lists:seq(1, 40)
    ],
    [Size] = lists:usort([receive {claimed, Holder, Words} -> Words end || Holder <- Holders]),
    {error, busy} = weir_pool:checkout(Name, 0),
    {Some, Others} = lists:split(20, Holders),
    [exit(Holder, kill) || Holder <- Some],
    until(fun() -> claimed_at_a_tick(Name) =:= 20 end),
    [exit(Holder, kill) || Holder <- Others],
    until(fun() -> claimed_at_a_tick(Name) =:= 0 end),
    ok = weir_pool:stop(Name),
    Size.

%% Has the manager poll holders at once.
claimed_at_a_tick(Name) ->
    manager(Name) ! tick,
    {ok, #{claimed := Claimed}} = weir_pool:info(Name),
    Claimed.
