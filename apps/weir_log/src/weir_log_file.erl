%% @doc The file of one log, or of one shard, as a value. There is no process in here; only the process that opened the
%% file may use it. No function raises because of anything that the file system does.
%%
%% ```
%%                    write fails, path lost
%%          +------> ok ------------------------------> degraded <--+
%%          |         |   <----------------------------    |        | a look fails, each `retry_ms'
%%          |         |      a look succeeds, or reopen    +--------+
%%          |         |                                    |
%%          | reopen  | fdatasync fails                    | fdatasync fails
%%          |         v                                    |
%%          +------ failed <-------------------------------+
%% '''
%%
%% <b>ok.</b> Each write goes to the file. At most every `check_ms' a write first looks whether the path still leads to
%% the file: if it was moved or removed, the file is synced and closed, and a new one, with its directories, is made in
%% its place. What was written since the last look is then in the file that was moved, or gone with the one that was
%% removed. If the file has become shorter, because somebody truncated it, writing goes on at its end.
%%
%% <b>degraded.</b> A write that fails is cut off again: an error means that nothing of it is in the file. If the
%% cutting fails too, or its result is not known, a part of it is in the file as the last thing; it is cut off before
%% anything else is written, and by the next {@link open/1} if the file is framed. (If somebody else has truncated or
%% written to the file meanwhile, nobody knows which part is the batch's. A framed file is then read anew, one of lines
%% keeps the part as a line of its own, and another one may keep it; `torn' of {@link info/1} counts these.) Until
%% `retry_ms' are over, writes get the same error at once, without a system call. The next write then looks at the path
%% like above and tries.
%%
%% <b>failed.</b> After an fdatasync that failed, nobody knows what is on the disk. Linux reports the error once and
%% takes the pages for clean, so a second call would answer `ok' without having written them. So there is none: every
%% write and sync is refused until somebody has decided what that means for the log, and reopens it. It counts as the
%% same if a directory cannot be synced.
%%
%% <b>Durable.</b> {@link sync/1} answers `ok' when all that was written before is on the disk, in whatever files, under
%% their names: a file with something that was not synced is synced before it is left for another one (at a rotation,
%% when it was moved, at {@link close/1}), and the first sync of a new file syncs the directory too. A machine that
%% crashes between a rotation and the next sync has the rotated file under one of its two names.
%%
%% <b>Rotation</b> comes before the batch that would make the file longer than `max_bytes', or that is the first one of
%% a new hour or day; so entries are never split over two files, and a batch that is longer than `max_bytes' has a file
%% of its own. It is a sync, a rename and the opening of a new file; weir_log_retention does the rest. If the new file
%% cannot be opened, the old one gets its name back. A rotation that fails is counted and tried again after `retry_ms',
%% and the file gets longer than it should meanwhile; no entry is refused for it. Killed between the rename and the
%% opening, a node leaves a rotated file and no current one, which the next {@link open/1} makes.
%%
%% Times are system time in milliseconds. If the clock is set back, looks and retries that seem to lie in the future are
%% made at once. Of a path that is a symbolic link the link is rotated.
%%
%% <b>Streams.</b> Standard output, devices and pipes are written to, and nothing else: they are not rotated, not
%% truncated, and not looked at unless a write has failed. One that cannot be synced needs none: {@link sync/1} answers
%% `ok'.
%% @private
-module(weir_log_file).

-export([open/1, write/4, sync/1, rotate/2, reopen/1, close/1, info/1]).

-export_type([file/0, opts/0, rotate_opts/0, reason/0, info/0]).

-include_lib("kernel/include/file.hrl").
-include("weir_log_open.hrl").

-type rotate_opts() :: #{
    %% A file is rotated before it gets longer than this. Default: infinity.
    max_bytes => pos_integer() | infinity,
    %% It is also rotated when another hour or day of the local calendar has begun. Default: none.
    interval => weir_log_period:interval(),
    %% How many rotated files are kept. Default: infinity.
    keep_files => non_neg_integer() | infinity,
    %% How many bytes they have at most, as they are on the disk. Default: infinity.
    keep_bytes => pos_integer() | infinity,
    %% How many days they are kept. Default: infinity.
    keep_days => pos_integer() | infinity,
    %% Whether they are compressed. Default: false.
    gzip => boolean(),
    %% What is called with the name of each, when it has been compressed if it is to be. Default: none.
    hook => weir_log_retention:hook() | none,
    %% How their names show the time: weir_log_rotation:dates/1.
    date_format => default | unicode:chardata()
}.

-type opts() :: #{
    path := file:name_all(),
    %% What is written: frames of weir_log_frame, lines, or anything.
    format := weir_log_open:format(),
    rotate := rotate_opts(),
    %% How long a write may go to a file that was moved or removed. 0: each write looks.
    check_ms := non_neg_integer(),
    %% The mode of new files. Default: as the umask has it.
    mode => weir_log_open:mode(),
    %% Their owner. Default: as the node's user and the directory have it.
    owner => weir_log_open:owner(),
    %% How long a file that cannot be written to, or rotated, is left alone. Default: 1000.
    retry_ms => non_neg_integer()
}.

-type reason() :: weir_log_open:reason() | {sync_failed, weir_log_open:reason()}.

-type state() ::
    ok | {degraded, weir_log_open:reason(), SinceMs :: integer() | none} | {failed, weir_log_open:reason()}.

-record(conf, {
    path :: weir_log_path:path(),
    format :: weir_log_open:format(),
    max_bytes :: pos_integer() | infinity,
    interval :: weir_log_period:interval(),
    retention :: weir_log_retention:retention(),
    dates :: weir_log_rotation:dates(),
    hook :: weir_log_retention:hook() | none,
    attributes :: {weir_log_open:owner(), weir_log_open:mode()},
    check_ms :: non_neg_integer(),
    retry_ms :: non_neg_integer()
}).

-record(file, {
    conf :: #conf{},
    state = ok :: state(),
    %% ---- the open file
    fd = none :: file:fd() | none,
    identity = none :: weir_log_open:identity() | none,
    size = 0 :: non_neg_integer(),
    stream = false :: boolean(),
    %% Bytes that were written since the last sync; whether the file has not been synced under its name.
    unsynced = 0 :: non_neg_integer(),
    nameless = false :: boolean(),
    %% A part of a failed batch is in the file: where it begins, or `unknown'.
    torn = none :: none | non_neg_integer() | unknown,
    %% When it was written to first since it was opened.
    since = none :: none | integer(),
    due = none :: none | weir_log_period:due(),
    %% ---- when to do what
    checked = none :: none | integer(),
    rotation_failed = none :: none | integer(),
    %% ---- history
    last :: weir_log_rotation:stamp() | none,
    written = 0 :: non_neg_integer(),
    counts = #{} :: #{count() => pos_integer()},
    last_error = none :: none | reason()
}).

-opaque file() :: #file{}.

-type count() :: rotations | rotation_errors | moved | truncated | errors | cut_bytes | ended_lines | set_aside | torn.

-type info() :: #{
    path := weir_log_path:path(),
    state := ok | degraded | failed,
    size := non_neg_integer(),
    since := none | integer(),
    unsynced_bytes := non_neg_integer(),
    %% Since this value was opened, over all its files: bytes written, and
    written_bytes := non_neg_integer(),
    %% times that it was rotated or was to be and could not,
    rotations := non_neg_integer(),
    rotation_errors := non_neg_integer(),
    %% that it was found moved, removed or truncated by others,
    moved := non_neg_integer(),
    truncated := non_neg_integer(),
    %% errors that were answered, those without a system call too, and the last one (of a rotation too),
    errors := non_neg_integer(),
    last_error := none | reason(),
    %% bytes of torn tails, incomplete lines that got a newline, files found damaged, parts of failed batches that may
    %% have stayed.
    cut_bytes := non_neg_integer(),
    ended_lines := non_neg_integer(),
    set_aside := non_neg_integer(),
    torn := non_neg_integer()
}.

-define(RETRY_MS, 1000).
-define(COUNTS, [rotations, rotation_errors, moved, truncated, errors, cut_bytes, ended_lines, set_aside, torn]).

%% ---------------------------------------------------------------- interface

%% @doc Opens a log's file ({@link weir_log_open:open/5}), and asks for its rotated files to be cleaned. Without room on
%% the disk for what that takes the file is `degraded', as it is when there is no room for an entry.
%% Cost: some system calls, a listing of the directory, and the reading of the whole file if it is framed.
-spec open(opts()) -> {ok, file()} | {error, weir_log_open:reason()}.
open(#{path := Given, format := Format, rotate := Rotate, check_ms := CheckMs} = Opts) ->
    case weir_log_path:absolute(Given) of
        {ok, Path} ->
            {ok, Dates} = weir_log_rotation:dates(maps:get(date_format, Rotate, default)),
            Keep = #{
                files => maps:get(keep_files, Rotate, infinity),
                bytes => maps:get(keep_bytes, Rotate, infinity),
                gzip => maps:get(gzip, Rotate, false)
            },
            Conf = #conf{
                path = Path,
                format = Format,
                max_bytes = maps:get(max_bytes, Rotate, infinity),
                interval = maps:get(interval, Rotate, none),
                retention = {Dates, Keep, maps:get(keep_days, Rotate, infinity)},
                dates = Dates,
                hook = maps:get(hook, Rotate, none),
                attributes = {maps:get(owner, Opts, default), maps:get(mode, Opts, default)},
                check_ms = CheckMs,
                retry_ms = maps:get(retry_ms, Opts, ?RETRY_MS)
            },
            New = #file{conf = Conf, last = newest(Path, Dates)},
            case begin_file(New) of
                {ok, File} ->
                    ok = clean(File),
                    {ok, File};
                {error, Reason} when Reason =:= enospc; Reason =:= edquot ->
                    {ok, New#file{state = {degraded, Reason, none}, last_error = Reason}};
                {error, _} = Error ->
                    Error
            end;
        {error, _} = Error ->
            Error
    end.

newest(Path, Dates) ->
    %% Of a directory that is not there, or cannot be read, nothing is known.
    case weir_log_path:list(Path) of
        {ok, Names} -> weir_log_rotation:newest(filename:basename(Path), Dates, Names);
        {error, _} -> none
    end.

%% @doc Appends a batch of whole entries, whose size is given in bytes. `ok': all of it was taken by the operating
%% system, and is in the file whatever becomes of the node (for the machine, see {@link sync/1}). An error: nothing of
%% it, or see above. Something that is not iodata is `badarg' and changes nothing.
%%
%% Cost: one system call for up to 1024 parts. A `stat' each `check_ms' (11 us), and for a rotation a sync, three
%% `lstat', a rename, an open and a close: 0.2 ms, and 0.6 ms for each megabyte that was not synced.
-spec write(iodata(), Bytes :: non_neg_integer(), NowMs :: integer(), file()) ->
    {ok, file()} | {error, reason(), file()}.
write(Entries, Bytes, NowMs, File) ->
    case located(NowMs, File) of
        {ok, Located} ->
            case in_turn(Bytes, NowMs, Located) of
                {ok, Ready} -> append(Entries, Bytes, NowMs, Ready);
                {error, _, _} = Error -> Error
            end;
        {error, _, _} = Error ->
            answer(Error)
    end.

%% @doc Makes durable all that was written. Nothing is done if nothing was written since.
%% Cost: one system call that waits for the disk, and three more for the directory after a rotation.
-spec sync(file()) -> {ok, file()} | {error, reason(), file()}.
sync(#file{state = {failed, Reason}} = File) -> refused({sync_failed, Reason}, File);
sync(File) -> answer(flush(File)).

%% @doc Rotates the file now, unless it is empty. If that fails, writing goes on in it; in a file that is not `ok' this
%% answers like a write.
-spec rotate(NowMs :: integer(), file()) -> {ok, file()} | {error, reason(), file()}.
rotate(NowMs, File) ->
    case located(NowMs, File) of
        {ok, #file{size = 0} = Empty} -> {ok, Empty};
        {ok, Located} -> answer(turn(NowMs, Located));
        {error, _, _} = Error -> answer(Error)
    end.

%% @doc Syncs and closes the file and opens what the path leads to now; ends `failed', where it does not sync again.
%% After an error of the sync the file is `failed', after one of the opening `degraded'.
-spec reopen(file()) -> {ok, file()} | {error, reason(), file()}.
reopen(#file{state = {failed, _}} = File) -> answer(begin_or_degrade(none, dropped(File)));
reopen(File) -> answer(anew(none, File)).

%% @doc Syncs and closes the file. An error is one of the sync: the file is closed all the same.
-spec close(file()) -> ok | {error, reason()}.
close(#file{state = {failed, Reason}} = File) ->
    _ = dropped(File),
    {error, {sync_failed, Reason}};
close(File) ->
    case left(File) of
        {ok, _} ->
            ok;
        {error, Reason, Failed} ->
            _ = dropped(Failed),
            {error, Reason}
    end.

%% @doc What became of the file. Cost: 0.2 us, no system call.
-spec info(file()) -> info().
info(#file{conf = #conf{path = Path}, counts = Counts} = File) ->
    Info = #{
        path => Path,
        state => state_name(File#file.state),
        size => File#file.size,
        since => File#file.since,
        unsynced_bytes => File#file.unsynced,
        written_bytes => File#file.written,
        last_error => File#file.last_error
    },
    maps:merge(Info, maps:from_list([{Count, maps:get(Count, Counts, 0)} || Count <- ?COUNTS])).

state_name(ok) -> ok;
state_name({State, _}) -> State;
state_name({State, _, _}) -> State.

%% ---------------------------------------------------------------- the file of the path

%% The file to write to, if there is one: the open one, or what the path leads to if it is time to look.
located(_NowMs, #file{state = {failed, Reason}} = File) ->
    {error, {sync_failed, Reason}, File};
located(NowMs, #file{state = {degraded, Reason, Since}, conf = #conf{retry_ms = RetryMs}} = File) ->
    case is_over(NowMs, Since, RetryMs) of
        true -> check_path(NowMs, File);
        false -> {error, Reason, File}
    end;
located(_NowMs, #file{stream = true} = File) ->
    {ok, File};
located(NowMs, #file{checked = Checked, conf = #conf{check_ms = CheckMs}} = File) ->
    case is_over(NowMs, Checked, CheckMs) of
        true -> check_path(NowMs, File#file{checked = NowMs});
        false -> {ok, File}
    end.

%% Also if the clock was set back.
is_over(_NowMs, none, _Ms) -> true;
is_over(NowMs, Since, Ms) -> NowMs - Since >= Ms orelse NowMs < Since.

check_path(NowMs, #file{fd = none} = File) ->
    begin_or_degrade(NowMs, File);
check_path(NowMs, #file{identity = Identity, conf = #conf{path = Path}} = File) ->
    case file:read_file_info(Path, [raw]) of
        {ok, #file_info{size = Size} = Info} ->
            case weir_log_open:identity(Info) of
                Identity -> still_there(Size, NowMs, File);
                _ -> moved(NowMs, File)
            end;
        {error, Reason} when Reason =:= enoent; Reason =:= enotdir ->
            moved(NowMs, File);
        {error, Reason} ->
            degraded(Reason, NowMs, File)
    end.

moved(NowMs, File) -> anew(NowMs, count(moved, 1, File)).

%% The size is what is there, whoever changed it.
still_there(_Size, NowMs, #file{stream = true} = File) ->
    retried(NowMs, File);
still_there(Size, NowMs, #file{size = Known, torn = none, conf = #conf{format = Format}} = File) ->
    Sized = File#file{size = Size},
    if
        Size < Known, Format =/= raw, Size > 0 -> anew(NowMs, count(truncated, 1, Sized));
        Size < Known -> retried(NowMs, count(truncated, 1, Sized));
        true -> retried(NowMs, Sized)
    end;
still_there(_Size, NowMs, #file{torn = unknown} = File) ->
    anew(NowMs, File);
still_there(_Size, NowMs, #file{torn = Torn} = File) ->
    case retried(NowMs, File#file{torn = none}) of
        {ok, Retried} ->
            case cut_off(Retried#file{torn = Torn}) of
                {ok, _} = Cut -> Cut;
                {error, Reason, Uncut} -> degraded(Reason, NowMs, Uncut)
            end;
        {error, Reason, Same} ->
            {error, Reason, Same#file{torn = Torn}}
    end.

%% The descriptor may be what is wrong. If not, a framed file need not be read again.
retried(NowMs, #file{state = {degraded, _, _}, fd = Fd} = File) ->
    case file:read_file_info(Fd, [raw]) of
        {ok, _} -> {ok, File#file{state = ok}};
        {error, _} -> anew(NowMs, File)
    end;
retried(_NowMs, File) ->
    {ok, File}.

%% Leaves the file for what the path leads to now, which may be the same one.
anew(NowMs, File) ->
    case left(File) of
        {ok, Left} -> begin_or_degrade(NowMs, Left);
        Error -> Error
    end.

begin_or_degrade(NowMs, File) ->
    case begin_file(File) of
        {ok, _} = Begun -> Begun;
        {error, Reason} -> degraded(Reason, NowMs, File)
    end.

begin_file(#file{conf = Conf, last = Last} = File) ->
    #conf{path = Path, format = Format, attributes = Attributes, dates = Dates} = Conf,
    case weir_log_open:open(Path, Format, Attributes, Dates, Last) of
        {ok, #opened{fd = Fd, identity = Identity, size = Size} = Opened} ->
            Begun = File#file{
                state = ok,
                fd = Fd,
                identity = Identity,
                size = Size,
                stream = Opened#opened.stream,
                unsynced = 0,
                nameless = true,
                torn = none,
                since = none,
                due = weir_log_period:new(Conf#conf.interval, Size, Opened#opened.written_ms),
                last = Opened#opened.last
            },
            {ok,
                lists:foldl(fun({Count, Number}, Acc) -> count(Count, Number, Acc) end, Begun, [
                    {cut_bytes, Opened#opened.cut_bytes},
                    {ended_lines, Opened#opened.ended_lines},
                    {set_aside, Opened#opened.set_aside}
                ])};
        {error, _} = Error ->
            Error
    end.

%% ---------------------------------------------------------------- leaving a file

%% Cut, synced and closed.
left(#file{fd = none} = File) ->
    {ok, File};
left(File) ->
    Cut =
        case cut_off(File) of
            {ok, Whole} -> Whole;
            {error, _, Torn} -> count(torn, 1, Torn)
        end,
    case Cut#file.unsynced > 0 andalso flush(Cut) of
        {error, _, _} = Error -> Error;
        _ -> {ok, dropped(Cut)}
    end.

dropped(#file{fd = none} = File) ->
    File#file{unsynced = 0, nameless = false};
dropped(#file{fd = Fd} = File) ->
    %% All was synced, or is known to be lost.
    _ = file:close(Fd),
    dropped(File#file{fd = none, identity = none, size = 0, torn = none}).

flush(#file{unsynced = 0, nameless = false} = File) ->
    {ok, File};
flush(#file{fd = Fd, stream = true} = File) ->
    case file:datasync(Fd) of
        {error, Reason} when Reason =:= einval; Reason =:= enotsup; Reason =:= enotty -> flushed(ok, File);
        Result -> flushed(Result, File)
    end;
flush(#file{fd = Fd, nameless = Nameless, conf = #conf{path = Path}} = File) ->
    case file:datasync(Fd) of
        ok when Nameless -> flushed(weir_log_path:sync_dir(Path), File);
        Result -> flushed(Result, File)
    end.

flushed(ok, File) -> {ok, File#file{unsynced = 0, nameless = false}};
flushed({error, Reason}, File) -> {error, {sync_failed, Reason}, File#file{state = {failed, Reason}}}.

%% ---------------------------------------------------------------- appending

append(Entries, Bytes, NowMs, #file{fd = Fd, size = Size, unsynced = Unsynced, written = Written} = File) ->
    case file:write(Fd, Entries) of
        ok ->
            Grown =
                case File#file.stream of
                    true -> Size;
                    false -> Size + Bytes
                end,
            Sizes = File#file{size = Grown, unsynced = Unsynced + Bytes, written = Written + Bytes},
            {ok, Sizes#file{since = since(NowMs, File)}};
        {error, badarg} ->
            refused(badarg, File);
        {error, Reason} ->
            {error, _, Degraded} = degraded(Reason, NowMs, cut_batch(Bytes, File)),
            refused(Reason, Degraded)
    end.

since(NowMs, #file{since = none}) -> NowMs;
since(_NowMs, #file{since = Since}) -> Since.

cut_batch(_Bytes, #file{stream = true} = File) ->
    File;
cut_batch(Bytes, #file{fd = Fd, size = Size, conf = #conf{format = Format}} = File) ->
    case weir_log_tail:after_failure(Fd, Size, Bytes) of
        {ok, Size} -> File;
        {torn, Size} -> File#file{torn = Size};
        {unknown, Now} when Format =/= raw -> count(torn, 1, File#file{size = Now, torn = unknown});
        {unknown, Now} -> count(torn, 1, File#file{size = Now})
    end.

cut_off(#file{torn = Torn} = File) when Torn =:= none; Torn =:= unknown ->
    {ok, File#file{torn = none}};
cut_off(#file{fd = Fd, torn = Torn} = File) ->
    case weir_log_tail:cut_off(Fd, Torn) of
        {ok, Size} -> {ok, File#file{size = Size, torn = none}};
        {error, Reason} -> {error, Reason, File}
    end.

%% ---------------------------------------------------------------- rotation

%% The file that a batch is to go to. A rotation that fails is no reason to refuse it, unless there is no file then.
in_turn(Bytes, NowMs, #file{size = Size, due = Due} = File) ->
    Looked = File#file{due = weir_log_period:update(NowMs, Size, Due)},
    case is_due(Bytes, NowMs, Looked) of
        true ->
            case turn(NowMs, Looked) of
                {ok, #file{size = NewSize, due = New} = Turned} ->
                    {ok, Turned#file{due = weir_log_period:update(NowMs, NewSize, New)}};
                {error, _, #file{state = ok} = Same} ->
                    {ok, Same};
                {error, Reason, Lost} ->
                    refused(Reason, Lost)
            end;
        false ->
            {ok, Looked}
    end.

is_due(_Bytes, _NowMs, #file{size = 0}) ->
    false;
is_due(Bytes, NowMs, #file{size = Size, due = Due, rotation_failed = Failed, conf = Conf}) ->
    %% An atom is greater than every number.
    (Size + Bytes > Conf#conf.max_bytes orelse weir_log_period:is_over(Due)) andalso
        is_over(NowMs, Failed, Conf#conf.retry_ms).

turn(NowMs, #file{conf = #conf{path = Path, dates = Dates}, last = Last} = File) ->
    case flush(File) of
        {ok, Flushed} ->
            case weir_log_path:set_aside(Path, Dates, NowMs, Last) of
                {ok, Name, Stamp} -> turned(Name, NowMs, Flushed#file{last = Stamp});
                {error, enoent} -> moved(NowMs, Flushed);
                {error, Reason} -> not_turned(Reason, NowMs, Flushed)
            end;
        {error, _, _} = Error ->
            Error
    end.

turned(Name, NowMs, #file{fd = Fd, conf = #conf{path = Path, hook = Hook}} = File) ->
    case begin_file(File) of
        {ok, Turned} ->
            _ = file:close(Fd),
            ok = weir_log_retention:hook(Path, Name, Hook),
            ok = clean(Turned),
            {ok, count(rotations, 1, Turned#file{rotation_failed = none})};
        {error, Reason} ->
            case weir_log_path:rename(Name, Path) of
                ok ->
                    not_turned(Reason, NowMs, File);
                {error, _} ->
                    {error, _, Failed} = not_turned(Reason, NowMs, File),
                    degraded(Reason, NowMs, dropped(Failed))
            end
    end.

not_turned(Reason, NowMs, File) ->
    {error, Reason, count(rotation_errors, 1, File#file{rotation_failed = NowMs, last_error = Reason})}.

clean(#file{conf = #conf{path = Path, retention = Retention}}) -> weir_log_retention:ask(Path, Retention).

%% ---------------------------------------------------------------- states

degraded(Reason, NowMs, File) -> {error, Reason, File#file{state = {degraded, Reason, NowMs}}}.

answer({ok, _} = Ok) -> Ok;
answer({error, Reason, File}) -> refused(Reason, File).

refused(Reason, File) -> {error, Reason, count(errors, 1, File#file{last_error = Reason})}.

count(_Count, 0, File) -> File;
count(Count, Number, #file{counts = Counts} = File) ->
    File#file{counts = maps:update_with(Count, fun(Before) -> Before + Number end, Number, Counts)}.
