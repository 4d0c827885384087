%% @doc A second of a node drawn on a terminal, or told as text: functions of a snapshot and of how somebody wants to
%% look at it.
%%
%% Nothing that is drawn is wider than the terminal or longer; what comes from the node (names, labels, kinds of
%% messages) cannot move the cursor, ring, or overwrite: control characters, and characters whose width terminals do not
%% agree about, are drawn as `?'. Without colour the selected row has a mark, without UTF-8 the drawing is in ASCII.
%%
%% No process and no state: nothing to leave behind.
%% @private
-module(weir_watch_screen).

-export([draw/2, report/2, order/2]).

-export_type([view/0]).

-type view() :: #{
    columns := pos_integer(),
    rows := pos_integer(),
    color => boolean(),
    unicode => boolean(),
    sort => queue | core | growth | waiters,
    selected => pid(),
    pinned => [pid()],
    paused => boolean(),
    help => boolean(),
    inspect => boolean(),
    messages => {pid(), weir_watch_messages:answer()},
    message => iodata()
}.
%% How to draw: `color' and `unicode' say what the terminal can. `selected' is the suspect with the mark, the first if
%% it is none of them; `pinned' ones are drawn first. `inspect' draws the selected one instead of the table, with the
%% `messages' if they are its, `help' the keys. `message' is a line in the header, such as that the node is gone.

%% A line is a list of these, before it is cut and coloured.
-type piece() :: {plain | dim | bold | good | warn | bad | mark, unicode:chardata()}.

