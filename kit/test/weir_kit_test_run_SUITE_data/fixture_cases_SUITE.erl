%% Cases that pass, fail and die, for weir_kit_test_run_SUITE. Each case counts its runs in a file.
-module(fixture_cases_SUITE).
-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

end_per_testcase(fails_at_its_end, _Config) -> weir_kit:none(leaked, [a]);
end_per_testcase(_Case, _Config) -> ok.

fails_at_its_end(_) -> fixture:count(fails_at_its_end).

passes_at_the_third_try(_) -> 3 = fixture:count(passes_at_the_third_try).

'größer →'(_) -> 2 = fixture:count('größer →').

never_passes(_) -> 0 = fixture:count(never_passes).

loses(_) ->
    _ = fixture:count(loses),
    weir_kit:in_parallel([fun() -> weir_kit:none(lost, [a]) end]).

loses_in_a_map(_) ->
    _ = fixture:count(loses_in_a_map),
    {_, Monitor} = spawn_monitor(fun() -> weir_kit:none(lost, [a]) end),
    receive
        {'DOWN', Monitor, process, _, Reason} -> exit({shutdown, #{reason => Reason}})
    end.

loses_in_text(_) ->
    _ = fixture:count(loses_in_text),
    ct:fail("~p", [catch weir_kit:none(lost, [a])]).

raises_in_a_property(_) ->
    _ = fixture:count(raises_in_a_property),
    weir_kit_property:holds(proper:forall(proper_types:integer(), fun(_) -> error(oops) end), [quiet]).

ends_its_node(_) ->
    _ = fixture:count(ends_its_node),
    halt(3).

ends_its_node_at_the_second_try(_) ->
    case fixture:count(ends_its_node_at_the_second_try) of
        1 -> error(first_try);
        2 -> halt(0);
        3 -> ok
    end.

is_skipped(_) -> {skip, "\"quoted\", and a line\nmore: ä"}.
