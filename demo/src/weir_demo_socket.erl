%% @doc Section of the demo: an echo server on gen_tcp and on weir_socket.
%%
%% Each echo server has a node of its own ({@link weir_kit_socket_node}); the clients, in this one, are the same program
%% on gen_tcp for both ({@link weir_demo_echo_client}). They share the machine with the servers and need more of it, so
%% the differences are smaller than those of servers that have the machine for themselves. The processor time is the
%% server's alone, with what its schedulers spin while they wait for work. Rounds alternate between the two, and their
%% medians are shown.
-module(weir_demo_socket).

-behaviour(weir_demo_part).

-export([title/0, hurts/0, run/1, run/2, judge/1]).

-export_type([sizes/0]).

-define(SIZES, #{rounds => 3, connections => 64, warm_ms => 200, ms => 400}).

%% Faults that are shown; all are counted.
-define(EXAMPLES, 2).

-type sizes() :: #{
    rounds := pos_integer(),
    connections := pos_integer(),
    %% Milliseconds before the measurement of a round, and of the measurement.
    warm_ms := non_neg_integer(),
    ms := pos_integer()
}.

%% @doc The section's name.
-spec title() -> string().
title() -> "An echo server on sockets of its own".

%% @doc What hurts.
-spec hurts() -> string().
hurts() -> "gen_tcp asks the kernel about its sockets more often than it moves data with them.".

%% @doc Runs the rounds.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(Context) -> run(Context, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(weir_demo_part:context(), sizes()) -> weir_demo_part:outcome().
run(_Context, #{rounds := Rounds, connections := Connections, warm_ms := WarmMs, ms := Ms} = Sizes) ->
    Start = erlang:monotonic_time(millisecond),
    Elapsed = fun() -> erlang:monotonic_time(millisecond) - Start end,
    %% A node takes about a second to start.
    Total = 2 * (1_000 + Rounds * (WarmMs + Ms)),
    Label = io_lib:format("gen_tcp and weir_socket in turn, ~b connections", [Connections]),
    Found = weir_demo_screen:watch(Label, Total, Elapsed, fun() -> rounds(Sizes) end),
    #{rate := PlainRate, cpu_us := PlainCpu} = Plain = figures(gen_tcp, Found),
    #{rate := Rate, cpu_us := Cpu} = Weir = figures(weir_socket, Found),
    #{
        said => [
            io_lib:format("Over ~b connections ~ts messages a second came back from weir_socket, ", [
                Connections, weir_kit_text:integer(Rate)
            ]),
            io_lib:format("~ts from gen_tcp; each took the server ~.1f and ~.1f microseconds of a core.", [
                weir_kit_text:integer(PlainRate), Cpu, PlainCpu
            ])
        ],
        promises => [judge([Round || {weir_socket, Round} <- Found])],
        plots => [
            #{
                kind => bars,
                title => "Messages of 64 bytes, there and back, each second",
                bars => [
                    #{name => Name, side => Side, value => Value, text => weir_kit_text:integer(Value)}
                 || {Name, Side, #{rate := Value}} <- [{"weir_socket", weir, Weir}, {"gen_tcp", plain, Plain}]
                ]
            },
            #{
                kind => bars,
                title => "The server's processor time for one",
                bars => [
                    #{name => Name, side => Side, value => Value, text => io_lib:format("~.1f us", [Value])}
                 || {Name, Side, #{cpu_us := Value}} <- [{"weir_socket", weir, Weir}, {"gen_tcp", plain, Plain}]
                ]
            }
        ]
    }.

rounds(#{rounds := Rounds} = Sizes) ->
    {ok, Started} = application:ensure_all_started(weir_socket),
    Servers = [{On, weir_kit_socket_node:start(On, echo, passive)} || On <- [gen_tcp, weir_socket]],
    Found = [{On, round(Server, Sizes)} || _ <- lists:seq(1, Rounds), {On, Server} <- Servers],
    lists:foreach(fun({_, Server}) -> ok = weir_kit_socket_node:stop(Server) end, Servers),
    ok = lists:foreach(fun application:stop/1, lists:reverse(Started)),
    Found.

round(#{port := Port} = Server, Sizes) ->
    Setting = maps:with([connections, warm_ms, ms], Sizes),
    weir_demo_echo_client:run(Port, Setting, fun() -> weir_kit_socket_node:cpu_ms(Server) end).

%% @doc Whether every message of some rounds came back as it was sent. Pure.
-spec judge([weir_demo_echo_client:found()]) -> weir_demo_part:promise().
judge(Rounds) ->
    Answered = lists:sum([N || #{answered := N} <- Rounds]),
    Faults = lists:append([Some || #{faults := Some} <- Rounds]),
    Examples = [io_lib:format(", such as ~0tP", [lists:sublist(Faults, ?EXAMPLES), 20]) || Faults =/= []],
    {
        io_lib:format("weir_socket: ~ts messages compared, ~b connections with a fault~ts", [
            weir_kit_text:integer(Answered), length(Faults), Examples
        ]),
        Answered > 0 andalso Faults =:= []
    }.

%% Messages a second and microseconds of processor time for a message, the medians of all rounds.
figures(On, Found) ->
    Rounds = [Round || {Of, Round} <- Found, Of =:= On],
    #{
        rate => median([round(Answered * 1.0e6 / Us) || #{answered := Answered, us := Us} <- Rounds]),
        cpu_us => median([Ms * 1_000 / max(1, Answered) || #{answered := Answered, metered := Ms} <- Rounds])
    }.

%% The lower one of the two in the middle, where there are two.
median(Figures) -> lists:nth((length(Figures) + 1) div 2, lists:sort(Figures)).
