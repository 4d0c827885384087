%% @doc Health checks: idle workers, one after the other, so that only one at a time is out of use.
%%
%% Not a process: the manager holds the value and calls these functions. A check may take time, and is made by a task,
%% which is killed when its time is over; the manager gets `{checked, Monitor, process, Checker, Exit}'.
%% @private
-module(weir_pool_check).

-export([new/1, begin_round/1, round/2, checked/4]).
-export([in_time/3]).

-export_type([check/0]).

-include("weir_pool.hrl").

-record(check, {
    what :: {fun((pid()) -> term()), IntervalMs :: pos_integer()} | none,
    %% Slots that this round has still to check, and the check under way.
    unchecked = [] :: [weir_pool:slot()],
    checker = none :: none | {pid(), weir_pool:slot()}
}).

-opaque check() :: #check{}.

%% @doc The checks of a pool, of which none is under way.
-spec new(#conf{}) -> check().
new(#conf{check = What}) -> #check{what = What}.

%% @doc Has the manager sent `check_round' after the interval, if there is a check.
-spec begin_round(check()) -> ok.
begin_round(#check{what = none}) ->
    ok;
begin_round(#check{what = {_, Interval}}) ->
    _ = erlang:send_after(Interval, self(), check_round),
    ok.

%% @doc A round begins.
-spec round(check(), weir_pool_slots:slots()) -> {check(), weir_pool_slots:slots()}.
round(#check{checker = none, what = {_, _}} = Check, Slots) ->
    #pool{limit = Limit} = weir_pool_slots:pool(Slots),
    next(Check#check{unchecked = lists:seq(1, Limit)}, Slots);
round(Check, Slots) ->
    %% Not sent by begin_round/1: there is no check, or one is under way.
    {Check, Slots}.

%% @private
-spec in_time(Worker :: pid(), fun((pid()) -> term()), IntervalMs :: pos_integer()) -> term().
in_time(Worker, Fun, Interval) ->
    {ok, _} = timer:kill_after(Interval),
    Fun(Worker).

next(#check{unchecked = []} = Check, Slots) ->
    ok = begin_round(Check),
    {Check, Slots};
next(#check{unchecked = [Slot | More], what = {Fun, Interval}} = Check, Slots) ->
    case weir_pool_slots:reserve(Slot, Slots) of
        true ->
            InTime = {?MODULE, in_time, [Fun, Interval]},
            {Checker, Examining} = weir_pool_slots:examine(Slot, checked, InTime, Slots),
            {Check#check{unchecked = More, checker = {Checker, Slot}}, Examining};
        false ->
            next(Check#check{unchecked = More}, Slots)
    end.

%% @doc A check has ended, for whatever reason. A slot that has another worker by now is no business of it.
-spec checked({Checker :: pid(), Monitor :: reference()}, Exit :: term(), check(), weir_pool_slots:slots()) ->
    {check(), weir_pool_slots:slots()}.
checked({Checker, Monitor}, Exit, #check{checker = {Checker, Slot}} = Check, Slots) ->
    next(Check#check{checker = none}, weir_pool_slots:examined(Slot, Monitor, Exit, #{why => check}, Slots));
checked(_Stray, _Exit, Check, Slots) ->
    {Check, Slots}.
