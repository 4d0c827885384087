%% Windows on processes of another node, and on processes of a node that stops.
-module(weir_flow_remote_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1, wait_ms/0]).
-import(weir_flow_test_lib, [async/1, result/1, await/1]).
-import(weir_flow_test_receiver, [block/1, flush/1, release/1, notes/1]).

-define(TIMEOUT, {error, timeout}).
-define(NOPROC, {error, noproc}).

all() -> [{group, at_the_same_time}].

%% Each case has a node of its own, and one case waits for eleven seconds.
groups() -> [{at_the_same_time, [parallel], weir_kit:cases(?MODULE)}].

init_per_suite(Config) ->
    case is_alive() of
        true ->
            Config;
        false ->
            %% epmd may take a moment until it listens.
            _ = os:cmd("epmd -daemon"),
            Name = list_to_atom("weir_flow_" ++ os:getpid()),
            until(fun() -> element(1, net_kernel:start(Name, #{name_domain => shortnames})) =:= ok end),
            [{distribution, started} | Config]
    end.

end_per_suite(Config) ->
    proplists:is_defined(distribution, Config) andalso net_kernel:stop().

init_per_testcase(_Case, Config) ->
    {ok, Peer, Node} = peer:start(#{
        name => peer:random_name(), connection => standard_io, wait_boot => wait_ms()
    }),
    Dirs = [filename:dirname(code:which(M)) || M <- [weir_flow, ?MODULE, weir_kit]],
    ok = weir_kit_nodes:call(Peer, code, add_pathsa, [Dirs]),
    %% While many nodes start, one of them may take longer to shake hands than the runtime waits.
    until(fun() -> net_kernel:connect_node(Node) end),
    [{peer, Peer}, {node, Node} | Config].

end_per_testcase(_Case, Config) ->
    stop_peer(peer(Config)),
    weir_flow_test_lib:no_stray().

stop_peer(Peer) -> is_process_alive(Peer) andalso peer:stop(Peer).

peer(Conf) -> proplists:get_value(peer, Conf).

%% The name that a receiver has on the peer.
far(Conf) -> {weir_flow_far, proplists:get_value(node, Conf)}.

receiver(Conf) ->
    {ok, Pid} = weir_kit_nodes:call(peer(Conf), weir_flow_test_receiver, start, [gen_server, {local, weir_flow_far}]),
    Pid.

until_waiting(Senders, Pid, Length, Config) ->
    until(fun() ->
        lists:all(fun weir_flow_test_lib:is_waiting/1, Senders) andalso
            weir_kit_nodes:call(peer(Config), weir_kit, queue_len, [Pid]) =:= Length
    end).

casts(Dest, Notes, How) -> [weir_flow:cast(Dest, {note, N}, How) || N <- Notes].

%% The mailbox holds Window - 1 messages, the request of the sender, and the request of the watch.
bound(Config) ->
    Pid = receiver(Config),
    [
        begin
            ok = block(Pid),
            Sender = async(fun() ->
                ?assertEqual([ok, ok, ok, ?TIMEOUT], casts(Dest, [1, 2, 3, no], #{window => 4, timeout => 1})),
                casts(Dest, lists:seq(4, 20), 4)
            end),
            until_waiting([Sender], Pid, 5, Config),
            ok = release(Pid),
            ?assertEqual(lists:duplicate(17, ok), result(Sender))
        end
     || Dest <- [Pid, far(Config)]
    ],
    ok = weir_kit:same(notes, lists:seq(1, 20) ++ lists:seq(1, 20), notes(Pid)).

%% The watch was for the receiver that died. The successor has never got the request of the watch.
restart_under_a_name(Config) ->
    First = receiver(Config),
    ok = block(First),
    {Pid, _} = Sender = async(fun() ->
        ?assertEqual([ok, ?TIMEOUT], casts(far(Config), [0, no], #{window => 2, timeout => 0})),
        ?assertEqual([?NOPROC], casts(far(Config), [no], 2)),
        await(restarted),
        casts(far(Config), [1, 2, 3], #{window => 2, timeout => wait_ms()})
    end),
    until_waiting([Sender], First, 2, Config),
    weir_kit:kill(First),
    Second = receiver(Config),
    Pid ! restarted,
    ?assertEqual([ok, ok, ok], result(Sender)),
    ?assertEqual([1, 2, 3], notes(Second)).

%% The acknowledgement finds out, and the window starts afresh.
no_such_process(Config) ->
    {_, Node} = far(Config),
    [
        ?assertEqual([ok, ok, ?NOPROC, ok], result(async(fun() -> casts(Dest, [1, 2, 3, 4], 3) end)))
     || Dest <- [{weir_flow_none, Node}, {weir_flow_none, list_to_atom("nowhere@" ++ net_adm:localhost())}]
    ].

%% Senders wait for an answer, with and without a time limit, or for a watch.
node_stopped(Config) ->
    Pid = receiver(Config),
    ok = block(Pid),
    Senders = [
        async(fun() ->
            [?assertEqual([ok, ?TIMEOUT], casts(Dest, [1, no], #{window => 2, timeout => 1})) || How =:= watched],
            casts(Dest, [1, 2], case How of watched -> 2; _ -> How end)
        end)
     || Dest <- [Pid, far(Config)], How <- [2, #{window => 2, timeout => wait_ms()}, watched]
    ],
    until_waiting(Senders, Pid, 2 * (2 + 2 + 3), Config),
    stop_peer(peer(Config)),
    Results = [[ok, ?NOPROC], [ok, ?NOPROC], [?NOPROC, ok]],
    ?assertEqual(Results ++ Results, [result(Sender) || Sender <- Senders]).

%% The sender and its watch cannot see a mailbox on another node, and ask again after eleven seconds.
request_thrown_away(Config) ->
    Pid = receiver(Config),
    ok = flush(Pid),
    Senders = [
        async(fun() -> {casts(Pid, [1], First), casts(Pid, [2], 2), maps:get(Pid, weir_flow:windows())} end)
     || First <- [2, #{window => 2, timeout => 0}]
    ],
    until_waiting(Senders, Pid, 4, Config),
    ok = release(Pid),
    [
        ?assertMatch({[ok], [ok], #{asked_again := Again, state := open}} when Again > 0, result(Sender))
     || Sender <- Senders
    ],
    ?assertEqual([2, 2], notes(Pid)).

entries_of_stopped_nodes_are_swept(Config) ->
    {_, Node} = far(Config),
    result(async(fun() ->
        Names = [list_to_atom("weir_flow_" ++ integer_to_list(N)) || N <- lists:seq(1, 1000)],
        [ok = weir_flow:send({Name, Node}, x) || Name <- Names],
        1000 = maps:size(weir_flow:windows()),
        stop_peer(peer(Config)),
        until(fun() -> not lists:member(Node, nodes(connected)) end),
        Live = spawn(fun() -> receive never -> ok end end),
        ok = weir_flow:send(Live, x),
        ?assertEqual([Live], maps:keys(weir_flow:windows())),
        exit(Live, kill)
    end)).

%% The table of limits is on the node of the receiver.
no_limit(Config) ->
    Pid = receiver(Config),
    {ok, _} = application:ensure_all_started(weir_flow),
    ?assertEqual({error, no_limit}, result(async(fun() -> weir_flow:cast(Pid, x, #{limit => wait}) end))),
    ?assertError(badarg, weir_flow:limit(Pid, 1)),
    ok = application:stop(weir_flow).
