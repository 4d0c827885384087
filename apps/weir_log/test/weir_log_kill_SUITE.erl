%% A node that logs under load is killed with SIGKILL, again and again, each time at a random moment, ten times with the
%% same files, which the log (or the handler of logger) is opened on and closed after each kill.
%%
%% The node (weir_log_kill_victim) tells of each entry that was acknowledged over a socket. What has arrived here was
%% acknowledged before the kill; what the kernel had taken by then arrives too. Then the files are read by a reader of
%% this suite's own, rotated and compressed ones too:
%%
%%   - What was acknowledged is there, once, in its order; what was there before is there still, byte by byte.
%%   - Opening cuts a torn frame, ends a torn line, and changes nothing else. A file that a kill has left without one
%%     whole frame is set aside whole.
%%   - Each line is an entry or the beginning of one, and there are no more of these than there were kills. A glued
%%     line, the beginning of an entry with another entry behind it, is neither.
%%   - Cleaning up leaves the files that the log knows, and no others.
%%
%% Few kills tear an entry: the kernel seldom breaks a write off. So the suite itself appends the beginning of one to a
%% file that a kill has left whole: entries that nobody was told of may end anywhere.
%%
%% With LONG=1 the suite kills each kind of log at fifty moments, while a thousand processes log. That takes half an
%% hour. Each moment is a random number of acknowledgements. The log of a case has a line for each life: the numbers of
%% acknowledged entries, of entries in the files, and of torn entries. The last line is the sum.
-module(weir_log_kill_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(ID, weir_log_kill).
%% Number of lives that have the same files.
-define(SAME_FILES, 10).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_log),
    [{started, Started} | Config].

end_per_suite(Config) ->
    [ok = application:stop(Each) || Each <- lists:reverse(?config(started, Config))].

%% Accepted entries may be lost with the node: those that are there are whole and in their order.
accepted(Config) -> run(Config, accepted, 1, fun anything/2).

written(Config) -> run(Config, written, 1, fun nothing_lost/2).

synced(Config) -> run(Config, synced, 1, fun nothing_lost/2).

window(Config) -> run(Config, window, 1, fun anything/2).

shards_written(Config) -> run_both(Config, written, [2, 3]).

shards_synced(Config) -> run_both(Config, synced, [2, 3]).

lines_written(Config) -> run(Config, lines_written, 1, fun nothing_lost/2).

lines_synced(Config) -> run(Config, lines_synced, 1, fun nothing_lost/2).

handler_window(Config) -> run(Config, handler_window, 1, fun anything/2).

handler_written(Config) -> run(Config, handler_written, 1, fun nothing_lost/2).

handler_synced(Config) -> run(Config, handler_synced, 1, fun nothing_lost/2).

rotating_written(Config) -> run_both(Config, rotating_written, [1, 2]).

rotating_synced(Config) -> run_both(Config, rotating_synced, [1, 2]).

rotating_lines(Config) -> run_both(Config, rotating_lines, [1, 2]).

anything(_Told, _Found) -> ok.

nothing_lost(Told, Found) ->
    Both = [{Caller, N, maps:get(Caller, Found, 0)} || {Caller, N} <- maps:to_list(Told)],
    Missing = [Each || {_, N, There} = Each <- Both, N > There],
    weir_kit:none(lost, Missing).

%% With one number of shards and with another, at the same time.
run_both(Config, How, Numbers) ->
    weir_kit:in_parallel([fun() -> run(Config, How, Shards, fun nothing_lost/2) end || Shards <- Numbers]).

run(Config, How, Shards, Check) ->
    ok = seed(),
    {Sums, _} = lists:mapfoldl(
        fun(Life, Last) ->
            Dir = lists:concat([How, "_", Shards, "_", (Life - 1) div ?SAME_FILES]),
            File = filename:join([?config(priv_dir, Config), Dir, "a.log"]),
            ok = filelib:ensure_dir(File),
            Kills = (Life - 1) rem ?SAME_FILES + 1,
            Before =
                case Kills of
                    1 -> lists:duplicate(Shards, <<>>);
                    _ -> Last
                end,
            life(File, How, Shards, Life, Kills, Check, Before)
        end,
        none,
        lists:seq(1, weir_kit:long(2, 50))
    ),
    sum(How, Shards, Sums).

