%% @doc The interface of gen_socket, gen_tcp's functions with one poll set per scheduler, on {@link weir_socket}.
%%
%% Function for function, argument for argument, result for result, as of gen_socket 1.0.3. Replacing `gen_socket:' by
%% `weir_gen_socket:' is all that a caller needs; docs/migrating/gen_socket.md goes through it. What gen_socket had as
%% defaults is so here: data are binaries, sockets are passive until they are told otherwise, 128 connections wait in a
%% listening socket, and who reads from a connection that was reset is told `econnreset'.
%%
%% The application weir_socket has to run, which weir_compat starts where it is there; {@link listen/2} and {@link
%% connect/4} fail with the error `{not_started, weir_socket}' if it does not. A socket is one of `weir_socket''s, so
%% every function of that module, gen_tcp's and inet's take it, and can set what gen_socket had no option for.
%%
%% Results are gen_socket's where those of gen_tcp are others: `etimedout' when the time is over, `closed' of a socket
%% that is closed, `eperm' of a socket that is another's, `unknown_option'.
%%
%% What differs from gen_socket:
%% <ul>
%% <li>A socket is closed when its owner dies. gen_socket closed one when no process had its term any more.</li>
%% <li>When the other end has closed and {@link recv/2} or a message has said so, {@link send/2} is `{error, closed}'.
%%     In gen_socket a passive socket could still be written to; for that set `{exit_on_close, false}', by
%%     `weir_socket:setopts/2'.</li>
%% <li>{@link send/2} returns when the kernel has the data or they are queued, and the next one waits while much is
%%     queued; gen_socket's waited until the kernel had them all. After `etimedout' nothing of them is sent; of
%%     gen_socket's nobody knew how much.</li>
%% <li>{@link recv/3} that times out loses nothing. Several processes may wait in it, and in {@link accept/2}.</li>
%% <li>`{active, once}' and `{active, N}' that have run out leave the socket passive: {@link recv/2} works, and was
%%     `einval' before. `{active, N}' takes up to 32767.</li>
%% <li>After `{tcp_error, Socket, Reason}' comes `{tcp_closed, Socket}'.</li>
%% <li>{@link controlling_process/2} moves the messages that are in the caller's mailbox. A new owner that is dead is
%%     `{error, badarg}'.</li>
%% <li>`{ip, Address}' in {@link connect/4} is where the connection comes from; gen_socket ignored it. The host may
%%     have an address of inet6, each address of a name is tried, and a name that is none is `{error, nxdomain}', where
%%     gen_socket failed with a `badmatch'.</li>
%% <li>Accepted sockets have the options of the listening one. In gen_socket they had only what the kernel passes
%%     on.</li>
%% <li>An unknown option changes nothing; gen_socket had set those before it. A wrong value is an exit `badarg' of
%%     {@link listen/2} and {@link connect/4}, and `{error, einval}' of {@link setopts/2}; in gen_socket an error
%%     `badarg'.</li>
%% <li>`{send_timeout, infinity}', and 0 for the same, can be set.</li>
%% <li>{@link getstat/1} counts packets as inet does, leaves `recv_dvi' at 0, and is `{error, closed}' after the
%%     close.</li>
%% </ul>
%% Left out: `errorcode' (for which gen_socket had an error) and `ionread' of {@link getopts/2}, `ev_stat' of {@link
%% socket_info/2}, and the functions of `raw_socket'.
%%
%% Cost of each function: that of {@link weir_socket}'s.
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
%% `{active, N}' sets the count, and does not add to it as gen_tcp's does; 0 is `false'. `send_timeout' is in
%% milliseconds, 0 is `infinity'. The last of several counts. `backlog' is for {@link listen/2}, default 128, and `ip'
%% for that and {@link connect/4}; elsewhere both are taken and do nothing.

-type listen_option() :: option() | {pollset, non_neg_integer()} | {bind_policy, atom()}.
-type connect_option() :: listen_option().
%% `pollset' and `bind_policy' are {@link weir_socket:listen/2}'s, in place of gen_socket's `bind_pollset' and of the
%% environment of its application.

-type reason() :: closed | etimedout | inet:posix().
-type open_error() :: {error, unknown_option | nxdomain | system_limit | reason()}.

-define(DEFAULTS, [binary, {active, false}, {show_econnreset, true}]).
-define(BACKLOG, 128).

-define(OPTIONS, [active, nodelay, reuseaddr, keepalive, recbuf, sndbuf, send_timeout]).
-define(OPENING, [ip, pollset, bind_policy | ?OPTIONS]).

-define(COUNTERS, [
    recv_avg, recv_cnt, recv_dvi, recv_max, recv_oct, send_avg, send_cnt, send_max, send_oct, send_pend
]).

%% @doc Opens a socket that listens on a port. Port 0: the kernel chooses one; see {@link sockname/1}.
-spec listen(inet:port_number(), [listen_option()]) -> {ok, socket()} | open_error().
listen(Port, Options) ->
    case settings([{backlog, ?BACKLOG} | Options], [backlog | ?OPENING], []) of
        {ok, Settings} -> weir_socket:listen(Port, ?DEFAULTS ++ Settings);
        {error, _} = Error -> Error
    end.

