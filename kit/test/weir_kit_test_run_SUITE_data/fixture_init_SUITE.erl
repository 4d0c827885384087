%% A suite whose init fails until it has run three times.
-module(fixture_init_SUITE).
-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    true = fixture:count(init) > 2,
    Config.

end_per_suite(_Config) -> ok.

one(_) -> ok.

two(_) -> ok.
