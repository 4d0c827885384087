%% weir_socket:info/0 and i/0: what there is, counted and listed.
-module(weir_socket_overview_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [start/1, result/1, until/1]).
-import(weir_socket_test_lib, [talk/2]).

-define(LOCALHOST, {127, 0, 0, 1}).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    [{started, Started} | Config].

end_per_suite(Config) -> lists:foreach(fun application:stop/1, lists:reverse(?config(started, Config))).

%% Nothing of the case before is there any more.
init_per_testcase(_Case, Config) ->
    until(fun() -> maps:get(sockets, weir_socket:info()) =:= 0 end),
    Config.

end_per_testcase(_Case, _Config) -> ok.

nothing(_) ->
    Info = weir_socket:info(),
    ?assertMatch(
        #{
            backend := epoll, sockets := 0, listeners := 0, connections := 0, recv_oct := 0, send_oct := 0,
            send_pend := 0, buffered := 0, by_owner := []
        },
        Info
    ),
    #{pollsets := N, sets := Sets} = Info,
    ?assertEqual(weir_socket_nif:pollsets(), N),
    ?assertEqual(
        [
            #{set => Set, sockets => 0, poller => maps:get(poller, weir_socket_nif:pollset_info(Set))}
         || Set <- lists:seq(0, N - 1)
        ],
        Sets
    ).

