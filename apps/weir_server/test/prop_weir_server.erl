%% gen_server as the oracle: the same script of messages, sent to both, must leave the same answers, the
%% same history in the same order, and the same end. The scripts are sent while the servers are held in
%% a callback, so that weir_server drains them together.
-module(prop_weir_server).

%% Debian's PropEr comes without its header file, so its functions are called by name.
-import(proper, [forall/2, whenfail/2]).
-import(proper_types, [list/1, oneof/1, frequency/1, int/0]).

-export([prop_same_as_gen_server/0]).

prop_same_as_gen_server() ->
    forall({list(step()), oneof([1, 2, 3, 10, 1000])}, fun({Script, Drain}) ->
        Expected = run(gen_server, Script, []),
        Actual = run(weir_server, Script, [{drain, Drain}]),
        whenfail(
            fun() -> io:format("gen_server: ~p~nweir_server: ~p~n", [Expected, Actual]) end,
            fun() -> Expected =:= Actual end
        )
    end).

step() ->
    oneof([
        {cast, order()},
        {info, order()},
        {call, call_order()}
    ]).

order() ->
    frequency([
        {10, int()},
        {2, {noreply, oneof([infinity, hibernate, 60000])}},
        {2, {noreply, {continue, int()}}},
        {1, {noreply, {continue, {noreply, {continue, int()}}}}},
        {1, {throw, noreply}},
        {1, {stop, oneof([normal, shutdown])}}
    ]).

call_order() ->
    frequency([
        {5, {reply, int()}},
        {2, {reply, int(), oneof([infinity, hibernate, 60000, {continue, int()}])}},
        {2, {reply_later, int()}},
        {1, {throw, {reply, int()}}},
        {1, {stop, normal, int()}},
        {1, {stop, shutdown}}
    ]).

run(S, Script, Options) ->
    {ok, Pid} = S:start(weir_server_echo, {tell, self()}, Options),
    Ref = monitor(process, Pid),
    Hold = make_ref(),
    S:cast(Pid, {wait_for, Hold, self()}),
    receive {waiting, Hold} -> ok end,
    Requests = [send(S, Pid, Step) || Step <- Script],
    S:cast(Pid, {stop, normal}),
    Pid ! Hold,
    Answers = [gen_server:receive_response(Request, infinity) || Request <- Requests, Request =/= none],
    {Reason, Seen} = receive {terminated, Pid, R, [_ | S1]} -> {R, S1} end,
    Down = receive {'DOWN', Ref, process, Pid, D} -> D end,
    {[answer(A) || A <- Answers], Reason, Down, Seen}.

send(S, Pid, {cast, Order}) ->
    S:cast(Pid, Order),
    none;
send(_, Pid, {info, Order}) ->
    Pid ! Order,
    none;
send(_, Pid, {call, Order}) ->
    gen_server:send_request(Pid, Order).

answer({reply, Reply}) -> {reply, Reply};
answer({error, {Reason, _}}) -> {error, Reason}.
