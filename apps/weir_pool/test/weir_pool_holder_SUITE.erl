%% Claims and their holders: each claim has a ticket of its own, a killed holder is found whatever its pid, and a search
%% finds each free slot.
-module(weir_pool_holder_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, kill/1, result/1]).
-import(weir_pool_test_lib, [manager/1, opts/1, settled/2]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).

end_per_suite(Config) -> weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> weir_pool_test_lib:setup(Config).

end_per_testcase(_Case, Config) -> weir_pool_test_lib:teardown(Config).

%% Claims all free workers, and returns the tickets.
claim_all() ->
    case weir_pool:checkout(p, 0) of
        {ok, _Worker, Ticket} -> [Ticket | claim_all()];
        {error, busy} -> []
    end.

slots_of(Tickets) -> lists:sort([weir_pool:slot(Ticket) || Ticket <- Tickets]).

%% ---------------------------------------------------------------- tickets

%% A slot has 4,096 generations. Until they come again, a late checkin ends no claim but its own. Then claims go on.
a_late_checkin_ends_no_later_claim(_Config) ->
    ok = weir_pool:start(p, opts(1)),
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
    ?assertMatch({ok, #{claims := 10000, claimed := 0}}, weir_pool:info(p)),
    ok = weir_pool:stop(p).

%% ---------------------------------------------------------------- holders

%% A process that copies the dictionary of another process is a holder of its own.
a_copied_dictionary_makes_no_other_process_the_holder(_Config) ->
    ok = weir_pool:start(p, (opts(1))#{abandoned => free}),
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
    ?assertEqual({ok, {error, held_by_caller}}, weir_pool:claim(p, fun(_) -> weir_pool:replace(p, 1) end)),
    ok = weir_pool:stop(p).

%% A node that has started very many processes has pids whose numbers or serials are at their limits.
killed_holders_are_found_among_high_pids(_Config) ->
    {ok, Peer, _Node} = peer:start_link(#{
        connection => standard_io, wait_boot => weir_kit:wait_ms(),
        args => ["-pa" | code:get_path()]
    }),
    try
        Call = fun(Module, Function, Args) -> weir_kit_nodes:call(Peer, Module, Function, Args) end,
        ok = Call(logger, set_primary_config, [level, none]),
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
    ok = weir_pool:start(Name, (opts(40))#{abandoned => free}),
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

%% ---------------------------------------------------------------- searches

%% Claimers hoard workers, so that nearly all are claimed and searches go far. Meanwhile workers are replaced,
%% and slots are given up and taken back. When all of them pause, a search finds each free slot, and no other.
each_free_slot_is_found(_Config) ->
    Rounds = weir_kit:long(15, 60),
    [
        begin
            ok = weir_pool:start(p, opts(Size)),
            [free_slots_are_found(Size) || _ <- lists:seq(1, Rounds)],
            ok = weir_pool:stop(p)
        end
     || Size <- [3, 60, 130]
    ].

free_slots_are_found(Size) ->
    Test = self(),
    Hoarders = [weir_kit:start(fun() -> hoard(Test, 150, Size div 4 + 2, []) end) || _ <- lists:seq(1, 5)],
    ok = disturb(40, Size),
    Held = lists:append([receive {hoard, Pid, Slots} -> Slots end || {Pid, _} <- Hoarders]),
    until(fun() -> is_quiet(Size, length(Held)) end),
    Tickets = claim_all(),
    weir_kit:same(slots, lists:seq(1, Size), lists:sort(Held ++ slots_of(Tickets))),
    [?assertEqual(ok, weir_pool:checkin(p, Ticket)) || Ticket <- Tickets],
    [Pid ! release || {Pid, _} <- Hoarders],
    [?assertEqual(ok, result(Hoarder)) || Hoarder <- Hoarders],
    until(fun() -> settled(p, Size) end).

is_quiet(Size, Held) ->
    case weir_pool:info(p) of
        {ok, #{live := Size, claimed := Held, reserved := 0}} -> settled(p, Size);
        Other -> Other
    end.

%% Claims and releases, then reports the slots that it holds, and holds these until a message `release'.
hoard(Test, 0, _Enough, Hoard) ->
    Test ! {hoard, self(), slots_of(Hoard)},
    receive release -> ok end,
    lists:foreach(fun(Ticket) -> ok = weir_pool:checkin(p, Ticket) end, Hoard);
hoard(Test, N, Enough, Hoard) ->
    case length(Hoard) < Enough andalso weir_pool:checkout(p, 0) of
        {ok, _Worker, Ticket} ->
            hoard(Test, N - 1, Enough, [Ticket | Hoard]);
        NoneOrEnough ->
            {Some, Others} = lists:partition(fun(_) -> rand:uniform(8) =:= 1 end, Hoard),
            lists:foreach(fun(Ticket) -> ok = weir_pool:checkin(p, Ticket) end, Some),
            _ = NoneOrEnough =:= false orelse erlang:yield(),
            hoard(Test, N - 1, Enough, Others)
    end.

disturb(0, Size) ->
    weir_pool:resize(p, Size);
disturb(N, Size) ->
    _ =
        case rand:uniform(8) of
            1 -> weir_pool:resize(p, Size - Size div 3);
            2 -> weir_pool:resize(p, Size);
            _ -> weir_pool:replace(p, rand:uniform(Size), rand:uniform(2) - 1)
        end,
    disturb(N - 1, Size).
