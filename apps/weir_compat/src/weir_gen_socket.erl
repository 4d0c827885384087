%% @doc The interface of gen_socket, gen_tcp's functions with one poll set per scheduler, on {@link weir_socket}.
%%
%% Functions, arguments and results are those of gen_socket 1.0.3. A caller replaces `gen_socket:' by
%% `weir_gen_socket:', and needs no other change. docs/migrating/gen_socket.md describes the move.
%%
%% The defaults are those of gen_socket. Data are binaries. Sockets are passive until `active' is set. A listening
%% socket holds up to 128 connections that wait for {@link accept/2}. A read from a connection that was reset returns
%% `econnreset'.
%%
%% The application weir_socket must be running. weir_compat starts weir_socket if it is installed. Without weir_socket,
%% {@link listen/2} and {@link connect/4} return the error `{not_started, weir_socket}'. All functions of weir_socket,
%% gen_tcp and inet accept the sockets, and can set options that gen_socket did not have.
%%
%% Where gen_tcp and gen_socket differ, results are those of gen_socket: `etimedout' after a time-out, `closed' for a
%% socket that is closed, `eperm' for a socket of another process, and `unknown_option'.
%%
%% Differences from gen_socket:
%% <ul>
%% <li>A socket is closed when its owner dies. gen_socket closed a socket when no process had its term.</li>
%% <li>If the peer has closed and {@link recv/2} or a message has reported that, {@link send/2} returns `{error,
%%     closed}'. In gen_socket a passive socket could still be written. `{exit_on_close, false}', set by
%%     `weir_socket:setopts/2', allows that here.</li>
%% <li>{@link send/2} returns when the kernel has the data or the data are queued. The next send waits while much is
%%     queued. In gen_socket a send waited until the kernel had all data. After `etimedout' nothing of the data is sent;
%%     after gen_socket's `etimedout' a part may have been sent.</li>
%% <li>{@link recv/3} loses no data at a time-out. Several processes may wait in {@link recv/3} and {@link
%%     accept/2}.</li>
%% <li>`{active, once}' and `{active, N}' leave the socket passive when they have run out. {@link recv/2} then works; in
%%     gen_socket it returned `einval'. `{active, N}' takes up to 32767.</li>
%% <li>`{tcp_closed, Socket}' follows `{tcp_error, Socket, Reason}'.</li>
%% <li>{@link controlling_process/2} moves the messages that are in the caller's mailbox. If the new owner is dead, the
%%     call returns `{error, badarg}'.</li>
%% <li>`{ip, Address}' in {@link connect/4} is the local address of the connection. gen_socket ignored the option. The
%%     host may have an address of inet6, and each address of a name is tried. An unknown name returns `{error,
%%     nxdomain}'; gen_socket failed with a `badmatch'.</li>
%% <li>Accepted sockets have the options of the listening socket. In gen_socket they had only the options that the
%%     kernel passes on.</li>
%% <li>If an option is unknown, no option is set. gen_socket set the options that preceded the unknown option in the
%%     list. A wrong value raises an exit `badarg' in {@link listen/2} and {@link connect/4}, and returns `{error,
%%     einval}' from {@link setopts/2}. In gen_socket a wrong value raised an error `badarg'.</li>
%% <li>`{send_timeout, infinity}' is allowed, and `{send_timeout, 0}' means the same.</li>
%% <li>{@link getstat/1} counts packets as inet does and leaves `recv_dvi' at 0. After the close, it returns `{error,
%%     closed}'.</li>
%% </ul>
%% This module leaves out the items `errorcode' and `ionread' of {@link getopts/2}, the item `ev_stat' of {@link
%% socket_info/2}, and the functions of `raw_socket'. gen_socket returned an error for `errorcode'.
%%
%% Each function costs as much as the function of {@link weir_socket} that it calls.
-module(weir_gen_socket).

-export([listen/2, accept/1, accept/2, connect/3, connect/4]).
-export([send/2, recv/2, recv/3, close/1, controlling_process/2, dup_socket/1]).
-export([setopts/2, getopts/2, peername/1, sockname/1, getstat/1, getstat/2, socket_info/2]).

-export_type([socket/0, option/0, listen_option/0, connect_option/0, reason/0, open_error/0]).

-type socket() :: weir_socket:socket().

-type option() ::
    {active, boolean() | once | 0..32767}
    | {nodelay | reuseaddr | keepalive, boolean()}
    | {recbuf | sndbuf, non_neg_integer()}
    | {send_timeout, timeout()}
    | {backlog, non_neg_integer()}
    | {ip, inet:ip_address() | inet:hostname()}.
