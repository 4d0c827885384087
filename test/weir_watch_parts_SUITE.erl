%% What weir_watch_parts asks of Weir's other applications: all that they count is described as a metric; what hangs,
%% dies or is too many is left out, and said to be; and nothing is started for it.
-module(weir_watch_parts_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, wait_ms/0]).

-define(APPS, [weir_memcached_server, weir_memcached, weir_cluster, weir_log, weir_flow, weir_pool, weir_server,
    weir_socket]).

all() -> weir_kit:cases(?MODULE).

init_per_testcase(Case, Config) ->
    stop(),
    [{ok, _} = application:ensure_all_started(App) || App <- ?APPS, Case =/= nothing_runs],
    Config.

end_per_testcase(_Case, _Config) -> stop().

stop() ->
    _ = application:stop(weir_watch),
    [_ = application:stop(App) || App <- ?APPS],
    ok.

nothing_runs(_Config) ->
    Running = application:which_applications(),
    None = #{pools => 0, clusters => 0, logs => 0, servers => 0, clients => 0, caches => 0, sockets => 0},
    ?assertEqual(
        #{pools => [], clusters => [], logs => [], servers => [], clients => [], caches => [], sockets => #{},
            left_out => None},
        weir_watch_parts:parts()
    ),
    ?assertEqual(Running, application:which_applications()).

