%% Nodes that are killed, frozen and cut off, and processes that are killed. Each node writes down what was begun
%% there, and the callers what they were told; the two must agree.
-module(weir_cluster_failure_SUITE).
-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_cluster.hrl").

-compile([export_all, nowarn_export_all]).
-import(weir_cluster_test_lib, [with/2, with/3, info/1, stop/1, call/4, do/2, eventually/1, name/1, os/2, steady/3]).

all() ->
    [{group, many_beside_a_lease}, killed_node, frozen_node, all_are_silent, heard_in_one_direction,
        window_of_a_frozen_node, busy_connection, split_and_heal,
        split_by_global, nothing_is_logged, eight_nodes, over_tls, killed_processes, killed_proxy,
        stopped_with_calls, stopped_too_soon, stopped_at_once, leaves_after_a_kill, leaves_in_time,
        halted_after_leaving, killed_callers,
        comes_and_goes,
        killed_claimer, slow_workers, let_in_slowly, ended_monitor, restarts_are_silent, scope_that_fails,
        killed_monitor, upgraded_monitor, serves_soon, killed_member, answers_of_the_past, killed_after_leaving,
        clients_hear, pools_that_need_a_key,
        reasons_of_workers, claimers_killed_in_the_queue, claims_beside_a_frozen_node].

%% One waits for the end of a lease.
groups() -> [{many_beside_a_lease, [parallel], [frozen_claimer, many_nodes]}].

