%% @doc The NIF: sockets and poll sets. The interface for programs is {@link weir_socket}.
%%
%% No function blocks, except {@link close/2} with the option linger, which runs on a dirty scheduler. What has to wait
%% returns `wait' and leaves the caller's reference in the socket; later one message `{Ref, Result}' is sent. To stop
%% waiting, {@link cancel/2}: `ok' says that no message will come, `gone' that it has been sent. A caller that is killed
%% is found dead when its turn comes, and nothing is lost but what was sent to it already.
%%
%% A socket belongs to the process that made or accepted it, and is closed when that dies; what is queued by then is
%% still written, and the kernel gives up after 180 seconds without progress, or after `user_timeout' if that is less;
%% on a local socket, and on a descriptor of somebody else's, it does not give up before the peer ends.
%% Functions may be called by any process, at any time; on a socket that is closed they return `{error, closed}', and so
%% they do for a reference that stands for no socket in this node, because it is of another one, or the library that
%% made it was unloaded.
%%
%% Posix names that are not known are `{unknown, Number}'.
%%
%% Built without the NIF (WEIR_SOCKET_NO_NIF=1, or not for Linux), this module loads no library: there are no pollsets,
%% and all other functions fail with `not_loaded'. See {@link weir_socket:backend/0}.
%%
%% All is in docs/internals/socket.md.
%% @private
-module(weir_socket_nif).

-export([open/3, open_fd/2, dup/1, bind/2, connect/3, listen/2, accept/2]).
-export([recv/3, recv_now/2, peek/1, wait_more/4, consume/5, expect/3, reject/2, cancel/2, ask_again/1]).
-export([send/3, send_raw/3]).
-export([close/2, close_now/1, stop/2, shutdown/2, hold/1, give/3, set/3, get/2]).
-export([peername/1, sockname/1, fd/1, monitor/1, cancel_monitor/1, info/1]).
-export([priv_dir/0, pollsets/0, serve/1, retire/1, resume/1, poll/1, pollset_info/1, survey/2, members/3]).

%% In each function itself: then dialyzer takes it for what it is.
-define(NOT_LOADED, erlang:nif_error(not_loaded)).

-export_type([sock/0, address/0, policy/0, posix/0, state/0, figures/0]).

-type sock() :: reference().
%% A resource. In terms for programs it is `{'$inet', weir_socket, Sock}'.

-type address() ::
    {inet, inet:ip4_address(), inet:port_number()}
    | {inet6, inet:ip6_address(), inet:port_number(), FlowInfo :: 0..16#ffffffff, ScopeId :: 0..16#ffffffff}
    | {local, binary()}.

-type policy() :: default | least_loaded | round_robin | scheduler | non_neg_integer().
%% The poll set of a socket, and of those that it accepts. `default' is `least_loaded': the one with the fewest sockets
%% that do not listen, counted from when they are made.
%% `scheduler': the set whose poller has last run on the scheduler that the caller runs on.

-type posix() :: inet:posix() | {unknown, integer()}.

-type state() :: open | connecting | connected | listening | flushing | closed.

-type figures() ::
    {Owner :: pid() | undefined, state(), RecvOct :: non_neg_integer(), SendOct :: non_neg_integer(),
        SendPend :: non_neg_integer(), Buffered :: non_neg_integer()}.
%% Of one socket: whose it is, and bytes that were received and sent, wait to be sent, and were read and not delivered.

-ifndef(weir_socket_no_nif).
-on_load(load/0).
load() -> erlang:load_nif(filename:join(priv_dir(), "weir_socket_nif"), erlang:system_info(schedulers)).
-endif.

%% @doc Where the libraries are: where the application is, or beside the code.
-spec priv_dir() -> file:filename().
priv_dir() ->
    case code:priv_dir(weir_socket) of
        {error, bad_name} -> filename:join(filename:dirname(filename:dirname(code:which(?MODULE))), "priv");
        Dir -> Dir
    end.

%% @doc A socket of the caller's, in the network of this node or in the name space that a file names.
-spec open(inet | inet6 | local, NetNs :: binary() | none, policy()) -> {ok, sock()} | {error, posix()}.
open(_Domain, _NetNs, _Policy) -> ?NOT_LOADED.

%% @doc Makes a socket of a descriptor of a stream socket, which is open, listening or connected. The descriptor stays
%% open when the socket is closed: whoever has opened it closes it, and not before.
-spec open_fd(integer(), policy()) -> {ok, sock()} | {error, posix()}.
open_fd(_Fd, _Policy) -> ?NOT_LOADED.

%% @doc A second socket, owned by the caller, for a duplicate of the descriptor. Which of the two receives what is
%% undefined.
-spec dup(sock()) -> {ok, sock()} | {error, closed | posix()}.
dup(_Sock) -> ?NOT_LOADED.

%% @doc Gives it a name.
-spec bind(sock(), address()) -> ok | {error, closed | posix()}.
bind(_Sock, _Address) -> ?NOT_LOADED.

%% @doc Connects. `wait': later `{Ref, ok | {error, Reason}}'. After an error it may be tried again.
-spec connect(sock(), address(), reference()) -> ok | wait | {error, closed | posix()}.
connect(_Sock, _Address, _Ref) -> ?NOT_LOADED.

