%% @doc Benchmark: callbacks that wait for a message in a selective receive, while messages wait in the mailbox.
%%
%% gen_server's callback looks through all of them, each time; a server that has drained its mailbox has none to look
%% through. The figure is the middle one of the times inside the callbacks, measured there, so what draining costs is
%% not in it; that is in the benchmark server. All that waits is sent while the server is held, those that ask first, so
%% that everything else is behind them. Afterwards the server tells that it has handled every message.
-module(weir_bench_receive).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-define(ASKS, 200).
-define(BACKLOGS, [0, 1_000, 10_000, 100_000]).

%% How many times as long the callback may take with the longest backlog as with none.
-define(INDEPENDENT, 2).

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "receive: callbacks with a selective receive, while messages wait".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, #{asks => ?ASKS, backlogs => ?BACKLOGS}).

%% @doc Runs it in other sizes: so many callbacks that ask, with so many messages that wait behind them.
-spec run(pos_integer(), #{asks := pos_integer(), backlogs := [non_neg_integer(), ...]}) -> [weir_bench_part:table()].
run(Rounds, #{asks := Asks, backlogs := Backlogs}) ->
    Tables = [#{ours := [None]} | _] = [table(Rounds, Asks, Backlog) || Backlog <- Backlogs],
    #{ours := [Most], notes := Notes} = Last = lists:last(Tables),
    lists:droplast(Tables) ++ [Last#{notes := Notes ++ [target(None, Most)]}].

table(Rounds, Asks, Backlog) ->
    Contestant = fun(Server) -> #{name => atom_to_list(Server), run => fun() -> ask(Server, Asks, Backlog) end} end,
    #{ours := Ours, peers := Peers} = weir_bench_rounds:compare(Rounds, #{
        ours => [Contestant(weir_server)],
        peers => [Contestant(Server) || Server <- [gen_server | weir_bench_servers:peers([gen_server2])]]
    }),
    #{
        title => io_lib:format("~b messages wait", [Backlog]),
        unit => "ns/callback",
        better => lower,
        ours => [view(middle, Result) || Result <- Ours],
        peers => [view(middle, Result) || Result <- Peers],
        notes => [
            [
                "means, with what garbage collections took inside callbacks: ",
                lists:join(", ", [mean(Result) || Result <- Ours ++ Peers])
            ]
        ]
    }.

view(Key, Result) -> weir_bench_rounds:view(fun(Outcome) -> maps:get(Key, Outcome) end, Result).

mean(#{name := Name} = Result) ->
    #{figures := Means} = view(mean, Result),
    io_lib:format("~ts ~b", [Name, round(weir_bench_rounds:median(Means))]).

target(None, Most) ->
    Times = weir_bench_rounds:ratio(lower, None, Most),
    weir_bench_table:target(
        io_lib:format("weir_server takes at most ~b times as long as with the first backlog (~.2f)", [
            ?INDEPENDENT, Times
        ]),
        Times =< ?INDEPENDENT
    ).

ask(Server, Asks, Backlog) ->
    Pid = weir_bench_servers:start(Server, weir_bench_asker, [], []),
    Held = weir_bench_servers:hold(Pid),
    _ = weir_kit_crowd:together(1, fun(_) ->
        lists:foreach(fun(N) -> ok = gen_server:cast(Pid, {ask, N}) end, lists:seq(1, Asks)),
        lists:foreach(fun(N) -> ok = gen_server:cast(Pid, {other, N}) end, lists:seq(1, Backlog))
    end),
    ok = weir_bench_servers:release(Held),
    #{others := Backlog, ns := Times} = gen_server:call(Pid, result, infinity),
    Asks = length(Times),
    ok = weir_bench_servers:stop(Pid),
    #{middle => max(1, weir_bench_rounds:median(Times)), mean => lists:sum(Times) / Asks}.
