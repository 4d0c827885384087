%% @doc The options of a pool, checked before anything is started.
%%
%% A pure module: no process, no state.
-module(weir_pool_opts).

-export([check/1, intensity/1]).

-include("weir_pool.hrl").

-define(DEFAULTS, #{
    restart => permanent,
    shutdown => 5000,
    period => 5,
    pass_slot => false,
    strategy => round_robin,
    start => sync,
    backoff => {100, 30_000},
    queue => fifo,
    max_queue => 10_000,
    codel => off,
    overflow => #{max => 0, linger => 0},
    check => none,
    abandoned => replace
}).

%% Whatever the workers talk to may go away and take all of them with it, twice within a period, without the pool
%% giving up; the constant is for small pools.
-define(DEFAULT_INTENSITY(Slots), (2 * (Slots) + 10)).

-define(STRATEGIES, [round_robin, random, hash, direct, least_loaded]).

%% @doc Checks a map of options and fills in the defaults.
%%
%% Of several mistakes, the one whose key comes first in the order of terms is reported; an option that contradicts
%% another after those that are wrong in themselves, and one that is missing last. Not a map: `badarg'.
-spec check(weir_pool:opts()) -> {ok, #conf{}} | {error, weir_pool:option_error()}.
check(Opts) when is_map(Opts) ->
    Given = lists:sort(maps:to_list(Opts)),
    Wrong = [{Key, Value} || {Key, Value} <- Given, not is_valid(Key, Value)],
    Contradicting = [
        {Key, Value, Other}
     || Wrong =:= [], {Key, Value} <- Given, {true, Other} <- [contradicts(Key, Opts)]
    ],
    case {Wrong, Contradicting} of
        {[{Key, Value} | _], _} -> {error, {bad_option, Key, Value}};
        {[], [{Key, Value, Other} | _]} -> {error, {contradicting_options, {Key, Value}, Other}};
        {[], []} when is_map_key(worker, Opts), not is_map_key(size, Opts) -> {error, {missing_option, size}};
        {[], []} -> {ok, conf(Opts)}
    end;
check(Opts) ->
    error(badarg, [Opts]).

conf(Opts) ->
    #{
        restart := Restart,
        shutdown := Shutdown,
        period := Period,
        pass_slot := PassSlot,
        strategy := Strategy,
        start := Start,
        backoff := Backoff,
        queue := Queue,
        max_queue := MaxQueue,
        codel := Codel,
        overflow := #{max := Overflow, linger := Linger},
        check := Check,
        abandoned := Abandoned
    } = maps:merge(?DEFAULTS, Opts),
    Size = maps:get(size, Opts, 0),
    #conf{
        size = Size,
        worker = maps:get(worker, Opts, none),
        pass_slot = PassSlot,
        restart = Restart,
        shutdown = Shutdown,
        intensity = maps:get(intensity, Opts, default),
        period = Period,
        strategy = Strategy,
        group = group(Opts),
        start = Start,
        backoff = Backoff,
        auto_size = maps:get(auto_size, Opts, not is_map_key(size, Opts)),
        queue = Queue,
        max_queue = MaxQueue,
        codel = codel(Codel),
        overflow = {Overflow, Linger},
        check = Check,
        abandoned = Abandoned
    }.

%% @doc How many restarts within a period a pool of this configuration puts up with.
-spec intensity(#conf{}) -> non_neg_integer().
intensity(#conf{intensity = default, size = Size, overflow = {Overflow, _}}) -> ?DEFAULT_INTENSITY(Size + Overflow);
intensity(#conf{intensity = Intensity}) -> Intensity.

group(#{group := Group}) -> {group, Group};
group(#{}) -> none.

codel(off) -> off;
codel(#{target := Target, interval := Interval}) -> {Target, Interval}.

is_valid(size, Size) -> is_count(Size) andalso Size =< ?MAX_SIZE;
is_valid(worker, {M, F, A}) -> is_atom(M) andalso is_atom(F) andalso is_proper_list(A);
is_valid(pass_slot, PassSlot) -> is_boolean(PassSlot);
is_valid(restart, Restart) -> lists:member(Restart, [permanent, transient, temporary]);
is_valid(shutdown, Shutdown) -> Shutdown =:= brutal_kill orelse Shutdown =:= infinity orelse is_ms(Shutdown);
is_valid(intensity, Intensity) -> is_count(Intensity);
is_valid(period, Period) -> is_positive(Period);
is_valid(strategy, Strategy) -> lists:member(Strategy, ?STRATEGIES) orelse is_strategy_module(Strategy);
is_valid(group, _Group) -> true;
is_valid(start, Start) -> Start =:= sync orelse Start =:= async;
is_valid(backoff, {Min, Max}) -> is_positive(Min) andalso is_positive(Max) andalso Min =< Max andalso is_ms(Max);
is_valid(auto_size, AutoSize) -> is_boolean(AutoSize);
is_valid(queue, Queue) -> Queue =:= fifo orelse Queue =:= lifo;
is_valid(max_queue, Max) -> is_count(Max);
is_valid(codel, off) -> true;
is_valid(codel, #{target := Target, interval := Interval} = Codel) ->
    map_size(Codel) =:= 2 andalso is_positive(Target) andalso is_ms(Interval) andalso Target < Interval;
is_valid(overflow, #{max := Max, linger := Linger} = Overflow) ->
    map_size(Overflow) =:= 2 andalso is_count(Max) andalso Max =< ?MAX_SIZE andalso is_ms(Linger);
is_valid(check, {Fun, Interval}) -> is_function(Fun, 1) andalso is_positive(Interval) andalso is_ms(Interval);
is_valid(abandoned, replace) -> true;
is_valid(abandoned, free) -> true;
is_valid(abandoned, {wait, Ms}) -> is_ms(Ms);
is_valid(_Unknown, _Value) -> false.

%% Whether an option makes no sense beside another, which is named.
contradicts(size, #{size := 0, worker := Worker}) -> {true, {worker, Worker}};
contradicts(size, #{size := Size, overflow := #{max := Max} = Overflow}) when Size + Max > ?MAX_SIZE ->
    {true, {overflow, Overflow}};
contradicts(auto_size, #{auto_size := true, worker := Worker}) ->
    {true, {worker, Worker}};
contradicts(codel, #{codel := #{}, queue := lifo}) ->
    {true, {queue, lifo}};
contradicts(Key, #{start := async}) when Key =:= intensity; Key =:= period ->
    {true, {start, async}};
contradicts(backoff, Opts) ->
    unless(maps:get(start, Opts, sync) =:= async, {start, maps:get(start, Opts, sync)});
contradicts(Key, Opts) when
    Key =:= pass_slot;
    Key =:= restart;
    Key =:= shutdown;
    Key =:= intensity;
    Key =:= period;
    Key =:= start;
    Key =:= overflow;
    Key =:= check
->
    unless(is_map_key(worker, Opts), {missing_option, worker});
contradicts(_Key, _Opts) ->
    false.

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
