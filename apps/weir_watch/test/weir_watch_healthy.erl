%% A mixed load in which nothing is wrong: what nodes do all day, at half of what two cores can.
-module(weir_watch_healthy).

-export([start/0]).

-define(SERVER, weir_watch_form_server).

start() ->
    Servers = [element(2, ?SERVER:start(fun() -> #{} end, fun work/2)) || _ <- lists:seq(1, 10)],
    {ok, Pool} = weir_watch_form_pool:start(16),
    Table = ets:new(healthy, [public, {write_concurrency, true}]),
    Port = weir_watch_forms:echo(0),
    _ = [spawn(fun() -> every(10, fun() -> gen_server:call(any(Servers), {get, I}, weir_kit:wait_ms()) end) end)
        || I <- lists:seq(1, 200)],
    _ = [spawn(fun() -> every(5, fun() -> gen_server:cast(any(Servers), {put, I}) end) end) || I <- lists:seq(1, 100)],
    _ = [spawn(fun() -> every(50, fun() -> weir_watch_form_pool:with(Pool, fun(_) -> timer:sleep(5) end) end) end)
        || _ <- lists:seq(1, 50)],
    _ = [spawn(fun() -> every(20, fun() -> ets:update_counter(Table, I, 1, {I, 0}) end) end) || I <- lists:seq(1, 50)],
    _ = [spawn(fun() -> client(Port) end) || _ <- lists:seq(1, 20)],
    _ = spawn(fun() -> every(10, fun() -> [spawn(fun() -> timer:sleep(100) end) || _ <- lists:seq(1, 20)] end) end),
    %% A batch of messages now and then, and a collection.
    _ = spawn(fun() -> every(3000, fun() -> [gen_server:cast(hd(Servers), {put, I}) || I <- lists:seq(1,
        3000)] end) end),
    _ = spawn(fun() -> every(2000, fun() -> _ = lists:sort(lists:seq(1, 300_000)) end) end),
    %% Sessions that wait for something to come, and know when their room is gone; the room knows them as well.
    Room = spawn(fun() -> room([]) end),
    _ = [spawn(fun() -> session(Room) end) || _ <- lists:seq(1, 50)],
    %% Workers that wait for a job in a call; the queue, in which there is none, knows them.
    {ok, Jobs} = weir_watch_form_pool:start(0),
    _ = [spawn(fun() -> weir_watch_form_pool:with(Jobs, fun(_) -> ok end) end) || _ <- lists:seq(1, 50)],
    %% Keeps the table.
    _ = [ets:give_away(Table, hd(Servers), none)],
    ok = others(),
    ok = weirs().

%% A log, a state machine, and connections with TLS.
others() ->
    ok = logger:set_primary_config(level, notice),
    ok = logger:add_handler(healthy, logger_std_h, #{config => #{file => file("logger")}}),
    _ = [spawn(fun() -> every(20, fun() -> logger:notice("~p is well", [self()]) end) end) || _ <- lists:seq(1, 10)],
    {ok, Machine} = weir_watch_form_statem:start(fun() -> none end, fun work/2),
    _ = [spawn(fun() -> every(10, fun() -> gen_statem:call(Machine, work) end) end) || _ <- lists:seq(1, 10)],
    {ok, _} = application:ensure_all_started(ssl),
    Key = [{digest, sha256}, {key, {namedCurve, secp256r1}}],
    Chain = #{root => Key, intermediates => [], peer => Key},
    #{server_config := Server} = public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    Port = told_by(fun(Tell) ->
        {ok, Listener} = ssl:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}} | Server]),
        {ok, {_, Port}} = ssl:sockname(Listener),
        Tell(Port),
        accept_ssl(Listener)
    end),
    _ = [spawn(fun() -> client_ssl(Port) end) || _ <- lists:seq(1, 5)],
    ok.