seen(One, Other) ->
    case [Node || #{node := Name} = Node <- maps:get(nodes, info(One)), Name =:= name(Other)] of
        [Node] -> Node;
        [] -> gone
    end.

keys(One, Node, Count) ->
    do(One, fun() ->
        Owns = fun(Key) -> weir_cluster:owners(p, Key, 1) =:= {ok, [Node]} end,
        lists:sublist(lists:filter(Owns, lists:seq(1, 10_000)), Count)
    end).

result(Call) ->
    try Call() catch exit:{Reason, {weir_cluster, _, _}} -> {exit, Reason}; exit:{Reason, _} -> {exit_here, Reason} end.

%% Calls, each in a process of its own, that are under way when this returns; answers/1 waits for them.
begin_calls(One, Requests, Opts) ->
    do(One, fun() ->
        Keeper = spawn(fun() -> keep(#{}, []) end),
        Call = fun(Id, Key, Ms) -> result(fun() -> weir_cluster:call_key(p, Key, {once, Id, Ms}, Opts) end) end,
        _ = [spawn(fun() -> Keeper ! {answer, Id, Call(Id, Key, Ms)} end) || {Id, Key, Ms} <- Requests],
        Keeper
    end).

keep(Answers, Asked) ->
    case [From || {From, Count} <- Asked, map_size(Answers) >= Count] of
        [From] ->
            From ! {answers, Answers};
        [] ->
            receive
                {answer, Id, Answer} ->
                    false = is_map_key(Id, Answers),
                    keep(Answers#{Id => Answer}, Asked);
                {ask, From, Count} ->
                    keep(Answers, [{From, Count}])
            end
    end.

answers(One, Keeper, Count) ->
    do(One, fun() ->
        Keeper ! {ask, self(), Count},
        receive {answers, Answers} -> Answers end
    end).

%% The same, and returns when so many of all were begun by workers of the other node, to which their keys belong.
begin_there(One, Other, Count, Requests, Opts) ->
    steady([One], 1, fun() ->
        Keeper = begin_calls(One, Requests, Opts),
        true = eventually(fun() -> map_size(weir_cluster_test_lib:begun([Other])) >= Count end),
        Keeper
    end).

%% What was under way is lost and said to be, unless it is idempotent; what comes later goes elsewhere.
killed_node(_Config) ->
    with(3, #{pool => #{size => 4}}, fun([A, B, C]) ->
        [K1, K2, K3, K4] = keys(A, name(B), 4),
        {Once, Twice} = steady([A], 2, fun() ->
            OfTwo = begin_calls(A, [{1, K1, 60_000}, {2, K2, 60_000}], 120_000),
            OfOthers = begin_calls(A, [{3, K3, until_told}, {4, K4, until_told}],
                #{timeout => 120_000, idempotent => true}),
            true = eventually(fun() -> maps:get(served, info(B)) =:= 4 end),
            {OfTwo, OfOthers}
        end),
        os("KILL", B),
        ?assertEqual(#{1 => {exit, {nodedown, name(B)}}, 2 => {exit, {nodedown, name(B)}}}, answers(A, Once, 2)),
        Teller = spawn_link(fun() -> weir_cluster_test_lib:keep_telling([A, C]) end),
        #{3 := {ok, {3, Node3}}, 4 := {ok, {4, Node4}}} = answers(A, Twice, 2),
        true = unlink(Teller),
        true = exit(Teller, kill),
        ?assertEqual([], [Node3, Node4] -- [name(A), name(C), name(A), name(C)]),
        true = eventually(fun() -> seen(A, B) =:= gone end),
        Results = steady([A], 1, fun() ->
            do(A, fun() -> [weir_cluster:call_key(p, Key, node, 60_000) || Key <- lists:seq(1, 500)] end)
        end),
        ?assertEqual(lists:sort([{ok, name(A)}, {ok, name(C)}]), lists:usort(Results))
    end).

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
        true = eventually(fun() -> maps:get(share, seen(A, B)) =:= +0.0 end),
        #{requests := Sent} = seen(A, B),
        ?assert(Sent =< length(Late), Sent),
        %% So that all are too late there, too: A knows only roughly what B's clock shows.
        receive after 1000 -> ok end,
        os("CONT", B),
        true = eventually(fun() -> maps:get(share, seen(A, B)) =:= 1.0 end),
        true = eventually(fun() -> maps:get(expired, info(B)) =:= Sent end),
        ?assertEqual(#{}, weir_cluster_test_lib:begun([B])),
        Begun = maps:keys(weir_cluster_test_lib:begun([A])),
        ?assertEqual([], [Key || {Key, _} <- Elsewhere] -- Begun),
        ?assert(length(Begun) =< length(Told) - Sent, Begun),
        gets(A, B, hd(Keys))
    end).

%% Of nodes that do not answer nobody says that they have no workers.
all_are_silent(_Config) ->
    with(1, fun([Server]) ->
        Client = weir_cluster_test_lib:start(#{pool => #{size => 0}, cluster => #{serve => false}}),
        try
            ok = weir_cluster_test_lib:connect([Client, Server]),
            ok = weir_cluster_test_lib:know([Client], 1),
            os("STOP", Server),
            true = eventually(fun() -> maps:get(share, seen(Client, Server)) == 0 end),
            Overload = #{pool => p, tried => [{name(Client), no_pool}, {name(Server), out}]},
            ?assertEqual({error, {overload, Overload}}, call(Client, weir_cluster, call, [p, node, 60_000])),
            ByKey = #{pool => p, tried => [{name(Server), out}]},
            ?assertEqual({error, {overload, ByKey}}, call(Client, weir_cluster, call_key, [p, key, node, 60_000])),
            os("KILL", Server),
            true = eventually(fun() -> call(Client, weir_cluster, call, [p, node, 60_000]) =:= {error, no_worker} end)
        after
            stop([Client])
        end
    end).

%% If that one is left out just when it is called, this node may be the one that is late.
late(Told) ->
    lists:partition(fun({_, Result}) -> Result =:= {exit, timeout} orelse Result =:= {exit_here, timeout} end, Told).

%% Of one that does not answer only the first few are lost: they have little time, so that this does not take long.
called_once(Keys, Node) ->
    [
        begin
            Ms = case is_left_out(Node) of true -> 60_000; false -> 500 end,
            {Key, result(fun() -> weir_cluster:call_key(p, Key, {once, Key, 0}, Ms) end)}
        end
     || Key <- Keys
    ].

%% The calls of A with this key are done by B.
gets(A, B, Key) ->
    true = eventually(fun() -> call(A, weir_cluster, call_key, [p, Key, node, 60_000]) =:= {ok, name(B)} end).

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
            true = eventually(fun() -> is_left_out(name(B)) end),
            receive read -> ok = Reads(true) end,
            true = eventually(fun() -> not is_left_out(name(B)) end),
            {WasOut, Answers, process_info(self(), messages)}
        end,
        Heard = fun() ->
            true = eventually(fun() -> maps:get(share, seen(B, A)) =:= +0.0 end),
            call(A, erlang, send, [caller, read])
        end,
        [{IsOut, Told, Mailbox}, read] = weir_kit:in_parallel([fun() -> do(A, Calls) end, Heard]),
        ?assertEqual({messages, []}, Mailbox),
        {Late, Elsewhere} = late(Told),
        ?assert((IsOut orelse length(Late) >= 1) andalso length(Late) =< 10, Late),
        ?assertEqual([], [Result || {Key, Result} <- Elsewhere, Result =/= {ok, {Key, name(A)}}]),
        true = eventually(fun() -> {maps:get(share, seen(A, B)), maps:get(share, seen(B, A))} =:= {1.0, 1.0} end),
        Begun = weir_cluster_test_lib:begun([A, B]),
        ?assertEqual([1], lists:usort(maps:values(Begun))),
        BegunHere = maps:keys(weir_cluster_test_lib:begun([A])),
        ?assertEqual([], [Key || {Key, _} <- Elsewhere] -- BegunHere),
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
        ?assertEqual(1000, Sent + Full),
        os("CONT", B),
        ok = call(A, sys, resume, [Member, infinity]),
        true = eventually(fun() -> map_size(weir_cluster_test_lib:begun([A, B])) =:= 1000 end),
        ?assertEqual([1], lists:usort(maps:values(weir_cluster_test_lib:begun([A, B])))),
        ?assertEqual(Sent, map_size(weir_cluster_test_lib:begun([B]))),
        %% And there is room again.
        true = eventually(fun() -> maps:get(share, seen(A, B)) =:= 1.0 end),
        true = eventually(fun() ->
            ok = call(A, weir_cluster, cast_key, [p, Key, {begun, again}]),
            map_size(weir_cluster_test_lib:begun([B])) =:= Sent + 1
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
        true = eventually(fun() ->
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

%% The member of A, which gets no turn until it is resumed: so B is not left out because it does not answer.
unheard(A, B) ->
    {ok, Member} = call(A, weir_cluster_view, member, [p]),
    true = eventually(fun() ->
        ok = call(A, sys, suspend, [Member, infinity]),
        case seen(A, B) of
            #{share := 1.0} -> true;
            _ -> ok = call(A, sys, resume, [Member, infinity]), false
        end
    end),
    Member.

%% Casts until none has been sent for a second, and says how many there were.
fill(_Key, Casts, 50) ->
    Casts;
fill(Key, Casts, Refused) ->
    Sent = fun() -> {ok, #{nodes := [#{requests := Requests}]}} = weir_cluster:info(p), Requests end,
    Before = Sent(),
    ok = weir_cluster:cast_key(p, Key, {tell, self(), binary:copy(<<"x">>, 1_000_000)}),
    receive after 20 -> ok end,
    fill(Key, Casts + 1, case Sent() of Before -> Refused + 1; _ -> 0 end).

%% Each side goes on with what it has, and all is as before when they are connected again.
split_and_heal(_Config) ->
    with(3, fun([A, B, C] = Cluster) ->
        Owners = fun() -> [Node || Key <- lists:seq(1, 300), {ok, [Node]} <- [weir_cluster:owners(p, Key, 1)]] end,
        Before = do(A, Owners),
        lists:foreach(
            fun(Pairs) ->
                [true = weir_cluster_test_lib:disconnect(X, Y) || {X, Y} <- Pairs],
                Sees = fun(X) -> lists:sort([name(Y) || Y <- Cluster, Y =/= X, not lists:member({X, Y}, Pairs),
                    not lists:member({Y, X}, Pairs)]) end,
                [
                    begin
                        true = eventually(fun() ->
                            Sees(X) =:= lists:sort([N || #{node := N} <- maps:get(nodes, info(X))])
                        end),
                        Call = fun(Key) -> weir_cluster:call_key(p, Key, node, 60_000) end,
                        Results = steady([X], length(Sees(X)), fun() ->
                            do(X, fun() -> lists:map(Call, lists:seq(1, 100)) end)
                        end),
                        ?assertEqual(lists:sort([{ok, N} || N <- [name(X) | Sees(X)]]), lists:usort(Results))
                    end
                 || X <- Cluster
                ],
                ok = weir_cluster_test_lib:connect(Cluster),
                ok = weir_cluster_test_lib:know(Cluster, 2),
                ?assertEqual([Before, Before, Before], [do(X, Owners) || X <- Cluster])
            end,
            [[{A, B}], [{A, B}, {A, C}], [{A, B}, {A, C}, {B, C}]]
        )
    end).

%% With prevent_overlapping_partitions, as OTP has it by default, global cuts more connections than those that were
%% lost: what is left goes on, and all is as before when all are connected again. One connection is lost; those of one
%% node; those of two nodes with the two others; all.
split_by_global(_Config) ->
    with(4, #{args => []}, fun([A, B, C, D] = Cluster) ->
        lists:foreach(
            fun(Pairs) ->
                _ = [weir_cluster_test_lib:disconnect(One, Other) || {One, Other} <- Pairs],
                lists:foreach(fun goes_on/1, Cluster),
                %% It may still be cutting when they are connected.
                true = eventually(fun() ->
                    ok = weir_cluster_test_lib:connect(Cluster),
                    lists:all(fun(One) -> in(One) =:= 3 end, Cluster)
                end)
            end,
            [[{A, B}], [{A, B}, {A, C}, {A, D}], [{A, C}, {A, D}, {B, C}, {B, D}],
                [{A, B}, {A, C}, {A, D}, {B, C}, {B, D}, {C, D}]]
        )
    end).

%% It sees the nodes that it is connected to, and its calls are done. What is under way when a connection is cut is
%% lost, and said to be.
goes_on(One) ->
    true = eventually(fun() ->
        Connected = lists:sort(call(One, erlang, nodes, [])),
        Connected =:= lists:sort([Node || #{node := Node} <- maps:get(nodes, info(One))])
    end),
    Call = fun(Key) -> result(fun() -> weir_cluster:call_key(p, Key, node, 60_000) end) end,
    IsTold = fun({ok, _}) -> true; ({exit, {nodedown, _}}) -> true; (_) -> false end,
    Results = do(One, fun() -> lists:map(Call, lists:seq(1, 100)) end),
    ?assertEqual([], [Result || Result <- Results, not IsTold(Result)]).

%% A node that goes down, or is stopped, is no crash of this one: nothing is logged.
nothing_is_logged(_Config) ->
    with(3, fun([A, B, C]) ->
        ok = do(A, fun() ->
            ok = logger:add_handler(?MODULE, ?MODULE, #{}),
            logger:set_primary_config(level, warning)
        end),
        os("KILL", B),
        ok = call(C, weir_cluster, stop, [p]),
        true = eventually(fun() -> maps:get(nodes, info(A)) =:= [] andalso do(A, fun monitors/0) =:= [] end),
        ?assertEqual([], call(A, ets, lookup, [weir_cluster_test_begun, logged]))
    end).

%% A handler of logger.
log(Event, _Config) ->
    ets:insert(weir_cluster_test_begun, {logged, Event}).

%% One after the other of eight is killed, frozen or leaves: those that are left agree on whose a key is.
eight_nodes(_Config) ->
    with(8, fun(Cluster) ->
        agree(Cluster),
        [Killed, Frozen, Leaving | Left] = Cluster,
        os("KILL", Killed),
        os("STOP", Frozen),
        %% All others tell, if they have a turn in that time.
        true = eventually(fun() ->
            {error, {unheard, [name(Frozen)]}} =:= call(Leaving, weir_cluster, leave, [p, 1000])
        end),
        true = eventually(fun() ->
            lists:all(fun(One) ->
                [in, in, in, in] =:= [in || #{share := 1.0} <- maps:get(nodes, info(One))]
            end, Left)
        end),
        Called = fun() -> [weir_cluster:call_key(p, Key, node, 60_000) || Key <- lists:seq(1, 200)] end,
        Names = lists:sort([{ok, name(One)} || One <- Left]),
        %% One that gets no turn for two seconds is left out for a while.
        true = eventually(fun() ->
            Served = lists:usort([do(One, Called) || One <- Left]),
            length(Served) =:= 1 andalso lists:usort(hd(Served)) =:= Names
        end),
        os("CONT", Frozen),
        ok = weir_cluster_test_lib:know([Frozen], 5),
        agree([Frozen | Left])
    end).

%% Of more than twenty nodes those that are not used are pinged in turn, and are left out all the same when they do not
%% answer.
many_nodes(_Config) ->
    with(22, fun([A, Used, Idle | _]) ->
        true = eventually(fun() -> in(A) =:= 21 end),
        [Key] = keys(A, name(Used), 1),
        %% A node that answers late is pinged again before its turn.
        true = eventually(fun() ->
            Pings = do(A, fun() -> pings(Key, name(Used), 6) end),
            Unused = [maps:get(Node, Pings, 0) || #{node := Node} <- maps:get(nodes, info(A)), Node =/= name(Used)],
            lists:all(fun(Count) -> Count >= 2 andalso Count =< 4 end, Unused)
        end),
        os("STOP", Idle),
        true = eventually(fun() -> in(A) =:= 20 andalso maps:get(share, seen(A, Idle)) == 0 end),
        os("CONT", Idle),
        true = eventually(fun() -> in(A) =:= 21 end)
    end).

in(One) -> length([in || #{share := 1.0} <- maps:get(nodes, info(One))]).

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

agree(Cluster) ->
    true = eventually(fun() ->
        Owners = [do(One, fun() -> [weir_cluster:owners(p, Key, 3) || Key <- lists:seq(1, 200)] end) || One <- Cluster],
        length(lists:usort(Owners)) =:= 1 andalso
            length(lists:usort(lists:append([Nodes || {ok, Nodes} <- hd(Owners)]))) =:= length(Cluster)
    end).

%% The connections of nodes may be encrypted.
over_tls(Config) ->
    case code:which(ssl) of
        non_existing ->
            {skip, "no ssl here"};
        _ ->
            {ok, _} = application:ensure_all_started(public_key),
            %% The defaults are of a kind that TLS 1.3 refuses.
            Kind = [{digest, sha256}, {key, {rsa, 2048, 65537}}],
            Chain = #{root => Kind, intermediates => [], peer => Kind},
            #{server_config := Server} = public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
            Cert = proplists:get_value(cert, Server),
            {Type, Key} = proplists:get_value(key, Server),
            File = filename:join(proplists:get_value(priv_dir, Config), "node.pem"),
            Pem = public_key:pem_encode([{'Certificate', Cert, not_encrypted}, {Type, Key, not_encrypted}]),
            ok = file:write_file(File, Pem),
            Optfile = filename:join(proplists:get_value(priv_dir, Config), "ssl_dist.config"),
            Text = io_lib:format("[{server, [{certfile, ~p}]}, {client, [{verify, verify_none}]}].~n", [File]),
            ok = file:write_file(Optfile, Text),
            Args = ["-proto_dist", "inet_tls", "-ssl_dist_optfile", Optfile],
            with(2, #{args => Args}, fun([A, B]) ->
                [Key1 | _] = keys(A, name(B), 1),
                ?assertEqual({ok, name(B)}, steady([A], 1, fun() ->
                    call(A, weir_cluster, call_key, [p, Key1, node, 60_000])
                end)),
                os("KILL", B),
                true = eventually(fun() -> seen(A, B) =:= gone end)
            end)
    end.

%% Whatever is killed, all know of all again, and what was under way ends.
killed_processes(_Config) ->
    with(2, fun([A, B] = Cluster) ->
        [Key | _] = keys(A, name(B), 1),
        Rows = call(A, ets, info, [weir_cluster_views, size]),
        [
            begin
                Id = {killed, Which},
                Keeper = begin_there(A, B, N, [{Id, Key, 500}], 60_000),
                Pid = call(B, ?MODULE, which_process, [Which]),
                ?assertEqual(killed, do(B, fun() ->
                    Monitor = monitor(process, Pid),
                    exit(Pid, kill),
                    receive {'DOWN', Monitor, _, _, Reason} -> Reason end
                end)),
                Answer = maps:get(Id, answers(A, Keeper, 1)),
                ?assert(lists:member(element(1, Answer), [ok, exit]), Answer),
                ok = weir_cluster_test_lib:know(Cluster, 1),
                Again = fun() -> weir_cluster:call_key(p, Key, node, 60_000) end,
                true = eventually(fun() -> do(A, fun() -> result(Again) end) =:= {ok, name(B)} end),
                ?assertEqual(N, lists:sum(maps:values(weir_cluster_test_lib:begun(Cluster))))
            end
         || {N, Which} <- lists:zip([1, 2, 3, 4, 5], [member, intake, cleaner, pool, scope])
        ],
        %% One that was started again has yet to hear of the other, as the first two had.
        true = eventually(fun() ->
            [Rows, Rows] =:= [call(One, ets, info, [weir_cluster_views, size]) || One <- Cluster]
        end)
    end).

which_process(member) -> {ok, Pid} = weir_cluster_view:member(p), Pid;
which_process(intake) -> hd(weir_cluster_view:intakes(p));
which_process(cleaner) -> weir_cluster_view:cleaner(p);
which_process(pool) -> {ok, Pid} = weir_cluster_view:owner(p), Pid;
which_process(scope) -> whereis(weir_cluster);
which_process(proxy) ->
    hd([Pid || Pid <- processes(), {current_stacktrace, Stack} <- [process_info(Pid, current_stacktrace)],
        lists:keymember(weir_cluster_intake, 1, Stack), not lists:member(Pid, weir_cluster_view:intakes(p))]).

killed_proxy(_Config) ->
    with(2, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        Keeper = begin_there(A, B, 1, [{1, Key, 60_000}], 120_000),
        true = do(B, fun() -> exit(which_process(proxy), kill) end),
        ?assertEqual(#{1 => {exit, killed}}, answers(A, Keeper, 1)),
        true = eventually(fun() -> call(B, weir_cluster, leave, [p]) =:= ok end)
    end).

%% An intake that fails ends those behind it, which wait for no call: the node serves again while one is under way.
serves_soon(_Config) ->
    with(2, #{cluster => #{shutdown => infinity}}, fun([_A, B] = Cluster) ->
        ?assertEqual(killed, do(B, fun() ->
            [First, Second] = weir_cluster_view:intakes(p),
            Conf = weir_cluster_view:conf(p),
            Alias = monitor(process, Second, [{alias, reply_demonitor}]),
            Second ! {weir_cluster, call, none, infinity, {Alias, none, until_told}},
            true = weir_cluster_test_lib:eventually(fun() -> weir_cluster_here:served(Conf) =:= 1 end),
            true = exit(First, kill),
            receive {'DOWN', Alias, process, Second, Reason} -> Reason after 60_000 -> still_there end
        end)),
        ok = weir_cluster_test_lib:know(Cluster, 1)
    end).

%% What is under way is finished first, and what comes meanwhile goes elsewhere.
stopped_with_calls(_Config) ->
    with(2, #{pool => #{size => 4}, cluster => #{shutdown => 60_000}}, fun([A, B]) ->
        Keys = keys(A, name(B), 20),
        {First, Second} = lists:split(10, Keys),
        Early = begin_there(A, B, 4, [{Key, Key, 300} || Key <- First], 60_000),
        Me = self(),
        Stop = spawn_link(fun() -> Me ! {self(), call(B, weir_cluster, stop, [p])} end),
        Late = begin_calls(A, [{Key, Key, 0} || Key <- Second], 60_000),
        receive {Stop, Stopped} -> ?assertEqual(ok, Stopped) end,
        Answers = maps:merge(answers(A, Early, 10), answers(A, Late, 10)),
        ?assertEqual([ok], lists:usort([element(1, Answer) || Answer <- maps:values(Answers)])),
        ?assertEqual([1], lists:usort(maps:values(weir_cluster_test_lib:begun([A, B])))),
        ?assertEqual(20, map_size(weir_cluster_test_lib:begun([A, B])))
    end).

%% Who is not finished by then is told that it was lost, and it is not begun again.
stopped_too_soon(_Config) ->
    with(2, #{cluster => #{shutdown => 100}}, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        Keeper = begin_there(A, B, 1, [{1, Key, 60_000}], 120_000),
        ok = call(B, weir_cluster, stop, [p]),
        ?assertEqual(#{1 => {exit, killed}}, answers(A, Keeper, 1)),
        ?assertEqual(#{1 => 1}, weir_cluster_test_lib:begun([A, B]))
    end).

%% Intakes are shut down one after the other: while the last waits for a call, the first already refuses.
stopped_at_once(_Config) ->
    with(2, #{cluster => #{shutdown => 60_000}}, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        Keeper = begin_there(A, B, 1, [{1, Key, until_told}], 120_000),
        Answer = do(B, fun() ->
            Intakes = weir_cluster_view:intakes(p),
            Conf = weir_cluster_view:conf(p),
            _ = spawn(fun() -> ok = weir_cluster:stop(p) end),
            true = weir_cluster_test_lib:eventually(fun() -> weir_cluster_here:has_left(Conf) end),
            [begin
                Alias = monitor(process, Intake, [{alias, reply_demonitor}]),
                Intake ! {weir_cluster, call, none, infinity, {Alias, none, node}},
                receive {Alias, not_begun, Why, _} -> Why; {'DOWN', Alias, _, _, _} -> gone end
            end || Intake <- Intakes]
        end),
        ?assertMatch([leaving | _], lists:reverse(lists:usort(Answer))),
        ?assertEqual([], Answer -- [gone, leaving, leaving]),
        ok = weir_cluster_test_lib:tell_workers(B),
        ?assertEqual(#{1 => {ok, {1, name(B)}}}, answers(A, Keeper, 1)),
        ?assertEqual(#{1 => 1}, weir_cluster_test_lib:begun([A, B]))
    end).

%% A node leaves also while what was killed is being started again.
leaves_after_a_kill(_Config) ->
    with(2, fun([A, B]) ->
        [
            begin
                ?assertEqual(ok, do(B, fun() ->
                    true = exit(which_process(Which), kill),
                    weir_cluster:leave(p)
                end)),
                true = eventually(fun() -> seen(A, B) =:= gone end),
                ok = call(B, weir_cluster, stop, [p]),
                ?assertEqual({error, no_pool}, call(B, weir_cluster, leave, [p])),
                ok = call(B, weir_cluster, start, [p, #{}]),
                ok = weir_cluster_test_lib:know([A, B], 1)
            end
         || _ <- lists:seq(1, 5), Which <- [member, intake]
        ]
    end).

%% Who leaves waits for nobody longer than he may, and the others hear of it when they can.
leaves_in_time(_Config) ->
    with(2, fun([A, B]) ->
        {ok, Member} = call(B, weir_cluster_view, member, [p]),
        ok = call(B, sys, suspend, [Member, infinity]),
        ?assertEqual({error, {unheard, [name(B)]}}, call(B, weir_cluster, leave, [p, 100])),
        ?assertNotEqual(gone, seen(A, B)),
        [Key | _] = keys(A, name(B), 1),
        ?assertEqual({ok, name(A)}, call(A, weir_cluster, call_key, [p, Key, node, 60_000])),
        ok = call(B, sys, resume, [Member, infinity]),
        true = eventually(fun() -> seen(A, B) =:= gone end)
    end).

%% Who has left may be halted, or killed, at that moment: nothing that was sent to it is lost. Forty callers of a
%% client, and eight of a node that serves too, go on while four others leave, one after the other.
halted_after_leaving(_Config) ->
    with(6, fun([Client, Stays | Leaving]) ->
        ok = call(Client, weir_cluster, stop, [p]),
        ok = call(Client, weir_pool, stop, [p]),
        ok = call(Client, weir_cluster, start, [p, #{serve => false}]),
        ok = weir_cluster_test_lib:know([Client], 5),
        Loads = [{One, do(One, fun() -> begin_calling(Count) end)} || {One, Count} <- [{Client, 40}, {Stays, 8}]],
        lists:foreach(fun({One, How}) ->
            Done = [do(Caller, fun() -> done(Load) end) || {Caller, Load} <- Loads],
            true = eventually(fun() ->
                Now = [do(Caller, fun() -> done(Load) end) || {Caller, Load} <- Loads],
                lists:all(fun({Before, After}) -> After > Before + 1000 end, lists:zip(Done, Now))
            end),
            case How of
                halt ->
                    _ = try do(One, fun() -> ok = weir_cluster:leave(p), erlang:halt(0) end) catch _:_ -> halted end;
                kill ->
                    ok = call(One, weir_cluster, leave, [p]),
                    os("KILL", One)
            end,
            true = eventually(fun() -> seen(Client, One) =:= gone andalso seen(Stays, One) =:= gone end)
        end, lists:zip(Leaving, [halt, kill, halt, halt])),
        [?assertEqual([], do(Caller, fun() -> end_calling(Load) end)) || {Caller, Load} <- Loads]
    end).

%% So many call, by key and not, until they are told to end, and say what has failed; how many were done is counted.
begin_calling(Count) ->
    Done = counters:new(1, [write_concurrency]),
    {Done, [spawn(fun() -> calling(N, 1, Done, []) end) || N <- lists:seq(1, Count)]}.

done({Done, _Callers}) -> counters:get(Done, 1).

end_calling({_Done, Callers}) ->
    Monitors = [begin Monitor = monitor(process, Pid), Pid ! stop, Monitor end || Pid <- Callers],
    lists:append([receive {'DOWN', Monitor, _, _, {failed, Failed}} -> Failed end || Monitor <- Monitors]).

calling(N, I, Done, Failed) ->
    receive
        stop -> exit({failed, Failed})
    after 0 ->
        Call = case N rem 2 of
            0 -> fun() -> weir_cluster:call_key(p, {N, I}, node, 60_000) end;
            1 -> fun() -> weir_cluster:call(p, node, 60_000) end
        end,
        case result(Call) of
            {ok, _} ->
                ok = counters:add(Done, 1, 1),
                calling(N, I + 1, Done, Failed);
            Else ->
                calling(N, I + 1, Done, [Else | Failed])
        end
    end.

%% They leave nothing behind, here or there.
killed_callers(_Config) ->
    with(2, #{cluster => #{window => 16}}, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        [
            do(A, fun() ->
                Pids = [spawn(fun() -> weir_cluster:call_key(p, Key, {sleep, 1}) end) || _ <- lists:seq(1, 8)],
                erlang:yield(),
                _ = [exit(Pid, kill) || Pid <- Pids],
                ok
            end)
         || _ <- lists:seq(1, 50)
        ],
        true = eventually(fun() -> do(B, fun() -> weir_cluster_here:served(weir_cluster_view:conf(p)) =:= 0 end) end),
        %% The windows are open: of so many callers at a time none is turned away.
        true = eventually(fun() ->
            do(A, fun() ->
                [#{full := Before}] = maps:get(nodes, element(2, weir_cluster:info(p))),
                Answers = [weir_cluster:call_key(p, Key, node, 60_000) || _ <- lists:seq(1, 40)],
                [#{full := After}] = maps:get(nodes, element(2, weir_cluster:info(p))),
                Before =:= After andalso lists:usort(Answers) =:= [{ok, name(B)}]
            end)
        end)
    end).

comes_and_goes(_Config) ->
    Times = weir_kit:long(100, 10_000),
    with(2, fun([A, B] = Cluster) ->
        Counts = fun() ->
            [{length(call(One, erlang, processes, [])), call(One, ets, info, [weir_cluster_views, size]),
                length([Key || {{weir_cluster, _} = Key, _} <- call(One, persistent_term, get, [])])} || One <- Cluster]
        end,
        Before = eventually(fun() ->
            Once = Counts(),
            receive after 100 -> ok end,
            Counts() =:= Once andalso Once
        end),
        do(B, fun() -> lists:foreach(fun(N) ->
            ok = weir_cluster:stop(p),
            ok = weir_cluster:start(p, #{weight => N rem 7 + 1})
        end, lists:seq(1, Times)) end),
        ok = weir_cluster_test_lib:know(Cluster, 1),
        true = eventually(fun() ->
            case seen(A, B) of #{weight := Weight} -> Weight =:= Times rem 7 + 1; gone -> false end
        end),
        true = eventually(fun() -> Counts() =:= Before end)
    end).

%% A claim of a worker of B by a process of A.
claim_there(A) ->
    do(A, fun() ->
        Me = self(),
        Claim = fun() ->
            weir_cluster_test_lib:claim(fun(Worker) ->
                Me ! {self(), Worker},
                receive never -> ok end
            end)
        end,
        [First, Second, Third] = Pids = [
            begin
                Pid = spawn(Claim),
                receive {Pid, Worker} -> {Pid, Worker} end
            end
         || _ <- lists:seq(1, 3)
        ],
        {[node(Worker) || {_, Worker} <- Pids], [First, Second], Third}
    end).

abandoned(One) ->
    {ok, #{abandoned := Abandoned, claimed := Claimed}} = call(One, weir_pool, info, [p]),
    {Abandoned, Claimed}.

%% His worker is replaced, wherever it is.
killed_claimer(_Config) ->
    with(2, fun([A, B]) ->
        {Nodes, _, {Claimer, Worker}} = claim_there(A),
        ?assertEqual([name(A), name(A), name(B)], Nodes),
        %% What came too late, and was claimed again, is given back.
        true = eventually(fun() -> abandoned(B) =:= {0, 1} end),
        true = call(A, erlang, exit, [Claimer, kill]),
        true = eventually(fun() -> abandoned(B) =:= {1, 0} end),
        true = eventually(fun() -> not call(B, erlang, is_process_alive, [Worker]) end)
    end).

%% So is that of one whose node says nothing for a lease, or is cut off.
frozen_claimer(_Config) ->
    with(2, fun([A, B]) ->
        {_, _, {_, Worker}} = claim_there(A),
        os("STOP", A),
        true = eventually(fun() -> abandoned(B) =:= {1, 0} end),
        true = eventually(fun() -> not call(B, erlang, is_process_alive, [Worker]) end),
        os("CONT", A),
        ok = weir_cluster_test_lib:know([A, B], 1),
        {_, _, {_, Next}} = claim_there_again(A),
        true = weir_cluster_test_lib:disconnect(A, B),
        true = eventually(fun() -> abandoned(B) =:= {2, 0} end),
        true = eventually(fun() -> not call(B, erlang, is_process_alive, [Next]) end)
    end).

%% The two of A are taken still.
claim_there_again(A) ->
    do(A, fun() ->
        Me = self(),
        Pid = spawn(fun() ->
            weir_cluster_test_lib:claim(fun(Worker) ->
                Me ! {self(), Worker},
                receive never -> ok end
            end)
        end),
        receive {Pid, Worker} -> {[], [], {Pid, Worker}} end
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
        true = eventually(fun() ->
            true = eventually(fun() -> maps:get(share, seen(A, B)) =:= 1.0 end),
            [1000] =:= do(A, fun() ->
                shares(fun() ->
                    true = weir_cluster_test_lib:eventually(fun() ->
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
        true = eventually(fun() ->
            Shares = do(A, fun() ->
                shares(fun() ->
                    os("STOP", B),
                    true = weir_cluster_test_lib:eventually(fun() -> is_left_out(name(B)) end),
                    os("CONT", B)
                end, 5)
            end),
            true = eventually(fun() -> maps:get(share, seen(A, B)) =:= 1.0 end),
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

%% Nothing is sent to a node whose monitor has ended, was killed, or is about to end, and nothing is counted.
ended_monitor(_Config) ->
    with(2, fun([A, B]) ->
        {Results, Counts} = do(A, fun() ->
            [Target] = weir_cluster_view:targets(p),
            {Ended, Monitor} = spawn_monitor(fun() -> ok end),
            receive {'DOWN', Monitor, process, Ended, _} -> ok end,
            Killed = Target#target{monitor = Ended},
            Words = weir_cluster_link:new(tuple_size(Target#target.intakes)),
            ok = weir_cluster_link:set_ended(noconnection, Words),
            Conf = weir_cluster_view:conf(p),
            Request = fun(To) -> weir_cluster_call:request(call, To, {none, node}, infinity, Conf) end,
            {ok, #{nodes := [Before]}} = weir_cluster:info(p),
            Answers = [Request(To) || _ <- lists:seq(1, 10), To <- [Killed, Target#target{words = Words}]],
            {ok, #{nodes := [After]}} = weir_cluster:info(p),
            0 = weir_cluster_link:requests(Words),
            {message_queue_len, 0} = process_info(self(), message_queue_len),
            {Answers, [maps:with([requests, refused, failed, full, busy], Each) || Each <- [Before, After]]}
        end),
        ?assertEqual([{not_begun, gone}], lists:usort(Results)),
        ?assertMatch([_], lists:usort(Counts)),
        ?assertNotEqual(gone, seen(A, B))
    end).

%% Other nodes hear nothing of workers that are started again, and pg knows one process of each node.
restarts_are_silent(_Config) ->
    with(2, fun([A, B]) ->
        Groups = fun() -> [lists:sort(call(One, pg, get_members, [weir_cluster, {serve, p}])) || One <- [A, B]] end,
        true = eventually(fun() -> [2, 2] =:= [length(Members) || Members <- Groups()] end),
        Before = Groups(),
        Said = do(B, fun() ->
            {ok, Member} = weir_cluster_view:member(p),
            Speakers = [Member, whereis(weir_cluster) | weir_cluster_view:intakes(p)],
            %% What they have been asked before is answered.
            _ = [sys:get_state(Pid, infinity) || Pid <- Speakers],
            _ = [1 = erlang:trace(Pid, true, [send]) || Pid <- Speakers],
            lists:foreach(fun restart_a_worker/1, [1, 2, 3]),
            Sent = sent(3, []),
            _ = [erlang:trace(Pid, false, [send]) || Pid <- Speakers],
            lists:usort([element(1, Message) || Message <- Sent])
        end),
        ?assertEqual([], Said -- [ping, pong]),
        ?assertEqual(Before, Groups()),
        ?assertMatch([[_, _], [_, _]], Before)
    end).

restart_a_worker(_) ->
    {ok, [{Slot, Pid} | _]} = weir_pool:workers(p),
    exit(Pid, kill),
    true = weir_cluster_test_lib:eventually(fun() ->
        {ok, Workers} = weir_pool:workers(p),
        lists:keymember(Slot, 1, Workers) andalso not lists:member({Slot, Pid}, Workers)
    end).

%% What was sent until so many pings were, and after that.
sent(0, Messages) ->
    Messages;
sent(Pings, Messages) ->
    receive
        {trace, _Pid, send, {ping, _, _, _, _} = Message, _To} -> sent(Pings - 1, [Message | Messages]);
        {trace, _Pid, send, Message, _To} -> sent(Pings, [Message | Messages])
    end.

%% A scope that cannot be started is tried again, and no more often for that there are two reasons, its result and its
%% exit.
scope_that_fails(_Config) ->
    with(1, fun([A]) ->
        Timers = do(A, fun() ->
            ok = application:stop(weir_cluster),
            %% pg has a table of that name.
            Table = ets:new(weir_cluster, [named_table]),
            ok = application:start(weir_cluster),
            Scope = whereis(weir_cluster_scope),
            1 = erlang:trace(Scope, true, ['receive']),
            receive {trace, Scope, 'receive', {'EXIT', _, _}} -> ok end,
            ok = sys:suspend(Scope, infinity),
            1 = erlang:trace(Scope, false, ['receive']),
            Waiting = fun() ->
                {messages, Messages} = process_info(Scope, messages),
                length(Messages) - length([exit || {'EXIT', _, _} <- Messages])
            end,
            true = weir_cluster_test_lib:eventually(fun() -> Waiting() > 0 end),
            %% As long as a second one may take.
            receive after 1000 -> ok end,
            Count = Waiting(),
            true = ets:delete(Table),
            ok = sys:resume(Scope, infinity),
            true = weir_cluster_test_lib:eventually(fun() -> is_pid(whereis(weir_cluster)) end),
            Count
        end),
        ?assertEqual(1, Timers)
    end).

%% Another one is found for that node.
%% After an upgrade it does not keep the next one waiting, and those who wait for it hear of the end as before.
upgraded_monitor(_Config) ->
    with(2, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        Keeper = begin_there(A, B, 1, [{1, Key, 60_000}], 120_000),
        true = do(A, fun() ->
            Monitors = monitors(),
            [begin
                {module, _} = code:load_file(weir_cluster_monitor),
                ok = weir_cluster_monitor:code_loaded(),
                true = weir_cluster_test_lib:eventually(fun() -> code:soft_purge(weir_cluster_monitor) end)
            end || _ <- [1, 2]],
            Monitors =:= monitors()
        end),
        os("KILL", B),
        ?assertEqual(#{1 => {exit, {nodedown, name(B)}}}, answers(A, Keeper, 1))
    end).

killed_monitor(_Config) ->
    with(2, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        true = do(A, fun() -> exit(hd(monitors()), kill) end),
        gets(A, B, Key),
        %% When the pool of a node has no worker for a while, nothing of that is left.
        [
            begin
                ok = call(B, weir_pool, stop, [p]),
                true = eventually(fun() -> seen(A, B) =:= gone end),
                ok = call(B, weir_pool, start, [p, #{size => 1, worker => {weir_cluster_test_worker, start_link, []}}]),
                ok = weir_cluster_test_lib:know([A], 1)
            end
         || _ <- [1, 2, 3]
        ],
        true = eventually(fun() -> do(A, fun() -> length(monitors()) =:= 1 end) end)
    end).

%% Callers go on with the nodes that the former one knew.
killed_member(_Config) ->
    with(1, fun([Server]) ->
        Client = weir_cluster_test_lib:start(#{pool => #{size => 0}, cluster => #{serve => false}}),
        try
            ok = weir_cluster_test_lib:connect([Client, Server]),
            ok = weir_cluster_test_lib:know([Client], 1),
            Answers = do(Client, fun() ->
                lists:append([
                    begin
                        {ok, Member} = weir_cluster_view:member(p),
                        true = exit(Member, kill),
                        [result(fun() -> weir_cluster:call(p, node, 60_000) end) || _ <- lists:seq(1, 200)]
                    end
                 || _ <- lists:seq(1, 5)
                ])
            end),
            ?assertEqual([{ok, name(Server)}], lists:usort(Answers)),
            %% The new one hears of what changes, and of who goes.
            ok = call(Server, weir_pool, resize, [p, 7]),
            true = eventually(fun() -> maps:get(weight, seen(Client, Server)) =:= 7 end),
            true = eventually(fun() -> do(Client, fun() -> length(monitors()) =:= 1 end) end),
            os("KILL", Server),
            true = eventually(fun() -> seen(Client, Server) =:= gone end)
        after
            stop([Client])
        end
    end).

%% What was asked before a connection was lost, and is answered after there is another one, says nothing of what was
%% sent since: the window is no larger.
answers_of_the_past(_Config) ->
    with(2, #{cluster => #{window => 16}}, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        Cast = fun(Count) ->
            do(A, fun() -> [ok = weir_cluster:cast_key(p, Key, {begun, Id}) || Id <- lists:seq(1, Count)] end),
            maps:get(requests, seen(A, B))
        end,
        true = eventually(fun() -> Cast(10) > 400 end),
        Intakes = call(B, weir_cluster_view, intakes, [p]),
        _ = [ok = call(B, sys, suspend, [Intake, infinity]) || Intake <- Intakes],
        Length = fun(Intake) -> element(2, call(B, erlang, process_info, [Intake, message_queue_len])) end,
        IsAsked = fun(Intake) -> Length(Intake) >= 1 end,
        true = eventually(fun() -> lists:all(IsAsked, Intakes) end),
        true = weir_cluster_test_lib:disconnect(A, B),
        true = eventually(fun() -> seen(A, B) =:= gone end),
        ok = weir_cluster_test_lib:connect([A, B]),
        true = eventually(fun() -> seen(A, B) =/= gone end),
        %% Nor is it an answer of the node as it is now.
        {ok, Hears} = call(A, weir_cluster_view, member, [p]),
        _ = do(A, fun() ->
            Number = erlang:monotonic_time(nanosecond) - 60_000_000_000,
            Hears ! {pong, name(B), 1, Number, erlang:monotonic_time(millisecond) - 60_000, 0, 0},
            sys:get_state(Hears, infinity)
        end),
        ?assertMatch(#{share := Share, round_trip_ms := unknown, clock_ms := 0} when Share == 0, seen(A, B)),
        _ = [ok = call(B, sys, resume, [Intake, infinity]) || Intake <- Intakes],
        ok = weir_cluster_test_lib:know([A, B], 1),
        Member = unheard(A, B),
        os("STOP", B),
        Sent = Cast(1000),
        ?assert(Sent =< 32, Sent),
        os("CONT", B),
        ok = call(A, sys, resume, [Member, infinity])
    end).

monitors() ->
    Of = fun(Pid) -> process_info(Pid, current_function) =:= {current_function, {weir_cluster_monitor, loop, 1}} end,
    lists:filter(Of, processes()).

%% Who has left does not come back because something is started again.
killed_after_leaving(_Config) ->
    with(2, fun([A, B]) ->
        ok = call(B, weir_cluster, leave, [p]),
        [
            begin
                Pid = call(B, ?MODULE, which_process, [Which]),
                true = call(B, erlang, exit, [Pid, kill]),
                true = eventually(fun() ->
                    {ok, Member} = call(B, weir_cluster_view, member, [p]),
                    Member =/= Pid andalso call(B, erlang, is_process_alive, [Member])
                end),
                ok = call(B, weir_cluster, leave, [p]),
                true = eventually(fun() -> seen(A, B) =:= gone end),
                Answers = do(A, fun() -> [weir_cluster:call_key(p, Key, node, 60_000) || Key <- lists:seq(1, 100)] end),
                ?assertEqual([{ok, name(A)}], lists:usort(Answers))
            end
         || Which <- [member, intake]
        ]
    end).

%% Clients are told who leaves, and how the others change.
clients_hear(_Config) ->
    with(2, fun([A, B] = Servers) ->
        Client = weir_cluster_test_lib:start(#{pool => #{size => 0}, cluster => #{serve => false}}),
        try
            ok = weir_cluster_test_lib:connect([Client | Servers]),
            ok = weir_cluster_test_lib:know([Client], 2),
            ok = call(A, weir_pool, resize, [p, 5]),
            true = eventually(fun() -> maps:get(weight, seen(Client, A)) =:= 5 end),
            ok = call(B, weir_cluster, leave, [p]),
            true = eventually(fun() -> seen(Client, B) =:= gone end),
            ?assertEqual({ok, name(A)}, steady([Client], 1, fun() ->
                call(Client, weir_cluster, call, [p, node, 60_000])
            end))
        after
            stop([Client])
        end
    end).

%% What cannot be picked without a key is the caller's mistake, and nobody else's.
pools_that_need_a_key(_Config) ->
    with(1, #{pool => #{strategy => hash}}, fun([Server]) ->
        Client = weir_cluster_test_lib:start(#{pool => #{size => 0}, cluster => #{serve => false}}),
        try
            ok = weir_cluster_test_lib:connect([Client, Server]),
            ok = weir_cluster_test_lib:know([Client], 1),
            Intakes = call(Server, weir_cluster_view, intakes, [p]),
            steady([Client], 1, fun() ->
                ?assertEqual({exit, badarg}, do(Client, fun() -> result(fun() -> weir_cluster:call(p, node) end) end)),
                ?assertEqual({exit, badarg}, do(Client, fun() -> result(fun() -> weir_cluster:pick(p) end) end)),
                _ = [ok = call(Client, weir_cluster, cast, [p, hello]) || _ <- lists:seq(1, 50)],
                true = eventually(fun() -> maps:get(bad_casts, info(Server)) =:= 50 end),
                ?assertEqual(Intakes, call(Server, weir_cluster_view, intakes, [p])),
                ?assertEqual({ok, name(Server)}, call(Client, weir_cluster, call_key, [p, key, node, 60_000]))
            end)
        after
            stop([Client])
        end
    end).

%% A worker may end with any reason; nobody waits for ever for it, and it is not begun again.
reasons_of_workers(_Config) ->
    with(2, fun([A, B] = Cluster) ->
        [Key | _] = keys(A, name(B), 1),
        [
            begin
                ?assertEqual({exit, Reason}, steady([A], 1, fun() ->
                    do(A, fun() ->
                        result(fun() -> weir_cluster:call_key(p, Key, {end_with, Reason}, infinity) end)
                    end)
                end)),
                weir_cluster_test_lib:all_live(B)
            end
         || Reason <- [timeout, noproc, shutdown, killed, normal]
        ],
        ?assertEqual(5, lists:sum(maps:values(weir_cluster_test_lib:begun(Cluster))))
    end).

%% Who died has no place in the queue of another node, and no worker is taken for abandoned.
claimers_killed_in_the_queue(_Config) ->
    with(1, fun([Server]) ->
        Client = weir_cluster_test_lib:start(#{pool => #{size => 0}, cluster => #{serve => false}}),
        try
            ok = weir_cluster_test_lib:connect([Client, Server]),
            ok = weir_cluster_test_lib:know([Client], 1),
            Waiting = fun() -> {ok, #{waiting := N}} = call(Server, weir_pool, info, [p]), N end,
            true = steady([Client], 1, fun() ->
                ok = do(Client, fun() ->
                    Me = self(),
                    Hold = fun(_) -> Me ! held, receive release -> ok end end,
                    Held = [spawn(fun() -> weir_cluster_test_lib:claim(Hold) end) || _ <- [1, 2]],
                    _ = [receive held -> ok end || _ <- Held],
                    Queue = fun() -> weir_cluster:claim(p, fun(_) -> ok end, 4_294_967_295) end,
                    Queued = [spawn(Queue) || _ <- lists:seq(1, 10)],
                    true = register(keeper, spawn(fun() ->
                        receive kill -> ok end,
                        Monitors = [monitor(process, Pid) || Pid <- Queued],
                        _ = [exit(Pid, kill) || Pid <- Queued],
                        _ = [receive {'DOWN', Monitor, _, _, _} -> ok end || Monitor <- Monitors],
                        receive release -> _ = [Pid ! release || Pid <- Held] end
                    end)),
                    ok
                end),
                eventually(fun() -> Waiting() =:= 10 end)
            end),
            kill = call(Client, erlang, send, [keeper, kill]),
            true = eventually(fun() -> Waiting() =:= 0 end),
            %% Those two are still held.
            {0, 2} = abandoned(Server),
            release = call(Client, erlang, send, [keeper, release]),
            true = eventually(fun() -> abandoned(Server) =:= {0, 0} end)
        after
            stop([Client])
        end
    end).

%% Who asks a node that does not answer whether a worker is free there has one of this node when that is free.
claims_beside_a_frozen_node(_Config) ->
    with(2, fun([A, B]) ->
        Member = unheard(A, B),
        os("STOP", B),
        ?assertEqual({ok, name(A)}, do(A, fun() ->
            Me = self(),
            Claim = fun() -> weir_cluster:claim(p, fun(_) -> Me ! claimed, receive release -> ok end end, 60_000) end,
            Claimers = [spawn(Claim) || _ <- [1, 2]],
            _ = [receive claimed -> ok end || _ <- Claimers],
            _ = spawn(fun() ->
                true = weir_cluster_test_lib:eventually(fun() ->
                    {ok, #{nodes := [#{requests := Requests}]}} = weir_cluster:info(p),
                    Requests > 0
                end),
                _ = [Claimer ! release || Claimer <- Claimers]
            end),
            weir_cluster:claim(p, fun node/1, infinity)
        end)),
        os("CONT", B),
        ok = call(A, sys, resume, [Member, infinity]),
        true = eventually(fun() -> abandoned(B) =:= {0, 0} end)
    end).
