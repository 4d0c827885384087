%% TLS over weir_socket: ssl takes it for its transport by the option cb_info. Skipped where ssl is not installed.
-module(weir_socket_ssl_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [start/1, result/1, wait_ms/0]).
-import(weir_socket_test_lib, [next/0, same_bytes/2]).

-define(TRANSPORT, {cb_info, {weir_socket, tcp, tcp_closed, tcp_error, tcp_passive}}).

all() -> [{group, Version} || {Version, _} <- groups()] ++ [refused_by_the_client].

groups() -> [{Version, weir_kit:cases(?MODULE) -- [refused_by_the_client]} || Version <- ['tlsv1.2', 'tlsv1.3']].

init_per_suite(Config) ->
    case code:ensure_loaded(ssl) of
        {module, ssl} ->
            {ok, Ssl} = application:ensure_all_started(ssl),
            {ok, Weir} = application:ensure_all_started(weir_socket),
            [{started, Ssl ++ Weir}, {certificates, certificates()} | Config];
        {error, _} ->
            {skip, "ssl is not installed"}
    end.

end_per_suite(Config) -> lists:foreach(fun application:stop/1, lists:reverse(?config(started, Config))).

init_per_group(Version, Config) -> [{version, Version} | Config].

end_per_group(_Version, _Config) -> ok.

