%% The Erlang samples of the guides, run as they are printed, each file in a case of its own. What a sample presumes is
%% set up here. Samples of other libraries, which stand beside ours as what was there before, are read by the parser
%% where the library is none of OTP's. (README: weir_readme_SUITE. Elixir: examples/elixir.)
-module(weir_guides_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit_sample, [replace/3, load/1, load/2, evaluate/1, evaluate/2, evaluate/3, terms/1, handler/2]).
-import(weir_kit_sample, [transcript/2, parses/1]).

-define(APPLICATIONS, [weir_compat, weir_memcached, weir_socket, weir_log, weir_flow, weir_pool]).

all() -> [every_file_has_its_case | guides() ++ migrating()].

guides() -> [batches, cluster, flow, log, mailbox, memcached, memcached_server, pool, socket, watch].

migrating() ->
    [
        disk_log, erlmc, erlpool, gen_batch_server, gen_server2, gen_socket, gen_tcp, gproc_pool, lager,
        logger_disk_log_h, logger_std_h, mcd, merle, poolboy, pooler, worker_pool
    ].

init_per_suite(Config) ->
    {ok, Cwd} = file:get_cwd(),
    [{cwd, Cwd}, {memcached, weir_kit_memcached:start()} | Config].

end_per_suite(Config) -> ok = weir_kit_memcached:stop(?config(memcached, Config)).

%% Files are written below the case's directory.
init_per_testcase(Case, Config) ->
    Directory = filename:join(?config(priv_dir, Config), Case),
    ok = filelib:ensure_path(filename:join(Directory, "log")),
    ok = file:set_cwd(Directory),
    [{ok, _} = application:ensure_all_started(App) || App <- ?APPLICATIONS],
    Config.

end_per_testcase(_Case, Config) ->
    [_ = logger:remove_handler(Id) || Id <- [guide, disk]],
    [ok = application:stop(App) || App <- ?APPLICATIONS],
    [application:unset_env(App, pools) || App <- [weir_pool, weir_compat]],
    ok = file:set_cwd(?config(cwd, Config)).

every_file_has_its_case(_Config) ->
    [
        ?assertEqual(lists:sort(Cases), lists:sort([
            list_to_atom(filename:basename(File, ".md"))
         || File <- filelib:wildcard(filename:join(weir_kit:path("docs"), [Folder, "/*.md"])),
            weir_kit_sample:blocks(File, "erlang") =/= []
        ]))
     || {Folder, Cases} <- [{"guide", guides()}, {"migrating", migrating()}]
    ].

%% ---------------------------------------------------------------- the guides

%% On one node, which is none of a cluster.
cluster(_Config) ->
    %% Calls may wait as long as a busy machine takes.
    [Start, Call, Supervisor, Client, ByKey, Owners, Idempotent, Leave] =
        [
            replace(replace(Sample, "}, 1000)", "}, weir_kit:wait_ms())"),
                "timeout => 1000", "timeout => weir_kit:wait_ms()")
            || Sample <- guide(cluster)],
    lookup_server = worker(lookup_server),
    _ = evaluate(Start),
    Bindings = #{'Key' => 1, 'UserId' => 2},
    [
        ?assertEqual({ok, {answer, {lookup, Key}}}, bound('Answer', evaluate(Sample, Bindings)))
     || {Key, Sample} <- [{1, Call}, {2, ByKey}, {1, Idempotent}]
    ],
    ?assertEqual({ok, node()}, bound('First', evaluate(Owners, Bindings))),
    _ = evaluate(Leave),
    ok = weir_cluster:stop(lookups),
    _ = evaluate(Client),
    ok = weir_cluster:stop(lookups),
    ok = weir_pool:stop(lookups),
    sample = load(Supervisor),
    {ok, Sup} = supervisor:start_link(sample, []),
    ?assertEqual({ok, {answer, {lookup, 1}}}, bound('Answer', evaluate(Call, Bindings))),
    stop_supervisor(Sup),
    ok = application:stop(weir_cluster).

