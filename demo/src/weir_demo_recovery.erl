%% @doc Section of the demo: 1,000 callers on four connections, while memcached is killed with SIGKILL, stays away for a
%% while, and comes back empty.
%%
%% 60 of 100 requests get, 25 set, 10 incr, 5 delete. Requests may fail while memcached is away, and a value may be gone
%% afterwards; but none may be answered with anything that was not stored under its key (see {@link weir_demo_model}),
%% and all connections have to come back by themselves. A memcached that is not ours is not killed.
-module(weir_demo_recovery).

-behaviour(weir_demo_part).

-export([title/0, hurts/0, run/1, run/2]).

-export_type([sizes/0]).

-define(CONNECTIONS, 4).
-define(RECONNECT, {20, 500}).
%% Less than the callers have until they are stopped. A busy machine is not to be taken for a request that failed.
-define(REQUEST_TIMEOUT, 20_000).
-define(SAMPLE_MS, 50).

-define(SIZES, #{callers => 1_000, before_ms => 1_500, down_ms => 500, after_ms => 1_000}).

-type sizes() :: #{
    callers := pos_integer(),
    %% Milliseconds under load before the kill, until the restart, and after all connections are up again.
    before_ms := pos_integer(),
    down_ms := pos_integer(),
    after_ms := pos_integer()
}.

%% @doc The section's name.
-spec title() -> string().
title() -> "1,000 callers, and memcached is killed".

%% @doc What hurts.
-spec hurts() -> string().
hurts() ->
    "When a cache dies its callers should get errors: no wrong value, no dead client, no wait without end.".

%% @doc Runs the load; kills and restarts a memcached that is ours.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(Context) -> run(Context, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(weir_demo_part:context(), sizes()) -> weir_demo_part:outcome().
run(#{server := Server, prefix := Prefix}, #{callers := Callers} = Sizes) ->
    #{before_ms := BeforeMs, down_ms := DownMs, after_ms := AfterMs} = Sizes,
    Client = weir_demo_recovery_client,
    ok = weir_kit_client:start(Client, Server, #{
        connections => ?CONNECTIONS,
        reconnect => ?RECONNECT,
        request_timeout => ?REQUEST_TIMEOUT,
        stall_timeout => ?REQUEST_TIMEOUT
    }),
    Start = erlang:monotonic_time(microsecond),
    Elapsed = fun() -> (erlang:monotonic_time(microsecond) - Start) div 1_000 end,
    Outcome = weir_demo_screen:watch(
        [weir_kit_text:integer(Callers), " callers, memcached killed meanwhile"],
        BeforeMs + DownMs + AfterMs,
        Elapsed,
        fun() ->
            Crowd = weir_demo_crowd:start(Callers, Client, <<Prefix/binary, "recovery:">>),
            Sampler = weir_kit_sampler:start(?SAMPLE_MS, fun() ->
                {erlang:monotonic_time(microsecond), weir_demo_crowd:done(Crowd)}
            end),
            ok = watch(BeforeMs),
            Before = #{answered => weir_demo_crowd:done(Crowd), us => erlang:monotonic_time(microsecond) - Start},
            Recovery =
                case weir_kit_memcached:is_ours(Server) of
                    true -> kill(Crowd, Client, Server, DownMs, AfterMs);
                    false -> not_ours
                end,
            Samples = [{At - Start, Done} || {At, Done} <- weir_kit_sampler:stop(Sampler)],
            outcome(Before, Recovery, Start, Samples, weir_demo_crowd:stop(Crowd))
        end
    ),
    ok = weir_memcached:stop(Client),
    Outcome.

kill(Crowd, Client, Server, DownMs, AfterMs) ->
    ok = weir_demo_crowd:set_era(1, Crowd),
    Killed = erlang:monotonic_time(microsecond),
    ok = weir_kit_memcached:kill(Server),
    ok = watch(DownMs),
    %% Nothing can be answered now, so the next success is the new server's.
    ok = weir_demo_crowd:watch_for_success(Crowd),
    ok = weir_kit_memcached:restart(Server),
    Up = erlang:monotonic_time(microsecond),
    ok = weir_demo_crowd:set_era(2, Crowd),
    _ = within_recovery(fun() -> weir_kit_client:up(Client) =:= ?CONNECTIONS end),
    Backs = weir_kit_client:up(Client),
    ok = watch(AfterMs),
    _ = within_recovery(fun() -> weir_demo_crowd:first_success(Crowd) =/= none end),
    First =
        case weir_demo_crowd:first_success(Crowd) of
            %% The probe that sees the server up may come second.
            {ok, At} -> {ok, max(0, At - Up)};
            none -> none
        end,
    #{killed => Killed, up => Up, connections => Backs, first => First}.

within_recovery(Condition) ->
    try
        weir_kit:until(Condition)
    catch
        error:{never, Condition, _} -> never
    end.

watch(Milliseconds) ->
    receive
    after Milliseconds -> ok
    end.

outcome(#{answered := Answered, us := Us}, Recovery, Start, Samples, Result) ->
    #{answered := All, wrong := Wrong, examples := Examples, latency := Latency} = Result,
    #{
        said => [
            [weir_kit_text:integer(round(Answered * 1.0e6 / Us)), " requests a second were answered, "],
            "half of them within ",
            [weir_kit_text:milliseconds(weir_demo_histogram:quantile(0.5, Latency) / 1_000), "; "],
            said(Recovery)
        ],
        promises => [
            {
                [
                    [weir_kit_text:integer(Wrong), " of ", weir_kit_text:integer(All), " replies wrong"],
                    [io_lib:format(", such as ~0tP", [Examples, 30]) || Wrong > 0]
                ],
                Wrong =:= 0 andalso All > 0
            }
            | promises(Recovery, Result)
        ],
        plots => [
            #{
                kind => lines,
                title => "Requests answered",
                x => "time in seconds",
                y => "requests a second",
                series => [#{name => "weir_memcached, 4 connections", side => weir, points => rates(Samples)}],
                marks => marks(Recovery, Start)
            }
        ]
    }.

said(not_ours) -> "this memcached is not ours to kill.";
said(#{first := none}) -> "none after memcached was killed and started again.";
said(#{first := {ok, Us}}) ->
    After = weir_kit_text:milliseconds(Us),
    ["killed and started again, memcached had answered the first ", After, " after it was up."].

%% Where memcached is always up, no request fails.
promises(not_ours, #{failed := Failed}) ->
    [{["requests that failed: ", weir_kit_text:reasons(Failed)], map_size(Failed) =:= 0}];
promises(#{connections := Connections, first := First}, _Result) ->
    [
        {
            io_lib:format("after the kill ~b of ~b connections are back, requests are~ts answered", [
                Connections, ?CONNECTIONS, [" not" || First =:= none]
            ]),
            Connections =:= ?CONNECTIONS andalso First =/= none
        }
    ].

rates([{At, Done} | [{Next, More} | _] = Rest]) ->
    [{Next / 1.0e6, (More - Done) * 1.0e6 / max(1, Next - At)} | rates(Rest)];
rates([_]) ->
    [].

marks(not_ours, _Start) -> [];
marks(#{killed := Killed, up := Up}, Start) ->
    [{(Killed - Start) / 1.0e6, "killed"}, {(Up - Start) / 1.0e6, "up"}].