%% A certificate that signs itself, one for the server, one for the client. The digest has to be said: the default is
%% SHA-1, which newer releases of ssl refuse.
certificates() ->
    How = [{key, {namedCurve, secp256r1}}, {digest, sha256}],
    Chain = fun() -> #{root => How, intermediates => [], peer => How} end,
    public_key:pkix_test_data(#{server_chain => Chain(), client_chain => Chain()}).

passive(Config) ->
    with_pair(Config, ?TRANSPORT, ?TRANSPORT, [{active, false}], fun(Server, Client) ->
        ok = ssl:send(Client, "hello"),
        {ok, <<"hello">>} = ssl:recv(Server, 5, wait_ms()),
        ok = ssl:send(Server, ["wo", <<"rld">>]),
        {ok, <<"world">>} = ssl:recv(Client, 0, wait_ms()),
        {error, timeout} = ssl:recv(Client, 0, 0),
        {ok, {{127, 0, 0, 1}, Port}} = ssl:peername(Server),
        {ok, {{127, 0, 0, 1}, Port}} = ssl:sockname(Client),
        ok = ssl:setopts(Client, [{nodelay, true}]),
        {ok, [{nodelay, true}]} = ssl:getopts(Client, [nodelay]),
        {ok, [{recv_oct, Bytes}]} = ssl:getstat(Client, [recv_oct]),
        true = Bytes > 0
    end).

active_once(Config) ->
    with_pair(Config, ?TRANSPORT, ?TRANSPORT, [{active, once}, {packet, 2}], fun(Server, Client) ->
        [
            begin
                ok = ssl:send(Client, <<N:16>>),
                {ssl, Server, <<N:16>>} = next(),
                ok = ssl:setopts(Server, [{active, once}])
            end
         || N <- lists:seq(1, 50)
        ],
        ok = ssl:close(Client),
        {ssl_closed, Server} = next()
    end).

active_counted(Config) ->
    with_pair(Config, ?TRANSPORT, ?TRANSPORT, [{active, 2}, {packet, 4}], fun(Server, Client) ->
        [ok = ssl:send(Client, <<N>>) || N <- [1, 2, 3]],
        [{ssl, Server, <<N>>} = next() || N <- [1, 2]],
        {ssl_passive, Server} = next(),
        {ok, <<3>>} = ssl:recv(Server, 0, wait_ms())
    end).

%% More than all buffers hold, both ways at once.
large(Config) ->
    Content = rand:bytes(3_000_000),
    with_pair(Config, ?TRANSPORT, ?TRANSPORT, [{active, false}], fun(Server, Client) ->
        Senders = [start(fun() -> ssl:send(Socket, Content) end) || Socket <- [Server, Client]],
        [
            begin
                {ok, Received} = ssl:recv(Socket, byte_size(Content), wait_ms()),
                same_bytes(Content, Received)
            end
         || Socket <- [Client, Server]
        ],
        [ok = result(Sender) || Sender <- Senders]
    end).

half_close(Config) ->
    with_pair(Config, ?TRANSPORT, ?TRANSPORT, [{active, false}], fun(Server, Client) ->
        ok = ssl:send(Client, "last"),
        ok = ssl:shutdown(Client, write),
        {ok, <<"last">>} = ssl:recv(Server, 4, wait_ms()),
        {error, closed} = ssl:recv(Server, 0, wait_ms())
    end).

moved(Config) ->
    with_pair(Config, ?TRANSPORT, ?TRANSPORT, [{active, true}], fun(Server, Client) ->
        Owner = start(fun() -> receive {ssl, Server, Data} -> Data end end),
        ok = ssl:controlling_process(Server, element(1, Owner)),
        ok = ssl:send(Client, "to the new owner"),
        <<"to the new owner">> = result(Owner)
    end).

%% A connection that is open already becomes TLS.
upgraded(Config) ->
    {ok, Listener} = weir_socket:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = weir_socket:port(Listener),
    Options = client_options(Config),
    Client = start(fun() ->
        {ok, Socket} = weir_socket:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
        ok = weir_socket:send(Socket, "STARTTLS"),
        {ok, Tls} = ssl:connect(Socket, [?TRANSPORT | Options], wait_ms()),
        ok = ssl:send(Tls, "secret"),
        ssl:recv(Tls, 0, wait_ms())
    end),
    {ok, Socket} = weir_socket:accept(Listener, wait_ms()),
    {ok, <<"STARTTLS">>} = weir_socket:recv(Socket, 8, wait_ms()),
    {ok, Tls} = ssl:handshake(Socket, [?TRANSPORT | server_options(Config)], wait_ms()),
    {ok, <<"secret">>} = ssl:recv(Tls, 6, wait_ms()),
    ok = ssl:send(Tls, "answer"),
    {ok, <<"answer">>} = result(Client),
    ok = ssl:close(Tls),
    ok = weir_socket:close(Listener).

closed_by_death(Config) ->
    with_pair(Config, ?TRANSPORT, ?TRANSPORT, [{active, false}], fun(Server, Client) ->
        Owner = start(fun() -> receive die -> ok end end),
        ok = ssl:controlling_process(Client, element(1, Owner)),
        element(1, Owner) ! die,
        ok = result(Owner),
        {error, closed} = ssl:recv(Server, 0, wait_ms())
    end).

%% Only one end is ours.
to_gen_tcp(Config) ->
    with_pair(Config, {cb_info, {gen_tcp, tcp, tcp_closed, tcp_error}}, ?TRANSPORT, [{active, false}], fun echo/2).

from_gen_tcp(Config) ->
    with_pair(Config, ?TRANSPORT, {cb_info, {gen_tcp, tcp, tcp_closed, tcp_error}}, [{active, false}], fun echo/2).

echo(Server, Client) ->
    Data = rand:bytes(100_000),
    ok = ssl:send(Client, Data),
    {ok, Data} = ssl:recv(Server, byte_size(Data), wait_ms()).

%% A server that the client does not trust: both hear of it, and nothing is left.
refused_by_the_client(Config) ->
    {ok, Listener} = ssl:listen(0, [?TRANSPORT, {active, false}, {log_level, none} | server_options(Config)]),
    {ok, {_, Port}} = ssl:sockname(Listener),
    #{client_config := Untrusted} = certificates(),
    Client = start(fun() ->
        ssl:connect("localhost", Port, [?TRANSPORT, {verify, verify_peer}, {log_level, none} | Untrusted], wait_ms())
    end),
    {ok, Accepted} = ssl:transport_accept(Listener, wait_ms()),
    {error, _} = ssl:handshake(Accepted, wait_ms()),
    {error, {tls_alert, _}} = result(Client),
    ok = ssl:close(Listener).

%% ---------------------------------------------------------------- tools

with_pair(Config, ServerTransport, ClientTransport, Options, Fun) ->
    {ok, Listener} = ssl:listen(0, [ServerTransport, binary | Options] ++ server_options(Config)),
    {ok, {_, Port}} = ssl:sockname(Listener),
    Self = self(),
    Connector = spawn_link(fun() ->
        {ok, Client} = ssl:connect(
            {127, 0, 0, 1}, Port, [ClientTransport, binary | Options] ++ client_options(Config), wait_ms()
        ),
        ok = ssl:controlling_process(Client, Self),
        Self ! {self(), Client}
    end),
    {ok, Accepted} = ssl:transport_accept(Listener, wait_ms()),
    {ok, Server} = ssl:handshake(Accepted, wait_ms()),
    {Connector, Client} = next(),
    [Version] = versions(Config),
    {ok, [{protocol, Version}]} = ssl:connection_information(Server, [protocol]),
    Result = Fun(Server, Client),
    _ = ssl:close(Client),
    _ = ssl:close(Server),
    ok = ssl:close(Listener),
    Result.

server_options(Conf) ->
    #{server_config := Server} = ?config(certificates, Conf),
    with_version(Conf, Server).

client_options(Conf) ->
    #{client_config := Client} = ?config(certificates, Conf),
    %% The name in the certificate is none of this node's.
    with_version(Conf, [
        {verify, verify_peer}, {server_name_indication, disable}, {customize_hostname_check, [{match_fun,
        fun any_name/2}]}
        | Client
    ]).

any_name(_, _) -> true.

with_version(Conf, Options) ->
    case ?config(version, Conf) of
        undefined -> Options;
        _ -> [{versions, versions(Conf)} | Options]
    end.

versions(Conf) -> [?config(version, Conf)].