%% Each kind, in each set, and what they have received and sent.
counts(_) ->
    Sets = lists:seq(0, weir_socket_nif:pollsets() - 1),
    Pairs = [pair([{pollset, Set}]) || Set <- Sets],
    N = length(Sets),
    {ok, Listener} = weir_socket:listen(0, [{pollset, 0}]),
    {ok, Open} = weir_socket_nif:open(inet, none, 0),
    [talk(A, B) || {A, B} <- Pairs],
    Info = weir_socket:info(),
    Sockets = 2 * N + 2,
    Bytes = 2 * 4 * N,
    Connections = 2 * N,
    ?assertMatch(
        #{
            sockets := Sockets, listeners := 1, connections := Connections, recv_oct := Bytes, send_oct := Bytes,
            send_pend := 0, buffered := 0
        },
        Info
    ),
    ?assertEqual([4 | lists:duplicate(N - 1, 2)], [Of || #{sockets := Of} <- maps:get(sets, Info)]),
    [ok = weir_socket:close(Socket) || {A, B} <- Pairs, Socket <- [A, B]],
    ?assertMatch(#{sockets := 2, listeners := 1, connections := 0, recv_oct := 0, send_oct := 0}, weir_socket:info()),
    ok = weir_socket:close(Listener),
    ok = weir_socket_nif:close_now(Open),
    ?assertMatch(#{sockets := 0, listeners := 0, by_owner := []}, weir_socket:info()).

%% Those with most come first; who has died is not there any more.
owners(_) ->
    One = owner(1),
    Three = owner(3),
    Given = pair([]),
    {Giving, Kept} = Given,
    ok = weir_socket:controlling_process(Giving, Three),
    ok = weir_socket:send(Kept, "abc"),
    {ok, <<"abc">>} = weir_socket:recv(Giving, 3),
    Self = self(),
    ?assertMatch(
        [
            #{owner := Three, sockets := 4, listeners := 3, recv_oct := 3, send_oct := 0},
            #{owner := Self, sockets := 1, listeners := 0, recv_oct := 0, send_oct := 3},
            #{owner := One, sockets := 1, listeners := 1, recv_oct := 0, send_oct := 0}
        ],
        maps:get(by_owner, weir_socket:info())
    ),
    stop(Three),
    until(fun() -> [maps:get(owner, Of) || Of <- maps:get(by_owner, weir_socket:info())] =:= [Self, One] end),
    stop(One),
    ok = weir_socket:close(Kept).

names(_) ->
    Registered = owner(4),
    true = register(weir_socket_overview_owner, Registered),
    Started = proc_lib:spawn(?MODULE, own, [3, self()]),
    ok = owns(Started),
    Spawned = spawn(?MODULE, own, [2, self()]),
    ok = owns(Spawned),
    ?assertEqual(
        [
            {Registered, weir_socket_overview_owner}, {Started, {?MODULE, own, 2}}, {Spawned, {?MODULE, own, 2}}
        ],
        [{Owner, Name} || #{owner := Owner, name := Name} <- maps:get(by_owner, weir_socket:info())]
    ),
    lists:foreach(fun stop/1, [Registered, Started, Spawned]).

%% What the kernel does not take; and what is left of it when its owner is gone.
queued(_) ->
    {ok, Listener} = gen_tcp:listen(0, [{active, false}, binary, {recbuf, 4096}]),
    {ok, Port} = inet:port(Listener),
    Data = binary:copy(<<"x">>, 8_000_000),
    Self = self(),
    Owner = spawn(fun() ->
        {ok, Socket} = weir_socket:connect(?LOCALHOST, Port, [{sndbuf, 4096}]),
        ok = weir_socket:send(Socket, Data),
        Self ! {self(), ready},
        receive stop -> ok end
    end),
    ok = owns(Owner),
    {ok, Peer} = gen_tcp:accept(Listener),
    #{send_pend := Queued} = weir_socket:info(),
    ?assert(Queued > 0),
    ?assertMatch(#{connections := 1, send_oct := 8_000_000, by_owner := [#{owner := Owner}]}, weir_socket:info()),
    stop(Owner),
    until(fun() ->
        case weir_socket:info() of
            #{connections := 1, by_owner := [#{owner := undefined, name := undefined, sockets := 1}]} -> true;
            Info -> Info
        end
    end),
    ?assertEqual(8_000_000, byte_size(weir_socket_test_lib:read_all(Peer))),
    until(fun() -> maps:get(sockets, weir_socket:info()) =:= 0 end),
    [ok = gen_tcp:close(Each) || Each <- [Peer, Listener]].

%% What was read ahead; and a socket whose other end has closed is not counted, though its owner has not closed it.
closed_by_others(_) ->
    {A, B} = pair([]),
    ok = weir_socket:send(A, "abcdef"),
    {ok, <<"ab">>} = weir_socket:recv(B, 2),
    ?assertMatch(#{sockets := 2, buffered := 4, recv_oct := 2}, weir_socket:info()),
    ok = weir_socket:close(A),
    {ok, <<"cdef">>} = weir_socket:recv(B, 0),
    {error, closed} = weir_socket:recv(B, 0),
    ?assertMatch(#{sockets := 0, buffered := 0, by_owner := []}, weir_socket:info()),
    ok = weir_socket:close(B).

%% 20,000 sockets, while others are served.
many(_) ->
    N = 20_000,
    {A, B} = pair([]),
    {Pid, _} = Echo = start(fun() -> echo(0) end),
    [ok = weir_socket:controlling_process(Socket, Pid) || Socket <- [A, B]],
    Pid ! {talk, A, B},
    Others = owner(0),
    Others ! {more, N},
    ok = owns(Others),
    Told = [maps:with([sockets, connections, by_owner], weir_socket:info()) || _ <- lists:seq(1, 10)],
    Pid ! stop,
    Turns = result(Echo),
    ?assert(Turns > 0),
    [
        begin
            ?assertMatch(#{sockets := 20_002, connections := 2}, Each),
            ?assertMatch([{Others, N}, {Pid, 2}], [{O, S} || #{owner := O, sockets := S} <- maps:get(by_owner, Each)])
        end
     || Each <- Told
    ],
    stop(Others).

echo(Turns) ->
    receive
        stop -> Turns;
        {talk, A, B} ->
            talk(A, B),
            self() ! {talk, A, B},
            echo(Turns + 1)
    end.

%% The first 20 of those who have most.
many_owners(_) ->
    Owners = [owner(1 + I rem 5) || I <- lists:seq(1, 50)],
    #{by_owner := Told, sockets := Sockets} = weir_socket:info(),
    ?assertEqual(150, Sockets),
    ?assertEqual(lists:duplicate(10, 5) ++ lists:duplicate(10, 4), [N || #{sockets := N} <- Told]),
    ?assertEqual(20, length(lists:usort([Owner || #{owner := Owner} <- Told]))),
    lists:foreach(fun stop/1, Owners).

%% The NIF tells of a bounded number at a time, with holes and without, and of each once.
every_socket_in_pieces(_) ->
    {ok, Unused} = weir_socket_nif:open(inet, none, 0),
    {ok, Fd} = weir_socket_nif:fd(Unused),
    Socks = [Unused | [open_fd(Fd, 0) || _ <- lists:seq(2, 6000)]],
    {Holes, Rest} = lists:split(5000, tl(Socks)),
    Survey = fun(From) -> weir_socket_nif:survey(0, From) end,
    Told = pieces(Survey, 0),
    Pieces = pieces(fun(From) -> weir_socket_nif:members(0, From, 1000) end, 0),
    ?assertEqual(6000, length(lists:append(Told))),
    [?assert(length(Piece) =< 500) || Piece <- Told ++ Pieces],
    ?assertEqual(lists:sort(Socks), lists:sort(lists:append(Pieces))),
    [ok = weir_socket_nif:close_now(Sock) || Sock <- Holes],
    Left = pieces(Survey, 0),
    ?assertEqual(1000, length(lists:append(Left))),
    %% A call looks at 4096 slots.
    ?assert(length(Left) > 1),
    ?assertEqual({[], done}, weir_socket_nif:survey(0, 16#ffffffff)),
    [
        ?assertError(badarg, Fun())
     || Fun <- [
            fun() -> weir_socket_nif:survey(weir_socket_nif:pollsets(), 0) end,
            fun() -> weir_socket_nif:survey(0, -1) end,
            fun() -> weir_socket_nif:members(0, 0, 0) end,
            fun() -> weir_socket_nif:members(0, done, 1) end
        ]
    ],
    [ok = weir_socket_nif:close_now(Sock) || Sock <- [Unused | Rest]].

pieces(_Ask, done) -> [];
pieces(Ask, From) ->
    {Piece, Next} = Ask(From),
    [Piece | pieces(Ask, Next)].

%% One line for each: whose, what came and went, from where to where, and its state.
table(_) ->
    {ok, Listener} = weir_socket:listen(0, [{ip, ?LOCALHOST}, binary, {active, false}]),
    {ok, Port} = weir_socket:port(Listener),
    {ok, A} = weir_socket:connect(?LOCALHOST, Port, [binary, {active, false}]),
    {ok, B} = weir_socket:accept(Listener),
    {ok, Other} = weir_socket:port(A),
    ok = weir_socket:send(A, "hello"),
    {ok, _} = weir_socket:recv(B, 5),
    Path = weir_socket_test_lib:tmp("overview"),
    {ok, Local} = weir_socket:listen(0, [local, {ip, {local, Path}}]),
    {ok, Inet6} = weir_socket:listen(0, [inet6, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}]),
    {ok, Port6} = weir_socket:port(Inet6),
    [Header | Lines] = printed(fun() -> weir_socket:i() end),
    ?assertEqual(
        ["Owner", "Recv", "Sent", "Local", "Address", "Foreign", "Address", "State"], string:lexemes(Header, " ")
    ),
    Owner = pid_to_list(self()),
    Here = "127.0.0.1:" ++ integer_to_list(Port),
    There = "127.0.0.1:" ++ integer_to_list(Other),
    Here6 = "[::1]:" ++ integer_to_list(Port6),
    ?assertEqual(
        lists:sort([
            [Owner, "0", "0", Here, "*:*", "listening"],
            [Owner, "0", "5", There, Here, "connected"],
            [Owner, "5", "0", Here, There, "connected"],
            [Owner, "0", "0", "local:" ++ Path, "*:*", "listening"],
            [Owner, "0", "0", Here6, "*:*", "listening"]
        ]),
        lists:sort([string:lexemes(Line, " ") || Line <- Lines])
    ),
    %% Columns begin where their names do.
    {At, _} = binary:match(list_to_binary(Header), <<"State">>),
    [?assert(lists:member(string:slice(Line, At), ["listening", "connected"])) || Line <- Lines],
    [ok = weir_socket:close(Socket) || Socket <- [A, B, Listener, Local, Inet6]],
    ?assertMatch(["Owner" ++ _], printed(fun() -> weir_socket:i() end)),
    weir_socket_test_lib:remove_tmp().

%% As many lines as were asked for, 100 if nobody has asked, and what was left out.
lines(_) ->
    Owner = owner(130),
    [
        begin
            Lines = tl(printed(fun() -> print(Asked) end)),
            Rest = ["and " ++ integer_to_list(130 - Told) ++ " more" || Told < 130],
            ?assertEqual({Asked, Told + length(Rest)}, {Asked, length(Lines)}),
            ?assertEqual(Rest, [Line || "and " ++ _ = Line <- Lines])
        end
     || {Asked, Told} <- [{default, 100}, {3, 3}, {0, 0}, {130, 130}, {129, 129}, {1000, 130}, {infinity, 130}]
    ],
    [?assertError(function_clause, weir_socket:i(Wrong)) || Wrong <- [-1, all, #{}]],
    stop(Owner).

print(default) -> weir_socket:i();
print(Lines) -> weir_socket:i(Lines).

%% ---------------------------------------------------------------- help

pair(Options) ->
    {ok, Listener} = weir_socket:listen(0, [{ip, ?LOCALHOST}, binary, {active, false} | Options]),
    {ok, Port} = weir_socket:port(Listener),
    {ok, A} = weir_socket:connect(?LOCALHOST, Port, [binary, {active, false} | Options]),
    {ok, B} = weir_socket:accept(Listener),
    ok = weir_socket:close(Listener),
    {A, B}.

%% A process with so many listening sockets, each of a descriptor.
owner(N) ->
    Pid = spawn(?MODULE, own, [N, self()]),
    ok = owns(Pid),
    Pid.

owns(Pid) -> receive {Pid, ready} -> ok end.

%% {more, N}: that many sockets, which are not connected, of one descriptor.
own(N, Parent) ->
    _ = [{ok, _} = weir_socket:listen(0, []) || _ <- lists:seq(1, N)],
    Parent ! {self(), ready},
    receive
        stop -> ok;
        {more, More} ->
            {ok, Unused} = weir_socket_nif:open(inet, none, default),
            {ok, Fd} = weir_socket_nif:fd(Unused),
            _ = [open_fd(Fd, default) || _ <- lists:seq(2, More)],
            own(0, Parent)
    end.

open_fd(Fd, Policy) ->
    {ok, Sock} = weir_socket_nif:open_fd(Fd, Policy),
    Sock.

stop(Pid) ->
    Monitor = monitor(process, Pid),
    Pid ! stop,
    receive {'DOWN', Monitor, process, Pid, _} -> ok end.

%% What a function prints, in lines.
printed(Fun) ->
    ok = ct:capture_start(),
    ok = Fun(),
    ok = ct:capture_stop(),
    string:lexemes(lists:append(ct:capture_get([])), "\n").
