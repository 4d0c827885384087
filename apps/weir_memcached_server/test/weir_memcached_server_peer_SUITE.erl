%% Tests and tools that others have written for memcached, on our server: memcached's own tests (which are in scope, and
%% why the others are not, stands in weir_memcached_server_peer_SUITE_data/tests), and libmemcached's memccapable and
%% memcaslap. Each is left out where it is not to be had.
-module(weir_memcached_server_peer_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

%% Most of them wait for a node to start, or for seconds to go by. Those that take longest begin.
-define(AT_ONCE, 10).
%% They store items that live for two seconds, and find them: one that has failed beside the others is run so often by
%% itself.
-define(ALONE, 2).
%% A test ends its server with SIGINT, which is ignored by whom a shell has started in the background.
-define(WITH_SIGINT, ["-e", "$SIG{INT} = 'DEFAULT'; exec @ARGV"]).
-define(LONGEST, ["item_size_max", "idle-timeout", "chunked-items", "getset", "cas", "issue_14"]).

all() -> weir_kit:cases(?MODULE).

init_per_suite(Config) -> weir_memcached_server_test:set_up(Config).

end_per_suite(Config) -> weir_memcached_server_test:tear_down(Config).

end_per_testcase(_Case, _Config) -> weir_memcached_server_test:stop_all().

%% ---------------------------------------------------------------- memcached's tests

memcached_tests(Config) ->
    Peer = filename:join([cache(), "weir/peers/memcached-tests"]),
    case {filelib:wildcard(filename:join(Peer, "t/*.t")), os:find_executable("perl")} of
        {[], _} ->
            {skip, "memcached's tests are not there (scripts/setup test)"};
        {_, false} ->
            {skip, "no perl"};
        {Files, Perl} ->
            Known = known(filename:join(?config(data_dir, Config), "tests")),
            ?assertEqual(lists:sort([filename:basename(File, ".t") || File <- Files]), lists:sort(maps:keys(Known))),
            Dir = directory(Peer, Config),
            Names = lists:sort([Name || {Name, "pass"} <- maps:to_list(Known)]) -- left_out(),
            Results = [alone(Result, ?ALONE, Perl, Dir) || Result <- run_all(Names, Perl, Dir)],
            Failed = [{Name, lists:last(string:lexemes(Output, "\n"))} || {Name, {Status, Output}} <- Results,
                Status =/= 0],
            [ct:pal("~s:~n~ts", [Name, Output]) || {Name, {Status, Output}} <- Results, Status =/= 0],
            ?assertEqual([], Failed),
            %% None of them has skipped all.
            ?assertEqual([], [Name || {Name, {0, Output}} <- Results, string:find(Output, "1..0") =/= nomatch])
    end.

%% Returns the tests that take longest, half of the time of all. Only the long form runs them.
left_out() -> weir_kit:long(lists:sublist(?LONGEST, 3), []).

known(File) ->
    {ok, Text} = file:read_file(File),
    maps:from_list([
        {Name, What}
     || Line <- string:lexemes(binary_to_list(Text), "\n"), hd(Line) =/= $#, [Name,
         What | _] <- [string:lexemes(Line, " ")]
    ]).

