%% Nodes of several releases of OTP in one cluster: those for which there are root directories (scripts/otp-root makes
%% them), and that OTP allows to be connected.
-module(weir_cluster_releases_SUITE).

-include_lib("eunit/include/eunit.hrl").

-export([all/0, suite/0]).
-export([this_and_27/1, both_newer/1, two_of_each/1, too_far_apart/1]).
-import(weir_cluster_test_lib, [stop/1, call/4, do/2, eventually/1, name/1, know/2]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [this_and_27, both_newer, two_of_each, too_far_apart].

this_and_27(_Config) ->
    case erlang:system_info(otp_release) of
        "25" -> together([here, "27"]);
        Release -> {skip, "not that of the newer root directories, but " ++ Release}
    end.

both_newer(_Config) -> together(["27", "29"]).

two_of_each(_Config) -> together(["27", "29", "27", "29"]).

%% Nodes of OTP 25 and 29, of which OTP says that they are too far apart: pg of 25 fails again and again. Those who know
%% each other go on, nothing else fails, and when the newer one is gone all is as before.
too_far_apart(_Config) ->
    case erlang:system_info(otp_release) of
        "25" -> with([here, here, "29"], fun go_on/1);
        Release -> {skip, "not OTP 25 here, but " ++ Release}
    end.

go_on([A, B, Newer] = Cluster) ->
    Old = [A, B],
    ok = weir_kit_nodes:connect(Old),
    ok = know(Old, 1),
    Processes = fun(One) -> do(One, fun() -> {weir_cluster_view:member(p), weir_cluster_view:inboxes(p)} end) end,
    Before = [Processes(One) || One <- Cluster],
    ok = weir_kit_nodes:connect(Cluster),
    Pgs = fun() -> [call(One, erlang, whereis, [weir_cluster]) || One <- Old] end,
    true = eventually(fun() -> Pgs() =:= [undefined, undefined] end),
    Names = fun(Some) -> lists:sort([{ok, name(One)} || One <- Some]) end,
    Answers = [[call(One, weir_cluster, call_key, [p, Key, node, 60_000]) || Key <- lists:seq(1, 50)] || One <- Old],
    ?assertMatch([_], lists:usort(Answers)),
    ?assertEqual(Names(Old), lists:usort(lists:append(Answers))),
    ?assertEqual({ok, name(Newer)}, call(Newer, weir_cluster, call, [p, node, 60_000])),
    ?assertEqual(Before, [Processes(One) || One <- Cluster]),
    ok = weir_kit_nodes:kill(Newer),
    true = eventually(fun() -> not lists:member(undefined, Pgs()) end),
    %% They find who is new again.
    ok = call(B, weir_cluster, stop, [p]),
    ok = call(B, weir_cluster, start, [p, #{}]),
    ok = know(Old, 1).

together(Releases) -> with(Releases, fun agree/1).

with(Releases, Test) ->
    Is = fun(Release) -> Release =:= here orelse filelib:is_regular(root(Release) ++ "/usr/bin/erl") end,
    Missing = [Release || Release <- Releases, not Is(Release)],
    case {Missing, os:cmd("id -u")} of
        {[], "0\n"} ->
            Cluster = [start(Release) || Release <- Releases],
            try Test(Cluster) after stop(Cluster) end;
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
    end).