%% `{active, N}' sets the count, where gen_tcp adds to the count. `{active, 0}' means `{active, false}'. `send_timeout'
%% is in milliseconds, and 0 means `infinity'. If an option is given several times, the last value counts.
%%
%% `backlog', default 128, is for {@link listen/2}. `ip' is for {@link listen/2} and {@link connect/4}. Other functions
%% ignore both.

-type listen_option() :: option() | {pollset, non_neg_integer()} | {bind_policy, atom()}.
-type connect_option() :: listen_option().
%% `pollset' and `bind_policy' are options of {@link weir_socket:listen/2}. gen_socket had
%% `bind_pollset' and the environment of its application instead.

-type reason() :: closed | etimedout | inet:posix().
-type open_error() :: {error, unknown_option | nxdomain | system_limit | reason()}.

-define(DEFAULTS, [binary, {active, false}, {show_econnreset, true}]).
-define(BACKLOG, 128).

-define(OPTIONS, [active, nodelay, reuseaddr, keepalive, recbuf, sndbuf, send_timeout]).
-define(OPENING, [ip, pollset, bind_policy | ?OPTIONS]).

-define(COUNTERS, [
    recv_avg, recv_cnt, recv_dvi, recv_max, recv_oct, send_avg, send_cnt, send_max, send_oct, send_pend
]).

%% @doc Opens a socket that listens on a port. If the port is 0, the kernel chooses a free port; see {@link sockname/1}.
-spec listen(inet:port_number(), [listen_option()]) -> {ok, socket()} | open_error().
listen(Port, Options) ->
    case settings([{backlog, ?BACKLOG} | Options], [backlog | ?OPENING], []) of
        {ok, Settings} -> weir_socket:listen(Port, ?DEFAULTS ++ Settings);
        {error, _} = Error -> Error
    end.

%% @doc Does the same as `accept(Socket, infinity)'.
-spec accept(socket()) -> {ok, socket()} | {error, reason() | system_limit}.
accept(Socket) -> accept(Socket, infinity).

%% @doc Waits for the next connection. The caller owns the returned socket.
-spec accept(socket(), timeout()) -> {ok, socket()} | {error, reason() | system_limit}.
accept(Socket, Timeout) -> reworded(weir_socket:accept(Socket, Timeout)).

%% @doc Does the same as `connect(Host, Port, Options, infinity)'.
-spec connect(inet:ip_address() | inet:hostname(), inet:port_number(), [connect_option()]) ->
    {ok, socket()} | open_error().
connect(Host, Port, Options) -> connect(Host, Port, Options, infinity).

%% @doc Connects to a host, within `Timeout' milliseconds for all addresses of the host together.
-spec connect(inet:ip_address() | inet:hostname(), inet:port_number(), [connect_option()], timeout()) ->
    {ok, socket()} | open_error().
connect(Host, Port, Options, Timeout) ->
    case settings(Options, ?OPENING, [backlog]) of
        {ok, Settings} -> reworded(weir_socket:connect(Host, Port, ?DEFAULTS ++ Settings, Timeout));
        {error, _} = Error -> Error
    end.

%% @doc Sends data.
-spec send(socket(), iodata()) -> ok | {error, reason()}.
send(Socket, Data) -> reworded(weir_socket:send(Socket, Data)).

%% @doc Does the same as `recv(Socket, Length, infinity)'.
-spec recv(socket(), non_neg_integer()) -> {ok, binary()} | {error, reason()}.
recv(Socket, Length) -> recv(Socket, Length, infinity).

%% @doc Receives `Length' bytes from a passive socket. If `Length' is 0, receives all bytes that have arrived, at least
%% one.
%%
%% `einval': the socket is active. `enomem': `Length' is more than 64 MB.
-spec recv(socket(), non_neg_integer(), timeout()) -> {ok, binary()} | {error, reason()}.
recv(Socket, Length, Timeout) -> reworded(weir_socket:recv(Socket, Length, Timeout)).

%% @doc Closes the socket after all queued data are written. Any process may close a socket, also more than once.
-spec close(socket()) -> ok.
close(Socket) -> weir_socket:close(Socket).

%% @doc Makes another process the owner, which then gets the socket's messages. `eperm': the caller is not the owner.
-spec controlling_process(socket(), pid()) -> ok | {error, badarg | reason()}.
controlling_process(Socket, Pid) -> reworded(weir_socket:controlling_process(Socket, Pid)).

