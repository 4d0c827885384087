%% @doc The NIF below gen_tcp's interface: pollers that are killed, suspended and replaced, slots that are used
%% again, and a change of the code beneath it all.
-module(weir_socket_nif_poll_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_socket_nif_test_lib, [
    socket/1, listen/0, connect/1, accept/1, pair/0, close/1, recv/2, recv_async/3, send/2, send_waiting/2, answer/1,
    message/0, no_message/0, joined/1, poller/1
]).
-import(weir_socket_test_lib, [poll/2, pollset_infos/0, pollers/0]).

-define(NIF, weir_socket_nif).
-define(DEADLINE, 20_000).

all() ->
    [pollers_killed, pollers_suspended, pollers_answer_system_messages, slots_are_used_again, upgrade_and_purge].

init_per_suite(Config) -> weir_socket_nif_test_lib:begin_suite(Config).

end_per_suite(Config) -> weir_socket_nif_test_lib:end_suite(Config).

init_per_testcase(_Case, Config) -> weir_socket_nif_test_lib:begin_case(Config).

end_per_testcase(_Case, Config) -> weir_socket_nif_test_lib:end_case(Config).

%% ---------------------------------------------------------------- pollers

pollers_killed(_Config) ->
    Pairs = [pair() || _ <- lists:seq(1, 10)],
    Echoes = [spawn_link(fun() -> echo(B) end) || {_, B} <- Pairs],
    Count = 300,
    Clients = [
        spawn_link(fun() ->
            [
                begin
                    ok = send(A, <<I:32>>),
                    {ok, <<I:32>>} = recv(A, 4)
                end
             || I <- lists:seq(1, Count)
            ]
        end)
     || {A, _} <- Pairs
    ],
    kill_pollers(20),
    [joined(Pid) || Pid <- Clients],
    close([A || {A, _} <- Pairs]),
    [joined(Pid) || Pid <- Echoes],
    close([B || {_, B} <- Pairs]).

%% One after the other, each when it has been started again.
kill_pollers(Times) ->
    [
        begin
            N = I rem ?NIF:pollsets(),
            Pid = poller(N),
            exit(Pid, kill),
            poll(fun() -> poller(N) =/= Pid end, ?DEADLINE)
        end
     || I <- lists:seq(1, Times)
    ].

echo(Sock) ->
    case recv(Sock, 0) of
        {ok, Data} ->
            ok = send_waiting(Sock, Data),
            echo(Sock);
        {error, closed} ->
            ok
    end.

%% What comes while no poller runs is there when they do; what needs no poller goes on.
pollers_suspended(_Config) ->
    {A, B} = pair(),
    Ref = make_ref(),
    wait = recv_async(B, 0, Ref),
    Pollers = pollers(),
    [true = erlang:suspend_process(Pid) || Pid <- Pollers],
    ok = send(A, <<"late">>),
    no_message(),
    [true = erlang:resume_process(Pid) || Pid <- Pollers],
    ?assertEqual({ok, <<"late">>}, answer(Ref)),
    %% Stale events: harvested for sockets that are closed by then.
    [true = erlang:suspend_process(Pid) || Pid <- Pollers],
    ok = send(A, <<"x">>),
    close([A, B]),
    [true = erlang:resume_process(Pid) || Pid <- Pollers],
    ok.

pollers_answer_system_messages(_Config) ->
    [
        begin
            State = sys:get_state(Pid),
            State = sys:replace_state(Pid, fun(S) -> S end),
            ok = sys:suspend(Pid),
            ok = sys:resume(Pid)
        end
     || Pid <- pollers()
    ],
    {A, B} = pair(),
    ok = send(A, <<"x">>),
    ?assertEqual({ok, <<"x">>}, recv(B, 0)),
    %% Another process that polls is turned away; so is one that has been replaced.
    ?assertEqual(gone, ?NIF:poll(0)),
    close([A, B]).

slots_are_used_again(_Config) ->
    {L, Port} = listen(),
    Made = slots_made(),
    [
        begin
            A = connect(Port),
            B = accept(L),
            Ref = make_ref(),
            wait = recv_async(B, 0, Ref),
            _ = I rem 3 =:= 0 andalso (ok = send(A, <<"x">>)),
            close([A]),
            _ = answer(Ref),
            close([B])
        end
     || I <- lists:seq(1, 3000)
    ],
    ?assertEqual(Made, slots_made()),
    close([L]).

slots_made() -> [maps:get(slots_made, Info) || Info <- pollset_infos()].

%% ---------------------------------------------------------------- code

%% A new version of the NIF's module takes over what the old one has made; the purge of the old one kills nobody.
upgrade_and_purge(_Config) ->
    {A, B} = pair(),
    ok = ?NIF:set(B, active, true),
    S = socket(B),
    Pollers = pollers(),
    [
        begin
            _ = code:purge(Module),
            {module, Module} = code:load_file(Module),
            _ = code:purge(Module),
            ok = send(A, <<"x">>),
            ?assertEqual({tcp, S, <<"x">>}, message())
        end
     || _ <- [1, 2, 3], Module <- [?NIF, weir_socket_poller]
    ],
    ?assertEqual(Pollers, pollers()),
    close([A, B]).
