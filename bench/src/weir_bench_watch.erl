%% @doc Benchmark: what looking at a node with a million processes takes, and how soon its hot process is named.
%%
%% The node is one of its own, and its processor time is the operating system's. Its schedulers do not spin (+sbwt
%% none), so that what is measured is work. The tools look in turn: weir_watch's agent, observer_cli's screen, and
%% recon, which is asked for one pass. Each has been started, and has found nothing, when a fault begins.
%%
%% Results are checked: a tool has named a process when it has named the right one, and weir_watch's diagnosis has to
%% have the right cause.
-module(weir_bench_watch).

-behaviour(weir_bench_part).

-export([title/0, version/0, run/1, run/2]).

-define(PROCESSES, 1_000_000).
%% Rounds at most: one takes three minutes.
-define(ROUNDS, 3).
%% How long it is looked at what a tool takes; observer_cli takes so much that less will do.
-define(MINUTE_MS, 60_000).
-define(SOME_MS, 20_000).
-define(SETTLED_MS, 10_000).
-define(CALL_MS, 600_000).
-define(STEP_MS, 10).

-type sizes() :: #{processes := pos_integer(), minute := pos_integer(), some := pos_integer(),
    settled := pos_integer()}.

%% @doc The benchmark's name.
-spec title() -> string().
title() -> "watch: looking at a node with a million processes".

%% @doc The versions of the peers, for people.
-spec version() -> string().
version() ->
    case weir_bench_watch_node:peers() of
        [] -> "recon and observer_cli are not there: their rows are left out";
        Tools -> lists:flatten(lists:join(", ", [[atom_to_list(Tool), " ", vsn(Tool)] || Tool <- Tools]))
    end.

vsn(Tool) ->
    _ = application:load(Tool),
    case application:get_key(Tool, vsn) of
        {ok, Vsn} -> Vsn;
        undefined -> "of unknown version"
    end.

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    run(min(Rounds, ?ROUNDS), #{
        processes => ?PROCESSES, minute => ?MINUTE_MS, some => ?SOME_MS, settled => ?SETTLED_MS
    }).

%% @doc The same in other sizes; times are milliseconds.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{processes := Processes} = Sizes) ->
    {Peer, OsPid} = start(Processes),
    Peers = call(Peer, peers, []),
    Tools = [weir_watch | Peers],
    Costs = weir_bench_rounds:run(Rounds, [
        #{name => name(Tool, cost), run => fun() -> cost(Tool, Peer, OsPid, Sizes) end} || Tool <- Tools ++ [nothing]
    ]),
    Named = [
        {Title, Fault, weir_bench_rounds:run(Rounds, [
            #{name => name(Tool, named), run => fun() -> named(Tool, Fault, Cause, Peer, Sizes) end} || Tool <- Tools
        ])}
     || {Title, Fault, Cause} <- [
            {"a server for whom 1 % of the processes wait in calls", {calls, Processes div 100}, busy},
            {"a server without a name that is flooded with casts", casts, flooded}
        ]
    ],
    ok = peer:stop(Peer),
    cost_tables(Costs, Processes) ++ lists:append([named_tables(Title, Fault, Each) || {Title, Fault, Each} <- Named]).

start(Processes) ->
    Limit = integer_to_list(2 * Processes + 10_000),
    {ok, Peer, _} = peer:start_link(#{
        connection => standard_io, wait_boot => ?CALL_MS,
        args => ["+P", Limit, "+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none", "-pa" | code:get_path()]
    }),
    ok = weir_kit_nodes:call(Peer, logger, set_primary_config, [level, none]),
    ok = call(Peer, fill, [Processes]),
    {Peer, list_to_integer(weir_kit_nodes:call(Peer, os, getpid, []))}.

name(weir_watch, _) -> "weir_watch";
name(observer_cli, cost) -> "observer_cli, its list by mailbox, 1.5 s";
name(observer_cli, named) -> "observer_cli, its list by mailbox";
name(recon, cost) -> "recon:proc_count/2, once a minute";
name(recon, named) -> "recon:proc_count/2, asked at once";
name(nothing, _) -> "nothing".

