%% @doc What Weir's other applications tell of themselves on this node: pools, those of them that span nodes, logs,
%% servers with a limit, clients of memcached and sockets, asked by their `info' functions.
%%
%% An application is asked if it runs; none is loaded or started for it, and none is declared as a dependency. Each
%% question is put by a process of its own, which is killed after 100 milliseconds together with all others of that
%% round, or when it has grown to 8 megabytes: so whoever asks waits for 100 milliseconds at most, whatever hangs, and
%% gets what the others have answered.
%%
%% Who asks again and again keeps {@type asked()}: then a question that took some time is put again after a hundred
%% times as long, and its answer is used till then; one that got no answer is put again after ten seconds. So no
%% question takes more than a hundredth of a core, and a process that hangs finds few in its mailbox when it goes on.
%%
%% Some answers come from processes: a log's writer, a client's connections, and a server that is idle get a message,
%% but for those that are to be spared and those with a long mailbox: their log or client is left out, and of their
%% server is told what it has published. All else is read from tables and atomics. If the one who asks dies, those
%% that ask for it end by themselves, after 5 seconds at most. Needs kernel and stdlib only, and runs on watched
%% nodes.
%% @private
-module(weir_watch_parts).

-export([parts/0, new/0, ask/2, answers/2]).
-export([answer/2]).

-export_type([parts/0, asked/0]).

%% Of each kind so many are asked: the first ones in the order of their names.
-define(MOST, 50).
-define(WAIT_MS, 100).
-define(SILENT_MS, 10_000).
-define(HEAP_WORDS, 1_000_000).
%% Who has so many messages has enough of them.
-define(LONG, 1000).

-type parts() :: #{
    pools := [map()],
    clusters := [map()],
    logs := [map()],
    servers := [map()],
    clients := [map()],
    caches := [map()],
    sockets := map(),
    left_out := #{pools | clusters | logs | servers | clients | caches | sockets => non_neg_integer()}
}.
%% Each map has the `name' of what it is about, whatever term that is, and figures: integers under the names that the
%% part's `info' gives them. `pools': those of `weir_pool:info/1'. `clusters': pools that span nodes, with the figures
%% of `weir_cluster:info/1', the number of other `nodes', how many of these are `let_in', the sums of what is counted
%% for each of them, and under `others' what is counted for the first 50 by name, and what they and the first 50 clients
%% have sent here. `logs': the sums of `weir_log:info/1';
%% `waiting_entries', `waiting_bytes', `queue' and `max_bytes' of all shards together; how many `shards' there are and
%% how many are `stuck'. `servers': processes that have a limit of weir_flow, with the figures of `weir_flow:info/1' and
%% `weir_server:info/1'; `name' is the registered one or `undefined'. `clients': those of `weir_memcached:info/1', with
%% the numbers of `servers', of `connections', of those that are `up', and of requests `pending', and `by_server' some
%% figures of the first 50 by name. `caches': some of `weir_memcached_server:info/1'; `name' is the registered one or
%% `undefined'. `sockets': those of `weir_socket:info/0', empty where it does not run. `left_out': how many there are
%% besides, which were not asked or did not answer; a kind is missing there while it is not known how many there are.

-opaque asked() :: #{term() => {Next :: integer(), Answer :: {ok, term()} | none}}.
%% When each question is to be put again, and what was answered.

%% @doc What all parts say now. Waits for 100 milliseconds at most.
-spec parts() -> parts().
parts() ->
    {Parts, _} = ask(new(), []),
    Parts.

%% @doc Nothing was asked yet.
-spec new() -> asked().
new() -> #{}.

%% @doc What all parts say now, or said lately, without a message to these processes. Waits for 100 milliseconds at
%% most.
-spec ask(asked(), Spared :: [pid()]) -> {parts(), asked()}.
ask(Asked, Spared) ->
    Until = now_ms() + ?WAIT_MS,
    Lists = put_due(lists(), Until, Asked),
    {Pools, MorePools} = list(pools, Lists),
    {Clusters, MoreClusters} = list(clusters, Lists),
    {Clients, MoreClients} = list(clients, Lists),
    {Logs, MoreLogs} = list(logs, Lists),
    {Servers, MoreServers} = list(servers, Lists),
    {Caches, MoreCaches} = list(caches, Lists),
    Infos = put_due(
        [{{pools, Name}, fun() -> pool(Name) end} || Name <- Pools] ++
            [{{clusters, Name}, fun() -> cluster(Name) end} || Name <- Clusters] ++
            [{{logs, Name}, fun() -> log(Name, Spared) end} || Name <- Logs] ++
            [{{clients, Name}, fun() -> client(Name, Spared) end} || Name <- Clients] ++
            [{{caches, Pid}, fun() -> cache(Pid) end} || Pid <- Caches] ++
            [{{servers, Pid}, fun() -> server(Pid, Spared) end} || {Pid, _} <- Servers],
        Until,
        Asked
    ),
    Sockets =
        case Lists of
            #{sockets := {_, {ok, Figures}}} -> Figures;
            _ -> #{}
        end,
    Of = fun(Kind, Names) -> [Info || Name <- Names, {ok, Info} <- [answer_to({Kind, Name}, Infos)]] end,
    Limited = [{Limit, answer_to({servers, Pid}, Infos)} || {Pid, Limit} <- Servers],
    Parts = #{
        pools => Of(pools, Pools),
        clusters => Of(clusters, Clusters),
        logs => Of(logs, Logs),
        clients => Of(clients, Clients),
        caches => Of(caches, Caches),
        servers => [maps:merge(Limit, Info) || {Limit, {ok, Info}} <- Limited],
        sockets => Sockets
    },
    Silent = fun(Kind, More) -> More + length([none || {{K, _}, {_, none}} <- maps:to_list(Infos), K =:= Kind]) end,
    LeftOut = [
        {Kind, Silent(Kind, More)}
     || {Kind, More} <- [{pools, MorePools}, {clusters, MoreClusters}, {logs, MoreLogs}, {servers, MoreServers},
            {clients, MoreClients}, {caches, MoreCaches}],
        More =/= unknown
    ],
    NoSockets = length([none || #{sockets := {_, none}} <- [Lists]]),
    {Parts#{left_out => maps:from_list([{sockets, NoSockets} | LeftOut])}, maps:merge(Lists, Infos)}.

answer_to(Question, Asked) ->
    #{Question := {_, Answer}} = Asked,
    Answer.

list(Kind, Lists) ->
    case Lists of
        #{Kind := {_, {ok, Counted}}} -> Counted;
        #{Kind := {_, none}} -> {[], unknown};
        #{} -> {[], 0}
    end.

%% ---------------------------------------------------------------- what is asked

%% The first round. Only applications that run are asked: their supervisors have names.
lists() ->
    [
        {Kind, fun() -> List() end}
     || {Kind, Sup, List} <- [
            {pools, weir_pool_sup, fun pools/0},
            {clusters, weir_cluster_sup, fun clusters/0},
            {clients, weir_pool_sup, fun clients/0},
            {logs, weir_log_sup, fun logs/0},
            {servers, weir_flow_sup, fun servers/0},
            {caches, weir_memcached_server_app, fun caches/0},
            {sockets, weir_socket_sup, fun sockets/0}
        ],
        whereis(Sup) =/= undefined
    ].

pools() -> first(call(weir_pool, pools, [])).

clusters() -> first(call(weir_cluster, pools, [])).

%% A client has no list of its own, and for each of its servers a pool whose name tells of it.
clients() ->
    case erlang:function_exported(weir_memcached, info, 1) of
        true -> first(lists:usort([Client || {weir_memcached, Client, _Server} <- call(weir_pool, pools, [])]));
        false -> {[], 0}
    end.

logs() -> first(call(weir_log, names, [])).

servers() ->
    {ok, Limits} = call(weir_flow, info, []),
    first(maps:to_list(Limits)).

caches() -> first(call(weir_memcached_server, servers, [])).

sockets() -> figures(call(weir_socket, info, [])).

first(Names) -> {first_of(Names), max(0, length(Names) - ?MOST)}.

first_of(Names) -> lists:sublist(lists:sort(Names), ?MOST).

pool(Name) ->
    {ok, Info} = call(weir_pool, info, [Name]),
    named(Name, figures(Info)).

cluster(Name) ->
    {ok, #{nodes := Nodes, received := Received} = Info} = call(weir_cluster, info, [Name]),
    Sums = [
        {Key, lists:sum([maps:get(Key, Node) || Node <- Nodes])}
     || Key <- [requests, failed, timeouts, full, busy]
    ],
    Servers = [
        maps:with([node, weight, load, share, requests, refused, failed, timeouts, full, busy], Node)
     || Node <- lists:sublist(Nodes, ?MOST)
    ],
    Clients = lists:sort(maps:keys(Received) -- [Node || #{node := Node} <- Nodes]),
    Others = [Server#{received => maps:get(Node, Received, 0)} || #{node := Node} = Server <- Servers] ++
        [#{node => Node, received => maps:get(Node, Received)} || Node <- lists:sublist(Clients, ?MOST)],
    %% `refused' is what this node has refused, and no sum of what others have.
    Figures = maps:merge(figures(Info), maps:from_list(Sums)),
    named(Name, Figures#{
        nodes => length(Nodes), let_in => length([in || #{share := Share} <- Nodes, Share > 0]), others => Others
    }).

log(Name, Spared) ->
    ok = may_be_asked(call(weir_log_terms, writers, [call(weir_log_terms, log, [Name])]), Spared),
    {ok, #{shards := Shards} = Info} = call(weir_log, info, [Name]),
    Sum = fun(Key) -> lists:sum([maps:get(Key, Shard) || Shard <- Shards]) end,
    %% That of one shard, and `infinity' is no figure.
    MaxBytes = [{max_bytes, Most * length(Shards)} || #{max_bytes := Most} <- [Info], is_integer(Most)],
    Sums = [{Key, Sum(Key)} || Key <- [waiting_entries, waiting_bytes, queue]],
    Counts = [{shards, length(Shards)}, {stuck, length([stuck || #{stuck := true} <- Shards])}],
    named(Name, maps:merge(maps:remove(window, figures(Info)), maps:from_list(MaxBytes ++ Sums ++ Counts))).

client(Name, Spared) ->
    Pools = [Pool || {weir_memcached, Client, _} = Pool <- call(weir_pool, pools, []), Client =:= Name],
    Workers = [Workers || Pool <- Pools, {ok, Workers} <- [call(weir_pool, workers, [Pool])]],
    ok = may_be_asked([Pid || {_Slot, Pid} <- lists:append(Workers)], Spared),
    {ok, #{connections := Connections, servers := Servers} = Info} = call(weir_memcached, info, [Name]),
    named(Name, (figures(Info))#{
        by_server => [by_server(Server, maps:get(Server, Servers)) || Server <- first_of(maps:keys(Servers))],
        servers => map_size(Servers),
        connections => length(Connections),
        up => length([up || #{phase := up} <- Connections]),
        pending => lists:sum([Pending || #{pending := Pending} <- Connections])
    }).

by_server(Server, #{latency := Latency} = Counts) ->
    (maps:with([requests, timeouts, hits, misses], Counts))#{name => Server, latency_us => Latency}.

cache(Pid) ->
    Keys = [
        items, bytes, memory, connections, get_hits, get_misses, cmd_set, store_no_memory, evictions,
            rejected_connections,
        slow_kicks
    ],
    named(registered(Pid), maps:with(Keys, call(weir_memcached_server, info, [Pid]))).

registered(Pid) ->
    case process_info(Pid, registered_name) of
        {registered_name, Registered} -> Registered;
        _ -> undefined
    end.

%% Raises where one of them is not to get a message.
may_be_asked(Pids, Spared) ->
    [] = [Pid || Pid <- Pids, is_pid(Pid), lists:member(Pid, Spared) orelse has_many(Pid)],
    ok.

has_many(Pid) ->
    case process_info(Pid, message_queue_len) of
        {message_queue_len, Queue} -> Queue >= ?LONG;
        undefined -> false
    end.

%% A process with a limit need not be a weir_server.
server(Pid, Spared) ->
    Name = registered(Pid),
    %% The latter reads what it has published, and asks only one that is idle to publish first.
    Reads = case lists:member(Pid, Spared) of true -> weir_server_stats; false -> weir_server end,
    case erlang:function_exported(Reads, info, 1) andalso call(Reads, info, [Pid]) of
        {ok, Info} -> named(Name, maps:merge(figures(Info), sums(Info, [handled, dropped, shed])));
        _ -> named(Name, #{})
    end.

sums(Info, Keys) ->
    maps:from_list([{Key, lists:sum(maps:values(Kinds))} || Key <- Keys, #{Key := #{} = Kinds} <- [Info]]).

figures(Info) -> maps:filter(fun(_, Value) -> is_integer(Value) end, Info).

named(Name, Figures) -> Figures#{name => Name}.

%% No dependency: the module's name is a variable, so that nobody takes it for one.
call(Module, Function, Args) -> apply(Module, Function, Args).

%% ---------------------------------------------------------------- how it is asked

%% Puts the questions that are due. What is kept of others is given up: those whom they were about are gone.
put_due(Questions, Until, Asked) ->
    Now = now_ms(),
    Kept = maps:filter(fun(_, {Next, _}) -> Next > Now end, maps:with([Key || {Key, _} <- Questions], Asked)),
    Timed = [{Key, fun() -> timed(Fun) end} || {Key, Fun} <- Questions, not is_map_key(Key, Kept)],
    Answers = answers(Timed, Until),
    maps:merge(Kept, maps:map(fun(_, Answer) -> entry(Answer) end, Answers)).

timed(Fun) ->
    Begin = erlang:monotonic_time(microsecond),
    Answer = Fun(),
    {erlang:monotonic_time(microsecond) - Begin, Answer}.

entry({ok, {Us, Answer}}) -> {now_ms() + Us div 10, {ok, Answer}};
entry(none) -> {now_ms() + ?SILENT_MS, none}.

%% @doc Calls functions, each in a process of its own, and waits until then (milliseconds of `erlang:monotonic_time/1')
%% at most. `none': it raised something, or did not return, and its process was killed. Whatever happens, the caller
%% gets no message of it later.
-spec answers([{Key, fun(() -> Answer)}], Until :: integer()) -> #{Key => {ok, Answer} | none}.
answers(Questions, Until) ->
    Askers = [{Key, asker(Fun)} || {Key, Fun} <- Questions],
    maps:from_list([{Key, await(Asker, Until)} || {Key, Asker} <- Askers]).

%% The answer is what the process ends with: no message can come too late.
asker(Fun) ->
    Tag = make_ref(),
    Heap = #{size => ?HEAP_WORDS, kill => true, error_logger => false},
    try spawn_opt(?MODULE, answer, [Tag, Fun], [monitor, {priority, high}, {max_heap_size, Heap}]) of
        {Pid, Monitor} -> {Pid, Monitor, Tag}
    catch
        %% The node has all processes that it may have.
        error:system_limit -> none
    end.

%% @private
-spec answer(reference(), fun(() -> term())) -> no_return().
answer(Tag, Fun) ->
    Answer = try {ok, Fun()} catch _:_ -> none end,
    exit({Tag, Answer}).

await(none, _Until) ->
    none;
await({Pid, Monitor, Tag}, Until) ->
    receive
        {'DOWN', Monitor, process, Pid, {Tag, Answer}} -> Answer;
        {'DOWN', Monitor, process, Pid, _} -> none
    after max(0, Until - now_ms()) ->
        exit(Pid, kill),
        _ = demonitor(Monitor, [flush]),
        none
    end.

now_ms() -> erlang:monotonic_time(millisecond).
