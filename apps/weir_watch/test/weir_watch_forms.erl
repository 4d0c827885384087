%% Faults, three or more of each cause, to be started on a node of their own. A form is started by start/1 and told by
%% all/0: its name and the cause that is right. It returns the process that is at fault, as a pid or a name, or `node'
%% if that is the node. The node of a form of `sockets' has the library of weir_watch_form_poll.
-module(weir_watch_forms).

-export([all/0, start/1, spin/1, agent/0, echo/1]).

-define(SERVER, weir_watch_form_server).
-define(STATEM, weir_watch_form_statem).
-define(SOCKETS, 150).

all() ->
    [
        {busy_server, busy}, {busy_statem, busy}, {busy_sorter, busy}, {busy_callee, busy},
        {busy_callee_of_many, busy}, {busy_root, busy}, {weir_flow_bounded, busy}, {calls_and_monitors, blocking},
        {sleeping_server, blocking}, {calling_server, blocking}, {receiving_statem, blocking},
        {search_for_reply, searching}, {search_by_recv, searching}, {search_by_start, searching},
        {casts, flooded}, {events, flooded}, {plain_messages, flooded},
        {std_h, logger}, {disk_log, logger}, {disk_log_h, logger}, {weir_log_synced, logger},
        {client_in_turn, shared_client}, {client_that_pipelines, shared_client}, {client_that_receives, shared_client},
        {weir_memcached_slow, shared_client},
        {own_pool, small_pool}, {poolboy, small_pool}, {weir_pool, small_pool},
        {large_list, gc}, {large_map, gc}, {collector, gc},
        {ets_inserts, ets_lock}, {ets_counters, ets_lock}, {ets_lookups, ets_lock},
        {slow_reader, port}, {slow_program, port}, {slow_reader_of_statem, port},
        {far_casts, distribution}, {far_messages, distribution}, {far_statem, distribution},
        {nif_in_server, nif}, {nif_in_statem, nif}, {nif_alone, nif},
        {two_calls, deadlock}, {three_calls, deadlock}, {two_statems, deadlock},
        {deaf, backlog}, {suspended, backlog}, {waits_for_nothing, backlog},
        {tcp_active, sockets}, {tcp_passive, sockets}, {tcp_of_socket, sockets}, {udp, sockets}
    ].

%% Lets him search, however long that takes, and then wait for some third of that: he is seen to wait now and then, and
%% to search for most of the time, on a slow machine and on a quick one.
answer_who_waits(From, Tag) -> answer_who_waits(From, Tag, erlang:monotonic_time(millisecond)).

answer_who_waits(From, Tag, Since) ->
    timer:sleep(1),
    case process_info(From, status) of
        {status, waiting} ->
            %% He has waited already until that was noticed.
            timer:sleep(max(0, (erlang:monotonic_time(millisecond) - Since) div 3 - 2)),
            From ! {answer, Tag};
        _ ->
            answer_who_waits(From, Tag, Since)
    end.

%% Callers that call again and again.
callers(Number, Server) -> [proc_lib:spawn(fun() -> again(Server) end) || _ <- lists:seq(1, Number)].

again(Server) ->
    _ = gen_server:call(Server, work, infinity),
    again(Server).

forever(Fun) ->
    Fun(),
    forever(Fun).

%% So many reductions.
spin(0) -> ok;
spin(N) -> spin(N - 1).

none() -> none.

calling(Callee) -> fun(_, State) -> _ = gen_server:call(Callee, work, infinity), State end.

hot({ok, Pid}) ->
    _ = callers(20, Pid),
    Pid.

start(busy_server) -> hot(?SERVER:start(bank, fun none/0, fun(_, S) -> spin(300_000), S end)), bank;
start(busy_statem) -> hot(?STATEM:start(fun none/0, fun(_, S) -> spin(300_000), S end));
start(busy_sorter) ->
    hot(?SERVER:start(fun() -> [I * 7919 rem 100_003 || I <- lists:seq(1, 2000)] end, fun(_, S) -> _ = lists:sort(S),
        S end));
start(busy_callee) ->
    {ok, Callee} = ?SERVER:start(fun none/0, fun(_, S) -> spin(1_000_000), S end),
    _ = hot(?SERVER:start(fun none/0, fun(_, S) -> gen_server:call(Callee, work, infinity), S end)),
    Callee;
start(busy_callee_of_many) ->
    {ok, Callee} = ?SERVER:start(fun none/0, fun(_, S) -> spin(1_000_000), S end),
    _ = [hot(?SERVER:start(fun none/0, calling(Callee))) || _ <- lists:seq(1, 4)],
    Callee;
