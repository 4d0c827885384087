%% @private Decides which cases and suites run a second time, and whether a run of the suites has failed.
%%
%% Rules, for a run in which N cases ran:
%% <ul>
%% <li>A failure is a fault or luck: `weir_kit:fault/1' says which. A node that ends by itself is a fault, and
%% so is a suite without cases.</li>
%% <li>A case that failed by luck runs again by itself, twice at most. If it passes once, it has passed.</li>
%% <li>A suite is broken if its init failed, or that of a group, or if it took too long. A broken suite runs again
%% once, and its second result counts. If one of its cases found a fault, the suite does not run again.</li>
%% <li>If more than one case in a hundred would need a second try, none is repeated, and the run fails. One case may
%% always be repeated, so that a single suite can run.</li>
%% </ul>
%% All functions are pure.
-module(weir_kit_test_verdict).

-export([result/4, broken/2, has_fault/1, unlucky/2, too_many/2]).
-export([failures/1, failure/2, with_tries/2, totals/1, is_green/1]).
-export_type([result/0, failure/0, tries/0, mode/0]).

-type failure() :: #{suite := module(), group := atom(), name := atom(), class := fault | luck, reason := binary()}.
-type result() :: #{
    suite := module(),
    passed := non_neg_integer(),
    skipped := non_neg_integer(),
    failures := [failure()],
    broken := none | {fault | luck, Reason :: binary()},
    ms := non_neg_integer(),
    cpu_ms := non_neg_integer()
}.
%% `ms': how long the suite took. `cpu_ms': the processor's time of its node and of the programs below that.
-type mode() :: strict | repeat.
-type tries() :: [{failure(), passed | failed}].

%% @doc Sums up the events that {@link weir_kit_test_hook} wrote in a run of a suite that took `Ms' milliseconds.
-spec result(module(), [weir_kit_test_hook:event()], ended | killed, Ms :: non_neg_integer()) -> result().
result(Suite, Events, End, Ms) ->
    {Passed, CpuMs} =
        case lists:keyfind(done, 1, Events) of
            {done, N, Cpu} -> {N, Cpu};
            false -> {0, 0}
        end,
    #{
        suite => Suite,
        passed => Passed,
        skipped => length([skipped || {skipped, _, _, _} <- Events]),
        failures => [
            #{suite => Suite, group => Group, name => Name, class => Class, reason => Reason}
         || {failed, Group, Name, Class, Reason} <- Events
        ],
        broken => what_broke(Events, End),
        ms => Ms,
        cpu_ms => CpuMs
    }.

what_broke(Events, End) ->
    Configs = [{Class, text("~s failed: ~ts", [Name, Reason])} || {config_failed, Name, Class, Reason} <- Events],
    case {lists:keymember(done, 1, Events), End, Configs} of
        {true, _, []} -> no_case(Events);
        {true, _, _} -> hd([Fault || {fault, _} = Fault <- Configs] ++ Configs);
        {false, killed, _} -> {luck, text("the suite took too long~s", [running(Events)])};
        {false, ended, _} -> {fault, text("the node of the suite ended~s", [running(Events)])}
    end.

%% A suite whose list of cases is empty, perhaps by mistake, would pass unseen among the others.
no_case(Events) ->
    case [Event || Event <- Events, element(1, Event) =/= begun, element(1, Event) =/= ended] of
        [{done, 0, _}] -> {fault, <<"the suite ran no case">>};
        _ -> none
    end.

running(Events) ->
    Ended = [{Group, Case} || {ended, Group, Case, _} <- Events],
    case [Case || {begun, Group, Case} <- Events, not lists:member({Group, Case}, Ended)] of
        [] -> "";
        Cases -> io_lib:format(" while it ran ~tw", [lists:last(Cases)])
    end.

text(Format, Arguments) -> unicode:characters_to_binary(io_lib:format(Format, Arguments)).

%% @doc Returns the suites that run again: those that are broken by luck and found no fault.
-spec broken([result()], mode()) -> [module()].
broken(_Results, strict) -> [];
broken(Results, repeat) ->
    [Suite || #{suite := Suite, broken := {luck, _}} = Result <- Results, not has_fault(Result)].

%% @doc Returns whether a case of the suite found a fault, or the suite itself is broken by a fault.
-spec has_fault(result()) -> boolean().
has_fault(Result) -> [fault || #{class := fault} <- failures([Result])] =/= [].

%% @doc Returns the cases that run again, none if there are too many.
-spec unlucky([result()], mode()) -> [failure()].
unlucky(_Results, strict) ->
    [];
unlucky(Results, repeat) ->
    case too_many(Results, repeat) of
        true -> [];
        false -> lucky_failures(Results)
    end.

%% @doc Returns whether too many cases failed by luck, so that none runs again.
-spec too_many([result()], mode()) -> boolean().
too_many(_Results, strict) ->
    false;
too_many(Results, repeat) ->
    #{ran := Ran} = totals(Results),
    length(lucky_failures(Results)) > max(1, Ran div 100).

lucky_failures(Results) ->
    [Failure || #{broken := none, failures := Failures} <- Results, #{class := luck} = Failure <- Failures].

%% @doc Returns all failures. A broken suite is one of them, as a case `init'.
-spec failures([result()]) -> [failure()].
failures(Results) ->
    [failure(Suite, Broken) || #{suite := Suite, broken := {_, _} = Broken} <- Results] ++
        [Failure || #{failures := Failures} <- Results, Failure <- Failures].

%% @doc Returns the failure of a broken suite.
-spec failure(module(), {fault | luck, Reason :: binary()}) -> failure().
failure(Suite, {Class, Reason}) -> #{suite => Suite, group => none, name => init, class => Class, reason => Reason}.

%% @doc Takes the cases that passed at a second try from the failures of their suites.
-spec with_tries([result()], tries()) -> [result()].
with_tries(Results, Tries) ->
    Passed = [Failure || {Failure, passed} <- Tries],
    [
        begin
            Left = Failures -- Passed,
            Result#{failures := Left, passed := N + length(Failures) - length(Left)}
        end
     || #{failures := Failures, passed := N} = Result <- Results
    ].

%% @doc Counts the cases of a run. A broken suite counts as one more failed case.
-spec totals([result()]) -> #{ran | passed | failed | skipped := non_neg_integer()}.
totals(Results) ->
    Passed = lists:sum([N || #{passed := N} <- Results]),
    Failed = length(failures(Results)),
    Skipped = lists:sum([N || #{skipped := N} <- Results]),
    #{ran => Passed + Failed, passed => Passed, failed => Failed, skipped => Skipped}.

%% @doc Returns whether cases ran and all of them passed.
-spec is_green([result()]) -> boolean().
is_green(Results) ->
    #{ran := Ran, failed := Failed} = totals(Results),
    Ran > 0 andalso Failed =:= 0.
