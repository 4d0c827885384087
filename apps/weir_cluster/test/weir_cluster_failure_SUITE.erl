%% Nodes that are killed and cut off. Each node writes down what was begun there, and the callers what they were told.
%% The two must agree.
-module(weir_cluster_failure_SUITE).
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(weir_cluster_test_lib, [with/2, with/3, info/1, know/2, connect/1, call/4, do/2, name/1, os/2, steady/3]).
-import(weir_cluster_test_calls, [let_in/1, seen/2, keys/3, result/1, begin_calls/3, answers/3]).
-import(weir_kit, [until/1, wait_ms/0]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_cluster_test_lib:keep_nodes(Config).

end_per_suite(Config) -> weir_cluster_test_lib:end_nodes(Config).

%% What was under way is lost and said to be, unless it is idempotent; what comes later goes elsewhere.
killed_node(_Config) ->
    with(3, #{pool => #{size => 4}}, fun([A, B, C]) ->
        [K1, K2, K3, K4] = keys(A, name(B), 4),
        {Once, Twice} = steady([A], 2, fun() ->
            OfTwo = begin_calls(A, [{1, K1, until_told}, {2, K2, until_told}], wait_ms()),
            OfOthers = begin_calls(A, [{3, K3, until_told}, {4, K4, until_told}],
                #{timeout => wait_ms(), idempotent => true}),
            until(fun() -> maps:get(served, info(B)) =:= 4 end),
            {OfTwo, OfOthers}
        end),
        os("KILL", B),
        ?assertEqual(#{1 => {exit, {nodedown, name(B)}}, 2 => {exit, {nodedown, name(B)}}}, answers(A, Once, 2)),
        Teller = spawn_link(fun() -> weir_cluster_test_lib:keep_telling([A, C]) end),
        #{3 := {ok, {3, Node3}}, 4 := {ok, {4, Node4}}} = answers(A, Twice, 2),
        true = unlink(Teller),
        true = exit(Teller, kill),
        ?assertEqual([], [Node3, Node4] -- [name(A), name(C), name(A), name(C)]),
        until(fun() -> seen(A, B) =:= gone end),
        Results = steady([A], 1, fun() ->
            do(A, fun() -> [weir_cluster:call_key(p, Key, node, wait_ms()) || Key <- lists:seq(1, 500)] end)
        end),
        ?assertEqual(lists:sort([{ok, name(A)}, {ok, name(C)}]), lists:usort(Results))
    end).

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
                        until(fun() ->
                            Sees(X) =:= lists:sort([N || #{node := N} <- maps:get(nodes, info(X))])
                        end),
                        Call = fun(Key) -> weir_cluster:call_key(p, Key, node, wait_ms()) end,
                        Results = steady([X], length(Sees(X)), fun() ->
                            do(X, fun() -> lists:map(Call, lists:seq(1, 100)) end)
                        end),
                        ?assertEqual(lists:sort([{ok, N} || N <- [name(X) | Sees(X)]]), lists:usort(Results))
                    end
                 || X <- Cluster
                ],
                ok = connect(Cluster),
                ok = know(Cluster, 2),
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
                until(fun() ->
                    ok = connect(Cluster),
                    lists:all(fun(One) -> let_in(One) =:= 3 end, Cluster)
                end)
            end,
            [[{A, B}], [{A, B}, {A, C}, {A, D}], [{A, C}, {A, D}, {B, C}, {B, D}],
                [{A, B}, {A, C}, {A, D}, {B, C}, {B, D}, {C, D}]]
        )
    end).

%% It sees the nodes that it is connected to, and its calls are done. What is under way when a connection is cut is
%% lost, and said to be.
goes_on(One) ->
    until(fun() ->
        Connected = lists:sort(call(One, erlang, nodes, [])),
        Connected =:= lists:sort([Node || #{node := Node} <- maps:get(nodes, info(One))])
    end),
    Call = fun(Key) -> result(fun() -> weir_cluster:call_key(p, Key, node, wait_ms()) end) end,
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
        Monitors = fun weir_cluster_test_calls:monitors/0,
        until(fun() -> maps:get(nodes, info(A)) =:= [] andalso do(A, Monitors) =:= [] end),
        ?assertEqual([], call(A, ets, lookup, [weir_cluster_test_begun, logged])),
        do(A, fun() ->
            ok = logger:remove_handler(?MODULE),
            logger:set_primary_config(level, none)
        end)
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
        until(fun() ->
            {error, {unheard, [name(Frozen)]}} =:= call(Leaving, weir_cluster, leave, [p, 1000])
        end),
        until(fun() ->
            lists:all(fun(One) ->
                [in, in, in, in] =:= [in || #{share := 1.0} <- maps:get(nodes, info(One))]
            end, Left)
        end),
        Called = fun() -> [weir_cluster:call_key(p, Key, node, wait_ms()) || Key <- lists:seq(1, 200)] end,
        Names = lists:sort([{ok, name(One)} || One <- Left]),
        %% One that gets no turn for two seconds is left out for a while.
        until(fun() ->
            Served = lists:usort([do(One, Called) || One <- Left]),
            length(Served) =:= 1 andalso lists:usort(hd(Served)) =:= Names
        end),
        os("CONT", Frozen),
        ok = know([Frozen], 5),
        agree([Frozen | Left])
    end).

agree(Cluster) ->
    until(fun() ->
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
                    call(A, weir_cluster, call_key, [p, Key1, node, wait_ms()])
                end)),
                os("KILL", B),
                until(fun() -> seen(A, B) =:= gone end)
            end)
    end.
