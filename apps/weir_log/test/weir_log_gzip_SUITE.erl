%% Compression, and the process that cleans up: what they leave when they are killed or the disk is full, and what is
%% kept.
-module(weir_log_gzip_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("kernel/include/file.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_log_file_lib, [path/2]).

all() -> weir_kit:cases(?MODULE).

-define(ALL, #{files => infinity, bytes => infinity, gzip => true}).

init_per_testcase(without_the_process, Config) -> Config;
init_per_testcase(_Case, Config) -> [{retention, weir_log_file_lib:start_retention()} | Config].

end_per_testcase(without_the_process, _Config) -> ok;
end_per_testcase(_Case, Config) -> weir_log_file_lib:stop_retention(proplists:get_value(retention, Config)).

%% ---------------------------------------------------------------- helpers

name(Path, N) -> weir_log_rotation:name(Path, weir_log_file_lib:basic(), {N, 0}).

write(Name, Contents) ->
    ok = file:write_file(Name, Contents),
    Name.

%% Does not get much smaller by compression.
noise(Bytes) -> rand:bytes(Bytes).

text(Lines) -> iolist_to_binary([[integer_to_binary(N), " was written\n"] || N <- lists:seq(1, Lines)]).

names(Path) ->
    {ok, Names} = file:list_dir(filename:dirname(Path)),
    lists:sort([iolist_to_binary(Name) || Name <- Names]).

base(Path, N) -> filename:basename(name(Path, N)).

all_but(Limits) -> maps:merge(?ALL, Limits).

clean(Path, Keep) ->
    ok = ask(Path, Keep),
    weir_log_file_lib:cleaned(Path).

ask(Path, Keep) -> weir_log_retention:ask(Path, {weir_log_file_lib:basic(), Keep, infinity}).

%% Kills the process, and starts the next one as its supervisor does.
kill() ->
    Pid = whereis(weir_log_retention),
    Ref = monitor(process, Pid),
    exit(Pid, kill),
    receive
        {'DOWN', Ref, process, Pid, killed} -> ok
    end.

restart() ->
    {ok, Pid} = weir_log_retention:start_link(),
    unlink(Pid),
    ok.

%% ---------------------------------------------------------------- one file

compresses(Config) ->
    Path = path(compresses, Config),
    [
        begin
            Name = write(name(Path, N), Contents),
            {ok, Bytes} = weir_log_gzip:compress(Name),
            Compressed = <<Name/binary, ".gz">>,
            ?assertEqual(Bytes, filelib:file_size(Compressed)),
            ?assertEqual({error, enoent}, file:read_file(Name)),
            ?assert(Contents =:= weir_log_file_lib:contents(Compressed)),
            %% By another program.
            ?assertEqual("", os:cmd("gzip -t " ++ binary_to_list(Compressed)))
        end
     || {N, Contents} <- lists:enumerate([<<>>, <<"one">>, text(200000), noise(262144), noise(262145)])
    ],
    ?assertEqual([], [Name || Name <- names(Path), filename:extension(Name) =/= <<".gz">>]).

keeps_mode_and_time(Config) ->
    Name = write(name(path(keeps_mode_and_time, Config), 1), "one"),
    ok = file:write_file_info(Name, #file_info{mode = 8#640, mtime = 1000000000, atime = 1000000001}, [{time, posix}]),
    {ok, _} = weir_log_gzip:compress(Name),
    {ok, Info} = file:read_file_info(<<Name/binary, ".gz">>, [{time, posix}]),
    ?assertMatch(#file_info{mtime = 1000000000}, Info),
    ?assertEqual(8#640, Info#file_info.mode band 8#777).

missing_original(Config) ->
    Path = path(missing_original, Config),
    ?assertEqual({error, enoent}, weir_log_gzip:compress(name(Path, 1))),
    ?assertEqual([], names(Path)).

target_is_a_directory(Config) ->
    Path = path(target_is_a_directory, Config),
    Name = write(name(Path, 1), "one"),
    ok = file:make_dir(<<Name/binary, ".gz">>),
    ?assertEqual({error, eisdir}, weir_log_gzip:compress(Name)),
    ?assertEqual({ok, <<"one">>}, file:read_file(Name)),
    ?assertEqual([base(Path, 1), <<(base(Path, 1))/binary, ".gz">>], names(Path)).

%% The original stays, and no part takes the room that is left.
disk_full(Config) ->
    Path = path(disk_full, Config),
    Dir = filename:dirname(Path),
    weir_log_file_lib:on_small_disk(Dir, "256k", fun() ->
        Noise = noise(200000),
        Name = write(name(Path, 1), Noise),
        ?assertEqual({error, enospc}, weir_log_gzip:compress(Name)),
        ?assertEqual([base(Path, 1)], names(Path)),
        ?assert({ok, Noise} =:= file:read_file(Name)),
        %% The process gives it up, and applies the limits to what it is.
        clean(Path, all_but(#{bytes => 200000})),
        ?assertEqual([base(Path, 1)], names(Path)),
        ?assertMatch(#{errors := 1, last_error := {Name, enospc}}, weir_log_retention:info()),
        clean(Path, all_but(#{bytes => 199999})),
        ?assertEqual([], names(Path))
    end).

%% One that is killed in a system call does to its part what it was about to do when another one compresses the file:
%% truncates it, renames it, deletes it. That one has a part of its own.
part_of_a_dead_process(Config) ->
    Path = path(part_of_a_dead_process, Config),
    Text = text(2000000),
    Name = write(name(Path, 1), Text),
    {Pid, Monitor} = spawn_monitor(fun() -> weir_log_gzip:compress(Name) end),
    weir_kit:until(fun() -> parts(Path) =/= [] end),
    exit(Pid, kill),
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(killed, Reason)
    end,
    Left = parts(Path),
    {ok, _} = weir_log_gzip:compress(Name),
    ?assertEqual(Left, parts(Path)),
    ?assert(Text =:= weir_log_file_lib:contents(<<Name/binary, ".gz">>)).

parts(Path) -> [Part || Part <- names(Path), binary:match(Part, <<".gz.part">>) =/= nomatch].

%% ---------------------------------------------------------------- the process

cleans_what_is_asked(Config) ->
    Path = path(cleans_what_is_asked, Config),
    Contents = [write_text(Path, N) || N <- lists:seq(1, 5)],
    clean(Path, ?ALL),
    Files = weir_log_file_lib:rotated(Path),
    ?assertEqual([<<(name(Path, N))/binary, ".gz">> || N <- lists:seq(1, 5)], Files),
    ?assertEqual(Contents, [weir_log_file_lib:contents(File) || File <- Files]),
    ?assertMatch(#{pending := 0, compressed := 5, deleted := 0, errors := 0}, weir_log_retention:info()).

write_text(Path, N) ->
    Text = text(N * 100),
    write(name(Path, N), Text),
    Text.

keeps_by_count_and_bytes(Config) ->
    Path = path(keeps_by_count_and_bytes, Config),
    [write(name(Path, N), noise(100)) || N <- lists:seq(1, 10)],
    Kept = fun(Keep) ->
        clean(Path, maps:merge(#{files => infinity, bytes => infinity, gzip => false}, Keep)),
        names(Path)
    end,
    Newest = fun(Number) -> [base(Path, N) || N <- lists:seq(11 - Number, 10)] end,
    ?assertEqual(Newest(10), Kept(#{files => 10, bytes => 1000})),
    ?assertEqual(Newest(9), Kept(#{files => 9})),
    ?assertEqual(Newest(9), Kept(#{bytes => 900})),
    ?assertEqual(Newest(8), Kept(#{bytes => 899})),
    ?assertEqual([], Kept(#{files => 0})).

%% A limit that is far below what the files have uncompressed.
compressed_size_counts(Config) ->
    Path = path(compressed_size_counts, Config),
    [write(name(Path, N), binary:copy(<<"x">>, 100000)) || N <- lists:seq(1, 4)],
    clean(Path, all_but(#{bytes => 10000})),
    ?assertEqual([<<(base(Path, N))/binary, ".gz">> || N <- lists:seq(1, 4)], names(Path)),
    [Size] = lists:usort([filelib:file_size(File) || File <- weir_log_file_lib:rotated(Path)]),
    clean(Path, all_but(#{bytes => 2 * Size})),
    ?assertEqual([<<(base(Path, N))/binary, ".gz">> || N <- [3, 4]], names(Path)).

%% What a node leaves that is killed at each moment of a compression.
leftovers(Config) ->
    Path = path(leftovers, Config),
    [Begun, Renamed, Deleted] = [name(Path, N) || N <- [1, 2, 3]],
    write(Begun, "one"),
    write(<<Begun/binary, ".gz.part">>, "half"),
    write(<<Begun/binary, ".gz.part1234">>, "half"),
    write(Renamed, "two"),
    write(<<Renamed/binary, ".gz">>, zlib:gzip("two")),
    write(<<Deleted/binary, ".gz">>, zlib:gzip("three")),
    clean(Path, ?ALL),
    Files = weir_log_file_lib:rotated(Path),
    ?assertEqual([<<Name/binary, ".gz">> || Name <- [Begun, Renamed, Deleted]], Files),
    ?assertEqual([<<"one">>, <<"two">>, <<"three">>], [weir_log_file_lib:contents(File) || File <- Files]),
    ?assertEqual(3, length(names(Path))).

foreign_files_stay(Config) ->
    Path = path(foreign_files_stay, Config),
    Other = name(filename:rootname(Path), 1),
    Foreign = [Path, <<Path/binary, ".1">>, <<Path/binary, ".gz.part">>, Other],
    [write(Name, "mine") || Name <- Foreign],
    %% Not even with a name of ours, if it is no file.
    ok = file:make_dir(name(Path, 1)),
    ok = file:make_symlink("nowhere", name(Path, 2)),
    Before = names(Path),
    clean(Path, all_but(#{files => 0})),
    ?assertEqual(Before, names(Path)).

%% Its successor finishes the work, and all entries are there.
killed_while_compressing(Config) ->
    Path = path(killed_while_compressing, Config),
    Text = text(2000000),
    write(name(Path, 1), Text),
    ok = ask(Path, ?ALL),
    weir_kit:until(fun() -> parts(Path) =/= [] orelse weir_log_retention:is_done(Path) end),
    kill(),
    ?assertEqual(1, length(weir_log_file_lib:rotated(Path))),
    restart(),
    weir_log_file_lib:cleaned(Path),
    ?assertEqual([<<(base(Path, 1))/binary, ".gz">>], names(Path)),
    ?assert(Text =:= weir_log_file_lib:contents(<<(name(Path, 1))/binary, ".gz">>)).

%% At moments of chance: nothing is ever missing.
killed_again_and_again(Config) ->
    Path = path(killed_again_and_again, Config),
    Texts = [text(20000 + N) || N <- lists:seq(1, 8)],
    [write(name(Path, N), Text) || {N, Text} <- lists:enumerate(Texts)],
    ok = ask(Path, ?ALL),
    [
        begin
            spin(rand:uniform(300000)),
            kill(),
            ?assertEqual(8, length(weir_log_file_lib:rotated(Path))),
            restart()
        end
     || _ <- lists:seq(1, 30)
    ],
    weir_log_file_lib:cleaned(Path),
    Files = weir_log_file_lib:rotated(Path),
    ?assertEqual([<<(name(Path, N))/binary, ".gz">> || N <- lists:seq(1, 8)], Files),
    ?assert(Texts =:= [weir_log_file_lib:contents(File) || File <- Files]),
    ?assertEqual(8, length(names(Path))).

spin(0) -> ok;
spin(N) -> spin(N - 1).

%% One file that cannot be compressed keeps nothing else from it.
fails_and_goes_on(Config) ->
    Path = path(fails_and_goes_on, Config),
    [write(name(Path, N), "text") || N <- [1, 2, 3]],
    InTheWay = <<(name(Path, 3))/binary, ".gz">>,
    ok = file:make_dir(InTheWay),
    clean(Path, ?ALL),
    ?assertMatch(#{compressed := 2, errors := 1}, weir_log_retention:info()),
    ?assertEqual({ok, <<"text">>}, file:read_file(name(Path, 3))),
    %% It is tried again when the log asks again.
    ok = file:del_dir(InTheWay),
    clean(Path, ?ALL),
    ?assertMatch(#{compressed := 3, errors := 1}, weir_log_retention:info()).

%% Nothing that is asked for while the process is at work is forgotten, and asking often costs no memory.
asked_while_busy(Config) ->
    Path = path(asked_while_busy, Config),
    ok = sys:suspend(weir_log_retention, weir_kit:wait_ms()),
    [
        begin
            write(name(Path, N), "text"),
            ok = ask(Path, ?ALL)
        end
     || N <- lists:seq(1, 50)
    ],
    {message_queue_len, Length} = process_info(whereis(weir_log_retention), message_queue_len),
    ?assert(Length =< 1),
    ok = sys:resume(weir_log_retention, weir_kit:wait_ms()),
    [
        begin
            write(name(Path, N), "text"),
            ok = ask(Path, ?ALL)
        end
     || N <- lists:seq(51, 100)
    ],
    weir_log_file_lib:cleaned(Path),
    ?assertEqual([<<(name(Path, N))/binary, ".gz">> || N <- lists:seq(1, 100)], weir_log_file_lib:rotated(Path)).

keeps_by_age(Config) ->
    Path = path(keeps_by_age, Config),
    Now = erlang:system_time(second),
    [write(name(Path, Now - Age), "text") || Age <- [3 * 86400 + 60, 3 * 86400 - 60, 60]],
    ok = weir_log_retention:ask(Path, {weir_log_file_lib:basic(), all_but(#{gzip => false}), 3}),
    weir_log_file_lib:cleaned(Path),
    ?assertEqual([name(Path, Now - Age) || Age <- [3 * 86400 - 60, 60]], weir_log_file_lib:rotated(Path)).

%% From the first byte on, and after a rotation and a compression.
mode_of_files(Config) ->
    Path = path(mode_of_files, Config),
    File = rotated(Path, #{mode => 8#600, rotate => #{gzip => true}}),
    ok = weir_log_file:close(File),
    Modes = [
        begin
            {ok, #file_info{mode = Mode}} = file:read_file_info(Name),
            Mode band 8#777
        end
     || Name <- [Path | weir_log_file_lib:rotated(Path)]
    ],
    ?assertEqual([8#600, 8#600], Modes).

%% Group and user, of the file and of what was rotated and compressed.
owner_of_files(Config) ->
    Path = path(owner_of_files, Config),
    {ok, #file_info{uid = Mine, gid = Group}} = file:read_file_info(proplists:get_value(priv_dir, Config)),
    Owner =
        case Mine of
            0 -> {65534, 65533};
            _ -> {Mine, Group}
        end,
    ok = weir_log_file:close(rotated(Path, #{owner => Owner, mode => 8#640, rotate => #{gzip => true}})),
    Owners = [
        begin
            {ok, #file_info{uid = Uid, gid = Gid, mode = Mode}} = file:read_file_info(Name),
            {{Uid, Gid}, Mode band 8#777}
        end
     || Name <- [Path | weir_log_file_lib:rotated(Path)]
    ],
    ?assertEqual([{Owner, 8#640}, {Owner, 8#640}], Owners).

%% A file with one rotated one that is cleaned up.
rotated(Path, Opts) ->
    All = maps:merge(#{path => Path, format => newline, rotate => #{}, check_ms => 0}, Opts),
    {ok, File} = weir_log_file:open(All),
    {ok, Written} = weir_log_file:write("one\n", 4, 0, File),
    {ok, Rotated} = weir_log_file:rotate(0, Written),
    weir_log_file_lib:cleaned(Path),
    Rotated.

%% In their order, with what there is then; one that crashes keeps nothing from the others.
hooks(Config) ->
    Path = path(hooks, Config),
    Test = self(),
    Hook = fun(File) ->
        Test ! {hook, File, filelib:is_file(File)},
        exit(oops)
    end,
    File1 = rotated(Path, #{rotate => #{gzip => true, hook => Hook}}),
    {ok, File2} = weir_log_file:write("two\n", 4, 0, File1),
    {ok, File3} = weir_log_file:rotate(1000, File2),
    ok = weir_log_file:close(File3),
    ?assertEqual([{<<(name(Path, N))/binary, ".gz">>, true} || N <- [0, 1]], [called(), called()]),
    ok = weir_log_file:close(rotated(<<Path/binary, "b">>, #{rotate => #{hook => {erlang, send, []}}})),
    ok = weir_log_file:close(rotated(<<Path/binary, "c">>, #{rotate => #{hook => {?MODULE, tell, [Test]}}})),
    ?assertEqual({name(<<Path/binary, "c">>, 0), true}, called()).

tell(File, Test) -> Test ! {hook, File, filelib:is_file(File)}.

called() ->
    receive
        {hook, File, IsThere} -> {File, IsThere}
    after weir_kit:wait_ms() -> error(not_called)
    end.

%% A hook that tells of its call, and goes on when it is told to.
hangs(Test) ->
    fun(File) ->
        Test ! {hook, File, self()},
        receive
            go -> ok
        end
    end.

hook_that_hangs(Config) ->
    Path = path(hook_that_hangs, Config),
    Test = self(),
    Hangs = hangs(Test),
    ok = weir_log_file:close(rotated(Path, #{rotate => #{hook => Hangs}})),
    {_, Pid} = called(),
    %% Another log is cleaned up and has its hook called, and this one is cleaned up.
    Other = <<Path/binary, "b">>,
    Opts = #{rotate => #{gzip => true, hook => {?MODULE, tell, [Test]}}},
    ok = weir_log_file:close(rotated(Other, Opts)),
    ?assertEqual({<<(name(Other, 0))/binary, ".gz">>, true}, called()),
    ok = weir_log_file:close(rotated(Path, #{rotate => #{hook => Hangs}})),
    Pid ! go,
    {_, Next} = called(),
    Next ! go.

%% The calls of a log's hooks end while a file is being rotated: the log has said that there is a hook, and is about to
%% ask.
hook_before_it_is_asked(Config) ->
    Path = path(hook_before_it_is_asked, Config),
    Test = self(),
    Hangs = hangs(Test),
    ok = weir_log_file:close(rotated(Path, #{rotate => #{gzip => true, hook => Hangs}})),
    {_, Pid} = called(),
    Name = write(name(Path, 1), "two\n"),
    ok = weir_log_retention:hook(Path, Name, {?MODULE, tell, [Test]}),
    Pid ! go,
    ?assertEqual({<<Name/binary, ".gz">>, true}, called()).

%% What was not cleaned is, when the process is there and is asked again.
without_the_process(Config) ->
    ok = weir_log_test_lib:stop_all(),
    Path = path(without_the_process, Config),
    ok = weir_log_file:close(rotated_only(Path)),
    ?assertEqual(<<"one\n">>, weir_log_file_lib:contents(name(Path, 0))),
    Manager = weir_log_file_lib:start_retention(),
    try
        ok = weir_log_file:close(rotated_only(Path)),
        weir_log_file_lib:cleaned(Path),
        ?assertEqual([<<(name(Path, N))/binary, ".gz">> || N <- [0, 1]], weir_log_file_lib:rotated(Path))
    after
        weir_log_file_lib:stop_retention(Manager)
    end.

rotated_only(Path) ->
    {ok, File} = weir_log_file:open(#{
        path => Path, format => newline, rotate => #{gzip => true}, check_ms => 0
    }),
    {ok, Written} = weir_log_file:write("one\n", 4, 0, File),
    Last = length(weir_log_file_lib:rotated(Path)),
    {ok, Rotated} = weir_log_file:rotate(Last * 1000, Written),
    Rotated.
