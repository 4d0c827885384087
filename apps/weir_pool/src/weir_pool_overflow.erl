%% @doc Workers for overflow, in the slots above `size': started when claims find nothing free, stopped when nobody
%% needs them any more.
%%
%% Not a process: the manager holds the value and calls these functions.
%%
%% Whoever frees such a slot tells the manager (weir_pool_claim), which stops the worker at once, or starts a timer if
%% it may linger. Every claim changes the word; so when a timer fires nothing has to have been noted for it to be seen
%% whether the worker was idle all the time. (Claims are counted in six bits: 64 of them, or a multiple, look like none,
%% and a worker that is free just then goes though it was in use. Whoever needs one has another started.) A worker that
%% was just started, or freed while others wait, is for those who wanted it, and is given some time however short it may
%% linger.
%% @private
-module(weir_pool_overflow).

-export([new/0, grow/3, started/3, failed/3, idle/2, lingered/4]).

-export_type([overflow/0]).

-include("weir_pool.hrl").

%% So long is a worker there for those who wanted it, milliseconds.
-define(WANTED_MS, 1000).

-record(overflow, {
    %% Starts in a row that failed, and when the next may be made, monotonic milliseconds.
    failures = 0 :: non_neg_integer(),
    not_before :: integer() | undefined,
    %% Timers of idle workers, and how many claims their words had counted when the timers were started: a check changes
    %% the word, but not that.
    lingering = #{} :: #{weir_pool:slot() => {Timer :: reference(), Claims :: 0..63}}
}).

-opaque overflow() :: #overflow{}.

%% @doc The overflow of a pool in which no worker has been started for it.
-spec new() -> overflow().
new() -> #overflow{}.

%% @doc Starts as many as wait for one, but no more than there is room for. A claim that does not wait has only set a
%% flag, which is taken down. Also at every tick, for one who was killed between setting it and saying so.
-spec grow(NowMs :: integer(), overflow(), weir_pool_slots:slots()) -> weir_pool_slots:slots().
grow(Now, #overflow{not_before = NotBefore}, Slots) ->
    #pool{size = Size, limit = Limit} = Pool = weir_pool_slots:pool(Slots),
    Asked = weir_pool_signals:take_wanted(Pool),
    case Limit =:= Size orelse (NotBefore =/= undefined andalso Now < NotBefore) of
        true ->
            Slots;
        false ->
            Vacant = weir_pool_slots:missing(Size + 1, Limit, Slots),
            Filled = [Slot || {Slot, _Worker} <- weir_pool_slots:filled(Slots), Slot > Size, Slot =< Limit],
            Coming = max(0, Limit - Size - length(Vacant) - length(Filled)),
            Wanted = max(Asked, weir_pool_signals:waiting(Pool)) - Coming,
            Started = lists:sublist(Vacant, max(0, Wanted)),
            lists:foldl(fun(Slot, S) -> weir_pool_slots:start(Slot, false, S) end, Slots, Started)
    end.

%% @doc A start has succeeded. Those who wanted the worker may have given up. One that somebody has by now lingers from
%% its release on, like any other: its claim is counted already, so a timer of now would be taken for one of then.
-spec started(weir_pool:slot(), overflow(), weir_pool_slots:slots()) -> overflow().
started(Slot, Overflow, Slots) ->
    #conf{overflow = {_, Linger}} = weir_pool_slots:conf(Slots),
    Word = weir_pool_word:read(weir_pool_slots:pool(Slots), Slot),
    Started = Overflow#overflow{failures = 0, not_before = undefined},
    case weir_pool_word:state(Word) of
        free -> linger(Slot, max(Linger, ?WANTED_MS), Word, Started);
        _ -> Started
    end.

%% @doc A start has failed: the next one has to wait.
-spec failed(NowMs :: integer(), #conf{}, overflow()) -> overflow().
failed(Now, #conf{backoff = Backoff}, #overflow{failures = Failures} = Overflow) ->
    Delay = weir_pool_slot_sup:delay(Failures + 1, Backoff),
    Overflow#overflow{failures = Failures + 1, not_before = Now + Delay}.

%% @doc Workers for overflow may be idle now. Also at every tick: whoever claimed the slot before it became one for
%% overflow tells nobody, nor does one who was killed between freeing it and saying so.
-spec idle(overflow(), weir_pool_slots:slots()) -> {overflow(), weir_pool_slots:slots()}.
idle(Overflow, Slots) ->
    #pool{size = Size, limit = Limit} = Pool = weir_pool_slots:pool(Slots),
    ok = weir_pool_signals:take_idle(Pool),
    lists:foldl(fun idle_slot/2, {Overflow, Slots}, lists:seq(Size + 1, Limit)).

idle_slot(Slot, {#overflow{lingering = Lingering} = Overflow, Slots} = Now) ->
    #conf{overflow = {_, Linger}} = weir_pool_slots:conf(Slots),
    Pool = weir_pool_slots:pool(Slots),
    Word = weir_pool_word:read(Pool, Slot),
    Claims = weir_pool_word:claims(Word),
    case {weir_pool_word:state(Word), Lingering} of
        {free, #{Slot := {_Timer, Claims}}} ->
            Now;
        {free, _} ->
            case {Linger, weir_pool_signals:waiting(Pool)} of
                {0, 0} -> {Overflow, stop(Slot, Slots)};
                {_, 0} -> {linger(Slot, Linger, Word, Overflow), Slots};
                {_, _} -> {linger(Slot, max(Linger, ?WANTED_MS), Word, Overflow), Slots}
            end;
        _ ->
            Now
    end.

linger(Slot, Ms, Word, #overflow{lingering = Lingering} = Overflow) ->
    _ = [erlang:cancel_timer(Before) || #{Slot := {Before, _}} <- [Lingering]],
    Timer = erlang:start_timer(Ms, self(), {linger, Slot}),
    Overflow#overflow{lingering = Lingering#{Slot => {Timer, weir_pool_word:claims(Word)}}}.

stop(Slot, Slots) ->
    case weir_pool_slots:reserve(Slot, Slots) of
        true -> weir_pool_slots:take_out(Slot, retire, Slots);
        false -> Slots
    end.

%% @doc The time for which a worker may linger is over. It goes, unless somebody has had it meanwhile.
-spec lingered(weir_pool:slot(), Timer :: reference(), overflow(), weir_pool_slots:slots()) ->
    {overflow(), weir_pool_slots:slots()}.
lingered(Slot, Timer, #overflow{lingering = Lingering} = Overflow, Slots) ->
    #pool{size = Size, limit = Limit} = Pool = weir_pool_slots:pool(Slots),
    case Lingering of
        #{Slot := {Timer, Claims}} ->
            Left = Overflow#overflow{lingering = maps:remove(Slot, Lingering)},
            case Slot > Size andalso Slot =< Limit andalso weir_pool_word:claims(weir_pool_word:read(Pool, Slot)) of
                Claims -> {Left, stop(Slot, Slots)};
                false -> {Left, Slots};
                _Another -> idle_slot(Slot, {Left, Slots})
            end;
        #{} ->
            {Overflow, Slots}
    end.
