%% What the guide promises, on nodes of this machine that are all well.
-module(weir_cluster_SUITE).
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(weir_cluster_test_lib, [with/2, with/3, with_client/2, with_client/3, info/1, stop/1, connect/1, know/2, call/4,
    do/2, name/1, steady/3]).
-import(weir_kit, [until/1, wait_ms/0]).

%% Cases that wait until a time is over.
-define(WAITING, [multicalls, time_is_over]).

all() -> [{group, side_by_side} | weir_kit:cases(?MODULE) -- ?WAITING].

groups() -> [{side_by_side, [parallel], ?WAITING}].

init_per_suite(Config) -> weir_cluster_test_lib:keep_nodes(Config).

end_per_suite(Config) -> weir_cluster_test_lib:end_nodes(Config).

%% Makes Count calls at once and returns their results.
at_once(Count, Call) ->
    Result = fun() -> try Call() catch exit:Reason -> {exit, Reason} end end,
    weir_kit:in_parallel(lists:duplicate(Count, Result)).

sum(Key, #{nodes := Nodes}) -> lists:sum([maps:get(Key, Node) || Node <- Nodes]).

%% A key of that node.
key(One, Node) ->
    do(One, fun() ->
        hd([Key || Key <- lists:seq(1, 10_000), {ok, [Owner]} <- [weir_cluster:owners(p, Key, 1)], Owner =:= Node])
    end).

local_first(_Config) ->
    with(2, fun([A | _]) ->
        Answers = do(A, fun() -> [weir_cluster:call(p, node, wait_ms()) || _ <- lists:seq(1, 1000)] end),
        ?assertEqual([{ok, name(A)}], lists:usort(Answers)),
        ?assertMatch(#{spilled := 0, retried := 0}, info(A)),
        ?assertEqual(0, sum(requests, info(A)))
    end).

%% Two workers on each of three nodes, and room for two calls each: four calls here, and elsewhere evenly, since who has
%% no room refuses; two intakes may begin one at the same moment. What is known of loads is an estimate, and on a busy
%% machine nothing for a while: a call that takes all others for full stays here. So it is tried until all was known.
spills(_Config) ->
    until(fun() -> with(3, fun spills_evenly/1) end).

spills_evenly([A | _] = Cluster) ->
    Calls = fun() -> do(A, fun() -> at_once(12, fun() -> weir_cluster:call(p, until_told, wait_ms()) end) end) end,
    %% None is answered before all are under way.
    Tell = fun() ->
        UnderWay = fun(One) -> {ok, #{calls := N}} = call(One, weir_pool, info, [p]), N end,
        until(fun() -> 12 =:= lists:sum([UnderWay(One) || One <- Cluster]) end),
        spawn(fun() -> weir_cluster_test_lib:keep_telling(Cluster) end)
    end,
    [Answers, Teller] = weir_kit:in_parallel([Calls, Tell]),
    true = exit(Teller, kill),
    [OfA | Others] = [length([x || {ok, Node} <- Answers, Node =:= name(One)]) || One <- Cluster],
    ?assertEqual(12, lists:sum([OfA | Others]), Answers),
    #{spilled := Spilled, retried := Retried, overloads := Overloads} = info(A),
    ?assertEqual(0, Overloads),
    ?assertEqual(lists:sum(Others), lists:sum([N || One <- tl(Cluster), #{served := N} <- [info(One)]])),
    Refused = lists:sum([N || One <- tl(Cluster), #{refused := N} <- [info(One)]]),
    ct:log("here and elsewhere ~w, spilled ~b, retried ~b, refused ~b", [[OfA | Others], Spilled, Retried, Refused]),
    {OfA, Spilled, Retried} =:= {4, 8, Refused} andalso lists:max(Others) - lists:min(Others) =< 2.

room_is_infinite(_Config) ->
    with(2, #{cluster => #{room => infinity}}, fun([A | _]) ->
        Answers = do(A, fun() -> at_once(20, fun() -> weir_cluster:call(p, {sleep, 10}, wait_ms()) end) end),
        ?assertEqual([{ok, name(A)}], lists:usort(Answers)),
        ?assertMatch(#{spilled := 0}, info(A))
    end).

%% A node without workers.
clients(_Config) ->
    with(2, fun([A, B] = Servers) ->
        Client = weir_cluster_test_lib:start(#{pool => #{size => 0}, cluster => #{serve => false}}),
        try
            ?assertEqual({error, no_worker}, call(Client, weir_cluster, call, [p, node])),
            ?assertEqual({ok, []}, call(Client, weir_cluster, multicall, [p, node])),
            ?assertEqual({ok, []}, call(Client, weir_cluster, owners, [p, key, 2])),
            ok = connect([Client | Servers]),
            ok = know([Client], 2),
            Both = lists:sort([{ok, name(A)}, {ok, name(B)}]),
            weir_cluster_test_lib:answered_by(Both, Client, 100),
            ?assertEqual([name(B)], [Node || #{node := Node} <- maps:get(nodes, info(A))]),
            ByName = lists:sort([name(A), name(B)]),
            ?assertEqual(ByName, [Node || #{node := Node} <- maps:get(nodes, info(Client))]),
            ?assertMatch(#{spilled := 0}, info(Client)),
            [?assert(is_number(Ms) andalso Ms >= 0) || #{round_trip_ms := Ms} <- maps:get(nodes, info(Client))],
            %% Each is told what it was sent, and forgets who is not connected.
            Received = fun(One) -> maps:get(name(Client), maps:get(received, info(One)), none) end,
            Told = fun() -> [{name(One), Received(One)} || One <- Servers] end,
            Sent = fun() -> [{Node, N} || #{node := Node, requests := N} <- maps:get(nodes, info(Client))] end,
            until(fun() -> lists:sort(Told()) =:= Sent() end),
            stop([Client]),
            until(fun() -> [N || {_, N} <- Told()] =:= [none, none] end)
        after
            stop([Client])
        end
    end).

keys_agree(_Config) ->
    with(3, fun(Cluster) ->
        Owners = fun() -> [weir_cluster:owners(p, Key, 3) || Key <- lists:seq(1, 300)] end,
        [Lines, Lines, Lines] = [do(One, Owners) || One <- Cluster],
        Called = fun() -> [weir_cluster:call_key(p, Key, node, wait_ms()) || Key <- lists:seq(1, 300)] end,
        ?assertEqual([[{ok, hd(Line)} || {ok, Line} <- Lines] || _ <- Cluster],
            steady(Cluster, 2, fun() -> [do(One, Called) || One <- Cluster] end)),
        [?assertEqual(3, length(lists:usort(Line))) || {ok, Line} <- Lines]
    end).

keys_of_one_who_goes(_Config) ->
    with(3, fun([A, B, C]) ->
        Owners = fun() -> [Node || Key <- lists:seq(1, 1000), {ok, [Node]} <- [weir_cluster:owners(p, Key, 1)]] end,
        Call = fun(Key) -> weir_cluster:call_key(p, Key, node, wait_ms()) end,
        Called = fun() -> [Node || Key <- lists:seq(1, 1000), {ok, Node} <- [Call(Key)]] end,
        Before = do(A, Owners),
        ok = call(C, weir_cluster, leave, [p]),
        ok = know([A, B], 1),
        After = do(A, Owners),
        ?assertEqual(After, steady([B], 1, fun() -> do(B, Called) end)),
        ?assertEqual([name(C)], lists:usort([Was || {Was, Is} <- lists:zip(Before, After), Was =/= Is])),
        ok = call(C, weir_cluster, stop, [p]),
        ok = call(C, weir_cluster, start, [p, #{}]),
        ok = know([A, B], 2),
        ?assertEqual(Before, steady([A], 2, fun() -> do(A, Called) end))
    end).

%% A pool that grows gets more keys.
weights(_Config) ->
    with(2, fun([A, B]) ->
        ok = call(B, weir_pool, resize, [p, 18]),
        until(fun() -> [18] =:= [W || #{weight := W} <- maps:get(nodes, info(A))] end),
        Owners = do(A, fun() ->
            [Node || Key <- lists:seq(1, 2000), {ok, [Node]} <- [weir_cluster:owners(p, Key, 1)]]
        end),
        Share = length([x || Node <- Owners, Node =:= name(B)]) / 2000,
        ?assert(Share > 0.85 andalso Share < 0.95, Share)
    end).

casts(_Config) ->
    with(2, fun([A, B]) ->
        Told = fun(Cast) -> Cast(self()), receive {told, Node} -> Node end end,
        ?assertEqual(name(A), do(A, fun() -> Told(fun(Me) -> ok = weir_cluster:cast(p, {tell, Me, told}) end) end)),
        Key = key(A, name(B)),
        ByKey = fun(Me) -> ok = weir_cluster:cast_key(p, Key, {tell, Me, told}) end,
        steady([A], 1, fun() ->
            ?assertEqual(name(B), do(A, fun() -> Told(ByKey) end)),
            ok = call(A, weir_pool, stop, [p]),
            ?assertEqual(name(B), do(A, fun() -> Told(fun(Me) -> ok = weir_cluster:cast(p, {tell, Me, told}) end) end))
        end),
        until(fun() -> maps:get(casts, info(B)) =:= 2 end)
    end).

%% Each node answers for itself.
multicalls(_Config) ->
    with(3, fun([A, B, C]) ->
        All = [{name(One), {ok, name(One)}} || One <- [A, B, C]],
        {ok, Answers} = steady([A], 2, fun() -> call(A, weir_cluster, multicall, [p, node, wait_ms()]) end),
        ?assertEqual(lists:sort(All), lists:sort(Answers)),
        %% Both workers of C are in the middle of something.
        _ = do(C, fun() ->
            {ok, Workers} = weir_pool:workers(p),
            [gen_server:send_request(Pid, stuck) || {_, Pid} <- Workers]
        end),
        %% The others have answered in that time, when they had a turn in it.
        Some = lists:sort([{name(C), {error, timeout}} | lists:droplast(All)]),
        until(fun() ->
            {ok, Partial} = call(A, weir_cluster, multicall, [p, node, 1000]),
            ?assertNotMatch({ok, _}, proplists:get_value(name(C), Partial)),
            lists:sort(Partial) =:= Some
        end),
        {{ok, Late}, 0} = do(A, fun() ->
            Result = weir_cluster:multicall(p, node, 0),
            {Result, element(2, process_info(self(), message_queue_len))}
        end),
        ?assertEqual(3, length(Late))
    end).

requests(_Config) ->
    with(2, fun([A, B]) ->
        ?assertEqual({reply, name(A)}, do(A, fun() ->
            weir_cluster:receive_response(weir_cluster:send_request(p, node), wait_ms())
        end)),
        ok = call(A, weir_pool, stop, [p]),
        Ids = fun(Request, Count) -> [weir_cluster:send_request(p, Request, wait_ms()) || _ <- lists:seq(1, Count)] end,
        steady([A], 1, fun() ->
            ?assertEqual([{reply, name(B)}], lists:usort(do(A, fun() ->
                [weir_cluster:receive_response(Id, wait_ms()) || Id <- Ids(node, 100)]
            end))),
            ?assertEqual({error, asked_to}, do(A, fun() ->
                weir_cluster:receive_response(hd(Ids(die, 1)), wait_ms())
            end)),
            weir_cluster_test_lib:all_live(B),
            Node = name(B),
            ?assertEqual({timeout, {message_queue_len, 0}}, do(A, fun() ->
                Result = weir_cluster:receive_response(hd(Ids({once, late, until_told}, 1)), 10),
                Teller = spawn(Node, weir_cluster_test_lib, tell_all, []),
                until(fun() -> erpc:call(Node, weir_cluster_test_lib, have_answered, []) end),
                true = exit(Teller, kill),
                %% What has come before reached nobody.
                {Result, process_info(self(), message_queue_len)}
            end)),
            %% Who only looks says nothing of the node.
            ?assertEqual([timeout], lists:usort(do(A, fun() ->
                [weir_cluster:receive_response(Id, 0) || Id <- Ids(stuck, 10)]
            end)))
        end),
        %% One that got no turn for long is given less for a while.
        until(fun() -> #{nodes := [#{share := Share}]} = info(A), Share =:= 1.0 end),
        ?assertMatch(#{nodes := [#{timeouts := 1}]}, info(A)),
        ?assertEqual({error, no_pool}, do(A, fun() ->
            weir_cluster:receive_response(weir_cluster:send_request(unknown, node), wait_ms())
        end))
    end).

a_worker_dies(_Config) ->
    with(2, fun([A, B]) ->
        Key = key(A, name(B)),
        Args = [p, Key, die, wait_ms()],
        steady([A], 1, fun() ->
            ?assertEqual({exit, {asked_to, {weir_cluster, call_key, Args}}}, do(A, fun() ->
                try apply(weir_cluster, call_key, Args) catch exit:Reason -> {exit, Reason} end
            end)),
            weir_cluster_test_lib:all_live(B),
            ?assertEqual({ok, name(B)}, call(A, weir_cluster, call_key, [p, Key, node, wait_ms()]))
        end)
    end).

%% Within the time, and nothing is left in the mailbox.
time_is_over(_Config) ->
    with(2, fun([A, B]) ->
        Key = key(A, name(B)),
        Args = [p, Key, until_told, 1000],
        Node = name(B),
        ?assertEqual({{timeout, {weir_cluster, call_key, Args}}, {message_queue_len, 0}}, steady([A], 1, fun() ->
            do(A, fun() ->
                Result = try apply(weir_cluster, call_key, Args) catch exit:Reason -> Reason end,
                Teller = spawn(Node, weir_cluster_test_lib, tell_all, []),
                %% The same worker, which has answered by then.
                {ok, Node} = weir_cluster:call_key(p, Key, node, wait_ms()),
                true = exit(Teller, kill),
                {Result, process_info(self(), message_queue_len)}
            end)
        end)),
        ?assertEqual({2, 1, 0}, {sum(requests, info(A)), sum(timeouts, info(A)), sum(failed, info(A))})
    end).

%% What came in time, here or from another node, and had its turn when its time was over, is given to no worker.
late_turns(_Config) ->
    with(1, fun([A]) ->
        Begun = do(A, fun() ->
            Conf = weir_cluster_view:conf(p),
            Over = erlang:monotonic_time(millisecond),
            [
                begin
                    weir_cluster_intake:proxy(alias(), {call, Key, {once, Key, 0}}, Over, Conf),
                    {exit, timeout} = weir_cluster_call:call(Conf, Key, {once, Key, 0}, Over, false, Tried)
                end
             || {Key, Tried} <- [{none, [{node(), busy}]}, {{key, 1}, []}]
            ],
            %% Whatever they had been given is done by then.
            {ok, Workers} = weir_pool:workers(p),
            _ = [gen_server:call(Pid, node, infinity) || {_, Pid} <- Workers],
            ets:tab2list(weir_cluster_test_begun)
        end),
        ?assertEqual([], Begun),
        ?assertMatch(#{expired := 2}, info(A))
    end).

%% What is under way is finished, and nothing is begun after.
leaves(_Config) ->
    with(2, fun([A, B]) ->
        Key = key(A, name(B)),
        ok = steady([A], 1, fun() ->
            ok = do(A, fun() ->
                Call = fun(N) ->
                    Result = weir_cluster:call_key(p, Key, until_told, wait_ms()),
                    ets:insert(weir_cluster_test_begun, {{result, N}, Result})
                end,
                _ = [spawn(fun() -> Call(N) end) || N <- lists:seq(1, 4)],
                ok
            end),
            until(fun() -> maps:get(served, info(B)) =:= 4 end)
        end),
        ?assertMatch({error, {timeout, 4}}, call(B, weir_cluster, leave, [p, 0])),
        Teller = spawn_link(fun() -> weir_cluster_test_lib:keep_telling([B]) end),
        ?assertEqual(ok, call(B, weir_cluster, leave, [p])),
        true = unlink(Teller),
        true = exit(Teller, kill),
        ?assertEqual({ok, name(A)}, call(A, weir_cluster, call_key, [p, Key, node])),
        until(fun() ->
            Results = call(A, ets, tab2list, [weir_cluster_test_begun]),
            length(Results) =:= 4 andalso [{ok, name(B)}] =:= lists:usort([Result || {_, Result} <- Results])
        end),
        %% Who has left is told of the next one, also when pg has long known that it does not serve.
        until(fun() -> [] =:= [Pid || Pid <- call(A, pg, get_members, [weir_cluster, {serve, p}]),
            node(Pid) =:= name(B)] end),
        ?assertMatch(#{nodes := [_]}, info(B)),
        %% When all have left, each has its own workers still.
        ?assertEqual(ok, call(A, weir_cluster, leave, [p])),
        ?assertMatch(#{nodes := []}, info(B)),
        lists:foreach(fun(One) ->
            ?assertEqual({ok, name(One)}, call(One, weir_cluster, call, [p, node])),
            ?assertEqual({ok, name(One)}, call(One, weir_cluster, call_key, [p, Key, node])),
            {ok, Worker} = call(One, weir_cluster, pick, [p, Key]),
            ?assertEqual(name(One), node(Worker)),
            ?assertEqual(name(One), do(One, fun() ->
                ok = weir_cluster:cast_key(p, Key, {tell, self(), told}),
                receive {told, Node} -> Node end
            end)),
            ok = call(One, weir_pool, stop, [p]),
            ?assertEqual({error, no_worker}, call(One, weir_cluster, call_key, [p, Key, node]))
        end, [A, B])
    end).

%% A name may be any term, and no pool is taken for another one, or for the clients of another one.
names(_Config) ->
    with_client(2, fun([Client | [A, B] = Servers]) ->
        Names = [<<"name">>, "name", '_', '$1', {'$1', '_'}, 1, 1.0, [], #{p => 1}, {client, p}, {serve, p},
            {weir_cluster_member, client, p}],
        Pool = #{size => 3, strategy => least_loaded, worker => {weir_cluster_test_worker, start_link, []}},
        Publish = fun() ->
            [begin ok = weir_pool:start(Name, Pool), ok = weir_cluster:start(Name, []) end || Name <- Names]
        end,
        _ = [do(One, Publish) || One <- Servers],
        Seen = fun(Name) ->
            {ok, #{nodes := Nodes}} = weir_cluster:info(Name),
            [{Node, Weight} || #{node := Node, weight := Weight} <- Nodes]
        end,
        until(fun() ->
            [[{name(B), 3}]] =:= lists:usort(do(A, fun() -> lists:map(Seen, Names) end))
        end),
        %% Until all have been heard of.
        until(fun() ->
            Answers = do(A, fun() -> [weir_cluster:multicall(Name, node, wait_ms()) || Name <- Names] end),
            [{ok, [{name(One), {ok, name(One)}} || One <- Servers]}] =:= lists:usort(Answers)
        end),
        ?assertEqual([{name(B), 2}], do(A, fun() -> Seen(p) end)),
        ?assertEqual(lists:sort([{name(One), 2} || One <- Servers]), do(Client, fun() -> Seen(p) end)),
        _ = [ok = call(A, weir_cluster, stop, [Name]) || Name <- Names],
        ?assertEqual([p], call(A, weir_cluster, pools, [])),
        ?assertEqual([{name(B), 2}], do(A, fun() -> Seen(p) end))
    end).

%% Who has many messages does not look at them when it waits for an answer: each would be a reduction.
long_mailboxes(_Config) ->
    with(2, fun([A, B]) ->
        Key = key(A, name(B)),
        Messages = 100_000,
        Calls = fun() ->
            %% They are no work for the collector, which counts as reductions, too.
            _ = [self() ! N || N <- lists:seq(1, Messages)],
            [
                begin
                    {reductions, Before} = process_info(self(), reductions),
                    {ok, _} = Call(),
                    {reductions, After} = process_info(self(), reductions),
                    After - Before
                end
             || Call <- [
                    fun() -> weir_cluster:call_key(p, Key, node, wait_ms()) end,
                    fun() -> weir_cluster:pick(p, Key) end
                ]
            ]
        end,
        ?assertEqual([], [Reductions || Reductions <- do(A, Calls), Reductions > Messages div 2])
    end).

%% All nodes are restarted under load, one after the other, and no request fails.
rolling_restart(_Config) ->
    with(3, fun(Cluster) ->
        ok = lists:foreach(fun(One) -> do(One, fun load/0) end, Cluster),
        lists:foreach(fun(One) ->
            ok = call(One, weir_cluster, leave, [p]),
            ok = call(One, weir_cluster, stop, [p]),
            ok = call(One, weir_pool, drain, [p, wait_ms()]),
            ok = call(One, application, stop, [weir_cluster]),
            ok = call(One, application, start, [weir_cluster]),
            ok = call(One, weir_pool, start, [p, #{size => 2, strategy => least_loaded,
                worker => {weir_cluster_test_worker, start_link, []}}]),
            ok = call(One, weir_cluster, start, [p, #{}]),
            ok = know(Cluster, 2)
        end, Cluster),
        lists:foreach(fun loaded/1, Cluster)
    end).

%% One node after the other leaves and is stopped when another has come for it, under load: no request fails.
nodes_are_replaced(_Config) ->
    with(1, #{pool => #{size => 0}, cluster => #{serve => false}}, fun([Client]) ->
        with(2, fun(Former) ->
            with(2, fun(Next) ->
                ok = connect([Client | Former]),
                ok = know([Client], 2),
                ok = do(Client, fun load/0),
                lists:foreach(fun({Old, New}) ->
                    ok = connect([Client, New]),
                    ok = know([Client], 3),
                    ok = call(Old, weir_cluster, leave, [p]),
                    ok = call(Old, init, stop, []),
                    until(fun() -> not lists:member(name(Old), call(Client, erlang, nodes, [])) end)
                end, lists:zip(Former, Next)),
                ok = loaded(Client)
            end)
        end)
    end).

%% Eight call by key until they are told to stop: so the calls of a node that has no pool go on elsewhere.
load() ->
    Me = self(),
    spawn(fun() ->
        true = register(loader, self()),
        Callers = [spawn_link(fun() -> load(1000 * N, 0, []) end) || N <- lists:seq(1, 8)],
        Me ! loading,
        From = receive {stop, Asker} -> Asker end,
        _ = [Caller ! {stop, self()} || Caller <- Callers],
        {Done, Failed} = lists:unzip([receive {Caller, Result} -> Result end || Caller <- Callers]),
        From ! {stopped, {lists:sum(Done), lists:append(Failed)}}
    end),
    receive loading -> ok end.

%% All were done.
loaded(One) ->
    {Done, Failed} = do(One, fun() ->
        loader ! {stop, self()},
        receive {stopped, Results} -> Results end
    end),
    ok = weir_kit:none(lost, [Each || Each <- Failed, not is_late(Each)]),
    ?assertEqual([], Failed),
    ?assert(Done > 100).

%% On a machine that is too busy a call may take longer than its time.
is_late({timeout, _Call}) -> true;
is_late(_) -> false.

load(Key, Done, Failed) ->
    receive
        {stop, From} -> From ! {self(), {Done, Failed}}
    after 0 ->
        try weir_cluster:call_key(p, Key, node, wait_ms()) of
            {ok, _} -> load(Key + 1, Done + 1, Failed);
            %% Between stop and start nothing is published on this node.
            {error, no_pool} -> load(Key, Done, Failed);
            Error -> load(Key, Done, [Error | Failed])
        catch
            exit:Reason -> load(Key, Done, [Reason | Failed])
        end
    end.

zones(_Config) ->
    with(3, fun([A, B, C]) ->
        lists:foreach(fun({One, Opts}) ->
            ok = call(One, weir_cluster, stop, [p]),
            ok = call(One, weir_cluster, start, [p, Opts])
        end, [{A, #{zone => east, serve => false}}, {B, #{zone => east}}, {C, #{zone => west}}]),
        ok = call(A, weir_pool, stop, [p]),
        %% As they are now, and not as they were before.
        Now = lists:sort([{name(B), east, 1.0}, {name(C), west, 1.0}]),
        until(fun() ->
            Now =:= lists:sort([{Node, Zone, Share} || #{node := Node, zone := Zone, share := Share}
                <- maps:get(nodes, info(A))])
        end),
        Answers = steady([A], 2, fun() ->
            do(A, fun() -> [weir_cluster:call(p, node, wait_ms()) || _ <- lists:seq(1, 100)] end)
        end),
        ?assertEqual([{ok, name(B)}], lists:usort(Answers)),
        ok = call(B, weir_cluster, leave, [p]),
        ?assertEqual({ok, name(C)}, steady([A], 1, fun() -> call(A, weir_cluster, call, [p, node, wait_ms()]) end))
    end).

%% The policy of this module: the last by name, or one that was not asked for.
choose(_Here, Candidates) ->
    case persistent_term:get(?MODULE, none) of
        none -> lists:max([Node || #{node := Node} <- Candidates]);
        Other -> Other
    end.

policies(_Config) ->
    Client = #{pool => #{size => 0}, cluster => #{serve => false, policy => ?MODULE}},
    with(2, fun(Servers) ->
        One = weir_cluster_test_lib:start(Client),
        try
            ok = connect([One | Servers]),
            Answers = steady([One], 2, fun() ->
                do(One, fun() -> [weir_cluster:call(p, node, wait_ms()) || _ <- lists:seq(1, 50)] end)
            end),
            Count = fun(Server) -> length([x || {ok, Node} <- Answers, Node =:= name(Server)]) end,
            [First, Last] = lists:sort(fun(X, Y) -> name(X) < name(Y) end, Servers),
            %% Six draws nearly always find two.
            ?assert(Count(Last) > 40, {Count(First), Count(Last)}),
            %% One that returns what is no candidate is named.
            ?assertEqual({bad_choice, ?MODULE, nowhere}, do(One, fun() ->
                ok = persistent_term:put(?MODULE, nowhere),
                try weir_cluster:call(p, node) catch error:Reason -> Reason end
            end))
        after
            stop([One])
        end
    end).

%% Here is room for none more, and elsewhere as little: the requests stay.
no_room_anywhere(_Config) ->
    with(2, #{cluster => #{room => 1}, pool => #{size => 1}}, fun([A, B]) ->
        Answers = steady([A], 1, fun() ->
            do(A, fun() -> at_once(20, fun() -> weir_cluster:call(p, {sleep, 20}, wait_ms()) end) end)
        end),
        ?assertEqual([ok], lists:usort([element(1, Answer) || Answer <- Answers])),
        ?assertEqual(lists:sort([name(A), name(B)]), lists:usort([Node || {ok, Node} <- Answers]))
    end).

%% A node refuses what is too much for it, and says so.
most_calls(_Config) ->
    with_client(1, #{cluster => #{max_calls => 3}, pool => #{size => 4}}, fun([Client, Server]) ->
        Node = name(Server),
        Answers = steady([Client], 1, fun() ->
            %% However they came in, to one of its two intakes or to both.
            Begun = do(Client, fun() ->
                [weir_cluster:send_request(p, until_told, wait_ms()) || _ <- [1, 2, 3]]
            end),
            until(fun() -> maps:get(served, info(Server)) =:= 3 end),
            3 = length(Begun),
            do(Client, fun() -> at_once(50, fun() -> weir_cluster:call(p, node, wait_ms()) end) end)
        end),
        Overload = #{pool => p, tried => [{name(Client), no_pool}, {Node, busy}]},
        ?assertEqual([{error, {overload, Overload}}], lists:usort(Answers)),
        ?assertEqual(50, maps:get(refused, info(Server))),
        ?assertEqual(50, maps:get(overloads, info(Client)))
    end).

picks(_Config) ->
    with(2, fun([A, B]) ->
        Node = fun({ok, Pid}) -> node(Pid) end,
        ?assertEqual(name(A), do(A, fun() -> Node(weir_cluster:pick(p)) end)),
        Key = key(A, name(B)),
        %% Of keys nobody has a worker either, whether this node is the next in line still or not any more.
        NoWorker = fun() ->
            [?assertEqual({error, no_worker}, call(A, weir_cluster, Function, [p | Args]))
                || {Function, Args} <- [{pick, []}, {pick, [Key]}, {call_key, [Key, node]}]]
        end,
        steady([A], 1, fun() ->
            ?assertEqual(name(B), do(A, fun() -> Node(weir_cluster:pick(p, Key)) end)),
            {ok, Worker} = call(A, weir_cluster, pick, [p, Key]),
            ?assertEqual({ok, Worker}, call(B, weir_pool, pick, [p, Key])),
            ok = call(A, weir_pool, stop, [p]),
            ?assertEqual(name(B), do(A, fun() -> Node(weir_cluster:pick(p)) end)),
            ok = call(B, weir_pool, stop, [p]),
            NoWorker()
        end),
        until(fun() -> maps:get(nodes, info(A)) =:= [] end),
        NoWorker()
    end).

%% Claims until it is told, and says of whom.
claimer() ->
    Me = self(),
    Claimer = spawn(fun() ->
        Me ! {self(), weir_cluster_test_lib:claim(fun(Worker) ->
            Me ! {self(), {has, Worker}},
            receive release -> released; {do, Fun} -> Fun(Worker) end
        end)}
    end),
    receive {Claimer, Told} -> {Claimer, Told} end.

released({Claimer, {has, _}}) ->
    Claimer ! release,
    receive {Claimer, Result} -> Result end.

all_free(Cluster) ->
    until(fun() ->
        lists:all(fun(One) ->
            {ok, #{claimed := Claimed, reserved := Reserved, live := Live}} = call(One, weir_pool, info, [p]),
            {Claimed, Reserved, Live} =:= {0, 0, 2}
        end, Cluster)
    end).

claims_here_first(_Config) ->
    with(2, fun([A, B] = Cluster) ->
        {Nodes, Busy, Results, Left} = do(A, fun() ->
            Claims = [claimer() || _ <- lists:seq(1, 4)],
            Refused = {weir_cluster:claim(p, fun(_) -> error(not_free) end, 0),
                weir_cluster:claim(p, fun(_) -> error(not_free) end, 200)},
            {[node(Worker) || {_, {has, Worker}} <- Claims], Refused, [released(Claim) || Claim <- Claims],
                process_info(self(), message_queue_len)}
        end),
        ?assertEqual([name(A), name(A), name(B), name(B)], Nodes),
        ?assertEqual({{error, busy}, {error, timeout}}, Busy),
        ?assertEqual([{ok, released}], lists:usort(Results)),
        ?assertEqual({message_queue_len, 0}, Left),
        all_free(Cluster)
    end).

%% Who has waited is told so, however late he has his turn.
late_claims(_Config) ->
    with(1, fun([A]) ->
        ?assertEqual({{error, timeout}, timeout}, do(A, fun() ->
            _ = [claimer() || _ <- lists:seq(1, 2)],
            Over = erlang:monotonic_time(millisecond),
            Conf = weir_cluster_view:conf(p),
            Here = weir_cluster_call:claim(Conf, fun(_) -> error(not_free) end, Over, [{node(), busy}]),
            %% And so is one of another node.
            Alias = alias(),
            _ = spawn(weir_cluster_claim, holder, [Alias, {self(), wait}, Over, Conf]),
            {Here, receive {Alias, not_begun, Why, _} -> Why end}
        end))
    end).

%% Callers on both nodes claim workers. Two callers never have the same worker at a time.
claims_are_exclusive(_Config) ->
    with(2, fun([A | _] = Cluster) ->
        Claim = fun(Worker) ->
            Node = node(Worker),
            Count = fun(Add) ->
                erpc:call(Node, ets, update_counter, [weir_cluster_test_begun, Worker, Add, {Worker, 0}])
            end,
            ok = weir_kit:same(claimers, 1, Count(1)),
            %% Gives another caller time to claim the same worker.
            receive after 1 -> ok end,
            ok = weir_kit:same(claimers, 0, Count(-1)),
            Node
        end,
        Again = fun() -> [weir_cluster:claim(p, Claim, wait_ms()) || _ <- lists:seq(1, 20)] end,
        Results = lists:append([do(One, fun() -> at_once(20, Again) end) || One <- Cluster]),
        ?assertEqual(lists:sort([{ok, name(One)} || One <- Cluster]), lists:usort(lists:append(Results))),
        ?assert(maps:get(spilled, info(A)) > 0),
        all_free(Cluster)
    end).

%% A client waits on another node. Whoever is given up gets nothing later.
claims_wait(_Config) ->
    with_client(1, fun([Client, Server]) ->
        Told = steady([Client], 1, fun() -> do(Client, fun() ->
            [One, Two] = [claimer() || _ <- lists:seq(1, 2)],
            {error, timeout} = weir_cluster:claim(p, fun(_) -> error(not_free) end, 200),
            Me = self(),
            Waiting = spawn(fun() -> Me ! {waited, weir_cluster:claim(p, fun node/1, wait_ms())} end),
            %% It waits there, and no longer for nothing.
            {ok, released} = released(One),
            {waited, Got} = receive {waited, _} = Answer -> Answer end,
            {ok, released} = released(Two),
            {Waiting =/= none, Got, process_info(self(), message_queue_len)}
        end) end),
        ?assertEqual({true, {ok, name(Server)}, {message_queue_len, 0}}, Told),
        all_free([Server])
    end).

%% What the function raises passes through, and the worker is free, unless it is busy.
claims_that_fail(_Config) ->
    with(2, fun([A, B] = Cluster) ->
        ok = do(A, fun() ->
            Here = [claimer() || _ <- lists:seq(1, 2)],
            oops = try weir_cluster_test_lib:claim(fun(_) -> error(oops) end) catch error:Error -> Error end,
            thrown = try weir_cluster_test_lib:claim(fun(_) -> throw(thrown) end) catch throw:Thrown -> Thrown end,
            {timeout, _} = try
                weir_cluster_test_lib:claim(fun(Worker) -> gen_server:call(Worker, until_told, 10) end)
            catch
                exit:Exit -> Exit
            end,
            _ = [{ok, released} = released(Claim) || Claim <- Here],
            ok
        end),
        until(fun() ->
            {ok, #{abandoned := Abandoned}} = call(B, weir_pool, info, [p]),
            Abandoned =:= 1
        end),
        all_free(Cluster)
    end).

wrong_options(_Config) ->
    {ok, _} = application:ensure_all_started(weir_cluster),
    [
        ?assertEqual({error, {bad_option, Key, Value}}, weir_cluster:start(p, #{Key => Value}))
     || {Key, Values} <- [
            {serve, [yes]}, {room, [0, -1, 1.5, atom]}, {window, [15, infinity]}, {max_calls, [0, infinity]},
            {weight, [0, none]}, {policy, [nowhere_to_be_found, lists, 1]}, {shutdown, [-1, brutal_kill]}, {rom, [2]}
        ],
        Value <- Values
    ],
    ?assertEqual({error, {bad_option, rom, 2}}, weir_cluster:start_link(p, [{rom, 2}])),
    ?assertError(badarg, weir_cluster:start(p, nothing)),
    [
        begin
            ok = weir_cluster:start(p, Opts),
            ok = weir_cluster:stop(p)
        end
     || Opts <- [[{room, 1}], [{window, 16}], #{max_calls => 1}, [{shutdown, 0}], [{shutdown, infinity}], [{weight, 1}]]
    ],
    application:stop(weir_cluster).

%% What the shell says names the argument.
wrong_arguments(_Config) ->
    {ok, _} = application:ensure_all_started(weir_cluster),
    Wrong = [
        {call, [p, node, -1], 3}, {call, [p, node, 1.5], 3}, {call, [p, node, #{timeout => x}], 3},
        {call, [p, node, [{tmeout, 1}]], 3}, {call_key, [p, key, node, forever], 4}, {multicall, [p, node, -1], 3},
        {send_request, [p, node, -1], 3}, {owners, [p, key, 0], 3}, {leave, [p, x], 2}, {claim, [p, node, 1], 2},
        {claim, [p, fun node/1, x], 3}
    ],
    [
        try apply(weir_cluster, Function, Args) of
            Result -> ?assertEqual(badarg, Result)
        catch
            error:badarg:Stack ->
                Told = weir_cluster_opts:format_error(badarg, Stack),
                ?assertEqual([Number], maps:keys(Told)),
                ?assertMatch([_, _ | _], lists:flatten(maps:get(Number, Told)))
        end
     || {Function, Args, Number} <- Wrong
    ],
    [?assertEqual({error, no_pool}, apply(weir_cluster, Function, Args)) || {Function, Args} <- [
        {call, [p, node]}, {call, [p, node, #{}]}, {call, [p, node, [{idempotent, true}]]}, {call_key, [p, key, node]},
        {cast, [p, node]}, {cast_key, [p, key, node]}, {multicall, [p, node]}, {owners, [p, key, 1]}, {info, [p]},
        {leave, [p]}, {stop, [p]}, {pick, [p]}, {pick, [p, key]}, {claim, [p, fun node/1]}
    ]],
    application:stop(weir_cluster).

%% Once for each name, again and again, and nothing is left.
starts_and_stops(_Config) ->
    {ok, _} = application:ensure_all_started(weir_cluster),
    ok = weir_cluster:start(p, #{}),
    ?assertMatch({error, {already_started, _}}, weir_cluster:start(p, #{})),
    ?assertMatch({error, {already_started, _}}, weir_cluster:start_link(p, #{})),
    ok = weir_cluster:start(1, #{}),
    ok = weir_cluster:start(1.0, #{serve => false}),
    {ok, _} = weir_cluster:info(1),
    ok = weir_cluster:stop(1),
    {ok, _} = weir_cluster:info(1.0),
    ok = weir_cluster:stop(1.0),
    ok = weir_cluster:stop(p),
    ?assertEqual({error, no_pool}, weir_cluster:stop(p)),
    Terms = fun() -> length([Key || {{weir_cluster, _} = Key, _} <- persistent_term:get()]) end,
    Before = {Terms(), ets:info(weir_cluster_views, size), erlang:system_info(process_count)},
    [begin ok = weir_cluster:start(p, #{}), ok = weir_cluster:stop(p) end || _ <- lists:seq(1, 100)],
    until(fun() ->
        {Terms(), ets:info(weir_cluster_views, size), erlang:system_info(process_count)} =< Before
    end),
    %% A supervisor of its own that is killed leaves nothing in the way.
    {Pid, Monitor} = spawn_monitor(fun() -> {ok, _} = weir_cluster:start_link(p, #{}), receive never -> ok end end),
    until(fun() -> weir_cluster:info(p) =/= {error, no_pool} end),
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, killed} -> ok end,
    until(fun() -> weir_cluster:start(p, #{}) =:= ok end),
    application:stop(weir_cluster).

without_application(_Config) ->
    _ = application:stop(weir_cluster),
    ?assertEqual({error, {not_started, weir_cluster}}, weir_cluster:start(p, #{})),
    process_flag(trap_exit, true),
    ?assertEqual({error, {not_started, weir_cluster}}, weir_cluster:start_link(p, #{})),
    ?assertEqual({error, no_pool}, weir_cluster:call(p, node)),
    ?assertEqual({error, no_pool}, weir_cluster:info(p)).

%% The pool may come later, and go before.
pool_comes_and_goes(_Config) ->
    with(2, fun([A, B]) ->
        ok = call(B, weir_pool, stop, [p]),
        until(fun() -> maps:get(nodes, info(A)) =:= [] end),
        ?assertEqual({ok, name(A)}, steady([B], 1, fun() -> call(B, weir_cluster, call, [p, node, wait_ms()]) end)),
        ok = call(B, weir_pool, start, [p, #{size => 1, worker => {weir_cluster_test_worker, start_link, []}}]),
        ok = know([A], 1),
        ?assertEqual({ok, name(B)}, call(B, weir_cluster, call, [p, node]))
    end).

%% A call that another node could take is refused where all workers have as many as `room' says, and not at one less;
%% and when all are so full, it is begun all the same.
no_room(_Config) ->
    with_client(2, #{pool => #{size => 2}, cluster => #{room => 2}}, fun([Client, A, B]) ->
        Fill = fun(Node, Count) ->
            do(Node, fun() ->
                [spawn(fun() -> weir_pool:call(p, until_told, infinity) end) || _ <- lists:seq(1, Count)]
            end)
        end,
        Load = fun(Node) -> do(Node, fun() -> weir_cluster_here:load(weir_cluster_view:conf(p)) end) end,
        _ = Fill(B, 3),
        until(fun() -> Load(B) =:= 1500 end),
        _ = do(B, fun ask_within/0),
        %% Until the pool counts it too, it may be taken for one of the three when these are measured.
        until(fun() -> {ok, #{calls := Calls}} = call(B, weir_pool, info, [p]), Calls =:= 4 end),
        %% And who was measuring then has done it.
        {ok, Member} = call(B, weir_cluster_view, member, [p]),
        _ = call(B, sys, get_state, [Member, infinity]),
        until(fun() -> Load(B) =:= 2000 end),
        ?assertMatch(#{served := 1, refused := 0}, info(B)),
        ?assertMatch({_, not_begun, no_room, 2000}, do(B, fun() ->
            Alias = ask_within(),
            receive Answer when element(1, Answer) =:= Alias -> Answer end
        end)),
        ?assertMatch(#{served := 1, refused := 1}, info(B)),
        steady([Client], 2, fun() ->
            ?assertEqual([{ok, name(A)}], do(Client, fun() ->
                lists:usort([weir_cluster:call(p, node, wait_ms()) || _ <- lists:seq(1, 50)])
            end)),
            Served = fun() -> lists:sum([maps:get(served, info(One)) || One <- [A, B]]) end,
            ?assertEqual(1 + 50, Served()),
            _ = Fill(A, 4),
            until(fun() -> Load(A) =:= 2000 end),
            _ = do(Client, fun() -> spawn(fun() -> weir_cluster:call(p, node, infinity) end) end),
            until(fun() -> Served() =:= 1 + 50 + 1 end)
        end)
    end).

ask_within() ->
    [Intake | _] = weir_cluster_view:intakes(p),
    Alias = monitor(process, Intake, [{alias, reply_demonitor}]),
    Intake ! {weir_cluster, call_within, none, infinity, {Alias, none, node}},
    Alias.

large_terms(_Config) ->
    with(2, fun([A, B]) ->
        Key = key(A, name(B)),
        ?assert(do(A, fun() ->
            Term = {binary:copy(<<"x">>, 5_000_000), lists:seq(1, 100_000)},
            Echo = fun(_) -> weir_cluster:call_key(p, Key, {echo, Term}, wait_ms()) =:= {ok, Term} end,
            lists:all(Echo, lists:seq(1, 3))
        end))
    end).

%% In a supervisor of the user's, beside the pool.
embedded(_Config) ->
    {ok, _} = application:ensure_all_started(weir_cluster),
    {ok, Supervisor} = weir_cluster_test_tree:start_link(),
    ?assertEqual({ok, node()}, weir_cluster:call(embedded, node)),
    ?assertEqual({ok, node()}, weir_cluster:call_key(embedded, key, node)),
    unlink(Supervisor),
    Monitor = monitor(process, Supervisor),
    exit(Supervisor, shutdown),
    receive {'DOWN', Monitor, process, Supervisor, shutdown} -> ok end,
    ?assertEqual({error, no_pool}, weir_cluster:call(embedded, node)),
    application:stop(weir_cluster).
