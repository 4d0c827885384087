%% @doc Checks the options of a pool and of a claim, and has the texts that the shell shows about wrong arguments.
%%
%% A pure module: it has no process and no state.
%% @private
-module(weir_pool_opts).

-export([options/0, check/1, intensity/2, claim/1, format_error/2]).

-include("weir_pool.hrl").

%% Default of `intensity'. Workers often talk to one backend, so they die together. With this number a pool survives two
%% such deaths of all workers within a period. The constant helps small pools.
-define(DEFAULT_INTENSITY(Slots), (2 * (Slots) + 10)).

%% Which pools may have an option: all pools, or only pools that start their workers.
-type pools() :: all | with_workers.

%% @private
%% Returns the table of options: key, default, check of a value, and the pools that may have the option. The type
%% `weir_pool:opts()' documents each option. The record `#conf{}' has a field of the same name.
-spec options() -> [{Key :: atom(), Default :: term(), IsValid :: fun((term()) -> boolean()), pools()}].
options() ->
    [
        {worker, mandatory, fun is_worker/1, all},
        %% Mandatory with a worker (with_size/1).
        {size, 0, fun is_size/1, all},
        {pass_slot, false, fun is_boolean/1, with_workers},
        {restart, permanent, one_of([permanent, transient, temporary]), with_workers},
        {shutdown, 5000, fun is_shutdown/1, with_workers},
        {intensity, default, fun is_count/1, with_workers},
        {period, 5, fun is_positive/1, with_workers},
        {start, sync, one_of([sync, async]), with_workers},
        {backoff, {100, 30_000}, fun is_backoff/1, all},
        {check, none, fun is_check/1, with_workers},
        %% `true' if the pool has no workers of its own and no size is given (with_size/1).
        {auto_size, false, fun is_boolean/1, all},
        {strategy, round_robin, fun is_strategy/1, all},
        {queue, fifo, one_of([fifo, lifo]), all},
        {max_queue, 10_000, fun is_count/1, all},
        {codel, off, fun is_codel/1, all},
        {overflow, #{max => 0, linger => 0}, fun is_overflow/1, with_workers},
        {abandoned, replace, fun is_abandoned/1, all}
    ].

%% @doc Checks a map or a keyword list of options and fills in the defaults.
%%
%% If several options are wrong, returns the error of the key that comes first in the order of terms. Reports a
%% contradiction only if no option is wrong by itself, and a missing option only if there is no contradiction.
%% Raises `badarg' if `Opts' is neither a map nor a keyword list.
-spec check(weir_pool:opts()) -> {ok, #conf{}} | {error, weir_pool:option_error()}.
check(Opts) ->
    case to_map(Opts) of
        {ok, Map} -> check_map(inner_map(overflow, inner_map(codel, Map)));
        error -> ?BADARG([Opts], #{1 => "neither a map nor a keyword list of options"})
    end.

%% Returns options as a map. If a list has a key twice, the first value counts, as in proplists.
to_map(Opts) when is_map(Opts) ->
    {ok, Opts};
to_map(Opts) ->
    case is_proper_list(Opts) andalso lists:all(fun is_pair/1, Opts) of
        true -> {ok, maps:from_list(lists:reverse(Opts))};
        false -> error
    end.

is_pair({Key, _Value}) -> is_atom(Key);
is_pair(_) -> false.

%% Replaces the value of an option by a map, if the value is a keyword list. Other values stay for their check.
inner_map(Key, Opts) ->
    case Opts of
        #{Key := [_ | _] = List} ->
            case to_map(List) of
                {ok, Map} -> Opts#{Key := Map};
                error -> Opts
            end;
        #{} ->
            Opts
    end.

check_map(Opts) ->
    Given = lists:sort(maps:to_list(Opts)),
    case [Option || Option <- Given, not is_valid(Option)] of
        [{Key, Value} | _] -> {error, {bad_option, Key, Value}};
        [] -> check_together(Given, Opts)
    end.

is_valid({Key, Value}) ->
    case lists:keyfind(Key, 1, options()) of
        {Key, _Default, IsValid, _Pools} -> IsValid(Value);
        false -> false
    end.

check_together(Given, Opts) ->
    case [{Option, Other} || {Key, _} = Option <- Given, Other <- contradictions(Key, Opts)] of
        [{Option, Other} | _] -> {error, {contradicting_options, Option, Other}};
        [] when not is_map_key(worker, Opts) -> {error, {missing_option, worker}};
        [] -> with_size(Opts)
    end.

%% Returns the option that contradicts the option Key, if there is one. All values are valid by themselves.
contradictions(size, #{size := 0, worker := {_, _, _} = Worker} = Opts) ->
    %% Without overflow the pool could never have a worker.
    case Opts of
        #{overflow := #{max := Max}} when Max > 0 -> [];
        #{} -> [{worker, Worker}]
    end;
contradictions(size, #{size := Size, overflow := #{max := Max} = Overflow}) when Size + Max > ?MAX_SIZE ->
    [{overflow, Overflow}];
contradictions(auto_size, #{auto_size := true, worker := {_, _, _} = Worker}) ->
    [{worker, Worker}];
contradictions(codel, #{codel := #{}, queue := lifo}) ->
    [{queue, lifo}];
contradictions(Key, #{start := async}) when Key =:= intensity; Key =:= period ->
    [{start, async}];
contradictions(backoff, Opts) ->
    %% Only these starts are tried again after a pause.
    case Opts of
        #{start := async} -> [];
        #{overflow := _} -> [];
        #{} -> [{start, sync}]
    end;
contradictions(Key, #{worker := none}) ->
    [{worker, none} || {Option, _, _, with_workers} <- options(), Option =:= Key];
contradictions(_Key, _Opts) ->
    [].

with_size(#{size := _} = Opts) -> {ok, conf(Opts)};
with_size(#{worker := none} = Opts) -> {ok, conf(maps:merge(#{auto_size => true}, Opts))};
with_size(_Opts) -> {error, {missing_option, size}}.

%% The fields of the record have the names of the options.
conf(Opts) ->
    Defaults = maps:from_list([{Key, Default} || {Key, Default, _, _} <- options()]),
    #{codel := Codel, overflow := #{max := Max, linger := Linger}} = All = maps:merge(Defaults, Opts),
    Conf = All#{codel := codel(Codel), overflow := {Max, Linger}},
    list_to_tuple([conf | [maps:get(Key, Conf) || Key <- record_info(fields, conf)]]).

codel(off) -> off;
codel(#{target := Target, interval := Interval}) -> {Target, Interval}.

%% @doc Returns how many restarts within a period a pool with this configuration and size survives.
-spec intensity(#conf{}, Size :: non_neg_integer()) -> non_neg_integer().
intensity(#conf{intensity = default, overflow = {Overflow, _}}, Size) -> ?DEFAULT_INTENSITY(Size + Overflow);
intensity(#conf{intensity = Intensity}, _Size) -> Intensity.

%% ---------------------------------------------------------------- checks of one value

one_of(Values) -> fun(Value) -> lists:member(Value, Values) end.

is_worker(none) -> true;
is_worker({M, F, A}) -> is_atom(M) andalso is_atom(F) andalso is_proper_list(A);
is_worker(_) -> false.

is_size(Size) -> is_count(Size) andalso Size =< ?MAX_SIZE.

is_shutdown(Shutdown) -> Shutdown =:= brutal_kill orelse Shutdown =:= infinity orelse is_ms(Shutdown).

is_backoff({Min, Max}) -> is_positive(Min) andalso is_positive(Max) andalso Min =< Max andalso is_ms(Max);
is_backoff(_) -> false.

is_check({Fun, Interval}) -> is_function(Fun, 1) andalso is_positive(Interval) andalso is_ms(Interval);
is_check(_) -> false.

is_strategy(Strategy) ->
    lists:member(Strategy, [round_robin, random, hash, direct, least_loaded]) orelse is_strategy_module(Strategy).

is_strategy_module(Module) ->
    is_atom(Module) andalso code:ensure_loaded(Module) =:= {module, Module} andalso
        erlang:function_exported(Module, slot, 2).

is_codel(#{target := Target, interval := Interval} = Codel) ->
    map_size(Codel) =:= 2 andalso is_positive(Target) andalso is_ms(Interval) andalso Target < Interval;
is_codel(Codel) ->
    Codel =:= off.

is_overflow(#{max := Max, linger := Linger} = Overflow) ->
    map_size(Overflow) =:= 2 andalso is_size(Max) andalso is_ms(Linger);
is_overflow(_) ->
    false.

is_abandoned({wait, Ms}) -> is_ms(Ms);
is_abandoned(Abandoned) -> Abandoned =:= replace orelse Abandoned =:= free.

is_positive(Term) -> is_integer(Term) andalso Term > 0.

is_count(Term) -> is_integer(Term) andalso Term >= 0.

is_ms(Term) -> is_count(Term) andalso Term =< ?MAX_MS.

is_proper_list([_ | Tail]) -> is_proper_list(Tail);
is_proper_list(Term) -> Term =:= [].

%% ---------------------------------------------------------------- claims

%% @doc Returns what a claim covers and its time-out in milliseconds, from a map, a keyword list or a time-out.
%%
%% If the options are wrong, returns the text for the shell. The first three clauses serve most claims without a merge.
-spec claim(weir_pool:claim_opts()) -> {wait | work, timeout()} | {error, Why :: string()}.
claim(#{timeout := Timeout} = Opts) when map_size(Opts) =:= 1, ?IS_TIMEOUT(Timeout) ->
    {wait, Timeout};
claim(Opts) when Opts =:= #{} ->
    {wait, 0};
claim(Timeout) when ?IS_TIMEOUT(Timeout) ->
    {wait, Timeout};
claim(Opts) ->
    case to_map(Opts) of
        {ok, Map} -> claim_of_map(Map);
        error -> {error, "neither a time-out in milliseconds, nor a map or a keyword list of options"}
    end.

claim_of_map(Opts) ->
    case maps:merge(#{timeout => 0, covers => wait}, Opts) of
        All when map_size(All) > 2 ->
            [Unknown | _] = maps:keys(maps:without([timeout, covers], All)),
            {error, text("the option ~tp does not exist; a claim has the options timeout and covers", [Unknown])};
        #{covers := Covers} when Covers =/= wait, Covers =/= work ->
            {error, text("the option covers must be wait or work, not ~tp", [Covers])};
        #{covers := work} when not is_map_key(timeout, Opts) ->
            {error, "covers => work needs the option timeout as well"};
        #{timeout := Timeout} when not ?IS_TIMEOUT(Timeout) ->
            {error, text("the option timeout must be milliseconds or infinity, not ~tp", [Timeout])};
        #{covers := Covers, timeout := Timeout} ->
            {Covers, Timeout}
    end.

text(Format, Args) -> lists:flatten(io_lib:format(Format, Args)).

%% @private
%% Returns the texts for the shell about wrong arguments, by argument. The runtime calls this function because
%% `error_info' in the exceptions of this application names this module.
-spec format_error(term(), erlang:stacktrace()) -> #{pos_integer() => unicode:chardata()}.
format_error(_Reason, [{_M, _F, _Args, Info} | _]) ->
    #{cause := Causes} = proplists:get_value(error_info, Info, #{cause => #{}}),
    Causes.
