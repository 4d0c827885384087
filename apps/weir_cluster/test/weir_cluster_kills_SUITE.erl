%% Processes of weir_cluster that are killed, and workers and callers that die. Workers write down what they begin, and
%% the callers keep what they were told: the two must agree.
-module(weir_cluster_kills_SUITE).
-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_cluster.hrl").

-compile([export_all, nowarn_export_all]).
-import(weir_cluster_test_lib, [with/2, with/3, with_client/2, with_client/3, info/1, begun/1, know/2, call/4,
    do/2, name/1, os/2, steady/3]).
-import(weir_cluster_test_calls, [seen/2, keys/3, result/1, answers/3, begin_there/5, gets/3, claims/2, abandoned/1,
    monitors/0, which_process/1]).
-import(weir_kit, [until/1, wait_ms/0]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_cluster_test_lib:keep_nodes(Config).

end_per_suite(Config) -> weir_cluster_test_lib:end_nodes(Config).

%% Whatever is killed, all know of all again, and what was under way ends.
killed_processes(_Config) ->
    with(2, fun([A, B] = Cluster) ->
        [Key | _] = keys(A, name(B), 1),
        Rows = call(A, ets, info, [weir_cluster_views, size]),
        [
            begin
                Id = {killed, Which},
                Keeper = begin_there(A, B, N, [{Id, Key, 200}], wait_ms()),
                Pid = call(B, weir_cluster_test_calls, which_process, [Which]),
                ?assertEqual(killed, do(B, fun() ->
                    Monitor = monitor(process, Pid),
                    exit(Pid, kill),
                    receive {'DOWN', Monitor, _, _, Reason} -> Reason end
                end)),
                Answer = maps:get(Id, answers(A, Keeper, 1)),
                ?assert(lists:member(element(1, Answer), [ok, exit]), Answer),
                ok = know(Cluster, 1),
                Again = fun() -> weir_cluster:call_key(p, Key, node, wait_ms()) end,
                until(fun() -> do(A, fun() -> result(Again) end) =:= {ok, name(B)} end),
                ok = weir_kit:same(begun, N, lists:sum(maps:values(begun(Cluster))))
            end
         || {N, Which} <- lists:zip([1, 2, 3, 4, 5], [member, intake, cleaner, pool, scope])
        ],
        %% One that was started again has yet to hear of the other, as the first two had.
        until(fun() ->
            [Rows, Rows] =:= [call(One, ets, info, [weir_cluster_views, size]) || One <- Cluster]
        end)
    end).

killed_proxy(_Config) ->
    with(2, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        Keeper = begin_there(A, B, 1, [{1, Key, until_told}], wait_ms()),
        true = do(B, fun() -> exit(which_process(proxy), kill) end),
        ?assertEqual(#{1 => {exit, killed}}, answers(A, Keeper, 1)),
        until(fun() -> call(B, weir_cluster, leave, [p]) =:= ok end)
    end).

%% An intake that fails ends those behind it, which wait for no call: the node serves again while one is under way.
serves_soon(_Config) ->
    with(2, #{cluster => #{shutdown => infinity}}, fun([_A, B] = Cluster) ->
        ?assertEqual(killed, do(B, fun() ->
            [First, Second] = weir_cluster_view:intakes(p),
            Conf = weir_cluster_view:conf(p),
            Alias = monitor(process, Second, [{alias, reply_demonitor}]),
            Second ! {weir_cluster, call, none, infinity, {Alias, none, until_told}},
            until(fun() -> weir_cluster_here:served(Conf) =:= 1 end),
            true = exit(First, kill),
            receive {'DOWN', Alias, process, Second, Reason} -> Reason after wait_ms() -> still_there end
        end)),
        ok = know(Cluster, 1)
    end).

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
        until(fun() -> do(B, fun() -> weir_cluster_here:served(weir_cluster_view:conf(p)) =:= 0 end) end),
        %% The windows are open: of so many callers at a time none is turned away.
        until(fun() ->
            do(A, fun() ->
                [#{full := Before}] = maps:get(nodes, element(2, weir_cluster:info(p))),
                Answers = [weir_cluster:call_key(p, Key, node, wait_ms()) || _ <- lists:seq(1, 40)],
                [#{full := After}] = maps:get(nodes, element(2, weir_cluster:info(p))),
                Before =:= After andalso lists:usort(Answers) =:= [{ok, name(B)}]
            end)
        end)
    end).

%% If a claimer dies, its worker is replaced, wherever the worker is.
killed_claimer(_Config) ->
    with(2, fun([A, B]) ->
        Claims = claims(A, 3),
        ?assertEqual([name(A), name(A), name(B)], [node(Worker) || {_, Worker} <- Claims]),
        {Claimer, Worker} = lists:last(Claims),
        %% A worker that came too late for its claim is released.
        until(fun() -> abandoned(B) =:= {0, 1} end),
        true = call(A, erlang, exit, [Claimer, kill]),
        until(fun() -> abandoned(B) =:= {1, 0} end),
        until(fun() -> not call(B, erlang, is_process_alive, [Worker]) end)
    end).

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
        until(fun() -> [2, 2] =:= [length(Members) || Members <- Groups()] end),
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

restart_a_worker(_Turn) ->
    {ok, [{Slot, Pid} | _]} = weir_pool:workers(p),
    exit(Pid, kill),
    until(fun() ->
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
            until(fun() -> Waiting() > 0 end),
            %% As long as a second one may take.
            receive after 1000 -> ok end,
            Count = Waiting(),
            true = ets:delete(Table),
            ok = sys:resume(Scope, infinity),
            until(fun() -> is_pid(whereis(weir_cluster)) end),
            Count
        end),
        ?assertEqual(1, Timers)
    end).

%% After an upgrade a monitor does not hold up the next upgrade, and its callers hear of the end of the node as before.
upgraded_monitor(_Config) ->
    with(2, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        Keeper = begin_there(A, B, 1, [{1, Key, until_told}], wait_ms()),
        true = do(A, fun() ->
            Monitors = monitors(),
            [begin
                {module, _} = code:load_file(weir_cluster_monitor),
                ok = weir_cluster_monitor:code_loaded(),
                until(fun() -> code:soft_purge(weir_cluster_monitor) end)
            end || _ <- [1, 2]],
            Monitors =:= monitors()
        end),
        os("KILL", B),
        ?assertEqual(#{1 => {exit, {nodedown, name(B)}}}, answers(A, Keeper, 1))
    end).

%% The member starts another monitor for the node.
killed_monitor(_Config) ->
    with(2, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        true = do(A, fun() -> exit(hd(monitors()), kill) end),
        gets(A, B, Key),
        %% When the pool of a node has no worker for a while, nothing of that is left.
        [
            begin
                ok = call(B, weir_pool, stop, [p]),
                until(fun() -> seen(A, B) =:= gone end),
                ok = call(B, weir_pool, start, [p, #{size => 1, worker => {weir_cluster_test_worker, start_link, []}}]),
                ok = know([A], 1)
            end
         || _ <- [1, 2, 3]
        ],
        until(fun() -> do(A, fun() -> length(monitors()) =:= 1 end) end)
    end).

%% Callers go on with the nodes that the former one knew.
killed_member(_Config) ->
    with_client(1, fun([Client, Server]) ->
        Answers = do(Client, fun() ->
            lists:append([
                begin
                    {ok, Member} = weir_cluster_view:member(p),
                    true = exit(Member, kill),
                    [result(fun() -> weir_cluster:call(p, node, wait_ms()) end) || _ <- lists:seq(1, 200)]
                end
             || _ <- lists:seq(1, 5)
            ])
        end),
        ?assertEqual([{ok, name(Server)}], lists:usort(Answers)),
        %% The new one hears of what changes, and of who goes.
        ok = call(Server, weir_pool, resize, [p, 7]),
        until(fun() -> maps:get(weight, seen(Client, Server)) =:= 7 end),
        until(fun() -> do(Client, fun() -> length(monitors()) =:= 1 end) end),
        os("KILL", Server),
        until(fun() -> seen(Client, Server) =:= gone end)
    end).

%% What cannot be picked without a key is the caller's mistake, and nobody else's.
pools_that_need_a_key(_Config) ->
    with_client(1, #{pool => #{strategy => hash}}, fun([Client, Server]) ->
        Intakes = call(Server, weir_cluster_view, intakes, [p]),
        steady([Client], 1, fun() ->
            ?assertEqual({exit, badarg}, do(Client, fun() -> result(fun() -> weir_cluster:call(p, node) end) end)),
            ?assertEqual({exit, badarg}, do(Client, fun() -> result(fun() -> weir_cluster:pick(p) end) end)),
            _ = [ok = call(Client, weir_cluster, cast, [p, hello]) || _ <- lists:seq(1, 50)],
            until(fun() -> maps:get(bad_casts, info(Server)) =:= 50 end),
            ?assertEqual(Intakes, call(Server, weir_cluster_view, intakes, [p])),
            ?assertEqual({ok, name(Server)}, call(Client, weir_cluster, call_key, [p, key, node, wait_ms()]))
        end)
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
        ok = weir_kit:same(begun, 5, lists:sum(maps:values(begun(Cluster))))
    end).

%% Who died has no place in the queue of another node, and no worker is taken for abandoned.
claimers_killed_in_the_queue(_Config) ->
    with_client(1, fun([Client, Server]) ->
        Waiting = fun() -> {ok, #{waiting := N}} = call(Server, weir_pool, info, [p]), N end,
        ok = steady([Client], 1, fun() ->
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
            until(fun() -> Waiting() =:= 10 end)
        end),
        kill = call(Client, erlang, send, [keeper, kill]),
        until(fun() -> Waiting() =:= 0 end),
        %% Those two are still held.
        {0, 2} = abandoned(Server),
        release = call(Client, erlang, send, [keeper, release]),
        until(fun() -> abandoned(Server) =:= {0, 0} end)
    end).
