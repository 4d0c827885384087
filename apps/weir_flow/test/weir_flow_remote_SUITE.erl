%% Windows on processes of another node, and on one that goes.
-module(weir_flow_remote_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).
-import(weir_flow_test_lib, [async/1, result/1, is_waiting/1]).

-define(RECEIVER, weir_flow_test_receiver).
-define(LONG_MS, weir_kit:wait_ms()).

all() -> [{group, at_the_same_time}].

%% Each case has a node of its own, and one waits for eleven seconds.
groups() -> [{at_the_same_time, [parallel], weir_kit:cases(?MODULE)}].

init_per_suite(Config0) ->
    Config = weir_kit:quiet(Config0),
    case is_alive() of
        true ->
            Config;
        false ->
            %% It goes to the background, and may take a moment until it listens.
            _ = os:cmd("epmd -daemon"),
            Name = list_to_atom("weir_flow_" ++ os:getpid()),
            until(fun() -> element(1, net_kernel:start(Name, #{name_domain => shortnames})) =:= ok end),
            [{distribution, started} | Config]
    end.

end_per_suite(Config) ->
    _ = proplists:is_defined(distribution, Config) andalso net_kernel:stop(),
    weir_kit:loud(Config).

init_per_testcase(_Case, Config) -> [{peer, start_peer(peer:random_name())} | Config].

end_per_testcase(_Case, Config) ->
    {Peer, _Node} = proplists:get_value(peer, Config),
    stop_peer(Peer),
    %% Those of other cases end, too.
    weir_flow_test_lib:no_stray().

start_peer(Name) ->
    {ok, Peer, Node} = peer:start(#{name => Name, connection => standard_io, wait_boot => weir_kit:wait_ms()}),
    Dirs = [filename:dirname(code:which(M)) || M <- [weir_flow, ?RECEIVER]],
    ok = weir_kit_nodes:call(Peer, code, add_pathsa, [Dirs]),
    %% While a dozen nodes start, one may take longer to shake hands than it is waited for; what was sent is lost then.
    until(fun() -> net_kernel:connect_node(Node) end),
    {Peer, Node}.

stop_peer(Peer) ->
    try
        peer:stop(Peer)
    catch
        exit:_ -> ok
    end.

%% A receiver on the peer, under a name or without.
receiver(Conf) -> receiver(Conf, none).

receiver(Config, Name) ->
    {Peer, _} = proplists:get_value(peer, Config),
    {ok, Pid} = weir_kit_nodes:call(Peer, ?RECEIVER, start, [gen_server, Name]),
    Pid.

queue(Config, Pid) ->
    {Peer, _} = proplists:get_value(peer, Config),
    {message_queue_len, Length} = weir_kit_nodes:call(Peer, erlang, process_info, [Pid, message_queue_len]),
    Length.

dests(Conf) ->
    {_, Node} = proplists:get_value(peer, Conf),
    [{none, fun(Pid) -> Pid end}, {{local, weir_flow_far}, fun(_) -> {weir_flow_far, Node} end}].

bound(Config) ->
    [
        begin
            Pid = receiver(Config, Name),
            ok = ?RECEIVER:block(Pid),
            Sender = async(fun() -> [weir_flow:cast(Dest(Pid), {note, N}, 4) || N <- lists:seq(1, 20)] end),
            until(fun() -> is_waiting(Sender) andalso queue(Config, Pid) =:= 4 end),
            ok = ?RECEIVER:release(Pid),
            ?assertEqual(lists:duplicate(20, ok), result(Sender)),
            ok = weir_kit:same(notes, lists:seq(1, 20), ?RECEIVER:notes(Pid)),
            ?RECEIVER:stop(Pid)
        end
     || {Name, Dest} <- dests(Config)
    ].

killed_while_waiting(Config) ->
    [
        begin
            Pid = receiver(Config, Name),
            ok = ?RECEIVER:block(Pid),
            Sender = async(fun() -> [weir_flow:cast(Dest(Pid), x, 3) || _ <- [1, 2, 3]] end),
            until(fun() -> is_waiting(Sender) end),
            ?RECEIVER:stop(Pid),
            ?assertEqual([ok, ok, {error, noproc}], result(Sender))
        end
     || {Name, Dest} <- dests(Config)
    ].

%% The watch was for the one that is gone: whoever has the name now does not know of its request.
restart_under_a_name(Config) ->
    {_, Node} = proplists:get_value(peer, Config),
    First = receiver(Config, {local, weir_flow_far}),
    Dest = {weir_flow_far, Node},
    ok = ?RECEIVER:block(First),
    Test = self(),
    Sender = async(fun() ->
        ok = weir_flow:cast(Dest, x, 2),
        {error, timeout} = weir_flow:cast(Dest, x, #{window => 2, timeout => 0}),
        Test ! watched,
        Waited = weir_flow:cast(Dest, x, 2),
        Test ! waited,
        receive
            {go_on, _Second} -> ok
        end,
        {Waited, [weir_flow:cast(Dest, {note, N}, #{window => 2, timeout => ?LONG_MS}) || N <- [1, 2, 3]]}
    end),
    receive
        watched -> ok
    end,
    until(fun() -> is_waiting(Sender) end),
    ?RECEIVER:stop(First),
    receive
        waited -> ok
    end,
    Second = receiver(Config, {local, weir_flow_far}),
    {Pid, _} = Sender,
    Pid ! {go_on, Second},
    ?assertEqual({{error, noproc}, [ok, ok, ok]}, result(Sender)),
    ?assertEqual([1, 2, 3], ?RECEIVER:notes(Second)).

%% It is noticed at the acknowledgement, and the window starts afresh.
nobody_has_the_name(Config) ->
    {_, Node} = proplists:get_value(peer, Config),
    Dest = {weir_flow_nobody, Node},
    Sender = async(fun() -> [weir_flow:cast(Dest, x, 3) || _ <- [1, 2, 3, 4]] end),
    ?assertEqual([ok, ok, {error, noproc}, ok], result(Sender)).

node_stopped_while_waiting(Config) ->
    {Peer, Node} = proplists:get_value(peer, Config),
    Pid = receiver(Config, {local, weir_flow_far}),
    ok = ?RECEIVER:block(Pid),
    Senders = [
        async(fun() -> [weir_flow:cast(Dest, x, How) || _ <- [1, 2]] end)
     || Dest <- [Pid, {weir_flow_far, Node}], How <- [2, #{window => 2, timeout => ?LONG_MS}]
    ],
    until(fun() -> lists:all(fun weir_flow_test_lib:is_waiting/1, Senders) end),
    stop_peer(Peer),
    [?assertEqual([ok, {error, noproc}], result(Sender)) || Sender <- Senders].

node_stopped_while_watched(Config) ->
    {Peer, Node} = proplists:get_value(peer, Config),
    Pid = receiver(Config, {local, weir_flow_far}),
    ok = ?RECEIVER:block(Pid),
    Test = self(),
    Senders = [
        async(fun() ->
            ok = weir_flow:cast(Dest, x, 2),
            {error, timeout} = weir_flow:cast(Dest, x, #{window => 2, timeout => 1}),
            Test ! {self(), watched},
            weir_flow:cast(Dest, x, 2)
        end)
     || Dest <- [Pid, {weir_flow_far, Node}]
    ],
    [
        receive
            {Sender, watched} -> ok
        end
     || {Sender, _} <- Senders
    ],
    until(fun() -> lists:all(fun weir_flow_test_lib:is_waiting/1, Senders) end),
    stop_peer(Peer),
    [?assertEqual({error, noproc}, result(Sender)) || Sender <- Senders].

node_stopped_and_started(Config) ->
    {Peer, Node} = proplists:get_value(peer, Config),
    Dest = {weir_flow_far, Node},
    Sender = async(fun() ->
        receiver(Config, {local, weir_flow_far}),
        ok = weir_flow:cast(Dest, x, 2),
        stop_peer(Peer),
        {error, noproc} = weir_flow:cast(Dest, x, 2),
        [Name, _Host] = string:split(atom_to_list(Node), "@"),
        %% epmd refuses a name as long as it has not seen that its node is gone.
        until(fun() -> not lists:keymember(Name, 1, element(2, {ok, _} = net_adm:names())) end),
        {Again, Node} = start_peer(Name),
        {ok, Pid} = weir_kit_nodes:call(Again, ?RECEIVER, start, [gen_server, {local, weir_flow_far}]),
        Results = [weir_flow:cast(Dest, {note, N}, 3) || N <- lists:seq(1, 10)],
        Notes = ?RECEIVER:notes(Pid),
        stop_peer(Again),
        {Results, Notes}
    end),
    %% The sender started the peer, so the mailbox may have messages of the peer.
    {Result, _} = weir_kit:result(Sender),
    ?assertEqual({lists:duplicate(10, ok), lists:seq(1, 10)}, Result).

timeout_and_what_is_left(Config) ->
    [
        begin
            Pid = receiver(Config, Name),
            ok = ?RECEIVER:block(Pid),
            Test = self(),
            Sender = async(fun() ->
                How = #{window => 4, timeout => 1},
                Results = [weir_flow:cast(Dest(Pid), {note, N}, How) || N <- [1, 2, 3, no, no]],
                Test ! timed_out,
                {Results, weir_flow:cast(Dest(Pid), {note, 4}, 4)}
            end),
            receive
                timed_out -> ok
            end,
            until(fun() -> is_waiting(Sender) andalso queue(Config, Pid) =:= 5 end),
            ok = ?RECEIVER:release(Pid),
            ?assertEqual({[ok, ok, ok, {error, timeout}, {error, timeout}], ok}, result(Sender)),
            ?assertEqual([1, 2, 3, 4], ?RECEIVER:notes(Pid)),
            ?RECEIVER:stop(Pid)
        end
     || {Name, Dest} <- dests(Config)
    ].

%% Nothing is known of a mailbox on another node: a request that was lost there is overdue after eleven seconds.
request_thrown_away(Config) ->
    Pid = receiver(Config),
    ok = ?RECEIVER:flush(Pid),
    Test = self(),
    Waiting = async(fun() ->
        Results = [weir_flow:cast(Pid, {note, N}, 2) || N <- [1, 2]],
        {Results, maps:get(Pid, weir_flow:windows())}
    end),
    %% Its watch asks.
    GivenUp = async(fun() ->
        ok = weir_flow:cast(Pid, {note, 3}, #{window => 2, timeout => 0}),
        Test ! given_up,
        Result = weir_flow:cast(Pid, {note, 4}, #{window => 2, timeout => ?LONG_MS}),
        {Result, maps:get(Pid, weir_flow:windows())}
    end),
    receive
        given_up -> ok
    end,
    until(fun() -> is_waiting(Waiting) andalso is_waiting(GivenUp) andalso queue(Config, Pid) =:= 4 end),
    ok = ?RECEIVER:release(Pid),
    ?assertMatch({[ok, ok], #{asked_again := Again, state := open}} when Again > 0, result(Waiting)),
    ?assertMatch({ok, #{asked_again := Again, state := open}} when Again > 0, result(GivenUp)),
    ?assertEqual([2, 4], lists:sort(?RECEIVER:notes(Pid))),
    ?RECEIVER:stop(Pid).

no_such_node(_Config) ->
    Dest = {weir_flow_nobody, list_to_atom("nowhere@" ++ net_adm:localhost())},
    ?assertEqual([ok, {error, noproc}], result(async(fun() -> [weir_flow:cast(Dest, x, 2) || _ <- [1, 2]] end))).

entries_of_nodes_that_are_gone(Config) ->
    {Peer, Node} = proplists:get_value(peer, Config),
    Sender = async(fun() ->
        Names = [list_to_atom("weir_flow_" ++ integer_to_list(N)) || N <- lists:seq(1, 1000)],
        [ok = weir_flow:send({Name, Node}, x) || Name <- Names],
        1000 = maps:size(weir_flow:windows()),
        stop_peer(Peer),
        until(fun() -> not lists:member(Node, nodes(connected)) end),
        Live = spawn(fun() -> receive stop -> ok end end),
        ok = weir_flow:send(Live, x),
        Left = maps:keys(weir_flow:windows()),
        exit(Live, kill),
        Left =:= [Live]
    end),
    ?assert(result(Sender)).

%% A limit is kept where the receiver is.
no_limit(Config) ->
    Pid = receiver(Config),
    {ok, _} = application:ensure_all_started(weir_flow),
    ?assertEqual({error, no_limit}, result(async(fun() -> weir_flow:cast(Pid, x, #{limit => wait}) end))),
    ?assertError(badarg, weir_flow:limit(Pid, 1)),
    ok = application:stop(weir_flow).
