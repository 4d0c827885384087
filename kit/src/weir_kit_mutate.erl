%% @doc Mutations of a module: each changes the module's abstract code in one place, as a slip of its author might.
%% A test suite that passes on a mutation does not check that place.
%%
%% | operator | change |
%% |---|---|
%% | `boundary' | `<' and `=<', `>' and `>=' change places |
%% | `equality' | `=:=' and `=/=', `==' and `/=' change places |
%% | `arithmetic' | `+' and `-', `*' and `div' change places; `rem' and `/' become `div' and `*'; `-X' becomes `X' |
%% | `bits' | `band' and `bor', `bsl' and `bsr' change places; `bxor' becomes `band'; `bnot X' becomes `X' |
%% | `logic' | `andalso' and `orelse', `and' and `or' change places; `not X' becomes `X' |
%% | `integer' | a literal N becomes N + 1 |
%% | `boolean' | the literals `true' and `false' change places |
%% | `extreme' | calls of `min/2' and `max/2' change places |
%% | `guard' | a guard, one of its tests or alternatives, or a filter of a comprehension is dropped |
%% | `clause' | a clause is dropped where another remains, or the `after' of a `receive' |
%% | `expression' | an expression of a body is dropped, unless its value is the value of the body |
%% | `part' | a field of a map or record, an operand of `++', or the right one of `--', is dropped |
%%
%% Only functions of the source file itself are mutated: no attributes, and no functions of included files. Calls that
%% log and literals that equal their own line, as `?LINE' does, stay as they are.
%%
%% The functions are pure. A mutation may fail to compile, or may leave the compiled code as it was. {@link mutant/2}
%% rejects both.
-module(weir_kit_mutate).

-export([forms/1, mutations/1, describe/1, fingerprint/1, mutant/2, choose/3]).

-export_type([mutation/0, operator/0, forms/0, fingerprint/0]).

-type forms() :: [erl_parse:abstract_form() | erl_parse:form_info()].

-type operator() ::
    boundary | equality | arithmetic | bits | logic | integer | boolean | extreme | guard | clause | expression | part.

-type mutation() :: #{
    line := erl_anno:line(),
    operator := operator(),
    %% The code that the mutation replaces, and the replacement. With `dropped', the code has no replacement.
    before := code(),
    'after' := code() | dropped,
    %% The whole module with the change.
    forms := forms()
}.

-opaque fingerprint() :: binary() | none.

%% A node of the abstract code, or a node of two kinds that only this module uses: {guard, Anno, Guard} and {'after',
%% Anno, Timeout, Body}.
-type code() :: tuple().

%% A change inside of a node, and the node with that change.
-type variant() :: {{operator(), Before :: code(), After :: code() | dropped}, New :: term()}.

-define(LOG_FUNCTIONS, [log, debug, info, notice, warning, error, critical, alert, emergency]).
-define(GENERATORS, [generate, b_generate, m_generate, generate_strict, b_generate_strict, m_generate_strict, zip]).
%% Largest number of characters of code in a description, on each side of the arrow.
-define(DESCRIBED, 70).
%% Number of these characters before the first difference, if the code is longer.
-define(BEFORE_DIFFERENCE, 20).

