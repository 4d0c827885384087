%% The socket benchmarks in small sizes; and the load generator notices servers that are wrong, or its figures say
%% nothing.
-module(weir_bench_sockets_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).

-define(LOAD, weir_bench_socket_load).

all() -> weir_kit:cases(?MODULE).

%% Those that run in this node would be in the way of other suites, which count the sockets in it.
end_per_testcase(_Case, _Config) -> weir_kit_socket_server:stop_all().

%% Sizes around a segment and a buffer, and the largest; connections around what is opened at once.
generator_checks_echo(_) ->
    [
        begin
            #{bytes := Bytes, requests := Requests, conns := Conns} =
                Outcome = ?LOAD:run([{kind, echo}, {port, echo_port()}, {size, Size}, {conns, Conns} | short()]),
            ?assertEqual(Size * Requests, Bytes),
            ?assertMatch(#{p50_ns := P50, p99_ns := P99, max_ns := Max} when P50 =< P99 andalso P50 =< Max, Outcome)
        end
     || {Size, Conns} <- [{1, 1}, {64, 99}, {64, 100}, {64, 101}, {1_461, 3}, {65_535, 2}, {65_536, 2}]
    ].

%% Each of these does something to what it received, and not at the first request, which is made while connections are
%% opened. The generator would go on for long if it did not notice.
generator_refuses_wrong_servers(_) ->
    [
        ?assertError(
            {wrong_result, "error connection 0" ++ _, _},
            ?LOAD:run([{kind, echo}, {port, spoiling_port(Spoil)}, {size, 64}, {ms, 60_000}])
        )
     || Spoil <- [
            %% A byte that is wrong; one too many; the last request's answer again; the end of the stream.
            fun(<<Byte, Rest/binary>>, _) -> <<(Byte bxor 1), Rest/binary>> end,
            fun(Data, _) -> <<Data/binary, 0>> end,
            fun(_, Before) -> Before end,
            fun(_, _) -> close end
        ]
    ].

generator_checks_bulk(_) ->
    ?assertMatch(#{bytes := _}, ?LOAD:run([{kind, both}, {port, echo_port()}, {conns, 3} | short()])),
    %% An echo server is neither a sink nor a source.
    ?assertError(
        {wrong_result, "error connection 0: the server did not receive all", _},
        ?LOAD:run([{kind, sink}, {port, echo_port()} | short()])
    ),
    Zeros = fun(Socket) -> gen_tcp:send(Socket, <<0:(8 * 1_000)>>) end,
    ?assertError(
        {wrong_result, "error connection 0: wrong bytes", _},
        ?LOAD:run([{kind, source}, {port, serving_port(Zeros)} | short()])
    ),
    %% One that takes all, and then says that there was one byte less.
    Miscounts = fun(Socket) ->
        Count = count(Socket, 0),
        ok = gen_tcp:send(Socket, <<(Count - 1):64>>),
        gen_tcp:close(Socket)
    end,
    ?assertError(
        {wrong_result, "error connection 0: the server did not receive all", _},
        ?LOAD:run([{kind, sink}, {port, serving_port(Miscounts)} | short()])
    ).

generator_refuses_wrong_options(_) ->
    [
        ?assertError({wrong_result, "error " ++ _, _}, ?LOAD:run(Options))
     || Options <- [
            [],
            [{kind, echo}],
            [{kind, none}, {port, 1}],
            [{kind, echo}, {port, 0}],
            [{kind, echo}, {port, 65_536}],
            [{kind, echo}, {port, 1}, {size, 65_537}],
            [{kind, echo}, {port, 1}, {connections, 1}]
        ]
    ].

%% A server that holds every answer back for some time: no latency is below it, and the quantiles are near the clock's.
latencies_are_quantiles(_) ->
    Ms = 20,
    #{p50_ns := P50, p99_ns := P99, max_ns := Max} =
        ?LOAD:run([{kind, echo}, {port, slow_port(Ms)}, {size, 64}, {warm, 0}, {ms, 400}]),
    %% Steps are of 1.6 %, and a step's middle is told.
    ?assert(P50 >= 0.98 * Ms * 1_000_000),
    ?assert(P99 =< 1.02 * Max).

%% No more requests than the rate allows; and one that has to wait for the answer before it is late from when it was
%% due, here the more the longer it lasts.
generator_keeps_a_rate(_) ->
    Rate = 400,
    #{requests := Requests, us := Us} =
        ?LOAD:run([{kind, echo}, {port, echo_port()}, {rate, Rate}, {conns, 4}, {warm, 0}, {ms, 500}]),
    ?assert(Requests >= 1 andalso Requests =< Rate * Us / 1.0e6 + 4),
    Ms = 20,
    #{p50_ns := P50} = ?LOAD:run([{kind, echo}, {port, slow_port(Ms)}, {rate, 200}, {warm, 0}, {ms, 800}]),
    ?assert(P50 >= 3 * Ms * 1_000_000).

%% A server that waits so many milliseconds before each answer.
slow_port(Ms) ->
    serving_port(fun Delay(Socket) ->
        case gen_tcp:recv(Socket, 64) of
            {ok, Data} ->
                receive
                after Ms -> ok = gen_tcp:send(Socket, Data)
                end,
                Delay(Socket);
            {error, closed} ->
                gen_tcp:close(Socket)
        end
    end).

idle_connections(_) ->
    [
        begin
            Held = ?LOAD:hold([{port, echo_port()}, {conns, Count}, {sources, 3}]),
            ?assertEqual(Count, ?LOAD:alive(Held)),
            ?assertEqual(Count, ?LOAD:alive(Held)),
            ok = ?LOAD:release(Held)
        end
     || Count <- [1, 100, 250]
    ].

server_in_c(_) ->
    [
        begin
            #{port := Port, os_pid := OsPid} = Server = ?LOAD:start_server(Kind),
            Outcome = ?LOAD:run([{kind, Load}, {port, Port}, {pid, OsPid}, {conns, 5} | short()]),
            ?assertMatch(#{bytes := _, cpu_us := _}, Outcome),
            ok = ?LOAD:stop_server(Server),
            until_gone(OsPid)
        end
     || {Kind, Load} <- [{echo, echo}, {echo, both}, {source, source}, {sink, sink}]
    ],
    ?assertError({wrong_result, "error there is no kind=none"}, ?LOAD:start_server(none)).

%% Every backend does every work in every mode, in this node.
servers_echo(_) ->
    [
        begin
            Port = weir_kit_socket_server:start(Backend, Work, Mode),
            case served(attempts(Backend), [{kind, Load}, {port, Port}, {conns, 3} | short()]) of
                {ok, Outcome} -> ?assertMatch(#{bytes := _}, Outcome);
                {error, Reason} -> ct:fail({Backend, Work, Mode, Reason})
            end
        end
     || {Work, Load} <- [{echo, echo}, {bulk_echo, both}, {source, source}, {sink, sink}],
        Backend <- weir_kit_socket_server:backends(),
        Mode <- modes(Backend)
    ].

%% Those on OTP's module socket stood still for 10 seconds, on OTP 29 and a machine whose cores were busy: in three of
%% 15 runs of this case, and no other backend did.
attempts(Backend) when Backend =:= socket; Backend =:= gen_tcp_socket -> 5;
attempts(_Backend) -> 1.

served(Attempts, Options) ->
    try
        {ok, ?LOAD:run(Options)}
    catch
        error:Reason when Attempts =:= 1 -> {error, Reason};
        error:_ -> served(Attempts - 1, Options)
    end.

modes(socket) -> [passive];
modes(_Backend) -> [passive, true, once, n].

%% The pattern comes from the source in C; each server takes it whole, and not with one byte changed.
servers_check_what_they_receive(_) ->
    #{port := SourcePort} = Source = ?LOAD:start_server(source),
    {ok, From} = connect(SourcePort),
    {ok, Pattern} = gen_tcp:recv(From, 500_000, weir_kit:wait_ms()),
    ok = gen_tcp:close(From),
    ok = ?LOAD:stop_server(Source),
    <<Before:400_000/binary, Byte, After/binary>> = Pattern,
    Spoilt = <<Before/binary, (Byte bxor 1), After/binary>>,
    [
        begin
            {ok, Right} = connect(Port),
            ok = gen_tcp:send(Right, Pattern),
            ok = gen_tcp:shutdown(Right, write),
            ?assertEqual({ok, <<500_000:64>>}, gen_tcp:recv(Right, 0, weir_kit:wait_ms())),
            {ok, Wrong} = connect(Port),
            _ = gen_tcp:send(Wrong, Spoilt),
            _ = gen_tcp:shutdown(Wrong, write),
            ?assertMatch({error, _}, gen_tcp:recv(Wrong, 0, weir_kit:wait_ms())),
            _ = [gen_tcp:close(Socket) || Socket <- [Right, Wrong]]
        end
     || Port <- [
            weir_kit_socket_server:start(Backend, sink, Mode)
         || {Backend, Modes} <- [{gen_tcp, [passive, n]}, {gen_tcp_socket, [passive, n]}, {socket, [passive]}],
            Mode <- Modes
        ]
    ].

%% The processes of a run are gone after it, also after one that failed.
nodes_end(_) ->
    Self = self(),
    Run = fun(Kind, Then) ->
        weir_bench_socket_load:with(Kind, echo, passive, fun(#{os_pid := OsPid}) ->
            Self ! {os_pid, OsPid},
            Then()
        end)
    end,
    [
        begin
            ?assertEqual(done, Run(Kind, fun() -> done end)),
            await_gone(),
            ?assertExit(failed, Run(Kind, fun() -> exit(failed) end)),
            await_gone()
        end
     || Kind <- [c, gen_tcp]
    ].

await_gone() ->
    receive
        {os_pid, OsPid} -> until_gone(OsPid)
    after 0 -> error(no_process)
    end.

until_gone(OsPid) -> until(fun() -> not filelib:is_file(lists:concat(["/proc/", OsPid])) end).

echo_part(_) ->
    Tables = weir_bench_socket:run(1, #{connections => [3], bytes => 64, warm => 0, ms => 50}),
    ?assertEqual(6, length(Tables)),
    rendered(Tables).

bulk_part(_) ->
    Tables = weir_bench_socket_bulk:run(1, #{connections => [2], warm => 0, ms => 50}),
    ?assertEqual(3, length(Tables)),
    rendered(Tables).

idle_part(_) ->
    Tables = weir_bench_socket_idle:run(1, #{idle => 150, connections => 2, warm => 0, ms => 50}),
    ?assertEqual(4, length(Tables)),
    rendered(Tables).

paced_part(_) ->
    Tables = weir_bench_socket_paced:run(
        1, #{rates => [500], connections => 2, bytes => 64, warm => 0, ms => 100}
    ),
    ?assertEqual(4, length(Tables)),
    rendered(Tables).

parts_are_listed(_) ->
    [?assertEqual({Name, Module}, lists:keyfind(Name, 1, weir_bench:benchmarks())) || {Name, Module} <- [
        {"socket", weir_bench_socket}, {"socket_bulk", weir_bench_socket_bulk}, {"socket_idle", weir_bench_socket_idle},
        {"socket_paced", weir_bench_socket_paced}
    ]].

%% ---------------------------------------------------------------- helpers

rendered(Tables) ->
    [?assert(is_list(unicode:characters_to_list(weir_bench_table:render(Table)))) || Table <- Tables],
    [?assert(length(Peers) >= 1) || #{peers := Peers} <- Tables].

short() -> [{warm, 0}, {ms, 50}].

echo_port() -> weir_kit_socket_server:start(gen_tcp, bulk_echo, passive).

spoiling_port(Spoil) -> serving_port(fun(Socket) -> spoil(Socket, Spoil, 10, none) end).

%% Ten right answers before a wrong one.
spoil(Socket, Spoil, Right, Before) ->
    case gen_tcp:recv(Socket, 64) of
        {ok, Data} when Right > 0 ->
            ok = gen_tcp:send(Socket, Data),
            spoil(Socket, Spoil, Right - 1, Data);
        {ok, Data} ->
            case Spoil(Data, Before) of
                close -> gen_tcp:close(Socket);
                Spoilt -> _ = gen_tcp:send(Socket, Spoilt), gen_tcp:recv(Socket, 0)
            end;
        {error, _} ->
            gen_tcp:close(Socket)
    end.

count(Socket, Count) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} -> count(Socket, Count + byte_size(Data));
        {error, closed} -> Count
    end.

%% A server of one connection.
serving_port(Serve) ->
    Self = self(),
    Pid = spawn_link(fun() ->
        {ok, Listener} =
            gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}, {active, false}, {nodelay, true}, {exit_on_close, false}]),
        {ok, Port} = inet:port(Listener),
        Self ! {self(), Port},
        {ok, Socket} = gen_tcp:accept(Listener, weir_kit:wait_ms()),
        _ = Serve(Socket)
    end),
    receive
        {Pid, Port} -> Port
    after weir_kit:wait_ms() -> error(timeout)
    end.

connect(Port) -> gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], weir_kit:wait_ms()).
