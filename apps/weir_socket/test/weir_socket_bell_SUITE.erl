%% The bell of a poller: when it rings and when it does not, and its end. What is watched is a UDP socket, which is
%% readable while a datagram is in it.
-module(weir_socket_bell_SUITE).

-compile([export_all, nowarn_export_all]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_kit, [start/1, result/1, until/1, kill/1, wait_ms/0]).

-define(LIB, weir_socket_test_lib).
-define(BELL, weir_socket_bell).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_socket),
    Config.

end_per_suite(_Config) -> ok.

%% ---------------------------------------------------------------- rings

rings_once(_Config) ->
    {Udp, Bell} = watched(),
    ok = datagram(Udp),
    not_rung(Bell),
    ok = ?BELL:arm(Bell),
    rung(Bell),
    ok = datagram(Udp),
    not_rung(Bell),
    [begin ok = ?BELL:arm(Bell), rung(Bell) end || _ <- lists:seq(1, 100)],
    not_rung(Bell),
    true = port_close(Bell),
    ok = gen_udp:close(Udp).

rings_for_what_is_there(_Config) ->
    {Udp, Bell} = watched(),
    ok = ?BELL:arm(Bell),
    not_rung(Bell),
    ok = datagram(Udp),
    rung(Bell),
    {ok, _} = gen_udp:recv(Udp, 0),
    ok = ?BELL:arm(Bell),
    not_rung(Bell),
    ok = datagram(Udp),
    rung(Bell),
    true = port_close(Bell),
    ok = gen_udp:close(Udp).

asked_twice(_Config) ->
    {Udp, Bell} = watched(),
    ok = ?BELL:arm(Bell),
    ok = ?BELL:arm(Bell),
    ok = datagram(Udp),
    rung(Bell),
    not_rung(Bell),
    true = port_close(Bell),
    ok = gen_udp:close(Udp).

%% ---------------------------------------------------------------- the end

owner_dies(_Config) ->
    Before = ?LIB:descriptors(),
    {ok, Udp} = gen_udp:open(0, [{active, false}]),
    {ok, Fd} = inet:getfd(Udp),
    Self = self(),
    Owner = spawn(fun() ->
        {ok, Bell} = ?BELL:open(Fd),
        ok = ?BELL:arm(Bell),
        Self ! {self(), Bell},
        receive after infinity -> ok end
    end),
    Bell = receive {Owner, Port} -> Port end,
    kill(Owner),
    until(fun() -> erlang:port_info(Bell) =:= undefined end),
    ok = datagram(Udp),
    ?assertError(badarg, ?BELL:arm(Bell)),
    ok = gen_udp:close(Udp),
    ?LIB:until_nothing_leaks(fun() -> ?LIB:descriptors() =< Before end).

wrong_commands(_Config) ->
    {Udp, Bell} = watched(),
    {ok, Fd} = inet:getfd(Udp),
    ?assertError(badarg, port_control(Bell, 0, <<Fd:32/native>>)),
    ?assertError(badarg, port_control(Bell, 0, <<>>)),
    ?assertError(badarg, port_control(Bell, 2, <<>>)),
    Other = open_port({spawn_driver, "weir_socket_bell"}, []),
    ?assertError(badarg, port_control(Other, 1, <<>>)),
    ?assertError(badarg, port_control(Other, 0, <<1_000_000:32/native>>)),
    true = port_close(Other),
    ok = datagram(Udp),
    ok = ?BELL:arm(Bell),
    rung(Bell),
    true = port_close(Bell),
    ok = gen_udp:close(Udp).

%% ---------------------------------------------------------------- the pollers

closed_while_the_poller_sleeps(_Config) ->
    [Poller | _] = ?LIB:pollers(),
    {links, Links} = process_info(Poller, links),
    [Bell] = [Port || Port <- Links, is_port(Port)],
    until(fun() -> process_info(Poller, status) =:= {status, waiting} end),
    true = exit(Bell, kill),
    until(fun() -> not lists:member(Poller, ?LIB:pollers()) end),
    ok = result(start(fun talks/0)).

%% Pollers that are killed when the node has no descriptors left wait for them; the application goes on.
no_descriptors(_Config) ->
    ?assertEqual(ok, ?LIB:with_descriptors(100, [], {?MODULE, no_descriptors_here})).

no_descriptors_here() ->
    {ok, _} = application:ensure_all_started(weir_socket),
    Supervisor = whereis(weir_socket_sup),
    %% Loads the code that is needed later, which takes descriptors too.
    ok = talks(),
    ok = sys:suspend(Supervisor, wait_ms()),
    ok = sys:resume(Supervisor, wait_ms()),
    Self = self(),
    Hoarder = spawn_link(fun() -> hoard(Self, []) end),
    receive {Hoarder, full} -> ok end,
    ok = sys:suspend(Supervisor, wait_ms()),
    Pollers = ?LIB:pollers(),
    [exit(Pid, kill) || Pid <- Pollers],
    %% What the dead ones' bells had is taken as well, before there are others.
    until(fun() -> [] =:= [Port || Port <- erlang:ports(), is_bell(Port)] end),
    Hoarder ! again,
    receive {Hoarder, full} -> ok end,
    ok = sys:resume(Supervisor, wait_ms()),
    ?assertNotEqual(undefined, whereis(weir_socket_sup)),
    Hoarder ! {give_back, Self},
    receive {Hoarder, given_back} -> ok end,
    until(fun() -> lists:all(fun is_process_alive/1, ?LIB:pollers()) end),
    ok = talks(),
    ?assertEqual(Supervisor, whereis(weir_socket_sup)),
    ok.

is_bell(Port) -> erlang:port_info(Port, name) =:= {name, "weir_socket_bell"}.

%% Takes every descriptor that there is.
hoard(Starter, Held) ->
    case weir_socket_nif:open(inet, none, default) of
        {ok, Sock} ->
            hoard(Starter, [Sock | Held]);
        {error, emfile} ->
            Starter ! {self(), full},
            receive
                again ->
                    hoard(Starter, Held);
                {give_back, Starter} ->
                    [ok = weir_socket_nif:close_now(Sock) || Sock <- Held],
                    Starter ! {self(), given_back}
            end
    end.

%% ---------------------------------------------------------------- helpers

talks() ->
    Sets = weir_socket_nif:pollsets(),
    [
        begin
            {One, Other} = ?LIB:pair(weir, [binary, {active, false}, {pollset, Set}]),
            {ok, <<"pong">>} = ?LIB:talk(One, Other)
        end
     || Set <- lists:seq(0, Sets - 1)
    ],
    ok.

watched() ->
    {ok, Udp} = gen_udp:open(0, [{active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Fd} = inet:getfd(Udp),
    {ok, Bell} = ?BELL:open(Fd),
    {Udp, Bell}.

%% To itself.
datagram(Udp) ->
    {ok, Port} = inet:port(Udp),
    gen_udp:send(Udp, {127, 0, 0, 1}, Port, <<"x">>).

rung(Bell) ->
    receive
        {Bell, ring} -> ok
    after wait_ms() -> error(not_rung)
    end.

%% Shows that the bell does not ring, within a time in which it would.
not_rung(Bell) ->
    receive
        {Bell, ring} -> error(rung)
    after 30 -> ok
    end.
