%% What the suites of the file share: directories, disks that are full or broken, and waiting for a condition.
-module(weir_log_file_lib).

-export([dir/2, start_tidy/0, stop_tidy/1, await/1, tidied/1]).
-export([mount/2, unmount/1, forbid/1, allow/1, append_only/1]).
-export([contents/1, rotated/1]).

-include_lib("stdlib/include/assert.hrl").

-define(DEADLINE_MS, 30000).

dir(Case, Config) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Case)),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Dir.

%% The process and the table that the application's supervisor has otherwise.
start_tidy() ->
    ok = weir_log_test_lib:stop_all(),
    Test = self(),
    {Keeper, _} = spawn_monitor(fun() ->
        ok = weir_log_tidy:new_table(),
        Test ! {self(), ready},
        receive
            stop -> ok
        end
    end),
    receive
        {Keeper, ready} -> ok;
        {'DOWN', _, process, Keeper, Reason} -> error(Reason)
    end,
    {ok, Tidy} = weir_log_tidy:start_link(),
    unlink(Tidy),
    Keeper.

stop_tidy(Keeper) ->
    case whereis(weir_log_tidy) of
        undefined -> ok;
        Tidy -> stopped(Tidy, kill)
    end,
    Ref = monitor(process, Keeper),
    Keeper ! stop,
    receive
        {'DOWN', Ref, process, Keeper, _} -> ok
    end.

stopped(Pid, Reason) ->
    Ref = monitor(process, Pid),
    exit(Pid, Reason),
    receive
        {'DOWN', Ref, process, Pid, _} -> ok
    end.

await(Condition) -> await(Condition, erlang:monotonic_time(millisecond) + ?DEADLINE_MS).

await(Condition, Deadline) ->
    case Condition() of
        true ->
            ok;
        false ->
            ?assert(erlang:monotonic_time(millisecond) < Deadline),
            receive
            after 5 -> await(Condition, Deadline)
            end
    end.

tidied(Path) ->
    {ok, Absolute} = weir_log_path:absolute(Path),
    await(fun() -> weir_log_tidy:is_done(Absolute) end).

%% A small disk. Only root may do that, and not everywhere.
mount(Dir, Size) ->
    case run(["mount -t tmpfs -o size=", Size, " none ", Dir]) of
        0 -> ok;
        _ -> {skip, "mounting a file system needs root"}
    end.

unmount(Dir) -> 0 = run(["umount -l ", Dir]).

%% Root may do all that the mode forbids, but not what an attribute of the file forbids.
forbid(Path) ->
    case run(["chattr +i ", Path]) of
        0 -> ok;
        _ -> {skip, "an immutable directory needs root and a file system that knows of it"}
    end.

append_only(Path) ->
    case run(["chattr +a ", Path]) of
        0 -> ok;
        _ -> {skip, "a file that can only be appended to needs root and a file system that knows of it"}
    end.

allow(Path) -> 0 = run(["chattr -i -a ", Path]).

run(Command) ->
    Output = os:cmd(unicode:characters_to_list([Command, " 2>&1 >/dev/null; echo $?"])),
    list_to_integer(lists:last(string:lexemes(Output, "\n"))).

contents(Path) ->
    {ok, Binary} = file:read_file(Path),
    case filename:extension(iolist_to_binary(Path)) of
        <<".gz">> -> zlib:gunzip(Binary);
        _ -> Binary
    end.

rotated(Path) ->
    {ok, Absolute} = weir_log_path:absolute(Path),
    {ok, Files} = weir_log_path:rotated(Absolute),
    Files.
