%% @doc A slot's state word: one integer that says whether a process uses the slot's worker exclusively, and which one.
%%
%% ```
%%            occupy                 claim                       release
%%   vacant ----------> free ------------------> taken --------------------------> free
%%                       | ^                      | ^                               ^
%%               reserve | | unreserve       mark | | unmark                        | unreserve
%%                       v |                      v |          release              |
%%                    reserved                 marked --------------------> reserved
%%
%%   take_over:     taken or marked stays, with another holder
%%   disown:        taken or marked stays, without a holder
%%   revoke:        from taken or marked to reserved
%%   release_dead:  from taken or marked to vacant
%%   vacate:        from any state to vacant
%% '''
%%
%% Every change is a compare-and-exchange. Claimers call `claim', `release', `release_dead', `disown' and `take_over'.
%% The queue calls `claim' in the place of a waiter, and the waiter then takes the claim over. Only the manager calls
%% the other functions.
%%
%% No process but the manager changes a `reserved' slot. A `marked' slot is taken, and the manager waits for the end of
%% the claim. The exchange of a release fails if the slot has been marked. The claimer then leaves the slot reserved and
%% notifies the manager.
%%
%% == Layout ==
%%
%% A word is `Generation (12 bits), Holder (44 bits), State (3 bits)'. An Erlang integer of 59 bits needs no memory on
%% the heap. The exchange that makes a claim also writes the number of the holder (weir_pool_holder), so every claim in
%% a word has a known holder.
%%
%% A claim adds 1 to the generation, and a change by the manager adds 64. The end of a claim compares the word with the
%% word of that claim. If the claim has already ended, the words differ and the call changes nothing.
%%
%% A word repeats in two cases: after 4,096 claims of the slot, if the holder is the same, and after 64 changes by the
%% manager without a claim in between. A process that pauses between two of its steps for exactly that number of changes
%% takes the new word for the old one.
%%
%% The lower six bits of the generation count the claims of the slot. The claim that makes them 0 adds 64 to the pool's
%% counter of claims, so the other 63 claims write no counter.
%%
%% == The claimed worker ==
%%
%% A claim reads a free word, then the pid in the slot's term, and then exchanges the word. The manager changes the pid
%% only while the word is vacant. Every way from `free' through other states back to `free' changes the generation. If
%% the exchange succeeds, the pid in between was therefore the pid of the slot's worker.
%%
%% == Searches ==
%%
%% A search for a free slot reads only the words of slots whose bit in the free-slot bitmap is set. If a search clears
%% the bit of a taken slot, weir_pool_bitmap writes a second state number for taken into the word, `noted'. The end of
%% the claim then sets the bit again. All other functions of this module treat a noted word as taken.
%% @private
-module(weir_pool_word).

-export([claim/3, claim_free/3, find/3, take_over/4, release/3, disown/3, release_dead/3, is_claimed_by/3]).
-export([occupy/2, vacate/2, reserve/2, unreserve/2, mark/2, unmark/2, revoke/3]).
-export([read/2, state/1, holder/1, claim_of/1, is_any_filled/1, claims/1]).

-export_type([word/0, state/0, claim/0]).

-include("weir_pool.hrl").
-include("weir_pool_word.hrl").

-type word() :: non_neg_integer().

-type state() :: vacant | free | taken | marked | reserved.

-type claim() :: non_neg_integer().
%% A claimed word without its state. Marks and notes change the state, but not the claim.

%% Stands for no holder. No process that claims has this number.
-define(NOBODY, 0).

-define(SHIFT, (?HOLDER_BITS + ?STATE_BITS)).
-define(ONE_CLAIM, (1 bsl ?SHIFT)).
-define(ONE_CHANGE, (64 bsl ?SHIFT)).
-define(GENERATION, (16#fff bsl ?SHIFT)).
-define(CLAIMS_COUNTED, (63 bsl ?SHIFT)).
%% The first word of a slot: vacant, in generation 0.
-define(NEVER_USED, 0).

-define(IS_CLAIMED(Word), (?STATE_OF(Word) =:= ?TAKEN orelse ?STATE_OF(Word) =:= ?MARKED orelse
    ?STATE_OF(Word) =:= ?NOTED)).

%% Number of slots that a search finds not free before it begins to clear bits. With a lower number, the notes cost
%% releases more than they save searches.
-define(HIDE_AFTER, 24).

%% ---------------------------------------------------------------- claimers

%% @doc Claims a slot for a holder. If the slot is not free, returns `vacant' or `not_free'.
%%
%% Cost: 28 ns on x86 for reading the word, because the read is fenced. If the slot is free, another 12 ns for the
%% slot's term and 15 ns for the exchange.
-spec claim(#pool{}, weir_pool:slot(), weir_pool_holder:id()) -> {ok, word(), pid()} | not_free | vacant.
claim(Pool, Slot, Holder) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    Index = ?STATE_WORD(First, Slot),
    claim(atomics:get(Words, Index), Words, Index, Slot, Holder, Pool).

%% @doc Like {@link claim/3}, for a slot that is likely to be free.
%%
%% Cost: 27 ns less than `claim/3', because an exchange of 0 for 0 reads the word without a fence. If another process
%% has claimed the slot, the exchange takes the word's cache line away from the processor of that process.
-spec claim_free(#pool{}, weir_pool:slot(), weir_pool_holder:id()) -> {ok, word(), pid()} | not_free | vacant.
claim_free(Pool, Slot, Holder) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    Index = ?STATE_WORD(First, Slot),
    case atomics:compare_exchange(Words, Index, ?NEVER_USED, ?NEVER_USED) of
        ok -> vacant;
        Word -> claim(Word, Words, Index, Slot, Holder, Pool)
    end.

claim(Free, Words, Index, Slot, Holder, #pool{base = Base} = Pool) when ?STATE_OF(Free) =:= ?FREE ->
    case persistent_term:get(?SLOT_KEY(Base, Slot), undefined) of
        %% After the end of a pool, its slot terms are erased but its words may still be free.
        undefined -> vacant;
        Pid -> exchange(Words, Index, Free, Holder, Pid, Pool)
    end;
claim(Word, _Words, _Index, _Slot, _Holder, _Pool) when ?STATE_OF(Word) =:= ?VACANT ->
    vacant;
claim(_Word, _Words, _Index, _Slot, _Holder, _Pool) ->
    not_free.

exchange(Words, Index, Free, Holder, Pid, Pool) ->
    Taken = ((Free + ?ONE_CLAIM) band ?GENERATION) + (Holder bsl ?STATE_BITS) + ?TAKEN,
    case atomics:compare_exchange(Words, Index, Free, Taken) of
        ok when Taken band ?CLAIMS_COUNTED =:= 0 ->
            ok = weir_pool_terms:count(Pool, ?CLAIMS, 64),
            {ok, Taken, Pid};
        ok ->
            {ok, Taken, Pid};
        _Changed ->
            not_free
    end.

%% @doc Searches for a free slot, and claims the slot for a holder.
%%
%% The search begins at slot From, goes on at slot 1 after the last slot that is picked from, and tries slots for
%% overflow last. Clears the bits of slots that are not free, except for the first 24 of the search.
%%
%% Cost: reads a word of the bitmap for every 56 slots, and the state word of each slot whose bit is set.
-spec find(#pool{}, From :: pos_integer(), weir_pool_holder:id()) -> {ok, weir_pool:slot(), word(), pid()} | none.
find(#pool{size = Size, limit = Limit} = Pool, From, Holder) when From =< Size ->
    find_in(From, Size, [{1, From - 1}, {Size + 1, Limit}], 0, Pool, Holder);
find(#pool{size = Size, limit = Limit} = Pool, _From, Holder) ->
    find_in(1, Size, [{Size + 1, Limit}], 0, Pool, Holder).

find_in(First, Last, Ranges, NotFree, Pool, Holder) ->
    case weir_pool_bitmap:next(Pool, First, Last) of
        {Bits, Slot, End} ->
            case try_each(Bits, Slot, End, NotFree, Pool, Holder) of
                {none, NowNotFree} -> find_in(End + 1, Last, Ranges, NowNotFree, Pool, Holder);
                Found -> Found
            end;
        none when Ranges =:= [] ->
            none;
        none ->
            [{NextFirst, NextLast} | Others] = Ranges,
            find_in(NextFirst, NextLast, Others, NotFree, Pool, Holder)
    end.

try_each(Bits, Slot, End, NotFree, _Pool, _Holder) when Bits =:= 0; Slot > End ->
    {none, NotFree};
try_each(Bits, Slot, End, NotFree, Pool, Holder) when Bits band 1 =:= 0 ->
    try_each(Bits bsr 1, Slot + 1, End, NotFree, Pool, Holder);
try_each(Bits, Slot, End, NotFree, Pool, Holder) ->
    case claim(Pool, Slot, Holder) of
        {ok, Word, Pid} ->
            {ok, Slot, Word, Pid};
        _NotFree ->
            _ = NotFree >= ?HIDE_AFTER andalso weir_pool_bitmap:hide(Pool, Slot),
            try_each(Bits bsr 1, Slot + 1, End, NotFree + 1, Pool, Holder)
    end.

%% @doc Makes another process the holder of a claim. Returns the word with which the new holder ends the claim. Returns
%% `not_held' if the claim has already ended.
-spec take_over(#pool{}, weir_pool:slot(), word(), weir_pool_holder:id()) -> {ok, word()} | not_held.
take_over(Pool, Slot, Taken, Holder) ->
    Own = (Taken band ?GENERATION) + (Holder bsl ?STATE_BITS) + ?TAKEN,
    case end_claim(Pool, Slot, Taken, Own, ?MARKED_OF(Own)) of
        not_held -> not_held;
        _ -> {ok, Own}
    end.

%% @doc Ends a claim whose worker is ready for the next one.
%%
%% Returns `free', or `reserved' if the slot was marked; the caller then notifies the manager. Returns `not_held' if the
%% claim has already ended, because the worker died or the manager revoked the claim.
-spec release(#pool{}, weir_pool:slot(), word()) -> free | reserved | not_held.
release(Pool, Slot, Taken) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    Free = (Taken band ?GENERATION) + ?FREE,
    case atomics:compare_exchange(Words, ?STATE_WORD(First, Slot), Taken, Free) of
        ok -> free;
        _Changed ->
            case end_claim(Pool, Slot, Taken, Free, reserved(Taken)) of
                taken -> free;
                marked -> reserved;
                not_held -> not_held
            end
    end.

%% @doc Leaves the end of a claim to the manager, because the worker may be busy or broken.
%%
%% The slot stays taken, without a holder, until the manager revokes the returned claim. The caller notifies the
%% manager. If the caller dies before that, the manager revokes the claim at the second tick that finds the word.
%%
%% A marked slot stays marked, because a reserved slot may become free before the notification arrives. That happens if
%% the manager stops waiting for the slot. A claim would then get a worker that may be broken.
-spec disown(#pool{}, weir_pool:slot(), word()) -> {ok, claim()} | not_held.
disown(Pool, Slot, Taken) ->
    Disowned = (Taken band ?GENERATION) + (?NOBODY bsl ?STATE_BITS) + ?TAKEN,
    case end_claim(Pool, Slot, Taken, Disowned, ?MARKED_OF(Disowned)) of
        not_held -> not_held;
        _ -> {ok, claim_of(Disowned)}
    end.

%% @doc Ends a claim whose worker is dead. The slot becomes vacant, although the manager may not have received the
%% worker's exit yet.
%%
%% Returns the previous state. If that is `marked', the caller notifies the manager, which waits for the slot.
-spec release_dead(#pool{}, weir_pool:slot(), word()) -> taken | marked | not_held.
release_dead(Pool, Slot, Taken) ->
    Vacant = (Taken band ?GENERATION) + ?VACANT,
    end_claim(Pool, Slot, Taken, Vacant, Vacant).

reserved(Word) -> next(Word, ?RESERVED).

%% Exchanges the word of a claim for IfTaken or IfMarked, depending on its state. Returns that state.
end_claim(Pool, Slot, Taken, IfTaken, IfMarked) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    Index = ?STATE_WORD(First, Slot),
    case atomics:compare_exchange(Words, Index, Taken, IfTaken) of
        ok ->
            taken;
        Noted when Noted =:= ?NOTED_OF(Taken) ->
            case atomics:compare_exchange(Words, Index, Noted, IfTaken) of
                ok ->
                    ok = weir_pool_bitmap:show(Pool, Slot),
                    taken;
                _Changed ->
                    end_claim(Pool, Slot, Taken, IfTaken, IfMarked)
            end;
        Marked when Marked =:= ?MARKED_OF(Taken) ->
            case atomics:compare_exchange(Words, Index, Marked, IfMarked) of
                ok -> marked;
                _Changed -> end_claim(Pool, Slot, Taken, IfTaken, IfMarked)
            end;
        _Other ->
            not_held
    end.

%% @doc Returns whether the claim that has this word is under way. After an end of the claim, or after a call of {@link
%% take_over/4}, returns `false'.
-spec is_claimed_by(#pool{}, weir_pool:slot(), word()) -> boolean().
is_claimed_by(Pool, Slot, Taken) ->
    Word = read(Pool, Slot),
    ?IS_CLAIMED(Word) andalso claim_of(Word) =:= claim_of(Taken).

%% ---------------------------------------------------------------- the manager

%% @doc Makes a vacant or reserved slot free, after the manager has written the worker's pid into the slot's term.
-spec occupy(#pool{}, weir_pool:slot()) -> ok.
occupy(Pool, Slot) ->
    ok = change(Pool, Slot, [vacant, reserved], ?FREE),
    weir_pool_bitmap:show(Pool, Slot).

%% @doc Makes a slot vacant, before the manager writes the slot's term. Ends the claim of the slot, if there is one.
-spec vacate(#pool{}, weir_pool:slot()) -> ok.
vacate(Pool, Slot) -> change(Pool, Slot, [vacant, free, taken, marked, reserved], ?VACANT).

%% @doc Takes a free slot out of use. If the slot is not free, returns its state.
-spec reserve(#pool{}, weir_pool:slot()) -> ok | state().
reserve(Pool, Slot) -> change(Pool, Slot, [free], ?RESERVED).

%% @doc Puts a reserved slot back into use. If the slot is not reserved, returns its state.
-spec unreserve(#pool{}, weir_pool:slot()) -> ok | state().
unreserve(Pool, Slot) ->
    Result = change(Pool, Slot, [reserved], ?FREE),
    ok = weir_pool_bitmap:show(Pool, Slot),
    Result.

%% @doc Takes a slot out of use, at once if the slot is free, and at the end of its claim if the slot is taken. Returns
%% the new state.
-spec mark(#pool{}, weir_pool:slot()) -> reserved | marked | vacant.
mark(Pool, Slot) ->
    update(Pool, Slot, fun
        (Word) when ?STATE_OF(Word) =:= ?FREE -> {reserved, reserved(Word)};
        %% The generation and the holder stay, so that the end of the claim recognizes its word.
        (Word) when ?STATE_OF(Word) =:= ?TAKEN -> {marked, ?MARKED_OF(Word)};
        (Word) when ?STATE_OF(Word) =:= ?NOTED -> {marked, Word - ?NOTED + ?MARKED};
        (Word) -> state(Word)
    end).

%% @doc Clears the mark, so that the end of the claim makes the slot free again. Does nothing if the slot is not marked.
-spec unmark(#pool{}, weir_pool:slot()) -> ok.
unmark(Pool, Slot) ->
    ok = update(Pool, Slot, fun
        (Word) when ?STATE_OF(Word) =:= ?MARKED -> {ok, Word - ?MARKED + ?TAKEN};
        (_Word) -> ok
    end),
    weir_pool_bitmap:show(Pool, Slot).

%% @doc Ends a claim in the place of its holder. The slot becomes reserved. Returns `over' if the claim has already
%% ended.
-spec revoke(#pool{}, weir_pool:slot(), claim()) -> ok | over.
revoke(Pool, Slot, Claim) ->
    update(Pool, Slot, fun
        (Word) when ?IS_CLAIMED(Word), Word bsr ?STATE_BITS =:= Claim -> {ok, reserved(Word)};
        (_Word) -> over
    end).

%% Changes the state to To if the current state is in From. Returns the current state otherwise.
change(Pool, Slot, From, To) ->
    update(Pool, Slot, fun(Word) ->
        State = state(Word),
        case lists:member(State, From) of
            true -> {ok, next(Word, To)};
            false -> State
        end
    end).

%% Applies Fun to the word, in a loop of compare-and-exchange until an exchange succeeds. Fun returns its result with
%% the new word, or without a new word to leave the word unchanged. Used by the manager only, because the loop overrides
%% every other change.
update(Pool, Slot, Fun) ->
    Word = read(Pool, Slot),
    case Fun(Word) of
        {Result, New} ->
            case compare_exchange(Pool, Slot, Word, New) of
                ok -> Result;
                _Changed -> update(Pool, Slot, Fun)
            end;
        Result ->
            Result
    end.

next(Word, State) -> ((Word + ?ONE_CHANGE) band ?GENERATION) + State.

compare_exchange(Pool, Slot, Word, New) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    atomics:compare_exchange(Words, ?STATE_WORD(First, Slot), Word, New).

%% ---------------------------------------------------------------- reading

%% @doc Returns the current word of a slot.
-spec read(#pool{}, weir_pool:slot()) -> word().
read(Pool, Slot) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    atomics:get(Words, ?STATE_WORD(First, Slot)).

%% @doc Returns the state in a word.
-spec state(word()) -> state().
state(Word) ->
    case ?STATE_OF(Word) of
        ?VACANT -> vacant;
        ?FREE -> free;
        ?TAKEN -> taken;
        ?NOTED -> taken;
        ?MARKED -> marked;
        ?RESERVED -> reserved
    end.

%% @doc Returns the number of the process that holds a claim, or `nobody' if the claim is disowned.
-spec holder(claim()) -> weir_pool_holder:id() | nobody.
holder(Claim) ->
    case Claim band ((1 bsl ?HOLDER_BITS) - 1) of
        ?NOBODY -> nobody;
        Holder -> Holder
    end.

%% @doc Returns the claim in a word that is taken or marked.
-spec claim_of(word()) -> claim().
claim_of(Word) -> Word bsr ?STATE_BITS.

%% @doc Returns whether any slot has a worker. Cost: reads words until one of them is not vacant.
-spec is_any_filled(#pool{}) -> boolean().
is_any_filled(#pool{limit = Limit} = Pool) -> is_any_filled(1, Limit, Pool).

is_any_filled(Slot, Limit, _Pool) when Slot > Limit -> false;
is_any_filled(Slot, Limit, Pool) ->
    ?STATE_OF(read(Pool, Slot)) =/= ?VACANT orelse is_any_filled(Slot + 1, Limit, Pool).

%% @doc Returns how many claims a slot's word has counted since the slot last added 64 to the pool's counter.
-spec claims(word()) -> 0..63.
claims(Word) -> (Word bsr ?SHIFT) band 63.
