%% Connections and the processes of a server: limits, clients that do not behave and others beside them, kills, the life
%% of a server.
-module(weir_memcached_server_conn_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_memcached_server.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, kill/1, await_down/1]).
-import(weir_memcached_server_test, [start/0, start/1, connect/1, connect/2, ask/2, send/2, recv/2, closed/1]).

-define(SILENT, 10_000).

%% These cases wait for seconds to go by.
-define(WAITING, [idle_when_active, reads_slowly, small_when_idle, killed_between_accept_and_handover]).

all() -> [{group, waiting} | weir_kit:cases(?MODULE) -- ?WAITING].

groups() -> [{waiting, [parallel], ?WAITING}].

init_per_suite(Config) -> weir_memcached_server_test:set_up(Config).

end_per_suite(Config) -> weir_memcached_server_test:tear_down(Config).

init_per_group(_Group, Config) -> [{beside_others, true} | Config].

end_per_group(_Group, _Config) -> weir_memcached_server_test:stop_all().

end_per_testcase(_Case, Config) ->
    proplists:is_defined(beside_others, Config) orelse weir_memcached_server_test:stop_all().

%% ---------------------------------------------------------------- limits

max_connections(_Config) ->
    Server = start(#{max_connections => 10}),
    Sockets = [connect(Server) || _ <- lists:seq(1, 10)],
    [?assertEqual(<<>>, ask(Socket, "")) || Socket <- Sockets],
    ?assertEqual(<<"ERROR Too many open connections\r\n">>, closed(connect(Server))),
    #{connections := 10, total_connections := 10, rejected_connections := 1} = weir_memcached_server:info(Server),
    [?assertEqual(<<>>, ask(Socket, "")) || Socket <- Sockets],
    %% As soon as one has gone there is room for another.
    ok = gen_tcp:close(hd(Sockets)),
    until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =:= 9 end),
    ?assertEqual(<<>>, ask(connect(Server), "")),
    ?assertEqual(<<"ERROR Too many open connections\r\n">>, closed(connect(Server))).

