%% A log from opening to closing: options, names, formats, reading back, supervision.
-module(weir_log_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [kill/1, queue_len/1, until/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).
end_per_suite(Config) -> weir_kit:loud(Config).
init_per_testcase(Case, Config) -> weir_log_test_lib:setup(Case, Config).
end_per_testcase(_Case, Config) -> weir_log_test_lib:teardown(Config).

path(Conf) -> weir_log_test_lib:path("log", Conf).

%% ---------------------------------------------------------------- options

bad_options(Config) ->
    File = path(Config),
    Bad = [
        {file, ""}, {file, <<>>}, {file, [0]}, {file, a}, {file, "a" ++ b}, {file, <<"a", 0>>},
        {ack, never}, {newline, 1}, {frame, yes}, {window, 0}, {window, infinity}, {max_bytes, 0},
        {overload, drop}, {overload, {drop, loud}}, {overload, {drop, none}}, {overload, {drop, fun() -> true end}},
        {shards, 0}, {shards, 257}, {check_ms, -1}, {check_ms, infinity}, {sync_interval, 0}, {report, 1},
        {tell, fun() -> "" end},
        {rotate, [gzip]}, {rotate, none}, {rotate, #{max_bytes => 0}}, {rotate, #{interval => weekly}},
        {rotate, #{keep_files => -1}},
        {rotate, #{keep_bytes => 0}}, {rotate, #{gzip => 1}}, {rotate, #{size => 1}},
        {rotate, #{keep_days => 0}}, {rotate, #{hook => a}}, {rotate, #{hook => {a, b, c}}}, {mode, 8#10000},
        {rotate, #{date_format => "%Y"}}, {owner, root}, {owner, {0, -1}}, {owner, {16#ffffffff, 0}},
        {file_module, no_such_module}, {file_module, 1}, {size, 10}
    ],
    lists:foreach(
        fun({Key, Value}) ->
            Opts = maps:merge(#{file => File}, #{Key => Value}),
            ?assertEqual({error, {bad_option, Key, Value}}, weir_log:open(bad, Opts)),
            ?assertEqual({error, {bad_option, Key, Value}}, weir_log:start_link(bad, Opts))
        end,
        Bad
    ),
    ?assertEqual([], weir_log:names()),
    ?assertNot(filelib:is_file(File)).

limits_of_options(Config) ->
    Good = [
        {window, 1}, {max_bytes, 1}, {max_bytes, 1 bsl 36}, {max_bytes, infinity}, {shards, 256}, {check_ms, 0},
        {check_ms, 16#ffffffff}, {sync_interval, 1}, {overload, {drop, emergency}}, {overload, {drop, debug}}
    ],
    lists:foreach(
        fun({Key, Value}) ->
            {ok, Log} = weir_log:open(good, #{file => path(Config), Key => Value}),
            ok = weir_log:log(Log, <<"a">>),
            ok = weir_log:close(Log)
        end,
        Good
    ),
    Beyond = [{max_bytes, (1 bsl 36) + 1}, {check_ms, 16#100000000}],
    lists:foreach(
        fun({Key, Value}) ->
            ?assertEqual({error, {bad_option, Key, Value}}, weir_log:open(bad, #{file => path(Config), Key => Value}))
        end,
        Beyond
    ).

missing_file(_Config) ->
    ?assertEqual({error, {missing_option, file}}, weir_log:open(a, #{})),
    ?assertEqual({error, {bad_option, ack, b}}, weir_log:open(a, #{ack => b})).

frame_and_newline(Config) ->
    Opts = #{file => path(Config), frame => true, newline => true},
    ?assertEqual({error, {bad_option, newline, true}}, weir_log:open(a, Opts)).

%% As Elixir writes options: keyword lists, of which the first of a key counts, and binaries.
keyword_lists(Config) ->
    Options = [{file, list_to_binary(path(Config))}, {newline, true}, {newline, 1}, {rotate, [{keep_files, 2}]}],
    {ok, a} = weir_log:open(a, Options),
    ok = weir_log:change(a, [{window, 5}, {rotate, [{keep_files, 1}, {date_format, <<"%Y-%m-%d">>}]}]),
    ?assertMatch({ok, #{window := 5}}, weir_log:info(a)),
    [begin ok = weir_log:log(a, Entry), ok = weir_log:rotate(a) end || Entry <- [<<"1">>, <<"2">>]],
    ok = weir_log:log(a, <<"3">>),
    ?assertEqual({ok, <<"3\n">>}, file:read_file(path(Config))),
    ok = until(fun() -> length(filelib:wildcard(path(Config) ++ "*")) =:= 2 end),
    ok = weir_log:close(a),
    ?assertEqual({error, {cannot_change, file}}, change_open(a, Options, [{file, <<"other">>}])),
    ?assertEqual({error, {bad_option, rotate, #{size => 1}}}, weir_log:open(b, [{rotate, [{size, 1}]} | Options])),
    [?assertError(badarg, weir_log:open(b, Wrong)) || Wrong <- [a, [file], [{"file", "x"}], [{file, "x"} | a]]].

change_open(Log, Options, Changes) ->
    {ok, Log} = weir_log:open(Log, Options),
    Result = weir_log:change(Log, Changes),
    ok = weir_log:close(Log),
    Result.

%% ---------------------------------------------------------------- entries

writes_as_given(Config) ->
    {ok, Log} = weir_log:open(?FUNCTION_NAME, #{file => path(Config)}),
    Large = binary:copy(<<"0123456789">>, 10_000),
    Entries = [<<"a\n">>, ["b", [<<"c">>, $d] | <<"e">>], <<>>, "", Large, [Large, Large]],
    lists:foreach(fun(Entry) -> ok = weir_log:log(Log, Entry) end, Entries),
    lists:foreach(fun(Entry) -> ok = weir_log:alog(Log, Entry) end, Entries),
    ok = weir_log:close(Log),
    ?assertEqual({ok, iolist_to_binary([Entries, Entries])}, file:read_file(path(Config))).

newline(Config) ->
    {ok, Log} = weir_log:open(?FUNCTION_NAME, #{file => path(Config), newline => true}),
    Sizes = [0, 1, 511, 512, 513, 65_535, 65_536, 70_000],
    Entries = [binary:copy(<<"x">>, Size) || Size <- Sizes],
    lists:foreach(fun(Entry) -> ok = weir_log:log(Log, Entry) end, Entries),
    lists:foreach(fun(Entry) -> ok = weir_log:alog(Log, [Entry]) end, Entries),
    ok = weir_log:close(Log),
    ?assertEqual({ok, iolist_to_binary([[E, "\n"] || E <- Entries ++ Entries])}, file:read_file(path(Config))).

frame(Config) ->
    {ok, Log} = weir_log:open(?FUNCTION_NAME, #{file => path(Config), frame => true}),
    Before = erlang:system_time(microsecond),
    Entries = [<<>>, <<"a">>, <<"b\nc">>, binary:copy(<<"x">>, 100_000)],
    lists:foreach(fun(Entry) -> ok = weir_log:log(Log, Entry) end, Entries),
    ok = weir_log:alog(Log, ["d", $e]),
    ok = weir_log:close(Log),
    After = erlang:system_time(microsecond),
    {ok, Read, #{entries := 5, cut_bytes := 0}} =
        weir_log:fold(fun(Time, Entry, Acc) -> [{Time, Entry} | Acc] end, [], path(Config)),
    {Times, Back} = lists:unzip(lists:reverse(Read)),
    ?assertEqual(Entries ++ [<<"de">>], Back),
    ?assertEqual(Times, lists:sort(Times)),
    ?assert(lists:all(fun(Time) -> Time >= Before andalso Time =< After end, Times)).

fold_stops_at_torn(Config) ->
    {ok, Log} = weir_log:open(?FUNCTION_NAME, #{file => path(Config), frame => true}),
    ok = weir_log:log(Log, <<"whole">>),
    ok = weir_log:close(Log),
    ok = file:write_file(path(Config), <<0, 0, 0, 99, 1, 2, 3>>, [append]),
    Fold = fun(_, Entry, Acc) -> [Entry | Acc] end,
    ?assertMatch({ok, [<<"whole">>], #{entries := 1, cut_bytes := 7}}, weir_log:fold(Fold, [], path(Config))),
    ?assertEqual({error, enoent}, weir_log:fold(Fold, [], path(Config) ++ "none")).

misuse(Config) ->
    {ok, Log} = weir_log:open(?FUNCTION_NAME, #{file => path(Config)}),
    [?assertError(badarg, weir_log:log(Log, Bad)) || Bad <- [a, 1, [256], [a], {}, #{}]],
    [?assertError(badarg, weir_log:alog(Log, Bad)) || Bad <- [a, 1, [256], [a], {}, #{}]],
    ?assertMatch(#{waiting_entries := 0}, weir_log_test_lib:shard(Log)).

appends(Config) ->
    ok = file:write_file(path(Config), <<"before">>),
    {ok, Log} = weir_log:open(?FUNCTION_NAME, #{file => path(Config)}),
    ok = weir_log:log(Log, <<"after">>),
    ok = weir_log:close(Log),
    ?assertEqual({ok, <<"beforeafter">>}, file:read_file(path(Config))).

empty_entry(Config) ->
    [
        begin
            {ok, Log} = weir_log:open(?FUNCTION_NAME, #{file => path(Config), ack => Ack}),
            ok = weir_log:log(Log, <<>>),
            ?assertMatch(#{entries := 1, bytes := 0}, eventually_info(Log)),
            ok = weir_log:close(Log)
        end
     || Ack <- [accepted, written, synced]
    ].

eventually_info(Log) ->
    ok = until(fun() -> maps:get(entries, weir_log_test_lib:info(Log)) =:= 1 end),
    weir_log_test_lib:info(Log).

large_entry(Config) ->
    {ok, Log} = weir_log:open(?FUNCTION_NAME, #{file => path(Config), max_bytes => 10}),
    Large = binary:copy(<<"x">>, 3_000_000),
    ok = weir_log:alog(Log, Large),
    ok = weir_log:log(Log, Large),
    ok = weir_log:alog(Log, Large),
    ok = weir_log:close(Log),
    ?assertEqual(9_000_000, filelib:file_size(path(Config))).

%% ---------------------------------------------------------------- names

no_log(_Config) ->
    Functions = [close, sync, rotate, reopen, info, files],
    [?assertEqual({error, no_log}, weir_log:Function(none)) || Function <- Functions],
    [?assertEqual({error, no_log}, weir_log:Function(none, <<"a">>)) || Function <- [log, alog]],
    ?assertEqual([], weir_log:names()).

open_twice(Config) ->
    {ok, a} = weir_log:open(a, #{file => path(Config)}),
    ?assertEqual({error, {already_open, a}}, weir_log:open(a, #{file => path(Config) ++ "other"})),
    ok = weir_log:log(a, <<"still here">>),
    ?assertEqual([a], weir_log:names()).

same_file(Config) ->
    {ok, a} = weir_log:open(a, #{file => path(Config), shards => 2}),
    ?assertEqual({error, {already_open, a}}, weir_log:open(b, #{file => path(Config) ++ ".shard2"})),
    {ok, b} = weir_log:open(b, #{file => path(Config) ++ ".shard3"}),
    ok = weir_log:close(a),
    {ok, c} = weir_log:open(c, #{file => path(Config) ++ ".shard2"}).

%% The system says which file it is, not the name; whether the file is there or not.
same_file_by_other_names(Config) ->
    Dir = proplists:get_value(dir, Config),
    [ok = filelib:ensure_dir(filename:join([Dir, Name, "x"])) || Name <- ["real", "other"]],
    ok = file:make_symlink("real", filename:join(Dir, "link")),
    ok = file:make_symlink("../real/log", filename:join([Dir, "other", "to_log"])),
    Named = fun(Name) -> filename:join(Dir, Name) end,
    Names = [
        Named("real/log"), list_to_binary(Named("real/log")), Named("link/log"), Named("other/../real/./log"),
        Named("other/to_log")
    ],
    [
        begin
            {ok, a} = weir_log:open(a, #{file => One}),
            ?assertEqual({error, {already_open, a}}, weir_log:open(b, #{file => Other})),
            ok = weir_log:close(a),
            ok = file:delete(Named("real/log"))
        end
     || One <- Names, Other <- Names
    ],
    %% Files of the same name in different directories are different.
    {ok, a} = weir_log:open(a, #{file => Named("real/log")}),
    {ok, b} = weir_log:open(b, #{file => Named("other/log")}).

%% A writer, or a whole log of a supervisor of the user's, that starts again in another working directory goes on in
%% the same file.
absolute_from_the_start(Config) ->
    Dir = proplists:get_value(dir, Config),
    {ok, Before} = file:get_cwd(),
    ok = file:set_cwd(Dir),
    Sup =
        try
            {ok, a} = weir_log:open(a, #{file => "a.log", newline => true}),
            {ok, Pid} = supervisor:start_link(
                weir_log_test_sup, [weir_log:child_spec(b, #{file => <<"b.log">>, newline => true})]
            ),
            Pid
        after
            ok = file:set_cwd(Before)
        end,
    unlink(Sup),
    Again = fun(Log) -> until(fun() -> weir_log:log(Log, <<"again">>) =:= ok end) end,
    [Writer] = weir_log_test_lib:writers(a),
    ok = kill(Writer),
    ok = Again(a),
    ok = weir_log:close(b),
    ok = Again(b),
    ok = proc_lib:stop(Sup, shutdown, infinity),
    %% What was lost when there was no writer may have been told.
    ?assertMatch([{_, [<<"again">>]}, {_, [<<"again">>]}], [
        weir_log_test_lib:told(weir_log_test_lib:lines(filename:join(Dir, Name)))
     || Name <- ["a.log", "b.log"]
    ]).

cannot_open(Config) ->
    Dir = proplists:get_value(dir, Config),
    ?assertEqual({error, {file, Dir, eacces}}, weir_log:open(a, #{file => Dir, file_module => failing(eacces)})),
    ?assertEqual([], weir_log:names()),
    ok = weir_log_test_file:set(open, ok),
    {ok, a} = weir_log:open(a, #{file => path(Config)}).

failing(Reason) ->
    ok = weir_log_test_file:set(open, {error, Reason}),
    weir_log_test_file.

names_and_files(Config) ->
    File = path(Config),
    {ok, a} = weir_log:open(a, #{file => File, shards => 2}),
    {ok, b} = weir_log:open(b, #{file => list_to_binary(File ++ "b"), shards => 2}),
    ?assertEqual([a, b], lists:sort(weir_log:names())),
    ?assertEqual({ok, [File ++ ".shard1", File ++ ".shard2"]}, weir_log:files(a)),
    ?assertEqual({ok, [list_to_binary(File ++ "b.shard" ++ N) || N <- ["1", "2"]]}, weir_log:files(b)).

any_name(Config) ->
    [
        begin
            {ok, Name} = weir_log:open(Name, #{file => path(Config)}),
            ok = weir_log:log(Name, <<"a">>),
            ok = weir_log:alog(Name, <<"b">>),
            ok = weir_log:close(Name)
        end
     || Name <- [1, -1, "a", <<"a">>, {a, 1}, make_ref(), self(), 1.5, #{}]
    ].

%% ---------------------------------------------------------------- closing

close_writes_all(Config) ->
    Opts = #{file => path(Config), file_module => weir_log_test_file, newline => true, window => 1_000_000},
    {ok, Log} = weir_log:open(?FUNCTION_NAME, Opts),
    Writer = weir_log_test_lib:blocked(write, Log),
    [ok = weir_log:alog(Log, integer_to_binary(I)) || I <- lists:seq(1, 5000)],
    Waiting = weir_log_test_lib:crowd(10, fun(I) -> weir_log:log(Log, ["log ", integer_to_list(I)]) end),
    ok = until(fun() ->
        Length = queue_len(Writer),
        Length =:= 5010 orelse Length
    end),
    Closing = weir_log_test_lib:crowd(1, fun(_) -> weir_log:close(Log) end),
    %% It asks for a sync first.
    ok = until(fun() ->
        Length = queue_len(Writer),
        Length =:= 5011 orelse Length
    end),
    ok = weir_log_test_file:go(Writer, ok),
    ?assertEqual([{1, ok}], weir_log_test_lib:await(Closing)),
    ?assertEqual({error, no_log}, weir_log:log(Log, <<"late">>)),
    ?assertEqual([{I, ok} || I <- lists:seq(1, 10)], weir_log_test_lib:await(Waiting)),
    Numbers = [<<"first">> | [integer_to_binary(I) || I <- lists:seq(1, 5000)]],
    Logged = [iolist_to_binary(["log ", integer_to_list(I)]) || I <- lists:seq(1, 10)],
    Lines = weir_log_test_lib:lines(path(Config)),
    ok = weir_kit:same(order, Numbers, lists:sublist(Lines, 5001)),
    weir_kit:same(lost_or_doubled, lists:sort(Logged), lists:sort(Lines -- Numbers)).

close_refuses(Config) ->
    {ok, Log} = weir_log:open(?FUNCTION_NAME, #{file => path(Config)}),
    ok = weir_log:close(Log),
    ?assertEqual({error, no_log}, weir_log:log(Log, <<"a">>)),
    ?assertEqual({error, no_log}, weir_log:alog(Log, <<"a">>)),
    ?assertEqual({error, no_log}, weir_log:close(Log)).

reopened_by_name(Config) ->
    [
        begin
            {ok, a} = weir_log:open(a, #{file => path(Config), window => Window}),
            [ok = weir_log:alog(a, <<"x">>) || _ <- lists:seq(1, 7)],
            ok = weir_log:close(a)
        end
     || Window <- [16, 3, 1, 8]
    ],
    ?assertEqual(28, filelib:file_size(path(Config))).

not_running(Config) ->
    ok = weir_log_test_lib:stop_all(),
    ?assertEqual({error, {not_started, weir_log}}, weir_log:open(log, #{file => path(Config)})),
    ?assertEqual({error, {not_started, weir_log}}, weir_log:start_link(log, #{file => path(Config)})),
    ?assertEqual({error, no_log}, weir_log:log(log, <<"x">>)),
    ?assertEqual({error, no_log}, weir_log:close(log)).

application_stops(Config) ->
    {ok, a} = weir_log:open(a, #{file => path(Config), window => 1000}),
    [ok = weir_log:alog(a, <<"x">>) || _ <- lists:seq(1, 900)],
    ok = application:stop(weir_log),
    ?assertEqual(900, filelib:file_size(path(Config))),
    ?assertEqual({error, no_log}, weir_log:log(a, <<"a">>)),
    ?assertEqual([], weir_log:names()),
    {ok, _} = application:ensure_all_started(weir_log).

%% ---------------------------------------------------------------- supervision

supervised(Config) ->
    {ok, Sup} = supervisor:start_link(weir_log_test_sup, [weir_log:child_spec(a, #{file => path(Config)})]),
    unlink(Sup),
    ok = weir_log:log(a, <<"1">>),
    %% Closing a permanent child makes its supervisor open it again.
    {ok, First} = weir_log_registry:lookup(a),
    ok = weir_log:close(a),
    ok = until(fun() ->
        weir_log_registry:lookup(a) =/= {ok, First} andalso weir_log:log(a, <<"2">>) =:= ok
    end),
    ok = weir_log:alog(a, <<"3">>),
    ok = proc_lib:stop(Sup, shutdown, infinity),
    ?assertEqual({error, no_log}, weir_log:log(a, <<"4">>)),
    ?assertEqual({ok, <<"123">>}, file:read_file(path(Config))).

%% A child of a supervisor of Elixir's: {:weir_log, options}.
supervised_by_name(Config) ->
    [
        begin
            Spec = weir_log:child_spec(Options),
            ?assertMatch(#{id := {weir_log, a}, start := {weir_log, start_link, [a, #{newline := true}]}}, Spec),
            {ok, Sup} = supervisor:start_link(weir_log_test_sup, [Spec]),
            unlink(Sup),
            ok = weir_log:log(a, <<"1">>),
            ok = proc_lib:stop(Sup, shutdown, infinity)
        end
     || Map <- [#{name => a, file => path(Config), newline => true}], Options <- [Map, maps:to_list(Map)]
    ],
    ?assertEqual({ok, <<"1\n1\n">>}, file:read_file(path(Config))),
    ?assertError({missing_option, name}, weir_log:child_spec([{file, path(Config)}])),
    ?assertError(badarg, weir_log:child_spec(a)),
    %% As with child_spec/2, a relative name is that of here.
    {ok, Cwd} = file:get_cwd(),
    #{start := {_, _, [a, #{file := File}]}} = weir_log:child_spec([{name, a}, {file, <<"a.log">>}]),
    ?assertEqual(filename:join(list_to_binary(Cwd), <<"a.log">>), File).

linked(Config) ->
    _ = process_flag(trap_exit, true),
    {ok, Pid} = weir_log:start_link(a, #{file => path(Config)}),
    ok = weir_log:log(a, <<"1">>),
    ?assertEqual({error, {already_open, a}}, weir_log:start_link(a, #{file => path(Config)})),
    ok = weir_log:close(a),
    receive
        {'EXIT', Pid, Reason} -> ?assertEqual(shutdown, Reason)
    after weir_kit:wait_ms() -> error(alive)
    end,
    ok = weir_log_test_file:set(open, {error, enospc}),
    Opts = #{file => path(Config), file_module => weir_log_test_file},
    ?assertEqual({error, {file, path(Config), enospc}}, weir_log:start_link(a, Opts)).

%% ---------------------------------------------------------------- the rest of the interface

info(Config) ->
    {ok, Log} = weir_log:open(?FUNCTION_NAME, #{file => path(Config), ack => synced, max_bytes => 100}),
    [ok = weir_log:log(Log, <<"abc">>) || _ <- lists:seq(1, 5)],
    %% One that does not answer in time is said to be busy.
    ok = until(fun() ->
        case weir_log_test_lib:info(Log) of
            #{
                name := ?FUNCTION_NAME, ack := synced, format := raw, window := 16, max_bytes := 100, overload := wait,
                entries := 5, bytes := 15, writes := 5, syncs := 5, failed := 0, lost := 0, unsent := 0, dropped := 0,
                rejected := 0, waited := 0, largest_batch := 1,
                shards := [#{waiting_entries := 0, waiting_bytes := 0, queue := 0, file := #{}, lost_by_level := #{}}]
            } ->
                true;
            Other ->
                Other
        end
    end),
    %% Not by a question, which a writer that is late would still have in its queue.
    [Writer] = weir_log_test_lib:writers(Log),
    true = erlang:suspend_process(Writer),
    ok = weir_log:alog(Log, <<"abcd">>),
    ?assertMatch(
        #{file := busy, waiting_entries := 1, waiting_bytes := 132, queue := 1}, weir_log_test_lib:shard(Log)
    ),
    true = erlang:resume_process(Writer).

sync(Config) ->
    {ok, Log} = weir_log:open(?FUNCTION_NAME, #{file => path(Config), shards => 3}),
    ok = weir_log:alog(Log, <<"a">>),
    ok = weir_log:sync(Log),
    ?assertMatch(#{entries := 1, syncs := 3}, weir_log_test_lib:info(Log)).

sync_interval(Config) ->
    {ok, Log} = weir_log:open(?FUNCTION_NAME, #{file => path(Config), sync_interval => 1}),
    ?assertMatch(#{syncs := 0}, weir_log_test_lib:info(Log)),
    [
        begin
            ok = weir_log:log(Log, <<"a">>),
            ok = until(fun() -> maps:get(syncs, weir_log_test_lib:info(Log)) =:= N end)
        end
     || N <- lists:seq(1, 5)
    ].

rotate_and_reopen(Config) ->
    Opts = #{file => path(Config), shards => 2, file_module => weir_log_test_file},
    {ok, Log} = weir_log:open(?FUNCTION_NAME, Opts),
    ok = weir_log:log(Log, <<"a">>),
    ok = weir_log:rotate(Log),
    ok = weir_log:reopen(Log),
    ?assertEqual(2, weir_log_test_file:calls(rotate)),
    ?assertEqual(2, weir_log_test_file:calls(reopen)),
    ok = weir_log_test_file:set(rotate, {error, eacces}),
    ok = weir_log_test_file:set(reopen, {error, enoent}),
    ?assertEqual({error, eacces}, weir_log:rotate(Log)),
    ?assertEqual({error, enoent}, weir_log:reopen(Log)).

%% What was sent before a request is written before it, with whatever is in the batch.
order_of_requests(Config) ->
    Opts = #{file => path(Config), file_module => weir_log_test_file, window => 1000},
    {ok, Log} = weir_log:open(?FUNCTION_NAME, Opts),
    Writer = weir_log_test_lib:blocked(write, Log),
    ok = weir_log:alog(Log, <<"a">>),
    Rotating = gen_server:send_request(Writer, rotate),
    ok = weir_log:alog(Log, <<"b">>),
    ok = weir_log:alog(Log, <<"c">>),
    ok = weir_log_test_file:go(Writer, ok),
    ?assertEqual({reply, ok}, gen_server:receive_response(Rotating, infinity)),
    ok = weir_log:sync(Log),
    %% The first, then what was before the request, then what was after it.
    ?assertEqual(3, weir_log_test_file:calls(write)).

%% Neither the file server, which may wait for this log, nor the code server, on a node that loads modules on demand.
without_shared_processes(Config) ->
    Args = ["-pa" | weir_log_test_lib:code_paths([weir_log, weir_server, weir_flow, ?MODULE])],
    {ok, Peer, _} = peer:start(#{connection => standard_io, wait_boot => weir_kit:wait_ms(), args => Args}),
    try
        {ok, _} = weir_kit_nodes:call(Peer, application, ensure_all_started, [weir_log]),
        ?assertEqual(ok, weir_kit_nodes:call(Peer, ?MODULE, works_alone, [path(Config)]))
    after
        peer:stop(Peer)
    end.

works_alone(Path) ->
    Opts = #{file => Path, newline => true, check_ms => 0, rotate => #{interval => hourly, gzip => true}},
    {ok, a} = weir_log:open(a, Opts),
    {ok, b} = weir_log:open(b, #{file => Path ++ ".b", frame => true}),
    Shared = [whereis(Name) || Name <- [file_server_2, code_server]],
    lists:foreach(fun erlang:suspend_process/1, Shared),
    ok = weir_log:log(a, <<"one">>),
    ok = weir_log:rotate(a),
    ok = weir_log:log(b, <<"framed">>),
    ok = weir_log:sync(b),
    ok = prim_file:rename(Path, Path ++ ".moved"),
    ok = prim_file:make_dir(Path),
    {error, eisdir} = weir_log:log(a, <<"two">>),
    ok = prim_file:del_dir(Path),
    ok = weir_log:reopen(a),
    ok = weir_log:log(a, <<"three">>),
    lists:foreach(fun erlang:resume_process/1, Shared).

%% Of a node without a shell, whose standard output is a pipe, a file, the null device or a terminal.
standard_output(Config) ->
    [
        ?assertEqual({error, {bad_option, Key, Value}}, weir_log:open(a, #{file => standard_io, Key => Value}))
     || {Key, Value} <- [{rotate, #{max_bytes => 1}}, {frame, true}, {shards, 2}]
    ],
    File = path(Config),
    Paths = lists:join(" ", weir_log_test_lib:code_paths([weir_log, weir_server, weir_flow, ?MODULE])),
    Node = lists:flatten(["erl -noshell -pa ", Paths, " -s ", atom_to_list(?MODULE), " to_standard_output"]),
    ?assertEqual("one\ntwo\nok", os:cmd(Node)),
    ?assertEqual("zero\none\ntwo\nok", os:cmd(["echo zero > ", File, "; ", Node, " >> ", File, "; cat ", File])),
    ?assertEqual("done\n", os:cmd([Node, " > /dev/null && echo done"])),
    %% A terminal, where there can be one.
    case os:cmd("script -qc 'echo a' /dev/null < /dev/null") of
        "a\r\n" -> ?assertEqual("one\r\ntwo\r\nok", os:cmd(["script -qc \"", Node, "\" /dev/null < /dev/null"]));
        _ -> ok
    end.

to_standard_output() ->
    {ok, _} = application:ensure_all_started(weir_log),
    {ok, a} = weir_log:open(a, #{file => standard_io, newline => true, ack => synced}),
    {error, {already_open, a}} = weir_log:open(b, #{file => standard_io}),
    ok = weir_log:log(a, <<"one">>),
    ok = weir_log:rotate(a),
    ok = weir_log:reopen(a),
    ok = weir_log:log(a, <<"two">>),
    Told = weir_log:close(a),
    io:format("~p", [Told]),
    halt().
