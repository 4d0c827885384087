%% @doc Starts of workers, as the keeper sees them: which slots need one, which are under way, and which have to wait.
%%
%% Not a process: the keeper holds the slots and calls these functions.
%%
%% A worker is started again by its slot's supervisor. The keeper starts those that such a supervisor never had or that
%% it took with it: the first ones, those of a pool that starts asynchronously, those that replace others, and those
%% whose supervisor was killed.
-module(weir_pool_starts).

-export([start/3, ended/3, failed/2, start_missing/1, tend/2, due/3]).
-export([is_starting/2, is_changing/2, vacancies/3, missing/3]).

-export_type([purpose/0]).

-include("weir_pool_slot.hrl").

-type purpose() :: open | fill | resize | {replace, gen_server:from()}.
%% What a worker is started for: the pool is not open yet; the slot is vacant; the pool is to grow; the slot's worker is
%% to be replaced.

-type slots() :: weir_pool_slots:slots().

%% @doc Has a worker started; the keeper gets the message of weir_pool_slot_sup:start/4. Not for a slot for which one is
%% being started already.
-spec start(weir_pool:slot(), purpose(), slots()) -> slots().
start(Slot, Purpose, Slots) ->
    Entry = stop_timer(weir_pool_slots:entry(Slot, Slots)),
    Boot = weir_pool_slots:boot(Slots),
    Start = weir_pool_slot_sup:start(weir_pool_slots:workers_sup(Slots), Boot, Slot, Purpose),
    weir_pool_slots:put_entry(Slot, Entry#slot{starting = {Purpose, Start}}, Slots).

stop_timer(#slot{starting = {later, Timer}} = Entry) ->
    _ = erlang:cancel_timer(Timer),
    Entry#slot{starting = none};
stop_timer(#slot{starting = none} = Entry) ->
    Entry.

%% @doc A start has ended. `void': nobody waits for it any more.
-spec ended(weir_pool:slot(), Start :: reference(), slots()) -> {ok, slots()} | void.
ended(Slot, Start, Slots) ->
    case weir_pool_slots:entry(Slot, Slots) of
        #slot{starting = {_Purpose, Start}} = Entry ->
            {ok, weir_pool_slots:put_entry(Slot, Entry#slot{starting = none}, Slots)};
        _ ->
            void
    end.

%% @doc A start has failed. The next one of this slot waits.
-spec failed(weir_pool:slot(), slots()) -> slots().
failed(Slot, Slots) ->
    #slot{attempts = Attempts} = Entry = weir_pool_slots:entry(Slot, Slots),
    later(Slot, Entry#slot{attempts = max(1, Attempts), since = now_ms()}, Slots).

%% @doc Starts a worker for every vacant slot that is picked from and does not wait for a start already.
-spec start_missing(slots()) -> slots().
start_missing(Slots) ->
    case weir_pool_slots:conf(Slots) of
        #conf{worker = none} ->
            Slots;
        #conf{} ->
            Vacant = vacancies(1, weir_pool_slots:pool_size(Slots), Slots),
            lists:foldl(fun(Slot, S) -> start(Slot, fill, S) end, Slots, Vacant)
    end.

%% @doc A slot may have lost its worker and whoever would start it again: then the keeper does, after a while. To be
%% called after everything that may have been the last of these.
-spec tend(weir_pool:slot(), slots()) -> slots().
tend(Slot, Slots) ->
    Size = weir_pool_slots:pool_size(Slots),
    case {weir_pool_slots:entry(Slot, Slots), weir_pool_slots:conf(Slots)} of
        {_Entry, #conf{worker = none}} ->
            Slots;
        {#slot{sup = undefined, worker = undefined, starting = none, action = none} = Entry, _} when Slot =< Size ->
            later(Slot, Entry, Slots);
        _ ->
            Slots
    end.

%% A worker that has lasted for longer than the longest wait has made up for what was before it.
later(Slot, #slot{attempts = Attempts, since = Since, filled = Filled} = Entry, Slots) ->
    #conf{backoff = {_, Max} = Backoff} = weir_pool_slots:conf(Slots),
    Failed =
        case Filled andalso now_ms() - Since > Max of
            true -> 0;
            false -> Attempts
        end,
    Timer = erlang:start_timer(weir_pool_backoff:delay(Failed, Backoff), self(), {start, Slot}),
    weir_pool_slots:put_entry(Slot, Entry#slot{starting = {later, Timer}, attempts = Failed + 1}, Slots).

%% @doc The time has come for a start. Slots for overflow are started when somebody waits, but not before this either.
-spec due(weir_pool:slot(), Timer :: reference(), slots()) -> slots().
due(Slot, Timer, Slots) ->
    Size = weir_pool_slots:pool_size(Slots),
    case weir_pool_slots:entry(Slot, Slots) of
        #slot{starting = {later, Timer}} when Slot =< Size ->
            start(Slot, fill, Slots);
        #slot{starting = {later, Timer}} = Entry ->
            weir_pool_slots:put_entry(Slot, Entry#slot{starting = none}, Slots);
        _ ->
            Slots
    end.

%% @doc Whether a worker is being started for the slot at this moment.
-spec is_starting(weir_pool:slot(), slots()) -> boolean().
is_starting(Slot, Slots) ->
    case weir_pool_slots:entry(Slot, Slots) of
        #slot{starting = none} -> false;
        #slot{starting = {later, _}} -> false;
        #slot{starting = {_Purpose, _}} -> true
    end.

%% @doc Whether a worker is being started for the slot, or something waits for its release.
-spec is_changing(weir_pool:slot(), slots()) -> boolean().
is_changing(Slot, Slots) ->
    is_starting(Slot, Slots) orelse (weir_pool_slots:entry(Slot, Slots))#slot.action =/= none.

%% @doc The slots from one to another that have neither a worker nor the prospect of one.
-spec vacancies(First :: pos_integer(), Last :: non_neg_integer(), slots()) -> [weir_pool:slot()].
vacancies(First, Last, Slots) ->
    [Slot || Slot <- missing(First, Last, Slots), (weir_pool_slots:entry(Slot, Slots))#slot.starting =:= none].

%% @doc The same, with those whose next start has to wait.
-spec missing(First :: pos_integer(), Last :: non_neg_integer(), slots()) -> [weir_pool:slot()].
missing(First, Last, Slots) when First =< Last ->
    [
        Slot
     || Slot <- lists:seq(First, Last),
        #slot{sup = undefined, worker = undefined} <- [weir_pool_slots:entry(Slot, Slots)],
        not is_starting(Slot, Slots)
    ];
missing(_First, _Last, _Slots) ->
    [].

now_ms() -> erlang:monotonic_time(millisecond).
