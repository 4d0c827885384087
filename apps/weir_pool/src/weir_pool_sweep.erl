%% @doc What a keeper looks for among the claims and the idle workers: claims of the dead, workers for overflow that
%% nobody needs, and workers whose health is to be checked.
%%
%% Not a process: the keeper holds the value and calls these functions.
%%
%% Whatever takes time is done by a process of its own, which the slot is held for. The keeper gets its monitor's
%% message, `{checked, Monitor, process, Checker, Exit}' or `{{probed, Slot}, Monitor, process, Prober, Exit}'.
-module(weir_pool_sweep).

-export([new/1, begin_checks/1]).
-export([dead_claims/1, abandon/3, left_held/2, probed/4, grow/1, idle_overflow/3]).
-export([check_round/2, checked/4, overdue/2]).

-export_type([sweep/0]).

-include("weir_pool.hrl").

%% How long a worker whose slot a former keeper has held may take to handle what was sent to it, milliseconds, where the
%% option `abandoned' does not say. One that is busy for longer is likely to have been abandoned.
-define(HELD_MS, 5000).

-record(sweep, {
    linger :: non_neg_integer(),
    check :: {fun((pid()) -> term()), IntervalMs :: pos_integer()} | none,
    %% Workers for overflow: the word when it was first seen, and when, monotonic milliseconds. Every claim changes the
    %% word.
    idle = #{} :: #{weir_pool:slot() => {weir_pool_word:word(), integer()}},
    %% Slots that this round of checks has still to look at, and the check under way.
    unchecked = [] :: [weir_pool:slot()],
    checker = none :: none | {pid(), Monitor :: reference(), weir_pool:slot()}
}).

-opaque sweep() :: #sweep{}.

%% @doc Nothing seen so far.
-spec new(#conf{}) -> sweep().
new(#conf{overflow = {_, Linger}, check = Check}) -> #sweep{linger = Linger, check = Check}.

%% @doc Ends the claims of dead holders. Cost: reads every word, and for those that are claimed a row of ETS.
-spec dead_claims(weir_pool_slots:slots()) -> weir_pool_slots:slots().
dead_claims(Slots) ->
    #pool{limit = Limit} = Pool = weir_pool_slots:pool(Slots),
    %% The second kind is beyond the limit.
    Dead = [Slot || Slot <- lists:seq(1, Limit) ++ weir_pool_slots:retiring(Slots), is_dead_claim(Pool, Slot)],
    lists:foldl(fun abandoned/2, Slots, Dead).

is_dead_claim(#pool{holders = Holders} = Pool, Slot) ->
    Word = weir_pool_word:read(Pool, Slot),
    case weir_pool_word:state(Word) of
        State when State =:= taken; State =:= marked ->
            not weir_pool_holder:is_alive(Holders, weir_pool_word:holder(Word)) andalso
                weir_pool_word:abandon(Pool, Slot, Word) =:= ok;
        _ ->
            false
    end.

%% @doc Ends the claim that has this word, if it is not over.
-spec abandon(weir_pool:slot(), weir_pool_word:word(), weir_pool_slots:slots()) -> weir_pool_slots:slots().
abandon(Slot, Word, Slots) ->
    case weir_pool_word:abandon(weir_pool_slots:pool(Slots), Slot, Word) of
        ok -> abandoned(Slot, Slots);
        changed -> Slots
    end.

%% The claim has ended, and the word is held; but what its claimer had the worker do may go on.
abandoned(Slot, Slots) ->
    ok = weir_pool_terms:count(weir_pool_slots:pool(Slots), ?ABANDONED),
    case weir_pool_slots:conf(Slots) of
        #conf{abandoned = free} -> weir_pool_slots:act(Slot, Slots);
        #conf{abandoned = replace} -> weir_pool_slots:renew(Slot, Slots);
        #conf{abandoned = {wait, Ms}} -> probe(Slot, Ms, Slots)
    end.

%% @doc A keeper that has just started has found the slot held, and does not know why. The worker may be as busy as one
%% that was abandoned, or idle.
-spec left_held(weir_pool:slot(), weir_pool_slots:slots()) -> weir_pool_slots:slots().
left_held(Slot, Slots) ->
    case weir_pool_slots:conf(Slots) of
        #conf{abandoned = free} -> weir_pool_slots:act(Slot, Slots);
        #conf{abandoned = replace} -> probe(Slot, ?HELD_MS, Slots);
        #conf{abandoned = {wait, Ms}} -> probe(Slot, Ms, Slots)
    end.

probe(Slot, Ms, Slots) ->
    Monitor = weir_pool_probe:start({probed, Slot}, weir_pool_slots:worker(Slot, Slots), Ms),
    weir_pool_slots:look(Slot, Monitor, Slots).

%% @doc A probe has ended: a worker that is done is put back into use, another one replaced.
-spec probed(weir_pool:slot(), Monitor :: reference(), Exit :: term(), weir_pool_slots:slots()) ->
    weir_pool_slots:slots().
probed(Slot, Monitor, Exit, Slots) ->
    case weir_pool_slots:looked(Slot, Monitor, Slots) of
        {ok, Looked} when Exit =:= {done, true} -> weir_pool_slots:act(Slot, Looked);
        {ok, Looked} -> weir_pool_slots:renew(Slot, Looked);
        void -> Slots
    end.

%% @doc Starts workers for overflow: as many as wait for one, but no more than there is room for. A claim that does not
%% wait has only set a flag, which is taken down.
-spec grow(weir_pool_slots:slots()) -> weir_pool_slots:slots().
grow(Slots) ->
    #pool{size = Size, limit = Limit, gate = Gate} = weir_pool_slots:pool(Slots),
    Asked = atomics:exchange(Gate, ?GATE_GROW, 0),
    Coming = length([Slot || Slot <- lists:seq(Size + 1, Limit), weir_pool_starts:is_starting(Slot, Slots)]),
    Wanted = max(Asked, atomics:get(Gate, ?GATE_WAITING)) - Coming,
    Vacant = lists:sublist(weir_pool_starts:vacancies(Size + 1, Limit, Slots), max(0, Wanted)),
    lists:foldl(fun(Slot, S) -> weir_pool_starts:start(Slot, fill, S) end, Slots, Vacant).

%% @doc Stops the workers for overflow that nobody has claimed for as long as they may linger.
-spec idle_overflow(NowMs :: integer(), weir_pool_slots:slots(), sweep()) -> {weir_pool_slots:slots(), sweep()}.
idle_overflow(Now, Slots, #sweep{idle = Before, linger = Linger} = Sweep) ->
    #pool{size = Size, limit = Limit} = Pool = weir_pool_slots:pool(Slots),
    Words = [
        {Slot, weir_pool_word:read(Pool, Slot)}
     || Slot <- lists:seq(Size + 1, Limit), weir_pool_slots:worker(Slot, Slots) =/= undefined
    ],
    Idle = maps:from_list([
        {Slot, since(Slot, Word, Now, Before)}
     || {Slot, Word} <- Words, weir_pool_word:state(Word) =:= free
    ]),
    Over = [
        Slot
     || {Slot, {_Word, Since}} <- lists:sort(maps:to_list(Idle)),
        Now - Since >= Linger,
        weir_pool_slots:hold(Slot, Slots)
    ],
    Retired = lists:foldl(fun(Slot, S) -> weir_pool_slots:take_out(Slot, retire, S) end, Slots, Over),
    {Retired, Sweep#sweep{idle = maps:without(Over, Idle)}}.

since(Slot, Word, Now, Before) ->
    case Before of
        #{Slot := {Word, Since}} -> {Word, Since};
        #{} -> {Word, Now}
    end.

%% @doc Has the keeper sent `check_round' after the interval, if there is a check.
-spec begin_checks(sweep()) -> ok.
begin_checks(#sweep{check = none}) ->
    ok;
begin_checks(#sweep{check = {_, Interval}}) ->
    _ = erlang:send_after(Interval, self(), check_round),
    ok.

%% @doc A round of checks begins: one idle worker after the other, so that only one at a time is out of use.
-spec check_round(weir_pool_slots:slots(), sweep()) -> {weir_pool_slots:slots(), sweep()}.
check_round(Slots, #sweep{checker = none, check = {_, _}} = Sweep) ->
    #pool{limit = Limit} = weir_pool_slots:pool(Slots),
    check_next(Slots, Sweep#sweep{unchecked = lists:seq(1, Limit)});
check_round(Slots, Sweep) ->
    %% Not sent by begin_checks/1: there is no check, or one is under way.
    {Slots, Sweep}.

check_next(Slots, #sweep{unchecked = []} = Sweep) ->
    ok = begin_checks(Sweep),
    {Slots, Sweep};
check_next(Slots, #sweep{unchecked = [Slot | More], check = {Fun, Interval}} = Sweep) ->
    case weir_pool_slots:hold(Slot, Slots) of
        true ->
            Worker = weir_pool_slots:worker(Slot, Slots),
            {Checker, Monitor} = weir_pool_task:start(checked, fun() -> Fun(Worker) end),
            _ = erlang:send_after(Interval, self(), {check_overdue, Checker}),
            Checked = Sweep#sweep{unchecked = More, checker = {Checker, Monitor, Slot}},
            {weir_pool_slots:look(Slot, Monitor, Slots), Checked};
        false ->
            check_next(Slots, Sweep#sweep{unchecked = More})
    end.

%% @doc A check has ended, for whatever reason. A slot that has another worker by now is no business of it.
-spec checked(Monitor :: reference(), Exit :: term(), weir_pool_slots:slots(), sweep()) ->
    {weir_pool_slots:slots(), sweep()}.
checked(Monitor, Exit, Slots, #sweep{checker = {_, Monitor, Slot}} = Sweep) ->
    Checked =
        case weir_pool_slots:looked(Slot, Monitor, Slots) of
            {ok, Looked} when Exit =:= {done, ok}; Exit =:= {done, true} ->
                weir_pool_slots:act(Slot, Looked);
            {ok, Looked} ->
                ok = weir_pool_terms:count(weir_pool_slots:pool(Slots), ?CHECK_FAILURES),
                weir_pool_slots:renew(Slot, Looked);
            void ->
                Slots
        end,
    check_next(Checked, Sweep#sweep{checker = none});
checked(_Stray, _Exit, Slots, Sweep) ->
    {Slots, Sweep}.

%% @doc The time of a check is over.
-spec overdue(Checker :: pid(), sweep()) -> ok.
overdue(Checker, #sweep{checker = {Checker, _, _}}) ->
    true = exit(Checker, kill),
    ok;
overdue(_Ended, #sweep{}) ->
    ok.
