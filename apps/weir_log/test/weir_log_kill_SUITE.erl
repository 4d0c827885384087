%% A node that logs under load is killed with SIGKILL, again and again, each time at a random moment, ten times with the
%% same file if its entries are framed. Without frames nothing is cut when a log is opened, so a torn line would stay:
%% each life has a file of its own. That is so for weir_log_h too, whose callers have their event acknowledged when
%% logger returns.
%%
%% The node (weir_log_kill_victim) tells of each entry that was acknowledged over a socket. What has arrived here was
%% acknowledged before the kill; what the kernel had taken by then arrives too. Then the file is read by a reader of
%% this suite's own, and again after the log has opened it once more.
%%
%% To run it at a hundred moments for each case, which takes some minutes, by a thousand processes that log:
%%
%%   WEIR_LOG_KILLS=100 WEIR_LOG_KILL_CALLERS=1000 make test SUITE=weir_log_kill
%%
%% By default there are few of each. The log of a case says of each life how many entries were told, how many are in the
%% files, and how many bytes were torn; the last line is the sum.
-module(weir_log_kill_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([accepted/1, written/1, synced/1, window/1, shards/1]).
-export([lines_written/1, lines_synced/1, handler_window/1, handler_written/1, handler_synced/1]).

-define(KILLS, 4).
-define(CALLERS, 300).
%% The moment is when so many acknowledgements have been told, at most.
-define(LATEST, 20_000).
%% So many lives have the same file.
-define(SAME_FILE, 10).
-define(TIMEOUT, 60_000).

all() ->
    [
        accepted,
        written,
        synced,
        window,
        shards,
        lines_written,
        lines_synced,
        handler_window,
        handler_written,
        handler_synced
    ].

suite() -> [{timetrap, {minutes, 30}}].

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

shards(Config) -> run(Config, written, 3, fun nothing_lost/2).

lines_written(Config) -> run_lines(Config, lines_written, fun nothing_lost/2).

lines_synced(Config) -> run_lines(Config, lines_synced, fun nothing_lost/2).

handler_window(Config) -> run_lines(Config, handler_window, fun anything/2).

handler_written(Config) -> run_lines(Config, handler_written, fun nothing_lost/2).

handler_synced(Config) -> run_lines(Config, handler_synced, fun nothing_lost/2).

anything(_Told, _Found) -> ok.

nothing_lost(Told, Found) ->
    Both = [{Caller, N, maps:get(Caller, Found, 0)} || {Caller, N} <- maps:to_list(Told)],
    Missing = [Each || {_, N, There} = Each <- Both, N > There],
    ?assertEqual([], Missing).

run(Config, How, Shards, Check) ->
    ok = seed(),
    {Sums, _} = lists:mapfoldl(
        fun(Life, Last) ->
            Name = lists:concat([How, "_", Shards, "_", (Life - 1) div ?SAME_FILE, ".log"]),
            File = filename:join(?config(priv_dir, Config), Name),
            Files = files(File, Shards),
            Before =
                case filelib:is_file(hd(Files)) of
                    true -> Last;
                    false -> [[] || _ <- Files]
                end,
            Told = live(File, How, Shards, Life, rand:uniform(?LATEST)),
            Parsed = [parse(Each) || Each <- Files],
            Entries = [Entries || {Entries, _} <- Parsed],
            ok = Check(Told, in_order(Life, Entries)),
            %% What was there before is there still, and first.
            [?assert(lists:prefix(Old, New)) || {Old, New} <- lists:zip(Before, Entries)],
            ok = open_and_close(File, Shards),
            %% Now there are whole entries, the same ones, and nothing else.
            [
                begin
                    ?assertEqual({Whole, 0}, parse(Each)),
                    {ok, Folded, #{cut_bytes := 0}} =
                        weir_log:fold(fun(_, Entry, Acc) -> [Entry | Acc] end, [], Each),
                    ?assertEqual(Whole, lists:reverse(Folded))
                end
             || {Each, Whole} <- lists:zip(Files, Entries)
            ],
            Found = total(Entries) - total(Before),
            {outcome(Life, Told, Found, lists:sum([Torn || {_, Torn} <- Parsed])), Entries}
        end,
        none,
        lists:seq(1, number("WEIR_LOG_KILLS", ?KILLS))
    ),
    sum(How, Shards, Sums).

run_lines(Config, How, Check) ->
    ok = seed(),
    Sums = [
        begin
            File = filename:join(?config(priv_dir, Config), lists:concat([How, "_", Life, ".log"])),
            Told = live(File, How, 1, Life, rand:uniform(?LATEST)),
            {Entries, Torn} = parse_lines(File),
            ok = Check(Told, in_order(Life, [Entries])),
            ok = file:delete(File),
            outcome(Life, Told, length(Entries), Torn)
        end
     || Life <- lists:seq(1, number("WEIR_LOG_KILLS", ?KILLS))
    ],
    sum(How, 1, Sums).

seed() ->
    Seed = {erlang:phash2(make_ref()), erlang:phash2(node()), os:system_time()},
    _ = rand:seed(exsss, Seed),
    ct:pal("seed: ~p", [Seed]).

total(Files) -> lists:sum([length(Entries) || Entries <- Files]).

outcome(Life, Told, Found, Torn) ->
    Sum = lists:sum(maps:values(Told)),
    ct:log("life ~b: told ~b, in the files ~b, torn bytes ~b", [Life, Sum, Found, Torn]),
    {Sum, Found, Torn}.

sum(How, Shards, Sums) ->
    {Told, Found, Torn} = lists:unzip3(Sums),
    ct:log("~s in ~b shards: ~b lives, told ~b, in the files ~b, ~b lives with torn entries, torn bytes ~b", [
        How, Shards, length(Sums), lists:sum(Told), lists:sum(Found), length([N || N <- Torn, N > 0]), lists:sum(Torn)
    ]).

files(File, 1) -> [File];
files(File, Shards) -> [lists:concat([File, ".shard", N]) || N <- lists:seq(1, Shards)].

number(Variable, Default) -> list_to_integer(os:getenv(Variable, integer_to_list(Default))).

open_and_close(File, Shards) ->
    {ok, Log} = weir_log:open(?MODULE, #{file => File, shards => Shards, frame => true}),
    weir_log:close(Log).

%% ---------------------------------------------------------------- one life

%% Returns how many entries of each caller were told.
live(File, How, Shards, Life, Moment) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    Callers = number("WEIR_LOG_KILL_CALLERS", ?CALLERS),
    Node = start([File, How, Shards, Life, Callers, Port]),
    {ok, Socket} = gen_tcp:accept(Listen, ?TIMEOUT),
    {Rest, Some} = read_until(Moment, Socket, <<>>, #{}, 0),
    {os_pid, OsPid} = erlang:port_info(Node, os_pid),
    "" = os:cmd(lists:concat(["kill -KILL ", OsPid])),
    Told = read_rest(Socket, Rest, Some),
    receive
        {Node, {exit_status, Status}} -> ?assertEqual(128 + 9, Status)
    after ?TIMEOUT -> error(not_killed)
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
    case gen_tcp:recv(Socket, 0, ?TIMEOUT) of
        {ok, Data} ->
            {NewRest, NewTold, More} = records(<<Rest/binary, Data/binary>>, Told, 0),
            read_until(Moment, Socket, NewRest, NewTold, Count + More);
        {error, Reason} ->
            error({victim, Reason})
    end.

%% The last record may be cut: it was not told.
read_rest(Socket, Rest, Told) ->
    case gen_tcp:recv(Socket, 0, ?TIMEOUT) of
        {ok, Data} ->
            {NewRest, NewTold, _} = records(<<Rest/binary, Data/binary>>, Told, 0),
            read_rest(Socket, NewRest, NewTold);
        {error, closed} ->
            Told
    end.

%% Each caller's entries are acknowledged one after the other.
records(<<Caller:32, N:64, Rest/binary>>, Told, Count) ->
    ?assertEqual(N, maps:get(Caller, Told, 0) + 1),
    records(Rest, Told#{Caller => N}, Count + 1);
records(Rest, Told, Count) ->
    {Rest, Told, Count}.

%% ---------------------------------------------------------------- what is in a file

%% The whole entries from the beginning, and how many bytes are behind them.
parse(File) ->
    {ok, Bytes} = file:read_file(File),
    parse(Bytes, []).

parse(<<A, B, C, D, Crc:32, Rest/binary>> = Bytes, Entries) when A bxor B bxor C bxor D =:= 16#5a ->
    Length = (B * 256 + C) * 256 + D,
    case Rest of
        <<Framed:Length/binary, More/binary>> when Length >= 8 ->
            case erlang:crc32(Framed) of
                Crc ->
                    <<_Microseconds:64, Entry/binary>> = Framed,
                    parse(More, [Entry | Entries]);
                _ ->
                    {lists:reverse(Entries), byte_size(Bytes)}
            end;
        _ ->
            {lists:reverse(Entries), byte_size(Bytes)}
    end;
parse(Bytes, Entries) ->
    {lists:reverse(Entries), byte_size(Bytes)}.

%% The whole lines from the beginning, and how many bytes are behind them.
parse_lines(File) ->
    {ok, Bytes} = file:read_file(File),
    Lines = binary:split(Bytes, <<"\n">>, [global]),
    {[binary:decode_hex(Line) || Line <- lists:droplast(Lines)], byte_size(lists:last(Lines))}.

%% The last number of each caller of a life, if all before it are there once and in their order.
in_order(Life, Files) ->
    lists:foldl(
        fun(<<EntryLife:32, Caller:32, N:64, Padding/binary>>, Last) ->
            ?assertEqual(weir_log_kill_victim:padding(Caller, N), Padding),
            case EntryLife of
                Life ->
                    ?assertEqual(N, maps:get(Caller, Last, 0) + 1),
                    Last#{Caller => N};
                _ ->
                    Last
            end
        end,
        #{},
        lists:append(Files)
    ).
