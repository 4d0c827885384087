%% @doc The options of a log, checked before anything is started.
%%
%% No process, no state.
-module(weir_log_opts).

-export([check/1, change/2, absolute/1, paths/1]).

-include("weir_log.hrl").

-define(DEFAULTS, #{
    ack => written,
    newline => false,
    frame => false,
    max_bytes => 33_554_432,
    overload => wait,
    timeout => infinity,
    shards => 1,
    rotate => #{},
    check_ms => 1000,
    mode => default,
    owner => default,
    sync_interval => infinity,
    tell => default,
    report => true,
    heal => false,
    words => none,
    file_module => weir_log_file
}).

-define(FIXED, [file, file_module, frame, heal, newline, shards, words]).

%% Who does not wait at the edge should not meet it in a burst.
-define(WINDOW, 16).
-define(WINDOW_WITHOUT_WAIT, 1024).

-define(ROTATE, #{
    max_bytes => infinity,
    interval => none,
    keep_files => infinity,
    keep_bytes => infinity,
    keep_days => infinity,
    gzip => false,
    hook => none,
    date_format => default
}).

-define(MAX_SHARDS, 256).

%% What fits into the word of what waits, with room to spare.
-define(MAX_BYTES, (1 bsl 36)).

%% Milliseconds that a timer takes.
-define(MAX_MS, 16#ffffffff).

%% @doc Checks a map of options and fills in the defaults.
%%
%% Of several mistakes, the one whose key comes first in the order of terms is reported; of `frame' and `newline'
%% together, `newline'; a missing file last. An option within `rotate' is reported as `rotate' with the whole value. Not
%% a map: `badarg'.
-spec check(weir_log:options()) ->
    {ok, #conf{}} | {error, {bad_option, Key :: term(), Value :: term()} | {missing_option, file}}.
check(Opts) when is_map(Opts) ->
    case [{Key, Value} || {Key, Value} <- lists:sort(maps:to_list(Opts)), not is_valid(Key, Value)] of
        [{Key, Value} | _] -> {error, {bad_option, Key, Value}};
        [] when not is_map_key(file, Opts) -> {error, {missing_option, file}};
        [] ->
            Given = maps:merge(?DEFAULTS, Opts),
            conf(Given, Given)
    end;
check(Opts) ->
    error(badarg, [Opts]).

%% @doc The configuration with some options changed. What the files are and what is in them cannot be.
-spec change(weir_log:options(), #conf{}) ->
    {ok, #conf{}} | {error, {bad_option, Key :: term(), Value :: term()} | {cannot_change, Key :: term()}}.
change(Changes, #conf{given = Given}) ->
    Merged = maps:merge(Given, Changes),
    case [Key || Key <- ?FIXED, maps:find(Key, Merged) =/= maps:find(Key, Given)] of
        [Key | _] -> {error, {cannot_change, Key}};
        [] -> check(Merged)
    end.

%% Standard output is one, belongs to others too, and cannot be read back.
conf(#{file := standard_io, frame := Frame, rotate := Rotate, shards := Shards} = Opts, Given) ->
    if
        Frame -> {error, {bad_option, frame, Frame}};
        Rotate =/= #{} -> {error, {bad_option, rotate, Rotate}};
        Shards > 1 -> {error, {bad_option, shards, Shards}};
        true -> conf(Opts#{file := "/dev/stdout"}, Given)
    end;
conf(#{frame := true, newline := Newline}, _Given) when Newline =/= false ->
    {error, {bad_option, newline, Newline}};
conf(Opts, Given) ->
    {ok, #conf{
        given = Given,
        file = weir_log_path:absname(maps:get(file, Opts)),
        ack = maps:get(ack, Opts),
        format = format(Opts),
        window = maps:get(window, Opts, default_window(Opts)),
        max_bytes = maps:get(max_bytes, Opts),
        overload = maps:get(overload, Opts),
        timeout = maps:get(timeout, Opts),
        shards = maps:get(shards, Opts),
        rotate = maps:merge(?ROTATE, maps:get(rotate, Opts)),
        check_ms = maps:get(check_ms, Opts),
        mode = maps:get(mode, Opts),
        owner = maps:get(owner, Opts),
        sync_interval = maps:get(sync_interval, Opts),
        tell = maps:get(tell, Opts),
        report = maps:get(report, Opts),
        heal = maps:get(heal, Opts),
        words = maps:get(words, Opts),
        file_module = maps:get(file_module, Opts)
    }}.

%% @doc Makes the file's name absolute, for who is given the options again in another working directory.
-spec absolute(weir_log:options()) -> weir_log:options().
absolute(#{file := File} = Opts) ->
    case is_file(File) of
        true -> Opts#{file := weir_log_path:absname(File)};
        false -> Opts
    end;
absolute(Opts) ->
    Opts.

default_window(#{overload := wait}) -> ?WINDOW;
default_window(#{}) -> ?WINDOW_WITHOUT_WAIT.

format(#{frame := true}) -> frame;
format(#{newline := true}) -> newline;
format(#{newline := ended}) -> lines;
format(#{}) -> raw.

is_valid(file, File) -> File =:= standard_io orelse is_file(File);
is_valid(ack, Ack) -> lists:member(Ack, [accepted, written, synced]);
is_valid(newline, Newline) -> is_boolean(Newline) orelse Newline =:= ended;
is_valid(frame, Frame) -> is_boolean(Frame);
is_valid(window, Window) -> is_positive(Window);
is_valid(max_bytes, infinity) -> true;
is_valid(max_bytes, Max) -> is_positive(Max) andalso Max =< ?MAX_BYTES;
is_valid(overload, wait) -> true;
is_valid(overload, reject) -> true;
is_valid(overload, {drop, Fun}) when is_function(Fun, 1) -> true;
is_valid(overload, {drop, Level}) -> lists:member(Level, ?LEVELS -- [none]);
is_valid(timeout, infinity) -> true;
is_valid(timeout, Ms) -> is_ms(Ms) andalso Ms > 0;
is_valid(shards, Shards) -> is_positive(Shards) andalso Shards =< ?MAX_SHARDS;
is_valid(rotate, Rotate) when is_map(Rotate) -> lists:all(fun is_rotate/1, maps:to_list(Rotate));
is_valid(check_ms, Ms) -> is_ms(Ms);
is_valid(mode, default) -> true;
is_valid(mode, Mode) -> is_count(Mode) andalso Mode =< 8#7777;
is_valid(owner, default) -> true;
is_valid(owner, {Uid, Gid}) -> is_id(Uid) andalso is_id(Gid);
is_valid(sync_interval, infinity) -> true;
is_valid(sync_interval, Ms) -> is_ms(Ms) andalso Ms > 0;
is_valid(tell, default) -> true;
is_valid(tell, Fun) -> is_function(Fun, 1);
is_valid(report, Report) -> is_boolean(Report);
is_valid(heal, Heal) -> is_boolean(Heal);
is_valid(words, Words) -> Words =:= none orelse is_list(Words);
is_valid(file_module, Module) -> is_atom(Module) andalso code:ensure_loaded(Module) =:= {module, Module};
is_valid(_Unknown, _Value) -> false.

is_rotate({max_bytes, Max}) -> Max =:= infinity orelse is_positive(Max);
is_rotate({interval, Interval}) -> lists:member(Interval, [none, hourly, daily]);
is_rotate({keep_files, Keep}) -> Keep =:= infinity orelse is_count(Keep);
is_rotate({keep_bytes, Keep}) -> Keep =:= infinity orelse is_positive(Keep);
is_rotate({keep_days, Keep}) -> Keep =:= infinity orelse is_positive(Keep);
is_rotate({gzip, Gzip}) -> is_boolean(Gzip);
is_rotate({hook, {Module, Function, Arguments}}) ->
    is_atom(Module) andalso is_atom(Function) andalso is_list(Arguments);
is_rotate({hook, Hook}) -> Hook =:= none orelse is_function(Hook, 1);
is_rotate({date_format, Format}) -> weir_log_rotation:dates(Format) =/= error;
is_rotate(_Unknown) -> false.

%% A binary, or a string of characters; not empty, and without a zero, which no file system takes.
is_file(File) when is_binary(File) -> File =/= <<>> andalso binary:match(File, <<0>>) =:= nomatch;
is_file([_ | _] = File) -> lists:all(fun(Char) -> is_integer(Char) andalso Char > 0 end, proper(File));
is_file(_) -> false.

proper(List) ->
    try length(List) of
        _ -> List
    catch
        error:badarg -> [none]
    end.

is_positive(Term) -> is_integer(Term) andalso Term > 0.

is_count(Term) -> is_integer(Term) andalso Term >= 0.

%% The greatest one stands for none.
is_id(Term) -> is_count(Term) andalso Term < 16#ffffffff.

is_ms(Term) -> is_count(Term) andalso Term =< ?MAX_MS.

%% @doc The files of a log: the one given, or, of a log with shards, that name with `.shard1' and so on. (`.1' is what
%% others call files that they rotate: logrotate, and run_erl its `erlang.log.1'.)
-spec paths(#conf{}) -> [file:filename_all()].
paths(#conf{file = File, shards = 1}) -> [File];
paths(#conf{file = File, shards = Shards}) -> [numbered(File, Number) || Number <- lists:seq(1, Shards)].

numbered(File, Number) when is_binary(File) -> <<File/binary, ".shard", (integer_to_binary(Number))/binary>>;
numbered(File, Number) -> File ++ ".shard" ++ integer_to_list(Number).