%% The limit is exact, however many come at the same time.
one_more_at_once(_Config) ->
    Server = start(#{max_connections => 20}),
    Answers = weir_kit:in_parallel([
        fun() ->
            Socket = connect(Server),
            ok = gen_tcp:send(Socket, "mn\r\n"),
            case gen_tcp:recv(Socket, 0, weir_kit:wait_ms()) of
                {ok, <<"MN\r\n">>} ->
                    %% Until all have been answered.
                    until(fun() ->
                        #{total_connections := Taken, rejected_connections := Refused} =
                            weir_memcached_server:info(Server),
                        Taken + Refused =:= 200
                    end),
                    taken;
                {ok, <<"ERROR Too many", _/binary>>} -> refused;
                {error, closed} -> refused;
                {error, econnreset} -> refused
            end
        end
     || _ <- lists:seq(1, 200)
    ]),
    weir_kit:same(taken, 20, length([taken || taken <- Answers])).

idle_timeout(_Config) ->
    Server = start(#{idle_timeout => 50}),
    Socket = connect(Server),
    ?assertEqual(<<>>, closed(Socket)),
    #{idle_kicks := 1} = weir_memcached_server:info(Server).

%% Who asks more often is not idle.
idle_when_active(_Config) ->
    Server = start(#{idle_timeout => 5_000}),
    Socket = connect(Server),
    End = erlang:monotonic_time(millisecond) + 7_000,
    (fun Loop() ->
        ?assertEqual(<<>>, ask(Socket, "")),
        receive after 20 -> ok end,
        erlang:monotonic_time(millisecond) < End andalso Loop()
    end)(),
    #{idle_kicks := 0} = weir_memcached_server:info(Server).

%% ---------------------------------------------------------------- clients that do not behave, and a bystander

%% Asks all the time, and checks every answer, while the function runs. That gets one which waits until there are so
%% many answers more: a bystander is served while others do not behave, not after them, nor after they were given up.
with_bystander(Server, Fun) ->
    Answered = counters:new(1, []),
    {Pid, _} = Bystander = weir_kit:start(fun() -> bystander(connect(Server), 0, Answered) end),
    Result = Fun(fun(More) ->
        Before = counters:get(Answered, 1),
        until(fun() -> counters:get(Answered, 1) >= Before + More end)
    end),
    #{slow_kicks := 0} = weir_memcached_server:info(Server),
    Pid ! stop,
    ok = weir_kit:result(Bystander),
    Result.

bystander(Socket, N, Answered) ->
    Value = integer_to_binary(N),
    Size = integer_to_binary(byte_size(Value)),
    Answer = ask(Socket, ["set bystander 0 0 ", Size, "\r\n", Value, "\r\nget bystander\r\n"]),
    Expected = <<"STORED\r\nVALUE bystander 0 ", Size/binary, "\r\n", Value/binary, "\r\nEND\r\n">>,
    weir_kit:same(wrong_answer, Expected, Answer),
    counters:add(Answered, 1, 1),
    receive
        stop -> ok
    after 0 -> bystander(Socket, N + 1, Answered)
    end.

%% They ask for hundreds of megabytes and take nothing: what each holds is bounded.
slow_readers(_Config) ->
    Server = start(#{memory => 64 bsl 20}),
    Socket = connect(Server),
    <<"STORED\r\n">> = ask(Socket, ["set large 0 0 1000000\r\n", binary:copy(<<"x">>, 1_000_000), "\r\n"]),
    with_bystander(Server, fun(Answered) ->
        Before = erlang:memory(binary),
        Slow = [connect(Server, [{recbuf, 4_096}, {buffer, 1_024}, {linger, {true, 0}}]) || _ <- lists:seq(1, 20)],
        [ok = gen_tcp:send(Each, lists:duplicate(30, "get large\r\n")) || Each <- Slow],
        until(fun() -> length([Conn || Conn <- conns(Server), in_send(Conn)]) >= 20 end),
        %% One value is shared by all that send it; other binaries are short.
        ?assert(erlang:memory(binary) - Before < 20 * 1_000_000),
        Answered(200),
        %% One that reads after all gets everything.
        [First | Rest] = Slow,
        One = iolist_to_binary(["VALUE large 0 1000000\r\n", binary:copy(<<"x">>, 1_000_000), "\r\nEND\r\n"]),
        [?assert(One =:= recv(First, byte_size(One))) || _ <- lists:seq(1, 30)],
        [ok = gen_tcp:close(Each) || Each <- Rest]
    end),
    until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =:= 2 end).

in_send(Conn) ->
    case process_info(Conn, current_function) of
        {current_function, {weir_socket_wait, _, _}} -> true;
        {current_function, {weir_socket, _, _}} -> true;
        {current_function, {prim_inet, F, _}} -> F =:= send orelse F =:= send_recv_reply;
        _ -> false
    end.

send_timeout(_Config) ->
    Server = start(#{send_timeout => 100}),
    <<"STORED\r\n">> = ask(connect(Server), ["set large 0 0 1000000\r\n", binary:copy(<<"x">>, 1_000_000), "\r\n"]),
    Socket = connect(Server, [{recbuf, 4_096}]),
    send(Socket, lists:duplicate(100, "get large\r\n")),
    until(fun() -> maps:get(slow_kicks, weir_memcached_server:info(Server)) =:= 1 end),
    ?assert(byte_size(closed(Socket)) < 100 * 1_000_000).

%% As long as it takes something it is not closed, however long the whole takes. The kernel has megabytes of room here,
%% and does not ask for more before a third of it is free.
reads_slowly(_Config) ->
    Server = start(#{memory => 128 bsl 20, max_item => 16 bsl 20, send_timeout => 4_000}),
    <<"STORED\r\n">> = ask(connect(Server), ["set large 0 0 8000000\r\n", binary:copy(<<"x">>, 8_000_000), "\r\n"]),
    Socket = connect(Server, [{recbuf, 65_536}, {buffer, 4_096}]),
    send(Socket, ["get large\r\nget large\r\nmn\r\n"]),
    _ = process_flag(priority, high),
    Slow = slowly(Socket, erlang:monotonic_time(millisecond), 0),
    _ = process_flag(priority, normal),
    ok = inet:setopts(Socket, [{recbuf, 1_000_000}, {buffer, 1_000_000}]),
    Answer = byte_size(<<"VALUE large 0 8000000\r\n\r\nEND\r\n">>) + 8_000_000,
    Rest = recv(Socket, 2 * Answer + 4 - Slow),
    ?assertEqual(<<"END\r\nMN\r\n">>, binary_part(Rest, byte_size(Rest), -9)),
    #{slow_kicks := 0} = weir_memcached_server:info(Server).

%% Reads 100 KB in a second, for six seconds. A reader that was late makes up for it.
slowly(Socket, Begin, Size) ->
    case erlang:monotonic_time(millisecond) - Begin of
        Ms when Ms < 6_000 ->
            Data = recv(Socket, max(1, Ms * 100 - Size)),
            receive
            after 20 -> slowly(Socket, Begin, Size + byte_size(Data))
            end;
        _ ->
            Size
    end.

%% They send without an end and read nothing.
floods(_Config) ->
    Server = start(#{send_timeout => weir_kit:wait_ms()}),
    with_bystander(Server, fun(Answered) ->
        %% What a client that is killed has not sent would be sent for as long as the server waits for it to read.
        Floods = [weir_kit:start(fun() -> flood(connect(Server, [{linger, {true, 0}}]), Request) end)
            || Request <- flood_requests(), _ <- [1, 2]],
        until(fun() -> length(conns(Server)) > length(Floods) end),
        %% Half of them are answered, until there is no room for answers any more.
        until(fun() -> length([Conn || Conn <- conns(Server), in_send(Conn)]) >= length(Floods) div 2 end),
        Answered(100),
        [?assert(blocks(Conn) =< 10, {blocks(Conn), Conn}) || Conn <- conns(Server)],
        %% Each connection has its blocks and a heap of a megabyte or two. A quarter of the connections hold an item of
        %% a megabyte that is coming, and its copy. More than that is garbage, which may be there at any time.
        until(fun() ->
            Conns = conns(Server),
            _ = [erlang:garbage_collect(Conn) || Conn <- Conns],
            Memory = memory(Conns),
            io:format("~b bytes~n", [Memory]),
            Memory < length(Floods) div 4 * 2_000_000 + length(Floods) * 3_000_000
        end),
        lists:foreach(fun weir_kit:kill/1, Floods)
    end),
    until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =< 1 end).

flood_requests() ->
    [
        binary:copy(<<"get bystander\r\n">>, 5_000),
        iolist_to_binary([["set flood", integer_to_list(N), " 0 0 100 noreply\r\n", binary:copy(<<"x">>, 100), "\r\n"]
            || N <- lists:seq(1, 1_000)]),
        binary:copy(<<"x\r\n">>, 20_000),
        iolist_to_binary(["set flood 0 0 1000000\r\n", binary:copy(<<"x">>, 1_000_000), "\r\n"])
    ].

flood(Socket, Request) ->
    case gen_tcp:send(Socket, Request) of
        ok -> flood(Socket, Request);
        {error, _} -> ok
    end.

%% What was read ahead.
blocks(Conn) ->
    {messages, Messages} = process_info(Conn, messages),
    length([Data || {tcp, _, Data} <- Messages]).

%% Of all of them; a binary to which several refer, or one several times, is there once.
memory(Pids) ->
    Infos = [Info || Pid <- Pids, [_ | _] = Info <- [process_info(Pid, [memory, binary])]],
    Binaries = maps:from_list([{Id, Size} || [_, {binary, All}] <- Infos, {Id, Size, _} <- All]),
    lists:sum([Bytes || [{memory, Bytes}, _] <- Infos]) + lists:sum(maps:values(Binaries)).

garbage(_Config) ->
    Server = start(),
    _ = rand:seed(exsss, 1),
    with_bystander(Server, fun(Answered) ->
        [
            begin
                Socket = connect(Server),
                _ = gen_tcp:send(Socket, rand:bytes(rand:uniform(5_000))),
                _ = case rand:uniform(3) of 1 -> gen_tcp:shutdown(Socket, write); _ -> ok end,
                ok = gen_tcp:close(Socket)
            end
         || _ <- lists:seq(1, 500)
        ],
        Answered(200)
    end),
    until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =:= 0 end).

%% A client that has said that it will send no more is served no more.
half_closed(_Config) ->
    Server = start(),
    Socket = connect(Server),
    send(Socket, "mn\r\nset k 0 0 1"),
    <<"MN\r\n">> = recv(Socket, 4),
    ok = gen_tcp:shutdown(Socket, write),
    ?assertEqual(<<>>, closed(Socket)),
    until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =:= 0 end).

%% Ten thousand that say nothing, in a node of their own.
many_silent(_Config) ->
    case descriptors() of
        Limit when Limit < ?SILENT + 500 ->
            {skip, "too few descriptors"};
        _ ->
            Server = start(#{max_connections => ?SILENT + 10, backlog => 4_096}),
            Port = weir_memcached_server:port(Server),
            Node = weir_kit_nodes:start([]),
            with_bystander(Server, fun(Answered) ->
                ok = weir_kit_nodes:call(Node, erlang, apply, [fun hold_many/2, [Port, ?SILENT]]),
                until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) >= ?SILENT end),
                Answered(100)
            end),
            until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =:= ?SILENT end),
            ok = weir_kit_nodes:kill(Node),
            until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =:= 0 end)
    end.

