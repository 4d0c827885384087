%% @doc Benchmark: calls and casts of weir_server, gen_server and gen_server2 on the same callback module.
%%
%% First with an empty mailbox, where nothing needs draining; then with 100,000 messages that wait already: the server
%% is held in a callback while they are sent, and time runs from its release.
%%
%% Calls are answered with what was asked, which is checked; casts are counted by the server, and time ends when it has
%% told the right number, asked behind the last of them. A new server for every run.
%%
%% One sender is bound to the server's scheduler in one run and to another in the next. Left to itself the runtime does
%% the one or the other, whichever it comes to first, and with two schedulers each cast costs both sides twice as much:
%% the memory is taken from one processor by the other. Which of the two it was would decide the figure.
-module(weir_bench_server).

-behaviour(weir_bench_part).

-export([title/0, run/1, run/2]).

-export_type([sizes/0]).

-define(SIZES, #{calls => 200_000, casts => 500_000, backlog => 100_000, callers => [1, 100]}).

%% The least ratio to gen_server that is good enough.
-define(ENOUGH, 0.95).

-type sizes() :: #{
    calls := pos_integer(),
    casts := pos_integer(),
    %% Messages that wait for the server.
    backlog := pos_integer(),
    %% How many processes share the calls or casts. The backlog's calls are from the last.
    callers := [pos_integer(), ...]
}.

%% @doc The benchmark's name.
-spec title() -> string().
title() ->
    "server: calls and casts of weir_server, gen_server and gen_server2, same callbacks".

%% @doc Runs it.
-spec run(pos_integer()) -> [weir_bench_part:table()].
run(Rounds) -> run(Rounds, ?SIZES).

%% @doc Runs it in other sizes.
-spec run(pos_integer(), sizes()) -> [weir_bench_part:table()].
run(Rounds, #{calls := Calls, casts := Casts, backlog := Backlog, callers := Callers}) ->
    Many = lists:last(Callers),
    [table(["calls, ", processes(N)], "ns/call", calls(N, Calls), Rounds) || N <- Callers] ++
        [bound(Where, Casts, Rounds) || 1 <- Callers, Where <- [same, other]] ++
        [
            table(["casts until all are handled, ", processes(N)], "ns/cast", casts(N, Casts), Rounds)
         || N <- Callers, N > 1
        ] ++
        [
            table(
                io_lib:format("calls, ~b wait, of ~ts", [Backlog, processes(Many)]),
                "ns/call",
                waiting_calls(Many, Backlog),
                Rounds,
                [weir_server, gen_server]
            ),
            table(
                io_lib:format("casts, ~b wait, and a call behind", [Backlog]),
                "ns/cast",
                waiting_casts(Backlog),
                Rounds,
                [weir_server, gen_server]
            )
        ].

processes(N) -> io_lib:format("~b process(es)", [N]).

%% One sender, on the server's scheduler or on another, if there is one. The flag is not documented, so dialyzer does
%% not know of it.
-dialyzer({nowarn_function, bound/3}).
bound(Where, Casts, Rounds) ->
    {Scheduler, Title} =
        case Where of
            same -> {1, "casts until all are handled, 1 process, on the server's scheduler"};
            other -> {min(2, erlang:system_info(schedulers_online)), "the same, on another scheduler than the server"}
        end,
    Send = fun(Server, Pid) ->
        Start = erlang:monotonic_time(),
        _ = weir_kit_crowd:together(1, fun(_) ->
            _ = process_flag(scheduler, Scheduler),
            cast(Casts, Server, Pid)
        end),
        Casts = Server:call(Pid, count, infinity),
        since(Start) / Casts
    end,
    table(Title, "ns/cast", Send, Rounds, [{spawn_opt, [{scheduler, 1}]}], []).

table(Title, Unit, Run, Rounds) -> table(Title, Unit, Run, Rounds, []).

%% What has a backlog also runs with mailboxes off the heap, beside.
table(Title, Unit, Run, Rounds, Beside) -> table(Title, Unit, Run, Rounds, [], Beside).

table(Title, Unit, Run, Rounds, Options, Beside) ->
    Contestant = fun(Name, Server, More) ->
        #{name => Name, run => fun() -> with_server(Server, Options ++ More, Run) end}
    end,
    Peers = [gen_server | weir_bench_servers:peers([gen_server2])],
    #{ours := [Ours], peers := [Otp | _]} =
        Results = weir_bench_rounds:compare(Rounds, #{
            ours => [Contestant("weir_server", weir_server, [])],
            peers => [Contestant(atom_to_list(Server), Server, []) || Server <- Peers],
            beside => [
                Contestant(lists:concat([Server, ", off_heap"]), Server, [
                    {spawn_opt, [{message_queue_data, off_heap}]}
                ])
             || Server <- Beside
            ]
        }),
    Results#{
        title => Title,
        unit => Unit,
        better => lower,
        notes => [
            weir_bench_table:target(
                io_lib:format("at least ~.2f times gen_server", [?ENOUGH]),
                weir_bench_rounds:ratio(lower, Ours, Otp) >= ?ENOUGH
            )
        ]
    }.

