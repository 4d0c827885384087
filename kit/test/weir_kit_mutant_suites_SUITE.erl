%% Mutants that live and die: a small suite runs in a node of its own, with another weir_kit in front of the real one.
-module(weir_kit_mutant_suites_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

survives(Config) -> ?assertEqual(survived, run(Config, "42", [small(Config)])).

killed_by_a_failure(Config) -> ?assertEqual({killed, "small_SUITE"}, run(Config, "43", [small(Config)])).

killed_by_a_failure_of_init(Config) ->
    Suite = suite(Config, "init_SUITE", "init_per_suite(_) -> error(no).\nend_per_suite(_) -> ok.\ncase_of(_) -> ok."),
    ?assertEqual({killed, "init_SUITE"}, run(Config, "42", [Suite])).

killed_by_the_end_of_the_node(Config) ->
    ?assertEqual({killed, "small_SUITE"}, run(Config, "halt(0, [{flush, false}])", [small(Config)])).

first_that_kills(Config) ->
    Suite = suite(Config, "empty_SUITE", "case_of(_) -> ok."),
    ?assertEqual({killed, "small_SUITE"}, run(Config, "43", [Suite, small(Config), Suite])).

%% ---------------------------------------------------------------- tools

run(Config, Value, Suites) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), "mutant"),
    _ = compiled(Dir, "weir_kit", "value() -> " ++ Value ++ "."),
    weir_kit_mutant_suites:run(Dir, [{Beam, 1000} || Beam <- Suites]).

small(Conf) -> suite(Conf, "small_SUITE", "case_of(_) -> 42 = weir_kit:value().").

suite(Config, Name, Functions) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), "suites"),
    compiled(Dir, Name, "all() -> [case_of].\n" ++ Functions).

compiled(Dir, Name, Functions) ->
    Root = filename:join(Dir, Name),
    ok = filelib:ensure_dir(Root),
    Attributes = ["-module(", Name, ").\n-compile([export_all, nowarn_export_all]).\n"],
    ok = file:write_file(Root ++ ".erl", [Attributes | Functions]),
    {ok, _} = compile:file(Root, [{outdir, Dir}]),
    Root ++ ".beam".
