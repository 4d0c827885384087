%% @doc The options of a handler: which are its own, which are its log's, and what may change while it runs.
%%
%% A pure module: no process, no state.
-module(weir_log_h_config).

-export([check/1, change/3, log_options/1]).

-define(OWN, [ack, sync_interval]).
-define(DEFAULTS, #{ack => none, sync_interval => 5_000}).
-define(CHANGEABLE, [sync_interval]).

%% The longest time that a timer can be given.
-define(MAX_MS, 4294967295).

%% @doc Checks the handler's own options and fills in their defaults. Those of the log are checked when it is started.
-spec check(term()) -> {ok, map()} | {error, {missing_option, file} | {bad_option, term(), term()}}.
check(Given) when is_map(Given) ->
    case [{Key, Value} || {Key, Value} <- lists:sort(maps:to_list(Given)), not is_valid(Key, Value)] of
        [{Key, Value} | _] -> {error, {bad_option, Key, Value}};
        [] when not is_map_key(file, Given) -> {error, {missing_option, file}};
        [] -> {ok, maps:merge(?DEFAULTS, Given)}
    end;
check(Given) ->
    {error, {bad_option, config, Given}}.

is_valid(ack, Ack) -> lists:member(Ack, [none, accepted, written, synced]);
is_valid(sync_interval, Interval) -> Interval =:= infinity orelse is_positive(Interval);
is_valid(newline, _) -> false;
is_valid(_OfTheLog, _) -> true.

is_positive(Term) -> is_integer(Term) andalso Term > 0 andalso Term =< ?MAX_MS.

%% @doc The options after a change. An `update' keeps what it does not mention; a `set' brings the changeable ones back
%% to their defaults, and keeps the others too. An option that may not change may be mentioned with its old value.
-spec change(set | update, Old :: map(), Given :: term()) ->
    {ok, map()} | {error, {cannot_change, term()} | {bad_option, term(), term()}}.
change(SetOrUpdate, Old, Given) when is_map(Given) ->
    Base =
        case SetOrUpdate of
            update -> Old;
            set -> maps:merge(Old, maps:with(?CHANGEABLE, ?DEFAULTS))
        end,
    New = maps:merge(Base, Given),
    Fixed = maps:without(?CHANGEABLE, Old),
    case check(New) of
        {error, Reason} ->
            {error, Reason};
        {ok, New} ->
            Wanted = lists:sort(maps:to_list(maps:without(?CHANGEABLE, New))),
            case [Key || {Key, Value} <- Wanted, differs(Key, Value, Fixed)] of
                [Key | _] -> {error, {cannot_change, Key}};
                [] -> {ok, New}
            end
    end;
change(_SetOrUpdate, _Old, Given) ->
    {error, {bad_option, config, Given}}.

differs(Key, Value, Fixed) ->
    case Fixed of
        #{Key := Value} -> false;
        #{} -> true
    end.

%% @doc What the log is started with.
-spec log_options(map()) -> map().
log_options(#{ack := none} = Options) -> maps:without(?OWN, Options);
log_options(#{ack := Ack} = Options) -> (maps:without(?OWN, Options))#{ack => Ack}.
