%% @doc Writes what docs/benchmarks.md shows of the results that are kept
%% (`make bench-report', and `make bench' at its end):
%% between `<!-- measured: NAME -->' and `<!-- end -->' comes one table for each part, and one of the machine. The prose
%% around them is written by hand.
%%
%% A line of a table is a contestant; what was measured stands before the first one, which is Weir's, and the ratio says
%% how many times better that one is. Which of all results are shown is {@link rows/0}; the others are in the same
%% files.
-module(weir_bench_report).

-export([write/0, page/2, rows/0, find/2]).

-export_type([results/0, row/0]).

-define(PAGE, "docs/benchmarks.md").

-type results() :: #{Otp :: string() => [weir_bench_results:line()]}.
%% What is kept of each release; no lines where nothing is.

-record(row, {
    benchmark :: string(),
    %% How the table's title begins, and its unit if another table has that title too.
    table :: string(),
    unit = any :: string() | any,
    what :: iodata(),
    %% Weir's first. Of several names the best by its median is shown.
    who :: [{Label :: iodata(), Names :: [string(), ...]}, ...]
}).

-opaque row() :: #row{}.
%% A few lines of a part's table.

%% @doc Keeps the latest results, writes the page and its pictures, and says so.
-spec write() -> ok.
write() ->
    ok = weir_bench_results:keep(),
    Results = maps:from_list([{Otp, weir_bench_results:kept(Otp)} || Otp <- weir_bench_results:releases()]),
    {ok, Page} = file:read_file(?PAGE),
    ok = file:write_file(?PAGE, page(Page, Results)),
    Pictures = weir_bench_pictures:write(Results),
    io:format("~n~ts~n", [lists:join(" ", [?PAGE | Pictures])]).

%% @doc The page with its tables written anew. Pure.
-spec page(Page :: binary(), results()) -> binary().
page(Page, Results) ->
    Tables = [{"machine", machine(Results)} | [{atom_to_list(Part), table(Rows, Results)} || {Part, Rows} <- rows()]],
    lists:foldl(
        fun({Name, Table}, Text) ->
            Begin = unicode:characters_to_binary(["<!-- measured: ", Name, " -->\n"]),
            [Before, Rest] = binary:split(Text, Begin),
            [_, After] = binary:split(Rest, <<"<!-- end -->\n">>),
            unicode:characters_to_binary([Before, Begin, "\n", Table, "\n<!-- end -->\n", After])
        end,
        Page,
        Tables
    ).

machine(Results) ->
    Runs = [latest_run(maps:get(Otp, Results, [])) || Otp <- weir_bench_results:releases()],
    Line = fun({Name, Key}) ->
        [Name | [text(maps:get(Key, Run, "")) || Run <- Runs]]
    end,
    [
        markdown([["" | [["OTP ", Otp] || Otp <- weir_bench_results:releases()]]], left),
        markdown(
            lists:map(Line, [
                {"machine", machine},
                {"cores", cores},
                {"kernel", kernel},
                {"load before the last run", load},
                {"ERTS", erts},
                {"memcached", memcached},
                {"poolboy", poolboy},
                {"other servers", servers},
                {"lager", lager},
                {"tools that look at a node", watchers}
            ]),
            none
        )
    ].

text(Number) when is_integer(Number) -> integer_to_list(Number);
text(Text) -> Text.

latest_run(Lines) ->
    case [Run || #{otp := _} = Run <- Lines] of
        [] -> #{};
        Runs -> lists:last(Runs)
    end.

%% ---------------------------------------------------------------- a part's table

table(Rows, Results) ->
    Releases = weir_bench_results:releases(),
    Head = ["measured", "" | lists:append([[["OTP ", Otp], "least to most", "ratio"] || Otp <- Releases])],
    [
        markdown([Head], right),
        markdown(lists:append([lines(Row, Releases, Results) || Row <- Rows, is_measured(Row, Results)]), none),
        "\n",
        command(Rows, Releases, Results)
    ].

is_measured(Row, Results) ->
    lists:any(fun(Lines) -> lists:any(fun is_map/1, find(Row, Lines)) end, maps:values(Results)).

lines(#row{what = What, who = Who} = Row, Releases, Results) ->
    Columns = [columns(find(Row, maps:get(Otp, Results, []))) || Otp <- Releases],
    Units = [Unit || Otp <- Releases, #{unit := Unit} <- find(Row, maps:get(Otp, Results, []))],
    First = [What, [[", ", unit(Unit)] || Unit <- lists:sublist(Units, 1)]],
    Firsts = [First | lists:duplicate(length(Who) - 1, "")],
    [
        [Measured, Label | lists:append([lists:nth(Index, Column) || Column <- Columns])]
     || {Index, Measured, {Label, _}} <- lists:zip3(lists:seq(1, length(Who)), Firsts, Who)
    ].

columns([Ours | _] = Found) ->
    [
        case Line of
            none -> ["", "", ""];
            #{median := Median, rounds := 1} -> [figure(Median), "1 round", ratio(Ours, Line)];
            #{median := Median} -> [figure(Median), spread(Line), ratio(Ours, Line)]
        end
     || Line <- Found
    ].

figure(Figure) -> weir_bench_table:figure(Figure).

spread(#{min := Min, max := Max}) -> [figure(Min), " to ", figure(Max)].

%% Of Weir's own there is none; and a queue may be empty.
ratio(_, #{role := <<"ours">>}) -> "";
ratio(#{median := Ours, better := Better}, #{median := Theirs}) when Ours > 0, Theirs > 0 ->
    weir_bench_table:ratio(case Better of <<"lower">> -> Theirs / Ours; <<"higher">> -> Ours / Theirs end);
ratio(_, _) -> "".

unit(<<"ns/", Of/binary>>) -> ["ns a ", Of];
unit(Unit) ->
    case binary:split(Unit, <<"/s">>) of
        [What, <<>>] -> [What, " a second"];
        _ -> Unit
    end.

%% @doc What is kept of a row's contestants: a line for each, or `none'. Pure.
-spec find(row(), [weir_bench_results:line()]) -> [weir_bench_results:line() | none].
find(#row{benchmark = Benchmark, table = Table, unit = Unit, who = Who}, Lines) ->
    In = [
        Line
     || #{benchmark := Each, what := What, unit := In, median := _} = Line <- Lines,
        Each =:= list_to_binary(Benchmark),
        string:prefix(What, Table) =/= nomatch,
        Unit =:= any orelse In =:= list_to_binary(Unit)
    ],
    [best([Line || Name <- Names, #{who := Is} = Line <- In, Is =:= list_to_binary(Name)]) || {_, Names} <- Who].

best([]) -> none;
best([#{better := Better} | _] = Lines) ->
    Sorted = lists:sort(fun(#{median := One}, #{median := Other}) -> One =< Other end, Lines),
    case Better of
        <<"lower">> -> hd(Sorted);
        <<"higher">> -> lists:last(Sorted)
    end.

command(Rows, Releases, Results) ->
    Used = lists:usort([list_to_binary(Benchmark) || #row{benchmark = Benchmark} <- Rows]),
    Benchmarks = [Name || {Name, _} <- weir_bench:benchmarks(), lists:member(list_to_binary(Name), Used)],
    [
        io_lib:format("`BENCH=~ts make bench`", [lists:join(",", Benchmarks)]),
        [
            io_lib:format("; OTP ~ts: ~ts", [Otp, lists:join(", ", Measured)])
         || Otp <- Releases, Measured <- [measured(Used, maps:get(Otp, Results, []))], Measured =/= []
        ],
        "\n"
    ].

%% When, and of which commit.
measured(Benchmarks, Lines) ->
    Names = lists:usort([Run || #{benchmark := Each, run := Run} <- Lines, lists:member(Each, Benchmarks)]),
    lists:usort([
        io_lib:format("~ts (commit ~ts)", [date(Date), Commit])
     || #{run := Run, date := Date, commit := Commit} <- Lines, lists:member(Run, Names)
    ]).

date(<<Date:10/binary, _/binary>>) -> Date.

markdown(Lines, Align) ->
    Text = [["| ", lists:join(" | ", Cells), " |\n"] || Cells <- Lines],
    case Align of
        none -> Text;
        left -> [Text, ["|" | lists:duplicate(length(hd(Lines)), "---|")], "\n"];
        right -> [Text, "|---|---|", lists:duplicate(length(hd(Lines)) - 2, "---:|"), "\n"]
    end.

%% ---------------------------------------------------------------- what is shown

%% @doc What is shown of each part, in the order of the page.
-spec rows() -> [{Part :: atom(), [row(), ...]}].
rows() ->
    [
        {weir_pool, pool()},
        {weir_server, server()},
        {weir_flow, flow()},
        {weir_log, log()},
        {weir_socket, socket()},
        {weir_memcached, memcached()},
        {weir_memcached_server, memcached_server()},
        {weir_watch, watch()},
        {weir_cluster, cluster()}
    ].

pool() ->
    [
        #row{
            benchmark = "pick",
            table = lists:concat([N, " process(es)"]),
            what = ["`pick/1` of one of 20 workers, " | processes(N)],
            who = [
                {"weir_pool", ["weir_pool:pick/1"]},
                {"erlpool's algorithm, as published", ["erlpool's algorithm, as published"]},
                {"the same, with the best table options", [
                    "erlpool's algorithm, as published",
                    "erlpool's algorithm, no table options",
                    "erlpool's algorithm, write_concurrency auto"
                ]}
            ]
        }
     || N <- [1, 2, 4]
    ] ++
        [
            #row{
                benchmark = "claim",
                table = lists:concat([N, " process(es)"]),
                what = ["a claim of one of 20 workers, " | processes(N)],
                who = [
                    {"weir_pool", ["weir_pool:claim/3"]},
                    {"poolboy", ["poolboy:transaction/3, lifo", "poolboy:transaction/3, fifo"]}
                ]
            }
         || N <- [1, 2, 100]
        ] ++
        [
            #row{
                benchmark = "requests",
                table = "requests",
                what = "4,000 callers of 20 gen_servers",
                who = [
                    {"weir_pool", ["weir_pool:pick/1, gen_server:call/2"]},
                    {"erlpool's algorithm, its best", [
                        "erlpool's algorithm, as published, gen_server:call/2",
                        "erlpool's algorithm, no table options, gen_server:call/2",
                        "erlpool's algorithm, write_concurrency auto, gen_server:call/2"
                    ]},
                    {"poolboy", ["poolboy:transaction/2"]}
                ]
            },
            #row{
                benchmark = "restarts",
                table = "picks of 1 process(es) in a tight loop",
                what = "picks while workers die, 100,000 idle processes",
                who = [{"1,000 restarts a second", ["1,000 restarts a second"]}, {"no restarts", ["none"]}]
            },
            #row{
                benchmark = "overload",
                table = "wait, 99 % of those served",
                what = "200 callers, twice what 10 workers can do: wait of 99 %",
                who = [{"with CoDel", ["CoDel"]}, {"first come, first served", ["first come, first served"]}]
            },
            #row{
                benchmark = "overload",
                table = "served",
                what = "the same: served",
                who = [{"with CoDel", ["CoDel"]}, {"first come, first served", ["first come, first served"]}]
            }
        ] ++
        [
            #row{benchmark = "large", table = "a pool of 10000 slots", what = What, who = [{"weir_pool", [Name]}]}
         || {What, Name} <- [
                {"a pool of 10,000 workers: start", "start"},
                {"the same: stop", "stop"},
                {"the same: longest start and stop of a pool of 1 meanwhile",
                    "longest start and stop of a pool of 1 meanwhile"}
            ]
        ].

server() ->
    [
        #row{
            benchmark = "server",
            table = Table,
            what = What,
            who = [{Name, [Name]} || Name <- ["weir_server", "gen_server", "gen_server2"]]
        }
     || {Table, What} <- [
            {"calls, 1 process(es)", "calls, 1 process"},
            {"calls, 100 process(es)", "calls, 100 processes"},
            {"casts until all are handled, 1 process, on the server's", "casts, 1 process on the server's scheduler"},
            {"the same, on another scheduler", "casts, 1 process on another scheduler"},
            {"casts until all are handled, 100", "casts, 100 processes"},
            {"calls, 100000 wait", "calls of 100 processes, 100,000 messages wait"},
            {"casts, 100000 wait", "casts, 100,000 messages wait"}
        ]
    ] ++
        [
            #row{
                benchmark = "batch",
                table = "1000000 casts",
                what = "a million waiting casts worked off, mailbox on the heap",
                who = [
                    {"weir_server, `handle_batch/2`", ["weir_server, handle_batch"]},
                    {"gen_server", ["gen_server"]},
                    {"gen_server2", ["gen_server2"]},
                    {"gen_batch_server, its best", [
                        "gen_batch_server", "gen_batch_server, to 65,536", "gen_batch_server, to 512"
                    ]}
                ]
            },
            #row{
                benchmark = "batch",
                table = "1000000 casts",
                what = "the same, mailbox off the heap",
                who = [
                    {"weir_server, `handle_batch/2`", ["weir_server, handle_batch, off_heap"]},
                    {"gen_server", ["gen_server, off_heap"]},
                    {"gen_server2", ["gen_server2, off_heap"]},
                    {"gen_batch_server, its best", ["gen_batch_server, off_heap", "gen_batch_server, to 512, off_heap"]}
                ]
            }
        ] ++
        [
            #row{
                benchmark = "receive",
                table = lists:concat([Backlog, " messages wait"]),
                what = ["a `receive` in a callback, ", Messages, " wait"],
                who = [{Name, [Name]} || Name <- ["weir_server", "gen_server", "gen_server2"]]
            }
         || {Backlog, Messages} <- [{0, "no messages"}, {1_000, "1,000 messages"}, {100_000, "100,000 messages"}]
        ] ++
        [
            #row{
                benchmark = "flood",
                table = Table,
                what = ["ten times what it can handle, 10 s: ", What],
                who = [
                    {"weir_server, `max_queue`", ["weir_server, reject"]},
                    {"gen_server, killed at the end", ["gen_server, killed at the end"]}
                ]
            }
         || {Table, What} <- [
                {"memory of the server, the most", "most memory of the server"},
                {"messages that wait, the most", "longest queue"}
            ]
        ].

flow() ->
    Senders = "a million casts of 500 senders to a gen_server: ",
    Plain = {"gen_server:cast/2", ["gen_server:cast/2"]},
    Through = {"weir_flow:cast/3, window 8", ["weir_flow:cast/3, window 8"]},
    [
        #row{
            benchmark = "flow", table = "longest mailbox", what = [Senders, "longest mailbox"], who = [Through, Plain]
        },
        #row{
            benchmark = "flow",
            table = "all handled",
            what = "the same: time until all are handled",
            who = [Through, Plain]
        },
        #row{
            benchmark = "flow",
            table = "one sender, the receiver is idle",
            what = "a cast that need not wait",
            who = [{"weir_flow:cast/3", ["weir_flow:cast/3, never waits"]}, Plain]
        }
    ] ++
        [
            #row{
                benchmark = "limit",
                table = Many ++ " senders, limit 10",
                what = [Many, " senders wait for a limit of 10, the server needs 10 us"],
                who = [
                    {"weir_flow:cast/3, `limit => wait`", ["weir_flow:cast/3, limit => wait"]},
                    {"gen_server:call/2", ["gen_server:call/2"]}
                ]
            }
         || Many <- ["100", "1000", "5000", "20000"]
        ].

log() ->
    Of = fun(Benchmark, Table, Unit, What, Who) ->
        #row{benchmark = Benchmark, table = Table, unit = Unit, what = What, who = Who}
    end,
    Shards = fun(Name, Peer) ->
        [
            {Name, [Name ++ ", shards: 1"]},
            {[Name, ", 2 shards"], [Name ++ ", shards: 2"]},
            Peer
        ]
    end,
    Waiting = Shards("weir_log:log/2, written", {"disk_log:blog/2, in its cache", ["disk_log:blog/2"]}),
    NotWaiting = Shards("weir_log:alog/2", {"disk_log:balog/2", ["disk_log:balog/2"]}),
    Handlers = [
        {"weir_log_h", ["weir_log_h"]},
        {"logger_std_h, its limits out of reach", ["logger_std_h, no limits"]},
        {"logger_disk_log_h, its limits out of reach", ["logger_disk_log_h, no limits"]},
        {"lager, its best", ["lager_file_backend, async_threshold: 20", "lager_file_backend, no limits"]}
    ],
    Lines = fun(Function) ->
        [{Name, [Name]} || Name <- ["weir_log:" ++ Function ++ "/2", "disk_log:b" ++ Function ++ "/2"]]
    end,
    [
        Of("log", "waiting until it is written", "entries a second", "1,000 processes wait for each entry", Waiting),
        Of("log", "waiting until it is written", queue(), "the same", Waiting),
        Of("log", "waiting until it is written", memory(), "the same", Waiting),
        Of("log", "not waiting", "entries a second", "1,000 processes that do not wait", NotWaiting),
        Of("log", "not waiting", queue(), "the same", NotWaiting),
        Of("log", "not waiting", memory(), "the same", NotWaiting),
        Of("log", "waiting until it is durable", any, "1,000 processes wait until it is on the disk", [
            {"weir_log, `ack => synced`", ["weir_log:log/2, synced, shards: 1"]},
            {"disk_log:blog/2 and disk_log:sync/1", ["disk_log:blog/2 and disk_log:sync/1"]},
            {"one process, one fdatasync an entry", ["one process, one fdatasync an entry"]}
        ]),
        Of("log_h", "what is in the file", any, "300,000 events of `logger` at once: in the file", [
            {"weir_log_h", ["weir_log_h"]},
            {"logger_std_h", ["logger_std_h"]},
            {"logger_std_h, without its limit of bursts", ["logger_std_h, bursts allowed"]},
            {"logger_disk_log_h", ["logger_disk_log_h"]}
        ]),
        Of("log_h", "until it is in the file", any, "the same, where nothing is lost", Handlers),
        Of("log_ancestor", "sync", "seconds", "a million lines of 1,000 processes that wait",
            Lines("log")),
        Of("log_ancestor", "async", "seconds", "100,000 lines of 1,000 processes that do not wait",
            Lines("alog"))
    ].

queue() -> "messages in the longest queue".

memory() -> "KB of the log's processes at most".

socket() ->
    [
        #row{
            benchmark = "socket",
            table = lists:concat(["echo of 64 bytes, ", Connections, ", ", Mode]),
            unit = "requests a second",
            what = ["echo of 64 bytes, ", Connections, ", ", Mode],
            who = backends(Mode)
        }
     || Connections <- ["64 connections", "512 connections", "1 connection"], Mode <- ["passive", "active"]
    ] ++
        [
            #row{
                benchmark = "socket",
                table = "echo of 64 bytes, 64 connections, " ++ Mode,
                unit = "us of processor time of the server for a request",
                what = ["echo of 64 bytes, 64 connections, ", Mode],
                who = backends(Mode)
            }
         || Mode <- ["passive", "active"]
        ] ++
        [
            #row{
                benchmark = "socket",
                table = "echo of 64 bytes, 64 connections, p99 latency",
                what = ["echo of 64 bytes, 64 connections, ", Mode, ", 99 % within"],
                who = backends(Mode)
            }
         || Mode <- ["passive", "active"]
        ] ++
        [
            #row{
                benchmark = "socket_paced",
                table = "10000 requests a second over 64 connections, " ++ Table,
                what = ["10,000 requests a second, ", What],
                who = backends("passive")
            }
         || {Table, What} <- [{"passive", "passive"}, {"p50 latency", "passive, half of them within"}]
        ] ++
        [
            #row{
                benchmark = "socket_bulk",
                table = lists:concat([Direction, ", ", Count, " at once"]),
                what = ["64 KB writes, ", connections(Count), ": ", Direction],
                who = [
                    {"weir_socket", ["weir_socket", "weir_socket, passive", "weir_socket, active N"]},
                    {"OTP, the best of its", [
                        "gen_tcp", "gen_tcp on socket", "socket", "gen_tcp, passive", "gen_tcp, active N",
                        "gen_tcp on socket, passive", "gen_tcp on socket, active N"
                    ]}
                ]
            }
         || Count <- [1, 8],
            Direction <- ["the server receives", "the server sends", "the server sends back what it receives"]
        ] ++
        [
            #row{
                benchmark = "socket_idle",
                table = Table,
                what = [What, ", ", Mode],
                who = [{"weir_socket", ["weir_socket, " ++ Name]}, {"gen_tcp", ["gen_tcp, " ++ Name]}]
            }
         || {Table, What} <- [
                {"resident memory", "memory of each of 10,000 idle connections"},
                {"echo rate beside", "echo rate beside them, in parts of the rate without"}
            ],
            {Mode, Name} <- [{"passive", "passive"}, {"active", "active N"}]
        ].