%% The rules are told as weir_watch:causes/0 has them.
watch(_Config) ->
    [Diagnose, Messages, Page, Configured, Token, Metrics, Telemetry] = guide(watch),
    %% A second will do in place of ten.
    _ = evaluate(replace(Diagnose, "diagnose()", "diagnose(#{seconds => 1})")),
    _ = evaluate(Messages),
    %% Any port will do.
    _ = evaluate(replace(replace(Page, "8080", "0"), "<<\"http://127.0.0.1:0/\">> =", "Address =")),
    ok = weir_watch_page:stop(weir_watch_page),
    _ = evaluate(replace(Token, "token =>", "port => 0, token =>")),
    ok = weir_watch_page:stop(weir_watch_page),
    Bound = evaluate(Metrics),
    ?assertNotEqual(nomatch, string:find(element(2, bound('Body', Bound)), "# EOF")),
    [[{weir_watch, [{page, #{port := 8080}}]}]] = terms(Configured),
    [[{weir_watch, [{telemetry, #{interval := 10_000}}]}]] = terms(Telemetry),
    ok = application:stop(weir_watch),
    {ok, Text} = file:read_file(weir_kit:path("docs/guide/watch.md")),
    [
        ?assertNotEqual(nomatch, string:find(Text, unicode:characters_to_binary(Row)))
     || {Cause, Rule, Remedy, _} <- weir_watch:causes(),
        Row <- [io_lib:format("| `~s` | ~ts | ~ts |", [Cause, Rule, Remedy])]
    ].

batches(_Config) ->
    [Audit] = guide(batches),
    audit = load(Audit),
    {ok, Pid} = audit:start_link("audit.txt"),
    ok = audit:record("somebody came"),
    ?assertEqual({ok, <<"somebody came\n">>}, file:read_file("audit.txt")),
    ok = gen_server:stop(Pid).

flow(_Config) ->
    [First, TimeLimit, Handle, Limit, AtTheLimit, Plain] = guide(flow),
    {ok, Audit} = gen_server:start_link({local, audit}, worker(guide_audit), [], []),
    {ok, Manager} = gen_event:start_link(),
    Bound = evaluate(First, #{'Line' => "a line", 'Manager' => Manager, 'Event' => opened}),
    ?assertEqual({ok, 1}, bound('N', Bound)),
    _ = evaluate(TimeLimit, #{'Line' => "a line"}, #{count_dropped => fun() -> error(dropped) end}),
    _ = evaluate(Handle, #{'A' => "a", 'B' => "b"}),
    ?assertEqual({ok, 4}, gen_server:call(audit, count, weir_kit:wait_ms())),
    sample = load(Limit, "handle_call(_, _, S) -> {reply, ok, S}. handle_cast(_, S) -> {noreply, S}."),
    {ok, Server} = weir_server:start_link(sample, [], []),
    _ = evaluate(AtTheLimit, #{'Server' => Server, 'Message' => hello}),
    [ok = gen_server:stop(Pid) || Pid <- [Audit, Server]],
    ok = gen_event:stop(Manager),
    sample = load(Plain, "handle({'$gen_cast', Message}, To) -> To ! {handled, Message}, To."),
    Test = self(),
    {Loop, _} = spawn_monitor(fun() -> ok = weir_flow:limit(1), Test ! ready, sample:loop(Test) end),
    receive ready -> ok end,
    [ok = weir_flow:cast(Loop, N, #{limit => wait, window => 2}) || N <- [1, 2, 3]],
    [receive {handled, N} -> ok end || N <- [1, 2, 3]],
    ok = weir_kit:kill(Loop).

log(_Config) ->
    [First, Shards, Handler, Json, Dated] = guide(log),
    _ = evaluate(First),
    ?assertEqual({ok, <<"user ada came\nsomebody came\n">>}, file:read_file("log/audit.log")),
    Bound = evaluate(Shards),
    ?assertEqual({ok, 1}, bound('Count', Bound)),
    ok = weir_log:close(events),
    handler(Handler, guide),
    Event = #{level => error, msg => {string, "out of milk"}, meta => #{time => 0, pid => self()}},
    dated_lines = load(Dated),
    ?assertMatch({match, _}, re:run(dated_lines:format(Event, #{}), "1970 .*error: out of milk\n$")),
    json_lines = load(Json),
    %% json is in OTP since 27.
    [
        ?assertMatch(
            #{<<"level">> := <<"error">>, <<"text">> := <<"out of milk">>},
            apply(json, decode, [iolist_to_binary(json_lines:format(Event, #{}))])
        )
     || code:which(json) =/= non_existing
    ].

mailbox(_Config) ->
    [Longest, Info, Flow, Batch, Priorities, Overload] = guide(mailbox),
    self() ! one_message,
    _ = evaluate(Longest, #{'Pid' => self()}),
    receive one_message -> ok end,
    {ok, Server} = weir_server:start_link(worker(guide_server), [], []),
    [{{ok, Shown}, Keys}] = transcript(Info, #{'Server' => Server}),
    ?assertEqual([], Keys -- keys(Shown)),
    NotSent = fun() -> error(not_sent) end,
    _ = evaluate(Flow, #{'Server' => Server, 'E' => event}, #{
        count_as_lost => fun(_) -> NotSent() end, start_it_again => NotSent
    }),
    db = load("-module(db). -export([insert_all/2]). insert_all(Db, Rows) -> Db ! {rows, Rows}, ok."),
    sample = load(Batch, "init(Db) -> {ok, #{db => Db}}."),
    {ok, Batches} = weir_server:start_link(sample, self(), []),
    ok = weir_server:cast(Batches, {insert, {row, 1}}),
    ok = weir_server:call(Batches, flush, weir_kit:wait_ms()),
    receive {rows, Rows} -> ?assertEqual([{row, 1}], Rows) end,
    ok = gen_server:stop(Batches),
    sample = load(Priorities, served()),
    ?assertEqual({10, 0}, {sample:prioritise_call(health, from, 0, s), sample:prioritise_call(other, from, 0, s)}),
    ?assertEqual([0, drop], [sample:prioritise_cast({sample, 1}, Waiting, s) || Waiting <- [5000, 5001]]),
    {ok, Prioritised} = weir_server:start_link(sample, [], []),
    {answer, health} = weir_server:call(Prioritised, health, weir_kit:wait_ms()),
    meter = worker(meter),
    _ = evaluate(Overload),
    [ok = gen_server:stop(Pid) || Pid <- [Server, Prioritised, meter]].

memcached(Config) ->
    [ChildSpec, Fetch, Load, Shared, Change, Hedge, Tls, Compress, Item, Incr, Update] = guide(memcached),
    %% As long as a busy machine may take.
    Patient = replace(ChildSpec, "request_timeout => 250", "request_timeout => weir_kit:wait_ms()"),
    sample = load(with_server(Patient, Config)),
    {ok, Sup} = supervisor:start_link(sample, []),
    connected(cache),
    Loading = #{load_user => fun(N) -> {user, N} end},
    ?assertEqual({ok, {user, 1}}, bound('User', evaluate(Fetch, #{}, Loading))),
    database = load("-module(database). -export([read/2]).\nread(user, Given) -> Given."),
    sample = load(Load),
    Cached = fun(Given) -> weir_memcached:fetch(cache, term_to_key(Given), fun() -> sample:load(Given) end) end,
    ?assertEqual(
        [{ok, one}, {ok, two}, {error, not_found}, {error, down}],
        [Cached(Given) || Given <- [{ok, one}, {ok, two, 1000}, none, {error, down}]]
    ),
    ?assertMatch({ok, #{ttl := Ttl}} when Ttl > 900, weir_memcached:item(cache, term_to_key({ok, two, 1000}))),
    ?assertMatch({ok, Seconds} when Seconds =< 300, bound('Seconds', evaluate(Item))),
    _ = evaluate(Incr),
    ok = weir_memcached:set(cache, <<"n">>, 1),
    sample = load(Update),
    ok = sample:update(<<"n">>, fun(N) -> N + 1 end),
    {ok, 2} = weir_memcached:get(cache, <<"n">>),
    stop_supervisor(Sup),
    %% The two names are those of one machine, which its addresses tell apart.
    #{port := Port} = ?config(memcached, Config),
    Here = fun(Sample) ->
        Named = lists:foldl(fun({Name, Host}, S) -> replace(S, Name, Host) end, Sample, [
            {"\"cache-1.example\"", "\"127.0.0.1\", port => " ++ integer_to_list(Port)},
            {"\"cache-2.example\"", "\"localhost\", port => " ++ integer_to_list(Port)},
            {"\"cache-3.example\"", "{127,0,0,1}, port => " ++ integer_to_list(Port)}
        ]),
        Named
    end,
    _ = evaluate(Here(Shared)),
    ok = weir_memcached:await(shared, weir_kit:wait_ms()),
    ok = weir_memcached:set(shared, <<"user:1">>, ada),
    ?assertEqual({ok, ada}, bound('Value', evaluate(Hedge))),
    _ = evaluate(replace(Here(Change), "{127,0,0,1}", "\"localhost\"")),
    ok = weir_memcached:stop(shared),
    %% Nobody is there who speaks TLS: what is wrong with the options would be told.
    ok = file:write_file("ca.pem", ""),
    _ = evaluate(replace(with_server(Tls, Config), "11212", Port)),
    ?assertEqual({error, disconnected}, weir_memcached:get(remote, <<"k">>)),
    ok = weir_memcached:stop(remote),
    _ = evaluate(with_server(Compress, Config)),
    connected(zipped),
    Large = lists:duplicate(10_000, large),
    ok = weir_memcached:set(zipped, <<"large">>, Large),
    {ok, Large} = weir_memcached:get(zipped, <<"large">>),
    {ok, Kept} = weir_memcached:get(zipped, <<"large">>, #{codec => raw}),
    ?assertEqual(term_to_binary(Large), Kept),
    ok = weir_memcached:stop(zipped).

%% Runs a suite as Common Test does: each case and its init in one process, which exits with a reason.
memcached_server(_Config) ->
    [Suite, ChildSpec] = guide(memcached_server),
    users_SUITE = load(replace(Suite, "await => 5000", "await => weir_kit:wait_ms()")),
    Config = users_SUITE:init_per_suite([]),
    [
        weir_kit:in_parallel([
            fun() ->
                Given = users_SUITE:init_per_testcase(Case, Config),
                _ = users_SUITE:Case(Given),
                users_SUITE:end_per_testcase(Case, Given)
            end
        ])
     || Case <- users_SUITE:all()
    ],
    weir_kit:until(fun() -> weir_memcached_server:servers() =:= [] end),
    sample = load(replace(ChildSpec, "port => 11211", "port => 0")),
    {ok, Sup} = supervisor:start_link(sample, []),
    [Server] = weir_memcached_server:servers(),
    #{memory := 256_000_000} = weir_memcached_server:info(Server),
    stop_supervisor(Sup),
    users_SUITE:end_per_suite(Config),
    %% It has stopped what it has started.
    ?assertNot(lists:keymember(weir_memcached_server, 1, application:which_applications())).

term_to_key(Term) -> base64:encode(erlang:md5(term_to_binary(Term))).

pool(_Config) ->
    [Pick, Claim, ChildSpec, Environment, Connect, Change] = guide(pool),
    db_connection = worker(db_connection),
    ok = weir_pool:start(lookups, #{size => 2, worker => {db_connection, start_link, [url]}}),
    _ = evaluate(Pick, #{'UserId' => 7, 'Key' => key}),
    sample = load(ChildSpec),
    {ok, Sup} = supervisor:start_link(sample, []),
    {ok, Rows} = bound('Rows', evaluate(Claim, #{'Sql' => "select"})),
    ?assertEqual({answer, {query, "select"}}, Rows),
    _ = evaluate(Change),
    stop_supervisor(Sup),
    configured(Environment),
    {ok, #{size := 20}} = weir_pool:info(db),
    _ = evaluate(Connect).

socket(_Config) ->
    [Echo, Policies, SendTimeout, SentAgain, Tls, Adopted, Overview] = guide(socket),
    echo(Echo, "8080", 4),
    {ok, Listener} = weir_socket:listen(0, [binary, {active, false}, {recbuf, 4096}]),
    {ok, Port} = inet:port(Listener),
    Bound = evaluate(Policies, #{'Host' => {127, 0, 0, 1}, 'Port' => Port}),
    {ok, Socket} = bound('Socket', Bound),
    {ok, Reader} = weir_socket:accept(Listener),
    _ = evaluate(SendTimeout, #{'Socket' => Socket}),
    ok = weir_socket:close(Socket),
    ok = weir_socket:close(Reader),
    [sent_again(Form, Listener) || Form <- string:split(SentAgain, "\n\n", all)],
    tls(Tls),
    adopted(Adopted),
    [{Info, Keys}, {ok, []}] = transcript(Overview, #{}),
    ?assertEqual([], Keys -- keys(Info)),
    ok = weir_socket:close(Listener).

%% A sample that waits for a connection, and then answers what comes.
echo(Sample, PortPrinted, Packet) ->
    Port = weir_kit_memcached:free_port(),
    Server = weir_kit:start(fun() -> evaluate(replace(Sample, PortPrinted, Port)) end),
    Client = connected_to(Port, Packet),
    ok = gen_tcp:send(Client, "one"),
    ok = gen_tcp:send(Client, "two"),
    {ok, _} = gen_tcp:recv(Client, 0, weir_kit:wait_ms()),
    _ = weir_kit:result(Server),
    ok = gen_tcp:close(Client).

connected_to(Port, Packet) ->
    weir_kit:until_value(fun() ->
        case gen_tcp:connect("localhost", Port, [binary, {packet, Packet}, {active, false}]) of
            {ok, Socket} -> Socket;
            {error, econnrefused} -> false
        end
    end).

%% Both forms meet a peer that reads nothing at first; that it reads again is between their expressions.
sent_again(Form, Listener) ->
    {ok, Port} = inet:port(Listener),
    Options = [binary, {sndbuf, 4096}, {send_timeout, 200}, {active, false}],
    {ok, Socket} = weir_socket:connect({127, 0, 0, 1}, Port, Options),
    {ok, Peer} = weir_socket:accept(Listener),
    full(Socket, 0),
    [First, Second] = string:split(Form, "\nok = "),
    _ = evaluate(string:trim(First, trailing, ",\n") ++ ".", #{'Socket' => Socket, 'Packet' => <<"packet">>}),
    Reader = spawn_link(fun() -> read_all(Peer) end),
    ok = weir_socket:controlling_process(Peer, Reader),
    ok = weir_socket:setopts(Socket, [{send_timeout, weir_kit:wait_ms()}]),
    _ = evaluate("ok = " ++ Second, #{'Socket' => Socket, 'Packet' => <<"packet">>}),
    ok = weir_socket:close(Socket).

%% When nothing is taken several times in a row: the poller may have had no turn meanwhile.
full(_Socket, 3) -> ok;
full(Socket, Refused) ->
    case weir_socket:send(Socket, binary:copy(<<0>>, 16_384)) of
        ok -> full(Socket, 0);
        {error, timeout} -> full(Socket, Refused + 1)
    end.

read_all(Socket) ->
    case weir_socket:recv(Socket, 0) of
        {ok, _} -> read_all(Socket);
        {error, closed} -> ok
    end.

%% The first form is the server's, the second the client's.
tls(Sample) ->
    {ok, Started} = application:ensure_all_started(ssl),
    ok = certificates(),
    Port = weir_kit_memcached:free_port(),
    [Server, Client] = [replace(Form, "8443", Port) || Form <- string:split(Sample, "\n\n")],
    Serving = weir_kit:start(fun() -> evaluate(Server) end),
    {ok, Transport} = bound('Transport', evaluate(hd(string:split(Server, ",\n")) ++ ".")),
    weir_kit:until(fun() -> is_served(Client, #{'Transport' => Transport, 'Host' => "localhost"}) end),
    _ = weir_kit:result(Serving),
    [ok = application:stop(App) || App <- lists:reverse(Started)],
    ok.

%% Returns false if the server does not listen yet.
is_served(Client, Bindings) ->
    try evaluate(Client, Bindings) of
        _ -> true
    catch
        error:{badmatch, {error, econnrefused}} -> false
    end.

%% A chain for a server named localhost, as the files of the sample.
certificates() ->
    Key = [{digest, sha256}, {key, {namedCurve, secp256r1}}],
    Name = {'Extension', {2, 5, 29, 17}, false, [{dNSName, "localhost"}]},
    #{server_config := Server, client_config := Client} = public_key:pkix_test_data(#{
        server_chain => #{root => Key, intermediates => [], peer => [{extensions, [Name]} | Key]},
        client_chain => #{root => Key, intermediates => [], peer => Key}
    }),
    {KeyType, KeyDer} = proplists:get_value(key, Server),
    Pem = fun(Entries) -> public_key:pem_encode([{Type, Der, not_encrypted} || {Type, Der} <- Entries]) end,
    ok = file:write_file("cert.pem", Pem([{'Certificate', proplists:get_value(cert, Server)}])),
    ok = file:write_file("key.pem", Pem([{KeyType, KeyDer}])),
    ok = file:write_file("ca.pem", Pem([{'Certificate', Ca} || Ca <- proplists:get_value(cacerts, Client)])).

%% Descriptors that are connected, of OTP's sockets.
adopted(Sample) ->
    {Fd, Inet} = descriptor(inet, #{family => inet, addr => loopback, port => 0}),
    {Fd6, Inet6} = descriptor(inet6, #{family => inet6, addr => loopback, port => 0}),
    _ = evaluate(Sample, #{'Fd' => Fd, 'Fd6' => Fd6}),
    [ok = socket:close(Socket) || Socket <- Inet ++ Inet6],
    ok.

descriptor(Family, Address) ->
    {ok, Listener} = socket:open(Family, stream, tcp),
    ok = socket:bind(Listener, Address),
    ok = socket:listen(Listener),
    {ok, Name} = socket:sockname(Listener),
    {ok, Socket} = socket:open(Family, stream, tcp),
    ok = socket:connect(Socket, Name),
    {ok, Fd} = socket:getopt(Socket, {otp, fd}),
    {Fd, [Socket, Listener]}.

%% ---------------------------------------------------------------- from other libraries

disk_log(_Config) ->
    [Before, After, Terms] = migrating(disk_log),
    _ = evaluate(Before, #{'Line' => "a line"}),
    {ok, Written} = file:read_file("log/audit.log"),
    ok = file:delete("log/audit.log"),
    _ = evaluate(After, #{'Line' => "a line"}),
    ?assertEqual({ok, Written}, file:read_file("log/audit.log")),
    Bound = evaluate(Terms, #{'Term' => {a, term}}),
    ?assertEqual({ok, [{a, term}]}, bound('Terms', Bound)),
    ok = weir_log:close(events).

erlpool(_Config) ->
    [Environment, Before, After] = migrating(erlpool),
    ?assert(parses(Before)),
    [worker(Module) || Module <- [my_worker, db_worker]],
    [[{erlpool, Pools}], [{weir_compat, Pools}]] = terms(Environment),
    ok = application:stop(weir_compat),
    ok = application:set_env([{weir_compat, Pools}]),
    _ = evaluate(After, #{'Url' => url, 'Query' => query}),
    ?assert(is_pid(weir_erlpool:pid(mypool))).

gen_batch_server(_Config) ->
    [Before, After] = migrating(gen_batch_server),
    ?assert(parses(Before)),
    sample = load(After, "init([]) -> {ok, state}. write([\"a line\"], state) -> ok."),
    {ok, Pid} = sample:start_link(),
    ok = weir_server:call(Pid, {record, "a line"}, weir_kit:wait_ms()),
    ok = gen_server:stop(Pid).

gen_server2(_Config) ->
    [Before, After] = migrating(gen_server2),
    ?assert(parses(Before)),
    sample = load("-module(sample).\n-compile(export_all).\n-record(state, {}).\n" ++ After, called()),
    {ok, Pid} = sample:start_link(),
    {answer, anything} = weir_server:call(Pid, anything, weir_kit:wait_ms()),
    ok = gen_server:stop(Pid).

gen_socket(_Config) ->
    [Before, After, Anew] = migrating(gen_socket),
    ?assert(parses(Before)),
    echo(After, "8008", raw),
    {ok, Listener} = bound('Listener', evaluate(replace(Anew, "8008", weir_kit_memcached:free_port()))),
    ok = weir_socket:close(Listener).

gen_tcp(_Config) ->
    [handed_over(Sample) || Sample <- migrating(gen_tcp)].

%% Accepts a connection, and gives it to another process, which gets what comes.
handed_over(Sample) ->
    Port = weir_kit_memcached:free_port(),
    Test = self(),
    Owner = spawn_link(fun() -> receive {tcp, _, Data} -> Test ! {got, Data} end, receive stop -> ok end end),
    {Acceptor, _} = Accepting = weir_kit:start(fun() ->
        evaluate(replace(Sample, "5555", Port), #{'Pid' => Owner}),
        receive stop -> ok end
    end),
    Client = connected_to(Port, 2),
    ok = gen_tcp:send(Client, "hello"),
    receive {got, Data} -> ?assertEqual(<<"hello">>, Data) end,
    [Pid ! stop || Pid <- [Owner, Acceptor]],
    ok = weir_kit:result(Accepting),
    ok = gen_tcp:close(Client).

gproc_pool(_Config) ->
    [Before, After] = migrating(gproc_pool),
    ?assert(parses(Before)),
    %% A worker that is called by itself would wait for itself: the sample connects who evaluates it.
    {ok, Pid} = gen_server:start_link(worker(jobs_worker), [], []),
    Connected = replace(After, "weir_gproc_pool:connect_worker(jobs, a)", "in_worker()"),
    Bound = evaluate(Connected, #{'Job' => job}, #{
        in_worker => fun() ->
            Connect = fun() -> weir_gproc_pool:connect_worker(jobs, a) end,
            gen_server:call(Pid, {run, Connect}, weir_kit:wait_ms())
        end
    }),
    ?assertEqual({ok, {answer, job}}, bound('Reply', Bound)),
    ok = gen_server:stop(Pid).

lager(_Config) ->
    [Bridge, Before, After] = migrating(lager),
    ?assert(parses(Before)),
    lager_to_logger = load(Bridge),
    handler(After, guide).

logger_disk_log_h(_Config) ->
    [
        begin
            _ = evaluate(Sample),
            ok = logger:remove_handler(disk)
        end
     || Sample <- migrating(logger_disk_log_h)
    ].

logger_std_h(_Config) ->
    [handler(Sample, guide) || Sample <- migrating(logger_std_h)].

merle(Config) ->
    [Sample] = migrating(merle),
    #{port := Port} = ?config(memcached, Config),
    _ = evaluate(replace(Sample, "11211", Port)).

erlmc(Config) ->
    [ChildSpec, Sample] = migrating(erlmc),
    sample = load(with_server(ChildSpec, Config)),
    {ok, Sup} = supervisor:start_link(sample, []),
    connected(cache),
    _ = evaluate(Sample),
    stop_supervisor(Sup).

mcd(Config) ->
    [ChildSpec, Key] = migrating(mcd),
    sample = load(with_server(ChildSpec, Config)),
    {ok, Sup} = supervisor:start_link(sample, []),
    connected(mainCluster),
    sample = load(Key),
    ok = weir_memcached:set(mainCluster, sample:mcd_key({user, 1}), ada),
    {ok, ada} = weir_memcached:get(mainCluster, sample:mcd_key({user, 1})),
    stop_supervisor(Sup).

poolboy(_Config) ->
    [Before, After, Transaction] = migrating(poolboy),
    ?assert(parses(Before)),
    db_worker = worker(db_worker),
    sample = load(After),
    {ok, Sup} = supervisor:start_link(sample, []),
    ?assertEqual({answer, {query, "select"}}, sample:query("select")),
    my_pool = load(Transaction),
    ?assertEqual(done, my_pool:transaction(db, fun(_) -> done end)),
    stop_supervisor(Sup),
    ?assertExit({noproc, {my_pool, transaction, _}}, my_pool:transaction(db, fun(_) -> done end)).

pooler(_Config) ->
    [Before, After, Claim, Groups, Check] = migrating(pooler),
    ?assert(parses(Before)),
    db_connection = worker(db_connection),
    connection_age = load("-module(connection_age). -export([seconds/1]). seconds(_) -> 0."),
    _ = evaluate(After, #{'Url' => url, 'Sql' => "select"}),
    %% Or more: a worker for overflow, if the first claim came before the five were there.
    ok = weir_kit:until(fun() -> maps:get(live, element(2, weir_pool:info(db))) >= 5 end),
    Bound = evaluate(Claim, #{'Sql' => "select"}),
    ?assertEqual({ok, {answer, {query, "select"}}}, bound('Rows', Bound)),
    sample = load(Groups),
    {db, _, Ticket} = sample:take_group_member([db, none]),
    ok = weir_pool:checkin(db, Ticket),
    ok = weir_pool:stop(db),
    _ = evaluate(Check, #{'Url' => url}).

worker_pool(_Config) ->
    [Before, After, Broadcall, Permit, Permits] = migrating(worker_pool),
    ?assert(parses(Before)),
    lookup_server = worker(lookup_server),
    _ = evaluate(After, #{'Key' => key}),
    sample = load(Broadcall),
    ?assertEqual(lists:duplicate(10, {reply, {answer, hello}}), sample:broadcall(lookups, hello, 5000)),
    permit = load(Permit),
    Bound = evaluate(Permits, #{'M' => erlang, 'F' => abs, 'A' => [-1]}),
    ?assertEqual({ok, 1}, bound('Result', Bound)).

%% ---------------------------------------------------------------- what samples presume

guide(Case) -> samples("guide", Case).

migrating(Case) -> samples("migrating", Case).

samples(Folder, Case) ->
    weir_kit_sample:blocks(weir_kit:path(filename:join(["docs", Folder, atom_to_list(Case) ++ ".md"])), "erlang").

bound(Name, Bindings) ->
    case erl_eval:binding(Name, Bindings) of
        {value, Value} -> {ok, Value};
        unbound -> error
    end.

%% A server that answers what it is asked, under the name of the module that a sample knows.
worker(Module) ->
    load(
        lists:flatten(io_lib:format("-module(~s).~n-compile(export_all).~n", [Module])),
        "start_link() -> start_link([]).\n"
        "start_link(Arg) -> gen_server:start_link(?MODULE, Arg, []).\n"
        "query(Pid, Sql) -> gen_server:call(Pid, {query, Sql}).\n" ++ served()
    ).

served() -> "init(_) -> {ok, 0}.\n" ++ called().

called() ->
    "handle_call(count, _, N) -> {reply, {ok, N}, N};\n"
    "handle_call({run, Fun}, _, N) -> {reply, Fun(), N};\n"
    "handle_call(Request, _, N) -> {reply, {answer, Request}, N}.\n"
    "handle_cast(_, N) -> {noreply, N + 1}.\n".

configured(Environment) ->
    [[{App, Pools}]] = terms(Environment),
    ok = application:stop(App),
    ok = application:set_env([{App, Pools}]),
    ok = application:start(App).

with_server(Sample, Config) ->
    #{port := Port} = ?config(memcached, Config),
    replace(replace(Sample, "11211", Port), "cache.example", "localhost").

connected(Client) -> ok = weir_kit:until(fun() -> element(1, weir_memcached:version(Client)) =:= ok end).

stop_supervisor(Sup) -> ok = gen_server:stop(Sup).

keys(Value) when is_map(Value) ->
    lists:usort(maps:keys(Value) ++ lists:append([keys(Each) || Each <- maps:values(Value)]));
keys(Values) when is_list(Values) ->
    lists:append([keys(Value) || Value <- Values]);
keys(_) ->
    [].
