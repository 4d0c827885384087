%% @doc Owns a server's listening socket. If it is started again it takes the port that it had.
%%
%% When an address is in use it tries again for ?PATIENCE: a server that was killed may not have let go of it yet, and
%% its supervisor starts the next one at once. If the listener is started again, it tries for ?RESTART_PATIENCE, and
%% also while the node has no descriptor or port. The supervisor, which counts restarts, therefore goes on.
%%
%% A Unix socket's file that an earlier server has left behind, and where nobody listens, is removed; its own is removed
%% when it ends.
%% @private
-module(weir_memcached_server_listener).
-behaviour(gen_server).

-export([start_link/1, socket/1, address/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2, code_change/3]).

-export_type([address/0]).

-include_lib("kernel/include/file.hrl").
-include("weir_memcached_server.hrl").

%% What is read at once from a socket, which is also what a connection can have in its mailbox, times ?ACTIVE there.
-define(BUFFER, 16_384).

%% Milliseconds: for how long it tries again, and between two tries.
-define(PATIENCE, 1_000).
-define(RESTART_PATIENCE, 5_000).
-define(PAUSE, 20).

-type address() :: {inet:ip_address(), inet:port_number()} | {local, file:name_all()}.

-record(listener, {
    socket :: weir_socket:socket(),
    address :: address()
}).

%% @doc Opens the socket. The error is `{listen, Address, Reason}', or `{not_started, weir_socket}'.
-spec start_link(#cache{}) -> gen_server:start_ret().
start_link(Cache) -> weir_memcached_server_start:start(fun() -> gen_server:start_link(?MODULE, Cache, []) end).

%% @doc The listening socket.
-spec socket(#cache{}) -> weir_socket:socket().
socket(#cache{shared = Shared}) -> ets:lookup_element(Shared, listener, 2).

%% @doc Where it listens.
-spec address(#cache{}) -> address().
address(#cache{shared = Shared}) -> ets:lookup_element(Shared, listener, 3).

%% @private
-spec init(#cache{}) -> {ok, #listener{}} | {stop, {listen, address(), term()} | {not_started, weir_socket}}.
init(#cache{shared = Shared, conf = Conf}) ->
    process_flag(trap_exit, true),
    {Address, Patience} =
        case {ets:lookup(Shared, listener), Conf} of
            {[{listener, _, Before}], _} -> {Before, ?RESTART_PATIENCE};
            {[], #{path := undefined, ip := Ip, port := Port}} -> {{Ip, Port}, ?PATIENCE};
            {[], #{path := Path}} -> {{local, Path}, ?PATIENCE}
        end,
    case listen_within(Patience, Address, Conf) of
        {ok, Socket} ->
            Bound = bound(Address, Socket, Conf),
            true = ets:insert(Shared, {listener, Socket, Bound}),
            {ok, #listener{socket = Socket, address = Bound}};
        {error, {not_started, _} = Reason} ->
            {stop, Reason};
        {error, Reason} ->
            {stop, {listen, Address, Reason}}
    end.

listen_within(Left, Address, Conf) ->
    ok = remove_stale(Address),
    case listen(Address, Conf) of
        {error, Reason} when
            Left > 0, Reason =:= eaddrinuse orelse
                Reason =:= emfile orelse Reason =:= enfile orelse Reason =:= system_limit
        ->
            receive
            after ?PAUSE -> listen_within(Left - ?PAUSE, Address, Conf)
            end;
        Result ->
            Result
    end.

listen(Address, #{backlog := Backlog, send_timeout := SendTimeout}) ->
    {Port, Where} = where(Address),
    Options = Where ++ [
        binary,
        {active, false},
        {packet, raw},
        {buffer, ?BUFFER},
        {backlog, Backlog},
        %% weir_memcached_server_wire closes it.
        {send_timeout, SendTimeout}
    ],
    try
        weir_socket:listen(Port, Options)
    catch
        error:{not_started, weir_socket} = Reason -> {error, Reason}
    end.

where({local, _} = Address) -> {0, [{ifaddr, Address}]};
where({Ip, Port}) -> {Port, [family(Ip), {ip, Ip}, {reuseaddr, true}, {nodelay, true}]}.

family(Ip) when tuple_size(Ip) =:= 8 -> inet6;
family(_Ip) -> inet.

bound({local, Path} = Address, _Socket, #{mode := Mode}) ->
    ok = file:change_mode(Path, Mode),
    Address;
bound({Ip, _}, Socket, _Conf) ->
    {ok, Port} = weir_socket:port(Socket),
    {Ip, Port}.

remove_stale({local, Path} = Address) ->
    case {file:read_link_info(Path, [raw]), gen_tcp:connect(Address, 0, [local])} of
        {_, {ok, Socket}} ->
            gen_tcp:close(Socket);
        %% A socket is neither a file nor a folder. Anything else that is there is not ours to remove.
        {{ok, #file_info{type = other}}, {error, econnrefused}} ->
            _ = file:delete(Path, [raw]),
            ok;
        {_, {error, _}} ->
            ok
    end;
remove_stale(_Address) ->
    ok.

%% @private
-spec handle_call(term(), gen_server:from(), #listener{}) -> {reply, {error, unknown_call}, #listener{}}.
handle_call(_, _, Listener) -> {reply, {error, unknown_call}, Listener}.

%% @private
-spec handle_cast(term(), #listener{}) -> {noreply, #listener{}}.
handle_cast(_, Listener) -> {noreply, Listener}.

%% @private
-spec handle_info(term(), #listener{}) -> {noreply, #listener{}}.
handle_info(_, Listener) -> {noreply, Listener}.

%% @private
-spec terminate(term(), #listener{}) -> ok.
terminate(_Reason, #listener{socket = Socket, address = Address}) ->
    %% In this order: after the socket, the file might be the next one's.
    _ = case Address of
        {local, Path} -> file:delete(Path, [raw]);
        _ -> ok
    end,
    ok = weir_socket:close(Socket).

%% @private
-spec code_change(term(), #listener{}, term()) -> {ok, #listener{}}.
code_change(_OldVsn, Listener, _Extra) -> {ok, Listener}.
