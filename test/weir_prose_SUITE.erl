%% scripts/prose in small repositories: the sentences that the script finds, and the comparison with the table.
-module(weir_prose_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(GUILTY, "It waits for a worker.\n").
-define(INNOCENT, "The claimer waits for a worker.\n").

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    case os:find_executable("git") of
        false -> {skip, "git is not there (scripts/setup test)"};
        _ -> [{script, weir_kit:compiled_script("scripts/prose", ?config(priv_dir, Config))} | Config]
    end.

end_per_suite(_Config) -> ok.

init_per_testcase(Case, Config) ->
    Dir = filename:join(?config(priv_dir, Config), Case),
    ok = file:make_dir(Dir),
    {0, _} = run(Dir, "git", ["init", "-q"]),
    [{dir, Dir} | Config].

end_per_testcase(_Case, _Config) -> ok.

%% ---------------------------------------------------------------- which sentences are findings

%% {Rule, guilty sentence, innocent sentence}
rules(Config) ->
    compare(Config, [
        {"opening", "Nobody came before", "Callers come in order"},
        {"he", "The server ends when he likes", "The server ends when it likes"},
        {"he", "The server keeps his state", "The server keeps its history"},
        {"so-many", "The pool has so many workers", "The pool has too many workers"},
        {"so-many", "The caller waits for so long", "The caller waits so long that the server stops"},
        {"to-be", "The entry is to be written", "The entry wants to be written"},
        {"told", "The owner is told at once", "The owner has not been told"},
        {"told", "The owner is not told", "The replies are told apart by a number"},
        {"one-that", "The queue serves one that waits", "The queue serves one caller that waits"},
        {"one-that", "The queue serves those who wait", "The queue serves the callers who wait"},
        {"turn", "The poller has no turn", "The poller has its turn"},
        {"for-ever", "The writer tries for ever", "The writer tries forever"},
        {"riddle", "The writer knows nothing of it", "The writer syncs the file or a part of it"},
        {"riddle", "The writer made two of it: why is open", "The copy of it, and the file"},
        {"riddle", "The state is as before", "The states are others, such as before the call"},
        {"riddle", "The log takes pipes and the like", "The log treats them like files"}
    ]).

openings(Config) ->
    compare(Config, [{"opening", Guilty, Innocent} || {Guilty, Innocent} <- [
        {"Who has claimed the slot", "Whole slots are claimed"},
        {"What the queue holds", "Whatsoever the queue holds"},
        {"Nobody waits for it", "Somebody waits for the slot"},
        {"Nothing is sent then", "Nothingness is sent then"},
        {"It is the caller's", "Its caller is gone"},
        {"They wait for it", "These callers wait for it"},
        {"Those are the last ones", "These are the last ones"},
        {"So the queue is empty", "So-called queues are empty"},
        {"Of both the first", "Offers the first of both"},
        {"Again in a second", "Against the wind of time"},
        {"Another takes the slot", "An other takes the slot"},
        {"The same for the slot", "The sample for the slot"},
        {"Such as wait too long", "Such a slot is vacant"},
        {"One is waiting for it", "One worker waits for it"},
        {"One of them is enough", "One of the workers is enough"},
        {"All that wait for it", "All workers wait for it"},
        {"All of them are busy", "All of the workers are busy"},
        {"All are busy by now", "All but `size' are fixed"},
        {"`size': what users give", "`size': number of slots"},
        {"\"It is\" in quotes, too", "\"Stuck\": it is only the log"}
    ]]).

questions(Config) -> innocent(Config, "a.erl", "%% What is a weir? Who builds one that lasts?\n").

%% Comments of one or two words are labels.
labels(Config) ->
    innocent(Config, "a.erl", "%% Whose set\n\n%% Of nodes.\n"),
    guilty(Config, "a.erl", "%% Whose set that is\n", [{1, "opening"}]).

%% Sentences of 30 and 31 words. A piece of code counts as one word, however many words are in it.
long(Config) ->
    Words = lists:append(lists:duplicate(28, "word ")),
    innocent(Config, "a.erl", ["%% Some ", Words, "`code that has many words'.\n"]),
    guilty(Config, "a.erl", ["%% Some ", Words, "`code that has many words' more.\n"], [{1, "long"}]).

%% The line of a finding is that of its first word, also if code before that word spans two lines.
sentences(Config) ->
    guilty(
        Config,
        "a.erl",
        [
            "%% The first `sentence\n%% with code' is innocent, e.g. this one. It has\n",
            "%% two lines. weir_pool:claim/3 is a name of\n%% version 0.1.0, i.e. it has no ... it is not the end.",
            " Nobody\n%% reads so many (It is an aside.)\n"
        ],
        [{2, "opening"}, {4, "opening,so-many"}]
    ),
    innocent(Config, "a.erl", "%% The file a.b of them, etc. it is cf. it and vs. it all.\n").

%% Code is not prose, in any kind of quotes.
quotes(Config) ->
    innocent(Config, "a.erl", [
        "%% Returns `one that {'is', told}' or {@link one_that/1} or ``so many'' for `so many`\n",
        "%% and {one, who, is, told}.\n",
        "%%\n%% ```\n%% It is code. '''\n%% ```\n%% It is code.\n%% '''\n%% <pre>\n%% It is code.\n%% </pre>\n",
        "%%\n%%   It is code that is indented.\n%% -------- It is a title\n",
        "%% https://example.com/one who/ follows.\n"
    ]),
    guilty(Config, "a.erl", "%% ```\n%% Code\n%% '''\n%% It is `not code'.\n", [{4, "opening"}]).

%% ---------------------------------------------------------------- languages

erlang(Config) ->
    guilty(
        Config,
        "a.erl",
        [
            "%% @doc It is a module.\n%% @private\n%% @param X it is X.\n-module(a).\n",
            "f($%) -> \"% It is a string\"; %It knows, beside code,\n",
            "                             %% nothing of it.\n",
            "f($\\\") -> '% It is an atom'.\n-define(X, 1). % It is one\n-define(Y, 2). % It is another\n"
        ],
        [{1, "opening"}, {3, "opening"}, {5, "opening,riddle"}, {8, "opening"}, {9, "opening"}]
    ),
    guilty(Config, "a.config", "%% It is a configuration.\n[].\n", [{1, "opening"}]),
    guilty(Config, "a", "#!/usr/bin/env escript\n%% It is a script.\nmain(_) -> ok.\n", [{2, "opening"}]),
    ok = write(Config, "a.erl", "f() -> \"no end.\n"),
    {1, Message} = prose(Config, ["a.erl"]),
    ?assertMatch({match, _}, re:run(Message, "^a.erl:1: ")).

c(Config) ->
    Source = [
        "/* It is first. */\n/*\n * The rest\n * of the text. It is here.\n */\n",
        "char *a = \"/* It is a string. */\"; // It is beside code\n// It is below it,\n// and goes on.\n"
    ],
    Found = [{1, "opening"}, {4, "opening"}, {6, "opening"}, {7, "opening"}],
    [guilty(Config, File, Source, Found) || File <- ["a.c", "a.h", "a.js"]],
    guilty(Config, "a", ["#!/usr/bin/env node\n", "// It is a program.\n"], [{2, "opening"}]),
    innocent(Config, "a.min.js", Source).

scripts(Config) ->
    guilty(Config, "a", "#!/bin/bash\n# It is a script,\n# in two lines.\necho '# It' # is it\n", [{2, "opening"}]),
    guilty(Config, "Makefile", "# It is a makefile.\nall: ## it makes all targets\n", [{1, "opening"}, {2, "opening"}]),
    guilty(Config, "a.py", "  # It is Python.\n", [{1, "opening"}]).

elixir(Config) ->
    guilty(
        Config,
        "a.ex",
        [
            "# It is a file.\n",
            "  @moduledoc \"\"\"\n  # Heading\n\n  It is a module with \"# quotes\".\n\n      It is code.\n  \"\"\"\n",
            "  x = \"# It is a string\"\n  @doc false\n"
        ],
        [{1, "opening"}, {5, "opening"}]
    ).

markdown(Config) ->
    Source = [
        "# It is a heading\n\nThe text [so\nmany](one-that-is-told.md). It goes on.\n",
        "- It is an item\n  with two lines\n",
        "1. It is an item, too\n\n```erlang\nIt is code.\n```\n\n    It is code.\n\n",
        "| what it is | what it does |\n|---|---|\n| it is here | so is this cell |\n\n<!-- It is a comment. -->\n",
        "**Bold.** `It is` code, **it** is. **It is bold.**\n"
    ],
    Found = [{N, "opening"} || N <- [1, 5, 7, 17, 17, 20]],
    Expected = lists:sort([{3, "so-many"}, {4, "opening"} | Found]),
    [guilty(Config, File, Source, Expected) || File <- ["a.md", "a.livemd"]].

%% The script reads texts of four words or more, and only in the sources of applications.
texts(Config) ->
    Source = [
        "f() -> {\"it was lost\", \"it was lost again\", \"it is a\"\n  \" pool\"}.\n",
        "g() -> [\"~p waits for ~s\", \"~p: so many\\n~p waits for ever~n\", \"f() -> one who is told\"].\n"
    ],
    guilty(Config, "apps/a/src/a.erl", Source, [{1, "opening"}, {1, "opening"}, {3, "for-ever"}]),
    [innocent(Config, File, Source) || File <- ["apps/a/test/a.erl", "kit/src/a.erl"]].

generated(Config) ->
    Source = ["<!-- measured: it -->\n\n", ?GUILTY, "\n<!-- end -->\n", ?GUILTY],
    guilty(Config, "docs/benchmarks.md", Source, [{6, "opening"}]).

%% ---------------------------------------------------------------- how findings are listed

paths(Config) ->
    Files = ["apps/a/README.md", "apps/a/test/a.md", "apps/b/src/b.md", "docs/guide/a.md", "docs/a.md", "a.md"],
    [ok = write(Config, File, ?GUILTY) || File <- [".ignored.md" | Files]],
    ok = write(Config, ".gitignore", ".ignored.md\n"),
    ?assertEqual(["a.md"], listed(Config, ["a.md"])),
    ?assertEqual(["apps/a/README.md"], listed(Config, ["apps/a"])),
    ?assertEqual(["apps/a/README.md", "apps/a/test/a.md"], listed(Config, ["apps/a/"])),
    ?assertEqual(["apps/a/test/a.md", "apps/b/src/b.md"], listed(Config, ["apps/b/src", "apps/a/test"])),
    ?assertEqual(["docs/a.md"], listed(Config, ["docs"])),
    ?assertEqual(["a.md"], listed(Config, ["root"])),
    ?assertEqual(lists:sort(Files), listed(Config, ["."])),
    Dir = filename:join(?config(dir, Config), "apps"),
    ?assertMatch({0, "apps/b/src/b.md:1: opening: It waits for a worker.\n"}, run(Dir, ?config(script, Config), ["b"])),
    ?assertMatch({0, "no file" ++ _}, prose(Config, ["nowhere"])),
    ?assertMatch({1, "usage: " ++ _}, prose(Config, ["--upper"])).

%% Lines of 159, 160 and 161 columns. The script cuts the last one to 160.
width(Config) ->
    [
        begin
            Line = "a.md:1: opening: It " ++ lists:duplicate(Width - 20, $x),
            ok = write(Config, "a.md", lists:nthtail(length("a.md:1: opening: "), Line) ++ "\nis cut"),
            ?assertEqual({0, lists:sublist(Line ++ " is cut", 160) ++ "\n"}, prose(Config, ["a.md"]))
        end
     || Width <- [152, 153, 154]
    ].

%% The script reads files as UTF-8, and prints UTF-8, in a locale with another encoding.
locale(Config) ->
    ok = write(Config, "a.md", unicode:characters_to_binary("It takes 5 µs – no more.\n")),
    Expected = binary_to_list(unicode:characters_to_binary("a.md:1: opening: It takes 5 µs – no more.\n")),
    Variables = ["LANG", "LC_ALL", "LC_CTYPE"],
    [
        ?assertEqual({0, Expected}, prose(Config, ["a.md"], [{Name, Value} || Name <- Variables]))
     || Value <- [false, "C", "C.UTF-8"]
    ].

%% ---------------------------------------------------------------- the table

equal(Config) ->
    ok = commit(Config, [{"a.md", ?GUILTY}, {"kit/a.md", ?INNOCENT}], ["0 docs\n", "0 kit\n", "1 root\n"]),
    ?assertEqual({0, "1 findings, as docs/prose.counts says.\n"}, prose(Config, [])).

%% The script prints the findings in the changed lines of changed files, and those in new files.
above(Config) ->
    ok = commit(Config, [{"a.md", [?GUILTY, "\n", ?INNOCENT]}], ["0 docs\n", "1 root\n"]),
    ok = write(Config, "a.md", [?GUILTY, "\n", ?INNOCENT, "The pool has so many.\n"]),
    Message = "root: 2 found, docs/prose.counts says 1\na.md:4: so-many: The pool has so many.\n",
    ?assertEqual({1, Message}, prose(Config, [])),
    ok = write(Config, "a.md", [?GUILTY, "\n", ?INNOCENT]),
    ok = write(Config, "b.md", ?GUILTY),
    New = "root: 2 found, docs/prose.counts says 1\nb.md:1: opening: " ++ ?GUILTY,
    ?assertEqual({1, New}, prose(Config, [])).

above_elsewhere(Config) ->
    ok = commit(Config, [{"kit/a.md", [?GUILTY, "\n", ?INNOCENT]}], ["0 docs\n", "0 kit\n"]),
    Message =
        "kit: 1 found, docs/prose.counts says 0\n"
        "none of them is in a changed line; all: scripts/prose kit\n",
    ?assertEqual({1, Message}, prose(Config, [])),
    ok = write(Config, "kit/a.md", [?GUILTY, "\n", "The waiter waits.\n"]),
    ?assertEqual({1, Message}, prose(Config, [])).

below(Config) ->
    ok = commit(Config, [{"a.md", ?GUILTY}], ["0 docs\n", "2 root\n"]),
    Message = "root: 1 found, docs/prose.counts says 2; remedy: scripts/prose --lower\n",
    ?assertEqual({1, Message}, prose(Config, [])).

%% Numbers fall and never rise, also in a table with the conflict marks of a merge.
lower(Config) ->
    Files = [{"a.md", ?GUILTY}, {"kit/a.md", [?GUILTY, "\n", ?GUILTY]}],
    ok = commit(Config, Files, ["5 docs\n", "1 kit\n", "2 root\n"]),
    ?assertEqual({0, ""}, prose(Config, ["--lower"])),
    ?assertEqual("0 docs\n1 kit\n1 root\n", counts(Config)),
    ?assertMatch({1, "kit: 2 found, docs/prose.counts says 1\n" ++ _}, prose(Config, [])),
    Conflict = "0 docs\n<<<<<<< HEAD\n4 kit\n2 root\n=======\n3 kit\n2 root\n>>>>>>> other\n",
    ok = write(Config, "docs/prose.counts", Conflict),
    ?assertMatch({1, "docs/prose.counts has other lines than " ++ _}, prose(Config, [])),
    ?assertEqual({0, ""}, prose(Config, ["--lower"])),
    ?assertEqual("0 docs\n2 kit\n1 root\n", counts(Config)).

areas(Config) ->
    Innocent = ["apps/a/a.md", "apps/a/test/a.md", "docs/guide/a.md", "Makefile", ".ci/run"],
    Files = [{"bench/a.md", ?GUILTY} | [{File, ?INNOCENT} || File <- Innocent]],
    ok = commit(Config, Files, ["0 gone\n", "0 docs\n"]),
    {1, Message} = prose(Config, []),
    ?assertEqual(
        ["docs/prose.counts has other lines than scripts/prose --lower writes"] ++
        ["docs/prose.counts lacks the area " ++ Area ++ "; scripts/prose --lower adds it with 0"
         || Area <- ["apps/a", "apps/a/test", "bench", "docs/guide"]] ++
        ["docs/prose.counts has an area without files, gone; remedy: scripts/prose --lower"] ++
        ["docs/prose.counts lacks the area scripts; scripts/prose --lower adds it with 0"],
        string:lexemes(Message, "\n")
    ),
    ?assertEqual({0, ""}, prose(Config, ["--lower"])),
    ?assertEqual("0 apps/a\n0 apps/a/test\n0 bench\n0 docs\n0 docs/guide\n0 scripts\n", counts(Config)),
    ?assertMatch({1, "bench: 1 found, docs/prose.counts says 0\n" ++ _}, prose(Config, [])).

exceptions(Config) ->
    ok = commit(Config, [{"a.md", ?GUILTY}, {"b.md", ?GUILTY}], ["0 docs\n", "1 root\n"]),
    Sentence = string:trim(?GUILTY),
    ok = write(Config, "docs/prose.allow", ["# A comment\n", "a.md: ", Sentence, " -- the reason\n"]),
    ?assertMatch({0, _}, prose(Config, [])),
    ?assertEqual(["b.md"], listed(Config, ["."])),
    ok = write(Config, "docs/prose.allow", [Sentence, " -- the reason\n"]),
    ?assertEqual([], listed(Config, ["."])),
    [
        begin
            ok = write(Config, "docs/prose.allow", [Line, "\n"]),
            {1, Message} = prose(Config, []),
            Fault = "docs/prose.allow has a line that matches no finding, or lacks a reason: " ++ Line ++ "\n",
            ?assertEqual(Fault, lists:sublist(Message, length(Fault)))
        end
     || Line <- ["c.md: " ++ Sentence ++ " -- the reason", "It waits. -- the reason", Sentence, Sentence ++ " -- "]
    ].

%% ---------------------------------------------------------------- helpers

%% Each innocent sentence stands below its guilty one, in a comment of its own.
compare(Config, Pairs) ->
    Source = [["%% ", Guilty, ".\n\n%% ", Innocent, ".\n\n"] || {_, Guilty, Innocent} <- Pairs],
    guilty(Config, "a.erl", Source, [
        {4 * N - 3, Rule}
     || {N, {Rule, _, _}} <- lists:zip(lists:seq(1, length(Pairs)), Pairs)
    ]).

innocent(Config, File, Source) -> guilty(Config, File, Source, []).

%% Compares {Line, Rules} of the findings in a file.
guilty(Config, File, Source, Expected) ->
    ok = write(Config, File, Source),
    {0, Output} = prose(Config, [File]),
    {ok, Finding} = re:compile("^" ++ File ++ ":([0-9]+): ([-a-z,]+): "),
    Found = [re:run(Line, Finding, [{capture, all_but_first, list}]) || Line <- string:lexemes(Output, "\n")],
    ?assertEqual(Expected, [{list_to_integer(Line), Rules} || {match, [Line, Rules]} <- Found], Output).

listed(Config, Paths) ->
    {0, Output} = prose(Config, Paths),
    [hd(string:split(Line, ":")) || Line <- string:lexemes(Output, "\n")].

counts(Conf) ->
    {ok, Text} = file:read_file(filename:join(?config(dir, Conf), "docs/prose.counts")),
    binary_to_list(Text).

write(Config, File, Text) ->
    Path = filename:join(?config(dir, Config), File),
    ok = filelib:ensure_dir(Path),
    file:write_file(Path, Text).

commit(Config, Files, Counts) ->
    [ok = write(Config, File, Text) || {File, Text} <- [{"docs/prose.counts", Counts} | Files]],
    {0, _} = run(?config(dir, Config), "git", ["add", "-A"]),
    Author = ["-c", "user.name=test", "-c", "user.email=test@localhost"],
    {0, _} = run(?config(dir, Config), "git", Author ++ ["commit", "-q", "-m", "Files of a test"]),
    ok.

prose(Config, Args) -> prose(Config, Args, []).

prose(Config, Args, Env) -> run(?config(dir, Config), ?config(script, Config), Args, Env).

run(Dir, Program, Args) -> run(Dir, Program, Args, []).

%% Returns the exit status and the bytes of both outputs.
run(Dir, Program, Args, Env) ->
    Options = [{args, Args}, {cd, Dir}, {env, Env}, exit_status, stderr_to_stdout],
    output(open_port({spawn_executable, os:find_executable(Program)}, Options), []).

output(Port, Output) ->
    receive
        {Port, {data, More}} -> output(Port, [Output, More]);
        {Port, {exit_status, Status}} -> {Status, lists:flatten(Output)}
    end.