connections(1) -> "1 connection";
connections(Count) -> lists:concat([Count, " connections"]).

%% The best mode and the better of gen_tcp's two backends.
backends(Mode) ->
    Modes = case Mode of
        "passive" -> ["passive"];
        "active" -> ["active true", "active once", "active N"]
    end,
    [
        {"weir_socket", ["weir_socket, " ++ Each || Each <- Modes]},
        {"gen_tcp", ["gen_tcp, " ++ Each || Each <- Modes] ++ ["gen_tcp on socket, " ++ Each || Each <- Modes]},
        {"a server in C, one thread", ["C, one thread, epoll"]}
    ].

memcached() ->
    [
        #row{
            benchmark = "oneshot",
            table = "25,000 at once",
            what = "25,000 processes at once, one `set` each, one connection",
            who = [
                {"weir_memcached", ["weir_memcached, 25000"]},
                {"merle's design, on a server that drains its mailbox", ["old design, draining server"]},
                {"merle's design, on gen_server", ["old design, gen_server"]}
            ]
        },
        #row{
            benchmark = "oneshot",
            table = "more at once",
            what = "100,000 of them",
            who = [{"weir_memcached", ["weir_memcached, 100000"]}]
        }
    ] ++
        [
            #row{
                benchmark = "pipeline",
                table = Operation,
                what = ["1,000 callers, one connection, ", Operation],
                who = [
                    {"weir_memcached", ["weir_memcached"]},
                    {"the ceiling: a loop on gen_tcp without callers",
                        lists:map(fun weir_bench_raw:describe/1, weir_bench_raw:arrangements(1_000))}
                ]
            }
         || Operation <- ["sets", "gets"]
        ] ++
        [
            #row{
                benchmark = "pipeline",
                table = "get_many of 100 keys, 16 callers",
                what = "16 callers, one connection, `get_many` of 100 keys",
                who = [
                    {"weir_memcached", ["weir_memcached"]},
                    {"the ceiling: a loop on gen_tcp that reads no value",
                        lists:map(fun weir_bench_raw:describe/1, weir_bench_raw:arrangements(16))}
                ]
            }
        ].

