%% @doc What is shown of a pool. Everything is read in the caller, from where picks and claims read and write it, so the
%% parts of an answer need not be of the same moment.
-module(weir_pool_info).

-export([info/1, workers/1, which_pools/1]).

-include("weir_pool.hrl").

%% Slots by what is the case with them.
-record(tally, {
    live = 0 :: non_neg_integer(),
    vacant = 0 :: non_neg_integer(),
    claimed = 0 :: non_neg_integer(),
    reserved = 0 :: non_neg_integer(),
    calls = 0 :: non_neg_integer(),
    claims = 0 :: non_neg_integer()
}).

%% @doc How the pool is.
%%
%% Cost: reads a term and a word or two of every slot, 50 ns each.
-spec info(weir_pool:name()) -> {ok, weir_pool:info()} | {error, no_pool}.
info(Name) ->
    case weir_pool_terms:pool(Name) of
        #pool{} = Pool -> {ok, info_of(Pool)};
        undefined -> {error, no_pool}
    end.

info_of(#pool{name = Name, size = Size, limit = Limit, strategy = Strategy} = Pool) ->
    Tally = tally(1, Limit, weir_pool_call:is_counted(Pool), Pool, #tally{}),
    %% Draws before skips: every skip was drawn, so in between there may be too many skips, but never too few.
    Draws = weir_pool_terms:draws(Pool),
    #{skips := Skips, claims := Claims} = Counters = weir_pool_terms:counters(Pool),
    Counters#{
        name => Name,
        size => Size,
        limit => Limit,
        strategy => Strategy,
        live => Tally#tally.live,
        vacant => Tally#tally.vacant,
        claimed => Tally#tally.claimed,
        reserved => Tally#tally.reserved,
        calls => Tally#tally.calls,
        claims => Claims + Tally#tally.claims + claims_beyond(Limit, Pool),
        waiting => max(0, weir_pool_terms:gate(Pool, ?GATE_WAITING)),
        oldest_wait_ms => since(weir_pool_terms:gate(Pool, ?GATE_OLDEST)),
        longest_wait_ms => weir_pool_terms:gate(Pool, ?GATE_LONGEST),
        picks => max(0, Draws - Skips),
        start_error => start_error(Name)
    }.

%% Those that are still in the words of slots that the pool has given up.
claims_beyond(Limit, Pool) ->
    Slots = lists:seq(Limit + 1, weir_pool_terms:last_slot(Pool)),
    lists:sum([weir_pool_word:claims(weir_pool_word:read(Pool, Slot)) || Slot <- Slots]).

start_error(Name) ->
    case weir_pool_registry:lookup(Name) of
        {ok, {_, _, _, _, _, Error}} -> Error;
        {error, no_pool} -> none
    end.

tally(Slot, Limit, _IsCounted, _Pool, Tally) when Slot > Limit ->
    Tally;
tally(Slot, Limit, IsCounted, Pool, Tally) ->
    Tally1 = filled(weir_pool_terms:worker(Pool, Slot), Slot, Pool, Tally),
    Word = weir_pool_word:read(Pool, Slot),
    Tally2 = used(weir_pool_word:state(Word), Tally1#tally{claims = Tally1#tally.claims + weir_pool_word:claims(Word)}),
    tally(Slot + 1, Limit, IsCounted, Pool, loaded(IsCounted, Slot, Pool, Tally2)).

filled(undefined, Slot, #pool{size = Size}, #tally{vacant = Vacant} = Tally) when Slot =< Size ->
    Tally#tally{vacant = Vacant + 1};
filled(undefined, _SlotForOverflow, _Pool, Tally) ->
    Tally;
filled(_Pid, _Slot, _Pool, #tally{live = Live} = Tally) ->
    Tally#tally{live = Live + 1}.

used(State, #tally{claimed = Claimed} = Tally) when State =:= taken; State =:= marked ->
    Tally#tally{claimed = Claimed + 1};
used(reserved, #tally{reserved = Reserved} = Tally) ->
    Tally#tally{reserved = Reserved + 1};
used(_FreeOrVacant, Tally) ->
    Tally.

loaded(true, Slot, Pool, #tally{calls = Calls} = Tally) ->
    Tally#tally{calls = Calls + max(0, weir_pool_call:calls(Pool, Slot))};
loaded(false, _Slot, _Pool, Tally) ->
    Tally.

%% 0: nobody waits.
since(0) -> 0;
since(Oldest) -> max(0, erlang:monotonic_time(millisecond) - Oldest).

%% @doc The workers in their slots, those for overflow included.
-spec workers(weir_pool:name()) -> {ok, [{weir_pool:slot(), pid()}]} | {error, no_pool}.
workers(Name) ->
    case weir_pool_terms:pool(Name) of
        #pool{limit = Limit} = Pool -> {ok, weir_pool_terms:workers(Pool, Limit)};
        undefined -> {error, no_pool}
    end.

%% @doc Where a process is a worker, in the order of names and slots.
-spec which_pools(pid()) -> [{weir_pool:name(), weir_pool:slot()}].
which_pools(Pid) when is_pid(Pid) ->
    [
        {Name, Slot}
     || Name <- lists:sort(weir_pool_registry:names()),
        {ok, Workers} <- [workers(Name)],
        {Slot, Worker} <- Workers,
        Worker =:= Pid
    ].
