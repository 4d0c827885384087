%% What weir_watch_screen draws, as a terminal would have it: whatever the snapshot, it stays within the terminal's
%% columns and rows, and no character of the node's moves the cursor.
-module(weir_watch_screen_SUITE).

-include_lib("proper/include/proper.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> weir_kit:cases(?MODULE).

whole(_Config) ->
    Lines = drawn(weir_watch_sample:snapshot(), view()),
    ?assertEqual(24, length(Lines)),
    [
        ?assert(has(Part, Lines), Part)
     || Part <- [
            atom_to_list(node()),
            "OTP 29",
            "12,345 processes of 1,048,576",
            "run queue 3",
            "67 %",
            "memory 812 MB",
            "bank <0.4711.0>: busy, for 30 s",
            "bank is busy with its own work: 98 % of a core, 5,123 messages wait.",
            "Spread the work over several processes. (docs/guide/pool.md)",
            "> bank ",
            "5,123",
            "bank <0.4711.0> waits for <0.4712.0>",
            "The node's system monitor is somebody else's",
            "weir takes 0.80 % of a core and 12 MB",
            "q quit"
        ]
    ].

inspection(_Config) ->
    Lines = drawn(weir_watch_sample:snapshot(), (view())#{inspect => true, rows := 40}),
    [
        ?assert(has(Part, Lines), Part)
     || Part <- [
            "gen_server bank of application shop",
            "supervisor shop_sup, below <0.4700.0>",
            "about 4,812/s arrive, 4,000/s are handled",
            "shop:buy/2 75 %, shop:pay/1 25 %, in <0.4701.0>",
            "tables     accounts 100 %",
            "a million in 20 min",
            "bank:interest/2 75 %, lists:map/2 25 %",
            "running 90 %, runnable 10 %",
            "call {get, _} 90 %, cast stop 10 %",
            "5,100, <0.4712.0>",
            "weir_pool:start(bank,"
        ]
    ].

%% Those of the selected process, if they were asked for.
contents(_Config) ->
    #{suspects := [#{pid := Pid}, #{pid := Other}]} = Snapshot = weir_watch_sample:snapshot(),
    View = (view())#{inspect => true, selected => Pid, rows := 40},
    Told = {ok, #{queue => 5123, messages => [<<"{get,1}">>, <<"{get,2}">>]}},
    Shown = drawn(Snapshot, View#{messages => {Pid, Told}}),
    [?assert(has(Part, Shown), Part) || Part <- ["when asked: 5,123, the oldest first", "{get,1}", "{get,2}"]],
    [?assertNot(has("when asked", drawn(Snapshot, Without)))
     || Without <- [View, View#{messages => {Other, Told}}, View#{messages => {Pid, Told}, inspect := false}]],
    None = {ok, #{queue => 0, messages => []}},
    ?assert(has("when asked: 0 ", [Line ++ " " || Line <- drawn(Snapshot, View#{messages => {Pid, None}})])),
    [
        ?assert(has(Part, drawn(Snapshot, View#{messages => {Pid, {error, Why}}})), Why)
     || {Why, Part} <- [
            {dead, "gone"}, {too_many, "10,000"}, {too_large, "8 MB"}, {timeout, "five seconds"},
            {disconnected, "cannot be told: disconnected"}
        ]
    ].

%% Even there it says what is wrong, who is worst, and how to quit.
small(_Config) ->
    Lines = drawn(weir_watch_sample:snapshot(), (view())#{columns := 40, rows := 10}),
    ?assertEqual(10, length(Lines)),
    [?assert(has(Part, Lines), Part) || Part <- ["bank <0.4711.0>: busy", "> bank", "q quit"]].

empty(_Config) ->
    ?assert(has("Connecting", drawn(undefined, (view())#{message => "Connecting"}))),
    Nothing = #{suspects => [], diagnoses => [], schedulers => [], limits => []},
    Lines = drawn(weir_watch_sample:snapshot(Nothing), view()),
    ?assert(has("Nothing is wrong.", Lines)),
    ?assert(has("No process stands out.", Lines)),
    ?assert(has("ctrl-C", drawn(undefined, (view())#{help => true}))).

sorted(_Config) ->
    #{suspects := [A, B]} = weir_watch_sample:snapshot(),
    Suspects = [
        A#{queue := 1, core := 0.2, growth := 3, waiters := 1},
        B#{queue := 2, core := 0.1, growth := 1, waiters := 2}
    ],
    Snapshot = weir_watch_sample:snapshot(#{suspects => Suspects}),
    #{pid := First} = A,
    #{pid := Second} = B,
    [
        ?assertEqual(Order, weir_watch_screen:order(Snapshot, (view())#{sort => Sort}), Sort)
     || {Sort, Order} <- [
            {queue, [Second, First]}, {core, [First, Second]}, {growth, [First, Second]}, {waiters, [Second, First]}
        ]
    ],
    ?assertEqual([First, Second], weir_watch_screen:order(Snapshot, (view())#{sort => queue, pinned => [First]})).

selected_in_sight(_Config) ->
    #{suspects := [Suspect | _]} = weir_watch_sample:snapshot(),
    Pids = [list_to_pid("<0." ++ integer_to_list(N) ++ ".0>") || N <- lists:seq(5000, 5099)],
    Snapshot = weir_watch_sample:snapshot(#{suspects => [Suspect#{pid := Pid, name := undefined} || Pid <- Pids]}),
    [
        ?assertMatch([_], [Line || "> " ++ Line <- drawn(Snapshot, (view())#{selected => Pid, rows := Rows})])
     || Pid <- Pids, Rows <- [10, 24, 60]
    ].

%% Without UTF-8 all is ASCII; without colour there is no colour.
ascii(_Config) ->
    #{suspects := [Suspect | _]} = weir_watch_sample:snapshot(),
    Snapshot = weir_watch_sample:snapshot(#{suspects => [Suspect#{name := undefined, label := <<"größe"/utf8>>}]}),
    Screen = iolist_to_binary(weir_watch_screen:draw(Snapshot, view())),
    ?assertEqual([], [C || <<C>> <= Screen, C > 126]),
    ?assertEqual(nomatch, re:run(Screen, "\e\\[[0-9;]*m")),
    ?assert(has("gr??e", drawn(Snapshot, view()))),
    ?assert(has("größe", drawn(Snapshot, (view())#{unicode => true}))).

report(_Config) ->
    Text = unicode:characters_to_list(iolist_to_binary(weir_watch_screen:report(weir_watch_sample:snapshot(), #{}))),
    [
        ?assertNotEqual(nomatch, string:find(Text, Part), Part)
     || Part <- ["bank <0.4711.0>: busy, for 30 s\n", "    Remedy: Spread", "waits for: <0.4712.0>\n", "weir_pool:"]
    ],
    Limit = "The node's system monitor is somebody else's, so floods are found a little later.\n",
    Below = Limit ++ "weir takes 0.80 % of a core and 12 MB of the node.\n",
    ?assertNotEqual(nomatch, string:find(Text, "\n\n" ++ Below)),
    %% Nothing found is not nothing wrong: what was not seen is told with it.
    Healthy = weir_watch_sample:snapshot(#{diagnoses => []}),
    ?assertEqual(
        iolist_to_binary([atom_to_binary(node()), ": nothing was found in 60 s.\n", Below]),
        iolist_to_binary(weir_watch_screen:report(Healthy, #{}))
    ).

never_wider(_Config) ->
    {Screens, Reports} = weir_kit:long({200, 40}, {500, 100}),
    Property = ?FORALL({Snapshot, View}, {any_snapshot(), any_view()}, told(fun() -> fits(Snapshot, View) end)),
    ok = weir_kit_property:holds(Property, [{numtests, Screens}, quiet, noshrink]),
    %% And so does the report, whose lines may be long, but have nothing that is no text.
    Report = ?FORALL(Snapshot, any_snapshot(), told(fun() ->
        Text = unicode:characters_to_list(iolist_to_binary(weir_watch_screen:report(Snapshot, #{unicode => true}))),
        [] =:= [C || C <- Text, C < 32 andalso C =/= $\n orelse C >= 127 andalso C < 161]
    end)),
    ok = weir_kit_property:holds(Report, [{numtests, Reports}, quiet, noshrink]).

%% This PropEr's own report of an error fails on newer OTPs.
told(Property) ->
    try
        Property()
    catch
        Class:Reason:Stack ->
            ct:log("~p", [{Class, Reason, Stack}]),
            false
    end.

fits(Snapshot, #{columns := Columns, rows := Rows} = View) ->
    Lines = drawn(Snapshot, View),
    Wide = [Line || Line <- Lines, width(Line) > Columns],
    case length(Lines) =:= Rows andalso Wide of
        [] -> true;
        Wrong -> io:format(user, "~p columns, ~p rows: ~p~n", [Columns, Rows, Wrong]), false
    end.

%% ---------------------------------------------------------------- a terminal

view() -> #{columns => 80, rows => 24}.

%% The lines that the terminal shows. What it is sent begins in its corner; then come text, colours, erasing to the end
%% of the line, and line ends, and nothing else.
drawn(Snapshot, View) ->
    "\e[H" ++ Screen = unicode:characters_to_list(iolist_to_binary(weir_watch_screen:draw(Snapshot, View))),
    shown(Screen, [], []).

shown("\r\n" ++ Rest, Line, Lines) -> shown(Rest, [], [lists:reverse(Line) | Lines]);
shown("\e[K" ++ Rest, Line, Lines) -> shown(Rest, Line, Lines);
shown("\e[" ++ Rest, Line, Lines) ->
    {Colour, "m" ++ More} = lists:splitwith(fun(C) -> C >= $0 andalso C =< $9 orelse C =:= $; end, Rest),
    true = lists:member(Colour, ["0", "1", "2", "7", "32", "33", "1;31"]),
    shown(More, Line, Lines);
shown([C | Rest], Line, Lines) when C >= 32, C < 127; C > 160 -> shown(Rest, [C | Line], Lines);
shown([], Line, Lines) -> lists:reverse([lists:reverse(Line) | Lines]).

%% By East Asian Width; what has none, or whose width depends on the font, does not come.
width(Line) -> lists:sum([cell(C) || C <- Line]).

cell(C) when C >= 16#4E00, C =< 16#9FFF; C >= 16#AC00, C =< 16#D7A3; C >= 16#3041, C =< 16#30FF -> 2;
cell(C) when C >= 16#1100, C =< 16#115F; C >= 16#2E80, C =< 16#303E -> 2;
cell(C) when C >= 16#3400, C =< 16#4DBF; C >= 16#FF01, C =< 16#FF60 -> 2;
cell(C) when C < 16#300; C >= 16#391, C =< 16#482; C >= 16#2500, C =< 16#25CF; C =:= 16#2192 -> 1.

has(Part, Lines) -> lists:any(fun(Line) -> string:find(Line, Part) =/= nomatch end, Lines).

%% ---------------------------------------------------------------- any snapshot

any_view() ->
    ?LET(
        {Columns, Rows, Color, Unicode, Sort, {Selected, Texts}, Flags, Message},
        {integer(1, 200), integer(1, 60), boolean(), boolean(), oneof([queue, core, growth, waiters]),
            {a_pid(), list(text())}, list(oneof([paused, help, inspect, inspect])), text()},
        maps:merge(
            maps:from_list([{Flag, true} || Flag <- Flags] ++ [{message, Message} || byte_size(Message) rem 2 =:= 0]),
            #{columns => Columns, rows => Rows, color => Color, unicode => Unicode, sort => Sort, selected => Selected,
                pinned => [Selected], messages => {Selected, {ok, #{queue => Rows, messages => Texts}}}}
        )
    ).

any_snapshot() ->
    ?LET(
        {Suspects, Diagnoses, Schedulers, Limits, Counts},
        {list(suspect()), list(diagnosis()), list(share()), list(text()), vector(7, non_neg_integer())},
        begin
            [Uptime, Processes, Limit, Ports, Queue, Input, Output] = [N * N * N * N || N <- Counts],
            weir_watch_sample:snapshot(#{
                suspects => Suspects, diagnoses => Diagnoses, schedulers => Schedulers, limits => Limits,
                uptime => Uptime, processes => Processes, process_limit => Limit + 1, ports => Ports,
                run_queue => Queue, input => Input, output => Output
            })
        end
    ).

suspect() ->
    ?LET(
        {Pid, Name, Label, Queues, Growth, Core, {Kinds, Doing}, Chain, Until, Answers},
        {a_pid(), name(), oneof([undefined, text()]), list(non_neg_integer()), integer(), share(),
            {list({text(), share()}), list({{name(), name(), 2}, share()})}, list(a_pid()),
            oneof([infinity, non_neg_integer()]), boolean()},
        begin
            #{suspects := [Suspect | _]} = weir_watch_sample:snapshot(),
            Suspect#{
                pid := Pid, name := Name, label := Label, module := Name, queues := Queues, queue := lists:sum(Queues),
                growth := Growth, core := Core, doing := Doing, messages := Kinds, chain := Chain, waiting := Chain,
                until_million := Until, answers := Answers, drained := abs(Growth)
            }
        end
    ).

diagnosis() ->
    ?LET(
        {Pid, Name, Summary, Remedy, Sketch, Chain},
        {oneof([undefined, a_pid()]), name(), text(), text(), text(), list(a_pid())},
        begin
            #{diagnoses := [Diagnosis]} = weir_watch_sample:snapshot(),
            Diagnosis#{pid := Pid, name := Name, summary := Summary, remedy := Remedy, sketch := Sketch, chain := Chain}
        end
    ).

a_pid() -> ?LET(N, integer(1000, 1010), list_to_pid("<0." ++ integer_to_list(N) ++ ".0>")).

name() ->
    oneof([undefined, bank, ?LET(Chars, list(char_of()), list_to_atom(lists:sublist(Chars, 60)))]).

text() -> oneof([binary(), ?LET(Chars, list(char_of()), unicode:characters_to_binary(Chars))]).

%% Control characters, and those that are wide, that join, that turn the direction, or have no width.
char_of() ->
    Special = [16#1B, $\r, $\n, $\t, $\s, 16#9B, 16#202E, 16#200D, 16#301, 16#4E2D, 16#AC00, 16#1F600, 16#FEFF, 16#3B1],
    oneof([integer(0, 255) | Special]).

share() -> ?LET(N, integer(0, 100), N / 100).
