%% @doc The options of a published pool and of a call, checked before anything is done, and what the shell says of wrong
%% arguments.
%%
%% A pure module: no process, no state.
%% @private
-module(weir_cluster_opts).

-export([check/2, call/2, format_error/2]).

-include("weir_cluster.hrl").

%% Every option: its key, its default, and what says whether a value is one. weir_cluster:opts() tells users of it.
options() ->
    [
        {serve, true, fun is_boolean/1},
        {room, 2, fun(V) -> V =:= infinity orelse is_positive(V) end},
        {window, 1000, fun(V) -> is_positive(V) andalso V >= 16 end},
        {max_calls, 10_000, fun is_positive/1},
        {zone, none, fun(_) -> true end},
        {weight, size, fun(V) -> V =:= size orelse is_positive(V) andalso V =< 1_000_000 end},
        {policy, weir_cluster_policy, fun is_policy/1},
        {shutdown, 5000, fun(V) -> ?IS_TIMEOUT(V) end}
    ].

is_positive(V) -> is_integer(V) andalso V > 0.

is_policy(Module) ->
    is_atom(Module) andalso code:ensure_loaded(Module) =:= {module, Module} andalso
        erlang:function_exported(Module, choose, 2).

%% @doc Checks a map or a keyword list of options. Of several mistakes the one whose key comes first is reported.
-spec check(weir_pool:name(), weir_cluster:opts()) -> {ok, #conf{}} | {error, weir_cluster:option_error()}.
check(Name, Opts) ->
    case to_map(Opts) of
        {ok, Map} -> check_map(Name, Map);
        error -> ?BADARG([Name, Opts], #{2 => "neither a map nor a keyword list of options"})
    end.

check_map(Name, Opts) ->
    case [{Key, Value} || {Key, Value} <- lists:sort(maps:to_list(Opts)), not is_valid(Key, Value)] of
        [{Key, Value} | _] ->
            {error, {bad_option, Key, Value}};
        [] ->
            All = maps:merge(maps:from_list([{Key, Default} || {Key, Default, _} <- options()]), Opts),
            Fields = All#{name => Name, counters => weir_cluster_here:new(), keys => weir_cluster_keys:new_table()},
            {ok, list_to_tuple([conf | [maps:get(Field, Fields) || Field <- record_info(fields, conf)]])}
    end.

is_valid(Key, Value) ->
    case lists:keyfind(Key, 1, options()) of
        {Key, _Default, Is} -> Is(Value);
        false -> false
    end.

to_map(Opts) when is_map(Opts) -> {ok, Opts};
to_map(Opts) ->
    try lists:all(fun(Opt) -> is_tuple(Opt) andalso tuple_size(Opt) =:= 2 andalso is_atom(element(1, Opt)) end, Opts) of
        %% The first of a key counts, as in proplists and keywords.
        true -> {ok, maps:from_list(lists:reverse(Opts))};
        false -> error
    catch
        error:_ -> error
    end.

%% @doc The time-out of a call, and whether it may be begun twice. `badarg' if they are not such; `Args' are the call's,
%% the options last.
-spec call(weir_cluster:call_opts(), Args :: [term()]) -> {timeout(), Idempotent :: boolean()}.
call(Timeout, _Args) when ?IS_TIMEOUT(Timeout) ->
    {Timeout, false};
call(Opts, Args) ->
    Wrong = "neither a time-out (milliseconds or infinity) nor a map or keyword list of timeout and idempotent",
    case to_map(Opts) of
        {ok, Map} when map_size(Map) =< 2 ->
            case maps:merge(#{timeout => 5000, idempotent => false}, Map) of
                #{timeout := Timeout, idempotent := Idempotent} = All when
                    map_size(All) =:= 2, ?IS_TIMEOUT(Timeout), is_boolean(Idempotent)
                ->
                    {Timeout, Idempotent};
                _ ->
                    ?BADARG(Args, #{length(Args) => Wrong})
            end;
        _ ->
            ?BADARG(Args, #{length(Args) => Wrong})
    end.

%% @private
%% What the shell says of a wrong argument: erl_error calls it.
-spec format_error(term(), [tuple()]) -> #{pos_integer() => unicode:chardata()}.
format_error(_Reason, [{_M, _F, _Args, Info} | _]) ->
    maps:get(cause, proplists:get_value(error_info, Info, #{}), #{}).