memcached_server() ->
    Who = [{Name, [Name]} || Name <- ["weir_memcached_server", "memcached"]],
    [
        #row{
            benchmark = "memcached_server",
            table = lists:concat([Work, " of 100 bytes, ", Count, " connections, ", Times,
                " at a time: requests for each"]),
            what = [Work, ", ", connections(Count), ", ", Times, " at a time: for each second of a core"],
            who = Who
        }
     || {Count, Times} <- [{64, "one"}, {64, "50"}, {1_000, "one"}, {10_000, "one"}], Work <- ["get", "set"]
    ] ++
        [
            #row{
                benchmark = "memcached_server",
                table = "memcaslap at its usual settings",
                what = "memcaslap at its usual settings, on the same cores",
                who = Who
            },
            #row{
                benchmark = "memcached_server",
                table = "resident memory",
                what = "memory of each of 10,000 idle connections",
                who = Who
            },
            #row{benchmark = "memcached_hits", table = "hits, Zipf, 300000", what =
                "hits of keys in Zipf's distribution", who = Who},
            #row{
                benchmark = "memcached_hits",
                table = "hits, Zipf, and",
                what = "the same, and each fourth is a key that comes once",
                who = Who
            }
        ].

watch() ->
    Pass = {"recon:proc_count/2, one pass a minute", ["recon:proc_count/2, once a minute"]},
    Screen = {"observer_cli, every 1.5 s", ["observer_cli, its list by mailbox, 1.5 s"]},
    Asked = {"recon:proc_count/2, asked at once", ["recon:proc_count/2, asked at once"]},
    Shown = {"observer_cli, its list by mailbox", ["observer_cli, its list by mailbox"]},
    Ours = {"weir_watch", ["weir_watch"]},
    Of = fun(Table, What, Who) -> #row{benchmark = "watch", table = Table, what = What, who = Who} end,
    Calls = "a server for whom 1 % of the processes wait in calls: time until it",
    Casts = "a server without a name that is flooded with casts: time until it",
    Cause = "the same: its cause is told",
    [
        Of("processor time", "looking at 1,000,000 idle processes: processor time", [
            Ours, Screen, Pass, {"nothing looks", ["nothing"]}
        ]),
        Of("memory", "the same: memory, at most", [Ours, Screen, Pass]),
        Of(Calls ++ " is", [Calls, " is named"], [Ours, Shown, Asked]),
        Of(Calls ++ "s", Cause, [Ours]),
        Of(Casts ++ " is", [Casts, " is named"], [Ours, Shown, Asked]),
        Of(Casts ++ "s", Cause, [Ours])
    ].

