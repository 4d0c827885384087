%% Nodes that are frozen, silent or slow: what they begin, what their callers are told, and when they are used again.
-module(weir_cluster_frozen_SUITE).
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(weir_cluster_test_lib, [with/2, with/3, with_client/2, with_client/3, info/1, begun/1, know/2, connect/1,
    call/4, do/2, name/1, os/2]).
-import(weir_cluster_test_calls, [let_in/1, seen/2, keys/3, result/1, begun_once/1, gets/3, unheard/2, claims/2,
    abandoned/1]).
-import(weir_kit, [until/1, wait_ms/0]).

%% Cases that wait until a time is over.
-define(WAITING, [frozen_claimer, many_nodes, let_in_slowly, all_are_silent, busy_connection,
    weight_over_a_busy_connection]).

all() -> [{group, side_by_side} | weir_kit:cases(?MODULE) -- ?WAITING].

groups() -> [{side_by_side, [parallel], ?WAITING}].

init_per_suite(Config) -> weir_cluster_test_lib:keep_nodes(Config).

end_per_suite(Config) -> weir_cluster_test_lib:end_nodes(Config).

%% It is left out after a few time-outs, begins nothing of what is too late, and is let in again.
frozen_node(_Config) ->
    with(2, fun([A, B]) ->
        Keys = keys(A, name(B), 50),
        {WasOut, Told} = do(A, fun() ->
            os("STOP", B),
            {is_left_out(name(B)), called_once(Keys, name(B))}
        end),
        {Late, Elsewhere} = late(Told),
        %% Three in a row, or as many as fit into the two seconds without a pong. These may be over when it is frozen.
        ?assert((WasOut orelse length(Late) >= 1) andalso length(Late) =< 10, Late),
        ?assertEqual([], [Result || {Key, Result} <- Elsewhere, Result =/= {ok, {Key, name(A)}}]),
        %% A pong from before that is read late may let it in once more.
        until(fun() -> maps:get(share, seen(A, B)) =:= +0.0 end),
        #{requests := Sent} = seen(A, B),
        ?assert(Sent =< length(Late), Sent),
        %% So that all are too late there, too: A knows only roughly what B's clock shows.
        receive after 1000 -> ok end,
        os("CONT", B),
        until(fun() -> maps:get(share, seen(A, B)) =:= 1.0 end),
        until(fun() -> maps:get(expired, info(B)) =:= Sent end),
        ok = weir_kit:none(begun_too_late, maps:to_list(begun([B]))),
        Begun = maps:keys(begun([A])),
        ok = weir_kit:none(lost, [Key || {Key, _} <- Elsewhere] -- Begun),
        ?assert(length(Begun) =< length(Told) - Sent, Begun),
        gets(A, B, hd(Keys))
    end).

%% Of nodes that do not answer nobody says that they have no workers.
all_are_silent(_Config) ->
    with_client(1, fun([Client, Server]) ->
        os("STOP", Server),
        until(fun() -> maps:get(share, seen(Client, Server)) == 0 end),
        Overload = #{pool => p, tried => [{name(Client), no_pool}, {name(Server), out}]},
        ?assertEqual({error, {overload, Overload}}, call(Client, weir_cluster, call, [p, node, wait_ms()])),
        ByKey = #{pool => p, tried => [{name(Server), out}]},
        ?assertEqual({error, {overload, ByKey}}, call(Client, weir_cluster, call_key, [p, key, node, wait_ms()])),
        os("KILL", Server),
        until(fun() -> call(Client, weir_cluster, call, [p, node, wait_ms()]) =:= {error, no_worker} end)
    end).

%% If that one is left out just when it is called, this node may be the one that is late.
late(Told) ->
    lists:partition(fun({_, Result}) -> Result =:= {exit, timeout} orelse Result =:= {exit_here, timeout} end, Told).

%% Of one that does not answer only the first few are lost: they have little time, so that this does not take long.
called_once(Keys, Node) ->
    [
        begin
            Ms = case is_left_out(Node) of true -> wait_ms(); false -> 500 end,
            {Key, result(fun() -> weir_cluster:call_key(p, Key, {once, Key, 0}, Ms) end)}
        end
     || Key <- Keys
    ].