%% @doc Returns the abstract code of a module that was compiled with `debug_info'.
-spec forms(Beam :: file:filename() | binary()) -> forms().
forms(Beam) ->
    {ok, {Module, [{debug_info, {debug_info_v1, Backend, Data}}]}} = beam_lib:chunks(Beam, [debug_info]),
    {ok, Forms} = Backend:debug_info(erlang_v1, Module, Data, []),
    Forms.

%% @doc Returns all mutations of a module in the order of its source.
-spec mutations(forms()) -> [mutation()].
mutations([{attribute, _, file, {File, _}} | _] = Forms) -> mutations(Forms, [], File, File);
mutations(Forms) -> mutations(Forms, [], none, none).

mutations([], _Earlier, _File, _Current) ->
    [];
mutations([{attribute, _, file, {Current, _}} = Form | Later], Earlier, File, _) ->
    mutations(Later, [Form | Earlier], File, Current);
mutations([{function, _, _, _, _} = Form | Later], Earlier, File, File) ->
    [mutation(Change, lists:reverse(Earlier, [New | Later])) || {Change, New} <- variants(Form)] ++
        mutations(Later, [Form | Earlier], File, File);
mutations([Form | Later], Earlier, File, Current) ->
    mutations(Later, [Form | Earlier], File, Current).

mutation({Operator, Before, After}, Forms) ->
    #{line => line(Before), operator => Operator, before => Before, 'after' => After, forms => Forms}.

line(Node) -> erl_anno:line(element(2, Node)).

%% ---------------------------------------------------------------- changes of a node, and of the nodes inside

-spec variants(term()) -> [variant()].
variants({'fun', Anno, {clauses, Clauses}}) ->
    [{Change, {'fun', Anno, {clauses, New}}} || {Change, New} <- fewer_clauses(Clauses) ++ inside(Clauses)];
variants(Node) when element(1, Node) =:= 'fun'; element(1, Node) =:= string ->
    [];
variants(Node) ->
    case is_log(Node) of
        true -> [];
        false -> own(Node) ++ inside(Node)
    end.

inside(Node) when is_tuple(Node) ->
    [Variant || Index <- lists:seq(3, tuple_size(Node)), Variant <- at(Index, Node, fun variants/1)];
inside([Node | Nodes]) ->
    [{Change, [New | Nodes]} || {Change, New} <- variants(Node)] ++
        [{Change, [Node | New]} || {Change, New} <- inside(Nodes)];
inside(_) ->
    [].

at(Index, Node, Variants) ->
    [{Change, setelement(Index, Node, New)} || {Change, New} <- Variants(element(Index, Node))].

%% The macros of logger.hrl expand to a `case' expression that calls logger:allow/2.
is_log({'case', _, {call, _, {remote, _, {atom, _, logger}, {atom, _, allow}}, _}, _}) -> true;
is_log({call, _, {remote, _, {atom, _, logger}, {atom, _, Function}}, _}) -> lists:member(Function, ?LOG_FUNCTIONS);
is_log(_) -> false.

own({op, _, Operation, Left, Right} = Node) ->
    [replaced(Operator, Node, setelement(3, Node, Other)) || {Operator, Other} <- swaps(Operation)] ++
        [{{part, Dropped, dropped}, Kept} || {Dropped, Kept} <- operands(Operation, Left, Right)];
own({op, _, Operation, Operand} = Node) ->
    [replaced(Operator, Node, Operand) || Operator <- unary(Operation)];
own({integer, Anno, Value} = Node) ->
    [replaced(integer, Node, {integer, Anno, Value + 1}) || Value =/= erl_anno:line(Anno)];
own({atom, Anno, Value} = Node) when is_boolean(Value) ->
    [replaced(boolean, Node, {atom, Anno, not Value})];
own({call, Anno, Called, [_, _] = Arguments} = Node) ->
    [replaced(extreme, Node, {call, Anno, Other, Arguments}) || Other <- extreme(Called)];
own({clause, _, Patterns, Guard, _} = Node) ->
    [changed_guard(Node, New) || New <- weaker(Patterns, Guard)] ++ at(5, Node, fun fewer_expressions/1);
own({block, _, _} = Node) ->
    at(3, Node, fun fewer_expressions/1);
own({'maybe', _, _} = Node) ->
    at(3, Node, fun fewer_expressions/1);
own({'maybe', _, _, _} = Node) ->
    at(3, Node, fun fewer_expressions/1);
own({'else', _, _} = Node) ->
    at(3, Node, fun fewer_clauses/1);
own({'try', _, _, _, _, _} = Node) ->
    at(3, Node, fun fewer_expressions/1) ++ at(4, Node, fun fewer_clauses/1) ++ at(5, Node, fun fewer_clauses/1) ++
        at(6, Node, fun fewer_expressions/1);
own({'if', _, _} = Node) ->
    at(3, Node, fun fewer_clauses/1);
own({'receive', _, _} = Node) ->
    at(3, Node, fun fewer_clauses/1);
own({'receive', Anno, Clauses, Timeout, Body} = Node) ->
    at(3, Node, fun fewer_clauses/1) ++ at(5, Node, fun fewer_expressions/1) ++
        [{{clause, {'after', element(2, Timeout), Timeout, Body}, dropped}, {'receive', Anno, Clauses}}
            || Clauses =/= []];
own({'case', _, _, _} = Node) ->
    at(4, Node, fun fewer_clauses/1);
own({named_fun, _, _, _} = Node) ->
    at(4, Node, fun fewer_clauses/1);
own({function, _, _, _, _} = Node) ->
    at(5, Node, fun fewer_clauses/1);
own({map, _, _} = Node) ->
    fewer_fields(3, Node);
own({map, _, _, _} = Node) ->
    fewer_fields(4, Node);
