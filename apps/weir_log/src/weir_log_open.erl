%% @doc Opens the file of a log for appending, in whatever state an earlier writer has left it.
%%
%% Missing directories and a missing file are created; so a rotation that was broken off between its rename and its open
%% is finished. A file that is there is appended to. If it is framed, it is read first: a torn tail is cut off, and a
%% damaged file, or one with no whole entry, is set aside under the name of a rotated one, whole, which is logged, and a
%% new one is begun (weir_log_frame says what is which). A file of lines whose last one is incomplete gets a newline, so
%% that the next entry is a line of its own. Of another file nothing is known, and nothing is done to it.
%%
%% A file that is empty is given the owner and the mode, if there are any.
%%
%% What is no regular file, or is standard output, is a stream: it is written to, and nothing else. Its size counts as
%% 0, as if all that is written were gone at once.
%% @private
-module(weir_log_open).

-export([open/5, identity/1]).
-export([format/1]).

-export_type([identity/0, format/0, mode/0, owner/0, reason/0]).

-include_lib("kernel/include/file.hrl").
-include_lib("kernel/include/logger.hrl").
-include("weir_log_open.hrl").

-type identity() :: {Device :: non_neg_integer(), Inode :: non_neg_integer()}.
%% Which file it is, whatever its name. (The same for all files on Windows, where a file that is open cannot be
%% renamed.)

-type format() :: raw | newline | lines | frame.
%% `newline': entries are lines, and the log ends them. `lines': they end with a newline already.

-type mode() :: 0..8#7777 | default.

-type owner() :: {Uid :: non_neg_integer(), Gid :: non_neg_integer()} | default.

-type reason() :: file:posix() | badarg | system_limit | terminated.