%% @doc Makes it a listening socket, or changes its backlog.
-spec listen(sock(), Backlog :: integer()) -> ok | {error, closed | posix()}.
listen(_Sock, _Backlog) -> ?NOT_LOADED.

%% @doc The next connection, as a socket of the caller's with the delivery options of this one. `wait': later `{Ref,
%% {ok, Sock} | {error, Reason}}'. Those who wait are served in order. `emfile' and the like are told to everybody who
%% waits; the connections stay in the kernel.
-spec accept(sock(), reference()) -> {ok, sock()} | wait | {error, closed | posix()}.
accept(_Sock, _Ref) -> ?NOT_LOADED.

%% @doc Receives: a packet, or in raw mode so many bytes, or with 0 whatever there is. `wait': later `{Ref, {ok, Data} |
%% {error, Reason}}'. Those who wait are served in order. `decode': the packets are found by `erlang:decode_packet/3':
%% use {@link peek/1}, {@link wait_more/4} and {@link consume/4}. `{error, einval}': the socket is active, or a length
%% is given where packets have one. `{error, enomem}': more than 64 MB.
%%
%% Cost: 0.3 us if it waits and nothing can be there; else that of recv(2), 1 us, and of the copy.
-spec recv(sock(), Length :: non_neg_integer(), reference()) ->
    {ok, binary() | [byte()] | nonempty_maybe_improper_list(byte(), binary())}
    | wait
    | decode
    | {error, closed | posix()}.
recv(_Sock, _Length, _Ref) -> ?NOT_LOADED.

%% @doc The same, and never waits: `{error, timeout}' if there is nothing, or others wait. It asks the kernel, also if
%% no event has told of something yet.
-spec recv_now(sock(), Length :: non_neg_integer()) ->
    {ok, binary() | [byte()] | nonempty_maybe_improper_list(byte(), binary())}
    | decode
    | {error, timeout | closed | posix()}.
recv_now(_Sock, _Length) -> ?NOT_LOADED.

%% @doc What is in the buffer, a number that stands for it, and what the decoder remembers: what was given to
%% {@link consume/5}, at first 0.
-spec peek(sock()) ->
    {ok, Seq :: non_neg_integer(), binary(), Decoder :: non_neg_integer()} | {error, closed | posix()}.
peek(_Sock) -> ?NOT_LOADED.

%% @doc Waits until at least so many bytes are in the buffer; 0: one more than now. What {@link peek/1} returns, at once
%% if they are there, or if somebody has taken bytes since `Seq', or changed the type of packets. `wait': later
%% `{Ref, {more, Seq, Binary, Decoder} | {error, Reason}}'.
-spec wait_more(sock(), Seq :: non_neg_integer(), Least :: non_neg_integer(), reference()) ->
    {ok, Seq :: non_neg_integer(), binary(), Decoder :: non_neg_integer()} | wait | {error, closed | posix()}.
wait_more(_Sock, _Seq, _Least, _Ref) -> ?NOT_LOADED.

%% @doc Takes bytes out of the buffer, as one packet. With a message, that is sent to the owner, and counts as a message
%% of active mode. `none': it was the last that the owner wants for the present. `stale': nothing was done, because
%% somebody has taken bytes since `Seq', the type of packets is another, or there is a message and the socket is not
%% active any more. The next packet in the same binary is at `Seq + Bytes'.
-spec consume(
    sock(), Seq :: non_neg_integer(), Bytes :: non_neg_integer(), none | {msg, term()}, Decoder :: non_neg_integer()
) -> ok | none | stale | {error, closed | posix()}.
consume(_Sock, _Seq, _Bytes, _Message, _Decoder) -> ?NOT_LOADED.