accept_ssl(Listener) ->
    {ok, Accepted} = ssl:transport_accept(Listener),
    Pid = spawn(fun() ->
        receive go -> ok end,
        {ok, Socket} = ssl:handshake(Accepted),
        echo_ssl(Socket)
    end),
    ok = ssl:controlling_process(Accepted, Pid),
    Pid ! go,
    accept_ssl(Listener).

echo_ssl(Socket) ->
    {ok, Bytes} = ssl:recv(Socket, 0),
    ok = ssl:send(Socket, Bytes),
    echo_ssl(Socket).

client_ssl(Port) ->
    {ok, Socket} = ssl:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {verify, verify_none}]),
    every(20, fun() ->
        ok = ssl:send(Socket, <<"ping">>),
        {ok, _} = ssl:recv(Socket, 4)
    end).

%% Weir's own parts.
weirs() ->
    [{ok, _} = application:ensure_all_started(App) || App <- [weir_pool, weir_server, weir_flow, weir_log,
        weir_memcached, weir_memcached_server]],
    ok = weir_pool:start(healthy, #{size => 8, worker => {weir_watch_form_worker, start_link, [[]]}}),
    ok = persistent_term:put(weir_watch_form_worker, fun() -> ?SERVER:start(fun() -> none end, fun work/2) end),
    _ = [spawn(fun() -> every(20, fun() -> {ok, _} = weir_pool:claim(healthy, fun(_) -> timer:sleep(2) end,
        #{timeout => infinity}) end) end) || _ <- lists:seq(1, 20)],
    {ok, Server} = weir_server:start(?SERVER, {fun() -> none end, fun work/2}, []),
    _ = [spawn(fun() -> every(10, fun() -> gen_server:call(Server, work, weir_kit:wait_ms()) end) end)
        || _ <- lists:seq(1, 10)],
    _ = [spawn(fun() -> every(10, fun() -> weir_flow:cast(Server, work, 8) end) end) || _ <- lists:seq(1, 10)],
    {ok, _} = weir_log:open(healthy, #{file => file("weir_log"), newline => true}),
    _ = [spawn(fun() -> every(10, fun() -> weir_log:log(healthy, "written") end) end) || _ <- lists:seq(1, 10)],
    _ = [spawn(fun() -> every(10, fun() -> weir_log:alog(healthy, "soon") end) end) || _ <- lists:seq(1, 10)],
    up = told_by(fun(Tell) ->
        {ok, Memcached} = weir_memcached_server:start_link(#{}),
        {ok, _} = weir_memcached:start_link(healthy, #{
            host => {127, 0, 0, 1}, port => weir_memcached_server:port(Memcached), connections => 2
        }),
        Tell(up),
        timer:sleep(infinity)
    end),
    _ = [spawn(fun() -> every(10, fun() ->
        _ = weir_memcached:set(healthy, <<"key">>, I),
        _ = weir_memcached:get(healthy, <<"key">>)
    end) end) || I <- lists:seq(1, 20)],
    ok.

%% What a new process tells, which goes on.
told_by(Fun) ->
    Me = self(),
    Pid = spawn(fun() -> Fun(fun(What) -> Me ! {self(), What} end) end),
    receive {Pid, What} -> What end.

file(Name) -> filename:join(filename:basedir(user_cache, "weir_watch"), "healthy_" ++ Name ++ os:getpid()).

room(Sessions) -> receive {join, Pid} -> room([monitor(process, Pid) | Sessions]) end.

session(Room) ->
    _ = monitor(process, Room),
    Room ! {join, self()},
    receive never -> ok end.

work(_, State) ->
    weir_watch_forms:spin(2000),
    State.

any(Servers) -> lists:nth(rand:uniform(length(Servers)), Servers).

every(Ms, Fun) ->
    timer:sleep(rand:uniform(2 * Ms)),
    _ = Fun(),
    every(Ms, Fun).

client(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    every(20, fun() ->
        ok = gen_tcp:send(Socket, <<"ping">>),
        {ok, _} = gen_tcp:recv(Socket, 4)
    end).