%% Per cent of a core, and megabytes.
cost(recon, Peer, OsPid, _Sizes) ->
    Peak = call(Peer, peak, [recon, 1]),
    Before = cpu_ms(OsPid),
    _ = call(Peer, pass, [recon]),
    {100 * spent(Before, OsPid) / ?MINUTE_MS, Peak / 1_000_000};
cost(Tool, Peer, OsPid, #{minute := Minute, some := Some, settled := Settled}) ->
    Peak = call(Peer, peak, [Tool, Settled]),
    Ms = case Tool of weir_watch -> Minute; _ -> Some end,
    Begin = erlang:monotonic_time(millisecond),
    Before = cpu_ms(OsPid),
    receive after Ms -> ok end,
    Share = 100 * spent(Before, OsPid) / (erlang:monotonic_time(millisecond) - Begin),
    ok = call(Peer, stop, [Tool]),
    {Share, Peak / 1_000_000}.

%% Less than a step of the kernel's is not known, and a ratio needs more than nothing.
spent(Before, OsPid) -> max(?STEP_MS, cpu_ms(OsPid) - Before).

cpu_ms(OsPid) -> weir_kit_socket_node:cpu_ms(#{port => 0, os_pid => OsPid, peer => none}).

named(Tool, Fault, Cause, Peer, #{settled := Settled}) ->
    ok = call(Peer, start, [Tool]),
    receive after Settled -> ok end,
    Times = call(Peer, named, [Tool, Fault, Cause]),
    ok = call(Peer, stop, [Tool]),
    Times.

call(Peer, Function, Arguments) -> peer:call(Peer, weir_bench_watch_node, Function, Arguments, ?CALL_MS).

%% ---------------------------------------------------------------- tables

cost_tables(Costs, Processes) ->
    Million = weir_kit_text:integer(Processes),
    Shares = [weir_bench_rounds:view(fun({Share, _}) -> Share end, Cost) || Cost <- Costs],
    Bytes = [weir_bench_rounds:view(fun({_, Megabytes}) -> Megabytes end, Cost) || Cost <- Costs],
    [
        table(["processor time of looking at ", Million, " idle processes"], "% of a core", Shares, [
            target("1 % of a core", 1.0, Shares)
        ]),
        table(["memory that it takes at most, ", Million, " idle processes"], "MB", Bytes, [
            target("40 MB", 40.0, Bytes)
        ])
    ].

named_tables(Title, Fault, Results) ->
    Named = [weir_bench_rounds:view(fun({Ms, _}) -> Ms / 1000 end, Result) || Result <- Results],
    [Ours | _] = Results,
    {Text, Limit} = goal(Fault),
    Diagnosed = weir_bench_rounds:view(fun({_, Ms}) -> Ms / 1000 end, Ours),
    [
        table([Title, ": time until it is named"], "s", Named, [target(Text, Limit, Named)]),
        table([Title, ": time until its cause is told"], "s", [Diagnosed], [])
    ].

goal({calls, _}) -> {"within 3 s", 3.0};
goal(casts) ->
    case list_to_integer(erlang:system_info(otp_release)) >= 27 of
        true -> {"within 0.5 s, from OTP 27 on", 0.5};
        false -> {"within 10 s, before OTP 27", 10.0}
    end.

target(Text, Limit, [#{figures := Figures} | _]) ->
    weir_bench_table:target([Text, ", by the median"], weir_bench_rounds:median(Figures) =< Limit).

table(Title, Unit, [Ours | Others], Notes) ->
    {Beside, Peers} = lists:partition(fun(#{name := Name}) -> Name =:= name(nothing, cost) end, Others),
    #{title => Title, unit => Unit, better => lower, ours => [Ours], peers => Peers, beside => Beside, notes => Notes}.
