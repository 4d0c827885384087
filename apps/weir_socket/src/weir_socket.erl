%% @doc gen_tcp's functions, and inet's, on sockets of our own.
%%
%% A socket is `{'$inet', weir_socket, Handle}'. `listen' and `connect' of this module make one; from then on gen_tcp's
%% and inet's functions accept it as it is, and so does what is built on them. Calling this module saves a hop.
%% What messages its owner gets, how packets are formed, what each option does, is as gen_tcp's documentation says;
%% what is different is listed in docs/guide/socket.md.
%%
%% A socket is read by the poller of its pollset (one for each scheduler), written by whoever sends. There is no process
%% for a socket. Its owner is the process that opened or accepted it; when that dies the socket is closed.
%%
%% Errors. Misuse is what gen_tcp makes of it: `listen' and `connect' exit with `badarg' when an option or an address is
%% none; `setopts' and `getopts' return `{error, einval}'; other functions fail with `function_clause'. Options that
%% gen_tcp takes and this module cannot honour are refused by name, with `{error, {bad_option, Key, Value}}'.
%% A handle that stands for no socket here, of another node or of a library that was unloaded, is a closed socket.
%% The application weir_socket has to run: its pollers are what makes sockets move. `listen' and `connect' fail with the
%% error `{not_started, weir_socket}' if it does not.
%%
%% Without the NIF, see {@link backend/0}, a socket is gen_tcp's own, and all is as gen_tcp does it. The functions of
%% this module take gen_tcp's sockets everywhere.
%%
%% Waiting. Whoever waits gets an answer as soon as somebody closes the socket, and after a time-out nothing comes
%% late. Time-outs are in milliseconds.
%%
%% Costs are of x86-64 at 3 GHz.
-module(weir_socket).

-export([listen/2, accept/1, accept/2, connect/2, connect/3, connect/4, fdopen/2]).
-export([send/2, recv/2, recv/3, shutdown/2, close/1, controlling_process/2]).
-export([setopts/2, getopts/2, peername/1, sockname/1, port/1, getstat/1, getstat/2, info/1]).
-export([dup_socket/1, socket_info/2, backend/0, info/0, i/0, i/1]).
%% For inet, gen_tcp and file only, which call them of whatever module a socket names.
-export([unrecv/2, sendfile/4, socknames/1, monitor/1, cancel_monitor/1, socket_to_list/1, which_packet_type/1]).

-export_type([socket/0, option/0, listen_option/0, connect_option/0, fdopen_option/0, open_error/0]).

-include("weir_socket.hrl").

-define(COUNTERS, [
    recv_oct, recv_cnt, recv_max, recv_avg, recv_dvi, send_oct, send_cnt, send_max, send_avg, send_pend
]).

-type socket() :: {'$inet', weir_socket, weir_socket_nif:sock()} | gen_tcp:socket().
%% The first is what `listen' and `connect' return, unless {@link backend/0} is `gen_tcp'.

%% What setopts takes.
-type option() ::
    binary
    | list
    | {atom(), term()}
    | {raw, Level :: integer(), Name :: integer(), Value :: binary()}
    | {raw, {Level :: integer(), Name :: integer(), Value :: binary()}}.

%% `{pollset, N}' chooses the set (0 to the number of schedulers minus one) that serves the socket; `{bind_policy, P}'
%% how it is chosen: `least_loaded', the one with the fewest sockets; `round_robin', one after the other; `scheduler',
%% the one whose poller has last run on the scheduler where the socket is made. For a listening socket both are what its
%% accepted sockets get.
-type open_option() ::
    inet
    | inet6
    | local
    | {ip | ifaddr, inet:socket_address() | weir_socket_addr:sockaddr()}
    | {port, inet:port_number()}
    | {fd, non_neg_integer()}
    | {netns, file:filename_all()}
    | {pollset, non_neg_integer()}
    | {bind_policy, scheduler | least_loaded | round_robin}
    | option().

