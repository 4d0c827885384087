%% @doc Interleaved rounds, and what is said about their figures.
%%
%% Round r runs every contestant once, in turn, then the next round begins: what else the machine does in a while is
%% borne by all. A contestant that takes very long may take part in fewer rounds. Medians are compared, and the extremes
%% told, since the mean of a few rounds on a shared machine says little.
%%
%% A run gives one figure, or a term with several that {@link view/2} takes apart.
-module(weir_bench_rounds).

-export([run/2, compare/2, view/2, median/1, quantile/2, summary/1, ratio/3, best/2]).

-export_type([contestant/0, contestant/1, result/0, result/1, summary/0]).

-type contestant(Figure) :: #{
    name := string(),
    %% Gives one figure. What has to be set up is done inside, outside of what it measures.
    run := fun(() -> Figure),
    %% Takes part in the first so many rounds only.
    rounds => pos_integer()
}.

-type contestant() :: contestant(number()).

-type result(Figure) :: #{name := string(), figures := [Figure, ...]}.

-type result() :: result(number()).

-type summary() :: #{median := number(), min := number(), max := number(), rounds := pos_integer()}.

%% @doc Runs the contestants, each round in a fresh order: the one that began comes last in the next round, so that
%% none always runs after the same other one. Before each run the caller's heap is collected. Results are in the order
%% of the contestants.
-spec run(Rounds :: pos_integer(), [contestant(Figure), ...]) -> [result(Figure)].
run(Rounds, Contestants) ->
    Figures = rounds(1, Rounds, Contestants, #{}),
    [#{name => Name, figures => lists:reverse(maps:get(Name, Figures))} || #{name := Name} <- Contestants].

rounds(Round, Rounds, _Contestants, Figures) when Round > Rounds ->
    Figures;
rounds(Round, Rounds, Contestants, Figures) ->
    Present = [Each || Each <- rotate(Round - 1, Contestants), Round =< maps:get(rounds, Each, Rounds)],
    rounds(Round + 1, Rounds, Contestants, lists:foldl(fun one/2, Figures, Present)).

one(#{name := Name, run := Run}, Figures) ->
    true = erlang:garbage_collect(),
    Figure = Run(),
    maps:update_with(Name, fun(Before) -> [Figure | Before] end, [Figure], Figures).

rotate(N, List) ->
    {First, Last} = lists:split(N rem length(List), List),
    Last ++ First.

%% @doc Runs contestants in the same rounds, and gives their results in the groups that they came in. Names differ.
-spec compare(Rounds :: pos_integer(), #{Group => [contestant(Figure)]}) -> #{Group => [result(Figure)]}.
compare(Rounds, Groups) ->
    Results = run(Rounds, lists:append(maps:values(Groups))),
    ByName = maps:from_list([{Name, Result} || #{name := Name} = Result <- Results]),
    maps:map(fun(_Group, Contestants) -> [maps:get(Name, ByName) || #{name := Name} <- Contestants] end, Groups).

%% @doc One figure out of each of those that a run gives.
-spec view(fun((Figures) -> Figure), result(Figures)) -> result(Figure).
view(Fun, #{figures := Figures} = Result) -> Result#{figures := lists:map(Fun, Figures)}.

%% @doc The middle one, or the mean of the two in the middle.
-spec median([number(), ...]) -> number().
median(Figures) ->
    Sorted = lists:sort(Figures),
    Length = length(Sorted),
    Middle = lists:nth((Length + 1) div 2, Sorted),
    case Length rem 2 of
        1 -> Middle;
        0 -> (Middle + lists:nth(Length div 2 + 1, Sorted)) / 2
    end.

%% @doc The least that so large a share of the figures do not exceed.
-spec quantile(Share :: float(), [Figure, ...]) -> Figure when Figure :: number().
quantile(Share, Figures) ->
    lists:nth(max(1, ceil(Share * length(Figures))), lists:sort(Figures)).

%% @doc Median, extremes and number of rounds.
-spec summary(result()) -> summary().
summary(#{figures := Figures}) ->
    #{median => median(Figures), min => lists:min(Figures), max => lists:max(Figures), rounds => length(Figures)}.

%% @doc How many times better ours is than the peer, by the medians.
-spec ratio(lower | higher, Ours :: result(), Peer :: result()) -> float().
ratio(lower, #{figures := Ours}, #{figures := Peer}) -> median(Peer) / median(Ours);
ratio(higher, #{figures := Ours}, #{figures := Peer}) -> median(Ours) / median(Peer).

%% @doc The result with the best median; the first of equals.
-spec best(lower | higher, [result(), ...]) -> result().
best(Better, [First | Rest]) ->
    lists:foldl(
        fun(Result, Best) ->
            case ratio(Better, Result, Best) > 1 of
                true -> Result;
                false -> Best
            end
        end,
        First,
        Rest
    ).
