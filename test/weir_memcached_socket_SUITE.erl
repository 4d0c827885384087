%% weir_memcached with `transport => weir_socket': the cases of its own suites that send anything, on the other
%% transport, and what concerns weir_socket alone.
%%
%% Each case runs in a process of its own, with which its clients end; after it no socket of weir_socket is left, open
%% or mentioned, and no descriptor of any socket that was not there before.
-module(weir_memcached_socket_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, wait_ms/0]).
-import(weir_socket_test_lib, [held/0, socket_descriptors/0]).

all() ->
    [{group, Group} || Group <- [own, tcp, local, inet6, values, life, replies, failures, kills]].

groups() ->
    Operations = [
        store, conditional_store, compare_and_swap, append_and_prepend, arithmetic, touch_and_gat, delete, many,
        server_commands, any_byte, large_values_among_small
    ],
    [
        {own, [sockets_are_ours, one_byte_is_read_at_a_time, cut_at_every_byte]},
        {tcp, Operations},
        {local, Operations},
        {inet6, Operations},
        {values, [
            item_limit, larger_items, get_many_thousands, set_many_partial
        ]},
        {life, [
            many_callers, killed_callers, restart_under_load, started_before_the_server, under_a_supervisor,
            stop_answers_everybody
        ]},
        {replies, [
            one_byte_at_a_time, one_write_in_order, late_reply, late_replies_to_many, many_deadlines,
            expired_are_not_sent, server_error, client_error_of_a_store, client_error_in_set_many,
            server_error_in_get_many
        ]},
        {failures, [
            garbage, unasked, more_than_asked, close_in_mid_reply, abort_in_mid_reply, close_with_requests_queued,
            queued_go_to_another_connection, max_pending, flood_is_refused, stall, idle_is_not_stalled,
            never_reads, stop_while_writer_blocks, stop_while_connecting, backoff
        ]},
        {kills, [
            kill_writer, kill_connection, kill_client_process, kill_pool, kill_supervisor, stuck_connection,
            one_connection_of_two_down
        ]}
    ].

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    [{socket_started, Started} | weir_memcached_test:set_up(weir_memcached, [{transport, weir_socket} | Config])].

end_per_suite(Config) ->
    ok = weir_memcached_test:tear_down(Config),
    lists:foreach(fun application:stop/1, lists:reverse(proplists:get_value(socket_started, Config))).

init_per_group(Group, Config) ->
    case is_scripted(Group) of
        true -> Config;
        false -> weir_memcached_server_SUITE:init_per_group(Group, Config)
    end.

end_per_group(Group, Config) ->
    case is_scripted(Group) of
        true -> ok;
        false -> weir_memcached_server_SUITE:end_per_group(Group, Config)
    end.

is_scripted(Group) -> lists:member(Group, [own, replies, failures, kills]).

%% ---------------------------------------------------------------- what is left

server(Case, Config) -> nothing_left(fun() -> weir_memcached_server_SUITE:Case(Config) end).

scripted(Case, Config) -> nothing_left(fun() -> weir_memcached_scripted_SUITE:Case(Config) end).

%% Runs a case in a process of its own, and waits until no more sockets are left than before. The process exits with a
%% reason that is not normal, so that the clients that are linked to it end, too.
nothing_left(Case) ->
    #{sockets := Sockets, slots := Slots, resources := Resources} = held(),
    Descriptors = socket_descriptors(),
    _ = weir_kit:in_parallel([Case]),
    until(fun() ->
        Left = held(),
        maps:get(sockets, Left) =< Sockets andalso maps:get(slots, Left) =< Slots andalso
            maps:get(resources, Left) =< Resources andalso socket_descriptors() =< Descriptors
    end).

%% ---------------------------------------------------------------- weir_socket alone

%% The cases below would pass on gen_tcp as well: here each connection is seen to be a socket of weir_socket.
sockets_are_ours(_) ->
    #{sockets := Before} = held(),
    Script = [{serve, 3, fun weir_memcached_test_script:answer_gets/1}],
    nothing_left(fun() ->
        weir_memcached_scripted_SUITE:with(?FUNCTION_NAME, #{connections => 3}, Script, fun(_) ->
            ?assertEqual(3, maps:get(sockets, held()) - Before),
            ?assertEqual({ok, <<"k">>}, weir_memcached:get(?FUNCTION_NAME, <<"k">>))
        end)
    end).

%% What weir_memcached_test_trickle relies on.
one_byte_is_read_at_a_time(_) ->
    nothing_left(fun() ->
        {ok, Listener} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}]),
        {ok, Port} = inet:port(Listener),
        Options = [binary, {active, false}],
        {ok, Socket} = weir_memcached_test_trickle:connect({127, 0, 0, 1}, Port, Options, weir_kit:wait_ms()),
        {ok, Peer} = gen_tcp:accept(Listener),
        ok = gen_tcp:send(Peer, <<"abc">>),
        ok = inet:setopts(Socket, [{active, true}]),
        Read = [
            receive
                {tcp, Socket, Bytes} -> Bytes
            end
         || _ <- "abc"
        ],
        ?assertEqual([<<"a">>, <<"b">>, <<"c">>], Read),
        ok = weir_memcached_test_trickle:close(Socket)
    end).

%% Each kind of reply in two pieces, cut at every place: the second is not sent before the first has been read.
cut_at_every_byte(_) ->
    C = ?FUNCTION_NAME,
    Cuts = [
        {Operation, iolist_to_binary(Request), split_binary(Whole, At), Result}
     || {Operation, Request, Reply, Result} <- weir_memcached_scripted_SUITE:exchanges(C),
        Whole <- [iolist_to_binary(Reply)],
        At <- lists:seq(1, byte_size(Whole) - 1)
    ],
    Script = [
        accept
        | lists:append([[{expect, Request}, {send, A}, {wait, read}, {send, B}] || {_, Request, {A, B}, _} <- Cuts])
    ],
    nothing_left(fun() ->
        weir_memcached_scripted_SUITE:with(C, #{}, Script, fun(Server) ->
            Socket = socket(C),
            lists:foldl(
                fun({Operation, Request, {A, B}, Result}, Read) ->
                    Caller = weir_kit:start(Operation),
                    until(fun() -> received(Socket) =:= Read + byte_size(A) end),
                    weir_memcached_test_script:release(Server, read),
                    ?assertEqual({Request, A, Result}, {Request, A, weir_kit:result(Caller)}),
                    Read + byte_size(A) + byte_size(B)
                end,
                0,
                Cuts
            )
        end)
    end).

received(Socket) ->
    {ok, [{recv_oct, Bytes}]} = weir_socket:getstat(Socket, [recv_oct]),
    Bytes.

%% A look behind the interface: a connection's state has it in its link.
socket(C) ->
    [#{pid := Connection}] = weir_memcached_test:connections(C),
    Links = [Link || Link <- tuple_to_list(sys:get_state(Connection, wait_ms())), is_tuple(Link)],
    [Socket] = [Field || Link <- Links, {'$inet', weir_socket, _} = Field <- tuple_to_list(Link)],
    Socket.

%% ---------------------------------------------------------------- weir_memcached_server_SUITE

store(Config) -> server(?FUNCTION_NAME, Config).
conditional_store(Config) -> server(?FUNCTION_NAME, Config).
compare_and_swap(Config) -> server(?FUNCTION_NAME, Config).
append_and_prepend(Config) -> server(?FUNCTION_NAME, Config).
arithmetic(Config) -> server(?FUNCTION_NAME, Config).
touch_and_gat(Config) -> server(?FUNCTION_NAME, Config).
delete(Config) -> server(?FUNCTION_NAME, Config).
many(Config) -> server(?FUNCTION_NAME, Config).
server_commands(Config) -> server(?FUNCTION_NAME, Config).
any_byte(Config) -> server(?FUNCTION_NAME, Config).
large_values_among_small(Config) -> server(?FUNCTION_NAME, Config).
item_limit(Config) -> server(?FUNCTION_NAME, Config).
larger_items(Config) -> server(?FUNCTION_NAME, Config).
get_many_thousands(Config) -> server(?FUNCTION_NAME, Config).
set_many_partial(Config) -> server(?FUNCTION_NAME, Config).
many_callers(Config) -> server(?FUNCTION_NAME, Config).
killed_callers(Config) -> server(?FUNCTION_NAME, Config).
restart_under_load(Config) -> server(?FUNCTION_NAME, Config).
started_before_the_server(Config) -> server(?FUNCTION_NAME, Config).
under_a_supervisor(Config) -> server(?FUNCTION_NAME, Config).
stop_answers_everybody(Config) -> server(?FUNCTION_NAME, Config).

%% ---------------------------------------------------------------- weir_memcached_scripted_SUITE

one_byte_at_a_time(Config) -> scripted(?FUNCTION_NAME, Config).
one_write_in_order(Config) -> scripted(?FUNCTION_NAME, Config).
late_reply(Config) -> scripted(?FUNCTION_NAME, Config).
late_replies_to_many(Config) -> scripted(?FUNCTION_NAME, Config).
many_deadlines(Config) -> scripted(?FUNCTION_NAME, Config).
expired_are_not_sent(Config) -> scripted(?FUNCTION_NAME, Config).
server_error(Config) -> scripted(?FUNCTION_NAME, Config).
client_error_of_a_store(Config) -> scripted(?FUNCTION_NAME, Config).
client_error_in_set_many(Config) -> scripted(?FUNCTION_NAME, Config).
server_error_in_get_many(Config) -> scripted(?FUNCTION_NAME, Config).
garbage(Config) -> scripted(?FUNCTION_NAME, Config).
unasked(Config) -> scripted(?FUNCTION_NAME, Config).
more_than_asked(Config) -> scripted(?FUNCTION_NAME, Config).
close_in_mid_reply(Config) -> scripted(?FUNCTION_NAME, Config).
abort_in_mid_reply(Config) -> scripted(?FUNCTION_NAME, Config).
close_with_requests_queued(Config) -> scripted(?FUNCTION_NAME, Config).
queued_go_to_another_connection(Config) -> scripted(?FUNCTION_NAME, Config).
max_pending(Config) -> scripted(?FUNCTION_NAME, Config).
flood_is_refused(Config) -> scripted(?FUNCTION_NAME, Config).
stall(Config) -> scripted(?FUNCTION_NAME, Config).
idle_is_not_stalled(Config) -> scripted(?FUNCTION_NAME, Config).
never_reads(Config) -> scripted(?FUNCTION_NAME, Config).
stop_while_writer_blocks(Config) -> scripted(?FUNCTION_NAME, Config).
stop_while_connecting(Config) -> scripted(?FUNCTION_NAME, Config).
backoff(Config) -> scripted(?FUNCTION_NAME, Config).
kill_writer(Config) -> scripted(?FUNCTION_NAME, Config).
kill_connection(Config) -> scripted(?FUNCTION_NAME, Config).
kill_client_process(Config) -> scripted(?FUNCTION_NAME, Config).
kill_pool(Config) -> scripted(?FUNCTION_NAME, Config).
kill_supervisor(Config) -> scripted(?FUNCTION_NAME, Config).
stuck_connection(Config) -> scripted(?FUNCTION_NAME, Config).
one_connection_of_two_down(Config) -> scripted(?FUNCTION_NAME, Config).
