%% @private Decides which cases and suites run a second time, and whether a run of the suites has failed.
%%
%% Rules, for a run in which N cases ran:
%% <ul>
%% <li>A failure is a fault if `weir_kit:fault/1' raised it, if the node of the suite ended by itself, or if the suite
%% has no cases. Each other failure is luck.</li>
%% <li>A case that failed by luck runs again alone, at most twice. If a repeated run passes, the case counts as
%% passed.</li>
%% <li>A suite is broken if its init or the init of a group failed, or if the suite took too long. A suite that is
%% broken by luck runs again once, and its second result counts. A suite with a fault does not run again.</li>
%% <li>If more than one case in a hundred failed by luck, no case runs again, and the run fails. A single such case
%% always runs again, however few cases ran.</li>
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
%% `ms': duration of the suite. `cpu_ms': CPU time of the suite's node and of the processes that the node started.
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

%% @doc Returns the suites that are broken by luck and found no fault, which run again. In strict mode, returns none.
-spec broken([result()], mode()) -> [module()].
broken(_Results, strict) -> [];
broken(Results, repeat) ->
    [Suite || #{suite := Suite, broken := {luck, _}} = Result <- Results, not has_fault(Result)].

%% @doc Returns whether a case of the suite found a fault, or the suite itself is broken by a fault.
-spec has_fault(result()) -> boolean().
has_fault(Result) -> [fault || #{class := fault} <- failures([Result])] =/= [].

%% @doc Returns the cases that failed by luck, which run again. In strict mode, or if there are too many, returns none.
-spec unlucky([result()], mode()) -> [failure()].
unlucky(_Results, strict) ->
    [];
unlucky(Results, repeat) ->
    case too_many(Results, repeat) of
        true -> [];
        false -> lucky_failures(Results)
    end.

%% @doc Returns whether more than one case in a hundred failed by luck. A single such case is never too many.
-spec too_many([result()], mode()) -> boolean().
too_many(_Results, strict) ->
    false;
too_many(Results, repeat) ->
    #{ran := Ran} = totals(Results),
    length(lucky_failures(Results)) > max(1, Ran div 100).

lucky_failures(Results) ->
    [Failure || #{broken := none, failures := Failures} <- Results, #{class := luck} = Failure <- Failures].

%% @doc Returns all failures. A broken suite counts as a failed case with the name `init'.
-spec failures([result()]) -> [failure()].
failures(Results) ->
    [failure(Suite, Broken) || #{suite := Suite, broken := {_, _} = Broken} <- Results] ++
        [Failure || #{failures := Failures} <- Results, Failure <- Failures].

%% @doc Returns the failure of a broken suite.
-spec failure(module(), {fault | luck, Reason :: binary()}) -> failure().
failure(Suite, {Class, Reason}) -> #{suite => Suite, group => none, name => init, class => Class, reason => Reason}.

%% @doc Counts the cases that passed at a second try as passed, and removes them from the failures of their suites.
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

%% @doc Returns whether at least one case ran and no case failed.
-spec is_green([result()]) -> boolean().
is_green(Results) ->
    #{ran := Ran, failed := Failed} = totals(Results),
    Ran > 0 andalso Failed =:= 0.