start(busy_root) ->
    {ok, Root} = ?SERVER:start(fun none/0, fun(_, S) -> spin(1_000_000), S end),
    {ok, Between} = ?SERVER:start(fun none/0, calling(Root)),
    _ = hot(?SERVER:start(fun none/0, calling(Between))),
    Root;
%% Its mailbox is kept short: the senders wait.
start(weir_flow_bounded) ->
    {ok, _} = application:ensure_all_started(weir_flow),
    {ok, Pid} = ?SERVER:start(fun none/0, fun(_, S) -> spin(100_000), S end),
    _ = [spawn(fun() -> forever(fun() -> weir_flow:cast(Pid, work, 8) end) end) || _ <- lists:seq(1, 60)],
    Pid;
%% It monitors one who waits for it, and calls another.
start(calls_and_monitors) ->
    {ok, Slow} = ?SERVER:start(fun none/0, fun(_, S) -> timer:sleep(20), S end),
    {ok, Pid} = ?SERVER:start(fun none/0, calling(Slow)),
    [Client | _] = callers(20, Pid),
    _ = sys:replace_state(Pid, fun(State) -> _ = monitor(process, Client), State end, weir_kit:wait_ms()),
    Pid;
start(sleeping_server) -> hot(?SERVER:start(fun none/0, fun(_, S) -> timer:sleep(20), S end));
start(calling_server) ->
    {ok, Callee} = ?SERVER:start(fun none/0, fun(_, S) -> timer:sleep(20), S end),
    hot(?SERVER:start(fun none/0, fun(_, S) -> gen_server:call(Callee, work, infinity), S end));
start(receiving_statem) ->
    Slow = spawn(fun() -> forever(fun() -> receive {From, Ref} -> timer:sleep(20), From ! Ref end end) end),
    hot(?STATEM:start(fun none/0, fun(_, S) ->
        Slow ! {self(), make_ref()},
        receive Ref when is_reference(Ref) -> S end
    end));
start(search_for_reply) ->
    %% It answers when the search is over: who never has to wait is not known to search.
    Helper = spawn(fun() -> forever(fun() -> receive {From, Tag} -> answer_who_waits(From, Tag) end end) end),
    backlog(?SERVER:start(fun none/0, fun(_, S) -> Helper ! {self(), x}, receive {answer, x} -> S end end), 1_000_000);
start(search_by_recv) ->
    Port = echo(0),
    Connect = fun() ->
        {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
        Socket
    end,
    backlog(?SERVER:start(Connect, fun(_, S) -> ok = gen_tcp:send(S, <<"x">>), {ok, _} = gen_tcp:recv(S, 1), S end),
        300_000);
start(search_by_start) ->
    Task = fun() -> proc_lib:start(proc_lib, init_ack, [{ok, self()}]) end,
    backlog(?SERVER:start(fun none/0, fun(_, S) -> _ = Task(), S end), 300_000);
start(casts) ->
    {ok, Pid} = ?SERVER:start(fun none/0, fun(_, S) -> spin(3000), S end),
    flood(fun() -> gen_server:cast(Pid, {add, 1}) end, Pid);
start(events) ->
    {ok, Pid} = gen_event:start(),
    ok = gen_event:add_handler(Pid, weir_watch_form_handler, []),
    flood(fun() -> gen_event:notify(Pid, {add, 1}) end, Pid);
start(plain_messages) ->
    Pid = spawn(fun() -> forever(fun() -> receive _ -> spin(3000) end end) end),
    flood(fun() -> Pid ! {add, 1} end, Pid);
start(std_h) -> logging(logger_std_h, #{file => file("std_h"), sync_mode_qlen => 5, drop_mode_qlen => 100_000,
    flush_qlen => 100_000});
start(disk_log_h) -> logging(logger_disk_log_h, #{file => file("disk_log_h"), sync_mode_qlen => 5,
    drop_mode_qlen => 100_000, flush_qlen => 100_000});
start(disk_log) ->
    {ok, Log} = disk_log:open([{name, forms}, {file, file("disk_log")}]),
    _ = [spawn(fun() -> forever(fun() -> ok = disk_log:log(Log, {entry, lists:seq(1,
        30)}) end) end) || _ <- lists:seq(1, 30)],
    any_of([disk_log]);
