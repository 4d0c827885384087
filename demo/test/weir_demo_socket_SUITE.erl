%% The demo's echo and its load through weir_socket in a small size, and what they would notice.
-module(weir_demo_socket_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

part(_) ->
    Before = is_socket_running(),
    #{said := Said, promises := [{_, true}], plots := [_, _]} =
        weir_demo_socket:run(#{server => none, prefix => <<>>}, #{
            rounds => 1, connections => 3, warm_ms => 10, ms => 4000
        }),
    ?assertMatch({match, _}, re:run(Said, "^Over 3 connections [0-9,]+ messages a second")),
    %% Nothing is left behind.
    ?assertEqual(Before, is_socket_running()).

%% Another suite may have left it.
is_socket_running() -> lists:keymember(weir_socket, 1, application:which_applications()).

%% The meter is read twice.
right(_) ->
    Meter = counters:new(1, []),
    Read = fun() ->
        counters:add(Meter, 1, 7),
        counters:get(Meter, 1)
    end,
    Found = weir_demo_echo_client:run(server(fun(Data, _) -> Data end), setting(), Read),
    ?assertMatch(#{faults := [], metered := 7, answered := _, us := _}, Found).

%% Any byte of the 64.
wrong_byte(_) ->
    [
        begin
            Flip = fun(Data, _) ->
                <<Before:Place/binary, Byte, After/binary>> = Data,
                <<Before/binary, (Byte bxor 1), After/binary>>
            end,
            [{sent, Sent, received, Received} | _] = Faults = faults(server(Flip)),
            ?assertEqual(2, length(Faults)),
            ?assertEqual({64, 64}, {byte_size(Sent), byte_size(Received)}),
            ?assertNotEqual(Sent, Received)
        end
     || Place <- [0, 3, 4, 11, 12, 40, 63]
    ].

%% What comes after the last message is seen when the connection ends, and before that in the next message.
byte_too_many(_) ->
    ?assertMatch([_, _], faults(server(fun(Data, _) -> [Data, 0] end))).

%% The measurement ends when both clients have got their second answer, or will.
message_twice(_) ->
    Asked = counters:new(1, []),
    Port = server(fun(Data, Last) ->
        counters:add(Asked, 1, 1),
        case Last of
            none -> Data;
            _ -> Last
        end
    end),
    Meter = fun() ->
        ok = weir_kit:until(fun() -> counters:get(Asked, 1) =:= 4 end),
        0
    end,
    #{faults := Faults} = weir_demo_echo_client:run(Port, setting(), Meter),
    ?assertMatch([{sent, Sent, received, Received}, _] when Sent =/= Received, Faults).

%% The port is taken, but not listened on.
nobody_listens(_) ->
    {Bound, Port} = weir_socket_test_lib:unused_port(),
    ?assertMatch([{{badmatch, {error, econnrefused}}, _}, _], faults(Port)),
    ok = socket:close(Bound).

closed(_) ->
    ?assertMatch([_, _], faults(server(fun(_, _) -> close end))).

judged(_) ->
    Good = #{answered => 5, us => 1, metered => 0, faults => []},
    ?assertMatch({_, true}, weir_demo_socket:judge([Good, Good])),
    ?assertMatch({_, false}, weir_demo_socket:judge([Good, Good#{faults := [closed]}])),
    ?assertMatch({_, false}, weir_demo_socket:judge([Good#{faults := [a, b, c, d]}])),
    ?assertMatch({_, false}, weir_demo_socket:judge([Good#{answered := 0}])).

setting() -> #{connections => 2, warm_ms => 0, ms => 50}.

faults(Port) ->
    #{faults := Faults} = weir_demo_echo_client:run(Port, setting(), fun() -> 0 end),
    Faults.

%% An echo server of the test's own, which answers 64 bytes with what the function makes of them and of the 64 before;
%% it ends with the case.
server(Answer) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}, {active, false}, {nodelay, true}]),
    {ok, Port} = inet:port(Listener),
    _ = [spawn_link(fun() -> accept(Listener, Answer) end) || _ <- [1, 2]],
    Port.

accept(Listener, Answer) ->
    case gen_tcp:accept(Listener) of
        {ok, Socket} -> serve(Socket, Answer, none);
        {error, closed} -> ok
    end.

serve(Socket, Answer, Last) ->
    case gen_tcp:recv(Socket, 64) of
        {ok, Data} ->
            case Answer(Data, Last) of
                close ->
                    gen_tcp:close(Socket);
                Bytes ->
                    _ = gen_tcp:send(Socket, Bytes),
                    serve(Socket, Answer, Data)
            end;
        {error, _} ->
            gen_tcp:close(Socket)
    end.
