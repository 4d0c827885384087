%% A suite without cases.
-module(fixture_empty_SUITE).
-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).
