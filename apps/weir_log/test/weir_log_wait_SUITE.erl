%% Waiting for a writer that dies, at any moment and with whoever else, or that does not answer in time: each caller
%% gets one answer, and nothing is left in its mailbox.
-module(weir_log_wait_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_log.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, until/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).
end_per_suite(Config) -> weir_kit:loud(Config).
init_per_testcase(Case, Config) -> weir_log_test_lib:setup(Case, Config).
end_per_testcase(_Case, Config) -> weir_log_test_lib:teardown(Config).

open(Config, Opts) ->
    {Log, _} = weir_log_test_lib:open(log, Config, Opts),
    [Writer] = weir_log_test_lib:writers(Log),
    {Log, Writer}.

%% Callers that say what they were answered and what else is in their mailbox, once they are let go.
callers(N, Fun) ->
    weir_log_test_lib:crowd(N, fun(I) ->
        Answer = Fun(I),
        receive
            finish -> ok
        end,
        {messages, Left} = process_info(self(), messages),
        {Answer, Left}
    end).

finish(Callers) ->
    [Pid ! finish || {_, {Pid, _}} <- Callers],
    [Answer || {_, Answer} <- weir_log_test_lib:await(Callers)].

waiting(Log, Writer, N) ->
    true = erlang:suspend_process(Writer),
    Callers = callers(N, fun(_) -> weir_log:log(Log, <<"x">>) end),
    ok = weir_log_test_lib:all_asleep(Callers),
    Callers.

told(N) -> lists:duplicate(N, {{error, writer_down}, []}).

