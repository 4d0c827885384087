%% One interface to three implementations of TCP: gen_tcp with its inet backend, gen_tcp with its socket backend, and
%% weir_socket. Only listening and connecting need to be told which; after that the socket says it itself. A fourth is
%% weir_socket built without its NIF, in a node of its own, where all sockets are gen_tcp's: weir_socket's functions are
%% called there for all of them.
%%
%% The other end of a connection is always a socket of gen_tcp's inet backend, raw, binary and passive: what a case
%% sends it and reads from it are bytes, so no framing of the implementation under test checks itself.
%%
%% The module also has what all suites of weir_socket need: messages of sockets, the kernel's view of a socket, and
%% counts of what the node holds.
-module(weir_socket_test_lib).

-export([behaviour_groups/1, begin_behaviour/2, end_behaviour/1, backend/1]).
-export([listen/2, listen/3, connect/4, connect/5, fdopen/3, accept/1, accept/2, pair/2, pair/3, peer_opts/0]).
-export([send/2, recv/2, recv/3, close/1, shutdown/2, controlling_process/2]).
-export([setopts/2, getopts/2, getopt/2, peername/1, sockname/1, port/1, getstat/1, getstat/2, info/1]).
-export([next/0, nothing/0, nothing_at_all/0, until_messages/1]).
-export([settle/1, stalled/1, received/1, read_all/1, same_bytes/2, talk/2]).
-export([tmp/1, remove_tmp/0, source_dir/0, unused_port/0, full_listener/0, fill/1, descriptor/1]).
-export([descriptors/0, socket_descriptors/0, pollset_infos/0, pollers/0, held/0, memory/0, memory/1,
    until_nothing_leaks/1]).
-export([with_descriptors/3]).

-import(weir_kit, [until/1, wait_ms/0]).

-export_type([backend/0]).

-type backend() :: inet | socket | weir | no_nif.

%% Milliseconds after which a connection counts as stalled though the kernel does not say so.
-define(STALLED_MS, 2_000).

%% ---------------------------------------------------------------- the three implementations

%% Returns the groups of a suite of behaviour: all cases with each implementation. A case asks backend/1 for its own.
behaviour_groups(Cases) -> [{Backend, [], Cases} || Backend <- [inet, socket, weir]].

begin_behaviour(Backend, Config) ->
    _ = Backend =:= weir andalso (ok = application:start(weir_socket)),
    [{backend, Backend} | Config].

end_behaviour(weir) -> application:stop(weir_socket);
end_behaviour(_Backend) -> ok.

backend(Config) -> proplists:get_value(backend, Config).

listen(Backend, Opts) -> listen(Backend, 0, Opts).

listen(Ours, Port, Opts) when Ours =:= weir; Ours =:= no_nif -> weir_socket:listen(Port, Opts);
listen(Backend, Port, Opts) -> gen_tcp:listen(Port, [{inet_backend, Backend} | Opts]).

connect(Backend, Address, Port, Opts) -> connect(Backend, Address, Port, Opts, wait_ms()).

connect(Ours, Address, Port, Opts, Timeout) when Ours =:= weir; Ours =:= no_nif ->
    weir_socket:connect(Address, Port, Opts, Timeout);
connect(Backend, Address, Port, Opts, Timeout) ->
    gen_tcp:connect(Address, Port, [{inet_backend, Backend} | Opts], Timeout).

fdopen(Ours, Fd, Opts) when Ours =:= weir; Ours =:= no_nif -> weir_socket:fdopen(Fd, Opts);
fdopen(Backend, Fd, Opts) -> gen_tcp:fdopen(Fd, [{inet_backend, Backend} | Opts]).

%% gen_tcp's functions, and inet's.
tcp({'$inet', weir_socket, _}) -> weir_socket;
tcp(_Socket) -> ours_or(gen_tcp).

inet({'$inet', weir_socket, _}) -> weir_socket;
inet(_Socket) -> ours_or(inet).

ours_or(Module) ->
    case weir_socket:backend() of
        gen_tcp -> weir_socket;
        epoll -> Module
    end.

accept(Listener) -> accept(Listener, wait_ms()).

accept(Listener, Timeout) -> (tcp(Listener)):accept(Listener, Timeout).

send(Socket, Data) -> (tcp(Socket)):send(Socket, Data).

