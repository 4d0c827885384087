%% The interface of gen_socket, and the documented differences. The peer is one of gen_tcp, or of this module.
-module(weir_gen_socket_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).


%% Generous: it is reached by failures alone.
-define(HOST, {127, 0, 0, 1}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_compat),
    {ok, Socket} = application:ensure_all_started(weir_socket),
    [{started, Started ++ Socket} | Config].

end_per_suite(Config) -> lists:foreach(fun application:stop/1, lists:reverse(?config(started, Config))).

%% Every function of gen_socket's, and no other.
interface(_) ->
    Exports = lists:sort(weir_gen_socket:module_info(exports) -- [{module_info, 0}, {module_info, 1}]),
    ?assertEqual(
        lists:sort([
            {accept, 1}, {accept, 2}, {close, 1}, {connect, 3}, {connect, 4}, {controlling_process, 2},
            {dup_socket, 1}, {getopts, 2}, {getstat, 1}, {getstat, 2}, {listen, 2}, {peername, 1}, {recv, 2},
            {recv, 3}, {send, 2}, {setopts, 2}, {sockname, 1}, {socket_info, 2}
        ]),
        Exports
    ).

%% ---------------------------------------------------------------- the application

%% gen_socket's users started its application, and nothing else.
comes_with_weir_compat(_) ->
    with_node(code:get_path(), fun(Peer) ->
        {ok, Started} = weir_kit_nodes:call(Peer, application, ensure_all_started, [weir_compat]),
        ?assert(lists:member(weir_socket, Started)),
        {ok, Listener} = weir_kit_nodes:call(Peer, weir_gen_socket, listen, [0, []]),
        ?assertMatch({'$inet', weir_socket, _}, Listener)
    end).

%% The other libraries need no sockets. Where weir_socket is not installed, weir_compat starts without it.
without_weir_socket(_) ->
    Lib = code:lib_dir(weir_socket),
    Others = [Dir || Dir <- code:get_path(), not lists:prefix(Lib ++ "/", Dir)],
    with_node(Others, fun(Peer) ->
        ?assertEqual(non_existing, weir_kit_nodes:call(Peer, code, which, [weir_socket])),
        {ok, Started} = weir_kit_nodes:call(Peer, application, ensure_all_started, [weir_compat]),
        ?assertNot(lists:member(weir_socket, Started)),
        Pool = [{size, 1}, {start_mfa, {weir_compat_test, start_link, []}}],
        ok = weir_kit_nodes:call(Peer, weir_erlpool, start_pool, [p, Pool]),
        ?assert(is_pid(weir_kit_nodes:call(Peer, weir_erlpool, pid, [p])))
    end).

not_started(_) ->
    with_node(code:get_path(), fun(Peer) ->
        ?assertError({not_started, weir_socket}, weir_kit_nodes:call(Peer, weir_gen_socket, listen, [0, []])),
        ?assertError({not_started, weir_socket}, weir_kit_nodes:call(Peer, weir_gen_socket, connect, [?HOST, 1, []]))
    end).