descriptors() ->
    case string:to_integer(os:cmd("ulimit -n")) of
        {Limit, _} when is_integer(Limit) -> Limit;
        {error, _} -> 1 bsl 20
    end.

%% Runs in that node; some process has to go on that owns them. From three addresses, each of which has 28,000 ports.
hold_many(Port, Count) ->
    Self = self(),
    {Pid, Monitor} = spawn_monitor(fun() ->
        Sockets = [
            begin
                {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [{ip, {127, 0, 0, 1 + N rem 3}}, {active, false}],
                    weir_kit:wait_ms()),
                Socket
            end
         || N <- lists:seq(1, Count)
        ],
        Self ! {self(), ok},
        receive stop -> Sockets end
    end),
    receive
        {Pid, ok} -> ok;
        {'DOWN', Monitor, process, Pid, Reason} -> {error, Reason}
    end.

%% A connection that has worked and is silent takes some kilobytes: its process, and a share of what its socket is made
%% of.
small_when_idle(_Config) ->
    Server = start(),
    Value = binary:copy(<<"x">>, 5_000),
    Sockets = [connect(Server) || _ <- lists:seq(1, 100)],
    [_ = ask(Socket, [["set k 0 0 5000\r\n", Value, "\r\nget k\r\n"] || _ <- lists:seq(1, 20)]) || Socket <- Sockets],
    _ = ask(hd(Sockets), [
        "set l 0 0 1000000\r\n", binary:copy(<<"x">>, 1_000_000), "\r\nget l\r\nget l\r\n", "delete l\r\n"
    ]),
    Memory = fun() -> lists:max([element(2, process_info(Conn, memory)) || Conn <- conns(Server)]) end,
    until(fun() -> Memory() < 4_000 end),
    %% The constants of the server are not in it, which are seventy words.
    Heap = fun() -> lists:max([element(2, process_info(Conn, total_heap_size)) || Conn <- conns(Server)]) end,
    io:format("~b bytes, ~b words of heap~n", [Memory(), Heap()]),
    ?assert(Heap() =< 100, Heap()),
    until(fun() -> lists:all(fun(Conn) -> process_info(Conn, binary) =:= {binary, []} end, conns(Server)) end),
    [?assertEqual(<<>>, ask(Socket, "")) || Socket <- Sockets].

%% ---------------------------------------------------------------- killed

killed_connections(_Config) ->
    Server = start(),
    Socket = connect(Server),
    Others = [connect(Server) || _ <- lists:seq(1, 50)],
    [_ = ask(Other, "") || Other <- Others],
    _ = ask(Socket, "set k 0 0 1\r\nx\r\n"),
    Kept = conn_of(Socket, Server),
    [exit(Conn, kill) || Conn <- conns(Server), Conn =/= Kept],
    [?assertEqual(<<>>, closed(Other)) || Other <- Others],
    ?assertEqual(<<"VALUE k 0 1\r\nx\r\nEND\r\n">>, ask(Socket, "get k\r\n")),
    until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =:= 1 end).

%% The one whose last answer is another's.
conn_of(Socket, Server) ->
    {ok, Port} = inet:port(Socket),
    hd([Conn || Conn <- conns(Server), peer_port(Conn) =:= Port]).

peer_port(Conn) ->
    Socket = element(5, sys:get_state(Conn, infinity)),
    {ok, {_, Port}} = weir_socket:peername(Socket),
    Port.

%% What it has taken for data to come is given back.
killed_while_receiving(_Config) ->
    Server = start(),
    Sockets = [connect(Server) || _ <- lists:seq(1, 10)],
    [send(Socket, "set k 0 0 500000\r\nxxx") || Socket <- Sockets],
    until(fun() -> maps:get(bytes, weir_memcached_server:info(Server)) > 5_000_000 end),
    {Killed, Closed} = lists:split(5, Sockets),
    Conns = [conn_of(Socket, Server) || Socket <- Killed],
    [exit(Conn, kill) || Conn <- Conns],
    [ok = gen_tcp:close(Socket) || Socket <- Closed],
    until(fun() -> maps:get(bytes, weir_memcached_server:info(Server)) =:= 0 end),
    weir_memcached_server_test:exact(Server).

