%% @doc The hour or the day that the entries of a file belong to, and whether it is over.
%%
%% A daily file has the entries of one day of the local calendar, which lasts 23 or 25 hours when the clock changes. An
%% hourly file has those of one hour of the local clock; an hour that the clock shows twice gets two files. A period
%% never ends because the clock is set back.
%%
%% To ask for the local time with each batch would cost more than the rest of the bookkeeping. Zones begin their hours
%% and days at a quarter of an hour of UTC, so it is enough to look once a quarter.
%%
%% A pure policy, but that the zone is the machine's: no process, no clock. Times are system time in milliseconds.
%% @private
-module(weir_log_period).

-export([new/3, update/3, is_over/1, period/2, period/3, next_update/1]).

-export_type([interval/0, due/0, period/0]).

-type interval() :: none | hourly | daily.

-type period() :: integer().
%% A later period is a greater number. Periods of different intervals cannot be compared.

-record(due, {
    interval :: interval(),
    %% Of what is in the file; `none': there is nothing, or it is not known yet; `over': it is not the present one.
    period = none :: none | period() | over,
    %% When to look next.
    next = none :: none | integer()
}).

-opaque due() :: #due{}.

-define(QUARTER_MS, 900000).

%% @doc Of a file that was opened with this size and last written to at this time.
-spec new(interval(), Size :: non_neg_integer(), WrittenMs :: integer()) -> due().
new(Interval, Size, _WrittenMs) when Interval =:= none; Size =:= 0 -> #due{interval = Interval};
new(Interval, _Size, WrittenMs) -> #due{interval = Interval, period = period(Interval, WrittenMs)}.

%% @doc Looks at the clock, before something is written to a file that has this size. A file that is empty belongs to
%% the present period. Cost: a comparison; once a quarter of an hour, like {@link period/2}.
-spec update(NowMs :: integer(), Size :: non_neg_integer(), due()) -> due().
update(_NowMs, _Size, #due{interval = none} = Due) ->
    Due;
update(NowMs, Size, #due{next = Next, period = Period} = Due) when
    is_integer(Next), NowMs < Next, Period =/= over orelse Size > 0
->
    Due;
update(NowMs, Size, #due{interval = Interval, period = Period} = Due) ->
    Present = period(Interval, NowMs),
    New =
        if
            Size =:= 0; Period =:= none -> Present;
            %% An atom is greater than every number, so what is over stays over.
            Present > Period -> over;
            true -> Period
        end,
    Due#due{period = New, next = next_update(NowMs)}.

%% @doc Whether the file's period was over at the last update.
-spec is_over(due()) -> boolean().
is_over(#due{period = Period}) -> Period =:= over.

%% @doc The period of a time, by the calendar and the zone of this machine.
%% Cost: one or two microseconds, for the local time.
-spec period(hourly | daily, SystemMs :: integer()) -> period().
period(Interval, SystemMs) ->
    Seconds = floor_div(SystemMs, 1000),
    Local = calendar:datetime_to_gregorian_seconds(calendar:system_time_to_local_time(Seconds, second)),
    Epoch = calendar:datetime_to_gregorian_seconds({{1970, 1, 1}, {0, 0, 0}}),
    period(Interval, Seconds, Local - Epoch).

%% @doc The period of a time that is given twice: in seconds of UTC since 1970, and what the local clock shows then, in
%% seconds since it showed 1970.
-spec period(hourly | daily, Seconds :: integer(), Local :: integer()) -> period().
period(daily, _Seconds, Local) -> floor_div(Local, 86400);
%% When the hour began, or would have begun with the clock as it is set now.
period(hourly, Seconds, Local) -> Seconds - (Local - floor_div(Local, 3600) * 3600).

%% @doc The time, after this one, at which another period may have begun.
-spec next_update(SystemMs :: integer()) -> integer().
next_update(SystemMs) -> (floor_div(SystemMs, ?QUARTER_MS) + 1) * ?QUARTER_MS.

floor_div(Number, Divisor) when Number >= 0 -> Number div Divisor;
floor_div(Number, Divisor) -> -((Divisor - 1 - Number) div Divisor).
