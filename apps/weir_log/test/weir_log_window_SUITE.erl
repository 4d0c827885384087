%% alog/2 keeps to its window: of one process at most so many entries wait, and at the edge it waits itself, or does
%% what the policy says.
-module(weir_log_window_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, queue_len/1, until/1, until_waiting/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).
end_per_suite(Config) -> weir_kit:loud(Config).
init_per_testcase(Case, Config) -> weir_log_test_lib:setup(Case, Config).
end_per_testcase(_Case, Config) -> weir_log_test_lib:teardown(Config).

open(Name, Config, Opts) ->
    {Log, Path} = weir_log_test_lib:open(Name, Config, Opts),
    [Writer] = weir_log_test_lib:writers(Log),
    {Log, Path, Writer}.

one(Config) -> edge(1, Config).
two(Config) -> edge(2, Config).
sixteen(Config) -> edge(16, Config).

%% With a writer that is suspended, N calls send their entries, and N - 1 of them return.
edge(Window, Config) ->
    {Log, Path, Writer} = open(log, Config, #{window => Window}),
    true = erlang:suspend_process(Writer),
    {Caller, _} = Task = weir_kit:start(fun() -> count(Log, 3 * Window) end),
    ok = until(fun() -> queue_len(Writer) =:= Window orelse queue_len(Writer) end),
    ok = until_waiting(Task),
    ?assertEqual(Window, queue_len(Writer)),
    ?assertEqual({count, Window - 1}, sent(Caller)),
    true = erlang:resume_process(Writer),
    ok = weir_kit:result(Task),
    ok = weir_log:close(Log),
    Sent = [integer_to_binary(I) || I <- lists:seq(1, 3 * Window)],
    weir_kit:same(order, Sent, weir_log_test_lib:lines(Path)).

count(Log, N) ->
    lists:foreach(
        fun(I) ->
            ok = weir_log:alog(Log, integer_to_binary(I)),
            put(count, I)
        end,
        lists:seq(1, N)
    ).

sent(Caller) ->
    {dictionary, Dictionary} = process_info(Caller, dictionary),
    {count, proplists:get_value(count, Dictionary, 0)}.

many_processes(Config) ->
    {Log, Path, Writer} = open(log, Config, #{window => 4}),
    true = erlang:suspend_process(Writer),
    Crowd = weir_log_test_lib:crowd(200, fun(_) -> count(Log, 20) end),
    ok = weir_log_test_lib:all_asleep(Crowd),
    ?assertEqual(800, queue_len(Writer)),
    true = erlang:resume_process(Writer),
    ?assertEqual([{I, ok} || I <- lists:seq(1, 200)], weir_log_test_lib:await(Crowd)),
    ok = weir_log:close(Log),
    weir_kit:same(entries, 4000, length(weir_log_test_lib:lines(Path))).

windows_are_per_log(Config) ->
    {A, _, WriterA} = open(a, Config, #{window => 4}),
    {B, _, WriterB} = open(b, Config, #{window => 4}),
    [true = erlang:suspend_process(Writer) || Writer <- [WriterA, WriterB]],
    [ok = weir_log:alog(Log, <<"x">>) || _ <- lists:seq(1, 3), Log <- [A, B]],
    ?assertEqual([3, 3], [queue_len(WriterA), queue_len(WriterB)]),
    [true = erlang:resume_process(Writer) || Writer <- [WriterA, WriterB]].

order(Config) -> in_order(fun(Log, _I, Line) -> ok = weir_log:alog(Log, Line) end, Config).

order_mixed(Config) ->
    in_order(
        fun(Log, I, Line) ->
            case I rem 7 of
                0 -> ok = weir_log:log(Log, Line);
                _ -> ok = weir_log:alog(Log, Line)
            end
        end,
        Config
    ).

in_order(Send, Config) ->
    {Log, Path, _} = open(log, Config, #{}),
    Crowd = weir_log_test_lib:crowd(100, fun(P) ->
        [Send(Log, I, io_lib:format("~b ~b", [P, I])) || I <- lists:seq(1, 200)],
        ok
    end),
    ?assertEqual([{I, ok} || I <- lists:seq(1, 100)], weir_log_test_lib:await(Crowd)),
    ok = weir_log:close(Log),
    weir_log_test_lib:in_order(100, 200, weir_log_test_lib:lines(Path)).

%% Opening and closing leaves one entry of a name in a process's dictionary, beside one of who waits for what.
few_keys(Config) ->
    Before = length(get()),
    [
        begin
            {Log, _, _} = open(log, Config, #{}),
            ok = weir_log:alog(Log, <<"x">>),
            ok = weir_log:close(Log)
        end
     || _ <- lists:seq(1, 20)
    ],
    ?assertEqual(Before + 1, length(get())).

%% ---------------------------------------------------------------- policies that do not wait

defaults(Config) ->
    {Waits, _, _} = open(waits, Config, #{}),
    {Rejects, _, _} = open(rejects, Config, #{overload => reject}),
    ?assertMatch(#{window := 16}, weir_log_test_lib:info(Waits)),
    ?assertMatch(#{window := 1024}, weir_log_test_lib:info(Rejects)).

reject_one(Config) -> reject(1, Config).
reject_three(Config) -> reject(3, Config).
reject_sixteen(Config) -> reject(16, Config).

%% N entries are taken in and the next is refused, again and again, and there is nothing in the caller's mailbox.
reject(Window, Config) ->
    {Log, Path, Writer} = open(log, Config, #{window => Window, overload => reject}),
    [rejected_at(Window, Log, Writer) || _ <- lists:seq(1, 3)],
    ?assertMatch(#{rejected := 6, dropped := 0, waited := 0}, weir_log_test_lib:info(Log)),
    ok = weir_log:close(Log),
    ?assertEqual(3 * Window, length(weir_log_test_lib:lines(Path))),
    ?assertEqual({messages, []}, process_info(self(), messages)).

rejected_at(Window, Log, Writer) ->
    true = erlang:suspend_process(Writer),
    [?assertEqual(ok, weir_log:alog(Log, <<"x">>)) || _ <- lists:seq(1, Window)],
    [?assertEqual({error, {overload, log}}, weir_log:alog(Log, <<"y">>)) || _ <- [1, 2]],
    true = erlang:resume_process(Writer),
    ok = weir_log:sync(Log).

%% The disk does not answer, and nobody has to wait for it.
rejected_in_a_hung_write(Config) ->
    {Log, Path, _} = open(log, Config, #{window => 4, overload => reject, file_module => weir_log_test_file}),
    Writer = weir_log_test_lib:blocked(write, Log),
    ?assertEqual([ok, ok, ok, error, error], [result(weir_log:alog(Log, <<"x">>)) || _ <- lists:seq(1, 5)]),
    ok = weir_log_test_file:go(Writer, ok),
    ok = weir_log:sync(Log),
    ?assertEqual(ok, weir_log:alog(Log, <<"x">>)),
    ok = weir_log:close(Log),
    ?assertEqual(5, length(weir_log_test_lib:lines(Path))).

result(ok) -> ok;
result({error, {overload, log}}) -> error.

%% What is not dropped waits until it is written, in its place.
drop_by_level(Config) ->
    {Log, Path, Writer} = open(log, Config, #{window => 2, overload => {drop, warning}}),
    true = erlang:suspend_process(Writer),
    Results = fun(_) ->
        [weir_log:alog(Log, Entry, Level) || {Entry, Level} <- [{<<"1">>, info}, {<<"2">>, info}, {<<"3">>, info},
            {<<"4">>, error}, {<<"5">>, info}]]
    end,
    Crowd = weir_log_test_lib:crowd(1, Results),
    ok = until(fun() -> queue_len(Writer) =:= 4 orelse queue_len(Writer) end),
    true = erlang:resume_process(Writer),
    ?assertEqual([{1, [ok, ok, {error, {dropped, log}}, ok, ok]}], weir_log_test_lib:await(Crowd)),
    ?assertMatch(#{dropped := 1, waited := 1}, weir_log_test_lib:info(Log)),
    ok = weir_log:close(Log),
    {[Told], Entries} = weir_log_test_lib:told(weir_log_test_lib:lines(Path)),
    ?assertEqual([<<"1">>, <<"2">>, <<"4">>, <<"5">>], Entries),
    ?assertMatch({match, _}, re:run(Told, "^weir_log: from .*: 1 entry was dropped \\(info 1\\)$")).

told_of_one_and_of_two(Config) ->
    [
        begin
            {Log, Path, Writer} = open(log, Config, #{window => 1, overload => {drop, error}}),
            true = erlang:suspend_process(Writer),
            ok = weir_log:alog(Log, <<"x">>, info),
            [{error, {dropped, log}} = weir_log:alog(Log, <<"y">>, info) || _ <- lists:seq(1, N)],
            true = erlang:resume_process(Writer),
            ok = weir_log:close(Log),
            ?assertMatch({match, _}, re:run(lists:last(weir_log_test_lib:lines(Path)), Told))
        end
     || {N, Told} <- [
            {1, "^weir_log: from .*: 1 entry was dropped \\(info 1\\)$"},
            {2, "^weir_log: from .*: 2 entries were dropped \\(info 2\\)$"}
        ]
    ].

%% An entry that is a function is not made at the edge.
not_made_at_the_edge(Config) ->
    {Log, _, Writer} = open(log, Config, #{window => 2, overload => reject}),
    true = erlang:suspend_process(Writer),
    [ok = weir_log:alog(Log, fun() -> <<"x">> end) || _ <- [1, 2]],
    ?assertEqual({error, {overload, log}}, weir_log:alog(Log, fun() -> error(made) end)),
    true = erlang:resume_process(Writer),
    ok = weir_log:sync(Log),
    ?assertEqual(ok, weir_log:alog(Log, fun() -> <<"x">> end)),
    ?assertMatch(#{rejected := 1}, weir_log_test_lib:info(Log)).

%% A window that is full of what was sent to a writer that is dead is empty for the next one.
another_writer(Config) ->
    {Log, Path, Writer} = open(log, Config, #{window => 2, overload => reject}),
    true = erlang:suspend_process(Writer),
    [ok = weir_log:alog(Log, <<"lost">>) || _ <- [1, 2]],
    {error, {overload, log}} = weir_log:alog(Log, <<"refused">>),
    ok = kill(Writer),
    ok = until(fun() -> weir_log_test_lib:writers(Log) =/= [Writer] end),
    [?assertEqual(ok, weir_log:alog(Log, <<"x">>)) || _ <- [1, 2]],
    ok = weir_log:close(Log),
    ?assertMatch([<<"x">>, <<"x">>], [Line || <<"x">> = Line <- weir_log_test_lib:lines(Path)]).

%% What a log of the same name has left in the dictionary is no count of this one's.
another_policy(Config) ->
    Policies = [wait, reject, wait, {drop, error}],
    [
        begin
            {Log, _, _} = open(log, Config, #{window => 3, overload => Policy}),
            [?assertEqual(ok, weir_log:alog(Log, <<"x">>)) || _ <- [1, 2]],
            ok = weir_log:close(Log)
        end
     || Policy <- Policies
    ].
