%% @doc Abandoned claims: how the manager learns of claims that their holders did not release, and what it does with the
%% workers.
%%
%% Not a process: the manager calls these functions with its state.
%%
%% A claim costs no monitor. The manager polls the words of the slots: every second while the pool is in use, and within
%% milliseconds while a request waits. If a poll finds a claim that the last poll did not find, the manager monitors the
%% holder of the claim. A claim that ends before the next poll is therefore never monitored. The death of a monitored
%% holder is known at once. A holder that needs long to die keeps its claim until it is dead, and delays only the
%% requests for this worker.
%%
%% A claimer disowns its claim (weir_pool_word) when the worker is likely to be busy or broken, and notifies the
%% manager, which revokes the claim. If the claimer is killed before it notifies, or is not scheduled, the manager finds
%% the disowned word at two polls, and renews the worker, which may be broken.
%% @private
-module(weir_pool_abandon).

-export([poll/1, holder_down/4, abandon/4]).

-export_type([holders/0]).

-include("weir_pool.hrl").
-include("weir_pool_state.hrl").

-type holders() :: #{weir_pool:slot() => {weir_pool_word:claim(), Monitor :: reference()}}.
%% The claims that the polls have found, each with the monitor of its holder.

%% @doc Polls the words of all slots, and monitors the holders of new claims. Returns how many slots are claimed.
%%
%% Cost: 60 to 110 ns for each slot, and a microsecond for each claim that is new.
-spec poll(#state{}) -> {Claimed :: non_neg_integer(), #state{}}.
poll(#state{pool = Pool} = State) ->
    %% Slots that the pool has given up may still be claimed.
    lists:foldl(fun poll_slot/2, {0, State}, lists:seq(1, weir_pool_terms:last_slot(Pool))).

poll_slot(Slot, {Claimed, #state{pool = Pool, holders = Holders} = State}) ->
    Word = weir_pool_word:read(Pool, Slot),
    case weir_pool_word:state(Word) of
        WordState when WordState =:= taken; WordState =:= marked ->
            Claim = weir_pool_word:claim_of(Word),
            case {weir_pool_word:holder(Claim), Holders} of
                {nobody, #{Slot := {Claim, _}}} ->
                    {Claimed, abandon(Slot, Claim, #{why => untold}, State)};
                {_Holder, #{Slot := {Claim, _Monitor}}} ->
                    {Claimed + 1, State};
                {nobody, _} ->
                    {Claimed + 1, put_holder(Slot, Claim, make_ref(), State)};
                {Holder, _} ->
                    Pid = weir_pool_holder:pid(Holder),
                    Monitor = erlang:monitor(process, Pid, [{tag, {holder_down, Slot, Claim}}]),
                    {Claimed + 1, put_holder(Slot, Claim, Monitor, State)}
            end;
        WordState ->
            %% The releaser may have been killed before it set the bit of the slot.
            _ = WordState =:= free andalso weir_pool_bitmap:show(Pool, Slot),
            {Claimed, forget(Slot, State)}
    end.

put_holder(Slot, Claim, Monitor, State) ->
    #state{holders = Holders} = Forgotten = forget(Slot, State),
    Forgotten#state{holders = Holders#{Slot => {Claim, Monitor}}}.

forget(Slot, #state{holders = Holders} = State) ->
    case maps:take(Slot, Holders) of
        {{_Claim, Monitor}, Others} ->
            true = erlang:demonitor(Monitor, [flush]),
            State#state{holders = Others};
        error ->
            State
    end.

%% @doc Abandons the claim of a holder that died, unless it has ended.
-spec holder_down(weir_pool:slot(), weir_pool_word:claim(), Holder :: pid(), #state{}) -> #state{}.
holder_down(Slot, Claim, Holder, #state{holders = Holders} = State) ->
    abandon(Slot, Claim, #{why => dead, claimer => Holder}, State#state{holders = maps:remove(Slot, Holders)}).

%% @doc Revokes a claim, unless it has ended, and frees, probes or renews its worker, as the option `abandoned' says.
-spec abandon(weir_pool:slot(), weir_pool_word:claim(), Why :: map(), #state{}) -> #state{}.
abandon(Slot, Claim, Why, #state{pool = Pool} = State) ->
    case weir_pool_word:revoke(Pool, Slot, Claim) of
        ok ->
            ok = weir_pool_terms:count(Pool, ?ABANDONED),
            revoked(Slot, Why, forget(Slot, State));
        over ->
            State
    end.

revoked(Slot, Why, #state{conf = #conf{abandoned = Abandoned}} = State) ->
    MayBeBroken = lists:member(map_get(why, Why), [failed, untold]),
    case weir_pool_slots:action(Slot, State) of
        none when MayBeBroken; Abandoned =:= replace -> weir_pool_slots:renew(Slot, Why, State);
        none when is_tuple(Abandoned) -> weir_pool_slots:probe(Slot, element(2, Abandoned), Why, State);
        _ActionOrFree -> weir_pool_slots:act(Slot, State)
    end.
