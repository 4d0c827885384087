%% The client against a server that follows a script: what a real memcached does rarely, and what it never should.
-module(weir_memcached_scripted_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_memcached_config.hrl").

%% More bytes than a socket's buffers hold, at both ends together.
-define(LARGE, 16 bsl 20).

-compile([export_all, nowarn_export_all]).

all() -> [{group, replies}, {group, failures}, {group, kills}].

groups() ->
    [
        {replies, [
            one_byte_at_a_time, one_write_in_order, late_reply, late_replies_to_many, many_deadlines,
            expired_are_not_sent,
            bad_keys_are_not_sent, server_error, client_error, client_error_of_a_store, client_error_in_set_many,
            server_error_in_get_many
        ]},
        {failures, [
            garbage, unasked, more_than_asked, close_in_mid_reply, abort_in_mid_reply, close_with_requests_queued,
            queued_go_to_another_connection, max_pending, flood_is_refused, stall, idle_is_not_stalled, never_reads,
            stop_while_writer_blocks, stop_while_connecting, backoff, slow_handler
        ]},
        {kills, [
            kill_writer, kill_connection, kill_client_process, kill_pool, kill_servers, kill_supervisor,
            stuck_connection,
            busy_is_not_stuck, one_connection_of_two_down
        ]}
    ].

init_per_suite(Config) -> weir_memcached_test:set_up(weir_memcached, Config).

end_per_suite(Config) -> weir_memcached_test:tear_down(Config).

%% Runs a client, one connection unless told otherwise, against a script, which must be drained in the end.
with(Client, Script, Case) ->
    with(Client, #{}, Script, Case).

with(Client, Options, Script, Case) ->
    Server = weir_memcached_test_script:start(Script),
    Defaults = #{connections => 1, codec => raw, reconnect => {5, 20}, stall_timeout => infinity},
    Address = weir_memcached_test_script:options(Server),
    {ok, _} = weir_memcached:start_link(Client, maps:merge(maps:merge(Defaults, Address), Options)),
    ok = weir_memcached_test:up(Client),
    _ = Case(Server),
    ok = weir_memcached_test_script:drained(Server),
    ok = weir_memcached:stop(Client),
    ok = weir_memcached_test_script:stop(Server).

get(C, Key) ->
    weir_kit:start(fun() -> weir_memcached:get(C, Key, #{timeout => infinity}) end).

value(Key, Value) ->
    ["VALUE ", Key, " 0 ", integer_to_list(iolist_size(Value)), "\r\n", Value, "\r\nEND\r\n"].

%% Waits until so many requests of a client are unanswered.
pending(C, N) ->
    weir_kit:until(fun() ->
        lists:sum([Pending || #{pending := Pending} <- weir_memcached_test:connections(C)]) =:= N
    end).

connection(C) ->
    [#{pid := Pid}] = weir_memcached_test:connections(C),
    Pid.

%% The connection stands still; and so does who would take it for stuck, however long that lasts.
suspend(C) ->
    ok = sys:suspend(child(C, client), infinity),
    Connection = connection(C),
    ok = sys:suspend(Connection, infinity),
    Connection.

resume(C, Connection) ->
    ok = sys:resume(Connection, infinity),
    ok = sys:resume(child(C, client), infinity).

copies(N, Term) ->
    lists:duplicate(N, Term).

%% Waits for a counter to reach a value.
counted(C, Name, N) ->
    weir_kit:until(fun() -> maps:get(Name, weir_memcached_test:counters(C)) >= N end),
    ?assertEqual(N, maps:get(Name, weir_memcached_test:counters(C))).

%% Checks that the caller has no messages but the report of a script.
nothing_in_the_mailbox() ->
    weir_kit:none(stray_messages, [
        Message || Message <- weir_kit:messages(), not is_tuple(Message) orelse element(2, Message) =/= drained
    ]).

%% Replies

%% Each kind of reply, received one byte at a time.
one_byte_at_a_time(_) ->
    C = ?FUNCTION_NAME,
    Exchanges = exchanges(C),
    Script = [accept | lists:append([[{expect, Request}, {send, Reply}] || {_, Request, Reply, _} <- Exchanges])],
    with(C, #{transport => weir_memcached_test_trickle}, Script, fun(_) ->
        [?assertEqual({Request, Result}, {Request, Operation()}) || {Operation, Request, _, Result} <- Exchanges]
    end).

%% What is asked for, what the server reads, what it answers, what comes out of it.
exchanges(C) ->
    K = <<"k">>,
    All = list_to_binary(lists:seq(0, 255)),
    Long = binary:copy(<<"l">>, 250),
    [
        {fun() -> weir_memcached:get(C, K) end, "get k\r\n", "END\r\n", {error, not_found}},
        {fun() -> weir_memcached:get(C, K) end, "get k\r\n", value("k", All), {ok, All}},
        {fun() -> weir_memcached:get(C, K) end, "get k\r\n", value("k", ""), {ok, <<>>}},
        {fun() -> weir_memcached:get(C, K) end, "get k\r\n", value("k", "END\r\n"), {ok, <<"END\r\n">>}},
        {fun() -> weir_memcached:gets(C, K) end, "gets k\r\n", "VALUE k 0 1 18446744073709551615\r\nx\r\nEND\r\n",
            {ok, <<"x">>, 16#FFFFFFFFFFFFFFFF}},
        {fun() -> weir_memcached:get(C, Long) end, ["get ", Long, "\r\n"],
            ["VALUE ", Long, " 4294967295 3\r\n\r\n\r\r\nEND\r\n"], {ok, <<"\r\n\r">>}},
        {fun() -> weir_memcached:gat(C, K, 7) end, "gat 7 k\r\n", value("k", "v"), {ok, <<"v">>}},
        {fun() -> weir_memcached:get_many(C, ["a", "b", "c"]) end, "get a b c\r\n",
            "VALUE a 0 1\r\n1\r\nVALUE c 0 2\r\n33\r\nEND\r\n", {ok, #{"a" => <<"1">>, "c" => <<"33">>}}},
        {fun() -> weir_memcached:set(C, K, <<"v">>) end, "set k 0 0 1\r\nv\r\n", "STORED\r\n", ok},
        {fun() -> weir_memcached:set_many(C, [{"a", ""}, {"b", "x"}], #{ttl => 3, flags => 9}) end,
            "set a 9 3 0\r\n\r\nset b 9 3 1\r\nx\r\n", "STORED\r\nSTORED\r\n", ok},
        {fun() -> weir_memcached:set_many(C, [{"a", ""}, {"b", "x"}]) end, "set a 0 0 0\r\n\r\nset b 0 0 1\r\nx\r\n",
            "STORED\r\nSERVER_ERROR out of memory storing object\r\n",
            {error, {partial, #{"b" => {server_error, <<"out of memory storing object">>}}}}},
        {fun() -> weir_memcached:add(C, K, <<"v">>) end, "add k 0 0 1\r\nv\r\n", "NOT_STORED\r\n", {error, not_stored}},
        {fun() -> weir_memcached:replace(C, K, <<"v">>) end, "replace k 0 0 1\r\nv\r\n", "STORED\r\n", ok},
        {fun() -> weir_memcached:append(C, K, <<"v">>) end, "append k 0 0 1\r\nv\r\n", "STORED\r\n", ok},
        {fun() -> weir_memcached:prepend(C, K, <<"v">>) end, "prepend k 0 0 1\r\nv\r\n", "NOT_STORED\r\n",
            {error, not_stored}},
        {fun() -> weir_memcached:cas(C, K, <<"v">>, 5) end, "cas k 0 0 1 5\r\nv\r\n", "EXISTS\r\n", {error, exists}},
        {fun() -> weir_memcached:cas(C, K, <<"v">>, 5) end, "cas k 0 0 1 5\r\nv\r\n", "NOT_FOUND\r\n",
            {error, not_found}},
        {fun() -> weir_memcached:set(C, K, <<"v">>) end, "set k 0 0 1\r\nv\r\n",
            "SERVER_ERROR object too large for cache\r\n", {error, {too_large, 1}}},
        {fun() -> weir_memcached:incr(C, K, 2) end, "incr k 2\r\n", "18446744073709551615\r\n",
            {ok, 16#FFFFFFFFFFFFFFFF}},
        {fun() -> weir_memcached:decr(C, K, 2) end, "decr k 2\r\n", "NOT_FOUND\r\n", {error, not_found}},
        {fun() -> weir_memcached:touch(C, K, 2) end, "touch k 2\r\n", "TOUCHED\r\n", ok},
        {fun() -> weir_memcached:delete(C, K) end, "delete k\r\n", "DELETED\r\n", ok},
        {fun() -> weir_memcached:flush_all(C, #{delay => 5}) end, "flush_all 5\r\n", "OK\r\n", ok},
        {fun() -> weir_memcached:verbosity(C, 1) end, "verbosity 1\r\n", "OK\r\n", ok},
        {fun() -> weir_memcached:version(C) end, "version\r\n", "VERSION 1.6.18 of today\r\n",
            {ok, <<"1.6.18 of today">>}},
        {fun() -> weir_memcached:stats(C) end, "stats\r\n",
            "STAT a 1\r\nSTAT b two words\r\nSTAT c \r\nSTAT d\r\nEND\r\n",
            {ok, #{<<"a">> => <<"1">>, <<"b">> => <<"two words">>, <<"c">> => <<>>, <<"d">> => <<>>}}},
        {fun() -> weir_memcached:stats(C, "reset") end, "stats reset\r\n", "RESET\r\n", {ok, #{}}},
        {fun() -> weir_memcached:get(C, K) end, "get k\r\n", "SERVER_ERROR out of memory\r\n",
            {error, {server_error, <<"out of memory">>}}}
    ].

%% What has gathered goes out in the order of its arrival, and each reply to who asked for it.
one_write_in_order(_) ->
    C = ?FUNCTION_NAME,
    Keys = [integer_to_binary(N) || N <- lists:seq(1, 50)],
    Script = [
        accept,
        {expect, [["get ", Key, "\r\n"] || Key <- Keys]},
        {send, [value(Key, ["value of ", Key]) || Key <- Keys]}
    ],
    with(C, Script, fun(_) ->
        Connection = suspend(C),
        Callers = [queued_get(C, Connection, Key) || Key <- Keys],
        ok = resume(C, Connection),
        ?assertEqual(
            [{ok, <<"value of ", Key/binary>>} || Key <- Keys],
            [weir_kit:result(Caller) || Caller <- Callers]
        )
    end).

%% A request that waits in the mailbox of a suspended connection.
queued_get(C, Connection, Key) ->
    queued(Connection, fun() -> weir_memcached:get(C, Key, #{timeout => infinity}) end).

queued(Connection, Request) ->
    {Pid, _} = Caller = weir_kit:start(Request),
    weir_kit:until(fun() ->
        {messages, Messages} = process_info(Connection, messages),
        lists:any(fun({'$gen_call', {From, _}, _}) -> From =:= Pid; (_) -> false end, Messages)
    end),
    Caller.

%% A reply that is late reaches nobody: not its caller, not the next one.
late_reply(_) ->
    C = ?FUNCTION_NAME,
    Script = [
        accept,
        {expect, "get late\r\n"},
        {wait, both_asked},
        {expect, "get next\r\n"},
        {send, value("late", "LATE")},
        {send, value("next", "NEXT")},
        {expect, "get last\r\n"},
        {send, value("last", "LAST")}
    ],
    with(C, Script, fun(Server) ->
        weir_memcached_test:times_out(C, 1, fun() -> weir_memcached:get(C, <<"late">>, #{timeout => 100}) end),
        pending(C, 1),
        Next = get(C, <<"next">>),
        pending(C, 2),
        weir_memcached_test_script:release(Server, both_asked),
        ?assertEqual({ok, <<"NEXT">>}, weir_kit:result(Next)),
        ?assertEqual({ok, <<"LAST">>}, weir_memcached:get(C, <<"last">>)),
        nothing_in_the_mailbox(),
        #{timeouts := Timeouts, expired := Expired} = Counters = weir_memcached_test:counters(C),
        ?assertEqual(1, Timeouts - Expired),
        ?assertMatch(#{disconnects := 0, garbage := 0}, Counters)
    end).

%% Many callers, some in a hurry, and a server that answers late: nobody gets the reply of another, nobody's mailbox
%% gets anything.
late_replies_to_many(_) ->
    C = ?FUNCTION_NAME,
    with(C, #{connections => 2}, [{serve, 2, fun late_answers/1}], fun(_) ->
        Results = weir_kit:in_parallel([fun() -> hurried(C, N, 15, []) end || N <- lists:seq(1, 100)]),
        Seen = lists:usort(lists:append(Results)),
        weir_kit:none(wrong_answers, [Wrong || {wrong, _, _} = Wrong <- Seen]),
        ?assertEqual([ok, timeout], Seen),
        pending(C, 0),
        ?assertMatch(#{disconnects := 0, garbage := 0, busy := 0}, weir_memcached_test:counters(C))
    end).

%% Reads what has come, then lets it wait for longer than some of the callers do.
late_answers(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Requests} ->
            receive
            after rand:uniform(12) -> ok
            end,
            case binary:last(Requests) of
                $\n -> ok = gen_tcp:send(Socket, answers(Requests));
                _ -> ok = gen_tcp:send(Socket, answers([Requests, to_line_end(Socket, [])]))
            end,
            late_answers(Socket);
        {error, _} ->
            ok
    end.

to_line_end(Socket, Bytes) ->
    case gen_tcp:recv(Socket, 1) of
        {ok, <<"\n">>} -> lists:reverse(Bytes, "\n");
        {ok, Byte} -> to_line_end(Socket, [Byte | Bytes])
    end.

answers(Requests) ->
    [value(Key, Key) || <<"get ", Key/binary>> <- binary:split(iolist_to_binary(Requests), <<"\r\n">>, [global])].

hurried(_, _, 0, Results) ->
    nothing_in_the_mailbox(),
    Results;
hurried(C, N, Round, Results) ->
    Key = iolist_to_binary(io_lib:format("~b/~b", [N, Round])),
    Timeout = lists:nth(1 + (N + Round) rem 4, [1, 4, 10, infinity]),
    Result =
        case weir_memcached:get(C, Key, #{timeout => Timeout}) of
            {ok, Key} -> ok;
            {error, Reason} -> Reason;
            Other -> {wrong, Key, Other}
        end,
    hurried(C, N, Round - 1, [Result | Results]).

%% A request whose time is up before it can be sent is answered so, and not sent at all.
expired_are_not_sent(_) ->
    C = ?FUNCTION_NAME,
    Script = [accept, {expect, "get fresh\r\n"}, {send, value("fresh", "v")}],
    with(C, Script, fun(_) ->
        Connection = suspend(C),
        Stale = [
            queued(Connection, fun() -> weir_memcached:get(C, <<"stale">>, #{timeout => 10}) end),
            queued(Connection, fun() -> weir_memcached:set(C, <<"stale">>, <<"v">>, #{timeout => 0}) end)
        ],
        Fresh = queued_get(C, Connection, <<"fresh">>),
        TimeUp = erlang:monotonic_time(millisecond) + 10,
        weir_kit:until(fun() -> erlang:monotonic_time(millisecond) > TimeUp end),
        ok = resume(C, Connection),
        ?assertEqual(copies(2, {error, timeout}), [weir_kit:result(Caller) || Caller <- Stale]),
        ?assertEqual({ok, <<"v">>}, weir_kit:result(Fresh)),
        ?assertMatch(#{expired := 2, timeouts := 2, requests := 1}, weir_memcached_test:counters(C)),
        pending(C, 0)
    end).

%% Everybody is answered when their own time is up, however many different times there are; who has time gets a reply.
many_deadlines(_) ->
    C = ?FUNCTION_NAME,
    Requests = 60,
    Test = self(),
    Handler = fun(Socket) ->
        Test ! {handler, self()},
        Asked = receive {late, N} -> N end,
        Request = iolist_to_binary(copies(Asked, "get k\r\n")),
        {ok, Request} = gen_tcp:recv(Socket, byte_size(Request)),
        ok = gen_tcp:send(Socket, copies(Asked, value("k", "v"))),
        {ok, <<"get last\r\n">>} = gen_tcp:recv(Socket, 10),
        ok = gen_tcp:send(Socket, value("last", "w")),
        gen_tcp:recv(Socket, 0)
    end,
    with(C, #{}, [{serve, 1, Handler}], fun(_) ->
        Answering = receive {handler, Pid} -> Pid end,
        Callers = [
            {Timeout, weir_kit:start(fun() -> weir_memcached:get(C, <<"k">>, #{timeout => Timeout}) end)}
         || N <- lists:seq(1, Requests div 3), Timeout <- [infinity, 1000 + 7 * N, 16#FFFFFFFF]
        ],
        %% All of them, but for those that are late before they are sent, if there are any.
        weir_kit:until(fun() ->
            #{requests := Some, expired := Others} = weir_memcached_test:counters(C),
            Some + Others =:= Requests
        end),
        #{requests := Sent} = weir_memcached_test:counters(C),
        IsHurried = fun({Timeout, _}) -> is_integer(Timeout) andalso Timeout < 10000 end,
        {Hurried, Patient} = lists:partition(IsHurried, Callers),
        ?assertEqual([{error, timeout}], lists:usort([weir_kit:result(Caller) || {_, Caller} <- Hurried])),
        %% their places stay
        pending(C, Sent),
        Answering ! {late, Sent},
        ?assertEqual([{ok, <<"v">>}], lists:usort([weir_kit:result(Caller) || {_, Caller} <- Patient])),
        ?assertEqual({ok, <<"w">>}, weir_memcached:get(C, <<"last">>)),
        ?assertMatch(#{timeouts := 20}, weir_memcached_test:counters(C))
    end).

%% A key that memcached cannot take never reaches the wire, whatever the operation.
bad_keys_are_not_sent(_) ->
    C = ?FUNCTION_NAME,
    Bad = [<<>>, "", <<"a b">>, <<"a\r\nflush_all">>, <<"a\n">>, <<0>>, <<127>>, binary:copy(<<"k">>, 251), [300], key],
    Script = [accept, {expect, "get good\r\n"}, {send, value("good", "v")}],
    with(C, Script, fun(_) ->
        [
            ?assertEqual({error, {bad_key, Key}}, Operation(Key))
         || Key <- Bad,
            Operation <- [
                fun(K) -> weir_memcached:get(C, K) end,
                fun(K) -> weir_memcached:gets(C, K) end,
                fun(K) -> weir_memcached:get_many(C, [<<"fine">>, K]) end,
                fun(K) -> weir_memcached:set_many(C, [{<<"fine">>, <<>>}, {K, <<>>}]) end,
                fun(K) -> weir_memcached:set(C, K, <<"v">>) end,
                fun(K) -> weir_memcached:cas(C, K, <<"v">>, 1) end,
                fun(K) -> weir_memcached:append(C, K, <<"v">>) end,
                fun(K) -> weir_memcached:incr(C, K, 1) end,
                fun(K) -> weir_memcached:touch(C, K, 1) end,
                fun(K) -> weir_memcached:gat(C, K, 1) end,
                fun(K) -> weir_memcached:delete(C, K) end
            ]
        ],
        ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"good">>))
    end).

%% SERVER_ERROR is an answer to one request, and the connection goes on.
server_error(_) ->
    C = ?FUNCTION_NAME,
    Error = {error, {server_error, <<"out of memory">>}},
    Operations = [
        {"get k\r\n", fun() -> weir_memcached:get(C, <<"k">>) end},
        {"set k 0 0 1\r\nv\r\n", fun() -> weir_memcached:set(C, <<"k">>, <<"v">>) end},
        {"incr k 1\r\n", fun() -> weir_memcached:incr(C, <<"k">>, 1) end},
        {"touch k 1\r\n", fun() -> weir_memcached:touch(C, <<"k">>, 1) end},
        {"delete k\r\n", fun() -> weir_memcached:delete(C, <<"k">>) end},
        {"stats\r\n", fun() -> weir_memcached:stats(C) end},
        {"version\r\n", fun() -> weir_memcached:version(C) end}
    ],
    Reply = {send, "SERVER_ERROR out of memory\r\n"},
    Script =
        [accept | lists:append([[{expect, Request}, Reply] || {Request, _} <- Operations])] ++
            %% in the place of a reply of which a part has come
            [{expect, "get a b\r\n"}, {send, ["VALUE a 0 1\r\nx\r\nSERVER_ERROR out of memory\r\n"]}] ++
            [{expect, "get last\r\n"}, {send, value("last", "v")}],
    with(C, Script, fun(_) ->
        [?assertEqual(Error, Operation()) || {_, Operation} <- Operations],
        ?assertEqual(Error, weir_memcached:get_many(C, [<<"a">>, <<"b">>])),
        ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"last">>)),
        ?assertMatch(#{disconnects := 0}, weir_memcached_test:counters(C))
    end).

%% So are CLIENT_ERROR and ERROR, if the request had no data.
client_error(_) ->
    C = ?FUNCTION_NAME,
    Script = [
        accept,
        {expect, "get k\r\n"},
        {send, "CLIENT_ERROR line too long\r\n"},
        {expect, "gat 1 k\r\n"},
        {send, "ERROR\r\n"},
        {expect, "incr k 1\r\n"},
        {send, "CLIENT_ERROR cannot increment\r\n"},
        {expect, "version\r\n"},
        {send, "VERSION 1\r\n"}
    ],
    with(C, Script, fun(_) ->
        ?assertEqual({error, {client_error, <<"line too long">>}}, weir_memcached:get(C, <<"k">>)),
        ?assertEqual({error, {client_error, <<"ERROR">>}}, weir_memcached:gat(C, <<"k">>, 1)),
        ?assertEqual({error, {client_error, <<"cannot increment">>}}, weir_memcached:incr(C, <<"k">>, 1)),
        ?assertEqual({ok, <<"1">>}, weir_memcached:version(C)),
        ?assertMatch(#{disconnects := 0}, weir_memcached_test:counters(C))
    end).

%% A server that rejects the line of a store may take its data for commands: what it says after that is not believed.
client_error_of_a_store(_) ->
    C = ?FUNCTION_NAME,
    Script = [
        accept,
        {expect, "set k 0 0 7\r\nversion\r\nget next\r\n"},
        {send, ["CLIENT_ERROR bad data chunk\r\nVERSION 1\r\n", value("next", "v")]},
        expect_closed,
        accept,
        {expect, "get next\r\n"},
        {send, value("next", "v")}
    ],
    with(C, Script, fun(_) ->
        Store = weir_kit:start(fun() -> weir_memcached:set(C, <<"k">>, <<"version">>) end),
        pending(C, 1),
        Next = get(C, <<"next">>),
        ?assertEqual({error, {client_error, <<"bad data chunk">>}}, weir_kit:result(Store)),
        ?assertEqual({error, disconnected}, weir_kit:result(Next)),
        counted(C, connects, 2),
        weir_memcached_test:up(C),
        ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"next">>)),
        ?assertMatch(#{disconnects := 1, disconnected := 1, garbage := 0}, weir_memcached_test:counters(C))
    end).

%% Nor, within a set_many, is what it says of the items after the rejected one.
client_error_in_set_many(_) ->
    C = ?FUNCTION_NAME,
    Script = [
        accept,
        {expect, "set a 0 0 1\r\n1\r\nset b 0 0 1\r\n2\r\nset c 0 0 1\r\n3\r\nset d 0 0 1\r\n4\r\n"},
        %% ERROR is for the data of b; the last STORED is not d's but c's
        {send, "STORED\r\nCLIENT_ERROR bad command line format\r\nERROR\r\nSTORED\r\n"},
        expect_closed
    ],
    with(C, Script, fun(_) ->
        ?assertEqual(
            {error,
                {partial, #{
                    "b" => {client_error, <<"bad command line format">>},
                    "c" => disconnected,
                    "d" => disconnected
                }}},
            weir_memcached:set_many(C, [{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}])
        ),
        counted(C, disconnects, 1)
    end).

%% One line of a get_many refused: the whole is an error, and the lines after it stay in step.
server_error_in_get_many(_) ->
    C = ?FUNCTION_NAME,
    Keys = [<<N, (binary:copy(<<"k">>, 249))/binary>> || N <- lists:seq($a, $z)],
    {{many, Kinds}, Request} = weir_memcached_request:encode(text, {get_many, Keys}),
    ?assert(length(Kinds) > 2),
    Script = [
        accept,
        {expect, Request},
        {send, ["SERVER_ERROR out of memory\r\n", value(hd(element(2, lists:nth(2, Kinds))), "x")]},
        {send, ["END\r\n" || _ <- tl(tl(Kinds))]},
        {expect, "version\r\n"},
        {send, "VERSION 1\r\n"}
    ],
    with(C, Script, fun(_) ->
        ?assertEqual({error, {server_error, <<"out of memory">>}}, weir_memcached:get_many(C, Keys)),
        ?assertEqual({ok, <<"1">>}, weir_memcached:version(C))
    end).

%% Failures

%% Whatever does not fit what is due closes the connection: everybody in flight is told, one report says why, and the
%% client connects again.
garbage(_) ->
    [
        is_garbage(Garbage)
     || Garbage <- [
            "WHAT\r\n",
            "STORED\r\n",
            "OK\r\n",
            "\r\n",
            "END \r\n",
            "VERSION 1\r\n",
            <<0, 255, 10, 13, 10>>,
            "VALUE\r\n",
            "VALUE k\r\n",
            "VALUE k 0\r\n",
            "VALUE k 0 x\r\n",
            "VALUE k 0 -1\r\n",
            "VALUE k 0 1 2 3\r\n1\r\n",
            "VALUE k 0 1073741825\r\n",
            "VALUE other 0 1\r\nx\r\nEND\r\n",
            "VALUE kk 0 1\r\nx\r\nEND\r\n",
            "VALUE k 0 1\r\nxy\r\nEND\r\n",
            "VALUE k 0 2\r\nx\r\nEND\r\n",
            "VALUE k 0 1\r\nx\r\nVALUE k 0 1\r\nx\r\nEND\r\n",
            binary:copy(<<"x">>, 5000)
        ]
    ].

is_garbage(Garbage) ->
    C = garbage,
    Script = [
        accept,
        {expect, "get k\r\nget l\r\n"},
        {send, Garbage},
        expect_closed,
        accept,
        {expect, "get k\r\n"},
        {send, value("k", "v")}
    ],
    with(C, Script, fun(_) ->
        weir_memcached_test:watch_log(garbage, {weir_memcached, disconnected}),
        K = get(C, <<"k">>),
        pending(C, 1),
        L = get(C, <<"l">>),
        ?assertEqual({Garbage, {error, disconnected}}, {Garbage, weir_kit:result(K)}),
        ?assertEqual({Garbage, {error, disconnected}}, {Garbage, weir_kit:result(L)}),
        counted(C, connects, 2),
        weir_memcached_test:up(C),
        ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"k">>)),
        ?assertMatch(#{garbage := 1, disconnects := 1, disconnected := 2}, weir_memcached_test:counters(C)),
        [Report] = reports(garbage, C),
        ?assertMatch(#{client := C, failed := 2, reason := {garbage, {values, _}}}, Report),
        %% short, whatever came
        ?assert(length(lists:flatten(text(Report))) < 500),
        weir_memcached_test:unwatch_log(garbage)
    end).

text(Report) ->
    {Format, Arguments} = weir_memcached_event:format(Report),
    io_lib:format(Format, Arguments).

%% What was reported of a client: at least one, which may be still to come, as may be those of clients of before.
reports(Id, C) ->
    receive
        {logged, Id, #{client := C} = Report} -> [Report | more_reports(Id, C)]
    after weir_kit:wait_ms() -> error(no_report)
    end.

more_reports(Id, C) ->
    receive
        {logged, Id, #{client := C} = Report} -> [Report | more_reports(Id, C)]
    after 0 -> []
    end.

%% Whoever handles the reports may take as long as he likes.
slow_handler(_) ->
    C = ?FUNCTION_NAME,
    ok = logger:add_handler(C, ?MODULE, #{level => all, config => self()}),
    with(C, [accept, {expect, "get k\r\n"}, close, accept, {expect, "get k\r\n"}, {send, value("k", "v")}], fun(_) ->
        ?assertEqual({error, disconnected}, weir_memcached:get(C, <<"k">>, #{timeout => infinity})),
        counted(C, connects, 2),
        weir_memcached_test:up(C),
        ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"k">>)),
        receive {logging, Pid} -> Pid ! go after weir_kit:wait_ms() -> error(not_logged) end
    end),
    ok = logger:remove_handler(C).

%% logger's callback
log(#{msg := {report, #{label := {weir_memcached, disconnected}, client := slow_handler}}}, #{config := Test}) ->
    Test ! {logging, self()},
    receive go -> ok end;
log(_, _) ->
    ok.

%% Bytes that nobody has asked for are garbage too.
unasked(_) ->
    C = ?FUNCTION_NAME,
    Script = [
        accept,
        {wait, ready},
        {send, value("k", "of nobody")},
        expect_closed,
        accept,
        {expect, "get k\r\n"},
        {send, value("k", "v")}
    ],
    with(C, Script, fun(Server) ->
        weir_memcached_test:watch_log(C, {weir_memcached, disconnected}),
        weir_memcached_test_script:release(Server, ready),
        counted(C, connects, 2),
        weir_memcached_test:up(C),
        ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"k">>)),
        [Report] = reports(C, C),
        ?assertMatch(#{failed := 0, reason := {garbage, {nothing, <<"VALUE k ", _/binary>>}}}, Report),
        weir_memcached_test:unwatch_log(C)
    end).

%% A whole reply and then something: the reply counts, what follows ends the connection.
more_than_asked(_) ->
    C = ?FUNCTION_NAME,
    Script = [
        accept,
        {expect, "get k\r\n"},
        {send, [value("k", "v"), "END\r\n"]},
        expect_closed,
        accept,
        {expect, "get k\r\n"},
        {send, value("k", "w")}
    ],
    with(C, Script, fun(_) ->
        ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"k">>)),
        counted(C, connects, 2),
        weir_memcached_test:up(C),
        ?assertEqual({ok, <<"w">>}, weir_memcached:get(C, <<"k">>)),
        ?assertMatch(#{garbage := 1, disconnected := 0}, weir_memcached_test:counters(C))
    end).

%% The server closes in the middle of a reply: that request and those behind it are lost, those before it are not.
close_in_mid_reply(_) ->
    lose_in_mid_reply(?FUNCTION_NAME, close).

%% The same, with a reset.
abort_in_mid_reply(_) ->
    lose_in_mid_reply(?FUNCTION_NAME, abort).

lose_in_mid_reply(C, End) ->
    Halves = [<<"VAL">>, <<"VALUE b 0 10\r">>, <<"VALUE b 0 10\r\n12345">>, <<"VALUE b 0 1\r\nx\r\nEND\r">>],
    Lose = fun(Half) ->
        [
            accept,
            {expect, "get a\r\nget b\r\nget c\r\n"},
            {send, value("a", "v")},
            {wait, {a_answered, Half}},
            {send, Half},
            End
        ]
    end,
    Script = lists:append([Lose(Half) || Half <- Halves]) ++ [accept, {expect, "get a\r\n"}, {send, value("a", "v")}],
    with(C, Script, fun(Server) ->
        [
            begin
                Connection = suspend(C),
                [A, B, D] = [queued_get(C, Connection, Key) || Key <- [<<"a">>, <<"b">>, <<"c">>]],
                ok = resume(C, Connection),
                ?assertEqual({ok, <<"v">>}, weir_kit:result(A)),
                weir_memcached_test_script:release(Server, {a_answered, Half}),
                ?assertEqual({error, disconnected}, weir_kit:result(B)),
                ?assertEqual({error, disconnected}, weir_kit:result(D)),
                counted(C, connects, 1 + N),
                weir_memcached_test:up(C)
            end
         || {N, Half} <- lists:zip(lists:seq(1, length(Halves)), Halves)
        ],
        ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"a">>)),
        ?assertMatch(#{disconnected := 8, garbage := 0}, weir_memcached_test:counters(C))
    end).

%% The server closes while a write is under way: what is in flight and what waits behind it is told at once.
close_with_requests_queued(_) ->
    C = ?FUNCTION_NAME,
    Script = [
        accept,
        {wait, full},
        abort,
        accept,
        {expect, "get k\r\n"},
        {send, value("k", "v")}
    ],
    with(C, Script, fun(Server) ->
        Blocked = blocked_writer(C),
        Queued = [get(C, <<"k">>) || _ <- lists:seq(1, 10)],
        pending(C, 12),
        weir_memcached_test_script:release(Server, full),
        ?assertEqual(copies(2, {error, disconnected}), [weir_kit:result(Caller) || Caller <- Blocked]),
        ?assertEqual([{error, disconnected}], lists:usort([weir_kit:result(Caller) || Caller <- Queued])),
        counted(C, connects, 2),
        weir_memcached_test:up(C),
        ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"k">>)),
        %% only what was given to the writer counts as lost
        ?assertMatch(#{disconnected := 2, requests := 3}, weir_memcached_test:counters(C))
    end).

%% Two values that no socket's buffers hold, for a server that does not read: the driver takes the first, and the
%% second write blocks. What is asked for after that is not given to the writer.
blocked_writer(C) ->
    Value = binary:copy(<<"x">>, ?LARGE),
    Set = fun() -> weir_memcached:set(C, <<"large">>, Value, #{timeout => infinity}) end,
    First = weir_kit:start(Set),
    counted(C, requests, 1),
    Second = weir_kit:start(Set),
    counted(C, requests, 2),
    [First, Second].

%% What was not sent on a connection that is lost is sent on another one.
queued_go_to_another_connection(_) ->
    C = ?FUNCTION_NAME,
    Test = self(),
    Handler = fun(Socket) ->
        case gen_tcp:recv(Socket, 4) of
            {ok, <<"set ">>} ->
                Test ! {blocked, self()},
                receive
                    close -> gen_tcp:shutdown(Socket, read_write)
                end;
            {ok, <<"get ">>} ->
                {ok, <<"k\r\n">>} = gen_tcp:recv(Socket, 3),
                ok = gen_tcp:send(Socket, value("k", "k")),
                weir_memcached_test_script:answer_gets(Socket);
            {error, _} ->
                ok
        end
    end,
    with(C, #{connections => 2, reconnect => {60000, 60000}}, [{serve, 2, Handler}], fun(_) ->
        %% The other one shall say nothing by itself, so nobody asks whether it is there.
        ok = sys:suspend(child(C, client), infinity),
        [#{pid := Connection}, _] = weir_memcached_test:connections(C),
        Blocked = [blocking_set(C, Connection, N) || N <- [1, 2]],
        Server =
            receive
                {blocked, Pid} -> Pid
            end,
        %% as if the other one were down, until it says something itself
        [#server{load = Load}] = weir_memcached_route:all((weir_memcached_config:fetch(C))#config.servers),
        ok = weir_memcached_load:down(2, Load),
        Gets = [get(C, <<"k">>) || _ <- lists:seq(1, 50)],
        weir_kit:until(fun() ->
            52 =:= lists:sum([Waiting || #{pending := Waiting} <- weir_memcached_conn:infos([Connection])])
        end),
        ok = weir_memcached_test:up(C),
        Server ! close,
        ?assertEqual(copies(2, {error, disconnected}), [weir_kit:result(Caller) || Caller <- Blocked]),
        ?assertEqual(copies(50, {ok, <<"k">>}), [weir_kit:result(Get) || Get <- Gets]),
        ok = sys:resume(child(C, client), infinity)
    end).

%% As blocked_writer/1, on a certain connection: which one a client picks is not for a test to know.
blocking_set(C, Connection, N) ->
    Large = {set, <<"large">>, binary:copy(<<"x">>, ?LARGE), 0, 0, ?LARGE},
    Request = weir_memcached_request:encode(text, Large),
    Caller = weir_kit:start(fun() -> weir_memcached_conn:request(Connection, Request, infinity) end),
    counted(C, requests, N),
    Caller.

%% max_pending requests are accepted and one more is not; when one is answered there is room for one.
max_pending(_) ->
    C = ?FUNCTION_NAME,
    Keys = [<<"a">>, <<"b">>, <<"c">>, <<"d">>, <<"e">>],
    Script =
        [accept] ++
            [{expect, ["get ", Key, "\r\n"]} || Key <- Keys] ++
            [{wait, refused}, {send, value("a", "a")}, {expect, "get f\r\n"}, {wait, refused}] ++
            [{send, value(Key, Key)} || Key <- tl(Keys) ++ [<<"f">>]],
    with(C, #{max_pending => 5}, Script, fun(Server) ->
        [A | _] = Callers = [asked(C, Key, N) || {Key, N} <- lists:zip(Keys, lists:seq(1, 5))],
        ?assertEqual({error, busy}, weir_memcached:get(C, <<"f">>)),
        ?assertEqual({error, busy}, weir_memcached:set(C, <<"f">>, <<"f">>)),
        ?assertEqual({error, busy}, weir_memcached:get_many(C, [<<"f">>, <<"g">>])),
        weir_memcached_test_script:release(Server, refused),
        ?assertEqual({ok, <<"a">>}, weir_kit:result(A)),
        F = asked(C, <<"f">>, 5),
        ?assertEqual({error, busy}, weir_memcached:get(C, <<"f">>)),
        weir_memcached_test_script:release(Server, refused),
        ?assertEqual(
            [{ok, Key} || Key <- tl(Keys) ++ [<<"f">>]],
            [weir_kit:result(Caller) || Caller <- tl(Callers) ++ [F]]
        ),
        ?assertMatch(#{busy := 4, requests := 6}, weir_memcached_test:counters(C))
    end).

asked(C, Key, Pending) ->
    Caller = get(C, Key),
    pending(C, Pending),
    Caller.

%% A flood at a server that is slow is refused, not stored: neither requests nor mailbox grow, and when the server
%% answers again so does the client.
flood_is_refused(_) ->
    C = ?FUNCTION_NAME,
    Script = [accept, {expect, lists:duplicate(10, "get k\r\n")}, {wait, flooded}] ++
        [{send, lists:duplicate(10, value("k", "v"))}, {expect, "get k\r\n"}, {send, value("k", "w")}],
    with(C, #{max_pending => 10}, Script, fun(Server) ->
        Accepted = [get(C, <<"k">>) || _ <- lists:seq(1, 10)],
        pending(C, 10),
        Flood = weir_kit:in_parallel([
            fun() -> lists:usort([weir_memcached:get(C, <<"k">>) || _ <- lists:seq(1, 20)]) end
         || _ <- lists:seq(1, 500)
        ]),
        ?assertEqual([[{error, busy}]], lists:usort(Flood)),
        pending(C, 10),
        weir_memcached_test_script:release(Server, flooded),
        ?assertEqual([{ok, <<"v">>}], lists:usort([weir_kit:result(Caller) || Caller <- Accepted])),
        ?assertEqual({ok, <<"w">>}, weir_memcached:get(C, <<"k">>)),
        ?assertMatch(#{busy := 10000, requests := 11}, weir_memcached_test:counters(C))
    end).

%% A server that says nothing for longer than stall_timeout is given up, and tried anew.
stall(_) ->
    C = ?FUNCTION_NAME,
    Connections = atomics:new(1, []),
    Handler = fun(Socket) ->
        case atomics:add_get(Connections, 1, 1) of
            1 -> begins_to_answer(Socket);
            _ -> weir_memcached_test_script:answer_gets(Socket)
        end
    end,
    with(C, #{stall_timeout => 500}, [{serve, all, Handler}], fun(_) ->
        weir_memcached_test:watch_log(C, {weir_memcached, disconnected}),
        ?assertEqual({error, disconnected}, weir_memcached:get(C, <<"k">>)),
        %% One that answers may be late as well.
        weir_kit:until(fun() -> weir_memcached:get(C, <<"k">>) =:= {ok, <<"k">>} end),
        [Report | _] = reports(C, C),
        ?assertMatch(#{reason := stalled, failed := 1}, Report),
        weir_memcached_test:unwatch_log(C)
    end).

begins_to_answer(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, _} ->
            _ = gen_tcp:send(Socket, "VALUE k 0 "),
            begins_to_answer(Socket);
        {error, _} ->
            ok
    end.

%% A connection on which nothing is due is not stalled, however long nothing comes. Another client that does stall,
%% twice, is the clock.
idle_is_not_stalled(_) ->
    C = ?FUNCTION_NAME,
    Options = #{stall_timeout => 500},
    with(C, Options, [{serve, all, fun weir_memcached_test_script:answer_gets/1}], fun(_) ->
        %% An answer that is late may cost it a connection before.
        weir_kit:until(fun() -> weir_memcached:get(C, <<"k">>) =:= {ok, <<"k">>} end),
        #{disconnects := Before} = weir_memcached_test:counters(C),
        with(clock, Options, [{serve, all, fun begins_to_answer/1}], fun(_) ->
            [
                begin
                    weir_memcached_test:up(clock),
                    ?assertEqual({error, disconnected}, weir_memcached:get(clock, <<"k">>)),
                    counted(clock, disconnects, N)
                end
             || N <- [1, 2]
            ]
        end),
        ?assertMatch(#{disconnects := Before}, weir_memcached_test:counters(C))
    end).

%% A server that never reads blocks the writer and nobody else: callers are answered when their time is up, which makes
%% room for others up to max_pending, and what has expired is never sent.
never_reads(_) ->
    C = ?FUNCTION_NAME,
    Set = ["set large 0 0 ", integer_to_list(?LARGE), "\r\n", binary:copy(<<"x">>, ?LARGE), "\r\n"],
    Script = [
        accept,
        {wait, read_at_last},
        {expect, Set},
        {send, "STORED\r\n"},
        {expect, Set},
        {send, "STORED\r\n"},
        {expect, copies(3, "get fresh\r\n")},
        {send, copies(3, value("fresh", "v"))}
    ],
    with(C, #{max_pending => 5}, Script, fun(Server) ->
        Blocked = blocked_writer(C),
        Stale = [
            weir_kit:start(fun() -> weir_memcached:get(C, <<"stale">>, #{timeout => 10}) end)
         || _ <- lists:seq(1, 3)
        ],
        ?assertEqual(copies(3, {error, timeout}), [weir_kit:result(Caller) || Caller <- Stale]),
        pending(C, 2),
        Fresh = [asked(C, <<"fresh">>, N) || N <- [3, 4, 5]],
        ?assertEqual({error, busy}, weir_memcached:get(C, <<"k">>)),
        weir_memcached_test_script:release(Server, read_at_last),
        ?assertEqual([ok, ok], [weir_kit:result(Caller) || Caller <- Blocked]),
        ?assertEqual(copies(3, {ok, <<"v">>}), [weir_kit:result(Caller) || Caller <- Fresh]),
        ?assertMatch(#{expired := 3, requests := 5, busy := 1, timeouts := 3}, weir_memcached_test:counters(C)),
        pending(C, 0)
    end).

%% stop/1 does not wait for a write that will never end.
stop_while_writer_blocks(_) ->
    C = ?FUNCTION_NAME,
    Server = weir_memcached_test_script:start([accept]),
    Options = (weir_memcached_test_script:options(Server))#{connections => 1, codec => raw, stall_timeout => infinity},
    {ok, _} = weir_memcached:start_link(C, Options),
    weir_memcached_test:up(C),
    Blocked = blocked_writer(C),
    Callers = [get(C, <<"k">>) | Blocked],
    pending(C, 3),
    ?assertEqual(ok, weir_memcached:stop(C)),
    ?assertEqual(copies(3, {error, disconnected}), [weir_kit:result(Caller) || Caller <- Callers]),
    weir_memcached_test_script:stop(Server).

%% Nor for an attempt to connect that nobody answers: the queue of this listener is full.
stop_while_connecting(_) ->
    C = ?FUNCTION_NAME,
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, {backlog, 1}]),
    {ok, Port} = inet:port(Listener),
    Fillers = connecting(C, Port, []),
    ?assertEqual(ok, weir_memcached:stop(C)),
    [ok = gen_tcp:close(Filler) || Filler <- Fillers],
    ok = gen_tcp:close(Listener).

%% Starts a client of which no connection gets through. A filler may have had no answer though there was room: then a
%% connection has taken that, and it is tried again.
connecting(C, Port, Before) ->
    Fillers = fill(Port, 20, Before),
    Address = #{host => {127, 0, 0, 1}, port => Port, transport => weir_memcached_test:transport()},
    {ok, _} = weir_memcached:start_link(C, Address#{connect_timeout => 60000, request_timeout => 100}),
    Got = weir_memcached:get(C, <<"k">>),
    case {Got, lists:usort([Phase || #{phase := Phase} <- weir_memcached_test:connections(C)])} of
        {{error, disconnected}, [connecting]} ->
            Fillers;
        _ ->
            ok = weir_memcached:stop(C),
            connecting(C, Port, Fillers)
    end.

fill(Port, N, Fillers) when N > 0 ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, [], 50) of
        {ok, Filler} -> fill(Port, N - 1, [Filler | Fillers]);
        {error, timeout} -> Fillers
    end.

%% The back-off doubles while no reply comes, however often the server accepts, up to its greatest, and starts again
%% when a reply has come.
backoff(_) ->
    C = ?FUNCTION_NAME,
    Losses = 6,
    Script =
        lists:append(lists:duplicate(Losses, [accept, close])) ++
            [accept, {expect, "get k\r\n"}, {send, value("k", "v")}, {wait, looked}, close] ++
            [accept, {expect, "get k\r\n"}, {send, value("k", "v")}],
    with(C, #{reconnect => {3, 20}}, Script, fun(Server) ->
        counted(C, disconnects, Losses),
        weir_memcached_test:up(C),
        ?assertEqual(20, present_backoff(C)),
        weir_kit:until(fun() -> weir_memcached:get(C, <<"k">>) =:= {ok, <<"v">>} end),
        ?assertEqual(3, present_backoff(C)),
        weir_memcached_test_script:release(Server, looked),
        counted(C, disconnects, Losses + 1),
        ?assertEqual(6, present_backoff(C)),
        weir_memcached_test:up(C),
        ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"k">>))
    end).

%% The only look behind the interface: the times themselves are not for a test to measure.
present_backoff(C) ->
    State = sys:get_state(connection(C), infinity),
    {state, _Config, _Server, _Slot, _WasUsed, _IsLarge, _Phase, Backoff, _, _} = State,
    Backoff.

%% Kills

%% The writer is killed: its connection is lost, and made again.
kill_writer(_) ->
    killed(?FUNCTION_NAME, fun(C) -> lists:foreach(fun weir_kit:kill/1, writers(C)) end).

%% A connection process is killed: its pool starts it again.
kill_connection(_) ->
    killed(?FUNCTION_NAME, fun(C) -> [weir_kit:kill(Pid) || #{pid := Pid} <- weir_memcached_test:connections(C)] end).

%% The process that publishes the client's configuration is killed.
kill_client_process(_) ->
    killed(?FUNCTION_NAME, fun(C) -> weir_kit:kill(child(C, client)) end).

%% A connection that does not run any more is noticed, since callers rely on it for their time-outs, and replaced.
stuck_connection(_) ->
    C = ?FUNCTION_NAME,
    with(C, [accept, accept, {expect, "get k\r\n"}, {send, value("k", "v")}], fun(_) ->
        weir_memcached_test:watch_log(C, {weir_memcached, stuck}),
        Connection = connection(C),
        Client = child(C, client),
        ok = sys:suspend(Connection, infinity),
        Caller = queued(Connection, fun() -> weir_memcached:get(C, <<"k">>, #{timeout => 1}) end),
        %% what its timer says every few seconds
        Client ! ask,
        Client ! ask,
        ?assertEqual({error, disconnected}, weir_kit:result(Caller)),
        counted(C, connects, 2),
        weir_memcached_test:up(C),
        ?assertEqual({ok, <<"v">>}, weir_memcached:get(C, <<"k">>)),
        %% It may be told twice, if it takes its time to die; nobody else is.
        ?assertEqual([Connection], lists:usort([Pid || #{pid := Pid} <- reports(C, C)])),
        weir_memcached_test:unwatch_log(C)
    end).

%% Connections that run are not, however often they are asked.
busy_is_not_stuck(Config) ->
    C = ?FUNCTION_NAME,
    Begin = erlang:monotonic_time(millisecond),
    with(C, [{serve, 1, fun weir_memcached_test_script:answer_gets/1}], fun(_) ->
        Client = child(C, client),
        Ask = fun() ->
            Client ! ask,
            %% when this has been answered it has asked
            sys:get_state(Client, infinity),
            %% and when this has, so has its question
            weir_memcached_test:up(C)
        end,
        Get = fun() -> [weir_memcached:get(C, <<"k">>) || _ <- lists:seq(1, 300)] end,
        [_ | Results] = weir_kit:in_parallel([fun() -> [Ask() || _ <- lists:seq(1, 20)] end, Get, Get, Get]),
        #{connects := Connects} = weir_memcached_test:counters(C),
        self() ! {seen, erlang:monotonic_time(millisecond) - Begin, lists:usort(lists:append(Results)), Connects}
    end),
    %% Each question sets the timer of another one. Those come five seconds later, one right after the other, and leave
    %% no time for an answer.
    receive
        {seen, Ms, _, _} when Ms >= 5000 -> busy_is_not_stuck(Config);
        {seen, _, Results, Connects} -> ?assertEqual({[{ok, <<"k">>}], 1}, {Results, Connects})
    end.

%% The pool is killed, and the connections with it.
kill_pool(_) ->
    killed(?FUNCTION_NAME, fun(C) ->
        [{_, Pool, _, _}] = supervisor:which_children(child(C, servers)),
        weir_kit:kill(Pool)
    end).

%% And so the supervisor of all pools.
kill_servers(_) ->
    killed(?FUNCTION_NAME, fun(C) -> weir_kit:kill(child(C, servers)) end).

%% The client's supervisor is killed, under one of a user's.
kill_supervisor(_) ->
    killed(?FUNCTION_NAME, fun(C) ->
        Killed = whereis(C),
        weir_kit:kill(Killed),
        weir_kit:until(fun() -> is_pid(whereis(C)) andalso whereis(C) =/= Killed end)
    end).

%% Kills something under load, and again: callers see failures at most, and then their own values again.
killed(C, Kill) ->
    Server = weir_memcached_test_script:start([{serve, 1000, fun weir_memcached_test_script:answer_gets/1}]),
    Options = (weir_memcached_test_script:options(Server))#{connections => 2, codec => raw, reconnect => {1, 10}},
    {ok, Sup} = supervisor:start_link(weir_memcached_test_sup, [weir_memcached:child_spec(C, Options)]),
    weir_memcached_test:up(C),
    Good = counters:new(1, []),
    Stop = atomics:new(1, []),
    Callers = [weir_kit:start(fun() -> load(C, Stop, N, Good, #{}) end) || N <- lists:seq(1, 10)],
    progress(Good),
    [
        begin
            Before = pids(C),
            Kill(C),
            weir_kit:until(fun() -> is_pid(whereis(C)) andalso pids(C) =/= Before end),
            weir_memcached_test:up(C),
            progress(Good)
        end
     || _ <- lists:seq(1, 2)
    ],
    atomics:put(Stop, 1, 1),
    Seen = lists:usort(lists:append([maps:keys(weir_kit:result(Caller)) || Caller <- Callers])),
    weir_kit:none(wrong_answers, Seen -- [good, disconnected, noproc]),
    unlink(Sup),
    gen_server:stop(Sup),
    weir_memcached_test_script:stop(Server).

load(C, Stop, N, Good, Seen) ->
    case atomics:get(Stop, 1) of
        1 ->
            Seen;
        0 ->
            Key = integer_to_binary(N),
            Result =
                try weir_memcached:get(C, Key) of
                    {ok, Key} ->
                        counters:add(Good, 1, 1),
                        good;
                    {ok, Wrong} ->
                        {wrong, Wrong};
                    {error, Reason} ->
                        Reason
                catch
                    exit:{noproc, _} -> noproc
                end,
            load(C, Stop, N, Good, Seen#{Result => true})
    end.

progress(Good) ->
    Now = counters:get(Good, 1),
    weir_kit:until(fun() -> counters:get(Good, 1) > Now + 200 end).

%% All processes of a client that a case may have killed.
pids(C) ->
    [child(C, client), whereis(C), writers(C) | [Pid || #{pid := Pid} <- weir_memcached_test:connections(C)]].

child(C, Id) ->
    try lists:keyfind(Id, 1, supervisor:which_children(C)) of
        {Id, Pid, _, _} -> Pid
    catch
        exit:_ -> the_client_is_gone
    end.

writers(C) ->
    [
        Pid
     || #{pid := Connection} <- weir_memcached_test:connections(C),
        {links, Links} <- [process_info(Connection, links)],
        Pid <- Links,
        is_pid(Pid),
        {dictionary, Dictionary} <- [process_info(Pid, dictionary)],
        lists:keyfind('$initial_call', 1, Dictionary) =:= {'$initial_call', {weir_memcached_io, init, 3}}
    ].

%% While one of two connections is down, a request that meets it goes to the other.
one_connection_of_two_down(_) ->
    C = ?FUNCTION_NAME,
    Listen = [{serve, 2, fun weir_memcached_test_script:answer_gets/1}, {tell, served}, accept, close],
    with(C, #{connections => 2, reconnect => {60000, 60000}}, Listen, fun(Server) ->
        weir_memcached_test_script:reached(Server, served),
        [Io | _] = writers(C),
        weir_kit:kill(Io),
        counted(C, disconnects, 1),
        [?assertEqual({ok, <<"k">>}, weir_memcached:get(C, <<"k">>)) || _ <- lists:seq(1, 20)],
        {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, maps:get(port, Server), []),
        ok = gen_tcp:close(Socket)
    end).
