%% @doc The options of a log, checked before anything is started.
%%
%% No process, no state.
%% @private
-module(weir_log_opts).

-export([options/0, rotation/0, check/1, change/2, absolute/1, to_map/1, paths/1]).

-type option() :: {Key :: atom(), Default :: term(), Is :: fun((term()) -> boolean())}.

-include("weir_log.hrl").

-define(FIXED, [file, file_module, frame, heal, newline, shards, words]).

%% Who does not wait at the edge should not meet it in a burst.
-define(WINDOW, 16).
-define(WINDOW_WITHOUT_WAIT, 1024).

-define(MAX_SHARDS, 256).

%% What fits into the word of what waits, with room to spare.
-define(MAX_BYTES, (1 bsl 36)).

%% Milliseconds that a timer takes.
-define(MAX_MS, 16#ffffffff).

%% @private
%% Every option: its key, its default, and what says whether a value is one. weir_log:options() tells users of it, and
%% the record #conf{} has a field for it.
-spec options() -> [option()].
options() ->
    [
        {file, mandatory, fun(V) -> V =:= standard_io orelse is_file(V) end},
        {ack, written, one_of([accepted, written, synced])},
        {newline, false, one_of([true, false, ended])},
        {frame, false, fun is_boolean/1},
        %% Which depends on `overload'.
        {window, default, fun(V) -> V =:= default orelse is_positive(V) end},
        {max_bytes, 33_554_432, fun(V) -> V =:= infinity orelse (is_positive(V) andalso V =< ?MAX_BYTES) end},
        {overload, wait, fun is_overload/1},
        {timeout, infinity, fun is_interval/1},
        {shards, 1, fun(V) -> is_positive(V) andalso V =< ?MAX_SHARDS end},
        {rotate, #{}, fun(V) -> is_map(V) andalso lists:all(fun is_rotate/1, maps:to_list(V)) end},
        {check_ms, 1000, fun is_ms/1},
        {mode, default, fun(V) -> V =:= default orelse (is_count(V) andalso V =< 8#7777) end},
        {owner, default, fun is_owner/1},
        {sync_interval, infinity, fun is_interval/1},
        {tell, default, fun(V) -> V =:= default orelse is_function(V, 1) end},
        {report, true, fun is_boolean/1},
        {heal, false, fun is_boolean/1},
        {words, none, fun(V) -> V =:= none orelse is_list(V) end},
        {file_module, weir_log_file, fun(V) -> is_atom(V) andalso code:ensure_loaded(V) =:= {module, V} end}
    ].

%% @private
%% The same of what is within `rotate'; weir_log:rotation() tells users of it.
-spec rotation() -> [option()].
rotation() ->
    [
        {max_bytes, infinity, fun is_limit/1},
        {interval, none, one_of([none, hourly, daily])},
        {keep_files, infinity, fun(V) -> V =:= infinity orelse is_count(V) end},
        {keep_bytes, infinity, fun is_limit/1},
        {keep_days, infinity, fun is_limit/1},
        {gzip, false, fun is_boolean/1},
        {hook, none, fun is_hook/1},
        {date_format, default, fun(V) -> weir_log_rotation:dates(V) =/= error end}
    ].

%% @doc Checks a map or a keyword list of options and fills in the defaults.
%%
%% Of several mistakes, the one whose key comes first in the order of terms is reported; of `frame' and `newline'
%% together, `newline'; a missing file last. An option within `rotate' is reported as `rotate' with the whole value.
%% Neither a map nor such a list: `badarg'.
-spec check(weir_log:options()) ->
    {ok, #conf{}} | {error, {bad_option, Key :: term(), Value :: term()} | {missing_option, file}}.
check(Opts) ->
    case to_map(Opts) of
        {ok, Map} -> check_map(Map);
        error -> error(badarg, [Opts])
    end.

check_map(Opts) ->
    case [{Key, Value} || {Key, Value} <- lists:sort(maps:to_list(Opts)), not is_valid(Key, Value)] of
        [{Key, Value} | _] -> {error, {bad_option, Key, Value}};
        [] when not is_map_key(file, Opts) -> {error, {missing_option, file}};
        [] ->
            Given = maps:merge(defaults(options()), Opts),
            conf(Given, Given)
    end.

%% @doc Options as a map: one, or what a keyword list says, of which the first of a key counts; so is `rotate' in them.
-spec to_map(term()) -> {ok, map()} | error.
to_map(#{rotate := [_ | _] = Rotate} = Opts) ->
    case from_list(Rotate) of
        {ok, Map} -> {ok, Opts#{rotate := Map}};
        error -> {ok, Opts}
    end;
to_map(#{rotate := []} = Opts) -> {ok, Opts#{rotate := #{}}};
to_map(Opts) when is_map(Opts) -> {ok, Opts};
to_map(Opts) ->
    case from_list(Opts) of
        {ok, Map} -> to_map(Map);
        error -> error
    end.

from_list([]) -> {ok, #{}};
from_list([{Key, Value} | Rest]) when is_atom(Key) ->
    case from_list(Rest) of
        {ok, Map} -> {ok, Map#{Key => Value}};
        error -> error
    end;
from_list(_) -> error.

%% @doc The configuration with some options changed. What the files are and what is in them cannot be.
-spec change(#{atom() => term()}, #conf{}) ->
    {ok, #conf{}} | {error, {bad_option, Key :: term(), Value :: term()} | {cannot_change, Key :: term()}}.
change(Changes, #conf{given = Given}) ->
    Merged = maps:merge(Given, Changes),
    case [Key || Key <- ?FIXED, maps:find(Key, Merged) =/= maps:find(Key, Given)] of
        [Key | _] -> {error, {cannot_change, Key}};
        [] -> check(Merged)
    end.

defaults(Options) -> maps:from_list([{Key, Default} || {Key, Default, _Is} <- Options, Default =/= mandatory]).

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
        window = window(Opts),
        max_bytes = maps:get(max_bytes, Opts),
        overload = maps:get(overload, Opts),
        timeout = maps:get(timeout, Opts),
        shards = maps:get(shards, Opts),
        rotate = maps:merge(defaults(rotation()), maps:get(rotate, Opts)),
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
absolute(Opts) ->
    case to_map(Opts) of
        {ok, #{file := File} = Map} ->
            case is_file(File) of
                true -> Map#{file := weir_log_path:absname(File)};
                false -> Map
            end;
        _ ->
            Opts
    end.

window(#{window := Window}) when is_integer(Window) -> Window;
window(#{overload := wait}) -> ?WINDOW;
window(#{}) -> ?WINDOW_WITHOUT_WAIT.

format(#{frame := true}) -> frame;
format(#{newline := true}) -> newline;
format(#{newline := ended}) -> lines;
format(#{}) -> raw.

is_valid(Key, Value) -> is_valid(Key, Value, options()).

is_valid(Key, Value, Options) ->
    case lists:keyfind(Key, 1, Options) of
        {Key, _Default, Is} -> Is(Value);
        false -> false
    end.

one_of(Values) -> fun(Value) -> lists:member(Value, Values) end.

is_overload(wait) -> true;
is_overload(reject) -> true;
is_overload({drop, Fun}) when is_function(Fun, 1) -> true;
is_overload({drop, Level}) -> lists:member(Level, ?LEVELS -- [none]);
is_overload(_) -> false.

is_owner({Uid, Gid}) -> is_id(Uid) andalso is_id(Gid);
is_owner(Owner) -> Owner =:= default.

is_rotate({Key, Value}) -> is_valid(Key, Value, rotation()).

is_limit(Limit) -> Limit =:= infinity orelse is_positive(Limit).

is_interval(Interval) -> Interval =:= infinity orelse (is_ms(Interval) andalso Interval > 0).

is_hook({Module, Function, Arguments}) -> is_atom(Module) andalso is_atom(Function) andalso is_list(Arguments);
is_hook(Hook) -> Hook =:= none orelse is_function(Hook, 1).

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
