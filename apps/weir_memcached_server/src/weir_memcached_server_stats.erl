%% @doc What `stats' and its relatives say. Names and order are memcached's, since programs look for them; what
%% memcached has and this server has not (slabs, several lists of items) is 0, or one class that has all items.
%% @private
-module(weir_memcached_server_stats).

-export([version/0, info/2, command/3, metadump/0, lines/3]).

-export_type([lines/0]).

-include("weir_memcached_server.hrl").

-opaque lines() :: {cachedump, Slot :: non_neg_integer(), Left :: non_neg_integer() | infinity}
    | {metadump, Slot :: non_neg_integer()}.
%% Where a list of all items stands.

%% @doc The version that a server names: clients look at it to find out what it knows.
-spec version() -> string().
version() -> "1.6.18-weir".

%% @doc All figures of a server by name: what is counted, and what is now.
-spec info(weir_memcached_server_clock:time(), #cache{}) -> #{atom() => integer()}.
info(_Now, #cache{table = Table, words = Words, conf = #{memory := Memory}} = Cache) ->
    (weir_memcached_server_counts:read(Cache))#{
        items => ets:info(Table, size),
        bytes => weir_memcached_server_memory:bytes(Cache),
        memory => Memory,
        connections => atomics:get(Words, ?CONNECTIONS)
    }.

%% @doc The answer to `stats' with these arguments: all of it, or a list that is made a part at a time.
-spec command([binary()], weir_memcached_server_clock:time(), #cache{}) -> iodata() | {lines, lines()}.
command([], Now, Cache) ->
    [lists(general(Now, Cache)), "END\r\n"];
command([<<"reset">> | _], _Now, #cache{shared = Shared} = Cache) ->
    true = ets:insert(Shared, {baseline, weir_memcached_server_counts:read(Cache)}),
    "RESET\r\n";
command([<<"settings">> | _], _Now, Cache) ->
    [lists(settings(Cache)), "END\r\n"];
command([<<"items">> | _], Now, Cache) ->
    [lists(items(Now, Cache)), "END\r\n"];
command([<<"slabs">> | _], _Now, Cache) ->
    [lists(slabs(Cache)), "END\r\n"];
command([<<"sizes">> | _], _Now, _Cache) ->
    "STAT sizes_status disabled\r\nEND\r\n";
command([<<"cachedump">>, Class, Limit | _], _Now, _Cache) ->
    case {weir_memcached_server_number:unsigned32(Class), weir_memcached_server_number:unsigned32(Limit)} of
        {{ok, 1}, {ok, 0}} -> {lines, {cachedump, 0, infinity}};
        {{ok, 1}, {ok, N}} -> {lines, {cachedump, 0, N}};
        {{ok, Other}, {ok, _}} when Other < 64 -> "END\r\n";
        {{ok, _}, {ok, _}} -> "CLIENT_ERROR Illegal slab id\r\n";
        _ -> "CLIENT_ERROR bad command line format\r\n"
    end;
command([<<"cachedump">> | _], _Now, _Cache) ->
    "CLIENT_ERROR bad command line\r\n";
command(_, _Now, _Cache) ->
    "ERROR\r\n".

lists(Stats) -> [["STAT ", atom_to_list(Name), $\s, text(Value), "\r\n"] || {Name, Value} <- Stats].

text(Value) when is_integer(Value) -> integer_to_list(Value);
text(Value) when is_atom(Value) -> atom_to_list(Value);
text(Value) -> Value.

%% What was counted since the last `stats reset'.
counts(#cache{shared = Shared} = Cache) ->
    Counts = weir_memcached_server_counts:read(Cache),
    case ets:lookup(Shared, baseline) of
        [{baseline, Before}] -> maps:map(fun(Name, N) -> N - maps:get(Name, Before, 0) end, Counts);
        [] -> Counts
    end.

general(Now, #cache{table = Table, words = Words, conf = Conf, started = Started} = Cache) ->
    #{memory := Memory, max_connections := MaxConnections, idle_timeout := IdleTimeout} = Conf,
    Counts = counts(Cache),
    Count = fun(Name) -> {Name, maps:get(Name, Counts)} end,
    Sum = fun(Names) -> lists:sum([maps:get(Name, Counts) || Name <- Names]) end,
    {CpuMs, _} = erlang:statistics(runtime),
    Zeros = fun(Names) -> [{Name, 0} || Name <- Names] end,
    [
        {pid, os:getpid()},
        {uptime, Now - ?SEEN_INTERVAL},
        {time, Started + Now - ?SEEN_INTERVAL - 2},
        {version, version()},
        {libevent, "none"},
        {pointer_size, 8 * erlang:system_info({wordsize, external})},
        {rusage_user, io_lib:format("~b.~6..0b", [CpuMs div 1000, CpuMs rem 1000 * 1000])},
        {rusage_system, "0.000000"},
        {max_connections, MaxConnections},
        {curr_connections, atomics:get(Words, ?CONNECTIONS)},
        Count(total_connections),
        Count(rejected_connections),
        {connection_structures, atomics:get(Words, ?CONNECTIONS)}
    ] ++
        Zeros([
            response_obj_oom, response_obj_count, response_obj_bytes, read_buf_count, read_buf_bytes,
            read_buf_bytes_free, read_buf_oom, reserved_fds
        ]) ++
        [
            {cmd_get, Sum([get_hits, get_misses, touch_hits])},
            Count(cmd_set),
            Count(cmd_flush),
            {cmd_touch, Sum([touch_hits, touch_misses])}
            | lists:map(Count, [
                cmd_meta, get_hits, get_misses, get_expired, get_flushed, delete_misses, delete_hits, incr_misses,
                incr_hits, decr_misses, decr_hits, cas_misses, cas_hits, cas_badval, touch_hits, touch_misses,
                store_too_large, store_no_memory, auth_cmds, auth_errors
            ])
        ] ++
        [Count(idle_kicks) || IdleTimeout =/= infinity] ++
        [
            Count(bytes_read),
            Count(bytes_written),
            {limit_maxbytes, Memory},
            {accepting_conns, 1}
        ] ++
        Zeros([listen_disabled_num, time_in_listen_disabled_us]) ++
        [{threads, erlang:system_info(schedulers_online)}] ++
        Zeros([
            conn_yields, hash_power_level, hash_bytes, hash_is_expanding, slab_reassign_rescues,
            slab_reassign_chunk_rescues, slab_reassign_evictions_nomem, slab_reassign_inline_reclaim,
            slab_reassign_busy_items, slab_reassign_busy_deletes, slab_reassign_running, slabs_moved, malloc_fails,
            log_worker_dropped, log_worker_written, log_watcher_skipped, log_watcher_sent, log_watchers,
            unexpected_napi_ids, round_robin_fallback
        ]) ++
        [
            {bytes, weir_memcached_server_memory:bytes(Cache)},
            {curr_items, ets:info(Table, size)},
            Count(total_items),
            {slab_global_page_pool, 0},
            Count(expired_unfetched),
            Count(evicted_unfetched),
            Count(evictions),
            Count(reclaimed),
            Count(crawler_reclaimed)
        ] ++
        Zeros([crawler_items_checked, lrutail_reflocked]).

settings(#cache{words = Words, conf = Conf} = Cache) ->
    #{
        memory := Memory, max_connections := MaxConnections, ip := Ip, path := Path, evict := Evict, backlog := Backlog,
        auth := Auth, max_item := MaxItem, flush := Flush, idle_timeout := IdleTimeout, tls := Tls
    } = Conf,
    YesNo = fun(Is) -> case Is of true -> yes; false -> no end end,
    [
        {maxbytes, Memory},
        {maxconns, MaxConnections},
        {tcpport, tcp_port(Path, Cache)},
        {udpport, 0},
        {inter, inet:ntoa(Ip)},
        {verbosity, 0},
        {oldest, atomics:get(Words, ?FLUSHED_AT)},
        {evictions, case Evict of true -> on; false -> off end},
        {domain_socket, case Path of undefined -> "NULL"; _ -> Path end},
        {shutdown_command, no},
        {num_threads, erlang:system_info(schedulers_online)},
        {detail_enabled, no},
        {cas_enabled, yes},
        {tcp_backlog, Backlog},
        {binding_protocol, ascii},
        {auth_enabled_sasl, no},
        {auth_enabled_ascii, case Auth of {file, File} -> File; _ -> YesNo(Auth =/= none) end},
        {item_size_max, MaxItem},
        {maxconns_fast, yes},
        {slab_reassign, no},
        {slab_automove, 0},
        {lru_crawler, no},
        {flush_enabled, YesNo(Flush)},
        {dump_enabled, yes},
        {lru_maintainer_thread, no},
        {lru_segmented, no},
        {idle_timeout, case IdleTimeout of infinity -> 0; Ms -> max(1, Ms div 1000) end},
        {ssl_enabled, YesNo(Tls =/= none)}
    ].

%% All items are of class 1.
items(_Now, #cache{table = Table} = Cache) ->
    Counts = counts(Cache),
    case ets:info(Table, size) of
        0 ->
            [];
        Items ->
            [
                {'items:1:number', Items},
                {'items:1:mem_requested', weir_memcached_server_memory:bytes(Cache)},
                {'items:1:evicted', maps:get(evictions, Counts)},
                {'items:1:outofmemory', maps:get(store_no_memory, Counts)},
                {'items:1:reclaimed', maps:get(reclaimed, Counts)},
                {'items:1:expired_unfetched', maps:get(expired_unfetched, Counts)},
                {'items:1:evicted_unfetched', maps:get(evicted_unfetched, Counts)},
                {'items:1:crawler_reclaimed', maps:get(crawler_reclaimed, Counts)}
            ]
    end.

slabs(#cache{table = Table, conf = #{max_item := MaxItem}} = Cache) ->
    Counts = counts(Cache),
    Class =
        case ets:info(Table, size) of
            0 ->
                [{active_slabs, 0}];
            Items ->
                [
                    {'1:chunk_size', MaxItem},
                    {'1:used_chunks', Items},
                    {'1:get_hits', maps:get(get_hits, Counts)},
                    {'1:cmd_set', maps:get(cmd_set, Counts)},
                    {'1:delete_hits', maps:get(delete_hits, Counts)},
                    {'1:incr_hits', maps:get(incr_hits, Counts)},
                    {'1:decr_hits', maps:get(decr_hits, Counts)},
                    {'1:cas_hits', maps:get(cas_hits, Counts)},
                    {'1:cas_badval', maps:get(cas_badval, Counts)},
                    {'1:touch_hits', maps:get(touch_hits, Counts)},
                    {active_slabs, 1}
                ]
        end,
    Class ++ [{total_malloced, weir_memcached_server_memory:bytes(Cache)}].

%% ---------------------------------------------------------------- all items

%% @doc All items, as `lru_crawler metadump all' lists them.
-spec metadump() -> lines().
metadump() -> {metadump, 0}.

%% @doc The lines of the next bucket, or `done'.
-spec lines(lines(), weir_memcached_server_clock:time(), #cache{}) -> {iodata(), lines()} | done.
lines({cachedump, _Slot, Left}, _Now, _Cache) when Left =< 0 ->
    done;
lines({cachedump, Slot, Left}, Now, Cache) ->
    case live_items(Slot, Now, Cache) of
        done ->
            done;
        Items when Left =:= infinity ->
            {[cachedump_line(Item, Cache) || Item <- Items], {cachedump, Slot + 1, Left}};
        Items ->
            First = lists:sublist(Items, Left),
            {[cachedump_line(Item, Cache) || Item <- First], {cachedump, Slot + 1, Left - length(First)}}
    end;
lines({metadump, Slot}, Now, Cache) ->
    case live_items(Slot, Now, Cache) of
        done -> done;
        Items -> {[metadump_line(Item, Cache) || Item <- Items], {metadump, Slot + 1}}
    end.

live_items(Slot, Now, Cache) ->
    case weir_memcached_server_items:slot(Cache, Slot) of
        none -> done;
        Items -> [Item || Item <- Items, weir_memcached_server_items:state(Item, Now, Cache) =:= live]
    end.

cachedump_line(#item{key = Key, value = Value, exp = Exp}, Cache) ->
    io_lib:format("ITEM ~s [~b b; ~b s]\r\n", [Key, byte_size(Value), unix(Exp, 0, Cache)]).

metadump_line(#item{key = Key, cas = Cas, exp = Exp, seen = Seen} = Item, Cache) ->
    io_lib:format("key=~s exp=~b la=~b cas=~b fetch=~s cls=1 size=~b\n", [
        <<<<(quoted(C))/binary>> || <<C>> <= Key>>,
        unix(Exp, -1, Cache),
        unix(Seen bsr ?SEEN_SHIFT, 0, Cache),
        Cas,
        case Seen band ?FETCHED of 0 -> "no"; _ -> "yes" end,
        weir_memcached_server_items:item_size(Item)
    ]).

%% As in addresses of the web.
quoted(C) when C >= $a, C =< $z; C >= $A, C =< $Z; C >= $0, C =< $9; C =:= $-; C =:= $.; C =:= $_; C =:= $~ -> <<C>>;
quoted(C) -> <<"%", (binary:encode_hex(<<C>>))/binary>>.

unix(0, Never, _Cache) -> Never;
unix(Second, _Never, #cache{started = Started}) -> Started + Second - ?SEEN_INTERVAL - 2.

tcp_port(undefined, Cache) ->
    {_, Port} = weir_memcached_server_listener:address(Cache),
    Port;
tcp_port(_Path, _Cache) ->
    0.
