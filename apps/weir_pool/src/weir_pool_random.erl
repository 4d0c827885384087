%% @doc Random numbers for picks, without a generator's state in every process that picks.
%%
%% A pick draws the next number from the cursor of its scheduler, as round robin does, and mixes it. So there is no
%% state but the cursors, which a pick with another strategy would change as well.
%%
%% Why the numbers are uniform. Mixing is three times an exclusive or with the upper half and a multiplication by an odd
%% number modulo 2^32, and then the exclusive or once more. Each of these steps can be undone, so mixing is a
%% permutation: 2^32 successive numbers of a cursor give every word of 32 bits exactly once. That successive words have
%% nothing to do with each other is what the mixing is for; the multiplier and the shifts are those of T. Mueller's
%% integer hash (the one of the H2 database), which makes two rounds. Two are not enough for successive numbers: of 20
%% million pairs of successive words, scaled to 100 slots each, chi-square is 10 standard deviations off, and after a
%% third round within 2. The multiplier has 27 bits, so products stay within small integers: the rounds take 4 ns
%% together, whereas `erlang:phash2/2' and a step of a generator of `rand' take 18 ns.
%%
%% Cursors and pools must not give the same words in step, or two pools that are picked from in turns would choose the
%% same slots. Each cursor of each pool therefore starts at a distance of its own in the one sequence of 2^32 numbers:
%% the sum of multiples of two odd numbers, which spread evenly.
%%
%% After 2^32 draws on one scheduler its words repeat. They can be predicted, and are not for secrets.
-module(weir_pool_random).

-export([draw/1, mix/1]).

-export_type([bits/0]).

-include("weir_pool.hrl").

-type bits() :: 0..16#ffffffff.

-define(MASK, 16#ffffffff).
-define(MULTIPLIER, 16#45d9f3b).

%% 2^32 divided by the plastic number, and by its square: sums of multiples of these two keep clear of each other for
%% long (M. Roberts, "The Unreasonable Effectiveness of Quasirandom Sequences", 2018: R2).
-define(SCHEDULER_STRIDE, 16#c13fa9a9).
-define(POOL_STRIDE, 16#91e10da5).

-compile({inline, [mix/1]}).

%% @doc Draws a number of 32 bits.
%%
%% Cost: an addition to a word that only this scheduler writes, and the mixing. Allocates nothing.
-spec draw(#pool{}) -> bits().
draw(#pool{base = Base, cursors = Cursors}) ->
    Scheduler = erlang:system_info(scheduler_id),
    Drawn = atomics:add_get(Cursors, ?CURSOR(Scheduler), 1) band ?MASK,
    %% The pool's id, as much of it as leaves the product a small integer. Base is a multiple of 2^27; a division would
    %% take 4 ns more.
    Pool = (Base bsr 27) band ?MAX_SIZE,
    mix((Drawn + Scheduler * ?SCHEDULER_STRIDE + Pool * ?POOL_STRIDE) band ?MASK).

%% @doc The word of a number.
-spec mix(bits()) -> bits().
mix(N) ->
    A = (((N bsr 16) bxor N) * ?MULTIPLIER) band ?MASK,
    B = (((A bsr 16) bxor A) * ?MULTIPLIER) band ?MASK,
    C = (((B bsr 16) bxor B) * ?MULTIPLIER) band ?MASK,
    (C bsr 16) bxor C.