%% One node does not read what the other one says, which hears it well. Each leaves the other out; what was begun was
%% begun once, and the replies that are read in the end reach nobody.
heard_in_one_direction(_Config) ->
    with(2, fun([A, B]) ->
        Keys = keys(A, name(B), 50),
        Reads = fun(Active) ->
            {_, Connection} = lists:keyfind(name(B), 1, erlang:system_info(dist_ctrl)),
            ok = inet:setopts(Connection, [{active, Active}])
        end,
        Calls = fun() ->
            true = register(caller, self()),
            ok = Reads(false),
            WasOut = is_left_out(name(B)),
            Answers = called_once(Keys, name(B)),
            until(fun() -> is_left_out(name(B)) end),
            receive read -> ok = Reads(true) end,
            until(fun() -> not is_left_out(name(B)) end),
            {WasOut, Answers, process_info(self(), messages)}
        end,
        Heard = fun() ->
            until(fun() -> maps:get(share, seen(B, A)) =:= +0.0 end),
            call(A, erlang, send, [caller, read])
        end,
        [{IsOut, Told, Mailbox}, read] = weir_kit:in_parallel([fun() -> do(A, Calls) end, Heard]),
        ?assertEqual({messages, []}, Mailbox),
        {Late, Elsewhere} = late(Told),
        ?assert((IsOut orelse length(Late) >= 1) andalso length(Late) =< 10, Late),
        ?assertEqual([], [Result || {Key, Result} <- Elsewhere, Result =/= {ok, {Key, name(A)}}]),
        until(fun() -> {maps:get(share, seen(A, B)), maps:get(share, seen(B, A))} =:= {1.0, 1.0} end),
        ok = begun_once([A, B]),
        BegunHere = maps:keys(begun([A])),
        ok = weir_kit:none(lost, [Key || {Key, _} <- Elsewhere] -- BegunHere),
        ?assert(length(BegunHere) =< length(Told) - maps:get(requests, seen(A, B)), BegunHere),
        gets(A, B, hd(Keys))
    end).

