%% @doc When all processes are to be read at once: the memory of all of them grows, and a slice of them at a time would
%% come too late to whoever is the reason.
%%
%% The memory is read once a second. One reading that differs from those around it is no growth, up or down: the process
%% that has the pids of all ends before the next one reads them anew, so that for a moment many megabytes are missing,
%% and a process may take much while it collects garbage. So what counts is the less of two readings in a row, against
%% the least in ten seconds of the more of two in a row. While all are read nothing counts, and afterwards the growth
%% begins anew: to read them takes memory, too, which would else be a reason to read them again.
%%
%% Such a burst has a price, the time that it takes, and is paid from a credit that comes back slowly.
%% @private
-module(weir_watch_growth).

-export([new/0, second/4]).

-export_type([growth/0]).

%% Growth that makes a burst: at least so many bytes, and this part of all.
-define(BYTES, 8_000_000).
-define(PART, 256).
-define(SECONDS, 10).
%% The microseconds that a burst takes for each process; how many bursts may take, and how many come back each second.
-define(PROCESS_US, 0.55).
-define(CREDIT_US, 1_200_000).
-define(EARNED_US, 6000).

-record(growth, {
    last = none :: non_neg_integer() | none,
    highs = [] :: [non_neg_integer()],
    credit = ?CREDIT_US :: non_neg_integer()
}).

-opaque growth() :: #growth{}.

%% @doc Nothing is known yet, and the credit is full.
-spec new() -> growth().
new() -> #growth{}.

%% @doc A second is over. Takes the memory of all processes, how many they are, and whether a burst goes on; tells
%% whether one is to begin, which is paid for then.
-spec second(Bytes :: non_neg_integer(), Processes :: non_neg_integer(), Going :: boolean(), growth()) ->
    {boolean(), growth()}.
second(_Bytes, _Processes, true, Growth) ->
    {false, anew(earned(Growth))};
second(Bytes, _Processes, false, #growth{last = none} = Growth) ->
    {false, (earned(Growth))#growth{last = Bytes}};
second(Bytes, Processes, false, #growth{last = Last, highs = Before} = Growth) ->
    Earned = #growth{credit = Credit} = earned(Growth),
    Highs = lists:sublist([max(Bytes, Last) | Before], ?SECONDS),
    Base = lists:min(Highs),
    Price = min(round(Processes * ?PROCESS_US), ?CREDIT_US),
    case min(Bytes, Last) > Base + max(?BYTES, Base div ?PART) andalso Credit >= Price of
        true -> {true, anew(Earned#growth{credit = Credit - Price})};
        false -> {false, Earned#growth{last = Bytes, highs = Highs}}
    end.

earned(#growth{credit = Credit} = Growth) -> Growth#growth{credit = min(?CREDIT_US, Credit + ?EARNED_US)}.

anew(Growth) -> Growth#growth{last = none, highs = []}.
