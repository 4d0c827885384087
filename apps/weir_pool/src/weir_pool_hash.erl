%% @doc Which slot a key belongs to: jump consistent hashing.
%%
%% The algorithm is that of J. Lamping and E. Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014
%% (arXiv:1406.2294). A key seeds a pseudo-random sequence, and the sequence decides at which pool sizes the key jumps
%% to the slot that is then the newest. Because the sequence knows nothing of the size, a pool that grows from N to
%% N + 1 slots moves 1 / (N + 1) of its keys, all of them to slot N + 1.
%%
%% It differs from the paper in its generator. The paper multiplies 64-bit words, which would be bignums here; this
%% module uses `rand:mwc59/1', whose states are small integers and whose sequence OTP specifies, and a quotient of
%% integers in place of floats. `erlang:phash2/2' gives the first state. Its value is not scrambled further: the first
%% step of the generator spreads it, which weir_pool_hash_SUITE checks on keys that are known to leave patterns in
%% phash2's upper bits (short binaries of digits). Both functions are the same on every node and release, and so is the
%% slot of a key.
%%
%% A pure module: no process, no state.
%% @private
-module(weir_pool_hash).

-export([slot/2]).

-include("weir_pool.hrl").

%% @doc The slot, from 1 to `Size', of a key.
%%
%% Cost: one `erlang:phash2/2', which reads the whole key, and about `ln(Size) + 1' steps of the generator. Allocates
%% nothing.
-spec slot(Key :: term(), Size :: weir_pool:size()) -> weir_pool:slot().
slot(Key, Size) when is_integer(Size), Size >= 1, Size =< ?MAX_SIZE ->
    %% 0 is the one state that the generator cannot start from.
    jump(erlang:phash2(Key, 1 bsl 32) + 1, 0, Size).

%% The key sits in slot Next + 1 of pools with more than Next slots, until its next jump. The quotient stays below
%% 2^59 because Next < ?MAX_SIZE < 2^27.
jump(State0, Next, Size) ->
    State = rand:mwc59(State0),
    case ((Next + 1) bsl 32) div (rand:mwc59_value32(State) + 1) of
        After when After >= Size -> Next + 1;
        After -> jump(State, After, Size)
    end.
