%% The free-slot bitmap: a search skips slots that earlier searches found claimed, and finds each slot as soon as the
%% slot is free.
-module(weir_pool_bitmap_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").
-include("../src/weir_pool.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    ok = weir_pool_test_lib:setup(),
    weir_kit:quiet(Config).

end_per_suite(Config) ->
    ok = weir_kit:loud(Config),
    weir_pool_test_lib:teardown(Config).

%% ---------------------------------------------------------------- through weir_pool

%% The pool has more than one word of bits. Each search of the full pool hides slots.
each_checkin_makes_its_slot_found(_Config) ->
    with_full_pool(130, fun(Tickets) ->
        [
            begin
                Slot = weir_pool:slot(Ticket),
                ok = weir_pool:checkin(?MODULE, Ticket),
                weir_kit:same(found, {ok, Slot}, claim_elsewhere()),
                ok = fill(Slot)
            end
         || Ticket <- Tickets
        ]
    end).

%% After a checkin as failed, the manager ends the claim. A replacement marks the slot, and a search in between finds
%% the marked slot.
a_slot_is_found_after_its_claim_was_ended_or_its_mark_was_cleared(_Config) ->
    [
        with_full_pool(60, fun([Ticket | _]) ->
            Slot = weir_pool:slot(Ticket),
            Await = Begin(Slot),
            {error, busy} = claim_elsewhere(),
            ok = weir_pool:checkin(?MODULE, Ticket, How),
            ok = Await(),
            until(fun() -> claim_elsewhere() =:= {ok, Slot} end)
        end)
     || {Begin, How} <- [
            {fun(_Slot) -> fun() -> ok end end, fail},
            {fun replacement_under_way/1, ok},
            {fun replacement_timed_out/1, ok}
        ]
    ].

replacement_under_way(Slot) ->
    Replacing = weir_kit:start(fun() -> weir_pool:replace(?MODULE, Slot) end),
    until(fun() -> state(weir_pool_terms:pool(?MODULE), Slot) =:= marked end),
    fun() -> weir_kit:result(Replacing) end.

replacement_timed_out(Slot) ->
    {error, timeout} = weir_kit:result(weir_kit:start(fun() -> weir_pool:replace(?MODULE, Slot, 0) end)),
    fun() -> ok end.

%% A process that is killed between two steps leaves a free slot hidden. The manager's next tick shows the slot.
a_tick_shows_free_slots(_Config) ->
    ok = weir_pool:start(?MODULE, weir_pool_test_lib:opts(3)),
    {ok, _, First} = weir_pool:checkout(?MODULE, 0),
    Pool = weir_pool_terms:pool(?MODULE),
    Free = [Slot || Slot <- slots(Pool), state(Pool, Slot) =:= free],
    ?assertEqual(2, length(Free)),
    [clear_bit(Pool, Slot) || Slot <- Free],
    until(fun() -> shown(Pool) =:= slots(Pool) end),
    Others = [Ticket || _ <- Free, {ok, _, Ticket} <- [weir_pool:checkout(?MODULE, 0)]],
    ?assertEqual(Free, lists:sort([weir_pool:slot(Ticket) || Ticket <- Others])),
    [ok = weir_pool:checkin(?MODULE, Ticket) || Ticket <- [First | Others]],
    ok = weir_pool:stop(?MODULE).

%% Runs Fun with tickets of all slots, after two searches in vain.
with_full_pool(Size, Fun) ->
    ok = weir_pool:start(?MODULE, weir_pool_test_lib:opts(Size)),
    try
        Tickets = [Ticket || _ <- lists:seq(1, Size), {ok, _, Ticket} <- [weir_pool:checkout(?MODULE, 0)]],
        ?assertEqual(Size, length(Tickets)),
        [{error, busy} = claim_elsewhere() || _ <- [1, 2]],
        Fun(Tickets)
    after
        ok = weir_pool:stop(?MODULE)
    end.

%% Claims and releases by a process that has not claimed before. Returns the slot.
claim_elsewhere() ->
    weir_kit:result(weir_kit:start(fun() ->
        case weir_pool:checkout(?MODULE, 0) of
            {ok, _, Ticket} ->
                ok = weir_pool:checkin(?MODULE, Ticket),
                {ok, weir_pool:slot(Ticket)};
            Error ->
                Error
        end
    end)).

%% Claims the only free slot. The search that follows hides the slot.
fill(Slot) ->
    {ok, _, Ticket} = weir_pool:checkout(?MODULE, 0),
    weir_kit:same(slot, Slot, weir_pool:slot(Ticket)),
    {error, busy} = claim_elsewhere(),
    ok.

%% ---------------------------------------------------------------- bits

%% The oracle is the set of hidden slots. Vacant slots have no claim that would show them.
bits_agree_with_a_set(_Config) ->
    [
        with_vacant(Sizes, fun(#pool{limit = Limit} = Pool) ->
            weir_kit_property:holds(
                ?FORALL(
                    {Hidden, First, Last},
                    {list(range(1, Limit)), range(1, Limit), range(0, Limit)},
                    begin
                        [ok = weir_pool_bitmap:hide(Pool, Slot) || Slot <- Hidden],
                        Expected = [Slot || Slot <- slots(Pool) -- Hidden, Slot >= First, Slot =< Last],
                        Actual = shown(First, Last, Pool),
                        [ok = weir_pool_bitmap:show(Pool, Slot) || Slot <- Hidden],
                        Expected =:= Actual andalso shown(Pool) =:= slots(Pool)
                    end
                ),
                [{numtests, 100}, quiet]
            )
        end)
     || Sizes <- [[1], [55], [56], [57], [113], [20, 60, 200]]
    ].

%% Four processes hide and show slots whose bits are in one word. Each process has slots of its own.
processes_change_bits_of_one_word_at_a_time(_Config) ->
    with_vacant([56], fun(Pool) ->
        Processes = [weir_kit:start(fun() -> change_bits(N, 20000, Pool) end) || N <- lists:seq(1, 4)],
        Hidden = lists:append([weir_kit:result(Process) || Process <- Processes]),
        weir_kit:same(shown, slots(Pool) -- Hidden, shown(Pool))
    end).

%% Returns the slots of process N that are hidden in the end.
change_bits(N, Changes, Pool) ->
    Mine = lists:seq(N, 56, 4),
    [
        begin
            Slot = lists:nth(rand:uniform(length(Mine)), Mine),
            ok = weir_pool_bitmap:hide(Pool, Slot),
            weir_kit:same(hidden, false, is_shown(Pool, Slot)),
            ok = weir_pool_bitmap:show(Pool, Slot),
            weir_kit:same(shown, true, is_shown(Pool, Slot))
        end
     || _ <- lists:seq(1, Changes)
    ],
    [ok = weir_pool_bitmap:hide(Pool, Slot) || Slot <- Mine, Slot rem 3 =:= 0],
    [Slot || Slot <- Mine, Slot rem 3 =:= 0].

%% ---------------------------------------------------------------- notes

a_note_changes_no_claim(_Config) ->
    with_free([3], fun(Pool) ->
        {ok, Word, _} = weir_pool_word:claim(Pool, 2, 7),
        ok = weir_pool_bitmap:hide(Pool, 2),
        ?assertNot(is_shown(Pool, 2)),
        Noted = weir_pool_word:read(Pool, 2),
        ?assertEqual({taken, weir_pool_word:claim_of(Word)}, {state(Pool, 2), weir_pool_word:claim_of(Noted)}),
        ?assert(weir_pool_word:is_claimed_by(Pool, 2, Word)),
        ?assertEqual(7, weir_pool_word:holder(weir_pool_word:claim_of(Noted))),
        not_free = weir_pool_word:claim(Pool, 2, 8),
        %% A second note changes nothing.
        ok = weir_pool_bitmap:hide(Pool, 2),
        ?assertEqual(Noted, weir_pool_word:read(Pool, 2)),
        free = weir_pool_word:release(Pool, 2, Word),
        ?assert(is_shown(Pool, 2)),
        not_held = weir_pool_word:release(Pool, 2, Word)
    end).

%% Each way in which the slot of a noted claim becomes free also sets the bit.
-define(WAYS, [released, taken_over, marked, hidden_marked, unmarked, dead, disowned, revoked, vacated]).

each_end_of_a_noted_claim_shows_the_slot(_Config) ->
    [
        with_free([60], fun(Pool) ->
            {ok, Word, _} = weir_pool_word:claim(Pool, 60, 9),
            ok = weir_pool_bitmap:hide(Pool, 60),
            ok = end_claim(Way, Pool, 60, Word),
            ?assertEqual({Way, free, true}, {Way, state(Pool, 60), is_shown(Pool, 60)})
        end)
     || Way <- ?WAYS
    ].

end_claim(released, Pool, Slot, Word) ->
    free = weir_pool_word:release(Pool, Slot, Word),
    ok;
end_claim(taken_over, Pool, Slot, Word) ->
    {ok, Own} = weir_pool_word:take_over(Pool, Slot, Word, 10),
    end_claim(released, Pool, Slot, Own);
end_claim(marked, Pool, Slot, Word) ->
    marked = weir_pool_word:mark(Pool, Slot),
    reserved = weir_pool_word:release(Pool, Slot, Word),
    weir_pool_word:unreserve(Pool, Slot);
%% The manager may clear the mark after a search has hidden the marked slot.
end_claim(hidden_marked, Pool, Slot, Word) ->
    marked = weir_pool_word:mark(Pool, Slot),
    ok = weir_pool_bitmap:hide(Pool, Slot),
    ok = weir_pool_word:unmark(Pool, Slot),
    end_claim(released, Pool, Slot, Word);
end_claim(unmarked, Pool, Slot, Word) ->
    marked = weir_pool_word:mark(Pool, Slot),
    ok = weir_pool_word:unmark(Pool, Slot),
    end_claim(released, Pool, Slot, Word);
end_claim(dead, Pool, Slot, Word) ->
    taken = weir_pool_word:release_dead(Pool, Slot, Word),
    weir_pool_word:occupy(Pool, Slot);
end_claim(disowned, Pool, Slot, Word) ->
    {ok, Claim} = weir_pool_word:disown(Pool, Slot, Word),
    ok = weir_pool_word:revoke(Pool, Slot, Claim),
    weir_pool_word:unreserve(Pool, Slot);
end_claim(revoked, Pool, Slot, Word) ->
    ok = weir_pool_word:revoke(Pool, Slot, weir_pool_word:claim_of(Word)),
    weir_pool_word:unreserve(Pool, Slot);
end_claim(vacated, Pool, Slot, _Word) ->
    ok = weir_pool_word:vacate(Pool, Slot),
    weir_pool_word:occupy(Pool, Slot).

%% ---------------------------------------------------------------- searches

a_search_begins_anywhere_and_ends_with_overflow(_Config) ->
    [
        with_free(Sizes, 7, fun(#pool{size = Size, limit = Limit} = Pool) ->
            [
                begin
                    Order = found_in_order(Pool, From),
                    ?assertEqual(
                        lists:seq(From, Size) ++ lists:seq(1, From - 1) ++ lists:seq(Size + 1, Limit), Order
                    ),
                    [ok = end_claim(vacated, Pool, Slot, none) || Slot <- Order]
                end
             || From <- lists:seq(1, Size)
            ],
            ?assertEqual(lists:seq(1, Limit), found_in_order(Pool, Size + 3))
        end)
     || Sizes <- [[1], [55], [56], [57], [113], [20, 60, 200]]
    ],
    %% A pool with overflow alone.
    with_free([0], 5, fun(Pool) -> ?assertEqual([1, 2, 3, 4, 5], found_in_order(Pool, 1)) end).

found_in_order(Pool, From) ->
    case weir_pool_word:find(Pool, From, 8) of
        {ok, Slot, _, _} -> [Slot | found_in_order(Pool, From)];
        none -> []
    end.

%% All slots but the last are claimed. Two processes search without a pause, and so hide the last slot whenever the slot
%% is not free. Whichever way makes the slot free again, a search finds the slot.
a_slot_that_becomes_free_is_found_by_searches_under_way(_Config) ->
    Rounds = weir_kit:long(1000, 5000),
    with_free([60], fun(Pool) ->
        [{ok, _, _} = weir_pool_word:claim(Pool, Slot, 7) || Slot <- lists:seq(1, 59)],
        Stop = atomics:new(1, []),
        Found = counters:new(1, []),
        Searchers = [weir_kit:start(fun() -> search_until_stopped(Pool, Stop, N, Found) end) || N <- [1, 2]],
        [
            begin
                {ok, Word, _} = claim_in_the_end(Pool, 60),
                Before = counters:get(Found, 1),
                ok = end_claim(Way, Pool, 60, Word),
                until(fun() -> counters:get(Found, 1) > Before orelse {Way, state(Pool, 60), is_shown(Pool, 60)} end)
            end
         || _ <- lists:seq(1, Rounds), Way <- ?WAYS
        ],
        atomics:put(Stop, 1, 1),
        [ok = weir_kit:result(Searcher) || Searcher <- Searchers],
        weir_kit:none(lost, [60 || state(Pool, 60) =:= free, not is_shown(Pool, 60)])
    end).

search_until_stopped(Pool, Stop, N, Found) ->
    _ =
        case weir_pool_word:find(Pool, 1, N) of
            {ok, 60, Word, _} ->
                free = weir_pool_word:release(Pool, 60, Word),
                counters:add(Found, 1, 1);
            none ->
                ok
        end,
    case atomics:get(Stop, 1) of
        1 -> ok;
        0 -> search_until_stopped(Pool, Stop, N, Found)
    end.

claim_in_the_end(Pool, Slot) ->
    case weir_pool_word:claim(Pool, Slot, 9) of
        {ok, Word, Pid} -> {ok, Word, Pid};
        not_free -> claim_in_the_end(Pool, Slot)
    end.

%% ---------------------------------------------------------------- pools without processes

with_vacant(Sizes, Fun) -> with_pool(Sizes, 0, Fun).

with_free(Sizes, Fun) -> with_free(Sizes, 0, Fun).

with_free(Sizes, Overflow, Fun) ->
    with_pool(Sizes, Overflow, fun(Pool) ->
        Worker = spawn(fun() -> ok end),
        [ok = weir_pool_terms:fill(Pool, Slot, Worker) || Slot <- slots(Pool)],
        [ok = weir_pool_word:occupy(Pool, Slot) || Slot <- slots(Pool)],
        Fun(Pool)
    end).

%% Runs Fun with a pool that has grown through these sizes, and so may have more than one segment.
with_pool([First | Grown], Overflow, Fun) ->
    {ok, Conf} = weir_pool_opts:check(
        #{size => First, worker => {m, f, []}, overflow => #{max => Overflow, linger => 0}}
    ),
    Base = erlang:unique_integer([positive, monotonic]) * (?MAX_SIZE + 1),
    New = weir_pool_terms:new(?MODULE, Base, Conf, self()),
    Pool = lists:foldl(fun(Size, P) -> weir_pool_terms:reshape(P, Size, Size + Overflow) end, New, Grown),
    try
        Fun(Pool)
    after
        ok = weir_pool_terms:erase_slots([Base])
    end.

slots(#pool{limit = Limit}) -> lists:seq(1, Limit).

state(Pool, Slot) -> weir_pool_word:state(weir_pool_word:read(Pool, Slot)).

is_shown(Pool, Slot) -> shown(Slot, Slot, Pool) =:= [Slot].

%% Returns the slots that a search reads.
shown(#pool{limit = Limit} = Pool) -> shown(1, Limit, Pool).

shown(First, Last, Pool) ->
    case weir_pool_bitmap:next(Pool, First, Last) of
        {Bits, Slot, End} ->
            [S || S <- lists:seq(Slot, End), (Bits bsr (S - Slot)) band 1 =:= 1] ++ shown(End + 1, Last, Pool);
        none ->
            []
    end.

clear_bit(Pool, Slot) ->
    {Bitmap, Index, Bit, _More} = weir_pool_terms:bitmap(Pool, Slot),
    atomics:put(Bitmap, Index, atomics:get(Bitmap, Index) band bnot (1 bsl Bit)).