%% The tests start ./memcached-debug, in most cases with -U, which they do not use.
directory(Peer, Config) ->
    Dir = filename:join(?config(priv_dir, Config), "memcached"),
    ok = filelib:ensure_path(Dir),
    [
        ok = file:make_symlink(filename:join(Peer, Name), filename:join(Dir, Name))
     || Name <- ["t", "doc", "timedrun"]
    ],
    Program = filename:join(Dir, "memcached-debug"),
    ok = file:write_file(Program, [
        "#!/bin/sh\n"
        "for argument; do\n"
        "    shift\n"
        "    if [ \"$argument\" = -U ]; then udp=yes; elif [ -n \"$udp\" ]; then udp=; "
        "else set -- \"$@\" \"$argument\"; fi\n"
        "done\n"
        "exec ", program(), " -o debug \"$@\"\n"
    ]),
    ok = file:change_mode(Program, 8#755),
    Dir.

%% As scripts/memcached, with the code that is tested.
program() ->
    ["erl +P 400000 +Bd +sbwt none +sbwtdcpu none +sbwtdio none -noinput -pa ", [[filename:dirname(code:which(M)), $\s]
        || M <- [weir_memcached_server, weir_socket]],
        "-eval 'weir_memcached_server_main:main(init:get_plain_arguments()).' -extra"].

run_all(Names, Perl, Dir) ->
    Queue = ets:new(queue, [ordered_set, public]),
    true = ets:insert(Queue, [{{not lists:member(Name, ?LONGEST), Name}} || Name <- Names]),
    lists:append(weir_kit:in_parallel([fun() -> run_some(Queue, Perl, Dir) end
        || _ <- lists:seq(1, ?AT_ONCE)])).

run_some(Queue, Perl, Dir) ->
    case ets:first(Queue) of
        '$end_of_table' ->
            [];
        {_, Name} = First ->
            case ets:take(Queue, First) of
                [_] ->
                    [{Name, run_one(Name, Perl, Dir)} | run_some(Queue, Perl, Dir)];
                [] ->
                    run_some(Queue, Perl, Dir)
            end
    end.

run_one(Name, Perl, Dir) -> run(Perl, ?WITH_SIGINT ++ [Perl, "t/" ++ Name ++ ".t"], Dir).

alone({Name, {Status, Output}}, Times, Perl, Dir) when Status =/= 0, Times > 0 ->
    ct:pal("~s beside others:~n~ts", [Name, Output]),
    alone({Name, run_one(Name, Perl, Dir)}, Times - 1, Perl, Dir);
alone(Result, _Times, _Perl, _Dir) ->
    Result.

run(Program, Args, Dir) ->
    Port = open_port({spawn_executable, Program}, [{args, Args}, {cd, Dir}, exit_status, stderr_to_stdout, hide]),
    output(Port, []).

output(Port, Output) ->
    receive
        {Port, {data, Data}} -> output(Port, [Output | Data]);
        {Port, {exit_status, Status}} -> {Status, lists:flatten(Output)}
    end.

cache() ->
    case os:getenv("XDG_CACHE_HOME", "") of
        "" -> filename:join(os:getenv("HOME", "/root"), ".cache");
        Dir -> Dir
    end.

%% ---------------------------------------------------------------- libmemcached's tools

memccapable(Config) ->
    with_tool("memccapable", Config, fun(Tool, Port) ->
        {Status, Output} = run(Tool, ["-h", "127.0.0.1", "-p", integer_to_list(Port), "-a"], "."),
        ct:pal("~ts", [Output]),
        ?assertEqual({0, nomatch}, {Status, string:find(Output, "FAIL")}),
        ?assertEqual(27, length(string:split(Output, "[pass]", all)) - 1)
    end).

%% The binary protocol is refused: by an answer that its clients understand, so that none of them waits.
memccapable_binary(Config) ->
    with_tool("memccapable", Config, fun(Tool, Port) ->
        {_, Output} = run(Tool, ["-h", "127.0.0.1", "-p", integer_to_list(Port), "-b", "-T", "binary noop"], "."),
        ?assertNotEqual(nomatch, string:find(Output, "FAIL"))
    end).

%% Verifies what it has stored.
memcaslap(Config) ->
    with_tool("memcaslap", Config, fun(Tool, Port) ->
        Server = "127.0.0.1:" ++ integer_to_list(Port),
        {Status, Output} = run(Tool, ["-s", Server, "-T", "2", "-c", "32", "-x", "40000", "-v", "0.2", "-e", "0.1"],
            "."),
        ct:pal("~ts", [Output]),
        ?assertEqual(0, Status),
        [?assertEqual([Name, "0"], figure(Name, Output)) || Name <- ["verify_misses", "verify_failed"]],
        ?assertNotEqual(["cmd_set", "0"], figure("cmd_set", Output))
    end).

figure(Name, Output) ->
    {match, [Value]} = re:run(Output, Name ++ ":\\s*([0-9]+)", [{capture, all_but_first, list}]),
    [Name, Value].

with_tool(Name, _Config, Fun) ->
    case os:find_executable(Name) of
        false ->
            {skip, Name ++ " is not installed (libmemcached-tools)"};
        Tool ->
            Server = weir_memcached_server_test:start(#{memory => 512 bsl 20}),
            Fun(Tool, weir_memcached_server:port(Server))
    end.

%% ---------------------------------------------------------------- the command line

unknown_arguments(_Config) ->
    Fails = fun(Line) -> {fail, _} = weir_memcached_server_main:parse(string:lexemes(Line, " ")) end,
    lists:foreach(Fails, [
        "-U 11211", "-S", "-C", "-d", "-A", "-e /tmp/x", "-f 1.25", "-n 48", "-L", "-D :", "-R 1", "-r", "-k", "-X",
            "-p", "-p x",
        "-p 0", "-c 0", "-m x", "-I 0", "-I 5g", "-B binary", "-l nowhere.invalid", "-l 127.0.0.1,127.0.0.2",
            "-o ext_path=/x", "-Z",
        "--nonsense", "nonsense", "-u nobody-else", "-t 0", "-a 9"
    ]),
    Runs = fun(Line) ->
        {run, Options, _} = weir_memcached_server_main:parse(string:lexemes(Line, " ")),
        Options
    end,
    ?assertEqual(#{port => 11211}, Runs("")),
    ?assertEqual(#{port => 0, ip => {127, 0, 0, 2}, memory => 3 bsl 20, max_item => 2 bsl 10, max_connections => 5},
        Runs("-p -1 -l 127.0.0.2 -m 3 -I2k -c 5 -vv -U 0")),
    ?assertEqual(#{port => 11211, path => "/x", mode => 8#777, evict => false, flush => false, auth => {file, "f"}},
        Runs("-s /x -a 777 -MF -Y f -B ascii")),
    ?assertEqual(#{port => 7, ip => {0, 0, 0, 0, 0, 0, 0, 1}, tls => [{certfile, "c"}, {keyfile, "k"}],
        idle_timeout => 3000},
        Runs("-l [::1]:7 -Z -o ssl_chain_cert=c,ssl_key=k,idle_timeout=3,modern")),
    ?assertEqual(#{port => 4, memory => 1 bsl 20}, Runs("--port=4 --memory-limit 1")),
    {print, _} = weir_memcached_server_main:parse(["-h"]),
    {print, _} = weir_memcached_server_main:parse(["-V"]),
    ok.
