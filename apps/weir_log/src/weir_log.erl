%% @doc A log that is bounded, batched, and loses nothing silently.
%%
%% One writer process and one file per shard. The writer takes everything that waits, writes it with one call, makes it
%% durable with one call if that is wanted, and answers everyone who asked to know. Callers format, frame and
%% count their entries themselves; the writer only concatenates.
%%
%% ```
%% {ok, Log} = weir_log:open(audit, #{file => "log/audit.log", newline => true}),
%% ok = weir_log:log(Log, "written when this returns"),
%% ok = weir_log:alog(Log, "written soon"),
%% ok = weir_log:close(Log).
%% '''
%% A log is known by its name, which every process of the node may use. Logs that are opened with open/2 live until they
%% are closed or the application stops; those of start_link/2 belong to a supervisor of the user's. The application
%% weir_log must be running for both.
%%
%% Options are maps or keyword lists, and so is `rotate' in them.
%%
%% Order: entries of one process are in its file in the order in which it sent them. Nothing is said about those of
%% different processes, unless one was answered before the other was sent.
%%
%% Predecessors. `disk_log' answers when an entry is in its cache, monitors its writer for each call, and its
%% asynchronous functions fill a mailbox without bound; a call here answers when the write has returned, and the
%% asynchronous one keeps to a window. What is left out: wrap logs (rotation with `keep_files' does that), terms
%% (use `term_to_binary/1' and `frame'), distributed and blocked logs.
-module(weir_log).

-export([open/2, start_link/2, child_spec/1, child_spec/2, close/1]).
-export([log/2, log/3, alog/2, alog/3, sync/1, rotate/1, reopen/1, change/2]).
-export([info/1, names/0, files/1, history/1, fold/3, merge/3]).

-export_type([
    log/0, entry/0, options/0, rotation/0, ack/0, level/0, overload/0, loss/0,
    error/0, open_error/0, info/0, shard_info/0
]).

-type log() :: term().
%% A log's name, any term. An atom is looked up fastest.

-type entry() :: iodata() | fun(() -> iodata()).
%% An entry, or a function that makes it, which is called only if the entry would not be refused as things stand.

-type ack() :: accepted | written | synced.
%% What log/2 waits for: that the writer has taken the entry in; that the write has returned, so that the entry survives
%% the node; that fdatasync has returned, so that it survives the machine. While the last write failed,
%% `accepted' waits for the write too.

-type level() :: logger:level() | none.

-type overload() :: wait | reject | {drop, logger:level() | fun((level()) -> boolean())}.
%% What becomes of an entry of alog/2,3 that finds its window full, or `max_bytes' waiting. `wait': its caller waits, at
%% the window until the writer has taken the entry in, at `max_bytes' until it is written. `reject': it is refused with
%% `{error, {overload, Log}}', and nobody ever waits, whatever the disk does. `drop': it is dropped, with
%% `{error, {dropped, Log}}', if its level is below the given one or the function says so; others wait until they are
%% written. An entry without a level is below all levels. The function is called in the caller, and one that fails drops
%% nothing.

-type rotation() :: #{
    max_bytes => pos_integer() | infinity,
    interval => none | hourly | daily,
    keep_files => non_neg_integer() | infinity,
    keep_bytes => pos_integer() | infinity,
    keep_days => pos_integer() | infinity,
    gzip => boolean(),
    hook => fun((File :: binary()) -> term()) | {module(), Function :: atom(), Arguments :: [term()]} | none,
    date_format => default | unicode:chardata()
}
    | [{atom(), term()}].
%% A file is renamed, and a new one begun, before a write when it has, or would have, more than `max_bytes', or is of
%% another hour or day, as `interval' says (local time): `max_bytes' is for the file, but one write of more than that is
%% one file. Of the renamed ones the oldest go when there are more than `keep_files' or they have more than
%% `keep_bytes'; those that were rotated more than `keep_days' ago go when the file is opened or rotated the next time.
%% `gzip': they are compressed by another process. `hook' is called for each, with its name and then the arguments, once
%% it is compressed if it is to be, in a process of its own; those of one file one after the other, and each for a
%% minute at most. By default nothing of this happens. `date_format': what the renamed file's name gets behind a dot:
%% `default' is UTC and a number, `20261121T120409Z-0000'; `"%Y-%m-%d"' is the local date, `2026-11-21', and
%% `2026-11-21-0001' for the second one of that day. A format has `%Y', `%m' and `%d', and if wanted `%H', `%M' and
%% `%S', each once, and shows 24 bytes at most. Files with names of another format are not seen by what keeps,
%% compresses or lists files: change it on a new log.

-type options() :: #{
    file := file:filename_all() | standard_io,
    ack => ack(),
    newline => boolean() | ended,
    frame => boolean(),
    window => pos_integer() | default,
    max_bytes => pos_integer() | infinity,
    overload => overload(),
    timeout => timeout(),
    shards => pos_integer(),
    rotate => rotation(),
    check_ms => non_neg_integer(),
    mode => 0..8#7777 | default,
    owner => {Uid :: non_neg_integer(), Gid :: non_neg_integer()} | default,
    sync_interval => pos_integer() | infinity,
    tell => default | fun((loss()) -> iodata()),
    report => boolean(),
    heal => boolean(),
    words => none | [atomics:atomics_ref(), ...],
    file_module => module()
}
    | [{atom(), term()}].
%% <ul>
%% <li>`file': where to write. A relative name is made absolute at once, by the process that opens the log or makes the
%%     child specification. `standard_io': the standard output of the node, without `frame', `rotate' and `shards'.
%%     That, devices and pipes are only written to: they are never rotated or truncated, and a sync is `ok' though there
%%     is nothing that it could do. (Where standard output is a file, the shell must append to it, with `>>', if others
%%     write to it too; where it is a socket, the system cannot open it: `enxio'.) With more than one shard, that name
%%     with `.shard1', `.shard2' and so on. An existing file is appended to.</li>
%% <li>`ack' (`written'): see {@link ack()}.</li>
%% <li>`newline' (`false'): adds a newline to each entry. `ended': entries end with one already, and so does the text of
%%     `tell'. An incomplete last line, which a crash has left, is ended when the file is opened (`ended_lines' of the
%%     file in info/1).</li>
%% <li>`frame' (`false'): puts length, CRC-32 and the time of the call in front of each entry, for fold/3
%%     and merge/3; what a crash has torn at the end is cut when the log is opened. Not with `newline'.</li>
%% <li>`window' (`default': 16; 1024 if `overload' is not `wait'): the most entries of one process that alog/2 lets
%%     wait. 1: each waits until it is taken in.</li>
%% <li>`max_bytes' (33,554,432): an entry of alog/2,3 that finds so many bytes waiting in the log is not simply let in;
%%     shared equally among its shards; at most 68,719,476,736, or `infinity'. An entry counts with 128 bytes more than
%%     it has, for its message.</li>
%% <li>`overload' (`wait'): what happens at the edge of the window, and at `max_bytes': see {@link overload()}.</li>
%% <li>`timeout' (`infinity'): milliseconds that a call waits at most. Who has waited that long for an entry gets
%%     `{error, timeout}'; the entry may still be written. From then on nobody waits for the log until its writer goes
%%     on: who would have to gets `{error, {stuck, Log}}' at once, and the entry is dropped, and counted.</li>
%% <li>`shards' (1, at most 256): writers and files. A process keeps to one of them. A disk that does not answer holds a
%%     dirty IO thread of the runtime for each shard, one for all logs, and one while a `hook' is called: with several
%%     shards, start the node with `+SDio' larger than 10 (the default) by as many.</li>
%% <li>`rotate' (`#{}'): see {@link rotation()}.</li>
%% <li>`check_ms' (1000): how often at most it is looked whether the file was moved away by others, milliseconds.</li>
%% <li>`mode' (`default': as the umask has it): the mode of files that are new or empty when they are opened, `8#640'
%%     for one; rotated and compressed ones keep it.</li>
%% <li>`owner' (`default': the node's user): user and group of such files, as the numbers that `id' prints. Only root
%%     may give files away; for another user the file cannot be opened then: `{error, {file, File, eperm}}'.</li>
%% <li>`sync_interval' (`infinity'): what was written is synced so many milliseconds later at most, if nobody
%%     has asked for it before.</li>
%% <li>`tell' (`default'): the text of the entry that tells of losses: a function of {@link loss()}. It runs in the
%%     writer.</li>
%% <li>`report' (`true'): a file that cannot be written to is reported through `logger', and so is the end of that. Give
%%     `false' for a log that `logger' itself writes to, or whose owner reports that.</li>
%% <li>`heal' (`false'): a file whose sync has failed is opened anew for the next entry, in place of refusing all until
%%     reopen/1. What was written before the failure may not be durable, and nobody else is told.</li>
%% <li>`words' (`none'): for {@link weir_log_h}: what the log counts in, if that is to outlive it.</li>
%% <li>`file_module' (`weir_log_file'): for tests: a module with that one's functions.</li>
%% </ul>

