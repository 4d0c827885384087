%% @doc Benchmark: what weir_server costs where nothing needs draining, on the same callback module as gen_server.
%%
%% Calls are answered with what was asked, which is checked; casts are counted by the server, and time ends when it has
%% told the right number. A new server for every run. Informative: there is no target.
-module(weir_bench_server).

-behaviour(weir_bench_part).

-export([title/0, run/1]).

-define(CALLS, 200_000).
-define(CASTS, 500_000).
-define(CALLERS, [1, 100]).

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "server: weir_server beside gen_server, same callbacks".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) ->
    [calls(Callers, Rounds) || Callers <- ?CALLERS] ++ [casts(Senders, Rounds) || Senders <- ?CALLERS].

calls(Callers, Rounds) ->
    Each = ?CALLS div Callers,
    Run = fun(Server, Pid) ->
        Time = weir_bench_crowd:together(Callers, fun(_) -> call(Each, Server, Pid) end),
        Time / (Each * Callers)
    end,
    table(io_lib:format("calls, ~b caller(s)", [Callers]), "ns/call", Run, Rounds).

call(0, _Server, _Pid) ->
    ok;
call(N, Server, Pid) ->
    N = Server:call(Pid, N),
    call(N - 1, Server, Pid).

casts(Senders, Rounds) ->
    Each = ?CASTS div Senders,
    Total = Each * Senders,
    Run = fun(Server, Pid) ->
        Start = erlang:monotonic_time(nanosecond),
        _ = weir_bench_crowd:together(Senders, fun(_) -> cast(Each, Server, Pid) end),
        Total = Server:call(Pid, count, infinity),
        (erlang:monotonic_time(nanosecond) - Start) / Total
    end,
    table(io_lib:format("casts until all are handled, ~b sender(s)", [Senders]), "ns/cast", Run, Rounds).

cast(0, _Server, _Pid) ->
    ok;
cast(N, Server, Pid) ->
    ok = Server:cast(Pid, N),
    cast(N - 1, Server, Pid).

table(Title, Unit, Run, Rounds) ->
    [Ours, Peer] = weir_bench_rounds:run(Rounds, [
        #{name => atom_to_list(Server), run => fun() -> with_server(Server, Run) end}
     || Server <- [weir_server, gen_server]
    ]),
    #{title => Title, unit => Unit, better => lower, ours => [Ours], peers => [Peer]}.

with_server(Server, Run) ->
    {ok, Pid} = Server:start(weir_bench_echo, [], []),
    Figure = Run(Server, Pid),
    ok = Server:stop(Pid),
    Figure.
