%% @doc What a keeper that has just started takes over: the workers that there already are, and what its predecessor has
%% left half done.
%%
%% Nothing is assumed about where the predecessor was killed. What it had done to a slot before it is done again, or
%% undone; every step does no harm when it was done before. Afterwards the next `connected' message of a supervisor that
%% is not known belongs to one that is being stopped.
-module(weir_pool_adopt).

-export([adopt/2]).

-include("weir_pool.hrl").

%% @doc Takes over what the seats table and the slots' terms say, up to the last slot that may have one. Gives the slots
%% whose word is held, too: why, the predecessor knew.
-spec adopt(LastSlot :: 0 | weir_pool:size(), weir_pool_slots:slots()) ->
    {Held :: [weir_pool:slot()], weir_pool_slots:slots()}.
adopt(Last, Slots0) ->
    #pool{limit = Limit} = Pool = weir_pool_slots:pool(Slots0),
    Seats = weir_pool_slots:seats(Slots0),
    {Seated, Others} = lists:partition(fun(Row) -> is_seated(Row, Pool) end, weir_pool_seats:sups(Seats)),
    Slots1 = lists:foldl(fun adopt_sup/2, Slots0, Seated ++ Others),
    Slots2 = lists:foldl(fun adopt_connected/2, Slots1, weir_pool_seats:connected(Seats)),
    Slots3 = lists:foldl(fun weir_pool_slots:clear/2, Slots2, lists:seq(1, Last)),
    Filled = weir_pool_slots:filled(Slots3),
    %% The pool had been made smaller, and these were still in use.
    Beyond = [Slot || {Slot, _} <- Filled, Slot > Limit],
    Slots4 = lists:foldl(fun(Slot, S) -> weir_pool_slots:take_out(Slot, retire, S) end, Slots3, Beyond),
    {[Slot || {Slot, _} <- Filled, Slot =< Limit, is_held(Slot, Pool)], Slots4}.

%% Of two supervisors for one slot, the one whose worker is in the slot stays.
is_seated({_Sup, Slot, Worker}, Pool) ->
    is_integer(Slot) andalso is_pid(Worker) andalso weir_pool_terms:worker(Pool, Slot) =:= Worker.

adopt_sup({Sup, Slot, Worker} = Row, Slots) ->
    #pool{limit = Limit} = Pool = weir_pool_slots:pool(Slots),
    case is_process_alive(Sup) of
        false ->
            ok = weir_pool_seats:delete(weir_pool_slots:seats(Slots), Sup),
            Slots;
        true when Slot =:= retired; Worker =:= starting ->
            drain(Sup, Slots);
        true ->
            %% Beyond the limit there are those that were to go when they are released, and those that a resize had
            %% started.
            Stays =
                not weir_pool_slots:has_sup(Slot, Slots) andalso
                    (Slot =< Limit orelse (is_seated(Row, Pool) andalso weir_pool_terms:has_words(Pool, Slot))),
            case Stays of
                true -> weir_pool_slots:settle(Slot, {sup, Sup}, Slots);
                false -> drain(Sup, Slots)
            end
    end.

drain(Sup, Slots) ->
    ok = weir_pool_slot_sup:drain(Sup, weir_pool_slots:boot(Slots)),
    Slots.

adopt_connected({Slot, Pid}, Slots) ->
    case is_process_alive(Pid) of
        true ->
            weir_pool_slots:settle(Slot, {connected, Pid}, Slots);
        false ->
            ok = weir_pool_seats:delete(weir_pool_slots:seats(Slots), {connected, Slot}),
            Slots
    end.

is_held(Slot, Pool) -> weir_pool_word:state(weir_pool_word:read(Pool, Slot)) =:= held.
