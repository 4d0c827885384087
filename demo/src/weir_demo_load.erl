%% @doc Part of the demo: a mixed load from 1,000 callers through a pool of a few connections, every reply checked.
-module(weir_demo_load).

-behaviour(weir_demo_part).

-export([title/0, run/1, run/2]).

-export_type([setting/0]).

-define(CALLERS, 1_000).
-define(CONNECTIONS, 4).
-define(SECONDS, 6).

-type setting() :: #{
    %% The part's title in the table.
    part := string(),
    %% What a problem starts with.
    name := string(),
    %% What the keys start with, after the prefix of the run: another for each load.
    keys := binary(),
    callers := pos_integer(),
    seconds := pos_integer(),
    %% More options of the client.
    options := weir_memcached:options()
}.

%% @doc The part's name.
-spec title() -> string().
title() ->
    "Mixed load: 1,000 callers, 4 connections, 60% get, 25% set, 10% incr, 5% delete".

%% @doc Runs the load for some seconds.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(Context) ->
    run(Context, #{
        part => title(),
        name => "mixed load",
        keys => <<"load:">>,
        callers => ?CALLERS,
        seconds => ?SECONDS,
        options => #{}
    }).

%% @doc Runs it for another part, with other options of the client.
-spec run(weir_demo_part:context(), setting()) -> weir_demo_part:outcome().
run(#{prefix := Prefix} = Context, #{keys := Keys, callers := Callers, options := Options} = Setting) ->
    Client = weir_demo_load_client,
    ok = weir_demo_client:start(Client, Context, Options#{connections => ?CONNECTIONS}),
    Pids = weir_demo_client:pids(Client),
    Sampler = weir_demo_sampler:start(fun() -> Pids end),
    Start = erlang:monotonic_time(microsecond),
    Crowd = weir_demo_crowd:start(Callers, Client, <<Prefix/binary, Keys/binary>>),
    ok = watch(Crowd, 0, maps:get(seconds, Setting)),
    Answered = weir_demo_crowd:done(Crowd),
    Time = erlang:monotonic_time(microsecond) - Start,
    Result = weir_demo_crowd:stop(Crowd),
    Mailbox = weir_demo_sampler:stop(Sampler),
    ok = weir_demo_client:stop(Client),
    #{rows => rows(Answered, Time, Mailbox, Result, Setting), problems => problems(Result, Setting)}.

watch(_Crowd, _Before, 0) ->
    ok;
watch(Crowd, Before, Seconds) ->
    receive
    after 1_000 -> ok
    end,
    Done = weir_demo_crowd:done(Crowd),
    weir_demo_progress:note("~s requests answered in a second", [weir_demo_table:integer(Done - Before)]),
    watch(Crowd, Done, Seconds - 1).

rows(Answered, Time, Mailbox, #{latency := Latency, wrong := Wrong}, #{part := Part}) ->
    Row = fun(What, Value) -> #{part => Part, what => What, value => Value} end,
    Quantile = fun(Q) -> weir_demo_table:latency(weir_demo_histogram:quantile(Q, Latency)) end,
    [
        Row("requests answered", weir_demo_table:rate(Answered, Time)),
        Row("latency, p50", Quantile(0.5)),
        Row("latency, p99", Quantile(0.99)),
        Row("latency, p99.9", Quantile(0.999)),
        Row("longest mailbox of a connection", weir_demo_table:integer(Mailbox)),
        Row("wrong replies", weir_demo_table:integer(Wrong))
    ].

problems(#{wrong := Wrong, examples := Examples, failed := Failed}, #{name := Name}) ->
    [io_lib:format("~ts: ~b wrong replies, such as ~0tp", [Name, Wrong, Examples]) || Wrong > 0] ++
        [
            io_lib:format("~ts: failed requests: ~ts", [Name, weir_demo_table:reasons(Failed)])
         || map_size(Failed) > 0
        ].
