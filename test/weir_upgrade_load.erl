%% What a node does while it is upgraded: users of every part of Weir, who count what they have asked for and what they
%% got. It runs in the node that weir_upgrade_releases starts, and is no part of what is upgraded.
-module(weir_upgrade_load).
-behaviour(gen_server).

-export([start/1, start/2, progress/0, faults/0, stop/0, pids/0, check_held/0]).
-export([start_worker/0, start_server/1, init/1, handle_call/3, handle_cast/2]).
-export([code_change/3, check/1]).
-export([claim_for_long/0, end_claim/1, purged_while_asked/2, not_purged/1]).

-define(PARTS, [
    pool_call, pool_counted, pool_claim, compat, flow_cast, flow_limit, server_call, server_batch, log_sync, log_async,
    logger, memcached, memcached_server, served_connects, echo_passive, echo_active, connects, cluster, watch
]).

%% ---------------------------------------------------------------- a server like any other

start_worker() -> gen_server:start_link(?MODULE, 0, []).

start_server(Name) -> gen_server:start_link({local, Name}, ?MODULE, 0, []).

init(Total) -> {ok, Total}.

handle_call({square, N}, _From, Total) -> {reply, N * N, Total};
handle_call(total, _From, Total) -> {reply, Total, Total}.

handle_cast({add, N}, Total) -> {noreply, Total + N}.

code_change(_OldVsn, Total, _Extra) -> {ok, Total}.

check(Worker) -> is_integer(gen_server:call(Worker, total, infinity)).

%% ---------------------------------------------------------------- the load

%% Starts everything. `Dir': where its files are; there is a memcached at the socket `Dir/memcached'.
start(Dir) -> start(Dir, ?PARTS).

%% Starts everything, and users of some parts.
start(Dir, Parts) ->
    Starter = self(),
    {Keeper, Ref} = spawn_monitor(fun() -> keeper(Dir, Parts, Starter) end),
    receive
        {Keeper, started} -> erlang:demonitor(Ref, [flush]), ok;
        {'DOWN', Ref, process, Keeper, Reason} -> {error, Reason}
    end.

