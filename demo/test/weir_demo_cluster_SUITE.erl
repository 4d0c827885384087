%% What `make cluster-demo' shows: calls go on, and only those fail that were under way on a node that was lost or
%% frozen.
-module(weir_demo_cluster_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

steps(_) ->
    {Done, Failed, Lost} = weir_demo_cluster:run([nothing, kill, start, freeze, nothing, thaw]),
    ?assert(Done > 100),
    IsLost = fun(timeout) -> true; ({nodedown, _}) -> true; (_) -> false end,
    ?assertEqual([], [Why || {Why, _} <- Lost, not IsLost(Why)]),
    %% On a busy machine some have no turn in half a second.
    ?assert(Failed < Done, Lost).
