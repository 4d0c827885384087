%% A node that logs under load is killed with SIGKILL, again and again, each time at a random moment, ten times with the
%% same file.
%%
%% The node (weir_log_kill_victim) tells of each entry that was acknowledged over a socket. What has arrived here was
%% acknowledged before the kill; what the kernel had taken by then arrives too. Then the file is read by a reader of
%% this suite's own, and again after the log has opened it once more.
%%
%% WEIR_LOG_KILLS=100 is how many moments there are for each case, WEIR_LOG_KILL_CALLERS=1000 how many processes log.
-module(weir_log_kill_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([accepted/1, written/1, synced/1, window/1, shards/1]).

-define(KILLS, 4).
-define(CALLERS, 300).
%% The moment is when so many acknowledgements have been told, at most.
-define(LATEST, 20_000).
%% So many lives have the same file.
-define(SAME_FILE, 10).
-define(TIMEOUT, 60_000).

all() -> [accepted, written, synced, window, shards].

suite() -> [{timetrap, {minutes, 30}}].

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_log),
    [{started, Started} | Config].

end_per_suite(Config) ->
    [ok = application:stop(Each) || Each <- lists:reverse(?config(started, Config))].

%% Accepted entries may be lost with the node: those that are there are whole and in their order.
accepted(Config) -> run(Config, "accepted", 1, fun(_Told, _Found) -> ok end).

written(Config) -> run(Config, "written", 1, fun nothing_lost/2).

synced(Config) -> run(Config, "synced", 1, fun nothing_lost/2).

window(Config) -> run(Config, "window", 1, fun(_Told, _Found) -> ok end).

shards(Config) -> run(Config, "written", 3, fun nothing_lost/2).

nothing_lost(Told, Found) ->
    Both = [{Caller, N, maps:get(Caller, Found, 0)} || {Caller, N} <- maps:to_list(Told)],
    Missing = [Each || {_, N, There} = Each <- Both, N > There],
    ?assertEqual([], Missing).

run(Config, Ack, Shards, Check) ->
    Seed = {erlang:phash2(make_ref()), erlang:phash2(node()), os:system_time()},
    _ = rand:seed(exsss, Seed),
    ct:pal("seed: ~p", [Seed]),
    lists:foldl(
        fun(Life, Last) ->
            Name = lists:concat([Ack, "_", Shards, "_", (Life - 1) div ?SAME_FILE, ".log"]),
            File = filename:join(?config(priv_dir, Config), Name),
            Files = files(File, Shards),
            Before =
                case filelib:is_file(hd(Files)) of
                    true -> Last;
                    false -> [[] || _ <- Files]
                end,
            Told = live(File, Ack, Shards, Life, rand:uniform(?LATEST)),
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
            ct:log("life ~b: told ~b, in the files ~w, torn bytes ~w", [
                Life, lists:sum(maps:values(Told)), [length(Each) || Each <- Entries], [Torn || {_, Torn} <- Parsed]
            ]),
            Entries
        end,
        none,
        lists:seq(1, number("WEIR_LOG_KILLS", ?KILLS))
    ),
    ok.

files(File, 1) -> [File];
files(File, Shards) -> [lists:concat([File, ".", N]) || N <- lists:seq(1, Shards)].

number(Variable, Default) -> list_to_integer(os:getenv(Variable, integer_to_list(Default))).

open_and_close(File, Shards) ->
    {ok, Log} = weir_log:open(?MODULE, #{file => File, shards => Shards, frame => true}),
    weir_log:close(Log).

%% ---------------------------------------------------------------- one life

%% Returns how many entries of each caller were told.
live(File, Ack, Shards, Life, Moment) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    Callers = number("WEIR_LOG_KILL_CALLERS", ?CALLERS),
    Node = start([File, Ack, Shards, Life, Callers, Port]),
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
    Modules = [weir_log, weir_server, weir_log_kill_victim],
    Paths = lists:usort([filename:dirname(code:which(Module)) || Module <- Modules]),
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
