%% @doc How many restarts within how long a pool puts up with.
%%
%% Like a supervisor's intensity and period, over all slots together. Pure: the time is an argument, in milliseconds. It
%% remembers at most `intensity' restarts, each for a period.
-module(weir_pool_budget).

-export([new/2, spend/2, set_intensity/2]).

-export_type([budget/0]).

-record(budget, {
    intensity :: non_neg_integer(),
    period_ms :: pos_integer(),
    %% When the last restarts were, and how many.
    recent = queue:new() :: queue:queue(integer()),
    count = 0 :: non_neg_integer()
}).

-opaque budget() :: #budget{}.

%% @doc Nothing spent. The period is in seconds.
-spec new(Intensity :: non_neg_integer(), Period :: pos_integer()) -> budget().
new(Intensity, Period) -> #budget{intensity = Intensity, period_ms = Period * 1000}.

%% @doc One restart. It counts until a whole period is over.
-spec spend(NowMs :: integer(), budget()) -> {ok, budget()} | exceeded.
spend(Now, Budget) ->
    #budget{intensity = Intensity, recent = Recent, count = Count} = Left = forget(Now, Budget),
    case Count < Intensity of
        true -> {ok, Left#budget{recent = queue:in(Now, Recent), count = Count + 1}};
        false -> exceeded
    end.

%% @doc From now on so many. What was spent counts.
-spec set_intensity(Intensity :: non_neg_integer(), budget()) -> budget().
set_intensity(Intensity, Budget) -> Budget#budget{intensity = Intensity}.

forget(Now, #budget{period_ms = Period, recent = Recent, count = Count} = Budget) ->
    case queue:peek(Recent) of
        {value, Oldest} when Oldest =< Now - Period ->
            forget(Now, Budget#budget{recent = queue:drop(Recent), count = Count - 1});
        _ ->
            Budget
    end.