%% Owns what must live as long as the load.
keeper(Dir, Parts, Starter) ->
    true = register(?MODULE, self()),
    ?MODULE = ets:new(?MODULE, [named_table, public]),
    true = ets:insert(?MODULE, [{faults, []} | [{Part, 0} || Part <- ?PARTS]]),
    %% Checks begin all the time: one that an upgrade made fail would have its worker replaced. So would one that a busy
    %% machine gives no turn within the time.
    Checked = {fun ?MODULE:check/1, 20_000},
    ok = weir_pool:start(squares, #{size => 4, worker => {?MODULE, start_worker, []}, check => Checked}),
    ok = weir_pool:start(counted, #{size => 4, worker => {?MODULE, start_worker, []}, strategy => least_loaded}),
    ok = weir_pool:start(claimed, #{size => 2, worker => {?MODULE, start_worker, []}}),
    ok = weir_pool:start(held, #{size => 2, worker => {?MODULE, start_worker, []}}),
    ok = weir_erlpool:start_pool(compat, [{size, 2}, {start_mfa, {?MODULE, start_worker, []}}]),
    [{ok, _} = start_server(Name) || Name <- [flow_cast, flow_limit]],
    ok = weir_flow:limit(whereis(flow_limit), 50),
    {ok, _} = weir_upgrade_server:start_link(server_call, #{}),
    {ok, _} = weir_upgrade_batch:start_link(server_batch),
    {ok, audit} = weir_log:open(audit, #{file => filename:join(Dir, "audit.log"), newline => true}),
    ok = logger:add_handler(weir, weir_log_h, #{
        config => #{file => filename:join(Dir, "logger.log"), timeout => infinity},
        level => notice,
        filter_default => stop,
        filters => [{ours, {fun logger_filters:domain/2, {log, sub, [weir_upgrade]}}}],
        formatter => {logger_formatter, #{template => [msg, "\n"], single_line => true}}
    }),
    %% In a supervisor, as users have them, where the release handler finds them.
    Squares = #{size => 1, worker => {?MODULE, start_worker, []}},
    Memcached = #{
        host => {local, filename:join(Dir, "memcached")}, connections => 2,
        request_timeout => weir_kit:wait_ms(), stall_timeout => weir_kit:wait_ms()
    },
    [
        {ok, _} = supervisor:start_child(kernel_safe_sup, Spec)
     || Spec <- [
            weir_pool:child_spec(supervised, Squares),
            weir_log:child_spec(supervised, #{file => filename:join(Dir, "supervised.log")}),
            weir_memcached:child_spec(cache, Memcached),
            weir_memcached_server:child_spec(#{path => served(Dir)}),
            weir_watch_page:child_spec(#{port => 0}),
            weir_watch_telemetry:child_spec(#{})
        ]
    ],
    ok = weir_cluster:start(counted, #{}),
    ok = weir_kit:until(fun() -> weir_memcached:set(cache, <<"up">>, true) =:= ok end),
    Port = echo_server(),
    Where = #{echo => Port, served => served(Dir)},
    {ok, Worker, Ticket} = weir_pool:checkout(held, #{}),
    %% Who waits the whole time: a caller of a server that does not answer, a reader that is sent nothing, a hibernated
    %% and an idle server.
    {ok, Idle} = weir_socket:connect("localhost", Port, [binary, {packet, 4}, {active, false}]),
    Reader = spawn_link(fun() -> {ok, <<"late">>} = weir_socket:recv(Idle, 0), receive never -> ok end end),
    {ok, _} = weir_upgrade_server:start_link(idle, #{}),
    {ok, _} = weir_upgrade_server:start_link(asleep, #{hibernate_after => 1}),
    true = ets:insert(?MODULE, [{held, Worker, Ticket}, {idle, Idle, Reader}]),
    Users = [
        spawn_link(fun() -> user(Part, state(Part, Where), 1) end)
     || Part <- Parts, _ <- lists:seq(1, users(Part))
    ],
    Starter ! {self(), started},
    keep(Users).

keep(Users) ->
    receive
        {stop, From} ->
            Refs = [monitor(process, User) || User <- Users],
            [User ! stop || User <- Users],
            [receive {'DOWN', Ref, process, _, _} -> ok end || Ref <- Refs],
            From ! {self(), stopped},
            keep([]);
        {check_held, From} ->
            [{held, Worker, Ticket}] = ets:lookup(?MODULE, held),
            {ok, #{claimed := Claimed}} = weir_pool:info(held),
            Answer = gen_server:call(Worker, {square, 3}, infinity),
            In = weir_pool:checkin(held, Ticket),
            {ok, NewWorker, NewTicket} = weir_pool:checkout(held, #{}),
            true = ets:insert(?MODULE, {held, NewWorker, NewTicket}),
            From ! {self(), {Claimed, Answer, In}},
            keep(Users);
        _Other ->
            keep(Users)
    end.

%% More claimers than workers: most of them wait.
users(pool_claim) -> 6;
users(_Part) -> 2.

%% What was done so far, by part.
progress() -> maps:with(?PARTS, maps:from_list([Row || {_, _} = Row <- ets:tab2list(?MODULE)])).

%% What went wrong, if anything did.
faults() -> ets:lookup_element(?MODULE, faults, 2).

%% The parts of it that the upgrade must leave in place.
pids() ->
    [Cache] = [Name || {weir_memcached, cache, _Server} = Name <- weir_pool:pools()],
    Names = [squares, counted, claimed, held, compat, Cache],
    {[weir_pool:workers(Name) || Name <- Names],
        [whereis(Name) || Name <- [server_call, server_batch, idle, asleep, weir_flow_limits, weir_log_registry,
            weir_watch_agent, weir_watch_page]],
        supervisor:which_children(weir_socket_sup)}.

check_held() -> ask(check_held).

%% Inside the fun of a claim, until it is told to go.
claim_for_long() ->
    Caller = self(),
    Claimer = spawn(fun() ->
        Claimed = weir_pool:claim(squares, fun(_) -> Caller ! {self(), in}, receive {go, From} -> From end end),
        {ok, Asked} = Claimed,
        Asked ! {self(), ok}
    end),
    receive
        {Claimer, in} -> Claimer
    end.

%% What requests of memcached are answered, by name, whose caller waits while `Module' is loaded from another file and
%% the version before is purged.
%%
%% The purger looks at one process after the other, and no function of that version can be called meanwhile. Many
%% processes make that take so long that the caller comes to its next call of one, and is looked at after that.
purged_while_asked(Module, Files) ->
    Crowd = [spawn(fun() -> receive go -> ok end end) || _ <- lists:seq(1, 8000)],
    ok = weir_memcached:set(cache, <<"one">>, 1),
    ok = weir_memcached:set(cache, <<"two">>, <<"2">>, #{codec => raw}),
    Answers = [
        {Name, Module, purged_while_asked(Request, Module, File)}
     || {{Name, Request}, N} <- lists:zip(requests(), lists:seq(1, length(requests()))),
        File <- [lists:nth(N rem 2 + 1, Files)]
    ],
    [exit(Pid, kill) || Pid <- Crowd],
    Answers.

purged_while_asked(Request, Module, File) ->
    [Cache] = [Name || {weir_memcached, cache, _Server} = Name <- weir_pool:pools()],
    {ok, Workers} = weir_pool:workers(Cache),
    Conns = [Conn || {_Slot, Conn} <- Workers],
    [ok = sys:suspend(Conn, weir_kit:wait_ms()) || Conn <- Conns],
    {Caller, Ref} = spawn_monitor(fun() -> exit({answered, Request()}) end),
    ok = weir_kit:until_waiting(Caller),
    {module, Module} = code:load_abs(File),
    _ = spawn(fun() -> [ok = sys:resume(Conn, weir_kit:wait_ms()) || Conn <- Conns] end),
    ok = purged(Module),
    receive
        {'DOWN', Ref, process, Caller, Outcome} -> Outcome
    end.

%% Purges modules, and returns those whose version before a process still runs.
not_purged(Modules) -> [Module || Module <- Modules, not code:soft_purge(Module)].

purged(Module) ->
    case code:soft_purge(Module) of
        true -> ok;
        false -> purged(Module)
    end.

requests() ->
    Fun = fun() -> {ok, 3} end,
    [
        {get, fun() -> weir_memcached:get(cache, <<"one">>) end},
        {hedged_get, fun() -> weir_memcached:get(cache, <<"one">>, #{hedge => 1000}) end},
        {gets, fun() -> weir_memcached:gets(cache, <<"one">>) end},
        {gat, fun() -> weir_memcached:gat(cache, <<"one">>, 60) end},
        {get_many, fun() -> weir_memcached:get_many(cache, [<<"one">>, <<"three">>]) end},
        {item, fun() -> weir_memcached:item(cache, <<"one">>) end},
        {set, fun() -> weir_memcached:set(cache, <<"one">>, 1) end},
        {add, fun() -> weir_memcached:add(cache, <<"one">>, 1) end},
        {append, fun() -> weir_memcached:append(cache, <<"two">>, <<"0">>, #{codec => raw}) end},
        {incr, fun() -> weir_memcached:incr(cache, <<"two">>, 1) end},
        {touch, fun() -> weir_memcached:touch(cache, <<"one">>, 60) end},
        {set_many, fun() -> weir_memcached:set_many(cache, #{<<"one">> => 1, <<"four">> => 4}) end},
        {delete, fun() -> weir_memcached:delete(cache, <<"nothing">>) end},
        {fetch, fun() -> weir_memcached:fetch(cache, <<"one">>, Fun) end},
        {fetch_nothing, fun() -> weir_memcached:fetch(cache, make_key(), Fun) end}
    ].

make_key() -> integer_to_binary(erlang:unique_integer([positive])).

%% What it was answered.
end_claim(Claimer) ->
    Claimer ! {go, self()},
    receive
        {Claimer, Answer} -> Answer
    end.

ask(What) ->
    Ref = monitor(process, ?MODULE),
    Keeper = whereis(?MODULE),
    ?MODULE ! {What, self()},
    receive
        {Keeper, Answer} -> erlang:demonitor(Ref, [flush]), Answer;
        {'DOWN', Ref, process, _, Reason} -> exit(Reason)
    end.

%% Stops the users, and compares what they have sent with what has arrived.
stop() ->
    stopped = ask(stop),
    #{flow_cast := Cast, flow_limit := Limited, server_batch := Batched, log_sync := Sync, log_async := Async,
        logger := Logged} = progress(),
    ok = weir_log:sync(audit),
    ok = weir_log_h:sync(weir),
    {ok, [Audit]} = weir_log:files(audit),
    {ok, [Log]} = weir_log:files(weir_log_h:name(weir)),
    {ok, #{in_flight := InFlight}} = weir_flow:info(whereis(flow_limit)),
    {idle, Idle, Reader} = hd(ets:lookup(?MODULE, idle)),
    ok = weir_socket:send(Idle, <<"late">>),
    ok = weir_kit:until(fun() -> process_info(Reader, current_function) =/= undefined andalso not in_recv(Reader) end),
    #{
        flow_cast => {Cast, gen_server:call(flow_cast, total, weir_kit:wait_ms())},
        flow_limit => {Limited, gen_server:call(flow_limit, total, weir_kit:wait_ms())},
        in_flight => {0, InFlight},
        server_batch => {Batched, gen_server:call(server_batch, total, weir_kit:wait_ms())},
        log => {Sync + Async, lines(Audit)},
        logger => {Logged, lines(Log)}
    }.

in_recv(Pid) ->
    {current_function, {Module, _, _}} = process_info(Pid, current_function),
    Module =:= weir_socket.

lines(File) ->
    {ok, Text} = file:read_file(File),
    length(binary:matches(Text, <<"\n">>)).

user(Part, State, N) ->
    receive
        stop -> ok
    %% All users together would leave the release handler next to nothing of two cores.
    after 1 ->
        try do(Part, State, N) of
            ok -> _ = ets:update_counter(?MODULE, Part, 1), ok;
            Other -> fault(Part, Other)
        catch
            Class:Reason:Stack -> fault(Part, {Class, Reason, Stack})
        end,
        user(Part, State, N + 1)
    end.

fault(Part, What) ->
    true = ets:update_element(?MODULE, faults, {2, lists:sublist([{Part, What} | faults()], 5)}).

do(pool_call, _, N) -> is({ok, N * N}, weir_pool:call(squares, {square, N}, weir_kit:wait_ms()));
do(pool_counted, _, N) -> is({ok, N * N}, weir_pool:call(counted, {square, N}, weir_kit:wait_ms()));
do(pool_claim, _, N) ->
    Work = fun(Worker) -> gen_server:call(Worker, {square, N}, weir_kit:wait_ms()) end,
    is({ok, N * N}, weir_pool:claim(claimed, Work, #{timeout => weir_kit:wait_ms()}));
do(cluster, _, N) -> is({ok, N * N}, weir_cluster:call(counted, {square, N}, weir_kit:wait_ms()));
do(watch, _, _) ->
    %% None in its first second.
    Snapshot = weir_watch:snapshot(),
    is(true, is_map(Snapshot) orelse Snapshot =:= none);
do(compat, _, N) -> is(N * N, gen_server:call(weir_erlpool:pid(compat), {square, N}, weir_kit:wait_ms()));
do(flow_cast, _, _) -> weir_flow:cast(flow_cast, {add, 1}, 8);
do(flow_limit, _, _) -> weir_flow:cast(whereis(flow_limit), {add, 1}, #{window => 8});
do(server_call, _, N) -> is(N * N, gen_server:call(server_call, {square, N}, weir_kit:wait_ms()));
do(server_batch, _, N) when N rem 50 =:= 0 ->
    ok = gen_server:cast(server_batch, {add, 1}),
    true = is_integer(gen_server:call(server_batch, total, weir_kit:wait_ms())),
    ok;
do(server_batch, _, _) -> gen_server:cast(server_batch, {add, 1});
do(log_sync, _, _) -> weir_log:log(audit, "one that waits");
do(log_async, _, _) -> weir_log:alog(audit, "one that does not");
do(logger, _, N) -> logger:notice("~b", [N], #{domain => [weir_upgrade]});
do(memcached, _, N) ->
    Key = list_to_binary(pid_to_list(self())),
    ok = weir_memcached:set(cache, Key, N),
    is({ok, N}, weir_memcached:get(cache, Key));
do(memcached_server, Socket, N) ->
    %% As many answers as there are commands, of both protocols, in one write.
    Key = list_to_binary(pid_to_list(self())),
    ok = gen_tcp:send(Socket, [
        "set ", Key, " 0 0 1\r\n0\r\nma ", Key, " D", integer_to_binary(N), " v\r\nmg ", Key, " v\r\nmd ", Key, "\r\n"
    ]),
    Digits = integer_to_binary(N),
    Value = [integer_to_binary(byte_size(Digits)), "\r\n", Digits, "\r\n"],
    Expected = iolist_to_binary(["STORED\r\nVA ", Value, "VA ", Value, "HD\r\n"]),
    is({ok, Expected}, gen_tcp:recv(Socket, byte_size(Expected), weir_kit:wait_ms()));
do(served_connects, Where, N) ->
    Socket = state(memcached_server, Where),
    ok = do(memcached_server, Socket, N),
    gen_tcp:close(Socket);
do(echo_passive, Socket, N) ->
    ok = weir_socket:send(Socket, <<N:64>>),
    is({ok, <<N:64>>}, weir_socket:recv(Socket, 0));
do(connects, Where, N) ->
    Socket = state(echo_passive, Where),
    ok = do(echo_passive, Socket, N),
    weir_socket:close(Socket);
do(echo_active, Socket, N) ->
    ok = weir_socket:setopts(Socket, [{active, once}]),
    ok = weir_socket:send(Socket, <<N:64>>),
    receive
        {tcp, Socket, <<N:64>>} -> ok;
        {tcp_closed, Socket} -> closed
    end.

is(Same, Same) -> ok;
is(_Expected, Other) -> Other.

state(Part, #{echo := Port}) when Part =:= echo_passive; Part =:= echo_active ->
    {ok, Socket} = weir_socket:connect("localhost", Port, [binary, {packet, 4}, {active, false}]),
    Socket;
state(memcached_server, #{served := Path}) ->
    {ok, Socket} = gen_tcp:connect({local, Path}, 0, [binary, {active, false}]),
    Socket;
state(_Part, Where) ->
    Where.

%% Where the memcached of our own is.
served(Dir) -> filename:join(Dir, "served").

%% Its acceptor waits without a time-out, as ranch's do.
echo_server() ->
    {ok, Listener} = weir_socket:listen(0, [binary, {packet, 4}, {active, false}]),
    {ok, Port} = weir_socket:port(Listener),
    _ = spawn_link(fun() -> accept(Listener) end),
    Port.

accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Handler = spawn_link(fun() -> receive go -> echo(Socket) end end),
    ok = weir_socket:controlling_process(Socket, Handler),
    Handler ! go,
    accept(Listener).

echo(Socket) ->
    case weir_socket:recv(Socket, 0) of
        {ok, Data} ->
            ok = weir_socket:send(Socket, Data),
            echo(Socket);
        {error, closed} ->
            ok
    end.
