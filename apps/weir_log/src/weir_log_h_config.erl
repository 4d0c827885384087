%% @doc The options of a handler: which are its own, which are its log's, and what may change while it runs.
%%
%% A pure module: no process, no state.
%% @private
-module(weir_log_h_config).

-export([check/1, change/3, log_options/2]).

-include("weir_log.hrl").
-include("weir_log_h.hrl").

-define(DEFAULTS, #{ack => none, sync_on => none, rate => #{}, timeout => 5_000, sync_interval => 5_000}).
-define(FIXED, [file, shards, frame, file_module]).

%% @doc Checks the handler's own options and fills in their defaults. Those of the log are checked when it is started.
-spec check(term()) -> {ok, map()} | {error, {missing_option, file} | {bad_option, term(), term()}}.
check(Given) ->
    case weir_log_opts:to_map(Given) of
        {ok, #{rate := Rate} = Map} -> check_map(Map#{rate := to_map(Rate)});
        {ok, Map} -> check_map(Map);
        error -> {error, {bad_option, config, Given}}
    end.

%% What is neither a map nor a keyword list stays as it is, and is refused.
to_map(Given) ->
    case weir_log_opts:to_map(Given) of
        {ok, Map} -> Map;
        error -> Given
    end.

check_map(Given) ->
    case [{Key, Value} || {Key, Value} <- lists:sort(maps:to_list(Given)), not is_valid(Key, Value)] of
        [{Key, Value} | _] -> {error, {bad_option, Key, Value}};
        [] when not is_map_key(file, Given) -> {error, {missing_option, file}};
        [] -> {ok, maps:merge(?DEFAULTS, Given)}
    end.

is_valid(ack, Ack) -> lists:member(Ack, [none, accepted, written, synced]);
is_valid(sync_on, Level) -> lists:member(Level, ?LEVELS);
is_valid(rate, Rate) when is_map(Rate) -> lists:all(fun is_rate/1, maps:to_list(Rate));
is_valid(rate, _) -> false;
%% The formatter decides where lines end; the others are the handler's.
is_valid(Key, _) when Key =:= newline; Key =:= words; Key =:= heal; Key =:= tell -> false;
is_valid(_OfTheLog, _) -> true.

is_rate({Level, N}) -> lists:member(Level, ?LEVELS -- [none]) andalso is_integer(N) andalso N > 0 andalso N < 1 bsl 24.

%% @doc The options after a change. An `update' keeps what it does not mention; a `set' brings what it does not mention
%% back to the defaults, but for what may not change, which may be mentioned with its old value.
-spec change(set | update, Old :: map(), Given :: term()) ->
    {ok, map()} | {error, {cannot_change, term()} | {bad_option, term(), term()}}.
change(SetOrUpdate, Old, Given) ->
    case weir_log_opts:to_map(Given) of
        {ok, Map} -> change_map(SetOrUpdate, Old, Map);
        error -> {error, {bad_option, config, Given}}
    end.

change_map(SetOrUpdate, Old, Given) ->
    Base =
        case SetOrUpdate of
            update -> Old;
            set -> maps:with(?FIXED, Old)
        end,
    New = maps:merge(Base, Given),
    case [Key || Key <- ?FIXED, maps:find(Key, New) =/= maps:find(Key, Old)] of
        [Key | _] -> {error, {cannot_change, Key}};
        [] -> check(New)
    end.

%% @doc What the log is started with.
-spec log_options(map(), #handle{}) -> weir_log:options().
log_options(#{ack := Ack} = Options, #handle{words = Words}) ->
    %% External functions: one with an environment would have the writer killed when its module was loaded twice.
    Own = #{tell => fun weir_log_h_format:lost/1, heal => true, words => Words, newline => newline(Options)},
    Log = counted(maps:merge(maps:without([sync_on, rate], Options), Own)),
    case Ack of
        none -> maps:remove(ack, Log);
        _ -> Log
    end.

%% What formatters make ends with a newline.
newline(#{frame := true}) -> false;
newline(_) -> ended.

%% Nobody can be told that an event was refused: it is dropped, which is counted by level.
counted(#{overload := reject} = Options) -> Options#{overload := {drop, fun erlang:is_atom/1}};
counted(Options) -> Options.
