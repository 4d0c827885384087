%% The demo as a whole: its lines, its verdict and its report. weir_demo_sections_SUITE has small sizes of the sections
%% with memcached.
-module(weir_demo_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

%% ---------------------------------------------------------------- text

lines_are_narrow(_) ->
    Text = lists:duplicate(30, "some words and a/word/that/is/not/short "),
    [
        begin
            [Head | Tail] = Lines = weir_demo_screen:wrap("   x ", [Text, lists:duplicate(300, $y)], Width),
            ?assert(lists:all(fun(Line) -> length(Line) =< Width end, Lines)),
            ?assertEqual("   x some", string:slice(Head, 0, 9)),
            ?assert(lists:all(fun(Line) -> lists:prefix("     ", Line) end, Tail))
        end
     || Width <- [30, 79]
    ],
    ?assertEqual(["a b"], weir_demo_screen:wrap("", "a b", 3)),
    ?assertEqual(["a", "b"], weir_demo_screen:wrap("", "a b", 2)),
    ?assertEqual(["- "], weir_demo_screen:wrap("- ", "", 79)),
    %% Whatever a section says before it runs.
    [?assert(length(Part:title()) < 70) || Part <- weir_demo:parts()],
    [?assert(length(string:split(Part:hurts(), ". ", all)) =:= 1) || Part <- weir_demo:parts()].

bars(_) ->
    Bar = fun(Done) -> lists:flatten(io_lib:format("~ts", [weir_demo_screen:bar("x", Done, 10)])) end,
    ?assertEqual("[........................]   0% x", Bar(0)),
    ?assertEqual("[############............]  50% x", Bar(5)),
    ?assertEqual("[########################] 100% x", Bar(10)),
    ?assertEqual(Bar(10), Bar(11)).

verdicts(_) ->
    Outcome = fun(Kept) -> #{said => "", plots => [], promises => [{"a", true}, {"b", Kept}]} end,
    ?assertEqual(
        {true, "Weir kept all 4 promises in 12.0 s."}, weir_demo:verdict([Outcome(true), Outcome(true)], 12_000_000)
    ),
    ?assertEqual(
        {false, "Weir BROKE 1 of 4 promises in 12.0 s."}, weir_demo:verdict([Outcome(true), Outcome(false)], 12_000_000)
    ).

%% ---------------------------------------------------------------- the report

report(_) ->
    Html = html([{"it holds", true}]),
    ?assertEqual(nomatch, re:run(Html, "https?:|src=|href=|url\\(|@import")),
    ?assertMatch({match, _}, re:run(Html, "prefers-color-scheme:dark")),
    ?assertMatch({match, _}, re:run(Html, "name=\"viewport\"")),
    ?assertMatch({match, _}, re:run(Html, "a &lt;b&gt; &amp; c")),
    ?assertEqual(nomatch, re:run(Html, "Broken: ")),
    {_, []} = xmerl_scan:string(xml(Html), [{quiet, true}]).

report_of_a_broken_promise(_) ->
    ?assertMatch({match, _}, re:run(html([{"it holds", false}]), "Broken: it holds")).

html(Promises) ->
    Outcome = #{said => "a <b> & c", promises => Promises, plots => [lines([{0, 0}, {1.5, 20}]), bars_plot()]},
    weir_demo_report:render(#{
        verdict => "v",
        is_kept => true,
        about => "on a machine",
        sections => [#{title => "t", hurts => "h", outcome => Outcome}]
    }).

%% What HTML allows to be left open or unnamed, closed and named.
xml(Html) ->
    Closed = re:replace(Html, "<(meta[^>]*)>", "<\\1/>", [global]),
    Named = re:replace(Closed, "&#100..;", "x", [global]),
    unicode:characters_to_list(re:replace(Named, "^<!DOCTYPE html>\n", "")).

lines(Points) ->
    #{
        kind => lines,
        title => "l",
        x => "s",
        y => "n",
        series => [#{name => "one", side => weir, points => Points}, #{name => "none", side => plain, points => []}],
        marks => [{1, "here"}]
    }.

bars_plot() ->
    #{
        kind => bars,
        title => "b",
        bars => [
            #{name => "one", side => weir, value => 0, text => "0"},
            #{name => "two", side => plain, value => 3, text => "3", open => true}
        ]
    }.

