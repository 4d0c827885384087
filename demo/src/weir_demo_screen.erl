%% @doc What the demo prints: lines of at most 80 columns, and on a terminal a bar that moves while something runs.
%%
%% Whether standard output is a terminal is what the environment variable `WEIR_DEMO_TERMINAL' says (set by the
%% Makefile, which asks the shell): a node without a shell cannot know on every OTP. Elsewhere a line tells what runs.
-module(weir_demo_screen).

-export([title/2, say/1, say/2, watch/4, promise/1, wrap/3, bar/3]).

-define(WIDTH, 79).
-define(BAR_WIDTH, 24).
-define(EVERY_MS, 100).
-define(INDENT, "   ").

%% @doc Prints the title of a section behind an empty line.
-spec title(pos_integer(), string()) -> ok.
title(I, Title) ->
    {Bold, Plain} =
        case is_terminal() of
            true -> {"\e[1m", "\e[0m"};
            false -> {"", ""}
        end,
    io:format("~n~ts~b  ~ts~ts~n", [Bold, I, Title, Plain]).

%% @doc Prints a paragraph.
-spec say(iodata()) -> ok.
say(Text) -> say("", Text).

%% @doc Prints a paragraph behind what its first line starts with; the others are indented by as much.
-spec say(First :: string(), iodata()) -> ok.
say(First, Text) ->
    io:format("~ts~n", [lists:join($\n, wrap(First, Text, ?WIDTH))]).

%% @doc The lines of a paragraph: broken at blanks, and a word that is too long is cut. Pure.
-spec wrap(First :: string(), iodata(), Width :: pos_integer()) -> [string(), ...].
wrap(First, Text, Width) ->
    Indent = lists:duplicate(length(First), $\s),
    Room = Width - length(First),
    Words = [string:slice(Word, 0, Room) || Word <- string:lexemes(unicode:characters_to_list(Text), " \n")],
    [Head | Tail] = lines(Words, Room),
    [First ++ Head | [Indent ++ Line || Line <- Tail]].

lines([], _Room) -> [""];
lines([Word | Words], Room) -> lines(Words, Word, Room).

lines([], Line, _Room) ->
    [Line];
lines([Word | Words], Line, Room) ->
    case length(Line) + 1 + length(Word) =< Room of
        true -> lines(Words, Line ++ [$\s | Word], Room);
        false -> [Line | lines(Words, Word, Room)]
    end.

%% @doc Runs the function, and shows meanwhile how much of `Total' is done. `Done' is called ten times a second in
%% another process.
-spec watch(Label :: iodata(), Total :: pos_integer(), Done :: fun(() -> number()), fun(() -> Result)) -> Result.
watch(Label, Total, Done, Work) ->
    case is_terminal() of
        false ->
            ok = say(?INDENT "... ", Label),
            Work();
        true ->
            Text = string:slice(unicode:characters_to_list(Label), 0, ?WIDTH - ?BAR_WIDTH - 12),
            Drawer = spawn_link(fun() -> draw(Text, Total, Done) end),
            Result = Work(),
            true = unlink(Drawer),
            Monitor = monitor(process, Drawer),
            Drawer ! stop,
            receive
                {'DOWN', Monitor, process, Drawer, _} -> ok
            end,
            io:format("\r\e[K"),
            Result
    end.

is_terminal() -> os:getenv("WEIR_DEMO_TERMINAL", "") =/= "".

draw(Text, Total, Done) ->
    io:format("\r~ts~ts\e[K", [?INDENT, bar(Text, Done(), Total)]),
    receive
        stop -> ok
    after ?EVERY_MS -> draw(Text, Total, Done)
    end.

%% @doc A bar as text. Pure.
-spec bar(iodata(), Done :: number(), Total :: pos_integer()) -> iodata().
bar(Text, Done, Total) ->
    Share = max(0, min(1, Done / Total)),
    Full = round(Share * ?BAR_WIDTH),
    Bar = [lists:duplicate(Full, $#), lists:duplicate(?BAR_WIDTH - Full, $.)],
    [$[, Bar, io_lib:format("] ~3b% ", [floor(Share * 100)]), Text].

%% @doc Prints whether a promise was kept, with a tick or a cross (with words, where the locale has no such letters).
-spec promise(weir_demo_part:promise()) -> ok.
promise({What, IsKept}) -> say(?INDENT ++ mark(IsKept, is_unicode()) ++ " ", What).

mark(true, true) -> [16#2713];
mark(false, true) -> [16#2717];
mark(true, false) -> "ok:";
mark(false, false) -> "BROKEN:".

%% As the C library decides.
is_unicode() ->
    Set = [Value || Name <- ["LC_ALL", "LC_CTYPE", "LANG"], Value <- [os:getenv(Name, "")], Value =/= ""],
    case Set of
        [First | _] -> string:find(string:uppercase(First), "UTF") =/= nomatch;
        [] -> false
    end.
