%% Waiting for a writer that dies, at any moment and with whoever else: each caller gets one answer, and nothing is left
%% in its mailbox.
-module(weir_log_wait_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_log.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    all_kinds/1, writer_dead_before/1, answered_before/1, suspended/1, waits_elsewhere/1, busy/1, under_load/1,
    waker_killed/1, waker_and_writer_killed/1, wakers_killed_in_a_row/1, everything_killed/1, application_stopped/1,
    wakers_go/1, term_written_late/1
]).

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [
        all_kinds, writer_dead_before, answered_before, suspended, waits_elsewhere, busy, under_load,
        waker_killed, waker_and_writer_killed, wakers_killed_in_a_row, everything_killed, application_stopped,
        wakers_go, term_written_late
    ].

init_per_suite(Config) -> weir_log_test_lib:quiet(Config).
end_per_suite(Config) -> weir_log_test_lib:loud(Config).
init_per_testcase(Case, Config) -> weir_log_test_lib:setup(Case, Config).
end_per_testcase(_Case, Config) -> weir_log_test_lib:teardown(Config).

open(Config, Opts) ->
    {Log, _} = weir_log_test_lib:open(log, Config, Opts),
    [Writer] = weir_log_test_lib:writers(Log),
    {Log, Writer}.

waker(Log) ->
    #log{shards = {#shard{key = Key}}} = weir_log_terms:log(Log),
    persistent_term:get(?WAKER_KEY(Key)).

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
    Waker = waker(Log),
    true = erlang:suspend_process(Writer),
    Callers = callers(30, fun
        (I) when I rem 3 =:= 0 -> weir_log:log(Log, <<"x">>);
        (I) when I rem 3 =:= 1 -> weir_log:alog(Log, <<"x">>);
        (_) -> weir_log:sync(Log)
    end),
    ok = weir_log_test_lib:all_asleep(Callers),
    weir_log_test_lib:kill(Writer),
    weir_log_test_lib:await_down(Waker),
    ?assertEqual(told(30), finish(Callers)).

%% Nobody waits for a writer that is dead, but an answer that has arrived counts.
writer_dead_before(_Config) ->
    Dead = spawn(fun() -> ok end),
    ok = weir_log_test_lib:await_down(Dead),
    ?assertEqual({error, writer_down}, weir_log_wait:answer(Dead, make_ref())),
    Ref = make_ref(),
    self() ! {Ref, ok},
    ?assertEqual(ok, weir_log_wait:answer(Dead, Ref)).