%% `Before': all bytes of each shard after the life before. Returns those of now.
life(File, How, Shards, Life, Kills, Check, Before) ->
    {Kind, Options} = weir_log_kill_victim:options(How),
    Format = format(Options),
    Told = live(File, How, Shards, Life, rand:uniform(weir_kit:long(5_000, 20_000))),
    Left = [read_current(Each) || Each <- files(File, Shards)],
    Killed = [tear(Format, Each, Bytes) || {Each, Bytes} <- lists:zip(files(File, Shards), Left)],
    Parts = filelib:wildcard(File ++ "*.part*"),
    History = reopen(Kind, Options#{file => File, shards => Shards}, files(File, Shards)),
    %% Cleaning up has left nothing.
    ok = weir_kit:same(files, lists:sort(lists:append(History)), lists:sort(filelib:wildcard(File ++ "*"))),
    Opened = [[weir_log_file_lib:contents(Each) || Each <- Files] || Files <- History],
    [ok = check_opened(Format, Torn, lists:reverse(Now)) || {Torn, Now} <- lists:zip(Killed, Opened)],
    %% What was there before is there still, and first.
    After = [iolist_to_binary(Now) || Now <- Opened],
    Kept = [binary:longest_common_prefix([Old, New]) || {Old, New} <- lists:zip(Before, After)],
    ok = weir_kit:same(kept_bytes, [byte_size(Old) || Old <- Before], Kept),
    Parsed = [parse(Format, Bytes) || Bytes <- lists:append(Opened)],
    Entries = lists:append([Each || {Each, _, _} <- Parsed]),
    Beginnings = lists:sum([N || {_, N, _} <- Parsed]),
    Glued = lists:sum([N || {_, _, N} <- Parsed]),
    %% A kill tears no more than one entry of each shard.
    Beginnings =< Kills * Shards orelse weir_kit:fault({torn, Beginnings, Kills * Shards}),
    ok = weir_kit:same(glued, 0, Glued),
    ok = Check(Told, in_order(Life, Entries)),
    _ = Format =:= frame andalso check_fold(lists:append(History), lists:append(Opened)),
    Outcome = #{
        told => lists:sum(maps:values(Told)),
        found => length([Life || <<Of:32, _/binary>> <- Entries, Of =:= Life]),
        torn => length([Bytes || Bytes <- Left, not is_whole(Format, Bytes)]),
        rotated => length(lists:append(History)) - Shards,
        compressing => length(Parts)
    },
    ct:log("life ~b: ~0p", [Life, Outcome]),
    {Outcome, After}.

format(#{frame := true}) -> frame;
format(_) -> lines.

%% Between the rename and the opening of a rotation there is none.
read_current(File) ->
    case file:read_file(File) of
        {ok, Bytes} -> Bytes;
        {error, enoent} -> <<>>
    end.

%% The first entry's beginning.
tear(Format, File, Bytes) ->
    case is_whole(Format, Bytes) andalso first(Format, Bytes) of
        Size when is_integer(Size), Size > 1 ->
            Part = binary:part(Bytes, 0, rand:uniform(Size - 1)),
            ok = file:write_file(File, Part, [append]),
            <<Bytes/binary, Part/binary>>;
        _ ->
            Bytes
    end.

first(_Format, <<>>) -> 0;
first(frame, <<_, Length:24, _/binary>>) -> 8 + Length;
first(lines, Bytes) -> element(1, binary:match(Bytes, <<"\n">>)).

%% Opens the files as the next life would, and closes them. Returns those of each shard.
reopen(handler, Options, Files) ->
    Handler = #{config => Options, filter_default => stop},
    ok = logger:add_handler(?ID, weir_log_h, Handler),
    ok = logger:remove_handler(?ID),
    [[File] || File <- Files];
reopen(_LogOrAlog, Options, Files) ->
    {ok, Log} = weir_log:open(self(), Options),
    [ok = weir_log_file_lib:cleaned(File) || File <- Files],
    {ok, History} = weir_log:history(Log),
    ok = weir_log:close(Log),
    [[unicode:characters_to_list(Path) || Path <- Paths] || {shard, Paths} <- History].

%% What opening may make of the bytes that a kill has left in the current file: the latest file first.
check_opened(frame, Killed, [Left | Older]) ->
    case whole(Killed) of
        <<>> when Killed =/= <<>> ->
            %% A file without a whole frame may belong to another program.
            weir_kit:same(set_aside, {<<>>, Killed}, {Left, hd(Older)});
        Whole ->
            weir_kit:same(cut, Whole, Left)
    end;
check_opened(lines, Killed, [Left | _]) ->
    Ended =
        case is_whole(lines, Killed) of
            true -> Killed;
            false -> <<Killed/binary, "\n">>
        end,
    weir_kit:same(ended, Ended, Left).

%% The log's own reader finds the same.
check_fold(Files, Contents) ->
    [
        begin
            {Entries, _, 0} = parse(frame, Bytes),
            {ok, Folded, _} = weir_log:fold(fun(_, Entry, Acc) -> [Entry | Acc] end, [], File),
            ok = weir_kit:same(fold, Entries, lists:reverse(Folded))
        end
     || {File, Bytes} <- lists:zip(Files, Contents)
    ].

seed() ->
    Seed = {erlang:phash2(make_ref()), erlang:phash2(node()), os:system_time()},
    _ = rand:seed(exsss, Seed),
    ct:pal("seed: ~p", [Seed]).

sum(How, Shards, Outcomes) ->
    Sum = fun(Key) -> lists:sum([maps:get(Key, Each) || Each <- Outcomes]) end,
    Lives = fun(Key) -> length([N || #{Key := N} <- Outcomes, N > 0]) end,
    Text =
        "sum of ~s, shards: ~b: ~b kills, acknowledged ~b, in the files ~b, ~b kills tore an entry, "
        "~b kills with rotated files, ~b while one was compressed",
    Counts = [Sum(told), Sum(found), Lives(torn), Lives(rotated), Lives(compressing)],
    ct:log(Text, [How, Shards, length(Outcomes) | Counts]).

files(File, 1) -> [File];
files(File, Shards) -> [lists:concat([File, ".shard", N]) || N <- lists:seq(1, Shards)].

%% ---------------------------------------------------------------- one life

%% Returns how many entries of each caller were told.
live(File, How, Shards, Life, Moment) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    Callers = weir_kit:long(300, 1000),
    Node = start([File, How, Shards, Life, Callers, Port]),
    {ok, Socket} = gen_tcp:accept(Listen, weir_kit:wait_ms()),
    {Rest, Some} = read_until(Moment, Socket, <<>>, #{}, 0),
    {os_pid, OsPid} = erlang:port_info(Node, os_pid),
    ok = weir_kit:signal("KILL", OsPid),
    Told = read_rest(Socket, Rest, Some),
    receive
        {Node, {exit_status, Status}} -> ?assertEqual(128 + 9, Status)
    after weir_kit:wait_ms() -> error(not_killed)
    end,
    ok = gen_tcp:close(Socket),
    ok = gen_tcp:close(Listen),
    Told.

start(Arguments) ->
    Erl = filename:join([code:root_dir(), "bin", "erl"]),
    Paths = weir_log_test_lib:code_paths([weir_log, weir_server, weir_log_kill_victim]),
    open_port({spawn_executable, Erl}, [
        {args,
            ["-noshell", "-noinput", "-pa"] ++ Paths ++
                ["-run", "weir_log_kill_victim", "main" | [lists:concat([Each]) || Each <- Arguments]]},
        exit_status,
        hide
    ]).

read_until(Moment, _Socket, Rest, Told, Count) when Count >= Moment ->
    {Rest, Told};
read_until(Moment, Socket, Rest, Told, Count) ->
    case gen_tcp:recv(Socket, 0, weir_kit:wait_ms()) of
        {ok, Data} ->
            {NewRest, NewTold, More} = records(<<Rest/binary, Data/binary>>, Told, 0),
            read_until(Moment, Socket, NewRest, NewTold, Count + More);
        {error, Reason} ->
            error({victim, Reason})
    end.

%% The last record may be cut: it was not told.
read_rest(Socket, Rest, Told) ->
    case gen_tcp:recv(Socket, 0, weir_kit:wait_ms()) of
        {ok, Data} ->
            {NewRest, NewTold, _} = records(<<Rest/binary, Data/binary>>, Told, 0),
            read_rest(Socket, NewRest, NewTold);
        {error, closed} ->
            Told
    end.

%% Each caller's entries are acknowledged one after the other.
records(<<Caller:32, N:64, Rest/binary>>, Told, Count) ->
    ok = weir_kit:same(acknowledged, maps:get(Caller, Told, 0) + 1, N),
    records(Rest, Told#{Caller => N}, Count + 1);
records(Rest, Told, Count) ->
    {Rest, Told, Count}.

%% ---------------------------------------------------------------- what is in a file

%% The whole entries; how many there are beginnings of; how many have such a beginning glued to them.
parse(frame, Bytes) ->
    {Entries, Behind} = frames(Bytes, []),
    {Entries, min(1, Behind), 0};
parse(lines, Bytes) ->
    Lines = binary:split(Bytes, <<"\n">>, [global]),
    %% Behind the last newline is either nothing, or what was torn.
    {Whole, [Last]} = lists:split(length(Lines) - 1, Lines),
    Sorted = [line(Line) || Line <- Whole] ++ [{torn, none} || Last =/= <<>>],
    {[Entry || {_, Entry} <- Sorted, Entry =/= none], count(torn, Sorted), count(glued, Sorted)}.

count(What, Sorted) -> length([What || {Each, _} <- Sorted, Each =:= What]).

is_whole(frame, Bytes) -> whole(Bytes) =:= Bytes;
is_whole(lines, <<>>) -> true;
is_whole(lines, Bytes) -> binary:last(Bytes) =:= $\n.

whole(Bytes) ->
    {_, Behind} = frames(Bytes, []),
    binary:part(Bytes, 0, byte_size(Bytes) - Behind).

frames(<<A, B, C, D, Crc:32, Rest/binary>> = Bytes, Entries) when A bxor B bxor C bxor D =:= 16#5a ->
    Length = (B * 256 + C) * 256 + D,
    case Rest of
        <<Framed:Length/binary, More/binary>> when Length >= 8 ->
            case erlang:crc32(Framed) of
                Crc ->
                    <<_Microseconds:64, Entry/binary>> = Framed,
                    frames(More, [Entry | Entries]);
                _ ->
                    {lists:reverse(Entries), byte_size(Bytes)}
            end;
        _ ->
            {lists:reverse(Entries), byte_size(Bytes)}
    end;
frames(Bytes, Entries) ->
    {lists:reverse(Entries), byte_size(Bytes)}.

%% A glued line has the whole one at its end.
line(Line) ->
    case is_entry(Line) of
        true ->
            {whole, binary:decode_hex(Line)};
        false ->
            Ends = [binary:part(Line, byte_size(Line), -Size) || Size <- lists:seq(1, byte_size(Line))],
            case [End || End <- Ends, is_entry(End)] of
                [] ->
                    is_beginning(Line) orelse weir_kit:fault({no_entry, Line}),
                    {torn, none};
                [End | _] ->
                    {glued, binary:decode_hex(End)}
            end
    end.

is_entry(Line) -> is_hex(Line) andalso is_padded(binary:decode_hex(Line)).

is_hex(Line) ->
    byte_size(Line) rem 2 =:= 0 andalso
        lists:all(fun(C) -> C >= $0 andalso C =< $9 orelse C >= $A andalso C =< $F end, binary_to_list(Line)).

is_padded(<<_Life:32, Caller:32, N:64, Padding/binary>>) -> Padding =:= weir_log_kill_victim:padding(Caller, N);
is_padded(_) -> false.

%% Of any entry, as far as that can be told. No kill leaves an empty line.
is_beginning(Line) ->
    Even = binary:part(Line, 0, byte_size(Line) - byte_size(Line) rem 2),
    byte_size(Line) > 0 andalso is_hex(Even) andalso
        case binary:decode_hex(Even) of
            <<_Life:32, Caller:32, N:64, Part/binary>> ->
                Padding = weir_log_kill_victim:padding(Caller, N),
                byte_size(Part) =:= binary:longest_common_prefix([Part, Padding]);
            Short ->
                byte_size(Short) < 16
        end.

%% The last number of each caller of a life, if all before it are there once and in their order.
in_order(Life, Entries) ->
    lists:foldl(
        fun(<<EntryLife:32, Caller:32, N:64, Padding/binary>>, Last) ->
            ok = weir_kit:same(padding, weir_log_kill_victim:padding(Caller, N), Padding),
            case EntryLife of
                Life ->
                    ok = weir_kit:same(order, maps:get(Caller, Last, 0) + 1, N),
                    Last#{Caller => N};
                _ ->
                    Last
            end
        end,
        #{},
        Entries
    ).
