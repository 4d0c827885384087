%% @doc Overflow workers: workers in the slots above `size', started when claims find nothing free, and stopped when
%% they are idle.
%%
%% Not a process: the manager calls these functions with its state.
%%
%% A pool starts an overflow worker only while fewer than `limit' workers live, counting those that have left their
%% slots and are stopping. Spares of a replacement are not counted.
%%
%% The claimer that releases an overflow slot notifies the manager (weir_pool_signals). The manager stops the worker at
%% once, or after `linger' milliseconds without a claim. Every claim changes the six bits of the word that count claims,
%% so the manager compares these bits when the timer fires. (After 64 claims, or a multiple, the bits are equal, and a
%% worker that is free at this moment stops although it was in use. The next claim that finds no free worker starts a
%% new one.) A worker that was just started, or released while a request waits, stays for a second at least: it was
%% started for a request that has not arrived yet.
%% @private
-module(weir_pool_overflow).

-export([new/0, grow/1, started/2, failed/1, shrink/1, lingered/3]).

-export_type([overflow/0]).

-include("weir_pool.hrl").
-include("weir_pool_state.hrl").

%% Least milliseconds for which a worker stays after its start, and after a release while a request waits.
-define(WANTED_MS, 1000).

-record(overflow, {
    %% Number of starts in a row that failed, and the monotonic milliseconds before which no other start is made.
    failures = 0 :: non_neg_integer(),
    not_before :: integer() | undefined,
    %% Timers of idle workers, and the claims that their words had counted when the timers were started. A check changes
    %% the word, but not this count.
    lingering = #{} :: #{weir_pool:slot() => {Timer :: reference(), Claims :: 0..63}}
}).

-opaque overflow() :: #overflow{}.

%% @doc Returns an overflow without workers.
-spec new() -> overflow().
new() -> #overflow{}.

%% @doc Starts a worker for each request that waits, or one worker for claims that do not wait. Subtracts the workers
%% that are being started, and stays within the limit.
-spec grow(#state{}) -> #state{}.
grow(#state{phase = open, pool = #pool{size = Size, limit = Limit} = Pool, overflow = Overflow} = State) ->
    #overflow{not_before = NotBefore} = Overflow,
    Asked = weir_pool_signals:take_wanted(Pool),
    case Limit =:= Size orelse (NotBefore =/= undefined andalso now_ms() < NotBefore) of
        true ->
            State;
        false ->
            Vacant = weir_pool_slots:missing(Size + 1, Limit, State),
            Filled = [Slot || {Slot, _Worker} <- weir_pool_slots:filled(State), Slot > Size, Slot =< Limit],
            BeingStarted = max(0, Limit - Size - length(Vacant) - length(Filled)),
            Wanted = max(Asked, weir_pool_signals:waiting(Pool)) - BeingStarted,
            Room = Limit - weir_pool_slots:alive(State),
            Slots = lists:sublist(Vacant, max(0, min(Wanted, Room))),
            lists:foldl(fun(Slot, S) -> weir_pool_slots:start(Slot, false, S) end, State, Slots)
    end;
grow(State) ->
    State.

%% @doc Starts the linger timer of a worker that has started. If a claim already holds the worker, the timer starts at
%% the release instead.
-spec started(weir_pool:slot(), #state{}) -> #state{}.
started(Slot, #state{conf = #conf{overflow = {_, Linger}}, pool = Pool, overflow = Overflow} = State) ->
    Word = weir_pool_word:read(Pool, Slot),
    Started = State#state{overflow = Overflow#overflow{failures = 0, not_before = undefined}},
    case weir_pool_word:state(Word) of
        free -> linger(Slot, max(Linger, ?WANTED_MS), Word, Started);
        _ -> Started
    end.

%% @doc Delays the next start after a failed start.
-spec failed(#state{}) -> #state{}.
failed(#state{conf = #conf{backoff = Backoff}, overflow = #overflow{failures = Failures} = Overflow} = State) ->
    Delay = weir_pool_slot_sup:delay(Failures + 1, Backoff),
    State#state{overflow = Overflow#overflow{failures = Failures + 1, not_before = now_ms() + Delay}}.

%% @doc Stops the overflow workers that are idle, or starts their linger timers. During a resize does nothing, because
%% the slots above `size' may be those of the resize; the end of the resize shrinks the overflow.
-spec shrink(#state{}) -> #state{}.
shrink(#state{phase = open, resize = none, pool = #pool{size = Size, limit = Limit} = Pool} = State) ->
    ok = weir_pool_signals:take_idle(Pool),
    lists:foldl(fun shrink_slot/2, State#state{may_shrink = false}, weir_pool_slots:entries(Size + 1, Limit, State));
shrink(State) ->
    State#state{may_shrink = false}.

shrink_slot(Slot, #state{conf = #conf{overflow = {_, Linger}}, pool = Pool, overflow = Overflow} = State) ->
    #overflow{lingering = Lingering} = Overflow,
    Word = weir_pool_word:read(Pool, Slot),
    Claims = weir_pool_word:claims(Word),
    case {weir_pool_word:state(Word), Lingering} of
        {free, #{Slot := {_Timer, Claims}}} ->
            State;
        {free, _} ->
            case {Linger, weir_pool_signals:waiting(Pool)} of
                {0, 0} -> stop(Slot, State);
                {_, 0} -> linger(Slot, Linger, Word, State);
                {_, _} -> linger(Slot, max(Linger, ?WANTED_MS), Word, State)
            end;
        _ ->
            State
    end.

linger(Slot, Ms, Word, #state{overflow = #overflow{lingering = Lingering} = Overflow} = State) ->
    _ = [erlang:cancel_timer(Before) || #{Slot := {Before, _}} <- [Lingering]],
    Timer = erlang:start_timer(Ms, self(), {linger, Slot}),
    State#state{overflow = Overflow#overflow{lingering = Lingering#{Slot => {Timer, weir_pool_word:claims(Word)}}}}.

stop(Slot, State) ->
    case weir_pool_slots:reserve(Slot, State) of
        true -> weir_pool_slots:withdraw(Slot, retire, State);
        false -> State
    end.

%% @doc Stops a worker whose linger time is over, unless it was claimed meanwhile, or a resize is under way: the end of
%% the resize shrinks the overflow. Ignores an earlier timer.
-spec lingered(weir_pool:slot(), Timer :: reference(), #state{}) -> #state{}.
lingered(Slot, Timer, #state{pool = #pool{size = Size, limit = Limit} = Pool, overflow = Overflow} = State) ->
    #overflow{lingering = Lingering} = Overflow,
    case Lingering of
        #{Slot := {Timer, _Claims}} when State#state.resize =/= none ->
            State#state{overflow = Overflow#overflow{lingering = maps:remove(Slot, Lingering)}};
        #{Slot := {Timer, Claims}} ->
            Fired = State#state{overflow = Overflow#overflow{lingering = maps:remove(Slot, Lingering)}},
            case Slot > Size andalso Slot =< Limit andalso weir_pool_word:claims(weir_pool_word:read(Pool, Slot)) of
                Claims -> stop(Slot, Fired);
                false -> Fired;
                _Another -> shrink_slot(Slot, Fired)
            end;
        #{} ->
            State
    end.

now_ms() -> erlang:monotonic_time(millisecond).
