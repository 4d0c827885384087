%% @doc lager, as a peer of weir_log_h: its file backend, set up so that it loses nothing.
%%
%% lager and goldrush, which it needs, come from Debian's packages erlang-lager and erlang-goldrush, out of which
%% scripts/setup unpacks them into `${XDG_CACHE_HOME:-~/.cache}/weir/peers'. Where they could not be fetched,
%% {@link find/0} says so. lager is called as code is that its parse transform has made: without arguments nothing is
%% formatted but the line.
%%
%% At its best: no high-water mark, no rotation, no crash log, no redirection of error_logger, and no sync at level
%% error, which it makes for each entry by default; its file is buffered, 64 KB or a second.
-module(weir_bench_lager).

-export([find/0, version/0, start/3, drain/2, stop/1, log/3, prefix/0]).

-define(PACKAGES, ["erlang-goldrush", "erlang-lager"]).
-define(SINK, lager_event).
-define(BACKEND, lager_file_backend).
%% How much of a message lager shows at most.
-define(TRUNCATION, 4096).

%% @doc The module, if this machine has it. Cost: the start of an application, the first time.
-spec find() -> {ok, module()} | error.
find() ->
    lists:foreach(fun(Package) -> _ = code:add_pathz(directory(Package)) end, ?PACKAGES),
    case {code:ensure_loaded(lager), application:ensure_all_started(goldrush)} of
        {{module, Lager}, {ok, _}} -> {ok, Lager};
        _ -> error
    end.

%% @doc The version of the package, for people.
-spec version() -> string().
version() ->
    case {find(), file:read_file(filename:join(directory("erlang-lager"), "version"))} of
        {{ok, _}, {ok, Version}} -> "erlang-lager " ++ string:trim(binary_to_list(Version));
        _ -> "erlang-lager is not there: its rows are left out"
    end.

directory(Package) ->
    filename:join([filename:basedir(user_cache, "weir"), "peers", Package]).

%% @doc Starts lager with one file. The threshold: so many messages may wait for its one process before it makes its
%% callers wait for it, until there are a quarter fewer.
-spec start(Lager :: module(), file:filename(), Threshold :: pos_integer()) -> ok.
start(Lager, File, Threshold) ->
    Format = [date, " ", time, " ", severity, " ", pid, " ", message, "\n"],
    Backend = [
        {file, File}, {level, error}, {size, 0}, {date, ""}, {count, 0}, {sync_on, none},
        {formatter, lager_default_formatter}, {formatter_config, Format}
    ],
    _ = application:load(Lager),
    lists:foreach(fun({Key, Value}) -> ok = application:set_env(Lager, Key, Value) end, [
        {handlers, [{?BACKEND, Backend}]},
        {async_threshold, Threshold},
        {async_threshold_window, Threshold div 4},
        {error_logger_redirect, false},
        {crash_log, undefined}
    ]),
    {ok, _} = application:ensure_all_started(Lager),
    ok.

%% @doc Returns when all that was logged is in the file, and durable: the backend is removed, which writes its buffer,
%% after all that was sent to its process before.
-spec drain(Lager :: module(), file:filename()) -> ok.
drain(_Lager, File) ->
    _ = gen_event:which_handlers(?SINK),
    _ = gen_event:delete_handler(?SINK, {?BACKEND, File}, drained),
    {ok, Fd} = file:open(File, [append, raw, binary]),
    ok = file:datasync(Fd),
    file:close(Fd).

%% @doc Stops it.
-spec stop(Lager :: module()) -> ok.
stop(Lager) -> application:stop(Lager).

%% @doc Logs so many entries at level error.
-spec log(Lager :: module(), non_neg_integer(), string()) -> ok.
log(_Lager, 0, _Text) ->
    ok;
log(Lager, N, Text) ->
    ok = Lager:dispatch_log(error, [{pid, pid_to_list(self())}], Text, none, ?TRUNCATION),
    log(Lager, N - 1, Text).

%% @doc How many bytes the formatter puts in front of the text for the calling process: the date in 10 bytes, the time
%% in 12, the level in 5, the pid, and a space behind each.
-spec prefix() -> pos_integer().
prefix() -> 31 + length(pid_to_list(self())).