%% @doc The decoder of an active socket wants to see at least so many bytes before it is called again.
-spec expect(sock(), Seq :: non_neg_integer(), Least :: non_neg_integer()) -> ok | stale | {error, closed | posix()}.
expect(_Sock, _Seq, _Least) -> ?NOT_LOADED.

%% @doc What is in the buffer is no packet, or one that is too long: receiving ends with `emsgsize'.
-spec reject(sock(), Seq :: non_neg_integer()) -> ok | stale | {error, closed | posix()}.
reject(_Sock, _Seq) -> ?NOT_LOADED.

%% @doc Takes back whoever waits with this reference.
-spec cancel(sock(), reference()) -> ok | gone.
cancel(_Sock, _Ref) -> ?NOT_LOADED.

%% @doc Who waits to receive or to accept gets `{Ref, again}', and does not wait any more.
-spec ask_again(sock()) -> ok | {error, closed}.
ask_again(_Sock) -> ?NOT_LOADED.

%% @doc Sends a message as a whole: `ok' when it is written, or queued because the kernel is full. `wait': nothing was
%% taken, because the queue is above the high watermark; try again after `{Ref, retry}'. That may also be `{Ref, {error,
%% closed}}'. `{error, emsgsize}': it is longer than its header can say.
%%
%% Cost: that of sendmsg(2), 3 to 10 us, once for each 1,024 binaries. None is copied.
-spec send(sock(), binary() | [binary()], reference()) -> ok | wait | {error, closed | posix()}.
send(_Sock, _Data, _Ref) -> ?NOT_LOADED.

%% @doc The same as {@link send/3} without a header, whatever the option packet says.
-spec send_raw(sock(), binary() | [binary()], reference()) -> ok | wait | {error, closed | posix()}.
send_raw(_Sock, _Data, _Ref) -> ?NOT_LOADED.

%% @doc Closes. `wait': what is queued is written first; later `{Ref, ok}'. With the option `{linger, {true, 0}}' what
%% is queued is dropped. `{error, closed}': somebody has closed it before.
-spec close(sock(), reference()) -> ok | wait | {error, closed}.
close(_Sock, _Ref) -> ?NOT_LOADED.

%% @doc Closes, and drops what is queued.
-spec close_now(sock()) -> ok | {error, closed}.
close_now(_Sock) -> ?NOT_LOADED.

%% @doc Closes as its owner's death does, because the application ends. An active socket's owner gets `{tcp_closed,
%% Socket}'. `wait': what is queued is written first; later `{Ref, ok}', unless it was `none'.
-spec stop(sock(), reference() | none) -> ok | wait.
stop(_Sock, _Ref) -> ?NOT_LOADED.

%% @doc shutdown(2): for `write' and `read_write' when what is queued is written, which the caller does not wait for.
-spec shutdown(sock(), read | write | read_write) -> ok | {error, closed | posix()}.
shutdown(_Sock, _How) -> ?NOT_LOADED.

%% @doc The first step of moving a socket to another owner: delivery stops. The value of `active' it had is for {@link
%% give/3}. In between the caller passes on the messages of the socket in its mailbox.
-spec hold(sock()) -> {ok, Active :: boolean() | once | integer()} | {error, closed | not_owner}.
hold(_Sock) -> ?NOT_LOADED.

%% @doc The second step: the owner changes, and delivery goes on. `badarg': that process is dead; the socket is still
%% the caller's, and passive.
-spec give(sock(), pid(), Active :: boolean() | once | integer()) ->
    ok | {error, closed | not_owner | badarg | posix()}.
give(_Sock, _Pid, _Active) -> ?NOT_LOADED.

%% @doc Sets one option: of the kernel (c_src/weir_opt.h), or of delivery (c_src/weir_delivery.h). Setting `active'
%% delivers what is there already. When the other end has closed, those of delivery can be set, and read, until this end
%% is closed or the owner is told; one of the kernel is nothing to most purposes then (c_src/weir_opt.h), and `ebadf' to
%% read.
-spec set(sock(), Key :: term(), Value :: term()) -> ok | {error, closed | posix()}.
set(_Sock, _Key, _Value) -> ?NOT_LOADED.

%% @doc Reads one option.
-spec get(sock(), Key :: term()) -> {ok, Value :: term()} | {error, closed | posix()}.
get(_Sock, _Key) -> ?NOT_LOADED.

%% @doc The address of the peer.
-spec peername(sock()) -> {ok, address()} | {error, closed | posix()}.
peername(_Sock) -> ?NOT_LOADED.

