%% What strangers did to the client: servers that fall silent, say too much or too little, or take their time, and items
%% that others wrote.
-module(weir_memcached_attack_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, start/1, result/1]).
-import(weir_memcached_scripted_SUITE, [with/4]).

%% These cases wait for seconds to go by.
-define(WAITING, [large_value_on_a_slow_link, forgets_what_was_large, idle_is_small]).

all() -> [{group, waiting} | weir_kit:cases(?MODULE) -- ?WAITING].

groups() -> [{waiting, [parallel], ?WAITING}].

init_per_suite(Config) -> weir_memcached_test:set_up(weir_memcached, Config).

end_per_suite(Config) -> weir_memcached_test:tear_down(Config).

value(Key, Value) ->
    ["VALUE ", Key, " 0 ", integer_to_list(iolist_size(Value)), "\r\n", Value, "\r\n"].

serve(N, Handler) -> [{serve, N, Handler}].

connections(C) -> weir_memcached_test:connections(C).

phases(C) -> lists:sort([Phase || #{phase := Phase} <- connections(C)]).

silent(Socket) -> silent(Socket, fun(_) -> ok end).

silent(Socket, Received) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Bytes} ->
            _ = Received(Bytes),
            silent(Socket, Received);
        {error, _} ->
            ok
    end.

%% ---------------------------------------------------------------- items

%% One item that asks for gigabytes is an error for who reads it, and for nobody else.
bomb(_) ->
    C = ?FUNCTION_NAME,
    Bomb = term_to_binary(lists:duplicate(10_000_000, []), [{compressed, 9}]),
    Small = term_to_binary(lists:duplicate(1000, [])),
    Script = [
        accept,
        {expect, "get k\r\n"}, {send, [value("k", Bomb), "END\r\n"]},
        {expect, "get k\r\n"}, {send, [value("k", Small), "END\r\n"]},
        {expect, "get k\r\n"}, {send, [value("k", term_to_binary(fun lists:map/2)), "END\r\n"]}
    ],
    with(C, #{codec => term, max_term => 16_000}, Script, fun(_) ->
        ?assertEqual({error, {undecodable, Bomb}}, weir_memcached:get(C, <<"k">>)),
        ?assertEqual({ok, lists:duplicate(1000, [])}, weir_memcached:get(C, <<"k">>)),
        ?assertMatch({error, {undecodable, _}}, weir_memcached:get(C, <<"k">>))
    end).

%% The others are there, and it is named.
undecodable_key(_) ->
    C = ?FUNCTION_NAME,
    Script = [
        accept,
        {expect, "get a b c\r\n"},
        {send, [value("a", term_to_binary(1)), value("b", "no term"), value("c", term_to_binary(3)), "END\r\n"]}
    ],
    with(C, #{codec => term}, Script, fun(_) ->
        ?assertEqual(
            {error, {partial, #{<<"a">> => 1, "c" => 3}, #{<<"b">> => {undecodable, <<"no term">>}}}},
            weir_memcached:get_many(C, [<<"a">>, <<"b">>, "c"])
        )
    end).

%% Bytes behind a term would be lost without a word.
append_to_a_term(_) ->
    C = ?FUNCTION_NAME,
    Script = [accept, {expect, "append k 0 0 1\r\nx\r\nprepend k 0 0 1\r\nx\r\n"}, {send, "STORED\r\nSTORED\r\n"}],
    with(C, #{codec => term}, Script, fun(_) ->
        [
            ?assertError({bad_option, codec, Codec}, Append(Options))
         || Append <- [
                fun(Options) -> weir_memcached:append(C, <<"k">>, <<"x">>, Options) end,
                fun(Options) -> weir_memcached:prepend(C, <<"k">>, <<"x">>, Options) end
            ],
            {Codec, Options} <- [{term, #{}}, {weir_memcached_test_codec, [{codec, weir_memcached_test_codec}]}]
        ],
        Raw = #{codec => raw},
        Appending = start(fun() -> weir_memcached:append(C, <<"k">>, <<"x">>, Raw) end),
        until(fun() -> [1] =:= [Pending || #{pending := Pending} <- connections(C)] end),
        ?assertEqual(ok, weir_memcached:prepend(C, <<"k">>, <<"x">>, Raw)),
        ?assertEqual(ok, result(Appending))
    end).

no_such_codec(_) ->
    C = ?FUNCTION_NAME,
    ?assertEqual({error, {bad_option, codec, no_such}}, weir_memcached:start_link(C, #{codec => no_such})),
    ?assertEqual({error, {bad_option, codec, lists}}, weir_memcached:start_link(C, #{codec => lists})),
    with(C, #{}, [accept], fun(_) ->
        ?assertError({bad_option, codec, no_such}, weir_memcached:get(C, <<"k">>, #{codec => no_such})),
        ?assertError({bad_option, codec, no_such}, weir_memcached:set(C, <<"k">>, 1, #{codec => no_such}))
    end).

%% Where OTP has JSON, what it reads is bounded as terms are; where it has not, there is no such codec.
json(_) ->
    C = ?FUNCTION_NAME,
    Long = binary:copy(<<"1">>, 1001),
    Script = [
        accept, {expect, "set k 0 0 18\r\n{\"a\":[1,null,\"b\"]}\r\n"}, {send, "STORED\r\n"},
        {expect, "get k\r\n"}, {send, [value("k", "{\"a\":[1,null,\"b\"]}"), "END\r\n"]},
        {expect, "get k\r\n"}, {send, [value("k", "{\"a\":"), "END\r\n"]},
        {expect, "get k\r\n"}, {send, [value("k", Long), "END\r\n"]}
    ],
    case code:which(json) of
        non_existing ->
            ?assertEqual({error, {bad_option, codec, json}}, weir_memcached:start_link(C, #{codec => json}));
        _ ->
            with(C, #{codec => json, max_term => 8000}, Script, fun(_) ->
                Value = #{<<"a">> => [1, null, <<"b">>]},
                ?assertError(_, weir_memcached:set(C, <<"k">>, #{<<"a">> => self()})),
                ?assertEqual(ok, weir_memcached:set(C, <<"k">>, Value)),
                ?assertEqual({ok, Value}, weir_memcached:get(C, <<"k">>)),
                ?assertEqual({error, {undecodable, <<"{\"a\":">>}}, weir_memcached:get(C, <<"k">>)),
                ?assertEqual({error, {undecodable, Long}}, weir_memcached:get(C, <<"k">>))
            end)
    end.

%% ---------------------------------------------------------------- connections

%% One of several that says nothing takes hardly a request: those that wait for it keep others away.
silent_connection(_) ->
    C = ?FUNCTION_NAME,
    First = atomics:new(1, []),
    Asked = atomics:new(1, []),
    Handler = fun(Socket) ->
        case atomics:add_get(First, 1, 1) of
            1 -> silent(Socket, fun(Bytes) -> atomics:add(Asked, 1, byte_size(Bytes)) end);
            _ -> weir_memcached_test_script:answer_gets(Socket)
        end
    end,
    with(C, #{connections => 4}, serve(4, Handler), fun(_) ->
        Get = fun(_) -> weir_memcached:get(C, <<"k">>, #{timeout => 1000}) end,
        Results = lists:usort(lists:map(Get, lists:seq(1, 1000))),
        %% A connection that answers may be late, too. The silent connection gets at most three requests.
        weir_kit:none(wrong_answers, Results -- [{ok, <<"k">>}, {error, timeout}]),
        ?assert(lists:member({ok, <<"k">>}, Results)),
        ?assert(atomics:get(Asked, 1) =< 3 * byte_size(<<"get k\r\n">>))
    end).

%% After three time-outs without an answer it is told, and after an answer it is not.
silent_is_let_in_again(_) ->
    C = ?FUNCTION_NAME,
    Script = [accept, {expect, lists:duplicate(3, "get k\r\n")}, {wait, silent},
        {send, lists:duplicate(3, [value("k", "v"), "END\r\n"])}],
    with(C, #{}, Script, fun(Server) ->
        Get = fun() -> weir_memcached:get(C, <<"k">>, #{timeout => 100}) end,
        ok = weir_memcached_test:times_out(C, 2, Get),
        %% One that has waited for the writer in vain counts, too.
        #{timeouts := Timeouts} = weir_memcached_test:counters(C),
        ?assert(Timeouts > 2 orelse phases(C) =:= [up]),
        ok = weir_memcached_test:times_out(C, 3, Get),
        ?assertEqual([silent], phases(C)),
        weir_memcached_test_script:release(Server, silent),
        until(fun() -> phases(C) =:= [up] end)
    end).

%% What one connection has no room for goes to another one.
busy_one_of_two(_) ->
    C = ?FUNCTION_NAME,
    with(C, #{connections => 2, max_pending => 2}, serve(2, fun silent/1), fun(_) ->
        %% They wait until the client is stopped.
        [
            begin
                _ = start(fun() -> weir_memcached:get(C, <<"k">>) end),
                until(fun() -> lists:sum([P || #{pending := P} <- connections(C)]) =:= N end)
            end
         || N <- [1, 2, 3, 4]
        ],
        ?assertEqual({error, busy}, weir_memcached:get(C, <<"k">>))
    end).

%% A thousand connections that are down are not asked one after the other.
many_down(_) ->
    C = ?FUNCTION_NAME,
    %% Not one that the system would give to a client: of a thousand one would be connected to itself.
    Port = weir_kit_memcached:free_port(),
    Options = #{host => {127, 0, 0, 1}, port => Port, connections => 1000, reconnect => {60_000, 60_000}},
    {ok, _} = weir_memcached:start_link(C, Options),
    Get = fun() -> weir_memcached:get(C, <<"k">>) end,
    ?assertEqual({error, disconnected}, Get()),
    ?assert(reductions(Get) < 100_000),
    ok = weir_memcached:stop(C).

reductions(Fun) ->
    {reductions, Before} = process_info(self(), reductions),
    _ = Fun(),
    {reductions, After} = process_info(self(), reductions),
    After - Before.

%% ---------------------------------------------------------------- servers that take their time

%% What has no end is cut off, and takes some megabytes until then.
endless_stats(_) ->
    C = ?FUNCTION_NAME,
    Lines = lists:duplicate(100, ["STAT ", lists:duplicate(500, $n), " 1\r\n"]),
    with(C, #{}, serve(2, fun(Socket) -> endless(Socket, Lines, 0) end), fun(_) ->
        {Result, Peak} = weir_memcached_test:with_peak(fun() ->
            weir_memcached:stats(C, "items", #{timeout => infinity})
        end),
        ?assertEqual({error, disconnected}, Result),
        ?assertMatch(Bytes when Bytes < 64 bsl 20, Peak),
        ?assertMatch(#{garbage := 1}, weir_memcached_test:counters(C)),
        weir_memcached_test:up(C)
    end).

%% One that is far from being cut off (that takes a minute at least) is answered when its time is up, whatever comes.
endless_stats_time_out(_) ->
    C = ?FUNCTION_NAME,
    Line = ["STAT ", lists:duplicate(300, $n), " 1\r\n"],
    with(C, #{}, serve(1, fun(Socket) -> endless(Socket, Line, 5) end), fun(_) ->
        ok = weir_memcached_test:times_out(C, 1, fun() -> weir_memcached:stats(C, "items", #{timeout => 100}) end),
        %% Its place is kept: the next one has no answer of this one's.
        ?assertEqual({error, timeout}, weir_memcached:get(C, <<"k">>, #{timeout => 20})),
        ?assertMatch(#{garbage := 0, disconnects := 0}, weir_memcached_test:counters(C))
    end).

endless(Socket, Lines, Pause) ->
    _ = gen_tcp:recv(Socket, 0),
    until_closed(Socket, Lines, Pause).

until_closed(Socket, Bytes, Pause) ->
    case gen_tcp:send(Socket, Bytes) of
        ok ->
            receive after Pause -> until_closed(Socket, Bytes, Pause) end;
        {error, _} ->
            ok
    end.

%% Such a connection is as good as dead.
a_byte_now_and_then(_) ->
    C = ?FUNCTION_NAME,
    Handler = fun(Socket) ->
        _ = gen_tcp:recv(Socket, 0),
        _ = gen_tcp:send(Socket, "VALUE k 0 1000000\r\n"),
        until_closed(Socket, "x", 2)
    end,
    with(C, #{stall_timeout => 100}, serve(2, Handler), fun(_) ->
        ?assertEqual({error, disconnected}, weir_memcached:get(C, <<"k">>, #{timeout => infinity}))
    end).

%% It gets through, however long that takes.
large_set_on_a_slow_link(_) ->
    C = ?FUNCTION_NAME,
    Size = 6_000_000,
    Value = binary:copy(<<"v">>, Size),
    Handler = fun(Socket) ->
        Read = read_slowly(Socket, Size + byte_size(<<"set k 0 0 6000000\r\n\r\n">>)),
        <<"set k 0 0 6000000\r\n", Value:Size/binary, "\r\n">> = iolist_to_binary(Read),
        ok = gen_tcp:send(Socket, "STORED\r\n"),
        silent(Socket)
    end,
    with(C, #{stall_timeout => 300}, serve(1, Handler), fun(_) ->
        ?assertEqual(ok, weir_memcached:set(C, <<"k">>, Value, #{timeout => infinity}))
    end).

read_slowly(_, 0) -> [];
read_slowly(Socket, Left) ->
    {ok, Bytes} = gen_tcp:recv(Socket, min(Left, 65536)),
    receive after 5 -> [Bytes | read_slowly(Socket, Left - byte_size(Bytes))] end.

large_value_on_a_slow_link(_) ->
    C = ?FUNCTION_NAME,
    Part = binary:copy(<<"v">>, 100_000),
    Handler = fun(Socket) ->
        {ok, _} = gen_tcp:recv(Socket, 0),
        ok = gen_tcp:send(Socket, "VALUE k 0 3000000\r\n"),
        _ = [receive after 200 -> ok = gen_tcp:send(Socket, Part) end || _ <- lists:seq(1, 30)],
        ok = gen_tcp:send(Socket, "\r\nEND\r\n"),
        silent(Socket)
    end,
    with(C, #{stall_timeout => 5000}, serve(1, Handler), fun(_) ->
        {ok, Value} = weir_memcached:get(C, <<"k">>, #{timeout => infinity}),
        ?assertEqual(3_000_000, byte_size(Value))
    end).

%% ---------------------------------------------------------------- memory

%% Requests that wait are bounded in bytes, too; one that is larger than the bound is taken alone.
bytes_that_wait(_) ->
    C = ?FUNCTION_NAME,
    Size = 16 bsl 20,
    Value = binary:copy(<<"x">>, Size),
    Line = ["set k 0 0 ", integer_to_list(Size), "\r\n", Value, "\r\n"],
    Script = [accept, {wait, refused}, {expect, Line}, {send, "STORED\r\n"}, {expect, Line}, {send, "STORED\r\n"},
        {expect, "get k\r\n"}, {send, [value("k", "v"), "END\r\n"]}],
    Set = fun() -> weir_memcached:set(C, <<"k">>, Value, #{timeout => infinity}) end,
    with(C, #{max_pending_bytes => Size + 100}, Script, fun(Server) ->
        %% The first is taken by the driver, the second blocks.
        Callers = [
            begin
                Caller = start(Set),
                until(fun() -> maps:get(requests, weir_memcached_test:counters(C)) =:= N end),
                Caller
            end
         || N <- [1, 2]
        ],
        ?assertEqual({error, busy}, Set()),
        ?assertEqual({error, busy}, weir_memcached:set(C, <<"k">>, binary:copy(<<"y">>, 2000))),
        ?assertMatch(#{busy := 2, requests := 2}, weir_memcached_test:counters(C)),
        weir_memcached_test_script:release(Server, refused),
        ?assertEqual([ok, ok], [result(Caller) || Caller <- Callers]),
        ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"k">>))
    end).

%% Neither the connection nor its writer keeps a value that was answered.
forgets_what_was_large(_) ->
    C = ?FUNCTION_NAME,
    Value = binary:copy(<<"x">>, 20 bsl 20),
    Size = integer_to_list(byte_size(Value)),
    Script = [accept, {expect, "get k\r\n"}, {send, [value("k", Value), "END\r\n"]},
        {expect, ["set k 0 0 ", Size, "\r\n", Value, "\r\n"]}, {send, "STORED\r\n"}],
    with(C, #{}, Script, fun(_) ->
        [#{pid := Connection}] = connections(C),
        {links, Links} = process_info(Connection, links),
        Get = start(fun() ->
            {ok, Got} = weir_memcached:get(C, <<"k">>, #{timeout => infinity}),
            byte_size(Got)
        end),
        ?assertEqual(byte_size(Value), result(Get)),
        ?assertEqual(ok, weir_memcached:set(C, <<"k">>, Value, #{timeout => infinity})),
        until(fun() ->
            lists:sum([binaries(Pid) || Pid <- [Connection | Links], is_pid(Pid)]) < 1_000_000
        end)
    end).

binaries(Pid) ->
    case process_info(Pid, binary) of
        {binary, Binaries} -> lists:sum([Size || {_, Size, _} <- Binaries]);
        undefined -> 0
    end.

%% A connection that has had thousands of requests at a time takes little when they are done.
idle_is_small(_) ->
    C = ?FUNCTION_NAME,
    with(C, #{}, serve(1, fun weir_memcached_test_script:answer_gets/1), fun(_) ->
        [#{pid := Connection}] = connections(C),
        Get = fun() -> [weir_memcached:get(C, <<"k">>) || _ <- lists:seq(1, 10)] end,
        _ = weir_kit:in_parallel(lists:duplicate(500, Get)),
        until(fun() -> {memory, Bytes} = process_info(Connection, memory), Bytes < 50_000 end)
    end).

%% ---------------------------------------------------------------- the client

info_beside_a_stuck_one(_) ->
    C = ?FUNCTION_NAME,
    with(C, #{connections => 2}, serve(2, fun weir_memcached_test_script:answer_gets/1), fun(_) ->
        [#{pid := Stuck}, #{pid := Other}] = connections(C),
        %% Nor is it replaced meanwhile.
        {client, Client, _, _} = lists:keyfind(client, 1, supervisor:which_children(C)),
        ok = sys:suspend(Client, infinity),
        ok = sys:suspend(Stuck, infinity),
        until(fun() ->
            {ok, #{connections := Told}} = weir_memcached:info(C),
            ?assertMatch([#{pid := Stuck, phase := stuck}, #{pid := Other}], Told),
            %% The other one has no more time than that one, and is late at times.
            maps:get(phase, lists:last(Told)) =:= up
        end),
        ok = sys:resume(Stuck, infinity),
        ok = sys:resume(Client, infinity)
    end).

stopped_by_two(_) ->
    C = ?FUNCTION_NAME,
    [
        begin
            {ok, Pid} = weir_memcached:start_link(C, #{connections => 2, port => 1}),
            unlink(Pid),
            Stop = fun() -> try weir_memcached:stop(C) catch exit:{noproc, _} -> noproc end end,
            Results = weir_kit:in_parallel(lists:duplicate(10, Stop)),
            %% Who comes when it has ended finds none.
            ?assert(lists:member(ok, Results)),
            weir_kit:none(wrong_answers, [Result || Result <- Results, Result =/= ok, Result =/= noproc]),
            ?assertEqual(undefined, whereis(C))
        end
     || _ <- lists:seq(1, 20)
    ].

%% A name that has addresses of both families, and a server at one of them only.
other_family(_) ->
    case gen_tcp:listen(0, [inet6, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}, {ipv6_v6only, true}]) of
        {ok, Listener} ->
            C = ?FUNCTION_NAME,
            {ok, Port} = inet:port(Listener),
            case [Family || Family <- [inet, inet6], {ok, _} <- [inet:getaddrs("localhost", Family)]] of
                [inet, inet6] ->
                    Options = #{host => "localhost", port => Port, connections => 1, protocol => text},
                    {ok, _} = weir_memcached:start_link(C, Options),
                    weir_memcached_test:up(C),
                    ok = weir_memcached:stop(C);
                _ ->
                    {skip, "localhost has no addresses of both families here"}
            end;
        {error, _} ->
            {skip, "no IPv6 here"}
    end.

%% A server that says more than 64 bits is not understood.
numbers_too_large(_) ->
    C = ?FUNCTION_NAME,
    Largest = integer_to_list(16#FFFFFFFFFFFFFFFF),
    More = integer_to_list(16#FFFFFFFFFFFFFFFF + 1),
    Good = [
        {"incr k 1\r\n", [Largest, "\r\n"], fun() -> weir_memcached:incr(C, <<"k">>, 1) end},
        {"gets k\r\n", ["VALUE k 4294967295 1 ", Largest, "\r\nv\r\nEND\r\n"],
            fun() -> weir_memcached:gets(C, <<"k">>) end}
    ],
    Bad = [
        {"incr k 1\r\n", [More, "\r\n"], fun() -> weir_memcached:incr(C, <<"k">>, 1) end},
        {"gets k\r\n", ["VALUE k 0 1 ", More, "\r\nv\r\nEND\r\n"], fun() -> weir_memcached:gets(C, <<"k">>) end},
        {"gets k\r\n", "VALUE k 4294967296 1 1\r\nv\r\nEND\r\n", fun() -> weir_memcached:gets(C, <<"k">>) end}
    ],
    Script = [accept | lists:append([[{expect, Request}, {send, Reply}] || {Request, Reply, _} <- Good])] ++
        lists:append([[{expect, Request}, {send, Reply}, expect_closed, accept] || {Request, Reply, _} <- Bad]),
    with(C, #{}, Script, fun(_) ->
        ?assertEqual(
            [{ok, 16#FFFFFFFFFFFFFFFF}, {ok, <<"v">>, 16#FFFFFFFFFFFFFFFF}], [Ask() || {_, _, Ask} <- Good]
        ),
        lists:foreach(fun({_, _, Ask}) ->
            weir_memcached_test:up(C),
            ?assertEqual({error, disconnected}, Ask())
        end, Bad),
        weir_memcached_test:up(C),
        ?assertMatch(#{garbage := 3}, weir_memcached_test:counters(C))
    end).

%% What callers choose by.
words(_) ->
    Chosen = fun(Load, N) -> lists:usort([weir_memcached_load:choose(N, Load) || _ <- lists:seq(1, 500)]) end,
    Load = weir_memcached_load:new(4),
    ?assertEqual([], weir_memcached_load:others(1, 10, 4, Load)),
    %% The only one that is up; then the better of those that are.
    ok = weir_memcached_load:up(3, 7, false, Load),
    ?assertEqual([3], Chosen(Load, 4)),
    ?assertEqual([3], weir_memcached_load:others(1, 10, 4, Load)),
    ok = weir_memcached_load:up(2, 0, true, Load),
    ?assertEqual([3], Chosen(Load, 4)),
    ok = weir_memcached_load:up(1, 9, false, Load),
    ?assertEqual([1, 3], Chosen(Load, 4)),
    ?assertEqual([3, 1, 2], weir_memcached_load:others(4, 10, 4, Load)),
    ?assertEqual([3, 2], weir_memcached_load:others(1, 9, 4, Load)),
    %% Each is drawn with each other.
    _ = [ok = weir_memcached_load:up(Slot, 5, false, Load) || Slot <- [1, 2, 3, 4]],
    ?assertEqual([1, 2, 3, 4], Chosen(Load, 4)),
    _ = [ok = weir_memcached_load:down(Slot, Load) || Slot <- [1, 2, 3, 4]],
    ?assertEqual([down], Chosen(Load, 4)),
    One = weir_memcached_load:new(1),
    ?assertEqual([down], Chosen(One, 1)),
    ok = weir_memcached_load:up(1, 7, true, One),
    ?assertEqual([1], Chosen(One, 1)).