with_node(Path, Fun) ->
    Args = lists:append([["-pa", Dir] || Dir <- Path, filelib:is_dir(Dir)]),
    {ok, Peer, _Node} = peer:start_link(#{connection => standard_io, wait_boot => weir_kit:wait_ms(), args => Args}),
    try Fun(Peer) after peer:stop(Peer) end.

%% ---------------------------------------------------------------- defaults

%% No option is needed, at either end.
listens_with_no_options(_) ->
    {ok, Listener} = weir_gen_socket:listen(0, []),
    {ok, Client} = weir_gen_socket:connect("127.0.0.1", port(Listener), []),
    {ok, Server} = weir_gen_socket:accept(Listener),
    ok = weir_gen_socket:send(Server, <<"hello">>),
    ?assertEqual({ok, <<"hello">>}, weir_gen_socket:recv(Client, 0)),
    ok = weir_gen_socket:send(Client, [[[88]], "abc", [<<>>], [<<"de">>, <<>>, <<"f">>]]),
    ?assertEqual({ok, <<88, "abcdef">>}, weir_gen_socket:recv(Server, 7)),
    close([Client, Server, Listener]).

%% Both ends, whatever the defaults of the node are.
passive_and_binary(_) ->
    Keys = [inet_default_listen_options, inet_default_connect_options],
    [application:set_env(kernel, Key, [list, {nodelay, true}]) || Key <- Keys],
    try
        {Client, Server, Listener} = connection([]),
        [
            begin
                ?assertEqual({ok, [{active, false}]}, weir_gen_socket:getopts(Socket, [active])),
                ok = weir_gen_socket:send(Other, <<"x">>),
                ?assertEqual({ok, <<"x">>}, weir_gen_socket:recv(Socket, 0, weir_kit:wait_ms())),
                ok = weir_gen_socket:setopts(Socket, [{active, once}]),
                ok = weir_gen_socket:send(Other, <<"y">>),
                ?assertEqual({tcp, Socket, <<"y">>}, next())
            end
         || {Socket, Other} <- [{Client, Server}, {Server, Client}]
        ],
        close([Client, Server, Listener])
    after
        [application:unset_env(kernel, Key) || Key <- Keys]
    end.

%% A hundred connections complete before one is accepted.
backlog(_) ->
    {ok, Listener} = weir_gen_socket:listen(0, []),
    Waiting = [
        begin
            {ok, Socket} = weir_gen_socket:connect(?HOST, port(Listener), [], weir_kit:wait_ms()),
            Socket
        end
     || _ <- lists:seq(1, 100)
    ],
    Accepted = [element(2, {ok, _} = weir_gen_socket:accept(Listener, weir_kit:wait_ms())) || _ <- Waiting],
    ?assertEqual({error, etimedout}, weir_gen_socket:accept(Listener, 0)),
    close([Listener | Waiting ++ Accepted]).

%% ---------------------------------------------------------------- receiving

lengths(_) ->
    {Socket, Peer} = pair(),
    ok = gen_tcp:send(Peer, "abcdefgh"),
    ?assertEqual({ok, <<"a">>}, weir_gen_socket:recv(Socket, 1)),
    ?assertEqual({ok, <<"bcd">>}, weir_gen_socket:recv(Socket, 3, weir_kit:wait_ms())),
    ?assertEqual({ok, <<"efgh">>}, weir_gen_socket:recv(Socket, 0)),
    ?assertEqual({error, enomem}, weir_gen_socket:recv(Socket, 16#4000001)),
    ?assertError(function_clause, weir_gen_socket:recv(Socket, -1)),
    ?assertEqual({error, etimedout}, weir_gen_socket:recv(Socket, 2, 0)),
    %% Bytes that came before the time was over can be received.
    ok = gen_tcp:send(Peer, "i"),
    ?assertEqual({error, etimedout}, weir_gen_socket:recv(Socket, 2, 10)),
    ok = gen_tcp:send(Peer, "j"),
    ?assertEqual({ok, <<"ij">>}, weir_gen_socket:recv(Socket, 2, weir_kit:wait_ms())),
    close([Socket, Peer]).

active_once(_) ->
    {Socket, Peer} = pair(),
    ok = weir_gen_socket:setopts(Socket, [{active, once}]),
    ?assertEqual({error, einval}, weir_gen_socket:recv(Socket, 0, 0)),
    ok = gen_tcp:send(Peer, "a"),
    ?assertEqual({tcp, Socket, <<"a">>}, next()),
    ?assertEqual({ok, [{active, false}]}, weir_gen_socket:getopts(Socket, [active])),
    ok = gen_tcp:send(Peer, "b"),
    ?assertEqual({ok, <<"b">>}, weir_gen_socket:recv(Socket, 0, weir_kit:wait_ms())),
    close([Socket, Peer]).

%% The count is what was set last, not the sum; 0 is passive, and no message says so.
active_counted(_) ->
    {Socket, Peer} = pair(),
    ok = weir_gen_socket:setopts(Socket, [{active, 43}]),
    ?assertEqual({ok, [{active, 43}]}, weir_gen_socket:getopts(Socket, [active])),
    ok = weir_gen_socket:setopts(Socket, [{active, 2}]),
    ?assertEqual({ok, [{active, 2}]}, weir_gen_socket:getopts(Socket, [active])),
    [
        begin
            ok = gen_tcp:send(Peer, Byte),
            ?assertEqual({tcp, Socket, Byte}, next())
        end
     || Byte <- [<<"a">>, <<"b">>]
    ],
    ?assertEqual({tcp_passive, Socket}, next()),
    ok = weir_gen_socket:setopts(Socket, [{active, true}, {active, 7}]),
    ?assertEqual({ok, [{active, 7}]}, weir_gen_socket:getopts(Socket, [active])),
    ok = weir_gen_socket:setopts(Socket, [{active, 0}]),
    ?assertEqual({ok, [{active, false}]}, weir_gen_socket:getopts(Socket, [active])),
    nothing(),
    close([Socket, Peer]),
    %% So it is for those that are opened with it.
    {Client, Server, Listener} = connection([{active, 3}]),
    [?assertEqual({ok, [{active, 3}]}, weir_gen_socket:getopts(Each, [active])) || Each <- [Client, Server]],
    close([Client, Server, Listener]).

active_for_good(_) ->
    {Socket, Peer} = pair(),
    ok = weir_gen_socket:setopts(Socket, [{active, true}]),
    [
        begin
            ok = gen_tcp:send(Peer, Byte),
            ?assertEqual({tcp, Socket, Byte}, next())
        end
     || Byte <- [<<"a">>, <<"b">>, <<"c">>]
    ],
    ok = gen_tcp:close(Peer),
    ?assertEqual({tcp_closed, Socket}, next()),
    ?assertEqual({error, closed}, weir_gen_socket:send(Socket, <<"d">>)),
    ok = weir_gen_socket:close(Socket).

%% Each function that waits returns `etimedout'.
times(_) ->
    {Client, Server, Listener} = connection([]),
    ?assertEqual({error, etimedout}, weir_gen_socket:accept(Listener, 1)),
    ?assertEqual({error, etimedout}, weir_gen_socket:recv(Client, 0, 1)),
    ok = weir_gen_socket:setopts(Client, [{send_timeout, 10}]),
    ?assertEqual({error, etimedout}, send_until_error(Client, binary:copy(<<"x">>, 1 bsl 20))),
    %% What is queued by now is nothing to wait for.
    ok = weir_socket:setopts(Client, [{linger, {true, 0}}]),
    close([Client, Server, Listener]),
    {ok, Full} = gen_tcp:listen(0, [{ip, ?HOST}, {backlog, 0}]),
    {ok, Port} = inet:port(Full),
    Connected = connect_until_etimedout(Port, []),
    close([Full | Connected]).

send_until_error(Socket, Data) ->
    case weir_gen_socket:send(Socket, Data) of
        ok -> send_until_error(Socket, Data);
        Error -> Error
    end.

connect_until_etimedout(Port, Connected) ->
    case weir_gen_socket:connect(?HOST, Port, [], 200) of
        {ok, Socket} when length(Connected) < 20 -> connect_until_etimedout(Port, [Socket | Connected]);
        {error, etimedout} -> Connected
    end.

%% Bytes that were sent before come first. Then each function returns `closed'.
the_other_end_closes(_) ->
    {Socket, Peer} = pair(),
    ok = gen_tcp:send(Peer, "ab"),
    ok = gen_tcp:close(Peer),
    ?assertEqual({ok, <<"ab">>}, weir_gen_socket:recv(Socket, 2)),
    ?assertEqual({error, closed}, weir_gen_socket:recv(Socket, 0)),
    ?assertEqual({error, closed}, weir_gen_socket:recv(Socket, 1)),
    ?assertEqual({error, closed}, weir_gen_socket:send(Socket, <<"x">>)),
    ok = weir_gen_socket:close(Socket),
    %% With the option that gen_socket did not have, a socket that was read to the end is written to still.
    {Half, Sender} = pair(),
    ok = weir_socket:setopts(Half, [{exit_on_close, false}]),
    ok = gen_tcp:shutdown(Sender, write),
    ?assertEqual({error, closed}, weir_gen_socket:recv(Half, 0)),
    ok = weir_gen_socket:send(Half, <<"answer">>),
    ?assertEqual({ok, <<"answer">>}, gen_tcp:recv(Sender, 6, weir_kit:wait_ms())),
    close([Half, Sender]).

the_other_end_resets(_) ->
    {Socket, Peer} = pair(),
    reset(Peer),
    ?assertEqual({error, econnreset}, weir_gen_socket:recv(Socket, 0)),
    ok = weir_gen_socket:close(Socket),
    {Active, Other} = pair(),
    ok = weir_gen_socket:setopts(Active, [{active, true}]),
    reset(Other),
    ?assertEqual({tcp_error, Active, econnreset}, next()),
    ?assertEqual({tcp_closed, Active}, next()),
    ok = weir_gen_socket:close(Active),
    %% Those that were accepted as well.
    {ok, Listener} = weir_gen_socket:listen(0, []),
    {ok, Client} = gen_tcp:connect(?HOST, port(Listener), []),
    {ok, Accepted} = weir_gen_socket:accept(Listener),
    reset(Client),
    ?assertEqual({error, econnreset}, weir_gen_socket:recv(Accepted, 0)),
    close([Accepted, Listener]).

reset(Socket) ->
    ok = inet:setopts(Socket, [{linger, {true, 0}}]),
    ok = gen_tcp:close(Socket).

%% ---------------------------------------------------------------- processes

%% Many processes accept from one listening socket.
acceptors(_) ->
    {ok, Listener} = weir_gen_socket:listen(0, []),
    Greet = fun() ->
        {ok, Socket} = weir_gen_socket:accept(Listener),
        ok = weir_gen_socket:send(Socket, <<"hello">>),
        weir_gen_socket:close(Socket)
    end,
    Meet = fun() ->
        {ok, Socket} = weir_gen_socket:connect(?HOST, port(Listener), []),
        {ok, <<"hello">>} = weir_gen_socket:recv(Socket, 5),
        weir_gen_socket:close(Socket)
    end,
    Funs = lists:append(lists:duplicate(10, [Greet, Meet])),
    ?assertEqual(lists:duplicate(20, ok), weir_kit:in_parallel(Funs)),
    ok = weir_gen_socket:close(Listener).

%% Each process may have a descriptor of its own of one listening socket, which goes on when that is closed.
dup_socket(_) ->
    {ok, Listener} = weir_gen_socket:listen(0, []),
    Port = port(Listener),
    {ok, Second} = weir_gen_socket:dup_socket(Listener),
    ok = weir_gen_socket:close(Listener),
    {ok, Client} = weir_gen_socket:connect(?HOST, Port, []),
    {ok, Server} = weir_gen_socket:accept(Second),
    {ok, Same} = weir_gen_socket:dup_socket(Server),
    ok = weir_gen_socket:send(Same, <<"both">>),
    ?assertEqual({ok, <<"both">>}, weir_gen_socket:recv(Client, 4)),
    ok = weir_gen_socket:close(Server),
    ok = weir_gen_socket:send(Same, <<"one">>),
    ?assertEqual({ok, <<"one">>}, weir_gen_socket:recv(Client, 3)),
    ok = weir_gen_socket:close(Same),
    ?assertEqual({error, closed}, weir_gen_socket:recv(Client, 0)),
    close([Client, Second]).

controlling_process(_) ->
    {Socket, Peer} = pair(),
    ok = weir_gen_socket:setopts(Socket, [{active, true}]),
    Member = weir_compat_test:member(),
    Run = fun(Fun) -> weir_compat_test:run(Member, Fun) end,
    Self = self(),
    ?assertEqual({error, eperm}, Run(fun() -> weir_gen_socket:controlling_process(Socket, Member) end)),
    ok = weir_gen_socket:controlling_process(Socket, Member),
    ?assertEqual({error, eperm}, weir_gen_socket:controlling_process(Socket, Self)),
    ok = gen_tcp:send(Peer, "x"),
    %% The call takes the message with those of the socket, and returns both to the mailbox.
    until(fun() -> Run(fun() -> weir_kit:queue_len(Member) end) =:= 1 end),
    ok = Run(fun() -> weir_gen_socket:controlling_process(Socket, Self) end),
    ?assertEqual({tcp, Socket, <<"x">>}, next()),
    weir_kit:kill(Member),
    ?assertEqual({error, badarg}, weir_gen_socket:controlling_process(Socket, Member)),
    ok = gen_tcp:send(Peer, "y"),
    ?assertEqual({tcp, Socket, <<"y">>}, next()),
    close([Socket, Peer]).

%% This differs from gen_socket.
the_owner_dies(_) ->
    {Socket, Peer} = pair(),
    Member = weir_compat_test:member(),
    ok = weir_gen_socket:controlling_process(Socket, Member),
    weir_kit:kill(Member),
    ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0, weir_kit:wait_ms())),
    ?assertEqual({error, closed}, weir_gen_socket:recv(Socket, 0)),
    close([Socket, Peer]).

%% ---------------------------------------------------------------- options

options(_) ->
    {Client, Server, Listener} = connection([]),
    [
        begin
            ok = weir_gen_socket:setopts(Socket, [Option]),
            ?assertEqual({ok, [Option]}, weir_gen_socket:getopts(Socket, [element(1, Option)]))
        end
     || Socket <- [Client, Server],
        Option <- [
            {nodelay, true}, {nodelay, false}, {reuseaddr, true}, {reuseaddr, false}, {keepalive, true},
            {send_timeout, 5000}, {send_timeout, infinity}
        ]
    ],
    %% Without a limit, in gen_socket's word.
    ok = weir_gen_socket:setopts(Client, [{send_timeout, 7}, {send_timeout, 0}]),
    ?assertEqual({ok, [{send_timeout, infinity}]}, weir_gen_socket:getopts(Client, [send_timeout])),
    ok = weir_gen_socket:setopts(Client, [{recbuf, 10000}, {sndbuf, 10000}]),
    {ok, [{recbuf, In}, {sndbuf, Out}]} = weir_gen_socket:getopts(Client, [recbuf, sndbuf]),
    ?assert(In >= 10000 andalso Out >= 10000),
    Two = [{reuseaddr, true}, {nodelay, false}],
    ok = weir_gen_socket:setopts(Listener, Two),
    ?assertEqual({ok, Two}, weir_gen_socket:getopts(Listener, [reuseaddr, nodelay])),
    ?assertEqual(ok, weir_gen_socket:setopts(Client, [])),
    ?assertEqual({ok, []}, weir_gen_socket:getopts(Client, [])),
    [?assertEqual({error, einval}, weir_gen_socket:getopts(Client, [Name])) || Name <- [errorcode, ionread, colour]],
    close([Client, Server, Listener]).

%% All that gen_socket had no word for, and then nothing of the list is done.
unknown_options(_) ->
    {Socket, Peer} = pair(),
    Unknown = {error, unknown_option},
    [
        begin
            ?assertEqual({Option, Unknown}, {Option, weir_gen_socket:listen(0, [{nodelay, true}, Option])}),
            ?assertEqual({Option, Unknown}, {Option, weir_gen_socket:connect(?HOST, 1, [Option, {nodelay, true}])}),
            ?assertEqual({Option, Unknown}, {Option, weir_gen_socket:setopts(Socket, [{nodelay, true}, Option])})
        end
     || Option <- [{packet, 4}, binary, list, {mode, list}, inet6, {colour, red}, colour, 1, {nodelay, true, 1}]
    ],
    %% Those of opening.
    [?assertEqual(Unknown, weir_gen_socket:setopts(Socket, [{Key, 0}])) || Key <- [pollset, bind_policy]],
    ?assertEqual({ok, [{nodelay, false}]}, weir_gen_socket:getopts(Socket, [nodelay])),
    close([Socket, Peer]).

wrong_values(_) ->
    {Socket, Peer} = pair(),
    [
        begin
            ?assertExit(badarg, weir_gen_socket:listen(0, [Option])),
            ?assertExit(badarg, weir_gen_socket:connect(?HOST, 1, [Option])),
            ?assertEqual({Option, {error, einval}}, {Option, weir_gen_socket:setopts(Socket, [Option])})
        end
     || Option <- [{nodelay, 1}, {active, sometimes}, {active, 32768}, {recbuf, big}, {send_timeout, -1}]
    ],
    close([Socket, Peer]).

%% Where they mean nothing they are taken, and do nothing.
options_of_opening(_) ->
    {ok, Listener} = weir_gen_socket:listen(0, [{backlog, 5}, {ip, ?HOST}, {pollset, 0}, {reuseaddr, true}]),
    {ok, Client} = weir_gen_socket:connect(?HOST, port(Listener), [{backlog, 5}, {bind_policy, round_robin}]),
    {ok, Server} = weir_gen_socket:accept(Listener),
    ?assertEqual({bind_id, 1}, weir_gen_socket:socket_info(Server, bind_id)),
    ok = weir_gen_socket:setopts(Client, [{backlog, 7}, {ip, {1, 2, 3, 4}}, {nodelay, true}]),
    ?assertEqual({ok, [{nodelay, true}]}, weir_gen_socket:getopts(Client, [nodelay])),
    {ok, Bound} = weir_gen_socket:connect(?HOST, port(Listener), [{ip, {127, 0, 0, 2}}]),
    ?assertMatch({ok, {{127, 0, 0, 2}, _}}, weir_gen_socket:sockname(Bound)),
    close([Bound, Client, Server, Listener]).

last_counts(_) ->
    {Client, Server, Listener} = connection([{nodelay, false}, {nodelay, true}]),
    ?assertEqual({ok, [{nodelay, true}]}, weir_gen_socket:getopts(Client, [nodelay])),
    ok = weir_gen_socket:setopts(Client, [{nodelay, true}, {active, once}, {nodelay, false}, {active, false}]),
    ?assertEqual({ok, [{nodelay, false}, {active, false}]}, weir_gen_socket:getopts(Client, [nodelay, active])),
    close([Client, Server, Listener]).

%% ---------------------------------------------------------------- addresses

%% A host may be a name, in letters or as an atom, also where a socket listens.
names_of_hosts(_) ->
    [
        begin
            {ok, Listener} = weir_gen_socket:listen(0, [{ip, Host}]),
            {ok, {?HOST, Port}} = weir_gen_socket:sockname(Listener),
            {ok, Client} = weir_gen_socket:connect(Host, Port, [], weir_kit:wait_ms()),
            close([Client, Listener])
        end
     || Host <- ["localhost", localhost, "127.0.0.1", ?HOST]
    ],
    %% Which reason it is, the node's resolver says.
    ?assertMatch({error, Reason} when is_atom(Reason), weir_gen_socket:listen(0, [{ip, "no-such-host.invalid"}])),
    ?assertMatch({error, Reason} when is_atom(Reason), weir_gen_socket:connect("no-such-host.invalid", 1, [])).

failures_to_connect(_) ->
    {Bound, Port} = weir_socket_test_lib:unused_port(),
    ?assertEqual({error, econnrefused}, weir_gen_socket:connect(?HOST, Port, [])),
    ?assertEqual({error, econnrefused}, weir_gen_socket:connect(?HOST, Port, [{active, true}], weir_kit:wait_ms())),
    ?assertEqual({error, eaddrinuse}, weir_gen_socket:listen(Port, [{ip, ?HOST}])),
    nothing(),
    ok = socket:close(Bound).

names(_) ->
    {Client, Server, Listener} = connection([]),
    {ok, {?HOST, Port}} = weir_gen_socket:sockname(Client),
    ?assertEqual({ok, {?HOST, Port}}, weir_gen_socket:peername(Server)),
    ?assertEqual(weir_gen_socket:peername(Client), weir_gen_socket:sockname(Server)),
    ?assertEqual({error, enotconn}, weir_gen_socket:peername(Listener)),
    close([Client, Server, Listener]).

%% ---------------------------------------------------------------- what is told

%% Once each, in the order of their names.
counters(_) ->
    {Client, Server, Listener} = connection([]),
    ok = weir_gen_socket:send(Client, [<<"abc">>, <<"defg">>]),
    ok = weir_gen_socket:send(Client, <<"hij">>),
    {ok, <<"abcdefghij">>} = weir_gen_socket:recv(Server, 10),
    ?assertEqual(
        {ok, [
            {recv_avg, 0}, {recv_cnt, 0}, {recv_dvi, 0}, {recv_max, 0}, {recv_oct, 0},
            {send_avg, 5}, {send_cnt, 2}, {send_max, 7}, {send_oct, 10}, {send_pend, 0}
        ]},
        weir_gen_socket:getstat(Client)
    ),
    Asked = weir_gen_socket:getstat(Server, [send_oct, recv_oct, send_oct]),
    ?assertEqual({ok, [{recv_oct, 10}, {send_oct, 0}]}, Asked),
    ?assertEqual({error, einval}, weir_gen_socket:getstat(Client, [colour])),
    close([Client, Server, Listener]).

socket_info(_) ->
    {ok, Listener} = weir_gen_socket:listen(0, [{pollset, 0}]),
    ?assertEqual({bind_id, 1}, weir_gen_socket:socket_info(Listener, bind_id)),
    {id, Fd} = weir_gen_socket:socket_info(Listener, id),
    ?assertEqual({ok, [{fd, Fd}]}, inet:getopts(Listener, [fd])),
    ?assertError(badarg, weir_gen_socket:socket_info(Listener, ev_stat)),
    ok = weir_gen_socket:close(Listener),
    [?assertEqual({error, closed}, weir_gen_socket:socket_info(Listener, Item)) || Item <- [id, bind_id]].

%% gen_tcp and inet have other words for it.
closed(_) ->
    {Socket, Peer} = pair(),
    ok = weir_gen_socket:close(Socket),
    [
        ?assertEqual({Function, {error, closed}}, {Function, apply(weir_gen_socket, Function, [Socket | Args])})
     || {Function, Args} <- [
            {accept, []}, {accept, [0]}, {send, [<<"x">>]}, {send, [[<<"x">>]]}, {recv, [0]}, {recv, [1, 0]},
            {controlling_process, [self()]}, {dup_socket, []}, {setopts, [[{nodelay, true}]]},
            {setopts, [[{active, true}]]}, {getopts, [[nodelay]]}, {peername, []}, {sockname, []}, {getstat, []}
        ]
    ],
    ?assertEqual(ok, weir_gen_socket:close(Socket)),
    nothing(),
    ok = gen_tcp:close(Peer).

%% What gen_socket has no function or option for, others have.
tcp_takes_it(_) ->
    {Client, Server, Listener} = connection([]),
    ok = weir_socket:setopts(Client, [{packet, 4}]),
    ok = inet:setopts(Server, [{packet, 4}]),
    ok = gen_tcp:send(Client, <<"one">>),
    ok = weir_gen_socket:send(Client, <<"two">>),
    ?assertEqual({ok, <<"one">>}, weir_gen_socket:recv(Server, 0)),
    ?assertEqual({ok, <<"two">>}, gen_tcp:recv(Server, 0)),
    ok = gen_tcp:shutdown(Client, write),
    ?assertEqual({error, closed}, weir_gen_socket:recv(Server, 0)),
    close([Client, Server, Listener]).

%% ---------------------------------------------------------------- what the cases share

%% A socket of this module, and one of gen_tcp's; the caller owns both.
pair() ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, ?HOST}, binary, {active, false}]),
    {ok, Port} = inet:port(Listener),
    {ok, Socket} = weir_gen_socket:connect(?HOST, Port, []),
    {ok, Peer} = gen_tcp:accept(Listener, weir_kit:wait_ms()),
    ok = gen_tcp:close(Listener),
    {Socket, Peer}.

connection(Options) ->
    {ok, Listener} = weir_gen_socket:listen(0, Options),
    {ok, Client} = weir_gen_socket:connect(?HOST, port(Listener), Options),
    {ok, Server} = weir_gen_socket:accept(Listener, weir_kit:wait_ms()),
    {Client, Server, Listener}.

port(Listener) ->
    {ok, {_, Port}} = weir_gen_socket:sockname(Listener),
    Port.

close(Sockets) -> lists:foreach(fun(Socket) -> ok = gen_tcp:close(Socket) end, Sockets).

next() ->
    receive
        Message -> Message
    after weir_kit:wait_ms() -> error(no_message)
    end.

nothing() ->
    receive
        Message -> error({unexpected, Message})
    after 0 -> ok
    end.
