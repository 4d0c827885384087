%% @doc What {@link weir_bench_watch} runs on the node that is looked at: many idle processes, two faults, and the tools
%% that are to find them.
%%
%% observer_cli runs as it does in a shell, on a screen of 50 lines that is a process here: it is asked for the list by
%% length of mailbox, and has named a process when it has printed its identifier. recon is asked again and again.
-module(weir_bench_watch_node).

-export([fill/1, peers/0, start/1, stop/1, pass/1, peak/2, named/3, init/1, handle_call/3, handle_cast/2]).

-behaviour(gen_server).

-export_type([tool/0, fault/0]).

-define(INTERVAL_MS, 1500).
-define(LINES, 50).
-define(COLUMN, 11).
-define(SAMPLE_MS, 20).
-define(QUIET_MS, 2000).
-define(TIMEOUT_MS, 120_000).
-define(STARVED_MS, 10_000).
%% The server that many call takes so long for a call; that which is flooded for a cast; and two senders send so many
%% each ten milliseconds until so many wait.
-define(CALL_US, 1000).
-define(CAST_US, 20).
-define(CASTS, 600).
-define(MOST, 1_000_000).

-type tool() :: weir_watch | observer_cli | recon | nothing.
-type fault() :: {calls, Callers :: pos_integer()} | casts.

%% @doc Starts so many processes that wait. Returns when all are there.
-spec fill(pos_integer()) -> ok.
fill(N) ->
    _ = [spawn(fun() -> receive never -> ok end end) || _ <- lists:seq(1, N)],
    true = erlang:garbage_collect(),
    ok.

%% @doc Those of the peers that this machine has.
-spec peers() -> [tool()].
peers() ->
    _ = code:add_pathz(weir_bench_servers:directory()),
    [Tool || Tool <- [observer_cli, recon], {module, Tool} =:= code:ensure_loaded(Tool)].

%% @doc Starts a tool, if it is one that goes on.
-spec start(tool()) -> ok.
start(weir_watch) ->
    {ok, _} = application:ensure_all_started(weir_watch),
    ok;
start(observer_cli) ->
    Me = self(),
    _ = spawn(fun() ->
        true = register(weir_bench_screen, self()),
        Me ! {weir_bench_screen, ready},
        screen(none, undefined, first)
    end),
    receive {weir_bench_screen, ready} -> ok end,
    _ = spawn(fun() ->
        true = register(weir_bench_observer, self()),
        true = group_leader(whereis(weir_bench_screen), self()),
        %% It may not be there.
        ObserverCli = observer_cli,
        ObserverCli:start(?INTERVAL_MS)
    end),
    ok;
start(_) ->
    ok.

%% @doc Stops it.
-spec stop(tool()) -> ok.
stop(weir_watch) ->
    ok = application:stop(weir_watch);
stop(observer_cli) ->
    lists:foreach(
        fun(Name) ->
            Monitor = monitor(process, Name),
            exit(whereis(Name), kill),
            receive {'DOWN', Monitor, process, _, _} -> ok end
        end,
        [weir_bench_observer, weir_bench_screen]
    );
stop(_) ->
    ok.

%% @doc One pass of a tool that is asked.
-spec pass(recon) -> [pid()].
pass(Recon) -> [Pid || {Pid, _, _} <- Recon:proc_count(message_queue_len, 10)].

%% @doc By how many bytes the node's memory grew at most beyond what it was, while a tool was started and ran for so
%% long, or made a pass.
-spec peak(tool(), Ms :: pos_integer()) -> pos_integer().
peak(Tool, Ms) ->
    %% What the tool before has left may still be being freed.
    receive after ?QUIET_MS -> ok end,
    Before = erlang:memory(total),
    Me = self(),
    Sampler = spawn_opt(fun() -> sample(Me, Before) end, [link, {priority, max}]),
    ok = start(Tool),
    _ = case Tool of
        recon -> pass(recon);
        _ -> receive after Ms -> ok end
    end,
    Sampler ! stop,
    receive {peak, Sampler, Most} -> max(1, Most - Before) end.

sample(Parent, Most) ->
    New = max(Most, erlang:memory(total)),
    receive
        stop -> Parent ! {peak, self(), New}
    after ?SAMPLE_MS -> sample(Parent, New)
    end.

%% @doc Starts a fault, and ends it when the tool, which runs, has named the process: how many milliseconds that took,
%% and, where the tool says why, how many until it did so rightly.
-spec named(tool(), fault(), weir_watch:cause()) -> {Named :: float(), Diagnosed :: float() | none}.
named(Tool, Fault, Cause) ->
    Caller = self(),
    {Result, Monitor} = spawn_monitor(fun() -> Caller ! {self(), named_here(Tool, Fault, Cause)} end),
    receive
        {Result, Times} ->
            true = demonitor(Monitor, [flush]),
            Times;
        {'DOWN', Monitor, process, Result, Reason} ->
            error(Reason)
    end.

named_here(Tool, Fault, Cause) ->
    ok = listen(Tool),
    Processes = erlang:system_info(process_count),
    Begin = erlang:monotonic_time(millisecond),
    Pid = begun(Fault),
    try
        Named = await(Tool, Pid, Begin),
        {Named, diagnosed(Tool, Pid, Cause, Begin)}
    after
        true = exit(Pid, kill),
        ok = as_before(Processes, erlang:monotonic_time(millisecond))
    end.