start(weir_log_synced) ->
    {ok, _} = application:ensure_all_started(weir_log),
    {ok, _} = weir_log:open(forms, #{file => file("weir_log"), ack => synced}),
    _ = [spawn(fun() -> forever(fun() -> weir_log:log(forms, "entry") end) end) || _ <- lists:seq(1, 60)],
    any_of([weir_log_writer]);
start(client_in_turn) ->
    Port = echo(20),
    hot(?SERVER:start(connect(Port, false), fun(_, S) -> ok = gen_tcp:send(S, <<"x">>), {ok, _} = gen_tcp:recv(S, 1),
        S end));
start(client_that_receives) ->
    Port = echo(20),
    hot(?SERVER:start(connect(Port, true), fun(_, S) -> ok = gen_tcp:send(S, <<"x">>), receive {tcp, S, _} ->
        S end end));
start(client_that_pipelines) ->
    Port = echo(300),
    {ok, Pid} = weir_watch_form_client:start(Port),
    hot({ok, Pid});
%% Its client pipelines; between it and the server is one that lets a packet through each 20 milliseconds.
start(weir_memcached_slow) ->
    [{ok, _} = application:ensure_all_started(App) || App <- [weir_memcached, weir_memcached_server]],
    Me = self(),
    _ = spawn(fun() ->
        {ok, Server} = weir_memcached_server:start_link(#{}),
        Through = connect(weir_memcached_server:port(Server), false),
        Port = listener(fun(Socket) ->
            Behind = Through(),
            forever(fun() ->
                {ok, Bytes} = gen_tcp:recv(Socket, 0),
                timer:sleep(20),
                ok = gen_tcp:send(Behind, Bytes),
                {ok, Answer} = gen_tcp:recv(Behind, 0),
                ok = gen_tcp:send(Socket, Answer)
            end)
        end),
        {ok, _} = weir_memcached:start_link(cache, #{host => {127, 0, 0, 1}, port => Port, connections => 1}),
        Me ! up,
        timer:sleep(infinity)
    end),
    receive up -> ok end,
    _ = [spawn(fun() -> forever(fun() -> weir_memcached:get(cache, <<"key">>) end) end) || _ <- lists:seq(1, 60)],
    any_of([weir_memcached_conn]);
start(own_pool) ->
    {ok, Pool} = weir_watch_form_pool:start(2),
    _ = [spawn(fun() -> forever(fun() -> weir_watch_form_pool:with(Pool, fun(_) -> timer:sleep(50) end) end) end)
        || _ <- lists:seq(1, 30)],
    Pool;
start(poolboy) ->
    Start = fun() -> ?SERVER:start(fun none/0, fun(_, S) -> S end) end,
    ok = persistent_term:put(weir_watch_form_worker, Start),
    {ok, Pool} = poolboy:start([{worker_module, weir_watch_form_worker}, {size, 2}, {max_overflow, 0}]),
    _ = [spawn(fun() -> forever(fun() -> poolboy:transaction(Pool, fun(_) -> timer:sleep(50) end, infinity) end) end)
        || _ <- lists:seq(1, 30)],
    Pool;
start(weir_pool) ->
    {ok, _} = application:ensure_all_started(weir_pool),
    ok = weir_pool:start(small, #{size => 2, worker => {weir_watch_form_worker, start_link, [[]]}}),
    _ = [spawn(fun() -> forever(fun() -> weir_pool:claim(small, fun(_) -> timer:sleep(50) end,
        #{timeout => infinity}) end) end)
        || _ <- lists:seq(1, 30)],
    any_of([weir_pool_queue]);
start(large_list) ->
    hot(?SERVER:start(fun() -> lists:seq(1, 3_000_000) end, fun(_, [_ | S]) -> erlang:garbage_collect(), [1 | S] end));
start(large_map) ->
    Init = fun() ->
        _ = process_flag(fullsweep_after, 0),
        maps:from_list([{I, {I, [I]}} || I <- lists:seq(1, 500_000)])
    end,
    hot(?SERVER:start(Init, fun(_, S) -> _ = lists:seq(1, 400_000), S end));
start(collector) ->
    hot(?STATEM:start(fun() -> lists:seq(1, 3_000_000) end, fun(_, S) -> erlang:garbage_collect(), S end));
start(ets_inserts) -> ets_form([set, public], fun(T, I) -> ets:insert(T, {I rem 100, I}) end);
start(ets_counters) -> ets_form([set, public], fun(T, I) -> ets:update_counter(T, I rem 10, 1, {I rem 10, 0}) end);
start(ets_lookups) -> ets_form([ordered_set, public], fun(T, I) -> ets:insert(T, {I rem 1000, I}), ets:lookup(T,
    I rem 1000) end);
start(slow_reader) ->
    hot(?SERVER:start(connect(deaf_listener(), false), fun(_, S) -> _ = gen_tcp:send(S, binary:copy(<<"x">>,
        100_000)), S end));
start(slow_reader_of_statem) ->
    hot(?STATEM:start(connect(deaf_listener(), false), fun(_, S) -> _ = gen_tcp:send(S, binary:copy(<<"x">>,
        100_000)), S end));
start(slow_program) ->
    Open = fun() -> open_port({spawn, "sleep 60"}, [binary, out]) end,
    hot(?SERVER:start(Open, fun(_, S) -> true = port_command(S, binary:copy(<<"x">>, 100_000)), S end));
start(far_casts) ->
    Far = far(),
    hot(?SERVER:start(fun none/0, fun(_, S) -> gen_server:cast(Far, binary:copy(<<"x">>, 100_000)), S end));
start(far_messages) ->
    Far = far(),
    hot(?SERVER:start(fun none/0, fun(_, S) -> Far ! lists:duplicate(20_000, x), S end));
start(far_statem) ->
    Far = far(),
    hot(?STATEM:start(fun none/0, fun(_, S) -> erlang:send(Far, binary:copy(<<"x">>, 100_000)), S end));
start(nif_in_server) -> hot(?SERVER:start(fun block/0, fun(_, S) -> block(500), S end));
start(nif_in_statem) -> hot(?STATEM:start(fun block/0, fun(_, S) -> block(500), S end));
start(nif_alone) -> block(), spawn(fun() -> forever(fun() -> block(500) end) end);
start(two_calls) ->
    Start = fun() -> ?SERVER:start(fun none/0, fun(Other, S) when is_pid(Other) -> gen_server:call(Other, work,
        infinity), S end) end,
    ring([Start(), Start()]);
start(three_calls) ->
    Start = fun() -> ?SERVER:start(fun none/0, fun(Other, S) when is_pid(Other) -> gen_server:call(Other, work,
        infinity), S end) end,
    ring([Start(), Start(), Start()]);
start(two_statems) ->
    Start = fun() -> ?STATEM:start(fun none/0, fun(Other, S) when is_pid(Other) -> gen_server:call(Other, work,
        infinity), S end) end,
    ring([Start(), Start()]);
start(tcp_active) ->
    Next = fun(Socket) ->
        ok = inet:setopts(Socket, [{active, once}]),
        receive {tcp, Socket, Bytes} -> ok = gen_tcp:send(Socket, Bytes) end
    end,
    echoes(Next, []);
start(tcp_passive) -> echoes(fun echo_once/1, []);
start(tcp_of_socket) -> echoes(fun echo_once/1, [{inet_backend, socket}]);
start(udp) ->
    Open = fun() -> gen_udp:open(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]) end,
    Echo = fun(Socket) ->
        {ok, {Ip, Port, Bytes}} = gen_udp:recv(Socket, 0),
        ok = gen_udp:send(Socket, Ip, Port, Bytes)
    end,
    _ = [
        spawn(fun() ->
            {ok, Socket} = Open(),
            {ok, Port} = inet:port(Socket),
            _ = spawn_link(fun() ->
                {ok, Other} = Open(),
                ok = gen_udp:send(Other, {127, 0, 0, 1}, Port, <<"x">>),
                forever(fun() -> Echo(Other) end)
            end),
            forever(fun() -> Echo(Socket) end)
        end)
     || _ <- lists:seq(1, ?SOCKETS)
    ],
    node;
start(deaf) -> filled(spawn(fun() -> receive never -> ok end end));
start(suspended) ->
    {ok, Pid} = ?SERVER:start(fun none/0, fun(_, S) -> S end),
    ok = sys:suspend(Pid, weir_kit:wait_ms()),
    filled(Pid);
start(waits_for_nothing) ->
    {ok, Pid} = ?SERVER:start(fun none/0, fun(_, _) -> receive never -> none end end),
    filled(Pid).

backlog({ok, Pid}, Messages) ->
    _ = [gen_server:cast(Pid, work) || _ <- lists:seq(1, Messages)],
    Pid.

filled(Pid) ->
    _ = [Pid ! {'$gen_cast', I} || I <- lists:seq(1, 20_000)],
    Pid.

ring([{ok, First} | _] = Servers) ->
    Pids = [Pid || {ok, Pid} <- Servers],
    Next = tl(Pids) ++ [First],
    _ = [gen_server:cast(Pid, Other) || {Pid, Other} <- lists:zip(Pids, Next)],
    {any, Pids}.

%% Its mailbox grows by 20,000 messages a second, however quick it is.
flood(Send, Pid) ->
    Begin = erlang:monotonic_time(millisecond),
    Sender = fun() ->
        {_, Queue} = process_info(Pid, message_queue_len),
        Missing = 20 * (erlang:monotonic_time(millisecond) - Begin) - Queue,
        _ = [Send() || _ <- lists:seq(1, max(0, min(20_000, Missing div 2)))],
        timer:sleep(10)
    end,
    _ = [spawn(fun() -> forever(Sender) end) || _ <- lists:seq(1, 2)],
    Pid.

%% The callers format, so what they log is soon formatted: it is the handler's process that has too much to do.
logging(Module, Config) ->
    ok = logger:set_primary_config(level, all),
    Plain = {logger_formatter, #{single_line => false, template => [msg, "\n"]}},
    ok = logger:add_handler(forms, Module, #{config => Config, formatter => Plain}),
    _ = [spawn(fun() -> forever(fun() -> logger:notice("entry") end) end) || _ <- lists:seq(1, 20)],
    any_of([logger_olp, logger_std_h, logger_disk_log_h, disk_log]).

any_of(Modules) -> {modules, Modules}.

file(Name) -> filename:join(filename:basedir(user_cache, "weir_watch"), Name ++ os:getpid()).

connect(Port, Active) ->
    fun() ->
        {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, Active}]),
        Socket
    end.

%% Each byte comes back after so many milliseconds, each packet of bytes at once.
echo(Ms) ->
    listener(fun(Socket) -> forever(fun() ->
        {ok, Bytes} = gen_tcp:recv(Socket, 0),
        Ms =:= 0 orelse timer:sleep(Ms),
        ok = gen_tcp:send(Socket, Bytes)
    end) end).

echo_once(Socket) ->
    {ok, Bytes} = gen_tcp:recv(Socket, 0),
    ok = gen_tcp:send(Socket, Bytes).

%% A byte goes to and fro on each of many connections.
echoes(Next, Backend) ->
    Port = listener(Backend, fun(Socket) -> forever(fun() -> Next(Socket) end) end),
    _ = [
        spawn(fun() ->
            {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, Backend ++ [binary, {active, false}]),
            ok = gen_tcp:send(Socket, <<"x">>),
            forever(fun() -> Next(Socket) end)
        end)
     || _ <- lists:seq(1, ?SOCKETS)
    ],
    node.

deaf_listener() -> listener(fun(_Socket) -> timer:sleep(infinity) end).

listener(Serve) -> listener([], Serve).

%% The port of one that serves each connection in a process of its own.
listener(Options, Serve) ->
    Me = self(),
    _ = spawn(fun() ->
        {ok, Listener} = gen_tcp:listen(0, Options ++ [binary, {active, false}, {ip, {127, 0, 0, 1}},
            {backlog, ?SOCKETS}]),
        {ok, Port} = inet:port(Listener),
        Me ! {port, Port},
        forever(fun() ->
            {ok, Socket} = gen_tcp:accept(Listener),
            Pid = spawn(fun() -> receive go -> Serve(Socket) end end),
            ok = gen_tcp:controlling_process(Socket, Pid),
            Pid ! go
        end)
    end),
    receive {port, Port} -> Port end.

ets_form(Options, Operation) ->
    Table = ets:new(form, Options),
    _ = ets:insert(Table, [{I, 0} || I <- lists:seq(0, 1000)]),
    Loop = fun() -> [Operation(Table, I) || I <- lists:seq(1, 5000)] end,
    _ = [spawn(fun() -> forever(Loop) end) || _ <- lists:seq(1, 6)],
    Pid = hot(?SERVER:start(fun none/0, fun(_, S) -> _ = Loop(), S end)),
    %% The table dies with its owner.
    ets:give_away(Table, Pid, none),
    Pid.

%% A process of a node that does not read.
far() ->
    {ok, Peer, Node} = peer:start(#{
        name => peer:random_name(), connection => standard_io, wait_boot => weir_kit:wait_ms(),
        args => ["-setcookie", atom_to_list(erlang:get_cookie())]
    }),
    Far = erpc:call(Node, erlang, spawn, [timer, sleep, [infinity]]),
    OsPid = erpc:call(Node, os, getpid, []),
    _ = spawn(fun() -> monitor(process, Peer), receive after infinity -> ok end end),
    ok = weir_kit:signal("STOP", OsPid),
    ok = persistent_term:put(weir_watch_form_far, OsPid),
    Far.

block() -> weir_watch_form_nif:load().

%% A native function costs one reduction, so without the yield nobody else would ever have a turn there, nor timers.
block(Ms) ->
    Ms = weir_watch_form_nif:block(Ms),
    erlang:yield().

%% An agent that outlives who has started it.
agent() ->
    {ok, Agent} = weir_watch:start_link(),
    true = unlink(Agent),
    ok.