%% Any number of points, also none, also all zero; and no more than can be seen.
plots(_) ->
    Points = fun(Plot) ->
        Text = unicode:characters_to_binary(weir_demo_plot:render(Plot)),
        case re:run(Text, "d=\"M([^\"]*)\"", [{capture, all_but_first, list}]) of
            {match, [Steps]} -> length(string:split(Steps, "L", all));
            nomatch -> 0
        end
    end,
    ?assertEqual(0, Points(lines([]))),
    ?assertEqual(1, Points(lines([{0, 0}]))),
    ?assertEqual(2, Points(lines([{0, 0}, {0, 0}]))),
    ?assert(Points(lines([{I / 100, I rem 7} || I <- lists:seq(0, 5_000)])) =< 210),
    [?assertEqual(2, Points(lines([{0, 0}, {3, Most}]))) || Most <- [0.001, 1, 9.99, 10, 123_456, 7.0e9]].

%% ---------------------------------------------------------------- as it is started

%% A whole run, in a node of its own, where no memcached is installed: every section with a server of our own, which is
%% killed, too.
whole_run(Config) ->
    {0, Text} = demo([{"MEMCACHED", ""}, {"LC_ALL", "C"}], none_installed(Config), Config),
    Words = string:join(string:lexemes(Text, " \n"), " "),
    Lines = string:split(Text, "\n", all),
    ?assertEqual([], [Line || Line <- Lines, length(Line) > 79]),
    ?assertEqual([], [Line || Line <- Lines, string:find(Line, "BROKEN") =/= nomatch]),
    ?assertMatch({match, _}, re:run(Words, "a memcached of its own \\([0-9.]+-weir\\)")),
    ?assertMatch({match, _}, re:run(Text, "Weir kept all [0-9]+ promises in [0-9.]+ s\\.\n")),
    ?assertMatch({match, _}, re:run(Words, "killed and started again, memcached had answered the first")),
    ?assertMatch({match, _}, re:run(Text, "_build/demo/report\\.html\n$")),
    ?assertEqual(nomatch, re:run(Text, "\e")),
    {ok, Html} = file:read_file(filename:join([dir(Config), "_build", "demo", "report.html"])),
    {_, []} = xmerl_scan:string(xml(Html), [{quiet, true}]),
    ?assertEqual(["_build/demo/report.html"], filelib:wildcard("_build/demo/*", dir(Config))).

%% An address where nobody answers is the user's mistake, and no section runs.
whole_run_without(Config) ->
    Port = integer_to_list(weir_kit_memcached:free_port()),
    {1, Text} = demo([{"MEMCACHED", "127.0.0.1:" ++ Port}], "", Config),
    ?assertMatch({match, _}, re:run(Text, "The demo cannot run: memcached at 127.0.0.1:" ++ Port)).

%% An expression for the node of a demo, after which it finds no memcached, wherever one is installed: there is another
%% weir_kit_memcached before the one that is tested, the same but for where it looks.
none_installed(Conf) ->
    Module = weir_kit_memcached,
    {ok, {Module, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(code:which(Module), [abstract_code]),
    {[{function, At, Name, 0, _}], Others} = lists:partition(
        fun(Form) -> element(1, Form) =:= function andalso element(3, Form) =:= find_program end, Forms
    ),
    {Before, After} = lists:splitwith(fun(Form) -> element(1, Form) =/= eof end, Others),
    None = {function, At, Name, 0, [{clause, At, [], [], [{atom, At, false}]}]},
    {ok, Module, Code} = compile:forms(Before ++ [None | After]),
    Dir = filename:join(dir(Conf), "none_installed"),
    ok = filelib:ensure_path(Dir),
    ok = file:write_file(filename:join(Dir, atom_to_list(Module) ++ ".beam"), Code),
    io_lib:format("true = code:add_patha(~p), ", [Dir]).

dir(Conf) -> proplists:get_value(priv_dir, Conf).

demo(Env, First, Config) ->
    Paths = lists:append([["-pa", filename:absname(Path)] || Path <- code:get_path(), Path =/= "."]),
    Port = open_port({spawn_executable, filename:join([code:root_dir(), "bin", "erl"])}, [
        {args, ["+P", "400000", "-noshell" | Paths] ++ ["-eval", lists:flatten([First, "weir_demo:main()."])]},
        {env, [{"WEIR_DEMO_TERMINAL", false} | Env]},
        {cd, dir(Config)},
        exit_status,
        stderr_to_stdout,
        hide
    ]),
    output(Port, []).

output(Port, Text) ->
    receive
        {Port, {data, Data}} -> output(Port, [Text, Data]);
        {Port, {exit_status, Status}} -> {Status, lists:flatten(Text)}
    end.