-type loss() :: #{
    dropped := #{level() => pos_integer()},
    failed := #{level() => pos_integer()},
    lost := non_neg_integer(),
    from := Microseconds :: integer(),
    to := Microseconds :: integer()
}.
%% Entries that were dropped, and those that could not be written, by level; entries that were lost with a writer that
%% died, at most; when the first and the last of those with a level were, as system time (0: there are none).

-type error() ::
    no_log
    | writer_down
    | {overload, log()}
    | {dropped, log()}
    | timeout
    | {stuck, log()}
    | {sync_failed, file:posix()}
    | file:posix()
    | term().
%% `no_log': there is no open log of this name. `writer_down': the writer died while the caller waited; the entry may be
%% in the file or not. `timeout', `stuck': see the option `timeout'. `sync_failed': an fdatasync has failed, and the log
%% takes nothing until reopen/1. All others: what the file system says.

-type open_error() ::
    {bad_option, Key :: term(), Value :: term()}
    | {missing_option, file}
    | {already_open, log()}
    | {file, file:filename_all(), Reason :: term()}
    | {not_started, term()}.
%% `already_open': a log of this name is open, or another one has one of the files, whatever the names it was given: the
%% directory's device and inode are compared, and symbolic links followed. `file': it could not be opened.
%% `{not_started, weir_log}': the application weir_log is not running.

-type shard_info() :: #{
    path := file:filename_all(),
    writer := pid() | none,
    queue := non_neg_integer(),
    waiting_entries := non_neg_integer(),
    waiting_bytes := non_neg_integer(),
    file := map() | busy,
    lost_by_level := #{level() => pos_integer()},
    stuck := boolean(),
    atom() => term()
}.
%% `queue': the length of the writer's mailbox. `waiting_entries', `waiting_bytes': sent and not dealt with yet. `file':
%% what there is to say of the file, its `state', `size', `rotations' and more, or `busy' if the writer does not answer
%% within a second. Counters since the log was opened: `entries' and `bytes' written, `writes', `syncs',
%% `largest_batch'; `failed': entries that could not be written; `sync_failures'; `lost': with a writer that died, an
%% upper bound, since some of them may be written; `unsent': counted by callers that were killed before they sent, or
%% whose writer was dead; `rejected', `dropped', `waited': entries that met the cap. `lost_by_level': those dropped or
%% failed. `stuck': nobody waits for it.