own({record, _, _, _} = Node) ->
    fewer_fields(4, Node);
own({record, _, _, _, _} = Node) ->
    fewer_fields(5, Node);
own({Comprehension, _, _, _} = Node) when Comprehension =:= lc; Comprehension =:= bc ->
    at(4, Node, fun weaker_filters/1);
own({mc, _, _, _} = Node) ->
    at(4, Node, fun weaker_filters/1);
own(_) ->
    [].

replaced(Operator, Node, New) -> {{Operator, Node, New}, New}.

swaps('<') -> [{boundary, '=<'}];
swaps('=<') -> [{boundary, '<'}];
swaps('>') -> [{boundary, '>='}];
swaps('>=') -> [{boundary, '>'}];
swaps('=:=') -> [{equality, '=/='}];
swaps('=/=') -> [{equality, '=:='}];
swaps('==') -> [{equality, '/='}];
swaps('/=') -> [{equality, '=='}];
swaps('+') -> [{arithmetic, '-'}];
swaps('-') -> [{arithmetic, '+'}];
swaps('*') -> [{arithmetic, 'div'}];
swaps('div') -> [{arithmetic, '*'}];
swaps('rem') -> [{arithmetic, 'div'}];
swaps('/') -> [{arithmetic, '*'}];
swaps('band') -> [{bits, 'bor'}];
swaps('bor') -> [{bits, 'band'}];
swaps('bxor') -> [{bits, 'band'}];
swaps('bsl') -> [{bits, 'bsr'}];
swaps('bsr') -> [{bits, 'bsl'}];
swaps('andalso') -> [{logic, 'orelse'}];
swaps('orelse') -> [{logic, 'andalso'}];
swaps('and') -> [{logic, 'or'}];
swaps('or') -> [{logic, 'and'}];
swaps(_) -> [].

unary('-') -> [arithmetic];
unary('bnot') -> [bits];
unary('not') -> [logic];
unary(_) -> [].

operands('++', Left, Right) -> [{Left, Right}, {Right, Left}];
operands('--', Left, Right) -> [{Right, Left}];
operands(_, _, _) -> [].

extreme({remote, Anno, {atom, _, erlang} = Module, Function}) ->
    [{remote, Anno, Module, Other} || Other <- extreme(Function)];
extreme({atom, Anno, min}) -> [{atom, Anno, max}];
extreme({atom, Anno, max}) -> [{atom, Anno, min}];
extreme(_) -> [].

%% ---------------------------------------------------------------- what is dropped

changed_guard({clause, _, _, [[Test | _] | _] = Guard, _} = Clause, New) ->
    Anno = element(2, Test),
    {{guard, {guard, Anno, Guard}, {guard, Anno, New}}, setelement(4, Clause, New)}.

%% Returns the guards that remain if a part of a guard is dropped. An `if' clause, which has no patterns, needs a guard:
%% if the last test is dropped, the guard is `true'.
weaker([], [[{atom, _, true}]]) -> [];
weaker([], [[Test]]) -> [[[{atom, element(2, Test), true}]]];
weaker(_, [[_]]) -> [[]];
weaker(_, [Tests]) -> [[Rest] || {_, Rest} <- without_one(Tests)];
weaker(_, Alternatives) -> [Rest || {_, Rest} <- without_one(Alternatives)].

weaker_filters(Qualifiers) ->
    [
        {{guard, Filter, True}, Earlier ++ [True | Later]}
     || {Earlier, Filter, Later} <- each(Qualifiers),
        not lists:member(element(1, Filter), ?GENERATORS),
        True <- [{atom, element(2, Filter), true}]
    ].

fewer_clauses([_, _ | _] = Clauses) -> [{{clause, Clause, dropped}, Rest} || {Clause, Rest} <- without_one(Clauses)];
fewer_clauses(_) -> [].

fewer_expressions(Body) ->
    [
        {{expression, Expression, dropped}, Earlier ++ Later}
     || {Earlier, Expression, [_ | _] = Later} <- each(Body), not is_log(Expression)
    ].

fewer_fields(Index, Node) ->
    [{{part, Field, dropped}, setelement(Index, Node, Rest)} || {Field, Rest} <- without_one(element(Index, Node))].

without_one(List) -> [{Element, Earlier ++ Later} || {Earlier, Element, Later} <- each(List)].

each(List) ->
    [
        {Earlier, Element, Later}
     || Before <- lists:seq(0, length(List) - 1), {Earlier, [Element | Later]} <- [lists:split(Before, List)]
    ].

