%% What clients do: gen_server is the oracle (weir_server_same) for all that it has.
-module(weir_server_client_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, until/1, wait_ms/0]).

%% run on the other node

-define(P, weir_server_puppet).

all() ->
    [
        calls, calls_fail, late_answer, casts, replies, requests, collections, collection_times_out,
        request_misuse, local_multi_calls, misuse,
        with_state, with_state_in_turn, with_state_raises, with_state_exits, mcall, mcall_fails, mcall_is_concurrent,
        mcall_misuse, info, replies_to_many, not_a_weir_server,
        {group, nodes}
    ].

groups() ->
    [{nodes, [
        remote_calls, remote_casts, remote_requests,
        multi_calls, multi_call_times_out, multi_call_bad_nodes, remote_mcall, remote_info,
        remote_builds
    ]}].

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

init_per_group(nodes, Config) ->
    Started = weir_server_nodes:start(Config),
    [{peer, weir_server_nodes:peer()} | Started].

end_per_group(nodes, Config) ->
    weir_server_nodes:stop_peer(?config(peer, Config)),
    weir_server_nodes:stop(Config).

server(S) ->
    server(S, none).

server(S, none) ->
    {ok, Pid} = S:start(?P, fun() -> {ok, #{}} end, []),
    Pid;
server(S, Name) ->
    {ok, Pid} = S:start(Name, ?P, fun() -> {ok, #{}} end, []),
    Pid.

result(Fun) ->
    try
        Fun()
    catch
        Class:Reason -> {Class, Reason}
    end.

%% All that a client may write for a server, with the name that the server is to have.
refs() ->
    [
        {none, fun(Pid) -> Pid end},
        {{local, a_client_name}, fun(_) -> a_client_name end},
        {{local, a_client_name}, fun(_) -> {a_client_name, node()} end},
        {{global, {a, client}}, fun(_) -> {global, {a, client}} end},
        {{via, global, {a, client}}, fun(_) -> {via, global, {a, client}} end}
    ].

nobody() ->
    {Dead, Ref} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Ref, process, Dead, _} -> ok end,
    [
        Dead, nobody, {nobody, node()}, {global, nobody}, {via, global, nobody}, {via, weir_server_refuser, nobody},
        {nobody, 'no@where'}
    ].

calls(_) ->
    weir_server_same:check_all([
        {Name, fun(S) ->
            Pid = server(S, Name),
            Server = Ref(Pid),
            Replies = [
                S:call(Server, ?P:answer(1)),
                S:call(Server, ?P:answer(2), infinity),
                S:call(Server, ?P:answer(3), 60000),
                S:call(Server, fun(From, State) -> S:reply(From, 4), {noreply, State} end),
                S:call(Server, fun(From, State) -> spawn(fun() -> S:reply(From, 5) end), {noreply, State} end)
            ],
            {Replies, S:stop(Server), weir_server_same:mailbox()}
        end}
     || {Name, Ref} <- refs()
    ]).

calls_fail(_) ->
    Nobody = nobody(),
    weir_server_same:check_all([
        {{Server, Args}, fun(S) -> result(fun() -> apply(S, call, [Server, x | Args]) end) end}
     || Server <- Nobody, Args <- [[], [infinity], [0], [1000]]
    ] ++ [
        {self, fun(S) ->
            [result(fun() -> S:call(self(), x) end), result(fun() -> S:call(self(), x, infinity) end)]
        end},
        {self_by_name, fun(S) ->
            register(a_client_name, self()),
            [result(fun() -> S:call(a_client_name, x) end), result(fun() -> S:call({a_client_name, node()}, x, 1) end)]
        end}
    ] ++ [
        {{bad, Server, Args}, fun(S) -> result(fun() -> apply(S, call, [Server, x | Args]) end) end}
     || Server <- ["text", 1, {a, b, c}, make_ref(), <<>>, {}], Args <- [[], [infinity], [1000]]
    ] ++ [
        {{bad_timeout, Timeout}, fun(S) -> result(fun() -> S:call(nobody, x, Timeout) end) end}
     || Timeout <- [-1, 1.5, never]
    ] ++ [
        {timeout, fun(S) ->
            Pid = server(S),
            Times = [result(fun() -> S:call(Pid, fun(_, St) -> {noreply, St} end, Time) end) || Time <- [0, 1]],
            {Times, S:stop(Pid), weir_server_same:mailbox()}
        end},
        {uncaught, fun(S) ->
            {Pid, Ref} = spawn_monitor(fun() -> S:call(nobody, {some, "request"}) end),
            receive {'DOWN', Ref, process, Pid, Reason} -> Reason end
        end}
    ]).

late_answer(_) ->
    weir_server_same:check(fun(S) ->
        Pid = server(S),
        Self = self(),
        Late = fun(From, St) -> Self ! {late, From}, {noreply, St} end,
        Timeout = result(fun() -> S:call(Pid, Late, 1) end),
        From = receive {late, Whom} -> Whom end,
        ok = S:reply(From, too_late),
        {element(1, Timeout), S:call(Pid, state, wait_ms()), S:stop(Pid), weir_server_same:mailbox()}
    end).

casts(_) ->
    weir_server_same:check_all([
        {Name, fun(S) ->
            Pid = server(S, Name),
            ok = S:cast(Ref(Pid), fun(State) -> {noreply, State#{cast => done}} end),
            {S:call(Pid, state, wait_ms()), S:stop(Pid)}
        end}
     || {Name, Ref} <- refs()
    ] ++ [
        {Server, fun(S) -> result(fun() -> S:cast(Server, x) end) end}
     || Server <- nobody()
    ] ++ [
        {Server, fun(S) -> result(fun() -> S:cast(Server, x) end) end}
     || Server <- ["text", 1, {a, b, c}, {1, 2}, make_ref(), <<>>, {}]
    ] ++ [
        {abcast, fun(S) ->
            Pid = server(S, {local, a_client_name}),
            Cast = fun(State) -> {noreply, State#{cast => maps:get(cast, State, 0) + 1}} end,
            Results = [
                S:abcast(a_client_name, Cast), S:abcast([node()], a_client_name, Cast),
                S:abcast([], a_client_name, Cast),
                S:abcast([node(), 'no@where'], a_client_name, Cast), S:abcast(nobody, x),
                result(fun() -> S:abcast("nobody", x) end), result(fun() -> S:abcast([node()], "nobody", x) end),
                result(fun() -> S:abcast(node(), nobody, x) end), result(fun() -> S:abcast([1], nobody, x) end)
            ],
            {Results, S:call(Pid, state, wait_ms()), S:stop(Pid)}
        end}
    ]).

%% Tags as releases of old made them are answered as well.
replies(_) ->
    weir_server_same:check(fun(S) ->
        Alias = alias(),
        Results = [
            S:reply({self(), a_tag}, 1), S:reply({self(), make_ref()}, 2), S:reply({self(), [alias | Alias]}, 3),
            S:reply({self(), [[alias | Alias] | more]}, 4), S:reply({not_a_process, tag}, 5)
        ],
        {Results, weir_server_same:mailbox()}
    end).

requests(_) ->
    weir_server_same:check_all([
        {Name, fun(S) ->
            Pid = server(S, Name),
            Send = fun(What) -> S:send_request(Ref(Pid), What) end,
            Waited = S:wait_response(Send(?P:answer(1)), infinity),
            Received = S:receive_response(Send(?P:answer(2)), 60000),
            Absolute = S:receive_response(Send(?P:answer(3)), {abs, erlang:monotonic_time(millisecond) + 60000}),
            Gone = {abs, erlang:monotonic_time(millisecond) - 1},
            Waits = Send(fun(_, St) -> {noreply, St} end),
            Past = S:wait_response(Waits, Gone),
            Never = S:receive_response(Send(fun(_, St) -> {noreply, St} end), 1),
            Checked = Send(?P:answer(4)),
            None = S:check_response(something_else, Checked),
            Found = receive Msg -> S:check_response(Msg, Checked) end,
            Ends = Send(fun(_, St) -> {stop, shutdown, St} end),
            {error, {Reason, Who}} = S:receive_response(Ends, infinity),
            %% That of the other request is told by a message of its own, which may come later.
            Ended = S:receive_response(Waits, infinity),
            {Waited, Received, Absolute, Past, Never, None, Found, Reason, Who, Ended, weir_server_same:mailbox()}
        end}
     || {Name, Ref} <- refs()
    ] ++ [
        {Server, fun(S) -> S:receive_response(S:send_request(Server, x), infinity) end}
     || Server <- nobody()
    ]).

collections(_) ->
    weir_server_same:check_all([
        {Delete, fun(S) ->
            Pid = server(S),
            None = S:reqids_new(),
            Empty = [
                S:reqids_size(None), S:reqids_to_list(None), S:wait_response(None, infinity, Delete),
                S:receive_response(None, 0, Delete), S:check_response(x, None, Delete)
            ],
            One = S:send_request(Pid, ?P:answer(1), first, None),
            Two = S:reqids_add(S:send_request(nobody, x), second, One),
            Sizes = [S:reqids_size(C) || C <- [One, Two]],
            Labels = lists:sort([Label || {_, Label} <- S:reqids_to_list(Two)]),
            {A, LabelA, Left} = S:receive_response(Two, infinity, Delete),
            {B, LabelB, Last} = S:wait_response(Left, infinity, Delete),
            Three = S:send_request(Pid, ?P:answer(3), third, S:reqids_new()),
            No = S:check_response(something_else, Three, Delete),
            {C, LabelC, End} = receive Msg -> S:check_response(Msg, Three, Delete) end,
            {
                Empty, Sizes, Labels, lists:sort([{LabelA, A}, {LabelB, B}]),
                [S:reqids_size(X) || X <- [Left, Last, End]],
                No, C, LabelC, S:stop(Pid), weir_server_same:mailbox()
            }
        end}
     || Delete <- [true, false]
    ]).

collection_times_out(_) ->
    weir_server_same:check(fun(S) ->
        Pid = server(S),
        Self = self(),
        Held = fun(From, St) -> Self ! {from, From}, {noreply, St} end,
        Requests = S:send_request(Pid, Held, b, S:send_request(Pid, Held, a, S:reqids_new())),
        Froms = [receive {from, From} -> From end || _ <- [a, b]],
        Waited = S:wait_response(Requests, 1, true),
        Given_up = S:receive_response(Requests, 1, true),
        [S:reply(From, late) || From <- Froms],
        {Waited, Given_up, S:call(Pid, state, wait_ms()), S:stop(Pid), weir_server_same:mailbox()}
    end).

request_misuse(_) ->
    weir_server_same:check_all([
        {What, fun(S) -> result(fun() -> Do(S) end) end}
     || {What, Do} <- [
            {wait, fun(S) -> S:wait_response(x, 0) end},
            {wait_time, fun(S) -> S:wait_response(make_ref(), -1) end},
            {wait_abs, fun(S) -> S:wait_response(make_ref(), {abs, x}) end},
            {wait_long, fun(S) -> S:wait_response(make_ref(), 1 bsl 32) end},
            {wait_all, fun(S) -> S:wait_response(x, 0, true) end},
            {wait_delete, fun(S) -> S:wait_response(S:reqids_new(), 0, x) end},
            {rec, fun(S) -> S:receive_response(x, 0) end},
            {rec_time, fun(S) -> S:receive_response(make_ref(), x) end},
            {rec_all, fun(S) -> S:receive_response(x, 0, true) end},
            {check, fun(S) -> S:check_response(msg, x) end},
            {check_all, fun(S) -> S:check_response(msg, x, true) end},
            {send, fun(S) -> S:send_request(nobody, x, label, not_a_collection) end},
            {size, fun(S) -> S:reqids_size(x) end},
            {add, fun(S) -> S:reqids_add(x, label, S:reqids_new()) end},
            {add_again, fun(S) -> R = make_ref(), S:reqids_add(R, l, S:reqids_add(R, l, S:reqids_new())) end},
            {to_list, fun(S) -> S:reqids_to_list(x) end}
        ]
    ]).

local_multi_calls(_) ->
    weir_server_same:check(fun(S) ->
        Pid = server(S, {local, a_client_name}),
        Answer = ?P:answer(ok),
        Results = [
            S:multi_call(a_client_name, Answer), S:multi_call([node()], a_client_name, Answer),
            S:multi_call([node()], a_client_name, Answer, infinity),
            S:multi_call([node()], a_client_name, Answer, 60000),
            S:multi_call([node()], nobody, Answer), S:multi_call([], a_client_name, Answer),
            S:multi_call(['no@where'], a_client_name, Answer, 60000)
        ],
        {Results, S:stop(Pid), weir_server_same:mailbox()}
    end).

misuse(_) ->
    weir_server_same:check_all([
        {Args, fun(S) -> result(fun() -> apply(S, multi_call, Args) end) end}
     || Args <- [
            ["text", x], [[node()], "text", x], [node(), name, x], [[node()], name, x, -1], [[node()], name, x, never],
            [[1], name, x], [[1], name, x, 1]
        ]
    ]).

%% Other nodes

remote(Config, S, Do) ->
    {Peer, Node} = ?config(peer, Config),
    {ok, Pid} = peer:call(Peer, S, start, [{local, a_remote_name}, ?P, fun ?MODULE:init_remote/0, []], infinity),
    Result = Do(Pid, Node),
    {Result, S:stop({a_remote_name, Node}), weir_server_same:mailbox()}.

remote_calls(Config) ->
    weir_server_same:check(fun(S) ->
        remote(Config, S, fun(Pid, Node) ->
            [
                S:call(Pid, state, infinity), S:call({a_remote_name, Node}, state, 60000),
                S:call({a_remote_name, Node}, state, infinity),
                result(fun() -> S:call({nobody, Node}, state, 60000) end), result(fun() -> S:stop({nobody, Node}) end),
                result(fun() -> S:call({nobody, 'no@127.0.0.1'}, state, 60000) end),
                result(fun() -> S:stop({nobody, 'no@127.0.0.1'}) end)
            ]
        end)
    end).

remote_casts(Config) ->
    Add = fun ?MODULE:count/1,
    weir_server_same:check(fun(S) ->
        remote(Config, S, fun(Pid, Node) ->
            Results = [
                S:cast(Pid, Add), S:cast({a_remote_name, Node}, Add), S:abcast(a_remote_name, Add),
                S:abcast([Node, node(), 'no@127.0.0.1'], a_remote_name, Add)
            ],
            {Results, S:call(Pid, state, infinity)}
        end)
    end).

remote_requests(Config) ->
    weir_server_same:check(fun(S) ->
        remote(Config, S, fun(Pid, Node) ->
            [
                S:receive_response(S:send_request(Server, state), infinity)
             || Server <- [Pid, {a_remote_name, Node}, {nobody, Node}, {nobody, 'no@127.0.0.1'}]
            ]
        end)
    end).

multi_calls(Config) ->
    weir_server_same:check(fun(S) ->
        remote(Config, S, fun(_, Node) ->
            Local = server(S, {local, a_remote_name}),
            Nodes = [Node, node(), 'no@127.0.0.1'],
            Results = [
                S:multi_call(a_remote_name, state), S:multi_call(Nodes, a_remote_name, state),
                S:multi_call(Nodes, a_remote_name, state, infinity), S:multi_call(Nodes, a_remote_name, state, 60000),
                S:multi_call(Nodes, nobody, state)
            ],
            {[{lists:sort(Good), lists:sort(Bad)} || {Good, Bad} <- Results], S:stop(Local)}
        end)
    end).

multi_call_times_out(Config) ->
    weir_server_same:check(fun(S) ->
        remote(Config, S, fun(Pid, Node) ->
            Nodes = [Node, 'no@127.0.0.1'],
            {Good, Bad} = S:multi_call(Nodes, a_remote_name, fun ?MODULE:no_reply/2, 1),
            {Good, lists:sort(Bad), S:call(Pid, state, infinity)}
        end)
    end).

multi_call_bad_nodes(Config) ->
    weir_server_same:check(fun(S) ->
        remote(Config, S, fun(_, Node) -> result(fun() -> S:multi_call([Node, 1], a_remote_name, state) end) end)
    end).

%% Run on the other node.

init_remote() -> {ok, #{}}.

count(State) -> {noreply, State#{cast => maps:get(cast, State, 0) + 1}}.

no_reply(_, State) -> {noreply, State}.

%% What gen_server does not have

with_state(_) ->
    Pid = server(weir_server, {local, a_client_name}),
    weir_server:cast(Pid, fun(State) -> {noreply, State#{a => 1, b => 2}} end),
    ?assertEqual(2, weir_server:with_state(Pid, fun maps:size/1)),
    ?assertEqual(1, weir_server:with_state(a_client_name, fun(#{a := A}) -> A end)),
    ?assertEqual(#{}, weir_server:with_state({a_client_name, node()}, fun(_) -> #{} end)),
    ?assertEqual(#{a => 1, b => 2}, weir_server:call(Pid, state, wait_ms())),
    ?assertError(function_clause, weir_server:with_state(Pid, fun() -> x end)),
    ok = weir_server:stop(Pid).

with_state_in_turn(_) ->
    Pid = server(weir_server),
    Self = self(),
    weir_server:cast(Pid, fun(State) -> Self ! held, receive {go, Self} -> {noreply, State} end end),
    receive held -> ok end,
    weir_server:cast(Pid, fun(State) -> {noreply, State#{a => 1}} end),
    spawn_link(fun() -> Self ! {result, weir_server:with_state(Pid, fun maps:keys/1)} end),
    until(fun() -> queue_len(Pid) =:= 2 end),
    weir_server:cast(Pid, fun(State) -> {noreply, State#{b => 2}} end),
    Pid ! {go, Self},
    ?assertEqual([a], receive {result, Keys} -> Keys end),
    ok = weir_server:stop(Pid).

%% The exception is the caller's, with the stack trace of the server; the server goes on.
with_state_raises(_) ->
    Pid = server(weir_server),
    [
        try weir_server:with_state(Pid, fun(_) -> erlang:Class(oops) end) of
            Returned -> ct:fail(Returned)
        catch
            Class:oops:Stacktrace -> ?assertMatch([_ | _], Stacktrace)
        end
     || Class <- [error, exit, throw]
    ],
    ?assertEqual(#{}, weir_server:call(Pid, state, wait_ms())),
    ok = weir_server:stop(Pid).

with_state_exits(_) ->
    Fun = fun maps:size/1,
    ?assertExit({noproc, {weir_server, with_state, [nobody, Fun]}}, weir_server:with_state(nobody, Fun)),
    Pid = server(weir_server),
    ?assertExit(
        {killed, {weir_server, with_state, [Pid, _]}},
        weir_server:with_state(Pid, fun(_) -> exit(self(), kill), receive never -> x end end)
    ).

mcall(_) ->
    Named = server(weir_server, {local, a_client_name}),
    Global = server(weir_server, {global, {a, client}}),
    {ok, Gen} = gen_server:start(?P, fun() -> {ok, #{}} end, []),
    Servers = [
        Named, a_client_name, {a_client_name, node()}, {global, {a, client}}, {via, global, {a, client}}, Gen, Gen
    ],
    Requests = lists:zip(Servers, [?P:answer(N) || N <- lists:seq(1, length(Servers))]),
    ?assertEqual({lists:zip(Servers, lists:seq(1, length(Servers))), []}, weir_server:mcall(Requests)),
    ?assertEqual({[], []}, weir_server:mcall([])),
    ?assertEqual([], weir_server_same:mailbox()),
    [ok = weir_server:stop(Server) || Server <- [Named, Global, Gen]].

mcall_fails(_) ->
    Pid = server(weir_server),
    [Dead, Nobody, Local, Global, Via, Refused, NoNode] = nobody(),
    register(a_client_name, self()),
    Requests = [
        {Pid, ?P:answer(1)}, {Dead, x}, {Nobody, x}, {Local, x}, {Global, x}, {Via, x}, {Refused, x}, {NoNode, x},
        {self(), x}, {a_client_name, x}, {{a_client_name, node()}, x},
        %% It ends when the next request is there: one that is sent to a dead process fails otherwise.
        {Pid, fun(_, State) ->
            ok = until(fun() -> weir_server:waiting() > 0 end),
            {stop, {shutdown, told}, State}
        end},
        {Pid, state}
    ],
    Failures = [
        {Dead, noproc}, {Nobody, noproc}, {Local, noproc}, {Global, noproc}, {Via, noproc}, {Refused, noproc},
        {NoNode, {nodedown, 'no@where'}},
        {self(), calling_self}, {a_client_name, calling_self}, {{a_client_name, node()}, calling_self},
        {Pid, {shutdown, told}}, {Pid, {shutdown, told}}
    ],
    ?assertEqual({[{Pid, 1}], Failures}, weir_server:mcall(Requests)),
    unregister(a_client_name),
    ?assertEqual([], weir_server_same:mailbox()).

mcall_is_concurrent(_) ->
    %% Each of two servers is kept until both are at it.
    [A, B] = [server(weir_server), server(weir_server)],
    Gate = spawn_link(fun() ->
        Arrived = [receive {arrived, Server} -> Server end || _ <- [A, B]],
        [Server ! {go, self()} || Server <- Arrived]
    end),
    Meet = fun(_, State) ->
        Gate ! {arrived, self()},
        receive {go, Gate} -> {reply, met, State} end
    end,
    ?assertEqual({[{A, met}, {B, met}], []}, weir_server:mcall([{A, Meet}, {B, Meet}])),
    [ok = weir_server:stop(Server) || Server <- [A, B]].

mcall_misuse(_) ->
    Pid = server(weir_server),
    Cast = {Pid, fun(_, State) -> {reply, ok, State#{called => x}} end},
    [
        ?assertError(badarg, weir_server:mcall(Bad))
     || Bad <- [[Cast, x], [Cast | x], [Cast, {"text", x}], [Cast, {{a, "b"}, x}], [Cast, {{via, "m", x}, x}]]
    ],
    ?assertError(function_clause, weir_server:mcall(x)),
    %% Nothing was sent.
    ?assertEqual(#{}, weir_server:call(Pid, state, wait_ms())),
    ok = weir_server:stop(Pid).

remote_mcall(Config) ->
    remote(Config, weir_server, fun(Pid, Node) ->
        ?assertEqual(
            {
                [{Pid, #{}}, {{a_remote_name, Node}, #{}}],
                [{{nobody, Node}, noproc}, {{nobody, 'no@127.0.0.1'}, {nodedown, 'no@127.0.0.1'}}]
            },
            weir_server:mcall([
                {Server, state}
             || Server <- [Pid, {a_remote_name, Node}, {nobody, Node}, {nobody, 'no@127.0.0.1'}]
            ])
        )
    end).

remote_info(Config) ->
    remote(Config, weir_server, fun(Pid, Node) ->
        [
            until(fun() ->
                {ok, #{waiting := Waiting}} = remote_info_of(Server),
                Waiting =:= 0
            end)
         || Server <- [Pid, {a_remote_name, Node}]
        ],
        ?assertEqual({error, noproc}, remote_info_of({nobody, Node})),
        ?assertEqual({error, not_weir_server}, remote_info_of({kernel_sup, Node})),
        ?assertEqual({error, {nodedown, 'no@127.0.0.1'}}, weir_server:info({nobody, 'no@127.0.0.1'}))
    end).

%% A node that is kept from answering for five seconds counts as down; this one is up.
remote_info_of(Server) ->
    case weir_server:info(Server) of
        {error, {nodedown, _}} -> remote_info_of(Server);
        Answer -> Answer
    end.

%% A node that has another build of the client's module, without the functions of this one, and not the module of the
%% function that it is sent.
remote_builds(_) ->
    {Peer, Node} = Other = weir_server_nodes:peer(),
    {ok, Client, Stub} = compile:forms([{attribute, 1, module, weir_server_client}]),
    {module, Client} = peer:call(Peer, code, load_binary, [Client, "stub", Stub], infinity),
    remote([{peer, Other}], weir_server, fun(Pid, _) ->
        ?assertEqual(0, weir_server:with_state(Pid, fun maps:size/1)),
        ?assertError(undef, weir_server:with_state(Pid, fun not_there:size/1)),
        ?assertEqual(#{}, weir_server:call(Pid, state, wait_ms())),
        %% As if it had no weir_server.
        ?assertEqual({error, {nodedown, Node}}, weir_server:info(Pid))
    end),
    weir_server_nodes:stop_peer(Other).

info(_) ->
    Pid = server(weir_server),
    ?assertMatch({ok, #{drained := 0}}, weir_server:info(Pid)),
    %% Also while a callback runs.
    Self = self(),
    weir_server:cast(Pid, fun(State) -> Self ! held, receive {go, Self} -> {noreply, State} end end),
    receive held -> ok end,
    weir_server:cast(Pid, fun(State) -> {noreply, State} end),
    ?assertMatch({ok, #{waiting := 1, mailbox := 1, drained := 0}}, weir_server:info(Pid)),
    Pid ! {go, Self},
    ?assertEqual({error, not_weir_server}, weir_server:info(self())),
    ?assertEqual({error, {nodedown, 'no@where'}}, weir_server:info({nobody, 'no@where'})),
    ok = weir_server:stop(Pid),
    ?assertEqual({error, noproc}, weir_server:info(Pid)),
    ?assertEqual({error, noproc}, weir_server:info(nobody_has_this_name)).

replies_to_many(_) ->
    Pid = server(weir_server),
    Self = self(),
    Held = fun(From, State) -> Self ! {from, From}, {noreply, State} end,
    Requests = [weir_server:send_request(Pid, Held) || _ <- [1, 2, 3]],
    Froms = [receive {from, From} -> From end || _ <- Requests],
    ok = weir_server:reply(lists:zip(Froms, [1, 2, 3])),
    ?assertEqual([{reply, N} || N <- [1, 2, 3]], [weir_server:receive_response(R, infinity) || R <- Requests]),
    ok = weir_server:reply([]),
    ?assertError(function_clause, weir_server:reply(x)),
    ok = weir_server:stop(Pid).

%% A gen_server takes the request that is only weir_server's for an info.
not_a_weir_server(_) ->
    {ok, Pid} = gen_server:start(?P, fun() -> {ok, #{}} end, []),
    ?assertEqual({error, not_weir_server}, weir_server:info(Pid)),
    %% It is not even sent anything: a suspended one leaves all but system messages where it is.
    ok = sys:suspend(Pid, wait_ms()),
    ?assertEqual({error, not_weir_server}, weir_server:info(Pid)),
    ?assertEqual({message_queue_len, 0}, process_info(Pid, message_queue_len)),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual(#{}, sys:get_state(Pid, wait_ms())),
    {Client, Ref} = spawn_monitor(fun() -> weir_server:with_state(Pid, fun maps:size/1) end),
    until(fun() -> sys:get_state(Pid, wait_ms()) =/= #{} end),
    ok = gen_server:stop(Pid),
    receive {'DOWN', Ref, process, Client, Reason} -> ?assertMatch({normal, {weir_server, with_state, _}}, Reason) end.
