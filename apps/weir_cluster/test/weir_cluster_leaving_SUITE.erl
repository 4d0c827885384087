%% Nodes that leave, and publications that are stopped: they finish what is under way, and later requests go elsewhere.
-module(weir_cluster_leaving_SUITE).
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(weir_cluster_test_lib, [with/2, with/3, with_client/2, with_client/3, begun/1, know/2, call/4, do/2,
    name/1, os/2, steady/3]).
-import(weir_cluster_test_calls, [seen/2, keys/3, result/1, begin_calls/3, answers/3, begin_there/5, begun_once/1,
    which_process/1]).
-import(weir_kit, [until/1, wait_ms/0]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_cluster_test_lib:keep_nodes(Config).

end_per_suite(Config) -> weir_cluster_test_lib:end_nodes(Config).

%% What is under way is finished first, and what comes meanwhile goes elsewhere.
stopped_with_calls(_Config) ->
    with(2, #{pool => #{size => 4}, cluster => #{shutdown => wait_ms()}}, fun([A, B]) ->
        Keys = keys(A, name(B), 20),
        {First, Second} = lists:split(10, Keys),
        Early = begin_there(A, B, 4, [{Key, Key, 300} || Key <- First], wait_ms()),
        Me = self(),
        Stop = spawn_link(fun() -> Me ! {self(), call(B, weir_cluster, stop, [p])} end),
        Late = begin_calls(A, [{Key, Key, 0} || Key <- Second], wait_ms()),
        receive {Stop, Stopped} -> ?assertEqual(ok, Stopped) end,
        Answers = maps:merge(answers(A, Early, 10), answers(A, Late, 10)),
        ?assertEqual([ok], lists:usort([element(1, Answer) || Answer <- maps:values(Answers)])),
        ok = begun_once([A, B]),
        ok = weir_kit:same(lost, 20, map_size(begun([A, B])))
    end).

%% Who is not finished by then is told that it was lost, and it is not begun again.
stopped_too_soon(_Config) ->
    with(2, #{cluster => #{shutdown => 100}}, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        Keeper = begin_there(A, B, 1, [{1, Key, until_told}], wait_ms()),
        ok = call(B, weir_cluster, stop, [p]),
        ?assertEqual(#{1 => {exit, killed}}, answers(A, Keeper, 1)),
        ok = weir_kit:same(begun, #{1 => 1}, begun([A, B]))
    end).

%% Intakes are shut down one after the other: while the last waits for a call, the first already refuses.
stopped_at_once(_Config) ->
    with(2, #{cluster => #{shutdown => wait_ms()}}, fun([A, B]) ->
        [Key | _] = keys(A, name(B), 1),
        Keeper = begin_there(A, B, 1, [{1, Key, until_told}], wait_ms()),
        Answer = do(B, fun() ->
            Intakes = weir_cluster_view:intakes(p),
            Conf = weir_cluster_view:conf(p),
            _ = spawn(fun() -> ok = weir_cluster:stop(p) end),
            until(fun() -> weir_cluster_here:has_left(Conf) end),
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
        ok = weir_kit:same(begun, #{1 => 1}, begun([A, B]))
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
                until(fun() -> seen(A, B) =:= gone end),
                ok = call(B, weir_cluster, stop, [p]),
                ?assertEqual({error, no_pool}, call(B, weir_cluster, leave, [p])),
                ok = call(B, weir_cluster, start, [p, #{}]),
                ok = know([A, B], 1)
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
        ?assertEqual({ok, name(A)}, call(A, weir_cluster, call_key, [p, Key, node, wait_ms()])),
        ok = call(B, sys, resume, [Member, infinity]),
        until(fun() -> seen(A, B) =:= gone end)
    end).

%% Who has left may be halted, or killed, at that moment: nothing that was sent to it is lost. Forty callers of a
%% client, and eight of a node that serves too, go on while four others leave, one after the other.
halted_after_leaving(_Config) ->
    with(6, fun([Client, Stays | Leaving]) ->
        ok = call(Client, weir_cluster, stop, [p]),
        ok = call(Client, weir_pool, stop, [p]),
        ok = call(Client, weir_cluster, start, [p, #{serve => false}]),
        ok = know([Client], 5),
        Loads = [{One, do(One, fun() -> begin_calling(Count) end)} || {One, Count} <- [{Client, 40}, {Stays, 8}]],
        lists:foreach(fun({One, How}) ->
            Done = [do(Caller, fun() -> done(Load) end) || {Caller, Load} <- Loads],
            until(fun() ->
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
            until(fun() -> seen(Client, One) =:= gone andalso seen(Stays, One) =:= gone end)
        end, lists:zip(Leaving, [halt, kill, halt, halt])),
        lists:foreach(fun({Caller, Load}) -> all_done(do(Caller, fun() -> end_calling(Load) end)) end, Loads)
    end).

%% So many call, by key and not, until they are told to end, and say what has failed; how many were done is counted.
begin_calling(Count) ->
    Done = counters:new(1, [write_concurrency]),
    {Done, [spawn(fun() -> calling(N, 1, Done, []) end) || N <- lists:seq(1, Count)]}.

done({Done, _Callers}) -> counters:get(Done, 1).

end_calling({_Done, Callers}) ->
    Monitors = [begin Monitor = monitor(process, Pid), Pid ! stop, Monitor end || Pid <- Callers],
    lists:append([receive {'DOWN', Monitor, _, _, {failed, Failed}} -> Failed end || Monitor <- Monitors]).

%% Raises a fault if a call failed for another reason than its time, which may be short on a busy machine.
all_done(Failed) ->
    ok = weir_kit:none(lost, [Each || Each <- Failed, Each =/= {exit, timeout}]),
    ?assertEqual([], Failed).

calling(N, I, Done, Failed) ->
    receive
        stop -> exit({failed, Failed})
    after 0 ->
        Call = case N rem 2 of
            0 -> fun() -> weir_cluster:call_key(p, {N, I}, node, wait_ms()) end;
            1 -> fun() -> weir_cluster:call(p, node, wait_ms()) end
        end,
        case result(Call) of
            {ok, _} ->
                ok = counters:add(Done, 1, 1),
                calling(N, I + 1, Done, Failed);
            Else ->
                calling(N, I + 1, Done, [Else | Failed])
        end
    end.

comes_and_goes(_Config) ->
    Times = weir_kit:long(51, 10_000),
    with(2, fun([A, B] = Cluster) ->
        Counts = fun() ->
            [{length(call(One, erlang, processes, [])), call(One, ets, info, [weir_cluster_views, size]),
                length([Key || {{weir_cluster, _} = Key, _} <- call(One, persistent_term, get, [])])} || One <- Cluster]
        end,
        %% The counts of a cluster that has settled are the same 100 ms later.
        Before = weir_kit:until_value(fun() ->
            Once = Counts(),
            receive after 100 -> ok end,
            Counts() =:= Once andalso Once
        end),
        do(B, fun() -> lists:foreach(fun(N) ->
            ok = weir_cluster:stop(p),
            ok = weir_cluster:start(p, #{weight => N rem 7 + 1})
        end, lists:seq(1, Times)) end),
        ok = know(Cluster, 1),
        until(fun() ->
            case seen(A, B) of #{weight := Weight} -> Weight =:= Times rem 7 + 1; gone -> false end
        end),
        until(fun() -> Counts() =:= Before end)
    end).

%% Who has left does not come back because something is started again.
killed_after_leaving(_Config) ->
    with(2, fun([A, B]) ->
        ok = call(B, weir_cluster, leave, [p]),
        [
            begin
                Pid = call(B, weir_cluster_test_calls, which_process, [Which]),
                true = call(B, erlang, exit, [Pid, kill]),
                until(fun() ->
                    {ok, Member} = call(B, weir_cluster_view, member, [p]),
                    Member =/= Pid andalso call(B, erlang, is_process_alive, [Member])
                end),
                ok = call(B, weir_cluster, leave, [p]),
                until(fun() -> seen(A, B) =:= gone end),
                Call = fun(Key) -> weir_cluster:call_key(p, Key, node, wait_ms()) end,
                Answers = do(A, fun() -> lists:map(Call, lists:seq(1, 100)) end),
                ?assertEqual([{ok, name(A)}], lists:usort(Answers))
            end
         || Which <- [member, intake]
        ]
    end).

%% Clients are told who leaves, and how the others change.
clients_hear(_Config) ->
    with_client(2, fun([Client, A, B]) ->
        ok = call(A, weir_pool, resize, [p, 5]),
        until(fun() -> maps:get(weight, seen(Client, A)) =:= 5 end),
        ok = call(B, weir_cluster, leave, [p]),
        until(fun() -> seen(Client, B) =:= gone end),
        ?assertEqual({ok, name(A)}, steady([Client], 1, fun() ->
            call(Client, weir_cluster, call, [p, node, wait_ms()])
        end))
    end).
