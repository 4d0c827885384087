%% @doc Benchmark: how evenly {@link weir_cluster_policy} spreads requests over many nodes, simulated.
%%
%% As many nodes call as serve, none of them has room, and each request goes elsewhere: the worst case for a choice by
%% what was heard some time ago. Requests come at random (Poisson), are worked at for 10 ms in the mean (exponential),
%% and wait in their node for one of four workers, first come, first served. A client knows the load of a node from its
%% last pong, each half second for twenty nodes, and from the last reply; and how many requests it has sent since. A
%% node whose workers have two requests each, where the client expects fewer, says so, and the client tries another
%% one; the third takes the request as it is. What a try takes is not simulated, nor that a node which gets requests is
%% pinged more often than others.
%%
%% Beside it are the same without that, a node at random, and the least loaded of all by what is true at the moment,
%% which nobody can have.
-module(weir_bench_cluster_policy).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-define(WORKERS, 4).
-define(SERVICE_MS, 10.0).
-define(TRIES, 3).
-define(ROOM, 2).
%% Pongs are told in ten turns, each for a tenth of the clients.
-define(TURNS, 10).
-define(TURN_MS, 50.0).
%% So many nodes are pinged each half second.
-define(PINGED, 20).

-type policy() :: weir_cluster | heard | random | least.

-record(sim, {
    policy :: policy(),
    nodes :: pos_integer(),
    %% Calls under way, and when each worker is free.
    under :: #{pos_integer() => non_neg_integer()},
    free :: #{pos_integer() => [float()]},
    %% The loads that were told in each turn, and when.
    told = #{} :: #{non_neg_integer() => {float(), #{pos_integer() => non_neg_integer()}}},
    %% Of a client and a node: the load in the last reply, or pong, when it came, until when it is known, and what was
    %% sent since.
    replies = #{} :: #{{pos_integer(), pos_integer()} => {non_neg_integer(), float(), float(), non_neg_integer()}},
    done = gb_sets:new() :: gb_sets:set({float(), reference(), pos_integer(), pos_integer()}),
    turn = 0 :: non_neg_integer(),
    waits = [] :: [float()]
}).

%% @doc The benchmark's name.
-spec title() -> string().
title() -> "cluster policy: simulated requests over many nodes".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, #{nodes => [4, 32, 1000], requests => 50_000}).

%% @doc The same in other sizes.
-spec run(pos_integer(), #{nodes := [pos_integer()], requests := pos_integer()}) -> [weir_bench_part:table()].
run(Rounds, #{nodes := Counts, requests := Requests}) ->
    [table(Rounds, Count, Busy, Requests) || Count <- Counts, Busy <- [0.7, 0.9]].

table(Rounds, Count, Busy, Requests) ->
    [Ours, Heard, Random, Least] = weir_bench_rounds:run(Rounds, [
        #{name => name(Policy), run => fun() -> wait_99(Policy, Count, Busy, Requests) end}
     || Policy <- [weir_cluster, heard, random, least]
    ]),
    #{
        title => io_lib:format("~b nodes of ~b workers, ~b % busy: 99 of 100 wait at most", [
            Count, ?WORKERS, round(100 * Busy)
        ]),
        unit => "ms", better => lower, ours => [Ours], peers => [Random], beside => [Heard, Least], notes => []
    }.

name(weir_cluster) -> "weir_cluster";
name(heard) -> "the same, never refused";
name(random) -> "a random one";
name(least) -> "the least loaded of all, by what is true".

%% What 99 of 100 requests wait for a worker, at most, in milliseconds.
-spec wait_99(policy(), pos_integer(), float(), pos_integer()) -> float().
wait_99(Policy, Count, Busy, Requests) ->
    All = lists:seq(1, Count),
    Sim = #sim{
        policy = Policy,
        nodes = Count,
        under = maps:from_list([{Node, 0} || Node <- All]),
        free = maps:from_list([{Node, lists:duplicate(?WORKERS, 0.0)} || Node <- All])
    },
    Between = ?SERVICE_MS / (Busy * ?WORKERS * Count),
    #sim{waits = Waits} = arrivals(Requests, 0.0, Between, Sim),
    %% Without the first half, in which queues grow to what they are.
    weir_bench_rounds:quantile(0.99, lists:sublist(Waits, Requests div 2)).

arrivals(0, _Now, _Between, Sim) ->
    Sim;
arrivals(Requests, Before, Between, Sim) ->
    Now = Before + exponential(Between),
    #sim{nodes = Count} = Ready = finished(Now, turns(Now, Sim)),
    Client = rand:uniform(Count),
    arrivals(Requests - 1, Now, Between, try_to_send(?TRIES, Now, Client, Ready)).

