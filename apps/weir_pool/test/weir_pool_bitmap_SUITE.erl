%% The free-slot bitmap: a search skips slots that earlier searches found claimed, and finds each slot once it is free.
-module(weir_pool_bitmap_SUITE).

-include("weir_pool_suite.hrl").

%% Claims all free workers, and returns the tickets.
claim_all() ->
    case weir_pool:checkout(p, 0) of
        {ok, _Worker, Ticket} -> [Ticket | claim_all()];
        {error, busy} -> []
    end.

slots_of(Tickets) -> lists:sort([weir_pool:slot(Ticket) || Ticket <- Tickets]).

%% The sizes are those about a word of the bitmap, and of a pool that has grown between its claims. Each search of the
%% full pool hides slots.
each_checkin_makes_its_slot_found(_Config) ->
    each([[1], [55], [56], [57], [113], [20, 60, 200]], fun(Sizes) ->
        [
            begin
                ok = weir_pool:checkin(p, Ticket),
                same(found, {ok, weir_pool:slot(Ticket)}, claim_elsewhere()),
                {ok, _, _} = weir_pool:checkout(p, 0),
                {error, busy} = claim_elsewhere()
            end
         || Ticket <- fill(Sizes, #{})
        ]
    end).

%% The manager ends most of these claims, or clears the mark of a replacement. A search in between finds the slot
%% claimed.
a_slot_is_found_however_its_claim_ends(_Config) ->
    Ends = [
        fun weir_pool_test_lib:release/1,
        fun weir_pool_test_lib:kill_and_tick/1,
        fun(Claimer) -> kill(worker_of(Claimer)) end,
        fun hand_over/1,
        fun release_to_a_replacement/1,
        fun release_after_a_replacement_timed_out/1,
        fun give_up_and_take_back/1
    ],
    each([{End, Abandoned} || End <- Ends, Abandoned <- [replace, free]], fun({End, Abandoned}) ->
        [
            begin
                ok = weir_pool:checkin(p, Ticket),
                {_, _, Slot} = Claimer = claimer(p),
                [{error, busy} = claim_elsewhere() || _ <- [1, 2]],
                _ = End(Claimer),
                until(fun() -> word(p, Slot) =:= free end),
                _ = sys:get_state(manager(p), wait_ms()),
                same(found, {End, {ok, Slot}}, {End, claim_elsewhere()}),
                {ok, _, _} = weir_pool:checkout(p, 0)
            end
         || Ticket <- lists:nthtail(55, fill([60], #{abandoned => Abandoned, intensity => 100}))
        ]
    end).

hand_over(Claimer) ->
    Waiter = waiter(),
    await_waiting(1),
    ok = release(Claimer),
    _ = claimed(Waiter),
    [{error, busy} = claim_elsewhere() || _ <- [1, 2]],
    let_go(Waiter),
    until(fun() -> is_nobody_waiting(p) end).

release_to_a_replacement({_, _, Slot} = Claimer) ->
    Replacing = weir_kit:start(fun() -> weir_pool:replace(p, Slot) end),
    until(fun() -> word(p, Slot) =:= marked end),
    {error, busy} = claim_elsewhere(),
    ok = release(Claimer),
    ok = result(Replacing).

release_after_a_replacement_timed_out({_, _, Slot} = Claimer) ->
    {error, timeout} = weir_pool:replace(p, Slot, 0),
    {error, busy} = claim_elsewhere(),
    release(Claimer).

give_up_and_take_back(Claimer) ->
    [ok = weir_pool:resize(p, Size) || Size <- [1, 60]],
    {error, busy} = claim_elsewhere(),
    release(Claimer).

%% Four processes claim all free workers and release them, again and again. Their searches hide slots that other
%% processes release at this moment.
slots_that_are_released_while_searches_hide_them_are_found(_Config) ->
    start(60),
    ClaimAll = fun() -> [checkin_all(claim_all()) || _ <- lists:seq(1, 50)] end,
    [
        begin
            _ = weir_kit:in_parallel([ClaimAll, ClaimAll, ClaimAll, ClaimAll]),
            Tickets = claim_all(),
            same(found, lists:seq(1, 60), slots_of(Tickets)),
            checkin_all(Tickets)
        end
     || _ <- lists:seq(1, weir_kit:long(50, 500))
    ].

checkin_all(Tickets) -> [ok = weir_pool:checkin(p, Ticket) || Ticket <- Tickets].

%% A process that is killed between two steps leaves a free slot hidden. The manager's next tick shows the slot.
a_tick_shows_free_slots(_Config) ->
    start(3),
    Held = claimer(p),
    Pool = weir_pool_terms:pool(p),
    Free = [1, 2, 3] -- [slot_of(Held)],
    [
        begin
            {Bitmap, Index, Bit, _More} = weir_pool_terms:bitmap(Pool, Slot),
            atomics:put(Bitmap, Index, atomics:get(Bitmap, Index) band bnot (1 bsl Bit))
        end
     || Slot <- Free
    ],
    until(fun() ->
        Tickets = claim_all(),
        checkin_all(Tickets),
        slots_of(Tickets) =:= Free
    end).

%% Starts a pool that grows through these sizes, claims all workers of each size, and searches twice in vain. Returns
%% the tickets in the order of the slots.
fill([First | Grown], Opts) ->
    ok = weir_pool:start(p, pool(First, Opts)),
    Grow = fun(Size) ->
        ok = weir_pool:resize(p, Size),
        claim_all()
    end,
    Tickets = claim_all() ++ lists:flatmap(Grow, Grown),
    ?assertEqual(lists:seq(1, lists:last([First | Grown])), slots_of(Tickets)),
    [{error, busy} = claim_elsewhere() || _ <- [1, 2]],
    lists:sort(fun(A, B) -> weir_pool:slot(A) =< weir_pool:slot(B) end, Tickets).

%% Claims and releases by a process that has not claimed before. Returns the slot.
claim_elsewhere() ->
    result(weir_kit:start(fun() ->
        case weir_pool:checkout(p, 0) of
            {ok, _, Ticket} ->
                ok = weir_pool:checkin(p, Ticket),
                {ok, weir_pool:slot(Ticket)};
            Error ->
                Error
        end
    end)).