-type listen_option() :: {backlog, non_neg_integer()} | open_option().
-type connect_option() :: open_option().

-type fdopen_option() ::
    inet
    | inet6
    | local
    | {pollset, non_neg_integer()}
    | {bind_policy, scheduler | least_loaded | round_robin}
    | option().

-type open_error() ::
    {error, inet:posix() | system_limit | nxdomain | timeout | weir_socket_opts:bad_option()}.

-type stat() :: inet:stat_option().

%% @doc Opens a socket that listens on a port, or for a service. Port 0: the kernel chooses one; see {@link port/1}.
%%
%% Its options are those of the sockets that are accepted. Exits with `badarg' for what is no option.
%%
%% Cost: 13 us with closing it.
-spec listen(inet:port_number() | atom(), [listen_option()]) -> {ok, socket()} | open_error().
listen(Port, Options) -> weir_socket_open:listen(Port, Options).

%% @doc The same as `accept(Socket, infinity)'.
-spec accept(socket()) -> {ok, socket()} | {error, closed | system_limit | inet:posix()}.
accept(Socket) -> accept(Socket, infinity).

%% @doc The next connection. The caller is its owner. Any number of processes may wait, and are served in order.
%%
%% `closed': the listening socket is closed; `einval': it does not listen; `emfile', `enfile': there are no descriptors
%% left. A connection that comes when the time is over is not lost: the next call gets it.
-spec accept(socket(), timeout()) -> {ok, socket()} | {error, closed | timeout | system_limit | inet:posix()}.
accept(?SOCKET(Sock) = Socket, Timeout) when ?IS_TIMEOUT(Timeout) ->
    Ref = make_ref(),
    case weir_socket_nif:accept(Sock, Ref) of
        wait ->
            Since = weir_socket_wait:since(Timeout),
            receive
                {Ref, again} -> ?MODULE:accept(Socket, weir_socket_wait:left(Timeout, Since));
                {Ref, Result} -> accepted(Result)
            after Timeout ->
                accepted(weir_socket_wait:cancel(Sock, Ref))
            end;
        Result ->
            accepted(Result)
    end;
accept(Socket, Timeout) when ?IS_GEN_TCP(Socket) ->
    gen_tcp:accept(Socket, Timeout).

accepted({ok, Sock}) -> {ok, ?SOCKET(Sock)};
accepted({error, _} = Error) -> Error.

%% @doc The same as `connect(SockAddr, Options, infinity)'.
-spec connect(weir_socket_addr:sockaddr(), [connect_option()]) -> {ok, socket()} | open_error().
connect(#{} = SockAddr, Options) -> connect(SockAddr, Options, infinity).

%% @doc Connects to an address in the form of a map; or the same as `connect(Host, Port, Options, infinity)'.
-spec connect(weir_socket_addr:sockaddr(), [connect_option()], timeout()) -> {ok, socket()} | open_error();
    (weir_socket_addr:host(), inet:port_number() | atom(), [connect_option()]) -> {ok, socket()} | open_error().
connect(#{} = SockAddr, Options, Timeout) when ?IS_TIMEOUT(Timeout) ->
    weir_socket_open:connect(SockAddr, Options, Timeout);
connect(Host, Port, Options) ->
    connect(Host, Port, Options, infinity).

%% @doc Connects to a host: an address; a name, of which each address is tried until one answers; or `{local, Path}'
%% with port 0. The time-out is for all of it, except that the operating system's resolver does not heed it.
%%
%% The caller is the owner. Exits with `badarg' for what is no option, address or port.
%%
%% Cost: 60 us with an address of this node, with accepting it and closing both ends.
-spec connect(weir_socket_addr:host(), inet:port_number() | atom(), [connect_option()], timeout()) ->
    {ok, socket()} | open_error().
connect(Host, Port, Options, Timeout) when ?IS_TIMEOUT(Timeout) ->
    weir_socket_open:connect(Host, Port, Options, Timeout).

%% @doc Adopts a stream socket that something else has made, by its descriptor: one that is connected already, which
%% `{fd, Fd}' of {@link connect/4} is not for. The caller is the owner. Unless told otherwise the socket is passive and
%% in list mode, and its family is inet. One that listens may be accepted from, which gen_tcp's may not; with another
%% that is not connected, calls are `{error, enotconn}'.
%%
%% The descriptor stays open when the socket is closed, and with it the connection, if {@link shutdown/2} does not end
%% it: whoever has opened it closes it, after the socket.
%%
%% `einval': what is no option of setopts or a family, or the descriptor is of another family; `ebadf', `enotsock',
%% `eprototype': it is no stream socket's; `eexist': another socket of the same set has it.
%%
%% Cost: 10 us with closing it.
-spec fdopen(non_neg_integer(), [fdopen_option()]) -> {ok, socket()} | open_error().
fdopen(Fd, Options) when is_integer(Fd), Fd >= 0, is_list(Options) -> weir_socket_open:fdopen(Fd, Options).

%% @doc Sends a packet. `ok': the kernel has it, or it is queued for the kernel.
%%
%% When the queue is above its high watermark (8 KB, option `high_watermark'), the caller waits until it is down to the
%% low one, for as long as the option `send_timeout' says. After a time-out nothing of the packet has been taken: send
%% it again, for an empty one sends nothing of it, as it does with gen_tcp; with `send_timeout_close' the socket is
%% closed then. Several processes may send: no packet gets into another, and those of one process keep their order.
%%
%% `closed': the socket is closed, here or, as far as one can know, at the other end; `einval': no iodata; `emsgsize':
%% longer than the header of the option `packet' can say.
%%
%% Cost: that of the kernel, 3 to 10 us, for a binary that it takes; more for iodata of many parts.
-spec send(socket(), iodata()) -> ok | {error, closed | timeout | inet:posix()}.
send(?SOCKET(Sock), Data) when is_binary(Data) ->
    send_now(Sock, Data);
send(?SOCKET(Sock), Data) ->
    try erlang:iolist_to_iovec(Data) of
        Iovec -> send_now(Sock, Iovec)
    catch
        error:badarg -> {error, einval}
    end;
send(Socket, Data) when ?IS_GEN_TCP(Socket) ->
    gen_tcp:send(Socket, Data).

send_now(Sock, Data) ->
    Ref = make_ref(),
    case weir_socket_nif:send(Sock, Data, Ref) of
        wait -> weir_socket_wait:send(Sock, Data, Ref, fun weir_socket_nif:send/3);
        Result -> Result
    end.

%% @doc The same as `recv(Socket, Length, infinity)'.
-spec recv(socket(), non_neg_integer()) -> {ok, Packet} | {error, closed | inet:posix()} when
    Packet :: binary() | string() | term().
recv(Socket, Length) -> recv(Socket, Length, infinity).

%% @doc The next packet of a passive socket; without packets, `Length' bytes, or with 0 those that are there.
%%
%% Several processes may wait, and are served in order. What is received when the time is over is not lost: the next
%% call gets it. With the time-out 0 the kernel is asked, once: what it has is there, and so is the end of the stream.
%% `closed': the other end has closed, and all that it sent was received, or the socket is closed here; `einval': the
%% socket is active; `enomem': more than 64 MB; `emsgsize': the packet is longer than `packet_size'.
%%
%% Cost: 0.8 us without a system call; with the time-out 0 always one.
-spec recv(socket(), non_neg_integer(), timeout()) -> {ok, Packet} | {error, closed | timeout | inet:posix()} when
    Packet :: binary() | string() | term().
recv(?SOCKET(Sock), Length, 0) when is_integer(Length), Length >= 0 ->
    received(weir_socket_nif:recv_now(Sock, Length), Sock, 0);
recv(?SOCKET(Sock) = Socket, Length, Timeout) when is_integer(Length), Length >= 0, ?IS_TIMEOUT(Timeout) ->
    Ref = make_ref(),
    case weir_socket_nif:recv(Sock, Length, Ref) of
        wait ->
            Since = weir_socket_wait:since(Timeout),
            receive
                {Ref, again} -> ?MODULE:recv(Socket, Length, weir_socket_wait:left(Timeout, Since));
                {Ref, Result} -> received(Result, Sock, Timeout)
            after Timeout ->
                received(weir_socket_wait:cancel(Sock, Ref), Sock, 0)
            end;
        Result ->
            received(Result, Sock, Timeout)
    end;
recv(Socket, Length, Timeout) when ?IS_GEN_TCP(Socket) ->
    gen_tcp:recv(Socket, Length, Timeout).

received(decode, Sock, Timeout) -> weir_socket_decode:recv(Sock, Timeout);
received(Result, _Sock, _Timeout) -> Result.

%% @doc Shuts one direction or both. If data is queued, `write' and `read_write' are done when that is written, and the
%% caller does not wait for it; whoever sends meanwhile gets `{error, closed}'. The other end reads the end of the
%% stream; data can go on the other way.
-spec shutdown(socket(), read | write | read_write) -> ok | {error, closed | inet:posix()}.
shutdown(?SOCKET(Sock), How) when How =:= read; How =:= write; How =:= read_write ->
    weir_socket_nif:shutdown(Sock, How);
shutdown(Socket, How) when ?IS_GEN_TCP(Socket) ->
    gen_tcp:shutdown(Socket, How).

%% @doc Closes the socket. Waits until what is queued is written, unless the option `linger' is `{true, 0}'; gives up as
%% gen_tcp does: when the other end takes nothing for 5 seconds, after the seconds of `linger', or 180 seconds.
%% All who wait in a call for the socket get `{error, closed}'. A message `{tcp_closed, Socket}' is taken out of the
%% caller's mailbox. Any process may close a socket. Once more is `ok'.
%%
%% Cost: 3 us, and a scan of the caller's mailbox.
-spec close(socket()) -> ok.
close(?SOCKET(Sock) = Socket) ->
    Ref = make_ref(),
    case weir_socket_nif:close(Sock, Ref) of
        wait -> weir_socket_wait:close(Sock, Ref);
        _ -> ok
    end,
    receive
        {tcp_closed, Socket} -> ok
    after 0 ->
        ok
    end;
close(Socket) when ?IS_GEN_TCP(Socket) ->
    gen_tcp:close(Socket).

%% @doc Makes another process the owner: messages go there from now on, and the socket is closed when that one dies.
%%
%% Messages of the socket that are in the caller's mailbox are moved, before anything that comes later. If the new
%% owner is not alive they are put back, and the result is `{error, badarg}'. A socket whose owner has been told that it
%% is closed stays where it is, with its messages: `{error, closed}'.
%%
%% Delivery stops while the socket is moved: if the caller is killed in between, the socket is closed as always. If
%% somebody closes it in between, the result is `{error, closed}', and what was in the mailbox has been moved.
%%
%% Cost: 4 to 8 us with the switch to the new owner, and a scan of the caller's mailbox.
-spec controlling_process(socket(), pid()) -> ok | {error, closed | not_owner | badarg | inet:posix()}.
controlling_process(?SOCKET(Sock) = Socket, Pid) when is_pid(Pid), Pid =/= self(), node(Pid) =:= node() ->
    case weir_socket_nif:hold(Sock) of
        {ok, Active} -> move(Socket, Pid, Active);
        {error, not_owner} -> owned_by(Sock, Pid);
        {error, _} = Error -> Error
    end;
controlling_process(?SOCKET(Sock), Pid) when Pid =:= self() ->
    owned_by(Sock, Pid);
controlling_process(?SOCKET(_), Pid) when is_pid(Pid) ->
    {error, badarg};
controlling_process(Socket, Pid) when ?IS_GEN_TCP(Socket) ->
    gen_tcp:controlling_process(Socket, Pid).

move(?SOCKET(Sock) = Socket, Pid, Active) ->
    Messages = take_messages(Socket),
    forward(Messages, Pid),
    case weir_socket_nif:give(Sock, Pid, Active) of
        {error, badarg} = Error ->
            forward(Messages, self()),
            _ = weir_socket_nif:give(Sock, self(), Active),
            Error;
        Result ->
            Result
    end.

forward(Messages, Pid) -> lists:foreach(fun(Message) -> Pid ! Message end, Messages).

take_messages(Socket) ->
    receive
        {tcp, Socket, _} = Message -> [Message | take_messages(Socket)];
        {http, Socket, _} = Message -> [Message | take_messages(Socket)];
        {tcp_passive, Socket} = Message -> [Message | take_messages(Socket)];
        {tcp_error, Socket, _} = Message -> [Message | take_messages(Socket)];
        {tcp_closed, Socket} = Message -> [Message | take_messages(Socket)]
    after 0 ->
        []
    end.

%% It is no error to give a socket to who has it.
owned_by(Sock, Pid) ->
    case weir_socket_nif:info(Sock) of
        #{state := closed} -> {error, closed};
        #{owner := Pid} -> ok;
        #{} -> {error, not_owner}
    end.

%% @doc Sets options, from the last of the list to the first, as inet does: of two that say different things, the first
%% in the list counts. `active' is set when all others are. One that fails ends it; those after it in the list are set.
%% `einval': one of them is no option, and then none is set; or it can not be changed any more, or the socket is closed.
%%
%% When the other end has closed a passive socket, and this one has not yet, options of the kernel are taken to no
%% effect, but `priority', `tos', `tclass', `ttl' and `bind_to_device', which are `einval'; the others are set. After
%% `{tcp_closed, Socket}' all are `einval', but with `{exit_on_close, false}'.
%%
%% Cost: 0.8 us and 0.3 us an option; 1 us more for `tos' and `tclass'.
-spec setopts(socket(), [option()]) -> ok | {error, inet:posix() | weir_socket_opts:bad_option()}.
setopts(?SOCKET(Sock), Options) ->
    case weir_socket_opts:to_set(Options) of
        {ok, Settings} -> einval_if_closed(weir_socket_settings:set(Sock, Settings));
        badarg -> {error, einval};
        {bad_option, _, _} = Refused -> {error, Refused}
    end;
setopts(Socket, Options) when ?IS_GEN_TCP(Socket) ->
    weir_socket_gen_tcp:setopts(Socket, Options).

%% @doc Reads options, by their names, or `{raw, Level, Name, Size or binary}'. What the kernel does not have for such a
%% socket is left out, and so are all options of the kernel when the other end has closed. `einval': one of them is no
%% option, or the socket is closed.
%%
%% Of what setopts refuses, `recvtos', `recvttl', `recvtclass' and `debug' are `false', and `pktoptions' is `[]';
%% `high_msgq_watermark', `low_msgq_watermark', `netns' and `read_packets' are left out; others are `einval'.
%%
%% Cost: as {@link setopts/2}.
-spec getopts(socket(), [atom() | tuple()]) -> {ok, [option()]} | {error, inet:posix()}.
getopts(?SOCKET(Sock), Options) ->
    case weir_socket_opts:to_get(Options) of
        {ok, Keys} -> einval_if_closed(weir_socket_settings:get(Sock, Keys));
        badarg -> {error, einval}
    end;
getopts(Socket, Options) when ?IS_GEN_TCP(Socket) ->
    weir_socket_gen_tcp:getopts(Socket, Options).

%% @doc The address of the other end. `einval': the socket is closed; `enotconn': it is not connected.
-spec peername(socket()) ->
    {ok, {inet:ip_address(), inet:port_number()} | inet:returned_non_ip_address()} | {error, inet:posix()}.
peername(?SOCKET(Sock)) -> name(weir_socket_nif:peername(Sock));
peername(Socket) when ?IS_GEN_TCP(Socket) -> inet:peername(Socket).

%% @doc The address of this end. `einval': the socket is closed.
-spec sockname(socket()) ->
    {ok, {inet:ip_address(), inet:port_number()} | inet:returned_non_ip_address()} | {error, inet:posix()}.
sockname(?SOCKET(Sock)) -> name(weir_socket_nif:sockname(Sock));
sockname(Socket) when ?IS_GEN_TCP(Socket) -> inet:sockname(Socket).

name({ok, Address}) -> {ok, weir_socket_addr:to_inet(Address)};
name({error, _} = Error) -> einval_if_closed(Error).

%% @doc The port of this end; of a local socket, its path.
-spec port(socket()) -> {ok, inet:port_number() | binary()} | {error, inet:posix()}.
port(Socket) ->
    case sockname(Socket) of
        {ok, {_, Port}} -> {ok, Port};
        {error, _} = Error -> Error
    end.

%% @doc All counters: see {@link getstat/2}.
-spec getstat(socket()) -> {ok, [{stat(), non_neg_integer()}]} | {error, inet:posix()}.
getstat(Socket) -> getstat(Socket, ?COUNTERS).

%% @doc What the socket has received and sent, in packets and bytes, as inet says it; `send_pend' is what is queued. The
%% mean deviation `recv_dvi' is not counted, and is always 0. A packet that the kernel has refused counts as sent.
%% `einval': no such counter, or the socket is closed; not if only the other end has closed a passive one.
%%
%% Cost: 1.5 us.
-spec getstat(socket(), [stat()]) -> {ok, [{stat(), non_neg_integer()}]} | {error, inet:posix()}.
getstat(?SOCKET(Sock), Names) when is_list(Names) ->
    case weir_socket_nif:info(Sock) of
        #{state := closed, owner := undefined} -> {error, einval};
        #{counters := Counters} -> counters(Names, Counters)
    end;
getstat(Socket, Names) when ?IS_GEN_TCP(Socket), is_list(Names) ->
    inet:getstat(Socket, Names).

counters(Names, Counters) ->
    try
        {ok, [{Name, counter(Name, Counters)} || Name <- Names]}
    catch
        error:{badkey, _} -> {error, einval}
    end.

counter(recv_avg, #{recv_oct := Bytes, recv_cnt := N}) -> average(Bytes, N);
counter(send_avg, #{send_oct := Bytes, send_cnt := N}) -> average(Bytes, N);
counter(recv_dvi, _Counters) -> 0;
counter(Name, Counters) -> maps:get(Name, Counters).

average(_Bytes, 0) -> 0;
average(Bytes, N) -> Bytes div N.

%% @doc What there is to say about a socket: `owner', `states' (among them `accepting': somebody waits in accept, and
%% `busy': somebody waits in send), `active', `counters' as in inet's, and what {@link socket_info/2} knows. Of a closed
%% one, `#{states => [closed]}'. The map comes bare, as from `inet:info/1', whose place it takes.
%%
%% Cost: 2 us.
-spec info(socket()) -> map().
info(?SOCKET(Sock)) ->
    case weir_socket_nif:info(Sock) of
        #{state := closed} ->
            #{states => [closed]};
        #{state := State, counters := Counters} = Info ->
            {ok, All} = counters(?COUNTERS, Counters),
            Info#{states => states(State, Info), counters := maps:from_list(All)}
    end;
info(Socket) when ?IS_GEN_TCP(Socket) ->
    inet:info(Socket).

states(listening, #{acceptors := N}) when N > 0 -> [accepting, listen, open];
states(listening, _Info) -> [listen, open];
states(connecting, _Info) -> [connecting, open];
states(connected, #{senders := N}) when N > 0 -> [busy, connected, open];
states(connected, _Info) -> [connected, open];
states(flushing, _Info) -> [closing, open];
states(_, _Info) -> [open].

%% @doc Another descriptor of the same connection or listening socket, owned by the caller, with the delivery options
%% of the first. Both have to be closed for the connection to end. Two that receive share what comes: each byte goes to
%% one of them. gen_tcp's sockets have no such thing: `enotsup'.
-spec dup_socket(socket()) -> {ok, socket()} | {error, inet:posix()}.
dup_socket(?SOCKET(Sock)) ->
    case weir_socket_nif:dup(Sock) of
        {ok, Other} -> {ok, ?SOCKET(Other)};
        {error, _} = Error -> einval_if_closed(Error)
    end;
dup_socket(Socket) when ?IS_GEN_TCP(Socket) ->
    {error, enotsup}.

%% @doc One of what {@link info/1} says, in the manner of `erlang:port_info/2': `connected' or `owner', `pollset' (the
%% number of the set that serves it), `state', `fd', `domain'. `undefined': the socket is closed, or knows no such
%% thing, as one of gen_tcp's no `pollset'.
-spec socket_info(socket(), atom()) -> {atom(), term()} | undefined.
socket_info(Socket, connected) ->
    case socket_info(Socket, owner) of
        {owner, Owner} -> {connected, Owner};
        undefined -> undefined
    end;
socket_info(?SOCKET(Sock), Item) when is_atom(Item) ->
    case weir_socket_nif:info(Sock) of
        #{state := closed} -> undefined;
        #{Item := Value} -> {Item, Value};
        #{} -> undefined
    end;
socket_info(Socket, Item) when ?IS_GEN_TCP(Socket), is_atom(Item) ->
    weir_socket_gen_tcp:socket_info(Socket, Item).

%% @doc Whose the sockets are that `listen' and `connect' open. `epoll': this application's own. `gen_tcp': it was built
%% without the NIF, which needs Linux, or is left out with `WEIR_SOCKET_NO_NIF=1' in the environment of the build. A
%% socket is a port of gen_tcp's then, `pollset' and `bind_policy' mean nothing, and {@link dup_socket/1} is `enotsup'.
%%
%% It is decided when the application is compiled, and does not change. Cost: 0.1 us.
-spec backend() -> epoll | gen_tcp.
backend() ->
    case weir_socket_nif:pollsets() of
        0 -> gen_tcp;
        _ -> epoll
    end.

%% @doc All sockets of this node: how many there are, what they have received and sent, and whose they are.
%%
%% <ul>
%% <li>`backend': {@link backend/0}; gen_tcp's sockets are not counted here, and all counts are 0 where it is
%% `gen_tcp';</li>
%% <li>`pollsets': how many sets there are, one for each scheduler; `sets': of each its number, its `sockets', and the
%% process that serves it, `undefined' when the application does not run;</li>
%% <li>`sockets': those that are open; of these `listeners' listen, `connections' are connected, or closed and still
%% writing what is queued, and others are not connected yet;</li>
%% <li>`recv_oct', `send_oct': bytes that the open sockets have received and sent since they were opened, as
%% {@link getstat/1} counts them;</li>
%% <li>`send_pend': bytes that wait to be written; `buffered': bytes that were read and nobody has got yet;</li>
%% <li>`by_owner': the 20 processes with the most sockets, beginning with the one that has most; those with equally many
%% by bytes. `owner' is `undefined' for sockets that are closed and still write. `name' is the registered name, or else
%% the function the process was started with.</li>
%% </ul>
%%
%% A socket that the other end has closed is not counted, as soon as this end knows. The sockets go on meanwhile, so
%% figures may be of different moments; while nothing is opened and closed the counts are exact.
%%
%% Cost: 1 us a socket, in the caller, which others interrupt as usual; 0.1 s for 100,000. No socket waits for it.
-spec info() -> weir_socket_overview:overview().
info() -> weir_socket_overview:info().

%% @doc The same as `i(100)'.
-spec i() -> ok.
i() -> i(100).

%% @doc Prints a table of the open sockets, as `inet:i/0' does of ports: owner, bytes received and sent, own address,
%% address of the other end, and state. So many lines at most, and then how many sockets were left out.
%%
%% ```
%% Owner    Recv Sent Local Address   Foreign Address State
%% <0.85.0> 0    0    127.0.0.1:39917 *:*             listening
%% <0.85.0> 5    5    127.0.0.1:39917 127.0.0.1:53420 connected
%% '''
%%
%% Addresses are not looked up. Where {@link backend/0} is `gen_tcp', it is `inet:i(tcp)'. Cost: 10 us a line.
-spec i(Lines :: non_neg_integer() | infinity) -> ok.
i(Lines) when is_integer(Lines), Lines >= 0; Lines =:= infinity -> weir_socket_overview:print(Lines).

einval_if_closed({error, closed}) -> {error, einval};
einval_if_closed(Result) -> Result.

%% What inet, gen_tcp and file ask for.

%% @private
-spec unrecv(socket(), iodata()) -> ok | {error, enotsup | inet:posix()}.
unrecv(?SOCKET(_), _Data) -> {error, enotsup};
unrecv(Socket, Data) when ?IS_GEN_TCP(Socket) -> gen_tcp:unrecv(Socket, Data).

%% @private
-spec sendfile(socket(), file:fd(), non_neg_integer(), non_neg_integer()) ->
    {ok, non_neg_integer()} | {error, closed | timeout | inet:posix() | badarg | terminated}.
sendfile(?SOCKET(Sock), File, Offset, Bytes) -> weir_socket_sendfile:send(Sock, File, Offset, Bytes);
sendfile(Socket, File, Offset, Bytes) when ?IS_GEN_TCP(Socket) -> file:sendfile(File, Socket, Offset, Bytes, []).

%% @private
-spec socknames(socket()) -> {ok, [term()]} | {error, inet:posix()}.
socknames(Socket) ->
    case sockname(Socket) of
        {ok, Name} -> {ok, [Name]};
        {error, _} = Error -> Error
    end.

%% @private For inet:monitor/1, which has to be told of it, so that inet:cancel_monitor/1 knows whom to ask.
-spec monitor(socket()) -> reference().
monitor(?SOCKET(Sock) = Socket) ->
    case weir_socket_nif:monitor(Sock) of
        {ok, Ref} ->
            Ref;
        {error, closed} ->
            Ref = make_ref(),
            self() ! {'DOWN', Ref, socket, Socket, nosock},
            Ref;
        {error, Reason} ->
            error(Reason, [Socket])
    end;
monitor(Socket) when ?IS_GEN_TCP(Socket) ->
    inet:monitor(Socket).

%% @private
-spec cancel_monitor(reference()) -> boolean().
cancel_monitor(Ref) when is_reference(Ref) -> weir_socket_nif:cancel_monitor(Ref).

%% @private
-spec socket_to_list(socket()) -> string().
socket_to_list(?SOCKET(Sock)) ->
    "#Ref" ++ Number = lists:flatten(io_lib:format("~0p", [Sock])),
    "#Socket" ++ Number;
socket_to_list(Socket) when ?IS_GEN_TCP(Socket) ->
    inet:socket_to_list(Socket).

%% @private
-spec which_packet_type(socket()) -> {ok, term()} | {error, inet:posix()}.
which_packet_type(Socket) ->
    case getopts(Socket, [packet]) of
        {ok, [{packet, Type}]} -> {ok, Type};
        {error, _} = Error -> Error
    end.
