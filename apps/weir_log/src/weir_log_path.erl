%% @doc Paths and directories: what the other modules of the file need of the file system besides the file itself.
%%
%% Paths are absolute binaries from {@link absolute/1} on: the log goes on in its place when somebody changes the
%% node's working directory, and names that are no valid text in the node's encoding stay as they are.
%%
%% The node's file server logs messages that it does not know, and so may wait for a log; a writer that waited for it
%% would wait for itself. So nothing on a writer's path calls it: what has the option `raw' is called with it, and what
%% has not (the working directory, renaming, making and listing directories) is called in `prim_file', by this module
%% alone. These are the functions that the file server itself calls; they run in the caller, on a dirty scheduler.
%%
%% A file that was created or renamed is durable under its name only when its directory was synced ({@link sync_dir/1}).
%% @private
-module(weir_log_path).

-export([absolute/1, absname/1, identity/1, ensure_dir/1, rename/2, set_aside/4, list/1, rotated/2, sync_dir/1]).

-export_type([path/0, identity/0]).

-include_lib("kernel/include/file.hrl").

-type path() :: binary().
%% Absolute, in the encoding of the file system.

-type identity() :: {Device :: non_neg_integer(), Inode :: non_neg_integer(), Base :: binary()} | file:filename_all().
%% Of a directory, and a name in it. A name alone: there is no such directory, and it cannot be made, or the system
%% has no inodes.

%% As many links in a row does Linux follow.
-define(MAX_LINKS, 40).

%% The file systems of Linux, BSD and macOS allow so many bytes for one name.
-define(MAX_NAME_BYTES, 255).

%% @doc The path as an absolute binary. `enametoolong': a rotated file's name would be longer than 255 bytes.
%% Cost: one system call.
-spec absolute(file:name_all()) -> {ok, path()} | {error, badarg | enametoolong}.
absolute(Name) ->
    try unicode:characters_to_binary(absname(filename:flatten(Name)), unicode, native()) of
        Path when is_binary(Path) -> fits(Path);
        _ -> {error, badarg}
    catch
        error:_ -> {error, badarg}
    end.

%% @doc The name as an absolute one, a string or a binary as it was. Raises if there is no working directory any more.
-spec absname(file:filename_all()) -> file:filename_all().
absname(Name) ->
    case filename:pathtype(Name) of
        absolute ->
            filename:absname(Name, "/");
        _ ->
            {ok, Cwd} = prim_file:get_cwd(),
            filename:absname(Name, Cwd)
    end.