-type info() :: #{
    name := log(),
    ack := ack(),
    format := raw | newline | lines | frame,
    window := pos_integer(),
    max_bytes := pos_integer() | infinity,
    shards := [shard_info()],
    atom() => term()
}.
%% `max_bytes' is that of one shard. Beside these, the sums over the shards of the counters.

%% As long as its supervisor waits for a writer.
-define(CLOSE_MS, 60_000).

%% @doc Opens a log under a name, and waits until its files are open.
%%
%% One log is opened after the other, so one on a disk that does not answer keeps others waiting, but not those that
%% supervisors of yours start ({@link child_spec/2}).
-spec open(log(), options()) -> {ok, log()} | {error, open_error()}.
open(Name, Opts) ->
    case weir_log_opts:check(Opts) of
        {ok, Conf} ->
            case weir_log_app:start_log(Name, Conf) of
                {ok, _Sup} -> {ok, Name};
                {error, Reason} -> {error, Reason}
            end;
        {error, Reason} ->
            {error, Reason}
    end.

%% @doc As {@link open/2}, with the log's processes linked to the caller, which should be a supervisor.
-spec start_link(log(), options()) -> {ok, pid()} | {error, open_error()}.
start_link(Name, Opts) ->
    case weir_log_opts:check(Opts) of
        {ok, Conf} -> weir_log_log_sup:start_link(Name, Conf);
        {error, Reason} -> {error, Reason}
    end.

%% @doc As {@link child_spec/2}, with the log's name among the options: a supervisor of Elixir takes `{:weir_log, name:
%% :audit, file: "audit.log"}' for a child. `{missing_option, name}': there is none.
-spec child_spec(#{name := log(), atom() => term()} | [{atom(), term()}]) -> supervisor:child_spec().
child_spec(Opts) ->
    case weir_log_opts:to_map(Opts) of
        {ok, #{name := Name} = Map} -> child_spec(Name, maps:remove(name, Map));
        {ok, _} -> error({missing_option, name}, [Opts]);
        error -> error(badarg, [Opts])
    end.

%% @doc A child specification for a log in a supervisor of the user's. Its id is `{weir_log, Name}'.
-spec child_spec(log(), options()) -> supervisor:child_spec().
child_spec(Name, Opts) ->
    Start = {?MODULE, start_link, [Name, weir_log_opts:absolute(Opts)]},
    Modules = [weir_log_log_sup],
    #{id => {?MODULE, Name}, start => Start, type => supervisor, shutdown => infinity, modules => Modules}.

%% @doc Closes a log. Everything sent before is written and synced when this returns `ok'. Any other error than `no_log'
%% is that of the {@link sync/1} with which it begins, which waits as long as the option `timeout' says, for a minute at
%% most: the log is closed, and what was sent last may be lost.
%%
%% A supervisor of the user's sees its child exit with `shutdown', and restarts it if that is what it was told.
-spec close(log()) -> ok | {error, error()}.
close(Name) ->
    case weir_log_registry:lookup(Name) of
        {ok, Sup} ->
            Synced = weir_log_client:ask_all(Name, sync, ?CLOSE_MS),
            try
                ok = proc_lib:stop(Sup, shutdown, infinity),
                ok = weir_log_registry:settled(),
                Synced
            catch
                exit:_ -> {error, no_log}
            end;
        {error, no_log} ->
            {error, no_log}
    end.

%% @doc As {@link log/3} for an entry without a level.
-spec log(log(), Entry :: iodata()) -> ok | {error, error()}.
log(Log, Entry) -> weir_log_client:log(Log, Entry, none).

%% @doc Logs an entry, and waits for what the log was opened for: see {@link ack()}. The level is for the counts of what
%% is lost.
%%
%% What is no iodata is a `badarg'. An error means that the entry is not in the file, but for `writer_down', `timeout',
%% and `{sync_failed, _}' with `ack => synced', after which it may be.
%% Cost: a monitor, two messages, and a share of a write; about 2 microseconds an entry with a thousand callers.
-spec log(log(), Entry :: iodata(), level()) -> ok | {error, error()}.
log(Log, Entry, Level) -> weir_log_client:log(Log, Entry, Level).

%% @doc As {@link alog/3} for an entry without a level.
-spec alog(log(), entry()) -> ok | {error, error()}.
alog(Log, Entry) -> weir_log_client:alog(Log, Entry, none).

%% @doc Logs an entry without waiting until it is written, within the window.
%%
%% Every window-th call of a process waits until the writer has taken the entry in, and one that meets `max_bytes' until
%% it is written, unless the option `overload' says otherwise. `ok': the entry has been sent. If it cannot be written
%% later that is counted, and told in the log when it works again; the calls that wait are told, too.
%% Cost: a message, an atomic addition and two looks into the process dictionary.
-spec alog(log(), entry(), level()) -> ok | {error, error()}.
alog(Log, Entry, Level) -> weir_log_client:alog(Log, Entry, Level).

%% @doc Waits until everything that was sent to the log before is durable. Syncs that wait at the same time are one.
%% Cost: a call, and what the disk takes. Of a log with several shards a message to each and a search of the caller's
%% mailbox for each answer.
-spec sync(log()) -> ok | {error, error()}.
sync(Log) -> weir_log_client:ask_all(Log, sync).

%% @doc Begins a new file in each shard, whatever is in the old one.
%% The first error is returned; other shards rotate all the same.
-spec rotate(log()) -> ok | {error, error()}.
rotate(Log) -> weir_log_client:ask_all(Log, rotate).

%% @doc Opens the files anew: after others have moved them away, or after a sync has failed.
-spec reopen(log()) -> ok | {error, error()}.
reopen(Log) -> weir_log_client:ask_all(Log, reopen).

%% @doc Changes options of an open log; those that are not mentioned stay. `{cannot_change, Key}': not `file', `shards',
%% `newline', `frame' and `heal'. Entries that are under way may be handled as before.
%% Cost: every process of the node is scanned, and the files are opened anew if `rotate' or `check_ms' change.
-spec change(log(), #{atom() => term()} | [{atom(), term()}]) ->
    ok | {error, {bad_option, Key :: term(), Value :: term()} | {cannot_change, Key :: term()} | error()}.
change(Log, Changes) ->
    case weir_log_opts:to_map(Changes) of
        {ok, Map} -> weir_log_info:change(Log, Map);
        error -> error(badarg, [Log, Changes])
    end.

%% @doc What a log is doing and has done: see {@link info()}.
%% Cost: a question to each writer; all else is read in the caller.
-spec info(log()) -> {ok, info()} | {error, no_log}.
info(Name) -> weir_log_info:info(Name).

%% @doc The names of all logs, in no particular order.
-spec names() -> [log()].
names() -> weir_log_registry:names().

%% @doc The files that a log writes, in the order of its shards.
-spec files(log()) -> {ok, [file:filename_all()]} | {error, no_log}.
files(Name) -> weir_log_registry:files(Name).

%% @doc The files of each shard of an open log, the rotated ones too, as {@link merge/3} takes them: the oldest first,
%% the one that is written to last. A log that rotates, compresses or deletes files between this and their reading has
%% others then: ask again.
%% Cost: reading the directory, for each shard.
-spec history(log()) ->
    {ok, [{shard, [file:filename_all()]}]} | {error, no_log | {file, file:filename_all(), file:posix() | badarg}}.
history(Name) -> weir_log_merge:history(Name).

%% @doc Reads a file of a log with `frame', entry by entry in the order of the file.
%%
%% The time is when the caller of log/2 or alog/2 made the entry, in microseconds of system time. `cut_bytes': what
%% there is behind the last whole entry, and `tail', whether that is a `torn' one or the file is `damaged' there. The
%% file may be written to meanwhile.
%% Errors: what the file system says.
-spec fold(fun((Microseconds :: integer(), Entry :: binary(), Acc) -> Acc), Acc, file:filename_all()) ->
    {ok, Acc, weir_log_frame:summary()} | {error, weir_log_frame:reason()}.
fold(Fun, Acc, Path) -> weir_log_merge:fold(Fun, Acc, Path).

%% @doc Reads several files of logs with `frame' as one stream, by time.
%%
%% Each element is a file, or the files of one shard from the oldest to the newest. Entries of one shard stay in
%% their order, and so do those of each process. `damaged': at this offset of these files there is no whole entry though
%% there may be some behind it, and nothing of the file was read from there on; all else was, and is in `Acc'.
%% Cost: a process for each file, and memory for some 1000 entries of each.
-spec merge(
    fun((Microseconds :: integer(), Entry :: binary(), Acc) -> Acc),
    Acc,
    [file:filename_all() | {shard, [file:filename_all()]}]
) ->
    {ok, Acc}
    | {error,
        {damaged, [{file:filename_all(), Offset :: non_neg_integer()}], Acc}
        | {file, file:filename_all(), term()}
        | {reader_down, term()}}.
merge(Fun, Acc, Files) -> weir_log_merge:merge(Fun, Acc, Files).
