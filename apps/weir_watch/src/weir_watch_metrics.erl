%% @doc The figures of this node and of Weir's parts as metrics: their description, which is one table, and their text
%% as Prometheus and others take it.
%%
%% All is read when it is asked for, from what the runtime and the parts count anyway, so nothing that a program calls
%% often gets slower by it. The parts and the diagnoses are those of the agent's newest snapshot; where there is no
%% agent the parts are asked (weir_watch_parts), which takes 100 milliseconds at most. An agent that does not answer
%% for so long does not tell who is in trouble: then nobody is asked, and the parts are left out.
%%
%% There are at most 250 series, however many pools and logs there are: those whose names come first have series of
%% their own, and the others are added up under the name `other'; `weir_watch_summed' says how many these are. No label
%% has a process identifier: what has one in its name, or has no name, is added up as `unnamed'. Names that look alike
%% are added up, too. Keeps nothing and runs no process.
-module(weir_watch_metrics).

-export([text/0, text/1, content_type/0, content_type/1]).
-export([description/0, figures/0, figures/1, render/3]).

-export_type([format/0, metric/0, figures/0]).

-define(MOST_SERIES, 250).
-define(WAIT_MS, 100).
-define(LONGEST_LABEL, 100).

-type format() :: openmetrics | plain.
%% OpenMetrics 1.0, or the text format of Prometheus, version 0.0.4, for what reads no other.

-type metric() :: #{
    part := atom(),
    key := atom(),
    name := binary(),
    type := counter | gauge | histogram,
    unit := bytes | seconds | ratio | none,
    label := atom(),
    help := binary()
}.
%% `name': that of the metric; a counter's series have `_total' behind it. `label': its only label, or `none'. `part'
%% and `key': which event and which of its measurements has the figure for telemetry. One whose key ends in `_ms' or
%% `_us' is in milliseconds or microseconds; the metric is in seconds.

-type figures() :: [{Part :: atom(), Label :: atom(), [{Name :: term(), #{atom() => figure()}}]}].
-type figure() :: number() | histogram().
-type histogram() :: #{sum_us := non_neg_integer(), bounds_us := [pos_integer()], counts := [non_neg_integer()]}.
%% Of each part, its rows: whom it is about (`none' where the part has no label), and the figures.

