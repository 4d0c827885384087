%% @doc Part of the demo: a mixed load from 1,000 callers through a pool of a few connections, every reply checked.
-module(weir_demo_load).

-behaviour(weir_demo_part).

-export([title/0, run/1]).

-define(CALLERS, 1_000).
-define(CONNECTIONS, 4).
-define(SECONDS, 6).

%% @doc The part's name.
-spec title() -> string().
title() ->
    "Mixed load: 1,000 callers, 4 connections, 60% get, 25% set, 10% incr, 5% delete".

%% @doc Runs the load for some seconds.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(#{prefix := Prefix} = Context) ->
    Client = weir_demo_load_client,
    ok = weir_demo_client:start(Client, Context, #{connections => ?CONNECTIONS}),
    Pids = weir_demo_client:pids(Client),
    Sampler = weir_demo_sampler:start(fun() -> Pids end),
    Start = erlang:monotonic_time(microsecond),
    Crowd = weir_demo_crowd:start(?CALLERS, Client, <<Prefix/binary, "load:">>),
    ok = watch(Crowd, 0, ?SECONDS),
    Answered = weir_demo_crowd:done(Crowd),
    Time = erlang:monotonic_time(microsecond) - Start,
    Result = weir_demo_crowd:stop(Crowd),
    Mailbox = weir_demo_sampler:stop(Sampler),
    ok = weir_demo_client:stop(Client),
    #{rows => rows(Answered, Time, Mailbox, Result), problems => problems(Result)}.

watch(_Crowd, _Before, 0) ->
    ok;
watch(Crowd, Before, Seconds) ->
    receive
    after 1_000 -> ok
    end,
    Done = weir_demo_crowd:done(Crowd),
    weir_demo_progress:note("~s requests answered in a second", [weir_demo_table:integer(Done - Before)]),
    watch(Crowd, Done, Seconds - 1).

rows(Answered, Time, Mailbox, #{latency := Latency, wrong := Wrong}) ->
    Quantile = fun(Q) -> weir_demo_table:latency(weir_demo_histogram:quantile(Q, Latency)) end,
    [
        row("requests answered", weir_demo_table:rate(Answered, Time)),
        row("latency, p50", Quantile(0.5)),
        row("latency, p99", Quantile(0.99)),
        row("latency, p99.9", Quantile(0.999)),
        row("longest mailbox of a connection", weir_demo_table:integer(Mailbox)),
        row("wrong replies", weir_demo_table:integer(Wrong))
    ].

row(What, Value) ->
    #{part => title(), what => What, value => Value}.

problems(#{wrong := Wrong, examples := Examples, failed := Failed}) ->
    [io_lib:format("mixed load: ~b wrong replies, such as ~0tp", [Wrong, Examples]) || Wrong > 0] ++
        [io_lib:format("mixed load: failed requests: ~ts", [weir_demo_table:reasons(Failed)]) || map_size(Failed) > 0].
