%% @doc Checks properties of PropEr, and tells a counterexample from a deadline that a test met on a busy machine.
%%
%% A test of a property returns a boolean, the list of everything that is wrong, or a nested `?FORALL', `?WHENFAIL' or
%% `?IMPLIES'. A test fails by false, by a list that is not empty, and by an exception. Each failed test is judged
%% alone:
%% <ul>
%% <li>A test met a deadline if its exception or its list contains, at any depth, the error of a wait of {@link
%% weir_kit}: `{never, _, _}', `{still_alive, _, _}' or `{no_result, _}'. A test whose own waits time out raises such an
%% error too.</li>
%% <li>Each other failed test has found a counterexample.</li>
%% </ul>
%% A deadline ends the property: all later tests pass without running, because a test that was cut off may leave
%% processes and tables behind. A counterexample that was found before the deadline remains a fault. PropEr then reports
%% the smallest counterexample so far.
%%
%% The tests run in the process that calls {@link holds/2}, and their state is in its process dictionary. The macros
%% `?TRAPEXIT' and `?TIMEOUT' run a test in another process, so a property of {@link holds/2} does not use them.
-module(weir_kit_property).

-export([holds/2, run_commands/2]).

%% The module builds and matches the tuples of PropEr's properties, whose types PropEr does not export.
-type property() :: tuple().
-type failure() :: {raised, error | exit | throw, Reason :: term(), erlang:stacktrace()} | {wrong, term()}.
-type state() :: #{
    raised := [failure()],
    found := none | {counterexample, First :: [failure()], Last :: [failure()]} | {deadline, [failure()]},
    is_over := boolean()
}.
%% `raised': exceptions of the running test's commands. `found': failures of the first and the last counterexample, or
%% of the deadline. `is_over': whether a deadline has ended the property.

%% @doc Tests a property, a `?FORALL', with options of `proper:quickcheck/2'. Returns ok if all tests passed.
%%
%% After a counterexample, raises a fault of {@link weir_kit:fault/1}. The fault has the shrunk input, the failures of
%% its test, and the failures of the first test that failed. If an exception leaves tables or processes behind, only the
%% first failures have the cause. If a test met a deadline and no test before found a counterexample, fails with
%% `{deadline, Failures}', which `make test' repeats.
%%
%% ```
%% weir_kit_property:holds(?FORALL(List, list(integer()), lists:reverse(lists:reverse(List)) =:= List), [quiet])
%% '''
-spec holds(property(), [term()]) -> ok.
holds({forall, _, _} = Property, Options) ->
    _ = put_state(#{raised => [], found => none, is_over => false}),
    Result =
        try
            proper:quickcheck(watched(Property), [long_result | Options])
        catch
            Class:Reason:Stack -> {raised, Class, Reason, Stack}
        end,
    _State = #{found := Found} = erase(?MODULE),
    case {Found, Result} of
        {none, true} -> ok;
        {none, _} -> weir_kit:fault({counterexample, #{input => Result}});
        {{counterexample, First, Last}, _} ->
            weir_kit:fault({counterexample, #{failures => Last, first => First, input => Result}});
        {{deadline, Failures}, _} -> error({deadline, Failures})
    end.

%% @doc Runs the commands of a state machine like `proper_statem:run_commands/2', and returns the same result.
%%
%% An exception of a command, or of a callback of the state machine, is a failure of the test even if the test drops the
%% result. PropEr of Debian 12 loses such an exception: its code calls `erlang:get_stacktrace/0', which OTP 25 does not
%% have.
-spec run_commands(module(), Commands :: [tuple()]) ->
    {History :: [{State :: term(), Result :: term()}], State :: term(), ok | tuple()}.
run_commands(Module, [{init, State} | Commands]) ->
    run_commands(Module, Commands, proper_symb:eval([], State), [], []);
run_commands(Module, Commands) ->
    run_commands(Module, [{init, Module:initial_state()} | Commands]).

run_commands(_Module, [], State, _Values, History) ->
    {lists:reverse(History), State, ok};
run_commands(Module, [{set, {var, Variable}, Call} | Commands], State, Values, History) ->
    try run_command(Module, proper_symb:eval(Values, tuple_to_list(Call)), State) of
        {ok, Result, Next} ->
            Known = [{Variable, Result} | Values],
            run_commands(Module, Commands, proper_symb:eval(Known, Next), Known, [{State, Result} | History]);
        {postcondition, Result} ->
            {lists:reverse(History, [{State, Result}]), State, {postcondition, false}};
        precondition ->
            {lists:reverse(History), State, {precondition, false}}
    catch
        Class:Reason:Stack ->
            #{raised := Raised} = Own = get(?MODULE),
            _ = put_state(Own#{raised := Raised ++ [{raised, Class, Reason, Stack}]}),
            {lists:reverse(History), State, {exception, Class, Reason, Stack}}
    end.

run_command(Module, [call, M, F, Arguments], State) ->
    Call = {call, M, F, Arguments},
    case Module:precondition(State, Call) of
        true ->
            Result = apply(M, F, Arguments),
            case Module:postcondition(State, Call, Result) of
                true -> {ok, Result, Module:next_state(State, Result, Call)};
                false -> {postcondition, Result}
            end;
        false ->
            precondition
    end.

watched({forall, Type, Test}) -> {forall, Type, fun(Input) -> run(fun() -> Test(Input) end) end}.

run(Test) ->
    case get(?MODULE) of
        #{is_over := true} ->
            true;
        State ->
            _ = put_state(State#{raised := []}),
            judged(Test)
    end.

%% Returns a failed test's exception to PropEr as false, which all releases of PropEr shrink.
judged(Test) ->
    try Test() of
        true -> true;
        [] -> true;
        {forall, _, _} = Inner -> watched(Inner);
        {whenfail, Action, Inner} -> {whenfail, Action, fun() -> judged(Inner) end};
        {implies, Condition, Inner} -> {implies, Condition, fun() -> judged(Inner) end};
        Wrong -> failed({wrong, Wrong})
    catch
        Class:Reason:Stack -> failed({raised, Class, Reason, Stack})
    end.

failed(Failure) ->
    #{raised := Raised, found := Found} = State = get(?MODULE),
    Failures = Raised ++ [Failure],
    case {has_deadline(Failures), Found} of
        {false, none} ->
            _ = put_state(State#{found := {counterexample, Failures, Failures}}),
            false;
        {false, {counterexample, First, _Last}} ->
            _ = put_state(State#{found := {counterexample, First, Failures}}),
            false;
        {true, none} ->
            _ = put_state(State#{found := {deadline, Failures}, is_over := true}),
            true;
        {true, {counterexample, _First, _Last}} ->
            _ = put_state(State#{is_over := true}),
            true
    end.

-spec put_state(state()) -> term().
put_state(State) -> put(?MODULE, State).

has_deadline({raised, _Class, Reason, _Stack}) -> has_deadline(Reason);
has_deadline({weir_fault, _What}) -> false;
has_deadline({never, _Condition, _Answer}) -> true;
has_deadline({still_alive, _Pid, _Info}) -> true;
has_deadline({no_result, _Info}) -> true;
has_deadline(Tuple) when is_tuple(Tuple) -> has_deadline(tuple_to_list(Tuple));
has_deadline(Map) when is_map(Map) -> has_deadline(maps:to_list(Map));
has_deadline([Head | Tail]) -> has_deadline(Head) orelse has_deadline(Tail);
has_deadline(_Other) -> false.