%% Receives within a minute. A later answer is a deadline, which is no counterexample of a property.
recv(Socket, Length) ->
    case recv(Socket, Length, wait_ms()) of
        {error, timeout} -> error({never, received, Length});
        Result -> Result
    end.

recv(Socket, Length, Timeout) -> (tcp(Socket)):recv(Socket, Length, Timeout).

close(Socket) -> (tcp(Socket)):close(Socket).

shutdown(Socket, How) -> (tcp(Socket)):shutdown(Socket, How).

controlling_process(Socket, Pid) -> (tcp(Socket)):controlling_process(Socket, Pid).

setopts(Socket, Opts) -> (inet(Socket)):setopts(Socket, Opts).

getopts(Socket, Opts) -> (inet(Socket)):getopts(Socket, Opts).

getopt(Socket, Opt) ->
    {ok, [{Opt, Value}]} = getopts(Socket, [Opt]),
    Value.

peername(Socket) -> (inet(Socket)):peername(Socket).

sockname(Socket) -> (inet(Socket)):sockname(Socket).

port(Socket) -> (inet(Socket)):port(Socket).

getstat(Socket) -> (inet(Socket)):getstat(Socket).

getstat(Socket, Names) -> (inet(Socket)):getstat(Socket, Names).

info(Socket) -> (inet(Socket)):info(Socket).

%% ---------------------------------------------------------------- connections

%% {Socket of the implementation, its peer}; the caller owns both.
pair(Backend, Opts) -> pair(Backend, connected, Opts).

pair(Backend, connected, Opts) ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}} | peer_opts()]),
    {ok, Port} = inet:port(Listener),
    {ok, Socket} = connect(Backend, {127, 0, 0, 1}, Port, Opts),
    {ok, Peer} = gen_tcp:accept(Listener, wait_ms()),
    ok = gen_tcp:close(Listener),
    {Socket, Peer};
pair(Backend, accepted, Opts) ->
    {ok, Listener} = listen(Backend, [{ip, {127, 0, 0, 1}} | Opts]),
    {ok, Port} = port(Listener),
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, peer_opts(), wait_ms()),
    {ok, Socket} = accept(Listener),
    ok = close(Listener),
    {Socket, Peer}.

%% It stays open when the other end has closed, so that it can be seen to send still.
peer_opts() -> [binary, {packet, raw}, {active, false}, {nodelay, true}, {exit_on_close, false}].

