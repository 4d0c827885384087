%% The file of a log: what is in it after each success and each failure. Faults are real ones: disks and directories
%% that are full, gone, forbidden or not what they were; those that only root can make are skipped for others.
-module(weir_log_file_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_log_file_lib, [path/2, contents/1, framed/1, entries/1]).

all() -> weir_kit:cases(?MODULE).

init_per_testcase(_Case, Config) -> [{retention, weir_log_file_lib:start_retention()} | Config].

end_per_testcase(_Case, Config) -> weir_log_file_lib:stop_retention(proplists:get_value(retention, Config)).

%% ---------------------------------------------------------------- helpers

-define(NOW, 1795262400000).
-define(HOUR, 3600000).

open(Path) -> open(Path, #{}).

open(Path, Opts) ->
    {ok, File} = weir_log_file:open(maps:merge(#{path => Path, format => raw, rotate => #{}, check_ms => 0}, Opts)),
    File.

write(Entry, File) -> write(Entry, ?NOW, File).

write(Entry, Now, File) ->
    {ok, Written} = weir_log_file:write(Entry, iolist_size(Entry), Now, File),
    Written.

refused(Entry, File) -> refused(Entry, ?NOW, File).

refused(Entry, Now, File) ->
    {error, Reason, Same} = weir_log_file:write(Entry, iolist_size(Entry), Now, File),
    {Reason, Same}.

state(File) -> maps:get(state, weir_log_file:info(File)).

count(What, File) -> maps:get(What, weir_log_file:info(File)).

rotated(Path) -> [contents(File) || File <- weir_log_file_lib:rotated(Path)].

%% ---------------------------------------------------------------- what it does

appends(Config) ->
    Path = path(appends, Config),
    ok = file:write_file(Path, "zero\n"),
    File1 = write([<<"one">>, $\n], open(Path)),
    File2 = write(["two\n", "three\n"], ?NOW + 5, File1),
    ?assertEqual(<<"zero\none\ntwo\nthree\n">>, contents(Path)),
    ?assertMatch(
        #{path := Path, state := ok, size := 19, since := ?NOW, unsynced_bytes := 14, written_bytes := 14, errors := 0},
        weir_log_file:info(File2)
    ),
    {ok, File3} = weir_log_file:sync(File2),
    ?assertMatch(#{unsynced_bytes := 0, size := 19}, weir_log_file:info(File3)),
    ?assertEqual(ok, weir_log_file:close(File3)).

makes_directories(Config) ->
    Path = iolist_to_binary(filename:join([weir_log_file_lib:dir(makes_directories, Config), "a", "b", "c.log"])),
    ok = weir_log_file:close(write("one", open(Path))),
    ?assertEqual(<<"one">>, contents(Path)),
    ?assertEqual({error, eexist}, weir_log_file:open(opts(<<Path/binary, "/below">>))).

opts(Path) -> #{path => Path, format => raw, rotate => #{}, check_ms => 0}.

%% The log stays where it is.
relative_path(Config) ->
    Path = path(relative_path, Config),
    {ok, Before} = file:get_cwd(),
    ok = file:set_cwd(filename:dirname(Path)),
    File =
        try
            open("a.log")
        after
            ok = file:set_cwd(Before)
        end,
    ok = file:delete(Path),
    ok = weir_log_file:close(write("one", File)),
    ?assertEqual(<<"one">>, contents(Path)).

misuse(Config) ->
    Path = path(misuse, Config),
    ?assertEqual({error, badarg}, weir_log_file:open(opts(123))),
    ?assertEqual({error, badarg}, weir_log_file:open(opts(<<Path/binary, 0>>))),
    ?assertEqual({error, eisdir}, weir_log_file:open(opts(filename:dirname(Path)))),
    %% Not even a part is written.
    {error, badarg, File} = weir_log_file:write(["one", atom], 7, ?NOW, open(Path)),
    ?assertEqual(ok, state(File)),
    ok = weir_log_file:close(write("two", File)),
    ?assertEqual(<<"two">>, contents(Path)).

%% The names of rotated files must fit too.
name_length(Config) ->
    Dir = filename:dirname(path(name_length, Config)),
    Longest = 255 - weir_log_rotation:max_suffix(),
    Named = fun(Length) -> filename:join(Dir, binary:copy(<<"a">>, Length)) end,
    {ok, File} = weir_log_file:rotate(?NOW, write("one", open(Named(Longest), #{rotate => #{gzip => true}}))),
    weir_log_file_lib:cleaned(Named(Longest)),
    ?assertEqual([<<"one">>], rotated(Named(Longest))),
    ok = weir_log_file:close(File),
    ?assertEqual({error, enametoolong}, weir_log_file:open(opts(Named(Longest + 1)))),
    ?assertEqual({error, enametoolong}, weir_log_file:open(opts(<<Dir/binary, (binary:copy(<<"/a">>, 4096))/binary>>))).

%% The node's file server logs what it does not know: a writer that waited for it could wait for itself.
without_the_file_server(Config) ->
    Path = filename:join(filename:dirname(path(without_the_file_server, Config)), <<"new/dir/a.log">>),
    ok = sys:suspend(file_server_2, weir_kit:wait_ms()),
    Task = weir_kit:start(fun() ->
        File1 = write(framed(["one"]), open(Path, #{format => frame, rotate => #{gzip => true, keep_files => 3}})),
        {ok, File2} = weir_log_file:rotate(?NOW, File1),
        {ok, File3} = weir_log_file:reopen(write(framed(["two"]), File2)),
        ok = prim_file:rename(Path, <<Path/binary, ".moved">>),
        File4 = write("no frame", write(framed(["three"]), File3)),
        ok = weir_log_file:close(File4),
        File5 = open(Path, #{format => frame, rotate => #{gzip => true, keep_files => 3}}),
        ?assertMatch(#{set_aside := 1}, weir_log_file:info(File5)),
        {ok, File6} = weir_log_file:sync(write(framed(["four"]), File5)),
        {ok, File7} = weir_log_file:rotate(?NOW, File6),
        ok = weir_log_file:close(File7),
        weir_log_file_lib:cleaned(Path)
    end),
    try
        ok = weir_kit:result(Task)
    after
        ok = weir_kit:kill(Task),
        ok = sys:resume(file_server_2, weir_kit:wait_ms())
    end,
    Rotated = weir_log_file_lib:rotated(Path),
    ?assertEqual([<<".gz">>, <<".gz">>, <<".gz">>], [filename:extension(Name) || Name <- Rotated]),
    ?assertEqual([<<"one">>], entries(hd(Rotated))).

size_limit(Config) ->
    Path = path(size_limit, Config),
    File1 = write("67890", write("12345", open(Path, #{rotate => #{max_bytes => 10}}))),
    ?assertEqual([], rotated(Path)),
    File2 = write("a", File1),
    ?assertEqual([<<"1234567890">>], rotated(Path)),
    %% One that is too long for any file has one of its own, in one piece.
    File3 = write("end", write("much too long", File2)),
    ?assertEqual([<<"1234567890">>, <<"a">>, <<"much too long">>], rotated(Path)),
    ?assertEqual(<<"end">>, contents(Path)),
    ?assertMatch(#{rotations := 3, size := 3}, weir_log_file:info(File3)),
    ok = weir_log_file:close(File3),
    %% What is there counts.
    File4 = write("1234567", open(Path, #{rotate => #{max_bytes => 10}})),
    ?assertEqual(<<"end1234567">>, contents(Path)),
    ok = weir_log_file:close(write("8", File4)),
    ?assertEqual(<<"8">>, contents(Path)).

rotates_on_request(Config) ->
    Path = path(rotates_on_request, Config),
    {ok, Empty} = weir_log_file:rotate(?NOW, open(Path)),
    ?assertEqual([], rotated(Path)),
    {ok, Rotated} = weir_log_file:rotate(?NOW, write("one", Empty)),
    ?assertEqual([<<"one">>], rotated(Path)),
    ?assertEqual([<<Path/binary, ".20261121T120000Z-0000">>], weir_log_file_lib:rotated(Path)),
    ?assertEqual(<<>>, contents(Path)),
    %% What was in the old file was synced.
    {ok, Synced} = weir_log_file:sync(Rotated),
    ok = weir_log_file:close(Synced).

rotates_by_the_hour(Config) ->
    Path = path(rotates_by_the_hour, Config),
    File1 = write("1", ?NOW, open(Path, #{rotate => #{interval => hourly}})),
    File2 = write("2", ?NOW + ?HOUR - 1, File1),
    ?assertEqual(<<"12">>, contents(Path)),
    File3 = write("3", ?NOW + ?HOUR, File2),
    ?assertEqual({[<<"12">>], <<"3">>}, {rotated(Path), contents(Path)}),
    %% Nothing is made for hours in which nothing is written.
    File4 = write("4", ?NOW + 5 * ?HOUR, File3),
    ?assertEqual([<<"12">>, <<"3">>], rotated(Path)),
    %% A file that was rotated on request is of the hour in which it was begun.
    {ok, File5} = weir_log_file:rotate(?NOW + 6 * ?HOUR - 1, File4),
    File6 = write("6", ?NOW + 6 * ?HOUR + 1, write("5", ?NOW + 6 * ?HOUR, File5)),
    ?assertEqual(<<"56">>, contents(Path)),
    ok = weir_log_file:close(File6).

%% A node that was down at the end of the hour.
old_file_is_of_its_hour(Config) ->
    Path = path(old_file_is_of_its_hour, Config),
    Reopened = fun(WrittenMs) ->
        ok = file:write_file(Path, "old"),
        ok = file:change_time(Path, calendar:system_time_to_local_time(WrittenMs, millisecond)),
        ok = weir_log_file:close(write("new", ?NOW + 5000, open(Path, #{rotate => #{interval => hourly}}))),
        contents(Path)
    end,
    ?assertEqual(<<"oldnew">>, Reopened(?NOW)),
    ?assertEqual(<<"new">>, Reopened(?NOW - 1000)).

%% Nothing is overwritten, compressed or not.
name_is_taken(Config) ->
    Path = path(name_is_taken, Config),
    Name = fun(N) -> weir_log_rotation:name(Path, weir_log_file_lib:basic(), {?NOW div 1000, N}) end,
    File1 = write("1", open(Path)),
    ok = file:make_dir(Name(0)),
    ok = file:write_file(<<(Name(1))/binary, ".gz">>, zlib:gzip("other")),
    ok = file:make_symlink("nowhere", Name(2)),
    {ok, File2} = weir_log_file:rotate(?NOW, File1),
    ?assertEqual(<<"1">>, contents(Name(3))),
    ok = weir_log_file:close(File2).

keeps_and_compresses(Config) ->
    Path = path(keeps_and_compresses, Config),
    Rotate = #{max_bytes => 10, keep_files => 3, gzip => true},
    File = lists:foldl(
        fun(N, Acc) -> write(io_lib:format("~9..0B~n", [N]), ?NOW + N * 300, Acc) end,
        open(Path, #{rotate => Rotate}),
        lists:seq(1, 20)
    ),
    weir_log_file_lib:cleaned(Path),
    ?assertEqual([<<"000000017\n">>, <<"000000018\n">>, <<"000000019\n">>], rotated(Path)),
    ?assertEqual([<<".gz">>], lists:usort([filename:extension(Name) || Name <- weir_log_file_lib:rotated(Path)])),
    ok = weir_log_file:close(File).

%% Whatever is done to a log, each batch is in some file once and whole, and batches are in order in each file.
nothing_is_lost(Config) ->
    Dir = weir_log_file_lib:dir(nothing_is_lost, Config),
    Step = frequency([
        {10, {write, range(0, 30), range(0, 3 * ?HOUR)}},
        {1, rotate},
        {1, reopen},
        {1, restart},
        {1, move},
        {1, sync},
        {1, {back, range(0, 3 * ?HOUR)}}
    ]),
    Rotate = ?LET(
        {MaxBytes, Interval, Gzip},
        {oneof([infinity, 10, 50]), oneof([none, hourly, daily]), boolean()},
        #{max_bytes => MaxBytes, interval => Interval, gzip => Gzip}
    ),
    Property = ?FORALL({Steps, Opts}, {list(Step), Rotate}, begin
        Run = iolist_to_binary(filename:join(Dir, integer_to_list(erlang:unique_integer([positive])))),
        Path = filename:join(Run, <<"a.log">>),
        {File, _, Written, _} = lists:foldl(
            fun(Each, Acc) -> step(Each, Path, Opts, Acc) end,
            {open(Path, #{rotate => Opts}), ?NOW, [], 0},
            Steps
        ),
        #{errors := 0, rotation_errors := 0} = weir_log_file:info(File),
        ok = weir_log_file:close(File),
        weir_log_file_lib:cleaned(Path),
        {ok, Names} = file:list_dir(Run),
        Found = [binary:split(contents(filename:join(Run, Name)), <<"\n">>, [global, trim]) || Name <- Names],
        lists:all(fun(Lines) -> Lines =:= lists:sort(Lines) end, Found) andalso
            lists:sort(lists:append(Found)) =:= lists:sort(Written)
    end),
    Tests = weir_kit:long(75, 150),
    weir_kit_property:holds(Property, [{numtests, Tests}, quiet]).

step({write, Length, Later}, _Path, _Opts, {File, Now, Written, N}) ->
    Line = iolist_to_binary([io_lib:format("~6..0B", [N]), binary:copy(<<"x">>, Length)]),
    {write([Line, $\n], Now + Later, File), Now + Later, [Line | Written], N + 1};
step({back, Earlier}, _Path, _Opts, {File, Now, Written, N}) ->
    {File, Now - Earlier, Written, N};
step(restart, Path, Opts, {File, Now, Written, N}) ->
    ok = weir_log_file:close(File),
    {open(Path, #{rotate => Opts}), Now, Written, N};
step(move, Path, _Opts, {File, Now, Written, N}) ->
    Aside = <<Path/binary, ".moved.", (integer_to_binary(erlang:unique_integer([positive])))/binary>>,
    %% There is no file if it was moved before and nothing was written since.
    _ = file:rename(Path, Aside),
    {File, Now, Written, N};
step(What, _Path, _Opts, {File, Now, Written, N}) ->
    {ok, After} =
        case What of
            rotate -> weir_log_file:rotate(Now, File);
            reopen -> weir_log_file:reopen(File);
            sync -> weir_log_file:sync(File)
        end,
    {After, Now, Written, N}.

%% ---------------------------------------------------------------- no room

device_full(Config) ->
    Path = path(device_full, Config),
    ok = file:make_symlink("/dev/full", Path),
    {enospc, File1} = refused("one", open(Path)),
    ?assertMatch(#{state := degraded, errors := 1, last_error := enospc}, weir_log_file:info(File1)),
    ok = file:delete(Path),
    File2 = write("two", ?NOW + 1000, File1),
    ?assertMatch(#{state := ok, errors := 1, moved := 1}, weir_log_file:info(File2)),
    ?assertEqual(<<"two">>, contents(Path)),
    ok = weir_log_file:close(File2).

%% The first part of what does not fit was written, and is gone again.
disk_full(Config) ->
    Path = path(disk_full, Config),
    Dir = filename:dirname(Path),
    weir_log_file_lib:on_small_disk(Dir, "64k", fun() ->
        disk_full_(Path, raw, fun(Size) -> binary:copy(<<"x">>, Size) end),
        ok = file:delete(Path),
        disk_full_(Path, frame, fun(Size) -> framed([binary:copy(<<"x">>, Size)]) end)
    end).

disk_full_(Path, Format, Entry) ->
    File1 = write(Entry(30000), open(Path, #{format => Format})),
    {enospc, File2} = refused([Entry(20000), Entry(20000)], File1),
    ?assertEqual(Entry(30000), contents(Path)),
    Size = byte_size(Entry(30000)),
    ?assertMatch(#{state := degraded, torn := 0, size := Size}, weir_log_file:info(File2)),
    %% It is tried again, and again nothing is left of it.
    {enospc, File3} = refused(Entry(40000), ?NOW + 1000, File2),
    ?assertEqual(Entry(30000), contents(Path)),
    %% What fits is taken, and then it is as ever.
    File4 = write(Entry(10), ?NOW + 2001, write(Entry(1000), ?NOW + 2000, File3)),
    ?assertEqual(iolist_to_binary([Entry(30000), Entry(1000), Entry(10)]), contents(Path)),
    ?assertMatch(#{state := ok, errors := 2}, weir_log_file:info(File4)),
    ok = weir_log_file:close(File4).

%% The worst case: a part is written, and the file cannot be truncated. Nothing is written behind it until it can be.
part_that_cannot_be_cut(Config) ->
    Path = path(part_that_cannot_be_cut, Config),
    Dir = filename:dirname(Path),
    weir_log_file_lib:on_small_disk(Dir, "64k", fun() ->
        File1 = write("whole", open(Path)),
        case weir_log_file_lib:append_only(Path) of
            ok -> part_that_cannot_be_cut_(Path, File1);
            Skip -> Skip
        end
    end).

part_that_cannot_be_cut_(Path, File1) ->
    {enospc, File2} = refused(binary:copy(<<"x">>, 100000), File1),
    ?assertMatch(<<"wholexxx", _/binary>>, contents(Path)),
    {eperm, File3} = refused("one", ?NOW + 1000, File2),
    ?assertMatch(#{state := degraded, torn := 0}, weir_log_file:info(File3)),
    0 = weir_log_file_lib:allow(Path),
    File4 = write("two", ?NOW + 2000, File3),
    ?assertEqual(<<"wholetwo">>, contents(Path)),
    ok = weir_log_file:close(File4).

%% Until then there is no system call: the room that there is meanwhile is not noticed.
refuses_until_retry(Config) ->
    Path = path(refuses_until_retry, Config),
    ok = file:make_symlink("/dev/full", Path),
    {enospc, File1} = refused("one", open(Path, #{retry_ms => 50})),
    ok = file:delete(Path),
    {enospc, File2} = refused("two", ?NOW + 49, File1),
    ?assertEqual({error, enoent}, file:read_file(Path)),
    ?assertEqual(2, count(errors, File2)),
    ok = weir_log_file:close(write("three", ?NOW + 50, File2)),
    ?assertEqual(<<"three">>, contents(Path)).

%% ---------------------------------------------------------------- the path

directory_removed(Config) ->
    Path = path(directory_removed, Config),
    File1 = write("one", open(Path)),
    ok = file:del_dir_r(filename:dirname(Path)),
    File2 = write("two", File1),
    ?assertEqual(<<"two">>, contents(Path)),
    ?assertMatch(#{state := ok, moved := 1, size := 3, errors := 0}, weir_log_file:info(File2)),
    ok = weir_log_file:close(File2).

looks_each_check_ms(Config) ->
    Path = path(looks_each_check_ms, Config),
    Aside = <<Path/binary, ".1">>,
    File1 = write("1", ?NOW, open(Path, #{check_ms => 100})),
    ok = file:rename(Path, Aside),
    File2 = write("2", ?NOW + 99, File1),
    ?assertEqual(<<"12">>, contents(Aside)),
    File3 = write("3", ?NOW + 100, File2),
    ?assertEqual({<<"12">>, <<"3">>}, {contents(Aside), contents(Path)}),
    ok = weir_log_file:close(File3).

%% As logrotate does, with and without making a new file.
moved_away(Config) ->
    Path = path(moved_away, Config),
    File1 = write("1", open(Path)),
    ok = file:rename(Path, <<Path/binary, ".1">>),
    File2 = write("2", File1),
    ok = file:rename(Path, <<Path/binary, ".2">>),
    ok = file:write_file(Path, "new "),
    File3 = write("3", File2),
    ?assertEqual({<<"1">>, <<"2">>}, {contents(<<Path/binary, ".1">>), contents(<<Path/binary, ".2">>)}),
    ?assertEqual(<<"new 3">>, contents(Path)),
    ?assertMatch(#{moved := 2, size := 5}, weir_log_file:info(File3)),
    ok = weir_log_file:close(File3).

directory_in_its_place(Config) ->
    Path = path(directory_in_its_place, Config),
    File1 = write("one", open(Path)),
    ok = file:delete(Path),
    ok = file:make_dir(Path),
    {eisdir, File2} = refused("two", File1),
    {eisdir, File3} = refused("three", ?NOW + 1000, File2),
    ?assertMatch(#{state := degraded, errors := 2}, weir_log_file:info(File3)),
    {ok, File4} = weir_log_file:sync(File3),
    ok = file:del_dir(Path),
    ok = weir_log_file:close(write("four", ?NOW + 2000, File4)),
    ?assertEqual(<<"four">>, contents(Path)).

creation_forbidden(Config) ->
    Path = path(creation_forbidden, Config),
    Dir = filename:dirname(Path),
    File1 = write("one", open(Path)),
    ok = file:delete(Path),
    weir_log_file_lib:while_forbidden(Dir, fun() ->
        {Reason, File2} = refused("two", File1),
        ?assert(lists:member(Reason, [eperm, eacces])),
        ?assertEqual({error, Reason}, weir_log_file:open(opts(Path))),
        weir_log_file_lib:allow(Dir),
        ok = weir_log_file:close(write("three", ?NOW + 1000, File2)),
        ?assertEqual(<<"three">>, contents(Path))
    end).

truncated(Config) ->
    Path = path(truncated, Config),
    File1 = write("12345678", open(Path, #{rotate => #{max_bytes => 10}})),
    ok = file:write_file(Path, ""),
    File2 = write("abc", File1),
    ?assertEqual({[], <<"abc">>}, {rotated(Path), contents(Path)}),
    ?assertMatch(#{truncated := 1, size := 3, moved := 0}, weir_log_file:info(File2)),
    ok = weir_log_file:close(File2).

truncated_in_an_entry(Config) ->
    Path = path(truncated_in_an_entry, Config),
    File1 = write(framed(["one", "two"]), open(Path, #{format => frame})),
    {ok, Fd} = file:open(Path, [read, write]),
    {ok, 20} = file:position(Fd, 20),
    ok = file:truncate(Fd),
    ok = file:close(Fd),
    File2 = write(framed(["three"]), File1),
    ?assertEqual([<<"one">>, <<"three">>], entries(Path)),
    ?assertMatch(#{truncated := 1, cut_bytes := 9, size := 24}, weir_log_file:info(File2)),
    ok = weir_log_file:close(File2).

%% ---------------------------------------------------------------- rotation that fails

%% The entries go on in the file, however long it gets.
rotation_forbidden(Config) ->
    Path = path(rotation_forbidden, Config),
    Dir = filename:dirname(Path),
    File1 = write("12345678", open(Path, #{rotate => #{max_bytes => 10}})),
    weir_log_file_lib:while_forbidden(Dir, fun() ->
        File2 = write("abc", File1),
        File3 = write("def", ?NOW + 999, File2),
        ?assertEqual(<<"12345678abcdef">>, contents(Path)),
        ?assertMatch(
            #{state := ok, errors := 0, rotations := 0, rotation_errors := 1},
            weir_log_file:info(File3)
        ),
        {error, Reason, File4} = weir_log_file:rotate(?NOW + 999, File3),
        ?assert(lists:member(Reason, [eperm, eacces])),
        weir_log_file_lib:allow(Dir),
        File5 = write("ghi", ?NOW + 2000, File4),
        ?assertEqual({[<<"12345678abcdef">>], <<"ghi">>}, {rotated(Path), contents(Path)}),
        ok = weir_log_file:close(File5)
    end).

%% The rename succeeds and the new file cannot be made, in a file system that has no more inodes.
no_room_for_the_new_file(Config) ->
    Path = path(no_room_for_the_new_file, Config),
    Dir = filename:dirname(Path),
    weir_log_file_lib:on_small_disk(Dir, "64k,nr_inodes=2", fun() ->
        File1 = write("12345678", open(Path, #{rotate => #{max_bytes => 10}})),
        File2 = write("abc", File1),
        ?assertMatch(
            #{state := ok, rotation_errors := 1, last_error := enospc, errors := 0},
            weir_log_file:info(File2)
        ),
        ?assertEqual({[], <<"12345678abc">>}, {rotated(Path), contents(Path)}),
        ok = weir_log_file:close(File2)
    end).

%% What was moved is not rotated, and is not missed.
path_lost_at_rotation(Config) ->
    Path = path(path_lost_at_rotation, Config),
    File1 = write("12345678", open(Path, #{rotate => #{max_bytes => 10}, check_ms => 100000})),
    ok = file:delete(Path),
    File2 = write("abc", File1),
    ?assertEqual({[], <<"abc">>}, {rotated(Path), contents(Path)}),
    ?assertMatch(#{moved := 1, rotations := 0, rotation_errors := 0}, weir_log_file:info(File2)),
    ok = weir_log_file:close(File2).

%% ---------------------------------------------------------------- sync

%% What is no regular file is only written to, with whatever options, and its syncs are as good as done.
streams(Config) ->
    Path = path(streams, Config),
    "" = os:cmd("mkfifo " ++ binary_to_list(Path)),
    %% Opening a pipe waits for its other end.
    Reader = open_port({spawn, "cat " ++ binary_to_list(Path)}, [binary]),
    File1 = write("12345678", open(Path, #{format => frame, rotate => #{max_bytes => 10, keep_files => 0}})),
    {ok, File2} = weir_log_file:sync(write("12345678", File1)),
    {ok, File3} = weir_log_file:rotate(?NOW, File2),
    ?assertMatch(#{state := ok, size := 0, written_bytes := 16, rotations := 0}, weir_log_file:info(File3)),
    ?assertEqual(<<"1234567812345678">>, from(Reader, 16, <<>>)),
    ok = weir_log_file:close(File3),
    ?assertEqual([<<"a.log">>], [iolist_to_binary(Name) || Name <- names(Path)]),
    ok = file:delete(Path),
    ok = file:make_symlink("/dev/null", Path),
    {ok, File4} = weir_log_file:sync(write("one", open(Path, #{format => newline}))),
    ok = weir_log_file:close(File4).

from(_Port, Bytes, Read) when byte_size(Read) >= Bytes -> Read;
from(Port, Bytes, Read) ->
    receive
        {Port, {data, Data}} -> from(Port, Bytes, <<Read/binary, Data/binary>>)
    after weir_kit:wait_ms() -> error({only, Read})
    end.

names(Path) ->
    {ok, Names} = file:list_dir(filename:dirname(Path)),
    Names.

%% A descriptor that is gone cannot be synced.
sync_fails(Config) ->
    Path = path(sync_fails, Config),
    File0 = write("one", open(Path)),
    ok = close_descriptor(File0),
    {error, {sync_failed, einval}, File1} = weir_log_file:sync(File0),
    ?assertMatch(#{state := failed, errors := 1, last_error := {sync_failed, einval}}, weir_log_file:info(File1)),
    ok = file:delete(Path),
    %% Not even when it could work again, however long that is ago.
    {{sync_failed, einval}, File2} = refused("two", ?NOW + 1000000, File1),
    {error, {sync_failed, einval}, File3} = weir_log_file:sync(File2),
    {error, {sync_failed, einval}, File4} = weir_log_file:rotate(?NOW + 1000000, File3),
    ?assertEqual({error, {sync_failed, einval}}, weir_log_file:close(File4)),
    ?assertEqual({error, enoent}, file:read_file(Path)).

%% The descriptor is given back, whatever became of the file.
closes_what_failed(Config) ->
    Path = path(closes_what_failed, Config),
    File = write("one", open(Path)),
    ?assertEqual(1, weir_log_file_lib:open_files(Path)),
    %% As it is after a sync that failed. The value is a record; its state is the third element.
    ok = element(3, File),
    Failed = setelement(3, File, {failed, eio}),
    ?assertMatch(#{state := failed}, weir_log_file:info(Failed)),
    ?assertEqual({error, {sync_failed, eio}}, weir_log_file:close(Failed)),
    ?assertEqual(0, weir_log_file_lib:open_files(Path)).

sync_fails_at_rotation(Config) ->
    Path = path(sync_fails_at_rotation, Config),
    File1 = write("12345678", open(Path, #{rotate => #{max_bytes => 10}, check_ms => 100000})),
    ok = close_descriptor(File1),
    {{sync_failed, einval}, File2} = refused("abc", File1),
    ?assertEqual([], weir_log_file_lib:rotated(Path)),
    ok = file:delete(Path),
    {ok, File3} = weir_log_file:reopen(File2),
    ?assertMatch(#{state := ok, errors := 1}, weir_log_file:info(File3)),
    ok = weir_log_file:close(write("def", File3)),
    ?assertEqual(<<"def">>, contents(Path)).

%% The descriptor is what fails: there is a new one.
descriptor_lost(Config) ->
    Path = path(descriptor_lost, Config),
    {ok, File1} = weir_log_file:sync(write("one", open(Path))),
    ok = close_descriptor(File1),
    {einval, File2} = refused("two", File1),
    {ok, File3} = weir_log_file:sync(File2),
    File4 = write("three", ?NOW + 1000, File3),
    ?assertEqual(<<"onethree">>, contents(Path)),
    %% With something that was not synced, nobody knows.
    ok = close_descriptor(File4),
    {error, {sync_failed, einval}, File5} = weir_log_file:sync(File4),
    {ok, File6} = weir_log_file:reopen(File5),
    ok = weir_log_file:close(write("four", File6)),
    ?assertEqual(<<"onethreefour">>, contents(Path)).

close_descriptor(File) ->
    [Fd] = [Field || Field <- tuple_to_list(File), is_record(Field, file_descriptor, 3)],
    file:close(Fd).

clock_set_back(Config) ->
    Path = path(clock_set_back, Config),
    File1 = write("1", ?NOW, open(Path, #{check_ms => 100, rotate => #{max_bytes => 2}})),
    ok = file:rename(Path, <<Path/binary, ".1">>),
    %% The look that is due at another time is due now.
    File2 = write("2", ?NOW - ?HOUR, File1),
    ?assertEqual(<<"2">>, contents(Path)),
    File3 = write("34", ?NOW + ?HOUR, File2),
    File4 = write("56", ?NOW - ?HOUR, File3),
    ?assertEqual({[<<"2">>, <<"34">>], <<"56">>}, {rotated(Path), contents(Path)}),
    ok = weir_log_file:close(File4).

%% ---------------------------------------------------------------- what an earlier writer left

torn_tail_is_cut(Config) ->
    Path = path(torn_tail_is_cut, Config),
    Whole = framed(["one", "two"]),
    [
        begin
            ok = file:write_file(Path, [Whole, Tail]),
            File = write(framed(["three"]), open(Path, #{format => frame})),
            ?assertEqual([<<"one">>, <<"two">>, <<"three">>], entries(Path)),
            ?assertMatch(#{cut_bytes := Cut, set_aside := 0} when Cut =:= byte_size(Tail), weir_log_file:info(File)),
            ok = weir_log_file:close(File)
        end
     || Tail <- [<<>>, <<16#59>>, binary:part(framed(["four"]), 0, 11), <<0:800>>]
    ].

%% An entry is never glued to half a line, whoever has left that and whenever the file is opened.
torn_line_is_ended(Config) ->
    Path = path(torn_line_is_ended, Config),
    ok = file:write_file(Path, "one\ntw"),
    File1 = open(Path, #{format => newline}),
    ?assertEqual(<<"one\ntw\n">>, contents(Path)),
    ?assertMatch(#{ended_lines := 1, size := 7, written_bytes := 0}, weir_log_file:info(File1)),
    ok = weir_log_file:close(write("three\n", File1)),
    %% A whole line is left alone, and so is an empty file.
    File2 = open(Path, #{format => newline}),
    ?assertEqual({0, <<"one\ntw\nthree\n">>}, {count(ended_lines, File2), contents(Path)}),
    %% Others move the file, and truncate it within a line.
    ok = file:rename(Path, <<Path/binary, ".1">>),
    ok = file:write_file(Path, "fo"),
    File3 = write("five\n", File2),
    ?assertEqual({1, <<"fo\nfive\n">>}, {count(ended_lines, File3), contents(Path)}),
    ok = file:write_file(Path, "s"),
    File4 = write("six\n", File3),
    ?assertEqual({2, <<"s\nsix\n">>}, {count(ended_lines, File4), contents(Path)}),
    ok = weir_log_file:close(File4),
    %% Without lines nothing is ended.
    ok = file:write_file(Path, "raw"),
    ok = weir_log_file:close(write("bytes", open(Path))),
    ?assertEqual(<<"rawbytes">>, contents(Path)).

%% The log is there, as it is on any full disk, and the line is ended before anything else is written.
torn_line_on_full_disk(Config) ->
    Path = path(torn_line_on_full_disk, Config),
    Dir = filename:dirname(Path),
    weir_log_file_lib:on_small_disk(Dir, "64k", fun() ->
        Torn = binary:copy(<<"x">>, 4096),
        ok = file:write_file(Path, Torn),
        Full = filename:join(Dir, "full"),
        {error, enospc} = file:write_file(Full, binary:copy(<<"x">>, 65536)),
        File1 = open(Path, #{format => newline}),
        ?assertMatch(#{state := degraded, ended_lines := 0}, weir_log_file:info(File1)),
        {enospc, File2} = refused("one\n", File1),
        ok = file:delete(Full),
        File3 = write("two\n", ?NOW + 1000, File2),
        ?assertEqual(<<Torn/binary, "\ntwo\n">>, contents(Path)),
        ?assertMatch(#{state := ok, ended_lines := 1}, weir_log_file:info(File3)),
        ok = weir_log_file:close(File3)
    end).

%% What is behind the damage may be worth much, so nothing is cut.
damage_is_set_aside(Config) ->
    Path = path(damage_is_set_aside, Config),
    <<Byte, Rest/binary>> = framed(["two"]),
    Damaged = <<(framed(["one"]))/binary, (Byte bxor 4), Rest/binary, (framed(["three"]))/binary>>,
    ok = file:write_file(Path, Damaged),
    ok = logger:add_handler(?MODULE, weir_log_h_test_tap, #{config => #{to => self()}}),
    File =
        try
            write(framed(["four"]), open(Path, #{format => frame}))
        after
            receive
                {tap, #{label := {weir_log, set_aside}} = Report} ->
                    Valid = byte_size(framed(["one"])),
                    Behind = byte_size(Damaged) - Valid,
                    ?assertMatch(#{path := Path, valid_bytes := Valid, behind_bytes := Behind}, Report),
                    ?assertEqual([maps:get(name, Report)], weir_log_file_lib:rotated(Path))
            after weir_kit:wait_ms() -> ct:fail(not_logged)
            end,
            ok = logger:remove_handler(?MODULE)
        end,
    ?assertEqual([Damaged], rotated(Path)),
    ?assertEqual([<<"four">>], entries(Path)),
    ?assertMatch(#{set_aside := 1, cut_bytes := 0}, weir_log_file:info(File)),
    ok = weir_log_file:close(File).

%% A header that is overwritten may look like the beginning of an entry that is longer than the file.
good_entries_are_not_cut(Config) ->
    _ = rand:seed(exsss, 16),
    Path = path(good_entries_are_not_cut, Config),
    Wrong = [N || N <- lists:seq(1, files()), not is_kept(damaged(), Path)],
    weir_kit:none(cut, Wrong).

files() -> weir_kit:long(500, 2000).

damaged() ->
    Frames = [framed([rand:bytes(64 + rand:uniform(936))]) || _ <- lists:seq(1, 100)],
    {Before, [Frame | After]} = lists:split(rand:uniform(100) - 1, Frames),
    Kept = binary:part(Frame, 64, byte_size(Frame) - 64),
    {Before, iolist_to_binary([Before, rand:bytes(64), Kept, After]), After =/= []}.

%% It is whole in some file, or only the entry that was overwritten is gone, as the last one.
is_kept({Before, Binary, MustStay}, Path) ->
    ok = file:write_file(Path, Binary),
    File = open(Path, #{format => frame}),
    SetAside = count(set_aside, File),
    ok = weir_log_file:close(File),
    Rotated = weir_log_file_lib:rotated(Path),
    Kept = [{ok, Binary}] =:= [file:read_file(Name) || Name <- Rotated],
    Cut = {ok, iolist_to_binary(Before)} =:= file:read_file(Path),
    lists:foreach(fun(Name) -> ok = file:delete(Name) end, [Path | Rotated]),
    (Kept andalso SetAside =:= 1) orelse (Cut andalso not MustStay).

%% Somebody has forgotten that the file has lines: none of them are lost.
text_is_not_cut(Config) ->
    _ = rand:seed(exsss, 16),
    Path = path(text_is_not_cut, Config),
    Text = fun() -> << <<(lists:nth(rand:uniform(8), "etaoin \n"))>> || _ <- lists:seq(1, rand:uniform(200)) >> end,
    weir_kit:none(cut, [N || N <- lists:seq(1, files()), not is_kept({[], Text(), true}, Path)]).

reopened_by_hand(Config) ->
    Path = path(reopened_by_hand, Config),
    File1 = write("1", open(Path, #{check_ms => 1000000})),
    ok = file:rename(Path, <<Path/binary, ".1">>),
    {ok, File2} = weir_log_file:reopen(File1),
    File3 = write("2", File2),
    ?assertEqual({<<"1">>, <<"2">>}, {contents(<<Path/binary, ".1">>), contents(Path)}),
    %% If it cannot be opened, it is tried with each write.
    ok = file:rename(Path, <<Path/binary, ".2">>),
    ok = file:make_dir(Path),
    {error, eisdir, File4} = weir_log_file:reopen(File3),
    ok = file:del_dir(Path),
    ok = weir_log_file:close(write("3", File4)),
    ?assertEqual(<<"3">>, contents(Path)).
