%% A mixed load in which nothing is wrong: what nodes do all day, at half of what two cores can.
-module(weir_watch_healthy).

-export([start/0]).

-define(SERVER, weir_watch_form_server).

start() ->
    Servers = [element(2, ?SERVER:start(fun() -> #{} end, fun work/2)) || _ <- lists:seq(1, 10)],
    {ok, Pool} = weir_watch_form_pool:start(16),
    Table = ets:new(healthy, [public, {write_concurrency, true}]),
    Port = listener(),
    _ = [spawn(fun() -> every(10, fun() -> gen_server:call(any(Servers), {get, I}) end) end) || I <- lists:seq(1, 200)],
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
    ok.

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

listener() ->
    Me = self(),
    _ = spawn(fun() ->
        {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 100}]),
        {ok, Port} = inet:port(Listener),
        Me ! {port, Port},
        accept(Listener)
    end),
    receive {port, Port} -> Port end.

accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Pid = spawn(fun() -> receive go -> echo(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listener).

echo(Socket) ->
    {ok, Bytes} = gen_tcp:recv(Socket, 0),
    ok = gen_tcp:send(Socket, Bytes),
    echo(Socket).

client(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    every(20, fun() ->
        ok = gen_tcp:send(Socket, <<"ping">>),
        {ok, _} = gen_tcp:recv(Socket, 4)
    end).