with_server(Server, Options, Run) ->
    Pid = weir_bench_servers:start(Server, weir_bench_echo, [], Options),
    Figure = Run(Server, Pid),
    ok = weir_bench_servers:stop(Pid),
    Figure.

calls(Callers, Calls) ->
    Each = Calls div Callers,
    fun(Server, Pid) ->
        weir_kit_crowd:together(Callers, fun(_) -> call(Each, Server, Pid) end) / (Each * Callers)
    end.

call(0, _Server, _Pid) ->
    ok;
call(N, Server, Pid) ->
    N = Server:call(Pid, N),
    call(N - 1, Server, Pid).

casts(Senders, Casts) ->
    Each = Casts div Senders,
    Total = Each * Senders,
    fun(Server, Pid) ->
        Start = erlang:monotonic_time(),
        _ = weir_kit_crowd:together(Senders, fun(_) -> cast(Each, Server, Pid) end),
        Total = Server:call(Pid, count, infinity),
        since(Start) / Total
    end.

cast(0, _Server, _Pid) ->
    ok;
cast(N, Server, Pid) ->
    ok = Server:cast(Pid, N),
    cast(N - 1, Server, Pid).

%% Who sends the last of them releases the server.
waiting_calls(Callers, Backlog) ->
    Each = Backlog div Callers,
    fun(_Server, Pid) ->
        Held = weir_bench_servers:hold(Pid),
        Left = atomics:new(2, []),
        ok = atomics:put(Left, 1, Callers),
        _ = weir_kit_crowd:together(Callers, fun(_) ->
            Asked = [{N, gen_server:send_request(Pid, N)} || N <- lists:seq(1, Each)],
            case atomics:sub_get(Left, 1, 1) of
                0 ->
                    ok = atomics:put(Left, 2, erlang:monotonic_time()),
                    ok = weir_bench_servers:release(Held);
                _ ->
                    ok
            end,
            lists:foreach(fun({N, Id}) -> {reply, N} = gen_server:receive_response(Id, infinity) end, Asked)
        end),
        since(atomics:get(Left, 2)) / (Each * Callers)
    end.

waiting_casts(Backlog) ->
    fun(Server, Pid) ->
        Held = weir_bench_servers:hold(Pid),
        _ = weir_kit_crowd:together(1, fun(_) -> cast(Backlog, Server, Pid) end),
        Start = erlang:monotonic_time(),
        ok = weir_bench_servers:release(Held),
        Backlog = Server:call(Pid, count, infinity),
        since(Start) / Backlog
    end.

since(Start) -> erlang:convert_time_unit(erlang:monotonic_time() - Start, native, nanosecond).