try_to_send(Tries, Now, Client, #sim{policy = Policy, under = Under, replies = Replies} = Sim) ->
    Node = chosen(Now, Client, Sim),
    #{Node := Calls} = Under,
    Expects = Policy =:= weir_cluster andalso Tries > 1 andalso expects_room(known(Now, Client, Node, Sim)),
    case Expects andalso Calls >= ?ROOM * ?WORKERS of
        true -> try_to_send(Tries - 1, Now, Client, Sim#sim{replies = Replies#{{Client, Node} => replied(Calls, Now)}});
        false -> sent(Now, Client, Node, Sim)
    end.

replied(Calls, Now) -> {Calls, Now, Now + 1000, 0}.

expects_room(unknown) -> true;
expects_room(Load) -> Load < ?ROOM.

exponential(Mean) -> -Mean * math:log(rand:uniform_real()).

%% Whose turn it was is told the loads of then.
turns(Now, #sim{turn = Turn, told = Told} = Sim) ->
    At = Turn * ?TURN_MS * half_seconds(Sim),
    case At =< Now of
        true ->
            #sim{under = Under} = Then = finished(At, Sim),
            turns(Now, Then#sim{turn = Turn + 1, told = Told#{Turn rem ?TURNS => {At, Under}}});
        false ->
            Sim
    end.

%% Until each node was pinged.
half_seconds(#sim{nodes = Count}) -> (Count + ?PINGED - 1) div ?PINGED.

finished(Now, #sim{done = Done, under = Under, replies = Replies} = Sim) ->
    case gb_sets:is_empty(Done) orelse gb_sets:take_smallest(Done) of
        {{At, _, Client, Node}, Others} when At =< Now ->
            #{Node := Calls} = Under,
            Heard = case is_heard(Sim) of
                true -> Replies#{{Client, Node} => replied(Calls - 1, At)};
                false -> Replies
            end,
            finished(Now, Sim#sim{done = Others, under = Under#{Node := Calls - 1}, replies = Heard});
        _ ->
            Sim
    end.

%% The others need not know anything.
is_heard(#sim{policy = Policy}) -> Policy =:= weir_cluster orelse Policy =:= heard.

chosen(_Now, _Client, #sim{policy = random, nodes = Count}) ->
    rand:uniform(Count);
chosen(_Now, _Client, #sim{policy = least, under = Under}) ->
    {_, _, Node} = lists:min([{Calls, rand:uniform(), Node} || {Node, Calls} <- maps:to_list(Under)]),
    Node;
chosen(Now, Client, #sim{nodes = Count} = Sim) ->
    First = rand:uniform(Count),
    Second = (First + rand:uniform(Count - 1) - 1) rem Count + 1,
    Names = #{'first@simulated' => First, 'second@simulated' => Second},
    Candidates = [
        #{node => Name, zone => none, weight => ?WORKERS, load => known(Now, Client, Node, Sim)}
     || {Name, Node} <- maps:to_list(Names)
    ],
    maps:get(weir_cluster_policy:choose(none, Candidates), Names).

known(Now, Client, Node, Sim) ->
    case heard(Client, Node, Sim) of
        {Calls, _, Until, Since} when Now =< Until -> (Calls + Since) / ?WORKERS;
        _ -> unknown
    end.

%% By the last pong or the last reply, whichever came later.
heard(Client, Node, #sim{told = Told, replies = Replies} = Sim) ->
    Replied = maps:get({Client, Node}, Replies, none),
    case {Told, Replied} of
        {#{Client rem ?TURNS := {Pong, _}}, {_, At, _, _}} when At > Pong -> Replied;
        {#{Client rem ?TURNS := {Pong, #{Node := Calls}}}, _} ->
            {Calls, Pong, Pong + (half_seconds(Sim) + 1) * ?TURNS * ?TURN_MS, 0};
        _ -> Replied
    end.

sent(Now, Client, Node, #sim{under = Under, free = Free, done = Done, replies = Replies, waits = Waits} = Sim) ->
    #{Node := [Earliest | Others]} = Free,
    Begin = max(Now, Earliest),
    End = Begin + exponential(?SERVICE_MS),
    Counted = case is_heard(Sim) andalso heard(Client, Node, Sim) of
        {Calls, At, Until, Since} -> Replies#{{Client, Node} => {Calls, At, Until, Since + 1}};
        _ -> Replies
    end,
    Sim#sim{
        under = maps:update_with(Node, fun(Calls) -> Calls + 1 end, Under),
        free = Free#{Node := lists:sort([End | Others])},
        done = gb_sets:add({End, make_ref(), Client, Node}, Done),
        replies = Counted,
        waits = [Begin - Now | Waits]
    }.