%% {Part, Label, [{Key, Name, Type, Unit, Help}]}. `largest' is a gauge of which the largest is taken where others are
%% added up.
-define(TABLE, [
    {node, none, [
        {processes, "weir_node_processes", gauge, none, "Processes."},
        {process_limit, "weir_node_process_limit", gauge, none, "Processes that there may be."},
        {run_queue, "weir_node_run_queue", gauge, none, "Processes that wait for a scheduler."},
        {ports, "weir_node_ports", gauge, none, "Ports."},
        {port_limit, "weir_node_port_limit", gauge, none, "Ports that there may be."},
        {atoms, "weir_node_atoms", gauge, none, "Atoms."},
        {atom_limit, "weir_node_atom_limit", gauge, none, "Atoms that there may be."},
        {ets_tables, "weir_node_ets_tables", gauge, none, "ETS tables."},
        {nodes, "weir_node_connected_nodes", gauge, none, "Nodes that this one is connected to, hidden ones too."},
        {uptime_ms, "weir_node_uptime_seconds", gauge, seconds, "Age of the node."},
        {cpu_ms, "weir_node_cpu_seconds", counter, seconds, "Processor time of the runtime, all threads together."},
        {reductions, "weir_node_reductions", counter, none, "Reductions of all processes."},
        {context_switches, "weir_node_context_switches", counter, none, "Times that a process was put on a scheduler."},
        {gc_runs, "weir_node_gc_runs", counter, none, "Garbage collections."},
        {gc_bytes, "weir_node_gc_reclaimed_bytes", counter, bytes, "Memory that garbage collections have freed."},
        {input, "weir_node_input_bytes", counter, bytes, "What ports have received."},
        {output, "weir_node_output_bytes", counter, bytes, "What ports have sent."}
    ]},
    {memory, kind, [
        {bytes, "weir_node_memory_bytes", gauge, bytes,
            "Memory by what it is for; the kinds together are all that is allocated."}
    ]},
    {schedulers, share, [
        {busy, "weir_node_scheduler_busy_ratio", gauge, ratio,
            "Share of the last second that schedulers worked: the least, the mean and the most of all."}
    ]},
    {delay, none, [
        {delay_us, "weir_node_delay_seconds", histogram, seconds,
            "By how much a process that sleeps for a tenth of a second again and again overslept."}
    ]},
    {watch, none, [
        {running, "weir_watch_agent_running", gauge, none, "1 if the agent runs and has answered, 0 if not."},
        {suspects, "weir_watch_suspects", gauge, none, "Processes that the agent looks at closely."},
        {largest_queue, "weir_watch_suspects_largest_queue", gauge, none,
            "Messages that wait for one of them, at most."},
        {blind_spots, "weir_watch_blind_spots", gauge, none, "Things that the agent cannot see, or has given up."},
        {cpu, "weir_watch_agent_cpu_ratio", gauge, ratio, "Share of one core that the agent took in the last minute."},
        {memory, "weir_watch_agent_memory_bytes", gauge, bytes, "Memory of the agent's processes."},
        {mailbox, "weir_watch_agent_mailbox", gauge, none, "Messages that wait for the agent."}
    ]},
    {diagnoses, cause, [
        {count, "weir_watch_diagnoses", gauge, none, "What is wrong now, by cause."}
    ]},
    {shown, part, [
        {summed, "weir_watch_summed", gauge, none, "How many are added up under the name other."},
        {left_out, "weir_watch_left_out", gauge, none,
            "How many are not in any series: too many, or they did not answer."}
    ]},
    {pool, pool, [
        {size, "weir_pool_size", gauge, none, "Slots, without those for overflow."},
        {limit, "weir_pool_limit", gauge, none, "Slots, with those for overflow."},
        {live, "weir_pool_live", gauge, none, "Slots that have a worker."},
        {vacant, "weir_pool_vacant", gauge, none, "Slots that have none, without those for overflow."},
        {claimed, "weir_pool_claimed", gauge, none, "Workers that are claimed."},
        {reserved, "weir_pool_reserved", gauge, none,
            "Slots that the pool keeps out of use: the worker is checked, probed or replaced."},
        {stopping, "weir_pool_stopping", gauge, none, "Workers that have left their slots and still live."},
        {calls, "weir_pool_calls", gauge, none, "Calls under way, where the pool counts them."},
        {waiting, "weir_pool_waiting", gauge, none, "Claims that wait for a worker."},
        {oldest_wait_ms, "weir_pool_oldest_wait_seconds", largest, seconds, "How long the oldest of them waits."},
        {longest_wait_ms, "weir_pool_longest_wait_seconds", largest, seconds, "How long a claim has waited, at most."},
        {picks, "weir_pool_picks", counter, none, "Workers that were picked."},
        {skips, "weir_pool_skips", counter, none, "Vacant slots that picks passed over."},
        {claims, "weir_pool_claims", counter, none, "Claims that got a worker."},
        {claimed_ms, "weir_pool_claimed_seconds", counter, seconds,
            "How long workers were claimed, all together, sampled."},
        {waits, "weir_pool_waits", counter, none, "Claims that had to wait and got a worker."},
        {busy, "weir_pool_busy", counter, none, "Claims refused at once because no worker was free."},
        {timeouts, "weir_pool_timeouts", counter, none, "Claims that waited, or worked, until their deadline."},
        {overloads, "weir_pool_overloads", counter, none,
            "Claims refused because the queue was full, or dropped by CoDel."},
        {abandoned, "weir_pool_abandoned", counter, none,
            "Claims that ended with their claimer, or left their worker broken."},
        {check_failures, "weir_pool_check_failures", counter, none, "Idle workers that failed their health check."},
        {restarts, "weir_pool_restarts", counter, none, "Workers that took the slot of another one."},
        {start_failures, "weir_pool_start_failures", counter, none, "Worker starts that failed."}
    ]},
    {cluster, pool, [
        {nodes, "weir_cluster_nodes", gauge, none, "Other nodes that serve the pool."},
        {let_in, "weir_cluster_nodes_let_in", gauge, none, "Those of them to which anything is sent."},
        {requests, "weir_cluster_requests", gauge, none, "Requests sent to them, since each is known."},
        {failed, "weir_cluster_failed", gauge, none, "Of these, those whose connection or worker was lost."},
        {timeouts, "weir_cluster_timeouts", gauge, none,
            "Of these, those whose time was over before the reply came."},
        {full, "weir_cluster_full", gauge, none, "Requests not sent to them because the window was full."},
        {busy, "weir_cluster_busy", gauge, none, "Requests not sent to them because the connection was busy or gone."},
        {served, "weir_cluster_served", counter, none, "Calls of other nodes that were begun here."},
        {casts, "weir_cluster_casts", counter, none, "Casts of other nodes that came here."},
        {bad_casts, "weir_cluster_bad_casts", counter, none, "Those of them for which the strategy found no worker."},
        {refused, "weir_cluster_refused", counter, none,
            "Calls of other nodes refused because there was no room, or too many were under way."},
        {expired, "weir_cluster_expired", counter, none,
            "Calls of other nodes not begun because their time was over."},
        {spilled, "weir_cluster_spilled", counter, none, "Requests that left this node because it had no room."},
        {retried, "weir_cluster_retried", counter, none,
            "Requests sent to another node because one had not begun them."},
        {overloads, "weir_cluster_overloads", counter, none, "Requests for which there was no room anywhere."}
    ]},
    {log, log, [
        {waiting_entries, "weir_log_waiting_entries", gauge, none, "Entries that wait to be written."},
        {waiting_bytes, "weir_log_waiting_bytes", gauge, bytes, "What they take."},
        {max_bytes, "weir_log_max_waiting_bytes", gauge, bytes,
            "What they may take before the log's overload policy holds."},
        {queue, "weir_log_queue", gauge, none, "Messages in the writers' mailboxes."},
        {shards, "weir_log_shards", gauge, none, "Files that are written at a time."},
        {stuck, "weir_log_stuck", gauge, none, "Those of them for whose writer nobody waits any more."},
        {largest_batch, "weir_log_largest_batch", largest, none, "Entries of the largest write."},
        {entries, "weir_log_entries", counter, none, "Entries written."},
        {bytes, "weir_log_bytes", counter, bytes, "Bytes written."},
        {writes, "weir_log_writes", counter, none, "Writes, each for all entries that were waiting."},
        {syncs, "weir_log_syncs", counter, none, "Times that a file was synced."},
        {sync_failures, "weir_log_sync_failures", counter, none, "Times that this failed or was refused."},
        {waited, "weir_log_waited", counter, none, "Entries that had to wait at the cap."},
        {rejected, "weir_log_rejected", counter, none, "Entries refused at the cap, or at a window."},
        {dropped, "weir_log_dropped", counter, none,
            "Entries dropped because of that, or because the writer is stuck."},
        {failed, "weir_log_failed", counter, none, "Entries that could not be written."},
        {lost, "weir_log_lost", counter, none, "Entries that a writer had not dealt with when it died, at most."},
        {unsent, "weir_log_unsent", counter, none,
            "Entries whose sender, or whose writer, was dead before they were sent."}
    ]},
    {server, server, [
        {in_flight, "weir_server_in_flight", gauge, none,
            "Messages sent under the limit of weir_flow and not handled yet."},
        {limit, "weir_server_limit", gauge, none, "How many of these there may be."},
        {mailbox, "weir_server_mailbox", gauge, none, "Messages in the mailbox."},
        {drained, "weir_server_drained", gauge, none, "Messages taken out of it and not handled yet."},
        {waiting, "weir_server_waiting", gauge, none, "Both together."},
        {max_queue, "weir_server_max_queue", gauge, none, "How many may wait, where that is limited."},
        {largest_batch, "weir_server_largest_batch", largest, none, "Messages of the largest batch."},
        {longest_wait_us, "weir_server_longest_wait_seconds", largest, seconds,
            "How long a message has waited, at most."},
        {busy, "weir_server_busy", counter, none, "Messages refused at the limit."},
        {waits, "weir_server_waits", counter, none, "Messages that had to wait for the limit."},
        {queued, "weir_server_queued", gauge, none, "Senders that wait for the limit now."},
        {mended, "weir_server_mended", counter, none, "Credits given back whose sender was killed before it sent."},
        {handled, "weir_server_handled", counter, none, "Messages handled."},
        {dropped, "weir_server_dropped", counter, none, "Messages that the server's callback has dropped."},
        {shed, "weir_server_shed", counter, none, "Messages dropped because too many were waiting."},
        {drains, "weir_server_drains", counter, none, "Times that the mailbox was drained."},
        {batches, "weir_server_batches", counter, none, "Batches handled."}
    ]},
    {client, client, [
        {servers, "weir_memcached_servers", gauge, none, "Servers that a client has."},
        {connections, "weir_memcached_connections", gauge, none, "Connections, whether they are up or not."},
        {up, "weir_memcached_connections_up", gauge, none, "Connections that are up."},
        {pending, "weir_memcached_pending", gauge, none, "Requests that are not answered yet."},
        {requests, "weir_memcached_requests", counter, none, "Requests sent."},
        {busy, "weir_memcached_busy", counter, none, "Requests refused because too many were unanswered."},
        {timeouts, "weir_memcached_timeouts", counter, none, "Requests whose time was up before they were answered."},
        {expired, "weir_memcached_expired", counter, none, "Those of them that were never sent."},
        {disconnected, "weir_memcached_disconnected", counter, none, "Requests that failed with their connection."},
        {connects, "weir_memcached_connects", counter, none, "Connections made."},
        {connect_failures, "weir_memcached_connect_failures", counter, none, "Attempts to connect that failed."},
        {disconnects, "weir_memcached_disconnects", counter, none, "Connections lost."},
        {garbage, "weir_memcached_garbage", counter, none, "Connections closed because of a reply that made no sense."},
        {hits, "weir_memcached_hits", counter, none, "Keys asked for that had an item."},
        {misses, "weir_memcached_misses", counter, none, "Keys asked for that had none."},
        {unacknowledged, "weir_memcached_unacknowledged", counter, none,
            "Requests that nobody waited for and that failed."},
        {computed, "weir_memcached_computed", counter, none, "Functions that a fetch has run."},
        {shared, "weir_memcached_shared", counter, none, "Fetches that waited for another process of the node."},
        {stale, "weir_memcached_stale", counter, none, "Fetches that took a stale value."},
        {hedged, "weir_memcached_hedged", counter, none, "Gets of which a second server or connection was asked."},
        {hedges_won, "weir_memcached_hedges_won", counter, none, "Those of them that it answered."}
    ]},
    {client_server, server, [
        {requests, "weir_memcached_by_server_requests", counter, none, "Requests sent to this server."},
        {timeouts, "weir_memcached_by_server_timeouts", counter, none,
            "Requests to it whose time was up before they were answered."},
        {hits, "weir_memcached_by_server_hits", counter, none, "Keys asked for that had an item there."},
        {misses, "weir_memcached_by_server_misses", counter, none, "Keys asked for that had none there."},
        {latency_us, "weir_memcached_by_server_latency_seconds", histogram, seconds,
            "From the write of a request to its reply."}
    ]},
    {cache, cache, [
        {items, "weir_memcached_server_items", gauge, none, "Items, with expired ones that were not found yet."},
        {bytes, "weir_memcached_server_bytes", gauge, bytes, "What they take, with what is held for data to come."},
        {memory, "weir_memcached_server_memory_bytes", gauge, bytes, "What they may take."},
        {connections, "weir_memcached_server_connections", gauge, none, "Connections that are open."},
        {get_hits, "weir_memcached_server_hits", counter, none, "Keys asked for that were found."},
        {get_misses, "weir_memcached_server_misses", counter, none, "Keys asked for that were not."},
        {cmd_set, "weir_memcached_server_sets", counter, none, "Items that came to be stored."},
        {store_no_memory, "weir_memcached_server_no_memory", counter, none,
            "Those of them for which there was no room."},
        {evictions, "weir_memcached_server_evictions", counter, none, "Items that went to make room."},
        {rejected_connections, "weir_memcached_server_rejected", counter, none,
            "Connections refused because there were too many."},
        {slow_kicks, "weir_memcached_server_slow_kicks", counter, none, "Connections closed because they did not read."}
    ]},
    {sockets, none, [
        {sockets, "weir_socket_open", gauge, none, "Open sockets of weir_socket."},
        {listeners, "weir_socket_listeners", gauge, none, "Those of them that listen."},
        {connections, "weir_socket_connections", gauge, none, "Those of them that are connected."},
        {pollsets, "weir_socket_pollsets", gauge, none, "Poll sets."},
        {recv_oct, "weir_socket_received_bytes", gauge, bytes, "What the sockets that are open now have received."},
        {send_oct, "weir_socket_sent_bytes", gauge, bytes, "What the sockets that are open now have sent."},
        {send_pend, "weir_socket_unsent_bytes", gauge, bytes, "What waits to be written."},
        {buffered, "weir_socket_buffered_bytes", gauge, bytes, "What was read and nobody has got yet."}
    ]}
]).

%% Of which there may be any number: the part of each, and what the parts call it.
-define(MANY, [
    {pool, pools}, {cluster, clusters}, {log, logs}, {server, servers}, {client, clients},
    {client_server, client_servers}, {cache, caches}
]).

%% ---------------------------------------------------------------- for programs

%% @doc All metrics in the format OpenMetrics 1.0. Takes some milliseconds, and waits for 200 at most.
-spec text() -> iodata().
text() -> text(openmetrics).

%% @doc All metrics in this format. Takes some milliseconds, and waits for 200 at most.
-spec text(format()) -> iodata().
text(Format) when Format =:= openmetrics; Format =:= plain -> render(Format, figures(), ?MOST_SERIES).

%% @doc The content type of {@link text/0}, for HTTP.
-spec content_type() -> string().
content_type() -> content_type(openmetrics).

%% @doc The content type of {@link text/1}, for HTTP. Give `openmetrics' to those who accept
%% `application/openmetrics-text', and `plain' to others.
-spec content_type(format()) -> string().
content_type(openmetrics) -> "application/openmetrics-text; version=1.0.0; charset=utf-8";
content_type(plain) -> "text/plain; version=0.0.4; charset=utf-8".

