%% @doc CoDel (Nichols, Jacobson et al., RFC 8289): decides who of a queue is dropped instead of served.
%%
%% A queue that absorbs a burst is good, one that stays long only makes everybody late. What tells them apart is the
%% shortest wait within an interval: when even that is above the target, the queue stands, and one is dropped. The next
%% is dropped an `interval / sqrt(N)' after the N-th, until somebody has waited for less than the target; and if the
%% queue stands again soon, it goes on with the rate that helped.
%%
%% A pure policy: no process, no clock. Times are arguments, in any unit as long as it is always the same. The user of
%% this module takes the first of its queue only when it can be served, offers it ({@link offer/4}), removes it if it is
%% to be dropped, and offers the next, until one is to be served or the queue is empty, which it tells ({@link
%% empty/2}).
%%
%% The functions of section 5 of the RFC loop over the queue; here the queue's owner does, and the state remembers where
%% in that loop it is (`step'). Otherwise there are two differences:
%%
%% <ul>
%% <li>The RFC never drops when what is left is at most one packet; here, when nobody is left: it would help no
%%   one.</li>
%% <li>A sender whose packet is dropped slows down, so a slowly growing rate is enough for packets. Those who claim do
%%   not: with C served a second and twice as many coming, the law alone takes `2 * C * Interval^2' seconds to drop as
%%   many as are too many: 0.8 s for C = 1000 and 20 ms, 5 s for 50 ms. Therefore, while it is dropping, it also drops
%%   whoever has waited longer than a limit (the controlled delay of B. Maurer, "Fail at Scale", ACM Queue 2015).
%%   Without a limit it is the RFC's law and nothing else.</li>
%% </ul>
%% @private
-module(weir_pool_codel).

-export([new/3, offer/4, empty/2]).

-export_type([codel/0]).

-record(codel, {
    target :: pos_integer(),
    interval :: pos_integer(),
    %% While dropping, whoever has waited longer is dropped. Above every wait (an atom is above every number): nobody.
    limit :: pos_integer() | none,
    %% When the wait will have been above the target for a whole interval; `below': it was not at the last look.
    first_above = below :: below | integer(),
    dropping = false :: boolean(),
    %% When the next is to be dropped, or was to be when dropping ended.
    drop_next = 0 :: integer(),
    %% Drops since dropping began, on top of the count that it began with, and that count.
    count = 0 :: non_neg_integer(),
    last_count = 0 :: non_neg_integer(),
    %% What the last offer was: the end of a dequeue, a drop that began dropping, or a further one.
    step = done :: done | began | dropped
}).

-opaque codel() :: #codel{}.

%% Dropping that begins again within so many intervals goes on where it ended.
-define(RECENT_INTERVALS, 16).

%% @doc A queue in which nobody has waited yet, with a limit above the target, or none.
-spec new(Target :: pos_integer(), Interval :: pos_integer(), Limit :: pos_integer() | none) -> codel().
new(Target, Interval, Limit) when Limit > Target -> #codel{target = Target, interval = Interval, limit = Limit}.

%% @doc Whether the first of the queue is to be served or dropped, after it has waited this long, with so many behind
%% it.
-spec offer(Waited :: integer(), Behind :: non_neg_integer(), Now :: integer(), codel()) -> {serve | drop, codel()}.
offer(Waited, Behind, Now, #codel{step = Step} = Codel) ->
    case judge(Waited, Behind, Now, Codel) of
        {false, Below} when Step =:= began -> {serve, begin_dropping(Now, Below)};
        {false, Below} -> {serve, Below#codel{dropping = false, step = done}};
        {true, Above} -> above(Step, Waited, Now, Above)
    end.

%% It may be dropped.
above(done, _Waited, _Now, #codel{dropping = false} = Codel) ->
    {drop, Codel#codel{step = began}};
above(done, Waited, Now, Codel) ->
    drop_if_due(Waited, Now, Codel);
above(dropped, Waited, Now, #codel{drop_next = DropNext, count = Count} = Codel) ->
    drop_if_due(Waited, Now, Codel#codel{drop_next = control(DropNext, Count, Codel)});
above(began, Waited, Now, Codel) ->
    %% The law serves this one in any case.
    drop_if_late(Waited, begin_dropping(Now, Codel)).

%% @doc The queue is empty: nobody waits too long.
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

%% On top of the law, which does not hear of it: the dequeue goes on as if it began with the next.
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
