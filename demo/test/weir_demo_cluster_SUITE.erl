%% What `make cluster-demo' shows: calls go on, and only those fail that were under way on a node that was lost or
%% frozen.
-module(weir_demo_cluster_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0]).
-export([steps/1]).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [steps].

steps(_) ->
    {Done, Failed, Lost} = weir_demo_cluster:run([nothing, kill, start, freeze, nothing, thaw]),
    ?assert(Done > 100),
    IsLost = fun(timeout) -> true; ({nodedown, _}) -> true; (_) -> false end,
    ?assertEqual([], [Why || {Why, _} <- Lost, not IsLost(Why)]),
    %% On a busy machine some have no turn in half a second.
    ?assert(Failed < Done, Lost).