is_left_out(Node) ->
    {ok, #{nodes := Nodes}} = weir_cluster:info(p),
    [left_out || #{node := Name, share := +0.0} <- Nodes, Name =:= Node] =/= [].

%% No more than a window is sent to each of its two intakes; the rest goes to the next owner, and all are begun once.
window_of_a_frozen_node(_Config) ->
    with(2, #{cluster => #{window => 16}}, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        Member = unheard(A, B),
        os("STOP", B),
        ?assertEqual([ok], do(A, fun() ->
            lists:usort([weir_cluster:cast_key(p, Key, {begun, Id}) || Id <- lists:seq(1, 1000)])
        end)),
        #{requests := Sent, full := Full} = seen(A, B),
        ?assert(Sent =< 32, Sent),
        ok = weir_kit:same(lost, 1000, Sent + Full),
        os("CONT", B),
        ok = call(A, sys, resume, [Member, infinity]),
        until(fun() -> map_size(begun([A, B])) =:= 1000 end),
        ok = begun_once([A, B]),
        ?assertEqual(Sent, map_size(begun([B]))),
        %% And there is room again.
        until(fun() -> maps:get(share, seen(A, B)) =:= 1.0 end),
        until(fun() ->
            ok = call(A, weir_cluster, cast_key, [p, Key, {begun, again}]),
            map_size(begun([B])) =:= Sent + 1
        end)
    end).

%% A caller is not suspended, and what does not fit goes elsewhere. What is sent first goes on into the buffers of the
%% operating system, and then the connection is not busy any more: so it is filled until it stays so.
busy_connection(_Config) ->
    with(2, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        Member = unheard(A, B),
        os("STOP", B),
        Counted = fun() -> #{busy := Busy, requests := Requests} = seen(A, B), {Busy, Requests} end,
        Casts = do(A, fun() -> fill(Key, 0, 0) end),
        {AllBusy, AllSent} = Counted(),
        ?assertEqual(Casts, AllBusy + AllSent),
        Here = name(A),
        until(fun() ->
            _ = do(A, fun() -> fill(Key, 0, 0) end),
            {Busy, Sent} = Counted(),
            case do(A, fun() -> result(fun() -> weir_cluster:call_key(p, Key, node, 10_000) end) end) of
                %% A call finds it busy, too, and is done here.
                {ok, Here} -> ?assertEqual({Busy + 1, Sent}, Counted()), true;
                %% Who empties what is full into the buffers had no turn for so long.
                {exit, timeout} -> ?assertEqual({Busy, Sent + 1}, Counted()), false
            end
        end),
        os("CONT", B),
        ok = call(A, sys, resume, [Member, infinity]),
        gets(A, B, Key)
    end).

%% The size of A's pool changes while the connection with B is busy. B learns it when the connection is free again.
weight_over_a_busy_connection(_Config) ->
    with(2, fun([A, B]) ->
        until(fun() -> {weight(A, B), weight(B, A)} =:= {2, 2} end),
        os("STOP", B),
        _ = do(A, fun() -> stuff(name(B), 0) end),
        ok = call(A, weir_pool, resize, [p, 3]),
        until(fun() -> do(A, fun() -> weir_cluster_here:weight(weir_cluster_view:conf(p)) =:= [{node(), 3}] end) end),
        %% The member has tried to tell B.
        {ok, Member} = call(A, weir_cluster_view, member, [p]),
        _ = call(A, sys, get_state, [Member, infinity]),
        os("CONT", B),
        until(fun() -> weight(B, A) =:= 3 end)
    end).

%% Returns the weight of node Other, as node One knows it.
weight(One, Other) -> maps:get(weight, seen(One, Other)).

%% Sends to a node until the connection has been busy for a second.
stuff(_Node, 50) ->
    ok;
stuff(Node, Refused) ->
    Sent = erlang:send({nothing, Node}, binary:copy(<<"x">>, 1_000_000), [nosuspend]),
    receive after 20 -> ok end,
    stuff(Node, case Sent of nosuspend -> Refused + 1; ok -> 0 end).

%% Casts until none has been sent for a second, and says how many there were.
fill(_Key, Casts, 50) ->
    Casts;
fill(Key, Casts, Refused) ->
    Sent = fun() -> {ok, #{nodes := [#{requests := Requests}]}} = weir_cluster:info(p), Requests end,
    Before = Sent(),
    ok = weir_cluster:cast_key(p, Key, {tell, self(), binary:copy(<<"x">>, 1_000_000)}),
    receive after 20 -> ok end,
    fill(Key, Casts + 1, case Sent() of Before -> Refused + 1; _ -> 0 end).

%% Of more than twenty nodes those that are not used are pinged in turn, and are left out all the same when they do not
%% answer.
many_nodes(_Config) ->
    with(22, fun([A, Used, Idle | _]) ->
        until(fun() -> let_in(A) =:= 21 end),
        [Key] = keys(A, name(Used), 1),
        %% A node that answers late is pinged again before its turn.
        until(fun() ->
            Pings = do(A, fun() -> pings(Key, name(Used), 6) end),
            Unused = [maps:get(Node, Pings, 0) || #{node := Node} <- maps:get(nodes, info(A)), Node =/= name(Used)],
            lists:all(fun(Count) -> Count >= 2 andalso Count =< 4 end, Unused)
        end),
        os("STOP", Idle),
        until(fun() -> let_in(A) =:= 20 andalso maps:get(share, seen(A, Idle)) == 0 end),
        os("CONT", Idle),
        until(fun() -> let_in(A) =:= 21 end)
    end).

%% How often each node was pinged while this one, which is called again and again, was pinged so often. Several intakes
%% of a node are pinged at the same time.
pings(Key, Node, Count) ->
    {ok, Member} = weir_cluster_view:member(p),
    1 = erlang:trace(Member, true, [send]),
    try
        pings(Key, Node, Count, #{})
    after
        erlang:trace(Member, false, [send])
    end.

pings(_Key, Node, Count, Times) when length(map_get(Node, Times)) >= Count ->
    maps:map(fun(_, Each) -> length(Each) end, Times);
pings(Key, Node, Count, Times) ->
    _ = result(fun() -> weir_cluster:call_key(p, Key, node) end),
    receive
        {trace, _Member, send, {ping, _, _, _, Time}, Intake} ->
            Add = fun(Each) -> lists:usort([Time | Each]) end,
            pings(Key, Node, Count, maps:update_with(node(Intake), Add, [Time], Times))
    after 20 -> pings(Key, Node, Count, Times)
    end.

%% If the node of a claimer is silent for a lease, or is cut off, the pool replaces the claimed worker.
frozen_claimer(_Config) ->
    with(2, fun([A, B]) ->
        {_, Worker} = lists:last(claims(A, 3)),
        os("STOP", A),
        until(fun() -> abandoned(B) =:= {1, 0} end),
        until(fun() -> not call(B, erlang, is_process_alive, [Worker]) end),
        os("CONT", A),
        ok = know([A, B], 1),
        %% Both workers of A are still claimed.
        [{_, Next}] = claims(A, 1),
        true = weir_cluster_test_lib:disconnect(A, B),
        until(fun() -> abandoned(B) =:= {2, 0} end),
        until(fun() -> not call(B, erlang, is_process_alive, [Next]) end)
    end).

%% Workers that answer nobody in time are not a node that does not answer: it is asked, and has all that it had when it
%% has answered. On a busy machine that may take too long.
slow_workers(_Config) ->
    with(2, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        _ = do(B, fun() ->
            {ok, Workers} = weir_pool:workers(p),
            [gen_server:send_request(Pid, stuck) || {_, Pid} <- Workers]
        end),
        until(fun() ->
            until(fun() -> maps:get(share, seen(A, B)) =:= 1.0 end),
            [1000] =:= do(A, fun() ->
                shares(fun() ->
                    until(fun() ->
                        _ = result(fun() -> weir_cluster:call_key(p, Key, node, 20) end),
                        process_info(self(), message_queue_len) =/= {message_queue_len, 0}
                    end)
                end, 1)
            end)
        end)
    end).

%% One that was silent has a tenth of what it had, and then twice as much each time.
let_in_slowly(_Config) ->
    with(2, fun([A, B]) ->
        until(fun() ->
            Shares = do(A, fun() ->
                shares(fun() ->
                    os("STOP", B),
                    until(fun() -> is_left_out(name(B)) end),
                    os("CONT", B)
                end, 5)
            end),
            until(fun() -> maps:get(share, seen(A, B)) =:= 1.0 end),
            Shares =:= [100, 200, 400, 800, 1000]
        end)
    end).

%% The first so many shares above 0 that the member of this node gives to another one after this was done.
shares(Do, Count) ->
    {ok, Member} = weir_cluster_view:member(p),
    1 = erlang:trace(Member, true, [call]),
    1 = erlang:trace_pattern({weir_cluster_link, set_share, 2}, true),
    try
        Do(),
        shares(Count)
    after
        erlang:trace_pattern({weir_cluster_link, set_share, 2}, false),
        erlang:trace(Member, false, [call])
    end.

shares(0) -> [];
shares(Count) ->
    receive
        {trace, _, call, {weir_cluster_link, set_share, [0, _]}} -> shares(Count);
        {trace, _, call, {weir_cluster_link, set_share, [Share, _]}} -> [Share | shares(Count - 1)]
    end.

%% An intake may answer over a second connection what a node asked over the first one. The answer says nothing of later
%% requests, and does not make the window larger.
answers_of_the_past(_Config) ->
    with(2, #{cluster => #{window => 16}}, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        Cast = fun(Count) ->
            do(A, fun() -> [ok = weir_cluster:cast_key(p, Key, {begun, Id}) || Id <- lists:seq(1, Count)] end),
            maps:get(requests, seen(A, B))
        end,
        until(fun() -> Cast(10) > 400 end),
        Intakes = call(B, weir_cluster_view, intakes, [p]),
        _ = [ok = call(B, sys, suspend, [Intake, infinity]) || Intake <- Intakes],
        Length = fun(Intake) -> element(2, call(B, erlang, process_info, [Intake, message_queue_len])) end,
        IsAsked = fun(Intake) -> Length(Intake) >= 1 end,
        until(fun() -> lists:all(IsAsked, Intakes) end),
        true = weir_cluster_test_lib:disconnect(A, B),
        until(fun() -> seen(A, B) =:= gone end),
        ok = connect([A, B]),
        until(fun() -> seen(A, B) =/= gone end),
        %% Nor is it an answer of the node as it is now.
        {ok, Hears} = call(A, weir_cluster_view, member, [p]),
        _ = do(A, fun() ->
            Number = erlang:monotonic_time(nanosecond) - 60_000_000_000,
            Hears ! {pong, name(B), 1, Number, erlang:monotonic_time(millisecond) - 60_000, 0, 0},
            sys:get_state(Hears, infinity)
        end),
        ?assertMatch(#{share := Share, round_trip_ms := unknown, clock_ms := 0} when Share == 0, seen(A, B)),
        _ = [ok = call(B, sys, resume, [Intake, infinity]) || Intake <- Intakes],
        ok = know([A, B], 1),
        Member = unheard(A, B),
        os("STOP", B),
        Sent = Cast(1000),
        ?assert(Sent =< 32, Sent),
        os("CONT", B),
        ok = call(A, sys, resume, [Member, infinity])
    end).

%% Who asks a node that does not answer whether a worker is free there has one of this node when that is free.
claims_beside_a_frozen_node(_Config) ->
    with(2, fun([A, B]) ->
        Member = unheard(A, B),
        os("STOP", B),
        ?assertEqual({ok, name(A)}, do(A, fun() ->
            Me = self(),
            Hold = fun(_) -> Me ! claimed, receive release -> ok end end,
            Claimers = [spawn(fun() -> weir_cluster:claim(p, Hold, wait_ms()) end) || _ <- [1, 2]],
            _ = [receive claimed -> ok end || _ <- Claimers],
            _ = spawn(fun() ->
                until(fun() ->
                    {ok, #{nodes := [#{requests := Requests}]}} = weir_cluster:info(p),
                    Requests > 0
                end),
                _ = [Claimer ! release || Claimer <- Claimers]
            end),
            weir_cluster:claim(p, fun node/1, infinity)
        end)),
        os("CONT", B),
        ok = call(A, sys, resume, [Member, infinity]),
        until(fun() -> abandoned(B) =:= {0, 0} end)
    end).
