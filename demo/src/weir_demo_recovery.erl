%% @doc Part of the demo: memcached is killed with SIGKILL under load, stays away for a while, and comes back empty.
%%
%% Requests may fail meanwhile, and a value may be gone afterwards; but none may be answered with anything that was
%% not stored under its key (see {@link weir_demo_model}), and all connections have to come back by themselves.
-module(weir_demo_recovery).

-behaviour(weir_demo_part).

-export([title/0, run/1]).

-define(CALLERS, 1_000).
-define(CONNECTIONS, 4).
-define(RECONNECT, {20, 500}).

-define(BEFORE_MS, 1_500).
-define(DOWN_MS, 1_500).
-define(AFTER_MS, 1_500).
-define(RECOVERY_TIMEOUT, 10_000).

%% @doc The part's name.
-spec title() -> string().
title() ->
    "memcached killed and started again, 1,000 callers, 4 connections".

%% @doc Kills and restarts the server under load; does nothing with a server that is not ours.
-spec run(weir_demo_part:context()) -> weir_demo_part:outcome().
run(#{server := Server} = Context) ->
    case weir_demo_memcached:is_ours(Server) of
        true ->
            kill_and_restart(Context);
        false ->
            weir_demo_progress:note("left out: this memcached is not ours to kill", []),
            #{rows => [row("left out: this memcached is not ours to kill", "-")], problems => []}
    end.

kill_and_restart(#{server := Server, prefix := Prefix} = Context) ->
    Client = weir_demo_recovery_client,
    ok = weir_demo_client:start(Client, Context, #{connections => ?CONNECTIONS, reconnect => ?RECONNECT}),
    Pids = weir_demo_client:pids(Client),
    Sampler = weir_demo_sampler:start(fun() -> Pids end),
    Crowd = weir_demo_crowd:start(?CALLERS, Client, <<Prefix/binary, "recovery:">>),
    ok = watch(?BEFORE_MS),
    ok = weir_demo_crowd:set_era(1, Crowd),
    ok = weir_demo_memcached:kill(Server),
    weir_demo_progress:note("memcached killed after ~s requests", [
        weir_demo_table:integer(weir_demo_crowd:done(Crowd))
    ]),
    ok = watch(?DOWN_MS),
    %% Nothing can be answered now, so the next success is the new server's.
    ok = weir_demo_crowd:watch_for_success(Crowd),
    ok = weir_demo_memcached:restart(Server),
    Up = erlang:monotonic_time(microsecond),
    ok = weir_demo_crowd:set_era(2, Crowd),
    weir_demo_progress:note("memcached is up again", []),
    IsBack = weir_demo_client:await(fun() -> weir_demo_client:up(Client) =:= ?CONNECTIONS end, ?RECOVERY_TIMEOUT),
    Back = erlang:monotonic_time(microsecond),
    Before = weir_demo_crowd:done(Crowd),
    ok = watch(?AFTER_MS),
    weir_demo_progress:note("~s requests answered since all connections are up", [
        weir_demo_table:integer(weir_demo_crowd:done(Crowd) - Before)
    ]),
    First = weir_demo_crowd:first_success(Crowd),
    Last = weir_demo_crowd:last_failure(Crowd),
    Result = weir_demo_crowd:stop(Crowd),
    Mailbox = weir_demo_sampler:stop(Sampler),
    ok = weir_demo_client:stop(Client),
    #{
        rows => rows(First, Last, {IsBack, Back}, Up, Mailbox, Result),
        problems => problems(First, IsBack, Result)
    }.

watch(Milliseconds) ->
    receive
    after Milliseconds -> ok
    end.

rows(First, Last, {IsBack, Back}, Up, Mailbox, #{answered := Answered, failed := Failed, wrong := Wrong}) ->
    [
        row("requests answered", weir_demo_table:integer(Answered)),
        row("requests failed, by reason", weir_demo_table:reasons(Failed)),
        row("server up again to first reply", since(First, Up)),
        row("server up again to all connections up", since([{ok, Back} || IsBack], Up)),
        row("server up again to last failed request", since(Last, Up)),
        row("longest mailbox of a connection", weir_demo_table:integer(Mailbox)),
        row("wrong values", weir_demo_table:integer(Wrong))
    ].

since([Time], Up) -> since(Time, Up);
since([], _Up) -> "never";
since(none, _Up) -> "never";
%% The probe that sees the server up may come second.
since({ok, Time}, Up) -> weir_demo_table:milliseconds(max(0, Time - Up)).

row(What, Value) ->
    #{part => title(), what => What, value => Value}.

problems(First, IsBack, #{wrong := Wrong, examples := Examples}) ->
    [io_lib:format("recovery: ~b wrong replies, such as ~0tp", [Wrong, Examples]) || Wrong > 0] ++
        ["recovery: no request was answered after the restart" || First =:= none] ++
        ["recovery: not all connections came back in time" || not IsBack].
