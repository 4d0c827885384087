%% Properties that fail by counterexamples, deadlines and exceptions, for weir_kit_property. The property of a case
%% counts its tests, and the case decides what the Nth test returns or raises.
-module(weir_kit_property_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-compile([export_all, nowarn_export_all]).

-define(DEADLINE, {never, condition, false}).
-define(assertFault(Failures, Input, Call), ?assertError(
    {weir_fault, {counterexample, #{failures := Failures, input := Input}}}, Call
)).

all() -> weir_kit:cases(?MODULE).

init_per_testcase(_Case, Config) -> [{tests, counters:new(1, [])} | Config].

%% Returns a property whose Nth test returns the result of Test(N, Input).
property(Config, Test) -> property(Config, integer(), Test).

property(Config, Type, Test) ->
    Tests = tests(Config),
    ?FORALL(Input, Type, begin
        ok = counters:add(Tests, 1, 1),
        Test(counters:get(Tests, 1), Input)
    end).

tests(Conf) -> proplists:get_value(tests, Conf).

holds(Property) -> weir_kit_property:holds(Property, [{numtests, 20}, quiet]).

%% Asserts how many tests ran.
ran(N, Config) -> ?assertEqual(N, counters:get(tests(Config), 1)).

%% ---------------------------------------------------------------- verdicts

all_tests_pass(Config) ->
    ok = holds(property(Config, fun(_, _) -> true end)),
    ran(20, Config),
    ok = holds(property(Config, fun(_, _) -> [] end)),
    ran(40, Config).

a_counterexample_is_a_fault_with_the_smallest_input(Config) ->
    ?assertFault([{wrong, false}], [10], holds(property(Config, range(0, 1000), fun(_, I) -> I < 10 end))),
    TooLarge = fun(_, I) -> [{too_large, I} || I >= 10] end,
    ?assertFault([{wrong, [{too_large, 10}]}], [10], holds(property(Config, range(0, 1000), TooLarge))).

an_exception_is_a_fault_with_its_reason(Config) ->
    ?assertFault([{raised, error, oops, [_ | _]}], [_], holds(property(Config, fun(_, _) -> error(oops) end))),
    ?assertFault([{raised, throw, oops, _}], [_], holds(property(Config, fun(_, _) -> throw(oops) end))),
    ?assertFault([{raised, exit, oops, _}], [_], holds(property(Config, fun(_, _) -> exit(oops) end))).

%% A test that raises may leave a table behind, because of which all later tests raise another exception.
the_first_failure_is_kept(Config) ->
    Property = property(Config, fun
        (1, _) -> error(oops);
        (_, _) -> error(left_behind)
    end),
    ?assertError(
        {weir_fault, {counterexample, #{
            first := [{raised, error, oops, _}], failures := [{raised, error, left_behind, _}]
        }}},
        holds(Property)
    ).

an_exception_is_shrunk(Config) ->
    Property = property(Config, range(0, 1000), fun(_, I) -> I < 10 orelse error({too_large, I}) end),
    ?assertFault([{raised, error, {too_large, 10}, _}], [10], holds(Property)).

a_deadline_is_no_fault_and_ends_the_property(Config) ->
    ?assertError(
        {deadline, [{raised, error, ?DEADLINE, [_ | _]}]}, holds(property(Config, fun(_, _) -> error(?DEADLINE) end))
    ),
    ran(1, Config).

a_deadline_deep_in_a_failure(Config) ->
    Deadlines = [?DEADLINE, {still_alive, self(), []}, {no_result, []}],
    [
        ?assertError({deadline, [{wrong, [#{inside := [{x, D}]}]}]}, holds(property(Config, fun(_, _) ->
            [#{inside => [{x, D}]}]
        end)))
     || D <- Deadlines
    ],
    ran(3, Config).

a_test_that_passes_met_no_deadline(Config) ->
    ok = holds(property(Config, fun(_, _) -> try error(?DEADLINE) catch error:?DEADLINE -> true end end)),
    ran(20, Config).

%% The stack of a function clause has the arguments.
an_argument_is_no_deadline(Config) ->
    Property = property(Config, fun(_, _) -> weir_kit:wait_ms() =:= lists:reverse(?DEADLINE) end),
    ?assertFault([{raised, error, function_clause, [{lists, reverse, [?DEADLINE], _} | _]}], [_], holds(Property)).

a_fault_about_a_deadline_is_a_fault(Config) ->
    Property = property(Config, fun(_, _) -> weir_kit:fault({leaked, ?DEADLINE}) end),
    ?assertFault([{raised, error, {weir_fault, _}, _}], [_], holds(Property)).

%% ---------------------------------------------------------------- counterexamples and deadlines in one property

%% PropEr shrinks the input of the third test. Its next test, the first of a smaller input, meets a deadline.
a_deadline_in_shrinking_does_not_excuse_the_counterexample(Config) ->
    ?assertFault([{wrong, false}], [500], holds(property(Config, exactly_or_smaller(500), fun
        (N, _) when N < 3 -> true;
        (3, _) -> false;
        (_, _) -> error(?DEADLINE)
    end))),
    ran(4, Config).

%% Shrinking finds smaller counterexamples before the deadline. The fault has the last of them, with its failures.
a_deadline_late_in_shrinking(Config) ->
    Property = property(Config, exactly_or_smaller(500), fun
        (N, I) when N =< 3 -> [{test, I}];
        (_, _) -> error(?DEADLINE)
    end),
    ?assertError(
        {weir_fault, {counterexample, #{failures := [{wrong, [{test, I}]}], input := [I]}}} when I < 500,
        holds(Property)
    ),
    ran(4, Config).

%% The tests after a deadline do not run, and the runner repeats the case.
a_deadline_before_a_counterexample(Config) ->
    ?assertError({deadline, [{raised, error, ?DEADLINE, _}]}, holds(property(Config, fun
        (1, _) -> true;
        (2, _) -> error(?DEADLINE);
        (_, _) -> false
    end))),
    ran(2, Config).

a_deadline_excuses_no_later_property(Config) ->
    ?assertError({deadline, _}, holds(property(Config, fun(_, _) -> error(?DEADLINE) end))),
    ?assertFault([{wrong, false}], [_], holds(property(Config, fun(_, _) -> false end))),
    ok = holds(property(Config, fun(_, _) -> true end)).

%% A type whose first values are all N, and which shrinks to smaller values.
exactly_or_smaller(N) -> ?SHRINK(exactly(N), [range(0, N - 1)]).

%% ---------------------------------------------------------------- nested properties

tests_of_nested_properties_are_judged(Config) ->
    Nested = fun(Test) -> property(Config, fun(_, _) -> ?FORALL(Inner, range(0, 1000), Test(Inner)) end) end,
    ok = holds(Nested(fun(_) -> true end)),
    ?assertFault([{raised, error, {too_large, 10}, _}], [0, 10], holds(Nested(fun(I) ->
        I < 10 orelse error({too_large, I})
    end))),
    ?assertError({deadline, _}, holds(Nested(fun(_) -> error(?DEADLINE) end))).

tests_below_other_macros_are_judged(Config) ->
    Self = self(),
    Below = fun(Test) -> property(Config, fun(_, I) ->
        ?IMPLIES(I =/= 0, ?WHENFAIL(Self ! reported, Test()))
    end) end,
    ok = holds(Below(fun() -> true end)),
    ?assertFault([{raised, error, oops, _}], [_], holds(Below(fun() -> error(oops) end))),
    receive reported -> ok after 0 -> error(not_reported) end,
    ?assertError({deadline, _}, holds(Below(fun() -> error(?DEADLINE) end))).

an_exception_of_a_generator_is_a_fault(Config) ->
    Property = property(Config, ?LET(_, integer(), error(oops)), fun(_, _) -> true end),
    ?assertError({weir_fault, {counterexample, #{input := _}}}, holds(Property)).

%% ---------------------------------------------------------------- commands

initial_state() -> 0.

command(_State) -> {call, ?MODULE, increment, [range(1, 9)]}.

precondition(_State, {call, _, increment, [_]}) -> true.

next_state(State, _Result, {call, _, increment, [By]}) -> State + By.

postcondition(_State, {call, _, increment, [By]}, Result) -> Result =:= By.

increment(oops) -> error(oops);
increment(late) -> error(?DEADLINE);
increment(wrong) -> 0;
increment(By) -> By.

increments(Arguments) ->
    Numbered = lists:zip(lists:seq(1, length(Arguments)), Arguments),
    [{set, {var, N}, {call, ?MODULE, increment, [By]}} || {N, By} <- Numbered].

%% Both functions return equal results for sequences of commands without an exception.
commands_run_as_by_proper(_Config) ->
    ok = holds(?FORALL(Commands, commands(?MODULE), begin
        {_, _, ok} = Result = weir_kit_property:run_commands(?MODULE, Commands),
        Result =:= run_commands(?MODULE, Commands)
    end)),
    ok = holds(?FORALL(Commands, commands(?MODULE, 5), begin
        {_, Sum, ok} = Result = weir_kit_property:run_commands(?MODULE, Commands),
        Sum >= 5 andalso Result =:= run_commands(?MODULE, Commands)
    end)),
    ok = holds(?FORALL(Variable, exactly({var, 1}), begin
        Commands = increments([1, Variable, wrong, 4]),
        {[{0, 1}, {1, 1}, {2, 0}], 2, {postcondition, false}} = Result =
            weir_kit_property:run_commands(?MODULE, Commands),
        Result =:= run_commands(?MODULE, Commands)
    end)).

%% The test drops the result of the commands.
an_exception_of_a_command_is_kept(Config) ->
    Property = fun(Argument) -> property(Config, fun(_, _) ->
        {History, State, Result} = weir_kit_property:run_commands(?MODULE, increments([1, Argument, 2])),
        [{0, 1}] = History,
        1 = State,
        Result =:= ok
    end) end,
    ?assertFault([{raised, error, oops, [_ | _]}, {wrong, false}], [_], holds(Property(oops))),
    ?assertError({deadline, [{raised, error, ?DEADLINE, _}, {wrong, false}]}, holds(Property(late))).

an_exception_of_a_command_belongs_to_its_test(Config) ->
    ?assertFault([{wrong, false}], [_], holds(property(Config, fun
        (1, _) -> {_, _, {exception, _, _, _}} = weir_kit_property:run_commands(?MODULE, increments([late])), true;
        (_, _) -> false
    end))).
