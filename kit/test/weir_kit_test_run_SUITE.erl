%% The gate itself: suites of the data folder run in nodes of their own, and their cases count how often they ran.
-module(weir_kit_test_run_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> [{group, side_by_side}].

groups() -> [{side_by_side, [parallel], weir_kit:cases(?MODULE)}].

init_per_suite(Config) ->
    Dir = proplists:get_value(priv_dir, Config),
    Sources = filelib:wildcard(filename:join(proplists:get_value(data_dir, Config), "*.erl")),
    [{ok, _} = compile:file(Source, [debug_info, report, {outdir, Dir}]) || Source <- Sources],
    true = code:add_path(Dir),
    Config.

end_per_suite(Config) ->
    true = code:del_path(proplists:get_value(priv_dir, Config)).

%% ---------------------------------------------------------------- cases

a_case_has_three_tries(Config) ->
    {green, [Again], Output} = run_case(passes_at_the_third_try, Config),
    ?assertMatch(#{"suite" := "fixture_cases_SUITE", "case" := "passes_at_the_third_try", "then" := "passed"}, Again),
    ?assertMatch({match, _}, re:run(maps:get("first", Again), "badmatch")),
    ?assertMatch({match, _}, re:run(Output, "AGAIN fixture_cases_SUITE:passes_at_the_third_try.*badmatch", [dotall])),
    ?assertEqual("1 passed, 0 failed", last_line(Output)),
    ?assertEqual(3, runs(passes_at_the_third_try, Config)).

a_name_has_any_characters(Config) ->
    {green, [_], Output} = run_case('größer →', Config),
    ?assertMatch({match, _}, re:run(Output, "AGAIN fixture_cases_SUITE:größer →, passed", [unicode])).

a_case_that_fails_three_times_fails_the_run(Config) ->
    {red, [#{"then" := "failed"}], Output} = run_case(never_passes, Config),
    ?assertEqual("0 passed, 1 failed", last_line(Output)),
    ?assertEqual(3, runs(never_passes, Config)).

nothing_is_repeated_in_a_strict_run(Config) ->
    ?assertMatch({red, [], _}, run_case(passes_at_the_third_try, #{strict => true}, Config)),
    ?assertEqual(1, runs(passes_at_the_third_try, Config)).

a_fault_is_not_repeated(Config) ->
    {red, [], Output} = run_case(loses, Config),
    ?assertMatch({match, _}, re:run(Output, "FAILED fixture_cases_SUITE:loses \\(a fault\\).*lost", [dotall])),
    ?assertEqual(1, runs(loses, Config)).

a_fault_inside_of_another_reason_is_not_repeated(Config) ->
    [
        begin
            {red, [], Output} = run_case(Case, Config),
            ?assertMatch({match, _}, re:run(Output, ["FAILED .*:", atom_to_list(Case), " \\(a fault\\)"])),
            ?assertEqual(1, runs(Case, Config))
        end
     || Case <- [loses_in_a_map, loses_in_text, raises_in_a_property]
    ].

a_leak_that_end_per_testcase_finds_is_a_fault(Config) ->
    {red, [], Output} = run_case(fails_at_its_end, Config),
    ?assertMatch({match, _}, re:run(Output, "fails_at_its_end \\(a fault\\).*leaked", [dotall])),
    ?assertEqual(1, runs(fails_at_its_end, Config)).

the_end_of_a_node_is_a_fault(Config) ->
    {red, [], Output} = run_case(ends_its_node, Config),
    ?assertMatch({match, _}, re:run(Output, "node of the suite ended while it ran ends_its_node")),
    ?assertEqual(1, runs(ends_its_node, Config)).

the_end_of_a_node_at_a_second_try_is_a_fault(Config) ->
    {red, [#{"then" := "failed"}], _} = run_case(ends_its_node_at_the_second_try, Config),
    ?assertEqual(2, runs(ends_its_node_at_the_second_try, Config)).

a_skipped_case_is_counted(Config) ->
    {red, [], Output} = run_case(is_skipped, Config),
    ?assertMatch({match, _}, re:run(Output, "No test ran")),
    ?assertEqual("0 passed, 0 failed, 1 skipped", last_line(Output)).

a_case_runs_again_in_its_own_group(Config) ->
    {green, [#{"group" := "inner", "case" := "same"}], Output} = run(#{suites => [fixture_groups_SUITE]}, Config),
    ?assertEqual("2 passed, 0 failed", last_line(Output)),
    ?assertEqual({2, 1}, {runs(inner, Config), runs(other, Config)}).

one_case_runs_in_all_its_groups(Config) ->
    {green, _, _} = run(#{suites => [fixture_groups_SUITE], 'case' => same}, Config),
    ?assertEqual({2, 1}, {runs(inner, Config), runs(other, Config)}),
    Unknown = #{suites => [fixture_groups_SUITE], 'case' => none},
    ?assertError({no_case, fixture_groups_SUITE, none}, run(Unknown, Config)).

%% ---------------------------------------------------------------- suites

a_suite_whose_init_fails_once_runs_again(Config) ->
    ok = init_fails(1, Config),
    {green, [#{"case" := "init", "then" := "passed"}], Output} = run(#{suites => [fixture_init_SUITE]}, Config),
    ?assertEqual("2 passed, 0 failed", last_line(Output)).

a_suite_whose_init_fails_twice_fails_the_run(Config) ->
    ok = init_fails(2, Config),
    {red, [#{"case" := "init", "then" := "failed"}], _} = run(#{suites => [fixture_init_SUITE]}, Config),
    ?assertEqual(2, runs(init, Config)).

a_suite_without_cases_is_a_fault(Config) ->
    {red, _, Output} = run(#{suites => [fixture_empty_SUITE, fixture_groups_SUITE]}, Config),
    ?assertMatch({match, _}, re:run(Output, "FAILED fixture_empty_SUITE:init \\(a fault\\)\n.*ran no case")).

two_suites_have_two_names(Config) ->
    Priv = proplists:get_value(priv_dir, Config),
    Other = filename:join(folder(Config), "other"),
    ok = filelib:ensure_path(Other),
    Beam = "fixture_init_SUITE.beam",
    {ok, _} = file:copy(filename:join(Priv, Beam), filename:join(Other, Beam)),
    ?assertError({same_name, [{fixture_init_SUITE, _}]}, weir_kit_test_run:run(#{dirs => [Priv, Other]})).

suites_run_side_by_side(Config) ->
    ok = init_fails(0, Config),
    {Colour, _, Output} = run(#{suites => [fixture_init_SUITE, fixture_groups_SUITE], jobs => 2}, Config),
    ?assertEqual({green, "4 passed, 0 failed"}, {Colour, last_line(Output)}).

%% The suite that does not exist ends the script where it takes the number.
jobs_are_a_number_from_1(_) ->
    Script = "CASE= SUITE=none JOBS=~s " ++ weir_kit:path("scripts/test") ++ " 2>&1",
    [
        ?assertMatch({match, _}, re:run(os:cmd(io_lib:format(Script, [Jobs])), Message))
     || {Jobs, Message} <- [
            {"0", "JOBS is a number"}, {"-1", "JOBS is a number"}, {"x", "JOBS is a number"},
            {"1", "no suite none_SUITE"}
        ]
    ].

%% ---------------------------------------------------------------- the verdict

%% One case in a hundred may run again, and a single case always may, however few cases ran.
too_many_second_tries(_) ->
    [
        ?assertEqual(Repeated, length(weir_kit_test_verdict:unlucky([result(Ran, Unlucky)], repeat)))
     || {Ran, Unlucky, Repeated} <- [{1, 1, 1}, {100, 1, 1}, {199, 2, 0}, {200, 2, 2}, {299, 3, 0}, {300, 3, 3}]
    ],
    ?assertEqual([], weir_kit_test_verdict:unlucky([result(300, 3)], strict)).

faults_are_not_repeated(_) ->
    #{failures := [One | _]} = Result = result(300, 3),
    Faults = Result#{failures := [One#{class := fault}]},
    ?assertEqual([], weir_kit_test_verdict:unlucky([Faults], repeat)),
    ?assertNot(weir_kit_test_verdict:is_green([Faults])),
    ?assertEqual([], weir_kit_test_verdict:broken([Result#{broken := {fault, <<>>}}], repeat)),
    ?assertEqual([], weir_kit_test_verdict:broken([Faults#{broken := {luck, <<>>}}], repeat)),
    ?assertEqual([s], weir_kit_test_verdict:broken([Result#{broken := {luck, <<>>}}], repeat)).

result(Ran, Unlucky) ->
    Events = [{failed, none, list_to_atom("c" ++ integer_to_list(N)), luck, <<>>} || N <- lists:seq(1, Unlucky)],
    weir_kit_test_verdict:result(s, Events ++ [{done, Ran - Unlucky, 0}], ended, 1).

%% ---------------------------------------------------------------- help

run_case(Case, Config) -> run_case(Case, #{}, Config).

run_case(Case, Options, Config) -> run(Options#{suites => [fixture_cases_SUITE], 'case' => Case}, Config).

%% Returns green or red, the second tries as python3 reads their JSON, and the output.
run(Options, Config) ->
    Priv = proplists:get_value(priv_dir, Config),
    Dir = folder(Config),
    Again = filename:join(Dir, "again.jsonl"),
    All = Options#{dirs => [Priv], logs => filename:join(Dir, "logs"), again => Again},
    Me = self(),
    Screen = spawn_link(fun() -> screen(Me, []) end),
    Run = weir_kit:start(fun() ->
        true = group_leader(Screen, self()),
        weir_kit_test_run:run(All)
    end),
    Colour = returned(Run),
    Screen ! read,
    receive
        {Screen, Output} -> {Colour, json(Again), Output}
    end.

%% Returns the result of a task, which may take longer than a wait. Raises the error of the task.
returned({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, {returned, Colour}} -> Colour;
        {'DOWN', Monitor, process, Pid, {Reason, Stack}} -> erlang:raise(error, Reason, Stack)
    end.

%% A group leader that collects the output for its owner.
screen(Owner, Text) ->
    receive
        {io_request, From, Ref, {put_chars, unicode, Characters}} ->
            From ! {io_reply, Ref, ok},
            screen(Owner, [Text, Characters]);
        read ->
            Owner ! {self(), unicode:characters_to_list(Text)}
    end.

%% Lets the init of fixture_init_SUITE fail N times, from 0 to 2.
init_fails(N, Config) ->
    File = counted(init, Config),
    ok = filelib:ensure_dir(File),
    file:write_file(File, lists:duplicate(2 - N, $x)).

json(File) ->
    Print = "import json,sys\nfor l in open(sys.argv[1], encoding='utf-8'):\n"
        "  for k, v in json.loads(l).items(): print(k, ascii(v), sep='\\t')\n  print()",
    Text = os:cmd("python3 -c \"" ++ Print ++ "\" " ++ File),
    [maps:from_list(lists:map(fun pair/1, string:lexemes(O, "\n"))) || O <- string:split(Text, "\n\n", all), O =/= ""].

pair(Line) ->
    [Key, Value] = string:split(Line, "\t"),
    {Key, string:trim(Value, both, "'\"")}.

last_line(Output) -> lists:last(string:lexemes(Output, "\n")).

runs(Name, Config) -> filelib:file_size(counted(Name, Config)).

%% The file in which fixture:count/1 counts.
counted(Name, Config) -> filename:join([folder(Config), "logs", Name]).

%% Each case has a folder of its own.
folder(Conf) -> filename:join(proplists:get_value(priv_dir, Conf), proplists:get_value(case_name, Conf)).

init_per_testcase(Case, Config) -> [{case_name, Case} | Config].

end_per_testcase(_Case, _Config) -> ok.
