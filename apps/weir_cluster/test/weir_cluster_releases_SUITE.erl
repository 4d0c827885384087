%% Nodes of several releases of OTP in one cluster: those for which there are root directories (scripts/otp-root makes
%% them), and that OTP allows to be connected.
-module(weir_cluster_releases_SUITE).

-include_lib("eunit/include/eunit.hrl").

-export([all/0, suite/0]).
-export([this_and_27/1, both_newer/1, two_of_each/1]).
-import(weir_cluster_test_lib, [stop/1, call/4, do/2, eventually/1, name/1, know/2]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [this_and_27, both_newer, two_of_each].

this_and_27(_Config) ->
    case erlang:system_info(otp_release) of
        "25" -> together([here, "27"]);
        Release -> {skip, "not that of the newer root directories, but " ++ Release}
    end.

both_newer(_Config) -> together(["27", "29"]).

two_of_each(_Config) -> together(["27", "29", "27", "29"]).

together(Releases) ->
    Is = fun(Release) -> Release =:= here orelse filelib:is_regular(root(Release) ++ "/usr/bin/erl") end,
    Missing = [Release || Release <- Releases, not Is(Release)],
    case {Missing, os:cmd("id -u")} of
        {[], "0\n"} -> agree([start(Release) || Release <- Releases]);
        {[], _} -> {skip, "only root may enter the root directories"};
        _ -> {skip, "no root directory of OTP " ++ lists:join(", ", Missing)}
    end.

root(Release) -> filename:join(filename:basedir(user_cache, "weir"), "otp" ++ Release).

start(Release) ->
    Args = ["+S", "2:2", "-connect_all", "false", "-kernel", "prevent_overlapping_partitions", "false"],
    Started = case Release of
        here -> weir_kit_nodes:start(Args);
        _ -> weir_kit_nodes:start_in(root(Release), Args)
    end,
    Release =:= here orelse (Release = call(Started, erlang, system_info, [otp_release])),
    weir_cluster_test_lib:publish(Started, #{}).

%% All that one node can have done by another, from each to each.
agree([A | _] = Cluster) ->
    try
        ok = weir_kit_nodes:connect(Cluster),
        ok = know(Cluster, length(Cluster) - 1),
        Names = lists:sort([{ok, name(One)} || One <- Cluster]),
        Owners = [[call(One, weir_cluster, owners, [p, Key, 4]) || Key <- lists:seq(1, 50)] || One <- Cluster],
        ?assertMatch([_], lists:usort(Owners)),
        Answers = [[call(One, weir_cluster, call_key, [p, Key, node]) || Key <- lists:seq(1, 50)] || One <- Cluster],
        ?assertMatch([_], lists:usort(Answers)),
        ?assertEqual(Names, lists:usort(lists:append(Answers))),
        lists:foreach(fun(One) ->
            {ok, All} = call(One, weir_cluster, multicall, [p, node]),
            ?assertEqual(Names, lists:sort([Answer || {_, Answer} <- All]))
        end, Cluster),
        ok = call(A, weir_pool, stop, [p]),
        {ok, Picked} = call(A, weir_cluster, pick, [p]),
        ?assertNotEqual(name(A), node(Picked)),
        ?assertMatch({ok, _}, do(A, fun() -> weir_cluster:claim(p, fun(Worker) -> node(Worker) end) end)),
        ok = call(lists:last(Cluster), weir_cluster, leave, [p]),
        true = eventually(fun() ->
            {ok, #{nodes := Nodes}} = call(A, weir_cluster, info, [p]),
            length(Nodes) =:= max(0, length(Cluster) - 2)
        end)
    after
        stop(Cluster)
    end.
