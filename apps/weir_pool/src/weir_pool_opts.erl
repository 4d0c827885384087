%% @doc The options of a pool, checked before anything is started.
%%
%% A pure module: no process, no state.
-module(weir_pool_opts).

-export([check/1]).

-include("weir_pool.hrl").

-define(DEFAULT_SHUTDOWN, 5000).
-define(DEFAULT_PERIOD, 5).

%% Whatever the workers talk to may go away and take all of them with it, twice within a period, without the pool
%% giving up; the constant is for small pools.
-define(DEFAULT_INTENSITY(Size), (2 * (Size) + 10)).

%% @doc Checks a map of options and fills in the defaults.
%%
%% Of several mistakes, the one whose key comes first in the order of terms is reported, an option that is missing
%% after those that are wrong. Not a map: `badarg'.
-spec check(weir_pool:opts()) -> {ok, #conf{}} | {error, weir_pool:option_error()}.
check(Opts) when is_map(Opts) ->
    Bad = [{Key, Value} || {Key, Value} <- lists:sort(maps:to_list(Opts)), not is_valid(Key, Value)],
    Missing = [Key || Key <- [size, worker], not is_map_key(Key, Opts)],
    case {Bad, Missing} of
        {[{Key, Value} | _], _} -> {error, {bad_option, Key, Value}};
        {[], [Key | _]} -> {error, {missing_option, Key}};
        {[], []} -> {ok, conf(Opts)}
    end;
check(Opts) ->
    error(badarg, [Opts]).

conf(#{size := Size, worker := Worker} = Opts) ->
    #conf{
        size = Size,
        worker = Worker,
        restart = maps:get(restart, Opts, permanent),
        shutdown = maps:get(shutdown, Opts, ?DEFAULT_SHUTDOWN),
        intensity = maps:get(intensity, Opts, ?DEFAULT_INTENSITY(Size)),
        period = maps:get(period, Opts, ?DEFAULT_PERIOD)
    }.

is_valid(size, Size) -> is_integer(Size) andalso Size >= 1 andalso Size =< ?MAX_SIZE;
is_valid(worker, {M, F, A}) -> is_atom(M) andalso is_atom(F) andalso is_proper_list(A);
is_valid(restart, Restart) -> lists:member(Restart, [permanent, transient, temporary]);
is_valid(shutdown, Shutdown) -> Shutdown =:= brutal_kill orelse Shutdown =:= infinity orelse is_count(Shutdown);
is_valid(intensity, Intensity) -> is_count(Intensity);
is_valid(period, Period) -> is_count(Period) andalso Period > 0;
is_valid(_Unknown, _Value) -> false.

is_count(Term) -> is_integer(Term) andalso Term >= 0.

is_proper_list(Term) -> is_list(Term) andalso length_or_improper(Term) =/= improper.

length_or_improper(List) ->
    try
        length(List)
    catch
        error:badarg -> improper
    end.
