%% @doc Part of the demo: an echo server on gen_tcp and on weir_socket, and the mixed load on memcached through
%% weir_socket.
%%
%% The echo servers have a node of their own ({@link weir_demo_echo_server}); the clients, in this one, are the same
%% program on gen_tcp for both ({@link weir_demo_echo_client}). They share the machine with the servers and need more of
%% it, so the ratios are smaller than those of a server that has the machine for itself. The processor time is the
%% server's alone, with what its schedulers spin while they wait for work. Rounds alternate between the two, and their
%% medians are shown. A round in which one byte was wrong is a problem.
%%
%% Then the callers of {@link weir_demo_load} once more, with `transport => weir_socket'.
-module(weir_demo_socket).

-behaviour(weir_demo_part).

-export([title/0, run/1, run/2, judge/2]).

-export_type([sizes/0]).

-define(SIZES, #{rounds => 3, connections => 64, warm_ms => 200, ms => 600, callers => 1_000, seconds => 3}).

%% Faults that are shown; all are counted.
-define(EXAMPLES, 3).

-type sizes() :: #{
    rounds := pos_integer(),
    connections := pos_integer(),
    %% Milliseconds before the measurement of a round, and of the measurement.
    warm_ms := non_neg_integer(),
    ms := pos_integer(),
    %% Of the mixed load.
    callers := pos_integer(),
    seconds := pos_integer()
}.

%% @doc The part's name.
-spec title() -> string().
title() ->
    "Sockets: echo on weir_socket and on gen_tcp; the mixed load through weir_socket".

%% @doc Runs both.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(Context) -> run(Context, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(weir_demo_part:context(), sizes()) -> weir_demo_part:outcome().
run(Context, Sizes) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    Echo = echo(Sizes),
    Load = load(Context, Sizes),
    ok = lists:foreach(fun application:stop/1, lists:reverse(Started)),
    #{
        rows => lists:append([Rows || #{rows := Rows} <- [Echo, Load]]),
        problems => lists:append([Problems || #{problems := Problems} <- [Echo, Load]])
    }.

%% ---------------------------------------------------------------- echo

-spec echo(sizes()) -> weir_demo_part:outcome().
echo(#{rounds := Rounds, connections := Connections} = Sizes) ->
    Servers = weir_demo_echo_server:start([gen_tcp, weir_socket]),
    Setting = maps:with([connections, warm_ms, ms], Sizes),
    Found = [
        {Transport, round(Transport, Servers, Setting)}
     || _ <- lists:seq(1, Rounds), Transport <- [gen_tcp, weir_socket]
    ],
    ok = weir_demo_echo_server:stop(Servers),
    #{
        rows => rows(Connections, figures(gen_tcp, Found), figures(weir_socket, Found)),
        problems => lists:append([judge(Transport, Round) || {Transport, Round} <- Found])
    }.

round(Transport, Servers, Setting) ->
    Meter = fun() -> weir_demo_echo_server:cpu_ms(Servers) end,
    Port = weir_demo_echo_server:port(Transport, Servers),
    #{answered := Answered, us := Us} = Found = weir_demo_echo_client:run(Port, Setting, Meter),
    weir_demo_progress:note("~ts: ~ts messages", [Transport, weir_demo_table:rate(Answered, Us)]),
    Found.

%% @doc What was wrong in a round, in words: nothing if every message came back as it was sent. Pure.
-spec judge(weir_demo_echo_server:transport(), weir_demo_echo_client:found()) -> [iodata()].
judge(Transport, #{faults := Faults}) ->
    [
        io_lib:format("echo on ~ts: ~b connections failed, such as ~0tp", [
            Transport, length(Faults), lists:sublist(Faults, ?EXAMPLES)
        ])
     || Faults =/= []
    ].

%% Messages a second and nanoseconds of processor time for a message, the medians of all rounds; and what was wrong.
figures(Transport, Found) ->
    Rounds = [Round || {Of, Round} <- Found, Of =:= Transport],
    #{
        rate => median([round(Answered * 1.0e6 / Us) || #{answered := Answered, us := Us} <- Rounds]),
        cpu_ns => median([Ms * 1_000_000 div max(1, Answered) || #{answered := Answered, metered := Ms} <- Rounds]),
        faults => lists:sum([length(Faults) || #{faults := Faults} <- Rounds])
    }.

%% The lower one of the two in the middle, where there are two.
median(Figures) -> lists:nth((length(Figures) + 1) div 2, lists:sort(Figures)).

rows(Connections, #{rate := PlainRate, cpu_ns := PlainCpu, faults := PlainFaults}, Weir) ->
    #{rate := Rate, cpu_ns := Cpu, faults := Faults} = Weir,
    Name = io_lib:format("echo of 64 bytes, ~b connections", [Connections]),
    [
        (row([Name, ": messages"], rate(Rate)))#{
            plain => rate(PlainRate), ratio => weir_demo_table:ratio(Rate, PlainRate)
        },
        (row([Name, ": server's CPU time for one"], microseconds(Cpu)))#{
            plain => microseconds(PlainCpu), ratio => weir_demo_table:ratio(PlainCpu, Cpu)
        },
        (row([Name, ": connections with a wrong byte"], weir_demo_table:integer(Faults)))#{
            plain => weir_demo_table:integer(PlainFaults)
        }
    ].

rate(PerSecond) -> [weir_demo_table:integer(PerSecond), "/s"].

microseconds(Ns) -> io_lib:format("~.1f us", [Ns / 1_000]).

%% ---------------------------------------------------------------- the mixed load

load(Context, #{callers := Callers, seconds := Seconds}) ->
    #{rows := Rows} = Outcome = weir_demo_load:run(Context, #{
        part => title(),
        name => "mixed load through weir_socket",
        keys => <<"socket:">>,
        callers => Callers,
        seconds => Seconds,
        options => #{transport => weir_socket}
    }),
    Outcome#{rows := [Row#{what := ["mixed load: ", What]} || #{what := What} = Row <- Rows]}.

row(What, Value) ->
    #{part => title(), what => What, value => Value}.