%% A port of 127.0.0.1 that refuses connections as long as the socket that comes with it is open: bound, not listening.
unused_port() ->
    {ok, Bound} = socket:open(inet, stream),
    ok = socket:bind(Bound, #{family => inet, addr => {127, 0, 0, 1}, port => 0}),
    {ok, #{port := Port}} = socket:sockname(Bound),
    {Bound, Port}.

%% Returns a listening socket of OTP's module socket that answers no more, since its queue is full, its port, and the
%% connection that fills the queue.
full_listener() ->
    {ok, Full} = socket:open(inet, stream),
    ok = socket:bind(Full, #{family => inet, addr => {127, 0, 0, 1}, port => 0}),
    {ok, #{port := Port}} = socket:sockname(Full),
    ok = socket:listen(Full, 0),
    {ok, Only} = gen_tcp:connect({127, 0, 0, 1}, Port, [], wait_ms()),
    %% TCP_INFO of Linux: where a connection counts segments, a listening socket counts connections.
    until(fun() ->
        {ok, <<_:24/binary, Queued:32/native, _/binary>>} = socket:getopt_native(Full, {6, 11}, 148),
        Queued =:= 1
    end),
    {Full, Port, Only}.

%% Receives until the other end closes, and returns all bytes.
read_all(Peer) -> read_all(Peer, []).

read_all(Peer, Read) ->
    case gen_tcp:recv(Peer, 0, wait_ms()) of
        {ok, Data} -> read_all(Peer, [Read, Data]);
        {error, closed} -> iolist_to_binary(Read)
    end.

%% Raises a fault unless both binaries are equal. The fault says where they begin to differ.
same_bytes(Same, Same) ->
    ok;
same_bytes(Expected, Actual) ->
    weir_kit:fault({other_bytes, #{
        expected => byte_size(Expected), actual => byte_size(Actual),
        first_difference => binary:longest_common_prefix([Expected, Actual])
    }}).

%% One message in each direction, between two passive sockets in binary mode.
talk(One, Other) ->
    ok = send(One, <<"ping">>),
    {ok, <<"ping">>} = recv(Other, 4),
    ok = send(Other, ["p", [<<"on">>], $g]),
    {ok, <<"pong">>} = recv(One, 4).

%% N bytes that differ with their place, so that a byte lost or moved is seen.
fill(N) ->
    Block = << <<I:32>> || I <- lists:seq(0, N div 4) >>,
    binary:part(Block, 0, N).

%% ---------------------------------------------------------------- messages and processes

-define(IS_DOWN(Message), (is_tuple(Message) andalso element(1, Message) =:= 'DOWN')).

%% Takes the next message. Leaves the ends of processes, which `weir_kit:result/1' takes.
next() ->
    receive
        Message when not ?IS_DOWN(Message) -> Message
    after wait_ms() -> error({never, message, weir_kit:messages()})
    end.

%% Fails if a message is in the mailbox. Ends of processes and of sockets may be.
nothing() ->
    receive
        Message when not ?IS_DOWN(Message) -> unexpected(Message)
    after 0 -> ok
    end.

%% Fails if any message is in the mailbox.
nothing_at_all() ->
    receive
        Message -> unexpected(Message)
    after 0 -> ok
    end.

%% No load explains a message of weir_socket that is one too many. Others may be what gen_tcp does on a busy machine.
unexpected({_Tag, {'$inet', weir_socket, _}} = Message) -> weir_kit:fault({unexpected, Message});
unexpected({_Tag, {'$inet', weir_socket, _}, _} = Message) -> weir_kit:fault({unexpected, Message});
unexpected(Message) -> error({unexpected, Message}).

%% Waits until the caller has N messages, which stay in its mailbox.
until_messages(N) ->
    until(fun() ->
        Length = weir_kit:queue_len(self()),
        Length =:= N orelse {messages, Length}
    end).

%% ---------------------------------------------------------------- the kernel's view

%% Waits until the kernel has nothing left that was sent to the socket: the implementation has read it. Only for one
%% that reads, in active mode or because somebody waits in recv. It keeps what is sent in pieces apart; since a segment
%% may be under way unseen, nothing may depend on that. The socket backend leaves a part of a header where it is, so it
%% is given some time only.
settle({'$inet', gen_tcp_socket, _} = Socket) -> settle(Socket, 20);
settle(Socket) -> until(fun() -> held(Socket) =:= 0 end).

settle(_Socket, 0) ->
    ok;
settle(Socket, Tries) ->
    case held(Socket) of
        0 -> ok;
        _ -> settle(Socket, Tries - 1)
    end.

%% How much memory the kernel holds for what the socket has received and nobody has read: SO_MEMINFO of Linux, whose
%% first number counts what is queued and whose eighth what waits to be queued. (The tables in /proc would tell it in
%% bytes, in milliseconds on a machine with many sockets.)
held(Socket) ->
    {ok, [{raw, 1, 55, <<Received:32/native, _:24/binary, Backlog:32/native, _/binary>>}]} =
        getopts(Socket, [{raw, 1, 55, 36}]),
    Received + Backlog.

%% Waits until the kernel takes no more from a socket whose peer reads nothing. A full buffer alone does not say so: on
%% a busy machine some bytes are under way, and make room when they arrive. The peer's window is closed if all that was
%% sent is acknowledged and more waits. If the kernel has dropped a segment for want of room, that never happens, so the
%% function also returns after a time.
stalled(Socket) ->
    Deadline = erlang:monotonic_time(millisecond) + ?STALLED_MS,
    until(fun() -> is_window_closed(tcp_info(Socket)) orelse erlang:monotonic_time(millisecond) > Deadline end).

is_window_closed(<<_:24/binary, Unacknowledged:32/native, _:116/binary, Unsent:32/native, _/binary>>) ->
    Unacknowledged =:= 0 andalso Unsent > 0.

%% How many bytes the kernel has received for the socket.
received(Socket) ->
    <<_:128/binary, Received:64/native, _/binary>> = tcp_info(Socket),
    Received.

%% TCP_INFO of Linux.
tcp_info(Socket) ->
    {ok, [{raw, 6, 11, Info}]} = getopts(Socket, [{raw, 6, 11, 148}]),
    Info.

%% How many descriptors the runtime has open.
descriptors() ->
    {ok, Names} = file:list_dir("/proc/self/fd"),
    length(Names).

%% How many of them are sockets, of every kind. Files come and go with the logs of a run.
socket_descriptors() ->
    {ok, Names} = file:list_dir("/proc/self/fd"),
    length([Name || Name <- Names, is_socket(file:read_link(filename:join("/proc/self/fd", Name)))]).

is_socket({ok, Target}) -> lists:prefix("socket:", Target);
is_socket({error, _}) -> false.

%% A descriptor that nobody owns: a copy of the socket's, which is closed. It is passed to ourselves over a local
%% socket; what arrives is a plain number.
descriptor(Made) ->
    {ok, Number} = socket:getopt(Made, otp, fd),
    Path = tmp("rights"),
    Name = #{family => local, path => Path},
    {ok, Listener} = socket:open(local, stream),
    ok = socket:bind(Listener, Name),
    ok = socket:listen(Listener),
    {ok, From} = socket:open(local, stream),
    ok = socket:connect(From, Name),
    {ok, To} = socket:accept(Listener),
    Rights = #{level => socket, type => rights, data => <<Number:32/native>>},
    ok = socket:sendmsg(From, #{iov => [<<"x">>], ctrl => [Rights]}),
    {ok, #{ctrl := [#{data := <<Copy:32/native>>}]}} = socket:recvmsg(To),
    [ok = socket:close(Socket) || Socket <- [Made, From, To, Listener]],
    Copy.

%% ---------------------------------------------------------------- other nodes

%% Calls a function in a node of its own, started with the flags, which may have Limit descriptors.
with_descriptors(Limit, Flags, {Module, Function}) ->
    Script = lists:concat(["ulimit -n ", Limit, "; exec erl \"$@\""]),
    {ok, Peer, _Node} = peer:start_link(#{
        name => peer:random_name(),
        connection => standard_io, wait_boot => wait_ms(),
        exec => {os:find_executable("sh"), ["-c", Script, "sh"]},
        args => Flags ++ ["-pa" | [filename:absname(Dir) || Dir <- code:get_path(), Dir =/= "."]]
    }),
    Result = peer:call(Peer, Module, Function, [], infinity),
    ok = peer:stop(Peer),
    Result.

%% ---------------------------------------------------------------- the runtime's view

%% What the NIF tells of each of its poll sets.
pollset_infos() -> [weir_socket_nif:pollset_info(Set) || Set <- lists:seq(0, weir_socket_nif:pollsets() - 1)].

%% By set. One that has just died is there until another serves.
pollers() -> [maps:get(poller, Info) || Info <- pollset_infos()].

%% What weir_socket holds: sockets that are open, slots in use, and resources, which are sockets that some term still
%% mentions. Terms that are garbage mention them too, and are collected first.
held() ->
    _ = [erlang:garbage_collect(Pid) || Pid <- erlang:processes()],
    Infos = [#{resources := Resources} | _] = pollset_infos(),
    #{
        sockets => lists:sum([N || #{sockets := N} <- Infos]),
        slots => lists:sum([N || #{slots := N} <- Infos]),
        resources => Resources
    }.

%% The bytes that the runtime uses. It does not know when its allocators are turned off, as for the sanitizers.
memory() -> memory(total).

memory(What) ->
    try
        erlang:memory(What)
    catch
        error:notsup -> 0
    end.

%% Waits until the function returns true. A leak that is still there after a minute is a fault.
until_nothing_leaks(Fun) ->
    try
        until(Fun)
    catch
        error:{never, _, Left} -> weir_kit:fault({leaked, Left})
    end.

%% ---------------------------------------------------------------- files

%% The folder of weir_socket's sources: that of the application in _build leads there.
source_dir() ->
    Priv = code:priv_dir(weir_socket),
    Real =
        case file:read_link(Priv) of
            {ok, Link} -> filename:absname(Link, filename:dirname(Priv));
            {error, _} -> Priv
        end,
    filename:dirname(Real).

%% A name for a local socket, short enough for an address (108 bytes).
tmp(Name) ->
    ok = filelib:ensure_path(folder()),
    Path = filename:join(folder(), Name),
    _ = file:delete(Path),
    Path.

remove_tmp() ->
    case file:del_dir_r(folder()) of
        ok -> ok;
        {error, enoent} -> ok
    end.

folder() -> filename:join("/tmp", "weir_socket_" ++ os:getpid()).
