%% Nodes of several releases of OTP in one cluster: this one, and those for which there are root directories
%% (scripts/otp-root makes them).
-module(weir_cluster_releases_SUITE).

-include_lib("eunit/include/eunit.hrl").

-compile([export_all, nowarn_export_all]).
-import(weir_cluster_test_lib, [stop/1, call/4, connect/1, do/2, name/1, know/2, steady/3]).
-import(weir_kit, [until/1, wait_ms/0]).

all() -> weir_kit:cases(?MODULE).

%% OTP says that 25 and 29 are too far apart, and pg of 25 fails again and again: members greet each other without it.
this_and_29(_Config) -> lists:last([together(Releases) || Releases <- [[here, "29"], ["29", here]]]).

two_of_each(_Config) -> together([here, "29", here, "29"]).

these_and_27(_Config) -> together([here, "27", "29"]).

%% A node without workers uses one of another release, and hears of its end in time: who leaves waits for it.
clients_of_another_release(_Config) ->
    lists:foreach(fun(Releases) ->
        with(Releases, fun([Client, Server, Other] = Cluster) ->
            ok = call(Client, weir_cluster, stop, [p]),
            ok = call(Client, weir_pool, stop, [p]),
            ok = call(Client, weir_cluster, start, [p, #{serve => false}]),
            ok = connect(Cluster),
            ok = know([Client], 2),
            Both = names([Server, Other]),
            weir_cluster_test_lib:answered_by(Both, Client, 200),
            ?assertEqual(ok, call(Server, weir_cluster, leave, [p])),
            ok = know([Client], 1),
            ok = weir_kit_nodes:kill(Server),
            After = steady([Client], 1, fun() ->
                do(Client, fun() -> [weir_cluster:call(p, node, wait_ms()) || _ <- lists:seq(1, 200)] end)
            end),
            ?assertEqual(names([Other]), lists:usort(After))
        end)
    end, [[here, "29", "29"], ["29", here, here]]).

%% What pg of OTP 25 suffers is noticed by nobody, and it is there again when the newer node is gone.
comes_and_goes(_Config) ->
    case erlang:system_info(otp_release) of
        "25" -> with([here, here, "29"], fun go_on/1);
        Release -> {skip, "not OTP 25 here, but " ++ Release}
    end.

go_on([A, B, Newer] = Cluster) ->
    Old = [A, B],
    ok = connect(Old),
    ok = know(Old, 1),
    Processes = fun(One) -> do(One, fun() -> {weir_cluster_view:member(p), weir_cluster_view:intakes(p)} end) end,
    Before = [Processes(One) || One <- Cluster],
    ok = connect(Cluster),
    Pgs = fun() -> [call(One, erlang, whereis, [weir_cluster]) || One <- Old] end,
    until(fun() -> Pgs() =:= [undefined, undefined] end),
    ok = know(Cluster, 2),
    %% One of the old ones is published anew meanwhile.
    ok = call(B, weir_cluster, stop, [p]),
    ok = know([A, Newer], 1),
    ok = call(B, weir_cluster, start, [p, #{}]),
    ok = know(Cluster, 2),
    Unchanged = fun([OfA, _OfB, OfNewer]) -> [OfA, OfNewer] end,
    ?assertEqual(Unchanged(Before), Unchanged([Processes(One) || One <- Cluster])),
    ok = weir_kit_nodes:kill(Newer),
    ok = know(Old, 1),
    until(fun() -> not lists:member(undefined, Pgs()) end),
    until(fun() -> length(call(A, pg, get_members, [weir_cluster, {serve, p}])) =:= 2 end),
    ok = know(Old, 1).

names(Some) -> lists:sort([{ok, name(One)} || One <- Some]).

together(Releases) -> with(Releases, fun agree/1).

with(Releases, Test) ->
    Is = fun(Release) -> Release =:= here orelse filelib:is_regular(root(Release) ++ "/usr/bin/erl") end,
    Missing = [Release || Release <- Releases, not Is(Release)],
    case {Missing, os:cmd("id -u")} of
        {[], "0\n"} ->
            Cluster = weir_kit:in_parallel([fun() -> start(Release) end || Release <- Releases]),
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
    ok = connect(Cluster),
    ok = know(Cluster, length(Cluster) - 1),
    Names = names(Cluster),
    steady(Cluster, length(Cluster) - 1, fun() ->
        Owners = [[call(One, weir_cluster, owners, [p, Key, 4]) || Key <- lists:seq(1, 50)] || One <- Cluster],
        ?assertMatch([_], lists:usort(Owners)),
        Answers = [[call(One, weir_cluster, call_key, [p, Key, node, wait_ms()]) || Key <- lists:seq(1, 50)]
            || One <- Cluster],
        ?assertMatch([_], lists:usort(Answers)),
        ?assertEqual(Names, lists:usort(lists:append(Answers))),
        lists:foreach(fun(One) ->
            {ok, All} = call(One, weir_cluster, multicall, [p, node, wait_ms()]),
            ?assertEqual(Names, lists:sort([Answer || {_, Answer} <- All]))
        end, Cluster),
        ok = call(A, weir_pool, stop, [p]),
        {ok, Picked} = call(A, weir_cluster, pick, [p]),
        ?assertNotEqual(name(A), node(Picked)),
        ?assertMatch({ok, _}, do(A, fun() -> weir_cluster_test_lib:claim(fun(Worker) -> node(Worker) end) end))
    end),
    ok = call(lists:last(Cluster), weir_cluster, leave, [p]),
    until(fun() ->
        {ok, #{nodes := Nodes}} = call(A, weir_cluster, info, [p]),
        length(Nodes) =:= max(0, length(Cluster) - 2)
    end).