-define(WIDE(C),
    (C >= 16#1100 andalso C =< 16#115F orelse C >= 16#2E80 andalso C =< 16#303E orelse
        C >= 16#3041 andalso C =< 16#3096 orelse C >= 16#30A0 andalso C =< 16#30FF orelse
        C >= 16#3400 andalso C =< 16#4DBF orelse C >= 16#4E00 andalso C =< 16#9FFF orelse
        C >= 16#AC00 andalso C =< 16#D7A3 orelse C >= 16#FF01 andalso C =< 16#FF60)
).
-define(NARROW(C),
    (C >= 16#20 andalso C =< 16#7E orelse C >= 16#A1 andalso C =< 16#2FF andalso C =/= 16#AD orelse
        C >= 16#391 andalso C =< 16#3C9 andalso C =/= 16#3A2 orelse C >= 16#400 andalso C =< 16#482 orelse
        C >= 16#2581 andalso C =< 16#2588 orelse C =:= 16#2500 orelse C =:= 16#2192 orelse C =:= 16#25CF)
).

%% @doc The suspects in the order of the table.
-spec order(weir_watch:snapshot(), view()) -> [pid()].
order(Snapshot, View) -> [Pid || #{pid := Pid} <- sorted(Snapshot, View)].

%% @doc A full screen, to be written as it is (UTF-8 where the view has `unicode', ASCII otherwise): it begins in the
%% upper left corner and leaves nothing of what was there.
-spec draw(weir_watch:snapshot() | undefined, view()) -> iodata().
draw(Snapshot, #{columns := Columns, rows := Rows} = View) ->
    Lines =
        case {Snapshot, View} of
            {_, #{help := true}} -> help();
            {undefined, _} -> message(View) ++ [[{dim, "Waiting for the node's first second."}]];
            {_, _} -> page(Snapshot, View)
        end,
    Fitting = lists:sublist(Lines, Rows),
    Blank = lists:duplicate(Rows - length(Fitting), []),
    ["\e[H", lists:join("\r\n", [line(Line, Columns, View) || Line <- Fitting ++ Blank])].

%% @doc The diagnoses in words, for a file or a terminal that only prints.
-spec report(weir_watch:snapshot(), #{unicode => boolean()}) -> iodata().
report(#{node := Node, diagnoses := [], watched := Watched} = Snapshot, View) ->
    told([[{plain, [text(Node), ": nothing was found in ", duration(Watched), "."]}] | below(Snapshot)], View);
report(#{diagnoses := Diagnoses} = Snapshot, View) ->
    [[[told(told_of(Diagnosis, Snapshot), View), $\n] || Diagnosis <- Diagnoses], told(below(Snapshot), View)].

%% What kept the agent from finding more, and what it took.
below(#{limits := Limits} = Snapshot) -> [[{plain, Limit}] || Limit <- Limits] ++ [[{plain, taken(Snapshot)}]].

taken(#{cost := #{share := Share, memory := Memory}}) ->
    ["weir takes ", io_lib:format("~.2f", [Share * 100.0]), " % of a core and ", bytes(Memory), " of the node."].

told(Lines, View) -> [[utf8([safe(Text, View) || {_, Text} <- Line]), $\n] || Line <- Lines].

told_of(Diagnosis, Snapshot) ->
    #{summary := Summary, remedy := Remedy, page := Page, sketch := Sketch, chain := Chain} = Diagnosis,
    [
        title(Diagnosis, Snapshot),
        [{plain, ["    ", Summary]}],
        [{plain, ["    Remedy: ", Remedy, " (", Page, ")"]}]
    ] ++
        [[{plain, ["    It waits for: ", lists:join(", ", [who(Pid, Snapshot) || Pid <- Chain])]}] || Chain =/= []] ++
        [[{plain, ["        ", Row]}] || Row <- rows(Sketch)].

%% ---------------------------------------------------------------- the page

page(Snapshot, #{rows := Rows, columns := Columns} = View) ->
    Header = header(Snapshot, View),
    Footer = footer(Snapshot, View),
    Room = max(0, Rows - length(Header) - length(Footer)),
    Sorted = sorted(Snapshot, View),
    Selected = selected(Sorted, View),
    Middle =
        case View of
            #{inspect := true} when Selected =/= none ->
                inspection(Selected, Snapshot, View);
            _ ->
                Chain = [Line || roomy(View), Line <- chain(Selected, Snapshot)],
                %% The table has a third of the room at least.
                Diagnoses = lists:sublist(diagnoses(Snapshot, Columns), max(1, Room * 2 div 3 - length(Chain))),
                Space = max(2, Room - length(Diagnoses) - length(Chain)),
                Diagnoses ++ table(Sorted, Selected, Space, View) ++ Chain
        end,
    Shown = lists:sublist(Middle, Room),
    Header ++ Shown ++ lists:duplicate(Room - length(Shown), []) ++ Footer.

header(Snapshot, #{columns := Columns} = View) ->
    #{
        node := Node, otp := Otp, uptime := Uptime, processes := Processes, process_limit := Limit, ports := Ports,
        run_queue := Queue, schedulers := Schedulers, memory := Memory, input := Input, output := Output
    } = Snapshot,
    Mean = lists:sum(Schedulers) / max(1, length(Schedulers)),
    [
        [
            {bold, text(Node)},
            {plain, ["  OTP ", Otp, "  up ", duration(Uptime), "  ", number(Processes), " processes"]},
            {dim, [" of ", number(Limit)]},
            {plain, ["  ", number(Ports), " ports"]}
        ],
        [
            {plain, "schedulers "},
            {load(Mean), bars(Schedulers, max(1, Columns div 3), View)},
            {plain, [" ", percent(Mean), "  run queue ", number(Queue)]},
            {plain, ["  in ", bytes(Input), "/s  out ", bytes(Output), "/s"]}
        ],
        [
            {plain, ["memory ", bytes(maps:get(total, Memory, 0))]},
            {dim, [["  ", text(Key), " ", bytes(maps:get(Key, Memory))]
                || Key <- [processes, binary, ets, code], is_map_key(Key, Memory)]}
        ]
    ] ++ message(View) ++ [[{mark, "PAUSED: space goes on"}] || maps:get(paused, View, false)] ++
        [[{dim, lists:duplicate(Columns, rule(View))}] || roomy(View)].

%% Where there is little room, the rows of the table are worth more than what is around them.
roomy(#{rows := Rows}) -> Rows >= 16.

message(#{message := Message, columns := Columns}) -> wrapped(bad, "", Message, Columns);
message(_View) -> [].

diagnoses(#{diagnoses := []}, _Columns) ->
    [[{good, "Nothing is wrong."}]];
diagnoses(#{diagnoses := Diagnoses} = Snapshot, Columns) ->
    lists:append([
        [title(Diagnosis, Snapshot)] ++
            wrapped(plain, "  ", Summary, Columns) ++
            wrapped(good, "  ", [Remedy, " (", Page, ")"], Columns)
     || #{summary := Summary, remedy := Remedy, page := Page} = Diagnosis <- Diagnoses
    ]).

title(#{pid := undefined, node := Node} = Diagnosis, Snapshot) ->
    titled(["node ", text(Node)], Diagnosis, Snapshot);
title(#{pid := Pid} = Diagnosis, Snapshot) ->
    titled(who(Pid, maps:get(name, Diagnosis), Snapshot), Diagnosis, Snapshot).

titled(Who, #{cause := Cause, since := Since}, #{at := At}) ->
    [{bad, Who}, {plain, ": "}, {bold, text(Cause)}, {dim, [", for ", duration(max(0, At - Since))]}].

%% ---------------------------------------------------------------- the table

sorted(#{suspects := Suspects}, View) ->
    Key = maps:get(sort, View, queue),
    Pinned = maps:get(pinned, View, []),
    {First, Rest} = lists:partition(fun(#{pid := Pid}) -> lists:member(Pid, Pinned) end, Suspects),
    %% Stable, so the worst is first among equals.
    Descending = fun(A, B) -> maps:get(Key, A) >= maps:get(Key, B) end,
    lists:sort(Descending, First) ++ lists:sort(Descending, Rest).

selected([], _View) ->
    none;
selected([First | _] = Sorted, View) ->
    case [Suspect || #{pid := Pid} = Suspect <- Sorted, Pid =:= maps:get(selected, View, none)] of
        [Suspect | _] -> Suspect;
        [] -> First
    end.

table([], _Selected, _Space, _View) ->
    [[], [{dim, "No process stands out."}]];
table(Sorted, Selected, Space, View) ->
    Sort = maps:get(sort, View, queue),
    Head = [{dim, ["  ", pad("process", 21)]}] ++
        [{case Column of Sort -> bold; _ -> dim end, lead(Name, Width)} || {Column, Name, Width} <- columns()] ++
        [{dim, ["  ", pad("mailbox", spark_width(View)), "  doing"]}],
    %% The selected one is always in sight.
    Index = length(lists:takewhile(fun(Suspect) -> Suspect =/= Selected end, Sorted)),
    Blank = [[] || roomy(View)],
    Count = max(1, Space - 1 - length(Blank)),
    Shown = lists:sublist(lists:nthtail(max(0, Index - Count + 1), Sorted), Count),
    Blank ++ [Head | [row(Suspect, Suspect =:= Selected, View) || Suspect <- Shown]].

columns() -> [{queue, "queue", 10}, {growth, "+/s", 8}, {core, "core", 6}, {waiters, "waiters", 8}].

row(#{pid := Pid, queues := Queues} = Suspect, Selected, View) ->
    #{queue := Queue, growth := Growth, core := Core, waiters := Waiters} = Suspect,
    Mark = case Selected of true -> "> "; false -> "  " end,
    Pin = case lists:member(Pid, maps:get(pinned, View, [])) of true -> "*"; false -> " " end,
    Name = [Mark, pad(safe(name(Suspect), View), 20), Pin],
    Values = [lead(number(Queue), 10), lead(number(Growth), 8), lead(percent(Core), 6), lead(number(Waiters), 8), "  "],
    Width = spark_width(View),
    Style = case Selected of true -> mark; false -> plain end,
    [{Style, [Name, Values]}, {load(Core), pad(spark(Queues, Width, View), Width)}, {dim, ["  ", doing(Suspect)]}].

spark_width(#{columns := Columns}) -> max(8, min(30, (Columns - 57) div 3)).

%% By its name, its label, its module, or at last its pid.
name(#{name := Name}) when Name =/= undefined -> text(Name);
name(#{label := Label, pid := Pid}) when Label =/= undefined -> [Label, " ", local(Pid)];
name(#{module := Module, pid := Pid}) when Module =/= undefined -> [text(Module), " ", local(Pid)];
name(#{pid := Pid}) -> local(Pid).

doing(#{answers := false}) -> "does not answer the runtime";
doing(#{doing := [{Call, _} | _]}) -> call(Call);
doing(_) -> "".

chain(none, _Snapshot) ->
    [];
chain(#{chain := []}, _Snapshot) ->
    [];
chain(#{pid := Pid, chain := Chain}, Snapshot) ->
    [[], [{bold, who(Pid, Snapshot)} | [{plain, [" waits for ", who(Next, Snapshot)]} || Next <- Chain]]].

%% ---------------------------------------------------------------- one suspect

inspection(#{pid := Pid} = Suspect, #{diagnoses := Diagnoses, at := At} = Snapshot, #{columns := Columns} = View) ->
    #{
        name := Name, label := Label, module := Module, behaviour := Behaviour, application := Application,
        ancestors := Ancestors, since := Since, queue := Queue, drained := Drained, growth := Growth,
        until_million := Until, reductions := Reductions,
        core := Core, heap := Heap,
        states := States, waiters := Waiters, waiting := Waiting, queues := Queues
    } = Suspect,
    Of = fun(undefined) -> "none"; (Other) when is_pid(Other) -> who(Other, Snapshot); (Other) -> text(Other) end,
    Its = [Diagnosis || #{pid := Who} = Diagnosis <- Diagnoses, Who =:= Pid],
    Above = case Ancestors of [] -> "none"; _ -> lists:join(", below ", lists:map(Of, Ancestors)) end,
    Item = fun(Title, Value) -> wrapped(plain, pad(Title, 11), Value, Columns) end,
    [[{bold, who(Pid, Name, Snapshot)}, {dim, [", for ", duration(max(0, At - Since))]}] | [
        [{dim, ["label ", Label]}] || Label =/= undefined
    ]] ++
        %% First, since it is to be seen on a small screen, too; what is cut off there is the sketch.
        lists:append([
            [title(Diagnosis, Snapshot) | wrapped(plain, "  ", Summary, Columns)] ++
                wrapped(good, "  ", [Remedy, " (", Page, ")"], Columns)
         || #{summary := Summary, remedy := Remedy, page := Page} = Diagnosis <- Its
        ]) ++
        Item("is", [text(Behaviour), " ", Of(Module), " of application ", Of(Application)]) ++
        Item("supervisor", Above) ++
        Item("mailbox", [number(Queue), " messages, ", number(Growth), "/s more", drained(Drained), until(Until)]) ++
        rates(Suspect, Item) ++
        Item("", spark(Queues, max(0, Columns - 12), View)) ++
        Item("messages", shares(maps:get(messages, Suspect), fun(Kind) -> Kind end)) ++
        contents(Pid, View) ++
        sent(Suspect, Snapshot, Item) ++
        Item("works", [percent(Core), " of a core, ", number(Reductions), " reductions/s, heap ", bytes(Heap)]) ++
        Item("doing", [shares(maps:get(doing, Suspect), fun call/1), case Suspect of
            #{answers := false} -> " (does not answer the runtime)";
            _ -> ""
        end]) ++
        lists:append([Item("tables", shares(Tables, fun text/1)) || #{tables := [_ | _] = Tables} <- [Suspect]]) ++
        Item("states", shares(lists:reverse(lists:keysort(2, maps:to_list(States))), fun text/1)) ++
        Item("waiters", [number(Waiters), [[", ", who(Waiter, Snapshot)] || Waiter <- lists:sublist(Waiting, 5)]]) ++
        chain(Suspect, Snapshot) ++
        lists:append([[[] | [[{plain, ["    ", Row]}] || Row <- rows(Sketch)]] || #{sketch := Sketch} <- Its]).

sent(#{senders := []}, _Snapshot, _Item) -> [];
sent(#{sent_by := Functions, senders := Senders}, Snapshot, Item) ->
    By = [[shares(Functions, fun call/1), ", "] || Functions =/= []],
    Item("sent by", [By, "in ", lists:join(", ", [who(Sender, Snapshot) || Sender <- lists:sublist(Senders, 5)])]).

contents(Pid, #{messages := {Pid, {ok, #{queue := Queue, messages := Texts}}}}) ->
    Which = ["when asked: ", number(Queue), case Texts of [] -> ""; _ -> ", the oldest first" end],
    [beside(dim, Which) | [beside(plain, Text) || Text <- Texts]];
contents(Pid, #{messages := {Pid, {error, Why}}}) ->
    [beside(warn, not_told(Why))];
contents(_Pid, _View) ->
    [].

%% Below an item's value, and cut where the line ends.
beside(Style, Text) -> [{Style, [pad("", 11), Text]}].

not_told(dead) -> "it was gone when it was asked for its messages";
not_told(too_many) -> "they are not asked for where there are more than 10,000";
not_told(too_large) -> "they are not asked for where the process takes more than 8 MB";
not_told(timeout) -> "asked for its messages, it did not answer within five seconds";
not_told(Other) -> ["its messages cannot be told: ", io_lib:format("~0tP", [Other, 10])].

rates(#{handled := undefined}, _Item) -> [];
rates(#{handled := Handled, arriving := Arriving}, Item) ->
    Item("", ["about ", number(Arriving), "/s arrive, ", number(Handled), "/s are handled"]).

drained(0) -> "";
drained(N) -> [", ", number(N), " drained and not handled"].

until(infinity) -> "";
until(Seconds) -> [", a million in ", duration(Seconds * 1000)].

shares(Pairs, Print) -> lists:join(", ", [[Print(What), " ", percent(Share)] || {What, Share} <- Pairs]).

%% ---------------------------------------------------------------- the foot, and the keys

footer(#{limits := Limits} = Snapshot, View) ->
    Keys =
        case View of
            #{inspect := true} -> "q quit  enter back  m messages  j k select  p pin  space pause  ? help";
            _ ->
                Sort = text(maps:get(sort, View, queue)),
                ["q quit  s sort: ", Sort, "  j k select  enter inspect  p pin  space pause  ? help"]
        end,
    [[{warn, Limit}] || roomy(View), Limit <- lists:sublist(Limits, 1)] ++
        [
            [{dim, taken(Snapshot)}],
            [{dim, Keys}]
        ].

help() ->
    [
        [{bold, "weir top"}],
        [],
        [{plain, "q ctrl-C     quit; nothing stays on the node"}],
        [{plain, "j k arrows   select another process"}],
        [{plain, "enter i      look closely at the selected one, and back"}],
        [{plain, "m            there: show its oldest messages, which it copies for that"}],
        [{plain, "s            sort by queue, core, growth, waiters"}],
        [{plain, "p            pin the selected one to the top, or unpin it"}],
        [{plain, "space        pause, and go on"}],
        [{plain, "?            this help, and back"}],
        [],
        [{plain, "queue        messages in its mailbox"}],
        [{plain, "+/s          by how many that grows in a second"}],
        [{plain, "core         the share of a core that it works or wants to"}],
        [{plain, "waiters      processes in a call to it, estimated"}],
        [{plain, "last column  the function in which it is found most often"}],
        [],
        [{dim, "The guide is docs/guide/watch.md."}]
    ].

%% ---------------------------------------------------------------- words and numbers

%% A process by its name and pid.
who(Pid, #{suspects := Suspects} = Snapshot) ->
    who(Pid, hd([Name || #{pid := Other, name := Name} <- Suspects, Other =:= Pid] ++ [undefined]), Snapshot).

who(Pid, undefined, #{node := Node}) -> weir_watch_json:pid(Pid, Node);
who(Pid, Name, #{node := Node}) -> [text(Name), " ", weir_watch_json:pid(Pid, Node)].

local(Pid) -> weir_watch_json:pid(Pid, node(Pid)).

text(Atom) -> atom_to_binary(Atom).

call({M, F, A}) -> [text(M), ":", text(F), "/", integer_to_list(A)].

rows(Sketch) -> string:split(Sketch, "\n", all).

number(N) when N < 0 -> [$-, number(-N)];
number(N) when N < 1000 -> integer_to_list(N);
number(N) -> [number(N div 1000), $,, io_lib:format("~3..0b", [N rem 1000])].

percent(Share) -> [integer_to_list(round(Share * 100)), " %"].

bytes(N) when N < 10_000 -> [integer_to_list(N), " B"];
bytes(N) when N < 10_000_000 -> [integer_to_list(N div 1000), " kB"];
bytes(N) when N < 10_000_000_000 -> [integer_to_list(N div 1_000_000), " MB"];
bytes(N) -> [integer_to_list(N div 1_000_000_000), " GB"].

duration(Ms) when Ms < 120_000 -> [integer_to_list(Ms div 1000), " s"];
duration(Ms) when Ms < 7200_000 -> [integer_to_list(Ms div 60_000), " min"];
duration(Ms) when Ms < 172800_000 -> [integer_to_list(Ms div 3600_000), " h"];
duration(Ms) -> [integer_to_list(Ms div 86400_000), " d"].

load(Share) when Share > 0.9 -> bad;
load(Share) when Share > 0.7 -> warn;
load(_Share) -> good.

%% ---------------------------------------------------------------- drawing

%% The schedulers' shares in at most so many characters: where there are more, the mean of some stands for them.
bars(Shares, Width, View) ->
    Each = (length(Shares) + Width - 1) div Width,
    [level(Share, 1, View) || Share <- means(Shares, max(1, Each))].

means([], _N) ->
    [];
means(Shares, N) ->
    {Some, Rest} = lists:split(min(N, length(Shares)), Shares),
    [lists:sum(Some) / length(Some) | means(Rest, N)].

%% The last ones, against the largest.
spark(Queues, Width, View) ->
    Last = lists:nthtail(max(0, length(Queues) - Width), Queues),
    Top = lists:max([1 | Last]),
    [level(Queue, Top, View) || Queue <- Last].

level(Value, Top, #{unicode := true}) -> 16#2581 + step(Value, Top, 7);
level(Value, Top, _View) -> lists:nth(1 + step(Value, Top, 7), "_.:-=+*#").

step(Value, Top, Steps) -> max(0, min(Steps, ceil(Value / Top * Steps))).

rule(#{unicode := true}) -> 16#2500;
rule(_View) -> $-.

%% Padded or cut to the width, of characters that are safe already or ours.
pad(Chars, Width) ->
    Cut = cut(lists:flatten([unicode:characters_to_list([Chars])]), Width),
    [Cut, lists:duplicate(max(0, Width - width(Cut)), $\s)].

lead(Chars, Width) -> string:pad(lists:flatten(Chars), Width, leading).

%% Text in lines of at most that many columns, broken between words where that can be.
wrapped(Style, First, Text, Columns) ->
    Indent = lists:duplicate(length(lists:flatten(First)), $\s),
    Words = string:lexemes(chars(Text), " \n"),
    Room = max(1, Columns - length(Indent)),
    case fill(Words, Room, [], []) of
        [] -> [];
        [Line | Lines] -> [[{dim, First}, {Style, Line}] | [[{dim, Indent}, {Style, Each}] || Each <- Lines]]
    end.

fill([], _Room, [], Lines) -> lists:reverse(Lines);
fill([], _Room, Line, Lines) -> lists:reverse([Line | Lines]);
fill([Word | Words], Room, [], Lines) -> fill(Words, Room, Word, Lines);
fill([Word | Words], Room, Line, Lines) ->
    case Line ++ " " ++ Word of
        Longer when length(Longer) =< Room -> fill(Words, Room, Longer, Lines);
        _ -> fill(Words, Room, Word, [Line | Lines])
    end.

-spec line([piece()], non_neg_integer(), view()) -> iodata().
%% What is cut off is not coloured. Where a line ends at the edge, erasing behind it would take its last character.
line([{Style, Text} | Pieces], Room, View) when Room > 0 ->
    Cut = cut(safe(Text, View), Room),
    [styled(Style, utf8(Cut), View) | line(Pieces, Room - width(Cut), View)];
line(_, Room, _View) when Room > 0 ->
    "\e[K";
line(_, _Room, _View) ->
    [].

styled(Style, Text, #{color := true}) when Style =/= plain, Text =/= <<>> -> ["\e[", code(Style), "m", Text, "\e[0m"];
styled(_Style, Text, _View) -> Text.

code(dim) -> "2";
code(bold) -> "1";
code(good) -> "32";
code(warn) -> "33";
code(bad) -> "1;31";
code(mark) -> "7".

utf8(Chars) -> unicode:characters_to_binary(Chars).

%% Characters of text from anywhere, of a width that is known.
safe(Text, View) ->
    Unicode = maps:get(unicode, View, false),
    [safe_char(C, Unicode) || C <- chars(Text)].

safe_char(C, _) when C >= 16#20, C =< 16#7E -> C;
safe_char($\t, _) -> $\s;
safe_char(C, true) when ?NARROW(C); ?WIDE(C) -> C;
safe_char(_, _) -> $?.

%% What is no UTF-8 is taken byte by byte.
chars(Text) ->
    case unicode:characters_to_list(Text) of
        Chars when is_list(Chars) -> Chars;
        {_, Chars, Rest} -> Chars ++ chars(rest(Rest))
    end.

rest(Rest) ->
    case iolist_to_binary(Rest) of
        <<_, More/binary>> -> ["?", More];
        <<>> -> []
    end.

width(Chars) -> lists:sum([char_width(C) || C <- Chars]).

char_width(C) when ?WIDE(C) -> 2;
char_width(_) -> 1.

cut([C | Chars], Room) when Room > 0 ->
    case char_width(C) of
        Width when Width =< Room -> [C | cut(Chars, Room - Width)];
        _ -> []
    end;
cut(_, _Room) ->
    [].
