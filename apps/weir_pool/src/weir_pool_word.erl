%% @doc A slot's state word: who may use the worker exclusively, in one integer that is changed by compare-and-exchange.
%%
%% ```
%%            occupy                 claim                       release
%%   vacant ----------> free ------------------> taken --------------------------> free
%%                       | ^                      | ^                               ^
%%               reserve | | unreserve       mark | | unmark                        | unreserve
%%                       v |                      v |          release              |
%%                    reserved                 marked --------------------> reserved
%%
%%   revoke:        from taken or marked to reserved
%%   release_dead:  from taken or marked to vacant
%%   vacate:        from anything to vacant
%% '''
%%
%% Claimers make `claim', `release', `release_dead' and `disown'; the queue makes `claim' for a request. The manager
%% makes all other changes. A `reserved' slot belongs to the manager alone. A `marked' slot is taken, and the manager
%% waits for its release: the releaser finds its word one higher, leaves the slot reserved, and notifies the manager.
%%
%% The word is `Generation (12 bits), Holder (44 bits), State (3 bits)': 59 bits are what a small integer has room for.
%% The holder (weir_pool_holder) is written by the very exchange that makes the claim, so there is no moment when a slot
%% is taken and nobody knows by whom. Every claim raises the generation by one, and what the manager does raises it by
%% 64: a release compares with the word of its own claim, and one that comes late finds another word and does nothing.
%% (A word comes again after 4,096 claims of its slot by the same holder within one claim, or 64 changes by the manager
%% with no claim in between; whoever is kept from running for exactly so long between two of its steps is misled.)
%%
%% The lower six bits of the generation count claims, for nothing: whoever makes the 64th adds 64 to a counter.
%%
%% What is claimed is the worker that is there when the claim is made. The manager changes a slot's pid only while the
%% word says vacant, and every change away from `free' and back raises the generation; so a pid that is
%% read between the reading of a free word and a successful claim of that very word is the pid of the claim.
%%
%% == The map ==
%%
%% Whoever has no slot of its own in mind would have to read a line of memory for each slot to find a free one. A bit of
%% the map says whether a slot is worth a look; it is set unless somebody has looked in vain. Clearing it obliges
%% whoever makes the slot free to set it again, which must cost those nothing who are never looked at. So a searcher
%% that meets many slots that are taken first clears the bit and then makes the word `noted': a taken one whose release
%% by a plain exchange fails, finds the note, and sets the bit after it has made the slot free. If the word has changed
%% meanwhile the searcher sets the bit again itself. A slot that is vacant or reserved needs no note: it is made free by
%% the manager, who always sets the bit. A process that is killed between two of these steps leaves a free slot without
%% its bit, which only searchers miss; the manager's next tick sets it.
%% @private
-module(weir_pool_word).

-export([claim/3, claim_free/3, find/3, take_over/4, release/3, disown/3, release_dead/3, is_claimed_by/3]).
-export([occupy/2, vacate/2, reserve/2, unreserve/2, mark/2, unmark/2, revoke/3, show/2]).
-export([read/2, state/1, holder/1, claim_of/1, is_any_filled/1, claims/1]).

-export_type([word/0, state/0, claim/0]).

-include("weir_pool.hrl").

-type word() :: non_neg_integer().

-type state() :: vacant | free | taken | marked | reserved.

-type claim() :: non_neg_integer().
%% A claimed word without its state, which may change under the claim.

-define(VACANT, 0).
-define(FREE, 1).
-define(TAKEN, 2).
-define(MARKED, 3).
-define(RESERVED, 4).
-define(NOTED, 5).

%% No process has this number.
-define(NOBODY, 0).

-define(STATE_BITS, 3).
-define(HOLDER_BITS, 44).
-define(SHIFT, (?HOLDER_BITS + ?STATE_BITS)).
-define(ONE_CLAIM, (1 bsl ?SHIFT)).
-define(ONE_CHANGE, (64 bsl ?SHIFT)).
-define(GENERATION, (16#fff bsl ?SHIFT)).
-define(CLAIMS_COUNTED, (63 bsl ?SHIFT)).
%% What a word is at first: vacant, in generation 0.
-define(NEVER_USED, 0).

-define(STATE_OF(Word), ((Word) band 7)).
-define(IS_CLAIMED(Word), (?STATE_OF(Word) =:= ?TAKEN orelse ?STATE_OF(Word) =:= ?MARKED orelse
    ?STATE_OF(Word) =:= ?NOTED)).

%% A search that has met so many slots in vain notes those that it meets from then on. Below that the notes would cost
%% those who are looked at more than they save.
-define(NOTE_AFTER, 24).

%% ---------------------------------------------------------------- claimers

%% @doc Claims a slot for a holder, if it is free.
%%
%% Cost: 28 ns on x86 for reading the word, which is fenced; if it is free, 12 ns for the slot's term and 15 for the
%% exchange.
-spec claim(#pool{}, weir_pool:slot(), weir_pool_holder:id()) -> {ok, word(), pid()} | not_free | vacant.
claim(Pool, Slot, Holder) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    Index = ?STATE_WORD(First, Slot),
    claim(atomics:get(Words, Index), Words, Index, Slot, Holder, Pool).

%% @doc Like {@link claim/3}, for a slot that is likely to be free: the word is read by an exchange of nothing for
%% nothing, which is 27 ns cheaper, but takes the line away from the processor of whoever has claimed the slot.
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
        %% The slot terms of a pool that is gone are erased, whatever its words say.
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

%% @doc Claims a free slot for a holder, beginning at this slot, those for overflow last.
%%
%% Cost: reads a word of the map for every 56 slots, and a word for each slot whose bit is set; 24 slots are enough to
%% find out that it is worth clearing bits.
-spec find(#pool{}, From :: pos_integer(), weir_pool_holder:id()) -> {ok, weir_pool:slot(), word(), pid()} | none.
find(#pool{size = Size, limit = Limit} = Pool, From, Holder) when From =< Size ->
    find([{From, Size}, {1, From - 1}, {Size + 1, Limit}], 0, Pool, Holder);
find(#pool{size = Size, limit = Limit} = Pool, _From, Holder) ->
    find([{1, Size}, {Size + 1, Limit}], 0, Pool, Holder).

find([{First, Last} | Ranges], InVain, Pool, Holder) when First =< Last ->
    {Map, Index, Bit, More} = weir_pool_terms:map(Pool, First),
    End = min(Last, First + More),
    case try_each(atomics:get(Map, Index) bsr Bit, First, End, InVain, Pool, Holder) of
        {none, MoreInVain} -> find([{End + 1, Last} | Ranges], MoreInVain, Pool, Holder);
        Found -> Found
    end;
find([_Empty | Ranges], InVain, Pool, Holder) ->
    find(Ranges, InVain, Pool, Holder);
find([], _InVain, _Pool, _Holder) ->
    none.

try_each(Bits, Slot, End, InVain, _Pool, _Holder) when Bits =:= 0; Slot > End ->
    {none, InVain};
try_each(Bits, Slot, End, InVain, Pool, Holder) when Bits band 1 =:= 0 ->
    try_each(Bits bsr 1, Slot + 1, End, InVain, Pool, Holder);
try_each(Bits, Slot, End, InVain, Pool, Holder) ->
    case claim(Pool, Slot, Holder) of
        {ok, Word, Pid} ->
            {ok, Slot, Word, Pid};
        _ ->
            ok = note(InVain >= ?NOTE_AFTER, Pool, Slot),
            try_each(Bits bsr 1, Slot + 1, End, InVain + 1, Pool, Holder)
    end.

%% Clears the bit of a slot that is not free.
note(false, _Pool, _Slot) ->
    ok;
note(true, Pool, Slot) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    Index = ?STATE_WORD(First, Slot),
    set_bit(Pool, Slot, 0),
    case atomics:get(Words, Index) of
        Taken when ?STATE_OF(Taken) =:= ?TAKEN ->
            case atomics:compare_exchange(Words, Index, Taken, Taken - ?TAKEN + ?NOTED) of
                ok -> ok;
                _Changed -> show(Pool, Slot)
            end;
        Free when ?STATE_OF(Free) =:= ?FREE ->
            show(Pool, Slot);
        _ ->
            ok
    end.

%% @doc Sets the bit of a slot that may be free.
-spec show(#pool{}, weir_pool:slot()) -> ok.
show(Pool, Slot) -> set_bit(Pool, Slot, 1).

set_bit(Pool, Slot, To) ->
    {Map, Index, Bit, _} = weir_pool_terms:map(Pool, Slot),
    set_bit(Map, Index, 1 bsl Bit, To, atomics:get(Map, Index)).

set_bit(_Map, _Index, Mask, 1, Bits) when Bits band Mask =/= 0 -> ok;
set_bit(_Map, _Index, Mask, 0, Bits) when Bits band Mask =:= 0 -> ok;
set_bit(Map, Index, Mask, To, Bits) ->
    case atomics:compare_exchange(Map, Index, Bits, Bits bxor Mask) of
        ok -> ok;
        Changed -> set_bit(Map, Index, Mask, To, Changed)
    end.

%% @doc Makes the claim that has this word another holder's. `not_held': it is over already.
-spec take_over(#pool{}, weir_pool:slot(), word(), weir_pool_holder:id()) -> {ok, word()} | not_held.
take_over(Pool, Slot, Taken, Holder) ->
    Own = (Taken band ?GENERATION) + (Holder bsl ?STATE_BITS) + ?TAKEN,
    case end_claim(Pool, Slot, Taken, Own, Own - ?TAKEN + ?MARKED) of
        not_held -> not_held;
        _ -> {ok, Own}
    end.

%% @doc Ends the claim that has this word. `reserved': the manager was waiting for it, and is to be told. `not_held':
%% the claim was over already, because the worker died or the manager took it away.
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

%% @doc Ends the claim that has this word, of a worker that may be busy or broken: the word is nobody's until the
%% manager, who is to be told of it, has dealt with it. Should it not be told, its ticks find the word. A
%% marked word stays marked: were it reserved, and the manager no longer waiting for the slot by the time that it is
%% told, the worker would be put back into use.
-spec disown(#pool{}, weir_pool:slot(), word()) -> {ok, claim()} | not_held.
disown(Pool, Slot, Taken) ->
    Nobodys = (Taken band ?GENERATION) + (?NOBODY bsl ?STATE_BITS) + ?TAKEN,
    case end_claim(Pool, Slot, Taken, Nobodys, Nobodys - ?TAKEN + ?MARKED) of
        not_held -> not_held;
        _ -> {ok, claim_of(Nobodys)}
    end.

%% @doc Ends the claim that has this word, of a worker that is dead: the slot is vacant, though the manager has not
%% heard of it yet. Tells what the word was; if `marked' the manager was waiting for it, and is to be told.
-spec release_dead(#pool{}, weir_pool:slot(), word()) -> taken | marked | not_held.
release_dead(Pool, Slot, Taken) ->
    Vacant = (Taken band ?GENERATION) + ?VACANT,
    end_claim(Pool, Slot, Taken, Vacant, Vacant).

reserved(Word) -> next(Word, ?RESERVED).

%% Changes the word of a claim, to one thing if it is taken, to another if it is marked. Tells which it was.
end_claim(Pool, Slot, Taken, IfTaken, IfMarked) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    Index = ?STATE_WORD(First, Slot),
    case atomics:compare_exchange(Words, Index, Taken, IfTaken) of
        ok ->
            taken;
        Noted when Noted =:= Taken - ?TAKEN + ?NOTED ->
            case atomics:compare_exchange(Words, Index, Noted, IfTaken) of
                ok ->
                    ok = show(Pool, Slot),
                    taken;
                _Changed ->
                    end_claim(Pool, Slot, Taken, IfTaken, IfMarked)
            end;
        Marked when Marked =:= Taken - ?TAKEN + ?MARKED ->
            case atomics:compare_exchange(Words, Index, Marked, IfMarked) of
                ok -> marked;
                _Changed -> end_claim(Pool, Slot, Taken, IfTaken, IfMarked)
            end;
        _Other ->
            not_held
    end.

%% @doc Whether the claim that has this word is still that holder's.
-spec is_claimed_by(#pool{}, weir_pool:slot(), word()) -> boolean().
is_claimed_by(Pool, Slot, Taken) ->
    Word = read(Pool, Slot),
    ?IS_CLAIMED(Word) andalso claim_of(Word) =:= claim_of(Taken).

%% ---------------------------------------------------------------- the manager

%% @doc Manager: a worker is in the slot, and its term is written. Of a slot that is vacant or reserved.
-spec occupy(#pool{}, weir_pool:slot()) -> ok.
occupy(Pool, Slot) ->
    ok = change(Pool, Slot, [vacant, reserved], ?FREE),
    show(Pool, Slot).

%% @doc Manager: the worker is gone; its term is not written yet. Whoever had claimed it has no longer.
-spec vacate(#pool{}, weir_pool:slot()) -> ok.
vacate(Pool, Slot) -> change(Pool, Slot, [vacant, free, taken, marked, reserved], ?VACANT).

%% @doc Manager: takes a free slot out of use. Gives the state it was in if it was not free.
-spec reserve(#pool{}, weir_pool:slot()) -> ok | state().
reserve(Pool, Slot) -> change(Pool, Slot, [free], ?RESERVED).

%% @doc Manager: puts a reserved slot back into use.
-spec unreserve(#pool{}, weir_pool:slot()) -> ok | state().
unreserve(Pool, Slot) ->
    Result = change(Pool, Slot, [reserved], ?FREE),
    ok = show(Pool, Slot),
    Result.

%% @doc Manager: takes a slot out of use, now if it is free, else when it is released. Gives the state that it is now
%% in.
-spec mark(#pool{}, weir_pool:slot()) -> reserved | marked | vacant.
mark(Pool, Slot) ->
    update(Pool, Slot, fun
        (Word) when ?STATE_OF(Word) =:= ?FREE -> {reserved, reserved(Word)};
        %% The generation and the holder stay, so that the releaser recognises its word.
        (Word) when ?STATE_OF(Word) =:= ?TAKEN -> {marked, Word - ?TAKEN + ?MARKED};
        (Word) when ?STATE_OF(Word) =:= ?NOTED -> {marked, Word - ?NOTED + ?MARKED};
        (Word) -> state(Word)
    end).

%% @doc Manager: does not wait for the release any more. Of a slot that is not marked, nothing.
-spec unmark(#pool{}, weir_pool:slot()) -> ok.
unmark(Pool, Slot) ->
    ok = update(Pool, Slot, fun
        (Word) when ?STATE_OF(Word) =:= ?MARKED -> {ok, Word - ?MARKED + ?TAKEN};
        (_Word) -> ok
    end),
    show(Pool, Slot).

%% @doc Manager: ends a claim in the place of its holder. The slot is then reserved. `over': the claim ended otherwise.
-spec revoke(#pool{}, weir_pool:slot(), claim()) -> ok | over.
revoke(Pool, Slot, Claim) ->
    update(Pool, Slot, fun
        (Word) when ?IS_CLAIMED(Word), Word bsr ?STATE_BITS =:= Claim -> {ok, reserved(Word)};
        (_Word) -> over
    end).

%% Changes the state if it is one of From; else gives the state.
change(Pool, Slot, From, To) ->
    update(Pool, Slot, fun(Word) ->
        State = state(Word),
        case lists:member(State, From) of
            true -> {ok, next(Word, To)};
            false -> State
        end
    end).

%% Makes the word what the function makes of it, with the result of that, whatever else happens to the word meanwhile;
%% or leaves it, if there is but a result. Only for the manager: nobody else may insist.
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

%% @doc The word as it is.
-spec read(#pool{}, weir_pool:slot()) -> word().
read(Pool, Slot) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    atomics:get(Words, ?STATE_WORD(First, Slot)).

%% @doc The state in a word. One that is noted is taken.
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

%% @doc Who has made a claim. `nobody': it was disowned.
-spec holder(claim()) -> weir_pool_holder:id() | nobody.
holder(Claim) ->
    case Claim band ((1 bsl ?HOLDER_BITS) - 1) of
        ?NOBODY -> nobody;
        Holder -> Holder
    end.

%% @doc The claim in a word that is taken or marked.
-spec claim_of(word()) -> claim().
claim_of(Word) -> Word bsr ?STATE_BITS.

%% @doc Whether any slot has a worker. Cost: reads words until one is not vacant.
-spec is_any_filled(#pool{}) -> boolean().
is_any_filled(#pool{limit = Limit} = Pool) -> is_any_filled(1, Limit, Pool).

is_any_filled(Slot, Limit, _Pool) when Slot > Limit -> false;
is_any_filled(Slot, Limit, Pool) ->
    ?STATE_OF(read(Pool, Slot)) =/= ?VACANT orelse is_any_filled(Slot + 1, Limit, Pool).

%% @doc How many claims a slot's word has counted that are not yet in the counter: 0 to 63.
-spec claims(word()) -> 0..63.
claims(Word) -> (Word bsr ?SHIFT) band 63.
