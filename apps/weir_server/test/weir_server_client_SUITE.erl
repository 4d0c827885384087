%% The functions of clients: gen_server is the oracle (weir_server_same) for all functions that it has.
-module(weir_server_client_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [queue_len/1, until/1, wait_ms/0]).
-import(weir_server_same, [check/1, check_all/1, result/1, mailbox/0]).

-define(P, weir_server_puppet).
%% Terms that name no server.
-define(WRONG, ["text", 1, {a, b, c}, {1, 2}, make_ref(), <<>>, {}]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_server_same:silence(Config).

end_per_suite(Config) -> weir_server_same:unsilence(Config).

server(S) -> server(S, none).

server(S, Name) ->
    Init = fun() -> {ok, #{}} end,
    {ok, Pid} =
        case Name of
            none -> S:start(?P, Init, []);
            _ -> S:start(Name, ?P, Init, [])
        end,
    Pid.

%% The names of a server, each with the way in which a client writes it.
refs() ->
    [
        {none, fun(Pid) -> Pid end},
        {{local, a_client_name}, fun(_) -> a_client_name end},
        {{local, a_client_name}, fun(_) -> {a_client_name, node()} end},
        {{global, {a, client}}, fun(_) -> {global, {a, client}} end},
        {{via, global, {a, client}}, fun(_) -> {via, global, {a, client}} end}
    ].

%% Servers that are not there.
nobody() ->
    Dead = spawn(fun() -> ok end),
    _ = weir_kit:await_down(Dead),
    [
        Dead, nobody, {nobody, node()}, {global, nobody}, {via, global, nobody}, {via, weir_server_refuser, nobody},
        {nobody, 'no@where'}
    ].

%% A call whose answer never comes.
never(_From, State) -> {noreply, State}.

%% ---------------------------------------------------------------- calls and casts

calls(_) ->
    check_all([
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
            {Replies, S:stop(Server), mailbox()}
        end}
     || {Name, Ref} <- refs()
    ]).

calls_fail(_) ->
    check_all([
        {{Server, Args}, fun(S) -> result(fun() -> apply(S, call, [Server, x | Args]) end) end}
     || Server <- nobody() ++ ?WRONG, Args <- [[], [infinity], [0], [1000], [-1], [1.5], [never]]
    ] ++ [
        {self, fun(S) ->
            register(a_client_name, self()),
            [result(fun() -> S:call(Self, x, 1000) end) || Self <- [self(), a_client_name, {a_client_name, node()}]]
        end},
        {timeout, fun(S) ->
            Pid = server(S),
            Times = [result(fun() -> S:call(Pid, fun ?MODULE:never/2, Time) end) || Time <- [0, 1]],
            {Times, S:stop(Pid), mailbox()}
        end},
        {uncaught, fun(S) ->
            {Pid, Ref} = spawn_monitor(fun() -> S:call(nobody, {some, "request"}) end),
            weir_server_loop_lib:down(Ref, Pid)
        end}
    ]).

late_answer_is_dropped(_) ->
    check(fun(S) ->
        Pid = server(S),
        Self = self(),
        Late = fun(From, St) -> Self ! {late, From}, {noreply, St} end,
        Timeout = result(fun() -> S:call(Pid, Late, 1) end),
        From = receive {late, Client} -> Client end,
        ok = S:reply(From, too_late),
        {element(1, Timeout), S:call(Pid, state, wait_ms()), S:stop(Pid), mailbox()}
    end).

casts(_) ->
    check_all([
        {{Name, Ref}, fun(S) ->
            Pid = server(S, Name),
            ok = S:cast(Ref(Pid), fun ?MODULE:count/1),
            {S:call(Pid, state, wait_ms()), S:stop(Pid)}
        end}
     || {Name, Ref} <- refs()
    ] ++ [
        {Server, fun(S) -> result(fun() -> S:cast(Server, x) end) end}
     || Server <- nobody() ++ ?WRONG
    ] ++ [
        {abcast, fun(S) ->
            Pid = server(S, {local, a_client_name}),
            Count = fun ?MODULE:count/1,
            Results = [
                result(fun() -> apply(S, abcast, Args) end)
             || Args <- [
                    [a_client_name, Count], [[node()], a_client_name, Count], [[], a_client_name, Count],
                    [[node(), 'no@where'], a_client_name, Count], [nobody, x], ["nobody", x], [[node()], "nobody", x],
                    [node(), nobody, x], [[1], nobody, x]
                ]
            ],
            {Results, S:call(Pid, state, wait_ms()), S:stop(Pid)}
        end}
    ]).

count(State) -> {noreply, State#{cast => maps:get(cast, State, 0) + 1}}.

%% Tags of older releases are tags, too.
replies(_) ->
    check(fun(S) ->
        Alias = alias(),
        Tags = [a_tag, make_ref(), [alias | Alias], [[alias | Alias] | more]],
        {[S:reply({self(), Tag}, answer) || Tag <- Tags] ++ [S:reply({not_a_process, tag}, answer)], mailbox()}
    end).

multi_calls_of_this_node(_) ->
    check_all([
        {Args, fun(S) ->
            Pid = server(S, {local, a_client_name}),
            {result(fun() -> apply(S, multi_call, Args) end), S:stop(Pid), mailbox()}
        end}
     || Args <- [
            [a_client_name, state], [[node()], a_client_name, state], [[node()], a_client_name, state, infinity],
            [[node()], a_client_name, state, 60000], [[node()], nobody, state], [[], a_client_name, state],
            [['no@where'], a_client_name, state, 60000],
            ["text", x], [[node()], "text", x], [node(), name, x], [[node()], name, x, -1], [[node()], name, x, never],
            [[1], name, x], [[1], name, x, 1]
        ]
    ]).

%% ---------------------------------------------------------------- requests

requests(_) ->
    check_all([
        {{Name, Ref}, fun(S) ->
            Pid = server(S, Name),
            Send = fun(Request) -> S:send_request(Ref(Pid), Request) end,
            Now = erlang:monotonic_time(millisecond),
            Waited = S:wait_response(Send(?P:answer(1)), infinity),
            Received = S:receive_response(Send(?P:answer(2)), 60000),
            Absolute = S:receive_response(Send(?P:answer(3)), {abs, Now + 60000}),
            Waits = Send(fun ?MODULE:never/2),
            Past = S:wait_response(Waits, {abs, Now - 1}),
            Never = S:receive_response(Send(fun ?MODULE:never/2), 1),
            Checked = Send(?P:answer(4)),
            None = S:check_response(something_else, Checked),
            Found = receive Msg -> S:check_response(Msg, Checked) end,
            Ends = Send(fun(_, St) -> {stop, shutdown, St} end),
            Ended = [S:receive_response(Request, infinity) || Request <- [Ends, Waits]],
            {Waited, Received, Absolute, Past, Never, None, Found, Ended, mailbox()}
        end}
     || {Name, Ref} <- refs()
    ] ++ [
        {Server, fun(S) -> S:receive_response(S:send_request(Server, x), infinity) end}
     || Server <- nobody()
    ]).

collections(_) ->
    check_all([
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
                No, C, LabelC, S:stop(Pid), mailbox()
            }
        end}
     || Delete <- [true, false]
    ] ++ [
        {times_out, fun(S) ->
            Pid = server(S),
            Self = self(),
            Held = fun(From, St) -> Self ! {from, From}, {noreply, St} end,
            Requests = S:send_request(Pid, Held, b, S:send_request(Pid, Held, a, S:reqids_new())),
            Froms = [receive {from, From} -> From end || _ <- [a, b]],
            Waited = S:wait_response(Requests, 1, true),
            GivenUp = S:receive_response(Requests, 1, true),
            [S:reply(From, late) || From <- Froms],
            {Waited, GivenUp, S:call(Pid, state, wait_ms()), S:stop(Pid), mailbox()}
        end}
    ]).

