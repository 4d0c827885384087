%% The mutations of a small module for each operator, those of two applications, and the choice among mutations.
-module(weir_kit_mutate_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

%% ---------------------------------------------------------------- operators
%% Each row of a table has a change, and the results of f for some arguments with that change.

boundary(_) ->
    check(boundary, "f(lt, A, B) -> A < B; f(le, A, B) -> A =< B; f(gt, A, B) -> A > B; f(ge, A, B) -> A >= B.", [
        {"A < B -> A =< B", [lt, 1, 1], true},
        {"A =< B -> A < B", [le, 1, 1], false},
        {"A > B -> A >= B", [gt, 1, 1], true},
        {"A >= B -> A > B", [ge, 1, 1], false}
    ]).

equality(_) ->
    check(equality, "f(a, A, B) -> A =:= B; f(b, A, B) -> A =/= B; f(c, A, B) -> A == B; f(d, A, B) -> A /= B.", [
        {"A =:= B -> A =/= B", [a, 1, 1], false},
        {"A =/= B -> A =:= B", [b, 1, 1], true},
        {"A == B -> A /= B", [c, 1, 1], false},
        {"A /= B -> A == B", [d, 1, 1], true}
    ]).

arithmetic(_) ->
    check(arithmetic, "f(A, B) -> [A + B, A - B, A * B, A div B, A rem B, A / B, -A].", [
        {"A + B -> A - B", [7, 2], [5, 5, 14, 3, 1, 3.5, -7]},
        {"A - B -> A + B", [7, 2], [9, 9, 14, 3, 1, 3.5, -7]},
        {"A * B -> A div B", [7, 2], [9, 5, 3, 3, 1, 3.5, -7]},
        {"A div B -> A * B", [7, 2], [9, 5, 14, 14, 1, 3.5, -7]},
        {"A rem B -> A div B", [7, 2], [9, 5, 14, 3, 3, 3.5, -7]},
        {"A / B -> A * B", [7, 2], [9, 5, 14, 3, 1, 14, -7]},
        {"-A -> A", [7, 2], [9, 5, 14, 3, 1, 3.5, 7]}
    ]).

bits(_) ->
    check(bits, "f(A, B) -> [A band B, A bor B, A bxor B, A bsl B, A bsr B, bnot A].", [
        {"A band B -> A bor B", [6, 3], [7, 7, 5, 48, 0, -7]},
        {"A bor B -> A band B", [6, 3], [2, 2, 5, 48, 0, -7]},
        {"A bxor B -> A band B", [6, 3], [2, 7, 2, 48, 0, -7]},
        {"A bsl B -> A bsr B", [6, 3], [2, 7, 5, 0, 0, -7]},
        {"A bsr B -> A bsl B", [6, 3], [2, 7, 5, 48, 48, -7]},
        {"bnot A -> A", [6, 3], [2, 7, 5, 48, 0, 6]}
    ]).

logic(_) ->
    check(logic, "f(A, B) -> [A andalso B, A orelse B, A and B, A or B, not A].", [
        {"A andalso B -> A orelse B", [true, false], [true, true, false, true, false]},
        {"A orelse B -> A andalso B", [true, false], [false, false, false, true, false]},
        {"A and B -> A or B", [true, false], [false, true, true, true, false]},
        {"A or B -> A and B", [true, false], [false, true, false, false, false]},
        {"not A -> A", [true, false], [false, true, false, true, true]}
    ]).

integer(_) ->
    check(integer, "f(10) -> <<3:16, 20>>; f(A) -> A + 0.", [
        {"10 -> 11", [10], 10},
        {"3 -> 4", [10], <<4:16, 20>>},
        {"16 -> 17", [10], <<3:17, 20>>},
        {"20 -> 21", [10], <<3:16, 21>>},
        {"0 -> 1", [5], 6}
    ]).

boolean(_) ->
    check(boolean, "f(true) -> {true, other}; f(Else) -> {false, Else}.", [
        {"true -> false", [true], {false, true}},
        {"true -> false", [true], {false, other}},
        {"false -> true", [other], {true, other}}
    ]).

extreme(_) ->
    check(extreme, "f(A, B) -> _ = fun max/2, {min(A, B), erlang:max(A, B), lists:max([A, B])}.", [
        {"min(A, B) -> max(A, B)", [1, 2], {2, 2, 2}},
        {"max(A, B) -> min(A, B)", [1, 2], {1, 1, 2}}
    ]).

guard(_) ->
    check(guard, "f(A) when A < 1 -> a; f(A) when is_list(A), A > [] -> b; f(A) when A =:= x; A =:= y -> c; f(_) -> d.",
    [
        {"when A < 1 -> no guard", [1], a},
        {"when is_list(A), A > [] -> when A > []", [<<>>], b},
        {"when is_list(A), A > [] -> when is_list(A)", [[]], b},
        {"when A =:= x; A =:= y -> when A =:= y", [x], d},
        {"when A =:= x; A =:= y -> when A =:= x", [y], d}
    ]).

guard_of_if(_) ->
    check(guard, "f(A) -> if A > 1 -> more; true -> less end.", [{"when A > 1 -> when true", [0], more}]).

filter(_) ->
    check(guard, "f(As) -> {[A || A <- As, A > 1], << <<A>> || A <- As, A > 2 >>}.", [
        {"A > 1 -> true", [[1, 2, 3]], {[1, 2, 3], <<3>>}},
        {"A > 2 -> true", [[1, 2, 3]], {[2, 3], <<1, 2, 3>>}}
    ]).

clause_of_function(_) ->
    check(clause, "f(a) -> 1; f(_) -> 2. g() -> 3.", [
        {"(a) -> 1 -> dropped", [a], 2},
        {"(_) -> 2 -> dropped", [b], {error, function_clause}}
    ]).

clause_of_case(_) ->
    check(clause, "f(A) -> [case A of a when A > 0 -> 1; _ -> 2 end, case A of B -> B end].", [
        {"(a) when A > 0 -> 1 -> dropped", [a], [2, a]},
        {"(_) -> 2 -> dropped", [b], {error, {case_clause, b}}}
    ]).

clause_of_if(_) ->
    check(clause, "f(A) -> if A > 1 -> more; true -> less end.", [
        {"() when A > 1 -> more -> dropped", [2], less},
        {"() when true -> less -> dropped", [0], {error, if_clause}}
    ]).

clause_of_receive(_) ->
    check(clause, "f(A) -> A(), receive a -> 1; b -> 2 after 0 -> 3 end.", [
        {"(a) -> 1 -> dropped", [fun() -> self() ! a end], 3},
        {"(b) -> 2 -> dropped", [fun() -> self() ! b end], 3},
        {"after 0 -> 3 -> dropped", [fun() -> send_once_waiting(self(), a) end], 1}
    ]).

send_once_waiting(Pid, Message) ->
    spawn(fun() ->
        weir_kit:until(fun() -> lists:member(process_info(Pid, status), [{status, waiting}, undefined]) end),
        Pid ! Message
    end).

clause_of_try(_) ->
    check(clause, "f(A) -> try A() of a -> 1; _ -> 2 catch throw:b -> 3; _:_ -> 4 end.", [
        {"(a) -> 1 -> dropped", [fun() -> a end], 2},
        {"(_) -> 2 -> dropped", [fun() -> b end], {error, {try_clause, b}}},
        {"({throw, b, _}) -> 3 -> dropped", [fun() -> throw(b) end], 4},
        {"({_, _, _}) -> 4 -> dropped", [fun() -> throw(c) end], {throw, c}}
    ]).

clause_of_fun(_) ->
    check(clause, "f(A) -> F = fun(a) -> 1; (_) -> 2 end, H = fun G(a) -> 3; G(_) -> 4 end, [F(A), H(A)].", [
        {"(a) -> 1 -> dropped", [a], [2, 3]},
        {"(_) -> 2 -> dropped", [b], {error, function_clause}},
        {"(a) -> 3 -> dropped", [a], [1, 4]},
        {"(_) -> 4 -> dropped", [b], {error, function_clause}}
    ]).

expression(_) ->
    check(expression, "f(_) -> put(k, 1), put(l, begin put(m, 2), 3 end), [get(k), get(l), get(m)].", [
        {"put(k, 1) -> dropped", [a], [undefined, 3, 2]},
        {"put(l, begin put(m, 2), 3 end) -> dropped", [a], [1, undefined, undefined]},
        {"put(m, 2) -> dropped", [a], [1, 3, undefined]}
    ]).

part(_) ->
    Functions =
        "-record(r, {a, b}).\n"
        "f(map, A) -> #{a => A}; f(update, A) -> A#{a := 1}; f(match, #{b := _}) -> true;\n"
        "f(record, A) -> #r{a = A}; f(change, A) -> A#r{b = 2}; f(is, #r{b = 3}) -> true;\n"
        "f(add, A) -> A ++ [1]; f(subtract, A) -> A -- [1].",
    check(part, Functions, [
        {"a => A -> dropped", [map, 1], #{}},
        {"a := 1 -> dropped", [update, #{a => 0}], #{a => 0}},
        {"b := _ -> dropped", [match, #{}], true},
        {"a = A -> dropped", [record, 1], {r, undefined, undefined}},
        {"b = 2 -> dropped", [change, {r, 1, 1}], {r, 1, 1}},
        {"b = 3 -> dropped", [is, {r, 1, 1}], true},
        {"A -> dropped", [add, [2]], [1]},
        {"[1] -> dropped", [add, [2]], [2]},
        {"[1] -> dropped", [subtract, [1]], [1]}
    ]).

%% ---------------------------------------------------------------- places

lines_of_the_source(_) ->
    Functions = "f(A) ->\n    A >\n        B,\n    g(A) + 1;\n\nf(A) when A > 2 ->\n    A.",
    ?assertEqual(
        [{1, clause}, {2, boundary}, {2, expression}, {4, arithmetic}, {4, integer}, {6, boundary}, {6, clause},
            {6, guard}, {6, integer}],
        lists:sort([{Line, Operator} || #{line := Line, operator := Operator} <- mutations(Functions)])
    ).

only_functions_of_the_source(_) ->
    Attributes = parsed(
        "-type t() :: 1 | true. -record(r, {a = 1 :: 1..2, b = true}). -callback c(1) -> true. -custom([1, true]).\n"
        "-spec f(A) -> true when A :: 1."
    ),
    [Function] = parsed("f(A) -> A > 0."),
    Source = {attribute, 1, file, {"m.erl", 1}},
    Included = [{attribute, 1, file, {"m.hrl", 1}} | parsed("g(A) -> A + 1.")],
    Others = [Source | Attributes] ++ Included ++ [Source],
    Mutations = weir_kit_mutate:mutations(Others ++ [Function]),
    ?assertEqual([boundary, integer], lists:sort([Operator || #{operator := Operator} <- Mutations])),
    [?assertEqual(Others, lists:droplast(Forms)) || #{forms := Forms} <- Mutations].

no_calls_that_log(_) ->
    Functions =
        "f(A) ->\n"
        "    logger:info(\"~b\", [1 + A]),\n"
        "    case logger:allow(info, m) of true -> logger:macro_log(#{line => 1}, \"~b\", [A - 1]); false -> ok end,\n"
        "    A.",
    ?assertEqual([], mutations(Functions)).

no_line_numbers(_) -> check(integer, "f() ->\n    {2, 3}.", [{"3 -> 4", [], {2, 4}}]).

long_code_is_cut(_) ->
    Long = lists:duplicate(100, $x),
    Left = "..." ++ lists:duplicate(18, $x),
    ?assertEqual(
        ["a => " ++ lists:duplicate(65, $x) ++ "... -> dropped"],
        descriptions(part, "f() -> #{a => " ++ Long ++ "}.")
    ),
    ?assertEqual(
        [Left ++ " > 1 -> " ++ Left ++ " >= 1"],
        descriptions(boundary, "f() -> " ++ Long ++ " > 1.")
    ),
    ?assertEqual(
        ["when A > " ++ lists:duplicate(61, $x) ++ "... -> when B",
            Left ++ "xx, B -> " ++ Left ++ "xx"],
        descriptions(guard, "f(A, B) when A > " ++ Long ++ ", B -> a.")
    ).

%% ---------------------------------------------------------------- mutants

code_that_does_not_compile(_) -> ?assertEqual(none, only_mutant(expression, "f(A) -> B = A, B.")).

code_that_does_the_same(_) ->
    ?assertEqual(none, only_mutant(expression, "f(A) ->\n    is_list(A),\n    length(A).")),
    ?assertMatch({ok, _}, only_mutant(expression, "f(A) ->\n    hd(A),\n    length(A).")).

only_mutant(Operator, Functions) ->
    [Mutation] = mutations(Operator, Functions),
    weir_kit_mutate:mutant(Mutation, weir_kit_mutate:fingerprint(forms(Functions))).

%% ---------------------------------------------------------------- choice

choice_of_a_seed(_) ->
    Places = lists:seq(1, 1000),
    Chosen = weir_kit_mutate:choose(10, 1, Places),
    ?assertEqual(Chosen, weir_kit_mutate:choose(10, 1, Places)),
    ?assertNotEqual(Chosen, weir_kit_mutate:choose(10, 2, Places)).

%% 1,003 places form ten rows: seven rows of 100 places and three of 101.
choice_is_spread(_) ->
    Places = lists:seq(1, 1003),
    Chosen = weir_kit_mutate:choose(10, 1, Places),
    ?assertEqual(lists:duplicate(7, 100) ++ lists:duplicate(3, 101), [length(Row) || Row <- Chosen]),
    ?assertEqual(Places, lists:append([lists:sort(Row) || Row <- Chosen])).

choice_of_all(_) ->
    ?assertEqual([[a], [b], [c]], weir_kit_mutate:choose(3, 1, [a, b, c])),
    ?assertEqual([[a], [b], [c]], weir_kit_mutate:choose(4, 1, [a, b, c])),
    ?assertEqual([], weir_kit_mutate:choose(4, 1, [])).

%% ---------------------------------------------------------------- applications

every_mutation_of_weir_flow(_) -> every_mutation_of(weir_flow).

every_mutation_of_weir_compat(_) -> every_mutation_of(weir_compat).

every_mutation_of(App) ->
    Beams = filelib:wildcard(filename:join([code:lib_dir(App), "ebin", "*.beam"])),
    [every_mutation(weir_kit_mutate:forms(Beam)) || Beam <- Beams].

%% The linter reads all mutations, and the compiler every twentieth, since to compile all takes minutes.
every_mutation(Forms) ->
    Mutations = weir_kit_mutate:mutations(Forms),
    lists:foreach(fun(Mutation) -> lint(Mutation, others(Forms)) end, Mutations),
    Original = weir_kit_mutate:fingerprint(Forms),
    Rows = weir_kit_mutate:choose(1 + length(Mutations) div 20, 1, Mutations),
    lists:foreach(fun([Mutation | _]) -> _ = weir_kit_mutate:mutant(Mutation, Original) end, Rows).

lint(#{forms := Forms} = Mutation, Others) ->
    ?assertEqual(Others, others(Forms)),
    ?assertMatch([_ | _], unicode:characters_to_list(weir_kit_mutate:describe(Mutation))),
    ?assertEqual([], [What || What <- lint_errors(erl_lint:module(Forms)), is_about_guards(What)]).

lint_errors({ok, _Warnings}) -> [];
lint_errors({error, Errors, _Warnings}) -> [What || {_File, InFile} <- Errors, {_, erl_lint, What} <- InFile].

is_about_guards(illegal_guard_expr) -> true;
is_about_guards({illegal_guard_local_call, _}) -> true;
is_about_guards(_) -> false.

others(Forms) -> [Form || Form <- Forms, element(1, Form) =/= function].

%% ---------------------------------------------------------------- tools

%% Compares the mutations by an operator, and the results of f with each mutation. Each result differs from that of f
%% without a mutation.
check(Operator, Functions, Expected) ->
    Mutations = mutations(Operator, Functions),
    ?assertEqual([Text || {Text, _, _} <- Expected], [description(Mutation) || Mutation <- Mutations]),
    Original = weir_kit_mutate:fingerprint(forms(Functions)),
    {ok, _, Unmutated} = compile:forms(forms(Functions), [binary]),
    [
        begin
            {ok, Beam} = weir_kit_mutate:mutant(Mutation, Original),
            ?assertEqual({Text, Result}, {Text, result(Beam, Arguments)}),
            ?assertNotEqual({Text, Result}, {Text, result(Unmutated, Arguments)})
        end
     || {{Text, Arguments, Result}, Mutation} <- lists:zip(Expected, Mutations)
    ].

descriptions(Operator, Functions) -> [description(Mutation) || Mutation <- mutations(Operator, Functions)].

description(Mutation) -> unicode:characters_to_list(weir_kit_mutate:describe(Mutation)).

mutations(Operator, Functions) -> [Mutation || #{operator := Its} = Mutation <- mutations(Functions), Its =:= Operator].

mutations(Functions) -> weir_kit_mutate:mutations(forms(Functions)).

forms(Functions) ->
    [{attribute, 1, module, weir_kit_mutated}, {attribute, 1, compile, [export_all, nowarn_export_all]}
        | parsed(Functions)].

parsed(Text) -> parsed_forms(erl_scan:tokens([], Text ++ "\n", 1)).

parsed_forms({done, {ok, Tokens, Line}, Rest}) ->
    {ok, Form} = erl_parse:parse_form(Tokens),
    [Form | parsed_forms(erl_scan:tokens([], Rest, Line))];
parsed_forms(_) ->
    [].

%% Calls f in a process of its own, and returns the result or the error.
result(Beam, Arguments) ->
    {module, Module} = code:load_binary(weir_kit_mutated, "weir_kit_mutated.beam", Beam),
    [Result] = weir_kit:in_parallel([fun() -> outcome(Module, Arguments) end]),
    true = code:delete(Module),
    false = code:purge(Module),
    Result.

outcome(Module, Arguments) ->
    try
        apply(Module, f, Arguments)
    catch
        Class:Reason -> {Class, Reason}
    end.