%% @doc Returns a second descriptor of the same connection or listening socket. The caller owns the new socket, which is
%% active or passive as the first socket is.
-spec dup_socket(socket()) -> {ok, socket()} | {error, reason()}.
dup_socket(Socket) -> of_socket(Socket, weir_socket:dup_socket(Socket)).

%% @doc Sets options. `unknown_option': an option does not exist, and no option is set.
-spec setopts(socket(), [option()]) -> ok | {error, unknown_option | reason()}.
setopts(Socket, Options) ->
    case settings(Options, ?OPTIONS, [backlog, ip]) of
        %% weir_socket sets the last option first.
        {ok, Settings} -> of_socket(Socket, weir_socket:setopts(Socket, lists:reverse(Settings)));
        {error, _} = Error -> Error
    end.

%% @doc Returns options by their names. The value of `active' is the number of messages that remain, if a number was
%% set.
-spec getopts(socket(), [atom()]) -> {ok, [option()]} | {error, reason()}.
getopts(Socket, Names) -> of_socket(Socket, weir_socket:getopts(Socket, Names)).

%% @doc Returns the address of the peer.
-spec peername(socket()) -> {ok, {inet:ip_address(), inet:port_number()}} | {error, reason()}.
peername(Socket) -> of_socket(Socket, weir_socket:peername(Socket)).

%% @doc Returns the local address.
-spec sockname(socket()) -> {ok, {inet:ip_address(), inet:port_number()}} | {error, reason()}.
sockname(Socket) -> of_socket(Socket, weir_socket:sockname(Socket)).

%% @doc Returns all counters; see {@link getstat/2}.
-spec getstat(socket()) -> {ok, [{inet:stat_option(), non_neg_integer()}]} | {error, reason()}.
getstat(Socket) -> getstat(Socket, ?COUNTERS).

%% @doc Returns counters of received and sent data, each counter once, in the order of their names. `einval': a counter
%% does not exist.
-spec getstat(socket(), [inet:stat_option()]) ->
    {ok, [{inet:stat_option(), non_neg_integer()}]} | {error, reason()}.
getstat(Socket, Names) -> of_socket(Socket, weir_socket:getstat(Socket, lists:usort(Names))).

%% @doc Returns the descriptor of a socket (`id'), or the number, from 1, of the poll set that serves it (`bind_id').
-spec socket_info(socket(), id | bind_id) -> {id, non_neg_integer()} | {bind_id, pos_integer()} | {error, closed}.
socket_info(Socket, Item) when Item =:= id; Item =:= bind_id ->
    case weir_socket:info(Socket) of
        #{fd := Fd} when Item =:= id -> {id, Fd};
        #{pollset := Set} when Item =:= bind_id -> {bind_id, Set + 1};
        #{} -> {error, closed}
    end;
socket_info(Socket, Item) ->
    error(badarg, [Socket, Item]).

%% ---------------------------------------------------------------- options in the form of weir_socket

settings(Options, Keys, Ignored) ->
    try
        {ok, [Setting || Option <- Options, Setting <- setting(Option, Keys, Ignored)]}
    catch
        throw:{error, _} = Error -> Error
    end.

setting({Key, Value}, Keys, Ignored) ->
    case lists:member(Key, Keys) of
        true -> setting(Key, Value);
        false ->
            true = lists:member(Key, Ignored) orelse throw({error, unknown_option}),
            []
    end;
setting(_, _, _) ->
    throw({error, unknown_option}).

setting(active, 0) -> [{active, false}];
%% weir_socket adds the number to the count, unless the socket is passive before.
setting(active, N) when is_integer(N) -> [{active, false}, {active, N}];
setting(send_timeout, 0) -> [{send_timeout, infinity}];
setting(ip, Name) when is_list(Name); is_atom(Name), Name =/= any, Name =/= loopback -> [{ip, address(Name)}];
setting(Key, Value) -> [{Key, Value}].

address(Name) ->
    case inet:getaddr(Name, inet) of
        {ok, Address} -> Address;
        {error, _} = Error -> throw(Error)
    end.

%% ---------------------------------------------------------------- errors in the form of gen_socket

reworded({error, timeout}) -> {error, etimedout};
reworded({error, not_owner}) -> {error, eperm};
reworded(Result) -> Result.

%% Replaces `einval' by `closed' if the socket is closed. weir_socket returns `einval' then, as inet does.
of_socket(Socket, {error, einval}) ->
    case weir_socket:info(Socket) of
        #{states := [closed]} -> {error, closed};
        #{} -> {error, einval}
    end;
of_socket(_Socket, Result) ->
    Result.
