%% A healthy node: an agent diagnoses nothing there. weir_watch_faults_SUITE has nodes with faults.
-module(weir_watch_healthy_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

%% An agent finds nothing in a healthy node, which uses half of two cores. The node has servers, pools, timers, sockets,
%% TLS, logs and a cache, also Weir's own, and processes that come and go. The long form takes an hour.
healthy(_Config) ->
    ?assertEqual([], weir_watch_test_lib:in_node([], ?MODULE, healthy_for, [weir_kit:long(10, 3600)])).

healthy_for(Seconds) ->
    ok = weir_watch_healthy:start(),
    ok = weir_watch_agent:subscribe(weir_watch_agent),
    told_in(Seconds, []).

told_in(0, Diagnoses) ->
    Diagnoses;
told_in(Seconds, Diagnoses) ->
    receive
        {weir_watch, Agent, #{diagnoses := New, limits := Limits} = Snapshot} ->
            ok = weir_watch_agent:next(Agent),
            %% The long form shows an alarm at once.
            _ = [io:format(standard_error, "~tp~n~tp~n", [New, Limits]) || New =/= []],
            %% A mailbox may be long because the machine gives the node too little. That is no false alarm.
            IsStarved = weir_watch_test_lib:says(Snapshot, "processor time"),
            IsFalse = fun(#{evidence := Evidence}) ->
                not IsStarved orelse maps:get(least_queue, Evidence, 0) < 1000
            end,
            told_in(Seconds - 1, lists:filter(IsFalse, New) ++ Diagnoses)
    end.
