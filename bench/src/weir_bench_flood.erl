%% @doc Benchmark: a weir_server with `max_queue' is sent ten times what it can handle, for ten seconds.
%%
%% Every callback does a fixed piece of work; how many a second the server could do at best is known from that. Senders
%% cast ten times as many, whatever becomes of them, and callers without a time-out come on top: they have a schedule
%% too, but who waits for an answer misses some of its turns.
%%
%% What has to hold, or the benchmark fails: every call is answered, with `ok' or with `{error, {overload, _}}'; the
%% server's counts of what it handled and dropped add up to what was sent, to the message; and what it says it handled
%% is what its callbacks counted. Memory, of the server and of the node, is sampled every ten milliseconds.
%%
%% A plain gen_server gets the same beside it, and is killed at the end: it would need minutes to catch up.
-module(weir_bench_flood).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2, flood/2]).

-export_type([sizes/0, outcome/0]).

-define(SIZES, #{
    seconds => 10,
    work_us => 100,
    factor => 10,
    max_queue => 1_000,
    callers => 300,
    senders => 20
}).
-define(POLICIES, [reject, drop_oldest, drop_newest]).
-define(SAMPLE_MS, 10).

%% Calls that the callers would make if they were answered at once, for each cast.
-define(CALLS, 0.3).

%% How long a server may take, when the flood is over, to have counted everything.
-define(SETTLE_MS, 30_000).

%% How many times what it was early in the flood the server's memory may be late in it.
-define(FLAT, 2).

-type sizes() :: #{
    seconds := pos_integer() | float(),
    %% Work in a callback, in microseconds.
    work_us := pos_integer(),
    %% How many times what the server can do is sent.
    factor := pos_integer(),
    max_queue := pos_integer(),
    callers := pos_integer(),
    senders := pos_integer()
}.

-type memory() :: #{
    %% Medians of the second tenth of the time, and of the last tenth but one; and the most of all.
    early := number(),
    late := number(),
    most := number()
}.
%% Bytes, or messages.

