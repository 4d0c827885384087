%% The cap on what waits: the entry that meets it waits, is refused, or is dropped, and what is dropped is counted and
%% told.
-module(weir_log_overload_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_log.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, queue_len/1, until/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).
end_per_suite(Config) -> weir_kit:loud(Config).
init_per_testcase(Case, Config) -> weir_log_test_lib:setup(Case, Config).
end_per_testcase(_Case, Config) -> weir_log_test_lib:teardown(Config).

%% A log whose writer is suspended, with as many bytes waiting as may: five entries, each with a newline and what its
%% message takes.
-define(FULL, (5 * (2 + ?ENTRY_COST))).

full(Config, Opts) ->
    {Log, Path} = weir_log_test_lib:open(log, Config, maps:merge(#{max_bytes => ?FULL, window => 1000}, Opts)),
    [Writer | _] = weir_log_test_lib:writers(Log),
    true = erlang:suspend_process(Writer),
    [ok = weir_log:alog(Log, <<"x">>) || _ <- lists:seq(1, 5)],
    {Log, Path, Writer}.

wait(Config) ->
    {Log, Path, Writer} = full(Config, #{}),
    Crowd = weir_log_test_lib:crowd(20, fun(_) -> [weir_log:alog(Log, <<"y">>) || _ <- lists:seq(1, 5)] end),
    ok = until(fun() -> queue_len(Writer) =:= 25 orelse queue_len(Writer) end),
    ok = weir_log_test_lib:all_asleep(Crowd),
    %% One of each waits.
    ?assertEqual(25, queue_len(Writer)),
    true = erlang:resume_process(Writer),
    ?assertEqual([{I, [ok, ok, ok, ok, ok]} || I <- lists:seq(1, 20)], weir_log_test_lib:await(Crowd)),
    #{waited := Waited, dropped := 0, rejected := 0} = weir_log_test_lib:info(Log),
    ?assert(Waited >= 20),
    ok = weir_log:close(Log),
    ?assertEqual(105, length(weir_log_test_lib:lines(Path))).

reject(Config) ->
    {Log, Path, Writer} = full(Config, #{overload => reject}),
    [?assertEqual({error, {overload, log}}, weir_log:alog(Log, <<"y">>)) || _ <- lists:seq(1, 7)],
    %% The entries, and one message that says that there is something to see.
    ?assertEqual(6, queue_len(Writer)),
    true = erlang:resume_process(Writer),
    ok = weir_log:sync(Log),
    ok = weir_log:alog(Log, <<"z">>),
    ?assertMatch(#{rejected := 7, dropped := 0}, weir_log_test_lib:info(Log)),
    ok = weir_log:close(Log),
    ?assertEqual([<<"x">>, <<"x">>, <<"x">>, <<"x">>, <<"x">>, <<"z">>], weir_log_test_lib:lines(Path)).

drop_by_level(Config) ->
    {Log, Path, Writer} = full(Config, #{overload => {drop, warning}}),
    Dropped = [none, debug, info, notice],
    [?assertEqual({error, {dropped, log}}, weir_log:alog(Log, <<"y">>, Level)) || Level <- Dropped, _ <- [1, 2]],
    ?assertEqual({error, {dropped, log}}, weir_log:alog(Log, <<"y">>)),
    Kept = [warning, error, critical, alert, emergency],
    Crowd = weir_log_test_lib:crowd(5, fun(I) -> weir_log:alog(Log, <<"z">>, lists:nth(I, Kept)) end),
    ok = until(fun() -> queue_len(Writer) =:= 11 orelse queue_len(Writer) end),
    true = erlang:resume_process(Writer),
    ?assertEqual([{I, ok} || I <- lists:seq(1, 5)], weir_log_test_lib:await(Crowd)),
    ?assertMatch(#{dropped := 9, waited := 5}, weir_log_test_lib:info(Log)),
    Counts = #{none => 3, debug => 2, info => 2, notice => 2},
    ?assertMatch(#{lost_by_level := Counts}, weir_log_test_lib:shard(Log)),
    ok = until(fun() -> length(weir_log_test_lib:lines(Path)) =:= 11 end),
    Told = lists:last(weir_log_test_lib:lines(Path)),
    Expected = "^weir_log: from .*Z to .*Z: 9 entries were dropped \\(notice 2, info 2, debug 2, none 3\\)$",
    ?assertMatch({match, _}, re:run(Told, Expected)),
    ok = weir_log:close(Log),
    ?assertEqual(11, length(weir_log_test_lib:lines(Path))).

drop_by_function(Config) ->
    {Log, _, Writer} = full(Config, #{overload => {drop, fun(Level) -> Level =:= error end}}),
    ?assertEqual({error, {dropped, log}}, weir_log:alog(Log, <<"y">>, error)),
    waits(Log, Writer, [debug, none]).

failing_function(Config) ->
    {Log, _, Writer} = full(Config, #{overload => {drop, fun(Level) when Level =:= error -> maybe_ end}}),
    waits(Log, Writer, [error, debug]).

waits(Log, Writer, Levels) ->
    Before = queue_len(Writer),
    Crowd = weir_log_test_lib:crowd(length(Levels), fun(I) -> weir_log:alog(Log, <<"y">>, lists:nth(I, Levels)) end),
    ok = until(fun() -> queue_len(Writer) =:= Before + length(Levels) orelse queue_len(Writer) end),
    true = erlang:resume_process(Writer),
    ?assertEqual([{I, ok} || I <- lists:seq(1, length(Levels))], weir_log_test_lib:await(Crowd)).

%% Who finds max_bytes waiting is refused, who finds one less is let in, however large the entry is.
at_the_limit(Config) ->
    [
        begin
            {Log, _, Writer} = full(Config, #{overload => reject, max_bytes => Max}),
            ?assertEqual(Expected, weir_log:alog(Log, binary:copy(<<"y">>, 1000))),
            true = erlang:resume_process(Writer),
            ok = weir_log:close(Log)
        end
     || {Max, Expected} <- [{?FULL, {error, {overload, log}}}, {?FULL + 1, ok}, {infinity, ok}]
    ].

alone(Config) ->
    Path = weir_log_test_lib:path("log", Config),
    {ok, Log} = weir_log:open(log, #{file => Path, max_bytes => 10, overload => reject}),
    [Writer] = weir_log_test_lib:writers(Log),
    true = erlang:suspend_process(Writer),
    ok = weir_log:alog(Log, binary:copy(<<"x">>, 100)),
    ?assertEqual({error, {overload, log}}, weir_log:alog(Log, <<"x">>)),
    true = erlang:resume_process(Writer),
    ok = weir_log:sync(Log),
    ok = weir_log:alog(Log, binary:copy(<<"x">>, 100)).

shares(Config) ->
    Path = weir_log_test_lib:path("log", Config),
    {ok, Log} = weir_log:open(log, #{file => Path, max_bytes => 30, shards => 4}),
    ?assertMatch(#{max_bytes := 7}, weir_log_test_lib:info(Log)).

%% Whatever happens at the same time, each entry is in the file, or was refused, or is counted, and told, as dropped.
exact(Config) ->
    Self = self(),
    Tell = fun(#{dropped := Dropped}) ->
        Self ! {told, lists:sum(maps:values(Dropped))},
        <<"told">>
    end,
    Path = weir_log_test_lib:path("log", Config),
    Opts = #{file => Path, max_bytes => 100, newline => true, overload => {drop, error}, tell => Tell},
    {ok, Log} = weir_log:open(log, Opts),
    Log200 = fun(_) -> [weir_log:alog(Log, <<"0123456789">>, info) || _ <- lists:seq(1, 200)] end,
    Crowd = weir_log_test_lib:crowd(50, Log200),
    Answers = lists:append([Answers || {_, Answers} <- weir_log_test_lib:await(Crowd)]),
    Oks = length([ok || ok <- Answers]),
    Drops = length([dropped || {error, {dropped, log}} <- Answers]),
    ok = weir_kit:same(answers, 10_000, Oks + Drops),
    ok = weir_kit:same(dropped, Drops, maps:get(dropped, weir_log_test_lib:info(Log))),
    ok = weir_log:close(Log),
    Lines = weir_log_test_lib:lines(Path),
    ok = weir_kit:same(written, Oks, length([x || <<"0123456789">> <- Lines])),
    Told = told(),
    ok = weir_kit:same(dropped_and_told, Drops, lists:sum(Told)),
    weir_kit:same(told, length(Told), length([x || <<"told">> <- Lines])).

%% An entry that is a function is made only if it is not refused, and counted once.
not_made(Config) ->
    {Log, _, Writer} = full(Config, #{overload => {drop, warning}}),
    Never = fun() -> error(made) end,
    [?assertEqual({error, {dropped, log}}, weir_log:alog(Log, Never, Level)) || Level <- [none, debug, info, notice]],
    Counts = #{none => 1, debug => 1, info => 1, notice => 1},
    ?assertMatch(#{lost_by_level := Counts, dropped := 4}, weir_log_test_lib:shard(Log)),
    [?assertError(made, weir_log:alog(Log, Never, Level)) || Level <- [warning, error, critical, alert, emergency]],
    %% Nothing was sent but that there is something to see, and what was asked for above.
    ?assertEqual(7, queue_len(Writer)),
    true = erlang:resume_process(Writer),
    ok = weir_log:sync(Log),
    ?assertEqual(ok, weir_log:alog(Log, fun() -> [<<"ma">>, "de"] end, debug)),
    ok = weir_log:close(Log),
    ?assertEqual({error, no_log}, weir_log:alog(Log, Never, error)).

made_at_the_limit(Config) ->
    Refused = {error, {overload, log}},
    [
        begin
            {Log, _, Writer} = full(Config, #{overload => Overload, max_bytes => Max}),
            Answer =
                try
                    weir_log:alog(Log, fun() -> error(made) end, info)
                catch
                    error:made -> made
                end,
            ?assertEqual(Expected, Answer),
            true = erlang:resume_process(Writer),
            ok = weir_log:close(Log)
        end
     || {Max, Overload, Expected} <- [
            {?FULL, reject, Refused}, {?FULL + 1, reject, made}, {infinity, reject, made}, {?FULL, wait, made}
        ]
    ].

%% Of entries that are made few are dropped: those that others were ahead of.
made_exact(Config) ->
    Path = weir_log_test_lib:path("log", Config),
    Opts = #{file => Path, max_bytes => 1000, newline => true, overload => {drop, error}},
    {ok, Log} = weir_log:open(log, Opts#{tell => fun(_) -> <<"t">> end}),
    Entry = fun() -> <<"0123456789">> end,
    Crowd = weir_log_test_lib:crowd(50, fun(_) -> [weir_log:alog(Log, Entry, info) || _ <- lists:seq(1, 200)] end),
    Answers = lists:append([Answers || {_, Answers} <- weir_log_test_lib:await(Crowd)]),
    Oks = length([ok || ok <- Answers]),
    Drops = length([dropped || {error, {dropped, log}} <- Answers]),
    ok = weir_kit:same(answers, 10_000, Oks + Drops),
    ok = weir_kit:same(dropped, Drops, maps:get(dropped, weir_log_test_lib:info(Log))),
    ok = weir_log:close(Log),
    weir_kit:same(written, Oks, length([x || <<"0123456789">> <- weir_log_test_lib:lines(Path)])).

%% An entry does not hold the binary that it is a part of, unless that is little larger.
parts_of_large_binaries(Config) ->
    Path = weir_log_test_lib:path("log", Config),
    {ok, Log} = weir_log:open(log, #{file => Path, window => 1000}),
    [Writer] = weir_log_test_lib:writers(Log),
    true = erlang:suspend_process(Writer),
    Large = binary:copy(<<"x">>, 1_000_000),
    Half = binary:copy(<<"y">>, 500),
    Entries = [
        binary:part(Large, 0, 64),
        binary:part(Large, 0, 100),
        [binary:part(Large, 7, 100), $\n],
        binary:part(Half, 0, 249),
        binary:part(Half, 0, 250)
    ],
    [ok = weir_log:alog(Log, Entry) || Entry <- Entries],
    {messages, Messages} = process_info(Writer, messages),
    [Small | Others] = [binary:referenced_byte_size(element(4, Message)) || Message <- Messages],
    %% OTP 27 gives bits of what is on the heap.
    ?assert(lists:member(Small, [64, 8 * 64])),
    ?assertEqual([100, 101, 249, 500], Others),
    true = erlang:resume_process(Writer).

%% What a message takes is counted: very many of very few bytes are bounded, too.
small_entries(Config) ->
    Path = weir_log_test_lib:path("log", Config),
    {ok, Log} = weir_log:open(log, #{file => Path, max_bytes => 1_000_000, window => 1_000_000, overload => reject}),
    [Writer] = weir_log_test_lib:writers(Log),
    true = erlang:suspend_process(Writer),
    {memory, Before} = process_info(Writer, memory),
    Answers = [weir_log:alog(Log, <<"xx">>) || _ <- lists:seq(1, 10_000)],
    %% The first that finds as much there is refused.
    ?assertEqual(ceil(1_000_000 / (2 + ?ENTRY_COST)), length([ok || ok <- Answers])),
    {memory, Memory} = process_info(Writer, memory),
    Memory - Before < 2_000_000 orelse ct:fail({Before, Memory}),
    true = erlang:resume_process(Writer).

%% What is no entry is an error and leaves nothing.
no_entry(Config) ->
    {ok, Log} = weir_log:open(log, #{file => weir_log_test_lib:path("log", Config)}),
    [?assertError(badarg, weir_log:alog(Log, Wrong)) || Wrong <- [[1234], <<1:3>>, foo, #{}, fun(_) -> <<>> end]],
    {ok, Lines} = weir_log:open(lines, #{file => weir_log_test_lib:path("lines", Config), newline => true}),
    [?assertError(badarg, weir_log:log(Lines, Wrong)) || Wrong <- [[1234], <<1:3>>, foo]],
    [
        try
            weir_log:log(Log, Entry),
            ct:fail(taken)
        catch
            error:badarg:Stack ->
                [{Module, _, _, _} | _] = Stack,
                %% A binary, for Elixir puts it behind others.
                #{general := <<General/binary>>} = Module:format_error(badarg, Stack),
                ?assertMatch({match, _}, re:run(General, Text))
        end
     || {Entry, Text} <- [
            {[<<"a">>, [1234]], "1234 is a character: give unicode:characters_to_binary"},
            {["a", foo], "foo is neither"},
            {[$a | $b], "improper"}
        ]
    ],
    ?assertMatch(#{waiting_entries := 0, waiting_bytes := 0}, weir_log_test_lib:shard(Log)).

told() ->
    receive
        {told, N} -> [N | told()]
    after 0 -> []
    end.

%% A caller that is refused takes its bytes back, from a word that the next writer has set to nothing. Less than nothing
%% is not full.
below_nothing(Config) ->
    {ok, Log} = weir_log:open(log, #{file => weir_log_test_lib:path("log", Config), overload => reject}),
    ok = atomics:sub(weir_log_test_lib:words(Log), ?QUEUED, ?QUEUED_OF(3, 300)),
    ?assertEqual(ok, weir_log:alog(Log, <<"x">>)),
    ?assertEqual(ok, weir_log:alog(Log, fun() -> <<"x">> end)).

told_times(Config) ->
    Self = self(),
    Tell = fun(Loss) ->
        Self ! {told, Loss},
        <<"t">>
    end,
    {Log, _, Writer} = full(Config, #{overload => {drop, error}, tell => Tell}),
    Before = erlang:system_time(microsecond),
    [{error, _} = weir_log:alog(Log, <<"y">>) || _ <- lists:seq(1, 3)],
    After = erlang:system_time(microsecond),
    true = erlang:resume_process(Writer),
    ok = weir_log:close(Log),
    receive
        {told, #{from := From, to := To, dropped := Dropped}} ->
            ?assertEqual(#{none => 3}, Dropped),
            ?assert(Before =< From andalso From =< To andalso To =< After)
    after 0 -> error(not_told)
    end.

%% ---------------------------------------------------------------- mending

%% Entries that were counted and never sent.
leak(Log, Entries, Bytes) -> atomics:add(weir_log_test_lib:words(Log), 8, (Entries bsl 37) + Bytes).

mended(Config) ->
    {ok, Log} = weir_log:open(log, #{file => weir_log_test_lib:path("log", Config)}),
    ok = leak(Log, 3, 300),
    ok = weir_log:alog(Log, <<"x">>),
    ok = until(fun() ->
        case weir_log_test_lib:shard(Log) of
            #{waiting_entries := 0, waiting_bytes := 0, unsent := 3} -> true;
            Other -> Other
        end
    end).

%% All entries are refused, so nothing but a hint comes to the writer.
mended_under_rejection(Config) ->
    {ok, Log} = weir_log:open(log, #{
        file => weir_log_test_lib:path("log", Config), overload => reject, max_bytes => 100
    }),
    ok = weir_log:log(Log, <<"x">>),
    ok = leak(Log, 2, 300),
    ok = until(fun() -> weir_log:alog(Log, <<"x">>) =:= ok end),
    %% It is counted before there is room.
    ?assertMatch(#{unsent := 2}, weir_log_test_lib:info(Log)).

%% Callers that are killed at any moment.
killed_between(Config) ->
    {ok, Log} = weir_log:open(log, #{file => weir_log_test_lib:path("log", Config), newline => true}),
    [
        begin
            Pid = spawn(fun() -> forever(Log) end),
            [erlang:yield() || _ <- lists:seq(1, rand:uniform(50))],
            kill(Pid)
        end
     || _ <- lists:seq(1, 500)
    ],
    Word = fun() -> atomics:get(weir_log_test_lib:words(Log), 8) end,
    ok = until(fun() -> Word() =:= 0 orelse Word() end),
    #{entries := Entries} = weir_log_test_lib:info(Log),
    ok = weir_log:close(Log),
    weir_kit:same(written, Entries, length(weir_log_test_lib:lines(weir_log_test_lib:path("log", Config)))).

forever(Log) ->
    _ = weir_log:alog(Log, <<"x">>),
    forever(Log).

log_is_not_refused(Config) ->
    {Log, _, Writer} = full(Config, #{overload => reject}),
    Crowd = weir_log_test_lib:crowd(3, fun(_) -> weir_log:log(Log, <<"y">>) end),
    ok = until(fun() -> queue_len(Writer) =:= 8 orelse queue_len(Writer) end),
    true = erlang:resume_process(Writer),
    ?assertEqual([{I, ok} || I <- [1, 2, 3]], weir_log_test_lib:await(Crowd)).
