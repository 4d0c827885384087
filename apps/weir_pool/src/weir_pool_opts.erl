%% @doc The options of a pool and of a claim, checked before anything is started, and what the shell says of wrong
%% arguments.
%%
%% A pure module: no process, no state.
%% @private
-module(weir_pool_opts).

-export([options/0, check/1, intensity/2, claim/1, format_error/2]).

-include("weir_pool.hrl").

%% Whatever the workers talk to may go away and take all of them with it, twice within a period, without the pool
%% giving up; the constant is for small pools.
-define(DEFAULT_INTENSITY(Slots), (2 * (Slots) + 10)).

%% Of no use where processes connect themselves.
-define(FOR_WORKERS, [pass_slot, restart, shutdown, intensity, period, start, overflow, check]).

%% @private
%% Every option: its key, its default, and what says whether a value is one. weir_pool:opts() tells users of it, and
%% the record #conf{} has a field of its name.
-spec options() -> [{atom(), Default :: term(), fun((term()) -> boolean())}].
options() ->
    [
        {worker, mandatory, fun is_worker/1},
        {size, 0, fun is_size/1},
        {pass_slot, false, fun is_boolean/1},
        {restart, permanent, one_of([permanent, transient, temporary])},
        {shutdown, 5000, fun(V) -> V =:= brutal_kill orelse V =:= infinity orelse is_ms(V) end},
        {intensity, default, fun is_count/1},
        {period, 5, fun is_positive/1},
        {start, sync, one_of([sync, async])},
        {backoff, {100, 30_000}, fun is_backoff/1},
        {check, none, fun is_check/1},
        %% Unless a size is missing (with_size/1).
        {auto_size, false, fun is_boolean/1},
        {strategy, round_robin, fun is_strategy/1},
        {queue, fifo, one_of([fifo, lifo])},
        {max_queue, 10_000, fun is_count/1},
        {codel, off, fun is_codel/1},
        {overflow, #{max => 0, linger => 0}, fun is_overflow/1},
        {abandoned, replace, fun is_abandoned/1}
    ].

%% @doc Checks a map or a keyword list of options and fills in the defaults.
%%
%% Of several mistakes, the one whose key comes first in the order of terms is reported; an option that contradicts
%% another after those that are wrong in themselves, and one that is missing last. Neither a map nor such a list:
%% `badarg'.
-spec check(weir_pool:opts()) -> {ok, #conf{}} | {error, weir_pool:option_error()}.
check(Opts) ->
    case to_map(Opts) of
        {ok, Map} -> check_map(nested(overflow, nested(codel, Map)));
        error -> ?BADARG([Opts], #{1 => "neither a map nor a keyword list of options"})
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

nested(Key, Opts) ->
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
    Wrong = [{Key, Value} || {Key, Value} <- Given, not is_valid(Key, Value)],
    Contradicting = [
        {Key, Value, Other}
     || Wrong =:= [], {Key, Value} <- Given, {true, Other} <- [contradicts(Key, Opts)]
    ],
    case {Wrong, Contradicting} of
        {[{Key, Value} | _], _} -> {error, {bad_option, Key, Value}};
        {[], [{Key, Value, Other} | _]} -> {error, {contradicting_options, {Key, Value}, Other}};
        {[], []} when not is_map_key(worker, Opts) -> {error, {missing_option, worker}};
        {[], []} -> with_size(Opts)
    end.

with_size(#{size := _} = Opts) -> {ok, conf(Opts)};
with_size(#{worker := none} = Opts) -> {ok, conf(maps:merge(#{auto_size => true}, Opts))};
with_size(_Opts) -> {error, {missing_option, size}}.

%% The fields of the record have the names of the options.
conf(Opts) ->
    #{codel := Codel, overflow := #{max := Max, linger := Linger}} =
        All = maps:merge(maps:from_list([{Key, Default} || {Key, Default, _} <- options()]), Opts),
    Conf = All#{codel := codel(Codel), overflow := {Max, Linger}},
    list_to_tuple([conf | [maps:get(Key, Conf) || Key <- record_info(fields, conf)]]).

%% @doc How many restarts within a period a pool of this configuration and size puts up with.
-spec intensity(#conf{}, Size :: non_neg_integer()) -> non_neg_integer().
intensity(#conf{intensity = default, overflow = {Overflow, _}}, Size) -> ?DEFAULT_INTENSITY(Size + Overflow);
intensity(#conf{intensity = Intensity}, _Size) -> Intensity.

codel(off) -> off;
codel(#{target := Target, interval := Interval}) -> {Target, Interval}.

is_valid(Key, Value) ->
    case lists:keyfind(Key, 1, options()) of
        {Key, _Default, Is} -> Is(Value);
        false -> false
    end.

one_of(Values) -> fun(Value) -> lists:member(Value, Values) end.

is_worker(none) -> true;
is_worker({M, F, A}) -> is_atom(M) andalso is_atom(F) andalso is_proper_list(A);
is_worker(_) -> false.

is_size(Size) -> is_count(Size) andalso Size =< ?MAX_SIZE.

is_backoff({Min, Max}) -> is_positive(Min) andalso is_positive(Max) andalso Min =< Max andalso is_ms(Max);
is_backoff(_) -> false.

is_check({Fun, Interval}) -> is_function(Fun, 1) andalso is_positive(Interval) andalso is_ms(Interval);
is_check(_) -> false.

is_strategy(Strategy) ->
    lists:member(Strategy, [round_robin, random, hash, direct, least_loaded]) orelse is_strategy_module(Strategy).

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

%% Whether an option makes no sense beside another, which is named.
contradicts(size, #{size := 0, worker := {_, _, _} = Worker} = Opts) ->
    %% All workers are started on demand, if any can be.
    unless(maps:get(max, maps:get(overflow, Opts, #{}), 0) > 0, {worker, Worker});
contradicts(size, #{size := Size, overflow := #{max := Max} = Overflow}) when Size + Max > ?MAX_SIZE ->
    {true, {overflow, Overflow}};
contradicts(auto_size, #{auto_size := true, worker := {_, _, _} = Worker}) ->
    {true, {worker, Worker}};
contradicts(codel, #{codel := #{}, queue := lifo}) ->
    {true, {queue, lifo}};
contradicts(Key, #{start := async}) when Key =:= intensity; Key =:= period ->
    {true, {start, async}};
contradicts(backoff, #{start := async}) ->
    false;
contradicts(backoff, #{overflow := _}) ->
    false;
contradicts(backoff, Opts) ->
    {true, {start, maps:get(start, Opts, sync)}};
contradicts(Key, Opts) ->
    unless(not lists:member(Key, ?FOR_WORKERS) orelse maps:get(worker, Opts, missing) =/= none, {worker, none}).

unless(true, _Other) -> false;
unless(false, Other) -> {true, Other}.

is_strategy_module(Module) ->
    is_atom(Module) andalso code:ensure_loaded(Module) =:= {module, Module} andalso
        erlang:function_exported(Module, slot, 2).

is_positive(Term) -> is_integer(Term) andalso Term > 0.

is_count(Term) -> is_integer(Term) andalso Term >= 0.

is_ms(Term) -> is_count(Term) andalso Term =< ?MAX_MS.

is_proper_list([_ | Tail]) -> is_proper_list(Tail);
is_proper_list(Term) -> Term =:= [].

%% @doc What a claim's options say: a map, a keyword list, or the time-out alone.
-spec claim(weir_pool:claim_opts()) -> {wait | work, timeout()} | {error, Why :: string()}.
claim(#{timeout := Timeout} = Opts) when map_size(Opts) =:= 1, ?IS_TIMEOUT(Timeout) ->
    {wait, Timeout};
claim(Opts) when Opts =:= #{} ->
    {wait, 0};
claim(Timeout) when ?IS_TIMEOUT(Timeout) ->
    {wait, Timeout};
claim(Opts) when is_map(Opts) ->
    case maps:merge(#{timeout => 0, covers => wait}, Opts) of
        #{covers := work} = All when not is_map_key(timeout, Opts), map_size(All) =:= 2 ->
            {error, "covers => work needs a timeout"};
        #{timeout := Timeout, covers := Covers} = All when map_size(All) =:= 2 ->
            claim(Covers, Timeout);
        All ->
            {error, text("unknown option ~tp", [hd(maps:keys(maps:without([timeout, covers], All)))])}
    end;
claim(Opts) ->
    case to_map(Opts) of
        {ok, Map} -> claim(Map);
        error -> {error, "neither a time-out in milliseconds, nor a map or a keyword list of options"}
    end.

claim(Covers, Timeout) when Covers =:= wait; Covers =:= work ->
    case ?IS_TIMEOUT(Timeout) of
        true -> {Covers, Timeout};
        false -> {error, text("timeout is ~tp, neither milliseconds nor infinity", [Timeout])}
    end;
claim(Covers, _Timeout) ->
    {error, text("covers is ~tp, not wait or work", [Covers])}.

text(Format, Args) -> lists:flatten(io_lib:format(Format, Args)).

%% @private
%% For the shell: `error_info' of this application's errors says what is wrong with which argument.
-spec format_error(term(), erlang:stacktrace()) -> #{pos_integer() => unicode:chardata()}.
format_error(_Reason, [{_M, _F, _Args, Info} | _]) ->
    #{cause := Causes} = proplists:get_value(error_info, Info, #{cause => #{}}),
    Causes.
