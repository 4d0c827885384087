%% Functions that the suites of files share: directories, disks that are full or broken, and the content of files.
-module(weir_log_file_lib).

-export([dir/2, path/2, start_retention/0, stop_retention/1, cleaned/1]).
-export([on_small_disk/3, while_forbidden/2, allow/1, append_only/1]).
-export([contents/1, rotated/1, basic/0, open_files/1, framed/1, read/1, entries/1]).

dir(Case, Config) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Case)),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Dir.

path(Case, Config) -> iolist_to_binary(filename:join(dir(Case, Config), "a.log")).

%% The process and the table that the application's supervisor has otherwise.
start_retention() ->
    ok = weir_log_test_lib:stop_all(),
    Test = self(),
    {Manager, _} = spawn_monitor(fun() ->
        ok = weir_log_retention:new_table(),
        Test ! {self(), ready},
        receive
            stop -> ok
        end
    end),
    receive
        {Manager, ready} -> ok;
        {'DOWN', _, process, Manager, Reason} -> error(Reason)
    end,
    {ok, Cleaner} = weir_log_retention:start_link(),
    unlink(Cleaner),
    Manager.

stop_retention(Manager) ->
    case whereis(weir_log_retention) of
        undefined -> ok;
        Cleaner -> ok = weir_kit:kill(Cleaner)
    end,
    Manager ! stop,
    weir_kit:await_down(Manager).

cleaned(Path) ->
    {ok, Absolute} = weir_log_path:absolute(Path),
    weir_kit:until(fun() -> weir_log_retention:is_done(Absolute) end).

%% Calls the function with a small disk at Dir. Only root may make one, and not everywhere.
on_small_disk(Dir, Size, Fun) ->
    case mount(Dir, Size) of
        ok ->
            try
                Fun()
            after
                unmount(Dir)
            end;
        Skip ->
            Skip
    end.

mount(Dir, Size) ->
    case run(["mount -t tmpfs -o size=", Size, " none ", Dir]) of
        0 -> ok;
        _ -> {skip, "mounting a file system needs root"}
    end.

unmount(Dir) -> 0 = run(["umount -l ", Dir]).

%% Calls the function while nothing may be changed at Path, or until the function itself allows it again. Root may do
%% all that the mode forbids, but not what an attribute of the file forbids.
while_forbidden(Path, Fun) ->
    case forbid(Path) of
        ok ->
            try
                Fun()
            after
                allow(Path)
            end;
        Skip ->
            Skip
    end.

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
    {ok, Files} = weir_log_path:rotated(Absolute, basic()),
    Files.

%% How the names of rotated files show their time by default.
basic() ->
    {ok, Dates} = weir_log_rotation:dates(default),
    Dates.

%% The descriptors of this operating system process that are open on a file.
open_files(Path) ->
    Dir = "/proc/" ++ os:getpid() ++ "/fd",
    {ok, Fds} = file:list_dir(Dir),
    length([Fd || Fd <- Fds, points_to(filename:join(Dir, Fd)) =:= iolist_to_binary(Path)]).

points_to(Name) ->
    case file:read_link(Name) of
        {ok, Target} -> unicode:characters_to_binary(Target);
        {error, _} -> none
    end.

framed(Entries) -> iolist_to_binary([weir_log_frame:entry(Entry) || Entry <- Entries]).

%% The entries of a file, and what else is said of it.
read(Path) ->
    {ok, Entries, Summary} = weir_log_frame:fold(fun(Entry, Acc) -> [binary:copy(Entry) | Acc] end, [], Path),
    {lists:reverse(Entries), Summary}.

%% Of a file with nothing else in it.
entries(Path) ->
    {Entries, #{tail := clean}} = read(Path),
    Entries.
