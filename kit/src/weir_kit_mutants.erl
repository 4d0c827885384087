%% @doc The program of `make mutants': measures how many mutations of an application's code its suites notice.
%%
%% The program chooses N mutations over all modules of the application (weir_kit_mutate), writes each mutant to
%% `_build/mutants/APP/NUMBER' and runs the application's suites on it (weir_kit_mutant_suites). A mutant that survives
%% all suites is printed with its place in the source. Either no case tests the place, or the change makes no
%% difference.
%%
%% Application modules (`_app') are not mutated, nor modules with a NIF, whose functions are stubs.
-module(weir_kit_mutants).

-export([main/0]).

-type place() :: {module(), weir_kit_mutate:mutation()}.
-type originals() :: #{module() => weir_kit_mutate:fingerprint()}.

%% @doc Reads APP, N and SEED from the environment, prints a line for each mutant and the result, and ends the node.
%% The exit status is 0 however many mutants survive. The status is 1 if a suite fails on the unmutated application, or
%% if the application has no suites or nothing to mutate.
-spec main() -> no_return().
main() ->
    try run(os:getenv("APP", ""), number("N", 20), number("SEED", 1)) of
        ok -> halt(0)
    catch
        throw:Why ->
            io:format(standard_error, "mutants: ~ts~n", [Why]),
            halt(1)
    end.

number(Variable, Default) ->
    Text = os:getenv(Variable, ""),
    case string:to_integer(Text) of
        {Number, ""} when Number > 0 -> Number;
        _ when Text =:= "" -> Default;
        _ -> throw([Variable, "=", Text, " is not a positive integer"])
    end.

run(App, N, Seed) ->
    Sources = sources(App),
    Places = [{Module, Mutation} || {Module, Forms} <- Sources, Mutation <- weir_kit_mutate:mutations(Forms)],
    Places =/= [] orelse throw(["APP=", App, " has nothing to mutate; APP=weir_pool names an application"]),
    io:format("~ts: ~b mutations of ~b modules, SEED=~b~n", [App, length(Places), length(Sources), Seed]),
    Dir = weir_kit:path(filename:join("_build/mutants", App)),
    _ = file:del_dir_r(Dir),
    Suites = suites(App, filename:join(Dir, "unmutated")),
    Originals = maps:from_list([{Module, weir_kit_mutate:fingerprint(Forms)} || {Module, Forms} <- Sources]),
    summary(results(1, weir_kit_mutate:choose(N, Seed, Places), Originals, {App, Dir, Suites})).

%% Returns the suites with their durations, the shortest first.
suites(App, Dir) ->
    Beams = weir_kit_mutant_suites:suites(App),
    Beams =/= [] orelse throw([App, " has no suites"]),
    lists:keysort(2, [measured(Beam, Dir) || Beam <- Beams]).

measured(Beam, Dir) ->
    Suite = filename:basename(Beam, ".beam"),
    case weir_kit_mutant_suites:measure(Beam, Dir) of
        {ok, {Beam, Ms} = Measured} ->
            io:format("~ts passes without a mutant, ~ts~n", [Suite, weir_kit_text:seconds(1000 * Ms)]),
            Measured;
        failed ->
            throw([Suite, " fails without a mutant; its logs are in ", Dir])
    end.

%% ---------------------------------------------------------------- modules

sources(App) ->
    Beams = filelib:wildcard(weir_kit:path(filename:join(["_build/test/lib", App, "ebin/*.beam"]))),
    Sources = [{module(Beam), weir_kit_mutate:forms(Beam)} || Beam <- lists:sort(Beams)],
    [Source || {Module, Forms} = Source <- Sources, is_mutated(Module, Forms)].

module(Beam) -> list_to_atom(filename:basename(Beam, ".beam")).

is_mutated(Module, Forms) ->
    not lists:suffix("_app", atom_to_list(Module)) andalso not lists:keymember(on_load, 3, Forms).

%% ---------------------------------------------------------------- mutants

%% Runs the suites on one mutant of each row, which is a list of alternative places. A row whose places give no mutant
%% has no result.
results(_Number, [], _Originals, _Context) ->
    [];
results(Number, [Row | Rows], Originals, Context) ->
    case first_mutant(Row, Originals) of
        none ->
            results(Number, Rows, Originals, Context);
        Mutant ->
            Result = result(Number, Mutant, Context),
            [Result | results(Number + 1, Rows, Originals, Context)]
    end.

-spec first_mutant([place()], originals()) -> {place(), Beam :: binary()} | none.
first_mutant([], _Originals) ->
    none;
first_mutant([{Module, Mutation} = Place | Places], Originals) ->
    case weir_kit_mutate:mutant(Mutation, maps:get(Module, Originals)) of
        {ok, Beam} -> {Place, Beam};
        none -> first_mutant(Places, Originals)
    end.

result(Number, {{Module, _} = Place, Beam}, {App, Dir, Suites}) ->
    MutantDir = filename:join(Dir, integer_to_list(Number)),
    File = filename:join(MutantDir, atom_to_list(Module) ++ ".beam"),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, Beam),
    Text = text(App, Place),
    {Us, Outcome} = timer:tc(fun() -> weir_kit_mutant_suites:run(MutantDir, Suites) end),
    io:format("~b ~ts, ~ts, ~ts~n", [Number, Text, outcome(Outcome), weir_kit_text:seconds(Us)]),
    {Outcome, Text}.

text(App, {Module, #{line := Line, operator := Operator} = Mutation}) ->
    Change = weir_kit_mutate:describe(Mutation),
    io_lib:format("apps/~ts/src/~ts.erl:~b ~ts: ~ts", [App, Module, Line, Operator, Change]).

outcome({killed, Suite}) -> ["killed by ", Suite];
outcome(survived) -> "SURVIVED".

summary(Results) ->
    Results =/= [] orelse throw("no mutation compiles to other code"),
    Survivors = [Text || {survived, Text} <- Results],
    Total = length(Results),
    Killed = Total - length(Survivors),
    io:format("killed ~b of ~b (~b %)~n", [Killed, Total, round(100 * Killed / Total)]),
    lists:foreach(fun(Text) -> io:format("SURVIVED ~ts~n", [Text]) end, Survivors).
