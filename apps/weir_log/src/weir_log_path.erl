%% @doc Paths and directories: what the other modules of the file need of the file system besides the file itself.
%%
%% Paths are absolute binaries from {@link absolute/1} on: the log goes on in its place when somebody changes the
%% node's working directory, and names that are no valid text in the node's encoding stay as they are.
%%
%% A file that was created or renamed is durable under its name only when its directory was synced ({@link sync_dir/1}).
-module(weir_log_path).

-export([absolute/1, ensure_dir/1, set_aside/3, list/1, rotated/1, sync_dir/1]).

-export_type([path/0]).

-type path() :: binary().
%% Absolute, in the encoding of the file system.

%% The file systems of Linux, BSD and macOS allow so many bytes for one name.
-define(MAX_NAME_BYTES, 255).

%% @doc The path as an absolute binary. `enametoolong': a rotated file's name would be longer than 255 bytes.
%% Cost: one call of the file server for a relative path.
-spec absolute(file:name_all()) -> {ok, path()} | {error, badarg | enametoolong}.
absolute(Name) ->
    try unicode:characters_to_binary(filename:absname(filename:flatten(Name)), unicode, file:native_name_encoding()) of
        Path when is_binary(Path) -> fits(Path);
        _ -> {error, badarg}
    catch
        error:_ -> {error, badarg}
    end.

fits(Path) ->
    case byte_size(filename:basename(Path)) + weir_log_rotation:max_suffix() =< ?MAX_NAME_BYTES of
        true -> {ok, Path};
        false -> {error, enametoolong}
    end.

%% @doc Creates the directories of a path that are missing.
-spec ensure_dir(path()) -> ok | {error, file:posix() | badarg | terminated | system_limit}.
ensure_dir(Path) -> filelib:ensure_dir(Path).

%% @doc Gives a file the name of one that is rotated now, after the one with the stamp `Last'. Nothing is overwritten:
%% the next number is taken when there is anything of that name, compressed or not. (Between the look and the rename
%% nobody must create one; nobody else uses such names.) If it fails, the file has its old name.
%% Cost: four system calls, and one call of the file server for the rename.
-spec set_aside(path(), NowMs :: integer(), Last :: weir_log_rotation:stamp() | none) ->
    {ok, path(), weir_log_rotation:stamp()} | {error, file:posix() | badarg}.
set_aside(Path, NowMs, Last) ->
    Stamp = weir_log_rotation:next(NowMs, Last),
    Name = weir_log_rotation:name(Path, Stamp),
    case are_free([Name, <<Name/binary, ".gz">>, <<Name/binary, ".gz.part">>]) of
        true ->
            case file:rename(Path, Name) of
                ok -> {ok, Name, Stamp};
                {error, _} = Error -> Error
            end;
        false ->
            set_aside(Path, NowMs, Stamp);
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
%% Cost: one call of the file server, which reads the directory.
-spec rotated(path()) -> {ok, [path()]} | {error, file:posix() | badarg}.
rotated(Path) ->
    case list(Path) of
        {ok, Names} -> {ok, [full(Path, Name) || Name <- weir_log_rotation:in_order(filename:basename(Path), Names)]};
        {error, _} = Error -> Error
    end.

%% @doc The names in the directory of a path.
-spec list(path()) -> {ok, [binary()]} | {error, file:posix() | badarg}.
list(Path) ->
    case file:list_dir_all(filename:dirname(Path)) of
        {ok, Names} -> {ok, [Name || Given <- Names, Name <- [as_binary(Given)], is_binary(Name)]};
        {error, _} = Error -> Error
    end.

%% Names that are valid in the node's encoding come as strings, the others as they are.
as_binary(Name) -> unicode:characters_to_binary(Name, unicode, file:native_name_encoding()).

full(Path, Name) -> filename:join(filename:dirname(Path), Name).

%% @doc Makes durable that files of the directory of this path were created, renamed or removed. What cannot be synced,
%% because its file system does not know of it or because it may not be read, counts as durable: nothing can be done.
%% Cost: three system calls, one of which waits for the disk.
-spec sync_dir(path()) -> ok | {error, file:posix()}.
sync_dir(Path) ->
    case file:open(filename:dirname(Path), [read, raw, directory]) of
        {ok, Fd} ->
            Result = file:sync(Fd),
            _ = file:close(Fd),
            synced(Result);
        {error, _} ->
            ok
    end.

synced({error, Reason}) when Reason =:= eio; Reason =:= enospc; Reason =:= edquot -> {error, Reason};
synced(_) -> ok.
