%% alog/2 keeps to its window: of one process at most so many entries wait, and at the edge it waits itself.
-module(weir_log_window_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([one/1, two/1, sixteen/1, many_processes/1, windows_are_per_log/1, order/1, order_mixed/1, few_keys/1]).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [one, two, sixteen, many_processes, windows_are_per_log, order, order_mixed, few_keys].

init_per_suite(Config) -> weir_log_test_lib:quiet(Config).
end_per_suite(Config) -> weir_log_test_lib:loud(Config).
init_per_testcase(Case, Config) -> weir_log_test_lib:setup(Case, Config).
end_per_testcase(_Case, Config) -> weir_log_test_lib:teardown(Config).

open(Name, Config, Opts) ->
    Path = weir_log_test_lib:path(atom_to_list(Name), Config),
    {ok, Log} = weir_log:open(Name, maps:merge(#{file => Path, newline => true}, Opts)),
    [Writer] = weir_log_test_lib:writers(Log),
    {Log, Path, Writer}.

one(Config) -> edge(1, Config).
two(Config) -> edge(2, Config).
sixteen(Config) -> edge(16, Config).

%% With a writer that does nothing, N calls are sent, and only N - 1 return.
edge(Window, Config) ->
    {Log, Path, Writer} = open(log, Config, #{window => Window}),
    true = erlang:suspend_process(Writer),
    {Caller, Monitor} = spawn_monitor(fun() -> count(Log, 3 * Window) end),
    ok = weir_log_test_lib:eventually(fun() -> queue(Writer) =:= Window orelse queue(Writer) end),
    weir_log_test_lib:asleep(Caller),
    ?assertEqual(Window, queue(Writer)),
    ?assertEqual({count, Window - 1}, sent(Caller)),
    true = erlang:resume_process(Writer),
    receive
        {'DOWN', Monitor, process, Caller, Reason} -> ?assertEqual(normal, Reason)
    after 10000 -> error(waits)
    end,
    ok = weir_log:close(Log),
    ?assertEqual(3 * Window, length(weir_log_test_lib:lines(Path))).

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

queue(Writer) ->
    {message_queue_len, Length} = process_info(Writer, message_queue_len),
    Length.

many_processes(Config) ->
    {Log, Path, Writer} = open(log, Config, #{window => 4}),
    true = erlang:suspend_process(Writer),
    Crowd = weir_log_test_lib:crowd(200, fun(_) -> count(Log, 20) end),
    [weir_log_test_lib:asleep(Pid) || {_, {Pid, _}} <- Crowd],
    ?assertEqual(800, queue(Writer)),
    true = erlang:resume_process(Writer),
    ?assertEqual([{I, ok} || I <- lists:seq(1, 200)], weir_log_test_lib:await(Crowd)),
    ok = weir_log:close(Log),
    ?assertEqual(4000, length(weir_log_test_lib:lines(Path))).

windows_are_per_log(Config) ->
    {A, _, WriterA} = open(a, Config, #{window => 4}),
    {B, _, WriterB} = open(b, Config, #{window => 4}),
    [true = erlang:suspend_process(Writer) || Writer <- [WriterA, WriterB]],
    [ok = weir_log:alog(Log, <<"x">>) || _ <- lists:seq(1, 3), Log <- [A, B]],
    ?assertEqual([3, 3], [queue(WriterA), queue(WriterB)]),
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
    Lines = [[binary_to_integer(F) || F <- binary:split(Line, <<" ">>)] || Line <- weir_log_test_lib:lines(Path)],
    [?assertEqual(lists:seq(1, 200), [I || [Q, I] <- Lines, Q =:= P]) || P <- lists:seq(1, 100)],
    ?assertEqual(20_000, length(Lines)).

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
    Waited = length([x || {weir_log_wait, none} <- get()]),
    ?assertEqual(Before + 1, length(get()) - Waited).