%% ---------------------------------------------------------------- text

%% @doc Returns the change as source text on one line, such as `A < B -> A =< B'. If the code is longer than 70
%% characters, returns a part that begins at most 20 characters before the difference.
-spec describe(mutation()) -> unicode:chardata().
describe(#{before := Before, 'after' := After}) ->
    Texts = [text(Before), text(After)],
    Skipped = skipped(lists:any(fun is_long/1, Texts), Texts),
    lists:join(" -> ", [[["..." || Skipped > 0], cut(lists:nthtail(Skipped, Text))] || Text <- Texts]).

text(dropped) -> "dropped";
text({guard, _, []}) -> "no guard";
text(Code) -> re:replace(source(Code), "\\s+", " ", [global, unicode, {return, list}]).

skipped(true, Texts) -> max(0, common(Texts, 0) - ?BEFORE_DIFFERENCE);
skipped(false, _Texts) -> 0.

common([[Char | A], [Char | B]], Count) -> common([A, B], Count + 1);
common(_, Count) -> Count.

is_long(Text) -> length(Text) > ?DESCRIBED.

cut(Text) -> [lists:sublist(Text, ?DESCRIBED), ["..." || is_long(Text)]].

source({guard, _, Guard}) -> ["when ", guard(Guard)];
source({'after', _, Timeout, Body}) -> ["after ", erl_pp:expr(Timeout), " -> ", erl_pp:exprs(Body)];
source({clause, _, Patterns, Guard, Body}) ->
    Matched = lists:join(", ", [erl_pp:expr(Pattern) || Pattern <- Patterns]),
    ["(", Matched, ")", when_text(Guard), " -> ", erl_pp:exprs(Body)];
source({record_field, _, Name, Value}) -> [erl_pp:expr(Name), " = ", erl_pp:expr(Value)];
source({map_field_assoc, _, Key, Value}) -> [erl_pp:expr(Key), " => ", erl_pp:expr(Value)];
source({map_field_exact, _, Key, Value}) -> [erl_pp:expr(Key), " := ", erl_pp:expr(Value)];
source(Expression) -> erl_pp:expr(Expression).

when_text([]) -> "";
when_text(Guard) -> [" when ", guard(Guard)].

guard(Guard) -> lists:join("; ", [lists:join(", ", [erl_pp:expr(Test) || Test <- Tests]) || Tests <- Guard]).

%% ---------------------------------------------------------------- compiled

%% @doc Returns a checksum of the module's compiled code, without line numbers. If the module does not compile, returns
%% `none'.
-spec fingerprint(forms()) -> fingerprint().
fingerprint(Forms) ->
    case compile:forms(Forms, [binary, return_errors, no_line_info]) of
        {ok, _Module, Beam} ->
            {ok, {_, Md5}} = beam_lib:md5(Beam),
            Md5;
        {error, _, _} ->
            none
    end.

%% @doc Compiles a mutation. If the compiler rejects the mutation, or if the code has the fingerprint of the original,
%% returns `none'.
-spec mutant(mutation(), Original :: fingerprint()) -> {ok, Beam :: binary()} | none.
mutant(#{forms := Forms}, Original) ->
    case fingerprint(Forms) of
        Same when Same =:= none; Same =:= Original ->
            none;
        _ ->
            {ok, _Module, Beam} = compile:forms(Forms, [binary, debug_info]),
            {ok, Beam}
    end.

%% @doc Chooses N places, spread evenly over their order. Divides the places into N rows, or into a row for each place
%% if there are fewer than N, and shuffles each row. The first place of a row is the chosen place. If that place gives
%% no mutant, the next place of the row replaces it. Equal seeds give equal choices.
-spec choose(N :: pos_integer(), Seed :: integer(), [Place]) -> [[Place, ...]].
choose(N, Seed, Places) ->
    Rows = min(N, length(Places)),
    {Chosen, _} = lists:mapfoldl(fun shuffle/2, rand:seed_s(exsss, Seed), rows(Rows, Places)),
    Chosen.

rows(0, []) -> [];
rows(Rows, Places) ->
    {Row, Rest} = lists:split(length(Places) div Rows, Places),
    [Row | rows(Rows - 1, Rest)].

shuffle(Row, Random) ->
    {Keyed, Next} = lists:mapfoldl(fun(Place, State) -> key(Place, rand:uniform_s(State)) end, Random, Row),
    {[Place || {_, Place} <- lists:keysort(1, Keyed)], Next}.

key(Place, {Number, State}) -> {{Number, Place}, State}.
