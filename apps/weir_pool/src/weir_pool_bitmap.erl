%% @doc The free-slot bitmap of a pool: a bit for each slot, which says whether searches read the slot's word.
%%
%% The state word of each slot (weir_pool_word) has a cache line of its own. Without the bitmap, a claimer that searches
%% for the only free slot among 1,000 reads 1,000 cache lines in 28 us. With the bitmap, its claim takes 2 us. One word
%% of the bitmap has the bits of 56 slots, and a search skips the slots whose bits are clear.
%%
%% A set bit means that the slot may be free. A clear bit means that the slot is not free, unless a process is between
%% two of the steps below. All bits are set at first.
%%
%% == Clearing a bit ==
%%
%% A search clears the bits of slots that are not free. If such a slot is taken, the end of its claim must set the bit
%% again. Most claims end without a search in between, and for them this must cost nothing. Therefore the search leaves
%% a note in the slot's word:
%%
%% <ol>
%% <li>The search clears the bit.</li>
%% <li>The search reads the word again. If the word is taken, the search exchanges the word for the same claim with the
%%   state number `noted'.</li>
%% <li>If the word is free, or the exchange fails, the search sets the bit again.</li>
%% </ol>
%%
%% A release exchanges a taken word for a free word. The exchange fails if the word is noted. The claimer then exchanges
%% the noted word, and sets the bit afterwards. All functions of weir_pool_word treat a noted word as taken.
%%
%% The word of a vacant, reserved or marked slot needs no note. Only the manager makes such a slot free or taken, and
%% the manager always sets the bit afterwards.
%%
%% A process may be killed after its exchange and before it sets the bit. The slot is then free although its bit is
%% clear, and searches miss the slot until the manager's next tick sets the bit (weir_pool_abandon).
%% @private
-module(weir_pool_bitmap).

-export([next/3, hide/2, show/2]).

-include("weir_pool.hrl").
-include("weir_pool_word.hrl").

%% @doc Returns the bits of up to 56 slots, for a search of the slots from First to Last.
%%
%% The lowest bit belongs to Slot. Bits of slots after End have no meaning. A set bit means that its slot may be free.
%% Returns `none' if there is no set bit from First to Last.
%%
%% Cost: reads a word of the bitmap for every 56 slots before Slot.
-spec next(#pool{}, First :: weir_pool:slot(), Last :: non_neg_integer()) ->
    {Bits :: pos_integer(), Slot :: weir_pool:slot(), End :: weir_pool:slot()} | none.
next(Pool, First, Last) when First =< Last ->
    {Bitmap, Index, Bit, More} = weir_pool_terms:bitmap(Pool, First),
    case atomics:get(Bitmap, Index) bsr Bit of
        0 -> next(Pool, First + More + 1, Last);
        Bits -> {Bits, First, min(First + More, Last)}
    end;
next(_Pool, _First, _Last) ->
    none.

%% @doc Clears the bit of a slot that a search has found not free. If the slot is taken, notes this in the slot's word.
-spec hide(#pool{}, weir_pool:slot()) -> ok.
hide(Pool, Slot) ->
    {First, Words, _} = weir_pool_terms:segment(Pool, Slot),
    Index = ?STATE_WORD(First, Slot),
    ok = set_bit(Pool, Slot, 0),
    %% The claim may have ended since the search read the word. Then no process but this one sets the bit.
    case atomics:get(Words, Index) of
        Word when ?STATE_OF(Word) =:= ?TAKEN; ?STATE_OF(Word) =:= ?FREE ->
            case ?STATE_OF(Word) =:= ?TAKEN andalso atomics:compare_exchange(Words, Index, Word, ?NOTED_OF(Word)) of
                ok -> ok;
                _FreeOrChanged -> show(Pool, Slot)
            end;
        _ ->
            ok
    end.

%% @doc Sets the bit of a slot. Every process that makes a slot free calls this function afterwards, except a process
%% that exchanges a taken word without a note.
-spec show(#pool{}, weir_pool:slot()) -> ok.
show(Pool, Slot) -> set_bit(Pool, Slot, 1).

set_bit(Pool, Slot, To) ->
    {Bitmap, Index, Bit, _} = weir_pool_terms:bitmap(Pool, Slot),
    set_bit(Bitmap, Index, 1 bsl Bit, To, atomics:get(Bitmap, Index)).

set_bit(_Bitmap, _Index, Mask, 1, Bits) when Bits band Mask =/= 0 -> ok;
set_bit(_Bitmap, _Index, Mask, 0, Bits) when Bits band Mask =:= 0 -> ok;
set_bit(Bitmap, Index, Mask, To, Bits) ->
    case atomics:compare_exchange(Bitmap, Index, Bits, Bits bxor Mask) of
        ok -> ok;
        Changed -> set_bit(Bitmap, Index, Mask, To, Changed)
    end.
