%% @doc TLS for connections, with ssl, on sockets of weir_socket.
%%
%% Runs no process. It is no dependency: who has no TLS needs no ssl.
%% @private
-module(weir_memcached_server_tls).

-export([check/1, handshake/3]).

%% Milliseconds; it takes some.
-define(TRIAL, 10_000).
-define(TRANSPORT, {cb_info, {weir_memcached_server_wire, tcp, tcp_closed, tcp_error, tcp_passive}}).

%% @doc Whether connections can be served with the options of a server: a handshake with a client that goes at once. ssl
%% looks at its options, and reads the files that they name, before it waits for the client. Cost: some milliseconds.
-spec check(weir_memcached_server_opts:conf()) -> ok | {error, term()}.
check(#{tls := none}) ->
    ok;
check(#{tls := Options}) ->
    case whereis(ssl_sup) of
        undefined -> {error, {not_started, ssl}};
        _ -> trial(Options)
    end.

%% Where no sockets are to be had it is not tried; the server's own will tell that.
trial(Options) ->
    Loopback = [{ip, {127, 0, 0, 1}}, binary, {active, false}],
    case gen_tcp:listen(0, Loopback) of
        {ok, Listener} ->
            {ok, Port} = inet:port(Listener),
            Client = gen_tcp:connect({127, 0, 0, 1}, Port, Loopback, ?TRIAL),
            Socket = gen_tcp:accept(Listener, case Client of {ok, _} -> ?TRIAL; {error, _} -> 0 end),
            Result = trial(Client, Socket, Options),
            lists:foreach(fun gen_tcp:close/1, [Listener | [Opened || {ok, Opened} <- [Client, Socket]]]),
            Result;
        {error, _} ->
            ok
    end.

trial({ok, Client}, {ok, Socket}, Options) ->
    _ = gen_tcp:shutdown(Client, write),
    try (tls()):handshake(Socket, Options, ?TRIAL) of
        {error, {options, Reason}} -> {error, Reason};
        _ -> ok
    catch
        _:Reason -> {error, Reason}
    end;
trial(_, _, _Options) ->
    ok.

%% @doc The handshake of a connection.
-spec handshake(weir_socket:socket(), [term()], timeout()) -> {ok, Secure :: term()} | {error, term()}.
handshake(Socket, Options, Timeout) -> (tls()):handshake(Socket, [?TRANSPORT | Options], Timeout).

%% The module's name is a variable, so that nobody takes it for a dependency.
tls() -> ssl.