%% @doc The same as `accept(Socket, infinity)'.
-spec accept(socket()) -> {ok, socket()} | {error, reason() | system_limit}.
accept(Socket) -> accept(Socket, infinity).

%% @doc The next connection, which is the caller's.
-spec accept(socket(), timeout()) -> {ok, socket()} | {error, reason() | system_limit}.
accept(Socket, Timeout) -> reworded(weir_socket:accept(Socket, Timeout)).

%% @doc The same as `connect(Host, Port, Options, infinity)'.
-spec connect(inet:ip_address() | inet:hostname(), inet:port_number(), [connect_option()]) ->
    {ok, socket()} | open_error().
connect(Host, Port, Options) -> connect(Host, Port, Options, infinity).

%% @doc Connects to a host, within so many milliseconds for all of it.
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

%% @doc The same as `recv(Socket, Length, infinity)'.
-spec recv(socket(), non_neg_integer()) -> {ok, binary()} | {error, reason()}.
recv(Socket, Length) -> recv(Socket, Length, infinity).

%% @doc So many bytes, or with 0 those that are there, of a passive socket. `einval': it is active. `enomem': more than
%% 64 MB.
-spec recv(socket(), non_neg_integer(), timeout()) -> {ok, binary()} | {error, reason()}.
recv(Socket, Length, Timeout) -> reworded(weir_socket:recv(Socket, Length, Timeout)).

%% @doc Closes the socket, when what is queued is written. Any process may. Once more is `ok'.
-spec close(socket()) -> ok.
close(Socket) -> weir_socket:close(Socket).

%% @doc Makes another process the owner, which gets the messages. `eperm': the caller is not the owner.
-spec controlling_process(socket(), pid()) -> ok | {error, badarg | reason()}.
controlling_process(Socket, Pid) -> reworded(weir_socket:controlling_process(Socket, Pid)).

%% @doc Another descriptor of the same connection or listening socket, owned by the caller; active as the first one is.
-spec dup_socket(socket()) -> {ok, socket()} | {error, reason()}.
dup_socket(Socket) -> of_socket(Socket, weir_socket:dup_socket(Socket)).

%% @doc Sets options. `unknown_option': none is set.
-spec setopts(socket(), [option()]) -> ok | {error, unknown_option | reason()}.
setopts(Socket, Options) ->
    case settings(Options, ?OPTIONS, [backlog, ip]) of
        %% That one begins at the end.
        {ok, Settings} -> of_socket(Socket, weir_socket:setopts(Socket, lists:reverse(Settings)));
        {error, _} = Error -> Error
    end.

%% @doc Reads options, by their names. Of `{active, N}' it says how many messages are to come.
-spec getopts(socket(), [atom()]) -> {ok, [option()]} | {error, reason()}.
getopts(Socket, Names) -> of_socket(Socket, weir_socket:getopts(Socket, Names)).

%% @doc The address of the other end.
-spec peername(socket()) -> {ok, {inet:ip_address(), inet:port_number()}} | {error, reason()}.
peername(Socket) -> of_socket(Socket, weir_socket:peername(Socket)).

%% @doc The address of this end.
-spec sockname(socket()) -> {ok, {inet:ip_address(), inet:port_number()}} | {error, reason()}.
sockname(Socket) -> of_socket(Socket, weir_socket:sockname(Socket)).

%% @doc All counters: see {@link getstat/2}.
-spec getstat(socket()) -> {ok, [{inet:stat_option(), non_neg_integer()}]} | {error, reason()}.
getstat(Socket) -> getstat(Socket, ?COUNTERS).

%% @doc What the socket has received and sent; each counter once, in the order of their names. `einval': no such
%% counter.
-spec getstat(socket(), [inet:stat_option()]) ->
    {ok, [{inet:stat_option(), non_neg_integer()}]} | {error, reason()}.
getstat(Socket, Names) -> of_socket(Socket, weir_socket:getstat(Socket, lists:usort(Names))).

%% @doc `id': the descriptor. `bind_id': the number of the poll set that serves the socket, from 1.
-spec socket_info(socket(), id | bind_id) -> {id, non_neg_integer()} | {bind_id, pos_integer()} | {error, closed}.
socket_info(Socket, Item) when Item =:= id; Item =:= bind_id ->
    case weir_socket:info(Socket) of
        #{fd := Fd} when Item =:= id -> {id, Fd};
        #{pollset := Set} when Item =:= bind_id -> {bind_id, Set + 1};
        #{} -> {error, closed}
    end;
socket_info(Socket, Item) ->
    error(badarg, [Socket, Item]).

%% Options, in the words of weir_socket

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
%% To what is counted already it would be added.
setting(active, N) when is_integer(N) -> [{active, false}, {active, N}];
setting(send_timeout, 0) -> [{send_timeout, infinity}];
setting(ip, Name) when is_list(Name); is_atom(Name), Name =/= any, Name =/= loopback -> [{ip, address(Name)}];
setting(Key, Value) -> [{Key, Value}].

address(Name) ->
    case inet:getaddr(Name, inet) of
        {ok, Address} -> Address;
        {error, _} = Error -> throw(Error)
    end.

%% Errors, in gen_socket's words

reworded({error, timeout}) -> {error, etimedout};
reworded({error, not_owner}) -> {error, eperm};
reworded(Result) -> Result.

%% Of a socket that is closed here weir_socket says `einval', as inet does.
of_socket(Socket, {error, einval}) ->
    case weir_socket:info(Socket) of
        #{states := [closed]} -> {error, closed};
        #{} -> {error, einval}
    end;
of_socket(_Socket, Result) ->
    Result.
