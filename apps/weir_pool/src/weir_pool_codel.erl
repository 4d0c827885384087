%% @doc CoDel (Nichols, Jacobson et al., RFC 8289): decides whether a queue serves or drops its first waiter.
%%
%% A queue that absorbs a burst is useful. A queue that stays long only delays every waiter. The shortest wait within an
%% interval distinguishes the two. If the shortest wait is above the target, CoDel drops a waiter. After the N-th drop,
%% CoDel waits for `interval / sqrt(N)' before the next drop. The drops end when a wait is below the target. If waits
%% rise above the target again within 16 intervals, the drops resume at their last rate.
%%
%% This module has no process and no clock. Times are arguments in any unit. The owner of the queue calls the module
%% whenever the owner can serve a waiter:
%%
%% <ol>
%% <li>The owner takes the first waiter and calls {@link offer/4}.</li>
%% <li>If the result is `drop', the owner refuses the waiter and offers the next.</li>
%% <li>If the result is `serve', the owner serves the waiter.</li>
%% <li>If the queue has no waiter to offer, the owner calls {@link empty/2}.</li>
%% </ol>
%%
%% The functions of section 5 of the RFC loop over the queue. Here the owner loops, and the field `step' of the state
%% remembers the position in the RFC's loop. Two other rules differ from the RFC:
%%
%% <ul>
%% <li>The RFC never drops if at most one packet remains. This module never drops the last waiter, because that would
%%   speed up no other.</li>
%% <li>A sender slows down when its packets are dropped, so a rate of drops that grows slowly is enough for packets.
%%   Claimers do not slow down. Suppose that C waiters are served in a second and twice as many arrive. The RFC's law
%%   alone then takes `2 * C * Interval^2' seconds until it drops all in excess: 0.8 s for C = 1000 and 20 ms, and 5 s
%%   for 50 ms. Therefore, while it is dropping, this module also drops each waiter that has waited longer than a limit
%%   (the controlled delay of B. Maurer, "Fail at Scale", ACM Queue 2015). Without a limit, the module follows the RFC's
%%   law alone.</li>
%% </ul>
%% @private
-module(weir_pool_codel).

-export([new/3, offer/4, empty/2]).

-export_type([codel/0]).

-record(codel, {
    target :: pos_integer(),
    interval :: pos_integer(),
    %% Longest wait of a waiter that is served while dropping. `none' is above every wait, because Erlang orders atoms
    %% after numbers.
    limit :: pos_integer() | none,
    %% Time at which waits have been above the target for a whole interval. `below' if the last wait was below.
    first_above = below :: below | integer(),
    dropping = false :: boolean(),
    %% Time of the next drop, or the time that was planned when dropping ended.
    drop_next = 0 :: integer(),
    %% Number that divides the interval between drops. Each drop adds 1 to `count'. `last_count' is the value of `count'
    %% when dropping began.
    count = 0 :: non_neg_integer(),
    last_count = 0 :: non_neg_integer(),
    %% Result of the last offer: `done' after the end of a dequeue, `began' after the first drop of a row, `dropped'
    %% after another drop of that row.
    step = done :: done | began | dropped
}).

-opaque codel() :: #codel{}.

%% Number of intervals after the last planned drop within which dropping resumes at its previous rate.
-define(RECENT_INTERVALS, 16).

%% @doc Returns the state for an empty queue. Fails if the limit is not above the target.
-spec new(Target :: pos_integer(), Interval :: pos_integer(), Limit :: pos_integer() | none) -> codel().
new(Target, Interval, Limit) when Limit > Target -> #codel{target = Target, interval = Interval, limit = Limit}.

%% @doc Decides whether the queue's owner serves or drops the first waiter. Waited is the time that the waiter has
%% waited, and Behind is the number of waiters behind it.
-spec offer(Waited :: integer(), Behind :: non_neg_integer(), Now :: integer(), codel()) -> {serve | drop, codel()}.
offer(Waited, Behind, Now, #codel{step = Step} = Codel) ->
    case judge(Waited, Behind, Now, Codel) of
        {false, Below} when Step =:= began -> {serve, begin_dropping(Now, Below)};
        {false, Below} -> {serve, Below#codel{dropping = false, step = done}};
        {true, Above} -> above(Step, Waited, Now, Above)
    end.

%% Handles a wait that has been above the target for an interval.
above(done, _Waited, _Now, #codel{dropping = false} = Codel) ->
    {drop, Codel#codel{step = began}};
above(done, Waited, Now, Codel) ->
    drop_if_due(Waited, Now, Codel);
above(dropped, Waited, Now, #codel{drop_next = DropNext, count = Count} = Codel) ->
    drop_if_due(Waited, Now, Codel#codel{drop_next = control(DropNext, Count, Codel)});
above(began, Waited, Now, Codel) ->
    %% The RFC serves the waiter after the first drop in any case.
    drop_if_late(Waited, begin_dropping(Now, Codel)).

%% @doc Notes that the queue is empty, so no wait is above the target.
-spec empty(Now :: integer(), codel()) -> codel().
empty(Now, #codel{step = Step} = Codel) ->
    Below = Codel#codel{first_above = below},
    case Step of
        began -> begin_dropping(Now, Below);
        _ -> Below#codel{dropping = false, step = done}
    end.

judge(Waited, Behind, _Now, #codel{target = Target} = Codel) when Waited < Target; Behind =:= 0 ->
    {false, Codel#codel{first_above = below}};
judge(_Waited, _Behind, Now, #codel{first_above = below, interval = Interval} = Codel) ->
    {false, Codel#codel{first_above = Now + Interval}};
judge(_Waited, _Behind, Now, #codel{first_above = FirstAbove} = Codel) ->
    {Now >= FirstAbove, Codel}.

drop_if_due(_Waited, Now, #codel{drop_next = DropNext, count = Count} = Codel) when Now >= DropNext ->
    {drop, Codel#codel{count = Count + 1, step = dropped}};
drop_if_due(Waited, _Now, Codel) ->
    drop_if_late(Waited, Codel#codel{step = done}).

%% Drops a waiter beyond the limit without a change to the state of the RFC's law. The dequeue goes on as if the next
%% waiter were its first.
drop_if_late(Waited, #codel{limit = Limit} = Codel) when Waited > Limit -> {drop, Codel};
drop_if_late(_Waited, Codel) -> {serve, Codel}.

begin_dropping(Now, #codel{drop_next = DropNext, interval = Interval} = Codel) ->
    Count =
        case Codel#codel.count - Codel#codel.last_count of
            Recent when Recent > 1, Now - DropNext < ?RECENT_INTERVALS * Interval -> Recent;
            _ -> 1
        end,
    Codel#codel{
        dropping = true,
        count = Count,
        last_count = Count,
        drop_next = control(Now, Count, Codel),
        step = done
    }.

control(Time, Count, #codel{interval = Interval}) -> Time + trunc(Interval / math:sqrt(Count)).