%% @doc Its own address.
-spec sockname(sock()) -> {ok, address()} | {error, closed | posix()}.
sockname(_Sock) -> ?NOT_LOADED.

%% @doc Its descriptor, which may be another's as soon as it is closed.
-spec fd(sock()) -> {ok, integer()} | {error, closed}.
fd(_Sock) -> ?NOT_LOADED.

%% @doc The caller gets `{'DOWN', Ref, socket, Socket, closed}' when the socket closes.
-spec monitor(sock()) -> {ok, reference()} | {error, closed | posix()}.
monitor(_Sock) -> ?NOT_LOADED.

%% @doc `true': no message will come. `false': it was sent, or this is no such reference.
-spec cancel_monitor(term()) -> boolean().
cancel_monitor(_Ref) -> ?NOT_LOADED.

%% @doc What it is and does, also when it is closed. `owner' is `undefined' when that has nothing more to ask it.
-spec info(sock()) -> #{atom() => term()}.
info(_Sock) -> ?NOT_LOADED.

%% @doc How many poll sets there are: one for each scheduler of the node. 0: it was built without the NIF.
-spec pollsets() -> non_neg_integer().
-ifdef(weir_socket_no_nif).
%% No literal: dialyzer would say of this build that what another does is never done.
pollsets() -> list_to_integer("0").
-else.
pollsets() -> ?NOT_LOADED.
-endif.

%% @doc The caller is the poller of this set from now on. It will get messages `{resume, Sock}': see {@link resume/1}.
%% What it gets is the set's descriptor of epoll, which is readable when something is ready. It is open as long as the
%% library is loaded, and not for anybody to read or close.
-spec serve(Set :: non_neg_integer()) -> Epoll :: non_neg_integer().
serve(_Set) -> ?NOT_LOADED.

%% @doc The set takes no more sockets, until it has a poller again: who makes one gets `{error, eshutdown}'.
-spec retire(Set :: non_neg_integer()) -> ok.
retire(_Set) -> ?NOT_LOADED.

%% @doc The socket has more to deliver, or to decode, than one call does: the next turns of its set do. For its poller,
%% which has got `{resume, Sock}' from a call that made it active, or has decoded a part. `again': the poller before is
%% in its last turn. `gone': another process has become the poller, and looks at all sockets itself.
-spec resume(sock()) -> ok | again | gone.
resume(_Sock) -> ?NOT_LOADED.

%% @doc Serves the sockets of a set that are ready. For its poller.
%%
%% `again': one socket was ready, the same as the last time, and less than 16 KB were read. `busy': it was another, or
%% several, or more. `nothing': nothing was ready. `gone': another process has become the poller. `decode': these
%% sockets are active and have bytes for {@link weir_socket_decode}, each once; one that is not decoded to the end is
%% for {@link resume/1}.
%%
%% It delivers some thousand messages at most, to which the sockets have equal shares of at least 32, and goes on the
%% next time: first with what has become ready since, and then with those that had more.
%%
%% Cost: 1 us, and 2 us for each that is ready; below 2 ms.
-spec poll(Set :: non_neg_integer()) -> Next | {decode, [sock()], Next} when Next :: again | busy | nothing | gone.
poll(_Set) -> ?NOT_LOADED.

%% @doc Who serves a set, how many sockets and slots it has, and what it has done. `load': the sockets of it that count
%% for `least_loaded'. `resources' is of all sets: sockets
%% that a term or a slot still mentions.
-spec pollset_info(Set :: non_neg_integer()) -> #{atom() => term()}.
pollset_info(_Set) -> ?NOT_LOADED.

%% @doc The figures of the sockets of a set, without those that are closed: of some of them in a call, beginning with a
%% slot. All: from slot 0 on, and again from `Next' until that is `done'. A socket that is open all the time is in one
%% of the answers; others may be.
%%
%% Cost: 0.1 us for each, 500 sockets and 4096 slots a call at most. It waits for the locks of one socket at most, and
%% the poller for it no longer than while it looks at one.
-spec survey(Set :: non_neg_integer(), From :: non_neg_integer()) -> {[figures()], Next :: non_neg_integer() | done}.
survey(_Set, _From) -> ?NOT_LOADED.

%% @doc The sockets themselves, so many at most, and 500 at most in a call.
-spec members(Set :: non_neg_integer(), From :: non_neg_integer(), Most :: pos_integer()) ->
    {[sock()], Next :: non_neg_integer() | done}.
members(_Set, _From, _Most) -> ?NOT_LOADED.
