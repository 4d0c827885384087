%% Cases of the suite of behaviour: what is left over when sockets have come and gone in all ways. Nothing.
-module(weir_socket_cases_leaks).

-include_lib("stdlib/include/assert.hrl").

-export([closed_by_us/1, closed_by_peers/1, owners_die/1, failed_connects/1, moved_and_closed/1, memory/1]).

-import(weir_kit, [start/1, result/1, until/1, until_waiting/1, kill/1]).
-import(weir_socket_test_lib, [
    listen/2, connect/4, accept/1, accept/2, send/2, recv/2, close/1, controlling_process/2, setopts/2, next/0,
    nothing/0, unused_port/0, descriptors/0, memory/0, tmp/1, until_nothing_leaks/1
]).

%% Calls the function, and waits until there are no more descriptors, processes and ports than before.
nothing_left(Fun) ->
    %% What is made once, at the first use, is no leak.
    Fun(20),
    Before = counts(),
    Fun(weir_kit:long(200, 500)),
    nothing(),
    until_nothing_leaks(fun() ->
        Now = counts(),
        lists:all(fun({A, B}) -> B =< A end, lists:zip(Before, Now)) orelse {Before, Now}
    end).

counts() -> [descriptors(), length(erlang:processes()), length(erlang:ports())].

%% Over local sockets, which leave no state in the kernel behind.
with_listener(B, Fun) ->
    Path = tmp("leaks"),
    {ok, Listener} = listen(B, [binary, {active, false}, {ifaddr, {local, Path}}, {backlog, 100}]),
    nothing_left(fun(Cycles) -> [Fun(Listener, Path, I) || I <- lists:seq(1, Cycles)] end),
    ok = close(Listener),
    ok = file:delete(Path).

connected(B, Listener, Path) ->
    {ok, Client} = connect(B, {local, Path}, 0, [local, binary, {active, false}]),
    {ok, Server} = accept(Listener),
    {Client, Server}.

closed_by_us(B) ->
    with_listener(B, fun(Listener, Path, I) ->
        {Client, Server} = connected(B, Listener, Path),
        I rem 3 > 0 andalso begin ok = send(Client, <<"data">>) end,
        I rem 3 > 1 andalso begin {ok, <<"data">>} = recv(Server, 0) end,
        ok = close(Client),
        ok = close(Server)
    end).

closed_by_peers(B) ->
    with_listener(B, fun(Listener, Path, I) ->
        {Client, Server} = connected(B, Listener, Path),
        case I rem 2 of
            0 ->
                ok = setopts(Server, [{active, true}]),
                ok = close(Client),
                {tcp_closed, Server} = next();
            1 ->
                ok = close(Client),
                {error, closed} = recv(Server, 0)
        end,
        _ = close(Server)
    end).

%% In every state: while it waits in recv or accept, while it sends, with messages unread, right after it was made.
owners_die(B) ->
    with_listener(B, fun(Listener, Path, I) ->
        Me = self(),
        Owner = start(fun() ->
            {Client, Server} = connected(B, Listener, Path),
            Me ! connected,
            case I rem 6 of
                0 -> recv(Client, 0);
                1 -> setopts(Client, [{active, true}]), send(Server, <<"data">>), receive never -> ok end;
                2 -> spawn(fun() -> recv(Client, 0) end), receive never -> ok end;
                3 -> send_for_ever(Client);
                4 -> exit(crash);
                5 -> accept(Listener, infinity)
            end
        end),
        IsConnected = is_connected(B),
        _ = IsConnected andalso I rem 6 =/= 4 andalso until_waiting(Owner),
        kill(Owner),
        IsConnected orelse receive connected -> ok after 0 -> ok end
    end).

%% Returns whether the owner has its connection. On OTP 29 and a busy machine, a connection of OTP's module socket was
%% once not made within a minute.
is_connected(socket) -> receive connected -> true after 10_000 -> false end;
is_connected(_) -> connected =:= next().

send_for_ever(Socket) ->
    case send(Socket, binary:copy(<<"x">>, 100_000)) of
        ok -> send_for_ever(Socket);
        Error -> Error
    end.

failed_connects(B) ->
    {Bound, Port} = unused_port(),
    nothing_left(fun(Cycles) ->
        [
            begin
                {error, econnrefused} = connect(B, {127, 0, 0, 1}, Port, []),
                {error, enoent} = connect(B, {local, "/nosuch/file"}, 0, [local]),
                {error, eaddrnotavail} = listen(B, [{ip, {192, 0, 2, 1}}]),
                {error, eaddrinuse} = weir_socket_test_lib:listen(B, Port, [{ip, {127, 0, 0, 1}}])
            end
         || _ <- lists:seq(1, Cycles)
        ]
    end),
    ok = socket:close(Bound).

moved_and_closed(B) ->
    with_listener(B, fun(Listener, Path, _I) ->
        {Client, Server} = connected(B, Listener, Path),
        Holder = start(fun() -> receive {closed, From} -> From ! done end end),
        ok = controlling_process(Client, element(1, Holder)),
        ok = controlling_process(Server, element(1, Holder)),
        ok = close(Client),
        element(1, Holder) ! {closed, self()},
        done = next(),
        done = result(Holder)
    end).

%% Neither the runtime's memory grows, nor the system's for it, whatever is read and left unread.
memory(B) ->
    Path = tmp("leaks"),
    {ok, Listener} = listen(B, [binary, {active, false}, {ifaddr, {local, Path}}]),
    Data = binary:copy(<<"x">>, 50_000),
    Cycle = fun(I) ->
        {Client, Server} = connected(B, Listener, Path),
        ok = send(Client, Data),
        case I rem 2 of
            0 -> {ok, Data} = recv(Server, 50_000);
            1 -> {ok, _} = recv(Server, 1)
        end,
        ok = close(Client),
        ok = close(Server)
    end,
    Run = fun(Cycles) -> ok = result(start(fun() -> [Cycle(I) || I <- lists:seq(1, Cycles)], ok end)) end,
    Used = fun() ->
        [erlang:garbage_collect(Pid) || Pid <- erlang:processes()],
        memory()
    end,
    Run(100),
    Before = Used(),
    Run(400),
    %% 400 times 50 KB would be 20 MB.
    until(fun() -> Used() < Before + 5_000_000 end),
    ok = close(Listener),
    ok = file:delete(Path).
