%% weir_pool_word: against a model in single steps, and under many claimers and a manager at once; and the numbers of
%% holders.
-module(weir_pool_word_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").
-include("../src/weir_pool.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).

%% Run in another node.


all() -> weir_kit:cases(?MODULE).

%% 44 bits.
-define(MAX_HOLDER, 16#fffffffffff).
%% The largest generation, 12 bits, as it is in a word.
-define(LAST_GENERATION, (16#fff bsl 47)).

init_per_suite(Config) ->
    ok = weir_pool_test_lib:setup(),
    weir_kit:quiet(Config).

end_per_suite(Config) ->
    ok = weir_kit:loud(Config),
    weir_pool_test_lib:teardown(Config).

%% ---------------------------------------------------------------- pools that nobody else knows of

%% A pool that has grown through these sizes, and so may have several segments, with slots for overflow. All slots are
%% filled and free.
with_pool(Sizes, Fun) -> with_pool(Sizes, 0, Fun).

with_pool([First | Grown], Overflow, Fun) ->
    {ok, Conf} = weir_pool_opts:check(
        #{size => First, worker => {m, f, []}, overflow => #{max => Overflow, linger => 0}}
    ),
    Base = erlang:unique_integer([positive, monotonic]) * (?MAX_SIZE + 1),
    New = weir_pool_terms:new(?MODULE, Base, Conf, self()),
    Pool = lists:foldl(fun(Size, P) -> weir_pool_terms:reshape(P, Size, Size + Overflow) end, New, Grown),
    try
        lists:foreach(fun(Slot) -> new_worker(Pool, Slot) end, slots(Pool)),
        Fun(Pool)
    after
        ok = weir_pool_terms:erase_slots([Base])
    end.

slots(#pool{limit = Limit}) -> lists:seq(1, Limit).

%% Of a slot that nobody claims.
new_worker(Pool, Slot) ->
    ok = weir_pool_terms:vacate(Pool, Slot),
    Worker = spawn(fun() -> ok end),
    ok = weir_pool_terms:fill(Pool, Slot, Worker),
    ok = weir_pool_word:occupy(Pool, Slot).

state(Pool, Slot) -> weir_pool_word:state(weir_pool_word:read(Pool, Slot)).

holder(Pool, Slot) -> weir_pool_word:holder(weir_pool_word:claim_of(weir_pool_word:read(Pool, Slot))).

put_word(#pool{segments = Segments}, Slot, Word) ->
    {First, Words, _} = lists:last(Segments),
    atomics:put(Words, ?STATE_WORD(First, Slot), Word).

%% Whether searchers look at a slot.
is_shown(Pool, Slot) ->
    {Map, Index, Bit, _More} = weir_pool_terms:map(Pool, Slot),
    (atomics:get(Map, Index) bsr Bit) band 1 =:= 1.

hide(Pool, Slot) ->
    {Map, Index, Bit, _More} = weir_pool_terms:map(Pool, Slot),
    atomics:put(Map, Index, atomics:get(Map, Index) band bnot (1 bsl Bit)).

%% Returns the free slots that no search would find. There are none unless another process is between two steps.
lost(Pool) -> [Slot || Slot <- slots(Pool), state(Pool, Slot) =:= free, not is_shown(Pool, Slot)].

claims(Pool) ->
    maps:get(claims, weir_pool_terms:counters(Pool)) +
        lists:sum([weir_pool_word:claims(weir_pool_word:read(Pool, Slot)) || Slot <- slots(Pool)]).

%% ---------------------------------------------------------------- the model

%% Slots are numbered as they come, and made to fit the pool; words are told by how many claims ago they were made.
command() ->
    Slot = oneof([range(1, 4), range(1, 200)]),
    Ago = oneof([range(1, 3), range(1, 30)]),
    Holder = oneof([range(1, 5), ?MAX_HOLDER]),
    frequency([
        {4, {claim, Slot, oneof([claim, claim_free]), Holder}},
        {6, {find, Slot, Holder}},
        {5, {release, Ago}},
        {2, {take_over, Ago, Holder}},
        {2, {disown, Ago}},
        {2, {drop, Ago}},
        {2, {abandon, Ago}}
    ] ++ [
        {Weight, {Name, Slot}}
     || {Weight, Name} <- [
            {1, vacate}, {2, occupy}, {1, reserve}, {2, give_back}, {2, mark}, {1, unmark}, {1, show}
        ]
    ]).

agrees_with_a_model(_Config) ->
    Shapes = [{[3], 0}, {[2], 1}, {[20, 70], 3}, {[130], 5}, {[20, 60, 150], 0}],
    Ran = counters:new(1, []),
    [
        with_pool(Sizes, Overflow, fun(Pool) ->
            quickcheck(
                ?FORALL({Free, Commands}, {list(range(1, 200)), list(command())}, begin
                    counters:add(Ran, 1, length(Commands)),
                    run(Commands, Pool, begin_anew(Free, Pool))
                end),
                1000
            )
        end)
     || {Sizes, Overflow} <- Shapes
    ],
    ?assert(counters:get(Ran, 1) > 20000).

%% What is known of a pool: of each slot its state and the word of its claim, if there is one; and all claims that there
%% ever were, the last first.
-record(model, {slots = #{}, words = [], claims}).

%% Everything is claimed, but for these slots. So searches have many slots to go over.
begin_anew(Free, Pool) ->
    Fits = [fits(Slot, Pool) || Slot <- Free],
    _ = [begin weir_pool_word:vacate(Pool, Slot), weir_pool_word:occupy(Pool, Slot) end || Slot <- slots(Pool)],
    Claimed = [
        begin
            {ok, Word, _} = weir_pool_word:claim(Pool, Slot, 9),
            {Slot, Word}
        end
     || Slot <- slots(Pool), not lists:member(Slot, Fits)
    ],
    Slots = maps:merge(
        maps:from_keys(slots(Pool), {free, none}), maps:from_list([{Slot, {taken, Word}} || {Slot, Word} <- Claimed])
    ),
    #model{slots = Slots, words = Claimed, claims = claims(Pool)}.

fits(Slot, #pool{limit = Limit}) -> (Slot - 1) rem Limit + 1.

run([], Pool, #model{slots = Slots, words = Words}) ->
    %% Each claim knows whether it is over.
    lists:all(
        fun({Slot, Word}) ->
            {_, Current} = maps:get(Slot, Slots),
            weir_pool_word:is_claimed_by(Pool, Slot, Word) =:= (Word =:= Current)
        end,
        Words
    );
run([Command | More], Pool, Model) ->
    {Slot, Do, Expect} = prepare(Command, Pool, Model),
    Before = maps:get(Slot, Model#model.slots, none),
    {Expected, NewState, NewCurrent} = Expect,
    Actual = Do(),
    {Same, Word} =
        case {Expected, Actual} of
            {{ok, a_word}, {ok, W, Pid}} when is_pid(Pid) -> {true, W};
            {{found, Slot}, {ok, Slot, W, Pid}} when is_pid(Pid) -> {true, W};
            {{ok, a_word}, {ok, W}} -> {true, W};
            %% As its word would be if it were not marked.
            {{ok, a_claim}, {ok, Claim}} -> {true, Claim bsl 3 bor 2};
            {Result, Result} -> {true, none};
            _ -> {false, none}
        end,
    IsClaim = lists:member(element(1, Command), [claim, find]) andalso Word =/= none,
    %% A new claim has a word that there never was.
    Fresh = not IsClaim orelse not lists:member({Slot, Word}, Model#model.words),
    New =
        case NewCurrent of
            new -> Model#model{
                slots = (Model#model.slots)#{Slot => {NewState, Word}}, words = [{Slot, Word} | Model#model.words]
            };
            _ when Slot =:= 0 -> Model;
            _ -> Model#model{slots = (Model#model.slots)#{Slot => {NewState, NewCurrent}}}
        end,
    Counted = New#model{claims = New#model.claims + length([claimed || IsClaim])},
    case Same andalso Fresh andalso differs(Pool, Counted) of
        [] ->
            run(More, Pool, Counted);
        Differs ->
            ct:pal("~p of ~p: ~p, expected ~p; fresh: ~p, differs: ~p", [
                Command, Before, Actual, Expect, Fresh, Differs
            ]),
            false
    end.

%% Returns the differences from the model.
differs(Pool, #model{slots = Slots, claims = Claims}) ->
    [
        {Slot, weir_pool_word:read(Pool, Slot), Expected}
     || {Slot, {State, Current} = Expected} <- maps:to_list(Slots),
        not is_as(State, Current, weir_pool_word:read(Pool, Slot))
    ] ++ [{lost, Lost} || Lost <- lost(Pool)] ++ [{claims, N, Claims} || N <- [claims(Pool)], N =/= Claims].

is_as(State, none, Word) ->
    weir_pool_word:state(Word) =:= State andalso
        weir_pool_word:holder(weir_pool_word:claim_of(Word)) =:= nobody;
is_as(State, Current, Word) ->
    weir_pool_word:state(Word) =:= State andalso
        weir_pool_word:claim_of(Word) =:= weir_pool_word:claim_of(Current).

%% The slot that a command is about, what it does, and what is expected: what comes out, the state of the slot after it,
%% and the word of its claim: none, as it was, or `new'.
prepare({claim, S, Function, Holder}, Pool, #model{slots = Slots}) ->
    Slot = fits(S, Pool),
    Expect =
        case maps:get(Slot, Slots) of
            {free, _} -> {{ok, a_word}, taken, new};
            {vacant, _} -> {vacant, vacant, none};
            {State, Current} -> {not_free, State, Current}
        end,
    {Slot, fun() -> weir_pool_word:Function(Pool, Slot, Holder) end, Expect};
prepare({find, S, Holder}, #pool{size = Size, limit = Limit} = Pool, #model{slots = Slots}) ->
    From = fits(S, Pool),
    Order =
        case From =< Size of
            true -> lists:seq(From, Size) ++ lists:seq(1, From - 1) ++ lists:seq(Size + 1, Limit);
            false -> lists:seq(1, Limit)
        end,
    Find = fun() -> weir_pool_word:find(Pool, From, Holder) end,
    case [Slot || Slot <- Order, {free, _} <- [maps:get(Slot, Slots)]] of
        [Slot | _] -> {Slot, Find, {{found, Slot}, taken, new}};
        [] -> {0, Find, {none, none, none}}
    end;
prepare({Function, Ago, Holder}, Pool, Model) ->
    {Slot, Word} = a_word(Ago, Model),
    {Slot, fun() -> weir_pool_word:Function(Pool, Slot, Word, Holder) end, at_end_of(Function, Slot, Word, Model)};
prepare({Function, Ago}, Pool, Model) when
    Function =:= release; Function =:= disown; Function =:= drop; Function =:= abandon
->
    {Slot, Word} = a_word(Ago, Model),
    Arg = case Function of abandon -> weir_pool_word:claim_of(Word); _ -> Word end,
    {Slot, fun() -> weir_pool_word:Function(Pool, Slot, Arg) end, at_end_of(Function, Slot, Word, Model)};
prepare({Function, S}, Pool, #model{slots = Slots}) ->
    Slot = fits(S, Pool),
    {State, Current} = maps:get(Slot, Slots),
    Do = fun() -> weir_pool_word:Function(Pool, Slot) end,
    case {Function, State} of
        {vacate, _} -> {Slot, Do, {ok, vacant, none}};
        {occupy, _} when State =:= vacant; State =:= reserved -> {Slot, Do, {ok, free, none}};
        %% That would be a mistake of the manager's, and nothing comes of it.
        {occupy, _} -> {Slot, fun() -> mistaken(Do, State) end, {mistake, State, Current}};
        {reserve, free} -> {Slot, Do, {ok, reserved, none}};
        {reserve, _} -> {Slot, Do, {State, State, Current}};
        {give_back, reserved} -> {Slot, Do, {ok, free, none}};
        {give_back, _} -> {Slot, Do, {State, State, Current}};
        {mark, free} -> {Slot, Do, {reserved, reserved, none}};
        {mark, taken} -> {Slot, Do, {marked, marked, Current}};
        {mark, _} -> {Slot, Do, {State, State, Current}};
        {unmark, marked} -> {Slot, Do, {ok, taken, Current}};
        {unmark, _} -> {Slot, Do, {ok, State, Current}};
        {show, _} -> {Slot, Do, {ok, State, Current}}
    end.

mistaken(Do, State) ->
    try Do() of
        Result -> Result
    catch
        error:{badmatch, State} -> mistake
    end.

at_end_of(Function, Slot, Word, #model{slots = Slots}) ->
    {State, Current} = maps:get(Slot, Slots),
    case {Function, Word =:= Current, State} of
        {release, true, taken} -> {free, free, none};
        {disown, true, _} -> {{ok, a_claim}, State, new};
        {drop, true, _} -> {State, vacant, none};
        {take_over, true, _} -> {{ok, a_word}, State, new};
        {abandon, true, _} -> {ok, reserved, none};
        {abandon, false, _} -> {over, State, Current};
        {_, true, marked} -> {reserved, reserved, none};
        {_, false, _} -> {not_held, State, Current}
    end.

%% Of a holder that there never was, where there have not been so many claims.
a_word(Ago, #model{words = Words}) when Ago =< length(Words) -> lists:nth(Ago, Words);
a_word(_Ago, #model{}) -> {1, (100 bsl 47) bor (77 bsl 3) bor 2}.

quickcheck(Property, N) -> weir_kit_property:holds(Property, [{numtests, N}, quiet]).

%% ---------------------------------------------------------------- single steps

a_late_release_does_nothing(_Config) ->
    with_pool([3], fun(Pool) ->
        {ok, First, _} = weir_pool_word:claim(Pool, 1, 7),
        free = weir_pool_word:release(Pool, 1, First),
        %% The same holder again: only the generation differs.
        {ok, Second, _} = weir_pool_word:claim(Pool, 1, 7),
        not_held = weir_pool_word:release(Pool, 1, First),
        not_held = weir_pool_word:take_over(Pool, 1, First, 8),
        not_held = weir_pool_word:disown(Pool, 1, First),
        not_held = weir_pool_word:release_dead(Pool, 1, First),
        over = weir_pool_word:revoke(Pool, 1, weir_pool_word:claim_of(First)),
        ?assertEqual(Second, weir_pool_word:read(Pool, 1)),
        ?assertNot(weir_pool_word:is_claimed_by(Pool, 1, First)),
        ?assert(weir_pool_word:is_claimed_by(Pool, 1, Second))
    end).

nothing_ends_twice(_Config) ->
    Ends = [release, disown, drop],
    [
        with_pool([3], fun(Pool) ->
            {ok, Word, _} = weir_pool_word:claim(Pool, 1, 7),
            _ = weir_pool_word:First(Pool, 1, Word),
            Left = weir_pool_word:read(Pool, 1),
            ?assertEqual({First, Second, not_held}, {First, Second, weir_pool_word:Second(Pool, 1, Word)}),
            over = weir_pool_word:revoke(Pool, 1, weir_pool_word:claim_of(Word)),
            ?assertEqual(Left, weir_pool_word:read(Pool, 1))
        end)
     || First <- Ends, Second <- Ends
    ].

marked_slots_are_left_reserved(_Config) ->
    with_pool([3], fun(Pool) ->
        {ok, Word, _} = weir_pool_word:claim(Pool, 1, 7),
        marked = weir_pool_word:mark(Pool, 1),
        marked = weir_pool_word:mark(Pool, 1),
        ?assert(weir_pool_word:is_claimed_by(Pool, 1, Word)),
        not_free = weir_pool_word:claim(Pool, 1, 8),
        reserved = weir_pool_word:release(Pool, 1, Word),
        not_held = weir_pool_word:release(Pool, 1, Word),
        not_free = weir_pool_word:claim(Pool, 1, 8),
        not_free = weir_pool_word:claim_free(Pool, 1, 8),
        reserved = weir_pool_word:reserve(Pool, 1),
        ?assertEqual({reserved, nobody}, {state(Pool, 1), holder(Pool, 1)}),
        ok = weir_pool_word:unreserve(Pool, 1),
        {ok, _, _} = weir_pool_word:claim(Pool, 1, 8)
    end).

a_mark_is_taken_off(_Config) ->
    with_pool([3], fun(Pool) ->
        {ok, Word, _} = weir_pool_word:claim(Pool, 1, 7),
        marked = weir_pool_word:mark(Pool, 1),
        ok = weir_pool_word:unmark(Pool, 1),
        ?assertEqual(Word, weir_pool_word:read(Pool, 1)),
        free = weir_pool_word:release(Pool, 1, Word),
        %% Nothing of one that is not marked.
        ok = weir_pool_word:unmark(Pool, 1),
        ?assertEqual(free, state(Pool, 1))
    end).

%% A search meanwhile notes the slot, so that later searches skip it. The process that unmarks the slot has to show it
%% again.
a_mark_survives_a_note(_Config) ->
    with_pool([40], fun(Pool) ->
        {Slot, Word} = lists:last(claim_all(Pool)),
        none = weir_pool_word:find(Pool, 1, 8),
        ?assertNot(is_shown(Pool, Slot)),
        marked = weir_pool_word:mark(Pool, Slot),
        none = weir_pool_word:find(Pool, 1, 8),
        ok = weir_pool_word:unmark(Pool, Slot),
        free = weir_pool_word:release(Pool, Slot, Word),
        ?assertMatch({ok, Slot, _, _}, weir_pool_word:find(Pool, 1, 8))
    end).

claim_all(Pool) ->
    [
        begin
            {ok, Word, _} = weir_pool_word:claim(Pool, Slot, 7),
            {Slot, Word}
        end
     || Slot <- slots(Pool)
    ].

taking_over(_Config) ->
    with_pool([3], fun(Pool) ->
        {ok, Word, _} = weir_pool_word:claim(Pool, 1, 7),
        {ok, Own} = weir_pool_word:take_over(Pool, 1, Word, 8),
        ?assertEqual(8, holder(Pool, 1)),
        not_held = weir_pool_word:take_over(Pool, 1, Word, 9),
        not_held = weir_pool_word:release(Pool, 1, Word),
        free = weir_pool_word:release(Pool, 1, Own),
        %% Of a marked one: it stays so.
        {ok, Word2, _} = weir_pool_word:claim(Pool, 1, 7),
        marked = weir_pool_word:mark(Pool, 1),
        {ok, Own2} = weir_pool_word:take_over(Pool, 1, Word2, 8),
        ?assertEqual(marked, state(Pool, 1)),
        reserved = weir_pool_word:release(Pool, 1, Own2)
    end).

%% A disowned claim has no holder, and no process gets the slot until the manager has ended it.
disowning(_Config) ->
    with_pool([3], fun(Pool) ->
        {ok, Word, _} = weir_pool_word:claim(Pool, 1, weir_pool_holder:id(self())),
        {ok, Nobodys} = weir_pool_word:disown(Pool, 1, Word),
        ?assertEqual({taken, nobody}, {state(Pool, 1), holder(Pool, 1)}),
        ?assertEqual(nobody, weir_pool_word:holder(Nobodys)),
        not_free = weir_pool_word:claim(Pool, 1, 8),
        not_held = weir_pool_word:release(Pool, 1, Word),
        ok = weir_pool_word:revoke(Pool, 1, Nobodys),
        over = weir_pool_word:revoke(Pool, 1, Nobodys),
        ok = weir_pool_word:unreserve(Pool, 1),
        ?assertEqual(free, state(Pool, 1)),
        %% Of a marked one: it stays so, and only the manager ends it.
        {ok, Word2, _} = weir_pool_word:claim(Pool, 1, 7),
        marked = weir_pool_word:mark(Pool, 1),
        {ok, Nobodys2} = weir_pool_word:disown(Pool, 1, Word2),
        ?assertEqual({marked, nobody}, {state(Pool, 1), holder(Pool, 1)}),
        not_held = weir_pool_word:release(Pool, 1, Word2),
        over = weir_pool_word:revoke(Pool, 1, Nobodys),
        ok = weir_pool_word:revoke(Pool, 1, Nobodys2),
        ?assertEqual({reserved, nobody}, {state(Pool, 1), holder(Pool, 1)})
    end).

%% No process gets a worker that was found dead, before the manager has put in another.
dropping(_Config) ->
    with_pool([1], fun(Pool) ->
        {ok, Word, Worker} = weir_pool_word:claim(Pool, 1, 7),
        taken = weir_pool_word:release_dead(Pool, 1, Word),
        vacant = weir_pool_word:claim(Pool, 1, 8),
        none = weir_pool_word:find(Pool, 1, 8),
        vacant = weir_pool_word:mark(Pool, 1),
        vacant = weir_pool_word:reserve(Pool, 1),
        vacant = weir_pool_word:unreserve(Pool, 1),
        ?assertNot(weir_pool_word:is_any_filled(Pool)),
        new_worker(Pool, 1),
        %% The manager is to be told if it was waiting for the slot; should it not any more, the slot is vacant still.
        {ok, Marked, _} = weir_pool_word:claim(Pool, 1, 7),
        marked = weir_pool_word:mark(Pool, 1),
        marked = weir_pool_word:release_dead(Pool, 1, Marked),
        ok = weir_pool_word:unmark(Pool, 1),
        not_held = weir_pool_word:release_dead(Pool, 1, Marked),
        vacant = weir_pool_word:unreserve(Pool, 1),
        new_worker(Pool, 1),
        ?assert(weir_pool_word:is_any_filled(Pool)),
        {ok, 1, _, Successor} = weir_pool_word:find(Pool, 1, 8),
        ?assertNotEqual(Worker, Successor)
    end).

%% From the last generation to the first, in every kind of change that raises it.
generations_come_round(_Config) ->
    with_pool([3], fun(Pool) ->
        put_word(Pool, 1, ?LAST_GENERATION bor 1),
        {ok, Word, _} = weir_pool_word:claim(Pool, 1, ?MAX_HOLDER),
        ?assertEqual((?MAX_HOLDER bsl 3) bor 2, Word),
        free = weir_pool_word:release(Pool, 1, Word),
        %% What the manager does leaves the lower six bits, which count claims.
        put_word(Pool, 1, ?LAST_GENERATION bor 1),
        ok = weir_pool_word:reserve(Pool, 1),
        ?assertEqual((63 bsl 47) bor 4, weir_pool_word:read(Pool, 1)),
        Taken = ?LAST_GENERATION bor (?MAX_HOLDER bsl 3) bor 2,
        put_word(Pool, 1, Taken),
        {ok, Own} = weir_pool_word:take_over(Pool, 1, Taken, 5),
        ?assertEqual(?LAST_GENERATION bor (5 bsl 3) bor 2, Own),
        marked = weir_pool_word:mark(Pool, 1),
        reserved = weir_pool_word:release(Pool, 1, Own),
        ?assertEqual((63 bsl 47) bor 4, weir_pool_word:read(Pool, 1))
    end).

%% A larger integer would be allocated by each claim.
largest_word_is_small(_Config) ->
    with_pool([3], fun(Pool) ->
        Largest = ?LAST_GENERATION bor (?MAX_HOLDER bsl 3) bor 7,
        ?assertEqual({(1 bsl 59) - 1, 0}, {Largest, erts_debug:flat_size(Largest)}),
        put_word(Pool, 1, (16#ffe bsl 47) bor 1),
        {ok, Word, _} = weir_pool_word:claim(Pool, 1, ?MAX_HOLDER),
        ?assertEqual(?LAST_GENERATION bor (?MAX_HOLDER bsl 3) bor 2, Word),
        ?assertEqual(0, erts_debug:flat_size(Word)),
        ?assertEqual({taken, ?MAX_HOLDER}, {state(Pool, 1), holder(Pool, 1)}),
        marked = weir_pool_word:mark(Pool, 1),
        ?assertEqual(0, erts_debug:flat_size(weir_pool_word:read(Pool, 1))),
        ?assertEqual(?MAX_HOLDER, holder(Pool, 1))
    end).

%% Through whatever else happens to the slot.
claims_are_counted(_Config) ->
    with_pool([1], fun(Pool) ->
        [
            begin
                ?assertEqual(N, claims(Pool)),
                {ok, Word, _} = weir_pool_word:claim(Pool, 1, 7),
                ?assertEqual((N + 1) rem 64, weir_pool_word:claims(weir_pool_word:read(Pool, 1))),
                case N rem 5 of
                    0 ->
                        ok = weir_pool_word:vacate(Pool, 1),
                        ok = weir_pool_word:occupy(Pool, 1);
                    1 ->
                        marked = weir_pool_word:mark(Pool, 1),
                        reserved = weir_pool_word:release(Pool, 1, Word),
                        ok = weir_pool_word:unreserve(Pool, 1);
                    2 ->
                        {ok, Own} = weir_pool_word:take_over(Pool, 1, Word, 8),
                        taken = weir_pool_word:release_dead(Pool, 1, Own),
                        ok = weir_pool_word:occupy(Pool, 1);
                    _ ->
                        free = weir_pool_word:release(Pool, 1, Word)
                end
            end
         || N <- lists:seq(0, 999)
        ]
    end).

%% A pool that was killed leaves words that say free, and no terms.
erased_slots_are_vacant(_Config) ->
    with_pool([3], fun(#pool{base = Base} = Pool) ->
        ok = weir_pool_terms:erase_slots([Base]),
        ?assertEqual(free, state(Pool, 1)),
        vacant = weir_pool_word:claim(Pool, 1, 7),
        vacant = weir_pool_word:claim_free(Pool, 1, 7),
        none = weir_pool_word:find(Pool, 1, 7),
        ?assertEqual(free, state(Pool, 1))
    end).

%% ---------------------------------------------------------------- searches

%% A search skips slots that were searched in vain, all but the first 24. It finds each slot as soon as that is free.
what_is_searched_in_vain_is_not_looked_at_again(_Config) ->
    with_pool([20, 60, 200], 10, fun(Pool) ->
        Claims = claim_all(Pool),
        none = weir_pool_word:find(Pool, 1, 8),
        ?assertEqual(lists:seq(1, 24), [Slot || Slot <- slots(Pool), is_shown(Pool, Slot)]),
        [
            begin
                Freed =
                    case Slot rem 5 of
                        0 ->
                            free = weir_pool_word:release(Pool, Slot, Word);
                        1 ->
                            {ok, Own} = weir_pool_word:take_over(Pool, Slot, Word, 9),
                            free = weir_pool_word:release(Pool, Slot, Own);
                        2 ->
                            marked = weir_pool_word:mark(Pool, Slot),
                            reserved = weir_pool_word:release(Pool, Slot, Word),
                            ok = weir_pool_word:unreserve(Pool, Slot);
                        3 ->
                            taken = weir_pool_word:release_dead(Pool, Slot, Word),
                            ok = weir_pool_word:occupy(Pool, Slot);
                        4 ->
                            {ok, Claim} = weir_pool_word:disown(Pool, Slot, Word),
                            ok = weir_pool_word:revoke(Pool, Slot, Claim),
                            ok = weir_pool_word:unreserve(Pool, Slot)
                    end,
                ?assertMatch({_, {ok, Slot, _, _}}, {Freed, weir_pool_word:find(Pool, Slot rem 7 + 1, 8)}),
                none = weir_pool_word:find(Pool, 1, 8)
            end
         || {Slot, Word} <- Claims
        ]
    end).

a_search_begins_anywhere_and_ends_with_overflow(_Config) ->
    [
        with_pool(Sizes, 7, fun(#pool{size = Size, limit = Limit} = Pool) ->
            [
                begin
                    Order = found_in_order(Pool, From),
                    ?assertEqual(
                        lists:seq(From, Size) ++ lists:seq(1, From - 1) ++ lists:seq(Size + 1, Limit), Order
                    ),
                    [begin weir_pool_word:vacate(Pool, Slot), weir_pool_word:occupy(Pool, Slot) end || Slot <- Order]
                end
             || From <- lists:seq(1, Size)
            ],
            ?assertEqual(lists:seq(1, Limit), found_in_order(Pool, Size + 3))
        end)
     || Sizes <- [[1], [55], [56], [57], [113], [20, 60, 200]]
    ],
    %% Workers on demand alone.
    with_pool([0], 5, fun(Pool) -> ?assertEqual([1, 2, 3, 4, 5], found_in_order(Pool, 1)) end).

found_in_order(Pool, From) ->
    case weir_pool_word:find(Pool, From, 8) of
        {ok, Slot, _, _} -> [Slot | found_in_order(Pool, From)];
        none -> []
    end.

%% A process was killed between two steps, and left a free slot hidden.
a_tick_shows_free_slots(_Config) ->
    ok = weir_pool:start(?MODULE, weir_pool_test_lib:opts(3)),
    {ok, _, First} = weir_pool:checkout(?MODULE, 0),
    Pool = weir_pool_terms:pool(?MODULE),
    Free = [Slot || Slot <- slots(Pool), state(Pool, Slot) =:= free],
    ?assertEqual(2, length(Free)),
    [hide(Pool, Slot) || Slot <- Free],
    until(fun() -> [Slot || Slot <- Free, is_shown(Pool, Slot)] =:= Free end),
    Others = [Ticket || _ <- Free, {ok, _, Ticket} <- [weir_pool:checkout(?MODULE, 0)]],
    ?assertEqual(Free, lists:sort([weir_pool:slot(Ticket) || Ticket <- Others])),
    [ok = weir_pool:checkin(?MODULE, Ticket) || Ticket <- [First | Others]],
    ok = weir_pool:stop(?MODULE).

%% ---------------------------------------------------------------- all at once

%% Claimers write the worker down in a table that the words know nothing of, while a manager does all that managers do.
%% After each claim that the manager ends there is another worker, so that the pid of another claim would be seen. The
%% result at the end of a claim must be what the manager has done.
one_holder_at_a_time(_Config) ->
    Part = weir_kit:long(8, 1),
    [
        with_pool(Sizes, fun(Pool) -> one_holder(Pool, Claims div Part, Marks div Part) end)
     || {Sizes, Claims, Marks} <- [{[3], 200000, 1000}, {[20, 70], 100000, 100}]
    ].

-record(shared, {stop, claims, marks, reserved, held, taken_away, ended}).

one_holder(Pool, Claims, Marks) ->
    Shared = #shared{
        stop = atomics:new(1, []),
        claims = counters:new(1, []),
        marks = counters:new(1, []),
        %% How many releases were told that the manager waited for them.
        reserved = counters:new(1, []),
        held = ets:new(held, [public, set]),
        %% Workers and claims that the manager is about to take away, and workers that it has.
        taken_away = ets:new(taken_away, [public, set]),
        ended = ets:new(ended, [public, set])
    },
    Claimers = [weir_kit:start(fun() -> claim_until_stopped(Pool, N, Shared) end) || N <- lists:seq(1, 8)],
    Manager = weir_kit:start(fun() ->
        %% Managers have a high priority. Otherwise this one would wait for all claimers each time it writes a term.
        process_flag(priority, high),
        manage_until_stopped(Pool, Shared, #{}, {0, 0})
    end),
    IsDone = fun(Tenths) ->
        counters:get(Shared#shared.claims, 1) > Claims * Tenths div 10 andalso
            counters:get(Shared#shared.marks, 1) > Marks * Tenths div 10
    end,
    [until(fun() -> IsDone(Tenths) orelse any_down([Manager | Claimers]) end) || Tenths <- lists:seq(1, 10)],
    atomics:put(Shared#shared.stop, 1, 1),
    [ok = weir_kit:result(Claimer) || Claimer <- Claimers],
    {M, Ends} = weir_kit:result(Manager),
    {Marked, TakenOff} = settle_marks(Pool, M, Ends),
    ct:pal("~p claims, ~p marks, of which ~p were taken off or abandoned", [
        counters:get(Shared#shared.claims, 1), Marked, TakenOff
    ]),
    %% Each mark was reported to the process that released, or is known as one that was not.
    TakenAway = Shared#shared.taken_away,
    Untold = [W || [W] <- ets:match(TakenAway, {{in_doubt, '$1'}}), not ets:member(TakenAway, {told, W})],
    weir_kit:same(lost_marks, Marked, counters:get(Shared#shared.reserved, 1) + TakenOff + length(Untold)),
    weir_kit:none(held, ets:tab2list(Shared#shared.held)),
    weir_kit:none(marked, [Slot || Slot <- slots(Pool), state(Pool, Slot) =:= marked]),
    weir_kit:none(lost, lost(Pool)).

any_down(Processes) -> lists:any(fun({Pid, _}) -> not is_process_alive(Pid) end, Processes).

claim_until_stopped(Pool, Holder, #shared{stop = Stop} = Shared) ->
    case atomics:get(Stop, 1) of
        1 ->
            ok;
        0 ->
            case claim_somehow(Pool, Holder) of
                {ok, Slot, Word, Worker} -> claimed(Pool, Slot, Word, Worker, Shared);
                none -> ok
            end,
            claim_until_stopped(Pool, Holder, Shared)
    end.

claim_somehow(Pool, Holder) ->
    Slot = rand:uniform(Pool#pool.limit),
    case rand:uniform(3) of
        1 ->
            weir_pool_word:find(Pool, Slot, Holder);
        Two ->
            Claim = element(Two - 1, {claim, claim_free}),
            case weir_pool_word:Claim(Pool, Slot, Holder) of
                {ok, Word, Worker} -> {ok, Slot, Word, Worker};
                _ -> none
            end
    end.

claimed(Pool, Slot, Word, Worker, Shared) ->
    #shared{claims = Claims, reserved = Reserved, held = Held, taken_away = TakenAway, ended = Ended} = Shared,
    ets:insert_new(Held, {Worker, self()}) orelse weir_kit:fault({claimed_twice, Worker}),
    _ = rand:uniform(4) =:= 1 andalso erlang:yield(),
    true = ets:delete(Held, Worker),
    IsOver = ets:member(Ended, Worker),
    Result =
        case rand:uniform(2000) of
            1 -> weir_pool_word:disown(Pool, Slot, Word);
            2 -> drop(Pool, Slot, Word, Worker, TakenAway);
            _ -> weir_pool_word:release(Pool, Slot, Word)
        end,
    case Result of
        not_held ->
            Claim = {Slot, weir_pool_word:claim_of(Word)},
            true = ets:member(TakenAway, Worker) orelse ets:member(TakenAway, Claim);
        _ ->
            false = IsOver,
            lists:member(Result, [reserved, marked]) andalso counters:add(Reserved, 1, 1)
    end,
    counters:add(Claims, 1, 1).

drop(Pool, Slot, Word, Worker, TakenAway) ->
    Result = weir_pool_word:release_dead(Pool, Slot, Word),
    true = Result =/= marked orelse ets:insert(TakenAway, {{told, Worker}}),
    Result.

%% For each slot the manager remembers whether it has marked it, or taken it out of use. Returns these, the number of
%% marks, and the number of those that it has taken off or ended itself.
manage_until_stopped(Pool, #shared{stop = Stop} = Shared, Mine, Ends) ->
    case atomics:get(Stop, 1) of
        1 ->
            {Mine, Ends};
        0 ->
            {NewMine, NewEnds} = lists:foldl(
                fun(Slot, {M, E}) ->
                    {Is, NewE} = manage(maps:get(Slot, M, nothing), Pool, Slot, Shared, E),
                    {M#{Slot => Is}, NewE}
                end,
                {Mine, Ends},
                slots(Pool)
            ),
            receive after 1 -> ok end,
            manage_until_stopped(Pool, Shared, NewMine, NewEnds)
    end.

%% No other process changes a reserved slot.
manage(reserved, Pool, Slot, _Shared, Ends) ->
    reserved = state(Pool, Slot),
    case rand:uniform(20) of
        1 ->
            ok = weir_pool_word:vacate(Pool, Slot),
            new_worker(Pool, Slot);
        _ ->
            ok = weir_pool_word:unreserve(Pool, Slot)
    end,
    {nothing, Ends};
manage(marked, Pool, Slot, Shared, {Marks, TakenOff} = Ends) ->
    case {rand:uniform(20), state(Pool, Slot)} of
        {N, Is} when N > 12, (Is =:= marked orelse Is =:= reserved) ->
            {Is, Ends};
        {N, Was} when N > 3, (Was =:= marked orelse Was =:= reserved) ->
            Worker = weir_pool_terms:worker(Pool, Slot),
            ok = weir_pool_word:unmark(Pool, Slot),
            case state(Pool, Slot) of
                reserved ->
                    {reserved, Ends};
                vacant ->
                    %% Dropped before, by one who was told of the mark, or after.
                    true = ets:insert(Shared#shared.taken_away, {{in_doubt, Worker}}),
                    {nothing, Ends};
                _ when Was =:= marked ->
                    {nothing, {Marks, TakenOff + 1}}
            end;
        %% Dropped.
        {_, vacant} ->
            {nothing, Ends};
        {_, Was} when Was =:= marked; Was =:= reserved ->
            case abandon(Pool, Slot, Shared) of
                ok -> {nothing, {Marks, TakenOff + 1}};
                over when Was =:= reserved -> {reserved, Ends};
                over -> {case state(Pool, Slot) of vacant -> nothing; Is -> Is end, Ends}
            end
    end;
manage(nothing, Pool, Slot, Shared, {Marks, TakenOff} = Ends) ->
    Word = weir_pool_word:read(Pool, Slot),
    IsNobodys = weir_pool_word:holder(weir_pool_word:claim_of(Word)) =:= nobody,
    case {weir_pool_word:state(Word), rand:uniform(50)} of
        {vacant, _} ->
            new_worker(Pool, Slot),
            {nothing, Ends};
        {free, 1} ->
            {nothing, Ends};
        {taken, N} when IsNobodys; N =:= 1 ->
            Abandoned = abandon(Pool, Slot, Shared),
            true = not IsNobodys orelse Abandoned =:= ok,
            {nothing, Ends};
        {State, N} when N > 1, (State =:= free orelse State =:= taken) ->
            case N of
                _ when N > 10 ->
                    case weir_pool_word:mark(Pool, Slot) of
                        reserved ->
                            reserved = state(Pool, Slot),
                            {reserved, Ends};
                        marked ->
                            true = lists:member(state(Pool, Slot), [marked, reserved, vacant]),
                            ok = counters:add(Shared#shared.marks, 1, 1),
                            maybe_at_once(rand:uniform(3), Pool, Slot, Shared, {Marks + 1, TakenOff});
                        %% Dropped.
                        vacant ->
                            vacant = state(Pool, Slot),
                            {nothing, Ends}
                    end;
                _ when N > 2 ->
                    case weir_pool_word:reserve(Pool, Slot) of
                        ok ->
                            reserved = state(Pool, Slot),
                            {reserved, Ends};
                        Other ->
                            true = lists:member(Other, [taken, vacant]),
                            {nothing, Ends}
                    end;
                2 ->
                    Worker = weir_pool_terms:worker(Pool, Slot),
                    true = ets:insert(Shared#shared.taken_away, {Worker}),
                    ok = weir_pool_word:vacate(Pool, Slot),
                    true = ets:insert(Shared#shared.ended, {Worker}),
                    new_worker(Pool, Slot),
                    {nothing, Ends}
            end
    end.

%% Most claims are over at the next look.
maybe_at_once(1, Pool, Slot, Shared, Ends) -> manage(marked, Pool, Slot, Shared, Ends);
maybe_at_once(_, _Pool, _Slot, _Shared, Ends) -> {marked, Ends}.

%% Ends the claim there is, if there is one, and then there is another worker.
abandon(Pool, Slot, Shared) ->
    Claim = weir_pool_word:claim_of(weir_pool_word:read(Pool, Slot)),
    true = ets:insert(Shared#shared.taken_away, {{Slot, Claim}}),
    case weir_pool_word:revoke(Pool, Slot, Claim) of
        ok ->
            reserved = state(Pool, Slot),
            ok = weir_pool_word:vacate(Pool, Slot),
            new_worker(Pool, Slot),
            ok;
        over ->
            over
    end.

%% Of claims that were disowned and then marked.
settle_marks(Pool, Mine, {Marks, TakenOff}) ->
    Left = [Slot || {Slot, marked} <- maps:to_list(Mine), state(Pool, Slot) =:= marked],
    [
        begin
            nobody = holder(Pool, Slot),
            ok = weir_pool_word:revoke(Pool, Slot, weir_pool_word:claim_of(weir_pool_word:read(Pool, Slot)))
        end
     || Slot <- Left
    ],
    {Marks, TakenOff + length(Left)}.

%% One slot, one claimer and the manager, so that many exchanges of the manager fail. The state that mark/2 returns is
%% that of the slot. The claimer hears of each mark once, unless it was taken off before.
a_mark_is_what_it_says(_Config) ->
    with_pool([1], fun(Pool) ->
        Claimer = start_claiming(Pool, free),
        {Marked, TakenOff, Reserved} = mark_often(Pool, 200000, {0, 0, 0}),
        Told = stop_claiming(Claimer),
        ct:pal("marked ~p times while it was claimed, taken off ~p times, marked ~p times while it was free", [
            Marked, TakenOff, Reserved
        ]),
        ?assertEqual(Marked - TakenOff, proplists:get_value(reserved, Told))
    end).

%% Until each has happened often enough.
mark_often(_Pool, N, {Marked, TakenOff, Reserved} = Done) when
    N =< 0, Marked > 200, TakenOff > 20, Reserved > 200
->
    Done;
mark_often(Pool, N, {Marked, TakenOff, Reserved}) ->
    Done =
        case weir_pool_word:mark(Pool, 1) of
            reserved ->
                {Marked, TakenOff, Reserved + 1};
            marked when N rem 2 =:= 0 ->
                ?assert(lists:member(state(Pool, 1), [marked, reserved])),
                ok = await_reserved(Pool),
                {Marked + 1, TakenOff, Reserved};
            marked ->
                ?assert(lists:member(state(Pool, 1), [marked, reserved])),
                ok = weir_pool_word:unmark(Pool, 1),
                case state(Pool, 1) of
                    reserved ->
                        {Marked + 1, TakenOff, Reserved};
                    State ->
                        ?assertNotEqual(marked, State),
                        {Marked + 1, TakenOff + 1, Reserved}
                end
        end,
    %% Only the manager puts the slot back.
    case element(2, Done) of
        TakenOff ->
            ?assertEqual(reserved, state(Pool, 1)),
            ok = weir_pool_word:unreserve(Pool, 1);
        _ ->
            ok
    end,
    mark_often(Pool, N - 1, Done).

await_reserved(Pool) ->
    case state(Pool, 1) of
        reserved ->
            ok;
        marked ->
            erlang:yield(),
            await_reserved(Pool)
    end.

%% The claimer hears of each claim that the manager has ended, and of no other.
an_abandoned_claim_is_over(_Config) ->
    with_pool([1], fun(Pool) ->
        Claimer = start_claiming(Pool, free),
        {Ended, Over} = abandon_often(Pool, 3000000, {0, 0}),
        Told = stop_claiming(Claimer),
        ct:pal("~p claims abandoned, ~p times too late", [Ended, Over]),
        weir_kit:same(ends, {0, Ended}, {proplists:get_value(reserved, Told), proplists:get_value(not_held, Told)})
    end).

abandon_often(_Pool, N, {Ended, _} = Done) when N =< 0, Ended > 200 ->
    Done;
abandon_often(Pool, N, {Ended, Over}) ->
    Word = weir_pool_word:read(Pool, 1),
    case weir_pool_word:state(Word) of
        taken ->
            case weir_pool_word:revoke(Pool, 1, weir_pool_word:claim_of(Word)) of
                ok ->
                    ?assertEqual({reserved, nobody}, {state(Pool, 1), holder(Pool, 1)}),
                    ok = weir_pool_word:unreserve(Pool, 1),
                    abandon_often(Pool, N - 1, {Ended + 1, Over});
                over ->
                    abandon_often(Pool, N - 1, {Ended, Over + 1})
            end;
        free ->
            abandon_often(Pool, N - 1, {Ended, Over})
    end.

%% Starts a task that claims the slot again and again, and counts how its claims end.
start_claiming(Pool, First) ->
    Stop = atomics:new(1, []),
    {Stop, weir_kit:start(fun() -> claim_often(Pool, Stop, [{R, 0} || R <- [First, reserved, not_held]]) end)}.

stop_claiming({Stop, Claimer}) ->
    atomics:put(Stop, 1, 1),
    weir_kit:result(Claimer).

claim_often(Pool, Stop, Told) ->
    case {atomics:get(Stop, 1), weir_pool_word:claim(Pool, 1, 7)} of
        {Stopped, {ok, Word, _}} ->
            How = end_somehow(Pool, Word),
            {How, N} = lists:keyfind(How, 1, Told),
            Now = lists:keyreplace(How, 1, Told, {How, N + 1}),
            case Stopped of
                0 -> claim_often(Pool, Stop, Now);
                1 -> Now
            end;
        {0, not_free} ->
            claim_often(Pool, Stop, Told);
        {1, not_free} ->
            Told
    end.

%% Sometimes the claim becomes another's before, and sometimes others run before its end.
end_somehow(Pool, Word) ->
    _ = rand:uniform(100) =:= 1 andalso erlang:yield(),
    case rand:uniform(3) of
        1 ->
            case weir_pool_word:take_over(Pool, 1, Word, 8) of
                {ok, Own} -> weir_pool_word:release(Pool, 1, Own);
                not_held -> not_held
            end;
        _ ->
            weir_pool_word:release(Pool, 1, Word)
    end.

%% All slots but the last are claimed, and two processes search without a pause, so that they note the last one whenever
%% it is not free. In each way that makes it free again, they find it.
a_slot_that_was_made_free_is_found(_Config) ->
    Rounds = weir_kit:long(1500, 5000),
    with_pool([60], fun(Pool) ->
        [{ok, _, _} = weir_pool_word:claim(Pool, Slot, 7) || Slot <- lists:seq(1, 59)],
        Stop = atomics:new(1, []),
        Searches = atomics:new(2, []),
        Found = counters:new(1, []),
        Searchers = [
            weir_kit:start(fun() -> search_until_stopped(Pool, Stop, N, Searches, Found) end)
         || N <- [1, 2]
        ],
        Await = fun(Way, Before) ->
            %% A search that began before the slot was free may miss it. A search that begins now must find it.
            Begun = [atomics:get(Searches, N) || N <- [1, 2]],
            await_found(Way, Before, Begun, Searches, Found, Pool)
        end,
        Made = [
            begin
                make_free(Way, Pool),
                Before = counters:get(Found, 1),
                ok = Await(Way, Before)
            end
         || _ <- lists:seq(1, Rounds), Way <- [occupied, given_back, released, unmarked, abandoned, taken_over, dropped]
        ],
        ?assertEqual(7 * Rounds, length(Made)),
        atomics:put(Stop, 1, 1),
        [ok = weir_kit:result(Searcher) || Searcher <- Searchers],
        weir_kit:none(lost, lost(Pool))
    end).

search_until_stopped(Pool, Stop, N, Searches, Found) ->
    case atomics:get(Stop, 1) of
        1 ->
            ok;
        0 ->
            case weir_pool_word:find(Pool, 1, N) of
                {ok, 60, Word, _} ->
                    free = weir_pool_word:release(Pool, 60, Word),
                    counters:add(Found, 1, 1);
                none ->
                    ok
            end,
            atomics:add(Searches, N, 1),
            search_until_stopped(Pool, Stop, N, Searches, Found)
    end.

%% The searchers may keep the slot from each other, but not for ten searches of each.
await_found(Way, Before, Begun, Searches, Found, Pool) ->
    case counters:get(Found, 1) > Before of
        true ->
            ok;
        false ->
            IsEnough = lists:all(fun({N, B}) -> atomics:get(Searches, N) > B + 10 end, lists:zip([1, 2], Begun)),
            case IsEnough andalso counters:get(Found, 1) =:= Before of
                true -> weir_kit:fault({not_found, Way, state(Pool, 60), is_shown(Pool, 60)});
                false -> erlang:yield(), await_found(Way, Before, Begun, Searches, Found, Pool)
            end
    end.

make_free(occupied, Pool) ->
    ok = retry(fun() -> weir_pool_word:reserve(Pool, 60) end),
    ok = weir_pool_word:vacate(Pool, 60),
    ok = weir_pool_word:occupy(Pool, 60);
make_free(given_back, Pool) ->
    ok = retry(fun() -> weir_pool_word:reserve(Pool, 60) end),
    ok = weir_pool_word:unreserve(Pool, 60);
make_free(Way, Pool) ->
    {ok, Word, _} = retry(fun() -> weir_pool_word:claim(Pool, 60, 9) end),
    case Way of
        released ->
            free = weir_pool_word:release(Pool, 60, Word);
        unmarked ->
            marked = weir_pool_word:mark(Pool, 60),
            ok = weir_pool_word:unmark(Pool, 60),
            free = weir_pool_word:release(Pool, 60, Word);
        abandoned ->
            {ok, Claim} = weir_pool_word:disown(Pool, 60, Word),
            ok = weir_pool_word:revoke(Pool, 60, Claim),
            ok = weir_pool_word:unreserve(Pool, 60);
        taken_over ->
            {ok, Own} = weir_pool_word:take_over(Pool, 60, Word, 10),
            free = weir_pool_word:release(Pool, 60, Own);
        dropped ->
            taken = weir_pool_word:release_dead(Pool, 60, Word),
            ok = weir_pool_word:occupy(Pool, 60)
    end.

%% While a searcher has it.
retry(Take) ->
    case Take() of
        ok -> ok;
        {ok, Word, Pid} -> {ok, Word, Pid};
        _ -> retry(Take)
    end.

%% Claimers hoard slots, so that nearly all are taken and searches go far, while the manager takes slots out of use and
%% puts them back. When all of them pause, a search finds each free slot. Some claimers know the pool as it was when it
%% was smaller.
free_slots_are_found(_Config) ->
    Rounds = weir_kit:long(100, 300),
    [
        with_pool(Sizes, fun(Pool) ->
            Found = [found_after_a_round(Pool, Round) || Round <- lists:seq(1, Rounds)],
            ct:pal("~w: ~p found after the rounds", [Sizes, lists:sum(Found)]),
            ?assert(lists:sum(Found) > Rounds)
        end)
     || Sizes <- [[60], [130], [20, 60, 200], [57, 58]]
    ].

found_after_a_round(#pool{limit = Limit} = Pool, Round) ->
    Enough = Limit div 4 + 2,
    Smaller = weir_pool_terms:reshape(Pool, Limit - Limit div 3, Limit - Limit div 3),
    Hoarders = [
        weir_kit:start(fun() -> hoard(lists:nth(N rem 2 + 1, [Pool, Smaller]), N, 200, Enough, []) end)
     || N <- lists:seq(1, 5)
    ],
    Manager = weir_kit:start(fun() -> bother(Pool, 100) end),
    Hoards = [weir_kit:result(Hoarder) || Hoarder <- Hoarders],
    _ = weir_kit:result(Manager),
    weir_kit:none(lost, [{Round, Slot} || Slot <- lost(Pool)]),
    Free = [Slot || Slot <- slots(Pool), state(Pool, Slot) =:= free],
    weir_kit:same(found, {Round, Free}, {Round, lists:sort(found_in_order(Pool, Round rem Limit + 1))}),
    %% All slots are free for the next round. Slots that were not found in this round stay without their bits.
    Left = lists:append(Hoards),
    [?assertEqual(free, weir_pool_word:release(Pool, Slot, Word)) || {Slot, Word} <- Left],
    Claims = [{Slot, Word} || Slot <- Free, Word <- [weir_pool_word:read(Pool, Slot)]],
    [?assertEqual(free, weir_pool_word:release(Pool, Slot, taken(Word))) || {Slot, Word} <- Claims],
    weir_kit:none(lost, [{Round, Slot} || Slot <- lost(Pool)]),
    [new_worker(Pool, Slot) || Slot <- slots(Pool), state(Pool, Slot) =:= vacant],
    length(Free).

%% A word that is noted, as the claimer knows it.
taken(Word) -> Word band bnot 7 bor 2.

hoard(_Pool, _Holder, 0, _Enough, Hoard) ->
    Hoard;
hoard(Pool, Holder, N, Enough, Hoard) ->
    case length(Hoard) < Enough andalso weir_pool_word:find(Pool, rand:uniform(Pool#pool.limit), Holder) of
        {ok, Slot, Word, _} ->
            hoard(Pool, Holder, N - 1, Enough, [{Slot, Word} | Hoard]);
        NoneOrEnough when Hoard =/= [] ->
            {Some, Others} = lists:partition(fun(_) -> rand:uniform(8) =:= 1 end, Hoard),
            [?assertMatch(R when R =:= free; R =:= reserved, weir_pool_word:release(Pool, S, W)) || {S, W} <- Some],
            _ = NoneOrEnough =:= none andalso erlang:yield(),
            hoard(Pool, Holder, N - 1, Enough, Others);
        none ->
            hoard(Pool, Holder, N - 1, Enough, Hoard)
    end.

%% Leaves nothing marked and nothing reserved.
bother(_Pool, 0) ->
    ok;
bother(Pool, N) ->
    Slot = rand:uniform(Pool#pool.limit),
    case {rand:uniform(3), state(Pool, Slot)} of
        {1, free} ->
            case weir_pool_word:reserve(Pool, Slot) of
                ok ->
                    erlang:yield(),
                    ok = weir_pool_word:vacate(Pool, Slot),
                    erlang:yield(),
                    ok = weir_pool_word:occupy(Pool, Slot);
                taken ->
                    ok
            end;
        _ ->
            case weir_pool_word:mark(Pool, Slot) of
                marked ->
                    erlang:yield(),
                    ok = weir_pool_word:unmark(Pool, Slot);
                reserved ->
                    erlang:yield()
            end,
            %% If it was released before the mark was taken off.
            case weir_pool_word:unreserve(Pool, Slot) of
                ok -> ok;
                State -> true = lists:member(State, [free, taken])
            end
    end,
    bother(Pool, N - 1).

%% ---------------------------------------------------------------- numbers of claimers

numbers_tell_pids_and_pids_numbers(_Config) ->
    Spawned = [spawn(fun() -> ok end) || _ <- lists:seq(1, 20000)],
    Pids = lists:usort(processes() ++ Spawned),
    ?assertEqual([], [Pid || Pid <- Pids, weir_pool_holder:pid(weir_pool_holder:id(Pid)) =/= Pid]),
    Ids = [weir_pool_holder:id(Pid) || Pid <- Pids, Pid =/= whereis(init)],
    ?assertEqual(length(Ids), length(lists:usort(Ids))),
    ?assertEqual([], [Id || Id <- Ids, Id < 1 orelse Id > ?MAX_HOLDER]).

%% Those that this runtime can make: its own begin with low numbers.
numbers_of_high_pids(_Config) ->
    {Node, _, Own, Creation} = parts(self()),
    Numbers = lists:usort([0, 1, 77] ++ [(1 bsl Bits) - Less || Bits <- lists:seq(8, 28), Less <- [1, 0, -7]]),
    %% Further away are those of other ages, whose numbers come again.
    Serials = lists:usort([
        Serial
     || Away <- [0, 1, 255, 4095, 8191, 8192, 16383, 30000, 32767],
        Serial <- [Own - Away, Own + Away],
        Serial >= 0
    ]),
    Pids = [
        Pid
     || Number <- Numbers,
        Serial <- Serials,
        Number + Serial > 0,
        Pid <- made(<<Node/binary, Number:32, Serial:32, Creation:32>>)
    ],
    ct:pal("~p pids, up to ~p", [length(Pids), lists:last(lists:sort(Pids))]),
    ?assert(length(Pids) > 60),
    ?assertEqual([], [Pid || Pid <- Pids, weir_pool_holder:pid(weir_pool_holder:id(Pid)) =/= Pid]),
    ?assertEqual(length(Pids), length(lists:usort([weir_pool_holder:id(Pid) || Pid <- Pids]))),
    ?assertEqual([], [Pid || Pid <- Pids, weir_pool_holder:id(Pid) > ?MAX_HOLDER]).

made(External) ->
    try
        [binary_to_term(External)]
    catch
        error:badarg -> []
    end.

parts(Pid) ->
    External = term_to_binary(Pid),
    Size = byte_size(External) - 12,
    <<Node:Size/binary, Number:32, Serial:32, Creation:32>> = External,
    {Node, Number, Serial, Creation}.

%% In a node that has started very many processes: where numbers end and serials go up, and where serials end.
pools_work_among_high_pids(_Config) ->
    {ok, Peer, _Node} = peer:start_link(#{
        connection => standard_io, wait_boot => weir_kit:wait_ms(),
        args => ["-pa" | code:get_path()]
    }),
    try
        Call = fun(Module, Function, Args) -> weir_kit_nodes:call(Peer, Module, Function, Args) end,
        ok = Call(logger, set_primary_config, [level, none]),
        false = Call(erts_debug, set_internal_state, [available_internal_state, true]),
        Highest = [
            begin
                _ = Call(erts_debug, set_internal_state, [next_pid, Next]),
                ok = Call(?MODULE, claims_are_heard_of, [Next]),
                _ = Call(erts_debug, set_internal_state, [next_pid, Next]),
                Call(?MODULE, neighbours_understand_each_other, [100])
            end
         %% Pids of 28 bits, 15 of them the number, up to OTP 25; then of 60, 28 of them the number.
         || Next <- [(1 bsl Bits) - 60 || Bits <- [15, 16, 20, 24, 28, 29, 32, 44, 45]]
        ],
        ct:pal("highest numbers and serials: ~p", [Highest]),
        ?assert(lists:max([Number || {Number, _} <- Highest]) > 32000),
        ?assert(lists:max([Serial || {_, Serial} <- Highest]) > 8000)
    after
        peer:stop(Peer)
    end.

%% Each process knows all others by their numbers. Returns the highest number and serial.
neighbours_understand_each_other(N) ->
    Pids = [spawn(fun() -> understand() end) || _ <- lists:seq(1, N)],
    Ids = [weir_pool_holder:id(Pid) || Pid <- Pids],
    N = length(lists:usort(Ids)),
    Answers = [
        begin
            Pid ! {which, self(), Ids},
            receive {Pid, Answer} -> Answer end
        end
     || Pid <- Pids
    ],
    [Pids] = lists:usort(Answers),
    Parts = [parts(Pid) || Pid <- Pids],
    {lists:max([Number || {_, Number, _, _} <- Parts]), lists:max([Serial || {_, _, Serial, _} <- Parts])}.

understand() ->
    receive
        {which, From, Ids} -> From ! {self(), [weir_pool_holder:pid(Id) || Id <- Ids]}
    end.

%% Killed claimers are: the manager makes their pids from their numbers.
claims_are_heard_of(Name) ->
    ok = weir_pool_test_lib:setup(),
    ok = weir_pool:start(Name, (weir_pool_test_lib:opts(40))#{abandoned => free}),
    Test = self(),
    Claimers = [
        spawn(fun() ->
            {ok, _, _} = weir_pool:checkout(Name, 0),
            Test ! {claimed, self()},
            receive after infinity -> ok end
        end)
     || _ <- lists:seq(1, 40)
    ],
    [receive {claimed, Claimer} -> ok end || Claimer <- Claimers],
    {error, busy} = weir_pool:checkout(Name, 0),
    {Some, Others} = lists:split(20, Claimers),
    [exit(Claimer, kill) || Claimer <- Some],
    until(fun() -> claimed_at_a_tick(Name) =:= 20 end),
    [exit(Claimer, kill) || Claimer <- Others],
    until(fun() -> claimed_at_a_tick(Name) =:= 0 end),
    ok = weir_pool:stop(Name).

%% Does not wait for the manager's own.
claimed_at_a_tick(Name) ->
    weir_pool_test_lib:manager(Name) ! tick,
    {ok, #{claimed := Claimed}} = weir_pool:info(Name),
    Claimed.

a_dictionary_that_was_copied_is_not_believed(_Config) ->
    Own = weir_pool_holder:id(self()),
    _ = erase('$weir_pool_holder'),
    {Self, Own, Begin} = weir_pool_holder:claimer(),
    ?assertEqual(self(), Self),
    ?assert(Begin >= 1),
    ok = weir_pool_holder:remember({Self, Own, Begin}, 17),
    ?assertEqual({Self, Own, 17}, weir_pool_holder:claimer()),
    Copied = get(),
    {Other, OthersId, OthersSlot} = elsewhere(fun() ->
        lists:foreach(fun({Key, Value}) -> put(Key, Value) end, Copied),
        {Pid, Id, Slot} = weir_pool_holder:claimer(),
        {Pid, Pid} = {self(), weir_pool_holder:pid(Id)},
        {Pid, Id, Slot}
    end),
    ?assertNotEqual({Self, Own}, {Other, OthersId}),
    ?assert(OthersSlot >= 1),
    %% One that was erased is made again, and is the same.
    _ = erase('$weir_pool_holder'),
    ?assertEqual({Self, Own, Begin}, weir_pool_holder:claimer()).

elsewhere(Fun) -> weir_kit:result(weir_kit:start(Fun)).