%% @doc Opens a file. `Last' is the stamp of the newest rotated one. Cost: some system calls, and for a framed file the
%% reading of all of it (weir_log_frame:check/1).
-spec open(weir_log_path:path(), format(), {owner(), mode()}, weir_log_rotation:dates(), Last) ->
    {ok, #opened{}} | {error, reason()}
when
    Last :: weir_log_rotation:stamp() | none.
open(Path, Format, Attributes, Dates, Last) ->
    case weir_log_path:ensure_dir(Path) of
        ok ->
            Result =
                case is_stream(Path) of
                    false when Format =:= frame -> open_framed(Path, Dates, Last);
                    false when Format =:= newline; Format =:= lines -> open_lines(Path, Last);
                    _ -> open_file(Path, none, Last)
                end,
            given(Attributes, Path, Result);
        {error, _} = Error ->
            Error
    end.

%% Before anything is in it. The owner first, since another owner may take bits of the mode away.
given({Owner, Mode}, Path, {ok, #opened{fd = Fd, size = 0, stream = false}} = Opened) ->
    case change([Owner, Mode], Path) of
        ok ->
            Opened;
        {error, _} = Error ->
            _ = file:close(Fd),
            Error
    end;
given(_Attributes, _Path, Result) ->
    Result.

change([default | Attributes], Path) -> change(Attributes, Path);
change([{Uid, Gid} | Attributes], Path) -> changed(#file_info{uid = Uid, gid = Gid}, Attributes, Path);
change([Mode | Attributes], Path) -> changed(#file_info{mode = Mode}, Attributes, Path);
change([], _Path) -> ok.

changed(Info, Attributes, Path) ->
    case file:write_file_info(Path, Info, [raw]) of
        ok -> change(Attributes, Path);
        {error, _} = Error -> Error
    end.

%% What is not there will be a file.
is_stream(?STANDARD_OUTPUT) ->
    true;
is_stream(Path) ->
    case file:read_file_info(Path, [raw]) of
        {ok, #file_info{type = Type}} -> Type =/= regular;
        {error, _} -> false
    end.

%% Without room for the newline the file is as good as one that cannot be opened. One that may not be read gets a
%% newline on suspicion: an empty line is better than two entries in one.
open_lines(Path, Last) ->
    case open_file(Path, none, Last) of
        {ok, #opened{fd = Fd, size = Size} = Opened} when Size > 0 ->
            case ends_line(Path, Size) orelse file:write(Fd, "\n") of
                true ->
                    {ok, Opened};
                ok ->
                    {ok, Opened#opened{size = Size + 1, ended_lines = 1}};
                {error, _} = Error ->
                    _ = file:close(Fd),
                    Error
            end;
        Result ->
            Result
    end.

%% The descriptor that is written to cannot read.
ends_line(Path, Size) ->
    case file:open(Path, [read, raw, binary]) of
        {ok, Fd} ->
            Last = file:pread(Fd, Size - 1, 1),
            _ = file:close(Fd),
            Last =:= {ok, <<"\n">>};
        {error, _} ->
            false
    end.

open_framed(Path, Dates, Last) ->
    case weir_log_frame:check(Path) of
        {ok, #{tail := clean}} ->
            open_file(Path, none, Last);
        %% Without one whole entry it may never have been a log.
        {ok, #{tail := torn, valid_bytes := Valid}} when Valid > 0 ->
            open_file(Path, Valid, Last);
        {ok, Summary} ->
            case written_at(Path) of
                {ok, WrittenMs} -> set_aside(Path, Dates, WrittenMs, Summary, Last);
                {error, _} = Error -> Error
            end;
        {error, enoent} ->
            open_file(Path, none, Last);
        {error, data_error} ->
            {error, eio};
        {error, _} = Error ->
            Error
    end.

set_aside(Path, Dates, WrittenMs, Summary, Last) ->
    case weir_log_path:set_aside(Path, Dates, WrittenMs, Last) of
        {ok, Name, Stamp} ->
            ok = report(Path, Name, Summary),
            case open_file(Path, none, Stamp) of
                {ok, Opened} -> {ok, Opened#opened{set_aside = 1}};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% By a process of its own: a handler may send this to the log that is just being opened. Without room for the process
%% there is no report. The information of the log counts the file.
report(Path, Name, #{valid_bytes := Valid, cut_bytes := Behind}) ->
    Bytes = #{valid_bytes => Valid, behind_bytes => Behind},
    Report = Bytes#{label => {weir_log, set_aside}, path => Path, name => Name},
    _ = try
        spawn(fun() -> ?LOG_WARNING(Report, #{report_cb => fun ?MODULE:format/1}) end)
    catch
        error:system_limit -> none
    end,
    ok.

%% @private
-spec format(map()) -> {io:format(), [term()]}.
format(#{path := Path, name := Name, valid_bytes := Valid, behind_bytes := Behind}) ->
    {"weir_log: ~ts has ~b bytes of entries and then ~b bytes that are none, and is set aside whole, as ~ts", [
        Path, Valid, Behind, Name
    ]}.

open_file(Path, Valid, Last) ->
    case file:open(Path, [append, raw, binary]) of
        {ok, Fd} ->
            case opened(Fd, Path, Valid, Last) of
                {ok, _} = Opened ->
                    Opened;
                {error, _} = Error ->
                    _ = file:close(Fd),
                    Error
            end;
        {error, _} = Error ->
            Error
    end.

opened(Fd, Path, Valid, Last) ->
    case file:read_file_info(Fd, [raw, {time, posix}]) of
        {ok, #file_info{type = Type} = Info} when Type =/= regular; Path =:= ?STANDARD_OUTPUT ->
            Opened = opened(Fd, Info, 0, 0, Last),
            {ok, Opened#opened{stream = true}};
        {ok, #file_info{size = Size} = Info} when Valid =:= none; Valid >= Size ->
            {ok, opened(Fd, Info, Size, 0, Last)};
        {ok, #file_info{size = Size} = Info} ->
            case weir_log_tail:cut_off(Fd, Valid) of
                {ok, Valid} -> {ok, opened(Fd, Info, Valid, Size - Valid, Last)};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

opened(Fd, #file_info{mtime = Written} = Info, Size, CutBytes, Last) ->
    #opened{
        fd = Fd,
        identity = identity(Info),
        size = Size,
        stream = false,
        written_ms = Written * 1000,
        cut_bytes = CutBytes,
        last = Last
    }.

written_at(Path) ->
    case file:read_file_info(Path, [raw, {time, posix}]) of
        {ok, #file_info{mtime = Written}} -> {ok, Written * 1000};
        {error, _} = Error -> Error
    end.

%% @doc Which file this is about.
-spec identity(#file_info{}) -> identity().
identity(#file_info{major_device = Device, inode = Inode}) -> {Device, Inode}.