%% Killed at any step of large and small requests, two hundred of them: others notice nothing; nothing stays held; and
%% what is counted is wrong by one item for each that was killed, at most.
killed_beside_others(_Config) ->
    Server = start(#{memory => 32 bsl 20}),
    Large = binary:copy(<<"x">>, 300_000),
    Requests = ["set large 0 0 300000\r\n", Large, "\r\nget large\r\nset small 0 0 1\r\nx\r\nincr n 1\r\n"],
    Killed = with_bystander(Server, fun(Answered) ->
        %% That of the bystander, which is the first.
        until(fun() -> conns(Server) =/= [] end),
        [Spared] = conns(Server),
        Clients = [weir_kit:start(fun() -> reconnecting(Server, Requests) end) || _ <- lists:seq(1, 4)],
        Killed = kill_some(200, Spared, Server),
        Answered(100),
        lists:foreach(fun weir_kit:kill/1, Clients),
        until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =:= 1 end),
        Killed
    end),
    ?assertEqual(200, Killed),
    #{cmd_set := Sets} = weir_memcached_server:info(Server),
    ?assert(Sets > 200),
    until(fun() -> maps:get(connections, weir_memcached_server:info(Server)) =:= 0 end),
    #cache{shared = Shared} = Cache = weir_memcached_server_app:find(Server),
    weir_kit:none(still_held, [Held || {Pid, _} = Held <- ets:tab2list(Shared), is_pid(Pid)]),
    Sum = lists:sum([Cost || #item{cost = Cost} <- weir_memcached_server_test:items(Server)]),
    ?assert(abs(weir_memcached_server_memory:bytes(Cache) - Sum) =< 200 * 301_000).

%% Connects anew whenever its connection ends.
reconnecting(Server, Requests) ->
    Socket = connect(Server, [{linger, {true, 0}}]),
    until_killed(Socket, Requests),
    ok = gen_tcp:close(Socket),
    reconnecting(Server, Requests).

until_killed(Socket, Requests) ->
    case gen_tcp:send(Socket, [Requests, "mn\r\n"]) of
        ok ->
            case received(Socket, <<>>) of
                ok -> until_killed(Socket, Requests);
                ended -> ok
            end;
        {error, _} ->
            ok
    end.

received(Socket, Before) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, More} ->
            Last = <<Before/binary, More/binary>>,
            Size = byte_size(Last),
            case Size >= 4 andalso binary_part(Last, Size - 4, 4) =:= <<"MN\r\n">> of
                true -> ok;
                false -> received(Socket, binary_part(Last, max(0, Size - 3), min(3, Size)))
            end;
        {error, _} ->
            ended
    end.

%% Any but that one.
kill_some(0, _Spared, _Server) -> 0;
kill_some(N, Spared, Server) ->
    %% After some bytes have come, so that they get somewhere.
    #{bytes_read := Read} = weir_memcached_server:info(Server),
    until(fun() ->
        maps:get(bytes_read, weir_memcached_server:info(Server)) > Read + 100_000 andalso
            conns(Server) -- [Spared] =/= []
    end),
    [Victim | _] = lists:sort(fun(_, _) -> rand:uniform(2) =:= 1 end, conns(Server) -- [Spared]),
    %% Some reductions of ours, not the same each time.
    _ = lists:seq(1, N rem 50 * 200),
    exit(Victim, kill),
    1 + kill_some(N - 1, Spared, Server).

killed_acceptors(_Config) ->
    Server = start(),
    Socket = connect(Server),
    _ = ask(Socket, "set k 0 0 1\r\nx\r\n"),
    kill(child(Server, {acceptor, 1})),
    ?assertEqual(<<>>, closed(Socket)),
    until(fun() -> answers(Server) end),
    ?assertEqual(<<"VALUE k 0 1\r\nx\r\nEND\r\n">>, ask(connect(Server), "get k\r\n")).

answers(Server) ->
    case gen_tcp:connect({127, 0, 0, 1}, weir_memcached_server:port(Server), [binary, {active, false}]) of
        {ok, Socket} ->
            _ = gen_tcp:send(Socket, "mn\r\n"),
            Answer = gen_tcp:recv(Socket, 0, weir_kit:wait_ms()),
            gen_tcp:close(Socket),
            Answer =:= {ok, <<"MN\r\n">>};
        {error, _} ->
            false
    end.

%% A process that was started for a connection, and got none, ends by itself; until then it counts for nothing.
killed_between_accept_and_handover(_Config) ->
    Server = start(#{max_connections => 1}),
    {ok, Orphan} = weir_memcached_server_conns:start_conn(weir_memcached_server_app:find(Server)),
    Monitor = monitor(process, Orphan),
    ?assertEqual(<<>>, ask(connect(Server), "")),
    receive {'DOWN', Monitor, process, Orphan, Reason} -> ?assertEqual(normal, Reason) end.

killed_listener(_Config) ->
    Server = start(),
    Port = weir_memcached_server:port(Server),
    kill(child(Server, listener)),
    until(fun() -> answers(Server) end),
    ?assertEqual(Port, weir_memcached_server:port(Server)).

killed_conns(_Config) ->
    Server = start(),
    Socket = connect(Server),
    _ = ask(Socket, ""),
    kill(child(Server, conns)),
    ?assertEqual(<<>>, closed(Socket)),
    until(fun() -> answers(Server) end).

child(Server, Id) ->
    {Id, Pid, _, _} = lists:keyfind(Id, 1, supervisor:which_children(Server)),
    Pid.

conns(Server) -> [Pid || {_, Pid, _, _} <- supervisor:which_children(child(Server, conns)), is_pid(Pid)].

%% ---------------------------------------------------------------- the life of a server

options(_Config) ->
    [
        ?assertEqual({error, {bad_option, Key, Value}}, weir_memcached_server:start_link(Options))
     || {Options, Key, Value} <- [
            {#{prot => 1}, prot, 1}, {[{port, -1}], port, -1}, {#{port => 65_536}, port, 65_536},
                {#{ip => "localhost"}, ip, "localhost"},
            {#{path => ""}, path, ""}, {#{mode => 8#1000}, mode, 8#1000},
                {#{memory => (1 bsl 20) - 1}, memory, (1 bsl 20) - 1},
            {#{max_item => 1023}, max_item, 1023}, {#{memory => 1 bsl 20, max_item => (1 bsl 19) + 1}, max_item,
                (1 bsl 19) + 1},
            {#{max_connections => 0}, max_connections, 0}, {#{backlog => 0}, backlog, 0}, {#{evict => 1}, evict, 1},
            {#{auth => []}, auth, []}, {#{auth => [{"a", "b"}]}, auth, [{"a", "b"}]},
                {#{auth => [{<<"a b">>, <<"c">>}]}, auth, [{<<"a b">>, <<"c">>}]},
            {#{tls => []}, tls, []}, {#{idle_timeout => 0}, idle_timeout, 0}, {#{send_timeout => -1}, send_timeout, -1},
            {#{flush => yes}, flush, yes}, {#{debug => 1}, debug, 1}, {#{name => "a"}, name, "a"},
                {nonsense, options, nonsense},
            {#{path => lists:duplicate(108, $p)}, path, lists:duplicate(108, $p)},
            {#{path => binary:copy(<<"p">>, 108)}, path, binary:copy(<<"p">>, 108)},
            {#{path => lists:duplicate(54, 228)}, path, lists:duplicate(54, 228)},
            {#{path => <<0, "abstract">>}, path, <<0, "abstract">>}, {#{path => <<"a", 0>>}, path, <<"a", 0>>},
            {#{auth => {file, <<"a", 0>>}}, auth, {file, <<"a", 0>>}},
            {#{backlog => 1 bsl 31}, backlog, 1 bsl 31}, {#{backlog => 1 bsl 40}, backlog, 1 bsl 40},
            {#{b => 1, a => 2}, a, 2}
        ]
    ],
    Good = [
        #{memory => 1 bsl 20}, #{memory => 1 bsl 20, max_item => 1 bsl 19}, #{max_item => 1024}, [{port, 0}, {port, x}],
            [],
        #{idle_timeout => infinity, send_timeout => 1}, #{backlog => (1 bsl 31) - 1}
    ],
    [
        begin
            {ok, Server} = weir_memcached_server:start_link(Options),
            ok = weir_memcached_server:stop(Server)
        end
     || Options <- Good
    ].

not_started(_Config) ->
    ok = application:stop(weir_memcached_server),
    ?assertEqual({error, {not_started, weir_memcached_server}}, weir_memcached_server:start_link(#{})),
    ?assertEqual([], weir_memcached_server:servers()),
    ?assertExit({noproc, {weir_memcached_server, info, _}}, weir_memcached_server:info(self())),
    ok = application:start(weir_memcached_server),
    case weir_socket:backend() of
        epoll ->
            process_flag(trap_exit, true),
            ok = application:stop(weir_socket),
            ?assertEqual({error, {not_started, weir_socket}}, weir_memcached_server:start_link(#{})),
            ok = application:start(weir_socket);
        gen_tcp ->
            ok
    end.

%% No server is left that nobody can ask for, and its port is free.
application_stopped(_Config) ->
    Servers = [start(), start(#{name => ?MODULE})],
    Port = weir_memcached_server:port(?MODULE),
    Socket = connect(?MODULE),
    ?assertEqual(<<>>, ask(Socket, "")),
    Monitors = [monitor(process, Server) || Server <- Servers],
    ok = application:stop(weir_memcached_server),
    %% They have ended when this returns.
    ?assertNot(lists:any(fun is_process_alive/1, Servers)),
    [receive {'DOWN', Monitor, process, _, Reason} -> ?assertEqual(normal, Reason) end || Monitor <- Monitors],
    ?assertEqual(<<>>, closed(Socket)),
    ok = application:start(weir_memcached_server),
    ?assertEqual([], weir_memcached_server:servers()),
    ?assertEqual(Port, weir_memcached_server:port(start(#{port => Port}))).

%% Whoever starts one while the application is being stopped gets none, or one that is stopped with it.
started_while_stopping(_Config) ->
    [
        begin
            %% To stop with so many takes a while.
            _ = [start() || _ <- lists:seq(1, 50)],
            Starters = [weir_kit:start(fun() -> starts([]) end) || _ <- lists:seq(1, 4)],
            until(fun() -> length(weir_memcached_server:servers()) > 60 end),
            ok = application:stop(weir_memcached_server),
            Started = lists:append([weir_kit:result(Starter) || Starter <- Starters]),
            ok = application:start(weir_memcached_server),
            weir_kit:none(left_alive, [Server || Server <- Started, is_process_alive(Server)])
        end
     || _ <- lists:seq(1, 5)
    ].

%% Until there is no application any more.
starts(Servers) ->
    case weir_memcached_server:start_link(#{}) of
        {ok, Server} -> true = unlink(Server), starts([Server | Servers]);
        {error, {not_started, weir_memcached_server}} -> Servers
    end.

addresses(_Config) ->
    Server = start(#{ip => {127, 0, 0, 2}}),
    ?assertEqual(<<>>, ask(connect({{127, 0, 0, 2}, weir_memcached_server:port(Server)}), "")),
    case weir_memcached_server:start_link(#{ip => {0, 0, 0, 0, 0, 0, 0, 1}}) of
        {ok, Six} ->
            ?assertEqual(<<>>, ask(connect({{0, 0, 0, 0, 0, 0, 0, 1}, weir_memcached_server:port(Six)}, [inet6]), "")),
            ok = weir_memcached_server:stop(Six);
        {error, {listen, _, Reason}} ->
            %% A machine without it.
            ?assert(lists:member(Reason, [eaddrnotavail, eafnosupport]))
    end.

unix_socket(Config) ->
    %% The path of such a socket is 107 bytes long at most.
    {unix, linux} =:= os:type() andalso longest_path(),
    Path = "/tmp/weir_memcached_server_" ++ os:getpid(),
    _ = ?config(priv_dir, Config),
    Server = start(#{path => Path, mode => 8#640}),
    ?assertEqual(Path, weir_memcached_server:port(Server)),
    {ok, Info} = file:read_file_info(Path),
    ?assertEqual(8#640, element(8, Info) band 8#777),
    Socket = connect({{local, Path}, 0}, [local]),
    ?assertEqual(<<"STORED\r\n">>, ask(Socket, "set k 0 0 1\r\nx\r\n")),
    %% Somebody listens there.
    process_flag(trap_exit, true),
    ?assertEqual({error, {listen, {local, Path}, eaddrinuse}}, weir_memcached_server:start_link(#{path => Path})),
    ok = weir_memcached_server:stop(Server),
    ?assertNot(filelib:is_file(Path)),
    %% One that was killed leaves its file behind, which is no obstacle.
    {ok, Killed} = weir_memcached_server:start_link(#{path => list_to_binary(Path)}),
    Listener = child(Killed, listener),
    kill(Killed),
    kill(Listener),
    {ok, Next} = weir_memcached_server:start_link(#{path => Path}),
    ?assertEqual(<<>>, ask(connect({{local, Path}, 0}, [local]), "")),
    ok = weir_memcached_server:stop(Next),
    %% What is no socket is left alone.
    ok = file:write_file(Path, "precious"),
    ?assertMatch({error, {listen, {local, Path}, eaddrinuse}}, weir_memcached_server:start_link(#{path => Path})),
    ?assertEqual({ok, <<"precious">>}, file:read_file(Path)),
    ok = file:delete(Path).

longest_path() ->
    Begin = "/tmp/weir_memcached_server_" ++ os:getpid() ++ "_",
    Path = Begin ++ lists:duplicate(107 - length(Begin), $p),
    Server = start(#{path => Path}),
    ?assertEqual(<<>>, ask(connect({{local, Path}, 0}, [local]), "")),
    ok = weir_memcached_server:stop(Server).

address_taken(_Config) ->
    process_flag(trap_exit, true),
    Port = weir_memcached_server:port(start()),
    ?assertEqual({error, {listen, {{127, 0, 0, 1}, Port}, eaddrinuse}},
        weir_memcached_server:start_link(#{port => Port})).

%% One that holds the address a little longer, as a server does that was killed.
address_let_go(_Config) ->
    Path = "/tmp/weir_memcached_server_" ++ os:getpid() ++ "_let_go",
    [until(fun() -> let_go(start(Options), Path) end) || Options <- [#{}, #{path => Path}]].

%% Whether the next one has got it. Not if this process had no turn until that had given up.
let_go(First, Path) ->
    Listener = child(First, listener),
    Next = case weir_memcached_server:port(First) of Path -> #{path => Path}; Port -> #{port => Port} end,
    %% It closes its socket when it goes on.
    true = erlang:suspend_process(Listener),
    exit(First, kill),
    Self = self(),
    Starter = spawn_link(fun() ->
        process_flag(trap_exit, true),
        Self ! {self(), weir_memcached_server:start_link(Next)},
        receive stop -> ok end
    end),
    %% It has found the address in use, or given up already.
    until(fun() -> waits(Starter) orelse has_message(Starter) end),
    true = erlang:resume_process(Listener),
    _ = await_down(Listener),
    Result = receive {Starter, R} -> R end,
    IsThere =
        case Result of
            {ok, Server} ->
                Address = case Next of #{path := _} -> {{local, Path}, 0}; _ -> Server end,
                ?assertEqual(<<>>, ask(connect(Address, [local || is_map_key(path, Next)]), "")),
                ok = weir_memcached_server:stop(Server),
                true;
            {error, {listen, _, eaddrinuse}} ->
                false
        end,
    Starter ! stop,
    IsThere.

has_message(From) ->
    lists:keymember(From, 1, weir_kit:messages()).

%% Its listener is in the pause between two tries.
waits(Starter) ->
    {links, Links} = process_info(Starter, links),
    Processes = [Pid || Pid <- Links, is_pid(Pid), Pid =/= self()],
    lists:any(
        fun(Pid) ->
            process_info(Pid, current_function) =:=
                {current_function, {weir_memcached_server_listener, listen_within, 3}}
        end,
        Processes ++ [Linked || Pid <- Processes, {links, L} <- [process_info(Pid, links)], Linked <- L, is_pid(Linked)]
    ).

%% Each time its supervisor starts it again, at the same port, at the first try.
killed_under_a_supervisor(_Config) ->
    Port = free_port(),
    Kills = 20,
    {ok, Sup} = supervisor:start_link(weir_memcached_server_test_sup, {#{intensity => Kills, period => 3_600},
        [weir_memcached_server:child_spec(#{port => Port})]}),
    lists:foldl(
        fun(_, Before) ->
            exit(Before, kill),
            until(fun() ->
                case supervisor:which_children(Sup) of
                    [{_, Pid, _, _}] when is_pid(Pid) -> Pid =/= Before;
                    _ -> false
                end
            end),
            [{_, Server, _, _}] = supervisor:which_children(Sup),
            ?assertEqual(Port, weir_memcached_server:port(Server)),
            Server
        end,
        hd(weir_memcached_server:servers()),
        lists:seq(1, Kills)
    ),
    ok = gen_server:stop(Sup).

free_port() ->
    Server = start(),
    Port = weir_memcached_server:port(Server),
    ok = weir_memcached_server:stop(Server),
    Port.

name_taken(_Config) ->
    {ok, Pid} = weir_memcached_server:start_link(#{name => ?MODULE}),
    ?assertEqual({error, {already_started, Pid}}, weir_memcached_server:start_link(#{name => ?MODULE})),
    ?assert(is_integer(weir_memcached_server:port(?MODULE))),
    ok = weir_memcached_server:stop(?MODULE),
    ?assertEqual(undefined, whereis(?MODULE)).

under_a_supervisor(_Config) ->
    [
        begin
            {ok, Sup} = supervisor:start_link(weir_memcached_server_test_sup,
                [weir_memcached_server:child_spec(Options)]),
            [Server] = weir_memcached_server:servers(),
            ?assertEqual(<<>>, ask(connect(Server), "")),
            ok = gen_server:stop(Sup),
            ?assertEqual([], weir_memcached_server:servers())
        end
     || Options <- [#{}, [{port, 0}], #{name => ?MODULE}]
    ],
    #{id := {weir_memcached_server, cache}} = weir_memcached_server:child_spec([{name, cache}]),
    ?assertError(badarg, weir_memcached_server:child_spec(nonsense)).

stop_by_several(_Config) ->
    Server = start(),
    ?assertEqual(
        [ok || _ <- lists:seq(1, 20)],
        weir_kit:in_parallel([
            fun() ->
                try
                    weir_memcached_server:stop(Server)
                catch
                    exit:{noproc, _} -> ok
                end
            end
         || _ <- lists:seq(1, 20)
        ])
    ).

%% Whatever it is, by its pid and by its name.
stops_no_stranger(_Config) ->
    {ok, Sup} = supervisor:start_link({local, ?MODULE}, weir_memcached_server_test_sup, []),
    Plain = spawn_link(fun() -> receive stop -> ok end end),
    Gone = spawn(fun() -> ok end),
    _ = await_down(Gone),
    Server = start(),
    [
        ?assertExit({noproc, {weir_memcached_server, stop, [Stranger]}}, weir_memcached_server:stop(Stranger))
     || Stranger <- [Sup, ?MODULE, Plain, Gone, child(Server, conns), child(Server, keeper), whereis(kernel_sup),
            kernel_sup, whereis(weir_memcached_server_app)]
    ],
    [?assert(is_process_alive(Pid)) || Pid <- [Sup, Plain, child(Server, conns), child(Server, keeper)]],
    Plain ! stop,
    ok = gen_server:stop(Sup).

noproc(_Config) ->
    Server = start(),
    ok = weir_memcached_server:stop(Server),
    [
        ?assertExit({noproc, {weir_memcached_server, Function, [Server | Args]}},
            apply(weir_memcached_server, Function, [Server | Args]))
     || {Function, Args} <- [{info, []}, {port, []}, {advance, [1]}]
    ],
    [?assertExit({noproc, _}, weir_memcached_server:Function(no_such_server)) || Function <- [info, port, stop]].

%% Those that were killed are none.
servers(_Config) ->
    ?assertEqual([], weir_memcached_server:servers()),
    [A, B] = [start(), start()],
    ?assertEqual(lists:sort([A, B]), lists:sort(weir_memcached_server:servers())),
    kill(A),
    ?assertEqual([B], weir_memcached_server:servers()),
    C = start(),
    ?assertEqual(lists:sort([B, C]), lists:sort(weir_memcached_server:servers())),
    %% Nor is anything left of them when another one has started, or the application has stopped.
    ?assertEqual(lists:sort([B, C]), lists:sort(shared())),
    [ok = weir_memcached_server:stop(Server) || Server <- [B, C]],
    D = start(),
    ?assertEqual([D], shared()),
    ok = weir_memcached_server:stop(D),
    ok = application:stop(weir_memcached_server),
    ?assertEqual([], shared()),
    ok = application:start(weir_memcached_server).

%% Those whose constants are persistent terms.
shared() -> [Server || {{weir_memcached_server_app, Server}, _} <- persistent_term:get()].

%% Every counter is told, and is a number.
info(_Config) ->
    Server = start(),
    Socket = connect(Server),
    _ = ask(Socket, "set k 0 0 1\r\nx\r\nget k\r\nget z\r\n"),
    %% What is written is counted afterwards.
    until(fun() -> maps:get(bytes_written, weir_memcached_server:info(Server)) > 20 end),
    Info = weir_memcached_server:info(Server),
    #{items := 1, connections := 1, get_hits := 1, get_misses := 1, memory := 67_108_864, bytes_read := Read} = Info,
    ?assert(Read > 20),
    ?assert(lists:all(fun is_integer/1, maps:values(Info))),
    Counters = [Name || {Name, _, counter, [_ | _]} <- weir_memcached_server_counts:fields()],
    ?assertEqual([], Counters -- maps:keys(Info)),
    ?assertEqual(length(Counters),
        length(lists:usort([Index || {_, Index, _, _} <- weir_memcached_server_counts:fields()]))).

%% The processes answer as OTP's do.
sys(_Config) ->
    Server = start(),
    Socket = connect(Server),
    _ = ask(Socket, ""),
    Processes = [child(Server, keeper), child(Server, listener) | conns(Server)],
    [
        begin
            {status, Pid, _, _} = sys:get_status(Pid, infinity),
            ok = sys:suspend(Pid, infinity),
            Module = hd([M || {initial_call, {M, _, _}} <- [proc_lib_call(Pid)]]),
            ok = sys:change_code(Pid, Module, undefined, [], infinity),
            ok = sys:resume(Pid, infinity),
            {error, unknown_call} = gen_server:call(Pid, nonsense, infinity),
            ok = gen_server:cast(Pid, nonsense),
            Pid ! nonsense
        end
     || Pid <- Processes
    ],
    ?assertEqual(<<"STORED\r\n">>, ask(Socket, "set k 0 0 1\r\nx\r\n")).

%% An upgrade, which runs init/1 of supervisors again, leaves connections and items as they are; and what is started
%% anew afterwards finds them.
upgraded(_Config) ->
    Server = start(),
    Socket = connect(Server),
    ?assertEqual(<<"STORED\r\n">>, ask(Socket, "set k 0 0 1\r\nx\r\n")),
    [
        begin
            ok = sys:suspend(Pid, infinity),
            ok = sys:change_code(Pid, Module, undefined, [], infinity),
            ok = sys:resume(Pid, infinity)
        end
     || {Pid, Module} <- [
            {whereis(weir_memcached_server_app), weir_memcached_server_app},
            {Server, weir_memcached_server_sup},
            {child(Server, conns), weir_memcached_server_conns}
            | [{Conn, weir_memcached_server_conn} || Conn <- conns(Server)]
        ]
    ],
    ?assertEqual(<<"VALUE k 0 1\r\nx\r\nEND\r\n">>, ask(Socket, "get k\r\n")),
    ?assertEqual(<<"VALUE k 0 1\r\nx\r\nEND\r\n">>, ask(connect(Server), "get k\r\n")),
    kill(child(Server, keeper)),
    ?assertEqual(<<>>, closed(Socket)),
    until(fun() -> answers(Server) end),
    ?assertEqual(<<"VALUE k 0 1\r\nx\r\nEND\r\n">>, ask(connect(Server), "get k\r\n")).

proc_lib_call(Pid) ->
    {M, init, _} = proc_lib:translate_initial_call(Pid),
    {initial_call, {M, init, 1}}.

status_tells_no_secrets(_Config) ->
    Server = start(#{auth => [{<<"ada">>, <<"secret">>}]}),
    Socket = connect(Server),
    send(Socket, "set k 0 0 10\r\nada secr"),
    until(fun() -> maps:get(bytes_read, weir_memcached_server:info(Server)) =:= 22 end),
    Conn = hd(conns(Server)),
    Status = sys:get_status(Conn, infinity),
    ?assertEqual(nomatch, string:find(printed(Status), "secr")),
    %% It is told nevertheless what this is.
    ?assertNotEqual(nomatch, string:find(printed(Status), "transport => weir_memcached_server_wire")),
    ?assertEqual(nomatch, string:find(printed(Status), "unknown keys")),
    %% With the log of sys, where messages are kept; the process itself tells nothing of them, and sys does.
    ok = sys:log(Conn, true, infinity),
    send(Socket, "e"),
    until(fun() -> maps:get(bytes_read, weir_memcached_server:info(Server)) =:= 23 end),
    {status, Conn, _, [_Dictionary, running, _Parent, _Debug, Own]} = sys:get_status(Conn, infinity),
    ?assertEqual(nomatch, string:find(printed(Own), "secr")).

printed(Term) -> unicode:characters_to_list(io_lib:format("~p", [Term])).

%% Nor do the reports of one that has crashed.
crash_tells_no_secrets(_Config) ->
    Server = start(#{auth => [{<<"ada">>, <<"secret">>}]}),
    Socket = connect(Server),
    send(Socket, "set k 0 0 10\r\nada sec"),
    until(fun() -> maps:get(bytes_read, weir_memcached_server:info(Server)) =:= 21 end),
    [Conn] = conns(Server),
    %% With something in its state that makes it crash at the next message, before that is given to anybody.
    _ = sys:replace_state(Conn, fun(State) -> setelement(2, State, no_cache) end, infinity),
    Self = self(),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => #{to => Self}}),
    Monitor = monitor(process, Conn),
    send(Socket, "ret\r\n"),
    receive {'DOWN', Monitor, process, Conn, Reason} -> ?assertNotEqual(normal, Reason) end,
    Reports = reports(Conn, []),
    ok = logger:remove_handler(?MODULE),
    [
        begin
            ?assertEqual(nomatch, string:find(Report, Secret), Report),
            ?assertEqual(nomatch, string:find(Report, "unknown keys"), Report)
        end
     || Report <- Reports, Secret <- ["sec", "ret\r\n", "ret\\r"]
    ],
    ?assert(lists:any(fun(Report) -> string:find(Report, "bytes,5") =/= nomatch end, Reports), Reports).

%% That of gen_server and that of proc_lib.
reports(Conn, [_, _] = Reports) -> _ = Conn, Reports;
reports(Conn, Reports) ->
    receive
        {log, #{meta := #{pid := Conn}} = Event} -> reports(Conn, [formatted(Event) | Reports]);
        {log, _} -> reports(Conn, Reports)
    end.

formatted(Event) ->
    unicode:characters_to_list([
        logger_formatter:format(Event, #{single_line => false}), io_lib:format("~p", [maps:get(msg, Event)])
    ]).

%% @private The callback of logger.
log(Event, #{config := #{to := Pid}}) -> Pid ! {log, Event}.

%% The commands of a block are answered by one send.
one_answer_for_a_block(_Config) ->
    Server = start(),
    Socket = connect(Server, [{packet, raw}]),
    _ = ask(Socket, ""),
    [Conn] = conns(Server),
    Wire = element(5, sys:get_state(Conn, infinity)),
    {ok, [{send_cnt, Before}]} = weir_socket:getstat(Wire, [send_cnt]),
    _ = ask(Socket, [lists:duplicate(100, "set k 0 0 1\r\nx\r\nget k\r\n")]),
    {ok, [{send_cnt, After}]} = weir_socket:getstat(Wire, [send_cnt]),
    ?assert(After - Before < 10, After - Before).

%% As a program: what cannot be written is told, and no more than that.
pid_file(Config) ->
    Dir = ?config(priv_dir, Config),
    File = filename:join([Dir, "none", "pid"]),
    Program = open_port({spawn_executable, os:find_executable("erl")}, [
        stderr_to_stdout, exit_status, binary, {cd, Dir},
        {args, ["-noinput", "-pa"] ++ code:get_path() ++ [
            "-eval", "weir_memcached_server_main:main(init:get_plain_arguments()).", "-extra", "-p", "-1", "-P", File
        ]}
    ]),
    ?assertEqual({1, "memcached: could not open the pid file " ++ File ++ " for writing: no such file or directory\n"},
        told(Program, <<>>)).

told(Program, Before) ->
    receive
        {Program, {data, More}} -> told(Program, <<Before/binary, More/binary>>);
        {Program, {exit_status, Status}} -> {Status, unicode:characters_to_list(Before)}
    end.
