%% scripts/arrows finds circles of modules, in small applications that each case compiles.
-module(weir_structure_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> [{script, weir_kit:compiled_script("scripts/arrows", ?config(priv_dir, Config))} | Config].

end_per_suite(_Config) -> ok.

%% Each of these applications can be used alone, so each has a copy of the module that starts processes at a limit of
%% the node. A change of one copy belongs into all.
copies_of_the_start_module_are_equal(_Config) ->
    Copies = [{Name, Text} ||
        File <- filelib:wildcard(weir_kit:path("apps/weir_*/src/weir_*_start.erl")),
        Name <- [filename:basename(File, "_start.erl")],
        not lists:member(Name, ["weir_compat"]),
        {ok, Binary} <- [file:read_file(File)],
        Text <- [string:replace(Binary, Name, "weir_any", all)]],
    ?assertEqual(7, length(Copies)),
    ?assertMatch([_], lists:usort([iolist_to_binary(Text) || {_Name, Text} <- Copies])).

%% A variable module, a generated function and a module of another application close no circle.
accepts_what_is_no_circle(Config) ->
    accepted(0, run(Config, #{river => [{one, "two:f()"}, {two, "three:f()"}, {three, "ok"}]}, [])),
    accepted(0, run(Config, #{river => [{one, "two:f()"}, {two, "three:f()"}, {three, "(get(next)):f()"}]}, [])),
    accepted(0, run(Config, #{river => [{one, "two:f()"}, {two, "three:f()"}, {three, "one:module_info()"}]}, [])),
    accepted(0, run(Config, #{river => [{one, "two:f()"}, {two, "three:f()"}], lake => [{three, "one:f()"}]}, [])).

accepts_a_pair(Config) ->
    accepted(0, run(Config, #{river => [{one, "two:f()"}, {two, "one:f()"}]}, [])).

rejects_three(Config) ->
    Output = run(Config, #{river => [{one, "two:f()"}, {two, "three:f()"}, {three, "one:f()"}, {four, "one:f()"}]}, []),
    rejected(["river has a circle of 3 modules that scripts/circles does not list: one, three, two" |
        calls(["one two", "two three", "three one"])], Output).

rejects_a_chain_of_pairs(Config) ->
    Output = run(Config, #{river => [{one, "two:f()"}, {two, "one:f(), three:f()"}, {three, "two:f()"}]}, []),
    rejected(["river has a circle of 3 modules that scripts/circles does not list: one, three, two" |
        calls(["one two", "two one"])], Output).

%% The script shows neither the pair, which is allowed, nor the cycle through all four modules.
names_the_shortest_cycle(Config) ->
    Output = run(Config, #{river => [
        {one, "two:f()"}, {two, "one:f(), three:f()"}, {three, "one:f(), four:f()"}, {four, "one:f()"}
    ]}, []),
    rejected(["river has a circle of 4 modules that scripts/circles does not list: four, one, three, two" |
        calls(["three one", "one two", "two three"])], Output).

accepts_a_listed_circle(Config) ->
    accepted(1, run(Config, #{river => three()}, [{river, [two, one, three]}])).

rejects_a_circle_beside_a_listed_one(Config) ->
    Output = run(Config, #{river => three() ++ other_three()}, [{river, [one, three, two]}]),
    rejected(["river has a circle of 3 modules that scripts/circles does not list: five, four, six" |
        calls(["five six", "six four", "four five"])], Output).

%% The script shows a cycle with the added module, although the listed cycle is as short.
rejects_a_listed_circle_that_grew(Config) ->
    Grown = [{one, "two:f()"}, {two, "three:f()"}, {three, "one:f(), zero:f()"}, {zero, "two:f()"}],
    Output = run(Config, #{river => Grown}, [{river, [one, three, two]}]),
    rejected(["river has a circle of 4 modules that scripts/circles does not list: one, three, two, zero" |
        calls(["three zero", "zero two", "two three"])], Output).

rejects_two_listed_circles_that_joined(Config) ->
    Joined = [{one, "two:f(), four:f()"}, {two, "three:f()"}, {three, "one:f()"},
        {four, "five:f()"}, {five, "six:f(), two:f()"}, {six, "four:f()"}],
    Output = run(Config, #{river => Joined}, [{river, [one, three, two]}, {river, [five, four, six]}]),
    rejected(["river has a circle of 6 modules that scripts/circles does not list: five, four, one, six, three, two" |
        calls(["five two", "two three", "three one", "one four", "four five"])], Output).

rejects_a_list_that_is_too_large(Config) ->
    Output = run(Config, #{river => three() ++ [{four, "ok"}]}, [{river, [four, one, three, two]}]),
    rejected(["river has a smaller circle than scripts/circles lists. Replace", "{river,[four,one,three,two]}.",
        "with its parts:", "{river,[one,three,two]}."], Output).

%% A circle of two modules needs no entry in the list.
rejects_a_list_of_nothing(Config) ->
    Output = run(Config, #{river => [{one, "two:f()"}, {two, "one:f()"}]}, [{river, [one, two]}]),
    rejected(["river has a smaller circle than scripts/circles lists. Replace", "{river,[one,two]}.",
        "with nothing."], Output).

%% ---------------------------------------------------------------- fixtures

three() -> [{one, "two:f()"}, {two, "three:f()"}, {three, "one:f()"}].

other_three() -> [{four, "five:f()"}, {five, "six:f()"}, {six, "four:f()"}].

%% Compiles applications and runs the script on them. A module is its name and the body of its function f/0. Returns the
%% lines that the script prints, and its exit status.
run(Config, Apps, Circles) ->
    Dir = filename:join(?config(priv_dir, Config), integer_to_list(erlang:unique_integer([positive]))),
    maps:foreach(fun(App, Modules) -> application(Dir, App, maps:keys(Apps) -- [App], Modules) end, Apps),
    File = filename:join(Dir, "circles"),
    ok = file:write_file(File, [io_lib:format("~p.~n", [Circle]) || Circle <- Circles]),
    Command = ["'", ?config(script, Config), "' '", Dir, "' '", File, "' 2>&1; echo $?"],
    string:lexemes(os:cmd(lists:flatten(Command)), "\n").

application(Dir, App, Others, Modules) ->
    Ebin = filename:join([Dir, App, "ebin"]),
    ok = filelib:ensure_path(Ebin),
    Keys = [{modules, [Module || {Module, _} <- Modules]}, {applications, [kernel, stdlib | Others]}],
    ok = write(filename:join(Ebin, [App, ".app"]), "~p.~n", [{application, App, Keys}]),
    lists:foreach(fun(Module) -> compile(Ebin, Module) end, Modules).

compile(Ebin, {Module, Body}) ->
    File = filename:join(Ebin, [Module, ".erl"]),
    ok = write(File, "-module(~s).~n-export([f/0]).~nf() -> ~s.~n", [Module, Body]),
    {ok, Module} = compile:file(File, [debug_info, {outdir, Ebin}]).

write(File, Format, Args) -> file:write_file(File, io_lib:format(Format, Args)).

accepted(Circles, Lines) ->
    ?assertMatch({match, _}, re:run(hd(Lines), ["\\b", integer_to_list(Circles), " circles are left"])),
    ?assertEqual("0", lists:last(Lines)).

%% Compares the first lines. The count of faults and the exit status of the script come last.
rejected(Expected, Lines) ->
    ?assertEqual(Expected, lists:sublist(Lines, length(Expected))),
    ?assertEqual("1", lists:last(Lines)),
    ?assertEqual("1 faults", lists:sublist(lists:nth(length(Lines) - 1, Lines), 8)).

calls(Arrows) ->
    ["    " ++ From ++ ":f/0 calls " ++ To ++ ":f/0" || Arrow <- Arrows, [From, To] <- [string:split(Arrow, " ")]].