%% @doc Which file a path leads to, whether it is there or not, and whatever it is called. The directory is made if it
%% is not there. Hard links are files of their own: a rotation parts them.
%% Cost: three system calls, and one for each symbolic link.
-spec identity(file:filename_all()) -> identity().
identity(Name) ->
    case absolute(Name) of
        {ok, Path} ->
            File = target(Path, ?MAX_LINKS),
            _ = ensure_dir(File),
            case file:read_file_info(filename:dirname(File), [raw]) of
                {ok, #file_info{major_device = Device, inode = Inode}} when Inode > 0 ->
                    {Device, Inode, filename:basename(File)};
                %% Windows has no inodes.
                _ ->
                    File
            end;
        {error, _} ->
            Name
    end.

target(Path, Links) ->
    case prim_file:read_link_all(Path) of
        {ok, Link} when Links > 0 ->
            target(filename:join(filename:dirname(Path), as_binary(Link)), Links - 1);
        _ ->
            Path
    end.

native() -> file:native_name_encoding().

fits(Path) ->
    case byte_size(filename:basename(Path)) + weir_log_rotation:max_suffix() =< ?MAX_NAME_BYTES of
        true -> {ok, Path};
        false -> {error, enametoolong}
    end.

%% @doc Creates the directories of a path that are missing.
-spec ensure_dir(path()) -> ok | {error, file:posix() | badarg}.
ensure_dir(Path) ->
    Dir = filename:dirname(Path),
    case file:read_file_info(Dir, [raw]) of
        {ok, #file_info{type = directory}} -> ok;
        {ok, _} -> {error, eexist};
        {error, enoent} when Dir =/= Path -> make_dir(Dir, ensure_dir(Dir));
        {error, _} = Error -> Error
    end.

make_dir(Dir, ok) ->
    case prim_file:make_dir(Dir) of
        %% Somebody else was faster.
        {error, eexist} -> ok;
        Result -> Result
    end;
make_dir(_Dir, {error, _} = Error) ->
    Error.

%% @doc Renames a file. What has the new name is replaced.
-spec rename(path(), path()) -> ok | {error, file:posix() | badarg}.
rename(From, To) -> prim_file:rename(From, To).

%% @doc Gives a file the name of one that is rotated now, after the one with the stamp `Last'. Nothing is overwritten:
%% the next number is taken when there is anything of that name, compressed or not. (Between the look and the rename
%% nobody must create one; nobody else uses such names.) If it fails, the file has its old name.
%% Cost: four system calls.
-spec set_aside(path(), weir_log_rotation:dates(), NowMs :: integer(), Last :: weir_log_rotation:stamp() | none) ->
    {ok, path(), weir_log_rotation:stamp()} | {error, file:posix() | badarg}.
set_aside(Path, Dates, NowMs, Last) ->
    Stamp = weir_log_rotation:next(NowMs, Dates, Last),
    Name = weir_log_rotation:name(Path, Dates, Stamp),
    case are_free([Name, <<Name/binary, ".gz">>, <<Name/binary, ".gz.part">>]) of
        true ->
            case rename(Path, Name) of
                ok -> {ok, Name, Stamp};
                {error, _} = Error -> Error
            end;
        false ->
            set_aside(Path, Dates, NowMs, Stamp);
        {error, _} = Error ->
            Error
    end.

are_free([Name | Names]) ->
    %% A symbolic link is something too, even if it points nowhere.
    case file:read_link_info(Name, [raw]) of
        {error, enoent} -> are_free(Names);
        {ok, _} -> false;
        {error, _} = Error -> Error
    end;
are_free([]) ->
    true.

%% @doc The rotated files of a log, the oldest first, compressed or not. One that is compressed at this moment may be
%% listed in both forms or be gone when it is opened: list again then.
%% Cost: reading the directory.
-spec rotated(path(), weir_log_rotation:dates()) -> {ok, [path()]} | {error, file:posix() | badarg}.
rotated(Path, Dates) ->
    case list(Path) of
        {ok, Names} ->
            {ok, [full(Path, Name) || Name <- weir_log_rotation:in_order(filename:basename(Path), Dates, Names)]};
        {error, _} = Error ->
            Error
    end.

%% @doc The names in the directory of a path.
-spec list(path()) -> {ok, [binary()]} | {error, file:posix() | badarg}.
list(Path) ->
    case prim_file:list_dir_all(filename:dirname(Path)) of
        {ok, Names} -> {ok, [Name || Given <- Names, Name <- [as_binary(Given)], is_binary(Name)]};
        {error, _} = Error -> Error
    end.

%% Names that are valid in the node's encoding come as strings, the others as they are.
as_binary(Name) -> unicode:characters_to_binary(Name, unicode, native()).

full(Path, Name) -> filename:join(filename:dirname(Path), Name).

%% @doc Makes durable that files of the directory of this path were created, renamed or removed. What cannot be synced,
%% because its file system does not know of it or because it may not be read, counts as durable: nothing can be done.
%% Cost: three system calls, one of which waits for the disk.
-spec sync_dir(path()) -> ok | {error, file:posix()}.
sync_dir(Path) ->
    case file:open(filename:dirname(Path), [read, raw, binary, directory]) of
        {ok, Fd} ->
            Result = file:sync(Fd),
            _ = file:close(Fd),
            synced(Result);
        {error, _} ->
            ok
    end.

synced({error, Reason}) when Reason =:= eio; Reason =:= enospc; Reason =:= edquot -> {error, Reason};
synced(_) -> ok.