-type outcome() :: #{
    sent := #{calls := non_neg_integer(), casts := non_neg_integer()},
    %% Calls by what came of them; `lost' are those that a killed server left.
    answered := #{ok := non_neg_integer(), overload := non_neg_integer(), lost := non_neg_integer()},
    %% By the callbacks' own count.
    handled := #{calls := non_neg_integer(), casts := non_neg_integer()},
    seconds := float(),
    server := memory(),
    node := memory(),
    %% Messages in the mailbox and, with weir_server, in its queue.
    waiting := memory()
}.

-type way() :: {weir_server, Overload :: atom()} | gen_server.

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "flood: ten times what a server with max_queue can handle".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?SIZES).

%% @doc Runs it in other sizes. One round, however many are asked for: what counts is that nothing is lost and nothing
%% grows, and not how long it takes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(_Rounds, Sizes) ->
    #{ours := Ours, beside := [Plain]} = weir_bench_rounds:compare(1, #{
        ours => [
            contestant(lists:concat(["weir_server, ", Policy]), {weir_server, Policy}, Sizes)
         || Policy <- ?POLICIES
        ],
        beside => [contestant("gen_server, killed at the end", gen_server, Sizes)]
    }),
    [Server, Node, Waiting, Handled] = [
        #{
            title => Title,
            unit => Unit,
            better => Better,
            ours => [weir_bench_rounds:view(View, Result) || Result <- Ours],
            peers => [],
            beside => [weir_bench_rounds:view(View, Plain)]
        }
     || {Title, Unit, Better, View} <- [
            {"memory of the server, the most", "KB", lower, fun(#{server := #{most := M}}) -> M / 1_024 end},
            {"memory of the node, from early to late", "KB more", lower, fun(#{node := Memory}) ->
                #{early := Early, late := Late} = Memory,
                (Late - Early) / 1_024
            end},
            {"messages that wait, the most", "messages", lower, fun(#{waiting := #{most := Most}}) -> Most end},
            {"handled", "messages/s", higher, fun(#{handled := Counts, seconds := Seconds}) ->
                lists:sum(maps:values(Counts)) / Seconds
            end}
        ]
    ],
    [
        Server#{notes => [flat(Result) || Result <- Ours]},
        Node,
        Waiting,
        Handled#{notes => [note(Result) || Result <- Ours ++ [Plain]]}
    ].

contestant(Name, Way, Sizes) -> #{name => Name, run => fun() -> flood(Way, Sizes) end}.

flat(#{name := Name, figures := [#{server := #{early := Early, late := Late}}]}) ->
    weir_bench_table:target(
        io_lib:format("~ts: late in the flood at most ~b times what it was early (~b KB, then ~b KB)", [
            Name, ?FLAT, round(Early / 1_024), round(Late / 1_024)
        ]),
        Late =< Early * ?FLAT
    ).

note(#{name := Name, figures := [#{sent := Sent, answered := Answered, handled := Handled, seconds := Seconds}]}) ->
    #{calls := Calls, casts := Casts} = Sent,
    #{ok := Ok, overload := Overload, lost := Lost} = Answered,
    #{calls := HandledCalls, casts := HandledCasts} = Handled,
    io_lib:format(
        "~ts: sent ~b/s, ~.1f times what it handled; "
        "of ~b calls ~b handled, ~b refused, ~b lost; of ~b casts ~b handled",
        [
            Name,
            round((Calls + Casts) / Seconds),
            (Calls + Casts) / max(1, HandledCalls + HandledCasts),
            Calls,
            Ok,
            Overload,
            Lost,
            Casts,
            HandledCasts
        ]
    ).

%% @doc One flood. Fails if a call was not answered or if the server's counts do not add up.
-spec flood(way(), sizes()) -> outcome().
flood(Way, #{seconds := Seconds, work_us := WorkUs} = Sizes) ->
    Counters = counters:new(2, []),
    Argument = {weir_bench_slow:turns(WorkUs), Counters},
    Pid = start(Way, Argument, Sizes),
    Tally = counters:new(5, [write_concurrency]),
    true = erlang:garbage_collect(),
    Sampler = weir_kit_sampler:start(?SAMPLE_MS, fun() -> sample(Way, Pid) end),
    Start = erlang:monotonic_time(microsecond),
    End = Start + round(Seconds * 1_000_000),
    Killer = kill_at(Way, Pid, End),
    _ = weir_kit_crowd:together(senders(Sizes), sender(Pid, Start, End, Tally, Sizes)),
    Time = (erlang:monotonic_time(microsecond) - Start) / 1_000_000,
    Samples = [Sample || Sample <- weir_kit_sampler:stop(Sampler), Sample =/= gone],
    [Calls, Casts, Ok, Overload, Lost] = [counters:get(Tally, I) || I <- lists:seq(1, 5)],
    Calls = Ok + Overload + Lost,
    Outcome = #{
        sent => #{calls => Calls, casts => Casts},
        answered => #{ok => Ok, overload => Overload, lost => Lost},
        seconds => Time,
        server => memory([Server || {Server, _, _} <- Samples]),
        node => memory([Node || {_, Node, _} <- Samples]),
        waiting => memory([Waiting || {_, _, Waiting} <- Samples])
    },
    ok = settle(Way, Pid, Outcome, Counters),
    ok = weir_bench_servers:stop(Pid),
    ok = killed(Killer),
    Outcome#{handled => weir_bench_slow:counted(Counters)}.

start(gen_server, Argument, _Sizes) ->
    weir_bench_servers:start(gen_server, weir_bench_slow, Argument, []);
start({weir_server, Overload}, Argument, #{max_queue := MaxQueue}) ->
    Options = #{max_queue => MaxQueue, overload => Overload},
    weir_bench_servers:start(weir_server, weir_bench_slow, Argument, Options).

%% Callers of a plain gen_server wait for as long as its mailbox is, so it ends with the flood.
kill_at(gen_server, Pid, End) ->
    spawn_monitor(fun() ->
        ok = until(End),
        exit(Pid, kill)
    end);
kill_at({weir_server, _}, _Pid, _End) ->
    none.

killed(none) ->
    ok;
killed({_, Monitor}) ->
    receive
        {'DOWN', Monitor, process, _, normal} -> ok
    end.

senders(#{callers := Callers, senders := Senders}) -> Callers + Senders.

%% The first processes call, the others cast; each has its share of the rate, and begins at a time of its own.
sender(Pid, Start, End, Tally, #{work_us := WorkUs, factor := Factor, callers := Callers, senders := Senders}) ->
    PerUs = Factor / WorkUs,
    CallPeriod = Callers / (PerUs * ?CALLS),
    CastPeriod = Senders / PerUs,
    fun
        (I) when I =< Callers -> caller(Start + rand:uniform() * CallPeriod, CallPeriod, End, Pid, Tally);
        (_) -> caster(Start + rand:uniform() * CastPeriod, CastPeriod, End, Pid, Tally)
    end.

caller(Due, _Period, End, _Pid, _Tally) when Due >= End ->
    ok;
caller(Due, Period, End, Pid, Tally) ->
    ok = until(Due),
    counters:add(Tally, 1, 1),
    counters:add(Tally, call(Pid), 1),
    %% A caller whose call took longer than its period has missed its turns; it does not make up for them.
    caller(max(Due + Period, erlang:monotonic_time(microsecond)), Period, End, Pid, Tally).

call(Pid) ->
    try gen_server:call(Pid, work, infinity) of
        ok -> 3;
        {error, {overload, _}} -> 4
    catch
        exit:{Reason, _} when Reason =:= killed; Reason =:= noproc -> 5
    end.

caster(Due, _Period, End, _Pid, _Tally) when Due >= End ->
    ok;
caster(Due, Period, End, Pid, Tally) ->
    ok = until(Due),
    ok = gen_server:cast(Pid, work),
    counters:add(Tally, 2, 1),
    caster(Due + Period, Period, End, Pid, Tally).

until(Due) ->
    case ceil((Due - erlang:monotonic_time(microsecond)) / 1_000) of
        Ms when Ms > 0 ->
            receive
            after Ms -> ok
            end;
        _ ->
            ok
    end.

sample(Way, Pid) ->
    case process_info(Pid, [memory, message_queue_len]) of
        [{memory, Memory}, {message_queue_len, Length}] ->
            {Memory, erlang:memory(total), Length + queued(Way, Pid)};
        undefined ->
            gone
    end.

queued(gen_server, _Pid) -> 0;
queued({weir_server, _}, Pid) ->
    {ok, #{waiting := Waiting}} = weir_server:info(Pid),
    Waiting.

memory(Samples) ->
    Length = length(Samples),
    Tenth = max(1, Length div 10),
    Part = fun(N) -> weir_bench_rounds:median(lists:sublist(Samples, min(Length, N * Tenth + 1), Tenth)) end,
    #{early => Part(1), late => Part(8), most => lists:max(Samples)}.

%% The last casts may still wait.
settle(gen_server, _Pid, _Outcome, _Counters) ->
    ok;
settle(Way, Pid, Outcome, Counters) ->
    settle(Way, Pid, Outcome, Counters, erlang:monotonic_time(millisecond) + ?SETTLE_MS).

settle(Way, Pid, Outcome, Counters, Deadline) ->
    #{sent := #{casts := Casts}, answered := #{ok := Ok, overload := Overload, lost := 0}} = Outcome,
    {ok, #{handled := Handled, dropped := Dropped, shed := Shed}} = weir_server:info(Pid),
    #{calls := HandledCalls, casts := HandledCasts, infos := 0} = Handled,
    #{calls := DroppedCalls, casts := DroppedCasts, infos := 0} = Dropped,
    #{casts := ShedCasts, infos := 0} = Shed,
    case {HandledCalls, DroppedCalls, HandledCasts + DroppedCasts + ShedCasts, weir_bench_slow:counted(Counters)} of
        {Ok, Overload, Casts, #{calls := HandledCalls, casts := HandledCasts}} ->
            ok;
        Counts ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({does_not_add_up, Counts, Outcome}),
            ok = until(erlang:monotonic_time(microsecond) + 10_000),
            settle(Way, Pid, Outcome, Counters, Deadline)
    end.
