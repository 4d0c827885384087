%% Cases of the suite of behaviour: addresses, of both families and local, and names of sockets.
-module(weir_socket_cases_address).

-include_lib("stdlib/include/assert.hrl").

-export([addresses/1, inet6/1, local/1, names/1, source_address/1, address_in_use/1]).

-import(weir_socket_test_lib, [
    listen/2, listen/3, connect/4, accept/1, pair/3, peer_opts/0, recv/2, close/1, getopt/2, peername/1, sockname/1,
    port/1, nothing/0, unused_port/0, tmp/1, talk/2
]).
-import(weir_socket_differences, [differs/2]).

-define(LOOPBACK, {127, 0, 0, 1}).

%% All forms of one address.
addresses(B) ->
    Opts = [binary, {active, false}],
    {ok, Listener} = listen(B, [{ip, ?LOOPBACK} | Opts]),
    {ok, Port} = port(Listener),
    Sockaddr = #{family => inet, addr => ?LOOPBACK, port => Port},
    [
        begin
            {ok, Client} = Connect(),
            {ok, Server} = accept(Listener),
            talk(Client, Server),
            ok = close(Client),
            ok = close(Server)
        end
     || Connect <- [
            fun() -> connect(B, ?LOOPBACK, Port, Opts) end,
            fun() -> connect(B, "127.0.0.1", Port, Opts) end,
            fun() -> connect(B, "localhost", Port, [inet | Opts]) end,
            fun() -> connect(B, localhost, Port, [inet | Opts]) end,
            fun() -> connect_to(B, Sockaddr, Opts) end
        ]
    ],
    ok = close(Listener),
    Bound = [
        [{ip, loopback}],
        [{ip, any}],
        [{ifaddr, ?LOOPBACK}],
        [{ifaddr, #{family => inet, addr => ?LOOPBACK, port => 0}}]
    ],
    [
        begin
            {ok, Listening} = listen(B, How ++ Opts),
            {ok, {_, To}} = sockname(Listening),
            {ok, Client} = connect(B, ?LOOPBACK, To, Opts),
            {ok, Server} = accept(Listening),
            talk(Client, Server),
            [ok = close(Socket) || Socket <- [Client, Server, Listening]]
        end
     || How <- Bound, not (differs(B, sockaddr) andalso is_map(proplists:get_value(ifaddr, How)))
    ].

connect_to(Ours, Sockaddr, Opts) when Ours =:= weir; Ours =:= no_nif -> weir_socket:connect(Sockaddr, Opts);
connect_to(B, #{addr := Address, port := Port} = Sockaddr, Opts) ->
    case differs(B, sockaddr) of
        true -> connect(B, Address, Port, Opts);
        false -> gen_tcp:connect(Sockaddr, [{inet_backend, B} | Opts])
    end.

inet6(B) ->
    Opts = [inet6, binary, {active, false}],
    Loopback = {0, 0, 0, 0, 0, 0, 0, 1},
    case gen_tcp:listen(0, [{ip, Loopback} | Opts]) of
        {error, Reason} ->
            {skip, {"this machine has no IPv6", Reason}};
        {ok, Plain} ->
            ok = gen_tcp:close(Plain),
            {ok, Listener} = listen(B, [{ip, Loopback} | Opts]),
            {ok, {Loopback, Port}} = sockname(Listener),
            Sockaddr = #{family => inet6, addr => Loopback, port => Port},
            [
                begin
                    {ok, Client} = Connect(),
                    {ok, Server} = accept(Listener),
                    {ok, Name} = sockname(Client),
                    ?assertMatch({Loopback, _}, Name),
                    ?assertEqual({ok, Name}, peername(Server)),
                    ?assertEqual({ok, {Loopback, Port}}, peername(Client)),
                    talk(Client, Server),
                    ok = close(Client),
                    ok = close(Server)
                end
             || Connect <- [
                    fun() -> connect(B, Loopback, Port, Opts) end,
                    fun() -> connect(B, "::1", Port, Opts) end,
                    fun() -> connect_to(B, Sockaddr, [binary, {active, false}]) end
                ]
            ],
            ok = close(Listener),
            [v6only(B, Only) || Only <- [true, false]],
            ok
    end.

%% One that is not for IPv6 only takes connections of IPv4.
v6only(B, false) ->
    {ok, Listener} = listen(B, [inet6, {ipv6_v6only, false}, {active, false}]),
    ?assertEqual(false, getopt(Listener, ipv6_v6only)),
    {ok, Port} = port(Listener),
    {ok, Client} = connect(B, ?LOOPBACK, Port, [{active, false}]),
    {ok, Server} = accept(Listener),
    {ok, {{0, 0, 0, 0, 0, 16#ffff, 16#7f00, 1}, _}} = peername(Server),
    [ok = close(Socket) || Socket <- [Client, Server, Listener]],
    ok;
v6only(B, true) ->
    v6only_alone(B, 20).

%% IPv4's port of the same number is free for other programs, so it is ours first, or one of them might answer there.
%% Another may have IPv6's port of that number: then with another number.
v6only_alone(B, Tries) ->
    {Bound, Port} = unused_port(),
    case listen(B, Port, [inet6, {ipv6_v6only, true}, {active, false}]) of
        {ok, Listener} ->
            ?assertEqual(true, getopt(Listener, ipv6_v6only)),
            ?assertEqual({error, econnrefused}, connect(B, ?LOOPBACK, Port, [{active, false}])),
            ok = close(Listener),
            ok = socket:close(Bound);
        {error, eaddrinuse} when Tries > 1 ->
            ok = socket:close(Bound),
            v6only_alone(B, Tries - 1)
    end.

local(B) ->
    Opts = [binary, {active, false}],
    Path = tmp("local"),
    {ok, Listener} = listen(B, [{ifaddr, {local, Path}} | Opts]),
    Name = local_name(Path),
    ?assertEqual({ok, Name}, sockname(Listener)),
    {error, eaddrinuse} = listen(B, [{ifaddr, {local, Path}} | Opts]),
    [
        begin
            {ok, Client} = connect(B, {local, Address}, 0, [local | Opts]),
            {ok, Server} = accept(Listener),
            ?assertEqual({ok, Name}, peername(Client)),
            ?assertEqual({ok, Name}, sockname(Server)),
            %% The end that connects has no name.
            ?assertEqual({ok, local_name("")}, peername(Server)),
            talk(Client, Server),
            ok = close(Client),
            ?assertEqual({error, closed}, recv(Server, 0)),
            ok = close(Server)
        end
     || Address <- [Path, list_to_binary(Path)]
    ],
    ok = close(Listener),
    {error, econnrefused} = connect(B, {local, Path}, 0, [local | Opts]),
    ok = file:delete(Path),
    {error, enoent} = connect(B, {local, Path}, 0, [local | Opts]),
    %% A name that is not in the file system: it begins with a zero byte, and goes with its last socket.
    Abstract = <<0, "weir_socket_", (list_to_binary(os:getpid()))/binary>>,
    {ok, Hidden} = listen(B, [{ifaddr, {local, Abstract}} | Opts]),
    {ok, Client} = connect(B, {local, Abstract}, 0, [local | Opts]),
    {ok, Server} = accept(Hidden),
    talk(Client, Server),
    [ok = close(Socket) || Socket <- [Client, Server, Hidden]],
    nothing().

local_name(Path) -> {local, list_to_binary(Path)}.

names(B) ->
    {ok, Listener} = listen(B, [{ip, ?LOOPBACK}]),
    {ok, {?LOOPBACK, Port}} = sockname(Listener),
    ?assertEqual({ok, Port}, port(Listener)),
    ?assertEqual({error, enotconn}, peername(Listener)),
    ok = close(Listener),
    [
        begin
            {Socket, Peer} = pair(B, Side, []),
            {ok, Mine} = sockname(Socket),
            {ok, Its} = peername(Socket),
            ?assertEqual({ok, Mine}, inet:peername(Peer)),
            ?assertEqual({ok, Its}, inet:sockname(Peer)),
            ?assertEqual({ok, element(2, Mine)}, port(Socket)),
            ok = close(Socket),
            [{error, _} = weir_socket_test_lib:Function(Socket) || Function <- [peername, sockname, port]],
            ok = gen_tcp:close(Peer)
        end
     || Side <- [connected, accepted]
    ].

%% Where a connection comes from can be chosen.
source_address(B) ->
    {ok, Listener} = gen_tcp:listen(0, peer_opts()),
    {ok, Port} = inet:port(Listener),
    Free = free_port(),
    [
        begin
            {ok, Socket} = connect(B, ?LOOPBACK, Port, Opts),
            {ok, {Address, From}} = sockname(Socket),
            ?assertEqual({Opts, Expected}, {Opts, {Address, From =:= Free}}),
            {ok, Peer} = gen_tcp:accept(Listener),
            ?assertEqual({ok, {Address, From}}, inet:peername(Peer)),
            %% Resets it: a port that was closed in order cannot be bound for a minute.
            ok = inet:setopts(Peer, [{linger, {true, 0}}]),
            ok = gen_tcp:close(Peer),
            ok = close(Socket)
        end
     || {Opts, Expected} <- [
            {[{ip, {127, 0, 0, 2}}], {{127, 0, 0, 2}, false}},
            {[{ifaddr, {127, 0, 0, 3}}], {{127, 0, 0, 3}, false}},
            {[{port, Free}, {active, false}], {?LOOPBACK, true}}
        ]
    ],
    {error, eaddrnotavail} = connect(B, ?LOOPBACK, Port, [{ip, {192, 0, 2, 1}}]),
    {error, eaddrnotavail} = listen(B, [{ip, {192, 0, 2, 1}}]),
    ok = gen_tcp:close(Listener).

%% Outside of those that Linux chooses from for others, so that none of them takes it meanwhile.
free_port() ->
    Port = 20_000 + rand:uniform(9_999),
    case gen_tcp:listen(Port, [{ip, ?LOOPBACK}]) of
        {ok, Listener} ->
            ok = gen_tcp:close(Listener),
            Port;
        {error, eaddrinuse} ->
            free_port()
    end.

address_in_use(B) ->
    {ok, Listener} = listen(B, [{ip, ?LOOPBACK}]),
    {ok, Port} = port(Listener),
    ?assertEqual({error, eaddrinuse}, listen(B, Port, [{ip, ?LOOPBACK}])),
    ?assertEqual({error, eaddrinuse}, listen(B, Port, [{ip, ?LOOPBACK}, {reuseaddr, true}])),
    ok = close(Listener),
    {ok, Again} = listen(B, Port, [{ip, ?LOOPBACK}, {reuseaddr, true}]),
    ok = close(Again).
