%% The layout of a slot's state word: `Generation (12 bits), Holder (44 bits), State (3 bits)'. Only weir_pool_word and
%% weir_pool_bitmap know the layout.

-define(VACANT, 0).
-define(FREE, 1).
-define(TAKEN, 2).
-define(MARKED, 3).
-define(RESERVED, 4).
%% A second number for taken. A search has cleared the bit of the slot, as weir_pool_bitmap describes.
-define(NOTED, 5).

-define(STATE_BITS, 3).
-define(HOLDER_BITS, 44).

-define(STATE_OF(Word), ((Word) band 7)).

%% Words of the same claim with another state number.
-define(NOTED_OF(Taken), ((Taken) - ?TAKEN + ?NOTED)).
-define(MARKED_OF(Taken), ((Taken) - ?TAKEN + ?MARKED)).
