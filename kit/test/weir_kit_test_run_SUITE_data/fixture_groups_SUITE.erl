%% One case in two groups, one of them in a third. In the group `inner' the case passes at its second try.
-module(fixture_groups_SUITE).
-compile([export_all, nowarn_export_all]).

all() -> [{group, outer}, {group, other}].

groups() -> [{outer, [], [{inner, [parallel], [same]}]}, {other, [], [same]}].

init_per_group(Group, Config) -> [{in, Group} | Config].

end_per_group(_Group, _Config) -> ok.

same(Config) ->
    case {proplists:get_value(in, Config), fixture:count(proplists:get_value(in, Config))} of
        {inner, 1} -> error(first_try);
        {_, _} -> ok
    end.