%% @doc What each metric is.
-spec description() -> [metric()].
description() ->
    [
        #{
            part => Part,
            key => Key,
            name => list_to_binary(Name),
            type => exposed(Type),
            unit => Unit,
            label => Label,
            help => list_to_binary(Help)
        }
     || {Part, Label, Metrics} <- ?TABLE, {Key, Name, Type, Unit, Help} <- Metrics
    ].

exposed(largest) -> gauge;
exposed(Type) -> Type.

%% ---------------------------------------------------------------- the figures

%% @private All figures now; waits for 200 milliseconds at most.
-spec figures() -> figures().
figures() ->
    Running = [{snapshot, fun weir_watch:snapshot/0} || whereis(weir_watch_agent) =/= undefined],
    case asked(Running) of
        #{snapshot := {ok, #{parts := Parts} = Snapshot}} = Answers -> figures(Snapshot, Parts, Answers);
        %% Who is in trouble it does not say, so that nobody is asked.
        #{snapshot := _} = Answers -> figures(none, #{left_out => #{}}, Answers);
        Answers -> figures(none, weir_watch_parts:parts(), Answers)
    end.

%% @private All figures with this snapshot, or without an agent.
-spec figures(weir_watch:snapshot() | none) -> figures().
figures(none) -> figures(none, weir_watch_parts:parts(), asked([]));
figures(#{parts := Parts} = Snapshot) -> figures(Snapshot, Parts, asked([])).

%% What the schedulers have to tell takes as long as one of them is kept by native code.
asked(More) ->
    Until = erlang:monotonic_time(millisecond) + ?WAIT_MS,
    Memory = fun() -> memory(erlang:memory()) end,
    weir_watch_parts:answers([{node, fun node_figures/0}, {memory, Memory} | More], Until).

figures(Snapshot, Parts, Answers) ->
    Rows = maps:merge(watch(Snapshot), #{
        node => [{none, Figures} || #{node := {ok, Figures}} <- [Answers]],
        memory => lists:append([Kinds || #{memory := {ok, Kinds}} <- [Answers]]),
        shown => [{Kind, left_out(Kind, Parts)} || Kind <- [sockets | [Kind || {_, Kind} <- ?MANY]]],
        sockets => [{none, Sockets} || #{sockets := Sockets} <- [Parts], map_size(Sockets) > 0],
        pool => named(pools, Parts),
        cluster => named(clusters, Parts),
        log => named(logs, Parts),
        server => named(servers, Parts),
        client => named(clients, Parts),
        client_server => client_servers(Parts),
        cache => named(caches, Parts)
    }),
    [{Part, Label, only(Metrics, maps:get(Part, Rows, []))} || {Part, Label, Metrics} <- ?TABLE].

%% Nothing that has no description.
only(Metrics, Rows) ->
    Keys = [Key || {Key, _, _, _, _} <- Metrics],
    [{Name, maps:filter(fun(_, Value) -> is_figure(Value) end, maps:with(Keys, Row))} || {Name, Row} <- Rows].

is_figure(Value) -> is_number(Value) orelse is_map(Value).

left_out(client_servers, #{clients := Clients}) ->
    #{left_out => lists:sum([N - length(Rows) || #{servers := N, by_server := Rows} <- Clients])};
left_out(Kind, #{left_out := LeftOut}) -> maps:from_list([{left_out, N} || #{Kind := N} <- [LeftOut]]);
left_out(_Kind, _Parts) -> #{left_out => 0}.

named(Kind, Parts) -> [{maps:get(name, Info, undefined), Info} || Info <- maps:get(Kind, Parts, [])].

%% Named after the client, too: two clients may have the same server.
client_servers(Parts) ->
    [
        {<<(label(Client))/binary, " ", (label(Server))/binary>>, Row}
     || {Client, #{by_server := Rows}} <- named(clients, Parts), #{name := Server} = Row <- Rows
    ].

node_figures() ->
    {{input, Input}, {output, Output}} = erlang:statistics(io),
    {Runs, Words, _} = erlang:statistics(garbage_collection),
    #{
        processes => erlang:system_info(process_count),
        process_limit => erlang:system_info(process_limit),
        run_queue => erlang:statistics(total_run_queue_lengths),
        ports => erlang:system_info(port_count),
        port_limit => erlang:system_info(port_limit),
        atoms => erlang:system_info(atom_count),
        atom_limit => erlang:system_info(atom_limit),
        ets_tables => erlang:system_info(ets_count),
        nodes => length(nodes(connected)),
        uptime_ms => weir_watch_node:uptime_ms(),
        cpu_ms => element(1, erlang:statistics(runtime)),
        reductions => element(1, erlang:statistics(reductions)),
        context_switches => element(1, erlang:statistics(context_switches)),
        gc_runs => Runs,
        gc_bytes => Words * erlang:system_info(wordsize),
        input => Input,
        output => Output
    }.

%% `other' is what the system has besides what it tells of. The figures are not of one moment.
memory(Memory) ->
    Sizes = maps:from_list(Memory),
    Told = maps:with([atom, binary, code, ets], Sizes),
    Other = max(0, maps:get(system, Sizes) - lists:sum(maps:values(Told))),
    Kinds = Told#{other => Other, processes => maps:get(processes, Sizes)},
    [{Kind, #{bytes => N}} || {Kind, N} <- maps:to_list(Kinds)].

watch(none) ->
    #{watch => [{none, #{running => 0}}]};
watch(#{suspects := Suspects, diagnoses := Diagnoses, limits := BlindSpots, cost := Cost, schedulers := Shares} =
    Snapshot) ->
    #{delays := Delays} = Snapshot,
    Queues = [Queue + Drained || #{queue := Queue, drained := Drained} <- Suspects],
    Found = [Cause || #{cause := Cause} <- Diagnoses],
    #{
        watch => [
            {none, #{
                running => 1,
                suspects => length(Suspects),
                largest_queue => lists:max([0 | Queues]),
                blind_spots => length(BlindSpots),
                cpu => maps:get(share, Cost),
                memory => maps:get(memory, Cost),
                mailbox => maps:get(mailbox, Cost)
            }}
        ],
        diagnoses => [{Cause, #{count => length([same || Cause1 <- Found, Cause1 =:= Cause])}} || {Cause, _, _,
            _} <- weir_watch:causes()],
        schedulers => shares(Shares),
        delay => [{none, #{delay_us => Delays#{bounds_us => weir_watch_delay:bounds_us()}}}]
    }.

shares([]) ->
    [];
shares(Shares) ->
    Figures = [{least, lists:min(Shares)}, {mean, lists:sum(Shares) / length(Shares)}, {most, lists:max(Shares)}],
    [{Which, #{busy => Share}} || {Which, Share} <- Figures].

%% ---------------------------------------------------------------- at most so many series

%% @private The text of these figures, with so many series at most. The parts of which there may be any number share
%% what the others leave: each gets a row in turn while there is room.
-spec render(format(), figures(), Most :: pos_integer()) -> iodata().
render(Format, Figures, Most) ->
    #{shown := Kinds} = Merged = maps:from_list([{Part, merged(Part, Rows)} || {Part, _, Rows} <- Figures]),
    All = Merged#{shown := [{Kind, Row#{summed => 0}} || {Kind, Row} <- Kinds]},
    Many = maps:with([Part || {Part, _} <- ?MANY], All),
    Others = maps:values(maps:without(maps:keys(Many), All)),
    Room = Most - lists:sum([series(Row) || Rows <- Others, {_, Row} <- Rows]),
    Costs = maps:map(fun(_, Rows) -> series(lists:foldl(fun maps:merge/2, #{}, [Row || {_, Row} <- Rows])) end, Many),
    Given = share(Room, Costs, Many, maps:map(fun(_, _) -> 0 end, Many)),
    Fitted = maps:map(fun(Part, Rows) -> fit(Part, maps:get(Part, Given), Rows) end, Many),
    Shown = [{Kind, shown(Kind, Row, Many, Given)} || {Kind, Row} <- maps:get(shown, All)],
    Series = maps:merge(All, Fitted#{shown => Shown}),
    Families = [
        family(Format, Metric, Label, maps:get(Part, Series))
     || {Part, Label, Metrics} <- ?TABLE, Metric <- Metrics
    ],
    [Families, "# EOF\n"].

series(Row) -> lists:sum([width(Figure) || Figure <- maps:values(Row)]).

%% A histogram has a sum and a count, too.
width(#{counts := Counts}) -> length(Counts) + 2;
width(_) -> 1.

%% How many rows each part gets.
share(Room, Costs, Many, Given) ->
    Wanting = [
        {Rows, Part}
     || {Part, Rows} <- maps:to_list(Given),
        Rows < length(maps:get(Part, Many)),
        maps:get(Part, Costs) =< Room
    ],
    case lists:sort(Wanting) of
        [] -> Given;
        [{Rows, Part} | _] -> share(Room - maps:get(Part, Costs), Costs, Many, Given#{Part := Rows + 1})
    end.

%% The last row is what the others add up to.
fit(_Part, 0, _Rows) ->
    [];
fit(_Part, N, Rows) when N >= length(Rows) ->
    Rows;
fit(Part, N, Rows) ->
    {Named, Rest} = lists:split(N - 1, Rows),
    merged(Part, Named ++ [{other, Row} || {_, Row} <- Rest]).

shown(Kind, Row, Many, Given) ->
    case [{length(maps:get(Part, Many)), maps:get(Part, Given)} || {Part, K} <- ?MANY, atom_to_binary(K) =:= Kind] of
        [{N, 0}] -> maps:map(fun(left_out, LeftOut) -> LeftOut + N; (_, Value) -> Value end, Row);
        [{N, Rows}] when Rows < N -> Row#{summed => N - Rows + 1};
        _ -> Row
    end.

%% The rows by their labels, in the order of these; rows with equal ones are added up.
merged(Part, Rows) ->
    Largest = [Key || {P, _, Metrics} <- ?TABLE, P =:= Part, {Key, _, largest, _, _} <- Metrics],
    Add = fun({Name, Row}, Sums) ->
        Label = label(Name),
        Sums#{Label => add(maps:to_list(Row), Largest, maps:get(Label, Sums, #{}))}
    end,
    lists:sort(maps:to_list(lists:foldl(Add, #{}, Rows))).

add([], _Largest, Sums) ->
    Sums;
add([{Key, Value} | Row], Largest, Sums) ->
    Sum =
        case {Sums, lists:member(Key, Largest)} of
            {#{Key := Other}, true} -> max(Value, Other);
            {#{Key := #{sum_us := SumUs, counts := Counts} = Other}, false} ->
                Other#{
                    sum_us := SumUs + maps:get(sum_us, Value),
                    counts := lists:zipwith(fun erlang:'+'/2, Counts, maps:get(counts, Value))
                };
            {#{Key := Other}, false} -> Value + Other;
            {#{}, _} -> Value
        end,
    add(Row, Largest, Sums#{Key => Sum}).

%% ---------------------------------------------------------------- the text

family(Format, {Key, Base, Type, Unit, Help}, Label, Rows) ->
    Series = [{Value, Number} || {Value, #{Key := Number}} <- Rows],
    Sample = [Base, ["_total" || Type =:= counter]],
    %% OpenMetrics names the family without the ending of its series. UNIT and EOF are comments in the plain format.
    Name = case Format of openmetrics -> Base; plain -> Sample end,
    [
        [["# HELP ", Name, $\s, Help, "\n# TYPE ", Name, $\s, atom_to_list(exposed(Type)), $\n] || Series =/= []],
        [["# UNIT ", Name, $\s, atom_to_list(Unit), $\n] || Series =/= [], Unit =/= none],
        [samples(Key, Sample, Label, Value, Number) || {Value, Number} <- Series]
    ].

samples(_Key, Sample, Label, Value, #{sum_us := Sum, bounds_us := BoundsUs, counts := Counts}) ->
    Labels = labels(Label, Value),
    Bounds = [text_of(Us / 1000_000) || Us <- BoundsUs] ++ [<<"+Inf">>],
    {Upto, Count} = lists:mapfoldl(fun(N, Before) -> {N + Before, N + Before} end, 0, Counts),
    [
        [
            [Sample, "_bucket", braces(Labels ++ labels(le, Bound)), $\s, text_of(N), $\n]
         || {Bound, N} <- lists:zip(Bounds, Upto)
        ],
        [Sample, "_sum", braces(Labels), $\s, text_of(Sum / 1000_000), $\n],
        [Sample, "_count", braces(Labels), $\s, text_of(Count), $\n]
    ];
samples(Key, Sample, Label, Value, Number) ->
    [Sample, braces(labels(Label, Value)), $\s, number(Key, Number), $\n].

braces([]) -> [];
braces(Labels) -> [${, lists:join($,, Labels), $}].

labels(none, _) -> [];
labels(Label, Value) -> [[atom_to_list(Label), "=\"", [escaped(Char) || <<Char>> <= Value], $"]].

escaped($\\) -> "\\\\";
escaped($") -> "\\\"";
escaped($\n) -> "\\n";
escaped(Byte) -> Byte.

number(Key, Number) ->
    case lists:reverse(atom_to_list(Key)) of
        "sm_" ++ _ -> text_of(Number / 1000);
        "su_" ++ _ -> text_of(Number / 1000_000);
        _ -> text_of(Number)
    end.

text_of(Number) when is_integer(Number) -> integer_to_binary(Number);
text_of(Number) -> float_to_binary(Number, [short]).

%% As people write the name, in UTF-8 and at most a hundred characters. A label that comes from here stays as it is.
label(none) -> <<"none">>;
label(undefined) -> <<"unnamed">>;
label(Name) when is_atom(Name) -> shortened(atom_to_binary(Name));
label(Name) when is_binary(Name) ->
    case unicode:characters_to_binary(Name) of
        Name -> shortened(Name);
        _ -> printed(Name)
    end;
label(Name) ->
    case is_plain(Name) of
        true -> printed(Name);
        false -> <<"unnamed">>
    end.

printed(Name) ->
    Text = io_lib:format("~0tP", [Name, ?LONGEST_LABEL], [{chars_limit, 2 * ?LONGEST_LABEL}]),
    shortened(unicode:characters_to_binary(Text)).

shortened(Text) -> string:slice(Text, 0, ?LONGEST_LABEL).

%% Of what has a process in it, another one is made when that has ended.
is_plain(Term) when is_pid(Term); is_port(Term); is_reference(Term); is_function(Term) -> false;
is_plain([Head | Tail]) -> is_plain(Head) andalso is_plain(Tail);
is_plain(Term) when is_tuple(Term) -> is_plain(tuple_to_list(Term));
is_plain(Term) when is_map(Term) -> is_plain(maps:to_list(Term));
is_plain(_) -> true.