wrong_requests(_) ->
    Ref = make_ref(),
    New = gen_server:reqids_new(),
    Added = gen_server:reqids_add(Ref, l, New),
    check_all([
        {{Function, Args}, fun(S) -> result(fun() -> apply(S, Function, Args) end) end}
     || {Function, Args} <- [
            {wait_response, [x, 0]}, {wait_response, [Ref, -1]}, {wait_response, [Ref, {abs, x}]},
            {wait_response, [Ref, 1 bsl 32]}, {wait_response, [x, 0, true]}, {wait_response, [New, 0, x]},
            {receive_response, [x, 0]}, {receive_response, [Ref, x]}, {receive_response, [x, 0, true]},
            {check_response, [msg, x]}, {check_response, [msg, x, true]},
            {send_request, [nobody, x, label, not_a_collection]},
            {reqids_size, [x]}, {reqids_add, [x, label, New]}, {reqids_add, [Ref, l, Added]}, {reqids_to_list, [x]}
        ]
    ]).

%% ---------------------------------------------------------------- functions that gen_server has not

with_state_gives_a_function_of_the_state(_) ->
    Pid = server(weir_server, {local, a_client_name}),
    weir_server:cast(Pid, fun(State) -> {noreply, State#{a => 1, b => 2}} end),
    ?assertEqual(2, weir_server:with_state(Pid, fun maps:size/1)),
    ?assertEqual(1, weir_server:with_state(a_client_name, fun(#{a := A}) -> A end)),
    ?assertEqual(#{}, weir_server:with_state({a_client_name, node()}, fun(_) -> #{} end)),
    ?assertError(function_clause, weir_server:with_state(Pid, fun() -> x end)),
    ?assertEqual(#{a => 1, b => 2}, weir_server:call(Pid, state, wait_ms())),
    ok = weir_server:stop(Pid),
    Size = fun maps:size/1,
    ?assertExit({noproc, {weir_server, with_state, [nobody, Size]}}, weir_server:with_state(nobody, Size)).

%% The exception has the stack trace of the server, and the server goes on.
with_state_raises_in_the_caller(_) ->
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
    ?assertExit(
        {killed, {weir_server, with_state, [Pid, _]}},
        weir_server:with_state(Pid, fun(_) -> exit(self(), kill), receive never -> x end end)
    ).

%% A gen_server takes the request of with_state/2 for an info. info/1 sends it no request at all, so a suspended one
%% has nothing in its mailbox.
gen_server_is_no_weir_server(_) ->
    Pid = server(gen_server),
    ok = sys:suspend(Pid, wait_ms()),
    ?assertEqual({error, not_weir_server}, weir_server:info(Pid)),
    ?assertEqual(0, queue_len(Pid)),
    ok = sys:resume(Pid, wait_ms()),
    ?assertEqual(#{}, sys:get_state(Pid, wait_ms())),
    {Client, Ref} = spawn_monitor(fun() -> weir_server:with_state(Pid, fun maps:size/1) end),
    until(fun() -> sys:get_state(Pid, wait_ms()) =/= #{} end),
    ok = gen_server:stop(Pid),
    ?assertMatch({normal, {weir_server, with_state, _}}, weir_server_loop_lib:down(Ref, Client)).

info_without_a_server(_) ->
    Pid = server(weir_server),
    ?assertMatch({ok, #{waiting := 0, mailbox := 0, drained := 0, max_queue := infinity}}, weir_server:info(Pid)),
    ok = weir_server:stop(Pid),
    [
        ?assertEqual({Server, {error, Reason}}, {Server, weir_server:info(Server)})
     || {Server, Reason} <- [
            {Pid, noproc}, {nobody, noproc}, {self(), not_weir_server}, {{nobody, 'no@where'}, {nodedown, 'no@where'}}
        ]
    ].

reply_answers_many_calls(_) ->
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

mcall_answers_in_the_order_of_the_requests(_) ->
    Named = server(weir_server, {local, a_client_name}),
    Global = server(weir_server, {global, {a, client}}),
    Gen = server(gen_server),
    Servers = [
        Named, a_client_name, {a_client_name, node()}, {global, {a, client}}, {via, global, {a, client}}, Gen, Gen
    ],
    Numbers = lists:seq(1, length(Servers)),
    ?assertEqual(
        {lists:zip(Servers, Numbers), []}, weir_server:mcall(lists:zip(Servers, [?P:answer(N) || N <- Numbers]))
    ),
    ?assertEqual({[], []}, weir_server:mcall([])),
    ?assertEqual([], mailbox()),
    [ok = weir_server:stop(Server) || Server <- [Named, Global, Gen]].

mcall_says_why_a_server_does_not_answer(_) ->
    Pid = server(weir_server),
    Nobody = nobody(),
    register(a_client_name, self()),
    Selves = [self(), a_client_name, {a_client_name, node()}],
    %% The server ends when the next request is there. A request to a dead server fails for another reason.
    Ends = fun(_, State) ->
        ok = until(fun() -> weir_server:waiting() > 0 end),
        {stop, {shutdown, told}, State}
    end,
    Requests = [{Pid, ?P:answer(1)}] ++ [{Server, x} || Server <- Nobody ++ Selves] ++ [{Pid, Ends}, {Pid, state}],
    Failures =
        [{Server, noproc} || Server <- lists:droplast(Nobody)] ++
            [{lists:last(Nobody), {nodedown, 'no@where'}}] ++
            [{Server, calling_self} || Server <- Selves] ++
            [{Pid, {shutdown, told}}, {Pid, {shutdown, told}}],
    ?assertEqual({[{Pid, 1}], Failures}, weir_server:mcall(Requests)),
    unregister(a_client_name),
    ?assertEqual([], mailbox()).

%% Each of two servers waits until both handle their request.
mcall_is_concurrent(_) ->
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

wrong_mcall_sends_nothing(_) ->
    Pid = server(weir_server),
    Call = {Pid, fun(_, State) -> {reply, ok, State#{called => x}} end},
    [
        ?assertError(badarg, weir_server:mcall(Bad))
     || Bad <- [[Call, x], [Call | x], [Call, {"text", x}], [Call, {{a, "b"}, x}], [Call, {{via, "m", x}, x}]]
    ],
    ?assertError(function_clause, weir_server:mcall(x)),
    ?assertEqual(#{}, weir_server:call(Pid, state, wait_ms())),
    ok = weir_server:stop(Pid).

%% ---------------------------------------------------------------- other nodes

%% Calls Do with a server of another node that has the name a_remote_name.
remote(Node, S, Do) ->
    Start = [{local, a_remote_name}, ?P, fun ?MODULE:init_remote/0, []],
    {ok, Pid} = erpc:call(Node, S, start, Start),
    Result = Do(Pid, {a_remote_name, Node}),
    {Result, S:stop({a_remote_name, Node}), mailbox()}.

init_remote() -> {ok, #{}}.

servers_of_other_nodes(_) -> weir_server_same:on_two_nodes(?MODULE, servers_of).

%% Runs on a node of its own.
servers_of(Node) when is_atom(Node) ->
    Down = no@localhost,
    Count = fun ?MODULE:count/1,
    Nodes = [Node, node(), Down],
    Nobody = [{nobody, Node}, {nobody, Down}],
    check_all([
        {What, fun(S) -> remote(Node, S, fun(Pid, Name) -> Do(S, Pid, Name) end) end}
     || {What, Do} <- [
            {calls, fun(S, Pid, Name) ->
                [result(fun() -> S:call(To, state, Time) end) || To <- [Pid, Name | Nobody], Time <- [60000, infinity]]
            end},
            {stops, fun(S, _, _) -> [result(fun() -> S:stop(Server) end) || Server <- Nobody] end},
            {casts, fun(S, Pid, Name) ->
                Results = [
                    S:cast(Pid, Count), S:cast(Name, Count), S:abcast(a_remote_name, Count),
                    S:abcast(Nodes, a_remote_name, Count)
                ],
                {Results, S:call(Pid, state, infinity)}
            end},
            {requests, fun(S, Pid, Name) ->
                [S:receive_response(S:send_request(To, state), infinity) || To <- [Pid, Name | Nobody]]
            end},
            {multi_calls, fun(S, _, _) ->
                Local = server(S, {local, a_remote_name}),
                Results = [
                    S:multi_call(a_remote_name, state), S:multi_call(Nodes, a_remote_name, state),
                    S:multi_call(Nodes, a_remote_name, state, infinity),
                    S:multi_call(Nodes, a_remote_name, state, 60000), S:multi_call(Nodes, nobody, state)
                ],
                {[{lists:sort(Good), lists:sort(Bad)} || {Good, Bad} <- Results], S:stop(Local)}
            end},
            {multi_call_times_out, fun(S, Pid, _) ->
                {Good, Bad} = S:multi_call([Node, Down], a_remote_name, fun ?MODULE:never/2, 1),
                {Good, lists:sort(Bad), S:call(Pid, state, infinity)}
            end},
            {multi_call_of_no_node, fun(S, _, _) ->
                result(fun() -> S:multi_call([Node, 1], a_remote_name, state) end)
            end}
        ]
    ]),
    remote(Node, weir_server, fun(Pid, Name) ->
        ?assertEqual(
            {[{Pid, #{}}, {Name, #{}}], [{{nobody, Node}, noproc}, {{nobody, Down}, {nodedown, Down}}]},
            weir_server:mcall([{Server, state} || Server <- [Pid, Name | Nobody]])
        ),
        [?assertMatch({ok, #{waiting := _}}, info_of(Server)) || Server <- [Pid, Name]],
        ?assertEqual({error, noproc}, info_of({nobody, Node})),
        ?assertEqual({error, not_weir_server}, info_of({kernel_sup, Node})),
        ?assertEqual({error, {nodedown, Down}}, weir_server:info({nobody, Down}))
    end).

%% A node that does not answer for five seconds counts as down. The node of the test is up.
info_of(Server) ->
    case weir_server:info(Server) of
        {error, {nodedown, _}} -> info_of(Server);
        Answer -> Answer
    end.

node_with_another_build(_) -> weir_server_same:on_two_nodes(?MODULE, another_build_of).

%% Runs on a node of its own. The other node has a build of the client's module without the functions of this one, and
%% does not have the module of the function that with_state/2 sends.
another_build_of(Node) when is_atom(Node) ->
    {ok, Client, Stub} = compile:forms([{attribute, 1, module, weir_server_client}]),
    {module, Client} = erpc:call(Node, code, load_binary, [Client, "stub", Stub]),
    remote(Node, weir_server, fun(Pid, _) ->
        ?assertEqual(0, weir_server:with_state(Pid, fun maps:size/1)),
        ?assertError(undef, weir_server:with_state(Pid, fun not_there:size/1)),
        ?assertEqual(#{}, weir_server:call(Pid, state, wait_ms())),
        ?assertEqual({error, {nodedown, Node}}, weir_server:info(Pid))
    end).
