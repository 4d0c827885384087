%% @doc Maps a key to a slot by jump consistent hashing.
%%
%% The algorithm is from J. Lamping and E. Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014
%% (arXiv:1406.2294). A key seeds a pseudo-random sequence. The sequence decides at which pool sizes the key jumps to
%% the slot that is then the newest. The sequence does not depend on the size. A pool that grows from N to N + 1 slots
%% therefore moves 1 / (N + 1) of its keys, all of them to slot N + 1.
%%
%% The generator of the paper multiplies 64-bit words, which would be bignums in Erlang. This module uses
%% `rand:mwc59/1', whose sequence OTP specifies, and whose states are small integers. A quotient of integers replaces
%% the paper's floats.
%%
%% `erlang:phash2/2' gives the first state, without further scrambling, because the first step of the generator spreads
%% its value. weir_pool_hash_SUITE checks this with short binaries of digits, which leave patterns in the upper bits of
%% phash2. Both functions have the same results on every node and release, so a key has the same slot everywhere.
%%
%% This module has no process and no state.
%% @private
-module(weir_pool_hash).

-export([slot/2]).

-include("weir_pool.hrl").

%% @doc Returns the slot of a key, from 1 to Size.
%%
%% Cost: one `erlang:phash2/2', which reads the whole key, and about `ln(Size) + 1' steps of the generator. Allocates
%% nothing.
-spec slot(Key :: term(), Size :: weir_pool:size()) -> weir_pool:slot().
slot(Key, Size) when is_integer(Size), Size >= 1, Size =< ?MAX_SIZE ->
    %% The generator accepts every first state but 0.
    jump(erlang:phash2(Key, 1 bsl 32) + 1, 0, Size).

%% Follows the key's jumps. In pools with more than Next slots, the key is in slot Next + 1 until its next jump. The
%% dividend stays below 2^59, because Next < ?MAX_SIZE < 2^27.
jump(State0, Next, Size) ->
    State = rand:mwc59(State0),
    case ((Next + 1) bsl 32) div (rand:mwc59_value32(State) + 1) of
        After when After >= Size -> Next + 1;
        After -> jump(State, After, Size)
    end.