cluster() ->
    Ways = [
        {"weir_cluster", ["weir_cluster"]},
        {"pg:get_members/2, a random one, gen_server:call/3", ["pg, a random member"]},
        {"erpc:call/5 to a random node", ["erpc, a random node"]}
    ],
    Global = {"a gen_server registered with global", ["global, one process"]},
    Of = fun(Table, What, Who) -> #row{benchmark = "cluster", table = Table, what = What, who = Who} end,
    Three = "16 callers, three nodes, of which one is ",
    [
        Of("a call that stays on", "a call that stays on its node", [hd(Ways), {"weir_pool:call/3", ["weir_pool"]}]),
        Of("a call that stays, and", "what it takes more than weir_pool:call/3", [hd(Ways)]),
        Of("the choice of one", "the choice of one of four nodes by key", lists:sublist(Ways, 2)),
        Of("a call to another node, one", "a call to another node, one caller", Ways ++ [Global]),
        Of("a call to another node: bytes", "the same: on the wire, to and fro", Ways ++ [Global]),
        Of("a call to another node: messages", "the same: messages, to and fro", Ways ++ [Global])
    ] ++ [
        Of("32 callers, " ++ Nodes, ["32 callers, ", Nodes, ", workers that have nothing to do"], Ways ++ [Global])
     || Nodes <- ["one other node", "2 other nodes", "4 other nodes", "8 other nodes"]
    ] ++ [
        Of(Three ++ Trouble ++ ": " ++ Figure, [Three, Trouble, ": ", Figure], Ways ++ [Global])
     || Trouble <- ["slow", "killed", "frozen"], Figure <- ["done", "failed", "50 of 100", "99 of 100"]
    ] ++ [
        Of(Nodes ++ Event, Nodes ++ What, lists:sublist(Ways, 2))
     || Nodes <- ["2 nodes", "4 nodes", "8 nodes"],
        {Event, What} <- [
            {" are connected", " are connected: each calls the others after"},
            {", split", ", split in two and connected again: each calls the others after"},
            {", one of which", ", one of which is killed: none calls it after"}
        ]
    ] ++ [
        Of("100 nodes that do nothing, each: " ++ Figure, "100 nodes that do nothing, each: " ++ Figure, [
            {"with a pool", ["weir_cluster"]}, {"connected, in one group of pg", ["pg alone"]}
        ])
     || Figure <- ["processor time", "sent"]
    ] ++ [
        (Of(Title, ["simulated: ", Title, " for a worker"], [
            {"weir_cluster", ["weir_cluster"]}, {"a node at random", ["a random one"]}
        ]))#row{benchmark = "cluster_policy"}
     || Nodes <- ["4", "32", "1000"], Busy <- ["70", "90"],
        Title <- [Nodes ++ " nodes of 4 workers, " ++ Busy ++ " % busy: 99 of 100 wait at most"]
    ].

processes(1) -> "1 process";
processes(N) -> lists:concat([N, " processes"]).
