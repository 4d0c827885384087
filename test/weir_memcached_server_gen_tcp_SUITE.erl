%% weir_memcached_server where weir_socket was built without its NIF, so that its sockets are gen_tcp's: the cases of
%% the server's own suites in which the transport matters, in other nodes that have that build in their code path.
-module(weir_memcached_server_gen_tcp_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

%% Milliseconds.
-define(DEADLINE, 120_000).

all() -> [built_without_nif, {group, in_nodes_of_their_own}].

groups() -> [{in_nodes_of_their_own, [parallel], [connections, tls]}].

init_per_suite(Config) ->
    Ebin = weir_socket_no_nif_SUITE:build(filename:join(?config(priv_dir, Config), "project")),
    [{path, [Ebin | weir_socket_no_nif_SUITE:code_path()]} | Config].

end_per_suite(_Config) -> ok.

built_without_nif(Config) ->
    ?assertEqual(gen_tcp, with_peer(Config, fun(Peer) -> peer:call(Peer, weir_socket, backend, [], ?DEADLINE) end)).

%% The one that reads slowly does so for ten seconds, in a node of its own.
connections(Config) ->
    weir_kit:in_parallel([
        fun() -> passes(Config, weir_memcached_server_conn_SUITE, Cases) end
     || Cases <- [
            [reads_slowly],
            [
                max_connections, idle_timeout, slow_readers, send_timeout, floods, half_closed, killed_connections,
                killed_acceptors, killed_listener, addresses, unix_socket, address_taken, address_let_go
            ]
        ]
    ]).

tls(Config) -> passes(Config, weir_memcached_server_tls_SUITE, weir_memcached_server_tls_SUITE:all()).

passes(Config, Suite, Cases) ->
    with_peer(Config, fun(Peer) ->
        Known = peer:call(Peer, Suite, init_per_suite, [Config], ?DEADLINE),
        Calls = lists:append([[{Case, [Known]}, {end_per_testcase, [Case, Known]}] || Case <- Cases]),
        ?assertEqual([], weir_socket_no_nif_SUITE:failed([{peer, Peer} | Config], Suite, Calls)),
        _ = peer:call(Peer, Suite, end_per_suite, [Known], ?DEADLINE),
        ok
    end).

with_peer(Config, Fun) ->
    Peer = weir_socket_no_nif_SUITE:start_peer(?config(path, Config)),
    try
        Fun(Peer)
    after
        peer:stop(Peer)
    end.
