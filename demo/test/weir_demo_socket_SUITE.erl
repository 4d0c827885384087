%% The demo's echo and its load through weir_socket in a small size, and what they would notice.
-module(weir_demo_socket_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_testcase/2, end_per_testcase/2]).
-export([part/1, right/1, wrong_byte/1, byte_too_many/1, message_twice/1, nobody_listens/1, closed/1, judged/1]).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [part, right, wrong_byte, byte_too_many, message_twice, nobody_listens, closed, judged].

init_per_testcase(_, Config) -> weir_demo_test_lib:own_memcached(Config).

end_per_testcase(_, Config) -> weir_demo_test_lib:restore_memcached(Config).

part(_) ->
    ok = weir_demo_progress:begin_run(),
    {ok, Started} = application:ensure_all_started(weir_memcached),
    Before = is_socket_running(),
    {ok, Server} = weir_demo_memcached:start(),
    #{rows := Rows, problems := []} =
        weir_demo_socket:run(#{server => Server, prefix => <<"test:">>}, #{
            rounds => 1, connections => 3, warm_ms => 10, ms => 100, callers => 5, seconds => 1
        }),
    ok = weir_demo_memcached:stop(Server),
    ?assertEqual(9, length(Rows)),
    ?assert(iolist_size(weir_demo_table:render(Rows)) > 0),
    ?assertEqual(["0", "0"], [text(Value) || #{what := What, value := Value} <- Rows, is_about(What, "wrong")]),
    %% Both sides of both comparisons have figures.
    ?assertMatch([#{plain := _, ratio := _}, #{plain := _, ratio := _} | _], Rows),
    %% Nothing is left behind.
    ?assertEqual(Before, is_socket_running()),
    lists:foreach(fun application:stop/1, lists:reverse(Started)).

%% Another suite may have left it.
is_socket_running() -> lists:keymember(weir_socket, 1, application:which_applications()).

text(Value) -> lists:flatten(io_lib:format("~ts", [Value])).

is_about(What, Word) -> string:find(text(What), Word) =/= nomatch.

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
        true = weir_demo_client:await(fun() -> counters:get(Asked, 1) =:= 4 end, 20_000),
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
    ?assertEqual([], weir_demo_socket:judge(gen_tcp, Good)),
    ?assertMatch([_], weir_demo_socket:judge(gen_tcp, Good#{faults := [closed]})),
    ?assertMatch([_], weir_demo_socket:judge(weir_socket, Good#{faults := [a, b, c, d]})).

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
