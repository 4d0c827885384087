%% Several writers and files, and reading them back as one stream.
-module(weir_log_shards_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_kit, [until/1]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_kit:quiet(Config).
end_per_suite(Config) -> weir_kit:loud(Config).
init_per_testcase(Case, Config) -> weir_log_test_lib:setup(Case, Config).
end_per_testcase(_Case, Config) -> weir_log_test_lib:teardown(Config).

path(Conf) -> weir_log_test_lib:path("log", Conf).

keeps_to_one(Config) ->
    {ok, Log} = weir_log:open(log, #{file => path(Config), shards => 4, newline => true}),
    {ok, Files} = weir_log:files(Log),
    Crowd = weir_log_test_lib:crowd(50, fun(P) ->
        [ok = weir_log:alog(Log, io_lib:format("~b ~b", [P, I])) || I <- lists:seq(1, 100)],
        ok
    end),
    ?assertEqual([{P, ok} || P <- lists:seq(1, 50)], weir_log_test_lib:await(Crowd)),
    ok = weir_log:close(Log),
    Found = [
        {binary_to_integer(P), binary_to_integer(I), File}
     || File <- Files, Line <- weir_log_test_lib:lines(File), [P, I] <- [binary:split(Line, <<" ">>)]
    ],
    ok = weir_kit:same(entries, 5000, length(Found)),
    [
        begin
            Own = [{I, File} || {Q, I, File} <- Found, Q =:= P],
            ok = weir_kit:same(order, lists:seq(1, 100), [I || {I, _} <- Own]),
            ok = weir_kit:same(files, 1, length(lists:usort([File || {_, File} <- Own])))
        end
     || P <- lists:seq(1, 50)
    ].

%% Of 1000 processes no shard of four gets less than half or more than double its share.
balance(Config) ->
    {ok, Log} = weir_log:open(log, #{file => path(Config), shards => 4}),
    Crowd = weir_log_test_lib:crowd(1000, fun(_) -> weir_log:log(Log, <<"x">>) end),
    _ = weir_log_test_lib:await(Crowd),
    #{shards := Shards} = weir_log_test_lib:info(Log),
    [?assert(Entries > 125 andalso Entries < 500) || #{entries := Entries} <- Shards],
    weir_kit:same(entries, 1000, lists:sum([Entries || #{entries := Entries} <- Shards])).

merge_all(Config) ->
    {ok, Log} = weir_log:open(log, #{file => path(Config), shards => 3, frame => true}),
    {ok, Files} = weir_log:files(Log),
    Crowd = weir_log_test_lib:crowd(100, fun(P) ->
        [ok = weir_log:log(Log, term_to_binary({P, I})) || I <- lists:seq(1, 50)],
        ok
    end),
    _ = weir_log_test_lib:await(Crowd),
    ok = weir_log:close(Log),
    {ok, Merged} = weir_log:merge(fun(Time, Entry, Acc) -> [{Time, binary_to_term(Entry)} | Acc] end, [], Files),
    Entries = [Entry || {_, Entry} <- lists:reverse(Merged)],
    ok = weir_kit:same(entries, 5000, length(Entries)),
    [ok = weir_kit:same(order, lists:seq(1, 50), [I || {Q, I} <- Entries, Q =:= P]) || P <- lists:seq(1, 100)].

%% Against sorting; files as a log writes them, but with times that are chosen, and of more than one chunk.
merge_by_time(Config) ->
    Files = [
        begin
            File = path(Config) ++ integer_to_list(N),
            Entries = [{I * 7 + N, <<N, I:16>>} || I <- lists:seq(1, Count)],
            ok = write(File, Entries),
            {File, Entries}
        end
     || {N, Count} <- [{1, 1500}, {2, 0}, {3, 499}, {4, 500}, {5, 501}]
    ],
    {ok, Merged} = weir_log:merge(fun(Time, Entry, Acc) -> [{Time, Entry} | Acc] end, [], [File || {File, _} <- Files]),
    ?assertEqual(lists:sort(lists:append([Entries || {_, Entries} <- Files])), lists:reverse(Merged)),
    %% The files of one shard, one after the other.
    Shard = {shard, [File || {File, _} <- Files]},
    {ok, InTurn} = weir_log:merge(fun(Time, Entry, Acc) -> [{Time, Entry} | Acc] end, [], [Shard]),
    ?assertEqual(lists:append([Entries || {_, Entries} <- Files]), lists:reverse(InTurn)),
    ?assertEqual({messages, []}, process_info(self(), messages)).

write(File, Entries) ->
    file:write_file(File, [weir_log_frame:entry([<<Time:64>>, Entry]) || {Time, Entry} <- Entries]).

%% An entry that is older than the one before it comes behind it all the same.
merge_keeps_order(Config) ->
    [A, B] = [path(Config) ++ Name || Name <- ["a", "b"]],
    ok = write(A, [{10, <<"a1">>}, {5, <<"a2">>}, {11, <<"a3">>}]),
    ok = write(B, [{7, <<"b1">>}, {10, <<"b2">>}, {12, <<"b3">>}]),
    {ok, Merged} = weir_log:merge(fun(_, Entry, Acc) -> [Entry | Acc] end, [], [A, B]),
    ?assertEqual([<<"b1">>, <<"a1">>, <<"a2">>, <<"b2">>, <<"a3">>, <<"b3">>], lists:reverse(Merged)).

merge_errors(Config) ->
    A = path(Config) ++ "a",
    ok = write(A, [{1, <<"a">>}]),
    None = path(Config) ++ "none",
    Count = fun(_, _, N) -> N + 1 end,
    ?assertEqual({error, {file, None, enoent}}, weir_log:merge(Count, 0, [A, None])),
    ?assertEqual({error, {file, None, enoent}}, weir_log:merge(Count, 0, [{shard, [A, None]}])),
    ?assertEqual({messages, []}, process_info(self(), messages)).

merge_raises(Config) ->
    A = path(Config) ++ "a",
    ok = write(A, [{I, <<"a">>} || I <- lists:seq(1, 2000)]),
    Before = length(processes()),
    ?assertError(oops, weir_log:merge(fun(_, _, _) -> error(oops) end, 0, [A, A])),
    ?assertEqual({messages, []}, process_info(self(), messages)),
    ok = until(fun() -> length(processes()) =< Before end).

empty(_Config) -> ?assertEqual({ok, a}, weir_log:merge(fun(_, _, A) -> A end, a, [])).

%% All that is whole is given, and what is not is told.
merge_past_damage(Config) ->
    [A, B, C] = [path(Config) ++ Name || Name <- ["a", "b", "c"]],
    [ok = write(File, [{N, <<"one">>}, {N + 1, <<"two">>}]) || {File, N} <- [{A, 1}, {B, 3}, {C, 2}]],
    ok = file:write_file(A, "this is no entry", [append]),
    Count = fun(_, _, N) -> N + 1 end,
    ?assertEqual({error, {damaged, [{A, 38}], 6}}, weir_log:merge(Count, 0, [{shard, [A, B]}, C])),
    ok = file:write_file(C, "nor is this one", []),
    ?assertEqual({error, {damaged, [{A, 38}, {C, 0}], 4}}, weir_log:merge(Count, 0, [C, {shard, [A, B]}])),
    ?assertEqual({messages, []}, process_info(self(), messages)).

%% As it is in the guide, with a file of ours: of rotated and compressed files nothing is missing.
the_guides_example(Config) ->
    {ok, Guide} = file:read_file(guide(filename:dirname(code:which(?MODULE)))),
    [Example] = [
        Code
     || Block <- tl(binary:split(Guide, <<"```erlang\n">>, [global])),
        [Code, _] <- [binary:split(Block, <<"```">>)],
        binary:match(Code, <<"weir_log:merge">>) =/= nomatch
    ],
    Quoted = iolist_to_binary(io_lib:format("~tp", [path(Config)])),
    File = binary:replace(Example, <<"\"log/events.log\"">>, Quoted),
    [Open, Read] = binary:split(File, <<"ok = weir_log:log">>),
    ok = run([Open, "ok."]),
    _ = [
        begin
            Crowd = weir_log_test_lib:crowd(20, fun(I) -> weir_log:log(events, integer_to_binary(I)) end),
            _ = weir_log_test_lib:await(Crowd),
            ok = weir_log:rotate(events)
        end
     || _ <- [1, 2]
    ],
    {ok, Writing} = weir_log:files(events),
    %% Whoever cleans up takes a part that it finds for a leftover.
    [ok = weir_log_file_lib:cleaned(Each) || Each <- Writing],
    {ok, [{shard, [Oldest | _]} | _]} = weir_log:history(events),
    {ok, _} = weir_log_gzip:compress(Oldest),
    {ok, [{shard, Files}, {shard, _}]} = weir_log:history(events),
    [Current, _] = Writing,
    ?assertMatch([_, _, _], Files),
    ?assertEqual({<<Oldest/binary, ".gz">>, Current}, {hd(Files), lists:last(Files)}),
    ?assertEqual({ok, 41}, run(["ok = weir_log:log", Read])).

guide("/") ->
    ct:fail(no_guide);
guide(Dir) ->
    File = filename:join(Dir, "docs/guide/log.md"),
    case filelib:is_file(File) of
        true -> File;
        false -> guide(filename:dirname(Dir))
    end.

run(Code) ->
    {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Code)),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    {value, Value, _} = erl_eval:exprs(Expressions, []),
    Value.