as_before(Processes, Begin) ->
    case erlang:system_info(process_count) =< Processes + 20 of
        true -> ok;
        false -> receive after 20 -> in_time(Begin), as_before(Processes, Begin) end
    end.

in_time(Begin) -> passed(Begin) < ?TIMEOUT_MS orelse error(timeout).

%% A millisecond at least, since it is compared.
passed(Begin) -> float(max(1, erlang:monotonic_time(millisecond) - Begin)).

listen(weir_watch) -> weir_watch_agent:subscribe(weir_watch_agent);
listen(_) -> ok.

await(weir_watch, Pid, Begin) ->
    _ = heard(fun(#{suspects := Suspects}) -> [P || #{pid := P} <- Suspects, P =:= Pid] end, Begin),
    passed(Begin);
await(observer_cli, Pid, Begin) ->
    %% Its column has room for so much.
    Text = string:slice(pid_to_list(Pid), 0, ?COLUMN),
    weir_bench_screen ! {find, list_to_binary(Text), self()},
    receive found -> passed(Begin) after ?TIMEOUT_MS -> error(timeout) end;
await(recon, Pid, Begin) ->
    in_time(Begin),
    case lists:member(Pid, pass(recon)) of
        true -> passed(Begin);
        false -> await(recon, Pid, Begin)
    end.

diagnosed(weir_watch, Pid, Cause, Begin) ->
    %% Before its mailbox has grown for a while one that is flooded may be told to be busy, which it is.
    Early = [busy || Cause =:= flooded],
    [Found | _] = heard(
        fun(#{diagnoses := All}) -> [C || #{pid := P, cause := C} <- All, P =:= Pid] -- Early end, Begin
    ),
    Found =:= Cause orelse error({wrong_result, Found, Cause}),
    passed(Begin);
diagnosed(_, _, _, _) ->
    none.

%% An agent that gets too little of the processors says so, and diagnoses nothing. The error is `starved' then.
heard(Wanted, Begin) ->
    in_time(Begin),
    receive
        {weir_watch, Agent, #{limits := Limits} = Snapshot} ->
            ok = weir_watch_agent:next(Agent),
            case Wanted(Snapshot) of
                [] ->
                    IsStarved = lists:any(fun(Limit) -> string:find(Limit, "processor time") =/= nomatch end, Limits),
                    IsStarved andalso passed(Begin) > ?STARVED_MS andalso error(starved),
                    heard(Wanted, Begin);
                Found ->
                    Found
            end
    end.

%% ---------------------------------------------------------------- a screen

%% Answers the first question with the command that chooses the list by length of mailbox, and no other one.
screen(Text, Who, Question) ->
    receive
        {find, Wanted, From} ->
            screen(Wanted, From, Question);
        {io_request, From, Ref, Request} ->
            case answer(Request, Question) of
                none -> screen(Text, Who, asked);
                {Reply, Output} ->
                    From ! {io_reply, Ref, Reply},
                    case is_binary(Text) andalso binary:match(Output, Text) =/= nomatch of
                        true -> Who ! found, screen(none, undefined, Question);
                        false -> screen(Text, Who, case Reply of "mq\n" -> asked; _ -> Question end)
                    end
            end;
        _ ->
            screen(Text, Who, Question)
    end.

answer({put_chars, _, Chars}, _) -> {ok, unicode:characters_to_binary(Chars)};
answer({put_chars, _, M, F, A}, _) -> {ok, unicode:characters_to_binary(apply(M, F, A))};
answer({requests, Requests}, Question) ->
    Output = [Text || Request <- Requests, {_, Text} <- [answer(Request, Question)]],
    {ok, iolist_to_binary(Output)};
answer({get_geometry, rows}, _) -> {?LINES, <<>>};
answer({get_geometry, columns}, _) -> {150, <<>>};
answer({get_line, _, _}, first) -> {"mq\n", <<>>};
answer({get_line, _, _}, asked) -> none;
answer(_, _) -> {{error, enotsup}, <<>>}.

%% ---------------------------------------------------------------- faults

begun({calls, Callers}) ->
    {ok, Pid} = gen_server:start(?MODULE, [], []),
    _ = [spawn(fun() -> call(Pid) end) || _ <- lists:seq(1, Callers)],
    Pid;
begun(casts) ->
    {ok, Pid} = gen_server:start(?MODULE, [], []),
    _ = [spawn(fun() -> flood(Pid) end) || _ <- [1, 2]],
    Pid.

call(Pid) ->
    try gen_server:call(Pid, work, infinity) of
        ok -> call(Pid)
    catch
        exit:_ -> ok
    end.

flood(Pid) ->
    case process_info(Pid, message_queue_len) of
        undefined ->
            ok;
        {_, Queue} ->
            _ = [gen_server:cast(Pid, work) || Queue < ?MOST, _ <- lists:seq(1, ?CASTS)],
            receive after 10 -> flood(Pid) end
    end.

%% @private
-spec init(list()) -> {ok, none}.
init([]) -> {ok, none}.

%% @private
-spec handle_call(work, gen_server:from(), none) -> {reply, ok, none}.
handle_call(work, _From, none) ->
    work(?CALL_US),
    {reply, ok, none}.

%% @private
-spec handle_cast(work, none) -> {noreply, none}.
handle_cast(work, none) ->
    work(?CAST_US),
    {noreply, none}.

work(Us) -> work_until(erlang:monotonic_time(microsecond) + Us).

work_until(End) -> erlang:monotonic_time(microsecond) >= End orelse work_until(End).