%% The writer answers and dies while the caller does not run: the answer counts, and there is no other.
answered_before(Config) ->
    {Log, Writer} = open(Config, #{}),
    Waker = waker(Log),
    Callers = waiting(Log, Writer, 10),
    [true = erlang:suspend_process(Pid) || {_, {Pid, _}} <- Callers],
    true = erlang:resume_process(Writer),
    %% It answers those who were before this one.
    ok = weir_log:log(Log, <<"y">>),
    weir_log_test_lib:kill(Writer),
    [true = erlang:resume_process(Pid) || {_, {Pid, _}} <- Callers],
    weir_log_test_lib:await_down(Waker),
    ?assertEqual(lists:duplicate(10, {ok, []}), finish(Callers)).

%% Who is suspended while the writer dies is told when it runs again.
suspended(Config) ->
    {Log, Writer} = open(Config, #{}),
    Waker = waker(Log),
    Callers = waiting(Log, Writer, 10),
    [true = erlang:suspend_process(Pid) || {_, {Pid, _}} <- Callers],
    weir_log_test_lib:kill(Writer),
    ok = weir_log_test_lib:eventually(fun() -> waker(Log) =/= Waker end),
    [true = erlang:resume_process(Pid) || {_, {Pid, _}} <- Callers],
    weir_log_test_lib:await_down(Waker),
    ?assertEqual(told(10), finish(Callers)).

%% What is in a dictionary counts only for one who waits for an answer.
waits_elsewhere(Config) ->
    {Log, Writer} = open(Config, #{}),
    Waker = waker(Log),
    Callers = callers(10, fun(_) -> put(weir_log_wait, {Writer, make_ref()}) end),
    ok = weir_log_test_lib:all_asleep(Callers),
    weir_log_test_lib:kill(Writer),
    weir_log_test_lib:await_down(Waker),
    ?assertEqual(lists:duplicate(10, {undefined, []}), finish(Callers)).

%% Processes that never wait do not keep the waker from its work.
busy(Config) ->
    {Log, Writer} = open(Config, #{}),
    Waker = waker(Log),
    Busy = [spawn(fun spin/0) || _ <- [1, 2]],
    Callers = waiting(Log, Writer, 3),
    weir_log_test_lib:kill(Writer),
    weir_log_test_lib:await_down(Waker),
    [exit(Pid, kill) || Pid <- Busy],
    ?assertEqual(told(3), finish(Callers)).

spin() -> spin().

%% Writers die while callers are at any point of a call.
under_load(Config) ->
    {Log, _} = open(Config, #{}),
    Stop = atomics:new(1, []),
    Callers = callers(50, fun(_) -> until(Stop, Log) end),
    [
        begin
            [Writer] = weir_log_test_lib:writers(Log),
            weir_log_test_lib:kill(Writer),
            ok = weir_log_test_lib:eventually(fun() ->
                [New] = weir_log_test_lib:writers(Log),
                New =/= Writer
            end)
        end
     || _ <- lists:seq(1, 9)
    ],
    Waker = waker(Log),
    ok = atomics:put(Stop, 1, 1),
    ok = weir_log_test_lib:all_asleep(Callers),
    ok = weir_log:close(Log),
    weir_log_test_lib:await_down(Waker),
    ?assertEqual(lists:duplicate(50, {ok, []}), finish(Callers)).

until(Stop, Log) ->
    case {weir_log:log(Log, <<"x">>), atomics:get(Stop, 1)} of
        {_, 1} -> ok;
        {ok, 0} -> until(Stop, Log);
        {{error, writer_down}, 0} -> until(Stop, Log)
    end.

%% ---------------------------------------------------------------- who else is killed

next_writer(Log, Writer) ->
    ok = weir_log_test_lib:eventually(fun() ->
        case weir_log_test_lib:writers(Log) of
            [Writer] -> false;
            [New] -> is_pid(New) andalso weir_log:log(Log, <<"z">>) =:= ok
        end
    end).

%% The writer dies of it, and the next waker does what this one has not done.
waker_killed(Config) ->
    {Log, Writer} = open(Config, #{}),
    Callers = waiting(Log, Writer, 10),
    weir_log_test_lib:kill(waker(Log)),
    ?assertEqual(told(10), finish(Callers)),
    ok = next_writer(Log, Writer).

waker_and_writer_killed(Config) ->
    {Log, Writer} = open(Config, #{}),
    Callers = waiting(Log, Writer, 10),
    [exit(Pid, kill) || Pid <- [waker(Log), Writer]],
    ?assertEqual(told(10), finish(Callers)),
    ok = next_writer(Log, Writer).

wakers_killed_in_a_row(Config) ->
    {Log, _} = open(Config, #{}),
    [
        begin
            [Writer] = weir_log_test_lib:writers(Log),
            Callers = waiting(Log, Writer, 3),
            weir_log_test_lib:kill(waker(Log)),
            ?assertEqual(told(3), finish(Callers)),
            ok = next_writer(Log, Writer)
        end
     || _ <- lists:seq(1, 8)
    ].

%% The whole log, and who cleans up after it.
everything_killed(Config) ->
    {Log, Writer} = open(Config, #{}),
    Callers = waiting(Log, Writer, 10),
    [exit(Pid, kill) || Pid <- family(Log, Writer) ++ [whereis(weir_log_node_sup), whereis(weir_log_registry)]],
    ?assertEqual(told(10), finish(Callers)),
    %% With the table nobody knows of the log any more.
    ?assertEqual({error, writer_down}, weir_log:log(Log, <<"x">>)),
    #log{id = Id} = weir_log_terms:log(Log),
    ok = weir_log_terms:close(Log, Id),
    ok = weir_log_terms:erase_writers(Id, 1).

family(Log, Writer) ->
    {ok, Sup} = weir_log_registry:lookup(Log),
    [Sup, Writer | [Pid || {gate, Pid, _, _} <- supervisor:which_children(Sup)]].

%% The waker does not end with the application before it has done its work.
application_stopped(Config) ->
    {Log, Writer} = open(Config, #{}),
    Callers = waiting(Log, Writer, 10),
    #log{id = Id} = weir_log_terms:log(Log),
    [exit(Pid, kill) || Pid <- family(Log, Writer)],
    ok = application:stop(weir_log),
    ?assertEqual(told(10), finish(Callers)),
    ok = weir_log_terms:close(Log, Id),
    ok = weir_log_terms:erase_writers(Id, 1).

%% A log that is closed leaves no process.
wakers_go(Config) ->
    {Log, _} = open(Config, #{}),
    Waker = waker(Log),
    ?assert(is_process_alive(Waker)),
    ok = weir_log:close(Log),
    ok = weir_log_test_lib:await_down(Waker).

%% A log that is killed may have been cleaned up after before the waker of a writer that was just starting has written
%% its term.
term_written_late(Config) ->
    Shard = weir_log_terms:new_shard(1, 1),
    {ok, Conf} = weir_log_opts:check(#{file => weir_log_test_lib:path("log", Config)}),
    Boot = #boot{name = no_log, id = 1, number = 1, path = Conf#conf.file, shard = Shard, conf = Conf},
    {Writer, Monitor} = spawn_monitor(fun() ->
        ok = weir_log_wait:start(Boot, none),
        exit(persistent_term:get(?WAKER_KEY(Shard#shard.key)))
    end),
    receive
        {'DOWN', Monitor, process, Writer, Waker} -> ok = weir_log_test_lib:await_down(Waker)
    end,
    ?assertEqual([], weir_log_test_lib:leftovers()).