all_kinds(Config) ->
    {Log, Writer} = open(Config, #{window => 1, max_bytes => 3}),
    true = erlang:suspend_process(Writer),
    Callers = callers(30, fun
        (I) when I rem 3 =:= 0 -> weir_log:log(Log, <<"x">>);
        (I) when I rem 3 =:= 1 -> weir_log:alog(Log, <<"x">>);
        (_) -> weir_log:sync(Log)
    end),
    ok = weir_log_test_lib:all_asleep(Callers),
    kill(Writer),
    weir_kit:same(answers, told(30), finish(Callers)).

%% The writer answers and dies while the caller does not run: the answer counts, and there is no other.
answered_before(Config) ->
    {Log, Writer} = open(Config, #{}),
    Callers = waiting(Log, Writer, 10),
    [true = erlang:suspend_process(Pid) || {_, {Pid, _}} <- Callers],
    true = erlang:resume_process(Writer),
    %% It answers those who were before this one.
    ok = weir_log:log(Log, <<"y">>),
    kill(Writer),
    [true = erlang:resume_process(Pid) || {_, {Pid, _}} <- Callers],
    weir_kit:same(answers, lists:duplicate(10, {ok, []}), finish(Callers)).

%% Who is suspended while the writer dies is told when it runs again.
suspended(Config) ->
    {Log, Writer} = open(Config, #{}),
    Callers = waiting(Log, Writer, 10),
    [true = erlang:suspend_process(Pid) || {_, {Pid, _}} <- Callers],
    kill(Writer),
    [true = erlang:resume_process(Pid) || {_, {Pid, _}} <- Callers],
    weir_kit:same(answers, told(10), finish(Callers)).

%% Writers die while callers are at any point of a call.
under_load(Config) ->
    {Log, _} = open(Config, #{}),
    Stop = atomics:new(1, []),
    Callers = callers(50, fun(_) -> log_until(Stop, Log) end),
    [
        begin
            [Writer] = weir_log_test_lib:writers(Log),
            kill(Writer),
            ok = until(fun() ->
                [New] = weir_log_test_lib:writers(Log),
                New =/= Writer
            end)
        end
     || _ <- lists:seq(1, 9)
    ],
    ok = atomics:put(Stop, 1, 1),
    ok = weir_log_test_lib:all_asleep(Callers),
    ok = weir_log:close(Log),
    weir_kit:same(answers, lists:duplicate(50, {ok, []}), finish(Callers)).

log_until(Stop, Log) ->
    case {weir_log:log(Log, <<"x">>), atomics:get(Stop, 1)} of
        {_, 1} -> ok;
        {ok, 0} -> log_until(Stop, Log);
        {{error, writer_down}, 0} -> log_until(Stop, Log)
    end.

%% ---------------------------------------------------------------- who else is killed

%% The whole log, and who cleans up after it.
everything_killed(Config) ->
    {Log, Writer} = open(Config, #{}),
    Callers = waiting(Log, Writer, 10),
    [Sup | Children] = family(Log, Writer),
    %% Whoever sees another one die closes the log, or starts that one again: so those who could go first, one by one,
    %% and who starts them again does not run.
    true = erlang:suspend_process(Sup),
    lists:foreach(fun weir_kit:kill/1, [whereis(weir_log_registry), whereis(weir_log_node_sup)]),
    lists:foreach(fun weir_kit:kill/1, Children ++ [Sup]),
    ok = weir_kit:same(answers, told(10), finish(Callers)),
    %% With the table nobody knows of the log any more.
    ?assertEqual({error, writer_down}, weir_log:log(Log, <<"x">>)),
    #log{id = Id} = weir_log_terms:log(Log),
    ok = weir_log_terms:close(Log, Id),
    ok = weir_log_terms:erase_writers(Id, 1).

family(Log, Writer) ->
    {ok, Sup} = weir_log_registry:lookup(Log),
    [Sup, Writer | [Pid || {opener, Pid, _, _} <- supervisor:which_children(Sup)]].

application_stopped(Config) ->
    {Log, Writer} = open(Config, #{}),
    Callers = waiting(Log, Writer, 10),
    #log{id = Id} = weir_log_terms:log(Log),
    [exit(Pid, kill) || Pid <- family(Log, Writer)],
    ok = application:stop(weir_log),
    ok = weir_kit:same(answers, told(10), finish(Callers)),
    ok = weir_log_terms:close(Log, Id),
    ok = weir_log_terms:erase_writers(Id, 1).

%% ---------------------------------------------------------------- a time-out

%% A log whose disk stands still, with an entry under way.
frozen(Config, Opts) ->
    {Log, _} = weir_log_test_lib:open(log, Config, Opts#{file_module => weir_log_test_file}),
    {Log, weir_log_test_lib:blocked(write, Log)}.

times_out(Config) ->
    {Log, Writer} = frozen(Config, #{timeout => 200}),
    Answers = finish(callers(10, fun(_) -> weir_log:log(Log, <<"x">>) end)),
    %% A caller waits unless another one has given up before it comes.
    ?assertEqual([], [Answer || Answer <- Answers, not is_late(Answer)]),
    ?assert(lists:member({{error, timeout}, []}, Answers)),
    ok = weir_log_test_file:go(Writer, ok).

%% A sync of many shards has one time-out for all. With a time-out for each it would take two minutes.
sync_times_out_once(Config) ->
    {Log, _} = weir_log_test_lib:open(log, Config, #{timeout => 500, shards => 256}),
    Writers = weir_log_test_lib:writers(Log),
    [true = erlang:suspend_process(Writer) || Writer <- Writers],
    try
        ?assertEqual({error, timeout}, weir_kit:result(weir_kit:start(fun() -> weir_log:sync(Log) end)))
    after
        [true = erlang:resume_process(Writer) || Writer <- Writers]
    end.

is_late({{error, timeout}, []}) -> true;
is_late({{error, {stuck, log}}, []}) -> true;
is_late(_) -> false.

%% Once one has waited in vain nobody waits, and what is dropped is counted by its level; entries that were sent before
%% are written when the disk goes on, and then the log tells of those that were not.
stuck(Config) ->
    {Log, Writer} = frozen(Config, #{timeout => 20}),
    ?assertEqual({error, timeout}, weir_log:log(Log, <<"late">>, info)),
    [?assertEqual({error, {stuck, log}}, weir_log:log(Log, <<"x">>, error)) || _ <- lists:seq(1, 100)],
    %% Within its window a caller need not wait.
    ok = weir_log:alog(Log, <<"in the window">>),
    ?assertMatch(#{stuck := true, lost_by_level := #{error := 100}, file := busy}, weir_log_test_lib:shard(Log)),
    ok = weir_log_test_file:go(Writer, ok),
    ok = until(fun() -> not maps:get(stuck, weir_log_test_lib:shard(Log)) end),
    %% A busy machine may take longer than that.
    ok = weir_log:change(Log, #{timeout => weir_kit:wait_ms()}),
    ok = weir_log:log(Log, <<"again">>),
    Path = weir_log_test_lib:path("log", Config),
    ok = until(fun() -> length(weir_log_test_lib:lines(Path)) =:= 5 end),
    {[Told], Entries} = weir_log_test_lib:told(weir_log_test_lib:lines(Path)),
    ?assertEqual([<<"first">>, <<"late">>, <<"in the window">>, <<"again">>], Entries),
    ?assertMatch({_, _}, binary:match(Told, <<"100 entries were dropped (error 100)">>)),
    %% What has been written is counted afterwards.
    ok = until(fun() ->
        case weir_log_test_lib:shard(Log) of
            #{stuck := false, dropped := 100, entries := 5} -> true;
            Other -> Other
        end
    end).

%% Nobody has to log something for the log to be usable again.
goes_on_by_itself(Config) ->
    {Log, Writer} = frozen(Config, #{timeout => 20}),
    ?assertEqual({error, timeout}, weir_log:log(Log, <<"late">>)),
    ok = weir_log_test_file:go(Writer, ok),
    ok = until(fun() -> not maps:get(stuck, weir_log_test_lib:shard(Log)) end).

%% A caller was killed when it was about to have the writer told.
look_never_sent(Config) ->
    {Log, Writer} = frozen(Config, #{timeout => 20}),
    ok = atomics:put(weir_log_test_lib:words(Log), ?NUDGED, 1),
    ?assertEqual({error, timeout}, weir_log:log(Log, <<"late">>)),
    ok = weir_log_test_file:go(Writer, ok),
    ok = until(fun() -> not maps:get(stuck, weir_log_test_lib:shard(Log)) end).

%% The writer dies while a caller that has waited too long does not run: the next one is told.
writer_gone_before_the_look(Config) ->
    {Log, Writer} = open(Config, #{timeout => 50}),
    true = erlang:suspend_process(Writer),
    [{_, {Pid, _}}] = Callers = callers(1, fun(_) -> weir_log:log(Log, <<"x">>) end),
    ok = weir_log_test_lib:all_asleep(Callers),
    true = erlang:suspend_process(Pid),
    kill(Writer),
    ok = until(fun() -> weir_log_test_lib:writers(Log) =/= [Writer] end),
    ok = until(fun() -> weir_log:log(Log, <<"y">>) =:= ok end),
    true = erlang:resume_process(Pid),
    _ = finish(Callers),
    ok = until(fun() -> weir_log:log(Log, <<"y">>) =:= ok end).

%% A caller may give up when the writer has just done all that there was: its mark does not stay.
stuck_with_nothing_to_do(Config) ->
    {Log, Writer} = open(Config, #{timeout => 1}),
    [
        begin
            true = erlang:suspend_process(Writer),
            {error, _} = weir_log:log(Log, <<"x">>),
            true = erlang:resume_process(Writer),
            ok = until(fun() -> not maps:get(stuck, weir_log_test_lib:shard(Log)) end)
        end
     || _ <- lists:seq(1, 50)
    ].

late_answers_are_nobodys(Config) ->
    {Log, Writer} = frozen(Config, #{timeout => 10}),
    Callers = callers(20, fun(I) ->
        case I rem 2 of
            0 -> weir_log:log(Log, <<"x">>);
            1 -> weir_log:sync(Log)
        end
    end),
    ok = until(fun() ->
        [] =:= [Pid || {_, {Pid, _}} <- Callers, not has_given_up(Pid)]
    end),
    ok = weir_log_test_file:go(Writer, ok),
    ok = until(fun() -> weir_log:sync(Log) =:= ok end),
    weir_kit:none(late_answers, [Left || {_, [_ | _] = Left} <- finish(Callers)]).

has_given_up(Pid) -> process_info(Pid, current_function) =:= {current_function, {?MODULE, '-callers/2-fun-0-', 2}}.

%% What was in the mailbox before is not looked at, however long it is. What it costs is bounded by what a look at it
%% all would cost, which is hundreds of times more.
waits_with_a_long_mailbox(Config) ->
    Log = fun(Name) -> weir_log:log(Name, <<"x">>) end,
    Alog = fun(Name) -> weir_log:alog(Name, <<"x">>) end,
    [
        long_mailbox(Opts, Call, Config)
     || {Opts, Call} <- [
            {#{}, Log},
            {#{timeout => weir_kit:wait_ms()}, Log},
            {#{window => 1}, Alog},
            {#{window => 1, timeout => weir_kit:wait_ms()}, Alog},
            {#{}, fun weir_log:sync/1}
        ]
    ].

long_mailbox(Opts, Call, Config) ->
    {Log, _} = open(Config, Opts),
    Reductions = fun(Before) ->
        [Answer] = finish(
            callers(1, fun(_) ->
                %% With room for all that comes: to collect garbage costs what is in the mailbox.
                _ = process_flag(min_heap_size, 2_000_000),
                [self() ! {stray, I} || I <- lists:seq(1, Before)],
                ok = Call(Log),
                true = garbage_collect(),
                {_, Start} = erlang:process_info(self(), reductions),
                [ok = Call(Log) || _ <- lists:seq(1, 20)],
                {_, End} = erlang:process_info(self(), reductions),
                [receive {stray, I} -> ok end || I <- lists:seq(1, Before)],
                End - Start
            end)
        ),
        {Used, []} = Answer,
        Used
    end,
    {Short, Long} = {Reductions(0), Reductions(100_000)},
    Short * 10 > Long orelse ct:fail({Opts, Short, Long}),
    ok = weir_log:close(Log).

sync_times_out(Config) ->
    {Log, Writer} = frozen(Config, #{timeout => 20}),
    ?assertEqual({error, timeout}, weir_log:sync(Log)),
    ?assertEqual({error, timeout}, weir_log:rotate(Log)),
    ok = weir_log_test_file:go(Writer, ok).

%% At the edge of the window the entry has been sent; from then on the caller is at the edge, and does not wait there.
alog_times_out(Config) ->
    {Log, Writer} = frozen(Config, #{timeout => 20, window => 3}),
    Alog = fun() -> [weir_log:alog(Log, <<"x">>, warning) || _ <- lists:seq(1, 3)] end,
    [{Answers, []}] = finish(callers(1, fun(_) -> [Alog(), Alog()] end)),
    Stuck = {error, {stuck, log}},
    ?assertEqual([[ok, ok, {error, timeout}], [Stuck, Stuck, Stuck]], Answers),
    ?assertMatch(#{lost_by_level := #{warning := 3}}, weir_log_test_lib:shard(Log)),
    ok = weir_log_test_file:go(Writer, ok),
    ok = until(fun() -> maps:get(entries, weir_log_test_lib:shard(Log)) =:= 5 end).

higher_levels_time_out(Config) ->
    {Log, Writer} = frozen(Config, #{timeout => 20, max_bytes => 1, overload => {drop, error}}),
    ?assertEqual({error, {dropped, log}}, weir_log:alog(Log, <<"x">>, warning)),
    ?assertEqual({error, timeout}, weir_log:alog(Log, <<"x">>, error)),
    ?assertEqual({error, {stuck, log}}, weir_log:alog(Log, <<"x">>, error)),
    ?assertMatch(#{lost_by_level := #{warning := 1, error := 1}}, weir_log_test_lib:shard(Log)),
    ok = weir_log_test_file:go(Writer, ok).

%% For processes that the node cannot do without: no window, and at the cap they drop.
never_waits(Config) ->
    {Log, Writer} = frozen(Config, #{window => 1, max_bytes => 1000}),
    Offered = [weir_log_client:offer(Log, <<"x">>, info) || _ <- lists:seq(1, 20)],
    %% 5 for what is under way, and 129 for each entry and newline and what its message takes.
    {Taken, Dropped} = lists:splitwith(fun(Answer) -> Answer =:= ok end, Offered),
    ?assertEqual(lists:duplicate(length(Dropped), {error, {dropped, log}}), Dropped),
    ?assertEqual(7, length(Taken)),
    ?assertMatch(#{lost_by_level := #{info := 13}}, weir_log_test_lib:shard(Log)),
    ok = weir_log_test_file:go(Writer, ok).
