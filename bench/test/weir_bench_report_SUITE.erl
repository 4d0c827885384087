%% What becomes of results: lines of JSON, the tables of docs/benchmarks.md, and the pictures.
-module(weir_bench_report_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("xmerl/include/xmerl.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

json(_) ->
    [
        ?assertEqual(Json, iolist_to_binary(weir_bench_results:encode(Term)))
     || {Term, Json} <- [
            {#{}, <<"{}">>},
            {[], <<"[]">>},
            {#{b => [1, -2.5, 1.0e10], a => <<"x">>}, <<"{\"a\":\"x\",\"b\":[1,-2.5,1.0e10]}">>},
            {#{a => #{b => [[1, 2], []]}}, <<"{\"a\":{\"b\":[[1,2],[]]}}">>},
            {<<"\"\\\n\t/">>, <<"\"\\\"\\\\\\n\\t/\"">>},
            {<<"~5{:,}é/"/utf8>>, <<"\"~5{:,}é/\""/utf8>>},
            {true, <<"\"true\"">>}
        ]
    ],
    [
        ?assertEqual(Term, weir_bench_results:decode(iolist_to_binary(weir_bench_results:encode(Term))))
     || Term <- terms()
    ],
    ?assertError(function_clause, weir_bench_results:encode(<<1>>)),
    ?assertError(function_clause, weir_bench_results:encode({a, tuple})).

terms() ->
    [
        #{run => <<"r">>, figures => [1, 2.5, -3, 1.0e-7, 123456.7], nested => #{key => [#{}, <<>>]}},
        [<<"a\"b\\c\nd">>, <<"#{x => \"y\"}.">>, <<"µs × 8"/utf8>>, <<"%">>]
    ].

%% OTP has a module for JSON since 27.
json_of_otp(_) ->
    case code:ensure_loaded(json) of
        {module, Json} ->
            [
                ?assertEqual(
                    iolist_to_binary(Json:encode(Term)),
                    iolist_to_binary(Json:encode(Json:decode(iolist_to_binary(weir_bench_results:encode(Term)))))
                )
             || Term <- [[<<"a\"b\\c\nd">>, <<"é"/utf8>>], [1, -2.5, 1.0e10, []], #{a => [#{}]}]
            ],
            ok;
        {error, _} ->
            {skip, "this OTP has none"}
    end.

lines(_) ->
    [Ours, Peer, Beside, Series] = weir_bench_results:lines(<<"r">>, weir_pool, "pick", [
        #{
            title => ["1 ", "process"],
            unit => "ns/pick",
            better => lower,
            ours => [#{name => "o", figures => [3, 1, 2]}],
            peers => [#{name => "p", figures => [7.0]}],
            beside => [#{name => "b", figures => [1]}],
            series => [{"o", [{0.5, 1}, {1, 2}]}]
        }
    ]),
    ?assertEqual(
        #{
            run => <<"r">>, benchmark => <<"pick">>, part => <<"weir_pool">>, what => <<"1 process">>, who => <<"o">>,
            role => <<"ours">>, unit => <<"ns/pick">>, better => <<"lower">>, median => 2, min => 1, max => 3,
            rounds => 3, figures => [3, 1, 2]
        },
        Ours
    ),
    ?assertMatch(#{who := <<"p">>, role := <<"peer">>, median := 7}, Peer),
    ?assertMatch(#{who := <<"b">>, role := <<"beside">>}, Beside),
    ?assertMatch(#{who := <<"o">>, series := [[0.5, 1], [1, 2]]}, Series),
    ?assertNot(is_map_key(median, Series)).

few_digits(_) ->
    [#{figures := Figures}] = weir_bench_results:lines(<<"r">>, p, "b", [
        #{
            title => "t",
            unit => "u",
            better => higher,
            ours => [#{name => "o", figures => [123456.789, 0.000123456, 1_234_567, 0.0, -2.0]}],
            peers => []
        }
    ]),
    ?assertEqual([123460, 1.2346e-4, 1_234_567, 0, -2], Figures).

%% The greatest and the last are still there.
series_are_thinned(_) ->
    Points = [{Ms, (Ms * 7_919) rem 1_000} || Ms <- lists:seq(1, 5_000)],
    [#{series := Series}] = weir_bench_results:lines(<<"r">>, p, "b", [
        #{title => "t", unit => "u", better => lower, ours => [], peers => [], series => [{"o", Points}]}
    ]),
    ?assert(length(Series) =< 201),
    ?assertEqual(999, lists:max([Value || [_, Value] <- Series])),
    ?assertEqual([5_000, 7_919 * 5_000 rem 1_000], lists:last(Series)),
    ?assertEqual(Series, lists:sort(Series)).

%% Of each benchmark those of the last run that had it, and only the runs that are used, once.
latest(_) ->
    [Old, New, Unused] = [#{run => Run, otp => <<"25">>} || Run <- [<<"2026-01">>, <<"2026-02">>, <<"2025-01">>]],
    Line = fun(Run, Benchmark, Median) -> #{run => Run, benchmark => Benchmark, median => Median} end,
    Lines = [
        Unused,
        Line(<<"2025-01">>, <<"pick">>, 1),
        Old,
        Line(<<"2026-01">>, <<"pick">>, 2),
        Line(<<"2026-01">>, <<"claim">>, 3),
        New,
        Line(<<"2026-02">>, <<"pick">>, 4),
        Line(<<"2026-02">>, <<"pick">>, 5)
    ],
    Latest = [
        Old,
        New,
        Line(<<"2026-02">>, <<"pick">>, 4),
        Line(<<"2026-02">>, <<"pick">>, 5),
        Line(<<"2026-01">>, <<"claim">>, 3)
    ],
    ?assertEqual(Latest, weir_bench_results:latest(Lines)),
    ?assertEqual(Latest, weir_bench_results:latest(Latest ++ Lines)).

%% Runs with the default number of rounds, of the releases that the page shows.
runs_are_kept(Config) ->
    in_directory(filename:join(proplists:get_value(priv_dir, Config), "kept"), fun() ->
        Table = #{
            title => "t", unit => "u", better => lower, ours => [#{name => "o", figures => [1]}], peers => []
        },
        [
            begin
                Run = #{run => Name, otp => Otp, rounds => Rounds},
                ok = weir_bench_results:new(Run),
                ok = weir_bench_results:add(Run, weir_pool, Benchmark, [Table])
            end
         || {Name, Otp, Rounds, Benchmark} <- [
                {<<"1">>, <<"29">>, 5, "pick"},
                {<<"2">>, <<"29">>, 4, "pick"},
                {<<"3">>, <<"27">>, 5, "pick"},
                {<<"4">>, <<"25">>, 9, "claim"}
            ]
        ],
        ok = weir_bench_results:keep(),
        ok = weir_bench_results:keep(),
        ?assertMatch([#{run := <<"1">>, otp := _}, #{run := <<"1">>, median := 1}], weir_bench_results:kept("29")),
        ?assertMatch([#{run := <<"4">>, otp := _}, #{benchmark := <<"claim">>}], weir_bench_results:kept("25")),
        ?assertEqual([], weir_bench_results:kept("27"))
    end).

tables(_) ->
    Page = weir_bench_report:page(empty(), #{"29" => results(<<"29">>, 1), "25" => results(<<"25">>, 10)}),
    [
        ?assertNotEqual({Line, nomatch}, {Line, string:find(Page, [$\n, Line, $\n])})
     || Line <- [
            "| measured |  | OTP 29 | least to most | ratio | OTP 25 | least to most | ratio |",
            "|---|---|---:|---:|---:|---:|---:|---:|",
            "| a claim of one of 20 workers, 1 process, ns a claim | weir_pool |"
            " 200 | 100 to 300 |  | 2,000 | 1,000 to 3,000 |  |",
            %% The better of two.
            "|  | poolboy | 1,500 | 1,400 to 1,600 | 7.50 | 15,000 | 14,000 to 16,000 | 7.50 |",
            "| 4,000 callers of 20 gen_servers, requests a second | weir_pool |"
            " 900 | 1 round |  | 9,000 | 1 round |  |",
            "|  | poolboy | 300 | 1 round | 3.00 | 3,000 | 1 round | 3.00 |",
            "`BENCH=pick,claim,requests,restarts,large,overload make bench`; OTP 29: 2026-11-22 (commit abc);"
            " OTP 25: 2026-11-22 (commit abc)",
            "| machine | a machine & more | a machine & more |"
        ]
    ],
    %% What nobody measured has no line.
    ?assertEqual(nomatch, string:find(Page, "pick/1")).

one_release(_) ->
    Page = weir_bench_report:page(empty(), #{"29" => [], "25" => results(<<"25">>, 1)}),
    ?assertNotEqual(nomatch, string:find(Page, "| weir_pool |  |  |  | 200 | 100 to 300 |  |\n")).

prose_stays(_) ->
    Once = weir_bench_report:page(empty(), #{}),
    Results = #{"29" => results(<<"29">>, 1)},
    Twice = weir_bench_report:page(Once, Results),
    ?assertEqual(Twice, weir_bench_report:page(Twice, Results)),
    ?assertEqual(Once, weir_bench_report:page(Twice, #{})),
    [
        ?assertNotEqual(nomatch, string:find(Twice, Prose))
     || Prose <- ["# Title é\n", "before weir_log\n", "\nthe end\n"]
    ],
    ?assertError({badmatch, _}, weir_bench_report:page(<<"no markers">>, #{})).

%% A benchmark that calls something by another name than the page does would vanish from it. gen_server2 and lager are
%% not there on every machine, nor is what has as many processes as twice the cores.
rows_are_found(_) ->
    Names = [list_to_binary(Name) || {Name, _} <- weir_bench:benchmarks()],
    [
        begin
            Measured = lists:usort([Benchmark || #{benchmark := Benchmark} <- Lines]),
            ?assertEqual([], Measured -- Names),
            [
                ?assertEqual([], missing(Row, Lines), {Otp, Row})
             || {_Part, Rows} <- weir_bench_report:rows(),
                Row <- Rows,
                lists:member(list_to_binary(element(2, Row)), Measured)
            ]
        end
     || {Otp, Lines} <- maps:to_list(kept())
    ],
    ok.

%% Those of a row that have no line, but for peers of which the run says that they are not there.
missing(Row, Lines) ->
    [
        Label
     || {none, {Label, _}} <- lists:zip(weir_bench_report:find(Row, Lines), element(6, Row)),
        not is_absent(Label, Lines)
    ].

is_absent("lager" ++ _, Lines) -> lists:any(fun(Run) -> left_out(lager, Run) end, Lines);
is_absent("gen_" ++ _, Lines) -> lists:any(fun(Run) -> left_out(servers, Run) end, Lines);
is_absent(_, _) -> false.

left_out(Peer, Line) -> string:find(maps:get(Peer, Line, <<>>), "left out") =/= nomatch.

%% Who changes the one without the other runs make bench-report.
page_is_what_is_kept(_) ->
    Results = kept(),
    {ok, Page} = file:read_file(weir_kit:path("docs/benchmarks.md")),
    ?assert(Page =:= weir_bench_report:page(Page, Results)),
    [
        ?assertEqual({Name, {ok, unicode:characters_to_binary(Picture)}}, {Name, file:read_file(weir_kit:path(File))})
     || {Name, Picture} <- weir_bench_pictures:all(Results), File <- [filename:join("docs/pictures", Name)]
    ],
    ok.

pictures(_) ->
    Pictures = weir_bench_pictures:all(#{"29" => [], "25" => results(<<"25">>, 1)}),
    ?assertEqual(
        lists:sort([
            "mailbox-light.svg", "mailbox-dark.svg", "oneshot-light.svg", "oneshot-dark.svg", "throughput-light.svg",
            "throughput-dark.svg"
        ]),
        lists:sort([Name || {Name, _} <- Pictures])
    ),
    [
        begin
            Text = unicode:characters_to_list(Picture),
            {#xmlElement{name = svg}, []} = xmerl_scan:string(Text),
            Back = case string:find(Name, "dark") of nomatch -> "#ffffff"; _ -> "#0d1117" end,
            ?assertNotEqual(nomatch, string:find(Text, ["height='", height(Text), "' fill='", Back, "'"])),
            ?assertNotEqual(nomatch, string:find(Text, "Erlang/OTP 25, 2 cores of a machine &amp; more"))
        end
     || {Name, Picture} <- Pictures
    ],
    #{"mailbox-light.svg" := Mailbox, "oneshot-dark.svg" := Oneshot, "throughput-dark.svg" := Throughput} =
        maps:from_list(Pictures),
    contains(Mailbox, ["980,000 waiting at most", "4,000 waiting at most", ">0.1 s<", ">500,000<"]),
    contains(Oneshot, [">0.1 s<", ">0.8 s<", ">3.5 s<"]),
    %% What was not measured is left out, and not the others with it.
    contains(Throughput, ["5.00 million/s", "poolboy", "667,000/s", "250,000/s"]),
    ?assertEqual(nomatch, string:find(unicode:characters_to_list(Throughput), "gen_tcp")).

contains(Picture, Texts) ->
    [?assertNotEqual({Text, nomatch}, {Text, string:find(unicode:characters_to_list(Picture), Text)}) || Text <- Texts].

height(Text) ->
    {match, [Height]} = re:run(Text, "^<svg [^>]*height='(\\d+)'", [{capture, all_but_first, list}]),
    Height.

%% None leans on what another one shows.
pictures_need_results(_) ->
    Lines = results(<<"29">>, 1),
    Only = fun(Names) ->
        Some = [Line || Line <- Lines, lists:member(maps:get(benchmark, Line, <<"a run">>), [<<"a run">> | Names])],
        [Name || {Name, _} <- weir_bench_pictures:all(#{"29" => Some}), string:find(Name, "light") =/= nomatch]
    end,
    ?assertEqual(["mailbox-light.svg"], Only([<<"flow">>])),
    ?assertEqual(["throughput-light.svg"], Only([<<"claim">>])),
    ?assertEqual(["oneshot-light.svg", "throughput-light.svg"], Only([<<"oneshot">>])),
    ?assertEqual([], Only([<<"requests">>])),
    ?assertEqual([], weir_bench_pictures:all(#{"29" => [], "25" => []})),
    ?assertEqual([], weir_bench_pictures:all(#{})).

%% Below a curve that rises and falls; and behind one that ends early.
label_is_clear_of_the_curve(_) ->
    Of = fun(Plain, Ours) ->
        Lines = [
            #{run => <<"r">>, otp => <<"29">>, machine => <<"m">>, cores => 2, date => <<"2026-11-22T00:00:00Z">>}
            | [
                #{
                    run => <<"r">>, benchmark => <<"flow">>, what => <<"w">>, who => Who, unit => <<"messages">>,
                    series => Series
                }
             || {Who, Series} <- [{<<"weir_flow:cast/3, window 8">>, Ours}, {<<"gen_server:cast/2">>, Plain}]
            ]
        ],
        {_, Picture} = lists:keyfind("mailbox-light.svg", 1, weir_bench_pictures:all(#{"29" => Lines})),
        {match, [X]} = re:run(unicode:characters_to_list(Picture), "<text x='([0-9.]+)'[^>]*>weir_flow", [
            {capture, all_but_first, list}
        ]),
        (list_to_float(X) - 104) / 600
    end,
    Flat = [[Ms, 10] || Ms <- [1, 50, 100]],
    Middle = Of([[50, 1_000], [100, 0]], Flat),
    ?assert(Middle > 0.4 andalso Middle < 0.6),
    ?assert(Of([[10, 1_000], [20, 0]], Flat) > 0.3).

%% ---------------------------------------------------------------- helpers

%% Figures times a factor.
results(Otp, Times) ->
    Run = #{
        run => <<"r">>, otp => Otp, machine => <<"a machine & more">>, cores => 2,
        date => <<"2026-11-22T20:00:00Z">>, commit => <<"abc">>
    },
    Table = fun(Title, Unit, Better, Ours, Others) ->
        Results = fun(Each) ->
            [#{name => Name, figures => [Figure * Times || Figure <- Figures]} || {Name, Figures} <- Each]
        end,
        #{title => Title, unit => Unit, better => Better, ours => Results(Ours), peers => Results(Others)}
    end,
    Claims = [
        Table(Title, "ns/claim", lower, [{"weir_pool:claim/3", [300, 100, 200]}], [
            {"poolboy:transaction/3, lifo", [1_600, 1_700, 1_800]},
            {"poolboy:transaction/3, fifo", [1_400, 1_500, 1_600]}
        ])
     || Title <- ["1 process(es)", "100 process(es)"]
    ],
    Requests = Table("requests", "requests/s", higher, [{"weir_pool:pick/1, gen_server:call/2", [900]}], [
        {"erlpool's algorithm, as published, gen_server:call/2", [800]}, {"poolboy:transaction/2", [300]}
    ]),
    Oneshot = Table("25,000 at once", "ms", lower, [{"weir_memcached, 25000", [90, 100, 110]}], [
        {"old design, draining server", [800]}, {"old design, gen_server", [3_500]}
    ]),
    Flow = (Table("longest mailbox", "messages", lower, [], []))#{
        series => [
            {"weir_flow:cast/3, window 8", [{1, 100}, {200, 4_000}, {400, 0}]},
            {"gen_server:cast/2", [{1, 100}, {200, 980_000}, {420, 0}]}
        ]
    },
    [
        Run
        | lists:append([
            weir_bench_results:lines(<<"r">>, weir_pool, Benchmark, Tables)
         || {Benchmark, Tables} <- [
                {"claim", Claims}, {"requests", [Requests]}, {"oneshot", [Oneshot]}, {"flow", [Flow]}
            ]
        ])
    ].

empty() ->
    unicode:characters_to_binary([
        "# Title é\n",
        [
            ["before ", Name, "\n\n<!-- measured: ", Name, " -->\n<!-- end -->\n"]
         || Name <- ["machine" | [atom_to_list(Part) || {Part, _} <- weir_bench_report:rows()]]
        ],
        "the end\n"
    ]).

kept() ->
    in_directory(weir_kit:path(""), fun() ->
        maps:from_list([{Otp, weir_bench_results:kept(Otp)} || Otp <- weir_bench_results:releases()])
    end).

in_directory(Directory, Fun) ->
    ok = filelib:ensure_path(Directory),
    {ok, Before} = file:get_cwd(),
    ok = file:set_cwd(Directory),
    try
        Fun()
    after
        ok = file:set_cwd(Before)
    end.
