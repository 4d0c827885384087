%% @doc Which slot a name gets, in a pool whose workers connect themselves.
%%
%% Packed from the beginning, or with the strategies that choose slots at random, as far from the others as can be: then
%% the share of a vacant slot, which goes to others, is spread. The rule is gproc_pool's: the middle of the longest row
%% of vacant slots, the row that goes over the end counting as one, and being preferred among equals.
%%
%% A pure module.
-module(weir_pool_names).

-export([place/3]).

-include("weir_pool.hrl").

%% @doc The slot for a new name, given the slots that have one.
-spec place(weir_pool:strategy(), Taken :: [weir_pool:slot()], Size :: 0 | weir_pool:size()) ->
    {ok, weir_pool:slot()} | full.
place(_Strategy, Taken, Size) when length(Taken) >= Size -> full;
place(_Strategy, [], _Size) -> {ok, 1};
place(Strategy, Taken, Size) when Strategy =:= random; Strategy =:= hash -> {ok, sparse(lists:sort(Taken), Size)};
place(_Strategy, Taken, _Size) -> {ok, packed(1, lists:sort(Taken))}.

packed(Slot, [Slot | Taken]) -> packed(Slot + 1, Taken);
packed(Slot, _) -> Slot.

sparse([First | _] = Taken, Size) ->
    Last = lists:last(Taken),
    AroundTheEnd = {Size - Last + First - 1, Last},
    {Gap, Before} = longest(Taken, AroundTheEnd),
    (Before + Gap div 2) rem Size + 1.

%% The gap between a slot and the next.
longest([Slot | [Next | _] = More], {Gap, _} = Longest) ->
    case Next - Slot - 1 of
        Longer when Longer > Gap -> longest(More, {Longer, Slot});
        _ -> longest(More, Longest)
    end;
longest([_Last], Longest) ->
    Longest.
