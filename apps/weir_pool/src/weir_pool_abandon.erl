%% @doc Claims that their holders did not end: how the manager learns of them, and what becomes of the workers.
%%
%% Not a process: the manager holds the value and calls these functions.
%%
%% Claims cost no monitor. The manager polls the words now and then ({@link poll/2}: every second while the pool is
%% in use, and within milliseconds when somebody waits) and monitors the holders of the claims that it finds and did not
%% know; so a claim that lasts for no longer than the time between two polls is never monitored, and the death of one
%% who holds for longer is heard of at once. A holder that takes long to die keeps its claim for so long, and nobody
%% waits for it but those who want that worker.
%%
%% A claim that was disowned (weir_pool_word) is ended when the claimer tells of it. One of which nobody has told,
%% because the claimer was killed before it could, or is kept from running, is found at two polls. Its worker may be
%% broken, and is replaced.
%% @private
-module(weir_pool_abandon).

-export([new/0, poll/2, holder_down/4, abandon/4]).

-export_type([holders/0]).

-include("weir_pool.hrl").

-opaque holders() :: #{weir_pool:slot() => {weir_pool_word:claim(), Monitor :: reference()}}.

%% @doc The holders of a pool in which no claim is known.
-spec new() -> holders().
new() -> #{}.

%% @doc Polls the words of all slots. Gives how many are claimed.
%%
%% Cost: 60 to 110 ns for each slot; for each claim that was not there at the last poll another microsecond.
-spec poll(holders(), weir_pool_slots:slots()) -> {Claimed :: non_neg_integer(), holders(), weir_pool_slots:slots()}.
poll(Holders, Slots) ->
    Pool = weir_pool_slots:pool(Slots),
    %% Also those that the pool has given up, and that are still claimed.
    poll(lists:seq(1, weir_pool_terms:last_slot(Pool)), Pool, 0, Holders, Slots).

poll([], _Pool, Claimed, Holders, Slots) ->
    {Claimed, Holders, Slots};
poll([Slot | More], Pool, Claimed, Holders, Slots) ->
    Word = weir_pool_word:read(Pool, Slot),
    case weir_pool_word:state(Word) of
        State when State =:= taken; State =:= marked ->
            Claim = weir_pool_word:claim_of(Word),
            case {weir_pool_word:holder(Claim), Holders} of
                {nobody, #{Slot := {Claim, _}}} ->
                    {Left, Abandoned} = abandon(Slot, Claim, #{why => untold}, {Holders, Slots}),
                    poll(More, Pool, Claimed, Left, Abandoned);
                {_Holder, #{Slot := {Claim, _Monitor}}} ->
                    poll(More, Pool, Claimed + 1, Holders, Slots);
                {nobody, _} ->
                    poll(More, Pool, Claimed + 1, (forget(Slot, Holders))#{Slot => {Claim, make_ref()}}, Slots);
                {Holder, _} ->
                    Pid = weir_pool_holder:pid(Holder),
                    Monitor = erlang:monitor(process, Pid, [{tag, {holder_down, Slot, Claim}}]),
                    poll(More, Pool, Claimed + 1, (forget(Slot, Holders))#{Slot => {Claim, Monitor}}, Slots)
            end;
        State ->
            %% For one who was killed between freeing the slot and saying so.
            _ = State =:= free andalso weir_pool_word:show(Pool, Slot),
            poll(More, Pool, Claimed, forget(Slot, Holders), Slots)
    end.

forget(Slot, Holders) ->
    case maps:take(Slot, Holders) of
        {{_Claim, Monitor}, Others} ->
            true = erlang:demonitor(Monitor, [flush]),
            Others;
        error ->
            Holders
    end.

%% @doc The holder of a claim is dead.
-spec holder_down(weir_pool:slot(), weir_pool_word:claim(), Holder :: pid(), {holders(), weir_pool_slots:slots()}) ->
    {holders(), weir_pool_slots:slots()}.
holder_down(Slot, Claim, Holder, {Holders, Slots}) ->
    abandon(Slot, Claim, #{why => dead, claimer => Holder}, {maps:remove(Slot, Holders), Slots}).

%% @doc Ends a claim, if it is not over, and deals with what its claimer had the worker do, which may go on.
-spec abandon(weir_pool:slot(), weir_pool_word:claim(), Why :: map(), {holders(), weir_pool_slots:slots()}) ->
    {holders(), weir_pool_slots:slots()}.
abandon(Slot, Claim, Why, {Holders, Slots}) ->
    Pool = weir_pool_slots:pool(Slots),
    case weir_pool_word:revoke(Pool, Slot, Claim) of
        ok ->
            ok = weir_pool_terms:count(Pool, ?ABANDONED),
            {forget(Slot, Holders), abandoned(Slot, Why, Slots)};
        over ->
            {Holders, Slots}
    end.

abandoned(Slot, Why, Slots) ->
    case {weir_pool_slots:conf(Slots), weir_pool_slots:action(Slot, Slots)} of
        {_Conf, Action} when Action =/= none -> weir_pool_slots:act(Slot, Slots);
        %% A broken one, or one that may be, is nobody's to use again, whoever says that an abandoned one is.
        {_Conf, _} when map_get(why, Why) =:= failed; map_get(why, Why) =:= untold ->
            weir_pool_slots:renew(Slot, Why, Slots);
        {#conf{abandoned = free}, _} -> weir_pool_slots:act(Slot, Slots);
        {#conf{abandoned = replace}, _} -> weir_pool_slots:renew(Slot, Why, Slots);
        {#conf{abandoned = {wait, Ms}}, _} -> probe(Slot, Ms, Why, Slots)
    end.

probe(Slot, Ms, Why, Slots) ->
    IsIdle = {weir_pool_task, is_idle, [Ms]},
    {_Task, Probing} = weir_pool_slots:examine(Slot, {probed, Slot, Why}, IsIdle, Slots),
    Probing.