%% Every figure that a part tells has a description, and every description a figure.
described(Config) ->
    ok = weir_pool:start(squares, #{size => 2, worker => none}),
    ok = weir_cluster:start(squares, #{}),
    {ok, _} = weir_log:open(audit, #{file => file(Config, "audit.log"), shards => 2}),
    {ok, _Client} = weir_memcached:start_link(cache, #{port => 1, connections => 2}),
    {ok, Server} = weir_server:start_link({local, batches}, weir_flow_server_plain, [], [{max_queue, 100}]),
    ok = weir_flow:limit(Server, 10),
    {ok, Listener} = weir_socket:listen(0, []),
    {ok, Cache} = weir_memcached_server:start_link(#{name => sessions}),
    Described = [{Part, Key} || #{part := Part, key := Key} <- weir_watch_metrics:description(), is_part(Part)],
    %% On a busy machine some parts are left out at first.
    until(fun() -> told(weir_watch_parts:parts()) =:= lists:sort(Described) end),
    Parts = complete(),
    ?assertMatch(#{pools := [#{name := squares, size := 2}, #{name := {weir_memcached, cache, _}}]}, Parts),
    ?assertMatch(#{clusters := [#{name := squares, nodes := 0, let_in := 0, others := []}]}, Parts),
    ?assertMatch(#{logs := [#{name := audit, shards := 2}], clients := [#{name := cache, connections := 2}]}, Parts),
    ?assertMatch(#{servers := [#{name := batches, limit := 10, max_queue := 100, in_flight := 0}]}, Parts),
    ?assertMatch(#{caches := [#{name := sessions, items := 0, memory := 67_108_864}]}, Parts),
    ok = weir_memcached_server:stop(Cache),
    ok = weir_socket:close(Listener),
    ok = weir_server:stop(Server),
    ok = weir_memcached:stop(cache).

is_part(Part) -> lists:member(Part, [pool, cluster, log, server, client, client_server, cache, sockets]).

told(#{pools := Pools, clusters := Clusters, logs := Logs, servers := Servers, clients := Clients} = Parts) ->
    #{sockets := Sockets, caches := Caches} = Parts,
    Of = [{pool, Pools}, {cluster, Clusters}, {log, Logs}, {server, Servers}, {client, Clients}, {sockets, [Sockets]},
        {cache, Caches}, {client_server, lists:append([Each || #{by_server := Each} <- Clients])}],
    lists:usort([{Part, Key} || {Part, Maps} <- Of, Map <- Maps, Key <- maps:keys(Map) -- [name, others, by_server]]).

%% Returns the parts once none is left out. On a busy machine that may take a second try.
complete() ->
    weir_kit:until_value(fun() ->
        #{left_out := LeftOut} = Parts = weir_watch_parts:parts(),
        lists:sum(maps:values(LeftOut)) =:= 0 andalso Parts
    end).

fifty(_Config) ->
    [ok = weir_pool:start(N, #{size => 1, worker => none}) || N <- lists:seq(1, 60)],
    until(fun() ->
        #{pools := Pools, left_out := LeftOut} = weir_watch_parts:parts(),
        [N || #{name := N} <- Pools] =:= lists:seq(1, 50) andalso LeftOut =:= #{
            pools => 10, clusters => 0, logs => 0, servers => 0, clients => 0, caches => 0, sockets => 0
        }
    end),
    {match, Found} = re:run(weir_watch_metrics:text(), "(?m)^weir_[^#]", [global, {capture, first, binary}]),
    ?assert(length(Found) =< 250).

%% A log whose writer does not answer is left out; the rest is there, and nobody waits for the writer.
suspended_writer(Config) ->
    ok = weir_pool:start(squares, #{size => 2, worker => none}),
    Writer = suspended(Config),
    Pools = fun() -> [Name || #{name := Name} <- maps:get(pools, weir_watch_parts:parts())] end,
    until(fun() -> Pools() =:= [squares] end),
    Silent = <<"\nweir_watch_left_out{part=\"logs\"} 1\n">>,
    until(fun() -> binary:match(iolist_to_binary(weir_watch_metrics:text()), Silent) =/= nomatch end),
    ?assertEqual(nomatch, binary:match(iolist_to_binary(weir_watch_metrics:text()), <<"weir_log_">>)),
    ok = sys:resume(Writer, wait_ms()),
    #{logs := [#{name := audit}]} = complete().

suspended(Conf) ->
    {ok, _} = weir_log:open(audit, #{file => file(Conf, "audit.log")}),
    {ok, #{shards := [#{writer := Writer}]}} = weir_log:info(audit),
    ok = sys:suspend(Writer, wait_ms()),
    Writer.

%% Who keeps what was asked does not fill the mailbox of one that hangs: it is asked once in ten seconds.
silent_are_asked_later(Config) ->
    Writer = suspended(Config),
    Begin = erlang:monotonic_time(millisecond),
    Asked = lists:foldl(
        fun(_, Asked) ->
            {#{logs := []}, Asked1} = weir_watch_parts:ask(Asked, []),
            Asked1
        end,
        weir_watch_parts:new(),
        lists:seq(1, 20)
    ),
    ?assert(weir_kit:queue_len(Writer) =< 1 + (erlang:monotonic_time(millisecond) - Begin) div 10_000),
    %% When the log is gone nothing is kept of it.
    ok = sys:resume(Writer, wait_ms()),
    ok = weir_log:close(audit),
    LeftOut = fun() -> maps:get(left_out, element(1, weir_watch_parts:ask(Asked, []))) end,
    until(fun() -> maps:get(logs, LeftOut(), none) =:= 0 end).

%% Pools and logs that are opened and closed while they are asked.
stopped_meanwhile(Config) ->
    Churn = spawn_link(fun() -> churn(file(Config, "churn.log")) end),
    [
        begin
            #{pools := Pools, logs := Logs, left_out := #{}} = weir_watch_parts:parts(),
            ?assertEqual([], Pools -- [Pool || #{name := churn, size := 1} = Pool <- Pools]),
            ?assertEqual([], Logs -- [Log || #{name := churn, entries := _} = Log <- Logs])
        end
     || _ <- lists:seq(1, 300)
    ],
    unlink(Churn),
    Churn ! stop,
    _ = weir_kit:await_down(Churn),
    ok = weir_kit:none(left_in_mailbox, weir_kit:take_messages()).

churn(File) ->
    ok = weir_pool:start(churn, #{size => 1, worker => none}),
    {ok, churn} = weir_log:open(churn, #{file => File}),
    ok = weir_pool:stop(churn),
    ok = weir_log:close(churn),
    receive stop -> ok after 0 -> churn(File) end.

%% Processes without a name, and pools that are called by one, show no process identifier.
unnamed(_Config) ->
    {ok, One} = weir_server:start_link(weir_flow_server_plain, [], []),
    {ok, Two} = weir_server:start_link(weir_flow_server_plain, [], []),
    [ok = weir_flow:limit(Pid, 10) || Pid <- [One, Two]],
    ok = weir_pool:start({self(), pool}, #{size => 3, worker => none}),
    until(fun() ->
        Text = iolist_to_binary(weir_watch_metrics:text()),
        ?assertEqual(nomatch, re:run(Text, "<\\d+\\.\\d+\\.\\d+>")),
        binary:match(Text, <<"\nweir_server_limit{server=\"unnamed\"} 20\n">>) =/= nomatch andalso
            binary:match(Text, <<"\nweir_pool_size{pool=\"unnamed\"} 3\n">>) =/= nomatch
    end),
    [ok = weir_server:stop(Pid) || Pid <- [One, Two]].

file(Config, Name) -> filename:join(proplists:get_value(priv_dir, Config), Name).

%% What each other node of a pool got is told, and its sum is a metric.
spans_nodes(_Config) ->
    Nodes = [#{name := Client} = A, #{name := B} = Serving] = [weir_kit_nodes:start([]) || _ <- [1, 2]],
    try
        [{ok, _} = weir_kit_nodes:call(Node, application, ensure_all_started, [weir_cluster]) || Node <- Nodes],
        Pool = #{size => 2, worker => {gen_event, start_link, []}},
        ok = weir_kit_nodes:call(Serving, weir_pool, start, [squares, Pool]),
        ok = weir_kit_nodes:call(Serving, weir_cluster, start, [squares, #{}]),
        ok = weir_kit_nodes:call(A, weir_cluster, start, [squares, #{serve => false}]),
        ok = weir_kit_nodes:connect(Nodes),
        %% A cluster that does not answer in time on a busy machine is left out.
        Told = fun(Node, IsIt) ->
            until(fun() ->
                #{clusters := Clusters} = weir_kit_nodes:call(Node, weir_watch_parts, parts, []),
                length(Clusters) =:= 1 andalso IsIt(hd(Clusters))
            end)
        end,
        ok = Told(A, fun(#{let_in := LetIn}) -> LetIn =:= 1 end),
        [ok = weir_kit_nodes:call(A, weir_cluster, cast, [squares, hello]) || _ <- lists:seq(1, 10)],
        ok = Told(A, fun
            (#{name := squares, nodes := 1, requests := 10, served := 0, others := [Other]}) ->
                maps:with([node, requests, received], Other) =:= #{node => B, requests => 10, received => 0};
            (_) ->
                false
        end),
        %% And from the other side.
        ok = Told(Serving, fun(#{others := Others}) -> Others =:= [#{node => Client, received => 10}] end),
        Sum = <<"\nweir_cluster_requests{pool=\"squares\"} 10\n">>,
        Text = fun() -> iolist_to_binary(weir_kit_nodes:call(A, weir_watch_metrics, text, [])) end,
        until(fun() -> binary:match(Text(), Sum) =/= nomatch end)
    after
        lists:foreach(fun weir_kit_nodes:kill/1, Nodes)
    end.
