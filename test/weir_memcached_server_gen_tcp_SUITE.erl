%% weir_memcached_server where weir_socket was built without its NIF, so that its sockets are gen_tcp's. Other nodes,
%% which have that build in their code path, run the cases of the server's own suites in which the transport matters.
-module(weir_memcached_server_gen_tcp_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> [built_without_nif, {group, in_nodes_of_their_own}].

groups() -> [{in_nodes_of_their_own, [parallel], [reads_slowly, connections, tls]}].

init_per_suite(Config) ->
    Ebin = weir_socket_no_nif_SUITE:build(filename:join(?config(priv_dir, Config), "project")),
    [{path, [Ebin | weir_socket_no_nif_SUITE:code_path()]} | Config].

end_per_suite(_Config) -> ok.

built_without_nif(Config) ->
    Backend = fun(Peer) -> peer:call(Peer, weir_socket, backend, [], weir_kit:wait_ms()) end,
    ?assertEqual(gen_tcp, with_peer(Config, Backend)).

reads_slowly(Config) -> passes(Config, weir_memcached_server_conn_SUITE, [?FUNCTION_NAME]).

connections(Config) ->
    passes(Config, weir_memcached_server_conn_SUITE, [
        max_connections, idle_timeout, slow_readers, send_timeout, floods, half_closed, killed_connections,
        killed_acceptors, killed_listener, addresses, unix_socket, address_taken, address_let_go
    ]).

tls(Config) -> passes(Config, weir_memcached_server_tls_SUITE, weir_memcached_server_tls_SUITE:all()).

passes(Config, Suite, Cases) ->
    with_peer(Config, fun(Peer) -> ok = peer:call(Peer, ?MODULE, run, [Suite, Cases, Config], infinity) end).

%% Runs cases of a suite in the node of the caller. As Common Test does, runs each case and its end in one process: a
%% server that is linked to the case does not end while end_per_testcase/2 stops the servers.
run(Suite, Cases, Config) ->
    Known = Suite:init_per_suite(Config),
    lists:foreach(
        fun(Case) ->
            weir_kit:in_parallel([
                fun() ->
                    _ = Suite:Case(Known),
                    Suite:end_per_testcase(Case, Known)
                end
            ])
        end,
        Cases
    ),
    _ = Suite:end_per_suite(Known),
    ok.

with_peer(Config, Fun) ->
    Peer = weir_socket_no_nif_SUITE:start_peer(?config(path, Config)),
    try
        Fun(Peer)
    after
        peer:stop(Peer)
    end.
